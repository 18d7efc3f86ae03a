//! Fan-out: what is pending, who may work on it, and what it becomes.

use evener_actor::event::Event;
use evener_actor::id::{Boot, Epoch, InstanceId, Key, QueueId, Seq, StreamNo, SubscriptionNo};

use super::Harness;
use super::ground::{Ground, HOUR, new, sure, together};
use crate::StoreError;
use crate::batch::{FanOut, Load, NewEvent, NewParked, NewRow, Pending, RowMade};

fn pending(ground: &Ground<'_>) -> Vec<Pending> {
    ground.store.pending(ground.stream, 10_000, usize::MAX).expect("pending")
}

/// The pending event is through, with these rows.
fn through(ground: &Ground<'_>, pending: &Pending, rows: Vec<NewRow>) -> FanOut {
    FanOut {
        id: pending.id,
        seq: pending.event.seq,
        event_bytes: u32::try_from(pending.event.event.data.len()).expect("a small event"),
        tenant: ground.tenant,
        rows,
        parked: None,
        reached: None,
    }
}

fn lease(ground: &Ground<'_>) -> Epoch {
    ground.store.lease_stream(ground.stream, ground.boot).expect("an answer").expect("the lease")
}

fn fan_out(ground: &Ground<'_>, epoch: Epoch, done: &[FanOut]) -> Vec<RowMade> {
    let ticket = ground.ticket(4);
    sure(|| ground.store.fan_out(ticket, ground.stream, epoch, done))
}

pub(super) fn pending_events_stand_by_place_and_subscription(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let mut backward = ground.deferred.clone();
    backward.reverse();
    let events = [
        ground.deferred("one"),
        ground.event("for nobody"),
        NewEvent { deferred: backward, ..ground.event("two") },
        NewEvent { deferred: vec![ground.deferred[1]], ..ground.event("three") },
    ];
    let seqs: Vec<Seq> = ground.append(&events).into_iter().map(|appended| new(appended).0).collect();
    let found = pending(&ground);
    let seen: Vec<(Seq, SubscriptionNo)> =
        found.iter().map(|pending| (pending.event.seq, pending.subscription)).collect();
    let (first, second) =
        (ground.deferred[0].min(ground.deferred[1]), ground.deferred[0].max(ground.deferred[1]));
    let three = ground.deferred[1];
    let wanted = [(seqs[0], first), (seqs[0], second), (seqs[2], first), (seqs[2], second), (seqs[3], three)];
    assert_eq!(seen, wanted);
    assert!(found.iter().all(|pending| pending.reached.is_none()));
    assert_eq!(found[2].event.event, events[2].event);
    for subscription in [first, second] {
        let of = found.iter().filter(|pending| pending.subscription == subscription);
        assert!(of.map(|pending| pending.id).is_sorted_by(|a, b| a < b));
    }
    assert_eq!(ground.store.pending(ground.stream, 3, usize::MAX).expect("pending"), found[..3]);
    assert_eq!(ground.store.pending(StreamNo(i64::MAX), 3, usize::MAX), Ok(vec![]));
}

pub(super) fn pending_events_come_within_their_bytes(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    for (number, size) in [100_usize, 50, 50, 0].into_iter().enumerate() {
        let event = Event::new("t", vec![b'1'; size]).with_id(format!("{number}"));
        ground.append(&[NewEvent { event, deferred: ground.deferred[..1].to_vec(), ..ground.event("") }]);
    }
    for (bytes_max, count) in [(0, 1), (99, 1), (149, 1), (150, 2), (199, 2), (200, 4), (usize::MAX, 4)] {
        let page = ground.store.pending(ground.stream, 9, bytes_max).expect("pending");
        assert_eq!(page.len(), count, "{bytes_max} bytes");
    }
}

