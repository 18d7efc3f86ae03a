//! What a durable actor is: events, ids, policies, and the traits that actors and executors have.
//! Plain values; no I/O, no scheduler, no async runtime.
//!
//! | | |
//! | --- | --- |
//! | [`id`] | names that people give, numbers that the store gives |
//! | [`event`] | a CloudEvent |
//! | [`definition`], [`policy`] | what an actor is declared to be, and where an event goes |
//! | [`actor`], [`context`] | what its code is, and what it may do |
//! | [`outcome`] | what one call left behind |
//! | [`executor`] | who runs calls |
//! | [`json`] | what JSON may cross |
#![forbid(unsafe_code)]

pub mod actor;
pub mod context;
pub mod definition;
pub mod event;
pub mod executor;
pub mod id;
pub mod json;
pub mod outcome;
pub mod policy;
