//! Tables `tenants`, `streams`, `actors`, `subscriptions`, `paused_keys`.

use evener_actor::definition::{ActorDefinition, From, Subscription};
use evener_actor::id::{
    ActorName, ActorNo, Key, Seq, StreamName, StreamNo, SubscriptionNo, Tenant, TenantNo,
};
use rusqlite::{Connection, OptionalExtension, params};

use super::Sqlite;
use super::append::check_tenant;
use super::fault::{Inner, unexpected};
use super::instances::first;
use super::streams::{Runs, key_of};
use super::tx::{Tx, next};
use crate::tenants::{Paused, RoutedActor, Routes};
use crate::{Result, StoreError, Tenants};

impl Tenants for Sqlite {
    fn tenant(&self, name: &Tenant) -> Result<TenantNo> {
        let find = |conn: &Connection| -> Inner<Option<i64>> {
            first(&mut conn.prepare_cached(include_str!("find_tenant.sql"))?, [name.as_str()])
        };
        // Mostly it is there, and then nobody who writes is waited for.
        if let Some(no) = self.read(find)? {
            return Ok(TenantNo(no));
        }
        self.write(|tx| {
            if let Some(no) = find(tx.conn)? {
                return Ok(TenantNo(no));
            }
            let mut make = tx.statement(include_str!("make_tenant.sql"))?;
            Ok(TenantNo(make.query_row([name.as_str()], |row| row.get(0))?))
        })
    }

    fn stream(&self, tenant: TenantNo, name: &StreamName) -> Result<StreamNo> {
        if let Some(no) = self.read(|conn| find_stream(conn, tenant, name))? {
            return Ok(no);
        }
        self.write(|tx| {
            check_tenant(tx, tenant)?;
            stream_no(tx, tenant, name)
        })
    }

    fn stream_name(&self, stream: StreamNo) -> Result<Option<StreamName>> {
        self.read(|conn| {
            let mut select = conn.prepare_cached(include_str!("stream_name.sql"))?;
            let name: Option<String> = first(&mut select, [stream.0])?;
            name.map(|name| StreamName::new(name).map_err(|error| unexpected(error.to_string()))).transpose()
        })
    }

    fn deploy(&self, tenant: TenantNo, definitions: &[ActorDefinition]) -> Result<Routes> {
        self.write(|tx| {
            check_tenant(tx, tenant)?;
            let mut is_changed = false;
            for definition in definitions {
                is_changed |= deploy_one(tx, tenant, definition)?;
            }
            if is_changed {
                tx.statement(include_str!("raise_routes.sql"))?.execute([tenant.0])?;
            }
            routes(tx.conn, tenant)
        })
    }

    fn routes(&self, tenant: TenantNo) -> Result<Routes> {
        self.read(|conn| routes(conn, tenant))
    }

    fn set_paused(&self, actor: ActorNo, key: Option<&Key>, is_paused: bool) -> Result<bool> {
        self.write(|tx| {
            let changed = match key {
                None => {
                    tx.statement(include_str!("pause_actor.sql"))?.execute(params![actor.0, is_paused])?
                }
                Some(key) => {
                    let mut change = tx.statement(if is_paused {
                        include_str!("pause_key.sql")
                    } else {
                        include_str!("resume_key.sql")
                    })?;
                    change.execute(params![actor.0, key.as_str()])?
                }
            };
            Ok(changed > 0)
        })
    }

    fn paused(&self, tenant: TenantNo) -> Result<Vec<Paused>> {
        self.read(|conn| {
            let mut select = conn.prepare_cached(include_str!("paused.sql"))?;
            let mut rows = select.query([tenant.0])?;
            let mut paused = Vec::new();
            while let Some(row) = rows.next()? {
                let is_all = row.get_ref(1)? == rusqlite::types::ValueRef::Null;
                let key = if is_all { None } else { Some(key_of(row, 1)?) };
                paused.push(Paused { actor: ActorNo(row.get(0)?), key });
            }
            Ok(paused)
        })
    }
}

fn find_stream(conn: &Connection, tenant: TenantNo, name: &StreamName) -> Inner<Option<StreamNo>> {
    let mut find = conn.prepare_cached(include_str!("find_stream.sql"))?;
    Ok(first(&mut find, params![tenant.0, name.as_str()])?.map(StreamNo))
}

fn stream_no(tx: &Tx<'_>, tenant: TenantNo, name: &StreamName) -> Inner<StreamNo> {
    if let Some(no) = find_stream(tx.conn, tenant, name)? {
        return Ok(no);
    }
    let mut make = tx.statement(include_str!("make_stream.sql"))?;
    Ok(StreamNo(make.query_row(params![tenant.0, name.as_str()], |row| row.get(0))?))
}

