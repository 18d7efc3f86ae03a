//! Values that belong to a task, as thread-locals belong to a thread.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;

/// Declares task-locals: `task_local! { static USER: String; }`. A future sees the value within
/// [`LocalKey::scope`].
///
/// ```
/// evener_scheduler::task_local! { static USER: &'static str; }
///
/// let scheduler = evener_scheduler::Scheduler::new()?;
/// let greeting = scheduler.block_on(USER.scope("Ada", async {
///     evener_scheduler::task::yield_now().await;
///     USER.with(|user| format!("Hello, {user}"))
/// }));
/// assert_eq!(greeting, "Hello, Ada");
/// assert_eq!(USER.try_with(|user| *user), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[macro_export]
macro_rules! task_local {
    ($($(#[$attribute:meta])* $visible:vis static $name:ident: $type:ty;)*) => {$(
        $(#[$attribute])*
        $visible static $name: $crate::task::LocalKey<$type> = {
            ::std::thread_local! {
                static PLACE: ::std::cell::RefCell<::std::option::Option<$type>> =
                    const { ::std::cell::RefCell::new(::std::option::Option::None) };
            }
            $crate::task::LocalKey::__new(&PLACE)
        };
    )*};
}

/// A task-local; made by [`crate::task_local!`].
pub struct LocalKey<T: 'static>(&'static thread::LocalKey<RefCell<Option<T>>>);

impl<T> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalKey")
    }
}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    #[must_use]
    pub const fn __new(place: &'static thread::LocalKey<RefCell<Option<T>>>) -> Self {
        Self(place)
    }

    /// A future within which the key has this value, on whatever worker it is polled. Scopes nest.
    pub fn scope<F: Future>(&'static self, value: T, future: F) -> Scoped<T, F> {
        Scoped { key: self, value: Some(value), future: Some(future) }
    }

    /// Calls `act` with the value, if there is one.
    pub fn try_with<R>(&'static self, act: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.with(|place| place.borrow().as_ref().map(act))
    }

    /// Calls `act` with the value.
    ///
    /// # Panics
    /// Outside of every scope of this key.
    #[track_caller]
    pub fn with<R>(&'static self, act: impl FnOnce(&T) -> R) -> R {
        self.try_with(act).expect("this task-local has no value here: poll the future within `scope`")
    }
}

/// A future with a value for a task-local; made by [`LocalKey::scope`].
pub struct Scoped<T: 'static, F> {
    key: &'static LocalKey<T>,
    value: Option<T>,
    /// Taken by the drop, so that the future's own drop sees the value.
    future: Option<F>,
}

impl<T, F> fmt::Debug for Scoped<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scoped")
    }
}

/// Changes the thread's value for that of the scope, and back when dropped.
struct Changed<'a, T: 'static> {
    key: &'static LocalKey<T>,
    value: &'a mut Option<T>,
}

impl<'a, T> Changed<'a, T> {
    fn new(key: &'static LocalKey<T>, value: &'a mut Option<T>) -> Self {
        // Before there is anything to be changed back: within `with` of the same key this panics, once.
        key.0.with(|place| std::mem::swap(&mut *place.borrow_mut(), value));
        Self { key, value }
    }

    /// For a drop, which must not panic: `None` where the key is borrowed, or the thread is ending.
    fn try_new(key: &'static LocalKey<T>, value: &'a mut Option<T>) -> Option<Self> {
        let swapped = key.0.try_with(|place| {
            place.try_borrow_mut().map(|mut place| std::mem::swap(&mut *place, value)).is_ok()
        });
        swapped.unwrap_or(false).then(|| Self { key, value })
    }
}

impl<T> Drop for Changed<'_, T> {
    fn drop(&mut self) {
        self.key.0.with(|place| std::mem::swap(&mut *place.borrow_mut(), self.value));
    }
}

impl<T, F: Future> Future for Scoped<T, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is not moved out of its place; it is dropped there.
        let this = unsafe { self.get_unchecked_mut() };
        let _changed = Changed::new(this.key, &mut this.value);
        let future = this.future.as_mut().expect("the future is there till the drop");
        // SAFETY: as above.
        unsafe { Pin::new_unchecked(future) }.poll(cx)
    }
}

impl<T, F> Drop for Scoped<T, F> {
    fn drop(&mut self) {
        if self.future.is_some() {
            let _changed = Changed::try_new(self.key, &mut self.value);
            // In place: assigning drops the old value where it lies.
            self.future = None;
        }
    }
}
