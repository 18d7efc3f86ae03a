//! The old end of a worker: processes that have had their turn wait here behind all others.
//! One producer, the owner; anyone takes, oldest first, several in one claim.
//!
//! # Protocol
//!
//! `head` and `tail` are counters that only rise (and wrap); the items are
//! `cells[head % CAP] .. cells[tail % CAP]`. The scheme is that of the run queue of the Go runtime
//! (`runqput`, `runqget`, `runqgrab` in `runtime/proc.go`).
//!
//! | act | who | how |
//! | --- | --- | --- |
//! | push n | owner | write cells, then store tail + n |
//! | take n | anyone | load head and tail; copy cells; CAS head + n |
//!
//! No version is needed where the deque has one. Here nobody takes from the young end, so an index
//! below `tail` stands for one item for good, and only a rise of `head` past it frees its cell. A
//! CAS that finds `head` where it was loaded proves that no item of the copy was taken between
//! (ABA: `head` would have to rise by 2^32 within one attempt, 43 s at 10 ns each, and stop there),
//! and:
//!
//! 1. *The copy holds the items.* They lie below the `tail` that we read, whose Acquire load pairs
//!    with the Release store of the push: cells and bodies are whole.
//! 2. *The copy holds nothing later.* The owner writes over the cell of item i only after an
//!    Acquire load of `head` has shown it a value above i. While `head` was still at or below i, as
//!    our CAS found it, no such value existed; the one that first shows it is ours, a Release with
//!    our reads before it, or follows it in its release sequence, for `head` moves by
//!    read-modify-write alone.
//! 3. *A pair of indices that never stood together does no harm.* The two loads have no order. If
//!    `tail` is the older, it may lie below `head`; if `head` is, `tail` may lie more than CAP above:
//!    either distance, unsigned, exceeds CAP, and we answer that others were quicker. Within CAP all
//!    is well: `tail` was true once, so what is below it was pushed, and the CAS finds out whether
//!    `head` is true still.
//!
//! loom runs 1 and 3; of 2 it cannot show the half that needs the Release of the CAS, see `deque`.
//!
//! # Progress and memory
//!
//! A failed CAS means that another took: lock-free; the owner's `pop` ends after at most CAP
//! failures, for meanwhile nobody pushes. What a preempted taker keeps to itself, and what memory
//! is kept alive, is as for the deque.

use std::marker::PhantomData;
use std::ops::Deref;

use super::{Item, Line, NONE, OneOwner, STEAL_ATTEMPTS, STEAL_MAX, Steal, share};
use crate::sync::{Acquire, AtomicU32, Relaxed, Release};

/// The queue. `CAP` is a power of two, at most 2^31.
#[derive(Debug)]
pub(crate) struct Fifo<const CAP: usize> {
    head: Line<AtomicU32>,
    tail: Line<AtomicU32>,
    cells: [AtomicU32; CAP],
    one_owner: OneOwner,
}

/// The right to push to a queue. It stays on the thread that made it.
pub(crate) struct Owner<'a, const CAP: usize> {
    fifo: &'a Fifo<CAP>,
    stays_on_its_thread: PhantomData<*mut ()>,
}

impl<const CAP: usize> Fifo<CAP> {
    const MASK: u32 = {
        assert!(CAP.is_power_of_two() && CAP <= 1 << 31, "CAP is a power of two up to 2^31");
        CAP as u32 - 1
    };

    pub(crate) fn new() -> Self {
        Self::at(0)
    }

    /// An empty queue whose counters begin at `start`.
    #[cfg(test)]
    pub(crate) fn new_at(start: u32) -> Self {
        Self::at(start)
    }

    fn at(start: u32) -> Self {
        Self {
            head: Line(AtomicU32::new(start)),
            tail: Line(AtomicU32::new(start)),
            cells: std::array::from_fn(|_| AtomicU32::new(NONE)),
            one_owner: OneOwner::default(),
        }
    }

