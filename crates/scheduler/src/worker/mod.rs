//! A worker: a logical processor and the thread that drives it.
//!
//! # Where it looks, in this order
//!
//! 1. every `LOOK_AROUND`-th turn: all of the own inject queue, one from the global queue, due timers, and
//!    the poller, if descriptors are registered and nobody has polled for half a millisecond;
//! 2. the run-next place, at most [`NEXT_MAX`] times in a row;
//! 3. the young end of its deque, at most [`YOUNG_MAX`] times in a row;
//! 4. the oldest it has: the head of its FIFO, else the old end of the deque, else the run-next place (while
//!    the young end still has more: FIFO and deque by turns);
//! 5. the own inject queue, all of it (at most `INJECT_MAX`): one runs, the rest goes to the FIFO;
//! 6. the global queue, up to its fair share, at most [`GLOBAL_MAX`];
//! 7. due timers, its own;
//! 8. the poller, without waiting, if descriptors are registered;
//! 9. others, from a random one on: FIFO, deque, inject queue, due timers, and the run-next place of one
//!    that the monitor found stuck;
//! 10. a short spin over all this; then the run-next place of one whose turn is the same as before the spin;
//!    then the park: in the poller, if descriptors are registered and nobody else is there.
//!
//! # How long a ready process waits
//!
//! In turns of its worker, while that worker always has other work (`N = NEXT_MAX`, `Y = YOUNG_MAX`,
//! `L = LOOK_AROUND`). Between two picks of step 4 lie at most `B = (Y + 1) * (N + 1)` turns, and one more
//! for each look around among them.
//!
//! | waits in | at most, in turns |
//! | --- | --- |
//! | FIFO, with `p` before it | `(p + 1) * 2B` (`B` where the deque runs dry) |
//! | deque, with `p` older ones | `(p + 1) * 2B` |
//! | run-next place | 1, or a turn of step 4 first: `B` |
//! | inject queue | `L`, then as in the FIFO |
//! | global queue, with `p` before it | `(p + 1) * L`, with one worker |
//! | socket, ready | `L`, or half a millisecond, or one turn and `poller::STALE`, whichever is longer; then as a process that was woken |
//! | timer, due | `L` |
//!
//! Where `L` turns take longer than a period of the monitor ([`watch::PERIOD`]), the monitor asks for a look
//! around: read one turn and that period in place of `L` then; and that look takes up to [`GLOBAL_MAX`] from
//! the global queue.
//!
//! Tests: `it::fairness`.

pub(crate) mod idle;
pub(crate) mod timers;
pub(crate) mod watch;

use std::cell::{Cell, RefCell, UnsafeCell};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::command::{CommandRequest, Completer, HandlerContext, Pending, YieldError};
use crate::memory::{self, Class, InMemory, Magazines};
use crate::poller::{self, Poller, Role};
use crate::process::budget;
use crate::process::event_queue::{Cells, TURN_ROUND_MAX, turn_round_part};
use crate::process::message::{self, CHAIN_MAX, Extension, Message};
use crate::process::slot::{After, Slot, Wait};
use crate::process::table::{Cold, ProcessTable, ReplyTo};
use crate::process::{
    Ending, Events, ExitReason, InitContext, ProcessError, ResetError, Status, StepOutput, TableFor, Turn,
    Upgrade, body_of, cold_of, contain, contained, free_body, place_body,
};
use crate::queues::deque::{self, Deque};
use crate::queues::fifo::{self, Fifo};
use crate::queues::inject::Inject;
use crate::queues::next::NextPlace;
use crate::queues::{Item, STEAL_MAX, Steal};
use crate::route::host::{Engine, Hub, Phase};
use crate::route::{self, links};
use crate::stats::Counters;
use crate::sync::{AtomicBool, AtomicU64, Relaxed, Release};
use crate::sync::{spin_loop, thread};
use crate::worker::idle::{Left, Parker};
use crate::worker::timers::{NEVER, TimerAction, Timers};
use crate::{LocalPid, Payload, Pid, clock};

/// Turns between two looks beyond the local queues. A prime, as in Go's scheduler (`schedtick%61`).
pub(crate) const LOOK_AROUND: u32 = 61;
/// Picks from the run-next place in a row (tokio's `MAX_LIFO_POLLS_PER_TICK`).
pub(crate) const NEXT_MAX: u32 = 3;
/// Picks from the young end in a row.
pub(crate) const YOUNG_MAX: u32 = 16;
/// At most so many nanoseconds of rounds that yield to other threads.
const YIELDING_MAX: u64 = 100_000;
/// A step that lasts for so many nanoseconds of a search has no claim any more on what it wakes. (Go's
/// thieves wait 3 us before they take a running processor's `runnext`.)
const LONG_STEP: u64 = 10_000;
/// Taken from the global queue at once.
pub(crate) const GLOBAL_MAX: usize = 16;
/// Places in a local queue.
pub(crate) const LOCAL_MAX: usize = 256;

/// What others may touch of a worker. Type-stable, like its [`Hub`].
#[repr(align(128))]
pub(crate) struct WorkerShared {
    pub(crate) inject: Inject,
    next: NextLine,
    deque: Deque<LOCAL_MAX>,
    fifo: Fifo<LOCAL_MAX>,
    /// The turn at which the monitor found it stuck.
    stuck_at: AtomicU64,
    /// When the monitor first saw the present turn, in nanoseconds of [`crate::clock`].
    pub(crate) turn_seen_at: AtomicU64,
    pub(crate) timers: Timers,
    pub(crate) parker: Parker<&'static Poller>,
    pub(crate) counters: Counters,
}

/// The process that runs next.
#[repr(align(128))]
struct NextLine(
    NextPlace,
    /// The monitor has seen something that cannot wait for the next look around. In this line, for the
    /// owner looks at it at each pick.
    AtomicBool,
);

impl WorkerShared {
    pub(crate) fn new(poller: &'static Poller) -> Self {
        Self {
            inject: Inject::new(),
            next: NextLine(NextPlace::new(), AtomicBool::new(false)),
            deque: Deque::new(),
            fifo: Fifo::new(),
            stuck_at: AtomicU64::new(0),
            turn_seen_at: AtomicU64::new(0),
            timers: Timers::new(),
            parker: Parker::with_bell(poller),
            counters: Counters::new(),
        }
    }

    /// The number of its present turn.
    #[inline]
    pub(crate) fn turn(&self) -> u64 {
        self.counters.turns.load(Relaxed)
    }

    /// Does anything wait with it that a thief may take?
    pub(crate) fn has_waiting(&self) -> bool {
        self.has_stealable() || !self.next.0.is_empty()
    }

