//! Local names of processes.
//!
//! A supervised name outlives a crash: it is *held* for the successor, with the messages that the dead
//! process had not taken; messages sent by name meanwhile join them. The successor finds them, oldest
//! first, in its mailbox before anything else. If there is no successor they are dropped and counted.

use std::collections::HashMap;

use crate::memory::InMemory;
use crate::process::SendError;
use crate::process::event_queue::{Cells, TURN_ROUND_MAX, turn_round};
use crate::process::message::{self, KIND, KIND_MESSAGE, Message};
use crate::process::slot::Bind;
use crate::sync::{Mutex, Relaxed};
use crate::{LocalPid, Pid, memory, route};

/// Why a name was not given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Somebody has it.
    #[error("the name `{name}` belongs to process {owner}")]
    Taken {
        /// The name.
        name: String,
        /// Who has it.
        owner: Pid,
    },
    /// The process has ended.
    #[error("process {0} has ended")]
    NoProcess(Pid),
    /// Nobody has it.
    #[error("no process is called `{0}`")]
    Unknown(String),
    /// The one who has it did not accept the message.
    #[error(transparent)]
    Send(#[from] SendError),
}

/// Messages that wait for a successor: cells, oldest first.
#[derive(Clone, Copy, Default)]
struct Held {
    first: u32,
    last: u32,
}

impl Held {
    fn append(&mut self, first: u32) {
        if first == 0 {
            return;
        }
        if self.last == 0 {
            self.first = first;
        } else {
            InMemory.next(self.last).store(first, Relaxed);
        }
        let mut last = first;
        loop {
            let next = InMemory.next(last).load(Relaxed);
            if next == 0 {
                break;
            }
            last = next;
        }
        self.last = last;
    }

    /// The list with its depths set right.
    fn into_list(self) -> u32 {
        let (_, newest_first) = turn_round(&InMemory, self.first, 0, u32::MAX >> 1);
        turn_round(&InMemory, newest_first, 0, u32::MAX >> 1).1
    }
}

enum Owner {
    Alive(Pid),
    Held(Held),
}

struct Entry {
    owner: Owner,
    supervised: bool,
}

#[derive(Default)]
struct Tables {
    by_name: HashMap<String, Entry>,
    by_pid: HashMap<LocalPid, Vec<String>>,
}

/// The names of a runtime.
#[derive(Default)]
pub(crate) struct Names {
    tables: Mutex<Tables>,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn lookup(&self, name: &str) -> Option<Pid> {
        match self.tables.lock().by_name.get(name)?.owner {
            Owner::Alive(pid) => Some(pid),
            Owner::Held(_) => None,
        }
    }

    pub(crate) fn register(&self, name: &str, pid: Pid) -> Result<(), NameError> {
        let mut tables = self.tables.lock();
        if let Some(entry) = tables.by_name.get(name) {
            match entry.owner {
                Owner::Alive(owner) if owner == pid => return Ok(()),
                Owner::Alive(owner) => return Err(NameError::Taken { name: name.to_owned(), owner }),
                Owner::Held(_) => return Err(NameError::Unknown(name.to_owned())),
            }
        }
        // Under the lock that the end of the process takes: it finds the name, or we find it ended.
        let slot = memory::find_slot(pid.local().slot()).ok_or(NameError::NoProcess(pid))?;
        slot.watch(Bind::Life(pid.local().generation())).map_err(|_| NameError::NoProcess(pid))?;
        tables.insert(name, pid, false);
        Ok(())
    }

    /// Gives a name to a process that is being made. `publish` gets what waited for the name.
    pub(crate) fn claim_for_birth(
        &self,
        name: &str,
        pid: Pid,
        supervised: bool,
        publish: impl FnOnce(u32),
    ) -> Result<(), Pid> {
        let mut tables = self.tables.lock();
        let held = match tables.by_name.get(name).map(|entry| &entry.owner) {
            Some(&Owner::Alive(owner)) => return Err(owner),
            Some(&Owner::Held(held)) => held.into_list(),
            None => 0,
        };
        tables.insert(name, pid, supervised);
        publish(held);
        memory::slot(pid.local().slot())
            .watch(Bind::Life(pid.local().generation()))
            .expect("it was published just now and is not queued yet");
        Ok(())
    }

