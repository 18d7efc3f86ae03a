//! FC-009: what counts waits stays exact, over any mix of the ways in which a wait ends.
//!
//! `EVENER_WAITS` says how many (400,000 by default). The full number:
//! `EVENER_WAITS=50000000 cargo test -p evener-scheduler --release --test it waits:: -- --nocapture`.

use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::task::Poll;
use std::time::{Duration, Instant};

use evener_scheduler::net::UnixStream;
use evener_scheduler::{Scheduler, task};

use crate::support::{LIMIT, Rng, from_env, quiet_panics, until};

/// Tasks that wait, each with a connection of its own.
const STATIONS: usize = 24;
/// How a wait ends.
const WAYS: [&str; 5] = ["data", "time-out", "close", "kill", "given up"];

#[derive(Default)]
struct Counts {
    left: AtomicI64,
    ways: [AtomicU64; 5],
    /// From the write to the end of the wait, in nanoseconds.
    longest: AtomicU64,
}

impl Counts {
    fn ended(&self, way: usize) {
        self.ways[way].fetch_add(1, SeqCst);
    }
}

/// Polls once: the wait is armed, or was not needed.
async fn arm<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    poll_fn(|cx| {
        Poll::Ready(match std::pin::Pin::new(&mut *future).poll(cx) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        })
    })
    .await
}

async fn station(counts: Arc<Counts>, seed: u64) {
    let mut rng = Rng::new(seed);
    let new_pair = || {
        let (one, other) = UnixStream::pair().unwrap();
        (Arc::new(one), other)
    };
    let (mut one, mut other) = new_pair();
    let mut buf = [0; 4];
    while counts.left.fetch_sub(1, SeqCst) > 0 {
        let has_limit = rng.below(2) == 0;
        one.set_read_limit(has_limit.then_some(LIMIT));
        match rng.below(32) {
            // By data, of which the poller tells.
            0..12 => {
                let mark = rng.next() as u8;
                {
                    let mut read = pin!(one.read(&mut buf));
                    assert!(arm(&mut read).await.is_none());
                    let began = Instant::now();
                    assert_eq!(other.try_write(&[mark]).unwrap(), 1);
                    assert_eq!(read.await.unwrap(), 1);
                    counts.longest.fetch_max(began.elapsed().as_nanos() as u64, SeqCst);
                }
                assert_eq!(buf[0], mark);
                counts.ended(0);
            }
            // By its limit.
            12..18 => {
                one.set_read_limit(Some(Duration::from_micros(rng.below(30))));
                assert_eq!(one.read(&mut buf).await.unwrap_err().kind(), ErrorKind::TimedOut);
                counts.ended(1);
            }
            // By whichever comes first.
            18..20 => {
                one.set_read_limit(Some(Duration::from_micros(rng.below(30))));
                let read = {
                    let mut read = pin!(one.read(&mut buf));
                    let armed = arm(&mut read).await;
                    assert_eq!(other.try_write(b"!").unwrap(), 1);
                    match armed {
                        Some(read) => read,
                        None => read.await,
                    }
                };
                match read {
                    Ok(len) => {
                        assert_eq!(len, 1);
                        counts.ended(0);
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::TimedOut);
                        counts.ended(1);
                        // The byte is still there.
                        one.set_read_limit(None);
                        assert_eq!(one.read(&mut buf).await.unwrap(), 1);
                    }
                }
            }
            // By the end of the stream, or of the socket that is waited for.
            20 => {
                if has_limit {
                    let mut read = pin!(one.read(&mut buf));
                    assert!(arm(&mut read).await.is_none());
                    drop(other);
                    assert_eq!(read.await.unwrap(), 0);
                } else {
                    let waits = Arc::clone(&one);
                    let reader = task::spawn(async move { waits.read(&mut [0; 4]).await });
                    task::yield_now().await;
                    one.shutdown(std::net::Shutdown::Both).unwrap();
                    assert_eq!(reader.await.unwrap().unwrap(), 0);
                }
                (one, other) = new_pair();
                counts.ended(2);
            }
            // With its task.
            21..26 => {
                let is_armed = Arc::new(AtomicBool::new(false));
                let (waits, armed) = (Arc::clone(&one), Arc::clone(&is_armed));
                let reader = task::spawn(async move {
                    let mut buf = [0; 4];
                    let mut read = pin!(waits.read(&mut buf));
                    assert!(arm(&mut read).await.is_none());
                    armed.store(true, SeqCst);
                    read.await
                });
                while !is_armed.load(SeqCst) {
                    task::yield_now().await;
                }
                reader.abort();
                assert!(reader.await.unwrap_err().is_aborted());
                counts.ended(3);
            }
            // By a drop of its future.
            _ => {
                let mut read = pin!(one.read(&mut buf));
                assert!(arm(&mut read).await.is_none());
                counts.ended(4);
            }
        }
        // A poll has a budget, beyond which nothing waits.
        task::yield_now().await;
    }
}

#[test]
fn the_counters_of_waits_are_exact() {
    quiet_panics();
    let waits = from_env("EVENER_WAITS", 400_000);
    let s = Scheduler::builder().workers(3).start().unwrap();
    let counts = Arc::new(Counts { left: AtomicI64::new(waits as i64), ..Counts::default() });
    let began = Instant::now();
    let stations: Vec<_> =
        (0..STATIONS).map(|seed| s.spawn_task(station(Arc::clone(&counts), seed as u64))).collect();
    let mut next_line = Duration::from_secs(10);
    let mut looks = 0;
    while !stations.iter().all(task::JoinHandle::is_finished) {
        // A station has one connection, for a moment two; one wait with one limit, for a moment two.
        let left = s.registrations();
        assert!(left.descriptors <= 4 * STATIONS, "{left:?}");
        assert!(left.socket_waiters <= 2 * STATIONS, "{left:?}");
        assert!(left.timers <= 2 * STATIONS, "{left:?}");
        looks += 1;
        if began.elapsed() >= next_line {
            println!("waits: {} of {waits} left, {left:?}", counts.left.load(SeqCst).max(0));
            next_line += Duration::from_secs(10);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    stations.into_iter().for_each(|station| station.wait(Some(LIMIT)).unwrap());
    until("nothing is left", || {
        let left = s.registrations();
        (left.descriptors, left.socket_waiters, left.timers) == (0, 0, 0)
    });
    let ways = counts.ways.each_ref().map(|way| way.load(SeqCst));
    assert_eq!(ways.iter().sum::<u64>(), waits);
    let ways: Vec<_> = WAYS.iter().zip(ways).map(|(way, count)| format!("{count} by {way}")).collect();
    let longest = Duration::from_nanos(counts.longest.load(SeqCst));
    println!("{waits} waits: {}; {looks} looks, data after at most {longest:?}", ways.join(", "));
}
