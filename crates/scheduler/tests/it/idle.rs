//! Sleep and wake: no wake is lost, looking changes nothing, idleness costs nothing, an old handle reaches
//! nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use evener_scheduler::{
    Event, Events, Package, Pid, ProcessState, Scheduler, SendError, SpawnOptions, StepOutput, send,
};

use crate::support::{
    Rng, in_a_program_of_its_own, kill, process, quiet_panics, recv, scheduler, state, until,
};

/// A process that counts its messages.
fn counter(s: &Scheduler) -> (Pid, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&count);
    let pid = s
        .spawn(
            process(move |events: &mut Events<'_>, _: &mut StepOutput<'_>| {
                seen.fetch_add(events.by_ref().count() as u64, SeqCst);
                Ok(())
            }),
            SpawnOptions::new(),
        )
        .unwrap();
    (pid, count)
}

/// FC-004: introspection changes no counter of sleepers or searchers, and no wake is lost after it.
#[test]
fn looking_at_a_sleeping_scheduler_changes_nothing() {
    const WORKERS: usize = 4;
    let s = scheduler(WORKERS);
    let (pid, count) = counter(&s);
    let mut slowest = Duration::ZERO;
    for round in 1..=500 {
        until("all sleep", || s.stats().parked == WORKERS);
        let parks = s.stats().total().parks;
        for _ in 0..100 {
            let stats = s.stats();
            assert_eq!((stats.parked, stats.searching), (WORKERS, 0), "round {round}");
            assert!(!s.list_processes().is_empty());
        }
        assert_eq!(s.stats().total().parks, parks, "nobody was disturbed");
        let began = Instant::now();
        send(Package::new(pid, ())).unwrap();
        until("the message is handled", || count.load(SeqCst) == round);
        slowest = slowest.max(began.elapsed());
    }
    println!("500 wakes after looking, the slowest took {slowest:?}");
}

#[test]
fn no_wake_from_outside_is_lost() {
    for workers in [1, 2, 8] {
        let s = scheduler(workers);
        let (pid, count) = counter(&s);
        let mut rng = Rng::new(workers as u64);
        for round in 1..=4000 {
            // Sometimes at once, when workers are about to sleep; sometimes when they do.
            match rng.below(4) {
                0 => until("all sleep", || s.stats().parked == workers),
                1 => (0..rng.below(2000)).for_each(|_| std::hint::spin_loop()),
                _ => {}
            }
            send(Package::new(pid, ())).unwrap();
            until("the message is handled", || count.load(SeqCst) == round);
        }
    }
}

#[test]
fn no_wake_between_workers_is_lost() {
    // Each hop may land on a worker that is just going to sleep.
    for workers in [2, 3, 8] {
        let s = scheduler(workers);
        let (sender, receiver) = channel();
        let ring: Vec<_> = (0..16)
            .map(|_| {
                let sender = sender.clone();
                let mut next: Option<Pid> = None;
                let step = move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
                    for event in events.by_ref() {
                        let Event::Message(message) = event else { continue };
                        match message.take::<Pid>() {
                            Ok(pid) => next = Some(pid),
                            Err(message) => match message.take::<u32>().unwrap() {
                                0 => sender.send(()).unwrap(),
                                hops => out.send(next.unwrap(), hops - 1).unwrap(),
                            },
                        }
                    }
                    Ok(())
                };
                s.spawn(process(step), SpawnOptions::new()).unwrap()
            })
            .collect();
        for (index, pid) in ring.iter().enumerate() {
            send(Package::new(*pid, ring[(index + 1) % ring.len()])).unwrap();
        }
        for round in 0..200_u32 {
            send(Package::new(ring[round as usize % 16], 40 + round % 50)).unwrap();
            recv(&receiver);
        }
    }
}