    /// The names of a process that has ended are free again, or held with its messages if it crashed and
    /// was supervised. `true`: the messages are kept.
    pub(crate) fn release(&self, pid: Pid, lists: [u32; 3], crashed: bool) -> bool {
        let mut tables = self.tables.lock();
        let mut kept = false;
        for name in tables.by_pid.remove(&pid.local()).unwrap_or_default() {
            let supervised = tables.by_name.get(&name).is_some_and(|entry| entry.supervised);
            if !supervised || !crashed {
                tables.by_name.remove(&name);
                continue;
            }
            let mut held = Held::default();
            if !kept {
                kept = true;
                let [inbox, rest, head] = lists;
                held.append(inbox);
                for newest_first in [rest, head] {
                    let mut list = newest_first;
                    let mut onto = 0;
                    while list != 0 {
                        (list, onto) = turn_round(&InMemory, list, onto, TURN_ROUND_MAX);
                    }
                    held.append(onto);
                }
            }
            tables.by_name.insert(name, Entry { owner: Owner::Held(held), supervised: true });
        }
        kept
    }

    /// There will be no successor: the name is free, what waited is dropped. Gives the number dropped.
    pub(crate) fn give_up(&self, name: &str) -> usize {
        let held = {
            let mut tables = self.tables.lock();
            match tables.by_name.get(name).map(|entry| &entry.owner) {
                Some(&Owner::Held(held)) => {
                    tables.by_name.remove(name);
                    held
                }
                _ => return 0,
            }
        };
        let mut count = 0;
        let mut list = held.first;
        while list != 0 {
            let next = InMemory.next(list).load(Relaxed);
            // SAFETY: the list belonged to the name, which is gone.
            let message = crate::worker::with_magazines(|m| unsafe { message::take(m, list) });
            let _ = crate::process::contain(|| drop(message));
            list = next;
            count += 1;
        }
        count
    }

    pub(crate) fn unregister(&self, name: &str) -> bool {
        let mut tables = self.tables.lock();
        let Some(&Entry { owner: Owner::Alive(pid), .. }) = tables.by_name.get(name) else {
            return false;
        };
        tables.by_name.remove(name);
        if let Some(names) = tables.by_pid.get_mut(&pid.local()) {
            names.retain(|known| known != name);
            if names.is_empty() {
                tables.by_pid.remove(&pid.local());
            }
        }
        true
    }

    /// Sends to whoever has the name; while it is held the message waits for the successor.
    pub(crate) fn send(&self, name: &str, message: Message) -> Result<(), NameError> {
        debug_assert_eq!(message.flag_bits() & KIND, KIND_MESSAGE);
        let pid = {
            let mut tables = self.tables.lock();
            match tables.by_name.get_mut(name).map(|entry| &mut entry.owner) {
                Some(&mut Owner::Alive(pid)) => pid,
                Some(Owner::Held(held)) => {
                    let cell = crate::worker::with_magazines(|m| message::store(m, message));
                    let cell = cell.map_err(|_| SendError::Exhausted)?;
                    InMemory.next(cell).store(0, Relaxed);
                    held.append(cell);
                    return Ok(());
                }
                None => return Err(NameError::Unknown(name.to_owned())),
            }
        };
        Ok(route::relay::send_message(pid, message)?)
    }

    /// Names known, for tests of what ends leave behind.
    pub(crate) fn len(&self) -> usize {
        self.tables.lock().by_name.len()
    }
}

impl Tables {
    fn insert(&mut self, name: &str, pid: Pid, supervised: bool) {
        self.by_name.insert(name.to_owned(), Entry { owner: Owner::Alive(pid), supervised });
        self.by_pid.entry(pid.local()).or_default().push(name.to_owned());
    }
}
