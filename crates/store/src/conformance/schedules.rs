//! Schedules: set, fired, cancelled, each in time or not.

use std::time::Duration;

use evener_actor::event::{Event, Timestamp};
use evener_actor::outcome::CatchUp;

use super::Harness;
use super::ground::{Ground, HOUR, key, sure, together};
use crate::batch::{
    CronSpec, Due, FireAt, Firing, NewEvent, NewSchedule, Schedule, ScheduleAnswer, ScheduleTo, ScheduleWrite,
};

fn write(ground: &Ground<'_>, writes: &[ScheduleWrite]) -> Vec<ScheduleAnswer> {
    ground.store.write_schedules(writes).expect("written")
}

fn due(ground: &Ground<'_>) -> Due {
    ground.store.due(1_000).expect("due")
}

fn ids(schedules: &[Schedule]) -> Vec<&str> {
    schedules.iter().map(|schedule| schedule.id.as_str()).collect()
}

fn all(ground: &Ground<'_>) -> Vec<Schedule> {
    ground.store.schedules(ground.tenant, None, 1_000).expect("schedules")
}

/// Fires as it was read, with one event of that id.
fn firing(ground: &Ground<'_>, schedule: &Schedule, next: Option<Timestamp>, id: &str) -> Firing {
    Firing {
        no: schedule.no,
        generation: schedule.generation,
        fire_at: schedule.fire_at,
        next,
        events: vec![ground.event(id)],
    }
}

fn fire(ground: &Ground<'_>, firings: &[Firing]) -> Vec<bool> {
    let ticket = ground.ticket(5);
    sure(|| ground.store.fire(ticket, firings)).committed
}

fn fired(ground: &Ground<'_>) -> Vec<String> {
    ground.stream_ids().into_iter().map(|(_, id)| id).collect()
}

fn later(ground: &Ground<'_>, by: Duration) -> Timestamp {
    ground.store.now().expect("the clock").saturating_add(by)
}

pub(super) fn a_schedule_is_due_by_the_stores_clock(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    assert_eq!((due(&ground).schedules, due(&ground).next_in), (vec![], None));
    let at = later(&ground, 3 * HOUR);
    let writes = [
        ground.set("third", "spec", FireAt::At(at)),
        ground.set("first", "spec", FireAt::In(HOUR)),
        ground.set("second", "spec", FireAt::In(2 * HOUR)),
        ground.set("past", "spec", FireAt::At(Timestamp(-1_000))),
        ground.set("never", "spec", FireAt::In(Duration::from_millis(evener_actor::policy::DELAY_MS_MAX))),
    ];
    assert_eq!(write(&ground, &writes), [ScheduleAnswer::Set; 5]);
    let now = due(&ground);
    assert_eq!(ids(&now.schedules), ["past"]);
    assert_eq!(now.schedules[0].fire_at, Timestamp(-1_000));
    let next_in = now.next_in.expect("one is next");
    assert!(next_in > HOUR / 2 && next_in <= HOUR, "{next_in:?}");
    assert!(now.now.since(Timestamp(0)) > 1_000 * HOUR, "milliseconds since 1970");
    harness.advance(2 * HOUR);
    let now = due(&ground);
    assert_eq!(ids(&now.schedules), ["past", "first", "second"], "the earliest first");
    assert!(now.next_in.is_some_and(|next| next > HOUR / 2 && next <= HOUR));
    // What is due and left out by the limit is not what is next.
    let some = ground.store.due(2).expect("due");
    assert_eq!(ids(&some.schedules), ["past", "first"]);
    assert!(some.next_in.is_some_and(|next| next > HOUR / 2), "{:?}", some.next_in);
    assert!(fire(&ground, &[firing(&ground, &now.schedules[0], None, "p")])[0]);
    harness.advance(HOUR);
    let now = due(&ground);
    assert_eq!(ids(&now.schedules), ["first", "second", "third"]);
    assert_eq!(now.schedules[2].fire_at, at, "to the millisecond");
    assert!(now.schedules.iter().all(|schedule| schedule.fire_at <= now.now));
    assert!(now.next_in.is_some_and(|next| next > 1_000 * HOUR));
}

