//! Rows of queues.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use evener_actor::id::{Boot, Epoch, InstanceId, QueueId, Seq, Slot, StreamNo};
use tokio_postgres::Row;

use super::Postgres;
use super::connection::Effect;
use super::read::{at, count, event, get, group, only, slot};
use super::sql::{self, Call, Template, arg};
use crate::batch::{QueueRow, RowOrder, RowsAnswer, RowsRequest, Waiting};
use crate::{Queues, Result};

/// Requests of one order, as arrays.
#[derive(Default)]
struct Requests {
    /// Which of the caller's.
    places: Vec<usize>,
    slots: Vec<i16>,
    instances: Vec<i64>,
    /// One more than was asked for, to know whether there is one.
    rows_max: Vec<i64>,
    bytes_max: Vec<i64>,
    groups: Vec<i64>,
    priorities: Vec<i64>,
    after: Vec<i64>,
}

impl Requests {
    fn call(&self, template: &'static Template) -> Call<'_> {
        Call::new(
            template,
            vec![
                arg("slots", &self.slots),
                arg("instances", &self.instances),
                arg("rows_max", &self.rows_max),
                arg("bytes_max", &self.bytes_max),
                arg("groups", &self.groups),
                arg("priorities", &self.priorities),
                arg("after", &self.after),
            ],
        )
    }
}

/// The statement for an order, and its group, priority and place.
fn statement(order: RowOrder) -> (&'static Template, i64, i64, i64) {
    match order {
        RowOrder::Forward { after } => (sql::ROWS_FORWARD, 0, 0, after.0),
        RowOrder::Backward { before } => (sql::ROWS_BACKWARD, 0, 0, before.0),
        RowOrder::GroupForward { group, after } => (sql::ROWS_GROUP_FORWARD, group.0, 0, after.0),
        RowOrder::GroupBackward { group, before } => (sql::ROWS_GROUP_BACKWARD, group.0, 0, before.0),
        RowOrder::GroupPriority { group, after } => {
            // Before the first: above every priority there is.
            let (priority, after) =
                after.map_or((i64::from(i32::MAX) + 1, i64::MAX), |(priority, id)| (priority.into(), id.0));
            (sql::ROWS_GROUP_PRIORITY, group.0, priority, after)
        }
        // A hash is never the least number.
        RowOrder::Groups { after } => (sql::ROWS_GROUPS, 0, 0, after.map_or(i64::MIN, |group| group.0)),
    }
}

fn queue_row(row: &Row) -> Result<QueueRow> {
    let id = QueueId(at(row, 2)?);
    let is_there = at::<Option<i64>>(row, 13)?.is_some();
    Ok(QueueRow {
        id,
        seq: Seq(at(row, 3)?),
        stream: at::<Option<i64>>(row, 4)?.map(StreamNo),
        group: group(at(row, 5)?)?,
        priority: at(row, 6)?,
        delay: Duration::from_millis(at::<Option<i64>>(row, 12)?.unwrap_or(0).unsigned_abs()),
        attempts: count(at(row, 7)?),
        crashes: count(at(row, 8)?),
        origin: at::<Option<i64>>(row, 9)?.map_or(id, QueueId),
        is_blocked: at(row, 10)?,
        event_bytes: count(at(row, 11)?),
        event: if is_there { Some(Arc::new(event(row, 13)?)) } else { None },
    })
}

impl Queues for Postgres {
    fn rows(&self, requests: &[RowsRequest]) -> Result<Vec<RowsAnswer>> {
        let mut kinds: Vec<(&'static Template, Requests)> = Vec::new();
        for (place, request) in requests.iter().enumerate() {
            let (template, group, priority, after) = statement(request.order);
            let known = kinds.iter().position(|kind| kind.0.name == template.name);
            let kind = known.unwrap_or_else(|| {
                kinds.push((template, Requests::default()));
                kinds.len() - 1
            });
            let of = &mut kinds[kind].1;
            of.places.push(place);
            of.slots.push(request.slot.number() as i16);
            of.instances.push(request.instance.0);
            of.rows_max.push(i64::from(request.rows_max) + 1);
            of.bytes_max.push(i64::try_from(request.event_bytes_max).unwrap_or(i64::MAX));
            of.groups.push(group);
            of.priorities.push(priority);
            of.after.push(after);
        }
        let mut answers = vec![RowsAnswer { rows: Vec::new(), is_end: true }; requests.len()];
        for (template, kind) in &kinds {
            // By request, and there by place; they come so, but nobody has promised it.
            let mut found: HashMap<usize, Vec<(i64, QueueRow)>> = HashMap::new();
            for row in &self.read(&kind.call(template))? {
                let place = kind.places[at::<i64>(row, 0)? as usize - 1];
                found.entry(place).or_default().push((at(row, 1)?, queue_row(row)?));
            }
            for (place, mut rows) in found {
                rows.sort_by_key(|row| row.0);
                let rows_max = requests[place].rows_max as usize;
                answers[place].is_end = rows.len() <= rows_max;
                answers[place].rows = rows.into_iter().take(rows_max).map(|row| row.1).collect();
            }
        }
        Ok(answers)
    }

    fn waiting(&self, slots: Range<u16>, after: Option<Waiting>, instances_max: u32) -> Result<Vec<Waiting>> {
        if slots.is_empty() || instances_max == 0 {
            return Ok(Vec::new());
        }
        let first = (slots.start as i16, i64::MIN);
        let (first_slot, first_instance) =
            after.map_or(first, |after| first.max((after.slot.number() as i16, after.instance.0)));
        let slot_end = slots.end as i16;
        let instances_max = i32::try_from(instances_max).unwrap_or(i32::MAX);
        let args = vec![
            arg("slot", &first_slot),
            arg("instance", &first_instance),
            arg("slot_end", &slot_end),
            arg("instances_max", &instances_max),
        ];
        let rows = self.read(&Call::new(sql::WAITING, args))?;
        rows.iter()
            .map(|row| {
                Ok(Waiting { slot: slot(get(row, "slot")?)?, instance: InstanceId(get(row, "instance")?) })
            })
            .collect()
    }

    fn depth(&self, slot: Slot, instance: InstanceId, rows_max: u32) -> Result<u32> {
        let (slot, rows_max) = (slot.number() as i16, i64::from(rows_max));
        let args = vec![arg("slot", &slot), arg("instance", &instance.0), arg("rows_max", &rows_max)];
        let rows = self.read(&Call::new(sql::DEPTH, args))?;
        Ok(u32::try_from(get::<i64>(only(&rows)?, "rows")?).unwrap_or(u32::MAX))
    }

    fn mark_careful(
        &self,
        boot: Boot,
        rows: &[(Slot, InstanceId, Epoch, Vec<QueueId>)],
    ) -> Result<Vec<bool>> {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|at| rows[*at].1);
        let (mut ids, mut epochs, mut firsts, mut lasts, mut all) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::<i64>::new());
        for at in &order {
            let (_, instance, epoch, rows) = &rows[*at];
            ids.push(instance.0);
            epochs.push(epoch.0);
            firsts.push(all.len() as i32 + 1);
            all.extend(rows.iter().map(|row| row.0));
            lasts.push(all.len() as i32);
        }
        let args = vec![
            arg("boot", &boot.0),
            arg("ids", &ids),
            arg("epochs", &epochs),
            arg("firsts", &firsts),
            arg("lasts", &lasts),
            arg("rows", &all),
        ];
        let held = self.other.ask(Effect::Writes, &Call::new(sql::MARK_CAREFUL, args))?;
        let mut marked = vec![false; rows.len()];
        for row in &held {
            marked[order[get::<i32>(row, "n")? as usize - 1]] = true;
        }
        Ok(marked)
    }

    fn unblock(&self, slot: Slot, instance: InstanceId, rows: &[QueueId], is_retry: bool) -> Result<u64> {
        let slot = slot.number() as i16;
        let rows: Vec<i64> = rows.iter().map(|row| row.0).collect();
        let template = if is_retry { sql::UNBLOCK_RETRY } else { sql::UNBLOCK_DROP };
        let args = vec![arg("slot", &slot), arg("instance", &instance.0), arg("rows", &rows)];
        Ok(self.other.ask(Effect::Writes, &Call::new(template, args))?.len() as u64)
    }

    fn purge(&self, slot: Slot, instance: InstanceId, rows_max: u32) -> Result<u64> {
        let (slot, rows_max) = (slot.number() as i16, i64::from(rows_max));
        let args = vec![arg("slot", &slot), arg("instance", &instance.0), arg("rows_max", &rows_max)];
        Ok(self.other.ask(Effect::Writes, &Call::new(sql::PURGE, args))?.len() as u64)
    }
}
