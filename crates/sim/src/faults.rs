//! The store as workers see it: the plain model, with faults in front.
//!
//! ```text
//! worker -> FaultStore (one for each life: away, busy, answers lost, the world goes on meanwhile)
//!              -> Door (one for the world: what is done is seen by the oracle; mutations)
//!                   -> Memory
//! ```
//!
//! A call takes time: before it is done and before its answer is there the world may go on, other pieces of work
//! of the same worker included, as it does while a thread waits for a database. Rows that were made are seen by
//! others only when the call returns, so places become visible out of order.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evener_actor::definition::ActorDefinition;
use evener_actor::event::{StoredEvent, Timestamp};
use evener_actor::id::{
    ActorNo, Boot, Epoch, InstanceId, Key, QueueId, ScheduleId, Seq, Slot, StreamName, StreamNo, Tenant,
    TenantNo,
};
use evener_store::batch::{
    Appended, Claimed, CommitReport, DeadLetter, Due, End, FanOut, Firing, InstanceCommit, InstanceView,
    Load, NewEvent, NewRow, Parked, Pending, RowMade, RowOrder, RowsAnswer, RowsRequest, Schedule,
    ScheduleAnswer, ScheduleWrite, Ticket, Waiting, Worker,
};
use evener_store::tenants::{Paused, Routes};
use evener_store::workers::{Listening, Note};
use evener_store::{
    Instances, Letters, Memory, Queues, Result, Store, StoreError, Streams, Tenants, Timers, Workers,
};

use crate::invariants::{Oracle, stream_name};
use crate::mutations::Mutation;
use crate::workload::Setup;
use crate::world::{Fault, Kind, Time, World};

/// Events of this type can never be stored.
pub(crate) const REFUSED: &str = "refused";

/// Where everything that is done to the store goes through, and is seen.
pub(crate) struct Door {
    pub(crate) memory: Memory,
    oracle: Mutex<Oracle>,
    time: Time,
    mutation: Option<Mutation>,
    mutant: Mutex<Mutant>,
}

/// What mutations remember.
#[derive(Default)]
struct Mutant {
    /// Numbers of batches that are smuggled in.
    smuggled: i64,
    cursors: std::collections::BTreeMap<InstanceId, QueueId>,
    repeats: i64,
    done: std::collections::BTreeMap<(Boot, u16), i64>,
}

/// Lanes of batches that are smuggled in.
const SMUGGLED: u16 = 60_000;

/// What arrives once more, later.
type Late = Box<dyn Fn(&Door) + Send>;

impl Door {
    pub(crate) fn new(setup: Setup, time: Time, mutation: Option<Mutation>) -> Self {
        let of_store = time.clone();
        Self {
            memory: Memory::new(move || Timestamp(i64::try_from(of_store.now().as_millis()).unwrap_or(0))),
            oracle: Mutex::new(Oracle::new(setup)),
            time,
            mutation,
            mutant: Mutex::default(),
        }
    }

    pub(crate) fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mutant(&self) -> MutexGuard<'_, Mutant> {
        self.mutant.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub(crate) fn view(&self, instance: InstanceId) -> Option<InstanceView> {
        let tenant = self.memory.tenant(&Tenant::default()).ok()?;
        let actors = self.memory.routes(tenant).ok()?.actors;
        actors.iter().find_map(|actor| {
            let views = self.memory.instances(actor.no, "", None, u32::MAX).ok()?;
            views.into_iter().find(|view| view.instance == instance)
        })
    }

    fn compare_owners(&self, instances: impl Iterator<Item = InstanceId>) {
        for instance in instances {
            if let Some(view) = self.view(instance) {
                self.oracle().compare_owner(&view);
            }
        }
    }

    fn append(&self, ticket: Ticket, events: &[NewEvent]) -> (Result<Vec<Appended>>, Vec<QueueId>) {
        if events.iter().any(|event| &*event.event.kind == REFUSED) {
            return (Err(StoreError::Refused("an event of type `refused`".to_owned())), Vec::new());
        }
        let mut result = self.memory.append(self.again(ticket), events);
        let made = self.oracle().appended(ticket, events, &result);
        if self.is(Mutation::WakeForgotten)
            && let Ok(reports) = &mut result
        {
            for report in reports {
                if let Appended::New { rows, .. } = report {
                    rows.clear();
                }
            }
        }
        (result, made)
    }