    /// Makes the owner handle.
    ///
    /// # Safety
    /// There is at most one handle at a time. All that was done through an earlier one, on whatever
    /// thread, happens before this call.
    #[inline]
    pub(crate) unsafe fn owner(&self) -> Owner<'_, CAP> {
        self.one_owner.enter();
        Owner { fifo: self, stays_on_its_thread: PhantomData }
    }

    /// How many items wait. A hint, and never more than CAP.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Relaxed: nothing is read on the strength of it. Two loads are no snapshot: without an
        // order between them `tail` may even be the older, hence the sign.
        let head = self.head.load(Relaxed);
        let tail = self.tail.load(Relaxed);
        (tail.wrapping_sub(head).cast_signed().max(0) as usize).min(CAP)
    }

    /// Where it begins: moved by whoever takes the oldest. A hint.
    pub(crate) fn front(&self) -> u32 {
        self.head.load(Relaxed)
    }

    /// Whether no item waits. A hint.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the older half, rounded up, at most [`STEAL_MAX`], in one claim; oldest first.
    #[inline]
    pub(crate) fn steal(&self, buffer: &mut [Item; STEAL_MAX]) -> Steal {
        for _ in 0..STEAL_ATTEMPTS {
            match self.claim(share, buffer) {
                Steal::Contended => crate::sync::spin_loop(),
                answer => return answer,
            }
        }
        Steal::Contended
    }

    /// Takes the oldest item. Goes on until it has one or the queue is empty; who owns the queue
    /// calls `Owner::pop`. For the models and tests: a worker takes from others by [`Self::steal`].
    #[cfg(test)]
    pub(crate) fn take_oldest(&self) -> Option<Item> {
        let mut buffer = [NONE];
        loop {
            match self.claim(|_| 1, &mut buffer) {
                Steal::Taken(_) => return Some(buffer[0]),
                Steal::Empty => return None,
                Steal::Contended => crate::sync::spin_loop(),
            }
        }
    }

    /// One attempt to take the `count(len)` oldest items.
    #[inline]
    fn claim(&self, count: impl FnOnce(usize) -> usize, buffer: &mut [Item]) -> Steal {
        // Relaxed: the CAS finds out whether it is true; 3 at the top.
        // Model: model::fifo::two_thieves_and_the_owner_share.
        let head = self.head.load(Relaxed);
        // Acquire: pairs with the Release store of `Owner::publish`; cells and bodies travel
        // across (1 at the top). Model: model::fifo::a_claim_of_half_meets_pushes_and_a_pop.
        let tail = self.tail.load(Acquire);
        let waiting = tail.wrapping_sub(head) as usize;
        if waiting == 0 {
            return Steal::Empty;
        }
        if waiting > CAP {
            return Steal::Contended;
        }
        let count = count(waiting);
        debug_assert!(0 < count && count <= waiting, "{count} items claimed of {waiting}");
        for (offset, item) in buffer[..count].iter_mut().enumerate() {
            // Relaxed: ordered by the loads above and the CAS below.
            *item = self.cell(head.wrapping_add(offset as u32)).load(Relaxed);
        }
        // Release: pairs with the Acquire load of `head` in `Owner::room`; our reads of the cells
        // stay before the owner's next writes to them (2 at the top). Model: none can; see there.
        match self.head.compare_exchange(head, head.wrapping_add(count as u32), Release, Relaxed) {
            Ok(_) => Steal::Taken(count),
            Err(_) => Steal::Contended,
        }
    }

    #[inline(always)]
    fn cell(&self, index: u32) -> &AtomicU32 {
        &self.cells[(index & Self::MASK) as usize]
    }
}

