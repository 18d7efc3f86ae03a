//! The table of ends in `src/process/mod.rs`, row by row: what runs, in which order, on which thread, and
//! what hooks and monitors hear. And that a panic in any user code costs one process, never a worker.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use evener_scheduler::commands::{Blocking, Exec, Link, Lookup, Register, Sleep, Terminate};
use evener_scheduler::{
    Command, CommandId, Completer, Event, Events, ExitReason, Handler, HandlerContext, InitContext,
    LifecycleHooks, Package, Payload, Pid, Process, ProcessError, ProcessState, Runtime, Scheduler,
    SendError, SpawnError, SpawnOptions, StartError, StepOutput, Tag, YieldError, send,
};

use crate::support::{
    LIMIT, kill, on_a_worker, process, quiet_panics, recv, scheduler, state, still_works, until,
};

// ------------------------------------------------------------------ what is seen

/// What happened, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }
    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
    fn count(&self, what: &str) -> usize {
        self.all().iter().filter(|line| line.starts_with(what)).count()
    }
    fn has(&self, what: &str) -> bool {
        self.count(what) > 0
    }
}

/// A value whose drop is seen, with the kind of thread it happened on.
struct Dropped {
    log: Log,
    what: &'static str,
    panics: bool,
}

impl Drop for Dropped {
    fn drop(&mut self) {
        let place = if on_a_worker() { "" } else { " OUTSIDE" };
        self.log.note(format!("drop {}{place}", self.what));
        assert!(!self.panics, "drop {} panics on purpose", self.what);
    }
}

type OnStep = Box<dyn FnMut(&mut Events<'_>, &mut StepOutput<'_>) -> Result<(), ProcessError> + Send>;

/// A process whose calls are seen.
struct Probe {
    on_init: Option<Box<dyn FnOnce() -> Result<(), ProcessError> + Send>>,
    on_step: OnStep,
    on_close: Option<Box<dyn FnOnce() + Send>>,
    log: Log,
    _body: Dropped,
}

impl Probe {
    fn new(
        log: &Log,
        step: impl FnMut(&mut Events<'_>, &mut StepOutput<'_>) -> Result<(), ProcessError> + Send + 'static,
    ) -> Self {
        Self {
            on_init: None,
            on_step: Box::new(step),
            on_close: None,
            log: log.clone(),
            _body: Dropped { log: log.clone(), what: "body", panics: false },
        }
    }
    fn init(mut self, init: impl FnOnce() -> Result<(), ProcessError> + Send + 'static) -> Self {
        self.on_init = Some(Box::new(init));
        self
    }
    fn close(mut self, close: impl FnOnce() + Send + 'static) -> Self {
        self.on_close = Some(Box::new(close));
        self
    }
    fn panics_in_drop(mut self) -> Self {
        self._body.panics = true;
        self
    }
}

impl Process for Probe {
    fn init(&mut self, _: &InitContext, method: &str, _: Payload) -> Result<(), ProcessError> {
        self.log.note(if method.is_empty() { "init".to_owned() } else { format!("init {method}") });
        self.on_init.take().map_or(Ok(()), |init| init())
    }
    fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        self.log.note("step");
        (self.on_step)(events, out)
    }
    fn close(&mut self) {
        self.log.note("close");
        if let Some(close) = self.on_close.take() {
            close();
        }
    }
}

/// Hooks that write into the log what they hear of processes that are no part of the harness.
struct Seen {
    log: Log,
}

impl LifecycleHooks for Seen {
    fn on_complete(&self, _: Pid, reason: &ExitReason, result: Option<&Payload>) {
        if !on_a_worker() {
            self.log.note("hook OUTSIDE");
        }
        if let Some(text) = result.and_then(Payload::get::<&'static str>) {
            self.log.note(format!("hook {reason}, {text}"));
        } else if !matches!(reason, ExitReason::Normal) {
            self.log.note(format!("hook {reason}"));
        }
    }
}

struct Bench {
    scheduler: Arc<Scheduler>,
    log: Log,
}

fn bench(workers: usize) -> Bench {
    quiet_panics();
    let log = Log::default();
    let scheduler = Scheduler::builder().workers(workers).hooks(Seen { log: log.clone() }).start().unwrap();
    Bench { scheduler: Arc::new(scheduler), log }
}

impl Bench {
    fn message(&self) -> Dropped {
        Dropped { log: self.log.clone(), what: "message", panics: false }
    }

    /// A watcher spawns `probe`, sends it `messages` messages, and does `then`, all in one step; it writes
    /// what it hears of the probe's end. Gives the probe's PID.
    fn watch_with(
        &self,
        probe: Probe,
        options: SpawnOptions,
        messages: usize,
        then: impl FnOnce(&mut StepOutput<'_>, Pid) + Send + 'static,
    ) -> Pid {
        let (sender, receiver) = channel();
        let log = self.log.clone();
        let mut posts: Vec<_> = (0..messages).map(|_| self.message()).collect();
        let mut first = Some((probe, options, then));
        let watcher = process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
            if let Some((probe, options, then)) = first.take() {
                let pid = out.spawn(probe, options.monitored()).expect("spawned");
                for post in posts.drain(..) {
                    out.send(pid, post).expect("it has not run yet");
                }
                then(out, pid);
                sender.send(pid).unwrap();
            }
            for event in events.by_ref() {
                if let Event::Exit(exit) = event {
                    log.note(format!("{:?} hears: {}", exit.by, exit.reason));
                }
            }
            Ok(())
        });
        self.scheduler.spawn(watcher, SpawnOptions::new()).unwrap();
        recv(&receiver)
    }

    fn watch(&self, probe: Probe, messages: usize) -> Pid {
        self.watch_with(probe, SpawnOptions::new(), messages, |_, _| {})
    }

    /// Waits till the watcher has heard, and checks all that happened.
    #[track_caller]
    fn expect(&self, expected: &[&str]) {
        until("the monitor hears", || self.log.has("Monitor hears"));
        still_works(&self.scheduler, 20);
        assert_eq!(self.log.all(), expected);
    }
}

fn idle(_: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
    out.idle();
    Ok(())
}

fn terminate(out: &mut StepOutput<'_>, pid: Pid) {
    out.command(Tag(7), Terminate { pid, reason: Arc::from("test") });
}

// ------------------------------------------------------------------ the table, row by row

#[test]
fn a_failed_init_is_told_and_nothing_is_closed() {
    let b = bench(1);
    let probe = Probe::new(&b.log, idle).init(|| Err(ProcessError::new("no")));
    let pid = b.watch(probe, 2);
    b.expect(&[
        "init",
        "drop body",
        "drop message",
        "drop message",
        "hook init failed: no",
        "Spawn hears: init failed: no",
        "Monitor hears: init failed: no",
    ]);
    assert_eq!(send(Package::new(pid, 1)), Err(SendError::Closed(pid)));
}

#[test]
fn a_panic_in_init_is_a_failed_init() {
    let b = bench(1);
    b.watch(Probe::new(&b.log, idle).init(|| panic!("on purpose")), 1);
    b.expect(&[
        "init",
        "drop body",
        "drop message",
        "hook init failed: on purpose",
        "Spawn hears: init failed: on purpose",
        "Monitor hears: init failed: on purpose",
    ]);
}

#[test]
fn spawn_wait_hears_of_a_failed_init_and_leaves_nothing() {
    let s = scheduler(1);
    let log = Log::default();
    let probe = Probe::new(&log, idle).init(|| Err(ProcessError::new("no")));
    let error = s.spawn_wait(probe, SpawnOptions::new().name("spawn_wait.nothing")).unwrap_err();
    assert!(matches!(&error, SpawnError::Init(why) if why.text() == "no"), "{error}");
    until("nothing is left", || s.list_processes().is_empty() && s.lookup("spawn_wait.nothing").is_none());
    assert!(s.spawn_wait(Probe::new(&log, idle), SpawnOptions::new().name("spawn_wait.nothing")).is_ok());
}

#[test]
fn done_closes_once_and_gives_its_result() {
    let b = bench(1);
    b.watch(
        Probe::new(&b.log, |_, out| {
            out.done("fine");
            Ok(())
        }),
        2,
    );
    b.expect(&[
        "init",
        "step",
        "close",
        "drop body",
        "drop message",
        "drop message",
        "hook done, fine",
        "Monitor hears: done",
    ]);
    assert_eq!(b.scheduler.stats().total().dropped_messages, 2);
}

