//! Limits on what may wait in a mailbox: for each topic, opt-in by the message.
//!
//! A message with a [`Budget`] is admitted only if its topic then holds at most so many messages and
//! bytes; the tightest limit that the topic has seen counts. An admitted message keeps its place till it
//! is released (dropped, or by hand). Terminals and the system's events take no place.
//!
//! # Overflow
//!
//! The first message that does not fit is replaced by ONE synthetic message with the payload list
//! [[`QueueLimitExceeded`], [`Terminal`]], and closes the topic: what comes after on it, with or without
//! a budget, is dropped till the queue is reset. Both what is accepted and what is dropped wake the
//! process.
//!
//! # How it stays exact
//!
//! Admission and the place in the queue are one step: they happen under one short lock (a shard by slot
//! number), and so do release and reset. The push in it is bound to the generation that the lock's holder
//! saw, and a reset needs the lock: so a reservation is of the generation that it was counted in, and
//! changes nothing in a later one. Traffic without a budget takes no lock: it looks at one bit of the
//! word, which its own CAS re-checks, and comes here only when some topic of the process has overflowed.
//!
//! Models: `model::budget`; property tests: `tests/it/mailbox.rs`.

use std::collections::HashMap;

use crate::process::Topic;
use crate::process::event_queue::Cells;
use crate::process::slot::{After, Bind, Gate, Refused, Slot, Word};
use crate::sync::Mutex;

/// The most that may wait on one topic of one process: a bound that senders give with their messages
/// ([`crate::Handle::tell_within`], [`crate::Package::budget`]). Without one a mailbox has no bound.
///
/// A message that is admitted holds its place till the receiver drops it, or releases it
/// ([`crate::Message::release`]); an actor's, till its handler is called. Of several budgets that a topic has
/// seen the tightest counts, till the queue is reset.
///
/// # Overflow closes the topic
///
/// The first message that does not fit gets [`crate::SendError::Dropped`], and closes its topic: **all that
/// comes after on it is dropped in the same way, also without a budget, and also when the receiver has long
/// made room, till the receiver resets its queue** ([`crate::StepOutput::reset_queue`]). So nobody takes a
/// stream with a gap for a whole one. Other topics go on.
///
/// The receiver finds one notice in the place of the first message that was dropped
/// ([`crate::Message::overflow`]; an actor's [`crate::Actor::event`]), and decides: stay closed, end, or reset.
/// A reset opens all its topics, and loses what is queued and not yet taken, of every topic: messages, and
/// results of yields, ends of others and cancellations too. A yield whose result was among them stays open, and
/// who asked is told that there is no answer. Senders by PID, handle or name go on; a [`crate::Producer`] is
/// refused from then on.
///
/// ```
/// use evener_scheduler::{Actor, Budget, Context, Event, Scheduler, Topic};
/// use std::sync::mpsc;
///
/// enum Job { Fill, Do(u32) }
/// struct Worker { jobs: Topic, log: mpsc::Sender<String> }
///
/// impl Actor for Worker {
///     type Message = Job;
///     fn handle(&mut self, job: Job, cx: &mut Context<'_, Job>) {
///         let log = |line| self.log.send(line).expect("somebody reads");
///         match job {
///             Job::Do(number) => log(format!("did {number}")),
///             Job::Fill => {
///                 for number in 1..=4 {
///                     let sent = cx.me().tell_within(self.jobs, Budget::items(2), Job::Do(number));
///                     if sent.is_err() {
///                         log(format!("dropped {number}"));
///                     }
///                 }
///                 // Of another topic: accepted, and queued behind the notice.
///                 cx.me().tell(Job::Do(5)).expect("it lives");
///             }
///         }
///     }
///     fn event(&mut self, event: Event, cx: &mut Context<'_, Job>) {
///         if let Event::Message(message) = event
///             && message.overflow().is_some()
///         {
///             let topic = message.topic();
///             let lost = cx.raw().reset_queue().expect("a slot can be reset millions of times");
///             let again = cx.me().tell_within(self.jobs, Budget::items(2), Job::Do(6));
///             let line = format!("{topic:?} overflowed, the reset lost {lost}, open: {}", again.is_ok());
///             self.log.send(line).expect("somebody reads");
///         }
///     }
/// }
///
/// let scheduler = Scheduler::builder().workers(1).start()?;
/// let (log, lines) = mpsc::channel();
/// scheduler.spawn_actor(Worker { jobs: Topic::new("jobs"), log })?.tell(Job::Fill)?;
/// let lines: Vec<String> = lines.iter().take(6).collect();
/// assert_eq!(lines, [
///     "dropped 3",
///     "dropped 4",
///     "did 1",
///     "did 2",
///     "\"jobs\" overflowed, the reset lost 1, open: true",
///     "did 6",
/// ]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    max_items: Option<usize>,
    max_bytes: Option<usize>,
}

