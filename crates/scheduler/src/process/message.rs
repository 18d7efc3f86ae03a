//! A message as a value, and as it lies in a cell.
//!
//! Two cells, alike in their first 32 bytes:
//!
//! ```text
//!        0     4      8      16       32       40      48     52     56   60   64
//! short | next | depth | table | 16 bytes |
//! full  | next | depth | table | 24 bytes         | sender | topic | flags | seq | ext |
//! ```
//!
//! A short cell is a message of the default topic whose sender does not matter: what the typed layer's
//! `tell` sends. `ext` names one more cell, for what few messages have: a reservation, a chain of askers.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::Arc;
use std::time::Instant;

use crate::command::YieldError;
use crate::memory::{self, Class, Exhausted, InMemory, Magazines};
use crate::process::budget::{self, QueueLimitExceeded};
use crate::process::event_queue::{Cells, FULL};
use crate::process::payload::{INLINE_WORDS, PayloadTable, TableOf};
use crate::process::table::ReplyTo;
use crate::process::{ExitReason, Tag, Topic};
use crate::sync::{AtomicU32, Relaxed};
use crate::{LocalPid, Payload, Pid, route};

/// What kind of thing a cell is: the low byte of `flags`.
pub(crate) const KIND: u32 = 0xff;
pub(crate) const KIND_MESSAGE: u32 = 0;
pub(crate) const KIND_YIELD_OK: u32 = 1;
pub(crate) const KIND_YIELD_ERR: u32 = 2;
pub(crate) const KIND_EXIT: u32 = 3;
pub(crate) const KIND_CANCEL: u32 = 4;
/// The message holds a reservation of its topic's budget; see its `ext`.
pub(crate) const RESERVED: u32 = 1 << 8;
/// The last message of its topic.
pub(crate) const TERMINAL: u32 = 1 << 9;
/// The sender waits for an answer: yield `seq`.
pub(crate) const REQUEST: u32 = 1 << 10;
/// The sender waits for an answer, whose right travels in the payload.
pub(crate) const ASK: u32 = 1 << 11;
/// It stands for what did not fit: see [`crate::process::budget`].
pub(crate) const OVERFLOW: u32 = 1 << 12;

/// At most this many processes stand between the first asker and the last one asked.
pub(crate) const CHAIN_MAX: usize = 5;

#[repr(C)]
struct ShortCell {
    next: AtomicU32,
    depth: AtomicU32,
    table: &'static PayloadTable,
    data: [MaybeUninit<u64>; 2],
}

#[repr(C)]
struct FullCell {
    next: AtomicU32,
    depth: AtomicU32,
    table: &'static PayloadTable,
    data: [MaybeUninit<u64>; INLINE_WORDS],
    sender: Option<LocalPid>,
    topic: Topic,
    flags: u32,
    seq: u32,
    ext: u32,
}

const _: () = assert!(size_of::<ShortCell>() == 32 && size_of::<FullCell>() == 64);

/// What few messages have.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Extension {
    /// The first two words of every message cell are atomics.
    pub(crate) words: [u32; 2],
    /// Whose budget holds a reservation, in which generation of the queue.
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    pub(crate) bytes: u32,
    pub(crate) chain_len: u32,
    /// Who waits for the sender's own answer, first asker first.
    pub(crate) chain: [Option<LocalPid>; CHAIN_MAX],
}

const _: () = assert!(size_of::<Extension>() == 64);

impl Extension {
    pub(crate) const NONE: Self =
        Self { words: [0; 2], slot: 0, generation: 0, bytes: 0, chain_len: 0, chain: [None; CHAIN_MAX] };
}

/// One routed message: 56 bytes, moved without running user code.
pub struct Message {
    payload: Payload,
    sender: Option<LocalPid>,
    topic: Topic,
    flags: u32,
    seq: u32,
    ext: u32,
}

const _: () = assert!(size_of::<Message>() == 56);

impl Message {
    pub(crate) fn new(payload: Payload, sender: Option<LocalPid>, topic: Topic, flags: u32) -> Self {
        Self { payload, sender, topic, flags, seq: 0, ext: 0 }
    }