pub(super) fn a_fan_out_turns_pending_events_into_rows(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let seqs: Vec<Seq> = ground
        .append(&[ground.deferred("one"), ground.deferred("two"), ground.deferred("three")])
        .into_iter()
        .map(|appended| new(appended).0)
        .collect();
    let before = ground.feed_one("a");
    let epoch = lease(&ground);
    let found = pending(&ground);
    let parked = NewParked { subscription: Some(found[3].subscription), reason: "no key".to_owned() };
    let batch = [
        through(&ground, &found[0], vec![ground.row("a"), ground.ranked_row("r", Some("red"), 3)]),
        through(&ground, &found[1], vec![]),
        through(&ground, &found[2], vec![ground.row("a")]),
        FanOut { parked: Some(parked), ..through(&ground, &found[3], vec![]) },
    ];
    let made = fan_out(&ground, epoch, &batch);
    assert_eq!(made.len(), 3);
    assert!(made.is_sorted_by(|a, b| a.row < b.row) && made[0].row > before.row, "in the order given");
    let rows = ground.rows(before);
    let seen: Vec<(QueueId, Seq)> = rows.iter().skip(1).map(|row| (row.id, row.seq)).collect();
    assert_eq!(seen, [(made[0].row, seqs[0]), (made[2].row, seqs[1])]);
    assert_eq!((rows[1].stream, rows[1].origin, rows[1].event_bytes), (Some(ground.stream), made[0].row, 12));
    assert_eq!(rows[1].event.as_ref().expect("came along").event, ground.event("one").event);
    let ranked = ground.rows(made[1]).remove(0);
    assert_eq!((ranked.priority, ranked.seq), (3, seqs[0]));
    assert_eq!(pending(&ground), found[4..]);
    let parked = ground.store.parked(ground.tenant, 0, 9).expect("parked");
    assert_eq!(
        (parked.len(), parked[0].seq, parked[0].subscription),
        (1, seqs[1], Some(found[3].subscription))
    );
    assert_eq!(fan_out(&ground, epoch, &[]), []);
}

pub(super) fn what_is_not_pending_any_more_makes_nothing(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    ground.append(&[ground.deferred("one")]);
    let epoch = lease(&ground);
    let found = pending(&ground);
    let first = through(&ground, &found[0], vec![ground.row("a")]);
    let never = FanOut {
        rows: vec![ground.row("never")],
        parked: Some(NewParked { subscription: None, reason: "never".to_owned() }),
        ..first.clone()
    };
    assert_eq!(fan_out(&ground, epoch, std::slice::from_ref(&first)).len(), 1);
    assert_eq!(fan_out(&ground, epoch, std::slice::from_ref(&never)), []);
    let not_there = FanOut { id: found[1].id + 1_000, ..never.clone() };
    let last = through(&ground, &found[1], vec![ground.row("b")]);
    assert_eq!(fan_out(&ground, epoch, &[not_there, last, never.clone()]).len(), 1, "the others are done");
    // An event of another stream is not this lease's.
    let stream = ground.store.stream(ground.tenant, &"second".parse().expect("a name")).expect("a stream");
    ground.append(&[NewEvent { stream: Some(stream), ..ground.deferred("elsewhere") }]);
    let elsewhere = ground.store.pending(stream, 9, usize::MAX).expect("pending");
    let foreign = FanOut { rows: never.rows.clone(), ..through(&ground, &elsewhere[0], vec![]) };
    assert_eq!(fan_out(&ground, epoch, &[foreign]), []);
    assert_eq!(ground.store.pending(stream, 9, usize::MAX).expect("pending"), elsewhere);
    assert_eq!(ground.store.parked(ground.tenant, 0, 9), Ok(vec![]));
    assert_eq!(ground.store.waiting(0..1024, None, 9).expect("waiting").len(), 2);
}

pub(super) fn only_the_leaseholder_fans_out(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    ground.append(&[ground.deferred("one")]);
    let found = pending(&ground);
    let batch = [through(&ground, &found[0], vec![ground.row("a")])];
    let second = ground.store.register("second").expect("a boot");
    let refused = |boot: Boot, epoch: Epoch| {
        let ticket = ground.ticket_of(boot, 100 + epoch.0 as u16);
        let answer = ground.store.fan_out(ticket, ground.stream, epoch, &batch);
        assert!(matches!(answer, Err(StoreError::Fenced(_))), "{answer:?}");
        assert_eq!(pending(&ground), found, "nothing was done");
        assert_eq!(ground.store.waiting(0..1024, None, 9), Ok(vec![]));
    };
    refused(ground.boot, Epoch(0));
    refused(ground.boot, Epoch(1));
    let first = lease(&ground);
    assert_eq!(ground.store.lease_stream(ground.stream, second), Ok(None), "a live boot has it");
    refused(second, first);
    refused(ground.boot, Epoch(first.0 + 10));
    // Taken anew after a lost answer.
    let again = lease(&ground);
    assert!(again > first);
    ground.store.release_stream(ground.stream, ground.boot, first).expect("nothing happens");
    ground.store.release_stream(ground.stream, second, again).expect("nothing happens");
    assert_eq!(ground.store.lease_stream(ground.stream, second), Ok(None));
    // Given back.
    ground.store.release_stream(ground.stream, ground.boot, again).expect("released");
    refused(ground.boot, Epoch(again.0 + 20));
    let taken = ground.store.lease_stream(ground.stream, second).expect("an answer").expect("the lease");
    assert!(taken > again);
    // Its holder is dead.
    harness.advance(HOUR);
    assert_eq!(ground.store.heartbeat(ground.boot, Load::default()), Ok(true));
    assert_eq!(ground.store.lease_stream(ground.stream, ground.boot), Ok(None), "silent is not dead");
    assert_eq!(ground.store.judge(ground.boot, HOUR / 2), Ok(vec![second]));
    let last = lease(&ground);
    assert!(last > taken);
    let dead = ground.store.lease_stream(ground.stream, second);
    assert!(matches!(dead, Err(StoreError::Fenced(_))), "{dead:?}");
    assert_eq!(fan_out(&ground, last, &batch).len(), 1);
    // Another stream has its own.
    let other = ground.store.stream(ground.tenant, &"second".parse().expect("a name")).expect("a stream");
    let third = ground.store.register("third").expect("a boot");
    assert!(ground.store.lease_stream(other, third).expect("an answer").is_some());
}

