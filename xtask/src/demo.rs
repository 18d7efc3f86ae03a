//! `cargo xtask demo`: the scheduler at work on this repository's own text.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::house::{House, RootKind};

const EXAMPLE: &str = "word_count";

/// Runs the example with the terminal as its own; gives back whether it ended well.
pub(crate) fn run(house: &House, args: &[String]) -> Result<bool> {
    let scheduler = house.member("evener-scheduler")?;
    if scheduler.root(EXAMPLE, RootKind::Example).is_none() {
        let place = Path::new("examples").join(format!("{EXAMPLE}.rs"));
        let place = house.shown(&scheduler.dir.join(place));
        bail!("the demo is the scheduler's example `{EXAMPLE}`, and {place} is not there");
    }
    println!("building the demo (the first time takes one to two minutes) ...");
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--release", "-p", "evener-scheduler", "--example", EXAMPLE, "--"]).args(args);
    let status = cargo.status().context("start cargo for the demo")?;
    Ok(status.success())
}
