//! Who runs an actor's code: [`Native`], for actors in Rust within the same program.
#![deny(unsafe_code)]

mod native;

pub use native::Native;
