//! What an idle process costs.

use std::sync::Mutex;

use evener_scheduler::{Actor, Context, Handle, Scheduler};

use crate::common::{Latch, Msg, Out, now_ns, status_kb};

struct Idle {
    ready: &'static Latch,
}

impl Actor for Idle {
    type Message = Msg;
    fn started(&mut self, _cx: &mut Context<'_, Msg>) {
        self.ready.dec();
    }
    fn handle(&mut self, _message: Msg, _cx: &mut Context<'_, Msg>) {}
}

/// Spawns the processes from within and keeps their handles.
struct Spawner {
    n: u64,
    ready: &'static Latch,
    keep: &'static Mutex<Vec<Handle<Msg>>>,
}

impl Actor for Spawner {
    type Message = Msg;
    fn started(&mut self, cx: &mut Context<'_, Msg>) {
        let mut handles = Vec::with_capacity(self.n as usize);
        for _ in 0..self.n {
            handles.push(cx.spawn(Idle { ready: self.ready }).unwrap());
        }
        *self.keep.lock().unwrap() = handles;
    }
    fn handle(&mut self, _message: Msg, _cx: &mut Context<'_, Msg>) {}
}

pub(crate) fn idle(scheduler: &Scheduler, n: u64) -> Out {
    let ready = Latch::new(n as usize);
    let keep: &'static Mutex<Vec<_>> = Box::leak(Box::new(Mutex::new(Vec::new())));
    let before = status_kb("VmRSS");
    let began = now_ns();
    scheduler.spawn_actor(Spawner { n, ready, keep }).unwrap();
    ready.wait();
    let mut out = Out::new(n, began);
    while keep.lock().unwrap().len() < n as usize {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    let after = status_kb("VmRSS");
    out.extra = format!(",\"bytes_per_proc\":{:.1}", (after - before) as f64 * 1024.0 / n as f64);
    out
}
