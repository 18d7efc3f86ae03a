//! Supervisors: processes that start others and start them again when they crash.
//!
//! A [`Supervisor`] monitors its children. A child that ends is started again if its [`Restart`] rule says
//! so, after a wait that its [`RestartPolicy`] gives. Each child has an attempt count of its own, so one that
//! cannot live costs its siblings nothing. A failed `init`, a panic in the factory and a refused spawn are
//! failed attempts like a crash; so is a name that is taken, unless its owner is on its way out: then the
//! child is started when that one has ended ([`SupervisorEvent::WaitsForName`]).
//!
//! | child | ends | then |
//! | --- | --- | --- |
//! | permanent | in any way | restarted |
//! | transient | by a crash | restarted |
//! | transient | well | forgotten |
//! | temporary | in any way | forgotten |
//! | any | because it was told to stop | forgotten |
//! | restarted too often | | given up: its name is free, what waited for it is dropped and counted, and the supervisor goes on ([`GiveUp::Leave`]) or fails ([`GiveUp::Escalate`]) |
//!
//! The messages that a named child had not taken, and those sent to its name meanwhile, wait for its
//! successor ([`crate::Scheduler::send_named`]); at most one incarnation exists at a time, for the next is
//! made when the end of the last has been told.
//!
//! # Where to see why
//!
//! Nothing is printed. [`Supervisor::observe`] hears of each end and restart with its reason, and of
//! [`SupervisorEvent::GaveUp`] with the number of messages that were lost; [`SupervisorHandle::children`] shows
//! where each child stands. A supervisor that escalates ends as [`ExitReason::Failed`], whose
//! [`ProcessError::source`] is a [`GaveUp`] with the child's last reason: seen by who monitors or joins it, and
//! by the host's [`crate::LifecycleHooks::on_complete`], which is the place to log the ends of all processes.
//!
//! # The end of a supervisor
//!
//! Asked to end ([`crate::Event::Cancel`]: [`crate::Scheduler::stop`], `shutdown`, or a supervisor above), it
//! asks its children to end, each with its own time, waits for all, and is done. If it must fail, it stops
//! them in the same way first. If it is killed, its children are killed. So no child outlives its supervisor.
//!
//! ```
//! # use evener_scheduler::supervisor::{ChildSpec, Restart, RestartPolicy, Supervisor};
//! # use evener_scheduler::*;
//! # use std::time::Duration;
//! struct Parrot;
//! impl Process for Parrot {
//!     fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
//!         for event in events {
//!             match event {
//!                 Event::Message(mut message) => {
//!                     let said = message.take_payload();
//!                     message.reply(said);
//!                 }
//!                 Event::Cancel(_) => out.done(()),
//!                 _ => {}
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//! let scheduler = Scheduler::builder().workers(1).start()?;
//! let family = Supervisor::new()
//!     .policy(RestartPolicy::new().initial_delay(Duration::from_millis(10)))
//!     .child(ChildSpec::new("parrot", || Parrot).name("parrot").restart(Restart::Permanent))
//!     .start(&scheduler, SpawnOptions::new())?;
//! // `start` has waited for the first round of spawns: the names are there.
//! let parrot = scheduler.lookup("parrot").ok_or("no parrot")?;
//! assert_eq!(scheduler.ask(parrot, 7_u32, None)?.take::<u32>().ok(), Some(7));
//! let children = family.children(&scheduler, Duration::from_secs(5))?;
//! assert_eq!(children[0].id, "parrot");
//! scheduler.stop(family.pid(), Duration::from_secs(5))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::command::clock::Sleep;
use crate::process::message::{Cancel, Event, ExitBy, Message};
use crate::process::{Contained, Process, ProcessError, SpawnError, SpawnOptions, StepOutput, Tag, contain};
use crate::route::names::{Hold, Names};
use crate::{
    Actor, AskError, Context, Events, ExitReason, FnActor, InitContext, LocalPid, Payload, Pid, Scheduler,
    clock,
};

/// When a child is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Restart {
    /// After every end.
    Permanent,
    /// After a crash ([`ExitReason::is_crash`]).
    #[default]
    Transient,
    /// Never.
    Temporary,
}

/// What follows when a child was restarted too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GiveUp {
    /// The supervisor stops its other children and fails with [`GaveUp`], so that whoever supervises or
    /// monitors it decides.
    #[default]
    Escalate,
    /// The child stays down and is listed as such; the others live on.
    Leave,
}

/// How long to wait before a restart, and how often to try.
///
/// The count of attempts is a child's own. It rises with each restart, and begins anew when the child has
/// run for `stable_after` before it ended.
///
/// # Source
/// Full jitter: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RestartPolicy {
    initial_delay: Duration,
    max_delay: Duration,
    factor: f64,
    jitter: f64,
    max_attempts: u32,
    stable_after: Duration,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self {
            initial_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(30),
            factor: 2.0,
            jitter: 1.0,
            max_attempts: 8,
            stable_after: Duration::from_secs(60),
        }
    }
}

