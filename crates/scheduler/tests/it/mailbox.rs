//! Mailboxes and budgets against a plain model, and at sizes at which anything that is not constant time
//! or bounded would show.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use evener_scheduler::{
    Budget, Event, Events, InitContext, Message, Package, Payload, Pid, Process, ProcessError, ProcessState,
    Producer, QueueLimitExceeded, Scheduler, SendError, SpawnOptions, StepOutput, Terminal, Topic, TopicUse,
    send, topics_of,
};
use proptest::prelude::*;

use crate::support::{process, quiet_panics, recv, scheduler, state, until};

// ------------------------------------------------------------------ the plain model

/// What a receiver finds.
#[derive(Clone, Debug, PartialEq)]
enum Got {
    Plain(Topic, u32),
    /// The synthetic message: error, terminal.
    Overflow(Topic),
}

#[derive(Clone, Copy, Default)]
struct Limits {
    items: Option<usize>,
    bytes: Option<usize>,
}

#[derive(Default)]
struct ModelTopic {
    limits: Limits,
    items: usize,
    bytes: usize,
    high: usize,
    drops: u64,
    overflowed: bool,
}

/// Reservation: generation, topic, bytes.
type Reserved = Option<(u32, Topic, usize)>;

#[derive(Default)]
struct Model {
    generation: u32,
    topics: HashMap<Topic, ModelTopic>,
    queue: VecDeque<(Got, Reserved)>,
    /// Taken and not yet released.
    held: VecDeque<Reserved>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Answer {
    Accepted,
    Dropped,
    Stale,
}

impl Model {
    fn send(
        &mut self,
        topic: Topic,
        number: u32,
        bytes: usize,
        budget: Option<Limits>,
        terminal: bool,
    ) -> Answer {
        // A terminal takes no room, whatever budget it carries.
        let budget = budget.filter(|_| !terminal);
        let plain = Got::Plain(topic, number);
        let Some(budget) = budget else {
            match self.topics.get_mut(&topic) {
                Some(state) if state.overflowed => {
                    state.drops += 1;
                    return Answer::Dropped;
                }
                _ => self.queue.push_back((plain, None)),
            }
            return Answer::Accepted;
        };
        let state = self.topics.entry(topic).or_default();
        let tighter = |old: Option<usize>, new: Option<usize>| match (old, new) {
            (Some(old), Some(new)) => Some(old.min(new)),
            (old, new) => old.or(new),
        };
        state.limits.items = tighter(state.limits.items, budget.items);
        state.limits.bytes = tighter(state.limits.bytes, budget.bytes);
        if state.overflowed {
            state.drops += 1;
            return Answer::Dropped;
        }
        let fits = state.limits.items.is_none_or(|max| state.items < max)
            && state.limits.bytes.is_none_or(|max| state.bytes + bytes <= max);
        if !fits {
            state.overflowed = true;
            state.drops += 1;
            self.queue.push_back((Got::Overflow(topic), None));
            return Answer::Dropped;
        }
        state.items += 1;
        state.bytes += bytes;
        state.high = state.high.max(state.items);
        self.queue.push_back((plain, Some((self.generation, topic, bytes))));
        Answer::Accepted
    }

    fn release(&mut self, reserved: Reserved) {
        if let Some((generation, topic, bytes)) = reserved
            && generation == self.generation
        {
            let state = self.topics.get_mut(&topic).unwrap();
            state.items -= 1;
            state.bytes -= bytes;
        }
    }

