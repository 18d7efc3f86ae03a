//! Commands about processes: send, spawn, terminate, cancel, monitor, link, exec, register, look up.
//!
//! Each does what the act of the same name on [`crate::StepOutput`] does, if there is one, and gives its
//! result as an event.

use std::sync::Arc;
use std::time::Duration;

use super::{Command, CommandId, Completer, DuplicateCommand, HandlerContext, Registry, YieldError};
use crate::process::{Place, Process, SendError, SpawnError, SpawnOptions, spawn_process};
use crate::route::relay::{self, Package};
use crate::route::{self, links};
use crate::{Payload, Pid};

macro_rules! command {
    ($(#[$meta:meta])* $name:ident = $id:literal { $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type),*
        }
        impl Command for $name {
            const ID: CommandId = CommandId($id);
        }
    };
}

command! {
    /// Sends a package. Result: `()`.
    Send = 1 {
        /// What is sent, and to whom. Its sender is the process that asks.
        package: Package,
    }
}
command! {
    /// Ends a process, at its next turn or after the present one. Result: `()`.
    Terminate = 3 {
        /// Which.
        pid: Pid,
        /// Why; its monitors see it.
        reason: Arc<str>,
    }
}
command! {
    /// Asks a process to end ([`crate::Event::Cancel`]), and ends it when the time is up. Result: `()`.
    Cancel = 4 {
        /// Which.
        pid: Pid,
        /// Why.
        reason: Arc<str>,
        /// How long it may take; `None`: as long as it likes.
        deadline: Option<Duration>,
    }
}
command! {
    /// The asking process hears of the end of another, once ([`crate::Event::Exit`]); at once if it has
    /// ended. Result: `()`.
    Monitor = 5 {
        /// Whose end.
        pid: Pid,
    }
}
command! {
    /// Takes a monitor away. Result: `()`.
    Unmonitor = 6 {
        /// Whose end is of no interest any more.
        pid: Pid,
    }
}
command! {
    /// Links the asking process to another: the crash of one takes the other down, unless it traps exits.
    /// Result: `()`.
    Link = 7 {
        /// To which.
        pid: Pid,
    }
}
command! {
    /// Takes a link away. Result: `()`.
    Unlink = 8 {
        /// To which.
        pid: Pid,
    }
}
command! {
    /// Gives a process a name. Result: `()`.
    Register = 10 {
        /// The name.
        name: String,
        /// Whose; usually the asking process's own.
        pid: Pid,
    }
}
command! {
    /// Looks a name up. Result: `Option<Pid>`.
    Lookup = 11 {
        /// The name.
        name: String,
    }
}

type SpawnFn = Box<
    dyn FnOnce(Place<'_>, Option<crate::process::table::ReplyTo>) -> Result<Pid, SpawnError>
        + std::marker::Send,
>;

/// Spawns a process. Result: its [`Pid`], before its `init` has run.
pub struct Spawn {
    spawn: SpawnFn,
}

impl Spawn {
    /// Which process, and how it begins.
    #[must_use]
    pub fn new<P: Process>(process: P, options: SpawnOptions) -> Self {
        Self { spawn: Box::new(move |place, _| spawn_process(place, process, options, None)) }
    }
}

impl Command for Spawn {
    const ID: CommandId = CommandId(2);
}

/// Spawns a process and waits for its end. Result: what it was done with, or why it was not.
pub struct Exec {
    spawn: SpawnFn,
}

impl Exec {
    /// Which process, and how it begins.
    #[must_use]
    pub fn new<P: Process>(process: P, options: SpawnOptions) -> Self {
        Self {
            spawn: Box::new(move |place, reply| {
                let options = match reply {
                    Some(reply) => options.result_to(reply),
                    None => options,
                };
                spawn_process(place, process, options, None)
            }),
        }
    }
}

impl Command for Exec {
    const ID: CommandId = CommandId(9);
}

/// A typed handler: takes `C`, answers at once.
fn answer_at_once<C: Command>(
    act: impl Fn(&HandlerContext<'_>, C) -> Result<Payload, YieldError> + std::marker::Send + Sync + 'static,
) -> impl Fn(&HandlerContext<'_>, Payload, Completer) + std::marker::Send + Sync + 'static {
    move |cx, input, mut completer| {
        let result = cx.input::<C>(input).and_then(|command| act(cx, command));
        completer.complete(result);
    }
}

pub(super) fn add_to(registry: &mut Registry) -> Result<(), DuplicateCommand> {
    let done = || Ok(Payload::empty());
    registry.add(
        Send::ID,
        "process.send",
        Arc::new(answer_at_once(move |cx, Send { package }| {
            relay::send_package(package.from(cx.pid()))?;
            done()
        })),
    )?;
    registry.add(
        Spawn::ID,
        "process.spawn",
        Arc::new(answer_at_once(|cx, Spawn { spawn }| {
            Ok(Payload::new(spawn(Place::Worker(cx.worker, Some(cx.pid)), None)?))
        })),
    )?;
    registry.add(
        Terminate::ID,
        "process.terminate",
        Arc::new(answer_at_once(move |_, Terminate { pid, reason }| {
            route::kill(pid, reason)?;
            done()
        })),
    )?;
    registry.add(
        Cancel::ID,
        "process.cancel",
        Arc::new(answer_at_once(move |_, Cancel { pid, reason, deadline }| {
            route::cancel(pid, reason, deadline)?;
            done()
        })),
    )?;
    registry.add(
        Monitor::ID,
        "process.monitor",
        Arc::new(answer_at_once(move |cx, Monitor { pid }| {
            if pid.node() != 0 {
                return Err(SendError::OtherNode(pid).into());
            }
            links::monitor(cx.pid(), pid);
            done()
        })),
    )?;
    registry.add(
        Unmonitor::ID,
        "process.unmonitor",
        Arc::new(answer_at_once(move |cx, Unmonitor { pid }| {
            links::unmonitor(cx.pid(), pid);
            done()
        })),
    )?;
    registry.add(
        Link::ID,
        "process.link",
        Arc::new(answer_at_once(move |cx, Link { pid }| {
            relay::check_alive(pid)?;
            links::link(cx.pid(), pid)?;
            done()
        })),
    )?;
    registry.add(
        Unlink::ID,
        "process.unlink",
        Arc::new(answer_at_once(move |cx, Unlink { pid }| {
            links::unlink(cx.pid(), pid);
            done()
        })),
    )?;
    registry.add(
        Exec::ID,
        "process.exec",
        Arc::new(|cx: &HandlerContext<'_>, input: Payload, mut completer: Completer| {
            match cx.input::<Exec>(input) {
                Err(error) => {
                    completer.complete(Err(error));
                }
                Ok(Exec { spawn }) => {
                    let place = Place::Worker(cx.worker, Some(cx.pid));
                    let reply = completer.reply_to();
                    match spawn(place, Some(reply)) {
                        // The end of the new process answers.
                        Ok(_) => {
                            completer.into_reply();
                        }
                        Err(error) => {
                            completer.complete(Err(error.into()));
                        }
                    }
                }
            }
        }),
    )?;
    registry.add(
        Register::ID,
        "process.register",
        Arc::new(answer_at_once(move |cx, Register { name, pid }| {
            match cx.engine.names.register(&name, pid) {
                Ok(()) => done(),
                Err(error) => Err(YieldError::Failed(error.into())),
            }
        })),
    )?;
    registry.add(
        Lookup::ID,
        "process.lookup",
        Arc::new(answer_at_once(|cx, Lookup { name }| Ok(Payload::new(cx.engine.names.lookup(&name))))),
    )
}
