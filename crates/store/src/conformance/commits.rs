//! Commits: whole or not at all for each instance, and only by right.

use std::time::Duration;

use bytes::Bytes;
use evener_actor::id::{Epoch, QueueId, Version};
use evener_actor::policy::DELAY_MS_MAX;

use super::Harness;
use super::ground::{Ground, HOUR, done, done_with, owned, part, part_with, retry, sure, together};
use crate::StoreError;
use crate::batch::{
    Claimed, DeadCause, End, FireAt, InstanceCommit, Load, NewEvent, NewParked, RowEnd, RowMade,
    ScheduleAnswer, Waiting,
};

pub(super) fn a_commit_changes_state_and_version_and_takes_its_rows(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let rows = ground.feed([ground.row("a"), ground.row("a"), ground.row("a"), ground.row("b")]);
    let claimed = ground.claim(rows[0]);
    assert_eq!((claimed.version, claimed.state.clone()), (Version(0), None));
    let first = InstanceCommit {
        version_after: Version(2),
        ..part_with(&claimed, "{\"n\":2}", vec![done(rows[0].row), done(rows[1].row)])
    };
    let report = ground.commit(&[first]);
    assert_eq!((report.committed, report.rows, report.pending), (vec![true], vec![], vec![]));
    assert!(!report.is_sooner);
    let view = ground.view(ground.plain, "a");
    assert_eq!((view.version, view.state), (Version(2), Some(Bytes::from_static(b"{\"n\":2}"))));
    assert_eq!((view.owner, view.epoch), (Some(ground.boot), claimed.epoch));
    assert_eq!(ground.places(rows[0]), [rows[2].row]);
    assert_eq!(ground.places(rows[3]), [rows[3].row], "another instance is as it was");
    assert_eq!(ground.view(ground.plain, "b").version, Version(0));
    // Without a state it stays; the version counts all the same.
    let second = InstanceCommit {
        version: Version(2),
        version_after: Version(3),
        ..part(&claimed, vec![done(rows[2].row)])
    };
    assert_eq!(ground.commit(&[second]).committed, [true]);
    let view = ground.view(ground.plain, "a");
    assert_eq!((view.version, view.state), (Version(3), Some(Bytes::from_static(b"{\"n\":2}"))));
    assert_eq!(ground.store.waiting(0..1024, None, 9).expect("waiting").len(), 1);
}

pub(super) fn what_follows_is_in_the_commit(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let rows = ground.feed([ground.row("a"), ground.row("a")]);
    let claimed = ground.claim(rows[0]);
    let emit = NewEvent { rows: vec![ground.ranked_row("r", Some("red"), -3)], ..ground.deferred("0/0") };
    let tell = NewEvent { stream: None, ..ground.event_to("0/1", vec![ground.row("a"), ground.row("b")]) };
    let parked = NewParked { subscription: Some(ground.deferred[0]), reason: "no key".to_owned() };
    let nowhere = NewEvent { parked: vec![parked], ..ground.event("1/0") };
    let ends = vec![
        done_with(rows[0].row, vec![emit, tell], vec![ground.set("s", "spec", FireAt::In(HOUR))]),
        done_with(rows[1].row, vec![nowhere], vec![ground.cancel("none")]),
    ];
    let report = ground.commit(&[InstanceCommit { version_after: Version(2), ..part(&claimed, ends) }]);
    assert_eq!(report.committed, [true]);
    assert_eq!(report.pending, [ground.stream]);
    assert!(report.is_sooner);
    let ids: Vec<String> = ground.stream_ids().into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids, ["fed-0", "fed-1", "0/0", "1/0"], "in order, and only what has a stream");
    let mut made = report.rows.clone();
    made.sort_unstable_by_key(|made| made.row);
    assert_eq!(made.len(), 3);
    assert!(made[0].row > rows[1].row);
    let ranked = ground.rows(made[0]);
    assert_eq!((ranked.len(), ranked[0].priority, ranked[0].origin), (1, -3, made[0].row));
    assert_eq!(ranked[0].event.as_ref().map(|event| event.event.id.to_string()), Some("0/0".to_owned()));
    let told = ground.rows(made[1]);
    assert_eq!((told.len(), told[0].id, told[0].stream), (1, made[1].row, None));
    assert_eq!(made[1].instance, claimed.instance, "an instance may tell itself");
    assert_eq!(ground.places(made[2]), [made[2].row]);
    let pending = ground.store.pending(ground.stream, 9, usize::MAX).expect("pending");
    assert_eq!(pending.len(), 2);
    assert!(pending.iter().all(|pending| *pending.event.event.id == *"0/0"));
    let parked = ground.store.parked(ground.tenant, 0, 9).expect("parked");
    assert_eq!((parked.len(), parked[0].reason.as_str()), (1, "no key"));
    assert_eq!(ground.store.schedules(ground.tenant, None, 9).expect("schedules").len(), 1);
}

