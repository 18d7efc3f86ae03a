//! The letter box of a worker: anyone puts in, anyone takes out everything at once.
//!
//! # Protocol
//!
//! A Treiber stack (IBM RJ 5118, 1986) linked through the slots, its top and its length in one
//! word; the taker turns it round.
//!
//! ```text
//! [ count:32 | top:32 ]      top -> younger -> .. -> oldest -> NONE
//! ```
//!
//! | act | who | how |
//! | --- | --- | --- |
//! | push | anyone who holds the item | link it to `top`; CAS (count + 1, item) |
//! | take all | anyone | swap the word for 0; reverse the chain; hand it out oldest first |
//!
//! - *ABA does no harm.* A pusher that was preempted between its load and its CAS may find the same
//!   word again though all was taken and other items, or the same ones, were pushed. Its CAS is still
//!   right: it relies on nothing but the word, and the word says what is true now, that `top` is the
//!   top and `count` the length. ABA is the illness of a pop of one, which installs a link read
//!   earlier; there is none.
//! - *Two takers at once* get disjoint chains, for a swap hands one value of the word to one of them.
//!   Until it is swapped out a link is written by the pusher alone, after that by the taker alone, so
//!   links are never contended.
//! - *A preempted pusher hides nothing.* An item is in the queue, with all behind it, from its CAS
//!   on, and before that it is not. (In Vyukov's MPSC queue the swap of the head comes before the
//!   link: a producer stopped between the two hides every later item, also from a thief.)
//! - *A preempted taker* holds what it has swapped out and not handed on: at most [`INJECT_MAX`]
//!   items, the bound that makes a push answer [`Full`]. So `f` puts them where thieves reach them.
//!
//! Memory: links live in the slots, which outlive the queue's users; the queue owns nothing.

use super::{Item, Links, NONE};
use crate::sync::{Acquire, AtomicU64, Relaxed, Release};

/// Most items that wait in one inject queue: the most that a taker, preempted after its swap, keeps
/// from others.
pub(crate) const INJECT_MAX: u32 = 64;

/// The inject queue is full: the item goes to the global queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// The queue. `MAX` is [`INJECT_MAX`] but in models.
#[derive(Debug)]
pub(crate) struct Inject<const MAX: u32 = INJECT_MAX> {
    word: AtomicU64,
}

const COUNT_SHIFT: u32 = 32;

#[inline(always)]
fn top(word: u64) -> Item {
    word as Item
}

#[inline(always)]
fn count(word: u64) -> u32 {
    (word >> COUNT_SHIFT) as u32
}

impl<const MAX: u32> Inject<MAX> {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    /// Puts `item` behind all others; answers whether the queue was empty, that is, whether this
    /// push is the one that should wake somebody.
    ///
    /// # Errors
    /// [`Full`]: `item` is still the caller's.
    #[inline]
    pub(crate) fn push(&self, item: Item, links: &impl Links) -> Result<bool, Full> {
        debug_assert_ne!(item, NONE, "no item was pushed");
        let link = links.next(item);
        // Relaxed, here and on failure: a pusher follows no link, it copies the word.
        let mut word = self.word.load(Relaxed);
        loop {
            if count(word) >= MAX {
                return Err(Full);
            }
            // Relaxed: travels by the CAS.
            link.store(top(word), Relaxed);
            let next = (u64::from(count(word) + 1) << COUNT_SHIFT) | u64::from(item);
            // Release: pairs with the Acquire swap of `take_all`; the link and the body travel
            // across. Later pushes are read-modify-writes and keep the release sequence whole, so
            // the taker has the links of all. Model: model::inject::two_pushers_meet_two_takers.
            match self.word.compare_exchange_weak(word, next, Release, Relaxed) {
                Ok(_) => return Ok(word == 0),
                Err(current) => word = current,
            }
        }
    }

    /// Takes everything and hands it to `f`, oldest first; answers how many. `f` may push an item
    /// elsewhere or here again; it must not panic: what it has not seen would be lost.
    #[inline]
    pub(crate) fn take_all(&self, links: &impl Links, f: impl FnMut(Item)) -> usize {
        // Relaxed: spares an empty queue the write; a hint like `len`.
        if self.word.load(Relaxed) == 0 {
            return 0;
        }
        // Acquire: pairs with the Release CAS of `push`, see there.
        let word = self.word.swap(0, Acquire);
        Self::hand_out(word, links, f)
    }

