//! Stress with an oracle: random topologies, worker counts and acts; then everything is counted.
//!
//! What must hold, whatever happens:
//! - a process gets the messages of one sender in order, none twice and none left out (but by a reset of
//!   its own), and a message accepted while the process lives on does reach it;
//! - each message is taken once or dropped once; each body is dropped once, and closed once if it began;
//! - each process that was let in completes once; who monitors hears once.
//!
//! `EVENER_STRESS_SECS` says how long (3 s by default), `EVENER_STRESS_SEED` with which seed. The oracle
//! is made of atomics: ThreadSanitizer with a prebuilt std reports its contended locks falsely.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use evener_scheduler::commands::{Cancel, Link, Lookup, Monitor, Register, Sleep, Terminate, Unlink};
use evener_scheduler::{
    Budget, Event, Events, ExitReason, InitContext, LifecycleHooks, Package, Payload, Pid, Process,
    ProcessError, Scheduler, SendError, SpawnOptions, StepOutput, Tag, Topic, blocking, send,
};

use crate::support::{LIMIT, Rng, from_env, quiet_panics};

/// A value behind a lock made of one atomic.
pub(crate) struct Spin<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `with` lets one thread at a time to the value.
unsafe impl<T: Send> Sync for Spin<T> {}

impl<T> Spin<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        while self.taken.swap(true, SeqCst) {
            std::thread::yield_now();
        }
        // SAFETY: the flag is ours till the store below.
        let result = act(unsafe { &mut *self.value.get() });
        self.taken.store(false, SeqCst);
        result
    }
}

const PLACES: usize = 128;
const ENDS: usize = 1 << 16;

/// The oracle.
struct World {
    places: Vec<Spin<Option<Pid>>>,
    /// How much may still be sent.
    fuel: AtomicI64,
    next_sender: AtomicU64,
    created: AtomicU64,
    received: AtomicU64,
    dropped: AtomicU64,
    bodies: AtomicU64,
    bodies_dropped: AtomicU64,
    births: AtomicU64,
    completed: AtomicU64,
    /// Those that have completed: an open hash table of PIDs, 0 for none.
    ends: Vec<AtomicU64>,
    /// What went wrong.
    faults: Spin<Vec<String>>,
    is_quiet: AtomicBool,
}

impl World {
    fn new(fuel: i64) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            places: (0..PLACES).map(|_| Spin::new(None)).collect(),
            fuel: AtomicI64::new(fuel),
            next_sender: zero(),
            created: zero(),
            received: zero(),
            dropped: zero(),
            bodies: zero(),
            bodies_dropped: zero(),
            births: zero(),
            completed: zero(),
            ends: (0..ENDS).map(|_| zero()).collect(),
            faults: Spin::new(Vec::new()),
            is_quiet: AtomicBool::new(false),
        }
    }

    fn fault(&self, text: String) {
        self.faults.with(|faults| faults.push(text));
    }

    fn somebody(&self, rng: &mut Rng) -> Option<Pid> {
        self.places[rng.below(PLACES as u64) as usize].with(|pid| *pid)
    }

    fn place(&self, rng: &mut Rng, pid: Pid) {
        self.places[rng.below(PLACES as u64) as usize].with(|place| *place = Some(pid));
    }

    fn burn(&self) -> bool {
        self.fuel.fetch_sub(1, SeqCst) > 0
    }

    /// Notes an end; `false`: it was noted before.
    fn note_end(&self, pid: Pid) -> bool {
        let key = u64::from(pid.local().slot()) << 32 | u64::from(pid.local().generation());
        let mut index = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) as usize;
        loop {
            match self.ends[index].compare_exchange(0, key, SeqCst, SeqCst) {
                Ok(_) => return true,
                Err(other) if other == key => return false,
                Err(_) => index = (index + 1) % ENDS,
            }
        }
    }
}

struct Hooks(Arc<World>);

