//! A back end beside the plain model: a walk over all calls, drawn from a seed, with the same answers from both.
//!
//! The two give numbers of their own, so each number of ours has a twin of theirs, learned from the first
//! answer that holds both; from then on they must agree. Where an order is promised, it is compared; where
//! none is (instances made in one batch, letters of several instances), only what there is. All times are
//! whole hours or halves of them, so that a clock that runs on during the walk changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use evener_actor::definition::{ActorDefinition, Path, Subscription, Target, TypePattern};
use evener_actor::event::{Event, StoredEvent, Timestamp};
use evener_actor::id::{
    ActorName, ActorNo, Boot, Epoch, GroupHash, InstanceId, Key, QueueId, ScheduleId, Seq, Slot, StreamNo,
    SubscriptionNo, Tenant, TenantNo, Version,
};
use evener_actor::policy::{QueueMode, QueuePolicy};

use super::Harness;
use super::ground::{HOUR, group, key, sure};
use crate::batch::{
    Appended, CommitReport, DeadCause, Dedupe, End, FanOut, FireAt, Firing, InstanceCommit, InstanceView,
    Load, NewEvent, NewParked, NewRow, NewSchedule, QueueRow, RowEnd, RowMade, RowOrder, RowsAnswer,
    RowsRequest, Schedule, ScheduleAnswer, ScheduleTo, ScheduleWrite, Ticket, Waiting,
};
use crate::tenants::{Paused, Routes};
use crate::{Instances, Letters, Memory, Queues, Store, Streams, Tenants, Timers, Workers};

/// How often what was met on a walk: each act, and each answer that matters.
pub type Tally = BTreeMap<&'static str, u32>;

/// Walks that many steps with that seed.
///
/// # Panics
/// When the back end and the model disagree, with the last steps before it.
pub fn walk(harness: &dyn Harness, seed: u64, steps: u32) -> Tally {
    let mut walk = Walk::new(harness, seed);
    for step in 0..steps {
        walk.step();
        if step % 5 == 4 || step + 1 == steps {
            walk.compare();
        }
    }
    walk.tally.clone()
}

/// Numbers from a seed.
///
/// # Source
/// Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014 (SplitMix64).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below that bound.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// True once in so many.
    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Whose number it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Tenant,
    Stream,
    Actor,
    Subscription,
    Seq,
    Row,
    Instance,
    Letter,
    Parked,
    Pending,
    Boot,
    Schedule,
}

/// Numbers of ours with those of theirs.
#[derive(Default)]
struct Twins {
    theirs: BTreeMap<(Kind, i64), i64>,
    ours: BTreeMap<(Kind, i64), i64>,
}

impl Twins {
    fn pair(&mut self, kind: Kind, ours: i64, theirs: i64) {
        let known = *self.theirs.entry((kind, ours)).or_insert(theirs);
        assert_eq!(known, theirs, "{kind:?} {ours} was {known} before");
        let known = *self.ours.entry((kind, theirs)).or_insert(ours);
        assert_eq!(known, ours, "their {kind:?} {theirs} was {known} before");
    }

    fn theirs(&self, kind: Kind, ours: i64) -> i64 {
        *self.theirs.get(&(kind, ours)).unwrap_or_else(|| panic!("{kind:?} {ours} has no twin"))
    }

    fn row(&self, row: &NewRow) -> NewRow {
        NewRow { actor: ActorNo(self.theirs(Kind::Actor, row.actor.0)), ..row.clone() }
    }

    fn subscription(&self, ours: SubscriptionNo) -> SubscriptionNo {
        SubscriptionNo(self.theirs(Kind::Subscription, ours.0))
    }

    fn stream(&self, ours: StreamNo) -> StreamNo {
        StreamNo(self.theirs(Kind::Stream, ours.0))
    }

    fn tenant(&self, ours: TenantNo) -> TenantNo {
        TenantNo(self.theirs(Kind::Tenant, ours.0))
    }

    fn boot(&self, ours: Boot) -> Boot {
        Boot(self.theirs(Kind::Boot, ours.0))
    }

    fn instance(&self, ours: InstanceId) -> InstanceId {
        InstanceId(self.theirs(Kind::Instance, ours.0))
    }

    fn place(&self, ours: QueueId) -> QueueId {
        QueueId(self.theirs(Kind::Row, ours.0))
    }

    fn ticket(&self, ours: Ticket) -> Ticket {
        Ticket { boot: self.boot(ours.boot), ..ours }
    }

    fn parked(&self, parked: &NewParked) -> NewParked {
        let subscription = parked.subscription.map(|subscription| self.subscription(subscription));
        NewParked { subscription, ..parked.clone() }
    }

    fn event(&self, event: &NewEvent) -> NewEvent {
        NewEvent {
            tenant: self.tenant(event.tenant),
            stream: event.stream.map(|stream| self.stream(stream)),
            event: event.event.clone(),
            dedupe: event.dedupe,
            rows: event.rows.iter().map(|row| self.row(row)).collect(),
            deferred: event.deferred.iter().map(|subscription| self.subscription(*subscription)).collect(),
            parked: event.parked.iter().map(|parked| self.parked(parked)).collect(),
        }
    }

    fn events(&self, events: &[NewEvent]) -> Vec<NewEvent> {
        events.iter().map(|event| self.event(event)).collect()
    }

    fn schedule(&self, write: &ScheduleWrite) -> ScheduleWrite {
        match write {
            ScheduleWrite::Cancel { tenant, id } => {
                ScheduleWrite::Cancel { tenant: self.tenant(*tenant), id: id.clone() }
            }
            ScheduleWrite::Set(new) => ScheduleWrite::Set(Box::new(NewSchedule {
                tenant: self.tenant(new.tenant),
                to: self.to(&new.to),
                ..(**new).clone()
            })),
        }
    }

    fn to(&self, to: &ScheduleTo) -> ScheduleTo {
        match to {
            ScheduleTo::Stream(stream) => ScheduleTo::Stream(self.stream(*stream)),
            ScheduleTo::Instance { actor, key } => {
                ScheduleTo::Instance { actor: ActorNo(self.theirs(Kind::Actor, actor.0)), key: key.clone() }
            }
        }
    }

    fn end(&self, end: &RowEnd) -> RowEnd {
        let theirs = match &end.end {
            End::Done { events, schedules } => End::Done {
                events: self.events(events),
                schedules: schedules.iter().map(|write| self.schedule(write)).collect(),
            },
            other => other.clone(),
        };
        RowEnd { row: self.place(end.row), end: theirs }
    }

    fn made(&mut self, ours: RowMade, theirs: RowMade) {
        assert_eq!(ours.slot, theirs.slot);
        self.pair(Kind::Instance, ours.instance.0, theirs.instance.0);
        self.pair(Kind::Row, ours.row.0, theirs.row.0);
    }

