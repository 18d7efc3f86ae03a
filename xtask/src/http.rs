//! `cargo xtask http`: HTTP plaintext by hyper on evener, hyper on tokio and Go's net/http, in turns.
//!
//! Every cell (so many workers, so many connections) is measured `reps` times. In each repetition the three
//! servers come one after the other, each in a program of its own and under the same load of `wrk`; who is
//! first changes from one repetition to the next. Given are medians, and of the figures of two servers in one
//! repetition the ratio, again as its median: what the machine did to one of them it mostly did to the other.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::house::House;
use crate::run::{Job, answers};
use crate::table::Table;

/// What is to be measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Comparison {
    /// How often each is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,
    /// How long each measurement takes; before it, a third of that is for warming up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    secs: u32,
    /// Workers of the servers; wrk gets as many threads
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [1, 2])]
    workers: Vec<u32>,
    /// Connections that are kept open
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [64, 1024])]
    connections: Vec<u32>,
    /// Which servers
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Server::ALL)]
    servers: Vec<Server>,
    /// Go's command
    #[arg(long, value_name = "PATH", default_value = "go")]
    go: String,
    /// Limit the time for the head of a request to so many seconds: a timer for each request
    #[arg(long, value_name = "N")]
    head_secs: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
enum Server {
    Evener,
    Tokio,
    Go,
}

impl Server {
    const ALL: [Self; 3] = [Self::Evener, Self::Tokio, Self::Go];

    fn name(self) -> &'static str {
        match self {
            Self::Evener => "evener",
            Self::Tokio => "tokio",
            Self::Go => "go",
        }
    }
}

/// What wrk has seen.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Figures {
    per_sec: f64,
    /// Microseconds.
    p50: f64,
    p99: f64,
    errors: u64,
}

/// Measures and prints the tables; gives back whether there were no errors.
pub(crate) fn run(house: &House, comparison: &Comparison) -> Result<bool> {
    if !answers(&["sh", "-c", "command -v wrk"]) {
        bail!("wrk makes the load, and is not here: apt-get install wrk");
    }
    let programs = Programs::build(house, comparison)?;
    let mut table = Table::new(["workers", "connections", "server", "requests/s", "p50", "p99", "errors"]);
    let mut ratios = Table::new(["workers", "connections", "requests/s of", "median", "least", "most"]);
    let mut errors = 0;
    for &workers in &comparison.workers {
        for &connections in &comparison.connections {
            let seen = measure_cell(comparison, &programs, workers, connections)?;
            let cell = [workers.to_string(), connections.to_string()];
            for (at, server) in comparison.servers.iter().enumerate() {
                let of = |figure: fn(&Figures) -> f64| median(seen.iter().map(|rep| figure(&rep[at])));
                let failed: u64 = seen.iter().map(|rep| rep[at].errors).sum();
                errors += failed;
                let [workers, connections] = cell.clone();
                table.row([
                    workers,
                    connections,
                    server.name().to_owned(),
                    format!("{:.0}", of(|figures| figures.per_sec)),
                    shown(of(|figures| figures.p50)),
                    shown(of(|figures| figures.p99)),
                    failed.to_string(),
                ]);
            }
            let Some(ours) = comparison.servers.iter().position(|server| *server == Server::Evener) else {
                continue;
            };
            for (at, server) in comparison.servers.iter().enumerate().filter(|(at, _)| *at != ours) {
                let pairs = || seen.iter().map(|rep| rep[ours].per_sec / rep[at].per_sec);
                let [workers, connections] = cell.clone();
                ratios.row([
                    workers,
                    connections,
                    format!("evener / {}", server.name()),
                    format!("{:.2}", median(pairs())),
                    format!("{:.2}", pairs().fold(f64::INFINITY, f64::min)),
                    format!("{:.2}", pairs().fold(0.0, f64::max)),
                ]);
            }
        }
    }
    println!(
        "\nmedians of {} repetitions of {} s each:\n\n{table}\n{ratios}",
        comparison.reps, comparison.secs
    );
    Ok(errors == 0)
}

/// For each repetition, the figures of each server in the order of `comparison.servers`.
fn measure_cell(
    comparison: &Comparison,
    programs: &Programs,
    workers: u32,
    connections: u32,
) -> Result<Vec<Vec<Figures>>> {
    let count = comparison.servers.len();
    let mut seen = Vec::new();
    for rep in 0..comparison.reps {
        let mut figures = vec![None; count];
        for turn in 0..count {
            let at = (turn + rep as usize) % count;
            let server = comparison.servers[at];
            let running = programs.start(server, workers, comparison.head_secs)?;
            let load = |secs| wrk(workers, connections, secs, running.port);
            load(comparison.secs.div_ceil(3))?;
            let seen = load(comparison.secs)?;
            println!(
                "{workers} workers, {connections} connections, {}/{}: {:6} {:9.0} requests/s, p50 {}, p99 {}",
                rep + 1,
                comparison.reps,
                server.name(),
                seen.per_sec,
                shown(seen.p50),
                shown(seen.p99)
            );
            figures[at] = Some(seen);
        }
        seen.push(figures.into_iter().flatten().collect());
    }
    Ok(seen)
}

/// The servers, built.
struct Programs {
    rust: PathBuf,
    go: PathBuf,
}

