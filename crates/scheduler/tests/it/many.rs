//! Much of one thing: yields, children, names, messages. The cost of each does not grow with their number, and
//! whoever shares the worker does not wait for all of them.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evener_scheduler::commands::Sleep;
use evener_scheduler::supervisor::{ChildSpec, GiveUp, Restart, RestartPolicy, Supervisor, SupervisorEvent};
use evener_scheduler::{
    Event, Events, Package, Payload, Pid, ProcessState, Scheduler, SpawnOptions, StepOutput, Tag, send,
};

use crate::support::{LIMIT, process, quiet_panics, recv, scheduler, until};

#[test]
fn eighty_thousand_yields_come_back_and_as_many_can_be_given_up() {
    const COUNT: u64 = 80_000;
    let s = scheduler(2);
    let (tell, told) = channel();
    let mut first = true;
    let mut back = vec![0_u8; COUNT as usize];
    let mut missing = COUNT;
    s.spawn(
        process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
            if first {
                first = false;
                for number in 0..COUNT {
                    out.command(Tag(number), Sleep(Duration::from_millis(1)));
                    out.command(Tag(COUNT + number), Sleep(Duration::from_secs(3600)));
                }
                // From the first to the last: the one in question is never near the end of a list.
                let given_up = (0..COUNT).filter(|number| out.cancel_yield(Tag(COUNT + number))).count();
                tell.send(given_up as u64).unwrap();
            }
            for event in events {
                if let Event::YieldComplete { tag, result: Ok(_) } = event {
                    back[tag.0 as usize] += 1;
                    missing -= 1;
                }
            }
            if missing == 0 {
                assert!(back.iter().all(|times| *times == 1), "each comes back once");
                tell.send(COUNT).unwrap();
                out.done(());
            }
            Ok(())
        }),
        SpawnOptions::new(),
    )
    .unwrap();
    assert_eq!(recv(&told), COUNT);
    assert_eq!(recv(&told), COUNT);
}

#[test]
fn eighty_thousand_asks_with_a_timeout_are_answered() {
    const COUNT: u64 = 80_000;
    let s = scheduler(2);
    let echo = |events: &mut Events<'_>, _: &mut StepOutput<'_>| {
        for event in events {
            if let Event::Message(mut message) = event {
                message.reply(Payload::empty());
            }
        }
        Ok(())
    };
    let echo = s.spawn(process(echo), SpawnOptions::new()).unwrap();
    let (tell, told) = channel();
    let mut first = true;
    let mut answers = 0;
    s.spawn(
        process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
            if first {
                first = false;
                for number in 0..COUNT {
                    out.ask(Tag(number), echo, (), Some(LIMIT));
                }
            }
            for event in events {
                if let Event::YieldComplete { result, .. } = event {
                    result.unwrap();
                    answers += 1;
                }
            }
            if answers == COUNT {
                tell.send(()).unwrap();
                out.done(());
            }
            Ok(())
        }),
        SpawnOptions::new(),
    )
    .unwrap();
    recv(&told);
}

#[test]
fn forty_thousand_children_are_added_one_by_one() {
    const COUNT: usize = 40_000;
    let s = scheduler(2);
    let family = Supervisor::new().start(&s, SpawnOptions::new()).unwrap();
    for number in 0..COUNT {
        let child = || process(|_: &mut Events<'_>, _: &mut StepOutput<'_>| Ok(()));
        family.add(&s, ChildSpec::new(format!("child {number}"), child), LIMIT).unwrap();
    }
    assert_eq!(family.children(&s, LIMIT).unwrap().len(), COUNT);
}

#[test]
fn forty_thousand_names_of_one_process_are_given_back_one_by_one() {
    const COUNT: usize = 40_000;
    let s = scheduler(1);
    let pid =
        s.spawn(process(|_: &mut Events<'_>, _: &mut StepOutput<'_>| Ok(())), SpawnOptions::new()).unwrap();
    let name = |number| format!("name {number}");
    for number in 0..COUNT {
        s.register(&name(number), pid).unwrap();
    }
    // From both ends and the middle, so that each place in the owner's list is given back once.
    let evens = (0..COUNT).step_by(2);
    let odds = (0..COUNT).rev().filter(|number| number % 2 == 1);
    for number in evens.chain(odds) {
        assert_eq!(s.lookup(&name(number)), Some(pid));
        assert!(s.unregister(&name(number)));
        assert_eq!(s.lookup(&name(number)), None);
    }
    s.register(&name(7), pid).unwrap();
    assert_eq!(s.lookup(&name(7)), Some(pid));
    s.kill(pid, "test").unwrap();
    s.join(pid, Some(LIMIT)).ok();
    assert_eq!(s.lookup(&name(7)), None);
}

// ------------------------------------------------------------------ long mailboxes

const LONG: usize = 100_000;

