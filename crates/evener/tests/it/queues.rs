//! Order, groups, limits, custom choice; pauses, timers, broadcasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use evener::prelude::*;
use evener::{Destination, Offer, QueueId, ScheduleAnswer, Target};

use crate::support::{Item, LONG, Record, Recorder, item, seen};

/// An item with a group and a priority.
fn placed(key: &str, number: u64, group: &str, priority: i32) -> Event {
    let data = serde_json::json!({ "number": number, "group": group, "priority": priority });
    Event::json("item", &data).unwrap().with_subject(key)
}

fn paused(recorder: Recorder) -> Runtime {
    let runtime = Runtime::builder().store("memory").actor(recorder).start().unwrap();
    assert!(runtime.pause("recorder", None).unwrap());
    runtime
}

fn resume(runtime: &Runtime) {
    assert!(runtime.resume("recorder", None).unwrap());
    runtime.wait_idle(LONG).unwrap();
}

#[test]
fn the_greatest_priority_is_first_and_equal_ones_keep_their_order() {
    let recorder = Recorder::new().define(|definition| {
        definition.queue.mode = QueueMode::Priority;
        definition.subscribe[0].priority = Some(Path::new("data.priority").unwrap());
    });
    let runtime = paused(recorder);
    for number in 0..12 {
        let priority = [0, 5, i32::MAX, i32::MIN][number as usize % 4];
        runtime.append("items", placed("k", number, "", priority)).unwrap();
    }
    resume(&runtime);
    assert_eq!(seen(&runtime, "k"), [2, 6, 10, 1, 5, 9, 0, 4, 8, 3, 7, 11]);
}

#[test]
fn lifo_takes_the_newest_first() {
    let runtime = paused(Recorder::new().define(|definition| definition.queue.mode = QueueMode::Lifo));
    runtime.append_all("items", (0..200).map(|number| item("k", number)).collect()).unwrap();
    resume(&runtime);
    assert_eq!(seen(&runtime, "k"), (0..200).rev().collect::<Vec<_>>());
}

#[test]
fn latest_takes_only_the_newest_of_each_group() {
    let recorder = Recorder::new().define(|definition| {
        definition.queue.mode = QueueMode::Latest;
        definition.subscribe[0].group = Some(Path::new("data.group").unwrap());
    });
    let calls = recorder.calls.clone();
    let runtime = paused(recorder);
    let groups = ["a", "b", "c"];
    let events = (0..3_000).map(|number| placed("k", number, groups[number as usize % 3], 0)).collect();
    runtime.append_all("items", events).unwrap();
    resume(&runtime);
    let mut seen = seen(&runtime, "k");
    seen.sort_unstable();
    assert_eq!(seen, [2997, 2998, 2999]);
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    assert_eq!(runtime.instance("recorder", "k").unwrap().unwrap().waiting, 0);
}

/// Counts how many of its calls run at once, in each group.
struct Crowd {
    groups: Arc<[(AtomicUsize, AtomicUsize); 3]>,
    limit: u32,
}

