//! One writing transaction: its numbers, its clock, and that a batch is done once.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use evener_actor::event::Timestamp;
use evener_actor::id::{ActorNo, Boot, Key, StreamNo};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::fault::{Fault, Inner, unexpected};
use super::known::{Known, Place};
use crate::StoreError;
use crate::batch::Ticket;

/// The last number of each kind that was given; see table `counters`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) seq: i64,
    pub(super) queue: i64,
    pub(super) instance: i64,
    pub(super) pending: i64,
    pub(super) schedule: i64,
    pub(super) letter: i64,
    pub(super) parked: i64,
}

/// Counts on and gives the new number.
pub(super) fn next(last: &mut i64) -> i64 {
    *last += 1;
    *last
}

/// A writing transaction. Dropped without [`Tx::commit`] it is rolled back, also by a panic.
pub(super) struct Tx<'c> {
    pub(super) conn: &'c Connection,
    /// The store's clock, read once, after the write lock was had.
    pub(super) now: Timestamp,
    pub(super) last: Counters,
    known: &'c mut Known,
    before: Counters,
    /// Events of one stream that came one after another: stream (0: none), first, last.
    run: Option<(i64, i64, i64)>,
    /// Instances that this transaction made: forgotten if it is rolled back.
    made: Vec<(ActorNo, Key)>,
    is_over: bool,
}

impl<'c> Tx<'c> {
    /// Begins as a writer: who reads first and writes then could be refused in between.
    pub(super) fn begin(
        conn: &'c Connection,
        known: &'c mut Known,
        clock: &dyn Fn() -> Timestamp,
    ) -> Inner<Self> {
        conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        // From here on the numbers stand: nobody else writes. They are read anew each time because another
        // program may have written since.
        let read = conn.prepare_cached(include_str!("read_counters.sql")).and_then(|mut read| {
            read.query_one([], |row| {
                Ok(Counters {
                    seq: row.get(0)?,
                    queue: row.get(1)?,
                    instance: row.get(2)?,
                    pending: row.get(3)?,
                    schedule: row.get(4)?,
                    letter: row.get(5)?,
                    parked: row.get(6)?,
                })
            })
        });
        match read {
            Ok(last) => {
                let made = Vec::new();
                Ok(Self { conn, now: clock(), last, known, before: last, run: None, made, is_over: false })
            }
            Err(error) => {
                roll_back(conn);
                Err(error.into())
            }
        }
    }

    /// A statement from the connection's cache.
    pub(super) fn statement(&self, sql: &str) -> Inner<CachedStatement<'c>> {
        Ok(self.conn.prepare_cached(sql)?)
    }

    /// What is remembered.
    pub(super) fn known(&mut self) -> &mut Known {
        self.known
    }

    /// Remembers an instance that this transaction made.
    pub(super) fn remember_made(&mut self, name: (ActorNo, Key), place: Place) {
        self.made.push(name.clone());
        self.known.remember(name, place);
    }

    /// Notes an event of a stream: part of the run, or the first of the next.
    pub(super) fn add_to_run(&mut self, stream: Option<StreamNo>, seq: i64) -> Inner<()> {
        // Streams are numbered from 1.
        let stream = stream.map_or(0, |stream| stream.0);
        match &mut self.run {
            Some((of, _, last)) if *of == stream && *last + 1 == seq => {
                *last = seq;
                Ok(())
            }
            _ => {
                self.end_run()?;
                self.run = Some((stream, seq, seq));
                Ok(())
            }
        }
    }

    fn end_run(&mut self) -> Inner<()> {
        if let Some((stream, first, last)) = self.run.take() {
            let mut insert = self.statement(include_str!("append_run.sql"))?;
            insert.execute(params![first, last, stream, self.now.0])?;
        }
        Ok(())
    }

    /// Refuses unless the boot is live.
    pub(super) fn check_live(&self, boot: Boot) -> Inner<()> {
        if self.statement(include_str!("is_live.sql"))?.exists([boot.0])? {
            Ok(())
        } else {
            Err(StoreError::Fenced(format!("boot {boot} is dead")).into())
        }
    }

    /// Ends it; it is durable when this returns, as far as `synchronous` asks for.
    pub(super) fn commit(mut self) -> Inner<()> {
        self.end_run()?;
        if self.last != self.before {
            let last = self.last;
            self.statement(include_str!("write_counters.sql"))?.execute(params![
                last.seq,
                last.queue,
                last.instance,
                last.pending,
                last.schedule,
                last.letter,
                last.parked
            ])?;
        }
        self.statement("COMMIT")?.execute([])?;
        self.is_over = true;
        Ok(())
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            roll_back(self.conn);
            for name in &self.made {
                self.known.forget(name);
            }
        }
    }
}

fn roll_back(conn: &Connection) {
    // After some errors SQLite has rolled back itself, and says so by an error here.
    let _ = conn.prepare_cached("ROLLBACK").and_then(|mut end| end.execute([]));
}

/// The answer to the last batch of each lane, for a copy of it. A lane lives no longer than its boot, and
/// a boot no longer than this program, so memory is the place for it.
#[derive(Debug, Default)]
pub(super) struct Answers(HashMap<(Boot, u16), (i64, Arc<dyn Any + Send + Sync>)>);

impl Answers {
    /// Keeps it until the lane's next batch.
    pub(super) fn keep(&mut self, ticket: Ticket, answer: Arc<dyn Any + Send + Sync>) {
        self.0.insert((ticket.boot, ticket.lane), (ticket.number, answer));
    }

    /// Forgets all lanes of a boot that has left.
    pub(super) fn forget(&mut self, boot: Boot) {
        self.0.retain(|(of, _), _| *of != boot);
    }

    fn of<A: Any + Send + Sync>(&self, ticket: Ticket) -> Inner<Arc<A>> {
        match self.0.get(&(ticket.boot, ticket.lane)) {
            Some((number, answer)) if *number == ticket.number => {
                Arc::clone(answer).downcast().map_err(|_| {
                    unexpected("the lane's batch with this number was one of another kind".to_owned())
                })
            }
            _ => Err(StoreError::Fenced(format!(
                "batch {} of lane {} of boot {} was done by another program",
                ticket.number, ticket.lane, ticket.boot
            ))
            .into()),
        }
    }
}

/// Where a batch stands.
pub(super) enum Turn<A> {
    /// It has not been done: do it.
    Due,
    /// It has: that was the answer.
    Done(Arc<A>),
}

/// Counts the ticket's lane to its number.
pub(super) fn take_turn<A: Any + Send + Sync>(
    tx: &Tx<'_>,
    answers: &Answers,
    ticket: Ticket,
) -> Inner<Turn<A>> {
    let Ticket { boot, lane, number } = ticket;
    if tx.statement(include_str!("step_lane.sql"))?.execute(params![boot.0, lane, number])? == 1 {
        return Ok(Turn::Due);
    }
    let found: Option<i64> = tx
        .statement(include_str!("read_lane.sql"))?
        .query_row(params![boot.0, lane], |row| row.get(0))
        .optional()?;
    let last = found.unwrap_or(0);
    if found.is_some() && last == number {
        // Also when the boot has died since: what was done has its answer.
        return Ok(Turn::Done(answers.of(ticket)?));
    }
    tx.check_live(boot)?;
    if found.is_none() && number == 1 {
        tx.statement(include_str!("start_lane.sql"))?.execute(params![boot.0, lane, number])?;
        return Ok(Turn::Due);
    }
    Err(Fault::Store(StoreError::Fenced(format!(
        "lane {lane} of boot {boot} is at batch {last}, this is batch {number}"
    ))))
}
