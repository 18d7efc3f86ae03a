//! Channels between tasks: many senders, many receivers, each value to one of them.
//!
//! A queue behind a short lock, and two lists of who waits. Whoever changes the queue wakes one of the other
//! side, outside of the lock, and takes it out of its list; a future that was woken so and is dropped before
//! it looked passes the word on, so no wake is lost to a time-out or an abort. Each operation that succeeds
//! charges the cooperative budget ([`crate::task::coop`]).
//!
//! Values come in the order in which they were sent. A full channel lets its senders in, in the order in which
//! they came: room is kept for a sender that was woken till it is polled or dropped, so a `send` that is
//! neither holds up those behind it. A value is kept for nobody: a receiver that finds that another was quicker
//! stands where it stood before.
//!
//! ```
//! use evener_scheduler::{Scheduler, channel, task};
//!
//! let scheduler = Scheduler::new()?;
//! scheduler.block_on(async {
//!     let (sender, receiver) = channel::bounded(2);
//!     task::spawn(async move {
//!         for n in 0..5 {
//!             sender.send(n).await.unwrap();
//!         }
//!     })
//!     .detach();
//!     let mut got = Vec::new();
//!     while let Ok(n) = receiver.recv().await {
//!         got.push(n);
//!     }
//!     assert_eq!(got, [0, 1, 2, 3, 4]);
//! });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::process::contain;
use crate::sync::Mutex;
use crate::task::{coop, waker};

/// All receivers are gone; the value comes back.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the channel is closed")]
pub struct Closed<T>(pub T);

impl<T> fmt::Debug for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed(..)")
    }
}

/// Why a value was not sent at once; it comes back.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TrySendError<T> {
    /// There is no room now.
    #[error("the channel is full")]
    Full(T),
    /// All receivers are gone.
    #[error("the channel is closed")]
    Closed(T),
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "Full(..)",
            TrySendError::Closed(_) => "Closed(..)",
        })
    }
}

/// All senders are gone, and everything that was sent has been received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the channel is closed and empty")]
pub struct Ended;

/// Why there is no value at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TryRecvError {
    /// There is none now.
    #[error("the channel is empty")]
    Empty,
    /// All senders are gone.
    #[error("the channel is closed and empty")]
    Ended,
}

/// Who waits on one side, first come first served: in the order of their numbers.
#[derive(Default)]
struct Waiters {
    list: VecDeque<(u64, Waker)>,
    last: u64,
}

/// Where a future stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It has not waited yet.
    New,
    /// In the list.
    Waits,
    /// It was in the list, and has been woken.
    Woken,
}

impl Waiters {
    #[inline]
    fn find(&self, number: u64) -> Result<usize, usize> {
        // Who has been woken was at the front.
        if self.list.front().is_none_or(|(front, _)| number < *front) {
            return Err(0);
        }
        self.list.binary_search_by_key(&number, |(number, _)| *number)
    }

    fn standing(&self, number: u64) -> Standing {
        match number {
            0 => Standing::New,
            _ if self.find(number).is_ok() => Standing::Waits,
            _ => Standing::Woken,
        }
    }

    /// Puts a waiter at the end, or where it stood, or renews its waker; gives the old one, to be dropped
    /// outside of the lock. `Err`: that takes a clone of the waker, to be made outside of the lock, for another
    /// runtime's clone is its code. (That of a process's waker copies a word.)
    fn wait(
        &mut self,
        number: &mut u64,
        waker: &Waker,
        clone: &mut Option<Waker>,
    ) -> Result<Option<Waker>, ()> {
        let place = if *number == 0 { Err(self.list.len()) } else { self.find(*number) };
        if place.is_ok_and(|place| self.list[place].1.will_wake(waker)) {
            return Ok(None);
        }
        let clone = match clone.take() {
            Some(clone) => clone,
            None if waker::is_of_a_process(waker) => waker.clone(),
            None => return Err(()),
        };
        match place {
            Ok(place) => return Ok(Some(std::mem::replace(&mut self.list[place].1, clone))),
            Err(_) if *number == 0 => {
                self.last += 1;
                *number = self.last;
                self.list.push_back((self.last, clone));
            }
            Err(place) => self.list.insert(place, (*number, clone)),
        }
        Ok(None)
    }

