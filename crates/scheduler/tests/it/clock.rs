//! Tickers beside slow processes: one tick waits at most, and it comes at a whole period.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;

use evener_scheduler::commands::Ticker;
use evener_scheduler::{Event, Events, SpawnOptions, StepOutput, Tag};

use crate::support::{process, recv, scheduler, until};

const PERIOD: Duration = Duration::from_millis(2);

#[test]
fn while_a_step_is_long_one_tick_waits_and_no_more() {
    let s = scheduler(2);
    let (tell, told) = channel();
    let mut first = true;
    let mut slept = false;
    s.spawn(
        process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
            if std::mem::take(&mut first) {
                out.command(Tag(1), Ticker(PERIOD));
                return Ok(());
            }
            if !slept {
                slept = true;
                std::thread::sleep(50 * PERIOD);
                assert_eq!(events.waiting(), 1, "the tick that began this step");
                return Ok(());
            }
            tell.send(events.waiting()).unwrap();
            events.for_each(drop);
            Ok(())
        }),
        SpawnOptions::new(),
    )
    .unwrap();
    for _ in 0..10 {
        assert_eq!(recv(&told), 1);
    }
}

#[test]
fn a_process_slower_than_its_ticker_does_not_fall_behind() {
    let s = scheduler(2);
    let (tell, told) = channel();
    let mut first = true;
    s.spawn(
        process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
            if std::mem::take(&mut first) {
                out.command(Tag(1), Ticker(PERIOD));
                return Ok(());
            }
            tell.send(events.waiting()).unwrap();
            for event in events {
                let Event::YieldComplete { result, .. } = event else { continue };
                result.unwrap();
                std::thread::sleep(2 * PERIOD);
            }
            Ok(())
        }),
        SpawnOptions::new(),
    )
    .unwrap();
    for _ in 0..25 {
        assert_eq!(recv(&told), 1);
    }
}

#[test]
fn a_ticker_outlives_a_reset_of_the_queue_and_ends_when_given_up() {
    let s = scheduler(1);
    let ticks = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&ticks);
    let mut first = true;
    let mut resets = 0;
    let pid = s
        .spawn(
            process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
                if std::mem::take(&mut first) {
                    out.command(Tag(1), Ticker(PERIOD));
                } else if resets < 3 {
                    // The tick that made this turn is dropped with the queue.
                    resets += 1;
                    assert_eq!(out.reset_queue().unwrap(), 1);
                } else {
                    for event in events {
                        match event {
                            Event::YieldComplete { tag: Tag(1), .. } => {
                                if seen.fetch_add(1, SeqCst) >= 20 {
                                    assert!(out.cancel_yield(Tag(1)));
                                }
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                }
                Ok(())
            }),
            SpawnOptions::new(),
        )
        .unwrap();
    until("it ticked", || ticks.load(SeqCst) == 21);
    assert_eq!(s.registrations().timers, 0);
    std::thread::sleep(5 * PERIOD);
    assert_eq!(ticks.load(SeqCst), 21);
    assert_eq!(s.list_processes()[0].pid, pid);
}