    #[inline]
    fn has_stealable(&self) -> bool {
        !self.fifo.is_empty() || !self.deque.is_empty() || !self.inject.is_empty()
    }

    #[inline]
    pub(crate) fn has_deque(&self) -> bool {
        !self.deque.is_empty()
    }

    pub(crate) fn judge_stuck(&self, turn: u64) {
        self.stuck_at.store(turn, Relaxed);
    }

    /// For the hub's next host.
    pub(crate) fn forget_host(&self) {
        self.stuck_at.store(0, Relaxed);
        self.next.1.store(false, Relaxed);
    }

    fn is_stuck(&self) -> bool {
        let turn = self.turn();
        turn != 0 && self.stuck_at.load(Relaxed) == turn
    }

    pub(crate) fn ask_attention(&self) {
        self.next.1.store(true, Relaxed);
    }

    /// Processes in its queues, roughly.
    pub(crate) fn queued(&self) -> (usize, usize, usize) {
        (self.deque.len() + usize::from(!self.next.0.is_empty()), self.fifo.len(), self.inject.len())
    }
}

/// The thread's own side of a worker. Everything in it is touched by that thread alone.
pub(crate) struct Worker {
    engine: Arc<Engine>,
    hub: &'static Hub,
    me: u16,
    shared: &'static WorkerShared,
    deque: deque::Owner<'static, LOCAL_MAX>,
    fifo: fifo::Owner<'static, LOCAL_MAX>,
    pub(crate) magazines: Magazines,
    next_streak: Cell<u32>,
    young_streak: Cell<u32>,
    /// Whose turn it was last when the young end had more: the deque's old end or the FIFO's.
    oldest_from_deque: Cell<bool>,
    /// Picks till the next look around.
    until_look: Cell<u32>,
    /// Looks around so far.
    looks: Cell<u32>,
    /// The next step is timed.
    sample: Cell<bool>,
    searching: Cell<bool>,
    rng: Cell<u64>,
    /// Recent mean of the gaps between running out of work and having some again, in nanoseconds.
    gap: Cell<u64>,
    events_per_step_max: u32,
    /// Yields handed out by the step that runs.
    yields: RefCell<Vec<CommandRequest>>,
    has_yields: Cell<bool>,
    /// Who waits for the answer to the request that the step took last, first asker first.
    chain_len: Cell<usize>,
    chain: Cell<[Option<LocalPid>; CHAIN_MAX + 1]>,
    /// Timers are being fired, or those woken whom a poll has found.
    is_between_steps: Cell<bool>,
    /// A buffer for steals.
    loot: UnsafeCell<[Item; STEAL_MAX]>,
    /// Whom the last poll wakes.
    polled: RefCell<Vec<Waker>>,
}

thread_local! {
    static CURRENT: Cell<*const Worker> = const { Cell::new(ptr::null()) };
}

/// The worker that this thread drives, if any.
#[inline(always)]
pub(crate) fn current<'a>() -> Option<&'a Worker> {
    // SAFETY: `run_thread` sets it for exactly as long as the worker lives on this thread's stack, and
    // the reference does not leave the thread: `Worker` is not `Sync`.
    unsafe { CURRENT.get().as_ref() }
}

/// Runs `act` with this thread's magazines.
#[inline(always)]
pub(crate) fn with_magazines<R>(act: impl FnOnce(&Magazines) -> R) -> R {
    match current() {
        Some(worker) => act(&worker.magazines),
        None => memory::outside(act),
    }
}

/// The life of a worker's thread.
pub(crate) fn run_thread(engine: &Arc<Engine>, me: u16) {
    let hub = engine.hub;
    let shared = &hub.workers[me as usize];
    let worker = Worker {
        engine: Arc::clone(engine),
        hub,
        me,
        shared,
        // SAFETY: a hub is driven by one engine at a time, which starts one thread for each worker; the
        // handles end with it.
        deque: unsafe { shared.deque.owner() },
        // SAFETY: as above.
        fifo: unsafe { shared.fifo.owner() },
        magazines: Magazines::new(),
        next_streak: Cell::new(0),
        young_streak: Cell::new(0),
        oldest_from_deque: Cell::new(false),
        until_look: Cell::new(LOOK_AROUND - 1),
        looks: Cell::new(0),
        sample: Cell::new(false),
        searching: Cell::new(false),
        rng: Cell::new(0x9E37_79B9_7F4A_7C15 ^ (u64::from(me) + 1) << 32 ^ u64::from(hub.id)),
        gap: Cell::new(u64::MAX / 8),
        events_per_step_max: engine.config.events_per_step_max,
        yields: RefCell::new(Vec::new()),
        has_yields: Cell::new(false),
        chain_len: Cell::new(0),
        chain: Cell::new([None; CHAIN_MAX + 1]),
        is_between_steps: Cell::new(false),
        loot: UnsafeCell::new([0; STEAL_MAX]),
        polled: RefCell::new(Vec::new()),
    };
    /// Also if a fault of ours unwinds: what runs at the end of the thread must not find a worker.
    struct Gone;
    impl Drop for Gone {
        fn drop(&mut self) {
            CURRENT.set(ptr::null());
        }
    }
    let _gone = Gone;
    CURRENT.set(&raw const worker);
    worker.run_until_gone();
}

