//! Cron against facts from elsewhere, and against a walk through every minute.

use jiff::Timestamp as Moment;
use proptest::prelude::*;

use super::*;

fn at(text: &str) -> Timestamp {
    let text = if text.len() == 17 { text.replace('Z', ":00Z") } else { text.to_owned() };
    Timestamp(text.parse::<Moment>().unwrap().as_millisecond())
}

fn cron(expression: &str, zone: &str) -> Cron {
    Cron::new(expression, zone).unwrap_or_else(|error| panic!("{expression}: {error}"))
}

fn slots(cron: &Cron, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
    let mut slots = Vec::new();
    let mut next = cron.after(Timestamp(from.0 - 1));
    while let Some(slot) = next.filter(|slot| *slot < to) {
        slots.push(slot);
        next = cron.after(slot);
    }
    slots
}

fn utc(slot: Timestamp) -> Moment {
    Moment::from_millisecond(slot.0).unwrap()
}

/// FC-064, FC-065, FC-072: expression, zone, from, to, and the slots in between as day, hour and minute of UTC.
///
/// Not by this program: made with Python's `zoneinfo` (version 3.11, zone data 2025b of the machine), going
/// through the time in between minute by minute. An interval fires in each minute whose wall clock fits. Fixed
/// times fire in a minute that shows a later time than all before it, if a time fits among those that are new
/// with it: the one shown, or one jumped over.
const FACTS: &[(&str, &str, &str, &str, &[&str])] = &[
    (
        "30 2 * * *",
        "America/New_York",
        "2027-03-13T00:00Z",
        "2027-03-16T00:00Z",
        &["13 07:30", "14 07:00", "15 06:30"],
    ),
    (
        "30 1 * * *",
        "America/New_York",
        "2026-10-31T00:00Z",
        "2026-11-03T00:00Z",
        &["31 05:30", "01 05:30", "02 06:30"],
    ),
    (
        "0 */2 * * *",
        "Europe/Vienna",
        "2026-10-24T22:00Z",
        "2026-10-25T06:00Z",
        &["24 22:00", "25 00:00", "25 01:00", "25 03:00", "25 05:00"],
    ),
    (
        "30 * * * *",
        "Europe/Vienna",
        "2026-10-24T23:00Z",
        "2026-10-25T04:00Z",
        &["24 23:30", "25 00:30", "25 01:30", "25 02:30", "25 03:30"],
    ),
    (
        "*/20 2 * * *",
        "Europe/Vienna",
        "2027-03-27T00:00Z",
        "2027-03-29T12:00Z",
        &["27 01:00", "27 01:20", "27 01:40", "29 00:00", "29 00:20", "29 00:40"],
    ),
    (
        "15,45 2,3 * * *",
        "Europe/Vienna",
        "2027-03-28T00:00Z",
        "2027-03-29T00:00Z",
        &["28 01:00", "28 01:15", "28 01:45"],
    ),
    (
        "0 0 * * *",
        "Asia/Beirut",
        "2026-03-27T00:00Z",
        "2026-03-31T00:00Z",
        &["27 22:00", "28 22:00", "29 21:00", "30 21:00"],
    ),
    (
        "30 23 * * *",
        "Asia/Beirut",
        "2026-10-23T00:00Z",
        "2026-10-26T12:00Z",
        &["23 20:30", "24 20:30", "25 21:30"],
    ),
    (
        "0 0 * * *",
        "Africa/Cairo",
        "2026-10-28T00:00Z",
        "2026-10-31T12:00Z",
        &["28 21:00", "29 22:00", "30 22:00"],
    ),
    ("30 23 * * 6", "America/Nuuk", "2026-03-27T12:00Z", "2026-03-30T12:00Z", &["29 01:00"]),
    (
        "15 2 * * *",
        "Australia/Lord_Howe",
        "2026-10-02T12:00Z",
        "2026-10-05T12:00Z",
        &["02 15:45", "03 15:30", "04 15:15"],
    ),
    (
        "45 1 * * *",
        "Australia/Lord_Howe",
        "2026-04-03T12:00Z",
        "2026-04-06T12:00Z",
        &["03 14:45", "04 14:45", "05 15:15"],
    ),
    ("0 9 30 12 *", "Pacific/Apia", "2011-12-29T00:00Z", "2012-01-01T00:00Z", &["30 10:00"]),
    ("0 9 * * *", "Asia/Tokyo", "2026-03-28T00:00Z", "2026-03-30T00:00Z", &["28 00:00", "29 00:00"]),
    ("0 9 * * *", "EST5EDT", "2027-03-13T00:00Z", "2027-03-15T23:00Z", &["13 14:00", "14 13:00", "15 13:00"]),
];

