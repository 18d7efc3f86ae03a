//! Names, definitions, routes.

use std::collections::HashMap;

use evener_actor::definition::{ActorDefinition, From, Subscription};
use evener_actor::id::{ActorName, ActorNo, Key, StreamName, StreamNo, SubscriptionNo, Tenant, TenantNo};
use tokio_postgres::Row;

use super::Postgres;
use super::connection::{Effect, Transaction};
use super::read::{get, key, name, only};
use super::sql::{self, Arg, Call, Template, arg};
use crate::tenants::{Paused, RoutedActor, Routes};
use crate::{Result, StoreError, Tenants};

impl Postgres {
    /// The number under a name; made if there is none. It is looked up first, for it is nearly always there, and
    /// again after the insert, for somebody else may have made it.
    fn number(&self, look: &'static Template, make: &'static Template, args: &[Arg<'_>]) -> Result<i64> {
        for (template, effect) in [(look, Effect::Reads), (make, Effect::Writes), (look, Effect::Reads)] {
            let rows = self.other.ask(effect, &Call::new(template, args.to_vec()))?;
            if let Some(row) = rows.first() {
                return get(row, "no");
            }
        }
        Err(StoreError::Internal("a name without a number".to_owned()))
    }
}

impl Tenants for Postgres {
    fn tenant(&self, name: &Tenant) -> Result<TenantNo> {
        let name = name.as_str();
        self.number(sql::TENANT, sql::TENANT_MAKE, &[arg("name", &name)]).map(TenantNo)
    }

    fn stream(&self, tenant: TenantNo, name: &StreamName) -> Result<StreamNo> {
        let name = name.as_str();
        let args = [arg("tenant", &tenant.0), arg("name", &name)];
        self.number(sql::STREAM, sql::STREAM_MAKE, &args).map(StreamNo)
    }

    fn stream_name(&self, stream: StreamNo) -> Result<Option<StreamName>> {
        let rows = self.read(&Call::new(sql::STREAM_NAME, vec![arg("stream", &stream.0)]))?;
        rows.first().map(|row| name(get(row, "name")?, StreamName::new)).transpose()
    }

    fn deploy(&self, tenant: TenantNo, definitions: &[ActorDefinition]) -> Result<Routes> {
        self.other.transaction(|transaction| {
            let lock = Call::with(sql::ROUTES_VERSION, vec!["lock"], vec![arg("tenant", &tenant.0)]);
            if transaction.ask(&lock)?.is_empty() {
                return Err(StoreError::Refused(format!("there is no tenant {tenant}")));
            }
            let known = read_routes(tenant, |call| transaction.ask(call))?;
            let mut has_changed = false;
            for definition in definitions {
                let known = known.iter().find(|known| known.name == definition.name);
                has_changed |= deploy_one(transaction, tenant, definition, known)?;
            }
            if has_changed {
                transaction.ask(&Call::new(sql::ROUTES_RAISE, vec![arg("tenant", &tenant.0)]))?;
            }
            routes(tenant, |call| transaction.ask(call))
        })
    }

    fn routes(&self, tenant: TenantNo) -> Result<Routes> {
        // In one transaction, and as one writer leaves it: the version is read first, so a deploy that comes
        // between makes a version seem older than what comes with it, never newer.
        routes(tenant, |call| self.read(call))
    }

    fn set_paused(&self, actor: ActorNo, key: Option<&Key>, is_paused: bool) -> Result<bool> {
        let key = key.map_or("", Key::as_str);
        let template = if is_paused { sql::PAUSE } else { sql::RESUME };
        let call = Call::new(template, vec![arg("actor", &actor.0), arg("key", &key)]);
        Ok(!self.other.ask(Effect::Writes, &call)?.is_empty())
    }

