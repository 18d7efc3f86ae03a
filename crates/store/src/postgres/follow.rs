//! What follows from a batch: events and their rows, pending and parked ones, as the arrays of `follow.sql`.

use std::collections::HashSet;

use evener_actor::event::Event;
use evener_actor::id::{ActorNo, InstanceId, Key, QueueId, Slot};

use super::keys::Keys;
use super::sql::{Arg, Call, INSTANCES_MAKE, arg};
use crate::batch::{NewEvent, NewParked, NewRow, RowMade};

/// Arrays, one element for each event, row, pending or parked one. `parent`: what it follows from (a number of
/// the statement's own kind); if that is not done, it is not either.
#[derive(Default)]
pub(super) struct Follow<'a> {
    event_parent: Vec<i64>,
    event_tenant: Vec<i64>,
    event_stream: Vec<Option<i64>>,
    event_time: Vec<i64>,
    event_id: Vec<&'a str>,
    event_source: Vec<&'a str>,
    event_kind: Vec<&'a str>,
    event_subject: Vec<Option<&'a str>>,
    event_content_type: Vec<Option<&'a str>>,
    event_headers: Vec<Option<String>>,
    event_data: Vec<&'a [u8]>,
    row_parent: Vec<i64>,
    /// Which event, from 1.
    row_event: Vec<i32>,
    row_slot: Vec<i16>,
    /// 0: to be looked up.
    row_instance: Vec<i64>,
    row_stream: Vec<Option<i64>>,
    row_group_hash: Vec<i64>,
    row_priority: Vec<i32>,
    row_bytes: Vec<i32>,
    row_indexed: Vec<bool>,
    row_group: Vec<Option<&'a str>>,
    row_actor: Vec<i64>,
    row_key: Vec<&'a str>,
    /// The keys again, to be kept in [`Keys`].
    keys: Vec<&'a Key>,
    pending_parent: Vec<i64>,
    pending_event: Vec<i32>,
    pending_stream: Vec<i64>,
    pending_subscription: Vec<i64>,
    parked_parent: Vec<i64>,
    parked_event: Vec<i32>,
    parked_tenant: Vec<i64>,
    parked_stream: Vec<Option<i64>>,
    parked_subscription: Vec<Option<i64>>,
    parked_bytes: Vec<i32>,
    parked_reason: Vec<&'a str>,
    make_tenant: Vec<i64>,
    make_actor: Vec<i64>,
    make_slot: Vec<i16>,
    make_key: Vec<&'a str>,
    is_cold: bool,
    events: i32,
    rows: i32,
}

/// Bytes of an event's data, as rows know them.
pub(super) fn data_bytes(event: &Event) -> i32 {
    i32::try_from(event.data.len()).unwrap_or(i32::MAX)
}

impl<'a> Follow<'a> {
    /// Adds an event with all that follows from it.
    pub(super) fn event(&mut self, parent: i64, new: &'a NewEvent) {
        let event = &new.event;
        let stream = new.stream.map(|stream| stream.0);
        self.event_parent.push(parent);
        self.event_tenant.push(new.tenant.0);
        self.event_stream.push(stream);
        self.event_time.push(event.time.0);
        self.event_id.push(&event.id);
        self.event_source.push(&event.source);
        self.event_kind.push(&event.kind);
        self.event_subject.push(event.subject.as_deref());
        self.event_content_type.push(event.content_type.as_deref());
        self.event_headers.push(event.headers.to_text());
        self.event_data.push(&event.data);
        self.events += 1;
        let number = self.events;
        for row in &new.rows {
            self.row(parent, number, new.tenant.0, stream, data_bytes(event), row);
        }
        if let Some(stream) = stream {
            for subscription in &new.deferred {
                self.pending_parent.push(parent);
                self.pending_event.push(number);
                self.pending_stream.push(stream);
                self.pending_subscription.push(subscription.0);
            }
        }
        for parked in &new.parked {
            self.parked(parent, number, new.tenant.0, stream, data_bytes(event), parked);
        }
    }

    /// Adds a row of event number `event`.
    pub(super) fn row(
        &mut self,
        parent: i64,
        event: i32,
        tenant: i64,
        stream: Option<i64>,
        bytes: i32,
        row: &'a NewRow,
    ) {
        self.row_parent.push(parent);
        self.row_event.push(event);
        self.row_slot.push(row.slot.number() as i16);
        self.row_instance.push(0);
        self.row_stream.push(stream);
        self.row_group_hash.push(row.group_hash().0);
        self.row_priority.push(row.priority);
        self.row_bytes.push(bytes);
        self.row_indexed.push(row.is_indexed);
        self.row_group.push(row.group.as_ref().map(evener_actor::id::Group::as_str));
        self.row_actor.push(row.actor.0);
        self.row_key.push(row.key.as_str());
        self.keys.push(&row.key);
        self.make_tenant.push(tenant);
        self.rows += 1;
    }

    /// Adds a parked one of event number `event`.
    pub(super) fn parked(
        &mut self,
        parent: i64,
        event: i32,
        tenant: i64,
        stream: Option<i64>,
        bytes: i32,
        parked: &'a NewParked,
    ) {
        self.parked_parent.push(parent);
        self.parked_event.push(event);
        self.parked_tenant.push(tenant);
        self.parked_stream.push(stream);
        self.parked_subscription.push(parked.subscription.map(|subscription| subscription.0));
        self.parked_bytes.push(bytes);
        self.parked_reason.push(&parked.reason);
    }

