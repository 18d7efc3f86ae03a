//! Table `instances`.

use bytes::Bytes;
use evener_actor::id::{ActorNo, Boot, Epoch, InstanceId, Key, Slot, TenantNo, Version};
use rusqlite::{CachedStatement, OptionalExtension, Row, params};

use super::Sqlite;
use super::append::{Appender, slot_of};
use super::fault::Inner;
use super::streams::key_of;
use super::timers::write_schedule;
use super::tx::{Tx, next};
use crate::batch::{
    Claimed, CommitReport, End, InstanceCommit, InstanceView, RowEnd, ScheduleAnswer, Ticket, Waiting,
};
use crate::{Instances, Result};

impl Instances for Sqlite {
    fn claim(&self, boot: Boot, wanted: &[Waiting]) -> Result<Vec<Claimed>> {
        self.write(|tx| {
            tx.check_live(boot)?;
            let mut select = tx.statement(include_str!("claimable.sql"))?;
            let mut update = tx.statement(include_str!("claim.sql"))?;
            let mut claimed = Vec::with_capacity(wanted.len());
            for Waiting { slot, instance } in wanted {
                let mut rows = select.query(params![instance.0, slot.number()])?;
                let Some(row) = rows.next()? else { continue };
                let owner: Option<i64> = row.get(6)?;
                let (is_owner_live, has_rows): (bool, bool) = (row.get(7)?, row.get(8)?);
                let is_free = owner.is_none_or(|owner| owner == boot.0 || !is_owner_live);
                if !is_free || !has_rows {
                    continue;
                }
                claimed.push(Claimed {
                    slot: *slot,
                    instance: *instance,
                    tenant: TenantNo(row.get(0)?),
                    actor: ActorNo(row.get(1)?),
                    key: key_of(row, 2)?,
                    epoch: Epoch(row.get::<_, i64>(3)? + 1),
                    version: Version(row.get(4)?),
                    state: row.get::<_, Option<Vec<u8>>>(5)?.map(Bytes::from),
                    was_orphan: owner.is_some_and(|owner| owner != boot.0),
                });
                drop(rows);
                update.execute([boot.0, instance.0])?;
            }
            Ok(claimed)
        })
    }

    fn release(&self, boot: Boot, owned: &[(Slot, InstanceId, Epoch)]) -> Result<()> {
        self.write(|tx| {
            let mut update = tx.statement(include_str!("release.sql"))?;
            for (_, instance, epoch) in owned {
                update.execute([instance.0, boot.0, epoch.0])?;
            }
            Ok(())
        })
    }

    fn commit(&self, ticket: Ticket, batch: &[InstanceCommit]) -> Result<CommitReport> {
        let report = self.once(ticket, |tx| {
            let mut committer = Committer::new(tx)?;
            let mut report = CommitReport::default();
            report.committed.reserve(batch.len());
            for part in batch {
                let is_committed = committer.part(tx, ticket.boot, part, &mut report)?;
                report.committed.push(is_committed);
            }
            report.pending.sort_unstable();
            report.pending.dedup();
            Ok(report)
        })?;
        Ok(CommitReport::clone(&report))
    }

    fn instance(&self, actor: ActorNo, key: &Key) -> Result<Option<InstanceView>> {
        self.read(|conn| {
            let mut select = conn.prepare_cached(include_str!("instance.sql"))?;
            let mut rows = select.query(params![actor.0, key.as_str()])?;
            rows.next()?.map(|row| view_of(row, actor)).transpose()
        })
    }

    fn instances(
        &self,
        actor: ActorNo,
        prefix: &str,
        after: Option<&Key>,
        instances_max: u32,
    ) -> Result<Vec<InstanceView>> {
        self.read(|conn| {
            // From the greater of the two: keys are in the order of their bytes, here as there.
            let after = after.map(Key::as_str).filter(|after| *after >= prefix);
            let mut select = conn.prepare_cached(match after {
                Some(_) => include_str!("instances_after.sql"),
                None => include_str!("instances.sql"),
            })?;
            let mut rows = select.query(params![actor.0, after.unwrap_or(prefix), instances_max])?;
            let mut views = Vec::new();
            while let Some(row) = rows.next()? {
                let view = view_of(row, actor)?;
                if !view.key.as_str().starts_with(prefix) {
                    break;
                }
                views.push(view);
            }
            Ok(views)
        })
    }
}

fn view_of(row: &Row<'_>, actor: ActorNo) -> Inner<InstanceView> {
    Ok(InstanceView {
        instance: InstanceId(row.get(0)?),
        slot: slot_of(row.get(1)?)?,
        actor,
        key: key_of(row, 2)?,
        owner: row.get::<_, Option<i64>>(3)?.map(Boot),
        epoch: Epoch(row.get(4)?),
        version: Version(row.get(5)?),
        state: row.get::<_, Option<Vec<u8>>>(6)?.map(Bytes::from),
    })
}

/// The statements of a commit, looked up once for a batch; those of rarer ends when they are needed.
struct Committer<'c> {
    version: CachedStatement<'c>,
    state: CachedStatement<'c>,
    end_row: CachedStatement<'c>,
    /// The last row that ended had more than its place and its event; then the next one probably has, too.
    has_more: bool,
    appender: Option<Appender<'c>>,
}