    fn reset(&mut self) -> usize {
        self.generation += 1;
        self.topics.clear();
        let dropped = self.queue.len();
        self.queue.clear();
        dropped
    }
}

// ------------------------------------------------------------------ the process under test

/// What the receiver is to do in a step; it does it on a special message, so that a drain never happens by
/// itself.
enum Order {
    Nothing,
    /// Take so many, keep them.
    Take(usize),
    Reset,
    Upgrade,
    /// Drop so many of those kept, the oldest first; the rest by hand.
    Release(usize, bool),
}

/// The receiver's answer to an order.
enum Done {
    Took(Vec<Got>),
    Reset(usize),
    Other,
}

struct Receives {
    orders: Arc<std::sync::Mutex<VecDeque<Order>>>,
    answers: Sender<Done>,
    held: Arc<std::sync::Mutex<VecDeque<Message>>>,
    generation: u32,
}

fn open(message: &Message) -> Got {
    let topic = message.topic();
    if let Some(list) = message.payload().get::<Vec<Payload>>() {
        assert_eq!(list.len(), 2, "error and terminal, nothing else");
        assert!(list[0].is::<QueueLimitExceeded>() && list[1].is::<Terminal>());
        return Got::Overflow(topic);
    }
    let number = match message.payload().get::<u32>() {
        Some(number) => *number,
        None => {
            let bytes = message.payload().get::<Vec<u8>>().expect("a number or bytes");
            u32::from_le_bytes(bytes[..4].try_into().unwrap())
        }
    };
    Got::Plain(topic, number)
}

impl Process for Receives {
    fn init(&mut self, _: &InitContext, _: &str, _: Payload) -> Result<(), ProcessError> {
        Ok(())
    }
    fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        let order = self.orders.lock().unwrap().pop_front().unwrap_or(Order::Nothing);
        let done = match order {
            Order::Nothing => {
                // Not asked: leave everything where it is, and look again.
                out.continue_soon();
                return Ok(());
            }
            Order::Take(count) => {
                let mut took = Vec::new();
                for event in events.by_ref().take(count) {
                    if let Event::Message(message) = event {
                        took.push(open(&message));
                        self.held.lock().unwrap().push_back(message);
                    }
                }
                Done::Took(took)
            }
            Order::Reset => Done::Reset(out.reset_queue().expect("there are generations left")),
            Order::Upgrade => {
                let next = Receives {
                    orders: Arc::clone(&self.orders),
                    answers: self.answers.clone(),
                    held: Arc::clone(&self.held),
                    generation: self.generation + 1,
                };
                out.upgrade(next, "", Payload::empty());
                let _ = self.answers.send(Done::Other);
                return Ok(());
            }
            Order::Release(count, by_hand) => {
                for _ in 0..count {
                    let Some(mut message) = self.held.lock().unwrap().pop_front() else { break };
                    if by_hand {
                        message.release();
                        message.release();
                    }
                    drop(message);
                }
                Done::Other
            }
        };
        let _ = self.answers.send(done);
        out.continue_soon();
        Ok(())
    }
}

struct Subject {
    _scheduler: Scheduler,
    pid: Pid,
    orders: Arc<std::sync::Mutex<VecDeque<Order>>>,
    answers: Receiver<Done>,
    held: Arc<std::sync::Mutex<VecDeque<Message>>>,
}

impl Subject {
    fn new(events_per_step_max: u32) -> Self {
        let scheduler =
            Scheduler::builder().workers(1).events_per_step_max(events_per_step_max).start().unwrap();
        let (sender, answers) = channel();
        let orders = Arc::default();
        let held = Arc::default();
        let receives =
            Receives { orders: Arc::clone(&orders), answers: sender, held: Arc::clone(&held), generation: 0 };
        let pid = scheduler.spawn_wait(receives, SpawnOptions::new()).unwrap();
        Self { _scheduler: scheduler, pid, orders, answers, held }
    }

    fn order(&self, order: Order) -> Done {
        self.orders.lock().unwrap().push_back(order);
        recv(&self.answers)
    }
}

