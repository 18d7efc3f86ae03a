//! The job: append all departures, wait for all that follows from them, compare.
#![allow(
    clippy::disallowed_methods,
    reason = "it measures how long things take, and waits between two looks"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use evener::prelude::*;
use evener::{Accepted, AppendError};
use serde::Serialize;
use serde_json::Value;

use super::aircraft::{AIRCRAFT, DEPARTURES, Heard, Probe, SENT, TIMED};
use super::departures::{Columns, Departure};
use super::plain::{Expected, differences};

/// Departures in one append.
const APPEND_EVENTS: usize = 512;
/// Appends that are under way at once, at most.
const APPENDS_MAX: usize = 8;
/// Nothing is committed for so long: something hangs.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// What to do.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// How many rows of the file.
    pub rows: usize,
    /// Every how many rows a timer tells of the arrival; 0: none does.
    pub timer_every: usize,
    /// How many rows at the end come one by one, each when the one before is committed.
    pub live: usize,
}

/// How far it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    /// Departures that are committed in the stream.
    pub appended: u64,
    /// Events that aircraft are done with.
    pub processed: u64,
}

/// What came out.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Departures that were handed over.
    pub departures: u64,
    /// Those of them that were there already, from a run before.
    pub duplicates: u64,
    /// Instances.
    pub aircraft: u64,
    /// Departures that no aircraft could be found for.
    pub parked: u64,
    /// Events that failed for good.
    pub dead_letters: u64,
    /// Arrivals that timers told of.
    pub timers: u64,
    /// Departures that were appended in bulk.
    pub bulk: u64,
    /// Seconds till the last of these was committed in the stream.
    pub append_secs: f64,
    /// Seconds till everything that followed was committed.
    pub total_secs: f64,
    /// Calls in the bulk that ended, arrivals too.
    pub processed: u64,
    /// Commits for them.
    pub batches: u64,
    /// Departures that came one by one: till the append was answered.
    pub answered: Times,
    /// Till the call began.
    pub called: Times,
    /// Till the call was committed.
    pub committed: Times,
    /// What differs from the plain count; empty: nothing.
    pub differences: Vec<String>,
}

/// Times that were measured, in milliseconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Times {
    /// How many.
    pub count: usize,
    /// Half took no longer.
    pub p50_ms: f64,
    /// 99 of 100 took no longer.
    pub p99_ms: f64,
    /// None took longer.
    pub max_ms: f64,
}

impl From<Vec<Duration>> for Times {
    fn from(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |per_cent: usize| {
            let place = (times.len() * per_cent).div_ceil(100).saturating_sub(1);
            times.get(place).map_or(0.0, |time| time.as_secs_f64() * 1e3)
        };
        Self { count: times.len(), p50_ms: at(50), p99_ms: at(99), max_ms: at(100) }
    }
}

type Answer = Result<Vec<Accepted>, AppendError>;

/// Does it all. `watch` is told how far it is, a few times a second or more often.
///
/// # Errors
/// When the file or the store is faulty, or nothing moves any more. That the states are not what they should
/// be is no error here: see [`Report::differences`].
pub(crate) fn run(
    runtime: &Runtime,
    probe: &Probe,
    text: &str,
    plan: &Plan,
    expected: &Expected,
    watch: &mut dyn FnMut(Progress),
) -> Result<Report, Box<dyn Error>> {
    let mut lines = text.lines();
    let columns = Columns::new(lines.next().ok_or("the file is empty")?)?;
    let bulk = plan.rows.saturating_sub(plan.live);
    let mut rows = lines.take(plan.rows).zip(0_u64..).map(|(line, row)| {
        let departure = columns.read(row, line)?;
        let is_timed = plan.timer_every > 0 && row % plan.timer_every as u64 == 0;
        event(departure, is_timed)
    });
    let mut job = Job { runtime, watch, appended: 0, duplicates: 0 };

    let before = runtime.counts();
    let began = Instant::now();
    let appended = job.append_all(&mut rows.by_ref().take(bulk))?;
    let append_secs = began.elapsed().as_secs_f64();
    job.settle()?;
    let total_secs = began.elapsed().as_secs_f64();
    let after = runtime.counts();

    let (answered, committed) = job.append_each(&mut rows, probe)?;
    job.settle()?;
    let duplicates = job.duplicates;

    let compared = compare(runtime, expected)?;
    Ok(Report {
        departures: job.appended + duplicates,
        duplicates,
        aircraft: compared.aircraft,
        parked: compared.parked,
        dead_letters: pages(|after| {
            Ok(runtime.dead_letters(None, after, PAGE)?.iter().map(|letter| letter.id).collect())
        })?,
        timers: compared.arrivals,
        bulk: appended,
        append_secs,
        total_secs,
        processed: after.committed - before.committed,
        batches: after.batches - before.batches,
        answered: answered.into(),
        called: probe.ways().into(),
        committed: committed.into(),
        differences: compared.differences,
    })
}

