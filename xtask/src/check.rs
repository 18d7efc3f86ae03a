//! `cargo xtask check`: what CI runs, in one command.
//!
//! Every stage runs, also after one failed, so that one run shows all there is to mend. The last
//! line is `N passed, N failed`, counting tests: alone on its line, for whoever reads it by machine.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::house::House;
use crate::run::{Job, answers, first_line};
use crate::stress::Stress;
use crate::table::Table;
use crate::tally::Tally;
use crate::verdict::{Kind, Verdict};
use crate::{apt, models, rooms, sim, tidy, tsan};

/// The version that is installed where none is; another one that is there already will do.
const CARGO_DENY: &str = "cargo-deny@0.20.2";

/// What the tests are driven with from outside, how to see that it is there, and the package of Debian that has it.
const TEST_TOOLS: [(&str, &str, &str); 4] = [
    ("curl", "command -v curl", "curl"),
    ("wrk", "command -v wrk", "wrk"),
    ("h2load", "command -v h2load", "nghttp2-client"),
    ("PostgreSQL", HAS_POSTGRES, "postgresql"),
];

/// Where its server's programs are: the places that the throw-away cluster looks at.
pub(crate) const HAS_POSTGRES: &str =
    "test -n \"$PGBIN\" || ls /usr/lib/postgresql/*/bin/initdb || command -v initdb";

/// The adapters of the scheduler. (Not all features: another poller is one of them.)
const FEATURES: &str = "evener-scheduler/hyper,evener-scheduler/tokio-io";

/// Seconds and seed of the short stress runs; longer ones are `cargo xtask stress`.
const STRESS: Stress = Stress { secs: 20, seed: 4711 };

/// Part of a check.
struct Stage<'a> {
    name: &'static str,
    /// What to type to see it alone.
    repeat: String,
    is_slow: bool,
    run: Box<dyn Fn() -> Result<Verdict> + 'a>,
}

/// A stage that is over.
struct Done {
    name: &'static str,
    repeat: String,
    verdict: Verdict,
    took: Duration,
}

/// Runs all stages (with `quick` only those that are not slow); gives back whether all held.
pub(crate) fn run(house: &House, quick: bool) -> Result<bool> {
    let began = Instant::now();
    let mut done = Vec::new();
    for stage in stages(house, quick) {
        println!("\n=== {} ===", stage.name);
        let began = Instant::now();
        let verdict = if quick && stage.is_slow {
            Verdict::left_out("--quick")
        } else {
            (stage.run)().unwrap_or_else(|error| Verdict::failed(Tally::default(), format!("{error:#}")))
        };
        let took = began.elapsed();
        println!("=== {}: {} in {} ===", stage.name, outcome(&verdict), shown(took));
        if verdict.is_failure() {
            println!("repeat it with: {}", stage.repeat);
        }
        done.push(Done { name: stage.name, repeat: stage.repeat, verdict, took });
    }
    print!("{}", summary(&done, began.elapsed()));
    std::io::stdout().flush()?;
    Ok(!done.iter().any(|done| done.verdict.is_failure()))
}

fn stages(house: &House, quick: bool) -> Vec<Stage<'_>> {
    let clippy = || {
        let words = format!("cargo clippy --workspace --all-targets --features {FEATURES} -- -D warnings");
        Job::new(words.split(' '))
    };
    // Doc tests are part of it. Everything runs even after a failure: one run, all failures.
    let tests = || {
        let words = format!("cargo test --workspace --no-fail-fast --features {FEATURES}");
        Job::new(words.split(' ')).limit(Duration::from_secs(1800))
    };
    let doc = || {
        let words = format!("cargo doc --workspace --no-deps --features {FEATURES}");
        Job::new(words.split(' ')).env("RUSTDOCFLAGS", "-D warnings")
    };
    let fmt = || Job::new("cargo fmt --check".split(' '));
    let stress = format!("--secs {} --seed {}", STRESS.secs, STRESS.seed);
    vec![
        stage("tools", "cargo xtask check", false, move || tools(quick)),
        stage("fmt", &fmt().text(), false, move || command(&fmt())),
        stage("clippy", &clippy().text(), false, move || command(&clippy().limit(Duration::from_secs(1200)))),
        stage("tests", &tests().text(), false, move || all_tests(&tests())),
        stage("doc", &doc().text(), false, move || command(&doc().limit(Duration::from_secs(600)))),
        stage("models", &models::job(house).text(), true, || models::run(house)),
        stage("stress", &format!("cargo xtask stress {stress}"), true, || {
            let ran = STRESS.job().run()?;
            Ok(STRESS.judge(&ran))
        }),
        stage("sim", &sim::worlds().text(), true, sim::run),
        stage("tsan", &format!("cargo xtask tsan {stress}"), true, || tsan::run(house, STRESS)),
        stage("rooms", "cargo xtask rooms", false, || check_rooms(house)),
        stage("tidy", "cargo xtask tidy", false, || check_tidy(house)),
        stage("deny", &deny().text(), false, move || licenses(quick)),
        stage("advisories", &advisory_job().text(), true, advisories),
    ]
}

