//! Local names of processes.
//!
//! A supervised name outlives its process: it is *held* for the successor by the supervisor, with the
//! messages that the dead process had not taken; messages sent by name meanwhile join them. The successor
//! finds them, oldest first, in its mailbox before anything else. (They are handed over in one act, however many
//! they are; its first turns turn them round.) If there is no successor they are dropped
//! and counted. Results of yields, exits and cancellations were meant for the dead process alone and are
//! dropped with it.
//!
//! | a supervised name | becomes | when |
//! | --- | --- | --- |
//! | alive | held | the process ends as its [`Hold`] says ([`Names::release`]) |
//! | alive | free | it ends otherwise |
//! | held | alive | the supervisor spawns the successor ([`Names::claim_for_birth`]) |
//! | held | free | the supervisor gives up, or ends ([`Names::give_up`], [`Names::orphan`]) |
//!
//! Between the moment in which a dying process refuses messages and the one in which its name is held, what
//! is sent by name waits beside the entry (`early`), so that no sender sees the gap.
//!
//! User code (the drop of a message) never runs under the lock.

use std::collections::HashMap;

use crate::memory::InMemory;
use crate::process::event_queue::{Cells, FULL, turn_round};
use crate::process::message::{self, KIND, KIND_MESSAGE, Message};
use crate::process::slot::{Bind, Gate, Refused};
use crate::process::table::ReplyTo;
use crate::process::{ExitReason, SendError};
use crate::route::links;
use crate::sync::{Mutex, Relaxed};
use crate::{LocalPid, Payload, Pid, memory, route};

/// Why a name was not given, or nobody was reached by it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Somebody has it: a process, or the supervisor that is about to start the successor of one.
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
    /// No process ever had this PID. Check where it came from.
    #[error("no process has the PID {0}")]
    NotFound(Pid),
    /// The PID belongs to another node.
    #[error("process {0} is on another node")]
    OtherNode(Pid),
    /// The process is of another runtime of this program, which has names of its own.
    #[error("process {0} belongs to another runtime, which has names of its own")]
    OtherRuntime(Pid),
    /// Nobody can be called by the empty text.
    #[error("a name must not be empty")]
    Empty,
    /// Nobody has it.
    #[error("no process is called `{0}`")]
    Unknown(String),
    /// The one who has it did not accept the message.
    #[error(transparent)]
    Send(#[from] SendError),
}

/// After which ends the name of a supervised process is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// After a crash.
    OnCrash,
    /// After every end but that of the scheduler.
    Always,
}

impl Hold {
    fn after(self, reason: &ExitReason) -> bool {
        match self {
            Hold::OnCrash => reason.is_crash(),
            Hold::Always => !matches!(reason, ExitReason::Shutdown),
        }
    }
}

/// Who will make the successor, and when one is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Supervised {
    pub(crate) by: Pid,
    pub(crate) hold: Hold,
}

/// Messages that wait for a successor: cells, newest first, as in a mailbox that was not turned round yet.
#[derive(Clone, Copy, Default)]
pub(crate) struct Held {
    newest: u32,
    oldest: u32,
}

impl Held {
    fn push(&mut self, cell: u32) {
        let kind = InMemory.depth(cell).load(Relaxed) & FULL;
        InMemory.link(cell, kind, self.newest);
        if self.newest == 0 {
            self.oldest = cell;
        }
        self.newest = cell;
    }

    /// Adds what came later.
    fn append(&mut self, later: Held) {
        if later.newest == 0 {
            return;
        }
        if self.newest == 0 {
            self.oldest = later.oldest;
        } else {
            // The depths between are left as they are: they are set right when the list is turned round.
            let depth = InMemory.count(later.newest).saturating_add(InMemory.count(self.newest)) & !FULL;
            let kind = InMemory.depth(later.newest).load(Relaxed) & FULL;
            InMemory.depth(later.newest).store(kind | depth, Relaxed);
            InMemory.next(later.oldest).store(self.newest, Relaxed);
        }
        self.newest = later.newest;
    }

    /// The list, newest first; its number of messages is the depth of that one.
    pub(crate) fn into_list(self) -> u32 {
        self.newest
    }

    /// Drops what is in it and counts it, for the host that had it: on a worker in parts, if there is much.
    /// Gives the number.
    fn drop_all(self, host: u16) -> usize {
        let count = InMemory.count(self.newest);
        if count == 0 {
            return 0;
        }
        if let Some(worker) = crate::worker::current() {
            worker.drop_soon([self.newest, 0]);
            return count as usize;
        }
        let mut list = self.newest;
        while list != 0 {
            let next = InMemory.next(list).load(Relaxed);
            // SAFETY: the list belonged to the name, which has let go of it.
            let message = crate::worker::with_magazines(|m| unsafe { message::take(m, list) });
            let _ = crate::process::contain(|| drop(message));
            list = next;
        }
        route::host::hub(host).note_dropped(u64::from(count));
        count as usize
    }
}

