//! The typed layer: actors with one message type, handles that know it, answers that need no downcast.
//!
//! It is made of the raw parts and costs what they cost: a handle is a [`LocalPid`], a message of up to
//! 16 bytes travels in the short cell, and an actor's handler is called by a loop compiled for its type.
//!
//! One call of [`Actor::handle`] is one message. If it panics, that message fails and the actor goes on
//! with the next (the panic hook has told of it, the scheduler counts it), unless the actor asks for its
//! own end by [`Actor::ON_PANIC`].

mod ask;

pub use ask::{AskError, Reply};

use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::command::{Command, YieldError};
use crate::process::message::{self, Event};
use crate::process::table::{ProcessTable, lies_inline};
use crate::process::{
    Place, ProcessError, SendError, SpawnError, SpawnOptions, Status, StepOutput, Tag, Turn, create, drop_fn,
};
use crate::route::{self, relay};
use crate::sync::Relaxed;
use crate::{LocalPid, Payload, Pid, Scheduler};

/// What a panic in [`Actor::handle`] ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnPanic {
    /// That message alone.
    Message,
    /// The actor, as [`crate::ExitReason::Panicked`].
    Process,
}

/// A process that takes messages of one type.
pub trait Actor: Send + Sized + 'static {
    /// What it is sent.
    type Message: Send + 'static;

    /// What a panic in a handler ends.
    const ON_PANIC: OnPanic = OnPanic::Message;

    /// Before the first message.
    fn started(&mut self, cx: &mut Context<'_, Self::Message>) {
        let _ = cx;
    }

    /// One message.
    fn handle(&mut self, message: Self::Message, cx: &mut Context<'_, Self::Message>);

    /// Everything that is no message of its type: results of yields, ends of others, cancellation, foreign
    /// messages. By default a cancellation stops the actor and the rest is dropped.
    fn event(&mut self, event: Event, cx: &mut Context<'_, Self::Message>) {
        if let Event::Cancel(_) = event {
            cx.stop();
        }
    }

    /// The last call, on every way out.
    fn stopped(&mut self) {}
}

/// The address of an actor that takes `M`: 8 bytes, free to copy, harmless when the actor is gone.
pub struct Handle<M> {
    pid: LocalPid,
    takes: PhantomData<fn(M)>,
}

impl<M> Clone for Handle<M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M> Copy for Handle<M> {}
impl<M> PartialEq for Handle<M> {
    fn eq(&self, other: &Self) -> bool {
        self.pid == other.pid
    }
}
impl<M> Eq for Handle<M> {}
impl<M> std::hash::Hash for Handle<M> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.pid.hash(state);
    }
}
impl<M> fmt::Debug for Handle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:?})", self.pid)
    }
}

impl<M: Send + 'static> Handle<M> {
    fn new(pid: LocalPid) -> Self {
        Self { pid, takes: PhantomData }
    }

    pub(crate) fn of(pid: LocalPid) -> Self {
        Self::new(pid)
    }

    /// The handle of an actor whose PID is known some other way. If it takes another type, messages reach
    /// its [`Actor::event`].
    #[must_use]
    pub fn from_pid(pid: Pid) -> Self {
        Self::new(pid.local())
    }

    /// The actor's full address.
    #[must_use]
    pub fn pid(&self) -> Pid {
        route::pid_of(self.pid)
    }

    /// Sends a message and goes on. From any thread.
    ///
    /// # Errors
    /// [`SendError`]; the message is dropped.
    #[inline]
    pub fn tell(&self, message: M) -> Result<(), SendError> {
        relay::tell(self.pid, message)
    }

    /// Sends a message with a [`Reply`] in it and waits for the answer. For threads that are no workers; a
    /// process asks by [`Context::ask`].
    ///
    /// ```
    /// # use evener_scheduler::{Reply, Scheduler};
    /// # use std::time::Duration;
    /// enum Count { Add(u64), Get(Reply<u64>) }
    /// let scheduler = Scheduler::new()?;
    /// let counter = scheduler.spawn_fn(0, |count, message, _| match message {
    ///     Count::Add(more) => *count += more,
    ///     Count::Get(reply) => reply.send(*count),
    /// })?;
    /// counter.tell(Count::Add(2))?;
    /// counter.tell(Count::Add(3))?;
    /// assert_eq!(counter.ask(Count::Get, Duration::from_secs(1))?, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AskError`]: not sent, not answered, not in time, or called on a worker.
    pub fn ask<R: Send + 'static>(
        &self,
        message: impl FnOnce(Reply<R>) -> M,
        timeout: Duration,
    ) -> Result<R, AskError> {
        ask::from_thread(timeout, |reply| self.tell(message(Reply::new(reply))))
    }

    /// As [`Self::ask`], for async code: the worker runs others meanwhile. Two tasks that ask each other wait
    /// for their time-outs; the circle is not told.
    ///
    /// # Errors
    /// [`AskError`]: not sent, not answered, or not in time.
    ///
    /// # Panics
    /// Where there is no host: polled on a thread that is no worker and in no [`Scheduler::block_on`].
    pub async fn ask_async<R: Send + 'static>(
        &self,
        message: impl FnOnce(Reply<R>) -> M,
        timeout: Duration,
    ) -> Result<R, AskError> {
        let pid = self.pid;
        ask::from_future(timeout, move |reply| relay::tell(pid, message(Reply::new(reply)))).await
    }
}

