//! Who hears what: events find their instances.
//!
//! Direct subscriptions are routed here, by whoever appends. Deferred ones leave rows in `pending`, which
//! the holder of the stream's lease turns into rows of queues.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use evener_actor::definition::{Subscription, Target};
use evener_actor::event::Event;
use evener_actor::id::{
    ActorName, ActorNo, Group, Key, Slot, StreamName, StreamNo, SubscriptionNo, Tenant, TenantNo,
};
use evener_store::batch::{Dedupe, NewEvent, NewParked, NewRow};
use evener_store::tenants::Routes;
use evener_store::{Result, Store};

/// The routes and names of all tenants, as far as they were asked for. Names never change their numbers;
/// routes are replaced whole.
#[derive(Default)]
pub struct Router {
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    tenants: HashMap<Tenant, TenantNo>,
    names: HashMap<TenantNo, Tenant>,
    streams: HashMap<(TenantNo, StreamName), StreamNo>,
    stream_names: HashMap<StreamNo, StreamName>,
    routes: HashMap<TenantNo, Arc<TenantRoutes>>,
    /// Those of the routes that are read anew when they are next asked for.
    stale: BTreeSet<TenantNo>,
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").finish_non_exhaustive()
    }
}

/// The routes of one tenant.
#[derive(Debug)]
pub struct TenantRoutes {
    /// Whose.
    pub tenant: TenantNo,
    /// The tenant's name.
    pub name: Tenant,
    /// Their version.
    pub version: i64,
    by_stream: HashMap<StreamNo, Vec<Route>>,
    actors: HashMap<ActorName, (ActorNo, bool)>,
    by_no: BTreeMap<ActorNo, ActorName>,
}

#[derive(Debug)]
struct Route {
    no: SubscriptionNo,
    actor: ActorNo,
    name: ActorName,
    is_indexed: bool,
    subscription: Subscription,
}

impl TenantRoutes {
    fn new(tenant: TenantNo, name: Tenant, routes: Routes) -> Self {
        let mut by_stream: HashMap<StreamNo, Vec<Route>> = HashMap::new();
        let mut actors = HashMap::new();
        let mut by_no = BTreeMap::new();
        for actor in routes.actors {
            actors.insert(actor.name.clone(), (actor.no, actor.is_indexed));
            by_no.insert(actor.no, actor.name.clone());
            for (no, stream, subscription) in actor.subscriptions {
                by_stream.entry(stream).or_default().push(Route {
                    no,
                    actor: actor.no,
                    name: actor.name.clone(),
                    is_indexed: actor.is_indexed,
                    subscription,
                });
            }
        }
        Self { tenant, name, version: routes.version, by_stream, actors, by_no }
    }

    /// An actor's number, and whether its rows are indexed.
    #[must_use]
    pub fn actor(&self, name: &ActorName) -> Option<(ActorNo, bool)> {
        self.actors.get(name).copied()
    }

    /// An actor's name.
    #[must_use]
    pub fn actor_name(&self, no: ActorNo) -> Option<&ActorName> {
        self.by_no.get(&no)
    }

    /// An event with all that follows from it in that stream.
    #[must_use]
    pub fn place(&self, stream: StreamNo, event: Event, dedupe: Option<Dedupe>) -> NewEvent {
        let mut new = NewEvent {
            tenant: self.tenant,
            stream: Some(stream),
            event,
            dedupe,
            rows: Vec::new(),
            deferred: Vec::new(),
            parked: Vec::new(),
        };
        for route in self.by_stream.get(&stream).map_or(&[][..], Vec::as_slice) {
            match &route.subscription.key {
                Target::Broadcast => {
                    if route.subscription.wants(&new.event) {
                        new.deferred.push(route.no);
                    }
                }
                Target::Path(_) => match route.subscription.route(&new.event) {
                    Ok(None) => {}
                    Ok(Some(routed)) => new.rows.push(NewRow {
                        slot: Slot::of(&self.name, &route.name, &routed.key),
                        actor: route.actor,
                        key: routed.key,
                        group: routed.group,
                        is_indexed: route.is_indexed,
                        priority: routed.priority,
                    }),
                    Err(error) => {
                        new.parked.push(NewParked { subscription: Some(route.no), reason: error.to_string() })
                    }
                },
            }
        }
        new
    }

    /// An event for one instance. `None`: no such actor.
    #[must_use]
    pub fn direct(
        &self,
        actor: &ActorName,
        key: Key,
        group: Option<Group>,
        priority: i32,
        event: Event,
        dedupe: Option<Dedupe>,
    ) -> Option<NewEvent> {
        let (no, is_indexed) = self.actor(actor)?;
        let slot = Slot::of(&self.name, actor, &key);
        let row = NewRow { slot, actor: no, key, group, is_indexed, priority };
        Some(NewEvent {
            tenant: self.tenant,
            stream: None,
            event,
            dedupe,
            rows: vec![row],
            deferred: Vec::new(),
            parked: Vec::new(),
        })
    }

