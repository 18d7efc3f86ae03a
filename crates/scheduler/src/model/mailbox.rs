//! One process as the models see it: its slot, its message cells, its place in a run queue, and turns
//! like those of a worker (`Worker::run`), which cannot run under loom. All that moves the word and the
//! messages is production code.

use std::ptr;

use crate::process::event_queue::{Cells, turn_round};
use crate::process::slot::{After, Bind, Gate, Refused, Slot, Wait, Word};
use crate::queues::testing::Slots;
use crate::queues::{Item, Links};
use crate::sync::{Acquire, AtomicU32, Relaxed, Release};

/// Message cells 1 to `count`, each with a content that only its holder touches.
pub(super) struct Mail {
    cells: Slots,
    depths: Vec<AtomicU32>,
}

impl Mail {
    fn new(count: u32) -> Self {
        Self { cells: Slots::new(count), depths: (0..=count).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Writes a message. The caller holds the cell.
    pub(super) fn write(&self, cell: u32) -> u32 {
        self.cells.put(cell)
    }

    /// Takes a message out of a cell that the caller holds.
    pub(super) fn read(&self, cell: u32) {
        self.cells.take(cell);
    }

    /// Whether every message was taken by somebody. Only when all threads have ended.
    pub(super) fn assert_all_read(&self) {
        self.cells.assert_all_taken();
    }
}

impl Cells for Mail {
    fn next(&self, cell: u32) -> &AtomicU32 {
        Links::next(&self.cells, cell)
    }
    fn depth(&self, cell: u32) -> &AtomicU32 {
        &self.depths[cell as usize]
    }
}

/// What a turn does in the end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Wait,
    End,
}

/// The process.
pub(super) struct Process {
    pub(super) slot: Slot,
    pub(super) mail: Mail,
    /// Its place in a run queue: 1 while it is in it. One read-modify-write each way, so that this queue
    /// adds no more order than any of the real ones does.
    queue: AtomicU32,
    /// The narrow sizes of this model.
    turn_round_max: u32,
    events_max: usize,
    /// A fault for a negative control: turns take from the word though they have older messages.
    takes_always: std::sync::atomic::AtomicBool,
    /// For the oracle, unseen by loom: what turns delivered, and what ends dropped.
    delivered: std::sync::Mutex<Vec<Item>>,
    dropped: std::sync::Mutex<Vec<Item>>,
    ends: std::sync::atomic::AtomicU32,
}

impl Process {
    pub(super) fn new(messages: u32) -> Self {
        Self::with_sizes(messages, u32::MAX, usize::MAX)
    }

    pub(super) fn with_sizes(messages: u32, turn_round_max: u32, events_max: usize) -> Self {
        Self {
            slot: Slot::new(),
            mail: Mail::new(messages),
            queue: AtomicU32::new(0),
            turn_round_max,
            events_max,
            takes_always: std::sync::atomic::AtomicBool::new(false),
            delivered: std::sync::Mutex::default(),
            dropped: std::sync::Mutex::default(),
            ends: std::sync::atomic::AtomicU32::new(0),
        }
    }

    /// A new life in the `FREE` slot, waiting or `READY` and queued. Gives its first generation.
    pub(super) fn begin(&self, waiting: Option<Wait>) -> u32 {
        let generation = self.slot.begin();
        self.slot.publish(generation, waiting);
        if waiting.is_none() {
            self.queue();
        }
        generation
    }

    /// A new life that this thread runs at once. Gives its first generation.
    pub(super) fn begin_running(&self) -> u32 {
        let generation = self.slot.begin();
        self.slot.publish_held(generation);
        generation
    }

    /// Puts the process into the run queue.
    pub(super) fn queue(&self) {
        // Release: pairs with the swap in `take`, as in every run queue.
        assert_eq!(self.queue.fetch_add(1, Release), 0, "the process was queued twice");
    }

    /// Takes the process out of the run queue, if it is there.
    pub(super) fn take(&self) -> bool {
        self.queue.swap(0, Acquire) == 1
    }

    pub(super) fn follow(&self, after: After) {
        if after == After::Queue {
            self.queue();
        }
    }

    /// Sends a message; a refused one is the sender's again.
    pub(super) fn send(&self, bind: Bind, cell: u32) -> Result<(), Refused> {
        self.mail.write(cell);
        match self.slot.push(&self.mail, bind, cell, Gate::Closed) {
            Ok(after) => {
                self.follow(after);
                Ok(())
            }
            Err(refused) => {
                self.mail.read(cell);
                Err(refused)
            }
        }
    }

    pub(super) fn wake(&self, bind: Bind) -> Result<(), Refused> {
        self.slot.wake(bind).map(|after| self.follow(after))
    }

