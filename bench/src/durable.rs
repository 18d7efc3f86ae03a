//! `evener-bench durable`: keyed events and unkeyed jobs through streams, queues and commits.
//!
//! Three phases on an empty store: append everything with no worker running; start a worker and wait till
//! the queue is empty; then one event every so often, from its planned moment to the commit of its effect.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use evener::prelude::*;
use serde::{Deserialize, Serialize};

/// Sizes, from the environment where flags are silent: N, K, WORKLOAD, CAP_S, LAT_SECS, LAT_RATE, DATABASE_URL.
#[derive(clap::Args)]
pub(crate) struct Durable {
    /// `sqlite` (a fresh file, `synchronous=FULL`), `memory`, or `postgres`, which is at DATABASE_URL.
    #[arg(long, env = "STORE")]
    store: Option<String>,
    /// Events.
    #[arg(long, env = "N", default_value_t = 20_000)]
    n: u64,
    /// Keys.
    #[arg(long, env = "K", default_value_t = 100)]
    k: u64,
    /// keyed-events or unkeyed.
    #[arg(long, env = "WORKLOAD", default_value = "keyed-events")]
    workload: String,
    /// Seconds after which a drain is cut off.
    #[arg(long, env = "CAP_S", default_value_t = 45)]
    cap_s: u64,
    /// Seconds of the latency phase; 0: none.
    #[arg(long, env = "LAT_SECS", default_value_t = 10)]
    lat_secs: u64,
    /// Events a second in the latency phase.
    #[arg(long, env = "LAT_RATE", default_value_t = 50)]
    lat_rate: u64,
    /// The database, for `postgres`.
    #[arg(long, env = "DATABASE_URL")]
    database_url: Option<String>,
    /// Workers of the scheduler; as many as cores where nothing is said.
    #[arg(long)]
    workers: Option<usize>,
    /// Events in one commit, at most.
    #[arg(long)]
    batch: Option<usize>,
    /// Commits under way at once.
    #[arg(long)]
    lanes: Option<u16>,
    /// Where the file of `sqlite` goes; a fresh folder of the system's where nothing is said.
    #[arg(long)]
    dir: Option<PathBuf>,
}

#[derive(Serialize, Deserialize, Default, Clone)]
struct Count {
    n: u64,
}

#[derive(Deserialize)]
struct Numbered {
    i: u64,
}

/// Adds one for each event, and watches their order.
struct Counter {
    last: Arc<HashMap<String, AtomicU64>>,
    violations: Arc<AtomicU64>,
    is_counting: bool,
}

impl Actor for Counter {
    type State = Count;
    type Event = Numbered;

    fn definition(&self) -> ActorDefinition {
        ActorDefinition::new("counter".parse().expect("a name")).subscribe(Subscription::new(
            "events".parse().expect("a name"),
            Path::new("subject").expect("a path"),
        ))
    }

    async fn process(&self, cx: &mut Context<Count>, event: Numbered) -> Result<(), Failure> {
        if !self.is_counting {
            return Ok(());
        }
        if let Some(last) = self.last.get(cx.key().as_str())
            && last.fetch_max(event.i + 1, Ordering::Relaxed) > event.i + 1
        {
            self.violations.fetch_add(1, Ordering::Relaxed);
        }
        cx.update(|count| count.n += 1)?;
        Ok(())
    }
}

fn key(i: u64, k: u64) -> u64 {
    i.wrapping_mul(2_654_435_761) % k
}

fn event(i: u64, k: u64) -> Event {
    Event::new("tick", format!("{{\"i\":{i}}}")).with_subject(format!("k{}", key(i, k)))
}

/// Runs it and prints `@phase` and `@result` lines. Gives back the exit code.
pub(crate) fn run(mut sizes: Durable) -> Result<(), Box<dyn std::error::Error>> {
    let is_keyed = sizes.workload.starts_with("keyed");
    if !is_keyed {
        // Jobs without a key: as many lines as a user would let run at once.
        sizes.k = 64;
    }
    let kind = match (&sizes.store, &sizes.database_url) {
        (Some(kind), _) => kind.clone(),
        (None, Some(_)) => "postgres".to_owned(),
        (None, None) => "sqlite".to_owned(),
    };
    let dir = sizes
        .dir
        .clone()
        .unwrap_or_else(std::env::temp_dir)
        .join(format!("evener-bench-{}", std::process::id()));
    let store = match kind.as_str() {
        "memory" => evener::Store::memory(),
        "sqlite" => {
            std::fs::create_dir_all(&dir)?;
            evener::Store::from(&*dir.join("bench.db"))
        }
        "postgres" => evener::Store::from(sizes.database_url.clone().ok_or("postgres needs DATABASE_URL")?),
        other => return Err(format!("no store `{other}`").into()),
    };
    let result = phases(&sizes, &store, is_keyed);
    if kind == "sqlite" {
        let _ = std::fs::remove_dir_all(&dir);
    }
    result
}

