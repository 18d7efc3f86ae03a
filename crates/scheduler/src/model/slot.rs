//! The word of a process: no message and no wake is lost, nobody is queued twice, lives stay apart.

use loom::sync::Arc;

use super::mailbox::{Process, Then, assert_order};
use super::{ModelInfo, check};
use crate::process::slot::{Bind, GENERATION_MAX, Refused, Wait};
use crate::sync::{AtomicU32, Mutex, Relaxed, thread};

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

/// Two threads each make the process ready and run it. The one may find the word as it loaded it though
/// the process has run meanwhile: it must bring along what that turn left, for a worker looks at the
/// inbox and the cold part before its claim.
fn the_same_word_again(name: &'static str, operations: &'static str, by_wake: bool) {
    let info = ModelInfo { name, threads: 2, operations, preemption_bound: Some(3) };
    check(info, move || {
        let process = Arc::new(Process::new(2));
        let life = process.begin(Some(Wait::Idle));
        let make_ready = move |process: &Process, cell| {
            if by_wake { process.wake(Bind::Life(life)) } else { process.send(Bind::Life(life), cell) }
        };
        let other = {
            let process = process.clone();
            thread::spawn(move || {
                make_ready(&process, 2).unwrap();
                process.turn();
            })
        };
        make_ready(&process, 1).unwrap();
        process.turn();
        other.join().unwrap();
        process.run_till_quiet();
    });
}

#[test]
fn a_sender_brings_the_last_turn_along() {
    let operations = "send, turn | send, turn, of an idle process";
    the_same_word_again("slot::a_sender_brings_the_last_turn_along", operations, false);
}

#[test]
fn a_waker_brings_the_last_turn_along() {
    let operations = "wake, turn | wake, turn, of an idle process";
    the_same_word_again("slot::a_waker_brings_the_last_turn_along", operations, true);
}

#[test]
fn a_wake_of_a_running_process_publishes() {
    let info = ModelInfo {
        name: "slot::a_wake_of_a_running_process_publishes",
        threads: 2,
        operations: "release, turn | note, wake, of a running process",
        preemption_bound: None,
    };
    check(info, || {
        let shared = Arc::new((Process::new(0), AtomicU32::new(0)));
        let life = shared.0.begin_running();
        let waker = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (process, note) = &*shared;
                note.store(1, Relaxed);
                process.wake(Bind::Life(life)).unwrap();
            })
        };
        let (process, note) = &*shared;
        process.follow(process.slot.release(Wait::Idle));
        process.turn_with(|| {
            assert_eq!(note.load(Relaxed), 1, "the turn that a wake asked for does not see why");
            Then::Wait
        });
        waker.join().unwrap();
        process.run_till_quiet();
    });
}

