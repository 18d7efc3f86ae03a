//! Actors in Rust, in the same program: each call is a task of the scheduler.

use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use evener_actor::actor::Actor;
use evener_actor::context::{Context, decode, panic_text, read};
use evener_actor::definition::ActorDefinition;
use evener_actor::executor::{Abort, Call, Done, Ended, Executor, Instance, Offer, SelectDone};
use evener_actor::id::{ActorName, QueueId};
use evener_actor::outcome::{CallError, Head, Outcome};
use evener_scheduler::Scheduler;

/// An actor without its type.
trait Erased: Send + Sync {
    fn start(self: Arc<Self>, scheduler: &Scheduler, call: Call, done: Done);
    fn select(&self, head: &Head, offers: &[Offer]) -> Result<Vec<QueueId>, CallError>;
}

struct Typed<A> {
    actor: A,
    timeout: Duration,
}

impl<A: Actor> Erased for Typed<A> {
    fn start(self: Arc<Self>, scheduler: &Scheduler, call: Call, done: Done) {
        scheduler.spawn_task(run(self, call, done)).detach();
    }

    fn select(&self, head: &Head, offers: &[Offer]) -> Result<Vec<QueueId>, CallError> {
        let state = read::<A::State>(head)?;
        Ok(self.actor.select(&state, offers)?)
    }
}

/// Runs actors written in Rust. A call that never waits never leaves its worker; one that waits holds no thread;
/// one that blocks or computes for long is noticed by the scheduler's monitor, and others go on beside it.
pub struct Native {
    scheduler: Arc<Scheduler>,
    actors: HashMap<ActorName, Arc<dyn Erased>>,
    definitions: Vec<ActorDefinition>,
}

impl std::fmt::Debug for Native {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Native").field("definitions", &self.definitions).finish_non_exhaustive()
    }
}

impl Native {
    /// With no actors yet.
    #[must_use]
    pub fn new(scheduler: Arc<Scheduler>) -> Self {
        Self { scheduler, actors: HashMap::new(), definitions: Vec::new() }
    }

    /// Runs that one, too.
    pub fn add<A: Actor>(&mut self, actor: A) {
        let definition = actor.definition();
        let timeout = definition.retry.timeout().unwrap_or_default();
        self.actors.insert(definition.name.clone(), Arc::new(Typed { actor, timeout }));
        self.definitions.push(definition);
    }
}

impl Executor for Native {
    fn definitions(&self) -> Vec<ActorDefinition> {
        self.definitions.clone()
    }

    fn start(&self, call: Call, done: Done) {
        match self.actors.get(&call.instance.definition.name) {
            Some(actor) => Arc::clone(actor).start(&self.scheduler, call, done),
            None => {
                let name = call.instance.definition.name.to_string();
                done.end(Ended::Failed(CallError::NoActor(name)));
            }
        }
    }

    fn select(&self, instance: &Arc<Instance>, head: Arc<Head>, offers: Vec<Offer>, done: SelectDone) {
        let Some(actor) = self.actors.get(&instance.definition.name) else {
            done(Err(format!("no actor `{}` is defined here", instance.definition.name)));
            return;
        };
        let actor = Arc::clone(actor);
        // A task of its own: what takes long holds up nobody but its instance.
        let task = async move {
            let chosen = catch_unwind(AssertUnwindSafe(|| actor.select(&head, &offers)));
            done(match chosen {
                Ok(Ok(ids)) => Ok(ids),
                Ok(Err(error)) => Err(error.to_string()),
                Err(panic) => Err(format!("panicked: {}", panic_text(&*panic))),
            });
        };
        self.scheduler.spawn_task(task).detach();
    }
}

/// One call, to its end. Should the task itself be dropped, `done` says that the call was lost.
async fn run<A: Actor>(typed: Arc<Typed<A>>, call: Call, done: Done) {
    let timeout = typed.timeout;
    let signal = Arc::clone(&call.signal);
    let ended = {
        let mut call = pin!(process(&typed.actor, call));
        std::future::poll_fn(|cx| {
            // A panic leaves the future as it is; it is dropped, and not polled again.
            match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx))) {
                Ok(Poll::Ready(ended)) => Poll::Ready(ended),
                Ok(Poll::Pending) => signal.poll_killed(cx).map(|()| {
                    Err(match signal.aborted() {
                        Some(Abort::TimedOut) => CallError::TimedOut(timeout),
                        Some(Abort::Fenced) => CallError::Failed("the instance has another owner".to_owned()),
                        Some(Abort::Stopping) | None => CallError::Failed("the worker stops".to_owned()),
                    })
                }),
                Err(panic) => Poll::Ready(Err(CallError::Panicked(panic_text(&*panic)))),
            }
        })
        .await
    };
    done.end(match ended {
        Ok(outcome) => Ended::Done(outcome),
        Err(error) => Ended::Failed(error),
    });
}

async fn process<A: Actor>(actor: &A, call: Call) -> Result<Outcome, CallError> {
    let data = &call.event.event.data;
    let event = decode::<A::Event>(if data.is_empty() { b"null" } else { data }, "the event's data")?;
    let mut cx = Context::new(call);
    actor.process(&mut cx, event).await?;
    cx.into_outcome()
}
