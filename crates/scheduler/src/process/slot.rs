//! The one atomic word of a process: its state, its life, its mailbox's newest message.
//!
//! # The word
//!
//! ```text
//!  63            32 31          8  7 .. 3   2   0
//! | newest message | generation  | flags  | state |
//! ```
//!
//! | part | bits | meaning |
//! | --- | --- | --- |
//! | state | 3 | `FREE`, `READY`, `RUNNING`, `IDLE`, `BLOCKED` |
//! | `WAKE` | 1 | look again before waiting, though no message came |
//! | `KILL` | 1 | whoever claims the process next ends it |
//! | `OVERFLOW` | 1 | some topic has overflowed: every send asks the budgets first |
//! | `RESET` | 1 | the queue was reset in this life: `first` says whose it is, not the generation |
//! | `WATCHED` | 1 | the tables of names, links, monitors or budgets know this life |
//! | generation | 24 | rises at each end and each reset of the queue; never wraps |
//! | newest message | 32 | cell of the message pushed last, 0 if none; each cell names the one before |
//!
//! # Who moves it
//!
//! | from | to | who | how |
//! | --- | --- | --- | --- |
//! | `FREE` | `READY` | the spawner, alone with a slot from a free list | [`Slot::publish`] (store) |
//! | `FREE` | `RUNNING` | the same, if tables must name the process before it runs | [`Slot::publish_held`] (store) |
//! | `IDLE`, `BLOCKED` | `READY` | a sender, waker or killer; it alone must queue the process | CAS |
//! | `READY` | `RUNNING` | the worker that took it from a run queue; takes the messages | CAS |
//! | `RUNNING` | `IDLE`, `BLOCKED` | the same worker, only if no message, wake or kill came | CAS |
//! | `RUNNING` | `READY` | the same worker, which then queues it | CAS |
//! | `RUNNING` | `FREE`, next generation | the same worker; takes the messages | swap |
//! | any but `FREE` | same, new message | a sender | CAS |
//!
//! # Why no wake is lost and no process is queued twice
//!
//! *One queue place per `READY`.* A process is queued by whoever made it `READY`, once, and leaves
//! `READY` only by the claim of whoever took it out. All moves are atomic on one word, so exactly one
//! party sees each move into `READY`.
//!
//! *No lost wake.* A message and the state are one word. The worker's way from `RUNNING` to waiting is
//! a CAS from a word without message and without `WAKE`; a sender's push changes the word, so either
//! the push came first and the CAS fails (the worker sees the message and queues the process), or the
//! push finds the process waiting and makes it `READY` itself.
//!
//! *One linearization point for admission.* The generation that a sender checks and the mailbox that
//! it pushes to are one word: a sender that was preempted between check and push fails its CAS when
//! the slot was closed, reset or reused meanwhile. (Two words would let it through: that is the
//! negative control `model::slot::two_words_admit_a_stale_sender`.)
//!
//! *ABA.* A push installs a cell whose `next` is the word's old message. If the word left that value
//! and came back, the generation is the same and the message is the newest one again, so `next` is
//! right again. Only `depth`, a statistic, may be off by what happened in between.
//!
//! # Generations
//!
//! A life begins at the generation its slot has, kept in `first` and in the PID; a reset of the queue
//! within that life adds one. So the lives of a slot own disjoint ranges. A sender by PID is let in if
//! the word's generation lies in its life (`first` equals the PID's); a [`crate::Producer`] only at the
//! very generation it was bound to. `first` is written only while the slot is `FREE`, so a CAS that
//! finds the generation unchanged proves that `first` was read within the same life. An upgrade changes
//! neither. A restart is a new life, usually in another slot. A slot whose generations are used up is
//! retired: it never leaves `FREE` again.
//!
//! # Who may hold a pointer to a slot
//!
//! Anybody, for ever: slots are never given back to the allocator, only reused as slots
//! ([`crate::memory`]). Everything but the word, `next` and the counters is touched only by the party
//! that holds the process `RUNNING`, or `FREE` before its publication.
//!
//! Models: `model::slot`.

