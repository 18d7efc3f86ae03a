//! A host in one line, every so often.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::settings::{Sink, say};
use crate::clock;
use crate::process::contain;
use crate::route::host::{Engine, Hub, Phase};
use crate::sync::Relaxed;

/// A host as of about now, and what it did since the last summary. Printed, it is one line:
///
/// ```text
/// main 2000ms: workers=2 idle=1 searching=0 global=0 local=[3 0] turns/s=1250301 steals=12 parks=40
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The host's name.
    pub host: String,
    /// Since the summaries began.
    pub time: Duration,
    /// Since the last summary.
    pub interval: Duration,
    /// Workers asleep.
    pub idle: usize,
    /// Workers that look for work.
    pub searching: usize,
    /// Processes in the global queue.
    pub queued_global: usize,
    /// Processes in the queues of each worker.
    pub queued_local: Vec<usize>,
    /// Turns begun in the interval, idle looks included.
    pub turns: u64,
    /// Successful steals in the interval; 0 without the feature `stats`.
    pub steals: u64,
    /// Times a worker went to sleep in the interval; 0 without the feature `stats`.
    pub parks: u64,
}

impl Summary {
    /// Turns begun in a second.
    #[must_use]
    pub fn turns_per_sec(&self) -> u64 {
        let per_sec = u128::from(self.turns) * 1_000_000_000 / self.interval.as_nanos().max(1);
        u64::try_from(per_sec).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, time, idle, searching, queued_global, queued_local, steals, parks, .. } = self;
        let (millis, workers) = (time.as_millis(), queued_local.len());
        write!(f, "{} {millis}ms: workers={workers} idle={idle} ", host.escape_debug())?;
        write!(f, "searching={searching} global={queued_global} local=[")?;
        for (worker, queued) in queued_local.iter().enumerate() {
            write!(f, "{}{queued}", if worker == 0 { "" } else { " " })?;
        }
        write!(f, "] turns/s={} steals={steals} parks={parks}", self.turns_per_sec())
    }
}

/// Turns, steals and parks so far.
fn sums(hub: &Hub) -> [u64; 3] {
    hub.workers.iter().fold([0; 3], |[turns, steals, parks], worker| {
        let counters = &worker.counters;
        [
            turns + counters.turns.load(Relaxed),
            steals + counters.steals.load(Relaxed),
            parks + counters.parks.load(Relaxed),
        ]
    })
}

/// The life of the thread that makes summaries.
pub(super) fn run(engine: &Arc<Engine>, interval: Duration, sink: Option<Sink>) {
    let mut sink = sink.unwrap_or_else(|| Box::new(|summary| say(&summary.to_string())));
    let hub = engine.hub;
    let began = clock::now_nanos();
    let (mut last_at, mut last) = (began, sums(hub));
    let mut due = clock::deadline(began, interval);
    loop {
        let now = clock::now_nanos();
        if hub.phase() == Phase::Gone {
            break;
        }
        if now < due {
            engine.observers.parker.park(Some(Duration::from_nanos(due - now)));
            continue;
        }
        // Not one after the other if the machine, or the sink, was slow.
        due = clock::deadline(now, interval);
        let sums = sums(hub);
        let [turns, steals, parks] = std::array::from_fn(|at| sums[at].wrapping_sub(last[at]));
        let (idle, searching) = hub.idle.counts();
        let summary = Summary {
            host: engine.name.clone(),
            time: Duration::from_nanos(now - began),
            interval: Duration::from_nanos(now - last_at),
            idle,
            searching,
            queued_global: hub.global.len(),
            queued_local: hub
                .workers
                .iter()
                .map(|worker| worker.queued())
                .map(|(a, b, c)| a + b + c)
                .collect(),
            turns,
            steals,
            parks,
        };
        (last_at, last) = (now, sums);
        if let Err(panic) = contain(|| sink(&summary)) {
            say(&format!("the sink for summaries of host {:?} panicked: {panic}", engine.name));
            break;
        }
    }
    // The user's: its drop may panic too.
    let _ = contain(|| drop(sink));
}
