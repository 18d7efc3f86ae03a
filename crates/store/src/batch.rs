//! What crosses the door: whole batches, never single rows.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evener_actor::event::{Event, StoredEvent, Timestamp};
use evener_actor::id::{
    ActorNo, Boot, Epoch, Group, GroupHash, InstanceId, Key, QueueId, ScheduleId, Seq, Slot, StreamNo,
    SubscriptionNo, TenantNo, Version,
};
use evener_actor::outcome::CatchUp;

/// By what right, and as which one, a batch is written.
///
/// A lane belongs to one boot and sends one batch at a time. A batch with number n is done exactly once,
/// however often it is sent: it counts the lane from n - 1 to n in its own transaction, and a second copy
/// finds the lane at n, does nothing, and answers as the first one did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Whose.
    pub boot: Boot,
    /// Which of its lanes.
    pub lane: u16,
    /// The number of the batch, from 1.
    pub number: i64,
}

/// Place for a row of a queue: which instance, how it stands in its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRow {
    /// Of the instance.
    pub slot: Slot,
    /// The actor.
    pub actor: ActorNo,
    /// The instance's key. The instance is made if there is none.
    pub key: Key,
    /// The group.
    pub group: Option<Group>,
    /// Whether the actor's rows are found by group and priority, and so stand in the index over them.
    pub is_indexed: bool,
    /// The priority.
    pub priority: i32,
}

impl NewRow {
    /// The group as the index knows it.
    #[must_use]
    pub fn group_hash(&self) -> GroupHash {
        self.group.as_ref().map_or(GroupHash::NONE, GroupHash::of)
    }
}

/// An event to be appended, with all that follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// Whose.
    pub tenant: TenantNo,
    /// Where; `None`: it goes only to the instances in `rows`.
    pub stream: Option<StreamNo>,
    /// With its id, source and time.
    pub event: Event,
    /// Whether an event with this id and source in this stream may be there already, committed within the
    /// window: then it is that one. Without it the id is the caller's promise.
    pub dedupe: Option<Dedupe>,
    /// Rows that follow directly.
    pub rows: Vec<NewRow>,
    /// Deferred subscriptions that will look at it.
    pub deferred: Vec<SubscriptionNo>,
    /// Subscriptions that wanted it and had no place for it.
    pub parked: Vec<NewParked>,
}

/// How a doubled append is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dedupe {
    /// Of type, subject, content type and data. Another one under the same id is a conflict.
    pub body_hash: u64,
    /// How long it is known.
    pub window: Duration,
}

/// An event that a subscription wanted and had no place for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewParked {
    /// Which subscription; `None`: a rule of the house, such as the depth of emits.
    pub subscription: Option<SubscriptionNo>,
    /// Why.
    pub reason: String,
}

/// What became of one appended event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Appended {
    /// It is new.
    New {
        /// Its place.
        seq: Seq,
        /// The rows that follow, in the order of [`NewEvent::rows`].
        rows: Vec<RowMade>,
    },
    /// It was there already.
    Duplicate {
        /// The place of the first one.
        seq: Seq,
        /// What became of that.
        fate: Fate,
    },
    /// Another event was there under its id. Nothing was appended for it.
    Conflict {
        /// The place of the other one.
        seq: Seq,
    },
}

/// A row that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowMade {
    /// Of the instance.
    pub slot: Slot,
    /// Which instance.
    pub instance: InstanceId,
    /// Its place.
    pub row: QueueId,
}

/// What has become of an event: the first of these that is so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// A row of it waits or runs, or its fan-out is due.
    Waiting,
    /// At least one row of it is a dead letter.
    DeadLetter,
    /// It is parked.
    Parked,
    /// It went through, or nobody wanted it.
    Done,
}

/// What a commit does to one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceCommit {
    /// Of the instance.
    pub slot: Slot,
    /// Which.
    pub instance: InstanceId,
    /// By this right: the owner is the ticket's boot, with this epoch.
    pub epoch: Epoch,
    /// The version that it was built on.
    pub version: Version,
    /// The version after it: so many outcomes more.
    pub version_after: Version,
    /// The new state, if it changed.
    pub state: Option<Bytes>,
    /// The rows that end or wait on, in order.
    pub ends: Vec<RowEnd>,
}

/// What becomes of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowEnd {
    /// Which.
    pub row: QueueId,
    /// What.
    pub end: End,
}

/// How a row ends or goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Its call is through. Its row goes.
    Done {
        /// Events that follow: emits and sends, in order.
        events: Vec<NewEvent>,
        /// Changes of schedules, in order.
        schedules: Vec<ScheduleWrite>,
    },
    /// A newer row stands for it. Its row goes.
    Superseded,
    /// It failed and will be tried again. Its row stays, with this count of attempts.
    Retry {
        /// Failed attempts so far.
        attempts: u32,
        /// Not before so long after the commit, by the store's clock.
        delay: Duration,
        /// Why it failed.
        error: String,
    },
    /// It will not be tried again. Its row goes to the dead letters.
    Dead {
        /// Failed attempts in all.
        attempts: u32,
        /// What used it up.
        cause: DeadCause,
        /// Why it failed at last.
        error: String,
    },
    /// It will not be tried again until somebody says so, and keeps its place. Its row stays, blocked.
    Blocked {
        /// Failed attempts in all.
        attempts: u32,
        /// Why it failed at last.
        error: String,
    },
}

