//! Spare workers: who stands in for a worker whose step does not end.
//!
//! # The picture
//!
//! A step never loses its worker: it may touch its own deque at any moment, and a deque with two owners
//! loses work. Instead a *spare* stands in for the worker: a worker like the others, with a deque, a FIFO
//! and a run-next place of its own, which takes from the absent one by the thieves' ways, and serves that
//! one's inject queue and timers (its *home's*) as if they were its own. Messages go on to the home, so that
//! nothing is ever left with a spare that has gone.
//!
//! Two reasons lead to it: the step says that it is about to block ([`blocking`]: *handed over*, by the owner,
//! before the closure runs, if work waits with it and nobody else could take it), or the monitor finds the
//! step long while work waits and nobody is parked (*lent*; see [`crate::worker::watch`]).
//!
//! # Protocol
//!
//! | word of the absent worker | moves | who | how |
//! | --- | --- | --- | --- |
//! | `stand_in` | none -> spare | the monitor, or the owner before it blocks | CAS |
//! | | spare -> none: recalled | the owner, at its first pick after the step, or before it parks | swap |
//! | | spare -> none: taken back | the monitor, if the step had ended meanwhile | CAS |
//! | `away_at` | 0 -> turn -> 0 | the owner, round the closure | store |
//!
//! *A spare stands in for as long as the word says so.* It looks at each look around, which a recall brings
//! about, and after it entered the list of sleepers. Then it puts what it has into the global queue, leaves
//! the idle accounting and lingers for the next call. A spare in a step of its own that does not end does so
//! when that step ends; it may itself have a stand-in, with the same home. A recall goes down that line.
//!
//! *No stand-in is forgotten.* Who lends writes the word, passes a full fence and looks at the turn; the owner
//! moves the turn, and before it parks passes a full fence (that of the list of sleepers) and looks at the
//! word. Either the lender sees that the step has ended and takes the spare back, or the owner sees the spare.
//! While it does not park the owner looks at each look around.
//!
//! *Nobody is forgotten behind a step that blocks by its own word.* The owner moves its run-next place to its
//! deque, writes `away_at`, says for the monitor that it may be called (if nobody sleeps or searches), passes
//! a full fence and looks at the queues. Who pushes does so, passes a full fence, and finds a sleeper or calls
//! the monitor, who lends at its first look. (The monitor takes the word back when it gets up for another
//! reason; then it finds the work at its next look.)
//!
//! *Who counts:* a spare belongs to [`crate::worker::idle::Idle`] from the act of lending, as searching, till
//! it has handed in what it had.
//!
//! # Memory
//!
//! What others touch of a spare is a `WorkerShared` of its hub, made when it is first needed and used again
//! for ever after. Its deque and FIFO have one owner at a time: the thread that took the spare's number off
//! the free list, under the lock under which the thread before gave it back when its handles were gone.
//!
//! Models: `model::lend`; the negative control is a stand-in that takes the deque itself over.

use crate::sync::{AcqRel, Acquire, AtomicU32, AtomicU64, Relaxed, SeqCst, fence};

/// Whether a worker is absent, and who stands in.
pub(crate) struct Absence {
    /// The number of the spare, plus one.
    stand_in: AtomicU32,
    /// The turn in which the owner runs a closure that may block; 0 if none.
    away_at: AtomicU64,
}

impl Absence {
    pub(crate) fn new() -> Self {
        Self { stand_in: AtomicU32::new(0), away_at: AtomicU64::new(0) }
    }

    /// Who stands in.
    #[inline]
    pub(crate) fn stand_in(&self) -> Option<u16> {
        // Acquire: pairs with the Release in `lend`; who sees the number finds the entry.
        self.stand_in.load(Acquire).checked_sub(1).map(|spare| spare as u16)
    }

    #[inline]
    pub(crate) fn is_stood_in_by(&self, spare: u16) -> bool {
        self.stand_in() == Some(spare)
    }

    /// From now on that spare stands in. `false`: somebody does already.
    pub(crate) fn lend(&self, spare: u16) -> bool {
        let lent = self.stand_in.compare_exchange(0, u32::from(spare) + 1, AcqRel, Acquire).is_ok();
        // Pairs with the fence of `Idle::enter`: the look at the turn that follows, or the owner's look at the
        // word after it entered the list. Model: model::lend::no_stand_in_is_forgotten.
        fence(SeqCst);
        lent
    }