#[test]
fn an_error_of_a_step_ends_the_process() {
    let b = bench(1);
    b.watch(Probe::new(&b.log, |_, _| Err(ProcessError::new("broken"))), 1);
    b.expect(&[
        "init",
        "step",
        "close",
        "drop body",
        "drop message",
        "hook failed: broken",
        "Monitor hears: failed: broken",
    ]);
}

#[test]
fn a_panic_of_a_step_ends_the_process() {
    let b = bench(1);
    b.watch(Probe::new(&b.log, |_, _| panic!("broken on purpose")), 1);
    b.expect(&[
        "init",
        "step",
        "close",
        "drop body",
        "drop message",
        "hook panicked: broken on purpose",
        "Monitor hears: panicked: broken on purpose",
    ]);
    assert_eq!(b.scheduler.stats().total().panics, 1);
}

#[test]
fn a_panic_whose_payload_is_no_text_is_a_panic() {
    let b = bench(1);
    b.watch(Probe::new(&b.log, |_, _| std::panic::panic_any(42_u64)), 0);
    b.expect(&[
        "init",
        "step",
        "close",
        "drop body",
        "hook panicked: a panic whose payload is no text",
        "Monitor hears: panicked: a panic whose payload is no text",
    ]);
}

#[test]
fn a_panic_whose_payload_panics_when_dropped_is_contained() {
    struct Bomb(Log);
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.note("drop payload");
            // The second payload panics too.
            std::panic::panic_any(Second(self.0.clone()));
        }
    }
    struct Second(Log);
    impl Drop for Second {
        fn drop(&mut self) {
            self.0.note("drop second payload");
            panic!("on purpose");
        }
    }
    let b = bench(1);
    let log = b.log.clone();
    b.watch(Probe::new(&b.log, move |_, _| std::panic::panic_any(Bomb(log.clone()))), 0);
    b.expect(&[
        "init",
        "step",
        "drop payload",
        "close",
        "drop body",
        "hook panicked: a panic whose payload is no text",
        "Monitor hears: panicked: a panic whose payload is no text",
    ]);
}

#[test]
fn killed_before_its_first_turn_it_neither_begins_nor_closes() {
    let b = bench(1);
    b.watch_with(Probe::new(&b.log, idle), SpawnOptions::new(), 2, terminate);
    b.expect(&[
        "drop body",
        "drop message",
        "drop message",
        "hook killed: test",
        "Monitor hears: killed: test",
    ]);
}

#[test]
fn killed_while_idle_it_closes_once() {
    let b = bench(1);
    let pid = b.watch(Probe::new(&b.log, idle), 0);
    until("idle", || state(&b.scheduler, pid) == Some(ProcessState::Idle));
    kill(&b.scheduler, pid);
    b.expect(&["init", "step", "close", "drop body", "hook killed: test", "Monitor hears: killed: test"]);
}

#[test]
fn killed_while_ready_its_messages_are_dropped() {
    let b = bench(1);
    let pid = b.watch(Probe::new(&b.log, idle), 0);
    until("idle", || state(&b.scheduler, pid) == Some(ProcessState::Idle));
    let message = b.message();
    b.scheduler
        .spawn_once(move |out| {
            out.send(pid, message).unwrap();
            terminate(out, pid);
        })
        .unwrap();
    b.expect(&[
        "init",
        "step",
        "close",
        "drop body",
        "drop message",
        "hook killed: test",
        "Monitor hears: killed: test",
    ]);
}

#[test]
fn killed_while_blocked_its_timer_goes_too() {
    let b = bench(1);
    let pid = b.watch(
        Probe::new(&b.log, |_, out| {
            out.command(Tag(1), Sleep(Duration::from_secs(3600)));
            out.wait_for_yields();
            Ok(())
        }),
        0,
    );
    until("blocked", || state(&b.scheduler, pid) == Some(ProcessState::Blocked));
    assert_eq!(b.scheduler.stats().total().timers, 1);
    kill(&b.scheduler, pid);
    b.expect(&["init", "step", "close", "drop body", "hook killed: test", "Monitor hears: killed: test"]);
    assert_eq!(b.scheduler.stats().total().timers, 0);
}

/// Kills a process in the middle of a step that ends as `after` says.
fn kill_while_running(after: impl Fn(&mut StepOutput<'_>) + Send + 'static) -> Bench {
    let b = bench(2);
    let (begun_tx, begun) = channel();
    let (go, go_rx) = channel::<()>();
    let pid = b.watch(
        Probe::new(&b.log, move |_, out| {
            begun_tx.send(()).unwrap();
            go_rx.recv().unwrap();
            after(out);
            Ok(())
        }),
        1,
    );
    recv(&begun);
    let (killed_tx, killed) = channel();
    // The killer runs on the other worker, and sees the answer to its command.
    let mut asked = false;
    let killer = process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
        if !asked {
            asked = true;
            terminate(out, pid);
        }
        for event in events.by_ref() {
            if let Event::YieldComplete { result, .. } = event {
                assert!(result.is_ok());
                killed_tx.send(()).unwrap();
            }
        }
        Ok(())
    });
    b.scheduler.spawn(killer, SpawnOptions::new()).unwrap();
    recv(&killed);
    assert_eq!(b.log.all(), ["init", "step"], "a running step is left alone");
    go.send(()).unwrap();
    b
}

#[test]
fn killed_while_running_it_ends_after_the_step() {
    for after in 0..3 {
        let b = kill_while_running(move |out| match after {
            0 => out.idle(),
            1 => out.continue_soon(),
            _ => out.wait_for_yields(),
        });
        b.expect(&[
            "init",
            "step",
            "close",
            "drop body",
            "drop message",
            "hook killed: test",
            "Monitor hears: killed: test",
        ]);
    }
}

#[test]
fn killed_in_the_step_that_says_done_it_was_done() {
    let b = kill_while_running(|out| out.done("fine"));
    b.expect(&[
        "init",
        "step",
        "close",
        "drop body",
        "drop message",
        "hook done, fine",
        "Monitor hears: done",
    ]);
}

#[test]
fn killed_from_another_host_it_ends_on_its_own() {
    quiet_panics();
    let log = Log::default();
    let runtime = Runtime::builder()
        .host("victims", |host| host.workers(1))
        .host("killers", |host| host.workers(1))
        .start()
        .unwrap();
    struct Where(Log);
    impl Drop for Where {
        fn drop(&mut self) {
            self.0.note(std::thread::current().name().unwrap_or("?").to_owned());
        }
    }
    let body = Where(log.clone());
    let pid = runtime
        .host("victims")
        .unwrap()
        .spawn(
            process(move |_: &mut Events<'_>, _: &mut StepOutput<'_>| {
                let _ = &body;
                Ok(())
            }),
            SpawnOptions::new(),
        )
        .unwrap();
    until("idle", || state(runtime.host("victims").unwrap(), pid) == Some(ProcessState::Idle));
    send(Package::new(pid, Where(log.clone()))).unwrap();
    kill(runtime.host("killers").unwrap(), pid);
    until("dropped", || log.all().len() == 2);
    assert_eq!(log.all(), ["victims worker 0", "victims worker 0"]);
}

#[test]
fn a_linked_crash_takes_the_partner_down() {
    let b = bench(1);
    let (sender, receiver) = channel();
    let partner = process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
        for event in events.by_ref() {
            match event {
                Event::Message(message) => match message.take::<Pid>() {
                    Ok(pid) => out.command(Tag(0), Link { pid }),
                    Err(_) => panic!("crash on purpose"),
                },
                Event::YieldComplete { .. } => sender.send(()).unwrap(),
                _ => {}
            }
        }
        Ok(())
    });
    let partner = b.scheduler.spawn(partner, SpawnOptions::new()).unwrap();
    let pid = b.watch(Probe::new(&b.log, idle), 0);
    send(Package::new(partner, pid)).unwrap();
    recv(&receiver);
    send(Package::new(partner, ())).unwrap();
    until("the monitor hears", || b.log.has("Monitor hears"));
    let all = b.log.all();
    let (last, first) = all.split_last().unwrap();
    let ours: Vec<_> = first.iter().filter(|line| *line != "hook panicked: crash on purpose").collect();
    assert_eq!(ours[..4], ["init", "step", "close", "drop body"]);
    for told in [ours[4], last] {
        let says = |part: &str| told.contains(part);
        assert!(says(&format!("linked process {partner}")) && says("crash on purpose"), "{told}");
    }
    assert!(ours[4].starts_with("hook") && ours.len() == 5, "{all:?}");
}

