//! A thread outside that waits for an answer: it has a slot of its own, so that an answer finds it as it
//! finds a process.
//!
//! The slot belongs to the thread, not to a host: who makes it `READY` unparks the thread, and the thread
//! claims the slot itself. It stays with the thread for all its waits; answers to earlier ones, which
//! came too late, are told by their number and dropped.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::thread::Thread;
use std::time::Duration;

use crate::command::YieldError;
use crate::memory::{self, Class, InMemory};
use crate::process::event_queue::{Cells, turn_round};
use crate::process::message::{self, KIND, KIND_YIELD_ERR, KIND_YIELD_OK, Message, REQUEST};
use crate::process::slot::{After, Wait};
use crate::process::table::ReplyTo;
use crate::process::{ExitReason, SendError, Topic, contain};
use crate::route::{self, links, relay};
use crate::sync::Relaxed;
use crate::sync::fixed::Mutex;
use crate::{AskError, LocalPid, Payload, Pid, Scheduler, clock};

/// The host number of slots that belong to threads.
pub(crate) const HOST: u16 = u16::MAX;

static THREADS: LazyLock<Mutex<HashMap<u32, Thread>>> = LazyLock::new(Mutex::default);

/// Unparks the thread that owns a slot, if it still does.
pub(crate) fn wake(number: u32) {
    let threads = THREADS.lock();
    if let Some(thread) = threads.get(&number) {
        thread.unpark();
    }
}

struct Waiter {
    pid: LocalPid,
    last_seq: u32,
}

thread_local! {
    static WAITER: RefCell<Option<Waiter>> = const { RefCell::new(None) };
}

/// Slots that belonged to threads which have ended. They stay of this kind for ever: who has made such a
/// slot `READY` may be preempted before it looks whose it is, while the thread, which claims its slot
/// without a queue, goes on and ends. Then it unparks a thread too many; were the slot a process's by
/// then, it would queue that process a second time.
static FREE: Mutex<Vec<u32>> = Mutex::new(Vec::new());

impl Waiter {
    fn new() -> Option<Self> {
        let used = FREE.lock().pop();
        let number = match used {
            Some(number) => number,
            None => memory::outside(|m| m.alloc(Class::Slot)).ok()?,
        };
        let slot = memory::slot(number);
        let generation = slot.begin();
        slot.host.store(HOST, Relaxed);
        slot.inbox.store(0, Relaxed);
        THREADS.lock().insert(number, std::thread::current());
        slot.publish(generation, Some(Wait::Blocked));
        Some(Self { pid: LocalPid::new(number, generation)?, last_seq: 0 })
    }

    /// Takes every answer that is there; gives the one of number `seq`.
    fn collect(&self, seq: u32) -> Option<Result<Payload, YieldError>> {
        let slot = memory::slot(self.pid.slot());
        let mut answer = None;
        while slot.word().is_ready() {
            let word = slot.claim(false);
            let (_, mut list) = turn_round(&InMemory, word.head(), 0, u32::MAX >> 1);
            while list != 0 {
                let next = InMemory.next(list).load(Relaxed);
                // SAFETY: the claim took the list out of this thread's own mailbox.
                let mut message = memory::outside(|m| unsafe { message::take(m, list) });
                list = next;
                let kind = message.flag_bits() & KIND;
                let is_answer = matches!(kind, KIND_YIELD_OK | KIND_YIELD_ERR) && message.seq() == seq;
                if is_answer && answer.is_none() {
                    let payload = message.take_payload();
                    answer = Some(if kind == KIND_YIELD_OK {
                        Ok(payload)
                    } else {
                        Err(payload.take::<YieldError>().expect("a failed yield carries its error"))
                    });
                }
                // A late answer's drop is user code, and not this wait's affair.
                let _ = contain(|| drop(message));
            }
            if slot.release(Wait::Blocked) == After::Nothing {
                break;
            }
        }
        answer
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        THREADS.lock().remove(&self.pid.slot());
        let slot = memory::slot(self.pid.slot());
        // A wake makes it READY, for this thread to claim.
        let _ = slot.wake(crate::process::slot::Bind::Life(self.pid.generation()));
        let claimed = slot.claim(false);
        let closed = slot.close();
        for head in [claimed.head(), closed.head()] {
            let mut list = head;
            while list != 0 {
                let next = InMemory.next(list).load(Relaxed);
                // SAFETY: taken out of this thread's own mailbox by the claim and the close.
                let message = memory::outside(|m| unsafe { message::take(m, list) });
                let _ = contain(|| drop(message));
                list = next;
            }
        }
        if closed.generation() < crate::process::slot::GENERATION_MAX {
            FREE.lock().push(self.pid.slot());
        }
    }
}

/// Why a thread could not wait for an answer at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CannotWait {
    /// It is a worker: waiting would keep the answer from being made.
    #[error("a worker cannot wait; ask from the process instead")]
    OnWorker,
    /// It is just ending, or there is no slot left for it.
    #[error("the thread is ending")]
    Ending,
}