impl Worker {
    #[inline(always)]
    pub(crate) fn hub(&self) -> &'static Hub {
        self.hub
    }
    #[inline(always)]
    pub(crate) fn host(&self) -> u16 {
        self.hub.id
    }
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }
    #[inline(always)]
    pub(crate) fn engine_arc(&self) -> Arc<Engine> {
        Arc::clone(&self.engine)
    }

    /// Adds one to a counter of this worker, if counters are built in.
    #[inline(always)]
    pub(crate) fn count(&self, counter: impl FnOnce(&Counters) -> &AtomicU64) {
        if cfg!(feature = "stats") {
            Counters::bump(counter(&self.shared.counters));
        }
    }

    /// A step of this worker made a process.
    #[inline(always)]
    pub(crate) fn note_birth(&self) {
        Counters::bump(&self.shared.counters.spawned);
    }

    /// Does something wait that cannot wait for many more events of this step?
    #[inline(always)]
    pub(crate) fn is_called(&self) -> bool {
        self.shared.next.1.load(Relaxed)
    }

    // ---------------------------------------------------------------- the loop

    fn run_until_gone(&self) {
        loop {
            let found = self.pick().or_else(|| self.take_shared());
            if let Some(item) = found {
                self.found_work();
                self.run(item);
                continue;
            }
            if self.hub.phase() == Phase::Gone {
                // The hub's next host counts its own searchers.
                self.found_work();
                return;
            }
            if self.hub.poller.is_used() && self.poll_now() {
                continue;
            }
            if let Some(item) = self.search() {
                self.found_work();
                self.run(item);
                continue;
            }
            self.park();
        }
    }

    /// The next process of the local queues; see the module's table.
    #[inline(always)]
    fn pick(&self) -> Option<Item> {
        Counters::bump(&self.shared.counters.turns);
        let until_look = self.until_look.get();
        self.until_look.set(until_look.wrapping_sub(1));
        if (until_look == 0 || self.shared.next.1.load(Relaxed))
            && let Some(item) = self.look_around()
        {
            return Some(item);
        }
        let next_streak = self.next_streak.get();
        if next_streak < NEXT_MAX
            && let Some(item) = self.shared.next.0.take()
        {
            self.next_streak.set(next_streak + 1);
            return Some(item);
        }
        self.next_streak.set(0);
        let young_streak = self.young_streak.get();
        if young_streak < YOUNG_MAX
            && let Some(item) = self.deque.pop()
        {
            self.young_streak.set(young_streak + 1);
            return Some(item);
        }
        if young_streak >= YOUNG_MAX {
            // The young end has not run dry, and the FIFO may never do: every second of these turns goes to
            // what lies at the deque's old end.
            let from_deque = !self.oldest_from_deque.get();
            self.oldest_from_deque.set(from_deque);
            if from_deque && let Some(item) = self.shared.deque.take_oldest() {
                self.young_streak.set(0);
                return Some(item);
            }
        }
        self.young_streak.set(0);
        if let Some(item) = self.fifo.pop() {
            if let Some(next) = self.fifo.peek() {
                // Its line comes while this one runs.
                memory::prefetch_slot(memory::slot(next));
            }
            return Some(item);
        }
        self.shared.deque.take_oldest().or_else(|| self.shared.next.0.take())
    }

    /// Every so many turns: what lies beyond the local queues must not wait for them to be empty.
    #[cold]
    #[inline(never)]
    fn look_around(&self) -> Option<Item> {
        self.until_look.set(LOOK_AROUND - 1);
        let looks = self.looks.get().wrapping_add(1);
        self.looks.set(looks);
        self.sample.set(cfg!(feature = "stats"));
        let is_called = self.is_called();
        if is_called {
            self.shared.next.1.store(false, Relaxed);
        }
        if looks.is_multiple_of(4) || self.shared.timers.next_due() != NEVER {
            let now = clock::refresh();
            self.fire(self.shared, now);
        }
        if self.hub.poller.is_used() && self.hub.poller.is_overdue(clock::refresh(), poller::FRESH) {
            self.poll_now();
        }
        if !self.shared.inject.is_empty() {
            self.shared.inject.take_all(&InMemory, |item| self.push_old(item));
        }
        if self.hub.idle.hint() && (self.shared.has_stealable()) {
            self.hub.wake_one(None);
        }
        if self.hub.global.is_empty() {
            None
        } else if is_called {
            // The turns here are long: one of them for each that waits would be too many.
            self.take_global()
        } else {
            self.hub.global.try_pop(&InMemory)
        }
    }

    /// The own inject queue, the global queue, own timers.
    fn take_shared(&self) -> Option<Item> {
        self.take_inject(self.shared).or_else(|| self.take_global()).or_else(|| {
            let due = self.shared.timers.next_due();
            if due == NEVER || self.fire(self.shared, clock::refresh()) == 0 {
                return None;
            }
            self.pick()
        })
    }

    fn take_inject(&self, from: &WorkerShared) -> Option<Item> {
        if from.inject.is_empty() {
            return None;
        }
        let mut first = None;
        let mut is_batch = false;
        from.inject.take_all(&InMemory, |item| {
            if first.is_none() {
                first = Some(item);
            } else {
                is_batch = true;
                self.push_old(item);
            }
        });
        if is_batch {
            self.announce_batch();
        }
        first
    }

    /// Work that was announced where it lay before lies here now: a thief that came too early for it, or the
    /// monitor, shall look again.
    #[cold]
    fn announce_batch(&self) {
        if !self.hub.idle.hint() || !self.hub.wake_one(None) {
            self.hub.watch.ensure_awake();
        }
    }

    fn take_global(&self) -> Option<Item> {
        let len = self.hub.global.len();
        if len == 0 {
            return None;
        }
        let share = (len / self.hub.workers.len() + 1).min(GLOBAL_MAX);
        let mut first = None;
        let mut is_batch = false;
        self.hub.global.pop_batch(share, &InMemory, |item| {
            if first.is_none() {
                first = Some(item);
            } else {
                is_batch = true;
                self.push_old(item);
            }
        });
        if is_batch {
            self.announce_batch();
        }
        first
    }

    /// The worker has something to run.
    #[inline(always)]
    fn found_work(&self) {
        if self.searching.get() {
            self.stop_searching();
        }
    }

    #[cold]
    fn stop_searching(&self) {
        self.searching.set(false);
        if self.hub.idle.stop_searching() && self.hub.any_work() {
            self.hub.wake_one(None);
        }
    }

    /// Looks at the others, spins a little, looks again.
    fn search(&self) -> Option<Item> {
        if !self.searching.get() {
            if !self.hub.idle.start_searching() {
                return None;
            }
            self.searching.set(true);
        }
        if let Some(item) = self.steal() {
            return Some(item);
        }
        let began = clock::now_nanos();
        let found = self.spin(began);
        if found.is_some() {
            self.note_gap(clock::now_nanos().saturating_sub(began));
        }
        found
    }

    fn note_gap(&self, gap: u64) {
        // Moves a quarter of the way, so that one long gap does not end the spinning and three do.
        let old = self.gap.get();
        self.gap.set(old - old / 4 + gap.min(100_000_000) / 4);
    }

    fn spin(&self, began: u64) -> Option<Item> {
        let config = &self.engine.config;
        let held_back = self.held_back();
        for round in 0..config.spin_rounds + config.yield_rounds {
            if self.hub.any_work()
                && let Some(item) = self.take_shared().or_else(|| self.steal())
            {
                return Some(item);
            }
            if round < config.spin_rounds {
                for _ in 0..16 {
                    spin_loop();
                }
            } else {
                thread::yield_now();
                if self.hub.poller.is_used()
                    && self.poll_now()
                    && let Some(item) = self.pick()
                {
                    return Some(item);
                }
                // On a busy machine a yield lasts as long as others like, and this worker, which counts as
                // searching, keeps the pushers from waking anybody: then it is better to park. Nor may its
                // own timers wait.
                let now = clock::now_nanos();
                if now.saturating_sub(began) > YIELDING_MAX || self.shared.timers.next_due() <= now {
                    return self.steal_held_back(held_back, now - began);
                }
            }
        }
        let found = self.steal_held_back(held_back, clock::now_nanos().saturating_sub(began));
        if found.is_some() {
            return found;
        }
        let limit = config.spin_max.as_nanos() as u64;
        if limit == 0 || self.gap.get() >= limit || self.engine.cores < 2 || self.hub.idle.counts().1 != 1 {
            return None;
        }
        self.count(|counters| &counters.long_spins);
        let end = (began + limit).min(self.shared.timers.next_due());
        loop {
            for _ in 0..16 {
                if self.hub.any_work()
                    && let Some(item) = self.take_shared().or_else(|| self.steal())
                {
                    return Some(item);
                }
                spin_loop();
            }
            if self.hub.poller.is_used()
                && self.poll_now()
                && let Some(item) = self.pick()
            {
                return Some(item);
            }
            if clock::now_nanos() >= end || self.hub.phase() == Phase::Gone {
                return None;
            }
        }
    }

    /// A worker with something in its run-next place, and the turn it is in.
    fn held_back(&self) -> Option<(&'static WorkerShared, u64)> {
        let workers = &self.hub.workers;
        let start = self.random() as usize;
        (0..workers.len())
            .map(|offset| (start.wrapping_add(offset)) % workers.len())
            .find(|&at| at != self.me as usize && !workers[at].next.0.is_empty())
            .map(|at| (&workers[at], workers[at].turn()))
    }

    /// What [`Self::held_back`] found, if that worker's step has lasted for all of a search.
    fn steal_held_back(&self, found: Option<(&WorkerShared, u64)>, searched: u64) -> Option<Item> {
        let (victim, turn) = found?;
        if searched < LONG_STEP {
            return None;
        }
        let item = victim.next.0.steal(|| victim.turn() == turn)?;
        self.count(|counters| &counters.steals);
        Some(item)
    }

    fn random(&self) -> u64 {
        let mut state = self.rng.get();
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.rng.set(state);
        state
    }

    /// One round over the others, from a random one on.
    fn steal(&self) -> Option<Item> {
        let workers = &self.hub.workers;
        let count = workers.len();
        if count == 1 {
            return None;
        }
        self.count(|counters| &counters.steal_tries);
        let start = self.random() as usize % count;
        for offset in 0..count {
            let index = (start + offset) % count;
            if index == self.me as usize {
                continue;
            }
            let victim = &workers[index];
            if let Some(item) = self.steal_from(victim) {
                self.count(|counters| &counters.steals);
                return Some(item);
            }
            let due = victim.timers.next_due();
            if due != NEVER
                && due <= clock::coarse_nanos()
                && self.fire(victim, clock::refresh()) > 0
                && let Some(item) = self.shared.next.0.take().or_else(|| self.deque.pop())
            {
                return Some(item);
            }
        }
        None
    }

    fn steal_from(&self, victim: &WorkerShared) -> Option<Item> {
        // SAFETY: this thread alone has the buffer, and nothing below calls user code or `steal` again.
        let loot = unsafe { &mut *self.loot.get() };
        let taken = match victim.fifo.steal(loot) {
            Steal::Taken(taken) => taken,
            _ => match victim.deque.steal(loot) {
                Steal::Taken(taken) => taken,
                _ => {
                    let item = self.take_inject(victim);
                    return item.or_else(|| self.steal_next(victim));
                }
            },
        };
        let kept = 1 + self.fifo.push_batch(&loot[1..taken]);
        for &item in &loot[kept..taken] {
            self.push_old(item);
        }
        Some(loot[0])
    }

    /// The run-next place of a worker whose step does not end.
    fn steal_next(&self, victim: &WorkerShared) -> Option<Item> {
        victim.next.0.steal(|| victim.is_stuck())
    }

    fn park(&self) {
        let searching = self.searching.replace(false);
        let mut role = self.hub.poller.take_role();
        self.hub.idle.enter_at(self.me, searching, role.is_some());
        // The second look, after the fence in `enter`. While somebody searches, what is there is theirs.
        let others_search = self.hub.idle.counts().1 > 0;
        let due = self.shared.timers.next_due();
        let now = clock::refresh();
        let stay = self.hub.phase() != Phase::Gone
            && due > now
            && (others_search && self.shared.inject.is_empty() || !self.hub.any_work());
        if stay {
            self.count(|counters| &counters.parks);
            let limit = (due != NEVER).then(|| Duration::from_nanos(due - now));
            // Once more, after the fence in `enter`; see the words of `crate::poller`.
            let woken = match role.take().or_else(|| self.hub.poller.take_role()) {
                Some(role) => self.sleep_in_poller(role, limit),
                None => self.shared.parker.park(limit),
            };
            if woken {
                // Counted as searching by the waker.
                self.searching.set(true);
                self.back(now);
                self.wake_polled();
                return;
            }
        }
        drop(role);
        if self.hub.idle.leave(self.me) == Left::Woken {
            // The token is on its way.
            self.shared.parker.park(None);
        }
        self.searching.set(true);
        if stay {
            self.back(now);
            self.wake_polled();
        } else {
            self.watch_timers();
        }
    }

    /// Sleeps in the poller, and gives the role back. `true`: woken by a token. Whom events wake is left in
    /// `polled`, for a worker in the list of sleepers must not queue anything.
    fn sleep_in_poller(&self, mut role: Role, limit: Option<Duration>) -> bool {
        let mut polled = self.polled.borrow_mut();
        let mut events = 0;
        let woken = self.shared.parker.park_elsewhere(|| events = role.sleep(self.me, limit, &mut polled));
        self.note_poll(events);
        woken
    }

    /// Polls without waiting, unless somebody else does. `true`: somebody was woken.
    #[cold]
    fn poll_now(&self) -> bool {
        let Some(mut role) = self.hub.poller.take_role() else {
            return false;
        };
        let events = role.look(&mut self.polled.borrow_mut());
        drop(role);
        self.note_poll(events);
        self.wake_polled()
    }

    fn note_poll(&self, events: u64) {
        self.count(|counters| &counters.polls);
        if cfg!(feature = "stats") && events > 0 {
            Counters::add(&self.shared.counters.poll_events, events);
        }
    }

    /// Wakes whom the last poll found. `true`: somebody.
    fn wake_polled(&self) -> bool {
        let mut wakers = std::mem::take(&mut *self.polled.borrow_mut());
        let found = !wakers.is_empty();
        // What is woken here may spawn, though no step runs.
        self.is_between_steps.set(true);
        poller::wake_all(&mut wakers, || self.count(|counters| &counters.panics));
        self.is_between_steps.set(false);
        // Keeps the buffer.
        *self.polled.borrow_mut() = wakers;
        found
    }

    /// Back from a park that began at `since`.
    fn back(&self, since: u64) {
        let now = clock::refresh();
        self.note_gap(now.saturating_sub(since));
        self.hub.idle.is_up();
        self.watch_timers();
    }

    /// Back from the list of sleepers: its timers are no longer those of a sleeper, whose bed has their limit,
    /// and perhaps nobody sleeps in the poller any more.
    /// Model: `model::watch::a_worker_that_is_back_has_its_timers_watched`.
    fn watch_timers(&self) {
        if self.shared.timers.next_due() != NEVER || self.hub.poller.is_used() {
            self.hub.watch.ensure_awake();
        }
    }

    // ---------------------------------------------------------------- queueing

    /// Queues a process that this worker made `READY` by a message or wake: it runs next.
    #[inline(always)]
    pub(crate) fn queue_woken(&self, item: Item) {
        match self.shared.next.0.put(item) {
            None => self.hub.watch.ensure_awake(),
            Some(displaced) => self.push_young(displaced),
        }
    }

    /// Queues a process that a step of this worker spawned.
    #[inline(always)]
    pub(crate) fn queue_spawned(&self, item: Item) {
        self.push_young(item);
    }

    #[inline(always)]
    fn push_young(&self, item: Item) {
        if let Err(item) = self.deque.push(item) {
            self.spill_deque(item);
        }
        if self.hub.idle.hint() {
            self.hub.wake_one(None);
        } else {
            self.hub.watch.ensure_awake();
        }
    }

    #[cold]
    fn spill_deque(&self, item: Item) {
        self.spill(|take| self.deque.drain_half(take));
        if let Err(item) = self.deque.push(item) {
            self.hub.global.push(item, &InMemory);
        }
    }

    /// The older half of a full local queue goes to the global one.
    fn spill(&self, drain_half: impl FnOnce(&mut dyn FnMut(Item)) -> usize) {
        let mut old = [0; LOCAL_MAX];
        let mut count = 0;
        drain_half(&mut |item| {
            old[count] = item;
            count += 1;
        });
        self.count(|counters| &counters.spills);
        self.hub.global.push_chain(old[..count].iter().copied(), &InMemory);
    }

    /// Queues a process at the old end: it runs when those before it have run.
    #[inline(always)]
    pub(crate) fn push_old(&self, item: Item) {
        if let Err(item) = self.fifo.push(item) {
            self.spill_fifo(item);
        }
    }

    #[cold]
    fn spill_fifo(&self, item: Item) {
        self.spill(|take| self.fifo.drain_half(take));
        if let Err(item) = self.fifo.push(item) {
            self.hub.global.push(item, &InMemory);
        }
    }

    #[inline(always)]
    pub(crate) fn slot_worker(&self, slot: &Slot) {
        if slot.worker.load(Relaxed) != self.me {
            slot.worker.store(self.me, Relaxed);
        }
    }

    // ---------------------------------------------------------------- one turn

    #[inline(always)]
    fn run(&self, number: Item) {
        let slot = memory::slot(number);
        let inbox = slot.inbox.load(Relaxed);
        // This worker took the process out of a run queue: it is the runner from here on. What the last
        // runner and the waker wrote came along with the queue.
        // SAFETY: the runner alone touches the cold part.
        let cold = slot.cold.with(|cold| unsafe { *cold });
        let pid = LocalPid::new(number, slot.first()).expect("slot numbers begin at 1");
        if inbox == 0 && cold.is_null() {
            let word = slot.claim(false);
            self.slot_worker(slot);
            let head = word.head();
            if word.is_killed() {
                return self.end_killed(number, slot, head);
            }
            if head != 0 {
                if InMemory.next(head).load(Relaxed) == 0 {
                    slot.inbox.store(head, Relaxed);
                } else {
                    let (rest, onto) = turn_round_part(&InMemory, head, 0, TURN_ROUND_MAX);
                    slot.inbox.store(onto, Relaxed);
                    if rest != 0 {
                        return self.turn_round_later(number, slot, rest);
                    }
                }
            }
        } else if !self.claim_slowly(number, pid, slot, inbox) {
            return;
        }
        Counters::bump_steps(&slot.steps);
        // SAFETY: a process's table is a static.
        let table: &'static ProcessTable = unsafe { &*slot.table.load(Relaxed) };
        let mut turn = Turn {
            events: Events { worker: self, slot, left: self.events_per_step_max },
            out: StepOutput {
                worker: self,
                slot,
                pid,
                status: Status::Idle,
                ending: ManuallyDrop::new(None),
            },
        };
        self.chain_len.set(0);
        let body = body_of(slot, table);
        let sampled = self.sample.replace(false).then(clock::now_nanos);
        // SAFETY: the body is of the table's type, and this worker is the runner.
        let result = catch_unwind(AssertUnwindSafe(|| unsafe { (table.step)(body, &mut turn) }));
        if let Some(began) = sampled {
            self.shared.counters.note_step(clock::now_nanos().saturating_sub(began));
        }
        let status = turn.out.status;
        match result {
            Ok(Ok(())) => {
                if self.has_yields.get() {
                    self.carry_out(pid);
                }
                if status as u8 <= Status::Wait as u8
                    && slot.inbox.load(Relaxed) == 0
                    && turn.out.ending.is_none()
                {
                    let wait = if status == Status::Idle { Wait::Idle } else { Wait::Blocked };
                    if slot.release(wait) == After::Queue {
                        self.push_old(number);
                    }
                } else if status as u8 <= Status::Continue as u8 && turn.out.ending.is_none() {
                    slot.requeue();
                    self.push_old(number);
                } else if status == Status::Consumed && turn.out.ending.is_none() {
                    self.end(number, slot, ExitReason::Normal, None, false, false);
                } else if status == Status::Deaf {
                    if slot.release_deaf() == After::Queue {
                        self.push_old(number);
                    }
                } else {
                    self.finish_specially(number, pid, slot, status, turn.out.ending.take());
                }
            }
            Ok(Err(error)) => {
                self.fail(number, slot, status, turn.out.ending.take(), ExitReason::Failed(error));
            }
            Err(payload) => {
                self.count(|counters| &counters.panics);
                let error = contained(payload);
                let ending = turn.out.ending.take();
                if table.survives_panics && status as u8 <= Status::Continue as u8 {
                    return self.go_on(number, pid, slot, ending);
                }
                let reason = ExitReason::Panicked(error.text().into());
                self.fail(number, slot, status, ending, reason);
            }
        }
    }

    /// The end of a turn that left something behind.
    #[cold]
    #[inline(never)]
    fn finish_specially(
        &self,
        number: Item,
        pid: LocalPid,
        slot: &'static Slot,
        status: Status,
        ending: Option<Box<Ending>>,
    ) {
        match (status, ending.map(|ending| *ending)) {
            (Status::Done, Some(Ending::Result(result))) => {
                self.end(number, slot, ExitReason::Normal, Some(result), true, true);
            }
            (Status::Done, unused) => {
                let _ = contain(|| drop(unused));
                self.end(number, slot, ExitReason::Normal, None, true, true);
            }
            (Status::Upgrade, Some(Ending::Upgrade(upgrade))) => self.upgrade(number, pid, slot, upgrade),
            (Status::Consumed, Some(Ending::Result(result))) => {
                self.end(number, slot, ExitReason::Normal, Some(result), false, false);
            }
            (Status::Consumed, unused) => {
                let _ = contain(|| drop(unused));
                self.end(number, slot, ExitReason::Normal, None, false, false);
            }
            // Said first, and then taken back by another status.
            (_, unused) => {
                let _ = contain(|| drop(unused));
                slot.requeue();
                self.push_old(number);
            }
        }
    }

    /// The claim of a process with a cold part or with messages taken before. `false`: this turn is over.
    #[cold]
    #[inline(never)]
    fn claim_slowly(&self, number: Item, pid: LocalPid, slot: &'static Slot, inbox: u32) -> bool {
        // SAFETY: the runner alone touches the cold part.
        let cold = slot.cold.with(|cold| unsafe { (*cold).as_mut() });
        let rest = cold.as_ref().map_or(0, |cold| cold.rest);
        let keep = inbox != 0 || rest != 0;
        let word = slot.claim(keep);
        self.slot_worker(slot);
        let head = if keep { 0 } else { word.head() };
        if word.is_killed() {
            self.end_killed(number, slot, head);
            return false;
        }
        if head != 0 || rest != 0 {
            let from = if rest != 0 { rest } else { head };
            let (rest, onto) = turn_round_part(&InMemory, from, inbox, TURN_ROUND_MAX);
            slot.inbox.store(onto, Relaxed);
            if let Some(cold) = cold {
                cold.rest = rest;
            }
            if rest != 0 {
                self.turn_round_later(number, slot, rest);
                return false;
            }
        }
        // SAFETY: the runner; references taken above are used no more.
        let owes_start =
            slot.cold.with(|cold| unsafe { (*cold).as_ref() }).is_some_and(|cold| cold.start.is_some());
        !owes_start || self.begin(pid, slot)
    }

    /// So many messages wait that turning them round goes on in the next turn.
    #[cold]
    #[inline(never)]
    fn turn_round_later(&self, number: Item, slot: &'static Slot, rest: u32) {
        // SAFETY: the runner; no other reference into the cold part is used after this.
        unsafe { cold_of(slot) }.rest = rest;
        slot.requeue();
        self.push_old(number);
    }

    /// A panic failed one message; the process goes on with the next.
    #[cold]
    #[inline(never)]
    fn go_on(&self, number: Item, pid: LocalPid, slot: &'static Slot, ending: Option<Box<Ending>>) {
        let _ = contain(|| drop(ending));
        if self.has_yields.get() {
            self.carry_out(pid);
        }
        slot.requeue();
        self.push_old(number);
    }

    #[cold]
    #[inline(never)]
    fn fail(
        &self,
        number: Item,
        slot: &'static Slot,
        status: Status,
        ending: Option<Box<Ending>>,
        reason: ExitReason,
    ) {
        self.has_yields.set(false);
        let dropped = std::mem::take(&mut *self.yields.borrow_mut());
        let _ = contain(|| drop(ending));
        for request in dropped {
            let _ = contain(|| drop(request));
        }
        let used_up = status == Status::Consumed;
        self.end(number, slot, reason, None, !used_up, !used_up);
    }

    /// Runs `init`. `false`: the process has ended.
    #[cold]
    fn begin(&self, pid: LocalPid, slot: &'static Slot) -> bool {
        // SAFETY: a process's table is a static.
        let table: &'static ProcessTable = unsafe { &*slot.table.load(Relaxed) };
        // SAFETY: the runner; `init` has no way to the cold part.
        let cold = unsafe { cold_of(slot) };
        let start = cold.start.take().expect("asked for by the caller");
        let Some(init) = table.init else {
            return true;
        };
        let cx = InitContext { pid: Pid::new(0, self.hub.id, pid), parent: start.parent };
        let body = body_of(slot, table);
        // SAFETY: the body is of the table's type, and this worker is the runner.
        let result =
            contain(|| unsafe { init(body, &cx, &start.method, start.input) }).and_then(|answer| answer);
        match result {
            Ok(()) => {
                let idle = cold.pending.is_empty() && cold.waiters.is_empty();
                let waiters = std::mem::take(&mut cold.waiters);
                for waiter in waiters {
                    // `spawn_wait`: the process has begun.
                    route::complete(waiter, Ok(Payload::new(cx.pid)));
                }
                if idle && cold.rest == 0 {
                    slot.cold.with_mut(|place| {
                        // SAFETY: the runner; `cold` is not used after this. Made by `Box::into_raw`.
                        unsafe { drop(Box::from_raw(std::mem::replace(&mut *place, ptr::null_mut()))) };
                    });
                }
                true
            }
            Err(error) => {
                // Told by the end, when nothing is registered any more.
                cold.spawner = start.parent;
                self.end(pid.slot(), slot, ExitReason::InitFailed(error), None, false, true);
                false
            }
        }
    }

    #[cold]
    fn upgrade(&self, number: Item, pid: LocalPid, slot: &'static Slot, upgrade: Upgrade) {
        // SAFETY: a process's table is a static.
        let old: &'static ProcessTable = unsafe { &*slot.table.load(Relaxed) };
        let closed = self.close_body(slot, old);
        self.drop_body(slot, old);
        free_body(&self.magazines, slot, old);
        type New = Box<dyn crate::Process>;
        let table = TableFor::<New>::TABLE;
        let placed = place_body(&self.magazines, slot, table, |body| {
            // SAFETY: `place_body` gives room for a value of the table's type.
            unsafe { body.cast::<New>().write(upgrade.process) };
        });
        placed.expect("a boxed process lies in the slot");
        slot.table.store(ptr::from_ref(table).cast_mut(), Release);
        let cx = InitContext { pid: Pid::new(0, self.hub.id, pid), parent: None };
        let body = body_of(slot, table);
        let input = upgrade.input;
        let begun = match closed {
            // SAFETY: the body was just written; this worker is the runner.
            Ok(()) => contain(|| unsafe { (*body.cast::<New>()).init(&cx, &upgrade.method, input) })
                .and_then(|answer| answer)
                .map_err(ExitReason::InitFailed),
            Err(reason) => {
                let _ = contain(|| drop(input));
                Err(reason)
            }
        };
        match begun {
            Ok(()) => {
                slot.requeue();
                self.push_old(number);
            }
            Err(reason) => self.end(number, slot, reason, None, false, true),
        }
    }

    fn close_body(&self, slot: &Slot, table: &ProcessTable) -> Result<(), ExitReason> {
        let Some(close) = table.close else {
            return Ok(());
        };
        let body = body_of(slot, table);
        // SAFETY: the body is of the table's type, and this worker is the runner.
        contain(|| unsafe { close(body) }).map_err(|error| {
            self.count(|counters| &counters.panics);
            ExitReason::Panicked(error.text().into())
        })
    }

    fn drop_body(&self, slot: &Slot, table: &ProcessTable) {
        if let Some(drop) = table.drop {
            let body = body_of(slot, table);
            // SAFETY: the runner drops the body once, and does not use it again.
            if contain(|| unsafe { drop(body) }).is_err() {
                self.count(|counters| &counters.panics);
            }
        }
    }

    #[cold]
    fn end_killed(&self, number: Item, slot: &'static Slot, head: u32) {
        // SAFETY: the runner.
        let cold = slot.cold.with(|cold| unsafe { (*cold).as_mut() });
        let begun = cold.is_none_or(|cold| cold.start.is_none());
        if head != 0 {
            // Taken by the claim, not yet turned round: `end` finds it there.
            // SAFETY: the runner; the reference above is gone.
            unsafe { cold_of(slot) }.rest = head;
        }
        let reason = match self.hub.phase() {
            Phase::Ending | Phase::Gone => ExitReason::Shutdown,
            _ => links::kill_reason(number, slot.first()),
        };
        self.end(number, slot, reason, None, begun, true);
    }

    /// The end of a process: the steps of the table in [`crate::process`].
    #[inline]
    fn end(
        &self,
        number: Item,
        slot: &'static Slot,
        mut reason: ExitReason,
        result: Option<Payload>,
        close: bool,
        has_body: bool,
    ) {
        // SAFETY: a process's table is a static.
        let table: &'static ProcessTable = unsafe { &*slot.table.load(Relaxed) };
        if close
            && let Err(panicked) = self.close_body(slot, table)
            && matches!(reason, ExitReason::Normal)
        {
            reason = panicked;
        }
        let first = slot.first();
        let word = slot.close();
        if has_body {
            self.drop_body(slot, table);
        }
        free_body(&self.magazines, slot, table);
        let inbox = slot.inbox.load(Relaxed);
        let cold = slot.cold.with_mut(|place| {
            // SAFETY: the runner takes the cold part away; nobody else has it.
            unsafe { std::mem::replace(&mut *place, ptr::null_mut()) }
        });
        let known = word.is_watched()
            || !cold.is_null()
            || inbox != 0
            || word.head() != 0
            || result.is_some()
            || self.engine.hooks.is_some();
        if known {
            self.end_known(number, first, word, inbox, cold, reason, result);
        } else if !matches!(reason, ExitReason::Normal) {
            // An error may come from a type of the user's.
            let _ = contain(|| drop(reason));
        }
        if self.engine.checks_births {
            self.engine.unadmit_birth();
        }
        if word.generation() < self.engine.config.generation_max {
            self.magazines.free(Class::Slot, number);
        } else {
            self.count(|counters| &counters.retired);
        }
        Counters::bump(&self.shared.counters.ended);
    }

    #[cold]
    #[allow(clippy::too_many_arguments, reason = "the parts of one end")]
    fn end_known(
        &self,
        number: Item,
        first: u32,
        word: crate::process::slot::Word,
        inbox: u32,
        cold: *mut Cold,
        reason: ExitReason,
        result: Option<Payload>,
    ) {
        let pid = Pid::new(0, self.hub.id, LocalPid::new(number, first).expect("slot numbers begin at 1"));
        let mut rest = 0;
        let mut waiters = Vec::new();
        let mut spawner = None;
        if !cold.is_null() {
            // SAFETY: made by `Box::into_raw`, taken from the slot by the caller.
            let mut cold = unsafe { Box::from_raw(cold) };
            rest = cold.rest;
            for pending in cold.pending.drain(..) {
                self.forget_timer(&pending);
            }
            waiters = std::mem::take(&mut cold.waiters);
            spawner = cold.spawner;
            let _ = contain(|| drop(cold));
        }
        let lists = [inbox, rest, word.head()];
        let drop_list = |list| {
            self.drop_list(list);
        };
        if word.is_watched() {
            self.engine.names.release(pid, lists, &reason, drop_list);
        } else {
            lists.into_iter().for_each(drop_list);
        }
        budget::forget(pid.local(), word);
        for waiter in waiters {
            let failed = match &reason {
                ExitReason::InitFailed(error) => YieldError::Spawn(crate::SpawnError::Init(error.clone())),
                _ => YieldError::Failed(ProcessError::new(&reason)),
            };
            route::complete(waiter, Err(failed));
        }
        if let Some(hooks) = &self.engine.hooks {
            let result = result.as_ref();
            let _ = contain(|| hooks.on_complete(pid, &reason, result));
        }
        if let Some(result) = result {
            links::deliver_result(pid, result, word);
        }
        if let (Some(spawner), ExitReason::InitFailed(_)) = (spawner, &reason) {
            links::tell(spawner.local(), pid, Arc::new(reason.clone()), crate::ExitBy::Spawn);
        }
        if word.is_watched() {
            links::ended(pid, reason);
        } else {
            let _ = contain(|| drop(reason));
        }
    }

    /// Drops the messages of a list, each contained.
    pub(crate) fn drop_list(&self, mut list: u32) -> usize {
        let mut count = 0;
        while list != 0 {
            let next = InMemory.next(list).load(Relaxed);
            // SAFETY: the list was taken out of a mailbox by its runner.
            let message = unsafe { message::take(&self.magazines, list) };
            let _ = contain(|| drop(message));
            list = next;
            count += 1;
            self.count(|counters| &counters.dropped_messages);
        }
        count
    }

    pub(crate) fn reset_queue(&self, slot: &'static Slot, pid: LocalPid) -> Result<usize, ResetError> {
        let word = budget::reset(pid, slot, self.engine.config.generation_max).ok_or(ResetError)?;
        let inbox = slot.inbox.load(Relaxed);
        slot.inbox.store(0, Relaxed);
        Ok(self.drop_list(inbox) + self.drop_list(word.head()))
    }

    // ---------------------------------------------------------------- yields, timers, chains

    pub(crate) fn hand_out(&self, request: CommandRequest) {
        self.yields.borrow_mut().push(request);
        self.has_yields.set(true);
    }

    /// Hands the yields of the step to their handlers; the process still counts as running.
    #[cold]
    fn carry_out(&self, pid: LocalPid) {
        self.has_yields.set(false);
        let mut requests = std::mem::take(&mut *self.yields.borrow_mut());
        for CommandRequest { id, input, seq } in requests.drain(..) {
            let mut completer = Completer::new(ReplyTo { pid, seq });
            let entry = match self.engine.handler(id) {
                Ok(entry) => entry,
                Err(error) => {
                    completer.complete(Err(error));
                    let _ = contain(|| drop(input));
                    continue;
                }
            };
            let cx = HandlerContext { engine: &self.engine, worker: self, pid, id };
            let handled = entry.handle(&cx, input, completer);
            if let Err(error) = handled {
                // Late, and so without effect, if the handler had completed before it panicked.
                self.count(|counters| &counters.panics);
                let text = error.text().into();
                route::complete(ReplyTo { pid, seq }, Err(YieldError::HandlerPanicked { id, text }));
            }
        }
        // Keeps the buffer, so that yields allocate nothing in steady state.
        let mut yields = self.yields.borrow_mut();
        if yields.is_empty() {
            *yields = requests;
        }
    }

    /// Arms a timer of this worker.
    pub(crate) fn arm(&self, due: u64, action: TimerAction) -> crate::command::TimerKey {
        let key = self.shared.timers.arm(self.me, due, action);
        // After the arming, as after a push: the monitor sees the timer, or is called.
        self.hub.watch.ensure_awake();
        key
    }

    /// Arms the timeout of a yield of the process that this worker runs.
    pub(crate) fn arm_timeout(&self, slot: &Slot, reply: ReplyTo, timeout: Duration) {
        let due = clock::deadline(clock::now_nanos(), timeout);
        self.attach(slot, reply.seq, self.arm(due, TimerAction::TimeOut(reply)));
    }

    /// Notes that a timer ends with a yield.
    pub(crate) fn attach(&self, slot: &Slot, seq: u32, key: crate::command::TimerKey) {
        // SAFETY: the runner's worker; no other reference into the cold part is alive here.
        let cold = unsafe { cold_of(slot) };
        match cold.pending.iter_mut().find(|pending| pending.seq == seq) {
            Some(pending) => pending.timer = Some(key),
            None => {
                self.hub.workers[key.worker as usize].timers.cancel(key);
            }
        }
    }

    /// The yield of a ticker: an answer does not end it.
    pub(crate) fn make_repeating(&self, slot: &Slot, seq: u32) {
        // SAFETY: as in `attach`.
        let cold = unsafe { cold_of(slot) };
        if let Some(pending) = cold.pending.iter_mut().find(|pending| pending.seq == seq) {
            pending.repeats = true;
        }
    }

    pub(crate) fn forget_timer(&self, pending: &Pending) {
        if let Some(key) = pending.timer {
            self.hub.workers[key.worker as usize].timers.cancel(key);
        }
    }

    /// Fires what is due with a worker: its own, or one that is busy.
    fn fire(&self, of: &WorkerShared, now: u64) -> usize {
        // What is woken here may spawn, though no step runs.
        self.is_between_steps.set(true);
        let fired = of.timers.fire(now, |key, action| {
            self.count(|counters| &counters.timers_fired);
            self.shared.counters.note_lateness(now.saturating_sub(key.due));
            match action {
                TimerAction::Complete(to) => {
                    route::complete(to, Ok(Payload::new(clock::coarse())));
                }
                TimerAction::TimeOut(to) => {
                    route::complete(to, Err(YieldError::TimedOut));
                }
                TimerAction::Tick(to, period) => crate::command::clock::tick(self.hub, key, to, period, now),
                TimerAction::Wake(waker) => {
                    // Another runtime's waker may panic.
                    let _ = contain(|| waker.wake());
                }
                TimerAction::Kill(pid, reason) => {
                    links::kill(pid, reason);
                }
            }
        });
        self.is_between_steps.set(false);
        fired
    }

    /// Is a step running on this worker, or what follows one? While it does, the host has a process, and
    /// does not end; foreign wakers that timers and polls wake have no such protection.
    pub(crate) fn is_between_steps(&self) -> bool {
        self.is_between_steps.get()
    }

    /// The step takes a message: what it asks from now on is asked on behalf of that message's askers.
    #[inline]
    pub(crate) fn begin_chain(&self, message: &Message) {
        if message.is_asked() {
            let ext = message.extension();
            let mut chain = [None; CHAIN_MAX + 1];
            let len = ext.chain_len as usize;
            chain[..len].copy_from_slice(&ext.chain[..len]);
            chain[len] = message.sender();
            self.chain.set(chain);
            self.chain_len.set(len + 1);
        } else {
            self.chain_len.set(0);
        }
    }

    /// What the step takes from now on is nobody's request.
    #[inline]
    pub(crate) fn end_chain(&self) {
        self.chain_len.set(0);
    }

    /// The askers go with the request, unless one of them is who is asked.
    pub(crate) fn extend_chain(
        &self,
        me: LocalPid,
        to: LocalPid,
        message: Message,
    ) -> Result<Message, YieldError> {
        let len = self.chain_len.get();
        let chain = self.chain.get();
        let waiting = chain[..len].iter().flatten().copied();
        let whole = || waiting.clone().chain([me, to]).collect::<Vec<_>>();
        if to == me || waiting.clone().any(|pid| pid == to) {
            return Err(YieldError::Cycle(whole()));
        }
        if len == 0 {
            return Ok(message);
        }
        if len > CHAIN_MAX {
            return Err(YieldError::ChainTooLong { max: CHAIN_MAX, chain: whole() });
        }
        let mut ext = Extension { chain_len: len as u32, ..Extension::NONE };
        ext.chain[..len].copy_from_slice(&chain[..len]);
        message
            .with_extension(&self.magazines, ext)
            .map_err(|_| YieldError::Send(crate::SendError::Exhausted))
    }
}