#[test]
fn slots_are_those_that_another_program_finds() {
    for (expression, zone, from, to, wanted) in FACTS {
        let cron = cron(expression, zone);
        let found: Vec<String> = slots(&cron, at(from), at(to))
            .into_iter()
            .map(|slot| utc(slot).strftime("%d %H:%M").to_string())
            .collect();
        assert_eq!(&found, wanted, "{expression} in {zone}");
    }
}

/// FC-065.
#[test]
fn an_interval_goes_on_through_a_repeated_hour() {
    let (from, to) = (at("2026-10-25T00:55Z"), at("2026-10-25T02:05Z"));
    for (expression, step_ms) in [("* * * * *", 60_000), ("*/10 * * * * *", 10_000), ("* * * * * *", 1_000)] {
        let found = slots(&cron(expression, "Europe/Vienna"), from, to);
        assert_eq!(found.first(), Some(&from));
        assert!(found.windows(2).all(|pair| pair[1].0 - pair[0].0 == step_ms), "{expression}");
        assert_eq!(found.len() as i64, (to.0 - from.0) / step_ms);
    }
}

/// FC-064: the rule is shown where the next runs are.
#[test]
fn a_preview_shows_the_wall_clock_and_what_it_does_to_a_slot() {
    let runs = cron("30 2 * * *", "America/New_York").preview(at("2027-03-13T12:00Z"), 2);
    assert_eq!(runs[0].local, "Sunday 2027-03-14 03:00:00 -04:00");
    assert_eq!(runs[0].shift, Some(Shift::AfterGap));
    assert_eq!((runs[1].local.as_str(), runs[1].shift), ("Monday 2027-03-15 02:30:00 -04:00", None));
    let runs = cron("30 1 * * *", "America/New_York").preview(at("2026-10-31T12:00Z"), 10);
    assert_eq!(runs.len(), 10);
    assert_eq!(runs[0].local, "Sunday 2026-11-01 01:30:00 -04:00");
    assert_eq!(runs[0].shift, Some(Shift::FirstOfTwo));
    assert_eq!((runs[1].local.as_str(), runs[1].shift), ("Monday 2026-11-02 01:30:00 -05:00", None));
}

/// FC-066. By the fields alone: there is no zone and no search in it.
#[test]
fn what_can_never_fire_is_refused_at_once() {
    for expression in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 2 *", "0 0 30,31 FEB *", "0 0 0 31 2 *"] {
        let fields = Fields::read(expression);
        assert_eq!(fields, Err(CronError::Never(expression.to_owned())));
    }
    let from = at("2027-03-01T00:00Z");
    assert_eq!(cron("0 0 29 2 *", "UTC").after(from), Some(at("2028-02-29T00:00Z")));
    assert_eq!(cron("0 0 31 2 0", "UTC").after(from), Some(at("2028-02-06T00:00Z")));
}

/// FC-067.
#[test]
fn leap_days_and_short_months_are_kept() {
    let from = at("2028-02-29T12:00Z");
    let days = |expression: &str, count: usize| -> Vec<String> {
        let runs = cron(expression, "UTC").preview(from, count);
        runs.iter().map(|run| utc(run.at).strftime("%F").to_string()).collect()
    };
    assert_eq!(days("0 0 29 2 *", 2), ["2032-02-29", "2036-02-29"]);
    assert_eq!(days("0 0 31 2,3,4,5 *", 3), ["2028-03-31", "2028-05-31", "2029-03-31"]);
    let thirty_first =
        ["2028-03-31", "2028-05-31", "2028-07-31", "2028-08-31", "2028-10-31", "2028-12-31", "2029-01-31"];
    assert_eq!(days("0 0 31 * *", 7), thirty_first);
    // 2100 is no leap year.
    let cron = cron("0 0 29 2 *", "UTC");
    assert_eq!(cron.after(at("2096-03-01T00:00Z")), Some(at("2104-02-29T00:00Z")));
    for (expression, ..) in FACTS {
        assert_eq!(Cron::new(expression, "UTC").unwrap().preview(from, 10).len(), 10, "{expression}");
    }
}