impl Budget {
    /// At most so many messages. 0: the first one overflows.
    #[must_use]
    pub fn items(max: usize) -> Self {
        Self { max_items: Some(max), max_bytes: None }
    }

    /// At most so many bytes, by [`crate::Payload::weight`]. 0: the first one with any bytes overflows.
    #[must_use]
    pub fn bytes(max: usize) -> Self {
        Self { max_items: None, max_bytes: Some(max) }
    }

    /// At most so many bytes as well.
    #[must_use]
    pub fn and_bytes(mut self, max: usize) -> Self {
        self.max_bytes = Some(max);
        self
    }
}

/// First part of the message that stands for what did not fit; see [`crate::Message::overflow`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("message queue limit exceeded")]
pub struct QueueLimitExceeded;

/// Second part: the topic is closed till the queue is reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal;

/// One topic's account, for statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TopicUse {
    /// Messages that hold a place.
    pub items: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Messages dropped since the last reset.
    pub drops: u64,
    /// The most messages that held a place at one time since the last reset.
    pub items_high: usize,
    /// The tightest limit seen.
    pub max_items: Option<usize>,
    /// The tightest limit seen.
    pub max_bytes: Option<usize>,
    /// Closed till the next reset.
    pub has_overflowed: bool,
}

impl TopicUse {
    fn tighten(&mut self, budget: Budget) {
        let tighter = |old: Option<usize>, new: Option<usize>| match (old, new) {
            (Some(old), Some(new)) => Some(old.min(new)),
            (old, new) => old.or(new),
        };
        self.max_items = tighter(self.max_items, budget.max_items);
        self.max_bytes = tighter(self.max_bytes, budget.max_bytes);
    }

    fn fits(&self, bytes: usize) -> bool {
        self.max_items.is_none_or(|max| self.items < max)
            && self.max_bytes.is_none_or(|max| self.bytes.saturating_add(bytes) <= max)
    }
}

/// One generation of one queue.
#[derive(Default)]
struct Account {
    generation: u32,
    topics: HashMap<Topic, TopicUse>,
}

/// What the caller is to put into the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admit {
    /// The message, which holds a place in this generation's account.
    Reserved(u32),
    /// The message, which holds no place.
    Plain,
    /// The synthetic message in its stead.
    Overflow,
}

/// How an admission went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admitted {
    Accepted(After),
    /// Over budget; the synthetic message may have been pushed, the process is to be woken.
    Dropped(After),
}

/// The accounts of all queues that have any, in shards.
pub(crate) struct Accounts {
    shards: Box<[Mutex<HashMap<u32, Account>>]>,
}

impl Accounts {
    pub(crate) fn new(shards: usize) -> Self {
        Self { shards: (0..shards).map(|_| Mutex::new(HashMap::new())).collect() }
    }

    fn shard(&self, number: u32) -> &Mutex<HashMap<u32, Account>> {
        &self.shards[number as usize % self.shards.len()]
    }