/// A commit of `a` that must do nothing, between two of others that must be done.
fn assert_fenced(ground: &Ground<'_>, claimed: &Claimed, row: RowMade, spoil: impl Fn(&mut InstanceCommit)) {
    let others = [ground.feed_one("before"), ground.feed_one("behind")];
    let others_claimed = others.map(|row| ground.claim_of(ground.boot, &[row]).pop());
    let other = |place: usize| {
        let of = others_claimed[place].as_ref().expect("claimed");
        let emit = ground.event(&format!("of {}", of.key));
        part_with(of, "1", vec![done_with(others[place].row, vec![emit], Vec::new())])
    };
    let doomed: Vec<RowMade> =
        ground.rows(row).iter().map(|other| RowMade { row: other.id, ..row }).collect();
    assert_eq!(doomed.len(), 5);
    let before = (ground.view(claimed.actor, claimed.key.as_str()), ground.rows(row));
    let emit = NewEvent { rows: vec![ground.row("never")], ..ground.deferred("never") };
    let spec = ground.set("never", "spec", FireAt::In(HOUR));
    let mut spoiled = part_with(
        claimed,
        "never",
        vec![
            done_with(doomed[0].row, vec![emit], vec![spec, ground.cancel("kept")]),
            retry(doomed[1].row, 9, HOUR),
            RowEnd {
                row: doomed[2].row,
                end: End::Dead { attempts: 9, cause: DeadCause::Refused, error: "never".to_owned() },
            },
            RowEnd { row: doomed[3].row, end: End::Blocked { attempts: 9, error: "never".to_owned() } },
            RowEnd { row: doomed[4].row, end: End::Superseded },
        ],
    );
    spoil(&mut spoiled);
    let report = ground.commit(&[other(0), spoiled, other(1)]);
    assert_eq!(report.committed, [true, false, true]);
    assert_eq!((report.rows, report.pending, report.is_sooner), (vec![], vec![], false));
    assert_eq!((ground.view(claimed.actor, claimed.key.as_str()), ground.rows(row)), before);
    let ids = ground.stream_ids().into_iter().map(|(_, id)| id);
    let ids: Vec<String> = ids.filter(|id| !id.starts_with("fed-")).collect();
    assert_eq!(ids, ["of before", "of behind"]);
    assert_eq!(ground.view(ground.plain, "before").version, Version(1));
    assert_eq!(ground.view(ground.plain, "behind").version, Version(1));
    assert_eq!(ground.store.dead_letters(ground.tenant, None, 0, 9), Ok(vec![]));
    assert_eq!(ground.store.pending(ground.stream, 9, usize::MAX), Ok(vec![]));
    let schedules = ground.store.schedules(ground.tenant, None, 9).expect("schedules");
    assert_eq!(schedules.iter().map(|schedule| schedule.id.as_str()).collect::<Vec<_>>(), ["kept"]);
    let none = ground.store.instance(ground.plain, &super::ground::key("never")).expect("an answer");
    assert!(none.is_none_or(|view| ground.store.depth(view.slot, view.instance, 9) == Ok(0)));
}

/// `a` with five rows, claimed, and a schedule that stays.
fn five_rows<'a>(harness: &'a dyn Harness) -> (Ground<'a>, Claimed, RowMade) {
    let ground = Ground::new(harness);
    let set = ground.set("kept", "spec", FireAt::In(HOUR));
    assert_eq!(ground.store.write_schedules(&[set]), Ok(vec![ScheduleAnswer::Set]));
    let rows = ground.feed((0..5).map(|_| ground.row("a")));
    let claimed = ground.claim(rows[0]);
    (ground, claimed, rows[0])
}

pub(super) fn a_commit_of_an_older_epoch_does_nothing(harness: &dyn Harness) {
    let (ground, old, row) = five_rows(harness);
    ground.store.release(ground.boot, &[owned(&old)]).expect("released");
    let claimed = ground.claim(row);
    assert!(claimed.epoch > old.epoch);
    assert_fenced(&ground, &claimed, row, |part| part.epoch = old.epoch);
}

