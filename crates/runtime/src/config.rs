//! What can be set.

use std::time::Duration;

/// Numbers of a runtime, each with a bound.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of the runtime worker; each boot gets a number of its own besides.
    pub worker_id: String,
    /// Longest data of an event, in bytes.
    pub payload_bytes_max: usize,
    /// Time between two heartbeats.
    pub heartbeat: Duration,
    /// Silence after which a worker is dead.
    pub stale: Duration,
    /// How old the last answered heartbeat may be while calls are started and batches sent.
    pub trust: Duration,
    /// Time between two looks for what no word came of.
    pub backup_poll: Duration,
    /// Instances that have a drain here, at most.
    pub active_max: usize,
    /// How long a drain that has nothing to do keeps its instance.
    pub linger: Duration,
    /// Calls that run at once, at most.
    pub calls_max: usize,
    /// Bytes of events that are held for drains.
    pub event_bytes_max: usize,
    /// Bytes of outcomes that wait for their commit.
    pub outcome_bytes_max: usize,
    /// Outcomes in one commit, at most.
    pub batch_events_max: usize,
    /// Bytes in one commit, at most.
    pub batch_bytes_max: usize,
    /// Commits under way at once; 0: what suits the store.
    pub commit_lanes: u16,
    /// Appends under way at once; 0: what suits the store.
    pub append_lanes: u16,
    /// How often an emitted event may lead to another.
    pub depth_max: u32,
    /// How long appends with an id are known.
    pub dedupe_window: Duration,
    /// How long a call that was told to end may go on.
    pub abort_grace: Duration,
    /// Age at which events that nothing names any more are taken away; `None`: never. Not acted upon yet.
    pub retention: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            worker_id: "evener".to_owned(),
            payload_bytes_max: 1024 * 1024,
            heartbeat: Duration::from_secs(15),
            stale: Duration::from_secs(60),
            trust: Duration::from_secs(45),
            backup_poll: Duration::from_secs(15),
            active_max: 10_000,
            linger: Duration::from_secs(5),
            calls_max: 10_000,
            event_bytes_max: 64 * 1024 * 1024,
            outcome_bytes_max: 128 * 1024 * 1024,
            batch_events_max: 1024,
            batch_bytes_max: 8 * 1024 * 1024,
            commit_lanes: 0,
            append_lanes: 0,
            depth_max: 64,
            dedupe_window: Duration::from_secs(24 * 3600),
            abort_grace: Duration::from_secs(5),
            retention: None,
        }
    }
}
