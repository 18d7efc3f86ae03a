//! Supervisors at their door: restart rules, budgets of attempts, reports, requests, ends.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use evener_scheduler::supervisor::{
    AddChild, ChildSpec, ChildState, GaveUp, GiveUp, ListChildren, Restart, RestartPolicy, StopChild,
    SuperviseError, Supervisor, SupervisorEvent, SupervisorHandle,
};
use evener_scheduler::{
    Actor, CommandId, Context, Event, ExitReason, Handle, InitContext, OnPanic, Payload, Pid, Process,
    ProcessError, Reply, Scheduler, SpawnError, SpawnOptions, StepOutput, Tag,
};

use crate::support::{LIMIT, process, quiet_panics, recv, scheduler, until};

/// How a [`Child`] is told to behave.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Do {
    Crash,
    Done,
    Panic,
}

/// Ends as the messages tell it; fails its `init` while it is told so by its maker.
struct Child {
    init: Result<(), &'static str>,
    /// Ends only by force when asked to.
    is_deaf: bool,
}

impl Child {
    fn new() -> Self {
        Self { init: Ok(()), is_deaf: false }
    }
}

impl Process for Child {
    fn init(&mut self, _: &InitContext, _: &str, _: Payload) -> Result<(), ProcessError> {
        self.init.map_err(ProcessError::new)
    }
    fn step(
        &mut self,
        events: &mut evener_scheduler::Events<'_>,
        out: &mut StepOutput<'_>,
    ) -> Result<(), ProcessError> {
        for event in events.by_ref() {
            match event {
                Event::Message(message) => match message.take::<Do>() {
                    Ok(Do::Crash) => return Err(ProcessError::new("told to crash")),
                    Ok(Do::Panic) => panic!("on purpose"),
                    Ok(Do::Done) => out.done(()),
                    Err(_) => {}
                },
                Event::Cancel(_) if !self.is_deaf => out.done(()),
                _ => {}
            }
        }
        Ok(())
    }
}

fn at_once() -> RestartPolicy {
    RestartPolicy::new().initial_delay(Duration::ZERO).max_attempts(3)
}

struct Family {
    scheduler: Scheduler,
    handle: SupervisorHandle,
    events: Receiver<SupervisorEvent>,
}

fn family(supervisor: Supervisor) -> Family {
    family_on(scheduler(2), supervisor)
}

fn family_on(scheduler: Scheduler, supervisor: Supervisor) -> Family {
    quiet_panics();
    let (observe, events) = channel();
    let handle = supervisor
        .observe(move |event| drop(observe.send(event.clone())))
        .start(&scheduler, SpawnOptions::new())
        .unwrap();
    Family { scheduler, handle, events }
}

impl Family {
    fn wait<R>(&self, wanted: impl Fn(SupervisorEvent) -> Option<R>) -> R {
        loop {
            if let Some(found) = wanted(recv(&self.events)) {
                return found;
            }
        }
    }
    fn started(&self) -> (String, Pid) {
        self.wait(|event| match event {
            SupervisorEvent::Started { id, pid } => Some((id, pid)),
            _ => None,
        })
    }
    fn tell(&self, pid: Pid, what: Do) {
        evener_scheduler::send(evener_scheduler::Package::new(pid, what)).unwrap();
    }
    fn states(&self) -> Vec<(String, ChildState)> {
        let children = self.handle.children(&self.scheduler, LIMIT).unwrap();
        children.into_iter().map(|child| (child.id, child.state)).collect()
    }
}