    /// Decides about one message and puts what `make` gives for it into the queue, as one step.
    ///
    /// On `Err` nothing changed. `make` runs at most once; the cell that it gave is used up on `Ok`, and
    /// is given to `unmake` on `Err`. Neither may run user code: the lock is held.
    #[allow(clippy::too_many_arguments, reason = "the parts of one admission")]
    pub(crate) fn push(
        &self,
        cells: &impl Cells,
        number: u32,
        slot: &Slot,
        bind: Bind,
        topic: Topic,
        budget: Option<Budget>,
        bytes: usize,
        make: impl FnOnce(Admit) -> u32,
        unmake: impl FnOnce(u32),
    ) -> Result<Admitted, Refused> {
        let mut shard = self.shard(number).lock();
        // Who is not admitted must not open an account; and one that is opened must be closed at the end.
        slot.watch(bind)?;
        let generation = slot.word().generation();
        let account = shard.entry(number).or_default();
        if account.generation != generation {
            *account = Account { generation, topics: HashMap::new() };
        }
        let mut state = account.topics.get(&topic).copied().unwrap_or_default();
        if let Some(budget) = budget {
            state.tighten(budget);
        }
        let admit = if state.has_overflowed {
            None
        } else if budget.is_none() {
            Some(Admit::Plain)
        } else if state.fits(bytes) {
            Some(Admit::Reserved(generation))
        } else {
            Some(Admit::Overflow)
        };
        let pushed = match admit {
            None => slot.wake(Bind::Exactly(generation)),
            Some(admit) => {
                let cell = make(admit);
                let gate = if admit == Admit::Overflow { Gate::Close } else { Gate::Open };
                let pushed = slot.push(cells, Bind::Exactly(generation), cell, gate);
                if pushed.is_err() {
                    unmake(cell);
                }
                pushed
            }
        };
        let after = match pushed {
            Ok(after) => after,
            // The process ended while we were here (a reset would have waited for the lock). Its end finds
            // it watched, waits for the lock, and closes the account.
            // Model: model::budget::no_account_outlives_its_process.
            Err(_) => return Err(Refused::Closed),
        };
        let admitted = match admit {
            Some(Admit::Reserved(_)) => {
                state.items += 1;
                state.bytes += bytes;
                state.items_high = state.items_high.max(state.items);
                Admitted::Accepted(after)
            }
            Some(Admit::Plain) => Admitted::Accepted(after),
            Some(Admit::Overflow) => {
                state.has_overflowed = true;
                state.drops += 1;
                Admitted::Dropped(after)
            }
            None => {
                state.drops += 1;
                Admitted::Dropped(after)
            }
        };
        if budget.is_some() || admit.is_none() {
            account.topics.insert(topic, state);
        }
        Ok(admitted)
    }

    /// Gives a place back; of a generation that is over: does nothing.
    pub(crate) fn release(&self, number: u32, generation: u32, topic: Topic, bytes: usize) {
        let mut shard = self.shard(number).lock();
        let Some(account) = shard.get_mut(&number).filter(|account| account.generation == generation) else {
            return;
        };
        if let Some(state) = account.topics.get_mut(&topic) {
            debug_assert!(state.items > 0 && state.bytes >= bytes, "released more than was reserved");
            state.items -= 1;
            state.bytes -= bytes;
        }
    }

    /// Begins a new generation of the queue, by its runner; see [`Slot::reset`].
    pub(crate) fn reset(&self, number: u32, slot: &Slot, generation_max: u32) -> Option<Word> {
        let mut shard = self.shard(number).lock();
        let word = slot.reset(generation_max)?;
        shard.remove(&number);
        Some(word)
    }

    /// Closes the account of a process that has ended.
    pub(crate) fn forget(&self, number: u32) {
        self.shard(number).lock().remove(&number);
    }

    /// The topics of one queue that have an account.
    pub(crate) fn topics(&self, number: u32) -> Vec<(Topic, TopicUse)> {
        let shard = self.shard(number).lock();
        shard.get(&number).map_or_else(Vec::new, |account| {
            account.topics.iter().map(|(topic, state)| (*topic, *state)).collect()
        })
    }

    /// Slots whose accounts are open, for tests of what ends leave behind.
    pub(crate) fn open(&self) -> Vec<u32> {
        self.shards.iter().flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>()).collect()
    }
}

#[cfg(not(loom))]
pub(crate) use program::*;

#[cfg(not(loom))]
mod program {
    //! The accounts of the whole program, and messages as they are.

    use std::sync::LazyLock;

    use super::{Accounts, Admit, Admitted, Budget, QueueLimitExceeded, Terminal, TopicUse};
    use crate::memory::{Class, InMemory};
    use crate::process::message::{self, Extension, KIND_MESSAGE, Message, OVERFLOW, RESERVED};
    use crate::process::slot::{Bind, Refused, Slot, Word};
    use crate::process::{SendError, Topic};
    use crate::sync::Relaxed;
    use crate::worker::with_magazines;
    use crate::{LocalPid, Payload, Pid, route};

    static ACCOUNTS: LazyLock<Accounts> = LazyLock::new(|| Accounts::new(64));

    pub(crate) fn push(
        slot: &'static Slot,
        to: Pid,
        message: Message,
        budget: Option<Budget>,
    ) -> Result<(), SendError> {
        push_bound(slot, to, Bind::Life(to.local().generation()), message, budget)
    }

