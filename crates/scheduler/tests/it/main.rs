//! Integration tests.

#![allow(
    clippy::disallowed_methods,
    reason = "tests measure with the real clock, and pause between two looks at what they wait for"
)]

mod commands;
mod fairness;
mod field_cases;
mod idle;
mod lifecycle;
mod links;
mod mailbox;
mod names;
mod routing;
mod stress;
mod supervisor;
mod support;
mod trace;
mod typed;
