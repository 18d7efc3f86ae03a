//! Wakers that own nothing.
//!
//! The data word of a waker is `generation << 32 | slot`: the generation with which the process's life
//! began, and the number of its slot. Slots are never given back ([`crate::memory`]), so the word is good for
//! ever; a wake after the end finds another generation and changes nothing.

use std::mem::ManuallyDrop;
use std::ptr;
use std::task::{RawWaker, RawWakerVTable, Waker};

use crate::memory;
use crate::process::slot::Bind;
use crate::{LocalPid, route};

#[cfg(not(target_pointer_width = "64"))]
compile_error!("evener-scheduler packs a process's address into a waker's pointer: it needs 64-bit pointers");

/// Nobody's data word: slot numbers begin at 1.
pub(crate) const NOBODY: usize = 0;

pub(crate) fn pack(pid: LocalPid) -> usize {
    (pid.generation() as usize) << 32 | pid.slot() as usize
}

pub(crate) fn unpack(data: usize) -> Option<LocalPid> {
    LocalPid::new(data as u32, (data >> 32) as u32)
}

static TABLE: RawWakerVTable = RawWakerVTable::new(
    |data| RawWaker::new(data, &TABLE),
    |data| wake(data.addr()),
    |data| wake(data.addr()),
    |_| {},
);

/// The waker of a process. It need not be dropped.
#[inline]
pub(crate) fn of(data: usize) -> ManuallyDrop<Waker> {
    // SAFETY: the functions of the table take the data for a number, from any thread, and own nothing.
    ManuallyDrop::new(unsafe { Waker::new(ptr::without_provenance(data), &TABLE) })
}

/// Is it the waker of some process? To clone, wake and drop it is no code of others.
#[inline]
pub(crate) fn is_of_a_process(waker: &Waker) -> bool {
    ptr::eq(waker.vtable(), &raw const TABLE)
}

#[inline]
fn wake(data: usize) {
    // A task that wakes itself in its poll: its worker, this thread, notes it without touching the word.
    if super::context::wake_own(data) {
        return;
    }
    let Some(pid) = unpack(data) else { return };
    let slot = memory::slot(pid.slot());
    // Refused: that life is over.
    if let Ok(after) = slot.wake(Bind::Life(pid.generation())) {
        route::follow(after, pid.slot(), slot);
    }
}
