//! The mailbox: many producers, one consumer, first in first out for each producer.
//!
//! A message lies in a cell. Producers push cells onto a stack whose top is in the process's word
//! ([`crate::process::slot`]), so that admission, generation check and wake are one CAS. The consumer
//! takes the whole stack with the CAS that claims the process, turns it round (oldest first) and
//! delivers from there: that list is the *inbox*, which belongs to the runner alone.
//!
//! # Cost
//!
//! Atomic read-modify-writes on the way of one message between two processes of one worker:
//!
//! | act | where | count |
//! | --- | --- | --- |
//! | push, admission, wake | `Slot::push` | 1 CAS |
//! | take from the run-next place | worker | 1 swap |
//! | claim, take all messages | `Slot::claim` | 1 CAS |
//! | give up the turn | `Slot::release` | 1 CAS |
//!
//! Four, whatever the number of messages taken in that turn; a message to a process that is already
//! `READY` costs the first one only. There is no separate fence.
//!
//! # Why a stack turned round, and not a queue
//!
//! A linked queue's producer is, between its swap and its link store, able to hide all that others
//! push after it. A push onto the stack is whole at its CAS. Turning round costs one more look at each
//! cell, which brings it into the cache for the delivery that follows. It is bounded for each turn
//! (`TURN_ROUND_MAX`): a mailbox of millions is turned round over several turns, so it delays
//! itself and not the others.
//!
//! A drain takes what was there when it began; while the inbox is not empty the word's stack is left
//! alone, which keeps the order.
//!
//! Models: `model::slot`, `model::event_queue`; property tests: `tests/it/mailbox.rs`.

use crate::sync::{AtomicU32, Relaxed};

/// At most this many cells are turned round in one turn of a process.
pub(crate) const TURN_ROUND_MAX: u32 = 1 << 15;

/// In `depth`: the cell is a full one, with sender and topic.
pub(crate) const FULL: u32 = 1 << 31;

/// The links of message cells. A cell's number is never 0.
pub(crate) trait Cells {
    /// The message before, or after once turned round; 0 ends the list.
    fn next(&self, cell: u32) -> &AtomicU32;
    /// How many messages the list has from this one on; and [`FULL`].
    fn depth(&self, cell: u32) -> &AtomicU32;

    /// Prepares `cell`, which is [`FULL`] or not, to be pushed on top of `head`.
    #[inline(always)]
    fn link(&self, cell: u32, kind: u32, head: u32) {
        // Relaxed, here and below: links travel with the word's Release and Acquire. Only `depth` of
        // `head` may be read while its owner uses the cell anew; then the push's CAS fails, or the
        // number is off by what happened meanwhile.
        self.next(cell).store(head, Relaxed);
        let below = if head == 0 { 0 } else { self.depth(head).load(Relaxed) & !FULL };
        self.depth(cell).store(kind | (below + 1) & !FULL, Relaxed);
    }

    /// Messages in the list from `cell` on.
    #[inline]
    fn count(&self, cell: u32) -> u32 {
        if cell == 0 { 0 } else { self.depth(cell).load(Relaxed) & !FULL }
    }
}

/// As [`turn_round`], of a list that may take several calls: while something is left of `from`, the depth
/// noted at the oldest one turned counts that too, so that a reader sees all that waits. `onto` is 0, or
/// what the call before gave.
#[inline]
pub(crate) fn turn_round_part(cells: &impl Cells, from: u32, onto: u32, max: u32) -> (u32, u32) {
    let note = |cell: u32, depth: u32| {
        let kind = cells.depth(cell).load(Relaxed) & FULL;
        cells.depth(cell).store(kind | depth & !FULL, Relaxed);
    };
    if onto != 0 {
        note(onto, cells.count(onto).wrapping_sub(cells.count(from)));
    }
    let (rest, onto) = turn_round(cells, from, onto, max);
    if rest != 0 {
        note(onto, cells.count(onto).wrapping_add(cells.count(rest)));
    }
    (rest, onto)
}

/// Moves up to `max` cells from the newest-first list `from` in front of the oldest-first list `onto`.
/// Gives what is left of `from`, and the new `onto`.
#[inline]
pub(crate) fn turn_round(cells: &impl Cells, mut from: u32, mut onto: u32, max: u32) -> (u32, u32) {
    let mut depth = cells.count(onto);
    let end = depth.saturating_add(max);
    while from != 0 && depth < end {
        let next = cells.next(from).load(Relaxed);
        cells.next(from).store(onto, Relaxed);
        depth += 1;
        let kind = cells.depth(from).load(Relaxed) & FULL;
        cells.depth(from).store(kind | depth, Relaxed);
        onto = from;
        from = next;
    }
    (from, onto)
}
