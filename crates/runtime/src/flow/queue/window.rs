//! The few rows of a queue that a drain knows, what to read next, and what to start.
//!
//! A queue may have a million rows in a hundred thousand groups; its drain knows [`ROWS_MAX`] of them and
//! reads by index what it may be able to start. What it asks for:
//!
//! | mode | rows without index (one group) | indexed rows, for each group with a free slot |
//! | --- | --- | --- |
//! | fifo, custom | `Forward` from where it stands | `GroupForward` |
//! | lifo, latest | `Backward` from the end | `GroupBackward`; latest one row |
//! | priority | | `GroupPriority` from the greatest; `GroupForward` for the reserved share |
//!
//! **Groups** are found in two ways. A *scan* (`Groups`, one row for each group) goes round all of them, in
//! pages; it runs at the start, at each slow look, and whenever rows may have been left behind. While it is
//! under way, each group has what was read of it at one visit and is then let go until the scan comes round
//! again, so that many busy groups do not keep it from the others. When it is through, *news* (`Forward` from
//! the lowest new id, or from where the news were last read to) show which groups new rows belong to. Starts go round the known groups in turn.
//!
//! A group that is not known is either *clean*: none of its rows wait, as far as was read; or *shut*: it had
//! no free slot when the scan passed it or its rows made room, or its rows are in back-off. A shut group is
//! read again when a slot of it frees or a row of it comes due. The news of a clean group are all there is
//! of it, so they are taken as they are, without a second read.
//!
//! **fifo** keeps this invariant: of each known group the rows from its first up to `at` are all known; each is
//! in flight, in `rows`, or in `held` (in back-off or blocked). So rows that were once started, which stand
//! at the front, are always seen before those that were not, and the slots they keep are counted without
//! being remembered anywhere.
//!
//! **A blocked row keeps its slot** in each mode. In fifo it is seen at the front. In the others it may lie
//! anywhere: those that this drain blocked stay in flight (up to [`BLOCKED_MAX`]), those of an earlier owner
//! count from when they are read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use evener_actor::event::Timestamp;
use evener_actor::id::{GroupHash, QueueId};
use evener_actor::policy::{QueueMode, QueuePolicy};
use evener_store::batch::{QueueRow, RowOrder};

use super::Row;
use super::groups::InFlight;
use super::policy::{self, OFFER_MAX, SelectFault, Share};

/// How many rows that are not in flight a drain knows; in mode custom it is [`OFFER_MAX`].
///
/// In fifo at most so many rows of one group are held in back-off: with more of them the group is full,
/// whatever its limit.
pub const ROWS_MAX: usize = 64;

/// How many blocked rows stay in flight for the slots they keep, in modes other than fifo. With more of them
/// the one that was blocked first gives its slot back.
pub const BLOCKED_MAX: usize = 1_024;

/// How many groups are found before their rows are read.
const UNREAD_MAX: usize = 64;
/// Of how many groups it is known when to look at them again; for the others there is one moment.
const WAITS_MAX: usize = 64;
/// How many groups are known to be shut; with more, each that is not known may be.
const SHUT_MAX: usize = 1_024;
/// How many rows one read asks for.
const READ_MAX: usize = 1_024;

const FIRST: QueueId = QueueId(i64::MIN);
const LAST: QueueId = QueueId(i64::MAX);

/// A wish to read rows of the instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// Which rows.
    pub order: RowOrder,
    /// At most so many.
    pub rows_max: u32,
    /// Which of all reads of this queue.
    pub number: u64,
}

/// What the queue wants now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// These start, in this order. They are in flight already.
    pub start: Vec<QueueRow>,
    /// Mode custom: these are shown to `select`, in this order; [`Queue::selected`] or
    /// [`Queue::select_failed`] has its answer.
    pub offer: Vec<QueueRow>,
    /// These are read; each is answered once, by [`Queue::answer`] or [`Queue::unread`].
    pub reads: Vec<Read>,
    /// Look again then, if nothing happens before: a row comes due, or a failed `select` is asked again.
    pub wait: Option<Timestamp>,
    /// Nothing is in flight and nothing can start before `wait`, a wake or the next slow look. The rows were
    /// read from the start since the last start or wake, so the drain may leave.
    pub is_dry: bool,
}

/// How a call has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Its row will be gone: done, superseded, dead.
    Through,
    /// Its row will wait and be tried again.
    Retry,
    /// Its row will stay, blocked.
    Blocked,
}

/// What has become of a row, now that its commit is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is gone.
    Gone,
    /// It waits until then.
    Waits(Timestamp),
    /// It is blocked.
    Blocked,
}

