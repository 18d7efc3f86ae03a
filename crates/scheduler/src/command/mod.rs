//! What a step may ask for: commands, their handlers, and the completers that bring the answer back.
//!
//! A step hands out a command under a [`Tag`]. After the step, while the process still counts as
//! running, the host's handler for that [`CommandId`] gets it with a [`Completer`]. The answer, now or
//! later, from any thread, becomes a [`crate::Event::YieldComplete`] with that tag.
//!
//! # Why a late or double answer is harmless
//!
//! Each yield has a number that its process never uses again while the 32-bit count does not come
//! round; the process keeps the numbers of the yields it has out. An answer carries the number and the
//! PID. After the end of the process its generation refuses the answer; before, a number that is not out
//! (answered, cancelled, timed out) makes the delivery drop it and count it. So there is no race to
//! decide, and no flag that completers share.
//!
//! The registry is filled before the host starts and never changes after: look-ups take no lock.

#[cfg(not(loom))]
pub(crate) mod blocking;
#[cfg(not(loom))]
pub(crate) mod clock;
#[cfg(not(loom))]
pub(crate) mod process;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::process::table::ReplyTo;
use crate::process::{ProcessError, SendError, Tag};
use crate::{LocalPid, Payload};

#[cfg(not(loom))]
use crate::process::SpawnError;
#[cfg(not(loom))]
use crate::route::host::Engine;

/// The number of a command: 0 to 255 are the system's, the rest is yours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CommandId(pub u32);

impl CommandId {
    /// The first number that is not the system's.
    pub const FIRST_FREE: CommandId = CommandId(256);
}

impl fmt::Display for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A typed request with a fixed number, from [`CommandId::FIRST_FREE`] on. Handed out by
/// [`crate::StepOutput::command`] and carried out by the host's [`crate::Handler`] of that number, where there is
/// an example.
pub trait Command: Send + 'static {
    /// Its number.
    const ID: CommandId;
}

/// A command on its way from the step to its handler.
pub(crate) struct CommandRequest {
    pub(crate) id: CommandId,
    pub(crate) input: Payload,
    pub(crate) seq: u32,
}

/// A yield that is out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) seq: u32,
    pub(crate) tag: Tag,
    /// A ticker's period in nanoseconds: an answer does not end it. 0: one does.
    pub(crate) period: u64,
    /// A timer to take away when the yield ends; a ticker's is the last one armed.
    pub(crate) timer: Option<TimerKey>,
}

/// Where a timer is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey {
    pub(crate) due: u64,
    pub(crate) number: u64,
    pub(crate) worker: u16,
}

/// Why a yield has no result.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum YieldError {
    /// The host has no handler for that number.
    #[error("no handler for command {0}")]
    UnknownCommand(CommandId),
    /// The host does not allow that command.
    #[error("command {id} ({name}) is not allowed on host `{host}`")]
    NotAllowed {
        /// The command.
        id: CommandId,
        /// Its handler's name.
        name: String,
        /// The host.
        host: String,
    },
    /// The handler takes another type than it was given.
    #[error("command {id} takes {expected}, not {found}")]
    BadInput {
        /// The command.
        id: CommandId,
        /// The type that the handler takes.
        expected: &'static str,
        /// What it was given.
        found: &'static str,
    },
    /// Nothing came in time.
    #[error("timed out")]
    TimedOut,
    /// The request was dropped without an answer: its receiver ended, or did not care.
    #[error("the request was dropped without an answer")]
    NoReply,
    /// The handler dropped its completer.
    #[error("the handler gave no answer")]
    Abandoned,
    /// The handler panicked.
    #[error("the handler of command {id} panicked: {text}")]
    HandlerPanicked {
        /// The command.
        id: CommandId,
        /// The panic's text.
        text: Arc<str>,
    },
    /// The request could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The process could not be spawned.
    #[cfg(not(loom))]
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The request would close a circle in which each waits for the next.
    #[error("the request closes a circle: {}", chain_text(.0))]
    Cycle(Vec<LocalPid>),
    /// Too many processes wait for one another in a row.
    #[error("more than {max} processes would wait in a row: {}", chain_text(.chain))]
    ChainTooLong {
        /// The bound.
        max: usize,
        /// Who waits, first asker first.
        chain: Vec<LocalPid>,
    },
    /// What the command acts on is not there.
    #[error("{0}")]
    NotFound(String),
    /// The command's own failure.
    #[error("{0}")]
    Failed(ProcessError),
    /// The scheduler is shutting down.
    #[error("the scheduler is closing")]
    Closing,
}

