//! The way of an event.
