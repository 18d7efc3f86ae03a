//! What has had its time goes, a bounded number at a time.

use std::sync::PoisonError;

use evener_actor::event::Timestamp;

use super::Postgres;
use super::connection::Effect;
use super::read::{get, only};
use super::sql::{self, Call, arg};
use crate::Result;

impl Postgres {
    /// See [`crate::Streams::prune`]. Events are walked from the oldest on; where a walk ended the next one goes
    /// on, so those that something names are looked at once in a round and do not stop the others.
    pub(super) fn prune_tables(&self, events_before: Timestamp, rows_max: u32) -> Result<u64> {
        let rows_max = i64::from(rows_max);
        let before = events_before.0;
        let mut gone = 0;
        let mut after = *self.pruned.lock().unwrap_or_else(PoisonError::into_inner);
        let args = vec![arg("after", &after), arg("before", &before), arg("rows_max", &rows_max)];
        let rows = self.other.ask(Effect::Writes, &Call::new(sql::PRUNE_EVENTS, args))?;
        let row = only(&rows)?;
        gone += get::<i64>(row, "gone")?.unsigned_abs();
        let last: Option<i64> = get(row, "last")?;
        // At the first that is not old enough, or at the end, a new round begins.
        after =
            last.filter(|_| get::<i64>(row, "looked").is_ok_and(|looked| looked == rows_max)).unwrap_or(0);
        *self.pruned.lock().unwrap_or_else(PoisonError::into_inner) = after;
        let call = Call::new(sql::PRUNE_DEDUPE, vec![arg("rows_max", &rows_max)]);
        gone += self.other.ask(Effect::Writes, &call)?.len() as u64;
        let call = Call::new(sql::PRUNE_WORKERS, vec![arg("rows_max", &rows_max)]);
        gone += self.other.ask(Effect::Writes, &call)?.len() as u64;
        Ok(gone)
    }
}
