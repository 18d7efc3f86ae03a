//! The inject queue: many put in, several take out at once, nothing is lost, doubled or hidden.

use loom::sync::Arc;

use super::{ModelInfo, a_fenced_look_or_the_pusher_sees, check};
use crate::queues::Item;
use crate::queues::inject::{Full, Inject};
use crate::queues::testing::Slots;
use crate::sync::thread;

struct Shared<const MAX: u32> {
    inject: Inject<MAX>,
    slots: Slots,
}

impl<const MAX: u32> Shared<MAX> {
    fn new(items: u32) -> Arc<Self> {
        Arc::new(Self { inject: Inject::new(), slots: Slots::new(items) })
    }

    fn push(&self, item: Item) -> Result<bool, Full> {
        self.inject.push(self.slots.put(item), &self.slots)
    }

    fn take_all(&self) -> Vec<Item> {
        let mut items = Vec::new();
        let count = self.inject.take_all(&self.slots, |item| {
            self.slots.take(item);
            items.push(item);
        });
        assert_eq!(count, items.len());
        assert!(count <= MAX as usize, "{count} items in a queue of {MAX}");
        items
    }
}

#[test]
fn two_pushers_meet_two_takers() {
    let info = ModelInfo {
        name: "inject::two_pushers_meet_two_takers",
        threads: 4,
        operations: "take all, take all | push 2 | push 1 | take all",
        preemption_bound: Some(3),
    };
    check(info, || {
        let shared = Shared::<3>::new(3);
        let pushers = [&[1, 2][..], &[3]].map(|items| {
            let shared = shared.clone();
            thread::spawn(move || items.iter().filter(|&&item| shared.push(item).unwrap()).count())
        });
        let taker = {
            let shared = shared.clone();
            thread::spawn(move || shared.take_all())
        };
        let mine = shared.take_all();
        let fillings: usize = pushers.into_iter().map(|pusher| pusher.join().unwrap()).sum();
        let others = taker.join().unwrap();
        let rest = shared.take_all();
        for items in [&mine, &others, &rest] {
            let place = |item| items.iter().position(|&other| other == item);
            if let (Some(first), Some(second)) = (place(1), place(2)) {
                assert!(first < second, "one pusher's items changed places: {items:?}");
            }
        }
        // Each time the queue leaves empty, one pusher hears of it: no take without a wake.
        let takes = [mine, others, rest].iter().filter(|items| !items.is_empty()).count();
        assert_eq!(fillings, takes, "a queue was filled and nobody was told");
        shared.slots.assert_all_taken();
    });
}

#[test]
fn a_refused_item_stays_with_its_pusher() {
    let info = ModelInfo {
        name: "inject::a_refused_item_stays_with_its_pusher",
        threads: 3,
        operations: "take all, take all | push 2 | push 1, all into a queue of 1",
        preemption_bound: None,
    };
    check(info, || {
        let shared = Shared::<1>::new(3);
        let pushers = [&[1, 2][..], &[3]].map(|items| {
            let shared = shared.clone();
            thread::spawn(move || {
                for &item in items {
                    if shared.push(item) == Err(Full) {
                        shared.slots.take(item);
                    }
                }
            })
        });
        shared.take_all();
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        shared.take_all();
        shared.slots.assert_all_taken();
    });
}

#[test]
fn a_pusher_may_find_the_same_word_again() {
    let info = ModelInfo {
        name: "inject::a_pusher_may_find_the_same_word_again",
        threads: 3,
        operations: "push 1, take all, push the same again | push 1 | push 1, take all",
        preemption_bound: Some(3),
    };
    check(info, || {
        let inject = Arc::new((Inject::<4>::new(), Slots::new(3)));
        inject.0.push(1, &inject.1).unwrap();
        let pusher = {
            let inject = inject.clone();
            thread::spawn(move || {
                inject.0.push(2, &inject.1).unwrap();
            })
        };
        let other = {
            let inject = inject.clone();
            thread::spawn(move || {
                inject.0.push(3, &inject.1).unwrap();
                let mut items = Vec::new();
                inject.0.take_all(&inject.1, |item| items.push(item));
                items
            })
        };
        let mut items = Vec::new();
        inject.0.take_all(&inject.1, |item| items.push(item));
        // What came out goes in again: the word may be what the pusher has loaded.
        for item in items {
            inject.0.push(item, &inject.1).unwrap();
        }
        pusher.join().unwrap();
        let mut items = other.join().unwrap();
        inject.0.take_all(&inject.1, |item| items.push(item));
        items.sort_unstable();
        assert_eq!(items, [1, 2, 3]);
    });
}

#[test]
fn a_fenced_look_misses_no_push() {
    let info = ModelInfo {
        name: "inject::a_fenced_look_misses_no_push",
        threads: 2,
        operations: "flag, fence, look | push, fence, look at the flag",
        preemption_bound: None,
    };
    check(info, || {
        a_fenced_look_or_the_pusher_sees(
            (Inject::<4>::new(), Slots::new(1)),
            true,
            |(inject, slots)| assert_eq!(inject.push(1, slots), Ok(true)),
            |(inject, _)| inject.is_empty(),
        );
    });
}
