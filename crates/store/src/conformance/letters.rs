//! Dead letters, blocked rows, parked events: what waits for a person.

use std::time::Duration;

use evener_actor::id::{ActorNo, QueueId, Version};

use super::Harness;
use super::ground::{Ground, HOUR, done, owned, part, retry};
use crate::batch::{
    Claimed, DeadCause, DeadLetter, End, InstanceCommit, NewEvent, NewParked, RowEnd, RowMade,
};

fn letters(ground: &Ground<'_>, actor: Option<ActorNo>) -> Vec<DeadLetter> {
    ground.store.dead_letters(ground.tenant, actor, 0, 10_000).expect("letters")
}

fn dead(row: RowMade, attempts: u32, cause: DeadCause, error: &str) -> RowEnd {
    RowEnd { row: row.row, end: End::Dead { attempts, cause, error: error.to_owned() } }
}

/// Another commit of the same owner.
fn commit(ground: &Ground<'_>, claimed: &Claimed, ends: Vec<RowEnd>) {
    let version = ground.version(claimed);
    let part = InstanceCommit { version, version_after: Version(version.0 + 1), ..part(claimed, ends) };
    assert_eq!(ground.commit(&[part]).committed, [true]);
}

pub(super) fn a_dead_letter_says_what_happened(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let rows = ground.feed((0..4).map(|_| ground.row("a")));
    let claimed = ground.claim(rows[0]);
    let seqs: Vec<_> = ground.rows(rows[0]).into_iter().map(|row| row.seq).collect();
    let before = ground.store.now().expect("the clock");
    let long = "Fehler: 'ü' \"🎈\"\n".repeat(400);
    let ends = vec![
        dead(rows[0], 20, DeadCause::Attempts, &long),
        done(rows[1].row),
        dead(rows[2], 0, DeadCause::WorkerDied, ""),
        dead(rows[3], i32::MAX as u32, DeadCause::Refused, "<img src=x onerror=1>"),
    ];
    commit(&ground, &claimed, ends);
    assert_eq!(ground.places(rows[0]), []);
    let found = letters(&ground, None);
    assert!(found.is_sorted_by(|a, b| a.id < b.id));
    let wanted = [
        (0, 20, DeadCause::Attempts, long.as_str()),
        (2, 0, DeadCause::WorkerDied, ""),
        (3, i32::MAX as u32, DeadCause::Refused, "<img src=x onerror=1>"),
    ];
    assert_eq!(found.len(), wanted.len());
    for (letter, (place, attempts, cause, error)) in found.iter().zip(wanted) {
        let same = DeadLetter {
            id: letter.id,
            slot: claimed.slot,
            instance: claimed.instance,
            actor: ground.plain,
            key: claimed.key.clone(),
            seq: seqs[place],
            origin: rows[place].row,
            attempts,
            crashes: 0,
            cause,
            error: error.to_owned(),
            at: letter.at,
        };
        assert_eq!(*letter, same);
        assert!(letter.at >= before && letter.at.since(before) < HOUR, "by the store's clock");
    }
    assert_eq!(ground.store.events(&[seqs[0]]).expect("events").len(), 1, "its event stays");
}

