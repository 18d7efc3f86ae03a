//! How long a ready process waits: the bounds in the words on `src/worker/mod.rs`, in turns.
//!
//! With one worker every turn is one step of a process of the test, so a counter of steps is a clock of
//! turns. With more workers each has a counter of its own; who is taken along by a thief is served, but
//! his turns are not of one clock, so only those count who ran where they were queued.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use evener_scheduler::commands::{Sleep, Timer};
use evener_scheduler::{
    Event, Events, Package, Pid, ProcessState, Scheduler, SpawnOptions, StepOutput, Tag, send,
};

use crate::support::{LIMIT, process, recv, scheduler, state, until};

/// `LOOK_AROUND`, `NEXT_MAX`, `YOUNG_MAX` of `src/worker/mod.rs`.
const LOOK: u64 = 61;
const NEXT: u64 = 3;
const YOUNG: u64 = 16;
/// Between two picks of the oldest one: the words on the module; and what the looks around add to it.
const OLDEST: u64 = (YOUNG + 1) * (NEXT + 1) + 2;
/// Two old ends take turns.
const ENDS: u64 = 2;

thread_local! {
    static WORKER: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The number of the worker whose thread this is.
fn worker() -> usize {
    WORKER.with(|worker| {
        if worker.get() == usize::MAX {
            let thread = std::thread::current();
            let name = thread.name().expect("workers have names");
            worker.set(name.rsplit(' ').next().unwrap().parse().expect("the name ends with the number"));
        }
        worker.get()
    })
}

#[derive(Clone)]
struct Turns(Arc<Vec<AtomicU64>>);

impl Turns {
    /// One more turn of this worker.
    fn count(&self) -> u64 {
        self.0[worker()].fetch_add(1, SeqCst)
    }
    fn of(&self, worker: usize) -> u64 {
        self.0[worker].load(SeqCst)
    }
    fn total(&self) -> u64 {
        self.0.iter().map(|turns| turns.load(SeqCst)).sum()
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Hog {
    /// Sends to itself for ever.
    Itself,
    /// Two that answer each other for ever.
    Pair,
    /// Says `Continue` for ever.
    Continue,
    /// Its child spawns a child, which spawns a child ...
    Spawns,
}

struct Field {
    scheduler: Scheduler,
    turns: Turns,
    stop: Arc<AtomicBool>,
    /// Hogs that are ready at a time.
    hogs: u64,
}

fn field(workers: usize, hogs: &[Hog]) -> Field {
    // A stand-in would run turns that no worker counts.
    let scheduler = Scheduler::builder().workers(workers).spares(0).start().expect("it starts");
    let turns = Turns(Arc::new((0..workers).map(|_| AtomicU64::new(0)).collect()));
    let stop = Arc::new(AtomicBool::new(false));
    let field = Field { scheduler, turns, stop, hogs: (hogs.len() * workers) as u64 };
    for _ in 0..workers {
        hogs.iter().for_each(|hog| field.add(*hog));
    }
    until("the hogs run", || field.turns.total() > 1000);
    field
}

/// A chain of so many: each spawns the next.
fn spawn_chain(out: &mut StepOutput<'_>, turns: Turns, stop: Arc<AtomicBool>, links: u64) {
    let _ = out.spawn_once(move |out| {
        turns.count();
        if links > 1 && !stop.load(SeqCst) {
            spawn_chain(out, turns, stop, links - 1);
        } else {
            // For who waits till it is over.
            stop.store(true, SeqCst);
        }
    });
}

impl Field {
    fn spawn(&self, step: impl FnMut(&mut Events<'_>, &mut StepOutput<'_>) + Send + 'static) -> Pid {
        let mut step = step;
        let turns = self.turns.clone();
        let body = process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
            turns.count();
            step(events, out);
            Ok(())
        });
        self.scheduler.spawn(body, SpawnOptions::new()).unwrap()
    }

    fn add(&self, hog: Hog) {
        let stop = Arc::clone(&self.stop);
        match hog {
            Hog::Itself => {
                self.spawn(move |events, out| {
                    events.by_ref().for_each(drop);
                    if !stop.load(SeqCst) {
                        out.send(out.self_pid(), ()).unwrap();
                    }
                });
            }
            Hog::Pair => {
                let player = |stop: Arc<AtomicBool>| {
                    move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
                        for event in events.by_ref() {
                            if let Event::Message(message) = event
                                && !stop.load(SeqCst)
                            {
                                // The partner gets my address, and sends me its own.
                                let partner = message.take::<Pid>().unwrap();
                                let _ = out.send(partner, out.self_pid());
                            }
                        }
                    }
                };
                let one = self.spawn(player(Arc::clone(&stop)));
                let other = self.spawn(player(stop));
                send(Package::new(one, other)).unwrap();
            }
            Hog::Continue => {
                self.spawn(move |events, out| {
                    events.by_ref().for_each(drop);
                    if !stop.load(SeqCst) {
                        out.continue_soon();
                    }
                });
            }
            Hog::Spawns => {
                let turns = self.turns.clone();
                self.scheduler.spawn_once(move |out| spawn_chain(out, turns, stop, u64::MAX)).unwrap();
            }
        }
    }

    /// A process that waits for a worker number and a turn; it tells how many turns of that worker later
    /// it ran, or `None` if it ran elsewhere.
    fn victim(&self) -> (Pid, std::sync::mpsc::Receiver<(usize, u64)>) {
        let (sender, receiver) = channel();
        let turns = self.turns.clone();
        let pid = self.spawn(move |events, _| {
            for event in events.by_ref() {
                if let Event::Message(_) = event {
                    let me = worker();
                    sender.send((me, turns.of(me))).unwrap();
                }
            }
        });
        until("the victim waits", || state(&self.scheduler, pid) == Some(ProcessState::Idle));
        (pid, receiver)
    }

    /// Rounds in which a step of the same worker wakes the victim, in the run-next place (`buried` false)
    /// or in the deque, beneath what comes after.
    fn woken_locally(&self, rounds: usize, buried: bool) -> Vec<u64> {
        let (victim, ran) = self.victim();
        let (dummy, dummy_ran) = self.victim();
        let (sender, posted) = channel();
        let chain_is_over = Arc::new(AtomicBool::new(true));
        let (turns, over) = (self.turns.clone(), Arc::clone(&chain_is_over));
        let poster = self.spawn(move |events, out| {
            for event in events.by_ref() {
                if let Event::Message(_) = event {
                    sender.send((worker(), turns.of(worker()))).unwrap();
                    out.send(victim, ()).unwrap();
                    if buried {
                        out.send(dummy, ()).unwrap();
                        // Much longer than any bound, and on top of the victim.
                        over.store(false, SeqCst);
                        spawn_chain(out, turns.clone(), Arc::clone(&over), 10_000);
                    }
                }
            }
        });
        // A newcomer's first turn may come after three from the run-next place: then whom it wakes is displaced.
        until("the poster waits", || state(&self.scheduler, poster) == Some(ProcessState::Idle));
        let mut waits = Vec::new();
        for _ in 0..rounds {
            send(Package::new(poster, ())).unwrap();
            let (from, before) = recv(&posted);
            let (at, after) = recv(&ran);
            if buried {
                recv(&dummy_ran);
                until("the chain is over", || chain_is_over.load(SeqCst));
            }
            if at == from {
                waits.push(after - before);
            }
        }
        waits
    }

    /// Rounds in which this thread wakes the victim.
    fn woken_from_outside(&self, rounds: usize) -> Vec<u64> {
        let (victim, ran) = self.victim();
        let mut home = None;
        let mut waits = Vec::new();
        for _ in 0..rounds {
            send(Package::new(victim, ())).unwrap();
            // Read after the push: a pause of this thread between the two must not count as waiting.
            let before = home.map(|home| self.turns.of(home));
            let (at, after) = recv(&ran);
            if home == Some(at) {
                waits.push(after.saturating_sub(before.unwrap()));
            }
            home = Some(at);
        }
        waits
    }

    /// A batch of newcomers in the global queue: the turns that each waits, by its place.
    fn newcomers(&self, count: usize) -> Vec<u64> {
        let (sender, ran) = channel();
        for number in 0..count {
            let (sender, turns) = (sender.clone(), self.turns.clone());
            self.scheduler
                .spawn_once(move |_| {
                    turns.count();
                    sender.send((number, turns.total())).unwrap();
                })
                .unwrap();
        }
        let before = self.turns.total();
        let mut waits = vec![0; count];
        for _ in 0..count {
            let (number, after) = recv(&ran);
            waits[number] = after.saturating_sub(before);
        }
        waits
    }

    /// How many turns pass between the first turn that could have seen the timer due and the turn of the
    /// process that waits for it.
    fn timers(&self, rounds: usize) -> Vec<u64> {
        let due: Arc<(AtomicU64, AtomicU64)> = Arc::default();
        let start = Instant::now();
        let nanos = move || start.elapsed().as_nanos() as u64;
        // A witness that looks at the clock at each of its turns.
        let (seen, stop, turns) = (Arc::clone(&due), Arc::clone(&self.stop), self.turns.clone());
        self.spawn(move |_, out| {
            let at = seen.0.load(SeqCst);
            if at != 0 && nanos() >= at && seen.1.load(SeqCst) == 0 {
                seen.1.store(turns.total(), SeqCst);
            }
            if !stop.load(SeqCst) {
                out.continue_soon();
            }
        });
        let (sender, fired) = channel();
        let (turns, noted) = (self.turns.clone(), Arc::clone(&due));
        let sleeper = self.spawn(move |events, out| {
            for event in events.by_ref() {
                match event {
                    Event::Message(_) => {
                        noted.1.store(0, SeqCst);
                        // An absolute time: however long the thread is off the core before the timer is
                        // armed, after this step, both mean the same moment.
                        let at = Instant::now() + Duration::from_micros(500);
                        out.command(Tag(0), Timer(at));
                        noted.0.store((at - start).as_nanos() as u64, SeqCst);
                    }
                    Event::YieldComplete { .. } => {
                        let since = noted.1.load(SeqCst);
                        noted.0.store(0, SeqCst);
                        sender.send(if since == 0 { 0 } else { turns.total() - since }).unwrap();
                    }
                    _ => {}
                }
            }
        });
        let mut waits = Vec::new();
        for _ in 0..rounds {
            send(Package::new(sleeper, ())).unwrap();
            waits.push(recv(&fired));
        }
        waits
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        if !std::thread::panicking() {
            self.scheduler.shutdown(Duration::from_millis(1));
        }
    }
}