#[test]
fn each_rule_restarts_after_the_ends_it_names() {
    for (rule, act, again) in [
        (Restart::Permanent, Do::Crash, true),
        (Restart::Permanent, Do::Done, true),
        (Restart::Transient, Do::Crash, true),
        (Restart::Transient, Do::Panic, true),
        (Restart::Transient, Do::Done, false),
        (Restart::Temporary, Do::Crash, false),
        (Restart::Temporary, Do::Done, false),
    ] {
        let child = ChildSpec::new("child", Child::new).restart(rule).policy(at_once());
        let family = family(Supervisor::new().child(child));
        let (_, first) = family.started();
        family.tell(first, act);
        let restarted = family.wait(|event| match event {
            SupervisorEvent::Started { pid, .. } => Some(pid != first),
            SupervisorEvent::Forgotten { .. } => Some(false),
            _ => None,
        });
        assert_eq!(restarted, again, "{rule:?}");
        assert_eq!(family.states().len(), usize::from(again), "{rule:?}");
    }
}

#[test]
fn an_exit_is_reported_with_its_reason_before_the_restart() {
    let family = family(Supervisor::new().policy(at_once()).child(ChildSpec::new("child", Child::new)));
    let (_, first) = family.started();
    family.tell(first, Do::Crash);
    let SupervisorEvent::Exited { id, pid, reason } = recv(&family.events) else { panic!("first the exit") };
    assert_eq!((&*id, pid), ("child", first));
    assert!(matches!(&*reason, ExitReason::Failed(error) if error.text() == "told to crash"));
    let SupervisorEvent::RestartsIn { attempt, delay, .. } = recv(&family.events) else {
        panic!("then this")
    };
    assert_eq!((attempt, delay), (1, Duration::ZERO));
}

#[test]
fn a_failed_init_is_a_failed_start_that_leaves_nothing() {
    quiet_panics();
    let mut made = 0;
    let make = move || {
        made += 1;
        Child { init: if made <= 2 { Err("not yet") } else { Ok(()) }, ..Child::new() }
    };
    let family =
        family(Supervisor::new().policy(at_once()).child(ChildSpec::new("child", make).name("child")));
    for _ in 0..2 {
        let (_, failed) = family.started();
        let error = family.wait(|event| match event {
            SupervisorEvent::StartFailed { error, .. } => Some(error),
            SupervisorEvent::Exited { .. } => panic!("it never began"),
            _ => None,
        });
        assert_eq!(error.text(), "not yet");
        assert!(family.scheduler.list_processes().iter().all(|info| info.pid != failed));
    }
    let (_, pid) = family.started();
    assert_eq!(family.scheduler.lookup("child"), Some(pid));
    let child = &family.handle.children(&family.scheduler, LIMIT).unwrap()[0];
    assert_eq!((child.attempts, child.restarts, child.state), (2, 2, ChildState::Running(pid)));
}

#[test]
fn a_factory_that_panics_is_a_failed_start() {
    quiet_panics();
    let mut made = 0;
    let make = move || {
        made += 1;
        assert!(made > 1, "on purpose");
        Child::new()
    };
    let family = family(Supervisor::new().policy(at_once()).child(ChildSpec::new("child", make)));
    let error = family.wait(|event| match event {
        SupervisorEvent::StartFailed { error, .. } => Some(error),
        _ => None,
    });
    assert!(error.text().contains("on purpose"), "{error}");
    family.started();
}

#[test]
fn waits_follow_the_policy() {
    let policy = RestartPolicy::new()
        .initial_delay(Duration::from_micros(100))
        .factor(2.0)
        .jitter(0.0)
        .max_delay(Duration::from_micros(300))
        .max_attempts(4);
    let make = || Child { init: Err("never"), ..Child::new() };
    let child = ChildSpec::new("child", make).on_give_up(GiveUp::Leave);
    let family = family(Supervisor::new().policy(policy).child(child));
    let mut waits = Vec::new();
    let attempts = loop {
        match recv(&family.events) {
            SupervisorEvent::RestartsIn { delay, .. } => waits.push(delay.as_micros()),
            SupervisorEvent::GaveUp { attempts, .. } => break attempts,
            _ => {}
        }
    };
    assert_eq!((waits.as_slice(), attempts), ([100, 200, 300, 300].as_slice(), 4));
    assert_eq!(family.states(), [("child".to_owned(), ChildState::GivenUp)]);
}

