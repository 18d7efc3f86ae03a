//! The trace: what each worker did, when, and who woke whom.
//!
//! # How it is switched
//!
//! A host has a [`Control`]: the number of the session that is wanted, 0 if none, and that session. A worker
//! compares the number with its own at each look around (the monitor's flag, which it reads at every pick,
//! calls it there at once) and then changes loops: one is compiled with recording, one without. So a turn
//! pays nothing while the trace is off; see `Worker::drive`.
//!
//! A wake is recorded by the waker. Whether the trace is on it learns from a comparison that it makes anyway:
//! [`Tracer::wakes_for`] is the host for whose processes a wake takes the short way, and none while the trace
//! is on. A spawn costs a look at a flag in the worker's own memory.
//!
//! # Where events lie
//!
//! Each worker writes to a [`Ring`] of its own, which it makes when it joins a session. Threads outside, and
//! the monitor, write to rings of the session under the control's lock. Every event has 24 bytes:
//!
//! | word | holds |
//! | --- | --- |
//! | 0 | nanoseconds of [`crate::clock`] |
//! | 1 | slot (32 bits), generation (24), [`Kind`] (8) |
//! | 2 | argument, see [`Kind`] |
//!
//! An event that makes a process ready is recorded before the process is queued, so it is never later than
//! the turn that it leads to.
//!
//! A session is read as a copy ([`Ring::copy`]), at its end or while it goes on. A worker that has not yet
//! heard of the end writes to the rings of the old session, which nobody reads any more.

mod chrome;
mod observers;
pub(crate) mod ring;
mod settings;
mod summary;

pub(crate) use observers::{DROP_WAIT, Observers};
pub(crate) use settings::Settings;
pub use summary::Summary;

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;

use crate::process::slot::Wait;
use crate::process::table::ProcessTable;
use crate::queues::Item;
use crate::route::host::{Hub, Scheduler};
use crate::sync::{AtomicU32, Mutex, Relaxed};
use crate::trace::ring::{Ring, Words};
use crate::worker::{Worker, WorkerShared};
use crate::{clock, memory};

/// Events that a ring holds, unless the host's settings say otherwise.
const EVENTS_MAX: usize = 1 << 16;
/// The least and the most events that a ring may be set to hold.
const EVENTS_RANGE: (usize, usize) = (2, 1 << 24);

/// The most events that the ring of the monitor holds: it acts every few milliseconds.
const MONITOR_EVENTS_MAX: usize = 1 << 12;

/// What happened. "Of a process" says that the event carries slot and generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A turn of a process begins. Argument: its table.
    Run = 1,
    /// That turn is over. Argument: the worker's number of the turn, and the [`Outcome`] in the lowest byte.
    RunEnd,
    /// A process was made. Argument: its table.
    Spawn,
    /// A waiting process became ready. Argument: its table.
    Wake,
    /// Of the first process taken. Argument: the worker it was taken from.
    Steal,
    /// The worker goes to sleep. Argument: for at most so many nanoseconds; `u64::MAX`: without a limit.
    Park,
    /// It is back.
    ParkEnd,
    /// The monitor points a worker to due timers or to work that waits. Argument: which worker.
    Attention,
    /// The monitor finds a step that does not end. Argument: on which worker.
    Stuck,
    /// The monitor wakes a thief for it. Argument: which worker.
    Thief,
    /// The monitor ends whoever is left. Argument: how many processes.
    Sweep,
    /// A look for readiness. Argument: how many were ready.
    Poll,
    /// The worker goes to another thread before a closure blocks. Argument: which thread.
    HandOff,
    /// A spare worker starts beside a stuck one. Argument: which one is stuck.
    Lend,
    /// It is given up. Argument: as for `Lend`.
    Recall,
}

impl Kind {
    const ALL: [Kind; 15] = [
        Kind::Run,
        Kind::RunEnd,
        Kind::Spawn,
        Kind::Wake,
        Kind::Steal,
        Kind::Park,
        Kind::ParkEnd,
        Kind::Attention,
        Kind::Stuck,
        Kind::Thief,
        Kind::Sweep,
        Kind::Poll,
        Kind::HandOff,
        Kind::Lend,
        Kind::Recall,
    ];
}

/// How a turn ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Outcome {
    /// The process goes on later.
    Again,
    /// It waits for messages.
    Idle,
    /// It waits for yields.
    Blocked,
    /// It has ended.
    Ended,
}

