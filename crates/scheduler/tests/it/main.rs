//! Integration tests.

#![allow(
    clippy::disallowed_methods,
    reason = "tests measure with the real clock, and pause between two looks at what they wait for"
)]

mod fairness;
mod lifecycle;
mod names;
mod routing;
mod support;