impl<'c> Committer<'c> {
    fn new(tx: &Tx<'c>) -> Inner<Self> {
        Ok(Self {
            version: tx.statement(include_str!("commit_instance.sql"))?,
            state: tx.statement(include_str!("commit_state.sql"))?,
            end_row: tx.statement(include_str!("end_row.sql"))?,
            has_more: false,
            appender: None,
        })
    }

    /// One instance. `false`: it was fenced, and nothing of it is done.
    fn part(
        &mut self,
        tx: &mut Tx<'c>,
        boot: Boot,
        part: &InstanceCommit,
        report: &mut CommitReport,
    ) -> Inner<bool> {
        let (id, epoch) = (part.instance.0, part.epoch.0);
        let (version, after) = (part.version.0, part.version_after.0);
        let hit = match &part.state {
            Some(state) => self.state.execute(params![id, boot.0, epoch, version, after, &state[..]])?,
            None => self.version.execute([id, boot.0, epoch, version, after])?,
        };
        if hit == 0 {
            return Ok(false);
        }
        for end in &part.ends {
            self.end(tx, part, end, report)?;
        }
        Ok(true)
    }

    /// Takes the row away. `false`: it was not there (any more).
    fn take_row(&mut self, tx: &Tx<'c>, slot: u16, instance: i64, row: i64) -> Inner<bool> {
        if !self.has_more && self.end_row.execute(params![slot, instance, row])? == 1 {
            return Ok(true);
        }
        let more = tx.statement(include_str!("end_more.sql"))?.execute(params![slot, instance, row])?;
        self.has_more = more == 1;
        if self.has_more {
            let mut end = tx.statement(include_str!("end_row_more.sql"))?;
            return Ok(end.execute(params![slot, instance, row])? == 1);
        }
        Ok(self.end_row.execute(params![slot, instance, row])? == 1)
    }

    /// A row that is not there (any more) makes nothing.
    fn end(
        &mut self,
        tx: &mut Tx<'c>,
        part: &InstanceCommit,
        end: &RowEnd,
        report: &mut CommitReport,
    ) -> Inner<()> {
        let (slot, instance, row) = (part.slot.number(), part.instance.0, end.row.0);
        match &end.end {
            End::Done { events, schedules } => {
                if !self.take_row(tx, slot, instance, row)? {
                    return Ok(());
                }
                if !events.is_empty() {
                    if self.appender.is_none() {
                        self.appender = Some(Appender::new(tx)?);
                    }
                    let appender = self.appender.as_mut().expect("made above");
                    appender.follow(tx, events, report)?;
                }
                for write in schedules {
                    report.is_sooner |= write_schedule(tx, write)? == ScheduleAnswer::Set;
                }
            }
            End::Superseded => {
                self.take_row(tx, slot, instance, row)?;
            }
            End::Retry { attempts, delay, error } => {
                if want_more(tx, slot, instance, row)? {
                    let not_before = tx.now.saturating_add(*delay).0;
                    let mut retry = tx.statement(include_str!("retry_row.sql"))?;
                    retry.execute(params![row, attempts, not_before, error])?;
                }
            }
            End::Blocked { attempts, error } => {
                if want_more(tx, slot, instance, row)? {
                    let mut block = tx.statement(include_str!("block_row.sql"))?;
                    block.execute(params![row, attempts, error])?;
                }
            }
            End::Dead { attempts, cause, error } => {
                let letter = tx.last.letter + 1;
                let buried = tx.statement(include_str!("bury_row.sql"))?.execute(params![
                    slot,
                    instance,
                    row,
                    letter,
                    attempts,
                    cause.as_str(),
                    error,
                    tx.now.0
                ])?;
                if buried == 1 {
                    next(&mut tx.last.letter);
                    self.take_row(tx, slot, instance, row)?;
                }
            }
        }
        Ok(())
    }
}

/// Gives the row a place for what only some have. `false`: the row is not there.
pub(super) fn want_more(tx: &Tx<'_>, slot: u16, instance: i64, row: i64) -> Inner<bool> {
    if tx.statement(include_str!("want_more.sql"))?.execute(params![slot, instance, row])? == 0 {
        return Ok(false);
    }
    tx.statement(include_str!("make_more.sql"))?.execute(params![slot, instance, row])?;
    Ok(true)
}

/// Takes a row away, with what there is more of it. `false`: it was not there.
pub(super) fn drop_row(tx: &Tx<'_>, slot: u16, instance: i64, row: i64) -> Inner<bool> {
    tx.statement(include_str!("end_more.sql"))?.execute(params![slot, instance, row])?;
    Ok(tx.statement(include_str!("end_row_more.sql"))?.execute(params![slot, instance, row])? == 1)
}

/// The first value of a query, if it gives any.
pub(super) fn first<T: rusqlite::types::FromSql>(
    statement: &mut CachedStatement<'_>,
    params: impl rusqlite::Params,
) -> Inner<Option<T>> {
    Ok(statement.query_row(params, |row| row.get(0)).optional()?)
}
