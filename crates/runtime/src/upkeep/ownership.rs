//! Who this worker is, and how long it may believe that.
//!
//! Each boot has a number of its own; instances are owned by boots. A heartbeat says that the boot lives. When
//! the store says that it is dead, everything that it owned may have another owner: what runs is aborted, and
//! a new boot is registered. Between two answers the boot is trusted for a time that is shorter than the one
//! after which others may judge it; the epochs in the store, not this clock, give safety.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use evener_actor::id::Boot;

use crate::work::{Bell, Pace, Work};
use crate::worker::RuntimeWorker;

/// Who this worker is.
#[derive(Debug)]
pub struct Ownership {
    boot: AtomicI64,
    /// When the last heartbeat that was answered was sent, in milliseconds of the clock, plus 1; 0: never.
    answered_ms: AtomicU64,
    trust: Duration,
    is_suspect: AtomicBool,
}

impl Ownership {
    pub(crate) fn new(trust: Duration) -> Self {
        Self {
            boot: AtomicI64::new(0),
            answered_ms: AtomicU64::new(0),
            trust,
            is_suspect: AtomicBool::new(false),
        }
    }

    /// The boot.
    #[must_use]
    pub fn boot(&self) -> Boot {
        // Acquire: pairs with the Release in `be`; what a boot owns is looked at after its number.
        Boot(self.boot.load(Ordering::Acquire))
    }

    pub(crate) fn be(&self, boot: Boot, now: Duration) {
        self.answered(now);
        self.is_suspect.store(false, Ordering::Release);
        self.boot.store(boot.0, Ordering::Release);
    }

    pub(crate) fn answered(&self, sent: Duration) {
        let sent = u64::try_from(sent.as_millis()).unwrap_or(u64::MAX - 1);
        self.answered_ms.fetch_max(sent + 1, Ordering::AcqRel);
    }

    /// Whether calls may be started and batches be sent.
    #[must_use]
    pub fn is_trusted(&self, now: Duration) -> bool {
        let answered = self.answered_ms.load(Ordering::Acquire);
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        answered > 0
            && !self.is_suspect.load(Ordering::Acquire)
            && now.saturating_sub(answered - 1) <= u64::try_from(self.trust.as_millis()).unwrap_or(u64::MAX)
    }

    /// The store took this boot for dead: the next heartbeat will tell.
    pub(crate) fn suspect(&self, why: &str) {
        let _ = why;
        self.is_suspect.store(true, Ordering::Release);
    }

    fn is_suspected(&self) -> bool {
        self.is_suspect.load(Ordering::Acquire)
    }
}

/// Sends heartbeats, and judges others.
#[derive(Debug)]
pub struct Heartbeat {
    worker: std::sync::Weak<RuntimeWorker>,
    bell: Bell,
    state: Mutex<State>,
    is_stale: AtomicBool,
}

/// Workers that are looked at, at most.
const WORKERS_MAX: u32 = 10_000;

#[derive(Debug, Default)]
struct State {
    next: Duration,
    tries: u32,
    /// Answered heartbeats in a row, each in its time. Who has not had two judges nobody: after an outage of the
    /// database all look silent.
    in_a_row: u32,
    last_sent: Duration,
}

impl Heartbeat {
    pub(crate) fn new(worker: std::sync::Weak<RuntimeWorker>) -> Self {
        Self { worker, bell: Bell::default(), state: Mutex::default(), is_stale: AtomicBool::new(true) }
    }

    /// Who lives, and what is paused, is looked up again soon.
    pub(crate) fn refresh(&self) {
        self.is_stale.store(true, Ordering::Release);
        self.bell.ring();
    }

    fn look_up(&self, worker: &RuntimeWorker) {
        if !self.is_stale.swap(false, Ordering::AcqRel) {
            return;
        }
        let looked = worker.store.workers(WORKERS_MAX).and_then(|workers| {
            let live = workers.iter().filter(|other| other.is_live).map(|other| other.boot).collect();
            if worker.peers.are(live) {
                worker.balance();
            }
            let mut paused = Vec::new();
            for tenant in worker.router.tenants() {
                paused.extend(worker.store.paused(tenant)?);
            }
            worker.pause_all(paused);
            Ok(())
        });
        if let Err(error) = looked {
            worker.store_failed("look up who is there", &error);
            self.is_stale.store(true, Ordering::Release);
        }
    }
}

impl Work for Heartbeat {
    fn name(&self) -> String {
        "evener-heartbeat".to_owned()
    }

    fn bell(&self) -> &Bell {
        &self.bell
    }

    fn step(&self) -> Pace {
        let Some(worker) = self.worker.upgrade() else { return Pace::Idle };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = worker.clock.now();
        if now < state.next && !worker.ownership.is_suspected() {
            self.look_up(&worker);
            return Pace::Wait(state.next.saturating_sub(now));
        }
        let boot = worker.ownership.boot();
        let heartbeat = worker.config.heartbeat;
        match worker.store.heartbeat(boot, worker.load()) {
            Ok(true) => {
                let was_trusted = worker.ownership.is_trusted(now);
                worker.ownership.be(boot, now);
                if !was_trusted {
                    worker.gate.wake_all();
                }
                let is_in_time = now.saturating_sub(state.last_sent) <= heartbeat + heartbeat / 2;
                state.in_a_row = if is_in_time { state.in_a_row.saturating_add(1) } else { 1 };
                state.last_sent = now;
                state.tries = 0;
                // Up to a tenth sooner, so that many workers do not beat as one.
                let jitter = heartbeat.mul_f64(worker.chance_unit() * 0.1);
                state.next = now.saturating_add(heartbeat.saturating_sub(jitter));
                self.is_stale.store(true, Ordering::Release);
                if state.in_a_row >= 2 {
                    match worker.store.judge(boot, worker.config.stale) {
                        Ok(dead) if !dead.is_empty() => worker.workers_died(&dead),
                        Ok(_) => {}
                        Err(error) => worker.store_failed("judge the silent", &error),
                    }
                }
                self.look_up(&worker);
                // By now, for the store may have taken its time.
                Pace::Wait(state.next.saturating_sub(worker.clock.now()))
            }
            Ok(false) => {
                // Dead: whatever this boot owned may have another owner by now.
                worker.died();
                match worker.store.register(&worker.config.worker_id) {
                    Ok(boot) => {
                        worker.ownership.be(boot, now);
                        worker.gate.wake_all();
                        state.in_a_row = 0;
                        state.last_sent = now;
                        state.next = now.saturating_add(heartbeat);
                        worker.look();
                        Pace::Again
                    }
                    Err(error) => {
                        worker.store_failed("register anew", &error);
                        state.tries += 1;
                        Pace::Wait(worker.pause(&error, state.tries))
                    }
                }
            }
            Err(error) => {
                worker.store_failed("send a heartbeat", &error);
                state.tries += 1;
                state.in_a_row = 0;
                state.next = now;
                Pace::Wait(worker.pause(&error, state.tries).min(heartbeat / 4))
            }
        }
    }
}
