//! Budgets: one end of a topic for each generation, exact counts, lives that stay apart.

use loom::sync::Arc;

use super::mailbox::{Process, Then};
use super::{ModelInfo, check};
use crate::process::Topic;
use crate::process::budget::{Accounts, Admit, Admitted, Budget};
use crate::process::slot::{Bind, Gate, Refused, Wait};
use crate::queues::Item;
use crate::sync::thread;

const NUMBER: u32 = 1;
const TOPIC: Topic = Topic::DEFAULT;

struct Shared {
    accounts: Accounts,
    process: Process,
    /// For the oracle: what was put into each cell.
    admitted: std::sync::Mutex<Vec<Option<Admit>>>,
}

impl Shared {
    fn new(messages: u32) -> Arc<Self> {
        Arc::new(Self {
            accounts: Accounts::new(1),
            process: Process::new(messages),
            admitted: std::sync::Mutex::new(vec![None; messages as usize + 1]),
        })
    }

    fn admitted(&self, cell: Item) -> Option<Admit> {
        self.admitted.lock().unwrap()[cell as usize]
    }

    /// Sends one byte on the topic, as `budget::push_bound` does.
    fn send(&self, bind: Bind, cell: Item, budget: Option<Budget>) -> Result<Admitted, Refused> {
        let process = &self.process;
        if budget.is_none() {
            process.mail.write(cell);
            match process.slot.push(&process.mail, bind, cell, Gate::Closed) {
                Ok(after) => {
                    self.admitted.lock().unwrap()[cell as usize] = Some(Admit::Plain);
                    process.follow(after);
                    return Ok(Admitted::Accepted(after));
                }
                Err(refused) => {
                    process.mail.read(cell);
                    if refused != Refused::Overflow {
                        return Err(refused);
                    }
                }
            }
        }
        let make = |admit| {
            self.admitted.lock().unwrap()[cell as usize] = Some(admit);
            process.mail.write(cell)
        };
        let unmake = |cell| {
            self.admitted.lock().unwrap()[cell as usize] = None;
            process.mail.read(cell);
        };
        let slot = &process.slot;
        let pushed = self.accounts.push(&process.mail, NUMBER, slot, bind, TOPIC, budget, 1, make, unmake);
        if let Ok(Admitted::Accepted(after) | Admitted::Dropped(after)) = pushed {
            process.follow(after);
        }
        pushed
    }

    /// The consumer drops a message: its place is free again.
    fn release(&self, cell: Item) {
        if let Some(Admit::Reserved(generation)) = self.admitted(cell) {
            self.accounts.release(NUMBER, generation, TOPIC, 1);
        }
    }

    /// Messages of one generation, in order: an end of the topic is the last on it.
    fn assert_ends_last(&self, taken: &[Item]) {
        if let Some(end) = taken.iter().position(|&cell| self.admitted(cell) == Some(Admit::Overflow)) {
            assert_eq!(end + 1, taken.len(), "something stands behind the end of its topic: {taken:?}");
        }
    }

    /// The account of the topic is that of `held`, messages delivered and not released.
    fn assert_exact(&self, held: &[Item]) {
        let generation = self.process.slot.word().generation();
        let reserved =
            held.iter().filter(|&&cell| self.admitted(cell) == Some(Admit::Reserved(generation))).count();
        let counted = self.accounts.topics(NUMBER).first().map_or(0, |(_, state)| state.items);
        assert_eq!(counted, reserved, "the count is wrong");
    }
}

#[test]
fn two_overflows_meet_a_release_and_a_reset() {
    let info = ModelInfo {
        name: "budget::two_overflows_meet_a_release_and_a_reset",
        threads: 3,
        operations: "turn, release 1, reset, wait | send | send, all with a budget of 1, of which 1 is taken",
        preemption_bound: Some(3),
    };
    check(info, || {
        let shared = Shared::new(3);
        let budget = Some(Budget::items(1));
        let life = shared.process.begin(Some(Wait::Idle));
        assert!(matches!(shared.send(Bind::Life(life), 1, budget), Ok(Admitted::Accepted(_))));
        let senders = [2, 3].map(|cell| {
            let shared = shared.clone();
            thread::spawn(move || {
                let pushed = shared.send(Bind::Life(life), cell, budget);
                matches!(pushed, Ok(Admitted::Dropped(_)))
            })
        });
        let process = &shared.process;
        let reset = || {
            let before = process.delivered().len();
            shared.release(1);
            let old = shared.accounts.reset(NUMBER, &process.slot, u32::MAX).unwrap();
            process.drop_list(old.head());
            // An old place given back again, late: it is of a generation that is over.
            shared.release(1);
            assert_eq!(process.dropped().iter().filter(|&&cell| cell == 1).count(), 0);
            shared.assert_ends_last(&process.delivered()[..before]);
            Then::Wait
        };
        process.turn_with(reset);
        let old = process.delivered().len();
        let dropped: usize = senders.into_iter().map(|sender| usize::from(sender.join().unwrap())).sum();
        process.run_till_quiet();
        let delivered = process.delivered();
        shared.assert_ends_last(&delivered[old..]);
        let new_end = [2, 3]
            .iter()
            .any(|&cell| shared.admitted(cell) == Some(Admit::Overflow) && delivered[old..].contains(&cell));
        let ends = [2, 3].iter().filter(|&&cell| shared.admitted(cell) == Some(Admit::Overflow)).count();
        assert!(ends <= dropped && ends <= 2);
        assert_eq!(process.slot.word().has_overflowed(), new_end, "the topic's end and the word differ");
        shared.assert_exact(&delivered[old..]);
    });
}

