//! From a PID to a mailbox: who is reached, who is not, in which order, and what a refusal leaves behind.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use evener_scheduler::{
    AskError, Cancellation, Event, Events, Package, Payload, Pid, PidParseError, Process, ProcessError,
    Producer, Scheduler, SendError, SpawnOptions, StepOutput, Tag, Topic, YieldError, send, send_with,
};

use crate::support::{LIMIT, in_a_program_of_its_own, process, recv, scheduler};

/// Takes `u64`s and tells of them; answers any request with `()`; resets its queue on `Reset`.
struct Sink(Sender<u64>);
struct Reset;

impl Process for Sink {
    fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        for event in events.by_ref() {
            let Event::Message(mut message) = event else { continue };
            if message.payload().is::<Reset>() {
                out.reset_queue()?;
            }
            match message.take_payload().take::<u64>() {
                Ok(number) => self.0.send(number)?,
                Err(_) => {
                    message.reply(Payload::empty());
                }
            }
        }
        Ok(())
    }
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

fn ended(scheduler: &Scheduler) -> Pid {
    let pid = idle(scheduler);
    scheduler.stop(pid, std::time::Duration::ZERO).unwrap();
    pid
}

/// The same address but for one of its four numbers.
fn altered(pid: Pid, part: usize, value: u64) -> Pid {
    let mut parts: Vec<String> = pid.to_string().split('.').map(str::to_owned).collect();
    parts[part] = value.to_string();
    parts.join(".").parse().unwrap()
}

/// A value that tells of its drop.
struct Told(Sender<()>);
impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[test]
fn a_cancelled_send_is_refused_before_the_look_up() {
    let scheduler = scheduler(1);
    let cancel = Cancellation::new();
    let nobody = altered(idle(&scheduler), 2, 4_000_000_000);
    // Not cancelled, the look-up speaks.
    assert_eq!(send_with(&cancel, Package::new(nobody, ())), Err(SendError::NotFound(nobody)));
    cancel.cancel();
    let (sender, dropped) = channel();
    assert_eq!(send_with(&cancel, Package::new(nobody, Told(sender))), Err(SendError::Cancelled));
    dropped.try_recv().expect("a refused package is dropped at once");
}

#[test]
fn a_cancellation_after_admission_changes_nothing() {
    let scheduler = scheduler(1);
    let (sender, seen) = channel();
    let pid = scheduler.spawn(Sink(sender), SpawnOptions::new()).unwrap();
    let cancel = Cancellation::new();
    send_with(&cancel, Package::new(pid, 7_u64)).unwrap();
    cancel.cancel();
    assert_eq!(recv(&seen), 7);
}

#[test]
fn each_kind_of_absent_target_has_its_own_answer() {
    let scheduler = scheduler(1);
    let alive = idle(&scheduler);
    let unknown_slot = altered(alive, 2, 4_000_000_000);
    let later_life = altered(alive, 3, u64::from(alive.local().generation()) + 1000);
    let other_node = altered(alive, 0, 9);
    let other_host = altered(alive, 1, 4095);
    let finished = ended(&scheduler);
    for (pid, expected) in [
        (unknown_slot, SendError::NotFound(unknown_slot)),
        (later_life, SendError::NotFound(later_life)),
        (other_host, SendError::NotFound(other_host)),
        (other_node, SendError::OtherNode(other_node)),
        (finished, SendError::Closed(finished)),
    ] {
        let (sender, dropped) = channel();
        assert_eq!(send(Package::new(pid, Told(sender))), Err(expected), "{pid}");
        dropped.try_recv().expect("a refused package is dropped at once");
        assert_eq!(scheduler.kill(pid, "test"), Err(expected), "{pid}");
        assert_eq!(scheduler.cancel(pid, "test", None), Err(expected), "{pid}");
        assert_eq!(Producer::bind(pid), Err(expected), "{pid}");
        match scheduler.ask(pid, (), Some(LIMIT)) {
            Err(AskError::Send(error)) => assert_eq!(error, expected),
            other => panic!("{pid}: {other:?}"),
        }
    }
    send(Package::new(alive, ())).unwrap();
}

