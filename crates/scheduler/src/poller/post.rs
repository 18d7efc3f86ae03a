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

use crate::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Relaxed, SeqCst, fence};
use crate::worker::idle::Idle;

/// The role; `T` is what one needs for it.
pub(crate) struct Post<T> {
    role: Mutex<T>,
    /// Who sleeps with the role, plus one; 0: nobody. A hint for others.
    sleeper: AtomicU32,
    /// Sleeps begun.
    sleeps: AtomicU64,
}

/// One sleep of one worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sleep {
    number: u64,
    pub(crate) worker: u16,
}

impl<T> Post<T> {
    pub(crate) fn new(tools: T) -> Self {
        Self { role: Mutex::new(tools), sleeper: AtomicU32::new(0), sleeps: AtomicU64::new(0) }
    }

    /// The role, if nobody has it.
    pub(crate) fn try_take(&self) -> Option<MutexGuard<'_, T>> {
        self.role.try_lock()
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
