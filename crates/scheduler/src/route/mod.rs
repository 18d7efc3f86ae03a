//! Who hears whom: from a PID to a mailbox, from a mailbox to a run queue.

pub(crate) mod host;
pub(crate) mod links;
pub(crate) mod names;
pub(crate) mod relay;
pub mod supervisor;
pub(crate) mod waiter;

use std::sync::Arc;
use std::time::Duration;

use crate::command::YieldError;
use crate::memory::{self, InMemory};
use crate::process::message::{self, KIND_YIELD_ERR, KIND_YIELD_OK, Message};
use crate::process::slot::{After, Bind, Gate, Slot};
use crate::process::table::ReplyTo;
use crate::process::{SendError, Topic};
use crate::sync::Relaxed;
use crate::trace::Kind;
use crate::worker::Worker;
use crate::{LocalPid, Payload, Pid};

/// Queues a process that the caller made `READY`.
#[inline(always)]
pub(crate) fn queue(number: u32, slot: &'static Slot) {
    match crate::worker::current() {
        Some(worker) => queue_on(worker, number, slot),
        None => queue_from_outside(number, slot),
    }
}

/// As [`queue`], by a step of this worker.
#[inline(always)]
pub(crate) fn queue_on(worker: &Worker, number: u32, slot: &'static Slot) {
    if u32::from(slot.host.load(Relaxed)) == worker.tracer.wakes_for() {
        worker.queue_woken(number);
    } else {
        queue_specially(worker, number, slot);
    }
}

/// A process of another host, or a trace is on, or the worker is in a closure that may block, or between steps.
#[cold]
#[inline(never)]
fn queue_specially(worker: &Worker, number: u32, slot: &'static Slot) {
    if slot.host.load(Relaxed) == worker.queues_for() {
        worker.trace_process(Kind::Wake, number);
        if worker.is_between_steps() {
            worker.queue_found(number);
        } else {
            worker.queue_woken(number);
        }
    } else {
        queue_from_outside(number, slot);
    }
}

/// From a thread that is no worker of the process's host: to the worker that ran it last.
#[cold]
#[inline(never)]
fn queue_from_outside(number: u32, slot: &'static Slot) {
    let host = slot.host.load(Relaxed);
    if host == waiter::HOST {
        return waiter::wake(number);
    }
    let hub = host::hub(host);
    hub.trace.outside(Kind::Wake, number);
    let worker = slot.worker.load(Relaxed) as usize % hub.workers.len();
    if hub.workers[worker].inject.push(number, &InMemory).is_err() {
        hub.global.push(number, &InMemory);
    }
    // The process may have run and ended by now, and with it the scheduler: hubs are type-stable, and a
    // wake too many is harmless.
    if !hub.wake_one(Some(worker as u16)) {
        hub.watch.ensure_awake();
    }
}

/// Does what an act on a word asks for.
#[inline(always)]
pub(crate) fn follow(after: After, number: u32, slot: &'static Slot) {
    if after == After::Queue {
        queue(number, slot);
    }
}

/// Sends the result of a yield. `true`: it is on its way; `false`: the process has ended.
pub(crate) fn complete(to: ReplyTo, result: Result<Payload, YieldError>) -> bool {
    let (kind, payload) = match result {
        Ok(payload) => (KIND_YIELD_OK, payload),
        Err(error) => (KIND_YIELD_ERR, Payload::new(error)),
    };
    send_system(to.pid, Message::new(payload, None, Topic::DEFAULT, kind).with_seq(to.seq))
}

/// As [`complete`], by who was asked: the asker waits no longer, so whoever the step asks next closes no circle
/// with it.
#[inline]
pub(crate) fn answer(to: ReplyTo, result: Result<Payload, YieldError>) -> bool {
    if let Some(worker) = crate::worker::current() {
        worker.note_answer(to);
    }
    complete(to, result)
}

/// Sends an event of the system's own: past budgets and overflow. `false`: the process has ended.
pub(crate) fn send_system(to: LocalPid, message: Message) -> bool {
    let number = to.slot();
    let Some(slot) = memory::find_slot(number) else {
        return false;
    };
    let stored = crate::worker::with_magazines(|m| message::store(m, message));
    let Ok(cell) = stored else {
        return false;
    };
    match slot.push(&InMemory, Bind::Life(to.generation()), cell, Gate::Open) {
        Ok(after) => {
            follow(after, number, slot);
            true
        }
        Err(_) => {
            // SAFETY: the push was refused, so the cell is still ours.
            let message = crate::worker::with_magazines(|m| unsafe { message::take(m, cell) });
            // Contained: this may be the end of another process, on its worker.
            let _ = crate::process::contain(|| drop(message));
            false
        }
    }
}

/// Ends a process, for this reason, at its next turn or after the present one.
pub(crate) fn kill(pid: Pid, reason: Arc<str>) -> Result<(), SendError> {
    relay::check_alive(pid)?;
    if links::kill(pid.local(), reason) { Ok(()) } else { Err(SendError::Closed(pid)) }
}

/// Asks a process to end, and ends it at the deadline if it has not ended by then.
pub(crate) fn cancel(pid: Pid, reason: Arc<str>, deadline: Option<Duration>) -> Result<(), SendError> {
    relay::check_alive(pid)?;
    if links::cancel(pid.local(), reason, deadline) { Ok(()) } else { Err(SendError::Closed(pid)) }
}

/// The full address of a local one.
pub(crate) fn pid_of(local: LocalPid) -> Pid {
    let host = memory::find_slot(local.slot()).map_or(0, |slot| slot.host.load(Relaxed));
    Pid::new(0, host, local)
}
