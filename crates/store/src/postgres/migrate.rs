//! The schema: made, or brought up to date, by one of however many start at once.

use super::connection::{Connection, Transaction};
use super::read::{get, only};
use super::sql::{self, Call, Template};
use crate::{Result, StoreError};

/// One step: its number is its place, from 1.
struct Migration {
    name: &'static str,
    text: &'static str,
}

const MIGRATIONS: &[Migration] =
    &[Migration { name: "0001_begin", text: include_str!("../migrations/postgres/0001_begin.sql") }];

/// `evene` and `r`, as numbers: nobody else's lock.
const LOCK: i64 = 0x65_76_65_6e_65_72;

/// Brings the schema to the newest version.
///
/// # Errors
/// [`StoreError::TooNew`] when it is newer than that.
pub(super) fn run(connection: &Connection) -> Result<()> {
    connection.transaction(|transaction| {
        if version(transaction)? == newest() {
            return Ok(());
        }
        // Whoever comes second waits here, and finds it done.
        transaction.batch(&format!("SELECT pg_advisory_xact_lock({LOCK})"))?;
        // The look before has left it in this session's catalog cache that there is no schema. Waiting for an
        // advisory lock does not make the session hear of others' changes; locking a table does.
        transaction.batch("LOCK TABLE pg_catalog.pg_namespace IN ACCESS SHARE MODE")?;
        let found = version(transaction)?;
        if found > newest() {
            return Err(StoreError::TooNew { found, known: newest() });
        }
        if found == 0 {
            transaction.batch(
                "CREATE SCHEMA IF NOT EXISTS evener;\
                 CREATE TABLE evener.schema_versions (\
                     version bigint PRIMARY KEY, name text NOT NULL, at timestamptz NOT NULL DEFAULT now())",
            )?;
        }
        for (number, migration) in (1_i64..).zip(MIGRATIONS) {
            if number > found {
                transaction.batch(migration.text)?;
                transaction.batch(&format!(
                    "INSERT INTO evener.schema_versions (version, name) VALUES ({number}, '{}')",
                    migration.name
                ))?;
            }
        }
        Ok(())
    })
}

fn newest() -> i64 {
    MIGRATIONS.len() as i64
}

/// 0: there is no schema.
fn version(transaction: &mut Transaction<'_>) -> Result<i64> {
    let is_there = transaction.ask(&Call::new(sql::SCHEMA_THERE, Vec::new()))?;
    if !get::<bool>(only(&is_there)?, "is_there")? {
        return Ok(0);
    }
    get(only(&transaction.ask(&Call::new(sql::SCHEMA_VERSION, Vec::new()))?)?, "version")
}

/// A name for this opening of the database that no other has.
pub(super) fn id(connection: &Connection) -> Result<String> {
    let template: &'static Template = sql::NEW_ID;
    let rows = connection.ask(super::connection::Effect::Reads, &Call::new(template, Vec::new()))?;
    get(only(&rows)?, "id")
}
