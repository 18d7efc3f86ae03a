//! A thread outside that waits for an answer: it has a slot of its own, so that an answer finds it as it
//! finds a process.
//!
//! The slot belongs to the thread, not to a host: who makes it `READY` unparks the thread, and the thread
//! claims the slot itself. It stays with the thread for all its waits; answers to earlier ones, which
//! came too late, are told by their number and dropped.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::LazyLock;
use std::thread::Thread;
use std::time::Duration;

use crate::command::YieldError;
use crate::memory::{self, Class, InMemory};
use crate::process::event_queue::{Cells, turn_round};
use crate::process::message::{self, KIND, KIND_YIELD_OK};
use crate::process::slot::{After, Wait};
use crate::process::table::ReplyTo;
use crate::sync::Relaxed;
use crate::sync::fixed::Mutex;
use crate::{LocalPid, Payload, clock};

/// The host number of slots that belong to threads.
pub(crate) const HOST: u16 = u16::MAX;

static THREADS: LazyLock<Mutex<HashMap<u32, Thread>>> = LazyLock::new(Mutex::default);

/// Unparks the thread that owns a slot, if it still does.
pub(crate) fn wake(number: u32) {
    let threads = THREADS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
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

impl Waiter {
    fn new() -> Option<Self> {
        let number = memory::outside(|m| m.alloc(Class::Slot)).ok()?;
        let slot = memory::slot(number);
        let generation = slot.begin();
        slot.host.store(HOST, Relaxed);
        slot.inbox.store(0, Relaxed);
        THREADS
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .insert(number, std::thread::current());
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
                if message.seq() == seq && answer.is_none() {
                    let payload = message.take_payload();
                    answer = Some(if message.flag_bits() & KIND == KIND_YIELD_OK {
                        Ok(payload)
                    } else {
                        Err(payload.take::<YieldError>().expect("a failed yield carries its error"))
                    });
                }
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
        THREADS.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(&self.pid.slot());
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
                drop(memory::outside(|m| unsafe { message::take(m, list) }));
                list = next;
            }
        }
        if closed.generation() < crate::process::slot::GENERATION_MAX {
            memory::outside(|m| m.free(Class::Slot, self.pid.slot()));
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
    let _ = WAITER.try_with(|kept| *kept.borrow_mut() = Some(waiter));
    Ok(answer)
}
