//! Files, for async code: each call runs where it stands, as a closure that may block ([`crate::blocking`]).
//!
//! What the system has in memory is read in microseconds, without a trip to another thread; while a call does
//! block, a spare worker does this one's work. So a call on a file cannot be cut short: a time-out or an abort
//! takes effect when it returns. Each call charges the cooperative budget.
//!
//! ```
//! use evener_scheduler::{Scheduler, fs};
//!
//! let scheduler = Scheduler::new()?;
//! let path = std::env::temp_dir().join(format!("evener-fs-{}", std::process::id()));
//! scheduler.block_on(async {
//!     fs::write(&path, "hello").await?;
//!     assert_eq!(fs::read_to_string(&path).await?, "hello");
//!     fs::remove_file(&path).await
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fs;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncRead, AsyncSeek, AsyncWrite};

use crate::blocking;
use crate::task::coop;

async fn run<T>(act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    poll_fn(coop::poll_proceed).await;
    blocking(act)
}

/// The whole of a file.
///
/// # Errors
/// As [`std::fs::read`].
pub async fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    run(|| fs::read(path)).await
}

/// The whole of a file, which must be UTF-8.
///
/// # Errors
/// As [`std::fs::read_to_string`].
pub async fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    run(|| fs::read_to_string(path)).await
}

/// Writes a file anew.
///
/// # Errors
/// As [`std::fs::write`].
pub async fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> io::Result<()> {
    run(|| fs::write(path, content)).await
}

/// Copies a file and its permissions; gives its length in bytes.
///
/// # Errors
/// As [`std::fs::copy`].
pub async fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    run(|| fs::copy(from, to)).await
}

/// Gives a file or folder another name.
///
/// # Errors
/// As [`std::fs::rename`].
pub async fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    run(|| fs::rename(from, to)).await
}

/// Removes a file.
///
/// # Errors
/// As [`std::fs::remove_file`].
pub async fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    run(|| fs::remove_file(path)).await
}

/// Makes a folder.
///
/// # Errors
/// As [`std::fs::create_dir`].
pub async fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    run(|| fs::create_dir(path)).await
}

/// Makes a folder and those around it that are missing.
///
/// # Errors
/// As [`std::fs::create_dir_all`].
pub async fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    run(|| fs::create_dir_all(path)).await
}

/// Removes an empty folder.
///
/// # Errors
/// As [`std::fs::remove_dir`].
pub async fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    run(|| fs::remove_dir(path)).await
}

/// Removes a folder with all that is in it.
///
/// # Errors
/// As [`std::fs::remove_dir_all`].
pub async fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    run(|| fs::remove_dir_all(path)).await
}

/// What is known of a file or folder; through links.
///
/// # Errors
/// As [`std::fs::metadata`].
pub async fn metadata(path: impl AsRef<Path>) -> io::Result<fs::Metadata> {
    run(|| fs::metadata(path)).await
}

/// The path without links and dots.
///
/// # Errors
/// As [`std::fs::canonicalize`].
pub async fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    run(|| fs::canonicalize(path)).await
}

/// All that is in a folder, in no order.
///
/// # Errors
/// As [`std::fs::read_dir`] and its entries; the first error ends it.
pub async fn read_dir(path: impl AsRef<Path>) -> io::Result<Vec<fs::DirEntry>> {
    run(|| fs::read_dir(path)?.collect()).await
}

/// An open file. Reads, writes and seeks by the `futures-io` traits.
#[derive(Debug)]
pub struct File(fs::File);

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`std::fs::File::open`].
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        run(|| fs::File::open(path)).await.map(Self)
    }

    /// Opens a file for writing, anew.
    ///
    /// # Errors
    /// As [`std::fs::File::create`].
    pub async fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        run(|| fs::File::create(path)).await.map(Self)
    }

    /// Opens a file in any other way.
    ///
    /// # Errors
    /// As [`std::fs::OpenOptions::open`].
    pub async fn open_with(options: &fs::OpenOptions, path: impl AsRef<Path>) -> io::Result<Self> {
        run(|| options.open(path)).await.map(Self)
    }

    /// Waits till content and metadata are on the disk.
    ///
    /// # Errors
    /// As [`std::fs::File::sync_all`].
    pub async fn sync_all(&self) -> io::Result<()> {
        run(|| self.0.sync_all()).await
    }

    /// Waits till the content is on the disk.
    ///
    /// # Errors
    /// As [`std::fs::File::sync_data`].
    pub async fn sync_data(&self) -> io::Result<()> {
        run(|| self.0.sync_data()).await
    }

    /// Makes the file so long, in bytes.
    ///
    /// # Errors
    /// As [`std::fs::File::set_len`].
    pub async fn set_len(&self, len: u64) -> io::Result<()> {
        run(|| self.0.set_len(len)).await
    }

    /// What is known of the file.
    ///
    /// # Errors
    /// As [`std::fs::File::metadata`].
    pub async fn metadata(&self) -> io::Result<fs::Metadata> {
        run(|| self.0.metadata()).await
    }

    /// The file of the standard library.
    #[must_use]
    pub fn into_std(self) -> fs::File {
        self.0
    }

    fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        act: impl FnOnce(&fs::File) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        ready!(coop::poll_proceed(cx));
        Poll::Ready(blocking(|| act(&self.0)))
    }
}

impl From<fs::File> for File {
    fn from(file: fs::File) -> Self {
        Self(file)
    }
}

impl AsyncRead for File {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll(cx, |mut file| file.read(buf))
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, |mut file| file.read_vectored(bufs))
    }
}

impl AsyncWrite for File {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(cx, |mut file| file.write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, |mut file| file.write_vectored(bufs))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing is kept back here.
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The drop closes it.
        Poll::Ready(Ok(()))
    }
}

impl AsyncSeek for File {
    fn poll_seek(self: Pin<&mut Self>, cx: &mut Context<'_>, to: SeekFrom) -> Poll<io::Result<u64>> {
        self.poll(cx, |mut file| file.seek(to))
    }
}
