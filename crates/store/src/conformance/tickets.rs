//! Tickets: a batch is done exactly once, however often and from wherever it is sent.

use evener_actor::id::{Boot, Epoch};

use super::Harness;
use super::ground::{Ground, HOUR, done_with, new, part_with, sure, together};
use crate::StoreError;
use crate::batch::{Appended, CommitReport, FanOut, FireAt, Firing, NewEvent, Ticket};

fn sorted(mut report: CommitReport) -> CommitReport {
    report.rows.sort_unstable_by_key(|made| made.row);
    report.pending.sort_unstable();
    report
}

fn assert_fenced<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::Fenced(_))), "should be fenced: {answer:?}");
}

pub(super) fn an_append_sent_twice_is_done_once(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    ground.append(&[ground.known("old", 1)]);
    let events = [
        NewEvent { rows: vec![ground.row("a"), ground.row("b")], ..ground.known("one", 1) },
        ground.event_to("two", vec![ground.row("a")]),
        ground.known("old", 1),
        ground.known("old", 2),
    ];
    let ticket = ground.ticket(0);
    let first = ground.store.append(ticket, &events).expect("appended");
    let second = ground.store.append(ticket, &events).expect("the same answer");
    assert_eq!(second, first);
    assert!(matches!(
        first[..],
        [Appended::New { .. }, Appended::New { .. }, Appended::Duplicate { .. }, Appended::Conflict { .. }]
    ));
    assert_eq!(ground.stream_ids().len(), 3);
    assert_eq!(ground.places(new(first[0].clone()).1[0]).len(), 2);
    // The lane goes on where it was.
    assert_eq!(ground.append(&[ground.event("three")]).len(), 1);
}

pub(super) fn an_append_has_its_answer_after_its_rows_are_gone(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let ticket = ground.ticket(0);
    let events = [NewEvent { rows: vec![ground.row("a")], ..ground.known("one", 1) }, ground.event("two")];
    let first = ground.store.append(ticket, &events).expect("appended");
    let seqs: Vec<_> = first.iter().cloned().map(|appended| new(appended).0).collect();
    let made = new(first[0].clone()).1[0];
    let claimed = ground.claim(made);
    let end = part_with(&claimed, "1", vec![super::ground::done(made.row)]);
    assert_eq!(ground.commit(&[end]).committed, [true]);
    let second = ground.store.append(ticket, &events).expect("the same answer");
    assert_eq!(second.into_iter().map(|appended| new(appended).0).collect::<Vec<_>>(), seqs);
    assert_eq!(ground.store.waiting(0..1024, None, 9), Ok(vec![]), "the row does not come back");
}

pub(super) fn a_commit_sent_twice_is_done_once(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let rows = [ground.feed_one("a"), ground.feed_one("b")];
    let (a, b) = (ground.claim(rows[0]), ground.claim(rows[1]));
    ground.store.release(ground.boot, &[super::ground::owned(&b)]).expect("released");
    let emit = NewEvent { rows: vec![ground.row("c")], ..ground.deferred("emit") };
    let batch = [
        part_with(
            &a,
            "1",
            vec![done_with(rows[0].row, vec![emit], vec![ground.set("s", "spec", FireAt::In(HOUR))])],
        ),
        part_with(&b, "1", vec![done_with(rows[1].row, vec![ground.event("fenced")], Vec::new())]),
    ];
    let ticket = ground.ticket(1);
    let first = sorted(ground.store.commit(ticket, &batch).expect("committed"));
    assert_eq!((first.committed.as_slice(), first.is_sooner), (&[true, false][..], true));
    assert_eq!((first.rows.len(), first.pending.as_slice()), (1, &[ground.stream][..]));
    let second = sorted(ground.store.commit(ticket, &batch).expect("the same answer"));
    assert_eq!(second, first);
    let ids: Vec<String> = ground.stream_ids().into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids, ["fed-0", "fed-0", "emit"]);
    assert_eq!(ground.places(first.rows[0]), [first.rows[0].row]);
    assert_eq!(ground.view(ground.plain, "a").version.0, 1);
    assert_eq!(ground.store.pending(ground.stream, 9, usize::MAX).expect("pending").len(), 2);
}

pub(super) fn a_fan_out_sent_twice_is_done_once(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let (seq, _) = ground.append_new(ground.deferred("one"));
    let epoch = ground.store.lease_stream(ground.stream, ground.boot).expect("an answer").expect("the lease");
    let pending = ground.store.pending(ground.stream, 9, usize::MAX).expect("pending");
    let batch: Vec<FanOut> = pending
        .iter()
        .map(|pending| FanOut {
            id: pending.id,
            seq,
            event_bytes: 0,
            tenant: ground.tenant,
            rows: vec![ground.row("a"), ground.row(&format!("k{}", pending.subscription))],
            parked: None,
            reached: None,
        })
        .collect();
    let ticket = ground.ticket(0);
    let first = ground.store.fan_out(ticket, ground.stream, epoch, &batch).expect("fanned out");
    let second = ground.store.fan_out(ticket, ground.stream, epoch, &batch).expect("the same answer");
    assert_eq!((first.len(), &second), (4, &first));
    assert_eq!(ground.store.depth(first[0].slot, first[0].instance, 9), Ok(2));
}

