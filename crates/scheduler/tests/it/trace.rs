//! The trace: read back by somebody else's parser, and held against the statistics.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc;
use std::time::Duration;

use evener_scheduler::commands::Sleep;
use evener_scheduler::{Event, Pid, Scheduler, SpawnOptions, StartError, Stats, Tag, Trace};
use serde_json::Value;

use crate::support::{LIMIT, process, quiet_panics, recv, until};

/// What a trace shows, out of its JSON.
#[derive(Default)]
struct Picture {
    /// Names of the rows.
    rows: BTreeMap<u64, String>,
    /// Of each row: turns, parks and calls, by their begin.
    slices: BTreeMap<u64, Vec<Slice>>,
    /// How many moments of each name.
    moments: HashMap<String, u64>,
    /// Of each flow: where it starts, and where it ends.
    flows: HashMap<u64, (Option<Point>, Option<Point>)>,
    lost: u64,
}

struct Slice {
    category: String,
    name: String,
    pid: Option<String>,
    begin: u64,
    end: u64,
    turn: Option<u64>,
    is_unfinished: bool,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    row: u64,
    time: u64,
}

/// Nanoseconds of a time in microseconds.
fn nanos(value: &Value) -> u64 {
    let micros = value.as_f64().expect("a time is a number");
    (micros * 1_000.0).round() as u64
}

impl Picture {
    /// Reads a trace, and checks what holds for each.
    fn of(trace: &Trace) -> Self {
        let mut json = Vec::new();
        trace.write_chrome(&mut json).expect("memory takes it");
        Self::read(&json)
    }

    fn read(json: &[u8]) -> Self {
        let whole: Value = serde_json::from_slice(json).expect("it is JSON");
        let mut picture = Self::default();
        let lost = whole["otherData"]["lost"].as_object().expect("lost events by row");
        picture.lost = lost.values().map(|lost| lost.as_u64().expect("a count")).sum();
        for event in whole["traceEvents"].as_array().expect("a list of events") {
            picture.take(event);
        }
        picture.check();
        picture
    }

    fn take(&mut self, event: &Value) {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let row = event["tid"].as_u64().expect("a row");
        let name = text(&event["name"]).expect("a name");
        let time = || nanos(&event["ts"]);
        let args = &event["args"];
        match event["ph"].as_str().expect("a phase") {
            "M" if name == "thread_name" => {
                let before = self.rows.insert(row, text(&args["name"]).expect("a name"));
                assert_eq!(before, None, "a row has two names");
            }
            "M" => {}
            "X" => self.slices.entry(row).or_default().push(Slice {
                category: text(&event["cat"]).expect("a category"),
                name,
                pid: text(&args["pid"]),
                begin: time(),
                end: time() + nanos(&event["dur"]),
                turn: args["turn"].as_u64(),
                is_unfinished: args["unfinished"].as_bool() == Some(true),
            }),
            "i" => *self.moments.entry(name).or_default() += 1,
            phase @ ("s" | "f") => {
                let ends = self.flows.entry(event["id"].as_u64().expect("a flow's number")).or_default();
                let end = if phase == "s" { &mut ends.0 } else { &mut ends.1 };
                let before = end.replace(Point { row, time: time() });
                assert!(before.is_none(), "a flow has two ends of a kind");
            }
            other => panic!("an event of phase {other}"),
        }
    }

    fn check(&mut self) {
        for (row, slices) in &mut self.slices {
            assert!(self.rows.contains_key(row), "row {row} has no name");
            let turns = slices.iter().filter(|slice| slice.category == "run");
            assert!(turns.is_sorted_by_key(|slice| slice.begin), "turns come in their order");
            slices.sort_by_key(|slice| (slice.begin, slice.end));
            for pair in slices.windows(2) {
                assert!(pair[0].end <= pair[1].begin, "slices of row {row} overlap");
            }
        }
        for (flow, ends) in &self.flows {
            let (Some(start), Some(end)) = ends else {
                panic!("flow {flow} has one end: {ends:?}");
            };
            assert!(start.time <= end.time, "flow {flow} runs back in time");
            // Several slices may begin at one time, all but the last of them without length.
            let at = |point: Point| {
                let slices = &self.slices[&point.row];
                let after = slices.partition_point(|slice| slice.begin <= point.time);
                slices[..after].iter().rev().take_while(move |slice| slice.end >= point.time)
            };
            let mut turns = at(*end).filter(|slice| slice.category == "run");
            assert!(turns.any(|slice| slice.begin == end.time), "flow {flow} leads to no turn");
            assert!(at(*start).next().is_some(), "flow {flow} starts outside of any slice");
        }
    }

