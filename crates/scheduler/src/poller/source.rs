//! One descriptor's readiness, and who waits for it.
//!
//! # The word
//!
//! `generation (32) | tick (24) | bits (8)`. The poller sets bits and moves the tick; a try that would have
//! waited clears the bits of its direction, if the tick is still the one that it saw before it tried: else
//! an event has come since then, and the bits stay. (The tick comes round after 16 million events between a
//! look and the clear that follows; then a socket waits for its next event.)
//!
//! # No waiter is lost
//!
//! *Who waits* takes the lock, looks at the word, and enters the list if it is not ready. *The poller* sets
//! the bits, and takes the lock to take the list. If the poller had the lock first, the look sees its bits;
//! else the list it takes has the waiter in it. Wakers are cloned, woken and dropped outside of the lock.
//!
//! Everybody in the list of a direction is woken: one who is woken may be gone, and an event tells nothing
//! of how many it is for.
//!
//! # An event of a closed descriptor reaches nobody
//!
//! The key of an event has the number of the source and its generation, which is counted up when the
//! descriptor is taken out. Sources are type-stable: their memory is only used again as sources, so that the
//! poller may look at one whose descriptor is just being closed. A source whose generations are used up is
//! never used again.

use std::sync::atomic::Ordering;
use std::task::Waker;

use super::{Poller, Raw, Sys};
use crate::sync::fixed;
use crate::sync::{AcqRel, Acquire, AtomicU64, Mutex, Relaxed};

/// Something to read, or the end, or an error.
pub(crate) const READ: u64 = 1;
/// Room to write, or an error.
pub(crate) const WRITE: u64 = 2;
/// The peer will send nothing more: what has been sent and then the end can be read without waiting.
pub(crate) const READ_CLOSED: u64 = 4;
/// Writing has come to its end.
pub(crate) const WRITE_CLOSED: u64 = 8;
/// There was an error. It is not kept by the socket: the next try gets it, once.
pub(crate) const ERROR: u64 = 16;
/// The scheduler has ended: no event will come any more.
pub(crate) const ORPHAN: u64 = 32;

/// Urgent bytes have come. A read ends before them, whatever lies behind: a short one tells nothing.
pub(crate) const URGENT: u64 = 64;

const BITS: u64 = 0xff;
const TICK: u64 = 1 << 8;
const TICKS: u64 = 0xff_ffff << 8;

/// The generation of a source that is never used again; the bell's key has it.
const GENERATION_END: u32 = u32::MAX;

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read = 0,
    Write = 1,
}

impl Direction {
    /// The bits of the word that mean: try.
    #[inline]
    pub(crate) fn bits(self) -> u64 {
        match self {
            Self::Read => READ | READ_CLOSED,
            Self::Write => WRITE | WRITE_CLOSED,
        }
    }
}

/// One descriptor's place.
#[repr(align(64))]
pub(crate) struct Source {
    word: AtomicU64,
    waiters: Mutex<Waiters>,
}

struct Waiters {
    /// As in the word, but changed under the lock.
    generation: u32,
    number: u32,
    poller: Option<&'static Poller>,
    raw: Raw,
    last_number: u64,
    sides: [Side; 2],
}

/// Who waits for one direction, in the order in which they came; the first without a list.
struct Side {
    first: Option<(u64, Waker)>,
    rest: Vec<(u64, Waker)>,
    /// Whoever had this number or a smaller one is not in the list any more, by an event.
    taken: u64,
}

impl Side {
    const EMPTY: Self = Self { first: None, rest: Vec::new(), taken: 0 };

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.rest.is_empty()
    }

    fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    fn find(&mut self, number: u64) -> Option<&mut Waker> {
        if number <= self.taken {
            return None;
        }
        if let Some((first, waker)) = &mut self.first
            && *first == number
        {
            return Some(waker);
        }
        let place = self.rest.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&mut self.rest[place].1)
    }

    fn push(&mut self, number: u64, waker: Waker) {
        // Numbers grow: the list stays in order.
        if self.is_empty() {
            self.first = Some((number, waker));
        } else {
            self.rest.push((number, waker));
        }
    }

    fn remove(&mut self, number: u64) -> Option<Waker> {
        if number <= self.taken {
            return None;
        }
        if self.first.as_ref().is_some_and(|(first, _)| *first == number) {
            return self.first.take().map(|(_, waker)| waker);
        }
        let place = self.rest.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(self.rest.remove(place).1)
    }

    fn take_all(&mut self, last_number: u64, into: &mut Vec<Waker>) {
        self.taken = last_number;
        if let Some((_, waker)) = self.first.take() {
            into.push(waker);
        }
        if !self.rest.is_empty() {
            into.extend(self.rest.drain(..).map(|(_, waker)| waker));
            // A crowd that once waited here does not keep its room for ever.
            self.rest.shrink_to(16);
        }
    }
}