pub(super) fn leases_that_meet_are_given_once(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let boots: Vec<Boot> = (0..6).map(|_| ground.store.register("w").expect("a boot")).collect();
    let stores = [Some(harness.store()), harness.second()];
    for round in 0..10 {
        let name = format!("s{round}").parse().expect("a name");
        let stream = ground.store.stream(ground.tenant, &name).expect("a stream");
        let leases = together(boots.len(), |thread| {
            let store = stores[thread % 2].as_ref().unwrap_or(&ground.store);
            sure(|| store.lease_stream(stream, boots[thread]))
        });
        assert_eq!(leases.iter().flatten().count(), 1, "{leases:?}");
    }
}

pub(super) fn a_broadcast_goes_in_pages(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let count = harness.many(2_500);
    let made = ground.feed((0..count).map(|number| ground.row(&format!("k{number}"))));
    ground.feed([ground.ranked_row("of another actor", None, 0)]);
    let all: Vec<InstanceId> = {
        let mut all: Vec<InstanceId> = made.iter().map(|made| made.instance).collect();
        all.sort_unstable();
        all
    };
    ground.append(&[ground.deferred("to all")]);
    let epoch = lease(&ground);
    let (mut reached, mut pages) = (InstanceId(0), Vec::new());
    let subscription = pending(&ground)[0].subscription;
    loop {
        let one = pending(&ground).remove(0);
        assert_eq!(one.subscription, subscription, "it stays first until it is through");
        assert_eq!(one.reached.unwrap_or_default(), reached);
        let page: Vec<(InstanceId, Key)> =
            ground.store.instances_of(ground.plain, reached, 1_000).expect("instances");
        assert!(page.is_sorted_by(|a, b| a.0 < b.0));
        let rows = page.iter().map(|(_, key)| ground.row(key.as_str())).collect();
        let last = page.last().map(|(instance, _)| *instance);
        let rows = fan_out(&ground, epoch, &[FanOut { reached: last, ..through(&ground, &one, rows) }]);
        pages.extend(rows.iter().map(|made| made.instance));
        match last {
            Some(last) => reached = last,
            None => break,
        }
        assert!(pages.len() <= count, "a page repeats itself");
    }
    assert_eq!(pages, all, "every instance once");
    assert!(pending(&ground).iter().all(|one| one.subscription != subscription), "it is through");
    assert_eq!(ground.places(made[0]).len(), 2);
}

pub(super) fn streams_with_pending_events_are_found(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    assert_eq!(ground.store.streams_pending(None, 9), Ok(vec![]));
    let streams: Vec<StreamNo> = (0..10)
        .map(|number| {
            let name = format!("s{number}").parse().expect("a name");
            let stream = ground.store.stream(ground.tenant, &name).expect("a stream");
            for _ in 0..3 {
                ground.append(&[NewEvent { stream: Some(stream), ..ground.deferred("one") }]);
            }
            stream
        })
        .collect();
    ground.append(&[ground.event("for nobody")]);
    assert!(streams.is_sorted());
    assert_eq!(ground.store.streams_pending(None, 100), Ok(streams.clone()));
    assert_eq!(ground.store.streams_pending(None, 4), Ok(streams[..4].to_vec()));
    assert_eq!(ground.store.streams_pending(Some(streams[3]), 4), Ok(streams[4..8].to_vec()));
    assert_eq!(ground.store.streams_pending(Some(streams[9]), 4), Ok(vec![]));
    // Through is through.
    let epoch = ground.store.lease_stream(streams[4], ground.boot).expect("an answer").expect("the lease");
    let of = ground.store.pending(streams[4], 99, usize::MAX).expect("pending");
    let done: Vec<FanOut> = of.iter().map(|one| through(&ground, one, vec![])).collect();
    ground.store.fan_out(ground.ticket(4), streams[4], epoch, &done).expect("fanned out");
    let mut left = streams;
    left.remove(4);
    assert_eq!(ground.store.streams_pending(None, 100), Ok(left));
}
