//! Where outcomes of many drains meet: a lane turns whatever waits into one transaction, while the next
//! batch gathers behind it. Batches grow with load; without load an outcome goes at once.
//!
//! An instance belongs to one lane, by its slot, and a lane has one batch under way, so outcomes of an
//! instance are committed in the order in which they were handed on. Several of one instance become one
//! update.
//!
//! A batch that the store refuses is split by halves until the outcome that is to blame stands alone; its drain
//! is told, and what it handed on behind it is dropped here, by the number of its chain.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use evener_actor::event::{Event, Timestamp};
use evener_actor::id::{Boot, Epoch, InstanceId, Version};
use evener_actor::outcome::{Destination, ScheduleChange, When};
use evener_store::batch::{
    CronSpec, End, FireAt, InstanceCommit, NewEvent, NewParked, NewSchedule, RowEnd, ScheduleTo,
    ScheduleWrite, Ticket,
};
use evener_store::{Result, StoreError};

use crate::flow::drain::{Handed, HandedEnd, Heard};
use crate::flow::fanout::TenantRoutes;
use crate::flow::ingress;
use crate::upkeep::cron::Cron;
use crate::work::{Bell, Pace, Work};
use crate::worker::{Ear, RuntimeWorker};

/// A lane of commits.
pub struct CommitLane {
    number: u16,
    worker: std::sync::Weak<RuntimeWorker>,
    bell: Bell,
    waiting: Mutex<VecDeque<Waiting>>,
    core: Mutex<Core>,
}

impl std::fmt::Debug for CommitLane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommitLane").field("number", &self.number).finish_non_exhaustive()
    }
}

/// An outcome, and who hears what became of it.
type Waiting = (Box<Handed>, Arc<dyn Ear>);

#[derive(Default)]
struct Core {
    boot: Boot,
    /// Of the last batch that is decided.
    decided: i64,
    /// Batches to be sent, the next one last.
    work: Vec<Vec<Part>>,
    /// Chains that are void, up to that number.
    broken: HashMap<(InstanceId, Epoch), u32>,
    tries: u32,
}

/// What a batch has of one instance.
struct Part {
    ear: Arc<dyn Ear>,
    items: Vec<Item>,
}

struct Item {
    handed: Box<Handed>,
    /// `Err`: it can never be stored.
    end: Result<RowEnd, String>,
}

impl CommitLane {
    /// The lane with that number.
    pub(crate) fn new(number: u16, worker: std::sync::Weak<RuntimeWorker>) -> Self {
        Self { number, worker, bell: Bell::default(), waiting: Mutex::default(), core: Mutex::default() }
    }

    /// Takes an outcome.
    pub(crate) fn push(&self, handed: Box<Handed>, ear: Arc<dyn Ear>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back((handed, ear));
        let is_first = waiting.len() == 1;
        drop(waiting);
        if is_first {
            self.bell.ring();
        }
    }

    /// Nothing more comes of that owner of the instance.
    pub(crate) fn forget(&self, instance: InstanceId, epoch: Epoch) {
        if let Ok(mut core) = self.core.try_lock() {
            core.broken.remove(&(instance, epoch));
        }
    }

