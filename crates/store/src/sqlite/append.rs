//! Inserts events with all that follows from them; also for commits, timers and the fan-out.

use std::sync::Arc;

use evener_actor::id::{GroupHash, InstanceId, Key, QueueId, Seq, Slot, StreamNo, TenantNo};
use rusqlite::{CachedStatement, OptionalExtension, params};

use super::fault::{Inner, unexpected};
use super::known::Place;
use super::tx::{Tx, next};
use crate::StoreError;
use crate::batch::{Appended, CommitReport, Dedupe, Fate, NewEvent, NewParked, NewRow, RowMade};

/// The statements of most events, looked up once for a batch.
pub(super) struct Appender<'c> {
    event: CachedStatement<'c>,
    row: CachedStatement<'c>,
}

/// What became of one event; its rows stand in the list that was given.
#[derive(Debug, Clone, Copy)]
pub(super) enum Told {
    New { seq: Seq, rows: u32 },
    Duplicate { seq: Seq, fate: Fate },
    Conflict { seq: Seq },
}

/// What became of a batch of events, in few pieces of memory, to be kept for a copy of the batch.
#[derive(Debug, Default)]
pub(super) struct AppendAnswer {
    pub(super) told: Vec<Told>,
    pub(super) rows: Vec<RowMade>,
}

impl AppendAnswer {
    /// As the caller gets it.
    pub(super) fn to_appended(&self) -> Vec<Appended> {
        let mut rows = self.rows.as_slice();
        let mut take = |count: u32| {
            let (taken, rest) = rows.split_at(count as usize);
            rows = rest;
            taken.to_vec()
        };
        self.told
            .iter()
            .map(|told| match *told {
                Told::New { seq, rows } => Appended::New { seq, rows: take(rows) },
                Told::Duplicate { seq, fate } => Appended::Duplicate { seq, fate },
                Told::Conflict { seq } => Appended::Conflict { seq },
            })
            .collect()
    }
}

/// The event of a row, as the row keeps it beside its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfEvent {
    pub(super) seq: Seq,
    pub(super) stream: Option<StreamNo>,
    pub(super) bytes: u32,
    pub(super) is_tracked: bool,
}

/// The size of data as rows keep it.
pub(super) fn bytes_of(data: &[u8]) -> u32 {
    u32::try_from(data.len()).unwrap_or(u32::MAX)
}

impl<'c> Appender<'c> {
    pub(super) fn new(tx: &Tx<'c>) -> Inner<Self> {
        Ok(Self {
            event: tx.statement(include_str!("append_event.sql"))?,
            row: tx.statement(include_str!("append_row.sql"))?,
        })
    }

    /// Inserts one event; rows that follow are added to `made`.
    pub(super) fn event(&mut self, tx: &mut Tx<'c>, new: &NewEvent, made: &mut Vec<RowMade>) -> Inner<Told> {
        check_place(tx, new)?;
        let event = &new.event;
        let seq = Seq(next(&mut tx.last.seq));
        if let Some(dedupe) = new.dedupe
            && let Some(told) = known_already(tx, new, dedupe, seq)?
        {
            // No seq was used.
            tx.last.seq -= 1;
            return Ok(told);
        }
        let is_tracked = new.dedupe.is_some();
        self.event.execute(params![
            seq.0,
            event.time.0,
            &*event.id,
            &*event.source,
            &*event.kind,
            event.subject.as_deref(),
            event.content_type.as_deref(),
            event.headers.to_text(),
            &*event.data,
        ])?;
        tx.add_to_run(new.stream, seq.0)?;
        let of = OfEvent { seq, stream: new.stream, bytes: bytes_of(&event.data), is_tracked };
        for row in &new.rows {
            made.push(self.new_row(tx, new.tenant, of, row)?);
        }
        if let Some(stream) = new.stream
            && !new.deferred.is_empty()
        {
            let mut insert = tx.statement(include_str!("append_pending.sql"))?;
            for subscription in &new.deferred {
                insert.execute(params![stream.0, seq.0, subscription.0, next(&mut tx.last.pending)])?;
            }
        }
        for parked in &new.parked {
            park(tx, new.tenant, seq, parked)?;
        }
        Ok(Told::New { seq, rows: u32::try_from(new.rows.len()).unwrap_or(u32::MAX) })
    }

