//! The tables: brought to the newest version when the file is opened.

use rusqlite::Connection;

use super::fault::{Fault, Inner};
use crate::StoreError;

/// Embedded, in order; the first is version 1. What was published is never changed: a change is one more.
const MIGRATIONS: &[&str] = &[include_str!("../migrations/sqlite/0001_tables.sql")];

/// In the header of the file: it is one of ours. The letters EVNR.
const APPLICATION: i64 = 0x4556_4e52;

fn pragma(conn: &Connection, name: &str) -> Inner<i64> {
    Ok(conn.pragma_query_value(None, name, |row| row.get(0))?)
}

fn known() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// Looks before anything is written, so that a file of somebody else or of a newer program stays as it is.
pub(super) fn check(conn: &Connection) -> Inner<()> {
    let found = pragma(conn, "user_version")?;
    let application = pragma(conn, "application_id")?;
    if application != APPLICATION {
        let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if application != 0 || found != 0 || tables != 0 {
            let error = "the file is a database, but not one of evener's".to_owned();
            return Err(StoreError::Config(error).into());
        }
    }
    if found > known() {
        return Err(StoreError::TooNew { found, known: known() }.into());
    }
    Ok(())
}

/// Brings the schema to this program's version. All steps are one transaction, begun as a writer: of many
/// programs that do it at once one does and the others find it done; a killed one leaves nothing half done.
pub(super) fn migrate(conn: &mut Connection) -> Inner<()> {
    migrate_with(conn, MIGRATIONS)
}

fn migrate_with(conn: &mut Connection, migrations: &[&str]) -> Inner<()> {
    check(conn)?;
    if pragma(conn, "user_version")? == known() {
        return Ok(());
    }
    let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Again, now that nobody else can write.
    check(&tx)?;
    let found = usize::try_from(pragma(&tx, "user_version")?)
        .map_err(|_| Fault::Store(StoreError::Corrupt("the schema's version is negative".to_owned())))?;
    for migration in migrations.iter().skip(found) {
        tx.execute_batch(migration)?;
    }
    tx.pragma_update(None, "application_id", APPLICATION)?;
    tx.pragma_update(None, "user_version", known())?;
    Ok(tx.commit()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(conn: &Connection) -> i64 {
        conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_second_migration_changes_nothing() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn).unwrap();
        let before = tables(&conn);
        migrate(&mut conn).unwrap();
        assert!(before > 10 && tables(&conn) == before);
    }

    #[test]
    fn a_migration_that_fails_leaves_nothing() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate_with(&mut conn, &["CREATE TABLE a (x)", "CREATE TABLE a (y)"]).unwrap_err();
        assert_eq!(tables(&conn), 0);
        assert_eq!(pragma(&conn, "user_version").unwrap(), 0);
        migrate(&mut conn).unwrap();
    }

    #[test]
    fn a_newer_schema_is_refused_and_stays() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn).unwrap();
        conn.pragma_update(None, "user_version", known() + 1).unwrap();
        let Err(Fault::Store(error)) = migrate(&mut conn) else { panic!("it was taken") };
        assert_eq!(error, StoreError::TooNew { found: known() + 1, known: known() });
        assert_eq!(pragma(&conn, "user_version").unwrap(), known() + 1);
    }

    #[test]
    fn a_database_of_somebody_else_is_refused_and_stays() {
        let mut conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE theirs (x)").unwrap();
        assert!(matches!(migrate(&mut conn), Err(Fault::Store(StoreError::Config(_)))));
        assert_eq!(tables(&conn), 1);
    }
}
