//! Names: who has one, when it is free again, what a supervisor holds for a successor.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use evener_scheduler::supervisor::{ChildSpec, GiveUp, Restart, RestartPolicy, Supervisor, SupervisorEvent};
use evener_scheduler::{
    Event, Events, InitContext, NameError, Payload, Pid, Process, ProcessError, Runtime, Scheduler,
    SendError, SpawnError, SpawnOptions, StartError, StepOutput,
};

use crate::support::{LIMIT, process, quiet_panics, recv, scheduler, until};

fn idle(scheduler: &Scheduler, options: SpawnOptions) -> Pid {
    scheduler
        .spawn(
            process(|events, _| {
                events.by_ref().for_each(drop);
                Ok(())
            }),
            options,
        )
        .unwrap()
}

fn end(scheduler: &Scheduler, pid: Pid) {
    scheduler.stop(pid, Duration::ZERO).unwrap();
}

#[test]
fn a_name_leads_to_its_process_till_that_ends() {
    let scheduler = scheduler(1);
    let pid = idle(&scheduler, SpawnOptions::new().name("one"));
    assert_eq!(scheduler.lookup("one"), Some(pid));
    scheduler.send_named("one", 1_u64).unwrap();
    end(&scheduler, pid);
    assert_eq!(scheduler.lookup("one"), None);
    assert_eq!(scheduler.send_named("one", 1_u64), Err(NameError::Unknown("one".to_owned())));
    assert_eq!(scheduler.registrations().names, 0);
    idle(&scheduler, SpawnOptions::new().name("one"));
}

#[test]
fn a_taken_name_is_refused_with_its_owner_and_leaves_nothing() {
    let scheduler = scheduler(1);
    let owner = idle(&scheduler, SpawnOptions::new().name("one"));
    let other = idle(&scheduler, SpawnOptions::new());
    let taken = NameError::Taken { name: "one".to_owned(), owner };
    assert_eq!(scheduler.register("one", other), Err(taken));
    assert_eq!(scheduler.register("one", owner), Ok(()), "its own name again is no change");
    let refused = scheduler.spawn(process(|_, _| Ok(())), SpawnOptions::new().name("one"));
    assert!(matches!(refused, Err(SpawnError::NameTaken { owner: by, .. }) if by == owner), "{refused:?}");
    assert_eq!(scheduler.list_processes().len(), 2);
    assert_eq!(scheduler.lookup("one"), Some(owner));
}

#[test]
fn a_process_may_have_several_names_and_lose_one() {
    let scheduler = scheduler(1);
    let pid = idle(&scheduler, SpawnOptions::new().name("one"));
    scheduler.register("two", pid).unwrap();
    assert!(scheduler.unregister("one"));
    assert!(!scheduler.unregister("one"));
    assert_eq!((scheduler.lookup("one"), scheduler.lookup("two")), (None, Some(pid)));
    end(&scheduler, pid);
    assert_eq!(scheduler.registrations().names, 0);
    assert_eq!(scheduler.register("two", pid), Err(NameError::NoProcess(pid)));
}

#[test]
fn the_hosts_of_a_runtime_share_their_names() {
    let runtime = Runtime::builder()
        .host("a", |host| host.workers(1))
        .host("b", |host| host.workers(1))
        .start()
        .unwrap();
    let (a, b) = (runtime.host("a").unwrap(), runtime.host("b").unwrap());
    let (tell, told) = channel();
    let takes = process(move |events, _| {
        for event in events.by_ref() {
            if let Event::Message(message) = event {
                tell.send(message.take::<u64>().unwrap())?;
            }
        }
        Ok(())
    });
    let pid = a.spawn(takes, SpawnOptions::new().name("one")).unwrap();
    assert_eq!(b.lookup("one"), Some(pid));
    b.send_named("one", 9_u64).unwrap();
    assert_eq!(recv(&told), 9);
}

/// A child that tells what it takes, and crashes on 0.
struct Frail {
    told: Sender<u64>,
    /// `init` waits for one word from here: "begin" or "fail".
    gate: Arc<std::sync::Mutex<Receiver<bool>>>,
}

