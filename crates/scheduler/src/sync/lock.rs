//! `std`'s lock and condition variable, never poisoned, and such that ThreadSanitizer sees their order.
//!
//! The prebuilt `std` is not instrumented: the sanitizer does not see what a contended lock orders and
//! reports races that are none. Under `cfg(tsan)` each lock has a shadow word, read with Acquire after
//! locking and written with Release before unlocking; elsewhere there is nothing of it.

use std::ops::{Deref, DerefMut};
use std::sync::TryLockError;
#[cfg(tsan)]
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A lock that a panic does not poison: what it guards is kept whole by its users.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T> {
    lock: std::sync::Mutex<T>,
    #[cfg(tsan)]
    shadow: AtomicU32,
}

/// The right to what a [`Mutex`] guards, till it is dropped.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    /// `None` only while a wait has it.
    guard: Option<std::sync::MutexGuard<'a, T>>,
    #[cfg(tsan)]
    shadow: &'a AtomicU32,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            lock: std::sync::Mutex::new(value),
            #[cfg(tsan)]
            shadow: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.guard(self.lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// The lock, if it is free.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.lock.try_lock() {
            Ok(guard) => Some(self.guard(guard)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.guard(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[inline]
    fn guard<'a>(&'a self, guard: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        #[cfg(tsan)]
        self.shadow.load(Ordering::Acquire);
        MutexGuard {
            guard: Some(guard),
            #[cfg(tsan)]
            shadow: &self.shadow,
        }
    }
}

impl<'a, T> MutexGuard<'a, T> {
    /// Gives the lock to a wait and takes it back after.
    fn lend(
        mut self,
        wait: impl FnOnce(std::sync::MutexGuard<'a, T>) -> std::sync::MutexGuard<'a, T>,
    ) -> Self {
        #[cfg(tsan)]
        self.shadow.store(1, Ordering::Release);
        self.guard = self.guard.take().map(wait);
        #[cfg(tsan)]
        self.shadow.load(Ordering::Acquire);
        self
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.guard.as_ref().expect("a guard has its lock but within a wait")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("a guard has its lock but within a wait")
    }
}

#[cfg(tsan)]
impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.shadow.store(1, Ordering::Release);
    }
}

/// Waits beside a [`Mutex`].
#[derive(Debug, Default)]
pub(crate) struct Condvar(std::sync::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        guard.lend(|guard| self.0.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// As [`Self::wait`], at most for `limit`; it may come back early for no reason.
    pub(crate) fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
        guard.lend(|guard| {
            self.0.wait_timeout(guard, limit).unwrap_or_else(|poisoned| poisoned.into_inner()).0
        })
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}
