//! How fast the SQLite back end appends and commits, by batch and by number of instances.
//!
//! ```text
//! cargo run --release -p evener-store --example sqlite_speed -- [FILE] [EVENTS]
//! ```
//! `each` commits one row of each instance in a batch, in the order of arrival: every row is a fence and an
//! end of its own, as far apart in the file as can be. `drain` takes the instances one after another and all
//! rows of each at once, up to the batch, as drains do.
#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::time::Instant;

use evener_actor::definition::ActorDefinition;
use evener_actor::event::Event;
use evener_actor::id::{ActorNo, Boot, InstanceId, Key, QueueId, Slot, StreamNo, Tenant, TenantNo, Version};
use evener_store::batch::{
    Appended, Claimed, End, InstanceCommit, NewEvent, NewRow, RowEnd, RowMade, Ticket, Waiting,
};
use evener_store::sqlite::{Options, Sqlite, Synchronous};
use evener_store::{Instances, Streams, Tenants, Workers};

const PAYLOAD: &[u8] = br#"{"inc":1}"#;

struct Bench {
    store: Sqlite,
    tenant: TenantNo,
    stream: StreamNo,
    actor: ActorNo,
    boot: Boot,
    number: i64,
    keys: Vec<(Slot, Key)>,
}

impl Bench {
    fn new(path: &str, synchronous: Synchronous, keys: usize) -> Self {
        for ending in ["", "-wal", "-shm", ".lock", ".bell"] {
            let _ = std::fs::remove_file(format!("{path}{ending}"));
        }
        let options = Options { synchronous, ..Options::default() };
        let store = Sqlite::open(path, options).expect("the file opens");
        let name = Tenant::default();
        let tenant = store.tenant(&name).expect("a tenant");
        let stream = store.stream(tenant, &"s".parse().expect("a name")).expect("a stream");
        let actor_name = "counter".parse().expect("a name");
        let routes = store.deploy(tenant, &[ActorDefinition::new(actor_name)]).expect("a deploy");
        let boot = store.register("speed").expect("a boot");
        let actor_name = &routes.actors[0].name;
        let keys = (0..keys)
            .map(|number| {
                let key: Key = format!("device-{number}").parse().expect("a key");
                (Slot::of(&name, actor_name, &key), key)
            })
            .collect();
        Self { store, tenant, stream, actor: routes.actors[0].no, boot, number: 0, keys }
    }

    fn ticket(&mut self) -> Ticket {
        self.number += 1;
        Ticket { boot: self.boot, lane: 0, number: self.number }
    }

