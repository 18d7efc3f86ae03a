//! The relay: package, PID, mailbox. Look-up is O(1), takes no lock, and never takes one life of a slot
//! for another: see the words on generations in [`crate::process::slot`].

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::memory::{self, InMemory};
use crate::process::budget::{self, Budget};
use crate::process::message::{self, KIND_MESSAGE, Message, TERMINAL};
use crate::process::slot::{After, Bind, Gate, Refused, Slot};
use crate::process::{SendError, Topic};
use crate::route;
use crate::sync::{Acquire, Relaxed, Release};
use crate::worker::Worker;
use crate::{LocalPid, Payload, Pid};

/// A message on its way: to whom, about what, with what, within which budget.
#[derive(Debug)]
pub struct Package {
    to: Pid,
    from: Option<LocalPid>,
    topic: Topic,
    payload: Payload,
    budget: Option<Budget>,
    terminal: bool,
}

impl Package {
    /// A package on the default topic, without a budget.
    #[must_use]
    pub fn new<T: Send + 'static>(to: Pid, content: T) -> Self {
        Self::with_payload(to, Payload::new(content))
    }

    /// As [`Self::new`], of a payload.
    #[must_use]
    pub fn with_payload(to: Pid, payload: Payload) -> Self {
        Self { to, from: None, topic: Topic::DEFAULT, payload, budget: None, terminal: false }
    }

    /// Its topic.
    #[must_use]
    pub fn topic(mut self, topic: Topic) -> Self {
        self.topic = topic;
        self
    }

    /// Its sender, as the receiver will see it.
    #[must_use]
    pub fn from(mut self, sender: Pid) -> Self {
        self.from = Some(sender.local());
        self
    }

    /// The most that may wait on its topic; the tightest budget seen for a topic counts. The first message that
    /// does not fit closes the topic to all that comes after, till the receiver resets its queue: see [`Budget`].
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// The last of its topic: it takes no room in the budget.
    #[must_use]
    pub fn terminal(mut self) -> Self {
        self.terminal = true;
        self
    }
}

/// Stops what has not been admitted yet. Admission itself cannot be undone.
#[derive(Debug, Clone, Default)]
pub struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    /// Nothing cancelled yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels, for good.
    pub fn cancel(&self) {
        // Release: pairs with the Acquire below; who sees it sees what led to it.
        self.0.store(true, Release);
    }

    /// Was it cancelled?
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Acquire)
    }
}

/// Sends a package from any thread.
///
/// # Errors
/// [`SendError`]; the package is dropped.
pub fn send(package: Package) -> Result<(), SendError> {
    send_package(package)
}

/// As [`send`], unless `cancel` comes first: asked before the look-up and again before admission.
///
/// # Errors
/// [`SendError::Cancelled`], or as for [`send`]; the package is dropped.
pub fn send_with(cancel: &Cancellation, package: Package) -> Result<(), SendError> {
    if cancel.is_cancelled() {
        return Err(SendError::Cancelled);
    }
    send_with_pause(cancel, package, || {})
}

/// The rest of [`send_with`]; `between` runs after the look-up, for tests of what is asked after it.
fn send_with_pause(cancel: &Cancellation, package: Package, between: impl FnOnce()) -> Result<(), SendError> {
    let slot = look_up(package.to)?;
    between();
    if cancel.is_cancelled() {
        return Err(SendError::Cancelled);
    }
    admit(slot, package)
}

pub(crate) fn send_package(package: Package) -> Result<(), SendError> {
    let slot = look_up(package.to)?;
    admit(slot, package)
}

fn look_up(to: Pid) -> Result<&'static Slot, SendError> {
    if to.node() != 0 {
        return Err(SendError::OtherNode(to));
    }
    let slot = memory::find_slot(to.local().slot()).ok_or(SendError::NotFound(to))?;
    if to.host() == route::waiter::HOST {
        // A thread that asked: it takes the answer and nothing else.
        return Err(SendError::NotFound(to));
    }
    if slot.host.load(Relaxed) != to.host() {
        // Either the slot belongs to a later life by now, or the address was put together by hand.
        let ours = to.local().generation();
        let is_later = slot.word().generation() > ours && slot.first() != ours;
        return Err(if is_later { SendError::Closed(to) } else { SendError::NotFound(to) });
    }
    Ok(slot)
}

