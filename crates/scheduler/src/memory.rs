//! Where slots, message cells and bodies come from.
//!
//! Memory is type-stable: a chunk serves one class of cells for as long as the program runs and is
//! never given back to the allocator. So a PID, a completer or a handle may outlive its process and its
//! scheduler: the slot it names is still a slot, and its generation says that the life is over. Nobody
//! counts references to reach one.
//!
//! # Way of a cell
//!
//! Each thread has two magazines for each class (at most `2 * BATCH` cells). It takes from and gives to
//! these; an empty or full pair exchanges one batch with the class's pool behind a short lock. So what
//! one worker allocates and another frees moves in batches, and no thread hoards.
//!
//! # Who may still hold a pointer
//!
//! Into a slot: anybody, for ever (see [`crate::process::slot`]). Into a message cell: who pushed it till
//! its push, the mailbox till its delivery; and a late producer may read the `depth` of a cell that is
//! free by now, so the first two words of a message cell are touched by atomics alone. Into a body: who
//! holds its process `RUNNING`; into a task, its handle as well (`src/task/header.rs`).
//!
//! The first chunk of each class uses ordinary pages, later ones ask for large pages: the first touch of
//! a small page costs some 35 ns for each 64 bytes, of a large one 5 to 10 (measured on the machine of
//! `docs/benchmarks.md`).

use std::alloc::Layout;
use std::cell::{Cell, UnsafeCell};
use std::ptr::{self, NonNull};

use crate::process::event_queue::Cells;
use crate::process::slot::Slot;
use crate::queues::{Item, Links};
use crate::sync::fixed::{AtomicPtr, Mutex};
use crate::sync::{Acquire, AtomicU32, Relaxed, Release};

const CHUNK: usize = 2 << 20;
/// Cells are addressed in units of this many bytes.
const GRANULE: usize = 32;
const GRANULES_PER_CHUNK: usize = CHUNK / GRANULE;
const SLOTS_PER_CHUNK: usize = CHUNK / size_of::<Slot>();
/// Cells that change hands at once.
const BATCH: u32 = 64;

/// What a cell is for. Message cells and bodies never share chunks: see the module's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Class {
    /// A message of up to 16 bytes, sender and topic left out.
    Short,
    /// Any message.
    Full,
    Body32,
    Body64,
    Body128,
    Body256,
    Body512,
    Slot,
}

const CLASSES: usize = 8;
const CLASS: [Class; CLASSES] = [
    Class::Short,
    Class::Full,
    Class::Body32,
    Class::Body64,
    Class::Body128,
    Class::Body256,
    Class::Body512,
    Class::Slot,
];

impl Class {
    const fn bytes(self) -> usize {
        match self {
            Class::Short | Class::Body32 => 32,
            Class::Full | Class::Body64 | Class::Slot => 64,
            Class::Body128 => 128,
            Class::Body256 => 256,
            Class::Body512 => 512,
        }
    }

    /// The class for a body of this layout; `None`: it gets an allocation of its own.
    pub(crate) const fn of_body(layout: Layout) -> Option<Self> {
        if layout.align() > 64 {
            return None;
        }
        match layout.size() {
            0..=32 if layout.align() <= 32 => Some(Class::Body32),
            0..=64 => Some(Class::Body64),
            65..=128 => Some(Class::Body128),
            129..=256 => Some(Class::Body256),
            257..=512 => Some(Class::Body512),
            _ => None,
        }
    }
}

static CELL_CHUNKS: [AtomicPtr<u8>; 1 << 16] = [const { AtomicPtr::new(ptr::null_mut()) }; 1 << 16];
static SLOT_CHUNKS: [AtomicPtr<u8>; 1 << 17] = [const { AtomicPtr::new(ptr::null_mut()) }; 1 << 17];
static NEXT_CELL_CHUNK: Mutex<usize> = Mutex::new(0);
static POOLS: [Pool; CLASSES] = [const { Pool::new() }; CLASSES];

struct Pool(Mutex<PoolState>);

struct PoolState {
    /// First cell of a list of batches; a batch's first cell names the next batch.
    batches: u32,
    /// Cells never used: `fresh..end` in the newest chunk, as cell numbers.
    fresh: u32,
    end: u32,
    chunks: u32,
}

