//! Tests with hooks that the crate alone has.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::task::{Wake, Waker};
use std::time::Duration;

use super::source::{self, Direction, READ, WRITE};
use super::{Poller, clock};
use crate::Scheduler;
use crate::net::UdpSocket;
use crate::sync::Relaxed;

const LIMIT: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn counter() -> (Arc<Count>, Waker) {
    let count = Arc::new(Count::default());
    (Arc::clone(&count), Waker::from(count))
}

#[allow(clippy::disallowed_methods, reason = "a pause between two looks at what the test waits for")]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = clock::now();
    while !done() {
        assert!(clock::now() - began < LIMIT, "waited too long: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn socket(s: &Scheduler) -> UdpSocket {
    s.block_on(UdpSocket::bind("127.0.0.1:0")).unwrap()
}

/// FC-012: a wake that is lost on the way to the poller.
#[test]
fn a_swallowed_ring_is_repaired() {
    // A spare worker would make up for it before the watchdog does.
    let s = Scheduler::builder().workers(1).spares(0).start().unwrap();
    let poller = s.engine.hub.poller;
    let _socket = socket(&s);
    for round in 1..=3 {
        until("it sleeps in the poller", || poller.post.sleeper().is_some());
        poller.counts.swallow.store(1, Relaxed);
        let (sender, receiver) = channel();
        let began = clock::now();
        s.spawn_once(move |_| sender.send(()).unwrap()).unwrap();
        receiver.recv_timeout(LIMIT).expect("the ring is made up for");
        println!("repaired after {:?}", clock::now() - began);
        // Where the worker was not asleep yet, or woke by itself, nothing was swallowed: then once more.
        if poller.counts.swallow.swap(0, Relaxed) == 0 {
            assert!(poller.stats().repairs > 0, "round {round}: {:?}", poller.stats());
            return;
        }
    }
    panic!("no ring was swallowed in three rounds");
}

#[test]
fn an_event_of_an_earlier_life_reaches_nobody() {
    let poller: &'static Poller = Box::leak(Box::new(Poller::new()));
    let mut wakers = Vec::new();
    let (first, old) = source::take(poller, 0, 0).unwrap();
    first.free(old);
    // Whoever takes it next: perhaps another test, then this is only the same as for a source in use.
    let (second, key) = source::take(poller, 0, 0).unwrap();
    let (count, waker) = counter();
    assert!(second.wait(Direction::Read, 0, &waker).is_some());
    source::deliver(old, READ, &mut wakers);
    assert!(wakers.is_empty());
    assert_eq!(second.look() & READ, 0);
    source::deliver(key, READ, &mut wakers);
    assert_eq!((wakers.len(), second.look() & READ), (1, READ));
    wakers.drain(..).for_each(Waker::wake);
    assert_eq!(count.0.load(SeqCst), 1);
    second.free(key);
    source::deliver(key, WRITE, &mut wakers);
    assert!(wakers.is_empty());
}

#[test]
fn readiness_that_came_after_the_look_is_not_cleared() {
    let poller: &'static Poller = Box::leak(Box::new(Poller::new()));
    let (source, key) = source::take(poller, 0, READ | WRITE).unwrap();
    let seen = source.look();
    source::deliver(key, READ, &mut Vec::new());
    source.clear(seen, Direction::Read);
    assert_eq!(source.look() & READ, READ);
    let seen = source.look();
    source.clear(seen, Direction::Write);
    // The other direction's clear does not hide this one's.
    source.clear(seen, Direction::Read);
    assert_eq!(source.look() & (READ | WRITE), 0);
    source.free(key);
}

#[test]
fn everybody_in_the_list_is_woken_and_who_left_is_not() {
    let poller: &'static Poller = Box::leak(Box::new(Poller::new()));
    let (source, key) = source::take(poller, 0, 0).unwrap();
    let waiters: Vec<_> = (0..100)
        .map(|_| {
            let (count, waker) = counter();
            (count, source.wait(Direction::Write, 0, &waker).unwrap(), waker)
        })
        .collect();
    // Again with the same waker: still one entry.
    for (_, number, waker) in &waiters {
        assert_eq!(source.wait(Direction::Write, *number, waker), Some(*number));
    }
    assert_eq!(source::waiting(poller), 100);
    for (_, number, _) in waiters.iter().step_by(3) {
        source.forget(Direction::Write, *number);
        source.forget(Direction::Write, *number);
    }
    let mut wakers = Vec::new();
    source::deliver(key, READ, &mut wakers);
    assert!(wakers.is_empty(), "the other direction");
    source::deliver(key, WRITE, &mut wakers);
    wakers.drain(..).for_each(Waker::wake);
    for (index, (count, number, _)) in waiters.iter().enumerate() {
        assert_eq!(count.0.load(SeqCst), usize::from(index % 3 != 0), "waiter {index}");
        source.forget(Direction::Write, *number);
    }
    assert_eq!(source::waiting(poller), 0);
    let (_, waker) = counter();
    assert_eq!(source.wait(Direction::Write, 0, &waker), None, "ready");
    source.free(key);
    for (count, _, waker) in waiters {
        drop(waker);
        assert_eq!(Arc::strong_count(&count), 1, "a waker was left behind");
    }
}
