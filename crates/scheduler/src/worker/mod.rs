//! A worker: a logical processor and the thread that drives it.
//!
//! # Where it looks, in this order
//!
//! 1. every `LOOK_AROUND`-th turn: all of the own inject queue (that already every [`LOOK_AT_INJECT`]-th turn),
//!    one from the global queue, due timers, and the poller, if descriptors are registered and nobody has polled
//!    for half a millisecond;
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
//!     then the park: in the poller, if descriptors are registered and nobody else is there.
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
//! | run-next place | 1, or a turn of step 4 first: `B`; displaced by a later wake: as in the deque |
//! | inject queue | `LOOK_AT_INJECT`, then as in the FIFO |
//! | global queue, with `p` before it | `(p + 1) * L`, with one worker |
//! | socket, ready | `L`, or half a millisecond, or one turn and `poller::STALE`, whichever is longer; then as a process that was woken |
//! | timer, due | `L` |
//!
//! Where `L` turns take longer than a period of the monitor ([`watch::PERIOD`]), the monitor asks for a look
//! around: read one turn and that period in place of `L` then; and up to [`GLOBAL_MAX`] from the global queue
//! run in a row at that look, with a turn of a local one before the next such row.
//!
//! Tests: `it::fairness`.

mod ending;
pub(crate) mod idle;
pub(crate) mod long;
pub(crate) mod spare;
pub(crate) mod timers;
pub(crate) mod watch;

pub(crate) use ending::Leftover;

use std::cell::{Cell, RefCell, UnsafeCell};
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::clock::ThreadTime;
use crate::command::{CommandRequest, Completer, HandlerContext, Pending, YieldError};
use crate::memory::{self, Class, InMemory, Magazines};
use crate::poller::{self, Poller, Role};
use crate::process::event_queue::{Cells, TURN_ROUND_MAX, turn_round_part};
use crate::process::message::{CHAIN_MAX, Extension, Message};
use crate::process::slot::{After, Slot, Wait};
use crate::process::table::{ProcessTable, ReplyTo};
use crate::process::{
    Ending, Events, ExitReason, InitContext, Status, StepOutput, TableFor, Turn, Upgrade, body_of, cold_of,
    contain, contained, free_body, place_body,
};
use crate::queues::deque::{self, Deque};
use crate::queues::fifo::{self, Fifo};
use crate::queues::inject::Inject;
use crate::queues::next::NextPlace;
use crate::queues::{Item, STEAL_MAX, Steal};
use crate::route::host::{Engine, Hub, Phase};
use crate::route::{self, links};
use crate::stats::Counters;
use crate::sync::{AcqRel, AtomicBool, AtomicU16, AtomicU32, AtomicU64, Relaxed, Release};
use crate::sync::{spin_loop, thread};
use crate::trace::{Kind, Tracer};
use crate::worker::idle::{Left, Parker};
use crate::worker::long::LongSteps;
use crate::worker::spare::{Absence, By};
use crate::worker::timers::{NEVER, TimerAction, Timers};
use crate::{LocalPid, Payload, Pid, clock};

/// Turns between two looks beyond the local queues. A prime, as in Go's scheduler (`schedtick%61`).
pub(crate) const LOOK_AROUND: u32 = 61;
/// Turns between two looks at the own inject queue: one load, mostly of a line that nobody has written.
const LOOK_AT_INJECT: u32 = 16;
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
/// No host has this number.
const NO_HOST: u16 = u16::MAX - 1;
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
    pub(crate) absence: Absence,
    /// Whose inject queue and timers it serves: its own, or those of the worker at the head of the line that
    /// it stands in for.
    home: AtomicU16,
    /// The number of the worker that it stands in for, plus one.
    stands_for: AtomicU32,
    pub(crate) thread_time: ThreadTime,
    pub(crate) long: LongSteps,
}