#[derive(Clone, Debug)]
enum Act {
    Send {
        topic: usize,
        bytes: Option<u8>,
        items_max: Option<u8>,
        bytes_max: Option<u8>,
        terminal: bool,
        bound: bool,
    },
    Take(usize),
    /// By the process, or by this thread; by drop, or by hand first.
    Release {
        count: usize,
        here: bool,
        by_hand: bool,
    },
    Reset,
    Bind,
    Upgrade,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        12 => (
            0..3_usize,
            proptest::option::of(4..40_u8),
            proptest::option::of(0..5_u8),
            proptest::option::of(0..80_u8),
            proptest::bool::weighted(0.1),
            proptest::bool::weighted(0.2),
        )
            .prop_map(|(topic, bytes, items_max, bytes_max, terminal, bound)| Act::Send {
                topic, bytes, items_max, bytes_max, terminal, bound
            }),
        4 => (0..7_usize).prop_map(Act::Take),
        4 => (1..4_usize, any::<bool>(), any::<bool>())
            .prop_map(|(count, here, by_hand)| Act::Release { count, here, by_hand }),
        1 => Just(Act::Reset),
        1 => Just(Act::Bind),
        1 => Just(Act::Upgrade),
    ]
}

fn topics() -> [Topic; 3] {
    [Topic::DEFAULT, Topic::new("mailbox.x"), Topic::new("mailbox.y")]
}

fn compare(acts: Vec<Act>, cap: u32) {
    let subject = Subject::new(cap);
    let topics = topics();
    let mut model = Model::default();
    let mut producer = (Producer::bind(subject.pid).unwrap(), 0);
    let answer = |result: Result<(), SendError>| match result {
        Ok(()) => Answer::Accepted,
        Err(SendError::Dropped { .. }) => Answer::Dropped,
        Err(SendError::Stale(_)) => Answer::Stale,
        Err(other) => panic!("{other}"),
    };
    for (number, act) in acts.into_iter().enumerate() {
        let number = number as u32;
        match act {
            Act::Send { topic, bytes, items_max, bytes_max, terminal, bound } => {
                let topic = topics[topic];
                let limits = (items_max.is_some() || bytes_max.is_some()).then_some(Limits {
                    items: items_max.map(usize::from),
                    bytes: bytes_max.map(usize::from),
                });
                let budget = match (items_max, bytes_max) {
                    (None, None) => None,
                    (Some(items), None) => Some(Budget::items(items.into())),
                    (None, Some(bytes)) => Some(Budget::bytes(bytes.into())),
                    (Some(items), Some(bytes)) => Some(Budget::items(items.into()).and_bytes(bytes.into())),
                };
                let payload = match bytes {
                    None => Payload::new(number),
                    Some(length) => {
                        let mut bytes = vec![0_u8; length.into()];
                        bytes[..4].copy_from_slice(&number.to_le_bytes());
                        Payload::new(bytes)
                    }
                };
                let weight = payload.weight();
                assert_eq!(weight, bytes.map_or(4, usize::from));
                if bound {
                    let expected = if producer.1 == model.generation {
                        model.send(topic, number, 4, limits, false)
                    } else {
                        Answer::Stale
                    };
                    assert_eq!(answer(producer.0.send_within(topic, number, budget)), expected, "{number}");
                } else {
                    let expected = model.send(topic, number, weight, limits, terminal);
                    let mut package = Package::with_payload(subject.pid, payload).topic(topic);
                    if let Some(budget) = budget {
                        package = package.budget(budget);
                    }
                    if terminal {
                        package = package.terminal();
                    }
                    assert_eq!(answer(send(package)), expected, "{number}");
                }
            }
            Act::Take(count) => {
                let Done::Took(mut got) = subject.order(Order::Take(count)) else { panic!("took") };
                // A drain takes what had been moved to the inbox when its turn began: at most `count` and
                // `cap`; it may need another turn to see what came since the last move.
                let target = count.min(cap as usize).min(model.queue.len());
                let deadline = Instant::now() + crate::support::LIMIT;
                while got.len() < target {
                    assert!(Instant::now() < deadline, "a message is lost: {got:?}");
                    let Done::Took(more) = subject.order(Order::Take(target - got.len())) else {
                        panic!("took")
                    };
                    got.extend(more);
                }
                let expected: Vec<_> = model.queue.drain(..target).collect();
                assert_eq!(got, expected.iter().map(|(got, _)| got.clone()).collect::<Vec<_>>());
                model.held.extend(expected.into_iter().map(|(_, reserved)| reserved));
            }
            Act::Release { count, here, by_hand } => {
                for _ in 0..count {
                    if let Some(reserved) = model.held.pop_front() {
                        model.release(reserved);
                    }
                }
                if here {
                    for _ in 0..count {
                        let Some(mut message) = subject.held.lock().unwrap().pop_front() else { break };
                        if by_hand {
                            message.release();
                        }
                        drop(message);
                    }
                } else {
                    subject.order(Order::Release(count, by_hand));
                }
            }
            Act::Reset => {
                let Done::Reset(dropped) = subject.order(Order::Reset) else { panic!("reset") };
                assert_eq!(dropped, model.reset());
            }
            Act::Bind => producer = (Producer::bind(subject.pid).unwrap(), model.generation),
            Act::Upgrade => drop(subject.order(Order::Upgrade)),
        }
        let uses: HashMap<Topic, TopicUse> = topics_of(subject.pid).into_iter().collect();
        for (topic, state) in &model.topics {
            let Some(real) = uses.get(topic) else { panic!("no account of {topic:?}") };
            let expected = TopicUse {
                items: state.items,
                bytes: state.bytes,
                drops: state.drops,
                items_high: state.high,
                max_items: state.limits.items,
                max_bytes: state.limits.bytes,
                has_overflowed: state.overflowed,
            };
            assert_eq!(*real, expected, "{topic:?} after act {number}");
        }
        assert_eq!(uses.len(), model.topics.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn queue_and_budgets_do_as_a_plain_model(acts in proptest::collection::vec(act(), 1..80), cap in 1..9_u32) {
        compare(acts, cap);
    }
}

// ------------------------------------------------------------------ single claims about budgets

/// A process that is closed to its messages till it is let go; then it gives what it finds.
fn gated(scheduler: &Scheduler) -> (Pid, Arc<AtomicBool>, Receiver<Got>) {
    let (sender, receiver) = channel();
    let go = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&go);
    let pid = scheduler
        .spawn(
            process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
                if !gate.load(SeqCst) {
                    out.continue_soon();
                    return Ok(());
                }
                for event in events.by_ref() {
                    if let Event::Message(message) = event {
                        sender.send(open(&message)).unwrap();
                    }
                }
                Ok(())
            }),
            SpawnOptions::new(),
        )
        .unwrap();
    (pid, go, receiver)
}

