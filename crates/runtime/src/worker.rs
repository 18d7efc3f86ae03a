//! A runtime worker: all that its parts share.
//!
//! It does nothing by itself. Its pieces of work ([`RuntimeWorker::works`]) are stepped by threads, its drains by
//! a scheduler; in a simulation by the world. Which of both is the [`Hall`]'s affair.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use evener_actor::definition::ActorDefinition;
use evener_actor::executor::{Abort, Executor, Instance};
use evener_actor::id::{ActorName, Boot};
use evener_store::batch::{Appended, Claimed, CommitReport, Load, NewEvent, RowMade};
use evener_store::tenants::Paused;
use evener_store::workers::Note;
use evener_store::{Store, StoreError};

use crate::clock::{Chance, Clock};
use crate::config::Config;
use crate::flow::commands::Reader;
use crate::flow::commit::CommitLane;
use crate::flow::drain::{Allowance, Drain, Heard, Limits};
use crate::flow::fanout::Router;
use crate::flow::stream::{Append, AppendLane, To};
use crate::metrics::Metrics;
use crate::upkeep::activation::Activation;
use crate::upkeep::ownership::{Heartbeat, Ownership};
use crate::upkeep::peers::Peers;
use crate::upkeep::spreading::Spreading;
use crate::upkeep::timers::TimerDispatch;
use crate::work::Work;

/// Takes what a drain hears.
pub trait Ear: Send + Sync {
    /// Says it; never waits.
    fn tell(&self, heard: Heard);
}

/// Where drains live.
pub trait Hall: Send + Sync {
    /// Gives a drain a place, and whoever wants to tell it something an ear. `None`: the hall is closing.
    fn open(&self, worker: &Arc<RuntimeWorker>, drain: Drain) -> Option<Arc<dyn Ear>>;

    /// Gives the answer after that time.
    fn sleep(&self, duration: Duration, answer: evener_actor::context::Answer<()>);
}

/// All that the parts of a runtime worker share.
pub struct RuntimeWorker {
    /// Numbers.
    pub config: Config,
    /// The store.
    pub store: Arc<dyn Store>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub chance: Arc<dyn Chance>,
    /// Names and routes.
    pub router: Router,
    /// Who it is.
    pub ownership: Ownership,
    /// Which instances have a drain here.
    pub activation: Activation,
    /// What it did.
    pub metrics: Metrics,
    pub(crate) gate: Gate,
    commit_lanes: Vec<Arc<CommitLane>>,
    append_lanes: Vec<Arc<AppendLane>>,
    readers: Vec<Arc<Reader>>,
    heartbeat: Arc<Heartbeat>,
    timers: Arc<TimerDispatch>,
    spreading: Arc<Spreading>,
    pub(crate) peers: Arc<Peers>,
    actors: HashMap<ActorName, Hosted>,
    hall: Arc<dyn Hall>,
    me: Weak<Self>,
    outcome_bytes: AtomicUsize,
    event_bytes: AtomicUsize,
    is_stopping: AtomicBool,
    trouble: Mutex<Trouble>,
}

/// An actor that is run here.
struct Hosted {
    definition: Arc<ActorDefinition>,
    executor: Arc<dyn Executor>,
}

/// The last fault of the store that was logged: one line for each change, then one a minute.
#[derive(Default)]
struct Trouble {
    text: String,
    since: Option<Duration>,
    logged: Duration,
}

impl std::fmt::Debug for RuntimeWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuntimeWorker").field("boot", &self.ownership.boot()).finish_non_exhaustive()
    }
}

/// What a runtime worker holds; nothing after [`RuntimeWorker::stop`], once [`RuntimeWorker::is_empty`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Instances that have an entry here.
    pub instances: usize,
    /// Calls that run.
    pub calls: usize,
    /// Bytes of events.
    pub event_bytes: usize,
    /// Bytes of outcomes.
    pub outcome_bytes: usize,
}

