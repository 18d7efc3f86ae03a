//! The monitor: one thread of a host that notices what its workers cannot.
//!
//! While any worker is up it looks, soon after it got up and then every [`PERIOD`]: a worker whose turn count has not moved while work
//! waits with it gets a thief woken, who may then take the run-next place too. It moves the coarse clock,
//! and points busy workers to due timers. When all workers are parked it sleeps without a limit; the
//! first push after that which wakes nobody wakes it, once for each idle period, after the push.
//!
//! It also ends what is left when a scheduler is dropped or its shutdown ran out of time.
//!
//! # No step is left unwatched
//!
//! *The monitor* says that it sleeps, passes a full fence, and looks once more whether all workers are
//! parked. *A worker that is up* has passed a full fence since it left the list of sleepers, before it
//! leaves work behind a step and looks whether the monitor sleeps. Of the two fences one comes first:
//! either the monitor sees a worker that is up, or the worker sees that the monitor sleeps.
//!
//! Model: `model::watch::no_step_is_left_unwatched`.

use std::time::Duration;

use crate::sync::{AcqRel, Acquire, AtomicU32, Relaxed, SeqCst, fence};
use crate::worker::idle::{Idle, Parker};

/// How often it looks while any worker is up: a third of what FC-007 allows a waiting process, for a step
/// is found stuck at the second look at the latest.
pub(crate) const PERIOD: Duration = Duration::from_millis(3);

/// Its first look after a deep sleep: a step that blocks at once with work behind it is found soon. The gaps
/// double up to [`PERIOD`].
pub(crate) const FIRST_LOOK: Duration = Duration::from_micros(100);

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// The monitor's bed.
pub(crate) struct Watch {
    state: AtomicU32,
    parker: Parker,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU32::new(AWAKE), parker: Parker::new() }
    }

    /// Something waits behind a running step: somebody has to watch that step.
    #[inline(always)]
    pub(crate) fn ensure_awake(&self) {
        if self.state.load(Relaxed) == ASLEEP {
            self.wake();
        }
    }

    #[cold]
    pub(crate) fn wake(&self) {
        if self.state.compare_exchange(ASLEEP, AWAKE, AcqRel, Acquire).is_ok() {
            self.parker.unpark();
        }
    }

    /// Sleeps without a limit, if all workers are still parked and `may` says so; for the monitor.
    pub(crate) fn sleep(&self, idle: &Idle, may: impl FnOnce() -> bool) {
        self.state.store(ASLEEP, Relaxed);
        // Pairs with the fence of a worker that is up again; see the module's words.
        fence(SeqCst);
        if idle.all_parked() && may() {
            self.parker.park(None);
        }
        self.state.store(AWAKE, Relaxed);
    }

    /// Wakes it from a short sleep too.
    pub(crate) fn call(&self) {
        self.state.store(AWAKE, Relaxed);
        self.parker.unpark();
    }
}

#[cfg(not(loom))]
pub(crate) use program::run;

#[cfg(not(loom))]
mod program {
    //! The monitor of a whole host.

    use std::sync::Arc;
    use std::time::Duration;

    use super::{FIRST_LOOK, PERIOD};
    use crate::route::host::{Engine, Phase};
    use crate::sync::Relaxed;
    use crate::worker::WorkerShared;
    use crate::{clock, shutdown};

    /// Notes the worker's turn, and since when it is the same. `true`: it has moved.
    fn note_turn(worker: &WorkerShared, last: &mut u64, now: u64) -> bool {
        let turn = worker.turn();
        if turn == *last {
            return false;
        }
        *last = turn;
        worker.turn_seen_at.store(now, Relaxed);
        true
    }

    /// The monitor's whole life.
    pub(crate) fn run(engine: &Arc<Engine>) {
        let hub = engine.hub;
        let watch = &hub.watch;
        let mut seen = vec![u64::MAX; hub.workers.len()];
        let mut pause = PERIOD;
        let mut gap = FIRST_LOOK;
        loop {
            match hub.phase() {
                Phase::Gone => return,
                Phase::Ending => {
                    let now = clock::refresh();
                    for (worker, last) in hub.workers.iter().zip(&mut seen) {
                        note_turn(worker, last, now);
                    }
                    if shutdown::sweep(engine) {
                        return;
                    }
                    watch.parker.park(Some(pause));
                    pause = (pause * 2).min(Duration::from_millis(500));
                    continue;
                }
                Phase::Open | Phase::Closing => {}
            }
            if hub.idle.all_parked() {
                watch.sleep(&hub.idle, || matches!(hub.phase(), Phase::Open | Phase::Closing));
                // A step that began since then is found stuck at the first look, not at the second.
                let now = clock::refresh();
                for (worker, last) in hub.workers.iter().zip(&mut seen) {
                    note_turn(worker, last, now);
                }
                gap = FIRST_LOOK;
                continue;
            }
            watch.parker.park(Some(gap));
            gap = (gap * 2).min(PERIOD);
            let now = clock::refresh();
            for (worker, last) in hub.workers.iter().zip(&mut seen) {
                let due = worker.timers.next_due() <= now;
                let unmoved = !note_turn(worker, last, now);
                let waits = due || worker.has_waiting();
                if due || (unmoved && waits) {
                    worker.ask_attention();
                }
                if unmoved && waits {
                    worker.judge_stuck(*last);
                    if let Some(thief) = hub.idle.choose_any() {
                        hub.workers[thief as usize].parker.unpark();
                    }
                }
            }
        }
    }
}
