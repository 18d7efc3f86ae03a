//! Futures as processes: what a handle tells, what a waker reaches, who is polled where and how long.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use evener_scheduler::task::{self, JoinError};
use evener_scheduler::{
    AskError, Event, ExitReason, LifecycleHooks, Payload, Pid, ProcessState, Reply, Runtime, Scheduler,
    SpawnError, SpawnOptions, task_local, time,
};

use crate::support::{LIMIT, on_a_worker, quiet_panics, recv, scheduler, state, still_works, until};

const SOON: Duration = Duration::from_millis(30);

/// Tells when and where it is dropped.
struct Dropped(std::sync::mpsc::Sender<bool>);
impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send(on_a_worker());
    }
}

// ------------------------------------------------------------------ results

#[test]
fn a_handle_gives_the_result_to_a_thread_and_to_a_future() {
    let s = scheduler(2);
    assert_eq!(s.spawn_task(async { 6 * 7 }).wait(None).unwrap(), 42);
    let sum = s.block_on(async {
        let handles: Vec<_> = (0..1000_u64)
            .map(|n| {
                task::spawn(async move {
                    if n % 3 == 0 {
                        task::yield_now().await;
                    }
                    n
                })
            })
            .collect();
        let mut sum = 0;
        for handle in handles {
            sum += handle.await.unwrap();
        }
        sum
    });
    assert_eq!(sum, 499_500);
    until("all have ended", || s.list_processes().is_empty());
    let stats = s.stats();
    assert_eq!((stats.spawned_outside, stats.total().ended), (1001, 1001));
}

#[test]
fn a_task_is_a_process_with_a_pid_a_name_and_a_state() {
    let s = scheduler(1);
    let handle = s.spawn_task_with(
        async {
            let pid = task::id().unwrap();
            pending::<()>().await;
            pid
        },
        SpawnOptions::new().name("sleeper"),
    );
    let pid = handle.pid().unwrap();
    assert_eq!(s.lookup("sleeper"), Some(pid));
    until("it waits", || state(&s, pid) == Some(ProcessState::Blocked));
    assert!(!handle.is_finished());
    handle.abort();
    assert!(matches!(handle.wait(Some(LIMIT)), Err(JoinError::Aborted)));
    until("the name is free", || s.lookup("sleeper").is_none());
    let told = s.spawn_task(async { task::id() });
    let pid = told.pid();
    assert_eq!(told.wait(None).unwrap(), pid);
    assert_eq!(task::id(), None);
    assert_eq!(s.block_on(async { task::id() }), None, "what block_on polls is no process");
}

#[test]
fn a_panic_reaches_the_handle_with_its_payload_and_hooks_as_a_reason() {
    struct Reasons(Arc<Mutex<Vec<String>>>);
    impl LifecycleHooks for Reasons {
        fn on_complete(&self, _: Pid, reason: &ExitReason, _: Option<&Payload>) {
            self.0.lock().unwrap().push(reason.to_string());
        }
    }
    quiet_panics();
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let s = Scheduler::builder().workers(1).hooks(Reasons(Arc::clone(&reasons))).start().unwrap();
    let five = std::hint::black_box(5);
    let error =
        s.spawn_task(async move { panic!("on purpose at {five}") }).wait(None).map(|(): ()| ()).unwrap_err();
    assert!(error.is_panic() && !error.is_aborted());
    assert_eq!(error.to_string(), "the task panicked: on purpose at 5");
    assert_eq!(*error.try_into_panic().unwrap().downcast::<String>().unwrap(), "on purpose at 5");
    let other = s.spawn_task(async { std::panic::panic_any(7_u8) }).wait(None).map(|(): ()| ()).unwrap_err();
    assert_eq!(*other.try_into_panic().unwrap().downcast::<u8>().unwrap(), 7);
    until("both have ended", || reasons.lock().unwrap().len() == 2);
    assert!(reasons.lock().unwrap()[0].contains("at 5"), "{reasons:?}");
    assert_eq!(s.stats().total().panics, 2);
    still_works(&s, 20);
}

