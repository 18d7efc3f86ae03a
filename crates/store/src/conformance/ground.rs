//! The ground a claim stands on: a tenant, a stream, two actors, one live boot, and short words for batches.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use evener_actor::definition::{ActorDefinition, Path, Subscription, Target, TypePattern};
use evener_actor::event::Event;
use evener_actor::id::{
    ActorName, ActorNo, Boot, Epoch, Group, InstanceId, Key, QueueId, ScheduleId, Seq, Slot, StreamName,
    StreamNo, SubscriptionNo, Tenant, TenantNo, Version,
};
use evener_actor::policy::{QueueMode, QueuePolicy};

use super::Harness;
use crate::batch::{
    Appended, Claimed, CommitReport, Dedupe, End, FireAt, InstanceCommit, InstanceView, NewEvent, NewRow,
    NewSchedule, QueueRow, RowEnd, RowMade, RowOrder, RowsAnswer, RowsRequest, ScheduleTo, ScheduleWrite,
    Ticket, Waiting,
};
use crate::{Result, Store};

/// The window of appends that are compared.
pub(super) const WINDOW: Duration = Duration::from_secs(24 * 3_600);

/// As long as nobody waits for in earnest.
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// More than any answer needs.
const ALL: u32 = 100_000;

/// Tries again what is passing, as every caller of a store does.
pub(super) fn sure<T>(act: impl Fn() -> Result<T>) -> T {
    let mut tries = 0;
    loop {
        match act() {
            Ok(done) => return done,
            Err(error) if error.is_passing() && tries < 10_000 => {
                tries += 1;
                std::thread::yield_now();
            }
            Err(error) => panic!("after {tries} tries: {error}"),
        }
    }
}

pub(super) fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

pub(super) fn group(text: &str) -> Group {
    Group::new(text).expect("a group")
}

/// A tenant with a stream and three actors.
pub(super) struct Ground<'a> {
    pub(super) harness: &'a dyn Harness,
    pub(super) store: Arc<dyn Store>,
    pub(super) name: Tenant,
    pub(super) tenant: TenantNo,
    pub(super) stream: StreamNo,
    /// Its rows stand in no index: `plain`.
    pub(super) plain: ActorNo,
    /// Its rows stand in the index over group and priority: `ranked`.
    pub(super) ranked: ActorNo,
    /// Two deferred subscriptions of a third one.
    pub(super) deferred: Vec<SubscriptionNo>,
    pub(super) boot: Boot,
    lanes: Mutex<BTreeMap<(Boot, u16), i64>>,
}

impl<'a> Ground<'a> {
    pub(super) fn new(harness: &'a dyn Harness) -> Self {
        Self::of(harness, Tenant::default())
    }

    /// The same for another tenant.
    pub(super) fn of(harness: &'a dyn Harness, name: Tenant) -> Self {
        let store = harness.store();
        let tenant = store.tenant(&name).expect("a tenant");
        let stream = store.stream(tenant, &StreamName::new("orders").expect("a name")).expect("a stream");
        let plain = ActorDefinition::new(ActorName::new("plain").expect("a name"));
        let ranked = ActorDefinition::new(ActorName::new("ranked").expect("a name"))
            .queue(QueuePolicy { mode: QueueMode::Priority, ..QueuePolicy::default() });
        let everywhere = |kind: &str| Subscription {
            kind: TypePattern::new(kind),
            key: Target::Broadcast,
            ..Subscription::new(
                StreamName::new("orders").expect("a name"),
                Path::new("subject").expect("a path"),
            )
        };
        let wide = ActorDefinition::new(ActorName::new("wide").expect("a name"))
            .subscribe(everywhere("order.*"))
            .subscribe(everywhere("*"));
        let routes = store.deploy(tenant, &[plain, ranked, wide]).expect("a deploy");
        let find =
            |name: &str| routes.actors.iter().find(|actor| actor.name.as_str() == name).expect("an actor");
        let deferred: Vec<SubscriptionNo> =
            find("wide").subscriptions.iter().map(|(subscription, ..)| *subscription).collect();
        let (plain, ranked) = (find("plain").no, find("ranked").no);
        let boot = store.register("first").expect("a boot");
        Self { harness, store, name, tenant, stream, plain, ranked, deferred, boot, lanes: Mutex::default() }
    }

    /// The next ticket of a lane of the boot.
    pub(super) fn ticket(&self, lane: u16) -> Ticket {
        self.ticket_of(self.boot, lane)
    }

