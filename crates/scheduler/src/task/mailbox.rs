//! A mailbox for an async function: the events of its process, taken one by one where the code waits.

use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::body::create_task;
use super::{context, coop};
use crate::memory;
use crate::process::message::{self, Event};
use crate::process::{Events, Place, SpawnOptions};
use crate::sync::Relaxed;
use crate::{Handle, LocalPid, Pid, SpawnError, route};

/// The receiving end of an async actor's mailbox, for messages of type `M`; given to the function of
/// [`crate::Scheduler::spawn_async`].
///
/// It belongs to that function's process: budgets, resets, monitors and names are those of any process. What
/// has not been received when the function ends is dropped and counted.
pub struct Mailbox<M> {
    pid: LocalPid,
    takes: PhantomData<fn(M)>,
}

impl<M> fmt::Debug for Mailbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mailbox({:?})", self.pid)
    }
}

/// The process has been asked to end. What was queued before has been received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("asked to end: {reason}")]
pub struct Stop {
    /// Why.
    pub reason: Arc<str>,
    /// When it is killed if it has not ended by then.
    pub deadline: Option<Instant>,
}

impl<M: Send + 'static> Mailbox<M> {
    /// The address of this mailbox.
    #[must_use]
    pub fn me(&self) -> Handle<M> {
        Handle::of(self.pid)
    }

    /// The full address of this mailbox.
    #[must_use]
    pub fn pid(&self) -> Pid {
        route::pid_of(self.pid)
    }

    /// How many events wait, as of the beginning of this poll. Constant time.
    ///
    /// # Panics
    /// As [`Self::event`].
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.events().waiting()
    }

    /// The next message of type `M`. Everything else that comes (ends of others, messages of other types) is
    /// dropped; to see it, use [`Self::event`]. Dropped while it waits, it has taken nothing.
    ///
    /// # Errors
    /// [`Stop`]: the process has been asked to end. The mailbox stays open: one may go on receiving.
    ///
    /// # Panics
    /// As [`Self::event`].
    pub fn receive(&mut self) -> impl Future<Output = Result<M, Stop>> + Send {
        poll_fn(|cx| self.poll_with(cx, Self::take_next))
    }

    /// The next event, whatever it is.
    ///
    /// # Panics
    /// Polled by another task than the one it was given to.
    pub fn event(&mut self) -> impl Future<Output = Event> + Send {
        poll_fn(|cx| self.poll_with(cx, |events| events.next()))
    }

    fn poll_with<R>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut Events<'_>) -> Option<R>,
    ) -> Poll<R> {
        std::task::ready!(coop::poll_proceed(cx));
        match take(&mut self.events()) {
            Some(taken) => Poll::Ready(taken),
            None if memory::slot(self.pid.slot()).inbox.load(Relaxed) != 0 => {
                // The monitor asks this worker to make way.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            // The process waits with an empty inbox: a message wakes it.
            None => {
                coop::refund();
                context::listen_for_events(cx.waker());
                Poll::Pending
            }
        }
    }

    fn take_next(events: &mut Events<'_>) -> Option<Result<M, Stop>> {
        loop {
            let cell = events.next_cell()?;
            // SAFETY: `next_cell` took it out of the mailbox of the process that this worker runs.
            if let Some(message) = unsafe { message::take_plain(&events.worker.magazines, cell) } {
                return Some(Ok(message));
            }
            match events.open(cell) {
                Some(Event::Message(message)) => {
                    if let Ok(message) = message.take::<M>() {
                        return Some(Ok(message));
                    }
                }
                Some(Event::Cancel(cancel)) => {
                    context::cancel();
                    return Some(Err(Stop { reason: cancel.reason, deadline: cancel.deadline }));
                }
                _ => {}
            }
        }
    }

    fn events(&self) -> Events<'_> {
        let worker = crate::worker::current().filter(|_| context::polled_pid() == Some(self.pid));
        let worker = worker.expect("a mailbox was polled outside of the task it was given to");
        Events { worker, slot: memory::slot(self.pid.slot()), left: u32::MAX }
    }
}

/// The function is called in the first poll, when the process knows its address.
pub(super) fn spawn<M, F>(
    place: Place<'_>,
    act: impl FnOnce(Mailbox<M>) -> F + Send + 'static,
    options: Option<&SpawnOptions>,
) -> Result<Handle<M>, SpawnError>
where
    M: Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let future = async move {
        let pid = context::polled_pid().expect("a task is polled");
        act(Mailbox { pid, takes: PhantomData }).await;
    };
    let handle = create_task(place, future, true, options)?;
    Ok(Handle::from_pid(handle.pid().expect("it was spawned")))
}
