//! Child processes that a task waits for without a thread. On Unix only: elsewhere the module is absent.
//!
//! (A [`crate::Process`] is something else: what the scheduler runs.)
//!
//! ```
//! use evener_scheduler::child::Command;
//! use evener_scheduler::Scheduler;
//!
//! let scheduler = Scheduler::new()?;
//! scheduler.block_on(async {
//!     let output = Command::new("echo").arg("hello").output().await?;
//!     assert!(output.status.success());
//!     assert_eq!(output.stdout, b"hello\n");
//!     Ok::<(), std::io::Error>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A child belongs to the scheduler in whose task, step or [`block_on`](crate::Scheduler::block_on) it was
//! started, whose workers hear of its end and of its pipes as they hear of sockets. The start itself runs as a
//! closure that may block ([`crate::blocking`]).
//!
//! # How its end is heard
//!
//! On Linux by a *pidfd*, a descriptor that becomes readable when the process has ended (since 5.3). Where there
//! is none, by a listener for SIGCHLD ([`crate::signal`]), which is installed then. `async-process` was looked at
//! first: it hears of both by threads of its own, where here readiness needs no other thread.
//!
//! # Nothing is left behind
//!
//! A child whose [`Child`] is dropped runs on, unless [`Command::kill_on_drop`] was asked for; in either case the
//! workers take its status when it ends, so that it does not remain as a zombie. Where that cannot be (there is
//! no pidfd, or the scheduler ends before the child does) its status is taken when the program next starts a
//! child, or drops one.

mod exit;
mod orphans;
mod pipe;

use std::ffi::OsStr;
use std::future::{Future, poll_fn};
use std::io;
use std::path::Path;
use std::pin::pin;
use std::process;
pub use std::process::{ExitStatus, Output, Stdio};
use std::task::Poll;

pub use pipe::{ChildStderr, ChildStdin, ChildStdout};

use crate::blocking;
use crate::poller::{self, leaving};
use exit::Exit;
use pipe::read_all;

/// A program to start, with its arguments and surroundings; [`std::process::Command`] with ends that can be
/// waited for. What is not here (user, process group, what runs before the program) is set by
/// [`Self::as_std_mut`].
#[derive(Debug)]
pub struct Command {
    std: process::Command,
    /// Which of stdin, stdout and stderr were set here.
    is_set: [bool; 3],
    kills_on_drop: bool,
}

impl From<process::Command> for Command {
    /// [`Self::output`] takes its stdin, stdout and stderr for not set.
    fn from(std: process::Command) -> Self {
        Self { std, is_set: [false; 3], kills_on_drop: false }
    }
}

impl Command {
    /// A program by its path, or by its name to be looked for in `PATH`.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        process::Command::new(program).into()
    }

    /// One more argument.
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Self {
        self.std.arg(arg);
        self
    }

    /// More arguments.
    pub fn args(&mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> &mut Self {
        self.std.args(args);
        self
    }

    /// Sets a variable of its environment.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.std.env(name, value);
        self
    }

    /// Sets variables of its environment.
    pub fn envs(
        &mut self,
        variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
    ) -> &mut Self {
        self.std.envs(variables);
        self
    }

    /// It does not inherit this variable.
    pub fn env_remove(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.std.env_remove(name);
        self
    }

    /// It inherits no variable.
    pub fn env_clear(&mut self) -> &mut Self {
        self.std.env_clear();
        self
    }

    /// The folder that it starts in.
    pub fn current_dir(&mut self, dir: impl AsRef<Path>) -> &mut Self {
        self.std.current_dir(dir);
        self
    }

    /// Where it reads; by default where this program does.
    pub fn stdin(&mut self, stdin: impl Into<Stdio>) -> &mut Self {
        self.std.stdin(stdin);
        self.is_set[0] = true;
        self
    }

    /// Where it writes; by default where this program does.
    pub fn stdout(&mut self, stdout: impl Into<Stdio>) -> &mut Self {
        self.std.stdout(stdout);
        self.is_set[1] = true;
        self
    }

    /// Where it writes what went wrong; by default where this program does.
    pub fn stderr(&mut self, stderr: impl Into<Stdio>) -> &mut Self {
        self.std.stderr(stderr);
        self.is_set[2] = true;
        self
    }

    /// Whether the drop of its [`Child`], and of the futures of [`Self::output`] and [`Self::status`], kills it;
    /// by default not.
    pub fn kill_on_drop(&mut self, kills: bool) -> &mut Self {
        self.kills_on_drop = kills;
        self
    }

    /// The command of the standard library.
    #[must_use]
    pub fn as_std(&self) -> &process::Command {
        &self.std
    }

    /// The command of the standard library, for what cannot be set here.
    pub fn as_std_mut(&mut self) -> &mut process::Command {
        &mut self.std
    }

    /// The command of the standard library.
    #[must_use]
    pub fn into_std(self) -> process::Command {
        self.std
    }

    /// Starts it.
    ///
    /// # Errors
    /// The system's, with the program's name in the text: `NotFound`, `PermissionDenied`, no descriptors or
    /// processes left, and so on (the system's own error is the [source](std::error::Error::source)); there is
    /// no scheduler here, and then nothing was started.
    pub fn spawn(&mut self) -> io::Result<Child> {
        let engine = poller::current()?;
        orphans::look();
        let std = blocking(|| self.std.spawn()).map_err(|error| self.error(error))?;
        let mut child = Child {
            kills_on_drop: true,
            stdin: None,
            stdout: None,
            stderr: None,
            exit: Some(Exit::of(std, &engine)),
        };
        // From here on an error kills it: nobody would hear of its end.
        let std = &mut child.exit.as_mut().expect("it was just made").child;
        let (stdin, stdout, stderr) = (std.stdin.take(), std.stdout.take(), std.stderr.take());
        let pipes = || {
            child.stdin = stdin.map(|pipe| ChildStdin::new(&engine, pipe.into())).transpose()?;
            child.stdout = stdout.map(|pipe| ChildStdout::new(&engine, pipe.into())).transpose()?;
            child.stderr = stderr.map(|pipe| ChildStderr::new(&engine, pipe.into())).transpose()?;
            Ok(())
        };
        pipes().map_err(|error| self.error(error))?;
        child.kills_on_drop = self.kills_on_drop;
        Ok(child)
    }

    /// Starts it, when first polled, and waits for its end. What it writes goes where it was told to; what is a
    /// pipe is closed.
    ///
    /// # Errors
    /// As [`Self::spawn`] and [`Child::wait`].
    pub async fn status(&mut self) -> io::Result<ExitStatus> {
        let mut child = self.spawn()?;
        drop((child.stdout.take(), child.stderr.take()));
        child.wait().await
    }

    /// Starts it, when first polled, reads what it writes, and waits for its end. A stdin that was not set here is
    /// empty; stdout and stderr that were not set here are read. (What was set before this was made of a
    /// [`process::Command`] cannot be known: it counts as not set.)
    ///
    /// # Errors
    /// As [`Self::spawn`] and [`Child::wait_with_output`].
    pub async fn output(&mut self) -> io::Result<Output> {
        self.set_the_others(Stdio::null, Stdio::piped);
        let spawned = self.spawn();
        // For this time only.
        self.set_the_others(Stdio::inherit, Stdio::inherit);
        spawned?.wait_with_output().await
    }

    /// Sets what was not set.
    fn set_the_others(&mut self, reads: fn() -> Stdio, writes: fn() -> Stdio) {
        let [stdin, stdout, stderr] = self.is_set;
        if !stdin {
            self.std.stdin(reads());
        }
        if !stdout {
            self.std.stdout(writes());
        }
        if !stderr {
            self.std.stderr(writes());
        }
    }

    fn error(&self, source: io::Error) -> io::Error {
        let mut program = format!("{:?}", self.std.get_program());
        if let Some(dir) = self.std.get_current_dir() {
            program += &format!(" in {dir:?}");
        }
        io::Error::new(source.kind(), NotStarted { program, source })
    }
}

