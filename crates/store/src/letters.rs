//! Tables `dead_letters`, `parked`: what waits for a person.

use evener_actor::id::{ActorNo, TenantNo};

use crate::Result;
use crate::batch::{DeadLetter, NewRow, Parked, RowMade};

/// What waits for a person.
pub trait Letters: Send + Sync {
    /// Dead letters of a tenant, by number, after that one; of one actor, if one is named.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn dead_letters(
        &self,
        tenant: TenantNo,
        actor: Option<ActorNo>,
        after: i64,
        letters_max: u32,
    ) -> Result<Vec<DeadLetter>>;

    /// Puts dead letters back at the end of their groups, with no attempts and no crashes counted and the same
    /// event and origin. Those that are not there (any more) are left out.
    ///
    /// # Errors
    /// [`crate::StoreError`]; all or nothing.
    fn redrive(&self, tenant: TenantNo, letters: &[i64]) -> Result<Vec<RowMade>>;

    /// Drops dead letters. Returns how many there were.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn drop_letters(&self, tenant: TenantNo, letters: &[i64]) -> Result<u64>;

    /// Parked events of a tenant, by number, after that one.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn parked(&self, tenant: TenantNo, after: i64, events_max: u32) -> Result<Vec<Parked>>;

    /// Gives parked events a place: the row that follows from each. Without one it is dropped. Those that
    /// are not there (any more) are left out.
    ///
    /// # Errors
    /// [`crate::StoreError`]; all or nothing.
    fn unpark(&self, tenant: TenantNo, events: &[(i64, Option<NewRow>)]) -> Result<Vec<RowMade>>;
}