const MIXES: &[&[Hog]] = &[
    &[Hog::Itself],
    &[Hog::Pair],
    &[Hog::Continue],
    &[Hog::Spawns],
    &[Hog::Continue, Hog::Spawns],
    &[Hog::Pair, Hog::Spawns],
    &[Hog::Itself, Hog::Pair, Hog::Continue, Hog::Spawns],
];

fn most(waits: &[u64]) -> u64 {
    waits.iter().copied().max().unwrap_or(0)
}

#[test]
fn with_one_worker_every_bound_holds() {
    for mix in MIXES {
        let field = field(1, mix);
        // Everybody who could stand before the victim at an old end: hogs, poster, dummy, witness.
        let oldest = (field.hogs + 4) * ENDS * OLDEST;
        let next = most(&field.woken_locally(200, false));
        let deque = most(&field.woken_locally(200, true));
        let inject = most(&field.woken_from_outside(200));
        let newcomers = field.newcomers(64);
        let timers = most(&field.timers(50));
        println!(
            "{mix:?}: next {next} (at most {OLDEST}), deque {deque} (at most {oldest}), inject {inject} and \
             timer {timers} (at most {}), last of 64 newcomers {} (at most {})",
            LOOK + oldest,
            newcomers[63],
            65 * LOOK,
        );
        assert!(next <= OLDEST, "{mix:?}: in the run-next place for {next} turns");
        assert!(deque <= oldest, "{mix:?}: in the deque for {deque} turns");
        assert!(inject <= LOOK + oldest, "{mix:?}: in the inject queue for {inject} turns");
        assert!(timers <= LOOK + oldest, "{mix:?}: a timer {timers} turns late");
        for (before, wait) in newcomers.iter().enumerate() {
            let bound = (before as u64 + 2) * LOOK;
            assert!(*wait <= bound, "{mix:?}: newcomer {before} waited for {wait} turns, not {bound}");
        }
    }
}

