//! Turns schedules that are due into events.
//!
//! What is due is due by the store's clock; this only sleeps until then. Firing is one transaction: the
//! schedule goes on or ends, and its events are appended, so that each slot becomes one event whatever
//! crashes and however many workers compete. Whether there is room to run them does not matter.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use evener_actor::event::{Event, Timestamp};
use evener_actor::id::{Boot, Slot};
use evener_store::batch::{Firing, NewEvent, NewParked, NewRow, Schedule, ScheduleTo, Ticket};
use evener_store::{Result, StoreError};

use crate::upkeep::cron::Cron;
use crate::work::{Bell, Pace, Work};
use crate::worker::RuntimeWorker;

/// The header that says how many slots passed unfired before this one.
pub const MISSED: &str = "evenermissed";

/// Schedules that fire in one transaction, at most.
const BATCH: u32 = 256;

/// Fires what is due.
pub struct TimerDispatch {
    worker: Weak<RuntimeWorker>,
    bell: Bell,
    core: Mutex<Core>,
}

#[derive(Default)]
struct Core {
    boot: Boot,
    decided: i64,
    /// Sent, and not known to be done.
    sent: Option<Vec<Firing>>,
    tries: u32,
}

impl std::fmt::Debug for TimerDispatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TimerDispatch").finish_non_exhaustive()
    }
}

impl TimerDispatch {
    pub(crate) fn new(worker: Weak<RuntimeWorker>) -> Self {
        Self { worker, bell: Bell::default(), core: Mutex::default() }
    }

    fn failed(worker: &RuntimeWorker, core: &mut Core, error: &StoreError) -> Pace {
        worker.store_failed("fire what is due", error);
        if let StoreError::Fenced(why) = error {
            worker.ownership.suspect(why);
        }
        core.tries += 1;
        Pace::Wait(worker.pause(error, core.tries))
    }
}

impl Work for TimerDispatch {
    fn name(&self) -> String {
        "evener-timers".to_owned()
    }

    fn bell(&self) -> &Bell {
        &self.bell
    }

    fn step(&self) -> Pace {
        let Some(worker) = self.worker.upgrade() else { return Pace::Idle };
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        let core = &mut *core;
        if worker.is_stopping() && core.sent.is_none() {
            return Pace::Idle;
        }
        if !worker.ownership.is_trusted(worker.clock.now()) {
            return Pace::Wait(worker.config.heartbeat / 10);
        }
        if core.sent.is_none() {
            let boot = worker.ownership.boot();
            if core.boot != boot {
                core.boot = boot;
                core.decided = 0;
            }
            let due = match worker.store.due(BATCH) {
                Ok(due) => due,
                Err(error) => return Self::failed(&worker, core, &error),
            };
            if due.schedules.is_empty() {
                core.tries = 0;
                let next = due.next_in.unwrap_or(Duration::MAX);
                // A clock that was set is noticed, too.
                return Pace::Wait(next.min(worker.config.backup_poll));
            }
            let mut firings = Vec::with_capacity(due.schedules.len());
            for schedule in &due.schedules {
                match fire(&worker, schedule, due.now) {
                    Ok(firing) => {
                        worker.metrics.fired(firing.events.len(), due.now.since(schedule.fire_at));
                        firings.push(firing);
                    }
                    Err(error) => return Self::failed(&worker, core, &error),
                }
            }
            core.sent = Some(firings);
        }
        let Some(firings) = &core.sent else { return Pace::Again };
        let ticket = Ticket { boot: core.boot, lane: worker.timer_lane(), number: core.decided + 1 };
        match worker.store.fire(ticket, firings) {
            Ok(report) => {
                core.tries = 0;
                core.decided += 1;
                core.sent = None;
                worker.follow(&report);
                Pace::Again
            }
            Err(error @ StoreError::Unknown(_)) => {
                worker.store_failed("fire what is due", &error);
                core.tries += 1;
                Pace::Wait(worker.pause(&error, core.tries))
            }
            Err(error) => {
                // It was not done. What is due then is looked up anew.
                core.sent = None;
                Self::failed(&worker, core, &error)
            }
        }
    }
}

/// What follows from a schedule that is due.
fn fire(worker: &Arc<RuntimeWorker>, schedule: &Schedule, now: Timestamp) -> Result<Firing> {
    let (slots, missed, next) = match &schedule.cron {
        None => (vec![schedule.fire_at], 0, None),
        // It was checked when it was set. If this program does not know it any more (other zones), it ends,
        // and says so in its last event.
        Some(spec) => match Cron::new(&spec.expression, &spec.time_zone) {
            Ok(cron) => {
                let advance = cron.advance(spec.catch_up, schedule.fire_at, now);
                (advance.fire, advance.missed, advance.next)
            }
            Err(error) => {
                tracing::error!(schedule = %schedule.id, "it cannot go on, and ends: {error}");
                (vec![schedule.fire_at], 0, None)
            }
        },
    };
    let mut events = Vec::with_capacity(slots.len());
    for (at, slot) in slots.iter().enumerate() {
        let mut event = schedule.event.clone();
        event.id = Arc::from(format!("{}/{}/{}", schedule.id, schedule.generation, slot.0));
        event.source = Arc::from("evener:schedule");
        event.time = *slot;
        if at == 0 && missed > 0 {
            event.headers.push(MISSED, missed.to_string());
        }
        events.push(place(worker, schedule, event)?);
    }
    Ok(Firing { no: schedule.no, generation: schedule.generation, fire_at: schedule.fire_at, next, events })
}

fn place(worker: &RuntimeWorker, schedule: &Schedule, event: Event) -> Result<NewEvent> {
    let routes = worker.router.routes(&*worker.store, schedule.tenant)?;
    Ok(match &schedule.to {
        ScheduleTo::Stream(stream) => routes.place(*stream, event, None),
        ScheduleTo::Instance { actor, key } => {
            let mut new = NewEvent {
                tenant: schedule.tenant,
                stream: None,
                event,
                dedupe: None,
                rows: Vec::new(),
                deferred: Vec::new(),
                parked: Vec::new(),
            };
            match routes.actor_name(*actor) {
                Some(name) => new.rows.push(NewRow {
                    slot: Slot::of(&routes.name, name, key),
                    actor: *actor,
                    key: key.clone(),
                    group: None,
                    is_indexed: routes.actor(name).is_some_and(|(_, is_indexed)| is_indexed),
                    priority: 0,
                }),
                None => new.parked.push(NewParked {
                    subscription: None,
                    reason: "the actor that it was scheduled for is not known any more".to_owned(),
                }),
            }
            new
        }
    })
}
