//! `cargo xtask models`: the loom models, with a table of what each of them covered.
//!
//! A model prints `model NAME threads=.. ops=.. bound=.. executions=.. interleavings=.. complete=yes|no`,
//! the second number being that of its second run (see `scheduler/src/model/mod.rs`). A negative control
//! is a `should_panic` test: it shows that the model next to it can fail at all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Result;

use crate::house::House;
use crate::run::Job;
use crate::table::Table;
use crate::tally::Tally;
use crate::verdict::Verdict;

/// Models are bounded by their own settings; at this limit one of them is out of hand.
const LIMIT: Duration = Duration::from_secs(15 * 60);

const COLUMNS: [&str; 6] = ["threads", "ops", "bound", "executions", "interleavings", "complete"];

/// What the models said, read off their output.
#[derive(Debug, Default, PartialEq, Eq)]
struct Report {
    /// Name of a model and its values in the order of [`COLUMNS`].
    models: BTreeMap<String, Vec<String>>,
    controls: BTreeSet<String>,
    tests: BTreeSet<String>,
    failed: BTreeSet<String>,
}

/// The command that runs the models.
pub(crate) fn job(house: &House) -> Job {
    let words = ["cargo", "test", "-p", "evener-scheduler", "--lib", "--release", "--target-dir"];
    // A target folder of its own: other flags would throw the ordinary one away at each turn.
    Job::new(words)
        .args([house.target.join("loom").display().to_string()])
        .args(["--", "model::", "--nocapture", "--test-threads=2"])
        .env("RUSTFLAGS", "--cfg loom")
        .limit(LIMIT)
}

/// Runs the models and prints their table.
pub(crate) fn run(house: &House) -> Result<Verdict> {
    let ran = job(house).run()?;
    let tally = Tally::of(&ran.lines);
    let report = Report::of(&ran.lines);
    println!("\n{}", report.table());
    if !report.without_control().is_empty() {
        println!("without a negative control: {}", report.without_control().join(", "));
    }
    Ok(judge(&report, tally, ran.ok, &ran.why_not))
}

fn judge(report: &Report, tally: Tally, ok: bool, why_not: &str) -> Verdict {
    let found =
        format!("with figures: {}; negative controls: {}", report.models.len(), report.controls.len());
    if !ok {
        Verdict::failed(tally, format!("{found}; {why_not}"))
    } else if tally.ran() == 0 {
        Verdict::failed(tally, "no model ran".to_owned())
    } else if tally.ran() == report.controls.len() as u64 {
        Verdict::failed(tally, "only negative controls ran, no model".to_owned())
    } else {
        Verdict::passed(tally, found)
    }
}

impl Report {
    fn of(lines: &[String]) -> Self {
        let mut report = Self::default();
        for line in lines {
            // Two tests run at once and share standard output, so a line may start within another.
            if let Some((name, values)) = model_line(line) {
                report.models.insert(name, values);
            }
            let names =
                line.match_indices("test ").filter_map(|(at, word)| test_name(&line[at + word.len()..]));
            for (name, is_control) in names {
                if is_control {
                    report.controls.insert(name.clone());
                }
                report.tests.insert(name);
            }
        }
        // The list at the end, not the word behind each name: that may have been torn off.
        let listed = lines.iter().filter_map(|line| line.strip_prefix("    "));
        report.failed = listed.filter(|name| report.tests.contains(*name)).map(str::to_owned).collect();
        report
    }

    fn table(&self) -> Table {
        let mut table = Table::new(["model"].into_iter().chain(COLUMNS));
        for (name, values) in &self.models {
            table.row([name.as_str()].into_iter().chain(values.iter().map(String::as_str)));
        }
        for name in &self.controls {
            let fails = !self.failed.contains(name);
            let word = if fails {
                "negative control: must fail, and does"
            } else {
                "negative control: DID NOT FAIL as told"
            };
            table.row([name.as_str(), word]);
        }
        for name in self.failed.difference(&self.controls) {
            table.row([name.as_str(), "FAILED"]);
        }
        table
    }

