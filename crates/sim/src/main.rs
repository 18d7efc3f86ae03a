//! `cargo sim`: worlds from seeds, and a line that says whether all held.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use evener_actor::policy::QueueMode;
use evener_sim::{Mutation, Options, Verdict, run};

/// Runs the durable life of actors in simulated worlds.
#[derive(Debug, Parser)]
#[command(name = "evener-sim")]
struct Arguments {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds, from that one on.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Actions before a world heals; 0: as many as usual.
    #[arg(long, default_value_t = 0)]
    steps: u64,
    /// Prints every action.
    #[arg(long)]
    trace: bool,
    /// Goes on after a world that failed, and counts them.
    #[arg(long)]
    all: bool,
    /// A fault that is put in on purpose, by its number.
    #[arg(long)]
    mutation: Option<usize>,
    /// A mode that queues have, instead of the usual ones; may be given again.
    #[arg(long)]
    mode: Vec<Mode>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Mode {
    Fifo,
    Priority,
    Lifo,
    Latest,
    Custom,
}

impl Mode {
    fn of_queue(self) -> QueueMode {
        match self {
            Self::Fifo => QueueMode::Fifo,
            Self::Priority => QueueMode::Priority,
            Self::Lifo => QueueMode::Lifo,
            Self::Latest => QueueMode::Latest,
            Self::Custom => QueueMode::Custom,
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mutation = match arguments.mutation.map(|number| Mutation::ALL.get(number)) {
        None => None,
        Some(Some(mutation)) => Some(*mutation),
        Some(None) => {
            eprintln!("mutations are {:?}, counted from 0", Mutation::ALL);
            return ExitCode::FAILURE;
        }
    };
    evener_sim::quiet_panics();
    let next = AtomicU64::new(0);
    let is_failed = std::sync::atomic::AtomicBool::new(false);
    let sum = Mutex::new(Sum::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if arguments.trace { 1 } else { threads };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= arguments.seeds || (is_failed.load(Ordering::Relaxed) && !arguments.all) {
                        return;
                    }
                    let options = Options {
                        seed: arguments.seed.wrapping_add(at),
                        steps: arguments.steps,
                        trace: arguments.trace,
                        mutation,
                        modes: arguments.mode.iter().map(|mode| mode.of_queue()).collect(),
                    };
                    let verdict = run(&options);
                    if verdict.violation.is_some() {
                        is_failed.store(true, Ordering::Relaxed);
                    }
                    if let Ok(mut sum) = sum.lock() {
                        sum.add(&verdict);
                    }
                }
            });
        }
    });
    let sum = sum.into_inner().unwrap_or_default();
    println!(
        "{} worlds from seed {}: {} failed; {} actions, {} events, {} rows, {} faults, trace {:016x}",
        sum.worlds, arguments.seed, sum.failed, sum.steps, sum.accepted, sum.ended, sum.faults, sum.trace
    );
    if sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[derive(Debug, Default)]
struct Sum {
    worlds: u64,
    failed: u64,
    steps: u64,
    accepted: u64,
    ended: u64,
    faults: u64,
    /// Of all worlds, in any order.
    trace: u64,
}

impl Sum {
    fn add(&mut self, verdict: &Verdict) {
        self.worlds += 1;
        self.steps += verdict.steps;
        self.accepted += verdict.accepted;
        self.ended += verdict.ended;
        self.faults += verdict.faults;
        self.trace ^= verdict.trace;
        if let Some(violation) = &verdict.violation {
            self.failed += 1;
            println!("seed {} failed at action {}: {violation}", verdict.seed, verdict.steps);
            println!("  replay: cargo sim --seed {} --trace", verdict.seed);
        }
    }
}
