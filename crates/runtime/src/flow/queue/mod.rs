//! Which rows of an instance's queue may start. Pure: rows, answers and moments go in, wishes come out; no
//! database, no clock.
//!
//! | | |
//! | --- | --- |
//! | [`policy`] | the order within a group, the reserved share of the oldest, the answer of a custom `select` |
//! | [`groups`] | which slots are taken: a view over the rows in flight |
//! | [`window`] | the few rows that a drain knows, what to read next, what to start |
//! | [`retry`] | what becomes of a row whose call failed |
//!
//! The drain holds one [`Queue`](window::Queue) and asks it after each thing that happened. It starts what
//! the [`Choice`](window::Choice) says, sends the reads that it asks for to the store, hands the answers
//! back, and looks again at the moment it names.

pub mod groups;
pub mod policy;
pub mod retry;
pub mod window;

use std::time::Duration;

use evener_actor::event::Timestamp;
use evener_actor::id::{GroupHash, QueueId};
use evener_store::batch::QueueRow;

/// A row as it was read, with what the queue compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// As the store gave it, with or without its event.
    pub row: QueueRow,
    /// Its group as the index knows it.
    pub group: GroupHash,
    /// Not before that moment, by the clock of whoever read it.
    pub due: Timestamp,
}

impl Row {
    /// A row that was read at `now`. The store gives the wait that is left as a span; by which clock `now`
    /// goes does not matter, as long as it is the same that the queue is asked with, and never jumps.
    #[must_use]
    pub fn read(row: QueueRow, now: Timestamp) -> Self {
        let group = row.group.as_ref().map_or(GroupHash::NONE, GroupHash::of);
        // A part of a millisecond counts as a whole one: never early.
        let due = now.saturating_add(row.delay.saturating_add(Duration::from_nanos(999_999)));
        Self { row, group, due }
    }

    /// Its place.
    #[must_use]
    pub fn id(&self) -> QueueId {
        self.row.id
    }
}