pub(super) fn a_firing_sent_twice_is_done_once(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    ground.store.write_schedules(&[ground.set("s", "spec", FireAt::In(HOUR))]).expect("set");
    harness.advance(HOUR);
    let due = ground.store.due(9).expect("due").schedules.remove(0);
    let firing = Firing {
        no: due.no,
        generation: due.generation,
        fire_at: due.fire_at,
        next: None,
        events: vec![ground.event_to("tick", vec![ground.row("a")])],
    };
    let stale = Firing { generation: due.generation + 1, ..firing.clone() };
    let ticket = ground.ticket(2);
    let first = ground.store.fire(ticket, &[firing.clone(), stale.clone()]).expect("fired");
    assert_eq!(first.committed, [true, false]);
    let second = ground.store.fire(ticket, &[firing, stale]).expect("the same answer");
    assert_eq!(sorted(second), sorted(first));
    assert_eq!(ground.stream_ids().len(), 1);
}

pub(super) fn copies_of_a_batch_that_arrive_together_are_done_once(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let stores = [Some(harness.store()), harness.second()];
    for round in 0..10 {
        let events: Vec<NewEvent> =
            (0..20).map(|n| ground.event_to(&format!("{round}-{n}"), vec![ground.row("a")])).collect();
        let ticket = ground.ticket(0);
        let answers = together(6, |thread| {
            let store = stores[thread % 2].as_ref().unwrap_or(&ground.store);
            sure(|| store.append(ticket, &events))
        });
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    }
    assert_eq!(ground.stream_ids().len(), 200);
}

pub(super) fn a_number_out_of_turn_is_refused(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    for number in [2, 0, -1, i64::MIN, i64::MAX] {
        let ticket = Ticket { boot: ground.boot, lane: 7, number };
        assert_fenced(ground.store.append(ticket, &[ground.event("never")]));
    }
    for _ in 0..3 {
        let ticket = ground.ticket(7);
        ground.store.append(ticket, &[ground.event("in turn")]).expect("appended");
    }
    for number in [1, 2, 5, 6] {
        let ticket = Ticket { boot: ground.boot, lane: 7, number };
        assert_fenced(ground.store.append(ticket, &[ground.event("never")]));
    }
    assert_eq!(ground.stream_ids().len(), 3);
}

pub(super) fn a_lane_counts_for_itself(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let other = ground.store.register("second").expect("a boot");
    for boot in [ground.boot, other] {
        for lane in [0, 1, u16::MAX] {
            for _ in 0..2 {
                let ticket = ground.ticket_of(boot, lane);
                ground.store.append(ticket, &[ground.event("one")]).expect("appended");
            }
        }
    }
    assert_eq!(ground.stream_ids().len(), 12);
}

pub(super) fn a_refused_batch_leaves_its_number(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let ticket = ground.ticket(0);
    assert_fenced(ground.store.fan_out(ticket, ground.stream, Epoch(1), &[]));
    let appended = ground.store.append(ticket, &[ground.event("one")]).expect("the number is free");
    assert_eq!(appended.len(), 1);
}

pub(super) fn a_dead_boot_writes_nothing(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let (row, free) = (ground.feed_one("a"), ground.feed_one("b"));
    let claimed = ground.claim(row);
    let epoch = ground.store.lease_stream(ground.stream, ground.boot).expect("an answer").expect("the lease");
    ground.append(&[ground.deferred("one")]);
    let pending = ground.store.pending(ground.stream, 9, usize::MAX).expect("pending").remove(0);
    ground.store.write_schedules(&[ground.set("s", "spec", FireAt::In(HOUR))]).expect("set");
    harness.advance(HOUR);
    let due = ground.store.due(9).expect("due").schedules.remove(0);
    let judge = ground.store.register("judge").expect("a boot");
    assert_eq!(ground.store.judge(judge, HOUR / 2), Ok(vec![ground.boot]));

    let before = ground.stream_ids();
    assert_fenced(ground.store.append(ground.ticket(0), &[ground.event("never")]));
    let part = part_with(&claimed, "1", vec![done_with(row.row, vec![ground.event("never")], Vec::new())]);
    assert_fenced(ground.store.commit(ground.ticket(1), &[part]));
    let fan_out = FanOut {
        id: pending.id,
        seq: pending.event.seq,
        event_bytes: 0,
        tenant: ground.tenant,
        rows: vec![ground.row("c")],
        parked: None,
        reached: None,
    };
    assert_fenced(ground.store.fan_out(ground.ticket(2), ground.stream, epoch, &[fan_out]));
    let firing = Firing {
        no: due.no,
        generation: due.generation,
        fire_at: due.fire_at,
        next: None,
        events: vec![ground.event("never")],
    };
    assert_fenced(ground.store.fire(ground.ticket(3), &[firing]));
    let wanted = crate::batch::Waiting { slot: free.slot, instance: free.instance };
    assert_fenced(ground.store.claim(ground.boot, &[wanted]));
    assert_eq!(ground.stream_ids(), before);
    assert_eq!(ground.places(row), [row.row]);
    assert_eq!(ground.view(ground.plain, "a").state, None);
    assert_eq!(ground.store.pending(ground.stream, 9, usize::MAX).expect("pending").len(), 2);
    assert_eq!(ground.store.due(9).expect("due").schedules.len(), 1);
}

pub(super) fn a_boot_that_never_was_writes_nothing(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let row = ground.feed_one("a");
    let nobody = Boot(ground.boot.0 + 1_000);
    let ticket = Ticket { boot: nobody, lane: 0, number: 1 };
    assert_fenced(ground.store.append(ticket, &[ground.event("never")]));
    let wanted = crate::batch::Waiting { slot: row.slot, instance: row.instance };
    assert_fenced(ground.store.claim(nobody, &[wanted]));
    assert_eq!(ground.stream_ids().len(), 1);
}
