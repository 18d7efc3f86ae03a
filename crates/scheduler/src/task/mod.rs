//! Futures as processes.
//!
//! Any `Future + Send` is a process: spawned, queued, stolen, killed and counted like the others. A turn is
//! one `poll`. Its waker is the process's address, slot and generation packed into the one word that a
//! [`std::task::RawWaker`] has: it owns nothing, so it is copied and dropped for nothing, wakes without
//! allocation from any thread, any number of times, and reaches nobody once the process has ended
//! (`src/process/slot.rs`).
//!
//! | a poll gave | the process |
//! | --- | --- |
//! | `Pending`, and nobody woke it meanwhile | waits (`Blocked`) |
//! | `Pending`, and it woke itself | goes to the old end, as after [`StepOutput::continue_soon`] |
//! | `Pending`, and another thread woke it | is queued again |
//! | `Ready` | ends, reason `Normal`; the handle gets the value |
//! | a panic | ends, reason `Panicked`; the handle gets the payload |
//!
//! [`StepOutput::continue_soon`]: crate::StepOutput::continue_soon
//!
//! # Who touches the future and its result
//!
//! They lie in one cell (`src/memory.rs`) with the handle's waker, shared by the process's body and the
//! [`JoinHandle`]; the last of the two frees it (`src/task/header.rs`). Until `DONE` the runner alone touches the
//! stage (the slot's word hands it from runner to runner); the runner writes the result, then sets `DONE`
//! (Release); after that the handle alone touches it (Acquire). The future is dropped by a worker that has claimed the process: an abort sets the kill bit
//! and wakes, and dropping a handle does nothing at all.

pub(crate) mod body;
pub(crate) mod context;
pub mod coop;
pub(crate) mod header;
mod join;
mod local;
mod mailbox;
pub(crate) mod waker;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

pub use join::{AbortOnDrop, JoinError, JoinHandle};
pub use local::{LocalKey, Scoped};
pub use mailbox::{Mailbox, Stop};

use crate::process::SpawnOptions;
use crate::route::host::{Runtime, Scheduler};
use crate::{Handle, Pid, SpawnError};

/// Spawns a future as a process of the present host: that of the task, step or handler that calls, or of
/// the [`Scheduler::block_on`] around it.
///
/// If the host takes no more processes, the future is dropped and the handle says
/// [`JoinError::NotSpawned`].
///
/// ```
/// use evener_scheduler::{Scheduler, task};
///
/// let scheduler = Scheduler::new()?;
/// let sum = scheduler.block_on(async {
///     let parts: Vec<_> = (1..=3).map(|n| task::spawn(async move { n * n })).collect();
///     let mut sum = 0;
///     for part in parts {
///         sum += part.await?;
///     }
///     Ok::<_, task::JoinError>(sum)
/// })?;
/// assert_eq!(sum, 14);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// Where there is no host: on a thread that is no worker and in no `block_on`.
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    context::with_place(|place| body::spawn(place, future, None))
}

/// As [`spawn`], with a name, a link or a monitor. The parent, for links and monitors, is the task or process
/// that calls.
///
/// # Panics
/// As [`spawn`].
#[track_caller]
pub fn spawn_with<F>(future: F, options: SpawnOptions) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    context::with_place(|place| body::spawn(place, future, Some(&options)))
}

/// The PID of the task that is being polled; `None` outside of tasks.
#[must_use]
pub fn id() -> Option<Pid> {
    context::polled()
}

/// Lets the others run: the task goes to the old end of its worker's queues, or, in [`Scheduler::block_on`],
/// offers the core.
pub fn yield_now() -> impl Future<Output = ()> + Send {
    struct YieldNow(bool);
    impl Future for YieldNow {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            if std::mem::replace(&mut self.0, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }
    YieldNow(false)
}

/// Resolves when the task has been asked to end: by [`Scheduler::stop`], by a `Cancel` command, or by the
/// host's shutdown. A task that does not listen goes on till it is done, or till the deadline of who asked.
/// In an async actor it does when its [`Mailbox`] has given the word, which stands behind the messages that came
/// before. Outside of a task it never resolves.
pub fn cancelled() -> impl Future<Output = ()> + Send {
    struct Cancelled;
    impl Future for Cancelled {
        type Output = ();
        fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            if context::listen_for_cancel(cx.waker()) { Poll::Ready(()) } else { Poll::Pending }
        }
    }
    Cancelled
}

