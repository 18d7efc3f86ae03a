//! A host: a named scheduler with its own workers, limits, commands and hooks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicPtr;
use std::time::Duration;

use crate::command::{
    Command, CommandId, Completer, DuplicateCommand, Entry, Handler, HandlerContext, Registry, TimerKey,
    YieldError,
};
use crate::memory::{self, InMemory};
use crate::poller::Poller;
use crate::process::message::{KIND_MESSAGE, Message};
use crate::process::slot::GENERATION_MAX;
use crate::process::{
    ExitReason, OnceTable, Place, Process, ProcessError, SendError, SpawnError, SpawnOptions, StepOutput,
    Topic, create, spawn_process,
};
use crate::queues::global::Global;
use crate::route::names::Names;
use crate::route::waiter::{self, CannotWait};
use crate::shutdown::Threads;
use crate::stats::{ProcessInfo, Stats};
use crate::sync::fixed;
use crate::sync::{AcqRel, Acquire, AtomicU32, AtomicU64, AtomicUsize, Mutex, Relaxed, Release};
use crate::trace::{self, Kind};
use crate::worker::idle::Idle;
use crate::worker::spare::{SPARES_MAX, Spares};
use crate::worker::timers::TimerAction;
use crate::worker::watch::Watch;
use crate::worker::{WorkerShared, watch};
use crate::{Payload, Pid, shutdown};

/// At most so many hosts are alive in one program.
const HOSTS_MAX: usize = 4096;
/// The stack of a thread, at least and at most.
const STACK_MIN: usize = 128 << 10;
const STACK_MAX: usize = 1 << 30;
/// At most so many workers has a host.
pub const WORKERS_MAX: usize = 1024;

static HUBS: [AtomicPtr<Hub>; HOSTS_MAX] = [const { AtomicPtr::new(std::ptr::null_mut()) }; HOSTS_MAX];
static TABLE: fixed::Mutex<HubTable> = fixed::Mutex::new(HubTable::new(HOSTS_MAX));

/// The hubs of a program. Each has a number, which at most one scheduler uses at a time.
struct HubTable {
    /// Hubs whose schedulers have ended.
    free: Vec<&'static Hub>,
    /// Hubs with another count of workers that had a number before its present hub. Their number is free when
    /// that one is.
    spare: Vec<&'static Hub>,
    /// Numbers given out so far.
    numbers: usize,
    max: usize,
}

impl HubTable {
    const fn new(max: usize) -> Self {
        Self { free: Vec::new(), spare: Vec::new(), numbers: 0, max }
    }

    /// A hub with that many workers, used before or new (`true`). `None`: every number is in use.
    ///
    /// A number may serve schedulers of every size, one after the other, and keeps the hub of each: memory is
    /// bounded by the greatest number of schedulers alive at a time, for each count of workers.
    fn take(&mut self, workers: usize) -> Option<(&'static Hub, bool)> {
        let fits = |hub: &&'static Hub| hub.workers.len() == workers;
        if let Some(place) = self.free.iter().position(fits) {
            return Some((self.free.swap_remove(place), false));
        }
        if self.numbers < self.max {
            self.numbers += 1;
            return Some((Hub::leak((self.numbers - 1) as u16, workers), true));
        }
        let free: HashSet<u16> = self.free.iter().map(|hub| hub.id).collect();
        let spare = self.spare.iter().position(|hub| fits(hub) && free.contains(&hub.id));
        let hub = spare.map(|place| self.spare.swap_remove(place));
        let number = hub.or(self.free.last().copied())?.id;
        let place = self.free.iter().position(|hub| hub.id == number).expect("its number is free");
        self.spare.push(self.free.swap_remove(place));
        Some(hub.map_or_else(|| (Hub::leak(number, workers), true), |hub| (hub, false)))
    }
}

/// Where the life of a host stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Phase {
    Open = 0,
    /// Shutting down: nobody is born any more.
    Closing = 1,
    /// Whoever is left is being ended.
    Ending = 2,
    /// Nobody is left: workers go.
    Gone = 3,
}

/// What workers and outside threads of a host share. It is never freed but used again by a later host
/// with as many workers, so that a thread that was preempted in the middle of a wake finds it: a wake for
/// nobody, whether its number has gone to another hub by then or not.
pub(crate) struct Hub {
    pub(crate) id: u16,
    pub(crate) workers: Box<[WorkerShared]>,
    /// Spare workers, made when they are first needed; see [`crate::worker::spare`]. Numbered on from
    /// `workers`.
    spares: Box<[AtomicPtr<WorkerShared>]>,
    /// Workers and spares below this number may have work.
    in_use: AtomicUsize,
    pub(crate) global: Global,
    pub(crate) idle: Idle,
    pub(crate) watch: Watch,
    pub(crate) poller: &'static Poller,
    pub(crate) trace: trace::Control,
    phase: AtomicU32,
    /// How many schedulers have used it before.
    life: AtomicU32,
    /// Births from outside, against the beginning of the end.
    births: Mutex<()>,
    outside_births: AtomicU64,
    /// Messages to its processes from others than its own steps that a budget did not admit.
    pub(crate) over_budget_outside: AtomicU64,
    /// Messages that threads outside dropped with a name.
    dropped_outside: AtomicU64,
    /// The address of the names of its present runtime; compared, never followed.
    names: AtomicUsize,
}

