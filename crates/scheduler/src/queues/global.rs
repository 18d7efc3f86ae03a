//! Ready processes without a home: new work from outside, and the overflow of the other queues.
//!
//! A FIFO under a short lock, linked through the slots: it never fills and never allocates. It is
//! off the hot path (workers come here when they have nothing of their own, and each 61st tick), so
//! a lock is the simple right thing: under it a push writes two words and a pop walks at most the
//! batch it takes; chains are built before it and handed out after it.
//!
//! The lock orders everything: links, bodies, both ends. The length beside it is written under the
//! lock and read without, as a hint: who finds 0 may look away, and who must not miss a push fences
//! (see `queues`). A thread preempted under the lock delays others and hides nothing from them; one
//! preempted in `pop_batch` after it holds the batch it asked for.
//!
//! Memory: links live in the slots, which outlive the queue's users; the queue owns nothing.

use super::{Item, Line, Links, NONE};
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Relaxed};

/// The global queue.
#[derive(Debug)]
pub(crate) struct Global {
    ends: Mutex<Ends>,
    len: Line<AtomicUsize>,
}

/// Oldest and youngest item; both [`NONE`] when empty. The youngest item's link is not read.
#[derive(Debug, Default)]
struct Ends {
    oldest: Item,
    youngest: Item,
    len: usize,
}

impl Global {
    pub(crate) fn new() -> Self {
        Self { ends: Mutex::new(Ends::default()), len: Line(AtomicUsize::new(0)) }
    }

    /// Puts `item` behind all others.
    #[inline]
    pub(crate) fn push(&self, item: Item, links: &impl Links) {
        debug_assert_ne!(item, NONE, "no item was pushed");
        self.append(item, item, 1, links);
    }

    /// Puts `items`, in their order, behind all others in one piece; answers how many.
    pub(crate) fn push_chain(&self, items: impl IntoIterator<Item = Item>, links: &impl Links) -> usize {
        let mut items = items.into_iter();
        let Some(oldest) = items.next() else { return 0 };
        let mut youngest = oldest;
        let mut count = 1;
        for item in items {
            debug_assert_ne!(item, NONE, "no item was pushed");
            // Relaxed, as all links here: ours until the lock, the lock's after it.
            links.next(youngest).store(item, Relaxed);
            youngest = item;
            count += 1;
        }
        self.append(oldest, youngest, count, links);
        count
    }

    /// Takes up to `max` items and hands them to `f`, oldest first, outside of the lock; answers
    /// how many. `f` must not panic: what it has not seen would be lost.
    #[inline]
    pub(crate) fn pop_batch(&self, max: usize, links: &impl Links, f: impl FnMut(Item)) -> usize {
        if self.is_empty() {
            return 0;
        }
        let (oldest, count) = self.detach(self.ends.lock(), max, links);
        hand_out(oldest, count, links, f)
    }

    /// Takes the oldest item, unless the queue is empty or somebody holds the lock: for the tick
    /// that looks here while other work waits.
    #[inline]
    pub(crate) fn try_pop(&self, links: &impl Links) -> Option<Item> {
        if self.is_empty() {
            return None;
        }
        let (oldest, count) = self.detach(self.ends.try_lock()?, 1, links);
        (count == 1).then_some(oldest)
    }

    /// How many items wait. A hint.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Relaxed: nothing is read on the strength of it; the items are reached through the lock.
        self.len.load(Relaxed)
    }

    /// Whether no item waits. A hint.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn append(&self, oldest: Item, youngest: Item, count: usize, links: &impl Links) {
        let mut ends = self.ends.lock();
        if ends.len == 0 {
            ends.oldest = oldest;
        } else {
            links.next(ends.youngest).store(oldest, Relaxed);
        }
        ends.youngest = youngest;
        self.set_len(&mut ends, |len| len + count);
    }

    /// Cuts off the `max` oldest items, or all; their chain is then the caller's.
    fn detach(&self, mut ends: MutexGuard<'_, Ends>, max: usize, links: &impl Links) -> (Item, usize) {
        let count = ends.len.min(max);
        let oldest = ends.oldest;
        if count == ends.len {
            (ends.oldest, ends.youngest) = (NONE, NONE);
        } else {
            for _ in 0..count {
                ends.oldest = links.next(ends.oldest).load(Relaxed);
            }
        }
        self.set_len(&mut ends, |len| len - count);
        (oldest, count)
    }

    #[inline]
    fn set_len(&self, ends: &mut MutexGuard<'_, Ends>, change: impl FnOnce(usize) -> usize) {
        ends.len = change(ends.len);
        // Relaxed: a mirror for `len`; a plain store, for the lock is held.
        self.len.store(ends.len, Relaxed);
    }
}

