//! The poller: who sleeps in it is woken, and somebody comes to poll.

use loom::sync::Arc;

use super::{ModelInfo, check};
use crate::poller::post::Post;
use crate::sync::{AtomicU32, Condvar, Mutex, Relaxed, thread};
use crate::worker::idle::{Bell, Idle, Left, Parker};

/// A poller in which nothing happens but rings: one that came during no wait ends the next.
struct Quiet {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Quiet {
    fn new() -> Self {
        Self { rung: Mutex::new(false), changed: Condvar::new() }
    }

    fn has_rung(&self) -> bool {
        *self.rung.lock()
    }

    fn wait(&self) {
        let mut rung = self.rung.lock();
        while !std::mem::take(&mut *rung) {
            rung = self.changed.wait(rung);
        }
    }
}

impl Bell for Arc<Quiet> {
    fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_one();
    }
}

/// A sleeper that sleeps on after a token is a deadlock, which loom reports.
fn wakers_meet_a_sleeper(info: ModelInfo, wakers: usize, looks: bool) {
    check(info, move || {
        let quiet = Arc::new(Quiet::new());
        let notes = [0, 1].map(|_| AtomicU32::new(0));
        let shared = Arc::new((Parker::with_bell(quiet.clone()), notes));
        let threads: Vec<_> = (0..wakers)
            .map(|waker| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (parker, notes) = &*shared;
                    notes[waker].store(1, Relaxed);
                    parker.unpark();
                })
            })
            .collect();
        let (parker, notes) = &*shared;
        while notes[..wakers].iter().any(|note| note.load(Relaxed) == 0) {
            // It may be woken for nothing: by a ring for a token that it took before the ring came.
            if looks {
                parker.park_elsewhere(|| quiet.wait());
            } else {
                parker.park_elsewhere_blindly(|| quiet.wait());
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn who_sleeps_elsewhere_is_woken() {
    let info = ModelInfo {
        name: "poller::who_sleeps_elsewhere_is_woken",
        threads: 3,
        operations: "sleep in the poller till both have written | write, unpark | write, unpark",
        preemption_bound: Some(3),
    };
    wakers_meet_a_sleeper(info, 2, true);
}

/// A token, left before the sleep or during it: when its waker is through, the bell has rung for who sleeps.
fn a_token_meets_a_sleeper(info: ModelInfo, looks: bool) {
    check(info, move || {
        let quiet = Arc::new(Quiet::new());
        let parker = Arc::new(Parker::with_bell(quiet.clone()));
        let mut waker = Some({
            let parker = parker.clone();
            thread::spawn(move || parker.unpark())
        });
        let sleep = || {
            waker.take().unwrap().join().unwrap();
            assert!(quiet.has_rung(), "a token is slept over");
        };
        let had_token =
            if looks { parker.park_elsewhere(sleep) } else { parker.park_elsewhere_blindly(sleep) };
        if let Some(waker) = waker {
            waker.join().unwrap();
        }
        assert!(had_token);
    });
}

#[test]
fn no_token_is_slept_over() {
    let info = ModelInfo {
        name: "poller::no_token_is_slept_over",
        threads: 2,
        operations: "sleep in the poller till the waker is through | unpark",
        preemption_bound: None,
    };
    a_token_meets_a_sleeper(info, true);
}

/// Negative control.
#[test]
#[should_panic(expected = "a token is slept over")]
fn without_a_look_at_the_word_a_token_is_slept_over() {
    let info = ModelInfo {
        name: "poller::without_a_look_at_the_word_a_token_is_slept_over",
        threads: 2,
        operations: "sleep in the poller without a look till the waker is through | unpark",
        preemption_bound: None,
    };
    a_token_meets_a_sleeper(info, false);
}

/// Two sleeps in different places, one after the other: a token finds the sleeper where it is.
#[test]
fn a_token_finds_the_sleeper_where_it_is() {
    let info = ModelInfo {
        name: "poller::a_token_finds_the_sleeper_where_it_is",
        threads: 2,
        operations: "enter, sleep in the poller, leave, enter, sleep in bed, leave | choose, unpark, twice",
        preemption_bound: Some(3),
    };
    check(info, || {
        let quiet = Arc::new(Quiet::new());
        let shared = Arc::new((Parker::with_bell(quiet.clone()), Idle::new(1)));
        let waker = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (parker, idle) = &*shared;
                (0..2).filter(|_| idle.choose(None).inspect(|_| parker.unpark()).is_some()).count()
            })
        };
        let (parker, idle) = &*shared;
        let mut woken = 0;
        for round in 0..2 {
            idle.enter(0, false);
            let in_poller = round == 0;
            // As `Worker::park`, with a wait that ends by itself.
            let has_token = if in_poller {
                parker.park_elsewhere(|| {})
            } else {
                parker.park(Some(std::time::Duration::ZERO))
            };
            if has_token || idle.leave(0) == Left::Woken {
                assert!(has_token || parker.park(None));
                woken += 1;
            }
            idle.stop_searching();
        }
        assert_eq!(waker.join().unwrap(), woken, "chosen and woken differ");
        assert!(!parker.has_token(), "a token was left behind");
    });
}