/// The hub of a host number that a slot carries.
#[inline]
pub(crate) fn hub(id: u16) -> &'static Hub {
    // Acquire: pairs with the Release in `Hub::take`.
    let hub = HUBS[id as usize].load(Acquire);
    debug_assert!(!hub.is_null());
    // SAFETY: a live slot's host was registered before the slot was published, and hubs stay.
    unsafe { &*hub }
}

/// Does the host of that number take its names from this table? `false`: also if there is no such host.
pub(crate) fn shares_names(id: u16, names: &Names) -> bool {
    let Some(hub) = HUBS.get(id as usize) else {
        return false;
    };
    // Acquire: pairs with the Release in `Hub::take`.
    let hub = hub.load(Acquire);
    // SAFETY: hubs stay.
    !hub.is_null() && unsafe { &*hub }.names.load(Relaxed) == std::ptr::from_ref(names).addr()
}

impl Hub {
    /// A hub with that many workers, used or new.
    fn take(workers: usize, names: &Names) -> Result<&'static Hub, StartError> {
        let mut table = TABLE.lock();
        let (hub, is_new) = table.take(workers).ok_or(StartError::TooManyHosts(HOSTS_MAX))?;
        hub.names.store(std::ptr::from_ref(names).addr(), Relaxed);
        if !is_new {
            hub.life.fetch_add(1, Relaxed);
            hub.outside_births.store(0, Relaxed);
            hub.dropped_outside.store(0, Relaxed);
            hub.over_budget_outside.store(0, Relaxed);
            hub.poller.reset();
            hub.workers.iter().chain(hub.spares()).for_each(WorkerShared::reset);
        }
        // Release: pairs with the Acquire in `phase`.
        hub.phase.store(Phase::Open as u32, Release);
        // Release: pairs with the Acquire in `hub`. Who still has another hub of this number is late with a wake
        // for a scheduler that has ended.
        HUBS[hub.id as usize].store(std::ptr::from_ref(hub).cast_mut(), Release);
        Ok(hub)
    }

    fn leak(id: u16, workers: usize) -> &'static Hub {
        let poller: &'static Poller = Box::leak(Box::new(Poller::new()));
        Box::leak(Box::new(Hub {
            id,
            workers: (0..workers).map(|index| WorkerShared::new(index as u16, poller)).collect(),
            spares: (0..SPARES_MAX).map(|_| AtomicPtr::default()).collect(),
            in_use: AtomicUsize::new(workers),
            global: Global::new(),
            idle: Idle::new(workers),
            watch: Watch::new(),
            poller,
            phase: AtomicU32::new(Phase::Gone as u32),
            life: AtomicU32::new(0),
            trace: trace::Control::new(),
            births: Mutex::new(()),
            outside_births: AtomicU64::new(0),
            over_budget_outside: AtomicU64::new(0),
            dropped_outside: AtomicU64::new(0),
            names: AtomicUsize::new(0),
        }))
    }

    /// Its present life; for what may be left of an earlier one.
    pub(crate) fn life(&self) -> u32 {
        self.life.load(Relaxed)
    }

    /// Takes all timers away. Futures that wait for one are woken.
    pub(crate) fn end_timers(&self) {
        for worker in &self.workers {
            worker.timers.end();
        }
    }

    /// Gives a hub back when nobody knows it any more: no thread, no process, no handle.
    fn give_back(&'static self) {
        self.end_timers();
        self.trace.reset();
        TABLE.lock().free.push(self);
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        // Acquire: pairs with the AcqRel in `advance`.
        match self.phase.load(Acquire) {
            0 => Phase::Open,
            1 => Phase::Closing,
            2 => Phase::Ending,
            _ => Phase::Gone,
        }
    }

    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        self.phase.load(Relaxed) == Phase::Open as u32
    }

    /// Moves the phase forward, never back. `true`: this call did it.
    pub(crate) fn advance(&self, to: Phase) -> bool {
        let _births = self.births.lock();
        self.phase.fetch_max(to as u32, AcqRel) < to as u32
    }

    /// Processes alive. Exact once births have ended; before, as of some moment of the call.
    pub(crate) fn live(&self) -> u64 {
        // Ends first: then a process that is born and ends during the call never makes it negative, and
        // equal sums mean that nobody was alive when the first one was read.
        let ended = self.ended();
        self.born().saturating_sub(ended)
    }

    /// Processes that have ended so far.
    pub(crate) fn ended(&self) -> u64 {
        self.made().map(|worker| worker.counters.ended.load(Acquire)).sum()
    }

    /// Processes whose end has begun so far. Who has been told of an end finds it counted here.
    pub(crate) fn ending(&self) -> u64 {
        self.made().map(|worker| worker.counters.ending.load(Acquire)).sum()
    }

    /// Processes born so far, from steps and from outside.
    pub(crate) fn born(&self) -> u64 {
        let spawned: u64 = self.made().map(|worker| worker.counters.spawned.load(Acquire)).sum();
        spawned + self.outside_births.load(Acquire)
    }

    /// Workers and every spare that there ever was.
    fn made(&self) -> impl Iterator<Item = &WorkerShared> {
        self.workers.iter().chain(self.spares())
    }

    /// Processes spawned from outside so far.
    pub(crate) fn outside_births(&self) -> u64 {
        self.outside_births.load(Relaxed)
    }

    /// A thread outside dropped so many messages that waited for a name of this host's.
    pub(crate) fn note_dropped(&self, count: u64) {
        if cfg!(feature = "stats") {
            self.dropped_outside.fetch_add(count, Relaxed);
        }
    }

    /// Messages that threads outside dropped.
    pub(crate) fn dropped_outside(&self) -> u64 {
        self.dropped_outside.load(Relaxed)
    }

    /// Publishes and queues a process that a thread outside made, unless the end has begun.
    pub(crate) fn enqueue_birth(
        &self,
        _engine: &Engine,
        number: u32,
        publish: impl FnOnce(),
    ) -> Result<(), ()> {
        {
            let _births = self.births.lock();
            if !self.is_open() {
                return Err(());
            }
            self.outside_births.fetch_add(1, AcqRel);
            publish();
        }
        self.trace.outside(Kind::Spawn, number);
        self.global.push(number, &InMemory);
        if !self.wake_one(None) {
            self.watch.ensure_awake();
        }
        Ok(())
    }

    /// As [`Self::enqueue_birth`] for a process that `publish` leaves held by this thread: it is queued
    /// afterwards.
    pub(crate) fn enqueue_special(
        &self,
        _engine: &Engine,
        place: Place<'_>,
        number: u32,
        publish: impl FnOnce() -> Result<(), SpawnError>,
    ) -> Result<(), SpawnError> {
        {
            let _births = self.births.lock();
            if !self.is_open() {
                return Err(SpawnError::Closing);
            }
            publish()?;
            match place {
                Place::Worker(worker, _) => worker.note_birth(),
                Place::Outside(_) => {
                    self.outside_births.fetch_add(1, AcqRel);
                }
            }
        }
        memory::slot(number).requeue();
        match place {
            Place::Worker(worker, _) => worker.queue_spawned(number),
            Place::Outside(_) => {
                self.trace.outside(Kind::Spawn, number);
                self.global.push(number, &InMemory);
                if !self.wake_one(None) {
                    self.watch.ensure_awake();
                }
            }
        }
        Ok(())
    }

    /// The worker or spare of that number, which is known to be there.
    #[inline]
    pub(crate) fn entry(&self, index: usize) -> &WorkerShared {
        match self.workers.get(index) {
            Some(worker) => worker,
            None => self.spare(index - self.workers.len()).expect("a spare is made before it is named"),
        }
    }

    fn spare(&self, place: usize) -> Option<&WorkerShared> {
        // Acquire: pairs with the Release in `make_spare`.
        let spare = self.spares[place].load(Acquire);
        // SAFETY: null, or a box that was leaked.
        unsafe { spare.as_ref() }
    }

    /// Workers, and spares that may have work. Whoever pushes to its own queues is among them: a spare is
    /// before it begins.
    #[inline]
    pub(crate) fn entries(&self) -> impl Iterator<Item = &WorkerShared> {
        self.workers.iter().chain(self.spares().take(self.in_use() - self.workers.len()))
    }

    /// Every spare that was ever needed. They are made one after the other.
    pub(crate) fn spares(&self) -> impl Iterator<Item = &WorkerShared> {
        (0..self.spares.len()).map_while(|place| self.spare(place))
    }

    /// Workers and spares that may have work have numbers below this.
    #[inline]
    pub(crate) fn in_use(&self) -> usize {
        // Acquire: pairs with the Release in `set_in_use`; who sees the number finds the spare.
        self.in_use.load(Acquire)
    }

    pub(crate) fn set_in_use(&self, end: usize) {
        // Release: pairs with the Acquire in `in_use`.
        self.in_use.store(end, Release);
    }

    /// Makes that spare, if it is not there; under the lock of the spares.
    pub(crate) fn make_spare(&self, index: u16) {
        let place = &self.spares[usize::from(index) - self.workers.len()];
        if place.load(Relaxed).is_null() {
            // Release: pairs with the Acquire in `spare`.
            place.store(Box::leak(Box::new(WorkerShared::new(index, self.poller))), Release);
        }
    }

    /// Wakes one worker if nobody searches and one is parked. `true`: it did.
    pub(crate) fn wake_one(&self, prefer: Option<u16>) -> bool {
        match self.idle.choose(prefer) {
            Some(worker) => {
                self.entry(worker as usize).parker.unpark();
                true
            }
            None => false,
        }
    }

    /// Takes a timer away; from any thread. The action is dropped here.
    pub(crate) fn cancel(&self, key: TimerKey) {
        self.workers[key.worker as usize].timers.cancel(key);
    }

    /// Arms a timer from any thread: with the present worker, or with the first one, which is then woken if
    /// it is parked, for it may be to sleep too long.
    pub(crate) fn arm(&self, due: u64, action: TimerAction) -> TimerKey {
        if let Some(worker) = crate::worker::current()
            && worker.host() == self.id
        {
            return worker.arm(due, action);
        }
        let key = self.workers[0].timers.arm(0, due, action);
        if self.idle.choose_exactly(0) {
            self.workers[0].parker.unpark();
        } else {
            self.watch.ensure_awake();
        }
        key
    }

    pub(crate) fn cancel_timer(&self, key: TimerKey) {
        self.workers[key.worker as usize].timers.cancel(key);
    }

    pub(crate) fn wake_all(&self) {
        for worker in self.idle.choose_all() {
            self.entry(worker as usize).parker.unpark();
        }
    }

    /// Is anything visible that a searcher could take? The run-next places do not count.
    #[inline]
    pub(crate) fn any_work(&self) -> bool {
        !self.global.is_empty()
            || self.entries().any(|worker| {
                let (_, fifo, inject) = worker.queued();
                fifo != 0 || inject != 0 || worker.has_deque()
            })
    }
}

