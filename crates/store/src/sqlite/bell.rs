//! Who has the file, and how others who write to it are heard.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::beside;
use crate::workers::{Listening, Note};
use crate::{Result, StoreError};

/// How often the bell is looked at. Only programs beside the runtime ring it, and one `stat` a second costs
/// nothing; a watch by the system would be a crate more, different on each system, and silent on some
/// network file systems.
const LOOK: Duration = Duration::from_secs(1);

/// The length at which a bell begins anew.
const BELL_BYTES_MAX: u64 = 64 * 1024;

fn failed(what: &str, path: &Path, error: &std::io::Error) -> StoreError {
    let text = format!("{what} {}: {error}", path.display());
    match error.kind() {
        std::io::ErrorKind::NotFound
        | std::io::ErrorKind::NotADirectory
        | std::io::ErrorKind::IsADirectory => StoreError::Config(text),
        std::io::ErrorKind::PermissionDenied => StoreError::Denied(text),
        std::io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly(text),
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => StoreError::Full(text),
        _ => StoreError::Away(text),
    }
}

/// The right to be the file's runtime. The system takes the lock back when the process ends, however it ends;
/// the file stays, so that nobody locks one that is being taken away.
#[derive(Debug)]
pub(super) struct RunLock {
    _file: File,
}

impl RunLock {
    /// Takes `FILE.lock`.
    ///
    /// # Errors
    /// [`StoreError::InUse`] with the process number that stands in it.
    pub(super) fn take(path: &Path) -> Result<Self> {
        let at = beside(path, ".lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&at)
            .map_err(|error| failed("open", &at, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // Not there yet, or no number: then it is not known.
                let pid = file.read_to_string(&mut text).map_or(0, |_| text.trim().parse().unwrap_or(0));
                return Err(StoreError::InUse { what: path.display().to_string(), pid });
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock", &at, &error)),
        }
        let mut write = || -> std::io::Result<()> {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write().map_err(|error| failed("write", &at, &error))?;
        Ok(Self { _file: file })
    }
}

/// `FILE.bell`. Its length counts the rings: times of files are too coarse to tell two rings apart.
#[derive(Debug)]
pub(super) struct Bell {
    path: PathBuf,
}

impl Bell {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: beside(path, ".bell") }
    }

    /// Begins anew; for who has the lock.
    pub(super) fn clear(&self) -> Result<()> {
        File::create(&self.path).map(drop).map_err(|error| failed("create", &self.path, &error))
    }

    /// Rings.
    pub(super) fn ring(&self) -> Result<()> {
        let ring = || -> std::io::Result<()> {
            let mut file = OpenOptions::new().append(true).create(true).open(&self.path)?;
            if file.metadata()?.len() >= BELL_BYTES_MAX {
                file.set_len(0)?;
            }
            file.write_all(b".")
        };
        ring().map_err(|error| failed("ring", &self.path, &error))
    }

    fn rings(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |file| file.len())
    }

    /// Calls `hear` after each ring, until the guard is dropped. Its thread looks at once when it begins, so
    /// a ring from before is not missed by who looks at everything then.
    pub(super) fn listen(&self, hear: Arc<dyn Fn(Note) + Send + Sync>) -> Result<Hearing> {
        let (stop, stopped) = mpsc::channel::<()>();
        let bell = Self { path: self.path.clone() };
        let mut last = bell.rings();
        let thread = std::thread::Builder::new().name("evener-bell".to_owned()).spawn(move || {
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let rings = bell.rings();
                if rings != last {
                    last = rings;
                    hear(Note::Look);
                }
            }
        });
        let thread = thread.map_err(|error| StoreError::Away(format!("start a thread: {error}")))?;
        Ok(Hearing { stop: Some(stop), thread: Some(thread) })
    }
}

/// The guard of a listener. Dropped, it waits until no call of `hear` runs any more; by `hear` itself it
/// may be dropped, too.
pub(super) struct Hearing {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Listening for Hearing {
    fn is_listening(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of `hear` has been printed where it happened.
            let _ = thread.join();
        }
    }
}