impl Process for Frail {
    fn init(&mut self, _: &InitContext, _: &str, _: Payload) -> Result<(), ProcessError> {
        let begins = self.gate.lock().unwrap().recv_timeout(LIMIT)?;
        if begins { Ok(()) } else { Err(ProcessError::new("told to fail")) }
    }
    fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        for event in events.by_ref() {
            if let Event::Message(message) = event {
                let number = message.take::<u64>().unwrap();
                self.told.send(number)?;
                if number == 0 {
                    panic!("on purpose");
                }
                if number == u64::MAX {
                    out.done(());
                    break;
                }
            }
        }
        Ok(())
    }
}

struct Family {
    scheduler: Scheduler,
    supervisor: Pid,
    gate: Sender<bool>,
    told: Receiver<u64>,
    events: Receiver<SupervisorEvent>,
}

fn family(restart: Restart, attempts: u32) -> Family {
    quiet_panics();
    let scheduler = scheduler(2);
    let (gate, opens) = channel();
    let (tell, told) = channel();
    let (observe, events) = channel();
    let opens = Arc::new(std::sync::Mutex::new(opens));
    let make = move || Frail { told: tell.clone(), gate: Arc::clone(&opens) };
    let policy = RestartPolicy::new().initial_delay(Duration::ZERO).max_attempts(attempts);
    let child = ChildSpec::new("frail", make).name("frail").restart(restart).on_give_up(GiveUp::Leave);
    let supervisor = Supervisor::new()
        .policy(policy)
        .child(child)
        .observe(move |event| drop(observe.send(event.clone())))
        .start(&scheduler, SpawnOptions::new())
        .unwrap()
        .pid();
    Family { scheduler, supervisor, gate, told, events }
}

impl Family {
    fn begin(&self) {
        self.gate.send(true).unwrap();
    }
    fn send(&self, number: u64) {
        self.scheduler.send_named("frail", number).unwrap();
    }
    /// The next event that `wanted` accepts.
    fn wait<R>(&self, wanted: impl Fn(&SupervisorEvent) -> Option<R>) -> R {
        loop {
            if let Some(found) = wanted(&recv(&self.events)) {
                return found;
            }
        }
    }
    fn started(&self) {
        self.wait(|event| matches!(event, SupervisorEvent::Started { .. }).then_some(()));
    }
}

#[test]
fn what_a_crashed_process_had_not_taken_waits_for_its_successor() {
    let family = family(Restart::Transient, 8);
    family.started();
    for number in [1, 0, 2, 3] {
        family.send(number);
    }
    family.begin();
    // Its panic is on 0; 2 and 3 lay in the mailbox. 4 is sent while the successor is held up in `init`.
    family.started();
    family.send(4);
    family.begin();
    assert_eq!((0..5).map(|_| recv(&family.told)).collect::<Vec<_>>(), [1, 0, 2, 3, 4]);
}

#[test]
fn a_permanent_child_leaves_its_messages_after_a_good_end_too() {
    let family = family(Restart::Permanent, 8);
    family.started();
    for number in [1, u64::MAX, 2] {
        family.send(number);
    }
    family.begin();
    family.started();
    family.begin();
    assert_eq!((0..3).map(|_| recv(&family.told)).collect::<Vec<_>>(), [1, u64::MAX, 2]);
}

#[test]
fn a_transient_child_takes_its_messages_along_when_it_ends_well() {
    let family = family(Restart::Transient, 8);
    family.started();
    for number in [1, u64::MAX, 2] {
        family.send(number);
    }
    family.begin();
    family.wait(|event| matches!(event, SupervisorEvent::Forgotten { .. }).then_some(()));
    assert_eq!((0..2).map(|_| recv(&family.told)).collect::<Vec<_>>(), [1, u64::MAX]);
    assert_eq!(family.scheduler.send_named("frail", 3_u64), Err(NameError::Unknown("frail".to_owned())));
    assert_eq!(family.scheduler.registrations().names, 0);
}

