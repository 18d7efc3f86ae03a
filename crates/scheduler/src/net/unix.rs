//! Sockets of the Unix domain.

use std::future::poll_fn;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net as std_unix;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{Domain, SockAddr, Type};

use super::stream::{End, stream};
use super::{Accepting, Socket};
use crate::poller::{self, Direction, Timer};

/// A connection.
#[derive(Debug)]
pub struct UnixStream {
    read: End<std_unix::UnixStream>,
    write: End<std_unix::UnixStream>,
}

stream!(UnixStream, std_unix::UnixStream);

/// The first pause of a connect whose listener has no room for it; each is twice as long as the one before.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_millis(50);

impl UnixStream {
    /// Connects to a listener. While that has as many connections waiting as it wants, this tries again after
    /// a millisecond, then after twice as long each time, at most 50 ms: the system does not tell when there
    /// is room.
    ///
    /// # Errors
    /// The system's; there is no scheduler here.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        let addr = SockAddr::unix(path)?;
        let hub = poller::current()?.hub;
        let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        let mut next_pause = PAUSE_MIN;
        let mut pause: Option<Timer> = None;
        poll_fn(|cx| {
            loop {
                if let Some(timer) = &mut pause {
                    ready!(timer.poll(cx))?;
                    pause = None;
                }
                match socket.connect(&addr) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        pause = Some(Timer::after(hub, next_pause));
                        next_pause = (next_pause * 2).min(PAUSE_MAX);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
                        return Poll::Ready(Ok(()));
                    }
                    other => return Poll::Ready(other),
                }
            }
        })
        .await?;
        Ok(Self::of(Socket::new(std_unix::UnixStream::from(OwnedFd::from(socket)))?))
    }

    /// Two streams that are connected with each other.
    ///
    /// # Errors
    /// The system's; there is no scheduler here.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = std_unix::UnixStream::pair()?;
        Ok((Self::from_std(one)?, Self::from_std(other)?))
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
    /// The system's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io().peer_addr()
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

/// Accepts connections.
#[derive(Debug)]
pub struct UnixListener {
    socket: Socket<std_unix::UnixListener>,
}

impl UnixListener {
    /// Listens at a path, where there must be nothing yet. The path stays when the listener is gone.
    ///
    /// # Errors
    /// The system's; there is no scheduler here.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_std(std_unix::UnixListener::bind(path)?)
    }

    /// Takes a socket that listens, and makes it one that does not block.
    ///
    /// # Errors
    /// The system's; there is no scheduler here.
    pub fn from_std(listener: std_unix::UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { socket: Socket::new(listener)? })
    }

    /// Gives the socket back, out of the poller. It still does not block.
    #[must_use]
    pub fn into_std(self) -> std_unix::UnixListener {
        self.socket.into_inner()
    }

    /// The next connection; as [`super::TcpListener::accept`].
    ///
    /// # Errors
    /// As there.
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let mut accepting = Accepting::new(&self.socket);
        let (stream, addr) = poll_fn(|cx| accepting.poll(cx, || self.accept_now())).await?;
        Ok((UnixStream::of(Socket::new(stream)?), addr))
    }

    fn accept_now(&self) -> io::Result<(std_unix::UnixStream, SocketAddr)> {
        let (stream, addr) = self.socket.io.accept()?;
        stream.set_nonblocking(true)?;
        Ok((stream, addr))
    }

    /// The connections as a stream without end.
    pub fn incoming(&self) -> UnixIncoming<'_> {
        UnixIncoming { listener: self, accepting: Accepting::new(&self.socket) }
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.io.local_addr()
    }
}

/// The connections of a [`UnixListener`].
pub struct UnixIncoming<'a> {
    listener: &'a UnixListener,
    accepting: Accepting<'a>,
}

impl std::fmt::Debug for UnixIncoming<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("UnixIncoming").field(self.listener).finish()
    }
}

