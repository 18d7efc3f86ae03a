//! A queue against a plain store: a map of rows that answers each read to the letter.

use std::time::Duration;

use evener_actor::id::{Group, Seq};
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
struct Stored {
    group: Option<Group>,
    priority: i32,
    due: Timestamp,
    is_blocked: bool,
    was_started: bool,
}

/// Rows, and whether there were no more.
type Answer = (Vec<QueueRow>, bool);

/// What a drain does, in a plain way, with a store beside it.
struct World {
    policy: QueuePolicy,
    is_indexed: bool,
    queue: Queue,
    rows: BTreeMap<QueueId, Stored>,
    next_id: i64,
    now: Timestamp,
    /// Under way, with their answers if the store has looked already.
    reads: Vec<(Read, Option<Answer>)>,
    running: Vec<QueueId>,
    /// Ended, not committed.
    ended: Vec<(QueueId, Ending, u64)>,
    /// All starts, in order.
    starts: Vec<i64>,
    offer: Vec<i64>,
    offers: usize,
    rows_read: usize,
    last: Choice,
}

fn policy(mode: QueueMode, concurrency: u32, instance_max: u32) -> QueuePolicy {
    QueuePolicy { mode, concurrency, instance_max, ..QueuePolicy::default() }
}

fn group(number: u32) -> Option<Group> {
    (number > 0).then(|| Group::new(format!("g{number}")).unwrap())
}

impl World {
    fn new(mode: QueueMode, concurrency: u32, instance_max: u32, is_indexed: bool) -> Self {
        let policy = policy(mode, concurrency, instance_max);
        Self {
            queue: Queue::new(&policy, is_indexed),
            policy,
            is_indexed,
            rows: BTreeMap::new(),
            next_id: 1,
            now: Timestamp(1_000_000),
            reads: Vec::new(),
            running: Vec::new(),
            ended: Vec::new(),
            starts: Vec::new(),
            offer: Vec::new(),
            offers: 0,
            rows_read: 0,
            last: Choice::default(),
        }
    }

    fn hash(&self, row: &Stored) -> GroupHash {
        match &row.group {
            Some(group) if self.is_indexed => GroupHash::of(group),
            _ => GroupHash::NONE,
        }
    }

    fn put(&mut self, group_number: u32, priority: i32) -> QueueId {
        let id = QueueId(self.next_id);
        self.next_id += 1;
        let row = Stored {
            group: group(group_number),
            priority,
            due: self.now,
            is_blocked: false,
            was_started: false,
        };
        self.rows.insert(id, row);
        id
    }

    fn append(&mut self, group_number: u32, priority: i32) -> QueueId {
        let id = self.put(group_number, priority);
        self.queue.wake(id);
        id
    }

    /// What the store answers.
    fn read(&mut self, order: RowOrder, rows_max: u32) -> (Vec<QueueRow>, bool) {
        let mut found: Vec<(QueueId, &Stored)> = self.rows.iter().map(|(id, row)| (*id, row)).collect();
        match order {
            RowOrder::Forward { after } => found.retain(|row| row.0 > after),
            RowOrder::Backward { before } => {
                found.retain(|row| row.0 < before);
                found.reverse();
            }
            RowOrder::GroupForward { group, after } => {
                found.retain(|row| self.hash(row.1) == group && row.0 > after);
            }
            RowOrder::GroupBackward { group, before } => {
                found.retain(|row| self.hash(row.1) == group && row.0 < before);
                found.reverse();
            }
            RowOrder::GroupPriority { group, after } => {
                found.sort_by_key(|row| (!i64::from(row.1.priority), row.0));
                found.retain(|row| {
                    let place = (!i64::from(row.1.priority), row.0);
                    self.hash(row.1) == group
                        && after.is_none_or(|(priority, id)| place > (!i64::from(priority), id))
                });
            }
            RowOrder::Groups { after } => {
                let mut heads: BTreeMap<GroupHash, (QueueId, &Stored)> = BTreeMap::new();
                for row in found {
                    let hash = self.hash(row.1);
                    if after.is_none_or(|after| hash > after) {
                        heads.entry(hash).or_insert(row);
                    }
                }
                found = heads.into_values().collect();
            }
        }
        if !self.is_indexed {
            assert!(matches!(order, RowOrder::Forward { .. } | RowOrder::Backward { .. }), "{order:?}");
        }
        let is_end = found.len() <= rows_max as usize;
        found.truncate(rows_max as usize);
        let rows: Vec<QueueRow> = found
            .into_iter()
            .map(|(id, row)| QueueRow {
                id,
                seq: Seq(id.0),
                stream: None,
                group: row.group.clone(),
                priority: row.priority,
                delay: row.due.since(self.now),
                attempts: 0,
                crashes: 0,
                origin: id,
                is_blocked: row.is_blocked,
                event_bytes: 0,
                event: None,
            })
            .collect();
        self.rows_read += rows.len();
        (rows, is_end)
    }