/// A row of turns for what waits in the global queue.
#[derive(Clone, Copy)]
enum Row {
    None,
    /// So many more.
    Left(usize),
    /// A local process is next.
    Over,
    /// A local process was next; then another row.
    Owed,
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
    pub(crate) fn new(index: u16, poller: &'static Poller) -> Self {
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
            absence: Absence::new(),
            home: AtomicU16::new(index),
            stands_for: AtomicU32::new(0),
            thread_time: ThreadTime::new(),
            long: LongSteps::new(),
        }
    }

    /// For the next host that uses the hub; nobody else has it.
    pub(crate) fn reset(&self) {
        self.counters.reset();
        self.long.reset();
        self.turn_seen_at.store(0, Relaxed);
        self.stuck_at.store(0, Relaxed);
        self.next.1.store(false, Relaxed);
        self.absence.recall();
        self.absence.come_back();
    }

    pub(crate) fn stand_in_for(&self, number: u16, absent: &Self) {
        self.home.store(absent.home.load(Relaxed), Relaxed);
        self.stands_for.store(u32::from(number) + 1, Relaxed);
    }

    pub(crate) fn stand_down(&self) {
        self.stands_for.store(0, Relaxed);
    }

    /// A spare: does it stand in for anybody?
    pub(crate) fn is_standing(&self) -> bool {
        self.stands_for.load(Relaxed) != 0
    }

    fn stands_for<'a>(&self, hub: &'a Hub) -> Option<&'a Self> {
        let number = self.stands_for.load(Relaxed).checked_sub(1)?;
        Some(hub.entry(number as usize))
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

    /// Where its deque and FIFO begin: while its step goes on, others move that.
    pub(crate) fn front(&self) -> (u16, u32) {
        (self.deque.front(), self.fifo.front())
    }

    #[inline]
    pub(crate) fn has_deque(&self) -> bool {
        !self.deque.is_empty()
    }

    pub(crate) fn judge_stuck(&self, turn: u64) {
        self.stuck_at.store(turn, Relaxed);
    }

    fn is_stuck(&self) -> bool {
        let turn = self.turn();
        turn != 0 && self.stuck_at.load(Relaxed) == turn
    }

    pub(crate) fn ask_attention(&self) {
        // Release: pairs with the Acquire in `look_around`; who answers the call sees why it came. A swap, so that
        // this holds for each of several calls.
        self.next.1.swap(true, Release);
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
    /// Whose inject queue and timers it serves; see [`spare`].
    home: Cell<u16>,
    at_home: Cell<&'static WorkerShared>,
    /// A spare: for whom.
    stands_for: Cell<Option<&'static WorkerShared>>,
    /// A spare: it has handed in what it had.
    is_recalled: Cell<bool>,
    /// Whose ready processes it queues itself: its host's, or, within a closure that may block, nobody's.
    queues_for: Cell<u16>,
    deque: deque::Owner<'static, LOCAL_MAX>,
    fifo: fifo::Owner<'static, LOCAL_MAX>,
    pub(crate) magazines: Magazines,
    next_streak: Cell<u32>,
    young_streak: Cell<u32>,
    /// Whose turn it was last when the young end had more: the deque's old end or the FIFO's.
    oldest_from_deque: Cell<bool>,
    /// Picks till the next look around.
    until_look: Cell<u32>,
    /// The turn that got an event though it was called.
    let_off: Cell<u64>,
    /// Turns in a row that go to the global queue.
    row: Cell<Row>,
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
    /// Under which number the last of them waits.
    chain_seq: Cell<u32>,
    /// Timers are being fired, or those woken whom a poll has found.
    is_between_steps: Cell<bool>,
    /// A buffer for steals.
    loot: UnsafeCell<[Item; STEAL_MAX]>,
    /// Whom the last poll wakes.
    polled: RefCell<Vec<Waker>>,
    pub(crate) tracer: Tracer,
}

/// A worker in a closure that may block; its end, also by a panic, is the way back.
pub(crate) struct Away<'a>(&'a Worker);

impl Drop for Away<'_> {
    fn drop(&mut self) {
        let Self(worker) = self;
        worker.queues_for.set(worker.hub.id);
        worker.tracer.come_back(worker.hub.id);
        worker.shared.absence.come_back();
        // From here on the step may be long again.
        worker.shared.turn_seen_at.store(clock::now_nanos(), Relaxed);
    }
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
    with_worker(engine, me, Worker::run_until_gone);
}

/// The life of a spare's thread.
pub(crate) fn run_spare(engine: &Arc<Engine>, me: u16) {
    with_worker(engine, me, |worker| {
        while engine.spares.wait(engine.hub, me) {
            worker.stand_in();
            if !engine.spares.give_back(engine.hub, me) {
                break;
            }
        }
    });
    engine.spares.left(me);
}