#[test]
fn a_shutdown_ends_by_force_who_does_not_end_by_itself() {
    let b = bench(1);
    b.watch(Probe::new(&b.log, idle), 0);
    until("it ran", || b.log.has("step"));
    let report = b.scheduler.shutdown(Duration::from_millis(20));
    // The watcher does not care for cancellation either.
    assert_eq!((report.finished, report.ended_by_force, report.still_running.len()), (0, 2, 0));
    assert_eq!(b.log.count("close"), 1);
    assert_eq!(b.log.count("drop body"), 1);
    assert_eq!(b.log.count("hook shutdown"), 2);
    assert!(!b.log.all().iter().any(|line| line.contains("OUTSIDE")), "{:?}", b.log.all());
}

#[test]
fn a_shutdown_is_over_when_everybody_has_ended() {
    let b = bench(2);
    for _ in 0..100 {
        b.scheduler
            .spawn(
                process(|events: &mut Events<'_>, out: &mut StepOutput<'_>| {
                    for event in events.by_ref() {
                        if let Event::Cancel(cancel) = event {
                            assert_eq!(&*cancel.reason, "shutdown");
                            out.done(());
                        }
                    }
                    Ok(())
                }),
                SpawnOptions::new(),
            )
            .unwrap();
    }
    let report = b.scheduler.shutdown(LIMIT);
    assert_eq!((report.finished, report.ended_by_force, report.still_running.len()), (100, 0, 0));
}

/// Drops a scheduler with one idle and one queued process in the way that `way` says.
fn dropped(way: impl FnOnce(Scheduler, &Log)) {
    quiet_panics();
    let log = Log::default();
    let scheduler = Scheduler::builder()
        .workers(2)
        .command::<DropIt>("drop it", |_: &HandlerContext<'_>, input: Payload, mut completer: Completer| {
            let DropIt(scheduler) = input.take::<DropIt>().expect("a DropIt");
            drop(scheduler);
            completer.complete(Ok(Payload::empty()));
        })
        .hooks(Seen { log: log.clone() })
        .start()
        .unwrap();
    let pid = scheduler.spawn(Probe::new(&log, idle), SpawnOptions::new()).unwrap();
    until("idle", || state(&scheduler, pid) == Some(ProcessState::Idle));
    way(scheduler, &log);
    until("it ends", || log.has("hook shutdown"));
    assert_eq!(log.count("close"), 1, "{:?}", log.all());
    assert_eq!(log.count("drop body"), 1, "{:?}", log.all());
    assert!(!log.all().iter().any(|line| line.contains("OUTSIDE")), "{:?}", log.all());
    until("nobody is admitted", || send(Package::new(pid, 0)) == Err(SendError::Closed(pid)));
}

struct DropIt(Scheduler);
impl Command for DropIt {
    const ID: CommandId = CommandId(300);
}

#[test]
fn a_dropped_scheduler_ends_its_processes() {
    dropped(|scheduler, _| drop(scheduler));
}

#[test]
fn a_scheduler_may_be_dropped_inside_a_step() {
    dropped(|scheduler, _| {
        let scheduler = Arc::new(Mutex::new(Some(scheduler)));
        let inside = Arc::clone(&scheduler);
        let guard = scheduler.lock().unwrap();
        guard
            .as_ref()
            .unwrap()
            .spawn_once(move |_| {
                let scheduler = inside.lock().unwrap().take();
                drop(scheduler);
            })
            .unwrap();
        drop(guard);
        until("dropped inside", || scheduler.lock().unwrap().is_none());
    });
}

#[test]
fn a_scheduler_may_be_dropped_inside_a_handler() {
    dropped(|scheduler, _| {
        let (sender, receiver) = channel::<Scheduler>();
        let done = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&done);
        scheduler
            .spawn_once(move |out| {
                let scheduler = receiver.recv().unwrap();
                out.command(Tag(1), DropIt(scheduler));
                seen.store(true, SeqCst);
            })
            .unwrap();
        sender.send(scheduler).unwrap();
        until("handed out", || done.load(SeqCst));
    });
}

#[test]
fn a_scheduler_may_be_dropped_by_the_drop_of_a_body() {
    dropped(|scheduler, _| {
        let (sender, receiver) = channel::<Scheduler>();
        struct Holds(Receiver<Scheduler>);
        impl Drop for Holds {
            fn drop(&mut self) {
                drop(self.0.recv().unwrap());
            }
        }
        let holds = Holds(receiver);
        scheduler
            .spawn(
                process(move |_: &mut Events<'_>, out: &mut StepOutput<'_>| {
                    let _ = &holds;
                    out.done(());
                    Ok(())
                }),
                SpawnOptions::new(),
            )
            .unwrap();
        sender.send(scheduler).unwrap();
    });
}

#[test]
fn a_scheduler_dropped_while_a_step_is_stuck_returns_at_once() {
    let log = Log::default();
    let s = scheduler(1);
    let (begun_tx, begun) = channel();
    let (go, go_rx) = channel::<()>();
    let probe = Probe::new(&log, move |_, _| {
        begun_tx.send(()).unwrap();
        go_rx.recv().unwrap();
        Ok(())
    });
    s.spawn(probe, SpawnOptions::new()).unwrap();
    recv(&begun);
    // Were it to wait for the step, this would never come back: only we let the step go on.
    drop(s);
    assert_eq!(log.all(), ["init", "step"]);
    go.send(()).unwrap();
    until("it ends", || log.has("drop body"));
    assert_eq!(log.all(), ["init", "step", "close", "drop body"]);
}

#[test]
fn a_shutdown_reports_a_step_that_does_not_end() {
    let s = scheduler(1);
    let (begun_tx, begun) = channel();
    let (go, go_rx) = channel::<()>();
    let pid = s
        .spawn(
            process(move |_: &mut Events<'_>, _: &mut StepOutput<'_>| {
                begun_tx.send(()).unwrap();
                go_rx.recv().unwrap();
                Ok(())
            }),
            SpawnOptions::new(),
        )
        .unwrap();
    recv(&begun);
    let report = s.shutdown(Duration::from_millis(10));
    assert_eq!(report.still_running.iter().map(|(pid, _)| *pid).collect::<Vec<_>>(), [pid]);
    assert_eq!(report.ended_by_force, 0);
    go.send(()).unwrap();
    until("it ends after all", || send(Package::new(pid, 0)) == Err(SendError::Closed(pid)));
}

// ------------------------------------------------------------------ panics elsewhere

#[test]
fn a_panic_in_close_turns_normal_into_panicked_and_leaves_other_reasons() {
    let b = bench(1);
    let done = |_: &mut Events<'_>, out: &mut StepOutput<'_>| {
        out.done("fine");
        Ok(())
    };
    b.watch(Probe::new(&b.log, done).close(|| panic!("close on purpose")), 1);
    until("the monitor hears", || b.log.has("Monitor hears"));
    assert_eq!(b.log.count("close"), 1);
    assert_eq!(b.log.count("drop"), 2);
    assert!(b.log.has("Monitor hears: panicked: close on purpose"), "{:?}", b.log.all());
    let b = bench(1);
    b.watch(Probe::new(&b.log, |_, _| Err(ProcessError::new("first"))).close(|| panic!("on purpose")), 1);
    until("the monitor hears", || b.log.has("Monitor hears"));
    assert!(b.log.has("Monitor hears: failed: first"), "{:?}", b.log.all());
    still_works(&b.scheduler, 20);
}

#[test]
fn panics_in_the_drop_of_body_and_messages_are_contained() {
    let b = bench(1);
    let bombs: Vec<_> = (0..3).map(|_| Dropped { log: b.log.clone(), what: "bomb", panics: true }).collect();
    let probe = Probe::new(&b.log, |_, out| {
        out.done("fine");
        Ok(())
    })
    .panics_in_drop();
    b.watch_with(probe, SpawnOptions::new(), 0, move |out, pid| {
        for bomb in bombs {
            out.send(pid, bomb).unwrap();
        }
    });
    b.expect(&[
        "init",
        "step",
        "close",
        "drop body",
        "drop bomb",
        "drop bomb",
        "drop bomb",
        "hook done, fine",
        "Monitor hears: done",
    ]);
}

