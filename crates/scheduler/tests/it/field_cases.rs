//! Field cases that are no single subject's: FC-008, FC-013, FC-014, FC-025. (FC-017 is in `routing`, FC-018
//! in `names`, FC-019 in `supervisor`, FC-020 in `commands`.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use evener_scheduler::commands::{Blocking, Sleep};
use evener_scheduler::{
    Budget, Event, Events, ExitReason, InitContext, Message, Package, Payload, Pid, Process, ProcessError,
    Scheduler, SendError, SpawnError, SpawnOptions, StepOutput, Tag, Topic, YieldError, send,
};

use crate::support::{LIMIT, in_a_program_of_its_own, process, recv, scheduler, until};

// ------------------------------------------------------------------ FC-008

/// Keeps requests till it is told to answer them all.
struct Owner {
    kept: Vec<Message>,
    answered: Arc<AtomicUsize>,
}

struct AnswerAll;

impl Process for Owner {
    fn step(&mut self, events: &mut Events<'_>, _: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        for event in events.by_ref() {
            let Event::Message(message) = event else { continue };
            if !message.payload().is::<AnswerAll>() {
                self.kept.push(message);
                continue;
            }
            let reached =
                self.kept.drain(..).filter_map(|mut kept| kept.reply(Payload::empty()).then_some(())).count();
            self.answered.fetch_add(reached, Ordering::Relaxed);
            let mut message = message;
            message.reply(Payload::empty());
        }
        Ok(())
    }
}

/// Waits for a timer, a reply and an end, all far off.
struct Waits {
    owner: Pid,
    begun: bool,
}

impl Process for Waits {
    fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        if !std::mem::replace(&mut self.begun, true) {
            out.command(Tag(1), Sleep(Duration::from_secs(3600)));
            out.ask(Tag(2), self.owner, (), Some(Duration::from_secs(3600)));
            out.monitor(self.owner);
            out.wait_for_yields();
        }
        events.by_ref().for_each(drop);
        Ok(())
    }
}