#[test]
fn malformed_text_is_no_address() {
    assert!(matches!("1.2.3".parse::<Pid>(), Err(PidParseError::Parts { parts: 3, .. })));
    assert!(matches!("0.0.0.0".parse::<Pid>(), Err(PidParseError::Number { part: "slot", .. })));
    assert!(matches!("0.0.1.x".parse::<Pid>(), Err(PidParseError::Number { part: "generation", .. })));
}

#[test]
fn text_form_reaches_the_process_it_was_printed_from() {
    let scheduler = scheduler(1);
    let (sender, seen) = channel();
    let pid = scheduler.spawn(Sink(sender), SpawnOptions::new()).unwrap();
    send(Package::new(pid.to_string().parse().unwrap(), 3_u64)).unwrap();
    assert_eq!(recv(&seen), 3);
}

/// FC-017: every slot is used many times over, with generations of 4 bits; no address of an earlier life
/// reaches a later one, also when a slot's generations are used up.
#[test]
fn an_old_address_never_reaches_a_later_life() {
    in_a_program_of_its_own("routing::many_lives_of_few_slots");
}

#[test]
#[ignore = "run by the test above, in a program of its own: slots are shared by all of a program"]
fn many_lives_of_few_slots() {
    let scheduler = Scheduler::builder().workers(2).generation_max(15).start().unwrap();
    let (sender, seen) = channel();
    let mut old = Vec::new();
    for _ in 0..10_000 {
        let pid = scheduler.spawn(Sink(sender.clone()), SpawnOptions::new()).unwrap();
        scheduler.stop(pid, std::time::Duration::ZERO).unwrap();
        old.push(pid);
    }
    let slots: HashSet<u32> = old.iter().map(|pid| pid.local().slot()).collect();
    assert!(slots.len() < 2000, "{} slots: they were used again", slots.len());
    assert!(scheduler.stats().total().retired_slots > 0, "some were used up");
    assert_eq!(old.iter().collect::<HashSet<_>>().len(), old.len(), "no address was given out twice");
    // As many live ones, in the same slots as far as these have lives left.
    let live: Vec<Pid> =
        (0..200).map(|_| scheduler.spawn(Sink(sender.clone()), SpawnOptions::new()).unwrap()).collect();
    for pid in &old {
        assert_eq!(send(Package::new(*pid, 1_u64)), Err(SendError::Closed(*pid)));
        assert_eq!(scheduler.kill(*pid, "stale"), Err(SendError::Closed(*pid)));
    }
    for pid in &live {
        scheduler.ask(*pid, (), Some(LIMIT)).unwrap();
    }
    assert!(seen.try_recv().is_err(), "a message reached a later life");
}

#[test]
fn one_senders_messages_arrive_in_order() {
    let scheduler = scheduler(2);
    let (sender, seen) = channel();
    let sink = scheduler.spawn(Sink(sender), SpawnOptions::new()).unwrap();
    const EACH: u64 = 20_000;
    for from in 0..4_u64 {
        // A process that goes on by `continue_soon`, so that it may change its worker on the way.
        let mut next = 0;
        let sends = process(move |events, out| {
            events.by_ref().for_each(drop);
            for _ in 0..100 {
                out.send(sink, from << 32 | next)?;
                next += 1;
            }
            if next == EACH {
                out.done(())
            } else {
                out.continue_soon()
            }
            Ok(())
        });
        scheduler.spawn(sends, SpawnOptions::new()).unwrap();
    }
    let mut expected = [0; 4];
    for _ in 0..4 * EACH {
        let number = recv(&seen);
        let from = (number >> 32) as usize;
        assert_eq!(number & 0xffff_ffff, expected[from], "from {from}");
        expected[from] += 1;
    }
}

