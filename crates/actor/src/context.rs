//! What `ctx` offers to an actor's code.
//!
//! What changes the world is only written down here, and committed with the end of the event's row, or
//! discarded with a failure. What needs somebody else while the call runs is a [`Request`].

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::event::Event;
use crate::executor::{Abort, Call};
use crate::id::{ActorName, Group, InstanceId, Key, ScheduleId, StreamName, Tenant};
use crate::outcome::{
    CallError, Destination, Emit, Head, Outcome, Replay, ScheduleChange, State, StateUse, Tell, When,
};

/// What a call asks for while it runs.
#[derive(Debug)]
pub enum Request {
    /// To be told when every outcome that it stands on is committed.
    Settled(Answer<()>),
    /// To be told after that time.
    Sleep(Duration, Answer<()>),
    /// To write a line to the log.
    Log(Level, String),
}

/// How much a line of the log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For who looks for a fault.
    Debug,
    /// For who wants to know.
    Info,
    /// Something is odd.
    Warn,
    /// Something is wrong.
    Error,
}

struct Slot<T> {
    value: Option<T>,
    is_gone: bool,
    waker: Option<Waker>,
}

/// Where an answer is given; see [`answer`].
pub struct Answer<T>(Arc<Mutex<Slot<T>>>);

/// Where it is awaited. `None`: who should have answered is gone.
pub struct Awaited<T>(Arc<Mutex<Slot<T>>>);

/// A place for one answer.
#[must_use]
pub fn answer<T>() -> (Answer<T>, Awaited<T>) {
    let slot = Arc::new(Mutex::new(Slot { value: None, is_gone: false, waker: None }));
    (Answer(Arc::clone(&slot)), Awaited(slot))
}

impl<T> Answer<T> {
    /// Gives it.
    pub fn give(self, value: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).value = Some(value);
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        let waker = {
            let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            slot.is_gone = true;
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Awaited<T> {
    type Output = Option<T>;
    fn poll(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Option<T>> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.value.take() {
            Some(value) => Poll::Ready(Some(value)),
            None if slot.is_gone => Poll::Ready(None),
            None => {
                slot.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer")
    }
}

impl<T> fmt::Debug for Awaited<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Awaited")
    }
}

/// What a state must be: readable, writable, with a value to begin with.
pub trait StateType: Serialize + DeserializeOwned + Default + Clone + Send + Sync + 'static {}
impl<T: Serialize + DeserializeOwned + Default + Clone + Send + Sync + 'static> StateType for T {}

type Update<S> = Box<dyn Fn(&mut S) + Send + Sync>;

struct View<S> {
    basis: u64,
    value: S,
    was_read: bool,
    updates: Vec<Update<S>>,
}

/// What an actor's code may know and do during one call.
pub struct Context<S> {
    call: Call,
    view: Option<View<S>>,
    emits: Vec<Emit>,
    sends: Vec<Tell>,
    schedules: Vec<ScheduleChange>,
}

impl<S> fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("call", &self.call).finish_non_exhaustive()
    }
}

/// The state of a head.
///
/// # Errors
/// [`CallError::Unreadable`] when what is stored is no `S`.
pub fn read<S: StateType>(head: &Head) -> Result<S, CallError> {
    if let Some(value) = head.state.decoded.as_ref().and_then(|any| any.downcast_ref::<S>()) {
        return Ok(value.clone());
    }
    match &head.state.bytes {
        None => Ok(S::default()),
        Some(bytes) => decode(bytes, "the state"),
    }
}

/// Reads JSON; the error names the path.
///
/// # Errors
/// [`CallError::Unreadable`]
pub fn decode<T: DeserializeOwned>(bytes: &[u8], what: &'static str) -> Result<T, CallError> {
    serde_json::from_slice(bytes).or_else(|_| {
        // Again, keeping the path; it happens for faulty texts only.
        serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(bytes)).map_err(|error| {
            CallError::Unreadable { what, why: format!("at {}: {}", error.path(), error.inner()) }
        })
    })
}

fn write<S: StateType>(value: S, bytes_max: usize) -> Result<State, CallError> {
    let bytes = serde_json::to_vec(&value)
        .map_err(|error| CallError::Failed(format!("the state cannot be written as JSON: {error}")))?;
    if bytes.len() > bytes_max {
        return Err(CallError::StateTooLarge { bytes: bytes.len(), bytes_max });
    }
    Ok(State {
        bytes: Some(Bytes::from(bytes)),
        decoded: Some(Arc::new(value) as Arc<dyn Any + Send + Sync>),
    })
}

struct Updates<S> {
    updates: Vec<Update<S>>,
    bytes_max: usize,
}

impl<S: StateType> Replay for Updates<S> {
    fn replay(&mut self, head: Arc<Head>, done: Box<dyn FnOnce(Result<State, CallError>) + Send>) {
        let run = std::panic::AssertUnwindSafe(|| {
            let mut value = read::<S>(&head)?;
            self.updates.iter().for_each(|update| update(&mut value));
            write(value, self.bytes_max)
        });
        done(
            std::panic::catch_unwind(run)
                .unwrap_or_else(|panic| Err(CallError::Panicked(panic_text(&*panic)))),
        );
    }
}

/// What a panic said, if it was a text.
#[must_use]
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "with something that is no text".to_owned())
}

impl<S: StateType> Context<S> {
    /// For that call.
    #[must_use]
    pub fn new(call: Call) -> Self {
        Self { call, view: None, emits: Vec::new(), sends: Vec::new(), schedules: Vec::new() }
    }

    /// The tenant.
    #[must_use]
    pub fn tenant(&self) -> &Tenant {
        &self.call.instance.tenant
    }

    /// The instance's number.
    #[must_use]
    pub fn instance_id(&self) -> InstanceId {
        self.call.instance.id
    }