impl LifecycleHooks for Hooks {
    fn on_start(&self, _: Pid, _: &'static str) -> Result<(), ProcessError> {
        // Also of those who are refused after it: their end is heard, too.
        self.0.births.fetch_add(1, SeqCst);
        Ok(())
    }
    fn on_complete(&self, pid: Pid, _: &ExitReason, _: Option<&Payload>) {
        if !self.0.note_end(pid) {
            self.0.fault(format!("{pid} completed twice"));
        }
        self.0.completed.fetch_add(1, SeqCst);
    }
}

/// A message that knows whether it was taken.
struct Numbered {
    world: Arc<World>,
    from: u32,
    number: u32,
    hops: u32,
    taken: bool,
}

impl Drop for Numbered {
    fn drop(&mut self) {
        if !self.taken {
            self.world.dropped.fetch_add(1, SeqCst);
        }
    }
}

/// One sender: it numbers what each receiver accepts.
struct Sends {
    world: Arc<World>,
    id: u32,
    numbers: BTreeMap<Pid, u32>,
}

impl Sends {
    fn new(world: &Arc<World>) -> Self {
        let id = world.next_sender.fetch_add(1, SeqCst) as u32;
        Self { world: Arc::clone(world), id, numbers: BTreeMap::new() }
    }

    fn send(&mut self, to: Pid, hops: u32, budget: Option<Budget>, out: Option<&mut StepOutput<'_>>) {
        let number = self.numbers.get(&to).copied().unwrap_or(0) + 1;
        self.world.created.fetch_add(1, SeqCst);
        let message = Numbered { world: Arc::clone(&self.world), from: self.id, number, hops, taken: false };
        let mut package = Package::new(to, message);
        if let Some(budget) = budget {
            package = package.budget(budget).topic(Topic::new("stress.budget"));
        }
        let sent = match out {
            Some(out) => out.send_package(package),
            None => send(package),
        };
        match sent {
            Ok(()) => drop(self.numbers.insert(to, number)),
            Err(SendError::Closed(_) | SendError::Dropped { .. }) => {}
            Err(other) => self.world.fault(format!("send to {to}: {other}")),
        }
    }
}

struct Node {
    rng: Rng,
    sends: Sends,
    last: BTreeMap<u32, u32>,
    /// Numbers may be left out since a reset, or a message held back by hand.
    may_skip: bool,
    monitored: Vec<Pid>,
    begun: bool,
    closed: u32,
    /// Its contents went on to a successor.
    stubborn: bool,
    held: Vec<evener_scheduler::Message>,
}

impl Node {
    fn new(world: &Arc<World>, seed: u64) -> Self {
        world.bodies.fetch_add(1, SeqCst);
        let mut rng = Rng::new(seed);
        let stubborn = rng.below(10) == 0;
        Self {
            rng,
            sends: Sends::new(world),
            last: BTreeMap::new(),
            may_skip: false,
            monitored: Vec::new(),
            begun: false,
            closed: 0,
            stubborn,
            held: Vec::new(),
        }
    }

    fn took(&mut self, me: Pid, mut message: Numbered) -> u32 {
        message.taken = true;
        let world = &self.sends.world;
        world.received.fetch_add(1, SeqCst);
        let last = self.last.insert(message.from, message.number).unwrap_or(0);
        let right = if self.may_skip { message.number > last } else { message.number == last + 1 };
        if !right {
            world.fault(format!("{me} got {} of sender {} after {last}", message.number, message.from));
        }
        message.hops
    }