impl RestartPolicy {
    /// 100 ms, doubled each time up to 30 s, full jitter, 8 attempts, stable after a minute.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The greatest wait before the first restart. Zero: no wait before any.
    #[must_use]
    pub fn initial_delay(mut self, delay: Duration) -> Self {
        self.initial_delay = delay;
        self
    }

    /// The greatest wait of all.
    #[must_use]
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = delay;
        self
    }

    /// By how much the wait grows from one attempt to the next.
    ///
    /// # Panics
    /// If it is not a number of at least 1.
    #[must_use]
    pub fn factor(mut self, factor: f64) -> Self {
        assert!(factor >= 1.0, "the factor of a restart policy is {factor}; it must be at least 1");
        self.factor = factor;
        self
    }

    /// Which part of each wait is left to chance: 0 is none, 1 (the default) is full jitter.
    ///
    /// # Panics
    /// If it is not a number from 0 to 1.
    #[must_use]
    pub fn jitter(mut self, jitter: f64) -> Self {
        assert!((0.0..=1.0).contains(&jitter), "the jitter of a restart policy is {jitter}, not 0 to 1");
        self.jitter = jitter;
        self
    }

    /// How many restarts in a row, without a stable run between them, are tried. 0: none.
    #[must_use]
    pub fn max_attempts(mut self, max: u32) -> Self {
        self.max_attempts = max;
        self
    }

    /// A child that has run for so long has proved itself: its count of attempts begins anew.
    #[must_use]
    pub fn stable_after(mut self, run: Duration) -> Self {
        self.stable_after = run;
        self
    }

    /// The wait before restart number `attempt` (the first is 1), for a `chance` from 0 (the longest wait) to
    /// 1: `initial_delay * factor^(attempt - 1)`, cut at `max_delay`, less up to the jitter's part of it.
    ///
    /// # Panics
    /// If `attempt` is 0.
    #[must_use]
    pub fn delay(&self, attempt: u32, chance: f64) -> Duration {
        assert!(attempt > 0, "attempts are counted from 1");
        let max = self.max_delay.as_secs_f64();
        let exponent = i32::try_from(attempt - 1).unwrap_or(i32::MAX);
        // Infinite for a late attempt, and no number at all for a zero that was multiplied by it.
        let grown = self.initial_delay.as_secs_f64() * self.factor.powi(exponent);
        let cut = if grown.is_nan() { 0.0 } else { grown.min(max) };
        let delay = cut * (1.0 - self.jitter * chance.clamp(0.0, 1.0));
        Duration::try_from_secs_f64(delay).map_or(self.max_delay, |delay| delay.min(self.max_delay))
    }
}

