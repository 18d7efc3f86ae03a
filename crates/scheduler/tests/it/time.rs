//! Timers of futures: never early, all of them, cancelled for good, whatever the delay.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use evener_scheduler::time::{
    self, Elapsed, MissedTicks, interval, interval_at, sleep, sleep_until, timeout, timeout_at,
};
use evener_scheduler::{ProcessState, task};

use crate::support::{LIMIT, Rng, quiet_panics, recv, scheduler, state, until};

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[test]
fn no_sleep_is_early_on_workers_or_in_block_on() {
    let s = scheduler(2);
    let mut rng = Rng::new(1);
    let handles: Vec<_> = (0..2000)
        .map(|_| {
            let delay = Duration::from_nanos(rng.below(60_000_000));
            s.spawn_task(async move {
                let began = Instant::now();
                sleep(delay).await;
                assert!(began.elapsed() >= delay, "{:?} instead of {delay:?}", began.elapsed());
                let until = Instant::now() + delay / 2;
                sleep_until(until).await;
                assert!(Instant::now() >= until);
            })
        })
        .collect();
    for handle in handles {
        handle.wait(Some(LIMIT)).unwrap();
    }
    let lateness = s.stats().timer_lateness;
    assert!(lateness.count() > 3000, "{}", lateness.count());
    println!("late by {:?} at the median, {:?} at most", lateness.quantile(0.5), lateness.quantile(1.0));
    for _ in 0..20 {
        let began = Instant::now();
        s.block_on(sleep(ms(3)));
        assert!(began.elapsed() >= ms(3));
    }
    until("no timer is left", || s.stats().total().timers == 0);
}

/// FC-011 for futures.
#[test]
fn any_delay_is_accepted_and_huge_ones_never_end() {
    let s = scheduler(1);
    let (sender, receiver) = channel();
    let huge = [
        Duration::MAX,
        Duration::from_secs(u64::MAX / 10),
        Duration::from_millis(i64::MAX as u64),
        Duration::from_secs(8000 * 365 * 86_400),
    ];
    let sleepers: Vec<_> = huge
        .into_iter()
        .map(|delay| {
            let sender = sender.clone();
            s.spawn_task(async move {
                let nap = sleep(delay);
                let _ = format!("{nap:?} {:?}", nap.deadline());
                nap.await;
                sender.send("a huge one").unwrap();
            })
        })
        .collect();
    for past in [Duration::ZERO, ms(500)] {
        let sender = sender.clone();
        let moment = Instant::now().checked_sub(past).unwrap_or_else(Instant::now);
        s.spawn_task(async move {
            sleep_until(moment).await;
            sleep(Duration::ZERO).await;
            sender.send("past").unwrap();
        })
        .detach();
    }
    assert_eq!((recv(&receiver), recv(&receiver)), ("past", "past"));
    std::thread::sleep(ms(50));
    assert!(receiver.try_recv().is_err());
    assert!(sleepers.iter().all(|sleeper| !sleeper.is_finished()));
    s.block_on(async {
        assert_eq!(timeout(Duration::MAX, async { 1 }).await, Ok(1));
        assert_eq!(timeout(Duration::ZERO, async { 2 }).await, Ok(2), "what is ready is let through");
        assert_eq!(timeout(Duration::ZERO, pending::<()>()).await, Err(Elapsed));
        assert_eq!(timeout_at(Instant::now(), pending::<()>()).await, Err(Elapsed));
    });
    drop(sleepers);
}

#[test]
fn a_timeout_drops_the_future_and_takes_its_timer_away() {
    let s = scheduler(1);
    let result = s.spawn_task(async {
        let dropped = Arc::new(());
        let kept = Arc::clone(&dropped);
        let late = timeout(ms(5), async move {
            sleep(Duration::from_secs(3600)).await;
            drop(kept);
        })
        .await;
        let early = timeout(Duration::from_secs(3600), sleep(ms(1))).await;
        (late, early, Arc::strong_count(&dropped))
    });
    assert_eq!(result.wait(Some(LIMIT)).unwrap(), (Err(Elapsed), Ok(()), 1));
    assert_eq!(s.stats().total().timers, 0, "neither timer is left");
}