pub(super) fn a_commit_of_an_epoch_to_come_does_nothing(harness: &dyn Harness) {
    let (ground, claimed, row) = five_rows(harness);
    assert_fenced(&ground, &claimed, row, |part| part.epoch = Epoch(claimed.epoch.0 + 1));
}

pub(super) fn a_commit_on_another_version_does_nothing(harness: &dyn Harness) {
    let (ground, claimed, row) = five_rows(harness);
    assert_fenced(&ground, &claimed, row, |part| part.version = Version(claimed.version.0 + 1));
}

pub(super) fn a_commit_on_a_version_of_before_does_nothing(harness: &dyn Harness) {
    let (ground, claimed, row) = five_rows(harness);
    let one_more = ground.feed_one("a");
    assert_eq!(ground.commit(&[part(&claimed, vec![done(one_more.row)])]).committed, [true]);
    assert_fenced(&ground, &claimed, row, |_| {});
}

pub(super) fn a_commit_of_another_owner_does_nothing(harness: &dyn Harness) {
    let (mut ground, claimed, row) = five_rows(harness);
    // Even with the very epoch.
    ground.boot = ground.store.register("second").expect("a boot");
    assert_fenced(&ground, &claimed, row, |_| {});
}

pub(super) fn a_commit_after_release_does_nothing(harness: &dyn Harness) {
    let (ground, claimed, row) = five_rows(harness);
    ground.store.release(ground.boot, &[owned(&claimed)]).expect("released");
    assert_fenced(&ground, &claimed, row, |_| {});
}

pub(super) fn a_commit_after_a_take_over_does_nothing(harness: &dyn Harness) {
    let (ground, claimed, row) = five_rows(harness);
    let second = ground.store.register("second").expect("a boot");
    harness.advance(HOUR);
    assert_eq!(ground.store.heartbeat(second, Load::default()), Ok(true));
    assert_eq!(ground.store.judge(second, HOUR / 2), Ok(vec![ground.boot]));
    let taken = ground.claim_of(second, &[row]);
    assert_eq!((taken.len(), taken[0].was_orphan), (1, true));
    let mut ground = ground;
    ground.boot = second;
    // The new owner's lane with the old one's right: only the epoch is wrong.
    assert_fenced(&ground, &claimed, row, |_| {});
}

pub(super) fn a_commit_of_an_instance_that_is_none_does_nothing(harness: &dyn Harness) {
    let (ground, claimed, row) = five_rows(harness);
    assert_fenced(&ground, &claimed, row, |part| part.instance.0 += 1_000);
}

pub(super) fn a_row_that_is_gone_makes_nothing(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let rows = ground.feed([ground.row("a"), ground.row("a"), ground.row("b")]);
    let (a, b) = (ground.claim(rows[0]), ground.claim(rows[2]));
    let end = |row: QueueId, end: &End| RowEnd { row, end: end.clone() };
    let ends = [
        End::Done {
            events: vec![ground.event_to("never", vec![ground.row("c")])],
            schedules: vec![ground.set("never", "spec", FireAt::In(HOUR))],
        },
        End::Dead { attempts: 1, cause: DeadCause::Attempts, error: "never".to_owned() },
        End::Retry { attempts: 1, delay: HOUR, error: "never".to_owned() },
        End::Blocked { attempts: 1, error: "never".to_owned() },
        End::Superseded,
    ];
    // A row that never was, and one of another instance.
    for (number, row) in [QueueId(rows[2].row.0 + 1_000), rows[2].row].into_iter().enumerate() {
        let version = Version(number as i64);
        let all = ends.iter().map(|one| end(row, one)).chain([done(rows[number].row)]).collect();
        let commit = InstanceCommit { version, version_after: Version(version.0 + 1), ..part(&a, all) };
        let report = ground.commit(&[commit]);
        assert_eq!((report.committed, report.rows), (vec![true], vec![]));
    }
    assert_eq!(ground.places(rows[0]), []);
    let row = &ground.rows(rows[2])[0];
    assert_eq!((row.id, row.attempts, row.is_blocked, row.delay), (rows[2].row, 0, false, Duration::ZERO));
    assert_eq!(ground.stream_ids().len(), 3);
    assert_eq!(ground.store.schedules(ground.tenant, None, 9), Ok(vec![]));
    assert_eq!(ground.store.dead_letters(ground.tenant, None, 0, 9), Ok(vec![]));
    assert_eq!(ground.commit(&[part(&b, vec![done(rows[2].row)])]).committed, [true]);
}

