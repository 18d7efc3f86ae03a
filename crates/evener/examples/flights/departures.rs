//! The rows of `flights.csv`, one after the other.

use serde::{Deserialize, Serialize};

/// One departure: a row of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Departure {
    /// Its place in the file, from 0.
    pub row: u64,
    /// The airline.
    pub carrier: String,
    /// The aircraft. Some rows have none.
    pub tailnum: Option<String>,
    /// Number of the flight.
    pub flight: String,
    /// Where from.
    pub origin: String,
    /// Where to.
    pub dest: String,
    /// How far, in miles.
    pub miles: u64,
    /// It never left.
    pub is_cancelled: bool,
    /// Minutes by which it came late; negative: early. Unknown if it never came, or elsewhere.
    pub arrival_delay: Option<i64>,
    /// When it should arrive, in milliseconds since 1970. The file has local times of both airports; their
    /// zones are left aside.
    pub arrival_due: i64,
}

/// Columns of a file whose first line names them.
pub(crate) struct Columns {
    at: [usize; COLUMNS.len()],
    count: usize,
}

const COLUMNS: [&str; 11] = [
    "carrier",
    "tailnum",
    "flight",
    "origin",
    "dest",
    "distance",
    "dep_time",
    "arr_delay",
    "sched_dep_time",
    "sched_arr_time",
    "time_hour",
];

impl Columns {
    /// Finds them by their names.
    ///
    /// # Errors
    /// The first that is not there.
    pub(crate) fn new(head: &str) -> Result<Self, String> {
        let names: Vec<&str> = head.split(',').collect();
        let mut at = [0; COLUMNS.len()];
        for (at, wanted) in at.iter_mut().zip(COLUMNS) {
            let found = names.iter().position(|name| *name == wanted);
            *at = found.ok_or_else(|| format!("the file has no column `{wanted}`"))?;
        }
        Ok(Self { at, count: names.len() })
    }

    /// Reads a row. The file has no quotes; a line with one is refused.
    ///
    /// # Errors
    /// What is wrong, with the number of the line.
    pub(crate) fn read(&self, row: u64, line: &str) -> Result<Departure, String> {
        let cells: Vec<&str> = line.split(',').collect();
        if cells.len() != self.count || line.contains('"') {
            return Err(format!("line {}: {} plain cells were expected", row + 2, self.count));
        }
        let [carrier, tailnum, flight, origin, dest, distance, dep_time, arr_delay, leaves, comes, hour] =
            self.at.map(|at| cells[at]);
        let wrong = |what: &str, text: &str| format!("line {}: `{text}` is no {what}", row + 2);
        let number = |text: &str| text.parse::<i64>().map_err(|_| wrong("number", text));
        let hour = hour_ms(hour).ok_or_else(|| wrong("hour like 2013-01-01T10:00:00Z", hour))?;
        let (leaves, comes) = (minutes(number(leaves)?), minutes(number(comes)?));
        let in_air = (comes - leaves).rem_euclid(24 * 60);
        Ok(Departure {
            row,
            carrier: carrier.to_owned(),
            tailnum: known(tailnum).map(str::to_owned),
            flight: flight.to_owned(),
            origin: origin.to_owned(),
            dest: dest.to_owned(),
            miles: number(distance)?.unsigned_abs(),
            is_cancelled: known(dep_time).is_none(),
            arrival_delay: known(arr_delay).map(number).transpose()?,
            arrival_due: hour + (leaves % 60 + in_air) * 60_000,
        })
    }
}

fn known(text: &str) -> Option<&str> {
    (!text.is_empty() && text != "NA").then_some(text)
}

/// Minutes since midnight of a time like 1745.
fn minutes(time: i64) -> i64 {
    time / 100 * 60 + time % 100
}

/// Milliseconds since 1970 of `2013-01-01T10:00:00Z`.
fn hour_ms(text: &str) -> Option<i64> {
    let (date, time) = text.split_once('T')?;
    let mut parts = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let hour: i64 = time.get(..2)?.parse().ok()?;
    // Years that begin in March end with their leap day; so the days of all months before are one formula.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468;
    Some((days * 24 + hour) * 3_600_000)
}