    fn all_made(&mut self, mut ours: Vec<RowMade>, mut theirs: Vec<RowMade>) {
        assert_eq!(ours.len(), theirs.len(), "rows were made: {ours:?}, theirs {theirs:?}");
        ours.sort_unstable_by_key(|made| made.row);
        theirs.sort_unstable_by_key(|made| made.row);
        for (ours, theirs) in ours.into_iter().zip(theirs) {
            self.made(ours, theirs);
        }
    }

    fn stored(&mut self, ours: &StoredEvent, theirs: &StoredEvent) {
        self.pair(Kind::Seq, ours.seq.0, theirs.seq.0);
        assert_eq!(ours.event, theirs.event);
    }

    fn appended(&mut self, ours: Appended, theirs: Appended) {
        match (ours, theirs) {
            (Appended::New { seq, rows }, Appended::New { seq: their_seq, rows: their_rows }) => {
                self.pair(Kind::Seq, seq.0, their_seq.0);
                assert_eq!(rows.len(), their_rows.len());
                for (ours, theirs) in rows.into_iter().zip(their_rows) {
                    self.made(ours, theirs);
                }
            }
            (Appended::Duplicate { seq, fate }, Appended::Duplicate { seq: their_seq, fate: their_fate }) => {
                self.pair(Kind::Seq, seq.0, their_seq.0);
                assert_eq!(fate, their_fate, "what became of event {seq}");
            }
            (Appended::Conflict { seq }, Appended::Conflict { seq: their_seq }) => {
                self.pair(Kind::Seq, seq.0, their_seq.0);
            }
            (ours, theirs) => panic!("{ours:?}, theirs {theirs:?}"),
        }
    }

    fn report(&mut self, ours: CommitReport, theirs: CommitReport) {
        assert_eq!(ours.committed, theirs.committed);
        assert!(theirs.is_sooner || !ours.is_sooner, "a schedule was set, and nobody is told");
        let pending: BTreeSet<StreamNo> = ours.pending.iter().map(|stream| self.stream(*stream)).collect();
        assert_eq!(pending, theirs.pending.into_iter().collect());
        self.all_made(ours.rows, theirs.rows);
    }

    fn queue_row(&mut self, ours: &QueueRow, theirs: &QueueRow) {
        self.pair(Kind::Row, ours.id.0, theirs.id.0);
        self.pair(Kind::Row, ours.origin.0, theirs.origin.0);
        self.pair(Kind::Seq, ours.seq.0, theirs.seq.0);
        assert_eq!(ours.stream.map(|stream| self.stream(stream)), theirs.stream);
        let seen = |row: &QueueRow| {
            (
                row.group.clone(),
                row.priority,
                row.delay.is_zero(),
                row.attempts,
                row.crashes,
                row.is_blocked,
                row.event_bytes,
            )
        };
        assert_eq!(seen(ours), seen(theirs), "row {}", ours.id);
        match (&ours.event, &theirs.event) {
            (Some(ours), Some(theirs)) => self.stored(ours, theirs),
            (ours, theirs) => assert_eq!(ours.is_some(), theirs.is_some(), "whether its event came along"),
        }
    }

    fn answer(&mut self, ours: &RowsAnswer, theirs: &RowsAnswer, rows_max: u32) {
        assert_eq!(ours.rows.len(), theirs.rows.len(), "{ours:?}, theirs {theirs:?}");
        for (ours, theirs) in ours.rows.iter().zip(&theirs.rows) {
            self.queue_row(ours, theirs);
        }
        // A full page that is the last one may not know it.
        if ours.rows.len() < rows_max as usize || !ours.is_end {
            assert_eq!(ours.is_end, theirs.is_end);
        }
    }

    fn scheduled(&mut self, ours: &Schedule, theirs: &Schedule) {
        self.pair(Kind::Schedule, ours.no, theirs.no);
        assert_eq!((self.tenant(ours.tenant), &ours.id), (theirs.tenant, &theirs.id));
        assert_eq!((&ours.cron, self.to(&ours.to)), (&theirs.cron, theirs.to.clone()));
        assert_eq!(ours.event, theirs.event);
        let apart = ours.fire_at.since(theirs.fire_at).max(theirs.fire_at.since(ours.fire_at));
        assert!(apart < HOUR / 2, "{:?} and {:?}", ours.fire_at, theirs.fire_at);
    }

    fn routes(&mut self, ours: &Routes, theirs: &Routes) {
        let by_name = |routes: &Routes| {
            let mut actors = routes.actors.clone();
            actors.sort_by(|a, b| a.name.cmp(&b.name));
            actors
        };
        let (ours, theirs) = (by_name(ours), by_name(theirs));
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.into_iter().zip(theirs) {
            assert_eq!((&ours.name, ours.is_indexed), (&theirs.name, theirs.is_indexed));
            self.pair(Kind::Actor, ours.no.0, theirs.no.0);
            assert_eq!(ours.subscriptions.len(), theirs.subscriptions.len());
            for (ours, theirs) in ours.subscriptions.iter().zip(&theirs.subscriptions) {
                self.pair(Kind::Subscription, ours.0.0, theirs.0.0);
                self.pair(Kind::Stream, ours.1.0, theirs.1.0);
                assert_eq!(ours.2, theirs.2);
            }
        }
    }
}

/// A tenant of the walk, with numbers of ours.
struct House {
    name: Tenant,
    no: TenantNo,
    streams: Vec<StreamNo>,
    plain: ActorNo,
    ranked: ActorNo,
    deferred: Vec<SubscriptionNo>,
}

/// An instance that a boot owns, as far as it knows.
#[derive(Debug, Clone)]
struct Held {
    boot: Boot,
    slot: Slot,
    instance: InstanceId,
    epoch: Epoch,
    their_epoch: Epoch,
    version: Version,
}

struct Walk<'a> {
    harness: &'a dyn Harness,
    rng: Rng,
    clock: Arc<AtomicI64>,
    ours: Memory,
    theirs: Arc<dyn Store>,
    twins: Twins,
    houses: Vec<House>,
    boots: Vec<Boot>,
    lanes: BTreeMap<(Boot, u16), i64>,
    held: Vec<Held>,
    leases: BTreeMap<StreamNo, (Boot, Epoch, Epoch)>,
    events: u32,
    tally: Tally,
    log: Log,
}

/// The steps so far; the last ones are told when the walk ends in a panic.
struct Log {
    seed: u64,
    steps: Vec<String>,
}

impl Drop for Log {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let first = self.steps.len().saturating_sub(12);
            for (step, text) in self.steps.iter().enumerate().skip(first) {
                eprintln!("seed {}, step {step}: {text}", self.seed);
            }
        }
    }
}

const KEYS: &[&str] = &["a", "b", "c", "ü", "a b"];

/// Events older than that are taken away, in half hours.
const PRUNE_HALF_HOURS: u32 = 81;

/// Half hours that are no whole ones: the clock moves in whole ones.
fn half_hours(count: u32) -> Duration {
    HOUR / 2 * (2 * count + 1)
}

