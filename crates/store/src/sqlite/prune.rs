//! Takes away what nobody needs any more, in bounded pieces.
//!
//! The hard question is which old events the queue still names: an index over that would be paid for by every
//! event that passes. So pruning goes in passes. A pass fixes where the old events end, reads once, on one
//! snapshot, what is named up to there, and then takes the others away, some with each call. It is enough to
//! have looked once: an event that nothing named then can be named again only by a deploy that begins at the
//! beginning, and that is looked at as each event goes. (What waits, or is parked, or dead, and moves among
//! these, was named.)

use evener_actor::event::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::fault::Inner;
use super::{Sqlite, held};
use crate::Result;

/// One walk over the old events.
pub(super) struct Pass {
    /// Events from before it go.
    before: Timestamp,
    /// The last event that is looked at.
    end: i64,
    /// The first event of the last run that is done.
    reached: i64,
    /// Named when it began, in order.
    named: Vec<i64>,
}

impl Sqlite {
    pub(super) fn prune_all(&self, events_before: Timestamp, rows_max: u32) -> Result<u64> {
        let mut count = self.prune_events(events_before, rows_max)?;
        count += self.write(|tx| {
            let now = tx.now.0;
            let mut dedupe = tx.statement(include_str!("prune_dedupe.sql"))?;
            let mut count = dedupe.execute(params![now, rows_max])?;
            let mut boots = tx.statement(include_str!("prune_boots.sql"))?;
            let mut gone: Vec<i64> = Vec::new();
            let mut rows = boots.query([rows_max])?;
            while let Some(row) = rows.next()? {
                gone.push(row.get(0)?);
            }
            let mut lanes = tx.statement(include_str!("prune_lanes.sql"))?;
            for boot in gone {
                lanes.execute([boot])?;
                count += 1;
            }
            Ok(count as u64)
        })?;
        Ok(count)
    }

    fn prune_events(&self, before: Timestamp, rows_max: u32) -> Result<u64> {
        let mut current = held(&self.pass);
        // One that goes further than is asked for now is of no use.
        if current.as_ref().is_some_and(|pass| pass.before > before) {
            *current = None;
        }
        let mut count = 0;
        let mut is_new = false;
        while count < u64::from(rows_max) {
            let mut pass = match current.take() {
                Some(pass) => pass,
                // One new pass in a call: a second would find nothing that the first did not.
                None if is_new => break,
                None => {
                    is_new = true;
                    match self.read(|conn| begin(conn, before))? {
                        Some(pass) => pass,
                        None => break,
                    }
                }
            };
            let left = usize::try_from(u64::from(rows_max) - count).unwrap_or(usize::MAX);
            let piece = self.read(|conn| next_of(conn, &pass, left))?;
            let gone = self.write(|tx| {
                let mut delete = tx.statement(include_str!("prune_event.sql"))?;
                let mut end_run = tx.statement(include_str!("prune_run.sql"))?;
                let mut count = 0;
                for OldRun { first, last, stream, seqs } in &piece.runs {
                    for seq in seqs {
                        count += delete.execute([seq, stream])? as u64;
                    }
                    if !seqs.is_empty() {
                        end_run.execute([first, last])?;
                    }
                }
                Ok(count)
            })?;
            count += gone;
            let is_stuck = gone == 0 && pass.reached == piece.reached;
            pass.reached = piece.reached;
            // Stuck at what has become pending since: the next pass knows of it.
            if pass.reached < pass.end && !is_stuck {
                *current = Some(pass);
            }
        }
        Ok(count)
    }
}

/// `None`: no event is that old.
fn begin(conn: &Connection, before: Timestamp) -> Inner<Option<Pass>> {
    let mut at = conn.prepare_cached(include_str!("run_at_place.sql"))?;
    // The end of the first run from that place on, if it is old.
    let mut old_at = |place: i64| -> Inner<Option<i64>> {
        let run: Option<(i64, i64)> =
            at.query_row([place], |row| Ok((row.get(1)?, row.get(2)?))).optional()?;
        Ok(run.filter(|(_, at)| *at < before.0).map(|(last, _)| last))
    };
    let last: Option<i64> = conn.query_row("SELECT max(first) FROM runs", [], |row| row.get(0))?;
    let (Some(last), Some(mut end)) = (last, old_at(i64::MIN)?) else { return Ok(None) };
    // By halves: from which place on is no run old? (Times rise with places; where a clock went back, some
    // that are old stay for a later pass.)
    let (mut old, mut young) = (0, last + 1);
    while young - old > 1 {
        let middle = old + (young - old) / 2;
        match old_at(middle)? {
            Some(last) => (old, end) = (middle, last),
            None => young = middle,
        }
    }
    let mut select = conn.prepare_cached(include_str!("named_events.sql"))?;
    let mut rows = select.query([end])?;
    let mut named = Vec::new();
    while let Some(row) = rows.next()? {
        named.push(row.get(0)?);
    }
    named.sort_unstable();
    Ok(Some(Pass { before, end, reached: i64::MIN, named }))
}

/// What may go next: runs, and of each the events, at most so many. The last run may come again.
fn next_of(conn: &Connection, pass: &Pass, events_max: usize) -> Inner<Piece> {
    let mut select = conn.prepare_cached(include_str!("old_runs.sql"))?;
    let mut events = conn.prepare_cached(include_str!("run_seqs.sql"))?;
    let mut runs = select.query([pass.reached, pass.end])?;
    let mut piece = Piece { runs: Vec::new(), reached: pass.end };
    let mut count = 0;
    let mut before = pass.reached;
    while let Some(run) = runs.next()? {
        let (first, last): (i64, i64) = (run.get(0)?, run.get(1)?);
        let (stream, at): (i64, i64) = (run.get(2)?, run.get(3)?);
        let mut seqs = Vec::new();
        if at < pass.before.0 {
            let mut found = events.query([first, last])?;
            while let Some(event) = found.next()? {
                if count == events_max {
                    // This run is not done.
                    piece.reached = before;
                    break;
                }
                let seq = event.get(0)?;
                if pass.named.binary_search(&seq).is_err() {
                    seqs.push(seq);
                    count += 1;
                }
            }
        }
        piece.runs.push(OldRun { first, last, stream, seqs });
        if piece.reached != pass.end {
            break;
        }
        before = first;
    }
    Ok(piece)
}

struct Piece {
    runs: Vec<OldRun>,
    reached: i64,
}

struct OldRun {
    first: i64,
    last: i64,
    stream: i64,
    seqs: Vec<i64>,
}