    fn of_category<'a>(&'a self, category: &'a str) -> impl Iterator<Item = &'a Slice> {
        self.slices.values().flatten().filter(move |slice| slice.category == category)
    }

    fn moments(&self, name: &str) -> u64 {
        self.moments.get(name).copied().unwrap_or(0)
    }

    /// Turns of each process.
    fn turns(&self) -> HashMap<&str, u64> {
        let mut turns = HashMap::new();
        for slice in self.of_category("run") {
            *turns.entry(slice.pid.as_deref().expect("a turn is a process's")).or_default() += 1;
        }
        turns
    }
}

/// Some of everything: processes that talk, sleep, spawn and end, on two workers, sent to from outside. What
/// it leaves are the talkers, idle.
fn work(scheduler: &Scheduler) {
    let (done, ended) = mpsc::channel();
    let talker = || {
        process(|events, out| {
            for event in events.by_ref() {
                match event {
                    Event::Message(message) => match message.take::<(Option<Pid>, u32)>() {
                        Ok((Some(to), left)) if left > 0 => {
                            out.send(to, (Some(out.self_pid()), left - 1)).expect("the other lives");
                        }
                        _ => {}
                    },
                    Event::Cancel(_) => out.done(()),
                    _ => {}
                }
            }
            Ok(())
        })
    };
    for _ in 0..4 {
        let pair = [talker(), talker()].map(|talker| scheduler.spawn(talker, SpawnOptions::new()).unwrap());
        evener_scheduler::send(evener_scheduler::Package::new(pair[0], (Some(pair[1]), 500_u32))).unwrap();
    }
    for round in 0..20 {
        let done = done.clone();
        scheduler
            .spawn_once(move |out| {
                for _ in 0..10 {
                    let done = done.clone();
                    out.spawn_once(move |_| done.send(()).expect("the test waits")).unwrap();
                }
                let sleeper = process(move |events, out| {
                    if events.by_ref().count() == 0 {
                        out.command(Tag(1), Sleep(Duration::from_millis(round % 4)));
                        out.wait_for_yields();
                    } else {
                        out.done(());
                    }
                    Ok(())
                });
                out.spawn(sleeper, SpawnOptions::new()).unwrap();
            })
            .unwrap();
    }
    for _ in 0..200 {
        recv(&ended);
    }
}

/// Waits till the talkers alone are left and all workers sleep; what is then counted stays.
fn quiet(scheduler: &Scheduler) -> Stats {
    until("all work is done and all workers sleep", || {
        let stats = scheduler.stats();
        if stats.by_state.idle != 8 || stats.by_state.total() != 8 || stats.parked != stats.workers.len() {
            return false;
        }
        // A worker is on the list of sleepers a little before it sleeps.
        let asleep = Picture::of(&scheduler.trace_so_far().expect("it is on"));
        let asleep = asleep.of_category("park").filter(|slice| slice.is_unfinished).count();
        asleep == stats.workers.len()
    });
    scheduler.stats()
}

