//! Sleepers and searchers: no work waits while somebody could take it, no token is lost.

use loom::sync::Arc;

use super::{ModelInfo, check};
use crate::queues::Item;
use crate::queues::global::Global;
use crate::queues::testing::Slots;
use crate::sync::{AtomicU32, Relaxed, thread};
use crate::worker::idle::{Idle, Left, Parker};

/// A host whose workers look into one queue. A step does not end, and a sleeper is a worker that is in
/// the list of [`Idle`]: so a model says at its end who runs, who sleeps and what still waits.
struct Host {
    idle: Idle,
    global: Global,
    slots: Slots,
    looks_twice: bool,
    /// How often each was chosen, less how often it noticed that itself. Who is left at 1 goes on when
    /// the others are done.
    woken: std::sync::Mutex<Vec<i32>>,
}

impl Host {
    fn new(workers: usize, items: Item, looks_twice: bool) -> Arc<Self> {
        Arc::new(Self {
            idle: Idle::new(workers),
            global: Global::new(),
            slots: Slots::new(items),
            looks_twice,
            woken: std::sync::Mutex::new(vec![0; workers]),
        })
    }

    fn push(&self, item: Item) {
        self.global.push(self.slots.put(item), &self.slots);
        self.wake_one();
    }

    /// As `Hub::wake_one`.
    fn wake_one(&self) {
        if let Some(worker) = self.idle.choose(None) {
            self.woken.lock().unwrap()[worker as usize] += 1;
        }
    }

    /// The search and the park of a worker, as in `Worker::run_until_gone`.
    fn work(&self, me: u16, mut is_searching: bool) {
        loop {
            let mut item = self.pop();
            if item.is_none() && (is_searching || self.idle.start_searching()) {
                is_searching = true;
                item = self.pop();
            }
            if let Some(item) = item {
                if is_searching && self.idle.stop_searching() && !self.global.is_empty() {
                    self.wake_one();
                }
                self.slots.take(item);
                return;
            }
            self.idle.enter(me, is_searching);
            let others_search = self.idle.counts().1 > 0;
            if others_search || !self.looks_twice || self.global.is_empty() {
                return;
            }
            if self.idle.leave(me) == Left::Woken {
                self.woken.lock().unwrap()[me as usize] -= 1;
            }
            is_searching = true;
        }
    }

    fn pop(&self) -> Option<Item> {
        let mut item = None;
        self.global.pop_batch(1, &self.slots, |popped| item = Some(popped));
        item
    }

    /// Who was woken goes on; then nothing waits, or nobody sleeps. When all other threads have ended.
    fn assert_nothing_waits_alone(&self) {
        loop {
            let woken = self.woken.lock().unwrap().iter().position(|&times| times == 1);
            let Some(worker) = woken else { break };
            self.woken.lock().unwrap()[worker] = 0;
            self.work(worker as u16, true);
        }
        let (parked, searching) = self.idle.counts();
        assert_eq!(searching, 0, "who has found work, or sleeps, counts as searching");
        assert!(self.global.is_empty() || parked == 0, "work waits alone");
    }
}

fn a_pusher_meets_workers(info: ModelInfo, workers: u16, items: Item, looks_twice: bool) {
    check(info, move || {
        let host = Host::new(workers as usize, items, looks_twice);
        let threads: Vec<_> = (0..workers)
            .map(|me| {
                let host = host.clone();
                thread::spawn(move || host.work(me, false))
            })
            .collect();
        (1..=items).for_each(|item| host.push(item));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        host.assert_nothing_waits_alone();
    });
}

#[test]
fn no_work_waits_alone() {
    let info = ModelInfo {
        name: "idle::no_work_waits_alone",
        threads: 3,
        operations: "push, push | search, run or park | search, run or park",
        preemption_bound: Some(3),
    };
    a_pusher_meets_workers(info, 2, 2, true);
}

/// Negative control.
#[test]
#[should_panic(expected = "work waits alone")]
fn without_the_second_look_work_is_lost() {
    let info = ModelInfo {
        name: "idle::without_the_second_look_work_is_lost",
        threads: 2,
        operations: "push | search, park at once",
        preemption_bound: None,
    };
    a_pusher_meets_workers(info, 1, 1, false);
}

