//! Streams read from outside, and what is taken away when nobody needs it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use evener_actor::event::{Event, Timestamp};
use evener_actor::id::{Boot, Seq, StreamNo};

use super::Harness;
use super::ground::{Ground, HOUR, WINDOW, done, done_with, new, part, retry, sure};
use crate::batch::{Appended, Fate, Load, NewEvent, NewParked, RowMade, Ticket};

pub(super) fn a_stream_is_read_in_pages(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let other = ground.store.stream(ground.tenant, &"second".parse().expect("a name")).expect("a stream");
    let mut ours = Vec::new();
    for number in 0..30 {
        let event = Event::new("t", vec![b'1'; number]).with_id(format!("{number}"));
        let stream = if number % 3 == 0 { other } else { ground.stream };
        let (seq, _) = ground.append_new(NewEvent { stream: Some(stream), event, ..ground.event("") });
        if number % 3 != 0 {
            ours.push((seq, number));
        }
    }
    let read = |after: Seq, events_max: u32, bytes_max: usize| -> Vec<(Seq, usize)> {
        let page = ground.store.read_stream(ground.stream, after, events_max, bytes_max).expect("a page");
        page.iter().map(|stored| (stored.seq, stored.event.data.len())).collect()
    };
    assert_eq!(read(Seq(0), 1_000, usize::MAX), ours);
    assert_eq!(read(Seq(0), 7, usize::MAX), ours[..7]);
    assert_eq!(read(ours[6].0, 7, usize::MAX), ours[7..14]);
    assert_eq!(read(ours[19].0, 7, usize::MAX), []);
    // Sizes are 1, 2, 4, 5, 7, 8 ...
    for (bytes_max, count) in [(0, 1), (2, 1), (3, 2), (6, 2), (7, 3), (11, 3), (12, 4), (19, 5)] {
        assert_eq!(read(Seq(0), 1_000, bytes_max), ours[..count], "{bytes_max} bytes");
    }
    assert_eq!(read(ours[9].0, 1_000, 1), ours[10..11], "the first one always");
    assert_eq!(ground.store.read_stream(StreamNo(i64::MAX), Seq(0), 9, 9), Ok(vec![]));
}

pub(super) fn a_reader_that_goes_on_misses_nothing(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let (writers, rounds) = (4_usize, 60_usize);
    let second = harness.second();
    let running = AtomicUsize::new(writers);
    let seen = std::thread::scope(|scope| {
        for writer in 0..writers {
            let (ground, running, second) = (&ground, &running, &second);
            scope.spawn(move || {
                let store = second.as_ref().filter(|_| writer % 2 == 1).unwrap_or(&ground.store);
                for round in 0..rounds {
                    // Batches of many sizes, so that some take longer than others.
                    let count = 1 + (round * 7 + writer * 3) % 40;
                    let events: Vec<NewEvent> = (0..count)
                        .map(|number| {
                            ground.event_to(&format!("{writer}-{round}-{number}"), vec![ground.row("a")])
                        })
                        .collect();
                    let ticket = ground.ticket(10 + writer as u16);
                    sure(|| store.append(ticket, &events));
                }
                running.fetch_sub(1, Ordering::SeqCst);
            });
        }
        let (mut seen, mut after) = (Vec::new(), Seq(0));
        loop {
            let is_over = running.load(Ordering::SeqCst) == 0;
            let page = ground.store.read_stream(ground.stream, after, 50, usize::MAX).expect("a page");
            assert!(page.iter().all(|stored| stored.seq > after));
            if let Some(last) = page.last() {
                after = last.seq;
            } else if is_over {
                return seen;
            }
            seen.extend(page.iter().map(|stored| (stored.seq, stored.event.id.to_string())));
        }
    });
    assert_eq!(seen, ground.stream_ids());
    let ids: BTreeSet<&str> = seen.iter().map(|(_, id)| id.as_str()).collect();
    let count: usize = (0..writers).flat_map(|w| (0..rounds).map(move |r| 1 + (r * 7 + w * 3) % 40)).sum();
    assert_eq!((seen.len(), ids.len()), (count, count));
    for writer in 0..writers {
        let own = format!("{writer}-");
        let order: Vec<(usize, usize)> = seen
            .iter()
            .filter_map(|(_, id)| id.strip_prefix(&own))
            .map(|rest| rest.split_once('-').expect("round and number"))
            .map(|(round, number)| (round.parse().expect("a number"), number.parse().expect("a number")))
            .collect();
        assert!(order.is_sorted_by(|a, b| a < b), "each writer's events are in its order");
    }
}