#[derive(Debug)]
struct ErrorBomb;
impl std::fmt::Display for ErrorBomb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an error")
    }
}
impl std::error::Error for ErrorBomb {}
impl Drop for ErrorBomb {
    fn drop(&mut self) {
        panic!("drop of an error, on purpose");
    }
}

#[test]
fn panics_in_the_drop_of_an_error_are_contained() {
    let s = scheduler(1);
    for round in 0..4 {
        let failing = move || {
            process(move |_: &mut Events<'_>, _: &mut StepOutput<'_>| -> Result<(), ProcessError> {
                Err(ErrorBomb.into())
            })
        };
        // Watched by nobody; then by a monitor; then through `init`; then by the one who waits for init.
        match round {
            0 => {
                s.spawn(failing(), SpawnOptions::new()).unwrap();
            }
            1 => {
                s.spawn_once(move |out| {
                    out.spawn(failing(), SpawnOptions::new().monitored()).unwrap();
                })
                .unwrap();
            }
            2 => {
                let probe = Probe::new(&Log::default(), idle).init(|| Err(ErrorBomb.into()));
                s.spawn(probe, SpawnOptions::new()).unwrap();
            }
            _ => {
                let linked = move |out: &mut StepOutput<'_>| {
                    out.spawn(failing(), SpawnOptions::new().linked()).unwrap();
                };
                let mut first = Some(linked);
                s.spawn(
                    process(move |_: &mut Events<'_>, out: &mut StepOutput<'_>| {
                        if let Some(first) = first.take() {
                            first(out);
                        }
                        Ok(())
                    }),
                    SpawnOptions::new(),
                )
                .unwrap();
            }
        }
        until("all have ended", || s.list_processes().is_empty());
        still_works(&s, 20);
    }
    assert_eq!(s.shutdown(LIMIT).ended_by_force, 0);
}

#[test]
fn panics_in_the_drop_of_results_and_inputs_are_contained() {
    let s = scheduler(1);
    let log = Log::default();
    let bomb = |what| Dropped { log: log.clone(), what, panics: true };
    // A result that nobody waits for.
    let result = Arc::new(Mutex::new(Some(bomb("result"))));
    let done = move |_: &mut Events<'_>, out: &mut StepOutput<'_>| {
        out.done(result.lock().unwrap().take().unwrap());
        Ok(())
    };
    s.spawn(process(done), SpawnOptions::new()).unwrap();
    until("dropped", || log.has("drop result"));
    // A result whose waiter has ended.
    let result = Arc::new(Mutex::new(Some(bomb("late result"))));
    s.spawn_once(move |out| {
        let slow = process(move |_: &mut Events<'_>, out: &mut StepOutput<'_>| {
            out.done(result.lock().unwrap().take().unwrap());
            Ok(())
        });
        out.command(Tag(1), Exec::new(slow, SpawnOptions::new()));
    })
    .unwrap();
    until("dropped", || log.has("drop late result"));
    // An input that no `init` ever saw.
    let input = bomb("input");
    s.spawn_once(move |out| {
        let pid = out.spawn(
            process(|_: &mut Events<'_>, _: &mut StepOutput<'_>| Ok(())),
            SpawnOptions::new().input(input),
        );
        terminate(out, pid.unwrap());
    })
    .unwrap();
    until("dropped", || log.has("drop input"));
    // The input of a command that nobody knows, and of one whose handler takes something else.
    let (unknown, wrong) = (bomb("unknown"), bomb("wrong"));
    s.spawn_once(move |out| {
        out.command_by_id(Tag(1), CommandId(999), Payload::new(unknown));
        out.command_by_id(Tag(2), Sleep::ID, Payload::new(wrong));
    })
    .unwrap();
    until("dropped", || log.has("drop unknown") && log.has("drop wrong"));
    // A result that a failing step had set.
    let result = Arc::new(Mutex::new(Some(bomb("result of an error"))));
    let failing = move |_: &mut Events<'_>, out: &mut StepOutput<'_>| {
        out.done(result.lock().unwrap().take().unwrap());
        Err(ProcessError::new("after all"))
    };
    s.spawn(process(failing), SpawnOptions::new()).unwrap();
    until("dropped", || log.has("drop result of an error"));
    still_works(&s, 20);
    assert!(!log.all().iter().any(|line| line.contains("OUTSIDE")), "{:?}", log.all());
    assert_eq!(s.shutdown(LIMIT).ended_by_force, 0);
}

#[test]
fn panics_in_hooks_are_contained() {
    struct Bad;
    impl LifecycleHooks for Bad {
        fn on_start(&self, _: Pid, type_name: &'static str) -> Result<(), ProcessError> {
            assert!(!type_name.contains("Probe"), "start on purpose");
            Ok(())
        }
        fn on_complete(&self, _: Pid, _: &ExitReason, _: Option<&Payload>) {
            panic!("complete on purpose");
        }
    }
    quiet_panics();
    let s = Scheduler::builder().workers(1).hooks(Bad).start().unwrap();
    still_works(&s, 20);
    let log = Log::default();
    let refused = s.spawn(Probe::new(&log, idle), SpawnOptions::new()).unwrap_err();
    assert!(matches!(&refused, SpawnError::Refused(why) if why.text() == "start on purpose"), "{refused}");
    assert_eq!(log.count("drop body"), 1);
    still_works(&s, 20);
    until("nothing is left", || s.list_processes().is_empty());
}

#[test]
fn who_was_started_is_completed_even_if_its_name_was_taken() {
    #[derive(Default)]
    struct Counts(AtomicUsize, AtomicUsize);
    struct Both(Arc<Counts>);
    impl LifecycleHooks for Both {
        fn on_start(&self, _: Pid, _: &'static str) -> Result<(), ProcessError> {
            self.0.0.fetch_add(1, SeqCst);
            Ok(())
        }
        fn on_complete(&self, _: Pid, reason: &ExitReason, _: Option<&Payload>) {
            assert!(matches!(reason, ExitReason::InitFailed(_) | ExitReason::Shutdown), "{reason}");
            self.0.1.fetch_add(1, SeqCst);
        }
    }
    let counts = Arc::new(Counts::default());
    let s = Scheduler::builder().workers(1).hooks(Both(Arc::clone(&counts))).start().unwrap();
    let log = Log::default();
    s.spawn(Probe::new(&log, idle), SpawnOptions::new().name("one")).unwrap();
    let (started, completed) = (counts.0.load(SeqCst), counts.1.load(SeqCst));
    let taken = s.spawn(Probe::new(&log, idle), SpawnOptions::new().name("one"));
    assert!(matches!(taken, Err(SpawnError::NameTaken { .. })));
    assert_eq!((counts.0.load(SeqCst) - started, counts.1.load(SeqCst) - completed), (1, 1));
    // The probe does not end by itself.
    assert_eq!(s.shutdown(Duration::from_millis(20)).ended_by_force, 1);
    assert_eq!(counts.0.load(SeqCst), counts.1.load(SeqCst));
}

#[test]
fn hooks_and_handlers_whose_drop_panics_do_no_harm() {
    struct Bad(Arc<AtomicUsize>);
    impl Drop for Bad {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
            panic!("drop on purpose");
        }
    }
    impl LifecycleHooks for Bad {}
    impl Handler for Bad {
        fn handle(&self, _: &HandlerContext<'_>, _: Payload, mut completer: Completer) {
            completer.complete(Ok(Payload::new(())));
        }
    }
    quiet_panics();
    for ends_itself in [false, true] {
        let dropped = Arc::new(AtomicUsize::new(0));
        let bad = || Bad(Arc::clone(&dropped));
        let s = Scheduler::builder()
            .workers(2)
            .hooks(bad())
            .handler_by_id(CommandId(1000), "bad", bad())
            .start()
            .unwrap();
        still_works(&s, 20);
        if ends_itself {
            assert_eq!(s.shutdown(LIMIT).ended_by_force, 0);
        }
        drop(s);
        until("both are dropped", || dropped.load(SeqCst) == 2);
    }
}

