//! Queue modes, concurrency, retry: the declared part of an actor.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// In which order the rows of an instance are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueMode {
    /// First in, first started, within a group. A row in back-off keeps its place and its group's slot.
    #[default]
    Fifo,
    /// The greatest priority first; equal ones first in, first started.
    Priority,
    /// The newest first.
    Lifo,
    /// Only the newest of a group; older ones are done with it, as superseded.
    Latest,
    /// The actor's own `select` chooses among what waits.
    Custom,
}

/// How the queue of each instance is drained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct QueuePolicy {
    /// The order.
    pub mode: QueueMode,
    /// How many calls of one group may run at once; at least 1. Without groups the instance is one group.
    pub concurrency: u32,
    /// How many calls of one instance may run at once, over all groups; at least 1.
    pub instance_max: u32,
    /// How many outcomes may wait for their commit while the next event already starts on their state.
    /// 0: each event starts when its predecessor is committed. At most [`RUN_AHEAD_MAX`].
    pub run_ahead: u32,
}

/// The greatest [`QueuePolicy::run_ahead`], and the number of rows that a drain holds.
pub const RUN_AHEAD_MAX: u32 = 64;

impl Default for QueuePolicy {
    /// fifo, one call at a time in each group, at most 64 for the instance, running ahead by 64.
    fn default() -> Self {
        Self { mode: QueueMode::Fifo, concurrency: 1, instance_max: 64, run_ahead: RUN_AHEAD_MAX }
    }
}

/// What happens to an event whose attempts are used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnExhausted {
    /// It goes to the dead letters; those behind it go on.
    #[default]
    DeadLetter,
    /// It stays, keeps its group's slot, and waits for a command: retry or drop.
    Block,
}

/// How failed calls are repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RetryPolicy {
    /// How many attempts there are in all; at least 1.
    pub max_attempts: u32,
    /// The greatest wait after the first failure, in milliseconds; each further one doubles it.
    pub backoff_ms: u64,
    /// Where doubling ends, in milliseconds.
    pub backoff_max_ms: u64,
    /// How long one attempt may take, in milliseconds; 0 is no limit.
    pub timeout_ms: u64,
    /// How many deaths of a worker an event may have been there for.
    pub max_crashes: u32,
    /// What then.
    pub on_exhausted: OnExhausted,
}

impl Default for RetryPolicy {
    /// 20 attempts, waits of up to 1 s, 2 s, 4 s ... 10 minutes, 60 s an attempt, 3 crashes, dead letters.
    fn default() -> Self {
        Self {
            max_attempts: 20,
            backoff_ms: 1_000,
            backoff_max_ms: 600_000,
            timeout_ms: 60_000,
            max_crashes: 3,
            on_exhausted: OnExhausted::DeadLetter,
        }
    }
}

impl RetryPolicy {
    /// The longest wait after failed attempt number `attempt` (the first is 1):
    /// `backoff_ms * 2^(attempt - 1)`, cut at `backoff_max_ms`. Never falls with the attempt.
    #[must_use]
    pub fn backoff_ceiling(&self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1);
        let ceiling = if doublings >= 64 {
            if self.backoff_ms == 0 { 0 } else { u64::MAX }
        } else {
            u64::try_from(u128::from(self.backoff_ms) << doublings).unwrap_or(u64::MAX)
        };
        Duration::from_millis(ceiling.min(self.backoff_max_ms).min(DELAY_MS_MAX))
    }

    /// The time one attempt has.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        (self.timeout_ms > 0).then(|| Duration::from_millis(self.timeout_ms))
    }
}

/// The longest delay that rows can hold: a hundred years, in milliseconds. Longer ones are cut to it.
pub const DELAY_MS_MAX: u64 = 100 * 366 * 86_400_000;

/// Why a policy is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A number outside of its range.
    #[error("{field} is {value}, it must be between {min} and {max}")]
    Range {
        /// Which.
        field: &'static str,
        /// What it was.
        value: u64,
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// The mode wants something that the definition does not give.
    #[error("{0}")]
    Missing(&'static str),
}

fn range(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), PolicyError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(PolicyError::Range { field, value, min, max }) }
}

impl QueuePolicy {
    /// Checks all numbers.
    ///
    /// # Errors
    /// [`PolicyError::Range`] with the field.
    pub fn check(&self) -> Result<(), PolicyError> {
        range("queue.concurrency", self.concurrency.into(), 1, 10_000)?;
        range("queue.instanceMax", self.instance_max.into(), 1, 10_000)?;
        range("queue.runAhead", self.run_ahead.into(), 0, RUN_AHEAD_MAX.into())
    }
}

impl RetryPolicy {
    /// Checks all numbers.
    ///
    /// # Errors
    /// [`PolicyError::Range`] with the field.
    pub fn check(&self) -> Result<(), PolicyError> {
        range("retry.maxAttempts", self.max_attempts.into(), 1, i32::MAX as u64)?;
        range("retry.maxCrashes", self.max_crashes.into(), 1, 1_000)?;
        range("retry.backoffMs", self.backoff_ms, 0, DELAY_MS_MAX)?;
        range("retry.backoffMaxMs", self.backoff_max_ms, self.backoff_ms.min(DELAY_MS_MAX), DELAY_MS_MAX)?;
        range("retry.timeoutMs", self.timeout_ms, 0, DELAY_MS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_never_falls_and_stops_at_its_maximum() {
        for base in [1_000, 86_400_000] {
            let retry =
                RetryPolicy { backoff_ms: base, backoff_max_ms: 10 * 86_400_000, ..RetryPolicy::default() };
            let mut before = Duration::ZERO;
            for attempt in [1, 2, 3, 31, 32, 63, 64, 65, 1_000, i32::MAX as u32, u32::MAX] {
                let ceiling = retry.backoff_ceiling(attempt);
                assert!(
                    ceiling >= before && ceiling <= Duration::from_millis(retry.backoff_max_ms),
                    "{attempt}"
                );
                before = ceiling;
            }
            assert_eq!(before, Duration::from_millis(retry.backoff_max_ms));
        }
    }

    #[test]
    fn a_policy_out_of_range_names_its_field() {
        let error = QueuePolicy { concurrency: 0, ..QueuePolicy::default() }.check().unwrap_err();
        assert_eq!(error.to_string(), "queue.concurrency is 0, it must be between 1 and 10000");
        assert!(RetryPolicy { max_attempts: 0, ..RetryPolicy::default() }.check().is_err());
        assert_eq!(RetryPolicy::default().check(), Ok(()));
        assert_eq!(QueuePolicy::default().check(), Ok(()));
    }
}
