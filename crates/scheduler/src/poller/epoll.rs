//! Linux: epoll, edge-triggered, with an eventfd as bell.
//!
//! Each descriptor is registered once, for both directions and for the peer's half close; nothing is ever
//! armed again. The bell is never read: each write is an edge of its own.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use super::source::{ERROR, READ, READ_CLOSED, URGENT, WRITE, WRITE_CLOSED};
use super::{BELL, EVENTS_MAX};
use crate::sync::{AtomicBool, Relaxed};

/// The descriptor of a socket.
pub(crate) type Raw = RawFd;

/// The descriptor of something open.
pub(crate) trait Descriptor: AsFd {
    /// It stays valid while the value lives.
    fn raw(&self) -> Raw {
        use std::os::fd::AsRawFd;
        self.as_fd().as_raw_fd()
    }
}

impl<T: AsFd> Descriptor for T {}

/// One epoll instance and its bell.
pub(crate) struct Sys {
    epoll: OwnedFd,
    bell: OwnedFd,
    /// `epoll_pwait2` is missing, or refused by a filter on system calls.
    is_coarse: AtomicBool,
}

/// Room for what one wait gives.
pub(crate) struct Buffer(Vec<Event>);

// SAFETY: an event's data could be a pointer; here it is always a number.
unsafe impl Send for Buffer {}

impl Buffer {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// Key and readiness of each event of the last wait.
    pub(crate) fn events(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|event| ({ event.data }.u64(), readiness(event.flags)))
    }
}

fn readiness(flags: EventFlags) -> u64 {
    let mut bits = 0;
    if flags.intersects(EventFlags::IN) {
        bits |= READ;
    }
    if flags.intersects(EventFlags::PRI) {
        bits |= READ | URGENT;
    }
    if flags.intersects(EventFlags::OUT) {
        bits |= WRITE;
    }
    if flags.intersects(EventFlags::RDHUP) {
        bits |= READ | READ_CLOSED;
    }
    if flags.intersects(EventFlags::HUP) {
        bits |= READ | READ_CLOSED | WRITE | WRITE_CLOSED;
    }
    if flags.intersects(EventFlags::ERR) {
        // Whoever tries next is told the error, and only then.
        bits |= READ | WRITE | ERROR;
    }
    bits
}

impl Sys {
    /// After a short read or write the descriptor is not ready, and an edge will tell when it is again.
    pub(crate) const TELLS_EDGES: bool = true;

    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &bell, EventData::new_u64(BELL), EventFlags::IN | EventFlags::ET)?;
        Ok(Self { epoll, bell, is_coarse: AtomicBool::new(false) })
    }

    pub(crate) fn add(&self, io: &impl Descriptor, key: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::PRI | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.epoll, io.as_fd(), EventData::new_u64(key), flags)?)
    }

    /// Takes a descriptor out that was added and is still open.
    pub(crate) fn delete(&self, raw: Raw) {
        // SAFETY: the caller's descriptor is open, and the borrow ends with the call.
        let io = unsafe { BorrowedFd::borrow_raw(raw) };
        let deleted = epoll::delete(&self.epoll, io);
        debug_assert!(deleted.is_ok(), "{deleted:?}");
    }

    /// Nothing: an edge comes without being asked for.
    #[allow(clippy::unused_self, reason = "the interface of both layers")]
    pub(crate) fn arm(&self, _raw: Raw, _key: u64, _read: bool, _write: bool) {}

    /// Waits for events, at most for `limit`; never less than that if none comes and nobody rings. It takes up
    /// to `max` of them; the others stay where they are, in their order.
    pub(crate) fn wait(&self, buffer: &mut Buffer, limit: Option<Duration>, max: usize) -> io::Result<()> {
        let events = &mut buffer.0;
        events.clear();
        let max = max.clamp(1, EVENTS_MAX);
        events.reserve(max);
        if let Some(limit) = limit
            && !limit.is_zero()
            && !self.is_coarse.load(Relaxed)
        {
            match self.wait_precisely(events, limit, max) {
                // Old kernels do not know the call; some filters refuse what they do not know.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                    self.is_coarse.store(true, Relaxed);
                }
                other => return other,
            }
        }
        // Rounded up to milliseconds. What is longer than the call takes ends early, and is begun again.
        const LIMIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
        let limit = limit.map(|limit| limit.min(LIMIT_MAX)).map(|limit| Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        let (given, _) = epoll::wait(&self.epoll, &mut events.spare_capacity_mut()[..max], limit.as_ref())?;
        let count = given.len();
        // SAFETY: the kernel has written so many, and the list was empty.
        unsafe { events.set_len(count) };
        Ok(())
    }

    /// By `epoll_pwait2`, to the nanosecond. (rustix has it too, but behind a feature that takes the old
    /// call away from every crate of the program.)
    fn wait_precisely(&self, events: &mut Vec<Event>, limit: Duration, max: usize) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        // The kernel's own type, 64 bits wide on every machine.
        let limit: [i64; 2] =
            [i64::try_from(limit.as_secs()).unwrap_or(i64::MAX), i64::from(limit.subsec_nanos())];
        // SAFETY: the list has room for `max` events of the kernel's layout, which `Event` has; the
        // limit is alive; no signal mask is given.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                events.as_mut_ptr(),
                max as libc::c_int,
                limit.as_ptr(),
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has written so many, and the list was empty.
        unsafe { events.set_len(count as usize) };
        Ok(())
    }

    /// Ends one wait, the present one or the next.
    pub(crate) fn ring(&self) {
        // It fails only when the count is full, and then there is an edge to come.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    /// Each way to wait: as the kernel is, and as if it were an old one.
    #[test]
    fn no_wait_ends_early() {
        for is_coarse in [false, true] {
            let sys = Sys::new().unwrap();
            sys.is_coarse.store(is_coarse, Relaxed);
            let mut buffer = Buffer::new();
            for micros in [1, 50, 999, 1001, 2500] {
                let limit = Duration::from_micros(micros);
                let began = clock::now();
                sys.wait(&mut buffer, Some(limit), 1).unwrap();
                assert!(clock::now() - began >= limit, "{micros} us, coarse: {is_coarse}");
                assert_eq!(buffer.events().count(), 0);
            }
            sys.wait(&mut buffer, Some(Duration::ZERO), 1).unwrap();
        }
    }

    #[test]
    fn each_ring_ends_a_wait() {
        let sys = Sys::new().unwrap();
        let mut buffer = Buffer::new();
        for _ in 0..3 {
            sys.ring();
            sys.wait(&mut buffer, None, EVENTS_MAX).unwrap();
            assert_eq!(buffer.events().map(|(key, _)| key).collect::<Vec<_>>(), [BELL]);
        }
        // Rings during no wait are one edge.
        sys.ring();
        sys.ring();
        sys.wait(&mut buffer, None, EVENTS_MAX).unwrap();
        sys.wait(&mut buffer, Some(Duration::from_micros(1)), EVENTS_MAX).unwrap();
        assert_eq!(buffer.events().count(), 0);
    }
}
