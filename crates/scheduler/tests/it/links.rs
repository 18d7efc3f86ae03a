//! Monitors and links: who hears of whose end, with which reason, and that no chain of links is too long.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use evener_scheduler::{
    Event, Events, Exit, ExitBy, ExitReason, Message, Payload, Pid, Process, ProcessError, Scheduler,
    SendError, SpawnOptions, StepOutput, WaitError,
};

use crate::support::{LIMIT, process, quiet_panics, recv, scheduler, until};

/// What a test tells a [`Puppet`] to do.
type Act = Box<dyn FnOnce(&mut StepOutput<'_>) -> Result<(), ProcessError> + Send>;

/// Does what it is told, answers when it has, and tells of every exit it hears of.
struct Puppet(Sender<Exit>);

impl Process for Puppet {
    fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        for event in events.by_ref() {
            match event {
                Event::Message(mut message) => {
                    let act = message.take_payload().take::<Act>().expect("puppets take acts");
                    act(out)?;
                    message.reply(Payload::empty());
                }
                Event::Exit(exit) => self.0.send(exit)?,
                _ => {}
            }
        }
        Ok(())
    }
}

fn puppet(scheduler: &Scheduler) -> (Pid, Receiver<Exit>) {
    let (tell, told) = channel();
    (scheduler.spawn(Puppet(tell), SpawnOptions::new()).unwrap(), told)
}

