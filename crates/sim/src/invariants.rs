//! The oracle: what must be true, kept beside the store and apart from the runtime.
//!
//! It stands at the door of the store, sees what is really done there, in the order in which it is done, and
//! keeps a model of its own: who owns what, which rows wait, what each instance has applied. What an event must
//! lead to it takes from the workload, not from the runtime. The first thing that does not fit is kept; the
//! world stops there.
//!
//! Checked are, by the numbers of the house's invariants:
//! - 1, 3: a call begins for a row that waits, once at a time; nothing comes from a life that is over;
//! - 4, 9: an append is answered only with what is there; a settled call stands on what is committed;
//! - 5: an event has exactly the rows that its subscriptions ask for, and each of them ends once;
//! - 6: starts of a group in order, calls within every limit;
//! - 7: commits by the owner of the highest epoch alone, on the version that it was built on;
//! - 8: with the end of a row come its state, its events, and nothing else's;
//! - 10: copies of a batch change nothing; numbers of batches are not used twice.
//!
//! At the end what the store holds is compared with the model, row by row.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use evener_actor::id::{ActorNo, Boot, Epoch, InstanceId, QueueId, Seq, Slot, StreamNo, Version};
use evener_actor::policy::{OnExhausted, QueueMode};
use evener_store::batch::{
    Appended, Claimed, CommitReport, DeadCause, DeadLetter, End, Fate, InstanceCommit, InstanceView,
    NewEvent, NewRow, QueueRow, RowMade, Ticket, Waiting,
};
use evener_store::{Result as StoreResult, StoreError};

use crate::dice::mix;
use crate::workload::{Body, Effects, STREAMS, Setup};

/// What did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which claim, in a word or two.
    pub claim: &'static str,
    /// With the values.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.claim, self.what)
    }
}

/// Where an event goes, as the workload has it.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) to: Goal,
    pub(crate) key: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) chain: u64,
    pub(crate) depth: u32,
    /// Id and body of an append that may be repeated.
    pub(crate) id: Option<(String, u64)>,
    /// It may come in.
    pub(crate) is_allowed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    Stream(&'static str),
    Actor(usize),
}

struct Accepted {
    spec: Spec,
    seq: Seq,
}

struct Row {
    nonce: u64,
    seq: Seq,
    group: Option<String>,
    origin: QueueId,
    attempts: u32,
    crashes: u32,
    is_blocked: bool,
    not_before: Duration,
    /// The owners who wrote down that they may die of it.
    marks: BTreeSet<Epoch>,
    /// When it was made, and when it could be seen, in moments of the oracle.
    made: u64,
    seen: Option<u64>,
    /// One behind it could be seen before it: only its wake shows it in time, and a wake may be lost.
    is_late: bool,
}

struct Instance {
    actor: usize,
    key: String,
    slot: Slot,
    owner: Option<Boot>,
    epoch: Epoch,
    version: Version,
    applied: Vec<u64>,
    rows: BTreeMap<QueueId, Row>,
    /// Under the present epoch.
    started: BTreeSet<QueueId>,
    done: BTreeSet<QueueId>,
    running: BTreeMap<u64, QueueId>,
    /// Written down, and not started.
    marked: BTreeSet<QueueId>,
}

struct Known {
    is_live: bool,

    last_seen: Duration,
    heartbeats: Vec<Duration>,
}

/// A call, as the oracle knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    pub(crate) call: u64,
    pub(crate) instance: InstanceId,
    pub(crate) epoch: Epoch,
    pub(crate) origin: QueueId,
    pub(crate) nonce: u64,
    pub(crate) attempt: u32,
    /// The life that runs it.
    pub(crate) life: u64,
}

pub(crate) struct Oracle {
    setup: Setup,
    actor_nos: BTreeMap<ActorNo, usize>,
    stream_nos: BTreeMap<StreamNo, &'static str>,
    specs: HashMap<u64, Spec>,
    accepted: BTreeMap<u64, Accepted>,
    by_seq: BTreeMap<Seq, u64>,
    ids: HashMap<(Option<StreamNo>, String), (Seq, u64)>,
    /// Told to be not there.
    denied: BTreeSet<u64>,
    instances: BTreeMap<InstanceId, Instance>,
    by_key: BTreeMap<(usize, String), InstanceId>,
    letters: BTreeMap<(InstanceId, QueueId), u64>,
    parked: u64,
    boots: BTreeMap<Boot, Known>,
    lanes: HashMap<(Boot, u16), (i64, u64)>,
    moment: u64,
    answered_max: Seq,
    /// By life and call: which of them are suspects.
    suspects: BTreeSet<(u64, u64)>,
    calls_of: BTreeMap<u64, usize>,
    /// Ended rows, all kinds.
    pub(crate) ended: u64,
    pub(crate) applied: u64,
    violation: Option<Violation>,
}

fn digest(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, mix)
}

fn kind_of(end: &End) -> u64 {
    match end {
        End::Done { events, .. } => 10 + events.len() as u64,
        End::Superseded => 1,
        End::Retry { .. } => 2,
        End::Dead { .. } => 3,
        End::Blocked { .. } => 4,
    }
}

pub(crate) fn body(event: &evener_actor::event::Event) -> Option<Body> {
    serde_json::from_slice(&event.data).ok()
}

