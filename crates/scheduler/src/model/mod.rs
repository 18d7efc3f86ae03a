//! Models: each runs the production code under loom, in every interleaving that its bound allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p evener-scheduler --lib --release model::` runs them;
//! `cargo xtask models` collects their lines. A negative control is a `should_panic` test that names
//! its message: it shows that the model beside it can fail.
//!
//! What loom cannot show:
//!
//! - It runs a load after the stores that it may read, so it never lets a load return a store from
//!   its future (load buffering). Where a proof rests on that, the file of the structure says so.
//! - It weakens SeqCst loads and stores: store-then-look protocols use fences or read-modify-writes.
//! - Of the loads of an atomic, loom 0.7.3 remembers the last one only. A thread that loads and then
//!   stores hides, by its own load, an earlier load of another thread from its store, and the order
//!   "store, then that other load" is never tried (tokio-rs/loom issues 166 and 392). So
//!   `complete=yes` says that loom had nothing left to try, not that it tried all. The models of
//!   `queues` were also run on a loom that remembers every load since the last store, and hold
//!   there. Where it would make a model blind, each act first takes its turn at a counter, by a
//!   Relaxed read-modify-write: that orders the acts in every way and publishes nothing.

mod deque;
mod fifo;
mod global;
mod inject;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::sync::{AtomicU32, Relaxed, SeqCst, fence, thread};

/// Executions between two looks at the limits of `LOOM_MAX_DURATION` and `LOOM_MAX_PERMUTATIONS`.
const LOOK_INTERVAL: usize = 1_000;

/// What a model is, for its line in the report.
pub(crate) struct ModelInfo {
    pub(crate) name: &'static str,
    /// The one that sets up and joins included.
    pub(crate) threads: usize,
    /// Acts of each thread, threads separated by `|`.
    pub(crate) operations: &'static str,
    /// Most preemptions in one execution; without it all are explored.
    pub(crate) preemption_bound: Option<usize>,
}

/// Runs `model` in every interleaving and prints one line on how far that went.
pub(crate) fn check(info: ModelInfo, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.checkpoint_interval = LOOK_INTERVAL;
    builder.preemption_bound = info.preemption_bound.or(builder.preemption_bound);
    let (max_executions, max_duration) = (builder.max_permutations, builder.max_duration);
    let bound = builder.preemption_bound;
    // loom does not tell how often it ran, nor whether it ended or gave up: we count, and ask its
    // own condition for giving up again.
    let executions = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&executions);
    let start = Instant::now();
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let elapsed = start.elapsed();
    let executions = executions.load(Ordering::Relaxed);
    let is_at_a_look = (executions + 1) % LOOK_INTERVAL == 0;
    let is_over = max_executions.is_some_and(|max| executions + 1 >= max)
        || max_duration.is_some_and(|max| elapsed >= max);
    println!(
        "model {} threads={} ops=\"{}\" bound={} executions={executions} complete={} ms={}",
        info.name,
        info.threads,
        info.operations,
        bound.map_or_else(|| "none".to_owned(), |bound| bound.to_string()),
        if is_at_a_look && is_over { "no" } else { "yes" },
        elapsed.as_millis(),
    );
}

/// The rule for who parks and who pushes (see `queues`), for one queue: of a push and a look with
/// fences beside them, one side sees the other. `push` runs in a second thread.
fn a_fenced_look_or_the_pusher_sees<Q: Send + Sync + 'static>(
    queue: Q,
    fenced: bool,
    push: impl FnOnce(&Q) + Send + 'static,
    is_empty: impl FnOnce(&Q) -> bool,
) {
    let shared = loom::sync::Arc::new((queue, AtomicU32::new(0)));
    let pusher = {
        let shared = shared.clone();
        thread::spawn(move || {
            let (queue, parks) = &*shared;
            push(queue);
            if fenced {
                fence(SeqCst);
            }
            parks.load(Relaxed) == 1
        })
    };
    let (queue, parks) = &*shared;
    parks.store(1, Relaxed);
    if fenced {
        fence(SeqCst);
    }
    let parked_on_empty = is_empty(queue);
    let pusher_wakes = pusher.join().unwrap();
    assert!(!parked_on_empty || pusher_wakes, "an item waits and everybody sleeps");
}
