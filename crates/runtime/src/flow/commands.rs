//! What drains ask the store for, carried out for many at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use evener_actor::event::StoredEvent;
use evener_actor::id::{Epoch, InstanceId, QueueId, Seq, Slot};
use evener_store::batch::RowsRequest;

use crate::flow::drain::{Heard, Purpose};
use crate::work::{Bell, Pace, Work};
use crate::worker::{Ear, RuntimeWorker};

/// Requests in one call of the store, at most.
const BATCH: usize = 256;

/// Reads rows and events, and writes down what runs carefully.
pub struct Reader {
    number: u16,
    worker: Weak<RuntimeWorker>,
    bell: Bell,
    queue: Mutex<Queue>,
    tries: Mutex<u32>,
}

/// A wish for rows: what for, and who hears of them.
type Wish = (RowsRequest, (Purpose, Arc<dyn Ear>));
/// Rows of an instance to be marked, by its owner's right.
type Marks = (Slot, InstanceId, Epoch, Vec<QueueId>, Arc<dyn Ear>);

#[derive(Default)]
struct Queue {
    rows: Vec<Wish>,
    events: Vec<(Seq, QueueId, Arc<dyn Ear>)>,
    marks: Vec<Marks>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("number", &self.number).finish_non_exhaustive()
    }
}

fn first<T>(from: &mut Vec<T>) -> Vec<T> {
    let count = from.len().min(BATCH);
    from.drain(..count).collect()
}

impl Reader {
    pub(crate) fn new(number: u16, worker: Weak<RuntimeWorker>) -> Self {
        Self { number, worker, bell: Bell::default(), queue: Mutex::default(), tries: Mutex::default() }
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn read(&self, purpose: Purpose, request: RowsRequest, ear: Arc<dyn Ear>) {
        self.queue().rows.push((request, (purpose, ear)));
        self.bell.ring();
    }

    pub(crate) fn fetch(&self, seq: Seq, row: QueueId, ear: Arc<dyn Ear>) {
        self.queue().events.push((seq, row, ear));
        self.bell.ring();
    }

    pub(crate) fn mark(
        &self,
        slot: Slot,
        instance: InstanceId,
        epoch: Epoch,
        rows: Vec<QueueId>,
        ear: Arc<dyn Ear>,
    ) {
        self.queue().marks.push((slot, instance, epoch, rows, ear));
        self.bell.ring();
    }

    fn failed(&self, worker: &RuntimeWorker, doing: &str, error: &evener_store::StoreError) -> Pace {
        worker.store_failed(doing, error);
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        *tries += 1;
        Pace::Wait(worker.pause(error, *tries).max(Duration::from_millis(1)))
    }
}

impl Work for Reader {
    fn name(&self) -> String {
        format!("evener-read-{}", self.number)
    }

    fn bell(&self) -> &Bell {
        &self.bell
    }

    fn step(&self) -> Pace {
        let Some(worker) = self.worker.upgrade() else { return Pace::Idle };
        let (mut rows, mut events, mut marks) = {
            let mut queue = self.queue();
            let queue = &mut *queue;
            (first(&mut queue.rows), first(&mut queue.events), first(&mut queue.marks))
        };
        if rows.is_empty() && events.is_empty() && marks.is_empty() {
            return Pace::Idle;
        }
        if !rows.is_empty() {
            let (mut requests, ears): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
            let granted = worker.grant(requests.len());
            for request in &mut requests {
                request.event_bytes_max = request.event_bytes_max.min(granted);
            }
            match worker.store.rows(&requests) {
                Ok(answers) => {
                    for (answer, (purpose, ear)) in answers.into_iter().zip(ears) {
                        ear.tell(Heard::Rows(purpose, answer));
                    }
                }
                Err(error) => {
                    rows = requests.into_iter().zip(ears).collect();
                    let mut queue = self.queue();
                    queue.rows.splice(0..0, rows);
                    queue.events.splice(0..0, events);
                    queue.marks.splice(0..0, marks);
                    drop(queue);
                    return self.failed(&worker, "read rows", &error);
                }
            }
        }
        if !events.is_empty() {
            let seqs: Vec<Seq> = events.iter().map(|(seq, ..)| *seq).collect();
            match worker.store.events(&seqs) {
                Ok(found) => {
                    let found: HashMap<Seq, Arc<StoredEvent>> =
                        found.into_iter().map(|event| (event.seq, event)).collect();
                    for (seq, row, ear) in std::mem::take(&mut events) {
                        let event = found.get(&seq).cloned();
                        ear.tell(Heard::Fetched(row, event));
                    }
                }
                Err(error) => {
                    let mut queue = self.queue();
                    queue.events.splice(0..0, events);
                    queue.marks.splice(0..0, marks);
                    drop(queue);
                    return self.failed(&worker, "read events", &error);
                }
            }
        }
        if !marks.is_empty() {
            let wanted: Vec<_> =
                marks.iter().map(|(slot, id, epoch, rows, _)| (*slot, *id, *epoch, rows.clone())).collect();
            match worker.store.mark_careful(worker.ownership.boot(), &wanted) {
                Ok(were_ours) => {
                    for ((.., ear), was_ours) in std::mem::take(&mut marks).into_iter().zip(were_ours) {
                        ear.tell(Heard::Marked(was_ours));
                    }
                }
                Err(error) => {
                    self.queue().marks.splice(0..0, marks);
                    return self.failed(&worker, "mark what runs carefully", &error);
                }
            }
        }
        *self.tries.lock().unwrap_or_else(PoisonError::into_inner) = 0;
        Pace::Again
    }
}