/// What brought a row to the dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadCause {
    /// Its attempts were used up.
    Attempts,
    /// Workers died while it ran.
    WorkerDied,
    /// It can never run or never be committed.
    Refused,
}

impl DeadCause {
    /// As a column holds it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::WorkerDied => "worker died",
            Self::Refused => "refused",
        }
    }

    /// From a column.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        [Self::Attempts, Self::WorkerDied, Self::Refused].into_iter().find(|cause| cause.as_str() == text)
    }
}

/// What a commit did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommitReport {
    /// For each instance of the batch, in order: `false`, it was fenced and nothing of it was done.
    pub committed: Vec<bool>,
    /// Rows that were made.
    pub rows: Vec<RowMade>,
    /// Streams that have new events for deferred subscriptions.
    pub pending: Vec<StreamNo>,
    /// `true`: a schedule may have been set, so the next one may be due sooner.
    pub is_sooner: bool,
}

/// A change of a schedule, ready to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleWrite {
    /// Set, or replaced if what is there has another `spec`.
    Set(Box<NewSchedule>),
    /// Taken away.
    Cancel {
        /// Whose.
        tenant: TenantNo,
        /// Which.
        id: ScheduleId,
    },
}

/// A schedule to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSchedule {
    /// Whose.
    pub tenant: TenantNo,
    /// Its name.
    pub id: ScheduleId,
    /// All that was asked for, as one text: when it is the same as what is there, nothing changes.
    pub spec: String,
    /// When it fires first.
    pub first: FireAt,
    /// How it goes on after that; `None`: once.
    pub cron: Option<CronSpec>,
    /// Where its event goes.
    pub to: ScheduleTo,
    /// Its event; id and time are given when it fires.
    pub event: Event,
}

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FireAt {
    /// So long after the commit, by the store's clock.
    In(Duration),
    /// Then.
    At(Timestamp),
}

/// How a schedule goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronSpec {
    /// The expression.
    pub expression: String,
    /// The zone.
    pub time_zone: String,
    /// What becomes of missed slots.
    pub catch_up: CatchUp,
}

/// Where a schedule's event goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleTo {
    /// Into a stream.
    Stream(StreamNo),
    /// To an instance.
    Instance {
        /// Which actor.
        actor: ActorNo,
        /// Which instance.
        key: Key,
    },
}

/// What a change of a schedule did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleAnswer {
    /// It is set.
    Set,
    /// It was there just so.
    Unchanged,
    /// It is gone before it fired (again).
    Cancelled,
    /// There is none, or not any more.
    NotThere,
}

/// A schedule as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Its row.
    pub no: i64,
    /// Whose.
    pub tenant: TenantNo,
    /// Its name.
    pub id: ScheduleId,
    /// Rises when it is replaced.
    pub generation: i64,
    /// The slot that is next.
    pub fire_at: Timestamp,
    /// How it goes on.
    pub cron: Option<CronSpec>,
    /// Where its event goes.
    pub to: ScheduleTo,
    /// Its event.
    pub event: Event,
}

/// Schedules that are due.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Due {
    /// The earliest first.
    pub schedules: Vec<Schedule>,
    /// The store's clock.
    pub now: Timestamp,
    /// How long until the next one that is not due yet; `None`: there is none.
    pub next_in: Option<Duration>,
}

/// A schedule that fires: what follows from it, and how it goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firing {
    /// Its row.
    pub no: i64,
    /// As it was read; if it has changed since, nothing fires.
    pub generation: i64,
    /// As it was read.
    pub fire_at: Timestamp,
    /// The next slot; `None`: it is over.
    pub next: Option<Timestamp>,
    /// The events, in order; none when the slots are left out.
    pub events: Vec<NewEvent>,
}

/// Which rows of an instance to read, and in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOrder {
    /// Over all groups by place, after that one.
    Forward {
        /// Read after it.
        after: QueueId,
    },
    /// Over all groups by place, backward, before that one.
    Backward {
        /// Read before it.
        before: QueueId,
    },
    /// One group by place, after that one. Only for indexed rows.
    GroupForward {
        /// Which.
        group: GroupHash,
        /// Read after it.
        after: QueueId,
    },
    /// One group by place, backward. Only for indexed rows.
    GroupBackward {
        /// Which.
        group: GroupHash,
        /// Read before it.
        before: QueueId,
    },
    /// One group, the greatest priority first, equal ones by place. Only for indexed rows.
    GroupPriority {
        /// Which.
        group: GroupHash,
        /// Read what comes after the row of that priority and place.
        after: Option<(i32, QueueId)>,
    },
    /// The first row by place of each group whose hash is greater. Only for indexed rows.
    Groups {
        /// Groups after that one; `None`: from the first.
        after: Option<GroupHash>,
    },
}

