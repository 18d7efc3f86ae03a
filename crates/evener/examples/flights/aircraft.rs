//! The actor: one instance for each aircraft.
#![allow(clippy::disallowed_methods, reason = "it measures how long an event was on its way")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use evener::prelude::*;
use evener::{ScheduleId, Timestamp};
use serde::{Deserialize, Serialize};

use super::departures::Departure;

/// Name of the actor.
pub(crate) const AIRCRAFT: &str = "aircraft";
/// The stream that it hears.
pub(crate) const DEPARTURES: &str = "departures";

/// What an aircraft hears of.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Heard {
    /// It leaves New York, or should have.
    Departure(Departure),
    /// A timer says that a flight of it has come in by now.
    Arrival {
        /// The row of its departure.
        row: u64,
    },
}

/// What is kept for an aircraft.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Logbook {
    /// Departures, cancelled ones too.
    pub flights: u64,
    /// Those that never left.
    pub cancelled: u64,
    /// Miles flown.
    pub miles: u64,
    /// Minutes by which it came late, those by which it was early taken off.
    pub minutes_late: i64,
    /// How often it was where.
    pub airports: BTreeMap<String, u64>,
    /// What it did for each carrier.
    pub carriers: BTreeMap<String, Service>,
    /// Arrivals that timers told of.
    pub arrivals: u64,
    /// Sum of the rows of those: one that came twice or was lost would be seen.
    pub arrival_rows: u64,
}

/// What an aircraft did for one carrier, in the order of the file: a carrier is a group, and order is kept in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Service {
    /// Departures.
    pub flights: u64,
    /// Where the last flight went.
    pub last: Option<String>,
    /// A digest of all rows in their order.
    pub trail: u64,
}

impl Logbook {
    fn departs(&mut self, departure: &Departure) {
        self.flights += 1;
        let service = self.carriers.entry(departure.carrier.clone()).or_default();
        service.flights += 1;
        service.trail = service.trail.wrapping_mul(31).wrapping_add(departure.row);
        if departure.is_cancelled {
            self.cancelled += 1;
            return;
        }
        service.last = Some(departure.dest.clone());
        self.miles += departure.miles;
        self.minutes_late += departure.arrival_delay.unwrap_or(0);
        for airport in [&departure.origin, &departure.dest] {
            *self.airports.entry(airport.clone()).or_default() += 1;
        }
    }

    fn arrives(&mut self, row: u64) {
        self.arrivals += 1;
        self.arrival_rows += row;
    }
}

/// Keeps the logbook of each aircraft.
pub(crate) struct Aircraft {
    /// How long events with the header [`SENT`] were on their way.
    pub probe: Arc<Probe>,
}

impl Actor for Aircraft {
    type State = Logbook;
    type Event = Heard;

    fn definition(&self) -> ActorDefinition {
        let subject = Path::new("subject").expect("a path");
        let departures = Subscription {
            group: Some(Path::new("data.departure.carrier").expect("a path")),
            ..Subscription::new(DEPARTURES.parse().expect("a name"), subject)
        };
        ActorDefinition::new(AIRCRAFT.parse().expect("a name")).subscribe(departures)
    }

    async fn process(&self, cx: &mut Context<Logbook>, heard: Heard) -> Result<(), Failure> {
        self.probe.hear(cx.event());
        match heard {
            Heard::Departure(departure) => {
                if cx.event().headers.get(TIMED).is_some() {
                    let row = departure.row;
                    let id: ScheduleId = format!("arrival/{row}").parse()?;
                    let arrival = Event::json("flight.arrived", &Heard::Arrival { row })?;
                    cx.schedule(id, When::At(Timestamp(departure.arrival_due)), arrival);
                }
                cx.update(move |logbook| logbook.departs(&departure))?;
            }
            Heard::Arrival { row } => cx.update(move |logbook| logbook.arrives(row))?,
        }
        Ok(())
    }
}

/// Header of a departure whose arrival a timer tells of.
pub(crate) const TIMED: &str = "timed";

/// Header with the moment at which an event was handed over, in nanoseconds of the probe's own clock.
pub(crate) const SENT: &str = "sent";

/// Measures the way from the sender to the call.
#[derive(Debug)]
pub(crate) struct Probe {
    began: Instant,
    ways: Mutex<Vec<Duration>>,
}

impl Default for Probe {
    fn default() -> Self {
        Self { began: Instant::now(), ways: Mutex::default() }
    }
}

impl Probe {
    /// Now, for the header.
    pub(crate) fn stamp(&self) -> String {
        self.began.elapsed().as_nanos().to_string()
    }

    fn hear(&self, event: &Event) {
        let Some(sent) = event.headers.get(SENT).and_then(|text| text.parse().ok()) else { return };
        let way = self.began.elapsed().saturating_sub(Duration::from_nanos(sent));
        self.ways.lock().unwrap_or_else(PoisonError::into_inner).push(way);
    }

    /// What was measured.
    pub(crate) fn ways(&self) -> Vec<Duration> {
        std::mem::take(&mut self.ways.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