/// What a handler may do besides changing its state.
pub struct Context<'a, M> {
    /// Its own lifetime is hidden, so that a context has one; see `new`.
    out: &'a mut StepOutput<'static>,
    takes: PhantomData<fn(M)>,
}

impl<'a, M> Context<'a, M> {
    #[inline(always)]
    fn new(out: &'a mut StepOutput<'_>) -> Self {
        // SAFETY: only the lifetime changes, that of the reference to the worker. Nothing in this module
        // hands that reference out, and `raw` shortens it again.
        let out = unsafe { &mut *std::ptr::from_mut(out).cast::<StepOutput<'static>>() };
        Self { out, takes: PhantomData }
    }
}

impl<M: Send + 'static> Context<'_, M> {
    /// The actor's own handle.
    #[must_use]
    #[inline]
    pub fn me(&self) -> Handle<M> {
        Handle::new(self.out.pid)
    }

    /// The time, as of some milliseconds ago at most; see [`StepOutput::now`].
    #[must_use]
    pub fn now(&self) -> Instant {
        self.out.now()
    }

    /// Sends a message and goes on. As [`Handle::tell`], a little shorter.
    ///
    /// # Errors
    /// [`SendError`]; the message is dropped.
    #[inline(always)]
    pub fn tell<N: Send + 'static>(&mut self, to: Handle<N>, message: N) -> Result<(), SendError> {
        relay::tell_on(self.out.worker, to.pid, message)
    }

    /// Spawns an actor on this worker's own queue.
    ///
    /// # Errors
    /// [`SpawnError`]; the actor was dropped.
    #[inline]
    pub fn spawn<A: Actor>(&mut self, actor: A) -> Result<Handle<A::Message>, SpawnError> {
        let place = Place::Worker(self.out.worker, Some(self.out.pid));
        Ok(Handle::new(create(place, ActorTable::<A>::TABLE, actor, None, None, None)?))
    }

    /// As [`Self::spawn`], with a name, a link or a monitor.
    ///
    /// # Errors
    /// [`SpawnError`]; the actor was dropped.
    pub fn spawn_with<A: Actor>(
        &mut self,
        actor: A,
        options: SpawnOptions,
    ) -> Result<Handle<A::Message>, SpawnError> {
        let place = Place::Worker(self.out.worker, Some(self.out.pid));
        Ok(Handle::new(create(place, ActorTable::<A>::TABLE, actor, None, Some(&options), None)?))
    }

    /// Spawns a closure that runs once.
    ///
    /// # Errors
    /// [`SpawnError`]; the closure was dropped.
    #[inline]
    pub fn spawn_once<F>(&mut self, act: F) -> Result<Pid, SpawnError>
    where
        F: FnOnce(&mut StepOutput<'_>) + Send + 'static,
    {
        self.out.spawn_once(act)
    }

    /// Sends a message with a [`Reply`] in it; the answer arrives in [`Actor::event`] as a yield with this
    /// tag, to be read by [`AskError::read`]. Nobody waits meanwhile.
    pub fn ask<N: Send + 'static, R: Send + 'static>(
        &mut self,
        tag: Tag,
        to: Handle<N>,
        message: impl FnOnce(Reply<R>) -> N,
        timeout: Option<Duration>,
    ) {
        let reply = self.out.begin_ask(tag, timeout);
        let content = Payload::new(message(Reply::new(reply)));
        let message = message::Message::new(content, Some(self.out.pid), crate::Topic::DEFAULT, message::ASK);
        self.out.send_request(to.pid, None, reply, message);
    }

    /// Opens a yield and gives the right to complete it, to be sent to anybody in any way; see
    /// [`StepOutput::open_reply`].
    pub fn open_reply<R: Send + 'static>(&mut self, tag: Tag, timeout: Option<Duration>) -> Reply<R> {
        self.out.open_reply(tag, timeout)
    }

    /// Hands out a command; its result arrives in [`Actor::event`] with this tag.
    pub fn command<C: Command>(&mut self, tag: Tag, command: C) {
        self.out.command(tag, command);
    }

    /// The actor ends after this message; what is queued behind it is dropped.
    pub fn stop(&mut self) {
        self.out.status = Status::Done;
    }

    /// As [`Self::stop`], with a result for who waits for it.
    pub fn stop_with<T: Send + 'static>(&mut self, result: T) {
        self.out.done(result);
    }

    /// The raw side of the turn.
    pub fn raw(&mut self) -> &mut StepOutput<'_> {
        // SAFETY: only the lifetime changes; the turn, and with it the worker, outlives this context.
        unsafe { &mut *std::ptr::from_mut(self.out).cast() }
    }
}

/// The static of an actor type.
pub(crate) struct ActorTable<A>(PhantomData<A>);