#[test]
fn a_name_given_up_is_free_and_what_waited_is_dropped_and_counted() {
    let family = family(Restart::Transient, 2);
    for attempt in 0..3 {
        family.started();
        family.send(attempt + 1);
        family.gate.send(false).unwrap();
    }
    let dropped = family.wait(|event| match event {
        SupervisorEvent::GaveUp { attempts: 2, dropped, .. } => Some(*dropped),
        _ => None,
    });
    assert_eq!(dropped, 3);
    assert_eq!(family.scheduler.stats().total().dropped_messages, 3);
    assert_eq!(family.scheduler.registrations().names, 0);
    idle(&family.scheduler, SpawnOptions::new().name("frail"));
    assert!(family.told.try_recv().is_err());
}

#[test]
fn a_held_name_belongs_to_the_supervisor_alone() {
    quiet_panics();
    let scheduler = scheduler(1);
    let policy = RestartPolicy::new().initial_delay(Duration::from_secs(3600)).jitter(0.0);
    let crashes = || process(|_, _| panic!("on purpose"));
    let (observe, events) = channel();
    let supervisor = Supervisor::new()
        .policy(policy.max_delay(Duration::from_secs(3600)))
        .child(ChildSpec::new("child", crashes).name("held"))
        .observe(move |event| drop(observe.send(event.clone())))
        .start(&scheduler, SpawnOptions::new())
        .unwrap();
    while !matches!(recv(&events), SupervisorEvent::RestartsIn { .. }) {}
    let owner = supervisor.pid();
    let stranger = idle(&scheduler, SpawnOptions::new());
    assert_eq!(
        scheduler.register("held", stranger),
        Err(NameError::Taken { name: "held".to_owned(), owner })
    );
    let refused = scheduler.spawn(process(|_, _| Ok(())), SpawnOptions::new().name("held"));
    assert!(matches!(refused, Err(SpawnError::NameTaken { owner: by, .. }) if by == owner), "{refused:?}");
    assert!(!scheduler.unregister("held"));
    scheduler.send_named("held", 1_u64).unwrap();
    // The end of the supervisor, by a kill, frees the name and drops what waited.
    let before = scheduler.stats().total().dropped_messages;
    scheduler.kill(owner, "test").unwrap();
    scheduler.join(owner, Some(LIMIT)).unwrap();
    assert_eq!(scheduler.registrations().names, 0);
    assert_eq!(scheduler.stats().total().dropped_messages - before, 1);
    scheduler.register("held", stranger).unwrap();
}

#[test]
fn the_end_of_a_supervisor_ends_the_holding_of_its_living_childrens_names() {
    let family = family(Restart::Permanent, 8);
    family.started();
    family.begin();
    family.send(1);
    assert_eq!(recv(&family.told), 1);
    family.scheduler.kill(family.supervisor, "test").unwrap();
    until("the child follows its supervisor", || family.scheduler.list_processes().is_empty());
    until("the name is free", || family.scheduler.registrations().names == 0);
}