#[test]
fn a_panic_in_the_drop_of_a_future_or_a_result_is_contained() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("drop on purpose");
            }
        }
    }
    quiet_panics();
    let s = scheduler(1);
    let bad = Bad;
    // The future's drop, after its end and after an abort.
    let ended = s.spawn_task(poll_fn(move |_| {
        let _ = &bad;
        Poll::Ready(1)
    }));
    assert!(matches!(ended.wait(Some(LIMIT)), Err(error) if error.is_panic()));
    let bad = Bad;
    let aborted = s.spawn_task(async move {
        let _bad = bad;
        pending::<()>().await;
    });
    aborted.abort();
    assert!(aborted.wait(Some(LIMIT)).is_err());
    // The result's, with nobody there to take it.
    s.spawn_task(async { Bad }).detach();
    until("all have ended", || s.list_processes().is_empty());
    still_works(&s, 20);
}

#[test]
fn what_cannot_be_spawned_says_so_and_drops_the_future() {
    let s = scheduler(1);
    s.shutdown(LIMIT);
    let (sender, receiver) = channel();
    let kept = Dropped(sender);
    let refused = s.spawn_task(async move { drop(kept) });
    assert!(!recv(&receiver));
    assert!(refused.is_finished() && refused.pid().is_none());
    assert!(matches!(refused.wait(None), Err(JoinError::NotSpawned(SpawnError::Closing))));
    let s = Scheduler::builder().workers(1).processes_max(1).start().unwrap();
    let one = s.spawn_task(pending::<()>());
    let two = s.spawn_task(async {});
    assert!(matches!(two.wait(None), Err(JoinError::NotSpawned(SpawnError::HostFull { .. }))));
    one.abort();
}

#[test]
fn waiting_is_refused_on_a_worker_and_limited_on_a_thread() {
    let s = scheduler(1);
    let long = s.spawn_task(pending::<()>());
    let pid = long.pid().unwrap();
    assert!(matches!(long.wait(Some(SOON)), Err(JoinError::TimedOut)));
    assert!(state(&s, pid).is_some(), "the task goes on");
    let refused = s.spawn_task(async { task::spawn(async {}).wait(None) });
    assert!(matches!(refused.wait(None).unwrap(), Err(JoinError::OnWorker)));
}

// ------------------------------------------------------------------ aborts

#[test]
fn an_abort_drops_the_future_on_a_worker_wherever_it_is() {
    for when in ["before its first poll", "while it waits", "while it is polled"] {
        let s = scheduler(1);
        let (sender, dropped) = channel();
        let kept = Dropped(sender);
        let (begin, begun) = channel();
        let release = Arc::new(AtomicBool::new(false));
        // Keeps the only worker busy.
        let busy = Arc::clone(&release);
        let hog = move || until("released", || busy.load(SeqCst));
        let handle = match when {
            "before its first poll" => {
                let begin = begin.clone();
                s.spawn_once(move |_| {
                    begin.send(()).unwrap();
                    hog();
                })
                .unwrap();
                recv(&begun);
                s.spawn_task(async move { drop(kept) })
            }
            "while it waits" => {
                let handle = s.spawn_task(async move {
                    let _kept = kept;
                    pending::<()>().await;
                });
                let pid = handle.pid().unwrap();
                until("it waits", || state(&s, pid) == Some(ProcessState::Blocked));
                handle
            }
            _ => {
                let begin = begin.clone();
                let handle = s.spawn_task(async move {
                    let _kept = kept;
                    begin.send(()).unwrap();
                    hog();
                    task::yield_now().await;
                    panic!("it went on after the abort");
                });
                recv(&begun);
                handle
            }
        };
        handle.abort();
        handle.abort();
        release.store(true, SeqCst);
        assert!(recv(&dropped), "{when}: dropped on a worker");
        assert!(matches!(handle.wait(Some(LIMIT)), Err(JoinError::Aborted)), "{when}");
    }
}

#[test]
fn an_abort_that_comes_too_late_leaves_the_result() {
    let s = scheduler(1);
    let handle = s.spawn_task(async { 5 });
    until("it has ended", || handle.is_finished());
    handle.abort();
    assert_eq!(handle.wait(None).unwrap(), 5);
}