impl Oracle {
    pub(crate) fn new(setup: Setup) -> Self {
        Self {
            setup,
            actor_nos: BTreeMap::new(),
            stream_nos: BTreeMap::new(),
            specs: HashMap::new(),
            accepted: BTreeMap::new(),
            by_seq: BTreeMap::new(),
            ids: HashMap::new(),
            denied: BTreeSet::new(),
            instances: BTreeMap::new(),
            by_key: BTreeMap::new(),
            letters: BTreeMap::new(),
            parked: 0,
            boots: BTreeMap::new(),
            lanes: HashMap::new(),
            moment: 0,
            answered_max: Seq(0),
            suspects: BTreeSet::new(),
            calls_of: BTreeMap::new(),
            ended: 0,
            applied: 0,
            violation: None,
        }
    }

    pub(crate) fn fail(&mut self, claim: &'static str, what: impl Into<String>) {
        if self.violation.is_none() {
            self.violation = Some(Violation { claim, what: what.into() });
        }
    }

    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    pub(crate) fn know_actor(&mut self, no: ActorNo, number: usize) {
        self.actor_nos.insert(no, number);
    }

    pub(crate) fn know_stream(&mut self, no: StreamNo, name: &'static str) {
        self.stream_nos.insert(no, name);
    }

    /// An event that somebody is about to append.
    pub(crate) fn plan(&mut self, nonce: u64, spec: Spec) {
        self.specs.insert(nonce, spec);
    }

    // Who is there.

    pub(crate) fn registered(&mut self, boot: Boot, now: Duration) {
        let known = Known { is_live: true, last_seen: now, heartbeats: Vec::new() };
        if self.boots.insert(boot, known).is_some() {
            self.fail("boots are new", format!("boot {boot} was there before"));
        }
    }

    pub(crate) fn beat(&mut self, boot: Boot, is_live: bool, now: Duration) {
        let Some(known) = self.boots.get_mut(&boot) else { return };
        if known.is_live != is_live {
            let what = format!("boot {boot} was told {is_live}");
            return self.fail("the dead stay dead", what);
        }
        if is_live {
            known.last_seen = now;
        }
    }

    /// The boot knows of an answered heartbeat.
    pub(crate) fn beat_answered(&mut self, boot: Boot, sent: Duration) {
        if let Some(known) = self.boots.get_mut(&boot) {
            known.heartbeats.push(sent);
        }
    }

    pub(crate) fn judged(&mut self, judge: Boot, dead: &[Boot], now: Duration) {
        let every = self.setup.config.heartbeat;
        let may = self.boots.get(&judge).is_some_and(|known| {
            known.heartbeats.len() >= 2
                && known.heartbeats.windows(2).last().is_some_and(|two| two[1] - two[0] <= every * 2)
                && known.heartbeats.last().is_some_and(|last| now - *last <= every * 2)
        });
        // One that judges without right is to blame only if somebody is hit.
        if !dead.is_empty() && !may && !self.is_paused_judge(judge, now) {
            self.fail("who was away judges nobody", format!("boot {judge} judged {dead:?}"));
        }
        for boot in dead {
            if let Some(known) = self.boots.get_mut(boot) {
                known.is_live = false;
                let silent = now.saturating_sub(known.last_seen);
                if silent <= self.setup.config.stale {
                    let what = format!("boot {boot} was judged after {silent:?}");
                    self.fail("only the silent die", what);
                }
            }
        }
    }

    /// It stood still between its right and its judgement: no clock of its own could tell.
    fn is_paused_judge(&self, judge: Boot, now: Duration) -> bool {
        let last = self.boots.get(&judge).and_then(|known| known.heartbeats.last());
        last.is_some_and(|last| now - *last > self.setup.config.heartbeat * 2)
            && self.boots[&judge].heartbeats.len() >= 2
    }

    pub(crate) fn left(&mut self, boot: Boot) {
        if let Some(known) = self.boots.get_mut(&boot) {
            known.is_live = false;
        }
    }

    pub(crate) fn is_live(&self, boot: Boot) -> bool {
        self.boots.get(&boot).is_some_and(|known| known.is_live)
    }

    // Appends.

    /// `true`: it is done now; `false`: a copy of what was done.
    fn ticket(&mut self, ticket: Ticket, digest: u64) -> bool {
        let lane = self.lanes.entry((ticket.boot, ticket.lane)).or_insert((0, 0));
        let (last, was) = *lane;
        if ticket.number == last {
            if was != digest {
                let what = format!(
                    "batch {last} of lane {} of boot {} came with other contents",
                    ticket.lane, ticket.boot
                );
                self.fail("a number is used once", what);
            }
            return false;
        }
        *lane = (ticket.number, digest);
        if ticket.number != last + 1 {
            let what = format!("batch {} of lane {} was done after {last}", ticket.number, ticket.lane);
            self.fail("batches in their order", what);
        }
        if !self.is_live(ticket.boot) {
            self.fail(
                "the dead write nothing",
                format!("boot {} wrote batch {}", ticket.boot, ticket.number),
            );
        }
        true
    }

    pub(crate) fn appended(
        &mut self,
        ticket: Ticket,
        events: &[NewEvent],
        result: &StoreResult<Vec<Appended>>,
    ) -> Vec<QueueId> {
        let Ok(reports) = result else { return Vec::new() };
        let of_events = events.iter().map(|event| body(&event.event).map_or(0, |body| body.n));
        if !self.ticket(ticket, digest(of_events)) {
            return Vec::new();
        }
        let mut made = Vec::new();
        for (event, report) in events.iter().zip(reports) {
            made.extend(self.one_appended(event, report));
        }
        made
    }

