//! Much of one thing: yields, children, names, messages. The cost of each does not grow with their number, and
//! whoever shares the worker does not wait for all of them.

use std::sync::mpsc::channel;
use std::time::Duration;

use evener_scheduler::commands::Sleep;
use evener_scheduler::supervisor::{ChildSpec, Supervisor};
use evener_scheduler::{Event, Events, Payload, SpawnOptions, StepOutput, Tag};

use crate::support::{LIMIT, process, recv, scheduler};

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