use std::mem::MaybeUninit;

use crate::process::event_queue::{Cells, FULL};
use crate::process::table::{Cold, ProcessTable};
use crate::sync::{AcqRel, Acquire, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Cell, Relaxed, Release};

/// The greatest generation that a PID can have. One more marks a retired slot.
pub(crate) const GENERATION_MAX: u32 = (1 << 24) - 2;

const STATE: u64 = 0b111;
const WAITING: u64 = 0b100;
const FREE: u64 = 0;
const READY: u64 = 1;
const RUNNING: u64 = 2;
const IDLE: u64 = WAITING;
const BLOCKED: u64 = WAITING | 1;

const WAKE: u64 = 1 << 3;
const KILL: u64 = 1 << 4;
const OVERFLOW: u64 = 1 << 5;
const WATCHED: u64 = 1 << 6;
const RESET: u64 = 1 << 7;

const GENERATION_SHIFT: u32 = 8;
const GENERATION: u64 = ((1 << 24) - 1) << GENERATION_SHIFT;
const HEAD_SHIFT: u32 = 32;
const HEAD: u64 = !0 << HEAD_SHIFT;

/// A value of the word, read at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    #[inline(always)]
    pub(crate) fn generation(self) -> u32 {
        ((self.0 & GENERATION) >> GENERATION_SHIFT) as u32
    }
    /// The newest message's cell, 0 if none.
    #[inline(always)]
    pub(crate) fn head(self) -> u32 {
        (self.0 >> HEAD_SHIFT) as u32
    }
    #[inline(always)]
    pub(crate) fn is_free(self) -> bool {
        self.0 & STATE == FREE
    }
    #[inline(always)]
    pub(crate) fn is_waiting(self) -> bool {
        self.0 & WAITING != 0
    }
    #[inline(always)]
    pub(crate) fn is_ready(self) -> bool {
        self.0 & STATE == READY
    }
    #[inline(always)]
    pub(crate) fn is_running(self) -> bool {
        self.0 & STATE == RUNNING
    }
    #[inline(always)]
    pub(crate) fn is_blocked(self) -> bool {
        self.0 & STATE == BLOCKED
    }
    #[inline(always)]
    pub(crate) fn is_killed(self) -> bool {
        self.0 & KILL != 0
    }
    #[inline(always)]
    pub(crate) fn is_watched(self) -> bool {
        self.0 & WATCHED != 0
    }
    #[inline(always)]
    pub(crate) fn has_overflowed(self) -> bool {
        self.0 & OVERFLOW != 0
    }
    #[inline(always)]
    fn with_state(self, state: u64) -> Self {
        Self(self.0 & !STATE | state)
    }
    #[inline(always)]
    fn with_head(self, cell: u32) -> Self {
        Self(self.0 & !HEAD | u64::from(cell) << HEAD_SHIFT)
    }
    /// What a newcomer makes of it: a waiting process becomes `READY`.
    #[inline(always)]
    fn woken(self) -> Self {
        if self.is_waiting() { self.with_state(READY) } else { self }
    }
}

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match self.0 & STATE {
            FREE => "free",
            READY => "ready",
            RUNNING => "running",
            IDLE => "idle",
            BLOCKED => "blocked",
            _ => "?",
        };
        let flags: String = [(WAKE, 'w'), (KILL, 'k'), (OVERFLOW, 'o'), (WATCHED, 't'), (RESET, 'r')]
            .iter()
            .filter(|(bit, _)| self.0 & bit != 0)
            .map(|(_, name)| *name)
            .collect();
        write!(f, "{state}[{flags}] generation {} head {}", self.generation(), self.head())
    }
}

/// Where a waiting process waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// For messages.
    Idle,
    /// For yields; a message wakes it too.
    Blocked,
}

