//! What the two kinds of streams share: the two ends of a stream, limits of time, the traits.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::Socket;
use crate::poller::{Descriptor, Direction, Waiting, len_of_call};
use crate::sync::{AtomicU64, Relaxed};

const NO_LIMIT: u64 = u64::MAX;

/// A connected stream.
#[derive(Debug)]
pub(super) struct Core<S> {
    pub(super) socket: Socket<S>,
    /// For reads and for writes, in nanoseconds.
    limits: [AtomicU64; 2],
}

impl<S: Descriptor> Core<S> {
    pub(super) fn new(socket: Socket<S>) -> Self {
        Self { socket, limits: [AtomicU64::new(NO_LIMIT), AtomicU64::new(NO_LIMIT)] }
    }

    pub(super) fn limit(&self, direction: Direction) -> Option<Duration> {
        let nanos = self.limits[direction as usize].load(Relaxed);
        (nanos != NO_LIMIT).then(|| Duration::from_nanos(nanos))
    }

    pub(super) fn set_limit(&self, direction: Direction, limit: Option<Duration>) {
        let nanos = limit.map_or(NO_LIMIT, |limit| u64::try_from(limit.as_nanos()).unwrap_or(NO_LIMIT));
        self.limits[direction as usize].store(nanos, Relaxed);
    }
}

impl<S: Descriptor> Core<S>
where
    for<'a> &'a S: Read + Write,
{
    pub(super) async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let limit = self.limit(Direction::Read);
        self.socket.run_bytes(Direction::Read, limit, buf.len(), |mut io| io.read(buf)).await
    }

    pub(super) async fn read_exact(&self, mut buf: &mut [u8]) -> io::Result<()> {
        while !buf.is_empty() {
            let read = self.read(buf).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buf = &mut buf[read..];
        }
        Ok(())
    }

    pub(super) async fn write(&self, buf: &[u8]) -> io::Result<usize> {
        let limit = self.limit(Direction::Write);
        self.socket.run_bytes(Direction::Write, limit, buf.len(), |mut io| io.write(buf)).await
    }

    pub(super) async fn write_all(&self, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            let written = self.write(buf).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            buf = &buf[written..];
        }
        Ok(())
    }

    pub(super) fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.try_run(Direction::Read, |mut io| io.read(buf))
    }

    pub(super) fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        self.socket.try_run(Direction::Write, |mut io| io.write(buf))
    }
}

/// One end of a stream, for its one reader or writer by the traits.
#[derive(Debug)]
pub(super) struct End<S: Descriptor> {
    direction: Direction,
    waiting: Waiting,
    pub(super) core: Arc<Core<S>>,
}

impl<S: Descriptor> Drop for End<S> {
    fn drop(&mut self) {
        self.core.socket.registration.quit(self.direction, &mut self.waiting);
    }
}

impl<S: Descriptor> End<S> {
    /// Both ends of a stream.
    pub(super) fn both(socket: Socket<S>) -> (Self, Self) {
        let core = Arc::new(Core::new(socket));
        let end = |direction| Self { direction, waiting: Waiting::default(), core: Arc::clone(&core) };
        (end(Direction::Read), end(Direction::Write))
    }

    /// The socket back, from both ends of one stream.
    pub(super) fn unite(read: Self, write: Self) -> Socket<S> {
        let core = Arc::clone(&read.core);
        drop((read, write));
        Arc::into_inner(core).expect("two ends have a stream").socket
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        len: usize,
        mut op: impl FnMut(&S) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let Core { socket, .. } = &*self.core;
        let limit = self.core.limit(self.direction);
        let op = || op(&socket.io);
        socket.registration.poll_bytes(cx, self.direction, &mut self.waiting, limit, len, op)
    }
}

impl<S: Descriptor> End<S>
where
    for<'a> &'a S: Read + Write,
{
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll(cx, buf.len(), |mut io| io.read(buf))
    }

    /// As [`Self::poll_read`] into bytes that have no value yet: as many as it gives have one then.
    #[cfg(feature = "hyper")]
    pub(super) fn poll_read_uninit(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut [std::mem::MaybeUninit<u8>],
    ) -> Poll<io::Result<usize>>
    where
        for<'a> socket2::SockRef<'a>: From<&'a S>,
    {
        self.poll(cx, buf.len(), |io| socket2::SockRef::from(io).recv(buf))
    }

    pub(super) fn poll_read_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, len_of_call(bufs), |mut io| io.read_vectored(bufs))
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(cx, buf.len(), |mut io| io.write(buf))
    }

    pub(super) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, len_of_call(bufs), |mut io| io.write_vectored(bufs))
    }
}

