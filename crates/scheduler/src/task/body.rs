//! The body of a process that is a future, and its table.

use std::alloc::Layout;
use std::any::Any;
use std::cell::UnsafeCell;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

use super::header::Header;
use super::join::{JoinError, JoinHandle};
use super::{context, coop, waker};
use crate::memory;
use crate::process::message::Event;
use crate::process::table::{ProcessTable, lies_inline};
use crate::process::{Place, ProcessError, SpawnOptions, Status, Turn, contain, create, drop_fn, panic_text};
use crate::sync::Relaxed;
use crate::worker::with_magazines;

/// How a task ended. A panic's payload lies behind a thin pointer, so that it does not make tasks larger.
enum End<T> {
    Value(T),
    Panicked(Box<Box<dyn Any + Send>>),
    Aborted,
}

/// The future, then how it ended, then nothing. Flat, without an [`End`] in it, which would have a tag of its own.
enum Stage<F: Future> {
    Runs(F),
    Value(F::Output),
    Panicked(Box<Box<dyn Any + Send>>),
    Aborted,
    Taken,
}

/// One cell for the process and its handle; see the module's words on who touches what.
///
/// All of it is in an `UnsafeCell`, padding too: it may be freed while a method still runs on a shared reference.
#[repr(transparent)]
pub(super) struct Task<F: Future>(UnsafeCell<Inner<F>>);

struct Inner<F: Future> {
    header: Header,
    stage: Stage<F>,
}

/// A task, for a handle that does not know the future's type. The methods are the handle's alone.
pub(super) trait Join<T> {
    fn header(&self) -> &Header;

    /// Takes the result; `None`: taken already.
    ///
    /// # Safety
    /// The task is done, and no other call is under way.
    unsafe fn take(&self) -> Option<Result<T, JoinError>>;

    /// The handle leaves, and frees the task if it is the last.
    ///
    /// # Safety
    /// Called once; nobody touches the task through this handle afterwards.
    unsafe fn leave(&self);
}

impl<F> Join<F::Output> for Task<F>
where
    F: Future + Send,
    F::Output: Send,
{
    fn header(&self) -> &Header {
        Task::header(self)
    }

    unsafe fn take(&self) -> Option<Result<F::Output, JoinError>> {
        // SAFETY: done, so the runner is through with the stage; the caller is alone by its promise.
        match std::mem::replace(unsafe { &mut *self.stage() }, Stage::Taken) {
            Stage::Value(value) => Some(Ok(value)),
            Stage::Panicked(payload) => Some(Err(JoinError::panicked(*payload))),
            Stage::Aborted => Some(Err(JoinError::Aborted)),
            Stage::Runs(_) | Stage::Taken => None,
        }
    }

    unsafe fn leave(&self) {
        let this = NonNull::from(self);
        if self.header().leave() {
            // SAFETY: made by `new`; the runner has left, and the caller does not come back.
            unsafe { Self::free(this) };
        }
    }
}

impl<F: Future> Task<F> {
    /// A task in a cell, or in an allocation of its own if it is large.
    fn new(place: Place<'_>, future: F) -> Result<NonNull<Self>, memory::Exhausted> {
        let (room, cell) = place.with_magazines(|m| memory::room(m, Layout::new::<Self>()))?;
        let this = room.cast::<Self>();
        // SAFETY: the room is for this layout, and nobody else's.
        unsafe {
            (&raw mut (*this.cast::<Inner<F>>().as_ptr()).header).write(Header::new(cell));
            this.as_ref().stage().write(Stage::Runs(future));
        }
        Ok(this)
    }

    fn header(&self) -> &Header {
        // SAFETY: the header is only ever shared; `new` wrote it.
        unsafe { &(*self.0.get()).header }
    }

    fn stage(&self) -> *mut Stage<F> {
        // SAFETY: a place within the task; nothing is read.
        unsafe { &raw mut (*self.0.get()).stage }
    }

    /// Drops what is left of the task and gives its room back; also when that drop panics.
    ///
    /// # Safety
    /// Made by [`Self::new`]; runner and handle have left.
    unsafe fn free(this: NonNull<Self>) {
        struct Room(NonNull<u8>, u32, Layout);
        impl Drop for Room {
            fn drop(&mut self) {
                // SAFETY: from `memory::room`, with this layout; what was there has been dropped.
                with_magazines(|m| unsafe { memory::give_back(m, self.2, self.0, self.1) });
            }
        }
        // SAFETY: nobody else touches the task any more, by the caller's promise.
        unsafe {
            let _room = Room(this.cast(), this.as_ref().header().cell(), Layout::new::<Self>());
            this.drop_in_place();
        }
    }