    /// Sends a message to a queue with budgets, with or without one of its own.
    #[cold]
    pub(crate) fn push_bound(
        slot: &'static Slot,
        to: Pid,
        bind: Bind,
        message: Message,
        budget: Option<Budget>,
    ) -> Result<(), SendError> {
        let number = to.local().slot();
        let topic = message.topic();
        let bytes = message.payload().weight();
        let bytes_noted = u32::try_from(bytes).unwrap_or(u32::MAX);
        // Room is made before the lock, so that nothing can fail or be dropped under it.
        let ext = Extension { slot: number, bytes: bytes_noted, ..Extension::NONE };
        let message = if budget.is_some() && !message.has_extension() {
            with_magazines(|m| message.with_extension(m, ext)).map_err(|_| SendError::Exhausted)?
        } else {
            message
        };
        let limit = vec![Payload::new(QueueLimitExceeded), Payload::new(Terminal)];
        let synthetic = Message::new(Payload::list(limit), None, topic, KIND_MESSAGE | OVERFLOW);
        let spare = with_magazines(|m| m.alloc(Class::Full)).map_err(|_| SendError::Exhausted)?;
        let mut kept = Some(message);
        let mut synthetic = Some(synthetic);
        let mut failed = None;
        let mut used = false;
        let pushed = ACCOUNTS.push(
            &InMemory,
            number,
            slot,
            bind,
            topic,
            budget,
            bytes_noted as usize,
            |admit| {
                used = true;
                let message = match admit {
                    Admit::Overflow => synthetic.take(),
                    Admit::Plain => kept.take(),
                    Admit::Reserved(generation) => kept.take().map(|message| message.reserved(generation)),
                };
                message::store_in(spare, message.expect("made once"));
                spare
            },
            |cell| failed = Some(cell),
        );
        if let Some(cell) = failed {
            // SAFETY: the push was refused, so the cell is still ours. Its reservation was not counted.
            let mut message = with_magazines(|m| unsafe { message::take(m, cell) });
            message.clear_flag(RESERVED);
            drop(message);
        } else if !used {
            with_magazines(|m| m.free(Class::Full, spare));
        }
        // Queued first: the drop of a message may run user code, which may wait or panic.
        if let Ok(Admitted::Accepted(after) | Admitted::Dropped(after)) = pushed {
            route::follow(after, number, slot);
        }
        drop(kept);
        match pushed {
            Ok(Admitted::Accepted(_)) => Ok(()),
            Ok(Admitted::Dropped(_)) => {
                count_dropped(slot);
                Err(SendError::Dropped { pid: to, topic })
            }
            Err(Refused::Stale) => Err(SendError::Stale(to)),
            Err(Refused::Unknown) => Err(SendError::NotFound(to)),
            Err(Refused::Closed | Refused::Overflow) => Err(SendError::Closed(to)),
        }
    }

    /// Counts for the receiver's host: by a step of it as the steps count, by others in a word that they share,
    /// for they have taken a lock already.
    fn count_dropped(slot: &Slot) {
        if !cfg!(feature = "stats") {
            return;
        }
        let host = slot.host.load(Relaxed);
        match crate::worker::current() {
            Some(worker) if worker.host() == host => worker.count(|counters| &counters.over_budget),
            _ => {
                route::host::hub(host).over_budget_outside.fetch_add(1, Relaxed);
            }
        }
    }

    pub(crate) fn release(number: u32, generation: u32, topic: Topic, bytes: u32) {
        ACCOUNTS.release(number, generation, topic, bytes as usize);
    }

    pub(crate) fn forget(pid: LocalPid, word: Word) {
        if word.is_watched() {
            ACCOUNTS.forget(pid.slot());
        }
    }

    pub(crate) fn reset(pid: LocalPid, slot: &Slot, generation_max: u32) -> Option<Word> {
        ACCOUNTS.reset(pid.slot(), slot, generation_max)
    }

    /// The topics with budgets of a process, as they stand.
    #[must_use]
    pub(crate) fn topics_of(pid: LocalPid) -> Vec<(Topic, TopicUse)> {
        ACCOUNTS.topics(pid.slot())
    }

    /// Accounts open for processes of a host.
    pub(crate) fn accounts_of(host: u16) -> usize {
        let open = ACCOUNTS.open();
        open.iter().filter(|number| crate::memory::slot(**number).host.load(Relaxed) == host).count()
    }
}
