//! What a task is without its type: is there a result, has it been asked to end, who wants to know.

use std::task::Waker;

use crate::sync::{AcqRel, Acquire, AtomicU32, AtomicWaker};

/// There is a result.
const DONE: u32 = 1;
/// It has been asked to end.
const CANCELLED: u32 = 2;

pub(crate) struct Header {
    state: AtomicU32,
    joiner: AtomicWaker,
    canceller: AtomicWaker,
}

impl Header {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU32::new(0), joiner: AtomicWaker::new(), canceller: AtomicWaker::new() }
    }

    fn has(&self, flag: u32) -> bool {
        // Acquire: pairs with the Release in `finish`; the result is whole.
        // Model: model::task::a_result_is_whole_and_heard_of.
        self.state.load(Acquire) & flag != 0
    }

    /// Is there a result? Then the handle alone touches it.
    pub(crate) fn is_done(&self) -> bool {
        self.has(DONE)
    }

    /// By the runner, when the result has been written.
    pub(crate) fn finish(&self) {
        // Release: pairs with the Acquire in `has`.
        self.state.fetch_or(DONE, AcqRel);
        self.joiner.wake();
    }

    pub(crate) fn cancel(&self) {
        self.state.fetch_or(CANCELLED, AcqRel);
        self.canceller.wake();
    }

    /// `true`: done. Else `waker` is woken when it is.
    pub(crate) fn listen_for_end(&self, waker: &Waker) -> bool {
        self.listen(DONE, &self.joiner, waker)
    }

    pub(crate) fn listen_for_cancel(&self, waker: &Waker) -> bool {
        self.listen(CANCELLED, &self.canceller, waker)
    }

    fn listen(&self, flag: u32, place: &AtomicWaker, waker: &Waker) -> bool {
        if self.has(flag) {
            return true;
        }
        crate::sync::register(place, waker);
        // Set before the waker was there: then nobody was woken.
        // Negative control: model::task::without_a_second_look_an_end_is_missed.
        self.has(flag)
    }

    /// As [`Self::listen_for_end`], without the second look.
    #[cfg(all(test, loom))]
    pub(crate) fn listen_carelessly(&self, waker: &Waker) -> bool {
        if self.has(DONE) {
            return true;
        }
        crate::sync::register(&self.joiner, waker);
        false
    }
}
