//! The word of a process: no message and no wake is lost, nobody is queued twice, lives stay apart.

use loom::sync::Arc;

use super::mailbox::{Process, Then, assert_order};
use super::{ModelInfo, check};
use crate::process::event_queue::Cells;
use crate::process::slot::{Bind, GENERATION_MAX, Refused, Slot, Wait};
use crate::sync::{Mutex, Relaxed, thread};

#[test]
fn no_message_is_lost_or_doubled() {
    let info = ModelInfo {
        name: "slot::no_message_is_lost_or_doubled",
        threads: 3,
        operations: "turn, turn | send, send | send, to an idle process",
        preemption_bound: Some(3),
    };
    check(info, || {
        let process = Arc::new(Process::new(3));
        let life = process.begin(Some(Wait::Idle));
        let senders = [&[1, 2][..], &[3]].map(|cells| {
            let process = process.clone();
            thread::spawn(move || {
                for &cell in cells {
                    process.send(Bind::Life(life), cell).unwrap();
                }
            })
        });
        process.turn();
        process.turn();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        process.run_till_quiet();
        assert_order(&process.delivered(), 1, 2);
        process.mail.assert_all_read();
    });
}

#[test]
fn the_body_goes_from_runner_to_runner() {
    let info = ModelInfo {
        name: "slot::the_body_goes_from_runner_to_runner",
        threads: 3,
        operations: "turn, turn | turn | send, send, to a ready process that takes one message a turn",
        preemption_bound: Some(3),
    };
    check(info, || {
        let process = Arc::new(Process::with_sizes(2, u32::MAX, 1));
        let life = process.begin(None);
        let worker = {
            let process = process.clone();
            thread::spawn(move || {
                process.turn();
            })
        };
        let sender = {
            let process = process.clone();
            thread::spawn(move || {
                for cell in [1, 2] {
                    process.send(Bind::Life(life), cell).unwrap();
                }
            })
        };
        process.turn();
        process.turn();
        worker.join().unwrap();
        sender.join().unwrap();
        process.run_till_quiet();
        assert_eq!(process.delivered(), [1, 2]);
    });
}

/// Two wakers note what they want and wake; a turn does what is noted. `locked`: the notes lie behind a
/// lock, as those of a future's waker do.
fn wakers_note_and_wake(name: &'static str, locked: bool) {
    let info = ModelInfo {
        name,
        threads: 3,
        operations: "turn, turn | note, wake | note, wake, of an idle process",
        preemption_bound: Some(3),
    };
    check(info, move || {
        let shared = Arc::new((Process::new(0), Mutex::new(()), [0, 1].map(|_| crate::sync::AtomicU32::new(0))));
        let life = shared.0.begin(Some(Wait::Idle));
        let wakers = [0, 1].map(|waker| {
            let shared = shared.clone();
            thread::spawn(move || {
                let (process, lock, notes) = &*shared;
                let guard = locked.then(|| lock.lock());
                notes[waker].store(1, Relaxed);
                drop(guard);
                process.wake(Bind::Life(life)).unwrap();
            })
        });
        let (process, lock, notes) = &*shared;
        let turn = || {
            process.turn_with(|| {
                let _guard = locked.then(|| lock.lock());
                for note in notes {
                    if note.load(Relaxed) == 1 {
                        note.store(2, Relaxed);
                    }
                }
                Then::Wait
            })
        };
        turn();
        turn();
        // What a wake owes must not hang on what a join brings along: the word and the queue decide.
        while !wakers.iter().all(|_| true) {}
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
        while turn() {}
        process.run_till_quiet();
        assert!(notes.iter().all(|note| note.load(Relaxed) == 2), "a wake was lost");
    });
}