/// What a host's hooks may do at the two ends of each process.
pub trait LifecycleHooks: Send + Sync + 'static {
    /// Before a process is published, on the spawner's thread.
    ///
    /// # Errors
    /// An error (or a panic) refuses the process: the spawner gets [`SpawnError::Refused`].
    fn on_start(&self, pid: Pid, type_name: &'static str) -> Result<(), ProcessError> {
        let _ = (pid, type_name);
        Ok(())
    }

    /// After a process has ended, on the worker that ended it. `result` is there after `Done`. Also when
    /// `on_start` had agreed and the spawn was refused after that (the name is taken, or the end has begun):
    /// then on the spawner's thread, with [`ExitReason::InitFailed`].
    fn on_complete(&self, pid: Pid, reason: &ExitReason, result: Option<&Payload>) {
        let _ = (pid, reason, result);
    }
}

/// A host's settings; see [`Builder`] for what each means.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) workers: usize,
    pub(crate) events_per_step_max: u32,
    pub(crate) spin_rounds: u32,
    pub(crate) yield_rounds: u32,
    pub(crate) spin_max: Duration,
    pub(crate) processes_max: usize,
    pub(crate) generation_max: u32,
    pub(crate) blocking_threads_max: usize,
    pub(crate) blocking_queue_max: usize,
    pub(crate) spares_max: usize,
    pub(crate) stack_size: Option<usize>,
}

