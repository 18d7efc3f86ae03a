//! Deferred fan-out: pending events become rows of queues.
//!
//! A subscription whose instances cannot be named when an event is appended (a broadcast) leaves a row in
//! `pending`. The one worker that holds a stream's lease turns those into rows of queues, in the order of the
//! stream, one batch at a time: queue rows in, pending rows out, one transaction. It never works by a cursor over
//! `seq`: numbers become visible out of order, and a cursor would skip those that commit late.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use evener_actor::definition::Target;
use evener_actor::id::{Boot, Epoch, InstanceId, Slot, StreamNo, SubscriptionNo, TenantNo};
use evener_store::batch::{FanOut, NewParked, NewRow, Pending, Ticket};
use evener_store::{Result, StoreError};

use crate::flow::fanout::TenantRoutes;
use crate::work::{Bell, Pace, Work};
use crate::worker::RuntimeWorker;

/// Pending events in one transaction, at most.
const EVENTS_MAX: u32 = 256;
/// Rows in one transaction, at most, of all of them together.
const ROWS_MAX: u32 = 4096;
/// Data of events that is read at once, at most.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Turns pending events into rows.
pub struct Spreading {
    worker: Weak<RuntimeWorker>,
    bell: Bell,
    /// Streams that may have pending events.
    news: Mutex<BTreeSet<StreamNo>>,
    core: Mutex<Core>,
    /// All streams are to be looked through. A flag: who asks for it does not wait for the store.
    wants_look: AtomicBool,
}

#[derive(Default)]
struct Core {
    boot: Boot,
    decided: i64,
    /// The stream that is worked on, by that right.
    lease: Option<(StreamNo, Epoch)>,
    /// Sent, and not known to be done.
    sent: Option<Vec<FanOut>>,
    /// Where the look through all streams stands; `None`: it is over.
    look: Option<Option<StreamNo>>,
    next_look: Duration,
    tries: u32,
}

impl std::fmt::Debug for Spreading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spreading").finish_non_exhaustive()
    }
}

impl Spreading {
    pub(crate) fn new(worker: Weak<RuntimeWorker>) -> Self {
        let core = Core { look: Some(None), ..Core::default() };
        Self {
            worker,
            bell: Bell::default(),
            news: Mutex::default(),
            core: Mutex::new(core),
            wants_look: AtomicBool::new(false),
        }
    }

    /// Streams have new pending events.
    pub(crate) fn wake(&self, streams: impl IntoIterator<Item = StreamNo>) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let before = news.len();
        news.extend(streams);
        if news.len() > before {
            self.bell.ring();
        }
    }

    /// Looks through all streams, now.
    pub(crate) fn look(&self) {
        // Release: pairs with the swap in `next_stream`; what is to be found was written before.
        self.wants_look.store(true, Ordering::Release);
        self.bell.ring();
    }

    fn failed(worker: &RuntimeWorker, core: &mut Core, error: &StoreError) -> Pace {
        worker.store_failed("fan out", error);
        if let StoreError::Fenced(_) = error {
            // Another worker has the lease: it does the work.
            core.lease = None;
        }
        core.tries += 1;
        Pace::Wait(worker.pause(error, core.tries))
    }
}

impl Work for Spreading {
    fn name(&self) -> String {
        "evener-fan-out".to_owned()
    }

    fn bell(&self) -> &Bell {
        &self.bell
    }

    fn step(&self) -> Pace {
        let Some(worker) = self.worker.upgrade() else { return Pace::Idle };
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        let core = &mut *core;
        let now = worker.clock.now();
        if worker.is_stopping() && core.sent.is_none() {
            if let Some((stream, epoch)) = core.lease.take()
                && let Err(error) = worker.store.release_stream(stream, core.boot, epoch)
            {
                worker.store_failed("release a stream", &error);
            }
            return Pace::Idle;
        }
        if !worker.ownership.is_trusted(now) {
            return Pace::Wait(worker.config.heartbeat / 10);
        }
        let boot = worker.ownership.boot();
        if core.boot != boot {
            core.boot = boot;
            core.decided = 0;
            core.lease = None;
            core.sent = None;
        }
        let Some((stream, epoch)) = core.lease else {
            return match self.next_stream(&worker, core, now) {
                Ok(pace) => pace,
                Err(error) => Self::failed(&worker, core, &error),
            };
        };
        if core.sent.is_none() {
            let made = worker
                .store
                .pending(stream, EVENTS_MAX, BYTES_MAX)
                .and_then(|pending| spread(&worker, &pending));
            match made {
                Err(error) => return Self::failed(&worker, core, &error),
                Ok(done) if done.is_empty() => {
                    // The next stream. A lease that is kept for a while would spare a statement each.
                    core.lease = None;
                    core.tries = 0;
                    return match worker.store.release_stream(stream, boot, epoch) {
                        Ok(()) => Pace::Again,
                        Err(error) => Self::failed(&worker, core, &error),
                    };
                }
                Ok(done) => core.sent = Some(done),
            }
        }
        let Some(done) = &core.sent else { return Pace::Again };
        let ticket = Ticket { boot, lane: worker.spreading_lane(), number: core.decided + 1 };
        match worker.store.fan_out(ticket, stream, epoch, done) {
            Ok(rows) => {
                core.tries = 0;
                core.decided += 1;
                core.sent = None;
                worker.wake(&rows);
                Pace::Again
            }
            Err(error @ StoreError::Unknown(_)) => {
                worker.store_failed("fan out", &error);
                core.tries += 1;
                Pace::Wait(worker.pause(&error, core.tries))
            }
            Err(error) => {
                core.sent = None;
                Self::failed(&worker, core, &error)
            }
        }
    }
}

