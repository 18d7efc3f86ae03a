//! What a task is without its type: who still needs its memory, is there a result, who wants to know.
//!
//! # Who frees the memory
//!
//! The runner and the handle each hold one bit of the state word; who clears the last one frees. As long as
//! the handle does not wait, the end is one CAS; a task whose handle is gone ends without any.
//!
//! | | word |
//! | --- | --- |
//! | spawned | `HANDLE`, `RUNNER` |
//! | the handle is dropped | less `HANDLE` |
//! | the handle waits | and `JOINER`: its waker lies in its place |
//! | ended, nobody waits | `DONE`, less `RUNNER`, at once |
//! | ended, the handle waits | `DONE`; it is woken; then less `RUNNER` |

use std::task::Waker;

use crate::sync::{AcqRel, Acquire, AtomicU32, AtomicWaker, Cell, Relaxed};

/// There is a result.
const DONE: u32 = 1;
/// There is a handle.
const HANDLE: u32 = 2;
/// The runner still touches the task.
const RUNNER: u32 = 4;
/// The handle has left a waker.
const JOINER: u32 = 8;

pub(crate) struct Header {
    state: AtomicU32,
    /// See [`Self::cell`]. In a cell, as is all else here: the memory may be freed while the last method runs
    /// on a shared reference.
    cell: Cell<u32>,
    joiner: AtomicWaker,
    /// The runner's alone.
    listeners: Cell<Option<Box<Listeners>>>,
}

impl Header {
    pub(crate) fn new(cell: u32) -> Self {
        Self {
            state: AtomicU32::new(HANDLE | RUNNER),
            cell: Cell::new(cell),
            joiner: AtomicWaker::new(),
            listeners: Cell::new(None),
        }
    }

    /// The number of the cell that the task lies in; 0: an allocation of its own.
    pub(crate) fn cell(&self) -> u32 {
        // SAFETY: never written.
        self.cell.with(|cell| unsafe { *cell })
    }

    /// Is there a result? Then the handle alone touches it.
    pub(crate) fn is_done(&self) -> bool {
        // Acquire: pairs with the Release in `finish`; the result is whole.
        // Model: model::task::a_result_is_whole_and_heard_of.
        self.state.load(Acquire) & DONE != 0
    }

    /// By the runner: nobody wants the result, and nobody else will touch the task again.
    pub(crate) fn is_abandoned(&self) -> bool {
        // Acquire: pairs with the Release in `leave`.
        self.state.load(Acquire) & HANDLE == 0
    }

    /// By the runner, when the result has been written; its last touch. `wake` is called if the handle waits,
    /// and must not unwind. `true`: the caller frees the task.
    pub(crate) fn finish(&self, wake: impl FnOnce(&AtomicWaker)) -> bool {
        let mut state = self.state.load(Relaxed);
        while state & JOINER == 0 {
            // Release: pairs with the Acquire in `is_done` and `leave`. Acquire: pairs with the Release in
            // `leave`, for who frees.
            match self.state.compare_exchange(state, (state | DONE) & !RUNNER, AcqRel, Relaxed) {
                Ok(_) => return state & HANDLE == 0,
                Err(now) => state = now,
            }
        }
        // The handle may take the result from here on, and leave; the memory stays till `RUNNER` is gone.
        self.state.fetch_or(DONE, AcqRel);
        wake(&self.joiner);
        // Negative control: model::task::without_the_runners_bit_a_handle_frees_too_early.
        self.state.fetch_and(!RUNNER, AcqRel) & HANDLE == 0
    }

    /// By the handle; its last touch. `true`: the caller frees the task.
    pub(crate) fn leave(&self) -> bool {
        // Release: what the handle did comes before the freeing. Acquire: so does what the runner did.
        self.state.fetch_and(!HANDLE, AcqRel) & RUNNER == 0
    }

    /// By the handle. `true`: done. Else `waker` is woken when it is.
    pub(crate) fn listen_for_end(&self, waker: &Waker) -> bool {
        if self.is_done() {
            return true;
        }
        crate::sync::register(&self.joiner, waker);
        // Set before the waker was there, or before it was known that there is one: then nobody was woken.
        // Negative control: model::task::without_a_second_look_an_end_is_missed.
        self.state.fetch_or(JOINER, AcqRel) & DONE != 0
    }