fn phases(sizes: &Durable, store: &evener::Store, is_keyed: bool) -> Result<(), Box<dyn std::error::Error>> {
    let Durable { n, k, .. } = *sizes;
    let last: Arc<HashMap<String, AtomicU64>> =
        Arc::new((0..k).map(|key| (format!("k{key}"), AtomicU64::new(0))).collect());
    let violations = Arc::new(AtomicU64::new(0));
    let builder = || {
        let counter =
            Counter { last: Arc::clone(&last), violations: Arc::clone(&violations), is_counting: is_keyed };
        let mut builder = Runtime::builder().store(store.clone()).actor(counter);
        if let Some(workers) = sizes.workers {
            builder = builder.workers(workers);
        }
        builder.config(|config| {
            if let Some(batch) = sizes.batch {
                config.batch_events_max = batch;
            }
            if let Some(lanes) = sizes.lanes {
                config.commit_lanes = lanes;
            }
        })
    };

    let runtime = builder().append_only().start()?;
    phase("enqueue");
    let begin = Instant::now();
    let (tell, told) = mpsc::channel();
    let mut calls = 0;
    let mut i = 0;
    while i < n {
        let events = (i..n.min(i + 1024)).map(|i| event(i, k)).collect();
        i += 1024;
        let tell = tell.clone();
        calls += 1;
        runtime.append_then("events", events, move |result| drop(tell.send(result.map(drop))));
    }
    for _ in 0..calls {
        told.recv()??;
    }
    let enqueue_eps = n as f64 / begin.elapsed().as_secs_f64();
    runtime.stop(Duration::from_secs(10))?;

    phase("drain");
    let begin = Instant::now();
    let runtime = builder().start()?;
    let cap = Duration::from_secs(sizes.cap_s);
    let is_capped = match runtime.wait_idle(cap) {
        Ok(()) => false,
        Err(_) if begin.elapsed() >= cap => true,
        Err(error) => return Err(error.into()),
    };
    let took = begin.elapsed().as_secs_f64();
    let done = runtime.counts().committed;
    let drain_eps = done as f64 / took;

    phase("latency");
    let mut latencies = Vec::new();
    if !is_capped && sizes.lat_secs > 0 {
        let period = Duration::from_nanos(1_000_000_000 / sizes.lat_rate.max(1));
        let begin = Instant::now();
        for number in 0..sizes.lat_secs * sizes.lat_rate {
            let planned = begin + period * u32::try_from(number)?;
            std::thread::sleep(planned.saturating_duration_since(Instant::now()));
            runtime.append("events", event(n + number, k))?;
            while runtime.counts().committed < done + number + 1 {
                std::thread::sleep(Duration::from_micros(20));
            }
            latencies.push(planned.elapsed().as_secs_f64() * 1e3);
        }
    }
    phase("end");

    let more = latencies.len() as u64;
    let sum = if is_keyed && !is_capped {
        let mut sum = 0;
        for key in 0..k {
            sum += runtime.state::<Count>("counter", &format!("k{key}"))?.unwrap_or_default().n;
        }
        if sum != n + more {
            return Err(format!("the counters say {sum}, {} events were sent", n + more).into());
        }
        sum
    } else {
        done + more
    };
    let counts = runtime.counts();
    runtime.stop(Duration::from_secs(10))?;
    latencies.sort_by(f64::total_cmp);
    let at = |share: f64| {
        (!latencies.is_empty()).then(|| latencies[((latencies.len() - 1) as f64 * share).round() as usize])
    };
    println!(
        "@result {}",
        serde_json::json!({
            "n": n, "k": k, "done": done, "sum": sum,
            "enqueue_eps": enqueue_eps, "drain_eps": drain_eps,
            "p50_ms": at(0.5), "p99_ms": at(0.99),
            "order_violations": violations.load(Ordering::Relaxed),
            "capped": is_capped,
            "batches": counts.batches, "per_batch": counts.committed as f64 / counts.batches.max(1) as f64,
        })
    );
    Ok(())
}

fn phase(name: &str) {
    use std::io::Write;
    println!("@phase {name}");
    let _ = std::io::stdout().flush();
}
