//! From rows of answers to values.

use std::sync::Arc;

use bytes::Bytes;
use evener_actor::event::{Event, Headers, StoredEvent, Timestamp};
use evener_actor::id::{Group, Key, Seq, Slot};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::{Result, StoreError};

/// The value of that column.
pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<T> {
    row.try_get(column).map_err(|error| StoreError::Internal(format!("column {column}: {error}")))
}

/// The value of that column, by number.
pub(super) fn at<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T> {
    row.try_get(column).map_err(|error| StoreError::Internal(format!("column {column}: {error}")))
}

/// A row that must be there.
pub(super) fn only(rows: &[Row]) -> Result<&Row> {
    rows.first().ok_or_else(|| StoreError::Internal("a statement without an answer".to_owned()))
}

pub(super) fn slot(number: i16) -> Result<Slot> {
    let fits = u16::try_from(number).ok().filter(|number| *number < evener_actor::id::SLOTS);
    fits.map(Slot::new).ok_or_else(|| StoreError::Internal(format!("slot {number}")))
}

pub(super) fn name<T>(
    text: &str,
    make: impl FnOnce(Arc<str>) -> Result<T, evener_actor::id::NameError>,
) -> Result<T> {
    make(Arc::from(text)).map_err(|error| StoreError::Internal(format!("a name that is none: {error}")))
}

pub(super) fn key(text: &str) -> Result<Key> {
    name(text, Key::new)
}

pub(super) fn group(text: Option<&str>) -> Result<Option<Group>> {
    text.map(|text| name(text, Group::new)).transpose()
}

pub(super) fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// An event whose columns, `seq` the first, begin there.
pub(super) fn event(row: &Row, from: usize) -> Result<StoredEvent> {
    let headers = Headers::from_text(at(row, from + 7)?)
        .map_err(|error| StoreError::Internal(format!("headers: {error}")))?;
    let text = |text: &str| Arc::<str>::from(text);
    Ok(StoredEvent {
        seq: Seq(at(row, from)?),
        event: Event {
            time: Timestamp(at(row, from + 1)?),
            id: text(at(row, from + 2)?),
            source: text(at(row, from + 3)?),
            kind: text(at(row, from + 4)?),
            subject: at::<Option<&str>>(row, from + 5)?.map(text),
            content_type: at::<Option<&str>>(row, from + 6)?.map(text),
            headers,
            data: Bytes::copy_from_slice(at(row, from + 8)?),
        },
    })
}