/// FC-003: a process with messages is running or queued, whatever the interleaving, and a kill takes
/// effect.
#[test]
fn no_process_is_left_idle_with_messages() {
    const EACH: u64 = 1_000_000;
    let s = scheduler(2);
    let received: Arc<[AtomicU64; 2]> = Arc::default();
    let seen = Arc::clone(&received);
    let mut rng = Rng::new(3);
    let mut last = [0_u32; 2];
    let pid = s
        .spawn(
            process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
                // Now and then leave some where they are, stop in the middle, or say how to go on.
                let take = if rng.below(8) == 0 { rng.below(3) as usize } else { usize::MAX };
                for event in events.by_ref().take(take) {
                    let Event::Message(message) = event else { continue };
                    // Anything else is the test asking whether it has ended.
                    let Ok((from, number)) = message.take::<(usize, u32)>() else { continue };
                    assert_eq!(number, last[from] + 1, "in order, each once");
                    last[from] = number;
                    seen[from].fetch_add(1, SeqCst);
                }
                match rng.below(16) {
                    0 => std::thread::yield_now(),
                    1 => out.continue_soon(),
                    2 => out.wait_for_yields(),
                    _ => {}
                }
                Ok(())
            }),
            SpawnOptions::new(),
        )
        .unwrap();
    std::thread::scope(|scope| {
        for from in 0..2_usize {
            scope.spawn(move || {
                let mut rng = Rng::new(10 + from as u64);
                for number in 1..=EACH as u32 {
                    send(Package::new(pid, (from, number))).unwrap();
                    match rng.below(64) {
                        0 => std::thread::yield_now(),
                        1 => (0..rng.below(300)).for_each(|_| std::hint::spin_loop()),
                        2 if rng.below(200) == 0 => std::thread::sleep(Duration::from_micros(100)),
                        _ => {}
                    }
                }
            });
        }
    });
    until("all are handled", || received.iter().all(|count| count.load(SeqCst) == EACH));
    until("it waits", || matches!(state(&s, pid), Some(ProcessState::Idle | ProcessState::Blocked)));
    kill(&s, pid);
    until("the kill takes effect", || send(Package::new(pid, ())) == Err(SendError::Closed(pid)));
}

#[test]
fn a_kill_takes_effect_whatever_the_process_is_doing() {
    let s = scheduler(3);
    for round in 0..400 {
        let (pid, _) = counter(&s);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 0..2 {
                let over = &over;
                scope.spawn(move || {
                    let mut rng = Rng::new(round * 2 + seed);
                    while !over.load(SeqCst) {
                        match send(Package::new(pid, ())) {
                            Ok(()) => {}
                            Err(SendError::Closed(_)) => break,
                            Err(other) => panic!("{other}"),
                        }
                        if rng.below(4) == 0 {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            kill(&s, pid);
            until("it ends", || state(&s, pid).is_none());
            over.store(true, SeqCst);
        });
    }
}

/// FC-001: foreign threads post to processes homed on worker 0; then a worker posts to another's.
#[test]
fn posts_of_foreign_threads_are_all_handled() {
    const EACH: u64 = 100_000;
    let s = scheduler(2);
    let targets: Vec<_> = (0..8).map(|_| counter(&s)).collect();
    until("all have begun", || targets.iter().all(|(pid, _)| state(&s, *pid) == Some(ProcessState::Idle)));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let targets = &targets;
            scope.spawn(move || {
                for number in 0..EACH {
                    let (pid, _) = targets[(number + thread) as usize % targets.len()];
                    send(Package::new(pid, number)).unwrap();
                }
            });
        }
    });
    let sum = || targets.iter().map(|(_, count)| count.load(SeqCst)).sum::<u64>();
    until("all are handled", || sum() == 4 * EACH);
    let pids: Vec<_> = targets.iter().map(|(pid, _)| *pid).collect();
    s.spawn_once(move |out| {
        for _ in 0..1000 {
            for pid in &pids {
                out.send(*pid, ()).unwrap();
            }
        }
    })
    .unwrap();
    until("all are handled", || sum() == 4 * EACH + 8000);
}

/// FC-017: with generations of 4 bits slots are used up; they are retired, and an old handle never reaches
/// anybody. In a program of its own, whose slots nobody has used before.
#[test]
fn an_old_handle_reaches_nobody_when_generations_are_used_up() {
    in_a_program_of_its_own("idle::slots_are_used_up_apart");
}