/// FC-068.
#[test]
fn weekdays_are_those_of_posix() {
    // 2026-11-30 is a Monday.
    let from = at("2026-11-30T00:00Z");
    let week = |field: &str| -> String {
        let found = slots(&cron(&format!("0 9 * * {field}"), "UTC"), from, at("2026-12-07T00:00Z"));
        found.into_iter().map(|slot| utc(slot).strftime("%a ").to_string()).collect()
    };
    for sunday in ["0", "7", "SUN", "sun", "0,7"] {
        assert_eq!(week(sunday), "Sun ");
    }
    for weekdays in ["1-5", "MON-FRI", "mon-5"] {
        assert_eq!(week(weekdays), "Mon Tue Wed Thu Fri ");
    }
    assert_eq!(week("*/2"), "Tue Thu Sat Sun ");
    assert_eq!(week("5-7"), "Fri Sat Sun ");
    assert_eq!(week("SAT-SUN"), "Sat Sun ");
    assert_eq!(week("0-7"), "Mon Tue Wed Thu Fri Sat Sun ");
    let weekly = cron("@weekly", "UTC").preview(from, 1);
    assert_eq!(weekly[0].local, "Sunday 2026-12-06 00:00:00 +00:00");
    // The 13th or a Friday.
    let runs = cron("0 0 13 * 5", "UTC").preview(from, 4);
    let days: Vec<&str> = runs.iter().map(|run| run.local.split(" 00:").next().unwrap()).collect();
    assert_eq!(days, ["Friday 2026-12-04", "Friday 2026-12-11", "Sunday 2026-12-13", "Friday 2026-12-18"]);
    // A step counts as set, as in all lists.
    assert_eq!(slots(&cron("0 0 */10 * 1", "UTC"), from, at("2026-12-08T00:00Z")).len(), 3);
}