#[test]
fn a_stable_run_begins_the_count_anew() {
    // Any run is stable: no number of crashes uses the attempts up.
    let policy = at_once().max_attempts(1).stable_after(Duration::ZERO);
    let family = family(Supervisor::new().policy(policy).child(ChildSpec::new("child", Child::new)));
    for _ in 0..20 {
        let (_, pid) = family.started();
        family.tell(pid, Do::Crash);
    }
    family.started();
    assert_eq!(family.handle.children(&family.scheduler, LIMIT).unwrap()[0].restarts, 20);
}

#[test]
fn without_a_stable_run_the_attempts_are_used_up_and_the_supervisor_fails() {
    let policy = at_once().max_attempts(2).stable_after(Duration::from_secs(3600));
    let supervisor = Supervisor::new()
        .policy(policy)
        .child(ChildSpec::new("sibling", Child::new))
        .child(ChildSpec::new("child", Child::new));
    let family = family(supervisor);
    let joined = std::thread::scope(|scope| {
        let joined = scope.spawn(|| family.scheduler.join(family.handle.pid(), Some(LIMIT)).unwrap());
        family.started();
        until("somebody joins", || family.scheduler.registrations().watches >= 5);
        for _ in 0..3 {
            let (_, pid) = family.started();
            family.tell(pid, Do::Crash);
        }
        joined.join().unwrap()
    });
    let ExitReason::Failed(error) = &*joined else { panic!("{joined}") };
    let gave_up = error.source().and_then(|source| source.downcast_ref::<GaveUp>()).expect("it says why");
    assert_eq!((&*gave_up.id, gave_up.attempts, &*gave_up.why), ("child", 2, "failed: told to crash"));
    assert!(family.scheduler.list_processes().is_empty(), "the sibling was stopped first");
    assert_eq!(family.scheduler.registrations().watched, 0);
}

/// FC-019: one fails in its start code for ever; five siblings fail once each. Budgets are the child's own.
#[test]
fn budgets_are_per_child_and_a_hopeless_one_leaves_nothing() {
    let mut supervisor = Supervisor::new().policy(at_once().stable_after(Duration::from_secs(60)));
    for id in ["a", "b", "c", "d", "e"] {
        supervisor = supervisor.child(ChildSpec::new(id, Child::new).name(id));
    }
    let hopeless = || Child { init: Err("hopeless"), ..Child::new() };
    let family = family(supervisor.child(ChildSpec::new("f", hopeless).name("f").on_give_up(GiveUp::Leave)));
    let mut first = Vec::new();
    while first.len() < 5 {
        let (id, pid) = family.started();
        if id != "f" {
            first.push((id, pid));
        }
    }
    for (_, pid) in &first {
        family.tell(*pid, Do::Crash);
    }
    until("all five are there again, and the sixth is given up", || {
        let states = family.states();
        let back = states.iter().filter(|(id, state)| match state {
            ChildState::Running(pid) => first.iter().any(|(known, old)| known == id && pid != old),
            _ => false,
        });
        back.count() == 5 && states.contains(&("f".to_owned(), ChildState::GivenUp))
    });
    let scheduler = &family.scheduler;
    assert_eq!(scheduler.list_processes().len(), 6, "five children and the supervisor");
    assert_eq!(scheduler.registrations().names, 5);
    assert_eq!(scheduler.registrations().watches, 10, "a monitor of each living child, seen from both ends");
    assert_eq!(scheduler.registrations().timers, 0);
}