    fn answer_one(&mut self, which: usize) {
        if self.reads.is_empty() {
            return;
        }
        let (read, answer) = self.reads.remove(which % self.reads.len());
        let (rows, is_end) = answer.unwrap_or_else(|| self.read(read.order, read.rows_max));
        self.queue.answer(read, rows, is_end, self.now);
    }

    /// Asks once and does what it says, but for the reads.
    fn ask(&mut self) -> bool {
        let choice = self.queue.next(self.now, usize::MAX);
        assert!(self.queue.waiting() <= self.queue.capacity());
        for row in &choice.start {
            self.start(row);
        }
        if !choice.offer.is_empty() {
            assert!(choice.offer.len() <= OFFER_MAX);
            self.offers += 1;
            self.offer = choice.offer.iter().map(|row| row.id.0).collect();
        }
        for read in &choice.reads {
            // Some see the store as it is now, some as it will be when their answer comes.
            let is_early = read.number % 2 == 0;
            let answer = is_early.then(|| self.read(read.order, read.rows_max));
            self.reads.push((*read, answer));
        }
        let is_over = choice.start.is_empty() && choice.reads.is_empty();
        self.last = choice;
        is_over
    }

    fn start(&mut self, started: &QueueRow) {
        let id = started.id;
        assert!(!self.running.contains(&id), "{id} runs");
        let now = self.now;
        let row = self.rows.get_mut(&id).unwrap_or_else(|| panic!("{id} is gone"));
        assert!(!row.is_blocked && row.due <= now, "{id} may not start: {row:?}");
        row.was_started = true;
        self.running.push(id);
        self.starts.push(id.0);
        self.check_limits();
    }

    /// How many slots the rows of a group have by the words of the specification.
    fn slots(&self, hash: GroupHash) -> usize {
        self.rows
            .iter()
            .filter(|(id, row)| {
                let runs = self.running.contains(id);
                let is_done = self.ended.iter().any(|ended| ended.0 == **id && ended.1 == Ending::Through);
                let is_fifo = self.policy.mode == QueueMode::Fifo;
                self.hash(row) == hash
                    && (runs || (is_fifo && !is_done && row.was_started && row.due > self.now))
            })
            .count()
    }

    fn check_limits(&self) {
        assert!(self.running.len() <= self.policy.instance_max as usize);
        let hashes: BTreeSet<GroupHash> = self.running.iter().map(|id| self.hash(&self.rows[id])).collect();
        for hash in hashes {
            assert!(self.slots(hash) <= self.policy.concurrency as usize, "{hash:?}");
        }
    }

    /// Asks and answers reads until nothing more comes.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let is_over = self.ask();
            if is_over && self.reads.is_empty() {
                return;
            }
            self.answer_one(0);
        }
        panic!("it never settles: {:?}", self.queue);
    }

    fn end(&mut self, id: i64, ending: Ending, delay_ms: u64) {
        let id = QueueId(id);
        self.running.retain(|row| *row != id);
        self.queue.ended(id, ending);
        self.ended.push((id, ending, delay_ms));
    }

    fn commit(&mut self, which: usize) {
        if self.ended.is_empty() {
            return;
        }
        let (id, ending, delay_ms) = self.ended.remove(which % self.ended.len());
        let fate = match ending {
            Ending::Through => {
                self.rows.remove(&id);
                Fate::Gone
            }
            Ending::Retry => {
                let due = self.now.saturating_add(Duration::from_millis(delay_ms));
                self.rows.get_mut(&id).unwrap().due = due;
                Fate::Waits(due)
            }
            Ending::Blocked => {
                self.rows.get_mut(&id).unwrap().is_blocked = true;
                Fate::Blocked
            }
        };
        self.queue.committed(id, fate);
    }

    fn finish(&mut self, id: i64) {
        self.end(id, Ending::Through, 0);
        self.commit(self.ended.len() - 1);
    }

    fn fail(&mut self, id: i64, delay_ms: u64) {
        self.end(id, Ending::Retry, delay_ms);
        self.commit(self.ended.len() - 1);
    }

    /// Runs everything there is, the first started first, each call at once.
    fn run(&mut self) -> Vec<i64> {
        let from = self.starts.len();
        self.settle();
        while let Some(id) = self.running.first().copied() {
            self.finish(id.0);
            self.settle();
        }
        self.starts[from..].to_vec()
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now = self.now.saturating_add(Duration::from_millis(ms));
    }

    fn select(&mut self, ids: &[i64]) -> Result<(), SelectFault> {
        let ids: Vec<QueueId> = ids.iter().copied().map(QueueId).collect();
        for row in self.queue.selected(&ids, usize::MAX)? {
            self.start(&row);
        }
        self.offer.clear();
        self.settle();
        Ok(())
    }
}

