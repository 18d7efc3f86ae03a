//! Wake latency and fairness: how long a message waits.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

use evener_scheduler::{
    Actor, Context, Events, Handle, Process, ProcessError, Scheduler, SpawnOptions, StepOutput,
};

use crate::common::{Latch, Latencies, Msg, Out, now_ns, spin_until};
use crate::messages::build;

const GAP_NS: u64 = 50_000;

const TOUCH: u32 = 10;
const PRE: u32 = 11;
const EXT: u32 = 12;
const BLOCK: u32 = 13;
const WARM: u32 = 14;
const HOG: u32 = 15;

/// Which always-runnable process stands in the way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hog {
    /// One that sends itself the next message.
    Mailbox,
    /// One that answers `Continue`.
    Continue,
}

thread_local!(static THREAD: Cell<usize> = const { Cell::new(0) });
static THREADS: AtomicUsize = AtomicUsize::new(1);

fn thread_number() -> usize {
    THREAD.with(|number| {
        if number.get() == 0 {
            number.set(THREADS.fetch_add(1, Relaxed));
        }
        number.get()
    })
}

struct Shared {
    /// All delays, or those of messages from outside.
    outside: Latencies,
    /// Those of messages that the blocker sent just before it blocked.
    before: Latencies,
    seen: AtomicUsize,
    blocking: AtomicUsize,
    touched: AtomicUsize,
    stop: AtomicBool,
    last_thread: Vec<AtomicUsize>,
    table: OnceLock<Vec<Handle<Msg>>>,
}

struct Probe {
    shared: &'static Shared,
    ready: &'static Latch,
    id: usize,
}

impl Actor for Probe {
    type Message = Msg;
    fn started(&mut self, _cx: &mut Context<'_, Msg>) {
        self.ready.dec();
    }
    fn handle(&mut self, message: Msg, cx: &mut Context<'_, Msg>) {
        let shared = self.shared;
        let send = |cx: &mut Context<'_, Msg>, to: usize, kind, val| {
            cx.tell(shared.table.get().unwrap()[to], Msg { kind, from: 0, val }).unwrap();
        };
        match message.kind {
            EXT => {
                let count = shared.outside.record(now_ns() - message.val);
                shared.seen.store(count, Release);
            }
            PRE => {
                shared.before.record(now_ns() - message.val);
            }
            TOUCH => {
                shared.last_thread[self.id].store(thread_number(), Release);
                shared.touched.fetch_add(1, AcqRel);
            }
            WARM => {
                for to in 1..shared.table.get().unwrap().len() {
                    send(cx, to, TOUCH, 0);
                }
                shared.last_thread[0].store(thread_number(), Release);
            }
            BLOCK => {
                for index in 0..message.val as usize {
                    send(cx, 1 + index, PRE, now_ns());
                }
                shared.blocking.store(thread_number(), Release);
                std::thread::sleep(Duration::from_millis(100));
                shared.blocking.store(0, Release);
            }
            HOG if !shared.stop.load(Relaxed) => send(cx, self.id, HOG, 0),
            _ => {}
        }
    }
}

fn probes(scheduler: &Scheduler, count: usize, outside: usize, before: usize) -> &'static Shared {
    let shared: &'static Shared = Box::leak(Box::new(Shared {
        outside: Latencies::new(outside),
        before: Latencies::new(before),
        seen: AtomicUsize::new(0),
        blocking: AtomicUsize::new(0),
        touched: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        last_thread: (0..count).map(|_| AtomicUsize::new(0)).collect(),
        table: OnceLock::new(),
    }));
    let ready = Latch::new(count);
    build(scheduler, &shared.table, count, ready, |id| Probe { shared, ready, id });
    shared
}

pub(crate) fn wake(scheduler: &Scheduler, samples: usize) -> Out {
    let shared = probes(scheduler, 1, samples, 0);
    let probe = shared.table.get().unwrap()[0];
    let began = now_ns();
    for sample in 0..samples {
        spin_until(now_ns() + GAP_NS);
        probe.tell(Msg { kind: EXT, from: 0, val: now_ns() }).unwrap();
        while shared.seen.load(Acquire) <= sample {
            std::hint::spin_loop();
        }
    }
    Out::new(samples as u64, began).latencies("", &shared.outside.sorted())
}

