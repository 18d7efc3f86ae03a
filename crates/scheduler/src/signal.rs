//! Signals that a task waits for: Ctrl-C, SIGTERM and the others. On Unix only: elsewhere the module is absent.
//!
//! ```no_run
//! use evener_scheduler::{Scheduler, signal};
//! use std::time::Duration;
//!
//! let scheduler = Scheduler::new()?;
//! // ... processes and tasks at work ...
//! scheduler.block_on(signal::ctrl_c())?;
//! println!("{:?}", scheduler.shutdown(Duration::from_secs(5)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How a signal comes
//!
//! The handler, which is `signal-hook`'s, writes a byte to a socket of each listener; the workers hear of it as
//! of any socket, so there is no thread for signals and any number of schedulers may listen. A listener begins
//! to listen where it is made, and loses no signal between two waits; signals that come before it looks again
//! are one. Each listener hears each signal. It takes two descriptors.
//!
//! # What the system did before
//!
//! The first listener for a signal installs the handler, and that stays for good, also when the last listener
//! has gone: from then on Ctrl-C, SIGTERM and so on no longer end the program by themselves. What another part
//! of the program had installed before is called, too.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use signal_hook::SigId;
use signal_hook::low_level::{pipe, unregister};

use crate::poller::source::READ;
use crate::poller::{self, Direction, Registration, Waiting, leaving};

/// Which signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SignalKind(libc::c_int);

macro_rules! kinds {
    ($($name:ident $signal:ident $text:literal)*) => {$(
        #[doc = concat!("`", stringify!($signal), "`: ", $text)]
        #[must_use]
        pub const fn $name() -> Self {
            Self(libc::$signal)
        }
    )*};
}

impl SignalKind {
    kinds! {
        alarm SIGALRM "a timer of the system's has run out."
        child SIGCHLD "a child process has ended, or stopped. To wait for one: [`crate::child`]."
        hangup SIGHUP "the terminal is gone; servers take it as \"read your settings again\"."
        interrupt SIGINT "Ctrl-C; see [`ctrl_c`]."
        pipe SIGPIPE "a write that nobody reads. Rust programs ignore it until somebody listens."
        quit SIGQUIT "Ctrl-\\."
        terminate SIGTERM "somebody asks the program to end; what `kill` and service managers send."
        user_defined1 SIGUSR1 "means what the program says."
        user_defined2 SIGUSR2 "means what the program says; with [`crate::Builder::trace_on_signal`] also a trace."
        window_change SIGWINCH "the terminal has another size."
    }

    /// Any other, by the system's number.
    #[must_use]
    pub const fn from_raw(number: libc::c_int) -> Self {
        Self(number)
    }

    /// The system's number.
    #[must_use]
    pub const fn as_raw(self) -> libc::c_int {
        self.0
    }
}

/// The next Ctrl-C from this call on (not from the first poll).
///
/// The first call in a program takes Ctrl-C away from the system for good: later ones no longer end the program,
/// also when nobody waits for them. To hear each of several, keep a [`signal`] of [`SignalKind::interrupt`]: a
/// Ctrl-C between the end of one of these futures and the next call is heard by nobody.
///
/// # Errors
/// As [`signal`] and [`Signal::recv`].
pub fn ctrl_c() -> impl Future<Output = io::Result<()>> + Send + Unpin {
    let mut listener = Some(signal(SignalKind::interrupt()));
    poll_fn(move |cx| match listener.as_mut().expect("it has ended, and is not polled again") {
        Ok(signal) => {
            let heard = ready!(signal.poll_recv(cx));
            listener = None;
            Poll::Ready(heard)
        }
        Err(_) => Poll::Ready(listener.take().expect("it was there").map(|_| ())),
    })
}

/// Listens for a signal from now on. The first listener for a signal takes it away from the system for good:
/// see the [module](self).
///
/// It may be made anywhere, and belongs to the scheduler in whose task, step or `block_on` it is first waited
/// for.
///
/// # Errors
/// `InvalidInput`: nobody can listen for it (SIGKILL, SIGSTOP), or should (SIGILL, SIGFPE, SIGSEGV), or there is
/// no such signal; the system's, with no descriptors left among them.
pub fn signal(kind: SignalKind) -> io::Result<Signal> {
    if signal_hook::consts::FORBIDDEN.contains(&kind.0) {
        let text = format!("signal {} cannot be listened for", kind.0);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let (ours, handlers) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let id = pipe::register(kind.0, handlers)?;
    Ok(Signal { kind, id, registration: None, waiting: Waiting::default(), is_over: false, ours })
}

/// One listener for a signal; made by [`signal`]. As a stream it has an item for each wait, and ends after an
/// error.
pub struct Signal {
    kind: SignalKind,
    id: SigId,
    /// With the scheduler where it was first waited for. Dropped before the socket is closed.
    registration: Option<Registration>,
    waiting: Waiting,
    is_over: bool,
    ours: UnixStream,
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signal").field(&self.kind).finish()
    }
}

impl Signal {
    /// Waits for the signal; returns at once if it has come since the listener was made, or since it was last
    /// told. A future that is dropped has taken nothing.
    ///
    /// # Errors
    /// There is no scheduler here, or the one where it was first waited for has ended.
    pub async fn recv(&mut self) -> io::Result<()> {
        leaving(self, Self::leave, Self::poll_recv).await
    }

    fn leave(&mut self) {
        if let Some(registration) = &self.registration {
            registration.quit(Direction::Read, &mut self.waiting);
        }
    }

    /// As [`Self::recv`], for a future of your own.
    ///
    /// # Errors
    /// As [`Self::recv`].
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { registration, waiting, ours, .. } = self;
        if registration.is_none() {
            *registration = Some(Registration::new(poller::current()?, ours, READ)?);
        }
        let registration = registration.as_ref().expect("it was just made");
        registration.poll(cx, Direction::Read, waiting, None, || take_all(ours))
    }
}

/// Takes all signals that have come, as one.
fn take_all(mut ours: &UnixStream) -> io::Result<()> {
    let mut bytes = [0; 64];
    let mut has_come = false;
    loop {
        match ours.read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => has_come = true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && has_come => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

impl futures_core::Stream for Signal {
    type Item = io::Result<()>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let heard = ready!(self.poll_recv(cx));
        self.is_over = heard.is_err();
        Poll::Ready(Some(heard))
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        self.leave();
        // Closes the handler's side. The handler itself stays.
        unregister(self.id);
    }
}
