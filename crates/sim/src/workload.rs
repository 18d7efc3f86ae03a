//! What a world is given to do, from its seed: numbers, actors, events, and how each call of them goes.
//!
//! What an event does is a function of the seed and of its own number (its *nonce*), which it carries in its
//! data; so the oracle knows what must follow from it without asking the runtime. How a call ends depends on its
//! attempt, too.

use std::time::Duration;

use evener_actor::definition::{ActorDefinition, Path, Subscription};
use evener_actor::policy::{OnExhausted, QueueMode, QueuePolicy, RetryPolicy};
use evener_runtime::Config;
use serde::{Deserialize, Serialize};

use crate::dice::{Dice, mix};

/// Which faults there are, in thousandths of what they could hit.
#[derive(Debug, Clone, Default)]
pub(crate) struct FaultRates {
    /// Calls of the store that do nothing and say so.
    pub(crate) away: u32,
    pub(crate) busy: u32,
    /// Writes whose answer is lost: they were done, or not, or are done later.
    pub(crate) lost_after: u32,
    pub(crate) lost_before: u32,
    pub(crate) late: u32,
    /// Calls of the store during which the world goes on.
    pub(crate) window: u32,
    /// Calls during which the worker stands still for long.
    pub(crate) pause_inside: u32,
    /// Of all actions.
    pub(crate) crash: u32,
    pub(crate) pause: u32,
    pub(crate) stop: u32,
    pub(crate) outage: u32,
    pub(crate) starve: u32,
    pub(crate) stray_note: u32,
    /// Of actions: a dead letter is put back, a blocked row is tried again.
    pub(crate) redrive: u32,
    /// Of notes.
    pub(crate) note_lost: u32,
    pub(crate) note_doubled: u32,
    /// Of actions: time passes although there is something to do.
    pub(crate) time: u32,
}

/// What a world is made of.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) hosts: usize,
    /// Events from outside.
    pub(crate) appends: u32,
    pub(crate) keys: u64,
    pub(crate) groups: u64,
    pub(crate) actors: Vec<ActorDefinition>,
    pub(crate) faults: FaultRates,
    pub(crate) is_calm: bool,
    /// How often calls fail, in thousandths.
    pub(crate) failing: u32,
    pub(crate) chains: u64,
    pub(crate) slow_ms: u64,
    pub(crate) config: Config,
}

pub(crate) const STREAMS: [&str; 2] = ["orders", "parts"];

impl Setup {
    pub(crate) fn of(seed: u64, modes: &[QueueMode]) -> Self {
        let mut dice = Dice::new(mix(seed, 0x5e7));
        let is_calm = dice.permille(150);
        let hosts = if is_calm && dice.permille(700) { 1 } else { dice.pick(&[1, 2, 2, 3, 4]) };
        let keys = dice.pick(&[1, 2, 3, 8]);
        let groups = dice.pick(&[0, 0, 2, 4]);
        let actors =
            (0..dice.pick(&[1, 2, 2, 3])).map(|number| actor(&mut dice, number, groups, modes)).collect();
        // Some worlds have one kind of fault often, others a little of each.
        let mut some = |rates: &[u32]| if dice.permille(400) { 0 } else { dice.pick(rates) };
        let faults = if is_calm {
            FaultRates { window: some(&[50, 200]), time: some(&[5, 30]), ..FaultRates::default() }
        } else {
            FaultRates {
                away: some(&[5, 30, 100]),
                busy: some(&[10, 50]),
                lost_after: some(&[10, 50, 200]),
                lost_before: some(&[10, 50, 100]),
                late: some(&[100, 500, 1000]),
                window: some(&[30, 100, 300]),
                pause_inside: some(&[1, 3, 10]),
                crash: some(&[1, 2, 5]),
                pause: some(&[1, 2, 4]),
                stop: some(&[1, 2]),
                outage: some(&[1]),
                starve: some(&[2, 10]),
                stray_note: some(&[2, 20]),
                redrive: some(&[2, 10]),
                note_lost: some(&[100, 1000]),
                note_doubled: some(&[100]),
                time: some(&[5, 20, 60]),
            }
        };
        let config = Config {
            commit_lanes: dice.pick(&[1, 1, 2, 3]),
            append_lanes: dice.pick(&[1, 1, 2]),
            calls_max: dice.pick(&[1, 2, 5, 10_000, 10_000]),
            active_max: dice.pick(&[1, 2, 5, 10_000, 10_000]),
            linger: dice.pick(&[Duration::ZERO, Duration::from_millis(50), Duration::from_secs(5)]),
            event_bytes_max: dice.pick(&[100, 2_000, 64 * 1024 * 1024, 64 * 1024 * 1024]),
            outcome_bytes_max: dice.pick(&[300, 2_000, 128 * 1024 * 1024, 128 * 1024 * 1024]),
            batch_events_max: dice.pick(&[1, 3, 16, 1024, 1024]),
            batch_bytes_max: dice.pick(&[500, 8 * 1024 * 1024, 8 * 1024 * 1024]),
            depth_max: dice.pick(&[1, 2, 64, 64]),
            ..Config::default()
        };
        Self {
            seed,
            hosts,
            appends: dice.pick(&[10, 30, 80, 150]),
            keys,
            groups,
            actors,
            faults,
            is_calm,
            failing: dice.pick(&[0, 0, 50, 200, 400]),
            chains: dice.pick(&[0, 1, 3]),
            slow_ms: dice.pick(&[0, 5, 200, 5_000]),
            config,
        }
    }
}

