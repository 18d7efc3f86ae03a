//! A descriptor in a poller: tries, waits, limits of time.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::source::{self, ORPHAN, READ_CLOSED, Source, URGENT, WRITE_CLOSED};
use super::{Descriptor, Direction, Raw, Sys, make_sure_somebody_polls};
use crate::clock;
use crate::route::host::{Engine, Hub, Phase};
use crate::sync::Relaxed;
use crate::task::coop;
use crate::time::{Alarm, HostGone};

/// A descriptor that is registered with a host's poller till this is dropped, which must be before the
/// descriptor is closed.
pub(crate) struct Registration {
    source: &'static Source,
    key: u64,
    raw: Raw,
    engine: Arc<Engine>,
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Registration({:#x})", self.key)
    }
}

/// The place of one who waits in a socket's list, and its limit of time. To be given back to
/// [`Registration::quit`] before it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// 0: not in the list.
    number: u64,
    limit: Option<Timer>,
}

impl Registration {
    /// Registers a descriptor that does not block. `bits`: what it is taken to be ready for, till a try
    /// shows that it is not.
    ///
    /// # Errors
    /// The system's; the scheduler has ended; there are too many sockets.
    pub(crate) fn new(engine: Arc<Engine>, io: &impl Descriptor, bits: u64) -> io::Result<Self> {
        let hub = engine.hub;
        let raw = io.raw();
        let sys = hub.poller.sys_or_new()?;
        let (source, key) = source::take(hub.poller, raw, bits)
            .ok_or_else(|| io::Error::other("there are more sockets than places for them"))?;
        if let Err(error) = sys.add(io, key) {
            source.free(key);
            return Err(error);
        }
        hub.poller.registered.fetch_add(1, Relaxed);
        let registration = Self { source, key, raw, engine };
        if hub.phase() == Phase::Gone {
            // Perhaps after the others were told so.
            return Err(ended());
        }
        if crate::worker::current().is_none_or(|worker| worker.host() != hub.id) {
            make_sure_somebody_polls(hub);
        } else {
            // Pairs with the fence of the monitor that is going to sleep without a limit.
            crate::sync::fence(crate::sync::SeqCst);
        }
        // From now on it may not sleep without a limit.
        hub.watch.ensure_awake();
        Ok(registration)
    }

    /// The host to which it belongs.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Tries, or waits till trying makes sense. Each call is charged to the task's budget.
    ///
    /// # Errors
    /// Those of `op`, but "would block" and "interrupted"; [`io::ErrorKind::TimedOut`] after `limit`,
    /// counted from the first call that waits; the scheduler has ended.
    pub(crate) fn poll<R>(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        waiting: &mut Waiting,
        limit: Option<Duration>,
        mut op: impl FnMut() -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll_seen(cx, direction, waiting, limit, |_| op())
    }

    /// As [`Self::poll`] for a stream's reads and writes of up to `len` bytes: after a short one it is known
    /// that the next would have to wait.
    pub(crate) fn poll_bytes(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        waiting: &mut Waiting,
        limit: Option<Duration>,
        len: usize,
        mut op: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.poll_seen(cx, direction, waiting, limit, |seen| {
            let done = op()?;
            // After the peer's half close no event follows that would make it ready again for the end.
            if Sys::TELLS_EDGES && 0 < done && done < len && seen & (READ_CLOSED | WRITE_CLOSED | URGENT) == 0
            {
                self.source.clear(seen, direction);
            }
            Ok(done)
        })
    }