fn bounds_hold_on(workers: usize, rounds: usize) {
    for mix in [MIXES[0], MIXES[1], MIXES[4], MIXES[6]] {
        let field = field(workers, mix);
        let oldest = (field.hogs + 4) * ENDS * OLDEST;
        // Nobody is forgotten: each of these comes back only when all rounds were served.
        let samples = [
            field.woken_locally(rounds, false),
            field.woken_locally(rounds, true),
            field.woken_from_outside(rounds),
        ];
        field.newcomers(rounds);
        field.timers(10);
        for (mut waits, bound) in samples.into_iter().zip([OLDEST, oldest, LOOK + oldest]) {
            waits.sort_unstable();
            // A thief may take the victim along and lose it again to the first worker: rare.
            let typical = waits.get(waits.len() * 9 / 10).copied().unwrap_or(0);
            assert!(typical <= bound, "{workers} workers, {mix:?}: {waits:?}, more than {bound}");
        }
    }
}

#[test]
fn with_two_workers_the_bounds_hold_on_each() {
    bounds_hold_on(2, 60);
}

#[test]
fn with_eight_workers_the_bounds_hold_on_each() {
    bounds_hold_on(8, 20);
}

/// A failure within a scope must not leave its threads waiting.
struct StopAtTheEnd<'a>(&'a AtomicBool);
impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_steady_stream_into_the_global_queue_starves_nobody() {
    for workers in [1, 2, 8] {
        let field = field(workers, &[Hog::Continue, Hog::Pair]);
        let pending = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let _stop = StopAtTheEnd(&field.stop);
            let stream = scope.spawn(|| {
                let mut sent = 0_u64;
                while !field.stop.load(SeqCst) {
                    if pending.load(SeqCst) < 10_000 {
                        let (pending, turns) = (Arc::clone(&pending), field.turns.clone());
                        pending.fetch_add(1, SeqCst);
                        field
                            .scheduler
                            .spawn_once(move |_| {
                                turns.count();
                                pending.fetch_sub(1, SeqCst);
                            })
                            .unwrap();
                        sent += 1;
                    } else {
                        std::thread::yield_now();
                    }
                }
                sent
            });
            until("the stream flows", || pending.load(SeqCst) > 1000);
            let local = field.woken_locally(100, true);
            let outside = field.woken_from_outside(100);
            if workers == 1 {
                // The stream's own closures go to the FIFO in batches only when it is empty.
                let bound = (field.hogs + 4) * ENDS * OLDEST;
                assert!(most(&local) <= bound, "{} turns", most(&local));
                assert!(most(&outside) <= LOOK + bound, "{} turns", most(&outside));
            }
            // The stream itself moves on, too: what waits now will have run.
            let before = field.turns.total();
            field.newcomers(10);
            assert!(field.turns.total() > before);
            field.stop.store(true, SeqCst);
            assert!(stream.join().unwrap() > 1000);
        });
    }
}