#[test]
fn a_budget_of_zero_overflows_at_once() {
    for budget in [Budget::items(0), Budget::bytes(0), Budget::items(5).and_bytes(0)] {
        let s = scheduler(1);
        let (pid, go, got) = gated(&s);
        let topic = Topic::new("mailbox.zero");
        let post = || send(Package::new(pid, 1_u32).topic(topic).budget(budget));
        assert_eq!(post(), Err(SendError::Dropped { pid, topic }));
        assert_eq!(post(), Err(SendError::Dropped { pid, topic }));
        // A terminal behind the overflow is discarded with the rest; another topic lives.
        assert!(send(Package::new(pid, 2_u32).topic(topic).terminal()).is_err());
        assert_eq!(send(Package::new(pid, 3_u32)), Ok(()));
        go.store(true, SeqCst);
        assert_eq!(recv(&got), Got::Overflow(topic));
        assert_eq!(recv(&got), Got::Plain(Topic::DEFAULT, 3));
        until("idle", || state(&s, pid) == Some(ProcessState::Idle));
        assert!(got.try_recv().is_err(), "nothing of that topic stands behind it");
    }
}

#[test]
fn what_is_dropped_wakes_too() {
    let s = scheduler(1);
    let (sender, receiver) = channel();
    let pid = s
        .spawn(
            process(move |events: &mut Events<'_>, _: &mut StepOutput<'_>| {
                events.by_ref().for_each(drop);
                sender.send(()).unwrap();
                Ok(())
            }),
            SpawnOptions::new(),
        )
        .unwrap();
    recv(&receiver);
    for _ in 0..3 {
        until("idle", || state(&s, pid) == Some(ProcessState::Idle));
        assert!(send(Package::new(pid, 1_u32).budget(Budget::items(0))).is_err());
        recv(&receiver);
    }
}

