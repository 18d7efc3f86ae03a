//! Table `scheduled_events`: what becomes an event when it is due.

use evener_actor::event::Timestamp;
use evener_actor::id::{ScheduleId, TenantNo};

use crate::Result;
use crate::batch::{CommitReport, Due, Firing, Schedule, ScheduleAnswer, ScheduleWrite, Ticket};

/// What becomes an event when it is due.
pub trait Timers: Send + Sync {
    /// The store's clock. All that is due is due by it.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn now(&self) -> Result<Timestamp>;

    /// Schedules that are due, the earliest first, and when the next is.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn due(&self, schedules_max: u32) -> Result<Due>;

    /// Fires: each schedule that still is as it was read goes on or ends, and its events are appended, in
    /// one transaction. [`CommitReport::committed`] says which those were.
    ///
    /// # Errors
    /// [`crate::StoreError`]; all or nothing.
    fn fire(&self, ticket: Ticket, firings: &[Firing]) -> Result<CommitReport>;

    /// Sets and cancels schedules, in order.
    ///
    /// # Errors
    /// [`crate::StoreError`]; all or nothing.
    fn write_schedules(&self, writes: &[ScheduleWrite]) -> Result<Vec<ScheduleAnswer>>;

    /// Schedules of a tenant, by name, after that one.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn schedules(
        &self,
        tenant: TenantNo,
        after: Option<&ScheduleId>,
        schedules_max: u32,
    ) -> Result<Vec<Schedule>>;
}