pub(super) fn a_schedule_comes_back_as_it_was_set(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let cron = |catch_up| CronSpec {
        expression: "0 9 * * 1-5".to_owned(),
        time_zone: "Europe/Vienna".to_owned(),
        catch_up,
    };
    let to = ScheduleTo::Instance { actor: ground.ranked, key: key("it's 🎈") };
    let at = later(&ground, HOUR);
    let schedules: Vec<NewSchedule> = [CatchUp::Skip, CatchUp::Once, CatchUp::All]
        .into_iter()
        .enumerate()
        .map(|(number, catch_up)| NewSchedule {
            cron: Some(cron(catch_up)),
            to: to.clone(),
            event: Event::new("tick", "{\"n\":1}").with_header("x", "1").with_subject("s"),
            ..ground.schedule(&format!("s{number}"), "a spec 'of' \"some\" length", FireAt::At(at))
        })
        .chain([ground.schedule("s3", "", FireAt::At(at))])
        .collect();
    let writes: Vec<ScheduleWrite> =
        schedules.iter().map(|schedule| ScheduleWrite::Set(Box::new(schedule.clone()))).collect();
    write(&ground, &writes);
    let there = all(&ground);
    assert_eq!(there.len(), 4);
    for (is, set) in there.iter().zip(&schedules) {
        let wanted = Schedule {
            no: is.no,
            tenant: ground.tenant,
            id: set.id.clone(),
            generation: is.generation,
            fire_at: at,
            cron: set.cron.clone(),
            to: set.to.clone(),
            event: set.event.clone(),
        };
        assert_eq!(*is, wanted);
    }
    harness.advance(2 * HOUR);
    let mut due = due(&ground).schedules;
    due.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(due, there);
    let page = ground.store.schedules(ground.tenant, Some(&there[0].id), 2).expect("schedules");
    assert_eq!(page, there[1..3]);
    let other = ground.store.tenant(&"other".parse().expect("a name")).expect("a tenant");
    assert_eq!(ground.store.schedules(other, None, 9), Ok(vec![]));
}

pub(super) fn the_same_spec_changes_nothing_another_replaces(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    write(&ground, &[ground.set("s", "every day", FireAt::In(HOUR))]);
    let first = all(&ground).remove(0);
    harness.advance(HOUR / 2);
    assert_eq!(
        write(&ground, &[ground.set("s", "every day", FireAt::In(9 * HOUR))]),
        [ScheduleAnswer::Unchanged]
    );
    assert_eq!(all(&ground), std::slice::from_ref(&first), "a redeploy does not set it back");
    assert_eq!(write(&ground, &[ground.set("s", "every hour", FireAt::In(9 * HOUR))]), [ScheduleAnswer::Set]);
    let second = all(&ground).remove(0);
    assert!(second.generation > first.generation && second.fire_at > first.fire_at);
    // And in one batch, in order.
    let writes = [
        ground.set("s", "every hour", FireAt::In(HOUR)),
        ground.set("s", "a", FireAt::In(HOUR)),
        ground.cancel("s"),
        ground.cancel("s"),
        ground.set("s", "a", FireAt::In(HOUR)),
        ground.set("s", "a", FireAt::In(HOUR)),
    ];
    use ScheduleAnswer::{Cancelled, NotThere, Set, Unchanged};
    assert_eq!(write(&ground, &writes), [Unchanged, Set, Cancelled, NotThere, Set, Unchanged]);
    assert_eq!(all(&ground).len(), 1);
    // Another tenant's of the same name is another one.
    let other = Ground::of(harness, "other".parse().expect("a name"));
    assert_eq!(write(&other, &[other.cancel("s"), other.set("s", "a", FireAt::In(HOUR))]), [NotThere, Set]);
    assert_eq!(all(&ground).len(), 1);
    assert_eq!(write(&ground, &[]), []);
}

pub(super) fn a_schedule_fires_once_and_is_over(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    write(&ground, &[ground.set("s", "spec", FireAt::In(HOUR))]);
    harness.advance(HOUR);
    let read = due(&ground).schedules.remove(0);
    assert_eq!(fire(&ground, &[firing(&ground, &read, None, "one")]), [true]);
    assert_eq!(fire(&ground, &[firing(&ground, &read, None, "never")]), [false]);
    assert_eq!(fired(&ground), ["one"]);
    assert_eq!((due(&ground).schedules, all(&ground)), (vec![], vec![]));
    assert_eq!(write(&ground, &[ground.cancel("s")]), [ScheduleAnswer::NotThere], "too late");
    assert_eq!(write(&ground, &[ground.set("s", "spec", FireAt::In(HOUR))]), [ScheduleAnswer::Set]);
    assert_eq!(fire(&ground, &[]), Vec::<bool>::new());
}

