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
use crate::process::budget::Budget;
use crate::process::message::{self, Cancel, Event};
use crate::process::table::{ProcessTable, lies_inline};
use crate::process::{
    Place, ProcessError, SendError, SpawnError, SpawnOptions, Status, StepOutput, Tag, Turn, create, drop_fn,
};
use crate::route;
use crate::route::relay::{self, Package};
use crate::sync::Relaxed;
use crate::{LocalPid, Payload, Pid, Scheduler, Topic};

/// What a panic in a call of an actor ends: [`Actor::handle`], [`Actor::event`] or [`Actor::cancelled`]. One in
/// [`Actor::started`] always ends the actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnPanic {
    /// That message (or event) alone; what the call had sent and handed out before stays so.
    Message,
    /// The actor, as [`crate::ExitReason::Panicked`].
    Process,
}

/// A process that takes messages of one type.
pub trait Actor: Send + Sized + 'static {
    /// What it is sent.
    type Message: Send + 'static;

    /// What a panic in a call ends: that message alone, unless said otherwise.
    const ON_PANIC: OnPanic = OnPanic::Message;

    /// Before the first message. A panic in it ends the actor as [`crate::ExitReason::Panicked`], whatever
    /// [`Self::ON_PANIC`] says: nobody is left half made. [`Self::stopped`] is called then too.
    fn started(&mut self, cx: &mut Context<'_, Self::Message>) {
        let _ = cx;
    }

    /// One message.
    fn handle(&mut self, message: Self::Message, cx: &mut Context<'_, Self::Message>);

    /// Somebody asks it to end: [`Scheduler::shutdown`], [`Scheduler::stop`], [`Scheduler::cancel`], its
    /// supervisor. By default it does, dropping what is queued behind; one that has something to finish first
    /// notes it and calls [`Context::stop`] later, before the deadline if there is one.
    fn cancelled(&mut self, cancel: Cancel, cx: &mut Context<'_, Self::Message>) {
        let _ = cancel;
        cx.stop();
    }

    /// Everything else that is no message of its type: results of yields, ends of others, foreign messages, and
    /// word that a topic has overflowed ([`crate::Message::overflow`]). By default all are dropped; foreign
    /// messages are counted ([`crate::WorkerStats::foreign_messages`]). [`Event::Cancel`] does not come here.
    ///
    /// ```
    /// # use evener_scheduler::{Actor, AskError, Context, Event, Handle, Reply, Scheduler, Tag};
    /// # use std::sync::mpsc;
    /// # use std::time::Duration;
    /// /// Asks another actor, and goes on with its messages till the answer comes.
    /// struct Asks { whom: Handle<Reply<u64>>, found: mpsc::Sender<Result<u64, AskError>> }
    /// const SIZE: Tag = Tag(1);
    /// impl Actor for Asks {
    ///     type Message = ();
    ///     fn handle(&mut self, (): (), cx: &mut Context<'_, ()>) {
    ///         cx.ask(SIZE, self.whom, |reply| reply, Some(Duration::from_secs(5)));
    ///     }
    ///     fn event(&mut self, event: Event, _: &mut Context<'_, ()>) {
    ///         if let Event::YieldComplete { tag: SIZE, result } = event {
    ///             let _ = self.found.send(AskError::read(result));
    ///         }
    ///     }
    /// }
    /// let scheduler = Scheduler::builder().workers(1).start()?;
    /// let whom = scheduler.spawn_fn((), |(), reply: Reply<u64>, _| reply.send(42))?;
    /// let (found, finds) = mpsc::channel();
    /// scheduler.spawn_actor(Asks { whom, found })?.tell(())?;
    /// assert_eq!(finds.recv()??, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn event(&mut self, event: Event, cx: &mut Context<'_, Self::Message>) {
        if let Event::Message(message) = event
            && message.overflow().is_none()
        {
            cx.out.worker.count(|counters| &counters.foreign_messages);
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

    /// The handle of an actor whose PID is known some other way. Nothing checks the type: if the actor takes
    /// another one, messages reach its [`Actor::event`], which by default drops and counts them
    /// ([`crate::WorkerStats::foreign_messages`]); the sender is not told.
    #[must_use]
    pub fn from_pid(pid: Pid) -> Self {
        Self::new(pid.local())
    }

    /// The actor's full address.
    #[must_use]
    pub fn pid(&self) -> Pid {
        route::pid_of(self.pid)
    }

    /// Sends a message and goes on. From any thread. It is accepted however many wait there already; see
    /// [`Self::tell_within`] for a bound.
    ///
    /// # Errors
    /// [`SendError`]; the message is dropped.
    #[inline]
    pub fn tell(&self, message: M) -> Result<(), SendError> {
        relay::tell(self.pid, message)
    }

    /// As [`Self::tell`], within a budget for what waits at the actor on this topic: a bound on its mailbox, kept
    /// by those who send with one. The message holds its place till its handler is called. See [`Budget`] for
    /// what an overflow does, and give the topic a name of its own: on [`Topic::DEFAULT`] an overflow stops what
    /// [`Self::tell`] sends, too.
    ///
    /// ```
    /// # use evener_scheduler::{Budget, Scheduler, SendError, Topic};
    /// let scheduler = Scheduler::builder().workers(1).start()?;
    /// let printer = scheduler.spawn_fn((), |(), line: String, _| println!("{line}"))?;
    /// let lines = Topic::new("lines");
    /// match printer.tell_within(lines, Budget::items(1000), "a line".to_owned()) {
    ///     Ok(()) => {}
    ///     Err(SendError::Dropped { .. }) => println!("the printer is too slow: send no more lines"),
    ///     Err(gone) => return Err(gone.into()),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError`], [`SendError::Dropped`] when it does not fit; the message is dropped.
    pub fn tell_within(&self, topic: Topic, budget: Budget, message: M) -> Result<(), SendError> {
        relay::send(Package::new(self.pid(), message).topic(topic).budget(budget))
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
        self.out.spawn_actor(actor, options)
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
        let message = message::Message::new(content, Some(self.out.pid), crate::Topic::DEFAULT, message::ASK)
            .with_seq(reply.seq);
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
            Self::begin(actor, turn);
            if turn.out.has_ended() {
                return Ok(());
            }
        }
        Self::take_all(actor, turn);
        Ok(())
    }

    #[inline(always)]
    fn begin(actor: &mut A, turn: &mut Turn<'_>) {
        // A panic in it leaves an end behind, whatever status the call had set: see `Worker::run`.
        struct HalfMade<'a, 'b>(&'a mut Turn<'b>);
        impl Drop for HalfMade<'_, '_> {
            #[cold]
            fn drop(&mut self) {
                self.0.out.status = Status::Done;
            }
        }
        let half_made = HalfMade(turn);
        actor.started(&mut Context::new(&mut half_made.0.out));
        std::mem::forget(half_made);
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
            // Of its own type perhaps, but not from a sender.
            Event::Message(message) if message.overflow().is_some() => {
                actor.event(Event::Message(message), &mut cx);
            }
            Event::Message(message) => match message.take::<A::Message>() {
                Ok(message) => actor.handle(message, &mut cx),
                Err(other) => actor.event(Event::Message(other), &mut cx),
            },
            Event::Cancel(cancel) => actor.cancelled(cancel, &mut cx),
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

/// A state and a closure as an actor; what [`Scheduler::spawn_fn`] spawns.
pub struct FnActor<S, M, F> {
    state: S,
    act: F,
    takes: PhantomData<fn(M)>,
}

impl<S, M, F> FnActor<S, M, F>
where
    S: Send + 'static,
    M: Send + 'static,
    F: FnMut(&mut S, M, &mut Context<'_, M>) + Send + 'static,
{
    /// An actor of this state that takes its messages by this closure.
    pub fn new(state: S, act: F) -> Self {
        Self { state, act, takes: PhantomData }
    }
}

impl<S, M, F> fmt::Debug for FnActor<S, M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FnActor({})", std::any::type_name::<M>())
    }
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
        self.spawn_actor(FnActor::new(state, act))
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

    /// Spawns an actor now, on this worker's own queue. It has no `init`: method and input of the options are
    /// dropped.
    ///
    /// # Errors
    /// [`SpawnError`]; the actor was dropped.
    pub fn spawn_actor<A: Actor>(
        &mut self,
        actor: A,
        options: SpawnOptions,
    ) -> Result<Handle<A::Message>, SpawnError> {
        let place = Place::Worker(self.worker, Some(self.pid));
        Ok(Handle::new(create(place, ActorTable::<A>::TABLE, actor, None, Some(&options), None)?))
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