    /// Drops the future, leaves the result and tells the handle, or frees the task if there is none.
    ///
    /// # Safety
    /// The caller is the runner, the task is not done, and the runner does not touch it afterwards.
    unsafe fn finish(this: NonNull<Self>, end: End<F::Output>) {
        // SAFETY: the task lives as long as the runner has not left, below.
        let (header, stage) = unsafe { (this.as_ref().header(), this.as_ref().stage()) };
        // The future is dropped before anybody hears of the end, where it lies.
        // SAFETY: the runner alone touches the stage; it is overwritten below without a second drop.
        let dropped = catch_unwind(AssertUnwindSafe(|| unsafe {
            if let Stage::Runs(future) = &mut *stage {
                std::ptr::drop_in_place(future);
            }
        }));
        // What its parts left to be woken by: nothing comes any more.
        let _ = contain(|| header.forget_listeners());
        let end = match dropped {
            Ok(()) => end,
            Err(payload) => {
                let _ = contain(|| drop(end));
                End::Panicked(Box::new(payload))
            }
        };
        let is_last = if header.is_abandoned() {
            // SAFETY: as above.
            unsafe { stage.write(Stage::Taken) };
            let _ = contain(|| drop(end));
            true
        } else {
            let ended = match end {
                End::Value(value) => Stage::Value(value),
                End::Panicked(payload) => Stage::Panicked(payload),
                End::Aborted => Stage::Aborted,
            };
            // SAFETY: as above; what was there has been dropped.
            unsafe { stage.write(ended) };
            header.finish(|joiner| {
                // Another runtime's waker may panic.
                let _ = contain(|| joiner.wake());
            })
        };
        if is_last {
            // SAFETY: the handle has left, and so does the runner.
            let _ = contain(|| unsafe { Self::free(this) });
        }
    }
}

/// What lies in the slot: one pointer. Dropped, by a kill or a refused spawn, it ends the task.
struct Body<F>(NonNull<Task<F>>)
where
    F: Future + Send,
    F::Output: Send;

// SAFETY: the stage is touched by one party at a time: the runner, which the slot's word hands from worker to
// worker, and after `DONE` the handle. Future and result are `Send`, so both may travel.
unsafe impl<F> Send for Body<F>
where
    F: Future + Send,
    F::Output: Send,
{
}

impl<F> Drop for Body<F>
where
    F: Future + Send,
    F::Output: Send,
{
    fn drop(&mut self) {
        // SAFETY: a body is dropped by its process's runner, or by a spawner whose process was refused; and
        // only if the task has not ended, for the step that ends it takes the body apart.
        unsafe { Task::finish(self.0, End::Aborted) };
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
        let this = unsafe { (*body.cast::<Body<F>>()).0 };
        // SAFETY: the task lives till the runner, which this is, has left.
        let task = unsafe { this.as_ref() };
        if turn.out.slot.inbox.load(Relaxed) != 0 {
            if MAILBOX {
                task.header().tell_of_events();
            } else {
                take_events(task.header(), turn);
            }
        }
        let data = waker::pack(turn.out.pid);
        let waker = waker::of(data);
        context::begin_poll(data, task.header());
        let polled = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the runner alone touches the stage.
            match unsafe { &mut *task.stage() } {
                Stage::Runs(future) => {
                    // SAFETY: the future does not move: it lies in the task's room and is dropped in place.
                    let future = unsafe { Pin::new_unchecked(future) };
                    coop::with_budget(|| future.poll(&mut Context::from_waker(&waker)))
                }
                _ => unreachable!("a task that has ended was polled"),
            }
        }));
        let woke_itself = context::end_poll();
        let (end, panicked) = match polled {
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
            Ok(Poll::Ready(value)) => (End::Value(value), None),
            Err(payload) => {
                let text = panic_text(&*payload).to_string();
                (End::Panicked(Box::new(payload)), Some(text))
            }
        };
        // The body, a pointer without a drop of its own from here on, is not used again.
        turn.out.status = Status::Consumed;
        // SAFETY: this is the runner, and the task was not done.
        unsafe { Task::finish(this, end) };
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

/// The handle's share of a task.
pub(super) struct Owned<T>(NonNull<dyn Join<T>>);

impl<T> Owned<T> {
    /// # Safety
    /// The task's memory is held for a handle, and this is the only one.
    unsafe fn new<F>(task: NonNull<Task<F>>) -> Self
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        Self(task)
    }

    pub(super) fn header(&self) -> &Header {
        // SAFETY: the memory stays till the drop.
        unsafe { self.0.as_ref() }.header()
    }

    /// Takes the result; `None`: taken already.
    ///
    /// # Safety
    /// The task is done.
    pub(super) unsafe fn take(&mut self) -> Option<Result<T, JoinError>> {
        // SAFETY: as in `header`; this is the only handle, borrowed exclusively; done by the caller's word.
        unsafe { self.0.as_ref().take() }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: as in `header`; this is the handle's last touch.
        unsafe { self.0.as_ref().leave() };
    }
}

// SAFETY: the handle touches atomics, and, when the task is done, alone the result, which is `Send`
// (`Owned::new`).
unsafe impl<T> Send for Owned<T> {}
// SAFETY: by a shared reference it touches atomics alone.
unsafe impl<T> Sync for Owned<T> {}

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
    let task = match Task::new(place, future) {
        Ok(task) => task,
        Err(memory::Exhausted) => return Err(crate::SpawnError::Exhausted),
    };
    // SAFETY: the task is new, with a runner and a handle: this one.
    let handle = unsafe { Owned::new(task) };
    let pid = create(place, table::<F>(has_mailbox), Body(task), None, options, None)?;
    Ok(JoinHandle::new(pid, handle))
}

/// Spawns a task; a refusal is told by the handle.
pub(super) fn spawn<F>(place: Place<'_>, future: F, options: Option<&SpawnOptions>) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    create_task(place, future, false, options).unwrap_or_else(JoinHandle::refused)
}