impl Outcome {
    const ALL: [Outcome; 4] = [Outcome::Again, Outcome::Idle, Outcome::Blocked, Outcome::Ended];
}

impl From<Wait> for Outcome {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::Idle => Outcome::Idle,
            Wait::Blocked => Outcome::Blocked,
        }
    }
}

/// An event, out of its ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Event {
    time: u64,
    kind: Kind,
    /// 0: the event is of no process.
    slot: u32,
    generation: u32,
    argument: u64,
}

impl Event {
    fn now(kind: Kind, slot: u32, generation: u32, argument: u64) -> Self {
        Self { time: clock::now_nanos(), kind, slot, generation, argument }
    }

    /// An event of a process that the caller holds: it runs it, or has made it ready and not yet queued it.
    fn of(kind: Kind, number: Item, argument: Option<u64>) -> Self {
        let slot = memory::slot(number);
        let argument = argument.unwrap_or_else(|| slot.table.load(Relaxed).expose_provenance() as u64);
        Self::now(kind, number, slot.first(), argument)
    }

    fn words(self) -> Words {
        let Event { time, kind, slot, generation, argument } = self;
        [time, u64::from(slot) << 32 | u64::from(generation) << 8 | kind as u64, argument]
    }

    /// `None`: no event has such words.
    fn from_words([time, what, argument]: Words) -> Option<Self> {
        let kind = *Kind::ALL.get((what as u8).checked_sub(1)? as usize)?;
        let generation = what as u32 >> 8;
        Some(Self { time, kind, slot: (what >> 32) as u32, generation, argument })
    }

    /// The name of the process's type; for the kinds whose argument is its table.
    fn type_name(&self) -> Option<&'static str> {
        let table: *const ProcessTable = ptr::with_exposed_provenance(self.argument as usize);
        // SAFETY: of these kinds the argument is the address of a process's table, which is a static, and
        // was exposed in `of`.
        (matches!(self.kind, Kind::Run | Kind::Spawn | Kind::Wake) && !table.is_null())
            .then(|| unsafe { (*table).name() })
    }
}

/// Whose row of the picture it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Row {
    Worker(u16),
    Outside,
    Monitor,
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Row::Worker(worker) => write!(f, "worker {worker}"),
            Row::Outside => f.write_str("outside"),
            Row::Monitor => f.write_str("monitor"),
        }
    }
}

struct Track {
    row: Row,
    ring: Ring,
}

impl Track {
    fn new(row: Row, capacity: usize) -> Arc<Self> {
        Arc::new(Self { row, ring: Ring::new(capacity) })
    }
}

/// One time of tracing.
#[derive(Clone)]
struct Session {
    capacity: usize,
    began: u64,
    /// In the order in which they joined; the first two are the outside's and the monitor's.
    tracks: Vec<Arc<Track>>,
}

const OUTSIDE: usize = 0;
const MONITOR: usize = 1;

/// The switch of a host.
pub(crate) struct Control {
    /// Number of the session that is on, 0 if none.
    wanted: AtomicU32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u32,
    session: Option<Session>,
}

impl Control {
    pub(crate) fn new() -> Self {
        Self { wanted: AtomicU32::new(0), state: Mutex::new(State::default()) }
    }

    /// Forgets what the hub's last host recorded.
    pub(crate) fn reset(&self) {
        let session = self.end();
        drop(session);
    }

    fn wanted(&self) -> u32 {
        // Relaxed: a worker that reads an older number looks again; the session itself is behind the lock.
        self.wanted.load(Relaxed)
    }

    /// Begins a session. `false`: one is on already.
    pub(crate) fn begin(&self, capacity: usize) -> bool {
        let mut state = self.state.lock();
        if state.session.is_some() {
            return false;
        }
        state.last = state.last.checked_add(1).unwrap_or(1);
        state.session = Some(Session {
            capacity,
            began: clock::now_nanos(),
            tracks: vec![
                Track::new(Row::Outside, capacity),
                Track::new(Row::Monitor, capacity.min(MONITOR_EVENTS_MAX)),
            ],
        });
        self.wanted.store(state.last, Relaxed);
        true
    }

    fn end(&self) -> Option<Session> {
        let mut state = self.state.lock();
        self.wanted.store(0, Relaxed);
        state.session.take()
    }