/// Memory or numbers ran out. Where a caller can answer with an error it does; see `try_alloc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exhausted;

impl Pool {
    const fn new() -> Self {
        Self(Mutex::new(PoolState { batches: 0, fresh: 0, end: 0, chunks: 0 }))
    }

    fn lock(&self) -> crate::sync::fixed::MutexGuard<'_, PoolState> {
        self.0.lock()
    }

    /// A list of up to `BATCH` cells: first cell and count.
    fn take(&self, class: Class) -> Result<(u32, u32), Exhausted> {
        let mut state = self.lock();
        if state.batches != 0 {
            let first = state.batches;
            state.batches = second_word(class, first).load(Relaxed);
            let count = third_word(class, first).load(Relaxed);
            return Ok((first, count));
        }
        if state.fresh == state.end {
            state.grow(class)?;
        }
        let step = step(class);
        let count = BATCH.min((state.end - state.fresh) / step);
        let first = state.fresh;
        state.fresh += count * step;
        drop(state);
        for index in 0..count {
            let cell = first + index * step;
            let next = if index + 1 == count { 0 } else { cell + step };
            first_word(class, cell).store(next, Relaxed);
        }
        Ok((first, count))
    }

    fn give(&self, class: Class, first: u32, count: u32) {
        let mut state = self.lock();
        second_word(class, first).store(state.batches, Relaxed);
        third_word(class, first).store(count, Relaxed);
        state.batches = first;
    }
}

impl PoolState {
    fn grow(&mut self, class: Class) -> Result<(), Exhausted> {
        let table: &[AtomicPtr<u8>] = if class == Class::Slot { &SLOT_CHUNKS } else { &CELL_CHUNKS };
        let chunk = chunk::take().ok_or(Exhausted)?;
        let index = if class == Class::Slot {
            self.chunks as usize
        } else {
            let mut next = NEXT_CELL_CHUNK.lock();
            *next += 1;
            *next - 1
        };
        // One less than there is room for: the numbers of the last chunk would reach over the end.
        if index + 1 >= table.len() {
            return Err(Exhausted);
        }
        if self.chunks > 0 {
            chunk::prefer_large_pages(chunk);
        }
        // Release: pairs with the Acquire in `cell` and `slot`: who sees the chunk sees it zeroed.
        table[index].store(chunk, Release);
        self.chunks += 1;
        let (per_chunk, step) = if class == Class::Slot {
            (SLOTS_PER_CHUNK as u32, 1)
        } else {
            (GRANULES_PER_CHUNK as u32, step(class))
        };
        self.fresh = index as u32 * per_chunk;
        self.end = self.fresh + per_chunk / step * step;
        if index == 0 {
            // Number 0 means none.
            self.fresh += step;
        }
        Ok(())
    }
}

#[cfg(unix)]
mod chunk {
    //! Chunks from the system: zeroed, aligned to their size, and no page of them there before its first
    //! touch. (`alloc_zeroed` writes all of an aligned allocation at once.)

    use std::ptr;

    use super::CHUNK;
    use crate::sync::fixed::Mutex;

    /// Taken from the system at once: address space, not memory. Where that is limited, half of it, and so on.
    const RANGE: usize = 32 * CHUNK;

    /// What is left of the newest range: address and end.
    static LEFT: Mutex<(usize, usize)> = Mutex::new((0, 0));

    pub(super) fn take() -> Option<*mut u8> {
        let mut left = LEFT.lock();
        if left.0 == left.1 {
            *left = map(|size| {
                // SAFETY: a new private mapping of its own; nothing else is touched.
                let range = unsafe {
                    libc::mmap(
                        ptr::null_mut(),
                        size,
                        libc::PROT_READ | libc::PROT_WRITE,
                        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                        -1,
                        0,
                    )
                };
                (range != libc::MAP_FAILED).then(|| range.expose_provenance())
            })?;
        }
        let chunk = left.0;
        left.0 += CHUNK;
        Some(ptr::with_exposed_provenance_mut(chunk))
    }