/// What is known of a group.
#[derive(Debug, Clone, Default)]
struct Known {
    /// Rows that are due, in the order in which they are taken.
    rows: BTreeMap<(i64, i64), Row>,
    /// Rows that keep a slot though they are not in flight: blocked; in fifo in back-off.
    held: BTreeSet<QueueId>,
    /// Priority and place of the last row that was read; `None`: it is read from the start.
    at: Option<(i32, QueueId)>,
    /// There was nothing behind `at`.
    is_end: bool,
    /// Something new may come before what was read: `rows` were dropped, they are read from the start again.
    is_stale: bool,
    /// Rows were started from it since it became known.
    has_yielded: bool,
    /// The read that is under way, and how many rows it may bring.
    asked: Option<(u64, usize)>,
    /// New rows, from that place on, may have been missed by the read that is under way.
    missed: Option<QueueId>,
    oldest: Oldest,
}

/// The oldest row of a group, for the reserved share.
#[derive(Debug, Clone, Default)]
enum Oldest {
    #[default]
    Unknown,
    Asked(u64),
    /// `None`: none is due where it was looked for; the share lapses.
    Known(Option<Box<Row>>),
}

/// The way round all groups.
#[derive(Debug, Clone, Default)]
struct Scan {
    /// The next page is after that group; `None`: it is through.
    at: Option<Option<GroupHash>>,
    /// Rows were left behind: once round again.
    is_again: bool,
    asked: Option<u64>,
}

/// When to look at which group again.
#[derive(Debug, Clone, Default)]
struct Waits {
    groups: BTreeMap<GroupHash, Timestamp>,
    /// For those for which there was no place.
    others: Option<Timestamp>,
}

impl Waits {
    fn add(&mut self, group: GroupHash, due: Timestamp) {
        if let Some(known) = self.groups.get_mut(&group) {
            *known = due.min(*known);
            return;
        }
        self.groups.insert(group, due);
        if self.groups.len() > WAITS_MAX
            && let Some((latest, due)) =
                self.groups.iter().map(|(group, due)| (*group, *due)).max_by_key(|at| at.1)
        {
            self.groups.remove(&latest);
            self.others = Some(self.others.map_or(due, |others| others.min(due)));
        }
    }

    fn earliest(&self) -> Option<Timestamp> {
        self.groups.values().copied().chain(self.others).min()
    }
}

/// Groups that have rows which nobody knows at the moment.
#[derive(Debug, Clone, Default)]
struct Shut {
    groups: BTreeSet<GroupHash>,
    has_others: bool,
}

impl Shut {
    fn add(&mut self, group: GroupHash) {
        if self.groups.len() < SHUT_MAX {
            self.groups.insert(group);
        } else if !self.groups.contains(&group) {
            self.has_others = true;
        }
    }

    fn remove(&mut self, group: GroupHash) {
        self.groups.remove(&group);
    }

    /// It is, or may be, shut.
    fn contains(&self, group: GroupHash) -> bool {
        self.has_others || self.groups.contains(&group)
    }
}

/// The reads that are under way, and the rows that left meanwhile.
///
/// A read may show a row as it was before its commit. Who is told of the commit first and has the answer to
/// the read after it must not take the row for one that waits.
#[derive(Debug, Clone, Default)]
struct Reads {
    next: u64,
    open: BTreeSet<u64>,
    /// Which reads may show that row as it was, all up to that number; and whether it is gone for good.
    left: BTreeMap<QueueId, (u64, bool)>,
}

impl Reads {
    fn open(&mut self, order: RowOrder, rows_max: usize) -> Read {
        self.next += 1;
        self.open.insert(self.next);
        Read { order, rows_max: u32::try_from(rows_max.min(READ_MAX)).unwrap_or(u32::MAX), number: self.next }
    }

    fn close(&mut self, number: u64) {
        self.open.remove(&number);
        match self.open.first() {
            None => self.left.clear(),
            Some(first) => self.left.retain(|_, left| left.0 >= *first),
        }
    }

    fn left(&mut self, id: QueueId, is_gone: bool) {
        if !self.open.is_empty() {
            self.left.insert(id, (self.next, is_gone));
        }
    }

    /// `None`: that read shows the row as it is. Else whether the row is gone for good.
    fn is_gone(&self, number: u64, id: QueueId) -> Option<bool> {
        #[cfg(feature = "mutations")]
        if crate::mutations::is(crate::mutations::Switch::GhostsRun) {
            return None;
        }
        self.left.get(&id).filter(|left| left.0 >= number).map(|left| left.1)
    }
}

/// How the actor's own choice stands.
#[derive(Debug, Clone, Default)]
struct Select {
    /// What it was shown and has not answered.
    shown: Option<BTreeSet<QueueId>>,
    /// It failed, and is asked again then.
    until: Option<Timestamp>,
    /// Some were passed over in this round.
    has_advanced: bool,
    /// All were passed over: until something happens.
    is_resting: bool,
}