/// A mailbox that its process has left, on its way apart: messages, which a successor may get, and what was meant
/// for that process alone.
pub(crate) struct Parting {
    /// From old to new: a list, and is it newest first? (While a long mailbox is being turned round its older
    /// part is not in the inbox yet.)
    lists: [(u32, bool); 3],
    /// The first of these that is not through, and what of it was turned round.
    at: usize,
    turned: u32,
    messages: Held,
    others: Held,
}

impl Parting {
    pub(crate) fn new([inbox, rest, head]: [u32; 3]) -> Self {
        let lists = [(rest, true), (inbox, false), (head, true)];
        Self { lists, at: 0, turned: 0, messages: Held::default(), others: Held::default() }
    }

    /// Goes on for at most so many cells. `true`: done.
    pub(crate) fn go_on(&mut self, left: &mut u32) -> bool {
        while let Some((list, is_newest_first)) = self.lists.get_mut(self.at) {
            if *is_newest_first {
                let before = InMemory.count(self.turned);
                (*list, self.turned) = turn_round(&InMemory, *list, self.turned, *left);
                *left -= InMemory.count(self.turned) - before;
                if *list != 0 {
                    return false;
                }
                (*list, *is_newest_first) = (self.turned, false);
            }
            while *list != 0 {
                if *left == 0 {
                    return false;
                }
                *left -= 1;
                let cell = *list;
                *list = InMemory.next(cell).load(Relaxed);
                let is_message = message::flags(cell) & KIND == KIND_MESSAGE;
                if is_message { &mut self.messages } else { &mut self.others }.push(cell);
            }
            self.turned = 0;
            self.at += 1;
        }
        true
    }

    /// The two parts.
    pub(crate) fn parts(&self) -> (Held, Held) {
        (self.messages, self.others)
    }
}

enum Owner {
    Alive {
        pid: Pid,
        /// Sent after the process refused messages and before its end came to [`Names::release`].
        early: Held,
    },
    Held {
        by: Pid,
        held: Held,
    },
}

struct Entry {
    owner: Owner,
    supervised: Option<Supervised>,
    /// Where the name stands in the list of its owner.
    place: usize,
    /// Yields that complete when this owner lets go of the name; see [`Names::await_release`].
    waiting: Vec<ReplyTo>,
}

#[derive(Default)]
struct Tables {
    by_name: HashMap<String, Entry>,
    by_pid: HashMap<LocalPid, Vec<String>>,
}

impl Entry {
    /// Who will make the successor of an owner that ends for this reason.
    fn is_held_after(&self, reason: &ExitReason) -> Option<Supervised> {
        self.supervised.filter(|supervised| supervised.hold.after(reason))
    }
}

