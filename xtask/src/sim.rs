//! The simulator: its own tests with every mutation, then worlds from a seed.

use std::time::Duration;

use anyhow::Result;

use crate::run::Job;
use crate::tally::Tally;
use crate::verdict::Verdict;

/// Which worlds a check runs; `cargo sim` runs any.
const FIRST: u64 = 1;
/// Some 90 s on two cores.
const WORLDS: u64 = 2_000;

/// Its tests; each mutation must be found.
fn tests() -> Job {
    Job::new("cargo test --profile sim -p evener-sim --features mutations".split(' '))
        .limit(Duration::from_secs(1800))
}

/// Worlds, with the same build.
pub(crate) fn worlds() -> Job {
    let words = format!(
        "cargo run --profile sim -p evener-sim --features mutations -- --seed {FIRST} --seeds {WORLDS}"
    );
    Job::new(words.split(' ')).limit(Duration::from_secs(1200))
}

/// Both, as a stage.
pub(crate) fn run() -> Result<Verdict> {
    let tests = tests().run()?;
    let tally = Tally::of(&tests.lines);
    if !tests.ok {
        return Ok(Verdict::failed(tally, tests.why_not));
    }
    let worlds = worlds().run()?;
    Ok(judge(tally, worlds.ok, &worlds.lines, worlds.why_not))
}

fn judge(tally: Tally, ok: bool, lines: &[String], why_not: String) -> Verdict {
    let verdict = lines.iter().rev().find(|line| line.contains(" worlds from seed "));
    match verdict {
        _ if tally.ran() == 0 => Verdict::failed(tally, "no test of the simulator ran"),
        None => Verdict::failed(tally, format!("no verdict: {why_not}")),
        Some(line) if ok => Verdict::passed(tally, line.clone()),
        Some(line) => Verdict::failed(tally, line.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worlds_hold_only_with_a_verdict_and_tests_that_ran() {
        let line = vec!["2000 worlds from seed 1: 0 failed; 5 actions".to_owned()];
        let ran = Tally { passed: 3, ..Tally::default() };
        assert!(!judge(ran, true, &line, String::new()).is_failure());
        assert!(judge(ran, false, &line, String::new()).is_failure());
        assert!(judge(ran, true, &[], String::new()).is_failure());
        assert!(judge(Tally::default(), true, &line, String::new()).is_failure());
    }
}
