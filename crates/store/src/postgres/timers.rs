//! Schedules: due, fired, set, cancelled.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evener_actor::event::{Event, Headers, Timestamp};
use evener_actor::id::{ActorNo, ScheduleId, StreamNo, TenantNo};
use tokio_postgres::Row;

use super::Postgres;
use super::connection::Effect;
use super::follow::Follow;
use super::instances::pending_of;
use super::read::{get, key, name, only};
use super::schedules::{catch_up, catch_up_text, first, to};
use super::sql::{self, Call, arg};
use crate::batch::{
    CommitReport, CronSpec, Due, Firing, Schedule, ScheduleAnswer, ScheduleTo, ScheduleWrite, Ticket,
};
use crate::{Result, StoreError, Timers};

impl Timers for Postgres {
    fn now(&self) -> Result<Timestamp> {
        Ok(Timestamp(get(only(&self.read(&Call::new(sql::NOW, Vec::new()))?)?, "now_ms")?))
    }

    fn due(&self, schedules_max: u32) -> Result<Due> {
        let now = self.now()?;
        let schedules_max = i64::from(schedules_max);
        let args = vec![arg("now", &now.0), arg("schedules_max", &schedules_max)];
        let schedules = self.read(&Call::new(sql::DUE, args))?;
        let next = self.read(&Call::new(sql::DUE_NEXT, vec![arg("now", &now.0)]))?;
        let next = next.first().map(|row| get::<i64>(row, "fire_at_ms")).transpose()?;
        Ok(Due {
            schedules: schedules.iter().map(schedule).collect::<Result<_>>()?,
            now,
            next_in: next.map(|next| Timestamp(next).since(now).max(Duration::from_millis(1))),
        })
    }

    fn fire(&self, ticket: Ticket, firings: &[Firing]) -> Result<CommitReport> {
        let connection = self.append_lane(ticket.lane);
        let lane = self.lane(connection, &ticket)?;
        // In the order of schedules, as their rows are locked.
        let mut order: Vec<usize> = (0..firings.len()).collect();
        order.sort_by_key(|at| firings[*at].no);
        let of = |at: &usize| &firings[*at];
        let nos: Vec<i64> = order.iter().map(|at| of(at).no).collect();
        let generations: Vec<i64> = order.iter().map(|at| of(at).generation).collect();
        let fire_ats: Vec<i64> = order.iter().map(|at| of(at).fire_at.0).collect();
        let over: Vec<bool> = order.iter().map(|at| of(at).next.is_none()).collect();
        let nexts: Vec<i64> = order.iter().map(|at| of(at).next.map_or(0, |next| next.0)).collect();
        let mut follow = Follow::default();
        let mut parents = vec![0; firings.len()];
        for (parent, at) in (1_i64..).zip(&order) {
            parents[*at] = parent;
        }
        for (firing, parent) in firings.iter().zip(&parents) {
            for event in &firing.events {
                follow.event(*parent, event);
            }
        }
        follow.resolve(&self.keys);
        let mut parts = vec!["some"];
        follow.parts(&mut parts);
        let mut args = lane.args();
        follow.args(&mut args);
        args.extend([
            arg("nos", &nos),
            arg("generations", &generations),
            arg("fire_ats", &fire_ats),
            arg("over", &over),
            arg("nexts", &nexts),
        ]);
        let answer = self.follow_up(connection, &follow, Call::with(sql::FIRE, parts, args))?;
        let answer = only(&answer)?;
        let (fired, rows) = if get::<bool>(answer, "is_done")? {
            (get::<Option<Vec<i64>>>(answer, "fired")?, self.rows_of_answer(answer, &mut follow)?)
        } else {
            self.was_done(connection, &ticket)?;
            let kept = connection.ask(Effect::Reads, &Call::new(sql::LANE, lane.args()))?;
            (get(only(&kept)?, "report")?, self.rows_again(connection, &ticket, &follow)?)
        };
        let fired: HashSet<i64> = fired.unwrap_or_default().into_iter().collect();
        let committed: Vec<bool> = parents.iter().map(|parent| fired.contains(parent)).collect();
        let done = firings.iter().zip(&committed).filter(|(_, is_committed)| **is_committed);
        let mut pending: Vec<StreamNo> = done.flat_map(|(firing, _)| pending_of(&firing.events)).collect();
        pending.sort_unstable();
        pending.dedup();
        Ok(CommitReport { committed, rows, pending, is_sooner: false })
    }

    fn write_schedules(&self, writes: &[ScheduleWrite]) -> Result<Vec<ScheduleAnswer>> {
        let headers: Vec<Option<String>> = writes
            .iter()
            .map(|write| match write {
                ScheduleWrite::Set(set) => set.event.headers.to_text(),
                ScheduleWrite::Cancel { .. } => None,
            })
            .collect();
        let wants: Vec<Want<'_>> = writes.iter().zip(&headers).map(Want::of).collect();
        let calls: Vec<Call<'_>> = wants.iter().map(Want::call).collect();
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        let answers = self.other.ask_all(Effect::Writes, &calls)?;
        let answer = |(want, rows): (&Want<'_>, &Vec<Row>)| match (want.is_cancel, rows.is_empty()) {
            (false, false) => ScheduleAnswer::Set,
            (false, true) => ScheduleAnswer::Unchanged,
            (true, false) => ScheduleAnswer::Cancelled,
            (true, true) => ScheduleAnswer::NotThere,
        };
        Ok(wants.iter().zip(&answers).map(answer).collect())
    }