    fn act(&mut self, out: &mut StepOutput<'_>, hops: u32) {
        let world = Arc::clone(&self.sends.world);
        if hops == 0 || !world.burn() {
            return;
        }
        let rng = &mut self.rng;
        let somebody = world.somebody(rng);
        let tag = Tag(rng.next());
        let me = out.self_pid();
        match (rng.below(41), somebody) {
            (0..22, Some(pid)) => {
                self.sends.send(pid, hops - 1, None, Some(out));
                if self.rng.below(3) == 0 {
                    self.sends.send(me, hops - 1, None, Some(out));
                }
            }
            (22..25, Some(pid)) => {
                let budget = Budget::items(rng.below(20) as usize).and_bytes(400);
                self.sends.send(pid, hops - 1, Some(budget), Some(out));
            }
            (25..28, _) => {
                let node = Node::new(&world, rng.next());
                let mut options = SpawnOptions::new();
                if rng.below(3) == 0 {
                    options = options.linked();
                }
                let monitored = rng.below(3) == 0;
                if monitored {
                    options = options.monitored();
                }
                if let Ok(pid) = out.spawn(node, options) {
                    world.place(rng, pid);
                    if monitored {
                        self.monitored.push(pid);
                    }
                    self.sends.send(pid, hops - 1, None, Some(out));
                }
            }
            (28, Some(pid)) => out.command(tag, Terminate { pid, reason: "stress".into() }),
            (29, Some(pid)) => {
                let deadline = (rng.below(2) == 0).then(|| Duration::from_micros(rng.below(500)));
                out.command(tag, Cancel { pid, reason: "stress".into(), deadline });
            }
            (30, Some(pid)) => {
                if pid != me && !self.monitored.contains(&pid) {
                    self.monitored.push(pid);
                    out.command(tag, Monitor { pid });
                }
            }
            (31, Some(pid)) => out.command(tag, Link { pid }),
            (32, Some(pid)) => out.command(tag, Unlink { pid }),
            (33, _) => out.command(tag, Sleep(Duration::from_micros(rng.below(300)))),
            (34, _) => out.trap_exits(rng.below(2) == 0),
            (35, Some(pid)) => {
                let name = format!("stress.{}", rng.below(8));
                if rng.below(2) == 0 {
                    out.command(tag, Register { name, pid });
                } else {
                    out.command(tag, Lookup { name });
                }
            }
            (36, _) => {
                if out.reset_queue().is_ok() {
                    self.may_skip = true;
                }
            }
            (38, Some(pid)) => {
                // Steps that do not end for a while, by their own word or without one.
                let pause = Duration::from_micros(rng.below(800));
                let says = rng.below(3) != 0;
                let sends = &mut self.sends;
                let mut act = || {
                    sends.send(pid, hops - 1, None, Some(&mut *out));
                    std::thread::sleep(pause);
                    sends.send(pid, hops - 1, None, None);
                };
                if says { blocking(act) } else { act() }
            }
            (37, Some(pid)) => out.ask(tag, pid, "a question", Some(Duration::from_micros(rng.below(300)))),
            _ => {
                let (world, seed) = (Arc::clone(&world), rng.next());
                let inner = Arc::clone(&world);
                let spawned = out.spawn_once(move |out| {
                    let mut rng = Rng::new(seed);
                    if let Some(pid) = inner.somebody(&mut rng) {
                        Sends::new(&inner).send(pid, 2, None, Some(out));
                    }
                    assert!(rng.below(16) != 0, "on purpose");
                });
                // Refused while the scheduler ends.
                drop(spawned);
            }
        }
    }
}

