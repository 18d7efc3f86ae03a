//! Everything but Linux: kqueue, IOCP and the others, through the crate `polling`.
//!
//! A direction is armed when somebody begins to wait for it, and is disarmed by its event. Nothing tells
//! whether a short read has emptied a socket, so readiness is cleared only by a try that would have waited.

use std::io;
use std::num::NonZero;
use std::time::Duration;

use polling::{Event, Events, PollMode};

use super::source::{ERROR, READ, READ_CLOSED, WRITE, WRITE_CLOSED};
use super::{BELL, EVENTS_MAX};

#[cfg(unix)]
mod raw {
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

    /// The descriptor of a socket.
    pub(crate) type Raw = RawFd;
    pub(super) type Borrowed<'a> = BorrowedFd<'a>;

    /// The descriptor of something open.
    pub(crate) trait Descriptor: AsFd {
        /// It stays valid while the value lives.
        fn raw(&self) -> Raw {
            self.as_fd().as_raw_fd()
        }
    }

    impl<T: AsFd> Descriptor for T {}

    /// # Safety
    /// It is open for as long as the borrow.
    pub(super) unsafe fn borrow<'a>(raw: Raw) -> Borrowed<'a> {
        // SAFETY: the caller's.
        unsafe { BorrowedFd::borrow_raw(raw) }
    }
}

#[cfg(windows)]
mod raw {
    use std::os::windows::io::{AsRawSocket, AsSocket, BorrowedSocket, RawSocket};

    /// The descriptor of a socket.
    pub(crate) type Raw = RawSocket;
    pub(super) type Borrowed<'a> = BorrowedSocket<'a>;

    /// The descriptor of something open.
    pub(crate) trait Descriptor: AsSocket {
        /// It stays valid while the value lives.
        fn raw(&self) -> Raw {
            self.as_socket().as_raw_socket()
        }
    }

    impl<T: AsSocket> Descriptor for T {}

    /// # Safety
    /// It is open for as long as the borrow.
    pub(super) unsafe fn borrow<'a>(raw: Raw) -> Borrowed<'a> {
        // SAFETY: the caller's.
        unsafe { BorrowedSocket::borrow_raw(raw) }
    }
}

pub(crate) use raw::{Descriptor, Raw};

/// The system's poller and its bell.
pub(crate) struct Sys(polling::Poller);

/// Room for what one wait gives.
pub(crate) struct Buffer(Events);

impl Buffer {
    pub(crate) fn new() -> Self {
        Self(Events::with_capacity(NonZero::new(EVENTS_MAX).expect("it is not 0")))
    }

    /// Key and readiness of each event of the last wait. Where an address has 32 bits the key has lost
    /// its generation, which is then 0.
    pub(crate) fn events(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|event| (event.key as u64, readiness(&event)))
    }
}

fn readiness(event: &Event) -> u64 {
    let mut bits = 0;
    if event.readable {
        bits |= READ;
    }
    if event.writable {
        bits |= WRITE;
    }
    if event.is_interrupt() {
        bits |= READ | READ_CLOSED | WRITE | WRITE_CLOSED;
    }
    if event.is_err() == Some(true) {
        bits |= READ | WRITE | ERROR;
    }
    bits
}

fn interest(key: u64, read: bool, write: bool) -> Event {
    debug_assert_ne!(key, BELL);
    Event::new(key as usize, read, write)
}

impl Sys {
    /// Readiness is told once for each time that somebody waits.
    pub(crate) const TELLS_EDGES: bool = false;

    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(polling::Poller::new()?))
    }

    pub(crate) fn add(&self, io: &impl Descriptor, key: u64) -> io::Result<()> {
        // SAFETY: `delete` is called before the descriptor is closed: see `Registration`.
        unsafe { self.0.add_with_mode(io.raw(), interest(key, false, false), PollMode::Oneshot) }
    }

    /// Takes a descriptor out that was added and is still open.
    pub(crate) fn delete(&self, raw: Raw) {
        // SAFETY: the caller's descriptor is open, and the borrow ends with the call.
        let io = unsafe { raw::borrow(raw) };
        let deleted = self.0.delete(io);
        debug_assert!(deleted.is_ok(), "{deleted:?}");
    }

    /// Asks to be told of these directions, once.
    pub(crate) fn arm(&self, raw: Raw, key: u64, read: bool, write: bool) {
        // SAFETY: as in `delete`.
        let io = unsafe { raw::borrow(raw) };
        // It fails for a descriptor that is just being taken out: then nobody waits for it any more.
        let _ = self.0.modify_with_mode(io, interest(key, read, write), PollMode::Oneshot);
    }

    /// Waits for events, at most for `limit`. Where others would stay in their order `max` is kept; here they
    /// are told up to `EVENTS_MAX` at once.
    pub(crate) fn wait(&self, buffer: &mut Buffer, limit: Option<Duration>, _max: usize) -> io::Result<()> {
        buffer.0.clear();
        self.0.wait(&mut buffer.0, limit)?;
        Ok(())
    }

    /// Ends one wait, the present one or the next.
    pub(crate) fn ring(&self) {
        let rung = self.0.notify();
        debug_assert!(rung.is_ok(), "{rung:?}");
    }
}