fn to_json<T: serde::Serialize>(value: &T) -> Inner<String> {
    // Not a fault of ours: what cannot be written down can never be stored.
    serde_json::to_string(value).map_err(|error| StoreError::Refused(error.to_string()).into())
}

fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Inner<T> {
    serde_json::from_str(text).map_err(|error| unexpected(format!("a stored definition: {error}")))
}

type Routed = (SubscriptionNo, StreamNo, Subscription);

fn subscriptions(conn: &Connection, actor: i64) -> Inner<Vec<Routed>> {
    let mut select = conn.prepare_cached(include_str!("subscriptions.sql"))?;
    let mut rows = select.query([actor])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let text: String = row.get(2)?;
        found.push((SubscriptionNo(row.get(0)?), StreamNo(row.get(1)?), from_json(&text)?));
    }
    Ok(found)
}

fn routes(conn: &Connection, tenant: TenantNo) -> Inner<Routes> {
    let version = first(&mut conn.prepare_cached(include_str!("routes_version.sql"))?, [tenant.0])?
        .ok_or_else(|| StoreError::Refused(format!("there is no tenant {tenant}")))?;
    let mut select = conn.prepare_cached(include_str!("actors.sql"))?;
    let mut rows = select.query([tenant.0])?;
    let mut actors = Vec::new();
    while let Some(row) = rows.next()? {
        let (no, name): (i64, String) = (row.get(0)?, row.get(1)?);
        actors.push(RoutedActor {
            no: ActorNo(no),
            name: ActorName::new(name).map_err(|error| unexpected(error.to_string()))?,
            is_indexed: row.get(2)?,
            subscriptions: subscriptions(conn, no)?,
        });
    }
    Ok(Routes { version, actors })
}

/// Returns whether that changed anything.
fn deploy_one(tx: &mut Tx<'_>, tenant: TenantNo, definition: &ActorDefinition) -> Inner<bool> {
    let (text, is_indexed) = (to_json(definition)?, definition.is_indexed());
    let found: Option<(i64, String, bool)> = tx
        .statement(include_str!("find_actor.sql"))?
        .query_row(params![tenant.0, definition.name.as_str()], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    let actor = match found {
        Some((actor, before, was_indexed)) => {
            if from_json::<ActorDefinition>(&before)? == *definition {
                return Ok(false);
            }
            tx.statement(include_str!("change_actor.sql"))?.execute(params![actor, is_indexed, text])?;
            if is_indexed && !was_indexed {
                tx.statement(include_str!("want_more_of_actor.sql"))?.execute([actor])?;
                tx.statement(include_str!("make_more_of_actor.sql"))?.execute([actor])?;
                tx.statement(include_str!("index_rows.sql"))?.execute([actor])?;
            }
            actor
        }
        None => {
            let mut make = tx.statement(include_str!("make_actor.sql"))?;
            make.query_row(params![tenant.0, definition.name.as_str(), is_indexed, text], |row| row.get(0))?
        }
    };
    let mut old = subscriptions(tx.conn, actor)?;
    for (place, wanted) in definition.subscribe.iter().enumerate() {
        let place = i64::try_from(place).unwrap_or(i64::MAX);
        let stream = stream_no(tx, tenant, &wanted.stream)?;
        let same = old.iter().position(|(_, at, is)| {
            *at == stream && is.kind == wanted.kind && is.is_direct() == wanted.is_direct()
        });
        if let Some(same) = same {
            let (no, ..) = old.remove(same);
            tx.statement(include_str!("change_subscription.sql"))?.execute(params![
                no.0,
                place,
                to_json(wanted)?
            ])?;
            continue;
        }
        let mut make = tx.statement(include_str!("make_subscription.sql"))?;
        let no = make.query_row(params![actor, stream.0, place, to_json(wanted)?], |row| row.get(0))?;
        if wanted.from == From::Beginning {
            pend_all(tx, stream, SubscriptionNo(no), wanted)?;
        }
    }
    for (no, ..) in old {
        tx.statement(include_str!("end_subscription.sql"))?.execute([no.0])?;
    }
    Ok(true)
}

/// What the stream has becomes pending, in this transaction: so it stands before all that comes later.
fn pend_all(
    tx: &mut Tx<'_>,
    stream: StreamNo,
    subscription: SubscriptionNo,
    wanted: &Subscription,
) -> Inner<()> {
    let mut runs = Runs::new(tx.conn, stream, Seq(i64::MIN))?;
    let mut select = tx.statement(include_str!("run_kinds.sql"))?;
    let mut insert = tx.statement(include_str!("append_pending.sql"))?;
    while let Some((first, last)) = runs.next()? {
        let mut rows = select.query([first, last])?;
        while let Some(row) = rows.next()? {
            let seq: i64 = row.get(0)?;
            if wanted.kind.matches(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?) {
                insert.execute([stream.0, seq, subscription.0, next(&mut tx.last.pending)])?;
            }
        }
    }
    Ok(())
}
