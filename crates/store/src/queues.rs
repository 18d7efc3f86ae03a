//! Table `queue`: rows that wait for instances.

use std::ops::Range;

use evener_actor::id::{Boot, Epoch, InstanceId, QueueId, Slot};

use crate::Result;
use crate::batch::{RowsAnswer, RowsRequest, Waiting};

/// Rows that wait for instances.
pub trait Queues: Send + Sync {
    /// Reads rows of many instances. One answer for each request, in order.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn rows(&self, requests: &[RowsRequest]) -> Result<Vec<RowsAnswer>>;

    /// Instances that have rows, in the order of slot and number, within some slots, after that one. A skip
    /// scan: its cost does not depend on how many rows each has.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn waiting(&self, slots: Range<u16>, after: Option<Waiting>, instances_max: u32) -> Result<Vec<Waiting>>;

    /// How many rows an instance has, counted up to that many.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn depth(&self, slot: Slot, instance: InstanceId, rows_max: u32) -> Result<u32>;

    /// Counts one death more for rows that are about to run in careful draining, before they run. The
    /// commit of a row takes its count with it: a row that waits on has none any more. Returns for each instance whether the epoch was right.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn mark_careful(&self, boot: Boot, rows: &[(Slot, InstanceId, Epoch, Vec<QueueId>)])
    -> Result<Vec<bool>>;

    /// Retries blocked rows of an instance, with no attempts counted, or drops them; rows that are not blocked
    /// stay as they are. Raises its epoch in any case, so that its owner takes it anew. Returns how many rows
    /// that were.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn unblock(&self, slot: Slot, instance: InstanceId, rows: &[QueueId], is_retry: bool) -> Result<u64>;

    /// Drops all rows of an instance. Raises its epoch, so that its owner takes it anew. At most so many at a
    /// time; returns how many rows that were.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn purge(&self, slot: Slot, instance: InstanceId, rows_max: u32) -> Result<u64>;
}