#[test]
fn children_are_added_listed_and_stopped_by_request() {
    let family = family(Supervisor::new());
    let (scheduler, handle) = (&family.scheduler, family.handle);
    assert!(family.states().is_empty());
    let spec = |id: &str| ChildSpec::new(id, Child::new).name(id.to_owned());
    let a = handle.add(scheduler, spec("a"), LIMIT).unwrap();
    let b = handle.add(scheduler, spec("b"), LIMIT).unwrap();
    assert!(
        matches!(handle.add(scheduler, spec("a"), LIMIT), Err(SuperviseError::Duplicate(id)) if id == "a")
    );
    assert_eq!(
        family.states(),
        [("a".to_owned(), ChildState::Running(a)), ("b".to_owned(), ChildState::Running(b))]
    );
    handle.stop_child(scheduler, "a", LIMIT).unwrap();
    assert!(
        scheduler.list_processes().iter().all(|info| info.pid != a),
        "it has ended when the answer comes"
    );
    assert_eq!(scheduler.lookup("a"), None);
    assert!(
        matches!(handle.stop_child(scheduler, "a", LIMIT), Err(SuperviseError::Unknown(id)) if id == "a")
    );
    assert_eq!(family.states().len(), 1);
}

#[test]
fn a_new_child_that_cannot_be_spawned_is_not_supervised() {
    struct Choosy;
    impl Process for Choosy {
        fn methods() -> &'static [&'static str] {
            &["run"]
        }
        fn step(
            &mut self,
            _: &mut evener_scheduler::Events<'_>,
            _: &mut StepOutput<'_>,
        ) -> Result<(), ProcessError> {
            Ok(())
        }
    }
    let family = family(Supervisor::new());
    let wrong = ChildSpec::new("a", || Choosy).options(|| SpawnOptions::new().method("walk"));
    let added = family.handle.add(&family.scheduler, wrong, LIMIT);
    assert!(matches!(added, Err(SuperviseError::Spawn(SpawnError::UnknownMethod { .. }))), "{added:?}");
    let right = ChildSpec::new("a", || Choosy).options(|| SpawnOptions::new().method("run"));
    family.handle.add(&family.scheduler, right, LIMIT).unwrap();
}

#[test]
fn a_process_asks_a_supervisor_as_it_asks_anybody() {
    let family = family(Supervisor::new());
    let supervisor = family.handle.pid();
    let (tell, told) = channel();
    let mut begun = false;
    let asks = process(move |events, out| {
        if !std::mem::replace(&mut begun, true) {
            out.ask(Tag(1), supervisor, AddChild(ChildSpec::new("a", Child::new)), None);
            out.ask(Tag(2), supervisor, ListChildren, None);
            out.ask(Tag(3), supervisor, StopChild("b".to_owned()), None);
        }
        for event in events.by_ref() {
            if let Event::YieldComplete { tag: Tag(tag), result: Ok(answer) } = event {
                let is_right = match tag {
                    1 => answer.take::<Result<Pid, SuperviseError>>().unwrap().is_ok(),
                    2 => answer.take::<Vec<evener_scheduler::supervisor::ChildInfo>>().unwrap().len() == 1,
                    _ => answer.take::<Result<(), SuperviseError>>().unwrap().is_err(),
                };
                tell.send((tag, is_right))?;
            }
        }
        Ok(())
    });
    family.scheduler.spawn(asks, SpawnOptions::new()).unwrap();
    for tag in 1..=3 {
        assert_eq!(recv(&told), (tag, true));
    }
}

#[test]
fn a_stopped_supervisor_stops_its_children_and_ends_well() {
    let supervisor =
        Supervisor::new().child(ChildSpec::new("a", Child::new).restart(Restart::Permanent)).child(
            ChildSpec::new("deaf", || Child { is_deaf: true, ..Child::new() }).stop_timeout(Duration::ZERO),
        );
    let family = family(supervisor);
    family.started();
    family.started();
    let reason = family.scheduler.stop(family.handle.pid(), LIMIT).unwrap();
    assert!(matches!(*reason, ExitReason::Normal), "{reason}");
    assert!(family.scheduler.list_processes().is_empty());
    assert_eq!(family.scheduler.registrations().watched, 0);
    assert_eq!(family.scheduler.registrations().timers, 0);
    let mut ends = Vec::new();
    while let Ok(event) = family.events.try_recv() {
        if let SupervisorEvent::Exited { id, reason, .. } = event {
            ends.push((id, reason.to_string()));
        }
    }
    ends.sort();
    let killed = "killed: cancelled (stopped by its supervisor), and its time ran out";
    assert_eq!(ends, [("a".to_owned(), "done".to_owned()), ("deaf".to_owned(), killed.to_owned())]);
}

