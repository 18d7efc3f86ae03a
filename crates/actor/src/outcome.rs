//! What one call left behind: state changes, emits, sends, timers.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::event::{Event, Timestamp};
use crate::id::{ActorName, Group, Key, ScheduleId, StreamName};

/// The state of an instance as it is stored, and perhaps as its actor has it.
#[derive(Clone, Default)]
pub struct State {
    /// What is stored; `None`: the instance has no state yet.
    pub bytes: Option<Bytes>,
    /// The same, decoded, for the next call of the same executor; only it knows the type.
    pub decoded: Option<Arc<dyn Any + Send + Sync>>,
}

impl State {
    /// What is stored, not decoded yet.
    #[must_use]
    pub fn stored(bytes: Option<Bytes>) -> Self {
        Self { bytes, decoded: None }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// The newest state of an instance, with all outcomes that were put in order, committed or not.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// How many outcomes that changed the state stand before it, counted from when its owner took it.
    pub number: u64,
    /// The state.
    pub state: State,
}

/// What a call did with the state.
#[derive(Default)]
pub enum StateUse {
    /// Neither read (but for `peek`) nor changed.
    #[default]
    Untouched,
    /// It was read. If the head has moved since, the whole attempt is discarded and run again.
    Read {
        /// [`Head::number`] at the first use.
        basis: u64,
        /// What it became, if it was changed.
        changed: Option<State>,
    },
    /// Changed by functions of the state alone: on another head they can be run again.
    Updated {
        /// [`Head::number`] at the first use.
        basis: u64,
        /// What it became.
        changed: State,
        /// The functions.
        replay: Box<dyn Replay>,
    },
}

impl fmt::Debug for StateUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untouched => f.write_str("Untouched"),
            Self::Read { basis, changed } => {
                f.debug_struct("Read").field("basis", basis).field("changed", changed).finish()
            }
            Self::Updated { basis, changed, .. } => f
                .debug_struct("Updated")
                .field("basis", basis)
                .field("changed", changed)
                .finish_non_exhaustive(),
        }
    }
}

/// The update functions of a call that has ended, kept in its own context.
pub trait Replay: Send {
    /// Runs them on that head; `done` is called once, now or later, here or on another thread.
    fn replay(&mut self, head: Arc<Head>, done: Box<dyn FnOnce(Result<State, CallError>) + Send>);
}

impl fmt::Debug for dyn Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Replay")
    }
}

/// An event for a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emit {
    /// Where.
    pub stream: StreamName,
    /// What. Its id is given by the commit: `{origin}/{n}`.
    pub event: Event,
}

/// An event for one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tell {
    /// Which actor.
    pub actor: ActorName,
    /// Which instance.
    pub key: Key,
    /// What. Its id is given by the commit: `{origin}/{n}`.
    pub event: Event,
    /// In which group.
    pub group: Option<Group>,
    /// With which priority.
    pub priority: i32,
}

/// When a schedule fires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum When {
    /// Once, so long after the commit, by the store's clock.
    In(Duration),
    /// Once, then. A moment in the past fires at once.
    At(Timestamp),
    /// Again and again.
    Cron {
        /// Five fields, or six with seconds in front, or a word like `@daily`.
        expression: String,
        /// An IANA zone: `Europe/Vienna`.
        time_zone: String,
        /// What becomes of slots that passed while nobody was there.
        catch_up: CatchUp,
    },
}

/// What becomes of slots that passed while nobody was there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CatchUp {
    /// They are left out; the number is in the next event.
    Skip,
    /// The last of them fires; the number of the others is in its event.
    #[default]
    Once,
    /// All fire, at most 1,000.
    All,
}

/// Where a schedule's event goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Destination {
    /// Into a stream.
    Stream(StreamName),
    /// To one instance.
    Instance {
        /// Which actor.
        actor: ActorName,
        /// Which instance.
        key: Key,
    },
}

/// A change of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleChange {
    /// Set, or replaced when it is another one; the same again changes nothing.
    Set {
        /// Its name.
        id: ScheduleId,
        /// When.
        when: When,
        /// Where to.
        to: Destination,
        /// What. Its id is `{schedule}/{generation}/{slot ms}`.
        event: Box<Event>,
    },
    /// Taken away.
    Cancel {
        /// Its name.
        id: ScheduleId,
    },
}

/// What one call left behind. All of it is committed together with the end of its row, or none.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What it did with the state.
    pub state: StateUse,
    /// For streams, in order.
    pub emits: Vec<Emit>,
    /// For instances, in order.
    pub sends: Vec<Tell>,
    /// For schedules, in order.
    pub schedules: Vec<ScheduleChange>,
}

impl Outcome {
    /// How many bytes it holds, for budgets.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let state = match &self.state {
            StateUse::Read { changed: Some(state), .. } | StateUse::Updated { changed: state, .. } => {
                state.bytes.as_ref().map_or(0, Bytes::len)
            }
            StateUse::Untouched | StateUse::Read { .. } => 0,
        };
        let emits: usize = self.emits.iter().map(|emit| emit.event.bytes()).sum();
        let sends: usize = self.sends.iter().map(|send| send.event.bytes()).sum();
        state + emits + sends
    }
}

/// Why a call failed. Its event is tried again, by the actor's retry policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The actor's code said so.
    #[error("{0}")]
    Failed(String),
    /// The actor's code panicked or its engine gave up.
    #[error("panicked: {0}")]
    Panicked(String),
    /// It took longer than an attempt may.
    #[error("did not settle within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The event's data or the state is not what the actor takes.
    #[error("{what} cannot be read: {why}")]
    Unreadable {
        /// The event's data, or the state.
        what: &'static str,
        /// What the decoder says, with the path.
        why: String,
    },
    /// The state has outgrown its limit.
    #[error("the state would have {bytes} bytes, at most {bytes_max} are allowed")]
    StateTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// Something that the call left behind cannot be stored: an event too large, a schedule that never fires.
    #[error("{0}")]
    Refused(String),
    /// No such actor on this worker.
    #[error("no actor `{0}` is defined here")]
    NoActor(String),
    /// The executor let go of the call without a word.
    #[error("the executor lost the call")]
    Lost,
}