impl<A: Actor> ActorTable<A> {
    pub(crate) const TABLE: &'static ProcessTable = &ProcessTable {
        step: Self::step,
        init: None,
        close: Some(Self::close),
        drop: drop_fn::<A>(),
        layout: std::alloc::Layout::new::<A>(),
        inline: lies_inline(std::alloc::Layout::new::<A>()),
        type_name: std::any::type_name::<A>,
        survives_panics: matches!(A::ON_PANIC, OnPanic::Message),
    };

    unsafe fn step(body: *mut u8, turn: &mut Turn<'_>) -> Result<(), ProcessError> {
        // SAFETY: the caller runs a process of this type, whose body lies there.
        let actor = unsafe { &mut *body.cast::<A>() };
        if turn.out.slot.steps.load(Relaxed) == 1 {
            actor.started(&mut Context::new(&mut turn.out));
            if turn.out.has_ended() {
                return Ok(());
            }
        }
        Self::take_all(actor, turn);
        Ok(())
    }

    #[inline(always)]
    fn take_all(actor: &mut A, turn: &mut Turn<'_>) {
        while let Some(cell) = turn.events.next_cell() {
            let worker = turn.events.worker;
            // SAFETY: `next_cell` took it out of the mailbox of the process that this worker runs.
            match unsafe { message::take_plain::<A::Message>(&worker.magazines, cell) } {
                Some(message) => actor.handle(message, &mut Context::new(&mut turn.out)),
                None => Self::take_other(actor, turn, cell),
            }
            if turn.out.has_ended() {
                return;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn take_other(actor: &mut A, turn: &mut Turn<'_>, cell: u32) {
        let Some(event) = turn.events.open(cell) else {
            return;
        };
        let mut cx = Context::new(&mut turn.out);
        match event {
            Event::Message(message) => match message.take::<A::Message>() {
                Ok(message) => actor.handle(message, &mut cx),
                Err(other) => actor.event(Event::Message(other), &mut cx),
            },
            other => actor.event(other, &mut cx),
        }
        // Plain messages after it are nobody's request.
        cx.out.worker.end_chain();
    }

    unsafe fn close(body: *mut u8) {
        // SAFETY: as in `step`.
        unsafe { (*body.cast::<A>()).stopped() }
    }
}

/// A state and a closure as an actor; made by [`Scheduler::spawn_fn`].
pub struct FnActor<S, M, F> {
    state: S,
    act: F,
    takes: PhantomData<fn(M)>,
}

impl<S, M, F> Actor for FnActor<S, M, F>
where
    S: Send + 'static,
    M: Send + 'static,
    F: FnMut(&mut S, M, &mut Context<'_, M>) + Send + 'static,
{
    type Message = M;

    #[inline]
    fn handle(&mut self, message: M, cx: &mut Context<'_, M>) {
        (self.act)(&mut self.state, message, cx);
    }
}

impl Scheduler {
    /// Spawns an actor.
    ///
    /// # Errors
    /// [`SpawnError`]; the actor was dropped.
    pub fn spawn_actor<A: Actor>(&self, actor: A) -> Result<Handle<A::Message>, SpawnError> {
        Ok(Handle::new(create(self.place(), ActorTable::<A>::TABLE, actor, None, None, None)?))
    }

    /// Spawns an actor with a name.
    ///
    /// # Errors
    /// [`SpawnError`]; the actor was dropped.
    pub fn spawn_actor_with<A: Actor>(
        &self,
        actor: A,
        options: SpawnOptions,
    ) -> Result<Handle<A::Message>, SpawnError> {
        Ok(Handle::new(create(self.place(), ActorTable::<A>::TABLE, actor, None, Some(&options), None)?))
    }

    /// Spawns a state with a closure that takes its messages.
    ///
    /// # Errors
    /// [`SpawnError`]; state and closure were dropped.
    pub fn spawn_fn<S, M, F>(&self, state: S, act: F) -> Result<Handle<M>, SpawnError>
    where
        S: Send + 'static,
        M: Send + 'static,
        F: FnMut(&mut S, M, &mut Context<'_, M>) + Send + 'static,
    {
        self.spawn_actor(FnActor { state, act, takes: PhantomData })
    }
}

/// The result of a typed yield, for [`Actor::event`].
fn read<R: Send + 'static>(result: Result<Payload, YieldError>) -> Result<R, AskError> {
    match result {
        Ok(payload) => payload.take::<R>().map_err(|other| AskError::OtherType {
            expected: std::any::type_name::<R>(),
            found: other.type_name(),
        }),
        Err(error) => Err(error.into()),
    }
}

impl StepOutput<'_> {
    /// Opens a yield and gives the right to complete it: a [`Reply`] to put into a message and send in any
    /// way, by name too. The answer, or that there is none, arrives as a completed yield with this tag.
    pub fn open_reply<R: Send + 'static>(&mut self, tag: Tag, timeout: Option<Duration>) -> Reply<R> {
        Reply::new(self.begin_ask(tag, timeout))
    }

    #[inline(always)]
    fn has_ended(&self) -> bool {
        self.status as u8 >= Status::Done as u8
    }
}

impl<R> fmt::Debug for Reply<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({:?})", self.to())
    }
}
