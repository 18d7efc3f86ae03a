//! PostgreSQL, 13 and later: many workers, one database.
//!
//! One batch is one statement, which is one transaction and one round trip: data-modifying parts over arrays,
//! each starting from what the one before returns. The first counts the lane (`lanes`), so a batch that is sent
//! twice is done once. Every part that touches an instance starts from what the UPDATE of `instances` returns,
//! and that compares owner, epoch and version.
//!
//! # What keeps it fast
//! - No part depends on the planner's guess: tables are reached by single rows (`ANY` of a sorted array, or an
//!   index look for each element, which `OFFSET 0` keeps as it is written), and arrays by place. A value that
//!   belongs to an id is at `width_bucket(id, ids)`, a search by halves.
//! - Commits change no indexed column of `instances`, so new versions stay in their page (HOT).
//! - What a batch does not have, its statement does not have either (`sql.rs`).
//! - Numbers of instances are kept in memory (`keys.rs`); they never change.
//!
//! # Locks, always in this order
//! Instances that are made (in the order of keys), the lane, `instances` (in the order of ids), rows of the queue
//! (of instances that are locked), `dedupe` (in the order of keys), schedules (in the order of names).
//!
//! # Connections
//! Heartbeat, notifier and `LISTEN` have one each, so that no batch delays them; commits have four, appends and
//! fan-outs two, reads two, everything else one. A lane always uses the same one.

mod connection;
mod error;
mod follow;
mod instances;
mod keys;
mod letters;
mod listen;
mod migrate;
#[cfg(all(test, feature = "throwaway"))]
mod plans;
mod prune;
mod queues;
mod read;
mod schedules;
mod settings;
mod sql;
mod streams;
mod tenants;
#[cfg(feature = "throwaway")]
pub mod throwaway;
mod timers;
mod tls;
mod workers;

use std::collections::HashSet;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use evener_actor::id::Boot;
use tokio_postgres::Row;

pub use settings::{Remark, Settings};

use crate::batch::Ticket;
use crate::{Result, Store, StoreError};
use connection::{Connection, Effect, Shared};
use keys::Keys;
use read::{get, only};
use sql::{Arg, Call, arg};

const COMMIT_CONNECTIONS: usize = 4;
const APPEND_CONNECTIONS: usize = 2;
const READ_CONNECTIONS: usize = 2;

/// A database of evener.
pub struct Postgres {
    settings: Settings,
    shared: Arc<Shared>,
    heartbeat: Connection,
    notifier: Connection,
    commits: [Connection; COMMIT_CONNECTIONS],
    appends: [Connection; APPEND_CONNECTIONS],
    reads: [Connection; READ_CONNECTIONS],
    next_read: AtomicUsize,
    other: Connection,
    keys: Keys,
    /// Lanes that are known to have a row.
    lanes: Mutex<HashSet<(i64, u16)>>,
    settled: Mutex<Settled>,
    /// How far the walk of `prune` has come.
    pruned: Mutex<i64>,
    /// Which one of all stores that are open: its own notes are not heard.
    id: String,
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres").field("at", &self.shared.target.shown).finish_non_exhaustive()
    }
}

impl Postgres {
    /// Opens a database; its schema is made or brought up to date, by one of however many do so at once.
    ///
    /// # Errors
    /// [`StoreError::Config`], [`StoreError::Away`], [`StoreError::Denied`]; [`StoreError::TooNew`] when the
    /// schema is newer than this program.
    pub fn open(settings: Settings) -> Result<Self> {
        let shared = Arc::new(Shared::new(&settings.url, &settings)?);
        let make = || Connection::new(&shared);
        let other = make();
        migrate::run(&other)?;
        let id = migrate::id(&other)?;
        Ok(Self {
            heartbeat: make(),
            notifier: make(),
            commits: std::array::from_fn(|_| make()),
            appends: std::array::from_fn(|_| make()),
            reads: std::array::from_fn(|_| make()),
            next_read: AtomicUsize::new(0),
            other,
            keys: Keys::default(),
            lanes: Mutex::default(),
            settled: Mutex::default(),
            pruned: Mutex::default(),
            id,
            settings,
            shared,
        })
    }

    fn commit_lane(&self, lane: u16) -> &Connection {
        &self.commits[usize::from(lane) % COMMIT_CONNECTIONS]
    }

    fn append_lane(&self, lane: u16) -> &Connection {
        &self.appends[usize::from(lane) % APPEND_CONNECTIONS]
    }

    /// Reads, on whichever connection is free.
    fn read(&self, call: &Call<'_>) -> Result<Vec<Row>> {
        // Relaxed: it only spreads the load.
        let first = self.next_read.fetch_add(1, Ordering::Relaxed);
        for at in first..first + READ_CONNECTIONS {
            if let Some(answer) = self.reads[at % READ_CONNECTIONS].try_ask(Effect::Reads, call) {
                return answer;
            }
        }
        self.reads[first % READ_CONNECTIONS].ask(Effect::Reads, call)
    }

