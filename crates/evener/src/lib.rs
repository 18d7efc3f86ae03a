//! Durable actors in one library.
//!
//! Events are appended to streams; each goes to the instances of the actors that subscribe, waits in their
//! queues, and is processed once: what a call does to its instance's state, and what it emits, sends and
//! schedules, is committed in one transaction with the end of its event. On an SQLite file, with nothing to
//! install, or on PostgreSQL with many workers.
//!
#![doc = "```no_run"]
#![doc = include_str!("../examples/counter.rs")]
#![doc = "```"]
#![forbid(unsafe_code)]

mod builder;
mod runtime;

pub use builder::{Builder, Store};
pub use runtime::{Accepted, Error, Instance, Runtime};

pub use evener_actor::actor::{Actor, Failure};
pub use evener_actor::context::{Context, Level};
pub use evener_actor::definition::{ActorDefinition, Filter, From, Path, Subscription, Target, TypePattern};
pub use evener_actor::event::{Event, Headers, StoredEvent, Timestamp};
pub use evener_actor::executor::Offer;
pub use evener_actor::executor::{Abort, Executor};
pub use evener_actor::id::QueueId;
pub use evener_actor::id::{ActorName, Group, Key, ScheduleId, Seq, StreamName, Tenant};
pub use evener_actor::outcome::{CatchUp, Destination, ScheduleChange, When};
pub use evener_actor::policy::{OnExhausted, QueueMode, QueuePolicy, RetryPolicy};
pub use evener_runtime::{AppendError, Config, Counts};
pub use evener_store::batch::{
    Appended, DeadCause, DeadLetter, Fate, InstanceView, Parked, Schedule, ScheduleAnswer,
};
pub use evener_store::{StoreError, batch};

/// The names that an actor needs.
pub mod prelude {
    pub use crate::{
        Actor, ActorDefinition, Context, Event, Failure, Path, QueueMode, QueuePolicy, RetryPolicy, Runtime,
        Subscription, When,
    };
}