/// The queue of one instance, as its drain knows it.
#[derive(Debug, Clone)]
pub struct Queue {
    mode: QueueMode,
    concurrency: usize,
    instance_max: usize,
    is_indexed: bool,
    in_flight: InFlight,
    groups: BTreeMap<GroupHash, Known>,
    /// The group of the last start.
    turn: GroupHash,
    scan: Scan,
    /// The lowest new id that was not looked at.
    news: Option<QueueId>,
    news_asked: Option<u64>,
    /// Rows up to that place were looked at. So a row whose wake was lost is seen before one behind it starts.
    news_after: QueueId,
    /// The greatest place that was read.
    highest: QueueId,
    shut: Shut,
    waits: Waits,
    share: Share,
    /// Where the search for the oldest row of a group goes on, behind those in back-off.
    oldest_after: BTreeMap<GroupHash, QueueId>,
    select: Select,
    /// Blocked rows that stay in flight, in the order in which they were blocked.
    blocked: Vec<QueueId>,
    reads: Reads,
    /// Nothing was started and no wake came since everything was looked at from the start.
    is_verified: bool,
}

impl Queue {
    /// A queue of which nothing is known yet. `is_indexed`: as the actor's rows are stored
    /// (`Definition::is_indexed`); else its rows are one group, whatever group they carry.
    ///
    /// # Panics
    /// If the mode is priority and rows are not indexed: there would be no way to read by priority.
    #[must_use]
    pub fn new(policy: &QueuePolicy, is_indexed: bool) -> Self {
        assert!(is_indexed || policy.mode != QueueMode::Priority, "priority is read from the index");
        let mut queue = Self {
            mode: policy.mode,
            concurrency: policy.concurrency.max(1) as usize,
            instance_max: policy.instance_max.max(1) as usize,
            is_indexed,
            in_flight: InFlight::default(),
            groups: BTreeMap::new(),
            turn: GroupHash::NONE,
            scan: Scan::default(),
            news: None,
            news_asked: None,
            news_after: FIRST,
            highest: FIRST,
            shut: Shut::default(),
            waits: Waits::default(),
            share: Share::default(),
            oldest_after: BTreeMap::new(),
            select: Select::default(),
            blocked: Vec::new(),
            reads: Reads::default(),
            is_verified: false,
        };
        queue.look();
        queue
    }

