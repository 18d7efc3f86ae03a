//! A worker's own deque: the owner pushes and pops at the young end, anyone claims from the old
//! end, several items in one atomic step.
//!
//! # The word
//!
//! Both indices and a version stand in one `AtomicU64`:
//!
//! ```text
//! [ version:32 | tail:16 | head:16 ]      items: cells[head % CAP] (oldest) .. cells[tail % CAP]
//! ```
//!
//! | act | who | how the word moves |
//! | --- | --- | --- |
//! | push n | owner | write cells, then `fetch_add`: tail + n, version + 1 |
//! | pop | owner | CAS: tail - 1, version + 1 |
//! | claim n | anyone | copy cells, then CAS: head + n, version + 1 |
//!
//! A carry out of `tail` runs into the version, where one more does no harm; a carry out of the
//! version falls off the top; `head` never carries, for it moves only by CAS of a composed word.
//!
//! # Why a claim of several items is right
//!
//! On the deque of Chase and Lev ("Dynamic Circular Work-Stealing Deque", SPAA 2005; orderings in
//! Lê, Pop, Cohen, Nardelli, "Correct and Efficient Work-Stealing for Weak Memory Models", PPoPP
//! 2013) a claim of several items in one CAS on `top` is wrong: the owner pops without a CAS while
//! more than one item is left, so it may have taken items that the CAS then claims too, and what it
//! pushes in their place is lost. `model::deque` keeps that deque as the negative control. Here
//! nobody moves either end without the CAS of a claim in flight failing, for every act changes the
//! version. So a claim that succeeds saw no act between its load and its CAS, and:
//!
//! 1. *It reads the items, not what was there before.* The cell of an item is written before the
//!    Release of its push; every change of the word is a read-modify-write, so the claim's Acquire
//!    load reads from the release sequence of every push it can see. The same edge makes the body
//!    behind the item whole for the taker.
//! 2. *It does not read what came after.* The owner writes a cell only when its Acquire load of the
//!    word shows that the item before it has left. If it left by this claim, the claim's CAS
//!    (Release, its reads before it) happens before that write. A push that has written its cell
//!    but not yet the word writes outside of head..tail, since it saw room.
//!
//! loom runs 1 in full. Of 2 it cannot show the half that needs the Release of the CAS and the
//! Acquire of the owner, for a loom load never returns a store that is executed later.
//!
//! The bound: a claim is fooled if between its load and its CAS exactly a multiple of 2^32 acts
//! move the version back to where it was and the indices too. At 10 ns an act that is a thread
//! stopped for a multiple of 43 s that ends on that very act; we accept it. The same protection on
//! fewer bits (tags against ABA: IBM System/370 Principles of Operation, appendix A, "free-pool
//! manipulation") fails in the models: `VERSION_BITS` 0 and 1 are negative controls.
//!
//! # Progress and memory
//!
//! A CAS fails only when another act succeeded: lock-free. `Owner::pop` and `Owner::drain_half`
//! lose only to claims, each of which shortens the deque, so they end after at most CAP rounds. A
//! thief preempted between its claim and its own push keeps at most [`STEAL_MAX`] items to itself,
//! the owner in `drain_half` at most CAP / 2. Nobody holds a pointer into the deque beyond a borrow.

use std::marker::PhantomData;
use std::ops::Deref;

use super::{Item, Line, NONE, OneOwner, STEAL_ATTEMPTS, STEAL_MAX, Steal, share};
use crate::sync::{Acquire, AtomicU32, AtomicU64, Relaxed, Release};

const TAIL_SHIFT: u32 = 16;
const VERSION_SHIFT: u32 = 32;

/// The deque. `CAP` is a power of two, at most 2^15; `VERSION_BITS` is 32 but in negative controls.
#[derive(Debug)]
pub(crate) struct Deque<const CAP: usize, const VERSION_BITS: u32 = 32> {
    word: Line<AtomicU64>,
    cells: [AtomicU32; CAP],
    one_owner: OneOwner,
}

/// The right to push to and pop from a deque. It stays on the thread that made it.
pub(crate) struct Owner<'a, const CAP: usize, const VERSION_BITS: u32 = 32> {
    deque: &'a Deque<CAP, VERSION_BITS>,
    stays_on_its_thread: PhantomData<*mut ()>,
}

#[inline(always)]
fn head(word: u64) -> u16 {
    word as u16
}

