//! Boots, heartbeats, notes.

use std::sync::Arc;
use std::time::Duration;

use evener_actor::id::Boot;

use super::Postgres;
use super::connection::Effect;
use super::listen::{Listener, payload};
use super::read::{count, get, only};
use super::sql::{self, Call, arg};
use crate::batch::{Load, Worker};
use crate::workers::{Listening, Note};
use crate::{Result, Workers};

impl Workers for Postgres {
    fn register(&self, name: &str) -> Result<Boot> {
        let rows = self.heartbeat.ask(Effect::Writes, &Call::new(sql::REGISTER, vec![arg("name", &name)]))?;
        Ok(Boot(get(only(&rows)?, "boot")?))
    }

    fn heartbeat(&self, boot: Boot, load: Load) -> Result<bool> {
        let number = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let (in_flight, active) = (number(load.in_flight), number(load.active));
        let args = vec![
            arg("boot", &boot.0),
            arg("in_flight", &in_flight),
            arg("active", &active),
            arg("routes", &load.routes),
        ];
        Ok(!self.heartbeat.ask(Effect::Writes, &Call::new(sql::HEARTBEAT, args))?.is_empty())
    }

    fn judge(&self, judge: Boot, stale: Duration) -> Result<Vec<Boot>> {
        let stale = i64::try_from(stale.as_millis()).unwrap_or(i64::MAX >> 1);
        let args = vec![arg("judge", &judge.0), arg("stale", &stale)];
        let rows = self.heartbeat.ask(Effect::Writes, &Call::new(sql::JUDGE, args))?;
        rows.iter().map(|row| get(row, "boot").map(Boot)).collect()
    }

    fn leave(&self, boot: Boot) -> Result<()> {
        self.heartbeat.ask(Effect::Writes, &Call::new(sql::LEAVE, vec![arg("boot", &boot.0)])).map(drop)
    }

    fn workers(&self, workers_max: u32) -> Result<Vec<Worker>> {
        let workers_max = i64::from(workers_max);
        let rows = self.read(&Call::new(sql::WORKERS, vec![arg("workers_max", &workers_max)]))?;
        rows.iter()
            .map(|row| {
                Ok(Worker {
                    boot: Boot(get(row, "boot")?),
                    name: get(row, "name")?,
                    silent: Duration::from_millis(get::<i64>(row, "silent_ms")?.unsigned_abs()),
                    is_live: get(row, "is_live")?,
                    load: Load {
                        in_flight: count(get(row, "in_flight")?),
                        active: count(get(row, "active")?),
                        routes: get(row, "routes")?,
                    },
                })
            })
            .collect()
    }

    fn notify(&self, notes: &[Note]) -> Result<()> {
        if notes.is_empty() {
            return Ok(());
        }
        let payload = payload(&self.id, notes);
        self.notifier.ask(Effect::Writes, &Call::new(sql::NOTIFY, vec![arg("payload", &payload)])).map(drop)
    }

    fn listen(&self, _boot: Boot, hear: Arc<dyn Fn(Note) + Send + Sync>) -> Result<Box<dyn Listening>> {
        Ok(Box::new(Listener::start(&self.settings, &self.id, hear)?))
    }
}
