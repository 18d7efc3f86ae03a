//! Appends: from the door to the stream, with all that follows directly, in one transaction for many.
//!
//! Appends of one stream go through one lane, in the order in which they came. One append is whole or not at
//! all; many that wait become one batch.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use evener_actor::event::{Event, Timestamp};
use evener_actor::id::{ActorName, Boot, Group, Key, StreamName, Tenant};
use evener_store::batch::{Appended, Dedupe, NewEvent, Ticket};
use evener_store::{Result, StoreError};

use crate::error::AppendError;
use crate::work::{Bell, Pace, Work};
use crate::worker::RuntimeWorker;

/// Where events go.
#[derive(Debug, Clone)]
pub enum To {
    /// Into a stream.
    Stream(StreamName),
    /// To one instance.
    Instance {
        /// Which actor.
        actor: ActorName,
        /// Which instance.
        key: Key,
        /// In which group.
        group: Option<Group>,
        /// With which priority.
        priority: i32,
    },
}

/// Takes the answer to an append, once.
pub type AppendDone = Box<dyn FnOnce(Result<Vec<Appended>, AppendError>) + Send>;

/// Events to be appended together.
pub struct Append {
    /// Whose.
    pub tenant: Tenant,
    /// Where.
    pub to: To,
    /// What; checked.
    pub events: Vec<Event>,
    /// The answer.
    pub done: AppendDone,
}

/// A lane of appends.
pub struct AppendLane {
    number: u16,
    worker: std::sync::Weak<RuntimeWorker>,
    bell: Bell,
    waiting: Mutex<VecDeque<Append>>,
    core: Mutex<Core>,
}

impl std::fmt::Debug for AppendLane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppendLane").field("number", &self.number).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Core {
    boot: Boot,
    decided: i64,
    /// Batches to be sent, the next one last.
    work: Vec<Batch>,
    /// The next one was sent, and its answer lost.
    is_unknown: bool,
    tries: u32,
}

/// Appends that become one transaction: all their events, and how many belong to each.
#[derive(Default)]
struct Batch {
    events: Vec<NewEvent>,
    appends: Vec<(usize, AppendDone)>,
}

impl Batch {
    fn fail(self, error: &AppendError) {
        self.appends.into_iter().for_each(|(_, done)| done(Err(error.clone())));
    }

    /// The second half, by appends.
    fn split_off(&mut self) -> Self {
        let appends = self.appends.split_off(self.appends.len() / 2);
        let first = self.appends.iter().map(|(events, _)| events).sum();
        Self { events: self.events.split_off(first), appends }
    }
}

impl AppendLane {
    pub(crate) fn new(number: u16, worker: std::sync::Weak<RuntimeWorker>) -> Self {
        Self { number, worker, bell: Bell::default(), waiting: Mutex::default(), core: Mutex::default() }
    }

    pub(crate) fn push(&self, append: Append) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(append);
        let is_first = waiting.len() == 1;
        drop(waiting);
        if is_first {
            self.bell.ring();
        }
    }

    /// `true`: nothing waits or is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        core.work.is_empty() && self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn gather(&self, worker: &RuntimeWorker) -> Batch {
        let mut taken = Vec::new();
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let (mut events, mut bytes) = (0, 0);
            while let Some(append) = waiting.front() {
                events += append.events.len();
                bytes += append.events.iter().map(Event::bytes).sum::<usize>();
                let is_full =
                    events > worker.config.batch_events_max || bytes > worker.config.batch_bytes_max;
                if is_full && !taken.is_empty() {
                    break;
                }
                taken.extend(waiting.pop_front());
            }
        }
        let mut batch = Batch::default();
        for append in taken {
            match place(worker, &append.tenant, &append.to, append.events) {
                Ok(events) => {
                    batch.appends.push((events.len(), append.done));
                    batch.events.extend(events);
                }
                Err(error) => (append.done)(Err(error)),
            }
        }
        batch
    }
}