#[inline(always)]
fn tail(word: u64) -> u16 {
    (word >> TAIL_SHIFT) as u16
}

#[inline(always)]
fn len(word: u64) -> usize {
    tail(word).wrapping_sub(head(word)).into()
}

impl<const CAP: usize, const VERSION_BITS: u32> Deque<CAP, VERSION_BITS> {
    /// Added by every act. The version takes the topmost bits, so that it wraps by itself.
    const STEP: u64 = {
        assert!(CAP.is_power_of_two() && CAP <= 1 << 15, "CAP is a power of two up to 2^15");
        assert!(VERSION_BITS <= 32, "the version has at most 32 bits");
        if VERSION_BITS == 0 { 0 } else { 1 << (u64::BITS - VERSION_BITS) }
    };

    pub(crate) fn new() -> Self {
        Self::with_word(0)
    }

    /// An empty deque whose indices begin at `start_index`, and whose version is about to wrap.
    #[cfg(test)]
    pub(crate) fn new_at(start_index: u16) -> Self {
        let index = u64::from(start_index);
        Self::with_word((u64::MAX << VERSION_SHIFT) | (index << TAIL_SHIFT) | index)
    }

    fn with_word(word: u64) -> Self {
        Self {
            word: Line(AtomicU64::new(word)),
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
    pub(crate) unsafe fn owner(&self) -> Owner<'_, CAP, VERSION_BITS> {
        self.one_owner.enter();
        Owner { deque: self, stays_on_its_thread: PhantomData }
    }

    /// How many items wait. A hint.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Relaxed: nothing is read on the strength of it.
        len(self.word.load(Relaxed))
    }

    /// Where it begins: moved by whoever takes the oldest. A hint.
    pub(crate) fn front(&self) -> u16 {
        head(self.word.load(Relaxed))
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

    /// Takes the oldest item. Goes on until it has one or the deque is empty: for the owner, who
    /// loses to claims only, and for threads that need one item rather than half.
    #[inline]
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
        // Acquire: pairs with the Release of `Owner::publish`; cells and bodies of the pushes that
        // we see travel across. Model: model::deque::a_claim_of_half_meets_pops_and_a_push.
        let word = self.word.load(Acquire);
        let waiting = len(word);
        debug_assert!(waiting <= CAP, "{waiting} items in a deque of {CAP}");
        if waiting == 0 {
            return Steal::Empty;
        }
        let count = count(waiting);
        debug_assert!(0 < count && count <= waiting, "{count} items claimed of {waiting}");
        for (offset, item) in buffer[..count].iter_mut().enumerate() {
            // Relaxed: ordered by the load above and the CAS below (1 and 2 at the top).
            *item = self.cell(head(word).wrapping_add(offset as u16)).load(Relaxed);
        }
        let next = Self::moved(word, tail(word), head(word).wrapping_add(count as u16));
        // Release: pairs with the Acquire load of `Owner::room`; our reads of the cells stay before
        // the owner's next writes to them. Nothing is acquired: the word read is the one we loaded.
        match self.word.compare_exchange(word, next, Release, Relaxed) {
            Ok(_) => Steal::Taken(count),
            Err(_) => Steal::Contended,
        }
    }

    #[inline(always)]
    fn cell(&self, index: u16) -> &AtomicU32 {
        &self.cells[usize::from(index) & (CAP - 1)]
    }

    /// The word after an act that leaves `tail` and `head` behind.
    #[inline(always)]
    fn moved(word: u64, tail: u16, head: u16) -> u64 {
        let version = (word & (u64::MAX << VERSION_SHIFT)).wrapping_add(Self::STEP);
        version | (u64::from(tail) << TAIL_SHIFT) | u64::from(head)
    }
}

