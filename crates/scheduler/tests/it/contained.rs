//! What one process leaves to another may panic in its drop: errors, the closures of a child, requests. It
//! costs neither the one who monitors nor the one who supervises.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;

use evener_scheduler::supervisor::{ChildSpec, ChildState, RestartPolicy, SuperviseError, Supervisor};
use evener_scheduler::{
    Event, Events, Exit, LifecycleHooks, Package, Pid, Process, ProcessError, SpawnOptions, StepOutput, send,
};

use crate::support::{LIMIT, process, quiet_panics, recv, scheduler, until};

/// Counts its drops, and panics in each.
#[derive(Debug)]
struct Bomb(Arc<AtomicUsize>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        panic!("a drop panics on purpose");
    }
}
impl std::fmt::Display for Bomb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a bomb")
    }
}
impl std::error::Error for Bomb {}

/// Ends when asked to.
fn obedient() -> impl Process {
    process(|events: &mut Events<'_>, out: &mut StepOutput<'_>| {
        for event in events {
            if let Event::Cancel(_) = event {
                out.done(());
            }
        }
        Ok(())
    })
}

#[test]
fn a_monitor_survives_the_drop_of_the_error_that_it_was_told() {
    quiet_panics();
    // One worker: the end of the child is over when the watcher's step begins, which has the last clone.
    let s = scheduler(1);
    let drops = Arc::new(AtomicUsize::new(0));
    let (tell, told) = channel();
    let mut bomb = Some(Bomb(Arc::clone(&drops)));
    let mut kept: Option<Exit> = None;
    let watcher = s
        .spawn(
            process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
                if let Some(bomb) = bomb.take() {
                    let mut bomb = Some(bomb);
                    let failing = move |_: &mut Events<'_>, _: &mut StepOutput<'_>| {
                        Err(ProcessError::from(bomb.take().expect("one step")))
                    };
                    out.spawn(process(failing), SpawnOptions::new().monitored()).unwrap();
                }
                for event in events {
                    match event {
                        Event::Exit(exit) => {
                            tell.send(format!("exit: {}", exit.reason)).unwrap();
                            kept = Some(exit);
                        }
                        _ => {
                            drop(kept.take());
                            tell.send("dropped".to_owned()).unwrap();
                        }
                    }
                }
                Ok(())
            }),
            SpawnOptions::new(),
        )
        .unwrap();
    assert_eq!(recv(&told), "exit: failed: a bomb");
    assert_eq!(drops.load(SeqCst), 0);
    send(Package::new(watcher, ())).unwrap();
    assert_eq!(recv(&told), "dropped");
    assert_eq!(drops.load(SeqCst), 1);
}

#[test]
fn a_supervisor_survives_the_drop_of_its_childs_error() {
    quiet_panics();
    let s = scheduler(1);
    let drops = Arc::new(AtomicUsize::new(0));
    let made = Arc::new(AtomicUsize::new(0));
    let (drops_of_child, made_of_child) = (Arc::clone(&drops), Arc::clone(&made));
    let make = move || {
        let fails = made_of_child.fetch_add(1, SeqCst) < 3;
        let drops = Arc::clone(&drops_of_child);
        process(
            move |_: &mut Events<'_>, _: &mut StepOutput<'_>| {
                if fails { Err(Bomb(Arc::clone(&drops)).into()) } else { Ok(()) }
            },
        )
    };
    let family = Supervisor::new()
        .policy(RestartPolicy::new().initial_delay(Duration::ZERO).max_attempts(5))
        .child(ChildSpec::new("sibling", obedient))
        .child(ChildSpec::new("bad", make))
        .start(&s, SpawnOptions::new())
        .unwrap();
    until("three bombs went off", || drops.load(SeqCst) == 3);
    let children = family.children(&s, LIMIT).unwrap();
    assert!(matches!(children[0].state, ChildState::Running(_)), "{children:?}");
    assert_eq!((children[0].restarts, children[1].restarts), (0, 3));
}

#[test]
fn a_supervisor_survives_the_drop_of_what_a_childs_closures_hold() {
    quiet_panics();
    let s = scheduler(2);
    let drops = Arc::new(AtomicUsize::new(0));
    let child = |id: &str| {
        let (in_make, in_options) = (Bomb(Arc::clone(&drops)), Bomb(Arc::clone(&drops)));
        ChildSpec::new(id, move || {
            let _ = &in_make;
            obedient()
        })
        .options(move || {
            let _ = &in_options;
            SpawnOptions::new()
        })
    };
    let family = Supervisor::new().child(child("first")).start(&s, SpawnOptions::new()).unwrap();
    // Refused; stopped and forgotten; not begun, its factory's panic dropping options that panic as well.
    let twice = family.add(&s, child("first"), LIMIT).unwrap_err();
    assert!(matches!(twice, SuperviseError::Duplicate(_)), "{twice}");
    until("both closures are gone", || drops.load(SeqCst) == 2);
    family.add(&s, child("second"), LIMIT).unwrap();
    family.stop_child(&s, "second", LIMIT).unwrap();
    until("both closures are gone", || drops.load(SeqCst) == 4);
    let (in_input, in_make) = (Arc::clone(&drops), Bomb(Arc::clone(&drops)));
    let third = ChildSpec::new("third", move || -> Box<dyn Process> {
        let _ = &in_make;
        panic!("a factory panics on purpose")
    })
    .options(move || SpawnOptions::new().input(Bomb(Arc::clone(&in_input))));
    let failed = family.add(&s, third, LIMIT).unwrap_err();
    assert!(matches!(failed, SuperviseError::Factory(_)), "{failed}");
    until("input and closure are gone", || drops.load(SeqCst) == 6);
    // What is none of its business.
    send(Package::new(family.pid(), Bomb(Arc::clone(&drops)))).unwrap();
    until("it is gone", || drops.load(SeqCst) == 7);
    assert_eq!(family.children(&s, LIMIT).unwrap().len(), 1);
    // All that is left goes in one drop: several panics in a row are no double panic.
    family.add(&s, child("fourth"), LIMIT).unwrap();
    s.kill(family.pid(), "test").unwrap();
    until("all closures are gone", || drops.load(SeqCst) == 11);
}

/// Lets the test look at the moment in which an end is told.
struct AtEnd(std::sync::Mutex<Box<dyn FnMut() + Send>>);

impl LifecycleHooks for AtEnd {
    fn on_complete(&self, _: Pid, _: &evener_scheduler::ExitReason, _: Option<&evener_scheduler::Payload>) {
        (self.0.lock().unwrap())();
    }
}

#[test]
fn who_hears_of_an_end_finds_room_for_another_process() {
    quiet_panics();
    let (ended, ends) = channel();
    let (go_on, may_go_on) = channel();
    let hook = move || {
        // The end stands still while the test spawns.
        let _ = ended.send(());
        let _ = may_go_on.recv_timeout(LIMIT);
    };
    let s = evener_scheduler::Scheduler::builder()
        .workers(1)
        .processes_max(1)
        .hooks(AtEnd(std::sync::Mutex::new(Box::new(hook))))
        .start()
        .unwrap();
    let pid = s.spawn(obedient(), SpawnOptions::new()).unwrap();
    s.kill(pid, "test").unwrap();
    recv(&ends);
    let next = s.spawn(obedient(), SpawnOptions::new());
    go_on.send(()).unwrap();
    let next = next.unwrap();
    drop(go_on);
    s.kill(next, "test").unwrap();
}
