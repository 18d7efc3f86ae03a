//! What PostgreSQL and the connection to it say, as the store says it.

use std::error::Error as _;

use tokio_postgres::error::SqlState;

use crate::StoreError;

/// How far a call had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// Nothing that could have an effect was sent.
    Nothing,
    /// A statement that only reads was sent.
    Read,
    /// A statement that writes was sent: without an answer nobody knows.
    Write,
}

impl Sent {
    /// For a connection that was lost then.
    pub(super) fn lost(self, text: String) -> StoreError {
        match self {
            Self::Nothing | Self::Read => StoreError::Away(text),
            Self::Write => StoreError::Unknown(text),
        }
    }
}

/// With all that stands behind it.
pub(super) fn text(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        let mut text = format!("{} ({})", db.message(), db.code().code());
        for more in [db.detail(), db.hint()].into_iter().flatten() {
            text.push_str(": ");
            text.push_str(more);
        }
        return text;
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// `true`: the statement was planned for a schema that has changed, or the server does not know it (any more).
/// It did nothing, and works when it is prepared anew.
pub(super) fn is_stale_statement(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|db| {
        *db.code() == SqlState::INVALID_SQL_STATEMENT_NAME
            || (*db.code() == SqlState::FEATURE_NOT_SUPPORTED && db.message().contains("cached plan"))
    })
}

/// What the caller is told.
pub(super) fn of(error: &tokio_postgres::Error, sent: Sent, is_closed: bool) -> StoreError {
    let text = text(error);
    let Some(db) = error.as_db_error() else {
        return if is_closed || error.is_closed() || has_io(error) {
            sent.lost(text)
        } else {
            StoreError::Internal(text)
        };
    };
    let code = db.code();
    let code_text = code.code();
    match code_text {
        // Serialization failure, deadlock, lock not there in time, statement_timeout.
        "40001" | "40P01" | "55P03" | "57014" => StoreError::Busy(text),
        // Nobody knows.
        "40003" => StoreError::Unknown(text),
        // The server ends this session: as if the line were cut.
        "57P01" | "57P02" | "57P05" | "25P03" => sent.lost(text),
        // It is starting, stopping, in recovery, or takes no more connections.
        "57P03" | "53300" | "53400" => StoreError::Away(text),
        "53100" => StoreError::Full(text),
        "53000" | "53200" => StoreError::Busy(text),
        "25006" => StoreError::ReadOnly(text),
        "42501" | "3D000" | "28000" | "28P01" => StoreError::Denied(text),
        "XX001" | "XX002" => StoreError::Corrupt(text),
        // A disk that fails.
        "58030" => StoreError::Away(text),
        _ => match &code_text[..2] {
            "08" => sent.lost(text),
            "28" => StoreError::Denied(text),
            // Data that no column takes, a constraint, a limit of the program.
            "22" | "23" | "54" => StoreError::Refused(text),
            _ => StoreError::Internal(text),
        },
    }
}

fn has_io(error: &tokio_postgres::Error) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if cause.is::<std::io::Error>() {
            return true;
        }
        source = cause.source();
    }
    false
}