    /// The ticket as it is; with a mutation, a copy of a batch gets a ticket of its own.
    fn again(&self, ticket: Ticket) -> Ticket {
        if !self.is(Mutation::TicketIgnored) {
            return ticket;
        }
        let mut mutant = self.mutant();
        let mutant = &mut *mutant;
        let done = mutant.done.entry((ticket.boot, ticket.lane)).or_default();
        if ticket.number > *done {
            *done = ticket.number;
            return ticket;
        }
        mutant.repeats += 1;
        // A lane that nobody else uses.
        Ticket { lane: SMUGGLED + u16::try_from(mutant.repeats).unwrap_or(0), number: 1, ..ticket }
    }

    fn commit(&self, ticket: Ticket, batch: &[InstanceCommit]) -> (Result<CommitReport>, Vec<QueueId>) {
        let is_refused = batch.iter().flat_map(|part| &part.ends).any(|end| match &end.end {
            End::Done { events, .. } => events.iter().any(|event| &*event.event.kind == REFUSED),
            _ => false,
        });
        if is_refused {
            return (Err(StoreError::Refused("an event of type `refused`".to_owned())), Vec::new());
        }
        let mut result = self.memory.commit(self.again(ticket), batch);
        if self.is(Mutation::FenceDropped)
            && let Ok(report) = &mut result
        {
            for (part, is_committed) in batch.iter().zip(&mut report.committed) {
                if !*is_committed {
                    *is_committed = self.smuggle(part, &mut report.rows);
                }
            }
        }
        let made = self.oracle().committed(ticket, batch, &result, self.time.now());
        if self.is(Mutation::WakeForgotten)
            && let Ok(report) = &mut result
        {
            report.rows.clear();
        }
        (result, made)
    }

    /// Commits what was fenced, by the right of whoever owns the instance now.
    fn smuggle(&self, part: &InstanceCommit, rows: &mut Vec<RowMade>) -> bool {
        let Some((view, owner)) = self
            .view(part.instance)
            .and_then(|view| Some((view.owner?, view)))
            .map(|(owner, view)| (view, owner))
        else {
            return false;
        };
        let number = {
            let mut mutant = self.mutant();
            mutant.smuggled += 1;
            mutant.smuggled
        };
        let lane = SMUGGLED + 5_000 + u16::try_from(number).unwrap_or(0);
        let part = InstanceCommit {
            epoch: view.epoch,
            version: view.version,
            version_after: evener_actor::id::Version(view.version.0 + 1),
            ..part.clone()
        };
        match self.memory.commit(Ticket { boot: owner, lane, number: 1 }, &[part]) {
            Ok(report) => {
                rows.extend(report.rows);
                report.committed == [true]
            }
            Err(_) => false,
        }
    }

    fn claim(&self, boot: Boot, wanted: &[Waiting]) -> Result<Vec<Claimed>> {
        // Rows that cannot be seen yet are no reason.
        let wanted: Vec<Waiting> =
            wanted.iter().copied().filter(|one| self.oracle().has_seen_rows(one)).collect();
        let result = self.memory.claim(boot, &wanted);
        if let Ok(claimed) = &result {
            self.oracle().claimed(boot, claimed);
            self.compare_owners(claimed.iter().map(|one| one.instance));
        }
        result
    }

    fn release(&self, boot: Boot, owned: &[(Slot, InstanceId, Epoch)]) -> Result<()> {
        if self.is(Mutation::ReleaseUnchecked) {
            for (slot, instance, _) in owned {
                if let Some(view) = self.view(*instance)
                    && let Some(owner) = view.owner
                {
                    self.memory.release(owner, &[(*slot, *instance, view.epoch)])?;
                }
            }
        } else {
            self.memory.release(boot, owned)?;
        }
        self.oracle().released(boot, owned);
        self.compare_owners(owned.iter().map(|(_, instance, _)| *instance));
        Ok(())
    }