/// FC-006: a pair that answers each other for ever; a third on the same worker and one in the global
/// queue.
#[test]
fn a_pair_does_not_keep_a_third_from_running() {
    let field = field(1, &[Hog::Pair]);
    let rate = {
        let before = field.turns.total();
        let began = Instant::now();
        until("turns", || field.turns.total() > before + 100_000);
        100_000.0 / began.elapsed().as_secs_f64()
    };
    let local = most(&field.woken_locally(100, false)).max(most(&field.woken_from_outside(100)));
    let global = most(&field.newcomers(1));
    let bound = LOOK + 5 * ENDS * OLDEST;
    println!(
        "a third ran within {local} turns, a newcomer within {global}; a turn takes {:.0} ns, so {bound} turns \
         are {:.3} ms",
        1e9 / rate,
        bound as f64 / rate * 1e3
    );
    assert!(local <= bound && global <= 2 * LOOK, "{local} {global}");
}

/// FC-007: the process that waits behind a long step is taken by an idle worker, wherever it waits.
#[test]
fn work_behind_a_long_step_is_found_by_others() {
    const LONG: Duration = Duration::from_millis(600);
    let s = scheduler(4);
    let mut delays = Vec::new();
    // Takes the run-next place from B.
    let other = s
        .spawn(
            process(|events: &mut Events<'_>, _: &mut StepOutput<'_>| {
                events.by_ref().for_each(drop);
                Ok(())
            }),
            SpawnOptions::new(),
        )
        .unwrap();
    for round in 0..12 {
        // The work is left behind at once, or when the monitor, which has seen the step begin, rests.
        let quiet = Duration::from_millis(if round < 6 { 0 } else { 30 });
        until("all sleep", || s.stats().parked == 4);
        let (sender, receiver) = channel();
        let ran = sender.clone();
        let b = s
            .spawn(
                process(move |events: &mut Events<'_>, _: &mut StepOutput<'_>| {
                    for event in events.by_ref() {
                        if let Event::Message(message) = event {
                            let sent = message.take::<Instant>().unwrap();
                            ran.send((worker(), sent.elapsed())).unwrap();
                        }
                    }
                    Ok(())
                }),
                SpawnOptions::new(),
            )
            .unwrap();
        until("B waits", || state(&s, b) == Some(ProcessState::Idle));
        let ended = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&ended);
        let (hog_sender, hog) = channel();
        s.spawn_once(move |out| {
            hog_sender.send(worker()).unwrap();
            let quiet_till = Instant::now() + quiet;
            while Instant::now() < quiet_till {
                std::hint::spin_loop();
            }
            let began = Instant::now();
            match round % 3 {
                // In the run-next place; in the deque; as a newborn.
                0 => out.send(b, began).unwrap(),
                1 => {
                    out.send(b, began).unwrap();
                    out.send(other, ()).unwrap();
                }
                _ => {
                    let newborn =
                        move |_: &mut StepOutput<'_>| sender.send((worker(), began.elapsed())).unwrap();
                    out.spawn_once(newborn).unwrap();
                }
            }
            while began.elapsed() < LONG {
                std::hint::spin_loop();
            }
            over.store(true, SeqCst);
        })
        .unwrap();
        let hog = recv(&hog);
        let (at, delay) = recv(&receiver);
        assert!(!ended.load(SeqCst), "B waited for the long step to end");
        assert_ne!(at, hog, "it ran on another worker");
        assert!(delay < LONG);
        delays.push(delay);
        until("the long step ends", || ended.load(SeqCst));
    }
    println!("B ran on another worker after {delays:?}");
}

