//! Models: each runs the production code under loom, in every interleaving that its bound allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p evener-scheduler --lib --release model::` runs them;
//! `cargo xtask models` collects their lines. A negative control is a `should_panic` test that names
//! its message: it shows that the model beside it can fail.
//!
//! Each model is run twice:
//!
//! 1. *As it is* (`executions`): a load may return any value that the memory model allows, so a missing
//!    Release, Acquire or fence shows. But loom 0.7.3 does not try every order of acts: of the loads of
//!    an atomic it remembers the last one only, and code that loads before its CAS hides others' loads
//!    from itself.
//! 2. *With loads that conflict* (`interleavings`): every order of acts within the bound is tried, and
//!    each load returns the newest value; see `sync::with_conflicting_loads`.
//!
//! `complete=yes` says that loom came to the end of both.
//!
//! What neither can show:
//!
//! - loom runs a load after the stores that it may read, so it never lets a load return a store from
//!   its future (load buffering). Where a proof rests on that, the file of the structure says so.
//! - A stale value in an order of acts that only the second run tries.
//! - loom weakens SeqCst loads and stores: store-then-look protocols use fences or read-modify-writes.
//! - A wait with a limit ends by a notification only: loom has no clock.

mod budget;
mod deque;
mod event_queue;
mod fifo;
mod global;
mod idle;
mod inject;
mod lend;
mod mailbox;
mod next;
mod poller;
mod slot;
mod task;
mod trace;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::{AtomicU32, Relaxed, SeqCst, fence, thread, with_conflicting_loads};

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

/// Runs `model` twice, as the top of this file says, and prints one line on how far that went.
pub(crate) fn check(info: ModelInfo, model: impl Fn() + Sync + Send + 'static) {
    let start = now();
    let model = Arc::new(model);
    let stale = explore(&info, Arc::clone(&model), false);
    let newest = explore(&info, model, true);
    println!(
        "model {} threads={} ops=\"{}\" bound={} executions={} interleavings={} complete={} ms={}",
        info.name,
        info.threads,
        info.operations,
        stale.bound.map_or_else(|| "none".to_owned(), |bound| bound.to_string()),
        stale.executions,
        newest.executions,
        if stale.is_complete && newest.is_complete { "yes" } else { "no" },
        (now() - start).as_millis(),
    );
}

struct Explored {
    executions: usize,
    bound: Option<usize>,
    is_complete: bool,
}

fn explore(
    info: &ModelInfo,
    model: Arc<impl Fn() + Sync + Send + 'static>,
    conflicting_loads: bool,
) -> Explored {
    let mut builder = loom::model::Builder::new();
    builder.checkpoint_interval = LOOK_INTERVAL;
    builder.preemption_bound = info.preemption_bound.or(builder.preemption_bound);
    let (max_executions, max_duration) = (builder.max_permutations, builder.max_duration);
    let bound = builder.preemption_bound;
    // loom does not tell how often it ran, nor whether it ended or gave up: we count, and ask its
    // own condition for giving up again.
    let executions = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&executions);
    let start = now();
    with_conflicting_loads(conflicting_loads, || {
        builder.check(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            model();
        });
    });
    let executions = executions.load(Ordering::Relaxed);
    let is_at_a_look = (executions + 1).is_multiple_of(LOOK_INTERVAL);
    let is_over = max_executions.is_some_and(|max| executions + 1 >= max)
        || max_duration.is_some_and(|max| now() - start >= max);
    Explored { executions, bound, is_complete: !(is_at_a_look && is_over) }
}

#[allow(clippy::disallowed_methods, reason = "how long a model took is the machine's time")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
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