fn place(
    worker: &RuntimeWorker,
    tenant: &Tenant,
    to: &To,
    events: Vec<Event>,
) -> Result<Vec<NewEvent>, AppendError> {
    let store = &*worker.store;
    let no = worker.router.tenant(store, tenant)?;
    let routes = worker.router.routes(store, no)?;
    let stream = match to {
        To::Stream(name) => Some(worker.router.stream(store, no, name)?),
        To::Instance { .. } => None,
    };
    let mut placed = Vec::with_capacity(events.len());
    for mut event in events {
        let dedupe = (!event.id.is_empty())
            .then(|| Dedupe { body_hash: body_hash(&event), window: worker.config.dedupe_window });
        if dedupe.is_none() {
            event.id = Arc::from(worker.new_id());
        }
        if event.source.is_empty() {
            event.source = Arc::from("evener");
        }
        if event.time == Timestamp::default() {
            event.time = Timestamp(worker.clock.wall_ms());
        }
        placed.push(match (to, stream) {
            (To::Instance { actor, key, group, priority }, _) => routes
                .direct(actor, key.clone(), group.clone(), *priority, event, dedupe)
                .ok_or_else(|| AppendError::NoActor(actor.clone()))?,
            (To::Stream(_), Some(stream)) => routes.place(stream, event, dedupe),
            (To::Stream(_), None) => unreachable!("looked up above"),
        });
    }
    Ok(placed)
}

/// FNV-1a over type, subject, content type and data.
fn body_hash(event: &Event) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let parts = [
        event.kind.as_bytes(),
        event.subject.as_deref().unwrap_or("").as_bytes(),
        event.content_type.as_deref().unwrap_or("").as_bytes(),
        &event.data,
    ];
    for part in parts {
        for byte in part.iter().chain(&[0xff]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

impl Work for AppendLane {
    fn name(&self) -> String {
        format!("evener-append-{}", self.number)
    }

    fn bell(&self) -> &Bell {
        &self.bell
    }

    fn step(&self) -> Pace {
        let Some(worker) = self.worker.upgrade() else { return Pace::Idle };
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        let core = &mut *core;
        if core.work.is_empty() {
            let batch = self.gather(&worker);
            if !batch.appends.is_empty() {
                core.work.push(batch);
            }
        }
        let Some(mut batch) = core.work.pop() else {
            // All that was taken may have failed, and who comes behind others does not ring.
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            return if waiting.is_empty() { Pace::Idle } else { Pace::Again };
        };
        let boot = worker.ownership.boot();
        if core.boot != boot && !core.is_unknown {
            core.boot = boot;
            core.decided = 0;
        }
        let ticket = Ticket {
            boot: core.boot,
            lane: worker.config.commit_lanes + self.number,
            number: core.decided + 1,
        };
        let result = worker.store.append(ticket, &batch.events);
        core.is_unknown = matches!(result, Err(StoreError::Unknown(_)))
            || (core.is_unknown && matches!(&result, Err(error) if error.is_passing()));
        match result {
            Ok(reports) => {
                core.tries = 0;
                core.decided += 1;
                worker.metrics.appended(&reports);
                worker.follow_append(&batch.events, &reports);
                let mut reports = reports.into_iter();
                for (events, done) in batch.appends {
                    done(Ok(reports.by_ref().take(events).collect()));
                }
                Pace::Again
            }
            Err(StoreError::Refused(_)) if batch.appends.len() > 1 => {
                let second = batch.split_off();
                core.work.push(second);
                core.work.push(batch);
                Pace::Again
            }
            // What was sent must be decided before anything else is.
            Err(error)
                if core.is_unknown || matches!(error, StoreError::Busy(_)) && core.tries < BUSY_TRIES =>
            {
                worker.store_failed("append", &error);
                core.tries += 1;
                core.work.push(batch);
                Pace::Wait(worker.pause(&error, core.tries))
            }
            Err(error) => {
                worker.store_failed("append", &error);
                if let StoreError::Fenced(why) = &error {
                    worker.ownership.suspect(why);
                }
                core.tries = 0;
                batch.fail(&AppendError::Store(error));
                Pace::Again
            }
        }
    }
}

/// How often a busy store is asked again before the caller is told.
const BUSY_TRIES: u32 = 20;
