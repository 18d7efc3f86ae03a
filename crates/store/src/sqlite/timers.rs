//! Table `scheduled_events`.

use evener_actor::event::{Event, Headers, Timestamp};
use evener_actor::id::{ActorNo, Key, ScheduleId, StreamNo, TenantNo};
use evener_actor::outcome::CatchUp;
use rusqlite::{OptionalExtension, Row, params};

use super::Sqlite;
use super::append::{Appender, check_actor, check_stream, check_tenant, shared};
use super::fault::{Inner, unexpected};
use super::instances::first;
use super::tx::{Tx, next};
use crate::batch::{
    CommitReport, CronSpec, Due, FireAt, Firing, NewSchedule, Schedule, ScheduleAnswer, ScheduleTo,
    ScheduleWrite, Ticket,
};
use crate::{Result, Timers};

impl Timers for Sqlite {
    fn now(&self) -> Result<Timestamp> {
        Ok(Sqlite::now(self))
    }

    fn due(&self, schedules_max: u32) -> Result<Due> {
        self.read(|conn| {
            let now = Sqlite::now(self);
            let mut select = conn.prepare_cached(include_str!("due.sql"))?;
            let mut rows = select.query(params![now.0, schedules_max])?;
            let mut schedules = Vec::new();
            while let Some(row) = rows.next()? {
                schedules.push(schedule_of(row)?);
            }
            let next: Option<i64> = first(&mut conn.prepare_cached(include_str!("next_due.sql"))?, [now.0])?;
            Ok(Due { schedules, now, next_in: next.map(|next| Timestamp(next).since(now)) })
        })
    }

    fn fire(&self, ticket: Ticket, firings: &[Firing]) -> Result<CommitReport> {
        let report = self.once(ticket, |tx| {
            let mut advance = tx.statement(include_str!("advance_schedule.sql"))?;
            let mut end = tx.statement(include_str!("end_schedule.sql"))?;
            let mut appender = Appender::new(tx)?;
            let mut report = CommitReport::default();
            for firing in firings {
                let (no, generation, fire_at) = (firing.no, firing.generation, firing.fire_at.0);
                let hit = match firing.next {
                    Some(next) => advance.execute([no, generation, fire_at, next.0])?,
                    None => end.execute([no, generation, fire_at])?,
                };
                report.committed.push(hit == 1);
                if hit == 1 {
                    appender.follow(tx, &firing.events, &mut report)?;
                }
            }
            report.pending.sort_unstable();
            report.pending.dedup();
            Ok(report)
        })?;
        Ok(CommitReport::clone(&report))
    }

    fn write_schedules(&self, writes: &[ScheduleWrite]) -> Result<Vec<ScheduleAnswer>> {
        self.write(|tx| writes.iter().map(|write| write_schedule(tx, write)).collect())
    }

    fn schedules(
        &self,
        tenant: TenantNo,
        after: Option<&ScheduleId>,
        schedules_max: u32,
    ) -> Result<Vec<Schedule>> {
        self.read(|conn| {
            let mut select = conn.prepare_cached(include_str!("schedules.sql"))?;
            // No name is empty.
            let after = after.map_or("", ScheduleId::as_str);
            let mut rows = select.query(params![tenant.0, after, schedules_max])?;
            let mut schedules = Vec::new();
            while let Some(row) = rows.next()? {
                schedules.push(schedule_of(row)?);
            }
            Ok(schedules)
        })
    }
}

/// Sets or cancels one.
pub(super) fn write_schedule(tx: &mut Tx<'_>, write: &ScheduleWrite) -> Inner<ScheduleAnswer> {
    match write {
        ScheduleWrite::Set(new) => set(tx, new),
        ScheduleWrite::Cancel { tenant, id } => {
            check_tenant(tx, *tenant)?;
            let mut cancel = tx.statement(include_str!("cancel_schedule.sql"))?;
            Ok(match cancel.execute(params![tenant.0, id.as_str()])? {
                0 => ScheduleAnswer::NotThere,
                _ => ScheduleAnswer::Cancelled,
            })
        }
    }
}

