//! The monitor: one thread of a host that notices what its workers cannot.
//!
//! While any worker is up it looks, soon after it got up and then every [`PERIOD`]: a worker whose turn
//! count has not moved while work waits with it gets a thief woken, who may then take the run-next place
//! too. If nobody sleeps who could be woken, a spare worker stands in for it ([`crate::worker::spare`]): at
//! once if its step blocks by its own word; at the first look that finds its thread off the processor, some
//! 100 us after it was called, or 25 us if there is no other worker; after 10 ms of computing
//! ([`crate::worker::long`]). It moves the coarse clock, and points busy workers to due timers and to what waits
//! in inject and global queues. When all workers are parked it sleeps without a limit; the first push after that
//! which wakes nobody wakes it, once for each idle period, after the push.
//!
//! It rests, too, while nothing waits behind the steps that run, for each of its looks may come in the way
//! of a worker that is just being woken: on two processors, with one worker blocked and messages each
//! millisecond from outside, looks every 3 ms made the 99th percentile of the delay 2.5 times as long.
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
//!
//! *While it rests* a step may be running that passed its last fence long ago, so the monitor rests in two
//! parts: it says that it sleeps, waits for [`SETTLED`], and looks again. A push of such a step is either
//! older than the word by now, and is seen by that look, or it is followed by a look at the word, which has
//! been there for 100 us: no processor keeps a store to itself, or runs a load ahead of one, for so long.
//! That is an argument of time, not of order, so the rest ends by itself after [`REST_MAX`].

use std::time::Duration;

use crate::sync::{AcqRel, Acquire, AtomicU32, Relaxed, SeqCst, fence};
use crate::worker::idle::{Idle, Parker};

/// How often it looks while any worker is up: a third of what FC-007 allows a waiting process, for a step
/// is found stuck at the second look at the latest.
pub(crate) const PERIOD: Duration = Duration::from_millis(3);

/// Its first look after a deep sleep: a step that blocks at once with work behind it is found soon. The gaps
/// double up to [`PERIOD`].
pub(crate) const FIRST_LOOK: Duration = Duration::from_micros(100);

/// If there is no other worker it does not even sleep till its first look, after so many nanoseconds: what waits
/// behind the step has nobody else to come.
const ALONE_LOOK: u64 = 25_000;

/// See the module's words on rests.
const SETTLED: Duration = Duration::from_micros(100);

/// It does not rest sooner than this after it was called: who leaves work behind a step pays for at most
/// one call in that time.
const CALLED_GAP: Duration = Duration::from_millis(1);