/// Says to who waits for a name that its owner has let go of it. Outside of the lock.
fn tell_waiting(waiting: Vec<ReplyTo>) {
    for to in waiting {
        route::complete(to, Ok(Payload::empty()));
    }
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
            Owner::Alive { pid, .. } => Some(pid),
            Owner::Held { .. } => None,
        }
    }

    pub(crate) fn register(&self, name: &str, pid: Pid) -> Result<(), NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        let lost = |error| match error {
            SendError::OtherNode(pid) => NameError::OtherNode(pid),
            SendError::NotFound(pid) => NameError::NotFound(pid),
            _ => NameError::NoProcess(pid),
        };
        route::relay::check_alive(pid).map_err(lost)?;
        // Only the end of a process of this runtime gives a name of it back.
        if !route::host::shares_names(pid.host(), self) {
            return Err(NameError::OtherRuntime(pid));
        }
        let mut tables = self.tables.lock();
        if let Some(entry) = tables.by_name.get(name) {
            let (Owner::Alive { pid: owner, .. } | Owner::Held { by: owner, .. }) = entry.owner;
            return if owner == pid && matches!(entry.owner, Owner::Alive { .. }) {
                Ok(())
            } else {
                Err(NameError::Taken { name: name.to_owned(), owner })
            };
        }
        // Under the lock that the end of the process takes: it finds the name, or we find it ended.
        let slot = memory::find_slot(pid.local().slot()).ok_or(NameError::NoProcess(pid))?;
        slot.watch(Bind::Life(pid.local().generation())).map_err(|_| NameError::NoProcess(pid))?;
        let _nobody_waits_for_a_free_name = tables.insert(name, pid, None);
        Ok(())
    }

    /// Who has the name is on its way out (killed, or asked to end within a time), or its supervisor is: then
    /// `open` opens a yield that completes when the name changes hands, and the answer is `true`. Nobody has it:
    /// the same, at once. `false`: its owner is alive and well.
    pub(crate) fn await_release(&self, name: &str, open: impl FnOnce() -> ReplyTo) -> bool {
        let whose = |entry: &Entry| match entry.owner {
            Owner::Alive { pid, .. } => (pid, entry.supervised.map(|supervised| supervised.by)),
            Owner::Held { by, .. } => (by, None),
        };
        let found = self.tables.lock().by_name.get(name).map(whose);
        if let Some((owner, by)) = found
            && !links::is_leaving(owner)
            && !by.is_some_and(links::is_leaving)
        {
            return false;
        }
        let to = open();
        match self.tables.lock().by_name.get_mut(name) {
            Some(entry) if found.is_some_and(|(owner, _)| whose(entry).0 == owner) => {
                entry.waiting.push(to);
                return true;
            }
            _ => {}
        }
        tell_waiting(vec![to]);
        true
    }

    /// Gives a name to a process that is being made. `publish` gets what waited for the name, newest first: it
    /// makes the process known, though not runnable.
    ///
    /// # Errors
    /// Who has the name; nothing was published. A name that is held is given to its supervisor's child only.
    pub(crate) fn claim_for_birth(
        &self,
        name: &str,
        pid: Pid,
        supervised: Option<Supervised>,
        publish: impl FnOnce(u32),
    ) -> Result<(), Pid> {
        let mut tables = self.tables.lock();
        let held = match tables.by_name.get(name).map(|entry| &entry.owner) {
            Some(&Owner::Alive { pid: owner, .. }) => return Err(owner),
            Some(&Owner::Held { by, held }) if supervised.is_some_and(|now| now.by == by) => held.into_list(),
            Some(&Owner::Held { by, .. }) => return Err(by),
            None => 0,
        };
        let waiting = tables.insert(name, pid, supervised);
        publish(held);
        memory::slot(pid.local().slot())
            .watch(Bind::Life(pid.local().generation()))
            .expect("it was published just now and nobody can run it yet");
        drop(tables);
        tell_waiting(waiting);
        Ok(())
    }

    /// Will a name of this process, which ends for this reason, be held, as far as is known now?
    pub(crate) fn may_hold(&self, pid: Pid, reason: &ExitReason) -> bool {
        let tables = self.tables.lock();
        let mut names = tables.by_pid.get(&pid.local()).into_iter().flatten();
        names.any(|name| tables.by_name.get(name).is_some_and(|entry| entry.is_held_after(reason).is_some()))
    }

    /// The names of a process that has ended are free again, or held with its messages. What nobody will take is
    /// added to `dropped`.
    pub(crate) fn release(&self, pid: Pid, mut messages: Held, reason: &ExitReason, dropped: &mut Vec<u32>) {
        let mut waiting = Vec::new();
        {
            let mut tables = self.tables.lock();
            for name in tables.by_pid.remove(&pid.local()).unwrap_or_default() {
                // The supervisor may have ended meanwhile: then the name is an ordinary one by now.
                let Some(entry) = tables.by_name.get_mut(&name) else {
                    continue;
                };
                let early = match &mut entry.owner {
                    Owner::Alive { early, .. } => std::mem::take(early),
                    Owner::Held { .. } => continue,
                };
                waiting.append(&mut entry.waiting);
                match entry.is_held_after(reason) {
                    None => {
                        tables.by_name.remove(&name);
                        dropped.extend((early.newest != 0).then_some(early.newest));
                    }
                    Some(Supervised { by, .. }) => {
                        // The first name takes the messages.
                        let mut held = std::mem::take(&mut messages);
                        held.append(early);
                        entry.owner = Owner::Held { by, held };
                    }
                }
            }
        }
        tell_waiting(waiting);
        dropped.extend((messages.newest != 0).then_some(messages.newest));
    }

    /// There will be no successor: the name that `by` holds is free, what waited is dropped and counted.
    /// Gives the number dropped.
    pub(crate) fn give_up(&self, name: &str, by: Pid) -> usize {
        let (held, waiting) = {
            let mut tables = self.tables.lock();
            match tables.by_name.get_mut(name) {
                Some(Entry { owner: Owner::Held { by: holder, held }, waiting, .. }) if *holder == by => {
                    let let_go = (std::mem::take(held), std::mem::take(waiting));
                    tables.by_name.remove(name);
                    let_go
                }
                _ => return 0,
            }
        };
        tell_waiting(waiting);
        held.drop_all(by.host())
    }

    /// The supervisor `by` ends: its name is an ordinary one from now on, or free if it was held.
    pub(crate) fn orphan(&self, name: &str, by: Pid) -> usize {
        if let Some(entry) = self.tables.lock().by_name.get_mut(name)
            && matches!(entry.owner, Owner::Alive { .. })
            && entry.supervised.is_some_and(|supervised| supervised.by == by)
        {
            entry.supervised = None;
            return 0;
        }
        self.give_up(name, by)
    }

    pub(crate) fn unregister(&self, name: &str) -> bool {
        let (owner, early, waiting) = {
            let mut tables = self.tables.lock();
            let Some(&Entry { owner: Owner::Alive { pid, early }, place, .. }) = tables.by_name.get(name)
            else {
                return false;
            };
            let waiting = tables.by_name.remove(name).map(|entry| entry.waiting).unwrap_or_default();
            tables.forget_place(pid.local(), place);
            (pid, early, waiting)
        };
        tell_waiting(waiting);
        early.drop_all(owner.host());
        true
    }

    /// Sends to whoever has the name; while it is held the message waits for the successor.
    pub(crate) fn send(&self, name: &str, message: Message) -> Result<(), NameError> {
        debug_assert_eq!(message.flag_bits() & KIND, KIND_MESSAGE);
        let cell = crate::worker::with_magazines(|m| message::store(m, message))
            .map_err(|_| SendError::Exhausted)?;
        let mut refused_by = None;
        let error = loop {
            let pid = {
                let mut tables = self.tables.lock();
                let Some(entry) = tables.by_name.get_mut(name) else {
                    break NameError::Unknown(name.to_owned());
                };
                match &mut entry.owner {
                    Owner::Held { held, .. } => {
                        held.push(cell);
                        return Ok(());
                    }
                    Owner::Alive { pid, early } if refused_by == Some(*pid) => {
                        // It is ending, and its end has not come to `release` yet.
                        if entry.supervised.is_none() {
                            break NameError::Send(SendError::Closed(*pid));
                        }
                        early.push(cell);
                        return Ok(());
                    }
                    Owner::Alive { pid, .. } => *pid,
                }
            };
            let slot = memory::slot(pid.local().slot());
            let bind = Bind::Life(pid.local().generation());
            match slot.push(&InMemory, bind, cell, Gate::Closed) {
                Ok(after) => {
                    route::follow(after, pid.local().slot(), slot);
                    return Ok(());
                }
                Err(Refused::Closed) => refused_by = Some(pid),
                Err(refused) => return Ok(route::relay::refused_cell(slot, pid, bind, cell, refused)?),
            }
        };
        // SAFETY: nobody took the cell, so it is still ours.
        drop(crate::worker::with_magazines(|m| unsafe { message::take(m, cell) }));
        Err(error)
    }

    /// Names known, held ones included.
    pub(crate) fn len(&self) -> usize {
        self.tables.lock().by_name.len()
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        // Nobody is left who could take what waits, and cells belong to the program, not to the table.
        for (_, entry) in self.tables.lock().by_name.drain() {
            let (Owner::Alive { pid: owner, early: held } | Owner::Held { by: owner, held }) = entry.owner;
            held.drop_all(owner.host());
        }
    }
}

impl Tables {
    /// Gives who waited for the one that held the name before.
    #[must_use]
    fn insert(&mut self, name: &str, pid: Pid, supervised: Option<Supervised>) -> Vec<ReplyTo> {
        let owner = Owner::Alive { pid, early: Held::default() };
        let names = self.by_pid.entry(pid.local()).or_default();
        let entry = Entry { owner, supervised, place: names.len(), waiting: Vec::new() };
        names.push(name.to_owned());
        self.by_name.insert(name.to_owned(), entry).map(|before| before.waiting).unwrap_or_default()
    }

    /// The name at that place of its owner's list is free. A step or two, however many names the owner has.
    fn forget_place(&mut self, owner: LocalPid, place: usize) {
        let Some(names) = self.by_pid.get_mut(&owner) else {
            return;
        };
        names.swap_remove(place);
        match names.get(place) {
            Some(moved) => self.by_name.get_mut(moved).expect("who has a name is listed").place = place,
            None if names.is_empty() => {
                self.by_pid.remove(&owner);
            }
            None => {}
        }
    }
}
