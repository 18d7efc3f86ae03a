//! A scheduler for millions of small processes in one program: state machines that share nothing and
//! talk by messages, run by one worker for each core that steal work from one another, with supervision,
//! mailboxes that are bounded where senders give a budget ([`Budget`]), and a bound, counted in turns, on how
//! long a ready process waits for others: so its time is bounded as far as the steps of the others are short.
//!
//! ```
//! use evener_scheduler::{Reply, Scheduler};
//! use std::time::Duration;
//!
//! enum Count { Add(u64), Get(Reply<u64>) }
//!
//! let scheduler = Scheduler::new()?;
//! let counter = scheduler.spawn_fn(0, |count, message, _cx| match message {
//!     Count::Add(more) => *count += more,
//!     Count::Get(reply) => reply.send(*count),
//! })?;
//! counter.tell(Count::Add(2))?;
//! counter.tell(Count::Add(3))?;
//! assert_eq!(counter.ask(Count::Get, Duration::from_secs(1))?, 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Two layers
//!
//! *Typed*: an [`Actor`] (or a closure, [`Scheduler::spawn_fn`]) takes messages of one type and is known by a
//! [`Handle`] of that type; [`Handle::tell`] sends, [`Handle::ask`] waits for an answer.
//!
//! *Raw*: a [`Process`] is stepped with [`Events`] (messages of any type, results of yields, ends of others)
//! and writes to a [`StepOutput`]: commands to be carried out, messages, what it does next. It is known by
//! its [`Pid`]. The typed layer is made of it and costs no more.
//!
//! # What always holds
//!
//! 1. A process is in at most one run queue and is stepped by at most one thread.
//! 2. No ready process waits for long while a worker sleeps: at most about 10 ms, normally far less.
//! 3. A sender to an earlier life of a mailbox changes nothing.
//! 4. Messages from one sender to one process arrive in order, each once, or are refused, or are dropped with
//!    the process and counted.
//! 5. `close` runs exactly once on every way out of a process that had begun; a panic ends at most the
//!    process in which it happens. Two exceptions: a destructor that panics while another panic unwinds ends
//!    the program, by Rust's own rule; and a message that is refused is dropped on the sender's thread, so a
//!    panic of its destructor there is the sender's.
//! 6. What comes late or twice (an answer, a timer, a wake, a kill) is harmless; a PID or a handle may
//!    outlive its process and its scheduler.
//!
//! # The sources
//!
//! The folders of `src`, in the order in which a message meets them; for who reads the code. What they hold is
//! private, all that is public lies at the root.
//!
//! | | |
//! | --- | --- |
//! | `process/` | what is scheduled: the trait, PIDs, the slot with its one atomic word, mailbox, budgets |
//! | `route/` | who hears whom: relay, names, monitors and links, supervisors, hosts |
//! | `queues/` | where ready ones wait |
//! | `worker/` | who runs them: the loop, idling and waking, timers, the monitor, spare workers |
//! | `poller/` | readiness of sockets, learned by the workers themselves |
//! | `net/`, `fs.rs` | sockets, files |
//! | `signal.rs`, `child/` | signals, child processes, heard by the poller too |
//! | `hyper.rs` | what hyper wants of a runtime, with the feature `hyper` |
//! | `command/` | what they may ask for: handlers and completers; process, clock and blocking commands |
//! | `typed/` | actors, handles, answers |
//! | `task/`, `time.rs`, `channel.rs` | futures as processes; their timers and channels |
//! | `trace/` | what each worker did, when, and who woke whom: rings, the picture, summaries |
//! | `memory.rs` | slots, message cells, bodies: type-stable, never given back |
//! | `shutdown.rs`, `stats.rs`, `clock.rs`, `sync.rs` | the end, the numbers, the doors to time and to atomics |
//! | `model/` | loom models of what threads share |

// The models see the shared structures alone, and those not whole.
#![cfg_attr(
    loom,
    allow(dead_code, unreachable_pub, unused_imports, reason = "the program around the models is left out")
)]

mod queues;
mod sync;

mod command;
mod process;

#[cfg(not(loom))]
pub mod channel;
#[cfg(all(unix, not(loom)))]
pub mod child;
#[cfg(not(loom))]
mod clock;
#[cfg(not(loom))]
pub mod fs;
#[cfg(all(feature = "hyper", not(loom)))]
pub mod hyper;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
pub mod net;
#[cfg(not(loom))]
mod poller;
#[cfg(not(loom))]
mod route;
#[cfg(not(loom))]
mod shutdown;
#[cfg(all(unix, not(loom)))]
pub mod signal;
#[cfg(not(loom))]
mod stats;
#[cfg(not(loom))]
pub mod task;
#[cfg(not(loom))]
pub mod time;
#[cfg(not(loom))]
mod trace;
#[cfg(not(loom))]
mod typed;
#[cfg(not(loom))]
mod worker;

#[cfg(all(test, loom))]
mod model;
/// The part of a task that the models drive.
#[cfg(loom)]
mod task {
    pub(crate) mod header;
}
/// The parts of a worker that the models drive.
#[cfg(loom)]
mod worker {
    pub(crate) mod idle;
    pub(crate) mod spare;
    pub(crate) mod watch;
}
/// As much of the poller.
#[cfg(loom)]
mod poller {
    pub(crate) mod post;
}
/// The part of the trace that the models drive.
#[cfg(loom)]
mod trace {
    pub(crate) mod ring;
}

pub use command::{Command, CommandId, DuplicateCommand, YieldError};
pub use process::payload::{Payload, SharedBytes};
pub use process::pid::{LocalPid, Pid, PidParseError};
pub use process::{ExitReason, Process, ProcessError, SendError, Tag, Topic};

#[cfg(not(loom))]
pub use api::*;

/// The built-in commands.
#[cfg(not(loom))]
pub mod commands {
    pub use crate::command::blocking::Blocking;
    pub use crate::command::clock::{Sleep, Ticker, Timer};
    pub use crate::command::process::{
        Cancel, Exec, Link, Lookup, Monitor, Register, Send, Spawn, Terminate, Unlink, Unmonitor,
    };
}

#[cfg(not(loom))]
mod api {
    pub use crate::command::{Completer, Handler, HandlerContext};
    pub use crate::poller::PollerStats;
    pub use crate::process::budget::{Budget, QueueLimitExceeded, Terminal, TopicUse};
    pub use crate::process::message::{Cancel, Event, Exit, ExitBy, Message};
    pub use crate::process::{Events, InitContext, ResetError, SpawnError, SpawnOptions, StepOutput};
    pub use crate::route::host::{
        Builder, LifecycleHooks, Runtime, RuntimeBuilder, Scheduler, StartError, WORKERS_MAX,
    };
    pub use crate::route::names::NameError;
    pub use crate::route::relay::{Cancellation, Package, Producer, send, send_with};
    pub use crate::route::supervisor;
    pub use crate::route::waiter::WaitError;
    pub use crate::shutdown::Report;
    #[doc(hidden)]
    pub use crate::stats::Registrations;
    pub use crate::stats::{
        BUCKETS, ByState, Histogram, ProcessInfo, ProcessState, SpareStats, Stats, WorkerStats, topics_of,
    };
    pub use crate::trace::{Summary, Trace};
    pub use crate::typed::{Actor, AskError, Context, FnActor, Handle, OnPanic, Reply};
    pub use crate::worker::long::LongStep;
    pub use crate::worker::spare::{SPARES_MAX, blocking};
}
