//! SQLite: one file, one machine, nothing to install.
//!
//! | | |
//! | --- | --- |
//! | `FILE` | the database, in WAL mode, `synchronous = FULL` unless told otherwise |
//! | `FILE.lock` | locked by the one runtime that has the file open; holds its process number |
//! | `FILE.bell` | grows by a byte when another program has written; the runtime looks at its length |
//!
//! One connection writes, behind a mutex; every transaction that may write begins as a writer
//! (`BEGIN IMMEDIATE`), so none is refused between its reading and its writing. Two connections read, each
//! call on one snapshot. A thread with a connection of its own carries the log back into the file, so that no commit waits for it.
//!
//! Statements stand in `.sql` files, one each; they are prepared once for a connection and looked up once for
//! a batch. Rows are written by prepared statements one after another: on SQLite that beats statements for
//! whole sets twice over.
//!
//! What each promise of the store rests on:
//! 1. An error rolls the transaction back. If the disk fails in the very COMMIT, a crash right then might
//!    bring it back, so that answer is [`StoreError::Unknown`] and the batch is sent again.
//! 2. The lane's number is counted in the batch's transaction; its answer is kept in memory, for a lane dies
//!    with its program.
//! 3. The update of the instance is the fence; what belongs to it is written only when that has hit a row.
//! 4. Numbers come from a row that is read and written in the transaction that uses them.
mod append;
mod bell;
mod checkpoint;
mod fault;
mod instances;
mod known;
mod letters;
mod prune;
mod queues;
mod schema;
mod streams;
mod tenants;
mod timers;
mod tx;
mod workers;

#[cfg(test)]
mod tests;

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use evener_actor::event::Timestamp;
use rusqlite::{Connection, OpenFlags};

use self::bell::{Bell, RunLock};
use self::checkpoint::Checkpoints;
use self::fault::{Fault, Inner};
use self::known::Known;
use self::prune::Pass;
use self::tx::{Answers, Turn, Tx, take_turn};
use crate::batch::Ticket;
use crate::{Result, Store, StoreError};

/// Tells the time; see [`Options::clock`].
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// When an answered commit is on the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// Before it is answered: a power cut loses nothing.
    #[default]
    Full,
    /// At the next checkpoint: a power cut may lose the last commits, a crash of the program does not.
    Normal,
}

/// How a file is opened.
#[derive(Clone)]
pub struct Options {
    /// When an answered commit is on the disk.
    pub synchronous: Synchronous,
    /// The store's clock. A database in the program has none but the program's. It is asked while the writer
    /// is held, so it must not call the store.
    pub clock: Clock,
    /// How long to wait for another program that writes, before [`StoreError::Busy`].
    pub busy: Duration,
    /// How much of the file the writer keeps in memory, in bytes; each of the two readers keeps a quarter.
    pub cache_bytes: usize,
}

impl Default for Options {
    /// `FULL`, the system's clock, 5 s, 64 MiB.
    fn default() -> Self {
        Self {
            synchronous: Synchronous::default(),
            clock: Arc::new(system_now),
            busy: Duration::from_secs(5),
            cache_bytes: 64 * 1024 * 1024,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("synchronous", &self.synchronous)
            .field("busy", &self.busy)
            .field("cache_bytes", &self.cache_bytes)
            .finish_non_exhaustive()
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the door of the store's clock: its default, handed in by Options"
)]
fn system_now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp(since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX)))
}

/// A store in a file.
pub struct Sqlite {
    // In the order in which they are dropped: the lock goes last.
    checkpoints: Option<Checkpoints>,
    writer: Arc<Mutex<Writer>>,
    readers: [Mutex<Connection>; 2],
    /// Whose turn it is among the readers when both are taken.
    turn: AtomicUsize,
    clock: Clock,
    /// For messages.
    path: String,
    pass: Mutex<Option<Pass>>,
    bell: Bell,
    /// `None`: this one is attached.
    lock: Option<RunLock>,
}