    /// Looks up the instances; those that nobody knows will be made.
    pub(super) fn resolve(&mut self, keys: &Keys) {
        let tenants = std::mem::take(&mut self.make_tenant);
        keys.with(|get| {
            for (at, key) in self.keys.iter().enumerate() {
                if let Some(instance) = get(ActorNo(self.row_actor[at]), key) {
                    self.row_instance[at] = instance.0;
                }
            }
        });
        let mut seen = HashSet::new();
        for (at, tenant) in tenants.into_iter().enumerate() {
            if self.row_instance[at] == 0 && seen.insert((self.row_actor[at], self.row_key[at])) {
                self.make_tenant.push(tenant);
                self.make_actor.push(self.row_actor[at]);
                self.make_slot.push(self.row_slot[at]);
                self.make_key.push(self.row_key[at]);
            }
        }
        self.is_cold = !self.make_key.is_empty();
    }

    /// The number of events.
    pub(super) fn events(&self) -> &i32 {
        &self.events
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> &i32 {
        &self.rows
    }

    /// `true`: there are instances to be made first, with [`Follow::make`].
    pub(super) fn is_cold(&self) -> bool {
        self.is_cold
    }

    /// The parts of `follow.sql` that there are.
    pub(super) fn parts(&self, parts: &mut Vec<&'static str>) {
        if self.events > 0 && !self.event_id.is_empty() {
            parts.push("events");
        }
        if self.rows > 0 {
            parts.push("rows");
            parts.push(if self.is_cold { "cold" } else { "warm" });
        }
        if !self.pending_event.is_empty() {
            parts.push("pending");
        }
        if !self.parked_event.is_empty() {
            parts.push("parked");
        }
    }

    /// Their arguments.
    pub(super) fn args<'b>(&'b self, args: &mut Vec<Arg<'b>>) {
        args.extend([
            arg("events", &self.events),
            arg("rows", &self.rows),
            arg("event_parent", &self.event_parent),
            arg("event_tenant", &self.event_tenant),
            arg("event_stream", &self.event_stream),
            arg("event_time", &self.event_time),
            arg("event_id", &self.event_id),
            arg("event_source", &self.event_source),
            arg("event_kind", &self.event_kind),
            arg("event_subject", &self.event_subject),
            arg("event_content_type", &self.event_content_type),
            arg("event_headers", &self.event_headers),
            arg("event_data", &self.event_data),
            arg("row_parent", &self.row_parent),
            arg("row_event", &self.row_event),
            arg("row_slot", &self.row_slot),
            arg("row_instance", &self.row_instance),
            arg("row_stream", &self.row_stream),
            arg("row_group_hash", &self.row_group_hash),
            arg("row_priority", &self.row_priority),
            arg("row_bytes", &self.row_bytes),
            arg("row_indexed", &self.row_indexed),
            arg("row_group", &self.row_group),
            arg("row_actor", &self.row_actor),
            arg("row_key", &self.row_key),
            arg("pending_parent", &self.pending_parent),
            arg("pending_event", &self.pending_event),
            arg("pending_stream", &self.pending_stream),
            arg("pending_subscription", &self.pending_subscription),
            arg("parked_parent", &self.parked_parent),
            arg("parked_event", &self.parked_event),
            arg("parked_tenant", &self.parked_tenant),
            arg("parked_stream", &self.parked_stream),
            arg("parked_subscription", &self.parked_subscription),
            arg("parked_bytes", &self.parked_bytes),
            arg("parked_reason", &self.parked_reason),
        ]);
    }

    /// Makes the instances that nobody knows.
    pub(super) fn make(&self) -> Call<'_> {
        Call::new(
            INSTANCES_MAKE,
            vec![
                arg("tenants", &self.make_tenant),
                arg("actors", &self.make_actor),
                arg("slots", &self.make_slot),
                arg("keys", &self.make_key),
            ],
        )
    }

    /// Whose rows those are, to find them again.
    pub(super) fn places<'b>(&'b self) -> [Arg<'b>; 2] {
        [arg("actors", &self.row_actor), arg("keys", &self.row_key)]
    }

    /// The row that was made for row number `at`, from 0, if its instance was known before.
    pub(super) fn made(&self, at: usize, id: i64) -> RowMade {
        RowMade {
            slot: Slot::new(self.row_slot[at] as u16),
            instance: InstanceId(self.row_instance[at]),
            row: QueueId(id),
        }
    }

    /// The rows that were made: `made` and `instances` belong together and rise, `ids` are all that were drawn,
    /// one for each row. What was new is kept.
    pub(super) fn learn(
        &mut self,
        keys: &Keys,
        ids: &[i64],
        made: &[i64],
        instances: &[i64],
    ) -> Vec<RowMade> {
        let mut at = 0;
        let mut rows = Vec::with_capacity(made.len());
        let mut learnt = Vec::new();
        for (id, instance) in made.iter().zip(instances) {
            while ids[at] != *id {
                at += 1;
            }
            if self.row_instance[at] == 0 {
                self.row_instance[at] = *instance;
                learnt.push(at);
            }
            rows.push(self.made(at, *id));
        }
        if !learnt.is_empty() {
            keys.keep(
                learnt.into_iter().map(|at| {
                    (ActorNo(self.row_actor[at]), self.keys[at], InstanceId(self.row_instance[at]))
                }),
            );
        }
        rows
    }

    /// The numbers, from 0, of rows of event number `event`, from 1: they stand together.
    pub(super) fn rows_of(&self, event: i32) -> std::ops::Range<usize> {
        let first = self.row_event.partition_point(|of| *of < event);
        first..self.row_event.partition_point(|of| *of <= event)
    }
}
