//! The run-next place: nothing is lost, doubled or stale.

use loom::sync::Arc;

use super::{ModelInfo, check};
use crate::queues::next::NextPlace;
use crate::queues::testing::Slots;
use crate::queues::{Item, NONE};
use crate::sync::thread;

struct Shared {
    next: NextPlace,
    slots: Slots,
}

impl Shared {
    fn new(items: u32) -> Arc<Self> {
        Arc::new(Self { next: NextPlace::new(), slots: Slots::new(items) })
    }

    fn put(&self, item: Item) {
        self.take(self.next.put(self.slots.put(item)));
    }

    fn take(&self, item: Option<Item>) {
        item.into_iter().for_each(|item| self.slots.take(item));
    }
}

fn spawn_thief(shared: &Arc<Shared>) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || shared.take(shared.next.steal(|| true)))
}

#[test]
fn a_thief_meets_puts_and_takes() {
    let info = ModelInfo {
        name: "next::a_thief_meets_puts_and_takes",
        threads: 3,
        operations: "put, take, put, put, take | steal | steal",
        preemption_bound: Some(3),
    };
    check(info, || {
        let shared = Shared::new(3);
        let thieves = [spawn_thief(&shared), spawn_thief(&shared)];
        shared.put(1);
        shared.take(shared.next.take());
        shared.put(2);
        // Displaces, unless a thief was quicker.
        shared.put(3);
        shared.take(shared.next.take());
        thieves.into_iter().for_each(|thief| thief.join().unwrap());
        assert!(shared.next.is_empty());
        shared.slots.assert_all_taken();
    });
}

#[test]
fn an_item_that_came_back_is_taken_once() {
    let info = ModelInfo {
        name: "next::an_item_that_came_back_is_taken_once",
        threads: 2,
        operations: "put 1, take, put the same | steal",
        preemption_bound: None,
    };
    check(info, || {
        let shared = Shared::new(1);
        shared.next.put(shared.slots.put(1));
        let thief = spawn_thief(&shared);
        if let Some(item) = shared.next.take() {
            // Ran, was woken, and is queued again.
            shared.slots.take(item);
            shared.next.put(shared.slots.put(item));
        }
        thief.join().unwrap();
        shared.take(shared.next.take());
        shared.slots.assert_all_taken();
    });
}

/// Negative control: an owner that stores where it should swap overwrites what it did not see.
#[test]
#[should_panic(expected = "item 1 was taken twice")]
fn an_owner_that_takes_by_a_store_doubles() {
    let info = ModelInfo {
        name: "next::an_owner_that_takes_by_a_store_doubles",
        threads: 2,
        operations: "put 1, load, store none | steal",
        preemption_bound: None,
    };
    check(info, || {
        let shared = Arc::new((crate::sync::AtomicU32::new(1), std::sync::Mutex::new(Vec::new())));
        let thief = {
            let shared = shared.clone();
            thread::spawn(move || {
                use crate::sync::{Acquire, Relaxed};
                if shared.0.compare_exchange(1, NONE, Acquire, Relaxed).is_ok() {
                    shared.1.lock().unwrap().push(1);
                }
            })
        };
        let item = shared.0.load(crate::sync::Relaxed);
        if item != NONE {
            shared.0.store(NONE, crate::sync::Relaxed);
            shared.1.lock().unwrap().push(item);
        }
        thief.join().unwrap();
        assert!(shared.1.lock().unwrap().len() < 2, "item 1 was taken twice");
    });
}
