//! The pipes of a child.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};

use crate::poller::source::{READ, WRITE};
use crate::poller::{Direction, Registration, Waiting, leaving, len_of_call};
use crate::route::host::Engine;

/// Bytes of one read of [`Pipe::read_to_end`], at least.
const CHUNK: usize = 8192;
/// And at most: what a pipe of Linux holds by default.
const CHUNK_MAX: usize = 65_536;

/// Bytes of which only the first `len` were read.
struct Rest<'a> {
    bytes: &'a mut Vec<u8>,
    len: usize,
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.bytes.truncate(self.len);
    }
}

/// Our end of a pipe, in one direction. Dropped in this order: out of the poller, then closed.
#[derive(Debug)]
pub(super) struct Pipe {
    direction: Direction,
    waiting: Waiting,
    registration: Registration,
    io: File,
}

impl Pipe {
    fn new(engine: &Arc<Engine>, direction: Direction, fd: OwnedFd) -> io::Result<Self> {
        set_blocking(&fd, false)?;
        let io = File::from(fd);
        let registration = Registration::new(Arc::clone(engine), &io, READ | WRITE)?;
        Ok(Self { direction, waiting: Waiting::default(), registration, io })
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        len: usize,
        mut op: impl FnMut(&File) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let Self { direction, waiting, registration, io } = self;
        registration.poll_bytes(cx, *direction, waiting, None, len, || op(io))
    }

    fn leave(&mut self) {
        self.registration.quit(self.direction, &mut self.waiting);
    }

    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        leaving(self, Self::leave, |pipe, cx| pipe.poll(cx, buf.len(), |mut io| io.read(buf))).await
    }

    async fn read_to_end(&mut self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        let before = bytes.len();
        loop {
            let len = bytes.len();
            bytes.reserve(CHUNK);
            bytes.resize(bytes.capacity().min(len + CHUNK_MAX), 0);
            // What is cut off on the way out, when this future is dropped as well.
            let mut rest = Rest { bytes, len };
            let read = self.read(&mut rest.bytes[len..]).await?;
            rest.len += read;
            drop(rest);
            if read == 0 {
                return Ok(bytes.len() - before);
            }
        }
    }

    fn into_fd(self) -> io::Result<OwnedFd> {
        let fd = self.io.try_clone()?.into();
        set_blocking(&fd, true)?;
        Ok(fd)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.leave();
    }
}

/// (Our end of a pipe is nobody else's: the child does not see it.)
fn set_blocking(fd: &OwnedFd, blocks: bool) -> io::Result<()> {
    // SAFETY: the descriptor is open; no memory is involved.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    let flags = if blocks { flags & !libc::O_NONBLOCK } else { flags | libc::O_NONBLOCK };
    // SAFETY: as above.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// What a child reads. Closed by its drop, or by `close` of the trait.
#[derive(Debug)]
pub struct ChildStdin(Option<Pipe>);

impl ChildStdin {
    pub(super) fn new(engine: &Arc<Engine>, fd: OwnedFd) -> io::Result<Self> {
        Pipe::new(engine, Direction::Write, fd).map(|pipe| Self(Some(pipe)))
    }

    fn pipe(&mut self) -> io::Result<&mut Pipe> {
        self.0.as_mut().ok_or_else(|| io::Error::new(io::ErrorKind::BrokenPipe, "the pipe was closed"))
    }

    /// Writes what there is room for.
    ///
    /// # Errors
    /// `BrokenPipe`: the child reads no more, or this was closed; the system's others; the scheduler has ended.
    pub async fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let poll = |pipe: &mut Pipe, cx: &mut Context<'_>| pipe.poll(cx, buf.len(), |mut io| io.write(buf));
        leaving(self.pipe()?, Pipe::leave, poll).await
    }

    /// Writes it all. If the future is dropped before, part of it may have been written.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn write_all(&mut self, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            let written = self.write(buf).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            buf = &buf[written..];
        }
        Ok(())
    }

    /// The descriptor, which blocks again: to be the stdout of another child, for one.
    ///
    /// # Errors
    /// It was closed; the system's.
    pub fn into_owned_fd(mut self) -> io::Result<OwnedFd> {
        self.pipe()?;
        self.0.take().expect("it was there").into_fd()
    }
}

impl AsyncWrite for ChildStdin {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.pipe()?.poll(cx, buf.len(), |mut io| io.write(buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.pipe()?.poll(cx, len_of_call(bufs), |mut io| io.write_vectored(bufs))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing is kept back here.
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        drop(self.0.take());
        Poll::Ready(Ok(()))
    }
}

macro_rules! reader {
    ($name:ident $what:literal) => {
        #[doc = $what]
        #[derive(Debug)]
        pub struct $name(Pipe);

        impl $name {
            pub(super) fn new(engine: &Arc<Engine>, fd: OwnedFd) -> io::Result<Self> {
                Pipe::new(engine, Direction::Read, fd).map(Self)
            }

            /// Reads what is there, at most as much as fits; 0: the end, or a buffer without room.
            ///
            /// # Errors
            /// The system's; the scheduler has ended.
            pub async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.read(buf).await
            }

            /// Reads to the end, which is when nobody has the other side any more. What was read by a future
            /// that is dropped is in `bytes`.
            ///
            /// # Errors
            /// As [`Self::read`].
            pub async fn read_to_end(&mut self, bytes: &mut Vec<u8>) -> io::Result<usize> {
                self.0.read_to_end(bytes).await
            }

            /// The descriptor, which blocks again: to be the stdin of another child, for one.
            ///
            /// # Errors
            /// The system's.
            pub fn into_owned_fd(self) -> io::Result<OwnedFd> {
                self.0.into_fd()
            }
        }

        impl AsyncRead for $name {
            fn poll_read(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                self.0.poll(cx, buf.len(), |mut io| io.read(buf))
            }

            fn poll_read_vectored(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &mut [IoSliceMut<'_>],
            ) -> Poll<io::Result<usize>> {
                self.0.poll(cx, len_of_call(bufs), |mut io| io.read_vectored(bufs))
            }
        }

        impl AsMut<Pipe> for $name {
            fn as_mut(&mut self) -> &mut Pipe {
                &mut self.0
            }
        }
    };
}

reader!(ChildStdout "What a child writes.");
reader!(ChildStderr "What a child writes when something went wrong.");

/// All that comes from a pipe, if there is one.
pub(super) async fn read_all(mut pipe: Option<impl AsMut<Pipe>>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = &mut pipe {
        pipe.as_mut().read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}
