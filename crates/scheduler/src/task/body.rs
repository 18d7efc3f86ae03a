//! The body of a process that is a future, and its table.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::header::Header;
use super::join::{JoinError, JoinHandle};
use super::{context, waker};
use crate::process::message::Event;
use crate::process::table::{ProcessTable, lies_inline};
use crate::process::{Place, ProcessError, SpawnOptions, Status, Turn, contain, create, drop_fn, panic_text};
use crate::sync::Relaxed;

/// The future, then its result, then nothing.
enum Stage<F: Future> {
    Runs(F),
    Done(Result<F::Output, JoinError>),
    Taken,
}

/// One allocation for the process and its handle; see the module's words on who touches what.
pub(super) struct Task<F: Future> {
    header: Header,
    stage: UnsafeCell<Stage<F>>,
}

// SAFETY: the stage is touched by one party at a time: the runner, which the slot's word hands from worker to
// worker, and after `DONE` the handle. Future and result are `Send`, so both may travel.
unsafe impl<F: Future + Send> Sync for Task<F> where F::Output: Send {}
// SAFETY: as above.
unsafe impl<F: Future + Send> Send for Task<F> where F::Output: Send {}

/// The result, for a handle that does not know the future's type.
pub(super) trait Join<T>: Send + Sync {
    fn header(&self) -> &Header;

    /// Takes the result; `None`: taken already.
    ///
    /// # Safety
    /// The task is done, and no other call is under way.
    unsafe fn take(&self) -> Option<Result<T, JoinError>>;
}

impl<F> Join<F::Output> for Task<F>
where
    F: Future + Send,
    F::Output: Send,
{
    fn header(&self) -> &Header {
        &self.header
    }

    unsafe fn take(&self) -> Option<Result<F::Output, JoinError>> {
        // SAFETY: done, so the runner is through with the stage; the caller is alone by its promise.
        match std::mem::replace(unsafe { &mut *self.stage.get() }, Stage::Taken) {
            Stage::Done(result) => Some(result),
            _ => None,
        }
    }
}

impl<F> Task<F>
where
    F: Future + Send,
    F::Output: Send,
{
    /// Drops the future, leaves the result and tells the handle.
    ///
    /// # Safety
    /// The caller is the runner, and the task is not done.
    unsafe fn finish(&self, result: Result<F::Output, JoinError>) {
        let stage = self.stage.get();
        // The future is dropped before anybody hears of the end. Should that panic, the stage is `Taken`
        // all the same, for the old value was moved out of it in place: it is dropped where it lies.
        // SAFETY: the runner alone touches the stage; it is overwritten without a second drop.
        let dropped = catch_unwind(AssertUnwindSafe(|| unsafe {
            if let Stage::Runs(future) = &mut *stage {
                std::ptr::drop_in_place(future);
            }
        }));
        let result = match dropped {
            Ok(()) => result,
            Err(payload) => {
                let _ = contain(|| drop(result));
                Err(JoinError::panicked(payload))
            }
        };
        // SAFETY: as above; what was there has been dropped.
        unsafe { stage.write(Stage::Done(result)) };
        // Another runtime's waker may panic; the state is set before it is woken.
        let _ = contain(|| self.header.finish());
    }
}

/// What lies in the slot: one pointer. Dropped without having ended, by a kill, it ends the task.
struct Body<F>(Arc<Task<F>>)
where
    F: Future + Send,
    F::Output: Send;

impl<F> Drop for Body<F>
where
    F: Future + Send,
    F::Output: Send,
{
    fn drop(&mut self) {
        if !self.0.header.is_done() {
            // SAFETY: a body is dropped by its process's runner, or by a spawner whose process was refused.
            unsafe { self.0.finish(Err(JoinError::Aborted)) };
        }
    }
}

struct TaskTable<F>(PhantomData<F>);

