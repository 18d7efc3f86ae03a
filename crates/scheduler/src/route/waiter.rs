//! Who waits for an answer without being a process: a thread outside, or a future. It has a slot of its own, so
//! that an answer finds it as it finds a process.
//!
//! The slot belongs to who waits, not to a host: who makes it `READY` wakes the waker that lies with it, and the
//! waiting side claims the slot itself. Slots are kept by the thread that used them last and serve one wait
//! after the other; answers to earlier waits, which came too late, are told by their number and dropped.

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::command::YieldError;
use crate::memory::{self, Class, InMemory};
use crate::process::event_queue::{Cells, turn_round};
use crate::process::message::{self, KIND, KIND_YIELD_ERR, KIND_YIELD_OK, Message, REQUEST};
use crate::process::slot::{After, Wait};
use crate::process::table::ReplyTo;
use crate::process::{ExitReason, SendError, Topic, contain};
use crate::route::{self, links, relay};
use crate::sync::fixed::Mutex;
use crate::sync::{AtomicWaker, Relaxed};
use crate::worker::with_magazines;
use crate::{AskError, LocalPid, Payload, Pid, Scheduler, task};

/// The host number of slots that belong to who waits.
pub(crate) const HOST: u16 = u16::MAX;

/// Wakes who waits with a slot, if anybody does.
pub(crate) fn wake(number: u32) {
    // Another runtime's waker may panic.
    let _ = contain(|| waker_of(number).wake());
}

/// The place for a waker that each such slot has.
fn waker_of(number: u32) -> &'static AtomicWaker {
    memory::slot(number).body.with(|body| {
        // SAFETY: `Waiter::new` wrote the address before the slot became one of this kind, which it stays for
        // ever; nobody writes it again, and what it points to is never freed.
        unsafe { &*body.cast::<*const AtomicWaker>().read() }
    })
}

/// A slot for one wait at a time.
struct Waiter {
    pid: LocalPid,
    last_seq: u32,
}

/// As many slots as one thread keeps: a future that waits for an answer may be dropped by another thread than
/// the one that began it.
const KEPT_MAX: usize = 64;

thread_local! {
    static KEPT: RefCell<Vec<Waiter>> = const { RefCell::new(Vec::new()) };
}

/// Slots that no thread keeps. They stay of this kind for ever: who has made such a slot `READY` may be
/// preempted before it looks whose it is, while the waiting side, which claims its slot without a queue, goes
/// on and ends. Then it wakes somebody too much; were the slot a process's by then, it would queue that
/// process a second time.
static FREE: Mutex<Vec<u32>> = Mutex::new(Vec::new());

impl Waiter {
    fn new() -> Option<Self> {
        let used = FREE.lock().pop();
        let number = match used {
            Some(number) => number,
            None => {
                let number = with_magazines(|m| m.alloc(Class::Slot)).ok()?;
                let place: *const AtomicWaker = Box::leak(Box::new(AtomicWaker::new()));
                // SAFETY: the slot is FREE and ours.
                memory::slot(number)
                    .body
                    .with_mut(|body| unsafe { body.cast::<*const AtomicWaker>().write(place) });
                number
            }
        };
        let slot = memory::slot(number);
        let generation = slot.begin();
        slot.host.store(HOST, Relaxed);
        slot.inbox.store(0, Relaxed);
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
                // SAFETY: the claim took the list out of this waiter's own mailbox.
                let mut message = with_magazines(|m| unsafe { message::take(m, list) });
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

    fn poll_answer(&self, seq: u32, cx: &mut Context<'_>) -> Poll<Result<Payload, YieldError>> {
        if let Some(answer) = self.collect(seq) {
            return Poll::Ready(answer);
        }
        waker_of(self.pid.slot()).register(cx.waker());
        // What came before the waker was there has woken nobody.
        match self.collect(seq) {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let slot = memory::slot(self.pid.slot());
        // A wake makes it READY, for this side to claim.
        let _ = slot.wake(crate::process::slot::Bind::Life(self.pid.generation()));
        let claimed = slot.claim(false);
        let closed = slot.close();
        for head in [claimed.head(), closed.head()] {
            let mut list = head;
            while list != 0 {
                let next = InMemory.next(list).load(Relaxed);
                // SAFETY: taken out of this waiter's own mailbox by the claim and the close.
                let message = with_magazines(|m| unsafe { message::take(m, list) });
                let _ = contain(|| drop(message));
                list = next;
            }
        }
        if closed.generation() < crate::process::slot::GENERATION_MAX {
            FREE.lock().push(self.pid.slot());
        }
    }
}

/// A waiter that goes back to the thread that drops it.
pub(crate) struct Lent(Option<Waiter>);

impl Lent {
    fn new() -> Result<Self, CannotWait> {
        let kept = KEPT.try_with(|kept| kept.borrow_mut().pop()).map_err(|_| CannotWait::Ending)?;
        let waiter = match kept {
            Some(waiter) => waiter,
            None => Waiter::new().ok_or(CannotWait::Ending)?,
        };
        Ok(Self(Some(waiter)))
    }

    fn waiter(&self) -> &Waiter {
        self.0.as_ref().expect("taken by the drop alone")
    }

    /// The address for the answer to come.
    fn next(&mut self) -> ReplyTo {
        let waiter = self.0.as_mut().expect("taken by the drop alone");
        waiter.last_seq = waiter.last_seq.wrapping_add(1);
        ReplyTo { pid: waiter.pid, seq: waiter.last_seq }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(waiter) = self.0.take() else { return };
        // Whoever waited must not be woken by answers that come late. Its drop is another runtime's code.
        let _ = contain(|| drop(waker_of(waiter.pid.slot()).take()));
        let mut waiter = Some(waiter);
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT_MAX {
                kept.extend(waiter.take());
            }
        });
        // One too many, or the thread ends: dropped here, outside of the cell, for its drop runs user code.
        drop(waiter);
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

/// Hands `act` a fresh reply address and waits on this thread for what comes to it.
pub(crate) fn wait_for(
    timeout: Option<Duration>,
    act: impl FnOnce(ReplyTo),
) -> Result<Result<Payload, YieldError>, CannotWait> {
    if crate::worker::current().is_some() {
        return Err(CannotWait::OnWorker);
    }
    // `act` runs user code, which may wait as well: by then this slot is taken out.
    let mut lent = Lent::new()?;
    let reply = lent.next();
    act(reply);
    let answer = task::context::wait(poll_fn(|cx| lent.waiter().poll_answer(reply.seq, cx)), timeout);
    Ok(answer.unwrap_or(Err(YieldError::TimedOut)))
}

/// As [`wait_for`], for a future: nobody is kept from running meanwhile. `limit` is a moment of
/// [`crate::clock`].
pub(crate) async fn answer(
    timeout: Duration,
    act: impl FnOnce(ReplyTo),
) -> Result<Result<Payload, YieldError>, CannotWait> {
    let mut lent = Lent::new()?;
    let reply = lent.next();
    act(reply);
    let answer = poll_fn(|cx| lent.waiter().poll_answer(reply.seq, cx));
    Ok(crate::time::timeout(timeout, answer).await.unwrap_or(Err(YieldError::TimedOut)))
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
