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

/// Waits of the present thread end on time from now on. (By default Linux lets them end up to 50 us later, to
/// end several at once.)
pub(crate) fn be_punctual() {
    #[cfg(target_os = "linux")]
    // SAFETY: it changes a number of the present thread. A refusal leaves it as it is.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong);
    }
}

/// The processor time of one thread, for others to read: it stands still while the thread is off the
/// processor. Nothing where the system has no such clock.
pub(crate) struct ThreadTime {
    /// Its clock and its number, as the system gives them; 0 if there is no thread now.
    clock: AtomicU64,
}

impl ThreadTime {
    pub(crate) const fn new() -> Self {
        Self { clock: AtomicU64::new(0) }
    }

    /// From now on it is that of the present thread.
    pub(crate) fn begin(&self) {
        #[cfg(target_os = "linux")]
        {
            let mut clock = 0;
            // SAFETY: the present thread, and a place for the answer.
            let failed = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
            // SAFETY: it has no conditions.
            let thread = unsafe { libc::gettid() };
            if failed == 0 {
                self.clock.store(u64::from(clock.cast_unsigned()) << 32 | thread as u64, Relaxed);
            }
        }
    }

    /// The thread is about to end.
    pub(crate) fn end(&self) {
        self.clock.store(0, Relaxed);
    }

    /// In nanoseconds. `None`: not known.
    pub(crate) fn read(&self) -> Option<u64> {
        #[cfg(target_os = "linux")]
        {
            let clock = self.clock.load(Relaxed);
            if clock == 0 {
                return None;
            }
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: a place for the answer. A clock whose thread has ended is an error, not a fault.
            let failed = unsafe { libc::clock_gettime(((clock >> 32) as u32).cast_signed(), &raw mut time) };
            (failed == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
        }
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// Does the thread wait for a processor, or have one? It opens and reads a file of the system's.
    pub(crate) fn is_runnable(&self) -> bool {
        #[cfg(target_os = "linux")]
        {
            let thread = self.clock.load(Relaxed) as u32;
            // "number (name) state ..": the name may hold anything, so from the last parenthesis on. It has at most
            // 15 bytes, so one read has it all; to read such a file to its end takes six.
            let mut start = [0; 64];
            let file = std::fs::File::open(format!("/proc/self/task/{thread}/stat"));
            let read = file.and_then(|mut file| std::io::Read::read(&mut file, &mut start)).unwrap_or(0);
            let stat = &start[..read];
            let end = stat.iter().rposition(|&byte| byte == b')');
            end.and_then(|end| stat.get(end + 2)) == Some(&b'R')
        }
        #[cfg(not(target_os = "linux"))]
        false
    }
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