fn chain_text(chain: &[LocalPid]) -> String {
    chain.iter().map(|pid| format!("{pid:?}")).collect::<Vec<_>>().join(" -> ")
}

/// The way back of one yield's result. Dropped without a word it answers [`YieldError::Abandoned`].
#[derive(Debug)]
pub struct Completer {
    to: ReplyTo,
    done: bool,
}

#[cfg(not(loom))]
impl Completer {
    pub(crate) fn new(to: ReplyTo) -> Self {
        Self { to, done: false }
    }

    /// The process that waits.
    #[must_use]
    pub fn pid(&self) -> LocalPid {
        self.to.pid
    }

    /// Gives the result. Only the first call counts; one that comes after the process ended, or after it
    /// gave up on the yield, does nothing. `true`: the result is on its way.
    pub fn complete(&mut self, result: Result<Payload, YieldError>) -> bool {
        if std::mem::replace(&mut self.done, true) {
            return false;
        }
        crate::route::complete(self.to, result)
    }

    /// Where the result goes.
    pub(crate) fn reply_to(&self) -> ReplyTo {
        self.to
    }

    /// Where the result goes, for a party that will send it itself.
    pub(crate) fn into_reply(mut self) -> ReplyTo {
        self.done = true;
        self.to
    }
}

#[cfg(not(loom))]
impl Drop for Completer {
    fn drop(&mut self) {
        // The completer of a handler that panics: the worker, who catches it, knows more to say. Any other
        // that a panic drops is abandoned like one that is dropped in peace.
        if std::thread::panicking() && HANDLED.get() == Some(self.to) {
            return;
        }
        self.complete(Err(YieldError::Abandoned));
    }
}

#[cfg(not(loom))]
thread_local! {
    /// The yield whose handler this thread is in.
    static HANDLED: std::cell::Cell<Option<ReplyTo>> = const { std::cell::Cell::new(None) };
}

/// What a handler may know and do besides.
#[cfg(not(loom))]
pub struct HandlerContext<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) worker: &'a crate::worker::Worker,
    pub(crate) pid: LocalPid,
    pub(crate) id: CommandId,
}

#[cfg(not(loom))]
impl HandlerContext<'_> {
    /// The process that asked.
    #[must_use]
    pub fn pid(&self) -> crate::Pid {
        crate::Pid::new(0, self.engine.hub.id, self.pid)
    }

    /// The command's number.
    #[must_use]
    pub fn id(&self) -> CommandId {
        self.id
    }

    /// The name of the host.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.engine.name
    }

    /// The input as a `T`, or the error that says what was expected.
    ///
    /// # Errors
    /// [`YieldError::BadInput`].
    pub fn input<T: Send + 'static>(&self, input: Payload) -> Result<T, YieldError> {
        input.take::<T>().map_err(|other| YieldError::BadInput {
            id: self.id,
            expected: std::any::type_name::<T>(),
            found: other.type_name(),
        })
    }
}

