//! The way of an event.

pub mod commands;
pub mod commit;
pub mod dispatch;
pub mod drain;
pub mod fanout;
pub mod ingress;
pub mod queue;
pub mod stream;