/// FC-016, in counts: X floods a budget that its receiver never frees in time; Y must not notice.
#[test]
fn one_topics_overflow_never_costs_another() {
    const BUDGET: usize = 1000;
    const SENDERS: usize = 4;
    const EACH: usize = 25_000;
    let s = scheduler(2);
    let (x, y) = (Topic::new("mailbox.flood"), Topic::new("mailbox.trickle"));
    let (y_sender, y_got) = channel();
    let (x_items, overflows) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (items, limits) = (Arc::clone(&x_items), Arc::clone(&overflows));
    let mut kept = Vec::new();
    let pid = s
        .spawn(
            process(move |events: &mut Events<'_>, _: &mut StepOutput<'_>| {
                for event in events.by_ref() {
                    let Event::Message(message) = event else { continue };
                    match open(&message) {
                        Got::Plain(topic, number) if topic == y => y_sender.send(number).unwrap(),
                        Got::Plain(..) => {
                            items.fetch_add(1, SeqCst);
                            kept.push(message);
                        }
                        Got::Overflow(topic) => {
                            assert_eq!(topic, x);
                            limits.fetch_add(1, SeqCst);
                        }
                    }
                }
                Ok(())
            }),
            SpawnOptions::new(),
        )
        .unwrap();
    let (accepted, dropped) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..SENDERS {
            scope.spawn(|| {
                for number in 0..EACH {
                    match send(Package::new(pid, number as u32).topic(x).budget(Budget::items(BUDGET))) {
                        Ok(()) => accepted.fetch_add(1, SeqCst),
                        Err(SendError::Dropped { topic, .. }) if topic == x => dropped.fetch_add(1, SeqCst),
                        Err(other) => panic!("{other}"),
                    };
                }
            });
        }
        scope.spawn(|| {
            for number in 0..1000_u32 {
                send(Package::new(pid, number).topic(y).budget(Budget::items(1000))).expect("Y has room");
            }
        });
    });
    for number in 0..1000_u32 {
        assert_eq!(recv(&y_got), number);
    }
    assert_eq!(accepted.load(SeqCst), BUDGET, "exactly the budget, never one more");
    assert_eq!(dropped.load(SeqCst), SENDERS * EACH - BUDGET);
    until("all of X arrived", || x_items.load(SeqCst) == BUDGET && overflows.load(SeqCst) == 1);
    let uses: HashMap<_, _> = topics_of(pid).into_iter().collect();
    assert_eq!(uses[&x].drops, (SENDERS * EACH - BUDGET) as u64);
    assert_eq!((uses[&x].items, uses[&x].items_high), (BUDGET, BUDGET));
    assert_eq!((uses[&y].items, uses[&y].drops), (0, 0));
}

#[test]
fn a_reservation_of_an_old_generation_changes_nothing() {
    let subject = Subject::new(100);
    let topic = Topic::new("mailbox.old");
    let post = |number: u32| send(Package::new(subject.pid, number).topic(topic).budget(Budget::items(2)));
    let items =
        || topics_of(subject.pid).iter().find(|(name, _)| *name == topic).map(|(_, state)| state.items);
    assert!(post(1).is_ok() && post(2).is_ok());
    while subject.held.lock().unwrap().len() < 2 {
        subject.order(Order::Take(2));
    }
    subject.order(Order::Reset);
    assert_eq!(items(), None, "a new generation has a clean account");
    assert!(post(3).is_ok() && post(4).is_ok());
    assert_eq!(items(), Some(2));
    // Two of the old generation, from another thread, by hand and by drop.
    let old: Vec<_> = subject.held.lock().unwrap().drain(..).collect();
    std::thread::spawn(move || drop(old)).join().unwrap();
    assert_eq!(items(), Some(2));
    assert!(post(5).is_err(), "the old ones gave no room");
    // And after the end of the process, in a later life of its slot.
    while subject.held.lock().unwrap().len() < 2 {
        subject.order(Order::Take(2));
    }
    let late: Vec<_> = subject.held.lock().unwrap().drain(..).collect();
    let pid = subject.pid;
    subject._scheduler.shutdown(Duration::ZERO);
    drop(late);
    assert!(topics_of(pid).is_empty());
}