/// The reading trait, for a type whose field `$end` is the reading end.
macro_rules! reads {
    ($name:ident, $end:tt) => {
        impl futures_io::AsyncRead for $name {
            fn poll_read(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &mut [u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.$end.poll_read(cx, buf)
            }
            fn poll_read_vectored(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.$end.poll_read_vectored(cx, bufs)
            }
        }

        #[cfg(feature = "hyper")]
        impl ::hyper::rt::Read for $name {
            fn poll_read(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                mut buf: ::hyper::rt::ReadBufCursor<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                // SAFETY: no byte that has a value loses it: the system writes into them or leaves them alone.
                let free = unsafe { buf.as_mut() };
                let read = std::task::ready!(self.$end.poll_read_uninit(cx, free))?;
                // SAFETY: the system has written that many.
                unsafe { buf.advance(read) };
                std::task::Poll::Ready(Ok(()))
            }
        }
    };
}

/// The writing trait, for a type whose field `$end` is the writing end. To close is to close that direction.
macro_rules! writes {
    ($name:ident, $end:tt) => {
        impl futures_io::AsyncWrite for $name {
            fn poll_write(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.$end.poll_write(cx, buf)
            }
            fn poll_write_vectored(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.$end.poll_write_vectored(cx, bufs)
            }
            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                _cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready(Ok(()))
            }
            fn poll_close(
                self: std::pin::Pin<&mut Self>,
                _cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready(match self.$end.core.socket.io.shutdown(std::net::Shutdown::Write) {
                    // The peer has gone already.
                    Err(error) if error.kind() == std::io::ErrorKind::NotConnected => Ok(()),
                    other => other,
                })
            }
        }

        #[cfg(feature = "hyper")]
        impl ::hyper::rt::Write for $name {
            fn poll_write(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.$end.poll_write(cx, buf)
            }
            fn poll_write_vectored(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.$end.poll_write_vectored(cx, bufs)
            }
            fn is_write_vectored(&self) -> bool {
                true
            }
            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                futures_io::AsyncWrite::poll_flush(self, cx)
            }
            fn poll_shutdown(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                futures_io::AsyncWrite::poll_close(self, cx)
            }
        }
    };
}

/// What both kinds of streams have: reading, writing, limits, halves.
macro_rules! stream {
    ($stream:ident, $std:ty) => {
        /// The reading half of a stream. The stream is closed when both halves are dropped.
        #[derive(Debug)]
        pub struct OwnedReadHalf {
            read: crate::net::stream::End<$std>,
        }

        /// The writing half of a stream. Dropping it ends the writing: the peer reads to the end.
        #[derive(Debug)]
        pub struct OwnedWriteHalf {
            write: crate::net::stream::End<$std>,
        }

        crate::net::stream::reads!($stream, read);
        crate::net::stream::writes!($stream, write);
        crate::net::stream::reads!(OwnedReadHalf, read);
        crate::net::stream::writes!(OwnedWriteHalf, write);
        crate::net::stream::reading!($stream, read);
        crate::net::stream::writing!($stream, write);
        crate::net::stream::reading!(OwnedReadHalf, read);
        crate::net::stream::writing!(OwnedWriteHalf, write);

        impl $stream {
            fn of(socket: crate::net::Socket<$std>) -> Self {
                let (read, write) = crate::net::stream::End::both(socket);
                Self { read, write }
            }

            fn io(&self) -> &$std {
                &self.read.core.socket.io
            }

            /// Takes a connected socket, and makes it one that does not block.
            ///
            /// # Errors
            /// The system's; there is no scheduler here.
            pub fn from_std(stream: $std) -> std::io::Result<Self> {
                stream.set_nonblocking(true)?;
                Ok(Self::of(crate::net::Socket::new(stream)?))
            }

            /// Gives the socket back, out of the poller. It still does not block.
            #[must_use]
            pub fn into_std(self) -> $std {
                crate::net::stream::End::unite(self.read, self.write).into_inner()
            }

            /// A half for reading and one for writing, each of which may go where it likes.
            #[must_use]
            pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
                (OwnedReadHalf { read: self.read }, OwnedWriteHalf { write: self.write })
            }

            /// Ends reading, writing or both; who waits for that is woken.
            ///
            /// # Errors
            /// The system's.
            pub fn shutdown(&self, how: std::net::Shutdown) -> std::io::Result<()> {
                self.io().shutdown(how)
            }

            /// The error that the socket has kept, if any; it is taken away.
            ///
            /// # Errors
            /// The system's.
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                self.io().take_error()
            }
        }

        impl OwnedReadHalf {
            /// The whole stream again.
            ///
            /// # Errors
            /// The halves, if they are of two streams.
            #[allow(clippy::result_large_err, reason = "the halves come back as they were")]
            pub fn reunite(self, write: OwnedWriteHalf) -> Result<$stream, (Self, OwnedWriteHalf)> {
                if !std::sync::Arc::ptr_eq(&self.read.core, &write.write.core) {
                    return Err((self, write));
                }
                // The half's drop would end the writing: its end is taken out before.
                let write = std::mem::ManuallyDrop::new(write);
                // SAFETY: the end is read once, and what it is read from is not dropped.
                let write = unsafe { std::ptr::read(&raw const write.write) };
                Ok($stream { read: self.read, write })
            }
        }

        impl Drop for OwnedWriteHalf {
            fn drop(&mut self) {
                // It fails if the peer has gone.
                let _ = self.write.core.socket.io.shutdown(std::net::Shutdown::Write);
            }
        }
    };
}