impl Held {
    /// `true`: nothing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// What a runtime worker is made of.
pub struct Parts {
    /// Numbers.
    pub config: Config,
    /// The store.
    pub store: Arc<dyn Store>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub chance: Arc<dyn Chance>,
    /// Who runs actors.
    pub executors: Vec<Arc<dyn Executor>>,
    /// Where drains live.
    pub hall: Arc<dyn Hall>,
}

impl RuntimeWorker {
    /// Puts it together. It is nobody yet: see [`RuntimeWorker::register`].
    ///
    /// # Errors
    /// [`crate::Error::TwoActors`], [`crate::Error::Definition`].
    pub fn new(parts: Parts) -> Result<Arc<Self>, crate::Error> {
        let mut actors = HashMap::new();
        for executor in &parts.executors {
            for definition in executor.definitions() {
                definition
                    .check()
                    .map_err(|error| crate::Error::Definition { actor: definition.name.clone(), error })?;
                let name = definition.name.clone();
                let hosted = Hosted { definition: Arc::new(definition), executor: Arc::clone(executor) };
                if actors.insert(name.clone(), hosted).is_some() {
                    return Err(crate::Error::TwoActors(name));
                }
            }
        }
        let mut config = parts.config;
        config.commit_lanes = config.commit_lanes.max(1);
        config.append_lanes = config.append_lanes.max(1);
        Ok(Arc::new_cyclic(|me: &Weak<Self>| Self {
            store: parts.store,
            clock: parts.clock,
            chance: parts.chance,
            router: Router::default(),
            ownership: Ownership::new(config.trust),
            activation: Activation::new(Weak::clone(me)),
            metrics: Metrics::default(),
            gate: Gate::default(),
            commit_lanes: (0..config.commit_lanes)
                .map(|number| Arc::new(CommitLane::new(number, Weak::clone(me))))
                .collect(),
            append_lanes: (0..config.append_lanes)
                .map(|number| Arc::new(AppendLane::new(number, Weak::clone(me))))
                .collect(),
            readers: (0..2).map(|number| Arc::new(Reader::new(number, Weak::clone(me)))).collect(),
            heartbeat: Arc::new(Heartbeat::new(Weak::clone(me))),
            timers: Arc::new(TimerDispatch::new(Weak::clone(me))),
            spreading: Arc::new(Spreading::new(Weak::clone(me))),
            peers: Arc::new(Peers::new(Weak::clone(me))),
            actors,
            hall: parts.hall,
            me: Weak::clone(me),
            outcome_bytes: AtomicUsize::new(0),
            event_bytes: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
            trouble: Mutex::default(),
            config,
        }))
    }

    /// Becomes a boot, and makes the definitions of its actors the tenant's.
    ///
    /// # Errors
    /// The store's.
    pub fn register(&self, tenant: &evener_actor::id::Tenant) -> Result<(), crate::Error> {
        let sent = self.clock.now();
        let boot = self.store.register(&self.config.worker_id)?;
        self.ownership.be(boot, sent);
        let no = self.router.tenant(&*self.store, tenant)?;
        let mut definitions: Vec<ActorDefinition> =
            self.actors.values().map(|hosted| (*hosted.definition).clone()).collect();
        definitions.sort_by(|one, other| one.name.cmp(&other.name));
        let routes = self.store.deploy(no, &definitions)?;
        self.router.replace(no, routes);
        // Streams by name, for calls that ask where their event came from.
        self.router.forget();
        self.router.routes(&*self.store, no)?;
        Ok(())
    }

    /// All that is to be stepped.
    #[must_use]
    pub fn works(self: &Arc<Self>) -> Vec<Arc<dyn Work>> {
        let mut works: Vec<Arc<dyn Work>> = vec![Arc::clone(&self.heartbeat) as Arc<dyn Work>];
        works.push(Arc::new(Claiming(Arc::clone(self))));
        works.push(Arc::clone(&self.timers) as Arc<dyn Work>);
        works.push(Arc::clone(&self.spreading) as Arc<dyn Work>);
        works.push(Arc::clone(&self.peers) as Arc<dyn Work>);
        works.extend(self.readers.iter().map(|reader| Arc::clone(reader) as Arc<dyn Work>));
        works.extend(self.commit_lanes.iter().map(|lane| Arc::clone(lane) as Arc<dyn Work>));
        works.extend(self.append_lanes.iter().map(|lane| Arc::clone(lane) as Arc<dyn Work>));
        works
    }