    fn one_appended(&mut self, event: &NewEvent, report: &Appended) -> Vec<QueueId> {
        let Some(body) = body(&event.event) else {
            self.fail("data as it was sent", format!("{:?}", event.event));
            return Vec::new();
        };
        let Some(spec) = self.specs.get(&body.n).cloned() else {
            self.fail("only what was sent", format!("event {} was never sent", body.n));
            return Vec::new();
        };
        let place = spec.id.as_ref().map(|(id, _)| (event.stream, id.clone()));
        let known = place.as_ref().and_then(|place| self.ids.get(place)).copied();
        let hash = spec.id.as_ref().map_or(0, |(_, hash)| *hash);
        match (report, known) {
            (Appended::New { seq, rows }, None) => {
                if let Some(place) = place {
                    self.ids.insert(place, (*seq, hash));
                }
                self.accept(event, &body, spec, *seq, rows)
            }
            (Appended::Duplicate { seq, fate }, Some((first, of_first))) if hash == of_first => {
                if *seq != first {
                    self.fail("duplicates name the first", format!("{seq} for {first}"));
                }
                let nonce = self.by_seq[&first];
                let waits =
                    self.instances.values().any(|known| known.rows.values().any(|row| row.nonce == nonce));
                if waits != (*fate == Fate::Waiting) {
                    self.fail("duplicates know their fate", format!("event {first} is said to be {fate:?}"));
                }
                Vec::new()
            }
            (Appended::Conflict { seq }, Some((first, of_first))) if hash != of_first && *seq == first => {
                Vec::new()
            }
            (report, known) => {
                self.fail("ids are unique", format!("event {}: {report:?}, known {known:?}", body.n));
                Vec::new()
            }
        }
    }

    /// The rows that must follow: actor, key, group.
    fn expected(&self, spec: &Spec) -> (Vec<(usize, String, Option<String>)>, usize) {
        if spec.depth > self.setup.config.depth_max {
            return (Vec::new(), 1);
        }
        let wanted: Vec<usize> = match spec.to {
            Goal::Actor(actor) => vec![actor],
            Goal::Stream(stream) => {
                let hears = |actor: &usize| {
                    self.setup.actors[*actor].subscribe.iter().any(|wanted| wanted.stream.as_str() == stream)
                };
                (0..self.setup.actors.len()).filter(hears).collect()
            }
        };
        match &spec.key {
            Some(key) => {
                let row = |actor: usize| (actor, key.clone(), spec.group.clone());
                (wanted.into_iter().map(row).collect(), 0)
            }
            None => (Vec::new(), wanted.len()),
        }
    }

    fn accept(
        &mut self,
        event: &NewEvent,
        body: &Body,
        spec: Spec,
        seq: Seq,
        made: &[RowMade],
    ) -> Vec<QueueId> {
        let nonce = body.n;
        if !spec.is_allowed {
            self.fail("what is refused is not there", format!("event {nonce}"));
        }
        if self.denied.contains(&nonce) {
            self.fail("what was refused stays away", format!("event {nonce} was appended after all"));
        }
        if let Some(first) = self.accepted.get(&nonce) {
            let what = format!("event {nonce} is there as {} and as {seq}", first.seq);
            self.fail("each event once", what);
        }
        let (mut wanted, parked) = self.expected(&spec);
        let found = |row: &NewRow| {
            let actor = self.actor_nos.get(&row.actor).copied().unwrap_or(usize::MAX);
            (actor, row.key.to_string(), row.group.as_ref().map(ToString::to_string))
        };
        let rows: Vec<_> = event.rows.iter().map(found).collect();
        let mut sorted = rows.clone();
        sorted.sort();
        wanted.sort();
        if sorted != wanted || event.parked.len() != parked || made.len() != rows.len() {
            let what = format!(
                "event {nonce}: rows {rows:?}, must be {wanted:?}; {} parked, must be {parked}",
                event.parked.len()
            );
            self.fail("each event reaches each instance once", what);
        }
        self.parked += event.parked.len() as u64;
        if self.by_seq.last_key_value().is_some_and(|(last, _)| *last >= seq) {
            self.fail("places rise", format!("event {nonce} has place {seq}"));
        }
        self.by_seq.insert(seq, nonce);
        self.moment += 1;
        let moment = self.moment;
        let mut ids = Vec::new();
        for ((actor, key, group), made) in rows.into_iter().zip(made) {
            let known = *self.by_key.entry((actor, key.clone())).or_insert(made.instance);
            if known != made.instance {
                self.fail("one instance for a key", format!("{known} and {} for {key}", made.instance));
            }
            let instance = self.instances.entry(made.instance).or_insert_with(|| Instance {
                actor,
                key,
                slot: made.slot,
                owner: None,
                epoch: Epoch(0),
                version: Version(0),
                applied: Vec::new(),
                rows: BTreeMap::new(),
                started: BTreeSet::new(),
                done: BTreeSet::new(),
                running: BTreeMap::new(),
                marked: BTreeSet::new(),
            });
            let row = Row {
                nonce,
                seq,
                group,
                origin: made.row,
                attempts: 0,
                crashes: 0,
                is_blocked: false,
                not_before: Duration::ZERO,
                marks: BTreeSet::new(),
                made: moment,
                seen: None,
                is_late: false,
            };
            instance.rows.insert(made.row, row);
            ids.push(made.row);
        }
        self.accepted.insert(nonce, Accepted { spec, seq });
        ids
    }