/// Prunes until nothing more goes.
fn prune(ground: &Ground<'_>, before: Timestamp, rows_max: u32) -> Vec<u64> {
    let mut steps = Vec::new();
    loop {
        let gone = ground.store.prune(before, rows_max).expect("pruned");
        if gone == 0 {
            return steps;
        }
        steps.push(gone);
        assert!(steps.len() <= 1_000, "there is always more");
    }
}

pub(super) fn what_is_still_named_is_not_pruned(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let parked = NewParked { subscription: None, reason: "no key".to_owned() };
    let events = [
        ground.event_to("queued", vec![ground.row("a")]),
        ground.event_to("retried", vec![ground.row("b")]),
        ground.event_to("dead", vec![ground.row("c")]),
        ground.event_to("done", vec![ground.row("d")]),
        NewEvent { parked: vec![parked], ..ground.event("parked") },
        ground.deferred("pending"),
        ground.event("unheard"),
        NewEvent { stream: None, ..ground.event_to("sent", vec![ground.row("e"), ground.row("f")]) },
        NewEvent { stream: None, ..ground.event_to("sent and done", vec![ground.row("d")]) },
    ];
    let (mut seqs, mut rows): (Vec<Seq>, Vec<RowMade>) = (Vec::new(), Vec::new());
    for appended in ground.append(&events) {
        let (seq, made) = new(appended);
        seqs.push(seq);
        rows.extend(made);
    }
    let of = |place: usize| ground.claim(rows[place]);
    let (retried, dead, ended) = (of(1), of(2), of(3));
    assert_eq!(ground.commit(&[part(&retried, vec![retry(rows[1].row, 1, HOUR)])]).committed, [true]);
    ground.kill(&dead, rows[2].row);
    let last = rows[rows.len() - 1].row;
    assert_eq!(ground.commit(&[part(&ended, vec![done(rows[3].row), done(last)])]).committed, [true]);
    // One of two rows of the same event is through.
    let one_of_two = of(4);
    assert_eq!(ground.commit(&[part(&one_of_two, vec![done(rows[4].row)])]).committed, [true]);
    harness.advance(HOUR);
    assert_eq!(ground.store.heartbeat(ground.boot, Load::default()), Ok(true));
    let cut = ground.store.now().expect("the clock");
    harness.advance(HOUR);
    let now = ground.store.now().expect("the clock");
    let young = ground.event("young");
    let young = NewEvent { event: Event { time: now, ..young.event }, ..young };
    let (young, _) = ground.append_new(young);

    assert_eq!(prune(&ground, Timestamp(0), 100), Vec::<u64>::new(), "nothing is that old");
    prune(&ground, cut, 100);
    let left = ground.store.events(&[seqs.clone(), vec![young]].concat()).expect("events");
    let left: BTreeSet<String> = left.iter().map(|stored| stored.event.id.to_string()).collect();
    let wanted = ["queued", "retried", "dead", "parked", "pending", "sent", "young"];
    assert_eq!(left, wanted.map(str::to_owned).into());
    let in_stream: Vec<String> = ground.stream_ids().into_iter().map(|(_, id)| id).collect();
    assert_eq!(in_stream, ["queued", "retried", "dead", "parked", "pending", "young"]);
    // Each still has its event.
    assert_eq!(ground.rows(rows[0])[0].event.as_ref().expect("came along").event, events[0].event);
    assert_eq!(
        ground.store.pending(ground.stream, 9, usize::MAX).expect("pending")[0].event.event,
        events[5].event
    );
    let letter = ground.store.dead_letters(ground.tenant, None, 0, 9).expect("letters").remove(0);
    let again = ground.store.redrive(ground.tenant, &[letter.id]).expect("redriven")[0];
    assert_eq!(ground.rows(again)[0].event.as_ref().expect("came along").event, events[2].event);
    // When the last name is gone, so is the event.
    let queued = ground.claim(rows[0]);
    assert_eq!(ground.commit(&[part(&queued, vec![done(rows[0].row)])]).committed, [true]);
    prune(&ground, cut, 100);
    assert_eq!(ground.store.events(&[seqs[0]]), Ok(vec![]));
}