const PAGE: u32 = 1_000;

/// Counts what comes in pages of numbers.
fn pages(page: impl Fn(i64) -> Result<Vec<i64>, Box<dyn Error>>) -> Result<u64, Box<dyn Error>> {
    let (mut count, mut after) = (0, 0);
    loop {
        let numbers = page(after)?;
        let Some(last) = numbers.last() else { return Ok(count) };
        (count, after) = (count + numbers.len() as u64, *last);
    }
}

struct Job<'a> {
    runtime: &'a Runtime,
    watch: &'a mut dyn FnMut(Progress),
    appended: u64,
    duplicates: u64,
}

type Rows<'a> = dyn Iterator<Item = Result<Event, Box<dyn Error>>> + 'a;

impl Job<'_> {
    /// Appends in bulk, some appends at once. Returns how many departures there were.
    fn append_all(&mut self, rows: &mut Rows<'_>) -> Result<u64, Box<dyn Error>> {
        let (tell, told) = mpsc::channel::<Answer>();
        let mut under_way = 0;
        let mut count = 0;
        loop {
            let events = rows.take(APPEND_EVENTS).collect::<Result<Vec<_>, _>>()?;
            if events.is_empty() {
                break;
            }
            count += events.len() as u64;
            if under_way == APPENDS_MAX {
                self.hear(&told)?;
                under_way -= 1;
            }
            under_way += 1;
            let tell = tell.clone();
            self.runtime.append_then(DEPARTURES, events, move |answer| drop(tell.send(answer)));
        }
        for _ in 0..under_way {
            self.hear(&told)?;
        }
        Ok(count)
    }

    fn hear(&mut self, told: &Receiver<Answer>) -> Result<(), Box<dyn Error>> {
        let accepted = told.recv()??;
        self.count(&accepted);
        self.show();
        Ok(())
    }

    fn count(&mut self, accepted: &[Accepted]) {
        let duplicates = accepted.iter().filter(|accepted| accepted.duplicate.is_some()).count();
        self.duplicates += duplicates as u64;
        self.appended += (accepted.len() - duplicates) as u64;
    }

    fn show(&mut self) {
        let processed = self.runtime.counts().committed;
        (self.watch)(Progress { appended: self.appended + self.duplicates, processed });
    }

    /// Waits until all events are done with and all timers have fired.
    fn settle(&mut self) -> Result<(), Box<dyn Error>> {
        // What is done with may have set timers, and those make the last events.
        self.until("events wait", is_idle)?;
        self.until("timers wait", |runtime| Ok(runtime.schedules(None, 1)?.is_empty()))?;
        self.until("events of timers wait", is_idle)
    }

    fn until(
        &mut self,
        what: &str,
        is_so: impl Fn(&Runtime) -> Result<bool, evener::Error>,
    ) -> Result<(), Box<dyn Error>> {
        let (mut processed, mut moved) = (0, Instant::now());
        while !is_so(self.runtime)? {
            self.show();
            let now = self.runtime.counts().committed;
            if now != processed {
                (processed, moved) = (now, Instant::now());
            }
            if moved.elapsed() > SILENCE_MAX {
                return Err(format!("{what}, and nothing was committed for {SILENCE_MAX:?}").into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.show();
        Ok(())
    }

    /// Appends one by one, each when the one before is done with. Returns the times till the append was
    /// answered and till the call was committed.
    fn append_each(
        &mut self,
        rows: &mut Rows<'_>,
        probe: &Probe,
    ) -> Result<(Vec<Duration>, Vec<Duration>), Box<dyn Error>> {
        let (mut answered, mut committed) = (Vec::new(), Vec::new());
        for event in rows {
            let event = event?;
            let has_aircraft = event.subject.is_some();
            let is_timed = event.headers.get(TIMED).is_some();
            // Those with a timer are not measured: the event of the timer takes its time, too.
            let event = if is_timed { event } else { event.with_header(SENT, probe.stamp()) };
            let before = self.runtime.counts().committed;
            let began = Instant::now();
            let accepted = self.runtime.append(DEPARTURES, event)?;
            self.count(&[accepted]);
            if accepted.duplicate.is_some() || !has_aircraft {
                continue;
            }
            let answer = began.elapsed();
            let wanted = before + 1 + u64::from(is_timed);
            while self.runtime.counts().committed < wanted {
                if began.elapsed() > SILENCE_MAX {
                    return Err(format!("nothing was committed for {SILENCE_MAX:?}").into());
                }
                std::thread::sleep(Duration::from_micros(20));
            }
            if !is_timed {
                answered.push(answer);
                committed.push(began.elapsed());
            }
            self.show();
        }
        Ok((answered, committed))
    }
}

fn is_idle(runtime: &Runtime) -> Result<bool, evener::Error> {
    match runtime.wait_idle(Duration::from_millis(50)) {
        Ok(()) => Ok(true),
        Err(evener::Error::StillWaiting(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The event of a departure. Its id is its row: appended again, by a second run on the same store, it is the
/// same event. Without a tail number there is no subject, so no aircraft is found and it is parked.
fn event(departure: Departure, is_timed: bool) -> Result<Event, Box<dyn Error>> {
    let id = departure.row.to_string();
    let tailnum = departure.tailnum.clone();
    let event = Event::json("flight.departed", &Heard::Departure(departure))?;
    let mut event = event.with_source("flights.csv").with_id(id);
    if is_timed {
        event = event.with_header(TIMED, "yes");
    }
    Ok(match tailnum {
        Some(tailnum) => event.with_subject(tailnum),
        None => event,
    })
}

/// What the store holds, compared with the plain count.
#[derive(Debug)]
pub(crate) struct Compared {
    /// Instances.
    pub aircraft: u64,
    /// Arrivals that they were told of.
    pub arrivals: u64,
    /// Departures without an aircraft.
    pub parked: u64,
    /// What differs.
    pub differences: Vec<String>,
}

/// Compares all states with the plain count.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn compare(runtime: &Runtime, expected: &Expected) -> Result<Compared, Box<dyn Error>> {
    let mut states = BTreeMap::new();
    let mut after: Option<String> = None;
    loop {
        let page = runtime.instances(AIRCRAFT, "", after.as_deref(), PAGE)?;
        let Some(last) = page.last() else { break };
        after = Some(last.key.to_string());
        for view in page {
            let state = view.state.as_deref().map_or(Ok(Value::Null), serde_json::from_slice::<Value>)?;
            states.insert(view.key.to_string(), state);
        }
    }
    let mut found = Vec::new();
    let keys = states.keys().chain(expected.states.keys().filter(|key| !states.contains_key(*key)));
    for key in keys {
        let ours = states.get(key).unwrap_or(&Value::Null);
        let theirs = expected.states.get(key).unwrap_or(&Value::Null);
        differences(key, ours, theirs, &mut found);
    }
    let parked = pages(|after| Ok(runtime.parked(after, PAGE)?.iter().map(|parked| parked.id).collect()))?;
    if parked != expected.nameless {
        found.push(format!("parked departures: {parked}, expected {}", expected.nameless));
    }
    let arrivals = states.values().filter_map(|state| state["arrivals"].as_u64()).sum();
    Ok(Compared { aircraft: states.len() as u64, arrivals, parked, differences: found })
}