    /// Takes events that were checked. The answer comes when they are committed, or are not.
    pub fn append(&self, append: Append) {
        if self.is_stopping() {
            (append.done)(Err(crate::AppendError::Stopping));
            return;
        }
        // Events of one stream, or for one instance, stay in order: one lane.
        let hash = match &append.to {
            To::Stream(name) => {
                name.as_str().bytes().fold(0_usize, |hash, byte| hash.wrapping_mul(31) + usize::from(byte))
            }
            To::Instance { key, .. } => {
                key.as_str().bytes().fold(0_usize, |hash, byte| hash.wrapping_mul(31) + usize::from(byte))
            }
        };
        self.append_lanes[hash % self.append_lanes.len()].push(append);
    }

    /// The lane of a slot.
    pub(crate) fn commit_lane(&self, slot: evener_actor::id::Slot) -> &CommitLane {
        &self.commit_lanes[usize::from(slot.number()) % self.commit_lanes.len()]
    }

    /// The reader of a slot.
    pub(crate) fn reader(&self, slot: evener_actor::id::Slot) -> &Reader {
        &self.readers[usize::from(slot.number()) % self.readers.len()]
    }

    /// Who runs an actor here.
    pub(crate) fn executor(&self, actor: &ActorName) -> Option<&Arc<dyn Executor>> {
        self.actors.get(actor).map(|hosted| &hosted.executor)
    }

    /// Gives an instance that was claimed its drain. `None`: its actor is not run here, or the hall is closing.
    pub(crate) fn open(&self, claimed: Claimed) -> Option<Arc<dyn Ear>> {
        let routes = self.router.known_routes(claimed.tenant)?;
        let hosted = self.actors.get(routes.actor_name(claimed.actor)?)?;
        let instance = Arc::new(Instance {
            id: claimed.instance,
            tenant: routes.name.clone(),
            definition: Arc::clone(&hosted.definition),
            key: claimed.key.clone(),
        });
        let chance = Arc::clone(&self.chance);
        let limits = Limits {
            linger: self.config.linger,
            backup_poll: self.config.backup_poll,
            abort_grace: self.config.abort_grace,
            payload_bytes_max: self.config.payload_bytes_max,
        };
        let me = self.me.upgrade()?;
        self.hall.open(&me, Drain::new(claimed, instance, Arc::new(move || chance.next()), limits))
    }

    /// Says what followed from a commit to whom it concerns.
    pub(crate) fn follow(&self, report: &CommitReport) {
        self.made(&report.rows);
        if !report.pending.is_empty() {
            let now = self.clock.now();
            report.pending.iter().for_each(|stream| self.peers.tell(Note::Pending(*stream), now));
            self.spreading.wake(report.pending.iter().copied());
        }
        if report.is_sooner {
            self.sooner();
        }
    }

    /// The same of an append.
    pub(crate) fn follow_append(&self, events: &[NewEvent], reports: &[Appended]) {
        let mut rows = Vec::new();
        let mut pending = BTreeSet::new();
        for (event, report) in events.iter().zip(reports) {
            if let Appended::New { rows: made, .. } = report {
                rows.extend_from_slice(made);
                if !event.deferred.is_empty() {
                    pending.extend(event.stream);
                }
            }
        }
        let pending = pending.into_iter().collect();
        self.follow(&CommitReport { rows, pending, ..CommitReport::default() });
    }

    /// A schedule may be due sooner than before.
    pub fn sooner(&self) {
        self.timers.bell().ring();
        self.peers.tell(Note::Schedule, self.clock.now());
    }

    /// Routes or pauses have changed, here.
    pub fn routes_changed(&self) {
        self.peers.tell(Note::Routes, self.clock.now());
    }