#[test]
fn a_process_may_send_to_itself() {
    let scheduler = scheduler(1);
    let (sender, seen) = channel();
    let mut begun = false;
    let selfish = process(move |events, out| {
        let me = out.self_pid();
        if !std::mem::replace(&mut begun, true) {
            out.send(me, 1_u64)?;
        }
        for event in events.by_ref() {
            if let Event::Message(message) = event {
                let from = message.sender();
                let number = message.take::<u64>().unwrap();
                sender.send((number, from == Some(me.local())))?;
                if number < 3 {
                    out.send(me, number + 1)?;
                }
            }
        }
        Ok(())
    });
    scheduler.spawn(selfish, SpawnOptions::new()).unwrap();
    for number in 1..=3 {
        assert_eq!(recv(&seen), (number, true));
    }
}

#[test]
fn a_producer_goes_stale_with_a_reset_and_the_pid_does_not() {
    let scheduler = scheduler(1);
    let (sender, seen) = channel();
    let pid = scheduler.spawn(Sink(sender), SpawnOptions::new()).unwrap();
    let before = Producer::bind(pid).unwrap();
    before.send(Topic::DEFAULT, 1_u64).unwrap();
    assert_eq!(recv(&seen), 1);
    scheduler.ask(pid, Reset, Some(LIMIT)).unwrap();
    assert_eq!(before.send(Topic::DEFAULT, 2_u64), Err(SendError::Stale(pid)));
    let after = Producer::bind(pid).unwrap();
    after.send(Topic::DEFAULT, 3_u64).unwrap();
    send(Package::new(pid, 4_u64)).unwrap();
    assert_eq!((recv(&seen), recv(&seen)), (3, 4), "what the stale producer sent went nowhere");
    scheduler.stop(pid, std::time::Duration::ZERO).unwrap();
    assert_eq!(after.send(Topic::DEFAULT, 5_u64), Err(SendError::Closed(pid)));
}

#[test]
fn the_address_of_a_waiting_thread_takes_answers_and_nothing_else() {
    let scheduler = Arc::new(scheduler(1));
    let (tell, told) = channel();
    let mut kept = None;
    let server = process(move |events, _| {
        for event in events.by_ref() {
            let Event::Message(mut message) = event else { continue };
            if message.is_request() && kept.is_none() {
                tell.send(message.sender().unwrap())?;
                kept = Some(message);
            } else if let Some(mut request) = kept.take() {
                request.reply(message.take_payload());
            }
        }
        Ok(())
    });
    let server = scheduler.spawn(server, SpawnOptions::new()).unwrap();
    let asker = std::thread::spawn({
        let scheduler = Arc::clone(&scheduler);
        move || scheduler.ask(server, (), Some(LIMIT)).unwrap().take::<u64>().unwrap()
    });
    let thread = recv(&told);
    let address: Pid = format!("0.65535.{}.{}", thread.slot(), thread.generation()).parse().unwrap();
    assert_eq!(send(Package::new(address, 1_u64)), Err(SendError::NotFound(address)));
    assert_eq!(scheduler.kill(address, "test"), Err(SendError::NotFound(address)));
    assert!(scheduler.join(address, None).is_err());
    // As a local address it has no host to be told by: a command may not harm it either.
    let (tell, told) = channel();
    let mut begun = false;
    let meddler = process(move |events, out| {
        if !std::mem::replace(&mut begun, true) {
            out.monitor(address);
            out.ask(Tag(1), address, 1_u64, None);
        }
        for event in events.by_ref() {
            match event {
                Event::Exit(exit) => tell.send(format!("{}", exit.reason))?,
                Event::YieldComplete { result: Err(YieldError::Send(error)), .. } => {
                    tell.send(error.to_string())?
                }
                other => tell.send(format!("{other:?}"))?,
            }
        }
        Ok(())
    });
    scheduler.spawn(meddler, SpawnOptions::new()).unwrap();
    let mut heard = [recv(&told), recv(&told)];
    heard.sort();
    assert_eq!(heard, [format!("no process has the PID {address}"), "no such process".to_owned()]);
    send(Package::new(server, 42_u64)).unwrap();
    assert_eq!(asker.join().unwrap(), 42);
}
