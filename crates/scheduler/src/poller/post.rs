//! The role of polling, and who sleeps with it.
//!
//! # Somebody comes to poll
//!
//! *A worker that parks* enters the list of sleepers, passes a full fence, and tries to take the role. *A
//! thread that is no worker* gives the role back (or registers a descriptor), passes a full fence, and looks
//! whether all workers are parked and none of them with the role: then it picks one, who is to be woken and
//! will take it. Of the two fences one comes first: either the worker finds the role free, or the thread
//! finds the worker parked.
//!
//! Model: `model::poller::somebody_comes_to_poll`, with `model::poller::who_looks_too_early_leaves_nobody`
//! as negative control.

use crate::sync::{Acquire, AtomicBool, AtomicU32, AtomicU64, Cell, Relaxed, Release, SeqCst, fence};
use crate::worker::idle::Idle;

/// The role; `T` is what one needs for it.
pub(crate) struct Post<T> {
    is_taken: AtomicBool,
    tools: Cell<T>,
    /// Who sleeps with the role, plus one; 0: nobody. A hint for others.
    sleeper: AtomicU32,
    /// Sleeps begun.
    sleeps: AtomicU64,
}

// SAFETY: of the threads that share it one at a time gets at the tools: who set `is_taken`.
unsafe impl<T: Send> Sync for Post<T> {}

/// The role, till it is dropped.
pub(crate) struct Taken<'a, T>(&'a Post<T>);

impl<T> Taken<'_, T> {
    /// Uses the tools.
    pub(crate) fn with<R>(&mut self, act: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: this is the only `Taken` there is, and it is borrowed for the time of the call.
        self.0.tools.with_mut(|tools| act(unsafe { &mut *tools }))
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `try_take`; who takes the role next sees the tools as they are.
        self.0.is_taken.store(false, Release);
    }
}

/// One sleep of one worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sleep {
    number: u64,
    pub(crate) worker: u16,
}

impl<T> Post<T> {
    pub(crate) fn new(tools: T) -> Self {
        Self {
            is_taken: AtomicBool::new(false),
            tools: Cell::new(tools),
            sleeper: AtomicU32::new(0),
            sleeps: AtomicU64::new(0),
        }
    }

    /// The role, if nobody has it.
    pub(crate) fn try_take(&self) -> Option<Taken<'_, T>> {
        // A plain look first: whoever has the role does not lose its line to those who ask in vain.
        if self.is_taken.load(Relaxed) {
            return None;
        }
        // A CAS and no swap: who fails writes nothing. (The value that a failed swap leaves behind loom takes
        // for one that may come after the `false` of who gives the role back, and reads it for ever.)
        self.is_taken.compare_exchange(false, true, Acquire, Relaxed).is_ok().then(|| Taken(self))
    }

    /// Worker `me`, who has the role, sleeps for as long as `sleep` runs.
    pub(crate) fn sleeping<R>(&self, me: u16, sleep: impl FnOnce() -> R) -> R {
        self.sleeps.fetch_add(1, Relaxed);
        self.sleeper.store(u32::from(me) + 1, Relaxed);
        let result = sleep();
        self.sleeper.store(0, Relaxed);
        result
    }

    /// Who sleeps with the role now.
    pub(crate) fn sleeper(&self) -> Option<Sleep> {
        let number = self.sleeps.load(Relaxed);
        let worker = self.sleeper.load(Relaxed).checked_sub(1)?;
        Some(Sleep { number, worker: worker as u16 })
    }

    /// For a thread that is no worker, after it gave the role back or registered something: whom it must
    /// wake so that somebody polls.
    pub(crate) fn whom_to_wake(&self, idle: &Idle) -> Option<u16> {
        // Pairs with the fence in `Idle::enter_at`; see the module's words.
        fence(SeqCst);
        if idle.all_parked() && self.sleeper.load(Relaxed) == 0 { idle.choose_any() } else { None }
    }
}