#[test]
fn two_producers_that_overflow_at_once_leave_one_synthetic_message() {
    for _ in 0..300 {
        let s = scheduler(1);
        let (pid, go, got) = gated(&s);
        let topic = Topic::new("mailbox.race");
        let accepted = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for number in 0..8_u32 {
                        if send(Package::new(pid, number).topic(topic).budget(Budget::items(4))).is_ok() {
                            accepted.fetch_add(1, SeqCst);
                        }
                    }
                });
            }
        });
        go.store(true, SeqCst);
        let all: Vec<_> = (0..5).map(|_| recv(&got)).collect();
        assert_eq!(accepted.load(SeqCst), 4);
        assert_eq!(all[4], Got::Overflow(topic), "it stands behind all that was accepted: {all:?}");
        assert!(all[..4].iter().all(|got| matches!(got, Got::Plain(..))));
        drop(s);
    }
}

// ------------------------------------------------------------------ big mailboxes

/// One worker, which a step can hold: nobody stands in.
fn without_spares() -> Scheduler {
    quiet_panics();
    Scheduler::builder().workers(1).spares(0).start().unwrap()
}

/// FC-015: the depth is read in constant time, and is exact between two turns of the process, also while its
/// mailbox is being turned round.
#[test]
fn a_big_mailbox_is_looked_at_in_constant_time() {
    const MESSAGES: usize = 1_000_000;
    let s = Arc::new(without_spares());
    let (go, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (gate, taken) = (Arc::clone(&go), Arc::clone(&count));
    let mut next = 0_u32;
    let pid = s
        .spawn(
            process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
                if !gate.load(SeqCst) {
                    // Without a look at the events the inbox stays as it is, and the rest with the senders.
                    out.idle();
                    return Ok(());
                }
                for event in events.by_ref() {
                    if let Event::Message(message) = event {
                        assert_eq!(message.take::<u32>().unwrap(), next);
                        next += 1;
                        taken.fetch_add(1, SeqCst);
                    }
                }
                Ok(())
            }),
            SpawnOptions::new(),
        )
        .unwrap();
    until("idle", || state(&s, pid) == Some(ProcessState::Idle));
    let depth_by = move |s: &Scheduler| {
        s.list_processes().iter().find(|info| info.pid == pid).map_or(0, |info| info.mailbox_depth)
    };
    let look = |rounds: u32| {
        let began = Instant::now();
        for _ in 0..rounds {
            std::hint::black_box(depth_by(&s));
        }
        began.elapsed() / rounds
    };
    // The worker is held by another step, so that nothing is drained before its time.
    let (held_tx, held) = channel();
    let (let_go, wait) = channel::<()>();
    s.spawn_once(move |_| {
        held_tx.send(()).unwrap();
        wait.recv().unwrap();
    })
    .unwrap();
    recv(&held);
    for number in 0..10_u32 {
        send(Package::new(pid, number)).unwrap();
    }
    let small = (0..5).map(|_| look(1000)).min().unwrap();
    for number in 10..MESSAGES as u32 {
        send(Package::new(pid, number)).unwrap();
    }
    assert_eq!(depth_by(&s), MESSAGES);
    let big = (0..5).map(|_| look(1000)).min().unwrap();
    println!("a look at 10 messages takes {small:?}, at {MESSAGES} {big:?}");
    // A walk over a million messages would take milliseconds.
    assert!(big < small * 20 + Duration::from_micros(100), "{small:?} against {big:?}");
    // Another process of that worker looks in its own turns: then the big one is between two of its own.
    let (sender, receiver) = channel();
    let (inside, seen) = (Arc::downgrade(&s), Arc::clone(&count));
    s.spawn(
        process(move |_: &mut Events<'_>, out: &mut StepOutput<'_>| {
            let Some(s) = inside.upgrade() else { return Ok(()) };
            let (depth, taken) = (depth_by(&s), seen.load(SeqCst));
            sender.send((depth, taken)).unwrap();
            if depth > 0 {
                out.continue_soon();
            }
            Ok(())
        }),
        SpawnOptions::new(),
    )
    .unwrap();
    go.store(true, SeqCst);
    let_go.send(()).unwrap();
    let mut looks = 0;
    loop {
        let (depth, taken) = recv(&receiver);
        assert_eq!(depth + taken, MESSAGES, "after {looks} looks");
        looks += 1;
        if depth == 0 {
            break;
        }
    }
    println!("{looks} looks while it was turned round and drained, all of them exact");
    assert!(looks > 100);
}

