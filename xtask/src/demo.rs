//! `cargo xtask demo`: evener at work, on input that is not ours.

use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use crate::house::{House, RootKind};

mod flights;
mod words;

/// Which demo.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Demo {
    #[command(flatten)]
    flights: flights::Flights,
    #[command(subcommand)]
    other: Option<Other>,
}

#[derive(Debug, Subcommand)]
enum Other {
    /// The scheduler alone: a supervised job with a crash in it, and its statistics
    Words {
        /// Handed to the example as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

/// Runs it; gives back whether it ended well.
pub(crate) fn run(house: &House, demo: &Demo) -> Result<bool> {
    match &demo.other {
        None => flights::run(house, &demo.flights),
        Some(Other::Words { args }) => words::run(house, args),
    }
}

/// Builds an example of a crate and runs it with the terminal as its own; gives back whether it ended well.
fn example(house: &House, member: &str, example: &str, args: &[String]) -> Result<bool> {
    if house.member(member)?.root(example, RootKind::Example).is_none() {
        bail!("the demo is the example `{example}` of {member}, and it is not there");
    }
    println!("building the demo (the first time takes one to three minutes) ...");
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--release", "-p", member, "--example", example, "--"]).args(args);
    let status = cargo.status().context("start cargo for the demo")?;
    Ok(status.success())
}
