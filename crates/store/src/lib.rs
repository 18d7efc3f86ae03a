//! The durable promises of evener, as traits, one for each table or two that belong together, and the back
//! ends that keep them.
//!
//! All calls block and take whole batches; they are made from threads that are there for it, never from a
//! scheduler's worker. What is written says by what right ([`batch::Ticket`], epochs), and the store compares
//! in the same transaction. A store takes no decisions: what is due, who is next and what follows from an
//! event comes from the runtime.
//!
//! # Promises
//! 1. A call that gives an error other than [`StoreError::Unknown`] has done nothing.
//! 2. A batch with a ticket is done exactly once, however often it is sent.
//! 3. An instance's part of a commit is done whole or not at all, and only for its owner, by its epoch and on
//!    the version it was built on.
//! 4. Each row of a queue gets its place when it is inserted, greater than every place that was answered before.
//! 5. The cost of a call depends on its batch, not on how much waits or has passed.
#![forbid(unsafe_code)]

pub mod batch;
pub mod conformance;
mod error;
pub mod instances;
pub mod letters;
mod memory;
pub mod postgres;
pub mod queues;
pub mod sqlite;
pub mod streams;
pub mod tenants;
pub mod timers;
pub mod workers;

pub use error::{Result, StoreError};
pub use instances::Instances;
pub use letters::Letters;
pub use memory::Memory;
pub use queues::Queues;
pub use streams::Streams;
pub use tenants::Tenants;
pub use timers::Timers;
pub use workers::Workers;

/// All of it.
pub trait Store: Tenants + Streams + Instances + Queues + Timers + Workers + Letters {
    /// `sqlite`, `postgres` or `memory`, for people.
    fn kind(&self) -> &'static str;
}
