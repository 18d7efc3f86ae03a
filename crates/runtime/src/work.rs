//! What the store's threads do: pieces of work that each make one call of the store at a time.
//!
//! A piece of work has a queue that anybody may add to and a step that one thread takes. In the program each has
//! a thread that sleeps on its bell; in a simulation the world takes the steps, in any order.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// What follows a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// There may be more to do at once.
    Again,
    /// Nothing before that time has passed, unless the bell rings.
    Wait(Duration),
    /// Nothing before the bell rings.
    Idle,
}

/// A piece of work.
pub trait Work: Send + Sync {
    /// For people: the name of its thread.
    fn name(&self) -> String;

    /// Does the next thing. One thread at a time.
    fn step(&self) -> Pace;

    /// What wakes it.
    fn bell(&self) -> &Bell;
}

/// Wakes one sleeper, now or at its next sleep.
#[derive(Debug, Default)]
pub struct Bell {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    has_rung: bool,
    is_closed: bool,
}

impl Bell {
    /// Wakes the sleeper.
    pub fn ring(&self) {
        let mut state = self.lock();
        if !state.has_rung {
            state.has_rung = true;
            self.changed.notify_one();
        }
    }

    /// Wakes it for good.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Sleeps till the bell rings, at most so long; `false`: it is closed.
    pub fn sleep(&self, longest: Option<Duration>) -> bool {
        let mut state = self.lock();
        if !state.has_rung && !state.is_closed {
            state = match longest {
                None => self
                    .changed
                    .wait_while(state, |state| !state.has_rung && !state.is_closed)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(longest) => {
                    self.changed
                        .wait_timeout_while(state, longest, |state| !state.has_rung && !state.is_closed)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
        state.has_rung = false;
        !state.is_closed
    }

    /// `true`: it has rung since the last sleep.
    #[must_use]
    pub fn has_rung(&self) -> bool {
        self.lock().has_rung
    }

    /// `true`: it is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes steps until the bell is closed.
pub fn run(work: &dyn Work) {
    loop {
        let is_open = match work.step() {
            Pace::Again => !work.bell().is_closed(),
            Pace::Wait(longest) => work.bell().sleep(Some(longest)),
            Pace::Idle => work.bell().sleep(None),
        };
        if !is_open {
            return;
        }
    }
}
