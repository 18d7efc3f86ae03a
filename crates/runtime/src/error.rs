//! What a caller may be told.

use evener_actor::id::{ActorName, NameError};
use evener_actor::policy::PolicyError;
use evener_store::StoreError;

use crate::flow::ingress::IngressError;
use crate::upkeep::cron::CronError;

/// Why an append was not accepted. Nothing of it is there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The event cannot come in. Change it.
    #[error("event {index}: {error}")]
    Event {
        /// Which of the events, from 0.
        index: usize,
        /// Why.
        #[source]
        error: IngressError,
    },
    /// No such actor. Define it first.
    #[error("no actor `{0}` is known")]
    NoActor(ActorName),
    /// A name that is none.
    #[error("{0}")]
    Name(#[from] NameError),
    /// Under its id there is another event, within the window in which ids are known. The other events of the
    /// call are there.
    #[error("event {index}: another event with its id is event {seq}")]
    Conflict {
        /// Which of the events, from 0.
        index: usize,
        /// The place of the other one.
        seq: evener_actor::id::Seq,
    },
    /// The store did not take it. If it is away or busy, try again.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The runtime stops.
    #[error("the runtime is stopping")]
    Stopping,
}

/// Why a runtime does not start, or does not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The store.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// A definition makes no sense.
    #[error("actor `{actor}`: {error}")]
    Definition {
        /// Which.
        actor: ActorName,
        /// Why.
        #[source]
        error: PolicyError,
    },
    /// Two actors of one name.
    #[error("two actors have the name `{0}`")]
    TwoActors(ActorName),
    /// No such actor.
    #[error("no actor `{0}` is known")]
    NoActor(ActorName),
    /// A name that is none.
    #[error("{0}")]
    Name(#[from] NameError),
    /// A schedule that is none.
    #[error("{0}")]
    Schedule(#[from] CronError),
    /// It cannot be stored.
    #[error("{0}")]
    Refused(String),
    /// Events still wait, and the time is up.
    #[error("events still wait after {0:?}")]
    StillWaiting(std::time::Duration),
    /// A setting makes no sense.
    #[error("{0}")]
    Config(String),
    /// The runtime stops.
    #[error("the runtime is stopping")]
    Stopping,
}