#[test]
#[ignore = "run by an_old_handle_reaches_nobody_when_generations_are_used_up, in a process of its own"]
fn slots_are_used_up_apart() {
    quiet_panics();
    let s = Scheduler::builder().workers(2).generation_max(15).start().unwrap();
    let wrong = Arc::new(AtomicUsize::new(0));
    let mut old: Vec<Pid> = Vec::new();
    let mut all = std::collections::BTreeSet::new();
    for _ in 0..120 {
        let ended = Arc::new(AtomicUsize::new(0));
        let live: Vec<Pid> = (0..50)
            .map(|_| {
                let (wrong, ended) = (Arc::clone(&wrong), Arc::clone(&ended));
                s.spawn(
                    process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
                        for event in events.by_ref() {
                            let Event::Message(message) = event else { continue };
                            match message.take::<&'static str>().unwrap() {
                                "end" => {
                                    ended.fetch_add(1, SeqCst);
                                    out.done(());
                                }
                                _ => drop(wrong.fetch_add(1, SeqCst)),
                            }
                        }
                        Ok(())
                    }),
                    SpawnOptions::new(),
                )
                .unwrap()
            })
            .collect();
        for pid in &live {
            assert!(all.insert(*pid), "{pid} was given out twice");
            assert!(pid.local().generation() <= 15, "{pid}");
        }
        for pid in &old {
            assert_eq!(send(Package::new(*pid, "old")), Err(SendError::Closed(*pid)));
        }
        for pid in &live {
            send(Package::new(*pid, "end")).unwrap();
        }
        until("all ended", || live.iter().all(|pid| send(Package::new(*pid, "end")).is_err()));
        assert!(ended.load(SeqCst) >= 50, "each of them took its message");
        old.extend(live);
        if old.len() > 1000 {
            old.drain(..old.len() - 1000);
        }
    }
    assert_eq!(wrong.load(SeqCst), 0);
    let total = s.stats().total();
    assert_eq!(total.ended, 120 * 50);
    assert!(total.retired_slots > 0, "no slot was used up");
    println!("{} slots retired by {} lives", total.retired_slots, total.ended);
}

// ------------------------------------------------------------------ what idleness costs

/// Processor time of all threads of this process, and how often they gave up the processor.
#[cfg(target_os = "linux")]
fn spent() -> (Duration, u64) {
    let mut time = Duration::ZERO;
    let mut switches = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        let Ok(stat) = std::fs::read_to_string(path.join("schedstat")) else { continue };
        let nanos: u64 = stat.split(' ').next().unwrap().parse().unwrap();
        time += Duration::from_nanos(nanos);
        let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("voluntary"));
        switches +=
            line.map_or(0, |line| line.split('\t').next_back().unwrap().trim().parse::<u64>().unwrap());
    }
    (time, switches)
}

/// The child of the test below: it measures itself, alone in its process.
#[test]
#[cfg(target_os = "linux")]
#[ignore = "run by an_idle_scheduler_costs_next_to_nothing, in a process of its own"]
fn measured_apart() {
    const SPAN: Duration = Duration::from_secs(3);
    let s = scheduler(8);
    let (pid, count) = counter(&s);
    until("all sleep", || s.stats().parked == 8);
    // Long enough for the monitor to see it, too.
    std::thread::sleep(Duration::from_millis(100));
    let (time, switches) = spent();
    std::thread::sleep(SPAN);
    let (time_idle, switches_idle) = spent();
    let mut sent = 0;
    let began = Instant::now();
    while began.elapsed() < SPAN {
        send(Package::new(pid, ())).unwrap();
        sent += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    let (time_busy, _) = spent();
    until("all are handled", || count.load(SeqCst) == sent);
    println!(
        "measured {} {} {}",
        (time_idle - time).as_nanos() as f64 / SPAN.as_nanos() as f64 * 100.0,
        switches_idle - switches,
        (time_busy - time_idle).as_nanos() as f64 / SPAN.as_nanos() as f64 * 100.0,
    );
}

/// FC-005, shortened: 8 workers; nothing to do, then one message every 10 ms.
#[test]
#[cfg(target_os = "linux")]
fn an_idle_scheduler_costs_next_to_nothing() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["idle::measured_apart", "--exact", "--ignored", "--nocapture", "--test-threads", "1"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line =
        text.lines().find_map(|line| line.split("measured ").nth(1)).unwrap_or_else(|| panic!("{text}"));
    let numbers: Vec<f64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
    let [idle, switches, busy] = numbers[..] else { panic!("{line}") };
    println!(
        "idle: {idle:.3} % of a core, {switches} times off the processor in 3 s; a message every 10 ms: {busy:.2} %"
    );
    assert!(idle < 0.5, "{idle} % of a core for nothing");
    assert!(switches < 10.0, "{switches} wakes in three idle seconds");
    assert!(busy < 10.0, "{busy} % of a core for a hundred messages a second");
}