#[test]
fn nothing_stands_behind_an_overflow() {
    let info = ModelInfo {
        name: "budget::nothing_stands_behind_an_overflow",
        threads: 3,
        operations: "turn, turn | send with a budget of 0, send | send without",
        preemption_bound: Some(3),
    };
    check(info, || {
        let shared = Shared::new(3);
        let life = shared.process.begin(Some(Wait::Idle));
        let with = {
            let shared = shared.clone();
            thread::spawn(move || {
                for cell in [1, 2] {
                    let pushed = shared.send(Bind::Life(life), cell, Some(Budget::items(0)));
                    assert!(matches!(pushed, Ok(Admitted::Dropped(_))), "{pushed:?}");
                }
            })
        };
        let without = {
            let shared = shared.clone();
            thread::spawn(move || shared.send(Bind::Life(life), 3, None))
        };
        let process = &shared.process;
        process.turn();
        process.turn();
        with.join().unwrap();
        let pushed = without.join().unwrap();
        process.run_till_quiet();
        let delivered = process.delivered();
        shared.assert_ends_last(&delivered);
        let ends = delivered.iter().filter(|&&cell| shared.admitted(cell) == Some(Admit::Overflow)).count();
        assert_eq!(ends, 1, "one end for each generation");
        match pushed {
            Ok(Admitted::Accepted(_)) => assert_eq!(delivered, [3, 1]),
            Ok(Admitted::Dropped(_)) => assert_eq!(delivered, [1]),
            Err(refused) => panic!("refused as {refused:?}"),
        }
    });
}

/// Negative control: a message that does not ask whether its topic is closed.
#[test]
#[should_panic(expected = "something stands behind the end of its topic")]
fn an_open_gate_lets_a_message_behind_the_end() {
    let info = ModelInfo {
        name: "budget::an_open_gate_lets_a_message_behind_the_end",
        threads: 2,
        operations: "send with a budget of 0 | send past the gate",
        preemption_bound: None,
    };
    check(info, || {
        let shared = Shared::new(2);
        let process = &shared.process;
        let life = process.begin_running();
        let with = {
            let shared = shared.clone();
            thread::spawn(move || {
                let _ = shared.send(Bind::Life(life), 1, Some(Budget::items(0)));
            })
        };
        process.mail.write(2);
        process.slot.push(&process.mail, Bind::Life(life), 2, Gate::Open).unwrap();
        with.join().unwrap();
        process.follow(process.slot.release(Wait::Idle));
        process.run_till_quiet();
        shared.assert_ends_last(&process.delivered());
    });
}

#[test]
fn a_place_of_an_old_generation_stays_there() {
    let info = ModelInfo {
        name: "budget::a_place_of_an_old_generation_stays_there",
        threads: 3,
        operations: "turn, reset, wait, turn | release the first | send with a budget of 2",
        preemption_bound: Some(3),
    };
    check(info, || {
        let shared = Shared::new(2);
        let budget = Some(Budget::items(2));
        let life = shared.process.begin(Some(Wait::Idle));
        assert!(matches!(shared.send(Bind::Life(life), 1, budget), Ok(Admitted::Accepted(_))));
        let releaser = {
            let shared = shared.clone();
            thread::spawn(move || shared.release(1))
        };
        let sender = {
            let shared = shared.clone();
            thread::spawn(move || {
                let pushed = shared.send(Bind::Life(life), 2, budget);
                assert!(matches!(pushed, Ok(Admitted::Accepted(_))), "{pushed:?}");
            })
        };
        let process = &shared.process;
        process.turn_with(|| {
            let old = shared.accounts.reset(NUMBER, &process.slot, u32::MAX).unwrap();
            process.drop_list(old.head());
            Then::Wait
        });
        let old = process.delivered().len();
        process.turn();
        releaser.join().unwrap();
        sender.join().unwrap();
        process.run_till_quiet();
        shared.assert_exact(&process.delivered()[old..]);
    });
}

#[test]
fn no_account_outlives_its_process() {
    let info = ModelInfo {
        name: "budget::no_account_outlives_its_process",
        threads: 3,
        operations: "end, begin a new life, turn | send with a budget to the old | send with a budget to the old",
        preemption_bound: Some(3),
    };
    check(info, || {
        let shared = Shared::new(2);
        let process = &shared.process;
        let old = process.begin_running();
        let senders = [1, 2].map(|cell| {
            let shared = shared.clone();
            thread::spawn(move || {
                let sent = shared.send(Bind::Life(old), cell, Some(Budget::items(1)));
                assert!(matches!(sent, Ok(_) | Err(Refused::Closed)), "refused as {sent:?}");
            })
        });
        // As `Worker::end` does.
        if process.end([0; 3]).is_watched() {
            shared.accounts.forget(NUMBER);
        }
        process.begin(Some(Wait::Idle));
        process.turn();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        process.run_till_quiet();
        assert!(process.delivered().is_empty(), "a message reached the next life");
        assert!(shared.accounts.topics(NUMBER).is_empty(), "an account outlived its process");
    });
}