    /// Nobody stands in any more; gives who did.
    pub(crate) fn recall(&self) -> Option<u16> {
        if self.stand_in.load(Relaxed) == 0 {
            return None;
        }
        self.stand_in.swap(0, AcqRel).checked_sub(1).map(|spare| spare as u16)
    }

    /// That spare does not stand in any more. `false`: it did not.
    pub(crate) fn take_back(&self, spare: u16) -> bool {
        self.stand_in.compare_exchange(u32::from(spare) + 1, 0, AcqRel, Acquire).is_ok()
    }

    /// The owner is about to block, in this turn. Then it looks at its queues.
    pub(crate) fn go_away(&self, turn: u64) {
        self.away_at.store(turn, Relaxed);
        // Pairs with the fence of `Idle::choose`; and what is said after it carries the turn along.
        // Model: model::lend::nobody_is_forgotten_behind_a_blocking_step.
        fence(SeqCst);
    }

    pub(crate) fn come_back(&self) {
        self.away_at.store(0, Relaxed);
    }

    /// Is the owner in a closure that may block, in that turn?
    pub(crate) fn is_away(&self, turn: u64) -> bool {
        turn != 0 && self.away_at.load(Relaxed) == turn
    }
}

#[cfg(not(loom))]
pub(crate) use program::{By, Spares};
#[cfg(not(loom))]
pub use program::{SPARES_MAX, blocking};

#[cfg(not(loom))]
mod program {
    //! The spares of a whole host.

    use std::sync::Arc;
    use std::time::Duration;

    use crate::clock;
    use crate::route::host::{Engine, Hub};
    use crate::stats::SpareStats;
    use crate::sync::{AtomicU64, Mutex, Relaxed};
    use crate::worker;

    /// At most so many spare workers has a host.
    pub const SPARES_MAX: usize = 512;

    /// How long the thread of a spare that has nothing to do stays.
    const LINGER: Duration = Duration::from_secs(5);

    /// How long nobody asks the system for a thread again after it gave none, in nanoseconds.
    const RETRY_GAP: u64 = 100_000_000;

    /// Runs a closure that may block, here, and lets another thread do this worker's work meanwhile.
    ///
    /// To be called from anything that a worker runs: a step, `init`, `close`, a handler, a hook. If work
    /// waits that nobody else could take, a spare worker stands in before the closure runs; if work comes
    /// later, then. The worker goes on with the step when the closure returns, and the spare is given up when
    /// the step ends. What the closure sends or spawns goes to where others take it at once.
    ///
    /// Elsewhere, and within another such closure, it simply runs the closure.
    ///
    /// At most [`crate::Builder::spares`] workers stand in at a time. Beyond that, or if the system gives no
    /// more threads, the closure runs all the same: then nobody stands in, what waits behind it waits for
    /// another worker, and [`crate::SpareStats::refused`] counts it. So it bounds the threads, not the
    /// closures; [`crate::commands::Blocking`] queues closures for a bounded pool instead.
    ///
    /// A wait for another process of the scheduler ([`crate::AskError::OnWorker`] and its like) stays refused
    /// within the closure: there may be nobody else to run that process.
    ///
    /// # Panics
    /// As the closure does; the worker is back by then.
    pub fn blocking<T>(act: impl FnOnce() -> T) -> T {
        let _away = worker::current().and_then(worker::Worker::go_away);
        act()
    }

