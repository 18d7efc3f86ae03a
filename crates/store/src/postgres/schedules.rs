//! Schedules as arrays of `schedules.sql`, and as arguments of single statements.

use evener_actor::outcome::CatchUp;

use super::sql::{Arg, arg};
use crate::batch::{FireAt, NewSchedule, ScheduleTo, ScheduleWrite};

/// As a column holds it.
pub(super) fn catch_up_text(catch_up: CatchUp) -> &'static str {
    match catch_up {
        CatchUp::Skip => "skip",
        CatchUp::Once => "once",
        CatchUp::All => "all",
    }
}

/// From a column.
pub(super) fn catch_up(text: &str) -> Option<CatchUp> {
    [CatchUp::Skip, CatchUp::Once, CatchUp::All].into_iter().find(|way| catch_up_text(*way) == text)
}

/// Changes of schedules, one element for each.
#[derive(Default)]
pub(super) struct Wishes<'a> {
    parent: Vec<i64>,
    tenant: Vec<i64>,
    cancel: Vec<bool>,
    id: Vec<&'a str>,
    spec: Vec<Option<&'a str>>,
    delay: Vec<Option<i64>>,
    at: Vec<Option<i64>>,
    cron: Vec<Option<&'a str>>,
    zone: Vec<Option<&'a str>>,
    catch_up: Vec<Option<&'a str>>,
    stream: Vec<Option<i64>>,
    actor: Vec<Option<i64>>,
    key: Vec<Option<&'a str>>,
    event_id: Vec<Option<&'a str>>,
    time: Vec<Option<i64>>,
    source: Vec<Option<&'a str>>,
    kind: Vec<Option<&'a str>>,
    subject: Vec<Option<&'a str>>,
    content_type: Vec<Option<&'a str>>,
    headers: Vec<Option<String>>,
    data: Vec<&'a [u8]>,
}

/// When it fires first, as columns: a delay from now, or a time.
pub(super) fn first(schedule: &NewSchedule) -> (Option<i64>, Option<i64>) {
    match schedule.first {
        FireAt::In(delay) => (Some(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX >> 1)), None),
        FireAt::At(at) => (None, Some(at.0)),
    }
}

/// Where it goes, as columns.
pub(super) fn to(schedule: &NewSchedule) -> (Option<i64>, Option<i64>, Option<&str>) {
    match &schedule.to {
        ScheduleTo::Stream(stream) => (Some(stream.0), None, None),
        ScheduleTo::Instance { actor, key } => (None, Some(actor.0), Some(key.as_str())),
    }
}

impl<'a> Wishes<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.id.is_empty()
    }

    /// Adds one that follows from that row.
    pub(super) fn add(&mut self, parent: i64, write: &'a ScheduleWrite) {
        let (tenant, id, set) = match write {
            ScheduleWrite::Set(set) => (set.tenant, &set.id, Some(&**set)),
            ScheduleWrite::Cancel { tenant, id } => (*tenant, id, None),
        };
        self.parent.push(parent);
        self.tenant.push(tenant.0);
        self.cancel.push(set.is_none());
        self.id.push(id.as_str());
        self.spec.push(set.map(|set| set.spec.as_str()));
        let (delay, at) = set.map_or((None, None), first);
        self.delay.push(delay);
        self.at.push(at);
        let cron = set.and_then(|set| set.cron.as_ref());
        self.cron.push(cron.map(|cron| cron.expression.as_str()));
        self.zone.push(cron.map(|cron| cron.time_zone.as_str()));
        self.catch_up.push(cron.map(|cron| catch_up_text(cron.catch_up)));
        let (stream, actor, key) = set.map_or((None, None, None), to);
        self.stream.push(stream);
        self.actor.push(actor);
        self.key.push(key);
        let event = set.map(|set| &set.event);
        self.event_id.push(event.map(|event| &*event.id));
        self.time.push(event.map(|event| event.time.0));
        self.source.push(event.map(|event| &*event.source));
        self.kind.push(event.map(|event| &*event.kind));
        self.subject.push(event.and_then(|event| event.subject.as_deref()));
        self.content_type.push(event.and_then(|event| event.content_type.as_deref()));
        self.headers.push(event.and_then(|event| event.headers.to_text()));
        self.data.push(event.map_or(&[], |event| &event.data));
    }

    pub(super) fn args<'b>(&'b self, args: &mut Vec<Arg<'b>>) {
        args.extend([
            arg("wish_parent", &self.parent),
            arg("wish_tenant", &self.tenant),
            arg("wish_cancel", &self.cancel),
            arg("wish_id", &self.id),
            arg("wish_spec", &self.spec),
            arg("wish_delay", &self.delay),
            arg("wish_at", &self.at),
            arg("wish_cron", &self.cron),
            arg("wish_zone", &self.zone),
            arg("wish_catch_up", &self.catch_up),
            arg("wish_stream", &self.stream),
            arg("wish_actor", &self.actor),
            arg("wish_key", &self.key),
            arg("wish_event_id", &self.event_id),
            arg("wish_time", &self.time),
            arg("wish_source", &self.source),
            arg("wish_kind", &self.kind),
            arg("wish_subject", &self.subject),
            arg("wish_content_type", &self.content_type),
            arg("wish_headers", &self.headers),
            arg("wish_data", &self.data),
        ]);
    }
}
