//! What a runtime is made of.

use std::sync::Arc;
use std::time::Duration;

use evener_actor::actor::Actor;
use evener_actor::executor::Executor;
use evener_actor::id::Tenant;
use evener_executors::Native;
use evener_runtime::process::ProcessHall;
use evener_runtime::worker::{Parts, RuntimeWorker};
use evener_runtime::{Chance, Clock, Config, Seeded, SystemClock};
use evener_scheduler::Scheduler;
use evener_store::postgres::{Postgres, Settings as PostgresSettings};
use evener_store::sqlite::{Options as SqliteOptions, Sqlite};

use crate::runtime::{Error, Runtime};

/// Where events, queues and state are kept.
#[derive(Clone)]
pub enum Store {
    /// In an SQLite file. It belongs to this program alone while it is open.
    Sqlite(std::path::PathBuf),
    /// In a PostgreSQL database, 13 or later, which many programs may share: `postgres://user@host/name`.
    Postgres(String),
    /// One that is open already: also [`Store::memory`].
    Open(Arc<dyn evener_store::Store>),
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite(path) => f.debug_tuple("Sqlite").field(path).finish(),
            // It may have a password in it.
            Self::Postgres(_) => f.write_str("Postgres"),
            Self::Open(store) => f.debug_tuple("Open").field(&store.kind()).finish(),
        }
    }
}

impl Store {
    /// In memory, and gone with it; for tests. Clones are the same one.
    #[must_use]
    pub fn memory() -> Self {
        let clock = || evener_actor::event::Timestamp(SystemClock.wall_ms());
        Self::Open(Arc::new(evener_store::Memory::new(clock)))
    }
}

impl From<&str> for Store {
    /// `memory`, a URL of PostgreSQL, or the path of an SQLite file.
    fn from(text: &str) -> Self {
        match text {
            "memory" => Self::memory(),
            url if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Self::Postgres(url.to_owned())
            }
            path => Self::Sqlite(path.strip_prefix("sqlite:").unwrap_or(path).into()),
        }
    }
}

impl From<String> for Store {
    fn from(text: String) -> Self {
        Self::from(&*text)
    }
}

impl From<&std::path::Path> for Store {
    fn from(path: &std::path::Path) -> Self {
        Self::Sqlite(path.to_owned())
    }
}

type Add = Box<dyn FnOnce(&mut Native)>;

/// What a runtime is made of. See [`Runtime::builder`].
pub struct Builder {
    store: Store,
    tenant: Tenant,
    config: Config,
    workers: Option<usize>,
    actors: Vec<Add>,
    executors: Vec<Arc<dyn Executor>>,
    is_append_only: bool,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("store", &self.store)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            store: Store::from("evener.db"),
            tenant: Tenant::default(),
            config: Config::default(),
            workers: None,
            actors: Vec::new(),
            executors: Vec::new(),
            is_append_only: false,
        }
    }

    /// Where everything is kept: the path of an SQLite file, a URL of PostgreSQL, or `memory`. `evener.db` where nothing is said.
    #[must_use]
    pub fn store(mut self, store: impl Into<Store>) -> Self {
        self.store = store.into();
        self
    }

    /// Whose everything is. `default` where nothing is said.
    #[must_use]
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = tenant;
        self
    }

    /// Runs an actor.
    #[must_use]
    pub fn actor<A: Actor>(mut self, actor: A) -> Self {
        self.actors.push(Box::new(|native| native.add(actor)));
        self
    }

    /// Runs whatever actors that executor has.
    #[must_use]
    pub fn executor(mut self, executor: Arc<dyn Executor>) -> Self {
        self.executors.push(executor);
        self
    }

    /// Threads that run actors; as many as there are cores where nothing is said.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Only takes events; what they are for runs elsewhere, or later. The actors say where events go.
    #[must_use]
    pub fn append_only(mut self) -> Self {
        self.is_append_only = true;
        self
    }

    /// Changes settings.
    #[must_use]
    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Opens the store, makes the actors known, and begins.
    ///
    /// # Errors
    /// [`Error`]: what is wrong with the store, a definition, a setting.
    pub fn start(self) -> Result<Runtime, Error> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let store: Arc<dyn evener_store::Store> = match self.store {
            Store::Open(store) => store,
            Store::Sqlite(path) => Arc::new(Sqlite::open(path, SqliteOptions::default())?),
            Store::Postgres(url) => Arc::new(Postgres::open(PostgresSettings::new(url))?),
        };
        let mut config = self.config;
        // PostgreSQL answers several at once; SQLite has one writer.
        let lanes = if store.kind() == "postgres" { (4, 2) } else { (1, 1) };
        if config.commit_lanes == 0 {
            config.commit_lanes = lanes.0;
        }
        if config.append_lanes == 0 {
            config.append_lanes = lanes.1;
        }
        let mut scheduler = Scheduler::builder();
        if let Some(workers) = self.workers {
            scheduler = scheduler.workers(workers);
        }
        let scheduler = scheduler.start().map_err(|error| Error::Config(error.to_string()))?;
        let scheduler = Arc::new(scheduler);
        let mut native = Native::new(Arc::clone(&scheduler));
        self.actors.into_iter().for_each(|add| add(&mut native));
        let mut executors = self.executors;
        executors.push(Arc::new(native));
        let worker = RuntimeWorker::new(Parts {
            config,
            store,
            clock: Arc::clone(&clock),
            chance: Arc::new(Seeded::new(seed(&*clock))) as Arc<dyn Chance>,
            executors,
            hall: Arc::new(ProcessHall::new(Arc::clone(&scheduler))),
        })?;
        worker.register(&self.tenant)?;
        if self.is_append_only {
            worker.activation.close();
        }
        Runtime::begin(worker, scheduler, self.tenant)
    }
}

/// Another one for each start: ids and jitter shall differ between workers.
fn seed(clock: &dyn Clock) -> u64 {
    let nanos = u64::try_from(clock.now().as_nanos() & u128::from(u64::MAX)).unwrap_or(0);
    let wall = clock.wall_ms().unsigned_abs();
    nanos ^ wall.rotate_left(32) ^ (u64::from(std::process::id()) << 16)
}

/// How long [`Runtime`] lets calls go on when it is dropped without [`Runtime::stop`].
pub(crate) const DROP_GRACE: Duration = Duration::from_secs(5);
