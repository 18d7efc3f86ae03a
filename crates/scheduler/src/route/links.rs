//! Monitors, links, kills: who hears of whose end, and why a process was ended.
//!
//! What is known of a process lies in a table sharded by slot number; the bit `WATCHED` of its word says
//! that there is something. An entry is made under its shard's lock, after the bit was set by a CAS that
//! also checks that the process is alive; the end of a process closes its word first and then takes the
//! entry under the lock. So either the end sees the bit and finds the entry, or the maker finds the
//! process ended and answers at once. No two shards are locked at a time, and no user code runs under one.
//!
//! An end removes what the process had left with others (its monitors of them, their links to it), so a
//! long-lived process does not collect the dead, at a cost that does not grow with their number.
//!
//! A crash travels along links by kill bits, not by calls, and the reason that travels names the process
//! that crashed first ([`ExitReason::Linked`] never nests): no chain of links, however long, costs stack.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crate::command::{TimerKey, YieldError};
use crate::process::message::{Cancel, Exit, ExitBy, KIND_CANCEL, KIND_EXIT, Message};
use crate::process::slot::{Bind, Word};
use crate::process::table::ReplyTo;
use crate::process::{ExitReason, ProcessError, SendError, Topic};
use crate::sync::{Mutex, Relaxed};
use crate::worker::timers::TimerAction;
use crate::{LocalPid, Payload, Pid, clock, memory, route};

/// A set of processes: a list, with an index once it is long.
#[derive(Default)]
struct Pids {
    list: Vec<LocalPid>,
    places: HashMap<LocalPid, usize>,
}

impl Pids {
    /// Up to so many are looked for one by one.
    const SHORT: usize = 16;

    fn place(&self, pid: LocalPid) -> Option<usize> {
        if self.places.is_empty() {
            self.list.iter().position(|known| *known == pid)
        } else {
            self.places.get(&pid).copied()
        }
    }

    fn insert(&mut self, pid: LocalPid) {
        if self.place(pid).is_some() {
            return;
        }
        self.list.push(pid);
        if !self.places.is_empty() {
            self.places.insert(pid, self.list.len() - 1);
        } else if self.list.len() > Self::SHORT {
            self.places = self.list.iter().enumerate().map(|(place, pid)| (*pid, place)).collect();
        }
    }

    fn remove(&mut self, pid: LocalPid) {
        let Some(place) = self.place(pid) else {
            return;
        };
        self.list.swap_remove(place);
        if !self.places.is_empty() {
            self.places.remove(&pid);
            if let Some(moved) = self.list.get(place) {
                self.places.insert(*moved, place);
            }
            if self.list.len() <= Self::SHORT / 2 {
                // Back to a short list, memory included: the crowd of yesterday is not kept.
                self.places = HashMap::new();
                self.list.shrink_to(Self::SHORT);
            }
        }
    }
}

#[derive(Default)]
struct Watched {
    first: u32,
    /// Who monitors it.
    monitors: Pids,
    /// Whom it monitors.
    monitoring: Pids,
    links: Pids,
    /// Threads that wait for its end.
    joiners: Vec<ReplyTo>,
    /// Somebody has asked it to stop by [`stop`].
    is_stopping: bool,
    traps_exits: bool,
    /// Why it is to be ended; the first reason counts.
    kill_reason: Option<ExitReason>,
    /// Who waits for its result.
    result_to: Option<ReplyTo>,
    /// The end of its patience, while it is being cancelled.
    deadline: Option<TimerKey>,
}

const SHARDS: usize = 64;
static WATCHED: LazyLock<Vec<Mutex<HashMap<u32, Watched>>>> =
    LazyLock::new(|| (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect());

fn shard(pid: LocalPid) -> &'static Mutex<HashMap<u32, Watched>> {
    &WATCHED[pid.slot() as usize % SHARDS]
}

