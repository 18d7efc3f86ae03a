//! Answers: the right to give one, and why there is none.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::time::Duration;

use crate::command::YieldError;
use crate::process::SendError;
use crate::process::table::ReplyTo;
use crate::route::waiter::{self, CannotWait};
use crate::{LocalPid, Payload, route};

/// The right to answer one request, once: 12 bytes within the message. Dropped unused, it tells the asker
/// that there will be no answer.
pub struct Reply<R> {
    to: ReplyTo,
    answer: PhantomData<fn(R)>,
}

impl<R> Reply<R> {
    pub(crate) fn new(to: ReplyTo) -> Self {
        Self { to, answer: PhantomData }
    }

    pub(super) fn to(&self) -> ReplyTo {
        self.to
    }

    /// Who asks.
    #[must_use]
    pub fn asker(&self) -> LocalPid {
        self.to.pid
    }
}

impl<R: Send + 'static> Reply<R> {
    /// Answers. To an asker that has gone, or waits no longer, it does nothing.
    pub fn send(self, answer: R) {
        let this = ManuallyDrop::new(self);
        route::answer(this.to, Ok(Payload::new(answer)));
    }
}

impl<R> Drop for Reply<R> {
    fn drop(&mut self) {
        route::answer(self.to, Err(YieldError::NoReply));
    }
}

/// Why a request has no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// It was not accepted. Nothing happened.
    #[error(transparent)]
    Send(#[from] SendError),
    /// No answer came in time. It may still be carried out; a late answer is dropped.
    #[error("no answer in time")]
    TimedOut,
    /// The receiver dropped the request, or ended with it.
    #[error("the request was dropped without an answer")]
    NoReply,
    /// Asked from a worker, where waiting would keep the answer from being made. Ask by
    /// [`crate::Context::ask`] or [`crate::StepOutput::ask`].
    #[error("a worker cannot wait for an answer; ask from the process instead")]
    OnWorker,
    /// The answer is of another type than was asked for.
    #[error("the answer is a {found}, not a {expected}")]
    OtherType {
        /// What was asked for.
        expected: &'static str,
        /// What came.
        found: &'static str,
    },
    /// The calling thread is ending, or there is no room for one more that waits.
    #[error("this thread cannot wait any more")]
    CannotWait,
    /// It would close a circle of askers, or the like; see the error within.
    #[error(transparent)]
    Yield(YieldError),
}

impl From<YieldError> for AskError {
    fn from(error: YieldError) -> Self {
        match error {
            YieldError::TimedOut => AskError::TimedOut,
            YieldError::NoReply => AskError::NoReply,
            YieldError::Send(error) => AskError::Send(error),
            other => AskError::Yield(other),
        }
    }
}

impl From<CannotWait> for AskError {
    fn from(why: CannotWait) -> Self {
        match why {
            CannotWait::OnWorker => AskError::OnWorker,
            CannotWait::Ending => AskError::CannotWait,
        }
    }
}

impl AskError {
    /// Reads the result of a yield as the answer to a request for an `R`.
    ///
    /// # Errors
    /// What the yield failed with, or [`AskError::OtherType`].
    pub fn read<R: Send + 'static>(result: Result<Payload, YieldError>) -> Result<R, AskError> {
        super::read(result)
    }
}

/// Sends by `send` and waits for the answer, on a thread that is no worker.
pub(super) fn from_thread<R: Send + 'static>(
    timeout: Duration,
    send: impl FnOnce(ReplyTo) -> Result<(), SendError>,
) -> Result<R, AskError> {
    let mut sent = Ok(());
    let answer = waiter::wait_for(Some(timeout), |reply| {
        sent = send(reply);
        if sent.is_err() {
            // The message and the reply in it are dropped by now; this is for one that kept it.
            route::complete(reply, Err(YieldError::NoReply));
        }
    })?;
    sent?;
    super::read(answer)
}

/// As [`from_thread`], for a future.
pub(super) async fn from_future<R: Send + 'static>(
    timeout: Duration,
    send: impl FnOnce(ReplyTo) -> Result<(), SendError>,
) -> Result<R, AskError> {
    let mut sent = Ok(());
    let answer = waiter::answer(timeout, |reply| {
        sent = send(reply);
        if sent.is_err() {
            route::complete(reply, Err(YieldError::NoReply));
        }
    })
    .await?;
    sent?;
    super::read(answer)
}
