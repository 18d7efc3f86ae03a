//! The monitor: a step that leaves work behind it is watched, whenever the monitor went to sleep.

use std::time::Duration;

use loom::sync::Arc;

use super::{ModelInfo, check};
use crate::queues::next::NextPlace;
use crate::sync::thread;
use crate::worker::idle::{Idle, Left, Parker};
use crate::worker::watch::Watch;

/// A worker comes back from its park, by itself or woken, and its step, which does not end, leaves
/// something in the run-next place. A monitor that sleeps through it is a deadlock, which loom reports.
fn a_monitor_meets_a_worker(info: ModelInfo, looks: bool) {
    check(info, move || {
        let shared = Arc::new((Idle::new(1), Parker::new(), NextPlace::new(), Watch::new()));
        shared.0.enter(0, false);
        let monitor = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (idle, _, _, watch) = &*shared;
                // Two rounds of its life; up, it would go on looking.
                for _ in 0..2 {
                    if idle.all_parked() {
                        watch.sleep(idle, || None);
                    }
                }
            })
        };
        let waker = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (idle, parker, ..) = &*shared;
                if idle.choose(None).is_some() {
                    parker.unpark();
                }
            })
        };
        let (idle, parker, next, watch) = &*shared;
        // As `Worker::park`, with a limit that is over at once.
        if parker.park(Some(Duration::ZERO)) {
            idle.is_up();
        } else if idle.leave(0) == Left::Woken {
            parker.park(None);
        }
        assert_eq!(next.put(1), None);
        if looks {
            watch.ensure_awake();
        }
        monitor.join().unwrap();
        waker.join().unwrap();
    });
}

#[test]
fn no_step_is_left_unwatched() {
    let info = ModelInfo {
        name: "watch::no_step_is_left_unwatched",
        threads: 3,
        operations: "leave or be woken, put, look at the monitor | go to sleep, twice | choose, unpark",
        preemption_bound: Some(3),
    };
    a_monitor_meets_a_worker(info, true);
}

/// Negative control: a worker that does not look whether the monitor sleeps.
#[test]
#[should_panic(expected = "deadlock")]
fn without_a_look_a_step_is_left_unwatched() {
    let info = ModelInfo {
        name: "watch::without_a_look_a_step_is_left_unwatched",
        threads: 3,
        operations: "leave or be woken, put | go to sleep, twice | choose, unpark",
        preemption_bound: Some(3),
    };
    a_monitor_meets_a_worker(info, false);
}

/// A worker whose timer is armed finds work at its second look, and so leaves the list without having slept.
/// Its step does not end: from then on the timer is the monitor's, which must not sleep. A monitor that
/// sleeps through it is a deadlock, which loom reports.
#[test]
fn a_worker_that_is_back_has_its_timers_watched() {
    let info = ModelInfo {
        name: "watch::a_worker_that_is_back_has_its_timers_watched",
        threads: 2,
        operations: "enter, find work, leave, look at the monitor | go to sleep, twice",
        preemption_bound: Some(3),
    };
    check(info, || {
        let shared = Arc::new((Idle::new(1), Watch::new()));
        let monitor = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (idle, watch) = &*shared;
                for _ in 0..2 {
                    if idle.all_parked() {
                        watch.sleep(idle, || None);
                    }
                }
            })
        };
        let (idle, watch) = &*shared;
        idle.enter(0, false);
        assert!(idle.leave(0) == Left::ByItself);
        // Without this loom finds the deadlock.
        watch.ensure_awake();
        monitor.join().unwrap();
    });
}
