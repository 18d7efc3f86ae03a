//! A supervised job on real input: the words of this repository's own text, counted by processes of
//! which some crash on purpose, and compared with a plain count.
//!
//! A *desk* hands each file to one of the named counters and waits for the answer. A counter that crashes
//! takes the file it was at down with it; the desk hears that there will be no answer and hands the file
//! out again. The supervisor starts the counter anew, and what else waited for its name is there.
//!
//! `cargo run --release -p evener-scheduler --example word_count -- [--rounds N] [--crashes N] [--workers N]`
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "an example reads the clock to say how long it took")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use evener_scheduler::supervisor::{ChildSpec, Restart, RestartPolicy, Supervisor, SupervisorEvent};
use evener_scheduler::{
    Actor, AskError, Context, Event, Events, Process, ProcessError, Reply, Scheduler, SpawnOptions,
    StepOutput, Tag,
};

const COUNTERS: usize = 4;

type Counts = BTreeMap<String, u64>;

/// One file for a counter.
struct Job {
    text: Arc<str>,
    /// The counter is to crash instead of counting.
    crash: bool,
    reply: Reply<Counts>,
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty() && !word.starts_with(|c: char| c.is_ascii_digit()))
        .map(str::to_lowercase)
}

fn count(text: &str) -> Counts {
    let mut counts = Counts::new();
    for word in words(text) {
        *counts.entry(word).or_default() += 1;
    }
    counts
}

struct Counter;