#[test]
fn a_sleep_may_be_reset_and_polled_by_another_task() {
    let s = scheduler(2);
    s.block_on(async {
        let mut nap = Box::pin(sleep(Duration::from_secs(3600)));
        assert!(timeout(ms(2), &mut nap).await.is_err());
        // Armed for this thread's waker; now a task waits for it.
        let began = Instant::now();
        nap.reset(Instant::now() + ms(10));
        task::spawn(nap).await.unwrap();
        assert!(began.elapsed() >= ms(10));
        let mut again = Box::pin(sleep(Duration::ZERO));
        again.as_mut().await;
        assert!(again.is_elapsed());
        again.reset(Instant::now() + ms(3));
        assert!(!again.is_elapsed());
        again.await;
    });
    assert_eq!(s.stats().total().timers, 0);
}

#[test]
fn an_interval_ticks_for_the_moments_it_promised() {
    let s = scheduler(1);
    s.block_on(async {
        let first = Instant::now() + ms(2);
        let mut ticks = interval_at(first, ms(3));
        for number in 0..10 {
            let due = ticks.tick().await;
            assert_eq!(due, first + number * ms(3));
            assert!(Instant::now() >= due);
        }
        let began = Instant::now();
        let mut ticks = interval(ms(50));
        let due = ticks.tick().await;
        assert!(due >= began && began.elapsed() < LIMIT, "the first comes at once");
        ticks.reset();
        let reset = Instant::now();
        ticks.tick().await;
        assert!(reset.elapsed() >= ms(49), "{:?}", reset.elapsed());
    });
}

#[test]
fn missed_ticks_come_as_the_policy_says() {
    let s = scheduler(1);
    let period = ms(10);
    s.block_on(async {
        for policy in [MissedTicks::Burst, MissedTicks::Delay, MissedTicks::Skip] {
            let first = Instant::now();
            let mut ticks = interval_at(first, period).missed_ticks(policy);
            ticks.tick().await;
            std::thread::sleep(ms(35));
            let resumed = Instant::now();
            let late = ticks.tick().await;
            assert_eq!(late, first + period, "{policy:?}");
            let next = ticks.tick().await;
            match policy {
                MissedTicks::Burst => assert_eq!(next, first + 2 * period),
                MissedTicks::Delay => assert!(next >= resumed + period, "{:?}", next - resumed),
                MissedTicks::Skip => {
                    assert!(next > resumed, "one of those missed");
                    assert_eq!((next - first).as_nanos() % period.as_nanos(), 0, "in step");
                }
            }
        }
    });
}

#[test]
#[should_panic(expected = "an interval's period must not be zero")]
fn an_interval_of_zero_is_refused() {
    let _ = interval(Duration::ZERO);
}

#[test]
fn a_million_timers_are_armed_and_cancelled() {
    const COUNT: usize = 1_000_000;
    let s = scheduler(2);
    let fired = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&fired);
    let handle = s.spawn_task(async move {
        let mut naps: Vec<_> = (0..COUNT)
            .map(|n| {
                Box::pin(sleep(Duration::from_secs(3600) + Duration::from_nanos((n * 7919 % COUNT) as u64)))
            })
            .collect();
        // One poll arms each.
        for nap in &mut naps {
            assert!(
                std::future::poll_fn(|cx| std::task::Poll::Ready(nap.as_mut().poll(cx).is_pending())).await
            );
        }
        let short = sleep(ms(20));
        let began = Instant::now();
        short.await;
        assert!(began.elapsed() >= ms(20));
        seen.fetch_add(1, SeqCst);
        naps
    });
    let naps = handle.wait(Some(LIMIT)).unwrap();
    assert_eq!((fired.load(SeqCst), s.stats().total().timers), (1, COUNT));
    // From another thread than armed them.
    drop(naps);
    assert_eq!(s.stats().total().timers, 0);
}