    pub(crate) fn with_seq(mut self, seq: u32) -> Self {
        self.seq = seq;
        self
    }

    /// Adds the extension to a message that has none.
    pub(crate) fn with_extension(mut self, m: &Magazines, ext: Extension) -> Result<Self, Exhausted> {
        debug_assert_eq!(self.ext, 0);
        let number = m.alloc(Class::Full)?;
        // SAFETY: a full cell has 64 bytes and is ours; its first two words are left alone.
        unsafe {
            let cell = memory::cell(number).cast::<Extension>();
            (&raw mut (*cell).slot).write(ext.slot);
            (&raw mut (*cell).generation).write(ext.generation);
            (&raw mut (*cell).bytes).write(ext.bytes);
            (&raw mut (*cell).chain_len).write(ext.chain_len);
            (&raw mut (*cell).chain).write(ext.chain);
        }
        self.ext = number;
        Ok(self)
    }

    /// A look at the extension; the empty one if there is none.
    pub(crate) fn extension(&self) -> Extension {
        if self.ext == 0 {
            return Extension::NONE;
        }
        // SAFETY: `ext` is a full cell that this message owns, written by `with_extension`.
        unsafe {
            let cell = memory::cell(self.ext).cast::<Extension>();
            Extension {
                words: [0; 2],
                slot: (&raw const (*cell).slot).read(),
                generation: (&raw const (*cell).generation).read(),
                bytes: (&raw const (*cell).bytes).read(),
                chain_len: (&raw const (*cell).chain_len).read(),
                chain: (&raw const (*cell).chain).read(),
            }
        }
    }

    /// The process that sent it; `None`: a thread did, or a sender that left its name out. A thread that
    /// asks has an address too, which takes the answer and nothing else.
    #[must_use]
    pub fn sender(&self) -> Option<LocalPid> {
        self.sender
    }

    /// Its topic.
    #[must_use]
    pub fn topic(&self) -> Topic {
        self.topic
    }

    /// Is it the last of its topic?
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.flags & TERMINAL != 0
    }

    /// Does it stand for what did not fit its topic's budget? Then no sender has sent it: its topic is closed
    /// till the queue is reset ([`crate::StepOutput::reset_queue`]), and nothing of that topic comes behind it.
    /// Its payload is a `Vec<Payload>` of this error and a [`crate::Terminal`]; see [`crate::Budget`].
    #[must_use]
    pub fn overflow(&self) -> Option<QueueLimitExceeded> {
        (self.flags & OVERFLOW != 0).then_some(QueueLimitExceeded)
    }

    /// Does the sender wait for an answer?
    #[must_use]
    pub fn is_request(&self) -> bool {
        self.flags & REQUEST != 0
    }

    /// Looks at the content.
    #[must_use]
    pub fn payload(&self) -> &Payload {
        &self.payload
    }

    /// Takes the content out and leaves `()`.
    pub fn take_payload(&mut self) -> Payload {
        std::mem::take(&mut self.payload)
    }

    /// Takes the content out as a `T`.
    ///
    /// # Errors
    /// The message as it was, when it holds another type.
    pub fn take<T: Send + 'static>(mut self) -> Result<T, Message> {
        match self.take_payload().take() {
            Ok(value) => Ok(value),
            Err(payload) => {
                self.payload = payload;
                Err(self)
            }
        }
    }

    /// Answers a request. The first answer counts; to a message that is none, or answered already, or
    /// whose asker has gone or given up, it does nothing. `true`: the answer was sent.
    pub fn reply(&mut self, answer: Payload) -> bool {
        self.take_reply().is_some_and(|to| route::answer(to, Ok(answer)))
    }

    /// Takes the right to answer. `None`: nobody waits. (Who answers later keeps the message.)
    #[must_use]
    pub(crate) fn take_reply(&mut self) -> Option<ReplyTo> {
        if self.flags & REQUEST == 0 {
            return None;
        }
        self.flags &= !REQUEST;
        let seq = self.seq;
        self.sender.map(|pid| ReplyTo { pid, seq })
    }

    /// Gives its place in the topic's budget back before the message is dropped.
    pub fn release(&mut self) {
        if self.flags & RESERVED != 0 {
            self.flags &= !RESERVED;
            let ext = self.extension();
            budget::release(ext.slot, ext.generation, self.topic, ext.bytes);
        }
    }
}