/// The longest rest while a step runs.
const REST_MAX: Duration = Duration::from_millis(100);

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

    /// Sleeps for as long as `limit` says, if all workers are still parked; for the monitor. `limit` may
    /// also say that it must not sleep: a limit of zero.
    pub(crate) fn sleep(&self, idle: &Idle, limit: impl FnOnce() -> Option<Duration>) {
        self.state.store(ASLEEP, Relaxed);
        // Pairs with the fence of a worker that is up again, see the module's words, and with that of a
        // thread that registers a descriptor, see those of `crate::poller`.
        fence(SeqCst);
        if idle.all_parked() {
            self.parker.park(limit());
        }
        self.state.store(AWAKE, Relaxed);
    }

    /// Says that it sleeps, while steps run; from now on it can be called.
    pub(crate) fn announce(&self) {
        self.state.store(ASLEEP, Relaxed);
        // Pairs with the fence of a worker that is up again; see the module's words.
        fence(SeqCst);
    }

    /// Has it been called since it said that it sleeps?
    pub(crate) fn is_called(&self) -> bool {
        self.state.load(Relaxed) == AWAKE
    }

    /// It sleeps no more. `true`: it was called.
    pub(crate) fn get_up(&self) -> bool {
        self.state.swap(AWAKE, AcqRel) == AWAKE
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

    use super::{ALONE_LOOK, CALLED_GAP, FIRST_LOOK, PERIOD, REST_MAX, SETTLED};
    use crate::poller::{self, Watchdog};
    use crate::route::host::{Engine, Hub, Phase};
    use crate::trace::Kind;
    use crate::worker::long::{Judge, LONG, Verdict};
    use crate::worker::spare::By;
    use crate::worker::timers::NEVER;
    use crate::{clock, shutdown};

    /// What the monitor knows of a host's workers and spares.
    struct Looks<'a> {
        engine: &'a Arc<Engine>,
        hub: &'static Hub,
        /// One for each worker and for each spare that may have work.
        judges: Vec<Judge>,
        parked: Vec<bool>,
        /// Something may have to be done before the next look is due.
        is_urgent: bool,
        /// Somebody blocks by its own word, and nobody stands in: who comes is to call.
        expects: bool,
    }

    impl Looks<'_> {
        /// Notes every turn, and since when it is the same.
        fn note_turns(&mut self, now: u64) {
            let count = self.hub.in_use();
            self.judges.resize_with(count, Judge::new);
            self.parked.resize(count, false);
            self.hub.idle.note_parked(&mut self.parked);
            for (index, judge) in self.judges.iter_mut().enumerate() {
                judge.note_turn(self.hub.entry(index), now);
            }
        }

        /// As [`Self::note_turns`], and how much processor time was used up to now by those who have left
        /// something behind. `true`: the only worker has.
        fn begin(&mut self, now: u64) -> bool {
            self.note_turns(now);
            let mut waits = false;
            for (index, judge) in self.judges.iter_mut().enumerate() {
                let worker = self.hub.entry(index);
                if !self.parked[index] && worker.has_waiting() {
                    judge.note_time(worker, now);
                    judge.note_front(worker);
                    waits = true;
                }
            }
            waits && self.hub.workers.len() == 1
        }

        /// One look: points workers to due timers, and thieves or a stand-in to work behind a step that does
        /// not end. `true`: nothing waits, and each worker that is up runs the same step as at the last look.
        fn look(&mut self, now: u64) -> bool {
            let hub = self.hub;
            self.note_turns(now);
            (self.is_urgent, self.expects) = (false, false);
            let mut is_calm = true;
            let global_waits = !hub.global.is_empty();
            let mut may_take_global = false;
            for index in 0..self.judges.len() {
                let worker = hub.entry(index);
                if index >= hub.workers.len() && !worker.is_standing() {
                    continue;
                }
                let (unmoved, is_parked) = (!self.judges[index].has_moved(), self.parked[index]);
                let due = worker.timers.next_due() <= now;
                let waits = due || worker.has_waiting();
                is_calm &= !waits && (unmoved || is_parked);
                may_take_global |= is_parked || !unmoved;
                // What waits beyond the local queues waits for a look around: 61 turns, which may be long ones.
                if due || (unmoved && waits) || global_waits || !worker.inject.is_empty() {
                    hub.trace.monitor(Kind::Attention, index);
                    worker.ask_attention();
                }
                if unmoved && waits {
                    hub.trace.monitor(Kind::Stuck, index);
                    worker.judge_stuck(self.judges[index].turn());
                    self.relieve(index, now);
                }
                if unmoved && !is_parked {
                    self.judges[index].count_if_long(worker, hub.id, now);
                    let turn = self.judges[index].turn();
                    self.expects |= worker.absence.is_away(turn) && worker.absence.stand_in().is_none();
                }
            }
            if global_waits {
                is_calm = false;
                if !may_take_global {
                    self.relieve(0, now);
                }
            }
            is_calm
        }

        /// Somebody is to take what waits behind a step: one who sleeps; else, when it is time, a spare.
        fn relieve(&mut self, index: usize, now: u64) {
            let hub = self.hub;
            if let Some(thief) = hub.idle.choose_any() {
                hub.trace.monitor(Kind::Thief, thief as usize);
                hub.entry(thief as usize).parker.unpark();
                return;
            }
            if self.judges[index].note_front(hub.entry(index)) {
                // Others are at it. One more thread would be in their way.
                return;
            }
            // The last of those who stand in, one for the other: as long as it moves it comes to that work.
            let mut last = index;
            for _ in 0..self.judges.len() {
                match hub.entry(last).absence.stand_in() {
                    Some(spare) => last = spare.into(),
                    None => break,
                }
            }
            let worker = hub.entry(last);
            let Some(judge) = self.judges.get_mut(last).filter(|judge| !judge.has_moved()) else {
                return;
            };
            let since = now.saturating_sub(worker.turn_seen_at.load(crate::sync::Relaxed));
            if hub.idle.counts().1 > 0 && since < LONG {
                // Whoever searches finds it.
                self.is_urgent = true;
                return;
            }
            match judge.verdict(worker, now) {
                Verdict::Lend => {
                    let turn = judge.turn();
                    hub.trace.monitor(Kind::Lend, last);
                    self.engine.spares.lend(self.engine, last as u16, turn, By::Monitor);
                }
                Verdict::Soon => self.is_urgent = true,
                Verdict::Later => {}
            }
        }

        /// How long it may rest: a timer of a worker that runs a step is the monitor's, and so is to notice
        /// that a step is long.
        fn rest(&self, now: u64) -> Duration {
            let due = self.hub.workers.iter().map(|worker| worker.timers.next_due()).min();
            let up = self.judges.iter().enumerate().filter(|&(index, _)| {
                !self.parked[index] && (index < self.hub.workers.len() || self.hub.entry(index).is_standing())
            });
            let long = up.filter_map(|(index, judge)| judge.long_at(self.hub.entry(index))).min();
            let end = due.unwrap_or(NEVER).min(long.unwrap_or(NEVER));
            let rest = Duration::from_nanos(end.saturating_sub(now)).min(REST_MAX);
            // While descriptors are registered somebody has to poll in time.
            if self.hub.poller.is_used() { rest.min(Duration::from_nanos(poller::STALE)) } else { rest }
        }
    }

    /// The monitor's whole life.
    pub(crate) fn run(engine: &Arc<Engine>) {
        clock::be_punctual();
        let hub = engine.hub;
        let watch = &hub.watch;
        let (judges, parked) = (Vec::new(), Vec::new());
        let mut looks = Looks { engine, hub, judges, parked, is_urgent: false, expects: false };
        let mut pause = PERIOD;
        let mut gap = FIRST_LOOK;
        let mut called_at = 0;
        let mut is_calm = false;
        let mut watchdog = Watchdog::default();
        loop {
            match hub.phase() {
                Phase::Gone => return,
                Phase::Ending => {
                    // Whoever is to end behind a step that does not gets a stand-in, too.
                    looks.look(clock::refresh());
                    if shutdown::sweep(engine) {
                        return;
                    }
                    watch.parker.park(Some(pause));
                    pause = (pause * 2).min(Duration::from_millis(500));
                    continue;
                }
                Phase::Open | Phase::Closing => {}
            }
            // While sockets are busy it would be called again at once, in the way of a message: it goes on
            // looking instead.
            let is_lively = hub.poller.is_used() && hub.poller.is_lively(clock::now_nanos());
            let was_called = if !is_lively && hub.idle.all_parked() {
                watch.sleep(&hub.idle, || match hub.phase() {
                    Phase::Open | Phase::Closing => watchdog.limit(hub),
                    Phase::Ending | Phase::Gone => Some(Duration::ZERO),
                });
                true
            } else if !is_lively && is_calm && clock::now_nanos() >= called_at + CALLED_GAP.as_nanos() as u64
            {
                watch.announce();
                let announced = clock::now_nanos();
                // An old token, or a wake for nothing, must not make that wait shorter.
                while !watch.is_called() && clock::now_nanos() < announced + SETTLED.as_nanos() as u64 {
                    watch.parker.park(Some(SETTLED));
                }
                let now = clock::refresh();
                is_calm = looks.look(now);
                let is_running = matches!(hub.phase(), Phase::Open | Phase::Closing);
                if is_calm && is_running && !watch.is_called() {
                    watch.parker.park(Some(looks.rest(now)));
                }
                watch.get_up()
            } else {
                if looks.expects && clock::now_nanos() >= called_at + CALLED_GAP.as_nanos() as u64 {
                    watch.announce();
                }
                if watch.parker.park(Some(gap)) {
                    watch.get_up();
                    called_at = clock::now_nanos();
                }
                is_calm = looks.look(clock::refresh());
                gap = if looks.is_urgent { FIRST_LOOK } else { (gap * 2).min(PERIOD) };
                false
            };
            if hub.poller.is_used() {
                watchdog.look(hub, clock::refresh());
            }
            if was_called {
                // A step that began since then is found stuck at the first look, not at the second.
                called_at = clock::refresh();
                gap = FIRST_LOOK;
                is_calm = false;
                if looks.begin(called_at) {
                    while clock::now_nanos() < called_at + ALONE_LOOK {
                        crate::sync::spin_loop();
                    }
                    is_calm = looks.look(clock::refresh());
                }
            }
        }
    }
}