    /// The instance's key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.call.instance.key
    }

    /// The event whole: id, type, source, headers, the data as it was received.
    #[must_use]
    pub fn event(&self) -> &Event {
        &self.call.event.event
    }

    /// Failures and crashes before, plus 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.call.attempt
    }

    /// A name for this event at this instance, for the outside: the same over retries, take-over and redrive.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        format!("{}/{}", self.call.instance.id, self.call.origin)
    }

    fn view(&mut self) -> Result<&mut View<S>, CallError> {
        if self.view.is_none() {
            let head = self.call.head.load();
            let value = read(&head)?;
            self.view = Some(View { basis: head.number, value, was_read: false, updates: Vec::new() });
        }
        Ok(self.view.as_mut().expect("made above"))
    }

    /// The state, as it was at the first use and with this call's own updates. If another call of the same
    /// instance changes it before this one ends, this one runs again; prefer [`Context::update`] where that
    /// can happen.
    ///
    /// # Errors
    /// [`CallError::Unreadable`] when what is stored is no `S`.
    pub fn state(&mut self) -> Result<&S, CallError> {
        let view = self.view()?;
        view.was_read = true;
        Ok(&view.value)
    }

    /// The newest state, without the promise that it stays so.
    ///
    /// # Errors
    /// [`CallError::Unreadable`] when what is stored is no `S`.
    pub fn peek(&self) -> Result<S, CallError> {
        match &self.view {
            Some(view) => Ok(view.value.clone()),
            None => read(&self.call.head.load()),
        }
    }

    /// Changes the state, at once and, should another call come between, again on what that one left. The
    /// function uses nothing but its argument and what it holds.
    ///
    /// # Errors
    /// [`CallError::Unreadable`] when what is stored is no `S`.
    pub fn update(&mut self, update: impl Fn(&mut S) + Send + Sync + 'static) -> Result<(), CallError> {
        let view = self.view()?;
        update(&mut view.value);
        view.updates.push(Box::new(update));
        Ok(())
    }

    /// An event for a stream. It exists when this call is committed.
    pub fn emit(&mut self, stream: StreamName, event: Event) {
        self.emits.push(Emit { stream, event });
    }

    /// An event for one instance. It exists when this call is committed.
    pub fn send(&mut self, actor: ActorName, key: Key, event: Event) {
        self.send_in(actor, key, event, None, 0);
    }

    /// An event for one instance, in a group, with a priority.
    pub fn send_in(&mut self, actor: ActorName, key: Key, event: Event, group: Option<Group>, priority: i32) {
        self.sends.push(Tell { actor, key, event, group, priority });
    }

    /// An event for this instance, later. Setting it again replaces it.
    pub fn schedule(&mut self, id: ScheduleId, when: When, event: Event) {
        let to = Destination::Instance {
            actor: self.call.instance.definition.name.clone(),
            key: self.call.instance.key.clone(),
        };
        self.schedule_to(id, when, to, event);
    }

    /// An event for anybody, later.
    pub fn schedule_to(&mut self, id: ScheduleId, when: When, to: Destination, event: Event) {
        self.schedules.push(ScheduleChange::Set { id, when, to, event: Box::new(event) });
    }

    /// Takes a schedule away.
    pub fn cancel_schedule(&mut self, id: ScheduleId) {
        self.schedules.push(ScheduleChange::Cancel { id });
    }

    /// Waits until every event before this one, on whose state it stands, is committed. Needed before
    /// anything is told to the outside.
    ///
    /// # Errors
    /// When a commit was refused, so that this call will be run again.
    pub fn settled(&self) -> impl Future<Output = Result<(), CallError>> + Send + use<S> {
        // The future does not borrow the context, whose updates need not be `Sync`.
        let (answer, awaited) = answer();
        self.call.port.request(Request::Settled(answer));
        async move {
            awaited
                .await
                .ok_or_else(|| CallError::Failed("what this call stands on was not committed".to_owned()))
        }
    }

    /// Waits so long, without a thread. The slot of the group stays taken.
    pub fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + use<S> {
        let (answer, awaited) = answer();
        self.call.port.request(Request::Sleep(duration, answer));
        async move {
            awaited.await;
        }
    }

    /// Writes a line to the log, with actor, key and event id.
    pub fn log(&self, level: Level, text: impl Into<String>) {
        self.call.port.request(Request::Log(level, text.into()));
    }

    /// Why this call should end, if it should: its time is up, the instance has another owner, the worker stops.
    #[must_use]
    pub fn aborted(&self) -> Option<Abort> {
        self.call.signal.aborted()
    }

    /// Ready when it should end.
    pub fn until_aborted(&self) -> impl Future<Output = Abort> + Send + use<S> {
        let signal = Arc::clone(&self.call.signal);
        std::future::poll_fn(move |cx| signal.poll_aborted(cx))
    }

    /// What the call has left behind, for its executor.
    ///
    /// # Errors
    /// When the state cannot be written, or is too large.
    pub fn into_outcome(self) -> Result<Outcome, CallError> {
        let bytes_max = self.call.instance.definition.state_bytes_max;
        let state = match self.view {
            None => StateUse::Untouched,
            Some(View { basis, updates, .. }) if updates.is_empty() => {
                StateUse::Read { basis, changed: None }
            }
            Some(View { basis, value, was_read: true, .. }) => {
                StateUse::Read { basis, changed: Some(write(value, bytes_max)?) }
            }
            Some(View { basis, value, updates, .. }) => StateUse::Updated {
                basis,
                changed: write(value, bytes_max)?,
                replay: Box::new(Updates { updates, bytes_max }),
            },
        };
        Ok(Outcome { state, emits: self.emits, sends: self.sends, schedules: self.schedules })
    }
}