type StartFn = Box<dyn FnMut(&mut StepOutput<'_>, SpawnOptions) -> Result<Pid, SpawnError> + Send>;
type OptionsFn = Box<dyn FnMut() -> SpawnOptions + Send>;

/// A child: how it is made, and what becomes of it when it ends.
///
/// What its closures captured is dropped wherever the supervisor lets go of it: a panic in such a drop is
/// contained.
pub struct ChildSpec {
    id: String,
    start: Contained<StartFn>,
    options: Contained<OptionsFn>,
    name: Option<String>,
    restart: Restart,
    policy: Option<RestartPolicy>,
    stop_timeout: Duration,
    give_up: GiveUp,
}

impl fmt::Debug for ChildSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("restart", &self.restart)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl ChildSpec {
    /// A transient child that `make` makes, each time anew. Its `id` is unique among its siblings.
    ///
    /// `make` runs within the supervisor's step: what takes long belongs into the child's `init`. A panic in it
    /// is a failed attempt.
    #[must_use]
    pub fn new<P, F>(id: impl Into<String>, mut make: F) -> Self
    where
        P: Process,
        F: FnMut() -> P + Send + 'static,
    {
        let start = move |out: &mut StepOutput<'_>, options: SpawnOptions| {
            // Kept apart: should `make` panic, what the options hold is dropped while that unwinds.
            let options = Contained::new(options);
            let made = make();
            out.spawn(made, options.into_inner())
        };
        Self::with_start(id.into(), Box::new(start))
    }

    /// As [`Self::new`], of a typed [`Actor`]: with a name, `Handle::from_pid(scheduler.lookup(name)?)` is the
    /// handle of the present incarnation. An actor has no `init`, so method and input of [`Self::options`] are
    /// dropped; a panic in [`Actor::started`] is a crash.
    ///
    /// ```
    /// # use evener_scheduler::supervisor::{ChildSpec, Supervisor};
    /// # use evener_scheduler::*;
    /// # use std::time::Duration;
    /// struct Sum(u64);
    /// enum Ask { Add(u64), Get(Reply<u64>) }
    /// impl Actor for Sum {
    ///     type Message = Ask;
    ///     fn handle(&mut self, message: Ask, _: &mut Context<'_, Ask>) {
    ///         match message {
    ///             Ask::Add(more) => self.0 += more,
    ///             Ask::Get(reply) => reply.send(self.0),
    ///         }
    ///     }
    /// }
    /// let scheduler = Scheduler::builder().workers(1).start()?;
    /// Supervisor::new()
    ///     .child(ChildSpec::actor("sum", || Sum(0)).name("sum"))
    ///     .start(&scheduler, SpawnOptions::new())?;
    /// let sum = Handle::from_pid(scheduler.lookup("sum").ok_or("no sum")?);
    /// sum.tell(Ask::Add(5))?;
    /// assert_eq!(sum.ask(Ask::Get, Duration::from_secs(5))?, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn actor<A, F>(id: impl Into<String>, mut make: F) -> Self
    where
        A: Actor,
        F: FnMut() -> A + Send + 'static,
    {
        let start = move |out: &mut StepOutput<'_>, options: SpawnOptions| {
            let options = Contained::new(options);
            let made = make();
            Ok(out.spawn_actor(made, options.into_inner())?.pid())
        };
        Self::with_start(id.into(), Box::new(start))
    }

    /// As [`Self::actor`], of a state that `make` makes anew for each incarnation and a closure that takes its
    /// messages, as for [`Scheduler::spawn_fn`]. Each incarnation has a clone of the closure.
    ///
    /// ```
    /// # use evener_scheduler::supervisor::ChildSpec;
    /// ChildSpec::fn_actor("sum", || 0, |sum, more: u64, _cx| *sum += more).name("sum");
    /// ```
    #[must_use]
    pub fn fn_actor<S, M, F>(
        id: impl Into<String>,
        mut make: impl FnMut() -> S + Send + 'static,
        act: F,
    ) -> Self
    where
        S: Send + 'static,
        M: Send + 'static,
        F: FnMut(&mut S, M, &mut Context<'_, M>) + Clone + Send + 'static,
    {
        Self::actor(id, move || FnActor::new(make(), act.clone()))
    }

    fn with_start(id: String, start: StartFn) -> Self {
        Self {
            id,
            start: Contained::new(start),
            options: Contained::new(Box::new(SpawnOptions::new)),
            name: None,
            restart: Restart::default(),
            policy: None,
            stop_timeout: Duration::from_secs(5),
            give_up: GiveUp::default(),
        }
    }

    /// The name that every incarnation has; messages sent to it wait while there is none.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Method and input of each incarnation (an actor has neither). A name in the options is the child's, unless [`Self::name`] gives
    /// one.
    #[must_use]
    pub fn options(mut self, options: impl FnMut() -> SpawnOptions + Send + 'static) -> Self {
        self.options = Contained::new(Box::new(options));
        self
    }

    /// When it is started again; after a crash by default.
    #[must_use]
    pub fn restart(mut self, restart: Restart) -> Self {
        self.restart = restart;
        self
    }

    /// Its own policy; the supervisor's by default.
    #[must_use]
    pub fn policy(mut self, policy: RestartPolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// How long it may take to end when asked to; then it is killed. 5 seconds by default.
    #[must_use]
    pub fn stop_timeout(mut self, timeout: Duration) -> Self {
        self.stop_timeout = timeout;
        self
    }

    /// What follows when it was restarted too often; the supervisor's failure by default.
    #[must_use]
    pub fn on_give_up(mut self, rule: GiveUp) -> Self {
        self.give_up = rule;
        self
    }

    fn hold(&self) -> Option<Hold> {
        match self.restart {
            Restart::Permanent => Some(Hold::Always),
            Restart::Transient => Some(Hold::OnCrash),
            Restart::Temporary => None,
        }
    }
}

/// Where a child stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildState {
    /// It runs (its `init` may not have ended yet).
    Running(Pid),
    /// It will be started again after a wait.
    Waiting,
    /// It was asked to stop and has not ended yet.
    Stopping(Pid),
    /// It was restarted too often, and its rule is [`GiveUp::Leave`] (or the supervisor is just ending). It is
    /// down for good, and listed till it is stopped, or a new child of its id is added: either forgets it.
    GivenUp,
}

/// A child as of now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChildInfo {
    /// Its id.
    pub id: String,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Where it stands.
    pub state: ChildState,
    /// Restarts in a row, without a stable run. The one that a child waits for is counted already.
    pub attempts: u32,
    /// Restarts in all, counted like `attempts`: also those that failed to start it. The first start is none.
    pub restarts: u64,
}