/// A mailbox of a million messages is turned round over many turns: the others of its worker run between.
#[test]
fn a_big_mailbox_delays_its_owner_and_not_the_others() {
    const MESSAGES: u32 = 1_000_000;
    /// `TURN_ROUND_MAX` of `src/process/event_queue.rs`.
    const TURN_ROUND: u32 = 1 << 15;
    let s = without_spares();
    let (taken, going, stop) =
        (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let steps = Arc::new(AtomicU64::new(0));
    // Another process of the same worker, which is always ready.
    let (counted, seen, gone, end) =
        (Arc::clone(&steps), Arc::clone(&taken), Arc::clone(&going), Arc::clone(&stop));
    s.spawn(
        process(move |_: &mut Events<'_>, out: &mut StepOutput<'_>| {
            if gone.load(SeqCst) && seen.load(SeqCst) == 0 {
                counted.fetch_add(1, SeqCst);
            }
            if !end.load(SeqCst) {
                out.continue_soon();
            }
            Ok(())
        }),
        SpawnOptions::new(),
    )
    .unwrap();
    let (begun_tx, begun) = channel();
    let (go, go_rx) = channel::<()>();
    let (count, gone) = (Arc::clone(&taken), Arc::clone(&going));
    let mut held = false;
    let big = s
        .spawn(
            process(move |events: &mut Events<'_>, _: &mut StepOutput<'_>| {
                if !std::mem::replace(&mut held, true) {
                    begun_tx.send(()).unwrap();
                    go_rx.recv().unwrap();
                    gone.store(true, SeqCst);
                }
                count.fetch_add(events.by_ref().count() as u64, SeqCst);
                Ok(())
            }),
            SpawnOptions::new(),
        )
        .unwrap();
    recv(&begun);
    // The worker is held in a step while a million messages come.
    for number in 0..MESSAGES {
        send(Package::new(big, number)).unwrap();
    }
    go.send(()).unwrap();
    until("all taken", || taken.load(SeqCst) == u64::from(MESSAGES));
    stop.store(true, SeqCst);
    let steps = steps.load(SeqCst);
    println!("{steps} turns of another process while a million messages were turned round");
    assert!(steps >= u64::from(MESSAGES / TURN_ROUND), "only {steps} turns between");
}

/// By its own steps, by steps of another host, by a thread: always with the receiver's host.
#[test]
fn what_a_budget_turns_away_is_counted_with_the_receiver() {
    let (own, other) = (scheduler(1), scheduler(1));
    let pid = own.spawn(process(|_, _| Ok(())), SpawnOptions::new()).unwrap();
    let post =
        move || send(Package::new(pid, 1_u32).topic(Topic::new("mailbox.away")).budget(Budget::items(0)));
    let (done, posted) = channel();
    for (scheduler, times) in [(&own, 3), (&other, 5)] {
        let done = done.clone();
        scheduler
            .spawn_once(move |_| {
                let refused = (0..times).filter(|_| post().is_err()).count();
                done.send(refused).unwrap();
            })
            .unwrap();
        assert_eq!(recv(&posted), times);
    }
    assert!(post().is_err());
    assert_eq!((own.stats().total().over_budget, own.stats().over_budget_outside), (3, 6));
    assert_eq!((other.stats().total().over_budget, other.stats().over_budget_outside), (0, 0));
    assert_eq!(topics_of(pid).iter().map(|(_, state)| state.drops).sum::<u64>(), 9);
}