pub(super) fn a_retry_waits_by_the_stores_clock(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let rows = ground.feed([ground.row("a"), ground.row("a")]);
    let claimed = ground.claim(rows[0]);
    assert_eq!(ground.commit(&[part(&claimed, vec![retry(rows[0].row, 2, HOUR)])]).committed, [true]);
    let look = || ground.rows(rows[0]);
    let row = &look()[0];
    assert_eq!((row.id, row.origin, row.attempts, row.crashes), (rows[0].row, rows[0].row, 2, 0));
    assert!(row.delay > HOUR / 2 && row.delay <= HOUR, "{:?}", row.delay);
    assert!(!row.is_blocked && row.event.is_some());
    assert_eq!(look()[1].delay, Duration::ZERO, "others of the instance do not wait");
    harness.advance(HOUR / 2);
    let row = &look()[0];
    assert!(row.delay > Duration::ZERO && row.delay <= HOUR / 2, "{:?}", row.delay);
    // A release does not change it.
    ground.store.release(ground.boot, &[owned(&claimed)]).expect("released");
    assert!(look()[0].delay > Duration::ZERO);
    harness.advance(HOUR / 2);
    let row = &look()[0];
    assert_eq!((row.delay, row.attempts), (Duration::ZERO, 2));
}

pub(super) fn a_delay_may_be_nothing_or_a_hundred_years(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let rows = ground.feed([ground.row("a"), ground.row("a"), ground.row("a")]);
    let claimed = ground.claim(rows[0]);
    let longest = Duration::from_millis(DELAY_MS_MAX);
    let ends = vec![
        retry(rows[0].row, i32::MAX as u32, longest),
        retry(rows[1].row, 1, Duration::ZERO),
        retry(rows[2].row, 1, HOUR),
    ];
    assert_eq!(ground.commit(&[part(&claimed, ends)]).committed, [true]);
    let read = ground.rows(rows[0]);
    assert_eq!(
        read.iter().map(|row| row.id).collect::<Vec<_>>(),
        rows.iter().map(|row| row.row).collect::<Vec<_>>()
    );
    assert!(read[0].delay > longest - HOUR && read[0].delay <= longest, "{:?}", read[0].delay);
    assert_eq!((read[0].attempts, read[1].attempts), (i32::MAX as u32, 1));
    assert_eq!(read[1].delay, Duration::ZERO);
    assert!(read[2].delay > HOUR / 2);
}

pub(super) fn a_superseded_row_just_goes(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let rows = ground.feed((0..1_001).map(|_| ground.ranked_row("a", Some("g"), 0)));
    let claimed = ground.claim(rows[0]);
    let newest = rows[1_000].row;
    let mut ends: Vec<RowEnd> =
        rows[..1_000].iter().map(|made| RowEnd { row: made.row, end: End::Superseded }).collect();
    ends.push(done(newest));
    assert_eq!(ground.commit(&[part_with(&claimed, "1", ends)]).committed, [true]);
    assert_eq!(ground.places(rows[0]), []);
    assert_eq!(ground.store.dead_letters(ground.tenant, None, 0, 9), Ok(vec![]));
    assert_eq!(ground.store.waiting(0..1024, None, 9), Ok(vec![]));
}

pub(super) fn many_instances_are_one_commit(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let count = harness.many(1_000);
    let rows = ground.feed((0..count).map(|number| ground.row(&format!("k{number}"))));
    let claimed = ground.claim_of(ground.boot, &rows);
    assert_eq!(claimed.len(), count);
    let place = |one: &Claimed| rows.iter().find(|row| row.instance == one.instance).expect("a row").row;
    let batch: Vec<InstanceCommit> = claimed
        .iter()
        .map(|one| {
            let emit =
                ground.event_to(&format!("of {}", one.key), vec![ground.row(&format!("to {}", one.key))]);
            let mut commit = part_with(one, "1", vec![done_with(place(one), vec![emit], Vec::new())]);
            // Every tenth one is fenced.
            if one.instance.0 % 10 == 0 {
                commit.epoch.0 += 1;
            }
            commit
        })
        .collect();
    let report = ground.commit(&batch);
    let wanted: Vec<bool> = claimed.iter().map(|one| one.instance.0 % 10 != 0).collect();
    assert_eq!(report.committed, wanted);
    let committed = wanted.iter().filter(|is_committed| **is_committed).count();
    assert_eq!(report.rows.len(), committed);
    assert_eq!(ground.stream_ids().len(), count + committed);
    for (one, is_committed) in claimed.iter().zip(&wanted) {
        assert_eq!(ground.version(one).0, i64::from(*is_committed));
        assert_eq!(ground.store.depth(one.slot, one.instance, 9), Ok(u32::from(!is_committed)));
    }
}