fn actor(dice: &mut Dice, number: u64, groups: u64, modes: &[QueueMode]) -> ActorDefinition {
    let name = format!("actor-{number}").parse().expect("a name");
    let key = || Path::new("data.k").expect("a path");
    let stream = |name: &str| name.parse().expect("a name");
    let mut subscription = Subscription::new(stream(STREAMS[number as usize % 2]), key());
    if groups > 0 {
        subscription.group = Some(Path::new("data.g").expect("a path"));
    }
    let mut definition = ActorDefinition::new(name);
    if number == 2 {
        let mut both = subscription.clone();
        both.stream = stream(STREAMS[1]);
        definition = definition.subscribe(both);
    }
    let mode = dice.pick(modes);
    // Elsewhere a drain that keeps the slot of a blocked row does not learn of a command without word of it.
    let may_block = mode == QueueMode::Fifo && dice.permille(330);
    definition
        .subscribe(subscription)
        .queue(QueuePolicy {
            mode,
            concurrency: dice.pick(&[1, 1, 2, 4]),
            instance_max: dice.pick(&[1, 2, 64, 64]),
            run_ahead: dice.pick(&[0, 1, 3, 16, 64, 64]),
        })
        .retry(RetryPolicy {
            max_attempts: dice.pick(&[1, 2, 3, 20]),
            backoff_ms: dice.pick(&[0, 10, 1_000]),
            backoff_max_ms: 20_000,
            timeout_ms: dice.pick(&[0, 2_000, 30_000]),
            max_crashes: dice.pick(&[1, 3]),
            on_exhausted: if may_block { OnExhausted::Block } else { OnExhausted::DeadLetter },
        })
}

/// The data of every event.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Body {
    /// The event's own number.
    pub(crate) n: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) k: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) g: Option<String>,
    /// How many more may follow from it, one after the other.
    pub(crate) c: u64,
    /// What its maker had seen: how many events were in the state; `None`: it did not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seen: Option<u64>,
}

/// What a call does with the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Untouched,
    Look,
    Peek,
    Update,
    ReadAndUpdate,
}

impl Use {
    /// `true`: its number is in the state afterwards.
    pub(crate) fn changes(self) -> bool {
        matches!(self, Self::Update | Self::ReadAndUpdate)
    }

    /// `true`: it stands on the very state that its commit follows.
    pub(crate) fn reads(self) -> bool {
        matches!(self, Self::Look | Self::ReadAndUpdate)
    }
}