#[test]
fn the_last_searcher_wakes_another() {
    let info = ModelInfo {
        name: "idle::the_last_searcher_wakes_another",
        threads: 2,
        operations: "push, push | search, run or park; another worker sleeps",
        preemption_bound: Some(4),
    };
    check(info, || {
        let host = Host::new(2, 2, true);
        host.work(1, false);
        assert!(host.idle.start_searching());
        let searcher = {
            let host = host.clone();
            thread::spawn(move || host.work(0, true))
        };
        host.push(1);
        host.push(2);
        searcher.join().unwrap();
        host.assert_nothing_waits_alone();
    });
}

/// With the real bed: here a lost wake is a deadlock, which loom reports.
#[test]
fn a_parked_worker_runs_what_is_pushed() {
    let info = ModelInfo {
        name: "idle::a_parked_worker_runs_what_is_pushed",
        threads: 2,
        operations: "push, push, wait for both | search and park till both have run",
        preemption_bound: Some(3),
    };
    check(info, || {
        let shared = Arc::new((Host::new(1, 2, true), Parker::new(), Parker::new()));
        let worker = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (host, parker, done) = &*shared;
                let mut is_searching = false;
                for _ in 0..2 {
                    let item = loop {
                        if let Some(item) = host.pop() {
                            break item;
                        }
                        host.idle.enter(0, std::mem::take(&mut is_searching));
                        // As in `Worker::park`, with one worker.
                        let is_woken = host.global.is_empty() && parker.park(None);
                        if !is_woken && host.idle.leave(0) == Left::Woken {
                            assert!(parker.park(None));
                        }
                        is_searching = true;
                    };
                    if std::mem::take(&mut is_searching) {
                        host.idle.stop_searching();
                    }
                    host.slots.take(item);
                    done.unpark();
                }
            })
        };
        let (host, parker, done) = &*shared;
        for item in 1..=2 {
            host.global.push(host.slots.put(item), &host.slots);
            if host.idle.choose(None).is_some() {
                parker.unpark();
            }
            assert!(done.park(None));
        }
        worker.join().unwrap();
        host.slots.assert_all_taken();
        assert_eq!(host.idle.counts(), (0, 0));
    });
}

#[test]
fn a_token_is_never_lost() {
    let info = ModelInfo {
        name: "idle::a_token_is_never_lost",
        threads: 3,
        operations: "park till both have written | write, unpark | write, unpark",
        preemption_bound: Some(3),
    };
    check(info, || {
        let shared = Arc::new((Parker::new(), [0, 1].map(|_| AtomicU32::new(0))));
        let wakers = [0, 1].map(|waker| {
            let shared = shared.clone();
            thread::spawn(move || {
                let (parker, notes) = &*shared;
                notes[waker].store(1, Relaxed);
                parker.unpark();
            })
        });
        let (parker, notes) = &*shared;
        // Of two tokens one may be left, for both unparks may come before the first park: but then the
        // first park shows both notes.
        while notes.iter().any(|note| note.load(Relaxed) == 0) {
            assert!(parker.park(None), "parked for nothing");
        }
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
    });
}

#[test]
fn a_sleeper_that_leaves_gets_the_token_meant_for_it() {
    let info = ModelInfo {
        name: "idle::a_sleeper_that_leaves_gets_the_token_meant_for_it",
        threads: 3,
        operations: "enter, park for no time, leave, enter, park | choose, unpark | choose, unpark",
        preemption_bound: Some(3),
    };
    check(info, || {
        let shared = Arc::new((Idle::new(1), Parker::new()));
        let wakers = [(), ()].map(|()| {
            let shared = shared.clone();
            thread::spawn(move || {
                let (idle, parker) = &*shared;
                let chosen = idle.choose(None);
                if chosen.is_some() {
                    parker.unpark();
                }
                chosen.is_some()
            })
        });
        let (idle, parker) = &*shared;
        let mut woken = 0;
        for _ in 0..2 {
            idle.enter(0, false);
            // The park's limit is over at once, or there was a token already.
            let has_token = parker.park(Some(std::time::Duration::ZERO));
            if has_token || idle.leave(0) == Left::Woken {
                assert!(has_token || parker.park(None));
                woken += 1;
            }
            idle.stop_searching();
        }
        let chosen: usize = wakers.into_iter().map(|waker| usize::from(waker.join().unwrap())).sum();
        assert_eq!((chosen, idle.counts()), (woken, (0, 0)), "chosen and woken differ");
        assert!(!parker.park(Some(std::time::Duration::ZERO)), "a token was left behind");
    });
}
