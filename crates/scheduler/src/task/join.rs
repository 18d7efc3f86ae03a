//! The handle of a task: its result, and the right to abort it.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::body::Owned;
use super::{context, coop};
use crate::process::panic_text;
use crate::route::{self, links};
use crate::{LocalPid, Pid, SpawnError};

/// Why a task has no result.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// It was aborted, killed, or ended with its host.
    #[error("the task was aborted")]
    Aborted,
    /// It panicked, or the drop of its future did. The payload is the panic's.
    #[error("the task panicked: {0}")]
    Panicked(PanicPayload),
    /// It was never spawned.
    #[error("the task was not spawned: {0}")]
    NotSpawned(SpawnError),
    /// [`JoinHandle::wait`] was called on a worker, which would wait for itself. The task goes on. Await
    /// the handle instead.
    #[error("a worker cannot wait for a task; await the handle instead")]
    OnWorker,
    /// It has not ended in time. The task goes on; its result is dropped.
    #[error("the task has not ended in time")]
    TimedOut,
}

/// What a panic left. Behind a lock of no use, so that a [`JoinError`] is `Sync` as errors should be.
pub struct PanicPayload(Box<dyn Any + Send>);

// SAFETY: a shared reference gives nothing but the text of a `str` or `String`, which are `Sync`.
unsafe impl Sync for PanicPayload {}

impl fmt::Display for PanicPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&panic_text(&*self.0))
    }
}

impl fmt::Debug for PanicPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PanicPayload({self})")
    }
}

impl PanicPayload {
    /// The payload, for [`std::panic::resume_unwind`].
    #[must_use]
    pub fn into_inner(self) -> Box<dyn Any + Send> {
        self.0
    }
}

impl JoinError {
    pub(super) fn panicked(payload: Box<dyn Any + Send>) -> Self {
        JoinError::Panicked(PanicPayload(payload))
    }

    /// Did the task panic?
    #[must_use]
    pub fn is_panic(&self) -> bool {
        matches!(self, JoinError::Panicked(_))
    }

    /// Was the task aborted?
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        matches!(self, JoinError::Aborted)
    }

    /// The panic's payload.
    ///
    /// # Errors
    /// The error itself, if it is no panic.
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send>, JoinError> {
        match self {
            JoinError::Panicked(payload) => Ok(payload.into_inner()),
            other => Err(other),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinError({self})")
    }
}

enum Inner<T> {
    Task(LocalPid, Owned<T>),
    Refused(Option<SpawnError>),
}

/// Owns the result of a task. Await it, or [`JoinHandle::wait`] on a thread outside. Dropping it leaves the
/// task running, as with a thread's handle.
#[must_use = "dropping a handle leaves the task running; call `detach` to say so"]
pub struct JoinHandle<T>(Inner<T>);

impl<T> JoinHandle<T> {
    pub(super) fn new(pid: LocalPid, task: Owned<T>) -> Self {
        Self(Inner::Task(pid, task))
    }

    pub(super) fn refused(why: SpawnError) -> Self {
        Self(Inner::Refused(Some(why)))
    }

    /// The task's address; `None` if it was not spawned.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        match &self.0 {
            Inner::Task(pid, _) => Some(route::pid_of(*pid)),
            Inner::Refused(_) => None,
        }
    }

    /// Is there a result, whatever it is?
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Inner::Task(_, task) => task.header().is_done(),
            Inner::Refused(_) => true,
        }
    }

    /// Asks a worker to end the task where it waits, or after the poll that runs. What it has computed by
    /// then still counts. Again, or after the end, it does nothing.
    pub fn abort(&self) {
        if let Inner::Task(pid, task) = &self.0
            && !task.header().is_done()
        {
            links::kill(*pid, "aborted".into());
        }
    }

    /// Lets the task go on by itself: the same as dropping the handle.
    pub fn detach(self) {}

    /// A handle that aborts the task when it is dropped.
    pub fn abort_on_drop(self) -> AbortOnDrop<T> {
        AbortOnDrop(self)
    }

    /// Waits on this thread, which is no worker. `None`: for as long as it takes.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn wait(mut self, limit: Option<Duration>) -> Result<T, JoinError> {
        if crate::worker::current().is_some() {
            return Err(JoinError::OnWorker);
        }
        context::wait(&mut self, limit).unwrap_or(Err(JoinError::TimedOut))
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    /// # Panics
    /// When it is polled again after it gave its result.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const AGAIN: &str = "a join handle was polled after it gave its result";
        std::task::ready!(coop::poll_proceed(cx));
        match &mut self.0 {
            Inner::Task(_, task) => {
                if !task.header().listen_for_end(cx.waker()) {
                    coop::refund();
                    return Poll::Pending;
                }
                // SAFETY: done.
                Poll::Ready(unsafe { task.take() }.expect(AGAIN))
            }
            Inner::Refused(why) => Poll::Ready(Err(JoinError::NotSpawned(why.take().expect(AGAIN)))),
        }
    }
}

impl<T> Unpin for JoinHandle<T> {}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::Task(pid, _) => write!(f, "JoinHandle({pid:?})"),
            Inner::Refused(why) => write!(f, "JoinHandle(not spawned: {why:?})"),
        }
    }
}

/// A [`JoinHandle`] that takes its task along; by [`JoinHandle::abort_on_drop`].
#[derive(Debug)]
pub struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T> std::ops::Deref for AbortOnDrop<T> {
    type Target = JoinHandle<T>;
    fn deref(&self) -> &JoinHandle<T> {
        &self.0
    }
}

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, JoinError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}
