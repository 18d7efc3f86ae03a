//! Tables `tenants`, `streams`, `actors`, `subscriptions`: what has a name, and what hears what.

use evener_actor::definition::{ActorDefinition, Subscription};
use evener_actor::id::{ActorName, ActorNo, StreamName, StreamNo, SubscriptionNo, Tenant, TenantNo};

use crate::Result;

/// What has a name.
///
/// Numbers are given once and never change; a caller may keep them for ever.
pub trait Tenants: Send + Sync {
    /// The tenant's number; it is made if there is none.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn tenant(&self, name: &Tenant) -> Result<TenantNo>;

    /// The stream's number; it is made if there is none.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn stream(&self, tenant: TenantNo, name: &StreamName) -> Result<StreamNo>;

    /// The stream's name.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn stream_name(&self, stream: StreamNo) -> Result<Option<StreamName>>;

    /// Makes the definitions the tenant's: new actors and subscriptions are added, changed ones replaced,
    /// subscriptions that an actor does not have any more are ended (rows that they made stay). Actors
    /// that are not named stay as they are. The same again changes nothing.
    ///
    /// A subscription is the same one as long as its stream, its type pattern and whether it is direct
    /// stay; then a changed key, filter, group or priority keeps its number.
    ///
    /// A new subscription from the beginning is deferred work: the events that are there become pending
    /// for it, in this transaction or in later bounded ones, before new events do.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn deploy(&self, tenant: TenantNo, definitions: &[ActorDefinition]) -> Result<Routes>;

    /// What the tenant's routes are now.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn routes(&self, tenant: TenantNo) -> Result<Routes>;

    /// Pauses or resumes an actor, or one instance of it by key. Returns whether that changed anything.
    /// Rows wait; calls that run end.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn set_paused(
        &self,
        actor: ActorNo,
        key: Option<&evener_actor::id::Key>,
        is_paused: bool,
    ) -> Result<bool>;

    /// All that is paused.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn paused(&self, tenant: TenantNo) -> Result<Vec<Paused>>;
}

/// An actor, or one instance of it, that is paused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Paused {
    /// The actor.
    pub actor: ActorNo,
    /// The instance; `None`: all.
    pub key: Option<evener_actor::id::Key>,
}

/// Who hears what, at one version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes {
    /// Rises with each deploy that changes something.
    pub version: i64,
    /// The actors.
    pub actors: Vec<RoutedActor>,
}

/// An actor with its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutedActor {
    /// Its number.
    pub no: ActorNo,
    /// Its name.
    pub name: ActorName,
    /// Whether its rows stand in the index by group and priority.
    pub is_indexed: bool,
    /// Its subscriptions that are live, each with its number and its stream's.
    pub subscriptions: Vec<(SubscriptionNo, StreamNo, Subscription)>,
}
