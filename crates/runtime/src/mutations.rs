//! Faults that are put in on purpose, for the simulator: its invariants must notice them. Never in the product.

use std::cell::Cell;

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// A drain does not keep out rows that were committed while it read.
    GhostsRun,
    /// A drain goes on with the head that a refused commit has made void.
    VoidHeadKept,
}

thread_local! {
    static ON: Cell<Option<Switch>> = const { Cell::new(None) };
}

/// Turns it off again.
#[derive(Debug)]
pub struct Guard(());

impl Drop for Guard {
    fn drop(&mut self) {
        ON.set(None);
    }
}

/// Turns one on, on this thread, as long as the guard lives.
#[must_use]
pub fn set(switch: Option<Switch>) -> Guard {
    ON.set(switch);
    Guard(())
}

pub(crate) fn is(switch: Switch) -> bool {
    ON.get() == Some(switch)
}
