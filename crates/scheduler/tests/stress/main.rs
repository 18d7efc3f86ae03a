//! Stress with an oracle. A program of its own, so that it is soon built with other flags.

#![allow(
    clippy::disallowed_methods,
    reason = "tests measure with the real clock, and pause between two looks at what they wait for"
)]

mod processes;
#[cfg(unix)]
mod sockets;
#[path = "../it/support.rs"]
#[allow(dead_code, reason = "the integration tests use all of it")]
mod support;
