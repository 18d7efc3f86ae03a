//! The typed layer: actors, handles, answers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use evener_scheduler::{
    Actor, AskError, Budget, Cancel, Context, Event, ExitReason, Handle, LifecycleHooks, OnPanic, Package,
    Payload, Pid, Reply, Scheduler, SendError, SpawnOptions, Tag, Topic, YieldError, send,
};

const LONG: Duration = Duration::from_secs(60);

enum Count {
    Add(u64),
    Get(Reply<u64>),
}

fn counter(scheduler: &Scheduler) -> Handle<Count> {
    scheduler
        .spawn_fn(0, |count, message, _| match message {
            Count::Add(more) => *count += more,
            Count::Get(reply) => reply.send(*count),
        })
        .unwrap()
}

#[test]
fn a_counter_counts_and_answers() {
    for workers in [1, 2, 8] {
        let scheduler = Scheduler::builder().workers(workers).start().unwrap();
        let counter = counter(&scheduler);
        for _ in 0..10_000 {
            counter.tell(Count::Add(1)).unwrap();
        }
        assert_eq!(counter.ask(Count::Get, LONG).unwrap(), 10_000);
        scheduler.shutdown(LONG);
        assert!(matches!(counter.tell(Count::Add(1)), Err(SendError::Closed(_))));
        assert!(matches!(counter.ask(Count::Get, LONG), Err(AskError::Send(SendError::Closed(_)))));
    }
}

#[test]
fn a_handle_is_an_address_and_no_more() {
    assert_eq!(size_of::<Handle<String>>(), 8);
    assert_eq!(size_of::<Option<Handle<String>>>(), 8);
    assert_eq!(size_of::<Count>(), 16);
}

/// Messages of 16 bytes, of 24, and larger ones, with content on the heap.
#[test]
fn a_message_of_any_size_arrives_whole_and_is_dropped_once() {
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    struct Sized<const N: usize>([u64; N], Box<u64>);
    impl<const N: usize> Sized<N> {
        fn new(seed: u64) -> Self {
            ALIVE.fetch_add(1, Ordering::SeqCst);
            Self([seed; N], Box::new(seed))
        }
    }
    impl<const N: usize> Drop for Sized<N> {
        fn drop(&mut self) {
            ALIVE.fetch_sub(1, Ordering::SeqCst);
        }
    }
    fn check<const N: usize>(scheduler: &Scheduler) {
        let (sender, receiver) = mpsc::channel();
        let handle = scheduler
            .spawn_fn((), move |(), message: Sized<N>, _| {
                sender.send((message.0, *message.1)).unwrap();
            })
            .unwrap();
        for seed in 0..100 {
            handle.tell(Sized::new(seed)).unwrap();
        }
        for seed in 0..100 {
            assert_eq!(receiver.recv_timeout(LONG).unwrap(), ([seed; N], seed));
        }
        scheduler.stop(handle.pid(), LONG).unwrap();
        assert!(handle.tell(Sized::new(1)).is_err());
    }
    let scheduler = Scheduler::builder().workers(2).start().unwrap();
    check::<0>(&scheduler);
    check::<1>(&scheduler);
    check::<2>(&scheduler);
    check::<3>(&scheduler);
    check::<40>(&scheduler);
    scheduler.shutdown(LONG);
    assert_eq!(ALIVE.load(Ordering::SeqCst), 0);
}

