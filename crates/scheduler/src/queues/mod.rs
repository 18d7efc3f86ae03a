//! Where ready processes wait, in the order in which a worker looks.
//!
//! | queue | puts in | takes out | order | full |
//! | --- | --- | --- | --- | --- |
//! | [`next`] | its owner | owner; a thief, if it is stuck | one place | gives what it displaces |
//! | [`deque`] | its owner | owner at the young end; anyone at the old end | LIFO / FIFO | caller spills the old half |
//! | [`fifo`] | its owner | anyone, at the old end | FIFO | caller spills the old half |
//! | [`inject`] | anyone | anyone, everything at once | FIFO | caller goes to the global queue |
//! | [`global`] | anyone | anyone | FIFO | never |
//!
//! What waits is an [`Item`]: the number of a process slot. A process is in at most one queue (its
//! state word says so, not we), so the inject and the global queue link items through the slots
//! ([`Links`]) and the other two hold bare numbers: queueing never allocates.
//!
//! Memory: a queue holds numbers, never pointers. Whoever holds a stale number reads a link or a
//! cell that still exists, for slots are type-stable and the queues live as long as the scheduler.
//!
//! The body behind an item, written by who puts it in, is whole for who takes it out: every queue
//! hands it over with Release and Acquire. `len` and `is_empty` are hints: Relaxed loads. Who parks
//! on an empty answer puts `fence(SeqCst)` between its flag and the look, and who pushes between
//! the push and the look at the flag.

pub(crate) mod deque;
pub(crate) mod fifo;
pub(crate) mod global;
pub(crate) mod inject;
pub(crate) mod next;

use crate::sync::AtomicU32;

/// The number of a process slot.
pub(crate) type Item = u32;

/// No item: the end of a chain.
pub(crate) const NONE: Item = 0;

/// Most items that one claim takes from somebody else's queue: two cache lines of numbers, and the
/// most that a thief preempted between claim and push keeps from others.
pub(crate) const STEAL_MAX: usize = 32;

/// Attempts of one steal before it answers [`Steal::Contended`]. The models narrow it: an attempt
/// more shows them nothing new and multiplies their executions.
pub(crate) const STEAL_ATTEMPTS: usize = if cfg!(loom) { 1 } else { 4 };

/// Finds the link of an item. Only who holds the item, or the queue that holds it, uses its link.
pub(crate) trait Links {
    /// The link of `item`, which is never [`NONE`].
    fn next(&self, item: Item) -> &AtomicU32;
}

impl<L: Links + ?Sized> Links for &L {
    #[inline(always)]
    fn next(&self, item: Item) -> &AtomicU32 {
        (**self).next(item)
    }
}

/// Answer of a steal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Steal {
    /// This many items, at least one, oldest first, now belong to the caller.
    Taken(usize),
    /// Nothing was there.
    Empty,
    /// Others were quicker. Something may still be there: no ground for parking.
    Contended,
}

/// How many of `len` items a thief takes: half, rounded up, at most [`STEAL_MAX`].
#[inline]
fn share(len: usize) -> usize {
    (len - len / 2).min(STEAL_MAX)
}

/// Debug builds refuse a second owner handle; elsewhere this is nothing.
#[derive(Debug, Default)]
struct OneOwner {
    #[cfg(debug_assertions)]
    taken: crate::sync::fixed::AtomicU32,
}

impl OneOwner {
    #[inline(always)]
    fn enter(&self) {
        // Relaxed on purpose: the check must not supply an order that the contract asks of callers.
        #[cfg(debug_assertions)]
        assert_eq!(self.taken.swap(1, crate::sync::Relaxed), 0, "a queue has two owner handles");
    }

    #[inline(always)]
    fn leave(&self) {
        #[cfg(debug_assertions)]
        self.taken.store(0, crate::sync::Relaxed);
    }
}

/// One word or one queue end per pair of cache lines: neighbours are fetched in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Line<T>(T);

impl<T> std::ops::Deref for Line<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Stand-ins for the process slots, for tests and models, and the oracle over them.

    use super::{Item, Links};
    use crate::sync::{AtomicU32, Cell};

    /// Slots 1 to `count`: a link, and a body that only the holder of the item touches.
    pub(crate) struct Slots {
        links: Vec<AtomicU32>,
        bodies: Vec<Cell<u32>>,
    }

    // SAFETY: a body is touched only through `put` and `take` by the holder of its item; that the
    // queues give an item one holder at a time is what the tests are about (loom and
    // ThreadSanitizer see the accesses).
    unsafe impl Sync for Slots {}

    const TAKEN: u32 = u32::MAX;

    impl Slots {
        pub(crate) fn new(count: u32) -> Self {
            Self {
                links: (0..=count).map(|_| AtomicU32::new(0)).collect(),
                bodies: (0..=count).map(|_| Cell::new(0)).collect(),
            }
        }

        /// Writes the body of `item`: to be done before it is pushed.
        pub(crate) fn put(&self, item: Item) -> Item {
            // SAFETY: the caller holds the item, nobody else knows it yet.
            self.bodies[item as usize].with_mut(|body| unsafe { *body = item });
            item
        }

        /// Takes the body of `item`: to be done after it was taken.
        pub(crate) fn take(&self, item: Item) {
            self.bodies[item as usize].with_mut(|body| {
                // SAFETY: the caller took the item out of a queue and is its only holder.
                let found = unsafe { body.replace(TAKEN) };
                assert_ne!(found, TAKEN, "item {item} was taken twice");
                assert_eq!(found, item, "the body of item {item} is stale");
            });
        }

        /// Whether the body of `item` was taken. Only when all threads have ended.
        pub(crate) fn is_taken(&self, item: Item) -> bool {
            // SAFETY: all other threads have ended.
            self.bodies[item as usize].with(|body| unsafe { *body == TAKEN })
        }

        pub(crate) fn assert_all_taken(&self) {
            for item in 1..self.bodies.len() as Item {
                assert!(self.is_taken(item), "item {item} was lost");
            }
        }
    }

    impl Links for Slots {
        fn next(&self, item: Item) -> &AtomicU32 {
            assert_ne!(item, super::NONE, "the link of no item was asked for");
            &self.links[item as usize]
        }
    }

    /// Fails to compile when the type is `Send`, `Sync` or `Clone`.
    #[cfg(not(loom))]
    macro_rules! assert_stays_on_its_thread {
        ($type:ty) => {{
            trait Ambiguous<Marker> {
                fn touch() {}
            }
            struct OnlySend;
            struct OnlySync;
            struct OnlyClone;
            impl<T: ?Sized> Ambiguous<()> for T {}
            impl<T: ?Sized + Send> Ambiguous<OnlySend> for T {}
            impl<T: ?Sized + Sync> Ambiguous<OnlySync> for T {}
            impl<T: Clone> Ambiguous<OnlyClone> for T {}
            <$type as Ambiguous<_>>::touch()
        }};
    }
    #[cfg(not(loom))]
    pub(crate) use assert_stays_on_its_thread;

    /// Small, seeded, good enough to mix pushes and pops.
    pub(crate) struct Xorshift(pub(crate) u64);

    impl Xorshift {
        pub(crate) fn below(&mut self, bound: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) % bound
        }
    }
}