/// Is there such a process now?
pub(crate) fn check_alive(pid: Pid) -> Result<(), SendError> {
    Producer::bind(pid).map(drop)
}

fn admit(slot: &'static Slot, package: Package) -> Result<(), SendError> {
    let Package { to, from, topic, payload, budget, terminal } = package;
    let flags = if terminal { KIND_MESSAGE | TERMINAL } else { KIND_MESSAGE };
    let message = Message::new(payload, from, topic, flags);
    match budget {
        Some(budget) if !terminal => budget::push(slot, to, message, Some(budget)),
        _ => push(slot, to, Bind::Life(to.local().generation()), message),
    }
}

pub(crate) fn send_message(to: Pid, message: Message) -> Result<(), SendError> {
    let slot = look_up(to)?;
    push(slot, to, Bind::Life(to.local().generation()), message)
}

/// The way of a message without a budget.
fn push(slot: &'static Slot, to: Pid, bind: Bind, message: Message) -> Result<(), SendError> {
    let cell =
        crate::worker::with_magazines(|m| message::store(m, message)).map_err(|_| SendError::Exhausted)?;
    match slot.push(&InMemory, bind, cell, Gate::Closed) {
        Ok(after) => {
            route::follow(after, to.local().slot(), slot);
            Ok(())
        }
        Err(refused) => refused_cell(slot, to, bind, cell, refused),
    }
}

/// What becomes of a message whose push changed nothing.
#[cold]
pub(crate) fn refused_cell(
    slot: &'static Slot,
    to: Pid,
    bind: Bind,
    cell: u32,
    refused: Refused,
) -> Result<(), SendError> {
    // SAFETY: the push was refused, so the cell is still ours.
    let message = crate::worker::with_magazines(|m| unsafe { message::take(m, cell) });
    match refused {
        Refused::Closed => Err(SendError::Closed(to)),
        Refused::Stale => Err(SendError::Stale(to)),
        Refused::Unknown => Err(SendError::NotFound(to)),
        Refused::Overflow => budget::push_bound(slot, to, bind, message, None),
    }
}

/// Sends a value to a process by the shortest way: no sender, no topic, no budget.
#[inline]
pub(crate) fn tell<T: Send + 'static>(to: LocalPid, value: T) -> Result<(), SendError> {
    match crate::worker::current() {
        Some(worker) => tell_on(worker, to, value),
        None => tell_from_outside(to, value),
    }
}

/// As [`tell`], from a step of this worker.
#[inline(always)]
pub(crate) fn tell_on<T: Send + 'static>(worker: &Worker, to: LocalPid, value: T) -> Result<(), SendError> {
    let number = to.slot();
    let Some(slot) = memory::find_slot(number) else {
        return Err(SendError::NotFound(route::pid_of(to)));
    };
    // The two lines that a message needs, its receiver's and its cell's, come side by side.
    memory::prefetch_slot(slot);
    let Ok(cell) = message::store_short(&worker.magazines, value) else {
        return Err(SendError::Exhausted);
    };
    let bind = Bind::Life(to.generation());
    match slot.push(&InMemory, bind, cell, Gate::Closed) {
        Ok(After::Nothing) => Ok(()),
        Ok(After::Queue) => {
            route::queue_on(worker, number, slot);
            Ok(())
        }
        Err(refused) => refused_cell(slot, route::pid_of(to), bind, cell, refused),
    }
}

