//! What is scheduled: processes, their turns, their events.
//!
//! # Ends
//!
//! Every end takes the same steps in the same order, on the worker that has claimed the process
//! (`RUNNING`), never on the killer's thread and never under a lock:
//!
//! 1. `close`, except where the table says no;
//! 2. the word goes to the next generation: from here on senders get [`SendError::Closed`];
//! 3. the body is dropped;
//! 4. messages not taken are dropped and counted, or kept for the successor of a supervised name; if they are
//!    very many, in parts between the turns of others, and the steps that follow wait for the last part;
//! 5. yields still out are cancelled, their timers taken away; who waits for the result gets it;
//! 6. the name is free again (or held for the successor);
//! 7. the `on_complete` hook;
//! 8. monitors, then links, hear of it;
//! 9. the slot goes to a free list.
//!
//! Which ends there are, whether `close` runs, and the reason that is seen: the table at [`ExitReason`].
//!
//! User code that may panic is contained everywhere: `init`, `step`, `close`, hooks, handlers, and the
//! drop of body, messages, errors, results and panic payloads. A panic in `close` turns `Normal` into
//! `Panicked`; elsewhere the first reason stays. With `panic = "abort"` none of this can hold, so the
//! crate refuses to build.

pub(crate) mod budget;
pub(crate) mod event_queue;
#[cfg(not(loom))]
pub(crate) mod message;
pub(crate) mod payload;
pub(crate) mod pending;
pub(crate) mod pid;
pub(crate) mod slot;
#[cfg(not(loom))]
mod spawn;
pub(crate) mod table;
#[cfg(not(loom))]
mod turn;

#[cfg(not(loom))]
pub(crate) use spawn::*;
#[cfg(not(loom))]
pub use spawn::{SpawnError, SpawnOptions};
#[cfg(not(loom))]
pub(crate) use turn::*;
#[cfg(not(loom))]
pub use turn::{Events, ResetError, StepOutput};

use std::fmt;
use std::sync::Arc;

use crate::{Payload, Pid};

#[cfg(loom)]
pub(crate) struct Turn<'a>(std::marker::PhantomData<&'a ()>);

#[cfg(panic = "abort")]
compile_error!(
    "evener-scheduler contains the panics of processes; build it with panic = \"unwind\". \
     With \"abort\" one process's panic would end the program."
);

/// A state machine that the scheduler steps: the unit of scheduling.
///
/// It is known by a [`Pid`], shares nothing, and hears of the world by events. One thread at a time is
/// within its methods.
///
/// A process is asked to end by [`crate::Event::Cancel`]: by [`crate::Scheduler::shutdown`] and
/// [`crate::Scheduler::stop`], by its supervisor. Nothing ends it for that alone: one that does not answer with
/// [`StepOutput::done`], at once or when it has finished its work, is ended by force at the deadline.
///
/// ```
/// use evener_scheduler::{Event, Events, Payload, Process, ProcessError, Scheduler, SpawnOptions, StepOutput};
/// use std::time::Duration;
///
/// struct Sum(u64);
///
/// impl Process for Sum {
///     fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
///         for event in events {
///             match event {
///                 Event::Message(mut message) => match message.take_payload().take::<u64>() {
///                     Ok(more) => {
///                         self.0 += more;
///                         message.reply(Payload::new(self.0));
///                     }
///                     Err(other) => return Err(ProcessError::new(format_args!("a {}", other.type_name()))),
///                 },
///                 Event::Cancel(_) => out.done(self.0),
///                 // Results of yields and ends of others, which this one never asks for.
///                 _ => {}
///             }
///         }
///         Ok(())
///     }
/// }
///
/// let scheduler = Scheduler::builder().workers(1).start()?;
/// let sum = scheduler.spawn(Sum(40), SpawnOptions::new())?;
/// assert_eq!(scheduler.ask(sum, 2_u64, None)?.take::<u64>().ok(), Some(42));
/// assert_eq!(scheduler.shutdown(Duration::from_secs(5)).finished, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `Process`",
    note = "an `Actor` is spawned by `spawn_actor`, and supervised by `ChildSpec::actor`",
    note = "a closure is spawned by `spawn_fn` or `spawn_once`, and supervised by `ChildSpec::fn_actor`"
)]
pub trait Process: Send + 'static {
    /// The entry points that `spawn` accepts by name. Empty (the default): any name is passed on to
    /// `init`, which may refuse it.
    #[must_use]
    fn methods() -> &'static [&'static str]
    where
        Self: Sized,
    {
        &[]
    }

    /// The first turn, on a worker. Messages sent meanwhile wait.
    ///
    /// # Errors
    /// An error (or a panic) ends the process: it is told to the spawner and to monitors, `close` does
    /// not run, nothing stays registered.
    fn init(&mut self, cx: &InitContext, method: &str, input: Payload) -> Result<(), ProcessError> {
        let _ = (cx, method, input);
        Ok(())
    }

    /// One turn: take events, hand out yields, say how it goes on.
    ///
    /// Without a status the process is idle till the next event. Events not taken stay queued, and the
    /// process stays ready.
    ///
    /// # Errors
    /// An error (or a panic) ends the process with that failure.
    fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError>;

    /// The last call, exactly once on every way out but a failed `init`; see the table at [`ExitReason`].
    fn close(&mut self) {}
}

