//! The poller of a host: readiness of sockets, learned by the workers themselves.
//!
//! # Who polls
//!
//! Polling is a role, taken with a try-lock. A worker that has run dry polls without waiting before it
//! searches, and now and then while it searches; one that looks around does if nobody has for [`FRESH`];
//! one that parks takes the role along and sleeps in the poller instead of in its bed, so that readiness
//! wakes it without another thread. The others park as ever. If nobody has polled for [`STALE`] the monitor
//! does. Nobody polls while no descriptor is registered: the only cost is then a load where a worker looks
//! around, runs dry or parks.
//!
//! A worker that sleeps here is woken by the *bell*, which is rung only by the one who turns its parker's
//! word from "in the poller" to "has a token": many wakes, one ring. A ring that comes late ends somebody
//! else's sleep, who looks around and sleeps again.
//!
//! # Somebody always comes to poll
//!
//! If descriptors are registered, then someone sleeps in the poller, or somebody is up who will poll, or the
//! monitor looks within [`STALE`]:
//!
//! - A worker that parks tries to take the role. It fails only if somebody has it: another worker, who is
//!   up and will itself park later, or sleeps here; a spare, which makes sure that somebody comes when it
//!   leaves; or another thread that polls without waiting, which does so when it gives the role back. So does
//!   a thread that registers a descriptor. (`post.rs`.)
//! - A worker that is up, in a step that does not end, has called the monitor when it came back from its
//!   park, or whoever registered has; the monitor does not rest for longer than [`STALE`] while workers
//!   are up and descriptors are registered.
//!
//! Tests: `net::a_socket_is_heard_while_the_last_poller_blocks`, `net::a_spare_leaves_the_poller_to_somebody`.
//! Model: `model::poller::a_spare_that_leaves_makes_sure`.
//!
//! # The watchdog
//!
//! While descriptors are registered the monitor sleeps for at most [`WATCH`], and then makes sure that
//! whoever sleeps in the poller has no token (a wake that was lost on the way: it rings again) and that no
//! parked worker has slept past its timers. Both are counted as repairs.
//!
//! Test: `poller::tests::a_swallowed_ring_is_repaired`.
//!
//! | file | holds |
//! | --- | --- |
//! | `epoll.rs`, `portable.rs` | the system's part: add, delete, arm, wait, ring |
//! | `source.rs` | readiness and waiters of one descriptor |
//! | `post.rs` | the role |
//! | `registration.rs` | a descriptor in a poller, tries and waits, time limits |

#[cfg(all(target_os = "linux", not(feature = "portable-poller")))]
#[path = "epoll.rs"]
mod sys;
#[cfg(not(all(target_os = "linux", not(feature = "portable-poller"))))]
#[path = "portable.rs"]
mod sys;

pub(crate) mod post;
mod registration;
pub(crate) mod source;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use post::{Post, Sleep, Taken};
#[cfg(unix)]
pub(crate) use registration::leaving;
pub(crate) use registration::{Registration, Timer, Waiting, len_of_call};
pub(crate) use source::Direction;
use sys::{Buffer, Sys};
pub(crate) use sys::{Descriptor, Raw};

use crate::clock;
use crate::route::host::{Engine, Hub};
use crate::sync::{AtomicU64, AtomicUsize, Relaxed};
use crate::task::context;
use crate::worker::idle::Bell;

/// The bell's key.
const BELL: u64 = u64::MAX;

/// A busy worker that looks around does not poll if somebody has within this, in nanoseconds.
pub(crate) const FRESH: u64 = 500_000;
/// When nobody has polled for this long, in nanoseconds, the monitor does. (Go's `sysmon` waits as long.)
pub(crate) const STALE: u64 = 10_000_000;
/// So long after the last event the monitor still looks every [`STALE`], and need not be called.
const LIVELY: u64 = 100_000_000;
/// Events of one poll, at most; and so many in a worker's FIFO are enough. Beyond are places for what comes from
/// elsewhere: what is spilled would come to its turn after those who are found later.
pub(crate) const EVENTS_MAX: usize = crate::worker::LOCAL_MAX * 5 / 8;
/// A poll of a busy worker takes so many even so.
pub(crate) const EVENTS_MIN: usize = 16;
/// Events of one poll of the monitor, at most. Whom it wakes goes to inject queues; what these have no room for
/// would wait in the global queue, behind those who are found later.
const MONITOR_MAX: usize = crate::queues::inject::INJECT_MAX as usize / 2;
/// The longest sleep of the monitor while descriptors are registered.
pub(crate) const WATCH: Duration = Duration::from_millis(200);
/// A wake that has not been heard for so long is taken for lost, in nanoseconds: a thread that waits for a
/// processor looks the same. What a lost wake costs is at most [`WATCH`] and this.
const LOST: u64 = 50_000_000;