// ------------------------------------------------------------------ all sources

/// Chunk `n` has `64 << n` sources.
const CHUNKS: usize = 24;
const FIRST_CHUNK: u32 = 64;

static ALL: [fixed::AtomicPtr<Source>; CHUNKS] =
    [const { fixed::AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS];
static FREE: fixed::Mutex<Free> = fixed::Mutex::new(Free { numbers: Vec::new(), len: 0 });

struct Free {
    numbers: Vec<u32>,
    /// How many sources there are.
    len: u32,
}

/// The chunk of a source, its place there, and how many that chunk has.
fn place(number: u32) -> (usize, usize, usize) {
    let shifted = number + FIRST_CHUNK;
    let chunk = (shifted.ilog2() - FIRST_CHUNK.ilog2()) as usize;
    let size = FIRST_CHUNK << chunk;
    (chunk, (shifted - size) as usize, size as usize)
}

/// The source of that number.
fn source(number: u32) -> Option<&'static Source> {
    let (chunk, offset, _) = place(number);
    // Acquire: pairs with the Release in `take`; who sees the chunk sees its sources.
    let chunk = ALL.get(chunk)?.load(Acquire);
    // SAFETY: a chunk that is published is never freed, and `place` stays within it.
    (!chunk.is_null()).then(|| unsafe { &*chunk.add(offset) })
}

/// A source that nobody uses, and its key from now on; `None`: there are too many.
pub(crate) fn take(poller: &'static Poller, raw: Raw, bits: u64) -> Option<(&'static Source, u64)> {
    let number = {
        let mut free = FREE.lock();
        match free.numbers.pop() {
            Some(number) => number,
            None => {
                let number = free.len;
                let (chunk, offset, size) = place(number);
                if offset == 0 {
                    let sources: Box<[Source]> = (0..size).map(|_| Source::new()).collect();
                    // Release: pairs with the Acquire in `source`.
                    ALL.get(chunk)?.store(Box::leak(sources).as_mut_ptr(), Ordering::Release);
                }
                free.len += 1;
                number
            }
        }
    };
    let source = source(number).expect("it was made");
    let mut waiters = source.waiters.lock();
    waiters.number = number;
    waiters.raw = raw;
    waiters.poller = Some(poller);
    let generation = u64::from(waiters.generation);
    source.word.store(generation << 32 | bits, Ordering::Release);
    Some((source, generation << 32 | u64::from(number)))
}

/// Every source there is, used or not.
fn all() -> impl Iterator<Item = &'static Source> {
    let len = FREE.lock().len;
    (0..len).filter_map(source)
}

/// An event of that key: who waited for it is put among `wakers`, to be woken by the caller.
pub(crate) fn deliver(key: u64, bits: u64, wakers: &mut Vec<Waker>) {
    if let Some(source) = source(key as u32) {
        source.deliver((key >> 32) as u32, bits, wakers);
    }
}

/// The scheduler of that poller has ended: its descriptors are ready for ever, and say why. Who waits is
/// put among `wakers`.
pub(crate) fn orphan(poller: &'static Poller, wakers: &mut Vec<Waker>) {
    for source in all() {
        let generation = {
            let waiters = source.waiters.lock();
            match waiters.poller {
                Some(of) if std::ptr::eq(of, poller) => waiters.generation,
                _ => continue,
            }
        };
        source.deliver(generation, READ | WRITE | ORPHAN, wakers);
    }
}

/// How many wait for descriptors of that poller.
pub(crate) fn waiting(poller: &Poller) -> usize {
    all()
        .map(|source| {
            let waiters = source.waiters.lock();
            match waiters.poller {
                Some(of) if std::ptr::eq(of, poller) => waiters.sides.iter().map(Side::len).sum(),
                _ => 0,
            }
        })
        .sum()
}

impl Source {
    fn new() -> Self {
        let waiters = Waiters {
            generation: 1,
            number: 0,
            poller: None,
            raw: 0,
            last_number: 0,
            sides: [Side::EMPTY, Side::EMPTY],
        };
        Self { word: AtomicU64::new(1 << 32), waiters: Mutex::new(waiters) }
    }

