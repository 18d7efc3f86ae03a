//! The same work done by futures: tasks, join handles and channels in place of processes and messages.

use std::pin::Pin;

use evener_scheduler::channel::{Receiver, Sender, unbounded};
use evener_scheduler::{Scheduler, task};

use crate::common::{DATA, Latch, Msg, Out, now_ns};

pub(crate) fn spawn(scheduler: &Scheduler, n: u64) -> Out {
    let done = Latch::new(n as usize);
    let began = now_ns();
    scheduler
        .spawn_task(async move {
            for _ in 0..n {
                task::spawn(async move { done.dec() }).detach();
            }
        })
        .detach();
    done.wait();
    Out::new(n, began)
}

fn sky(num: u64, size: u64) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        if size == 1 {
            return num;
        }
        let size = size / 10;
        let children: [_; 10] =
            std::array::from_fn(|index| task::spawn(sky(num + index as u64 * size, size)));
        let mut sum = 0;
        for child in children {
            sum += child.await.unwrap();
        }
        sum
    })
}

pub(crate) fn nested(scheduler: &Scheduler, n: u64) -> Out {
    let began = now_ns();
    let sum = scheduler.spawn_task(sky(0, n)).wait(None).unwrap();
    let all = std::iter::successors(Some(n), |level| Some(level / 10)).take_while(|level| *level >= 1).sum();
    let out = Out::new(all, began);
    assert_eq!(sum, n * (n - 1) / 2, "the tree's sum");
    out
}

pub(crate) fn yields(scheduler: &Scheduler, n: u64) -> Out {
    let done = Latch::new(1000);
    let began = now_ns();
    scheduler
        .spawn_task(async move {
            for _ in 0..1000 {
                task::spawn(async move {
                    for _ in 0..n {
                        task::yield_now().await;
                    }
                    done.dec();
                })
                .detach();
            }
        })
        .detach();
    done.wait();
    Out::new(1000 * n, began)
}

fn relay(scheduler: &Scheduler, count: usize, kicks: usize, each: u64, next: impl Fn(usize) -> usize) -> Out {
    let done = Latch::new(kicks);
    let (senders, receivers): (Vec<Sender<Msg>>, Vec<Receiver<Msg>>) =
        (0..count).map(|_| unbounded()).unzip();
    for (index, receiver) in receivers.into_iter().enumerate() {
        let next = senders[next(index)].clone();
        scheduler
            .spawn_task(async move {
                while let Ok(message) = receiver.recv().await {
                    if message.val == 0 {
                        done.dec();
                    } else if next.send(Msg { kind: DATA, from: 0, val: message.val - 1 }).await.is_err() {
                        return;
                    }
                }
            })
            .detach();
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    let began = now_ns();
    for index in 0..kicks {
        senders[index * 2].try_send(Msg { kind: DATA, from: 0, val: each }).unwrap();
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

pub(crate) fn fan_in(scheduler: &Scheduler, total: u64) -> Out {
    let each = total / 64;
    let (done, ready) = (Latch::new(1), Latch::new(65));
    let (sender, receiver) = unbounded::<Msg>();
    scheduler
        .spawn_task(async move {
            ready.dec();
            for _ in 0..64 * each {
                receiver.recv().await.unwrap();
            }
            done.dec();
        })
        .detach();
    let (start, started) = unbounded::<()>();
    for _ in 0..64 {
        let (sender, started) = (sender.clone(), started.clone());
        scheduler
            .spawn_task(async move {
                ready.dec();
                started.recv().await.unwrap();
                for val in 0..each {
                    sender.send(Msg { kind: DATA, from: 0, val }).await.unwrap();
                }
            })
            .detach();
    }
    ready.wait();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let began = now_ns();
    for _ in 0..64 {
        start.try_send(()).unwrap();
    }
    done.wait();
    Out::new(64 * each, began)
}
