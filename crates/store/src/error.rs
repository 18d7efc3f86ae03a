//! What may go wrong at the door of a store. Each variant says what to do next.

use std::time::Duration;

/// What a call of a store gives.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why a store did not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached, or is starting, or in recovery. Nothing was done. Try again, with backoff.
    #[error("the store is away: {0}")]
    Away(String),
    /// Locks, deadlocks, serialization failures, a deadline that passed before anything was done. Nothing was
    /// done. Try again at once.
    #[error("the store is busy: {0}")]
    Busy(String),
    /// The COMMIT was sent and its answer lost. Send the same batch with the same number again.
    #[error("the commit has no known outcome: {0}")]
    Unknown(String),
    /// The whole call was refused on account of the caller's own right: its boot is dead, its lane is at
    /// another number. Stop, and register anew.
    #[error("fenced: {0}")]
    Fenced(String),
    /// Something in the batch can never be stored: too long for a column, not encodable, against a constraint.
    /// Nothing was done. Split the batch to find it.
    #[error("refused: {0}")]
    Refused(String),
    /// No room. Nothing was done. It stays so until somebody makes room; try again now and then.
    #[error("no room is left: {0}")]
    Full(String),
    /// The file or the database does not take writes.
    #[error("read-only: {0}")]
    ReadOnly(String),
    /// The file is damaged. Nobody should write to it.
    #[error("damaged: {0}")]
    Corrupt(String),
    /// The schema is newer than this program. Take a newer program.
    #[error("the schema has version {found}, this program knows up to {known}")]
    TooNew {
        /// The version of the schema.
        found: i64,
        /// The newest that the program knows.
        known: i64,
    },
    /// Somebody else has it open and does not share.
    #[error("{what} is in use by process {pid}")]
    InUse {
        /// What.
        what: String,
        /// By whom; 0 if unknown.
        pid: u32,
    },
    /// Wrong user, password, or rights.
    #[error("denied: {0}")]
    Denied(String),
    /// A URL or path that is none, a setting that makes no sense.
    #[error("{0}")]
    Config(String),
    /// A row is not what this program writes; or a fault of the program itself.
    #[error("unexpected: {0}")]
    Internal(String),
}

impl StoreError {
    /// `true`: the same call may go through later, and nothing was done by this one.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Away(_) | Self::Busy(_) | Self::Full(_))
    }

    /// How long to wait before try number `tries + 1`, the longest; [`StoreError::Busy`] is tried soon,
    /// others at most about once a second, then every 5 s.
    #[must_use]
    pub fn pause(&self, tries: u32) -> Duration {
        let (base, ceiling) = match self {
            Self::Busy(_) => (1, 200),
            Self::Unknown(_) => (10, 1_000),
            _ => (250, 5_000),
        };
        Duration::from_millis((base << tries.min(16)).min(ceiling))
    }
}