    pub(super) fn ticket_of(&self, boot: Boot, lane: u16) -> Ticket {
        let mut lanes = self.lanes.lock().expect("no claim goes on after a panic");
        let number = lanes.entry((boot, lane)).or_default();
        *number += 1;
        Ticket { boot, lane, number: *number }
    }

    pub(super) fn slot(&self, actor: &str, key: &Key) -> Slot {
        Slot::of(&self.name, &ActorName::new(actor).expect("a name"), key)
    }

    /// A row for an instance of `plain`.
    pub(super) fn row(&self, text: &str) -> NewRow {
        let key = key(text);
        NewRow {
            slot: self.slot("plain", &key),
            actor: self.plain,
            key,
            group: None,
            is_indexed: false,
            priority: 0,
        }
    }

    /// A row for an instance of `ranked`.
    pub(super) fn ranked_row(&self, text: &str, of: Option<&str>, priority: i32) -> NewRow {
        let key = key(text);
        NewRow {
            slot: self.slot("ranked", &key),
            actor: self.ranked,
            key,
            group: of.map(group),
            is_indexed: true,
            priority,
        }
    }

    /// An event of the stream that nothing follows from.
    pub(super) fn event(&self, id: &str) -> NewEvent {
        NewEvent {
            tenant: self.tenant,
            stream: Some(self.stream),
            event: Event::new("order.placed", format!("{{\"id\":\"{id}\"}}"))
                .with_id(id)
                .with_source("/conformance"),
            dedupe: None,
            rows: Vec::new(),
            deferred: Vec::new(),
            parked: Vec::new(),
        }
    }

    pub(super) fn event_to(&self, id: &str, rows: Vec<NewRow>) -> NewEvent {
        NewEvent { rows, ..self.event(id) }
    }

    /// An event that is compared with earlier ones of its id.
    pub(super) fn known(&self, id: &str, body_hash: u64) -> NewEvent {
        NewEvent { dedupe: Some(Dedupe { body_hash, window: WINDOW }), ..self.event(id) }
    }

    /// An event that waits for deferred subscriptions.
    pub(super) fn deferred(&self, id: &str) -> NewEvent {
        NewEvent { deferred: self.deferred.clone(), ..self.event(id) }
    }

    /// Appends on lane 0.
    pub(super) fn append(&self, events: &[NewEvent]) -> Vec<Appended> {
        let ticket = self.ticket(0);
        sure(|| self.store.append(ticket, events))
    }

    /// Appends one event that is new: its place and rows.
    pub(super) fn append_new(&self, event: NewEvent) -> (Seq, Vec<RowMade>) {
        new(self.append(&[event]).remove(0))
    }

    /// Appends one event for each row.
    pub(super) fn feed(&self, rows: impl IntoIterator<Item = NewRow>) -> Vec<RowMade> {
        let events: Vec<NewEvent> = rows
            .into_iter()
            .enumerate()
            .map(|(number, row)| self.event_to(&format!("fed-{number}"), vec![row]))
            .collect();
        self.append(&events).into_iter().flat_map(|appended| new(appended).1).collect()
    }

    /// One row of `plain`.
    pub(super) fn feed_one(&self, text: &str) -> RowMade {
        self.feed([self.row(text)])[0]
    }

    pub(super) fn claim_of(&self, boot: Boot, rows: &[RowMade]) -> Vec<Claimed> {
        let mut wanted: Vec<Waiting> =
            rows.iter().map(|made| Waiting { slot: made.slot, instance: made.instance }).collect();
        wanted.sort_unstable();
        wanted.dedup();
        self.store.claim(boot, &wanted).expect("a live boot claims")
    }

    /// The boot claims the row's instance.
    pub(super) fn claim(&self, row: RowMade) -> Claimed {
        self.claim_of(self.boot, &[row]).pop().expect("a free instance with a row is claimed")
    }

    /// Commits on lane 1.
    pub(super) fn commit(&self, batch: &[InstanceCommit]) -> CommitReport {
        let ticket = self.ticket(1);
        sure(|| self.store.commit(ticket, batch))
    }

    pub(super) fn request(row: RowMade) -> RowsRequest {
        RowsRequest {
            slot: row.slot,
            instance: row.instance,
            order: RowOrder::Forward { after: QueueId(0) },
            rows_max: ALL,
            event_bytes_max: usize::MAX,
        }
    }

    pub(super) fn read(&self, request: RowsRequest) -> RowsAnswer {
        let mut answers = self.store.rows(&[request]).expect("rows");
        assert_eq!(answers.len(), 1, "one answer for one request");
        answers.remove(0)
    }