#[test]
fn a_supervisor_waiting_for_a_restart_can_be_stopped() {
    let hour = Duration::from_secs(3600);
    let policy = RestartPolicy::new().initial_delay(hour).max_delay(hour).jitter(0.0);
    let family = family(Supervisor::new().policy(policy).child(ChildSpec::new("a", Child::new).name("a")));
    let (_, pid) = family.started();
    family.tell(pid, Do::Crash);
    family.wait(|event| matches!(event, SupervisorEvent::RestartsIn { .. }).then_some(()));
    assert_eq!(family.states(), [("a".to_owned(), ChildState::Waiting)]);
    family.scheduler.stop(family.handle.pid(), LIMIT).unwrap();
    assert_eq!(family.scheduler.registrations().timers, 0, "the wait is taken back");
    assert_eq!(family.scheduler.registrations().names, 0);
}

#[test]
fn no_child_outlives_a_killed_supervisor() {
    let inner = || Supervisor::new().child(ChildSpec::new("grandchild", Child::new));
    let supervisor =
        Supervisor::new().child(ChildSpec::new("a", Child::new)).child(ChildSpec::new("inner", inner));
    let family = family(supervisor);
    until("all four are there", || family.scheduler.list_processes().len() == 4);
    family.scheduler.kill(family.handle.pid(), "test").unwrap();
    until("nobody is left", || family.scheduler.list_processes().is_empty());
}

#[test]
fn a_supervisor_that_gave_up_is_restarted_by_the_one_above() {
    let (tell, told): (Sender<Pid>, _) = channel();
    let inner = move || {
        let tell = tell.clone();
        Supervisor::new()
            .policy(at_once().max_attempts(1).stable_after(Duration::from_secs(3600)))
            .child(ChildSpec::new("leaf", Child::new))
            .observe(move |event| {
                if let SupervisorEvent::Started { pid, .. } = event {
                    let _ = tell.send(*pid);
                }
            })
    };
    let family = family(Supervisor::new().policy(at_once()).child(ChildSpec::new("inner", inner)));
    let (_, first) = family.started();
    family.tell(recv(&told), Do::Crash);
    family.tell(recv(&told), Do::Crash);
    let (_, second) = family.started();
    assert_ne!(first, second);
    recv(&told);
}

#[test]
fn a_shutdown_ends_supervisors_without_restarts() {
    let supervisor = Supervisor::new()
        .policy(at_once())
        .child(ChildSpec::new("a", Child::new).restart(Restart::Permanent).name("a"))
        .child(ChildSpec::new("b", Child::new).restart(Restart::Permanent));
    let family = family(supervisor);
    family.started();
    family.started();
    let report = family.scheduler.shutdown(LIMIT);
    assert_eq!((report.ended_by_force, report.still_running.len()), (0, 0));
    assert_eq!(report.finished, 3);
    assert_eq!(family.scheduler.registrations().names, 0);
}

#[test]
fn two_children_of_one_id_fail_the_start() {
    let scheduler = scheduler(1);
    let started = Supervisor::new()
        .child(ChildSpec::new("a", Child::new))
        .child(ChildSpec::new("a", Child::new))
        .start(&scheduler, SpawnOptions::new());
    assert!(matches!(&started, Err(SpawnError::Init(error)) if error.text().contains("`a`")), "{started:?}");
    assert!(scheduler.list_processes().is_empty());
}

