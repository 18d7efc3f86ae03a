//! A task's end: the handle hears of it, whole, whoever ends it; and never two do.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::task::{Wake, Waker};

use loom::sync::Arc;

use super::mailbox::{Process, Then};
use super::{ModelInfo, check};
use crate::process::slot::Bind;
use crate::sync::{AtomicWaker, Cell, thread};
use crate::task::header::Header;

/// The result lies in a cell that loom watches: a read beside a write fails the model.
struct Task {
    process: Process,
    header: Header,
    result: Cell<u32>,
    /// For the oracle, unseen by loom.
    is_freed: AtomicBool,
}

impl Task {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            process: Process::new(0),
            header: Header::new(0),
            result: Cell::new(0),
            is_freed: AtomicBool::new(false),
        })
    }

    fn finish(&self, result: u32) {
        // SAFETY: the runner, before `finish`; loom checks that nobody else is there.
        self.result.with_mut(|place| unsafe { *place = result });
        self.finish_with(|wake| self.header.finish(wake));
    }

    fn finish_with(&self, finish: impl FnOnce(&dyn Fn(&AtomicWaker)) -> bool) {
        let is_last = finish(&|joiner: &AtomicWaker| {
            joiner.wake();
            assert!(!self.is_freed.load(SeqCst), "touched after it was freed");
        });
        if is_last {
            self.free();
        }
    }

    fn leave(&self) {
        if self.header.leave() {
            self.free();
        }
    }

    fn free(&self) {
        // SAFETY: nobody else; loom checks.
        self.result.with_mut(|place| unsafe { *place = 0 });
        assert!(!self.is_freed.swap(true, SeqCst), "freed twice");
    }

    /// What a handle does in a poll. `Some`: the result.
    fn poll(&self, waker: &Waker, carefully: bool) -> Option<u32> {
        let is_done =
            if carefully { self.header.listen_for_end(waker) } else { self.header.listen_carelessly(waker) };
        // SAFETY: done, so the runner is through with it; loom checks.
        is_done.then(|| self.result.with(|place| unsafe { *place }))
    }
}

/// Counts the wakes; for the oracle, unseen by loom.
#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn a_handle_waits(info: ModelInfo, carefully: bool) {
    check(info, move || {
        let task = Task::new();
        let runner = {
            let task = task.clone();
            thread::spawn(move || task.finish(7))
        };
        let woken = std::sync::Arc::new(Woken::default());
        let result = task.poll(&Waker::from(woken.clone()), carefully);
        runner.join().unwrap();
        let was_woken = woken.0.load(SeqCst) > 0;
        assert!(result.is_some() || was_woken, "the handle waits in vain");
        assert_eq!(task.poll(Waker::noop(), true), Some(7));
        assert!(result.is_none_or(|result| result == 7));
    });
}

#[test]
fn a_result_is_whole_and_heard_of() {
    let info = ModelInfo {
        name: "task::a_result_is_whole_and_heard_of",
        threads: 2,
        operations: "write, finish | listen, read",
        preemption_bound: None,
    };
    a_handle_waits(info, true);
}

/// Negative control.
#[test]
#[should_panic(expected = "the handle waits in vain")]
fn without_a_second_look_an_end_is_missed() {
    let info = ModelInfo {
        name: "task::without_a_second_look_an_end_is_missed",
        threads: 2,
        operations: "write, finish | look, listen, read",
        preemption_bound: None,
    };
    a_handle_waits(info, false);
}

fn a_handle_goes(info: ModelInfo, waits: bool, finish: fn(&Task)) {
    check(info, move || {
        let task = Task::new();
        let runner = {
            let task = task.clone();
            thread::spawn(move || {
                // SAFETY: the runner, before the end; loom checks that nobody else is there.
                task.result.with_mut(|place| unsafe { *place = 7 });
                finish(&task);
            })
        };
        if waits && task.poll(Waker::noop(), true).is_none() {
            assert!(task.poll(Waker::noop(), true).is_none_or(|result| result == 7));
        }
        task.leave();
        runner.join().unwrap();
        assert!(task.is_freed.load(SeqCst), "nobody freed it");
    });
}

#[test]
fn who_leaves_last_frees() {
    for waits in [false, true] {
        let info = ModelInfo {
            name: "task::who_leaves_last_frees",
            threads: 2,
            operations: "write, finish | listen twice or not at all, leave",
            preemption_bound: None,
        };
        a_handle_goes(info, waits, |task| {
            if task.header.is_abandoned() {
                task.free();
            } else {
                task.finish_with(|wake| task.header.finish(wake));
            }
        });
    }
}

/// Negative control.
#[test]
#[should_panic(expected = "touched after it was freed")]
fn without_the_runners_bit_a_handle_frees_too_early() {
    let info = ModelInfo {
        name: "task::without_the_runners_bit_a_handle_frees_too_early",
        threads: 2,
        operations: "write, finish in one step, wake | listen twice, leave",
        preemption_bound: None,
    };
    a_handle_goes(info, true, |task| task.finish_with(|wake| task.header.finish_carelessly(wake)));
}

/// The task waits; one thread wakes it, another aborts it; the runner ends it either way, once.
#[test]
fn an_abort_meets_a_wake_and_one_end_comes() {
    let info = ModelInfo {
        name: "task::an_abort_meets_a_wake_and_one_end_comes",
        threads: 3,
        operations: "turns till the end | wake | abort, turn",
        preemption_bound: Some(3),
    };
    check(info, || {
        let task = Task::new();
        let life = task.process.begin(Some(crate::process::slot::Wait::Blocked));
        let turn = |task: &Task| {
            let polled = std::cell::Cell::new(false);
            if task.process.turn_with(|| {
                polled.set(true);
                Then::End
            }) {
                task.finish(if polled.get() { 1 } else { 2 });
            }
        };
        let waker = {
            let task = task.clone();
            thread::spawn(move || {
                // Refused when the abort was quicker.
                let _ = task.process.wake(Bind::Life(life));
                turn(&task);
            })
        };
        let runner = {
            let task = task.clone();
            thread::spawn(move || turn(&task))
        };
        let _ = task.process.kill(Bind::Life(life));
        turn(&task);
        waker.join().unwrap();
        runner.join().unwrap();
        turn(&task);
        assert!(matches!(task.poll(Waker::noop(), true), Some(1 | 2)), "ended by a poll or by the abort");
    });
}
