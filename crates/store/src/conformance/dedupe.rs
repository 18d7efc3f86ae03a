//! Doubled appends: what is new, what is known, and what has become of it.

use evener_actor::id::Key;

use super::Harness;
use super::ground::{Ground, HOUR, WINDOW, done, new, part, sure, together};
use crate::batch::{Appended, Dedupe, FanOut, Fate, NewEvent, NewParked};

pub(super) fn a_doubled_append_is_the_first_one(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let event = NewEvent { rows: vec![ground.row("a")], ..ground.known("one", 7) };
    let (seq, made) = ground.append_new(event.clone());
    // The second one may be routed otherwise; what follows from it has followed already.
    let again = NewEvent { rows: vec![ground.row("b")], ..event };
    assert_eq!(ground.append(&[again]), [Appended::Duplicate { seq, fate: Fate::Waiting }]);
    assert_eq!(ground.stream_ids(), [(seq, "one".to_owned())]);
    assert_eq!(ground.places(made[0]), [made[0].row]);
    let other = ground.store.instance(ground.plain, &Key::new("b").expect("a key")).expect("an answer");
    assert!(other.is_none_or(|view| ground.store.depth(view.slot, view.instance, 9) == Ok(0)));
}

pub(super) fn another_body_under_a_known_id_is_a_conflict(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let (seq, _) = ground.append_new(ground.known("one", 7));
    let other = NewEvent { rows: vec![ground.row("a")], ..ground.known("one", 8) };
    let answers = ground.append(&[ground.known("two", 1), other, ground.known("three", u64::MAX)]);
    assert_eq!(answers[1], Appended::Conflict { seq });
    let ids: Vec<String> = ground.stream_ids().into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids, ["one", "two", "three"], "nothing was appended for the conflict, all else was");
    assert_eq!(ground.store.waiting(0..1024, None, 9), Ok(vec![]));
    // Hashes use all their bits.
    assert!(matches!(ground.append(&[ground.known("three", u64::MAX)])[..], [Appended::Duplicate { .. }]));
    assert!(matches!(
        ground.append(&[ground.known("three", u64::MAX >> 1)])[..],
        [Appended::Conflict { .. }]
    ));
}

pub(super) fn a_batch_knows_its_own_duplicates(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let (old, _) = ground.append_new(ground.known("old", 1));
    let b = NewEvent { rows: vec![ground.row("a")], ..ground.known("b", 1) };
    let events = [
        ground.known("a", 1),
        b.clone(),
        ground.known("a", 1),
        ground.known("a", 2),
        ground.known("old", 1),
        b,
        ground.event("b"),
        ground.known("c", 1),
    ];
    let answers = ground.append(&events);
    let (a, _) = new(answers[0].clone());
    let (b, made) = new(answers[1].clone());
    assert_eq!(answers[2], Appended::Duplicate { seq: a, fate: Fate::Done });
    assert_eq!(answers[3], Appended::Conflict { seq: a });
    assert_eq!(answers[4], Appended::Duplicate { seq: old, fate: Fate::Done });
    assert_eq!(answers[5], Appended::Duplicate { seq: b, fate: Fate::Waiting });
    let (unchecked, _) = new(answers[6].clone());
    let (c, _) = new(answers[7].clone());
    assert!(a < b && b < unchecked && unchecked < c, "{answers:?}");
    let ids: Vec<String> = ground.stream_ids().into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids, ["old", "a", "b", "b", "c"]);
    assert_eq!(ground.places(made[0]), [made[0].row]);
}

pub(super) fn only_what_is_compared_is_known(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    ground.append_new(ground.event("one"));
    ground.append_new(ground.event("one"));
    ground.append_new(ground.known("one", 1));
    assert!(matches!(ground.append(&[ground.known("one", 1)])[..], [Appended::Duplicate { .. }]));
    assert_eq!(ground.stream_ids().len(), 3);
}

pub(super) fn an_id_is_known_in_its_tenant_stream_and_source(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let other = Ground::of(harness, "other".parse().expect("a name"));
    let stream = ground.store.stream(ground.tenant, &"second".parse().expect("a name")).expect("a stream");
    let event = ground.known("one", 1);
    let elsewhere = NewEvent { stream: Some(stream), ..event.clone() };
    let nowhere = NewEvent { stream: None, rows: vec![ground.row("a")], ..event.clone() };
    let from_elsewhere = NewEvent { event: event.event.clone().with_source("/other"), ..event.clone() };
    let theirs = other.known("one", 1);
    for event in [event.clone(), elsewhere.clone(), nowhere.clone(), from_elsewhere.clone()] {
        ground.append_new(event);
    }
    other.append_new(theirs.clone());
    for event in [event, elsewhere, nowhere, from_elsewhere] {
        assert!(matches!(ground.append(&[event])[..], [Appended::Duplicate { .. }]));
    }
    assert!(matches!(other.append(&[theirs])[..], [Appended::Duplicate { .. }]));
}

pub(super) fn an_id_is_new_again_when_its_window_is_over(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let (first, _) = ground.append_new(ground.known("one", 1));
    let short = NewEvent { dedupe: Some(Dedupe { body_hash: 1, window: HOUR }), ..ground.known("short", 1) };
    ground.append_new(short.clone());
    harness.advance(WINDOW - HOUR);
    assert!(
        matches!(ground.append(&[ground.known("one", 1)])[..], [Appended::Duplicate { seq, .. }] if seq == first)
    );
    // Another body is no conflict when the window is over.
    let short = NewEvent { dedupe: Some(Dedupe { body_hash: 2, window: HOUR }), ..short };
    ground.append_new(short);
    // The doubled append did not make the window of the first one longer.
    harness.advance(2 * HOUR);
    let (second, _) = ground.append_new(ground.known("one", 1));
    assert!(second > first);
    assert!(
        matches!(ground.append(&[ground.known("one", 1)])[..], [Appended::Duplicate { seq, .. }] if seq == second)
    );
}

