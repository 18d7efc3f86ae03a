//! The only door to the clock.
//!
//! Exact time costs some 28 ns to read here, so steps get the *coarse* time: the last exact one that a
//! worker or the monitor read. Workers read it every 61st turn, before they park and when they are back;
//! the monitor reads it every `watch::PERIOD` while any worker is up. Coarse time never runs back.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::sync::Relaxed;
use crate::sync::fixed::AtomicU64;

#[allow(clippy::disallowed_methods, reason = "this is the door")]
static START: LazyLock<Instant> = LazyLock::new(Instant::now);
/// Coarse time moves in steps of at least this many nanoseconds.
const COARSE_STEP: u64 = 50_000;
static COARSE: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds since the program first asked.
#[allow(clippy::disallowed_methods, reason = "this is the door")]
pub(crate) fn now_nanos() -> u64 {
    let start = *START;
    saturated(Instant::now().saturating_duration_since(start))
}

/// The exact time.
#[allow(clippy::disallowed_methods, reason = "this is the door")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Reads the clock and makes its answer the coarse time.
pub(crate) fn refresh() -> u64 {
    let now = now_nanos();
    // Relaxed: a number for people and for timers that look again; nothing else hangs on it. Written
    // only when it moves by enough, so that workers do not pass its line to and fro.
    if now > COARSE.load(Relaxed).saturating_add(COARSE_STEP) {
        COARSE.fetch_max(now, Relaxed);
    }
    now
}

/// The coarse time in nanoseconds since the program first asked.
#[inline]
pub(crate) fn coarse_nanos() -> u64 {
    COARSE.load(Relaxed)
}

/// The coarse time as an `Instant`.
pub(crate) fn coarse() -> Instant {
    *START + Duration::from_nanos(coarse_nanos())
}

/// That many nanoseconds of this clock as an `Instant`; `None` if that is too far away.
pub(crate) fn at(nanos: u64) -> Option<Instant> {
    START.checked_add(Duration::from_nanos(nanos))
}

/// A deadline that far away, in nanoseconds of this clock. It saturates: `u64::MAX` never comes.
pub(crate) fn deadline(now: u64, delay: Duration) -> u64 {
    now.saturating_add(saturated(delay))
}

/// That moment in nanoseconds of this clock; 0 for all before the program first asked.
pub(crate) fn nanos_of(at: Instant) -> u64 {
    saturated(at.saturating_duration_since(*START))
}

fn saturated(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_saturates() {
        assert_eq!(deadline(5, Duration::MAX), u64::MAX);
        assert_eq!(deadline(5, Duration::ZERO), 5);
    }

    #[test]
    fn coarse_time_does_not_run_back() {
        let mut last = 0;
        for _ in 0..10_000 {
            let now = refresh();
            let coarse = coarse_nanos();
            assert!(coarse >= last && coarse <= now_nanos() && now <= coarse + COARSE_STEP);
            last = coarse;
        }
    }
}