impl<'a> Walk<'a> {
    fn new(harness: &'a dyn Harness, seed: u64) -> Self {
        let theirs = harness.store();
        let clock = Arc::new(AtomicI64::new(theirs.now().expect("the clock").0));
        let ours = Memory::new({
            let clock = Arc::clone(&clock);
            move || Timestamp(clock.load(Ordering::SeqCst))
        });
        let mut walk = Self {
            harness,
            rng: Rng(seed),
            clock,
            ours,
            theirs,
            twins: Twins::default(),
            houses: Vec::new(),
            boots: Vec::new(),
            lanes: BTreeMap::new(),
            held: Vec::new(),
            leases: BTreeMap::new(),
            events: 0,
            tally: Tally::new(),
            log: Log { seed, steps: Vec::new() },
        };
        walk.build("default");
        walk.build("other");
        walk.register();
        walk.register();
        walk
    }

    fn build(&mut self, name: &str) {
        let name: Tenant = name.parse().expect("a name");
        let no = self.ours.tenant(&name).expect("a tenant");
        let their_no = self.theirs.tenant(&name).expect("a tenant");
        self.twins.pair(Kind::Tenant, no.0, their_no.0);
        let mut streams = Vec::new();
        for stream in ["s", "t"] {
            let stream = stream.parse().expect("a name");
            let ours = self.ours.stream(no, &stream).expect("a stream");
            let theirs = self.theirs.stream(their_no, &stream).expect("a stream");
            self.twins.pair(Kind::Stream, ours.0, theirs.0);
            streams.push(ours);
        }
        let actor = |name: &str| ActorDefinition::new(name.parse().expect("a name"));
        let priority = QueuePolicy { mode: QueueMode::Priority, ..QueuePolicy::default() };
        let definitions = [
            actor("plain"),
            actor("ranked").queue(priority),
            ActorDefinition { subscribe: vec![broadcast("s", "*"), broadcast("s", "t*")], ..actor("wide") },
        ];
        let ours = self.ours.deploy(no, &definitions).expect("deployed");
        let theirs = self.theirs.deploy(their_no, &definitions).expect("deployed");
        self.twins.routes(&ours, &theirs);
        let of = |name: &str| {
            ours.actors.iter().find(|actor| actor.name.as_str() == name).expect("an actor").clone()
        };
        let deferred = of("wide").subscriptions.iter().map(|(subscription, ..)| *subscription).collect();
        self.houses.push(House {
            name,
            no,
            streams,
            plain: of("plain").no,
            ranked: of("ranked").no,
            deferred,
        });
    }

    fn register(&mut self) {
        let name = format!("w{}", self.rng.below(3));
        let ours = self.ours.register(&name).expect("a boot");
        let theirs = self.theirs.register(&name).expect("a boot");
        self.twins.pair(Kind::Boot, ours.0, theirs.0);
        self.boots.push(ours);
    }

    fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    fn note(&mut self, what: &'static str, of: &dyn Debug) {
        self.count(what);
        let mut text = format!("{what} {of:?}");
        if let Some((end, _)) = text.char_indices().nth(600) {
            text.truncate(end);
        }
        self.log.steps.push(text);
    }

    fn step(&mut self) {
        match self.rng.below(28) {
            0..=5 => self.append(),
            6..=8 => self.claim(),
            9..=14 => self.commit(),
            15 => self.release(),
            16 | 17 => self.advance(),
            18 | 19 => self.fan_out(),
            20 => self.write_schedules(),
            21 => self.fire(),
            22 => self.letters(),
            23 => self.unpark(),
            24 => self.mark_careful(),
            25 => self.command(),
            26 => self.deploy_or_pause(),
            _ => self.prune(),
        }
    }

    fn ticket(&mut self, boot: Boot) -> Ticket {
        let lane = self.rng.below(2) as u16;
        let number = self.lanes.entry((boot, lane)).or_default();
        *number += 1;
        Ticket { boot, lane, number: *number }
    }

    fn live(&mut self) -> Boot {
        let boots = self.boots.clone();
        *self.rng.pick(&boots)
    }

    fn new_row(&mut self, house: usize) -> NewRow {
        let is_ranked = self.rng.one_in(2);
        let key = key(KEYS[self.rng.below(KEYS.len())]);
        let of = *self.rng.pick(&[None, None, Some("red"), Some("blue")]);
        let priority = *self.rng.pick(&[0, 0, 1, -1, i32::MAX, i32::MIN]);
        let House { name, plain, ranked, .. } = &self.houses[house];
        let (actor, actor_name) = if is_ranked { (*ranked, "ranked") } else { (*plain, "plain") };
        let slot = Slot::of(name, &ActorName::new(actor_name).expect("a name"), &key);
        NewRow { slot, actor, key, group: of.map(group), is_indexed: is_ranked, priority }
    }

    fn new_event(&mut self, house: usize) -> NewEvent {
        self.events += 1;
        let size = *self.rng.pick(&[0, 1, 10, 300]);
        let id = if self.rng.one_in(3) {
            format!("shared {}", self.rng.below(8))
        } else {
            format!("e{}", self.events)
        };
        let event = Event::new("t", vec![b'1'; size]).with_id(id).with_source("/model");
        let stream = if self.rng.one_in(5) {
            None
        } else {
            let place = self.rng.below(2);
            Some(self.houses[house].streams[place])
        };
        let dedupe = (event.id.starts_with("shared") && !self.rng.one_in(4)).then(|| Dedupe {
            body_hash: u64::from(self.rng.one_in(5)),
            window: half_hours(self.rng.below(30) as u32),
        });
        let rows = (0..self.rng.below(4)).map(|_| self.new_row(house)).collect();
        let is_deferred = stream.is_some() && self.rng.one_in(4);
        let deferred = if is_deferred { self.houses[house].deferred.clone() } else { Vec::new() };
        let parked = self.rng.one_in(8).then(|| NewParked {
            subscription: self.rng.one_in(2).then(|| self.houses[house].deferred[0]),
            reason: format!("reason {}", self.events),
        });
        let time = Timestamp(self.clock.load(Ordering::SeqCst));
        NewEvent {
            tenant: self.houses[house].no,
            stream,
            event: Event { time, ..event },
            dedupe,
            rows,
            deferred,
            parked: parked.into_iter().collect(),
        }
    }

    /// Sends a batch to both, now and then twice to theirs; each time the same answer.
    fn send<T: PartialEq + Debug>(&mut self, theirs: impl Fn(&dyn Store) -> crate::Result<T>) -> T {
        let answer = sure(|| theirs(&*self.theirs));
        if self.rng.one_in(6) {
            self.count("sent twice");
            assert_eq!(sure(|| theirs(&*self.theirs)), answer, "the second answer");
        }
        answer
    }

    fn append(&mut self) {
        let house = self.rng.below(2);
        let events: Vec<NewEvent> = (0..self.rng.below(5)).map(|_| self.new_event(house)).collect();
        let boot = self.live();
        let ticket = self.ticket(boot);
        self.note("append", &events);
        let ours = self.ours.append(ticket, &events).expect("appended");
        let (their_ticket, their_events) = (self.twins.ticket(ticket), self.twins.events(&events));
        let theirs = self.send(|store| store.append(their_ticket, &their_events));
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.into_iter().zip(theirs) {
            self.count(match &ours {
                Appended::New { .. } => "new",
                Appended::Duplicate { .. } => "duplicate",
                Appended::Conflict { .. } => "conflict",
            });
            self.twins.appended(ours, theirs);
        }
    }