/// What a supervisor tells its observer; see [`Supervisor::observe`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SupervisorEvent {
    /// A child was spawned.
    Started {
        /// Its id.
        id: String,
        /// The new incarnation.
        pid: Pid,
    },
    /// An attempt to start a child failed: refused, a panic in its factory, or a failed `init`. Nothing of it
    /// is left.
    StartFailed {
        /// Its id.
        id: String,
        /// Why.
        error: ProcessError,
    },
    /// A child ended that had begun.
    Exited {
        /// Its id.
        id: String,
        /// The incarnation.
        pid: Pid,
        /// Why.
        reason: Arc<ExitReason>,
    },
    /// The name of a child to be started still belongs to a process on its way out, such as the child of a
    /// supervisor that was killed. The start waits for that one's end, and counts as no further attempt.
    WaitsForName {
        /// Its id.
        id: String,
        /// The name.
        name: String,
        /// Who still has it: the process, or the supervisor that holds it for a successor.
        owner: Pid,
    },
    /// A child will be started again.
    RestartsIn {
        /// Its id.
        id: String,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The wait.
        delay: Duration,
    },
    /// A child was restarted too often.
    GaveUp {
        /// Its id.
        id: String,
        /// After so many attempts in a row.
        attempts: u32,
        /// Messages dropped that had waited for a successor.
        dropped: usize,
    },
    /// A child is no longer supervised: it was stopped, or ended as its rule allows.
    Forgotten {
        /// Its id.
        id: String,
    },
}

/// The failure of a supervisor whose child could not be kept alive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("child `{id}` was given up after {attempts} restarts in a row; the last time it {why}")]
pub struct GaveUp {
    /// The child.
    pub id: String,
    /// Restarts in a row.
    pub attempts: u32,
    /// How it ended the last time.
    pub why: String,
}

/// Why a supervisor did not do what it was asked for. Nothing changed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SuperviseError {
    /// A child of that id is there already and not given up. (One that was given up makes room for a new one.)
    #[error("there is a child `{0}` already")]
    Duplicate(String),
    /// There is no child of that id.
    #[error("there is no child `{0}`")]
    Unknown(String),
    /// The supervisor is ending.
    #[error("the supervisor is stopping its children")]
    Stopping,
    /// The new child could not be spawned; it is not supervised.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The factory of the new child panicked; it is not supervised.
    #[error("the factory of the child panicked: {0}")]
    Factory(ProcessError),
    /// The supervisor did not answer, for this reason.
    #[error("asking the supervisor: {0}")]
    Ask(AskError),
}

impl From<AskError> for SuperviseError {
    fn from(error: AskError) -> Self {
        SuperviseError::Ask(error)
    }
}

/// Request to a supervisor: one more child. The answer is a `Result<Pid, SuperviseError>`.
#[derive(Debug)]
pub struct AddChild(pub ChildSpec);

/// Request to a supervisor: stop the child of this id and forget it. The answer, when it has ended, is a
/// `Result<(), SuperviseError>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopChild(pub String);

/// Request to a supervisor: its children. The answer is a `Vec<ChildInfo>`, in the order of adding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListChildren;

/// The address of a supervisor: 12 bytes, free to copy, harmless when the supervisor is gone.
///
/// Its methods wait, so they are for threads that are no workers; a process sends the requests by
/// [`StepOutput::ask`] to [`Self::pid`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SupervisorHandle {
    pid: Pid,
}

impl SupervisorHandle {
    /// The handle of a supervisor whose PID is known some other way. If it is none, requests stay unanswered.
    #[must_use]
    pub fn from_pid(pid: Pid) -> Self {
        Self { pid }
    }

    /// The supervisor's address.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Adds a child and starts it; its `init` runs later. Gives its PID. A child of the same id that was given
    /// up is forgotten first, also if the new one then cannot be spawned.
    ///
    /// # Errors
    /// [`SuperviseError`]; the child is not supervised.
    pub fn add(
        &self,
        scheduler: &Scheduler,
        child: ChildSpec,
        timeout: Duration,
    ) -> Result<Pid, SuperviseError> {
        self.request::<_, Result<Pid, SuperviseError>>(scheduler, AddChild(child), timeout)?
    }

    /// Stops a child, waits for its end, and forgets it.
    ///
    /// # Errors
    /// [`SuperviseError`]. After a time-out it is being stopped all the same.
    pub fn stop_child(
        &self,
        scheduler: &Scheduler,
        id: &str,
        timeout: Duration,
    ) -> Result<(), SuperviseError> {
        self.request::<_, Result<(), SuperviseError>>(scheduler, StopChild(id.to_owned()), timeout)?
    }

    /// The children as of now, in the order of adding. For one that asks right after the supervisor was spawned
    /// by other means than [`Supervisor::start`] it is a barrier too: the answer comes after the first attempt
    /// to start each child.
    ///
    /// # Errors
    /// [`SuperviseError::Ask`].
    pub fn children(
        &self,
        scheduler: &Scheduler,
        timeout: Duration,
    ) -> Result<Vec<ChildInfo>, SuperviseError> {
        self.request(scheduler, ListChildren, timeout)
    }

