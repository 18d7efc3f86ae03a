//! Table `queue`.

use std::ops::Range;

use evener_actor::event::Timestamp;
use evener_actor::id::{Boot, Epoch, Group, GroupHash, InstanceId, QueueId, Seq, Slot, StreamNo};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use super::Sqlite;
use super::append::slot_of;
use super::fault::{Inner, unexpected};
use super::instances::{drop_row, first, want_more};
use super::streams::event_of;
use crate::batch::{QueueRow, RowOrder, RowsAnswer, RowsRequest, Waiting};
use crate::{Queues, Result};

impl Queues for Sqlite {
    fn rows(&self, requests: &[RowsRequest]) -> Result<Vec<RowsAnswer>> {
        self.read(|conn| {
            let mut reader = RowReader::new(conn, self.now())?;
            requests.iter().map(|request| reader.read(request)).collect()
        })
    }

    fn waiting(&self, slots: Range<u16>, after: Option<Waiting>, instances_max: u32) -> Result<Vec<Waiting>> {
        self.read(|conn| {
            let mut select = conn.prepare_cached(include_str!("waiting.sql"))?;
            // Before all instances of the first slot, or behind the last one that is known.
            let start = (i64::from(slots.start), i64::MIN);
            let after = after.map(|after| (i64::from(after.slot.number()), after.instance.0));
            let mut last = after.map_or(start, |after| after.max(start));
            let mut found = Vec::new();
            while found.len() < instances_max as usize {
                let next = select.query_row([last.0, last.1], |row| Ok((row.get(0)?, row.get(1)?)));
                let Some(next): Option<(i64, i64)> = next.optional()? else { break };
                if next.0 >= i64::from(slots.end) {
                    break;
                }
                found.push(Waiting { slot: slot_of(next.0)?, instance: InstanceId(next.1) });
                last = next;
            }
            Ok(found)
        })
    }

    fn depth(&self, slot: Slot, instance: InstanceId, rows_max: u32) -> Result<u32> {
        self.read(|conn| {
            let mut count = conn.prepare_cached(include_str!("depth.sql"))?;
            Ok(count.query_row(params![slot.number(), instance.0, rows_max], |row| row.get(0))?)
        })
    }

    fn mark_careful(
        &self,
        boot: Boot,
        rows: &[(Slot, InstanceId, Epoch, Vec<QueueId>)],
    ) -> Result<Vec<bool>> {
        self.write(|tx| {
            let mut is_owned = tx.statement(include_str!("is_owned.sql"))?;
            let mut mark = tx.statement(include_str!("mark_careful.sql"))?;
            let mut answers = Vec::with_capacity(rows.len());
            for (slot, instance, epoch, ids) in rows {
                let is_owner = is_owned.exists([instance.0, boot.0, epoch.0])?;
                for id in ids.iter().filter(|_| is_owner) {
                    if want_more(tx, slot.number(), instance.0, id.0)? {
                        mark.execute([id.0])?;
                    }
                }
                answers.push(is_owner);
            }
            Ok(answers)
        })
    }

    fn unblock(&self, slot: Slot, instance: InstanceId, rows: &[QueueId], is_retry: bool) -> Result<u64> {
        self.write(|tx| {
            let mut raise = tx.statement(include_str!("raise_epoch.sql"))?;
            if raise.execute(params![instance.0, slot.number()])? == 0 {
                return Ok(0);
            }
            let mut retry = tx.statement(include_str!("unblock_retry.sql"))?;
            let mut is_blocked = tx.statement(include_str!("is_blocked.sql"))?;
            let mut count = 0;
            for id in rows {
                let place = (slot.number(), instance.0, id.0);
                let is_done = if is_retry {
                    retry.execute(place)? == 1
                } else {
                    is_blocked.exists(place)? && drop_row(tx, place.0, place.1, place.2)?
                };
                count += u64::from(is_done);
            }
            Ok(count)
        })
    }

