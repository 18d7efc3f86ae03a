//! The door to time. A simulation turns it by hand.

use std::time::Duration;

/// Time, as the runtime sees it. What is due in the store is due by the store's own clock.
pub trait Clock: Send + Sync {
    /// Since some moment, never back, and going on while the machine sleeps: a lease must not outlive its time
    /// because nobody looked.
    fn now(&self) -> Duration;

    /// Milliseconds since 1970-01-01T00:00:00Z, for events that come without a time of their own.
    fn wall_ms(&self) -> i64;
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        let now = rustix::time::clock_gettime(BOOT_TIME);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
    }

    #[allow(clippy::disallowed_methods, reason = "this is the door")]
    fn wall_ms(&self) -> i64 {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// CLOCK_BOOTTIME where there is one; CLOCK_MONOTONIC of the others stands still while the machine sleeps.
#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT_TIME: rustix::time::ClockId = rustix::time::ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT_TIME: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

/// The door to chance: numbers that are alike over their whole range.
pub trait Chance: Send + Sync {
    /// The next one.
    fn next(&self) -> u64;
}

/// A stream of numbers from a seed.
///
/// # Source
/// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[derive(Debug)]
pub struct Seeded(std::sync::atomic::AtomicU64);

impl Seeded {
    /// From that seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(std::sync::atomic::AtomicU64::new(seed))
    }
}

impl Chance for Seeded {
    fn next(&self) -> u64 {
        // Relaxed: any order of numbers will do.
        let state = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, std::sync::atomic::Ordering::Relaxed);
        let mut mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