    /// These rows can be seen from now on.
    pub(crate) fn seen(&mut self, rows: &[QueueId]) {
        self.moment += 1;
        for id in rows {
            for instance in self.instances.values_mut() {
                let is_late = instance.rows.range(*id..).skip(1).any(|(_, row)| row.seen.is_some());
                if let Some(row) = instance.rows.get_mut(id)
                    && row.seen.is_none()
                {
                    row.seen = Some(self.moment);
                    row.is_late = is_late;
                }
            }
        }
    }

    pub(crate) fn has_seen_rows(&self, waiting: &Waiting) -> bool {
        self.instances
            .get(&waiting.instance)
            .is_some_and(|instance| instance.rows.values().any(|row| row.seen.is_some()))
    }

    pub(crate) fn is_hidden(&self, instance: InstanceId, row: QueueId) -> bool {
        self.instances
            .get(&instance)
            .and_then(|instance| instance.rows.get(&row))
            .is_some_and(|row| row.seen.is_none())
    }

    pub(crate) fn answered_max(&self) -> Seq {
        self.answered_max
    }

    /// A client was told that its events are there.
    pub(crate) fn told(&mut self, nonces: &[u64], began_after: Seq, reports: &[Appended]) {
        if nonces.len() != reports.len() {
            self.fail("an answer for each event", format!("{} for {}", reports.len(), nonces.len()));
        }
        for (nonce, report) in nonces.iter().zip(reports) {
            match report {
                Appended::New { seq, .. } => {
                    let is_there = self.accepted.get(nonce).is_some_and(|there| there.seq == *seq);
                    if !is_there {
                        self.fail("accepted means committed", format!("event {nonce}, told {seq}"));
                    }
                    if *seq <= began_after {
                        let what = format!("event {nonce} has {seq}, {began_after} was answered before");
                        self.fail("places rise over answers", what);
                    }
                    self.answered_max = self.answered_max.max(*seq);
                }
                Appended::Duplicate { seq, .. } | Appended::Conflict { seq } => {
                    if !self.by_seq.contains_key(seq) {
                        self.fail("accepted means committed", format!("event {nonce}, duplicate of {seq}"));
                    }
                }
            }
        }
    }

    /// A client was told that nothing of it is there.
    pub(crate) fn denied(&mut self, nonces: &[u64], why: &str) {
        for nonce in nonces {
            // With an id of its own it may be there through another append.
            if self.specs.get(nonce).is_some_and(|spec| spec.id.is_some()) {
                continue;
            }
            if self.accepted.contains_key(nonce) {
                self.fail("what was refused stays away", format!("event {nonce} is there, told: {why}"));
            }
            self.denied.insert(*nonce);
        }
    }

    // Ownership.

    pub(crate) fn claimed(&mut self, boot: Boot, claimed: &[Claimed]) {
        for one in claimed {
            let is_live = self.is_live(boot);
            let dead_owner = self
                .instances
                .get(&one.instance)
                .and_then(|known| known.owner)
                .map(|owner| (owner, self.is_live(owner)));
            let Some(known) = self.instances.get_mut(&one.instance) else {
                self.fail("only instances that are there", format!("{}", one.instance));
                continue;
            };
            let state: Vec<u64> = one
                .state
                .as_ref()
                .map_or(Some(Vec::new()), |state| serde_json::from_slice(state).ok())
                .unwrap_or_default();
            let fits = is_live
                && dead_owner.is_none_or(|(owner, is_live)| owner == boot || !is_live)
                && one.epoch > known.epoch
                && one.version == known.version
                && state == known.applied
                && one.was_orphan == dead_owner.is_some_and(|(owner, _)| owner != boot);
            known.owner = Some(boot);
            known.epoch = one.epoch;
            known.started.clear();
            known.done.clear();
            known.running.clear();
            known.marked.clear();
            if !fits {
                let what = format!("boot {boot} took {one:?}, before: {dead_owner:?}");
                self.fail("who claims has the right", what);
            }
        }
    }

    pub(crate) fn released(&mut self, boot: Boot, owned: &[(Slot, InstanceId, Epoch)]) {
        for (_, instance, epoch) in owned {
            if let Some(known) = self.instances.get_mut(instance)
                && known.owner == Some(boot)
                && known.epoch == *epoch
            {
                known.owner = None;
            }
        }
    }

    /// What the store says of an instance whose ownership was just touched.
    pub(crate) fn compare_owner(&mut self, view: &InstanceView) {
        let Some(known) = self.instances.get(&view.instance) else { return };
        if (known.owner, known.epoch, known.version) != (view.owner, view.epoch, view.version) {
            let what = format!(
                "instance {}: {:?}, epoch {}, version {}; must be {:?}, {}, {}",
                view.instance, view.owner, view.epoch, view.version, known.owner, known.epoch, known.version
            );
            self.fail("the owner alone gives back", what);
        }
    }