/// What an event does at an instance, whenever it gets through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Effects {
    pub(crate) uses: Use,
    /// Number, stream, key, group, chain.
    pub(crate) emits: Vec<Follower>,
    /// To an actor, by its number.
    pub(crate) sends: Vec<(usize, Follower)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Follower {
    pub(crate) nonce: u64,
    pub(crate) stream: &'static str,
    pub(crate) key: String,
    pub(crate) group: Option<String>,
    pub(crate) chain: u64,
}

impl Effects {
    /// Of the event with that number at the actor with that number.
    pub(crate) fn of(setup: &Setup, actor: usize, nonce: u64, chain: u64) -> Self {
        let mut dice = Dice::new(mix(mix(setup.seed, nonce), actor as u64));
        let uses = dice.pick(&[
            Use::Untouched,
            Use::Look,
            Use::Peek,
            Use::Update,
            Use::Update,
            Use::Update,
            Use::ReadAndUpdate,
            Use::ReadAndUpdate,
        ]);
        let follower = |dice: &mut Dice| Follower {
            nonce: dice.next() >> 1,
            stream: dice.pick(&STREAMS),
            key: key(dice, setup.keys),
            group: group(dice, setup.groups),
            chain: chain - 1,
        };
        let (mut emits, mut sends) = (Vec::new(), Vec::new());
        if chain > 0 {
            for _ in 0..dice.pick(&[0, 0, 1, 1, 2]) {
                emits.push(follower(&mut dice));
            }
            if dice.permille(250) {
                sends.push((dice.below(setup.actors.len()), follower(&mut dice)));
            }
        }
        Self { uses, emits, sends }
    }
}

pub(crate) fn key(dice: &mut Dice, keys: u64) -> String {
    format!("key-{}", dice.between(1, keys))
}

pub(crate) fn group(dice: &mut Dice, groups: u64) -> Option<String> {
    (groups > 0 && dice.permille(800)).then(|| format!("group-{}", dice.between(1, groups)))
}

/// How a call goes.
#[derive(Debug, Clone)]
pub(crate) struct Manner {
    pub(crate) before: Duration,
    pub(crate) middle: Duration,
    pub(crate) after: Duration,
    pub(crate) settles_first: bool,
    pub(crate) settles_last: bool,
    pub(crate) heeds_abort: bool,
    /// Through the runtime, not by itself.
    pub(crate) sleeps: bool,
    pub(crate) end: Way,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Through,
    Fails,
    Panics,
    /// The executor lets go of it.
    Lost,
    /// Never, unless it is killed.
    Hangs,
    /// It leaves behind something that the store refuses.
    Refused,
    /// It sends to an actor that is not there.
    NoActor,
}

impl Manner {
    pub(crate) fn of(setup: &Setup, nonce: u64, attempt: u32, has_timeout: bool, dice: &mut Dice) -> Self {
        // How many attempts go wrong is the event's own nature; some never get through.
        let mut nature = Dice::new(mix(mix(setup.seed, nonce), 0xfa11));
        let wrong = if nature.permille(setup.failing) { nature.pick(&[1, 1, 2, 3, u32::MAX]) } else { 0 };
        let kinds = [Way::Fails, Way::Fails, Way::Panics, Way::Lost, Way::Refused, Way::NoActor, Way::Hangs];
        let kind = nature.pick(&kinds);
        let end = match kind {
            _ if attempt > wrong => Way::Through,
            Way::Hangs if !has_timeout => Way::Fails,
            kind => kind,
        };
        let mut pause = || {
            let slow = setup.slow_ms;
            Duration::from_micros(dice.pick(&[0, 0, 10, 1_000 * slow / 10, 1_000 * slow]))
        };
        let (before, middle, after) = (pause(), pause(), pause());
        Self {
            before,
            middle,
            after,
            settles_first: dice.permille(100),
            settles_last: dice.permille(200),
            heeds_abort: dice.permille(500),
            sleeps: dice.permille(500),
            end,
        }
    }
}
