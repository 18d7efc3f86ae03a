//! `evener-bench`: evener on the workloads that in-process schedulers and actor runtimes are compared on.
//!
//! One workload for each run, one JSON line on standard output.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock and waits")]

mod common;
mod durable;
mod echo;
mod futures;
mod grow;
mod latency;
mod memory;
mod messages;
mod tasks;

use clap::Parser;
use common::Out;
use evener_scheduler::Scheduler;

/// Runs one workload and prints one JSON line.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Arguments {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    engine: Option<Engine>,
}

#[derive(clap::Subcommand)]
enum Other {
    /// Keyed events and unkeyed jobs through streams, queues and commits; prints `@phase` and `@result` lines.
    Durable(durable::Durable),
}

#[derive(clap::Args)]
struct Engine {
    /// Accepted and ignored: there is one engine.
    #[arg(long, default_value = "evener")]
    engine: String,
    /// Which workload: spawn, spawn_nested, yield, ping_pong_1, ping_pong_1000, ring, fan_in, fan_out,
    /// big, memory, wake, fairness_hog, fairness_yield, fairness_block; tcp_echo, which serves till it is
    /// killed; and grow: cost at 10 to 1,000,000 processes, a line for each.
    #[arg(long)]
    workload: String,
    /// Do the work with futures, join handles and channels in place of processes and messages: spawn,
    /// spawn_nested, yield, ping_pong_1, ping_pong_1000, ring and fan_in only.
    #[arg(long)]
    futures: bool,
    /// How many workers.
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// The size of the workload; what it counts depends on the workload, and so does the default.
    #[arg(long)]
    n: Option<u64>,
    /// Where `tcp_echo` listens; 0: where the system likes.
    #[arg(long, default_value_t = 0)]
    port: u16,
}

fn main() {
    let arguments = Arguments::parse();
    if let Some(Other::Durable(sizes)) = arguments.other {
        if let Err(error) = durable::run(sizes) {
            eprintln!("evener-bench: {error}");
            std::process::exit(1);
        }
        return;
    }
    let Some(Engine { workload, workers, n, port, futures: with_futures, .. }) = arguments.engine else {
        eprintln!("evener-bench: --workload says which; see --help");
        std::process::exit(2);
    };
    let scheduler = match Scheduler::builder().workers(workers).start() {
        Ok(scheduler) => scheduler,
        Err(error) => {
            eprintln!("evener-bench: {error}");
            std::process::exit(2);
        }
    };
    std::thread::sleep(std::time::Duration::from_millis(50));
    let out = match workload.as_str() {
        "spawn" if with_futures => futures::spawn(&scheduler, n.unwrap_or(1_000_000)),
        "spawn_nested" if with_futures => futures::nested(&scheduler, n.unwrap_or(1_000_000)),
        "yield" if with_futures => futures::yields(&scheduler, n.unwrap_or(1_000)),
        "ping_pong_1" if with_futures => futures::ping_pong(&scheduler, 1, n.unwrap_or(1_000_000)),
        "ping_pong_1000" if with_futures => futures::ping_pong(&scheduler, 1000, n.unwrap_or(1_000_000)),
        "ring" if with_futures => futures::ring(&scheduler, n.unwrap_or(1_000_000)),
        "fan_in" if with_futures => futures::fan_in(&scheduler, n.unwrap_or(2_000_000)),
        other if with_futures => {
            eprintln!("evener-bench: `{other}` has no form with futures; see --help");
            std::process::exit(2);
        }
        "spawn" => tasks::spawn(&scheduler, n.unwrap_or(1_000_000)),
        "spawn_nested" => tasks::nested(&scheduler, n.unwrap_or(1_000_000)),
        "yield" => tasks::yields(&scheduler, n.unwrap_or(1_000)),
        "ping_pong_1" => messages::ping_pong(&scheduler, 1, n.unwrap_or(1_000_000)),
        "ping_pong_1000" => messages::ping_pong(&scheduler, 1000, n.unwrap_or(1_000_000)),
        "ring" => messages::ring(&scheduler, n.unwrap_or(1_000_000)),
        "fan_in" => messages::fan_in(&scheduler, n.unwrap_or(2_000_000)),
        "fan_out" => messages::fan_out(&scheduler, n.unwrap_or(100)),
        "big" => messages::big(&scheduler, n.unwrap_or(1_000)),
        "memory" => memory::idle(&scheduler, n.unwrap_or(1_000_000)),
        "wake" => latency::wake(&scheduler, n.unwrap_or(100_000) as usize),
        "fairness_hog" => latency::fairness(&scheduler, n.unwrap_or(10_000) as usize, latency::Hog::Mailbox),
        "fairness_yield" => {
            latency::fairness(&scheduler, n.unwrap_or(10_000) as usize, latency::Hog::Continue)
        }
        "fairness_block" => latency::block(&scheduler, n.unwrap_or(20) as usize),
        "grow" => grow::grow(&scheduler, n.unwrap_or(2_000_000)),
        "tcp_echo" => {
            if let Err(error) = echo::serve(&scheduler, port) {
                eprintln!("evener-bench: tcp_echo at port {port}: {error}");
                std::process::exit(1);
            }
            return;
        }
        other => {
            eprintln!("evener-bench: unknown workload `{other}`; see --help");
            std::process::exit(2);
        }
    };
    Out::print(&out, &workload, workers);
    // Not by return: a million processes need not be taken apart to end a benchmark.
    std::process::exit(0);
}
