//! A ring of events: one writer, who never waits, and readers who take a copy while it writes.
//!
//! # Protocol
//!
//! Event number `n` (the first is 0) lies at place `n` modulo the capacity. Two counts say how far the
//! writer is: `begun`, events whose writing has begun, and `written`, events that are whole.
//!
//! | act | who | how |
//! | --- | --- | --- |
//! | push | the writer | count `begun`; Release fence; the words; count `written` |
//! | copy | anyone | read `written`; the words of the last events; Acquire fence; read `begun` |
//!
//! *A copied event is whole.* It was written before the copy began (`written`, Acquire). If a word of it
//! had been overwritten by event `m` when it was copied, the fences make the copier see that `m` has begun,
//! and it throws away every event whose place `m` or an earlier one has taken. So what it keeps nobody had
//! begun to overwrite.
//!
//! *The writer never waits*, and what is overwritten is counted: the numbers of the events are their count.
//!
//! Model: `model::trace::a_copied_event_is_whole`, with `model::trace::without_a_second_look_an_event_is_torn`
//! and `model::trace::without_a_fence_an_event_is_torn` as negative controls.
//!
//! Memory: whoever holds the ring keeps it alive.

use crate::sync::{Acquire, AtomicU64, Relaxed, Release, fence};

/// Words of an event.
pub(crate) const WORDS: usize = 3;

/// An event as it lies in the ring; what the words mean is the business of [`super`].
pub(crate) type Words = [u64; WORDS];

/// The ring.
pub(crate) struct Ring {
    places: Box<[[AtomicU64; WORDS]]>,
    begun: AtomicU64,
    written: AtomicU64,
}

/// What was in a ring at one moment, oldest first.
pub(crate) struct Copied {
    /// Events that were overwritten before they were copied.
    pub(crate) lost: u64,
    pub(crate) events: Vec<Words>,
}

impl Ring {
    /// Room for `capacity` events.
    ///
    /// # Panics
    /// If `capacity` is no power of two.
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(capacity.is_power_of_two(), "a ring of {capacity} events");
        Self {
            places: (0..capacity).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect(),
            begun: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    fn place(&self, number: u64) -> &[AtomicU64; WORDS] {
        &self.places[number as usize & (self.places.len() - 1)]
    }

    /// Adds an event, over the oldest one if the ring is full. For one thread at a time, and what one of
    /// them did must happen before what the next one does.
    pub(crate) fn push(&self, event: Words) {
        let number = self.begun.load(Relaxed);
        self.begun.store(number + 1, Relaxed);
        // Pairs with the Acquire fence in `copy`: who copies a word of this event sees that it has begun.
        // Model: model::trace::a_copied_event_is_whole.
        fence(Release);
        for (word, value) in self.place(number).iter().zip(event) {
            word.store(value, Relaxed);
        }
        // Release: pairs with the Acquire in `copy`; who sees the count sees the words.
        self.written.store(number + 1, Release);
    }

    /// The events that are there, at most the newest so many as there is room for.
    pub(crate) fn copy(&self) -> Copied {
        self.copy_and(|| {
            // Pairs with the Release fence in `push`.
            fence(Acquire);
            self.begun.load(Relaxed)
        })
    }

    /// As [`Self::copy`], without the look at what was begun meanwhile.
    #[cfg(all(test, loom))]
    pub(crate) fn copy_without_a_second_look(&self) -> Copied {
        self.copy_and(|| 0)
    }

    /// As [`Self::copy`], without the fence before that look.
    #[cfg(all(test, loom))]
    pub(crate) fn copy_without_a_fence(&self) -> Copied {
        self.copy_and(|| self.begun.load(Relaxed))
    }

    fn copy_and(&self, begun: impl FnOnce() -> u64) -> Copied {
        let capacity = self.places.len() as u64;
        // Acquire: pairs with the Release in `push`.
        let end = self.written.load(Acquire);
        let start = end.saturating_sub(capacity);
        let mut events: Vec<Words> = (start..end)
            .map(|number| {
                let place = self.place(number);
                std::array::from_fn(|word| place[word].load(Relaxed))
            })
            .collect();
        let whole_from = begun().saturating_sub(capacity).clamp(start, end);
        events.drain(..(whole_from - start) as usize);
        Copied { lost: whole_from, events }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn the_newest_stay_and_the_lost_are_counted() {
        let ring = Ring::new(4);
        let copied = ring.copy();
        assert_eq!((copied.lost, copied.events.len()), (0, 0));
        for number in 0..3 {
            ring.push([number; WORDS]);
        }
        assert_eq!(ring.copy().events, [[0; 3], [1; 3], [2; 3]]);
        for number in 3..11 {
            ring.push([number; WORDS]);
        }
        let copied = ring.copy();
        assert_eq!(copied.lost, 7);
        assert_eq!(copied.events, [[7; 3], [8; 3], [9; 3], [10; 3]]);
    }

    #[test]
    fn a_copy_beside_a_writer_is_whole_and_in_order() {
        const EVENTS: u64 = 200_000;
        let ring = Ring::new(64);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..EVENTS {
                    ring.push([number, !number, number * 3]);
                }
                done.store(true, Ordering::Release);
            });
            loop {
                let is_last = done.load(Ordering::Acquire);
                let copied = ring.copy();
                for (at, event) in copied.events.iter().enumerate() {
                    let number = copied.lost + at as u64;
                    assert_eq!(*event, [number, !number, number * 3]);
                }
                if is_last {
                    assert_eq!(copied.lost + copied.events.len() as u64, EVENTS);
                    assert_eq!(copied.events.len(), 64);
                    break;
                }
            }
        });
    }
}
