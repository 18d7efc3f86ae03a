//! Sockets that a task waits for without a thread.
//!
//! A socket belongs to the scheduler in whose task, step or [`block_on`](crate::Scheduler::block_on) it was
//! made, whose workers hear of its readiness; any task may use it. Made anywhere else it is an error.
//!
//! ```
//! use evener_scheduler::net::{TcpListener, TcpStream};
//! use evener_scheduler::{Scheduler, task};
//!
//! let scheduler = Scheduler::new()?;
//! scheduler.block_on(async {
//!     let listener = TcpListener::bind("127.0.0.1:0").await?;
//!     let to = listener.local_addr()?;
//!     task::spawn(async move {
//!         let (stream, _) = listener.accept().await?;
//!         stream.write_all(b"hello").await
//!     });
//!     let stream = TcpStream::connect(to).await?;
//!     let mut buf = [0; 5];
//!     stream.read_exact(&mut buf).await?;
//!     assert_eq!(&buf, b"hello");
//!     Ok::<(), std::io::Error>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Every operation first tries, and waits only if it must. Any number of tasks may wait for one socket
//! through `&self`; the streams have the traits of `futures-io`, too, for one reader and one writer. A future
//! that is dropped leaves nothing behind: what it was to read is still there, and of what it was to write
//! nothing was written.
//!
//! A socket that outlives its scheduler goes on as long as it needs not wait; then its operations fail.
//!
//! # Errors
//! Those of the system. Beside them: [`std::io::ErrorKind::TimedOut`] after a limit that was set; `Other`
//! where there is no scheduler, or none any more.

mod addr;
mod stream;
mod tcp;
#[cfg(feature = "tokio-io")]
mod tokio_io;
mod udp;
#[cfg(unix)]
mod unix;

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

pub use addr::ToAddrs;
pub use tcp::{Incoming, OwnedReadHalf, OwnedWriteHalf, TcpListener, TcpStream};
#[cfg(feature = "tokio-io")]
pub use tokio_io::TokioIo;
pub use udp::UdpSocket;
#[cfg(unix)]
pub use unix::{
    OwnedReadHalf as UnixOwnedReadHalf, OwnedWriteHalf as UnixOwnedWriteHalf, UnixDatagram, UnixIncoming,
    UnixListener, UnixStream,
};

use crate::poller::source::{READ, WRITE};
use crate::poller::{self, Descriptor, Direction, Registration, Timer, Waiting};

/// A socket and its place in a poller. The fields are dropped in this order: out of the poller, then closed.
#[derive(Debug)]
struct Socket<S> {
    registration: Registration,
    io: S,
}

impl<S: Descriptor> Socket<S> {
    /// Takes a socket that does not block; it is tried before it is waited for.
    fn new(io: S) -> io::Result<Self> {
        Self::with_bits(io, READ | WRITE)
    }

    /// As [`Self::new`]; nothing is known yet of its readiness.
    fn connecting(io: S) -> io::Result<Self> {
        Self::with_bits(io, 0)
    }

    fn with_bits(io: S, bits: u64) -> io::Result<Self> {
        Ok(Self { registration: Registration::new(poller::current()?, &io, bits)?, io })
    }

    fn into_inner(self) -> S {
        self.io
    }

    fn wait(&self, direction: Direction, limit: Option<Duration>) -> Wait<'_> {
        Wait { registration: &self.registration, direction, limit, waiting: Waiting::default() }
    }

    /// Tries `op` till it need not wait.
    async fn run<R>(
        &self,
        direction: Direction,
        limit: Option<Duration>,
        mut op: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        let mut wait = self.wait(direction, limit);
        poll_fn(|cx| wait.poll(cx, || op(&self.io))).await
    }

    /// As [`Self::run`] for up to `len` bytes of a stream.
    async fn run_bytes(
        &self,
        direction: Direction,
        limit: Option<Duration>,
        len: usize,
        mut op: impl FnMut(&S) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut wait = self.wait(direction, limit);
        poll_fn(|cx| wait.poll_bytes(cx, len, || op(&self.io))).await
    }

    /// Tries `op` once, if the socket may be ready.
    fn try_run<R>(&self, direction: Direction, op: impl FnOnce(&S) -> io::Result<R>) -> io::Result<R> {
        let seen = self.registration.seen();
        let result = op(&self.io);
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.registration.clear(seen, direction);
        }
        result
    }

    /// Waits till a try makes sense.
    async fn ready(&self, direction: Direction) -> io::Result<()> {
        let mut wait = self.wait(direction, None);
        poll_fn(|cx| wait.poll(cx, || Ok(()))).await
    }
}

/// One wait of a future: gone when the future is.
struct Wait<'a> {
    registration: &'a Registration,
    direction: Direction,
    limit: Option<Duration>,
    waiting: Waiting,
}

impl Wait<'_> {
    fn poll<R>(&mut self, cx: &mut Context<'_>, op: impl FnMut() -> io::Result<R>) -> Poll<io::Result<R>> {
        self.registration.poll(cx, self.direction, &mut self.waiting, self.limit, op)
    }

    fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
        len: usize,
        op: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.registration.poll_bytes(cx, self.direction, &mut self.waiting, self.limit, len, op)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.registration.quit(self.direction, &mut self.waiting);
    }
}

// ------------------------------------------------------------------ listeners

/// The first pause of a listener when the program has no descriptors left; each is twice as long as the one
/// before.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// One accept: goes over connections that were lost before they were taken, and pauses while there are no
/// descriptors.
struct Accepting<'a> {
    wait: Wait<'a>,
    pause: Option<Timer>,
    next_pause: Duration,
}

impl<'a> Accepting<'a> {
    fn new<S: Descriptor>(socket: &'a Socket<S>) -> Self {
        Self { wait: socket.wait(Direction::Read, None), pause: None, next_pause: PAUSE_MIN }
    }

    fn poll<R>(
        &mut self,
        cx: &mut Context<'_>,
        mut accept: impl FnMut() -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.poll(cx))?;
                self.pause = None;
            }
            match ready!(self.wait.poll(cx, &mut accept)) {
                Err(error) if is_of_the_connection(&error) => {}
                Err(error) if is_exhaustion(&error) => {
                    let hub = self.wait.registration.engine().hub;
                    hub.poller.note_accept_pause();
                    self.pause = Some(Timer::after(hub, self.next_pause));
                    self.next_pause = (self.next_pause * 2).min(PAUSE_MAX);
                }
                other => {
                    self.next_pause = PAUSE_MIN;
                    return Poll::Ready(other);
                }
            }
        }
    }
}

/// Did the connection fail before it was taken? The next may be well. (The list is that of accept(2).)
#[cfg(unix)]
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::ECONNRESET
                | libc::EPROTO
                | libc::EPERM
                | libc::ENETDOWN
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::EOPNOTSUPP
                | libc::ENETUNREACH
                | libc::ETIMEDOUT
        )
    )
}

#[cfg(not(unix))]
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

/// Has the program, or the system, no descriptors or no memory for one more socket?
#[cfg(unix)]
fn is_exhaustion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

#[cfg(not(unix))]
fn is_exhaustion(error: &io::Error) -> bool {
    // WSAEMFILE, WSAENOBUFS.
    matches!(error.raw_os_error(), Some(10024 | 10055)) || error.kind() == io::ErrorKind::OutOfMemory
}