    /// As large a range of whole chunks as the system gives: address and end.
    fn map(system: impl Fn(usize) -> Option<usize>) -> Option<(usize, usize)> {
        let mut range = RANGE;
        loop {
            // One chunk more than is used, for it begins anywhere.
            if let Some(address) = system(range + CHUNK) {
                let first = address.next_multiple_of(CHUNK);
                return Some((first, first + range));
            }
            if range == CHUNK {
                return None;
            }
            range /= 2;
        }
    }

    #[cfg(target_os = "linux")]
    pub(super) fn prefer_large_pages(chunk: *mut u8) {
        // SAFETY: the range is ours; the advice changes nothing but how it is backed. A refusal is fine.
        unsafe { libc::madvise(chunk.cast(), CHUNK, libc::MADV_HUGEPAGE) };
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn prefer_large_pages(_chunk: *mut u8) {}

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_limit_on_address_space_makes_the_range_smaller() {
            let within = |limit: usize| map(move |size| (size <= limit).then_some(4096));
            assert_eq!(within(usize::MAX), Some((CHUNK, CHUNK + RANGE)));
            assert_eq!(within(RANGE), Some((CHUNK, CHUNK + RANGE / 2)));
            assert_eq!(within(2 * CHUNK), Some((CHUNK, 2 * CHUNK)));
            assert_eq!(within(2 * CHUNK - 1), None);
        }
    }
}

#[cfg(not(unix))]
mod chunk {
    //! Chunks from the allocator.

    use std::alloc::{Layout, alloc_zeroed};

    use super::CHUNK;

    pub(super) fn take() -> Option<*mut u8> {
        let layout = Layout::from_size_align(CHUNK, CHUNK).expect("a power of two");
        // SAFETY: the layout has a size.
        let chunk = unsafe { alloc_zeroed(layout) };
        (!chunk.is_null()).then_some(chunk)
    }

    pub(super) fn prefer_large_pages(_chunk: *mut u8) {}
}

/// How far the numbers of neighbours in a chunk are apart.
const fn step(class: Class) -> u32 {
    match class {
        Class::Slot => 1,
        _ => (class.bytes() / GRANULE) as u32,
    }
}

/// The address of a message cell or body.
#[inline(always)]
pub(crate) fn cell(number: u32) -> *mut u8 {
    // Acquire: pairs with the Release in `grow`.
    let chunk = CELL_CHUNKS[(number >> 16) as usize].load(Acquire);
    debug_assert!(!chunk.is_null());
    // SAFETY: the number came from a pool, so its chunk is there and the offset lies within.
    unsafe { chunk.add((number & 0xffff) as usize * GRANULE) }
}

/// The slot of that number, if there is a chunk for it. A slot never used is `FREE` in generation 0.
#[inline(always)]
pub(crate) fn find_slot(number: u32) -> Option<&'static Slot> {
    // Acquire: pairs with the Release in `grow`.
    let chunk = SLOT_CHUNKS[(number >> 15) as usize].load(Acquire);
    if chunk.is_null() {
        return None;
    }
    // SAFETY: the offset lies within the chunk, which is zeroed memory or slots, valid as slots both,
    // and stays for ever.
    Some(unsafe { &*chunk.cast::<Slot>().add((number & 0x7fff) as usize) })
}

/// The slot of a number that a pool gave out.
#[inline(always)]
pub(crate) fn slot(number: u32) -> &'static Slot {
    // Acquire: pairs with the Release in `grow`.
    let chunk = SLOT_CHUNKS[(number >> 15) as usize].load(Acquire);
    debug_assert!(!chunk.is_null());
    // SAFETY: as in `find_slot`; the number was given out, so the chunk is there.
    unsafe { &*chunk.cast::<Slot>().add((number & 0x7fff) as usize) }
}

/// Asks for the line of a slot that is about to be written, so that its way here overlaps with other work.
#[inline(always)]
pub(crate) fn prefetch_slot(slot: &Slot) {
    prefetch_for_write(ptr::from_ref(slot));
}

/// As [`prefetch_slot`] for a message cell.
#[inline(always)]
pub(crate) fn prefetch_cell(number: u32) {
    prefetch_for_write(cell(number));
}

#[inline(always)]
fn prefetch_for_write<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint; it reads and writes nothing, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(place.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}

