//! What becomes of a row whose call failed, and of one that workers died with.
//!
//! Two counts, two limits. *Failures* (`attempts` in the row) are counted by the fenced commit of each
//! failed call; at `max_attempts` the row is used up. *Crashes* are counted by careful draining, and may
//! count an innocent that ran beside a poisonous row; so they have a limit of their own, `max_crashes`, and
//! do not lengthen the back-off. `ctx.attempt` is failures + crashes + 1.

use std::time::Duration;

use evener_actor::policy::{OnExhausted, RetryPolicy};
use evener_store::batch::DeadCause;

/// What becomes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is tried again.
    Retry {
        /// Not before so long from its commit, by the store's clock.
        delay: Duration,
        /// Failures so far, this one included.
        attempts: u32,
    },
    /// It goes to the dead letters.
    Dead {
        /// What used it up.
        cause: DeadCause,
        /// Failures in all.
        attempts: u32,
    },
    /// It stays until a command says what to do, and keeps its group's slot.
    Blocked {
        /// Failures in all.
        attempts: u32,
    },
}

/// How an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The call: the actor's code, its time limit, its engine.
    Call,
    /// The commit: the store refuses what the call left behind, and will refuse it again.
    Refused,
}

/// What becomes of a row that failed once more. `attempts` are the failures before this one.
///
/// The wait is uniform between zero and [`RetryPolicy::backoff_ceiling`], both included, in whole
/// milliseconds; `rng` gives 64 uniform bits and is asked once for a retry, else not at all.
///
/// # Source
/// Full jitter: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
pub fn failed(
    policy: &RetryPolicy,
    attempts: u32,
    failure: Failure,
    rng: &mut dyn FnMut() -> u64,
) -> Verdict {
    let attempts = attempts.saturating_add(1);
    if attempts >= policy.max_attempts {
        let cause = match failure {
            Failure::Call => DeadCause::Attempts,
            Failure::Refused => DeadCause::Refused,
        };
        return used_up(policy, cause, attempts);
    }
    Verdict::Retry { delay: jittered(policy.backoff_ceiling(attempts), rng), attempts }
}

/// Whether a row with so many failures and crashes may start at all: `None`, it may. To be asked before
/// careful draining starts a row, as nobody else is there to bury one that kills workers.
#[must_use]
pub fn before_start(policy: &RetryPolicy, attempts: u32, crashes: u32) -> Option<Verdict> {
    (crashes >= policy.max_crashes).then(|| used_up(policy, DeadCause::WorkerDied, attempts))
}

fn used_up(policy: &RetryPolicy, cause: DeadCause, attempts: u32) -> Verdict {
    match policy.on_exhausted {
        OnExhausted::DeadLetter => Verdict::Dead { cause, attempts },
        OnExhausted::Block => Verdict::Blocked { attempts },
    }
}