struct Continuing {
    shared: &'static Shared,
    running: &'static Latch,
    has_run: bool,
}

impl Process for Continuing {
    fn step(&mut self, _events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        if !std::mem::replace(&mut self.has_run, true) {
            self.running.dec();
        }
        if self.shared.stop.load(Relaxed) {
            out.done(());
        } else {
            out.continue_soon();
        }
        Ok(())
    }
}

pub(crate) fn fairness(scheduler: &Scheduler, samples: usize, hog: Hog) -> Out {
    let shared = probes(scheduler, 1001, samples, 0);
    let table = shared.table.get().unwrap();
    match hog {
        Hog::Mailbox => table[0].tell(Msg { kind: HOG, from: 0, val: 0 }).unwrap(),
        Hog::Continue => {
            let running = Latch::new(1);
            let process = Continuing { shared, running, has_run: false };
            scheduler.spawn(process, SpawnOptions::new()).unwrap();
            running.wait();
        }
    }
    std::thread::sleep(Duration::from_millis(20));
    let began = now_ns();
    for sample in 0..samples {
        spin_until(now_ns() + GAP_NS);
        table[1 + sample % 1000].tell(Msg { kind: EXT, from: 0, val: now_ns() }).unwrap();
    }
    let limit = now_ns() + 5_000_000_000;
    while shared.outside.count() < samples && now_ns() < limit {
        std::thread::sleep(Duration::from_millis(1));
    }
    let starved = samples - shared.outside.count();
    shared.stop.store(true, SeqCst);
    while shared.outside.count() < samples {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut out = Out::new(samples as u64, began).latencies("", &shared.outside.sorted());
    out.extra += &format!(",\"starved\":{starved}");
    out
}

pub(crate) fn block(scheduler: &Scheduler, rounds: usize) -> Out {
    const PROCESSES: usize = 64;
    const PER_ROUND: usize = 50;
    let wait = || std::thread::sleep(Duration::from_millis(1));
    let shared = probes(scheduler, 1 + PROCESSES, rounds * PER_ROUND, rounds * PER_ROUND);
    let table = shared.table.get().unwrap();
    let mut on_blocked = 0;
    let began = now_ns();
    for round in 0..rounds {
        let before = shared.touched.load(Acquire);
        table[0].tell(Msg { kind: WARM, from: 0, val: 0 }).unwrap();
        while shared.touched.load(Acquire) < before + PROCESSES {
            wait();
        }
        std::thread::sleep(Duration::from_millis(5));
        table[0].tell(Msg { kind: BLOCK, from: 0, val: PER_ROUND as u64 }).unwrap();
        let blocked = loop {
            let thread = shared.blocking.load(Acquire);
            if thread != 0 {
                break thread;
            }
            std::thread::sleep(Duration::from_micros(100));
        };
        let mut targets: Vec<usize> =
            (1..=PROCESSES).filter(|&id| shared.last_thread[id].load(Acquire) == blocked).collect();
        on_blocked += targets.len();
        if targets.is_empty() {
            targets = (1..=PROCESSES).collect();
        }
        for index in 0..PER_ROUND {
            wait();
            let to = table[targets[index % targets.len()]];
            to.tell(Msg { kind: EXT, from: 0, val: now_ns() }).unwrap();
        }
        let all = (round + 1) * PER_ROUND;
        while shared.outside.count() < all || shared.before.count() < all {
            wait();
        }
        while shared.blocking.load(Acquire) != 0 {
            wait();
        }
    }
    let (outside, before) = (shared.outside.sorted(), shared.before.sorted());
    let mut all = [outside.clone(), before.clone()].concat();
    all.sort_unstable();
    let mut out = Out::new((rounds * PER_ROUND * 2) as u64, began)
        .latencies("", &all)
        .latencies("ext_", &outside)
        .latencies("pre_", &before);
    let over =
        |sorted: &[u64]| sorted.iter().filter(|&&delay| delay > 20_000_000).count() as f64 / rounds as f64;
    out.extra += &format!(
        ",\"procs_last_on_blocked_worker\":{:.1},\"pre_over_20ms_per_round\":{:.2},\"ext_over_20ms_per_round\":{:.2}",
        on_blocked as f64 / rounds as f64,
        over(&before),
        over(&outside)
    );
    out
}