    fn waiting(&self) -> Vec<Waiting> {
        self.ours.waiting(0..1024, None, 1_000).expect("waiting")
    }

    fn claim(&mut self) {
        let boot = self.live();
        let wanted: Vec<Waiting> = self.waiting().into_iter().filter(|_| !self.rng.one_in(3)).collect();
        self.claim_as(boot, &wanted, true);
    }

    fn claim_as(&mut self, boot: Boot, wanted: &[Waiting], is_orphan_known: bool) {
        self.note("claim", &(boot, wanted));
        let ours = self.ours.claim(boot, wanted).expect("claimed");
        let their_wanted: Vec<Waiting> = wanted
            .iter()
            .map(|one| Waiting { instance: self.twins.instance(one.instance), ..*one })
            .collect();
        let their_boot = self.twins.boot(boot);
        let theirs = sure(|| self.theirs.claim(their_boot, &their_wanted));
        assert_eq!(ours.len(), theirs.len(), "{ours:?}, theirs {theirs:?}");
        for ours in ours {
            let instance = self.twins.instance(ours.instance);
            let theirs = theirs.iter().find(|one| one.instance == instance).expect("theirs has it, too");
            assert_eq!((ours.slot, &ours.key, ours.version), (theirs.slot, &theirs.key, theirs.version));
            assert_eq!(ours.state, theirs.state);
            assert_eq!(self.twins.tenant(ours.tenant), theirs.tenant);
            assert_eq!(self.twins.theirs(Kind::Actor, ours.actor.0), theirs.actor.0);
            if is_orphan_known {
                assert_eq!(ours.was_orphan, theirs.was_orphan);
            }
            self.count(if ours.was_orphan { "orphan" } else { "claimed" });
            self.held.retain(|held| held.boot != boot || held.instance != ours.instance);
            self.held.push(Held {
                boot,
                slot: ours.slot,
                instance: ours.instance,
                epoch: ours.epoch,
                their_epoch: theirs.epoch,
                version: ours.version,
            });
        }
    }

    fn rows_of(&self, slot: Slot, instance: InstanceId, rows_max: u32) -> Vec<QueueRow> {
        let order = RowOrder::Forward { after: QueueId(0) };
        let request = RowsRequest { slot, instance, order, rows_max, event_bytes_max: usize::MAX };
        self.ours.rows(&[request]).expect("rows").remove(0).rows
    }

    fn end(&mut self, house: usize, may_follow: bool) -> End {
        let text = format!("error {} 'ü'", self.rng.below(100));
        match self.rng.below(if may_follow { 8 } else { 6 }) {
            0 => End::Superseded,
            1 | 2 => End::Retry {
                attempts: self.rng.below(5) as u32,
                delay: if self.rng.one_in(3) {
                    Duration::ZERO
                } else {
                    half_hours(self.rng.below(20) as u32)
                },
                error: text,
            },
            3 => End::Dead { attempts: 3, cause: DeadCause::Attempts, error: text },
            4 => End::Blocked { attempts: 4, error: text },
            _ if may_follow => End::Done {
                events: (0..self.rng.below(3)).map(|_| self.follower(house)).collect(),
                schedules: (0..self.rng.below(2)).map(|_| self.schedule_write(house)).collect(),
            },
            _ => End::Done { events: Vec::new(), schedules: Vec::new() },
        }
    }

    /// An event of a commit: its id is its own.
    fn follower(&mut self, house: usize) -> NewEvent {
        let event = self.new_event(house);
        let id = format!("follower {}", self.events);
        NewEvent { dedupe: None, event: event.event.with_id(id), ..event }
    }

    fn house_of(&self, instance: InstanceId) -> usize {
        let houses = self.houses.iter().enumerate();
        let mut owners = houses.filter(|(_, house)| {
            [house.plain, house.ranked].iter().any(|actor| {
                self.ours
                    .instances_of(*actor, InstanceId(0), 100)
                    .expect("instances")
                    .iter()
                    .any(|(id, _)| *id == instance)
            })
        });
        owners.next().expect("an instance of one of them").0
    }