/// One host's poller. Type-stable, as its [`Hub`].
#[repr(align(128))]
pub(crate) struct Poller {
    /// Descriptors registered; while there are none nobody polls.
    registered: AtomicUsize,
    /// When somebody polled last, in nanoseconds of [`clock`].
    last_poll: AtomicU64,
    /// When a wait last gave an event.
    last_event: AtomicU64,
    /// The system's part; made when the first descriptor comes.
    sys: OnceLock<Sys>,
    post: Post<Buffer>,
    counts: Counts,
}

/// Written now and then, by whoever it is.
struct Counts {
    rings: AtomicU64,
    monitor_polls: AtomicU64,
    repairs: AtomicU64,
    accept_pauses: AtomicU64,
    #[cfg(test)]
    swallow: AtomicU64,
}

/// A host's poller, as of about now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PollerStats {
    /// Descriptors registered.
    pub descriptors: usize,
    /// Polls that the monitor did because nobody else had.
    pub monitor_polls: u64,
    /// Wakes of a worker that slept in the poller.
    pub rings: u64,
    /// Wakes that seemed to be lost and were made up for by the monitor: a thread that got no processor for
    /// 50 ms is among them.
    pub repairs: u64,
    /// Times that a listener paused because the program had no descriptors left.
    pub accept_pauses: u64,
}

/// The right to poll.
pub(crate) struct Role {
    poller: &'static Poller,
    sys: &'static Sys,
    tools: Taken<'static, Buffer>,
}

impl Poller {
    pub(crate) fn new() -> Self {
        Self {
            registered: AtomicUsize::new(0),
            last_poll: AtomicU64::new(0),
            last_event: AtomicU64::new(0),
            sys: OnceLock::new(),
            post: Post::new(Buffer::new()),
            counts: Counts {
                rings: AtomicU64::new(0),
                monitor_polls: AtomicU64::new(0),
                repairs: AtomicU64::new(0),
                accept_pauses: AtomicU64::new(0),
                #[cfg(test)]
                swallow: AtomicU64::new(0),
            },
        }
    }

    /// For the next host that uses the hub.
    pub(crate) fn reset(&self) {
        debug_assert_eq!(self.registered.load(Relaxed), 0, "a socket holds its host");
        let Counts { rings, monitor_polls, repairs, accept_pauses, .. } = &self.counts;
        for counter in [rings, monitor_polls, repairs, accept_pauses] {
            counter.store(0, Relaxed);
        }
    }

    /// Is any descriptor registered?
    #[inline(always)]
    pub(crate) fn is_used(&self) -> bool {
        self.registered.load(Relaxed) != 0
    }

    fn sys(&self) -> Option<&Sys> {
        self.sys.get()
    }

    fn sys_or_new(&self) -> io::Result<&Sys> {
        if let Some(sys) = self.sys.get() {
            return Ok(sys);
        }
        let new = Sys::new()?;
        // Of two who come first one's is dropped.
        Ok(self.sys.get_or_init(|| new))
    }

    /// The role, if it is free and there is something to poll for.
    pub(crate) fn take_role(&'static self) -> Option<Role> {
        if !self.is_used() {
            return None;
        }
        let sys = self.sys()?;
        let tools = self.post.try_take()?;
        Some(Role { poller: self, sys, tools })
    }

    /// Has nobody polled for `age` nanoseconds, and does nobody sleep here?
    pub(crate) fn is_overdue(&self, now: u64, age: u64) -> bool {
        self.post.sleeper().is_none() && now.saturating_sub(self.last_poll.load(Relaxed)) >= age
    }

    /// Have there been events of late, so that the monitor had better not be called for each?
    pub(crate) fn is_lively(&self, now: u64) -> bool {
        now.saturating_sub(self.last_event.load(Relaxed)) < LIVELY
    }

    pub(crate) fn note_accept_pause(&self) {
        self.counts.accept_pauses.fetch_add(1, Relaxed);
    }

    pub(crate) fn stats(&self) -> PollerStats {
        PollerStats {
            descriptors: self.registered.load(Relaxed),
            monitor_polls: self.counts.monitor_polls.load(Relaxed),
            rings: self.counts.rings.load(Relaxed),
            repairs: self.counts.repairs.load(Relaxed),
            accept_pauses: self.counts.accept_pauses.load(Relaxed),
        }
    }

    /// How many wait for descriptors of this poller. It takes each socket's lock in turn.
    pub(crate) fn waiting(&self) -> usize {
        source::waiting(self)
    }

    /// The scheduler has ended: whoever waits is woken, and told so.
    pub(crate) fn orphan_all(&'static self) {
        // Without a look whether there are any: by the locks of the sources either this finds a descriptor
        // that is just being registered, or who registers it finds the phase.
        let mut wakers = Vec::new();
        source::orphan(self, &mut wakers);
        wake_all(&mut wakers);
    }
}

