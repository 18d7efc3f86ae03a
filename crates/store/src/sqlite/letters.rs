//! Tables `dead_letters`, `parked`.

use evener_actor::event::Timestamp;
use evener_actor::id::{ActorNo, InstanceId, QueueId, Seq, StreamNo, SubscriptionNo, TenantNo};
use rusqlite::{OptionalExtension, Row, params};

use super::Sqlite;
use super::append::{Appender, OfEvent, is_tracked, slot_of};
use super::fault::{Inner, unexpected};
use super::instances::first;
use super::streams::key_of;
use super::tx::next;
use crate::batch::{DeadCause, DeadLetter, NewRow, Parked, RowMade};
use crate::{Letters, Result};

impl Letters for Sqlite {
    fn dead_letters(
        &self,
        tenant: TenantNo,
        actor: Option<ActorNo>,
        after: i64,
        letters_max: u32,
    ) -> Result<Vec<DeadLetter>> {
        self.read(|conn| {
            let mut select = conn.prepare_cached(match actor {
                Some(_) => include_str!("dead_letters_of.sql"),
                None => include_str!("dead_letters.sql"),
            })?;
            let mut rows = match actor {
                Some(actor) => select.query(params![tenant.0, after, letters_max, actor.0])?,
                None => select.query(params![tenant.0, after, letters_max])?,
            };
            let mut letters = Vec::new();
            while let Some(row) = rows.next()? {
                letters.push(letter_of(row)?);
            }
            Ok(letters)
        })
    }

    fn redrive(&self, tenant: TenantNo, letters: &[i64]) -> Result<Vec<RowMade>> {
        self.write(|tx| {
            let mut insert = tx.statement(include_str!("redrive.sql"))?;
            let mut more = tx.statement(include_str!("redrive_more.sql"))?;
            let mut end = tx.statement(include_str!("end_letter.sql"))?;
            let mut made = Vec::new();
            for letter in letters {
                let row = tx.last.queue + 1;
                if insert.execute([tenant.0, *letter, row])? == 0 {
                    continue;
                }
                next(&mut tx.last.queue);
                more.execute([tenant.0, *letter, row])?;
                let (slot, instance): (i64, i64) =
                    end.query_row([tenant.0, *letter], |row| Ok((row.get(0)?, row.get(1)?)))?;
                made.push(RowMade {
                    slot: slot_of(slot)?,
                    instance: InstanceId(instance),
                    row: QueueId(row),
                });
            }
            Ok(made)
        })
    }

    fn drop_letters(&self, tenant: TenantNo, letters: &[i64]) -> Result<u64> {
        self.write(|tx| {
            let mut end = tx.statement(include_str!("end_letter.sql"))?;
            let mut count = 0;
            for letter in letters {
                count += u64::from(end.exists([tenant.0, *letter])?);
            }
            Ok(count)
        })
    }

    fn parked(&self, tenant: TenantNo, after: i64, events_max: u32) -> Result<Vec<Parked>> {
        self.read(|conn| {
            let mut select = conn.prepare_cached(include_str!("parked.sql"))?;
            let mut rows = select.query(params![tenant.0, after, events_max])?;
            let mut parked = Vec::new();
            while let Some(row) = rows.next()? {
                parked.push(Parked {
                    id: row.get(0)?,
                    seq: Seq(row.get(1)?),
                    subscription: row.get::<_, Option<i64>>(2)?.map(SubscriptionNo),
                    reason: row.get(3)?,
                    at: Timestamp(row.get(4)?),
                });
            }
            Ok(parked)
        })
    }

    fn unpark(&self, tenant: TenantNo, events: &[(i64, Option<NewRow>)]) -> Result<Vec<RowMade>> {
        self.write(|tx| {
            let mut end = tx.statement(include_str!("end_parked.sql"))?;
            let mut place = tx.statement(include_str!("event_place.sql"))?;
            let mut appender = Appender::new(tx)?;
            let mut made = Vec::new();
            for (id, row) in events {
                let Some(seq) = first::<i64>(&mut end, [tenant.0, *id])? else { continue };
                let Some(row) = row else { continue };
                let of: Option<(Option<i64>, i64)> =
                    place.query_row([seq], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
                let (stream, bytes) = of.ok_or_else(|| unexpected(format!("parked event {seq} is gone")))?;
                let (seq, stream) = (Seq(seq), stream.map(StreamNo));
                let is_tracked = is_tracked(tx, tenant, stream, seq)?;
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                let of = OfEvent { seq, stream, bytes, is_tracked };
                made.push(appender.new_row(tx, tenant, of, row)?);
            }
            Ok(made)
        })
    }
}

fn letter_of(row: &Row<'_>) -> Inner<DeadLetter> {
    let cause: String = row.get(9)?;
    Ok(DeadLetter {
        id: row.get(0)?,
        slot: slot_of(row.get(1)?)?,
        instance: InstanceId(row.get(2)?),
        actor: ActorNo(row.get(3)?),
        key: key_of(row, 4)?,
        seq: Seq(row.get(5)?),
        origin: QueueId(row.get(6)?),
        attempts: row.get(7)?,
        crashes: row.get(8)?,
        cause: DeadCause::from_text(&cause).ok_or_else(|| unexpected(format!("a cause `{cause}`")))?,
        error: row.get(10)?,
        at: Timestamp(row.get(11)?),
    })
}