/// The text of an error of [`Command::spawn`].
#[derive(Debug, thiserror::Error)]
#[error("could not start {program}: {source}")]
struct NotStarted {
    program: String,
    source: io::Error,
}

/// A child process. Dropped before its end it runs on, unless it is to be [killed](Command::kill_on_drop).
#[derive(Debug)]
pub struct Child {
    kills_on_drop: bool,
    /// Its stdin, if that is a pipe and was not taken.
    pub stdin: Option<ChildStdin>,
    /// Its stdout, if that is a pipe and was not taken.
    pub stdout: Option<ChildStdout>,
    /// Its stderr, if that is a pipe and was not taken.
    pub stderr: Option<ChildStderr>,
    /// There till the drop.
    exit: Option<Exit>,
}

impl Child {
    fn exit(&mut self) -> &mut Exit {
        self.exit.as_mut().expect("there till the drop")
    }

    /// The system's number of the process. Another process may have it once the status was told.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.exit.as_ref().expect("there till the drop").child.id()
    }

    /// Waits for its end. Its [stdin](Self::stdin), if still here, is closed before, so that it does not wait
    /// for more. The future may be dropped and the wait begun again; after the end it returns at once.
    ///
    /// # Errors
    /// The system's; the scheduler has ended.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        leaving(self.exit(), Exit::leave, Exit::poll).await
    }

    /// The status, if it has ended.
    ///
    /// # Errors
    /// The system's.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.exit().child.try_wait()
    }

    /// Kills it (SIGKILL); it remains to be waited for. After its end this does nothing.
    ///
    /// # Errors
    /// The system's.
    pub fn kill(&mut self) -> io::Result<()> {
        self.exit().kill()
    }

    /// Reads its stdout and stderr to their ends, both at a time, as far as they are pipes and still here, and
    /// waits for its end; its stdin is closed before. A pipe ends when nobody has its other side any more, the
    /// child's own children included.
    ///
    /// # Errors
    /// As [`Self::wait`]; those of the pipes.
    pub async fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let (stdout, stderr) = both(read_all(stdout), read_all(stderr)).await;
        let status = self.wait().await?;
        Ok(Output { status, stdout: stdout?, stderr: stderr? })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(mut exit) = self.exit.take() {
            if self.kills_on_drop {
                // It fails if it has ended, and that is as well.
                let _ = exit.kill();
            }
            orphans::leave(exit);
        }
    }
}

/// Both, each polled whenever one is woken.
async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut a, mut b) = (None, None);
    poll_fn(|cx| {
        if a.is_none()
            && let Poll::Ready(value) = one.as_mut().poll(cx)
        {
            a = Some(value);
        }
        if b.is_none()
            && let Poll::Ready(value) = other.as_mut().poll(cx)
        {
            b = Some(value);
        }
        match (a.take(), b.take()) {
            (Some(one), Some(other)) => Poll::Ready((one, other)),
            (one, other) => {
                (a, b) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}
