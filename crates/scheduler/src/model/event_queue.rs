//! The mailbox: first in first out for each sender, whatever the number of turns that it takes.

use loom::sync::Arc;

use super::mailbox::{Process, assert_order};
use super::{ModelInfo, check};
use crate::process::slot::{Bind, Wait};
use crate::sync::thread;

/// Two senders of two messages each, while turns turn round and deliver so many at most.
fn order_is_kept(name: &'static str, operations: &'static str, turn_round_max: u32, events_max: usize) {
    let info = ModelInfo { name, threads: 3, operations, preemption_bound: Some(3) };
    check(info, move || {
        let process = Arc::new(Process::with_sizes(4, turn_round_max, events_max));
        let life = process.begin(Some(Wait::Idle));
        let senders = [[1, 2], [3, 4]].map(|cells| {
            let process = process.clone();
            thread::spawn(move || {
                for cell in cells {
                    process.send(Bind::Life(life), cell).unwrap();
                }
            })
        });
        for _ in 0..3 {
            process.turn();
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        process.run_till_quiet();
        let delivered = process.delivered();
        assert_eq!(delivered.len(), 4, "delivered: {delivered:?}");
        assert_order(&delivered, 1, 2);
        assert_order(&delivered, 3, 4);
        process.mail.assert_all_read();
    });
}

#[test]
fn a_turn_round_over_turns_keeps_order() {
    let operations = "three turns that turn round one message each | send, send | send, send";
    order_is_kept("event_queue::a_turn_round_over_turns_keeps_order", operations, 1, usize::MAX);
}

#[test]
fn a_drain_over_turns_keeps_order() {
    let operations = "three turns that take one message each | send, send | send, send";
    order_is_kept("event_queue::a_drain_over_turns_keeps_order", operations, u32::MAX, 1);
}

/// Negative control: a turn that takes new messages while older ones wait puts them in front.
#[test]
#[should_panic(expected = "one sender's messages changed places")]
fn a_take_beside_a_rest_changes_places() {
    let info = ModelInfo {
        name: "event_queue::a_take_beside_a_rest_changes_places",
        threads: 2,
        operations: "turn, turn that takes all the same | send, send, send",
        preemption_bound: None,
    };
    check(info, || {
        let process = Arc::new(Process::with_sizes(3, u32::MAX, 1));
        let life = process.begin(Some(Wait::Idle));
        let sender = {
            let process = process.clone();
            thread::spawn(move || {
                for cell in [1, 2, 3] {
                    process.send(Bind::Life(life), cell).unwrap();
                }
            })
        };
        process.turn();
        process.forget_to_keep();
        process.turn();
        sender.join().unwrap();
        process.run_till_quiet();
        assert_order(&process.delivered(), 2, 3);
    });
}