/// The working parts of a host, shared by its workers and handles.
pub(crate) struct Engine {
    pub(crate) hub: &'static Hub,
    pub(crate) name: String,
    pub(crate) config: Config,
    pub(crate) cores: usize,
    registry: Registry,
    allowed: Option<HashSet<CommandId>>,
    pub(crate) hooks: Option<Arc<dyn LifecycleHooks>>,
    pub(crate) names: Arc<Names>,
    /// Births are counted one by one against `processes_max`.
    pub(crate) checks_births: bool,
    born: AtomicUsize,
    pub(crate) threads: Threads,
    pub(crate) blocking: crate::command::blocking::Pool,
    pub(crate) spares: Spares,
    pub(crate) observers: trace::Observers,
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Its threads hold it, so they have left; and they leave when no process is left.
        self.hub.give_back();
        // The user's: a drop that panics is nobody's business here, perhaps a worker's thread at its end.
        let _ = crate::process::contain(|| drop(self.hooks.take()));
        self.registry.drop_contained();
    }
}

impl Engine {
    #[cold]
    pub(crate) fn admit_birth(&self) -> Result<(), SpawnError> {
        let max = self.config.processes_max;
        if self.born.fetch_add(1, AcqRel) >= max {
            self.born.fetch_sub(1, AcqRel);
            return Err(SpawnError::HostFull { host: self.name.clone(), max });
        }
        Ok(())
    }

    pub(crate) fn unadmit_birth(&self) {
        if self.checks_births {
            self.born.fetch_sub(1, AcqRel);
        }
    }

    pub(crate) fn handler(&self, id: CommandId) -> Result<&Entry, YieldError> {
        let entry = self.registry.get(id).ok_or(YieldError::UnknownCommand(id))?;
        match &self.allowed {
            Some(allowed) if !allowed.contains(&id) => {
                Err(YieldError::NotAllowed { id, name: entry.name.clone(), host: self.name.clone() })
            }
            _ => Ok(entry),
        }
    }
}