pub(super) fn a_cron_goes_on_to_its_next_slot(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let cron =
        CronSpec { expression: "0 * * * *".to_owned(), time_zone: "UTC".to_owned(), catch_up: CatchUp::All };
    let schedule = NewSchedule { cron: Some(cron), ..ground.schedule("s", "hourly", FireAt::In(HOUR)) };
    let set = [ScheduleWrite::Set(Box::new(schedule))];
    write(&ground, &set);
    harness.advance(3 * HOUR);
    let first = due(&ground).schedules.remove(0);
    let next = first.fire_at.saturating_add(HOUR);
    assert_eq!(fire(&ground, &[firing(&ground, &first, Some(next), "first")]), [true]);
    assert_eq!(
        fire(&ground, &[firing(&ground, &first, Some(next), "never")]),
        [false],
        "that slot has fired"
    );
    let second = due(&ground).schedules.remove(0);
    assert_eq!(second, Schedule { fire_at: next, ..first.clone() });
    assert_eq!(write(&ground, &set), [ScheduleAnswer::Unchanged]);
    assert_eq!(due(&ground).schedules, std::slice::from_ref(&second));
    // Several slots in one, or none of them.
    let last = next.saturating_add(5 * HOUR);
    let several = Firing {
        events: vec![ground.event("second"), ground.event_to("third", vec![ground.row("a")])],
        ..firing(&ground, &second, Some(last), "")
    };
    assert_eq!(fire(&ground, &[several]), [true]);
    assert_eq!(due(&ground).schedules, []);
    harness.advance(5 * HOUR);
    let third = due(&ground).schedules.remove(0);
    let skipped =
        Firing { events: vec![], ..firing(&ground, &third, Some(last.saturating_add(9 * HOUR)), "") };
    assert_eq!(fire(&ground, &[skipped]), [true]);
    assert_eq!(fired(&ground), ["first", "second", "third"]);
    assert_eq!(write(&ground, &[ground.cancel("s")]), [ScheduleAnswer::Cancelled]);
    assert_eq!(ground.store.waiting(0..1024, None, 9).expect("waiting").len(), 1);
}

pub(super) fn what_has_changed_since_it_was_read_does_not_fire(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let names = ["kept", "replaced", "cancelled", "set anew"];
    let at = later(&ground, HOUR);
    let sets: Vec<ScheduleWrite> =
        names.iter().map(|name| ground.set(name, "spec", FireAt::At(at))).collect();
    write(&ground, &sets);
    harness.advance(HOUR);
    let read = due(&ground).schedules;
    let of = |name: &str| read.iter().find(|one| one.id.as_str() == name).expect("it is due");
    write(
        &ground,
        &[
            ground.set("replaced", "another", FireAt::At(at)),
            ground.cancel("cancelled"),
            ground.cancel("set anew"),
            ground.set("set anew", "spec", FireAt::At(at)),
        ],
    );
    let stale = |one: &Schedule| Schedule { fire_at: Timestamp(one.fire_at.0 - 1), ..one.clone() };
    let firings: Vec<Firing> = [
        firing(&ground, of("replaced"), None, "never"),
        firing(&ground, of("cancelled"), None, "never"),
        firing(&ground, of("set anew"), None, "never"),
        firing(&ground, &stale(of("kept")), None, "never"),
        firing(&ground, of("kept"), None, "once"),
        firing(&ground, of("kept"), None, "never"),
    ]
    .into();
    assert_eq!(fire(&ground, &firings[..5]), [false, false, false, false, true]);
    assert_eq!(fire(&ground, &firings[5..]), [false]);
    assert_eq!(fired(&ground), ["once"]);
    assert_eq!(ids(&all(&ground)), ["replaced", "set anew"]);
}

