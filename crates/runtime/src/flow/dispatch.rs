//! Carries out what drains ask for: calls go to executors, outcomes to lanes, wishes to readers.

use std::sync::Arc;
use std::time::Duration;

use evener_actor::context::Request;
use evener_actor::executor::{Call, Done, Ended, Instance, Port};

use crate::flow::drain::{Ask, Drain, Heard, Start};
use crate::worker::{Ear, RuntimeWorker};

/// What a drain asks of whoever runs it.
pub trait Alarms {
    /// The drain hears [`Heard::Tick`] at that time of the clock.
    fn arm(&mut self, at: Duration);
    /// It is over: the drain's place is free.
    fn end(&mut self);
}

/// Carries out all that a drain asked for.
pub fn carry_out(
    worker: &Arc<RuntimeWorker>,
    drain: &Drain,
    ear: &Arc<dyn Ear>,
    asks: &mut Vec<Ask>,
    alarms: &mut dyn Alarms,
) {
    for ask in asks.drain(..) {
        match ask {
            Ask::Read(purpose, request) => {
                worker.reader(drain.slot()).read(purpose, request, Arc::clone(ear));
            }
            Ask::Select(offers) => {
                let ear = Arc::clone(ear);
                let done = Box::new(move |result| ear.tell(Heard::Selected(result)));
                match worker.executor(&drain.instance().definition.name) {
                    Some(executor) => executor.select(drain.instance(), drain.head().load(), offers, done),
                    None => done(Err("its actor is not run here".to_owned())),
                }
            }
            Ask::Fetch(row, seq) => worker.reader(drain.slot()).fetch(seq, row, Arc::clone(ear)),
            Ask::Mark(rows) => worker.reader(drain.slot()).mark(
                drain.slot(),
                drain.instance().id,
                drain.epoch(),
                rows,
                Arc::clone(ear),
            ),
            Ask::Start(start) => call(worker, drain, ear, start),
            Ask::Replay(number, mut replay, head) => {
                let ear = Arc::clone(ear);
                replay.replay(head, Box::new(move |result| ear.tell(Heard::Replayed(number, result))));
            }
            Ask::Commit(handed) => {
                worker.outcome_came(handed.bytes);
                worker.commit_lane(drain.slot()).push(handed, Arc::clone(ear));
            }
            Ask::Arm(at) => alarms.arm(at),
            Ask::Left(how) => {
                worker.commit_lane(drain.slot()).forget(drain.instance().id, drain.epoch());
                worker.gate.forget(ear);
                worker.activation.left(drain.slot(), drain.instance().id, drain.epoch(), how);
                alarms.end();
            }
        }
    }
}

fn call(worker: &Arc<RuntimeWorker>, drain: &Drain, ear: &Arc<dyn Ear>, start: Start) {
    let number = start.call;
    let instance = drain.instance();
    let done = {
        let (worker, ear) = (Arc::clone(worker), Arc::clone(ear));
        let was_suspect = start.is_suspect;
        Done::new(move |ended| {
            worker.gate.leave(was_suspect);
            worker.metrics.called(matches!(ended, Ended::Failed(_)));
            ear.tell(Heard::Ended(number, ended));
        })
    };
    let Some(executor) = worker.executor(&instance.definition.name) else {
        let name = instance.definition.name.to_string();
        done.end(Ended::Failed(evener_actor::outcome::CallError::NoActor(name)));
        return;
    };
    let port = CallPort {
        worker: Arc::clone(worker),
        ear: Arc::clone(ear),
        call: number,
        instance: Arc::clone(instance),
        event: Arc::clone(&start.event.event.id),
    };
    let call = Call {
        instance: Arc::clone(instance),
        stream: start.stream.and_then(|stream| worker.router.known_stream(stream)),
        event: start.event,
        attempt: start.attempt,
        origin: start.origin.0,
        head: Arc::clone(drain.head()),
        signal: start.signal,
        port: Arc::new(port),
    };
    executor.start(call, done);
}

/// Takes what a running call asks for.
struct CallPort {
    worker: Arc<RuntimeWorker>,
    ear: Arc<dyn Ear>,
    call: u64,
    instance: Arc<Instance>,
    event: Arc<str>,
}

impl Port for CallPort {
    fn request(&self, request: Request) {
        match request {
            Request::Settled(answer) => self.ear.tell(Heard::Settled(self.call, answer)),
            Request::Sleep(duration, answer) => self.worker.sleep(duration, answer),
            Request::Log(level, text) => {
                let (actor, key, event) = (&self.instance.definition.name, &self.instance.key, &self.event);
                use evener_actor::context::Level;
                match level {
                    Level::Debug => tracing::debug!(%actor, %key, %event, "{text}"),
                    Level::Info => tracing::info!(%actor, %key, %event, "{text}"),
                    Level::Warn => tracing::warn!(%actor, %key, %event, "{text}"),
                    Level::Error => tracing::error!(%actor, %key, %event, "{text}"),
                }
            }
        }
    }
}