    /// `true`: nothing waits or is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        core.work.is_empty() && self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Takes what waits, up to a batch, put together by instance.
    fn gather(&self, worker: &RuntimeWorker, core: &mut Core) -> Result<()> {
        let mut taken = Vec::new();
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let mut bytes = 0;
            while let Some((handed, _)) = waiting.front() {
                bytes += handed.bytes;
                let is_full =
                    taken.len() >= worker.config.batch_events_max || bytes > worker.config.batch_bytes_max;
                if is_full && !taken.is_empty() {
                    break;
                }
                taken.extend(waiting.pop_front());
            }
        }
        let mut places: HashMap<(InstanceId, Epoch), usize> = HashMap::with_capacity(taken.len());
        let mut parts: Vec<Part> = Vec::with_capacity(taken.len());
        let mut taken = taken.into_iter();
        while let Some((mut handed, ear)) = taken.next() {
            worker.outcome_left(handed.bytes);
            let id = (handed.instance.id, handed.epoch);
            if core.is_void(&handed) {
                continue;
            }
            let end = match prepare(worker, &mut handed) {
                Ok(end) => end,
                Err(error) => {
                    // The store is away: back with all that is not prepared, in order.
                    let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                    for (handed, ear) in taken.rev() {
                        waiting.push_front((handed, ear));
                    }
                    worker.outcome_came(handed.bytes);
                    waiting.push_front((handed, ear));
                    drop(waiting);
                    if !parts.is_empty() {
                        core.work.push(parts);
                    }
                    return Err(error);
                }
            };
            let at = *places.entry(id).or_insert_with(|| {
                parts.push(Part { ear, items: Vec::with_capacity(1) });
                parts.len() - 1
            });
            parts[at].items.push(Item { handed, end });
        }
        if !parts.is_empty() {
            core.work.push(parts);
        }
        Ok(())
    }
}

impl Core {
    fn is_void(&self, handed: &Handed) -> bool {
        self.broken.get(&(handed.instance.id, handed.epoch)).is_some_and(|&void| handed.chain <= void)
    }

    fn refuse(&mut self, part: Part, why: String) {
        let first = &part.items[0].handed;
        self.broken.insert((first.instance.id, first.epoch), first.chain);
        part.ear.tell(Heard::Refused(why));
    }
}

impl Work for CommitLane {
    fn name(&self) -> String {
        format!("evener-commit-{}", self.number)
    }

    fn bell(&self) -> &Bell {
        &self.bell
    }

    fn step(&self) -> Pace {
        let Some(worker) = self.worker.upgrade() else { return Pace::Idle };
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        let core = &mut *core;
        if core.work.is_empty() {
            match self.gather(&worker, core) {
                Ok(()) => {}
                Err(error) => {
                    worker.store_failed("prepare a commit", &error);
                    core.tries += 1;
                    return Pace::Wait(worker.pause(&error, core.tries));
                }
            }
        }
        let Some(mut parts) = core.work.pop() else {
            // All that was taken may have been void, and who comes behind others does not ring.
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            return if waiting.is_empty() { Pace::Idle } else { Pace::Again };
        };
        for part in &mut parts {
            part.items.retain(|item| !core.is_void(&item.handed));
        }
        parts.retain(|part| !part.items.is_empty());
        // What cannot be stored is cut off, and waits till what stands before it is answered.
        let mut cut = Vec::new();
        let mut whole = Vec::with_capacity(parts.len());
        for mut part in parts {
            match part.items.iter().position(|item| item.end.is_err()) {
                None => whole.push(part),
                Some(0) => {
                    let Err(why) = part.items[0].end.clone() else { unreachable!("found above") };
                    core.refuse(part, why);
                }
                Some(at) => {
                    let rest = part.items.split_off(at);
                    cut.push(Part { ear: Arc::clone(&part.ear), items: rest });
                    whole.push(part);
                }
            }
        }
        if !cut.is_empty() {
            core.work.push(cut);
        }
        if whole.is_empty() {
            return Pace::Again;
        }
        if !worker.ownership.is_trusted(worker.clock.now()) {
            core.work.push(whole);
            return Pace::Wait(worker.config.heartbeat / 10);
        }
        let boot = worker.ownership.boot();
        if core.boot != boot {
            core.boot = boot;
            core.decided = 0;
        }
        let batch: Vec<InstanceCommit> = whole.iter().map(merge).collect();
        let ticket = Ticket { boot, lane: self.number, number: core.decided + 1 };
        match worker.store.commit(ticket, &batch) {
            Ok(report) => {
                core.tries = 0;
                core.decided += 1;
                worker.metrics.committed(&batch);
                for (part, is_committed) in whole.iter().zip(&report.committed) {
                    if *is_committed {
                        let outcomes = u32::try_from(part.items.len()).expect("a batch is small");
                        part.ear.tell(Heard::Committed(outcomes));
                    } else {
                        let first = &part.items[0].handed;
                        core.broken.insert((first.instance.id, first.epoch), u32::MAX);
                        worker.metrics.fenced();
                        part.ear.tell(Heard::Fenced);
                    }
                }
                worker.follow(&report);
                Pace::Again
            }
            Err(StoreError::Refused(why)) => {
                core.tries = 0;
                split(core, whole, why);
                Pace::Again
            }
            Err(StoreError::Fenced(why)) => {
                worker.ownership.suspect(&why);
                for part in &whole {
                    let first = &part.items[0].handed;
                    core.broken.insert((first.instance.id, first.epoch), u32::MAX);
                    part.ear.tell(Heard::Fenced);
                }
                Pace::Again
            }
            Err(error) => {
                worker.store_failed("commit", &error);
                core.tries += 1;
                let pause = worker.pause(&error, core.tries);
                core.work.push(whole);
                Pace::Wait(pause)
            }
        }
    }
}