    fn request<T: Send + 'static, R: Send + 'static>(
        &self,
        scheduler: &Scheduler,
        request: T,
        timeout: Duration,
    ) -> Result<R, SuperviseError> {
        let answer = scheduler.ask(self.pid, request, Some(timeout))?;
        Ok(AskError::read(Ok(answer))?)
    }
}

/// Is told of what happens to children.
type Observer = Box<dyn FnMut(&SupervisorEvent) + Send>;

/// A process that keeps others alive; see the module.
pub struct Supervisor {
    policy: RestartPolicy,
    first: Vec<ChildSpec>,
    observer: Option<Contained<Observer>>,
    random: Option<u64>,
    /// By their keys, which are the tags of their waits too.
    children: BTreeMap<u64, Child>,
    by_pid: HashMap<LocalPid, u64>,
    by_id: HashMap<String, u64>,
    last_key: u64,
    me: Option<Pid>,
    names: Option<Arc<Names>>,
    /// Set once it is ending: what it will have failed with.
    stopping: Option<Option<ProcessError>>,
}

struct Child {
    spec: ChildSpec,
    /// As the present or last incarnation was registered.
    name: Option<String>,
    state: ChildState,
    started: Option<Instant>,
    attempts: u32,
    restarts: u64,
    /// Who waits for its stop.
    stoppers: Vec<Message>,
}

/// How an attempt to start a child failed at once.
enum Failure {
    Spawn(SpawnError),
    Factory(ProcessError),
}

impl From<Failure> for SuperviseError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Spawn(error) => SuperviseError::Spawn(error),
            Failure::Factory(error) => SuperviseError::Factory(error),
        }
    }
}

impl From<Failure> for ProcessError {
    fn from(failure: Failure) -> Self {
        SuperviseError::from(failure).into()
    }
}

impl Default for Supervisor {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Supervisor({} children)", self.first.len() + self.children.len())
    }
}