impl Bell for &'static Poller {
    fn ring(&self) {
        #[cfg(test)]
        if self.counts.swallow.load(Relaxed) != 0 {
            self.counts.swallow.fetch_sub(1, Relaxed);
            return;
        }
        self.counts.rings.fetch_add(1, Relaxed);
        // Who sleeps here came by the role, which there is not without a system's part.
        if let Some(sys) = self.sys() {
            sys.ring();
        }
    }
}

impl Role {
    /// Looks without waiting, for at most `max` events. Who is to be woken is put among `wakers`; the answer is
    /// how many events there were.
    pub(crate) fn look(&mut self, max: usize, wakers: &mut Vec<Waker>) -> u64 {
        self.wait(Some(Duration::ZERO), max, wakers)
    }

    /// Sleeps till an event, a ring, or the end of `limit`, as worker `me`.
    pub(crate) fn sleep(&mut self, me: u16, limit: Option<Duration>, wakers: &mut Vec<Waker>) -> u64 {
        let post = &self.poller.post;
        post.sleeping(me, || self.wait(limit, EVENTS_MAX, wakers))
    }

    fn wait(&mut self, limit: Option<Duration>, max: usize, wakers: &mut Vec<Waker>) -> u64 {
        let sys = self.sys;
        let events = self.tools.with(|buffer| {
            if let Err(error) = sys.wait(buffer, limit, max) {
                // Interrupted by a signal or a debugger: as if nothing had come. Nothing else is possible
                // with arguments that are right; and a worker that cannot wait must not stop the others.
                debug_assert_eq!(error.kind(), io::ErrorKind::Interrupted, "{error}");
                return 0;
            }
            let mut events = 0;
            for (key, bits) in buffer.events().filter(|(key, _)| *key != BELL) {
                source::deliver(key, bits, wakers);
                events += 1;
            }
            events
        });
        let now = clock::refresh();
        // Relaxed: hints for when to look next.
        self.poller.last_poll.store(now, Relaxed);
        if events > 0 {
            self.poller.last_event.store(now, Relaxed);
        }
        events
    }
}

/// Wakes them, each contained.
pub(crate) fn wake_all(wakers: &mut Vec<Waker>) {
    for waker in wakers.drain(..) {
        let _ = crate::process::contain(|| waker.wake());
    }
}

/// The monitor's part of polling.
#[derive(Default)]
pub(crate) struct Watchdog {
    /// A sleep that had a token at the last look, and since when it has been seen so.
    suspect: Option<(Sleep, u64)>,
    wakers: Vec<Waker>,
}

impl Watchdog {
    /// How long the monitor may sleep when all workers are parked; `None`: till it is called.
    pub(crate) fn limit(&self, hub: &Hub) -> Option<Duration> {
        let limit = if self.suspect.is_some() { Duration::from_nanos(LOST) } else { WATCH };
        hub.poller.is_used().then_some(limit)
    }

    /// One look.
    pub(crate) fn look(&mut self, hub: &'static Hub, now: u64) {
        let poller = hub.poller;
        if !poller.is_used() {
            self.suspect = None;
            return;
        }
        if poller.is_overdue(now, STALE) {
            self.poll(hub);
        }
        for (index, worker) in hub.workers.iter().enumerate() {
            let due = worker.timers.next_due();
            if due.saturating_add(LOST) <= now && hub.idle.choose_exactly(index as u16) {
                poller.counts.repairs.fetch_add(1, Relaxed);
                worker.parker.unpark();
            }
        }
        // A token that was given to a sleeper and has not woken it.
        let has_token = |sleep: &Sleep| hub.entry(sleep.worker as usize).parker.has_token();
        let sleep = poller.post.sleeper().filter(has_token);
        self.suspect = match (sleep, self.suspect) {
            (None, _) => None,
            (Some(sleep), Some((suspect, since))) if sleep == suspect => {
                if now.saturating_sub(since) < LOST {
                    Some((sleep, since))
                } else {
                    poller.counts.repairs.fetch_add(1, Relaxed);
                    (&poller).ring();
                    None
                }
            }
            (Some(sleep), _) => Some((sleep, now)),
        };
    }

    fn poll(&mut self, hub: &'static Hub) {
        if let Some(mut role) = hub.poller.take_role() {
            hub.poller.counts.monitor_polls.fetch_add(1, Relaxed);
            role.look(MONITOR_MAX, &mut self.wakers);
            drop(role);
            wake_all(&mut self.wakers);
        }
        make_sure_somebody_polls(hub);
    }
}

/// To be called by a thread that is no worker, or no more, after it has registered something or given the role back.
pub(crate) fn make_sure_somebody_polls(hub: &'static Hub) {
    if let Some(worker) = hub.poller.post.whom_to_wake(&hub.idle) {
        hub.entry(worker as usize).parker.unpark();
    }
}

/// The host to which a socket belongs that is made here.
///
/// # Errors
/// There is none.
pub(crate) fn current() -> io::Result<Arc<Engine>> {
    context::try_engine().ok_or_else(|| {
        io::Error::other("no scheduler here: call inside Scheduler::block_on, a task, or a step")
    })
}
