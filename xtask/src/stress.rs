//! `cargo xtask stress`: the scheduler's stress test with its oracle, for a time and a seed.

use std::time::{Duration, SystemTime};

use crate::run::{Job, Ran};
use crate::tally::Tally;
use crate::verdict::Verdict;

/// How long, and from which seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stress {
    pub(crate) secs: u64,
    pub(crate) seed: u64,
}

impl Stress {
    /// Without a seed one is taken from the clock; it is printed, so that the run can be repeated.
    pub(crate) fn new(secs: u64, seed: Option<u64>) -> Self {
        let from_clock = || {
            let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            // Odd multiplier of a known generator (Steele et al., "Fast Splittable Pseudorandom
            // Number Generators", 2014): neighbouring times give seeds that look nothing alike.
            (since.as_nanos() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16
        };
        Self { secs, seed: seed.unwrap_or_else(from_clock) }
    }

    /// The stress test as cargo runs it.
    pub(crate) fn job(self) -> Job {
        let words = ["cargo", "test", "-p", "evener-scheduler", "--release", "--test", "stress"];
        self.set(Job::new(words)).args(["--", "--nocapture", "--include-ignored"])
    }

    /// Hands time and seed to a test run, and gives it a limit that leaves room to compile.
    pub(crate) fn set(self, job: Job) -> Job {
        job.env("EVENER_STRESS_SECS", self.secs.to_string())
            .env("EVENER_STRESS_SEED", self.seed.to_string())
            // The file may hold several tests, each for `secs`; a lost wake shows as a run without end.
            .limit(Duration::from_secs(900 + 8 * self.secs))
    }

    /// The verdict over what the tests printed.
    pub(crate) fn judge(self, ran: &Ran) -> Verdict {
        let tally = Tally::of(&ran.lines);
        let Self { secs, seed } = self;
        if !ran.ok {
            Verdict::failed(tally, format!("seed {seed}, {secs} s: {}", ran.why_not))
        } else if tally.passed == 0 {
            Verdict::failed(tally, "no stress test ran".to_owned())
        } else {
            Verdict::passed(tally, format!("seed {seed}, {secs} s"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(ok: bool, line: &str) -> Ran {
        Ran { lines: vec![line.to_owned()], ok, why_not: if ok { String::new() } else { "exit 101".into() } }
    }

    #[test]
    fn a_run_without_a_test_is_no_success() {
        let stress = Stress::new(1, Some(7));
        assert!(!stress.judge(&ran(true, "test result: ok. 2 passed; 0 failed;")).is_failure());
        assert!(stress.judge(&ran(true, "test result: ok. 0 passed; 0 failed;")).is_failure());
    }

    #[test]
    fn a_failure_names_its_seed() {
        let verdict =
            Stress::new(1, Some(4711)).judge(&ran(false, "test result: FAILED. 1 passed; 1 failed;"));
        assert!(verdict.is_failure() && verdict.note.contains("4711"), "{verdict:?}");
        assert_eq!(verdict.tally.failed, 1);
    }

    #[test]
    fn the_command_can_be_repeated_with_its_seed() {
        let text = Stress::new(20, Some(4711)).job().text();
        assert!(text.starts_with("EVENER_STRESS_SECS=20 EVENER_STRESS_SEED=4711 cargo test"), "{text}");
    }
}
