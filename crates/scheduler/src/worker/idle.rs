//! Who sleeps, who searches, who is to be woken.
//!
//! # The word
//!
//! `parked << 32 | workers << 16 | searching`, three counts. Which workers are parked stands in a list
//! behind a short lock; the counts are changed under the same lock when a worker parks or is woken, and
//! without it when a worker starts or stops to search, and when a spare joins or leaves.
//!
//! # No work waits alone
//!
//! *Who makes work visible* pushes, passes a full fence, and looks at the word: it wakes a worker if
//! nobody searches and somebody is parked. *Who parks* enters the list and leaves the searchers, passes a
//! full fence, and looks at every queue once more; if it finds something it takes itself out of the list
//! again, or finds that it has been woken meanwhile. Of the two fences one comes first: either the
//! pusher sees the worker parked, or the worker sees the push.
//!
//! *Somebody searches, so nobody is woken:* the searcher either finds that work, or parks and then looks
//! at every queue as above. When it finds other work and was the last searcher it wakes another worker if
//! anything is still visible ([`Idle::stop_searching`] says that it was the last).
//!
//! A woken worker is counted as searching by its waker, so that of a burst of pushes one wakes. Who leaves
//! the list by itself counts itself as searching: of several pushes during its search it takes one, and
//! the others are owed a look and a wake when it stops.
//!
//! Local pushes of a running worker skip the fence (`hint`): that worker looks again at its next pick,
//! and if it does not come to one, the monitor does ([`crate::worker::watch`]).
//!
//! Model: `model::idle::no_work_waits_alone`, with `model::idle::without_the_second_look_work_is_lost`
//! as negative control.

use std::time::Duration;

use crate::sync::{AcqRel, Acquire, AtomicU32, AtomicU64, Condvar, Mutex, Relaxed, SeqCst, fence};

const SEARCHING: u64 = 1;
const WORKERS: u64 = 1 << 16;
const PARKED: u64 = 1 << 32;
const COUNT: u64 = 0xffff;

/// One host's idle workers.
pub(crate) struct Idle {
    counts: AtomicU64,
    sleepers: Mutex<Vec<u16>>,
}

/// How a stay on the list of sleepers ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// By itself: nobody had chosen it.
    ByItself,
    /// It had been chosen by a waker, whose token is on its way.
    Woken,
}