    pub(super) fn kill(&self, bind: Bind) -> Result<(), Refused> {
        self.slot.kill(bind).map(|after| self.follow(after))
    }

    /// Looks into the run queue and gives the process a turn if it is there.
    pub(super) fn turn(&self) -> bool {
        self.turn_with(|| Then::Wait)
    }

    /// As [`Self::turn`], with a step.
    pub(super) fn turn_with(&self, step: impl FnOnce() -> Then) -> bool {
        if !self.take() {
            return false;
        }
        // As a worker does, before the claim: what the last runner left came along with the queue.
        let inbox = self.slot.inbox.load(Relaxed);
        let rest = self.rest();
        let keep = (inbox != 0 || rest != 0) && !self.takes_always.load(std::sync::atomic::Ordering::Relaxed);
        let word = self.slot.claim(keep);
        assert!(word.is_ready(), "claimed a process that is {word:?}");
        let head = if keep { 0 } else { word.head() };
        if word.is_killed() {
            self.end([inbox, rest, head]);
            return true;
        }
        self.touch_body();
        let (rest, mut inbox) =
            turn_round(&self.mail, if rest != 0 { rest } else { head }, inbox, self.turn_round_max);
        self.slot.inbox.store(inbox, Relaxed);
        self.set_rest(rest);
        if rest != 0 {
            self.slot.requeue();
            self.queue();
            return true;
        }
        for _ in 0..self.events_max {
            if inbox == 0 {
                break;
            }
            let next = self.mail.next(inbox).load(Relaxed);
            self.slot.inbox.store(next, Relaxed);
            self.mail.read(inbox);
            self.delivered.lock().unwrap().push(inbox);
            inbox = next;
        }
        match step() {
            Then::End => {
                self.end([inbox, 0, 0]);
            }
            Then::Wait if inbox != 0 => {
                self.slot.requeue();
                self.queue();
            }
            Then::Wait => self.follow(self.slot.release(Wait::Idle)),
        }
        true
    }

    /// Ends the life that this thread runs; `lists` are taken messages. Gives the word as it was.
    pub(super) fn end(&self, lists: [u32; 3]) -> Word {
        self.touch_body();
        let word = self.slot.close();
        assert!(word.is_running(), "closed a process that is {word:?}");
        self.slot.inbox.store(0, Relaxed);
        self.set_rest(0);
        for list in lists.into_iter().chain([word.head()]) {
            self.drop_list(list);
        }
        self.ends.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        word
    }

    pub(super) fn drop_list(&self, mut list: u32) {
        while list != 0 {
            let next = self.mail.next(list).load(Relaxed);
            self.mail.read(list);
            self.dropped.lock().unwrap().push(list);
            list = next;
        }
    }

    /// The body is the runner's alone: loom sees if it is not.
    fn touch_body(&self) {
        // SAFETY: only the runner comes here; that it is alone is what the models are about.
        self.slot.body.with_mut(|body| unsafe { (&mut *body)[0].write(0) });
    }

    /// Stands in the place of the cold part, of which it is all that the models need.
    fn rest(&self) -> u32 {
        // SAFETY: as in `touch_body`.
        self.slot.cold.with(|cold| unsafe { *cold }.addr() as u32)
    }

    fn set_rest(&self, rest: u32) {
        // SAFETY: as in `touch_body`.
        self.slot.cold.with_mut(|cold| unsafe { *cold = ptr::without_provenance_mut(rest as usize) });
    }

    /// Gives turns till nothing is queued. When all other threads have ended.
    pub(super) fn run_till_quiet(&self) {
        while self.turn() {}
        let word = self.slot.word();
        assert!(word.is_waiting() || word.is_free(), "nothing is queued, but the process is {word:?}");
        assert_eq!(word.head(), 0, "a message waits and the process is not queued");
        assert_eq!(self.slot.inbox.load(Relaxed), 0, "the inbox waits and the process is not queued");
    }

    pub(super) fn forget_to_keep(&self) {
        self.takes_always.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    pub(super) fn delivered(&self) -> Vec<Item> {
        self.delivered.lock().unwrap().clone()
    }

    pub(super) fn dropped(&self) -> Vec<Item> {
        self.dropped.lock().unwrap().clone()
    }

    /// How many lives have ended.
    pub(super) fn ends(&self) -> u32 {
        self.ends.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// Panics unless `first` comes before `second`, if both are there.
pub(super) fn assert_order(delivered: &[Item], first: Item, second: Item) {
    let place = |item| delivered.iter().position(|&other| other == item);
    if let (Some(first), Some(second)) = (place(first), place(second)) {
        assert!(first < second, "one sender's messages changed places: {delivered:?}");
    }
}