fn hand_out(oldest: Item, count: usize, links: &impl Links, mut f: impl FnMut(Item)) -> usize {
    let mut item = oldest;
    for left in (0..count).rev() {
        // Read before `f`, which gives the item, and with it the link, away.
        let next = if left == 0 { NONE } else { links.next(item).load(Relaxed) };
        f(item);
        item = next;
    }
    count
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::super::testing::Slots;
    use super::*;

    fn popped(global: &Global, max: usize, slots: &Slots) -> Vec<Item> {
        let mut items = Vec::new();
        let count = global.pop_batch(max, slots, |item| items.push(item));
        assert_eq!(count, items.len());
        items
    }

    #[test]
    fn items_come_out_in_the_order_they_went_in() {
        let slots = Slots::new(7);
        let global = Global::new();
        assert_eq!(popped(&global, 4, &slots), []);
        global.push(2, &slots);
        assert_eq!(global.push_chain([5, 1, 7], &slots), 3);
        assert_eq!(global.push_chain([], &slots), 0);
        global.push(3, &slots);
        assert_eq!(global.len(), 5);
        assert_eq!(popped(&global, 0, &slots), []);
        assert_eq!(popped(&global, 2, &slots), [2, 5]);
        assert_eq!(global.try_pop(&slots), Some(1));
        assert_eq!(popped(&global, 9, &slots), [7, 3]);
        assert_eq!((global.try_pop(&slots), global.len()), (None, 0));
        global.push(4, &slots);
        assert_eq!(popped(&global, 1, &slots), [4]);
    }

    #[test]
    fn try_pop_does_not_wait_for_the_lock() {
        let slots = Slots::new(1);
        let global = Global::new();
        global.push(1, &slots);
        let held = global.ends.lock();
        assert_eq!(global.try_pop(&slots), None);
        drop(held);
        assert_eq!(global.try_pop(&slots), Some(1));
    }

    #[test]
    fn what_is_handed_out_may_be_pushed_again_at_once() {
        let slots = Slots::new(3);
        let global = Global::new();
        global.push_chain(1..=3, &slots);
        assert_eq!(global.pop_batch(3, &slots, |item| global.push(item, &slots)), 3);
        assert_eq!(popped(&global, 3, &slots), [1, 2, 3]);
    }

    #[test]
    fn every_item_is_taken_once_and_each_taker_sees_a_pusher_in_order() {
        const EACH: u32 = 60_000;
        const PUSHERS: u32 = 3;
        let slots = Slots::new(EACH * PUSHERS);
        let global = Global::new();
        let left = AtomicU32::new(EACH * PUSHERS);
        thread::scope(|scope| {
            for pusher in 0..PUSHERS {
                let (slots, global) = (&slots, &global);
                scope.spawn(move || {
                    for first in (pusher * EACH + 1..=(pusher + 1) * EACH).step_by(3) {
                        global.push(slots.put(first), slots);
                        global.push_chain((first + 1..first + 3).map(|item| slots.put(item)), slots);
                    }
                });
            }
            for taker in 0..2 {
                let (slots, global, left) = (&slots, &global, &left);
                scope.spawn(move || {
                    let mut last = [NONE; PUSHERS as usize];
                    let mut take = |item| {
                        let last = &mut last[((item - 1) / EACH) as usize];
                        assert!(*last < item, "item {item} came after {last}");
                        *last = item;
                        slots.take(item);
                    };
                    while left.load(Ordering::Relaxed) > 0 {
                        let count = if taker == 0 {
                            global.try_pop(slots).map(&mut take).map_or(0, |()| 1)
                        } else {
                            global.pop_batch(16, slots, &mut take)
                        };
                        left.fetch_sub(count as u32, Ordering::Relaxed);
                        if count == 0 {
                            thread::yield_now();
                        }
                    }
                });
            }
        });
        slots.assert_all_taken();
        assert_eq!(global.len(), 0);
    }
}
