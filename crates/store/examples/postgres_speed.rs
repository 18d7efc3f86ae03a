//! How many events a second the PostgreSQL back end appends and commits, on a throw-away server of its own.
//!
//! `cargo run --release -p evener-store --features throwaway --example postgres_speed [SECONDS]`
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use evener_actor::event::Event;
use evener_actor::id::{ActorName, ActorNo, Key, Slot, StreamNo, Tenant, TenantNo, Version};
use evener_store::batch::{
    Appended, End, InstanceCommit, NewEvent, NewRow, RowEnd, RowMade, Ticket, Waiting,
};
use evener_store::postgres::throwaway::Cluster;
use evener_store::postgres::{Postgres, Settings};
use evener_store::{Instances, Streams, Tenants, Workers};

struct World {
    store: Postgres,
    tenant: TenantNo,
    stream: StreamNo,
    actor: ActorNo,
}

fn world(cluster: &Cluster, name: &str) -> World {
    let store = Postgres::open(Settings::new(cluster.database(name).unwrap())).unwrap();
    let tenant = store.tenant(&Tenant::default()).unwrap();
    let stream = store.stream(tenant, &"orders".parse().unwrap()).unwrap();
    let definition = evener_actor::definition::ActorDefinition::new("counter".parse().unwrap());
    let actor = store.deploy(tenant, &[definition]).unwrap().actors[0].no;
    World { store, tenant, stream, actor }
}

impl World {
    fn event(&self, key: u64, number: u64) -> NewEvent {
        let actor: ActorName = "counter".parse().unwrap();
        let key: Key = format!("key-{key}").parse().unwrap();
        let data = format!(r#"{{"key":"{key}","n":{number},"text":"{}"}}"#, "x".repeat(60));
        NewEvent {
            tenant: self.tenant,
            stream: Some(self.stream),
            event: Event::new("order.placed", data).with_id(format!("e-{number}")).with_source("bench"),
            dedupe: None,
            rows: vec![NewRow {
                slot: Slot::of(&Tenant::default(), &actor, &key),
                actor: self.actor,
                key,
                group: None,
                is_indexed: false,
                priority: 0,
            }],
            deferred: Vec::new(),
            parked: Vec::new(),
        }
    }
}

/// Runs `act(lane)` again and again on so many threads; events a second.
fn measure(lanes: u16, time: Duration, act: impl Fn(u16, &AtomicBool) -> u64 + Sync) -> f64 {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for lane in 0..lanes {
            let (stop, done, act) = (&stop, &done, &act);
            scope.spawn(move || {
                done.fetch_add(act(lane, stop), Ordering::Relaxed);
            });
        }
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
    });
    done.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64()
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(3.0);
    let time = Duration::from_secs_f64(seconds);
    let cluster = Cluster::start(&["shared_buffers = 1GB", "max_wal_size = 4GB"]).unwrap();
    println!("{:>8} {:>6} {:>6} {:>8} {:>12} {:>12}", "keys", "lanes", "batch", "", "append/s", "commit/s");
    for keys in [100_u64, 10_000] {
        for lanes in [1_u16, 2, 4] {
            for batch in [16_usize, 128, 1_024] {
                let name = format!("b{keys}_{lanes}_{batch}");
                let world = world(&cluster, &name);
                let boot = world.store.register("bench").unwrap();
                // All instances are there, and their keys known, before the clock runs.
                let all: Vec<NewEvent> = (0..keys).map(|key| world.event(key, key)).collect();
                for (number, chunk) in (1..).zip(all.chunks(1_024)) {
                    world.store.append(Ticket { boot, lane: 999, number }, chunk).unwrap();
                }
                let append = {
                    let world = &world;
                    measure(lanes, time, |lane, stop| {
                        let (mut number, mut done) = (0, 0_u64);
                        // Made before: a batch of events is the caller's work.
                        let batches: Vec<Vec<NewEvent>> = (0..8_u64)
                            .map(|of| {
                                let first = of * batch as u64 * 7919 + u64::from(lane) * 104_729;
                                (0..batch as u64)
                                    .map(|at| world.event((first + at * 31) % keys, first + at))
                                    .collect()
                            })
                            .collect();
                        while !stop.load(Ordering::Relaxed) {
                            number += 1;
                            let events = &batches[number as usize % batches.len()];
                            world.store.append(Ticket { boot, lane: 100 + lane, number }, events).unwrap();
                            done += batch as u64;
                        }
                        done
                    })
                };
                let commit = commits(&world, boot, keys, lanes, batch, time);
                println!("{keys:>8} {lanes:>6} {batch:>6} {:>8} {append:>12.0} {commit:>12.0}", "");
                drop(world);
                cluster.execute("postgres", &format!("DROP DATABASE {name} WITH (FORCE)")).unwrap();
                cluster.execute("postgres", "CHECKPOINT").unwrap();
            }
        }
    }
}

