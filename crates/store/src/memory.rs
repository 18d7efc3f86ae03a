//! The plain model: what the other back ends are compared with, and what simulations run on.
//!
//! One lock around ordered maps, a map for each table. Nothing is clever here: what a call promises is read
//! off its few lines. Every call looks at all it was given first and writes only then, so an error has
//! changed nothing. All maps are ordered and the clock is handed in, so the same calls give the same answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use evener_actor::definition::{ActorDefinition, From, Subscription};
use evener_actor::event::{Event, StoredEvent, Timestamp};
use evener_actor::id::{
    ActorName, ActorNo, Boot, Epoch, Group, GroupHash, InstanceId, Key, QueueId, ScheduleId, Seq, Slot,
    StreamName, StreamNo, SubscriptionNo, Tenant, TenantNo, Version,
};

use crate::batch::{
    Appended, Claimed, CommitReport, CronSpec, DeadLetter, Due, End, FanOut, Fate, FireAt, Firing,
    InstanceCommit, InstanceView, Load, NewEvent, NewParked, NewRow, NewSchedule, Parked, Pending, QueueRow,
    RowMade, RowOrder, RowsAnswer, RowsRequest, Schedule, ScheduleAnswer, ScheduleTo, ScheduleWrite, Ticket,
    Waiting, Worker,
};
use crate::tenants::{Paused, RoutedActor, Routes};
use crate::workers::{Listening, Note};
use crate::{Instances, Letters, Queues, Result, Store, StoreError, Streams, Tenants, Timers, Workers};

/// A store in memory. It lasts as long as one of its handles.
///
/// A handle stands for one program: what it notifies of is heard through the others.
pub struct Memory {
    shared: Arc<Shared>,
    handle: u64,
}

type Clock = Box<dyn Fn() -> Timestamp + Send + Sync>;
type Hear = Arc<dyn Fn(Note) + Send + Sync>;

struct Shared {
    clock: Clock,
    tables: Mutex<Tables>,
    /// By number: through which handle, and who.
    hearers: Mutex<BTreeMap<u64, (u64, Hear)>>,
    /// The last number given to a handle or a hearer.
    number: AtomicU64,
}

impl Memory {
    /// An empty store with that clock. It is asked under the store's lock and must not call the store.
    #[must_use]
    pub fn new(clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self {
            shared: Arc::new(Shared {
                clock: Box::new(clock),
                tables: Mutex::default(),
                hearers: Mutex::default(),
                number: AtomicU64::new(0),
            }),
            handle: 0,
        }
    }

    /// Another handle on the same data, as another program would have it.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), handle: self.shared.next_number() }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.shared.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tables and the time. The clock is read under the lock, so time does not fall from call to call.
    fn tables_now(&self) -> (MutexGuard<'_, Tables>, Timestamp) {
        let tables = self.tables();
        let now = (self.shared.clock)();
        (tables, now)
    }

