//! Timers that actors set.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use evener::ScheduleId;
use evener::prelude::*;
use serde::{Deserialize, Serialize};

use crate::support::LONG;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    /// Set this timer.
    Set { id: String, millis: u64 },
    /// Set this one, and take it back at once.
    SetAndCancel { id: String },
    /// It fired. It is set so many times more.
    Fired { id: String, again: u32 },
}

/// What was heard, with the ids of the events of timers.
#[derive(Default, Clone, Serialize, Deserialize)]
struct Heard {
    fired: Vec<String>,
    ids: Vec<String>,
}

struct Alarm {
    ring: Mutex<Sender<()>>,
}

fn id(text: &str) -> ScheduleId {
    text.parse().unwrap()
}

fn fired(name: &str, again: u32) -> Event {
    Event::json("fired", &Word::Fired { id: name.to_owned(), again }).unwrap()
}

impl Actor for Alarm {
    type State = Heard;
    type Event = Word;

    fn definition(&self) -> ActorDefinition {
        ActorDefinition::new("alarm".parse().unwrap())
    }

    async fn process(&self, cx: &mut Context<Heard>, word: Word) -> Result<(), Failure> {
        match word {
            Word::Set { id: name, millis } => {
                let event = fired(&name, if name == "chain" { 2 } else { 0 });
                cx.schedule(id(&name), When::In(Duration::from_millis(millis)), event);
            }
            Word::SetAndCancel { id: name } => {
                cx.schedule(id(&name), When::In(Duration::ZERO), fired(&name, 0));
                cx.cancel_schedule(id(&name));
            }
            Word::Fired { id: name, again } => {
                if again > 0 {
                    cx.schedule(id(&name), When::At(evener::Timestamp(0)), fired(&name, again - 1));
                }
                let _ = self.ring.lock().unwrap().send(());
                let event = cx.event().id.to_string();
                cx.update(move |heard| {
                    heard.fired.push(name.clone());
                    heard.ids.push(event.clone());
                })?;
            }
        }
        Ok(())
    }
}

fn tell(runtime: &Runtime, word: &Word) {
    runtime.tell("alarm", "k", Event::json("word", word).unwrap()).unwrap();
}

fn start() -> (Runtime, Receiver<()>) {
    let (ring, rung) = channel();
    (Runtime::builder().store("memory").actor(Alarm { ring: Mutex::new(ring) }).start().unwrap(), rung)
}

/// Waits till the actor has heard of so many timers.
fn heard(runtime: &Runtime, rung: &Receiver<()>, count: usize) -> Heard {
    for number in 0..count {
        rung.recv_timeout(LONG).unwrap_or_else(|_| panic!("only {number} timers fired"));
    }
    runtime.wait_idle(LONG).unwrap();
    runtime.state("alarm", "k").unwrap().unwrap_or_default()
}

#[test]
fn each_timer_fires_once_and_one_that_is_taken_back_does_not() {
    let (runtime, rung) = start();
    for number in 0..1_100 {
        tell(&runtime, &Word::Set { id: format!("t{number}"), millis: number % 7 });
    }
    tell(&runtime, &Word::SetAndCancel { id: "never".to_owned() });
    tell(&runtime, &Word::Set { id: "later".to_owned(), millis: 3_600_000 });
    let heard = heard(&runtime, &rung, 1_100);
    let mut fired = heard.fired;
    fired.sort_unstable();
    let mut expected: Vec<String> = (0..1_100).map(|number| format!("t{number}")).collect();
    expected.sort_unstable();
    assert_eq!(fired, expected);
    let left = runtime.schedules(None, 10).unwrap();
    assert_eq!(left.iter().map(|schedule| schedule.id.as_str()).collect::<Vec<_>>(), ["later"]);
}

#[test]
fn a_timer_may_set_itself_again() {
    let (runtime, rung) = start();
    tell(&runtime, &Word::Set { id: "chain".to_owned(), millis: 0 });
    let heard = heard(&runtime, &rung, 3);
    assert_eq!(heard.fired, ["chain"; 3]);
    assert!(heard.ids.iter().all(|id| id.starts_with("chain/")), "{:?}", heard.ids);
    assert!(runtime.schedules(None, 10).unwrap().is_empty());
}