/// Why a scheduler did not start. Nothing of it runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting is out of range.
    #[error("{setting} is {value}; it must be from {min} to {max}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// What was given.
        value: u64,
        /// The least allowed.
        min: u64,
        /// The greatest allowed.
        max: u64,
    },
    /// A setting that must be a power of two is none.
    #[error("{setting} is {value}; it must be a power of two")]
    PowerOfTwo {
        /// Its name.
        setting: &'static str,
        /// What was given.
        value: u64,
    },
    /// Two handlers for one command.
    #[error(transparent)]
    DuplicateCommand(#[from] DuplicateCommand),
    /// A handler for a number of the system's; [`CommandId::FIRST_FREE`] is the first of yours.
    #[error("command {id} (`{name}`) has a number of the system's; yours begin at {}", CommandId::FIRST_FREE)]
    SystemCommand {
        /// The number.
        id: CommandId,
        /// The handler's name.
        name: String,
    },
    /// A command is allowed that the host has no handler for.
    #[error("command {0} is allowed, but has no handler")]
    UnknownCommand(CommandId),
    /// A host is called by the empty text.
    #[error("the name of a host must not be empty")]
    EmptyName,
    /// Two hosts of one name.
    #[error("two hosts are called `{0}`")]
    DuplicateHost(String),
    /// The program holds as many hosts as it can.
    #[error("{0} hosts are alive, which is the most")]
    TooManyHosts(usize),
    /// The system gives no more threads.
    #[error("could not start thread {which} of host `{host}`")]
    Thread {
        /// Which thread.
        which: String,
        /// Of which host.
        host: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

/// Settings of a scheduler, before it starts.
pub struct Builder {
    name: String,
    config: Config,
    commands: Vec<(CommandId, String, Arc<dyn Handler>)>,
    allowed: Option<HashSet<CommandId>>,
    hooks: Option<Arc<dyn LifecycleHooks>>,
    names: Arc<Names>,
    pub(crate) trace: trace::Settings,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new("main")
    }
}

impl Builder {
    pub(crate) fn new(name: &str) -> Self {
        Self::with_names(name, Arc::new(Names::new()))
    }

    pub(crate) fn with_names(name: &str, names: Arc<Names>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            name: name.to_owned(),
            config: Config {
                workers: cores.min(WORKERS_MAX),
                events_per_step_max: 128,
                spin_rounds: 4,
                yield_rounds: 16,
                spin_max: Duration::from_micros(100),
                processes_max: usize::MAX,
                generation_max: GENERATION_MAX,
                blocking_threads_max: 256,
                blocking_queue_max: 1 << 20,
                spares_max: 64,
                stack_size: None,
            },
            commands: Vec::new(),
            allowed: None,
            hooks: None,
            names,
            trace: trace::Settings::default(),
        }
    }

    /// How many workers, 1 to [`WORKERS_MAX`]; the number of cores by default.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.config.workers = workers;
        self
    }

    /// How many events one step may take, 1 to 65,536; 128 by default. What is beyond stays queued.
    #[must_use]
    pub fn events_per_step_max(mut self, max: u32) -> Self {
        self.config.events_per_step_max = max;
        self
    }

    /// How an idle worker looks before it parks: so many tight rounds, then so many that offer the core to
    /// others (4 and 16 by default; at most 100,000 each).
    #[must_use]
    pub fn spin(mut self, tight: u32, yielding: u32) -> Self {
        self.config.spin_rounds = tight;
        self.config.yield_rounds = yielding;
        self
    }

    /// How long the last searching worker goes on looking while recent gaps between wakes were shorter
    /// than that: 100 microseconds by default, zero allowed, at most a second. With one core: never.
    #[must_use]
    pub fn spin_max(mut self, max: Duration) -> Self {
        self.config.spin_max = max;
        self
    }

    /// At most so many processes at a time; no limit by default. A limit costs one shared counter for each
    /// spawn and end.
    #[must_use]
    pub fn processes_max(mut self, max: usize) -> Self {
        self.config.processes_max = max;
        self
    }

    /// At most so many threads for blocking closures (256 by default), and so many closures that wait for
    /// one (a million by default); beyond that the command fails.
    #[must_use]
    pub fn blocking(mut self, threads_max: usize, queue_max: usize) -> Self {
        self.config.blocking_threads_max = threads_max;
        self.config.blocking_queue_max = queue_max;
        self
    }

    /// At most so many spare workers stand in for workers whose steps do not end, 0 to [`SPARES_MAX`]; 64 by
    /// default. Each has a thread, which is started when it is first needed and leaves when it had nothing
    /// to do for some seconds. See [`crate::blocking`] for what happens beyond that. With 0 nobody stands in:
    /// what waits behind a long step waits for another worker or for that step.
    #[must_use]
    pub fn spares(mut self, max: usize) -> Self {
        self.config.spares_max = max;
        self
    }

    /// The stack of each of the host's threads, in bytes: 131,072 to 1,073,741,824. By default what the standard
    /// library gives: 2 MiB, or what `RUST_MIN_STACK` says. A thread's stack takes address space; memory only as
    /// far as it is used.
    ///
    /// What must fit into it: the deepest step, several times over the largest message that a step takes, and
    /// the result of a future. (The state of a process, a future and a spawned closure lie elsewhere, however
    /// large they are.) What does not fit ends the program, as any stack overflow does: box what is large.
    #[must_use]
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.config.stack_size = Some(bytes);
        self
    }

    /// Narrows the generations of slots, so that tests see a slot used up.
    #[doc(hidden)]
    #[must_use]
    pub fn generation_max(mut self, max: u32) -> Self {
        self.config.generation_max = max;
        self
    }

    /// Adds a closure as the handler for the commands of type `C`; see [`Handler`].
    #[must_use]
    pub fn command<C: Command>(
        self,
        name: &str,
        handle: impl Fn(&HandlerContext<'_>, Payload, Completer) + Send + Sync + 'static,
    ) -> Self {
        self.handler::<C>(name, handle)
    }

    /// Adds a closure as the handler for a command number, from [`CommandId::FIRST_FREE`] on.
    #[must_use]
    pub fn command_by_id(
        self,
        id: CommandId,
        name: &str,
        handle: impl Fn(&HandlerContext<'_>, Payload, Completer) + Send + Sync + 'static,
    ) -> Self {
        self.handler_by_id(id, name, handle)
    }

    /// Adds a handler for the commands of type `C`.
    #[must_use]
    pub fn handler<C: Command>(self, name: &str, handler: impl Handler) -> Self {
        self.handler_by_id(C::ID, name, handler)
    }

    /// Adds a handler for a command number, from [`CommandId::FIRST_FREE`] on.
    #[must_use]
    pub fn handler_by_id(mut self, id: CommandId, name: &str, handler: impl Handler) -> Self {
        self.commands.push((id, name.to_owned(), Arc::new(handler)));
        self
    }

    /// Allows these commands alone, the system's included. Without a call, all. One that has no handler is an
    /// error at the start.
    #[must_use]
    pub fn allow_only(mut self, ids: impl IntoIterator<Item = CommandId>) -> Self {
        self.allowed = Some(ids.into_iter().collect());
        self
    }

    /// Adds hooks for the two ends of each process.
    #[must_use]
    pub fn hooks(mut self, hooks: impl LifecycleHooks) -> Self {
        self.hooks = Some(Arc::new(hooks));
        self
    }

    fn check(&self) -> Result<(), StartError> {
        if self.name.is_empty() {
            return Err(StartError::EmptyName);
        }
        let config = &self.config;
        let within = |setting, value: u64, min: u64, max: u64| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(StartError::Setting { setting, value, min, max })
            }
        };
        within("workers", config.workers as u64, 1, WORKERS_MAX as u64)?;
        within("events_per_step_max", config.events_per_step_max.into(), 1, 1 << 16)?;
        within("spin rounds", config.spin_rounds.max(config.yield_rounds).into(), 0, 100_000)?;
        within("spin_max in microseconds", config.spin_max.as_micros() as u64, 0, 1_000_000)?;
        within("processes_max", config.processes_max as u64, 1, u64::MAX)?;
        within("blocking_threads_max", config.blocking_threads_max as u64, 1, 100_000)?;
        within("spares", config.spares_max as u64, 0, SPARES_MAX as u64)?;
        within(
            "stack_size",
            config.stack_size.unwrap_or(STACK_MIN) as u64,
            STACK_MIN as u64,
            STACK_MAX as u64,
        )?;
        within("blocking_queue_max", config.blocking_queue_max as u64, 0, u64::MAX)?;
        self.trace.check()?;
        within("generation_max", config.generation_max.into(), 1, GENERATION_MAX.into())
    }

    /// Starts the workers.
    ///
    /// # Errors
    /// [`StartError`]: a setting out of range, two handlers for one number or one for a number of the system's,
    /// a command allowed that has no handler, no more threads.
    pub fn start(mut self) -> Result<Scheduler, StartError> {
        self.trace.read_environment();
        self.check()?;
        let mut registry = Registry::with_builtins();
        for (id, name, handler) in self.commands {
            if id < CommandId::FIRST_FREE && registry.get(id).is_none() {
                return Err(StartError::SystemCommand { id, name });
            }
            registry.add(id, &name, handler)?;
        }
        if let Some(unknown) = self.allowed.iter().flatten().find(|id| registry.get(**id).is_none()) {
            return Err(StartError::UnknownCommand(*unknown));
        }
        let hub = Hub::take(self.config.workers, &self.names)?;
        let engine = Arc::new(Engine {
            hub,
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            registry,
            allowed: self.allowed,
            hooks: self.hooks,
            names: self.names,
            checks_births: self.config.processes_max != usize::MAX,
            born: AtomicUsize::new(0),
            threads: Threads::new(),
            blocking: crate::command::blocking::Pool::new(
                self.config.blocking_threads_max,
                self.config.blocking_queue_max,
                self.config.stack_size,
            ),
            spares: Spares::new(self.config.workers, self.config.spares_max),
            observers: trace::Observers::new(&self.trace, hub),
            config: self.config,
            name: self.name,
        });
        // From here on a failure is a shutdown: dropping the scheduler ends the threads that run.
        let scheduler = Scheduler { engine };
        let engine = &scheduler.engine;
        // The monitor first: it is the one who ends the others.
        engine.threads.start(engine, "monitor".to_owned(), watch::run)?;
        for worker in 0..engine.config.workers as u16 {
            engine.threads.start(engine, format!("worker {worker}"), move |engine| {
                crate::worker::run_thread(engine, worker);
            })?;
        }
        trace::Observers::start(engine, self.trace)?;
        Ok(scheduler)
    }
}