const BOTH: [bool; 2] = [false, true];

#[test]
fn fifo_starts_in_order_one_at_a_time() {
    for is_indexed in BOTH {
        let mut world = World::new(QueueMode::Fifo, 1, 64, is_indexed);
        for _ in 0..200 {
            world.append(0, 0);
        }
        world.settle();
        assert_eq!(world.starts, [1]);
        assert_eq!(world.run(), (2..=200).collect::<Vec<i64>>());
        assert!(world.last.is_dry && world.last.wait.is_none());
    }
}

/// Run ahead: the slot is free when the code has ended, the row is known until its commit is.
#[test]
fn the_next_starts_before_its_predecessor_is_committed() {
    for is_indexed in BOTH {
        let mut world = World::new(QueueMode::Fifo, 1, 64, is_indexed);
        for _ in 0..100 {
            world.append(0, 0);
        }
        world.settle();
        for id in 1..=64 {
            world.end(id, Ending::Through, 0);
            world.settle();
        }
        assert_eq!(world.starts, (1..=65).collect::<Vec<i64>>());
        world.queue.look();
        world.settle();
        assert_eq!(world.running, [QueueId(65)], "what is not committed is read again and not started again");
    }
}

#[test]
fn a_fifo_row_in_back_off_keeps_its_place() {
    for is_indexed in BOTH {
        let mut world = World::new(QueueMode::Fifo, 1, 64, is_indexed);
        for _ in 0..3 {
            world.append(1, 0);
        }
        world.append(2, 0);
        world.settle();
        world.end(1, Ending::Retry, 500);
        world.settle();
        assert!(!world.starts.contains(&2), "its retry is not committed, its slot is its own");
        world.commit(0);
        world.settle();
        let others: &[i64] = if is_indexed { &[1, 4] } else { &[1] };
        let mut starts = world.starts.clone();
        starts.sort_unstable();
        assert_eq!(starts, others, "other groups go on");
        assert_eq!(world.last.wait, Some(Timestamp(1_000_500)));
        world.pass_ms(500);
        world.settle();
        assert_eq!(world.starts.last(), Some(&1));
        world.finish(1);
        world.settle();
        assert_eq!(world.starts.last(), Some(&2));
    }
}

/// Also for a new owner, who knows of the back-off from the rows alone.
#[test]
fn a_new_owner_sees_the_slots_that_fifo_rows_keep() {
    for is_indexed in BOTH {
        let mut world = World::new(QueueMode::Fifo, 2, 64, is_indexed);
        for _ in 0..5 {
            world.put(1, 0);
        }
        for (id, due) in [(1, 1_000_900), (2, 1_000_300)] {
            let row = world.rows.get_mut(&QueueId(id)).unwrap();
            (row.due, row.was_started) = (Timestamp(due), true);
        }
        world.settle();
        assert!(world.starts.is_empty(), "both slots are kept");
        assert_eq!(world.last.wait, Some(Timestamp(1_000_300)));
        world.pass_ms(300);
        world.settle();
        assert_eq!(world.starts, [2]);
        world.finish(2);
        world.settle();
        assert_eq!(world.starts, [2, 3], "one slot is still kept by row 1");
    }
}

#[test]
fn a_blocked_row_keeps_its_slot_in_each_mode() {
    for mode in [QueueMode::Fifo, QueueMode::Lifo, QueueMode::Priority, QueueMode::Latest] {
        let mut world = World::new(mode, 1, 64, true);
        world.append(1, 0);
        world.append(2, 0);
        world.settle();
        world.end(1, Ending::Blocked, 0);
        world.commit(0);
        world.append(1, 9);
        world.finish(2);
        world.settle();
        assert_eq!(world.running, [], "{mode:?}");
        assert!(world.last.is_dry && world.last.wait.is_none(), "{mode:?}: {:?}", world.last);
    }
}

#[test]
fn other_modes_give_the_slot_back_in_back_off() {
    for mode in [QueueMode::Lifo, QueueMode::Priority, QueueMode::Latest] {
        let mut world = World::new(mode, 1, 64, true);
        world.append(1, 5);
        world.settle();
        world.end(1, Ending::Retry, 500);
        world.append(1, 3);
        world.settle();
        assert_eq!(world.starts, [1, 2], "{mode:?}: at once, not when the retry is committed");
        world.commit(0);
        world.settle();
        assert_eq!(world.running, [QueueId(2)]);
    }
}