/// Memory of this program that is in use, in pages.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The body of the next test; it has a program of its own, for memory belongs to the whole program.
#[test]
#[ignore = "run by `a_million_dead_leave_no_registration_and_no_memory`, in a program of its own"]
fn a_million_dead() {
    const ROUNDS: usize = 20;
    const WAVES: usize = 5;
    const WAVE: usize = 10_000;
    // Threads that come and go would each have an arena of the allocator's.
    let scheduler = Scheduler::builder().workers(2).spares(0).start().unwrap();
    let answered = Arc::new(AtomicUsize::new(0));
    let owner = Owner { kept: Vec::new(), answered: Arc::clone(&answered) };
    let owner = scheduler.spawn(owner, SpawnOptions::new()).unwrap();
    scheduler.ask(owner, AnswerAll, Some(LIMIT)).unwrap();
    let empty = scheduler.registrations();
    let mut levels = Vec::new();
    for _ in 0..ROUNDS {
        for _ in 0..WAVES {
            let pids: Vec<Pid> = (0..WAVE)
                .map(|_| scheduler.spawn(Waits { owner, begun: false }, SpawnOptions::new()).unwrap())
                .collect();
            until("all wait", || scheduler.stats().by_state.blocked == WAVE);
            let full = scheduler.registrations();
            assert_eq!((full.timers, full.watches), (2 * WAVE, 2 * WAVE), "each has registered everything");
            for pid in pids {
                scheduler.kill(pid, "test").unwrap();
            }
            until("nothing of the dead is registered", || {
                let left = scheduler.registrations();
                (left.timers, left.watches, left.names, left.accounts) == (0, 0, 0, 0)
                    && left.watched <= empty.watched + 1
            });
            assert_eq!(scheduler.list_processes().len(), 1, "all but the owner are dead");
            scheduler.ask(owner, AnswerAll, Some(LIMIT)).unwrap();
        }
        levels.push(resident());
    }
    assert_eq!(answered.load(Ordering::Relaxed), 0, "no answer reached anybody: they are dead");
    let (early, late) = (levels[ROUNDS / 4], levels[ROUNDS - 1]);
    assert!(late <= early + early / 10, "memory of the rounds, in pages: {levels:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_million_dead_leave_no_registration_and_no_memory() {
    in_a_program_of_its_own("field_cases::a_million_dead");
}

// ------------------------------------------------------------------ FC-013

/// FC-013: a full backlog does not keep a process from starting, from writing to itself, or from asking its
/// parent.
#[test]
fn a_full_backlog_does_not_block_a_start() {
    struct Starts {
        gate: Receiver<()>,
        parent: Pid,
        tell: std::sync::mpsc::Sender<&'static str>,
        begun: bool,
    }
    impl Process for Starts {
        fn init(&mut self, _: &InitContext, _: &str, _: Payload) -> Result<(), ProcessError> {
            Ok(self.gate.recv_timeout(LIMIT)?)
        }
        fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
            if !std::mem::replace(&mut self.begun, true) {
                let me = out.self_pid();
                out.send(me, "from itself")?;
                out.ask(Tag(1), self.parent, (), Some(LIMIT));
                self.tell.send("started")?;
            }
            for event in events.by_ref() {
                self.tell.send(match event {
                    Event::Message(message) if message.payload().is::<&'static str>() => "from itself",
                    Event::Message(message) if message.payload().is::<u64>() => "backlog",
                    Event::Message(_) => "overflow",
                    Event::YieldComplete { result: Ok(_), .. } => "parent's answer",
                    _ => "something else",
                })?;
            }
            Ok(())
        }
    }
    let scheduler = scheduler(2);
    let parent = process(|events, _| {
        for event in events.by_ref() {
            if let Event::Message(mut message) = event {
                message.reply(Payload::empty());
            }
        }
        Ok(())
    });
    let parent = scheduler.spawn(parent, SpawnOptions::new()).unwrap();
    let (open, gate) = channel();
    let (tell, told) = channel();
    let pid = scheduler.spawn(Starts { gate, parent, tell, begun: false }, SpawnOptions::new()).unwrap();
    let topic = Topic::new("fc-013");
    let answers: Vec<_> = (0..10_u64)
        .map(|number| send(Package::new(pid, number).topic(topic).budget(Budget::items(1))))
        .collect();
    assert_eq!(answers[0], Ok(()));
    assert!(
        answers[1..].iter().all(|answer| *answer == Err(SendError::Dropped { pid, topic })),
        "{answers:?}"
    );
    open.send(()).unwrap();
    assert_eq!(recv(&told), "started");
    let mut heard: Vec<_> = (0..4).map(|_| recv(&told)).collect();
    assert_eq!(heard[..2], ["backlog", "overflow"]);
    heard.sort_unstable();
    assert_eq!(heard, ["backlog", "from itself", "overflow", "parent's answer"]);
}

// ------------------------------------------------------------------ FC-014

/// FC-014: who waits for a stop is back after the stop hook; stopping again, during and after, is harmless.
#[test]
fn a_stop_returns_after_the_stop_hook_for_all_who_wait() {
    struct Slow {
        in_hook: std::sync::mpsc::Sender<()>,
        gate: Receiver<()>,
        over: Arc<AtomicBool>,
        cancels: Arc<AtomicUsize>,
    }
    impl Process for Slow {
        fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
            for event in events.by_ref() {
                if let Event::Cancel(_) = event {
                    self.cancels.fetch_add(1, Ordering::SeqCst);
                    out.done(());
                }
            }
            Ok(())
        }
        fn close(&mut self) {
            self.in_hook.send(()).unwrap();
            self.gate.recv_timeout(LIMIT).unwrap();
            self.over.store(true, Ordering::SeqCst);
        }
    }
    let scheduler = scheduler(2);
    let (in_hook, hook) = channel();
    let (open, gate) = channel();
    let over = Arc::new(AtomicBool::new(false));
    let cancels = Arc::new(AtomicUsize::new(0));
    let slow = Slow { in_hook, gate, over: Arc::clone(&over), cancels: Arc::clone(&cancels) };
    let pid = scheduler.spawn(slow, SpawnOptions::new()).unwrap();
    std::thread::scope(|scope| {
        let stop = || {
            let reason = scheduler.stop(pid, LIMIT).unwrap();
            (over.load(Ordering::SeqCst), matches!(*reason, ExitReason::Normal))
        };
        let waiters = [scope.spawn(stop), scope.spawn(stop)];
        recv(&hook);
        // During the hook.
        let third = scope.spawn(stop);
        until("all three wait", || scheduler.registrations().watches == 3);
        open.send(()).unwrap();
        for waiter in waiters.into_iter().chain([third]) {
            assert_eq!(waiter.join().unwrap(), (true, true));
        }
    });
    assert_eq!(cancels.load(Ordering::SeqCst), 1, "it is asked once");
    let after = scheduler.stop(pid, LIMIT).unwrap();
    assert!(matches!(*after, ExitReason::NoProcess));
    assert_eq!(scheduler.registrations().timers, 0);
}

