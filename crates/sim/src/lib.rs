//! The durable life of actors in a simulated world: workers that crash, stand still and lose answers, on one
//! thread, from a seed that replays it.
//!
//! The runtime is the one of the program; its store, clock, chance, executors and the place where drains live are
//! the world's ([`run`]). After every action an oracle says whether all that was promised holds
//! (`invariants.rs`). At the end the world heals, and everything must come to an end.
//!
//! Each fault in [`Mutation`] is put in on purpose and must be found, so that the oracle is known to see.
//!
//! What is not simulated: threads that meet within a step of a piece of work (a step is whole but for its calls of
//! the store), and the database's own faults beyond what [`evener_store::StoreError`] names.
#![forbid(unsafe_code)]

mod calls;
mod dice;
mod faults;
mod invariants;
mod mutations;
mod workload;
mod world;

pub use invariants::Violation;
pub use mutations::Mutation;
pub use world::{MODES, Options, Verdict, run};

/// A panic within a world is a finding; its text goes into the verdict and not to the terminal.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(world::panicked));
}

/// Runs worlds from that seed on, until one fails. `None`: all held.
#[must_use]
pub fn find(first: u64, seeds: u64, mutation: Option<Mutation>) -> Option<Verdict> {
    (first..first + seeds)
        .map(|seed| run(&Options { seed, mutation, ..Options::default() }))
        .find(|verdict| verdict.violation.is_some())
}
