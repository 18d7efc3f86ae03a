//! A world: hosts on which workers live and die, one store, one clock, and what happens next.
//!
//! Everything is on one thread. An *action* is one step of a piece of work, one message to a drain, one poll of a
//! call, something from outside, a fault, or time that passes; the seed chooses among what is possible. A call of
//! the store is a window in which further actions happen ([`World::window`]), so pieces of work of one worker
//! interleave as threads do.
//!
//! After so many actions the world heals: no more faults, whoever is down comes back, and all that waits must get
//! through within a bound. Then the workers stop, and must hold nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use evener_actor::context::Answer;
use evener_actor::event::Event;
use evener_actor::executor::Offer;
use evener_actor::id::{Boot, Epoch, QueueId, SLOTS, Seq, StreamName, Tenant, TenantNo};
use evener_actor::policy::QueueMode;
use evener_runtime::flow::dispatch::{Alarms, carry_out};
use evener_runtime::flow::drain::{Drain, Heard};
use evener_runtime::flow::stream::{Append, To};
use evener_runtime::work::{Pace, Work};
use evener_runtime::worker::{Ear, Hall, Parts, RuntimeWorker};
use evener_runtime::{AppendError, Clock, Seeded};
use evener_store::batch::{Appended, RowMade, RowOrder, RowsRequest};
use evener_store::workers::Note;
use evener_store::{Letters, Queues, Streams, Tenants};

use crate::calls::{Running, SimExecutor};
use crate::dice::{Dice, mix};
use crate::faults::{Door, FaultStore, REFUSED};
use crate::invariants::{Begun, Goal, Oracle, Spec, Violation};
use crate::mutations::Mutation;
use crate::workload::{self, Body, Manner, STREAMS, Setup};

/// The modes of queues, where nothing else is said.
pub const MODES: &[QueueMode] = &[
    // It promises the most, so it comes the most.
    QueueMode::Fifo,
    QueueMode::Fifo,
    QueueMode::Fifo,
    QueueMode::Priority,
    QueueMode::Lifo,
    QueueMode::Latest,
    QueueMode::Custom,
];

/// Actions before the world heals, where nothing else is said.
pub(crate) const STEPS: u64 = 4_000;

/// Actions that a healed world may take.
const HEALED_STEPS: u64 = 400_000;

/// Time that a healed world may take.
const HEALED_TIME: Duration = Duration::from_secs(24 * 3600);

/// Windows within windows.
const DEPTH_MAX: u32 = 3;

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Which world.
    pub seed: u64,
    /// Actions before it heals; 0: as many as usual.
    pub steps: u64,
    /// Every action is printed.
    pub trace: bool,
    /// A fault that is put in on purpose.
    pub mutation: Option<Mutation>,
    /// The modes that queues have; none: [`MODES`].
    pub modes: Vec<QueueMode>,
}

/// How a world went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Which.
    pub seed: u64,
    /// What did not hold.
    pub violation: Option<Violation>,
    /// Actions in all.
    pub steps: u64,
    /// Of all actions, in order: equal ones went equally.
    pub trace: u64,
    /// Events that were accepted.
    pub accepted: u64,
    /// Rows that were ended.
    pub ended: u64,
    /// Faults, crashes and pauses that happened.
    pub faults: u64,
}

/// The world's clock, in microseconds.
#[derive(Clone, Default)]
pub(crate) struct Time(Arc<AtomicU64>);

impl Time {
    pub(crate) fn now(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, now: Duration) {
        // Up, so that what is due between two microseconds is due then.
        self.0.store(now.as_nanos().div_ceil(1_000) as u64, Ordering::Relaxed);
    }
}

/// A host's view of it.
struct HostClock {
    time: Time,
    ahead: Duration,
    skew_ms: i64,
}

impl Clock for HostClock {
    fn now(&self) -> Duration {
        self.time.now() + self.ahead
    }
    fn wall_ms(&self) -> i64 {
        1_700_000_000_000 + self.skew_ms + i64::try_from(self.time.now().as_millis()).unwrap_or(0)
    }
}

/// What a fault does to a call of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    Away,
    Busy,
    LostBefore,
    LostAfter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

pub(crate) struct World {
    pub(crate) setup: Setup,
    pub(crate) time: Time,
    pub(crate) door: Door,
    me: Weak<World>,
    inner: Mutex<Inner>,
    is_traced: bool,
}

struct Inner {
    dice: Dice,
    steps: u64,
    trace: u64,
    faults: u64,
    depth: u32,
    is_healed: bool,
    /// Nobody comes back.
    is_ending: bool,
    tenant: TenantNo,
    hosts: Vec<Host>,
    seats: BTreeMap<u64, Seat>,
    calls: BTreeMap<u64, Running>,
    last_number: u64,
    /// The epoch of the drain that acts.
    acting: Option<Epoch>,
    notes: Vec<(Duration, u64, Note)>,
    late: Vec<Late>,
    away_until: Duration,
    appends_left: u32,
    /// Ids that were used, with the event.
    ids: Vec<(StreamOr, String, Event, Spec)>,
    starved: Option<(Target, u64)>,
    known_rows: Vec<RowMade>,
    /// Appends without an answer, by life.
    unanswered: BTreeMap<u64, u32>,
    /// When, in which life, and who sleeps till then.
    sleepers: BTreeMap<u64, (Duration, u64, Answer<()>)>,
}