/// Who writes.
#[derive(Debug)]
struct Writer {
    conn: Connection,
    known: Known,
    answers: Answers,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite")
            .field("path", &self.path)
            .field("is_attached", &self.lock.is_none())
            .finish_non_exhaustive()
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic rolls its transaction back, and nothing else is left half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `FILE` with something behind its name.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

impl Sqlite {
    /// Opens the file as its one runtime; it is made if there is none.
    ///
    /// Who has the lock knows that everybody who had it before is gone: their boots are dead from here on,
    /// so instances that they owned can be claimed at once.
    ///
    /// # Errors
    /// [`StoreError::InUse`] with the process that has it, [`StoreError::TooNew`], [`StoreError::Corrupt`],
    /// [`StoreError::ReadOnly`]; [`StoreError::Config`] when there is no such folder, or the file is a
    /// database of something else.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let path = path.as_ref();
        let lock = RunLock::take(path)?;
        let bell = Bell::new(path);
        bell.clear()?;
        let store = Self::with(path, options, bell, Some(lock))?;
        store.write(|tx| Ok(tx.statement(include_str!("bury_boots.sql"))?.execute([])?))?;
        Ok(store)
    }

    /// Opens the file beside whoever has it open, to write now and then: a command that appends while no
    /// server runs, or another program of the house. It takes no lock, so any number may.
    ///
    /// It needs a boot of its own, by [`crate::Workers::register`], as every worker does. When a runtime opens
    /// the file, that boot is dead like all older ones, and the next batch is [`StoreError::Fenced`]: register
    /// anew. [`crate::Workers::notify`] rings the bell, which the runtime hears within a second.
    ///
    /// # Errors
    /// As [`Sqlite::open`], but never [`StoreError::InUse`].
    pub fn attach(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let path = path.as_ref();
        Self::with(path, options, Bell::new(path), None)
    }

    fn with(path: &Path, options: Options, bell: Bell, lock: Option<RunLock>) -> Result<Self> {
        let shown = path.display().to_string();
        let opened = || -> Inner<_> {
            let mut writer = connect(path, &options, options.cache_bytes)?;
            schema::check(&writer)?;
            set_wal(&writer)?;
            schema::migrate(&mut writer)?;
            let reader = || -> Inner<_> {
                let conn = connect(path, &options, options.cache_bytes / 4)?;
                conn.pragma_update(None, "query_only", true)?;
                Ok(Mutex::new(conn))
            };
            Ok((writer, [reader()?, reader()?]))
        };
        let (conn, readers) = opened().map_err(|fault| match fault.at_door(&shown) {
            StoreError::Away(why) if !path.exists() => StoreError::Config(why),
            other => other,
        })?;
        let (known, answers) = (Known::default(), Answers::default());
        let writer = Arc::new(Mutex::new(Writer { conn, known, answers }));
        let checkpoints = match &lock {
            Some(_) => {
                let own = connect(path, &options, CHECKPOINT_CACHE_BYTES);
                let own = own.and_then(|own| {
                    held(&writer).conn.pragma_update(None, "wal_autocheckpoint", 0)?;
                    Ok(own)
                });
                let own = own.map_err(|fault| fault.at_door(&shown))?;
                Some(Checkpoints::start(own, Arc::clone(&writer))?)
            }
            None => None,
        };
        Ok(Self {
            checkpoints,
            writer,
            readers,
            turn: AtomicUsize::new(0),
            clock: options.clock,
            path: shown,
            pass: Mutex::default(),
            bell,
            lock,
        })
    }

    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    fn told(&self, fault: Fault) -> StoreError {
        fault.at_door(&self.path)
    }