/// Carries out commands of one number. It runs on the worker of the process that asked, after its step:
/// what takes long belongs elsewhere, with the completer.
///
/// ```
/// use evener_scheduler::{
///     Actor, AskError, Command, CommandId, Context, Event, Handle, Payload, Reply, Scheduler, Tag,
/// };
/// use std::time::Duration;
///
/// /// What a process asks for; its number is the program's choice.
/// struct Square(u64);
/// impl Command for Square {
///     const ID: CommandId = CommandId(300);
/// }
///
/// /// Answers with squares that the host makes for it.
/// struct Squares(Option<Reply<u64>>);
/// impl Actor for Squares {
///     type Message = (u64, Reply<u64>);
///     fn handle(&mut self, (number, reply): Self::Message, cx: &mut Context<'_, Self::Message>) {
///         self.0 = Some(reply);
///         cx.command(Tag(1), Square(number));
///     }
///     fn event(&mut self, event: Event, _: &mut Context<'_, Self::Message>) {
///         if let Event::YieldComplete { tag: Tag(1), result } = event
///             && let Some(reply) = self.0.take()
///             && let Ok(square) = AskError::read(result)
///         {
///             reply.send(square);
///         }
///     }
/// }
///
/// let scheduler = Scheduler::builder()
///     .workers(1)
///     .command::<Square>("square", |cx, input, mut completer| {
///         // At once here; the completer may as well be sent to another thread and used later.
///         let square = cx.input::<Square>(input).map(|Square(number)| Payload::new(number * number));
///         completer.complete(square);
///     })
///     .start()?;
/// let squares = scheduler.spawn_actor(Squares(None))?;
/// assert_eq!(squares.ask(|reply| (12, reply), Duration::from_secs(5))?, 144);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(not(loom))]
pub trait Handler: Send + Sync + 'static {
    /// Carries the command out, or sees to it that somebody does.
    fn handle(&self, cx: &HandlerContext<'_>, input: Payload, completer: Completer);
}

#[cfg(not(loom))]
impl<F> Handler for F
where
    F: Fn(&HandlerContext<'_>, Payload, Completer) + Send + Sync + 'static,
{
    fn handle(&self, cx: &HandlerContext<'_>, input: Payload, completer: Completer) {
        self(cx, input, completer);
    }
}

/// Two handlers for one number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("command {id} has two handlers: `{first}` and `{second}`")]
pub struct DuplicateCommand {
    /// The number.
    pub id: CommandId,
    /// The name of the handler that came first.
    pub first: String,
    /// The name of the one that came second.
    pub second: String,
}

/// A handler and its name.
#[cfg(not(loom))]
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) handler: Arc<dyn Handler>,
}

#[cfg(not(loom))]
impl Entry {
    /// Runs the handler.
    ///
    /// # Errors
    /// It panicked; if it had not completed before, somebody must.
    pub(crate) fn handle(
        &self,
        cx: &HandlerContext<'_>,
        input: Payload,
        completer: Completer,
    ) -> Result<(), ProcessError> {
        HANDLED.set(Some(completer.reply_to()));
        let handled = crate::process::contain(|| self.handler.handle(cx, input, completer));
        HANDLED.set(None);
        handled
    }
}

/// The handlers of a host: an array for the system's numbers, a map above.
#[cfg(not(loom))]
pub(crate) struct Registry {
    system: Vec<Option<Entry>>,
    others: HashMap<u32, Entry>,
}

#[cfg(not(loom))]
impl Registry {
    pub(crate) fn new() -> Self {
        Self { system: vec![None; CommandId::FIRST_FREE.0 as usize], others: HashMap::new() }
    }

    pub(crate) fn add(
        &mut self,
        id: CommandId,
        name: &str,
        handler: Arc<dyn Handler>,
    ) -> Result<(), DuplicateCommand> {
        if let Some(first) = self.get(id) {
            return Err(DuplicateCommand { id, first: first.name.clone(), second: name.to_owned() });
        }
        let entry = Entry { name: name.to_owned(), handler };
        match self.system.get_mut(id.0 as usize) {
            Some(place) => *place = Some(entry),
            None => {
                self.others.insert(id.0, entry);
            }
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn get(&self, id: CommandId) -> Option<&Entry> {
        match self.system.get(id.0 as usize) {
            Some(entry) => entry.as_ref(),
            None => self.others.get(&id.0),
        }
    }

    /// Drops the handlers, each contained.
    pub(crate) fn drop_contained(&mut self) {
        let system = std::mem::take(&mut self.system).into_iter().flatten();
        for entry in system.chain(std::mem::take(&mut self.others).into_values()) {
            let _ = crate::process::contain(|| drop(entry));
        }
    }

    /// The system's own handlers.
    pub(crate) fn with_builtins() -> Self {
        let mut registry = Self::new();
        for add in [process::add_to, clock::add_to, blocking::add_to] {
            add(&mut registry).expect("the system's numbers are distinct");
        }
        registry
    }
}