    /// Where event number `n` goes: all instances equally often, in no order.
    fn key_of(&self, n: usize) -> &(Slot, Key) {
        let mixed = (n as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(31)
            .wrapping_mul(0xff51_afd7_ed55_8ccd);
        &self.keys[(mixed >> 33) as usize % self.keys.len()]
    }

    fn event(&self, n: usize) -> NewEvent {
        self.event_for(n, self.key_of(n))
    }

    fn event_for(&self, n: usize, (slot, key): &(Slot, Key)) -> NewEvent {
        NewEvent {
            tenant: self.tenant,
            stream: Some(self.stream),
            event: Event::new("counted", PAYLOAD).with_id(n.to_string()).with_source("speed"),
            dedupe: None,
            rows: vec![NewRow {
                slot: *slot,
                actor: self.actor,
                key: key.clone(),
                group: None,
                is_indexed: false,
                priority: 0,
            }],
            deferred: Vec::new(),
            parked: Vec::new(),
        }
    }

    /// What is measured are events of instances that are there.
    fn make_instances(&mut self) {
        let all: Vec<NewEvent> = self.keys.iter().map(|key| self.event_for(0, key)).collect();
        let mut made = Vec::new();
        for new in all.chunks(1_024) {
            let ticket = self.ticket();
            for one in self.store.append(ticket, new).expect("an append") {
                let Appended::New { rows, .. } = one else { panic!("all are new") };
                made.extend(rows);
            }
        }
        self.commit(&made, 1_024);
    }

    fn append(&mut self, events: usize, batch: usize) -> (Vec<RowMade>, f64) {
        let mut made = Vec::with_capacity(events);
        let mut seconds = 0.0;
        let mut n = 0;
        while n < events {
            let new: Vec<NewEvent> = (n..(n + batch).min(events)).map(|n| self.event(n)).collect();
            let ticket = self.ticket();
            let start = Instant::now();
            let appended = self.store.append(ticket, &new).expect("an append");
            seconds += start.elapsed().as_secs_f64();
            for one in appended {
                let Appended::New { rows, .. } = one else { panic!("all are new") };
                made.extend(rows);
            }
            n += batch;
        }
        (made, events as f64 / seconds)
    }

    fn claim(&self, rows: &[RowMade]) -> Vec<Claimed> {
        let mut wanted: Vec<Waiting> =
            rows.iter().map(|row| Waiting { slot: row.slot, instance: row.instance }).collect();
        wanted.sort_unstable();
        wanted.dedup();
        self.store.claim(self.boot, &wanted).expect("a claim")
    }

    fn commit(&mut self, rows: &[RowMade], batch: usize) -> f64 {
        let mut claimed: Vec<Claimed> = self.claim(rows);
        claimed.sort_unstable_by_key(|claimed| claimed.instance);
        let mut versions: Vec<Version> = claimed.iter().map(|claimed| claimed.version).collect();
        let mut seconds = 0.0;
        for rows in rows.chunks(batch) {
            let parts = self.parts(rows, &claimed, &mut versions);
            let ticket = self.ticket();
            let start = Instant::now();
            let report = self.store.commit(ticket, &parts).expect("a commit");
            seconds += start.elapsed().as_secs_f64();
            assert!(report.committed.iter().all(|is_committed| *is_committed), "a commit was fenced");
        }
        let waiting = self.store_is_empty();
        assert!(waiting, "rows are left");
        let owned: Vec<_> = claimed.iter().map(|one| (one.slot, one.instance, one.epoch)).collect();
        self.store.release(self.boot, &owned).expect("a release");
        rows.len() as f64 / seconds
    }

    fn store_is_empty(&self) -> bool {
        use evener_store::Queues;
        self.store.waiting(0..1024, None, 1).expect("a look").is_empty()
    }

    /// Several rows of one instance in a batch are one part.
    fn parts(&self, rows: &[RowMade], claimed: &[Claimed], versions: &mut [Version]) -> Vec<InstanceCommit> {
        let mut sorted: Vec<(usize, InstanceId, QueueId)> =
            rows.iter().enumerate().map(|(at, row)| (at, row.instance, row.row)).collect();
        sorted.sort_unstable_by_key(|(at, instance, _)| (*instance, *at));
        let mut parts: Vec<InstanceCommit> = Vec::new();
        for (_, instance, row) in sorted {
            let end = RowEnd { row, end: End::Done { events: Vec::new(), schedules: Vec::new() } };
            if let Some(part) = parts.last_mut().filter(|part| part.instance == instance) {
                part.ends.push(end);
                part.version_after.0 += 1;
                part.state = Some(format!("{{\"n\":{}}}", part.version_after).into());
                continue;
            }
            let at = claimed.binary_search_by_key(&instance, |one| one.instance).expect("it is claimed");
            let (one, version) = (&claimed[at], versions[at]);
            parts.push(InstanceCommit {
                slot: one.slot,
                instance,
                epoch: one.epoch,
                version,
                version_after: Version(version.0 + 1),
                state: Some(format!("{{\"n\":{}}}", version.0 + 1).into()),
                ends: vec![end],
            });
        }
        for part in &parts {
            let at = claimed.binary_search_by_key(&part.instance, |one| one.instance).expect("it is claimed");
            versions[at] = part.version_after;
        }
        parts
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args
        .next()
        .unwrap_or_else(|| std::env::temp_dir().join("evener-sqlite-speed.db").display().to_string());
    let events: Option<usize> = args.next().map(|text| text.parse().expect("a number of events"));
    let only: Option<(usize, usize)> =
        args.next().zip(args.next()).map(|(k, b)| (k.parse().expect("K"), b.parse().expect("a batch")));
    println!(
        "{:>11} {:>6} {:>6} {:>12} {:>12} {:>12}",
        "synchronous", "K", "batch", "append/s", "each/s", "drain/s"
    );
    for synchronous in [Synchronous::Full, Synchronous::Normal] {
        for keys in [100, 10_000] {
            for batch in [1, 16, 128, 1_024] {
                if only.is_some_and(|only| only != (keys, batch)) {
                    continue;
                }
                let events = events.unwrap_or(match batch {
                    1 => 10_000,
                    16 => 50_000,
                    _ => 200_000,
                });
                let mut bench = Bench::new(&path, synchronous, keys);
                bench.make_instances();
                let (made, append) = bench.append(events, batch);
                let each = bench.commit(&made, batch);
                let (mut made, again) = bench.append(events, batch);
                made.sort_unstable_by_key(|row| (row.slot, row.instance, row.row));
                let drain = bench.commit(&made, batch);
                println!(
                    "{:>11} {keys:>6} {batch:>6} {:>12.0} {each:>12.0} {drain:>12.0}",
                    format!("{synchronous:?}"),
                    append.max(again)
                );
            }
        }
    }
}