/// Runs `act` on the entry of a live process, made if need be. `None`: it has ended, or never was.
fn with<R>(pid: LocalPid, act: impl FnOnce(&mut Watched) -> R) -> Option<R> {
    let slot = memory::find_slot(pid.slot())?;
    if slot.host.load(Relaxed) == route::waiter::HOST {
        // The address of a thread that waits for an answer: it takes answers and nothing else.
        return None;
    }
    let mut shard = shard(pid).lock();
    slot.watch(Bind::Life(pid.generation())).ok()?;
    let watched = shard.entry(pid.slot()).or_default();
    // A leftover of an earlier life cannot be: its end took it away under this lock or will find, by
    // `first`, that the entry is not its own.
    if watched.first != pid.generation() {
        *watched = Watched { first: pid.generation(), ..Watched::default() };
    }
    Some(act(watched))
}

/// Runs `act` on the entry of a process that may have ended, if there is one.
fn with_known(pid: LocalPid, act: impl FnOnce(&mut Watched)) {
    let mut shard = shard(pid).lock();
    if let Entry::Occupied(mut entry) = shard.entry(pid.slot())
        && entry.get().first == pid.generation()
    {
        act(entry.get_mut());
    }
}

/// Tells a process of another's end.
pub(crate) fn tell(to: LocalPid, pid: Pid, reason: Arc<ExitReason>, by: ExitBy) {
    let exit = Box::new(Exit { pid, reason, by });
    route::send_system(to, Message::new(Payload::new(exit), None, Topic::DEFAULT, KIND_EXIT));
}

/// From now on `watcher` hears of the end of `target`, once; at once if it has ended.
pub(crate) fn monitor(watcher: Pid, target: Pid) {
    if with(watcher.local(), |watched| watched.monitoring.insert(target.local())).is_none() {
        return;
    }
    if with(target.local(), |watched| watched.monitors.insert(watcher.local())).is_none() {
        with_known(watcher.local(), |watched| watched.monitoring.remove(target.local()));
        tell(watcher.local(), target, Arc::new(ExitReason::NoProcess), ExitBy::Monitor);
    }
}

/// `watcher` no longer wants to hear of it. An event that is on its way still comes.
pub(crate) fn unmonitor(watcher: Pid, target: Pid) {
    with_known(watcher.local(), |watched| watched.monitoring.remove(target.local()));
    with_known(target.local(), |watched| watched.monitors.remove(watcher.local()));
}

/// Links two processes: the crash of one takes the other down, unless it traps exits. To itself: nothing.
pub(crate) fn link(one: Pid, other: Pid) -> Result<(), SendError> {
    if one == other {
        return Ok(());
    }
    let add = |to: Pid, partner: Pid| with(to.local(), |watched| watched.links.insert(partner.local()));
    add(one, other).ok_or(SendError::Closed(one))?;
    if add(other, one).is_none() {
        with_known(one.local(), |watched| watched.links.remove(other.local()));
        return Err(SendError::Closed(other));
    }
    Ok(())
}

/// Takes a link away.
pub(crate) fn unlink(one: Pid, other: Pid) {
    with_known(one.local(), |watched| watched.links.remove(other.local()));
    with_known(other.local(), |watched| watched.links.remove(one.local()));
}

/// A partner's crash arrives as an event instead of taking the process down.
pub(crate) fn trap_exits(pid: LocalPid, trap: bool) {
    with(pid, |watched| watched.traps_exits = trap);
}

/// Who gets the result of a process.
pub(crate) fn await_result(pid: LocalPid, to: ReplyTo) -> bool {
    with(pid, |watched| watched.result_to = Some(to)).is_some()
}

/// A thread waits for the end of a process: it gets an `Arc<ExitReason>`. `false`: it has ended.
pub(crate) fn await_end(pid: LocalPid, to: ReplyTo) -> bool {
    with(pid, |watched| watched.joiners.push(to)).is_some()
}