/// A running scheduler: workers, a monitor, and the processes they run.
///
/// Dropping it without [`Scheduler::shutdown`] returns at once, also from inside a step: its processes are
/// ended by its workers in the background.
pub struct Scheduler {
    pub(crate) engine: Arc<Engine>,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scheduler({}, {} workers)", self.engine.name, self.engine.config.workers)
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        shutdown::abandon(&self.engine);
    }
}

impl Scheduler {
    /// A scheduler with one worker for each core.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new() -> Result<Self, StartError> {
        Self::builder().start()
    }

    /// Settings for a scheduler.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The host's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.engine.name
    }

    pub(crate) fn place(&self) -> Place<'_> {
        match crate::worker::current() {
            Some(worker) if worker.host() == self.engine.hub.id && !worker.is_between_steps() => {
                Place::Worker(worker, None)
            }
            _ => Place::Outside(&self.engine),
        }
    }

    /// Spawns a process; its `init` runs later, on a worker.
    ///
    /// # Errors
    /// [`SpawnError`]; the process was dropped.
    pub fn spawn<P: Process>(&self, process: P, options: SpawnOptions) -> Result<Pid, SpawnError> {
        spawn_process(self.place(), process, options, None)
    }

    /// Spawns a process and waits for its `init`.
    ///
    /// # Errors
    /// As [`Self::spawn`]; [`SpawnError::Init`] when `init` failed; [`SpawnError::OnWorker`] when called
    /// from a worker, which would wait for itself.
    pub fn spawn_wait<P: Process>(&self, process: P, options: SpawnOptions) -> Result<Pid, SpawnError> {
        let mut spawned = Err(SpawnError::Exhausted);
        let answer = waiter::wait_for(None, |reply| {
            spawned = spawn_process(self.place(), process, options, Some(reply));
            if spawned.is_err() {
                crate::route::complete(reply, Err(YieldError::Abandoned));
            }
        });
        let pid = match answer {
            Ok(answer) => {
                let pid = spawned?;
                match answer {
                    Ok(_) => return Ok(pid),
                    Err(YieldError::Spawn(error)) => return Err(error),
                    Err(other) => return Err(SpawnError::Init(ProcessError::new(other))),
                }
            }
            Err(CannotWait::OnWorker) => SpawnError::OnWorker,
            Err(CannotWait::Ending) => SpawnError::Exhausted,
        };
        Err(pid)
    }

    /// Spawns a closure that runs once, on a worker.
    ///
    /// # Errors
    /// [`SpawnError`]; the closure was dropped.
    pub fn spawn_once<F>(&self, act: F) -> Result<Pid, SpawnError>
    where
        F: FnOnce(&mut StepOutput<'_>) + Send + 'static,
    {
        let pid = create(self.place(), OnceTable::<F>::TABLE, act, None, None, None)?;
        Ok(Pid::new(0, self.engine.hub.id, pid))
    }

    /// Counters and sizes, of each worker and summed. It disturbs nobody.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of(&self.engine)
    }

    /// Every process alive, with its state. It disturbs nobody.
    #[must_use]
    pub fn list_processes(&self) -> Vec<ProcessInfo> {
        crate::stats::list(&self.engine)
    }

    /// Ends the scheduler: refuses what is new, asks every process to end ([`crate::Event::Cancel`], with the
    /// deadline in it), waits for them till the deadline, ends the rest, and says how it went. So that the rest
    /// can run its stop hooks, it returns up to 200 ms after the deadline; what is left then is a step that does
    /// not end, and what waits for its worker, and ends in the background. Where there are more processes than can
    /// be asked till the deadline, the others are ended unasked.
    ///
    /// A second call reports on who was alive at that second call; the processes were told the deadline of the
    /// first. A scheduler that is dropped without a call ends in the background, see [`Scheduler`].
    ///
    /// Called from one of its own workers it cannot wait, for that worker is in a step: whoever is left is
    /// ended as at the deadline, and the report is empty.
    ///
    /// ```
    /// # use evener_scheduler::{Actor, Cancel, Context, Scheduler};
    /// # use std::time::Duration;
    /// /// Ends when it is asked to, as every actor does that does not say otherwise.
    /// struct Polite;
    /// impl Actor for Polite {
    ///     type Message = ();
    ///     fn handle(&mut self, (): (), _: &mut Context<'_, ()>) {}
    /// }
    /// /// Goes on.
    /// struct Deaf;
    /// impl Actor for Deaf {
    ///     type Message = ();
    ///     fn handle(&mut self, (): (), _: &mut Context<'_, ()>) {}
    ///     fn cancelled(&mut self, _: Cancel, _: &mut Context<'_, ()>) {}
    /// }
    /// let scheduler = Scheduler::builder().workers(2).start()?;
    /// for _ in 0..3 {
    ///     scheduler.spawn_actor(Polite)?;
    /// }
    /// scheduler.spawn_actor(Deaf)?;
    /// let report = scheduler.shutdown(Duration::from_secs(1));
    /// assert_eq!((report.finished, report.ended_by_force), (3, 1));
    /// assert_eq!((report.still_running.len(), report.not_reached), (0, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self, deadline: Duration) -> shutdown::Report {
        shutdown::shutdown(&self.engine, shutdown::Call::new(&self.engine, deadline))
    }

    /// The process of that name.
    #[must_use]
    pub fn lookup(&self, name: &str) -> Option<Pid> {
        self.engine.names.lookup(name)
    }

    /// Gives a process a name.
    ///
    /// # Errors
    /// [`crate::NameError`]: taken or empty; the process has ended, never was, or is none of this runtime.
    pub fn register(&self, name: &str, pid: Pid) -> Result<(), crate::NameError> {
        self.engine.names.register(name, pid)
    }

    /// Sends a message to whoever has the name. While a supervisor holds the name for the successor of one
    /// that crashed, the message waits for that successor; if there will be none, it is dropped and counted.
    ///
    /// A name says nothing of the type that its process takes. A message of another type is accepted like any
    /// other; an actor gets it in [`crate::Actor::event`], which by default drops and counts it
    /// ([`crate::WorkerStats::foreign_messages`]).
    ///
    /// # Errors
    /// [`crate::NameError`]; the message is dropped.
    pub fn send_named<T: Send + 'static>(&self, name: &str, content: T) -> Result<(), crate::NameError> {
        let message = Message::new(Payload::new(content), None, Topic::DEFAULT, KIND_MESSAGE);
        self.engine.names.send(name, message)
    }

    /// Ends a process of this program, at its next turn or after the present one; its stop hook runs, on a
    /// worker. Its monitors see [`crate::ExitReason::Killed`] with this reason, or with an earlier one.
    ///
    /// # Errors
    /// [`SendError::NotFound`], [`SendError::Closed`] (it has ended), [`SendError::OtherNode`].
    pub fn kill(&self, pid: Pid, reason: &str) -> Result<(), SendError> {
        crate::route::kill(pid, reason.into())
    }

    /// Asks a process of this program to end, by [`crate::Event::Cancel`], and ends it at the deadline if it
    /// has not ended by then. Without a deadline it may take as long as it likes. Of several deadlines the
    /// earliest counts.
    ///
    /// # Errors
    /// [`SendError::NotFound`], [`SendError::Closed`] (it has ended), [`SendError::OtherNode`].
    pub fn cancel(&self, pid: Pid, reason: &str, deadline: Option<Duration>) -> Result<(), SendError> {
        crate::route::cancel(pid, reason.into(), deadline)
    }

    /// What the host's processes have registered with others and not taken back; for tests of what the dead
    /// leave behind.
    #[doc(hidden)]
    #[must_use]
    pub fn registrations(&self) -> crate::stats::Registrations {
        crate::stats::Registrations::of(&self.engine)
    }

    /// Takes a name away; the process lives on. `true`: there was one.
    pub fn unregister(&self, name: &str) -> bool {
        self.engine.names.unregister(name)
    }
}