    /// One writing transaction.
    fn write<T>(&self, work: impl FnOnce(&mut Tx<'_>) -> Inner<T>) -> Result<T> {
        let mut writer = held(&self.writer);
        let Writer { conn, known, .. } = &mut *writer;
        let mut tx = Tx::begin(conn, known, &*self.clock).map_err(|fault| self.told(fault))?;
        let answer = work(&mut tx).map_err(|fault| self.told(fault))?;
        tx.commit().map_err(|fault| self.told(fault))?;
        self.written();
        Ok(answer)
    }

    /// One batch with a ticket: done once, and answered again if it comes again.
    fn once<A: Any + Send + Sync>(
        &self,
        ticket: Ticket,
        work: impl for<'c> FnOnce(&mut Tx<'c>) -> Inner<A>,
    ) -> Result<Arc<A>> {
        let mut writer = held(&self.writer);
        let Writer { conn, known, answers } = &mut *writer;
        let mut tx = Tx::begin(conn, known, &*self.clock).map_err(|fault| self.told(fault))?;
        match take_turn(&tx, answers, ticket).map_err(|fault| self.told(fault))? {
            Turn::Done(answer) => return Ok(answer),
            Turn::Due => {}
        }
        let answer = Arc::new(work(&mut tx).map_err(|fault| self.told(fault))?);
        // Before the COMMIT: whatever becomes of it, the lane's row says whether this answer holds.
        answers.keep(ticket, Arc::clone(&answer) as Arc<dyn Any + Send + Sync>);
        tx.commit().map_err(|fault| {
            let is_io = fault.is_io();
            match self.told(fault) {
                // It is rolled back; but its pages may be on the disk, whole, and a crash before the next
                // commit would find them.
                StoreError::Away(why) if is_io => StoreError::Unknown(why),
                other => other,
            }
        })?;
        self.written();
        Ok(answer)
    }

    fn written(&self) {
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.written();
        }
    }

    /// Reads on one snapshot.
    fn read<T>(&self, work: impl FnOnce(&Connection) -> Inner<T>) -> Result<T> {
        let conn = self.reader();
        let snapshot = || -> Inner<T> {
            conn.prepare_cached("BEGIN")?.execute([])?;
            let _end = EndRead(&conn);
            work(&conn)
        };
        snapshot().map_err(|fault| self.told(fault))
    }

    /// A reader that is free, or the next in turn.
    fn reader(&self) -> MutexGuard<'_, Connection> {
        for reader in &self.readers {
            match reader.try_lock() {
                Ok(conn) => return conn,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        // Relaxed: any turn is right.
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        held(&self.readers[turn % self.readers.len()])
    }
}

/// Ends a snapshot, also after an error.
struct EndRead<'c>(&'c Connection);

impl Drop for EndRead<'_> {
    fn drop(&mut self) {
        // It has written nothing; if even that fails, the next BEGIN says so.
        let _ = self.0.prepare_cached("COMMIT").and_then(|mut end| end.execute([]));
    }
}

/// It copies pages from the log to the file and keeps none.
const CHECKPOINT_CACHE_BYTES: usize = 256 * 1024;

/// How many statements a connection keeps: all that there are.
const STATEMENTS: usize = 128;

fn connect(path: &Path, options: &Options, cache_bytes: usize) -> Inner<Connection> {
    // No NOMUTEX flag of SQLite's is needed for safety: a connection is used under our mutex only.
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    conn.busy_timeout(options.busy)?;
    // Takes effect in a new file only.
    conn.pragma_update(None, "page_size", 4096)?;
    conn.pragma_update(
        None,
        "synchronous",
        match options.synchronous {
            Synchronous::Full => "FULL",
            Synchronous::Normal => "NORMAL",
        },
    )?;
    // Negative: KiB.
    let kib = i64::try_from(cache_bytes / 1024).unwrap_or(i64::MAX);
    conn.pragma_update(None, "cache_size", -kib)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    // No data of ours goes into a schema, and no schema of somebody else's runs code.
    conn.pragma_update(None, "trusted_schema", false)?;
    Ok(conn)
}

/// Turns the file to WAL. It stays so, so this does nothing but the first time; then two that do it at once
/// stand in each other's way, which SQLite's own waiting does not cover.
fn set_wal(conn: &Connection) -> Inner<()> {
    let mut tries = 0;
    loop {
        let mode: rusqlite::Result<String> =
            conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0));
        match mode.map_err(Fault::from) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let error = format!("the file cannot have a write-ahead log (its journal is `{mode}`)");
                return Err(StoreError::Config(error).into());
            }
            Err(fault) if fault.is_busy() && tries < 100 => {
                tries += 1;
                pause();
            }
            Err(fault) => return Err(fault),
        }
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "once in a file's life: nothing tells when the other has turned it"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

impl Store for Sqlite {
    fn kind(&self) -> &'static str {
        "sqlite"
    }
}
