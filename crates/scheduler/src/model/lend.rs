//! Spare workers: nothing is lost, doubled or left alone at the moments of lending, handing over and recall.

use std::time::Duration;

use loom::sync::Arc;

use super::{ModelInfo, check};
use crate::queues::deque::Deque;
use crate::queues::global::Global;
use crate::queues::inject::Inject;
use crate::queues::next::NextPlace;
use crate::queues::testing::Slots;
use crate::queues::{NONE, STEAL_MAX, Steal};
use crate::sync::{AtomicU64, Relaxed, Release, thread};
use crate::worker::idle::{Idle, Parker};
use crate::worker::spare::Absence;
use crate::worker::watch::Watch;

const SPARE: u16 = 1;

/// A worker blocks by its own word just when somebody pushes to its inject queue. The monitor is up, and will
/// not look again by itself: if nobody calls it though it is needed, work waits alone (and with its own thread
/// it is a deadlock, which loom reports).
fn a_pusher_meets_a_blocking_step(info: ModelInfo, announces: bool) {
    struct Host {
        idle: Idle,
        inject: Inject<4>,
        slots: Slots,
        watch: Watch,
        absence: Absence,
        /// Where the monitor waits for a call; in the program that is the watch's own bed.
        called: Parker,
    }
    impl Host {
        /// As `Spares::lend`.
        fn lend(&self) {
            self.idle.join();
            self.absence.lend(SPARE);
        }
        /// As `Looks::relieve`.
        fn look(&self) {
            if !self.inject.is_empty() && self.absence.stand_in().is_none() {
                assert!(self.absence.is_away(7), "it cannot know that the step blocks");
                self.lend();
            }
        }
    }
    check(info, move || {
        let host = Arc::new(Host {
            idle: Idle::new(1),
            inject: Inject::new(),
            slots: Slots::new(1),
            watch: Watch::new(),
            absence: Absence::new(),
            called: Parker::new(),
        });
        let pusher = {
            let host = host.clone();
            thread::spawn(move || {
                // As `route::queue_from_outside`.
                host.inject.push(host.slots.put(1), &host.slots).unwrap();
                if host.idle.choose(None).is_none() && !host.watch.is_called() {
                    host.watch.ensure_awake();
                    host.called.unpark();
                }
            })
        };
        // Without an announcement it may never be called: then it looks at the end, if it was.
        let monitor = announces.then(|| {
            let host = host.clone();
            thread::spawn(move || {
                host.called.park(None);
                host.look();
            })
        });
        // As `Worker::go_away`.
        host.absence.go_away(7);
        if announces {
            host.watch.announce();
        }
        if !host.inject.is_empty() && host.idle.choose(None).is_none() && host.idle.counts().1 == 0 {
            host.lend();
            // The monitor has nothing to do any more.
            host.called.unpark();
        }
        pusher.join().unwrap();
        match monitor {
            Some(monitor) => monitor.join().unwrap(),
            None if host.called.park(Some(Duration::ZERO)) => host.look(),
            None => {}
        }
        assert_eq!(host.absence.stand_in(), Some(SPARE), "work waits alone");
        host.inject.take_all(&host.slots, |item| host.slots.take(item));
        host.slots.assert_all_taken();
    });
}

#[test]
fn nobody_is_forgotten_behind_a_blocking_step() {
    let info = ModelInfo {
        name: "lend::nobody_is_forgotten_behind_a_blocking_step",
        threads: 3,
        operations: "go away, announce, look, hand over | push, choose, call the monitor | wait, look, lend",
        preemption_bound: Some(3),
    };
    a_pusher_meets_a_blocking_step(info, true);
}

/// Negative control: nobody says that the monitor may be called.
#[test]
#[should_panic(expected = "work waits alone")]
fn without_a_word_somebody_is_forgotten() {
    let info = ModelInfo {
        name: "lend::without_a_word_somebody_is_forgotten",
        threads: 2,
        operations: "go away, look, hand over | push, choose, call the monitor",
        preemption_bound: Some(3),
    };
    a_pusher_meets_a_blocking_step(info, false);
}

/// The monitor lends just when the step ends and its worker goes to sleep.
fn a_lender_meets_the_end_of_a_step(info: ModelInfo, looks_after_entering: bool) {
    check(info, move || {
        let shared = Arc::new((Idle::new(1), Absence::new(), AtomicU64::new(7)));
        let monitor = {
            let shared = shared.clone();
            thread::spawn(move || {
                // As `Spares::lend`.
                let (_, absence, turn) = &*shared;
                if absence.lend(SPARE) && turn.load(Relaxed) != 7 {
                    absence.take_back(SPARE);
                }
            })
        };
        let (idle, absence, turn) = &*shared;
        // As `Worker::pick` and `Worker::park`.
        turn.store(8, Release);
        if !looks_after_entering {
            absence.recall();
        }
        idle.enter(0, false);
        if looks_after_entering {
            absence.recall();
        }
        monitor.join().unwrap();
        assert_eq!(absence.stand_in(), None, "a stand-in is forgotten");
    });
}

#[test]
fn no_stand_in_is_forgotten() {
    let info = ModelInfo {
        name: "lend::no_stand_in_is_forgotten",
        threads: 2,
        operations: "end the turn, enter the list, look | lend, look at the turn, take back",
        preemption_bound: None,
    };
    a_lender_meets_the_end_of_a_step(info, true);
}