    /// Rows were made here: whose they are hears of it.
    pub fn made(&self, rows: &[RowMade]) {
        if rows.is_empty() {
            return;
        }
        if self.peers.is_alone() {
            return self.wake(rows);
        }
        let boot = self.ownership.boot();
        let now = self.clock.now();
        let mut mine = Vec::with_capacity(rows.len());
        for row in rows {
            if self.activation.is_active(row.instance) || self.peers.is_whose(row.slot, boot) {
                mine.push(*row);
            } else {
                self.peers.tell(Note::Row(*row), now);
            }
        }
        self.wake(&mine);
    }

    /// There are rows; those of instances that are not active are claimed.
    pub fn wake(&self, rows: &[RowMade]) {
        if !rows.is_empty() {
            self.activation.wake(rows, self.config.active_max);
        }
    }

    /// Takes word of another worker.
    pub fn hear(&self, note: Note) {
        match note {
            Note::Row(row) => {
                if self.activation.is_active(row.instance)
                    || self.peers.is_whose(row.slot, self.ownership.boot())
                {
                    self.wake(&[row]);
                }
            }
            Note::Pending(stream) => self.spreading.wake([stream]),
            Note::Schedule => self.timers.bell().ring(),
            Note::Routes => self.refresh(),
            Note::Look => self.look(),
        }
    }

    /// Routes and pauses are read anew.
    pub fn refresh(&self) {
        self.router.forget();
        self.heartbeat.refresh();
    }

    /// The lane of timers, and that of the fan-out: behind those of commits and appends.
    pub(crate) fn timer_lane(&self) -> u16 {
        self.config.commit_lanes + self.config.append_lanes
    }

    pub(crate) fn spreading_lane(&self) -> u16 {
        self.timer_lane() + 1
    }

    /// Others live than before: slots that are not ours any more are left to them.
    pub(crate) fn balance(&self) {
        let boot = self.ownership.boot();
        self.activation.leave_slots(|slot| !self.peers.is_whose(slot, boot));
        self.look();
    }

    /// What is paused: told to the drains that are here, and to those that come.
    pub(crate) fn pause_all(&self, paused: Vec<Paused>) {
        self.activation.pause(paused);
    }

    /// Looks at everything.
    pub fn look(&self) {
        self.activation.look();
        self.spreading.look();
        self.timers.bell().ring();
    }

    /// Others are dead; what they owned is free.
    pub(crate) fn workers_died(&self, dead: &[Boot]) {
        self.metrics.workers_died(dead.len());
        tracing::warn!(?dead, "workers were silent for too long; their instances are free");
        self.look();
    }

    /// This boot is dead: whatever it owned may have another owner.
    pub(crate) fn died(&self) {
        tracing::warn!(boot = %self.ownership.boot(), "this worker was taken for dead; it begins anew");
        self.activation.tell_all(|| Heard::Fenced);
    }

    /// What the heartbeat says.
    pub(crate) fn load(&self) -> Load {
        Load {
            in_flight: u32::try_from(self.gate.running()).unwrap_or(u32::MAX),
            active: u32::try_from(self.activation.count()).unwrap_or(u32::MAX),
            routes: 0,
        }
    }

    /// Starts no call and takes no append any more; calls that run may end.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.activation.close();
        self.activation.tell_all(|| Heard::Leave);
    }

    /// Has calls that run end now.
    pub fn abort(&self) {
        self.activation.tell_all(|| Heard::Abort(Abort::Stopping));
    }