#[test]
fn a_dropped_handle_leaves_the_task_and_one_that_aborts_takes_it_along() {
    let s = scheduler(1);
    let (sender, receiver) = channel();
    let late = sender.clone();
    drop(s.spawn_task(async move {
        time::sleep(SOON).await;
        late.send(1).unwrap();
    }));
    assert_eq!(recv(&receiver), 1);
    let handle = s.spawn_task(pending::<()>()).abort_on_drop();
    let pid = handle.pid().unwrap();
    drop(handle);
    until("it is gone", || state(&s, pid).is_none());
}

#[test]
fn aborts_race_with_ends_and_each_handle_hears_one_of_the_two() {
    let s = scheduler(2);
    let (mut ended, mut aborted) = (0, 0);
    for round in 0..3000 {
        let handle = s.spawn_task(async move {
            for _ in 0..round % 4 {
                task::yield_now().await;
            }
            round
        });
        (0..round % 700).for_each(|_| std::hint::spin_loop());
        handle.abort();
        match handle.wait(Some(LIMIT)) {
            Ok(result) => {
                assert_eq!(result, round);
                ended += 1;
            }
            Err(JoinError::Aborted) => aborted += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(ended + aborted, 3000);
    until("nothing is left", || s.list_processes().is_empty());
    println!("{ended} ended, {aborted} aborted");
}

// ------------------------------------------------------------------ wakers

/// Gives its waker away and counts its polls.
struct Exposed {
    waker: Arc<Mutex<Option<Waker>>>,
    polls: Arc<AtomicUsize>,
    end: Arc<AtomicBool>,
}

impl Future for Exposed {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.polls.fetch_add(1, SeqCst);
        *self.waker.lock().unwrap() = Some(cx.waker().clone());
        if self.end.load(SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[test]
fn a_waker_is_harmless_after_the_end_from_any_thread_and_many_times() {
    let s = scheduler(1);
    let (waker, polls, end) = (Arc::default(), Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let exposed = Exposed { waker: Arc::clone(&waker), polls: Arc::clone(&polls), end: Arc::clone(&end) };
    let handle = s.spawn_task(exposed);
    let first = handle.pid().unwrap();
    until("it was polled", || polls.load(SeqCst) == 1);
    let waker = waker.lock().unwrap().clone().unwrap();
    assert!(waker.will_wake(&waker.clone()));
    end.store(true, SeqCst);
    waker.wake_by_ref();
    handle.wait(Some(LIMIT)).unwrap();
    // Its slot goes to others, who are not disturbed.
    let spawn_others = async {
        let other = |_| {
            let polls = Arc::new(AtomicUsize::new(0));
            let exposed = Exposed { waker: Arc::default(), polls: Arc::clone(&polls), end: Arc::default() };
            (task::spawn(exposed), polls)
        };
        (0..64).map(other).collect::<Vec<_>>()
    };
    let others = s.spawn_task(spawn_others).wait(None).unwrap();
    until("all wait", || others.iter().all(|(_, polls)| polls.load(SeqCst) == 1));
    assert!(
        others.iter().any(|(other, _)| other.pid().unwrap().local().slot() == first.local().slot()),
        "nobody has the slot: the test shows nothing"
    );
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let waker = waker.clone();
            scope.spawn(move || (0..10_000).for_each(|_| Waker::wake(Waker::clone(&waker))));
        }
    });
    still_works(&s, 20);
    assert!(others.iter().all(|(_, polls)| polls.load(SeqCst) == 1), "an old waker reached somebody");
    drop(s);
    waker.wake();
}

#[test]
fn every_wake_is_followed_by_a_poll_that_sees_why() {
    // Each waker counts up and wakes; the task is done when it has seen the whole sum.
    const WAKERS: usize = 3;
    const EACH: usize = 100_000;
    let s = scheduler(2);
    let sum = Arc::new(AtomicUsize::new(0));
    let (sender, wakers) = channel::<Waker>();
    let seen = Arc::clone(&sum);
    let mut given = false;
    let handle = s.spawn_task(poll_fn(move |cx| {
        if !std::mem::replace(&mut given, true) {
            (0..WAKERS).for_each(|_| sender.send(cx.waker().clone()).unwrap());
        }
        // Relaxed: the wake itself must bring it along.
        if seen.load(std::sync::atomic::Ordering::Relaxed) == WAKERS * EACH {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }));
    std::thread::scope(|scope| {
        for _ in 0..WAKERS {
            let (waker, sum) = (recv(&wakers), &sum);
            scope.spawn(move || {
                for _ in 0..EACH {
                    sum.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    waker.wake_by_ref();
                }
            });
        }
    });
    handle.wait(Some(LIMIT)).unwrap();
}

#[test]
fn a_task_that_wakes_itself_makes_way_for_the_others() {
    let s = scheduler(1);
    let stop = Arc::new(AtomicBool::new(false));
    let hogs: Vec<_> = (0..3)
        .map(|kind| {
            let stop = Arc::clone(&stop);
            s.spawn_task(async move {
                while !stop.load(SeqCst) {
                    match kind {
                        0 => task::yield_now().await,
                        // Ready at once each time: the budget makes it yield.
                        1 => task::coop::consume_budget().await,
                        _ => drop(task::spawn(async {}).await),
                    }
                }
            })
        })
        .collect();
    for _ in 0..200 {
        let (sender, receiver) = channel();
        s.spawn_once(move |_| sender.send(()).unwrap()).unwrap();
        recv(&receiver);
    }
    stop.store(true, SeqCst);
    for hog in hogs {
        hog.wait(Some(LIMIT)).unwrap();
    }
}

// ------------------------------------------------------------------ where there is a host

#[test]
fn block_on_takes_futures_that_stay_and_nests() {
    let s = scheduler(1);
    let here = std::rc::Rc::new(5);
    let kept = std::rc::Rc::clone(&here);
    let result = s.block_on(async move {
        task::yield_now().await;
        let six = task::spawn(async { 6 }).await.unwrap();
        let other = scheduler(1);
        let seven = other.block_on(async { task::spawn(async { 7 }).await.unwrap() });
        // Back in the first one.
        let eight = task::spawn(async { 8 }).await.unwrap();
        *kept + six + seven + eight
    });
    assert_eq!(result, 26);
    assert_eq!(*here, 5);
    assert_eq!(task::run(async { task::spawn(async { 9 }).await.unwrap() }).unwrap(), 9);
}

#[test]
fn without_a_host_and_on_a_worker_the_misuse_is_told() {
    quiet_panics();
    let text = |act: fn()| {
        let payload = std::panic::catch_unwind(act).unwrap_err();
        payload.downcast_ref::<&str>().map(|text| text.to_string()).unwrap_or_default()
            + payload.downcast_ref::<String>().map_or("", |text| text)
    };
    assert!(text(|| drop(task::spawn(async {}))).starts_with("no scheduler here"));
    let s = Arc::new(scheduler(1));
    let inner = Arc::clone(&s);
    let misused = s.spawn_task(async move { inner.block_on(async {}) }).wait(None).unwrap_err();
    assert!(misused.to_string().contains("block_on was called on a worker"), "{misused}");
}

#[test]
fn a_task_goes_to_the_host_that_is_named() {
    let runtime = Runtime::builder()
        .host("one", |builder| builder.workers(1))
        .host("two", |builder| builder.workers(1))
        .start()
        .unwrap();
    let on = |host: &'static str| {
        runtime.spawn_on(host, async { std::thread::current().name().map(str::to_owned) })
    };
    for host in ["one", "two"] {
        let thread = on(host).unwrap().wait(None).unwrap().unwrap();
        assert!(thread.starts_with(host), "{thread}");
        let inner = runtime.block_on(host, async {
            task::spawn(async { std::thread::current().name().map(str::to_owned) }).await
        });
        assert!(inner.unwrap().unwrap().unwrap().starts_with(host));
    }
    assert!(matches!(on("three"), Err(SpawnError::UnknownHost(_))));
}

task_local! {
    static WHO: String;
    static DEPTH: u32;
}

#[test]
fn a_task_local_goes_with_the_task_to_whatever_worker_polls_it() {
    let s = scheduler(2);
    let handles: Vec<_> = (0..50)
        .map(|n| {
            s.spawn_task(WHO.scope(format!("task {n}"), async move {
                for _ in 0..100 {
                    task::yield_now().await;
                    assert_eq!(WHO.with(Clone::clone), format!("task {n}"));
                }
                DEPTH
                    .scope(1, async {
                        DEPTH.scope(2, async { DEPTH.with(|depth| *depth) }).await
                            + DEPTH.with(|depth| *depth)
                    })
                    .await
            }))
        })
        .collect();
    for handle in handles {
        assert_eq!(handle.wait(Some(LIMIT)).unwrap(), 3);
    }
    assert_eq!(WHO.try_with(|_| ()), None);
}

#[test]
fn a_task_local_is_there_when_the_future_is_dropped() {
    struct Look(std::sync::mpsc::Sender<Option<String>>);
    impl Drop for Look {
        fn drop(&mut self) {
            self.0.send(WHO.try_with(Clone::clone)).unwrap();
        }
    }
    let s = scheduler(1);
    let (sender, receiver) = channel();
    let look = Look(sender);
    let handle = s.spawn_task(WHO.scope("me".into(), async move {
        let _look = look;
        pending::<()>().await;
    }));
    let pid = handle.pid().unwrap();
    until("it waits", || state(&s, pid) == Some(ProcessState::Blocked));
    handle.abort();
    assert_eq!(recv(&receiver).as_deref(), Some("me"));
}

// ------------------------------------------------------------------ the end

#[test]
fn a_shutdown_lets_tasks_finish_tells_those_that_listen_and_ends_the_rest() {
    let s = scheduler(2);
    let quick = s.spawn_task(async {
        time::sleep(SOON).await;
        "finished"
    });
    let listens = s.spawn_task(async {
        task::cancelled().await;
        task::cancelled().await;
        "told"
    });
    let deaf = s.spawn_task(pending::<()>());
    let report = s.shutdown(Duration::from_millis(300));
    assert_eq!(quick.wait(Some(LIMIT)).unwrap(), "finished");
    assert_eq!(listens.wait(Some(LIMIT)).unwrap(), "told");
    assert!(matches!(deaf.wait(Some(LIMIT)), Err(JoinError::Aborted)));
    assert_eq!((report.finished, report.ended_by_force), (2, 1));
}

#[test]
fn tasks_of_a_dropped_scheduler_are_aborted_and_their_futures_dropped() {
    let (sender, dropped) = channel();
    let s = scheduler(2);
    let handles: Vec<_> = (0..100)
        .map(|_| {
            let kept = Dropped(sender.clone());
            s.spawn_task(async move {
                let _kept = kept;
                time::sleep(Duration::MAX).await;
            })
        })
        .collect();
    drop(s);
    for handle in handles {
        assert!(matches!(handle.wait(Some(LIMIT)), Err(JoinError::Aborted)));
        assert!(recv(&dropped), "dropped on a worker");
    }
}

// ------------------------------------------------------------------ mailboxes

enum Count {
    Add(u64),
    Get(Reply<u64>),
    Later(Duration, Reply<u64>),
    Never(Reply<u64>),
    Lose(Reply<u64>),
}

fn counter(s: &Scheduler) -> evener_scheduler::Handle<Count> {
    s.spawn_async(|mut mailbox| async move {
        let mut count = 0;
        let mut kept = Vec::new();
        while let Ok(message) = mailbox.receive().await {
            match message {
                Count::Add(more) => count += more,
                Count::Get(reply) => reply.send(count),
                Count::Later(delay, reply) => {
                    task::spawn(async move {
                        time::sleep(delay).await;
                        reply.send(count);
                    })
                    .detach();
                }
                Count::Never(reply) => kept.push(reply),
                Count::Lose(reply) => drop(reply),
            }
        }
    })
    .unwrap()
}

#[test]
fn an_async_actor_receives_in_order_and_ends_when_asked() {
    const EACH: u64 = 50_000;
    let s = scheduler(2);
    let (sender, receiver) = channel();
    let actor = s
        .spawn_async(move |mut mailbox: task::Mailbox<(usize, u64)>| async move {
            let mut last = [0; 3];
            let mut count = 0;
            loop {
                match mailbox.receive().await {
                    Ok((from, number)) => {
                        assert_eq!(number, last[from] + 1);
                        last[from] = number;
                        count += 1;
                        if number % 1000 == 0 {
                            task::yield_now().await;
                        }
                    }
                    Err(stop) => {
                        sender.send((count, stop.reason.to_string())).unwrap();
                        return;
                    }
                }
            }
        })
        .unwrap();
    std::thread::scope(|scope| {
        for from in 0..3 {
            scope.spawn(move || (1..=EACH).for_each(|number| actor.tell((from, number)).unwrap()));
        }
    });
    assert!(matches!(*s.stop(actor.pid(), LIMIT).unwrap(), ExitReason::Normal));
    assert_eq!(recv(&receiver), (3 * EACH, "stopped".to_owned()));
}

#[test]
fn messages_stay_where_they_are_while_the_code_waits_for_something_else() {
    let s = scheduler(1);
    let (sender, receiver) = channel();
    let actor = s
        .spawn_async(move |mut mailbox: task::Mailbox<u32>| async move {
            assert_eq!(mailbox.receive().await, Ok(1));
            // Twenty messages come now: they wake it, and it goes on waiting.
            time::sleep(Duration::from_millis(100)).await;
            let mut got = Vec::new();
            // A receive that is dropped while it waits has taken nothing.
            assert!(time::timeout(Duration::ZERO, pending::<()>()).await.is_err());
            while let Ok(Ok(message)) = time::timeout(SOON, mailbox.receive()).await {
                got.push(message);
            }
            sender.send(got).unwrap();
        })
        .unwrap();
    actor.tell(1).unwrap();
    until("it sleeps", || state(&s, actor.pid()) == Some(ProcessState::Blocked));
    for number in 0..20 {
        actor.tell(number).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let turns = s.stats().total().turns;
    std::thread::sleep(SOON);
    let spent = s.stats().total().turns - turns;
    assert!(spent < 100, "{spent} turns while it slept: it spins over its mail");
    assert_eq!(recv(&receiver), (0..20).collect::<Vec<_>>());
}

#[test]
fn an_async_actor_hears_of_ends_by_its_raw_events() {
    let s = scheduler(1);
    let (sender, receiver) = channel();
    s.spawn_async(move |mut mailbox: task::Mailbox<u32>| async move {
        let me = mailbox.pid();
        assert_eq!(task::id(), Some(me));
        let child = task::spawn_with(async { panic!("on purpose") }, SpawnOptions::new().monitored());
        let pid = child.pid().unwrap();
        child.detach();
        loop {
            if let Event::Exit(exit) = mailbox.event().await {
                sender.send((exit.pid == pid, exit.reason.to_string())).unwrap();
                return;
            }
        }
    })
    .unwrap();
    quiet_panics();
    let (is_child, reason) = recv(&receiver);
    assert!(is_child && reason.contains("on purpose"), "{reason}");
}

#[test]
fn a_mailbox_in_a_foreign_task_says_so() {
    quiet_panics();
    let s = scheduler(1);
    let (sender, receiver) = channel();
    s.spawn_async(move |mut mailbox: task::Mailbox<u32>| async move {
        let stolen = task::spawn(async move { mailbox.receive().await });
        sender.send(stolen.await.unwrap_err().to_string()).unwrap();
    })
    .unwrap();
    assert!(recv(&receiver).contains("outside of the task it was given to"));
}

#[test]
fn async_code_asks_and_is_told_why_there_is_no_answer() {
    let s = scheduler(2);
    let actor = counter(&s);
    actor.tell(Count::Add(3)).unwrap();
    let asked = s.spawn_task(async move {
        assert_eq!(actor.ask_async(Count::Get, LIMIT).await.unwrap(), 3);
        assert_eq!(actor.ask_async(|reply| Count::Later(SOON, reply), LIMIT).await.unwrap(), 3);
        assert!(matches!(actor.ask_async(Count::Never, SOON).await, Err(AskError::TimedOut)));
        assert!(matches!(actor.ask_async(Count::Lose, LIMIT).await, Err(AskError::NoReply)));
        // A late answer reaches nobody, nor the next question.
        assert!(matches!(
            actor.ask_async(|reply| Count::Later(SOON, reply), Duration::ZERO).await,
            Err(AskError::TimedOut)
        ));
        for _ in 0..100 {
            assert_eq!(actor.ask_async(Count::Get, LIMIT).await.unwrap(), 3);
            time::sleep(Duration::from_micros(700)).await;
        }
        // Many at a time.
        let many: Vec<_> = (0..500)
            .map(|_| task::spawn(async move { actor.ask_async(Count::Get, LIMIT).await.unwrap() }))
            .collect();
        for answer in many {
            assert_eq!(answer.await.unwrap(), 3);
        }
        actor
    });
    let actor = asked.wait(Some(LIMIT)).unwrap();
    assert_eq!(s.block_on(actor.ask_async(Count::Get, LIMIT)).unwrap(), 3);
    s.stop(actor.pid(), LIMIT).unwrap();
    assert!(matches!(s.block_on(actor.ask_async(Count::Get, LIMIT)), Err(AskError::Send(_))));
}

#[test]
fn an_async_actor_that_ends_drops_what_it_was_sent() {
    let s = scheduler(1);
    let actor = s
        .spawn_async(|mut mailbox: task::Mailbox<u32>| async move { drop(mailbox.receive().await) })
        .unwrap();
    let gate = s.spawn_task(async move {
        (0..10).for_each(|number| actor.tell(number).unwrap());
    });
    gate.wait(None).unwrap();
    until("it has ended", || s.list_processes().is_empty());
    assert_eq!(s.stats().total().dropped_messages, 9);
}

#[test]
fn a_long_chain_of_spawns_and_joins_comes_to_its_end() {
    let s = scheduler(2);
    let chain = s.spawn_task(async {
        let mut depth = 0_u64;
        for _ in 0..20_000 {
            depth = task::spawn(async move { depth + 1 }).await.unwrap();
        }
        depth
    });
    assert_eq!(chain.wait(Some(LIMIT)).unwrap(), 20_000);
    until("all have ended", || s.list_processes().is_empty());
}

/// Polls a future only when the waker that it was given, one of its own, has been woken: what the sets of
/// futures in the ecosystem do.
struct Apart<F> {
    future: Pin<Box<F>>,
    woken: Arc<WokenApart>,
}

struct WokenApart {
    is_woken: AtomicBool,
    outer: Mutex<Option<Waker>>,
}

impl std::task::Wake for WokenApart {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, SeqCst);
        if let Some(outer) = self.outer.lock().unwrap().take() {
            outer.wake();
        }
    }
}

fn apart<F: Future>(future: F) -> Apart<F> {
    let woken = WokenApart { is_woken: AtomicBool::new(true), outer: Mutex::new(None) };
    Apart { future: Box::pin(future), woken: Arc::new(woken) }
}

impl<F: Future> Future for Apart<F> {
    type Output = F::Output;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        *self.woken.outer.lock().unwrap() = Some(cx.waker().clone());
        if !self.woken.is_woken.swap(false, SeqCst) {
            return Poll::Pending;
        }
        let waker = Waker::from(Arc::clone(&self.woken));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

#[test]
fn a_mailbox_wakes_the_waker_that_it_was_polled_with() {
    let s = scheduler(2);
    let (sender, receiver) = channel();
    let actor = s
        .spawn_async(move |mut mailbox: task::Mailbox<u32>| async move {
            while let Ok(number) = apart(mailbox.receive()).await {
                sender.send(number).unwrap();
            }
        })
        .unwrap();
    for number in 0..200 {
        until("it waits", || state(&s, actor.pid()) == Some(ProcessState::Blocked));
        actor.tell(number).unwrap();
        assert_eq!(recv(&receiver), number);
    }
    assert!(matches!(*s.stop(actor.pid(), LIMIT).unwrap(), ExitReason::Normal));
}

#[test]
fn every_part_of_a_task_hears_that_it_is_to_end() {
    const PARTS: usize = 100;
    let s = scheduler(2);
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&polls);
    let handle = s.spawn_task(async move {
        let mut parts: Vec<_> = (0..PARTS).map(|_| Some(apart(task::cancelled()))).collect();
        poll_fn(move |cx| {
            counted.fetch_add(1, SeqCst);
            for part in &mut parts {
                if part.as_mut().is_some_and(|part| Pin::new(part).poll(cx).is_ready()) {
                    *part = None;
                }
            }
            if parts.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    });
    let pid = handle.pid().unwrap();
    until("all wait", || state(&s, pid) == Some(ProcessState::Blocked));
    assert!(polls.load(SeqCst) < 2 * PARTS, "they do not wake each other for ever");
    assert!(matches!(*s.stop(pid, LIMIT).unwrap(), ExitReason::Normal));
    handle.wait(Some(LIMIT)).unwrap();
}

/// Results and futures of all sizes: what lies in cells, and what has an allocation of its own.
#[test]
fn every_value_is_dropped_once_whoever_leaves_last() {
    #[derive(Clone)]
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    async fn task<const SIZE: usize>(ends: usize, held: Counted, given: Counted) -> ([u8; SIZE], Counted) {
        let room = [SIZE as u8; SIZE];
        for _ in 0..ends {
            task::yield_now().await;
        }
        drop(held);
        (room, given)
    }
    fn rounds<const SIZE: usize>(s: &Scheduler, dropped: &Arc<AtomicUsize>) -> usize {
        const ROUNDS: usize = 400;
        for round in 0..ROUNDS {
            let counted = || Counted(Arc::clone(dropped));
            let handle = s.spawn_task(task::<SIZE>(round % 4, counted(), counted()));
            match round % 5 {
                0 => drop(handle),
                1 => assert_eq!(handle.wait(None).unwrap().0, [SIZE as u8; SIZE]),
                2 => {
                    until("it ends", || handle.is_finished());
                    drop(handle);
                }
                3 => drop(handle.abort_on_drop()),
                _ => {
                    handle.abort();
                    let _ = handle.wait(None);
                }
            }
        }
        2 * ROUNDS
    }
    for workers in [1, 2] {
        let s = scheduler(workers);
        let dropped = Arc::new(AtomicUsize::new(0));
        let all = rounds::<0>(&s, &dropped)
            + rounds::<40>(&s, &dropped)
            + rounds::<400>(&s, &dropped)
            + rounds::<4000>(&s, &dropped);
        until("all is dropped", || dropped.load(SeqCst) == all);
        drop(s);
        assert_eq!(dropped.load(SeqCst), all);
    }
}

#[test]
fn a_scope_within_a_look_at_its_key_is_one_panic() {
    quiet_panics();
    task_local! { static USER: &'static str; }
    let s = scheduler(1);
    s.block_on(USER.scope("Ada", async {
        for polls in [true, false] {
            let result = std::panic::catch_unwind(|| {
                USER.with(|_| {
                    let mut inner = Box::pin(USER.scope("Bob", async {}));
                    if polls {
                        let _ = inner.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    }
                });
            });
            assert_eq!(result.is_err(), polls);
            assert_eq!(USER.with(|user| *user), "Ada");
        }
    }));
}

#[test]
fn an_async_actor_that_was_told_to_end_is_cancelled_everywhere() {
    let s = scheduler(2);
    let actor = s
        .spawn_async(|mut mailbox: task::Mailbox<u32>| async move {
            assert!(mailbox.receive().await.is_err());
            task::cancelled().await;
        })
        .unwrap();
    assert!(matches!(*s.stop(actor.pid(), LIMIT).unwrap(), ExitReason::Normal));
}

#[test]
fn a_part_whose_waker_panics_does_not_keep_the_others_from_hearing() {
    quiet_panics();
    struct Bad(Waker);
    impl std::task::Wake for Bad {
        fn wake(self: Arc<Self>) {
            self.0.wake_by_ref();
            panic!("on purpose");
        }
    }
    let s = scheduler(1);
    let handle = s.spawn_task(async {
        let mut bad = Box::pin(task::cancelled());
        let mut good = apart(task::cancelled());
        poll_fn(move |cx| {
            let waker = Waker::from(Arc::new(Bad(cx.waker().clone())));
            let bad = bad.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
            if Pin::new(&mut good).poll(cx).is_ready() && bad { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        5
    });
    let pid = handle.pid().unwrap();
    until("it waits", || state(&s, pid) == Some(ProcessState::Blocked));
    s.cancel(pid, "test", None).unwrap();
    assert_eq!(handle.wait(Some(LIMIT)).unwrap(), 5);
}