#[test]
fn lifo_takes_the_newest() {
    for is_indexed in BOTH {
        let mut world = World::new(QueueMode::Lifo, 1, 64, is_indexed);
        for _ in 0..200 {
            world.put(0, 0);
        }
        world.settle();
        world.append(0, 0);
        world.append(0, 0);
        world.settle();
        world.finish(200);
        assert_eq!(world.run()[..4], [202, 201, 199, 198]);
        assert_eq!(world.starts.len(), 202);
        assert_eq!(world.starts.last(), Some(&1));
    }
}

/// FC-043: over the whole range of the type, equal ones by place.
#[test]
fn priority_takes_the_greatest_and_of_equals_the_first() {
    let mut world = World::new(QueueMode::Priority, 1, 64, true);
    for priority in [0, i32::MIN, 9, i32::MAX, 9, i32::MIN] {
        world.put(0, priority);
    }
    assert_eq!(world.run(), [4, 3, 5, 1, 2, 6]);
    let mut world = World::new(QueueMode::Priority, 1, 64, true);
    for _ in 0..1_000 {
        world.put(0, 7);
    }
    assert_eq!(world.run(), (1..=1_000).collect::<Vec<i64>>());
}

/// FC-043: urgent rows at capacity, and one that is not.
#[test]
fn a_row_without_urgency_has_its_share() {
    for urgent_groups in [1, 3] {
        let mut world = World::new(QueueMode::Priority, 1, 64, true);
        let patient: Vec<QueueId> = (0..3).map(|_| world.put(1, 0)).collect();
        for _ in 0..100 {
            for number in 1..=urgent_groups {
                world.put(number, 9);
            }
        }
        world.settle();
        let mut started = 0;
        for _ in 0..3 * 17 {
            // Each that ends is replaced at once, so there is always an urgent one.
            for id in world.running.clone() {
                let group_of = world.rows[&id].group.clone();
                world.finish(id.0);
                let number = (1..=urgent_groups).find(|number| group(*number) == group_of).unwrap();
                world.append(number, 9);
            }
            world.settle();
            started += 1;
        }
        assert_eq!(started, 51);
        assert!(patient.iter().all(|id| world.starts.contains(&id.0)), "{urgent_groups}: {:?}", world.starts);
    }
}

/// The oldest that is due, also when more rows than one read brings are in back-off before it.
#[test]
fn rows_in_back_off_do_not_hide_the_oldest_that_is_due() {
    let mut world = World::new(QueueMode::Priority, 1, 64, true);
    for _ in 0..300 {
        let id = world.put(0, 0);
        world.rows.get_mut(&id).unwrap().due = Timestamp(i64::MAX);
    }
    let patient = world.put(0, 1);
    for _ in 0..100 {
        world.put(0, 9);
    }
    world.settle();
    let mut starts = 0;
    while !world.starts.contains(&patient.0) {
        let id = world.running[0];
        world.finish(id.0);
        world.append(0, 9);
        world.settle();
        starts += 1;
        assert!(starts <= 17 * 8, "five pages of rows in back-off, then it");
    }
}

#[test]
fn latest_takes_the_newest_and_stands_for_the_older() {
    for is_indexed in BOTH {
        let mut world = World::new(QueueMode::Latest, 1, 64, is_indexed);
        for _ in 0..5 {
            world.put(0, 0);
        }
        world.settle();
        assert_eq!(world.starts, [5]);
        world.append(0, 0);
        world.append(0, 0);
        world.settle();
        assert_eq!(world.starts, [5], "a running call is not interrupted");
        world.rows.get_mut(&QueueId(2)).unwrap().is_blocked = true;
        let order = world.queue.older(QueueId(5), None).unwrap();
        let (rows, is_end) = world.read(order, policy::SUPERSEDED_MAX);
        assert!(is_end);
        let older = policy::superseded(QueueId(5), &rows, world.queue.in_flight());
        assert_eq!(older, [QueueId(4), QueueId(3), QueueId(1)], "not the blocked one");
        for id in older {
            world.rows.remove(&id);
        }
        world.finish(5);
        world.settle();
        assert_eq!(world.starts, [5, 7]);
    }
}