/// Several hosts that share their names: each has workers, limits and commands of its own, so that what one
/// kind of process does cannot take the workers of another.
///
/// ```
/// use evener_scheduler::{CommandId, Handle, Reply, Runtime, SpawnOptions};
/// use std::time::Duration;
///
/// let runtime = Runtime::builder()
///     .host("ours", |host| host.workers(2))
///     .host("guests", |host| host.workers(1).processes_max(1000).allow_only([CommandId(20)]))
///     .start()?;
/// // Named on one host, found and told from the other.
/// struct Clerk(u64);
/// # use evener_scheduler::{Actor, Context};
/// impl Actor for Clerk {
///     type Message = Reply<u64>;
///     fn handle(&mut self, reply: Reply<u64>, _: &mut Context<'_, Reply<u64>>) {
///         self.0 += 1;
///         reply.send(self.0);
///     }
/// }
/// runtime.host("ours")?.spawn_actor_with(Clerk(0), SpawnOptions::new().name("clerk"))?;
/// let clerk = runtime.host("guests")?.lookup("clerk").ok_or("no clerk")?;
/// assert_eq!(Handle::<Reply<u64>>::from_pid(clerk).ask(|reply| reply, Duration::from_secs(5))?, 1);
/// for (host, report) in runtime.shutdown(Duration::from_secs(1)) {
///     assert_eq!(report.ended_by_force, 0, "{host}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Runtime {
    hosts: HashMap<String, Scheduler>,
}