#[test]
fn on_start_may_refuse_and_then_nothing_is_left() {
    struct No(AtomicUsize);
    impl LifecycleHooks for No {
        fn on_start(&self, pid: Pid, type_name: &'static str) -> Result<(), ProcessError> {
            if type_name.contains("Probe") {
                return Err(ProcessError::new(format_args!("not {pid}")));
            }
            Ok(())
        }
        fn on_complete(&self, _: Pid, _: &ExitReason, _: Option<&Payload>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let s = Scheduler::builder().workers(1).hooks(No(AtomicUsize::new(0))).start().unwrap();
    let log = Log::default();
    let refused = s.spawn(Probe::new(&log, idle), SpawnOptions::new().name("refused")).unwrap_err();
    assert!(matches!(refused, SpawnError::Refused(_)), "{refused}");
    assert_eq!(log.count("drop body"), 1);
    assert_eq!((log.count("init"), log.count("close")), (0, 0));
    assert!(s.list_processes().is_empty());
    assert_eq!(s.lookup("refused"), None);
    // By a step too, which is told at once.
    let (sender, receiver) = channel();
    let probe = Probe::new(&log, idle);
    s.spawn_once(move |out| {
        let refused = out.spawn(probe, SpawnOptions::new());
        sender.send(matches!(refused, Err(SpawnError::Refused(_)))).unwrap();
    })
    .unwrap();
    assert!(recv(&receiver));
    assert_eq!(s.shutdown(LIMIT).ended_by_force, 0);
}

// ------------------------------------------------------------------ methods, upgrade, events

struct Methods;
impl Process for Methods {
    fn methods() -> &'static [&'static str] {
        &["count", "sum"]
    }
    fn step(&mut self, _: &mut Events<'_>, _: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        Ok(())
    }
}

#[test]
fn an_unknown_method_is_refused_at_once() {
    let s = scheduler(1);
    let error = s.spawn(Methods, SpawnOptions::new().method("product").name("unknown.method")).unwrap_err();
    assert!(matches!(&error, SpawnError::UnknownMethod { method, known, .. }
        if method == "product" && *known == ["count", "sum"]));
    assert!(error.to_string().contains("product") && error.to_string().contains("count"), "{error}");
    assert!(s.list_processes().is_empty());
    assert_eq!(s.lookup("unknown.method"), None);
    assert!(s.spawn(Methods, SpawnOptions::new().method("sum")).is_ok());
    // A type without a table decides in `init`.
    let log = Log::default();
    let probe = Probe::new(&log, idle).init(|| Err(ProcessError::unknown_method("odd")));
    let error = s.spawn_wait(probe, SpawnOptions::new().method("odd")).unwrap_err();
    assert!(error.to_string().contains("unknown method `odd`"), "{error}");
}

#[test]
fn an_upgrade_keeps_pid_mailbox_order_and_monitors() {
    let b = bench(1);
    let (sender, receiver) = channel();
    let (old_log, new_log) = (b.log.clone(), b.log.clone());
    let mut next = Some(move || {
        Probe::new(&new_log, move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
            for event in events.by_ref() {
                if let Event::Message(message) = event {
                    let number = message.take::<u32>().unwrap();
                    sender.send((out.self_pid(), number)).unwrap();
                    if number == 9 {
                        out.done("new");
                    }
                }
            }
            Ok(())
        })
    });
    let old = Probe::new(&old_log, move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
        // Takes one message, leaves the rest.
        if let Some(Event::Message(message)) = events.next() {
            assert_eq!(message.take::<u32>().unwrap(), 0);
            out.upgrade((next.take().unwrap())(), "second", Payload::new(1_u8));
        }
        Ok(())
    });
    let pid = b.watch_with(old, SpawnOptions::new(), 0, |out, pid| {
        for number in 0..10_u32 {
            out.send(pid, number).unwrap();
        }
    });
    let got: Vec<_> = (1..10).map(|_| recv(&receiver)).collect();
    assert_eq!(got, (1..10).map(|number| (pid, number)).collect::<Vec<_>>());
    b.expect(&[
        "init",
        "step",
        "close",
        "drop body",
        "init second",
        "step",
        "close",
        "drop body",
        "hook done, new",
        "Monitor hears: done",
    ]);
}

#[test]
fn an_upgrade_to_a_method_that_is_not_there_fails_like_an_init() {
    let s = scheduler(1);
    for (method, is_there) in [("product", false), ("sum", true)] {
        let upgrading = move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
            if events.count() > 0 {
                out.upgrade(Methods, method, Payload::empty());
            }
            Ok(())
        };
        let pid = s.spawn(process(upgrading), SpawnOptions::new()).unwrap();
        let end = std::thread::scope(|scope| {
            let end = scope.spawn(|| (!is_there).then(|| s.join(pid, Some(LIMIT)).unwrap()));
            until("somebody waits", || is_there || s.registrations().watches == 1);
            send(Package::new(pid, ())).unwrap();
            end.join().unwrap()
        });
        let Some(end) = end else {
            until("it is another", || s.list_processes()[0].type_name.contains("dyn"));
            continue;
        };
        let ExitReason::InitFailed(error) = &*end else { panic!("{end}") };
        let source = error.source().expect("a typed error").downcast_ref::<SpawnError>();
        assert!(matches!(source, Some(SpawnError::UnknownMethod { method, .. }) if method == "product"));
        assert!(s.list_processes().is_empty());
    }
}

#[test]
fn an_upgrade_whose_init_fails_ends_the_process() {
    let b = bench(1);
    let log = b.log.clone();
    let mut next = Some(move || Probe::new(&log, idle).init(|| Err(ProcessError::new("not so"))));
    let old = Probe::new(&b.log, move |_: &mut Events<'_>, out: &mut StepOutput<'_>| {
        out.upgrade((next.take().unwrap())(), "second", Payload::empty());
        Ok(())
    });
    b.watch(old, 1);
    b.expect(&[
        "init",
        "step",
        "close",
        "drop body",
        "init second",
        "drop body",
        "drop message",
        "hook init failed: not so",
        "Monitor hears: init failed: not so",
    ]);
}

#[test]
fn an_upgrade_whose_every_part_panics_is_contained() {
    let b = bench(1);
    let log = b.log.clone();
    let input = Arc::new(Mutex::new(Some(Dropped { log: b.log.clone(), what: "input", panics: true })));
    let old = Probe::new(&b.log, move |_: &mut Events<'_>, out: &mut StepOutput<'_>| {
        let new = Probe::new(&log, idle).panics_in_drop();
        out.upgrade(new, "second", Payload::new(input.lock().unwrap().take().unwrap()));
        Ok(())
    })
    .close(|| panic!("close on purpose"))
    .panics_in_drop();
    b.watch(old, 0);
    until("the monitor hears", || b.log.has("Monitor hears"));
    still_works(&b.scheduler, 20);
    assert_eq!(b.log.count("close"), 1, "{:?}", b.log.all());
    assert_eq!(b.log.count("drop body"), 2);
    assert_eq!(b.log.count("drop input"), 1);
    assert_eq!(b.log.count("init second"), 0);
    assert!(b.log.has("Monitor hears: panicked: close on purpose"));
}

#[test]
fn events_not_taken_stay_queued_in_order() {
    let s = Scheduler::builder().workers(1).events_per_step_max(3).start().unwrap();
    let (sender, receiver) = channel();
    let mut step = 0_u32;
    let slow = process(move |events: &mut Events<'_>, _: &mut StepOutput<'_>| {
        step += 1;
        // Every second turn takes one, the others all that they may.
        let take = if step.is_multiple_of(2) { 1 } else { 100 };
        let mut taken = 0;
        for event in events.by_ref().take(take) {
            if let Event::Message(message) = event {
                sender.send((step, message.take::<u32>().unwrap())).unwrap();
                taken += 1;
            }
        }
        assert!(taken <= 3, "the cap holds");
        Ok(())
    });
    s.spawn_once(move |out| {
        let pid = out.spawn(slow, SpawnOptions::new()).unwrap();
        for number in 0..100_u32 {
            out.send(pid, number).unwrap();
        }
    })
    .unwrap();
    let got: Vec<(u32, u32)> = (0..100).map(|_| recv(&receiver)).collect();
    assert_eq!(got.iter().map(|(_, number)| *number).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    let most = got.chunk_by(|one, other| one.0 == other.0).map(<[_]>::len).collect::<Vec<_>>();
    assert_eq!(most[..4], [3, 1, 3, 1]);
}

#[test]
fn a_process_that_forgets_its_own_pid_lives_on() {
    let s = scheduler(1);
    let (sender, receiver) = channel();
    let mut own: Option<Pid> = None;
    let pid = s
        .spawn(
            process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
                own = match own {
                    None => Some(out.self_pid()),
                    Some(_) => None,
                };
                for event in events.by_ref() {
                    if let Event::Message(message) = event {
                        sender.send(message.take::<u32>().unwrap()).unwrap();
                    }
                }
                Ok(())
            }),
            SpawnOptions::new(),
        )
        .unwrap();
    for number in 0..4_u32 {
        send(Package::new(pid, number)).unwrap();
        assert_eq!(recv(&receiver), number);
    }
}

