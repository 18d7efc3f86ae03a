//! Drains as processes of the scheduler.

use std::sync::Arc;
use std::time::Duration;

use evener_actor::context::Answer;
use evener_scheduler::{Actor, Context, Event, Handle, Scheduler, Tag, commands};

use crate::flow::dispatch::{Alarms, carry_out};
use crate::flow::drain::{Ask, Drain, Heard};
use crate::worker::{Ear, Hall, RuntimeWorker};

/// A hall in which each drain is a process.
pub struct ProcessHall {
    scheduler: Arc<Scheduler>,
}

impl ProcessHall {
    /// On that scheduler.
    #[must_use]
    pub fn new(scheduler: Arc<Scheduler>) -> Self {
        Self { scheduler }
    }
}

impl Hall for ProcessHall {
    fn open(&self, worker: &Arc<RuntimeWorker>, drain: Drain) -> Option<Arc<dyn Ear>> {
        let process = DrainProcess { worker: Arc::clone(worker), drain, ear: None, asks: Vec::new() };
        let handle = self.scheduler.spawn_actor(process).ok()?;
        Some(Arc::new(HandleEar(handle)))
    }

    fn sleep(&self, duration: Duration, answer: Answer<()>) {
        let task = async move {
            evener_scheduler::time::sleep(duration).await;
            answer.give(());
        };
        self.scheduler.spawn_task(task).detach();
    }
}

struct HandleEar(Handle<Heard>);

impl Ear for HandleEar {
    fn tell(&self, heard: Heard) {
        // Refused: the drain is over, and what comes late is harmless.
        let _ = self.0.tell(heard);
    }
}

struct DrainProcess {
    worker: Arc<RuntimeWorker>,
    drain: Drain,
    ear: Option<Arc<dyn Ear>>,
    asks: Vec<Ask>,
}

const TICK: Tag = Tag(1);

struct ProcessAlarms<'a, 'b> {
    cx: &'a mut Context<'b, Heard>,
    now: Duration,
    is_over: bool,
}

impl Alarms for ProcessAlarms<'_, '_> {
    fn arm(&mut self, at: Duration) {
        self.cx.command(TICK, commands::Sleep(at.saturating_sub(self.now)));
    }
    fn end(&mut self) {
        self.is_over = true;
    }
}

impl DrainProcess {
    fn act(&mut self, cx: &mut Context<'_, Heard>, now: Duration) {
        let ear = self.ear.get_or_insert_with(|| Arc::new(HandleEar(cx.me())));
        self.drain.act(now, &mut self.worker.seat(ear), &mut self.asks);
        let mut alarms = ProcessAlarms { cx, now, is_over: false };
        carry_out(&self.worker, &self.drain, ear, &mut self.asks, &mut alarms);
        if alarms.is_over {
            cx.stop();
        }
    }
}

impl Actor for DrainProcess {
    type Message = Heard;

    fn handle(&mut self, heard: Heard, cx: &mut Context<'_, Heard>) {
        let now = self.worker.clock.now();
        self.drain.hear(heard, now);
        self.act(cx, now);
    }

    fn event(&mut self, event: Event, cx: &mut Context<'_, Heard>) {
        if let Event::YieldComplete { tag: TICK, .. } = event {
            self.handle(Heard::Tick, cx);
        }
    }
}
