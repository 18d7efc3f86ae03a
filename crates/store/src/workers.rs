//! Tables `runtime_workers`, `lanes`: who is there. And how they hear of one another.

use std::sync::Arc;
use std::time::Duration;

use evener_actor::id::{Boot, StreamNo};

use crate::Result;
use crate::batch::{Load, RowMade, Worker};

/// Who is there.
pub trait Workers: Send + Sync {
    /// A new boot under that name, live from now on.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn register(&self, name: &str) -> Result<Boot>;

    /// Says that the boot lives. `false`: it is dead; stop, and register a new one.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn heartbeat(&self, boot: Boot, load: Load) -> Result<bool>;

    /// Marks those dead that have been silent for so long, by the store's clock, read in the same statement.
    /// Returns their boots. The judge itself is never among them.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn judge(&self, judge: Boot, stale: Duration) -> Result<Vec<Boot>>;

    /// The boot has released all and goes.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn leave(&self, boot: Boot) -> Result<()>;

    /// All live ones, then the dead that are kept, each the newest first, at most so many in all.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn workers(&self, workers_max: u32) -> Result<Vec<Worker>>;

    /// Tells the other workers what there is to look at. Best effort: whoever is not reached looks anyway,
    /// later. Does nothing where only one worker can be.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn notify(&self, notes: &[Note]) -> Result<()>;

    /// From now on `hear` is called, on a thread of the store's, for what other workers notify of, and with
    /// [`Note::Look`] after every break in the connection. Ends when the guard is dropped.
    ///
    /// # Errors
    /// [`crate::StoreError`]
    fn listen(&self, boot: Boot, hear: Arc<dyn Fn(Note) + Send + Sync>) -> Result<Box<dyn Listening>>;
}

/// A subscription to notes; dropping it ends it.
pub trait Listening: Send + Sync {
    /// `false`: notes do not come through at the moment (or ever, behind a proxy), so looks must do.
    fn is_listening(&self) -> bool;
}

/// What there is to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// Rows of that instance, from that place on.
    Row(RowMade),
    /// Pending events of a stream.
    Pending(StreamNo),
    /// A schedule is due sooner than before.
    Schedule,
    /// Routes or pauses have changed.
    Routes,
    /// Anything: look at everything.
    Look,
}