    /// How many items wait. A hint.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Relaxed: nothing is read on the strength of it.
        count(self.word.load(Relaxed)) as usize
    }

    /// Whether no item waits. A hint.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn hand_out(word: u64, links: &impl Links, mut f: impl FnMut(Item)) -> usize {
        // Relaxed throughout: since the swap the chain is ours alone.
        let mut reversed = NONE;
        let mut item = top(word);
        while item != NONE {
            let link = links.next(item);
            let older = link.load(Relaxed);
            link.store(reversed, Relaxed);
            reversed = item;
            item = older;
        }
        let mut handed_out = 0;
        let mut item = reversed;
        while item != NONE {
            // Read before `f`, which gives the item, and with it the link, away.
            let next = links.next(item).load(Relaxed);
            f(item);
            handed_out += 1;
            item = next;
        }
        debug_assert_eq!(handed_out, count(word), "the count is that of the chain");
        handed_out as usize
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::super::testing::Slots;
    use super::*;

    fn taken<const MAX: u32>(inject: &Inject<MAX>, slots: &Slots) -> Vec<Item> {
        let mut items = Vec::new();
        let count = inject.take_all(slots, |item| items.push(item));
        assert_eq!(count, items.len());
        items
    }

    #[test]
    fn items_come_out_in_the_order_they_went_in() {
        let slots = Slots::new(4);
        let inject: Inject = Inject::new();
        assert_eq!(taken(&inject, &slots), []);
        assert_eq!(inject.push(3, &slots), Ok(true));
        assert_eq!(inject.push(1, &slots), Ok(false));
        assert_eq!(inject.push(4, &slots), Ok(false));
        assert_eq!(inject.len(), 3);
        assert_eq!(taken(&inject, &slots), [3, 1, 4]);
        assert_eq!((inject.len(), inject.push(1, &slots)), (0, Ok(true)));
        assert_eq!(taken(&inject, &slots), [1]);
    }

    #[test]
    fn a_full_queue_refuses_until_it_is_taken() {
        let slots = Slots::new(INJECT_MAX + 1);
        let inject: Inject = Inject::new();
        for item in 1..=INJECT_MAX {
            assert_eq!(inject.push(item, &slots), Ok(item == 1));
        }
        assert_eq!(inject.push(INJECT_MAX + 1, &slots), Err(Full));
        assert_eq!(taken(&inject, &slots), (1..=INJECT_MAX).collect::<Vec<_>>());
        assert_eq!(inject.push(INJECT_MAX + 1, &slots), Ok(true));
    }

    #[test]
    fn what_is_handed_out_may_be_pushed_again_at_once() {
        let slots = Slots::new(3);
        let inject: Inject = Inject::new();
        for item in 1..=3 {
            inject.push(item, &slots).expect("there is room");
        }
        let count = inject.take_all(&slots, |item| {
            inject.push(item, &slots).expect("there is room");
        });
        assert_eq!(count, 3);
        assert_eq!(taken(&inject, &slots), [1, 2, 3]);
    }

    #[test]
    fn every_item_is_taken_once_and_each_taker_sees_a_pusher_in_order() {
        const EACH: u32 = 100_000;
        const PUSHERS: u32 = 3;
        let slots = Slots::new(EACH * PUSHERS);
        let inject: Inject = Inject::new();
        let left = AtomicU32::new(EACH * PUSHERS);
        thread::scope(|scope| {
            for pusher in 0..PUSHERS {
                let (slots, inject) = (&slots, &inject);
                scope.spawn(move || {
                    for item in pusher * EACH + 1..=(pusher + 1) * EACH {
                        slots.put(item);
                        while inject.push(item, slots) == Err(Full) {
                            thread::yield_now();
                        }
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = [NONE; PUSHERS as usize];
                    while left.load(Ordering::Relaxed) > 0 {
                        let count = inject.take_all(&slots, |item| {
                            let last = &mut last[((item - 1) / EACH) as usize];
                            assert!(*last < item, "item {item} came after {last}");
                            *last = item;
                            slots.take(item);
                        });
                        assert!(count <= INJECT_MAX as usize);
                        left.fetch_sub(count as u32, Ordering::Relaxed);
                        if count == 0 {
                            thread::yield_now();
                        }
                    }
                });
            }
        });
        slots.assert_all_taken();
    }
}