/// What an act on the word asks of its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    /// Nothing: the process runs or is queued already.
    Nothing,
    /// The caller made it `READY` and must queue it.
    Queue,
}

/// Why a push changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// That life is over.
    Closed,
    /// The queue was reset since the producer was bound.
    Stale,
    /// There was never such a life.
    Unknown,
    /// Some topic has overflowed: ask the budgets.
    Overflow,
}

/// Which producers are let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bind {
    /// Any generation of the life that began with this one.
    Life(u32),
    /// This generation alone.
    Exactly(u32),
}

impl Bind {
    #[inline(always)]
    fn generation(self) -> u32 {
        match self {
            Bind::Life(generation) | Bind::Exactly(generation) => generation,
        }
    }
}

/// How a push treats [`OVERFLOW`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gate {
    /// Ordinary traffic: refused while some topic has overflowed.
    Closed,
    /// The caller holds the budgets' lock and knows that its topic has not.
    Open,
    /// The caller holds the lock; this message closes its topic.
    Close,
}

/// One place for a process: 64 bytes, one cache line.
#[repr(C, align(64))]
pub(crate) struct Slot {
    word: AtomicU64,
    /// Link in the one run queue the process is in, or in a free list.
    pub(crate) next: AtomicU32,
    /// The worker that ran it last.
    pub(crate) worker: AtomicU16,
    /// The host it belongs to; fixed from spawn to end.
    pub(crate) host: AtomicU16,
    /// The generation its life began with; see the module's words on generations.
    first: AtomicU32,
    /// Turns taken in this life; written by the runner alone.
    pub(crate) steps: AtomicU32,
    /// When it was spawned, in tenths of a second of the program's coarse clock.
    pub(crate) born: AtomicU32,
    /// Oldest message taken and not yet delivered; written by the runner, read by statistics.
    pub(crate) inbox: AtomicU32,
    /// Its code.
    pub(crate) table: AtomicPtr<ProcessTable>,
    /// What few need; touched by the runner alone.
    pub(crate) cold: Cell<*mut Cold>,
    /// The state: the value itself up to 16 bytes, else a pointer to it and its cell.
    pub(crate) body: Cell<[MaybeUninit<u64>; 2]>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 64);

// SAFETY: the word hands the cells from one party to the next: only who holds the process RUNNING (or
// owns the FREE slot) touches them; see the module's table.
unsafe impl Sync for Slot {}
// SAFETY: as above; bodies are `Send` by the bound on `Process`.
unsafe impl Send for Slot {}