impl UnixIncoming<'_> {
    /// The next one; as [`UnixListener::accept`].
    ///
    /// # Errors
    /// As [`UnixListener::accept`].
    pub async fn next(&mut self) -> io::Result<UnixStream> {
        poll_fn(|cx| self.poll_one(cx)).await
    }

    fn poll_one(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        let listener = self.listener;
        self.accepting
            .poll(cx, || listener.accept_now())
            .map(|accepted| accepted.and_then(|(stream, _)| Ok(UnixStream::of(Socket::new(stream)?))))
    }
}

impl futures_core::Stream for UnixIncoming<'_> {
    type Item = io::Result<UnixStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_one(cx).map(Some)
    }
}

/// Sends and receives packets.
#[derive(Debug)]
pub struct UnixDatagram {
    socket: Socket<std_unix::UnixDatagram>,
}

impl UnixDatagram {
    /// A socket at a path, where there must be nothing yet. The path stays when the socket is gone.
    ///
    /// # Errors
    /// The system's; there is no scheduler here.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_std(std_unix::UnixDatagram::bind(path)?)
    }

    /// A socket without an address.
    ///
    /// # Errors
    /// The system's; there is no scheduler here.
    pub fn unbound() -> io::Result<Self> {
        Self::from_std(std_unix::UnixDatagram::unbound()?)
    }

    /// Two sockets that are connected with each other.
    ///
    /// # Errors
    /// The system's; there is no scheduler here.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = std_unix::UnixDatagram::pair()?;
        Ok((Self::from_std(one)?, Self::from_std(other)?))
    }

    /// Takes a socket, and makes it one that does not block.
    ///
    /// # Errors
    /// The system's; there is no scheduler here.
    pub fn from_std(socket: std_unix::UnixDatagram) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket: Socket::new(socket)? })
    }

    /// Gives the socket back, out of the poller. It still does not block.
    #[must_use]
    pub fn into_std(self) -> std_unix::UnixDatagram {
        self.socket.into_inner()
    }

    /// From now on it sends to that path.
    ///
    /// # Errors
    /// The system's.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.socket.io.connect(path)
    }

    /// Sends a packet to whom it is connected to.
    ///
    /// # Errors
    /// The system's.
    pub async fn send(&self, packet: &[u8]) -> io::Result<usize> {
        self.socket.run(Direction::Write, None, |io| io.send(packet)).await
    }

    /// Sends a packet to a path, of a socket to which this one is not connected. While the receiver has no
    /// room this tries again as [`UnixStream::connect`] does: the system tells of room only those who are
    /// connected.
    ///
    /// # Errors
    /// The system's.
    pub async fn send_to(&self, packet: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let path = path.as_ref();
        let hub = self.socket.registration.engine().hub;
        let mut next_pause = PAUSE_MIN;
        let mut pause: Option<Timer> = None;
        let mut wait = self.socket.wait(Direction::Write, None);
        poll_fn(|cx| {
            loop {
                if let Some(timer) = &mut pause {
                    ready!(timer.poll(cx))?;
                    pause = None;
                }
                let mut is_full = false;
                let sent = wait.poll(cx, || {
                    let sent = self.socket.io.send_to(packet, path);
                    is_full = sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
                    // Not this socket's readiness, which would be waited for in vain.
                    if is_full { Ok(0) } else { sent }
                });
                if !is_full {
                    return sent;
                }
                pause = Some(Timer::after(hub, next_pause));
                next_pause = (next_pause * 2).min(PAUSE_MAX);
            }
        })
        .await
    }

    /// Receives a packet. What does not fit is lost.
    ///
    /// # Errors
    /// The system's.
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.run(Direction::Read, None, |io| io.recv(buf)).await
    }

    /// Receives a packet and its sender's address. What does not fit is lost.
    ///
    /// # Errors
    /// The system's.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket.run(Direction::Read, None, |io| io.recv_from(buf)).await
    }

    /// Its own address.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.io.local_addr()
    }

    /// Ends reading, writing or both; who waits for that is woken.
    ///
    /// # Errors
    /// The system's.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.io.shutdown(how)
    }
}
