//! What the library promises at its door.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test waits for what must happen, and gives up at last")]

mod basics;
mod flights;
mod queues;
mod support;
mod timers;