    /// The subscription of that number, with its actor.
    #[must_use]
    pub fn subscription(&self, no: SubscriptionNo) -> Option<(ActorNo, &ActorName, bool, &Subscription)> {
        self.by_stream
            .values()
            .flatten()
            .find(|route| route.no == no)
            .map(|route| (route.actor, &route.name, route.is_indexed, &route.subscription))
    }
}

impl Router {
    fn read<T>(&self, read: impl FnOnce(&Known) -> T) -> T {
        read(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, write: impl FnOnce(&mut Known) -> T) -> T {
        write(&mut self.known.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// The tenant's number; asks the store once.
    ///
    /// # Errors
    /// [`evener_store::StoreError`]
    pub fn tenant(&self, store: &dyn Store, name: &Tenant) -> Result<TenantNo> {
        if let Some(no) = self.read(|known| known.tenants.get(name).copied()) {
            return Ok(no);
        }
        let no = store.tenant(name)?;
        self.write(|known| {
            known.tenants.insert(name.clone(), no);
            known.names.insert(no, name.clone());
        });
        Ok(no)
    }

    /// The stream's number; asks the store once.
    ///
    /// # Errors
    /// [`evener_store::StoreError`]
    pub fn stream(&self, store: &dyn Store, tenant: TenantNo, name: &StreamName) -> Result<StreamNo> {
        // A look-up by parts would spare the clone; the name is an `Arc`.
        let key = (tenant, name.clone());
        if let Some(no) = self.read(|known| known.streams.get(&key).copied()) {
            return Ok(no);
        }
        let no = store.stream(tenant, name)?;
        self.write(|known| {
            known.streams.insert(key, no);
            known.stream_names.insert(no, name.clone());
        });
        Ok(no)
    }

    /// The stream's name; asks the store once.
    ///
    /// # Errors
    /// [`evener_store::StoreError`]
    pub fn stream_name(&self, store: &dyn Store, no: StreamNo) -> Result<Option<StreamName>> {
        if let Some(name) = self.read(|known| known.stream_names.get(&no).cloned()) {
            return Ok(Some(name));
        }
        let name = store.stream_name(no)?;
        if let Some(name) = &name {
            self.write(|known| known.stream_names.insert(no, name.clone()));
        }
        Ok(name)
    }

    /// The stream's name, if it was asked for before. Never waits.
    #[must_use]
    pub fn known_stream(&self, no: StreamNo) -> Option<StreamName> {
        self.read(|known| known.stream_names.get(&no).cloned())
    }

    /// The tenant's routes; asks the store once, and after [`Router::forget`].
    ///
    /// # Errors
    /// [`evener_store::StoreError`]
    pub fn routes(&self, store: &dyn Store, tenant: TenantNo) -> Result<Arc<TenantRoutes>> {
        let fresh =
            self.read(|known| known.routes.get(&tenant).filter(|_| !known.stale.contains(&tenant)).cloned());
        if let Some(routes) = fresh {
            return Ok(routes);
        }
        let routes = store.routes(tenant)?;
        for actor in &routes.actors {
            for (_, stream, subscription) in &actor.subscriptions {
                self.write(|known| {
                    known.streams.insert((tenant, subscription.stream.clone()), *stream);
                    known.stream_names.insert(*stream, subscription.stream.clone());
                });
            }
        }
        Ok(self.replace(tenant, routes))
    }

    /// The tenant's routes, if they are here, perhaps old ones. Never waits.
    #[must_use]
    pub fn known_routes(&self, tenant: TenantNo) -> Option<Arc<TenantRoutes>> {
        self.read(|known| known.routes.get(&tenant).cloned())
    }

    /// The tenants that were asked for.
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantNo> {
        self.read(|known| known.tenants.values().copied().collect())
    }

    /// These are the tenant's routes from now on.
    pub fn replace(&self, tenant: TenantNo, routes: Routes) -> Arc<TenantRoutes> {
        self.write(|known| {
            let name = known.names.get(&tenant).cloned().unwrap_or_default();
            let routes = Arc::new(TenantRoutes::new(tenant, name, routes));
            known.routes.insert(tenant, Arc::clone(&routes));
            known.stale.remove(&tenant);
            routes
        })
    }

    /// The tenant's name, if it was asked for.
    #[must_use]
    pub fn tenant_name(&self, no: TenantNo) -> Option<Tenant> {
        self.read(|known| known.names.get(&no).cloned())
    }

    /// Routes are read anew when they are next asked for. Till then numbers still have their names.
    pub fn forget(&self) {
        self.write(|known| known.stale = known.routes.keys().copied().collect());
    }
}