/// Asks for the newest messages of processes that are about to run, side by side: one mailbox alone is a list
/// whose cells come one after the other, each from another core's cache or from memory. The caller has taken them
/// from a queue, but nothing hangs on what is read here: cells stay cells, whoever has them.
fn fetch_mailboxes(items: &[Item]) {
    /// Of each mailbox.
    const CELLS: usize = 8;
    let mut cells = [0; GLOBAL_MAX];
    for (cell, &item) in cells.iter_mut().zip(items) {
        *cell = memory::slot(item).word().head();
        if *cell != 0 {
            memory::prefetch_cell(*cell);
        }
    }
    for _ in 1..CELLS {
        let mut found = false;
        for cell in cells.iter_mut().filter(|cell| **cell != 0) {
            *cell = Cells::next(&InMemory, *cell).load(Relaxed);
            if *cell != 0 {
                found = true;
                memory::prefetch_cell(*cell);
            }
        }
        if !found {
            break;
        }
    }
}

/// Lets this thread be a worker for the time of `life`.
fn with_worker(engine: &Arc<Engine>, me: u16, life: impl FnOnce(&Worker)) {
    let hub = engine.hub;
    let shared = hub.entry(me as usize);
    let worker = Worker {
        engine: Arc::clone(engine),
        hub,
        me,
        shared,
        home: Cell::new(me),
        at_home: Cell::new(shared),
        stands_for: Cell::new(None),
        is_recalled: Cell::new(false),
        queues_for: Cell::new(hub.id),
        // SAFETY: a hub is driven by one engine at a time, which starts one thread for each worker, and for
        // each spare one after the other (see the words on memory in `spare`); the handles end with it.
        deque: unsafe { shared.deque.owner() },
        // SAFETY: as above.
        fifo: unsafe { shared.fifo.owner() },
        magazines: Magazines::new(),
        next_streak: Cell::new(0),
        young_streak: Cell::new(0),
        oldest_from_deque: Cell::new(false),
        until_look: Cell::new(LOOK_AROUND - 1),
        let_off: Cell::new(0),
        row: Cell::new(Row::None),
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
        chain_seq: Cell::new(0),
        is_between_steps: Cell::new(false),
        loot: UnsafeCell::new([0; STEAL_MAX]),
        polled: RefCell::new(Vec::new()),
        tracer: Tracer::new(hub.id),
    };
    /// Also if a fault of ours unwinds: what runs at the end of the thread must not find a worker.
    struct Gone(&'static WorkerShared);
    impl Drop for Gone {
        fn drop(&mut self) {
            CURRENT.set(ptr::null());
            self.0.thread_time.end();
        }
    }
    let _gone = Gone(shared);
    CURRENT.set(&raw const worker);
    shared.thread_time.begin();
    life(&worker);
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
    /// Whose ready processes it queues itself.
    #[inline(always)]
    pub(crate) fn queues_for(&self) -> u16 {
        self.queues_for.get()
    }
    #[inline(always)]
    fn at_home(&self) -> &'static WorkerShared {
        self.at_home.get()
    }
    #[inline(always)]
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

    /// Has the monitor seen something that cannot wait for the next look around?
    #[inline(always)]
    fn is_called(&self) -> bool {
        self.shared.next.1.load(Relaxed)
    }

    /// A step that goes on for a period of the monitor while others wait gets no more events. One it gets all the
    /// same, for the call may have come before its first.
    #[inline(always)]
    pub(crate) fn makes_way(&self) -> bool {
        self.is_called() && self.was_let_off()
    }

    /// Has this turn had an event though it was called? If not, it has now.
    #[cold]
    fn was_let_off(&self) -> bool {
        let turn = self.shared.turn();
        self.let_off.replace(turn) == turn
    }

    // ---------------------------------------------------------------- the loop

    /// Inlined, so that what a worker's own thread has stays in its frame; a spare's thread has a copy.
    #[inline(always)]
    fn run_until_gone(&self) {
        loop {
            self.tracer.switch(&self.hub.trace, self.hub.id, self.me);
            let is_gone = if self.tracer.is_on() { self.drive::<true>() } else { self.drive::<false>() };
            if is_gone {
                return;
            }
        }
    }

    /// The loop; one with recording and one without, so that the trace costs a turn nothing while it is
    /// off. `true`: the end has come; `false`: the trace goes on or off.
    fn drive<const TRACED: bool>(&self) -> bool {
        loop {
            let found = self.pick().or_else(|| if self.tracer.leaves() { None } else { self.take_shared() });
            if let Some(item) = found {
                self.found_work();
                self.turn::<TRACED>(item);
                continue;
            }
            if self.tracer.leaves() {
                return false;
            }
            if self.hub.phase() == Phase::Gone || self.is_recalled.get() {
                // The hub's next host counts its own searchers.
                self.found_work();
                return true;
            }
            if self.hub.poller.is_used() && self.poll_now() {
                continue;
            }
            if let Some(item) = self.search() {
                self.found_work();
                self.turn::<TRACED>(item);
                continue;
            }
            self.park();
        }
    }

    #[inline(always)]
    fn turn<const TRACED: bool>(&self, item: Item) {
        if TRACED {
            let turn = self.trace_turn(item, self.shared);
            self.run::<true>(item);
            self.trace_turn_end(&turn, self.shared);
        } else {
            self.run::<false>(item);
        }
    }

    /// The next process; see the module's table. `None`: the local queues are empty, or the worker is to
    /// leave its loop for a while.
    #[inline(always)]
    fn pick(&self) -> Option<Item> {
        Counters::bump(&self.shared.counters.turns);
        let until_look = self.until_look.get();
        self.until_look.set(until_look.wrapping_sub(1));
        if (until_look == 0 || self.shared.next.1.load(Relaxed))
            && let ControlFlow::Break(answer) = self.look_around()
        {
            return answer;
        }
        if until_look.is_multiple_of(LOOK_AT_INJECT) && !self.at_home().inject.is_empty() {
            self.take_in();
        }
        self.pick_local()
    }

    /// What others left in the inject queue takes its place in the FIFO.
    #[cold]
    #[inline(never)]
    fn take_in(&self) {
        if !self.is_recalled.get() {
            self.at_home().inject.take_all(&InMemory, |item| self.push_old(item));
        }
    }

    #[inline(always)]
    fn pick_local(&self) -> Option<Item> {
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

    /// Every so many turns: what lies beyond the local queues must not wait for them to be empty. The
    /// answer, if any, is that of the pick.
    #[cold]
    #[inline(never)]
    fn look_around(&self) -> ControlFlow<Option<Item>> {
        self.until_look.set(LOOK_AROUND - 1);
        let looks = self.looks.get().wrapping_add(1);
        self.looks.set(looks);
        self.sample.set(cfg!(feature = "stats"));
        let is_called = self.is_called();
        if is_called {
            // A swap: no load below may be ahead of it, or it would undo a call whose cause was not seen.
            // Acquire: pairs with the Release in `ask_attention`.
            self.shared.next.1.swap(false, AcqRel);
            // The turn before may have been a long step.
            self.shared.long.note_end(self.shared.turn() - 1, clock::now_nanos());
        }
        if self.note_recall() {
            return ControlFlow::Break(None);
        }
        self.recall();
        let home = self.at_home();
        if looks.is_multiple_of(4) || home.timers.next_due() != NEVER {
            let now = clock::refresh();
            self.fire(home, now);
        }
        if self.hub.poller.is_used() && self.hub.poller.is_overdue(clock::refresh(), poller::FRESH) {
            self.poll_now();
        }
        if !home.inject.is_empty() {
            self.take_in();
        }
        self.relieve();
        if self.hub.idle.hint() && (self.shared.has_stealable()) {
            self.hub.wake_one(None);
        }
        if self.tracer.look(&self.hub.trace) {
            return ControlFlow::Break(None);
        }
        match self.look_at_global(is_called) {
            None => ControlFlow::Continue(()),
            found => ControlFlow::Break(found),
        }
    }

    /// One of the global queue. If the worker was called the turns here are long, and `LOOK_AROUND` of them
    /// for each that waits would be too many: some run in a row.
    fn look_at_global(&self, is_called: bool) -> Option<Item> {
        let row = self.row.replace(Row::None);
        if self.hub.global.is_empty() {
            return None;
        }
        let left = match (row, is_called) {
            (Row::None, false) => return self.hub.global.try_pop(&InMemory),
            (Row::None, true) | (Row::Owed, _) => GLOBAL_MAX,
            (Row::Left(left), _) => left,
            (Row::Over, false) => return None,
            (Row::Over, true) => {
                // A local one first; then the call holds. (Not by a call: a step that is called gets one event.)
                self.row.set(Row::Owed);
                self.until_look.set(0);
                return None;
            }
        };
        let found = self.hub.global.try_pop(&InMemory);
        if found.is_some() {
            self.until_look.set(0);
            self.row.set(if left > 1 { Row::Left(left - 1) } else { Row::Over });
        }
        found
    }

    /// The home's inject queue, the global queue, the home's timers.
    fn take_shared(&self) -> Option<Item> {
        if self.is_recalled.get() {
            return None;
        }
        let home = self.at_home();
        self.take_inject(home).or_else(|| self.take_global()).or_else(|| {
            let due = home.timers.next_due();
            if due == NEVER || self.fire(home, clock::refresh()) == 0 {
                return None;
            }
            self.pick_local()
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
        let mut batch = [0; GLOBAL_MAX];
        let mut count = 0;
        self.hub.global.pop_batch(share, &InMemory, |item| {
            batch[count] = item;
            count += 1;
        });
        let (&first, rest) = batch[..count].split_first()?;
        if !rest.is_empty() {
            fetch_mailboxes(&batch[..count]);
            rest.iter().for_each(|&item| self.push_old(item));
            self.announce_batch();
        }
        Some(first)
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
                if now.saturating_sub(began) > YIELDING_MAX || self.at_home().timers.next_due() <= now {
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
        let end = (began + limit).min(self.at_home().timers.next_due());
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
        let count = self.hub.in_use();
        let start = self.random() as usize;
        (0..count)
            .map(|offset| (start.wrapping_add(offset)) % count)
            .filter(|&at| at != self.me as usize)
            .map(|at| self.hub.entry(at))
            .find(|worker| !worker.next.0.is_empty())
            .map(|worker| (worker, worker.turn()))
    }

    /// What [`Self::held_back`] found, if that worker's step has lasted for all of a search.
    fn steal_held_back(&self, found: Option<(&WorkerShared, u64)>, searched: u64) -> Option<Item> {
        let (victim, turn) = found?;
        if searched < LONG_STEP {
            return None;
        }
        let item = victim.next.0.steal(|| victim.turn() == turn)?;
        self.count(|counters| &counters.steals);
        self.trace_steal(victim, item);
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
        let count = self.hub.in_use();
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
            let victim = self.hub.entry(index);
            if let Some(item) = self.steal_from(victim) {
                self.count(|counters| &counters.steals);
                self.trace_steal(victim, item);
                return Some(item);
            }
            let due = victim.timers.next_due();
            if due != NEVER
                && due <= clock::coarse_nanos()
                && self.fire(victim, clock::refresh()) > 0
                && let Some(item) = self.pick_local()
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
        // Counted before anybody can see it parked, and taken back if it does not stay.
        self.count(|counters| &counters.parks);
        self.hub.idle.enter_at(self.me, searching, role.is_some());
        // The second look, after the fence in `enter`. While somebody searches, what is there is theirs.
        let others_search = self.hub.idle.counts().1 > 0;
        let home = self.at_home();
        let due = home.timers.next_due();
        let now = clock::refresh();
        self.recall();
        let stay = !self.note_recall()
            && self.hub.phase() != Phase::Gone
            && due > now
            && (others_search && home.inject.is_empty() || !self.hub.any_work());
        if stay {
            let limit = (due != NEVER).then(|| Duration::from_nanos(due - now));
            self.trace(Kind::Park, limit.map_or(u64::MAX, |_| due - now));
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
        if !stay && cfg!(feature = "stats") {
            Counters::add(&self.shared.counters.parks, u64::MAX);
        }
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
        // A few all the same: the FIFO may be full of what yields all the time.
        let room = poller::EVENTS_MAX.saturating_sub(self.fifo.len()).max(poller::EVENTS_MIN);
        let Some(mut role) = self.hub.poller.take_role() else {
            return false;
        };
        let events = role.look(room, &mut self.polled.borrow_mut());
        drop(role);
        self.note_poll(events);
        self.wake_polled()
    }

    fn note_poll(&self, events: u64) {
        self.trace(Kind::Poll, events);
        self.count(|counters| &counters.polls);
        if cfg!(feature = "stats") && events > 0 {
            Counters::add(&self.shared.counters.poll_events, events);
        }
    }

    /// Wakes whom the last poll found. `true`: somebody.
    fn wake_polled(&self) -> bool {
        let mut wakers = std::mem::take(&mut *self.polled.borrow_mut());
        let found = !wakers.is_empty();
        self.between_steps(|| poller::wake_all(&mut wakers));
        // Keeps the buffer.
        *self.polled.borrow_mut() = wakers;
        found
    }

    /// Back from a park that began at `since`.
    fn back(&self, since: u64) {
        self.trace(Kind::ParkEnd, 0);
        let now = clock::refresh();
        self.note_gap(now.saturating_sub(since));
        self.hub.idle.is_up();
        self.watch_timers();
    }

    /// Back from the list of sleepers: its timers are no longer those of a sleeper, whose bed has their limit,
    /// and perhaps nobody sleeps in the poller any more.
    /// Model: `model::watch::a_worker_that_is_back_has_its_timers_watched`.
    fn watch_timers(&self) {
        if self.at_home().timers.next_due() != NEVER || self.hub.poller.is_used() {
            self.hub.watch.ensure_awake();
        }
    }

    // ---------------------------------------------------------------- absence: see `spare`

    /// A spare's life from a call to a recall.
    fn stand_in(&self) {
        let hub = self.hub;
        let home = self.shared.home.load(Relaxed);
        self.home.set(home);
        self.at_home.set(hub.entry(home as usize));
        self.stands_for.set(self.shared.stands_for(hub));
        self.is_recalled.set(false);
        // By who called it.
        self.searching.set(true);
        hub.idle.is_up();
        if !self.note_recall() {
            self.run_until_gone();
        }
        self.found_work();
        // Who lends to this one from here on finds that the turn has moved, and takes back; who did before is
        // found by the look. Pairs with the fence in `Absence::lend`.
        Counters::bump(&self.shared.counters.turns);
        crate::sync::fence(crate::sync::SeqCst);
        self.recall();
        // It may linger for long: others use its cells.
        self.magazines.flush();
        hub.idle.resign();
        if hub.poller.is_used() {
            // Who parked while this one slept in the poller sleeps in its bed.
            poller::make_sure_somebody_polls(hub);
        }
        if hub.any_work() && !hub.wake_one(None) {
            hub.watch.ensure_awake();
        }
    }

    /// Has this spare been recalled? Then it hands in what it has, and finds nothing any more.
    fn note_recall(&self) -> bool {
        let Some(absent) = self.stands_for.get() else {
            return false;
        };
        if absent.absence.is_stood_in_by(self.me) {
            return false;
        }
        self.is_recalled.set(true);
        let oldest = || self.fifo.pop().or_else(|| self.shared.deque.take_oldest());
        let mut items = std::iter::from_fn(|| oldest().or_else(|| self.shared.next.0.take()));
        // In pieces: what is between two queues nobody else reaches.
        while self.hub.global.push_chain(items.by_ref().take(STEAL_MAX), &InMemory) > 0 {}
        true
    }

    /// Recalls who stands in for this worker, and who stands in for that one.
    #[inline]
    fn recall(&self) {
        if self.shared.absence.stand_in().is_some() {
            self.recall_line();
        }
    }

    #[cold]
    fn recall_line(&self) {
        let mut absent = self.shared;
        while let Some(spare) = absent.absence.recall() {
            self.engine.spares.note_recall();
            self.trace(Kind::Recall, spare.into());
            absent = self.hub.entry(spare as usize);
            absent.ask_attention();
            if self.hub.idle.choose_exactly(spare) {
                absent.parker.unpark();
            }
        }
    }

    /// A spare with work of its own takes some of what waits with those it stands in for, too.
    fn relieve(&self) {
        let mut absent = self.stands_for.get();
        while let Some(worker) = absent {
            if let Some(item) = self.steal_from(worker) {
                self.push_old(item);
            }
            absent = worker.stands_for(self.hub);
        }
    }

    /// The closure that this worker runs may block: it hands over. `None`: it has done so already.
    #[cold]
    pub(crate) fn go_away(&self) -> Option<Away<'_>> {
        if self.queues_for.get() != self.hub.id {
            return None;
        }
        // User code may run in a search, too: when a timer is fired for a process that has ended.
        self.found_work();
        self.queues_for.set(NO_HOST);
        self.tracer.go_away();
        self.trace(Kind::HandOff, 0);
        let turn = self.shared.turn();
        // The run-next place becomes everybody's.
        self.shared.judge_stuck(turn);
        if let Some(item) = self.shared.next.0.take()
            && let Err(item) = self.deque.push(item)
        {
            self.spill_deque(item);
        }
        self.shared.absence.go_away(turn);
        if self.hub.idle.counts() == (0, 0) {
            // Who comes after the look below calls the monitor.
            self.hub.watch.announce();
        }
        let home = self.at_home();
        let waits = self.shared.has_waiting()
            || home.has_waiting()
            || !self.hub.global.is_empty()
            || home.timers.next_due() <= clock::coarse_nanos();
        let is_seen = waits && (self.hub.wake_one(None) || self.hub.idle.counts().1 > 0);
        if waits && !is_seen {
            let has_stand_in = self.shared.absence.stand_in().is_some();
            if has_stand_in || !self.engine.spares.lend(&self.engine, self.me, turn, By::Owner) {
                self.hub.watch.ensure_awake();
            }
        }
        Some(Away(self))
    }

    /// To where everybody takes it.
    #[cold]
    fn queue_globally(&self, item: Item) {
        self.hub.global.push(item, &InMemory);
        if !self.hub.wake_one(None) {
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

    /// Queues a process that a timer or the poller woke: behind those found before it. (At the young end the
    /// last of a thousand ready sockets would come first, and the first ones wait for hundreds of
    /// milliseconds.)
    #[cold]
    pub(crate) fn queue_found(&self, item: Item) {
        self.push_old(item);
        if !self.hub.idle.hint() || !self.hub.wake_one(None) {
            self.hub.watch.ensure_awake();
        }
    }

    /// Runs `act`, which wakes processes though no step runs: whom it wakes may spawn, and is queued in the
    /// order of the wakes.
    fn between_steps<R>(&self, act: impl FnOnce() -> R) -> R {
        self.is_between_steps.set(true);
        self.tracer.go_away();
        let result = act();
        self.tracer.come_back(self.hub.id);
        self.is_between_steps.set(false);
        result
    }

    /// Queues a process that a step of this worker spawned.
    #[inline(always)]
    pub(crate) fn queue_spawned(&self, item: Item) {
        self.trace_process(Kind::Spawn, item);
        if self.queues_for.get() != self.hub.id {
            return self.queue_globally(item);
        }
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
        let home = self.home.get();
        if slot.worker.load(Relaxed) != home {
            slot.worker.store(home, Relaxed);
        }
    }

    // ---------------------------------------------------------------- one turn

    #[inline(always)]
    fn run<const TRACED: bool>(&self, number: Item) {
        let slot = memory::slot(number);
        // Relaxed: for the monitor, which looks at the turn before and after.
        self.shared.counters.running.store(number, Relaxed);
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
                    } else if TRACED {
                        self.tracer.note_wait(wait);
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

    /// The claim of a process with a cold part or with messages taken before; or what somebody left to be taken
    /// apart. `false`: this turn is over.
    #[cold]
    #[inline(never)]
    fn claim_slowly(&self, number: Item, pid: LocalPid, slot: &'static Slot, inbox: u32) -> bool {
        // SAFETY: the runner alone touches the cold part.
        let mut cold = slot.cold.with(|cold| unsafe { (*cold).as_mut() });
        if let Some(leftover) = cold.as_mut().and_then(|cold| cold.leftover.take()) {
            self.take_apart(number, slot, *leftover);
            return false;
        }
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
        let may_begin = closed.and(match upgrade.refused {
            None => Ok(()),
            Some(refused) => Err(ExitReason::InitFailed(refused.into())),
        });
        let begun = match may_begin {
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
        contain(|| unsafe { close(body) }).map_err(|error| ExitReason::Panicked(error.text().into()))
    }

    fn drop_body(&self, slot: &Slot, table: &ProcessTable) {
        if let Some(drop) = table.drop {
            let body = body_of(slot, table);
            // SAFETY: the runner drops the body once, and does not use it again.
            let _ = contain(|| unsafe { drop(body) });
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
        if self.engine.checks_births {
            // Before anybody can find it ended, so that who does finds room for another.
            self.engine.unadmit_birth();
        }
        Counters::bump(&self.shared.counters.ending);
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
            if !self.end_known(number, slot, first, word, inbox, cold, reason, result) {
                return;
            }
        } else if !matches!(reason, ExitReason::Normal) {
            // An error may come from a type of the user's.
            let _ = contain(|| drop(reason));
        }
        self.finish_end(number, word.generation());
    }

    /// The slot of a process that has ended is free for another.
    #[inline]
    fn finish_end(&self, number: Item, generation: u32) {
        if generation < self.engine.config.generation_max {
            self.magazines.free(Class::Slot, number);
        } else {
            self.count(|counters| &counters.retired);
        }
        Counters::bump(&self.shared.counters.ended);
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
        let key = self.at_home().timers.arm(self.home.get(), due, action);
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
        match cold.pending.get_mut(seq) {
            Some(pending) => pending.timer = Some(key),
            None => {
                self.hub.workers[key.worker as usize].timers.cancel(key);
            }
        }
    }

    /// The yield of a ticker: an answer does not end it.
    pub(crate) fn make_repeating(&self, slot: &Slot, to: ReplyTo, period: u64) {
        // SAFETY: as in `attach`.
        let cold = unsafe { cold_of(slot) };
        cold.ticking = Some(to.pid);
        if let Some(pending) = cold.pending.get_mut(to.seq) {
            pending.period = period;
        }
    }

    /// A tick was delivered to the process that this worker runs, or dropped by it: the next one is due at
    /// the next whole period. So at most one is on its way, however long the process takes.
    pub(crate) fn arm_next_tick(&self, pid: LocalPid, pending: &mut Pending) {
        let Some(last) = pending.timer else {
            return;
        };
        // It has fired, but for a tick that a reset of the queue missed: never two at a time.
        self.forget_timer(pending);
        let now = clock::now_nanos();
        let due = if now < last.due {
            last.due
        } else {
            let periods = (now - last.due) / pending.period + 1;
            last.due.saturating_add(pending.period.saturating_mul(periods))
        };
        pending.timer = Some(self.arm(due, TimerAction::Complete(ReplyTo { pid, seq: pending.seq })));
    }

    pub(crate) fn forget_timer(&self, pending: &Pending) {
        if let Some(key) = pending.timer {
            self.hub.workers[key.worker as usize].timers.cancel(key);
        }
    }

    /// Fires what is due with a worker: its own, or one that is busy.
    fn fire(&self, of: &WorkerShared, now: u64) -> usize {
        self.between_steps(|| self.fire_now(of, now))
    }

    fn fire_now(&self, of: &WorkerShared, now: u64) -> usize {
        of.timers.fire(now, |key, action| {
            self.count(|counters| &counters.timers_fired);
            self.shared.counters.note_lateness(now.saturating_sub(key.due));
            match action {
                TimerAction::Complete(to) => {
                    route::complete(to, Ok(Payload::new(clock::coarse())));
                }
                TimerAction::TimeOut(to) => {
                    route::complete(to, Err(YieldError::TimedOut));
                }
                TimerAction::Wake(waker) => {
                    // Another runtime's waker may panic.
                    let _ = contain(|| waker.wake());
                }
                TimerAction::Kill(pid, reason) => {
                    links::kill(pid, reason);
                }
            }
        })
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
            self.chain_seq.set(message.seq());
        } else {
            self.chain_len.set(0);
        }
    }

    /// An answer goes out. If it is to the request that the step took last, nobody waits for this process any
    /// more on that request's behalf: neither its asker nor, through that one, the askers before.
    #[inline]
    pub(crate) fn note_answer(&self, to: ReplyTo) {
        let len = self.chain_len.get();
        if len != 0 && self.chain_seq.get() == to.seq && self.chain.get()[len - 1] == Some(to.pid) {
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