#[test]
fn a_process_may_send_to_itself() {
    let s = scheduler(1);
    let (sender, receiver) = channel();
    let mut begun = false;
    s.spawn(
        process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
            if !begun {
                begun = true;
                out.send(out.self_pid(), 1_u32).unwrap();
            }
            for event in events.by_ref() {
                if let Event::Message(message) = event {
                    let number = message.take::<u32>().unwrap();
                    if number == 1000 {
                        sender.send(()).unwrap();
                    } else {
                        out.send(out.self_pid(), number + 1).unwrap();
                    }
                }
            }
            Ok(())
        }),
        SpawnOptions::new(),
    )
    .unwrap();
    recv(&receiver);
}

// ------------------------------------------------------------------ settings, submit after the end

#[test]
fn absurd_settings_are_refused_by_name() {
    let refused = |builder: evener_scheduler::Builder, name: &str| match builder.start() {
        Err(StartError::Setting { setting, .. }) => assert_eq!(setting, name),
        other => panic!("{name}: {other:?}"),
    };
    let new = Scheduler::builder;
    refused(new().workers(0), "workers");
    refused(new().workers(1025), "workers");
    refused(new().workers(usize::MAX), "workers");
    refused(new().events_per_step_max(0), "events_per_step_max");
    refused(new().events_per_step_max(u32::MAX), "events_per_step_max");
    refused(new().spin(u32::MAX, 0), "spin rounds");
    refused(new().spin(0, u32::MAX), "spin rounds");
    refused(new().spin_max(Duration::MAX), "spin_max in microseconds");
    refused(new().spin_max(Duration::from_secs(2)), "spin_max in microseconds");
    refused(new().processes_max(0), "processes_max");
    refused(new().blocking(0, 1), "blocking_threads_max");
    refused(new().blocking(usize::MAX, 1), "blocking_threads_max");
    refused(new().generation_max(0), "generation_max");
    refused(new().generation_max(u32::MAX), "generation_max");
}

#[test]
fn a_full_host_says_so_and_has_room_again_later() {
    let s = Scheduler::builder().workers(1).processes_max(3).start().unwrap();
    let log = Log::default();
    let pids: Vec<_> =
        (0..3).map(|_| s.spawn(Probe::new(&log, idle), SpawnOptions::new()).unwrap()).collect();
    let full = s.spawn(Probe::new(&log, idle), SpawnOptions::new()).unwrap_err();
    assert!(matches!(full, SpawnError::HostFull { max: 3, .. }), "{full}");
    assert_eq!(log.count("drop body"), 1);
    until("it ran", || log.count("step") == 3);
    let killer = Scheduler::builder().workers(1).start().unwrap();
    kill(&killer, pids[0]);
    until("there is room again", || s.spawn(Probe::new(&log, idle), SpawnOptions::new()).is_ok());
}

#[test]
fn who_comes_after_the_end_is_told_that_it_is_closing() {
    let s = scheduler(2);
    let pid = s.spawn(Probe::new(&Log::default(), idle), SpawnOptions::new()).unwrap();
    let first = s.shutdown(Duration::ZERO);
    assert_eq!(first.ended_by_force + first.finished, 1);
    let log = Log::default();
    // Another scheduler, which is free to use what the first one left.
    let other = scheduler(2);
    for _ in 0..2 {
        let closing = s.spawn(Probe::new(&log, idle), SpawnOptions::new()).unwrap_err();
        assert!(matches!(closing, SpawnError::Closing), "{closing}");
        let closing = s.spawn_wait(Probe::new(&log, idle), SpawnOptions::new()).unwrap_err();
        assert!(matches!(closing, SpawnError::Closing), "{closing}");
        assert!(matches!(s.spawn_once(|_| {}), Err(SpawnError::Closing)));
        assert_eq!(send(Package::new(pid, 0)), Err(SendError::Closed(pid)));
        assert_eq!(s.stats().by_state.total(), 0);
        assert!(s.list_processes().is_empty());
        // A second shutdown has nothing left to do, and does nothing to the other scheduler.
        let again = s.shutdown(LIMIT);
        assert_eq!((again.finished, again.ended_by_force, again.still_running.len()), (0, 0, 0));
        still_works(&other, 100);
    }
    assert_eq!(log.count("drop body"), 4);
    drop(s);
    still_works(&other, 100);
    assert_eq!(other.shutdown(LIMIT).ended_by_force, 0);
}

#[test]
fn two_threads_may_shut_down_at_once() {
    for round in 0..50 {
        let s = Arc::new(scheduler(1 + round % 3));
        for _ in 0..10 {
            s.spawn(Probe::new(&Log::default(), idle), SpawnOptions::new()).unwrap();
        }
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let s = Arc::clone(&s);
                std::thread::spawn(move || s.shutdown(Duration::from_millis(1)))
            })
            .collect();
        for thread in threads {
            assert!(thread.join().unwrap().still_running.is_empty());
        }
        assert!(matches!(s.spawn_once(|_| {}), Err(SpawnError::Closing)));
    }
}

#[test]
fn one_scheduler_after_another_works_from_its_first_moment() {
    // Each takes over the workers' memory of the one before: counts of sleepers and searchers included.
    for round in 0..60 {
        let s = scheduler(3);
        if round % 3 == 0 {
            until("all sleep", || s.stats().parked == 3);
        }
        still_works(&s, 50);
        until("all sleep", || s.stats().parked == 3);
        assert_eq!(s.stats().searching, 0, "round {round}");
        still_works(&s, 50);
        if round % 2 == 0 {
            s.shutdown(LIMIT);
        }
    }
}

#[test]
fn a_shutdown_called_on_its_own_worker_does_not_wait_for_itself() {
    let s = Arc::new(scheduler(1));
    let inside = Arc::clone(&s);
    let (sender, receiver) = channel();
    let pid = s
        .spawn(
            process(move |_: &mut Events<'_>, _: &mut StepOutput<'_>| {
                inside.shutdown(LIMIT);
                sender.send(()).unwrap();
                Ok(())
            }),
            SpawnOptions::new(),
        )
        .unwrap();
    recv(&receiver);
    until("it ends", || send(Package::new(pid, 0)) == Err(SendError::Closed(pid)));
    assert!(matches!(s.spawn_once(|_| {}), Err(SpawnError::Closing)));
}

// ------------------------------------------------------------------ field cases

/// FC-024: panics never cost a worker or a blocking thread, and every waiter gets an answer.
#[test]
fn panics_never_shrink_a_pool() {
    const WORKERS: usize = 2;
    const THREADS: usize = 3;
    quiet_panics();
    let s = Scheduler::builder().workers(WORKERS).blocking(THREADS, 1 << 20).start().unwrap();
    let (sender, receiver) = channel();
    let mut begun = false;
    s.spawn(
        process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
            if !begun {
                begun = true;
                for tag in 0..=WORKERS as u64 {
                    let bad = process(|_: &mut Events<'_>, _: &mut StepOutput<'_>| panic!("step on purpose"));
                    out.command(Tag(tag), Exec::new(bad, SpawnOptions::new()));
                }
                for tag in 0..=THREADS as u64 {
                    out.command(Tag(100 + tag), Blocking::new(|| -> u32 { panic!("closure on purpose") }));
                }
            }
            for event in events.by_ref() {
                if let Event::YieldComplete { tag, result } = event {
                    sender.send((tag.0, result.unwrap_err().to_string())).unwrap();
                }
            }
            Ok(())
        }),
        SpawnOptions::new(),
    )
    .unwrap();
    let mut answers: Vec<_> = (0..WORKERS + 1 + THREADS + 1).map(|_| recv(&receiver)).collect();
    answers.sort();
    assert_eq!(answers.iter().map(|answer| answer.0).collect::<Vec<_>>(), [0, 1, 2, 100, 101, 102, 103]);
    for (tag, text) in answers {
        assert!(text.contains("panicked") && text.contains("on purpose"), "{tag}: {text}");
    }
    assert_eq!(s.stats().workers.len(), WORKERS);
    assert_eq!(s.stats().total().panics as usize, WORKERS + 1);
    still_works(&s, 1000);
    // Both workers are there still: two steps that wait for each other both run.
    let barrier = Arc::new(std::sync::Barrier::new(WORKERS));
    let (sender, receiver) = channel();
    for _ in 0..WORKERS {
        let (barrier, sender) = (Arc::clone(&barrier), sender.clone());
        s.spawn_once(move |_| {
            barrier.wait();
            sender.send(()).unwrap();
        })
        .unwrap();
    }
    for _ in 0..WORKERS {
        recv(&receiver);
    }
    // And as many blocking closures as before run side by side.
    let barrier = Arc::new(std::sync::Barrier::new(THREADS));
    let (sender, receiver) = channel();
    s.spawn(
        process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
            for tag in 0..THREADS as u64 {
                let barrier = Arc::clone(&barrier);
                if out.self_pid().host() < u16::MAX && events.waiting() == 0 {
                    out.command(Tag(tag), Blocking::new(move || barrier.wait().is_leader()));
                }
            }
            for event in events.by_ref() {
                if let Event::YieldComplete { result, .. } = event {
                    sender.send(result.is_ok()).unwrap();
                }
            }
            out.wait_for_yields();
            Ok(())
        }),
        SpawnOptions::new(),
    )
    .unwrap();
    for _ in 0..THREADS {
        assert!(recv(&receiver));
    }
}