    /// `true`: [`RuntimeWorker::stop`] was called.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// `true`: nothing is held and nothing waits for the store.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.append_lanes.iter().all(|lane| lane.is_empty())
            && self.activation.is_empty()
            && self.commit_lanes.iter().all(|lane| lane.is_empty())
    }

    /// What it holds at the moment.
    #[must_use]
    pub fn held(&self) -> Held {
        Held {
            instances: self.activation.count(),
            calls: self.gate.running(),
            event_bytes: self.event_bytes.load(Ordering::Acquire),
            outcome_bytes: self.outcome_bytes.load(Ordering::Acquire),
        }
    }

    /// The boot goes.
    ///
    /// # Errors
    /// The store's.
    pub fn leave(&self) -> Result<(), StoreError> {
        self.store.leave(self.ownership.boot())
    }

    // Small things for the parts.

    pub(crate) fn new_id(&self) -> String {
        let ms = u64::try_from(self.clock.wall_ms()).unwrap_or(0);
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.chance.next().to_le_bytes());
        random[8..].copy_from_slice(&self.chance.next().to_le_bytes()[..2]);
        uuid::Builder::from_unix_timestamp_millis(ms, &random).into_uuid().to_string()
    }

    /// A number of chance between 0 and 1.
    pub(crate) fn chance_unit(&self) -> f64 {
        (self.chance.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// How long to wait after a fault of the store: between half and the whole of what the fault asks for.
    pub(crate) fn pause(&self, error: &StoreError, tries: u32) -> Duration {
        error.pause(tries).mul_f64(0.5 + self.chance_unit() / 2.0)
    }

    /// Logs a fault of the store when it is another one than before, and once a minute.
    pub(crate) fn store_failed(&self, doing: &str, error: &StoreError) {
        self.metrics.store_failed(error);
        if matches!(error, StoreError::Busy(_)) {
            return;
        }
        let now = self.clock.now();
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let text = error.to_string();
        let is_old = trouble.text == text && now.saturating_sub(trouble.logged) < Duration::from_secs(60);
        if !is_old {
            tracing::warn!("cannot {doing}: {error}");
            trouble.text = text;
            trouble.logged = now;
            trouble.since.get_or_insert(now);
        }
    }

    pub(crate) fn outcome_came(&self, bytes: usize) {
        self.outcome_bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    pub(crate) fn outcome_left(&self, bytes: usize) {
        let before = self.outcome_bytes.fetch_sub(bytes, Ordering::AcqRel);
        let max = self.config.outcome_bytes_max;
        if before >= max && before - bytes < max {
            self.gate.wake_all();
        }
    }

    /// How many bytes of events each of so many requests may bring.
    pub(crate) fn grant(&self, requests: usize) -> usize {
        let used = self.event_bytes.load(Ordering::Acquire);
        let left = self.config.event_bytes_max.saturating_sub(used);
        (left / requests.max(1)).min(EVENT_BYTES_REQUEST)
    }

    pub(crate) fn events_changed(&self, before: usize, after: usize) {
        if after >= before {
            self.event_bytes.fetch_add(after - before, Ordering::AcqRel);
        } else {
            self.event_bytes.fetch_sub(before - after, Ordering::AcqRel);
        }
    }

    pub(crate) fn sleep(&self, duration: Duration, answer: evener_actor::context::Answer<()>) {
        self.hall.sleep(duration, answer);
    }

    /// What a drain may do now.
    pub fn seat<'a>(&'a self, ear: &'a Arc<dyn Ear>) -> Seat<'a> {
        Seat { worker: self, ear }
    }
}

/// Bytes of events that one read of one instance brings, at most.
const EVENT_BYTES_REQUEST: usize = 256 * 1024;

/// [`Activation`] as a piece of work; it lives inside of its worker.
struct Claiming(Arc<RuntimeWorker>);

impl Work for Claiming {
    fn name(&self) -> String {
        self.0.activation.name()
    }
    fn step(&self) -> crate::work::Pace {
        self.0.activation.step()
    }
    fn bell(&self) -> &crate::work::Bell {
        self.0.activation.bell()
    }
}

/// What a drain may do, asked for by that drain.
pub struct Seat<'a> {
    worker: &'a RuntimeWorker,
    ear: &'a Arc<dyn Ear>,
}

impl Allowance for Seat<'_> {
    fn may_start(&mut self, is_suspect: bool) -> bool {
        let worker = self.worker;
        worker.gate.enter(is_suspect, worker.config.calls_max, &|| self.is_open(), self.ear)
    }

    fn is_open(&self) -> bool {
        let worker = self.worker;
        worker.outcome_bytes.load(Ordering::Acquire) < worker.config.outcome_bytes_max
            && worker.ownership.is_trusted(worker.clock.now())
    }

    fn no_use(&mut self) {
        self.worker.gate.wake_one();
    }

    fn give_back(&mut self, was_suspect: bool) {
        self.worker.gate.leave(was_suspect);
    }

    fn event_bytes(&mut self) -> usize {
        EVENT_BYTES_REQUEST
    }

    fn events_changed(&mut self, before: usize, after: usize) {
        self.worker.events_changed(before, after);
    }

    fn is_crowded(&self) -> bool {
        self.worker.activation.is_crowded()
    }
}