    fn pop(&mut self) -> Option<Waker> {
        self.list.pop_front().map(|(_, waker)| waker)
    }

    /// Takes a waiter out, if it is in the list.
    fn leave(&mut self, number: u64) -> Option<Waker> {
        self.list.remove(self.find(number).ok()?).map(|(_, waker)| waker)
    }
}

struct State<T> {
    queue: VecDeque<T>,
    /// Who waits for a value, and who waits for room.
    receiving: Waiters,
    sending: Waiters,
    /// Room that is kept for senders that were woken.
    granted: usize,
    senders: usize,
    receivers: usize,
}

impl<T> State<T> {
    /// Is there room for one who has not waited?
    fn has_room(&self, capacity: usize) -> bool {
        self.sending.list.is_empty() && self.queue.len() + self.granted < capacity
    }

    /// Room has become free: it is kept for the sender that waits longest, who is to be woken.
    fn grant(&mut self) -> Option<Waker> {
        let next = self.sending.pop();
        self.granted += usize::from(next.is_some());
        next
    }
}

struct Shared<T> {
    state: Mutex<State<T>>,
    capacity: usize,
}

impl<T> Shared<T> {
    /// Tries, with the number of the future, or waits in the list of that side till trying makes sense.
    #[inline(always)]
    fn poll<R>(
        &self,
        cx: &mut Context<'_>,
        number: &mut u64,
        side: impl Fn(&mut State<T>) -> &mut Waiters,
        mut attempt: impl FnMut(&mut State<T>, u64) -> Option<R>,
    ) -> Poll<R> {
        std::task::ready!(coop::poll_proceed(cx));
        let mut clone = None;
        loop {
            let mut state = self.state.lock();
            if let Some(result) = attempt(&mut state, *number) {
                // Still in the list if it came back by itself.
                let left = if *number == 0 { None } else { side(&mut state).leave(*number) };
                drop(state);
                drop(left);
                *number = 0;
                return Poll::Ready(result);
            }
            let waits = side(&mut state).wait(number, cx.waker(), &mut clone);
            drop(state);
            if waits.is_ok() {
                coop::refund();
                return Poll::Pending;
            }
            clone = Some(cx.waker().clone());
        }
    }
}

/// Wakes outside of the lock; another runtime's waker may panic.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        let _ = contain(|| waker.wake());
    }
}

fn wake_all(wakers: Waiters) {
    for (_, waker) in wakers.list {
        wake(Some(waker));
    }
}

/// The sending side. Clones send into the same channel; the last one to go ends it.
pub struct Sender<T>(Arc<Shared<T>>);

/// The receiving side. Clones share the values; the last one to go closes it.
pub struct Receiver<T>(Arc<Shared<T>>);

fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let state = State {
        queue: VecDeque::new(),
        receiving: Waiters::default(),
        sending: Waiters::default(),
        granted: 0,
        senders: 1,
        receivers: 1,
    };
    let shared = Arc::new(Shared { state: Mutex::new(state), capacity });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

/// A channel that holds at most `capacity` values: who sends more waits.
///
/// # Panics
/// With a capacity of zero.
#[track_caller]
#[must_use]
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a channel must hold at least one value");
    channel(capacity)
}

/// A channel that holds whatever is sent: it grows with a receiver that is too slow.
#[must_use]
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    channel(usize::MAX)
}

impl<T> Sender<T> {
    /// Sends when there is room. Dropped while it waits, it has sent nothing.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn send(&self, value: T) -> Sending<'_, T> {
        Sending { channel: self, value: Some(value), number: 0 }
    }

    /// Sends at once or not at all; from any thread. It does not overtake senders that wait.
    ///
    /// # Errors
    /// [`TrySendError`].
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let waker = {
            let mut state = self.0.state.lock();
            if state.receivers == 0 {
                return Err(TrySendError::Closed(value));
            }
            if !state.has_room(self.0.capacity) {
                return Err(TrySendError::Full(value));
            }
            state.queue.push_back(value);
            state.receiving.pop()
        };
        wake(waker);
        Ok(())
    }

    /// Values that wait to be received.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.state.lock().queue.len()
    }

    /// Does none wait?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Have all receivers gone?
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.state.lock().receivers == 0
    }
}