/// Long turns, and a global queue that is never empty: neither side waits for the other to run dry.
#[test]
fn behind_long_turns_newcomers_come_in_rows_and_locals_between() {
    const LONG: Duration = Duration::from_millis(4);
    let s = Scheduler::builder().workers(1).spares(0).start().expect("it starts");
    let order = Arc::new(Mutex::new(Vec::new()));
    let spin = || {
        let began = Instant::now();
        while began.elapsed() < LONG {
            std::hint::spin_loop();
        }
    };
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..2 {
        let (order, stop) = (Arc::clone(&order), Arc::clone(&stop));
        let local = process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
            // A turn that gives it no message is none.
            for event in events.by_ref() {
                if let Event::Message(_) = event {
                    order.lock().unwrap().push(true);
                    spin();
                    if !stop.load(SeqCst) {
                        out.send(out.self_pid(), ()).unwrap();
                    }
                }
            }
            Ok(())
        });
        let local = s.spawn(local, SpawnOptions::new()).unwrap();
        send(Package::new(local, ())).unwrap();
    }
    until("the local ones run", || order.lock().unwrap().len() > 2);
    for _ in 0..100 {
        let order = Arc::clone(&order);
        s.spawn_once(move |_| {
            order.lock().unwrap().push(false);
            spin();
        })
        .unwrap();
    }
    until("all newcomers ran", || order.lock().unwrap().iter().filter(|is_local| !**is_local).count() == 100);
    stop.store(true, SeqCst);
    let order = order.lock().unwrap().clone();
    let first = order.iter().position(|is_local| !is_local).unwrap();
    let last = order.iter().rposition(|is_local| !is_local).unwrap();
    let rows = order[first..=last].split(|is_local| *is_local).map(<[bool]>::len);
    assert!(rows.clone().max().unwrap() <= 16, "{order:?}");
    let locals = order[first..=last].iter().filter(|is_local| **is_local).count();
    println!("{locals} local turns while 100 newcomers ran");
    // Without rows: 61 local turns for each newcomer.
    assert!((6..=100).contains(&locals), "{locals}");
}

/// As FC-010: due timers of a worker in a long step are fired by others.
#[test]
fn timers_of_a_busy_worker_fire_elsewhere() {
    let s = scheduler(2);
    let (sender, receiver) = channel();
    let ended = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&ended);
    let mut begun = false;
    let sleeper = process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
        if !std::mem::replace(&mut begun, true) {
            for tag in 0..100 {
                out.command(Tag(tag), Sleep(Duration::from_millis(5)));
            }
            // On the same worker, after the timers were armed there.
            let over = Arc::clone(&over);
            out.spawn_once(move |_| {
                let began = Instant::now();
                while began.elapsed() < Duration::from_secs(1) {
                    std::hint::spin_loop();
                }
                over.store(true, SeqCst);
            })
            .unwrap();
        }
        for event in events.by_ref() {
            if let Event::YieldComplete { .. } = event {
                let _ = sender.send(());
            }
        }
        Ok(())
    });
    s.spawn(sleeper, SpawnOptions::new()).unwrap();
    for _ in 0..100 {
        recv(&receiver);
    }
    assert!(!ended.load(SeqCst), "the timers waited for the long step to end");
    let lateness = s.stats().timer_lateness;
    println!("timers behind a long step: {:?} late at the median", lateness.quantile(0.5));
    assert_eq!(lateness.count(), 100);
    assert!(lateness.quantile(1.0).unwrap() < LIMIT);
}