/// Uniform between zero and `ceiling`, both included, in whole milliseconds.
///
/// # Source
/// Multiply and shift: Lemire, "Fast Random Integer Generation in an Interval", 2019, without its
/// rejection: a bias below 2^-20 does not matter to a wait.
pub fn jittered(ceiling: Duration, rng: &mut dyn FnMut() -> u64) -> Duration {
    let ceiling_ms = u64::try_from(ceiling.as_millis()).unwrap_or(u64::MAX);
    let choices = u128::from(ceiling_ms) + 1;
    // Below `choices`, so it fits.
    Duration::from_millis(((u128::from(rng()) * choices) >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY_MS: u64 = 86_400_000;

    fn policy(backoff_ms: u64, backoff_max_ms: u64) -> RetryPolicy {
        RetryPolicy { backoff_ms, backoff_max_ms, max_attempts: i32::MAX as u32, ..RetryPolicy::default() }
    }

    fn delay(policy: &RetryPolicy, attempts: u32, bits: u64) -> Duration {
        match failed(policy, attempts, Failure::Call, &mut || bits) {
            Verdict::Retry { delay, .. } => delay,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_wait_is_between_nothing_and_the_ceiling_both_included() {
        let policy = policy(1_000, 600_000);
        assert_eq!(delay(&policy, 0, 0), Duration::ZERO);
        assert_eq!(delay(&policy, 0, u64::MAX), Duration::from_secs(1));
        assert_eq!(delay(&policy, 3, u64::MAX), Duration::from_secs(8));
        assert_eq!(delay(&policy, 3, u64::MAX / 2), Duration::from_secs(4));
    }

    /// FC-036.
    #[test]
    fn the_longest_wait_never_falls_and_stops_at_its_maximum() {
        for base in [1_000, DAY_MS] {
            let policy = policy(base, 30 * DAY_MS);
            let mut before = Duration::ZERO;
            for attempts in [0, 1, 30, 31, 32, 62, 63, 64, 1_000, i32::MAX as u32 - 2] {
                let longest = delay(&policy, attempts, u64::MAX);
                assert!(longest >= before, "{attempts}: {longest:?} after {before:?}");
                before = longest;
            }
            assert_eq!(before, Duration::from_millis(30 * DAY_MS));
        }
    }

    #[test]
    fn waits_spread_over_the_whole_range() {
        let policy = policy(1_000, 600_000);
        let mut seed = 0_u64;
        let mut rng = || {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        };
        let mut tenths = [0_u32; 10];
        for _ in 0..10_000 {
            let Verdict::Retry { delay, attempts: 5 } = failed(&policy, 4, Failure::Call, &mut rng) else {
                panic!("not used up yet")
            };
            tenths[usize::try_from(delay.as_millis()).unwrap().min(15_999) / 1_600] += 1;
        }
        assert!(tenths.iter().all(|count| (800..=1_200).contains(count)), "{tenths:?}");
    }

    /// FC-035: also when it is the commit that fails.
    #[test]
    fn attempts_are_capped_whatever_fails() {
        let three = RetryPolicy { max_attempts: 3, ..RetryPolicy::default() };
        let blocking = RetryPolicy { on_exhausted: OnExhausted::Block, ..three.clone() };
        for (failure, cause) in [(Failure::Call, DeadCause::Attempts), (Failure::Refused, DeadCause::Refused)]
        {
            let mut attempts = 0;
            for _ in 0..2 {
                match failed(&three, attempts, failure, &mut || 7) {
                    Verdict::Retry { attempts: counted, .. } => attempts = counted,
                    other => panic!("{other:?}"),
                }
            }
            let last = failed(&three, attempts, failure, &mut || panic!("no wait is needed"));
            assert_eq!(last, Verdict::Dead { cause, attempts: 3 });
            assert_eq!(failed(&blocking, 2, failure, &mut || 7), Verdict::Blocked { attempts: 3 });
        }
    }

    #[test]
    fn a_count_at_the_end_of_its_type_is_used_up() {
        let verdict = failed(&policy(1, 1), u32::MAX, Failure::Call, &mut || 7);
        assert_eq!(verdict, Verdict::Dead { cause: DeadCause::Attempts, attempts: u32::MAX });
    }

    #[test]
    fn what_killed_workers_often_enough_does_not_start() {
        let policy = RetryPolicy { max_crashes: 3, max_attempts: 1, ..RetryPolicy::default() };
        assert_eq!(before_start(&policy, 0, 2), None);
        let dead = Verdict::Dead { cause: DeadCause::WorkerDied, attempts: 0 };
        assert_eq!(before_start(&policy, 0, 3), Some(dead));
        let blocking = RetryPolicy { on_exhausted: OnExhausted::Block, ..policy };
        assert_eq!(before_start(&blocking, 0, 9), Some(Verdict::Blocked { attempts: 0 }));
    }

    proptest! {
        #[test]
        fn no_wait_is_longer_than_its_ceiling(
            base in 0..=2 * DAY_MS, more in 0..=90 * DAY_MS, attempts in 0..i32::MAX as u32 - 1, bits: u64,
        ) {
            let policy = policy(base, base + more);
            let delay = delay(&policy, attempts, bits);
            prop_assert!(delay <= policy.backoff_ceiling(attempts + 1));
            prop_assert!(delay <= Duration::from_millis(base + more));
        }
    }
}
