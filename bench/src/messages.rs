//! Message passing: ping-pong, ring, fan-in, fan-out, big.

use std::sync::OnceLock;

use evener_scheduler::{Actor, Context, Handle, Scheduler};

use crate::common::{DATA, KICK, Latch, Msg, Out, PING, PONG, now_ns};

type Table = &'static OnceLock<Vec<Handle<Msg>>>;

fn table() -> Table {
    Box::leak(Box::new(OnceLock::new()))
}

/// Makes `count` actors, waits till each has started, publishes their handles.
pub(crate) fn build<A: Actor<Message = Msg>>(
    scheduler: &Scheduler,
    table: Table,
    count: usize,
    ready: &'static Latch,
    make: impl Fn(usize) -> A,
) -> &'static [Handle<Msg>] {
    let handles = (0..count).map(|index| scheduler.spawn_actor(make(index)).unwrap()).collect();
    table.set(handles).unwrap();
    ready.wait();
    std::thread::sleep(std::time::Duration::from_millis(20));
    table.get().unwrap()
}

fn kick(handle: Handle<Msg>, val: u64) {
    handle.tell(Msg { kind: KICK, from: 0, val }).unwrap();
}

struct Relay {
    next: usize,
    table: Table,
    ready: &'static Latch,
    done: &'static Latch,
}

impl Actor for Relay {
    type Message = Msg;
    fn started(&mut self, _cx: &mut Context<'_, Msg>) {
        self.ready.dec();
    }
    #[inline]
    fn handle(&mut self, message: Msg, cx: &mut Context<'_, Msg>) {
        if message.val == 0 {
            self.done.dec();
        } else {
            let next = self.table.get().unwrap()[self.next];
            cx.tell(next, Msg { kind: DATA, from: 0, val: message.val - 1 }).unwrap();
        }
    }
}

fn relay(scheduler: &Scheduler, count: usize, kicks: usize, each: u64, next: impl Fn(usize) -> usize) -> Out {
    let (ready, done, table) = (Latch::new(count), Latch::new(kicks), table());
    let handles =
        build(scheduler, table, count, ready, |index| Relay { next: next(index), table, ready, done });
    let began = now_ns();
    for index in 0..kicks {
        kick(handles[index * 2], each);
    }
    done.wait();
    Out::new(each * kicks as u64, began)
}

pub(crate) fn ping_pong(scheduler: &Scheduler, pairs: usize, total: u64) -> Out {
    relay(scheduler, 2 * pairs, pairs, total / pairs as u64, |index| index ^ 1)
}

pub(crate) fn ring(scheduler: &Scheduler, hops: u64) -> Out {
    relay(scheduler, 1000, 1, hops, |index| (index + 1) % 1000)
}

struct Fan {
    table: Table,
    ready: &'static Latch,
    done: &'static Latch,
    left: u64,
    send_each: u64,
    to: std::ops::Range<usize>,
}

impl Actor for Fan {
    type Message = Msg;
    fn started(&mut self, _cx: &mut Context<'_, Msg>) {
        self.ready.dec();
    }
    #[inline]
    fn handle(&mut self, message: Msg, cx: &mut Context<'_, Msg>) {
        if message.kind == KICK {
            let table = self.table.get().unwrap();
            for round in 0..self.send_each {
                for &to in &table[self.to.clone()] {
                    cx.tell(to, Msg { kind: DATA, from: 0, val: round }).unwrap();
                }
            }
        } else {
            self.left -= 1;
            if self.left == 0 {
                self.done.dec();
            }
        }
    }
}

pub(crate) fn fan_in(scheduler: &Scheduler, total: u64) -> Out {
    let each = total / 64;
    let total = each * 64;
    let (ready, done, table) = (Latch::new(65), Latch::new(1), table());
    let handles = build(scheduler, table, 65, ready, |_| Fan {
        table,
        ready,
        done,
        left: total,
        send_each: each,
        to: 0..1,
    });
    let began = now_ns();
    for &producer in &handles[1..] {
        kick(producer, 0);
    }
    done.wait();
    Out::new(total, began)
}

pub(crate) fn fan_out(scheduler: &Scheduler, each: u64) -> Out {
    let count = 10_000;
    let (ready, done, table) = (Latch::new(count + 1), Latch::new(count), table());
    let handles = build(scheduler, table, count + 1, ready, |_| Fan {
        table,
        ready,
        done,
        left: each,
        send_each: each,
        to: 1..count + 1,
    });
    let began = now_ns();
    kick(handles[0], 0);
    done.wait();
    Out::new(each * count as u64, began)
}

struct Big {
    table: Table,
    ready: &'static Latch,
    done: &'static Latch,
    id: u32,
    seed: u64,
    left: u64,
}

impl Big {
    #[inline]
    fn ping(&mut self, cx: &mut Context<'_, Msg>) {
        let table = self.table.get().unwrap();
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let mut to = (self.seed % (table.len() as u64 - 1)) as usize;
        if to >= self.id as usize {
            to += 1;
        }
        cx.tell(table[to], Msg { kind: PING, from: self.id, val: 0 }).unwrap();
    }
}

impl Actor for Big {
    type Message = Msg;
    fn started(&mut self, _cx: &mut Context<'_, Msg>) {
        self.ready.dec();
    }
    fn handle(&mut self, message: Msg, cx: &mut Context<'_, Msg>) {
        match message.kind {
            KICK => self.ping(cx),
            PING => {
                let to = self.table.get().unwrap()[message.from as usize];
                cx.tell(to, Msg { kind: PONG, from: self.id, val: 0 }).unwrap();
            }
            _ => {
                self.left -= 1;
                if self.left == 0 {
                    self.done.dec();
                } else {
                    self.ping(cx);
                }
            }
        }
    }
}

pub(crate) fn big(scheduler: &Scheduler, each: u64) -> Out {
    let count = 1000;
    let (ready, done, table) = (Latch::new(count), Latch::new(count), table());
    let handles = build(scheduler, table, count, ready, |index| Big {
        table,
        ready,
        done,
        id: index as u32,
        seed: (index as u64 + 1) * 0x9E37_79B9_7F4A_7C15,
        left: each,
    });
    let began = now_ns();
    for &handle in handles {
        kick(handle, 0);
    }
    done.wait();
    Out::new(each * count as u64 * 2, began)
}