/// Settings of a [`Runtime`].
#[derive(Default)]
pub struct RuntimeBuilder {
    hosts: Vec<Builder>,
    names: Arc<Names>,
}

impl RuntimeBuilder {
    /// Adds a host with its own settings.
    #[must_use]
    pub fn host(mut self, name: &str, settings: impl FnOnce(Builder) -> Builder) -> Self {
        self.hosts.push(settings(Builder::with_names(name, Arc::clone(&self.names))));
        self
    }

    /// Starts every host.
    ///
    /// # Errors
    /// [`StartError`]; hosts that had started are ended.
    pub fn start(self) -> Result<Runtime, StartError> {
        let mut hosts = HashMap::new();
        for builder in self.hosts {
            let name = builder.name.clone();
            if hosts.contains_key(&name) {
                return Err(StartError::DuplicateHost(name));
            }
            hosts.insert(name, builder.start()?);
        }
        Ok(Runtime { hosts })
    }
}

impl Runtime {
    /// Settings for a runtime without hosts yet.
    #[must_use]
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// The host of that name.
    ///
    /// # Errors
    /// [`SpawnError::UnknownHost`].
    pub fn host(&self, name: &str) -> Result<&Scheduler, SpawnError> {
        self.hosts.get(name).ok_or_else(|| SpawnError::UnknownHost(name.to_owned()))
    }

    /// Every host.
    pub fn hosts(&self) -> impl Iterator<Item = &Scheduler> {
        self.hosts.values()
    }

    /// Shuts every host down, all within the deadline together; see [`Scheduler::shutdown`].
    pub fn shutdown(&self, deadline: Duration) -> Vec<(String, shutdown::Report)> {
        let hosts: Vec<_> = self.hosts.iter().collect();
        let Some((_, first)) = hosts.first() else {
            return Vec::new();
        };
        let call = shutdown::Call::new(&first.engine, deadline);
        let begun: Vec<_> = hosts
            .into_iter()
            .map(|(name, host)| {
                let call = call.of(&host.engine);
                shutdown::begin(&host.engine, call);
                (name, host, call)
            })
            .collect();
        begun
            .into_iter()
            .map(|(name, host, call)| (name.clone(), shutdown::shutdown(&host.engine, call)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_serves_schedulers_of_every_size_one_after_the_other() {
        let mut table = HubTable::new(2);
        let mut made = 0;
        let mut take = |table: &mut HubTable, workers: usize| {
            table.take(workers).map(|(hub, is_new)| {
                made += usize::from(is_new);
                assert_eq!(hub.workers.len(), workers);
                (hub, made)
            })
        };
        let (one, _) = take(&mut table, 1).unwrap();
        let (two, _) = take(&mut table, 2).unwrap();
        assert!(take(&mut table, 1).is_none() && take(&mut table, 3).is_none(), "both numbers are in use");
        table.free.push(two);
        let (three, made) = take(&mut table, 3).unwrap();
        assert_eq!((three.id, made), (two.id, 3));
        assert!(take(&mut table, 2).is_none(), "its number is in use, though not by the hub that has two");
        table.free.push(three);
        // Whatever comes round again is there already.
        for _ in 0..10 {
            let (again, made) = take(&mut table, 2).unwrap();
            assert!(std::ptr::eq(again, two) && made == 3);
            table.free.push(again);
            let (again, made) = take(&mut table, 3).unwrap();
            assert!(std::ptr::eq(again, three) && made == 3);
            table.free.push(again);
        }
        table.free.push(one);
        let (first, _) = take(&mut table, 5).unwrap();
        let (second, _) = take(&mut table, 6).unwrap();
        assert_ne!(first.id, second.id);
        assert!(take(&mut table, 1).is_none());
    }
}