    pub(crate) fn marked(
        &mut self,
        boot: Boot,
        rows: &[(Slot, InstanceId, Epoch, Vec<QueueId>)],
        were: &[bool],
    ) {
        for ((_, instance, epoch, ids), was) in rows.iter().zip(were) {
            let Some(known) = self.instances.get_mut(instance) else { continue };
            let right = known.owner == Some(boot) && known.epoch == *epoch;
            let mut is_crowded = false;
            if right {
                let definition = &self.setup.actors[known.actor];
                for id in ids {
                    let Some(row) = known.rows.get_mut(id) else { continue };
                    row.crashes += 1;
                    row.marks.insert(*epoch);
                    known.marked.insert(*id);
                }
                known.marked.retain(|id| known.rows.contains_key(id));
                for id in ids {
                    let Some(row) = known.rows.get(id) else { continue };
                    let of_group =
                        |id: &&QueueId| known.rows.get(id).is_some_and(|other| other.group == row.group);
                    let running = known.running.values().filter(of_group).count();
                    let marked = known.marked.iter().filter(of_group).count();
                    is_crowded |= running + marked > definition.queue.concurrency as usize
                        || known.running.len() + known.marked.len() > definition.queue.instance_max as usize;
                }
            }
            if is_crowded {
                let what = format!("{:?} beside {:?}", known.marked, known.running);
                self.fail("only what starts is counted", what);
            }
            if right != *was {
                self.fail("the owner alone marks", format!("instance {instance}, epoch {epoch}: {was}"));
            }
        }
    }

    pub(crate) fn unblocked(&mut self, instance: InstanceId, rows: &[QueueId], is_retry: bool) {
        let Some(known) = self.instances.get_mut(&instance) else { return };
        known.epoch.0 += 1;
        known.running.clear();
        for id in rows {
            if let Some(row) = known.rows.get_mut(id).filter(|row| row.is_blocked) {
                if is_retry {
                    (row.attempts, row.crashes, row.is_blocked, row.not_before) =
                        (0, 0, false, Duration::ZERO);
                } else {
                    known.rows.remove(id);
                    self.ended += 1;
                }
            }
        }
    }

    pub(crate) fn redriven(&mut self, letters: &[DeadLetter], made: &[RowMade]) -> Vec<QueueId> {
        self.moment += 1;
        for (letter, made) in letters.iter().zip(made) {
            let Some(nonce) = self.letters.remove(&(letter.instance, letter.origin)) else {
                self.fail("letters that are there", format!("{letter:?}"));
                continue;
            };
            let group = self.accepted[&nonce].spec.group.clone();
            let row = Row {
                nonce,
                seq: letter.seq,
                group,
                origin: letter.origin,
                attempts: 0,
                crashes: 0,
                is_blocked: false,
                not_before: Duration::ZERO,
                marks: BTreeSet::new(),
                made: self.moment,
                seen: Some(self.moment),
                is_late: false,
            };
            if let Some(known) = self.instances.get_mut(&letter.instance) {
                known.rows.insert(made.row, row);
            }
        }
        made.iter().map(|made| made.row).collect()
    }

    // Commits.

    pub(crate) fn committed(
        &mut self,
        ticket: Ticket,
        batch: &[InstanceCommit],
        result: &StoreResult<CommitReport>,
        now: Duration,
    ) -> Vec<QueueId> {
        let Ok(report) = result else {
            if let Err(StoreError::Internal(why)) = result {
                self.fail("the store understands", why.clone());
            }
            return Vec::new();
        };
        let of_batch = batch.iter().flat_map(|part| {
            let head = [part.instance.0 as u64, part.epoch.0 as u64, part.version.0 as u64];
            let ends = part.ends.iter().flat_map(|end| [end.row.0 as u64, kind_of(&end.end)]);
            head.into_iter().chain(ends).collect::<Vec<_>>()
        });
        if !self.ticket(ticket, digest(of_batch)) {
            return Vec::new();
        }
        let mut made = Made { rows: &report.rows, at: 0, ids: Vec::new() };
        for (part, is_committed) in batch.iter().zip(&report.committed) {
            let Some(known) = self.instances.get(&part.instance) else {
                self.fail("only instances that are there", format!("{}", part.instance));
                continue;
            };
            let is_right = known.owner == Some(ticket.boot)
                && known.epoch == part.epoch
                && known.version == part.version;
            if is_right != *is_committed {
                let what = format!(
                    "boot {} committed instance {} with epoch {} on version {}: {is_committed}; its owner is \
                     {:?} with epoch {} at version {}",
                    ticket.boot,
                    part.instance,
                    part.epoch,
                    part.version,
                    known.owner,
                    known.epoch,
                    known.version
                );
                self.fail("one owner commits", what);
            }
            if *is_committed {
                self.part_committed(part, now, &mut made);
            }
        }
        if made.at != report.rows.len() && self.violation.is_none() {
            self.fail("each event reaches each instance once", format!("rows beyond: {:?}", report.rows));
        }
        made.ids
    }

