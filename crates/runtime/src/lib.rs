//! The durable life of actors: from an appended event to its commit (`flow`), and what keeps that going
//! (`upkeep`).
//!
//! ```text
//! ingress -> stream -> fan-out -> queue -> drain -> dispatch -> commit
//! ```
//!
//! Nothing here knows SQL, an engine for scripts, HTTP, or whether a real scheduler or a simulation runs it:
//! it sees [`evener_store::Store`], [`evener_actor::executor::Executor`], a clock and chance.
#![forbid(unsafe_code)]

mod clock;
mod config;
mod error;
pub mod flow;
mod metrics;
#[cfg(feature = "mutations")]
pub mod mutations;
pub mod process;
pub mod upkeep;
pub mod work;
pub mod worker;

pub use clock::{Chance, Clock, Seeded, SystemClock};
pub use config::Config;
pub use error::{AppendError, Error};
pub use metrics::{Counts, Metrics};