#[test]
fn a_schedule_is_shown_in_words() {
    let words =
        |expression: &str| cron(expression, "Europe/Vienna").in_words().replace(", Europe/Vienna time", "");
    for (expression, wanted) in [
        ("* * * * *", "every minute"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("* * * * * *", "every second"),
        ("*/7 * * * *", "at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour"),
        ("*/15 9-17 * * 1-5", "every 15 minutes of hours 09 to 17, on Monday to Friday"),
        ("@hourly", "at minute 0 of every hour"),
        ("0 9 * * 7", "at 09:00, on Sunday"),
        ("0 9 * * 1-5", "at 09:00, on Monday to Friday"),
        ("0 9,17 * * SAT,SUN", "at 09:00 and 17:00, on Saturday and Sunday"),
        ("30 0 9 1 1,7 *", "at 09:00:30, on day 1 of the month, in January and July"),
        ("0 0 13 * 5", "at 00:00, on day 13 of the month or on Friday"),
        ("0 0 1-3,15 * *", "at 00:00, on days 1 to 3 and 15 of the month"),
        ("* 2 * * *", "every minute of hour 02"),
        ("0 */6 * * *", "at 00:00, 06:00, 12:00 and 18:00"),
    ] {
        assert_eq!(words(expression), wanted, "{expression}");
    }
    assert_eq!(cron("@daily", "asia/tokyo").in_words(), "at 00:00, Asia/Tokyo time");
}

#[test]
fn a_fault_names_its_field() {
    let fault = |expression: &str| Cron::new(expression, "UTC").unwrap_err().to_string();
    for (expression, wanted) in [
        ("60 * * * *", "minute `60`: not within 0 to 59"),
        ("* 24 * * *", "hour `24`: not within 0 to 23"),
        ("* * 0 * *", "day of month `0`: not within 1 to 31"),
        ("* * * 13 *", "month `13`: not within 1 to 12"),
        ("* * * * 8", "day of week `8`: not within 0 to 7"),
        ("* * * * MONDAY", "day of week `MONDAY`: neither a number nor the first three letters of a name"),
        ("a * * * *", "minute `a`: not a number"),
        ("1,,2 * * * *", "minute ``: a value is missing"),
        ("*/0 * * * *", "minute `*/0`: a step is a number from 1 on"),
        ("*/+5 * * * *", "minute `*/+5`: a step is a number from 1 on"),
        ("*/90 * * * *", "minute `*/90`: the step is longer than what it steps over"),
        ("5/15 * * * *", "minute `5/15`: a step needs `*` or a range: 5-59"),
        ("* 22-2 * * *", "hour `22-2`: the range goes backward; write it as two"),
        ("* * L * *", "day of month `L`: not a number"),
        (
            "@reboot",
            "`@reboot` is not known; there are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually",
        ),
    ] {
        assert_eq!(fault(expression), wanted);
    }
    for (expression, fields) in [("", 0), ("* * * *", 4), ("* * * * * * *", 7)] {
        assert_eq!(Cron::new(expression, "UTC").unwrap_err(), CronError::Fields(fields));
    }
    let long = "0,".repeat(1_000);
    assert_eq!(Cron::new(&long, "UTC").unwrap_err(), CronError::TooLong { bytes: 2_000 });
}

/// FC-072.
#[test]
fn an_unknown_zone_is_an_error() {
    for zone in ["Mars/Phobos", "", "Etc/Unknown", "local", "+02:00", "../UTC", "Europe/Vienna\0"] {
        assert!(matches!(Cron::new("@daily", zone), Err(CronError::Zone { .. })), "{zone}");
    }
    assert!(zone_data_version().starts_with("20"), "{}", zone_data_version());
}

#[test]
fn the_ends_of_time_have_no_slots() {
    for expression in ["* * * * *", "0 0 29 2 *", "30 2 * * *"] {
        let cron = cron(expression, "America/New_York");
        for far in [i64::MAX, i64::MAX - 1_000_000, 253_402_207_200_000] {
            let slot = cron.after(Timestamp(far));
            assert!(slot.is_none_or(|slot| slot.0 > far), "{expression} {far}");
        }
        assert_eq!(cron.after(Timestamp(i64::MIN)), None);
        assert!(cron.after(Timestamp(-1)).is_some());
    }
}

/// FC-069.
#[test]
fn missed_slots_are_caught_up_as_asked_and_counted() {
    let each_ten = cron("*/10 * * * * *", "UTC");
    let daily = cron("0 9 * * *", "Europe/Vienna");
    let (slot, now) = (at("2026-11-30T00:00Z"), at("2026-11-30T12:00Z"));
    let last = Timestamp(now.0);
    let next = Some(Timestamp(now.0 + 10_000));
    let advance = |catch_up| each_ten.advance(catch_up, slot, now);
    assert_eq!(advance(CatchUp::Once), Advance { fire: vec![last], missed: 4_320, next });
    // The last of them is due just now: it is not missed.
    assert_eq!(advance(CatchUp::Skip), Advance { fire: vec![last], missed: 4_320, next });
    let all = advance(CatchUp::All);
    assert_eq!((all.fire.len(), all.missed, all.next), (1_000, 3_321, next));
    assert!(all.fire.windows(2).all(|pair| pair[1].0 - pair[0].0 == 10_000));
    assert_eq!(all.fire.last(), Some(&last));

    let (slot, now) = (at("2026-11-30T08:00Z"), at("2026-11-30T20:00Z"));
    let next = Some(at("2026-12-01T08:00Z"));
    let advance = |catch_up| daily.advance(catch_up, slot, now);
    assert_eq!(advance(CatchUp::Once), Advance { fire: vec![slot], missed: 0, next });
    assert_eq!(advance(CatchUp::All), Advance { fire: vec![slot], missed: 0, next });
    assert_eq!(advance(CatchUp::Skip), Advance { fire: vec![], missed: 1, next });
    let in_time = daily.advance(CatchUp::Skip, slot, at("2026-11-30T08:01Z"));
    assert_eq!(in_time, Advance { fire: vec![slot], missed: 0, next });
}

#[test]
fn more_missed_slots_than_are_counted_cost_no_more() {
    let each_second = cron("* * * * * *", "UTC");
    let (slot, now) = (at("2016-01-01T00:00Z"), at("2026-11-30T12:00Z"));
    let next = Some(Timestamp(now.0 + 1_000));
    let once = each_second.advance(CatchUp::Once, slot, now);
    assert_eq!(once, Advance { fire: vec![now], missed: MISSED_MAX, next });
    let all = each_second.advance(CatchUp::All, slot, now);
    let newest: Vec<Timestamp> = (0..1_000).map(|place| Timestamp(now.0 - (999 - place) * 1_000)).collect();
    assert_eq!(all, Advance { fire: newest, missed: MISSED_MAX, next });
}

/// FC-071: what a clock that was set does.
#[test]
fn a_clock_that_was_set_fires_no_slot_twice() {
    let each_minute = cron("* * * * *", "UTC");
    let slot = at("2026-11-30T12:00Z");
    // Eight hours forward.
    let ahead = each_minute.advance(CatchUp::Once, slot, at("2026-11-30T20:00Z"));
    assert_eq!((ahead.fire.as_slice(), ahead.missed), (&[at("2026-11-30T20:00Z")][..], 480));
    let next = ahead.next.unwrap();
    assert_eq!(next, at("2026-11-30T20:01Z"));
    // And back: what is next is not due, and the schedule may go on by the clock as it is.
    let back = at("2026-11-30T12:00:30Z");
    assert_eq!(
        each_minute.advance(CatchUp::Once, next, back),
        Advance { fire: vec![], missed: 0, next: Some(next) }
    );
    assert_eq!(each_minute.set_back(next, back), Some(at("2026-11-30T12:01Z")));
    // Nothing to mend while the clock only goes on.
    assert_eq!(each_minute.set_back(at("2026-11-30T12:01Z"), back), None);
}

/// An expression with the values that it means, made side by side.
#[derive(Debug, Clone)]
struct Made {
    text: String,
    minutes: Vec<u8>,
    hours: Vec<u8>,
    days: Option<Vec<u8>>,
    weekdays: Option<Vec<u8>>,
    is_interval: bool,
}

fn field(min: u8, max: u8) -> impl Strategy<Value = (String, Vec<u8>)> {
    let list = prop::collection::btree_set(min..=max, 1..4).prop_map(|values| {
        let text = values.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
        (text, values.into_iter().collect::<Vec<_>>())
    });
    let range = (min..=max, min..=max).prop_map(|(a, b)| {
        let (a, b) = (a.min(b), a.max(b));
        (format!("{a}-{b}"), (a..=b).collect::<Vec<_>>())
    });
    let step = (1..=(max - min))
        .prop_map(move |step| (format!("*/{step}"), (min..=max).step_by(step.into()).collect::<Vec<_>>()));
    prop_oneof![3 => Just(("*".to_owned(), (min..=max).collect::<Vec<_>>())), 2 => list, 1 => range, 1 => step]
}

fn made() -> impl Strategy<Value = Made> {
    // Hours are mostly those at which clocks change.
    let hours = prop_oneof![
        field(0, 23),
        prop::collection::btree_set(prop::sample::select(vec![0_u8, 1, 2, 3, 23]), 1..4).prop_map(|values| {
            let text = values.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
            (text, values.into_iter().collect::<Vec<_>>())
        }),
    ];
    (field(0, 59), hours, field(1, 31), field(0, 6)).prop_map(|(minutes, hours, days, weekdays)| Made {
        text: format!("{} {} {} * {}", minutes.0, hours.0, days.0, weekdays.0),
        is_interval: minutes.0.contains('*') || hours.0.contains('*'),
        minutes: minutes.1,
        hours: hours.1,
        days: (days.0 != "*").then_some(days.1),
        weekdays: (weekdays.0 != "*").then_some(weekdays.1),
    })
}

impl Made {
    fn fits(&self, local: DateTime) -> bool {
        let day = |days: &Vec<u8>| days.contains(&(local.day() as u8));
        let weekday = |days: &Vec<u8>| days.contains(&(local.weekday().to_sunday_zero_offset() as u8));
        let is_day = match (&self.days, &self.weekdays) {
            (None, None) => true,
            (Some(days), None) => day(days),
            (None, Some(days)) => weekday(days),
            (Some(days), Some(weekdays)) => day(days) || weekday(weekdays),
        };
        is_day && self.minutes.contains(&(local.minute() as u8)) && self.hours.contains(&(local.hour() as u8))
    }

    /// Minute by minute: an interval fires in each whose wall clock fits; fixed times in one that shows a later
    /// time than all before it, if one of the times that are new with it fits.
    fn walk(&self, zone: &TimeZone, from: Moment, minutes: i64) -> Vec<Timestamp> {
        let minute = jiff::SignedDuration::from_mins(1);
        let mut latest = zone.to_datetime(from - jiff::SignedDuration::from_hours(48));
        let mut found = Vec::new();
        for number in -48 * 60..minutes {
            let moment = from + minute * i32::try_from(number).unwrap();
            let local = zone.to_datetime(moment);
            let is_slot = if self.is_interval {
                self.fits(local)
            } else {
                let mut is_new = false;
                while latest < local {
                    latest += minute;
                    is_new |= self.fits(latest);
                }
                is_new
            };
            if is_slot && number >= 0 {
                found.push(Timestamp(moment.as_millisecond()));
            }
        }
        found
    }
}

/// Zones, and a moment on a day on which their clocks change.
const CHANGES: &[(&str, &str)] = &[
    ("America/New_York", "2027-03-14T07:00Z"),
    ("America/New_York", "2026-11-01T06:00Z"),
    ("Europe/Vienna", "2027-03-28T01:00Z"),
    ("Europe/Vienna", "2026-10-25T01:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00Z"),
    ("Asia/Beirut", "2026-03-28T22:00Z"),
    ("Africa/Cairo", "2026-10-29T21:00Z"),
    ("America/Nuuk", "2026-03-29T01:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"),
    ("Antarctica/Troll", "2026-03-29T01:00Z"),
    ("Asia/Kathmandu", "2026-03-29T01:00Z"),
];

proptest! {
    #[test]
    fn slots_are_those_of_a_walk_from_minute_to_minute(
        made in made(),
        (zone, change) in prop::sample::select(CHANGES),
        lead in 0..36 * 60_i64,
    ) {
        let Ok(cron) = Cron::new(&made.text, zone) else {
            // Days that no month has.
            prop_assert!(made.weekdays.is_none() && made.days.is_some());
            return Ok(());
        };
        let from = utc(at(change)) - jiff::SignedDuration::from_mins(lead);
        let minutes = 3 * 24 * 60;
        let from_ms = Timestamp(from.as_millisecond());
        let found = slots(&cron, from_ms, Timestamp(from_ms.0 + minutes * 60_000));
        prop_assert_eq!(found, made.walk(&cron.zone, from, minutes), "{}", made.text);
    }

    #[test]
    fn a_slot_is_always_later_and_nothing_lies_between(
        made in made(),
        (zone, change) in prop::sample::select(CHANGES),
        offset_ms in -172_800_000..172_800_000_i64,
        between in 0.0..1.0_f64,
    ) {
        let Ok(cron) = Cron::new(&made.text, zone) else { return Ok(()) };
        let from = Timestamp(at(change).0 + offset_ms);
        let slot = cron.after(from).unwrap();
        prop_assert!(slot > from);
        prop_assert_eq!(slot.0 % 1_000, 0);
        let between = Timestamp(from.0 + ((slot.0 - 1 - from.0) as f64 * between) as i64);
        prop_assert_eq!(cron.after(between), Some(slot));
        prop_assert_eq!(cron.after(Timestamp(slot.0 - 1)), Some(slot));
    }

    /// Whatever comes late: each slot is fired or counted, once.
    #[test]
    fn each_slot_is_fired_or_missed_once(
        steps in prop::collection::vec((0..40_000_000_i64, 0..3_u8), 1..20),
        every in prop::sample::select(vec!["*/5 * * * *", "30 2 * * *", "*/30 * * * * *"]),
    ) {
        let cron = cron(every, "Europe/Vienna");
        let start = at("2026-10-24T00:00Z");
        let (mut now, mut slot) = (start, cron.after(start).unwrap());
        let first = slot;
        let (mut fired, mut missed) = (Vec::new(), 0);
        for (step, catch_up) in steps {
            now = Timestamp(now.0 + step);
            let catch_up = [CatchUp::Skip, CatchUp::Once, CatchUp::All][usize::from(catch_up)];
            let done = cron.advance(catch_up, slot, now);
            fired.extend(done.fire);
            missed += done.missed;
            slot = done.next.unwrap();
            prop_assert!(slot > now);
        }
        prop_assert!(fired.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert_eq!(fired.len() as u64 + missed, slots(&cron, first, slot).len() as u64);
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,40}", near in "[0-9*/,@a-zA-Z -]{0,24}", zone in "\\PC{0,12}") {
        for text in [text, near] {
            let _ = Cron::new(&text, &zone);
            if let Ok(cron) = Cron::new(&text, "Europe/Vienna") {
                let _ = (cron.in_words(), cron.preview(Timestamp(0), 2));
            }
        }
    }
}
