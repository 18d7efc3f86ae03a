//! Actors and waits that several tests use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use evener::prelude::*;
use serde::{Deserialize, Serialize};

/// How long a test waits for what must happen.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// The state of [`Recorder`]: what it was given, in order.
#[derive(Serialize, Deserialize, Default, Clone, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) seen: Vec<u64>,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub(crate) struct Item {
    pub(crate) number: u64,
}

/// What [`Recorder`] does with an item.
pub(crate) type Act = dyn Fn(&Item, u32) -> Result<(), Failure> + Send + Sync;

/// Writes the numbers of its events down.
pub(crate) struct Recorder {
    pub(crate) definition: ActorDefinition,
    pub(crate) calls: Arc<AtomicU64>,
    pub(crate) act: Arc<Act>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { definition: recorder(), calls: Arc::default(), act: Arc::new(|_, _| Ok(())) }
    }

    pub(crate) fn acting(act: impl Fn(&Item, u32) -> Result<(), Failure> + Send + Sync + 'static) -> Self {
        Self { act: Arc::new(act), ..Self::new() }
    }

    pub(crate) fn define(mut self, change: impl FnOnce(&mut ActorDefinition)) -> Self {
        change(&mut self.definition);
        self
    }
}

fn recorder() -> ActorDefinition {
    let subject = Path::new("subject").unwrap();
    ActorDefinition::new("recorder".parse().unwrap())
        .subscribe(Subscription::new("items".parse().unwrap(), subject))
        .retry(RetryPolicy { backoff_ms: 1, backoff_max_ms: 20, max_attempts: 5, ..RetryPolicy::default() })
}

impl Actor for Recorder {
    type State = Record;
    type Event = Item;
    fn definition(&self) -> ActorDefinition {
        self.definition.clone()
    }
    async fn process(&self, cx: &mut Context<Record>, item: Item) -> Result<(), Failure> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        (self.act)(&item, cx.attempt())?;
        cx.update(move |record| record.seen.push(item.number))?;
        Ok(())
    }
}

pub(crate) fn item(key: &str, number: u64) -> Event {
    Event::json("item", &Item { number }).unwrap().with_subject(key)
}

pub(crate) fn seen(runtime: &Runtime, key: &str) -> Vec<u64> {
    runtime.state::<Record>("recorder", key).unwrap().unwrap_or_default().seen
}