fn commits(
    world: &World,
    boot: evener_actor::id::Boot,
    keys: u64,
    lanes: u16,
    batch: usize,
    time: Duration,
) -> f64 {
    // Fill: rows for as long as it may last.
    let wanted = (time.as_secs_f64() * 160_000.0) as usize / batch * batch;
    let mut made: Vec<RowMade> = Vec::with_capacity(wanted);
    let mut number = 0;
    while made.len() < wanted {
        number += 1;
        let events: Vec<NewEvent> =
            (0..1_024).map(|at| world.event((number as u64 * 1_024 + at) * 31 % keys, at)).collect();
        for answer in world.store.append(Ticket { boot, lane: 998, number }, &events).unwrap() {
            if let Appended::New { rows, .. } = answer {
                made.extend(rows);
            }
        }
    }
    let mut waiting: Vec<Waiting> =
        made.iter().map(|row| Waiting { slot: row.slot, instance: row.instance }).collect();
    waiting.sort_unstable();
    waiting.dedup();
    let mut claimed = std::collections::HashMap::new();
    for chunk in waiting.chunks(1_000) {
        for one in world.store.claim(boot, chunk).unwrap() {
            claimed.insert(one.instance, (one.epoch, one.version));
        }
    }
    // Each instance belongs to one lane.
    let mut of_lane: Vec<Vec<RowMade>> = vec![Vec::new(); usize::from(lanes)];
    for row in made {
        of_lane[row.instance.0 as usize % usize::from(lanes)].push(row);
    }
    let state = Bytes::from(format!(r#"{{"count":1,"last":"{}"}}"#, "y".repeat(80)));
    measure(lanes, time, |lane, stop| {
        let mut versions = claimed.clone();
        let (mut number, mut done) = (0, 0);
        for rows in of_lane[usize::from(lane)].chunks(batch) {
            if stop.load(Ordering::Relaxed) {
                return done;
            }
            number += 1;
            // Outcomes of one instance are merged, as the runtime does it.
            let mut commits: std::collections::BTreeMap<_, InstanceCommit> =
                std::collections::BTreeMap::new();
            for row in rows {
                let (epoch, version) = versions[&row.instance];
                let commit = commits.entry(row.instance).or_insert_with(|| InstanceCommit {
                    slot: row.slot,
                    instance: row.instance,
                    epoch,
                    version,
                    version_after: version,
                    state: Some(state.clone()),
                    ends: Vec::new(),
                });
                commit.version_after = Version(commit.version_after.0 + 1);
                commit.ends.push(RowEnd {
                    row: row.row,
                    end: End::Done { events: Vec::new(), schedules: Vec::new() },
                });
            }
            let commits: Vec<InstanceCommit> = commits.into_values().collect();
            let report = world.store.commit(Ticket { boot, lane, number }, &commits).unwrap();
            assert!(report.committed.iter().all(|is_committed| *is_committed));
            for commit in commits {
                versions.insert(commit.instance, (commit.epoch, commit.version_after));
            }
            done += rows.len() as u64;
        }
        println!("lane {lane} ran out of rows");
        done
    })
}