/// Counts calls that run, and lets drains wait for room.
///
/// A drain that was refused hears [`Heard::Room`] once, when there may be room for it, and asks again; refused
/// again, it waits again. One that needs no room any more passes the word on ([`Allowance::no_use`], or when it
/// leaves), so no word ends with somebody who has no use for it.
#[derive(Default)]
pub(crate) struct Gate {
    running: AtomicUsize,
    waiters: Mutex<Waiters>,
    has_waiters: AtomicBool,
}

#[derive(Default)]
struct Waiters {
    /// With whether it waits for a suspect.
    ears: VecDeque<(Arc<dyn Ear>, bool)>,
    is_suspect_running: bool,
}

impl Gate {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unlock(&self, waiters: std::sync::MutexGuard<'_, Waiters>) {
        self.has_waiters.store(!waiters.ears.is_empty(), Ordering::SeqCst);
    }

    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Acquire)
    }

    fn enter(
        &self,
        is_suspect: bool,
        calls_max: usize,
        is_open: &dyn Fn() -> bool,
        ear: &Arc<dyn Ear>,
    ) -> bool {
        if !is_suspect && is_open() && self.take(calls_max) {
            return true;
        }
        // Registered first, then tried again: who leaves between finds the waiter, or the place is found here.
        let mut waiters = self.lock();
        waiters.ears.push_back((Arc::clone(ear), is_suspect));
        self.has_waiters.store(true, Ordering::SeqCst);
        let may = !(is_suspect && waiters.is_suspect_running) && is_open() && self.take(calls_max);
        if may {
            waiters.is_suspect_running |= is_suspect;
            waiters.ears.pop_back();
        }
        self.unlock(waiters);
        may
    }

    fn take(&self, calls_max: usize) -> bool {
        self.running
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |running| {
                (running < calls_max).then(|| running + 1)
            })
            .is_ok()
    }

    pub(crate) fn leave(&self, was_suspect: bool) {
        self.running.fetch_sub(1, Ordering::SeqCst);
        if was_suspect {
            self.lock().is_suspect_running = false;
            self.wake_all();
        } else {
            self.wake_one();
        }
    }

    /// Tells the first that there may be room for.
    fn wake_one(&self) {
        if !self.has_waiters.load(Ordering::SeqCst) {
            return;
        }
        let ear = {
            let mut waiters = self.lock();
            let is_suspect_running = waiters.is_suspect_running;
            let at = waiters.ears.iter().position(|(_, is_suspect)| !(*is_suspect && is_suspect_running));
            let ear = at.and_then(|at| waiters.ears.remove(at));
            self.unlock(waiters);
            ear
        };
        if let Some((ear, _)) = ear {
            ear.tell(Heard::Room);
        }
    }

    /// What closed the gate is over.
    pub(crate) fn wake_all(&self) {
        let ears = {
            let mut waiters = self.lock();
            let ears = std::mem::take(&mut waiters.ears);
            self.unlock(waiters);
            ears
        };
        ears.iter().for_each(|(ear, _)| ear.tell(Heard::Room));
    }

    /// That drain is over: it waits no more, and a word that is still on its way to it goes to another.
    pub(crate) fn forget(&self, ear: &Arc<dyn Ear>) {
        if !self.has_waiters.load(Ordering::SeqCst) {
            return;
        }
        let mut waiters = self.lock();
        waiters.ears.retain(|(waiting, _)| !Arc::ptr_eq(waiting, ear));
        self.unlock(waiters);
        self.wake_one();
    }
}
