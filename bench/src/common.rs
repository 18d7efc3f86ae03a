//! What the workloads share: the clock, the message, the latch, latencies, the output line.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Condvar, LazyLock, Mutex};
use std::time::Instant;

/// What processes send each other: 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Msg {
    pub(crate) kind: u32,
    pub(crate) from: u32,
    pub(crate) val: u64,
}

pub(crate) const KICK: u32 = 0;
pub(crate) const DATA: u32 = 1;
pub(crate) const PING: u32 = 2;
pub(crate) const PONG: u32 = 3;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

pub(crate) fn now_ns() -> u64 {
    START.elapsed().as_nanos() as u64
}

pub(crate) fn spin_until(end: u64) {
    while now_ns() < end {
        std::hint::spin_loop();
    }
}

/// Processes count it down, the main thread waits for zero.
pub(crate) struct Latch {
    left: AtomicUsize,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Latch {
    pub(crate) fn new(left: usize) -> &'static Latch {
        Box::leak(Box::new(Latch {
            left: AtomicUsize::new(left),
            open: Mutex::new(left == 0),
            opened: Condvar::new(),
        }))
    }

    #[inline]
    pub(crate) fn dec(&self) {
        if self.left.fetch_sub(1, AcqRel) == 1 {
            *self.open.lock().unwrap() = true;
            self.opened.notify_all();
        }
    }

    pub(crate) fn wait(&self) {
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.opened.wait(open).unwrap();
        }
    }
}

/// A value of `/proc/self/status`, in KiB.
pub(crate) fn status_kb(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}

/// Latencies, a place for each sample: no lock on the measured path.
pub(crate) struct Latencies {
    samples: Vec<AtomicU64>,
    next: AtomicUsize,
}

impl Latencies {
    pub(crate) fn new(count: usize) -> Self {
        // Written once, so that the pages are there.
        Self { samples: (0..count).map(|_| AtomicU64::new(1)).collect(), next: AtomicUsize::new(0) }
    }

    #[inline]
    pub(crate) fn record(&self, nanos: u64) -> usize {
        let index = self.next.fetch_add(1, AcqRel);
        if let Some(sample) = self.samples.get(index) {
            sample.store(nanos, Release);
        }
        index + 1
    }

    pub(crate) fn count(&self) -> usize {
        self.next.load(Acquire).min(self.samples.len())
    }

    pub(crate) fn sorted(&self) -> Vec<u64> {
        let mut sorted: Vec<u64> =
            self.samples[..self.count()].iter().map(|sample| sample.load(Acquire)).collect();
        sorted.sort_unstable();
        sorted
    }
}

fn percentile(sorted: &[u64], part: f64) -> f64 {
    let index = ((sorted.len() as f64 * part).ceil() as usize).clamp(1, sorted.len()) - 1;
    sorted[index] as f64 / 1000.0
}

/// One workload's result.
pub(crate) struct Out {
    ops: u64,
    seconds: f64,
    pub(crate) extra: String,
}

impl Out {
    pub(crate) fn new(ops: u64, began: u64) -> Self {
        Self { ops, seconds: (now_ns() - began) as f64 / 1e9, extra: String::new() }
    }

    pub(crate) fn latencies(mut self, name: &str, sorted: &[u64]) -> Self {
        if !sorted.is_empty() {
            self.extra += &format!(
                ",\"{name}p50_us\":{:.3},\"{name}p99_us\":{:.3},\"{name}p999_us\":{:.3},\"{name}max_us\":{:.3}",
                percentile(sorted, 0.5),
                percentile(sorted, 0.99),
                percentile(sorted, 0.999),
                sorted[sorted.len() - 1] as f64 / 1000.0
            );
        }
        self
    }

    pub(crate) fn print(&self, workload: &str, workers: usize) {
        println!(
            "{{\"engine\":\"evener\",\"workload\":\"{workload}\",\"workers\":{workers},\"ops\":{},\"seconds\":{:.6},\"ops_per_s\":{:.1},\"peak_rss_kb\":{}{}}}",
            self.ops,
            self.seconds,
            self.ops as f64 / self.seconds,
            status_kb("VmHWM"),
            self.extra
        );
    }
}