fn set(tx: &mut Tx<'_>, new: &NewSchedule) -> Inner<ScheduleAnswer> {
    let (to_stream, to_actor, to_key) = match &new.to {
        ScheduleTo::Stream(stream) => {
            check_stream(tx, new.tenant, *stream)?;
            (Some(stream.0), None, None)
        }
        ScheduleTo::Instance { actor, key } => {
            check_actor(tx, new.tenant, *actor)?;
            (None, Some(actor.0), Some(key.as_str()))
        }
    };
    let there: Option<(i64, i64, String)> = tx
        .statement(include_str!("find_schedule.sql"))?
        .query_row(params![new.tenant.0, new.id.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let (no, generation) = match there {
        Some((_, _, spec)) if spec == new.spec => return Ok(ScheduleAnswer::Unchanged),
        Some((no, generation, _)) => (no, generation + 1),
        None => (next(&mut tx.last.schedule), 1),
    };
    let fire_at = match new.first {
        FireAt::In(delay) => tx.now.saturating_add(delay),
        FireAt::At(at) => at,
    };
    let cron = new.cron.as_ref();
    let event = &new.event;
    tx.statement(include_str!("set_schedule.sql"))?.execute(params![
        no,
        new.tenant.0,
        new.id.as_str(),
        generation,
        fire_at.0,
        new.spec,
        cron.map(|cron| &cron.expression),
        cron.map(|cron| &cron.time_zone),
        cron.map(|cron| catch_up_text(cron.catch_up)),
        to_stream,
        to_actor,
        to_key,
        event.time.0,
        &*event.id,
        &*event.source,
        &*event.kind,
        event.subject.as_deref(),
        event.content_type.as_deref(),
        event.headers.to_text(),
        &*event.data,
    ])?;
    Ok(ScheduleAnswer::Set)
}

fn catch_up_text(catch_up: CatchUp) -> &'static str {
    match catch_up {
        CatchUp::Skip => "skip",
        CatchUp::Once => "once",
        CatchUp::All => "all",
    }
}

fn schedule_of(row: &Row<'_>) -> Inner<Schedule> {
    let text =
        |column: usize| -> Inner<&str> { Ok(row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?) };
    let perhaps = |column: usize| -> Inner<Option<&str>> {
        Ok(row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from)?)
    };
    let no: i64 = row.get(0)?;
    let wrong = |what: &str| unexpected(format!("schedule {no}: {what}"));
    let cron = match perhaps(5)? {
        Some(expression) => Some(CronSpec {
            expression: expression.to_owned(),
            time_zone: perhaps(6)?.ok_or_else(|| wrong("no time zone"))?.to_owned(),
            catch_up: [CatchUp::Skip, CatchUp::Once, CatchUp::All]
                .into_iter()
                .find(|catch_up| perhaps(7).is_ok_and(|text| text == Some(catch_up_text(*catch_up))))
                .ok_or_else(|| wrong("no known way to catch up"))?,
        }),
        None => None,
    };
    let to = match (row.get::<_, Option<i64>>(8)?, row.get::<_, Option<i64>>(9)?, perhaps(10)?) {
        (Some(stream), None, None) => ScheduleTo::Stream(StreamNo(stream)),
        (None, Some(actor), Some(key)) => ScheduleTo::Instance {
            actor: ActorNo(actor),
            key: Key::new(key).map_err(|error| wrong(&error.to_string()))?,
        },
        _ => return Err(wrong("it goes nowhere, or to two places")),
    };
    let data = row.get_ref(18)?.as_blob().map_err(rusqlite::Error::from)?;
    Ok(Schedule {
        no,
        tenant: TenantNo(row.get(1)?),
        id: ScheduleId::new(text(2)?).map_err(|error| wrong(&error.to_string()))?,
        generation: row.get(3)?,
        fire_at: Timestamp(row.get(4)?),
        cron,
        to,
        event: Event {
            time: Timestamp(row.get(11)?),
            id: shared(text(12)?),
            source: shared(text(13)?),
            kind: shared(text(14)?),
            subject: perhaps(15)?.map(shared),
            content_type: perhaps(16)?.map(shared),
            headers: Headers::from_text(perhaps(17)?).map_err(|error| wrong(&error.to_string()))?,
            data: data.to_vec().into(),
        },
    })
}