impl<const CAP: usize> Owner<'_, CAP> {
    /// Puts `item` behind all others.
    ///
    /// # Errors
    /// Gives `item` back when the queue is full: `drain_half` it into the global queue first.
    #[inline]
    pub(crate) fn push(&self, item: Item) -> Result<(), Item> {
        let (tail, room) = self.room();
        if room == 0 {
            return Err(item);
        }
        self.write(tail, item);
        self.publish(tail.wrapping_add(1));
        Ok(())
    }

    /// Puts as many of `items` as there is room for behind all others, in one act; answers how
    /// many. The rest is the caller's.
    #[inline]
    pub(crate) fn push_batch(&self, items: &[Item]) -> usize {
        let (tail, room) = self.room();
        let count = items.len().min(room);
        if count == 0 {
            return 0;
        }
        for (offset, &item) in items[..count].iter().enumerate() {
            self.write(tail.wrapping_add(offset as u32), item);
        }
        self.publish(tail.wrapping_add(count as u32));
        count
    }

    /// Takes the oldest item.
    #[inline]
    pub(crate) fn pop(&self) -> Option<Item> {
        // Relaxed: the owner alone moves the tail; cells and bodies below it are this thread's own
        // writes (or an earlier owner's, who happens before us by the contract of `owner`).
        let tail = self.fifo.tail.load(Relaxed);
        let mut head = self.fifo.head.load(Relaxed);
        while head != tail {
            // Relaxed: nothing is published; who sees this head without our tail is turned away (3
            // at the top), and the release sequences of claims go on through it.
            // Model: model::fifo::two_thieves_and_the_owner_share.
            let next = head.wrapping_add(1);
            match self.fifo.head.compare_exchange_weak(head, next, Relaxed, Relaxed) {
                // Only the owner writes cells: the item still stands there.
                Ok(_) => return Some(self.fifo.cell(head).load(Relaxed)),
                Err(current) => head = current,
            }
        }
        None
    }

    /// The oldest item, if any; a hint, for a thief may be taking it.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<Item> {
        let head = self.fifo.head.load(Relaxed);
        (head != self.fifo.tail.load(Relaxed)).then(|| self.fifo.cell(head).load(Relaxed))
    }

    /// Takes the older half, rounded up, in one claim, and hands it to `f`, oldest first; answers
    /// how many. `f` must not panic: what it has not seen would be lost.
    #[cold]
    pub(crate) fn drain_half(&self, mut f: impl FnMut(Item)) -> usize {
        // A copy, though the cells keep until our next push: `f` may be the one who pushes.
        let mut buffer = [NONE; CAP];
        loop {
            match self.fifo.claim(|len| len - len / 2, &mut buffer) {
                Steal::Taken(count) => {
                    buffer[..count].iter().copied().for_each(&mut f);
                    return count;
                }
                Steal::Empty => return 0,
                Steal::Contended => crate::sync::spin_loop(),
            }
        }
    }

    /// Where the next item goes, and for how many there is room; an old head makes it too small,
    /// never too large.
    #[inline(always)]
    fn room(&self) -> (u32, usize) {
        // Relaxed: only the owner moves it.
        let tail = self.fifo.tail.load(Relaxed);
        // Acquire: pairs with the Release CAS of `Fifo::claim`; its reads of the cells that we are
        // about to overwrite travel across (2 at the top). Model: none can; see there.
        let head = self.fifo.head.load(Acquire);
        (tail, CAP - tail.wrapping_sub(head) as usize)
    }

    #[inline(always)]
    fn write(&self, index: u32, item: Item) {
        debug_assert_ne!(item, NONE, "no item was pushed");
        // Relaxed: travels by the Release of `publish`.
        self.fifo.cell(index).store(item, Relaxed);
    }

    #[inline(always)]
    fn publish(&self, tail: u32) {
        // Release: pairs with the Acquire load of `tail` in `Fifo::claim`; the cells just written
        // and the bodies behind them travel across.
        // Model: model::fifo::a_claim_of_half_meets_pushes_and_a_pop.
        self.fifo.tail.store(tail, Release);
    }
}

impl<const CAP: usize> Deref for Owner<'_, CAP> {
    type Target = Fifo<CAP>;
    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        self.fifo
    }
}