impl<T> Receiver<T> {
    /// The next value. Dropped while it waits, it has taken nothing.
    ///
    /// # Errors
    /// [`Ended`].
    pub fn recv(&self) -> Receiving<'_, T> {
        Receiving { channel: self, number: 0 }
    }

    /// The next value, if one is there; from any thread.
    ///
    /// # Errors
    /// [`TryRecvError`].
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let (value, waker) = {
            let mut state = self.0.state.lock();
            match state.queue.pop_front() {
                Some(value) => (value, state.grant()),
                None if state.senders == 0 => return Err(TryRecvError::Ended),
                None => return Err(TryRecvError::Empty),
            }
        };
        wake(waker);
        Ok(value)
    }

    /// Values that wait to be received.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.state.lock().queue.len()
    }

    /// Does none wait?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().receivers += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.0.state.lock();
            state.senders -= 1;
            if state.senders != 0 {
                return;
            }
            std::mem::take(&mut state.receiving)
        };
        wake_all(waiting);
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let (waiting, left) = {
            let mut state = self.0.state.lock();
            state.receivers -= 1;
            if state.receivers != 0 {
                return;
            }
            (std::mem::take(&mut state.sending), std::mem::take(&mut state.queue))
        };
        wake_all(waiting);
        // Values that nobody will receive: their drop is the user's code, outside of the lock.
        drop(left);
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({} waiting)", self.len())
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({} waiting)", self.len())
    }
}

/// A value on its way; made by [`Sender::send`].
#[must_use = "futures do nothing unless polled"]
pub struct Sending<'a, T> {
    channel: &'a Sender<T>,
    value: Option<T>,
    /// Its place among those who wait, 0 if it never waited.
    number: u64,
}

impl<T> Unpin for Sending<'_, T> {}

impl<T> fmt::Debug for Sending<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sending")
    }
}

impl<T> Future for Sending<'_, T> {
    type Output = Result<(), Closed<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { channel, value, number } = &mut *self;
        let shared = &*channel.0;
        let mut take = || value.take().expect("polled after its end");
        let sent = shared.poll(
            cx,
            number,
            |state| &mut state.sending,
            |state, number| {
                if state.receivers == 0 {
                    return Some(Err(Closed(take())));
                }
                match state.sending.standing(number) {
                    Standing::New if state.has_room(shared.capacity) => {}
                    Standing::Woken => state.granted -= 1,
                    Standing::New | Standing::Waits => return None,
                }
                state.queue.push_back(take());
                Some(Ok(state.receiving.pop()))
            },
        );
        sent.map_ok(wake)
    }
}

impl<T> Drop for Sending<'_, T> {
    fn drop(&mut self) {
        if self.number == 0 {
            return;
        }
        let (left, next) = {
            let mut state = self.channel.0.state.lock();
            match state.sending.leave(self.number) {
                Some(left) => (Some(left), None),
                // Woken by the end of the channel.
                None if state.receivers == 0 => (None, None),
                // Woken for room that it does not use: that goes to the next.
                None => {
                    state.granted -= 1;
                    (None, state.grant())
                }
            }
        };
        drop(left);
        wake(next);
    }
}

/// A value to come; made by [`Receiver::recv`].
#[must_use = "futures do nothing unless polled"]
pub struct Receiving<'a, T> {
    channel: &'a Receiver<T>,
    /// As in [`Sending`].
    number: u64,
}

impl<T> fmt::Debug for Receiving<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiving")
    }
}

impl<T> Future for Receiving<'_, T> {
    type Output = Result<T, Ended>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { channel, number } = &mut *self;
        let received = channel.0.poll(
            cx,
            number,
            |state| &mut state.receiving,
            |state, _| match state.queue.pop_front() {
                Some(value) => Some(Ok((value, state.grant()))),
                None if state.senders == 0 => Some(Err(Ended)),
                None => None,
            },
        );
        received.map_ok(|(value, sender)| {
            wake(sender);
            value
        })
    }
}

impl<T> Drop for Receiving<'_, T> {
    fn drop(&mut self) {
        if self.number == 0 {
            return;
        }
        let (left, next) = {
            let mut state = self.channel.0.state.lock();
            match state.receiving.leave(self.number) {
                Some(left) => (Some(left), None),
                // Woken for a value that it does not take: another may.
                None if !state.queue.is_empty() => (None, state.receiving.pop()),
                None => (None, None),
            }
        };
        drop(left);
        wake(next);
    }
}