/// Makes a puppet do something, and waits till it has.
fn make(
    scheduler: &Scheduler,
    pid: Pid,
    act: impl FnOnce(&mut StepOutput<'_>) -> Result<(), ProcessError> + Send + 'static,
) {
    scheduler.ask(pid, Box::new(act) as Act, Some(LIMIT)).unwrap();
}

/// Makes a puppet crash.
fn crash(scheduler: &Scheduler, pid: Pid) {
    let act: Act = Box::new(|_| Err(ProcessError::new("told to crash")));
    evener_scheduler::send(evener_scheduler::Package::new(pid, act)).unwrap();
    scheduler.join(pid, Some(LIMIT)).unwrap();
}

fn is_alive(scheduler: &Scheduler, pid: Pid) -> bool {
    scheduler.list_processes().iter().any(|info| info.pid == pid)
}

#[test]
fn a_monitor_hears_once_however_often_it_was_set() {
    let scheduler = scheduler(2);
    let (watcher, told) = puppet(&scheduler);
    let (target, _) = puppet(&scheduler);
    make(&scheduler, watcher, move |out| {
        out.monitor(target);
        out.monitor(target);
        Ok(())
    });
    scheduler.kill(target, "enough").unwrap();
    let exit = recv(&told);
    assert_eq!((exit.pid, exit.by), (target, ExitBy::Monitor));
    assert!(matches!(&*exit.reason, ExitReason::Killed(why) if &**why == "enough"), "{}", exit.reason);
    make(&scheduler, watcher, |_| Ok(()));
    assert!(told.try_recv().is_err(), "one event for one end");
    assert_eq!(scheduler.registrations().watched, 1, "the watcher's own entry is all that is left");
    assert_eq!(scheduler.registrations().watches, 0);
}

#[test]
fn a_monitor_of_one_that_has_ended_is_answered_at_once() {
    let scheduler = scheduler(2);
    let (watcher, told) = puppet(&scheduler);
    let (target, _) = puppet(&scheduler);
    scheduler.stop(target, Duration::ZERO).unwrap();
    make(&scheduler, watcher, move |out| {
        out.monitor(target);
        Ok(())
    });
    let exit = recv(&told);
    assert!(exit.pid == target && matches!(*exit.reason, ExitReason::NoProcess));
    assert_eq!(scheduler.registrations().watches, 0);
}

#[test]
fn an_unmonitored_end_is_not_told() {
    let scheduler = scheduler(2);
    let (watcher, told) = puppet(&scheduler);
    let (target, _) = puppet(&scheduler);
    make(&scheduler, watcher, move |out| {
        out.monitor(target);
        out.unmonitor(target);
        Ok(())
    });
    scheduler.stop(target, Duration::ZERO).unwrap();
    make(&scheduler, watcher, |_| Ok(()));
    assert!(told.try_recv().is_err());
}

#[test]
fn a_monitor_of_a_failed_init_hears_of_it_as_monitor_and_as_spawner() {
    struct Fails;
    impl Process for Fails {
        fn init(
            &mut self,
            _: &evener_scheduler::InitContext,
            _: &str,
            _: Payload,
        ) -> Result<(), ProcessError> {
            Err(ProcessError::new("no"))
        }
        fn step(&mut self, _: &mut Events<'_>, _: &mut StepOutput<'_>) -> Result<(), ProcessError> {
            unreachable!("its init fails")
        }
    }
    let scheduler = scheduler(1);
    let (watcher, told) = puppet(&scheduler);
    make(&scheduler, watcher, |out| {
        out.spawn(Fails, SpawnOptions::new().monitored())?;
        Ok(())
    });
    let (one, other) = (recv(&told), recv(&told));
    assert_eq!((one.by, other.by), (ExitBy::Spawn, ExitBy::Monitor));
    assert!([one, other].iter().all(|exit| matches!(&*exit.reason, ExitReason::InitFailed(_))));
}

#[test]
fn a_crash_takes_linked_partners_down_and_a_good_end_does_not() {
    let scheduler = scheduler(2);
    let (a, _) = puppet(&scheduler);
    let (b, _) = puppet(&scheduler);
    let (c, _) = puppet(&scheduler);
    make(&scheduler, a, move |out| Ok(out.link(b)?));
    make(&scheduler, a, move |out| Ok(out.link(c)?));
    make(&scheduler, c, |out| {
        out.done(());
        Ok(())
    });
    scheduler.join(c, Some(LIMIT)).unwrap();
    make(&scheduler, a, |_| Ok(()));
    assert!(is_alive(&scheduler, a), "a good end is no crash");
    let joined = std::thread::scope(|scope| {
        let joined = scope.spawn(|| scheduler.join(a, Some(LIMIT)).unwrap());
        until("somebody joins", || scheduler.registrations().watches == 3);
        crash(&scheduler, b);
        joined.join().unwrap()
    });
    match &*joined {
        ExitReason::Linked { partner, reason } => {
            assert_eq!(*partner, b);
            assert!(matches!(&**reason, ExitReason::Failed(error) if error.text() == "told to crash"));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn who_traps_exits_hears_of_a_linked_crash_and_lives() {
    let scheduler = scheduler(2);
    let (a, told) = puppet(&scheduler);
    let (b, _) = puppet(&scheduler);
    make(&scheduler, a, move |out| {
        out.trap_exits(true);
        Ok(out.link(b)?)
    });
    crash(&scheduler, b);
    let exit = recv(&told);
    assert_eq!((exit.pid, exit.by), (b, ExitBy::Link));
    make(&scheduler, a, |_| Ok(()));
}

#[test]
fn an_unlinked_crash_takes_nobody_down() {
    let scheduler = scheduler(2);
    let (a, _) = puppet(&scheduler);
    let (b, _) = puppet(&scheduler);
    make(&scheduler, a, move |out| {
        out.link(b)?;
        out.unlink(b);
        Ok(())
    });
    crash(&scheduler, b);
    make(&scheduler, a, |_| Ok(()));
}

#[test]
fn a_link_to_one_that_has_ended_is_refused() {
    let scheduler = scheduler(1);
    let (a, _) = puppet(&scheduler);
    let (b, _) = puppet(&scheduler);
    scheduler.stop(b, Duration::ZERO).unwrap();
    make(&scheduler, a, move |out| {
        let me = out.self_pid();
        assert_eq!(out.link(b), Err(SendError::Closed(b)));
        assert_eq!(out.link(me), Ok(()), "to itself it is nothing");
        Ok(())
    });
    assert_eq!(scheduler.registrations().watches, 0);
}

#[test]
fn a_spawned_link_holds_from_the_first_moment() {
    quiet_panics();
    let scheduler = scheduler(2);
    for _ in 0..1000 {
        let (parent, _) = puppet(&scheduler);
        let act: Act = Box::new(|out| {
            out.spawn(process(|_, _| panic!("on purpose")), SpawnOptions::new().linked().name("child"))?;
            Ok(())
        });
        evener_scheduler::send(evener_scheduler::Package::new(parent, act)).unwrap();
        scheduler.join(parent, Some(LIMIT)).unwrap();
        until("the name is free again", || scheduler.registrations().names == 0);
    }
    until("nobody is left", || scheduler.stats().by_state.total() == 0);
    assert_eq!(scheduler.registrations().watched, 0);
}

/// A ring of so many, each linked to the next: one crash ends all, on the small stack of a worker, and the
/// reason that arrives last is as deep as the first.
fn ring(count: usize, ends: impl FnOnce(&Scheduler, Pid)) {
    let scheduler = scheduler(2);
    let pids: Vec<Pid> = (0..count).map(|_| puppet(&scheduler).0).collect();
    for (index, pid) in pids.iter().enumerate() {
        let next = pids[(index + 1) % count];
        make(&scheduler, *pid, move |out| Ok(out.link(next)?));
    }
    let (watcher, told) = puppet(&scheduler);
    let half_way = pids[count / 2];
    make(&scheduler, watcher, move |out| {
        out.monitor(half_way);
        Ok(())
    });
    ends(&scheduler, pids[0]);
    let exit = recv(&told);
    match &*exit.reason {
        ExitReason::Linked { reason, .. } => {
            assert!(!matches!(**reason, ExitReason::Linked { .. }), "reasons do not nest");
        }
        other => panic!("{other}"),
    }
    until("the ring is gone", || scheduler.stats().by_state.total() == 1);
    assert_eq!(scheduler.registrations().watches, 0);
}

#[test]
fn a_crash_goes_round_a_ring_of_a_thousand_links() {
    ring(1000, crash);
}

#[test]
fn a_kill_goes_round_a_ring_of_a_hundred_thousand_links() {
    ring(100_000, |scheduler, pid| scheduler.kill(pid, "the first").unwrap());
}

#[test]
fn the_first_kill_reason_counts() {
    let scheduler = scheduler(1);
    let (watcher, told) = puppet(&scheduler);
    let (target, _) = puppet(&scheduler);
    make(&scheduler, watcher, move |out| {
        out.monitor(target);
        // Within one step, so that the target cannot end between the two.
        out.kill(target, "first")?;
        out.kill(target, "second")?;
        Ok(())
    });
    let exit = recv(&told);
    assert!(matches!(&*exit.reason, ExitReason::Killed(why) if &**why == "first"), "{}", exit.reason);
}

#[test]
fn a_cancel_arrives_as_an_event_and_its_deadline_kills() {
    let scheduler = scheduler(2);
    let (tell, told) = channel();
    let deaf = process(move |events, _| {
        for event in events.by_ref() {
            if let Event::Cancel(cancel) = event {
                tell.send((cancel.reason, cancel.deadline.is_some()))?;
            }
        }
        Ok(())
    });
    let pid = scheduler.spawn(deaf, SpawnOptions::new()).unwrap();
    scheduler.cancel(pid, "please", None).unwrap();
    assert_eq!(recv(&told), ("please".into(), false));
    scheduler.cancel(pid, "later", Some(Duration::from_secs(3600))).unwrap();
    assert_eq!(recv(&told), ("later".into(), true));
    scheduler.cancel(pid, "now", Some(Duration::from_millis(1))).unwrap();
    let reason = scheduler.join(pid, Some(LIMIT)).unwrap();
    // Joined before or after the deadline: a later one finds nobody.
    let text = reason.to_string();
    assert!(text == "killed: cancelled (now), and its time ran out" || text == "no such process", "{text}");
    until("no timer is left", || scheduler.registrations().timers == 0);
}

#[test]
fn of_two_deadlines_the_earlier_counts() {
    let scheduler = scheduler(2);
    let (pid, _) = puppet(&scheduler);
    scheduler.cancel(pid, "soon", Some(Duration::from_millis(1))).unwrap();
    let _ = scheduler.cancel(pid, "late", Some(Duration::from_secs(3600)));
    scheduler.join(pid, Some(LIMIT)).unwrap();
    assert_eq!(scheduler.registrations().timers, 0, "the end takes its timers away");
}

#[test]
fn a_join_that_waits_in_vain_leaves_nothing() {
    let scheduler = scheduler(1);
    let (pid, _) = puppet(&scheduler);
    assert_eq!(scheduler.join(pid, Some(Duration::ZERO)).unwrap_err(), WaitError::TimedOut(pid));
    assert_eq!(scheduler.registrations().watches, 0);
}

#[test]
fn a_worker_may_not_wait() {
    let scheduler = std::sync::Arc::new(scheduler(2));
    let (pid, _) = puppet(&scheduler);
    let (tell, told) = channel();
    let inner = std::sync::Arc::clone(&scheduler);
    scheduler
        .spawn_once(move |_| {
            tell.send(inner.join(pid, None).unwrap_err()).unwrap();
            tell.send(inner.stop(pid, Duration::ZERO).unwrap_err()).unwrap();
            drop(inner);
        })
        .unwrap();
    assert_eq!((recv(&told), recv(&told)), (WaitError::OnWorker, WaitError::OnWorker));
    make(&scheduler, pid, |_| Ok(()));
}

/// The watchers of one process come and go in thousands, at a cost that does not grow with their number, and
/// are told or forgotten each.
#[test]
fn a_crowd_of_watchers_leaves_nothing_behind() {
    let scheduler = scheduler(2);
    let (target, _) = puppet(&scheduler);
    let (tell, told) = channel();
    let watchers: Vec<Pid> = (0..20_000)
        .map(|_| {
            let tell = tell.clone();
            let mut begun = false;
            let watcher = process(move |events, out| {
                if !std::mem::replace(&mut begun, true) {
                    out.monitor(target);
                    tell.send(false)?;
                }
                for event in events.by_ref() {
                    if let Event::Exit(_) = event {
                        tell.send(true)?;
                    }
                }
                Ok(())
            });
            scheduler.spawn(watcher, SpawnOptions::new()).unwrap()
        })
        .collect();
    watchers.iter().for_each(|_| assert!(!recv(&told)));
    assert_eq!(scheduler.registrations().watches, 40_000);
    for watcher in watchers.iter().step_by(2) {
        scheduler.kill(*watcher, "gone").unwrap();
    }
    until("half of them are gone", || scheduler.registrations().watches == 20_000);
    scheduler.kill(target, "over").unwrap();
    (0..10_000).for_each(|_| assert!(recv(&told)));
    assert!(told.try_recv().is_err());
    until("nothing is left", || scheduler.registrations().watches == 0);
}

#[test]
fn messages_are_not_mistaken_for_requests() {
    // `reply` to one that is none does nothing, and says so.
    let scheduler = scheduler(1);
    let (tell, told) = channel();
    let server = process(move |events, _| {
        for event in events.by_ref() {
            if let Event::Message(mut message) = event {
                tell.send((message.is_request(), reply_twice(&mut message)))?;
            }
        }
        Ok(())
    });
    fn reply_twice(message: &mut Message) -> (bool, bool) {
        (message.reply(Payload::new(1_u64)), message.reply(Payload::new(2_u64)))
    }
    let server = scheduler.spawn(server, SpawnOptions::new()).unwrap();
    evener_scheduler::send(evener_scheduler::Package::new(server, ())).unwrap();
    assert_eq!(recv(&told), (false, (false, false)));
    let answer = scheduler.ask(server, (), Some(LIMIT)).unwrap();
    assert_eq!(answer.take::<u64>().unwrap(), 1);
    assert_eq!(recv(&told), (true, (true, false)));
}