pub(super) fn dead_letters_are_listed_by_tenant_and_actor(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let other = Ground::of(harness, "other".parse().expect("a name"));
    for ground in [&ground, &other] {
        for row in [ground.row("a"), ground.ranked_row("b", None, 0), ground.row("c")] {
            let made = ground.feed([row])[0];
            ground.kill(&ground.claim(made), made.row);
        }
    }
    let all = letters(&ground, None);
    assert_eq!(all.iter().map(|letter| letter.key.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    let of = |actor| letters(&ground, Some(actor)).into_iter().map(|letter| letter.id).collect::<Vec<_>>();
    assert_eq!(of(ground.plain), [all[0].id, all[2].id]);
    assert_eq!(of(ground.ranked), [all[1].id]);
    assert_eq!(of(other.plain), Vec::<i64>::new());
    let page = |after, letters_max| {
        let page = ground.store.dead_letters(ground.tenant, None, after, letters_max).expect("letters");
        page.into_iter().map(|letter| letter.id).collect::<Vec<_>>()
    };
    assert_eq!(page(0, 2), [all[0].id, all[1].id]);
    assert_eq!(page(all[1].id, 2), [all[2].id]);
    assert_eq!(page(all[2].id, 2), Vec::<i64>::new());
    assert_eq!(letters(&other, None).len(), 3);
}

pub(super) fn a_redriven_letter_begins_anew_at_the_end(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let rows = ground.feed((0..3).map(|number| ground.ranked_row("a", Some("red"), number)));
    let claimed = ground.claim(rows[0]);
    let mark = (claimed.slot, claimed.instance, claimed.epoch, vec![rows[0].row]);
    assert_eq!(ground.store.mark_careful(ground.boot, &[mark]), Ok(vec![true]));
    let before = ground.rows(rows[0]).remove(0);
    commit(
        &ground,
        &claimed,
        vec![dead(rows[0], 20, DeadCause::Attempts, "e"), dead(rows[1], 1, DeadCause::Refused, "e")],
    );
    ground.store.release(ground.boot, &[owned(&claimed)]).expect("released");
    let ids: Vec<i64> = letters(&ground, None).iter().map(|letter| letter.id).collect();
    let made = ground.store.redrive(ground.tenant, &ids).expect("redriven");
    assert_eq!(made.len(), 2);
    assert!(made.iter().all(|made| made.row > rows[2].row), "behind all that wait");
    assert!(made[0].row < made[1].row, "in the order of their numbers");
    assert!(made.iter().all(|made| (made.slot, made.instance) == (rows[0].slot, rows[0].instance)));
    let red = RowMade { row: QueueId(0), ..rows[0] };
    let row = ground.rows(red).into_iter().find(|row| row.id == made[0].row).expect("the row");
    let anew = crate::batch::QueueRow { id: made[0].row, crashes: 0, ..before };
    assert_eq!(row, anew, "event, group, priority and origin are the same");
    // It stands in the index over its group, too.
    let order = crate::batch::RowOrder::GroupPriority {
        group: evener_actor::id::GroupHash::of(&super::ground::group("red")),
        after: None,
    };
    let ranked = ground.read(crate::batch::RowsRequest { order, ..Ground::request(red) }).rows;
    assert_eq!(ranked.iter().map(|row| row.id).collect::<Vec<_>>(), [rows[2].row, made[1].row, made[0].row]);
    assert_eq!(letters(&ground, None), []);
    assert_eq!(ground.claim(made[0]).version, Version(1));
}

pub(super) fn a_row_may_die_and_be_redriven_again_and_again(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let mut row = ground.feed_one("a");
    let origin = row.row;
    let claimed = ground.claim(row);
    for round in 1..=4 {
        commit(&ground, &claimed, vec![retry(row.row, round, Duration::ZERO)]);
        assert_eq!(ground.rows(row)[0].attempts, round);
        ground.kill(&claimed, row.row);
        let letter = letters(&ground, None).remove(0);
        assert_eq!((letter.origin, letter.attempts), (origin, 3));
        // Its owner need not let go of it.
        row = ground.store.redrive(ground.tenant, &[letter.id]).expect("redriven").remove(0);
        let read = ground.rows(row).remove(0);
        assert_eq!((read.origin, read.attempts, read.crashes, read.delay), (origin, 0, 0, Duration::ZERO));
    }
    commit(&ground, &claimed, vec![done(row.row)]);
    assert_eq!(ground.places(row), []);
}

pub(super) fn a_thousand_letters_are_redriven_at_once(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let count = harness.many(1_000);
    let rows = ground.feed((0..count).map(|number| ground.row(&format!("k{}", number % 7))));
    let claimed = ground.claim_of(ground.boot, &rows);
    let batch: Vec<InstanceCommit> = claimed
        .iter()
        .map(|one| {
            let own = rows.iter().filter(|row| row.instance == one.instance);
            part(one, own.map(|row| dead(*row, 1, DeadCause::Attempts, "e")).collect())
        })
        .collect();
    assert_eq!(ground.commit(&batch).committed, [true; 7]);
    let ids: Vec<i64> = letters(&ground, None).iter().map(|letter| letter.id).collect();
    assert_eq!(ids.len(), count);
    assert_eq!(ground.store.redrive(ground.tenant, &ids).expect("redriven").len(), count);
    assert_eq!(letters(&ground, None), []);
    let waiting: u32 = claimed
        .iter()
        .map(|one| ground.store.depth(one.slot, one.instance, u32::MAX).expect("a depth"))
        .sum();
    assert_eq!(waiting as usize, count);
}

pub(super) fn a_letter_that_is_not_there_is_left_out(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let other = Ground::of(harness, "other".parse().expect("a name"));
    for key in ["a", "b", "c"] {
        let row = ground.feed_one(key);
        ground.kill(&ground.claim(row), row.row);
    }
    let ids: Vec<i64> = letters(&ground, None).iter().map(|letter| letter.id).collect();
    assert_eq!(other.store.redrive(other.tenant, &ids), Ok(vec![]));
    assert_eq!(other.store.drop_letters(other.tenant, &ids), Ok(0));
    assert_eq!(ground.store.redrive(ground.tenant, &[]), Ok(vec![]));
    assert_eq!(ground.store.redrive(ground.tenant, &[i64::MAX, ids[0]]).expect("redriven").len(), 1);
    assert_eq!(ground.store.redrive(ground.tenant, &[ids[0], ids[1]]).expect("redriven").len(), 1);
    assert_eq!(ground.store.drop_letters(ground.tenant, &ids), Ok(1));
    assert_eq!(ground.store.drop_letters(ground.tenant, &ids), Ok(0));
    assert_eq!(letters(&ground, None), []);
    assert_eq!(ground.store.waiting(0..1024, None, 9).expect("waiting").len(), 2, "what was dropped is gone");
}

pub(super) fn a_blocked_row_waits_for_a_command(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let rows = ground.feed((0..4).map(|number| ground.ranked_row("a", Some("g"), number)));
    let claimed = ground.claim(rows[0]);
    let block =
        |row: RowMade| RowEnd { row: row.row, end: End::Blocked { attempts: 5, error: "no way".to_owned() } };
    commit(&ground, &claimed, vec![retry(rows[0].row, 1, HOUR)]);
    commit(&ground, &claimed, vec![block(rows[0]), block(rows[1]), block(rows[2])]);
    let read = ground.rows(rows[0]);
    assert_eq!(
        read.iter().map(|row| row.id).collect::<Vec<_>>(),
        rows.iter().map(|row| row.row).collect::<Vec<_>>()
    );
    assert_eq!(read.iter().map(|row| row.is_blocked).collect::<Vec<_>>(), [true, true, true, false]);
    assert_eq!(read[0].attempts, 5);
    assert_eq!(letters(&ground, None), [], "it is no dead letter");
    harness.advance(1_000 * HOUR);
    assert!(ground.rows(rows[0])[0].is_blocked, "time does not free it");
    // Retried where it stands, with everything as for a new one; one that is not blocked stays as it is.
    let (slot, instance, _) = owned(&claimed);
    let command = |rows: &[QueueId], is_retry| ground.store.unblock(slot, instance, rows, is_retry);
    assert_eq!(command(&[rows[0].row, rows[3].row, QueueId(i64::MAX)], true), Ok(1));
    let row = &ground.rows(rows[0])[0];
    assert_eq!((row.id, row.is_blocked, row.attempts), (rows[0].row, false, 0));
    assert_eq!((row.crashes, row.delay, row.origin), (0, Duration::ZERO, rows[0].row));
    // Dropped.
    assert_eq!(command(&[rows[0].row, rows[1].row, rows[3].row], false), Ok(1));
    assert_eq!(ground.places(rows[0]), [rows[0].row, rows[2].row, rows[3].row]);
    assert_eq!(command(&[rows[1].row], true), Ok(0));
    assert_eq!(letters(&ground, None), []);
}

pub(super) fn a_parked_event_gets_a_place_or_goes(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let other = Ground::of(harness, "other".parse().expect("a name"));
    let why = |subscription, reason: &str| NewParked { subscription, reason: reason.to_owned() };
    let before = ground.store.now().expect("the clock");
    let first = NewEvent {
        rows: vec![ground.row("a")],
        parked: vec![
            why(Some(ground.deferred[0]), "no key at `data.id`"),
            why(Some(ground.deferred[1]), "too \"long\" 🎈"),
        ],
        ..ground.event("one")
    };
    let (seq, made) = ground.append_new(first);
    let (second, _) = ground.append_new(NewEvent { parked: vec![why(None, "depth")], ..ground.event("two") });
    let parked = ground.store.parked(ground.tenant, 0, 9).expect("parked");
    let seen: Vec<_> = parked.iter().map(|one| (one.seq, one.subscription, one.reason.as_str())).collect();
    let wanted = [
        (seq, Some(ground.deferred[0]), "no key at `data.id`"),
        (seq, Some(ground.deferred[1]), "too \"long\" 🎈"),
        (second, None, "depth"),
    ];
    assert_eq!(seen, wanted);
    assert!(parked.is_sorted_by(|a, b| a.id < b.id));
    assert!(parked.iter().all(|one| one.at >= before && one.at.since(before) < HOUR));
    assert_eq!(ground.store.parked(ground.tenant, parked[0].id, 1).expect("parked"), parked[1..2]);
    assert_eq!(other.store.parked(other.tenant, 0, 9), Ok(vec![]));
    assert_eq!(ground.places(made[0]), [made[0].row], "its other rows are as they should be");

    let place = ground.ranked_row("b", Some("late"), 5);
    assert_eq!(other.store.unpark(other.tenant, &[(parked[0].id, None)]), Ok(vec![]));
    assert_eq!(ground.store.parked(ground.tenant, 0, 9).expect("parked").len(), 3);
    let moves = [(parked[2].id, None), (i64::MAX, Some(place.clone())), (parked[0].id, Some(place.clone()))];
    let unparked = ground.store.unpark(ground.tenant, &moves).expect("unparked");
    assert_eq!(unparked.len(), 1);
    let row = ground.rows(unparked[0]).remove(0);
    assert_eq!((row.id, row.origin, row.seq), (unparked[0].row, unparked[0].row, seq));
    assert_eq!((row.group, row.priority, row.attempts), (place.group.clone(), 5, 0));
    assert!(unparked[0].row > made[0].row);
    let left = ground.store.parked(ground.tenant, 0, 9).expect("parked");
    assert_eq!(left, parked[1..2]);
    assert_eq!(ground.store.unpark(ground.tenant, &moves), Ok(vec![]), "not twice");
    assert_eq!(
        ground.store.events(&[second]).expect("events").len(),
        1,
        "the event itself stays in its stream"
    );
}
