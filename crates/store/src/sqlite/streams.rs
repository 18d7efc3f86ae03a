//! Tables `events`, `dedupe`, `pending`.

use std::ops::ControlFlow;
use std::sync::Arc;

use evener_actor::event::{Event, Headers, StoredEvent, Timestamp};
use evener_actor::id::{ActorNo, Boot, Epoch, InstanceId, Key, Seq, StreamNo, SubscriptionNo};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use super::Sqlite;
use super::append::{AppendAnswer, Appender, OfEvent, is_tracked, park, shared};
use super::fault::{Inner, unexpected};
use crate::batch::{Appended, FanOut, NewEvent, Pending, RowMade, Ticket};
use crate::{Result, StoreError, Streams};

/// An event from the columns of `event.sql`, of which the first is number `at`.
pub(super) fn event_of(row: &Row<'_>, at: usize) -> Inner<Arc<StoredEvent>> {
    let text = |column: usize| -> Inner<Arc<str>> {
        Ok(shared(row.get_ref(at + column)?.as_str().map_err(rusqlite::Error::from)?))
    };
    let perhaps = |column: usize| -> Inner<Option<Arc<str>>> {
        Ok(row.get_ref(at + column)?.as_str_or_null().map_err(rusqlite::Error::from)?.map(shared))
    };
    let seq = Seq(row.get(at)?);
    let headers = Headers::from_text(row.get_ref(at + 7)?.as_str_or_null().map_err(rusqlite::Error::from)?)
        .map_err(|error| unexpected(format!("headers of event {seq}: {error}")))?;
    let data = row.get_ref(at + 8)?.as_blob().map_err(rusqlite::Error::from)?;
    let event = Event {
        time: Timestamp(row.get(at + 1)?),
        id: text(2)?,
        source: text(3)?,
        kind: text(4)?,
        subject: perhaps(5)?,
        content_type: perhaps(6)?,
        headers,
        data: data.to_vec().into(),
    };
    Ok(Arc::new(StoredEvent { seq, event }))
}

/// Takes while the data of all stays within so many bytes, the first always.
struct Within {
    bytes_max: usize,
    bytes: usize,
    is_first: bool,
}

impl Within {
    fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, is_first: true }
    }

    fn take(&mut self, bytes: usize) -> ControlFlow<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.bytes_max && !self.is_first {
            return ControlFlow::Break(());
        }
        self.is_first = false;
        ControlFlow::Continue(())
    }
}

/// The runs of a stream behind a place, one after another, each cut to what is behind it. Commits are one
/// after another and take their numbers within, so a snapshot has all below its greatest.
pub(super) struct Runs<'c> {
    next: CachedStatement<'c>,
    stream: StreamNo,
    /// The first run, if the place lies in it.
    cut: Option<(i64, i64)>,
    /// The first seq of the last run that was given, or that was looked at.
    reached: i64,
}