impl Spreading {
    /// Takes the lease of the next stream that may have work.
    fn next_stream(&self, worker: &RuntimeWorker, core: &mut Core, now: Duration) -> Result<Pace> {
        let news = self.news.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
        if let Some(stream) = news {
            match worker.store.lease_stream(stream, core.boot) {
                Ok(Some(epoch)) => core.lease = Some((stream, epoch)),
                // Somebody else has it, and looks until nothing is left.
                Ok(None) => {}
                Err(error) => {
                    self.news.lock().unwrap_or_else(PoisonError::into_inner).insert(stream);
                    return Err(error);
                }
            }
            return Ok(Pace::Again);
        }
        let is_wanted = self.wants_look.swap(false, Ordering::AcqRel);
        if is_wanted || (core.look.is_none() && now >= core.next_look) {
            core.look = Some(None);
        }
        let Some(after) = core.look else {
            return Ok(Pace::Wait(core.next_look.saturating_sub(now)));
        };
        let streams = worker.store.streams_pending(after, 256)?;
        core.look = (streams.len() == 256).then(|| streams.last().copied());
        if core.look.is_none() {
            core.next_look = now.saturating_add(worker.config.backup_poll);
        }
        self.news.lock().unwrap_or_else(PoisonError::into_inner).extend(streams);
        Ok(Pace::Again)
    }
}

/// What pending events become, up to a batch. A broadcast that is longer goes on in the next one, and those
/// behind it wait: the order of the stream stays.
fn spread(worker: &RuntimeWorker, pending: &[Pending]) -> Result<Vec<FanOut>> {
    let store = &*worker.store;
    let mut done = Vec::with_capacity(pending.len());
    let mut room = ROWS_MAX;
    for pending in pending {
        if room == 0 {
            break;
        }
        let event = &pending.event.event;
        let mut out = FanOut {
            id: pending.id,
            seq: pending.event.seq,
            event_bytes: u32::try_from(event.data.len()).unwrap_or(u32::MAX),
            tenant: TenantNo(0),
            rows: Vec::new(),
            parked: None,
            reached: None,
        };
        let Some((tenant, routes)) = find(worker, pending.subscription)? else {
            // Nobody knows it any more: it has ended. (With other tenants about, it may be theirs.)
            if let [tenant] = worker.router.tenants()[..] {
                out.tenant = tenant;
                done.push(out);
            }
            continue;
        };
        out.tenant = tenant;
        let Some((actor, name, is_indexed, subscription)) = routes.subscription(pending.subscription) else {
            continue;
        };
        match subscription.key {
            Target::Broadcast => {
                let after = pending.reached.unwrap_or(InstanceId(0));
                let instances = store.instances_of(actor, after, room)?;
                let is_full = instances.len() >= room as usize;
                out.reached = instances.last().filter(|_| is_full).map(|(id, _)| *id);
                room -= u32::try_from(instances.len()).unwrap_or(room).min(room);
                out.rows.extend(instances.into_iter().map(|(_, key)| NewRow {
                    slot: Slot::of(&routes.name, name, &key),
                    actor,
                    key,
                    group: None,
                    is_indexed,
                    priority: 0,
                }));
            }
            Target::Path(_) => {
                room -= 1;
                match subscription.route(event) {
                    Ok(None) => {}
                    Ok(Some(routed)) => out.rows.push(NewRow {
                        slot: Slot::of(&routes.name, name, &routed.key),
                        actor,
                        key: routed.key,
                        group: routed.group,
                        is_indexed,
                        priority: routed.priority,
                    }),
                    Err(error) => {
                        out.parked = Some(NewParked {
                            subscription: Some(pending.subscription),
                            reason: error.to_string(),
                        });
                    }
                }
            }
        }
        done.push(out);
    }
    Ok(done)
}

/// Who has that subscription; asks the store again before it says that nobody has.
fn find(worker: &RuntimeWorker, no: SubscriptionNo) -> Result<Option<(TenantNo, Arc<TenantRoutes>)>> {
    for is_again in [false, true] {
        if is_again {
            worker.router.forget();
        }
        for tenant in worker.router.tenants() {
            let routes = worker.router.routes(&*worker.store, tenant)?;
            if routes.subscription(no).is_some() {
                return Ok(Some((tenant, routes)));
            }
        }
    }
    Ok(None)
}
