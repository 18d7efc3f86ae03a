//! What hyper wants of a runtime: with the feature `hyper`, HTTP/1 and HTTP/2 on tasks and sockets of this
//! crate.
//!
//! hyper asks for three things. Its *reader and writer* are the streams of [`crate::net`] themselves: they have
//! the traits [`hyper::rt::Read`] and [`hyper::rt::Write`], are read into memory that nobody had to clear, and
//! take several buffers in one write. (The limits of time of a stream hold there too.) Its *executor* is
//! [`EvenerExecutor`], its *timer* [`EvenerTimer`].
//!
//! ```
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! use evener_scheduler::hyper::EvenerTimer;
//! use evener_scheduler::net::{TcpListener, TcpStream};
//! use evener_scheduler::{Scheduler, task};
//! use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
//!
//! async fn hello(_: Request<Incoming>) -> Result<Response<String>, Infallible> {
//!     Ok(Response::new("hello".into()))
//! }
//!
//! let scheduler = Scheduler::new()?;
//! scheduler.block_on(async {
//!     let listener = TcpListener::bind("127.0.0.1:0").await?;
//!     let to = listener.local_addr()?;
//!     let server = task::spawn(async move {
//!         let (stream, _) = listener.accept().await?;
//!         http1::Builder::new()
//!             .timer(EvenerTimer)
//!             .header_read_timeout(Duration::from_secs(10))
//!             .serve_connection(stream, service_fn(hello))
//!             .await?;
//!         Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//!     });
//!     let client = TcpStream::connect(to).await?;
//!     client.write_all(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").await?;
//!     let mut answer = [0; 15];
//!     client.read_exact(&mut answer).await?;
//!     assert_eq!(&answer, b"HTTP/1.1 200 OK");
//!     server.await?
//! })
//! # .unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/http.rs` is a whole server: both versions of HTTP at one port, limits, an orderly end.
//!
//! # Why not by way of tokio's traits
//!
//! [`net::TokioIo`](crate::net::TokioIo) under hyper-util's adapter would do as well, but each read would clear
//! its memory first, hyper-util's part for tokio brings tokio's runtime along, and executor and timer would
//! have to be written all the same. The feature names hyper without any of hyper's features: its versions of
//! HTTP, and what they depend on, are its user's to choose. hyper itself uses channels of tokio, and for HTTP/2
//! its I/O traits, not its runtime.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use ::hyper::rt::{Executor, Read, ReadBufCursor, Sleep, Timer, Write};
use futures_io::{AsyncRead, AsyncWrite};

use crate::{clock, task, time};

/// Spawns hyper's futures as tasks of the host on which they arise: that of the connection's task, or of the
/// [`Scheduler::block_on`](crate::Scheduler::block_on) around it. If the host takes no more processes the
/// future is dropped, and with it the stream of HTTP/2 that it would have served.
///
/// # Panics
/// Used where there is no host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EvenerExecutor;

impl<F> Executor<F> for EvenerExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        task::spawn(future).detach();
    }
}

/// hyper's limits of time by the timers of [`crate::time`].
///
/// # Panics
/// hyper's futures do, where a [`time::Sleep`] would: polled where there is no host, or when it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EvenerTimer;

impl Timer for EvenerTimer {
    fn sleep(&self, delay: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(time::sleep(delay))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(time::sleep_until(deadline))
    }

    fn now(&self) -> Instant {
        clock::now()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<time::Sleep>() {
            Some(ours) => ours.get_mut().reset(deadline),
            // Another timer made it.
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

impl Sleep for time::Sleep {}

/// Gives whatever has the traits of `futures-io`, such as a TLS stream over one of [`crate::net`], those of
/// hyper. The streams of [`crate::net`] do without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HyperIo<T>(pub T);

impl<T> HyperIo<T> {
    /// What is inside.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T: AsyncRead + Unpin> Read for HyperIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // The other trait reads into bytes that have a value.
        let read = ready!(Pin::new(&mut self.0).poll_read(cx, buf.initialize_unfilled()))?;
        assert!(read <= buf.remaining(), "a reader gave {read} bytes for a buffer of {}", buf.remaining());
        // SAFETY: they all have a value, and there is room for them.
        unsafe { buf.advance(read) };
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> Write for HyperIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }

    // Not said to be vectored: `futures-io` does not tell, and who takes the first buffer alone would make a
    // packet of each. hyper then copies small ones together.

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_close(cx)
    }
}
