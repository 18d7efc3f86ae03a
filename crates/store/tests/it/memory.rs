//! The plain model keeps the claims.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use evener_actor::event::Timestamp;
use evener_store::conformance::Harness;
use evener_store::conformance::model::{self, Tally};
use evener_store::{Memory, Store};

struct InMemory {
    clock: Arc<AtomicI64>,
    store: Memory,
}

impl InMemory {
    fn new() -> Self {
        // Some time in 2027.
        let clock = Arc::new(AtomicI64::new(1_800_000_000_000));
        let store = Memory::new({
            let clock = Arc::clone(&clock);
            move || Timestamp(clock.load(Ordering::SeqCst))
        });
        Self { clock, store }
    }
}

impl Harness for InMemory {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.another())
    }

    fn second(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(self.store.another()))
    }

    fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).expect("claims do not last that long");
        self.clock.fetch_add(by, Ordering::SeqCst);
    }
}

evener_store::conformance_tests!(InMemory::new());

#[test]
fn a_walk_beside_itself_agrees_and_meets_everything() {
    let mut met = Tally::new();
    for seed in 0..8 {
        for (what, count) in model::walk(&InMemory::new(), seed, 400) {
            *met.entry(what).or_default() += count;
        }
    }
    let wanted = [
        "append",
        "new",
        "duplicate",
        "conflict",
        "claimed",
        "orphan",
        "commit",
        "committed",
        "fenced",
        "release",
        "advance",
        "died",
        "lease",
        "fan out",
        "release the lease",
        "write schedules",
        "set",
        "unchanged",
        "cancelled",
        "not there",
        "fire",
        "fired",
        "not fired",
        "redrive",
        "drop a letter",
        "unpark",
        "mark",
        "purge",
        "unblock",
        "unblocked",
        "deploy",
        "pause",
        "prune",
        "sent twice",
    ];
    let missing: Vec<_> =
        wanted.into_iter().filter(|what| met.get(what).is_none_or(|count| *count < 3)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "hardly met: {met:?}");
}

/// The clock of this one goes half as far as it is told to.
struct Slow(InMemory);

impl Harness for Slow {
    fn store(&self) -> Arc<dyn Store> {
        self.0.store()
    }

    fn second(&self) -> Option<Arc<dyn Store>> {
        self.0.second()
    }

    fn advance(&self, by: Duration) {
        self.0.advance(by / 2);
    }
}

#[test]
fn a_walk_beside_another_store_does_not_agree() {
    let disagree = (0..5)
        .filter(|seed| std::panic::catch_unwind(|| model::walk(&Slow(InMemory::new()), *seed, 400)).is_err())
        .count();
    assert_eq!(disagree, 5);
}
