//! The deque: nothing is lost, doubled or stale; and two deques on which something is.

use loom::sync::Arc;

use super::{ModelInfo, a_fenced_look_or_the_pusher_sees, check};
use crate::queues::deque::Deque;
use crate::queues::testing::Slots;
use crate::queues::{Item, NONE, STEAL_MAX, Steal};
use crate::sync::thread;

struct Shared<const CAP: usize> {
    deque: Deque<CAP>,
    slots: Slots,
}

impl<const CAP: usize> Shared<CAP> {
    /// The indices begin where the tail carries into the version, and the version wraps.
    fn new(items: u32) -> Arc<Self> {
        Arc::new(Self { deque: Deque::new_at(u16::MAX), slots: Slots::new(items) })
    }

    fn steal(&self) {
        let mut buffer = [NONE; STEAL_MAX];
        if let Steal::Taken(count) = self.deque.steal(&mut buffer) {
            buffer[..count].iter().for_each(|&item| self.slots.take(item));
        }
    }

    fn take(&self, item: Option<Item>) {
        item.into_iter().for_each(|item| self.slots.take(item));
    }

    fn assert_all_taken_with_the_rest(&self) {
        while let Some(item) = self.deque.take_oldest() {
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
fn a_claim_of_half_meets_pops_and_a_push() {
    let info = ModelInfo {
        name: "deque::a_claim_of_half_meets_pops_and_a_push",
        threads: 2,
        operations: "push 4, pop 3, push 1 | steal half",
        preemption_bound: None,
    };
    check(info, || {
        let shared = Shared::<4>::new(5);
        // SAFETY: the only handle.
        let owner = unsafe { shared.deque.owner() };
        for item in 1..=4 {
            owner.push(shared.slots.put(item)).unwrap();
        }
        let thief = spawn_thief(&shared);
        for _ in 0..3 {
            shared.take(owner.pop());
        }
        owner.push(shared.slots.put(5)).unwrap();
        thief.join().unwrap();
        shared.assert_all_taken_with_the_rest();
    });
}

#[test]
fn the_body_is_whole_for_the_thief() {
    let info = ModelInfo {
        name: "deque::the_body_is_whole_for_the_thief",
        threads: 3,
        operations: "push 1, push 2 at once, pop 1 | steal half | steal half",
        preemption_bound: Some(3),
    };
    check(info, || {
        let shared = Shared::<4>::new(3);
        // SAFETY: the only handle.
        let owner = unsafe { shared.deque.owner() };
        let thieves = [spawn_thief(&shared), spawn_thief(&shared)];
        owner.push(shared.slots.put(1)).unwrap();
        assert_eq!(owner.push_batch(&[shared.slots.put(2), shared.slots.put(3)]), 2);
        shared.take(owner.pop());
        thieves.into_iter().for_each(|thief| thief.join().unwrap());
        shared.assert_all_taken_with_the_rest();
    });
}

#[test]
fn two_thieves_and_the_owner_share() {
    let info = ModelInfo {
        name: "deque::two_thieves_and_the_owner_share",
        threads: 3,
        operations: "push 3, pop 1, push 1, take oldest, pop 1 | steal half | steal half",
        preemption_bound: Some(3),
    };
    check(info, || {
        let shared = Shared::<4>::new(4);
        // SAFETY: the only handle.
        let owner = unsafe { shared.deque.owner() };
        for item in 1..=3 {
            owner.push(shared.slots.put(item)).unwrap();
        }
        let thieves = [spawn_thief(&shared), spawn_thief(&shared)];
        shared.take(owner.pop());
        owner.push(shared.slots.put(4)).unwrap();
        shared.take(owner.take_oldest());
        shared.take(owner.pop());
        thieves.into_iter().for_each(|thief| thief.join().unwrap());
        shared.assert_all_taken_with_the_rest();
    });
}

#[test]
fn a_cell_used_again_is_never_mistaken() {
    let info = ModelInfo {
        name: "deque::a_cell_used_again_is_never_mistaken",
        threads: 3,
        operations: "push 2, pop 1, push 1, take oldest, push 1 (all cells new) | steal half | steal half",
        preemption_bound: Some(3),
    };
    check(info, || {
        let shared = Shared::<2>::new(4);
        // SAFETY: the only handle.
        let owner = unsafe { shared.deque.owner() };
        owner.push(shared.slots.put(1)).unwrap();
        owner.push(shared.slots.put(2)).unwrap();
        let thieves = [spawn_thief(&shared), spawn_thief(&shared)];
        shared.take(owner.pop());
        owner.push(shared.slots.put(3)).unwrap();
        shared.take(owner.take_oldest());
        owner.push(shared.slots.put(4)).unwrap();
        thieves.into_iter().for_each(|thief| thief.join().unwrap());
        shared.assert_all_taken_with_the_rest();
    });
}

#[test]
fn a_full_deque_sheds_half_beside_a_thief() {
    let info = ModelInfo {
        name: "deque::a_full_deque_sheds_half_beside_a_thief",
        threads: 2,
        operations: "push until full, drain half, push 1, pop 1 | steal half, steal half",
        preemption_bound: None,
    };
    check(info, || {
        let shared = Shared::<4>::new(5);
        // SAFETY: the only handle.
        let owner = unsafe { shared.deque.owner() };
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
        name: "deque::a_fenced_look_misses_no_push",
        threads: 2,
        operations: "flag, fence, look | push, fence, look at the flag",
        preemption_bound: None,
    };
    check(info, || {
        a_fenced_look_or_the_pusher_sees(
            Deque::<2>::new(),
            true,
            // SAFETY: the only handle.
            |deque| unsafe { deque.owner() }.push(1).unwrap(),
            |deque| deque.is_empty(),
        );
    });
}

/// Negative control: without the fences both sides may miss the other.
#[test]
#[should_panic(expected = "an item waits and everybody sleeps")]
fn an_unfenced_look_misses_a_push() {
    let info = ModelInfo {
        name: "deque::an_unfenced_look_misses_a_push",
        threads: 2,
        operations: "flag, look | push, look at the flag",
        preemption_bound: None,
    };
    check(info, || {
        a_fenced_look_or_the_pusher_sees(
            Deque::<2>::new(),
            false,
            // SAFETY: the only handle.
            |deque| unsafe { deque.owner() }.push(1).unwrap(),
            |deque| deque.is_empty(),
        );
    });
}

fn assert_each_taken_once(mut taken: Vec<Item>, items: Item) {
    taken.sort_unstable();
    for item in 1..=items {
        let times = taken.iter().filter(|&&other| other == item).count();
        assert_ne!(times, 2, "item {item} was taken twice");
        assert_ne!(times, 0, "item {item} was lost");
    }
    assert_eq!(taken.len(), items as usize, "more was taken than pushed: {taken:?}");
}

/// A thief sleeps between load and CAS while the owner pops and pushes as in production, on a
/// version of `VERSION_BITS`.
fn pop_and_push_during_a_claim<const VERSION_BITS: u32>(name: &'static str) {
    let info = ModelInfo {
        name,
        threads: 2,
        operations: "push 1, pop 1, push 1 | steal half",
        preemption_bound: None,
    };
    check(info, || {
        let deque = Arc::new(Deque::<2, VERSION_BITS>::new());
        // SAFETY: the only handle.
        let owner = unsafe { deque.owner() };
        owner.push(1).unwrap();
        let thief = {
            let deque = deque.clone();
            thread::spawn(move || {
                let mut buffer = [NONE; STEAL_MAX];
                match deque.steal(&mut buffer) {
                    Steal::Taken(count) => buffer[..count].to_vec(),
                    _ => Vec::new(),
                }
            })
        };
        let mut taken: Vec<Item> = owner.pop().into_iter().collect();
        owner.push(2).unwrap();
        taken.extend(thief.join().unwrap());
        taken.extend(std::iter::from_fn(|| owner.pop()));
        assert_each_taken_once(taken, 2);
    });
}

#[test]
fn a_version_of_two_bits_outlasts_two_acts() {
    pop_and_push_during_a_claim::<2>("deque::a_version_of_two_bits_outlasts_two_acts");
}

/// Negative control: ABA of the indices.
#[test]
#[should_panic(expected = "item 1 was taken twice")]
fn without_a_version_a_claim_is_fooled() {
    pop_and_push_during_a_claim::<0>("deque::without_a_version_a_claim_is_fooled");
}

/// Negative control: the bound on the version is what it is said to be.
#[test]
#[should_panic(expected = "item 1 was taken twice")]
fn a_version_of_one_bit_is_fooled_by_two_acts() {
    pop_and_push_during_a_claim::<1>("deque::a_version_of_one_bit_is_fooled_by_two_acts");
}

/// The deque of Chase and Lev with the orderings of Lê et al., and a claim of half in one CAS.
mod naive {
    use super::Item;
    use crate::sync::{Acquire, AtomicU32, Relaxed, Release, SeqCst, fence};

    pub(super) struct ChaseLev {
        top: AtomicU32,
        bottom: AtomicU32,
        cells: [AtomicU32; 8],
    }

    impl ChaseLev {
        pub(super) fn new() -> Self {
            Self {
                top: AtomicU32::new(0),
                bottom: AtomicU32::new(0),
                cells: std::array::from_fn(|_| AtomicU32::new(0)),
            }
        }

        pub(super) fn push(&self, item: Item) {
            let bottom = self.bottom.load(Relaxed);
            self.cells[bottom as usize % 8].store(item, Relaxed);
            self.bottom.store(bottom.wrapping_add(1), Release);
        }

        pub(super) fn pop(&self) -> Option<Item> {
            let bottom = self.bottom.load(Relaxed).wrapping_sub(1);
            self.bottom.store(bottom, Relaxed);
            fence(SeqCst);
            let top = self.top.load(Relaxed);
            let left = bottom.wrapping_sub(top).cast_signed();
            if left < 0 {
                self.bottom.store(bottom.wrapping_add(1), Relaxed);
                return None;
            }
            let item = self.cells[bottom as usize % 8].load(Relaxed);
            if left > 0 {
                // The fault: more than one is left, so no thief can be at this one. One that claims
                // several can.
                return Some(item);
            }
            let won = self.top.compare_exchange(top, top.wrapping_add(1), SeqCst, Relaxed).is_ok();
            self.bottom.store(bottom.wrapping_add(1), Relaxed);
            won.then_some(item)
        }

        /// Takes `share` of the items there are, in one CAS.
        pub(super) fn claim(&self, share: impl FnOnce(u32) -> u32) -> Vec<Item> {
            let top = self.top.load(Acquire);
            fence(SeqCst);
            let len = self.bottom.load(Acquire).wrapping_sub(top).cast_signed().max(0);
            let count = share(len.cast_unsigned());
            let items: Vec<Item> = (0..count)
                .map(|offset| self.cells[top.wrapping_add(offset) as usize % 8].load(Relaxed))
                .collect();
            match self.top.compare_exchange(top, top.wrapping_add(count), SeqCst, Relaxed) {
                Ok(_) if count > 0 => items,
                _ => Vec::new(),
            }
        }
    }
}

/// Four items; the thief claims while the owner pops three, then pushes a fifth.
fn a_thief_claims_from_chase_lev(name: &'static str, share: fn(u32) -> u32) {
    let info =
        ModelInfo { name, threads: 2, operations: "push 4, pop 3, push 1 | claim", preemption_bound: None };
    check(info, move || {
        let deque = Arc::new(naive::ChaseLev::new());
        (1..=4).for_each(|item| deque.push(item));
        let thief = {
            let deque = deque.clone();
            thread::spawn(move || deque.claim(share))
        };
        let mut taken: Vec<Item> = (0..3).filter_map(|_| deque.pop()).collect();
        deque.push(5);
        taken.extend(thief.join().unwrap());
        taken.extend(std::iter::from_fn(|| deque.pop()));
        assert_each_taken_once(taken, 5);
    });
}

/// The control of the control: with claims of one item the naive deque is right.
#[test]
fn chase_lev_is_right_while_a_thief_takes_one() {
    a_thief_claims_from_chase_lev("deque::chase_lev_is_right_while_a_thief_takes_one", |len| len.min(1));
}

/// Negative control: the thief has read `bottom` = 4 and claims items 1 and 2 after the owner has
/// popped 4, 3 and 2 and pushed 5 in the place of 2.
#[test]
#[should_panic(expected = "item 2 was taken twice")]
fn chase_lev_doubles_an_item_when_a_thief_takes_half() {
    a_thief_claims_from_chase_lev("deque::chase_lev_doubles_an_item_when_a_thief_takes_half", |len| {
        len - len / 2
    });
}
