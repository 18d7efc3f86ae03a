//! The run-next place of a worker: one item, woken by the step that runs, so its data is warm.
//!
//! # Protocol
//!
//! | act | who | how |
//! | --- | --- | --- |
//! | put | owner | empty: store; else swap, and what it displaced is the owner's |
//! | take | owner | swap for [`NONE`] |
//! | steal | anyone | load; CAS from that item to [`NONE`] |
//!
//! *Nothing is overwritten.* The owner alone fills the place, so a place that it finds empty stays
//! empty until its store. *Nothing is doubled.* Whoever takes an item is the one whose swap or CAS
//! removed it.
//!
//! ABA: the item that a thief loaded may have left and come back before its CAS. Then the thief takes
//! the item that is there, which is the same number and as good.
//!
//! When a thief may come here is the worker's business, not this file's. Memory: as for [`super`].

use super::{Item, NONE};
use crate::sync::{Acquire, AtomicU32, Relaxed, Release};

/// The place; [`NONE`] if empty.
#[derive(Debug)]
pub(crate) struct NextPlace(AtomicU32);

impl NextPlace {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(NONE))
    }

    /// Whether nothing waits here. A hint, but for the owner an empty place is empty.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: nothing is read on the strength of it.
        self.0.load(Relaxed) == NONE
    }

    /// Puts `item` here; gives what it displaced. For the owner.
    #[inline(always)]
    pub(crate) fn put(&self, item: Item) -> Option<Item> {
        debug_assert_ne!(item, NONE, "no item was put");
        if self.is_empty() {
            // Release: pairs with the Acquire of `steal`; the body travels across.
            // Model: model::next::a_thief_meets_puts_and_takes.
            self.0.store(item, Release);
            return None;
        }
        // Release: as above. Nothing is acquired: what it displaces this thread wrote itself.
        let displaced = self.0.swap(item, Release);
        // A thief may have emptied the place between the look and the swap.
        (displaced != NONE).then_some(displaced)
    }

    /// Takes the item. For the owner.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<Item> {
        if self.is_empty() {
            return None;
        }
        // Relaxed: what this thread takes here it put here; or an earlier owner did, who happens before
        // us by the contract of the deque's owner. Model: model::next::a_thief_meets_puts_and_takes.
        let item = self.0.swap(NONE, Relaxed);
        (item != NONE).then_some(item)
    }

    /// Takes the item, if `may` still says so after a look. For anybody.
    #[inline]
    pub(crate) fn steal(&self, may: impl FnOnce() -> bool) -> Option<Item> {
        let item = self.0.load(Relaxed);
        if item == NONE || !may() {
            return None;
        }
        // Acquire: pairs with the Release of `put`. Nothing is published.
        self.0.compare_exchange(item, NONE, Acquire, Relaxed).ok()
    }
}