/// Every slot number that may be in use, for sweeps by statistics and shutdown.
pub(crate) fn slot_numbers() -> std::ops::Range<u32> {
    let state = POOLS[Class::Slot as usize].lock();
    if state.chunks == 0 { 0..0 } else { 1..state.fresh }
}

/// The first words of a free cell: link in a magazine, link of batches, size of the batch.
#[inline(always)]
fn first_word(class: Class, number: u32) -> &'static AtomicU32 {
    if class == Class::Slot { &slot(number).next } else { word(number, 0) }
}
fn second_word(class: Class, number: u32) -> &'static AtomicU32 {
    if class == Class::Slot { &slot(number).steps } else { word(number, 1) }
}
fn third_word(class: Class, number: u32) -> &'static AtomicU32 {
    if class == Class::Slot { &slot(number).born } else { word(number, 2) }
}

#[inline(always)]
fn word(number: u32, index: usize) -> &'static AtomicU32 {
    // SAFETY: a cell has at least 32 bytes, aligned to 32. A body's owner overwrites these words by
    // plain writes, but then nobody else has the number; message cells keep words 0 and 1 atomic.
    unsafe { &*cell(number).cast::<AtomicU32>().add(index) }
}

/// The links of message cells, in memory.
#[derive(Clone, Copy)]
pub(crate) struct InMemory;

impl Cells for InMemory {
    #[inline(always)]
    fn next(&self, cell: u32) -> &AtomicU32 {
        word(cell, 0)
    }
    #[inline(always)]
    fn depth(&self, cell: u32) -> &AtomicU32 {
        word(cell, 1)
    }
}

impl Links for InMemory {
    #[inline(always)]
    fn next(&self, item: Item) -> &AtomicU32 {
        &slot(item).next
    }
}

/// Room for a value of this layout: its address, and its cell, 0 where it is none.
///
/// Aborts as the allocator does when a large one cannot be had.
#[inline(always)]
pub(crate) fn room(m: &Magazines, layout: Layout) -> Result<(NonNull<u8>, u32), Exhausted> {
    if let Some(class) = Class::of_body(layout) {
        let number = m.alloc(class)?;
        let room = NonNull::new(cell(number)).expect("a cell has an address");
        return Ok((room, number));
    }
    let room = if layout.size() == 0 {
        NonNull::without_provenance(std::num::NonZero::new(layout.align()).expect("an alignment is not 0"))
    } else {
        // SAFETY: the layout is not empty.
        let room = unsafe { std::alloc::alloc(layout) };
        NonNull::new(room).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
    };
    Ok((room, 0))
}

/// Gives back what [`room`] gave.
///
/// # Safety
/// From [`room`], with this layout; what was there has been dropped or moved out, and nobody touches it any
/// more.
#[inline(always)]
pub(crate) unsafe fn give_back(m: &Magazines, layout: Layout, room: NonNull<u8>, cell: u32) {
    match Class::of_body(layout) {
        Some(class) => m.free(class, cell),
        None if layout.size() == 0 => {}
        // SAFETY: allocated in `room` with this layout, which is not empty.
        None => unsafe { std::alloc::dealloc(room.as_ptr(), layout) },
    }
}

/// One thread's magazines.
pub(crate) struct Magazines {
    pairs: [Pair; CLASSES],
}

struct Pair {
    head: Cell<u32>,
    count: Cell<u32>,
    /// A second list, full or empty.
    spare: Cell<u32>,
    spare_count: Cell<u32>,
}

impl Pair {
    const fn new() -> Self {
        Self { head: Cell::new(0), count: Cell::new(0), spare: Cell::new(0), spare_count: Cell::new(0) }
    }
}

impl Magazines {
    pub(crate) const fn new() -> Self {
        Self { pairs: [const { Pair::new() }; CLASSES] }
    }

    /// A cell of the class; its content is whatever the last user left.
    #[inline(always)]
    pub(crate) fn alloc(&self, class: Class) -> Result<u32, Exhausted> {
        let pair = &self.pairs[class as usize];
        let cell = pair.head.get();
        if cell == 0 {
            return self.refill(class);
        }
        let next = first_word(class, cell).load(Relaxed);
        if next != 0 {
            // What another core used last is on its way here before it is wanted.
            prefetch_for_write(ptr::from_ref(first_word(class, next)));
        }
        pair.head.set(next);
        pair.count.set(pair.count.get() - 1);
        Ok(cell)
    }