#[derive(Debug, Clone)]
enum StreamOr {
    Stream(&'static str),
    Actor(usize, String, Option<String>),
}

struct Late {
    due: Duration,
    name: &'static str,
    act: Box<dyn Fn(&Door) + Send>,
}

struct Host {
    number: usize,
    life: Option<Life>,
    /// When the next life begins.
    back_at: Duration,
}

struct Life {
    id: u64,
    worker: Arc<RuntimeWorker>,
    works: Vec<WorkSlot>,
    is_gone: Arc<AtomicBool>,
    paused_until: Duration,
    /// When its last answered heartbeat was sent.
    answered: Duration,
    stopping: Option<Stopping>,
    hears: Option<Arc<dyn Fn(Note) + Send + Sync>>,
}

#[derive(Debug, Clone, Copy)]
struct Stopping {
    abort_at: Duration,
    leave_at: Duration,
    was_aborted: bool,
}

struct WorkSlot {
    work: Arc<dyn Work>,
    rests: Rest,
    is_stepping: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    Not,
    Until(Duration),
    Bell,
}

struct Seat {
    life: u64,
    worker: Arc<RuntimeWorker>,
    /// Taken while it acts.
    drain: Option<Drain>,
    ear: Arc<dyn Ear>,
    inbox: Arc<Inbox>,
    alarms: Vec<Duration>,
}

#[derive(Default)]
struct Inbox(Mutex<VecDeque<Heard>>);

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Heard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ear for Inbox {
    fn tell(&self, heard: Heard) {
        self.lock().push_back(heard);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Work(u64, usize),
    Seat(u64),
    Alarm(u64),
    Call(u64),
    Sleeper(u64),
}

struct SimHall {
    world: Weak<World>,
    life: u64,
    is_gone: Arc<AtomicBool>,
}

impl Hall for SimHall {
    fn open(&self, worker: &Arc<RuntimeWorker>, drain: Drain) -> Option<Arc<dyn Ear>> {
        if self.is_gone.load(Ordering::Acquire) {
            return None;
        }
        let world = self.world.upgrade()?;
        Some(world.seat(self.life, worker, drain))
    }

    fn sleep(&self, duration: Duration, answer: Answer<()>) {
        if let Some(world) = self.world.upgrade() {
            let due = world.time.now() + duration;
            let mut inner = world.inner();
            let number = inner.number();
            inner.sleepers.insert(number, (due, self.life, answer));
        }
    }
}

struct SeatAlarms {
    alarms: Vec<Duration>,
    is_over: bool,
}

impl Alarms for SeatAlarms {
    fn arm(&mut self, at: Duration) {
        self.alarms.push(at);
    }
    fn end(&mut self) {
        self.is_over = true;
    }
}

macro_rules! trace {
    ($world:expr, $($arg:tt)*) => {
        if $world.is_traced {
            println!("{:>12.6} {}", $world.time.now().as_secs_f64(), format_args!($($arg)*));
        }
    };
}

impl World {
    fn new(options: &Options) -> Arc<Self> {
        let modes = if options.modes.is_empty() { MODES } else { &options.modes };
        let setup = Setup::of(options.seed, modes);
        let time = Time::default();
        // Not zero: a clock that began just now is a case of its own.
        time.set(Duration::from_secs(1_000));
        Arc::new_cyclic(|me| Self {
            door: Door::new(setup.clone(), time.clone(), options.mutation),
            me: Weak::clone(me),
            is_traced: options.trace,
            inner: Mutex::new(Inner {
                dice: Dice::new(mix(options.seed, 0xd1ce)),
                steps: 0,
                trace: options.seed,
                faults: 0,
                depth: 0,
                is_healed: false,
                is_ending: false,
                tenant: TenantNo(0),
                hosts: Vec::new(),
                seats: BTreeMap::new(),
                calls: BTreeMap::new(),
                last_number: 0,
                acting: None,
                notes: Vec::new(),
                late: Vec::new(),
                away_until: Duration::ZERO,
                appends_left: setup.appends,
                ids: Vec::new(),
                starved: None,
                known_rows: Vec::new(),
                unanswered: BTreeMap::new(),
                sleepers: BTreeMap::new(),
            }),
            setup,
            time,
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.door.oracle()
    }

    fn fail(&self, claim: &'static str, what: impl Into<String>) {
        self.oracle().fail(claim, what);
    }

    fn is_over(&self) -> bool {
        self.oracle().violation().is_some()
    }

    // What the parts of a life ask for.

    /// Whether, and how, this call of the store fails.
    pub(crate) fn draw_fault(&self, life: u64, name: &'static str, kind: Kind) -> Fault {
        let now = self.time.now();
        let rates = &self.setup.faults;
        let mut inner = self.inner();
        if inner.is_healed {
            return Fault::None;
        }
        let fault = if now < inner.away_until || inner.dice.permille(rates.away) {
            Fault::Away
        } else if inner.dice.permille(rates.busy) {
            Fault::Busy
        } else if kind == Kind::Write && inner.dice.permille(rates.lost_before) {
            Fault::LostBefore
        } else if kind == Kind::Write && inner.dice.permille(rates.lost_after) {
            Fault::LostAfter
        } else {
            return Fault::None;
        };
        inner.faults += 1;
        inner.note(fault as u64, life);
        drop(inner);
        trace!(self, "fault   life {life} {name}: {fault:?}");
        fault
    }

    /// The first copy of a write is still on its way.
    pub(crate) fn send_late(&self, name: &'static str, act: Box<dyn Fn(&Door) + Send>) {
        let mut inner = self.inner();
        if inner.dice.permille(self.setup.faults.late) {
            let delay = inner.dice.pick(&[0, 5, 50, 500, 20_000, 90_000]);
            let due = self.time.now() + Duration::from_millis(delay);
            inner.late.push(Late { due, name, act });
        }
    }

    /// While a call of the store is under way the world goes on.
    pub(crate) fn window(&self, life: u64, name: &'static str) {
        let rates = &self.setup.faults;
        let count = {
            let mut inner = self.inner();
            if inner.is_healed || inner.depth >= DEPTH_MAX || inner.depth == 0 {
                return;
            }
            if inner.dice.permille(rates.pause_inside) {
                // The whole worker stands still, for longer than others wait for it.
                let last = self.setup.config.stale.as_millis() as u64 * 3;
                let until = self.time.now() + Duration::from_millis(inner.dice.between(1_000, last));
                let Some(of_life) = inner.life(life) else { return };
                of_life.paused_until = until;
                inner.faults += 1;
                inner.note(77, life);
                drop(inner);
                trace!(self, "pause   life {life} inside of {name} until {:.3}", until.as_secs_f64());
                for _ in 0..2_000 {
                    if self.time.now() >= until || self.is_over() || !self.is_alive(life) {
                        break;
                    }
                    self.act();
                }
                if let Some(of_life) = self.inner().life(life) {
                    of_life.paused_until = Duration::ZERO;
                }
                trace!(self, "goes on life {life} inside of {name}");
                return;
            }
            if !inner.dice.permille(rates.window) {
                return;
            }
            inner.dice.between(1, 12)
        };
        trace!(self, "window  life {life} {name}");
        for _ in 0..count {
            if self.is_over() {
                break;
            }
            self.act();
        }
        trace!(self, "closed  life {life} {name}");
    }

    pub(crate) fn heartbeat_answered(&self, life: u64, sent: Duration) {
        if let Some(life) = self.inner().life(life) {
            life.answered = life.answered.max(sent);
        }
    }

    /// Something is done that needs a heartbeat of late.
    pub(crate) fn check_trust(&self, life: u64, doing: &str) {
        let now = self.time.now();
        let answered = self.inner().life(life).map(|life| life.answered);
        if let Some(answered) = answered {
            let past = now.saturating_sub(answered);
            if past > self.setup.config.trust + Duration::from_millis(1) {
                self.fail("only the trusted act", format!("{doing} {past:?} after the last heartbeat"));
            }
        }
    }

    pub(crate) fn notify(&self, from: u64, notes: &[Note]) {
        let now = self.time.now();
        let rates = &self.setup.faults;
        let mut inner = self.inner();
        let others: Vec<u64> = inner.lives().map(|life| life.id).filter(|life| *life != from).collect();
        for life in others {
            for note in notes {
                if !inner.is_healed && inner.dice.permille(rates.note_lost) {
                    continue;
                }
                let copies = 1 + usize::from(!inner.is_healed && inner.dice.permille(rates.note_doubled));
                for _ in 0..copies {
                    let due = now + Duration::from_millis(inner.dice.pick(&[0, 0, 5, 100]));
                    inner.notes.push((due, life, note.clone()));
                }
            }
        }
    }

    pub(crate) fn listen(&self, life: u64, hear: Arc<dyn Fn(Note) + Send + Sync>) {
        if let Some(life) = self.inner().life(life) {
            life.hears = Some(hear);
        }
    }

    fn seat(&self, life: u64, worker: &Arc<RuntimeWorker>, drain: Drain) -> Arc<dyn Ear> {
        let inbox = Arc::new(Inbox::default());
        let ear = Arc::clone(&inbox) as Arc<dyn Ear>;
        let mut inner = self.inner();
        let number = inner.number();
        trace!(self, "opens   life {life} seat {number} of instance {}", drain.instance().id);
        let seat = Seat {
            life,
            worker: Arc::clone(worker),
            drain: Some(drain),
            ear: Arc::clone(&ear),
            inbox,
            alarms: Vec::new(),
        };
        inner.seats.insert(number, seat);
        ear
    }

    pub(crate) fn acting(&self) -> Epoch {
        self.inner().acting.expect("calls are started by drains that act")
    }

    pub(crate) fn call_number(&self, nonce: u64, attempt: u32, has_timeout: bool) -> (u64, Manner) {
        let mut inner = self.inner();
        let number = inner.number();
        (number, Manner::of(&self.setup, nonce, attempt, has_timeout, &mut inner.dice))
    }

    /// An actor's own choice: some of what it is offered, in any order; at times nothing, or a fault.
    pub(crate) fn select(&self, offers: &[Offer]) -> Result<Vec<QueueId>, String> {
        let mut inner = self.inner();
        let dice = &mut inner.dice;
        if dice.permille(50) {
            return Err("it should".to_owned());
        }
        let mut left: Vec<QueueId> = offers.iter().map(|offer| offer.id).collect();
        let mut chosen = Vec::new();
        while !left.is_empty() && dice.permille(850) {
            let at = dice.below(left.len());
            chosen.push(left.swap_remove(at));
        }
        Ok(chosen)
    }

    pub(crate) fn call_started(&self, running: Running) {
        let begun = running.begun;
        trace!(
            self,
            "starts  life {} call {} of event {:x} at instance {}, row {}, attempt {}",
            begun.life,
            begun.call,
            begun.nonce,
            begun.instance,
            begun.origin,
            begun.attempt
        );
        self.check_trust(begun.life, "a call starts");
        self.oracle().started(&begun, self.time.now());
        self.inner().calls.insert(begun.call, running);
    }

    pub(crate) fn call_settled(&self, begun: &Begun, stands_on: &[u64]) {
        self.oracle().settled(begun, stands_on);
    }

    fn is_alive(&self, life: u64) -> bool {
        self.inner().life(life).is_some()
    }

    // Actions.

    /// One action; `false`: nothing is left that could happen.
    fn act(&self) -> bool {
        let now = self.time.now();
        let mut inner = self.inner();
        inner.steps += 1;
        inner.depth += 1;
        let is_healed = inner.is_healed;
        let is_nested = inner.depth > 1;
        let rates = &self.setup.faults;
        // Whether it happens at all is thrown for each kind, so that a rate means what it says.
        let chosen = if !is_healed && inner.dice.permille(rates.crash) {
            self.crash(&mut inner);
            Some(())
        } else if !is_healed && inner.dice.permille(rates.pause) {
            self.pause(&mut inner);
            Some(())
        } else if !is_healed && inner.dice.permille(rates.stop) {
            self.stop(&mut inner);
            Some(())
        } else if !is_healed && inner.dice.permille(rates.outage) {
            let how_long = inner.dice.pick(&[100, 2_000, 20_000, 100_000]);
            inner.away_until = now + Duration::from_millis(how_long);
            trace!(self, "outage  for {how_long} ms");
            Some(())
        } else {
            None
        };
        if chosen.is_some() {
            inner.faults += 1;
            inner.depth -= 1;
            return true;
        }
        if !is_healed && inner.dice.permille(rates.redrive) {
            self.command(&mut inner);
        }
        if !is_healed && inner.dice.permille(rates.stray_note) {
            self.stray_note(&mut inner, now);
        }
        if !is_nested && self.keep_hosts(&mut inner, now) {
            drop(inner);
            self.revive();
            self.inner().depth -= 1;
            return true;
        }
        let may_append = inner.appends_left > 0 && inner.lives().next().is_some();
        let passes = !is_healed && inner.dice.permille(rates.time);
        let wants_append = may_append && inner.dice.permille(60);
        if wants_append {
            drop(inner);
            self.append();
            self.inner().depth -= 1;
            return true;
        }
        let targets = inner.targets(now);
        if inner.dice.permille(if is_healed { 0 } else { rates.starve }) && !targets.is_empty() {
            let victim = inner.dice.pick(&targets);
            let until = inner.steps + inner.dice.between(10, 400);
            inner.starved = Some((victim, until));
        }
        let mail =
            inner.notes.iter().filter(|(due, life, _)| *due <= now && inner.may_hear(*life, now)).count();
        let late = inner.late.iter().filter(|late| late.due <= now).count();
        let count = targets.len() + mail + late;
        if count == 0 || passes {
            drop(inner);
            let has_passed = self.pass(count > 0);
            self.inner().depth -= 1;
            return has_passed || may_append;
        }
        let at = inner.dice.below(count);
        if let Some(target) = targets.get(at).copied() {
            let (kind, number) = match target {
                Target::Work(life, work) => (1, life * 100 + work as u64),
                Target::Seat(seat) => (2, seat),
                Target::Alarm(seat) => (3, seat),
                Target::Call(call) => (4, call),
                Target::Sleeper(sleeper) => (11, sleeper),
            };
            inner.note(kind, number);
            drop(inner);
            match target {
                Target::Work(life, work) => self.step(life, work),
                Target::Seat(seat) => self.deliver(seat, None),
                Target::Alarm(seat) => self.deliver(seat, Some(Heard::Tick)),
                Target::Call(call) => self.poll(call),
                Target::Sleeper(sleeper) => {
                    let slept = self.inner().sleepers.remove(&sleeper);
                    if let Some((_, _, answer)) = slept {
                        answer.give(());
                    }
                }
            }
        } else if at < targets.len() + mail {
            let due: Vec<usize> = (0..inner.notes.len())
                .filter(|at| inner.notes[*at].0 <= now && inner.may_hear(inner.notes[*at].1, now))
                .collect();
            let (_, life, note) = inner.notes.remove(due[at - targets.len()]);
            let hears = inner.life(life).map(|life| (Arc::clone(&life.worker), life.hears.clone()));
            inner.note(5, life);
            drop(inner);
            trace!(self, "note    life {life}: {note:?}");
            match hears {
                Some((_, Some(hears))) => hears(note),
                Some((worker, None)) => worker.hear(note),
                None => {}
            }
        } else {
            let due: Vec<usize> = (0..inner.late.len()).filter(|at| inner.late[*at].due <= now).collect();
            let late = inner.late.remove(due[at - targets.len() - mail]);
            inner.note(6, 0);
            drop(inner);
            trace!(self, "late    {}", late.name);
            (late.act)(&self.door);
        }
        self.inner().depth -= 1;
        true
    }

    fn step(&self, life: u64, at: usize) {
        let work = {
            let mut inner = self.inner();
            let Some(of_life) = inner.life(life) else { return };
            let slot = &mut of_life.works[at];
            slot.is_stepping = true;
            let work = Arc::clone(&slot.work);
            if slot.rests != Rest::Not && work.bell().has_rung() {
                // It has rung: this takes it, and does not wait.
                work.bell().sleep(Some(Duration::ZERO));
            }
            work
        };
        trace!(self, "step    life {life} {}", work.name());
        let pace = work.step();
        let now = self.time.now();
        let mut inner = self.inner();
        if let Some(of_life) = inner.life(life) {
            let slot = &mut of_life.works[at];
            slot.is_stepping = false;
            slot.rests = match pace {
                Pace::Again => Rest::Not,
                Pace::Wait(how_long) => Rest::Until(now + how_long),
                Pace::Idle => Rest::Bell,
            };
        }
    }

    fn deliver(&self, number: u64, heard: Option<Heard>) {
        let (worker, mut drain, ear, heard) = {
            let mut inner = self.inner();
            let Some(seat) = inner.seats.get_mut(&number) else { return };
            let heard = match heard {
                Some(heard) => {
                    let first = (0..seat.alarms.len()).min_by_key(|at| seat.alarms[*at]);
                    first.map(|at| seat.alarms.swap_remove(at));
                    Some(heard)
                }
                None => seat.inbox.lock().pop_front(),
            };
            let Some(heard) = heard else { return };
            let Some(drain) = seat.drain.take() else { return };
            let (worker, ear) = (Arc::clone(&seat.worker), Arc::clone(&seat.ear));
            inner.acting = Some(drain.epoch());
            (worker, drain, ear, heard)
        };
        trace!(self, "hears   seat {number} {}", short(&heard));
        let now = worker.clock.now();
        drain.hear(heard, now);
        let mut asks = Vec::new();
        drain.act(now, &mut worker.seat(&ear), &mut asks);
        for ask in &asks {
            trace!(self, "asks    seat {number} {}", short(ask));
        }
        let mut alarms = SeatAlarms { alarms: Vec::new(), is_over: false };
        carry_out(&worker, &drain, &ear, &mut asks, &mut alarms);
        let mut inner = self.inner();
        inner.acting = None;
        if alarms.is_over {
            trace!(self, "closes  seat {number}");
            let gone = inner.seats.remove(&number);
            drop(inner);
            drop(gone);
            return;
        }
        // The clock of a host runs ahead of the world's.
        let ahead = now.saturating_sub(self.time.now());
        if let Some(seat) = inner.seats.get_mut(&number) {
            seat.drain = Some(drain);
            seat.alarms.extend(alarms.alarms.into_iter().map(|at| at.saturating_sub(ahead)));
        }
    }

    fn poll(&self, number: u64) {
        let (mut future, alarm, signal, timeout) = {
            let mut inner = self.inner();
            let Some(running) = inner.calls.get_mut(&number) else { return };
            let Some(future) = running.future.take() else { return };
            (future, Arc::clone(&running.alarm), Arc::clone(&running.signal), running.timeout)
        };
        let end = Running::poll(&mut future, &alarm, &signal, timeout);
        let Some(end) = end else {
            if let Some(running) = self.inner().calls.get_mut(&number) {
                running.future = Some(future);
            }
            return;
        };
        drop(future);
        let Some(mut running) = self.inner().calls.remove(&number) else { return };
        let is_done = matches!(end, Some(evener_actor::executor::Ended::Done(_)));
        trace!(self, "ends    call {number}: {}", end.as_ref().map_or("lost".to_owned(), short));
        self.oracle().call_ended(&running.begun, is_done);
        let done = running.done.take().expect("a call ends once");
        match end {
            Some(ended) => done.end(ended),
            None => drop(done),
        }
    }

    /// Time passes to the next thing that is due, or by a little.
    fn pass(&self, has_work: bool) -> bool {
        let now = self.time.now();
        let mut inner = self.inner();
        let Some(due) = inner.next_due(now) else { return false };
        let to = if has_work {
            now + Duration::from_micros(inner.dice.pick(&[10, 500, 5_000, 100_000, 1_500_000]))
        } else {
            due
        };
        inner.note(7, to.as_micros() as u64);
        let calls = inner.calls.len();
        let is_calm = self.setup.is_calm
            && !has_work
            && !inner.is_healed
            && calls == 0
            && inner.depth == 1
            && inner.hosts.len() == 1
            && inner.notes.is_empty()
            // Its own choice may be to wait.
            && self.setup.actors.iter().all(|actor| actor.queue.mode != QueueMode::Custom)
            && self.setup.faults.time == 0
            && inner.lives().all(|life| {
                life.worker.activation.count() < self.setup.config.active_max
                    && now.saturating_sub(life.answered) < self.setup.config.trust
            });
        drop(inner);
        // A worker that was not trusted for a moment asks again soon.
        if is_calm && to > now + Duration::from_secs(2) {
            let forgotten = self.oracle().forgotten();
            if let Some(what) = forgotten {
                self.fail("a wake is not forgotten", what);
            }
        }
        trace!(self, "time    to {:.6}", to.as_secs_f64());
        self.time.set(to.max(now));
        true
    }

    // Clients.

    fn append(&self) {
        let mut inner = self.inner();
        inner.appends_left -= 1;
        let lives: Vec<(u64, Arc<RuntimeWorker>, Arc<AtomicBool>)> = inner
            .lives()
            .filter(|life| life.paused_until <= self.time.now())
            .map(|life| (life.id, Arc::clone(&life.worker), Arc::clone(&life.is_gone)))
            .collect();
        if lives.is_empty() {
            return;
        }
        let (life, worker, is_gone) = inner.dice.pick(&lives);
        let setup = &self.setup;
        let is_repeat = !inner.ids.is_empty() && inner.dice.permille(150);
        let (place, events, specs) = if is_repeat {
            let count = inner.ids.len();
            let at = inner.dice.below(count);
            let (place, id, event, spec) = inner.ids[at].clone();
            if inner.dice.permille(200) {
                // Another event under the same id.
                let (event, mut spec) = new_event(&mut inner.dice, setup, &place);
                let hash = mix(inner.dice.next(), 1);
                spec.id = Some((id.clone(), hash));
                (place, vec![event.with_id(id)], vec![spec])
            } else {
                (place, vec![event], vec![spec])
            }
        } else {
            let place = if inner.dice.permille(200) {
                let actor = inner.dice.below(setup.actors.len());
                let key = workload::key(&mut inner.dice, setup.keys);
                StreamOr::Actor(actor, key, workload::group(&mut inner.dice, setup.groups))
            } else {
                StreamOr::Stream(inner.dice.pick(&STREAMS))
            };
            let count = inner.dice.pick(&[1, 1, 1, 2, 5]);
            let (mut events, mut specs) = (Vec::new(), Vec::new());
            for _ in 0..count {
                let (mut event, mut spec) = new_event(&mut inner.dice, setup, &place);
                if inner.dice.permille(300) && spec.is_allowed {
                    let id = format!("id-{:x}", inner.dice.next());
                    event = event.with_id(id.clone());
                    spec.id = Some((id.clone(), mix(inner.dice.next(), 2)));
                    inner.ids.push((place.clone(), id, event.clone(), spec.clone()));
                }
                events.push(event);
                specs.push(spec);
            }
            (place, events, specs)
        };
        *inner.unanswered.entry(life).or_default() += 1;
        inner.note(8, life);
        drop(inner);
        let nonces: Vec<u64> =
            events.iter().map(|event| crate::invariants::body(event).map_or(0, |body| body.n)).collect();
        let began_after = {
            let mut oracle = self.oracle();
            for (nonce, spec) in nonces.iter().zip(specs) {
                oracle.plan(*nonce, spec);
            }
            oracle.answered_max()
        };
        trace!(self, "append  life {life} {nonces:x?} to {place:?}");
        let to = match place {
            StreamOr::Stream(name) => To::Stream(name.parse().expect("a name")),
            StreamOr::Actor(actor, key, group) => To::Instance {
                actor: setup.actors[actor].name.clone(),
                key: key.parse().expect("a name"),
                group: group.map(|group| group.parse().expect("a name")),
                priority: 0,
            },
        };
        let world = Weak::clone(&self.me);
        let done = Box::new(move |result: Result<Vec<Appended>, AppendError>| {
            let Some(world) = world.upgrade() else { return };
            // Its connection is gone with the worker: nobody hears the answer.
            if !is_gone.load(Ordering::Acquire) {
                world.answered(life, &nonces, began_after, &result);
            }
        });
        worker.append(Append { tenant: Tenant::default(), to, events, done });
    }

    fn answered(
        &self,
        life: u64,
        nonces: &[u64],
        began_after: Seq,
        result: &Result<Vec<Appended>, AppendError>,
    ) {
        trace!(self, "answer  {nonces:x?}: {result:?}");
        if let Some(count) = self.inner().unanswered.get_mut(&life) {
            *count -= 1;
        }
        let mut oracle = self.oracle();
        match result {
            Ok(reports) => {
                oracle.told(nonces, began_after, reports);
                drop(oracle);
                let rows = reports.iter().filter_map(|report| match report {
                    Appended::New { rows, .. } => Some(rows),
                    _ => None,
                });
                self.inner().known_rows.extend(rows.flatten().copied());
            }
            Err(error) => oracle.denied(nonces, &error.to_string()),
        }
    }

    // Lives.

    fn crash(&self, inner: &mut Inner) {
        let lives: Vec<usize> =
            inner.hosts.iter().filter(|host| host.life.is_some()).map(|host| host.number).collect();
        if lives.is_empty() {
            return;
        }
        let host = inner.dice.pick(&lives);
        let back = inner.dice.pick(&[0, 100, 5_000, 100_000]);
        trace!(self, "crash   host {host}");
        self.end_life(inner, host, self.time.now() + Duration::from_millis(back));
    }

    /// All of its memory is gone.
    fn end_life(&self, inner: &mut Inner, host: usize, back_at: Duration) {
        let Some(life) = inner.hosts[host].life.take() else { return };
        life.is_gone.store(true, Ordering::Release);
        inner.hosts[host].back_at = back_at;
        inner.note(9, life.id);
        let id = life.id;
        inner.notes.retain(|(_, of, _)| *of != id);
        // They end in nobody's ear; dropped later, since that may call back.
        let calls: Vec<u64> =
            inner.calls.iter().filter(|(_, call)| call.begun.life == id).map(|(call, _)| *call).collect();
        let seats: Vec<u64> =
            inner.seats.iter().filter(|(_, seat)| seat.life == id).map(|(seat, _)| *seat).collect();
        for call in calls {
            if let Some(mut running) = inner.calls.remove(&call) {
                // What a lost call tells its drain is told to nobody.
                drop(running.done.take());
                drop(running);
            }
        }
        for seat in seats {
            inner.seats.remove(&seat);
        }
        inner.sleepers.retain(|_, (_, life, _)| *life != id);
        inner.unanswered.remove(&id);
        self.oracle().life_ended(id);
        drop(life);
    }

    fn pause(&self, inner: &mut Inner) {
        let now = self.time.now();
        let how_long = inner.dice.pick(&[500, 10_000, 50_000, 70_000, 150_000]);
        let count = inner.hosts.len();
        let host = inner.dice.below(count);
        if let Some(life) = &mut inner.hosts[host].life {
            life.paused_until = now + Duration::from_millis(how_long);
            let id = life.id;
            inner.note(10, id);
            trace!(self, "pause   life {id} for {how_long} ms");
        }
    }

    fn stop(&self, inner: &mut Inner) {
        let count = inner.hosts.len();
        let host = inner.dice.below(count);
        self.begin_stop(inner, host);
    }

    fn begin_stop(&self, inner: &mut Inner, host: usize) {
        let now = self.time.now();
        let grace = inner.dice.pick(&[0, 1_000, 30_000]);
        let Some(life) = &mut inner.hosts[host].life else { return };
        if life.stopping.is_some() {
            return;
        }
        let abort_at = now + Duration::from_millis(grace);
        life.stopping = Some(Stopping {
            abort_at,
            leave_at: abort_at + self.setup.config.abort_grace * 2,
            was_aborted: false,
        });
        trace!(self, "stop    life {}", life.id);
        // It tells drains only; they hear later.
        life.worker.stop();
    }

    /// Goes on with lives that stop; `true`: a host is to be revived.
    fn keep_hosts(&self, inner: &mut Inner, now: Duration) -> bool {
        for host in 0..inner.hosts.len() {
            let is_healed = inner.is_healed;
            let Some(life) = &mut inner.hosts[host].life else { continue };
            if life.paused_until > now || life.works.iter().any(|slot| slot.is_stepping) {
                continue;
            }
            let Some(stopping) = &mut life.stopping else { continue };
            let worker = Arc::clone(&life.worker);
            let is_empty = worker.is_empty();
            if !is_empty && now >= stopping.abort_at && !stopping.was_aborted {
                stopping.was_aborted = true;
                trace!(self, "abort   life {}", life.id);
                worker.abort();
            }
            let is_late = now >= stopping.leave_at;
            if is_empty || (is_late && !is_healed) {
                let id = life.id;
                trace!(self, "leaves  life {id}, empty: {is_empty}");
                if is_empty {
                    let held = worker.held();
                    if !held.is_nothing() {
                        self.fail("a stopped worker holds nothing", format!("{held:?}"));
                    }
                }
                let back = inner.dice.pick(&[0, 1_000, 60_000]);
                // Before the store hears of it, so that no window opens here.
                let boot = worker.ownership.boot();
                if inner.dice.permille(800) || is_healed {
                    let _ = self.leave(boot);
                }
                self.end_life(inner, host, now + Duration::from_millis(back));
            }
        }
        !inner.is_ending && inner.hosts.iter().any(|host| host.life.is_none() && host.back_at <= now)
    }

    fn leave(&self, boot: Boot) -> evener_store::Result<()> {
        use evener_store::Workers;
        self.door.memory.leave(boot)?;
        self.oracle().left(boot);
        Ok(())
    }

    fn revive(&self) {
        let now = self.time.now();
        let host = {
            let inner = self.inner();
            inner.hosts.iter().find(|host| host.life.is_none() && host.back_at <= now).map(|host| host.number)
        };
        let Some(host) = host else { return };
        let (id, chance) = {
            let mut inner = self.inner();
            (inner.number(), inner.dice.next())
        };
        let is_gone = Arc::new(AtomicBool::new(false));
        let clock = HostClock {
            time: self.time.clone(),
            ahead: Duration::from_secs(host as u64 * 10_000),
            skew_ms: host as i64 * 1_234,
        };
        let me = self.me.upgrade().expect("this world is here");
        let store = FaultStore { world: me, life: id, is_gone: Arc::clone(&is_gone) };
        let executor =
            SimExecutor { world: Weak::clone(&self.me), life: id, definitions: self.setup.actors.clone() };
        let hall = SimHall { world: Weak::clone(&self.me), life: id, is_gone: Arc::clone(&is_gone) };
        let worker = RuntimeWorker::new(Parts {
            config: evener_runtime::Config { worker_id: format!("host-{host}"), ..self.setup.config.clone() },
            store: Arc::new(store),
            clock: Arc::new(clock),
            chance: Arc::new(Seeded::new(chance)),
            executors: vec![Arc::new(executor)],
            hall: Arc::new(hall),
        })
        .expect("the workload's definitions make sense");
        let works = worker.works();
        let works =
            works.into_iter().map(|work| WorkSlot { work, rests: Rest::Not, is_stepping: false }).collect();
        let life = Life {
            id,
            worker: Arc::clone(&worker),
            works,
            is_gone: Arc::clone(&is_gone),
            paused_until: Duration::ZERO,
            answered: now,
            stopping: None,
            hears: None,
        };
        trace!(self, "begins  life {id} on host {host}");
        if worker.register(&Tenant::default()).is_err() {
            // The program ends with an error, and is started again.
            let mut inner = self.inner();
            inner.hosts[host].back_at = now + Duration::from_secs(1);
            is_gone.store(true, Ordering::Release);
            return;
        }
        let mut inner = self.inner();
        inner.hosts[host].life = Some(life);
    }

    /// What somebody does by hand.
    fn command(&self, inner: &mut Inner) {
        let letters = self.door.memory.dead_letters(inner.tenant, None, 0, 100).unwrap_or_default();
        let blocked = self.oracle().blocked();
        if let Some((slot, instance, rows)) = blocked.first() {
            let is_retry = inner.dice.permille(500);
            trace!(self, "unblock instance {instance}: {rows:?}, again: {is_retry}");
            let _ = self.door.unblock(*slot, *instance, rows, is_retry);
        } else if !letters.is_empty() {
            let letter = inner.dice.pick(&letters);
            trace!(self, "redrive instance {} row {}", letter.instance, letter.origin);
            let _ = self.door.redrive(inner.tenant, &[letter]);
        }
    }

    fn stray_note(&self, inner: &mut Inner, now: Duration) {
        let lives: Vec<u64> = inner.lives().map(|life| life.id).collect();
        if lives.is_empty() {
            return;
        }
        let life = inner.dice.pick(&lives);
        let note = if inner.known_rows.is_empty() || inner.dice.permille(300) {
            inner.dice.pick(&[Note::Look, Note::Routes, Note::Schedule])
        } else {
            let count = inner.known_rows.len();
            let row = inner.dice.below(count);
            Note::Row(inner.known_rows[row])
        };
        inner.notes.push((now, life, note));
    }

    // The whole.

    fn run(&self, steps: u64) {
        {
            let tenant = self.door.memory.tenant(&Tenant::default()).expect("memory does not fail");
            for name in STREAMS {
                let name: StreamName = name.parse().expect("a name");
                self.door.stream(tenant, &name).expect("memory does not fail");
            }
            let mut inner = self.inner();
            inner.tenant = tenant;
            let now = self.time.now();
            inner.hosts =
                (0..self.setup.hosts).map(|number| Host { number, life: None, back_at: now }).collect();
        }
        for _ in 0..steps {
            self.act();
            if self.is_over() {
                return;
            }
        }
        self.heal();
        if !self.is_over() {
            self.finish();
        }
    }

    fn heal(&self) {
        let now = self.time.now();
        {
            let mut inner = self.inner();
            trace!(self, "heals");
            inner.is_healed = true;
            inner.starved = None;
            inner.away_until = Duration::ZERO;
            for host in &mut inner.hosts {
                host.back_at = host.back_at.min(now);
                if let Some(life) = &mut host.life {
                    life.paused_until = Duration::ZERO;
                }
            }
        }
        let until = now + HEALED_TIME;
        for _ in 0..HEALED_STEPS {
            self.act();
            if self.is_over() {
                return;
            }
            if self.is_drained() {
                return;
            }
            if self.time.now() > until {
                break;
            }
        }
        for (number, seat) in &self.inner().seats {
            trace!(
                self,
                "stuck   life {} seat {number} {:?} alarms {:?}", seat.life, seat.drain, seat.alarms
            );
        }
        let waits = self.oracle().first_waiting();
        let unanswered: u32 = self.inner().unanswered.values().sum();
        self.fail(
            "everything comes to an end",
            format!("after {:?} in peace: {unanswered} appends unanswered; {waits}", self.time.now() - now),
        );
    }

    /// Nothing waits any more, and nothing is on its way.
    fn is_drained(&self) -> bool {
        {
            let inner = self.inner();
            let is_still = inner.appends_left == 0
                && inner.unanswered.values().all(|count| *count == 0)
                && inner.calls.is_empty()
                && inner.late.is_empty()
                && inner.hosts.iter().all(|host| host.life.is_some());
            if !is_still {
                return false;
            }
        }
        let oracle = self.oracle();
        let (waiting, blocked) = (oracle.waiting(), oracle.blocked());
        drop(oracle);
        if waiting == 0 {
            return true;
        }
        let blocked_rows: usize = blocked.iter().map(|(_, _, rows)| rows.len()).sum();
        // Behind blocked ones others may wait for their slots.
        if blocked_rows > 0 && self.inner().calls.is_empty() {
            for (slot, instance, rows) in blocked {
                let _ = self.door.unblock(slot, instance, &rows, false);
            }
        }
        false
    }

    /// All workers stop; what they held is gone, what the store holds is as it must be.
    fn finish(&self) {
        let tenant = {
            let mut inner = self.inner();
            inner.is_ending = true;
            for host in 0..inner.hosts.len() {
                self.begin_stop(&mut inner, host);
            }
            inner.tenant
        };
        let mut left = HEALED_STEPS;
        while self.inner().lives().next().is_some() {
            self.act();
            left -= 1;
            if self.is_over() {
                return;
            }
            if left == 0 {
                let works: Vec<String> = self
                    .inner()
                    .lives()
                    .map(|life| format!("life {}: {:?}", life.id, life.worker.held()))
                    .collect();
                return self.fail("a stop comes to an end", format!("{works:?}"));
            }
        }
        self.compare(tenant);
    }

    fn compare(&self, tenant: TenantNo) {
        let memory = &self.door.memory;
        let known: Vec<_> = self.oracle().instances().map(|(id, slot, ..)| (id, slot)).collect();
        for (instance, slot) in known {
            let request = RowsRequest {
                slot,
                instance,
                order: RowOrder::Forward { after: QueueId(0) },
                rows_max: 10_000,
                event_bytes_max: 0,
            };
            let rows = memory.rows(&[request]).expect("memory does not fail").remove(0).rows;
            match self.door.view(instance) {
                Some(view) => self.oracle().compare(&view, &rows),
                None => self.fail("the store is as the model", format!("instance {instance} is gone")),
            }
        }
        let waiting = memory.waiting(0..SLOTS, None, 10_000).expect("memory does not fail");
        if !waiting.is_empty() {
            self.fail("everything comes to an end", format!("{waiting:?} wait"));
        }
        for name in STREAMS {
            let no = self.door.stream(tenant, &name.parse().expect("a name")).expect("memory does not fail");
            let events = memory.read_stream(no, Seq(0), u32::MAX, usize::MAX).expect("memory does not fail");
            let events: Vec<(Seq, u64)> = events
                .iter()
                .map(|event| (event.seq, crate::invariants::body(&event.event).map_or(0, |body| body.n)))
                .collect();
            self.oracle().compare_stream(name, &events);
        }
        let letters = memory.dead_letters(tenant, None, 0, u32::MAX).expect("memory does not fail").len();
        let parked = memory.parked(tenant, 0, u32::MAX).expect("memory does not fail").len();
        self.oracle().compare_counts(letters, parked);
    }
}

impl Inner {
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Goes into the hash of all that happened.
    fn note(&mut self, kind: u64, what: u64) {
        self.trace = mix(self.trace, kind.wrapping_mul(0x1_0000_0000).wrapping_add(what));
    }

    fn lives(&self) -> impl Iterator<Item = &Life> {
        self.hosts.iter().filter_map(|host| host.life.as_ref())
    }

    fn life(&mut self, id: u64) -> Option<&mut Life> {
        self.hosts.iter_mut().filter_map(|host| host.life.as_mut()).find(|life| life.id == id)
    }

    /// A worker that stands still hears later.
    fn may_hear(&self, life: u64, now: Duration) -> bool {
        self.lives().find(|one| one.id == life).is_none_or(|life| life.paused_until <= now)
    }

    fn is_starved(&self, target: Target) -> bool {
        self.starved.is_some_and(|(victim, until)| victim == target && until > self.steps)
    }

    /// All that could go on now.
    fn targets(&self, now: Duration) -> Vec<Target> {
        let mut targets = Vec::new();
        let mut awake = BTreeSet::new();
        for life in self.lives().filter(|life| life.paused_until <= now) {
            awake.insert(life.id);
            for (at, slot) in life.works.iter().enumerate() {
                let is_due = match slot.rests {
                    Rest::Not => true,
                    Rest::Until(due) => due <= now || slot.work.bell().has_rung(),
                    Rest::Bell => slot.work.bell().has_rung(),
                };
                if is_due && !slot.is_stepping {
                    targets.push(Target::Work(life.id, at));
                }
            }
        }
        for (number, seat) in &self.seats {
            if !awake.contains(&seat.life) || seat.drain.is_none() {
                continue;
            }
            if !seat.inbox.lock().is_empty() {
                targets.push(Target::Seat(*number));
            }
            if seat.alarms.iter().any(|at| *at <= now) {
                targets.push(Target::Alarm(*number));
            }
        }
        for (number, call) in &self.calls {
            if awake.contains(&call.begun.life) && call.future.is_some() && call.alarm.is_ready(now) {
                targets.push(Target::Call(*number));
            }
        }
        for (number, (due, life, _)) in &self.sleepers {
            if *due <= now && awake.contains(life) {
                targets.push(Target::Sleeper(*number));
            }
        }
        if self.starved.is_some() && targets.len() > 1 {
            targets.retain(|target| !self.is_starved(*target));
        }
        targets
    }

    /// When the next thing is due, if only time is missing.
    fn next_due(&self, now: Duration) -> Option<Duration> {
        let mut due: Vec<Duration> = Vec::new();
        for life in self.lives() {
            let wakes = life.paused_until;
            if wakes > now {
                due.push(wakes);
                continue;
            }
            due.extend(life.works.iter().filter_map(|slot| match slot.rests {
                Rest::Until(at) if !slot.is_stepping => Some(at),
                _ => None,
            }));
            if let Some(stopping) = life.stopping {
                due.push(if stopping.was_aborted { stopping.leave_at } else { stopping.abort_at });
            }
        }
        due.extend(self.hosts.iter().filter(|host| host.life.is_none()).map(|host| host.back_at));
        due.extend(self.seats.values().flat_map(|seat| seat.alarms.iter().copied()));
        due.extend(self.calls.values().filter_map(|call| call.alarm.due()));
        due.extend(self.notes.iter().map(|(due, ..)| *due));
        due.extend(self.late.iter().map(|late| late.due));
        due.extend(self.sleepers.values().map(|(due, ..)| *due));
        due.into_iter().filter(|due| *due > now).min()
    }
}

fn new_event(dice: &mut Dice, setup: &Setup, place: &StreamOr) -> (Event, Spec) {
    let nonce = dice.next() >> 1;
    let (to, key, group) = match place {
        StreamOr::Stream(name) => {
            let key = (!dice.permille(20)).then(|| workload::key(dice, setup.keys));
            (Goal::Stream(name), key, workload::group(dice, setup.groups))
        }
        StreamOr::Actor(actor, key, group) => (Goal::Actor(*actor), Some(key.clone()), group.clone()),
    };
    let is_allowed = !(setup.failing > 0 && dice.permille(30));
    let chain = dice.between(0, setup.chains);
    let body = Body { n: nonce, k: key.clone(), g: group.clone(), c: chain, seen: None };
    let kind = if is_allowed { "sent" } else { REFUSED };
    let event = Event::json(kind, &body).expect("a body has JSON");
    // A group is found only with the key, and only by subscriptions that look for one.
    (event, Spec { to, key, group, chain, depth: 0, id: None, is_allowed })
}

/// The name of a variant, and a little of what is in it.
fn short(value: &impl std::fmt::Debug) -> String {
    let mut text = format!("{value:?}");
    if text.len() > 200 {
        let mut end = 200;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text
}

thread_local! {
    /// Where the last panic of this thread was.
    static PLACE: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

pub(crate) fn panicked(info: &std::panic::PanicHookInfo<'_>) {
    let place = info.location().map_or_else(String::new, ToString::to_string);
    PLACE.with_borrow_mut(|last| *last = place);
}

/// Runs one world to its end, or to the first thing that does not hold.
#[must_use]
pub fn run(options: &Options) -> Verdict {
    #[cfg(feature = "mutations")]
    let _switch = Mutation::switch(options.mutation);
    let world = World::new(options);
    let steps = if options.steps == 0 { STEPS } else { options.steps };
    if options.trace {
        println!("{:#?}", world.setup);
    }
    let ran = catch_unwind(AssertUnwindSafe(|| world.run(steps)));
    if let Err(panic) = ran {
        let text = evener_actor::context::panic_text(&*panic);
        let place = PLACE.with_borrow(Clone::clone);
        world.fail("nothing panics", format!("{text} {place}"));
    }
    let verdict = {
        let inner = world.inner();
        let oracle = world.oracle();
        Verdict {
            seed: options.seed,
            violation: oracle.violation().cloned(),
            steps: inner.steps,
            trace: inner.trace,
            accepted: oracle.accepted() as u64,
            ended: oracle.ended,
            faults: inner.faults,
        }
    };
    world.dissolve();
    verdict
}

impl World {
    /// The world, its workers and its calls hold one another.
    fn dissolve(&self) {
        let (hosts, seats, calls, late) = {
            let mut inner = self.inner();
            (
                std::mem::take(&mut inner.hosts),
                std::mem::take(&mut inner.seats),
                std::mem::take(&mut inner.calls),
                std::mem::take(&mut inner.late),
            )
        };
        for host in &hosts {
            if let Some(life) = &host.life {
                life.is_gone.store(true, Ordering::Release);
            }
        }
        drop((calls, seats, late, hosts));
    }
}