// ------------------------------------------------------------------ FC-025

/// FC-025: what a process does while the scheduler closes has a defined answer each, and the end comes in
/// time.
#[test]
fn every_act_while_closing_has_a_defined_answer() {
    let scheduler = Arc::new(scheduler(2));
    let (tell, told) = channel();
    let inner = Arc::downgrade(&scheduler);
    let other = scheduler
        .spawn(
            process(|events, out| {
                for event in events.by_ref() {
                    match event {
                        Event::Cancel(_) => out.done(()),
                        Event::Message(mut message) => drop(message.take_payload()),
                        _ => {}
                    }
                }
                Ok(())
            }),
            SpawnOptions::new(),
        )
        .unwrap();
    let mut waits = 0;
    let busy = process(move |events, out| {
        for event in events.by_ref() {
            match event {
                Event::Cancel(_) => {
                    let spawned = out.spawn(process(|_, _| Ok(())), SpawnOptions::new()).map(drop);
                    tell.send(("spawn", matches!(spawned, Err(SpawnError::Closing))))?;
                    let spawned = out.spawn_once(|_| {}).map(drop);
                    tell.send(("spawn_once", matches!(spawned, Err(SpawnError::Closing))))?;
                    let named = SpawnOptions::new().name("late").monitored();
                    let spawned = out.spawn(process(|_, _| Ok(())), named).map(drop);
                    tell.send(("spawn named", matches!(spawned, Err(SpawnError::Closing))))?;
                    let sent = out.send(other, ());
                    tell.send(("send", matches!(sent, Ok(()) | Err(SendError::Closed(_)))))?;
                    let me = out.self_pid();
                    tell.send(("send to itself", out.send(me, ()).is_ok()))?;
                    out.command(Tag(1), Sleep(Duration::from_micros(10)));
                    out.command(Tag(2), Blocking::new(|| ()));
                    waits = 2;
                }
                Event::YieldComplete { tag: Tag(1), result } => {
                    tell.send(("timer", result.is_ok()))?;
                    waits -= 1;
                }
                Event::YieldComplete { result, .. } => {
                    tell.send(("blocking", matches!(result, Err(YieldError::Closing))))?;
                    waits -= 1;
                }
                _ => {}
            }
        }
        if waits == 0 && inner.upgrade().is_none_or(|scheduler| scheduler.spawn_once(|_| {}).is_err()) {
            out.done(());
        }
        Ok(())
    });
    // It is there before the shutdown, and its first turn does not end it.
    let busy = scheduler.spawn(busy, SpawnOptions::new()).unwrap();
    // And what its first turn spawned has ended.
    until("both wait", || {
        let now = scheduler.stats().by_state;
        (now.idle, now.total()) == (2, 2)
    });
    let report = scheduler.shutdown(LIMIT);
    assert_eq!((report.finished, report.ended_by_force), (2, 0), "{report:?}");
    let mut answers: Vec<_> = told.try_iter().collect();
    answers.sort_unstable();
    let acts = ["blocking", "send", "send to itself", "spawn", "spawn named", "spawn_once", "timer"];
    assert_eq!(answers, acts.map(|act| (act, true)));
    // And for threads, after the end.
    assert!(matches!(scheduler.spawn_once(|_| {}), Err(SpawnError::Closing)));
    assert_eq!(send(Package::new(busy, ())), Err(SendError::Closed(busy)));
    assert!(matches!(*scheduler.stop(busy, LIMIT).unwrap(), ExitReason::NoProcess));
    assert_eq!(scheduler.shutdown(LIMIT).ended_by_force, 0);
}