    /// Parts of a few instances that one boot holds, or held once. What follows comes from one of them only,
    /// since no order is promised between instances.
    fn commit(&mut self) {
        let boot = self.live();
        let mut held: Vec<Held> = self.held.iter().filter(|held| held.boot == boot).cloned().collect();
        while held.len() > 3 {
            let place = self.rng.below(held.len());
            held.remove(place);
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for (place, one) in held.iter().enumerate() {
            let house = self.house_of(one.instance);
            let count = self.rng.below(4) as u32;
            let rows = self.rows_of(one.slot, one.instance, count);
            let ends: Vec<RowEnd> =
                rows.iter().map(|row| RowEnd { row: row.id, end: self.end(house, place == 0) }).collect();
            let spoil = self.rng.below(10);
            let state = self.rng.one_in(2).then(|| Bytes::from(format!("{{\"n\":{}}}", self.events)));
            let after = 1 + self.rng.below(3) as i64;
            let part = InstanceCommit {
                slot: one.slot,
                instance: one.instance,
                epoch: Epoch(one.epoch.0 - i64::from(spoil == 0)),
                version: Version(one.version.0 + i64::from(spoil == 1)),
                version_after: Version(one.version.0 + after),
                state,
                ends,
            };
            theirs.push(InstanceCommit {
                instance: self.twins.instance(one.instance),
                epoch: Epoch(one.their_epoch.0 - i64::from(spoil == 0)),
                ends: part.ends.iter().map(|end| self.twins.end(end)).collect(),
                ..part.clone()
            });
            ours.push(part);
        }
        let ticket = self.ticket(boot);
        self.note("commit", &ours);
        let our_report = self.ours.commit(ticket, &ours).expect("committed");
        let their_ticket = self.twins.ticket(ticket);
        let their_report = self.send(|store| store.commit(their_ticket, &theirs));
        for (part, is_committed) in ours.iter().zip(&our_report.committed) {
            self.count(if *is_committed { "committed" } else { "fenced" });
            let held = self.held.iter_mut().find(|held| held.boot == boot && held.instance == part.instance);
            if let Some(held) = held.filter(|_| *is_committed) {
                held.version = part.version_after;
            }
        }
        self.twins.report(our_report, their_report);
    }

    fn release(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let place = self.rng.below(self.held.len());
        let held = self.held[place].clone();
        self.note("release", &held);
        self.ours.release(held.boot, &[(held.slot, held.instance, held.epoch)]).expect("released");
        let theirs = (held.slot, self.twins.instance(held.instance), held.their_epoch);
        let boot = self.twins.boot(held.boot);
        sure(|| self.theirs.release(boot, &[theirs]));
        // It is kept half of the time, to be used by who does not know.
        if self.rng.one_in(2) {
            self.held.remove(place);
        }
    }

    /// Time passes, and some boots are silent in it.
    fn advance(&mut self) {
        let by = HOUR * (1 + self.rng.below(10) as u32);
        self.note("advance", &by);
        self.clock.fetch_add(by.as_millis() as i64, Ordering::SeqCst);
        self.harness.advance(by);
        let judge = self.live();
        for boot in self.boots.clone() {
            if boot != judge && self.rng.one_in(3) {
                continue;
            }
            let load = Load { in_flight: self.rng.below(9) as u32, ..Load::default() };
            let theirs = self.twins.boot(boot);
            assert_eq!(self.ours.heartbeat(boot, load), Ok(true));
            assert!(sure(|| self.theirs.heartbeat(theirs, load)), "boot {boot} lives");
        }
        let stale = half_hours(8);
        let ours: BTreeSet<Boot> = self.ours.judge(judge, stale).expect("judged").into_iter().collect();
        let their_judge = self.twins.boot(judge);
        let theirs = sure(|| self.theirs.judge(their_judge, stale));
        assert_eq!(
            ours.iter().map(|boot| self.twins.boot(*boot)).collect::<BTreeSet<_>>(),
            theirs.into_iter().collect()
        );
        self.boots.retain(|boot| !ours.contains(boot));
        for boot in &ours {
            self.count("died");
            let theirs = self.twins.boot(*boot);
            assert_eq!(self.theirs.heartbeat(theirs, Load::default()), Ok(false));
        }
        self.held.retain(|held| !ours.contains(&held.boot));
        while self.boots.len() < 3 {
            self.register();
        }
    }

    fn fan_out(&mut self) {
        let house = self.rng.below(2);
        let stream = self.houses[house].streams[self.rng.below(2)];
        let boot = self.live();
        let (their_stream, their_boot) = (self.twins.stream(stream), self.twins.boot(boot));
        self.note("lease", &(stream, boot));
        let ours = self.ours.lease_stream(stream, boot).expect("an answer");
        let theirs = sure(|| self.theirs.lease_stream(their_stream, their_boot));
        assert_eq!(ours.is_some(), theirs.is_some());
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            self.leases.insert(stream, (boot, ours, theirs));
        }
        let Some((boot, epoch, their_epoch)) = self.leases.get(&stream).copied() else { return };
        self.compare_pending(stream, usize::MAX);
        let mut pending = self.ours.pending(stream, 5, usize::MAX).expect("pending");
        pending.retain(|_| !self.rng.one_in(4));
        let done: Vec<FanOut> = pending
            .into_iter()
            .map(|one| FanOut {
                id: one.id,
                seq: one.event.seq,
                event_bytes: one.event.event.data.len() as u32,
                tenant: self.houses[house].no,
                rows: (0..self.rng.below(3)).map(|_| self.new_row(house)).collect(),
                parked: self.rng.one_in(6).then(|| NewParked {
                    subscription: Some(one.subscription),
                    reason: format!("no key in {}", one.event.event.id),
                }),
                reached: self.rng.one_in(5).then_some(InstanceId(0)),
            })
            .collect();
        if !self.boots.contains(&boot) {
            return;
        }
        let ticket = self.ticket(boot);
        self.note("fan out", &done);
        let their_done: Vec<FanOut> = done
            .iter()
            .map(|one| FanOut {
                id: self.twins.theirs(Kind::Pending, one.id),
                seq: Seq(self.twins.theirs(Kind::Seq, one.seq.0)),
                tenant: self.twins.tenant(one.tenant),
                rows: one.rows.iter().map(|row| self.twins.row(row)).collect(),
                parked: one.parked.as_ref().map(|parked| self.twins.parked(parked)),
                ..one.clone()
            })
            .collect();
        let ours = self.ours.fan_out(ticket, stream, epoch, &done).expect("fanned out");
        let their_ticket = self.twins.ticket(ticket);
        let theirs = self.send(|store| store.fan_out(their_ticket, their_stream, their_epoch, &their_done));
        self.twins.all_made(ours, theirs);
        if self.rng.one_in(3) {
            self.note("release the lease", &(stream, boot));
            let their_boot = self.twins.boot(boot);
            self.ours.release_stream(stream, boot, epoch).expect("released");
            sure(|| self.theirs.release_stream(their_stream, their_boot, their_epoch));
            self.leases.remove(&stream);
        }
    }

    fn schedule_write(&mut self, house: usize) -> ScheduleWrite {
        let tenant = self.houses[house].no;
        let id = ScheduleId::new(format!("s{}", self.rng.below(4))).expect("a name");
        if self.rng.one_in(4) {
            return ScheduleWrite::Cancel { tenant, id };
        }
        let to = if self.rng.one_in(2) {
            ScheduleTo::Stream(self.houses[house].streams[0])
        } else {
            ScheduleTo::Instance { actor: self.houses[house].plain, key: key("a") }
        };
        let spec = format!("spec {}", self.rng.below(3));
        let first = FireAt::In(half_hours(self.rng.below(20) as u32));
        let event = Event::new("tick", spec.clone().into_bytes());
        ScheduleWrite::Set(Box::new(NewSchedule { tenant, id, spec, first, cron: None, to, event }))
    }

    fn write_schedules(&mut self) {
        let house = self.rng.below(2);
        let writes: Vec<ScheduleWrite> = (0..self.rng.below(4)).map(|_| self.schedule_write(house)).collect();
        self.note("write schedules", &writes);
        let their_writes: Vec<ScheduleWrite> =
            writes.iter().map(|write| self.twins.schedule(write)).collect();
        let ours = self.ours.write_schedules(&writes).expect("written");
        assert_eq!(ours, sure(|| self.theirs.write_schedules(&their_writes)));
        for answer in ours {
            self.count(match answer {
                ScheduleAnswer::Set => "set",
                ScheduleAnswer::Unchanged => "unchanged",
                ScheduleAnswer::Cancelled => "cancelled",
                ScheduleAnswer::NotThere => "not there",
            });
        }
    }

