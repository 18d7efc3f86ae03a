//! Carries the log back into the file, beside the commits.
//!
//! SQLite would do it within the COMMIT that makes the log long, which then takes as long as many others, and
//! would write the same pages again and again. Here a thread does it, on a connection of its own, when the log
//! has [`FRAMES`] more. While commits go on it never has all of it, and only then does the log begin anew; so
//! once the log is [`FRAMES_MAX`] long the thread takes the writer's place for the rest, which is little.
//!
//! A guest has no such thread: there SQLite does it.

use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use super::{Writer, held};
use crate::{Result, StoreError};

/// How many pages of log are worth two syncs of the disk: 16 MiB.
const FRAMES: i64 = 4_000;
/// How long the log may become before commits wait: 64 MiB.
const FRAMES_MAX: i64 = 16_000;
/// How often the length is looked at, at most.
const PAUSE: Duration = Duration::from_millis(20);

/// The thread that does it; dropping it ends it.
#[derive(Debug)]
pub(super) struct Checkpoints {
    wake: Option<SyncSender<()>>,
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    /// Starts the thread. From here on the writer's own commits leave the log alone.
    pub(super) fn start(conn: Connection, writer: Arc<Mutex<Writer>>) -> Result<Self> {
        let (wake, woken) = mpsc::sync_channel::<()>(1);
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("evener-checkpoint".to_owned()).spawn(move || {
            while woken.recv().is_ok() {
                // What goes wrong here goes wrong for the writer, too, who tells; and there is a next time.
                let _ = carry(&conn, &writer);
                if ended.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        let thread = thread.map_err(|error| StoreError::Away(format!("start a thread: {error}")))?;
        Ok(Self { wake: Some(wake), end: Some(end), thread: Some(thread) })
    }

    /// The log has grown.
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
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How many pages the log has, and how many of them are in the file.
fn checkpoint(conn: &Connection, sql: &str) -> rusqlite::Result<(i64, i64)> {
    conn.query_row(sql, [], |row| Ok((row.get(1)?, row.get(2)?)))
}

fn carry(conn: &Connection, writer: &Mutex<Writer>) -> rusqlite::Result<()> {
    let (log, done) = checkpoint(conn, "PRAGMA wal_checkpoint(NOOP)")?;
    if log - done < FRAMES {
        return Ok(());
    }
    let (log, done) = checkpoint(conn, "PRAGMA wal_checkpoint(PASSIVE)")?;
    if log >= FRAMES_MAX && done < log {
        let _nobody_writes = held(writer);
        checkpoint(conn, "PRAGMA wal_checkpoint(PASSIVE)")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::known::Known;
    use crate::sqlite::tx::Answers;

    #[test]
    fn the_log_is_carried_back_while_somebody_writes() {
        let path = std::env::temp_dir().join(format!("evener-checkpoint-{}.db", std::process::id()));
        let open = || {
            let conn = Connection::open(&path).unwrap();
            conn.pragma_update(None, "journal_mode", "WAL").unwrap();
            conn.pragma_update(None, "synchronous", "OFF").unwrap();
            conn.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
            conn
        };
        let conn = open();
        conn.execute_batch("CREATE TABLE t (x BLOB)").unwrap();
        let (known, answers) = (Known::default(), Answers::default());
        let writer = Arc::new(Mutex::new(Writer { conn, known, answers }));
        let own = open();
        for _ in 0..4 {
            for _ in 0..FRAMES / 100 {
                held(&writer).conn.execute("INSERT INTO t VALUES (zeroblob(409600))", []).unwrap();
            }
            carry(&own, &writer).unwrap();
            let (log, done) = checkpoint(&own, "PRAGMA wal_checkpoint(NOOP)").unwrap();
            assert!(log - done < FRAMES && log < FRAMES_MAX, "{log} pages, {done} carried");
        }
        drop((writer, own));
        std::fs::remove_file(&path).unwrap();
    }
}
