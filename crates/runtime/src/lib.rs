//! The durable life of actors: from an appended event to its commit (`flow`), and what keeps that going
//! (`upkeep`).
#![forbid(unsafe_code)]

pub mod flow;
pub mod upkeep;