/// FC-021: a panic on message 5 of 20 fails that message alone.
#[test]
fn a_panic_fails_one_message_and_no_more() {
    let scheduler = Scheduler::builder().workers(1).start().unwrap();
    let (sender, receiver) = mpsc::channel();
    let handle = scheduler
        .spawn_fn((), move |(), message: u64, _| {
            assert_ne!(message, 5, "on purpose");
            sender.send(message).unwrap();
        })
        .unwrap();
    for message in 1..=20 {
        handle.tell(message).unwrap();
    }
    let handled: Vec<u64> = (0..19).map(|_| receiver.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(handled, (1..=20).filter(|message| *message != 5).collect::<Vec<_>>());
    assert_eq!(scheduler.stats().total().panics, 1);
    assert_eq!(scheduler.stats().by_state.total(), 1, "the actor lives on");
}

#[test]
fn an_actor_may_ask_to_end_with_a_panic() {
    struct Brittle(mpsc::Sender<&'static str>);
    impl Actor for Brittle {
        type Message = ();
        const ON_PANIC: OnPanic = OnPanic::Process;
        fn handle(&mut self, (): (), _: &mut Context<'_, ()>) {
            panic!("on purpose");
        }
        fn stopped(&mut self) {
            self.0.send("stopped").unwrap();
        }
    }
    struct Ends(Mutex<mpsc::Sender<ExitReason>>);
    impl LifecycleHooks for Ends {
        fn on_complete(&self, _: Pid, reason: &ExitReason, _: Option<&Payload>) {
            self.0.lock().unwrap().send(reason.clone()).unwrap();
        }
    }
    let (ended, ends) = mpsc::channel();
    let scheduler = Scheduler::builder().workers(1).hooks(Ends(Mutex::new(ended))).start().unwrap();
    let (sender, receiver) = mpsc::channel();
    let handle = scheduler.spawn_actor(Brittle(sender)).unwrap();
    handle.tell(()).unwrap();
    let reason = ends.recv_timeout(LONG).unwrap();
    assert!(matches!(&reason, ExitReason::Panicked(text) if text.contains("on purpose")), "{reason:?}");
    assert_eq!(receiver.recv_timeout(LONG).unwrap(), "stopped");
    assert!(receiver.recv_timeout(LONG).is_err(), "stopped once, and dropped");
}

#[test]
fn a_dropped_reply_is_an_answer_too() {
    let scheduler = Scheduler::builder().workers(1).start().unwrap();
    let handle = scheduler.spawn_fn((), |(), reply: Reply<u32>, _| drop(reply)).unwrap();
    assert!(matches!(handle.ask(|reply| reply, LONG), Err(AskError::NoReply)));
}

#[test]
fn an_answer_that_comes_too_late_is_dropped() {
    let scheduler = Scheduler::builder().workers(1).start().unwrap();
    let kept: Vec<Reply<u32>> = Vec::new();
    let handle = scheduler
        .spawn_fn(kept, |kept, message: Option<Reply<u32>>, _| match message {
            Some(reply) => kept.push(reply),
            None => kept.drain(..).for_each(|reply| reply.send(7)),
        })
        .unwrap();
    assert!(matches!(handle.ask(Some, Duration::from_millis(1)), Err(AskError::TimedOut)));
    handle.tell(None).unwrap();
    // The next ask of this thread gets its own answer, not the late one.
    let fresh = scheduler.spawn_fn((), |(), reply: Reply<u32>, _| reply.send(8)).unwrap();
    assert_eq!(fresh.ask(|reply| reply, LONG).unwrap(), 8);
}

#[test]
fn a_worker_does_not_wait() {
    let scheduler = Scheduler::builder().workers(1).start().unwrap();
    let counter = counter(&scheduler);
    let (sender, receiver) = mpsc::channel();
    scheduler.spawn_once(move |_| sender.send(counter.ask(Count::Get, LONG)).unwrap()).unwrap();
    assert!(matches!(receiver.recv_timeout(LONG).unwrap(), Err(AskError::OnWorker)));
}

/// Asks a counter from within, and passes the answer on.
struct Asker {
    of: Handle<Count>,
    tell: mpsc::Sender<Result<u64, AskError>>,
}

impl Actor for Asker {
    type Message = Option<Duration>;
    fn handle(&mut self, timeout: Option<Duration>, cx: &mut Context<'_, Option<Duration>>) {
        cx.ask(Tag(1), self.of, Count::Get, timeout);
    }
    fn event(&mut self, event: Event, _: &mut Context<'_, Option<Duration>>) {
        match event {
            Event::YieldComplete { tag: Tag(1), result } => self.tell.send(AskError::read(result)).unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_actor_asks_without_waiting() {
    let scheduler = Scheduler::builder().workers(2).start().unwrap();
    let counter = counter(&scheduler);
    counter.tell(Count::Add(4)).unwrap();
    let (tell, answers) = mpsc::channel();
    let asker = scheduler.spawn_actor(Asker { of: counter, tell }).unwrap();
    asker.tell(None).unwrap();
    assert_eq!(answers.recv_timeout(LONG).unwrap().unwrap(), 4);
    scheduler.stop(counter.pid(), LONG).unwrap();
    asker.tell(Some(LONG)).unwrap();
    assert!(matches!(answers.recv_timeout(LONG).unwrap(), Err(AskError::Send(SendError::Closed(_)))));
}

#[test]
fn a_circle_of_typed_asks_is_named() {
    struct Peer {
        other: Option<Handle<Ask>>,
        tell: mpsc::Sender<Result<(), AskError>>,
    }
    enum Ask {
        Meet(Handle<Ask>),
        Go(Option<Reply<()>>),
    }
    impl Actor for Peer {
        type Message = Ask;
        fn handle(&mut self, message: Ask, cx: &mut Context<'_, Ask>) {
            match message {
                Ask::Meet(other) => self.other = Some(other),
                Ask::Go(_asked) => {
                    let other = self.other.expect("it has met the other");
                    cx.ask(Tag(1), other, |reply| Ask::Go(Some(reply)), Some(LONG));
                }
            }
        }
        fn event(&mut self, event: Event, _: &mut Context<'_, Ask>) {
            match event {
                Event::YieldComplete { result, .. } => self.tell.send(AskError::read(result)).unwrap(),
                other => panic!("{other:?}"),
            }
        }
    }
    let scheduler = Scheduler::builder().workers(1).start().unwrap();
    let (tell, answers) = mpsc::channel();
    let one = scheduler.spawn_actor(Peer { other: None, tell: tell.clone() }).unwrap();
    let other = scheduler.spawn_actor(Peer { other: None, tell }).unwrap();
    one.tell(Ask::Meet(other)).unwrap();
    other.tell(Ask::Meet(one)).unwrap();
    one.tell(Ask::Go(None)).unwrap();
    let mut named = 0;
    for _ in 0..2 {
        match answers.recv_timeout(LONG).unwrap() {
            Err(AskError::Yield(YieldError::Cycle(chain))) => {
                named += 1;
                assert_eq!(chain, [one.pid().local(), other.pid().local(), one.pid().local()]);
            }
            // Of the first request, which the other one dropped.
            Err(AskError::NoReply) => {}
            answer => panic!("{answer:?}"),
        }
    }
    assert_eq!(named, 1);
}

#[test]
fn a_foreign_message_reaches_event() {
    struct Open(mpsc::Sender<String>);
    impl Actor for Open {
        type Message = u32;
        fn handle(&mut self, message: u32, _: &mut Context<'_, u32>) {
            self.0.send(format!("own {message}")).unwrap();
        }
        fn event(&mut self, event: Event, _: &mut Context<'_, u32>) {
            if let Event::Message(message) = event {
                self.0.send(format!("foreign {}", message.take::<&'static str>().unwrap())).unwrap();
            }
        }
    }
    let scheduler = Scheduler::builder().workers(1).start().unwrap();
    let (sender, receiver) = mpsc::channel();
    let handle = scheduler.spawn_actor_with(Open(sender), SpawnOptions::new().name("open")).unwrap();
    send(Package::new(handle.pid(), "word")).unwrap();
    scheduler.send_named("open", 3_u32).unwrap();
    assert_eq!(receiver.recv_timeout(LONG).unwrap(), "foreign word");
    assert_eq!(receiver.recv_timeout(LONG).unwrap(), "own 3");
}

/// Started once, before any message; stopped once, with what is queued behind dropped.
#[test]
fn an_actor_starts_first_and_stops_last() {
    struct Life {
        log: mpsc::Sender<&'static str>,
        _guard: Arc<()>,
    }
    impl Actor for Life {
        type Message = bool;
        fn started(&mut self, _: &mut Context<'_, bool>) {
            self.log.send("started").unwrap();
        }
        fn handle(&mut self, stop: bool, cx: &mut Context<'_, bool>) {
            self.log.send("handled").unwrap();
            if stop {
                cx.stop();
            }
        }
        fn stopped(&mut self) {
            self.log.send("stopped").unwrap();
        }
    }
    let scheduler = Scheduler::builder().workers(2).start().unwrap();
    let (log, logged) = mpsc::channel();
    let guard = Arc::new(());
    let handle = scheduler.spawn_actor(Life { log, _guard: Arc::clone(&guard) }).unwrap();
    handle.tell(false).unwrap();
    // Whether these two are taken in one turn or refused, none is handled after the stop.
    handle.tell(true).unwrap();
    let _ = handle.tell(false);
    let log: Vec<_> = logged.iter().collect();
    assert_eq!(log, ["started", "handled", "handled", "stopped"]);
    assert_eq!(Arc::strong_count(&guard), 1, "the body is gone");
}

// ------------------------------------------------------------------ the other calls of an actor

/// Says what reaches its `event`; leaves its `cancelled` alone.
struct Listens(mpsc::Sender<String>);

impl Actor for Listens {
    type Message = u32;
    fn handle(&mut self, message: u32, _: &mut Context<'_, u32>) {
        self.0.send(format!("own {message}")).unwrap();
    }
    fn event(&mut self, event: Event, _: &mut Context<'_, u32>) {
        self.0.send(format!("{event:?}")).unwrap();
    }
}

#[test]
fn an_actor_with_an_event_of_its_own_still_ends_when_asked() {
    let scheduler = Scheduler::builder().workers(1).start().unwrap();
    let (sender, receiver) = mpsc::channel();
    let stopped = scheduler.spawn_actor(Listens(sender.clone())).unwrap();
    let reason = scheduler.stop(stopped.pid(), LONG).unwrap();
    assert!(matches!(*reason, ExitReason::Normal), "{reason}");
    scheduler.spawn_actor(Listens(sender)).unwrap();
    let report = scheduler.shutdown(LONG);
    assert_eq!((report.finished, report.ended_by_force), (1, 0), "{report:?}");
    assert!(receiver.recv().is_err(), "nothing came to `event`");
}

#[test]
fn an_actor_may_take_its_time_when_asked_to_end() {
    struct Finishes(mpsc::Sender<(String, bool)>, bool);
    impl Actor for Finishes {
        type Message = ();
        fn handle(&mut self, (): (), cx: &mut Context<'_, ()>) {
            assert!(self.1, "on purpose");
            cx.stop_with(7_u32);
        }
        fn cancelled(&mut self, cancel: Cancel, cx: &mut Context<'_, ()>) {
            self.0.send((cancel.reason.to_string(), cancel.deadline.is_some())).unwrap();
            self.1 = true;
            cx.me().tell(()).unwrap();
        }
    }
    let scheduler = Scheduler::builder().workers(1).start().unwrap();
    let (sender, receiver) = mpsc::channel();
    for act in [0, 1, 2] {
        let actor = scheduler.spawn_actor(Finishes(sender.clone(), false)).unwrap();
        match act {
            0 => scheduler.cancel(actor.pid(), "please", None).unwrap(),
            1 => drop(scheduler.stop(actor.pid(), LONG).unwrap()),
            _ => assert_eq!(scheduler.shutdown(LONG).finished, 1),
        }
        let expected = [("please", false), ("stopped", true), ("shutdown", true)][act];
        let (reason, has_deadline) = receiver.recv_timeout(LONG).unwrap();
        assert_eq!((reason.as_str(), has_deadline), expected);
        let ended = scheduler.join(actor.pid(), Some(LONG)).unwrap();
        assert!(matches!(*ended, ExitReason::Normal | ExitReason::NoProcess), "{ended}");
    }
}

/// Whatever it says of panics in general, and whatever status it had set before.
#[test]
fn a_panic_in_started_ends_the_actor() {
    struct HalfMade(u32, mpsc::Sender<&'static str>);
    impl Actor for HalfMade {
        type Message = ();
        fn started(&mut self, cx: &mut Context<'_, ()>) {
            match self.0 {
                0 => {}
                1 => cx.raw().continue_soon(),
                2 => cx.raw().idle(),
                _ => cx.stop(),
            }
            panic!("on purpose");
        }
        fn handle(&mut self, (): (), _: &mut Context<'_, ()>) {
            self.1.send("handled").unwrap();
        }
        fn stopped(&mut self) {
            self.1.send("stopped").unwrap();
        }
    }
    struct Ends(Mutex<mpsc::Sender<ExitReason>>);
    impl LifecycleHooks for Ends {
        fn on_complete(&self, _: Pid, reason: &ExitReason, _: Option<&Payload>) {
            self.0.lock().unwrap().send(reason.clone()).unwrap();
        }
    }
    let (ended, ends) = mpsc::channel();
    let scheduler = Scheduler::builder().workers(1).hooks(Ends(Mutex::new(ended))).start().unwrap();
    for way in 0..4 {
        let (sender, receiver) = mpsc::channel();
        let actor = scheduler.spawn_actor(HalfMade(way, sender)).unwrap();
        let _ = actor.tell(());
        let reason = ends.recv_timeout(LONG).unwrap();
        assert!(matches!(&reason, ExitReason::Panicked(text) if text.contains("on purpose")), "{reason:?}");
        assert_eq!(receiver.iter().collect::<Vec<_>>(), ["stopped"]);
    }
    assert_eq!(scheduler.stats().total().panics, 4);
}

#[test]
fn foreign_messages_that_nobody_wants_are_counted() {
    let scheduler = Scheduler::builder().workers(2).start().unwrap();
    let options = SpawnOptions::new().name("typed.numbers");
    struct Numbers;
    impl Actor for Numbers {
        type Message = Reply<()>;
        fn handle(&mut self, reply: Reply<()>, _: &mut Context<'_, Reply<()>>) {
            reply.send(());
        }
    }
    let numbers = scheduler.spawn_actor_with(Numbers, options).unwrap();
    scheduler.send_named("typed.numbers", "a word").unwrap();
    Handle::<u8>::from_pid(numbers.pid()).tell(7).unwrap();
    assert!(matches!(scheduler.ask(numbers.pid(), 1_u64, Some(LONG)), Err(AskError::NoReply)));
    numbers.ask(|reply| reply, LONG).unwrap();
    assert_eq!(scheduler.stats().total().foreign_messages, 3);
    assert_eq!(scheduler.stats().total().dropped_messages, 0);
}

// ------------------------------------------------------------------ budgets

/// Also of an actor whose messages look like the notice.
#[test]
fn a_typed_budget_closes_its_topic_and_a_reset_opens_it() {
    struct Lists(mpsc::Sender<String>, mpsc::Receiver<()>);
    impl Actor for Lists {
        type Message = Vec<Payload>;
        fn handle(&mut self, message: Vec<Payload>, _: &mut Context<'_, Vec<Payload>>) {
            self.0.send(format!("list of {}", message.len())).unwrap();
            if message.is_empty() {
                self.1.recv().unwrap();
            }
        }
        fn event(&mut self, event: Event, cx: &mut Context<'_, Vec<Payload>>) {
            let Event::Message(message) = event else { panic!("{event:?}") };
            assert_eq!(message.overflow().map(|error| error.to_string()).as_deref(), {
                Some("message queue limit exceeded")
            });
            let lost = cx.raw().reset_queue().unwrap();
            self.0.send(format!("{:?} overflowed, lost {lost}", message.topic())).unwrap();
        }
    }
    let scheduler = Scheduler::builder().workers(1).start().unwrap();
    let (sender, receiver) = mpsc::channel();
    let (go, gate) = mpsc::channel();
    let lists = scheduler.spawn_actor(Lists(sender, gate)).unwrap();
    let lines = || receiver.recv_timeout(LONG).unwrap();
    let topic = Topic::new("typed.lists");
    let list = |length: usize| (0..length).map(|_| Payload::empty()).collect::<Vec<_>>();
    let within = |length| lists.tell_within(topic, Budget::items(2), list(length));
    lists.tell(list(0)).unwrap();
    assert_eq!(lines(), "list of 0");
    let dropped = Err(SendError::Dropped { pid: lists.pid(), topic });
    assert_eq!([within(1), within(2), within(3), within(4)], [Ok(()), Ok(()), dropped, dropped]);
    lists.tell(list(9)).unwrap();
    go.send(()).unwrap();
    assert_eq!(lines(), "list of 1");
    assert_eq!(lines(), "list of 2");
    assert_eq!(lines(), "\"typed.lists\" overflowed, lost 1");
    // Each holds its place till it is handled, and no longer.
    for length in 1..10 {
        assert_eq!(within(length), Ok(()), "the topic is open, and has room");
        assert_eq!(lines(), format!("list of {length}"));
    }
    assert_eq!(scheduler.stats().over_budget_outside, 2);
}
