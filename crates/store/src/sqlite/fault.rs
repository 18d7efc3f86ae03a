//! What goes wrong in here, and what the caller is told to do about it.

use rusqlite::ffi;

use crate::StoreError;

/// An error on its way to the door. SQLite's own are turned into the store's there, and nowhere else.
#[derive(Debug)]
pub(super) enum Fault {
    /// SQLite's.
    Sql(rusqlite::Error),
    /// Ours.
    Store(StoreError),
}

/// What the inner calls give.
pub(super) type Inner<T> = Result<T, Fault>;

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Fault {
    /// For the caller. `path` is the file that it is about.
    pub(super) fn at_door(self, path: &str) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Sql(error) => told(&error, path),
        }
    }

    /// `true`: the disk failed in the middle of something.
    pub(super) fn is_io(&self) -> bool {
        matches!(self, Self::Sql(rusqlite::Error::SqliteFailure(error, _))
            if error.extended_code & 0xff == ffi::SQLITE_IOERR)
    }

    /// `true`: somebody else holds a lock.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Sql(rusqlite::Error::SqliteFailure(error, _))
            if error.extended_code & 0xff == ffi::SQLITE_BUSY)
    }
}

fn told(error: &rusqlite::Error, path: &str) -> StoreError {
    let rusqlite::Error::SqliteFailure(failure, _) = error else {
        // Values of an unexpected type, a statement that does not fit its parameters: not from outside.
        return StoreError::Internal(format!("{path}: {error}"));
    };
    let text = format!("{path}: {error} (SQLite code {})", failure.extended_code);
    // The low byte is the kind, the rest says which one of it.
    match (failure.extended_code & 0xff, failure.extended_code) {
        (ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED | ffi::SQLITE_INTERRUPT | ffi::SQLITE_SCHEMA, _) => {
            StoreError::Busy(text)
        }
        // A full disk cannot give room to the index of the log either, which SQLite reports as this.
        (ffi::SQLITE_FULL, _) | (_, ffi::SQLITE_IOERR_SHMSIZE) => StoreError::Full(text),
        (ffi::SQLITE_READONLY, _) => StoreError::ReadOnly(text),
        (ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB | ffi::SQLITE_FORMAT, _)
        | (_, ffi::SQLITE_IOERR_CORRUPTFS) => StoreError::Corrupt(text),
        (ffi::SQLITE_CONSTRAINT | ffi::SQLITE_TOOBIG | ffi::SQLITE_MISMATCH, _) => StoreError::Refused(text),
        (ffi::SQLITE_PERM | ffi::SQLITE_AUTH, _) => StoreError::Denied(text),
        (ffi::SQLITE_IOERR | ffi::SQLITE_CANTOPEN | ffi::SQLITE_NOMEM | ffi::SQLITE_PROTOCOL, _) => {
            StoreError::Away(text)
        }
        _ => StoreError::Internal(text),
    }
}

/// A row that is not what this program writes.
pub(super) fn unexpected(what: impl Into<String>) -> Fault {
    Fault::Store(StoreError::Internal(what.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: std::ffi::c_int) -> StoreError {
        Fault::from(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)).at_door("f")
    }

    #[test]
    fn each_code_says_what_to_do() {
        assert!(matches!(of(ffi::SQLITE_BUSY_SNAPSHOT), StoreError::Busy(_)));
        assert!(matches!(of(ffi::SQLITE_LOCKED), StoreError::Busy(_)));
        assert!(matches!(of(ffi::SQLITE_FULL), StoreError::Full(_)));
        assert!(matches!(of(ffi::SQLITE_IOERR_SHMSIZE), StoreError::Full(_)));
        assert!(matches!(of(ffi::SQLITE_IOERR_FSYNC), StoreError::Away(_)));
        assert!(matches!(of(ffi::SQLITE_IOERR_CORRUPTFS), StoreError::Corrupt(_)));
        assert!(matches!(of(ffi::SQLITE_READONLY_DBMOVED), StoreError::ReadOnly(_)));
        assert!(matches!(of(ffi::SQLITE_CORRUPT_INDEX), StoreError::Corrupt(_)));
        assert!(matches!(of(ffi::SQLITE_NOTADB), StoreError::Corrupt(_)));
        assert!(matches!(of(ffi::SQLITE_CONSTRAINT_PRIMARYKEY), StoreError::Refused(_)));
        assert!(matches!(of(ffi::SQLITE_TOOBIG), StoreError::Refused(_)));
        assert!(matches!(of(ffi::SQLITE_CANTOPEN), StoreError::Away(_)));
        assert!(matches!(of(ffi::SQLITE_PERM), StoreError::Denied(_)));
        assert!(matches!(of(ffi::SQLITE_MISUSE), StoreError::Internal(_)));
        assert!(of(ffi::SQLITE_FULL).is_passing() && of(ffi::SQLITE_BUSY).is_passing());
    }
}