impl Scheduler {
    /// Spawns a future as a process of this host; from any thread. See [`spawn`].
    pub fn spawn_task<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        body::spawn(self.place(), future, None)
    }

    /// As [`Self::spawn_task`], with a name.
    pub fn spawn_task_with<F>(&self, future: F, options: SpawnOptions) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        body::spawn(self.place(), future, Some(&options))
    }

    /// Spawns an async function with a mailbox of its own: an actor whose code waits where it likes.
    ///
    /// ```
    /// use evener_scheduler::{Reply, Scheduler, task};
    /// use std::time::Duration;
    ///
    /// enum Count { Add(u64), Get(Reply<u64>) }
    ///
    /// let scheduler = Scheduler::new()?;
    /// let counter = scheduler.spawn_async(|mut mailbox| async move {
    ///     let mut count = 0;
    ///     while let Ok(message) = mailbox.receive().await {
    ///         match message {
    ///             Count::Add(more) => count += more,
    ///             Count::Get(reply) => reply.send(count),
    ///         }
    ///     }
    /// })?;
    /// counter.tell(Count::Add(2))?;
    /// assert_eq!(counter.ask(Count::Get, Duration::from_secs(1))?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SpawnError`]; `act` was dropped.
    pub fn spawn_async<M, F>(
        &self,
        act: impl FnOnce(Mailbox<M>) -> F + Send + 'static,
    ) -> Result<Handle<M>, SpawnError>
    where
        M: Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        mailbox::spawn(self.place(), act, None)
    }

    /// As [`Self::spawn_async`], with a name.
    ///
    /// # Errors
    /// [`SpawnError`]; `act` was dropped.
    pub fn spawn_async_with<M, F>(
        &self,
        act: impl FnOnce(Mailbox<M>) -> F + Send + 'static,
        options: SpawnOptions,
    ) -> Result<Handle<M>, SpawnError>
    where
        M: Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        mailbox::spawn(self.place(), act, Some(&options))
    }

    /// Runs a future on this thread till it is done; what it spawns runs on this host. The future itself need
    /// not be `Send`, and is not a process.
    ///
    /// # Panics
    /// Called on a worker, which would wait for itself: spawn the future there, or await it. And with the
    /// future's own panic.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        context::block_on(Some(&self.engine), future)
    }
}

impl Runtime {
    /// As [`Scheduler::block_on`], on the host of that name.
    ///
    /// # Errors
    /// [`SpawnError::UnknownHost`]; the future was dropped.
    ///
    /// # Panics
    /// As [`Scheduler::block_on`].
    pub fn block_on<F: Future>(&self, host: &str, future: F) -> Result<F::Output, SpawnError> {
        Ok(self.host(host)?.block_on(future))
    }

    /// Spawns a future on the host of that name.
    ///
    /// # Errors
    /// [`SpawnError::UnknownHost`]; the future was dropped.
    pub fn spawn_on<F>(&self, host: &str, future: F) -> Result<JoinHandle<F::Output>, SpawnError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Ok(self.host(host)?.spawn_task(future))
    }
}

/// A program's whole life in one call: starts a scheduler with one worker for each core, runs the future on
/// this thread, and shuts down, with [`END_MAX`] for what is left. The plain form of other runtimes'
/// `#[main]`.
///
/// ```
/// fn main() -> Result<(), evener_scheduler::StartError> {
///     evener_scheduler::task::run(async {
///         let six = evener_scheduler::task::spawn(async { 6 });
///         assert_eq!(six.await.unwrap(), 6);
///     })
/// }
/// ```
///
/// # Errors
/// [`crate::StartError`]; the future was dropped.
///
/// # Panics
/// As [`Scheduler::block_on`].
pub fn run<F: Future>(future: F) -> Result<F::Output, crate::StartError> {
    let scheduler = Scheduler::new()?;
    let result = scheduler.block_on(future);
    scheduler.shutdown(END_MAX);
    Ok(result)
}

/// How long [`run`] waits at its end for tasks that still run.
pub const END_MAX: std::time::Duration = std::time::Duration::from_secs(10);