/// FC-018: the start of an incarnation fails, in the same moment messages for its name arrive; others are
/// busy. Each message is taken once, in order, by a later incarnation.
#[test]
fn messages_for_an_ending_incarnation_wait_for_the_next() {
    const ROUNDS: u64 = 10_000;
    const BURST: u64 = 100;
    quiet_panics();
    let scheduler = scheduler(2);
    let (tell, told) = channel();
    struct Child {
        fails: bool,
        told: Sender<u64>,
    }
    impl Process for Child {
        fn init(&mut self, _: &InitContext, _: &str, _: Payload) -> Result<(), ProcessError> {
            if self.fails { Err(ProcessError::new("every other one")) } else { Ok(()) }
        }
        fn step(&mut self, events: &mut Events<'_>, _: &mut StepOutput<'_>) -> Result<(), ProcessError> {
            for event in events.by_ref() {
                if let Event::Message(message) = event {
                    let number = message.take::<u64>().unwrap();
                    self.told.send(number)?;
                    if number % BURST == BURST - 1 {
                        return Err(ProcessError::new("the burst is over"));
                    }
                }
            }
            Ok(())
        }
    }
    let mut count = 0;
    let make = move || {
        count += 1;
        Child { fails: count % 2 == 1, told: tell.clone() }
    };
    let policy = RestartPolicy::new().initial_delay(Duration::ZERO).max_attempts(u32::MAX);
    Supervisor::new()
        .policy(policy)
        .child(ChildSpec::new("k", make).name("k"))
        .start(&scheduler, SpawnOptions::new())
        .unwrap();
    let others: Vec<Pid> = (0..50)
        .map(|_| {
            let busy = process(|events, out| {
                events.by_ref().for_each(drop);
                out.continue_soon();
                Ok(())
            });
            scheduler.spawn(busy, SpawnOptions::new()).unwrap()
        })
        .collect();
    until("it has its name", || scheduler.registrations().names == 1);
    for round in 0..ROUNDS {
        for number in 0..BURST {
            scheduler.send_named("k", round * BURST + number).unwrap();
        }
        // The last one ends the incarnation; the next start fails while the next burst arrives.
        for number in 0..BURST {
            assert_eq!(recv(&told), round * BURST + number);
        }
    }
    assert_eq!(scheduler.list_processes().iter().filter(|info| others.contains(&info.pid)).count(), 50);
}

#[test]
fn a_step_finds_and_gives_names() {
    let scheduler = scheduler(1);
    let (tell, told) = channel();
    scheduler
        .spawn_once(move |out| {
            let me = out.self_pid();
            out.register("me", me).unwrap();
            tell.send(out.lookup("me") == Some(me)).unwrap();
            tell.send(out.send_named("nobody", ()) == Err(NameError::Unknown("nobody".to_owned()))).unwrap();
            let node: Pid = "7.0.1.1".parse().unwrap();
            tell.send(out.link(node) == Err(SendError::OtherNode(node))).unwrap();
        })
        .unwrap();
    assert!(recv(&told) && recv(&told) && recv(&told));
}

#[test]
fn a_name_is_refused_with_what_is_wrong_with_the_pid() {
    let scheduler = scheduler(1);
    let pid = idle(&scheduler, SpawnOptions::new());
    let with = |node: u16, host: u16, slot: u32, generation: u32| -> Pid {
        format!("{node}.{host}.{slot}.{generation}").parse().unwrap()
    };
    let (host, slot, generation) = (pid.host(), pid.local().slot(), pid.local().generation());
    let foreign = with(7, host, slot, generation);
    assert_eq!(scheduler.register("names.who", foreign), Err(NameError::OtherNode(foreign)));
    for never in
        [with(0, host, u32::MAX, 0), with(0, 4095, slot, generation), with(0, host, slot, 16_000_000)]
    {
        assert_eq!(scheduler.register("names.who", never), Err(NameError::NotFound(never)));
    }
    let elsewhere = crate::support::scheduler(1);
    let other = idle(&elsewhere, SpawnOptions::new());
    assert_eq!(scheduler.register("names.who", other), Err(NameError::OtherRuntime(other)));
    end(&scheduler, pid);
    assert_eq!(scheduler.register("names.who", pid), Err(NameError::NoProcess(pid)));
    assert_eq!(scheduler.lookup("names.who"), None);
    assert_eq!(scheduler.registrations().names, 0);
}

#[test]
fn nobody_is_called_by_the_empty_text() {
    let scheduler = scheduler(1);
    let pid = idle(&scheduler, SpawnOptions::new());
    assert_eq!(scheduler.register("", pid), Err(NameError::Empty));
    let spawned = scheduler.spawn(process(|_, _| Ok(())), SpawnOptions::new().name(""));
    assert!(matches!(spawned, Err(SpawnError::EmptyName)), "{spawned:?}");
    assert_eq!(scheduler.list_processes().len(), 1);
    let host = Runtime::builder().host("", |host| host.workers(1)).start();
    assert!(matches!(host, Err(StartError::EmptyName)), "{host:?}");
}