pub(super) fn what_follows_from_a_firing_is_in_it(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    write(&ground, &[ground.set("s", "spec", FireAt::In(HOUR)), ground.set("t", "spec", FireAt::In(HOUR))]);
    harness.advance(HOUR);
    let read = due(&ground).schedules;
    let tell =
        NewEvent { stream: None, ..ground.event_to("tell", vec![ground.ranked_row("a", Some("g"), 2)]) };
    let emit = NewEvent { rows: vec![ground.row("b")], ..ground.deferred("emit") };
    let good = Firing { events: vec![emit, tell], ..firing(&ground, &read[0], None, "") };
    let stale = NewEvent { rows: vec![ground.row("never")], ..ground.deferred("never") };
    let bad = Firing {
        events: vec![stale],
        generation: read[1].generation + 1,
        ..firing(&ground, &read[1], None, "")
    };
    let report = ground.store.fire(ground.ticket(5), &[bad, good]).expect("fired");
    assert_eq!(report.committed, [false, true]);
    assert_eq!(report.pending, [ground.stream]);
    assert_eq!(report.rows.len(), 2);
    assert_eq!(ground.store.waiting(0..1024, None, 9).expect("waiting").len(), 2);
    assert_eq!(ground.store.pending(ground.stream, 9, usize::MAX).expect("pending").len(), 2);
    assert_eq!(fired(&ground), ["emit"]);
    assert_eq!(due(&ground).schedules.len(), 1);
}

pub(super) fn dispatchers_that_meet_fire_each_once(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let count = 60;
    let sets: Vec<ScheduleWrite> =
        (0..count).map(|number| ground.set(&format!("s{number:02}"), "spec", FireAt::In(HOUR))).collect();
    write(&ground, &sets);
    harness.advance(HOUR);
    let stores = [Some(harness.store()), harness.second()];
    let committed = together(4, |thread| {
        let store = stores[thread % 2].as_ref().unwrap_or(&ground.store);
        let mut count = 0;
        loop {
            let read = sure(|| store.due(20)).schedules;
            if read.is_empty() {
                return count;
            }
            let firings: Vec<Firing> =
                read.iter().map(|one| firing(&ground, one, None, &format!("tick {}", one.id))).collect();
            let ticket = ground.ticket(20 + thread as u16);
            let report = sure(|| store.fire(ticket, &firings));
            count += report.committed.into_iter().filter(|is_committed| *is_committed).count();
        }
    });
    assert_eq!(committed.iter().sum::<usize>(), count, "{committed:?}");
    let mut fired = fired(&ground);
    fired.sort();
    assert_eq!(fired, (0..count).map(|number| format!("tick s{number:02}")).collect::<Vec<_>>());
}

pub(super) fn a_schedule_is_set_and_cancelled_in_a_commit(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    write(
        &ground,
        &[ground.set("old", "spec", FireAt::In(HOUR)), ground.set("same", "spec", FireAt::In(HOUR))],
    );
    let rows = ground.feed((0..3).map(|_| ground.row("a")));
    let claimed = ground.claim(rows[0]);
    let commit = |place: usize, schedules: Vec<ScheduleWrite>| {
        let version = ground.version(&claimed);
        let end = super::ground::done_with(rows[place].row, vec![], schedules);
        let part = crate::batch::InstanceCommit { version, ..super::ground::part(&claimed, vec![end]) };
        let version_after = evener_actor::id::Version(version.0 + 1);
        let report = ground.commit(&[crate::batch::InstanceCommit { version_after, ..part }]);
        assert_eq!(report.committed, [true]);
        report.is_sooner
    };
    commit(0, vec![ground.set("same", "spec", FireAt::In(HOUR / 2)), ground.cancel("old")]);
    assert_eq!(ids(&all(&ground)), ["same"]);
    let moves = vec![
        ground.set("new", "a", FireAt::In(HOUR)),
        ground.cancel("new"),
        ground.set("new", "b", FireAt::In(2 * HOUR)),
        ground.set("same", "another", FireAt::In(HOUR / 2)),
    ];
    assert!(commit(1, moves));
    let there = all(&ground);
    assert_eq!(ids(&there), ["new", "same"]);
    let next_in = due(&ground).next_in.expect("one is next");
    assert!(next_in > HOUR / 4 && next_in <= HOUR / 2, "{next_in:?}");
    assert!(there[0].fire_at.since(there[1].fire_at) > HOUR);
    assert!(!commit(2, vec![]));
}
