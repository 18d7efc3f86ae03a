//! Integration tests.

#![allow(
    clippy::disallowed_methods,
    reason = "tests measure with the real clock, and pause between two looks at what they wait for"
)]

mod channel;
#[cfg(unix)]
mod child;
mod circles;
mod clock;
mod commands;
mod contained;
mod fairness;
mod field_cases;
mod files;
#[cfg(feature = "hyper")]
mod http;
#[cfg(feature = "hyper")]
mod http_tools;
mod idle;
mod lend;
mod lifecycle;
mod links;
mod mailbox;
mod many;
mod names;
mod net;
mod routing;
mod shutdown;
#[cfg(unix)]
mod signal;
mod stack;
mod supervisor;
mod support;
mod task;
mod time;
#[cfg(feature = "tokio-io")]
mod tokio_io;
mod trace;
mod typed;
#[cfg(unix)]
mod waits;