#[cfg(loom)]
pub struct Events<'a>(std::marker::PhantomData<&'a ()>);
#[cfg(loom)]
pub struct StepOutput<'a>(std::marker::PhantomData<&'a ()>);

impl Process for Box<dyn Process> {
    fn init(&mut self, cx: &InitContext, method: &str, input: Payload) -> Result<(), ProcessError> {
        (**self).init(cx, method, input)
    }
    fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        (**self).step(events, out)
    }
    fn close(&mut self) {
        (**self).close();
    }
}

/// What `init` may know.
#[derive(Debug, Clone)]
pub struct InitContext {
    pub(crate) pid: Pid,
    pub(crate) parent: Option<Pid>,
}

impl InitContext {
    /// The process's own address.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The process that spawned it; `None`: a thread did.
    #[must_use]
    pub fn parent(&self) -> Option<Pid> {
        self.parent
    }
}

/// A failure of a process, for people: a text, and the error it came from, if any. One pointer.
#[derive(Clone)]
pub struct ProcessError(Arc<Failure>);

struct Failure {
    text: Box<str>,
    /// Contained: whoever holds the last clone (a monitor, a supervisor) is not the one whose error it was.
    source: Option<Contained<Box<dyn std::error::Error + Send + Sync>>>,
}

/// A value of the user's that may be dropped where its panic would be somebody else's: its drop is contained.
pub(crate) struct Contained<T>(Option<T>);

impl<T> Contained<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }

    /// The value; from here on its drop is the caller's affair.
    pub(crate) fn into_inner(mut self) -> T {
        self.0.take().expect("only this and the drop take it")
    }
}

impl<T> std::ops::Deref for Contained<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is taken at its end only")
    }
}

impl<T> std::ops::DerefMut for Contained<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("it is taken at its end only")
    }
}

#[cfg(not(loom))]
impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            let _ = contain(|| drop(value));
        }
    }
}

impl ProcessError {
    /// A failure that has only a text.
    pub fn new(text: impl fmt::Display) -> Self {
        Self(Arc::new(Failure { text: text.to_string().into(), source: None }))
    }