/// A message whose drop is counted.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Notes, in each of its turns, how many have been dropped; it runs as long as it may.
fn witness(scheduler: &Scheduler, drops: &Arc<AtomicUsize>) -> Arc<Mutex<Vec<usize>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (notes, drops) = (Arc::clone(&seen), Arc::clone(drops));
    let step = move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
        for event in events {
            if let Event::Cancel(_) = event {
                out.done(());
                return Ok(());
            }
        }
        let now = drops.load(SeqCst);
        let mut notes = notes.lock().unwrap();
        if notes.last() != Some(&now) {
            notes.push(now);
        }
        out.continue_soon();
        Ok(())
    };
    scheduler.spawn(process(step), SpawnOptions::new()).unwrap();
    seen
}

/// The witness ran between the parts, none of which was all.
fn was_in_parts(seen: &Mutex<Vec<usize>>) {
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 10, "all in one go: {seen:?}");
    let longest = seen.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest < LONG / 10, "a part of {longest}");
}

/// A process with a long mailbox, of which it takes nothing. Each of its turns runs `act`.
fn deaf(
    scheduler: &Scheduler,
    drops: &Arc<AtomicUsize>,
    act: impl Fn(&mut StepOutput<'_>) + Send + 'static,
) -> Pid {
    let step = move |_: &mut Events<'_>, out: &mut StepOutput<'_>| {
        act(out);
        Ok(())
    };
    let pid = scheduler.spawn(process(step), SpawnOptions::new()).unwrap();
    for _ in 0..LONG {
        send(Package::new(pid, Counted(Arc::clone(drops)))).unwrap();
    }
    pid
}

#[test]
fn a_long_mailbox_is_dropped_in_parts_before_anybody_hears_of_the_end() {
    // One worker: what runs between two drops runs on the one that drops.
    let s = scheduler(1);
    let drops = Arc::new(AtomicUsize::new(0));
    let pid = deaf(&s, &drops, |_| {});
    let (tell, told) = channel();
    let count = Arc::clone(&drops);
    let mut first = true;
    let watcher = move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
        if std::mem::take(&mut first) {
            out.monitor(pid);
            tell.send(0).unwrap();
        }
        for event in events {
            if let Event::Exit(_) = event {
                tell.send(count.load(SeqCst)).unwrap();
            }
        }
        Ok(())
    };
    s.spawn(process(watcher), SpawnOptions::new()).unwrap();
    assert_eq!(recv(&told), 0);
    let seen = witness(&s, &drops);
    until("the witness runs", || !seen.lock().unwrap().is_empty());
    let before = s.stats().total().dropped_messages;
    s.kill(pid, "test").unwrap();
    assert_eq!(recv(&told), LONG);
    was_in_parts(&seen);
    assert_eq!(s.stats().total().dropped_messages - before, LONG as u64);
    assert!(s.shutdown(Duration::ZERO).still_running.is_empty());
}

#[test]
fn a_long_queue_that_is_reset_is_dropped_in_parts() {
    let s = scheduler(1);
    let drops = Arc::new(AtomicUsize::new(0));
    let may_reset = Arc::new(AtomicUsize::new(0));
    let (tell, told) = channel();
    let asked = Arc::clone(&may_reset);
    deaf(&s, &drops, move |out| {
        if asked.swap(0, SeqCst) == 1 {
            tell.send(out.reset_queue().unwrap()).unwrap();
        }
    });
    let seen = witness(&s, &drops);
    until("the witness runs", || !seen.lock().unwrap().is_empty());
    may_reset.store(1, SeqCst);
    assert_eq!(recv(&told), LONG);
    until("all is dropped", || drops.load(SeqCst) == LONG);
    was_in_parts(&seen);
    assert_eq!(s.stats().total().dropped_messages, LONG as u64);
}

#[test]
fn a_scheduler_that_ends_meanwhile_drops_all_of_a_long_mailbox() {
    for round in 0..3 {
        let s = scheduler(2);
        let drops = Arc::new(AtomicUsize::new(0));
        let asked = Arc::new(AtomicUsize::new(0));
        let may_reset = Arc::clone(&asked);
        let pid = deaf(&s, &drops, move |out| {
            if may_reset.swap(0, SeqCst) == 1 {
                out.reset_queue().unwrap();
            }
        });
        match round {
            0 => s.kill(pid, "test").unwrap(),
            1 => asked.store(1, SeqCst),
            _ => {}
        }
        until("it begins", || round == 2 || drops.load(SeqCst) > 0);
        if round == 0 {
            drop(s)
        } else {
            drop(s.shutdown(Duration::ZERO))
        }
        until("all is dropped", || drops.load(SeqCst) == LONG);
    }
}

