//! Dead letters and parked events.

use evener_actor::event::Timestamp;
use evener_actor::id::{ActorNo, InstanceId, QueueId, Seq, SubscriptionNo, TenantNo};

use tokio_postgres::Row;

use super::Postgres;
use super::connection::Effect;
use super::read::{count, get, key, slot};
use super::sql::{self, Call, arg};
use super::streams::row_made;
use crate::batch::{DeadCause, DeadLetter, NewRow, Parked, RowMade};
use crate::{Letters, Result, StoreError};

impl Letters for Postgres {
    fn dead_letters(
        &self,
        tenant: TenantNo,
        actor: Option<ActorNo>,
        after: i64,
        letters_max: u32,
    ) -> Result<Vec<DeadLetter>> {
        let letters_max = i64::from(letters_max);
        let parts = if actor.is_some() { vec!["actor"] } else { Vec::new() };
        let actor = actor.map_or(0, |actor| actor.0);
        let args = vec![
            arg("tenant", &tenant.0),
            arg("actor", &actor),
            arg("after", &after),
            arg("letters_max", &letters_max),
        ];
        let rows = self.read(&Call::with(sql::DEAD_LETTERS, parts, args))?;
        rows.iter()
            .map(|row| {
                let cause: &str = get(row, "cause")?;
                Ok(DeadLetter {
                    id: get(row, "id")?,
                    slot: slot(get(row, "slot")?)?,
                    instance: InstanceId(get(row, "instance")?),
                    actor: ActorNo(get(row, "actor")?),
                    key: key(get(row, "key")?)?,
                    seq: Seq(get(row, "seq")?),
                    origin: QueueId(get(row, "origin")?),
                    attempts: count(get(row, "attempts")?),
                    crashes: count(get(row, "crashes")?),
                    cause: DeadCause::from_text(cause)
                        .ok_or_else(|| StoreError::Internal(format!("a dead letter's cause is `{cause}`")))?,
                    error: get(row, "error")?,
                    at: Timestamp(get(row, "at_ms")?),
                })
            })
            .collect()
    }

    fn redrive(&self, tenant: TenantNo, letters: &[i64]) -> Result<Vec<RowMade>> {
        let mut sorted: Vec<(i64, i32)> = letters.iter().copied().zip(0..).collect();
        sorted.sort_unstable();
        sorted.dedup_by_key(|letter| letter.0);
        let (letters, orders): (Vec<i64>, Vec<i32>) = sorted.into_iter().unzip();
        let args = vec![arg("tenant", &tenant.0), arg("letters", &letters), arg("orders", &orders)];
        made_in_order(&self.other.ask(Effect::Writes, &Call::new(sql::REDRIVE, args))?)
    }

    fn drop_letters(&self, tenant: TenantNo, letters: &[i64]) -> Result<u64> {
        let letters = letters.to_vec();
        let call = Call::new(sql::DROP_LETTERS, vec![arg("tenant", &tenant.0), arg("letters", &letters)]);
        Ok(self.other.ask(Effect::Writes, &call)?.len() as u64)
    }

    fn parked(&self, tenant: TenantNo, after: i64, events_max: u32) -> Result<Vec<Parked>> {
        let events_max = i64::from(events_max);
        let args = vec![arg("tenant", &tenant.0), arg("after", &after), arg("events_max", &events_max)];
        let rows = self.read(&Call::new(sql::PARKED, args))?;
        rows.iter()
            .map(|row| {
                Ok(Parked {
                    id: get(row, "id")?,
                    seq: Seq(get(row, "seq")?),
                    subscription: get::<Option<i64>>(row, "subscription")?.map(SubscriptionNo),
                    reason: get(row, "reason")?,
                    at: Timestamp(get(row, "at_ms")?),
                })
            })
            .collect()
    }

    fn unpark(&self, tenant: TenantNo, events: &[(i64, Option<NewRow>)]) -> Result<Vec<RowMade>> {
        let ids: Vec<i64> = events.iter().map(|(id, _)| *id).collect();
        let mut placed: Vec<(i64, i32, &NewRow)> =
            (0..).zip(events).filter_map(|(order, (id, row))| Some((*id, order, row.as_ref()?))).collect();
        placed.sort_unstable_by_key(|(id, order, _)| (*id, *order));
        placed.dedup_by_key(|(id, ..)| *id);
        let row_ids: Vec<i64> = placed.iter().map(|(id, ..)| *id).collect();
        let orders: Vec<i32> = placed.iter().map(|(_, order, _)| *order).collect();
        let tenants: Vec<i64> = vec![tenant.0; placed.len()];
        let actors: Vec<i64> = placed.iter().map(|(.., row)| row.actor.0).collect();
        let keys: Vec<&str> = placed.iter().map(|(.., row)| row.key.as_str()).collect();
        let slots: Vec<i16> = placed.iter().map(|(.., row)| row.slot.number() as i16).collect();
        let hashes: Vec<i64> = placed.iter().map(|(.., row)| row.group_hash().0).collect();
        let priorities: Vec<i32> = placed.iter().map(|(.., row)| row.priority).collect();
        let indexed: Vec<bool> = placed.iter().map(|(.., row)| row.is_indexed).collect();
        let groups: Vec<Option<&str>> =
            placed.iter().map(|(.., row)| row.group.as_ref().map(evener_actor::id::Group::as_str)).collect();
        let make = Call::new(
            sql::INSTANCES_MAKE,
            vec![arg("tenants", &tenants), arg("actors", &actors), arg("slots", &slots), arg("keys", &keys)],
        );
        let unpark = Call::new(
            sql::UNPARK,
            vec![
                arg("tenant", &tenant.0),
                arg("ids", &ids),
                arg("row_ids", &row_ids),
                arg("row_orders", &orders),
                arg("row_actors", &actors),
                arg("row_keys", &keys),
                arg("row_slots", &slots),
                arg("row_hashes", &hashes),
                arg("row_priorities", &priorities),
                arg("row_indexed", &indexed),
                arg("row_groups", &groups),
            ],
        );
        let answers = self.other.ask_all(Effect::Writes, &[make, unpark])?;
        made_in_order(&answers[1])
    }
}

/// Places rise in the order in which rows were made.
fn made_in_order(rows: &[Row]) -> Result<Vec<RowMade>> {
    let mut made: Vec<RowMade> = rows.iter().map(row_made).collect::<Result<_>>()?;
    made.sort_unstable_by_key(|made| made.row);
    Ok(made)
}