impl<const CAP: usize> Drop for Owner<'_, CAP> {
    #[inline(always)]
    fn drop(&mut self) {
        self.fifo.one_owner.leave();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::super::testing::{Slots, Xorshift, assert_stays_on_its_thread};
    use super::*;

    #[test]
    fn the_owner_handle_stays_on_its_thread() {
        assert_stays_on_its_thread!(Owner<'static, 4>);
    }

    #[test]
    fn everyone_takes_the_oldest() {
        let fifo = Fifo::<8>::new();
        // SAFETY: the only handle.
        let owner = unsafe { fifo.owner() };
        assert_eq!(owner.push_batch(&[1, 2, 3, 4, 5]), 5);
        assert_eq!(owner.pop(), Some(1));
        let mut buffer = [NONE; STEAL_MAX];
        assert_eq!(fifo.steal(&mut buffer), Steal::Taken(2));
        assert_eq!(buffer[..2], [2, 3]);
        assert_eq!(fifo.take_oldest(), Some(4));
        assert_eq!((owner.pop(), owner.pop(), fifo.len()), (Some(5), None, 0));
        assert_eq!(fifo.steal(&mut buffer), Steal::Empty);
    }

    #[test]
    fn a_full_queue_gives_the_item_back_and_drains_its_older_half() {
        let fifo = Fifo::<4>::new_at(u32::MAX - 1);
        // SAFETY: the only handle.
        let owner = unsafe { fifo.owner() };
        assert_eq!(owner.push_batch(&[1, 2, 3, 4, 5]), 4);
        assert_eq!(owner.push(5), Err(5));
        let mut drained = Vec::new();
        let count = owner.drain_half(|item| {
            drained.push(item);
            assert_eq!(owner.push(item + 10), Ok(()));
        });
        assert_eq!((count, drained), (2, vec![1, 2]));
        let rest: Vec<Item> = std::iter::from_fn(|| owner.pop()).collect();
        assert_eq!(rest, [3, 4, 11, 12]);
    }

    /// FC-002.
    #[test]
    fn an_empty_queue_answers_empty_a_million_times() {
        for start in [0, u32::MAX - 3] {
            let fifo = Fifo::<256>::new_at(start);
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        while !stop.load(Ordering::Relaxed) {
                            assert_eq!(fifo.steal(&mut [NONE; STEAL_MAX]), Steal::Empty);
                            assert_eq!(fifo.len(), 0);
                        }
                    });
                }
                // SAFETY: the only handle.
                let owner = unsafe { fifo.owner() };
                for _ in 0..1_000_000 {
                    assert_eq!(owner.pop(), None);
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
    }

    /// FC-002.
    #[test]
    fn order_and_count_stay_right_across_the_wrap() {
        let fifo = Fifo::<16>::new_at(u32::MAX - 3);
        // SAFETY: the only handle.
        let owner = unsafe { fifo.owner() };
        for item in 1..=10 {
            assert_eq!(owner.push(item), Ok(()));
            assert_eq!(fifo.len(), item as usize);
        }
        for item in 1..=10 {
            assert_eq!(owner.pop(), Some(item));
            assert_eq!(fifo.len(), 10 - item as usize);
        }
        assert_eq!(owner.pop(), None);
    }

    #[test]
    fn every_item_is_taken_once_and_each_taker_sees_them_in_order() {
        const ITEMS: u32 = 400_000;
        let slots = Slots::new(ITEMS);
        let fifo = Fifo::<64>::new_at(u32::MAX - 3);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut buffer = [NONE; STEAL_MAX];
                    let mut last = NONE;
                    loop {
                        let was_done = done.load(Ordering::Acquire);
                        match fifo.steal(&mut buffer) {
                            Steal::Taken(count) => {
                                for &item in &buffer[..count] {
                                    assert!(last < item, "item {item} came after {last}");
                                    slots.take(item);
                                    last = item;
                                }
                            }
                            Steal::Contended => {}
                            Steal::Empty if was_done => break,
                            Steal::Empty => thread::yield_now(),
                        }
                        assert!(fifo.len() <= 64);
                    }
                });
            }
            // SAFETY: the only handle.
            let owner = unsafe { fifo.owner() };
            let mut random = Xorshift(4711);
            let mut item = 1;
            while item <= ITEMS {
                match random.below(8) {
                    0..4 => {
                        slots.put(item);
                        if owner.push(item).is_err() {
                            owner.drain_half(|old| slots.take(old));
                            owner.push(item).expect("half is free");
                        }
                        item += 1;
                    }
                    4 => {
                        let batch: Vec<Item> =
                            (item..=ITEMS.min(item + 3)).map(|item| slots.put(item)).collect();
                        item += owner.push_batch(&batch) as u32;
                    }
                    _ => owner.pop().into_iter().for_each(|item| slots.take(item)),
                }
            }
            done.store(true, Ordering::Release);
        });
        slots.assert_all_taken();
    }
}