/// The thread has given up.
pub(crate) fn forget_joiner(pid: LocalPid, to: ReplyTo) {
    with_known(pid, |watched| watched.joiners.retain(|joiner| *joiner != to));
}

/// As [`cancel`], once for each process: who asks after the first only brings the deadline forward, if
/// theirs is earlier.
pub(crate) fn stop(pid: LocalPid, reason: Arc<str>, deadline: Duration) {
    match with(pid, |watched| std::mem::replace(&mut watched.is_stopping, true)) {
        None => {}
        Some(true) => end_by(pid, &reason, deadline),
        Some(false) => {
            cancel(pid, reason, Some(deadline));
        }
    }
}

/// Ends a process, for this reason, at its next turn or after the present one. `false`: it has ended.
pub(crate) fn kill(pid: LocalPid, why: Arc<str>) -> bool {
    kill_for(pid, ExitReason::Killed(why))
}

fn kill_for(pid: LocalPid, reason: ExitReason) -> bool {
    let mut reason = Some(reason);
    let noted = with(pid, |watched| {
        if watched.kill_reason.is_none() {
            watched.kill_reason = reason.take();
        }
    });
    // Outside of the lock: a reason may hold an error of the user's.
    let _ = crate::process::contain(|| drop(reason));
    noted.is_some() && kill_silently(pid)
}

/// Ends a process without noting why.
pub(crate) fn kill_silently(pid: LocalPid) -> bool {
    let number = pid.slot();
    let Some(slot) = memory::find_slot(number) else {
        return false;
    };
    if slot.host.load(Relaxed) == route::waiter::HOST {
        return false;
    }
    match slot.kill(Bind::Life(pid.generation())) {
        Ok(after) => {
            route::follow(after, number, slot);
            true
        }
        Err(_) => false,
    }
}

/// Why the process in that slot is being killed.
pub(crate) fn kill_reason(number: u32, first: u32) -> ExitReason {
    let Some(pid) = LocalPid::new(number, first) else {
        return ExitReason::Shutdown;
    };
    let mut reason = None;
    with_known(pid, |watched| reason = watched.kill_reason.clone());
    reason.unwrap_or(ExitReason::Shutdown)
}

/// Has it ended, or will it before long: killed, or asked to end within a time? (`true` too for who never was.)
pub(crate) fn is_leaving(pid: Pid) -> bool {
    let pid = pid.local();
    let Some(slot) = memory::find_slot(pid.slot()) else {
        return true;
    };
    let word = slot.word();
    // `first` is read after the word: of the same life or a later one.
    if word.is_free() || word.is_killed() || slot.first() != pid.generation() {
        return true;
    }
    let mut is_asked = false;
    with_known(pid, |watched| is_asked = watched.is_stopping || watched.deadline.is_some());
    is_asked
}

/// Asks a process to end, and ends it at the deadline if it has not ended by then.
///
/// `false`: it has ended already.
pub(crate) fn cancel(pid: LocalPid, reason: Arc<str>, deadline: Option<Duration>) -> bool {
    let when = deadline.and_then(|deadline| clock::now().checked_add(deadline));
    if !ask_to_end(pid, Arc::clone(&reason), when) {
        return false;
    }
    if let Some(deadline) = deadline {
        end_by(pid, &reason, deadline);
    }
    true
}

/// Asks a process to end; somebody else sees to it that it has by then. `false`: it has ended already.
pub(crate) fn ask_to_end(pid: LocalPid, reason: Arc<str>, deadline: Option<Instant>) -> bool {
    let cancel = Cancel { reason, deadline };
    route::send_system(pid, Message::new(Payload::new(cancel), None, Topic::DEFAULT, KIND_CANCEL))
}