impl Supervisor {
    /// A supervisor without children yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            policy: RestartPolicy::default(),
            first: Vec::new(),
            observer: None,
            random: None,
            children: BTreeMap::new(),
            by_pid: HashMap::new(),
            by_id: HashMap::new(),
            last_key: 0,
            me: None,
            names: None,
            stopping: None,
        }
    }

    /// The policy of children without one of their own.
    #[must_use]
    pub fn policy(mut self, policy: RestartPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// A child to start with; they start in the order of adding. Two of one id fail the supervisor's `init`.
    #[must_use]
    pub fn child(mut self, child: ChildSpec) -> Self {
        self.first.push(child);
        self
    }

    /// Hears of all that happens to the children, within the supervisor's step. A panic in it is contained.
    #[must_use]
    pub fn observe(mut self, observer: impl FnMut(&SupervisorEvent) + Send + 'static) -> Self {
        self.observer = Some(Contained::new(Box::new(observer)));
        self
    }

    /// The seed of the jitter. Without one it comes from the supervisor's PID and the time.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.random = Some(seed);
        self
    }

    /// Spawns it, and waits till it has tried once to start each of its children: those that could be spawned
    /// have their names, so that [`Scheduler::lookup`] and [`Scheduler::send_named`] find them; their `init`
    /// may not have ended yet. A child that could not be spawned is no error here: it is tried again or given
    /// up by its rule, see [`SupervisorHandle::children`]. The factories run meanwhile: one that does not end
    /// is waited for.
    ///
    /// # Errors
    /// [`SpawnError::Init`] when two children have one id, else as for [`Scheduler::spawn_wait`]:
    /// [`SpawnError::OnWorker`] from a process, which spawns a supervisor by [`StepOutput::spawn`] and asks it
    /// for [`ListChildren`] if it must know that they are there.
    pub fn start(self, scheduler: &Scheduler, options: SpawnOptions) -> Result<SupervisorHandle, SpawnError> {
        let pid = scheduler.spawn_wait(self, options)?;
        // The answer comes from the step that starts the children, or a later one; or there is none, because
        // the supervisor has ended. Either way the round is over.
        let _ = scheduler.ask(pid, ListChildren, None);
        Ok(SupervisorHandle { pid })
    }

    fn me(&self) -> Pid {
        self.me.expect("set by `init`, which comes first")
    }

    fn tell(&mut self, event: &SupervisorEvent) {
        if let Some(observer) = &mut self.observer {
            // A panic in it is its own affair; the panic hook has shown it.
            let _ = contain(|| observer(event));
        }
    }

    /// From 0 up to 1 (SplitMix64; Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
    fn chance(&mut self) -> f64 {
        let state = self.random.get_or_insert(0);
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = *state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    }

    // ---------------------------------------------------------------- starting

    fn adopt(&mut self, spec: ChildSpec) -> u64 {
        self.last_key += 1;
        let name = spec.name.clone();
        let child = Child {
            spec,
            name,
            state: ChildState::Waiting,
            started: None,
            attempts: 0,
            restarts: 0,
            stoppers: Vec::new(),
        };
        self.by_id.insert(child.spec.id.clone(), self.last_key);
        self.children.insert(self.last_key, child);
        self.last_key
    }

    fn start_child(&mut self, key: u64, out: &mut StepOutput<'_>) -> Result<Pid, Failure> {
        let child = self.children.get_mut(&key).expect("only children are started");
        let spec = &mut child.spec;
        let hold = spec.hold();
        let mut name = spec.name.clone();
        let started = contain(|| {
            let mut options = (spec.options)().monitored();
            if let Some(hold) = hold {
                options = options.supervised(hold);
            }
            match &name {
                Some(name) => options.name = Some(name.clone()),
                None => name.clone_from(&options.name),
            }
            (spec.start)(out, options)
        });
        let pid = match started {
            Ok(Ok(pid)) => pid,
            Ok(Err(error)) => return Err(Failure::Spawn(error)),
            Err(error) => return Err(Failure::Factory(error)),
        };
        if child.name != name {
            // Options that name each incarnation differently: nobody will take what waits for the old one.
            if let (Some(names), Some(old), Some(me)) = (&self.names, &child.name, self.me) {
                names.give_up(old, me);
            }
        }
        child.name = name;
        child.state = ChildState::Running(pid);
        child.started = Some(out.now());
        let id = child.spec.id.clone();
        self.by_pid.insert(pid.local(), key);
        self.tell(&SupervisorEvent::Started { id, pid });
        Ok(pid)
    }

    /// Starts a child; a failure counts as an attempt.
    fn try_start(&mut self, key: u64, out: &mut StepOutput<'_>) {
        match self.start_child(key, out) {
            Ok(_) => {}
            Err(Failure::Spawn(SpawnError::Closing)) => {
                // The host ends: no child will ever start again.
                self.begin_stop(None, None, out);
            }
            Err(Failure::Spawn(SpawnError::NameTaken { name, owner })) if self.awaits(key, &name, out) => {
                let id = self.children[&key].spec.id.clone();
                self.tell(&SupervisorEvent::WaitsForName { id, name, owner });
            }
            Err(failure) => {
                let error = ProcessError::from(failure);
                let why = format!("could not be started: {error}");
                let id = self.children[&key].spec.id.clone();
                self.tell(&SupervisorEvent::StartFailed { id, error });
                self.restart_later(key, why, out);
            }
        }
    }

    /// Waits for the name, if who has it is on its way out: for the end of a wait, as after a failed attempt.
    /// `false`: its owner is alive and well, and nobody can say for how long.
    fn awaits(&self, key: u64, name: &str, out: &mut StepOutput<'_>) -> bool {
        self.names.as_ref().is_some_and(|names| names.await_release(name, || out.begin_ask(Tag(key), None)))
    }

    /// Waits for the next attempt, or gives up.
    fn restart_later(&mut self, key: u64, why: String, out: &mut StepOutput<'_>) {
        let chance = self.chance();
        let default = self.policy;
        let child = self.children.get_mut(&key).expect("only children are restarted");
        let policy = child.spec.policy.unwrap_or(default);
        if child.attempts >= policy.max_attempts {
            return self.give_up(key, why, out);
        }
        child.attempts += 1;
        child.restarts += 1;
        child.state = ChildState::Waiting;
        let (id, attempt) = (child.spec.id.clone(), child.attempts);
        let delay = policy.delay(attempt, chance);
        out.command(Tag(key), Sleep(delay));
        self.tell(&SupervisorEvent::RestartsIn { id, attempt, delay });
    }

    fn give_up(&mut self, key: u64, why: String, out: &mut StepOutput<'_>) {
        let dropped = self.free_name(key);
        let child = self.children.get_mut(&key).expect("only children are given up");
        child.state = ChildState::GivenUp;
        let (id, attempts, rule) = (child.spec.id.clone(), child.attempts, child.spec.give_up);
        self.tell(&SupervisorEvent::GaveUp { id: id.clone(), attempts, dropped });
        if rule == GiveUp::Escalate {
            self.begin_stop(Some(GaveUp { id, attempts, why }.into()), None, out);
        }
    }

    /// No successor will come: the child's name is free again. Gives the number of messages dropped.
    fn free_name(&self, key: u64) -> usize {
        match (&self.names, &self.children[&key].name) {
            (Some(names), Some(name)) => names.give_up(name, self.me()),
            _ => 0,
        }
    }

    fn remove(&mut self, key: u64) -> Option<Child> {
        let child = self.children.remove(&key)?;
        self.by_id.remove(&child.spec.id);
        Some(child)
    }

    fn forget(&mut self, key: u64) {
        self.free_name(key);
        let Some(child) = self.remove(key) else {
            return;
        };
        for mut message in child.stoppers {
            message.reply(Payload::new(Ok::<(), SuperviseError>(())));
        }
        self.tell(&SupervisorEvent::Forgotten { id: child.spec.id });
    }

    // ---------------------------------------------------------------- ending

    fn child_ended(&mut self, key: u64, pid: Pid, reason: Arc<ExitReason>, out: &mut StepOutput<'_>) {
        let stopping = self.stopping.is_some();
        let default = self.policy;
        let child = self.children.get_mut(&key).expect("`by_pid` names children");
        let id = child.spec.id.clone();
        let was_told = matches!(child.state, ChildState::Stopping(_));
        let ran = child.started.take().map(|since| out.now().saturating_duration_since(since));
        let again = match child.spec.restart {
            Restart::Permanent => true,
            Restart::Transient => reason.is_crash(),
            Restart::Temporary => false,
        };
        let failed_start = match &*reason {
            ExitReason::InitFailed(error) => Some(error.clone()),
            _ => None,
        };
        let policy = child.spec.policy.unwrap_or(default);
        if failed_start.is_none() && ran.is_some_and(|ran| ran >= policy.stable_after) {
            child.attempts = 0;
        }
        let why = reason.to_string();
        match failed_start {
            Some(error) => self.tell(&SupervisorEvent::StartFailed { id, error }),
            None => self.tell(&SupervisorEvent::Exited { id, pid, reason }),
        }
        if stopping || was_told || !again {
            self.forget(key);
        } else {
            self.restart_later(key, why, out);
        }
    }

    /// Asks a child to end; one that does not run is forgotten at once.
    fn stop_child(&mut self, key: u64, limit: Option<Duration>, out: &mut StepOutput<'_>) {
        let child = self.children.get_mut(&key).expect("only children are stopped");
        match child.state {
            ChildState::Running(pid) => {
                child.state = ChildState::Stopping(pid);
                let time = limit.map_or(child.spec.stop_timeout, |limit| limit.min(child.spec.stop_timeout));
                // If it has ended already, word of it is on its way.
                let _ = out.cancel(pid, "stopped by its supervisor", Some(time));
            }
            ChildState::Stopping(_) => {}
            ChildState::Waiting | ChildState::GivenUp => {
                out.cancel_yield(Tag(key));
                self.forget(key);
            }
        }
    }

    /// Stops every child, the youngest first; when all have ended, the supervisor ends with `failure`, or
    /// well.
    fn begin_stop(
        &mut self,
        failure: Option<ProcessError>,
        limit: Option<Duration>,
        out: &mut StepOutput<'_>,
    ) {
        if self.stopping.is_none() {
            self.stopping = Some(failure);
        }
        let keys: Vec<u64> = self.children.keys().rev().copied().collect();
        for key in keys {
            self.stop_child(key, limit, out);
        }
    }

    // ---------------------------------------------------------------- requests

    fn key_of(&self, id: &str) -> Option<u64> {
        self.by_id.get(id).copied()
    }

    fn add(&mut self, spec: ChildSpec, out: &mut StepOutput<'_>) -> Result<Pid, SuperviseError> {
        if self.stopping.is_some() {
            return Err(SuperviseError::Stopping);
        }
        match self.key_of(&spec.id) {
            Some(key) if self.children[&key].state == ChildState::GivenUp => self.forget(key),
            Some(_) => return Err(SuperviseError::Duplicate(spec.id)),
            None => {}
        }
        let key = self.adopt(spec);
        self.start_child(key, out).map_err(|failure| {
            drop(self.remove(key));
            failure.into()
        })
    }

    fn list(&self) -> Vec<ChildInfo> {
        let info = |child: &Child| ChildInfo {
            id: child.spec.id.clone(),
            name: child.name.clone(),
            state: child.state,
            attempts: child.attempts,
            restarts: child.restarts,
        };
        self.children.values().map(info).collect()
    }

    fn request(&mut self, mut message: Message, out: &mut StepOutput<'_>) {
        let payload = match message.take_payload().take::<AddChild>() {
            Ok(AddChild(spec)) => {
                let added = self.add(spec, out);
                message.reply(Payload::new(added));
                return;
            }
            Err(payload) => payload,
        };
        let payload = match payload.take::<StopChild>() {
            Ok(StopChild(id)) => {
                match self.key_of(&id) {
                    Some(key) => {
                        self.children.get_mut(&key).expect("just found").stoppers.push(message);
                        self.stop_child(key, None, out);
                    }
                    None => {
                        message.reply(Payload::new(Err::<(), _>(SuperviseError::Unknown(id))));
                    }
                }
                return;
            }
            Err(payload) => payload,
        };
        if payload.is::<ListChildren>() {
            message.reply(Payload::new(self.list()));
        }
        // Anything else is none of its business; a request is answered by its drop. So is a drop that panics.
        let _ = contain(|| drop(payload));
    }
}

