//! The ring of trace events: a copy beside a writer holds whole events, in their order.

use loom::sync::Arc;

use super::{ModelInfo, check};
use crate::sync::thread;
use crate::trace::ring::{Copied, Ring, WORDS};

const CAPACITY: usize = 2;
const EVENTS: u64 = 4;

/// A writer fills a small ring twice, a reader copies it meanwhile.
fn a_reader_meets_a_writer(info: ModelInfo, copy: fn(&Ring) -> Copied) {
    check(info, move || {
        let ring = Arc::new(Ring::new(CAPACITY));
        let writer = {
            let ring = ring.clone();
            thread::spawn(move || (1..=EVENTS).for_each(|number| ring.push([number; WORDS])))
        };
        let copied = copy(&ring);
        assert!(copied.events.len() <= CAPACITY);
        for (at, event) in copied.events.iter().enumerate() {
            let number = copied.lost + at as u64 + 1;
            assert_eq!(*event, [number; WORDS], "event {number} is torn");
        }
        writer.join().unwrap();
        // Nobody writes any more: the newest are there, and the rest is counted.
        let copied = copy(&ring);
        assert_eq!((copied.lost, copied.events.len()), (EVENTS - CAPACITY as u64, CAPACITY));
    });
}

#[test]
fn a_copied_event_is_whole() {
    let info = ModelInfo {
        name: "trace::a_copied_event_is_whole",
        threads: 2,
        operations: "copy; after the join copy | push, 4 times into 2 places",
        preemption_bound: Some(3),
    };
    a_reader_meets_a_writer(info, Ring::copy);
}

/// Negative control: a reader that does not look what was begun while it copied.
#[test]
#[should_panic(expected = "is torn")]
fn without_a_second_look_an_event_is_torn() {
    let info = ModelInfo {
        name: "trace::without_a_second_look_an_event_is_torn",
        threads: 2,
        operations: "copy; after the join copy | push, 4 times into 2 places",
        preemption_bound: Some(3),
    };
    a_reader_meets_a_writer(info, Ring::copy_without_a_second_look);
}

/// Negative control: a reader that looks, but whose fence is missing.
#[test]
#[should_panic(expected = "is torn")]
fn without_a_fence_an_event_is_torn() {
    let info = ModelInfo {
        name: "trace::without_a_fence_an_event_is_torn",
        threads: 2,
        operations: "copy; after the join copy | push, 4 times into 2 places",
        preemption_bound: Some(3),
    };
    a_reader_meets_a_writer(info, Ring::copy_without_a_fence);
}