/// Ends a process that long from now, if it has not ended by then. Of several such deadlines the earliest
/// counts.
fn end_by(pid: LocalPid, reason: &str, deadline: Duration) {
    let Some(slot) = memory::find_slot(pid.slot()) else {
        return;
    };
    let host = slot.host.load(Relaxed);
    if host == route::waiter::HOST {
        return;
    }
    let due = clock::deadline(clock::now_nanos(), deadline);
    let why: Arc<str> = format!("cancelled ({reason}), and its time ran out").into();
    let hub = route::host::hub(host);
    // Armed before the entry is locked: arming takes locks of its own.
    let key = hub.arm(due, TimerAction::Kill(pid, why));
    let useless = with(pid, |watched| match watched.deadline {
        Some(earlier) if earlier.due <= key.due => Some(key),
        _ => watched.deadline.replace(key),
    });
    match useless {
        Some(None) => {}
        Some(Some(timer)) => hub.cancel_timer(timer),
        None => hub.cancel_timer(key),
    }
}

/// The result of a process that is done goes to who waits for it.
pub(crate) fn deliver_result(pid: Pid, result: Payload, word: Word) {
    let mut to = None;
    if word.is_watched() {
        with_known(pid.local(), |watched| to = watched.result_to.take());
    }
    match to {
        Some(to) => {
            route::complete(to, Ok(result));
        }
        None => {
            let _ = crate::process::contain(|| drop(result));
        }
    }
}

/// The end of a process: monitors hear of it, then links.
pub(crate) fn ended(pid: Pid, reason: ExitReason) {
    let watched = {
        let mut shard = shard(pid.local()).lock();
        match shard.entry(pid.local().slot()) {
            Entry::Occupied(entry) if entry.get().first == pid.local().generation() => Some(entry.remove()),
            _ => None,
        }
    };
    let Some(watched) = watched else {
        let _ = crate::process::contain(|| drop(reason));
        return;
    };
    if let Some(key) = watched.deadline {
        let host = pid.host();
        route::host::hub(host).cancel_timer(key);
    }
    if let Some(to) = watched.result_to {
        let answer = match &reason {
            ExitReason::Normal => Ok(Payload::empty()),
            failed => Err(YieldError::Failed(ProcessError::new(failed))),
        };
        route::complete(to, answer);
    }
    let reason = Arc::new(reason);
    for target in watched.monitoring.list {
        with_known(target, |other| other.monitors.remove(pid.local()));
    }
    for watcher in watched.monitors.list {
        with_known(watcher, |other| other.monitoring.remove(pid.local()));
        tell(watcher, pid, Arc::clone(&reason), ExitBy::Monitor);
    }
    let cause = match &*reason {
        ExitReason::Linked { reason: first, .. } => first,
        _ => &reason,
    };
    for partner in watched.links.list {
        let mut traps = None;
        with_known(partner, |other| {
            other.links.remove(pid.local());
            traps = Some(other.traps_exits);
        });
        match traps {
            Some(true) => tell(partner, pid, Arc::clone(&reason), ExitBy::Link),
            Some(false) if reason.is_crash() => {
                kill_for(partner, ExitReason::Linked { partner: pid, reason: Arc::clone(cause) });
            }
            _ => {}
        }
    }
    for joiner in watched.joiners {
        route::complete(joiner, Ok(Payload::new(Arc::clone(&reason))));
    }
    let _ = crate::process::contain(|| drop(reason));
    let _ = crate::process::contain(|| drop(watched.kill_reason));
}

/// What the processes of a host have left here: entries, and how many others these name.
pub(crate) fn registrations(host: u16) -> (usize, usize) {
    let (mut entries, mut named) = (0, 0);
    for shard in WATCHED.iter() {
        for (number, watched) in shard.lock().iter() {
            if memory::slot(*number).host.load(Relaxed) == host {
                entries += 1;
                named += watched.monitors.list.len() + watched.monitoring.list.len();
                named += watched.links.list.len() + watched.joiners.len();
                named += usize::from(watched.result_to.is_some());
            }
        }
    }
    (entries, named)
}