impl Process for Supervisor {
    fn init(&mut self, cx: &InitContext, _: &str, _: Payload) -> Result<(), ProcessError> {
        let mut ids = HashSet::new();
        for child in &self.first {
            if !ids.insert(&child.id) {
                return Err(SuperviseError::Duplicate(child.id.clone()).into());
            }
        }
        self.me = Some(cx.pid());
        let local = cx.pid().local();
        let chance = u64::from(local.slot()) << 32 ^ u64::from(local.generation()) ^ clock::now_nanos() << 8;
        self.random.get_or_insert(chance);
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        if self.names.is_none() {
            self.names = Some(Arc::clone(&out.worker.engine().names));
        }
        for spec in std::mem::take(&mut self.first) {
            let key = self.adopt(spec);
            // One before it may have made the supervisor give up.
            if self.stopping.is_some() {
                self.forget(key);
            } else {
                self.try_start(key, out);
            }
        }
        for event in events.by_ref() {
            match event {
                Event::Message(message) => self.request(message, out),
                Event::Exit(exit) if exit.by == ExitBy::Monitor => {
                    if let Some(key) = self.by_pid.remove(&exit.pid.local()) {
                        self.child_ended(key, exit.pid, exit.reason, out);
                    }
                }
                // A failed `init` comes by the monitor too; a link is somebody else's wish.
                Event::Exit(_) => {}
                Event::YieldComplete { tag: Tag(key), result } => {
                    let waits =
                        self.children.get(&key).is_some_and(|child| child.state == ChildState::Waiting);
                    match result {
                        Ok(_) if waits => self.try_start(key, out),
                        Ok(_) => {}
                        // The host does not allow the clock: without a wait a restart would be a hot loop.
                        Err(error) if waits => self.begin_stop(Some(error.into()), None, out),
                        Err(_) => {}
                    }
                }
                Event::Cancel(Cancel { deadline, .. }) => {
                    // A tenth of the time is for the supervisor's own end.
                    let limit = deadline.map(|end| end.saturating_duration_since(clock::now()) / 10 * 9);
                    self.begin_stop(None, limit, out);
                }
            }
        }
        match &mut self.stopping {
            Some(failure) if self.children.is_empty() => match failure.take() {
                Some(failure) => return Err(failure),
                None => out.done(()),
            },
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self) {
        // On a good way out there are no children left. What comes here besides is a kill, or a fault of
        // ours: no child outlives its supervisor, and no name waits for a successor that nobody will make.
        for child in self.children.values() {
            if let (Some(names), Some(name), Some(me)) = (&self.names, &child.name, self.me) {
                names.orphan(name, me);
            }
            if let ChildState::Running(pid) | ChildState::Stopping(pid) = child.state {
                crate::route::links::kill(pid.local(), "its supervisor ended".into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> RestartPolicy {
        RestartPolicy::new()
            .initial_delay(Duration::from_millis(100))
            .max_delay(Duration::from_secs(2))
            .factor(3.0)
    }

    #[test]
    fn waits_grow_by_the_factor_up_to_the_greatest() {
        let policy = policy().jitter(0.0);
        let waits: Vec<u128> = (1..=5).map(|attempt| policy.delay(attempt, 0.7).as_millis()).collect();
        assert_eq!(waits, [100, 300, 900, 2000, 2000]);
    }

    #[test]
    fn jitter_takes_away_its_part_and_no_more() {
        for (jitter, chance, millis) in [(1.0, 0.0, 300), (1.0, 0.5, 150), (1.0, 1.0, 0), (0.5, 1.0, 150)] {
            assert_eq!(policy().jitter(jitter).delay(2, chance).as_millis(), millis, "{jitter} {chance}");
        }
    }

    #[test]
    fn no_attempt_is_too_late_to_have_a_wait() {
        for attempt in [100, 10_000, u32::MAX] {
            assert_eq!(policy().jitter(0.0).delay(attempt, 0.0), Duration::from_secs(2));
            assert_eq!(policy().initial_delay(Duration::ZERO).delay(attempt, 0.0), Duration::ZERO);
            assert_eq!(policy().max_delay(Duration::MAX).jitter(0.0).delay(attempt, 0.0), Duration::MAX);
        }
    }

    #[test]
    fn a_seed_gives_the_same_chances_again() {
        let draw = |seed| {
            let mut supervisor = Supervisor::new().seed(seed);
            (0..100).map(|_| supervisor.chance()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!(draw(7).iter().all(|chance| (0.0..1.0).contains(chance)));
    }

    #[test]
    #[should_panic(expected = "must be at least 1")]
    fn a_factor_below_one_is_refused() {
        let _ = RestartPolicy::new().factor(f64::NAN);
    }

    #[test]
    #[should_panic(expected = "not 0 to 1")]
    fn a_jitter_beyond_the_whole_is_refused() {
        let _ = RestartPolicy::new().jitter(1.5);
    }
}