#[test]
fn a_trace_agrees_with_the_statistics() {
    quiet_panics();
    let scheduler = Scheduler::builder().workers(2).trace_from_start().start().unwrap();
    work(&scheduler);
    let stats = quiet(&scheduler);
    let infos = scheduler.list_processes();
    let trace = scheduler.trace_stop().expect("it was on from the start");
    let picture = Picture::of(&trace);
    let total = stats.total();
    assert_eq!(picture.lost, 0, "the rings were large enough");
    assert_eq!(trace.lost(), 0);
    assert_eq!(picture.moments("spawn"), total.spawned + stats.spawned_outside);
    assert_eq!(picture.moments("end"), total.ended);
    if cfg!(feature = "stats") {
        assert_eq!(picture.moments("steal"), total.steals);
        assert_eq!(picture.of_category("park").count() as u64, total.parks);
    }
    // The turns of those alive, one by one; and of those that have ended at least one each.
    let turns = picture.turns();
    for info in &infos {
        assert_eq!(turns[info.pid.to_string().as_str()], u64::from(info.steps), "turns of {}", info.pid);
    }
    assert_eq!(turns.len() as u64, total.spawned + stats.spawned_outside);
    // Each turn has a number, of its worker, that no other turn has.
    for (worker, stats) in stats.workers.iter().enumerate() {
        let numbers: Vec<u64> = picture.slices[&(worker as u64 + 1)]
            .iter()
            .filter(|slice| slice.category == "run")
            .map(|slice| slice.turn.expect("it is over"))
            .collect();
        assert!(numbers.is_sorted_by(|one, other| one < other), "worker {worker}: {numbers:?}");
        assert!(numbers.last().is_none_or(|last| *last <= stats.turns));
        assert!(numbers.len() as u64 <= stats.turns);
    }
    // Only what sleeps has not ended; each became ready by somebody's act, and a flow says by whose.
    assert!(picture.slices.values().flatten().all(|slice| !slice.is_unfinished || slice.category == "park"));
    assert_eq!(picture.flows.len() as u64, picture.moments("spawn") + picture.moments("ready"));
    assert!(picture.moments("ready") >= 4 * 500, "each message of a pair wakes its receiver");
    assert!(picture.of_category("run").any(|slice| slice.name.contains("FnProcess")), "types have names");
    assert!(scheduler.trace_stop().is_none());
    scheduler.shutdown(LIMIT);
}

#[test]
fn a_ring_that_overflows_says_what_it_lost() {
    quiet_panics();
    let scheduler = Scheduler::builder().workers(2).trace_events_max(64).trace_from_start().start().unwrap();
    work(&scheduler);
    quiet(&scheduler);
    let trace = scheduler.trace_stop().unwrap();
    let picture = Picture::of(&trace);
    assert_eq!(picture.lost, trace.lost());
    assert!(picture.lost > 1_000, "{} were lost", picture.lost);
    assert!(trace.events() <= 4 * 64);
    assert!(picture.of_category("run").count() > 10);
}

#[test]
fn a_trace_is_switched_on_and_off_while_processes_run() {
    quiet_panics();
    let scheduler = Scheduler::builder().workers(2).trace_events_max(512).start().unwrap();
    assert!(scheduler.trace_stop().is_none());
    assert!(scheduler.trace_so_far().is_none());
    // Two that never rest: what is recorded has neither begin nor end.
    for _ in 0..2 {
        let hog = process(|_, out| {
            out.continue_soon();
            Ok(())
        });
        scheduler.spawn(hog, SpawnOptions::new()).unwrap();
    }
    for _ in 0..8 {
        assert!(scheduler.trace_start());
        assert!(!scheduler.trace_start(), "one is on");
        until("turns are recorded", || {
            Picture::of(&scheduler.trace_so_far().unwrap()).of_category("run").count() > 50
        });
        let picture = Picture::of(&scheduler.trace_stop().unwrap());
        assert!(picture.of_category("run").count() > 50);
        assert!(scheduler.trace_so_far().is_none());
    }
    let turns = scheduler.stats().total().turns;
    until("they run on without a trace", || scheduler.stats().total().turns > turns + 1_000);
    scheduler.shutdown(Duration::ZERO);
}

#[test]
fn a_ring_has_a_size_that_fits() {
    let refused = Scheduler::builder().trace_events_max(1_000).start();
    assert!(matches!(refused, Err(StartError::PowerOfTwo { setting: "trace_events_max", value: 1_000 })));
    let refused = Scheduler::builder().trace_events_max(1).start();
    assert!(matches!(refused, Err(StartError::Setting { setting: "trace_events_max", .. })));
}

