//! placeholder
#![allow(dead_code, unused_imports)]
mod sync;
mod queues;
