//! The trait of executors: run this call, give back its outcome.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::definition::ActorDefinition;
use crate::event::StoredEvent;
use crate::id::{InstanceId, Key, StreamName, Tenant};
use crate::outcome::{CallError, Head, Outcome};

/// Runs calls of some actors.
pub trait Executor: Send + Sync + 'static {
    /// The actors it runs.
    fn definitions(&self) -> Vec<ActorDefinition>;

    /// Starts a call and returns without waiting for it. [`Done`] travels with the call; dropping it says
    /// that the call was lost.
    fn start(&self, call: Call, done: Done);

    /// Has an actor with a queue of its own kind choose among rows that wait. It sees the state, and changes
    /// nothing.
    fn select(&self, instance: &Arc<Instance>, head: Arc<Head>, offers: Vec<Offer>, done: SelectDone) {
        let _ = (head, offers);
        done(Err(format!("actor `{}` has no select", instance.definition.name)));
    }
}

/// A row that an actor's own `select` may choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Its place, and its name in the answer.
    pub id: crate::id::QueueId,
    /// Its event's type; `None`: the event is not at hand.
    pub kind: Option<Arc<str>>,
    /// Its event's time.
    pub time: Option<crate::event::Timestamp>,
    /// Its group.
    pub group: Option<crate::id::Group>,
    /// Its priority.
    pub priority: i32,
    /// Failures and crashes before, plus 1.
    pub attempt: u32,
}

/// Takes the answer of a `select`, once: places in the order in which they shall start, or why it failed.
pub type SelectDone = Box<dyn FnOnce(Result<Vec<crate::id::QueueId>, String>) + Send>;

/// One call of an actor.
pub struct Call {
    /// What its actor and its instance are.
    pub instance: Arc<Instance>,
    /// The event.
    pub event: Arc<StoredEvent>,
    /// The event's stream; `None` if it was sent to the instance itself.
    pub stream: Option<StreamName>,
    /// Failures and crashes before, plus 1.
    pub attempt: u32,
    /// Place in the queue of the row that this event first came as; the same over retries, take-over and
    /// redrive. With the instance it makes the idempotency key.
    pub origin: i64,
    /// The head of the instance, at any time.
    pub head: Arc<HeadCell>,
    /// Whether the call should end.
    pub signal: Arc<Signal>,
    /// Takes what the call asks for while it runs.
    pub port: Arc<dyn Port>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("instance", &self.instance)
            .field("event", &self.event)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// What stays the same over all calls of an instance.
#[derive(Debug)]
pub struct Instance {
    /// Its number.
    pub id: InstanceId,
    /// Its tenant.
    pub tenant: Tenant,
    /// Its actor.
    pub definition: Arc<ActorDefinition>,
    /// Its key.
    pub key: Key,
}

/// The newest state of an instance, for the calls that read it at their first use.
#[derive(Debug, Default)]
pub struct HeadCell(Mutex<Arc<Head>>);

impl HeadCell {
    /// With that head.
    #[must_use]
    pub fn new(head: Head) -> Self {
        Self(Mutex::new(Arc::new(head)))
    }

    /// The head as it is now.
    #[must_use]
    pub fn load(&self) -> Arc<Head> {
        Arc::clone(&self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Another head.
    pub fn store(&self, head: Arc<Head>) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = head;
    }
}

/// How a call ended.
#[derive(Debug)]
pub enum Ended {
    /// It is through.
    Done(Outcome),
    /// It failed; all it did is discarded.
    Failed(CallError),
}

/// The way back of a call's end.
pub struct Done(Option<Box<dyn FnOnce(Ended) + Send>>);

impl Done {
    /// Calls that, once.
    #[must_use]
    pub fn new(done: impl FnOnce(Ended) + Send + 'static) -> Self {
        Self(Some(Box::new(done)))
    }

    /// The call has ended so.
    pub fn end(mut self, ended: Ended) {
        if let Some(done) = self.0.take() {
            done(ended);
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Ended::Failed(CallError::Lost));
        }
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Done")
    }
}

/// Takes what a running call asks for.
pub trait Port: Send + Sync {
    /// Carries it out, or sees to it that somebody does; returns at once.
    fn request(&self, request: crate::context::Request);
}

/// Why a call should end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Abort {
    /// Its time is up.
    TimedOut = 1,
    /// The instance has another owner; nothing that the call does will be kept.
    Fenced = 2,
    /// The worker stops.
    Stopping = 3,
}

const KILLED: u8 = 0x80;

/// Tells a call that it should end: first by word, then by force.
#[derive(Debug, Default)]
pub struct Signal {
    state: AtomicU8,
    wakers: Mutex<Vec<Waker>>,
}

impl Signal {
    /// Asks the call to end. The first reason stays.
    pub fn abort(&self, why: Abort) {
        // AcqRel and the lock in `wake`: who registers a waker and then reads the old state is woken.
        let _ = self.state.compare_exchange(0, why as u8, Ordering::AcqRel, Ordering::Acquire);
        self.wake();
    }

    /// Has the executor end the call, whatever it does.
    pub fn kill(&self) {
        self.state.fetch_or(KILLED, Ordering::AcqRel);
        self.wake();
    }

    fn wake(&self) {
        let wakers = std::mem::take(&mut *self.lock());
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        self.wakers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Why the call should end, if it should.
    #[must_use]
    pub fn aborted(&self) -> Option<Abort> {
        match self.state.load(Ordering::Acquire) & !KILLED {
            1 => Some(Abort::TimedOut),
            2 => Some(Abort::Fenced),
            3 => Some(Abort::Stopping),
            _ => None,
        }
    }

    /// Whether the executor should end it.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.state.load(Ordering::Acquire) & KILLED != 0
    }

    /// Ready when the call should end.
    pub fn poll_aborted(&self, cx: &Context<'_>) -> Poll<Abort> {
        self.poll(cx, Self::aborted)
    }

    /// Ready when the executor should end it.
    pub fn poll_killed(&self, cx: &Context<'_>) -> Poll<()> {
        self.poll(cx, |signal| signal.is_killed().then_some(()))
    }

    fn poll<T>(&self, cx: &Context<'_>, read: impl Fn(&Self) -> Option<T>) -> Poll<T> {
        if let Some(found) = read(self) {
            return Poll::Ready(found);
        }
        let mut wakers = self.lock();
        if let Some(found) = read(self) {
            return Poll::Ready(found);
        }
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}