    /// By the runner: the task is asked to end.
    pub(crate) fn cancel(&self) {
        self.with_listeners(|listeners| {
            listeners.is_cancelled = true;
            listeners.for_cancel.take_all()
        })
        .into_iter()
        .for_each(wake);
    }

    /// By the runner. `true`: the task has been asked to end. Else `waker` is woken when it is.
    pub(crate) fn listen_for_cancel(&self, waker: &Waker) -> bool {
        let is_cancelled = self.with_listeners(|listeners| listeners.is_cancelled);
        if !is_cancelled {
            self.add(waker, |listeners| &mut listeners.for_cancel);
        }
        is_cancelled
    }

    /// By the runner: `waker`, which is not the task's own, is woken when events have come.
    pub(crate) fn listen_for_events(&self, waker: &Waker) {
        self.add(waker, |listeners| &mut listeners.for_events);
    }

    fn add(&self, waker: &Waker, to: impl Fn(&mut Listeners) -> &mut Wakers) {
        if self.with_listeners(|listeners| to(listeners).knows(waker)) {
            return;
        }
        // To clone and to wake is another's code, which may come here.
        let waker = waker.clone();
        let woken = self.with_listeners(|listeners| to(listeners).add(waker));
        woken.into_iter().for_each(wake);
    }

    /// By the runner: events have come.
    #[inline]
    pub(crate) fn tell_of_events(&self) {
        // SAFETY: the runner alone touches the listeners.
        if self.listeners.with(|listeners| unsafe { (*listeners).is_some() }) {
            self.with_listeners(|listeners| listeners.for_events.take_all()).into_iter().for_each(wake);
        }
    }

    /// By the runner: nobody is woken any more by cancellation and events.
    #[inline]
    pub(crate) fn forget_listeners(&self) {
        // SAFETY: the runner alone touches the listeners.
        if self.listeners.with(|listeners| unsafe { (*listeners).is_some() }) {
            // SAFETY: as above; they are dropped when the reference is gone.
            drop(self.listeners.with_mut(|listeners| unsafe { (*listeners).take() }));
        }
    }

    /// `act` runs nobody else's code.
    fn with_listeners<R>(&self, act: impl FnOnce(&mut Listeners) -> R) -> R {
        // SAFETY: the runner alone touches the listeners, and `act` does not come here again.
        self.listeners.with_mut(|listeners| act(unsafe { (*listeners).get_or_insert_default() }))
    }

    /// As [`Self::listen_for_end`], without the second look.
    #[cfg(all(test, loom))]
    pub(crate) fn listen_carelessly(&self, waker: &Waker) -> bool {
        if self.is_done() {
            return true;
        }
        crate::sync::register(&self.joiner, waker);
        self.state.fetch_or(JOINER, AcqRel);
        false
    }

    /// As [`Self::finish`], with one step for both bits.
    #[cfg(all(test, loom))]
    pub(crate) fn finish_carelessly(&self, wake: impl FnOnce(&AtomicWaker)) -> bool {
        let mut state = self.state.load(Relaxed);
        while let Err(now) = self.state.compare_exchange(state, (state | DONE) & !RUNNER, AcqRel, Relaxed) {
            state = now;
        }
        if state & JOINER != 0 {
            wake(&self.joiner);
        }
        state & HANDLE == 0
    }
}

/// Another runtime's waker may panic.
fn wake(waker: Waker) {
    #[cfg(not(loom))]
    let _ = crate::process::contain(|| waker.wake());
    #[cfg(loom)]
    waker.wake();
}

/// Parts of the task, each with a waker of its own, that wait for what the process hears.
#[derive(Default)]
struct Listeners {
    is_cancelled: bool,
    for_cancel: Wakers,
    for_events: Wakers,
}

#[derive(Default)]
struct Wakers {
    wakers: Vec<Waker>,
    /// Who left them may be gone: so many, and all are woken, and those who still wait come again.
    max: usize,
}

impl Wakers {
    fn knows(&self, waker: &Waker) -> bool {
        self.wakers.iter().any(|known| known.will_wake(waker))
    }

    /// Those to be woken now.
    fn add(&mut self, waker: Waker) -> Vec<Waker> {
        let mut woken = Vec::new();
        if self.wakers.len() >= self.max.max(8) {
            // With twice as many allowed those who still wait fit in at some time.
            self.max = 2 * self.max.max(8);
            woken = self.take_all();
        }
        self.wakers.push(waker);
        woken
    }

    fn take_all(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers)
    }
}