    /// "This type has no such method", for `init`.
    #[must_use]
    pub fn unknown_method(method: &str) -> Self {
        Self::new(format_args!("unknown method `{method}`"))
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The error it came from.
    #[must_use]
    pub fn source(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.0.source.as_ref().map(|source| &***source)
    }
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Debug for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProcessError({:?})", self.text())
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for ProcessError {
    fn from(error: E) -> Self {
        let error = Contained::new(error);
        let text = error.to_string().into();
        Self(Arc::new(Failure { text, source: Some(Contained::new(Box::new(error.into_inner()))) }))
    }
}

/// Why a process ended.
///
/// | end | [`Process::close`] runs | reason seen by hooks, monitors, links |
/// | --- | --- | --- |
/// | `init` gave `Err` or panicked | no | `InitFailed` |
/// | [`StepOutput::done`] | yes | `Normal` |
/// | `step` gave `Err` | yes | `Failed` |
/// | `step` panicked (of an actor: as its `ON_PANIC` says) | yes | `Panicked` |
/// | killed while ready, blocked or idle | yes | `Killed` |
/// | killed while running | yes, after the step | `Killed` |
/// | killed before its first turn | no, if it has an `init` | `Killed` |
/// | shutdown, at the deadline | as for killed | `Shutdown` |
/// | scheduler dropped | as for killed, later, by its workers | `Shutdown` |
/// | crash of a linked partner | as for killed | `Linked` |
///
/// `close` has returned, and body and queue are dropped, before anybody hears of the end.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ExitReason {
    /// It said `Done`.
    Normal,
    /// `step` gave an error.
    Failed(ProcessError),
    /// `step` or `close` panicked, with this text.
    Panicked(Arc<str>),
    /// `init` gave an error or panicked.
    InitFailed(ProcessError),
    /// Somebody killed it, or its cancellation ran out of time.
    Killed(Arc<str>),
    /// The scheduler ended.
    Shutdown,
    /// A linked process crashed.
    Linked {
        /// Which one.
        partner: Pid,
        /// Why the first one crashed, from which the crash came along links; never itself `Linked`.
        reason: Arc<ExitReason>,
    },
    /// There was no such process any more when the monitor or link was to be set.
    NoProcess,
}

impl ExitReason {
    /// Does it take linked partners down?
    #[must_use]
    pub fn is_crash(&self) -> bool {
        !matches!(self, ExitReason::Normal | ExitReason::Shutdown)
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitReason::Normal => f.write_str("done"),
            ExitReason::Failed(error) => write!(f, "failed: {error}"),
            ExitReason::Panicked(text) => write!(f, "panicked: {text}"),
            ExitReason::InitFailed(error) => write!(f, "init failed: {error}"),
            ExitReason::Killed(why) => write!(f, "killed: {why}"),
            ExitReason::Shutdown => f.write_str("shutdown"),
            ExitReason::Linked { partner, reason } => {
                write!(f, "taken down by linked process {partner}; first cause: {reason}")
            }
            ExitReason::NoProcess => f.write_str("no such process"),
        }
    }
}

/// Chosen by the process for each yield that it hands out; it comes back with the result.
///
/// Nothing keeps two open yields from having the same tag. Then each result comes back with it, in the order in
/// which they are completed, and nothing tells them apart; [`StepOutput::cancel_yield`] gives up on one of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Tag(pub u64);

/// A stream of messages within a mailbox, known by a number; names are interned once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic(pub(crate) u32);

/// Why a message was not accepted. Nothing of it stays anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// No process ever had this PID. Check where it came from.
    #[error("no process has the PID {0}")]
    NotFound(Pid),
    /// The process has ended. Forget the PID.
    #[error("process {0} has ended")]
    Closed(Pid),
    /// The queue was reset since the producer was bound. Bind again if that is meant.
    #[error("the queue of process {0} was reset since this producer was bound")]
    Stale(Pid),
    /// The topic's budget was used up, by this message or an earlier one. The receiver has been told once, and
    /// is woken by each. All of this topic is dropped till the receiver resets its queue, however empty it is
    /// by then: trying again helps only after that. See [`crate::Budget`].
    #[error("message queue limit exceeded at process {pid}, topic {topic:?}")]
    Dropped {
        /// The receiver.
        pid: Pid,
        /// The topic that is full.
        topic: Topic,
    },
    /// The caller's cancellation came first.
    #[error("cancelled before the message was admitted")]
    Cancelled,
    /// The PID belongs to another node.
    #[error("process {0} is on another node")]
    OtherNode(Pid),
    /// The system gave no memory, or there are more than four thousand million messages in this program.
    #[error("no room for another message: out of memory, or of message numbers")]
    Exhausted,
}

impl Topic {
    /// The topic of messages that name none.
    pub const DEFAULT: Topic = Topic(0);

    /// The topic of that name. The same name gives the same topic, for as long as the program runs;
    /// names are kept for ever, so they are words of the program, not of its users.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut names = TOPICS.lock();
        if names.is_empty() {
            names.push("default".into());
        }
        let found = names.iter().position(|known| &**known == name);
        let number = found.unwrap_or_else(|| {
            names.push(name.into());
            names.len() - 1
        });
        Self(u32::try_from(number).expect("four thousand million topic names"))
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> Arc<str> {
        let names = TOPICS.lock();
        names.get(self.0 as usize).cloned().unwrap_or_else(|| "default".into())
    }
}

static TOPICS: crate::sync::fixed::Mutex<Vec<Arc<str>>> = crate::sync::fixed::Mutex::new(Vec::new());

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.name())
    }
}

/// The text of a panic payload, if it has one; for messages to people.
pub(crate) fn panic_text(payload: &(dyn std::any::Any + Send)) -> Arc<str> {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        (*text).into()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.as_str().into()
    } else {
        "a panic whose payload is no text".into()
    }
}