impl Idle {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            counts: AtomicU64::new(WORKERS * workers as u64),
            sleepers: Mutex::new(Vec::with_capacity(workers)),
        }
    }

    /// Would [`Self::choose`] find somebody? Cheap, and may be out of date.
    #[inline(always)]
    pub(crate) fn hint(&self) -> bool {
        let counts = self.counts.load(Relaxed);
        counts >= PARKED && counts & COUNT == 0
    }

    /// Who is to be woken for work that the caller has just made visible: `prefer` if it is parked, else
    /// whoever parked last. The caller must [`Parker::unpark`] it.
    pub(crate) fn choose(&self, prefer: Option<u16>) -> Option<u16> {
        // Pairs with the fence in `enter`; see the module's words. Model: model::idle::no_work_waits_alone.
        fence(SeqCst);
        if !self.hint() {
            return None;
        }
        self.choose_now(prefer)
    }

    #[cold]
    fn choose_now(&self, prefer: Option<u16>) -> Option<u16> {
        let mut sleepers = self.sleepers.lock();
        // Acquire: pairs with the AcqRel of those who change the counts; nobody chosen twice.
        if self.counts.load(Acquire) & COUNT != 0 {
            return None;
        }
        let place = prefer.and_then(|prefer| sleepers.iter().position(|&sleeper| sleeper == prefer));
        let chosen = match place {
            Some(place) => sleepers.swap_remove(place),
            None => sleepers.pop()?,
        };
        self.counts.fetch_add(SEARCHING.wrapping_sub(PARKED), AcqRel);
        Some(chosen)
    }

    /// Takes this worker out of the list, as searching, if it is in it.
    pub(crate) fn choose_exactly(&self, worker: u16) -> bool {
        let mut sleepers = self.sleepers.lock();
        let Some(place) = sleepers.iter().position(|&sleeper| sleeper == worker) else {
            return false;
        };
        sleepers.swap_remove(place);
        self.counts.fetch_add(SEARCHING.wrapping_sub(PARKED), AcqRel);
        true
    }

    /// As [`Self::choose`], though somebody searches: the monitor's way.
    pub(crate) fn choose_any(&self) -> Option<u16> {
        let mut sleepers = self.sleepers.lock();
        let chosen = sleepers.pop()?;
        self.counts.fetch_add(SEARCHING.wrapping_sub(PARKED), AcqRel);
        Some(chosen)
    }

    /// Takes everybody out of the list, as searching; for shutdown.
    pub(crate) fn choose_all(&self) -> Vec<u16> {
        let mut sleepers = self.sleepers.lock();
        let all: Vec<u16> = sleepers.drain(..).collect();
        self.counts.fetch_add((SEARCHING.wrapping_sub(PARKED)).wrapping_mul(all.len() as u64), AcqRel);
        all
    }

    /// A spare stands in from now on; it counts as searching.
    pub(crate) fn join(&self) {
        self.counts.fetch_add(WORKERS + SEARCHING, AcqRel);
    }

    /// A spare that is up, and does not search, stands in no more.
    pub(crate) fn resign(&self) {
        let before = self.counts.fetch_sub(WORKERS, AcqRel);
        debug_assert!(before >> 16 & COUNT > before >> 32, "a spare left that was not up");
    }

    /// May one more worker search? At most half of them do at a time, and always one.
    pub(crate) fn start_searching(&self) -> bool {
        let counts = self.counts.load(Relaxed);
        // A guess is enough for the bound on searchers: two who pass at once make one too many.
        if 2 * (counts & COUNT) >= (counts >> 16 & COUNT).max(2) {
            return false;
        }
        self.counts.fetch_add(SEARCHING, AcqRel);
        true
    }

    /// Found something. `true`: that was the last searcher, who wakes another if there is more work.
    pub(crate) fn stop_searching(&self) -> bool {
        let before = self.counts.fetch_sub(SEARCHING, AcqRel);
        debug_assert!(before & COUNT > 0, "a worker that does not search stopped searching");
        let was_last = before & COUNT == 1;
        if was_last {
            // Pairs with the fence in `choose`: either the pusher sees that nobody searches any more, or the
            // look that follows sees the push. Model: model::idle::the_last_searcher_wakes_another.
            fence(SeqCst);
        }
        was_last
    }

    #[cfg(loom)]
    pub(crate) fn enter(&self, worker: u16, searching: bool) {
        self.enter_at(worker, searching, false);
    }

    /// Enters the list of sleepers. The caller looks at every queue once more before it parks. `last`: to be
    /// woken after all others, for it will sleep in the poller.
    pub(crate) fn enter_at(&self, worker: u16, searching: bool, last: bool) {
        {
            let mut sleepers = self.sleepers.lock();
            debug_assert!(!sleepers.contains(&worker));
            let place = if last { 0 } else { sleepers.len() };
            sleepers.insert(place, worker);
            let left = if searching { SEARCHING } else { 0 };
            self.counts.fetch_add(PARKED.wrapping_sub(left), AcqRel);
        }
        // Pairs with the fence in `choose`; see the module's words.
        fence(SeqCst);
    }

    /// Leaves the list, if still in it; counts as searching either way.
    pub(crate) fn leave(&self, worker: u16) -> Left {
        let left = {
            let mut sleepers = self.sleepers.lock();
            match sleepers.iter().position(|&sleeper| sleeper == worker) {
                Some(place) => {
                    sleepers.swap_remove(place);
                    self.counts.fetch_add(SEARCHING.wrapping_sub(PARKED), AcqRel);
                    Left::ByItself
                }
                None => Left::Woken,
            }
        };
        self.is_up();
        left
    }

    /// A worker is up again: to be called, unless it left the list itself, before it looks whether the
    /// monitor sleeps.
    pub(crate) fn is_up(&self) {
        // Pairs with the fence in `Watch::sleep`; see the words of `crate::worker::watch`.
        // Model: model::watch::no_step_is_left_unwatched.
        fence(SeqCst);
    }

    /// Parked and searching workers now, for statistics; reads only.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let counts = self.counts.load(Relaxed);
        ((counts >> 32) as usize, (counts & COUNT) as usize)
    }

    /// Which workers are parked now, for the monitor, as far as it has a place for them.
    pub(crate) fn note_parked(&self, parked: &mut [bool]) {
        parked.fill(false);
        for &sleeper in self.sleepers.lock().iter() {
            if let Some(parked) = parked.get_mut(sleeper as usize) {
                *parked = true;
            }
        }
    }

    /// Is every worker parked? Reads only.
    pub(crate) fn all_parked(&self) -> bool {
        let counts = self.counts.load(Acquire);
        counts >> 32 == counts >> 16 & COUNT
    }
}