/// A wish to read rows of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowsRequest {
    /// Of the instance.
    pub slot: Slot,
    /// Which.
    pub instance: InstanceId,
    /// Which rows.
    pub order: RowOrder,
    /// At most so many rows.
    pub rows_max: u32,
    /// Events come along, in the order of the rows, as long as their data stays within so many bytes in
    /// all (the first one always, unless this is 0); those behind come without.
    pub event_bytes_max: usize,
}

/// A row of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRow {
    /// Its place.
    pub id: QueueId,
    /// Its event.
    pub seq: Seq,
    /// Its event's stream.
    pub stream: Option<StreamNo>,
    /// Its group.
    pub group: Option<Group>,
    /// Its priority.
    pub priority: i32,
    /// Not before so long from now; zero: it is due.
    pub delay: Duration,
    /// Failed attempts so far.
    pub attempts: u32,
    /// Deaths of workers so far.
    pub crashes: u32,
    /// The place of the row that it first was.
    pub origin: QueueId,
    /// It waits for a command.
    pub is_blocked: bool,
    /// Bytes of its event's data.
    pub event_bytes: u32,
    /// Its event, if it came along.
    pub event: Option<Arc<StoredEvent>>,
}

/// The answer to a [`RowsRequest`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowsAnswer {
    /// The rows, in the order asked for.
    pub rows: Vec<QueueRow>,
    /// `true`: there were no more, as far as could be seen.
    pub is_end: bool,
}

/// An instance that has an owner now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// Of the instance.
    pub slot: Slot,
    /// Which.
    pub instance: InstanceId,
    /// Whose.
    pub tenant: TenantNo,
    /// Its actor.
    pub actor: ActorNo,
    /// Its key.
    pub key: Key,
    /// The owner's right.
    pub epoch: Epoch,
    /// How many commits it has seen.
    pub version: Version,
    /// Its state.
    pub state: Option<Bytes>,
    /// `true`: its last owner died with it.
    pub was_orphan: bool,
}

/// An instance with rows that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Waiting {
    /// Of the instance.
    pub slot: Slot,
    /// Which.
    pub instance: InstanceId,
}

/// An event that waits for a deferred subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Its place; later ones are greater within a stream and a subscription.
    pub id: i64,
    /// Which subscription.
    pub subscription: SubscriptionNo,
    /// For a broadcast that is under way: the last instance that has its row.
    pub reached: Option<InstanceId>,
    /// The event.
    pub event: Arc<StoredEvent>,
}

/// What a pending event becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FanOut {
    /// Which pending row.
    pub id: i64,
    /// Its event.
    pub seq: Seq,
    /// Its event's data, in bytes.
    pub event_bytes: u32,
    /// Whose.
    pub tenant: TenantNo,
    /// Rows that follow.
    pub rows: Vec<NewRow>,
    /// No place was found.
    pub parked: Option<NewParked>,
    /// A broadcast goes on after that instance; `None`: the pending row is done.
    pub reached: Option<InstanceId>,
}

/// A row of the dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its number.
    pub id: i64,
    /// Of the instance.
    pub slot: Slot,
    /// The instance.
    pub instance: InstanceId,
    /// Its actor.
    pub actor: ActorNo,
    /// Its key.
    pub key: Key,
    /// The event.
    pub seq: Seq,
    /// The place of the row that it first was.
    pub origin: QueueId,
    /// Failed attempts.
    pub attempts: u32,
    /// Deaths of workers.
    pub crashes: u32,
    /// What used it up.
    pub cause: DeadCause,
    /// Why it failed at last.
    pub error: String,
    /// When.
    pub at: Timestamp,
}

/// An event that is parked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// Its number.
    pub id: i64,
    /// The event.
    pub seq: Seq,
    /// Which subscription wanted it.
    pub subscription: Option<SubscriptionNo>,
    /// Why it is here.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

/// An instance as its row stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceView {
    /// Of the instance.
    pub slot: Slot,
    /// Which.
    pub instance: InstanceId,
    /// Its actor.
    pub actor: ActorNo,
    /// Its key.
    pub key: Key,
    /// Its owner, if it is active.
    pub owner: Option<Boot>,
    /// The owner's right.
    pub epoch: Epoch,
    /// How many commits it has seen.
    pub version: Version,
    /// Its state.
    pub state: Option<Bytes>,
}

/// A runtime worker as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Its boot.
    pub boot: Boot,
    /// Its name; two may have the same.
    pub name: String,
    /// How long since its last heartbeat.
    pub silent: Duration,
    /// `false`: it is dead, for good.
    pub is_live: bool,
    /// What it said of itself with its last heartbeat.
    pub load: Load,
}

/// What a worker says of itself with each heartbeat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Calls that run.
    pub in_flight: u32,
    /// Instances that it owns.
    pub active: u32,
    /// The version of the routes that it uses.
    pub routes: i64,
}