/// A child with a name that panics, once it may, on the first message that it takes, and else notes what it takes.
fn brittle(log: &Arc<Mutex<Vec<usize>>>, panics_left: &Arc<AtomicUsize>) -> ChildSpec {
    let (log, panics_left) = (Arc::clone(log), Arc::clone(panics_left));
    let make = move || {
        let (log, panics_left) = (Arc::clone(&log), Arc::clone(&panics_left));
        process(move |events: &mut Events<'_>, _: &mut StepOutput<'_>| {
            for event in events {
                let Event::Message(message) = event else { continue };
                let number = message.take::<usize>().expect("a number");
                log.lock().unwrap().push(number);
                if number.is_multiple_of(LONG / 8) && panics_left.fetch_sub(1, SeqCst) > 0 {
                    panic!("a crash on purpose");
                }
            }
            Ok(())
        })
    };
    ChildSpec::new("child", make).name("child").restart(Restart::Permanent)
}

#[test]
fn a_successor_gets_a_long_mailbox_whole_and_in_order() {
    quiet_panics();
    let s = scheduler(2);
    let (log, panics) = (Arc::default(), Arc::new(AtomicUsize::new(usize::MAX / 2)));
    let policy = RestartPolicy::new().initial_delay(Duration::from_millis(1)).max_attempts(u32::MAX);
    let _family = Supervisor::new()
        .policy(policy)
        .child(brittle(&log, &panics))
        .start(&s, SpawnOptions::new())
        .unwrap();
    until("it has begun", || s.lookup("child").is_some());
    // While it lives, while it ends, and while there is none: in its mailbox, beside its name, held.
    for number in 0..LONG {
        s.send_named("child", number).unwrap();
    }
    until("all have come", || log.lock().unwrap().len() == LONG);
    let log = log.lock().unwrap();
    assert!(log.iter().copied().eq(0..LONG), "in order, each once");
}

#[test]
fn what_waited_for_a_successor_is_dropped_in_parts_and_counted() {
    quiet_panics();
    let s = scheduler(1);
    let (tell, told): (_, Receiver<usize>) = channel();
    let drops = Arc::new(AtomicUsize::new(0));
    let (log, panics) = (Arc::default(), Arc::new(AtomicUsize::new(1)));
    let policy = RestartPolicy::new().initial_delay(Duration::from_secs(3600)).jitter(0.0);
    let family = Supervisor::new()
        .policy(policy)
        .child(brittle(&log, &panics).on_give_up(GiveUp::Leave))
        .observe(move |event| {
            if let SupervisorEvent::Forgotten { .. } = event {
                tell.send(0).unwrap();
            }
        })
        .start(&s, SpawnOptions::new())
        .unwrap();
    until("it has begun", || s.lookup("child").is_some());
    s.send_named("child", 0_usize).unwrap();
    until("it has crashed", || s.lookup("child").is_none());
    for _ in 0..LONG {
        s.send_named("child", Counted(Arc::clone(&drops))).unwrap();
    }
    let seen = witness(&s, &drops);
    until("the witness runs", || !seen.lock().unwrap().is_empty());
    family.stop_child(&s, "child", LIMIT).unwrap();
    assert_eq!(recv(&told), 0);
    until("all is dropped", || drops.load(SeqCst) == LONG);
    was_in_parts(&seen);
    until("all is counted", || s.stats().total().dropped_messages == LONG as u64);
    assert!(s.list_processes().iter().all(|process| process.state != ProcessState::Blocked));
}

#[test]
fn messages_that_a_thread_drops_with_a_name_are_counted() {
    quiet_panics();
    let s = scheduler(1);
    let (go, goes) = channel::<()>();
    let goes = Mutex::new(goes);
    let (closing, closes) = channel();
    struct Ends<F: FnMut() + Send + 'static>(F);
    impl<F: FnMut() + Send + 'static> evener_scheduler::Process for Ends<F> {
        fn step(
            &mut self,
            events: &mut Events<'_>,
            _: &mut StepOutput<'_>,
        ) -> Result<(), evener_scheduler::ProcessError> {
            if events.count() > 0 { Err(evener_scheduler::ProcessError::new("told to")) } else { Ok(()) }
        }
    }
    impl<F: FnMut() + Send + 'static> Drop for Ends<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    // Its body is dropped when it refuses messages already, and its name is not held yet.
    let goes = Arc::new(goes);
    let make = move || {
        let (goes, closing) = (Arc::clone(&goes), closing.clone());
        Ends(move || {
            let _ = closing.send(());
            let _ = goes.lock().unwrap().recv_timeout(LIMIT);
        })
    };
    let _family = Supervisor::new()
        .child(ChildSpec::new("child", make).name("child"))
        .start(&s, SpawnOptions::new())
        .unwrap();
    until("it has begun", || s.lookup("child").is_some());
    let drops = Arc::new(AtomicUsize::new(0));
    s.send_named("child", Counted(Arc::clone(&drops))).unwrap();
    recv(&closes);
    for _ in 0..10 {
        s.send_named("child", Counted(Arc::clone(&drops))).unwrap();
    }
    let before = drops.load(SeqCst);
    assert!(s.unregister("child"));
    assert_eq!(drops.load(SeqCst) - before, 10);
    assert_eq!(s.stats().dropped_outside, 10);
    drop(go);
}
