//! Faults that are put in on purpose, as negative controls: the invariants must notice each of them.

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutation {
    /// The store commits whatever the owner, the epoch and the version are.
    FenceDropped,
    /// What follows from an append or a commit is told to nobody.
    WakeForgotten,
    /// What was read past is never read again.
    CursorOnly,
    /// A batch that is sent again is done again.
    TicketIgnored,
    /// A release frees the instance, whoever owns it now.
    ReleaseUnchecked,
    /// The drain does not keep out rows that were committed while it read.
    #[cfg(feature = "mutations")]
    GhostsRun,
    /// The drain goes on with the head that a refused commit has made void.
    #[cfg(feature = "mutations")]
    VoidHeadKept,
}

impl Mutation {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::FenceDropped,
        Self::WakeForgotten,
        Self::CursorOnly,
        Self::TicketIgnored,
        Self::ReleaseUnchecked,
        #[cfg(feature = "mutations")]
        Self::GhostsRun,
        #[cfg(feature = "mutations")]
        Self::VoidHeadKept,
    ];

    /// Its switch in the runtime, on for this thread as long as the guard lives.
    #[cfg(feature = "mutations")]
    pub(crate) fn switch(mutation: Option<Self>) -> evener_runtime::mutations::Guard {
        use evener_runtime::mutations::{Switch, set};
        set(match mutation {
            Some(Self::GhostsRun) => Some(Switch::GhostsRun),
            Some(Self::VoidHeadKept) => Some(Switch::VoidHeadKept),
            _ => None,
        })
    }
}