#[test]
fn without_a_clock_a_supervisor_fails_instead_of_restarting_hot() {
    quiet_panics();
    let scheduler = Scheduler::builder().workers(1).allow_only([CommandId(1)]).start().unwrap();
    let family = family_on(scheduler, Supervisor::new().child(ChildSpec::new("a", Child::new)));
    let (_, pid) = family.started();
    family.tell(pid, Do::Crash);
    until("the supervisor has ended", || family.scheduler.list_processes().is_empty());
    assert!(family.events.try_iter().all(|event| !matches!(event, SupervisorEvent::Started { .. })));
}

#[test]
fn an_observer_that_panics_harms_nobody() {
    quiet_panics();
    let scheduler = scheduler(1);
    let handle = Supervisor::new()
        .child(ChildSpec::new("a", Child::new))
        .observe(|_| panic!("on purpose"))
        .start(&scheduler, SpawnOptions::new())
        .unwrap();
    assert_eq!(handle.children(&scheduler, LIMIT).unwrap().len(), 1);
}

// ------------------------------------------------------------------ actors as children

enum Count {
    Add(u64),
    Get(Reply<u64>),
    Crash,
}

/// A counter that dies of its panics.
struct Counter(u64);

impl Actor for Counter {
    type Message = Count;
    const ON_PANIC: OnPanic = OnPanic::Process;
    fn handle(&mut self, message: Count, _: &mut Context<'_, Count>) {
        match message {
            Count::Add(more) => self.0 += more,
            Count::Get(reply) => reply.send(self.0),
            Count::Crash => panic!("on purpose"),
        }
    }
}

#[test]
fn an_actor_is_a_child_like_any_other() {
    let child = ChildSpec::actor("counter", || Counter(10))
        .name("supervisor.counter")
        .restart(Restart::Permanent)
        .policy(at_once());
    let family = family(Supervisor::new().child(child));
    let (_, first) = family.started();
    let handle = || Handle::<Count>::from_pid(family.scheduler.lookup("supervisor.counter").unwrap());
    assert_eq!(handle().pid(), first);
    handle().tell(Count::Add(1)).unwrap();
    assert_eq!(handle().ask(Count::Get, LIMIT).unwrap(), 11);
    handle().tell(Count::Crash).unwrap();
    // By its name, so that it waits for the successor if there is none yet.
    family.scheduler.send_named("supervisor.counter", Count::Add(5)).unwrap();
    let exit = family.wait(|event| match event {
        SupervisorEvent::Exited { pid, reason, .. } => Some((pid, reason)),
        _ => None,
    });
    assert!(exit.0 == first && matches!(&*exit.1, ExitReason::Panicked(_)), "{exit:?}");
    let (_, second) = family.started();
    assert_eq!(handle().pid(), second);
    assert_eq!(handle().ask(Count::Get, LIMIT).unwrap(), 15, "a new state, and the message that waited");
    family.handle.stop_child(&family.scheduler, "counter", LIMIT).unwrap();
    assert_eq!(family.scheduler.lookup("supervisor.counter"), None);
}

#[test]
fn a_state_and_a_closure_are_a_child_too() {
    let child = ChildSpec::fn_actor(
        "sum",
        || 100,
        |sum, message, cx| match message {
            Count::Add(more) => *sum += more,
            Count::Get(reply) => reply.send(*sum),
            Count::Crash => cx.stop(),
        },
    );
    let child = child.name("supervisor.sum").restart(Restart::Permanent).policy(at_once());
    let family = family(Supervisor::new().child(child));
    for life in 0..3 {
        let (_, pid) = family.started();
        let sum = Handle::<Count>::from_pid(pid);
        assert_eq!(sum.ask(Count::Get, LIMIT).unwrap(), 100, "life {life}");
        sum.tell(Count::Add(7)).unwrap();
        assert_eq!(sum.ask(Count::Get, LIMIT).unwrap(), 107, "life {life}");
        sum.tell(Count::Crash).unwrap();
    }
}

