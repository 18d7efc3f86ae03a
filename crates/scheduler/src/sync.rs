//! The only door to atomics, cells, locks and threads: `std` in the program, loom in the models.
//!
//! Statics cannot hold loom's types (they live for one execution of a model), so what is shared by
//! the whole program and is not itself under proof takes [`fixed`].

#[cfg_attr(loom, allow(dead_code, reason = "the models have loom's"))]
mod lock;

#[cfg(not(loom))]
mod imp {
    pub(crate) use atomic_waker::AtomicWaker;
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
    pub(crate) use std::thread;

    /// A cell whose accesses the models check; here a plain `UnsafeCell`.
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct Cell<T>(std::cell::UnsafeCell<T>);

    impl<T> Cell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Reads through a shared pointer. The caller answers for the absence of a writer.
        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// Writes through an exclusive pointer. The caller answers for being alone.
        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }

    pub(crate) use super::lock::{Condvar, Mutex, MutexGuard};

    /// Leaves a waker in its place.
    #[inline]
    pub(crate) fn register(place: &AtomicWaker, waker: &std::task::Waker) {
        place.register(waker);
    }

    /// A full fence. ThreadSanitizer does not know fences; there it is a read-modify-write on one
    /// word that everybody shares, which orders at least as much.
    #[inline(always)]
    pub(crate) fn fence(order: std::sync::atomic::Ordering) {
        #[cfg(tsan)]
        {
            static SHARED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
            let _ = order;
            SHARED.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
        #[cfg(not(tsan))]
        std::sync::atomic::fence(order);
    }
}

#[cfg(loom)]
mod imp {
    use std::sync::atomic::Ordering;

    pub(crate) use loom::future::AtomicWaker;
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::fence;
    pub(crate) use loom::thread;

    pub(crate) fn register(place: &AtomicWaker, waker: &std::task::Waker) {
        place.register_by_ref(waker);
    }

    thread_local! {
        static LOADS_CONFLICT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }

    /// Runs `act` with loads that loom takes for read-modify-writes, if `on`. A model's threads are
    /// coroutines of the thread that runs it, so the setting is that model's own.
    ///
    /// Of the loads of an atomic, loom remembers the last one only, and forgets it at the next store: a
    /// thread that loads before its CAS hides, by its own load, another thread's earlier load from that
    /// CAS, and the other order is never tried (tokio-rs/loom issues 166 and 392). Read-modify-writes
    /// conflict with each other, so each conflicts with the last one and no order is missed. But they
    /// read the newest value only: what a stale value does, the other setting shows.
    #[cfg(test)]
    pub(crate) fn with_conflicting_loads<R>(on: bool, act: impl FnOnce() -> R) -> R {
        struct Reset(bool);
        impl Drop for Reset {
            fn drop(&mut self) {
                LOADS_CONFLICT.set(self.0);
            }
        }
        let _reset = Reset(LOADS_CONFLICT.replace(on));
        act()
    }

    /// loom's atomics, with the loads described above. Such a load is a CAS that fails: it writes nothing,
    /// and orders what the load would order. Where the value is the one it asks for (always possible for
    /// a `bool`), it writes what stands there.
    macro_rules! atomics {
        ($($name:ident$(<$of:ident>)?: $value:ty, unlikely $unlikely:expr;)*) => {$(
            #[derive(Debug)]
            pub(crate) struct $name$(<$of>)?(loom::sync::atomic::$name$(<$of>)?);

            impl$(<$of>)? $name$(<$of>)? {
                #[track_caller]
                pub(crate) fn new(value: $value) -> Self {
                    Self(loom::sync::atomic::$name::new(value))
                }
                #[track_caller]
                pub(crate) fn load(&self, order: Ordering) -> $value {
                    if LOADS_CONFLICT.get() {
                        let unlikely = $unlikely;
                        return match self.0.compare_exchange(unlikely, unlikely, order, order) {
                            Ok(value) | Err(value) => value,
                        };
                    }
                    self.0.load(order)
                }
                #[track_caller]
                pub(crate) fn store(&self, value: $value, order: Ordering) {
                    self.0.store(value, order);
                }
                #[track_caller]
                pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                    self.0.swap(value, order)
                }
                #[track_caller]
                pub(crate) fn compare_exchange(
                    &self,
                    old: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.0.compare_exchange(old, new, success, failure)
                }
                /// Never fails for no reason.
                #[track_caller]
                pub(crate) fn compare_exchange_weak(
                    &self,
                    old: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.0.compare_exchange_weak(old, new, success, failure)
                }
            }
        )*};
    }

    macro_rules! counters {
        ($($name:ident: $value:ty;)*) => {$(
            impl $name {
                #[track_caller]
                pub(crate) fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                    self.0.fetch_add(value, order)
                }
                #[track_caller]
                pub(crate) fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                    self.0.fetch_sub(value, order)
                }
                #[track_caller]
                pub(crate) fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                    self.0.fetch_or(value, order)
                }
                #[track_caller]
                pub(crate) fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                    self.0.fetch_and(value, order)
                }
            }
        )*};
    }

    atomics! {
        AtomicBool: bool, unlikely false;
        AtomicU16: u16, unlikely 0xDEAD;
        AtomicU32: u32, unlikely 0xDEAD_BEEF;
        AtomicU64: u64, unlikely 0xDEAD_BEEF_DEAD_BEEF;
        AtomicUsize: usize, unlikely 0xDEAD_BEEF;
        AtomicPtr<T>: *mut T, unlikely std::ptr::without_provenance_mut(0xDEAD_BEEF);
    }

    counters! {
        AtomicU16: u16;
        AtomicU32: u32;
        AtomicU64: u64;
        AtomicUsize: usize;
    }

    #[derive(Debug)]
    pub(crate) struct Cell<T>(loom::cell::UnsafeCell<T>);

    impl<T> Cell<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::cell::UnsafeCell::new(value))
        }
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            self.0.with(f)
        }
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            self.0.with_mut(f)
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    pub(crate) type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
        }
        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }
        pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner())
        }
        /// Loom has no clock: a wait with a limit ends only by a notification, so that a lost one shows.
        pub(crate) fn wait_timeout<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            _limit: std::time::Duration,
        ) -> MutexGuard<'a, T> {
            self.wait(guard)
        }
        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }
        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

pub(crate) use imp::*;
pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Atomics and locks for statics: always `std`'s. Nothing under proof may use them.
pub(crate) mod fixed {
    pub(crate) use super::lock::{Mutex, MutexGuard};
    #[cfg(debug_assertions)]
    pub(crate) use std::sync::atomic::AtomicU32;
    pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64};
}