fn stage<'a>(
    name: &'static str,
    repeat: &str,
    is_slow: bool,
    run: impl Fn() -> Result<Verdict> + 'a,
) -> Stage<'a> {
    Stage { name, repeat: repeat.to_owned(), is_slow, run: Box::new(run) }
}

/// Who may stand on whom, as a stage.
pub(crate) fn check_rooms(house: &House) -> Result<Verdict> {
    Ok(Verdict::of_findings(&rooms::check(house)?, "every edge is in the plan"))
}

/// Citations, dead files, opening paragraphs, as a stage.
pub(crate) fn check_tidy(house: &House) -> Result<Verdict> {
    Ok(Verdict::of_findings(&tidy::check(house)?, "what is cited exists, no dead file"))
}

/// What the other stages need: told if it is part of the toolchain, installed if it is not.
fn tools(quick: bool) -> Result<Verdict> {
    for component in ["rustfmt", "clippy"] {
        let command = if component == "rustfmt" { "fmt" } else { component };
        match first_line(&["cargo", command, "--version"]) {
            Some(version) => println!("{version}"),
            None => {
                let note = format!("{component} is missing: `rustup component add {component}` brings it");
                return Ok(Verdict::failed(Tally::default(), note));
            }
        }
    }
    if let Some(verdict) = test_tools()? {
        return Ok(verdict);
    }
    match first_line(&["cargo", "deny", "--version"]) {
        Some(version) => println!("{version}"),
        None if quick => println!("cargo-deny is not installed; with --quick it stays so"),
        None => {
            println!("installing {CARGO_DENY}: some five minutes, once");
            let install = Job::new(["cargo", "install", "--locked", CARGO_DENY])
                // It runs for a second: a fast build is worth more than a fast program.
                .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
                .env("CARGO_PROFILE_RELEASE_LTO", "off")
                .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
                .limit(Duration::from_secs(1200));
            let ran = install.run()?;
            if !ran.ok {
                let note = format!("`{}`: {}", install.text(), ran.why_not);
                return Ok(Verdict::failed(Tally::default(), note));
            }
        }
    }
    Ok(Verdict::passed(Tally::default(), ""))
}

/// Installs what is missing of [`TEST_TOOLS`], as root or with sudo; a verdict if that fails.
fn test_tools() -> Result<Option<Verdict>> {
    let is_missing = |seen: &str| !answers(&["sh", "-c", seen]);
    let missing: Vec<_> = TEST_TOOLS.into_iter().filter(|(_, seen, _)| is_missing(seen)).collect();
    if missing.is_empty() {
        println!("{} are here", TEST_TOOLS.map(|(program, ..)| program).join(", "));
        return Ok(None);
    }
    let packages: Vec<&str> = missing.into_iter().map(|(.., package)| package).collect();
    Ok(match apt::install(&packages) {
        Ok(()) => None,
        Err(error) => Some(Verdict::failed(Tally::default(), format!("the tests need {error}"))),
    })
}

fn command(job: &Job) -> Result<Verdict> {
    let ran = job.run()?;
    Ok(if ran.ok {
        Verdict::passed(Tally::default(), "")
    } else {
        Verdict::failed(Tally::default(), ran.why_not)
    })
}

fn all_tests(job: &Job) -> Result<Verdict> {
    let ran = job.run()?;
    let tally = Tally::of(&ran.lines);
    Ok(match (ran.ok, tally.ran()) {
        (false, _) => Verdict::failed(tally, ran.why_not),
        (true, 0) => Verdict::failed(tally, "no test ran"),
        (true, _) => Verdict::passed(tally, ""),
    })
}

fn deny() -> Job {
    // Warnings are for who looks by hand; here they would bury the errors.
    Job::new("cargo deny --log-level error check bans licenses sources".split(' '))
}

fn licenses(quick: bool) -> Result<Verdict> {
    if quick && !answers(&["cargo", "deny", "--version"]) {
        return Ok(Verdict::left_out("cargo-deny is not installed"));
    }
    command(&deny())
}