#[test]
fn latest_lets_a_newer_one_pass_one_in_back_off() {
    let mut world = World::new(QueueMode::Latest, 1, 64, true);
    world.append(0, 0);
    world.settle();
    world.fail(1, 1_000);
    world.settle();
    assert_eq!((world.starts.as_slice(), world.last.wait), (&[1][..], Some(Timestamp(1_001_000))));
    world.append(0, 0);
    world.settle();
    assert_eq!(world.starts, [1, 2]);
    let order = world.queue.older(QueueId(2), None).unwrap();
    let (rows, _) = world.read(order, policy::SUPERSEDED_MAX);
    assert_eq!(policy::superseded(QueueId(2), &rows, world.queue.in_flight()), [QueueId(1)]);
}

#[test]
fn latest_does_not_start_an_older_one_while_the_newest_waits() {
    let mut world = World::new(QueueMode::Latest, 2, 64, true);
    world.put(0, 0);
    let newest = world.put(0, 0);
    world.rows.get_mut(&newest).unwrap().due = Timestamp(1_000_100);
    world.settle();
    assert!(world.starts.is_empty());
    world.pass_ms(100);
    world.settle();
    assert_eq!(world.starts, [2]);
}

#[test]
fn latest_with_room_starts_beside_a_running_call_which_is_outrun() {
    let mut world = World::new(QueueMode::Latest, 2, 64, true);
    world.append(0, 0);
    world.settle();
    world.append(0, 0);
    world.settle();
    assert_eq!(world.starts, [1, 2]);
    assert!(world.queue.in_flight().is_outrun(QueueId(1)), "if it fails it is superseded, not retried");
    assert!(!world.queue.in_flight().is_outrun(QueueId(2)));
}

#[test]
fn groups_share_the_instance_in_turn() {
    let mut world = World::new(QueueMode::Fifo, 1, 4, true);
    for _ in 0..8 {
        for number in 1..=300 {
            world.put(number, 0);
        }
    }
    let order = world.run();
    assert_eq!(order.len(), 2_400);
    // Between two starts of a group lie starts of nearly all others: a busy one keeps nobody away.
    let mut last_start: BTreeMap<i64, usize> = BTreeMap::new();
    for (place, id) in order.iter().enumerate() {
        let number = (id - 1) % 300;
        let before = last_start.insert(number, place).unwrap_or(0);
        assert!(place - before <= 600, "group {number} waited for {} starts", place - before);
    }
}

#[test]
fn rows_of_full_groups_are_not_read_through() {
    for mode in [QueueMode::Fifo, QueueMode::Lifo, QueueMode::Priority, QueueMode::Custom] {
        let mut world = World::new(mode, 1, 64, true);
        for number in 1..=5 {
            for _ in 0..5_000 {
                world.put(number, 0);
            }
        }
        world.settle();
        if mode == QueueMode::Custom {
            let first: Vec<i64> = (0..5).map(|number| number * 5_000 + 1).collect();
            let shown: Vec<i64> = first.into_iter().filter(|id| world.offer.contains(id)).collect();
            world.select(&shown).unwrap();
        }
        world.rows_read = 0;
        let late = world.append(6, 0);
        world.settle();
        assert!(world.starts.contains(&late.0) || world.offer.contains(&late.0), "{mode:?}");
        assert!(world.rows_read <= 2_000, "{mode:?}: {} rows were read", world.rows_read);
    }
}

#[test]
fn a_full_instance_reads_nothing() {
    let mut world = World::new(QueueMode::Fifo, 10, 2, true);
    for number in 1..=10 {
        world.put(number, 0);
    }
    world.settle();
    assert_eq!(world.starts.len(), 2);
    world.rows_read = 0;
    world.append(3, 0);
    world.settle();
    assert_eq!((world.starts.len(), world.rows_read), (2, 0));
}

#[test]
fn a_discarded_attempt_starts_again_in_its_place() {
    for is_indexed in BOTH {
        let mut world = World::new(QueueMode::Fifo, 1, 64, is_indexed);
        for _ in 0..10 {
            world.append(1, 0);
        }
        world.settle();
        for id in 1..=3 {
            world.end(id, Ending::Through, 0);
            world.settle();
        }
        // The commit of 1 is refused: 1 to 3 and the running 4 were built on nothing.
        world.ended.clear();
        world.running.clear();
        for id in [4, 2, 1, 3] {
            world.queue.returned(QueueId(id));
        }
        assert_eq!(world.run(), (1..=10).collect::<Vec<i64>>());
    }
}