impl Actor for Crowd {
    type State = u64;
    type Event = serde_json::Value;
    fn definition(&self) -> ActorDefinition {
        let mut subscription = Subscription::new("items".parse().unwrap(), Path::new("subject").unwrap());
        subscription.group = Some(Path::new("data.group").unwrap());
        ActorDefinition::new("crowd".parse().unwrap())
            .subscribe(subscription)
            .queue(QueuePolicy { concurrency: self.limit, ..QueuePolicy::default() })
    }
    async fn process(&self, cx: &mut Context<u64>, event: serde_json::Value) -> Result<(), Failure> {
        let group = event["group"].as_str().unwrap().parse::<usize>()?;
        let (running, most) = &self.groups[group];
        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        cx.sleep(Duration::from_millis(1)).await;
        cx.update(|count| *count += 1)?;
        running.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn calls_of_a_group_never_pass_its_limit_and_concurrent_updates_all_count() {
    let groups: Arc<[(AtomicUsize, AtomicUsize); 3]> = Arc::default();
    let crowd = Crowd { groups: groups.clone(), limit: 3 };
    let runtime = Runtime::builder().store("memory").actor(crowd).start().unwrap();
    let events = (0..300).map(|number| placed("k", number, &(number % 3).to_string(), 0)).collect();
    runtime.append_all("items", events).unwrap();
    runtime.wait_idle(LONG).unwrap();
    for (running, most) in &*groups {
        assert_eq!((running.load(Ordering::SeqCst), most.load(Ordering::SeqCst)), (0, 3));
    }
    assert_eq!(runtime.state::<u64>("crowd", "k").unwrap(), Some(300));
}

/// Takes the odd numbers first, from what it is offered.
struct Picky(Arc<AtomicU64>);

impl Actor for Picky {
    type State = Record;
    type Event = Item;
    fn definition(&self) -> ActorDefinition {
        let mut definition = ActorDefinition::new("picky".parse().unwrap());
        definition.queue.mode = QueueMode::Custom;
        definition
    }
    async fn process(&self, cx: &mut Context<Record>, item: Item) -> Result<(), Failure> {
        cx.update(move |record| record.seen.push(item.number))?;
        Ok(())
    }
    fn select(&self, state: &Record, offers: &[Offer]) -> Result<Vec<QueueId>, Failure> {
        if self.0.fetch_add(1, Ordering::SeqCst) == 0 {
            return Err(Failure::new("not today"));
        }
        assert!(state.seen.len() < 10 && offers.len() <= 256);
        let best = offers.iter().max_by_key(|offer| (offer.kind.as_deref() == Some("odd"), -offer.id.0));
        Ok(best.map(|offer| offer.id).into_iter().collect())
    }
}

#[test]
fn an_actor_chooses_for_itself_and_a_failed_choice_is_asked_for_again() {
    let runtime = Runtime::builder().store("memory").actor(Picky(Arc::default())).start().unwrap();
    runtime.pause("picky", None).unwrap();
    for number in 0..10 {
        let kind = if number % 2 == 1 { "odd" } else { "even" };
        runtime.tell("picky", "k", Event::json(kind, &Item { number }).unwrap()).unwrap();
    }
    runtime.resume("picky", None).unwrap();
    runtime.wait_idle(LONG).unwrap();
    let record: Record = runtime.state("picky", "k").unwrap().unwrap();
    assert_eq!(record.seen, [1, 3, 5, 7, 9, 0, 2, 4, 6, 8]);
}

#[test]
fn a_paused_instance_waits_and_others_go_on() {
    let runtime = Runtime::builder().store("memory").actor(Recorder::new()).start().unwrap();
    assert!(runtime.pause("recorder", Some("a")).unwrap());
    assert!(!runtime.pause("recorder", Some("a")).unwrap());
    runtime.append_all("items", vec![item("a", 1), item("b", 2)]).unwrap();
    let waits = || seen(&runtime, "b") == [2];
    wait_for(waits);
    assert!(seen(&runtime, "a").is_empty());
    assert!(runtime.resume("recorder", Some("a")).unwrap());
    runtime.wait_idle(LONG).unwrap();
    assert_eq!(seen(&runtime, "a"), [1]);
}

fn wait_for(holds: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !holds() {
        assert!(begin.elapsed() < LONG, "it never came");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_schedule_fires_once_and_its_event_is_like_any_other() {
    let runtime = Runtime::builder().store("memory").actor(Recorder::new()).start().unwrap();
    let to =
        |key: &str| Destination::Instance { actor: "recorder".parse().unwrap(), key: key.parse().unwrap() };
    let soon = When::In(Duration::from_millis(30));
    assert_eq!(runtime.schedule("one", soon.clone(), to("k"), item("-", 1)).unwrap(), ScheduleAnswer::Set);
    assert_eq!(runtime.schedule("one", soon, to("k"), item("-", 1)).unwrap(), ScheduleAnswer::Unchanged);
    let stream = Destination::Stream("items".parse().unwrap());
    runtime.schedule("two", When::At(evener::Timestamp(0)), stream, item("s", 2)).unwrap();
    let later = When::In(Duration::from_secs(3600));
    runtime.schedule("three", later, to("k"), item("-", 3)).unwrap();
    assert_eq!(runtime.cancel_schedule("three").unwrap(), ScheduleAnswer::Cancelled);
    assert_eq!(runtime.cancel_schedule("three").unwrap(), ScheduleAnswer::NotThere);
    wait_for(|| seen(&runtime, "k") == [1] && seen(&runtime, "s") == [2]);
    assert!(runtime.schedules(None, 10).unwrap().is_empty());
    assert_eq!(runtime.counts().fired, 2);
}

#[test]
fn a_broadcast_reaches_every_instance_in_order() {
    let recorder = Recorder::new().define(|definition| {
        definition.subscribe.push(Subscription {
            key: Target::Broadcast,
            ..Subscription::new("all".parse().unwrap(), Path::new("subject").unwrap())
        });
    });
    let runtime = Runtime::builder().store("memory").actor(recorder).start().unwrap();
    let keys: Vec<String> = (0..300).map(|number| format!("k{number}")).collect();
    runtime.append_all("items", keys.iter().map(|key| item(key, 0)).collect()).unwrap();
    runtime.wait_idle(LONG).unwrap();
    for number in 1..=40 {
        runtime.append("all", item("-", number)).unwrap();
    }
    wait_for(|| keys.iter().all(|key| seen(&runtime, key).len() == 41));
    for key in &keys {
        assert_eq!(seen(&runtime, key), (0..=40).collect::<Vec<_>>(), "{key}");
    }
}

#[test]
fn an_event_without_a_key_is_parked_and_told() {
    let runtime = Runtime::builder().store("memory").actor(Recorder::new()).start().unwrap();
    runtime.append("items", Event::new("item", "{\"number\":1}")).unwrap();
    let parked = runtime.parked(0, 10).unwrap();
    assert_eq!(parked.len(), 1);
    assert_eq!(parked[0].reason, "no key at `subject`");
}

/// Emits what it hears into the stream that it hears.
struct Echo(Arc<AtomicU64>);

impl Actor for Echo {
    type State = ();
    type Event = serde_json::Value;
    fn definition(&self) -> ActorDefinition {
        ActorDefinition::new("echo".parse().unwrap())
            .subscribe(Subscription::new("echoes".parse().unwrap(), Path::new("subject").unwrap()))
    }
    async fn process(&self, cx: &mut Context<()>, _: serde_json::Value) -> Result<(), Failure> {
        self.0.fetch_add(1, Ordering::SeqCst);
        cx.emit("echoes".parse()?, Event::new("echo", "null").with_subject("k"));
        Ok(())
    }
}

#[test]
fn a_circle_of_emits_ends_in_the_car_park() {
    let calls = Arc::<AtomicU64>::default();
    let runtime = Runtime::builder().store("memory").actor(Echo(calls.clone())).start().unwrap();
    runtime.append("echoes", Event::new("echo", "null").with_subject("k")).unwrap();
    wait_for(|| runtime.parked(0, 10).unwrap().len() == 1);
    assert_eq!(calls.load(Ordering::SeqCst), 65);
    assert!(runtime.parked(0, 10).unwrap()[0].reason.starts_with("65 events led to it"));
}
