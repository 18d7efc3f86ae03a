//! What a runtime worker did, as numbers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use evener_store::StoreError;
use evener_store::batch::{Appended, InstanceCommit};

/// Counts since the worker began. Each is exact; together they are no snapshot.
#[derive(Debug, Default)]
pub struct Metrics {
    appended: AtomicU64,
    duplicates: AtomicU64,
    batches: AtomicU64,
    committed: AtomicU64,
    calls: AtomicU64,
    errors: AtomicU64,
    fenced: AtomicU64,
    dead_workers: AtomicU64,
    store_faults: AtomicU64,
    fired: AtomicU64,
    fired_late_max_ms: AtomicU64,
}

/// [`Metrics`] as they were read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events that were appended here.
    pub appended: u64,
    /// Appends that were there already.
    pub duplicates: u64,
    /// Commits.
    pub batches: u64,
    /// Rows that those ended or put off.
    pub committed: u64,
    /// Calls that ended.
    pub calls: u64,
    /// Those of them that failed.
    pub errors: u64,
    /// Writes that were refused because another worker owns the instance.
    pub fenced: u64,
    /// Workers that this one judged dead.
    pub dead_workers: u64,
    /// Calls of the store that failed.
    pub store_faults: u64,
    /// Events that schedules became.
    pub fired: u64,
    /// How late the latest of them was when it was found, in milliseconds by the store's clock.
    pub fired_late_max_ms: u64,
}

impl Metrics {
    /// All counts.
    #[must_use]
    pub fn read(&self) -> Counts {
        Counts {
            appended: self.appended.load(Relaxed),
            duplicates: self.duplicates.load(Relaxed),
            batches: self.batches.load(Relaxed),
            committed: self.committed.load(Relaxed),
            calls: self.calls.load(Relaxed),
            errors: self.errors.load(Relaxed),
            fenced: self.fenced.load(Relaxed),
            dead_workers: self.dead_workers.load(Relaxed),
            store_faults: self.store_faults.load(Relaxed),
            fired: self.fired.load(Relaxed),
            fired_late_max_ms: self.fired_late_max_ms.load(Relaxed),
        }
    }

    pub(crate) fn appended(&self, reports: &[Appended]) {
        let new = reports.iter().filter(|report| matches!(report, Appended::New { .. })).count();
        self.appended.fetch_add(new as u64, Relaxed);
        self.duplicates.fetch_add((reports.len() - new) as u64, Relaxed);
    }

    pub(crate) fn committed(&self, batch: &[InstanceCommit]) {
        self.batches.fetch_add(1, Relaxed);
        let rows: usize = batch.iter().map(|commit| commit.ends.len()).sum();
        self.committed.fetch_add(rows as u64, Relaxed);
    }

    pub(crate) fn called(&self, has_failed: bool) {
        self.calls.fetch_add(1, Relaxed);
        if has_failed {
            self.errors.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn fenced(&self) {
        self.fenced.fetch_add(1, Relaxed);
    }

    pub(crate) fn workers_died(&self, dead: usize) {
        self.dead_workers.fetch_add(dead as u64, Relaxed);
    }

    pub(crate) fn fired(&self, events: usize, late: std::time::Duration) {
        self.fired.fetch_add(events as u64, Relaxed);
        self.fired_late_max_ms.fetch_max(u64::try_from(late.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(crate) fn store_failed(&self, _: &StoreError) {
        self.store_faults.fetch_add(1, Relaxed);
    }
}