#[test]
fn a_row_that_is_seen_late_is_not_lost() {
    for mode in [QueueMode::Fifo, QueueMode::Lifo] {
        for is_indexed in BOTH {
            let mut world = World::new(mode, 1, 64, is_indexed);
            for _ in 0..3 {
                world.append(1, 0);
            }
            let hidden = world.rows.remove(&QueueId(2)).unwrap();
            world.settle();
            world.rows.insert(QueueId(2), hidden);
            world.queue.wake(QueueId(2));
            world.run();
            let mut starts = world.starts.clone();
            starts.sort_unstable();
            assert_eq!(starts, [1, 2, 3]);
        }
    }
}

#[test]
fn a_lost_wake_costs_no_more_than_the_slow_look() {
    let mut world = World::new(QueueMode::Fifo, 1, 64, true);
    world.settle();
    world.put(1, 0);
    world.settle();
    assert!(world.starts.is_empty());
    world.queue.look();
    world.settle();
    assert_eq!(world.starts, [1]);
}

#[test]
fn it_is_dry_only_after_a_look_from_the_start() {
    for is_indexed in BOTH {
        let mut world = World::new(QueueMode::Fifo, 1, 64, is_indexed);
        world.append(0, 0);
        world.settle();
        // Nobody said that there is one more.
        world.put(0, 0);
        world.finish(1);
        world.settle();
        assert_eq!(world.starts, [1, 2]);
        world.finish(2);
        world.settle();
        assert!(world.last.is_dry);
    }
}

#[test]
fn an_unanswered_read_is_asked_for_again() {
    for (mode, is_indexed) in [
        (QueueMode::Fifo, false),
        (QueueMode::Fifo, true),
        (QueueMode::Priority, true),
        (QueueMode::Custom, true),
    ] {
        let mut world = World::new(mode, 1, 64, is_indexed);
        for _ in 0..100 {
            world.append(1, 0);
        }
        for turn in 0.. {
            let is_over = world.ask();
            if is_over && world.reads.is_empty() {
                break;
            }
            if turn % 2 == 0 {
                for (read, _) in world.reads.split_off(0) {
                    world.queue.unread(read);
                }
            } else {
                world.answer_one(0);
            }
        }
        assert!(!world.starts.is_empty() || !world.offer.is_empty(), "{mode:?}");
    }
}

#[test]
fn more_fifo_rows_in_back_off_than_a_window_holds_fill_the_group() {
    let mut world = World::new(QueueMode::Fifo, 1_000, 1_000, false);
    for _ in 0..200 {
        world.put(0, 0);
    }
    world.settle();
    assert_eq!(world.starts.len(), 200);
    for id in 1..=100 {
        world.fail(id, 1_000);
    }
    world.append(0, 0);
    world.settle();
    assert!(!world.starts.contains(&201));
    world.pass_ms(1_000);
    world.settle();
    assert_eq!(world.starts.len(), 301, "all of them again, and the new one");
}

#[test]
fn custom_starts_what_select_says_in_its_order() {
    for is_indexed in BOTH {
        let mut world = World::new(QueueMode::Custom, 2, 64, is_indexed);
        for _ in 0..4 {
            world.append(0, 0);
        }
        world.settle();
        assert_eq!(world.offer, [1, 2, 3, 4]);
        world.select(&[3, 1, 2]).unwrap();
        assert_eq!(world.starts, [3, 1], "never more than slots are free");
        assert!(world.offer.is_empty(), "no slot, no question");
        world.finish(3);
        world.settle();
        assert_eq!(world.offer, [2, 4]);
    }
}

#[test]
fn custom_offers_the_next_ones_and_rests_after_a_full_round() {
    for is_indexed in BOTH {
        let mut world = World::new(QueueMode::Custom, 1, 64, is_indexed);
        for _ in 0..600 {
            world.put(0, 0);
        }
        world.settle();
        let mut seen = BTreeSet::new();
        for _ in 0..3 {
            assert!(!world.offer.is_empty());
            seen.extend(world.offer.iter().copied());
            world.select(&[]).unwrap();
        }
        assert_eq!(seen.len(), 600);
        assert!(world.offer.is_empty() && world.last.is_dry, "it rests: {:?}", world.last);
        let offers = world.offers;
        world.settle();
        assert_eq!(world.offers, offers);
        world.append(0, 0);
        world.settle();
        assert_eq!(world.offer[0], 1, "a new row: a new round");
        world.select(&[1]).unwrap();
        world.finish(1);
        world.settle();
        assert_eq!(world.offer[0], 2, "an ended call: a new question");
    }
}

#[test]
fn custom_asks_again_when_what_it_chose_is_gone() {
    let mut world = World::new(QueueMode::Custom, 1, 64, false);
    world.append(0, 0);
    world.append(0, 0);
    world.settle();
    world.rows.remove(&QueueId(1));
    world.queue.look();
    world.select(&[1]).unwrap();
    assert_eq!((world.starts.len(), world.offer.as_slice()), (0, &[2][..]));
}

