//! Calls of actors: real contexts, driven one poll at a time by the world.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, Wake};
use std::time::Duration;

use evener_actor::context::Context;
use evener_actor::definition::ActorDefinition;
use evener_actor::event::Event;
use evener_actor::executor::{Abort, Call, Done, Ended, Executor, Instance, Offer, SelectDone, Signal};
use evener_actor::outcome::{CallError, Head};

use crate::faults::REFUSED;
use crate::invariants::{Begun, body};
use crate::workload::{Body, Effects, Follower, Manner, Use, Way};
use crate::world::{Time, World};

/// How a call's future ends; `None`: the executor lets go of it.
type End = Option<Ended>;

/// A call under way.
pub(crate) struct Running {
    pub(crate) begun: Begun,
    /// Taken while it is polled.
    pub(crate) future: Option<Pin<Box<dyn Future<Output = End> + Send>>>,
    pub(crate) done: Option<Done>,
    pub(crate) signal: Arc<Signal>,
    pub(crate) alarm: Arc<CallAlarm>,
    pub(crate) timeout: Duration,
}

/// Wakes a call: by its own time, or because somebody answered.
pub(crate) struct CallAlarm {
    is_ready: AtomicBool,
    due_us: AtomicU64,
    time: Time,
}

impl CallAlarm {
    pub(crate) fn due(&self) -> Option<Duration> {
        let due = self.due_us.load(Ordering::Relaxed);
        (due < u64::MAX).then(|| Duration::from_micros(due))
    }

    pub(crate) fn is_ready(&self, now: Duration) -> bool {
        self.is_ready.load(Ordering::Relaxed) || self.due().is_some_and(|due| due <= now)
    }

    pub(crate) fn begin_poll(&self) {
        self.is_ready.store(false, Ordering::Relaxed);
    }

    /// Passes in the world's time.
    async fn pause(&self, how_long: Duration) {
        let until = self.time.now() + how_long;
        std::future::poll_fn(|_| {
            if self.time.now() >= until {
                self.due_us.store(u64::MAX, Ordering::Relaxed);
                return Poll::Ready(());
            }
            self.due_us.store(until.as_micros() as u64, Ordering::Relaxed);
            Poll::Pending
        })
        .await;
    }

    /// Lets others go first.
    async fn give_way(&self) {
        let mut has_waited = false;
        std::future::poll_fn(|_| {
            if std::mem::replace(&mut has_waited, true) {
                return Poll::Ready(());
            }
            self.is_ready.store(true, Ordering::Relaxed);
            Poll::Pending
        })
        .await;
    }
}

impl Wake for CallAlarm {
    fn wake(self: Arc<Self>) {
        self.is_ready.store(true, Ordering::Relaxed);
    }
}

/// The executor of one life.
pub(crate) struct SimExecutor {
    pub(crate) world: Weak<World>,
    pub(crate) life: u64,
    pub(crate) definitions: Vec<ActorDefinition>,
}

impl Executor for SimExecutor {
    fn definitions(&self) -> Vec<ActorDefinition> {
        self.definitions.clone()
    }

    fn start(&self, call: Call, done: Done) {
        let Some(world) = self.world.upgrade() else { return };
        let alarm = Arc::new(CallAlarm {
            is_ready: AtomicBool::new(true),
            due_us: AtomicU64::new(u64::MAX),
            time: world.time.clone(),
        });
        let signal = Arc::clone(&call.signal);
        let timeout = call.instance.definition.retry.timeout().unwrap_or_default();
        let nonce = body(&call.event.event).map_or(0, |body| body.n);
        let (number, manner) = world.call_number(nonce, call.attempt, !timeout.is_zero());
        let epoch = world.acting();
        let begun = Begun {
            call: number,
            instance: call.instance.id,
            epoch,
            origin: evener_actor::id::QueueId(call.origin),
            nonce,
            attempt: call.attempt,
            life: self.life,
        };
        let future = Box::pin(run(Arc::downgrade(&world), begun, call, manner, Arc::clone(&alarm)));
        let running = Running { begun, future: Some(future), done: Some(done), signal, alarm, timeout };
        world.call_started(running);
    }

    fn select(&self, _: &Arc<Instance>, _: Arc<Head>, offers: Vec<Offer>, done: SelectDone) {
        if let Some(world) = self.world.upgrade() {
            done(world.select(&offers));
        }
    }
}

async fn run(world: Weak<World>, begun: Begun, call: Call, manner: Manner, alarm: Arc<CallAlarm>) -> End {
    Some(match process(world, begun, call, &manner, &alarm).await {
        Ok(Some(outcome)) => Ended::Done(outcome),
        Ok(None) => return None,
        Err(error) => Ended::Failed(error),
    })
}

