//! A year of departures from New York, one durable actor for each aircraft.
//!
//! Every departure is an event in a stream; it goes to the aircraft that flew it, whose calls are grouped by
//! carrier, and changes its logbook exactly once. Some flights arm a timer for their arrival. At the end all
//! logbooks are compared with a plain count over the same file. `cargo xtask demo` fetches the file of 2013 and
//! runs this; without it, a sample lies beside this source:
//!
//! ```sh
//! cargo run --release -p evener --example flights -- --store memory
//! ```
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "an example")]

mod aircraft;
mod departures;
mod job;
mod plain;
mod summary;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use evener::{Runtime, Store};
use evener_store::postgres::throwaway::Cluster;
use indicatif::{ProgressBar, ProgressStyle};

/// A year of departures from New York, one durable actor for each aircraft.
#[derive(Debug, Parser)]
struct Args {
    /// The file of departures
    #[arg(long, value_name = "PATH", default_value_os_t = sample())]
    csv: PathBuf,
    /// Path of an SQLite file, `memory`, the URL of a PostgreSQL database, or `postgres`: a server of its own,
    /// thrown away at the end
    #[arg(long, value_name = "STORE", default_value = "flights.db")]
    store: String,
    /// Only so many departures
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Every how many departures a timer tells of the arrival; 0: none does
    #[arg(long, value_name = "N", default_value_t = 50)]
    timer_every: usize,
    /// How many departures come one by one at the end, to measure latency
    #[arg(long, value_name = "N", default_value_t = 500)]
    live: usize,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/flights/sample.csv")
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Gives back whether all states are what they should be.
fn run(args: &Args) -> Result<bool, Box<dyn Error>> {
    let text = std::fs::read_to_string(&args.csv)
        .map_err(|error| format!("read {}: {error}", args.csv.display()))?;
    let rows = text.lines().skip(1).count().min(args.limit.unwrap_or(usize::MAX));
    let plan = job::Plan { rows, timer_every: args.timer_every, live: args.live.min(rows / 2) };
    let expected = plain::count(&text, &plan);

    // It lives till the end of this function.
    let (_cluster, store) = match &*args.store {
        "postgres" => {
            let cluster = Cluster::start(&[])?;
            let url = cluster.database("flights")?;
            (Some(cluster), Store::Postgres(url))
        }
        other => (None, Store::from(other)),
    };
    let probe = Arc::new(aircraft::Probe::default());
    let runtime =
        Runtime::builder().store(store).actor(aircraft::Aircraft { probe: Arc::clone(&probe) }).start()?;
    let bar = bar(rows as u64 - expected.nameless + expected.timers);
    let report = job::run(&runtime, &probe, &text, &plan, &expected, &mut |progress| {
        bar.set_position(progress.processed);
        bar.set_message(format!("{} appended", summary::grouped(progress.appended)));
    });
    bar.finish_and_clear();
    let report = report?;
    runtime.stop(Duration::from_secs(10))?;

    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", summary::text(&report, &args.store));
    }
    Ok(report.differences.is_empty() && report.dead_letters == 0)
}

/// On the terminal, if standard error is one.
fn bar(events: u64) -> ProgressBar {
    let style = "{elapsed_precise} {wide_bar} {human_pos}/{human_len} events, {per_sec}, {msg}";
    ProgressBar::new(events).with_style(ProgressStyle::with_template(style).expect("a template"))
}
