//! Spawning and yielding.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use evener_scheduler::{
    Actor, Context, Events, Handle, Process, ProcessError, Scheduler, SpawnOptions, StepOutput,
};

use crate::common::{Latch, Out, now_ns};

pub(crate) fn spawn(scheduler: &Scheduler, n: u64) -> Out {
    let done = Latch::new(n as usize);
    let began = now_ns();
    scheduler
        .spawn_once(move |out| {
            for _ in 0..n {
                out.spawn_once(move |_| done.dec()).unwrap();
            }
        })
        .unwrap();
    done.wait();
    Out::new(n, began)
}

/// A parent of the tree: it spawns ten children and sums what they return.
struct Sky {
    parent: Option<Handle<u64>>,
    num: u64,
    size: u64,
    got: u32,
    sum: u64,
    result: &'static AtomicU64,
    done: &'static Latch,
}

impl Actor for Sky {
    type Message = u64;

    fn started(&mut self, cx: &mut Context<'_, u64>) {
        let size = self.size / 10;
        let me = cx.me();
        for index in 0..10 {
            let num = self.num + index * size;
            if size == 1 {
                cx.spawn_once(move |_| me.tell(num).unwrap()).unwrap();
            } else {
                let child = Sky { parent: Some(me), num, size, got: 0, sum: 0, ..*self };
                cx.spawn(child).unwrap();
            }
        }
    }

    fn handle(&mut self, returned: u64, cx: &mut Context<'_, u64>) {
        self.sum += returned;
        self.got += 1;
        if self.got == 10 {
            match self.parent {
                Some(parent) => cx.tell(parent, self.sum).unwrap(),
                None => {
                    self.result.store(self.sum, SeqCst);
                    self.done.dec();
                }
            }
            cx.stop();
        }
    }
}

pub(crate) fn nested(scheduler: &Scheduler, n: u64) -> Out {
    let done = Latch::new(1);
    let result: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
    let began = now_ns();
    scheduler.spawn_actor(Sky { parent: None, num: 0, size: n, got: 0, sum: 0, result, done }).unwrap();
    done.wait();
    let all = std::iter::successors(Some(n), |level| Some(level / 10)).take_while(|level| *level >= 1).sum();
    let out = Out::new(all, began);
    assert_eq!(result.load(SeqCst), n * (n - 1) / 2, "the tree's sum");
    out
}

struct Yielder {
    left: u64,
    done: &'static Latch,
}

impl Process for Yielder {
    fn step(&mut self, _events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        if self.left == 0 {
            self.done.dec();
            out.done(());
        } else {
            self.left -= 1;
            out.continue_soon();
        }
        Ok(())
    }
}

pub(crate) fn yields(scheduler: &Scheduler, n: u64) -> Out {
    let done = Latch::new(1000);
    let began = now_ns();
    scheduler
        .spawn_once(move |out| {
            for _ in 0..1000 {
                out.spawn(Yielder { left: n, done }, SpawnOptions::new()).unwrap();
            }
        })
        .unwrap();
    done.wait();
    Out::new(1000 * n, began)
}