/// `Ok(None)`: lost.
async fn process(
    world: Weak<World>,
    begun: Begun,
    call: Call,
    manner: &Manner,
    alarm: &CallAlarm,
) -> Result<Option<evener_actor::outcome::Outcome>, CallError> {
    let world = || world.upgrade().ok_or(CallError::Lost);
    let Some(body) = body(&call.event.event) else { return Ok(None) };
    let actor: usize =
        call.instance.definition.name.as_str().trim_start_matches("actor-").parse().expect("a number");
    let effects = Effects::of(&world()?.setup, actor, body.n, body.c);
    let mut cx = Context::<Vec<u64>>::new(call);
    alarm.give_way().await;
    alarm.pause(manner.before).await;
    if manner.settles_first {
        let stands_on = cx.peek()?;
        cx.settled().await?;
        world()?.call_settled(&begun, &stands_on);
    }
    let nonce = body.n;
    let mut stands_on = None;
    let mut seen = None;
    match effects.uses {
        Use::Untouched => {}
        Use::Peek => {
            cx.peek()?;
        }
        Use::Look => {
            stands_on = Some(cx.state()?.clone());
            seen = Some(cx.state()?.len() as u64);
        }
        Use::Update => {
            stands_on = Some(cx.peek()?);
            cx.update(move |applied| applied.push(nonce))?;
        }
        Use::ReadAndUpdate => {
            stands_on = Some(cx.state()?.clone());
            seen = Some(cx.state()?.len() as u64);
            cx.update(move |applied| applied.push(nonce))?;
        }
    }
    alarm.give_way().await;
    alarm.pause(manner.middle).await;
    if manner.heeds_abort
        && let Some(abort) = cx.aborted()
    {
        return Err(CallError::Failed(format!("told to end: {abort:?}")));
    }
    let event = |follower: &Follower, kind: &str| {
        let body = Body {
            n: follower.nonce,
            k: Some(follower.key.clone()),
            g: follower.group.clone(),
            c: follower.chain,
            seen,
        };
        Event::json(kind, &body).map_err(|error| CallError::Failed(error.to_string()))
    };
    for follower in &effects.emits {
        cx.emit(follower.stream.parse().expect("a name"), event(follower, "follows")?);
    }
    for (actor, follower) in &effects.sends {
        let group = follower.group.as_ref().map(|group| group.parse().expect("a name"));
        let key = follower.key.parse().expect("a name");
        let to = world()?.setup.actors[*actor].name.clone();
        cx.send_in(to, key, event(follower, "follows")?, group, 0);
    }
    if manner.settles_last {
        cx.settled().await?;
        if let Some(stands_on) = &stands_on {
            world()?.call_settled(&begun, stands_on);
        }
    }
    if manner.sleeps {
        cx.sleep(manner.after).await;
    } else {
        alarm.pause(manner.after).await;
    }
    match manner.end {
        Way::Through => {}
        Way::Fails => return Err(CallError::Failed("it should".to_owned())),
        Way::Panics => return Err(CallError::Panicked("it should".to_owned())),
        Way::Lost => return Ok(None),
        Way::Hangs => {
            if manner.heeds_abort {
                let abort = cx.until_aborted().await;
                return Err(CallError::Failed(format!("told to end: {abort:?}")));
            }
            std::future::pending::<()>().await;
        }
        Way::Refused => cx.emit("orders".parse().expect("a name"), Event::new(REFUSED, "{\"n\":0,\"c\":0}")),
        Way::NoActor => {
            let key = "nobody".parse().expect("a name");
            cx.send("nobody".parse().expect("a name"), key, Event::new("t", "{\"n\":0,\"c\":0}"));
        }
    }
    cx.into_outcome().map(Some)
}

impl Running {
    /// One poll; `Some`: it is over.
    pub(crate) fn poll(
        future: &mut Pin<Box<dyn Future<Output = End> + Send>>,
        alarm: &Arc<CallAlarm>,
        signal: &Signal,
        timeout: Duration,
    ) -> Option<End> {
        alarm.begin_poll();
        let waker = Arc::clone(alarm).into();
        let mut cx = std::task::Context::from_waker(&waker);
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(end) => Some(end),
            Poll::Pending if signal.is_killed() => Some(Some(Ended::Failed(match signal.aborted() {
                Some(Abort::TimedOut) => CallError::TimedOut(timeout),
                _ => CallError::Failed("killed".to_owned()),
            }))),
            Poll::Pending => {
                // Registered, so that an abort or a kill makes it ready again.
                let _ = signal.poll_killed(&cx);
                let _ = signal.poll_aborted(&cx);
                None
            }
        }
    }
}