impl<const CAP: usize, const VERSION_BITS: u32> Owner<'_, CAP, VERSION_BITS> {
    /// Puts `item` at the young end.
    ///
    /// # Errors
    /// Gives `item` back when the deque is full: `drain_half` it into the global queue first.
    #[inline]
    pub(crate) fn push(&self, item: Item) -> Result<(), Item> {
        let (tail, room) = self.room();
        if room == 0 {
            return Err(item);
        }
        self.write(tail, item);
        self.publish(1);
        Ok(())
    }

    /// Puts as many of `items` as there is room for at the young end, in one act, the last of them
    /// youngest; answers how many. The rest is the caller's. For the models and tests: workers put what
    /// they stole into the FIFO.
    #[cfg(test)]
    pub(crate) fn push_batch(&self, items: &[Item]) -> usize {
        let (tail, room) = self.room();
        let count = items.len().min(room);
        if count == 0 {
            return 0;
        }
        for (offset, &item) in items[..count].iter().enumerate() {
            self.write(tail.wrapping_add(offset as u16), item);
        }
        self.publish(count);
        count
    }

    /// Takes the youngest item.
    #[inline]
    pub(crate) fn pop(&self) -> Option<Item> {
        // Relaxed, here and below: all that pop reads, cells and bodies, this thread wrote itself,
        // or an earlier owner, who happens before us by the contract of `owner`. A pop publishes
        // nothing, and as a read-modify-write leaves the release sequences of pushes and claims
        // whole. Model: model::deque::a_claim_of_half_meets_pops_and_a_push.
        let mut word = self.deque.word.load(Relaxed);
        loop {
            if len(word) == 0 {
                return None;
            }
            let young = tail(word).wrapping_sub(1);
            let next = Deque::<CAP, VERSION_BITS>::moved(word, young, head(word));
            match self.deque.word.compare_exchange_weak(word, next, Relaxed, Relaxed) {
                // Only the owner writes cells: the item still stands there.
                Ok(_) => return Some(self.deque.cell(young).load(Relaxed)),
                Err(current) => word = current,
            }
        }
    }

    /// Takes the older half, rounded up, in one claim, and hands it to `f`, oldest first; answers
    /// how many. For the overflow: a full deque gives half of itself to the global queue. `f` must
    /// not panic: what it has not seen would be lost.
    #[cold]
    pub(crate) fn drain_half(&self, mut f: impl FnMut(Item)) -> usize {
        // A copy, though the cells keep until our next push: `f` may be the one who pushes.
        let mut buffer = [NONE; CAP];
        loop {
            match self.deque.claim(|len| len - len / 2, &mut buffer) {
                Steal::Taken(count) => {
                    buffer[..count].iter().copied().for_each(&mut f);
                    return count;
                }
                Steal::Empty => return 0,
                Steal::Contended => crate::sync::spin_loop(),
            }
        }
    }

    /// Where the next item goes, and for how many there is room. The tail is exact, for only the
    /// owner moves it; the head may be old, which makes the room too small and never too large.
    #[inline(always)]
    fn room(&self) -> (u16, usize) {
        // Acquire: pairs with the Release CAS of `Deque::claim`; the claim's reads of the cells that
        // we are about to overwrite travel across (2 at the top). Model: none can; see there.
        let word = self.deque.word.load(Acquire);
        (tail(word), CAP - len(word))
    }

    #[inline(always)]
    fn write(&self, index: u16, item: Item) {
        debug_assert_ne!(item, NONE, "no item was pushed");
        // Relaxed: travels by the Release of `publish`.
        self.deque.cell(index).store(item, Relaxed);
    }

    #[inline(always)]
    fn publish(&self, count: usize) {
        let step = Deque::<CAP, VERSION_BITS>::STEP + ((count as u64) << TAIL_SHIFT);
        // Release: pairs with the Acquire load of `Deque::claim`; the cells just written and the
        // bodies behind them travel across. Model: model::deque::the_body_is_whole_for_the_thief.
        self.deque.word.fetch_add(step, Release);
    }
}

impl<const CAP: usize, const VERSION_BITS: u32> Deref for Owner<'_, CAP, VERSION_BITS> {
    type Target = Deque<CAP, VERSION_BITS>;
    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        self.deque
    }
}