impl Drop for Message {
    #[inline]
    fn drop(&mut self) {
        if self.flags & (RESERVED | REQUEST) != 0 || self.ext != 0 {
            self.drop_slowly();
        }
    }
}

impl Message {
    #[cold]
    fn drop_slowly(&mut self) {
        self.release();
        if let Some(to) = self.take_reply() {
            route::answer(to, Err(YieldError::NoReply));
        }
        if self.ext != 0 {
            let ext = std::mem::take(&mut self.ext);
            crate::worker::with_magazines(|m| m.free(Class::Full, ext));
        }
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("sender", &self.sender)
            .field("topic", &self.topic)
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}

/// Word that a process is to end: from [`crate::Scheduler::shutdown`], `stop` or `cancel`, from its supervisor,
/// or from another process.
#[derive(Debug, Clone)]
pub struct Cancel {
    /// Why, in words.
    pub reason: Arc<str>,
    /// When the process will be ended by force, if it has not ended by then.
    pub deadline: Option<Instant>,
}

/// The end of another process as an event.
#[derive(Debug, Clone)]
pub struct Exit {
    /// Who ended.
    pub pid: Pid,
    /// Why.
    pub reason: Arc<ExitReason>,
    /// Why this process hears of it.
    pub by: ExitBy,
}

/// Why a process hears of another's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExitBy {
    /// It monitors it.
    Monitor,
    /// It is linked to it and traps exits.
    Link,
    /// It spawned it, and `init` failed.
    Spawn,
}

/// What a step receives.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A routed message.
    Message(Message),
    /// The result of a yield.
    YieldComplete {
        /// The tag that the step gave it.
        tag: Tag,
        /// What the handler answered.
        result: Result<Payload, YieldError>,
    },
    /// Another process ended.
    Exit(Exit),
    /// Somebody asks the process to end: it answers with [`crate::StepOutput::done`] when it is ready to, or is
    /// ended by force at the deadline. (An actor hears of it in [`crate::Actor::cancelled`] instead.)
    Cancel(Cancel),
}

/// Puts a message into a full cell.
pub(crate) fn store(m: &Magazines, message: Message) -> Result<u32, Message> {
    match m.alloc(Class::Full) {
        Ok(number) => {
            store_in(number, message);
            Ok(number)
        }
        Err(Exhausted) => Err(message),
    }
}

/// Puts a message into a full cell that the caller has got.
#[inline]
pub(crate) fn store_in(number: u32, message: Message) {
    InMemory.depth(number).store(FULL, Relaxed);
    let message = ManuallyDrop::new(message);
    // SAFETY: a full cell has 64 bytes and is ours; the payload's bits move, the original is forgotten.
    unsafe {
        let cell = memory::cell(number).cast::<FullCell>();
        (&raw mut (*cell).table).write(message.payload.table);
        (&raw mut (*cell).data).write(message.payload.data);
        (&raw mut (*cell).sender).write(message.sender);
        (&raw mut (*cell).topic).write(message.topic);
        (&raw mut (*cell).flags).write(message.flags);
        (&raw mut (*cell).seq).write(message.seq);
        (&raw mut (*cell).ext).write(message.ext);
    }
}