    fn poll_seen<R>(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        waiting: &mut Waiting,
        limit: Option<Duration>,
        mut op: impl FnMut(u64) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        ready!(coop::poll_proceed(cx));
        let result = loop {
            let seen = self.source.look();
            if seen & (direction.bits() | ORPHAN) != 0 {
                match op(seen) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        if seen & ORPHAN != 0 {
                            break Err(ended());
                        }
                        self.source.clear(seen, direction);
                    }
                    other => {
                        // If it is in the list, then an event has come since it entered, which takes it out.
                        waiting.number = 0;
                        break other;
                    }
                }
            }
            if let Some(timer) = &waiting.limit
                && timer.is_over()
            {
                break Err(io::ErrorKind::TimedOut.into());
            }
            if let Some(number) = self.source.wait(direction, waiting.number, cx.waker()) {
                waiting.number = number;
                if let Some(limit) = limit {
                    let hub = self.engine.hub;
                    let timer = waiting.limit.get_or_insert_with(|| Timer::after(hub, limit));
                    // Not if the host has ended: this is in the list, and is told so by the socket.
                    if let Poll::Ready(Ok(())) = timer.poll(cx) {
                        break Err(io::ErrorKind::TimedOut.into());
                    }
                }
                coop::refund();
                return Poll::Pending;
            }
            waiting.number = 0;
        };
        self.quit(direction, waiting);
        Poll::Ready(result)
    }

    /// As [`Self::poll`] for one who is no task: without a budget, and `waker` may be anything.
    ///
    /// # Errors
    /// As [`Self::poll`].
    #[cfg(target_os = "linux")]
    pub(crate) fn poll_as_nobody<R>(
        &self,
        waker: &std::task::Waker,
        direction: Direction,
        waiting: &mut Waiting,
        mut op: impl FnMut() -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        loop {
            let seen = self.source.look();
            match op() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
            if seen & ORPHAN != 0 {
                return Poll::Ready(Err(ended()));
            }
            self.source.clear(seen, direction);
            if let Some(number) = self.source.wait(direction, waiting.number, waker) {
                waiting.number = number;
                return Poll::Pending;
            }
            waiting.number = 0;
        }
    }

    /// A try found that it is not ready, though it seemed to be when [`Self::seen`] was called.
    pub(crate) fn clear(&self, seen: u64, direction: Direction) {
        self.source.clear(seen, direction);
    }

    /// What it seems to be ready for; for [`Self::clear`].
    pub(crate) fn seen(&self) -> u64 {
        self.source.look()
    }

    /// The wait is over.
    pub(crate) fn quit(&self, direction: Direction, waiting: &mut Waiting) {
        waiting.limit = None;
        if waiting.number != 0 {
            self.source.forget(direction, waiting.number);
            waiting.number = 0;
        }
    }
}

/// How many bytes one call takes at most from or into these buffers: of more than 1,024 (`IOV_MAX` of Linux) it
/// takes those alone, and that it has not taken the others does not mean that it would have had to wait.
pub(crate) fn len_of_call(bufs: &[impl std::ops::Deref<Target = [u8]>]) -> usize {
    const BUFFERS_MAX: usize = 1024;
    bufs.iter().take(BUFFERS_MAX).map(|buf| buf.len()).sum()
}

/// Waits through one that has a place of its own in a list, and leaves that list when the future is dropped.
#[cfg(unix)]
pub(crate) async fn leaving<T, R>(
    who: &mut T,
    leave: fn(&mut T),
    mut poll: impl FnMut(&mut T, &mut Context<'_>) -> Poll<R>,
) -> R {
    struct Leaves<'a, T>(&'a mut T, fn(&mut T));
    impl<T> Drop for Leaves<'_, T> {
        fn drop(&mut self) {
            (self.1)(self.0);
        }
    }
    let waits = Leaves(who, leave);
    std::future::poll_fn(|cx| poll(waits.0, cx)).await
}

impl Drop for Registration {
    fn drop(&mut self) {
        let poller = self.engine.hub.poller;
        if let Some(sys) = poller.sys() {
            sys.delete(self.raw);
        }
        self.source.free(self.key);
        poller.registered.fetch_sub(1, Relaxed);
    }
}

impl From<HostGone> for io::Error {
    fn from(_: HostGone) -> Self {
        ended()
    }
}

fn ended() -> io::Error {
    io::Error::other("the scheduler of this socket has ended")
}

/// A moment to come, with a waker for it.
pub(crate) struct Timer {
    hub: &'static Hub,
    alarm: Alarm,
}

impl std::fmt::Debug for Timer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Timer")
    }
}

impl Timer {
    /// A timer that is due so far from now.
    pub(crate) fn after(hub: &'static Hub, delay: Duration) -> Self {
        Self { hub, alarm: Alarm::at(clock::deadline(clock::now_nanos(), delay)) }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.alarm.is_over()
    }

    /// Is it due? If not, the task is woken when it is, or when the host ends.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HostGone>> {
        self.alarm.poll(cx, || self.hub)
    }
}
