//! The same over the file alone, in another way: rows are gathered by aircraft first, then each field is
//! counted by itself. Nothing here is evener's, or shared with the actor.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::job::Plan;

// Where the columns are.
const DEP_TIME: usize = 3;
const ARR_DELAY: usize = 8;
const CARRIER: usize = 9;
const TAILNUM: usize = 11;
const ORIGIN: usize = 12;
const DEST: usize = 13;
const DISTANCE: usize = 15;

/// What must come out.
#[derive(Debug)]
pub(crate) struct Expected {
    /// State of each aircraft, by tail number.
    pub states: BTreeMap<String, Value>,
    /// Departures without an aircraft.
    pub nameless: u64,
    /// Timers.
    pub timers: u64,
}

type Row<'a> = (usize, Vec<&'a str>);

/// Counts.
pub(crate) fn count(text: &str, plan: &Plan) -> Expected {
    let mut aircraft: BTreeMap<&str, Vec<Row<'_>>> = BTreeMap::new();
    let rows = text.lines().skip(1).take(plan.rows).map(|line| line.split(',').collect::<Vec<_>>());
    for (row, cells) in rows.enumerate() {
        aircraft.entry(cells[TAILNUM]).or_default().push((row, cells));
    }
    let nameless = aircraft.remove("NA").map_or(0, |rows| rows.len() as u64);
    let is_timed = |(row, _): &&Row<'_>| plan.timer_every > 0 && row % plan.timer_every == 0;
    let timers = aircraft.values().flatten().filter(is_timed).count() as u64;
    let states = aircraft
        .into_iter()
        .map(|(tailnum, rows)| {
            let flown: Vec<&Row<'_>> = rows.iter().filter(|(_, cells)| cells[DEP_TIME] != "NA").collect();
            let timed: Vec<usize> = rows.iter().filter(is_timed).map(|(row, _)| *row).collect();
            let mut airports: BTreeMap<&str, u64> = BTreeMap::new();
            for (_, cells) in &flown {
                *airports.entry(cells[ORIGIN]).or_default() += 1;
                *airports.entry(cells[DEST]).or_default() += 1;
            }
            let sum = |column: usize| -> i64 {
                flown.iter().filter_map(|(_, cells)| cells[column].parse::<i64>().ok()).sum()
            };
            let state = json!({
                "flights": rows.len(),
                "cancelled": rows.len() - flown.len(),
                "miles": sum(DISTANCE),
                "minutes_late": sum(ARR_DELAY),
                "airports": airports,
                "carriers": carriers(&rows, &flown),
                "arrivals": timed.len(),
                "arrival_rows": timed.iter().sum::<usize>(),
            });
            (tailnum.to_owned(), state)
        })
        .collect();
    Expected { states, nameless, timers }
}

fn carriers(rows: &[Row<'_>], flown: &[&Row<'_>]) -> BTreeMap<String, Value> {
    let mut names: Vec<&str> = rows.iter().map(|(_, cells)| cells[CARRIER]).collect();
    names.sort_unstable();
    names.dedup();
    let of = |name: &str| {
        let own: Vec<u64> =
            rows.iter().filter(|(_, cells)| cells[CARRIER] == name).map(|(row, _)| *row as u64).collect();
        let last = flown.iter().rev().find(|(_, cells)| cells[CARRIER] == name).map(|(_, cells)| cells[DEST]);
        let trail = own.iter().fold(0_u64, |trail, row| trail.wrapping_mul(31).wrapping_add(*row));
        json!({ "flights": own.len(), "last": last, "trail": trail })
    };
    names.into_iter().map(|name| (name.to_owned(), of(name))).collect()
}

/// Where two values differ, as `path: ours, expected theirs`.
pub(crate) fn differences(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let both = ours.keys().chain(theirs.keys().filter(|name| !ours.contains_key(*name)));
            for name in both {
                let side =
                    |side: &serde_json::Map<String, Value>| side.get(name).cloned().unwrap_or(Value::Null);
                differences(&format!("{path}.{name}"), &side(ours), &side(theirs), found);
            }
        }
        _ if ours == theirs => {}
        _ => found.push(format!("{path}: {ours}, expected {theirs}")),
    }
}