    /// Of several that fire at once only one has events, since no order is promised between them.
    fn fire(&mut self) {
        let ours = self.ours.due(100).expect("due");
        let theirs = sure(|| self.theirs.due(100));
        assert_eq!(ours.next_in.is_some(), theirs.next_in.is_some());
        assert_eq!(ours.schedules.len(), theirs.schedules.len(), "{ours:?}, theirs {theirs:?}");
        let (mut our_firings, mut their_firings) = (Vec::new(), Vec::new());
        for schedule in ours.schedules {
            let same = |other: &&Schedule| {
                (self.twins.tenant(schedule.tenant), &schedule.id) == (other.tenant, &other.id)
            };
            let their_schedule = theirs.schedules.iter().find(same).expect("due for both");
            self.twins.scheduled(&schedule, their_schedule);
            if self.rng.one_in(3) {
                continue;
            }
            let house =
                self.houses.iter().position(|house| house.no == schedule.tenant).expect("a tenant of ours");
            let events: Vec<NewEvent> = if our_firings.is_empty() {
                (0..self.rng.below(3)).map(|_| self.follower(house)).collect()
            } else {
                Vec::new()
            };
            let goes_on = self.rng.one_in(3);
            let stale = i64::from(self.rng.one_in(5));
            let next = |schedule: &Schedule| goes_on.then(|| schedule.fire_at.saturating_add(HOUR * 5));
            their_firings.push(Firing {
                no: their_schedule.no,
                generation: their_schedule.generation + stale,
                fire_at: their_schedule.fire_at,
                next: next(their_schedule),
                events: self.twins.events(&events),
            });
            our_firings.push(Firing {
                no: schedule.no,
                generation: schedule.generation + stale,
                fire_at: schedule.fire_at,
                next: next(&schedule),
                events,
            });
        }
        let boot = self.live();
        let ticket = self.ticket(boot);
        self.note("fire", &our_firings);
        let ours = self.ours.fire(ticket, &our_firings).expect("fired");
        let their_ticket = self.twins.ticket(ticket);
        let theirs = self.send(|store| store.fire(their_ticket, &their_firings));
        for is_committed in &ours.committed {
            self.count(if *is_committed { "fired" } else { "not fired" });
        }
        self.twins.report(ours, theirs);
    }

    /// Redrives or drops one dead letter.
    fn letters(&mut self) {
        self.compare_letters();
        let tenant = self.houses[self.rng.below(2)].no;
        let letters = self.ours.dead_letters(tenant, None, 0, 1_000).expect("letters");
        if letters.is_empty() {
            return;
        }
        let letter = self.rng.pick(&letters).id;
        let theirs = self.twins.theirs(Kind::Letter, letter);
        let their_tenant = self.twins.tenant(tenant);
        if self.rng.one_in(4) {
            self.note("drop a letter", &letter);
            assert_eq!(self.ours.drop_letters(tenant, &[letter]), Ok(1));
            assert_eq!(sure(|| self.theirs.drop_letters(their_tenant, &[theirs])), 1);
        } else {
            self.note("redrive", &letter);
            let ours = self.ours.redrive(tenant, &[letter]).expect("redriven");
            let theirs = sure(|| self.theirs.redrive(their_tenant, &[theirs]));
            self.twins.all_made(ours, theirs);
        }
    }

    fn unpark(&mut self) {
        self.compare_parked();
        let house = self.rng.below(2);
        let tenant = self.houses[house].no;
        let parked = self.ours.parked(tenant, 0, 1_000).expect("parked");
        if parked.is_empty() {
            return;
        }
        let parked = self.rng.pick(&parked).id;
        let row = (!self.rng.one_in(3)).then(|| self.new_row(house));
        self.note("unpark", &(parked, &row));
        let theirs = (self.twins.theirs(Kind::Parked, parked), row.as_ref().map(|row| self.twins.row(row)));
        let their_tenant = self.twins.tenant(tenant);
        let ours = self.ours.unpark(tenant, &[(parked, row)]).expect("unparked");
        let theirs = sure(|| self.theirs.unpark(their_tenant, std::slice::from_ref(&theirs)));
        self.twins.all_made(ours, theirs);
    }

    fn mark_careful(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let held = self.held[self.rng.below(self.held.len())].clone();
        let rows: Vec<QueueId> = self.rows_of(held.slot, held.instance, 3).iter().map(|row| row.id).collect();
        self.note("mark", &(&held, &rows));
        let their_rows = rows.iter().map(|row| self.twins.place(*row)).collect();
        let theirs = (held.slot, self.twins.instance(held.instance), held.their_epoch, their_rows);
        let boot = self.twins.boot(held.boot);
        let ours = self.ours.mark_careful(held.boot, &[(held.slot, held.instance, held.epoch, rows)]);
        // Not ours to send twice: a mark counts each time.
        assert_eq!(ours, self.theirs.mark_careful(boot, &[theirs]));
    }

    /// A command on rows of an instance, after which a live boot takes it anew: its owner, if it has one.
    fn command(&mut self) {
        let waiting = self.waiting();
        if waiting.is_empty() {
            return;
        }
        let Waiting { slot, instance } = *self.rng.pick(&waiting);
        let their_instance = self.twins.instance(instance);
        if self.rng.one_in(3) {
            let rows_max = 1 + self.rng.below(3) as u32;
            self.note("purge", &(instance, rows_max));
            let ours = self.ours.purge(slot, instance, rows_max);
            assert_eq!(ours, self.theirs.purge(slot, their_instance, rows_max));
        } else {
            let is_retry = self.rng.one_in(2);
            let rows: Vec<QueueId> = self.rows_of(slot, instance, 4).iter().map(|row| row.id).collect();
            self.note("unblock", &(instance, &rows, is_retry));
            let their_rows: Vec<QueueId> = rows.iter().map(|row| self.twins.place(*row)).collect();
            let ours = self.ours.unblock(slot, instance, &rows, is_retry);
            if ours.as_ref().is_ok_and(|count| *count > 0) {
                self.count("unblocked");
            }
            assert_eq!(ours, self.theirs.unblock(slot, their_instance, &their_rows, is_retry));
        }
        let owner =
            self.view(instance).and_then(|view| view.owner).filter(|owner| self.boots.contains(owner));
        let boot = owner.unwrap_or_else(|| self.live());
        // Whether its owner died is known to a store that keeps it over the command.
        self.claim_as(boot, &[Waiting { slot, instance }], false);
        if self.ours.depth(slot, instance, 1) == Ok(0) {
            self.feed_and_claim(slot, instance);
        }
    }

    /// A row for an instance that has none after a command, and a claim. A store may leave it to its owner or
    /// to nobody meanwhile; then both have the same owner again.
    fn feed_and_claim(&mut self, slot: Slot, instance: InstanceId) {
        let view = self.view(instance).expect("it has an instance");
        let house = self.house_of(instance);
        let row = NewRow {
            slot,
            actor: view.actor,
            key: view.key.clone(),
            group: None,
            is_indexed: view.actor == self.houses[house].ranked,
            priority: 0,
        };
        let event = NewEvent { rows: vec![row], deferred: vec![], parked: vec![], ..self.follower(house) };
        let owner = view.owner.filter(|owner| self.boots.contains(owner));
        let boot = owner.unwrap_or_else(|| self.live());
        let ticket = self.ticket(boot);
        self.note("feed", &event);
        let ours = self.ours.append(ticket, std::slice::from_ref(&event)).expect("appended").remove(0);
        let (their_ticket, their_event) = (self.twins.ticket(ticket), self.twins.event(&event));
        let theirs = sure(|| self.theirs.append(their_ticket, std::slice::from_ref(&their_event))).remove(0);
        self.twins.appended(ours, theirs);
        self.claim_as(boot, &[Waiting { slot, instance }], false);
    }