    fn part_committed(&mut self, part: &InstanceCommit, now: Duration, made: &mut Made<'_>) {
        let mut expected = self.instances[&part.instance].applied.clone();
        for end in &part.ends {
            self.row_ended(part, end.row, &end.end, &mut expected, now, made);
        }
        let instance = self.instances.get_mut(&part.instance).expect("looked up above");
        instance.version = part.version_after;
        let state: Vec<u64> = match &part.state {
            None => instance.applied.clone(),
            Some(state) => serde_json::from_slice(state).unwrap_or_default(),
        };
        self.applied += (expected.len() - instance.applied.len()) as u64;
        instance.applied.clone_from(&expected);
        if state != expected {
            let what = format!("instance {}: {state:?}, must be {expected:?}", part.instance);
            self.fail("each event is applied once", what);
        }
    }

    fn row_ended(
        &mut self,
        part: &InstanceCommit,
        id: QueueId,
        end: &End,
        applied: &mut Vec<u64>,
        now: Duration,
        made: &mut Made<'_>,
    ) {
        let instance = self.instances.get_mut(&part.instance).expect("looked up by the caller");
        let is_latest = self.setup.actors[instance.actor].queue.mode == QueueMode::Latest;
        let Some(row) = instance.rows.get_mut(&id) else {
            if is_latest && *end == End::Superseded {
                // A read that began before the row's own end shows it; without the row nothing is done.
                return;
            }
            let what = format!("row {id} of instance {} ended again: {end:?}", part.instance);
            return self.fail("each row ends once", what);
        };
        let retry = self.setup.actors[instance.actor].retry.clone();
        let (nonce, origin, actor) = (row.nonce, row.origin, instance.actor);
        match end {
            End::Done { events, .. } => {
                instance.rows.remove(&id);
                self.ended += 1;
                let spec = self.accepted[&nonce].spec.clone();
                let effects = Effects::of(&self.setup, actor, nonce, spec.chain);
                self.follow(&effects, &spec, origin, applied.len() as u64, events, made);
                if effects.uses.changes() {
                    applied.push(nonce);
                }
            }
            End::Superseded => {
                instance.rows.remove(&id);
                self.ended += 1;
                if !is_latest {
                    self.fail("only latest supersedes", format!("row {id}"));
                }
            }
            End::Retry { attempts, delay, .. } => {
                let fits = *attempts == row.attempts + 1
                    && *attempts < retry.max_attempts
                    && *delay <= retry.backoff_ceiling(*attempts);
                (row.attempts, row.crashes, row.not_before) = (*attempts, 0, now + *delay);
                if !fits {
                    self.fail("attempts are counted", format!("row {id}: {end:?}, {retry:?}"));
                }
            }
            End::Dead { attempts, cause, .. } => {
                let fits = match cause {
                    DeadCause::Attempts => {
                        *attempts == row.attempts + 1
                            && *attempts >= retry.max_attempts
                            && retry.on_exhausted == OnExhausted::DeadLetter
                    }
                    DeadCause::WorkerDied => row.crashes >= retry.max_crashes && !row.marks.is_empty(),
                    DeadCause::Refused => true,
                };
                let (of_row, crashes) = (row.attempts, row.crashes);
                let marks = row.marks.len();
                instance.rows.remove(&id);
                self.ended += 1;
                self.letters.insert((part.instance, origin), nonce);
                if !fits {
                    let what = format!(
                        "row {id} ({of_row} attempts, {crashes} crashes, {marks} owners): {end:?}, {retry:?}"
                    );
                    self.fail("letters die rightly", what);
                }
            }
            End::Blocked { attempts, .. } => {
                let is_used_up = *attempts == row.attempts + 1 && *attempts >= retry.max_attempts;
                let is_deadly = *attempts == row.attempts && row.crashes >= retry.max_crashes;
                let fits = (is_used_up || is_deadly) && retry.on_exhausted == OnExhausted::Block;
                (row.attempts, row.crashes, row.is_blocked) = (*attempts, 0, true);
                if !fits {
                    self.fail("attempts are counted", format!("row {id}: {end:?}, {retry:?}"));
                }
            }
        }
    }

    /// The events that follow from a row are just those that must.
    fn follow(
        &mut self,
        effects: &Effects,
        of: &Spec,
        origin: QueueId,
        seen: u64,
        events: &[NewEvent],
        made: &mut Made<'_>,
    ) {
        let emits = effects.emits.iter().map(|follower| (Goal::Stream(follower.stream), follower));
        let sends = effects.sends.iter().map(|(actor, follower)| (Goal::Actor(*actor), follower));
        let wanted: Vec<_> = emits.chain(sends).collect();
        if wanted.len() != events.len() {
            let what = format!("{} events follow from row {origin}, must be {}", events.len(), wanted.len());
            return self.fail("emits with their row", what);
        }
        for (number, ((to, follower), event)) in wanted.into_iter().zip(events).enumerate() {
            let name = format!("{origin}/{}", number + 1);
            let body = body(&event.event);
            let fits = body.as_ref().is_some_and(|body| {
                body.n == follower.nonce && (body.seen == effects.uses.reads().then_some(seen))
            });
            if !fits || *event.event.id != *name {
                let what = format!("{name}: {body:?}, must be {follower:?}, seen {seen}, {:?}", effects.uses);
                self.fail("emits stand on what is committed", what);
            }
            let Some(body) = body else { continue };
            let is_right_place = match to {
                Goal::Stream(stream) => event
                    .stream
                    .is_some_and(|no| self.stream_nos.get(&no).is_some_and(|known| *known == stream)),
                Goal::Actor(_) => event.stream.is_none(),
            };
            if !is_right_place {
                self.fail(
                    "emits go where they should",
                    format!("{name}: {:?}, must be {to:?}", event.stream),
                );
            }
            let spec = Spec {
                to,
                key: Some(follower.key.clone()),
                group: follower.group.clone(),
                chain: follower.chain,
                depth: of.depth + 1,
                id: None,
                is_allowed: true,
            };
            let rows = made.take(event.rows.len());
            let seq = Seq(self.by_seq.last_key_value().map_or(0, |(last, _)| last.0) + 1);
            let ids = self.accept(event, &body, spec, seq, rows);
            made.ids.extend(ids);
        }
    }