/// FC-021 at the raw level: there a step is the unit, so a panic ends its process, and only that one.
#[test]
fn a_panic_on_one_message_costs_that_process_alone() {
    let b = bench(1);
    let handled = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&handled);
    let make = move |fails: bool| {
        let seen = Arc::clone(&seen);
        move |events: &mut Events<'_>, _: &mut StepOutput<'_>| {
            for event in events.by_ref() {
                if let Event::Message(message) = event {
                    let number = message.take::<u32>().unwrap();
                    assert!(!fails || number != 5, "on purpose");
                    seen.fetch_add(1, SeqCst);
                }
            }
            Ok(())
        }
    };
    let good = b.scheduler.spawn(process(make(false)), SpawnOptions::new()).unwrap();
    let bad = make(true);
    b.watch_with(Probe::new(&b.log, bad), SpawnOptions::new(), 0, move |out, pid| {
        for number in 1..=20_u32 {
            out.send(pid, number).unwrap();
            out.send(good, number).unwrap();
        }
    });
    b.expect(&[
        "init",
        "step",
        "close",
        "drop body",
        "hook panicked: on purpose",
        "Monitor hears: panicked: on purpose",
    ]);
    until("the other one handles all", || handled.load(SeqCst) == 4 + 20);
    let total = b.scheduler.stats().total();
    assert_eq!((total.panics, total.dropped_messages), (1, 15));
}

/// A body whose destructor does all that it must not be hindered in: sends, spawns with a timer, drops the
/// last handle of a third party.
struct Destructive {
    scheduler: Arc<Scheduler>,
    other: Pid,
    third: Option<Third>,
    answers: Sender<String>,
}

/// The last handle of something: dropping it sends as well.
struct Third(Pid);
impl Drop for Third {
    fn drop(&mut self) {
        let _ = send(Package::new(self.0, "third"));
    }
}

impl Drop for Destructive {
    fn drop(&mut self) {
        let sent = match send(Package::new(self.other, "destructor")) {
            Ok(()) => "sent",
            Err(SendError::Closed(_)) => "closed",
            Err(other) => panic!("{other}"),
        };
        let mut armed = false;
        let spawned = self.scheduler.spawn(
            process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
                if !std::mem::replace(&mut armed, true) {
                    out.command(Tag(0), Sleep(Duration::from_millis(1)));
                }
                if events.next().is_some() {
                    out.done(());
                }
                Ok(())
            }),
            SpawnOptions::new(),
        );
        let spawned = match spawned {
            Ok(_) => "spawned",
            Err(SpawnError::Closing) => "closing",
            Err(other) => panic!("{other}"),
        };
        drop(self.third.take());
        let _ = self.answers.send(format!("{sent}, {spawned}"));
    }
}

/// FC-022: destructors run under no lock, so whatever they do is answered.
#[test]
fn destructors_may_send_spawn_and_drop_handles() {
    let s = Arc::new(scheduler(2));
    let (other_tx, other_rx) = channel();
    let other = s
        .spawn(
            process(move |events: &mut Events<'_>, _: &mut StepOutput<'_>| {
                for event in events.by_ref() {
                    if let Event::Message(message) = event {
                        let _ = other_tx.send(message.take::<&'static str>().unwrap());
                    }
                }
                Ok(())
            }),
            SpawnOptions::new(),
        )
        .unwrap();
    let (answers, receiver) = channel();
    let body = || Destructive {
        scheduler: Arc::clone(&s),
        other,
        third: Some(Third(other)),
        answers: answers.clone(),
    };
    let idle_with = |body: Destructive| {
        process(move |_: &mut Events<'_>, _: &mut StepOutput<'_>| {
            let _ = &body;
            Ok(())
        })
    };
    // In normal running, killed while idle; its mailbox is full of such values too.
    let pid = s.spawn(idle_with(body()), SpawnOptions::new()).unwrap();
    until("idle", || state(&s, pid) == Some(ProcessState::Idle));
    kill(&s, pid);
    assert_eq!(recv(&receiver), "sent, spawned");
    // Killed while its queue is drained: it is in a step, and more wait.
    let (begun_tx, begun) = channel();
    let (go, go_rx) = channel::<()>();
    let inner = body();
    let pid = s
        .spawn(
            process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
                let _ = &inner;
                if let Some(Event::Message(_)) = events.next() {
                    let _ = begun_tx.send(());
                    let _ = go_rx.recv();
                }
                out.idle();
                Ok(())
            }),
            SpawnOptions::new(),
        )
        .unwrap();
    for _ in 0..3 {
        send(Package::new(pid, body())).unwrap();
    }
    recv(&begun);
    kill(&s, pid);
    still_works(&s, 1);
    go.send(()).unwrap();
    for _ in 0..4 {
        assert_eq!(recv(&receiver), "sent, spawned");
    }
    for _ in 0..5 {
        let mut both = [recv(&other_rx), recv(&other_rx)];
        both.sort_unstable();
        assert!(both.iter().all(|text| ["destructor", "third"].contains(text)));
    }
    until("the sleepers wake and end", || s.list_processes().len() == 1);
    // In shutdown.
    for _ in 0..3 {
        s.spawn(idle_with(body()), SpawnOptions::new()).unwrap();
    }
    let report = s.shutdown(Duration::from_millis(5));
    assert!(report.still_running.is_empty());
    for _ in 0..3 {
        let answer = recv(&receiver);
        assert!(["sent, closing", "closed, closing"].contains(&answer.as_str()), "{answer}");
    }
}

