//! The conformance suite against each back end.

#![allow(
    clippy::disallowed_methods,
    reason = "tests stand outside the doors: what they run on is made from the system's clock"
)]

mod memory;
mod postgres;
mod sqlite;