/// FC-010 for futures: every worker is busy with turns of 10 ms.
#[test]
fn sleeps_end_behind_long_turns() {
    let s = scheduler(2);
    let stop = Arc::new(AtomicBool::new(false));
    let hogs: Vec<_> = (0..2)
        .map(|_| {
            let stop = Arc::clone(&stop);
            s.spawn_task(async move {
                while !stop.load(SeqCst) {
                    let began = Instant::now();
                    while began.elapsed() < ms(10) {
                        std::hint::spin_loop();
                    }
                    task::yield_now().await;
                }
            })
        })
        .collect();
    let naps: Vec<_> = (0..1000)
        .map(|_| {
            s.spawn_task(async {
                let began = Instant::now();
                sleep(ms(5)).await;
                began.elapsed()
            })
        })
        .collect();
    let mut took: Vec<_> = naps.into_iter().map(|nap| nap.wait(Some(LIMIT)).unwrap()).collect();
    took.sort_unstable();
    println!("5 ms took {:?} at the median, {:?} at the 99th percentile", took[500], took[990]);
    assert!(took[0] >= ms(5));
    stop.store(true, SeqCst);
    for hog in hogs {
        hog.wait(Some(LIMIT)).unwrap();
    }
}

#[test]
fn timers_of_an_ended_host_are_gone_and_wake_their_futures() {
    struct Flag(Arc<AtomicUsize>);
    impl std::task::Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let woken = Arc::new(AtomicUsize::new(0));
    let flag = Arc::new(Flag(Arc::clone(&woken)));
    let waker = std::task::Waker::from(Arc::clone(&flag));
    let s = scheduler(1);
    let mut nap = Box::pin(time::sleep(Duration::from_secs(3600)));
    s.block_on(std::future::poll_fn(|_| {
        let mut cx = std::task::Context::from_waker(&waker);
        std::task::Poll::Ready(nap.as_mut().poll(&mut cx).is_pending())
    }));
    drop(waker);
    drop(s);
    until("the host is gone", || Arc::strong_count(&flag) == 2);
    // The sleep's own copy; then that goes too.
    drop(nap);
    assert_eq!((Arc::strong_count(&flag), woken.load(SeqCst)), (1, 1));
}

#[test]
fn a_sleep_that_another_sets_anew_keeps_who_waits_for_it() {
    let s = scheduler(2);
    let sleep = Arc::new(Mutex::new(time::sleep(LIMIT * 2)));
    let polled = Arc::clone(&sleep);
    let waits = s.spawn_task(poll_fn(move |cx| Pin::new(&mut *polled.lock().unwrap()).poll(cx)));
    let pid = waits.pid().unwrap();
    until("it waits", || state(&s, pid) == Some(ProcessState::Blocked));
    sleep.lock().unwrap().reset(Instant::now() + ms(10));
    waits.wait(Some(LIMIT)).unwrap();
}

#[test]
fn a_sleep_whose_scheduler_has_ended_says_so() {
    quiet_panics();
    let s = Arc::new(scheduler(1));
    let panics = |act: Box<dyn FnOnce() + Send>| {
        let payload = std::thread::spawn(act).join().expect_err("it panics");
        payload.downcast_ref::<&str>().copied().unwrap_or_default().to_owned()
    };
    // Under way when it ends.
    let (tell, told) = channel();
    let waiting = {
        let s = Arc::clone(&s);
        std::thread::spawn(move || {
            let sleep = time::sleep(LIMIT * 2);
            tell.send(()).unwrap();
            s.block_on(sleep);
        })
    };
    recv(&told);
    until("it is armed", || s.stats().workers.iter().map(|worker| worker.timers).sum::<usize>() == 1);
    s.shutdown(LIMIT);
    let text = waiting.join().expect_err("it panics");
    let text = *text.downcast_ref::<&str>().unwrap();
    assert!(text.contains("has ended"), "{text}");
    // Begun afterwards; and one that is over at once.
    let ended = Arc::clone(&s);
    let text = panics(Box::new(move || ended.block_on(time::sleep(ms(10)))));
    assert!(text.contains("has ended"), "{text}");
    s.block_on(time::sleep(Duration::ZERO));
}
