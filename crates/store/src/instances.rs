//! Table `instances`: state, owner, epoch.

use evener_actor::id::{ActorNo, Boot, Epoch, InstanceId, Key, Slot};

use crate::Result;
use crate::batch::{Claimed, CommitReport, InstanceCommit, InstanceView, Ticket, Waiting};

/// State, owner, epoch.
pub trait Instances: Send + Sync {
    /// Makes the boot the owner of those that have none, or one that is dead, or the boot itself, and that
    /// have rows waiting. Raises the epoch of each. Those that are left out belong to somebody else, have no
    /// rows, or are locked by another claim just now.
    ///
    /// A boot claims its own again after a claim whose answer was lost, and after a command raised the epoch.
    ///
    /// # Errors
    /// [`crate::StoreError::Fenced`] when the boot is not live.
    fn claim(&self, boot: Boot, wanted: &[Waiting]) -> Result<Vec<Claimed>>;

    /// Gives them back: no owner. Those of another epoch stay as they are.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn release(&self, boot: Boot, owned: &[(Slot, InstanceId, Epoch)]) -> Result<()>;

    /// One transaction for many instances: state, ends of rows, events and schedules that follow.
    ///
    /// # Errors
    /// [`crate::StoreError`]; all or nothing for each instance, by [`CommitReport::committed`], and for the
    /// whole batch if it is an error.
    fn commit(&self, ticket: Ticket, batch: &[InstanceCommit]) -> Result<CommitReport>;

    /// One instance.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn instance(&self, actor: ActorNo, key: &Key) -> Result<Option<InstanceView>>;

    /// Instances of an actor, by key, after that one, whose key begins so.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn instances(
        &self,
        actor: ActorNo,
        prefix: &str,
        after: Option<&Key>,
        instances_max: u32,
    ) -> Result<Vec<InstanceView>>;
}