    /// All rows of the row's instance, by place.
    pub(super) fn rows(&self, row: RowMade) -> Vec<QueueRow> {
        self.read(Self::request(row)).rows
    }

    /// Places of all rows of the row's instance.
    pub(super) fn places(&self, row: RowMade) -> Vec<QueueId> {
        self.rows(row).into_iter().map(|row| row.id).collect()
    }

    pub(super) fn view(&self, actor: ActorNo, text: &str) -> InstanceView {
        self.store.instance(actor, &key(text)).expect("an answer").expect("an instance of that key")
    }

    /// Places and ids of all events in the stream.
    pub(super) fn stream_ids(&self) -> Vec<(Seq, String)> {
        let mut all = Vec::new();
        let mut after = Seq(0);
        loop {
            let page = self.store.read_stream(self.stream, after, ALL, usize::MAX).expect("a page");
            let Some(last) = page.last() else { return all };
            after = last.seq;
            all.extend(page.iter().map(|stored| (stored.seq, stored.event.id.to_string())));
        }
    }

    /// A one-shot schedule whose event goes into the stream.
    pub(super) fn schedule(&self, id: &str, spec: &str, first: FireAt) -> NewSchedule {
        NewSchedule {
            tenant: self.tenant,
            id: ScheduleId::new(id).expect("a name"),
            spec: spec.to_owned(),
            first,
            cron: None,
            to: ScheduleTo::Stream(self.stream),
            event: Event::new("tick", "{}").with_source("/timers"),
        }
    }

    pub(super) fn set(&self, id: &str, spec: &str, first: FireAt) -> ScheduleWrite {
        ScheduleWrite::Set(Box::new(self.schedule(id, spec, first)))
    }

    pub(super) fn cancel(&self, id: &str) -> ScheduleWrite {
        ScheduleWrite::Cancel { tenant: self.tenant, id: ScheduleId::new(id).expect("a name") }
    }

    /// Ends the row as dead, by its owner.
    pub(super) fn kill(&self, claimed: &Claimed, row: QueueId) {
        let end =
            End::Dead { attempts: 3, cause: crate::batch::DeadCause::Attempts, error: "no more".to_owned() };
        let version = self.version(claimed);
        let part = InstanceCommit { version, ..part(claimed, vec![RowEnd { row, end }]) };
        let part = InstanceCommit { version_after: Version(version.0 + 1), ..part };
        assert_eq!(self.commit(&[part]).committed, [true]);
    }

    /// The version that the instance has now.
    pub(super) fn version(&self, claimed: &Claimed) -> Version {
        self.store.instance(claimed.actor, &claimed.key).expect("an answer").expect("an instance").version
    }
}

/// Place and rows of an event that is new.
pub(super) fn new(appended: Appended) -> (Seq, Vec<RowMade>) {
    match appended {
        Appended::New { seq, rows } => (seq, rows),
        other => panic!("should be new: {other:?}"),
    }
}

/// The first commit of an owner.
pub(super) fn part(claimed: &Claimed, ends: Vec<RowEnd>) -> InstanceCommit {
    InstanceCommit {
        slot: claimed.slot,
        instance: claimed.instance,
        epoch: claimed.epoch,
        version: claimed.version,
        version_after: Version(claimed.version.0 + 1),
        state: None,
        ends,
    }
}

/// The same with a state.
pub(super) fn part_with(claimed: &Claimed, state: &'static str, ends: Vec<RowEnd>) -> InstanceCommit {
    InstanceCommit { state: Some(Bytes::from_static(state.as_bytes())), ..part(claimed, ends) }
}

pub(super) fn done(row: QueueId) -> RowEnd {
    done_with(row, Vec::new(), Vec::new())
}

pub(super) fn done_with(row: QueueId, events: Vec<NewEvent>, schedules: Vec<ScheduleWrite>) -> RowEnd {
    RowEnd { row, end: End::Done { events, schedules } }
}

pub(super) fn retry(row: QueueId, attempts: u32, delay: Duration) -> RowEnd {
    RowEnd { row, end: End::Retry { attempts, delay, error: "not yet".to_owned() } }
}

pub(super) fn owned(claimed: &Claimed) -> (Slot, InstanceId, Epoch) {
    (claimed.slot, claimed.instance, claimed.epoch)
}

/// Runs on that many threads at once and gives back what each returned. All begin together.
pub(super) fn together<T: Send>(threads: usize, act: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let barrier = std::sync::Barrier::new(threads);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|number| {
                let (barrier, act) = (&barrier, &act);
                scope.spawn(move || {
                    barrier.wait();
                    act(number)
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    })
}
