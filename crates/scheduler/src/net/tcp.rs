//! TCP.

use std::future::poll_fn;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{Domain, Protocol, Type};

use super::addr::resolve;
use super::stream::{End, stream};
use super::{Accepting, Socket, ToAddrs};
use crate::poller::Direction;

/// Connections that wait to be accepted, at most; the system may allow fewer.
const BACKLOG: i32 = 1024;

/// A connection.
#[derive(Debug)]
pub struct TcpStream {
    read: End<std::net::TcpStream>,
    write: End<std::net::TcpStream>,
}

stream!(TcpStream, std::net::TcpStream);

impl TcpStream {
    /// Connects to one of the addresses, tried in their order. A name is looked up on a thread of its own.
    ///
    /// # Errors
    /// Of the last address; of the look-up; there is no scheduler here.
    pub async fn connect(to: impl ToAddrs) -> io::Result<Self> {
        let mut last = None;
        for addr in resolve(to).await? {
            match Self::connect_one(addr, None).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("there is an address"))
    }

    /// As [`Self::connect`] to one address; the peer has so long to answer.
    ///
    /// # Errors
    /// The system's; `TimedOut`; there is no scheduler here.
    pub async fn connect_timeout(to: SocketAddr, limit: Duration) -> io::Result<Self> {
        Self::connect_one(to, Some(limit)).await
    }

    async fn connect_one(to: SocketAddr, limit: Option<Duration>) -> io::Result<Self> {
        let socket = new_socket(to)?;
        match socket.connect(&to.into()) {
            Ok(()) => {}
            Err(error) if is_under_way(&error) => {}
            Err(error) => return Err(error),
        }
        // Registered only now: one that has not begun to connect counts as hung up.
        let socket = Socket::connecting(std::net::TcpStream::from(socket))?;
        let mut wait = socket.wait(Direction::Write, limit);
        poll_fn(|cx| {
            wait.poll(cx, || {
                if let Some(error) = socket.io.take_error()? {
                    return Err(error);
                }
                match socket.io.peer_addr() {
                    // Not yet.
                    Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                        Err(io::ErrorKind::WouldBlock.into())
                    }
                    other => other,
                }
            })
        })
        .await?;
        drop(wait);
        Ok(Self::of(socket))
    }

    /// As [`Self::read`], but what is read stays there.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let core = &self.read.core;
        core.socket.run(Direction::Read, core.limit(Direction::Read), |io| io.peek(buf)).await
    }

    /// Its own address.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io().local_addr()
    }

    /// The peer's address.
    ///
    /// # Errors
    /// The system's; `NotConnected` after a reset.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io().peer_addr()
    }

    /// Is what is written sent at once (`TCP_NODELAY`)?
    ///
    /// # Errors
    /// The system's.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.io().nodelay()
    }

    /// What is written is sent at once, or gathered into fewer packets.
    ///
    /// # Errors
    /// The system's.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.io().set_nodelay(nodelay)
    }

    /// Hops that a packet may make.
    ///
    /// # Errors
    /// The system's.
    pub fn ttl(&self) -> io::Result<u32> {
        self.io().ttl()
    }

    /// Sets the hops that a packet may make.
    ///
    /// # Errors
    /// The system's.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.io().set_ttl(ttl)
    }

    /// What a close does with bytes that were not sent yet: `None`: they are sent in the background; zero:
    /// they are thrown away, and the peer sees a reset. (Longer waits would block the thread that closes.)
    ///
    /// # Errors
    /// The system's; `InvalidInput` for a limit that is not zero.
    pub fn set_linger(&self, limit: Option<Duration>) -> io::Result<()> {
        if limit.is_some_and(|limit| !limit.is_zero()) {
            let text = "a close that waits would block a worker";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        socket2::SockRef::from(self.io()).set_linger(limit)
    }
}

impl OwnedReadHalf {
    /// The peer's address.
    ///
    /// # Errors
    /// The system's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.read.core.socket.io.peer_addr()
    }
}