/// FC-045.
#[test]
fn nonsense_from_select_starts_nothing_and_backs_off() {
    let mut world = World::new(QueueMode::Custom, 3, 64, true);
    for _ in 0..3 {
        world.append(0, 0);
    }
    world.settle();
    let flood: Vec<i64> = (1..=10_000).collect();
    for (answer, fault) in [
        (&[1, 99][..], SelectFault::NotShown(QueueId(99))),
        (&[1, 1], SelectFault::Twice(QueueId(1))),
        (&flood, SelectFault::TooMany { ids: 10_000, shown: 3 }),
    ] {
        assert_eq!(world.select(answer), Err(fault));
        let until = world.now.saturating_add(Duration::from_secs(1));
        world.queue.select_failed(until);
        world.settle();
        assert_eq!((world.starts.len(), world.last.wait), (0, Some(until)));
        world.offer.clear();
        world.pass_ms(1_000);
        world.settle();
        assert_eq!(world.offer, [1, 2, 3]);
    }
    assert_eq!(world.select(&[2]), Ok(()));
    assert_eq!(world.starts, [2]);
}

#[derive(Debug, Clone)]
enum Act {
    Append { group: u32, priority: i32, is_told: bool },
    Ask,
    Answer(usize),
    End { which: usize, how: u8, delay_ms: u64 },
    Commit,
    Return,
    Pass(u64),
    Look,
    Lose(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..6_u32, -3..3_i32, prop::bool::weighted(0.9))
            .prop_map(|(group, priority, is_told)| Act::Append { group, priority, is_told }),
        6 => Just(Act::Ask),
        6 => any::<usize>().prop_map(Act::Answer),
        5 => (any::<usize>(), 0..10_u8, 0..300_u64)
            .prop_map(|(which, how, delay_ms)| Act::End { which, how, delay_ms }),
        4 => Just(Act::Commit),
        1 => Just(Act::Return),
        2 => (1..200_u64).prop_map(Act::Pass),
        1 => Just(Act::Look),
        1 => any::<usize>().prop_map(Act::Lose),
    ]
}

impl World {
    fn act(&mut self, act: Act, may_block: bool) {
        match act {
            Act::Append { group, priority, is_told } => {
                let id = self.put(group, priority);
                if is_told {
                    self.queue.wake(id);
                }
            }
            Act::Ask => {
                self.ask();
                self.choose();
            }
            Act::Answer(which) => self.answer_one(which),
            Act::End { which, how, delay_ms } => {
                if !self.running.is_empty() {
                    let id = self.running[which % self.running.len()].0;
                    let ending = match how {
                        0..=2 => Ending::Retry,
                        3 if may_block => Ending::Blocked,
                        _ => Ending::Through,
                    };
                    self.end(id, ending, delay_ms);
                }
            }
            Act::Commit => self.commit(0),
            Act::Return => {
                // Everything that is not committed is discarded.
                for id in self.running.split_off(0) {
                    self.queue.returned(id);
                }
                for (id, ..) in self.ended.split_off(0) {
                    self.queue.returned(id);
                }
            }
            Act::Pass(ms) => self.pass_ms(ms),
            Act::Look => self.queue.look(),
            Act::Lose(which) => {
                if !self.reads.is_empty() {
                    let (read, _) = self.reads.remove(which % self.reads.len());
                    self.queue.unread(read);
                }
            }
        }
    }

    /// A `select` that takes every second row that it is shown, or none.
    fn choose(&mut self) {
        if self.offer.is_empty() {
            return;
        }
        let ids: Vec<QueueId> = self.offer.split_off(0).into_iter().step_by(2).map(QueueId).collect();
        let ids = if self.offers % 5 == 4 { Vec::new() } else { ids };
        for row in self.queue.selected(&ids, usize::MAX).unwrap() {
            self.start(&row);
        }
    }

    /// Nothing may start any more, by the words of the specification.
    fn check_nothing_waits(&self) {
        for (id, row) in &self.rows {
            let is_startable = !row.is_blocked
                && row.due <= self.now
                && !self.running.contains(id)
                && self.ended.is_empty()
                && self.running.len() < self.policy.instance_max as usize
                && self.slots(self.hash(row)) < self.policy.concurrency as usize;
            assert!(!is_startable, "{id} could start: {row:?}\n{:?}", self.queue);
        }
    }
}

