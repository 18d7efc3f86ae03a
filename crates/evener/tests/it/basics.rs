//! The way of an event, from the append to its commit.

use std::sync::atomic::Ordering;

use evener::prelude::*;
use evener::{AppendError, StreamName};

use crate::support::{Item, LONG, Record, Recorder, item, seen};

#[test]
fn events_of_a_key_are_applied_once_and_in_order() {
    let recorder = Recorder::new();
    let calls = recorder.calls.clone();
    let runtime = Runtime::builder().store("memory").actor(recorder).start().unwrap();
    let keys = ["a", "b", "c"];
    for number in 0..600 {
        runtime.append("items", item(keys[number as usize % 3], number)).unwrap();
    }
    runtime.wait_idle(LONG).unwrap();
    for (at, key) in keys.iter().enumerate() {
        let expected: Vec<u64> = (0..600).filter(|number| *number as usize % 3 == at).collect();
        assert_eq!(seen(&runtime, key), expected, "{key}");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 600);
    runtime.stop(LONG).unwrap();
}

#[test]
fn a_bulk_append_keeps_its_order() {
    let runtime = Runtime::builder().store("memory").actor(Recorder::new()).start().unwrap();
    let accepted = runtime.append_all("items", (0..5_000).map(|number| item("k", number)).collect()).unwrap();
    assert!(accepted.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    runtime.wait_idle(LONG).unwrap();
    assert_eq!(seen(&runtime, "k"), (0..5_000).collect::<Vec<_>>());
}

#[test]
fn a_failed_call_leaves_nothing_and_is_tried_again_in_its_place() {
    let recorder =
        Recorder::acting(
            |item, attempt| {
                if item.number == 3 && attempt < 3 { Err(Failure::new("not yet")) } else { Ok(()) }
            },
        );
    let calls = recorder.calls.clone();
    let runtime = Runtime::builder().store("memory").actor(recorder).start().unwrap();
    runtime.append_all("items", (0..10).map(|number| item("k", number)).collect()).unwrap();
    runtime.wait_idle(LONG).unwrap();
    assert_eq!(seen(&runtime, "k"), (0..10).collect::<Vec<_>>());
    assert_eq!(calls.load(Ordering::SeqCst), 12);
    assert_eq!(runtime.counts().errors, 2);
}

#[test]
fn what_fails_for_good_is_a_dead_letter_and_can_be_driven_again() {
    use std::sync::atomic::AtomicBool;
    static IS_MENDED: AtomicBool = AtomicBool::new(false);
    let recorder = Recorder::acting(|item, _| {
        if item.number == 1 && !IS_MENDED.load(Ordering::SeqCst) {
            Err(Failure::new("broken"))
        } else {
            Ok(())
        }
    });
    let runtime = Runtime::builder().store("memory").actor(recorder).start().unwrap();
    runtime.append_all("items", (0..3).map(|number| item("k", number)).collect()).unwrap();
    runtime.wait_idle(LONG).unwrap();
    assert_eq!(seen(&runtime, "k"), [0, 2]);
    let letters = runtime.dead_letters(Some("recorder"), 0, 10).unwrap();
    assert_eq!((letters.len(), letters[0].attempts, &*letters[0].error), (1, 5, "broken"));
    IS_MENDED.store(true, Ordering::SeqCst);
    assert_eq!(runtime.redrive(&[letters[0].id]).unwrap(), 1);
    runtime.wait_idle(LONG).unwrap();
    assert_eq!(seen(&runtime, "k"), [0, 2, 1]);
    assert!(runtime.dead_letters(None, 0, 10).unwrap().is_empty());
}

#[test]
fn a_panic_fails_its_call_alone() {
    let recorder = Recorder::acting(|item, attempt| {
        assert!(item.number != 1 || attempt > 1, "one is too many");
        Ok(())
    });
    let runtime = Runtime::builder().store("memory").actor(recorder).start().unwrap();
    runtime.append_all("items", (0..3).map(|number| item("k", number)).collect()).unwrap();
    runtime.wait_idle(LONG).unwrap();
    assert_eq!(seen(&runtime, "k"), [0, 1, 2]);
}

/// Passes what it hears on to a stream and to another instance.
struct Forwarder;

impl Actor for Forwarder {
    type State = ();
    type Event = Item;
    fn definition(&self) -> ActorDefinition {
        ActorDefinition::new("forwarder".parse().unwrap())
            .subscribe(Subscription::new("raw".parse().unwrap(), Path::new("subject").unwrap()))
    }
    async fn process(&self, cx: &mut Context<()>, item: Item) -> Result<(), Failure> {
        let stream: StreamName = "items".parse()?;
        cx.emit(stream, crate::support::item("emitted", item.number));
        cx.send("recorder".parse()?, "sent".parse()?, crate::support::item("-", item.number));
        Ok(())
    }
}

#[test]
fn what_a_call_emits_and_sends_arrives_once() {
    let runtime = Runtime::builder().store("memory").actor(Recorder::new()).actor(Forwarder).start().unwrap();
    runtime.append_all("raw", (0..100).map(|number| item("k", number)).collect()).unwrap();
    runtime.wait_idle(LONG).unwrap();
    assert_eq!(seen(&runtime, "emitted"), (0..100).collect::<Vec<_>>());
    assert_eq!(seen(&runtime, "sent"), (0..100).collect::<Vec<_>>());
}

#[test]
fn the_same_id_again_is_the_same_event() {
    let runtime = Runtime::builder().store("memory").actor(Recorder::new()).start().unwrap();
    let event = || item("k", 1).with_id("one").with_source("test");
    let first = runtime.append("items", event()).unwrap();
    runtime.wait_idle(LONG).unwrap();
    let second = runtime.append("items", event()).unwrap();
    assert_eq!(second.seq, first.seq);
    assert_eq!(second.duplicate, Some(evener::Fate::Done));
    let other = runtime.append("items", item("k", 2).with_id("one").with_source("test"));
    assert_eq!(other, Err(AppendError::Conflict { index: 0, seq: first.seq }));
    runtime.wait_idle(LONG).unwrap();
    assert_eq!(seen(&runtime, "k"), [1]);
}

#[test]
fn what_cannot_come_in_is_refused_with_its_place() {
    let runtime = Runtime::builder().store("memory").actor(Recorder::new()).start().unwrap();
    let error =
        runtime.append_all("items", vec![item("k", 1), Event::new("t", "{\"a\":\"\\ud800\"}")]).unwrap_err();
    assert!(error.to_string().starts_with("event 1: "), "{error}");
    assert!(matches!(runtime.append("", item("k", 1)), Err(AppendError::Name(_))));
    assert!(matches!(runtime.tell("nobody", "k", item("k", 1)), Err(AppendError::NoActor(_))));
    let large = Event::new("t", format!("\"{}\"", "x".repeat(2 << 20)));
    assert!(runtime.append("items", large).unwrap_err().to_string().contains("at most 1048576"));
    assert_eq!(runtime.counts().appended, 0);
}

#[test]
fn an_event_that_its_actor_cannot_read_says_where() {
    let runtime = Runtime::builder().store("memory").actor(Recorder::new()).start().unwrap();
    runtime.tell("recorder", "k", Event::new("item", "{\"number\":\"seven\"}")).unwrap();
    runtime.wait_idle(LONG).unwrap();
    let letters = runtime.dead_letters(None, 0, 10).unwrap();
    assert!(
        letters[0].error.starts_with("the event's data cannot be read: at number:"),
        "{}",
        letters[0].error
    );
}

#[test]
fn a_stopped_runtime_gives_its_instances_back_and_loses_nothing() {
    let clock = || evener::Timestamp(0);
    let store = std::sync::Arc::new(evener_store::Memory::new(clock));
    let open = || evener::Store::Open(store.clone());
    let runtime = Runtime::builder().store(open()).actor(Recorder::new()).start().unwrap();
    runtime.append_all("items", (0..1_000).map(|number| item("k", number)).collect()).unwrap();
    runtime.stop(LONG).unwrap();
    let runtime = Runtime::builder().store(open()).actor(Recorder::new()).start().unwrap();
    runtime.wait_idle(LONG).unwrap();
    assert_eq!(seen(&runtime, "k"), (0..1_000).collect::<Vec<_>>());
    let instance = runtime.instance("recorder", "k").unwrap().unwrap();
    assert_eq!(instance.view.version.0, 1_000);
    let _: Record = runtime.state("recorder", "k").unwrap().unwrap();
}
