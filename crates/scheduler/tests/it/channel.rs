//! Channels: each value once, in order, to somebody; nobody waits in vain.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use evener_scheduler::channel::{Closed, Ended, TryRecvError, TrySendError, bounded, unbounded};
use evener_scheduler::{task, time};

use crate::support::{LIMIT, Rng, quiet_panics, scheduler, until};

#[test]
fn values_come_in_order_and_a_full_channel_holds_its_senders_back() {
    let s = scheduler(2);
    let (sender, receiver) = bounded(3);
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    let producer = s.spawn_task(async move {
        for n in 0..1000_u64 {
            sender.send(n).await.unwrap();
            count.fetch_add(1, SeqCst);
        }
    });
    until("it is full", || sent.load(SeqCst) == 3);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!((sent.load(SeqCst), receiver.len()), (3, 3));
    let got = s.block_on(async move {
        let mut got = Vec::new();
        while let Ok(n) = receiver.recv().await {
            got.push(n);
        }
        got
    });
    assert_eq!(got, (0..1000).collect::<Vec<_>>());
    producer.wait(Some(LIMIT)).unwrap();
}

#[test]
fn the_ends_are_told_and_values_come_back() {
    let s = scheduler(1);
    let (sender, receiver) = bounded(1);
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    sender.try_send(1).unwrap();
    assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
    let waiting = {
        let sender = sender.clone();
        s.spawn_task(async move { sender.send(3).await })
    };
    std::thread::sleep(Duration::from_millis(10));
    drop(receiver);
    assert_eq!(waiting.wait(Some(LIMIT)).unwrap(), Err(Closed(3)));
    assert!(sender.is_closed());
    assert_eq!(sender.try_send(4), Err(TrySendError::Closed(4)));
    let (sender, receiver) = unbounded();
    sender.try_send(5).unwrap();
    let waiting =
        s.spawn_task(async move { (receiver.recv().await, receiver.recv().await, receiver.try_recv()) });
    std::thread::sleep(Duration::from_millis(10));
    drop(sender);
    assert_eq!(waiting.wait(Some(LIMIT)).unwrap(), (Ok(5), Err(Ended), Err(TryRecvError::Ended)));
}

/// Many senders and receivers, who give up at random: nothing is lost, doubled or stuck.
#[test]
fn who_gives_up_passes_the_wake_on() {
    const EACH: u64 = 20_000;
    for capacity in [1, 4, usize::MAX] {
        let s = scheduler(2);
        let (sender, receiver) = if capacity == usize::MAX { unbounded() } else { bounded(capacity) };
        let (sum, count) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
        let given_up = Arc::new(AtomicUsize::new(0));
        let receivers: Vec<_> = (0..4)
            .map(|seed| {
                let (receiver, sum, count) = (receiver.clone(), Arc::clone(&sum), Arc::clone(&count));
                let given_up = Arc::clone(&given_up);
                s.spawn_task(async move {
                    let mut rng = Rng::new(seed);
                    loop {
                        let limit = Duration::from_micros(rng.below(200));
                        match time::timeout(limit, receiver.recv()).await {
                            Ok(Ok(n)) => {
                                sum.fetch_add(n, SeqCst);
                                count.fetch_add(1, SeqCst);
                            }
                            Ok(Err(Ended)) => return,
                            Err(_) => drop(given_up.fetch_add(1, SeqCst)),
                        }
                    }
                })
            })
            .collect();
        drop(receiver);
        let senders: Vec<_> = (0..3)
            .map(|seed| {
                let sender = sender.clone();
                s.spawn_task(async move {
                    let mut rng = Rng::new(100 + seed);
                    for n in 1..=EACH {
                        while time::timeout(Duration::from_micros(rng.below(100)), sender.send(n))
                            .await
                            .is_err()
                        {}
                        if rng.below(500) == 0 {
                            time::sleep(Duration::from_micros(300)).await;
                        }
                    }
                })
            })
            .collect();
        drop(sender);
        for handle in senders.into_iter().chain(receivers) {
            handle.wait(Some(LIMIT)).unwrap();
        }
        assert_eq!(count.load(SeqCst) as u64, 3 * EACH, "capacity {capacity}");
        assert_eq!(sum.load(SeqCst), 3 * EACH * (EACH + 1) / 2);
        println!("capacity {capacity}: {} waits given up", given_up.load(SeqCst));
    }
}

#[test]
fn an_always_full_channel_does_not_keep_others_from_running() {
    let s = scheduler(1);
    let (sender, receiver) = unbounded();
    (0..1_000_000).for_each(|n| sender.try_send(n).unwrap());
    let reader = s.spawn_task(async move { while receiver.recv().await.is_ok() {} });
    let other = s.spawn_task(async { task::yield_now().await });
    other.wait(Some(LIMIT)).unwrap();
    assert!(!reader.is_finished(), "it took everything in one poll");
    reader.abort();
    drop(sender);
}

fn poll_once<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// Whose wake is only counted.
struct Count(AtomicUsize);
impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn counted() -> (Arc<Count>, Waker) {
    let count = Arc::new(Count(AtomicUsize::new(0)));
    (Arc::clone(&count), Waker::from(count))
}