    fn purge(&self, slot: Slot, instance: InstanceId, rows_max: u32) -> Result<u64> {
        self.write(|tx| {
            let mut raise = tx.statement(include_str!("raise_epoch.sql"))?;
            if raise.execute(params![instance.0, slot.number()])? == 0 {
                return Ok(0);
            }
            let mut select = tx.statement(include_str!("first_rows.sql"))?;
            let mut ids: Vec<i64> = Vec::new();
            let mut rows = select.query(params![slot.number(), instance.0, rows_max])?;
            while let Some(row) = rows.next()? {
                ids.push(row.get(0)?);
            }
            for id in &ids {
                drop_row(tx, slot.number(), instance.0, *id)?;
            }
            Ok(ids.len() as u64)
        })
    }
}

/// Reads rows of one snapshot.
struct RowReader<'c> {
    conn: &'c Connection,
    event: CachedStatement<'c>,
    now: Timestamp,
}

impl<'c> RowReader<'c> {
    fn new(conn: &'c Connection, now: Timestamp) -> Inner<Self> {
        Ok(Self { conn, event: conn.prepare_cached(include_str!("event.sql"))?, now })
    }

    fn read(&mut self, request: &RowsRequest) -> Inner<RowsAnswer> {
        // One more than asked for shows whether that is the end.
        let limit = i64::from(request.rows_max) + 1;
        let mut rows = match request.order {
            RowOrder::Forward { after } => {
                self.by_place(include_str!("rows_forward.sql"), request, after, limit)?
            }
            RowOrder::Backward { before } => {
                self.by_place(include_str!("rows_backward.sql"), request, before, limit)?
            }
            RowOrder::GroupForward { group, after } => {
                let ids = self.of_group(request.instance, group, true, after, limit)?;
                self.by_ids(request, &ids)?
            }
            RowOrder::GroupBackward { group, before } => {
                let ids = self.of_group(request.instance, group, false, before, limit)?;
                self.by_ids(request, &ids)?
            }
            RowOrder::GroupPriority { group, after } => {
                let ids = self.by_priority(request.instance, group, after, limit)?;
                self.by_ids(request, &ids)?
            }
            RowOrder::Groups { after } => {
                let ids = self.firsts(request.instance, after, limit)?;
                self.by_ids(request, &ids)?
            }
        };
        let is_end = rows.len() <= request.rows_max as usize;
        rows.truncate(request.rows_max as usize);
        self.add_events(&mut rows, request.event_bytes_max)?;
        Ok(RowsAnswer { rows, is_end })
    }