    fn rows(&self, requests: &[RowsRequest]) -> Result<Vec<RowsAnswer>> {
        let requests: Vec<RowsRequest> = requests.iter().map(|one| self.forward_only(one)).collect();
        let mut answers = self.memory.rows(&requests)?;
        let oracle = self.oracle();
        for (request, answer) in requests.iter().zip(&mut answers) {
            answer.rows.retain(|row| !oracle.is_hidden(request.instance, row.id));
        }
        Ok(answers)
    }

    /// With a mutation, what was read past is never read again.
    fn forward_only(&self, request: &RowsRequest) -> RowsRequest {
        let mut request = request.clone();
        if self.is(Mutation::CursorOnly)
            && let RowOrder::Forward { after } = &mut request.order
        {
            let mut mutant = self.mutant();
            let known = mutant.cursors.entry(request.instance).or_default();
            *after = (*after).max(*known);
            let read = self.memory.rows(std::slice::from_ref(&request)).unwrap_or_default();
            let last = read.first().and_then(|answer| answer.rows.last());
            *known = last.map_or(*known, |row| row.id.max(*known));
        }
        request
    }

    fn waiting(&self, slots: Range<u16>, after: Option<Waiting>, most: u32) -> Result<Vec<Waiting>> {
        let mut found = self.memory.waiting(slots, after, most)?;
        let oracle = self.oracle();
        found.retain(|waiting| oracle.has_seen_rows(waiting));
        Ok(found)
    }

    fn mark(&self, boot: Boot, rows: &[(Slot, InstanceId, Epoch, Vec<QueueId>)]) -> Result<Vec<bool>> {
        let result = self.memory.mark_careful(boot, rows);
        if let Ok(were) = &result {
            self.oracle().marked(boot, rows, were);
        }
        result
    }

    fn register(&self, name: &str) -> Result<Boot> {
        let boot = self.memory.register(name)?;
        self.oracle().registered(boot, self.time.now());
        Ok(boot)
    }

    fn heartbeat(&self, boot: Boot, load: Load) -> Result<bool> {
        let is_live = self.memory.heartbeat(boot, load)?;
        self.oracle().beat(boot, is_live, self.time.now());
        Ok(is_live)
    }

    fn judge(&self, judge: Boot, stale: Duration) -> Result<Vec<Boot>> {
        let dead = self.memory.judge(judge, stale)?;
        self.oracle().judged(judge, &dead, self.time.now());
        Ok(dead)
    }

    fn leave(&self, boot: Boot) -> Result<()> {
        self.memory.leave(boot)?;
        self.oracle().left(boot);
        Ok(())
    }

    fn deploy(&self, tenant: TenantNo, definitions: &[ActorDefinition]) -> Result<Routes> {
        let routes = self.memory.deploy(tenant, definitions)?;
        let mut oracle = self.oracle();
        for actor in &routes.actors {
            let number = actor.name.as_str().trim_start_matches("actor-").parse();
            oracle.know_actor(actor.no, number.expect("actors have numbers"));
        }
        Ok(routes)
    }

    pub(crate) fn stream(&self, tenant: TenantNo, name: &StreamName) -> Result<StreamNo> {
        let no = self.memory.stream(tenant, name)?;
        if let Some(name) = stream_name(name.as_str()) {
            self.oracle().know_stream(no, name);
        }
        Ok(no)
    }

    pub(crate) fn unblock(
        &self,
        slot: Slot,
        instance: InstanceId,
        rows: &[QueueId],
        is_retry: bool,
    ) -> Result<u64> {
        let count = self.memory.unblock(slot, instance, rows, is_retry)?;
        self.oracle().unblocked(instance, rows, is_retry);
        Ok(count)
    }

    pub(crate) fn redrive(&self, tenant: TenantNo, letters: &[DeadLetter]) -> Result<Vec<RowMade>> {
        let ids: Vec<i64> = letters.iter().map(|letter| letter.id).collect();
        let made = self.memory.redrive(tenant, &ids)?;
        self.oracle().redriven(letters, &made);
        Ok(made)
    }
}

/// The store of one life of a worker.
pub(crate) struct FaultStore {
    pub(crate) world: Arc<World>,
    pub(crate) life: u64,
    /// The life is over: nothing more reaches the store.
    pub(crate) is_gone: Arc<AtomicBool>,
}