/// Reading through `&self`.
macro_rules! reading {
    ($name:ident, $end:tt) => {
        impl $name {
            /// Reads what is there, at most as much as fits; 0: the end, or a buffer without room. Several
            /// tasks may: each byte goes to one of them.
            ///
            /// # Errors
            /// The system's; `TimedOut` after the limit for reading.
            pub async fn read(&self, buf: &mut [u8]) -> std::io::Result<usize> {
                self.$end.core.read(buf).await
            }

            /// Fills the buffer. If the future is dropped before, what it has read is lost.
            ///
            /// # Errors
            /// As [`Self::read`]; `UnexpectedEof` before the buffer was full.
            pub async fn read_exact(&self, buf: &mut [u8]) -> std::io::Result<()> {
                self.$end.core.read_exact(buf).await
            }

            /// As [`Self::read`] if it need not wait.
            ///
            /// # Errors
            /// `WouldBlock` if it must.
            pub fn try_read(&self, buf: &mut [u8]) -> std::io::Result<usize> {
                self.$end.core.try_read(buf)
            }

            /// Waits till there may be something to read, or the end. It may turn out that there is not.
            ///
            /// # Errors
            /// The scheduler has ended.
            pub async fn readable(&self) -> std::io::Result<()> {
                self.$end.core.socket.ready(crate::poller::Direction::Read).await
            }

            /// How long one read may wait; by default for ever.
            pub fn set_read_limit(&self, limit: Option<std::time::Duration>) {
                self.$end.core.set_limit(crate::poller::Direction::Read, limit);
            }

            /// How long one read may wait.
            #[must_use]
            pub fn read_limit(&self) -> Option<std::time::Duration> {
                self.$end.core.limit(crate::poller::Direction::Read)
            }
        }
    };
}

/// Writing through `&self`.
macro_rules! writing {
    ($name:ident, $end:tt) => {
        impl $name {
            /// Writes what there is room for.
            ///
            /// # Errors
            /// The system's; `TimedOut` after the limit for writing.
            pub async fn write(&self, buf: &[u8]) -> std::io::Result<usize> {
                self.$end.core.write(buf).await
            }

            /// Writes it all. If the future is dropped before, part of it may have been written; and what
            /// several tasks write may be mixed.
            ///
            /// # Errors
            /// As [`Self::write`].
            pub async fn write_all(&self, buf: &[u8]) -> std::io::Result<()> {
                self.$end.core.write_all(buf).await
            }

            /// As [`Self::write`] if it need not wait.
            ///
            /// # Errors
            /// `WouldBlock` if it must.
            pub fn try_write(&self, buf: &[u8]) -> std::io::Result<usize> {
                self.$end.core.try_write(buf)
            }

            /// Waits till there may be room to write. It may turn out that there is not.
            ///
            /// # Errors
            /// The scheduler has ended.
            pub async fn writable(&self) -> std::io::Result<()> {
                self.$end.core.socket.ready(crate::poller::Direction::Write).await
            }

            /// How long one write may wait; by default for ever.
            pub fn set_write_limit(&self, limit: Option<std::time::Duration>) {
                self.$end.core.set_limit(crate::poller::Direction::Write, limit);
            }

            /// How long one write may wait.
            #[must_use]
            pub fn write_limit(&self) -> Option<std::time::Duration> {
                self.$end.core.limit(crate::poller::Direction::Write)
            }
        }
    };
}

pub(super) use {reading, reads, stream, writes, writing};
