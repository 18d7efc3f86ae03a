//! The end of a child, heard by a pidfd or by SIGCHLD.

use std::io;
use std::process::{self, ExitStatus};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::route::host::Engine;
use crate::signal::{Signal, SignalKind, signal};

/// A child, and what tells of its end.
#[derive(Debug)]
pub(super) struct Exit {
    pub(super) ending: Ending,
    pub(super) child: process::Child,
}

#[derive(Debug)]
pub(super) enum Ending {
    #[cfg(target_os = "linux")]
    Pidfd(pidfd::Pidfd),
    /// A listener, for the time of a wait.
    Signal(Option<Signal>),
}

impl Exit {
    pub(super) fn of(child: process::Child, engine: &Arc<Engine>) -> Self {
        #[cfg(target_os = "linux")]
        if let Ok(pidfd) = pidfd::Pidfd::open(&child, engine) {
            return Self { ending: Ending::Pidfd(pidfd), child };
        }
        let _ = engine;
        Self { ending: Ending::Signal(None), child }
    }

    /// Kills the child; nothing if it has ended.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        match &self.ending {
            // By the descriptor: somebody else in the program may have reaped it, and its number may be another's.
            #[cfg(target_os = "linux")]
            Ending::Pidfd(pidfd) => pidfd.kill(),
            Ending::Signal(_) => self.child.kill(),
        }
    }

    /// Nobody waits any more.
    pub(super) fn leave(&mut self) {
        match &mut self.ending {
            #[cfg(target_os = "linux")]
            Ending::Pidfd(pidfd) => pidfd.leave(),
            Ending::Signal(listener) => *listener = None,
        }
    }

    /// The status of the child when it has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<ExitStatus>> {
        let child = &mut self.child;
        match &mut self.ending {
            #[cfg(target_os = "linux")]
            Ending::Pidfd(pidfd) => pidfd.poll(cx, child),
            Ending::Signal(listener) => loop {
                // It listens before the look: an end after the look is heard.
                let listener = match listener {
                    Some(listener) => listener,
                    None => listener.insert(signal(SignalKind::child())?),
                };
                if let Some(status) = child.try_wait()? {
                    return Poll::Ready(Ok(status));
                }
                ready!(listener.poll_recv(cx))?;
            },
        }
    }
}

#[cfg(target_os = "linux")]
pub(super) mod pidfd {
    //! A descriptor that is readable when its process has ended.

    use std::io;
    use std::os::fd::OwnedFd;
    use std::process::{self, ExitStatus};
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use rustix::io::Errno;
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

    use crate::poller::source::READ;
    use crate::poller::{Direction, Registration, Waiting};
    use crate::route::host::Engine;

    #[derive(Debug)]
    pub(in crate::child) struct Pidfd {
        /// Dropped before the descriptor is closed.
        registration: Registration,
        waiting: Waiting,
        fd: OwnedFd,
    }

    #[cfg(test)]
    thread_local! {
        /// As if the system had none.
        pub(in crate::child) static IS_MISSING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }

    impl Pidfd {
        pub(super) fn open(child: &process::Child, engine: &Arc<Engine>) -> io::Result<Self> {
            #[cfg(test)]
            if IS_MISSING.get() {
                return Err(io::ErrorKind::Unsupported.into());
            }
            // The number is the child's: nobody has taken its status yet.
            let fd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
            let registration = Registration::new(Arc::clone(engine), &fd, READ)?;
            Ok(Self { registration, waiting: Waiting::default(), fd })
        }

        pub(super) fn kill(&self) -> io::Result<()> {
            match pidfd_send_signal(&self.fd, Signal::KILL) {
                Err(Errno::SRCH) => Ok(()),
                other => Ok(other?),
            }
        }

        pub(super) fn leave(&mut self) {
            self.registration.quit(Direction::Read, &mut self.waiting);
        }

        pub(super) fn poll(
            &mut self,
            cx: &mut Context<'_>,
            child: &mut process::Child,
        ) -> Poll<io::Result<ExitStatus>> {
            let Self { registration, waiting, .. } = self;
            registration.poll(cx, Direction::Read, waiting, None, || status(child))
        }

        /// As [`Self::poll`], for one who is no task: `waker` is woken at the end, or when the scheduler ends.
        pub(in crate::child) fn poll_as_nobody(
            &mut self,
            waker: &Waker,
            child: &mut process::Child,
        ) -> Poll<io::Result<ExitStatus>> {
            let Self { registration, waiting, .. } = self;
            registration.poll_as_nobody(waker, Direction::Read, waiting, || status(child))
        }
    }

    impl Drop for Pidfd {
        fn drop(&mut self) {
            self.leave();
        }
    }

    fn status(child: &mut process::Child) -> io::Result<ExitStatus> {
        child.try_wait()?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }
}