#[test]
fn a_started_supervisor_has_its_named_children() {
    quiet_panics();
    for round in 0..100 {
        let scheduler = scheduler(1 + round % 2);
        let family = Supervisor::new()
            .child(ChildSpec::new("first", Child::new).name("supervisor.first"))
            .child(ChildSpec::new("bad", || -> Child { panic!("on purpose") }).on_give_up(GiveUp::Leave))
            .child(ChildSpec::actor("last", || Counter(0)).name("supervisor.last"))
            .start(&scheduler, SpawnOptions::new())
            .unwrap();
        assert!(scheduler.lookup("supervisor.first").is_some(), "round {round}");
        scheduler.send_named("supervisor.last", Count::Add(1)).unwrap();
        let children = family.children(&scheduler, LIMIT).unwrap();
        assert_eq!(children.len(), 3, "{children:?}");
    }
}

/// The first round is over also when it is the end of the supervisor.
#[test]
fn a_supervisor_that_gives_up_at_once_has_started_all_the_same() {
    quiet_panics();
    let scheduler = scheduler(1);
    let policy = RestartPolicy::new().max_attempts(0);
    let family = Supervisor::new()
        .policy(policy)
        .child(ChildSpec::new("bad", || -> Child { panic!("on purpose") }))
        .start(&scheduler, SpawnOptions::new())
        .unwrap();
    scheduler.join(family.pid(), Some(LIMIT)).unwrap();
    assert!(scheduler.list_processes().is_empty());
}

#[test]
fn an_unanswered_request_says_why() {
    let scheduler = scheduler(1);
    let none = scheduler.spawn(Child::new(), SpawnOptions::new()).unwrap();
    let error = SupervisorHandle::from_pid(none).children(&scheduler, LIMIT).unwrap_err();
    assert_eq!(error.to_string(), "asking the supervisor: the request was dropped without an answer");
}

#[test]
fn a_child_given_up_is_listed_till_it_is_stopped_or_replaced() {
    quiet_panics();
    let scheduler = scheduler(1);
    let spec = || ChildSpec::new("a", || -> Child { panic!("on purpose") }).on_give_up(GiveUp::Leave);
    let policy = RestartPolicy::new().max_attempts(0);
    let family =
        Supervisor::new().policy(policy).child(spec()).start(&scheduler, SpawnOptions::new()).unwrap();
    let children = family.children(&scheduler, LIMIT).unwrap();
    assert_eq!((children[0].state, children[0].attempts, children[0].restarts), (ChildState::GivenUp, 0, 0));
    let again = || ChildSpec::new("a", Child::new);
    let pid = family.add(&scheduler, again(), LIMIT).unwrap();
    let refused = family.add(&scheduler, again(), LIMIT);
    assert!(matches!(&refused, Err(SuperviseError::Duplicate(id)) if id == "a"), "{refused:?}");
    let states = || -> Vec<_> {
        family.children(&scheduler, LIMIT).unwrap().into_iter().map(|child| child.state).collect()
    };
    assert_eq!(states(), [ChildState::Running(pid)]);
    family.stop_child(&scheduler, "a", LIMIT).unwrap();
    let failed = family.add(&scheduler, spec(), LIMIT);
    assert!(matches!(failed, Err(SuperviseError::Factory(_))), "{failed:?}");
    assert!(states().is_empty(), "a new child that cannot be made is not supervised");
}

/// Takes its time over its end, till the test lets it go.
struct Lingers(Receiver<()>);

impl Process for Lingers {
    fn step(
        &mut self,
        events: &mut evener_scheduler::Events<'_>,
        _: &mut StepOutput<'_>,
    ) -> Result<(), ProcessError> {
        events.for_each(drop);
        Ok(())
    }
    fn close(&mut self) {
        let _ = self.0.recv_timeout(LIMIT);
    }
}