impl Process for Node {
    fn init(&mut self, _: &InitContext, _: &str, _: Payload) -> Result<(), ProcessError> {
        if self.rng.below(50) == 0 {
            return Err(ProcessError::new("stress: no"));
        }
        assert!(self.rng.below(50) != 0, "stress: init, on purpose");
        self.begun = true;
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        let me = out.self_pid();
        let quiet = self.sends.world.is_quiet.load(SeqCst);
        let take = if self.rng.below(6) == 0 { 1 + self.rng.below(3) as usize } else { usize::MAX };
        let mut ends = false;
        for event in events.by_ref().take(take) {
            match event {
                Event::Message(message) => {
                    if message.is_request() {
                        let mut message = message;
                        if self.rng.below(3) != 0 {
                            message.reply(Payload::new("an answer"));
                        }
                        continue;
                    }
                    if message.payload().is::<Vec<Payload>>() {
                        // The synthetic message of a topic with a budget: from here on that topic is closed.
                        continue;
                    }
                    let hops = match message.take::<Numbered>() {
                        Ok(numbered) => self.took(me, numbered),
                        Err(other) => {
                            self.sends.world.fault(format!("{me} got {other:?}"));
                            continue;
                        }
                    };
                    if !quiet {
                        self.act(out, hops);
                        if self.rng.below(400) == 0 {
                            panic!("stress: a step, on purpose");
                        }
                        if self.rng.below(400) == 0 {
                            return Err(ProcessError::new("stress"));
                        }
                        ends |= self.rng.below(600) == 0;
                    }
                }
                Event::Cancel(_) => ends |= !self.stubborn || quiet,
                Event::Exit(exit) => {
                    if let evener_scheduler::ExitBy::Monitor = exit.by {
                        match self.monitored.iter().position(|pid| *pid == exit.pid) {
                            Some(place) => drop(self.monitored.swap_remove(place)),
                            None => self.sends.world.fault(format!("{me} hears twice of {}", exit.pid)),
                        }
                    }
                }
                Event::YieldComplete { .. } => {}
                _ => {}
            }
            self.held.clear();
        }
        if ends {
            out.done("stress");
            return Ok(());
        }
        match self.rng.below(30) {
            0 => out.continue_soon(),
            1 => out.wait_for_yields(),
            2 => std::thread::yield_now(),
            3 if self.rng.below(4) == 0 => {
                let world = Arc::clone(&self.sends.world);
                let mut next = Node::new(&world, self.rng.next());
                std::mem::swap(&mut next.sends, &mut self.sends);
                std::mem::swap(&mut next.last, &mut self.last);
                std::mem::swap(&mut next.monitored, &mut self.monitored);
                next.may_skip = self.may_skip;
                out.upgrade(next, "", Payload::empty());
            }
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self) {
        self.closed += 1;
        assert!(self.rng.below(50) != 0, "stress: close, on purpose");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let world = &self.sends.world;
        world.bodies_dropped.fetch_add(1, SeqCst);
        if self.closed != u32::from(self.begun) {
            world.fault(format!("begun: {}, closed {} times", self.begun, self.closed));
        }
    }
}

struct Totals {
    messages: u64,
    processes: u64,
}

fn patiently(world: &World, what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        if began.elapsed() > LIMIT {
            let of = |count: &AtomicU64| count.load(SeqCst);
            panic!(
                "{what}: {} created, {} received, {} dropped; {} bodies, {} dropped; {} born, {} completed",
                of(&world.created),
                of(&world.received),
                of(&world.dropped),
                of(&world.bodies),
                of(&world.bodies_dropped),
                of(&world.births),
                of(&world.completed)
            );
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// One round: a scheduler, its processes, their end.
fn round(seed: u64) -> Totals {
    let mut rng = Rng::new(seed);
    let workers = 1 + rng.below(8) as usize;
    let fuel = 500 + rng.below(8000) as i64;
    let world = Arc::new(World::new(fuel));
    let scheduler = Scheduler::builder()
        .workers(workers)
        .events_per_step_max(1 + rng.below(64) as u32)
        .spares([0, 1, 4, 64][rng.below(4) as usize])
        .hooks(Hooks(Arc::clone(&world)))
        .start()
        .unwrap();
    for _ in 0..2 + rng.below(40) {
        let node = Node::new(&world, rng.next());
        let pid = scheduler.spawn(node, SpawnOptions::new()).unwrap();
        world.place(&mut rng, pid);
    }
    let ending = rng.below(4);
    let mut scheduler = Some(scheduler);
    std::thread::scope(|scope| {
        let stop = Arc::new(AtomicBool::new(false));
        let s = scheduler.as_ref().unwrap();
        // Joined by hand: the end of a scope is told by parts of std that ThreadSanitizer does not see.
        let senders = [rng.next(), rng.next()].map(|seed| {
            let (world, stop) = (Arc::clone(&world), Arc::clone(&stop));
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                let mut sends = Sends::new(&world);
                while !stop.load(SeqCst) && world.fuel.load(SeqCst) > 0 {
                    if let Some(pid) = world.somebody(&mut rng) {
                        let budget = (rng.below(8) == 0).then(|| Budget::items(rng.below(30) as usize));
                        sends.send(pid, 1 + rng.below(12) as u32, budget, None);
                    }
                    match rng.below(50) {
                        0 => std::thread::yield_now(),
                        1 => std::thread::sleep(Duration::from_micros(rng.below(200))),
                        2 => drop((s.stats(), s.list_processes())),
                        3 if world.burn() => {
                            let node = Node::new(&world, rng.next());
                            if let Ok(pid) = s.spawn(node, SpawnOptions::new()) {
                                world.place(&mut rng, pid);
                            }
                        }
                        _ => {
                            world.fuel.fetch_sub(1, SeqCst);
                        }
                    }
                }
            })
        });
        if ending == 0 {
            // In the middle of everything.
            std::thread::sleep(Duration::from_micros(rng.below(20_000)));
            let report = s.shutdown(Duration::from_millis(rng.below(5)));
            if !report.still_running.is_empty() {
                world.fault(format!("{report:?}"));
            }
            stop.store(true, SeqCst);
        }
        for sender in senders {
            sender.join().expect("a sender panicked");
        }
    });
    let taken_or_dropped = || {
        let of = |count: &AtomicU64| count.load(SeqCst);
        // Created last: then equal sums mean that nothing was on its way.
        let done = of(&world.received) + of(&world.dropped);
        done == of(&world.created)
    };
    match ending {
        0 => drop(scheduler.take()),
        1 => drop(scheduler.take()),
        _ => {
            // Everybody falls quiet; whatever was accepted must now arrive by itself.
            world.is_quiet.store(true, SeqCst);
            patiently(&world, "a message lies in the mailbox of a process that sleeps", taken_or_dropped);
            let report =
                scheduler.as_ref().unwrap().shutdown(if ending == 2 { LIMIT } else { Duration::ZERO });
            if ending == 2 && report.ended_by_force > 0 {
                world.fault(format!("asked to end, they did not: {report:?}"));
            }
            drop(scheduler.take());
        }
    }
    patiently(&world, "something is left", || {
        let of = |count: &AtomicU64| count.load(SeqCst);
        taken_or_dropped()
            && of(&world.bodies) == of(&world.bodies_dropped)
            && of(&world.births) == of(&world.completed)
    });
    let faults = world.faults.with(std::mem::take);
    assert!(faults.is_empty(), "seed {seed}, {workers} workers, ending {ending}: {faults:#?}");
    Totals { messages: world.received.load(SeqCst), processes: world.completed.load(SeqCst) }
}

/// How long to go on, and from which seed.
pub(crate) fn span_and_seed() -> (Duration, u64) {
    let span = Duration::from_secs(from_env("EVENER_STRESS_SECS", 3));
    let seed = from_env("EVENER_STRESS_SEED", 1);
    println!(
        "stress: seed {seed}; repeat with EVENER_STRESS_SEED={seed} EVENER_STRESS_SECS={}",
        span.as_secs()
    );
    (span, seed)
}

#[test]
fn nothing_is_lost_doubled_or_reordered() {
    quiet_panics();
    let (span, seed) = span_and_seed();
    let began = Instant::now();
    let (mut rounds, mut messages, mut processes) = (0, 0, 0);
    let mut next_line = Duration::from_secs(10);
    while rounds == 0 || began.elapsed() < span {
        let totals = round(seed.wrapping_mul(1_000_003).wrapping_add(rounds));
        rounds += 1;
        messages += totals.messages;
        processes += totals.processes;
        if began.elapsed() >= next_line {
            println!("stress: {rounds} rounds, {messages} messages, {processes} processes so far");
            next_line += Duration::from_secs(10);
        }
    }
    println!("stress: {rounds} rounds, {messages} messages, {processes} processes, seed {seed}: ok");
}