    /// The rows that were started and are not done with.
    #[must_use]
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// How many rows are known that are not in flight.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.groups.values().map(|known| known.rows.len()).sum()
    }

    /// New rows may be there, the lowest of them at that place.
    pub fn wake(&mut self, lowest: QueueId) {
        self.is_verified = false;
        if self.select.is_resting {
            return self.look();
        }
        if self.is_indexed {
            self.news = Some(self.news.map_or(lowest, |news| news.min(lowest)));
        } else {
            self.has_new(GroupHash::NONE, lowest);
        }
    }

    /// Everything is looked at from the start: the slow look, in case a wake was lost.
    pub fn look(&mut self) {
        self.look_again();
        self.is_verified = true;
    }

    fn look_again(&mut self) {
        self.select.has_advanced = false;
        self.select.is_resting = false;
        if self.is_indexed {
            self.scan.is_again = self.scan.asked.is_some();
            self.scan_from_start();
            self.shut = Shut::default();
            self.waits.others = None;
        } else {
            self.groups.entry(GroupHash::NONE).or_default();
        }
        let groups: Vec<GroupHash> = self.groups.keys().copied().collect();
        for group in groups {
            self.restart(group);
        }
    }

    /// The rows of a known group are read from its first again.
    fn restart(&mut self, group: GroupHash) {
        let Some(known) = self.groups.get_mut(&group) else { return };
        match self.mode {
            QueueMode::Fifo | QueueMode::Custom => {
                // An answer that is under way would leave a hole: it is asked for anew.
                let has_yielded = known.has_yielded;
                *known = Known { has_yielded, ..Known::default() };
            }
            QueueMode::Lifo | QueueMode::Latest | QueueMode::Priority => self.has_new(group, FIRST),
        }
    }

    /// A known group may have new rows from that place on.
    fn has_new(&mut self, group: GroupHash, lowest: QueueId) {
        let mode = self.mode;
        let Some(known) = self.groups.get_mut(&group) else { return };
        if known.asked.is_some() {
            known.missed = Some(known.missed.map_or(lowest, |missed| missed.min(lowest)));
        } else {
            known.has_new(mode, lowest);
        }
    }

    /// The group is known from here on, if it may have rows that are not.
    fn touch(&mut self, group: GroupHash) {
        if self.groups.contains_key(&group) || !self.shut.contains(group) {
            return;
        }
        if self.is_scanning() || self.groups.len() >= 2 * UNREAD_MAX {
            self.look_round_again();
        } else {
            self.shut.remove(group);
            self.groups.insert(group, Known::default());
        }
    }

    fn look_round_again(&mut self) {
        if self.is_scanning() {
            self.scan.is_again = true;
        } else {
            self.scan_from_start();
        }
    }

    fn is_scanning(&self) -> bool {
        self.scan.at.is_some() || self.scan.asked.is_some()
    }

    fn scan_from_start(&mut self) {
        self.scan.at = Some(None);
        self.news_after = self.highest;
    }

    /// The call of a row has really ended. Its slot is free from now on, but for a blocked row, and in fifo for
    /// one that is tried again.
    ///
    /// # Panics
    /// If its call does not run.
    pub fn ended(&mut self, id: QueueId, ending: Ending) {
        let keeps_slot = match ending {
            Ending::Through => false,
            Ending::Retry => self.mode == QueueMode::Fifo,
            Ending::Blocked => true,
        };
        self.in_flight.ended(id, keeps_slot);
        if let Some(group) = self.in_flight.group(id).filter(|_| !keeps_slot) {
            self.touch(group);
        }
        self.rest_no_more();
    }

    /// Mode latest: these end with that row, which is in flight; they are, too, until what becomes of them is known.
    pub fn superseded(&mut self, by: QueueId, rows: &[QueueId]) {
        let Some(group) = self.in_flight.group(by) else { return };
        for id in rows {
            self.in_flight.superseded(*id, group);
        }
        if let Some(known) = self.groups.get_mut(&group) {
            known.rows.retain(|_, row| !rows.contains(&row.id()));
        }
    }

    /// Its commit was refused: it ends once more, as failed.
    pub fn refused(&mut self, id: QueueId) {
        self.in_flight.refused(id);
    }

    /// What became of a row is known: its commit was answered.
    pub fn committed(&mut self, id: QueueId, fate: Fate) {
        let Some(group) = self.in_flight.group(id) else { return };
        self.is_verified = false;
        match fate {
            Fate::Gone => {
                self.leave(id, true);
                self.touch(group);
            }
            Fate::Waits(due) => {
                self.leave(id, false);
                self.waits.add(group, due);
                self.hold(group, id);
            }
            Fate::Blocked if self.mode == QueueMode::Fifo => {
                self.leave(id, false);
                self.hold(group, id);
            }
            Fate::Blocked => {
                self.blocked.push(id);
                if self.blocked.len() > BLOCKED_MAX {
                    let first = self.blocked.remove(0);
                    if let Some(group) = self.leave(first, false) {
                        self.shut.add(group);
                        self.touch(group);
                    }
                }
            }
        }
        self.rest_no_more();
    }

    /// fifo: the slot that a row had in flight it now has as one that waits.
    fn hold(&mut self, group: GroupHash, id: QueueId) {
        match self.groups.get_mut(&group) {
            Some(known) if self.mode == QueueMode::Fifo => {
                known.held.insert(id);
            }
            Some(_) => {}
            None => self.shut.add(group),
        }
    }

    /// A row that was started waits again as if it had not been: its attempt was discarded. Its call does not
    /// run any more, or has not begun.
    pub fn returned(&mut self, id: QueueId) {
        let Some(group) = self.leave(id, false) else { return };
        self.is_verified = false;
        self.shut.add(group);
        self.touch(group);
        self.restart(group);
        self.rest_no_more();
    }

    fn leave(&mut self, id: QueueId, is_gone: bool) -> Option<GroupHash> {
        self.reads.left(id, is_gone);
        self.in_flight.left(id)
    }

    fn rest_no_more(&mut self) {
        if self.select.is_resting {
            self.look();
        }
    }

    /// What is wanted at that moment, when at most `room` calls more may start. To be asked after each thing
    /// that happened; what it answers is to be done.
    pub fn next(&mut self, now: Timestamp, room: usize) -> Choice {
        self.come_due(now);
        let mut choice = Choice::default();
        let mut room = room.min(self.instance_max.saturating_sub(self.in_flight.calls()));
        if self.mode == QueueMode::Custom {
            self.offer(now, room, &mut choice);
        } else {
            while room > 0
                && let Some(row) = self.start()
            {
                choice.start.push(row);
                room -= 1;
            }
            self.let_go(room);
            choice.reads = self.reads(room);
        }
        if self.is_idle(&choice) {
            if self.is_verified {
                choice.is_dry = true;
            } else {
                self.look();
                choice.reads = self.reads(room);
            }
        }
        let until = self.select.until;
        choice.wait = self.waits.earliest().filter(|_| until.is_none()).or(until);
        choice
    }

    /// Nothing is in flight, under way, or to be read.
    fn is_idle(&self, choice: &Choice) -> bool {
        self.in_flight.len() == self.blocked.len()
            && choice.reads.is_empty()
            && choice.offer.is_empty()
            && self.select.shown.is_none()
            && !self.is_scanning()
            && self.news.is_none()
            && self.news_asked.is_none()
            && (self.select.is_resting
                || self.groups.iter().all(|(group, known)| {
                    let is_full = self.free(*group, known) == 0;
                    known.asked.is_none() && (is_full || (known.rows.is_empty() && known.is_whole()))
                }))
    }

    fn come_due(&mut self, now: Timestamp) {
        if self.select.until.is_some_and(|until| until <= now) {
            self.select.until = None;
        }
        if self.waits.others.is_some_and(|due| due <= now) {
            self.look_again();
        }
        let due: Vec<GroupHash> =
            self.waits.groups.iter().filter(|(_, due)| **due <= now).map(|(group, _)| *group).collect();
        for group in due {
            self.waits.groups.remove(&group);
            self.shut.add(group);
            self.touch(group);
            self.restart(group);
            self.rest_no_more();
        }
    }

    /// Starts one row: the first of the first group in turn that may.
    fn start(&mut self) -> Option<QueueRow> {
        let behind = self.groups.range((Excluded(self.turn), Unbounded));
        let group = behind
            .chain(self.groups.range(..=self.turn))
            .find(|(group, known)| self.may_start(**group, known))
            .map(|(group, _)| *group)?;
        let is_for_oldest = self.is_for_oldest(group);
        let known = self.groups.get_mut(&group)?;
        let oldest = if !is_for_oldest {
            None
        } else if known.is_whole() {
            known.rows.iter().min_by_key(|(_, row)| row.id()).map(|(rank, _)| *rank)
        } else if let Oldest::Known(Some(row)) = std::mem::take(&mut known.oldest) {
            let rank = policy::rank(self.mode, row.row.priority, row.id());
            known.rows.entry(rank).or_insert(*row);
            Some(rank)
        } else {
            None
        };
        known.oldest = Oldest::Unknown;
        let rank = oldest.or_else(|| known.rows.keys().next().copied())?;
        let row = known.rows.remove(&rank)?;
        known.has_yielded = true;
        if self.mode == QueueMode::Latest {
            // What is left of the group is older.
            known.rows.clear();
        }
        if self.mode == QueueMode::Priority {
            self.share.started(group, is_for_oldest);
        }
        self.in_flight.started(row.id(), group);
        self.turn = group;
        self.is_verified = false;
        Some(row.row)
    }

    fn is_for_oldest(&self, group: GroupHash) -> bool {
        self.mode == QueueMode::Priority && self.share.is_for_oldest(group)
    }

    /// How many slots of a known group are free.
    fn free(&self, group: GroupHash, known: &Known) -> usize {
        if known.held.len() >= ROWS_MAX {
            return 0;
        }
        self.concurrency.saturating_sub(self.in_flight.slots(group) + known.held.len())
    }

    fn may_start(&self, group: GroupHash, known: &Known) -> bool {
        if known.is_stale || self.free(group, known) == 0 {
            return false;
        }
        match &known.oldest {
            _ if known.is_whole() || !self.is_for_oldest(group) => !known.rows.is_empty(),
            Oldest::Known(oldest) => oldest.is_some() || !known.rows.is_empty(),
            Oldest::Unknown | Oldest::Asked(_) => false,
        }
    }

    fn capacity(&self) -> usize {
        if self.mode == QueueMode::Custom { OFFER_MAX } else { ROWS_MAX }
    }

    /// Forgets groups of which nothing more is to be had now.
    fn let_go(&mut self, room: usize) {
        if !self.is_indexed {
            return;
        }
        let is_scanning = self.is_scanning();
        let needs_space = room > 0 && self.waiting() >= self.capacity();
        let is_crowded = self.groups.len() > UNREAD_MAX / 4;
        let mut gone = Vec::new();
        for (group, known) in &self.groups {
            if known.asked.is_some() || known.missed.is_some() {
                continue;
            }
            let is_full = self.free(*group, known) == 0;
            if !known.rows.is_empty() || matches!(known.oldest, Oldest::Asked(_)) {
                if needs_space && is_full {
                    gone.push((*group, true));
                }
            } else if known.is_whole() {
                gone.push((*group, !known.held.is_empty()));
            } else if is_full && (is_crowded || !known.held.is_empty()) {
                gone.push((*group, true));
            } else if is_scanning && known.has_yielded && self.mode != QueueMode::Custom {
                gone.push((*group, true));
                self.scan.is_again = true;
            }
        }
        for (group, is_shut) in gone {
            self.groups.remove(&group);
            if is_shut {
                self.shut.add(group);
            }
        }
    }

    /// What is to be read so that `room` calls may start.
    fn reads(&mut self, room: usize) -> Vec<Read> {
        let mut reads = Vec::new();
        if room == 0 {
            return reads;
        }
        for known in self.groups.values_mut() {
            if known.asked.is_none()
                && let Some(lowest) = known.missed.take()
            {
                known.has_new(self.mode, lowest);
            }
        }
        let is_scanning = self.is_scanning();
        if !is_scanning
            && self.news_asked.is_none()
            && let Some(lowest) = self.news.take()
        {
            let order = RowOrder::Forward { after: before(lowest).min(self.news_after) };
            let read = self.reads.open(order, UNREAD_MAX);
            self.news_asked = Some(read.number);
            reads.push(read);
        }
        let asked: usize = self.groups.values().filter_map(|known| known.asked).map(|asked| asked.1).sum();
        let mut space = self.capacity().saturating_sub(self.waiting() + asked);
        let share = (self.capacity() / self.groups.len().max(1)).max(1);
        let in_turn: Vec<GroupHash> = self
            .groups
            .range((Excluded(self.turn), Unbounded))
            .chain(self.groups.range(..=self.turn))
            .map(|(group, _)| *group)
            .collect();
        for group in in_turn {
            let known = &self.groups[&group];
            let wanted = self.wanted(group, known, share, is_scanning).min(space);
            let order = self.order(group, known.at);
            let is_from_start = known.at.is_none();
            let needs_oldest = self.needs_oldest(group, known);
            let Some(known) = self.groups.get_mut(&group) else { continue };
            if wanted > 0 {
                space -= wanted;
                let rows_max = match self.mode {
                    QueueMode::Latest => 1,
                    // Those in flight come along, and are passed over.
                    _ if is_from_start => wanted + self.in_flight.len(),
                    _ => wanted,
                };
                let read = self.reads.open(order, rows_max);
                known.asked = Some((read.number, wanted));
                reads.push(read);
            }
            if needs_oldest {
                let after = self.oldest_after.get(&group).copied().unwrap_or(FIRST);
                let order = RowOrder::GroupForward { group, after };
                let read = self.reads.open(order, ROWS_MAX + self.in_flight.len());
                known.oldest = Oldest::Asked(read.number);
                reads.push(read);
            }
        }
        let unread = self.groups.values().filter(|known| known.at.is_none() && !known.is_end).count();
        if let (Some(after), None) = (self.scan.at, self.scan.asked)
            && space > 0
            && unread < UNREAD_MAX
        {
            let read = self.reads.open(RowOrder::Groups { after }, space.min(UNREAD_MAX - unread));
            self.scan.asked = Some(read.number);
            reads.push(read);
        }
        reads
    }

    /// How many rows of a known group are to be read now.
    fn wanted(&self, group: GroupHash, known: &Known, share: usize, is_scanning: bool) -> usize {
        if known.asked.is_some() || (known.is_end && !known.is_stale) {
            return 0;
        }
        let free = self.free(group, known);
        let have = known.rows.len();
        match self.mode {
            QueueMode::Latest => usize::from(free > 0 && have == 0),
            QueueMode::Custom if free > 0 => OFFER_MAX,
            QueueMode::Custom => 0,
            _ if free == 0 && !known.held.is_empty() => 0,
            _ if known.is_stale && free == 0 && share < 4 => 0,
            _ if known.is_stale => share.max(free),
            // While the scan is under way, each group has one visit.
            _ if is_scanning && known.has_yielded && self.is_indexed => 0,
            _ if have < free || have < share / 4 => share.max(free).saturating_sub(have),
            _ => 0,
        }
    }

    fn needs_oldest(&self, group: GroupHash, known: &Known) -> bool {
        self.is_for_oldest(group)
            && !known.is_whole()
            && matches!(known.oldest, Oldest::Unknown)
            && self.free(group, known) > 0
    }

    fn order(&self, group: GroupHash, at: Option<(i32, QueueId)>) -> RowOrder {
        let after = at.map_or(FIRST, |at| at.1);
        let before = at.map_or(LAST, |at| at.1);
        match (self.mode, self.is_indexed) {
            (QueueMode::Fifo | QueueMode::Custom, false) => RowOrder::Forward { after },
            (QueueMode::Fifo | QueueMode::Custom, true) => RowOrder::GroupForward { group, after },
            (QueueMode::Lifo | QueueMode::Latest, false) => RowOrder::Backward { before },
            (QueueMode::Lifo | QueueMode::Latest, true) => RowOrder::GroupBackward { group, before },
            (QueueMode::Priority, _) => RowOrder::GroupPriority { group, after: at },
        }
    }

    /// A read was answered at that moment: its rows in the order that was asked for, and whether there were
    /// no more behind them. An answer that nobody waits for any more changes nothing.
    pub fn answer(&mut self, read: Read, rows: Vec<QueueRow>, is_end: bool, now: Timestamp) {
        let mut rows: Vec<Row> = rows.into_iter().map(|row| Row::read(row, now)).collect();
        for row in &mut rows {
            self.highest = self.highest.max(row.id());
            if !self.is_indexed {
                row.group = GroupHash::NONE;
            }
        }
        match read.order {
            RowOrder::Groups { after } => self.take_scan(read.number, after, rows, is_end, now),
            RowOrder::Forward { .. } if self.is_indexed => self.take_news(read.number, rows, is_end, now),
            RowOrder::GroupForward { group, .. } if self.mode == QueueMode::Priority => {
                self.take_oldest(group, read.number, rows, is_end, now);
            }
            RowOrder::GroupForward { group, .. }
            | RowOrder::GroupBackward { group, .. }
            | RowOrder::GroupPriority { group, .. } => self.take(group, read.number, rows, is_end, now),
            RowOrder::Forward { .. } | RowOrder::Backward { .. } => {
                self.take(GroupHash::NONE, read.number, rows, is_end, now);
            }
        }
        self.reads.close(read.number);
    }

    /// A read was not answered: the store is away. The next [`Queue::next`] asks for it again, so wait before it.
    pub fn unread(&mut self, read: Read) {
        self.reads.close(read.number);
        if self.scan.asked == Some(read.number) {
            self.scan.asked = None;
        }
        if self.news_asked == Some(read.number) {
            self.news_asked = None;
            if let RowOrder::Forward { after } = read.order {
                let lowest = QueueId(after.0.saturating_add(1));
                self.news = Some(self.news.map_or(lowest, |news| news.min(lowest)));
            }
        }
        for known in self.groups.values_mut() {
            if known.asked.is_some_and(|asked| asked.0 == read.number) {
                known.asked = None;
            }
            if matches!(known.oldest, Oldest::Asked(number) if number == read.number) {
                known.oldest = Oldest::Unknown;
            }
        }
    }

    fn take_scan(
        &mut self,
        number: u64,
        after: Option<GroupHash>,
        heads: Vec<Row>,
        is_end: bool,
        now: Timestamp,
    ) {
        if self.scan.asked != Some(number) {
            return;
        }
        self.scan.asked = None;
        for head in heads {
            let group = head.group;
            // Not if it was set back to the start meanwhile.
            if self.scan.at != Some(None) || after.is_none() {
                self.scan.at = Some(Some(group));
            }
            if self.groups.contains_key(&group) {
                continue;
            }
            if !self.in_flight.may_start(group, u32::try_from(self.concurrency).unwrap_or(u32::MAX)) {
                self.shut.add(group);
                continue;
            }
            self.shut.remove(group);
            let mut known = Known::default();
            let is_head_first = matches!(self.mode, QueueMode::Fifo | QueueMode::Custom);
            if is_head_first {
                known.asked = Some((number, 1));
            }
            self.groups.insert(group, known);
            if is_head_first {
                self.take(group, number, vec![head], false, now);
            }
        }
        if is_end {
            self.scan.at = None;
            if std::mem::take(&mut self.scan.is_again) {
                self.scan_from_start();
            }
        }
    }

    fn take_news(&mut self, number: u64, rows: Vec<Row>, is_end: bool, now: Timestamp) {
        if self.news_asked != Some(number) {
            return;
        }
        self.news_asked = None;
        self.news_after = rows.last().map_or(self.news_after, |row| row.id().max(self.news_after));
        let mut by_group: BTreeMap<GroupHash, Vec<Row>> = BTreeMap::new();
        for row in rows {
            if !self.in_flight.contains(row.id()) && self.reads.is_gone(number, row.id()).is_none() {
                by_group.entry(row.group).or_default().push(row);
            }
        }
        for (group, mut rows) in by_group {
            if self.groups.contains_key(&group) {
                self.has_new(group, rows[0].id());
                continue;
            }
            if self.is_scanning() {
                // The scan may not have come there yet, so it is not known to be clean.
                self.look_round_again();
                continue;
            }
            let is_shut = self.shut.contains(group);
            self.shut.remove(group);
            let mut known = Known::default();
            let is_forward = matches!(self.mode, QueueMode::Fifo | QueueMode::Custom);
            // Of a clean group that is all there is. What is read from the other end may not stop short.
            let is_all = !is_shut && (is_forward || is_end);
            if is_all {
                known.asked = Some((number, rows.len()));
            }
            self.groups.insert(group, known);
            if is_all {
                rows.sort_by_key(|row| policy::rank(self.mode, row.row.priority, row.id()));
                self.take(group, number, rows, is_end, now);
            }
        }
        if !is_end {
            self.look_round_again();
        }
    }

    fn take_oldest(&mut self, group: GroupHash, number: u64, rows: Vec<Row>, is_end: bool, now: Timestamp) {
        let Some(known) = self.groups.get_mut(&group) else { return };
        if !matches!(known.oldest, Oldest::Asked(asked) if asked == number) {
            return;
        }
        let last = rows.last().map(Row::id);
        let oldest = rows.into_iter().find(|row| {
            row.due <= now
                && !row.row.is_blocked
                && !self.in_flight.contains(row.id())
                && self.reads.is_gone(number, row.id()).is_none()
        });
        self.oldest_after.remove(&group);
        if oldest.is_none()
            && !is_end
            && self.oldest_after.len() < SHUT_MAX
            && let Some(last) = last
        {
            self.oldest_after.insert(group, last);
        }
        known.oldest = Oldest::Known(oldest.map(Box::new));
    }

    /// Rows of a group, in the order of the mode.
    fn take(&mut self, group: GroupHash, number: u64, rows: Vec<Row>, is_end: bool, now: Timestamp) {
        let space = self.capacity().saturating_sub(self.waiting());
        let Some(known) = self.groups.get_mut(&group) else { return };
        let Some((asked, _)) = known.asked else { return };
        if asked != number {
            return;
        }
        known.asked = None;
        known.is_stale = false;
        known.is_end = is_end;
        let mut space = space;
        for row in rows {
            if space == 0 {
                known.is_end = false;
                break;
            }
            let id = row.id();
            let left = self.reads.is_gone(number, id);
            if left == Some(false) && self.mode == QueueMode::Fifo {
                // It waits again and keeps a slot. Read on from before it.
                known.is_end = false;
                break;
            }
            known.at = Some((row.row.priority, id));
            let is_out = left.is_some() || self.in_flight.contains(id);
            if !is_out {
                known.held.remove(&id);
            }
            if is_out {
                // Started already, or not what the read shows any more.
            } else if row.row.is_blocked {
                if known.held.len() < ROWS_MAX {
                    known.held.insert(id);
                }
            } else if row.due > now {
                self.waits.add(group, row.due);
                if self.mode == QueueMode::Fifo && known.held.len() < ROWS_MAX {
                    known.held.insert(id);
                }
            } else if known.rows.insert(policy::rank(self.mode, row.row.priority, id), row).is_none() {
                space -= 1;
            }
            if self.mode == QueueMode::Latest {
                // Whatever became of the newest, those behind it are older.
                known.is_end = true;
                break;
            }
        }
    }

    /// Mode custom: what `select` is to be shown.
    fn offer(&mut self, now: Timestamp, room: usize, choice: &mut Choice) {
        if self.select.until.is_some_and(|until| until > now)
            || self.select.shown.is_some()
            || self.select.is_resting
        {
            return;
        }
        self.let_go(room);
        choice.reads = self.reads(room);
        let is_reading = self.scan.asked.is_some()
            || self.news_asked.is_some()
            || self.groups.values().any(|known| known.asked.is_some());
        if room == 0 || is_reading {
            return;
        }
        let mut shown = BTreeSet::new();
        for (group, known) in &self.groups {
            if self.free(*group, known) == 0 {
                continue;
            }
            for row in known.rows.values().take(OFFER_MAX - shown.len()) {
                shown.insert(row.id());
                choice.offer.push(row.row.clone());
            }
        }
        if !shown.is_empty() {
            self.select.shown = Some(shown);
        }
    }

    /// Mode custom: `select` answered with those ids. Returns the rows that start, in its order: those that
    /// still wait, as long as their groups and `room` have slots; they are in flight already. The others
    /// will be shown again.
    ///
    /// # Errors
    /// [`SelectFault`], for an answer that no right `select` gives; nothing starts. To be followed by
    /// [`Queue::select_failed`].
    pub fn selected(&mut self, ids: &[QueueId], room: usize) -> Result<Vec<QueueRow>, SelectFault> {
        let shown = self.select.shown.take().unwrap_or_default();
        policy::check_selection(&shown, ids)?;
        let mut room = room.min(self.instance_max.saturating_sub(self.in_flight.calls()));
        if ids.is_empty() {
            for known in self.groups.values_mut() {
                known.rows.retain(|_, row| !shown.contains(&row.id()));
            }
            let has_more = self.scan.at.is_some()
                || self.news.is_some()
                || self.groups.values().any(|known| !known.is_end || known.missed.is_some());
            self.select.has_advanced |= has_more;
            self.select.is_resting = !has_more;
            return Ok(Vec::new());
        }
        let mut started = Vec::new();
        for id in ids {
            if room == 0 {
                break;
            }
            let rank = policy::rank(self.mode, 0, *id);
            let group = self.groups.iter().find(|(_, known)| known.rows.contains_key(&rank)).map(|at| *at.0);
            let Some(group) = group else { continue };
            if self.free(group, &self.groups[&group]) == 0 {
                continue;
            }
            if let Some(row) = self.groups.get_mut(&group).and_then(|known| known.rows.remove(&rank)) {
                self.in_flight.started(*id, group);
                self.is_verified = false;
                started.push(row.row);
                room -= 1;
            }
        }
        if self.select.has_advanced {
            // What was passed over before is shown again.
            self.look_again();
        }
        Ok(started)
    }

    /// Mode custom: `select` threw, took too long, or answered nonsense. It is asked again then.
    pub fn select_failed(&mut self, until: Timestamp) {
        self.select.shown = None;
        self.select.until = Some(until);
    }

    /// Mode latest: how to read the rows that a row in flight stands for, from the newest on: those before
    /// it, or before the last one that the read before this one brought; [`policy::SUPERSEDED_MAX`] at a time, and
    /// [`policy::superseded`] says which of them it is. Not an answer for [`Queue::answer`]. `None`: it is not
    /// in flight.
    ///
    /// Its row goes last: as long as a read is not the end, what it brought is committed as superseded alone;
    /// else, after a crash, an older row would be the newest there is.
    #[must_use]
    pub fn older(&self, id: QueueId, last: Option<QueueId>) -> Option<RowOrder> {
        let group = self.in_flight.group(id)?;
        Some(self.order(group, Some((0, last.unwrap_or(id)))))
    }
}

impl Known {
    /// All its rows that are due are in `rows`, as far as is known.
    fn is_whole(&self) -> bool {
        self.is_end && !self.is_stale
    }

    fn has_new(&mut self, mode: QueueMode, lowest: QueueId) {
        match mode {
            QueueMode::Fifo | QueueMode::Custom => {
                if self.at.is_some_and(|at| at.1 >= lowest) {
                    self.at = Some((0, before(lowest)));
                }
            }
            QueueMode::Lifo | QueueMode::Latest | QueueMode::Priority => {
                self.at = None;
                self.is_stale = true;
                self.rows.clear();
            }
        }
        self.is_end = false;
    }
}

fn before(id: QueueId) -> QueueId {
    QueueId(id.0.saturating_sub(1))
}

#[cfg(test)]
mod tests;
