//! How cost grows with the number of processes, beside a plain pointer chase over as many bytes.

use std::sync::OnceLock;

use evener_scheduler::{Actor, Context, Handle, Scheduler};

use crate::common::{Latch, Msg, Out, now_ns};

/// Bytes of one idle process, which is what a message to it must touch.
const BYTES: usize = 64;

type Table = &'static OnceLock<Vec<Handle<Msg>>>;

/// Hands the token on to the next of a random cycle: its handle is its state.
struct Hop {
    next: u32,
    shared: &'static Shared,
}

struct Shared {
    table: Table,
    done: &'static Latch,
    ready: &'static Latch,
}

impl Actor for Hop {
    type Message = Msg;
    fn started(&mut self, _cx: &mut Context<'_, Msg>) {
        self.shared.ready.dec();
    }
    fn handle(&mut self, message: Msg, cx: &mut Context<'_, Msg>) {
        if message.val == 0 {
            self.shared.done.dec();
        } else {
            let next = self.shared.table.get().unwrap()[self.next as usize];
            cx.tell(next, Msg { val: message.val - 1, ..message }).unwrap();
        }
    }
}

/// One cycle through all of `0..count`, in random order (Sattolo's algorithm).
fn cycle(count: usize) -> Vec<u32> {
    let mut next: Vec<u32> = (0..count as u32).collect();
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    for index in (1..count).rev() {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        next.swap(index, (seed % index as u64) as usize);
    }
    next
}

#[repr(align(64))]
struct Line {
    next: u32,
}

fn chase(next: &[u32], hops: u64) -> f64 {
    const { assert!(size_of::<Line>() == BYTES) };
    let lines: Vec<Line> = next.iter().map(|&next| Line { next }).collect();
    let mut at = 0;
    let began = now_ns();
    for _ in 0..hops {
        at = std::hint::black_box(&lines)[at as usize].next;
    }
    std::hint::black_box(at);
    (now_ns() - began) as f64 / hops as f64
}

/// Prints one line for each number of processes; the last one is the result.
pub(crate) fn grow(scheduler: &Scheduler, hops: u64) -> Out {
    let mut last = None;
    for count in [10, 1_000, 100_000, 1_000_000] {
        let next = cycle(count);
        let chased = chase(&next, hops.min(5_000_000));
        let table: Table = Box::leak(Box::new(OnceLock::new()));
        let (ready, done) = (Latch::new(count), Latch::new(1));
        let shared: &'static Shared = Box::leak(Box::new(Shared { table, done, ready }));
        let handles = next.iter().map(|&next| scheduler.spawn_actor(Hop { next, shared }).unwrap()).collect();
        table.set(handles).unwrap();
        ready.wait();
        let began = now_ns();
        table.get().unwrap()[0].tell(Msg { kind: 0, from: 0, val: hops }).unwrap();
        done.wait();
        let message = (now_ns() - began) as f64 / hops as f64;

        // Spawning and ending one process after the other, with so many others alive.
        let spawned = Latch::new(1);
        let spawns = 200_000_u64;
        let began = now_ns();
        scheduler.spawn_actor(Chain { left: spawns, spawned }).unwrap();
        spawned.wait();
        let spawn = (now_ns() - began) as f64 / spawns as f64;

        let mut out = Out::new(hops, began);
        out.extra = format!(
            ",\"processes\":{count},\"message_ns\":{message:.1},\"spawn_ns\":{spawn:.1},\"chase_ns\":{chased:.1}"
        );
        if let Some(previous) = last.replace(out) {
            Out::print(&previous, "grow", 0);
        }
    }
    last.expect("there is a last one")
}

/// Each spawns the next and ends.
struct Chain {
    left: u64,
    spawned: &'static Latch,
}

impl Actor for Chain {
    type Message = ();
    fn started(&mut self, cx: &mut Context<'_, ()>) {
        if self.left == 0 {
            self.spawned.dec();
        } else {
            cx.spawn(Chain { left: self.left - 1, spawned: self.spawned }).unwrap();
        }
        cx.stop();
    }
    fn handle(&mut self, (): (), _cx: &mut Context<'_, ()>) {}
}
