//! Channels: each value once, in order, to somebody; nobody waits in vain.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use evener_scheduler::channel::{Closed, Ended, TryRecvError, TrySendError, bounded, unbounded};
use evener_scheduler::{task, time};

use crate::support::{LIMIT, Rng, scheduler, until};

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