    /// Does a batch once: a copy of the lane's last batch gets that one's answer.
    fn once(
        &self,
        ticket: Ticket,
        act: impl FnOnce(&mut Tables, Timestamp) -> Result<Answer>,
    ) -> Result<Answer> {
        let (mut tables, now) = self.tables_now();
        let lane = (ticket.boot, ticket.lane);
        let last = match tables.lanes.get(&lane) {
            // Also when the boot has died since: what was done has its answer.
            Some((number, answer)) if *number == ticket.number => return Ok(answer.clone()),
            Some((number, _)) => *number,
            None => 0,
        };
        tables.check_live(ticket.boot)?;
        if ticket.number.checked_sub(1) != Some(last) {
            return Err(StoreError::Fenced(format!(
                "lane {} of boot {} is at batch {last}, this is batch {}",
                ticket.lane, ticket.boot, ticket.number
            )));
        }
        let answer = act(&mut tables, now)?;
        tables.lanes.insert(lane, (ticket.number, answer.clone()));
        Ok(answer)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl Shared {
    fn next_number(&self) -> u64 {
        // Relaxed: only that each is given once matters.
        self.number.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// What a batch with a ticket was answered.
#[derive(Debug, Clone)]
enum Answer {
    Appended(Vec<Appended>),
    Report(CommitReport),
    Made(Vec<RowMade>),
}

fn other_kind<T>() -> Result<T> {
    Err(StoreError::Internal("the lane's batch with this number was one of another kind".to_owned()))
}

/// The last number of each kind that was given; numbers rise and are never given again.
#[derive(Default)]
struct Numbers {
    tenant: i64,
    stream: i64,
    actor: i64,
    subscription: i64,
    seq: i64,
    pending: i64,
    instance: i64,
    row: i64,
    schedule: i64,
    letter: i64,
    parked: i64,
    boot: i64,
}

fn next(last: &mut i64) -> i64 {
    *last += 1;
    *last
}

#[derive(Default)]
struct Tables {
    last: Numbers,
    tenants: BTreeMap<Tenant, TenantNo>,
    versions: BTreeMap<TenantNo, i64>,
    stream_names: BTreeMap<(TenantNo, StreamName), StreamNo>,
    streams: BTreeMap<StreamNo, StreamRow>,
    actors: BTreeMap<ActorNo, ActorRow>,
    paused: BTreeSet<(ActorNo, Option<Key>)>,
    events: BTreeMap<Seq, EventRow>,
    by_stream: BTreeSet<(StreamNo, Seq)>,
    dedupe: BTreeMap<DedupeKey, Known>,
    pending: BTreeMap<(StreamNo, Seq, SubscriptionNo), PendingRow>,
    instances: BTreeMap<InstanceId, InstanceRow>,
    by_key: BTreeMap<(ActorNo, Key), InstanceId>,
    queue: BTreeMap<(Slot, InstanceId, QueueId), Row>,
    schedules: BTreeMap<(TenantNo, ScheduleId), ScheduleRow>,
    dead: BTreeMap<i64, DeadRow>,
    parked: BTreeMap<i64, ParkedRow>,
    workers: BTreeMap<Boot, WorkerRow>,
    lanes: BTreeMap<(Boot, u16), (i64, Answer)>,
}

struct StreamRow {
    tenant: TenantNo,
    name: StreamName,
    owner: Option<Boot>,
    epoch: Epoch,
}

struct ActorRow {
    tenant: TenantNo,
    definition: ActorDefinition,
    subscriptions: Vec<(SubscriptionNo, StreamNo, Subscription)>,
}

struct EventRow {
    stream: Option<StreamNo>,
    at: Timestamp,
    stored: Arc<StoredEvent>,
}

/// Tenant, stream, source, id.
type DedupeKey = (TenantNo, Option<StreamNo>, Arc<str>, Arc<str>);

struct Known {
    seq: Seq,
    body_hash: u64,
    expires: Timestamp,
}

struct PendingRow {
    id: i64,
    reached: Option<InstanceId>,
}

struct InstanceRow {
    slot: Slot,
    tenant: TenantNo,
    actor: ActorNo,
    key: Key,
    owner: Option<Boot>,
    epoch: Epoch,
    version: Version,
    state: Option<Bytes>,
}

impl InstanceRow {
    fn is_owned(&self, boot: Boot, epoch: Epoch) -> bool {
        self.owner == Some(boot) && self.epoch == epoch
    }
}

/// What a row of the queue and a dead letter have in common.
#[derive(Clone)]
struct Work {
    seq: Seq,
    group: Option<Group>,
    is_indexed: bool,
    priority: i32,
    origin: QueueId,
}

struct Row {
    work: Work,
    not_before: Timestamp,
    attempts: u32,
    crashes: u32,
    is_blocked: bool,
}

/// What is always due.
const AT_ONCE: Timestamp = Timestamp(i64::MIN);

impl Row {
    fn new(work: Work) -> Self {
        Self { work, not_before: AT_ONCE, attempts: 0, crashes: 0, is_blocked: false }
    }

    fn group_hash(&self) -> GroupHash {
        self.work.group.as_ref().map_or(GroupHash::NONE, GroupHash::of)
    }
}

struct ScheduleRow {
    no: i64,
    generation: i64,
    spec: String,
    fire_at: Timestamp,
    cron: Option<CronSpec>,
    to: ScheduleTo,
    event: Event,
}

struct DeadRow {
    tenant: TenantNo,
    letter: DeadLetter,
    work: Work,
}

struct ParkedRow {
    tenant: TenantNo,
    parked: Parked,
}

struct WorkerRow {
    name: String,
    last_seen: Timestamp,
    is_live: bool,
    load: Load,
}

/// Takes events while their data stays within so many bytes, the first one always.
fn within<T>(
    from: impl Iterator<Item = T>,
    count_max: u32,
    bytes_max: usize,
    bytes: impl Fn(&T) -> usize,
) -> Vec<T> {
    let mut taken = Vec::new();
    let mut sum = 0_usize;
    for one in from.take(count_max as usize) {
        sum = sum.saturating_add(bytes(&one));
        if sum > bytes_max && !taken.is_empty() {
            break;
        }
        taken.push(one);
    }
    taken
}

impl Tables {
    fn is_live(&self, boot: Boot) -> bool {
        self.workers.get(&boot).is_some_and(|worker| worker.is_live)
    }

    fn check_live(&self, boot: Boot) -> Result<()> {
        if self.is_live(boot) { Ok(()) } else { Err(StoreError::Fenced(format!("boot {boot} is dead"))) }
    }

    fn check_tenant(&self, tenant: TenantNo) -> Result<()> {
        if self.versions.contains_key(&tenant) {
            Ok(())
        } else {
            Err(StoreError::Refused(format!("there is no tenant {tenant}")))
        }
    }

    fn check_stream(&self, tenant: TenantNo, stream: StreamNo) -> Result<()> {
        match self.streams.get(&stream) {
            Some(row) if row.tenant == tenant => Ok(()),
            _ => Err(StoreError::Refused(format!("there is no stream {stream} of tenant {tenant}"))),
        }
    }

    fn check_actor(&self, tenant: TenantNo, actor: ActorNo) -> Result<()> {
        match self.actors.get(&actor) {
            Some(row) if row.tenant == tenant => Ok(()),
            _ => Err(StoreError::Refused(format!("there is no actor {actor} of tenant {tenant}"))),
        }
    }

    fn check_rows(&self, tenant: TenantNo, rows: &[NewRow]) -> Result<()> {
        rows.iter().try_for_each(|row| self.check_actor(tenant, row.actor))
    }

    fn check_event(&self, event: &NewEvent) -> Result<()> {
        self.check_tenant(event.tenant)?;
        match event.stream {
            Some(stream) => self.check_stream(event.tenant, stream)?,
            None if event.deferred.is_empty() => {}
            None => {
                return Err(StoreError::Refused("an event without a stream has no subscribers".to_owned()));
            }
        }
        self.check_rows(event.tenant, &event.rows)
    }

    fn check_schedule(&self, write: &ScheduleWrite) -> Result<()> {
        match write {
            ScheduleWrite::Cancel { tenant, .. } => self.check_tenant(*tenant),
            ScheduleWrite::Set(new) => {
                self.check_tenant(new.tenant)?;
                match new.to {
                    ScheduleTo::Stream(stream) => self.check_stream(new.tenant, stream),
                    ScheduleTo::Instance { actor, .. } => self.check_actor(new.tenant, actor),
                }
            }
        }
    }

    fn stream_no(&mut self, tenant: TenantNo, name: &StreamName) -> StreamNo {
        if let Some(stream) = self.stream_names.get(&(tenant, name.clone())) {
            return *stream;
        }
        let stream = StreamNo(next(&mut self.last.stream));
        self.stream_names.insert((tenant, name.clone()), stream);
        self.streams
            .insert(stream, StreamRow { tenant, name: name.clone(), owner: None, epoch: Epoch::default() });
        stream
    }

    fn routes(&self, tenant: TenantNo) -> Routes {
        let of_tenant = self.actors.iter().filter(|(_, actor)| actor.tenant == tenant);
        Routes {
            version: self.versions[&tenant],
            actors: of_tenant
                .map(|(no, actor)| RoutedActor {
                    no: *no,
                    name: actor.definition.name.clone(),
                    is_indexed: actor.definition.is_indexed(),
                    subscriptions: actor.subscriptions.clone(),
                })
                .collect(),
        }
    }

    fn actor_no(&self, tenant: TenantNo, name: &ActorName) -> Option<ActorNo> {
        self.actors
            .iter()
            .find(|(_, actor)| actor.tenant == tenant && actor.definition.name == *name)
            .map(|(no, _)| *no)
    }

    /// Returns whether that changed anything.
    fn deploy_one(&mut self, tenant: TenantNo, definition: &ActorDefinition) -> bool {
        let known = self.actor_no(tenant, &definition.name);
        let no = known.unwrap_or_else(|| ActorNo(next(&mut self.last.actor)));
        let before = self.actors.remove(&no);
        let is_changed = before.as_ref().is_none_or(|before| before.definition != *definition);
        let mut old = before.map(|before| before.subscriptions).unwrap_or_default();
        let mut subscriptions = Vec::new();
        for wanted in &definition.subscribe {
            let stream = self.stream_no(tenant, &wanted.stream);
            let same = old.iter().position(|(_, at, is)| {
                *at == stream && is.kind == wanted.kind && is.is_direct() == wanted.is_direct()
            });
            let subscription = match same {
                Some(place) => old.remove(place).0,
                None => {
                    let subscription = SubscriptionNo(next(&mut self.last.subscription));
                    if wanted.from == From::Beginning {
                        self.pend_all(stream, subscription, wanted);
                    }
                    subscription
                }
            };
            subscriptions.push((subscription, stream, wanted.clone()));
        }
        self.actors.insert(no, ActorRow { tenant, definition: definition.clone(), subscriptions });
        is_changed
    }

    fn pend_all(&mut self, stream: StreamNo, subscription: SubscriptionNo, wanted: &Subscription) {
        let there: Vec<Seq> = self
            .by_stream
            .range((stream, Seq(i64::MIN))..=(stream, Seq(i64::MAX)))
            .map(|(_, seq)| *seq)
            .filter(|seq| wanted.kind.matches(&self.events[seq].stored.event.kind))
            .collect();
        for seq in there {
            self.pend(stream, seq, subscription);
        }
    }

    fn pend(&mut self, stream: StreamNo, seq: Seq, subscription: SubscriptionNo) {
        let id = next(&mut self.last.pending);
        self.pending.insert((stream, seq, subscription), PendingRow { id, reached: None });
    }

    /// The instance of that key; it is made if there is none.
    fn instance_of(&mut self, tenant: TenantNo, row: &NewRow) -> (Slot, InstanceId) {
        let key = (row.actor, row.key.clone());
        if let Some(instance) = self.by_key.get(&key) {
            return (self.instances[instance].slot, *instance);
        }
        let instance = InstanceId(next(&mut self.last.instance));
        self.by_key.insert(key, instance);
        self.instances.insert(
            instance,
            InstanceRow {
                slot: row.slot,
                tenant,
                actor: row.actor,
                key: row.key.clone(),
                owner: None,
                epoch: Epoch::default(),
                version: Version::default(),
                state: None,
            },
        );
        (row.slot, instance)
    }

    fn insert_row(&mut self, tenant: TenantNo, seq: Seq, new: &NewRow) -> RowMade {
        let (slot, instance) = self.instance_of(tenant, new);
        let row = QueueId(next(&mut self.last.row));
        let work = Work {
            seq,
            group: new.group.clone(),
            is_indexed: new.is_indexed,
            priority: new.priority,
            origin: row,
        };
        self.queue.insert((slot, instance, row), Row::new(work));
        RowMade { slot, instance, row }
    }

    fn park(&mut self, tenant: TenantNo, seq: Seq, new: &NewParked, now: Timestamp) {
        let id = next(&mut self.last.parked);
        let parked = Parked { id, seq, subscription: new.subscription, reason: new.reason.clone(), at: now };
        self.parked.insert(id, ParkedRow { tenant, parked });
    }

    fn insert_event(&mut self, new: &NewEvent, now: Timestamp) -> Appended {
        let key = (new.tenant, new.stream, Arc::clone(&new.event.source), Arc::clone(&new.event.id));
        if let Some(dedupe) = new.dedupe
            && let Some(known) = self.dedupe.get(&key).filter(|known| known.expires > now)
        {
            let seq = known.seq;
            return if known.body_hash == dedupe.body_hash {
                Appended::Duplicate { seq, fate: self.fate(seq) }
            } else {
                Appended::Conflict { seq }
            };
        }
        let seq = Seq(next(&mut self.last.seq));
        let stored = Arc::new(StoredEvent { seq, event: new.event.clone() });
        self.events.insert(seq, EventRow { stream: new.stream, at: now, stored });
        if let Some(dedupe) = new.dedupe {
            let expires = now.saturating_add(dedupe.window);
            self.dedupe.insert(key, Known { seq, body_hash: dedupe.body_hash, expires });
        }
        if let Some(stream) = new.stream {
            self.by_stream.insert((stream, seq));
            new.deferred.iter().for_each(|subscription| self.pend(stream, seq, *subscription));
        }
        let rows = new.rows.iter().map(|row| self.insert_row(new.tenant, seq, row)).collect();
        new.parked.iter().for_each(|parked| self.park(new.tenant, seq, parked, now));
        Appended::New { seq, rows }
    }

    /// Inserts events that follow from a commit or a timer.
    fn follow(&mut self, events: &[NewEvent], now: Timestamp, report: &mut CommitReport) {
        for event in events {
            if let Appended::New { rows, .. } = self.insert_event(event, now) {
                report.rows.extend(rows);
                report.pending.extend(event.stream.filter(|_| !event.deferred.is_empty()));
            }
        }
    }

    fn fate(&self, seq: Seq) -> Fate {
        let is_waiting = self.queue.values().any(|row| row.work.seq == seq)
            || self.pending.keys().any(|(_, pending, _)| *pending == seq);
        if is_waiting {
            Fate::Waiting
        } else if self.dead.values().any(|dead| dead.letter.seq == seq) {
            Fate::DeadLetter
        } else if self.parked.values().any(|row| row.parked.seq == seq) {
            Fate::Parked
        } else {
            Fate::Done
        }
    }

    fn write_schedule(&mut self, write: &ScheduleWrite, now: Timestamp) -> ScheduleAnswer {
        match write {
            ScheduleWrite::Cancel { tenant, id } => match self.schedules.remove(&(*tenant, id.clone())) {
                Some(_) => ScheduleAnswer::Cancelled,
                None => ScheduleAnswer::NotThere,
            },
            ScheduleWrite::Set(new) => self.set_schedule(new, now),
        }
    }

    fn set_schedule(&mut self, new: &NewSchedule, now: Timestamp) -> ScheduleAnswer {
        let place = (new.tenant, new.id.clone());
        let (no, generation) = match self.schedules.get(&place) {
            Some(there) if there.spec == new.spec => return ScheduleAnswer::Unchanged,
            Some(there) => (there.no, there.generation + 1),
            None => (next(&mut self.last.schedule), 1),
        };
        let fire_at = match new.first {
            FireAt::In(delay) => now.saturating_add(delay),
            FireAt::At(at) => at,
        };
        let row = ScheduleRow {
            no,
            generation,
            spec: new.spec.clone(),
            fire_at,
            cron: new.cron.clone(),
            to: new.to.clone(),
            event: new.event.clone(),
        };
        self.schedules.insert(place, row);
        ScheduleAnswer::Set
    }

    fn schedule(tenant: TenantNo, id: &ScheduleId, row: &ScheduleRow) -> Schedule {
        Schedule {
            no: row.no,
            tenant,
            id: id.clone(),
            generation: row.generation,
            fire_at: row.fire_at,
            cron: row.cron.clone(),
            to: row.to.clone(),
            event: row.event.clone(),
        }
    }

    /// One instance's part of a commit. `false`: it was fenced.
    fn commit_one(
        &mut self,
        boot: Boot,
        part: &InstanceCommit,
        now: Timestamp,
        report: &mut CommitReport,
    ) -> bool {
        let Some(instance) = self.instances.get_mut(&part.instance).filter(|instance| {
            instance.slot == part.slot
                && instance.is_owned(boot, part.epoch)
                && instance.version == part.version
        }) else {
            return false;
        };
        instance.version = part.version_after;
        if let Some(state) = &part.state {
            instance.state = Some(state.clone());
        }
        for end in &part.ends {
            self.end_row((part.slot, part.instance, end.row), &end.end, now, report);
        }
        true
    }

    /// A row that is not there (any more) makes nothing.
    fn end_row(
        &mut self,
        place: (Slot, InstanceId, QueueId),
        end: &End,
        now: Timestamp,
        report: &mut CommitReport,
    ) {
        match end {
            End::Done { events, schedules } => {
                if self.queue.remove(&place).is_none() {
                    return;
                }
                self.follow(events, now, report);
                for write in schedules {
                    let answer = self.write_schedule(write, now);
                    report.is_sooner |= answer == ScheduleAnswer::Set;
                }
            }
            End::Superseded => {
                self.queue.remove(&place);
            }
            End::Retry { attempts, delay, error: _ } => {
                if let Some(row) = self.queue.get_mut(&place) {
                    row.attempts = *attempts;
                    row.crashes = 0;
                    row.not_before = now.saturating_add(*delay);
                }
            }
            End::Blocked { attempts, error: _ } => {
                if let Some(row) = self.queue.get_mut(&place) {
                    row.attempts = *attempts;
                    row.crashes = 0;
                    row.not_before = AT_ONCE;
                    row.is_blocked = true;
                }
            }
            End::Dead { attempts, cause, error } => {
                let Some(row) = self.queue.remove(&place) else { return };
                let (slot, instance, _) = place;
                let owner = &self.instances[&instance];
                let letter = DeadLetter {
                    id: next(&mut self.last.letter),
                    slot,
                    instance,
                    actor: owner.actor,
                    key: owner.key.clone(),
                    seq: row.work.seq,
                    origin: row.work.origin,
                    attempts: *attempts,
                    crashes: row.crashes,
                    cause: *cause,
                    error: error.clone(),
                    at: now,
                };
                self.dead.insert(letter.id, DeadRow { tenant: owner.tenant, letter, work: row.work });
            }
        }
    }

    fn view(&self, instance: InstanceId) -> InstanceView {
        let row = &self.instances[&instance];
        InstanceView {
            slot: row.slot,
            instance,
            actor: row.actor,
            key: row.key.clone(),
            owner: row.owner,
            epoch: row.epoch,
            version: row.version,
            state: row.state.clone(),
        }
    }

    fn rows_of(
        &self,
        slot: Slot,
        instance: InstanceId,
    ) -> impl DoubleEndedIterator<Item = (QueueId, &Row)> + Clone {
        self.queue
            .range((slot, instance, QueueId(i64::MIN))..=(slot, instance, QueueId(i64::MAX)))
            .map(|((_, _, id), row)| (*id, row))
    }

    /// All rows that the order names, in that order.
    fn ordered(&self, request: &RowsRequest) -> Vec<(QueueId, &Row)> {
        let all = self.rows_of(request.slot, request.instance);
        let indexed = all.clone().filter(|(_, row)| row.work.is_indexed);
        let of_group = |wanted: GroupHash| indexed.clone().filter(move |(_, row)| row.group_hash() == wanted);
        // One more than asked for shows whether that is the end.
        let enough = request.rows_max as usize + 1;
        match request.order {
            RowOrder::Forward { after } => all.filter(|(id, _)| *id > after).take(enough).collect(),
            RowOrder::Backward { before } => all.rev().filter(|(id, _)| *id < before).take(enough).collect(),
            RowOrder::GroupForward { group, after } => {
                of_group(group).filter(|(id, _)| *id > after).take(enough).collect()
            }
            RowOrder::GroupBackward { group, before } => {
                of_group(group).rev().filter(|(id, _)| *id < before).take(enough).collect()
            }
            RowOrder::GroupPriority { group, after } => {
                let place = |priority: i32, id: QueueId| (std::cmp::Reverse(priority), id);
                let after = after.map(|(priority, id)| place(priority, id));
                let mut rows: Vec<_> = of_group(group)
                    .filter(|(id, row)| after.is_none_or(|after| place(row.work.priority, *id) > after))
                    .collect();
                rows.sort_by_key(|(id, row)| place(row.work.priority, *id));
                rows
            }
            RowOrder::Groups { after } => {
                let mut firsts = BTreeMap::new();
                for (id, row) in indexed {
                    firsts.entry(row.group_hash()).or_insert((id, row));
                }
                firsts
                    .into_iter()
                    .filter(|(group, _)| after.is_none_or(|after| *group > after))
                    .map(|(_, first)| first)
                    .collect()
            }
        }
    }

    fn read_rows(&self, request: &RowsRequest, now: Timestamp) -> RowsAnswer {
        let found = self.ordered(request);
        let is_end = found.len() <= request.rows_max as usize;
        let mut rows = Vec::new();
        let mut bytes = 0_usize;
        for (id, row) in found.into_iter().take(request.rows_max as usize) {
            let event = &self.events[&row.work.seq];
            bytes = bytes.saturating_add(event.stored.event.data.len());
            let comes_along =
                request.event_bytes_max > 0 && (rows.is_empty() || bytes <= request.event_bytes_max);
            rows.push(QueueRow {
                id,
                seq: row.work.seq,
                stream: event.stream,
                group: row.work.group.clone(),
                priority: row.work.priority,
                delay: row.not_before.since(now),
                attempts: row.attempts,
                crashes: row.crashes,
                origin: row.work.origin,
                is_blocked: row.is_blocked,
                event_bytes: u32::try_from(event.stored.event.data.len()).unwrap_or(u32::MAX),
                event: comes_along.then(|| Arc::clone(&event.stored)),
            });
        }
        RowsAnswer { rows, is_end }
    }

    /// Fences whoever works on rows that a command is about to change. `false`: there is no such instance.
    fn raise_epoch(&mut self, slot: Slot, instance: InstanceId) -> bool {
        match self.instances.get_mut(&instance).filter(|row| row.slot == slot) {
            Some(row) => {
                row.epoch.0 += 1;
                true
            }
            None => false,
        }
    }
}

impl Tenants for Memory {
    fn tenant(&self, name: &Tenant) -> Result<TenantNo> {
        let mut guard = self.tables();
        let tables = &mut *guard;
        if let Some(tenant) = tables.tenants.get(name) {
            return Ok(*tenant);
        }
        let tenant = TenantNo(next(&mut tables.last.tenant));
        tables.tenants.insert(name.clone(), tenant);
        tables.versions.insert(tenant, 0);
        Ok(tenant)
    }

    fn stream(&self, tenant: TenantNo, name: &StreamName) -> Result<StreamNo> {
        let mut tables = self.tables();
        tables.check_tenant(tenant)?;
        Ok(tables.stream_no(tenant, name))
    }

    fn stream_name(&self, stream: StreamNo) -> Result<Option<StreamName>> {
        Ok(self.tables().streams.get(&stream).map(|row| row.name.clone()))
    }

    fn deploy(&self, tenant: TenantNo, definitions: &[ActorDefinition]) -> Result<Routes> {
        let mut tables = self.tables();
        tables.check_tenant(tenant)?;
        let mut is_changed = false;
        for definition in definitions {
            is_changed |= tables.deploy_one(tenant, definition);
        }
        if is_changed {
            *tables.versions.entry(tenant).or_default() += 1;
        }
        Ok(tables.routes(tenant))
    }

    fn routes(&self, tenant: TenantNo) -> Result<Routes> {
        let tables = self.tables();
        tables.check_tenant(tenant)?;
        Ok(tables.routes(tenant))
    }

    fn set_paused(&self, actor: ActorNo, key: Option<&Key>, is_paused: bool) -> Result<bool> {
        let mut tables = self.tables();
        let what = (actor, key.cloned());
        Ok(if is_paused { tables.paused.insert(what) } else { tables.paused.remove(&what) })
    }

    fn paused(&self, tenant: TenantNo) -> Result<Vec<Paused>> {
        let tables = self.tables();
        let is_of_tenant =
            |actor: &ActorNo| tables.actors.get(actor).is_some_and(|actor| actor.tenant == tenant);
        let paused = tables.paused.iter().filter(|(actor, _)| is_of_tenant(actor));
        Ok(paused.map(|(actor, key)| Paused { actor: *actor, key: key.clone() }).collect())
    }
}

impl Streams for Memory {
    fn append(&self, ticket: Ticket, events: &[NewEvent]) -> Result<Vec<Appended>> {
        let answer = self.once(ticket, |tables, now| {
            events.iter().try_for_each(|event| tables.check_event(event))?;
            Ok(Answer::Appended(events.iter().map(|event| tables.insert_event(event, now)).collect()))
        })?;
        if let Answer::Appended(appended) = answer { Ok(appended) } else { other_kind() }
    }

    fn events(&self, seqs: &[Seq]) -> Result<Vec<Arc<StoredEvent>>> {
        let tables = self.tables();
        let found = seqs.iter().filter_map(|seq| tables.events.get(seq));
        Ok(found.map(|event| Arc::clone(&event.stored)).collect())
    }

    fn read_stream(
        &self,
        stream: StreamNo,
        after: Seq,
        events_max: u32,
        bytes_max: usize,
    ) -> Result<Vec<Arc<StoredEvent>>> {
        let tables = self.tables();
        let from = (Bound::Excluded((stream, after)), Bound::Included((stream, Seq(i64::MAX))));
        let found = tables.by_stream.range(from).map(|(_, seq)| Arc::clone(&tables.events[seq].stored));
        Ok(within(found, events_max, bytes_max, |event| event.event.data.len()))
    }

    fn streams_pending(&self, after: Option<StreamNo>, streams_max: u32) -> Result<Vec<StreamNo>> {
        let tables = self.tables();
        let streams: BTreeSet<StreamNo> = tables.pending.keys().map(|(stream, _, _)| *stream).collect();
        let later = streams.into_iter().filter(|stream| after.is_none_or(|after| *stream > after));
        Ok(later.take(streams_max as usize).collect())
    }

    fn lease_stream(&self, stream: StreamNo, boot: Boot) -> Result<Option<Epoch>> {
        let mut tables = self.tables();
        tables.check_live(boot)?;
        let owner = tables.streams.get(&stream).and_then(|row| row.owner);
        if owner.is_some_and(|owner| owner != boot && tables.is_live(owner)) {
            return Ok(None);
        }
        Ok(tables.streams.get_mut(&stream).map(|row| {
            row.owner = Some(boot);
            row.epoch.0 += 1;
            row.epoch
        }))
    }

    fn release_stream(&self, stream: StreamNo, boot: Boot, epoch: Epoch) -> Result<()> {
        let mut tables = self.tables();
        if let Some(row) = tables.streams.get_mut(&stream)
            && row.owner == Some(boot)
            && row.epoch == epoch
        {
            row.owner = None;
        }
        Ok(())
    }

    fn pending(&self, stream: StreamNo, events_max: u32, bytes_max: usize) -> Result<Vec<Pending>> {
        let tables = self.tables();
        let first = (stream, Seq(i64::MIN), SubscriptionNo(i64::MIN));
        let last = (stream, Seq(i64::MAX), SubscriptionNo(i64::MAX));
        let found = tables.pending.range(first..=last).map(|((_, seq, subscription), row)| Pending {
            id: row.id,
            subscription: *subscription,
            reached: row.reached,
            event: Arc::clone(&tables.events[seq].stored),
        });
        Ok(within(found, events_max, bytes_max, |pending| pending.event.event.data.len()))
    }

    fn instances_of(
        &self,
        actor: ActorNo,
        after: InstanceId,
        instances_max: u32,
    ) -> Result<Vec<(InstanceId, Key)>> {
        let tables = self.tables();
        let later = tables.instances.range((Bound::Excluded(after), Bound::Unbounded));
        let of_actor = later.filter(|(_, row)| row.actor == actor);
        Ok(of_actor.map(|(id, row)| (*id, row.key.clone())).take(instances_max as usize).collect())
    }

    fn fan_out(
        &self,
        ticket: Ticket,
        stream: StreamNo,
        epoch: Epoch,
        done: &[FanOut],
    ) -> Result<Vec<RowMade>> {
        let answer = self.once(ticket, |tables, now| {
            let lease = tables.streams.get(&stream);
            if !lease.is_some_and(|row| row.owner == Some(ticket.boot) && row.epoch == epoch) {
                return Err(StoreError::Fenced(format!("stream {stream} is fanned out by another one")));
            }
            done.iter().try_for_each(|one| tables.check_rows(one.tenant, &one.rows))?;
            let mut made = Vec::new();
            for one in done {
                let of_event =
                    (stream, one.seq, SubscriptionNo(i64::MIN))..=(stream, one.seq, SubscriptionNo(i64::MAX));
                let place = tables.pending.range(of_event).find(|(_, row)| row.id == one.id);
                let Some(place) = place.map(|(place, _)| *place) else { continue };
                match one.reached {
                    Some(_) => {
                        tables.pending.entry(place).and_modify(|row| row.reached = one.reached);
                    }
                    None => {
                        tables.pending.remove(&place);
                    }
                }
                made.extend(one.rows.iter().map(|row| tables.insert_row(one.tenant, one.seq, row)));
                if let Some(parked) = &one.parked {
                    tables.park(one.tenant, one.seq, parked, now);
                }
            }
            Ok(Answer::Made(made))
        })?;
        if let Answer::Made(made) = answer { Ok(made) } else { other_kind() }
    }

    fn prune(&self, events_before: Timestamp, rows_max: u32) -> Result<u64> {
        let (mut guard, now) = self.tables_now();
        let tables = &mut *guard;
        let rows_max = rows_max as usize;
        let mut named: BTreeSet<Seq> = tables.queue.values().map(|row| row.work.seq).collect();
        named.extend(tables.pending.keys().map(|(_, seq, _)| *seq));
        named.extend(tables.dead.values().map(|dead| dead.letter.seq));
        named.extend(tables.parked.values().map(|row| row.parked.seq));
        let events: Vec<Seq> = tables
            .events
            .iter()
            .filter(|(seq, event)| event.at < events_before && !named.contains(*seq))
            .map(|(seq, _)| *seq)
            .take(rows_max)
            .collect();
        for seq in &events {
            if let Some(stream) = tables.events.remove(seq).and_then(|event| event.stream) {
                tables.by_stream.remove(&(stream, *seq));
            }
        }
        let known: Vec<DedupeKey> = tables
            .dedupe
            .iter()
            .filter(|(_, known)| known.expires <= now)
            .map(|(key, _)| key.clone())
            .take(rows_max)
            .collect();
        for key in &known {
            tables.dedupe.remove(key);
        }
        let mut owners: BTreeSet<Boot> = tables.instances.values().filter_map(|row| row.owner).collect();
        owners.extend(tables.streams.values().filter_map(|row| row.owner));
        let dead: Vec<Boot> = tables
            .workers
            .iter()
            .filter(|(boot, worker)| !worker.is_live && !owners.contains(*boot))
            .map(|(boot, _)| *boot)
            .take(rows_max)
            .collect();
        for boot in &dead {
            tables.workers.remove(boot);
            tables.lanes.retain(|(owner, _), _| owner != boot);
        }
        Ok((events.len() + known.len() + dead.len()) as u64)
    }
}

impl Instances for Memory {
    fn claim(&self, boot: Boot, wanted: &[Waiting]) -> Result<Vec<Claimed>> {
        let mut tables = self.tables();
        tables.check_live(boot)?;
        let mut claimed = Vec::new();
        for Waiting { slot, instance } in wanted {
            let has_rows = tables.rows_of(*slot, *instance).next().is_some();
            let Some(owner) = tables.instances.get(instance).map(|row| row.owner) else { continue };
            let is_free = owner.is_none_or(|owner| owner == boot || !tables.is_live(owner));
            if !has_rows || !is_free {
                continue;
            }
            tables.instances.entry(*instance).and_modify(|row| {
                row.owner = Some(boot);
                row.epoch.0 += 1;
                claimed.push(Claimed {
                    slot: row.slot,
                    instance: *instance,
                    tenant: row.tenant,
                    actor: row.actor,
                    key: row.key.clone(),
                    epoch: row.epoch,
                    version: row.version,
                    state: row.state.clone(),
                    was_orphan: owner.is_some_and(|owner| owner != boot),
                });
            });
        }
        Ok(claimed)
    }

    fn release(&self, boot: Boot, owned: &[(Slot, InstanceId, Epoch)]) -> Result<()> {
        let mut tables = self.tables();
        for (_, instance, epoch) in owned {
            if let Some(row) = tables.instances.get_mut(instance).filter(|row| row.is_owned(boot, *epoch)) {
                row.owner = None;
            }
        }
        Ok(())
    }

    fn commit(&self, ticket: Ticket, batch: &[InstanceCommit]) -> Result<CommitReport> {
        let answer = self.once(ticket, |tables, now| {
            for end in batch.iter().flat_map(|part| &part.ends) {
                if let End::Done { events, schedules } = &end.end {
                    events.iter().try_for_each(|event| tables.check_event(event))?;
                    schedules.iter().try_for_each(|write| tables.check_schedule(write))?;
                }
            }
            let mut report = CommitReport::default();
            for part in batch {
                let is_committed = tables.commit_one(ticket.boot, part, now, &mut report);
                report.committed.push(is_committed);
            }
            Ok(Answer::Report(sorted(report)))
        })?;
        if let Answer::Report(report) = answer { Ok(report) } else { other_kind() }
    }

    fn instance(&self, actor: ActorNo, key: &Key) -> Result<Option<InstanceView>> {
        let tables = self.tables();
        Ok(tables.by_key.get(&(actor, key.clone())).map(|instance| tables.view(*instance)))
    }

    fn instances(
        &self,
        actor: ActorNo,
        prefix: &str,
        after: Option<&Key>,
        instances_max: u32,
    ) -> Result<Vec<InstanceView>> {
        let tables = self.tables();
        let wanted = tables.by_key.iter().filter(|((of, key), _)| {
            *of == actor && key.as_str().starts_with(prefix) && after.is_none_or(|after| key > after)
        });
        Ok(wanted.map(|(_, instance)| tables.view(*instance)).take(instances_max as usize).collect())
    }
}

/// Each stream once, in order.
fn sorted(mut report: CommitReport) -> CommitReport {
    report.pending.sort_unstable();
    report.pending.dedup();
    report
}

impl Queues for Memory {
    fn rows(&self, requests: &[RowsRequest]) -> Result<Vec<RowsAnswer>> {
        let (tables, now) = self.tables_now();
        Ok(requests.iter().map(|request| tables.read_rows(request, now)).collect())
    }

    fn waiting(&self, slots: Range<u16>, after: Option<Waiting>, instances_max: u32) -> Result<Vec<Waiting>> {
        let tables = self.tables();
        let mut found = Vec::new();
        let mut last = after;
        while found.len() < instances_max as usize {
            // Behind all rows of the last one: the next row is another instance's.
            let from = last.map_or(Bound::Unbounded, |last| {
                Bound::Excluded((last.slot, last.instance, QueueId(i64::MAX)))
            });
            let mut rest = tables
                .queue
                .range((from, Bound::Unbounded))
                .map(|((slot, instance, _), _)| Waiting { slot: *slot, instance: *instance });
            let Some(next) = rest.find(|next| next.slot.number() >= slots.start) else { break };
            if next.slot.number() >= slots.end {
                break;
            }
            found.push(next);
            last = Some(next);
        }
        Ok(found)
    }

    fn depth(&self, slot: Slot, instance: InstanceId, rows_max: u32) -> Result<u32> {
        let count = self.tables().rows_of(slot, instance).take(rows_max as usize).count();
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn mark_careful(
        &self,
        boot: Boot,
        rows: &[(Slot, InstanceId, Epoch, Vec<QueueId>)],
    ) -> Result<Vec<bool>> {
        let mut tables = self.tables();
        let mut answers = Vec::new();
        for (slot, instance, epoch, ids) in rows {
            let is_owner = tables.instances.get(instance).is_some_and(|row| row.is_owned(boot, *epoch));
            for id in ids.iter().filter(|_| is_owner) {
                if let Some(row) = tables.queue.get_mut(&(*slot, *instance, *id)) {
                    row.crashes += 1;
                }
            }
            answers.push(is_owner);
        }
        Ok(answers)
    }

    fn unblock(&self, slot: Slot, instance: InstanceId, rows: &[QueueId], is_retry: bool) -> Result<u64> {
        let mut tables = self.tables();
        if !tables.raise_epoch(slot, instance) {
            return Ok(0);
        }
        let mut count = 0;
        for id in rows {
            let place = (slot, instance, *id);
            let Some(row) = tables.queue.get_mut(&place).filter(|row| row.is_blocked) else { continue };
            if is_retry {
                *row = Row::new(row.work.clone());
            } else {
                tables.queue.remove(&place);
            }
            count += 1;
        }
        Ok(count)
    }

    fn purge(&self, slot: Slot, instance: InstanceId, rows_max: u32) -> Result<u64> {
        let mut tables = self.tables();
        if !tables.raise_epoch(slot, instance) {
            return Ok(0);
        }
        let ids: Vec<QueueId> =
            tables.rows_of(slot, instance).map(|(id, _)| id).take(rows_max as usize).collect();
        for id in &ids {
            tables.queue.remove(&(slot, instance, *id));
        }
        Ok(ids.len() as u64)
    }
}

impl Timers for Memory {
    fn now(&self) -> Result<Timestamp> {
        Ok(self.tables_now().1)
    }

    fn due(&self, schedules_max: u32) -> Result<Due> {
        let (tables, now) = self.tables_now();
        let mut due: Vec<Schedule> = tables
            .schedules
            .iter()
            .filter(|(_, row)| row.fire_at <= now)
            .map(|((tenant, id), row)| Tables::schedule(*tenant, id, row))
            .collect();
        due.sort_by_key(|schedule| (schedule.fire_at, schedule.no));
        due.truncate(schedules_max as usize);
        let later = tables.schedules.values().map(|row| row.fire_at).filter(|fire_at| *fire_at > now);
        Ok(Due { schedules: due, now, next_in: later.min().map(|next| next.since(now)) })
    }

    fn fire(&self, ticket: Ticket, firings: &[Firing]) -> Result<CommitReport> {
        let answer = self.once(ticket, |tables, now| {
            for firing in firings {
                firing.events.iter().try_for_each(|event| tables.check_event(event))?;
            }
            let mut report = CommitReport::default();
            for firing in firings {
                let as_read = tables.schedules.iter().find(|(_, row)| {
                    row.no == firing.no
                        && row.generation == firing.generation
                        && row.fire_at == firing.fire_at
                });
                let place = as_read.map(|(place, _)| place.clone());
                report.committed.push(place.is_some());
                let Some(place) = place else { continue };
                match firing.next {
                    Some(next) => {
                        tables.schedules.entry(place).and_modify(|row| row.fire_at = next);
                    }
                    None => {
                        tables.schedules.remove(&place);
                    }
                }
                tables.follow(&firing.events, now, &mut report);
            }
            Ok(Answer::Report(sorted(report)))
        })?;
        if let Answer::Report(report) = answer { Ok(report) } else { other_kind() }
    }

    fn write_schedules(&self, writes: &[ScheduleWrite]) -> Result<Vec<ScheduleAnswer>> {
        let (mut tables, now) = self.tables_now();
        writes.iter().try_for_each(|write| tables.check_schedule(write))?;
        Ok(writes.iter().map(|write| tables.write_schedule(write, now)).collect())
    }

    fn schedules(
        &self,
        tenant: TenantNo,
        after: Option<&ScheduleId>,
        schedules_max: u32,
    ) -> Result<Vec<Schedule>> {
        let tables = self.tables();
        let wanted = tables
            .schedules
            .iter()
            .filter(|((of, id), _)| *of == tenant && after.is_none_or(|after| id > after))
            .take(schedules_max as usize);
        Ok(wanted.map(|((tenant, id), row)| Tables::schedule(*tenant, id, row)).collect())
    }
}

impl Workers for Memory {
    fn register(&self, name: &str) -> Result<Boot> {
        let (mut guard, now) = self.tables_now();
        let tables = &mut *guard;
        let boot = Boot(next(&mut tables.last.boot));
        let worker =
            WorkerRow { name: name.to_owned(), last_seen: now, is_live: true, load: Load::default() };
        tables.workers.insert(boot, worker);
        Ok(boot)
    }

    fn heartbeat(&self, boot: Boot, load: Load) -> Result<bool> {
        let (mut tables, now) = self.tables_now();
        let Some(worker) = tables.workers.get_mut(&boot).filter(|worker| worker.is_live) else {
            return Ok(false);
        };
        worker.last_seen = now;
        worker.load = load;
        Ok(true)
    }

    fn judge(&self, judge: Boot, stale: Duration) -> Result<Vec<Boot>> {
        let (mut tables, now) = self.tables_now();
        let mut dead = Vec::new();
        for (boot, worker) in &mut tables.workers {
            if *boot != judge && worker.is_live && now.since(worker.last_seen) > stale {
                worker.is_live = false;
                dead.push(*boot);
            }
        }
        Ok(dead)
    }

    fn leave(&self, boot: Boot) -> Result<()> {
        if let Some(worker) = self.tables().workers.get_mut(&boot) {
            worker.is_live = false;
        }
        Ok(())
    }

    fn workers(&self, workers_max: u32) -> Result<Vec<Worker>> {
        let (tables, now) = self.tables_now();
        let newest_first = || tables.workers.iter().rev();
        let live = newest_first().filter(|(_, worker)| worker.is_live);
        let dead = newest_first().filter(|(_, worker)| !worker.is_live);
        let both = live.chain(dead).take(workers_max as usize);
        Ok(both
            .map(|(boot, worker)| Worker {
                boot: *boot,
                name: worker.name.clone(),
                silent: now.since(worker.last_seen),
                is_live: worker.is_live,
                load: worker.load,
            })
            .collect())
    }

    fn notify(&self, notes: &[Note]) -> Result<()> {
        let hearers = self.shared.hearers.lock().unwrap_or_else(PoisonError::into_inner);
        let others = hearers.values().filter(|(handle, _)| *handle != self.handle);
        let others: Vec<Hear> = others.map(|(_, hear)| Arc::clone(hear)).collect();
        // Who hears may call the store.
        drop(hearers);
        for hear in others {
            notes.iter().for_each(|note| hear(note.clone()));
        }
        Ok(())
    }

    fn listen(&self, _boot: Boot, hear: Arc<dyn Fn(Note) + Send + Sync>) -> Result<Box<dyn Listening>> {
        let number = self.shared.next_number();
        let mut hearers = self.shared.hearers.lock().unwrap_or_else(PoisonError::into_inner);
        hearers.insert(number, (self.handle, hear));
        drop(hearers);
        Ok(Box::new(Hearing { shared: Arc::clone(&self.shared), number }))
    }
}

struct Hearing {
    shared: Arc<Shared>,
    number: u64,
}

impl Listening for Hearing {
    fn is_listening(&self) -> bool {
        true
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        let mut hearers = self.shared.hearers.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = hearers.remove(&self.number);
        // What it holds may call the store when it goes.
        drop(hearers);
        drop(gone);
    }
}

impl Letters for Memory {
    fn dead_letters(
        &self,
        tenant: TenantNo,
        actor: Option<ActorNo>,
        after: i64,
        letters_max: u32,
    ) -> Result<Vec<DeadLetter>> {
        let tables = self.tables();
        let later = tables.dead.range((Bound::Excluded(after), Bound::Unbounded)).map(|(_, dead)| dead);
        let wanted = later
            .filter(|dead| dead.tenant == tenant && actor.is_none_or(|actor| dead.letter.actor == actor));
        Ok(wanted.map(|dead| dead.letter.clone()).take(letters_max as usize).collect())
    }

    fn redrive(&self, tenant: TenantNo, letters: &[i64]) -> Result<Vec<RowMade>> {
        let mut guard = self.tables();
        let tables = &mut *guard;
        let mut made = Vec::new();
        for id in letters {
            if tables.dead.get(id).is_none_or(|dead| dead.tenant != tenant) {
                continue;
            }
            let DeadRow { letter, work, .. } = tables.dead.remove(id).expect("looked up above");
            let row = QueueId(next(&mut tables.last.row));
            tables.queue.insert((letter.slot, letter.instance, row), Row::new(work));
            made.push(RowMade { slot: letter.slot, instance: letter.instance, row });
        }
        Ok(made)
    }

    fn drop_letters(&self, tenant: TenantNo, letters: &[i64]) -> Result<u64> {
        let mut tables = self.tables();
        let mut count = 0;
        for id in letters {
            if tables.dead.get(id).is_some_and(|dead| dead.tenant == tenant) {
                tables.dead.remove(id);
                count += 1;
            }
        }
        Ok(count)
    }

    fn parked(&self, tenant: TenantNo, after: i64, events_max: u32) -> Result<Vec<Parked>> {
        let tables = self.tables();
        let later = tables.parked.range((Bound::Excluded(after), Bound::Unbounded)).map(|(_, row)| row);
        let wanted = later.filter(|row| row.tenant == tenant);
        Ok(wanted.map(|row| row.parked.clone()).take(events_max as usize).collect())
    }

    fn unpark(&self, tenant: TenantNo, events: &[(i64, Option<NewRow>)]) -> Result<Vec<RowMade>> {
        let mut tables = self.tables();
        for (_, row) in events {
            tables.check_rows(tenant, row.as_slice())?;
        }
        let mut made = Vec::new();
        for (id, row) in events {
            if tables.parked.get(id).is_none_or(|parked| parked.tenant != tenant) {
                continue;
            }
            let ParkedRow { parked, .. } = tables.parked.remove(id).expect("looked up above");
            made.extend(row.as_ref().map(|row| tables.insert_row(tenant, parked.seq, row)));
        }
        Ok(made)
    }
}

impl Store for Memory {
    fn kind(&self) -> &'static str {
        "memory"
    }
}