impl<const CAP: usize, const VERSION_BITS: u32> Drop for Owner<'_, CAP, VERSION_BITS> {
    #[inline(always)]
    fn drop(&mut self) {
        self.deque.one_owner.leave();
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
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a queue has two owner handles")]
    fn a_second_owner_is_refused() {
        let deque = Deque::<4>::new();
        // SAFETY: broken on purpose; the second call panics before it makes a handle.
        let _handles = unsafe { (deque.owner(), deque.owner()) };
    }

    #[test]
    fn the_owner_takes_the_youngest_and_everyone_the_oldest() {
        let deque = Deque::<8>::new();
        // SAFETY: the only handle.
        let owner = unsafe { deque.owner() };
        assert_eq!(owner.push_batch(&[1, 2, 3]), 3);
        assert_eq!(owner.push(4), Ok(()));
        assert_eq!(owner.pop(), Some(4));
        assert_eq!(deque.take_oldest(), Some(1));
        assert_eq!(owner.pop(), Some(3));
        assert_eq!(owner.pop(), Some(2));
        assert_eq!((owner.pop(), deque.take_oldest(), deque.len()), (None, None, 0));
    }

    #[test]
    fn a_steal_takes_half_rounded_up_and_at_most_the_limit() {
        for (len, stolen) in [(1, 1), (2, 1), (3, 2), (7, 4), (64, 32), (65, 32), (256, 32)] {
            let deque = Deque::<256>::new();
            // SAFETY: the only handle.
            let owner = unsafe { deque.owner() };
            let items: Vec<Item> = (1..=len).collect();
            assert_eq!(owner.push_batch(&items), len as usize);
            let mut buffer = [NONE; STEAL_MAX];
            assert_eq!(deque.steal(&mut buffer), Steal::Taken(stolen));
            assert_eq!(buffer[..stolen], items[..stolen]);
            assert_eq!(deque.len(), len as usize - stolen);
        }
        assert_eq!(Deque::<4>::new().steal(&mut [NONE; STEAL_MAX]), Steal::Empty);
    }

    #[test]
    fn a_full_deque_gives_the_item_back_and_drains_its_older_half() {
        let deque = Deque::<4>::new_at(u16::MAX - 1);
        // SAFETY: the only handle.
        let owner = unsafe { deque.owner() };
        assert_eq!(owner.push_batch(&[1, 2, 3, 4, 5, 6]), 4);
        assert_eq!(owner.push(5), Err(5));
        let mut drained = Vec::new();
        // What `f` pushes must not overwrite what it has yet to see.
        let count = owner.drain_half(|item| {
            drained.push(item);
            assert_eq!(owner.push(item + 10), Ok(()));
        });
        assert_eq!((count, drained), (2, vec![1, 2]));
        let rest: Vec<Item> = std::iter::from_fn(|| deque.take_oldest()).collect();
        assert_eq!(rest, [3, 4, 11, 12]);
        assert_eq!(owner.drain_half(|_| unreachable!()), 0);
    }

    /// FC-002.
    #[test]
    fn an_empty_deque_answers_empty_a_million_times() {
        for start in [0, u16::MAX - 3] {
            let deque = Deque::<256>::new_at(start);
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        while !stop.load(Ordering::Relaxed) {
                            assert_eq!(deque.steal(&mut [NONE; STEAL_MAX]), Steal::Empty);
                            assert_eq!(deque.len(), 0);
                        }
                    });
                }
                // SAFETY: the only handle.
                let owner = unsafe { deque.owner() };
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
        for by_pop in [true, false] {
            let deque = Deque::<16>::new_at(u16::MAX - 3);
            // SAFETY: the only handle.
            let owner = unsafe { deque.owner() };
            for item in 1..=10 {
                assert_eq!(owner.push(item), Ok(()));
                assert_eq!(deque.len(), item as usize);
            }
            for item in 1..=10 {
                let (taken, expected) =
                    if by_pop { (owner.pop(), 11 - item) } else { (deque.take_oldest(), item) };
                assert_eq!(taken, Some(expected));
                assert_eq!(deque.len(), 10 - item as usize);
            }
            assert_eq!(owner.pop(), None);
        }
    }

    #[test]
    fn every_item_is_taken_once() {
        const ITEMS: u32 = 400_000;
        let slots = Slots::new(ITEMS);
        let deque = Deque::<64>::new_at(u16::MAX - 3);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut buffer = [NONE; STEAL_MAX];
                    loop {
                        let was_done = done.load(Ordering::Acquire);
                        match deque.steal(&mut buffer) {
                            Steal::Taken(count) => {
                                buffer[..count].iter().for_each(|&item| slots.take(item));
                            }
                            Steal::Contended => {}
                            Steal::Empty if was_done => break,
                            Steal::Empty => thread::yield_now(),
                        }
                    }
                });
            }
            // SAFETY: the only handle.
            let owner = unsafe { deque.owner() };
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
                    5 => deque.take_oldest().into_iter().for_each(|item| slots.take(item)),
                    _ => owner.pop().into_iter().for_each(|item| slots.take(item)),
                }
            }
            done.store(true, Ordering::Release);
        });
        slots.assert_all_taken();
    }
}