    /// Inserts a row at the end of its instance's queue.
    pub(super) fn new_row(
        &mut self,
        tx: &mut Tx<'c>,
        tenant: TenantNo,
        of: OfEvent,
        new: &NewRow,
    ) -> Inner<RowMade> {
        check_actor(tx, tenant, new.actor)?;
        let Place { slot, instance } = place_of(tx, tenant, new)?;
        let row = next(&mut tx.last.queue);
        let stream = of.stream.map(|stream| stream.0);
        if new.group.is_none() && !new.is_indexed && new.priority == 0 && !of.is_tracked {
            self.row.execute(params![slot.number(), instance.0, row, of.seq.0, stream, of.bytes])?;
        } else {
            let group = new.group.as_ref().map(|group| group.as_str());
            let mut insert = tx.statement(include_str!("append_row_more.sql"))?;
            insert.execute(params![slot.number(), instance.0, row, of.seq.0, stream, of.bytes])?;
            let mut insert = tx.statement(include_str!("append_more.sql"))?;
            insert.execute(params![
                row,
                slot.number(),
                instance.0,
                new.is_indexed,
                new.group.as_ref().map_or(GroupHash::NONE, GroupHash::of).0,
                group,
                new.priority,
                of.is_tracked.then_some(of.seq.0),
                None::<i64>,
            ])?;
        }
        Ok(RowMade { slot, instance, row: QueueId(row) })
    }

    /// Inserts events that follow from a commit or a timer.
    pub(super) fn follow(
        &mut self,
        tx: &mut Tx<'c>,
        events: &[NewEvent],
        report: &mut CommitReport,
    ) -> Inner<()> {
        for event in events {
            if let Told::New { .. } = self.event(tx, event, &mut report.rows)?
                && !event.deferred.is_empty()
            {
                report.pending.extend(event.stream);
            }
        }
        Ok(())
    }
}

/// Parks an event.
pub(super) fn park(tx: &mut Tx<'_>, tenant: TenantNo, seq: Seq, new: &NewParked) -> Inner<()> {
    let id = next(&mut tx.last.parked);
    let subscription = new.subscription.map(|subscription| subscription.0);
    let mut insert = tx.statement(include_str!("park.sql"))?;
    insert.execute(params![id, tenant.0, seq.0, subscription, new.reason, tx.now.0])?;
    Ok(())
}