/// A path for a file of this test, in a folder that is there.
fn file(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("evener-{}-{name}.json", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// Reads a trace, and takes it away.
fn read(path: &std::path::Path) -> Picture {
    let json = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    std::fs::remove_file(path).expect("it was ours");
    Picture::read(&json)
}

#[test]
fn a_trace_file_is_there_when_shutdown_returns() {
    quiet_panics();
    let path = file("shutdown");
    let scheduler = Scheduler::builder().workers(2).trace_file(&path).start().unwrap();
    work(&scheduler);
    scheduler.shutdown(LIMIT);
    let picture = read(&path);
    let stats = scheduler.stats();
    let total = stats.total();
    assert_eq!(picture.moments("spawn"), total.spawned + stats.spawned_outside);
    assert_eq!(picture.moments("end"), total.ended, "all have ended, and all ends are there");
    assert_eq!(total.ended, total.spawned + stats.spawned_outside);
    drop(scheduler);
    assert!(!path.exists(), "it is written once");
}

#[test]
fn a_trace_file_is_there_when_the_drop_returns_and_each_host_has_its_own() {
    quiet_panics();
    let path = file("drop");
    let start = || Scheduler::builder().workers(1).trace_file(&path).start().unwrap();
    let (one, two) = (start(), start());
    let (done, ended) = mpsc::channel();
    one.spawn_once(move |_| done.send(()).unwrap()).unwrap();
    recv(&ended);
    drop(two);
    let second = path.with_extension("2.json");
    assert_eq!(read(&second).of_category("run").count(), 0);
    assert!(!path.exists());
    drop(one);
    assert_eq!(read(&path).of_category("run").count(), 1);
}

#[test]
fn a_trace_file_shows_the_step_that_does_not_end() {
    quiet_panics();
    let path = file("stuck");
    let scheduler = Scheduler::builder().workers(1).trace_file(&path).start().unwrap();
    let (begun, begins) = mpsc::channel();
    let (release, waits) = mpsc::channel::<()>();
    scheduler
        .spawn_once(move |_| {
            begun.send(()).unwrap();
            let _ = waits.recv_timeout(LIMIT);
        })
        .unwrap();
    recv(&begins);
    assert_eq!(scheduler.shutdown(Duration::ZERO).still_running.len(), 1);
    let picture = read(&path);
    assert_eq!(picture.of_category("run").filter(|slice| slice.is_unfinished).count(), 1);
    release.send(()).unwrap();
}

#[test]
fn a_trace_file_that_cannot_be_written_hurts_nobody() {
    quiet_panics();
    let path = std::env::temp_dir().join("evener-no-such-folder").join("trace.json");
    let scheduler = Scheduler::builder().workers(1).trace_file(&path).start().unwrap();
    let (done, ended) = mpsc::channel();
    scheduler.spawn_once(move |_| done.send(()).unwrap()).unwrap();
    recv(&ended);
    scheduler.shutdown(LIMIT);
    assert!(!path.exists());
}

#[test]
fn summaries_come_at_their_interval_and_a_panic_ends_them() {
    quiet_panics();
    let (summaries, come) = mpsc::channel();
    let mut count = 0;
    let scheduler = Scheduler::builder()
        .workers(2)
        .summaries(Duration::from_millis(2), move |summary| {
            summaries.send(summary.clone()).expect("the test waits");
            count += 1;
            assert!(count < 5, "{}", crate::support::ON_PURPOSE);
        })
        .start()
        .unwrap();
    let mut last = Duration::ZERO;
    for _ in 0..5 {
        let summary: evener_scheduler::Summary = recv(&come);
        assert!(summary.time > last && summary.interval >= Duration::from_millis(2));
        last = summary.time;
        assert_eq!((summary.host.as_str(), summary.queued_local.len()), ("main", 2));
        assert!(summary.idle + summary.searching <= 2);
        let line = summary.to_string();
        for part in ["main ", "ms: workers=2 idle=", " global=0 local=[0 0] turns/s=", " steals=", " parks="]
        {
            assert!(line.contains(part), "{line}");
        }
        assert!(!line.contains('\n'));
    }
    // The sink is gone, its end of the channel too.
    assert!(come.recv_timeout(LIMIT).is_err());
    scheduler.shutdown(LIMIT);
    let never = Duration::from_secs(86_401);
    let refused = Scheduler::builder().summaries(never, |_| {}).start();
    assert!(matches!(refused, Err(StartError::Setting { setting, .. }) if setting.contains("summaries")));
}

#[test]
fn a_summary_counts_what_happens_and_the_thread_ends_with_the_host() {
    quiet_panics();
    let (summaries, come) = mpsc::channel();
    let scheduler = Scheduler::builder()
        .workers(1)
        .summaries(Duration::from_millis(1), move |summary| {
            let _ = summaries.send(summary.turns);
        })
        .start()
        .unwrap();
    let hog = process(|_, out| {
        out.continue_soon();
        Ok(())
    });
    scheduler.spawn(hog, SpawnOptions::new()).unwrap();
    until("a summary shows turns", || recv(&come) > 100);
    // A shutdown joins the host's threads: it returns only because this one ends as well.
    scheduler.shutdown(Duration::ZERO);
    until("the sink is dropped", || {
        matches!(come.recv_timeout(LIMIT), Err(mpsc::RecvTimeoutError::Disconnected))
    });
}

#[cfg(unix)]
#[test]
fn a_signal_begins_a_trace_and_the_next_one_writes_it() {
    quiet_panics();
    let path = file("signal");
    let scheduler = Scheduler::builder().workers(1).trace_on_signal(&path).start().unwrap();
    let kill = || {
        let us = std::process::id().to_string();
        let killed = std::process::Command::new("kill").args(["-USR2", &us]).status().expect("a kill");
        assert!(killed.success());
    };
    for path in [path.clone(), path.with_extension("2.json")] {
        kill();
        until("a trace is on", || scheduler.trace_so_far().is_some());
        assert!(!path.exists());
        // The worker joins a little after the trace has begun.
        until("a turn is recorded", || {
            scheduler.spawn_once(|_| {}).unwrap();
            Picture::of(&scheduler.trace_so_far().unwrap()).moments("end") > 0
        });
        kill();
        // One that is half written is no JSON.
        until("the file is whole", || {
            std::fs::read(&path).is_ok_and(|json| serde_json::from_slice::<Value>(&json).is_ok())
        });
        assert!(read(&path).moments("end") > 0);
        assert!(scheduler.trace_so_far().is_none());
    }
    // One that is on at the end is written then.
    kill();
    until("a trace is on", || scheduler.trace_so_far().is_some());
    scheduler.shutdown(LIMIT);
    read(&path.with_extension("3.json"));
}

#[test]
fn the_environment_is_heard() {
    const CHILD: &str = "EVENER_TEST_OF_THE_ENVIRONMENT";
    if std::env::var_os(CHILD).is_some() {
        // Two hosts, one after the other, each for some summaries.
        for _ in 0..2 {
            let scheduler = Scheduler::builder().workers(1).start().unwrap();
            let (done, ended) = mpsc::channel();
            let sleeper = process(move |events, out| {
                if events.by_ref().count() == 0 {
                    out.command(Tag(1), Sleep(Duration::from_millis(50)));
                    out.wait_for_yields();
                } else {
                    let _ = done.send(());
                    out.done(());
                }
                Ok(())
            });
            scheduler.spawn(sleeper, SpawnOptions::new()).unwrap();
            recv(&ended);
            scheduler.shutdown(LIMIT);
        }
        let alone = Scheduler::builder().workers(1).ignore_environment().start().unwrap();
        assert!(alone.trace_so_far().is_none());
        return;
    }
    let path = file("environment");
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["trace::the_environment_is_heard", "--exact", "--nocapture"])
        .env(CHILD, "1")
        .env("EVENER_TRACE", &path)
        .env("EVENER_TRACE_EVENTS", "1000")
        .env("EVENER_SCHEDTRACE", "2")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{said}");
    let complaint = "evener: EVENER_TRACE_EVENTS is \"1000\"; it must be a power of two from 2 to 16777216. It is ignored";
    assert_eq!(said.lines().filter(|line| *line == complaint).count(), 1, "{said}");
    assert!(
        said.lines().any(|line| line.starts_with("evener: main ") && line.contains("ms: workers=1 ")),
        "{said}"
    );
    for path in [path.clone(), path.with_extension("2.json")] {
        let picture = read(&path);
        assert_eq!((picture.moments("spawn"), picture.moments("end"), picture.lost), (1, 1, 0));
        // Begun, and woken by its timer.
        assert_eq!((picture.moments("block"), picture.moments("ready"), picture.flows.len()), (1, 1, 2));
    }
}