impl OwnedWriteHalf {
    /// Ends the writing: the peer reads to the end.
    ///
    /// # Errors
    /// The system's.
    pub fn shutdown(&self) -> io::Result<()> {
        self.write.core.socket.io.shutdown(Shutdown::Write)
    }
}

fn new_socket(addr: SocketAddr) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Has a connect begun that will go on by itself?
fn is_under_way(error: &io::Error) -> bool {
    #[cfg(unix)]
    let is_in_progress = error.raw_os_error() == Some(libc::EINPROGRESS);
    #[cfg(not(unix))]
    let is_in_progress = false;
    // Interrupted, it goes on too.
    is_in_progress || matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Accepts connections.
#[derive(Debug)]
pub struct TcpListener {
    socket: Socket<std::net::TcpListener>,
}

impl TcpListener {
    /// Listens at the first of the addresses that is free. Port 0 is one that the system chooses. On Unix an
    /// address of which old connections are only just closing counts as free (`SO_REUSEADDR`).
    ///
    /// # Errors
    /// Of the last address; of the look-up; there is no scheduler here.
    pub async fn bind(to: impl ToAddrs) -> io::Result<Self> {
        let mut last = None;
        for addr in resolve(to).await? {
            match Self::bind_one(addr) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("there is an address"))
    }

    fn bind_one(addr: SocketAddr) -> io::Result<Self> {
        let socket = new_socket(addr)?;
        #[cfg(unix)]
        socket.set_reuse_address(true)?;
        socket.bind(&addr.into())?;
        socket.listen(BACKLOG)?;
        Ok(Self { socket: Socket::new(std::net::TcpListener::from(socket))? })
    }

    /// Takes a socket that listens, and makes it one that does not block.
    ///
    /// # Errors
    /// The system's; there is no scheduler here.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { socket: Socket::new(listener)? })
    }

    /// Gives the socket back, out of the poller. It still does not block.
    #[must_use]
    pub fn into_std(self) -> std::net::TcpListener {
        self.socket.into_inner()
    }

    /// The next connection, which belongs to the scheduler of the task that accepts. Connections that were
    /// lost before they were taken are gone over. While the program has no descriptors left it pauses, for a
    /// millisecond at first, then for twice as long each time, at most for a second; pauses are counted
    /// ([`crate::PollerStats::accept_pauses`]).
    ///
    /// # Errors
    /// Others of the system's; there is no scheduler here.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let mut accepting = Accepting::new(&self.socket);
        let (stream, addr) = poll_fn(|cx| accepting.poll(cx, || self.accept_now())).await?;
        Ok((TcpStream::of(Socket::new(stream)?), addr))
    }

    fn accept_now(&self) -> io::Result<(std::net::TcpStream, SocketAddr)> {
        let (stream, addr) = self.socket.io.accept()?;
        stream.set_nonblocking(true)?;
        Ok((stream, addr))
    }

    /// The connections as a stream without end.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self, accepting: Accepting::new(&self.socket) }
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.io.local_addr()
    }

    /// Hops that a packet of its connections may make.
    ///
    /// # Errors
    /// The system's.
    pub fn ttl(&self) -> io::Result<u32> {
        self.socket.io.ttl()
    }

    /// Sets the hops that a packet of its connections may make.
    ///
    /// # Errors
    /// The system's.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.socket.io.set_ttl(ttl)
    }
}

/// The connections of a [`TcpListener`].
pub struct Incoming<'a> {
    listener: &'a TcpListener,
    accepting: Accepting<'a>,
}

impl std::fmt::Debug for Incoming<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Incoming").field(self.listener).finish()
    }
}

impl Incoming<'_> {
    /// The next one; as [`TcpListener::accept`].
    ///
    /// # Errors
    /// As [`TcpListener::accept`].
    pub async fn next(&mut self) -> io::Result<TcpStream> {
        poll_fn(|cx| self.poll_one(cx)).await
    }

    fn poll_one(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        let listener = self.listener;
        self.accepting
            .poll(cx, || listener.accept_now())
            .map(|accepted| accepted.and_then(|(stream, _)| Ok(TcpStream::of(Socket::new(stream)?))))
    }
}

impl futures_core::Stream for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_one(cx).map(Some)
    }
}