    fn schedules(
        &self,
        tenant: TenantNo,
        after: Option<&ScheduleId>,
        schedules_max: u32,
    ) -> Result<Vec<Schedule>> {
        let after = after.map_or("", ScheduleId::as_str);
        let schedules_max = i64::from(schedules_max);
        let args = vec![arg("tenant", &tenant.0), arg("after", &after), arg("schedules_max", &schedules_max)];
        self.read(&Call::new(sql::SCHEDULES_OF, args))?.iter().map(schedule).collect()
    }
}

/// One change, as arguments.
struct Want<'a> {
    is_cancel: bool,
    tenant: i64,
    id: &'a str,
    spec: &'a str,
    delay: Option<i64>,
    at: Option<i64>,
    cron: Option<&'a str>,
    zone: Option<&'a str>,
    catch_up: Option<&'a str>,
    stream: Option<i64>,
    actor: Option<i64>,
    key: Option<&'a str>,
    event_id: &'a str,
    time: i64,
    source: &'a str,
    kind: &'a str,
    subject: Option<&'a str>,
    content_type: Option<&'a str>,
    headers: Option<&'a str>,
    data: &'a [u8],
}

impl<'a> Want<'a> {
    fn of((write, headers): (&'a ScheduleWrite, &'a Option<String>)) -> Self {
        match write {
            ScheduleWrite::Set(set) => {
                let (delay, at) = first(set);
                let (stream, actor, key) = to(set);
                let cron = set.cron.as_ref();
                Self {
                    is_cancel: false,
                    tenant: set.tenant.0,
                    id: set.id.as_str(),
                    spec: &set.spec,
                    delay,
                    at,
                    cron: cron.map(|cron| cron.expression.as_str()),
                    zone: cron.map(|cron| cron.time_zone.as_str()),
                    catch_up: cron.map(|cron| catch_up_text(cron.catch_up)),
                    stream,
                    actor,
                    key,
                    event_id: &set.event.id,
                    time: set.event.time.0,
                    source: &set.event.source,
                    kind: &set.event.kind,
                    subject: set.event.subject.as_deref(),
                    content_type: set.event.content_type.as_deref(),
                    headers: headers.as_deref(),
                    data: &set.event.data,
                }
            }
            ScheduleWrite::Cancel { tenant, id } => Self {
                is_cancel: true,
                tenant: tenant.0,
                id: id.as_str(),
                spec: "",
                delay: None,
                at: None,
                cron: None,
                zone: None,
                catch_up: None,
                stream: None,
                actor: None,
                key: None,
                event_id: "",
                time: 0,
                source: "",
                kind: "",
                subject: None,
                content_type: None,
                headers: None,
                data: &[],
            },
        }
    }

    fn call(&self) -> Call<'_> {
        let template = if self.is_cancel { sql::SCHEDULE_CANCEL } else { sql::SCHEDULE_SET };
        Call::new(
            template,
            vec![
                arg("tenant", &self.tenant),
                arg("id", &self.id),
                arg("spec", &self.spec),
                arg("delay", &self.delay),
                arg("at", &self.at),
                arg("cron", &self.cron),
                arg("zone", &self.zone),
                arg("catch_up", &self.catch_up),
                arg("stream", &self.stream),
                arg("actor", &self.actor),
                arg("key", &self.key),
                arg("event_id", &self.event_id),
                arg("time", &self.time),
                arg("source", &self.source),
                arg("kind", &self.kind),
                arg("subject", &self.subject),
                arg("content_type", &self.content_type),
                arg("headers", &self.headers),
                arg("data", &self.data),
            ],
        )
    }
}

fn schedule(row: &Row) -> Result<Schedule> {
    let text = |text: &str| Arc::<str>::from(text);
    let fault = |what: &str| StoreError::Internal(format!("a schedule with a broken {what}"));
    let cron = match get::<Option<String>>(row, "cron_expression")? {
        Some(expression) => Some(CronSpec {
            expression,
            time_zone: get(row, "cron_zone")?,
            catch_up: catch_up(get(row, "cron_catch_up")?).ok_or_else(|| fault("catch-up"))?,
        }),
        None => None,
    };
    let to = match get::<Option<i64>>(row, "to_stream")? {
        Some(stream) => ScheduleTo::Stream(StreamNo(stream)),
        None => {
            ScheduleTo::Instance { actor: ActorNo(get(row, "to_actor")?), key: key(get(row, "to_key")?)? }
        }
    };
    Ok(Schedule {
        no: get(row, "no")?,
        tenant: TenantNo(get(row, "tenant")?),
        id: name(get(row, "id")?, ScheduleId::new)?,
        generation: get(row, "generation")?,
        fire_at: Timestamp(get(row, "fire_at_ms")?),
        cron,
        to,
        event: Event {
            id: text(get(row, "event_id")?),
            source: text(get(row, "source")?),
            kind: text(get(row, "kind")?),
            subject: get::<Option<&str>>(row, "subject")?.map(text),
            time: Timestamp(get(row, "event_time_ms")?),
            content_type: get::<Option<&str>>(row, "content_type")?.map(text),
            data: Bytes::copy_from_slice(get(row, "data")?),
            headers: Headers::from_text(get(row, "headers")?).map_err(|_| fault("header"))?,
        },
    })
}