/// What a commit in a race has done, if it has done anything.
fn assert_all_or_nothing(ground: &Ground<'_>, name: &str, is_committed: bool) {
    let view = ground.view(ground.plain, name);
    assert_eq!(view.version, Version(i64::from(is_committed)), "{name}");
    assert_eq!(view.state.is_some(), is_committed, "{name}");
    let emit = format!("of {name}");
    assert_eq!(ground.stream_ids().iter().any(|(_, id)| *id == emit), is_committed, "{name}");
    let told =
        ground.store.instance(ground.plain, &super::ground::key(&format!("to {name}"))).expect("an answer");
    let depth = told.map_or(0, |view| ground.store.depth(view.slot, view.instance, 9).expect("a depth"));
    assert_eq!(depth, u32::from(is_committed), "{name}");
}

/// Ends the row with a state, an emit and a row of another instance.
fn whole(ground: &Ground<'_>, claimed: &Claimed, row: QueueId) -> InstanceCommit {
    let name = &claimed.key;
    let emit = ground.event_to(&format!("of {name}"), vec![ground.row(&format!("to {name}"))]);
    part_with(claimed, "1", vec![done_with(row, vec![emit], Vec::new())])
}

pub(super) fn a_commit_and_a_take_over_that_meet_do_not_both_win(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let stores = [harness.store(), harness.second().unwrap_or_else(|| harness.store())];
    for round in 0..20 {
        let name = format!("k{round}");
        let row = ground.feed_one(&name);
        let first = ground.store.register("first").expect("a boot");
        let claimed = ground.claim_of(first, &[row]).pop().expect("claimed");
        harness.advance(HOUR);
        assert_eq!(ground.store.heartbeat(ground.boot, Load::default()), Ok(true));
        let ticket = ground.ticket_of(first, 0);
        let batch = [whole(&ground, &claimed, row.row)];
        let wanted = [Waiting { slot: row.slot, instance: row.instance }];
        let answers = together(2, |thread| {
            if thread == 0 {
                // Its boot may be dead by now: then all of it is refused.
                let answer = loop {
                    match stores[0].commit(ticket, &batch) {
                        Err(error) if error.is_passing() => {}
                        answer => break answer,
                    }
                };
                match answer {
                    Ok(report) => (Some(report.committed[0]), None),
                    Err(error) => {
                        assert!(matches!(error, StoreError::Fenced(_)), "{error}");
                        (Some(false), None)
                    }
                }
            } else {
                let dead = sure(|| stores[1].judge(ground.boot, HOUR / 2));
                assert_eq!(dead, [first]);
                (None, Some(sure(|| stores[1].claim(ground.boot, &wanted))))
            }
        });
        let is_committed = answers[0].0.expect("the commit has an answer");
        assert_all_or_nothing(&ground, &name, is_committed);
        let mut taken = answers[1].1.clone().expect("the claim has an answer");
        if taken.is_empty() && !is_committed {
            // It was locked just then.
            taken = ground.claim_of(ground.boot, &[row]);
        }
        if let Some(taken) = taken.first() {
            // Who has it has it as it is.
            assert!(taken.was_orphan && taken.epoch > claimed.epoch);
            assert_eq!(taken.version, Version(i64::from(is_committed)));
        }
        assert!(is_committed || !taken.is_empty(), "the row that is left has an owner");
    }
}

pub(super) fn a_commit_and_a_purge_that_meet_do_not_both_win(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let stores = [harness.store(), harness.second().unwrap_or_else(|| harness.store())];
    for round in 0..30 {
        let name = format!("k{round}");
        let row = ground.feed_one(&name);
        let claimed = ground.claim(row);
        let ticket = ground.ticket(1);
        let batch = [whole(&ground, &claimed, row.row)];
        let answers = together(2, |thread| {
            if thread == 0 {
                u64::from(sure(|| stores[0].commit(ticket, &batch)).committed[0])
            } else {
                sure(|| stores[1].purge(row.slot, row.instance, 9))
            }
        });
        assert_eq!(answers[0] + answers[1], 1, "the row ends once: {answers:?}");
        assert_all_or_nothing(&ground, &name, answers[0] == 1);
        assert_eq!(ground.places(row), []);
    }
}