pub(super) fn a_prune_is_bounded(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let events: Vec<NewEvent> = (0..250).map(|number| ground.event(&format!("e{number}"))).collect();
    ground.append(&events);
    let kept = ground.feed_one("a");
    harness.advance(HOUR);
    assert_eq!(ground.store.heartbeat(ground.boot, Load::default()), Ok(true));
    let cut = ground.store.now().expect("the clock");
    let steps = prune(&ground, cut, 100);
    assert!(steps.iter().all(|gone| *gone <= 100), "{steps:?}");
    assert_eq!(steps.iter().sum::<u64>(), 250);
    assert_eq!(ground.stream_ids().len(), 1);
    assert_eq!(ground.places(kept), [kept.row]);
}

pub(super) fn a_pruned_event_is_known_in_its_window(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let (first, _) = ground.append_new(ground.known("one", 1));
    harness.advance(WINDOW / 2);
    assert_eq!(ground.store.heartbeat(ground.boot, Load::default()), Ok(true));
    let now = || ground.store.now().expect("the clock");
    prune(&ground, now(), 100);
    assert_eq!(ground.store.events(&[first]), Ok(vec![]));
    assert_eq!(
        ground.append(&[ground.known("one", 1)]),
        [Appended::Duplicate { seq: first, fate: Fate::Done }]
    );
    assert_eq!(ground.append(&[ground.known("one", 2)]), [Appended::Conflict { seq: first }]);
    harness.advance(WINDOW);
    assert_eq!(ground.store.heartbeat(ground.boot, Load::default()), Ok(true));
    assert_eq!(prune(&ground, Timestamp(0), 100), [1], "what is known no more goes");
    let (second, _) = ground.append_new(ground.known("one", 2));
    assert!(second > first);
}

pub(super) fn the_dead_who_own_nothing_go(harness: &dyn Harness) {
    let ground = Ground::new(harness);
    let dead: Vec<Boot> =
        (0..4).map(|number| ground.store.register(&format!("w{number}")).expect("a boot")).collect();
    let rows = [ground.feed_one("a"), ground.feed_one("b")];
    assert_eq!(ground.claim_of(dead[0], &rows[..1]).len(), 1);
    assert!(ground.store.lease_stream(ground.stream, dead[1]).expect("an answer").is_some());
    let ticket = Ticket { boot: dead[2], lane: 0, number: 1 };
    ground.store.append(ticket, &[ground.event("one")]).expect("appended");
    harness.advance(HOUR);
    assert_eq!(ground.store.heartbeat(ground.boot, Load::default()), Ok(true));
    let mut killed = ground.store.judge(ground.boot, HOUR / 2).expect("judged");
    killed.sort_unstable();
    assert_eq!(killed, dead);
    prune(&ground, Timestamp(0), 100);
    let there = || -> BTreeSet<Boot> {
        ground.store.workers(100).expect("workers").into_iter().map(|worker| worker.boot).collect()
    };
    assert!(there().contains(&ground.boot) && !there().contains(&dead[2]) && !there().contains(&dead[3]));
    // What it owned is an orphan all the same.
    let taken = ground.claim(rows[0]);
    assert!(taken.was_orphan);
    assert!(ground.store.lease_stream(ground.stream, ground.boot).expect("an answer").is_some());
    prune(&ground, Timestamp(0), 100);
    assert_eq!(there(), [ground.boot].into());
    // A number that is gone is not given again, and its lanes stay closed.
    let reborn = ground.store.register("again").expect("a boot");
    assert!(reborn > dead[3]);
    let late = Ticket { number: 2, ..ticket };
    let answer = ground.store.append(late, &[ground.event("never")]);
    assert!(matches!(answer, Err(crate::StoreError::Fenced(_))), "{answer:?}");
    assert_eq!(ground.store.heartbeat(dead[2], Load::default()), Ok(false));
    let end = part(&taken, vec![done_with(rows[0].row, vec![ground.event("two")], Vec::new())]);
    assert_eq!(ground.commit(&[end]).committed, [true]);
}