#[test]
fn room_is_kept_for_the_sender_that_was_woken() {
    let (sender, receiver) = bounded(1);
    let noop = Waker::noop();
    sender.try_send(0).unwrap();
    let mut first = pin!(sender.send(1));
    let mut second = Box::pin(sender.send(2));
    let mut third = pin!(sender.send(3));
    let ((woken_second, waker), (woken_third, last)) = (counted(), counted());
    assert!(poll_once(first.as_mut(), noop).is_pending());
    assert!(poll_once(second.as_mut(), &waker).is_pending());
    assert_eq!(receiver.try_recv(), Ok(0));
    // Woken, and not yet there: nobody takes its place.
    assert_eq!(sender.try_send(9), Err(TrySendError::Full(9)));
    assert!(poll_once(third.as_mut(), &last).is_pending());
    assert!(poll_once(first.as_mut(), noop).is_ready());
    assert_eq!(receiver.try_recv(), Ok(1));
    // Woken, and gone: the next one's.
    assert_eq!((woken_second.0.load(SeqCst), woken_third.0.load(SeqCst)), (1, 0));
    drop(second);
    assert_eq!(woken_third.0.load(SeqCst), 1);
    assert_eq!(sender.try_send(9), Err(TrySendError::Full(9)));
    assert!(poll_once(third.as_mut(), &last).is_ready());
    assert_eq!(receiver.try_recv(), Ok(3));
    sender.try_send(9).unwrap();
    // By the end of the channel all are woken, and may be dropped without being polled.
    let mut fourth = Box::pin(sender.send(4));
    assert!(poll_once(fourth.as_mut(), noop).is_pending());
    drop(receiver);
    drop(fourth);
    assert_eq!(sender.try_send(5), Err(TrySendError::Closed(5)));
}

#[test]
fn a_receiver_that_came_too_late_keeps_its_place() {
    let (sender, receiver) = unbounded();
    let ((first_woken, first_waker), (second_woken, second_waker)) = (counted(), counted());
    let (mut first, mut second) = (pin!(receiver.recv()), pin!(receiver.recv()));
    assert!(poll_once(first.as_mut(), &first_waker).is_pending());
    assert!(poll_once(second.as_mut(), &second_waker).is_pending());
    for n in 0..10 {
        sender.try_send(n).unwrap();
        assert_eq!((first_woken.0.load(SeqCst), second_woken.0.load(SeqCst)), (n + 1, 0));
        assert_eq!(receiver.try_recv(), Ok(n));
        assert!(poll_once(first.as_mut(), &first_waker).is_pending());
    }
    sender.try_send(10).unwrap();
    sender.try_send(11).unwrap();
    assert_eq!(poll_once(first.as_mut(), &first_waker), Poll::Ready(Ok(10)));
    assert_eq!(second_woken.0.load(SeqCst), 1);
    assert_eq!(poll_once(second.as_mut(), &second_waker), Poll::Ready(Ok(11)));
}

/// The budget is the scheduler's: another executor's tasks, which it never renews, have none.
#[test]
fn outside_of_a_scheduler_there_is_no_budget() {
    let (sender, receiver) = unbounded();
    let mut all = pin!(async {
        let mut sum = 0;
        for n in 0..10_000_u64 {
            sender.send(n).await.unwrap();
            sum += receiver.recv().await.unwrap();
        }
        sum
    });
    assert_eq!(poll_once(all.as_mut(), Waker::noop()), Poll::Ready(9999 * 10_000 / 2));
    // Nor within a step that polls by itself, nor after a poll of ours; within one there is.
    let s = scheduler(1);
    let (sender, receiver) = unbounded();
    (0..1000).for_each(|n| sender.try_send(n).unwrap());
    let poll_all = move || {
        let mut all = pin!(async { while receiver.try_recv().is_ok() || receiver.recv().await.is_ok() {} });
        poll_once(all.as_mut(), Waker::noop()).is_pending()
    };
    s.block_on(async { task::yield_now().await });
    let (tell, told) = std::sync::mpsc::channel();
    s.spawn_once(move |_| tell.send(poll_all()).unwrap()).unwrap();
    assert!(crate::support::recv(&told), "it waits for more");
    assert!(sender.is_empty());
    // A panic in a poll of ours leaves none behind; a `block_on` within another takes nothing from it.
    quiet_panics();
    let (sender, receiver) = unbounded();
    (0..1000).for_each(|n| sender.try_send(n).unwrap());
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        s.block_on(async { panic!("on purpose") });
    }));
    assert!(panics.is_err());
    let mut some = pin!(async {
        for _ in 0..500 {
            receiver.recv().await.unwrap();
        }
    });
    assert!(poll_once(some.as_mut(), Waker::noop()).is_ready(), "without a budget");
    let mut turns = 0;
    let outer = s.block_on(poll_fn(|cx| {
        turns += 1;
        s.block_on(async {});
        let mut taken = 0;
        while taken < 500 && Pin::new(&mut receiver.recv()).poll(cx).is_ready() {
            taken += 1;
        }
        Poll::Ready(taken)
    }));
    assert_eq!((outer, turns), (128, 1), "the budget of the outer poll");
}