/// Halves a refused batch; the first half goes first. What stands alone is to blame.
fn split(core: &mut Core, mut parts: Vec<Part>, why: String) {
    if parts.len() > 1 {
        let second = parts.split_off(parts.len() / 2);
        core.work.push(second);
        core.work.push(parts);
        return;
    }
    let Some(mut part) = parts.pop() else { return };
    if part.items.len() > 1 {
        let rest = part.items.split_off(part.items.len() / 2);
        core.work.push(vec![Part { ear: Arc::clone(&part.ear), items: rest }]);
        core.work.push(vec![part]);
        return;
    }
    core.refuse(part, why);
}

/// One update of many outcomes.
fn merge(part: &Part) -> InstanceCommit {
    let first = &part.items[0].handed;
    let last = &part.items[part.items.len() - 1].handed;
    let state: Option<Bytes> = part.items.iter().rev().find_map(|item| item.handed.state.clone());
    let mut ends = Vec::with_capacity(part.items.len());
    for item in &part.items {
        ends.extend(item.handed.superseded.iter().map(|row| RowEnd { row: *row, end: End::Superseded }));
        ends.extend(item.end.clone().ok());
    }
    InstanceCommit {
        slot: first.slot,
        instance: first.instance.id,
        epoch: first.epoch,
        version: first.version,
        version_after: Version(last.version.0 + 1),
        state,
        ends,
    }
}

/// Names become numbers, and events find their instances.
///
/// The outer error is the store's; the inner one says that this outcome can never be stored.
fn prepare(worker: &RuntimeWorker, handed: &mut Handed) -> Result<Result<RowEnd, String>> {
    let end = match std::mem::replace(&mut handed.end, HandedEnd::Other(End::Superseded)) {
        HandedEnd::Other(end) => end,
        HandedEnd::Done { emits, sends, schedules }
            if emits.is_empty() && sends.is_empty() && schedules.is_empty() =>
        {
            End::Done { events: Vec::new(), schedules: Vec::new() }
        }
        HandedEnd::Done { emits, sends, schedules } => {
            let made = follow(worker, handed, &emits, &sends, &schedules);
            // Kept whole, for another try.
            let end = match made {
                Ok(Ok(end)) => end,
                Ok(Err(why)) => return Ok(Err(why)),
                Err(error) => {
                    handed.end = HandedEnd::Done { emits, sends, schedules };
                    return Err(error);
                }
            };
            return Ok(Ok(RowEnd { row: handed.row, end }));
        }
    };
    Ok(Ok(RowEnd { row: handed.row, end }))
}

