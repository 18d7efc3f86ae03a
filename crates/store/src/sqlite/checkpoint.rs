//! Carries the log back into the file, beside the commits.
//!
//! SQLite would do it in the COMMIT that makes the log long, which then takes as long as hundreds of others.
//! Here a thread does it on a connection of its own. That alone never comes to an end while commits go on:
//! the log begins anew only when all of it has been carried back. So when it has grown to [`FRAMES_MAX`] the
//! writer does the rest itself, which is little, for the thread has just been there. ([`super::connect`]
//! leaves SQLite's own threshold on for guests, who have no such thread.)

use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use crate::{Result, StoreError};

/// The thread that does it.
#[derive(Debug)]
pub(super) struct Checkpoints {
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How often it looks, at most.
const PAUSE: Duration = Duration::from_millis(50);

impl Checkpoints {
    /// Starts the thread.
    pub(super) fn start(conn: Connection) -> Result<Self> {
        let (wake, woken) = mpsc::sync_channel::<()>(1);
        let (_pause, never) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("evener-checkpoint".to_owned()).spawn(move || {
            let _keep = _pause;
            while woken.recv().is_ok() {
                // What goes wrong here goes wrong for the writer too, who tells.
                let _ = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
                if never.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        let thread = thread.map_err(|error| StoreError::Away(format!("start a thread: {error}")))?;
        Ok(Self { wake: Some(wake), thread: Some(thread) })
    }

    /// There is something to carry back.
    pub(super) fn written(&self) {
        if let Some(wake) = &self.wake {
            // Full: it will look anyway.
            let _ = wake.try_send(());
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