impl Programs {
    fn build(house: &House, comparison: &Comparison) -> Result<Self> {
        let programs = Self {
            rust: house.target.join("release/evener-bench-http"),
            go: house.target.join("release/evener-bench-http-go"),
        };
        let build = "cargo build --release -p evener-bench-http".split(' ');
        must(&Job::new(build).limit(Duration::from_secs(1800)))?;
        if comparison.servers.contains(&Server::Go) {
            if !answers(&[&comparison.go, "version"]) {
                bail!(
                    "no `{}` here: apt-get install golang-go, name it by --go, or leave it out by --servers",
                    comparison.go
                );
            }
            let words =
                [&comparison.go, "build", "-buildvcs=false", "-o", &programs.go.display().to_string(), "."];
            let build = Job::new(words).dir(&house.root.join("bench/http/go"));
            // The toolchain that is here, not another one from the network.
            must(&build.env("GOTOOLCHAIN", "local").env("GOCACHE", house.target.join("go")))?;
        }
        Ok(programs)
    }

    fn start(&self, server: Server, workers: u32, head_secs: Option<u32>) -> Result<Running> {
        let program: &Path = if server == Server::Go { &self.go } else { &self.rust };
        let mut command = Command::new(program);
        command.args(["--workers", &workers.to_string()]);
        if let Some(secs) = head_secs {
            command.args(["--head-secs", &secs.to_string()]);
        }
        if server != Server::Go {
            command.args(["--runtime", server.name()]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut running = Running { child: child.with_context(|| format!("start {server:?}"))?, port: 0 };
        let mut line = String::new();
        if let Some(out) = running.child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let port = line.trim().strip_prefix("LISTENING ").and_then(|port| port.parse().ok());
        running.port = port.with_context(|| format!("{server:?} does not say where it listens: `{line}`"))?;
        Ok(running)
    }
}

fn must(job: &Job) -> Result<()> {
    let ran = job.run()?;
    ensure!(ran.ok, "`{}`: {}", job.text(), ran.why_not);
    Ok(())
}

/// A server that runs, and ends with this.
struct Running {
    child: Child,
    port: u16,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wrk(threads: u32, connections: u32, secs: u32, port: u16) -> Result<Figures> {
    let job = Job::new(["wrk", "--latency", "--timeout", "10s"])
        .args([format!("-t{threads}"), format!("-c{connections}"), format!("-d{secs}s")])
        .args([format!("http://127.0.0.1:{port}/")])
        .limit(Duration::from_secs(u64::from(secs) + 60))
        .quiet();
    let ran = job.run()?;
    ensure!(ran.ok, "`{}`: {}\n{}", job.text(), ran.why_not, ran.lines.join("\n"));
    figures(&ran.lines).with_context(|| format!("wrk said:\n{}", ran.lines.join("\n")))
}

/// Reads wrk's report; `None`: something is missing in it.
fn figures(lines: &[String]) -> Option<Figures> {
    let after = |start: &str| lines.iter().find_map(|line| line.trim().strip_prefix(start)).map(str::trim);
    let mut errors = 0;
    if let Some(sockets) = after("Socket errors:") {
        errors +=
            sockets.split(", ").filter_map(|part| part.split(' ').nth(1)?.parse::<u64>().ok()).sum::<u64>();
    }
    if let Some(others) = after("Non-2xx or 3xx responses:") {
        errors += others.parse::<u64>().ok()?;
    }
    Some(Figures {
        per_sec: after("Requests/sec:")?.parse().ok()?,
        p50: micros(after("50%")?)?,
        p99: micros(after("99%")?)?,
        errors,
    })
}

/// A time as wrk writes it, in microseconds.
fn micros(text: &str) -> Option<f64> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 6e7), ("h", 3.6e9)];
    units.iter().find_map(|(unit, factor)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor))
}

fn shown(micros: f64) -> String {
    match micros {
        ..1e3 => format!("{micros:.0} us"),
        ..1e6 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
Running 2s test @ http://127.0.0.1:8080/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   612.28us    1.05ms  21.31ms   97.86%
    Req/Sec   130.21k    11.35k  149.65k    75.00%
  Latency Distribution
     50%  456.00us
     75%  521.00us
     90%  733.00us
     99%    5.12ms
  258612 requests in 2.00s, 32.31MB read
Requests/sec: 129245.12
Transfer/sec:     16.15MB
";

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_report_of_wrk_is_read() {
        let expected = Figures { per_sec: 129_245.12, p50: 456.0, p99: 5120.0, errors: 0 };
        assert_eq!(figures(&lines(REPORT)), Some(expected));
    }

    #[test]
    fn errors_of_wrk_are_counted() {
        let bad = REPORT.replace(
            "Requests/sec",
            "  Socket errors: connect 1, read 20, write 300, timeout 4000\n  Non-2xx or 3xx responses: 50000\nRequests/sec",
        );
        assert_eq!(figures(&lines(&bad)).unwrap().errors, 54_321);
    }

    #[test]
    fn a_report_that_lacks_something_is_none() {
        for missing in ["Requests/sec:", "50%", "99%"] {
            assert_eq!(figures(&lines(&REPORT.replace(missing, ""))), None, "{missing}");
        }
    }

    #[test]
    fn times_have_units() {
        for (text, expected) in [("7.50us", 7.5), ("1.02ms", 1020.0), ("2.00s", 2e6), ("1.50m", 9e7)] {
            let read = micros(text).unwrap();
            assert!((read - expected).abs() < 1e-6, "{text}: {read}");
        }
        assert_eq!(micros("nan"), None);
    }

    #[test]
    fn the_median_is_that_of_the_middle() {
        assert!((median([3.0, 1.0, 2.0].into_iter()) - 2.0).abs() < 1e-9);
        assert!((median([4.0, 1.0, 2.0, 3.0].into_iter()) - 2.5).abs() < 1e-9);
    }
}