    fn deploy_or_pause(&mut self) {
        let house = self.rng.below(2);
        let tenant = self.houses[house].no;
        let their_tenant = self.twins.tenant(tenant);
        if self.rng.one_in(2) {
            let patterns = ["*", "a*", "b"];
            let subscribe = patterns
                .into_iter()
                .filter(|_| self.rng.one_in(2))
                .map(|kind| broadcast("t", kind))
                .collect();
            let extra = ActorName::new("extra").expect("a name");
            let definition = ActorDefinition { subscribe, ..ActorDefinition::new(extra) };
            self.note("deploy", &definition);
            let before = self.ours.routes(tenant).expect("routes").version;
            let their_before = self.theirs.routes(their_tenant).expect("routes").version;
            let ours = self.ours.deploy(tenant, std::slice::from_ref(&definition)).expect("deployed");
            let theirs = sure(|| self.theirs.deploy(their_tenant, std::slice::from_ref(&definition)));
            self.twins.routes(&ours, &theirs);
            assert_eq!(ours.version > before, theirs.version > their_before, "whether it changed anything");
            return;
        }
        let actor = if self.rng.one_in(2) { self.houses[house].plain } else { self.houses[house].ranked };
        let key = self.rng.one_in(2).then(|| key(KEYS[self.rng.below(KEYS.len())]));
        let is_paused = self.rng.one_in(2);
        self.note("pause", &(actor, &key, is_paused));
        let theirs = ActorNo(self.twins.theirs(Kind::Actor, actor.0));
        assert_eq!(
            self.ours.set_paused(actor, key.as_ref(), is_paused),
            self.theirs.set_paused(theirs, key.as_ref(), is_paused)
        );
    }

    fn prune(&mut self) {
        self.note("prune", &());
        let before =
            |now: Timestamp| Timestamp(now.0 - (HOUR.as_millis() as i64) / 2 * i64::from(PRUNE_HALF_HOURS));
        let (ours, theirs) = (self.ours.now().expect("the clock"), self.theirs.now().expect("the clock"));
        for (store, before) in [(&self.ours as &dyn Store, before(ours)), (&*self.theirs, before(theirs))] {
            let mut steps = 0;
            while sure(|| store.prune(before, 7)) > 0 {
                steps += 1;
                assert!(steps < 10_000, "there is always more");
            }
        }
    }

    fn view(&self, instance: InstanceId) -> Option<InstanceView> {
        let actors = self.houses.iter().flat_map(|house| [house.plain, house.ranked]);
        let mut all =
            actors.flat_map(|actor| self.ours.instances(actor, "", None, 1_000).expect("instances"));
        all.find(|view| view.instance == instance)
    }

    /// All there is, from both.
    fn compare(&mut self) {
        for place in 0..self.houses.len() {
            let House { no, streams, plain, ranked, .. } = &self.houses[place];
            let (no, streams, actors) = (*no, streams.clone(), [*plain, *ranked]);
            let their_no = self.twins.tenant(no);
            for stream in streams {
                self.compare_stream(stream);
                let bytes_max = *self.rng.pick(&[0, 10, 300, usize::MAX]);
                self.compare_pending(stream, bytes_max);
            }
            for actor in actors {
                self.compare_instances(actor);
            }
            let ours = self.ours.schedules(no, None, 100).expect("schedules");
            let theirs = self.theirs.schedules(their_no, None, 100).expect("schedules");
            assert_eq!(ours.len(), theirs.len(), "{ours:?}, theirs {theirs:?}");
            for (ours, theirs) in ours.iter().zip(&theirs) {
                self.twins.scheduled(ours, theirs);
            }
            let (ours, theirs) = (self.ours.routes(no), self.theirs.routes(their_no));
            self.twins.routes(&ours.expect("routes"), &theirs.expect("routes"));
            let paused = |all: Vec<Paused>| -> BTreeSet<(i64, Option<Key>)> {
                all.into_iter().map(|paused| (paused.actor.0, paused.key)).collect()
            };
            let ours = paused(self.ours.paused(no).expect("paused"));
            let theirs = paused(self.theirs.paused(their_no).expect("paused"));
            let ours = ours.into_iter().map(|(actor, key)| (self.twins.theirs(Kind::Actor, actor), key));
            assert_eq!(ours.collect::<BTreeSet<_>>(), theirs);
        }
        self.compare_letters();
        self.compare_parked();
        let twin = |one: &Waiting| Waiting { instance: self.twins.instance(one.instance), ..*one };
        let mut ours: Vec<Waiting> = self.waiting().iter().map(twin).collect();
        ours.sort_unstable();
        assert_eq!(ours, self.theirs.waiting(0..1024, None, 1_000).expect("waiting"));
        let live = |store: &dyn Store| -> BTreeSet<(i64, u32)> {
            let workers = store.workers(1_000).expect("workers").into_iter();
            workers
                .filter(|worker| worker.is_live)
                .map(|worker| (worker.boot.0, worker.load.in_flight))
                .collect()
        };
        let ours: BTreeSet<_> = live(&self.ours)
            .into_iter()
            .map(|(boot, said)| (self.twins.theirs(Kind::Boot, boot), said))
            .collect();
        assert_eq!(ours, live(&*self.theirs));
    }

    fn compare_stream(&mut self, stream: StreamNo) {
        let their_stream = self.twins.stream(stream);
        let (mut after, mut their_after) = (Seq(0), Seq(0));
        loop {
            let (events_max, bytes_max) = (1 + self.rng.below(30) as u32, self.rng.below(600));
            let ours = self.ours.read_stream(stream, after, events_max, bytes_max).expect("a page");
            let theirs =
                self.theirs.read_stream(their_stream, their_after, events_max, bytes_max).expect("a page");
            assert_eq!(ours.len(), theirs.len(), "{ours:?}, theirs {theirs:?}");
            for (ours, theirs) in ours.iter().zip(&theirs) {
                self.twins.stored(ours, theirs);
            }
            let (Some(last), Some(their_last)) = (ours.last(), theirs.last()) else { break };
            (after, their_after) = (last.seq, their_last.seq);
        }
    }

    fn compare_pending(&mut self, stream: StreamNo, bytes_max: usize) {
        let their_stream = self.twins.stream(stream);
        let ours = self.ours.pending(stream, 100, bytes_max).expect("pending");
        let theirs = self.theirs.pending(their_stream, 100, bytes_max).expect("pending");
        assert_eq!(ours.len(), theirs.len(), "{ours:?}, theirs {theirs:?}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            self.twins.pair(Kind::Pending, ours.id, theirs.id);
            self.twins.stored(&ours.event, &theirs.event);
            assert_eq!(self.twins.subscription(ours.subscription), theirs.subscription);
            assert_eq!(ours.reached, theirs.reached);
        }
    }