    fn paused(&self, tenant: TenantNo) -> Result<Vec<Paused>> {
        let rows = self.read(&Call::new(sql::PAUSED, vec![arg("tenant", &tenant.0)]))?;
        rows.iter()
            .map(|row| {
                let text: &str = get(row, "key")?;
                let key = if text.is_empty() { None } else { Some(key(text)?) };
                Ok(Paused { actor: ActorNo(get(row, "actor")?), key })
            })
            .collect()
    }
}

/// An actor as its rows stand.
struct Known {
    no: ActorNo,
    name: ActorName,
    is_indexed: bool,
    definition: String,
    subscriptions: Vec<KnownSubscription>,
}

struct KnownSubscription {
    no: SubscriptionNo,
    stream: StreamNo,
    place: i32,
    is_direct: bool,
    kind: String,
    spec: String,
}

fn read_routes(tenant: TenantNo, mut ask: impl FnMut(&Call<'_>) -> Result<Vec<Row>>) -> Result<Vec<Known>> {
    let actors = ask(&Call::new(sql::ACTORS, vec![arg("tenant", &tenant.0)]))?;
    let subscriptions = ask(&Call::new(sql::SUBSCRIPTIONS, vec![arg("tenant", &tenant.0)]))?;
    let mut of: HashMap<i64, Vec<KnownSubscription>> = HashMap::new();
    for row in &subscriptions {
        of.entry(get(row, "actor")?).or_default().push(KnownSubscription {
            no: SubscriptionNo(get(row, "no")?),
            stream: StreamNo(get(row, "stream")?),
            place: get(row, "place")?,
            is_direct: get(row, "is_direct")?,
            kind: get(row, "kind")?,
            spec: get(row, "spec")?,
        });
    }
    actors
        .iter()
        .map(|row| {
            let no = get(row, "no")?;
            Ok(Known {
                no: ActorNo(no),
                name: name(get(row, "name")?, ActorName::new)?,
                is_indexed: get(row, "is_indexed")?,
                definition: get(row, "definition")?,
                subscriptions: of.remove(&no).unwrap_or_default(),
            })
        })
        .collect()
}

fn routes(tenant: TenantNo, mut ask: impl FnMut(&Call<'_>) -> Result<Vec<Row>>) -> Result<Routes> {
    let version = ask(&Call::new(sql::ROUTES_VERSION, vec![arg("tenant", &tenant.0)]))?;
    let Some(version) = version.first() else {
        return Err(StoreError::Refused(format!("there is no tenant {tenant}")));
    };
    let version = get(version, "routes_version")?;
    let actors = read_routes(tenant, ask)?
        .into_iter()
        .map(|known| {
            let subscriptions = known
                .subscriptions
                .into_iter()
                .map(|subscription| {
                    let spec: Subscription = serde_json::from_str(&subscription.spec)
                        .map_err(|error| StoreError::Internal(format!("a subscription: {error}")))?;
                    Ok((subscription.no, subscription.stream, spec))
                })
                .collect::<Result<_>>()?;
            Ok(RoutedActor { no: known.no, name: known.name, is_indexed: known.is_indexed, subscriptions })
        })
        .collect::<Result<_>>()?;
    Ok(Routes { version, actors })
}

fn json<T: serde::Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| StoreError::Refused(format!("a definition: {error}")))
}

/// Returns whether anything changed.
fn deploy_one(
    transaction: &mut Transaction<'_>,
    tenant: TenantNo,
    definition: &ActorDefinition,
    known: Option<&Known>,
) -> Result<bool> {
    let text = json(definition)?;
    let is_indexed = definition.is_indexed();
    let actor = match known {
        Some(known) if known.definition == text && known.is_indexed == is_indexed => return Ok(false),
        Some(known) => {
            let args = vec![arg("actor", &known.no.0), arg("indexed", &is_indexed), arg("definition", &text)];
            transaction.ask(&Call::new(sql::ACTOR_CHANGE, args))?;
            if is_indexed && !known.is_indexed {
                transaction.ask(&Call::new(sql::ACTOR_INDEX, vec![arg("actor", &known.no.0)]))?;
            }
            known.no
        }
        None => {
            let name = definition.name.as_str();
            let args = vec![
                arg("tenant", &tenant.0),
                arg("name", &name),
                arg("indexed", &is_indexed),
                arg("definition", &text),
            ];
            ActorNo(get(only(&transaction.ask(&Call::new(sql::ACTOR_MAKE, args))?)?, "no")?)
        }
    };
    let mut left: Vec<&KnownSubscription> =
        known.map(|known| known.subscriptions.iter().collect()).unwrap_or_default();
    for (place, subscription) in (0_i32..).zip(&definition.subscribe) {
        let stream = stream_in(transaction, tenant, &subscription.stream)?;
        let spec = json(subscription)?;
        let is_direct = subscription.is_direct();
        let kind = subscription.kind.as_str();
        let same = left
            .iter()
            .position(|known| known.stream.0 == stream && known.kind == kind && known.is_direct == is_direct);
        if let Some(same) = same {
            let known = left.remove(same);
            if known.spec != spec || known.place != place {
                let args = vec![arg("subscription", &known.no.0), arg("place", &place), arg("spec", &spec)];
                transaction.ask(&Call::new(sql::SUBSCRIPTION_CHANGE, args))?;
            }
            continue;
        }
        let args = vec![
            arg("tenant", &tenant.0),
            arg("actor", &actor.0),
            arg("stream", &stream),
            arg("place", &place),
            arg("direct", &is_direct),
            arg("kind", &kind),
            arg("spec", &spec),
        ];
        let made = transaction.ask(&Call::new(sql::SUBSCRIPTION_MAKE, args))?;
        let made: i64 = get(only(&made)?, "no")?;
        if subscription.from == From::Beginning {
            let pattern = like(kind);
            let args = vec![arg("subscription", &made), arg("stream", &stream), arg("pattern", &pattern)];
            transaction.ask(&Call::new(sql::SUBSCRIPTION_BEGIN, args))?;
        }
    }
    for ended in left {
        transaction.ask(&Call::new(sql::SUBSCRIPTION_END, vec![arg("subscription", &ended.no.0)]))?;
    }
    Ok(true)
}

fn stream_in(transaction: &mut Transaction<'_>, tenant: TenantNo, name: &StreamName) -> Result<i64> {
    let name = name.as_str();
    for template in [sql::STREAM, sql::STREAM_MAKE, sql::STREAM] {
        let args = vec![arg("tenant", &tenant.0), arg("name", &name)];
        if let Some(row) = transaction.ask(&Call::new(template, args))?.first() {
            return get(row, "no");
        }
    }
    Err(StoreError::Internal(format!("stream {name} without a number")))
}

/// A type pattern as LIKE takes it.
fn like(pattern: &str) -> String {
    let mut like = String::with_capacity(pattern.len());
    for letter in pattern.chars() {
        match letter {
            '*' => like.push('%'),
            '%' | '_' | '\\' => {
                like.push('\\');
                like.push(letter);
            }
            other => like.push(other),
        }
    }
    like
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_star_is_special_in_a_pattern() {
        assert_eq!(like("github.*_100%\\"), "github.%\\_100\\%\\\\");
    }
}