/// Hands `act` a fresh reply address and waits for what comes to it.
pub(crate) fn wait_for(
    timeout: Option<Duration>,
    act: impl FnOnce(ReplyTo),
) -> Result<Result<Payload, YieldError>, CannotWait> {
    if crate::worker::current().is_some() {
        return Err(CannotWait::OnWorker);
    }
    // Taken out for the time of the wait: `act` runs user code, which may wait as well.
    let kept = WAITER.try_with(|waiter| waiter.borrow_mut().take()).map_err(|_| CannotWait::Ending)?;
    let mut waiter = match kept {
        Some(waiter) => waiter,
        None => Waiter::new().ok_or(CannotWait::Ending)?,
    };
    waiter.last_seq = waiter.last_seq.wrapping_add(1);
    let seq = waiter.last_seq;
    act(ReplyTo { pid: waiter.pid, seq });
    let deadline = timeout.map(|timeout| clock::deadline(clock::now_nanos(), timeout));
    let answer = loop {
        if let Some(answer) = waiter.collect(seq) {
            break answer;
        }
        match deadline {
            None => std::thread::park(),
            Some(deadline) => {
                let now = clock::now_nanos();
                if now >= deadline {
                    break Err(YieldError::TimedOut);
                }
                std::thread::park_timeout(Duration::from_nanos(deadline - now));
            }
        }
    };
    // One that a wait within this one left is dropped outside of the cell: its drop may run user code.
    let _ = WAITER.try_with(|kept| kept.replace(Some(waiter)));
    Ok(answer)
}

/// Why a thread did not see a process end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// Called on a worker, where waiting would keep the process from ending. Monitor it instead:
    /// [`crate::StepOutput::monitor`].
    #[error("a worker cannot wait for an end; monitor the process instead")]
    OnWorker,
    /// It has not ended in time. It lives on, or its step or stop hook does not end.
    #[error("process {0} has not ended in time")]
    TimedOut(Pid),
    /// No process ever had this PID. Check where it came from.
    #[error("no process has the PID {0}")]
    NotFound(Pid),
    /// The PID belongs to another node.
    #[error("process {0} is on another node")]
    OtherNode(Pid),
    /// The calling thread is ending, or there is no room for one more that waits.
    #[error("this thread cannot wait any more")]
    CannotWait,
}

/// The least time that [`Scheduler::stop`] waits for what follows a kill: a running step, the stop hook.
const AFTER_KILL_MIN: Duration = Duration::from_secs(5);

/// Waits for the end of a process, after `ask` if it is alive.
fn wait_for_end(
    pid: Pid,
    timeout: Option<Duration>,
    ask: impl FnOnce(),
) -> Result<Arc<ExitReason>, WaitError> {
    if crate::worker::current().is_some() {
        return Err(WaitError::OnWorker);
    }
    match relay::check_alive(pid) {
        Err(SendError::NotFound(pid)) => return Err(WaitError::NotFound(pid)),
        Err(SendError::OtherNode(pid)) => return Err(WaitError::OtherNode(pid)),
        // Ended already: found out below, as by one who came a moment later.
        _ => {}
    }
    let mut address = None;
    let answer = wait_for(timeout, |reply| {
        address = Some(reply);
        if links::await_end(pid.local(), reply) {
            ask();
        } else {
            route::complete(reply, Ok(Payload::new(Arc::new(ExitReason::NoProcess))));
        }
    });
    match answer {
        Ok(Ok(payload)) => Ok(payload.take().expect("an end is told by its reason")),
        Ok(Err(_)) => {
            if let Some(reply) = address {
                links::forget_joiner(pid.local(), reply);
            }
            Err(WaitError::TimedOut(pid))
        }
        Err(CannotWait::OnWorker) => Err(WaitError::OnWorker),
        Err(CannotWait::Ending) => Err(WaitError::CannotWait),
    }
}

/// What a thread outside may wait for. Each call takes PIDs of every host of this program.
impl Scheduler {
    /// Sends a request and waits for the answer ([`crate::Message::reply`]). `None`: for as long as it takes.
    ///
    /// # Errors
    /// [`AskError`]: not sent, not answered, not in time, or called on a worker.
    pub fn ask<T: Send + 'static>(
        &self,
        to: Pid,
        content: T,
        timeout: Option<Duration>,
    ) -> Result<Payload, AskError> {
        let mut sent = Ok(());
        let answer = wait_for(timeout, |reply| {
            let message = Message::new(Payload::new(content), Some(reply.pid), Topic::DEFAULT, REQUEST);
            sent = relay::send_message(to, message.with_seq(reply.seq));
            if sent.is_err() {
                // The dropped request has said so already, unless there was no room to say it.
                route::complete(reply, Err(YieldError::NoReply));
            }
        })?;
        sent?;
        Ok(answer?)
    }

    /// Waits for the end of a process: for its last act, the word to its monitors and links included.
    /// `None`: for as long as it takes. One that has ended before gives [`ExitReason::NoProcess`].
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn join(&self, pid: Pid, timeout: Option<Duration>) -> Result<Arc<ExitReason>, WaitError> {
        wait_for_end(pid, timeout, || {})
    }

    /// Asks a process to end ([`crate::Event::Cancel`]) and waits till it has: its stop hook
    /// ([`crate::Process::close`]) has returned by then. What has not ended after `timeout` is killed, and
    /// waited for as long again (at least 5 seconds), for a running step and the stop hook cannot be cut short.
    ///
    /// Any number of threads may stop one process; it is asked once, and all return after the hook. The
    /// earliest deadline counts. A process that has ended before gives [`ExitReason::NoProcess`].
    ///
    /// # Errors
    /// [`WaitError`]; after [`WaitError::TimedOut`] the process has been killed and will end when its step
    /// does.
    pub fn stop(&self, pid: Pid, timeout: Duration) -> Result<Arc<ExitReason>, WaitError> {
        let whole = timeout.saturating_add(timeout.max(AFTER_KILL_MIN));
        wait_for_end(pid, Some(whole), || links::stop(pid.local(), "stopped".into(), timeout))
    }
}