fn follow(
    worker: &RuntimeWorker,
    handed: &Handed,
    emits: &[evener_actor::outcome::Emit],
    sends: &[evener_actor::outcome::Tell],
    schedules: &[ScheduleChange],
) -> Result<Result<End, String>> {
    let store = &*worker.store;
    let tenant = worker.router.tenant(store, &handed.instance.tenant)?;
    let routes = worker.router.routes(store, tenant)?;
    let mut events = Vec::with_capacity(emits.len() + sends.len());
    let source: Arc<str> =
        Arc::from(format!("evener:{}/{}", handed.instance.definition.name, handed.instance.key));
    let depth = handed.depth + 1;
    let named = |event: &Event, number: usize| {
        let mut event = event.clone();
        event.id = Arc::from(format!("{}/{number}", handed.origin));
        event.source = Arc::clone(&source);
        if event.time == Timestamp::default() {
            event.time = Timestamp(worker.clock.wall_ms());
        }
        event.headers.push(ingress::DEPTH, depth.to_string());
        event
    };
    let is_too_deep = depth > worker.config.depth_max;
    let too_deep = || NewParked {
        subscription: None,
        reason: format!(
            "{depth} events led to it, one after the other; at most {} may",
            worker.config.depth_max
        ),
    };
    for emit in emits {
        let stream = worker.router.stream(store, tenant, &emit.stream)?;
        let event = named(&emit.event, events.len() + 1);
        let new = if is_too_deep {
            NewEvent {
                tenant,
                stream: Some(stream),
                event,
                dedupe: None,
                rows: Vec::new(),
                deferred: Vec::new(),
                parked: vec![too_deep()],
            }
        } else {
            routes.place(stream, event, None)
        };
        events.push(new);
    }
    for send in sends {
        let event = named(&send.event, events.len() + 1);
        let new =
            routes.direct(&send.actor, send.key.clone(), send.group.clone(), send.priority, event, None);
        let Some(mut new) = new else {
            return Ok(Err(format!("it sends to `{}`, and no such actor is known", send.actor)));
        };
        if is_too_deep {
            new.rows.clear();
            new.parked.push(too_deep());
        }
        events.push(new);
    }
    let mut writes = Vec::with_capacity(schedules.len());
    for change in schedules {
        match schedule(worker, &routes, change)? {
            Ok(write) => writes.push(write),
            Err(why) => return Ok(Err(why)),
        }
    }
    Ok(Ok(End::Done { events, schedules: writes }))
}

/// A change of a schedule, with numbers for names and a moment for its first slot.
///
/// # Errors
/// The outer error is the store's; the inner one says that it can never be set.
pub fn schedule(
    worker: &RuntimeWorker,
    routes: &TenantRoutes,
    change: &ScheduleChange,
) -> Result<Result<ScheduleWrite, String>> {
    let (id, when, to, event) = match change {
        ScheduleChange::Cancel { id } => {
            return Ok(Ok(ScheduleWrite::Cancel { tenant: routes.tenant, id: id.clone() }));
        }
        ScheduleChange::Set { id, when, to, event } => (id, when, to, event),
    };
    let (first, cron) = match when {
        When::In(delay) => (FireAt::In(*delay), None),
        When::At(at) => (FireAt::At(*at), None),
        When::Cron { expression, time_zone, catch_up } => {
            let cron = match Cron::new(expression, time_zone) {
                Ok(cron) => cron,
                Err(error) => return Ok(Err(error.to_string())),
            };
            let now = worker.store.now()?;
            let Some(first) = cron.after(now) else { return Ok(Err(format!("`{expression}` never fires"))) };
            let spec = CronSpec {
                expression: expression.clone(),
                time_zone: time_zone.clone(),
                catch_up: *catch_up,
            };
            (FireAt::At(first), Some(spec))
        }
    };
    let spec = serde_json::json!({
        "when": when,
        "to": to,
        "type": event.kind,
        "subject": event.subject,
        "data": String::from_utf8_lossy(&event.data),
    });
    let to = match to {
        Destination::Stream(stream) => {
            ScheduleTo::Stream(worker.router.stream(&*worker.store, routes.tenant, stream)?)
        }
        Destination::Instance { actor, key } => match routes.actor(actor) {
            Some((actor, _)) => ScheduleTo::Instance { actor, key: key.clone() },
            None => return Ok(Err(format!("it schedules for `{actor}`, and no such actor is known"))),
        },
    };
    Ok(Ok(ScheduleWrite::Set(Box::new(NewSchedule {
        tenant: routes.tenant,
        id: id.clone(),
        spec: spec.to_string(),
        first,
        cron,
        to,
        event: (**event).clone(),
    }))))
}