    fn compare_instances(&mut self, actor: ActorNo) {
        let their_actor = ActorNo(self.twins.theirs(Kind::Actor, actor.0));
        let ours = self.ours.instances(actor, "", None, 100).expect("instances");
        let theirs = self.theirs.instances(their_actor, "", None, 100).expect("instances");
        assert_eq!(ours.len(), theirs.len(), "{ours:?}, theirs {theirs:?}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            self.twins.pair(Kind::Instance, ours.instance.0, theirs.instance.0);
            assert_eq!((ours.slot, &ours.key, ours.version), (theirs.slot, &theirs.key, theirs.version));
            assert_eq!(ours.state, theirs.state, "state of {}", ours.key);
            let owner = |owner: Option<Boot>, is_live: bool| owner.filter(|_| is_live);
            let our_owner = owner(ours.owner, ours.owner.is_some_and(|owner| self.boots.contains(&owner)));
            let is_live = theirs
                .owner
                .is_some_and(|owner| self.boots.iter().any(|boot| self.twins.boot(*boot) == owner));
            let our_owner = our_owner.map(|boot| self.twins.boot(boot));
            assert_eq!(our_owner, owner(theirs.owner, is_live), "live owner of {}", ours.key);
            self.compare_rows(ours, theirs);
        }
    }

    fn compare_rows(&mut self, ours: &InstanceView, theirs: &InstanceView) {
        let all = self.rows_of(ours.slot, ours.instance, 1_000);
        let mut orders = vec![
            RowOrder::Forward { after: QueueId(0) },
            RowOrder::Backward { before: QueueId(i64::MAX) },
            RowOrder::Groups { after: None },
        ];
        for of in [GroupHash::NONE, GroupHash::of(&group("red")), GroupHash::of(&group("blue"))] {
            orders.push(RowOrder::GroupForward { group: of, after: QueueId(0) });
            orders.push(RowOrder::GroupBackward { group: of, before: QueueId(i64::MAX) });
            orders.push(RowOrder::GroupPriority { group: of, after: None });
            orders.push(RowOrder::Groups { after: Some(of) });
            if !all.is_empty() {
                let QueueRow { id, priority, .. } = *self.rng.pick(&all);
                orders.push(RowOrder::Forward { after: id });
                orders.push(RowOrder::GroupForward { group: of, after: id });
                orders.push(RowOrder::GroupBackward { group: of, before: id });
                orders.push(RowOrder::GroupPriority { group: of, after: Some((priority, id)) });
            }
        }
        let request = |view: &InstanceView, order, rows_max, event_bytes_max| RowsRequest {
            slot: view.slot,
            instance: view.instance,
            order,
            rows_max,
            event_bytes_max,
        };
        let (mut our_requests, mut their_requests) = (Vec::new(), Vec::new());
        for (place, order) in orders.into_iter().enumerate() {
            let is_all = place == 0;
            let rows_max = if is_all { 1_000 } else { 1 + self.rng.below(6) as u32 };
            let event_bytes_max = if is_all { usize::MAX } else { *self.rng.pick(&[0, 1, 11, 301, 600]) };
            our_requests.push(request(ours, order, rows_max, event_bytes_max));
            their_requests.push(request(theirs, self.their_order(order), rows_max, event_bytes_max));
        }
        let our_answers = self.ours.rows(&our_requests).expect("rows");
        let their_answers = self.theirs.rows(&their_requests).expect("rows");
        assert_eq!(our_answers.len(), their_answers.len());
        for ((ours, theirs), request) in our_answers.iter().zip(&their_answers).zip(&our_requests) {
            self.twins.answer(ours, theirs, request.rows_max);
        }
        for rows_max in [1, 100] {
            assert_eq!(
                self.ours.depth(ours.slot, ours.instance, rows_max),
                self.theirs.depth(theirs.slot, theirs.instance, rows_max)
            );
        }
    }

    fn their_order(&self, order: RowOrder) -> RowOrder {
        let place = |id: QueueId| if id.0 == 0 || id.0 == i64::MAX { id } else { self.twins.place(id) };
        match order {
            RowOrder::Forward { after } => RowOrder::Forward { after: place(after) },
            RowOrder::Backward { before } => RowOrder::Backward { before: place(before) },
            RowOrder::GroupForward { group, after } => RowOrder::GroupForward { group, after: place(after) },
            RowOrder::GroupBackward { group, before } => {
                RowOrder::GroupBackward { group, before: place(before) }
            }
            RowOrder::GroupPriority { group, after } => {
                RowOrder::GroupPriority { group, after: after.map(|(priority, id)| (priority, place(id))) }
            }
            RowOrder::Groups { after } => RowOrder::Groups { after },
        }
    }

    /// Letters of one commit have no order among instances, so each is found by the row that it first was.
    fn compare_letters(&mut self) {
        for place in 0..self.houses.len() {
            let tenant = self.houses[place].no;
            let their_tenant = self.twins.tenant(tenant);
            let ours = self.ours.dead_letters(tenant, None, 0, 1_000).expect("letters");
            let theirs = self.theirs.dead_letters(their_tenant, None, 0, 1_000).expect("letters");
            assert_eq!(ours.len(), theirs.len(), "{ours:?}, theirs {theirs:?}");
            for ours in &ours {
                let origin = self.twins.place(ours.origin);
                let theirs =
                    theirs.iter().find(|letter| letter.origin == origin).expect("theirs has it, too");
                self.twins.pair(Kind::Letter, ours.id, theirs.id);
                self.twins.pair(Kind::Seq, ours.seq.0, theirs.seq.0);
                self.twins.pair(Kind::Instance, ours.instance.0, theirs.instance.0);
                let seen = |letter: &crate::batch::DeadLetter| {
                    (
                        letter.slot,
                        letter.key.clone(),
                        letter.attempts,
                        letter.crashes,
                        letter.cause,
                        letter.error.clone(),
                    )
                };
                assert_eq!(seen(ours), seen(theirs));
                assert_eq!(self.twins.theirs(Kind::Actor, ours.actor.0), theirs.actor.0);
            }
        }
    }

    fn compare_parked(&mut self) {
        for place in 0..self.houses.len() {
            let tenant = self.houses[place].no;
            let their_tenant = self.twins.tenant(tenant);
            let ours = self.ours.parked(tenant, 0, 1_000).expect("parked");
            let theirs = self.theirs.parked(their_tenant, 0, 1_000).expect("parked");
            assert_eq!(ours.len(), theirs.len(), "{ours:?}, theirs {theirs:?}");
            for (ours, theirs) in ours.iter().zip(&theirs) {
                self.twins.pair(Kind::Parked, ours.id, theirs.id);
                self.twins.pair(Kind::Seq, ours.seq.0, theirs.seq.0);
                let subscription =
                    ours.subscription.map(|subscription| self.twins.subscription(subscription));
                assert_eq!((subscription, &ours.reason), (theirs.subscription, &theirs.reason));
            }
        }
    }
}

fn broadcast(stream: &str, kind: &str) -> Subscription {
    let path = Path::new("id").expect("a path");
    let subscription = Subscription::new(stream.parse().expect("a name"), path);
    Subscription { kind: TypePattern::new(kind), key: Target::Broadcast, ..subscription }
}