impl Slot {
    /// A slot as zeroed memory gives it; models need it as a value.
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            next: AtomicU32::new(0),
            worker: AtomicU16::new(0),
            host: AtomicU16::new(0),
            first: AtomicU32::new(0),
            steps: AtomicU32::new(0),
            born: AtomicU32::new(0),
            inbox: AtomicU32::new(0),
            table: AtomicPtr::new(std::ptr::null_mut()),
            cold: Cell::new(std::ptr::null_mut()),
            body: Cell::new([MaybeUninit::uninit(); 2]),
        }
    }

    /// Makes `generation` the next one of a slot that nobody knows yet.
    #[cfg(all(test, loom))]
    pub(crate) fn skip_to(&self, generation: u32) {
        self.word.store(u64::from(generation) << GENERATION_SHIFT | FREE, Relaxed);
    }

    /// The word as it is now, or was a moment ago.
    #[inline(always)]
    pub(crate) fn word(&self) -> Word {
        // Acquire: pairs with `publish`, so that `first`, `host` and `table` read after it are at
        // least as new as the life it shows. Model: model::slot::a_life_is_seen_whole.
        Word(self.word.load(Acquire))
    }

    /// The generation with which the present life began.
    #[inline]
    pub(crate) fn first(&self) -> u32 {
        self.first.load(Relaxed)
    }

    /// Sets the generation of the life to come. Only for the owner of a `FREE` slot.
    #[inline]
    pub(crate) fn begin(&self) -> u32 {
        let generation = Word(self.word.load(Relaxed)).generation();
        // Release: pairs with the fence of a reader that sweeps over slots, see `stats::for_each_process`;
        // for all others it travels with the Release of `publish`.
        self.first.store(generation, Release);
        generation
    }

    /// Makes a prepared slot a live process: `READY` for the caller to queue, or waiting.
    #[inline]
    pub(crate) fn publish(&self, generation: u32, waiting: Option<Wait>) {
        let state = match waiting {
            None => READY,
            Some(Wait::Idle) => IDLE,
            Some(Wait::Blocked) => BLOCKED,
        };
        // Release: pairs with the Acquire in `word` and `claim`; what the spawner wrote to the slot
        // travels. A plain store is enough: while the slot is FREE no CAS of others succeeds.
        self.word.store(u64::from(generation) << GENERATION_SHIFT | state, Release);
    }

    /// Makes a prepared slot a live process that its spawner still holds, as a runner holds one: nobody else
    /// queues it till [`Slot::requeue`], so that tables can name it first.
    pub(crate) fn publish_held(&self, generation: u32) {
        // Release: as in `publish`.
        self.word.store(u64::from(generation) << GENERATION_SHIFT | RUNNING, Release);
    }

    /// Is the word still within the life or generation that `bind` names? `Err` says why not.
    #[inline(always)]
    fn admit(&self, word: Word, bind: Bind) -> Result<(), Refused> {
        if word.generation() == bind.generation() && !word.is_free() && word.0 & RESET == 0 {
            return Ok(());
        }
        self.admit_slowly(word, bind)
    }

    #[cold]
    fn admit_slowly(&self, word: Word, bind: Bind) -> Result<(), Refused> {
        let ours = bind.generation();
        let theirs = word.generation();
        if ours > theirs || (ours == theirs && word.is_free()) {
            return Err(Refused::Unknown);
        }
        if word.is_free() {
            return Err(Refused::Closed);
        }
        // Read after the word: see the module's words on generations.
        let first = self.first.load(Relaxed);
        match bind {
            Bind::Life(life) if life == first => Ok(()),
            // A number that only a queue had, never a PID.
            Bind::Life(life) if life > first => Err(Refused::Unknown),
            Bind::Exactly(generation) if generation == theirs => Ok(()),
            Bind::Exactly(generation) if generation >= first => Err(Refused::Stale),
            _ => Err(Refused::Closed),
        }
    }

    /// Puts `cell` at the newest end of the mailbox: the one linearization point of a send.
    ///
    /// On `Err` nothing changed and the cell is still the caller's.
    #[inline]
    pub(crate) fn push(
        &self,
        cells: &impl Cells,
        bind: Bind,
        cell: u32,
        gate: Gate,
    ) -> Result<After, Refused> {
        debug_assert_ne!(cell, 0);
        let kind = cells.depth(cell).load(Relaxed) & FULL;
        let mut word = self.word();
        loop {
            self.admit(word, bind)?;
            if gate == Gate::Closed && word.has_overflowed() {
                return Err(Refused::Overflow);
            }
            let head = word.head();
            cells.link(cell, kind, head);
            let mut new = word.woken().with_head(cell);
            if gate == Gate::Close {
                new.0 |= OVERFLOW;
            }
            // Release: pairs with the Acquire of `claim`; the message and its link travel. Acquire: pairs
            // with the Release of `release`, so that what the last runner left (an empty inbox) travels on
            // with the queue to the next one. Model: model::slot::no_message_is_lost_or_doubled.
            match self.word.compare_exchange_weak(word.0, new.0, AcqRel, Acquire) {
                Ok(_) => return Ok(if word.is_waiting() { After::Queue } else { After::Nothing }),
                Err(now) => word = Word(now),
            }
        }
    }

    /// Asks for one more turn. Whatever the waker did before, that turn sees it: also a wake that finds the
    /// process `READY`, or asked already, writes the word, though with the value it has. (A wake that wrote
    /// nothing would publish nothing: negative control `model::slot::a_wake_that_writes_nothing_is_lost`.)
    #[inline]
    pub(crate) fn wake(&self, bind: Bind) -> Result<After, Refused> {
        self.set(bind, true, |word| {
            if word.is_waiting() {
                word.woken()
            } else if word.is_running() {
                Word(word.0 | WAKE)
            } else {
                word
            }
        })
    }

    /// Asks whoever claims the process next to end it.
    pub(crate) fn kill(&self, bind: Bind) -> Result<After, Refused> {
        self.set(bind, false, |word| Word(word.woken().0 | KILL))
    }

    /// Notes that some table knows this life. The caller holds that table's lock.
    pub(crate) fn watch(&self, bind: Bind) -> Result<(), Refused> {
        self.set(bind, false, |word| Word(word.0 | WATCHED))
            .map(|after| debug_assert_eq!(after, After::Nothing))
    }

    /// `always`: also writes a value that changes nothing, so that it publishes.
    #[inline]
    fn set(&self, bind: Bind, always: bool, change: impl Fn(Word) -> Word) -> Result<After, Refused> {
        let mut word = self.word();
        loop {
            self.admit(word, bind)?;
            let new = change(word);
            if new == word && !always {
                return Ok(After::Nothing);
            }
            // Acquire: as in `push`. Model: model::slot::a_waker_brings_the_last_turn_along. Release: pairs
            // with the Acquire of `claim`; the turn that was asked for sees why.
            // Models: model::slot::a_wake_of_a_running_process_publishes, model::slot::no_wake_is_lost.
            match self.word.compare_exchange_weak(word.0, new.0, AcqRel, Acquire) {
                Ok(_) => {
                    let queue = word.is_waiting() && new.is_ready();
                    return Ok(if queue { After::Queue } else { After::Nothing });
                }
                Err(now) => word = Word(now),
            }
        }
    }

    /// As the wake of a program that thinks a `READY` process needs no word; for a negative control.
    #[cfg(all(test, loom))]
    pub(crate) fn wake_by_look(&self, bind: Bind) -> Result<After, Refused> {
        if self.word().is_ready() { Ok(After::Nothing) } else { self.wake(bind) }
    }

    /// `READY` to `RUNNING`, by the worker that took the process out of a run queue. Takes the messages
    /// too unless `keep`. Gives the word as it was.
    #[inline]
    pub(crate) fn claim(&self, keep_messages: bool) -> Word {
        let mut word = Word(self.word.load(Relaxed));
        loop {
            debug_assert!(word.is_ready(), "claimed a process that is {word:?}");
            let mut new = Word(word.with_state(RUNNING).0 & !WAKE);
            if !keep_messages {
                new = new.with_head(0);
            }
            // Acquire: pairs with the Release of `push` (messages) and of `release` and `publish` (the
            // body as the last runner left it). Model: model::slot::no_message_is_lost_or_doubled.
            match self.word.compare_exchange_weak(word.0, new.0, Acquire, Relaxed) {
                Ok(_) => return word,
                Err(now) => word = Word(now),
            }
        }
    }

    /// `RUNNING` to waiting, unless something came meanwhile: then to `READY`, and the caller queues it.
    #[inline]
    pub(crate) fn release(&self, wait: Wait) -> After {
        let mut word = Word(self.word.load(Relaxed));
        loop {
            debug_assert!(word.is_running(), "released a process that is {word:?}");
            let asked = word.0 & (HEAD | WAKE | KILL) != 0;
            let state = match wait {
                _ if asked => READY,
                Wait::Idle => IDLE,
                Wait::Blocked => BLOCKED,
            };
            let new = Word(word.with_state(state).0 & !WAKE);
            // Release: pairs with the Acquire of `push`, `flag` and the next `claim`; the body travels.
            // Model: model::slot::the_body_goes_from_runner_to_runner.
            match self.word.compare_exchange_weak(word.0, new.0, Release, Relaxed) {
                Ok(_) => return if asked { After::Queue } else { After::Nothing },
                Err(now) => word = Word(now),
            }
        }
    }

    /// As [`Slot::release`] for a process that leaves messages where they are, for it waits for something
    /// else: they make it `READY` when they come, but those that are there do not keep it from waiting.
    #[inline]
    pub(crate) fn release_deaf(&self) -> After {
        let mut word = Word(self.word.load(Relaxed));
        loop {
            debug_assert!(word.is_running(), "released a process that is {word:?}");
            let asked = word.0 & (WAKE | KILL) != 0;
            let new = Word(word.with_state(if asked { READY } else { BLOCKED }).0 & !WAKE);
            // Release: as in `release`.
            match self.word.compare_exchange_weak(word.0, new.0, Release, Relaxed) {
                Ok(_) => return if asked { After::Queue } else { After::Nothing },
                Err(now) => word = Word(now),
            }
        }
    }

    /// `RUNNING` to `READY`: the process goes on later. The caller queues it.
    #[inline]
    pub(crate) fn requeue(&self) {
        let mut word = Word(self.word.load(Relaxed));
        loop {
            debug_assert!(word.is_running(), "requeued a process that is {word:?}");
            let new = Word(word.with_state(READY).0 & !WAKE);
            // Release: as in `release`; more than is needed while the queue, which this thread enters next,
            // hands the body over too. No model misses it.
            match self.word.compare_exchange_weak(word.0, new.0, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => word = Word(now),
            }
        }
    }

    /// `RUNNING` to `FREE` in the next generation: from here on nobody is admitted. Gives the word as it
    /// was, with the messages that came last.
    #[inline]
    pub(crate) fn close(&self) -> Word {
        let generation = Word(self.word.load(Relaxed)).generation() + 1;
        // Acquire: the messages that came since the claim are whole. Release: what the runner did comes
        // before the next life; more than is needed while the free list hands the slot over too, and no
        // model misses it. A swap may overrun flags set meanwhile: they are in the word it gives.
        // Model: model::slot::a_message_is_delivered_or_refused.
        let old = Word(self.word.swap(u64::from(generation) << GENERATION_SHIFT | FREE, AcqRel));
        debug_assert!(old.is_running(), "closed a process that is {old:?}");
        old
    }

    /// Gives up a prepared slot whose PID somebody has seen: that PID is not given out again. `true`: the
    /// slot may be used again (`max` is the greatest generation allowed).
    pub(crate) fn abandon(&self, max: u32) -> bool {
        let generation = Word(self.word.load(Relaxed)).generation() + 1;
        // Release: as in `close`.
        self.word.store(u64::from(generation) << GENERATION_SHIFT | FREE, Release);
        generation <= max
    }

    /// Begins a new generation of the queue within the same life, by the runner: messages not yet taken
    /// are handed to the caller, overflowed topics open again, bound producers go stale. `None` if the
    /// generations are used up (`max` is the greatest one allowed).
    pub(crate) fn reset(&self, max: u32) -> Option<Word> {
        let mut word = Word(self.word.load(Relaxed));
        loop {
            debug_assert!(word.is_running(), "reset a process that is {word:?}");
            if word.generation() >= max {
                return None;
            }
            let next = u64::from(word.generation() + 1) << GENERATION_SHIFT;
            let new = word.0 & !(HEAD | GENERATION | OVERFLOW) | next | RESET;
            // Acquire: the messages handed out are whole. Release is not needed: nothing new is shown.
            // Model: model::slot::a_reset_parts_the_generations.
            match self.word.compare_exchange_weak(word.0, new, Acquire, Relaxed) {
                Ok(_) => return Some(word),
                Err(now) => word = Word(now),
            }
        }
    }
}