fn advisory_job() -> Job {
    Job::new("cargo deny check advisories".split(' ')).limit(Duration::from_secs(180))
}

/// Known weaknesses of what we stand on. Their list comes from the network, which may not be there.
fn advisories() -> Result<Verdict> {
    let ran = advisory_job().run()?;
    Ok(judge_advisories(ran.ok, &ran.lines, ran.why_not))
}

fn judge_advisories(ok: bool, lines: &[String], why_not: String) -> Verdict {
    let unreachable = lines.iter().any(|line| line.contains("failed to fetch advisory database"));
    if ok {
        Verdict::passed(Tally::default(), "")
    } else if unreachable {
        Verdict::left_out("their database could not be fetched")
    } else {
        Verdict::failed(Tally::default(), why_not)
    }
}

fn summary(done: &[Done], took: Duration) -> String {
    let mut table = Table::new(["stage", "outcome", "time", "tests", "note"]);
    let mut sum = Tally::default();
    for Done { name, verdict, took, .. } in done {
        sum += verdict.tally;
        let tests = match verdict.tally {
            Tally { passed: 0, failed: 0, .. } => String::new(),
            Tally { passed, failed: 0, .. } => passed.to_string(),
            Tally { passed, failed, .. } => format!("{passed}, {failed} failed"),
        };
        let cells =
            [(*name).to_owned(), outcome(verdict).to_owned(), shown(*took), tests, verdict.note.clone()];
        table.row(cells);
    }
    let mut text = format!("\n{table}\nall stages in {}\n", shown(took));
    for done in done.iter().filter(|done| done.verdict.is_failure()) {
        text.push_str(&format!("{} failed; repeat it with: {}\n", done.name, done.repeat));
    }
    text.push_str(&format!("{} passed, {} failed\n", sum.passed, sum.failed));
    text
}

fn outcome(verdict: &Verdict) -> &'static str {
    match verdict.kind {
        Kind::Passed => "ok",
        Kind::Failed => "FAILED",
        Kind::LeftOut => "left out",
    }
}

fn shown(took: Duration) -> String {
    match took.as_secs() {
        secs @ 0..60 => format!("{secs}.{} s", took.subsec_millis() / 100),
        secs => format!("{} min {:02} s", secs / 60, secs % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(name: &'static str, verdict: Verdict) -> Done {
        Done { name, repeat: format!("repeat {name}"), verdict, took: Duration::from_millis(65_250) }
    }

    #[test]
    fn the_last_line_counts_the_tests_of_all_stages() {
        let text = summary(
            &[
                done("tests", Verdict::passed(Tally { passed: 40, failed: 0, ignored: 2 }, "")),
                done(
                    "models",
                    Verdict::failed(Tally { passed: 5, failed: 1, ignored: 0 }, "exit status: 101"),
                ),
                done("fmt", Verdict::passed(Tally::default(), "")),
            ],
            Duration::from_secs(100),
        );
        assert_eq!(text.lines().last(), Some("45 passed, 1 failed"));
        assert!(text.contains("models failed; repeat it with: repeat models"), "{text}");
        assert!(!text.contains("repeat tests") && text.contains("1 min 05 s"), "{text}");
    }

    #[test]
    fn advisories_fail_when_there_is_one_and_not_when_the_network_is_away() {
        let lines = |text: &str| vec![text.to_owned()];
        let away = lines("[ERROR] failed to fetch advisory database https://example.org with cli: ...");
        assert_eq!(judge_advisories(false, &away, "exit status: 1".into()).kind, Kind::LeftOut);
        let found = lines("error[vulnerability]: memory is freed twice");
        assert_eq!(judge_advisories(false, &found, "exit status: 1".into()).kind, Kind::Failed);
        assert_eq!(judge_advisories(true, &[], String::new()).kind, Kind::Passed);
    }

    #[test]
    fn every_slow_stage_is_left_out_when_quick() {
        let house = House::open().unwrap();
        let slow: Vec<_> = stages(&house, true).into_iter().filter(|s| s.is_slow).map(|s| s.name).collect();
        assert_eq!(slow, ["models", "stress", "sim", "tsan", "advisories"]);
    }

    #[test]
    fn a_command_that_runs_no_test_is_no_success() {
        let silent = Job::new(["true"]).quiet();
        assert!(all_tests(&silent).unwrap().is_failure());
        let one = Job::new(["echo", "test result: ok. 1 passed; 0 failed;"]).quiet();
        assert!(!all_tests(&one).unwrap().is_failure());
    }
}
