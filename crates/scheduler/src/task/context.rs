//! What a thread knows while it polls: which task, which host.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use super::header::Header;
use super::{coop, waker};
use crate::process::Place;
use crate::route::host::{Engine, Hub};
use crate::{LocalPid, Pid, clock};

thread_local! {
    /// The task that this worker polls.
    static POLLED: Polled = const {
        Polled { data: Cell::new(waker::NOBODY), woke_itself: Cell::new(false), header: Cell::new(std::ptr::null()) }
    };
    /// The host of the `block_on` that this thread is in.
    static ENTERED: RefCell<Option<Arc<Engine>>> = const { RefCell::new(None) };
}

struct Polled {
    data: Cell<usize>,
    woke_itself: Cell<bool>,
    header: Cell<*const Header>,
}

/// A poll of the task with this waker begins.
#[inline]
pub(super) fn begin_poll(data: usize, header: &Header) {
    POLLED.with(|polled| {
        polled.data.set(data);
        polled.woke_itself.set(false);
        polled.header.set(header);
    });
}

/// The poll has ended. `true`: the task woke itself meanwhile.
#[inline]
pub(super) fn end_poll() -> bool {
    POLLED.with(|polled| {
        polled.data.set(waker::NOBODY);
        polled.header.set(std::ptr::null());
        polled.woke_itself.get()
    })
}

/// Notes a wake of the task that this thread is polling. `false`: it is another.
#[inline]
pub(super) fn wake_own(data: usize) -> bool {
    POLLED
        .try_with(|polled| {
            let is_own = polled.data.get() == data;
            if is_own {
                polled.woke_itself.set(true);
            }
            is_own
        })
        // The thread is ending: it polls nobody.
        .unwrap_or(false)
}

pub(super) fn polled_pid() -> Option<LocalPid> {
    waker::unpack(POLLED.with(|polled| polled.data.get()))
}

pub(super) fn polled() -> Option<Pid> {
    polled_pid().map(crate::route::pid_of)
}

/// The header of the task that this thread polls.
fn with_header<R>(act: impl FnOnce(&Header) -> R) -> Option<R> {
    let header = POLLED.with(|polled| polled.header.get());
    // SAFETY: set for the time of a poll, during which the task lives, and its runner is this thread.
    unsafe { header.as_ref() }.map(act)
}

/// Has the polled task been asked to end? If not, `waker` is woken when it is.
pub(super) fn listen_for_cancel(waker: &Waker) -> bool {
    with_header(|header| header.listen_for_cancel(waker)).unwrap_or(false)
}

/// The polled task has been asked to end.
pub(super) fn cancel() {
    with_header(Header::cancel);
}

/// `waker` is woken when the polled task has got events. Its own is, without this: its process runs then.
#[inline]
pub(super) fn listen_for_events(waker: &Waker) {
    let own = waker::of(POLLED.with(|polled| polled.data.get()));
    if !waker.will_wake(&own) {
        with_header(|header| header.listen_for_events(waker));
    }
}

/// Runs `act` with the place where this thread spawns.
#[track_caller]
pub(super) fn with_place<R>(act: impl FnOnce(Place<'_>) -> R) -> R {
    if let Some(worker) = crate::worker::current() {
        return act(if worker.is_between_steps() {
            Place::Outside(worker.engine())
        } else {
            Place::Worker(worker, polled_pid())
        });
    }
    act(Place::Outside(&entered().unwrap_or_else(|| no_host())))
}

/// The host that this thread works for.
#[track_caller]
pub(crate) fn hub() -> &'static Hub {
    try_hub().unwrap_or_else(|| no_host())
}

/// The host that this thread works for, if any.
pub(crate) fn try_hub() -> Option<&'static Hub> {
    match crate::worker::current() {
        Some(worker) => Some(worker.hub()),
        None => entered().map(|engine| engine.hub),
    }
}

/// As [`try_hub`], with what keeps the host.
pub(crate) fn try_engine() -> Option<Arc<Engine>> {
    match crate::worker::current() {
        Some(worker) => Some(worker.engine_arc()),
        None => entered(),
    }
}

fn entered() -> Option<Arc<Engine>> {
    ENTERED.try_with(|entered| entered.borrow().clone()).ok().flatten()
}

#[cold]
#[track_caller]
fn no_host() -> ! {
    panic!("no scheduler here: call this within a task, a step, or Scheduler::block_on")
}

/// Wakes a thread in [`block_on`].
struct Unpark {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        // Release: pairs with the Acquire in `wait`.
        if !self.is_woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

thread_local! {
    /// This thread's, while no wait uses it: a wait within a poll of a wait makes one of its own, so that
    /// neither takes the other's wakes for its own.
    static UNPARK: RefCell<Option<Arc<Unpark>>> = const { RefCell::new(None) };
}

#[track_caller]
pub(super) fn block_on<F: Future>(engine: Option<&Arc<Engine>>, future: F) -> F::Output {
    assert!(
        crate::worker::current().is_none(),
        "block_on was called on a worker, which would wait for itself: spawn the future or await it"
    );
    struct Leave(Option<Arc<Engine>>);
    impl Drop for Leave {
        fn drop(&mut self) {
            let mine = ENTERED.with(|entered| entered.replace(self.0.take()));
            drop(mine);
        }
    }
    let _leave =
        engine.map(|engine| Leave(ENTERED.with(|entered| entered.replace(Some(Arc::clone(engine))))));
    wait(future, None).expect("without a limit it waits till the future is done")
}

/// Polls a future on this thread till it is done, at most for `limit`.
pub(crate) fn wait<F: Future>(future: F, limit: Option<Duration>) -> Option<F::Output> {
    let mut future = pin!(future);
    let deadline = limit.map(|limit| clock::deadline(clock::now_nanos(), limit));
    let kept = UNPARK.try_with(|unpark| unpark.borrow_mut().take()).ok().flatten();
    let unpark = kept.unwrap_or_else(|| {
        Arc::new(Unpark { thread: std::thread::current(), is_woken: AtomicBool::new(false) })
    });
    let waker = Waker::from(Arc::clone(&unpark));
    let mut cx = Context::from_waker(&waker);
    let result = loop {
        // Acquire: pairs with the Release in `wake_by_ref`: the poll sees why it was woken.
        unpark.is_woken.swap(false, Ordering::Acquire);
        if let Poll::Ready(result) = coop::with_budget(|| future.as_mut().poll(&mut cx)) {
            break Some(result);
        }
        if unpark.is_woken.load(Ordering::Relaxed) {
            // Most likely it woke itself: yielding means to let others run.
            std::thread::yield_now();
            continue;
        }
        match deadline {
            None => std::thread::park(),
            Some(deadline) => {
                let now = clock::now_nanos();
                if now >= deadline {
                    break None;
                }
                std::thread::park_timeout(Duration::from_nanos(deadline - now));
            }
        }
    };
    let _ = UNPARK.try_with(|kept| kept.replace(Some(unpark)));
    result
}