    fn by_place(
        &mut self,
        sql: &str,
        request: &RowsRequest,
        place: QueueId,
        limit: i64,
    ) -> Inner<Vec<QueueRow>> {
        let mut select = self.conn.prepare_cached(sql)?;
        let mut found = select.query(params![request.slot.number(), request.instance.0, place.0, limit])?;
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            rows.push(row_of(row, self.now)?);
        }
        Ok(rows)
    }

    fn by_ids(&mut self, request: &RowsRequest, ids: &[i64]) -> Inner<Vec<QueueRow>> {
        let mut select = self.conn.prepare_cached(include_str!("row.sql"))?;
        let mut rows = Vec::with_capacity(ids.len());
        for id in ids {
            let mut found = select.query(params![request.slot.number(), request.instance.0, id])?;
            // The index and the table are of one snapshot; they differ only if the slot is not the row's.
            if let Some(row) = found.next()? {
                rows.push(row_of(row, self.now)?);
            }
        }
        Ok(rows)
    }

    /// Rows of a group by place. The index has them by priority first, so those of each priority that the
    /// group has are read, and merged.
    fn of_group(
        &mut self,
        instance: InstanceId,
        group: GroupHash,
        is_forward: bool,
        place: QueueId,
        limit: i64,
    ) -> Inner<Vec<i64>> {
        let mut next = self.conn.prepare_cached(include_str!("priority_next.sql"))?;
        let mut select = self.conn.prepare_cached(if is_forward {
            include_str!("group_forward.sql")
        } else {
            include_str!("group_backward.sql")
        })?;
        let (mut ids, mut priorities) = (Vec::new(), 0);
        // Above every priority that a row can have.
        let mut below = i64::MAX;
        while let Some(priority) = first::<i64>(&mut next, [instance.0, group.0, below])? {
            let mut found = select.query([instance.0, group.0, priority, place.0, limit])?;
            while let Some(row) = found.next()? {
                ids.push(row.get(0)?);
            }
            below = priority;
            priorities += 1;
        }
        if priorities > 1 {
            ids.sort_unstable();
            if !is_forward {
                ids.reverse();
            }
            ids.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        Ok(ids)
    }

    fn by_priority(
        &mut self,
        instance: InstanceId,
        group: GroupHash,
        after: Option<(i32, QueueId)>,
        limit: i64,
    ) -> Inner<Vec<i64>> {
        let mut next = self.conn.prepare_cached(include_str!("priority_next.sql"))?;
        let mut select = self.conn.prepare_cached(include_str!("group_forward.sql"))?;
        let mut ids = Vec::new();
        let mut read = |priority: i64, after: i64| -> Inner<bool> {
            let mut found = select.query([instance.0, group.0, priority, after, limit - ids.len() as i64])?;
            while let Some(row) = found.next()? {
                ids.push(row.get(0)?);
            }
            Ok(ids.len() as i64 >= limit)
        };
        let mut below = i64::MAX;
        let mut is_full = false;
        if let Some((priority, place)) = after {
            below = i64::from(priority);
            is_full = read(below, place.0)?;
        }
        while !is_full && let Some(priority) = first::<i64>(&mut next, [instance.0, group.0, below])? {
            is_full = read(priority, i64::MIN)?;
            below = priority;
        }
        Ok(ids)
    }

    /// The first row of each group behind that one.
    fn firsts(&mut self, instance: InstanceId, after: Option<GroupHash>, limit: i64) -> Inner<Vec<i64>> {
        let mut next = self.conn.prepare_cached(include_str!("group_next.sql"))?;
        // Hashes are never the least number there is.
        let mut last = after.map_or(i64::MIN, |group| group.0);
        let mut ids = Vec::new();
        while (ids.len() as i64) < limit
            && let Some(group) = first::<i64>(&mut next, [instance.0, last])?
        {
            ids.extend(self.of_group(instance, GroupHash(group), true, QueueId(i64::MIN), 1)?);
            last = group;
        }
        Ok(ids)
    }

    /// Events come along from the first on, until one has no room; the first always has.
    fn add_events(&mut self, rows: &mut [QueueRow], bytes_max: usize) -> Inner<()> {
        let mut sum = 0_usize;
        for (at, row) in rows.iter_mut().enumerate() {
            sum = sum.saturating_add(row.event_bytes as usize);
            if bytes_max == 0 || (at > 0 && sum > bytes_max) {
                break;
            }
            let mut found = self.event.query([row.seq.0])?;
            let Some(event) = found.next()? else {
                return Err(unexpected(format!("row {} names event {}, which is gone", row.id, row.seq)));
            };
            row.event = Some(event_of(event, 0)?);
        }
        Ok(())
    }
}

/// A row from the columns of `row.sql`.
fn row_of(row: &Row<'_>, now: Timestamp) -> Inner<QueueRow> {
    let id: i64 = row.get(0)?;
    let group = match row.get_ref(3)?.as_str_or_null().map_err(rusqlite::Error::from)? {
        Some(text) => Some(Group::new(text).map_err(|error| unexpected(error.to_string()))?),
        None => None,
    };
    let not_before: Option<i64> = row.get(5)?;
    let origin: Option<i64> = row.get(8)?;
    Ok(QueueRow {
        id: QueueId(id),
        seq: Seq(row.get(1)?),
        stream: row.get::<_, Option<i64>>(2)?.map(StreamNo),
        group,
        priority: row.get(4)?,
        delay: not_before.map(|at| Timestamp(at).since(now)).unwrap_or_default(),
        attempts: row.get(6)?,
        crashes: row.get(7)?,
        origin: QueueId(origin.unwrap_or(id)),
        is_blocked: row.get(9)?,
        event_bytes: row.get(10)?,
        event: None,
    })
}
