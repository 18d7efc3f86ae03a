//! The example of departures, over the sample beside it.

use std::sync::Arc;

use evener::prelude::*;
use serde_json::json;

use crate::support::LONG;

#[path = "../../examples/flights/aircraft.rs"]
mod aircraft;
#[path = "../../examples/flights/departures.rs"]
mod departures;
#[path = "../../examples/flights/job.rs"]
#[allow(dead_code, reason = "the example shows more than its test asks for")]
mod job;
#[path = "../../examples/flights/plain.rs"]
#[allow(dead_code, reason = "the example shows more than its test asks for")]
mod plain;
#[path = "../../examples/flights/summary.rs"]
mod summary;

const SAMPLE: &str = include_str!("../../examples/flights/sample.csv");

fn start(store: evener::Store) -> (Runtime, Arc<aircraft::Probe>) {
    let probe = Arc::new(aircraft::Probe::default());
    let actor = aircraft::Aircraft { probe: Arc::clone(&probe) };
    (Runtime::builder().store(store).actor(actor).start().unwrap(), probe)
}

fn run(runtime: &Runtime, probe: &aircraft::Probe, plan: &job::Plan) -> job::Report {
    let expected = plain::count(SAMPLE, plan);
    let mut last = 0;
    let report = job::run(runtime, probe, SAMPLE, plan, &expected, &mut |progress| last = progress.appended);
    assert_eq!(last, plan.rows as u64, "the last word on the progress is the end");
    report.unwrap()
}

/// Of all rows, a timer for every fifth, 20 at the end one by one.
const ALL: job::Plan = job::Plan { rows: 200, timer_every: 5, live: 20 };

#[test]
fn the_logbooks_of_all_aircraft_are_those_of_a_plain_count() {
    let (runtime, probe) = start(evener::Store::memory());
    let report = run(&runtime, &probe, &ALL);
    assert_eq!(report.differences, [""; 0]);
    assert_eq!((report.departures, report.duplicates, report.dead_letters), (200, 0, 0));
    assert_eq!((report.aircraft, report.parked, report.bulk), (12, 9, 180));
    // Rows 180, 185, 190 and 195 have timers, row 191 no tail number: they are not measured.
    assert_eq!((report.called.count, report.committed.count), (15, 15));
    assert_eq!(report.timers, 40 - 2, "rows 30 and 145 have no tail number");
    assert_eq!(report.processed, 172 + 34, "in bulk: departures with a tail number, and arrivals");
    assert!(summary::text(&report, "memory").contains("equal, field by field, for 12 aircraft"));
    runtime.stop(LONG).unwrap();
}

#[test]
fn a_second_run_on_the_same_store_takes_up_where_the_first_ended() {
    let store = evener::Store::memory();
    let plan = job::Plan { rows: 120, ..ALL };
    let (runtime, probe) = start(store.clone());
    run(&runtime, &probe, &plan);
    runtime.stop(LONG).unwrap();
    // Those of before, some of them one by one then and in bulk now, and the others.
    let (runtime, probe) = start(store);
    let report = run(&runtime, &probe, &ALL);
    assert_eq!((report.departures, report.duplicates), (200, 120));
    assert_eq!(report.differences, [""; 0]);
}

#[test]
fn an_event_too_many_is_seen() {
    let (runtime, probe) = start(evener::Store::memory());
    run(&runtime, &probe, &ALL);
    let expected = plain::count(SAMPLE, &ALL);
    let key = expected.states.keys().next().unwrap();
    let before = expected.states[key]["arrivals"].as_u64().unwrap();
    runtime.tell("aircraft", key, Event::json("again", &json!({"arrival": {"row": 0}})).unwrap()).unwrap();
    runtime.wait_idle(LONG).unwrap();
    let differences = job::compare(&runtime, &expected).unwrap().differences;
    assert_eq!(differences, [format!("{key}.arrivals: {}, expected {before}", before + 1)]);
    runtime.append("departures", Event::new("nameless", "{}")).unwrap();
    let differences = job::compare(&runtime, &expected).unwrap().differences;
    assert_eq!(differences[1], "parked departures: 10, expected 9");
}

#[test]
fn a_row_that_is_none_names_its_line() {
    let (head, rows) = SAMPLE.split_once('\n').unwrap();
    let columns = departures::Columns::new(head).unwrap();
    let row = rows.lines().next().unwrap();
    assert_eq!(columns.read(0, row).unwrap().miles, 2475);
    let read = |line: &str| columns.read(41, line).unwrap_err();
    assert_eq!(read("2013,1"), "line 43: 19 plain cells were expected");
    assert_eq!(read(&row.replace("2475", "far")), "line 43: `far` is no number");
    assert!(departures::Columns::new("year,month").is_err());
}

#[test]
fn an_arrival_is_due_on_the_day_on_which_it_comes() {
    let columns = departures::Columns::new(SAMPLE.lines().next().unwrap()).unwrap();
    let due = |leaves: &str, comes: &str, hour: &str| {
        let row = format!("2013,2,28,0,{leaves},0,0,{comes},0,UA,1,N1,EWR,IAH,1,1,0,0,{hour}");
        columns.read(0, &row).unwrap().arrival_due
    };
    assert_eq!(due("515", "819", "2013-01-01T10:00:00Z"), 1_357_046_340_000);
    assert_eq!(due("2350", "10", "2013-03-01T04:00:00Z"), 1_362_114_600_000);
}
