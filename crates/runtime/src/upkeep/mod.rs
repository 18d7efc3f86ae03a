//! What keeps the house.

pub mod activation;
pub mod cron;
pub mod ownership;
pub mod peers;
pub mod spreading;
pub mod timers;