/// Two wakers note what they want and wake, as those of futures do; a turn does what is noted. `writes`: a
/// wake writes the word in every state.
fn wakers_note_and_wake(name: &'static str, writes: bool) {
    let info = ModelInfo {
        name,
        threads: 3,
        operations: "turn, turn | note, wake | note, wake, of an idle process",
        preemption_bound: Some(3),
    };
    check(info, move || {
        let shared = Arc::new((Process::new(0), [0, 1].map(|_| AtomicU32::new(0))));
        let life = shared.0.begin(Some(Wait::Idle));
        let wakers = [0, 1].map(|waker| {
            let shared = shared.clone();
            thread::spawn(move || {
                let (process, notes) = &*shared;
                notes[waker].store(1, Relaxed);
                if writes {
                    process.wake(Bind::Life(life)).unwrap();
                } else {
                    process.follow(process.slot.wake_by_look(Bind::Life(life)).unwrap());
                }
            })
        });
        let (process, notes) = &*shared;
        let turn = || {
            process.turn_with(|| {
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
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
        while turn() {}
        process.run_till_quiet();
        assert!(notes.iter().all(|note| note.load(Relaxed) == 2), "a wake was lost");
    });
}

#[test]
fn no_wake_is_lost() {
    wakers_note_and_wake("slot::no_wake_is_lost", true);
}

/// Negative control: a wake that finds the process `READY` and writes nothing publishes nothing.
#[test]
#[should_panic(expected = "a wake was lost")]
fn a_wake_that_writes_nothing_is_lost() {
    wakers_note_and_wake("slot::a_wake_that_writes_nothing_is_lost", false);
}

/// Negative control: who gives up the turn by a store instead of a CAS overwrites what came meanwhile.
#[test]
#[should_panic(expected = "a message was lost")]
fn a_release_by_a_store_loses_a_message() {
    let info = ModelInfo {
        name: "slot::a_release_by_a_store_loses_a_message",
        threads: 2,
        operations: "turn that ends in a store | send, to a ready process",
        preemption_bound: None,
    };
    check(info, || {
        let process = Arc::new(Process::new(1));
        let life = process.begin(None);
        let sender = {
            let process = process.clone();
            thread::spawn(move || process.send(Bind::Life(life), 1).unwrap())
        };
        assert!(process.take());
        let head = process.slot.claim(false).head();
        process.drop_list(head);
        if process.slot.word().head() == 0 {
            // The fault: between the look and the store is room for a message.
            process.slot.publish(life, Some(Wait::Idle));
        } else {
            process.follow(process.slot.release(Wait::Idle));
        }
        sender.join().unwrap();
        while process.turn() {}
        assert_eq!(process.delivered().len() + process.dropped().len(), 1, "a message was lost");
    });
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    Ready,
    Running,
    Waiting,
}

fn a_kill_takes_effect(name: &'static str, start: Start) {
    let info = ModelInfo {
        name,
        threads: 3,
        operations: "turn, turn | send, kill | send",
        preemption_bound: Some(3),
    };
    check(info, move || {
        let process = Arc::new(Process::new(2));
        let life = match start {
            Start::Ready => process.begin(None),
            Start::Running => process.begin_running(),
            Start::Waiting => process.begin(Some(Wait::Blocked)),
        };
        let killer = {
            let process = process.clone();
            thread::spawn(move || {
                process.send(Bind::Life(life), 1).unwrap();
                process.kill(Bind::Life(life)).unwrap();
            })
        };
        let sender = {
            let process = process.clone();
            thread::spawn(move || {
                let sent = process.send(Bind::Life(life), 2);
                assert!(matches!(sent, Ok(()) | Err(Refused::Closed)), "refused as {sent:?}");
            })
        };
        if start == Start::Running {
            process.follow(process.slot.release(Wait::Idle));
        }
        process.turn();
        process.turn();
        killer.join().unwrap();
        sender.join().unwrap();
        process.run_till_quiet();
        assert_eq!(process.ends(), 1, "a kill had no effect");
        assert!(process.slot.word().is_free());
        process.mail.assert_all_read();
    });
}

#[test]
fn a_kill_while_ready_takes_effect() {
    a_kill_takes_effect("slot::a_kill_while_ready_takes_effect", Start::Ready);
}

#[test]
fn a_kill_while_running_takes_effect() {
    a_kill_takes_effect("slot::a_kill_while_running_takes_effect", Start::Running);
}

#[test]
fn a_kill_while_waiting_takes_effect() {
    a_kill_takes_effect("slot::a_kill_while_waiting_takes_effect", Start::Waiting);
}

#[test]
fn a_message_is_delivered_or_refused() {
    let info = ModelInfo {
        name: "slot::a_message_is_delivered_or_refused",
        threads: 3,
        operations: "turn that ends the process | send, send | send, wake",
        preemption_bound: Some(3),
    };
    check(info, || {
        let process = Arc::new(Process::new(3));
        let life = process.begin(None);
        let senders = [&[1, 2][..], &[3]].map(|cells| {
            let process = process.clone();
            thread::spawn(move || {
                let refused = cells
                    .iter()
                    .filter(|&&cell| match process.send(Bind::Life(life), cell) {
                        Ok(()) => false,
                        Err(refused) => {
                            assert_eq!(refused, Refused::Closed);
                            true
                        }
                    })
                    .copied()
                    .collect::<Vec<_>>();
                if cells.len() == 1 {
                    let _ = process.wake(Bind::Life(life));
                }
                refused
            })
        });
        process.turn_with(|| Then::End);
        let mut all: Vec<u32> = senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect();
        assert!(!process.take(), "a process that has ended was queued");
        assert_order(&process.delivered(), 1, 2);
        all.extend(process.delivered());
        all.extend(process.dropped());
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3], "a message was lost, or delivered and refused");
        process.mail.assert_all_read();
    });
}

#[test]
fn a_stale_sender_changes_nothing() {
    let info = ModelInfo {
        name: "slot::a_stale_sender_changes_nothing",
        threads: 3,
        operations: "end, begin a new life, turn | send to the old | wake and kill the old; generations narrow",
        preemption_bound: Some(3),
    };
    check(info, || {
        let process = Arc::new(Process::new(2));
        process.slot.skip_to(GENERATION_MAX - 1);
        let old = process.begin_running();
        let sender = {
            let process = process.clone();
            thread::spawn(move || process.send(Bind::Life(old), 1))
        };
        let killer = {
            let process = process.clone();
            thread::spawn(move || {
                let _ = process.wake(Bind::Life(old));
                let _ = process.kill(Bind::Exactly(old));
            })
        };
        process.end([0; 3]);
        assert!(!process.take(), "a running process was queued");
        let new = process.begin(Some(Wait::Idle));
        assert_eq!((old, new), (GENERATION_MAX - 1, GENERATION_MAX));
        assert_eq!(process.slot.word().head(), 0, "a stale sender's message reached the next life");
        process.send(Bind::Life(new), 2).unwrap();
        assert!(process.turn());
        let sent = sender.join().unwrap();
        killer.join().unwrap();
        process.run_till_quiet();
        let word = process.slot.word();
        assert!(!word.is_free() && !word.is_killed(), "a stale kill reached the next life");
        assert_eq!(process.delivered(), [2], "a stale sender's message reached the next life");
        match sent {
            Ok(()) => assert_eq!(process.dropped(), [1]),
            Err(refused) => assert_eq!((refused, process.dropped().len()), (Refused::Closed, 0)),
        }
        // The generations are used up: the slot may not be used again, and nobody gets in.
        process.kill(Bind::Life(new)).unwrap();
        process.run_till_quiet();
        assert!(process.slot.word().is_free());
        assert_eq!(process.send(Bind::Life(new), 2), Err(Refused::Closed));
        process.mail.assert_all_read();
    });
}

/// Negative control: the generation in one word, the mailbox in another.
mod two_words {
    use crate::sync::{Acquire, AtomicU32, Relaxed, Release};

    pub(super) struct TwoWords {
        pub(super) generation: AtomicU32,
        pub(super) newest: AtomicU32,
    }

    impl TwoWords {
        pub(super) fn new() -> Self {
            Self { generation: AtomicU32::new(0), newest: AtomicU32::new(0) }
        }

        pub(super) fn push(&self, generation: u32, cell: u32) -> bool {
            if self.generation.load(Acquire) != generation {
                return false;
            }
            // The fault: here the slot may be closed, reused and reset.
            self.newest.compare_exchange(0, cell, Release, Relaxed).is_ok()
        }

        pub(super) fn take(&self) -> u32 {
            self.newest.swap(0, Acquire)
        }
    }
}

#[test]
#[should_panic(expected = "a stale sender's message reached the next life")]
fn two_words_admit_a_stale_sender() {
    let info = ModelInfo {
        name: "slot::two_words_admit_a_stale_sender",
        threads: 2,
        operations: "end, begin a new life, take | send to the old",
        preemption_bound: None,
    };
    check(info, || {
        let slot = Arc::new(two_words::TwoWords::new());
        let sender = {
            let slot = slot.clone();
            thread::spawn(move || slot.push(0, 1))
        };
        slot.generation.store(1, crate::sync::Release);
        slot.take();
        sender.join().unwrap();
        assert_eq!(slot.take(), 0, "a stale sender's message reached the next life");
    });
}

#[test]
fn a_reset_parts_the_generations() {
    let info = ModelInfo {
        name: "slot::a_reset_parts_the_generations",
        threads: 3,
        operations: "reset, reset (used up), release, turn | send as bound | send by PID, wake by PID",
        preemption_bound: Some(3),
    };
    check(info, || {
        let process = Arc::new(Process::new(2));
        let life = process.begin_running();
        let bound = {
            let process = process.clone();
            thread::spawn(move || process.send(Bind::Exactly(life), 1))
        };
        let by_pid = {
            let process = process.clone();
            thread::spawn(move || {
                process.send(Bind::Life(life), 2).unwrap();
                process.wake(Bind::Life(life)).unwrap();
            })
        };
        let old = process.slot.reset(life + 1).expect("one generation is left");
        process.drop_list(old.head());
        assert!(process.slot.reset(life + 1).is_none(), "generations wrapped");
        process.follow(process.slot.release(Wait::Idle));
        process.turn();
        let sent = bound.join().unwrap();
        by_pid.join().unwrap();
        process.run_till_quiet();
        match sent {
            Ok(()) => assert!(process.dropped().contains(&1), "a stale producer's message was delivered"),
            Err(refused) => assert_eq!(refused, Refused::Stale),
        }
        assert_eq!(process.slot.word().generation(), life + 1);
        process.mail.assert_all_read();
    });
}

/// `held`: the new life is published as one that its spawner still holds.
fn a_new_life_is_seen(name: &'static str, held: bool) {
    let info = ModelInfo {
        name,
        threads: 3,
        operations: "end, begin with another host | look | send by the PID to come",
        preemption_bound: Some(3),
    };
    check(info, move || {
        let process = Arc::new(Process::new(1));
        process.slot.host.store(1, Relaxed);
        let old = process.begin_running();
        let onlooker = {
            let process = process.clone();
            thread::spawn(move || {
                let slot = &process.slot;
                let word = slot.word();
                if !word.is_free() {
                    // What is seen is of that life or of a later one.
                    let lives = u32::from(slot.host.load(Relaxed)) - 1;
                    assert!(lives >= word.generation(), "a life was seen with the last one's host");
                    assert!(slot.first() >= word.generation(), "a life was seen with the last one's number");
                    let table = slot.table.load(Relaxed).addr() as u32;
                    assert!(table >= word.generation(), "a life was seen with the last one's table");
                }
            })
        };
        let sender = {
            let process = process.clone();
            thread::spawn(move || {
                let sent = process.send(Bind::Life(old + 1), 1);
                if sent.is_ok() {
                    let host = process.slot.host.load(Relaxed);
                    assert_eq!(host, 2, "a life was seen with the last one's host");
                }
                sent
            })
        };
        process.end([0; 3]);
        let slot = &process.slot;
        slot.host.store(2, Relaxed);
        slot.table.store(std::ptr::without_provenance_mut(1), Relaxed);
        if held {
            process.begin_running();
        } else {
            process.begin(Some(Wait::Idle));
        }
        onlooker.join().unwrap();
        let sent = sender.join().unwrap();
        assert!(matches!(sent, Ok(()) | Err(Refused::Unknown)), "refused as {sent:?}");
        if held {
            process.slot.requeue();
            process.queue();
        }
        process.run_till_quiet();
        process.mail.assert_all_read();
    });
}

#[test]
fn a_life_is_seen_whole() {
    a_new_life_is_seen("slot::a_life_is_seen_whole", false);
}

#[test]
fn a_held_life_is_seen_whole() {
    a_new_life_is_seen("slot::a_held_life_is_seen_whole", true);
}

#[test]
fn who_is_in_a_table_hears_of_the_end() {
    let info = ModelInfo {
        name: "slot::who_is_in_a_table_hears_of_the_end",
        threads: 3,
        operations: "end, look into the table if watched | watch and enter | watch and enter",
        preemption_bound: Some(3),
    };
    check(info, || {
        let shared = Arc::new((Process::new(0), Mutex::new(0)));
        let life = shared.0.begin_running();
        let watchers = [(), ()].map(|()| {
            let shared = shared.clone();
            thread::spawn(move || {
                let (process, table) = &*shared;
                let mut table = table.lock();
                let watched = process.slot.watch(Bind::Life(life));
                if watched.is_ok() {
                    *table += 1;
                }
            })
        });
        let (process, table) = &*shared;
        if process.slot.close().is_watched() {
            *table.lock() = 0;
        }
        watchers.into_iter().for_each(|watcher| watcher.join().unwrap());
        assert_eq!(*table.lock(), 0, "an entry was left behind");
    });
}
