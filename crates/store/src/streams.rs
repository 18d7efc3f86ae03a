//! Tables `events`, `dedupe`, `pending`: what was appended.

use std::sync::Arc;

use evener_actor::event::StoredEvent;
use evener_actor::id::{ActorNo, Boot, Epoch, InstanceId, Seq, StreamNo};

use crate::Result;
use crate::batch::{Appended, FanOut, NewEvent, Pending, RowMade, Ticket};

/// What was appended.
pub trait Streams: Send + Sync {
    /// Appends events, with the rows that follow directly, in one transaction, in the order given.
    ///
    /// Answers one for each event. Events with [`NewEvent::dedupe`] are compared with one another, too: the
    /// first of a batch is new, the second its duplicate. An append that starts after another was answered
    /// gets a greater `seq`.
    ///
    /// # Errors
    /// [`crate::StoreError`]; all or nothing.
    fn append(&self, ticket: Ticket, events: &[NewEvent]) -> Result<Vec<Appended>>;

    /// Events by place. Those that are not there (any more) are left out.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn events(&self, seqs: &[Seq]) -> Result<Vec<Arc<StoredEvent>>>;

    /// Events of a stream after that place, in order, while their data stays within so many bytes (at least
    /// one). Only events below every append that has not ended yet: who reads on from the last one misses none.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn read_stream(
        &self,
        stream: StreamNo,
        after: Seq,
        events_max: u32,
        bytes_max: usize,
    ) -> Result<Vec<Arc<StoredEvent>>>;

    /// Streams that have pending events, after that number.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn streams_pending(&self, after: Option<StreamNo>, streams_max: u32) -> Result<Vec<StreamNo>>;

    /// Makes the boot the one that fans the stream out, if nobody, nobody live or the boot itself does. The
    /// epoch is its right; each lease raises it.
    ///
    /// # Errors
    /// [`crate::StoreError::Fenced`] when the boot is not live.
    fn lease_stream(&self, stream: StreamNo, boot: Boot) -> Result<Option<Epoch>>;

    /// Gives it back.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn release_stream(&self, stream: StreamNo, boot: Boot, epoch: Epoch) -> Result<()>;

    /// The first pending events of a stream, by `seq` and then by subscription.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn pending(&self, stream: StreamNo, events_max: u32, bytes_max: usize) -> Result<Vec<Pending>>;

    /// Instances of an actor by number, after that one, for a broadcast.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn instances_of(
        &self,
        actor: ActorNo,
        after: InstanceId,
        instances_max: u32,
    ) -> Result<Vec<(InstanceId, evener_actor::id::Key)>>;

    /// Turns pending rows into rows of queues, in one transaction; for the stream's leaseholder only.
    ///
    /// # Errors
    /// [`crate::StoreError::Fenced`] when another one holds the lease. All or nothing.
    fn fan_out(
        &self,
        ticket: Ticket,
        stream: StreamNo,
        epoch: Epoch,
        done: &[FanOut],
    ) -> Result<Vec<RowMade>>;

    /// Takes away events of before that time that nothing names any more (queue, pending, parked, dead
    /// letters), known duplicates whose window is over, dead workers that own nothing; at most so many of each.
    /// Returns how many rows went.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn prune(&self, events_before: evener_actor::event::Timestamp, rows_max: u32) -> Result<u64>;
}
