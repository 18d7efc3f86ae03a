//! The end of a scheduler: the report, what processes are told, the calls that cannot wait.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use evener_scheduler::{
    Actor, Cancel, Context, Event, Events, Process, ProcessError, Report, Runtime, Scheduler, SendError,
    SpawnOptions, StepOutput,
};

use crate::support::{LIMIT, process, recv, scheduler, until};

/// Does not end when asked to.
struct Deaf;
impl Actor for Deaf {
    type Message = ();
    fn handle(&mut self, (): (), _: &mut Context<'_, ()>) {}
    fn cancelled(&mut self, _: Cancel, _: &mut Context<'_, ()>) {}
}

fn sum(report: &Report) -> usize {
    report.finished + report.ended_by_force + report.still_running.len() + report.not_reached
}

/// Five who would end if only they were asked, and one worker, which a long step has, and nobody to stand in
/// for it.
#[test]
fn who_waits_for_a_worker_is_in_the_report() {
    let s = evener_scheduler::Scheduler::builder().workers(1).spares(0).start().unwrap();
    let (begun_tx, begun) = channel();
    let (go, go_rx) = channel::<()>();
    let mut idle: Vec<_> = (0..5).map(|_| s.spawn_fn((), |(), (): (), _| {}).unwrap()).collect();
    until("they wait", || s.stats().by_state.idle == 5);
    let long = s
        .spawn_once(move |_| {
            begun_tx.send(()).unwrap();
            go_rx.recv().unwrap();
        })
        .unwrap();
    recv(&begun);
    let report = s.shutdown(Duration::from_millis(20));
    assert_eq!((report.finished, report.ended_by_force, report.not_reached), (0, 0, 5), "{report:?}");
    assert_eq!(report.still_running.iter().map(|(pid, _)| *pid).collect::<Vec<_>>(), [long]);
    let again = s.shutdown(Duration::ZERO);
    assert_eq!((again.still_running.len(), again.not_reached), (1, 5), "{again:?}");
    go.send(()).unwrap();
    until("all end, now that the worker is free", || s.stats().by_state.total() == 0);
    let last = idle.pop().unwrap();
    assert_eq!(last.tell(()), Err(SendError::Closed(last.pid())));
}

/// Whatever becomes of whom, and whenever: every process that was there is in one field.
#[test]
fn the_fields_of_a_report_add_up() {
    for round in 0..20_u64 {
        let workers = 1 + round as usize % 3;
        let s = scheduler(workers);
        let (begun_tx, begun) = channel();
        let (go, go_rx) = channel::<()>();
        let (polite, deaf) = (round % 7 * 10, round % 5 * 10);
        for _ in 0..polite {
            s.spawn_fn((), |(), (): (), _| {}).unwrap();
        }
        for _ in 0..deaf {
            s.spawn_actor(Deaf).unwrap();
        }
        let stuck = round % 2;
        if stuck == 1 {
            s.spawn_once(move |_| {
                begun_tx.send(()).unwrap();
                // Till the test lets it go, or is over.
                let _ = go_rx.recv();
            })
            .unwrap();
            recv(&begun);
        }
        let report = s.shutdown(Duration::from_millis(round % 4));
        assert_eq!(sum(&report) as u64, polite + deaf + stuck, "{report:?}");
        assert!(report.still_running.len() as u64 >= stuck, "{report:?}");
        drop(go);
    }
}

#[test]
fn processes_are_told_the_deadline_of_a_shutdown() {
    struct Tells(std::sync::mpsc::Sender<Option<Instant>>);
    impl Process for Tells {
        fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
            for event in events {
                if let Event::Cancel(cancel) = event {
                    self.0.send(cancel.deadline).unwrap();
                    out.done(());
                }
            }
            Ok(())
        }
    }
    let (told_tx, told) = channel();
    for time in [LIMIT, LIMIT * 2] {
        let s = scheduler(1);
        s.spawn(Tells(told_tx.clone()), SpawnOptions::new()).unwrap();
        let before = Instant::now();
        assert_eq!(s.shutdown(time).finished, 1);
        let deadline = recv(&told).expect("there is one");
        assert!(before + time <= deadline && deadline <= Instant::now() + time);
    }
    // One that never comes is none.
    let s = scheduler(1);
    s.spawn(Tells(told_tx.clone()), SpawnOptions::new()).unwrap();
    assert_eq!(s.shutdown(Duration::MAX).finished, 1);
    assert_eq!(recv(&told), None);
    // All hosts of a runtime are told the same one.
    let runtime = Runtime::builder()
        .host("a", |host| host.workers(1))
        .host("b", |host| host.workers(1))
        .start()
        .unwrap();
    for host in runtime.hosts() {
        host.spawn(Tells(told_tx.clone()), SpawnOptions::new()).unwrap();
    }
    runtime.shutdown(LIMIT);
    assert_eq!(recv(&told).expect("there is one"), recv(&told).expect("there is one"));
}

/// On a worker it cannot wait: the report is empty, and all end in the background.
#[test]
fn a_shutdown_from_a_step_reports_nothing() {
    let s = std::sync::Arc::new(scheduler(1));
    s.spawn_actor(Deaf).unwrap();
    let own = std::sync::Arc::clone(&s);
    let (report_tx, report) = channel();
    s.spawn(
        process(move |_, out| {
            report_tx.send(Scheduler::shutdown(&own, LIMIT)).unwrap();
            out.done(());
            Ok(())
        }),
        SpawnOptions::new(),
    )
    .unwrap();
    assert_eq!(recv(&report), Report::default());
    until("all have ended", || s.stats().by_state.total() == 0);
}

/// Each host's report counts from the one call, also those that ended while another host was waited for.
#[test]
fn a_runtimes_reports_add_up_too() {
    let names = ["a", "b", "c"];
    let runtime =
        names.iter().fold(Runtime::builder(), |builder, name| builder.host(name, |host| host.workers(1)));
    let runtime = runtime.start().unwrap();
    for host in runtime.hosts() {
        for _ in 0..10 {
            host.spawn_fn((), |(), (): (), _| {}).unwrap();
        }
        host.spawn_actor(Deaf).unwrap();
    }
    let reports = runtime.shutdown(Duration::from_millis(200));
    assert_eq!(reports.len(), names.len());
    for (name, report) in reports {
        assert_eq!(sum(&report), 11, "{name}: {report:?}");
    }
    assert!(Runtime::builder().start().unwrap().shutdown(LIMIT).is_empty());
}

#[test]
fn more_than_can_be_asked_in_time_are_ended_and_counted() {
    const COUNT: usize = 100_000;
    let s = scheduler(2);
    for _ in 0..COUNT {
        s.spawn_actor(Deaf).unwrap();
    }
    until("they wait", || s.stats().by_state.idle == COUNT);
    let report = s.shutdown(Duration::ZERO);
    assert_eq!(sum(&report), COUNT, "{report:?}");
    assert_eq!(report.finished, 0, "none ends by itself");
}