/// Negative control: a worker that looks for a stand-in before its fence.
#[test]
#[should_panic(expected = "a stand-in is forgotten")]
fn without_a_look_after_the_fence_a_stand_in_is_forgotten() {
    let info = ModelInfo {
        name: "lend::without_a_look_after_the_fence_a_stand_in_is_forgotten",
        threads: 2,
        operations: "end the turn, look, enter the list | lend, look at the turn, take back",
        preemption_bound: None,
    };
    a_lender_meets_the_end_of_a_step(info, false);
}

/// What two workers have, and one of them lacks: an end of its step.
struct Pair {
    absence: Absence,
    /// The turn of the absent one, and the turn in which it was judged stuck.
    turn: AtomicU64,
    stuck_at: AtomicU64,
    next: NextPlace,
    deques: [Deque<4>; 2],
    global: Global,
    slots: Slots,
}

impl Pair {
    fn new(items: u32) -> Arc<Self> {
        Arc::new(Self {
            absence: Absence::new(),
            turn: AtomicU64::new(7),
            stuck_at: AtomicU64::new(0),
            next: NextPlace::new(),
            deques: [Deque::new(), Deque::new()],
            global: Global::new(),
            slots: Slots::new(items),
        })
    }

    /// By thieves' ways, as `Worker::steal_from`.
    fn steal_from_absent(&self, mut take: impl FnMut(u32)) {
        let mut loot = [NONE; STEAL_MAX];
        if let Steal::Taken(count) = self.deques[0].steal(&mut loot) {
            loot[..count].iter().for_each(|&item| take(item));
        }
        let is_stuck = || self.stuck_at.load(Relaxed) == self.turn.load(Relaxed);
        self.next.steal(is_stuck).into_iter().for_each(take);
    }

    /// Whatever is left, when all threads have ended: each item ran once.
    fn assert_each_ran_once(&self) {
        let rest = |deque: &Deque<4>| {
            while let Some(item) = deque.take_oldest() {
                self.slots.take(item);
            }
        };
        self.deques.iter().for_each(rest);
        self.next.take().into_iter().for_each(|item| self.slots.take(item));
        self.global.pop_batch(usize::MAX, &self.slots, |item| self.slots.take(item));
        self.slots.assert_all_taken();
    }
}

#[test]
fn what_a_stand_in_takes_runs_once() {
    let info = ModelInfo {
        name: "lend::what_a_stand_in_takes_runs_once",
        threads: 2,
        operations: "wake, wake, end the turn, recall, pick | lend, steal, run one, hand in what is left",
        preemption_bound: Some(3),
    };
    check(info, || {
        let pair = Pair::new(3);
        // SAFETY: the only handle of the absent one's deque.
        let owner = unsafe { pair.deques[0].owner() };
        owner.push(pair.slots.put(1)).unwrap();
        let spare = {
            let pair = pair.clone();
            thread::spawn(move || {
                // The monitor judges, and lends.
                pair.stuck_at.store(7, Relaxed);
                if pair.absence.lend(SPARE) && pair.turn.load(Relaxed) != 7 {
                    pair.absence.take_back(SPARE);
                }
                // SAFETY: the only handle of the spare's deque.
                let own = unsafe { pair.deques[1].owner() };
                if pair.absence.is_stood_in_by(SPARE) {
                    pair.steal_from_absent(|item| own.push(item).unwrap());
                    own.pop().into_iter().for_each(|item| pair.slots.take(item));
                }
                // As `Worker::note_recall`.
                pair.global.push_chain(std::iter::from_fn(|| pair.deques[1].take_oldest()), &pair.slots);
            })
        };
        // The step wakes one that displaces another.
        assert_eq!(pair.next.put(pair.slots.put(2)), None);
        if let Some(displaced) = pair.next.put(pair.slots.put(3)) {
            owner.push(displaced).unwrap();
        }
        // It ends; the worker goes on.
        pair.turn.store(8, Release);
        pair.absence.recall();
        if let Some(item) = pair.next.take().or_else(|| owner.pop()) {
            pair.slots.take(item);
        }
        spare.join().unwrap();
        pair.assert_each_ran_once();
    });
}

/// Negative control: retake by force. The stand-in takes over the deque itself while its owner runs a step
/// that wakes somebody.
#[test]
#[should_panic(expected = "was lost")]
fn a_deque_taken_over_loses_work() {
    let info = ModelInfo {
        name: "lend::a_deque_taken_over_loses_work",
        threads: 2,
        operations: "wake | take over, wake",
        preemption_bound: None,
    };
    check(info, || {
        let pair = Pair::new(2);
        // SAFETY: there is a second handle: what is wrong here.
        let owner = unsafe { pair.deques[0].owner() };
        let spare = {
            let pair = pair.clone();
            thread::spawn(move || {
                if pair.absence.lend(SPARE) {
                    // SAFETY: as above.
                    let owner = unsafe { pair.deques[0].owner() };
                    owner.push(pair.slots.put(2)).unwrap();
                }
            })
        };
        owner.push(pair.slots.put(1)).unwrap();
        spare.join().unwrap();
        pair.assert_each_ran_once();
    });
}
