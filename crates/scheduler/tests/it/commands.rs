//! Commands: every built-in one, registration, completers, and requests that wait for an answer.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use evener_scheduler::commands::{
    Blocking, Cancel, Exec, Link, Lookup, Monitor, Register, Send, Sleep, Spawn, Terminate, Ticker, Timer,
    Unlink, Unmonitor,
};
use evener_scheduler::{
    AskError, Command, CommandId, Completer, Event, Events, ExitReason, HandlerContext, LocalPid, Message,
    Package, Payload, Pid, Process, ProcessError, Scheduler, SendError, SpawnOptions, StartError, StepOutput,
    Tag, YieldError, send,
};

use crate::support::{LIMIT, process, quiet_panics, recv, scheduler, until};

type Answer = (u64, Result<Payload, YieldError>);

/// Runs `begin` in the first step of a process, and gives what its yields are completed with.
fn asks(
    scheduler: &Scheduler,
    begin: impl FnOnce(&mut StepOutput<'_>) + std::marker::Send + 'static,
) -> (Pid, Receiver<Answer>) {
    let (tell, told) = channel();
    let mut begin = Some(begin);
    let asks = process(move |events, out| {
        if let Some(begin) = begin.take() {
            begin(out);
        }
        for event in events.by_ref() {
            if let Event::YieldComplete { tag, result } = event {
                tell.send((tag.0, result)).map_err(ProcessError::new)?;
            }
        }
        Ok(())
    });
    (scheduler.spawn(asks, SpawnOptions::new()).unwrap(), told)
}

/// What one command is completed with.
fn one<C: Command>(scheduler: &Scheduler, command: C) -> Result<Payload, YieldError> {
    let (pid, told) = asks(scheduler, move |out| out.command(Tag(7), command));
    let (tag, result) = recv(&told);
    assert_eq!(tag, 7);
    scheduler.stop(pid, Duration::ZERO).unwrap();
    result
}

fn idle(scheduler: &Scheduler) -> Pid {
    scheduler
        .spawn(
            process(|events, _| {
                events.by_ref().for_each(drop);
                Ok(())
            }),
            SpawnOptions::new(),
        )
        .unwrap()
}

/// A process that tells of every event, as text.
fn teller(scheduler: &Scheduler) -> (Pid, Receiver<String>) {
    let (tell, told) = channel();
    let teller = process(move |events, _| {
        for event in events.by_ref() {
            tell.send(match event {
                Event::Message(message) => format!("message {:?}", message.take::<u64>().ok()),
                Event::Cancel(cancel) => format!("cancel {}", cancel.reason),
                other => format!("{other:?}"),
            })?;
        }
        Ok(())
    });
    (scheduler.spawn(teller, SpawnOptions::new()).unwrap(), told)
}

// ------------------------------------------------------------------ built in

#[test]
fn send_sends_in_the_name_of_the_asker() {
    let scheduler = scheduler(2);
    let (tell, told) = channel();
    let target = process(move |events, _| {
        for event in events.by_ref() {
            if let Event::Message(message) = event {
                tell.send((message.sender(), message.take::<u64>().unwrap()))?;
            }
        }
        Ok(())
    });
    let target = scheduler.spawn(target, SpawnOptions::new()).unwrap();
    let (asker, answers) =
        asks(&scheduler, move |out| out.command(Tag(1), Send { package: Package::new(target, 5_u64) }));
    assert_eq!(recv(&told), (Some(asker.local()), 5));
    assert!(recv(&answers).1.unwrap().take::<()>().is_ok());
    scheduler.stop(target, Duration::ZERO).unwrap();
    let refused = one(&scheduler, Send { package: Package::new(target, 5_u64) });
    assert!(matches!(refused, Err(YieldError::Send(SendError::Closed(pid))) if pid == target), "{refused:?}");
}

#[test]
fn spawn_gives_the_pid_of_a_process_that_runs() {
    let scheduler = scheduler(2);
    let (tell, told) = channel();
    let child = process(move |_, out| Ok(tell.send(out.self_pid())?));
    let pid = one(&scheduler, Spawn::new(child, SpawnOptions::new())).unwrap().take::<Pid>().unwrap();
    assert_eq!(recv(&told), pid);
}

#[test]
fn exec_gives_the_result_of_the_process_or_why_there_is_none() {
    quiet_panics();
    let scheduler = scheduler(2);
    let done = process(|_, out| {
        out.done(42_u64);
        Ok(())
    });
    assert_eq!(one(&scheduler, Exec::new(done, SpawnOptions::new())).unwrap().take::<u64>().unwrap(), 42);
    let fails = process(|_, _| Err(ProcessError::new("no luck")));
    let failed = one(&scheduler, Exec::new(fails, SpawnOptions::new()));
    assert!(
        matches!(&failed, Err(YieldError::Failed(error)) if error.text() == "failed: no luck"),
        "{failed:?}"
    );
    let panics = process(|_, _| panic!("on purpose"));
    let failed = one(&scheduler, Exec::new(panics, SpawnOptions::new()));
    assert!(
        matches!(&failed, Err(YieldError::Failed(error)) if error.text().contains("on purpose")),
        "{failed:?}"
    );
    idle_with_name(&scheduler, "taken");
    let refused = one(&scheduler, Exec::new(process(|_, _| Ok(())), SpawnOptions::new().name("taken")));
    assert!(matches!(refused, Err(YieldError::Spawn(_))), "{refused:?}");
    assert_eq!(scheduler.registrations().watches, 0);
}

fn idle_with_name(scheduler: &Scheduler, name: &str) -> Pid {
    let pid = idle(scheduler);
    scheduler.register(name, pid).unwrap();
    pid
}

#[test]
fn terminate_and_cancel_act_on_the_living_and_are_refused_for_the_dead() {
    let scheduler = scheduler(2);
    let (pid, told) = teller(&scheduler);
    one(&scheduler, Cancel { pid, reason: "please".into(), deadline: None }).unwrap();
    assert_eq!(recv(&told), "cancel please");
    one(&scheduler, Terminate { pid, reason: "now".into() }).unwrap();
    scheduler.join(pid, Some(LIMIT)).unwrap();
    for refused in [
        one(&scheduler, Terminate { pid, reason: "again".into() }),
        one(&scheduler, Cancel { pid, reason: "again".into(), deadline: Some(LIMIT) }),
        one(&scheduler, Link { pid }),
    ] {
        assert!(
            matches!(refused, Err(YieldError::Send(SendError::Closed(dead))) if dead == pid),
            "{refused:?}"
        );
    }
    let elsewhere: Pid = format!("5.{}.{}.{}", pid.host(), pid.local().slot(), 0).parse().unwrap();
    let refused = one(&scheduler, Terminate { pid: elsewhere, reason: "far".into() });
    assert!(matches!(refused, Err(YieldError::Send(SendError::OtherNode(_)))), "{refused:?}");
}

#[test]
fn monitor_link_and_their_opposites_are_commands_too() {
    let scheduler = scheduler(2);
    let (tell, told) = channel();
    let [a, b, c, d] = [(); 4].map(|()| idle(&scheduler));
    let mut begun = false;
    let watcher = process(move |events, out| {
        if !std::mem::replace(&mut begun, true) {
            out.trap_exits(true);
            out.command(Tag(1), Monitor { pid: a });
            out.command(Tag(2), Monitor { pid: b });
            out.command(Tag(3), Unmonitor { pid: b });
            out.command(Tag(4), Link { pid: c });
            out.command(Tag(5), Link { pid: d });
            out.command(Tag(6), Unlink { pid: d });
        }
        for event in events.by_ref() {
            match event {
                Event::YieldComplete { tag, result } => tell.send(format!("{} {}", tag.0, result.is_ok()))?,
                Event::Exit(exit) => tell.send(format!("{} {:?}", exit.pid, exit.by))?,
                _ => {}
            }
        }
        Ok(())
    });
    scheduler.spawn(watcher, SpawnOptions::new()).unwrap();
    for tag in 1..=6 {
        assert_eq!(recv(&told), format!("{tag} true"));
    }
    for pid in [b, d, a, c] {
        scheduler.kill(pid, "test").unwrap();
        scheduler.join(pid, Some(LIMIT)).unwrap();
    }
    assert_eq!([recv(&told), recv(&told)], [format!("{a} Monitor"), format!("{c} Link")]);
}

#[test]
fn register_and_lookup_answer_with_what_stands() {
    let scheduler = scheduler(2);
    let pid = idle(&scheduler);
    assert_eq!(one(&scheduler, Lookup { name: "n".into() }).unwrap().take::<Option<Pid>>().unwrap(), None);
    one(&scheduler, Register { name: "n".into(), pid }).unwrap();
    assert_eq!(
        one(&scheduler, Lookup { name: "n".into() }).unwrap().take::<Option<Pid>>().unwrap(),
        Some(pid)
    );
    let other = idle(&scheduler);
    let refused = one(&scheduler, Register { name: "n".into(), pid: other });
    assert!(
        matches!(&refused, Err(YieldError::Failed(error)) if error.text().contains(&pid.to_string())),
        "{refused:?}"
    );
}

#[test]
fn sleep_and_timer_never_complete_early() {
    let scheduler = scheduler(2);
    let began = Instant::now();
    one(&scheduler, Sleep(Duration::from_millis(3))).unwrap().take::<Instant>().unwrap();
    assert!(began.elapsed() >= Duration::from_millis(3));
    let at = Instant::now() + Duration::from_millis(3);
    one(&scheduler, Timer(at)).unwrap();
    assert!(Instant::now() >= at);
    one(&scheduler, Timer(began)).unwrap();
    one(&scheduler, Sleep(Duration::ZERO)).unwrap();
}

#[test]
fn a_sleep_beyond_all_time_can_be_given_up() {
    let scheduler = scheduler(1);
    let (tell, told) = channel();
    let mut begun = false;
    let sleeper = process(move |events, out| {
        if !std::mem::replace(&mut begun, true) {
            out.command(Tag(1), Sleep(Duration::MAX));
            return Ok(());
        }
        for _ in events.by_ref() {
            tell.send((out.cancel_yield(Tag(1)), out.cancel_yield(Tag(1))))?;
        }
        Ok(())
    });
    let pid = scheduler.spawn(sleeper, SpawnOptions::new()).unwrap();
    until("it sleeps", || scheduler.registrations().timers == 1);
    send(Package::new(pid, ())).unwrap();
    assert_eq!(recv(&told), (true, false));
    assert_eq!(scheduler.registrations().timers, 0);
}

#[test]
fn a_ticker_ticks_till_it_is_given_up() {
    let scheduler = scheduler(2);
    let (tell, told) = channel();
    let mut ticks = 0;
    let ticker = process(move |events, out| {
        if ticks == 0 {
            out.command(Tag(1), Ticker(Duration::from_micros(200)));
        }
        for event in events.by_ref() {
            if let Event::YieldComplete { result, .. } = event {
                result?.take::<Instant>().expect("a tick is a time");
                ticks += 1;
                if ticks == 5 {
                    assert!(out.cancel_yield(Tag(1)));
                }
                tell.send(ticks)?;
            }
        }
        ticks = ticks.max(1);
        Ok(())
    });
    scheduler.spawn(ticker, SpawnOptions::new()).unwrap();
    while recv(&told) < 5 {}
    assert_eq!(scheduler.registrations().timers, 0);
    assert!(told.try_recv().is_err());
}

#[test]
fn the_end_of_a_process_ends_its_ticker() {
    let scheduler = scheduler(2);
    let (pid, told) = asks(&scheduler, |out| out.command(Tag(1), Ticker(Duration::from_micros(50))));
    recv(&told).1.unwrap();
    scheduler.stop(pid, Duration::ZERO).unwrap();
    until("no timer is left", || scheduler.registrations().timers == 0);
}

#[test]
fn blocking_gives_the_closures_value_off_the_workers() {
    quiet_panics();
    let scheduler = scheduler(1);
    let on_worker =
        one(&scheduler, Blocking::new(crate::support::on_a_worker)).unwrap().take::<bool>().unwrap();
    assert!(!on_worker);
    let panicked = one(&scheduler, Blocking::new(|| -> u64 { panic!("on purpose") }));
    assert!(
        matches!(&panicked, Err(YieldError::Failed(error)) if error.text().contains("on purpose")),
        "{panicked:?}"
    );
    // The only worker goes on while the closure waits for what a process sends.
    let (release, gate) = channel::<()>();
    let (_, told) = asks(&scheduler, move |out| out.command(Tag(1), Blocking::new(move || recv(&gate))));
    scheduler.spawn_once(move |_| release.send(()).unwrap()).unwrap();
    recv(&told).1.unwrap();
}

#[test]
fn blocking_beyond_threads_and_queue_is_refused() {
    let scheduler = Scheduler::builder().workers(1).blocking(1, 1).start().unwrap();
    let (release, gate) = channel::<()>();
    let (tell, runs) = channel();
    let (_, told) = asks(&scheduler, move |out| {
        out.command(
            Tag(1),
            Blocking::new(move || {
                tell.send(()).unwrap();
                recv(&gate);
            }),
        );
    });
    recv(&runs);
    let (_, queued) = asks(&scheduler, |out| out.command(Tag(2), Blocking::new(|| 2_u64)));
    until("the second waits", || scheduler.stats().blocking == (1, 1));
    let refused = one(&scheduler, Blocking::new(|| 3_u64));
    assert!(matches!(refused, Err(YieldError::Failed(_))), "{refused:?}");
    release.send(()).unwrap();
    recv(&told).1.unwrap();
    assert_eq!(recv(&queued).1.unwrap().take::<u64>().unwrap(), 2);
}

// ------------------------------------------------------------------ registration

struct Echo(u64);
impl Command for Echo {
    const ID: CommandId = CommandId(1000);
}

fn echo(cx: &HandlerContext<'_>, input: Payload, mut completer: Completer) {
    completer.complete(cx.input::<Echo>(input).map(|Echo(value)| Payload::new(value)));
}

#[test]
fn an_unknown_command_is_an_error_event() {
    let result = one(&scheduler(1), Echo(1));
    assert!(matches!(result, Err(YieldError::UnknownCommand(CommandId(1000)))), "{result:?}");
}

#[test]
fn a_command_that_the_host_does_not_allow_is_refused_by_name() {
    let scheduler = Scheduler::builder()
        .workers(1)
        .command::<Echo>("echo", echo)
        .allow_only([Sleep::ID])
        .start()
        .unwrap();
    one(&scheduler, Sleep(Duration::ZERO)).unwrap();
    let refused = one(&scheduler, Echo(1));
    assert!(matches!(&refused, Err(YieldError::NotAllowed { name, .. }) if name == "echo"), "{refused:?}");
}

#[test]
fn an_input_of_another_type_is_told_with_both_types() {
    let scheduler = Scheduler::builder().workers(1).command::<Echo>("echo", echo).start().unwrap();
    let (_, told) = asks(&scheduler, |out| {
        out.command_by_id(Tag(1), Echo::ID, Payload::new(1_u8));
        out.command_by_id(Tag(2), Sleep::ID, Payload::new(1_u8));
        out.command(Tag(3), Echo(9));
    });
    for expected in ["Echo", "Sleep"] {
        match recv(&told).1 {
            Err(YieldError::BadInput { expected: takes, found, .. }) => {
                assert!(takes.ends_with(expected) && found == "u8", "{takes} {found}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(recv(&told).1.unwrap().take::<u64>().unwrap(), 9);
}

#[test]
fn a_double_registration_names_both() {
    let twice = |id| {
        let started =
            Scheduler::builder().command_by_id(id, "first", echo).command_by_id(id, "second", echo).start();
        match started {
            Err(StartError::DuplicateCommand(error)) => (error.first, error.second),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(twice(CommandId(1000)), ("first".to_owned(), "second".to_owned()));
    assert_eq!(twice(Sleep::ID), ("clock.sleep".to_owned(), "first".to_owned()));
}

#[test]
fn a_number_of_the_systems_is_refused_with_the_name() {
    let started = Scheduler::builder().command_by_id(CommandId(200), "mine", echo).start();
    let text = started.unwrap_err().to_string();
    assert_eq!(text, "command 200 (`mine`) has a number of the system's; yours begin at 256");
    let first_free = Scheduler::builder().workers(1).command_by_id(CommandId::FIRST_FREE, "mine", echo);
    first_free.start().unwrap();
}

#[test]
fn a_command_without_a_handler_cannot_be_allowed() {
    let allowed = |ids: &[CommandId]| {
        let builder = Scheduler::builder().workers(1).command::<Echo>("echo", echo);
        builder.allow_only(ids.iter().copied()).start().map(drop)
    };
    allowed(&[Echo::ID, Sleep::ID]).unwrap();
    let refused = allowed(&[Echo::ID, CommandId(777)]);
    assert!(matches!(refused, Err(StartError::UnknownCommand(CommandId(777)))), "{refused:?}");
}

/// A handler's arguments have their types without being told.
#[test]
fn a_closure_and_a_type_may_be_handlers() {
    struct Twice;
    impl evener_scheduler::Handler for Twice {
        fn handle(&self, cx: &HandlerContext<'_>, input: Payload, mut completer: Completer) {
            completer.complete(cx.input::<Echo>(input).map(|Echo(number)| Payload::new(2 * number)));
        }
    }
    let answer = |builder: evener_scheduler::Builder| {
        let scheduler = builder.workers(1).start().unwrap();
        one(&scheduler, Echo(21)).unwrap().take::<u64>().unwrap()
    };
    assert_eq!(answer(Scheduler::builder().handler::<Echo>("twice", Twice)), 42);
    let closure = Scheduler::builder().command::<Echo>("thrice", |cx, input, mut completer| {
        completer.complete(cx.input::<Echo>(input).map(|Echo(number)| Payload::new(3 * number)));
    });
    assert_eq!(answer(closure), 63);
}

// ------------------------------------------------------------------ completers

/// Gives its completer away, for the test to use.
fn host_with_kept_completers() -> (Scheduler, Receiver<Completer>) {
    quiet_panics();
    let (give, given) = channel();
    let give = Mutex::new(give);
    let handler = move |_: &HandlerContext<'_>, _: Payload, completer: Completer| {
        give.lock().unwrap().send(completer).unwrap();
    };
    (Scheduler::builder().workers(2).command::<Echo>("keep", handler).start().unwrap(), given)
}

#[test]
fn only_the_first_completion_counts() {
    let (scheduler, given) = host_with_kept_completers();
    let (_, told) = asks(&scheduler, |out| out.command(Tag(1), Echo(0)));
    let mut completer = recv(&given);
    assert!(completer.complete(Ok(Payload::new(1_u64))));
    assert!(!completer.complete(Ok(Payload::new(2_u64))));
    drop(completer);
    assert_eq!(recv(&told).1.unwrap().take::<u64>().unwrap(), 1);
    assert!(told.try_recv().is_err());
}

#[test]
fn a_dropped_completer_says_so() {
    let (scheduler, given) = host_with_kept_completers();
    let (_, told) = asks(&scheduler, |out| out.command(Tag(1), Echo(0)));
    drop(recv(&given));
    assert!(matches!(recv(&told).1, Err(YieldError::Abandoned)));
}

#[test]
fn a_completer_dropped_by_another_process_that_panics_says_so() {
    let (scheduler, given) = host_with_kept_completers();
    let (_, told) = asks(&scheduler, |out| out.command(Tag(1), Echo(0)));
    let completer = recv(&given);
    scheduler
        .spawn_once(move |_| {
            let _held = completer;
            panic!("on purpose");
        })
        .unwrap();
    assert!(matches!(recv(&told).1, Err(YieldError::Abandoned)));
}

#[test]
fn a_completion_after_the_end_or_after_it_was_given_up_changes_nothing() {
    let (scheduler, given) = host_with_kept_completers();
    let (dead, _) = asks(&scheduler, |out| out.command(Tag(1), Echo(0)));
    let mut late = recv(&given);
    scheduler.stop(dead, Duration::ZERO).unwrap();
    assert!(!late.complete(Ok(Payload::new(1_u64))), "its process has ended");
    // The slot's next life does not get it either.
    let (_, told) = asks(&scheduler, |out| {
        out.command(Tag(1), Echo(0));
        out.cancel_yield(Tag(1));
        out.command(Tag(2), Echo(0));
    });
    let (mut given_up, mut wanted) = (recv(&given), recv(&given));
    given_up.complete(Ok(Payload::new(1_u64)));
    wanted.complete(Ok(Payload::new(2_u64)));
    let (tag, result) = recv(&told);
    assert_eq!((tag, result.unwrap().take::<u64>().unwrap()), (2, 2));
    assert_eq!(scheduler.stats().total().late_completions, 1);
}

#[test]
fn a_handler_that_panics_is_told_and_the_worker_lives() {
    quiet_panics();
    let scheduler = Scheduler::builder()
        .workers(1)
        .command::<Echo>("panics", |_: &HandlerContext<'_>, _: Payload, _: Completer| panic!("on purpose"))
        .start()
        .unwrap();
    let result = one(&scheduler, Echo(1));
    assert!(
        matches!(&result, Err(YieldError::HandlerPanicked { id: CommandId(1000), text }) if &**text == "on purpose"),
        "{result:?}"
    );
    one(&scheduler, Sleep(Duration::ZERO)).unwrap();
    assert_eq!(scheduler.stats().total().panics, 1);
}

#[test]
fn a_handler_that_completes_and_then_panics_has_completed() {
    quiet_panics();
    let handler = |_: &HandlerContext<'_>, _: Payload, mut completer: Completer| {
        completer.complete(Ok(Payload::new(1_u64)));
        panic!("on purpose");
    };
    let scheduler = Scheduler::builder().workers(1).command::<Echo>("panics", handler).start().unwrap();
    assert_eq!(one(&scheduler, Echo(1)).unwrap().take::<u64>().unwrap(), 1);
}

// ------------------------------------------------------------------ asking

/// Takes requests and keeps them; any plain message drops what it keeps.
struct Keeper(Vec<Message>);
impl Process for Keeper {
    fn step(&mut self, events: &mut Events<'_>, _: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        for event in events.by_ref() {
            match event {
                Event::Message(message) if message.is_request() => self.0.push(message),
                _ => self.0.clear(),
            }
        }
        Ok(())
    }
}

#[test]
fn a_request_without_an_answer_times_out_for_threads_and_processes() {
    let scheduler = scheduler(2);
    let keeper = scheduler.spawn(Keeper(Vec::new()), SpawnOptions::new()).unwrap();
    let asked = scheduler.ask(keeper, (), Some(Duration::from_millis(1)));
    assert!(matches!(asked, Err(AskError::TimedOut)), "{asked:?}");
    let (_, told) = asks(&scheduler, move |out| out.ask(Tag(1), keeper, (), Some(Duration::from_millis(1))));
    assert!(matches!(recv(&told).1, Err(YieldError::TimedOut)));
    assert_eq!(scheduler.registrations().timers, 0);
}

#[test]
fn a_request_that_is_dropped_is_answered_by_that() {
    let scheduler = Arc::new(scheduler(2));
    let keeper = scheduler.spawn(Keeper(Vec::new()), SpawnOptions::new()).unwrap();
    let (_, told) = asks(&scheduler, move |out| out.ask(Tag(1), keeper, (), None));
    let thread = std::thread::spawn({
        let scheduler = Arc::clone(&scheduler);
        move || scheduler.ask(keeper, (), Some(LIMIT))
    });
    // The drop of one that never took it, with its process, counts as well.
    until("both have asked", || {
        scheduler.list_processes().iter().any(|info| info.pid == keeper && info.steps >= 2)
    });
    scheduler.kill(keeper, "test").unwrap();
    assert!(matches!(recv(&told).1, Err(YieldError::NoReply)));
    assert!(matches!(thread.join().unwrap(), Err(AskError::NoReply | AskError::Send(_))));
}

#[test]
fn a_refused_request_says_why_and_not_that_nobody_replied() {
    let scheduler = scheduler(2);
    let dead = idle(&scheduler);
    scheduler.stop(dead, Duration::ZERO).unwrap();
    let (_, told) = asks(&scheduler, move |out| out.ask(Tag(1), dead, (), Some(LIMIT)));
    let (tag, result) = recv(&told);
    assert!(
        matches!(result, Err(YieldError::Send(SendError::Closed(pid))) if pid == dead && tag == 1),
        "{result:?}"
    );
    assert_eq!(scheduler.registrations().timers, 0, "its timeout is taken back");
    assert!(told.try_recv().is_err());
}

#[test]
fn a_worker_that_asks_by_waiting_gets_a_typed_error() {
    let scheduler = Arc::new(scheduler(1));
    let target = idle(&scheduler);
    let (tell, told) = channel();
    let inner = Arc::clone(&scheduler);
    scheduler
        .spawn_once(move |_| {
            tell.send(inner.ask(target, (), None).map(drop)).unwrap();
            drop(inner);
        })
        .unwrap();
    assert!(matches!(recv(&told), Err(AskError::OnWorker)));
}

/// Asks the next one in the chain for each request, and answers with what it gets.
struct Passes {
    next: Arc<Mutex<Option<Pid>>>,
    kept: Vec<(u64, Message)>,
    asked: u64,
}

/// What a request of a chain ends with.
type End = Result<u64, Vec<LocalPid>>;

impl Process for Passes {
    fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        for event in events.by_ref() {
            match event {
                Event::Message(mut message) => match *self.next.lock().unwrap() {
                    Some(next) if message.payload().is::<()>() => {
                        self.asked += 1;
                        out.ask(Tag(self.asked), next, (), Some(LIMIT));
                        self.kept.push((self.asked, message));
                    }
                    _ => {
                        message.reply(Payload::new(End::Ok(1)));
                    }
                },
                Event::YieldComplete { tag, result } => {
                    let place = self.kept.iter().position(|(asked, _)| *asked == tag.0).expect("asked by it");
                    let (_, mut message) = self.kept.swap_remove(place);
                    let end: End = match result {
                        Ok(answer) => answer.take::<End>().expect("an end"),
                        Err(YieldError::Cycle(chain) | YieldError::ChainTooLong { chain, .. }) => Err(chain),
                        Err(other) => return Err(other.into()),
                    };
                    message.reply(Payload::new(end));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// So many processes, each of which asks the next; the last asks `back` places before itself, or nobody.
fn chain(scheduler: &Scheduler, count: usize, back: Option<usize>) -> Vec<Pid> {
    let nexts: Vec<_> = (0..count).map(|_| Arc::new(Mutex::new(None))).collect();
    let pids: Vec<Pid> = nexts
        .iter()
        .map(|next| {
            let passes = Passes { next: Arc::clone(next), kept: Vec::new(), asked: 0 };
            scheduler.spawn(passes, SpawnOptions::new()).unwrap()
        })
        .collect();
    for (index, next) in nexts.iter().enumerate() {
        *next.lock().unwrap() = match (index + 1 < count, back) {
            (true, _) => Some(pids[index + 1]),
            (false, Some(back)) => Some(pids[index - back]),
            (false, None) => None,
        };
    }
    pids
}

fn end_of(scheduler: &Scheduler, pid: Pid) -> End {
    scheduler.ask(pid, (), Some(LIMIT)).unwrap().take::<End>().unwrap()
}

/// FC-020: A asks itself; A asks B, which asks A; and longer. The error names the chain, and afterwards
/// everybody answers normally.
#[test]
fn a_circle_of_askers_is_refused_at_once_and_named() {
    let scheduler = scheduler(2);
    for count in 1..=4 {
        let pids = chain(&scheduler, count, Some(count - 1));
        let named = end_of(&scheduler, pids[0]).expect_err("a circle");
        // The first is the thread that asked.
        let mut expected: Vec<LocalPid> = pids.iter().map(|pid| pid.local()).collect();
        expected.push(pids[0].local());
        assert_eq!(named[1..], expected, "of {count}");
        let error = YieldError::Cycle(named.clone()).to_string();
        assert!(pids.iter().all(|pid| error.contains(&format!("{:?}", pid.local()))), "{error}");
        for pid in &pids {
            let answer = scheduler.ask(*pid, 0_u64, Some(LIMIT)).unwrap();
            assert_eq!(answer.take::<End>().unwrap(), Ok(1), "it answers normally");
        }
    }
}

/// FC-020, third scenario: a timer makes A ask B, which asks A.
#[test]
fn a_circle_that_a_timer_begins_is_named_as_well() {
    let scheduler = scheduler(2);
    let b = chain(&scheduler, 2, Some(0));
    let (tell, told) = channel();
    let nexts = Arc::new(Mutex::new(None));
    let middle = scheduler
        .spawn(Passes { next: Arc::clone(&nexts), kept: Vec::new(), asked: 0 }, SpawnOptions::new())
        .unwrap();
    let first = process(move |events, out| {
        for event in events.by_ref() {
            match event {
                Event::Message(_) => out.command(Tag(1), Sleep(Duration::from_micros(10))),
                Event::YieldComplete { tag: Tag(1), .. } => out.ask(Tag(2), middle, (), Some(LIMIT)),
                Event::YieldComplete { result, .. } => tell.send(result?.take::<End>().unwrap())?,
                _ => {}
            }
        }
        Ok(())
    });
    let first = scheduler.spawn(first, SpawnOptions::new()).unwrap();
    *nexts.lock().unwrap() = Some(first);
    send(Package::new(first, ())).unwrap();
    assert_eq!(recv(&told), Err(vec![first.local(), middle.local(), first.local()]));
    drop(b);
}

#[test]
fn a_chain_of_askers_has_a_greatest_length() {
    let scheduler = scheduler(2);
    // The thread, and five processes that wait: the fifth may not ask a sixth.
    let short = chain(&scheduler, 6, None);
    assert_eq!(end_of(&scheduler, short[0]), Ok(1));
    let long = chain(&scheduler, 7, None);
    let named = end_of(&scheduler, long[0]).expect_err("too long");
    assert_eq!(named.last(), Some(&long[6].local()));
    assert_eq!(named.len(), 8);
    let error = YieldError::ChainTooLong { max: 5, chain: named };
    assert!(error.to_string().contains("more than 5"), "{error}");
}

#[test]
fn two_askers_of_one_process_are_no_circle() {
    let scheduler = scheduler(2);
    let pids = chain(&scheduler, 2, None);
    for _ in 0..100 {
        assert_eq!(end_of(&scheduler, pids[0]), Ok(1));
    }
}

#[test]
fn exits_seen_by_exec_are_of_the_process_that_ran() {
    // The asker hears by the yield alone: no monitor, no link is left.
    let scheduler = scheduler(1);
    let (tell, told): (Sender<ExitReason>, _) = channel();
    let mut begun = false;
    let asker = process(move |events, out| {
        if !std::mem::replace(&mut begun, true) {
            out.command(Tag(1), Exec::new(process(|_, _| Err(ProcessError::new("x"))), SpawnOptions::new()));
        }
        for event in events.by_ref() {
            match event {
                Event::Exit(exit) => tell.send((*exit.reason).clone())?,
                Event::YieldComplete { .. } => tell.send(ExitReason::Normal)?,
                _ => {}
            }
        }
        Ok(())
    });
    scheduler.spawn(asker, SpawnOptions::new()).unwrap();
    assert!(matches!(recv(&told), ExitReason::Normal));
    assert!(told.try_recv().is_err());
}
