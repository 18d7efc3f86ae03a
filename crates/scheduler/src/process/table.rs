//! What is known of a process's type, and the part of its state that few need.

use std::alloc::Layout;

use crate::process::pending::Pendings;
use crate::process::{InitContext, ProcessError, Turn};
use crate::{LocalPid, Payload, Pid};

/// One static per process type: its code, and how its value lies.
pub(crate) struct ProcessTable {
    pub(crate) step: unsafe fn(*mut u8, &mut Turn<'_>) -> Result<(), ProcessError>,
    /// `None`: the type has no `init` and begins with its first step.
    pub(crate) init: Option<InitFn>,
    pub(crate) close: Option<unsafe fn(*mut u8)>,
    pub(crate) drop: Option<unsafe fn(*mut u8)>,
    pub(crate) layout: Layout,
    /// The value lies in the slot itself.
    pub(crate) inline: bool,
    pub(crate) type_name: fn() -> &'static str,
    /// A panic in `step` fails what was being handled, and the process goes on.
    pub(crate) survives_panics: bool,
}

impl ProcessTable {
    pub(crate) fn name(&self) -> &'static str {
        (self.type_name)()
    }
}

pub(crate) type InitFn = unsafe fn(*mut u8, &InitContext, &str, Payload) -> Result<(), ProcessError>;

/// Does a value of this layout lie in the slot?
pub(crate) const fn lies_inline(layout: Layout) -> bool {
    layout.size() <= 16 && layout.align() <= 8
}

/// What few processes need: made on first use, touched only by the runner.
pub(crate) struct Cold {
    /// Owed to the first turn: `init` has not run yet.
    pub(crate) start: Option<Start>,
    /// Yields handed out and not yet completed.
    pub(crate) pending: Pendings,
    /// Whose it is, once it has a ticker.
    pub(crate) ticking: Option<LocalPid>,
    /// Number of the last yield.
    pub(crate) last_seq: u32,
    /// Messages taken and not yet turned round: newest first.
    pub(crate) rest: u32,
    /// Who waits for its `init`.
    pub(crate) waiters: Vec<ReplyTo>,
    /// Who hears that its `init` failed.
    pub(crate) spawner: Option<Pid>,
    /// No process lives here any more: what is to be taken apart.
    #[cfg(not(loom))]
    pub(crate) leftover: Option<Box<crate::worker::Leftover>>,
}

impl Cold {
    pub(crate) fn new() -> Self {
        Self {
            start: None,
            pending: Pendings::new(),
            ticking: None,
            last_seq: 0,
            rest: 0,
            waiters: Vec::new(),
            spawner: None,
            #[cfg(not(loom))]
            leftover: None,
        }
    }
}

/// How a process begins.
pub(crate) struct Start {
    pub(crate) method: String,
    pub(crate) input: Payload,
    pub(crate) parent: Option<Pid>,
}

/// Where an answer goes: the yield number `seq` of a process (or of a thread that waits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyTo {
    pub(crate) pid: LocalPid,
    pub(crate) seq: u32,
}