/// The only worker parks while another thread polls: it takes the role, or is woken to come and take it.
fn a_worker_meets_a_poller(info: ModelInfo, looks_after: bool) {
    check(info, move || {
        let shared = Arc::new((Post::new(()), Idle::new(1)));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (post, idle) = &*shared;
                let Some(role) = post.try_take() else { return None };
                if looks_after {
                    drop(role);
                    post.whom_to_wake(idle)
                } else {
                    let chosen = post.whom_to_wake(idle);
                    drop(role);
                    chosen
                }
            })
        };
        let (post, idle) = &*shared;
        let mut role = post.try_take();
        idle.enter_at(0, false, role.is_some());
        role = role.or_else(|| post.try_take());
        // With the role it sleeps, without end.
        let polls = role.is_some();
        let chosen = other.join().unwrap();
        assert!(polls || chosen.is_some(), "nobody comes to poll");
    });
}

#[test]
fn somebody_comes_to_poll() {
    let info = ModelInfo {
        name: "poller::somebody_comes_to_poll",
        threads: 2,
        operations: "take the role, park, take the role | take the role, give it back, look",
        preemption_bound: None,
    };
    a_worker_meets_a_poller(info, true);
}

/// Negative control: a look before the role is given back.
#[test]
#[should_panic(expected = "nobody comes to poll")]
fn who_looks_too_early_leaves_nobody() {
    let info = ModelInfo {
        name: "poller::who_looks_too_early_leaves_nobody",
        threads: 2,
        operations: "take the role, park, take the role | take the role, look, give it back",
        preemption_bound: None,
    };
    a_worker_meets_a_poller(info, false);
}

/// The only worker parks while a spare that had the role leaves.
fn a_spare_leaves(info: ModelInfo, makes_sure: bool) {
    check(info, move || {
        let shared = Arc::new((Post::new(()), Idle::new(1)));
        shared.1.join();
        let spare = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (post, idle) = &*shared;
                // Back from the poller, and recalled.
                drop(post.try_take());
                idle.stop_searching();
                idle.resign();
                if makes_sure { post.whom_to_wake(idle) } else { None }
            })
        };
        let (post, idle) = &*shared;
        idle.enter_at(0, false, false);
        let polls = post.try_take().map(std::mem::forget).is_some();
        let chosen = spare.join().unwrap();
        assert!(polls || chosen.is_some(), "nobody comes to poll");
    });
}

#[test]
fn a_spare_that_leaves_makes_sure() {
    let info = ModelInfo {
        name: "poller::a_spare_that_leaves_makes_sure",
        threads: 2,
        operations: "park, take the role | take the role, give it back, resign, look",
        preemption_bound: None,
    };
    a_spare_leaves(info, true);
}

/// Negative control.
#[test]
#[should_panic(expected = "nobody comes to poll")]
fn a_spare_that_leaves_without_a_look_leaves_nobody() {
    let info = ModelInfo {
        name: "poller::a_spare_that_leaves_without_a_look_leaves_nobody",
        threads: 2,
        operations: "park, take the role | take the role, give it back, resign",
        preemption_bound: None,
    };
    a_spare_leaves(info, false);
}