/// FC-025: what hooks, `close` and the last step try while the scheduler closes is answered, typed.
#[test]
fn everything_tried_while_closing_gets_a_defined_answer() {
    struct Tries {
        scheduler: Mutex<Option<std::sync::Weak<Scheduler>>>,
        answers: Mutex<Vec<String>>,
    }
    struct Hooks(Arc<Tries>);
    impl Tries {
        fn attempt(&self, who: &str, pid: Pid) {
            let Some(scheduler) = self.scheduler.lock().unwrap().as_ref().and_then(std::sync::Weak::upgrade)
            else {
                return;
            };
            let spawn = scheduler
                .spawn(process(|_: &mut Events<'_>, _: &mut StepOutput<'_>| Ok(())), SpawnOptions::new());
            let once = scheduler.spawn_once(|_| {});
            let wait = scheduler.spawn_wait(
                process(|_: &mut Events<'_>, _: &mut StepOutput<'_>| Ok(())),
                SpawnOptions::new(),
            );
            let sent = send(Package::new(pid, "while closing"));
            assert!(matches!(spawn, Err(SpawnError::Closing)), "{who}: {spawn:?}");
            assert!(matches!(once, Err(SpawnError::Closing)), "{who}: {once:?}");
            assert!(matches!(wait, Err(SpawnError::OnWorker)), "{who}: {wait:?}");
            assert!(sent.is_ok() || sent == Err(SendError::Closed(pid)), "{who}: {sent:?}");
            let _ = scheduler.stats();
            let _ = scheduler.list_processes();
            let _ = scheduler.lookup("nobody");
            self.answers.lock().unwrap().push(who.to_owned());
        }
    }
    impl LifecycleHooks for Hooks {
        fn on_complete(&self, pid: Pid, _: &ExitReason, _: Option<&Payload>) {
            self.0.attempt("hook", pid);
        }
    }
    struct Stops {
        tries: Arc<Tries>,
        pid: Pid,
        yields: usize,
        cancelled: bool,
        answers: Sender<(u64, Result<(), YieldError>)>,
    }
    impl Process for Stops {
        fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
            self.pid = out.self_pid();
            for event in events.by_ref() {
                match event {
                    Event::Cancel(_) if !self.cancelled => {
                        self.cancelled = true;
                        let nobody = || process(|_: &mut Events<'_>, _: &mut StepOutput<'_>| Ok(()));
                        assert!(matches!(out.spawn(nobody(), SpawnOptions::new()), Err(SpawnError::Closing)));
                        assert!(matches!(out.spawn_once(|_| {}), Err(SpawnError::Closing)));
                        out.send(self.pid, ()).expect("it still lives");
                        out.command(
                            Tag(1),
                            evener_scheduler::commands::Spawn::new(nobody(), SpawnOptions::new()),
                        );
                        out.command(Tag(2), Exec::new(nobody(), SpawnOptions::new()));
                        out.command(Tag(3), Blocking::new(|| ()));
                        out.command(Tag(4), Sleep(Duration::from_millis(1)));
                        out.command(Tag(5), Register { name: "while closing".into(), pid: self.pid });
                        out.command(Tag(6), Lookup { name: "while closing".into() });
                        self.yields = 6;
                    }
                    Event::YieldComplete { tag, result } => {
                        self.yields -= 1;
                        self.answers.send((tag.0, result.map(drop))).unwrap();
                        if self.yields == 0 {
                            out.done(());
                        }
                    }
                    _ => {}
                }
            }
            Ok(())
        }
        fn close(&mut self) {
            self.tries.attempt("close", self.pid);
        }
    }
    impl Drop for Stops {
        fn drop(&mut self) {
            self.tries.attempt("drop", self.pid);
        }
    }
    quiet_panics();
    let tries = Arc::new(Tries { scheduler: Mutex::new(None), answers: Mutex::default() });
    let s = Scheduler::builder().workers(2).hooks(Hooks(Arc::clone(&tries))).start().unwrap();
    let s = Arc::new(s);
    let (answers, receiver) = channel();
    let placeholder = "0.0.1.0".parse().unwrap();
    let stops = Stops { tries: Arc::clone(&tries), pid: placeholder, yields: 0, cancelled: false, answers };
    let pid = s.spawn(stops, SpawnOptions::new()).unwrap();
    until("idle", || state(&s, pid) == Some(ProcessState::Idle));
    *tries.scheduler.lock().unwrap() = Some(Arc::downgrade(&s));
    let began = Instant::now();
    let report = s.shutdown(LIMIT);
    assert!(began.elapsed() < LIMIT, "it ended in time");
    assert_eq!((report.finished, report.ended_by_force), (1, 0));
    let mut answers: Vec<_> = receiver.try_iter().collect();
    answers.sort_by_key(|(tag, _)| *tag);
    let [spawn, exec, blocking, sleep, register, lookup] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert!(matches!(spawn.1, Err(YieldError::Spawn(SpawnError::Closing))), "{spawn:?}");
    assert!(matches!(exec.1, Err(YieldError::Spawn(SpawnError::Closing))), "{exec:?}");
    assert!(matches!(blocking.1, Err(YieldError::Closing)), "{blocking:?}");
    // A timer within the time that is left is as good as ever; names are, too.
    assert!(sleep.1.is_ok() && register.1.is_ok() && lookup.1.is_ok(), "{answers:?}");
    let mut who = tries.answers.lock().unwrap().clone();
    who.sort();
    assert_eq!(who, ["close", "drop", "hook"]);
}

/// A closure is used up by its one turn, whatever it says about how to go on: it is neither dropped again
/// nor stepped again.
#[test]
fn a_closure_runs_once_whatever_status_it_sets() {
    let b = bench(1);
    for status in 0..6 {
        let body = Dropped { log: b.log.clone(), what: "closure", panics: false };
        let answer = Dropped { log: b.log.clone(), what: "answer", panics: true };
        let log = b.log.clone();
        b.scheduler
            .spawn_once(move |out| {
                log.note("ran");
                let _body = body;
                match status {
                    0 => out.continue_soon(),
                    1 => out.wait_for_yields(),
                    2 => out.done(answer),
                    3 => out.upgrade(
                        process(|_: &mut Events<'_>, _: &mut StepOutput<'_>| Ok(())),
                        "",
                        Payload::new(answer),
                    ),
                    4 => {
                        out.done(answer);
                        panic!("on purpose");
                    }
                    _ => {
                        out.done(answer);
                        out.idle();
                    }
                }
            })
            .unwrap();
        until("it has ended", || b.scheduler.list_processes().is_empty());
        let n = status + 1;
        still_works(&b.scheduler, 20);
        assert_eq!((b.log.count("ran"), b.log.count("drop closure")), (n, n), "{:?}", b.log.all());
        assert_eq!(b.log.count("drop answer"), n, "status {status}");
    }
}

/// What a step had said first and then took back is dropped, contained.
#[test]
fn a_status_that_is_taken_back_leaves_nothing() {
    let b = bench(1);
    let bomb = Arc::new(Mutex::new(vec![
        Dropped { log: b.log.clone(), what: "result", panics: true },
        Dropped { log: b.log.clone(), what: "input", panics: true },
    ]));
    let log = b.log.clone();
    let mut step = 0;
    b.watch(
        Probe::new(&b.log, move |_, out| {
            step += 1;
            match step {
                1 => {
                    out.done(bomb.lock().unwrap().remove(0));
                    out.continue_soon();
                }
                2 => {
                    let input = Payload::new(bomb.lock().unwrap().remove(0));
                    out.upgrade(Probe::new(&log, idle), "never", input);
                    out.continue_soon();
                }
                _ => out.done("at last"),
            }
            Ok(())
        }),
        0,
    );
    b.expect(&[
        "init",
        "step",
        "drop result",
        "step",
        "drop body",
        "drop input",
        "step",
        "close",
        "drop body",
        "hook done, at last",
        "Monitor hears: done",
    ]);
}

// ------------------------------------------------------------------ panics in drops are counted

/// Messages queued at an end, or at a reset; a result that nobody takes; a panic in `init`.
#[test]
fn a_panic_in_any_drop_or_call_is_counted_once() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let s = scheduler(1);
    let panics = || s.stats().total().panics;
    let dropped = || s.stats().total().dropped_messages;
    // Held by its first message till the others wait behind it.
    let gated = |then: fn(&mut StepOutput<'_>)| {
        let (begun_tx, begun) = channel();
        let (go, go_rx) = channel::<()>();
        let step = move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
            if let Some(Event::Message(_)) = events.next() {
                begun_tx.send(()).unwrap();
                go_rx.recv().unwrap();
                then(out);
            }
            Ok(())
        };
        let pid = s.spawn(process(step), SpawnOptions::new()).unwrap();
        send(Package::new(pid, 0_u8)).unwrap();
        recv(&begun);
        for _ in 0..3 {
            send(Package::new(pid, Bad)).unwrap();
        }
        (pid, go)
    };
    let (pid, go) = gated(|out| out.done(()));
    go.send(()).unwrap();
    s.join(pid, Some(LIMIT)).unwrap();
    assert_eq!((panics(), dropped()), (3, 3));

    let (pid, go) = gated(|_| {});
    s.kill(pid, "test").unwrap();
    go.send(()).unwrap();
    s.join(pid, Some(LIMIT)).unwrap();
    assert_eq!((panics(), dropped()), (6, 6));

    let (pid, go) = gated(|out| {
        // What is queued by now is taken with the next turn: so the reset drops it from the word.
        assert_eq!(out.reset_queue().unwrap(), 3);
        out.done(Bad);
    });
    go.send(()).unwrap();
    s.join(pid, Some(LIMIT)).unwrap();
    assert_eq!((panics(), dropped()), (10, 9), "three messages, and the result");

    let failing = Probe::new(&Log::default(), idle).init(|| panic!("on purpose"));
    assert!(matches!(s.spawn_wait(failing, SpawnOptions::new()), Err(SpawnError::Init(_))));
    assert_eq!(panics(), 11);
    still_works(&s, 10);
}