/// Puts a value into the smallest cell that takes it, without sender or topic.
#[inline(always)]
pub(crate) fn store_short<T: Send + 'static>(m: &Magazines, value: T) -> Result<u32, T> {
    let class = if TableOf::<T>::SHORT { Class::Short } else { Class::Full };
    let Ok(number) = m.alloc(class) else {
        return Err(value);
    };
    InMemory.depth(number).store(if TableOf::<T>::SHORT { 0 } else { FULL }, Relaxed);
    // SAFETY: the cell is ours and large enough for the value or the pointer to its box; a full one gets
    // the rest of its fields too.
    unsafe {
        let cell = memory::cell(number).cast::<FullCell>();
        (&raw mut (*cell).table).write(TableOf::<T>::TABLE);
        TableOf::<T>::write((&raw mut (*cell).data).cast(), value);
        if !TableOf::<T>::SHORT {
            (&raw mut (*cell).sender).write(None);
            (&raw mut (*cell).topic).write(Topic::DEFAULT);
            (&raw mut (*cell).flags).write(KIND_MESSAGE);
            (&raw mut (*cell).seq).write(0);
            (&raw mut (*cell).ext).write(0);
        }
    }
    Ok(number)
}

/// What lies in a cell, as far as a delivery must know before it takes it.
#[inline(always)]
pub(crate) fn flags(number: u32) -> u32 {
    if InMemory.depth(number).load(Relaxed) & FULL == 0 {
        return KIND_MESSAGE;
    }
    // SAFETY: a full cell in a mailbox has its flags written.
    unsafe { (*memory::cell(number).cast::<FullCell>()).flags }
}

/// Takes the message out of a cell that left the mailbox, and frees the cell.
///
/// # Safety
/// The caller took the cell out of a mailbox that it runs; nobody takes it again.
#[inline]
pub(crate) unsafe fn take(m: &Magazines, number: u32) -> Message {
    // SAFETY: as the caller promises; which fields are there stands in `depth`.
    unsafe {
        if InMemory.depth(number).load(Relaxed) & FULL == 0 {
            let cell = &*memory::cell(number).cast::<ShortCell>();
            let data = [cell.data[0], cell.data[1], MaybeUninit::uninit()];
            let payload = Payload::from_parts(cell.table, data);
            m.free(Class::Short, number);
            Message::new(payload, None, Topic::DEFAULT, KIND_MESSAGE)
        } else {
            let cell = &*memory::cell(number).cast::<FullCell>();
            let message = Message {
                payload: Payload::from_parts(cell.table, cell.data),
                sender: cell.sender,
                topic: cell.topic,
                flags: cell.flags,
                seq: cell.seq,
                ext: cell.ext,
            };
            m.free(Class::Full, number);
            message
        }
    }
}

/// Takes a plain `T` out of a cell, if it is one: the typed layer's way. `None`: the cell is as it was.
///
/// # Safety
/// As for [`take`].
#[inline(always)]
pub(crate) unsafe fn take_plain<T: Send + 'static>(m: &Magazines, number: u32) -> Option<T> {
    // SAFETY: as the caller promises; `table`, and the data of both forms, lie alike in both cells.
    unsafe {
        let cell = memory::cell(number).cast::<FullCell>();
        let full = InMemory.depth(number).load(Relaxed) & FULL != 0;
        let table = (*cell).table;
        if !table.is::<T>() || (full && ((*cell).flags != KIND_MESSAGE || (*cell).ext != 0)) {
            return None;
        }
        let value = TableOf::<T>::read((&raw const (*cell).data).cast());
        m.free(if full { Class::Full } else { Class::Short }, number);
        Some(value)
    }
}

impl Message {
    /// Does the sender wait, in whatever way?
    pub(crate) fn is_asked(&self) -> bool {
        self.flags & (REQUEST | ASK) != 0
    }
    pub(crate) fn has_extension(&self) -> bool {
        self.ext != 0
    }
    pub(crate) fn clear_flag(&mut self, flag: u32) {
        self.flags &= !flag;
    }
    /// The message holds a place in its topic's account of this generation.
    pub(crate) fn reserved(mut self, generation: u32) -> Self {
        debug_assert_ne!(self.ext, 0);
        // SAFETY: `ext` is a full cell that this message owns.
        unsafe { (&raw mut (*memory::cell(self.ext).cast::<Extension>()).generation).write(generation) };
        self.flags |= RESERVED;
        self
    }
    pub(crate) fn seq(&self) -> u32 {
        self.seq
    }
    pub(crate) fn flag_bits(&self) -> u32 {
        self.flags
    }
}
