//! Monitors, links, kills: who hears of whose end, and why a process was ended.
//!
//! What is known of a process lies in a table sharded by slot number; the bit `WATCHED` of its word says
//! that there is something. An entry is made under its shard's lock, after the bit was set by a CAS that
//! also checks that the process is alive; the end of a process closes its word first and then takes the
//! entry under the lock. So either the end sees the bit and finds the entry, or the maker finds the
//! process ended and answers at once. No two shards are locked at a time, and no user code runs under one.
//!
//! An end removes what the process had left with others (its monitors of them, their links to it), so a
//! long-lived process does not collect the dead.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::command::{TimerKey, YieldError};
use crate::process::message::{Cancel, Exit, ExitBy, KIND_CANCEL, KIND_EXIT, Message};
use crate::process::slot::{Bind, Word};
use crate::process::table::ReplyTo;
use crate::process::{ExitReason, ProcessError, SendError, Topic};
use crate::sync::{Mutex, Relaxed};
use crate::worker::timers::TimerAction;
use crate::{LocalPid, Payload, Pid, clock, memory, route};

#[derive(Default)]
struct Watched {
    first: u32,
    /// Who monitors it.
    monitors: Vec<LocalPid>,
    /// Whom it monitors.
    monitoring: Vec<LocalPid>,
    links: Vec<LocalPid>,
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
    let watching = with(watcher.local(), |watched| {
        if !watched.monitoring.contains(&target.local()) {
            watched.monitoring.push(target.local());
        }
    });
    if watching.is_none() {
        return;
    }
    let monitored = with(target.local(), |watched| {
        if !watched.monitors.contains(&watcher.local()) {
            watched.monitors.push(watcher.local());
        }
    });
    if monitored.is_none() {
        with_known(watcher.local(), |watched| watched.monitoring.retain(|pid| *pid != target.local()));
        tell(watcher.local(), target, Arc::new(ExitReason::NoProcess), ExitBy::Monitor);
    }
}

/// `watcher` no longer wants to hear of it. An event that is on its way still comes.
pub(crate) fn unmonitor(watcher: Pid, target: Pid) {
    with_known(watcher.local(), |watched| watched.monitoring.retain(|pid| *pid != target.local()));
    with_known(target.local(), |watched| watched.monitors.retain(|pid| *pid != watcher.local()));
}

/// Links two processes: the crash of one takes the other down, unless it traps exits. To itself: nothing.
pub(crate) fn link(one: Pid, other: Pid) -> Result<(), SendError> {
    if one == other {
        return Ok(());
    }
    let add = |to: Pid, partner: Pid| {
        with(to.local(), |watched| {
            if !watched.links.contains(&partner.local()) {
                watched.links.push(partner.local());
            }
        })
    };
    add(one, other).ok_or(SendError::Closed(one))?;
    if add(other, one).is_none() {
        with_known(one.local(), |watched| watched.links.retain(|pid| *pid != other.local()));
        return Err(SendError::Closed(other));
    }
    Ok(())
}

/// Takes a link away.
pub(crate) fn unlink(one: Pid, other: Pid) {
    with_known(one.local(), |watched| watched.links.retain(|pid| *pid != other.local()));
    with_known(other.local(), |watched| watched.links.retain(|pid| *pid != one.local()));
}

/// A partner's crash arrives as an event instead of taking the process down.
pub(crate) fn trap_exits(pid: LocalPid, trap: bool) {
    with(pid, |watched| watched.traps_exits = trap);
}

/// Who gets the result of a process.
pub(crate) fn await_result(pid: LocalPid, to: ReplyTo) -> bool {
    with(pid, |watched| watched.result_to = Some(to)).is_some()
}

/// Ends a process, for this reason, at its next turn or after the present one. `false`: it has ended.
pub(crate) fn kill(pid: LocalPid, why: Arc<str>) -> bool {
    kill_for(pid, ExitReason::Killed(why))
}

fn kill_for(pid: LocalPid, reason: ExitReason) -> bool {
    if with(pid, |watched| {
        watched.kill_reason.get_or_insert(reason);
    })
    .is_none()
    {
        return false;
    }
    kill_silently(pid)
}

/// Ends a process without noting why.
pub(crate) fn kill_silently(pid: LocalPid) -> bool {
    let number = pid.slot();
    let Some(slot) = memory::find_slot(number) else {
        return false;
    };
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

/// Asks a process to end, and ends it at the deadline if it has not ended by then.
///
/// `false`: it has ended already.
pub(crate) fn cancel(pid: LocalPid, reason: Arc<str>, deadline: Option<Duration>) -> bool {
    let due = deadline.map(|deadline| clock::deadline(clock::now_nanos(), deadline));
    let when = deadline.and_then(|deadline| clock::now().checked_add(deadline));
    let cancel = Cancel { reason: Arc::clone(&reason), deadline: when };
    if !route::send_system(pid, Message::new(Payload::new(cancel), None, Topic::DEFAULT, KIND_CANCEL)) {
        return false;
    }
    if let Some(due) = due {
        let why: Arc<str> = format!("cancelled ({reason}), and its time ran out").into();
        let host = memory::slot(pid.slot()).host.load(Relaxed);
        if host == route::waiter::HOST {
            return true;
        }
        let key = route::host::hub(host).arm(due, TimerAction::Kill(pid, why));
        let hub = route::host::hub(host);
        let old = with(pid, |watched| watched.deadline.replace(key));
        match old {
            Some(Some(old)) => hub.cancel_timer(old),
            Some(None) => {}
            None => hub.cancel_timer(key),
        }
    }
    true
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
            Entry::Occupied(entry) if entry.get().first == pid.local().generation() => entry.remove(),
            _ => return,
        }
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
    for target in watched.monitoring {
        with_known(target, |other| other.monitors.retain(|watcher| *watcher != pid.local()));
    }
    for watcher in watched.monitors {
        with_known(watcher, |other| other.monitoring.retain(|target| *target != pid.local()));
        tell(watcher, pid, Arc::clone(&reason), ExitBy::Monitor);
    }
    for partner in watched.links {
        let mut traps = None;
        with_known(partner, |other| {
            other.links.retain(|linked| *linked != pid.local());
            traps = Some(other.traps_exits);
        });
        match traps {
            Some(true) => tell(partner, pid, Arc::clone(&reason), ExitBy::Link),
            Some(false) if reason.is_crash() => {
                kill_for(partner, ExitReason::Linked { partner: pid, reason: Arc::clone(&reason) });
            }
            _ => {}
        }
    }
    let _ = crate::process::contain(|| drop(reason));
}

/// Entries in the whole program, for tests of what ends leave behind.
pub(crate) fn entries() -> usize {
    WATCHED.iter().map(|shard| shard.lock().len()).sum()
}
