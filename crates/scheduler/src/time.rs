//! Timers for futures: sleeps, intervals, time-outs.
//!
//! A timer lies with the worker that polled it (or, from [`crate::Scheduler::block_on`], with the host's first
//! worker): a tree behind a short lock, so any thread cancels in O(log n) and an idle worker fires what is due
//! with a busy one. Time is monotonic: a change of the wall clock, or a suspended machine, moves nothing. No
//! timer fires early; how late they fire is [`crate::Stats::timer_lateness`]. Delays saturate: one that is
//! too long for the clock never ends.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::clock;
use crate::command::TimerKey;
use crate::route::host::{Hub, Phase};
use crate::task::{context, coop};
use crate::worker::timers::{NEVER, TimerAction};

/// Waits for `delay`; made by [`sleep`] and [`sleep_until`].
///
/// # Panics
/// Polled where there is no host: on a thread that is no worker and in no [`crate::Scheduler::block_on`]. And
/// when its host has ended before the wait has.
#[must_use = "futures do nothing unless polled"]
pub struct Sleep(Alarm);

/// A moment at which a future is woken, in nanoseconds of [`crate::clock`], and the timer for it.
pub(crate) struct Alarm {
    due: u64,
    armed: Option<Armed>,
}

struct Armed {
    hub: &'static Hub,
    /// The life of the hub in which it was armed.
    life: u32,
    key: TimerKey,
    waker: Waker,
}

impl Armed {
    fn new(hub: &'static Hub, due: u64, waker: Waker) -> Self {
        let life = hub.life();
        let key = hub.arm(due, TimerAction::Wake(waker.clone()));
        Self { hub, life, key, waker }
    }

    /// Does its host still fire timers?
    fn is_alive(&self) -> bool {
        // Whoever ends the host says so before it takes the timers away: of its turn at the lock and that of
        // `arm` one came first.
        // The phase first: if it is that of a later life (Release in `Hub::take`), so is the life.
        self.hub.phase() != Phase::Gone && self.hub.life() == self.life
    }
}

/// The scheduler that would end the wait has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostGone;

impl Alarm {
    pub(crate) fn at(due: u64) -> Self {
        Self { due, armed: None }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.due <= clock::now_nanos()
    }

    /// Is it over? If not, the future is woken when it is, by a timer of that host; also when the host ends.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        hub: impl FnOnce() -> &'static Hub,
    ) -> Poll<Result<(), HostGone>> {
        if self.is_over() {
            return Poll::Ready(Ok(()));
        }
        if self.armed.as_ref().is_none_or(|armed| !armed.waker.will_wake(cx.waker())) {
            self.disarm();
            self.armed = Some(Armed::new(hub(), self.due, cx.waker().clone()));
        }
        if self.armed.as_ref().is_some_and(Armed::is_alive) {
            Poll::Pending
        } else {
            Poll::Ready(Err(HostGone))
        }
    }

    /// Another moment instead; whoever waits is woken then, though another may have called this.
    fn reset(&mut self, due: u64) {
        self.due = due;
        if let Some(armed) = self.armed.take() {
            armed.hub.cancel(armed.key);
            // Anew, or it looks for itself.
            if !armed.is_alive() {
                return armed.waker.wake();
            }
            let anew = Armed::new(armed.hub, due, armed.waker);
            // The host may have ended, and taken its timers away, since that look.
            if anew.is_alive() {
                self.armed = Some(anew);
            } else {
                anew.hub.cancel(anew.key);
                anew.waker.wake();
            }
        }
    }

    fn disarm(&mut self) {
        if let Some(armed) = self.armed.take() {
            armed.hub.cancel(armed.key);
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.disarm();
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sleep({:?})", self.deadline())
    }
}

/// Waits for that long, at least: from now, not from the first poll.
pub fn sleep(delay: Duration) -> Sleep {
    Sleep(Alarm::at(clock::deadline(clock::now_nanos(), delay)))
}

/// Waits till that moment; one that has passed is over at once.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep(Alarm::at(clock::nanos_of(deadline)))
}