    /// A worker joins the session that is on: its number, and a track for the worker.
    fn join(&self, worker: u16) -> Option<(u32, Arc<Track>)> {
        let mut state = self.state.lock();
        let number = state.last;
        let session = state.session.as_mut()?;
        let track = Track::new(Row::Worker(worker), session.capacity);
        session.tracks.push(Arc::clone(&track));
        Some((number, track))
    }

    /// Records an event of a process, for a thread that is no worker of this host.
    #[inline]
    pub(crate) fn outside(&self, kind: Kind, number: Item) {
        if self.wanted() != 0 {
            self.shared(OUTSIDE, || Event::of(kind, number, None));
        }
    }

    /// Records an act of the monitor.
    #[inline]
    pub(crate) fn monitor(&self, kind: Kind, argument: usize) {
        if self.wanted() != 0 {
            self.shared(MONITOR, || Event::now(kind, 0, 0, argument as u64));
        }
    }

    #[cold]
    fn shared(&self, track: usize, event: impl FnOnce() -> Event) {
        let state = self.state.lock();
        if let Some(session) = &state.session {
            // The clock is read under the lock, so that the times of a track rise; and the lock makes its
            // writers one at a time.
            session.tracks[track].ring.push(event().words());
        }
    }
}

/// A worker's side of the trace.
pub(crate) struct Tracer {
    /// Processes of which host are woken the short way: this worker's, or of none while the trace is on.
    wakes_for: Cell<u32>,
    is_on: Cell<bool>,
    /// Number of the session it belongs to.
    session: Cell<u32>,
    /// It has seen that another session is wanted, and leaves its loop.
    leaves: Cell<bool>,
    outcome: Cell<Outcome>,
    track: RefCell<Option<Arc<Track>>>,
}

impl Tracer {
    pub(crate) fn new(host: u16) -> Self {
        Self {
            wakes_for: Cell::new(host.into()),
            is_on: Cell::new(false),
            session: Cell::new(0),
            leaves: Cell::new(false),
            outcome: Cell::new(Outcome::Again),
            track: RefCell::new(None),
        }
    }

    /// Processes of which host are woken the short way; a number that no host has while the trace is on.
    #[inline(always)]
    pub(crate) fn wakes_for(&self) -> u32 {
        self.wakes_for.get()
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// Does it leave its loop?
    pub(crate) fn leaves(&self) -> bool {
        self.leaves.get()
    }

    /// Compares with the session that is wanted. `true`: the worker leaves its loop.
    pub(crate) fn look(&self, control: &Control) -> bool {
        self.leaves.set(control.wanted() != self.session.get());
        self.leaves.get()
    }

    /// Joins the session that is wanted, or none.
    pub(crate) fn switch(&self, control: &Control, host: u16, worker: u16) {
        self.leaves.set(false);
        if self.is_on() && control.wanted() == self.session.get() {
            // A spare that stands in again.
            return;
        }
        let joined = control.join(worker);
        self.is_on.set(joined.is_some());
        self.wakes_for.set(if joined.is_some() { u32::MAX } else { host.into() });
        let (number, track) = joined.unzip();
        self.session.set(number.unwrap_or(0));
        *self.track.borrow_mut() = track;
    }

    /// The worker is in a closure that may block: it wakes nobody the short way.
    pub(crate) fn go_away(&self) {
        self.wakes_for.set(u32::MAX);
    }

    pub(crate) fn come_back(&self, host: u16) {
        if !self.is_on() {
            self.wakes_for.set(host.into());
        }
    }

    pub(crate) fn note_wait(&self, wait: Wait) {
        self.outcome.set(wait.into());
    }

    #[cold]
    #[inline(never)]
    fn record(&self, event: impl FnOnce() -> Event) {
        if let Some(track) = &*self.track.borrow() {
            track.ring.push(event().words());
        }
    }
}

/// A turn that is being recorded.
pub(crate) struct Traced {
    number: Item,
    generation: u32,
    /// Processes that had ended on the worker.
    ended: u64,
}

impl Worker {
    /// Records an event of this worker, if the trace is on.
    #[inline(always)]
    pub(crate) fn trace(&self, kind: Kind, argument: u64) {
        if self.tracer.is_on() {
            self.tracer.record(|| Event::now(kind, 0, 0, argument));
        }
    }

    /// Records an event of a process that this worker holds, if the trace is on.
    #[inline(always)]
    pub(crate) fn trace_process(&self, kind: Kind, number: Item) {
        if self.tracer.is_on() {
            self.tracer.record(|| Event::of(kind, number, None));
        }
    }

