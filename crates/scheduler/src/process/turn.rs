//! One turn of a process: the events it takes and what it hands out.

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use crate::command::{Command, CommandRequest, Pending, YieldError};
use crate::memory::InMemory;
use crate::process::event_queue::Cells;
use crate::process::message::{self, Cancel, Event, Exit, Message};
use crate::process::slot::Slot;
use crate::process::table::{Cold, ReplyTo};
use crate::process::{Process, SendError, SpawnError, SpawnOptions, Tag, Topic, contain};
use crate::route::names::NameError;
use crate::route::relay::{self, Package};
use crate::sync::Relaxed;
use crate::worker::Worker;
use crate::{LocalPid, Payload, Pid, clock};

/// The two halves of a turn.
pub(crate) struct Turn<'a> {
    pub(crate) events: Events<'a>,
    pub(crate) out: StepOutput<'a>,
}

/// The events of one turn, oldest first, at most as many as the host's `events_per_step_max`.
///
/// What a step does not take stays queued, also when it panics.
pub struct Events<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) slot: &'static Slot,
    /// How many more this turn may take.
    pub(crate) left: u32,
}

impl<'a> Events<'a> {
    /// Takes the cell at the front of the inbox.
    #[inline(always)]
    pub(crate) fn next_cell(&mut self) -> Option<u32> {
        let cell = self.slot.inbox.load(Relaxed);
        if cell == 0 || self.left == 0 || self.worker.makes_way() {
            return None;
        }
        self.left -= 1;
        // Stored at once: a panic later in the turn leaves the rest whole.
        self.slot.inbox.store(InMemory.next(cell).load(Relaxed), Relaxed);
        Some(cell)
    }

    /// Opens a cell that is no plain message. `None`: nothing to deliver, for it came too late.
    pub(crate) fn open(&self, cell: u32) -> Option<Event> {
        // SAFETY: `next_cell` took it out of the mailbox of the process that this worker runs.
        let mut message = unsafe { message::take(&self.worker.magazines, cell) };
        let kind = message.flag_bits() & message::KIND;
        self.worker.begin_chain(&message);
        match kind {
            message::KIND_MESSAGE => return Some(Event::Message(message)),
            message::KIND_EXIT => {
                let exit = message.take_payload().take::<Box<Exit>>().expect("an exit carries an exit");
                return Some(Event::Exit(*exit));
            }
            message::KIND_CANCEL => {
                let cancel = message.take_payload().take::<Cancel>().expect("a cancel carries a cancel");
                return Some(Event::Cancel(cancel));
            }
            _ => {}
        }
        let Some(pending) = self.take_pending(message.seq()) else {
            self.worker.count(|counters| &counters.late_completions);
            // Late is harmless, also when what came late panics in its drop.
            let _ = contain(|| drop(message));
            return None;
        };
        self.worker.forget_timer(&pending);
        let payload = message.take_payload();
        let result = if kind == message::KIND_YIELD_OK {
            Ok(payload)
        } else {
            Err(payload.take::<YieldError>().expect("a failed yield carries its error"))
        };
        Some(Event::YieldComplete { tag: pending.tag, result })
    }

    /// The yield of that number, if it is still out. A repeating one stays, and its next tick is armed.
    fn take_pending(&self, seq: u32) -> Option<Pending> {
        // SAFETY: the runner alone touches the cold part.
        let cold = self.slot.cold.with(|cold| unsafe { (*cold).as_mut() })?;
        let pending = cold.pending.get_mut(seq)?;
        if let Some(pid) = cold.ticking
            && pending.period != 0
        {
            self.worker.arm_next_tick(pid, pending);
            return Some(Pending { timer: None, ..*pending });
        }
        cold.pending.remove(seq)
    }

    /// How many events wait for this process, this turn's included. Constant time.
    #[must_use]
    pub fn waiting(&self) -> usize {
        InMemory.count(self.slot.inbox.load(Relaxed)) as usize
    }
}

impl Iterator for Events<'_> {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        loop {
            let cell = self.next_cell()?;
            if let Some(event) = self.open(cell) {
                return Some(event);
            }
        }
    }
}