pub(super) fn fifty_at_once_with_one_id_are_one_event(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let event = NewEvent { rows: vec![ground.row("a")], ..ground.known("one", 1) };
    let answers = together(50, |thread| {
        let ticket = ground.ticket(100 + thread as u16);
        sure(|| ground.store.append(ticket, std::slice::from_ref(&event))).remove(0)
    });
    let (first, rest): (Vec<Appended>, Vec<Appended>) =
        answers.into_iter().partition(|appended| matches!(appended, Appended::New { .. }));
    assert_eq!(first.len(), 1, "exactly one is new");
    let (seq, made) = new(first[0].clone());
    assert!(
        rest.iter().all(|appended| *appended == Appended::Duplicate { seq, fate: Fate::Waiting }),
        "{rest:?}"
    );
    assert_eq!(ground.stream_ids().len(), 1);
    assert_eq!(ground.places(made[0]), [made[0].row]);
}

pub(super) fn batches_that_cross_append_each_id_once(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let ids = 120_usize;
    let answers = together(6, |thread| {
        // Half of them upward, half downward, each beginning elsewhere.
        let mut order: Vec<usize> = (0..ids).map(|number| (number + thread * 20) % ids).collect();
        if thread % 2 == 1 {
            order.reverse();
        }
        let events: Vec<NewEvent> =
            order.iter().map(|number| ground.known(&format!("e{number}"), *number as u64)).collect();
        let ticket = ground.ticket(10 + thread as u16);
        sure(|| ground.store.append(ticket, &events))
    });
    let mut there: Vec<String> = ground.stream_ids().into_iter().map(|(_, id)| id).collect();
    there.sort();
    let mut wanted: Vec<String> = (0..ids).map(|number| format!("e{number}")).collect();
    wanted.sort();
    assert_eq!(there, wanted);
    let count = |is: fn(&Appended) -> bool| answers.iter().flatten().filter(|appended| is(appended)).count();
    assert_eq!(count(|appended| matches!(appended, Appended::New { .. })), ids);
    assert_eq!(count(|appended| matches!(appended, Appended::Duplicate { .. })), 5 * ids);
}

pub(super) fn a_duplicate_says_what_became_of_the_first(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let fate = |id: &str| match ground.append(&[ground.known(id, 1)]).remove(0) {
        Appended::Duplicate { fate, .. } => fate,
        other => panic!("should be known: {other:?}"),
    };
    // Two rows: the first ends, then the second is a dead letter, then that is put back.
    let two = NewEvent { rows: vec![ground.row("a"), ground.row("b")], ..ground.known("rows", 1) };
    let (_, made) = ground.append_new(two);
    assert_eq!(fate("rows"), Fate::Waiting);
    let (a, b) = (ground.claim(made[0]), ground.claim(made[1]));
    assert_eq!(fate("rows"), Fate::Waiting, "it waits until it is through");
    assert_eq!(ground.commit(&[part(&a, vec![done(made[0].row)])]).committed, [true]);
    assert_eq!(fate("rows"), Fate::Waiting, "one of two is through");
    ground.kill(&b, made[1].row);
    assert_eq!(fate("rows"), Fate::DeadLetter);
    let letter = ground.store.dead_letters(ground.tenant, None, 0, 9).expect("letters").remove(0);
    let again = ground.store.redrive(ground.tenant, &[letter.id]).expect("redriven").remove(0);
    assert_eq!(fate("rows"), Fate::Waiting);
    let end = crate::batch::InstanceCommit { version: ground.version(&b), ..part(&b, vec![done(again.row)]) };
    let end = crate::batch::InstanceCommit { version_after: evener_actor::id::Version(9), ..end };
    assert_eq!(ground.commit(&[end]).committed, [true]);
    assert_eq!(fate("rows"), Fate::Done);
    // Parked, then dropped.
    let parked = NewParked { subscription: None, reason: "no key".to_owned() };
    ground.append(&[NewEvent { parked: vec![parked], ..ground.known("parked", 1) }]);
    assert_eq!(fate("parked"), Fate::Parked);
    let parked = ground.store.parked(ground.tenant, 0, 9).expect("parked").remove(0);
    ground.store.unpark(ground.tenant, &[(parked.id, None)]).expect("dropped");
    assert_eq!(fate("parked"), Fate::Done);
    // Waiting for its fan-out.
    let deferred = NewEvent { deferred: ground.deferred[..1].to_vec(), ..ground.known("deferred", 1) };
    let (seq, _) = ground.append_new(deferred);
    assert_eq!(fate("deferred"), Fate::Waiting);
    let epoch = ground.store.lease_stream(ground.stream, ground.boot).expect("an answer").expect("the lease");
    let pending = ground.store.pending(ground.stream, 9, usize::MAX).expect("pending").remove(0);
    let through = FanOut {
        id: pending.id,
        seq,
        event_bytes: 0,
        tenant: ground.tenant,
        rows: Vec::new(),
        parked: None,
        reached: None,
    };
    ground.store.fan_out(ground.ticket(3), ground.stream, epoch, &[through]).expect("fanned out");
    assert_eq!(fate("deferred"), Fate::Done);
    // Nobody wanted it.
    ground.append(&[ground.known("unheard", 1)]);
    assert_eq!(fate("unheard"), Fate::Done);
    // Purged.
    let (_, made) = ground.append_new(NewEvent { rows: vec![ground.row("c")], ..ground.known("purged", 1) });
    ground.store.purge(made[0].slot, made[0].instance, 100).expect("purged");
    assert_eq!(fate("purged"), Fate::Done);
}
