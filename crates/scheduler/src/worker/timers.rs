//! Timers of one worker: a tree ordered by due time, behind a short lock.
//!
//! The lock, not an owner: any thread cancels, and an idle worker fires the due timers of a busy one.
//! What fires is taken out under the lock and acted upon outside of it. Arming and cancelling cost
//! O(log n); whether anything is due is one load of `next_due`.

use std::collections::BTreeMap;

use crate::LocalPid;
use crate::command::TimerKey;
use crate::process::table::ReplyTo;
use crate::sync::{AtomicU64, Mutex, Relaxed};

/// Nothing is armed.
pub(crate) const NEVER: u64 = u64::MAX;

/// At most so many timers fire in one look, so that a look stays short; the rest is due at once again.
pub(crate) const FIRE_MAX: usize = 256;

/// What a timer does when it is due.
#[derive(Debug)]
pub(crate) enum TimerAction {
    /// Completes a yield with the time it was due for.
    Complete(ReplyTo),
    /// Completes a yield with "timed out".
    TimeOut(ReplyTo),
    /// Wakes a future.
    Wake(std::task::Waker),
    /// Ends a process whose cancellation ran out of time.
    Kill(LocalPid, std::sync::Arc<str>),
}

pub(crate) struct Timers {
    next_due: AtomicU64,
    armed: Mutex<Armed>,
}

struct Armed {
    tree: BTreeMap<TimerKey, TimerAction>,
    last_number: u64,
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self {
            next_due: AtomicU64::new(NEVER),
            armed: Mutex::new(Armed { tree: BTreeMap::new(), last_number: 0 }),
        }
    }

    /// When the earliest is due, in nanoseconds of [`crate::clock`]; [`NEVER`] if none is armed.
    #[inline]
    pub(crate) fn next_due(&self) -> u64 {
        self.next_due.load(Relaxed)
    }

    /// Arms a timer. Those due at [`NEVER`] stay armed and never fire.
    pub(crate) fn arm(&self, worker: u16, due: u64, action: TimerAction) -> TimerKey {
        let mut armed = self.armed.lock();
        armed.last_number += 1;
        let key = TimerKey { due, number: armed.last_number, worker };
        armed.tree.insert(key, action);
        self.note(&armed);
        key
    }

    /// Takes a timer away; `false`: it has fired or is gone.
    pub(crate) fn cancel(&self, key: TimerKey) -> bool {
        let mut armed = self.armed.lock();
        let action = armed.tree.remove(&key);
        self.note(&armed);
        drop(armed);
        // Outside of the lock: it may be another runtime's waker.
        action.is_some()
    }

    /// Hands out what is due at `now`, earliest first, at most [`FIRE_MAX`]; outside of the lock.
    pub(crate) fn fire(&self, now: u64, mut act: impl FnMut(TimerKey, TimerAction)) -> usize {
        if self.next_due() > now {
            return 0;
        }
        let mut due = Vec::new();
        {
            let Some(mut armed) = self.armed.try_lock() else {
                return 0;
            };
            while due.len() < FIRE_MAX {
                match armed.tree.first_key_value() {
                    Some((key, _)) if key.due <= now && key.due != NEVER => {}
                    _ => break,
                }
                due.extend(armed.tree.pop_first());
            }
            self.note(&armed);
        }
        let fired = due.len();
        for (key, action) in due {
            act(key, action);
        }
        fired
    }

    /// Takes every timer away, when the host has ended. Futures are woken, to be told.
    pub(crate) fn end(&self) {
        let tree = {
            let mut armed = self.armed.lock();
            let all = std::mem::take(&mut armed.tree);
            self.note(&armed);
            all
        };
        // A waker's wake and drop are another runtime's code.
        for (_, action) in tree {
            let _ = crate::process::contain(|| match action {
                TimerAction::Wake(waker) => waker.wake(),
                other => drop(other),
            });
        }
    }

    /// How many are armed.
    pub(crate) fn len(&self) -> usize {
        self.armed.lock().tree.len()
    }

    fn note(&self, armed: &Armed) {
        let due = armed.tree.first_key_value().map_or(NEVER, |(key, _)| key.due);
        // Relaxed: a hint. Who arms a timer for a worker other than itself wakes that worker.
        self.next_due.store(due, Relaxed);
    }
}