/// How a turn ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Status {
    Idle,
    Wait,
    Continue,
    /// With the result in the output's `ending`, if it is more than `()`.
    Done,
    /// To the new body in the output's `ending`.
    Upgrade,
    /// Done, and the body has been used up by the turn.
    Consumed,
    /// A task that leaves messages in its inbox and waits for something else. Only tasks say it.
    Deaf,
}

/// What few turns leave behind.
#[derive(Debug)]
pub(crate) enum Ending {
    Result(Payload),
    Upgrade(Upgrade),
}

/// A new body for a process.
pub(crate) struct Upgrade {
    pub(crate) process: Box<dyn Process>,
    pub(crate) method: String,
    /// The type has no such method.
    pub(crate) refused: Option<SpawnError>,
    pub(crate) input: Payload,
}

impl std::fmt::Debug for Upgrade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Upgrade({:?})", self.method)
    }
}

/// What a step hands out: yields, immediate acts, and how the process goes on.
pub struct StepOutput<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) slot: &'static Slot,
    pub(crate) pid: LocalPid,
    pub(crate) status: Status,
    /// Taken out by the worker, at the end of each turn: no drop glue on its way.
    pub(crate) ending: ManuallyDrop<Option<Box<Ending>>>,
}

impl StepOutput<'_> {
    /// The process's own address.
    #[must_use]
    pub fn self_pid(&self) -> Pid {
        Pid::new(0, self.worker.host(), self.pid)
    }

    /// The time, as of the last reading by a worker or the monitor: some milliseconds old at most while
    /// the worker is busy with short steps.
    #[must_use]
    pub fn now(&self) -> Instant {
        clock::coarse()
    }

    /// Sends a message now, on the default topic.
    ///
    /// # Errors
    /// [`SendError`]; the message is dropped.
    pub fn send<T: Send + 'static>(&mut self, to: Pid, content: T) -> Result<(), SendError> {
        self.send_on(to, Topic::DEFAULT, content)
    }

    /// Sends a message now.
    ///
    /// # Errors
    /// [`SendError`]; the message is dropped.
    pub fn send_on<T: Send + 'static>(&mut self, to: Pid, topic: Topic, content: T) -> Result<(), SendError> {
        let message = Message::new(Payload::new(content), Some(self.pid), topic, message::KIND_MESSAGE);
        relay::send_message(to, message)
    }

    /// Sends a message now to whoever has the name; see [`crate::Scheduler::send_named`].
    ///
    /// # Errors
    /// [`NameError`]; the message is dropped.
    pub fn send_named<T: Send + 'static>(&mut self, name: &str, content: T) -> Result<(), NameError> {
        let message =
            Message::new(Payload::new(content), Some(self.pid), Topic::DEFAULT, message::KIND_MESSAGE);
        self.worker.engine().names.send(name, message)
    }

    /// The process of that name.
    #[must_use]
    pub fn lookup(&self, name: &str) -> Option<Pid> {
        self.worker.engine().names.lookup(name)
    }

    /// Gives a process, usually this one, a name.
    ///
    /// # Errors
    /// [`NameError`]: taken or empty; the process has ended, never was, or is none of this runtime.
    pub fn register(&mut self, name: &str, pid: Pid) -> Result<(), NameError> {
        self.worker.engine().names.register(name, pid)
    }

    /// From now on this process hears of the end of another, once ([`Event::Exit`]); at once if it has ended.
    pub fn monitor(&mut self, pid: Pid) {
        if pid.node() != 0 {
            let reason = std::sync::Arc::new(crate::ExitReason::NoProcess);
            return route::links::tell(self.pid, pid, reason, message::ExitBy::Monitor);
        }
        route::links::monitor(self.self_pid(), pid);
    }

    /// Takes a monitor away. An event that is on its way still comes.
    pub fn unmonitor(&mut self, pid: Pid) {
        route::links::unmonitor(self.self_pid(), pid);
    }

    /// Links this process to another: the crash of one takes the other down, unless it traps exits. To
    /// itself: nothing.
    ///
    /// # Errors
    /// [`SendError::NotFound`], [`SendError::Closed`], [`SendError::OtherNode`].
    pub fn link(&mut self, pid: Pid) -> Result<(), SendError> {
        relay::check_alive(pid)?;
        route::links::link(self.self_pid(), pid)
    }

    /// Takes a link away.
    pub fn unlink(&mut self, pid: Pid) {
        route::links::unlink(self.self_pid(), pid);
    }

    /// Ends a process, at its next turn or after the present one; see [`crate::Scheduler::kill`].
    ///
    /// # Errors
    /// [`SendError::NotFound`], [`SendError::Closed`], [`SendError::OtherNode`].
    pub fn kill(&mut self, pid: Pid, reason: &str) -> Result<(), SendError> {
        route::kill(pid, reason.into())
    }

    /// Asks a process to end; see [`crate::Scheduler::cancel`].
    ///
    /// # Errors
    /// [`SendError::NotFound`], [`SendError::Closed`], [`SendError::OtherNode`].
    pub fn cancel(&mut self, pid: Pid, reason: &str, deadline: Option<Duration>) -> Result<(), SendError> {
        route::cancel(pid, reason.into(), deadline)
    }

    /// Sends a package now; its sender is this process.
    ///
    /// # Errors
    /// [`SendError`]; the package is dropped.
    pub fn send_package(&mut self, package: Package) -> Result<(), SendError> {
        relay::send_package(package.from(self.self_pid()))
    }

    /// Spawns a process now, on this worker's own queue.
    ///
    /// # Errors
    /// [`SpawnError`]: unknown method, host full, refused by a hook, closing.
    pub fn spawn<P: Process>(&mut self, process: P, options: SpawnOptions) -> Result<Pid, SpawnError> {
        super::spawn::spawn_on_worker(self.worker, self.pid, process, options)
    }

    /// Spawns a closure that runs once, on this worker's own queue.
    ///
    /// # Errors
    /// [`SpawnError`]; the closure was dropped.
    #[inline]
    pub fn spawn_once<F>(&mut self, act: F) -> Result<Pid, SpawnError>
    where
        F: FnOnce(&mut StepOutput<'_>) + Send + 'static,
    {
        super::spawn::spawn_once_on_worker(self.worker, self.pid, act)
    }

    /// Hands out a command; its result arrives as [`Event::YieldComplete`] with this tag.
    pub fn command<C: Command>(&mut self, tag: Tag, command: C) {
        self.command_by_id(tag, C::ID, Payload::new(command));
    }

    /// As [`Self::command`], by number: for commands whose type the process does not know.
    pub fn command_by_id(&mut self, tag: Tag, id: crate::command::CommandId, input: Payload) {
        let seq = self.begin_yield(tag);
        self.worker.hand_out(CommandRequest { id, input, seq });
    }

    /// Sends a request; the answer, or why there is none, arrives as [`Event::YieldComplete`] with this
    /// tag. Without an answer in time it is [`YieldError::TimedOut`].
    pub fn ask<T: Send + 'static>(&mut self, tag: Tag, to: Pid, content: T, timeout: Option<Duration>) {
        let reply = self.begin_ask(tag, timeout);
        let message = Message::new(Payload::new(content), Some(self.pid), Topic::DEFAULT, message::REQUEST)
            .with_seq(reply.seq);
        self.send_request(to.local(), Some(to), reply, message);
    }

    /// Opens a yield that an answer will complete.
    pub(crate) fn begin_ask(&mut self, tag: Tag, timeout: Option<Duration>) -> ReplyTo {
        let seq = self.begin_yield(tag);
        let reply = ReplyTo { pid: self.pid, seq };
        if let Some(timeout) = timeout {
            self.worker.arm_timeout(self.slot, reply, timeout);
        }
        reply
    }

    /// Sends a message on which yield `reply` hangs, unless that closes a circle of askers.
    pub(crate) fn send_request(&mut self, to: LocalPid, full: Option<Pid>, reply: ReplyTo, message: Message) {
        let sent = self.worker.extend_chain(self.pid, to, message).and_then(|message| {
            let to = full.unwrap_or_else(|| route::pid_of(to));
            relay::send_message(to, message).map_err(YieldError::Send)
        });
        if let Err(error) = sent {
            // The request was dropped, and may have said "no reply" to this number already: the true error
            // comes under a new one.
            if let Some(reply) = self.renumber(reply) {
                route::complete(reply, Err(error));
            }
        }
    }

    /// Gives a yield that is out a new number; its timeout, if any, is taken away.
    fn renumber(&mut self, reply: ReplyTo) -> Option<ReplyTo> {
        let cold = self.cold();
        let old = cold.pending.remove(reply.seq)?;
        cold.last_seq = cold.last_seq.wrapping_add(1);
        let seq = cold.last_seq;
        cold.pending.push(Pending { seq, timer: None, ..old });
        self.worker.forget_timer(&old);
        Some(ReplyTo { seq, ..reply })
    }

    /// Notes a yield as out and gives its number.
    pub(crate) fn begin_yield(&mut self, tag: Tag) -> u32 {
        let cold = self.cold();
        cold.last_seq = cold.last_seq.wrapping_add(1);
        let seq = cold.last_seq;
        cold.pending.push(Pending { seq, tag, period: 0, timer: None });
        seq
    }

    /// The cold part, made on first use.
    pub(crate) fn cold(&mut self) -> &mut Cold {
        // SAFETY: the runner alone touches the cold part, and `self` is the runner's.
        unsafe { cold_of(self.slot) }
    }

    /// Gives up on a yield: its result, should it still come, is dropped. `true`: it was out. If several with
    /// this tag are out it is one of them, and which one is not said.
    pub fn cancel_yield(&mut self, tag: Tag) -> bool {
        let Some(pending) = self.cold().pending.remove_tag(tag) else {
            return false;
        };
        self.worker.forget_timer(&pending);
        true
    }

    /// From now on the crash of a linked process arrives as [`Event::Exit`] and ends nobody else.
    pub fn trap_exits(&mut self, trap: bool) {
        route::links::trap_exits(self.pid, trap);
    }

    /// Begins a new generation of the own queue: what is queued and not yet taken is dropped and counted,
    /// overflowed topics are open again, bound producers are refused from now on. The PID stays. Gives the number
    /// dropped.
    ///
    /// What is dropped is everything: messages of all topics (who asked is told that there is no answer), and
    /// results of yields, ends of others and cancellations too. A yield whose result was among them stays open.
    /// If it is more than some thousands they are dropped in parts, the last of them after this step.
    ///
    /// # Errors
    /// [`ResetError`] when the slot's generations are used up; nothing changed.
    pub fn reset_queue(&mut self) -> Result<usize, ResetError> {
        self.worker.reset_queue(self.slot, self.pid)
    }

    fn set_ending(&mut self, ending: Ending) {
        // The one before, if any, is dropped.
        *self.ending = Some(Box::new(ending));
    }

    /// Ready again at once, behind the others of this worker.
    pub fn continue_soon(&mut self) {
        self.status = Status::Continue;
    }

    /// Blocked till a yield completes (or a message comes).
    pub fn wait_for_yields(&mut self) {
        self.status = Status::Wait;
    }

    /// Idle till the next event. The default.
    pub fn idle(&mut self) {
        self.status = Status::Idle;
    }

    /// The process ends well, with this result.
    pub fn done<T: Send + 'static>(&mut self, result: T) {
        self.status = Status::Done;
        self.set_ending(Ending::Result(Payload::new(result)));
    }

    /// The old body is closed and dropped, the new one goes on under the same PID, with the same mailbox,
    /// links and monitors: first its `init` with this method, then its steps. A method that the type does not
    /// have ([`Process::methods`]) ends the process as a failed `init` does, with
    /// [`SpawnError::UnknownMethod`] as the error's source.
    pub fn upgrade<P: Process>(&mut self, process: P, method: &str, input: Payload) {
        self.status = Status::Upgrade;
        let process = Box::new(process);
        let refused = super::spawn::check_method::<P>(method).err();
        self.set_ending(Ending::Upgrade(Upgrade { process, method: method.to_owned(), refused, input }));
    }
}

/// The slot's generations are used up; the queue stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the generations of this process's slot are used up, its queue cannot be reset")]
pub struct ResetError;

/// The cold part of a process, made on first use.
///
/// # Safety
/// The caller is the runner, and holds no other reference into it.
#[allow(clippy::mut_from_ref, reason = "the runner's right to the cell stands for the `&mut`")]
pub(crate) unsafe fn cold_of(slot: &Slot) -> &mut Cold {
    slot.cold.with_mut(|place| {
        // SAFETY: as the caller promises.
        unsafe {
            if (*place).is_null() {
                *place = Box::into_raw(Box::new(Cold::new()));
            }
            &mut **place
        }
    })
}

use crate::route;