    /// Who wants a stand-in.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) enum By {
        Owner,
        Monitor,
    }

    /// The spares of a host.
    pub(crate) struct Spares {
        max: usize,
        state: Mutex<State>,
        lent: AtomicU64,
        handed_over: AtomicU64,
        recalled: AtomicU64,
        refused: AtomicU64,
        not_started: AtomicU64,
    }

    #[derive(Default)]
    struct State {
        /// Spares whose threads wait to be called, the last comer last.
        lingering: Vec<u16>,
        /// Spares without a thread.
        free: Vec<u16>,
        /// Spares that stand in, or are about to.
        standing: Vec<u16>,
        threads: usize,
        retry_at: u64,
        is_closed: bool,
    }

    impl State {
        fn note_use(&self, hub: &Hub) {
            let end = self.standing.iter().max().map_or(hub.workers.len(), |&last| usize::from(last) + 1);
            hub.set_in_use(end);
        }
    }

    impl Spares {
        pub(crate) fn new(workers: usize, max: usize) -> Self {
            // Popped from the end: the lowest numbers first.
            let free = (workers..workers + max).rev().map(|spare| spare as u16).collect();
            let zero = || AtomicU64::new(0);
            Self {
                max,
                state: Mutex::new(State { free, ..State::default() }),
                lent: zero(),
                handed_over: zero(),
                recalled: zero(),
                refused: zero(),
                not_started: zero(),
            }
        }

        pub(crate) fn stats(&self) -> SpareStats {
            let state = self.state.lock();
            let of = |counter: &AtomicU64| counter.load(Relaxed);
            SpareStats {
                threads: state.threads,
                standing_in: state.standing.len(),
                lent: of(&self.lent),
                handed_over: of(&self.handed_over),
                recalled: of(&self.recalled),
                refused: of(&self.refused),
                not_started: of(&self.not_started),
            }
        }

        pub(crate) fn note_recall(&self) {
            self.recalled.fetch_add(1, Relaxed);
        }

        /// Lets a spare stand in for the worker `of`, whose turn is `turn`. `false`: there is none.
        pub(crate) fn lend(&self, engine: &Arc<Engine>, of: u16, turn: u64, by: By) -> bool {
            let Some(spare) = self.get(engine) else {
                if by == By::Owner {
                    self.refused.fetch_add(1, Relaxed);
                }
                return false;
            };
            let hub = engine.hub;
            let (absent, entry) = (hub.entry(of.into()), hub.entry(spare.into()));
            entry.stand_in_for(of, absent);
            hub.idle.join();
            // If it is not to be after all, the spare finds that out at once, and hands in.
            let lent = absent.absence.lend(spare);
            absent.ask_attention();
            if lent && by == By::Monitor && absent.turn() != turn {
                absent.absence.take_back(spare);
            }
            let counter = if by == By::Owner { &self.handed_over } else { &self.lent };
            counter.fetch_add(1, Relaxed);
            entry.parker.unpark();
            true
        }

        /// A spare with a thread, which waits for its token.
        fn get(&self, engine: &Arc<Engine>) -> Option<u16> {
            let hub = engine.hub;
            let spare = {
                let mut state = self.state.lock();
                if state.is_closed {
                    return None;
                }
                if let Some(spare) = state.lingering.pop() {
                    state.standing.push(spare);
                    state.note_use(hub);
                    return Some(spare);
                }
                if state.threads >= self.max || clock::now_nanos() < state.retry_at {
                    return None;
                }
                let spare = state.free.pop()?;
                hub.make_spare(spare);
                state.threads += 1;
                state.standing.push(spare);
                state.note_use(hub);
                spare
            };
            let life = move |engine: &Arc<Engine>| worker::run_spare(engine, spare);
            if engine.threads.start(engine, format!("worker {spare}"), life).is_ok() {
                return Some(spare);
            }
            self.not_started.fetch_add(1, Relaxed);
            let mut state = self.state.lock();
            state.threads -= 1;
            state.standing.retain(|&standing| standing != spare);
            state.note_use(hub);
            state.free.push(spare);
            state.retry_at = clock::now_nanos() + RETRY_GAP;
            None
        }

        /// Waits till this spare is to stand in, at most for [`LINGER`]; for its thread. `false`: its time is
        /// over.
        pub(crate) fn wait(&self, hub: &Hub, spare: u16) -> bool {
            let entry = hub.entry(spare.into());
            loop {
                if entry.parker.park(Some(LINGER)) {
                    return entry.is_standing();
                }
                let mut state = self.state.lock();
                if let Some(place) = state.lingering.iter().position(|&lingering| lingering == spare) {
                    state.lingering.swap_remove(place);
                    return false;
                }
                // Its token is on its way.
            }
        }

        /// The spare has handed in what it had. `true`: it may linger.
        pub(crate) fn give_back(&self, hub: &Hub, spare: u16) -> bool {
            hub.entry(spare.into()).stand_down();
            let mut state = self.state.lock();
            state.standing.retain(|&standing| standing != spare);
            state.note_use(hub);
            if state.is_closed {
                return false;
            }
            state.lingering.push(spare);
            true
        }

        /// The thread of the spare ends; its owner handles are gone.
        pub(crate) fn left(&self, spare: u16) {
            let mut state = self.state.lock();
            state.threads -= 1;
            state.free.push(spare);
        }

        /// Nobody stands in any more from here on; lingering threads leave.
        pub(crate) fn close(&self, hub: &Hub) {
            let lingering = {
                let mut state = self.state.lock();
                state.is_closed = true;
                std::mem::take(&mut state.lingering)
            };
            for spare in lingering {
                hub.entry(spare.into()).parker.unpark();
            }
        }
    }
}
