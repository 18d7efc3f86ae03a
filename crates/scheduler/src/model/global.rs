//! The global queue: nothing is lost or doubled, the length beside the lock misleads nobody.

use loom::sync::Arc;

use super::{ModelInfo, a_fenced_look_or_the_pusher_sees, check};
use crate::queues::global::Global;
use crate::queues::testing::Slots;
use crate::sync::thread;

#[test]
fn a_pusher_and_a_chain_meet_two_takers() {
    let info = ModelInfo {
        name: "global::a_pusher_and_a_chain_meet_two_takers",
        threads: 3,
        operations: "push 1, pop batch of 2 | push chain of 2 | try pop, pop batch of 2",
        preemption_bound: Some(3),
    };
    check(info, || {
        let shared = Arc::new((Global::new(), Slots::new(3)));
        let chain = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (global, slots) = &*shared;
                assert_eq!(global.push_chain([1, 2].map(|item| slots.put(item)), slots), 2);
            })
        };
        let taker = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (global, slots) = &*shared;
                global.try_pop(slots).into_iter().for_each(|item| slots.take(item));
                global.pop_batch(2, slots, |item| slots.take(item));
            })
        };
        let (global, slots) = &*shared;
        global.push(slots.put(3), slots);
        global.pop_batch(2, slots, |item| slots.take(item));
        chain.join().unwrap();
        taker.join().unwrap();
        while global.pop_batch(1, slots, |item| slots.take(item)) == 1 {}
        slots.assert_all_taken();
        assert_eq!(global.len(), 0);
    });
}

#[test]
fn a_fenced_look_misses_no_push() {
    let info = ModelInfo {
        name: "global::a_fenced_look_misses_no_push",
        threads: 2,
        operations: "flag, fence, look | push, fence, look at the flag",
        preemption_bound: None,
    };
    check(info, || {
        a_fenced_look_or_the_pusher_sees(
            (Global::new(), Slots::new(1)),
            true,
            |(global, slots)| global.push(1, slots),
            |(global, _)| global.is_empty(),
        );
    });
}
