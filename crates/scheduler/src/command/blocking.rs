//! Closures that block: they run on threads of their own, up to a limit; the rest waits its turn.
//!
//! A thread that has nothing to do leaves after [`LINGER`]. A thread that cannot be started is an error
//! for the closure that needed it if no other thread is there to run it; a panic in a closure is an error
//! for the process that asked, and the thread goes on.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::{Command, CommandId, Completer, DuplicateCommand, HandlerContext, Registry, YieldError};
use crate::process::{ProcessError, contained};
use crate::shutdown::thread_builder;
use crate::sync::{Condvar, Mutex};
use crate::{Payload, clock};

/// How long an idle thread stays.
const LINGER: Duration = Duration::from_secs(5);

type Act = Box<dyn FnOnce() -> Payload + Send>;

/// Runs a closure that may block, off the workers. Result: what it gives.
pub struct Blocking {
    act: Act,
}

impl Blocking {
    /// The closure.
    #[must_use]
    pub fn new<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Self {
        Self { act: Box::new(|| Payload::new(act())) }
    }
}

impl Command for Blocking {
    const ID: CommandId = CommandId(30);
}

struct Job {
    act: Act,
    completer: Completer,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    threads_max: usize,
    queue_max: usize,
    stack_size: Option<usize>,
}

/// The threads of a host for blocking closures.
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

impl Pool {
    pub(crate) fn new(threads_max: usize, queue_max: usize, stack_size: Option<usize>) -> Self {
        let shared =
            Shared { state: Mutex::default(), work: Condvar::new(), threads_max, queue_max, stack_size };
        Self { shared: Arc::new(shared) }
    }

    /// Threads, and closures that wait for one.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let state = self.shared.state.lock();
        (state.threads, state.queue.len())
    }

    /// Refuses what is new; what waits is answered, what runs goes on to its end.
    pub(crate) fn close(&self) {
        let waiting = {
            let mut state = self.shared.state.lock();
            state.is_closed = true;
            std::mem::take(&mut state.queue)
        };
        self.shared.work.notify_all();
        for Job { act, mut completer } in waiting {
            completer.complete(Err(YieldError::Closing));
            let _ = crate::process::contain(|| drop(act));
        }
    }

    fn submit(&self, act: Act, mut completer: Completer) {
        let mut state = self.shared.state.lock();
        if state.is_closed {
            drop(state);
            completer.complete(Err(YieldError::Closing));
            return;
        }
        let waits = state.idle == 0 && state.threads >= self.shared.threads_max;
        if waits && state.queue.len() >= self.shared.queue_max {
            let max = self.shared.queue_max;
            drop(state);
            let text = format!("{max} blocking closures wait already, which is the most");
            completer.complete(Err(YieldError::Failed(ProcessError::new(text))));
            return;
        }
        state.queue.push_back(Job { act, completer });
        if state.idle >= state.queue.len() {
            drop(state);
            self.shared.work.notify_one();
            return;
        }
        if waits || state.threads >= self.shared.threads_max {
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        let builder = thread_builder(shared.stack_size).name("blocking".to_owned());
        let started = builder.spawn(move || shared.work());
        if let Err(error) = started {
            let mut state = self.shared.state.lock();
            state.threads -= 1;
            if state.threads > 0 {
                // Another thread will come to it.
                return;
            }
            let left = std::mem::take(&mut state.queue);
            drop(state);
            for mut job in left {
                let text = format!("no thread for a blocking closure: {error}");
                job.completer.complete(Err(YieldError::Failed(ProcessError::new(text))));
            }
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            while let Some(Job { act, mut completer }) = state.queue.pop_front() {
                drop(state);
                let result = catch_unwind(AssertUnwindSafe(act)).map_err(|payload| {
                    let text = contained(payload);
                    YieldError::Failed(ProcessError::new(format_args!(
                        "the blocking closure panicked: {text}"
                    )))
                });
                completer.complete(result);
                drop(completer);
                state = self.state.lock();
            }
            if state.is_closed {
                break;
            }
            state.idle += 1;
            let end = clock::deadline(clock::now_nanos(), LINGER);
            loop {
                let now = clock::now_nanos();
                if !state.queue.is_empty() || state.is_closed || now >= end {
                    break;
                }
                state = self.work.wait_timeout(state, Duration::from_nanos(end - now));
            }
            state.idle -= 1;
            if state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

pub(super) fn add_to(registry: &mut Registry) -> Result<(), DuplicateCommand> {
    registry.add(
        Blocking::ID,
        "blocking",
        Arc::new(|cx: &HandlerContext<'_>, input: Payload, mut completer: Completer| {
            match cx.input::<Blocking>(input) {
                Ok(Blocking { act }) => cx.engine.blocking.submit(act, completer),
                Err(error) => {
                    completer.complete(Err(error));
                }
            }
        }),
    )
}
