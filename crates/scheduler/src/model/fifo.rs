//! The FIFO beside the deque: nothing is lost, doubled or stale.

use loom::sync::Arc;

use super::{ModelInfo, a_fenced_look_or_the_pusher_sees, check};
use crate::queues::fifo::Fifo;
use crate::queues::testing::Slots;
use crate::queues::{Item, NONE, STEAL_MAX, Steal};
use crate::sync::thread;

struct Shared<const CAP: usize> {
    fifo: Fifo<CAP>,
    slots: Slots,
}

impl<const CAP: usize> Shared<CAP> {
    /// The counters begin where they wrap.
    fn new(items: u32) -> Arc<Self> {
        Arc::new(Self { fifo: Fifo::new_at(u32::MAX - 1), slots: Slots::new(items) })
    }

    fn steal(&self) {
        let mut buffer = [NONE; STEAL_MAX];
        if let Steal::Taken(count) = self.fifo.steal(&mut buffer) {
            assert!(buffer[..count].is_sorted(), "out of order: {:?}", &buffer[..count]);
            buffer[..count].iter().for_each(|&item| self.slots.take(item));
        }
        assert!(self.fifo.len() <= CAP, "a length of {}", self.fifo.len());
    }

    fn take(&self, item: Option<Item>) {
        item.into_iter().for_each(|item| self.slots.take(item));
    }

    fn assert_all_taken_with_the_rest(&self) {
        while let Some(item) = self.fifo.take_oldest() {
            self.slots.take(item);
        }
        self.slots.assert_all_taken();
    }
}

fn spawn_thief<const CAP: usize>(shared: &Arc<Shared<CAP>>) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || shared.steal())
}

#[test]
fn a_claim_of_half_meets_pushes_and_a_pop() {
    let info = ModelInfo {
        name: "fifo::a_claim_of_half_meets_pushes_and_a_pop",
        threads: 2,
        operations: "push 1, push 2 at once, pop 1, push 2 (cells used again) | steal half, steal half",
        preemption_bound: Some(3),
    };
    check(info, || {
        let shared = Shared::<4>::new(5);
        let thief = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.steal();
                shared.steal();
            })
        };
        // SAFETY: the only handle.
        let owner = unsafe { shared.fifo.owner() };
        owner.push(shared.slots.put(1)).unwrap();
        assert_eq!(owner.push_batch(&[shared.slots.put(2), shared.slots.put(3)]), 2);
        shared.take(owner.pop());
        owner.push(shared.slots.put(4)).unwrap();
        owner.push(shared.slots.put(5)).unwrap();
        thief.join().unwrap();
        shared.assert_all_taken_with_the_rest();
    });
}

#[test]
fn two_thieves_and_the_owner_share() {
    let info = ModelInfo {
        name: "fifo::two_thieves_and_the_owner_share",
        threads: 3,
        operations: "push 1, pop 1, push 2 | steal half | steal half",
        preemption_bound: Some(2),
    };
    check(info, || {
        let shared = Shared::<2>::new(3);
        let thieves = [spawn_thief(&shared), spawn_thief(&shared)];
        // SAFETY: the only handle.
        let owner = unsafe { shared.fifo.owner() };
        owner.push(shared.slots.put(1)).unwrap();
        shared.take(owner.pop());
        owner.push(shared.slots.put(2)).unwrap();
        owner.push(shared.slots.put(3)).unwrap();
        thieves.into_iter().for_each(|thief| thief.join().unwrap());
        shared.assert_all_taken_with_the_rest();
    });
}

#[test]
fn a_cell_used_again_is_never_mistaken() {
    let info = ModelInfo {
        name: "fifo::a_cell_used_again_is_never_mistaken",
        threads: 3,
        operations: "push 2, (pop 1, push 1) twice | steal half | steal half",
        preemption_bound: Some(2),
    };
    check(info, || {
        let shared = Shared::<2>::new(4);
        // SAFETY: the only handle.
        let owner = unsafe { shared.fifo.owner() };
        owner.push(shared.slots.put(1)).unwrap();
        owner.push(shared.slots.put(2)).unwrap();
        let thieves = [spawn_thief(&shared), spawn_thief(&shared)];
        for item in 3..=4 {
            shared.take(owner.pop());
            owner.push(shared.slots.put(item)).unwrap();
        }
        thieves.into_iter().for_each(|thief| thief.join().unwrap());
        shared.assert_all_taken_with_the_rest();
    });
}

#[test]
fn a_full_queue_sheds_half_beside_a_thief() {
    let info = ModelInfo {
        name: "fifo::a_full_queue_sheds_half_beside_a_thief",
        threads: 2,
        operations: "push until full, drain half, push 1, pop 1 | steal half, steal half",
        preemption_bound: Some(3),
    };
    check(info, || {
        let shared = Shared::<4>::new(5);
        // SAFETY: the only handle.
        let owner = unsafe { shared.fifo.owner() };
        for item in 1..=4 {
            owner.push(shared.slots.put(item)).unwrap();
        }
        let thief = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.steal();
                shared.steal();
            })
        };
        if let Err(item) = owner.push(shared.slots.put(5)) {
            owner.drain_half(|old| shared.slots.take(old));
            owner.push(item).unwrap();
        }
        shared.take(owner.pop());
        thief.join().unwrap();
        shared.assert_all_taken_with_the_rest();
    });
}

#[test]
fn a_fenced_look_misses_no_push() {
    let info = ModelInfo {
        name: "fifo::a_fenced_look_misses_no_push",
        threads: 2,
        operations: "flag, fence, look | push, fence, look at the flag",
        preemption_bound: None,
    };
    check(info, || {
        a_fenced_look_or_the_pusher_sees(
            Fifo::<2>::new(),
            true,
            // SAFETY: the only handle.
            |fifo| unsafe { fifo.owner() }.push(1).unwrap(),
            |fifo| fifo.is_empty(),
        );
    });
}
