//! evener-scheduler

#![allow(dead_code)]

mod queues;
mod sync;

mod command;
mod process;

#[cfg(not(loom))]
mod clock;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod route;
#[cfg(not(loom))]
mod shutdown;
#[cfg(not(loom))]
mod stats;
#[cfg(not(loom))]
mod typed;
#[cfg(not(loom))]
mod worker;

#[cfg(all(test, loom))]
mod model;
/// The parts of a worker that the models drive.
#[cfg(loom)]
mod worker {
    pub(crate) mod idle;
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
    pub use crate::process::budget::{Budget, QueueLimitExceeded, Terminal, TopicUse};
    pub use crate::process::message::{Cancel, Event, Exit, ExitBy, Message};
    pub use crate::process::{Events, InitContext, SpawnError, SpawnOptions, StepOutput};
    pub use crate::route::host::{
        Builder, LifecycleHooks, Runtime, RuntimeBuilder, Scheduler, StartError, WORKERS_MAX,
    };
    pub use crate::route::names::NameError;
    pub use crate::route::relay::{Cancellation, Package, Producer, send, send_with};
    pub use crate::route::supervisor;
    pub use crate::route::waiter::WaitError;
    pub use crate::shutdown::Report;
    pub use crate::typed::{Actor, AskError, Context, FnActor, Handle, OnPanic, Reply};
    #[doc(hidden)]
    pub use crate::stats::Registrations;
    pub use crate::stats::{ByState, Histogram, ProcessInfo, ProcessState, Stats, WorkerStats, topics_of};
}