    // Calls.

    pub(crate) fn started(&mut self, begun: &Begun, now: Duration) {
        let calls = self.calls_of.entry(begun.life).or_default();
        *calls += 1;
        if *calls > self.setup.config.calls_max {
            let what = format!("{calls} calls, at most {}", self.setup.config.calls_max);
            self.fail("calls within the worker's limit", what);
        }
        let Some(instance) = self.instances.get_mut(&begun.instance) else {
            return self.fail("only instances that are there", format!("{}", begun.instance));
        };
        if instance.epoch != begun.epoch || instance.owner.is_none() {
            // It has another owner by now: nothing of it will be kept.
            return;
        }
        let found = instance.rows.iter().find(|(_, row)| row.origin == begun.origin);
        let Some((&id, row)) = found else {
            let what = format!("event {} at instance {} runs and is over", begun.nonce, begun.instance);
            return self.fail("what is committed does not run again", what);
        };
        let definition = &self.setup.actors[instance.actor];
        let mut wrong: Option<(&'static str, String)> = None;
        let mut note = |claim, what| {
            wrong.get_or_insert((claim, what));
        };
        if row.nonce != begun.nonce {
            note("rows have their event", format!("event {} for {}", begun.nonce, row.nonce));
        }
        if instance.running.values().any(|running| *running == id) {
            note("a row runs once at a time", format!("row {id} runs twice"));
        }
        let is_counted = begun.attempt > row.attempts && begun.attempt <= row.attempts + row.crashes + 1;
        if !is_counted || row.attempts >= definition.retry.max_attempts {
            let what = format!(
                "row {id} has attempt {}, after {} failures and {} crashes",
                begun.attempt, row.attempts, row.crashes
            );
            note("attempts are counted", what);
        }
        if row.is_blocked || row.not_before > now + Duration::from_millis(3) {
            note(
                "rows wait their time",
                format!("row {id} runs at {now:?}, not before {:?}", row.not_before),
            );
        }
        let of_group = instance
            .running
            .values()
            .filter(|running| instance.rows.get(running).is_none_or(|running| running.group == row.group));
        if of_group.count() >= definition.queue.concurrency as usize
            || instance.running.len() >= definition.queue.instance_max as usize
        {
            let what = format!("row {id} runs beside {:?}: {:?}", instance.running, definition.queue);
            note("calls within their limits", what);
        }
        let is_suspect = begun.attempt > row.attempts + 1;
        if is_suspect {
            if self.suspects.range((begun.life, 0)..(begun.life + 1, 0)).next().is_some() {
                note("suspects run one by one", format!("row {id} of instance {}", begun.instance));
            }
            self.suspects.insert((begun.life, begun.call));
        }
        if definition.queue.mode == QueueMode::Fifo && !instance.started.contains(&id) {
            // Those before it that could be seen when it was made.
            let is_alone = self.setup.hosts == 1;
            let before = instance.rows.range(..id).filter(|(other, before)| {
                (is_alone || !before.is_late)
                    && before.group == row.group
                    && before.seen.is_some_and(|seen| seen < row.made)
                    // Those that workers died of end without another start.
                    && before.crashes < definition.retry.max_crashes
                    && !instance.done.contains(other)
            });
            let mut holders = 0;
            for (other, before) in before {
                holders += 1;
                // The promise is of first starts: one that failed may have come due while this one had its turn.
                let waits = before.is_blocked || before.attempts > 0;
                if !instance.started.contains(other) && !waits {
                    note("fifo starts in order", format!("row {id} starts before row {other}"));
                }
            }
            if holders >= definition.queue.concurrency {
                let what = format!("row {id} starts although {holders} before it are not through");
                note("fifo keeps its slots", what);
            }
        }
        instance.started.insert(id);
        instance.marked.remove(&id);
        instance.done.remove(&id);
        instance.running.insert(begun.call, id);
        if let Some((claim, what)) = wrong {
            self.fail(claim, what);
        }
    }

    /// `is_through`: it did not fail, or it failed for the last time and its slot is free.
    pub(crate) fn call_ended(&mut self, begun: &Begun, is_done: bool) {
        self.suspects.remove(&(begun.life, begun.call));
        if let Some(calls) = self.calls_of.get_mut(&begun.life) {
            *calls -= 1;
        }
        let Some(instance) = self.instances.get_mut(&begun.instance) else { return };
        if instance.epoch != begun.epoch {
            return;
        }
        if let Some(id) = instance.running.remove(&begun.call) {
            let retry = &self.setup.actors[instance.actor].retry;
            let is_last = retry.on_exhausted == OnExhausted::DeadLetter
                && instance.rows.get(&id).is_some_and(|row| row.attempts + 1 >= retry.max_attempts);
            if is_done || is_last {
                instance.done.insert(id);
            }
        }
    }

    /// A life is over, with all its calls.
    pub(crate) fn life_ended(&mut self, life: u64) {
        self.calls_of.remove(&life);
        self.suspects.retain(|(of, _)| *of != life);
    }

    /// A call was told that what it stands on is committed.
    pub(crate) fn settled(&mut self, begun: &Begun, stands_on: &[u64]) {
        let Some(instance) = self.instances.get(&begun.instance) else { return };
        if !instance.applied.starts_with(stands_on) {
            let what = format!(
                "event {} at instance {} stands on {stands_on:?}, committed is {:?}",
                begun.nonce, begun.instance, instance.applied
            );
            self.fail("nothing is told before its commit", what);
        }
    }

    // The end.

    pub(crate) fn instances(&self) -> impl Iterator<Item = (InstanceId, Slot, usize, &str)> {
        self.instances.iter().map(|(id, known)| (*id, known.slot, known.actor, known.key.as_str()))
    }

    pub(crate) fn waiting(&self) -> usize {
        self.instances.values().map(|known| known.rows.len()).sum()
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.len()
    }

    pub(crate) fn blocked(&self) -> Vec<(Slot, InstanceId, Vec<QueueId>)> {
        let blocked = |known: &Instance| -> Vec<QueueId> {
            known.rows.iter().filter(|(_, row)| row.is_blocked).map(|(id, _)| *id).collect()
        };
        let all = self.instances.iter().map(|(id, known)| (known.slot, *id, blocked(known)));
        all.filter(|(_, _, rows)| !rows.is_empty()).collect()
    }

    /// Instances whose rows wait although nothing keeps them: neither a call, nor a failure before, nor an owner
    /// that is gone.
    pub(crate) fn forgotten(&self) -> Option<String> {
        let is_free = |known: &&Instance| {
            !known.rows.is_empty()
                && known.running.is_empty()
                && known.owner.is_none_or(|owner| self.is_live(owner))
                && known.rows.values().all(|row| row.attempts == 0 && row.crashes == 0 && row.seen.is_some())
        };
        self.instances
            .values()
            .find(is_free)
            .map(|known| format!("{} rows of {} wait, and nothing happens", known.rows.len(), known.key))
    }

    pub(crate) fn first_waiting(&self) -> String {
        let waits = self.instances.iter().find(|(_, known)| !known.rows.is_empty());
        waits.map_or_else(String::new, |(id, known)| {
            let rows: Vec<_> = known
                .rows
                .iter()
                .map(|(id, row)| format!("{id}: {} attempts, not before {:?}", row.attempts, row.not_before))
                .collect();
            format!(
                "instance {id}, owner {:?}, epoch {}, running {:?}, rows {rows:?}",
                known.owner, known.epoch, known.running
            )
        })
    }

    /// What the store holds of an instance is what the model holds.
    pub(crate) fn compare(&mut self, view: &InstanceView, rows: &[QueueRow]) {
        self.compare_owner(view);
        let Some(known) = self.instances.get(&view.instance) else { return };
        let state: Vec<u64> =
            view.state.as_ref().and_then(|state| serde_json::from_slice(state).ok()).unwrap_or_default();
        let mut wrong = None;
        if state != known.applied {
            wrong = Some(format!("state {state:?}, must be {:?}", known.applied));
        }
        let there: Vec<_> =
            rows.iter().map(|row| (row.id, row.seq, row.attempts, row.crashes, row.is_blocked)).collect();
        let must: Vec<_> = known
            .rows
            .iter()
            .map(|(id, row)| (*id, row.seq, row.attempts, row.crashes, row.is_blocked))
            .collect();
        if there != must {
            wrong = Some(format!("rows {there:?}, must be {must:?}"));
        }
        if let Some(what) = wrong {
            self.fail("the store is as the model", format!("instance {}: {what}", view.instance));
        }
    }

    /// The same of a stream: numbers and places, in order.
    pub(crate) fn compare_stream(&mut self, name: &'static str, events: &[(Seq, u64)]) {
        let must: Vec<(Seq, u64)> = self
            .by_seq
            .iter()
            .filter(|(_, nonce)| self.accepted[nonce].spec.to == Goal::Stream(name))
            .map(|(seq, nonce)| (*seq, *nonce))
            .collect();
        if events != must {
            let what = format!("{name}: {} events, must be {}", events.len(), must.len());
            self.fail("the store is as the model", what);
        }
    }

    pub(crate) fn compare_counts(&mut self, letters: usize, parked: usize) {
        if letters != self.letters.len() || parked as u64 != self.parked {
            let what = format!(
                "{letters} letters, {parked} parked, must be {}, {}",
                self.letters.len(),
                self.parked
            );
            self.fail("the store is as the model", what);
        }
    }
}

/// Rows that a commit made, taken one event after the other.
struct Made<'a> {
    rows: &'a [RowMade],
    at: usize,
    ids: Vec<QueueId>,
}

impl<'a> Made<'a> {
    fn take(&mut self, count: usize) -> &'a [RowMade] {
        let end = (self.at + count).min(self.rows.len());
        let taken = &self.rows[self.at.min(end)..end];
        self.at = end;
        taken
    }
}

/// Every stream has a name that the workload knows.
pub(crate) fn stream_name(name: &str) -> Option<&'static str> {
    STREAMS.into_iter().find(|known| *known == name)
}