fn modes() -> impl Strategy<Value = (QueueMode, bool)> {
    prop_oneof![
        3 => Just((QueueMode::Fifo, true)),
        2 => Just((QueueMode::Fifo, false)),
        1 => Just((QueueMode::Lifo, true)),
        1 => Just((QueueMode::Lifo, false)),
        2 => Just((QueueMode::Priority, true)),
        1 => Just((QueueMode::Custom, true)),
        1 => Just((QueueMode::Custom, false)),
    ]
}

proptest! {
    /// Whatever comes in whatever order: limits hold at each start (`World::start`), nothing is started
    /// twice, fifo keeps the order of first starts, at rest nothing that may start waits, and in the end
    /// every row has run.
    #[test]
    fn every_row_runs_within_the_limits_and_in_order(
        (mode, is_indexed) in modes(),
        concurrency in 1..4_u32,
        instance_max in 1..6_u32,
        backlog in 0..150_u32,
        acts in prop::collection::vec(act(), 0..300),
    ) {
        let mut world = World::new(mode, concurrency, instance_max, is_indexed);
        for number in 0..backlog {
            world.put(number % 7, (number % 5) as i32);
        }
        for act in acts {
            world.act(act, false);
        }
        // In case a wake was lost.
        world.queue.look();
        let mut rounds = 0;
        while !world.rows.is_empty() {
            rounds += 1;
            prop_assert!(rounds < 5_000, "rows never run: {:?}\n{:?}", world.rows, world.queue);
            world.settle();
            while !world.offer.is_empty() {
                world.choose();
                world.settle();
            }
            if mode != QueueMode::Custom {
                world.check_nothing_waits();
            }
            if let Some(id) = world.running.first().copied() {
                world.finish(id.0);
            } else if !world.ended.is_empty() {
                world.commit(0);
            } else {
                world.pass_ms(50);
                // Who passed over all rows waits for the slow look.
                if mode == QueueMode::Custom {
                    world.queue.look();
                }
            }
        }
        world.settle();
        prop_assert!(world.last.is_dry && world.queue.in_flight().is_empty());
    }

    /// First starts of each group go by place, also of rows whose wake was lost.
    #[test]
    fn fifo_keeps_the_order_of_first_starts(
        is_indexed: bool,
        concurrency in 1..4_u32,
        acts in prop::collection::vec(act(), 0..400),
    ) {
        let mut world = World::new(QueueMode::Fifo, concurrency, 64, is_indexed);
        for act in acts {
            world.act(act, true);
        }
        let mut firsts: BTreeMap<GroupHash, i64> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let groups: BTreeMap<i64, GroupHash> =
            world.rows.iter().map(|(id, row)| (id.0, world.hash(row))).collect();
        for id in &world.starts {
            // Rows that are gone by now were there before those that are left.
            let Some(group) = groups.get(id) else { continue };
            if seen.insert(*id) {
                let before = firsts.insert(*group, *id).unwrap_or(0);
                prop_assert!(before < *id, "{id} after {before}");
            }
        }
        world.check_limits();
    }

    /// latest: of each group the newest starts last, and a start is always newer than those before it that
    /// did not fail.
    #[test]
    fn latest_never_goes_back(is_indexed: bool, appends in prop::collection::vec((0..4_u32, any::<bool>()), 1..80)) {
        let mut world = World::new(QueueMode::Latest, 1, 64, is_indexed);
        let mut last: BTreeMap<GroupHash, i64> = BTreeMap::new();
        let mut newest: BTreeMap<GroupHash, i64> = BTreeMap::new();
        for (group, ends_one) in appends {
            let id = world.append(group, 0);
            newest.insert(world.hash(&world.rows[&id]), id.0);
            world.settle();
            if ends_one && let Some(id) = world.running.first().copied() {
                end_latest(&mut world, id, &mut last)?;
            }
        }
        world.settle();
        while let Some(id) = world.running.first().copied() {
            end_latest(&mut world, id, &mut last)?;
            world.settle();
        }
        prop_assert_eq!(last, newest);
        prop_assert!(world.rows.is_empty() && world.last.is_dry);
    }
}

fn end_latest(
    world: &mut World,
    id: QueueId,
    last: &mut BTreeMap<GroupHash, i64>,
) -> Result<(), TestCaseError> {
    let hash = world.hash(&world.rows[&id]);
    let before = last.insert(hash, id.0).unwrap_or(0);
    prop_assert!(before < id.0);
    let order = world.queue.older(id, None).unwrap();
    let (rows, is_end) = world.read(order, policy::SUPERSEDED_MAX);
    prop_assert!(is_end);
    for older in policy::superseded(id, &rows, world.queue.in_flight()) {
        world.rows.remove(&older);
    }
    world.finish(id.0);
    Ok(())
}