/// `None`: it is new, and known from now on under that `seq`.
fn known_already(tx: &Tx<'_>, new: &NewEvent, dedupe: Dedupe, seq: Seq) -> Inner<Option<Told>> {
    let event = &new.event;
    // Streams are numbered from 1.
    let stream = new.stream.map_or(0, |stream| stream.0);
    let body_hash = dedupe.body_hash.cast_signed();
    let mut put = tx.statement(include_str!("put_dedupe.sql"))?;
    let put = put.execute(params![
        new.tenant.0,
        stream,
        &*event.source,
        &*event.id,
        seq.0,
        body_hash,
        tx.now.saturating_add(dedupe.window).0,
        tx.now.0,
    ])?;
    if put == 1 {
        return Ok(None);
    }
    let mut find = tx.statement(include_str!("find_dedupe.sql"))?;
    let (first, hash): (i64, i64) = find
        .query_row(params![new.tenant.0, stream, &*event.source, &*event.id], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    let first = Seq(first);
    if hash != body_hash {
        return Ok(Some(Told::Conflict { seq: first }));
    }
    let fate =
        tx.statement(include_str!("fate.sql"))?.query_row(params![first.0, stream], |row| row.get(0))?;
    let fate = match fate {
        0 => Fate::Waiting,
        1 => Fate::DeadLetter,
        2 => Fate::Parked,
        3 => Fate::Done,
        other => return Err(unexpected(format!("the fate of event {first} is {other}"))),
    };
    Ok(Some(Told::Duplicate { seq: first, fate }))
}

/// Refuses what names a tenant or stream that is not there.
fn check_place(tx: &mut Tx<'_>, new: &NewEvent) -> Inner<()> {
    match new.stream {
        Some(stream) => check_stream(tx, new.tenant, stream),
        None if !new.deferred.is_empty() => {
            Err(StoreError::Refused("an event without a stream has no subscribers".to_owned()).into())
        }
        // Its actors are the tenant's, so there is one.
        None if !new.rows.is_empty() => Ok(()),
        None => check_tenant(tx, new.tenant),
    }
}

/// Refuses a tenant that is not there.
pub(super) fn check_tenant(tx: &Tx<'_>, tenant: TenantNo) -> Inner<()> {
    if tx.statement(include_str!("has_tenant.sql"))?.exists([tenant.0])? {
        Ok(())
    } else {
        Err(StoreError::Refused(format!("there is no tenant {tenant}")).into())
    }
}

/// Refuses a stream that is not the tenant's.
pub(super) fn check_stream(tx: &mut Tx<'_>, tenant: TenantNo, stream: StreamNo) -> Inner<()> {
    if tx.known().has_stream((tenant, stream)) {
        return Ok(());
    }
    if !tx.statement(include_str!("has_stream.sql"))?.exists([tenant.0, stream.0])? {
        return Err(StoreError::Refused(format!("there is no stream {stream} of tenant {tenant}")).into());
    }
    tx.known().add_stream((tenant, stream));
    Ok(())
}

/// Refuses an actor that is not the tenant's.
pub(super) fn check_actor(tx: &mut Tx<'_>, tenant: TenantNo, actor: evener_actor::id::ActorNo) -> Inner<()> {
    if tx.known().has_actor((tenant, actor)) {
        return Ok(());
    }
    if !tx.statement(include_str!("has_actor.sql"))?.exists([tenant.0, actor.0])? {
        return Err(StoreError::Refused(format!("there is no actor {actor} of tenant {tenant}")).into());
    }
    tx.known().add_actor((tenant, actor));
    Ok(())
}

/// The instance of that key; it is made if there is none.
fn place_of(tx: &mut Tx<'_>, tenant: TenantNo, new: &NewRow) -> Inner<Place> {
    // A clone of a key is one more reference to it.
    let name = (new.actor, Key::clone(&new.key));
    if let Some(place) = tx.known().instance(&name) {
        return Ok(place);
    }
    let found = tx
        .statement(include_str!("find_instance.sql"))?
        .query_row(params![new.actor.0, new.key.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if let Some((instance, slot)) = found {
        let place = Place { slot: slot_of(slot)?, instance: InstanceId(instance) };
        tx.known().remember(name, place);
        return Ok(place);
    }
    let instance = next(&mut tx.last.instance);
    let mut make = tx.statement(include_str!("make_instance.sql"))?;
    make.execute([instance])?;
    let mut make = tx.statement(include_str!("make_key.sql"))?;
    make.execute(params![instance, new.slot.number(), tenant.0, new.actor.0, new.key.as_str()])?;
    let place = Place { slot: new.slot, instance: InstanceId(instance) };
    tx.remember_made(name, place);
    Ok(place)
}

/// Whether an append with the same id may ask what became of the event.
pub(super) fn is_tracked(tx: &Tx<'_>, tenant: TenantNo, stream: Option<StreamNo>, seq: Seq) -> Inner<bool> {
    let stream = stream.map_or(0, |stream| stream.0);
    Ok(tx.statement(include_str!("is_tracked.sql"))?.exists([seq.0, tenant.0, stream])?)
}

/// A slot from a column.
pub(super) fn slot_of(number: i64) -> Inner<Slot> {
    match u16::try_from(number) {
        Ok(number) if number < evener_actor::id::SLOTS => Ok(Slot::new(number)),
        _ => Err(unexpected(format!("{number} is no slot"))),
    }
}

/// A text from a column, shared.
pub(super) fn shared(text: &str) -> Arc<str> {
    Arc::from(text)
}