    /// Structures (`model::NAME`) of which no test is a negative control.
    fn without_control(&self) -> Vec<&str> {
        let controlled: BTreeSet<&str> = self.controls.iter().filter_map(|name| structure(name)).collect();
        let all: BTreeSet<&str> = self.tests.iter().filter_map(|name| structure(name)).collect();
        all.difference(&controlled).copied().collect()
    }
}

/// The structure that a model is about: the name behind `model::`.
fn structure(test: &str) -> Option<&str> {
    let (_, rest) = test.split_once("model::")?;
    Some(rest.split_once("::")?.0)
}

fn model_line(line: &str) -> Option<(String, Vec<String>)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.windows(3).position(|three| three[0] == "model" && three[2].contains('='))?;
    let value = |column: &str| {
        let (_, rest) = line.split_once(&format!(" {column}="))?;
        match rest.strip_prefix('"') {
            Some(quoted) => Some(quoted.split_once('"')?.0),
            None => rest.split_whitespace().next(),
        }
    };
    Some((words[at + 1].to_owned(), COLUMNS.map(|column| value(column).unwrap_or("?").to_owned()).to_vec()))
}

/// Name of the test in `NAME ... ok` or `NAME - should panic ... ok`, and whether it must panic.
fn test_name(rest: &str) -> Option<(String, bool)> {
    let (name, rest) = rest.split_once(' ')?;
    let is_control = rest.starts_with("- should panic ...");
    (name.contains("::") && (is_control || rest.starts_with("..."))).then(|| (name.to_owned(), is_control))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "running 3 tests\n\
        model slot::no_wake_is_lost threads=2 ops=\"send | turn\" bound=none executions=1234 interleavings=56 complete=yes\n\
        test model::slot::no_wake_is_lost ... ok\n\
        thread 'x' panicked at src/model/deque.rs:1:1:\n\
        test model::deque::naive_loses - should panic ... ok\n\
        test model::park::no_work_waits ... model park::no_work_waits threads=3 ops=2 bound=3 executions=9 interleavings=7 complete=no\n\
        ok\n\n\
        test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out; finished in 2.00s";

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn models_and_controls_are_read_even_from_torn_lines() {
        let report = Report::of(&lines(OUTPUT));
        assert_eq!(report.models["slot::no_wake_is_lost"], ["2", "send | turn", "none", "1234", "56", "yes"]);
        assert_eq!(report.models["park::no_work_waits"], ["3", "2", "3", "9", "7", "no"]);
        assert_eq!(report.controls.iter().collect::<Vec<_>>(), ["model::deque::naive_loses"]);
        assert_eq!(report.tests.len(), 3);
        assert_eq!(report.without_control(), ["park", "slot"]);
        let table = report.table().to_string();
        assert!(table.contains("1234") && table.contains("negative control"), "{table}");
    }

    #[test]
    fn what_failed_is_told_apart_in_the_table() {
        let report = Report::of(&lines(
            "test model::deque::naive_loses - should panic ... FAILED\ntest model::slot::holds ... FAILED\n\
             failures:\n    model::deque::naive_loses\n    model::slot::holds\n",
        ));
        let table = report.table().to_string();
        assert!(table.contains("naive_loses  negative control: DID NOT FAIL"), "{table}");
        assert!(table.contains("model::slot::holds         FAILED"), "{table}");
    }

    #[test]
    fn a_run_without_models_fails() {
        let empty = lines("running 0 tests\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured");
        assert!(judge(&Report::of(&empty), Tally::of(&empty), true, "").is_failure());
    }

    #[test]
    fn a_run_of_nothing_but_controls_fails() {
        let only = lines(
            "test model::deque::naive_loses - should panic ... ok\ntest result: ok. 1 passed; 0 failed;",
        );
        assert!(judge(&Report::of(&only), Tally::of(&only), true, "").is_failure());
    }

    #[test]
    fn a_failing_model_fails_the_run() {
        let all = lines(OUTPUT);
        assert!(!judge(&Report::of(&all), Tally::of(&all), true, "").is_failure());
        assert!(judge(&Report::of(&all), Tally::of(&all), false, "exit status: 101").is_failure());
    }
}