impl<F> TaskTable<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    /// Without a mailbox: what it is sent is dropped.
    const PLAIN: &'static ProcessTable = &Self::with(Self::step::<false>);
    const WITH_MAILBOX: &'static ProcessTable = &Self::with(Self::step::<true>);

    const fn with(step: unsafe fn(*mut u8, &mut Turn<'_>) -> Result<(), ProcessError>) -> ProcessTable {
        ProcessTable {
            step,
            init: None,
            close: None,
            drop: drop_fn::<Body<F>>(),
            layout: Layout::new::<Body<F>>(),
            inline: lies_inline(Layout::new::<Body<F>>()),
            type_name: std::any::type_name::<F>,
            survives_panics: false,
        }
    }

    unsafe fn step<const MAILBOX: bool>(body: *mut u8, turn: &mut Turn<'_>) -> Result<(), ProcessError> {
        // SAFETY: the caller runs a process of this type, whose body lies there.
        let task = unsafe { &*body.cast::<Body<F>>() };
        let task = &*task.0;
        if !MAILBOX && turn.out.slot.inbox.load(Relaxed) != 0 {
            take_events(&task.header, turn);
        }
        let data = waker::pack(turn.out.pid);
        let waker = waker::of(data);
        context::begin_poll(data, &task.header);
        let polled = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the runner alone touches the stage.
            match unsafe { &mut *task.stage.get() } {
                Stage::Runs(future) => {
                    // SAFETY: the future does not move: it lies behind an `Arc` and is dropped in place.
                    let future = unsafe { Pin::new_unchecked(future) };
                    future.poll(&mut Context::from_waker(&waker))
                }
                _ => unreachable!("a task that has ended was polled"),
            }
        }));
        let woke_itself = context::end_poll();
        let (result, panicked) = match polled {
            Ok(Poll::Pending) => {
                turn.out.status = if woke_itself {
                    Status::Continue
                } else if MAILBOX && turn.out.slot.inbox.load(Relaxed) != 0 {
                    Status::Deaf
                } else {
                    Status::Wait
                };
                return Ok(());
            }
            Ok(Poll::Ready(value)) => (Ok(value), None),
            Err(payload) => {
                let text = panic_text(&*payload).to_string();
                (Err(JoinError::panicked(payload)), Some(text))
            }
        };
        turn.out.status = Status::Consumed;
        // SAFETY: `Consumed` keeps the body from being used or dropped again.
        let body = unsafe { body.cast::<Body<F>>().read() };
        // SAFETY: this is the runner, and the task was not done.
        unsafe { body.0.finish(result) };
        drop(body);
        match panicked {
            None => Ok(()),
            // Counted, and made the reason of the end, by the worker. The hook has told of it already.
            Some(text) => resume_unwind(Box::new(text)),
        }
    }
}

/// A task without a mailbox hears of cancellation; all else that it was sent is dropped.
#[cold]
#[inline(never)]
fn take_events(header: &Header, turn: &mut Turn<'_>) {
    for event in turn.events.by_ref() {
        match event {
            Event::Cancel(_) => header.cancel(),
            other => drop(contain(|| drop(other))),
        }
    }
}

fn table<F>(has_mailbox: bool) -> &'static ProcessTable
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    if has_mailbox { TaskTable::<F>::WITH_MAILBOX } else { TaskTable::<F>::PLAIN }
}

pub(super) fn create_task<F>(
    place: Place<'_>,
    future: F,
    has_mailbox: bool,
    options: Option<&SpawnOptions>,
) -> Result<JoinHandle<F::Output>, crate::SpawnError>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let task = Arc::new(Task { header: Header::new(), stage: UnsafeCell::new(Stage::Runs(future)) });
    let body = Body(Arc::clone(&task));
    let pid = create(place, table::<F>(has_mailbox), body, None, options, None)?;
    Ok(JoinHandle::new(pid, task))
}

/// Spawns a task; a refusal is told by the handle.
pub(super) fn spawn<F>(place: Place<'_>, future: F, options: Option<&SpawnOptions>) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    create_task(place, future, false, options).unwrap_or_else(JoinHandle::refused)
}