impl Process for Counter {
    fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        for event in events {
            match event {
                Event::Message(message) => {
                    let job = message.take::<Job>().map_err(|other| {
                        ProcessError::new(format_args!("not a job: {:?}", other.payload()))
                    })?;
                    assert!(!job.crash, "a crash on purpose");
                    job.reply.send(count(&job.text));
                }
                Event::Cancel(_) => out.done(()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Hands files out and sums what comes back.
struct Desk {
    files: Vec<Arc<str>>,
    rounds: usize,
    crashes: usize,
    /// Jobs handed out so far, repeats not counted.
    handed_out: usize,
    done: usize,
    repeated: usize,
    sum: Counts,
    result: mpsc::Sender<(Counts, usize)>,
}

/// At most so many files are out at a time.
const OUT_MAX: usize = 64;

impl Desk {
    fn jobs(&self) -> usize {
        self.files.len() * self.rounds
    }

    fn hand_out(&mut self, job: usize, first_time: bool, cx: &mut Context<'_, ()>) {
        // Crashes are spread evenly over the jobs, each at the job's first attempt.
        let every = (self.jobs() / self.crashes.max(1)).max(1);
        let crash = first_time && self.crashes > 0 && job % every == every / 2;
        let text = Arc::clone(&self.files[job % self.files.len()]);
        let reply = cx.open_reply(Tag(job as u64), None);
        let name = format!("counter {}", job % COUNTERS);
        // While a counter is being started anew its name holds what is sent to it.
        if let Err(error) = cx.raw().send_named(&name, Job { text, crash, reply }) {
            eprintln!("word_count: could not send to {name}: {error}");
        }
    }

    fn hand_out_next(&mut self, cx: &mut Context<'_, ()>) {
        if self.handed_out < self.jobs() {
            self.handed_out += 1;
            self.hand_out(self.handed_out - 1, true, cx);
        }
    }
}

impl Actor for Desk {
    type Message = ();

    fn started(&mut self, cx: &mut Context<'_, ()>) {
        for _ in 0..OUT_MAX.min(self.jobs()) {
            self.hand_out_next(cx);
        }
    }

    fn handle(&mut self, (): (), _cx: &mut Context<'_, ()>) {}

    fn event(&mut self, event: Event, cx: &mut Context<'_, ()>) {
        let Event::YieldComplete { tag, result } = event else {
            return;
        };
        match AskError::read::<Counts>(result) {
            Ok(counts) => {
                for (word, count) in counts {
                    *self.sum.entry(word).or_default() += count;
                }
                self.done += 1;
                self.hand_out_next(cx);
            }
            Err(AskError::NoReply) => {
                self.repeated += 1;
                self.hand_out(tag.0 as usize, false, cx);
            }
            Err(other) => eprintln!("word_count: job {}: {other}", tag.0),
        }
        if self.done == self.jobs() {
            // The main thread waits for it; if it has gone there is nobody to tell.
            let _ = self.result.send((std::mem::take(&mut self.sum), self.repeated));
            cx.stop();
        }
    }
}

/// The text files below a folder, sorted.
fn text_files(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        if entry.file_type()?.is_dir() {
            if name != "target" && !name.to_string_lossy().starts_with('.') {
                text_files(&path, files)?;
            }
        } else if path.extension().is_some_and(|ending| ending == "rs" || ending == "md" || ending == "toml")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

struct Settings {
    rounds: usize,
    crashes: usize,
    workers: usize,
}

fn settings() -> Result<Settings, String> {
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut settings = Settings { rounds: 20, crashes: 12, workers };
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let place = match flag.as_str() {
            "--rounds" => &mut settings.rounds,
            "--crashes" => &mut settings.crashes,
            "--workers" => &mut settings.workers,
            _ => {
                return Err(format!(
                    "unknown argument `{flag}`; there are --rounds N, --crashes N, --workers N"
                ));
            }
        };
        let value = arguments.next().ok_or_else(|| format!("{flag} needs a number"))?;
        *place = value.parse().map_err(|_| format!("{flag} needs a number, not `{value}`"))?;
    }
    if settings.rounds == 0 {
        return Err("--rounds must be at least 1".to_owned());
    }
    Ok(settings)
}

fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let settings = settings()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let mut paths = Vec::new();
    text_files(&root, &mut paths)?;
    let mut files: Vec<Arc<str>> = Vec::new();
    for path in &paths {
        files.push(std::fs::read_to_string(path)?.into());
    }
    let bytes: usize = files.iter().map(|text| text.len()).sum();
    let jobs = files.len() * settings.rounds;
    println!(
        "{} files of this repository, {:.1} MB of text, counted {} times by {COUNTERS} supervised processes on \
         {} workers; {} of them are to crash",
        files.len(),
        bytes as f64 / 1e6,
        settings.rounds,
        settings.workers,
        settings.crashes
    );

    // The crashes are meant: a line for each would hide the rest.
    std::panic::set_hook(Box::new(|_| {}));
    let restarts = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&restarts);
    let scheduler = Scheduler::builder().workers(settings.workers).start()?;
    let policy = RestartPolicy::new()
        .initial_delay(Duration::from_millis(1))
        .max_delay(Duration::from_millis(20))
        .max_attempts(u32::MAX);
    let mut supervisor = Supervisor::new().policy(policy).observe(move |event| {
        if matches!(event, SupervisorEvent::RestartsIn { .. }) {
            seen.fetch_add(1, Ordering::Relaxed);
        }
    });
    for counter in 0..COUNTERS {
        let name = format!("counter {counter}");
        supervisor =
            supervisor.child(ChildSpec::new(&name, || Counter).name(&name).restart(Restart::Permanent));
    }
    let family = supervisor.start(&scheduler, SpawnOptions::new())?;
    // Answers once the children are there.
    family.children(&scheduler, Duration::from_secs(10))?;

    let began = Instant::now();
    let (result, counted) = mpsc::channel();
    scheduler.spawn_actor(Desk {
        files: files.clone(),
        rounds: settings.rounds,
        crashes: settings.crashes,
        handed_out: 0,
        done: 0,
        repeated: 0,
        sum: Counts::new(),
        result,
    })?;
    let (sum, repeated) = counted.recv()?;
    let took = began.elapsed();

    let mut plain = Counts::new();
    for text in &files {
        for (word, count) in count(text) {
            *plain.entry(word).or_default() += count * settings.rounds as u64;
        }
    }
    let exact = sum == plain;
    let total: u64 = sum.values().sum();
    println!(
        "{jobs} files counted in {:.2} s: {total} words, {:.1} million a second; {} crashes, {repeated} files \
         handed out again",
        took.as_secs_f64(),
        total as f64 / 1e6 / took.as_secs_f64(),
        restarts.load(Ordering::Relaxed)
    );
    let mut most: Vec<_> = sum.iter().filter(|(word, _)| word.len() > 3).collect();
    most.sort_by(|one, other| other.1.cmp(one.1).then(one.0.cmp(other.0)));
    let most: Vec<_> = most.iter().take(8).map(|(word, count)| format!("{word} {count}")).collect();
    println!("most frequent: {}", most.join(", "));
    println!("compared with a plain count: {}", if exact { "equal, word for word" } else { "NOT EQUAL" });
    println!("\n{}", scheduler.stats());
    let report = scheduler.shutdown(Duration::from_secs(5));
    println!(
        "shutdown: {} finished, {} ended by force, {} still running, {} not reached",
        report.finished,
        report.ended_by_force,
        report.still_running.len(),
        report.not_reached
    );
    Ok(exact && report.still_running.is_empty() && repeated == restarts.load(Ordering::Relaxed))
}

fn main() -> std::process::ExitCode {
    match run() {
        Ok(true) => std::process::ExitCode::SUCCESS,
        Ok(false) => std::process::ExitCode::FAILURE,
        Err(error) => {
            eprintln!("word_count: {error}");
            std::process::ExitCode::from(2)
        }
    }
}