    /// Records a steal, if the trace is on.
    pub(crate) fn trace_steal(&self, from: &WorkerShared, number: Item) {
        if self.tracer.is_on() {
            let from = self.hub().entries().position(|worker| ptr::eq(worker, from));
            let from = from.map_or(u64::MAX, |from| from as u64);
            self.tracer.record(|| Event::of(Kind::Steal, number, Some(from)));
        }
    }

    pub(crate) fn trace_turn(&self, number: Item, shared: &WorkerShared) -> Traced {
        self.tracer.outcome.set(Outcome::Again);
        self.tracer.record(|| Event::of(Kind::Run, number, None));
        let ended = shared.counters.ended.load(Relaxed);
        Traced { number, generation: memory::slot(number).first(), ended }
    }

    pub(crate) fn trace_turn_end(&self, turn: &Traced, shared: &WorkerShared) {
        let has_ended = shared.counters.ended.load(Relaxed) != turn.ended;
        let outcome = if has_ended { Outcome::Ended } else { self.tracer.outcome.get() };
        let argument = shared.turn() << 8 | outcome as u64;
        self.tracer.record(|| Event::now(Kind::RunEnd, turn.number, turn.generation, argument));
    }
}

/// What a host did for a while; see [`Scheduler::trace_start`].
pub struct Trace {
    host: u16,
    name: String,
    began: u64,
    ended: u64,
    tracks: Vec<Part>,
}

/// What was copied of a track.
struct Part {
    row: Row,
    lost: u64,
    events: Vec<Event>,
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trace({}, {} events, {} lost)", self.name, self.events(), self.lost())
    }
}

impl Trace {
    fn of(session: &Session, host: u16, name: &str) -> Self {
        // What is recorded from here on belongs to a picture that would have no end.
        let ended = clock::now_nanos();
        let mut tracks: Vec<Part> = session
            .tracks
            .iter()
            .map(|track| {
                let copied = track.ring.copy();
                let events = copied.events.into_iter().filter_map(Event::from_words);
                let events = events.filter(|event| event.time <= ended).collect();
                Part { row: track.row, lost: copied.lost, events }
            })
            .collect();
        tracks.sort_by_key(|track| track.row);
        Self { host, name: name.to_owned(), began: session.began, ended, tracks }
    }

    /// How many events it holds.
    #[must_use]
    pub fn events(&self) -> usize {
        self.tracks.iter().map(|track| track.events.len()).sum()
    }

    /// How many events were overwritten by later ones before they were read.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.tracks.iter().map(|track| track.lost).sum()
    }

    /// For how long it was recorded.
    #[must_use]
    pub fn duration(&self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.ended - self.began)
    }

    /// Writes it in the trace event format, as JSON, for <https://ui.perfetto.dev> or `chrome://tracing`.
    /// What is in it is described in `docs/trace.md`. Many small writes: hand in something buffered.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_chrome(&self, out: &mut impl std::io::Write) -> std::io::Result<()> {
        chrome::write(self, out)
    }
}

impl Scheduler {
    /// Begins to record what the workers do; see [`Trace`]. Each worker joins at its next look around, a few
    /// microseconds later unless its step is long; one that sleeps joins when it is woken. `false`: a trace
    /// is on already, and goes on.
    ///
    /// Each worker keeps its newest events in a ring of 24 bytes for each
    /// ([`crate::Builder::trace_events_max`]).
    pub fn trace_start(&self) -> bool {
        start(self.engine.hub, self.engine.observers.events_max)
    }

    /// Ends the trace and gives it; `None`: none is on.
    pub fn trace_stop(&self) -> Option<Trace> {
        stop(self.engine.hub, &self.engine.name)
    }

    /// What the trace holds so far; it goes on. `None`: none is on. It disturbs nobody.
    #[must_use]
    pub fn trace_so_far(&self) -> Option<Trace> {
        let hub = self.engine.hub;
        let session = hub.trace.state.lock().session.clone()?;
        Some(Trace::of(&session, hub.id, &self.engine.name))
    }
}

fn start(hub: &Hub, capacity: usize) -> bool {
    let began = hub.trace.begin(capacity);
    call_workers(hub);
    began
}

fn stop(hub: &Hub, name: &str) -> Option<Trace> {
    let session = hub.trace.end()?;
    call_workers(hub);
    Some(Trace::of(&session, hub.id, name))
}

fn call_workers(hub: &Hub) {
    hub.entries().for_each(WorkerShared::ask_attention);
}
