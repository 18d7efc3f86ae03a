//! The house's chores: `cargo xtask check` is what CI runs, the others are its parts and the demo.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "chores measure how long they take; nothing replays them")]

mod apt;
mod check;
mod demo;
mod house;
mod http;
mod models;
mod rooms;
mod run;
mod sim;
mod source;
mod stress;
mod table;
mod tally;
mod tidy;
mod tsan;
mod verdict;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use crate::house::House;
use crate::stress::Stress;
use crate::verdict::Verdict;

/// The house's chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Everything that must hold before a commit lands; what CI runs
    ///
    /// In order: the tools it needs (cargo-deny is installed if missing), fmt, clippy, all tests with
    /// doc tests, loom models, a short stress run, simulated worlds, the stress run under ThreadSanitizer, rooms, tidy,
    /// licenses and sources of what we depend on, known advisories. Ends with a table and the line
    /// "N passed, N failed", which counts tests.
    Check {
        /// Leave out what is slow: models, stress, simulation, ThreadSanitizer, advisories, installing cargo-deny
        #[arg(long)]
        quick: bool,
    },
    /// Run the loom models and show what each covered
    Models,
    /// Run the scheduler's stress test with its oracle
    Stress {
        /// How long each stress test runs
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
        secs: u64,
        /// Where it starts; the same seed asks for the same run [default: from the clock, and printed]
        #[arg(long, value_name = "S")]
        seed: Option<u64>,
    },
    /// Run the stress test under ThreadSanitizer (needs a nightly toolchain)
    Tsan {
        /// How long each stress test runs
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
        secs: u64,
        /// Where it starts [default: from the clock, and printed]
        #[arg(long, value_name = "S")]
        seed: Option<u64>,
    },
    /// Show evener at work: a year of departures from New York, an actor for each aircraft, every state checked
    ///
    /// The departures are fetched by pip, once (installed through apt if it is missing).
    Demo(demo::Demo),
    /// Compare HTTP plaintext of hyper on evener, hyper on tokio and Go's net/http (needs wrk)
    Http(http::Comparison),
    /// Check who stands on whom against the plan
    Rooms,
    /// Check that what comments cite exists, and that no file is dead or silent
    Tidy,
}

fn main() -> ExitCode {
    match run(&Args::parse().chore) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the chore; gives back whether all held.
fn run(chore: &Chore) -> Result<bool> {
    let house = House::open()?;
    std::env::set_current_dir(&house.root).with_context(|| format!("go to {}", house.root.display()))?;
    match chore {
        Chore::Check { quick } => check::run(&house, *quick),
        Chore::Models => Ok(say("models", &models::run(&house)?)),
        Chore::Stress { secs, seed } => {
            let stress = Stress::new(*secs, *seed);
            let ran = stress.job().run()?;
            Ok(say("stress", &stress.judge(&ran)))
        }
        Chore::Tsan { secs, seed } => {
            let verdict = tsan::run(&house, Stress::new(*secs, *seed))?;
            Ok(say("tsan", &tsan::as_asked(verdict)))
        }
        Chore::Demo(demo) => demo::run(&house, demo),
        Chore::Http(comparison) => http::run(&house, comparison),
        Chore::Rooms => Ok(say("rooms", &check::check_rooms(&house)?)),
        Chore::Tidy => Ok(say("tidy", &check::check_tidy(&house)?)),
    }
}

/// The verdict as the last line: `stress: holds (seed 4711, 20 s; 3 passed, 0 failed)`.
fn say(name: &str, verdict: &Verdict) -> bool {
    let mut words = vec![verdict.note.clone()];
    if verdict.tally.ran() > 0 {
        words.push(format!("{} passed, {} failed", verdict.tally.passed, verdict.tally.failed));
    }
    words.retain(|word| !word.is_empty());
    let outcome = if verdict.is_failure() { "FAILED" } else { "holds" };
    println!("{name}: {outcome} ({})", words.join("; "));
    !verdict.is_failure()
}