    #[cold]
    fn refill(&self, class: Class) -> Result<u32, Exhausted> {
        let pair = &self.pairs[class as usize];
        let (first, count) = if pair.spare.get() != 0 {
            (pair.spare.take(), pair.spare_count.take())
        } else {
            POOLS[class as usize].take(class)?
        };
        pair.head.set(first_word(class, first).load(Relaxed));
        pair.count.set(count - 1);
        Ok(first)
    }

    /// Gives a cell back.
    #[inline(always)]
    pub(crate) fn free(&self, class: Class, cell: u32) {
        let pair = &self.pairs[class as usize];
        if pair.count.get() >= BATCH {
            self.relieve(class);
        }
        first_word(class, cell).store(pair.head.get(), Relaxed);
        pair.head.set(cell);
        pair.count.set(pair.count.get() + 1);
    }

    #[cold]
    fn relieve(&self, class: Class) {
        let pair = &self.pairs[class as usize];
        if pair.spare.get() != 0 {
            POOLS[class as usize].give(class, pair.spare.get(), pair.spare_count.get());
        }
        pair.spare.set(pair.head.take());
        pair.spare_count.set(pair.count.take());
    }

    /// Gives everything to the pools; for the end of a thread.
    pub(crate) fn flush(&self) {
        for class in CLASS {
            let pair = &self.pairs[class as usize];
            for (first, count) in
                [(pair.head.take(), pair.count.take()), (pair.spare.take(), pair.spare_count.take())]
            {
                if first != 0 {
                    POOLS[class as usize].give(class, first, count);
                }
            }
        }
    }
}

impl Drop for Magazines {
    fn drop(&mut self) {
        self.flush();
    }
}

thread_local! {
    static OUTSIDE: UnsafeCell<Magazines> = const { UnsafeCell::new(Magazines::new()) };
}

/// Runs `act` with the magazines of a thread that is no worker. In a thread that is just ending they are
/// gone: then with empty ones, given back at once.
pub(crate) fn outside<R>(act: impl FnOnce(&Magazines) -> R) -> R {
    let mut act = Some(act);
    let done = OUTSIDE.try_with(|magazines| {
        // SAFETY: shared access only, by this thread only.
        act.take().map(|act| act(unsafe { &*magazines.get() }))
    });
    match (done, act) {
        (Ok(Some(result)), _) => result,
        (_, Some(act)) => act(&Magazines::new()),
        (_, None) => unreachable!("`act` is taken only where its result is kept"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn cells_are_distinct_and_come_back() {
        for class in [Class::Short, Class::Body128, Class::Slot] {
            let magazines = Magazines::new();
            let cells: Vec<u32> = (0..1000).map(|_| magazines.alloc(class).unwrap()).collect();
            let distinct: HashSet<u32> = cells.iter().copied().collect();
            assert_eq!(distinct.len(), 1000);
            assert!(!distinct.contains(&0));
            for cell in cells {
                magazines.free(class, cell);
            }
            let pair = &magazines.pairs[class as usize];
            assert!(pair.count.get() + pair.spare_count.get() <= 2 * BATCH, "no thread hoards");
        }
    }

    #[test]
    fn a_number_nobody_gave_out_is_no_slot_or_a_free_one() {
        assert!(find_slot(u32::MAX).is_none());
    }

    #[test]
    fn what_one_thread_frees_another_gets() {
        let cells: Vec<u32> =
            (0..10 * BATCH).map(|_| outside(|m| m.alloc(Class::Body512)).unwrap()).collect();
        let given: HashSet<u32> = cells.iter().copied().collect();
        std::thread::spawn(move || {
            for cell in cells {
                outside(|m| m.free(Class::Body512, cell));
            }
        })
        .join()
        .unwrap();
        let again: HashSet<u32> =
            (0..4 * BATCH).map(|_| outside(|m| m.alloc(Class::Body512)).unwrap()).collect();
        assert!(again.is_subset(&given), "fresh cells only when none are free");
    }
}