impl FaultStore {
    fn gone() -> StoreError {
        StoreError::Away("the worker is gone".to_owned())
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// One call: faults, windows, and what it does.
    fn call<T>(&self, name: &'static str, kind: Kind, act: impl FnOnce(&Door) -> Result<T>) -> Result<T> {
        self.call_making(name, kind, |door| (act(door), Vec::new()), None)
    }

    fn call_making<T>(
        &self,
        name: &'static str,
        kind: Kind,
        act: impl FnOnce(&Door) -> (Result<T>, Vec<QueueId>),
        late: Option<Late>,
    ) -> Result<T> {
        if self.is_gone() {
            return Err(Self::gone());
        }
        let fault = self.world.draw_fault(self.life, name, kind);
        if fault == Fault::Away {
            return Err(StoreError::Away("not reached".to_owned()));
        }
        if fault == Fault::Busy {
            return Err(StoreError::Busy("a lock".to_owned()));
        }
        self.world.window(self.life, name);
        if self.is_gone() {
            return Err(Self::gone());
        }
        if fault == Fault::LostBefore {
            if let Some(late) = late {
                self.world.send_late(name, late);
            }
            return Err(StoreError::Unknown("the connection broke".to_owned()));
        }
        let (result, made) = act(&self.world.door);
        self.world.window(self.life, name);
        self.world.door.oracle().seen(&made);
        if fault == Fault::LostAfter && result.is_ok() {
            if let Some(late) = late {
                self.world.send_late(name, late);
            }
            return Err(StoreError::Unknown("the connection broke".to_owned()));
        }
        result
    }
}

impl Tenants for FaultStore {
    fn tenant(&self, name: &Tenant) -> Result<TenantNo> {
        self.call("tenant", Kind::Read, |door| door.memory.tenant(name))
    }
    fn stream(&self, tenant: TenantNo, name: &StreamName) -> Result<StreamNo> {
        self.call("stream", Kind::Read, |door| door.stream(tenant, name))
    }
    fn stream_name(&self, stream: StreamNo) -> Result<Option<StreamName>> {
        self.call("stream_name", Kind::Read, |door| door.memory.stream_name(stream))
    }
    fn deploy(&self, tenant: TenantNo, definitions: &[ActorDefinition]) -> Result<Routes> {
        self.call("deploy", Kind::Write, |door| door.deploy(tenant, definitions))
    }
    fn routes(&self, tenant: TenantNo) -> Result<Routes> {
        self.call("routes", Kind::Read, |door| door.memory.routes(tenant))
    }
    fn set_paused(&self, actor: ActorNo, key: Option<&Key>, is_paused: bool) -> Result<bool> {
        self.call("set_paused", Kind::Write, |door| door.memory.set_paused(actor, key, is_paused))
    }
    fn paused(&self, tenant: TenantNo) -> Result<Vec<Paused>> {
        self.call("paused", Kind::Read, |door| door.memory.paused(tenant))
    }
}

impl Streams for FaultStore {
    fn append(&self, ticket: Ticket, events: &[NewEvent]) -> Result<Vec<Appended>> {
        let copy = events.to_vec();
        let late = move |door: &Door| {
            let (_, made) = door.append(ticket, &copy);
            door.oracle().seen(&made);
        };
        self.call_making("append", Kind::Write, |door| door.append(ticket, events), Some(Box::new(late)))
    }
    fn events(&self, seqs: &[Seq]) -> Result<Vec<Arc<StoredEvent>>> {
        self.call("events", Kind::Read, |door| door.memory.events(seqs))
    }
    fn read_stream(
        &self,
        stream: StreamNo,
        after: Seq,
        events_max: u32,
        bytes_max: usize,
    ) -> Result<Vec<Arc<StoredEvent>>> {
        self.call("read_stream", Kind::Read, |door| {
            door.memory.read_stream(stream, after, events_max, bytes_max)
        })
    }
    fn streams_pending(&self, after: Option<StreamNo>, streams_max: u32) -> Result<Vec<StreamNo>> {
        self.call("streams_pending", Kind::Read, |door| door.memory.streams_pending(after, streams_max))
    }
    fn lease_stream(&self, stream: StreamNo, boot: Boot) -> Result<Option<Epoch>> {
        self.call("lease_stream", Kind::Write, |door| door.memory.lease_stream(stream, boot))
    }
    fn release_stream(&self, stream: StreamNo, boot: Boot, epoch: Epoch) -> Result<()> {
        self.call("release_stream", Kind::Write, |door| door.memory.release_stream(stream, boot, epoch))
    }
    fn pending(&self, stream: StreamNo, events_max: u32, bytes_max: usize) -> Result<Vec<Pending>> {
        self.call("pending", Kind::Read, |door| door.memory.pending(stream, events_max, bytes_max))
    }
    fn instances_of(&self, actor: ActorNo, after: InstanceId, most: u32) -> Result<Vec<(InstanceId, Key)>> {
        self.call("instances_of", Kind::Read, |door| door.memory.instances_of(actor, after, most))
    }
    fn fan_out(
        &self,
        ticket: Ticket,
        stream: StreamNo,
        epoch: Epoch,
        done: &[FanOut],
    ) -> Result<Vec<RowMade>> {
        self.call("fan_out", Kind::Write, |door| door.memory.fan_out(ticket, stream, epoch, done))
    }
    fn prune(&self, events_before: Timestamp, rows_max: u32) -> Result<u64> {
        self.call("prune", Kind::Write, |door| door.memory.prune(events_before, rows_max))
    }
}

impl Instances for FaultStore {
    fn claim(&self, boot: Boot, wanted: &[Waiting]) -> Result<Vec<Claimed>> {
        self.call("claim", Kind::Write, |door| door.claim(boot, wanted))
    }
    fn release(&self, boot: Boot, owned: &[(Slot, InstanceId, Epoch)]) -> Result<()> {
        self.call("release", Kind::Write, |door| door.release(boot, owned))
    }
    fn commit(&self, ticket: Ticket, batch: &[InstanceCommit]) -> Result<CommitReport> {
        self.world.check_trust(self.life, "a batch is sent");
        let copy = batch.to_vec();
        let late = move |door: &Door| {
            let (_, made) = door.commit(ticket, &copy);
            door.oracle().seen(&made);
        };
        self.call_making("commit", Kind::Write, |door| door.commit(ticket, batch), Some(Box::new(late)))
    }
    fn instance(&self, actor: ActorNo, key: &Key) -> Result<Option<InstanceView>> {
        self.call("instance", Kind::Read, |door| door.memory.instance(actor, key))
    }
    fn instances(
        &self,
        actor: ActorNo,
        prefix: &str,
        after: Option<&Key>,
        instances_max: u32,
    ) -> Result<Vec<InstanceView>> {
        self.call("instances", Kind::Read, |door| door.memory.instances(actor, prefix, after, instances_max))
    }
}

impl Queues for FaultStore {
    fn rows(&self, requests: &[RowsRequest]) -> Result<Vec<RowsAnswer>> {
        self.call("rows", Kind::Read, |door| door.rows(requests))
    }
    fn waiting(&self, slots: Range<u16>, after: Option<Waiting>, instances_max: u32) -> Result<Vec<Waiting>> {
        self.call("waiting", Kind::Read, |door| door.waiting(slots, after, instances_max))
    }
    fn depth(&self, slot: Slot, instance: InstanceId, rows_max: u32) -> Result<u32> {
        self.call("depth", Kind::Read, |door| door.memory.depth(slot, instance, rows_max))
    }
    fn mark_careful(
        &self,
        boot: Boot,
        rows: &[(Slot, InstanceId, Epoch, Vec<QueueId>)],
    ) -> Result<Vec<bool>> {
        self.call("mark_careful", Kind::Write, |door| door.mark(boot, rows))
    }
    fn unblock(&self, slot: Slot, instance: InstanceId, rows: &[QueueId], is_retry: bool) -> Result<u64> {
        self.call("unblock", Kind::Write, |door| door.unblock(slot, instance, rows, is_retry))
    }
    fn purge(&self, slot: Slot, instance: InstanceId, rows_max: u32) -> Result<u64> {
        self.call("purge", Kind::Write, |door| door.memory.purge(slot, instance, rows_max))
    }
}

impl Timers for FaultStore {
    fn now(&self) -> Result<Timestamp> {
        self.call("now", Kind::Read, |door| door.memory.now())
    }
    fn due(&self, schedules_max: u32) -> Result<Due> {
        self.call("due", Kind::Read, |door| door.memory.due(schedules_max))
    }
    fn fire(&self, ticket: Ticket, firings: &[Firing]) -> Result<CommitReport> {
        self.call("fire", Kind::Write, |door| door.memory.fire(ticket, firings))
    }
    fn write_schedules(&self, writes: &[ScheduleWrite]) -> Result<Vec<ScheduleAnswer>> {
        self.call("write_schedules", Kind::Write, |door| door.memory.write_schedules(writes))
    }
    fn schedules(&self, tenant: TenantNo, after: Option<&ScheduleId>, most: u32) -> Result<Vec<Schedule>> {
        self.call("schedules", Kind::Read, |door| door.memory.schedules(tenant, after, most))
    }
}

impl Workers for FaultStore {
    fn register(&self, name: &str) -> Result<Boot> {
        let sent = self.world.time.now();
        let boot = self.call("register", Kind::Write, |door| door.register(name))?;
        self.world.heartbeat_answered(self.life, sent);
        Ok(boot)
    }
    fn heartbeat(&self, boot: Boot, load: Load) -> Result<bool> {
        let sent = self.world.time.now();
        let is_live = self.call("heartbeat", Kind::Write, |door| door.heartbeat(boot, load))?;
        if is_live {
            self.world.heartbeat_answered(self.life, sent);
            self.world.door.oracle().beat_answered(boot, sent);
        }
        Ok(is_live)
    }
    fn judge(&self, judge: Boot, stale: Duration) -> Result<Vec<Boot>> {
        self.call("judge", Kind::Write, |door| door.judge(judge, stale))
    }
    fn leave(&self, boot: Boot) -> Result<()> {
        self.call("leave", Kind::Write, |door| door.leave(boot))
    }
    fn workers(&self, workers_max: u32) -> Result<Vec<Worker>> {
        self.call("workers", Kind::Read, |door| door.memory.workers(workers_max))
    }
    fn notify(&self, notes: &[Note]) -> Result<()> {
        if self.is_gone() {
            return Err(Self::gone());
        }
        self.world.notify(self.life, notes);
        Ok(())
    }
    fn listen(&self, _boot: Boot, hear: Arc<dyn Fn(Note) + Send + Sync>) -> Result<Box<dyn Listening>> {
        self.world.listen(self.life, hear);
        Ok(Box::new(Hearing))
    }
}

struct Hearing;

impl Listening for Hearing {
    fn is_listening(&self) -> bool {
        true
    }
}

impl Letters for FaultStore {
    fn dead_letters(
        &self,
        tenant: TenantNo,
        actor: Option<ActorNo>,
        after: i64,
        letters_max: u32,
    ) -> Result<Vec<DeadLetter>> {
        self.call("dead_letters", Kind::Read, |door| {
            door.memory.dead_letters(tenant, actor, after, letters_max)
        })
    }
    fn redrive(&self, tenant: TenantNo, letters: &[i64]) -> Result<Vec<RowMade>> {
        self.call("redrive", Kind::Write, |door| door.memory.redrive(tenant, letters))
    }
    fn drop_letters(&self, tenant: TenantNo, letters: &[i64]) -> Result<u64> {
        self.call("drop_letters", Kind::Write, |door| door.memory.drop_letters(tenant, letters))
    }
    fn parked(&self, tenant: TenantNo, after: i64, events_max: u32) -> Result<Vec<Parked>> {
        self.call("parked", Kind::Read, |door| door.memory.parked(tenant, after, events_max))
    }
    fn unpark(&self, tenant: TenantNo, events: &[(i64, Option<NewRow>)]) -> Result<Vec<RowMade>> {
        self.call("unpark", Kind::Write, |door| door.memory.unpark(tenant, events))
    }
}

impl Store for FaultStore {
    fn kind(&self) -> &'static str {
        "simulated"
    }
}