#[cold]
#[inline(never)]
fn tell_from_outside<T: Send + 'static>(to: LocalPid, value: T) -> Result<(), SendError> {
    let number = to.slot();
    let bind = Bind::Life(to.generation());
    let Some(slot) = memory::find_slot(number) else {
        return Err(SendError::NotFound(route::pid_of(to)));
    };
    let stored = memory::outside(|m| message::store_short(m, value));
    let Ok(cell) = stored else {
        return Err(SendError::Exhausted);
    };
    match slot.push(&InMemory, bind, cell, Gate::Closed) {
        Ok(after) => {
            route::follow(after, number, slot);
            Ok(())
        }
        Err(refused) => refused_cell(slot, route::pid_of(to), bind, cell, refused),
    }
}

/// A sender bound to the generation of a queue that it saw: after a reset of that queue it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Producer {
    pid: Pid,
    generation: u32,
}

impl Producer {
    /// Binds to the queue of `pid` as it is now.
    ///
    /// # Errors
    /// [`SendError::NotFound`], [`SendError::Closed`], [`SendError::OtherNode`].
    pub fn bind(pid: Pid) -> Result<Self, SendError> {
        let slot = look_up(pid)?;
        let word = slot.word();
        let (first, generation) = (slot.first(), word.generation());
        let ours = pid.local().generation();
        if ours > generation || (ours == generation && word.is_free()) {
            return Err(SendError::NotFound(pid));
        }
        // `first` was read after the word: of the same life or a later one, never an earlier.
        if word.is_free() || first != ours {
            return Err(SendError::Closed(pid));
        }
        Ok(Self { pid, generation })
    }

    /// Whose queue it is.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends to that generation of the queue.
    ///
    /// # Errors
    /// [`SendError::Stale`] after a reset, else as for [`send`]; the message is dropped.
    pub fn send<T: Send + 'static>(&self, topic: Topic, content: T) -> Result<(), SendError> {
        self.send_within(topic, content, None)
    }

    /// As [`Self::send`], within a budget.
    ///
    /// # Errors
    /// As [`Self::send`], and [`SendError::Dropped`].
    pub fn send_within<T: Send + 'static>(
        &self,
        topic: Topic,
        content: T,
        budget: Option<Budget>,
    ) -> Result<(), SendError> {
        let slot = look_up(self.pid)?;
        let bind = Bind::Exactly(self.generation);
        let message = Message::new(Payload::new(content), None, topic, KIND_MESSAGE);
        match budget {
            Some(_) => budget::push_bound(slot, self.pid, bind, message, budget),
            None => push(slot, self.pid, bind, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scheduler, SpawnOptions};
    use std::sync::atomic::{AtomicUsize, Ordering};

    static SEEN: AtomicUsize = AtomicUsize::new(0);
    struct Counts;
    impl crate::Process for Counts {
        fn step(
            &mut self,
            events: &mut crate::Events<'_>,
            out: &mut crate::StepOutput<'_>,
        ) -> Result<(), crate::ProcessError> {
            for event in events.by_ref() {
                match event {
                    crate::Event::Message(mut message) if message.is_request() => {
                        message.reply(Payload::empty());
                    }
                    crate::Event::Message(_) => {
                        SEEN.fetch_add(1, Ordering::Relaxed);
                    }
                    _ => out.done(()),
                }
            }
            Ok(())
        }
    }

    #[test]
    fn a_cancellation_between_look_up_and_admission_keeps_the_message_out() {
        let scheduler = Scheduler::builder().workers(1).start().unwrap();
        let pid = scheduler.spawn(Counts, SpawnOptions::new()).unwrap();
        let cancel = Cancellation::new();
        let sent = send_with_pause(&cancel, Package::new(pid, 1_u32), || cancel.cancel());
        assert_eq!(sent, Err(SendError::Cancelled));
        // Whatever had been admitted would have been taken before this answer.
        scheduler.ask(pid, (), None).unwrap();
        assert_eq!(SEEN.load(Ordering::Relaxed), 0);
        send_with_pause(&Cancellation::new(), Package::new(pid, 1_u32), || {}).unwrap();
        scheduler.ask(pid, (), None).unwrap();
        assert_eq!(SEEN.load(Ordering::Relaxed), 1);
    }
}
