//! Tables `runtime_workers`, `lanes`; and how other programs are heard.

use std::sync::Arc;
use std::time::Duration;

use evener_actor::event::Timestamp;
use evener_actor::id::Boot;
use rusqlite::params;

use super::{Sqlite, held};
use crate::batch::{Load, Worker};
use crate::workers::{Listening, Note};
use crate::{Result, Workers};

impl Workers for Sqlite {
    fn register(&self, name: &str) -> Result<Boot> {
        self.write(|tx| {
            let mut insert = tx.statement(include_str!("register.sql"))?;
            Ok(Boot(insert.query_row(params![name, tx.now.0], |row| row.get(0))?))
        })
    }

    fn heartbeat(&self, boot: Boot, load: Load) -> Result<bool> {
        self.write(|tx| {
            let mut update = tx.statement(include_str!("heartbeat.sql"))?;
            let Load { in_flight, active, routes } = load;
            Ok(update.execute(params![boot.0, tx.now.0, in_flight, active, routes])? == 1)
        })
    }

    fn judge(&self, judge: Boot, stale: Duration) -> Result<Vec<Boot>> {
        self.write(|tx| {
            let stale = i64::try_from(stale.as_millis()).unwrap_or(i64::MAX);
            let mut update = tx.statement(include_str!("judge.sql"))?;
            let mut rows = update.query([judge.0, tx.now.0.saturating_sub(stale)])?;
            let mut dead = Vec::new();
            while let Some(row) = rows.next()? {
                dead.push(Boot(row.get(0)?));
            }
            dead.sort_unstable();
            Ok(dead)
        })
    }

    fn leave(&self, boot: Boot) -> Result<()> {
        self.write(|tx| {
            tx.statement(include_str!("leave.sql"))?.execute([boot.0])?;
            Ok(())
        })?;
        held(&self.writer).answers.forget(boot);
        Ok(())
    }

    fn workers(&self, workers_max: u32) -> Result<Vec<Worker>> {
        self.read(|conn| {
            let now = self.now();
            let mut select = conn.prepare_cached(include_str!("workers.sql"))?;
            let mut rows = select.query([workers_max])?;
            let mut workers = Vec::new();
            while let Some(row) = rows.next()? {
                workers.push(Worker {
                    boot: Boot(row.get(0)?),
                    name: row.get(1)?,
                    silent: now.since(Timestamp(row.get(2)?)),
                    is_live: row.get(3)?,
                    load: Load { in_flight: row.get(4)?, active: row.get(5)?, routes: row.get(6)? },
                });
            }
            Ok(workers)
        })
    }

    /// The runtime is alone and has nobody to tell. A guest rings for it; what there is to look at, the
    /// runtime finds.
    fn notify(&self, notes: &[Note]) -> Result<()> {
        if self.lock.is_some() || notes.is_empty() { Ok(()) } else { self.bell.ring() }
    }

    fn listen(&self, _boot: Boot, hear: Arc<dyn Fn(Note) + Send + Sync>) -> Result<Box<dyn Listening>> {
        Ok(Box::new(self.bell.listen(hear)?))
    }
}