    /// The word now, for whoever holds the descriptor.
    #[inline]
    pub(crate) fn look(&self) -> u64 {
        // Acquire: pairs with the AcqRel in `deliver`; what is ready can be read.
        self.word.load(Acquire)
    }

    /// A try found that `direction` is not ready after all, as of the word that was `seen` before it.
    pub(crate) fn clear(&self, seen: u64, direction: Direction) {
        let mut now = seen;
        while let Err(found) = self.word.compare_exchange(now, now & !direction.bits(), AcqRel, Acquire) {
            if (found ^ seen) & !BITS != 0 {
                // An event has come since.
                return;
            }
            // The other direction was cleared, or somebody has cleared this one.
            now = found;
        }
    }

    fn deliver(&self, generation: u32, bits: u64, wakers: &mut Vec<Waker>) {
        let mut word = self.word.load(Relaxed);
        loop {
            let of = (word >> 32) as u32;
            // A key without a generation is a hint: it makes whoever is there now look once too often.
            if of != generation && generation != 0 {
                return;
            }
            let tick = word.wrapping_add(TICK) & TICKS;
            let new = word & !TICKS | tick | bits;
            match self.word.compare_exchange(word, new, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        let mut waiters = self.waiters.lock();
        if waiters.generation != generation && generation != 0 {
            return;
        }
        let last_number = waiters.last_number;
        for direction in [Direction::Read, Direction::Write] {
            if bits & direction.bits() != 0 {
                waiters.sides[direction as usize].take_all(last_number, wakers);
            }
        }
        if !Sys::TELLS_EDGES {
            // What was told was disarmed, and with it the direction that was not told.
            waiters.arm();
        }
    }

    /// Enters the list of a direction under a number, 0 for one who is not in it yet. `None`: it is ready,
    /// and the caller is not in the list.
    pub(crate) fn wait(&self, direction: Direction, number: u64, waker: &Waker) -> Option<u64> {
        // Declared before the guards, so that wakers are dropped after them.
        let mut clone = (number == 0).then(|| waker.clone());
        let _old;
        loop {
            let mut waiters = self.waiters.lock();
            if self.word.load(Acquire) & (direction.bits() | ORPHAN) != 0 {
                _old = waiters.sides[direction as usize].remove(number);
                return None;
            }
            match waiters.sides[direction as usize].find(number) {
                Some(present) if present.will_wake(waker) => return Some(number),
                Some(present) => {
                    if let Some(clone) = clone.take() {
                        _old = Some(std::mem::replace(present, clone));
                        return Some(number);
                    }
                }
                None => {
                    if let Some(clone) = clone.take() {
                        waiters.last_number += 1;
                        let number = waiters.last_number;
                        waiters.sides[direction as usize].push(number, clone);
                        if !Sys::TELLS_EDGES {
                            waiters.arm();
                        }
                        return Some(number);
                    }
                }
            }
            drop(waiters);
            clone = Some(waker.clone());
        }
    }

    /// Leaves the list, if still in it.
    pub(crate) fn forget(&self, direction: Direction, number: u64) {
        let waker = self.waiters.lock().sides[direction as usize].remove(number);
        drop(waker);
    }

    /// The descriptor has been taken out of the poller: events of this life change nothing from here on.
    pub(crate) fn free(&self, key: u64) {
        let mut left = Vec::new();
        let generation = {
            let mut waiters = self.waiters.lock();
            waiters.generation += 1;
            waiters.poller = None;
            let last_number = waiters.last_number;
            for side in &mut waiters.sides {
                side.take_all(last_number, &mut left);
            }
            self.word.store(u64::from(waiters.generation) << 32, Ordering::Release);
            waiters.generation
        };
        // Who waited through a descriptor that is gone: nobody, for who waits borrows it; but the socket's
        // own wakers may be here, of somebody who no longer cares.
        drop(left);
        if generation != GENERATION_END {
            FREE.lock().numbers.push(key as u32);
        }
    }
}

impl Waiters {
    fn arm(&self) {
        if let Some(poller) = self.poller
            && let Some(sys) = poller.sys()
        {
            let [read, write] = &self.sides;
            let key = u64::from(self.generation) << 32 | u64::from(self.number);
            sys.arm(self.raw, key, !read.is_empty(), !write.is_empty());
        }
    }
}