#[test]
fn the_successor_of_a_killed_supervisor_waits_for_the_names_of_its_children() {
    let scheduler = scheduler(2);
    let (go, goes) = channel();
    // The first incarnation lingers; its successors have nobody to wait for.
    let first = std::sync::Arc::new(std::sync::Mutex::new(Some(goes)));
    let (observe, inner_events) = channel();
    let make_inner = move || {
        let (first, observe) = (std::sync::Arc::clone(&first), observe.clone());
        let make = move || Lingers(first.lock().unwrap().take().unwrap_or_else(|| channel().1));
        Supervisor::new()
            .policy(at_once().max_attempts(0))
            .observe(move |event: &SupervisorEvent| drop(observe.send(event.clone())))
            .child(ChildSpec::new("slow", make).name("slow").restart(Restart::Permanent))
    };
    let outer = ChildSpec::new("inner", make_inner).restart(Restart::Permanent);
    let family = family_on(scheduler, Supervisor::new().policy(at_once()).child(outer));
    let (_, inner) = family.started();
    let SupervisorEvent::Started { pid: old, .. } = recv(&inner_events) else { panic!("not begun") };
    family.scheduler.kill(inner, "test").unwrap();
    // Without one attempt to spare: the wait counts as none.
    match recv(&inner_events) {
        SupervisorEvent::WaitsForName { id, name, owner } => {
            assert_eq!((&*id, &*name, owner), ("slow", "slow", old));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(family.scheduler.lookup("slow"), Some(old));
    go.send(()).unwrap();
    let SupervisorEvent::Started { pid: new, .. } = recv(&inner_events) else { panic!("not begun") };
    assert_eq!(family.scheduler.lookup("slow"), Some(new));
    assert_eq!(family.handle.children(&family.scheduler, LIMIT).unwrap()[0].restarts, 1);
}

#[test]
fn a_name_whose_owner_is_well_counts_as_a_failed_attempt() {
    let scheduler = scheduler(2);
    let owner = scheduler.spawn(Child::new(), SpawnOptions::new().name("taken")).unwrap();
    let child = ChildSpec::new("late", Child::new).name("taken").on_give_up(GiveUp::Leave);
    let family = family_on(scheduler, Supervisor::new().policy(at_once()).child(child));
    let failures = std::cell::Cell::new(0);
    let attempts = family.wait(|event| match event {
        SupervisorEvent::StartFailed { .. } => {
            failures.set(failures.get() + 1);
            None
        }
        SupervisorEvent::WaitsForName { .. } => panic!("its owner is alive and well"),
        SupervisorEvent::GaveUp { attempts, .. } => Some(attempts),
        _ => None,
    });
    assert_eq!((failures.get(), attempts), (4, 3));
    assert_eq!(family.scheduler.lookup("taken"), Some(owner));
}

#[test]
fn a_child_that_waits_for_a_name_can_be_stopped() {
    let scheduler = scheduler(2);
    let (go, goes) = channel();
    let owner = scheduler.spawn_wait(Lingers(goes), SpawnOptions::new().name("slow")).unwrap();
    scheduler.kill(owner, "test").unwrap();
    let child = ChildSpec::new("late", Child::new).name("slow");
    let family = family_on(scheduler, Supervisor::new().policy(at_once()).child(child));
    family.wait(|event| matches!(event, SupervisorEvent::WaitsForName { .. }).then_some(()));
    assert_eq!(family.states(), [("late".to_owned(), ChildState::Waiting)]);
    family.handle.stop_child(&family.scheduler, "late", LIMIT).unwrap();
    go.send(()).unwrap();
    until("the name is free", || family.scheduler.lookup("slow").is_none());
    assert!(family.states().is_empty());
    // Its place may be taken at once by another.
    let again = ChildSpec::new("late", Child::new).name("slow");
    family.handle.add(&family.scheduler, again, LIMIT).unwrap();
}