impl<'c> Runs<'c> {
    pub(super) fn new(conn: &'c Connection, stream: StreamNo, after: Seq) -> Inner<Self> {
        let mut at = conn.prepare_cached(include_str!("run_at.sql"))?;
        let at: Option<(i64, i64)> =
            at.query_row([stream.0, after.0], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let cut = at.filter(|(_, last)| *last > after.0).map(|(_, last)| (after.0 + 1, last));
        let next = conn.prepare_cached(include_str!("run_after.sql"))?;
        Ok(Self { next, stream, cut, reached: after.0 })
    }

    pub(super) fn next(&mut self) -> Inner<Option<(i64, i64)>> {
        if let Some(cut) = self.cut.take() {
            return Ok(Some(cut));
        }
        let run: Option<(i64, i64)> = self
            .next
            .query_row([self.stream.0, self.reached], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        if let Some((first, _)) = run {
            self.reached = first;
        }
        Ok(run)
    }
}

impl Streams for Sqlite {
    fn append(&self, ticket: Ticket, events: &[NewEvent]) -> Result<Vec<Appended>> {
        let answer = self.once(ticket, |tx| {
            let mut appender = Appender::new(tx)?;
            let mut answer = AppendAnswer::default();
            answer.told.reserve(events.len());
            answer.rows.reserve(events.len());
            for event in events {
                answer.told.push(appender.event(tx, event, &mut answer.rows)?);
            }
            Ok(answer)
        })?;
        Ok(answer.to_appended())
    }

    fn events(&self, seqs: &[Seq]) -> Result<Vec<Arc<StoredEvent>>> {
        self.read(|conn| {
            let mut select = conn.prepare_cached(include_str!("event.sql"))?;
            let mut events = Vec::with_capacity(seqs.len());
            for seq in seqs {
                let mut rows = select.query([seq.0])?;
                if let Some(row) = rows.next()? {
                    events.push(event_of(row, 0)?);
                }
            }
            Ok(events)
        })
    }

    fn read_stream(
        &self,
        stream: StreamNo,
        after: Seq,
        events_max: u32,
        bytes_max: usize,
    ) -> Result<Vec<Arc<StoredEvent>>> {
        self.read(|conn| {
            let mut runs = Runs::new(conn, stream, after)?;
            let mut select = conn.prepare_cached(include_str!("run_events.sql"))?;
            let (mut events, mut within) = (Vec::new(), Within::new(bytes_max));
            while let Some((first, last)) = runs.next()? {
                let left = events_max as usize - events.len();
                let mut rows = select.query(params![first, last, i64::try_from(left).unwrap_or(i64::MAX)])?;
                while let Some(row) = rows.next()? {
                    let event = event_of(row, 0)?;
                    if within.take(event.event.data.len()).is_break() {
                        return Ok(events);
                    }
                    events.push(event);
                }
                if events.len() >= events_max as usize {
                    break;
                }
            }
            Ok(events)
        })
    }

    fn streams_pending(&self, after: Option<StreamNo>, streams_max: u32) -> Result<Vec<StreamNo>> {
        self.read(|conn| {
            let mut select = conn.prepare_cached(include_str!("streams_pending.sql"))?;
            let mut last = after.map_or(i64::MIN, |stream| stream.0);
            let mut streams = Vec::new();
            while streams.len() < streams_max as usize {
                let Some(next) = select.query_row([last], |row| row.get(0)).optional()? else { break };
                last = next;
                streams.push(StreamNo(next));
            }
            Ok(streams)
        })
    }

    fn lease_stream(&self, stream: StreamNo, boot: Boot) -> Result<Option<Epoch>> {
        self.write(|tx| {
            tx.check_live(boot)?;
            let mut lease = tx.statement(include_str!("lease_stream.sql"))?;
            Ok(lease.query_row([stream.0, boot.0], |row| row.get(0).map(Epoch)).optional()?)
        })
    }

    fn release_stream(&self, stream: StreamNo, boot: Boot, epoch: Epoch) -> Result<()> {
        self.write(|tx| {
            tx.statement(include_str!("release_stream.sql"))?.execute([stream.0, boot.0, epoch.0])?;
            Ok(())
        })
    }

    fn pending(&self, stream: StreamNo, events_max: u32, bytes_max: usize) -> Result<Vec<Pending>> {
        self.read(|conn| {
            let mut select = conn.prepare_cached(include_str!("pending.sql"))?;
            let mut rows = select.query(params![stream.0, events_max])?;
            let (mut pending, mut within) = (Vec::new(), Within::new(bytes_max));
            while let Some(row) = rows.next()? {
                let event = event_of(row, 3)?;
                if within.take(event.event.data.len()).is_break() {
                    break;
                }
                pending.push(Pending {
                    id: row.get(0)?,
                    subscription: SubscriptionNo(row.get(1)?),
                    reached: row.get::<_, Option<i64>>(2)?.map(InstanceId),
                    event,
                });
            }
            Ok(pending)
        })
    }

    fn instances_of(
        &self,
        actor: ActorNo,
        after: InstanceId,
        instances_max: u32,
    ) -> Result<Vec<(InstanceId, Key)>> {
        self.read(|conn| {
            let mut select = conn.prepare_cached(include_str!("instances_of.sql"))?;
            let mut rows = select.query(params![actor.0, after.0, instances_max])?;
            let mut instances = Vec::new();
            while let Some(row) = rows.next()? {
                instances.push((InstanceId(row.get(0)?), key_of(row, 1)?));
            }
            Ok(instances)
        })
    }

    fn fan_out(
        &self,
        ticket: Ticket,
        stream: StreamNo,
        epoch: Epoch,
        done: &[FanOut],
    ) -> Result<Vec<RowMade>> {
        let made = self.once(ticket, |tx| {
            let mut holds = tx.statement(include_str!("holds_stream.sql"))?;
            if !holds.exists([stream.0, ticket.boot.0, epoch.0])? {
                let why = format!("stream {stream} is fanned out by another one");
                return Err(StoreError::Fenced(why).into());
            }
            let mut appender = Appender::new(tx)?;
            let mut reach = tx.statement(include_str!("reach_pending.sql"))?;
            let mut end = tx.statement(include_str!("end_pending.sql"))?;
            let mut made = Vec::new();
            for one in done {
                let there = match one.reached {
                    Some(reached) => reach.execute([stream.0, one.seq.0, one.id, reached.0])?,
                    None => end.execute([stream.0, one.seq.0, one.id])?,
                };
                if there == 0 {
                    continue;
                }
                if !one.rows.is_empty() {
                    let is_tracked = is_tracked(tx, one.tenant, Some(stream), one.seq)?;
                    let of =
                        OfEvent { seq: one.seq, stream: Some(stream), bytes: one.event_bytes, is_tracked };
                    for row in &one.rows {
                        made.push(appender.new_row(tx, one.tenant, of, row)?);
                    }
                }
                if let Some(parked) = &one.parked {
                    park(tx, one.tenant, one.seq, parked)?;
                }
            }
            Ok(made)
        })?;
        Ok(made.to_vec())
    }

    fn prune(&self, events_before: Timestamp, rows_max: u32) -> Result<u64> {
        self.prune_all(events_before, rows_max)
    }
}

/// A key from a column.
pub(super) fn key_of(row: &Row<'_>, at: usize) -> Inner<Key> {
    let text = row.get_ref(at)?.as_str().map_err(rusqlite::Error::from)?;
    Key::new(text).map_err(|error| unexpected(error.to_string()))
}