const EMPTY: u32 = 0;
const NOTIFIED: u32 = 1;
const ASLEEP: u32 = 2;
const ELSEWHERE: u32 = 3;

/// What wakes a thread that sleeps elsewhere than in its [`Parker`].
pub(crate) trait Bell {
    /// Ends the sleep, also one that is only about to begin.
    fn ring(&self);
}

/// For who sleeps nowhere else.
impl Bell for () {
    fn ring(&self) {}
}

/// A place to sleep for one thread, with one token: an unpark before the park is not lost.
///
/// The thread may also sleep elsewhere ([`Self::park_elsewhere`]) and be woken by a bell. The same word
/// says so: who leaves a token learns from it where the sleeper is, and of many who do one rings.
///
/// Model: `model::poller::who_sleeps_elsewhere_is_woken`, with
/// `model::poller::without_a_look_at_the_word_a_token_is_slept_over` as negative control.
pub(crate) struct Parker<B = ()> {
    state: AtomicU32,
    lock: Mutex<()>,
    condvar: Condvar,
    bell: B,
}

impl Parker {
    pub(crate) fn new() -> Self {
        Self::with_bell(())
    }
}

impl<B: Bell> Parker<B> {
    pub(crate) fn with_bell(bell: B) -> Self {
        Self { state: AtomicU32::new(EMPTY), lock: Mutex::new(()), condvar: Condvar::new(), bell }
    }

    /// Sleeps in `wait`, which ends by itself or by the bell. `true`: there was a token.
    pub(crate) fn park_elsewhere(&self, wait: impl FnOnce()) -> bool {
        // On failure there is a token already: nobody would ring for it.
        // Acquire: pairs with the swap in `unpark`, here and below.
        if self.state.compare_exchange(EMPTY, ELSEWHERE, AcqRel, Acquire).is_ok() {
            wait();
        }
        self.state.swap(EMPTY, AcqRel) == NOTIFIED
    }

    /// As [`Self::park_elsewhere`], as if there could be no token before: the models' negative control.
    #[cfg(all(test, loom))]
    pub(crate) fn park_elsewhere_blindly(&self, wait: impl FnOnce()) -> bool {
        self.state.swap(ELSEWHERE, AcqRel);
        wait();
        self.state.swap(EMPTY, AcqRel) == NOTIFIED
    }

    /// Is there a token that the sleeper has not taken?
    pub(crate) fn has_token(&self) -> bool {
        self.state.load(Relaxed) == NOTIFIED
    }

    /// Sleeps till somebody unparks it, or at most for `limit`. `true`: there was a token.
    pub(crate) fn park(&self, limit: Option<Duration>) -> bool {
        // Acquire: pairs with the swap in `unpark`; what the waker did before is seen.
        if self.state.compare_exchange(NOTIFIED, EMPTY, Acquire, Relaxed).is_ok() {
            return true;
        }
        if limit.is_some_and(|limit| limit.is_zero()) {
            return false;
        }
        let mut guard = self.lock.lock();
        if self.state.compare_exchange(EMPTY, ASLEEP, AcqRel, Acquire).is_err() {
            // Notified since: the only other value now, for one thread alone parks here.
            return self.state.swap(EMPTY, AcqRel) == NOTIFIED;
        }
        match limit {
            Some(limit) => {
                guard = self.condvar.wait_timeout(guard, limit);
                drop(guard);
                self.state.swap(EMPTY, AcqRel) == NOTIFIED
            }
            None => loop {
                guard = self.condvar.wait(guard);
                if self.state.compare_exchange(NOTIFIED, EMPTY, AcqRel, Acquire).is_ok() {
                    return true;
                }
            },
        }
    }

    /// Leaves a token and wakes the sleeper.
    pub(crate) fn unpark(&self) {
        // AcqRel: Release pairs with the Acquire in `park`.
        match self.state.swap(NOTIFIED, AcqRel) {
            ASLEEP => {
                // The sleeper holds the lock from its ASLEEP till it waits: taking it once means that it
                // waits by now, so the notification is not lost.
                drop(self.lock.lock());
                self.condvar.notify_one();
            }
            // It may have woken by itself meanwhile: then the ring ends some other sleep, for nothing.
            ELSEWHERE => self.bell.ring(),
            _ => {}
        }
    }
}