impl Sleep {
    /// When it ends. `None`: never.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        (self.0.due != NEVER).then(|| clock::at(self.0.due)).flatten()
    }

    /// Is it over?
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        self.0.is_over()
    }

    /// Waits till another moment instead, also when it was over.
    pub fn reset(&mut self, deadline: Instant) {
        self.0.reset(clock::nanos_of(deadline));
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::task::ready!(self.0.poll(cx, context::hub)).is_err() {
            panic!("the scheduler of this sleep has ended: nobody would end the wait");
        }
        std::task::ready!(coop::poll_proceed(cx));
        self.0.disarm();
        Poll::Ready(())
    }
}

/// What an [`Interval`] does about ticks that nobody took in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissedTicks {
    /// They come one after the other at once, till the interval has caught up.
    #[default]
    Burst,
    /// One comes at once; the next a whole period after it.
    Delay,
    /// One comes at once; the next at the next multiple of the period.
    Skip,
}

/// Ticks at a fixed rate; made by [`interval`].
#[derive(Debug)]
pub struct Interval {
    sleep: Sleep,
    period: u64,
    missed: MissedTicks,
}

/// Ticks every `period`, the first time at once.
///
/// # Panics
/// With a period of zero.
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    interval_at(clock::now(), period)
}

/// Ticks every `period`, the first time at `first`.
///
/// # Panics
/// With a period of zero.
#[track_caller]
pub fn interval_at(first: Instant, period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval's period must not be zero");
    Interval { sleep: sleep_until(first), period: clock::deadline(0, period), missed: MissedTicks::default() }
}

impl Interval {
    /// What becomes of ticks that nobody took in time.
    #[must_use]
    pub fn missed_ticks(mut self, missed: MissedTicks) -> Self {
        self.missed = missed;
        self
    }

    /// Waits for the next tick and gives the moment for which it was due. Dropped while it waits, it has
    /// taken no tick.
    ///
    /// # Panics
    /// As [`Sleep`].
    pub fn tick(&mut self) -> impl Future<Output = Instant> + Send {
        poll_fn(|cx| self.poll_tick(cx))
    }

    /// As [`Self::tick`], for use within a poll.
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        std::task::ready!(Pin::new(&mut self.sleep).poll(cx));
        let due = self.sleep.0.due;
        let now = clock::now_nanos();
        let regular = due.saturating_add(self.period);
        self.sleep.0.due = match self.missed {
            _ if regular > now => regular,
            MissedTicks::Burst => regular,
            MissedTicks::Delay => now.saturating_add(self.period),
            MissedTicks::Skip => now.saturating_add(self.period - (now - due) % self.period),
        };
        Poll::Ready(clock::at(due).unwrap_or_else(clock::now))
    }

    /// The next tick is a whole period from now.
    pub fn reset(&mut self) {
        self.sleep.0.reset(clock::now_nanos().saturating_add(self.period));
    }
}

/// The time was over before the future was done, which has been dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the time is over")]
pub struct Elapsed;

impl From<Elapsed> for std::io::Error {
    fn from(_: Elapsed) -> Self {
        std::io::ErrorKind::TimedOut.into()
    }
}

/// Gives a future so much time. One that is ready at once is let through even if there is none.
///
/// # Errors
/// [`Elapsed`]; the future has been dropped.
///
/// # Panics
/// As [`Sleep`].
pub fn timeout<F: Future>(limit: Duration, future: F) -> impl Future<Output = Result<F::Output, Elapsed>> {
    within(sleep(limit), future)
}

/// Gives a future till that moment.
///
/// # Errors
/// As [`timeout`].
///
/// # Panics
/// As [`Sleep`].
pub fn timeout_at<F: Future>(
    deadline: Instant,
    future: F,
) -> impl Future<Output = Result<F::Output, Elapsed>> {
    within(sleep_until(deadline), future)
}

async fn within<F: Future>(mut sleep: Sleep, future: F) -> Result<F::Output, Elapsed> {
    let mut future = std::pin::pin!(future);
    poll_fn(|cx| {
        if let Poll::Ready(result) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(result));
        }
        // The future may have used up the budget and woken the task: the time counts all the same.
        if sleep.is_elapsed() {
            return Poll::Ready(Err(Elapsed));
        }
        Pin::new(&mut sleep).poll(cx).map(|()| Err(Elapsed))
    })
    .await
}