    /// A ticket's arguments; its lane has a row from now on, if its boot is live.
    fn lane(&self, connection: &Connection, ticket: &Ticket) -> Result<TicketArgs> {
        let args = ticket_args(ticket);
        let Ticket { boot, lane, number } = ticket;
        if *number < 1 {
            return Err(StoreError::Fenced(format!(
                "batch {number} of lane {lane} of boot {boot}: they begin at 1"
            )));
        }
        let lane = (ticket.boot.0, ticket.lane);
        let is_known = self.lanes.lock().unwrap_or_else(PoisonError::into_inner).contains(&lane);
        if !is_known {
            connection.ask(Effect::Writes, &Call::new(sql::LANE_MAKE, args.args()))?;
            self.lanes.lock().unwrap_or_else(PoisonError::into_inner).insert(lane);
        }
        Ok(args)
    }

    /// For a batch that did nothing: `Ok`, a first copy of it was done.
    fn was_done(&self, connection: &Connection, ticket: &Ticket) -> Result<()> {
        let args = ticket_args(ticket);
        let rows = connection.ask(Effect::Reads, &Call::new(sql::LANE, args.args()))?;
        let Ticket { boot, lane, number } = ticket;
        let Some(row) = rows.first() else {
            return Err(StoreError::Fenced(format!("boot {boot} is not live")));
        };
        let at: i64 = get(row, "batch_no")?;
        if at == *number {
            Ok(())
        } else if !get::<bool>(row, "is_live")? {
            Err(StoreError::Fenced(format!("boot {boot} is not live")))
        } else if at == number - 1 {
            Err(StoreError::Fenced(format!("batch {number} of lane {lane} has lost what it stands on")))
        } else {
            Err(StoreError::Fenced(format!("lane {lane} of boot {boot} is at {at}, this is batch {number}")))
        }
    }

    /// `Fenced` for a boot that is not live.
    fn check_live(&self, boot: Boot) -> Result<()> {
        let rows = self.other.ask(Effect::Reads, &Call::new(sql::IS_LIVE, vec![arg("boot", &boot.0)]))?;
        if get(only(&rows)?, "is_live")? {
            Ok(())
        } else {
            Err(StoreError::Fenced(format!("boot {boot} is not live")))
        }
    }

    /// The place up to which every append has ended.
    ///
    /// Each call notes how far places were drawn, and a transaction number greater than that of whoever drew
    /// them; once all transactions below that number have ended, nothing below that place can appear any more.
    fn settled_seq(&self) -> Result<i64> {
        let rows = self.read(&Call::new(sql::SETTLED_SEQ, Vec::new()))?;
        let row = only(&rows)?;
        let (drawn, below) = (get(row, "drawn")?, get(row, "below")?);
        let ended_below: i64 = get(row, "ended_below")?;
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(settled.note(drawn, below, ended_below))
    }
}

/// How many notes are kept, at the most.
const NOTES_MAX: usize = 64;

/// See [`Postgres::settled_seq`].
#[derive(Default)]
struct Settled {
    /// Places drawn, and the transaction number above all that drew them. Both rise.
    notes: VecDeque<(i64, i64)>,
    up_to: i64,
}

impl Settled {
    fn note(&mut self, drawn: i64, below: i64, ended_below: i64) -> i64 {
        // Calls may come in another order than they looked.
        let at = self.notes.partition_point(|note| note.1 < below);
        self.notes.insert(at, (drawn, below));
        while self.notes.front().is_some_and(|note| note.1 <= ended_below) {
            if let Some((drawn, _)) = self.notes.pop_front() {
                self.up_to = self.up_to.max(drawn);
            }
        }
        // Every second goes: a long transaction elsewhere holds them back, and they stay spread over its time.
        if self.notes.len() > NOTES_MAX {
            let mut is_kept = false;
            self.notes.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
        self.up_to
    }
}

/// A ticket's numbers, as arguments.
struct TicketArgs {
    boot: i64,
    lane: i32,
    number: i64,
}

impl TicketArgs {
    fn args(&self) -> Vec<Arg<'_>> {
        vec![arg("boot", &self.boot), arg("lane", &self.lane), arg("number", &self.number)]
    }
}

fn ticket_args(ticket: &Ticket) -> TicketArgs {
    TicketArgs { boot: ticket.boot.0, lane: i32::from(ticket.lane), number: ticket.number }
}

impl Store for Postgres {
    fn kind(&self) -> &'static str {
        "postgres"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_settled_when_all_that_drew_below_it_have_ended() {
        let mut settled = Settled::default();
        assert_eq!(settled.note(10, 100, 90), 0, "somebody older is at work");
        assert_eq!(settled.note(20, 110, 99), 0);
        assert_eq!(settled.note(15, 105, 100), 10, "a call that came late");
        assert_eq!(settled.note(30, 120, 109), 15);
        assert_eq!(settled.note(30, 121, 121), 30);
        assert!(settled.notes.is_empty());
    }

    #[test]
    fn notes_are_bounded_and_the_oldest_stays() {
        let mut settled = Settled::default();
        for number in 0..10_000 {
            assert_eq!(settled.note(number, 100 + number, 0), 0);
            assert!(settled.notes.len() <= NOTES_MAX);
        }
        assert_eq!(settled.notes.front(), Some(&(0, 100)));
    }
}
