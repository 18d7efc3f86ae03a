//! A drain: empties the queue of one instance, by its policy. A state machine without I/O and without a clock.
//!
//! It hears ([`Heard`]) and asks ([`Ask`]); whoever runs it carries out what it asks and lets it hear the
//! answer. In the program that is a process of the scheduler, in a simulation a loop. Which rows may start,
//! and what to read for that, is the affair of its [`Queue`].
//!
//! # A row's way
//! ```text
//! store --Rows--> queue --chosen--> starting --Start--> running --Ended--> ended --(put in order)--> sent
//!                   ^                   ^                                    |                         |
//!                   |                   +------- discarded: the head moved --+                         |
//!                   +--- failed, or what it stood on was refused --------------------- Committed: gone-+
//! ```
//! From `starting` on a row is *in flight* for the queue, so no read brings it twice. Calls end in any order;
//! *put in order* is one at a time, and gives each outcome its place and its version.
//!
//! # Run ahead
//! A call works on the head: the state with every outcome that was handed on, committed or not. When the
//! store refuses an outcome, everything behind it is void: the chain's number rises (the lane drops what
//! still has an older one), the head goes back to what is committed, and what was void runs again. Numbers
//! of heads are never used twice, so a call that still runs on a void head is noticed when it ends.
//!
//! # Why nothing is missed
//! A wake carries the lowest new place; the queue reads from there. Before the drain goes quiet, everything was
//! read from the start since the last start or wake; a wake that comes later finds it, or the activation
//! that stands for it ([`crate::upkeep::activation`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evener_actor::context::Answer;
use evener_actor::event::{StoredEvent, Timestamp};
use evener_actor::executor::{Abort, Ended, HeadCell, Instance, Offer, Signal};
use evener_actor::id::{Epoch, QueueId, Seq, Slot, Version};
use evener_actor::json;
use evener_actor::outcome::{CallError, Emit, Head, Outcome, Replay, ScheduleChange, State, StateUse, Tell};
use evener_actor::policy::{QueueMode, QueuePolicy, RUN_AHEAD_MAX};
use evener_store::batch::{Claimed, End, QueueRow, RowOrder, RowsAnswer, RowsRequest};

use crate::flow::queue::policy::{SUPERSEDED_MAX, superseded};
use crate::flow::queue::retry::{self, Failure, Verdict};
use crate::flow::queue::window::{self, Ending, Queue, Read};
use crate::upkeep::activation::Leave;

/// What a drain hears.
#[derive(Debug)]
pub enum Heard {
    /// There are rows from that place on; or perhaps: look.
    Wake(QueueId),
    /// The answer to [`Ask::Read`].
    Rows(Purpose, RowsAnswer),
    /// The answer to [`Ask::Fetch`]; `None`: the event is not there.
    Fetched(QueueId, Option<Arc<StoredEvent>>),
    /// The answer to [`Ask::Mark`]: `false`, the instance has another owner.
    Marked(bool),
    /// A call has ended.
    Ended(u64, Ended),
    /// The answer to [`Ask::Replay`].
    Replayed(u64, Result<State, CallError>),
    /// The answer to [`Ask::Select`].
    Selected(Result<Vec<QueueId>, String>),
    /// A call wants to know when all before it is committed.
    Settled(u64, Answer<()>),
    /// So many outcomes, the oldest first, are committed.
    Committed(u32),
    /// The oldest outcome was refused, alone and for itself. Those behind it were dropped.
    Refused(String),
    /// The instance has another owner, or had one between.
    Fenced,
    /// There is room for calls again.
    Room,
    /// The time that was asked for has come.
    Tick,
    /// Paused or resumed.
    Pause(bool),
    /// Start nothing more, end, and give the instance back.
    Leave,
    /// What runs must end now.
    Abort(Abort),
}

/// What a drain asks for.
#[derive(Debug)]
pub enum Ask {
    /// Rows. Answered by [`Heard::Rows`].
    Read(Purpose, RowsRequest),
    /// The actor's own choice. Answered by [`Heard::Selected`].
    Select(Vec<Offer>),
    /// The event of a row that came without. Answered by [`Heard::Fetched`].
    Fetch(QueueId, Seq),
    /// To write down, before they run, that rows run while the worker may die of them. Answered by
    /// [`Heard::Marked`].
    Mark(Vec<QueueId>),
    /// To start a call. Ends with [`Heard::Ended`].
    Start(Start),
    /// To run the update functions of an ended call on another head. Answered by [`Heard::Replayed`].
    Replay(u64, Box<dyn Replay>, Arc<Head>),
    /// To commit an outcome. Answered, in order, by [`Heard::Committed`], [`Heard::Refused`] or
    /// [`Heard::Fenced`].
    Commit(Box<Handed>),
    /// To hear [`Heard::Tick`] at that time of the clock.
    Arm(Duration),
    /// To give the instance back: nothing is held any more.
    Left(Leave),
}

/// What rows are read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To be started.
    Queue(Read),
    /// To be superseded by the row at that place.
    Older(QueueId),
}

/// A call to be started.
#[derive(Debug)]
pub struct Start {
    /// Its number, in this drain.
    pub call: u64,
    /// The event.
    pub event: Arc<StoredEvent>,
    /// The event's stream.
    pub stream: Option<evener_actor::id::StreamNo>,
    /// Failures and crashes before, plus 1.
    pub attempt: u32,
    /// The place of the row that it first was.
    pub origin: QueueId,
    /// Tells it to end.
    pub signal: Arc<Signal>,
    /// It was there when a worker died.
    pub is_suspect: bool,
}

/// An outcome on its way to the commit.
#[derive(Debug)]
pub struct Handed {
    /// The instance.
    pub instance: Arc<Instance>,
    /// Its slot.
    pub slot: Slot,
    /// The owner's right.
    pub epoch: Epoch,
    /// Rises when what was handed on before is void.
    pub chain: u32,
    /// The version that it was built on; it makes the next one.
    pub version: Version,
    /// Which row.
    pub row: QueueId,
    /// The place of the row that it first was.
    pub origin: QueueId,
    /// How many events led to this one.
    pub depth: u32,
    /// The new state, if it changed.
    pub state: Option<Bytes>,
    /// Older rows that this one stands for.
    pub superseded: Vec<QueueId>,
    /// What becomes of the row.
    pub end: HandedEnd,
    /// Bytes that it holds.
    pub bytes: usize,
}

/// [`End`] before names have become numbers.
#[derive(Debug)]
pub enum HandedEnd {
    /// Its call is through, and left this.
    Done {
        /// For streams.
        emits: Vec<Emit>,
        /// For instances.
        sends: Vec<Tell>,
        /// For schedules.
        schedules: Vec<ScheduleChange>,
    },
    /// Anything else.
    Other(End),
}

/// What a drain needs to know of its worker.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long to keep an instance that has nothing to do.
    pub linger: Duration,
    /// Time between two looks for what no word came of.
    pub backup_poll: Duration,
    /// How long a call that was told to end may go on.
    pub abort_grace: Duration,
    /// Longest data of an event, in bytes.
    pub payload_bytes_max: usize,
}

/// What the drain's worker allows at the moment.
pub trait Allowance {
    /// Whether one more call may start. If not, the drain hears [`Heard::Room`] later. A suspect was there when
    /// a worker died: no other suspect runs beside it.
    fn may_start(&mut self, is_suspect: bool) -> bool;
    /// The room that was heard of is not used: let another drain have it.
    fn no_use(&mut self);
    /// Whether calls may start at all: this worker may believe in itself, and outcomes find room.
    fn is_open(&self) -> bool;
    /// A call that might have started does not.
    fn give_back(&mut self, was_suspect: bool);
    /// How many bytes of events may be read along with rows.
    fn event_bytes(&mut self) -> usize;
    /// The bytes of events that the drain holds have become more or fewer.
    fn events_changed(&mut self, before: usize, after: usize);
    /// `true`: other instances wait for a place.
    fn is_crowded(&self) -> bool;
}

/// Rows that a crowded worker lets a drain commit before it makes way.
const TURN_ROWS: u32 = 64;

/// How much sooner than it was asked for a tick may come, at most: clocks and timers round.
const TICK_EARLY: Duration = Duration::from_micros(500);

/// Discarded attempts before a call runs alone in its instance.
const RERUNS_MAX: u8 = 3;

/// How long a `select` that failed is left alone, at first and at last.
const SELECT_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A row in flight that does not run.
#[derive(Debug)]
struct Row {
    row: QueueRow,
    /// Attempts that were discarded because the head had moved.
    reruns: u8,
    /// Its event is on its way.
    is_fetching: bool,
    /// It has a place among the worker's calls.
    is_admitted: bool,
    mark: Mark,
}

/// Whether a row's crash count is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Wanted,
    Asked,
    /// Or it need not be.
    Done,
}

#[derive(Debug)]
struct Running {
    call: u64,
    row: Row,
    signal: Arc<Signal>,
    /// When its time is up; then, when its grace is.
    deadline: Option<Duration>,
    is_aborted: bool,
    /// A commit was refused since it began: it may stand on a head that is void.
    is_void: bool,
}

/// What keeps the next outcome from being put in order.
#[derive(Debug)]
enum Pending {
    /// Its update functions run again.
    Replay(Running, Outcome),
    /// The older rows that it stands for are read.
    Older(Row, Option<State>, HandedEnd),
}

/// Rows that the outcome in [`Pending::Older`] stands for, as they were read last.
#[derive(Debug, Default)]
struct Older {
    rows: Vec<QueueId>,
    last: Option<QueueId>,
    is_end: bool,
    is_here: bool,
}

#[derive(Debug)]
struct Sent {
    row: QueueId,
    /// Bytes of its event, which are held until now.
    event_bytes: usize,
    /// The head that it left, if it changed the state.
    head: Option<Arc<Head>>,
    superseded: Vec<QueueId>,
    fate: Fate,
    attempts: u32,
    /// Nothing but that it failed: if even that is refused, there is nothing more to try.
    is_plain: bool,
}

#[derive(Debug, Clone, Copy)]
enum Fate {
    Gone,
    Again(Duration),
    Blocked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Working,
    /// Nothing to do since then.
    Quiet(Duration),
    /// Ends what runs, starts nothing.
    Leaving,
    /// The same, and the instance is not ours any more.
    Lost,
    Gone,
}

/// A door to chance: 64 bits that are alike.
pub type Bits = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The drain of one instance.
pub struct Drain {
    instance: Arc<Instance>,
    slot: Slot,
    epoch: Epoch,
    bits: Bits,
    limits: Limits,
    queue: Queue,
    head: Arc<HeadCell>,
    head_now: Arc<Head>,
    /// Of the newest outcome that was handed on.
    version: Version,
    chain: u32,
    committed_head: Arc<Head>,
    committed_version: Version,
    starting: VecDeque<Row>,
    running: Vec<Running>,
    ended: VecDeque<(Running, Ended)>,
    pending: Option<Pending>,
    older: Older,
    sent: VecDeque<Sent>,
    /// Reads under way.
    reading: u32,
    is_selecting: bool,
    select_failures: u32,
    last_look: Duration,
    next_call: u64,
    /// Outcomes handed on, and those of them that were answered, since the beginning.
    handed: u64,
    answered: u64,
    settlers: Vec<(u64, Answer<()>)>,
    armed: Option<Duration>,
    /// When the queue wants to be asked again.
    wait: Option<Duration>,
    is_dry: bool,
    mood: Mood,
    is_paused: bool,
    is_marking: bool,
    /// How many wakes it has heard.
    wakes: u64,
    /// Rows that are still drained carefully.
    careful: u32,
    turn_rows: u32,
    /// It was refused a start, and hears [`Heard::Room`] when it may try again.
    waits_for_room: bool,
    has_room: bool,
    /// Places among the worker's calls that go back; with whether a suspect had it.
    unused: Vec<bool>,
    /// Bytes of events that are held; and that the allowance knows of.
    event_bytes: usize,
    event_bytes_told: usize,
}

impl std::fmt::Debug for Drain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drain")
            .field("instance", &self.instance.id)
            .field("mood", &self.mood)
            .field("starting", &self.starting.len())
            .field("running", &self.running.len())
            .field("ended", &self.ended.len())
            .field("sent", &self.sent.len())
            .field("reading", &self.reading)
            .field("is_marking", &self.is_marking)
            .field("waits_for_room", &self.waits_for_room)
            .field("is_dry", &self.is_dry)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

fn moment(now: Duration) -> Timestamp {
    Timestamp(i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
}

impl Drain {
    /// For an instance that was just claimed. It looks before it waits.
    #[must_use]
    pub fn new(claimed: Claimed, instance: Arc<Instance>, bits: Bits, limits: Limits) -> Self {
        let head = Arc::new(Head { number: 0, state: State::stored(claimed.state) });
        let definition = &instance.definition;
        Self {
            slot: claimed.slot,
            epoch: claimed.epoch,
            queue: Queue::new(&definition.queue, definition.is_indexed()),
            head: Arc::new(HeadCell::new((*head).clone())),
            head_now: Arc::clone(&head),
            version: claimed.version,
            chain: 0,
            committed_head: head,
            committed_version: claimed.version,
            starting: VecDeque::new(),
            running: Vec::new(),
            ended: VecDeque::new(),
            pending: None,
            older: Older::default(),
            sent: VecDeque::new(),
            reading: 0,
            is_selecting: false,
            select_failures: 0,
            last_look: Duration::ZERO,
            next_call: 0,
            handed: 0,
            answered: 0,
            settlers: Vec::new(),
            armed: None,
            wait: None,
            is_dry: false,
            mood: Mood::Working,
            is_paused: false,
            is_marking: false,
            wakes: 0,
            careful: if claimed.was_orphan { careful_rows(&definition.queue) } else { 0 },
            turn_rows: 0,
            waits_for_room: false,
            has_room: false,
            unused: Vec::new(),
            event_bytes: 0,
            event_bytes_told: 0,
            instance,
            bits,
            limits,
        }
    }

    /// What its instance is.
    #[must_use]
    pub fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }

    /// The newest state, for its calls.
    #[must_use]
    pub fn head(&self) -> &Arc<HeadCell> {
        &self.head
    }

    /// Its slot.
    #[must_use]
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// The owner's right.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// How many calls run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Takes something in; nothing follows from it before [`Drain::act`].
    pub fn hear(&mut self, heard: Heard, now: Duration) {
        match heard {
            Heard::Wake(lowest) => {
                self.wakes += 1;
                self.queue.wake(lowest);
                self.work();
            }
            Heard::Rows(purpose, answer) => self.take_rows(purpose, answer, now),
            Heard::Fetched(id, event) => self.take_event(id, event),
            Heard::Marked(true) => {
                self.is_marking = false;
                let asked = self.starting.iter_mut().filter(|row| row.mark == Mark::Asked);
                asked.for_each(|row| row.mark = Mark::Done);
            }
            Heard::Marked(false) | Heard::Fenced => self.lose(Abort::Fenced),
            Heard::Ended(call, ended) => {
                if let Some(at) = self.running.iter().position(|running| running.call == call) {
                    let running = self.running.swap_remove(at);
                    self.ended.push_back((running, ended));
                }
            }
            Heard::Replayed(call, result) => self.take_replay(call, result),
            Heard::Selected(result) => self.take_selection(result, now),
            Heard::Settled(call, answer) => self.settle(call, answer),
            Heard::Committed(outcomes) => self.take_committed(outcomes, now),
            Heard::Refused(error) => self.take_refused(error),
            Heard::Room => {
                self.waits_for_room = false;
                self.has_room = true;
            }
            // One that was armed before a nearer one changes nothing, or each would arm the next.
            Heard::Tick => {
                self.armed.take_if(|armed| *armed <= now.saturating_add(TICK_EARLY));
            }
            Heard::Pause(is_paused) => {
                self.is_paused = is_paused;
                self.work();
            }
            Heard::Leave => {
                if matches!(self.mood, Mood::Working | Mood::Quiet(_)) {
                    self.mood = Mood::Leaving;
                }
            }
            Heard::Abort(why) => {
                for running in &mut self.running {
                    running.signal.abort(why);
                    running.is_aborted = true;
                    running.deadline = Some(now.saturating_add(self.limits.abort_grace));
                }
            }
        }
    }

    fn work(&mut self) {
        if let Mood::Quiet(_) = self.mood {
            self.mood = Mood::Working;
        }
    }

    /// Does what follows from all that was heard.
    pub fn act(&mut self, now: Duration, allowance: &mut dyn Allowance, asks: &mut Vec<Ask>) {
        if self.mood == Mood::Gone {
            return;
        }
        if self.mood == Mood::Working && now.saturating_sub(self.last_look) >= self.limits.backup_poll {
            self.queue.look();
            self.last_look = now;
        }
        self.put_in_order(now, asks);
        self.time_out(now);
        self.choose(now, allowance, asks);
        if std::mem::take(&mut self.has_room) {
            allowance.no_use();
        }
        self.rest(now, allowance, asks);
        for was_suspect in self.unused.drain(..) {
            allowance.give_back(was_suspect);
        }
        self.arm(now, asks);
        if self.event_bytes != self.event_bytes_told {
            allowance.events_changed(self.event_bytes_told, self.event_bytes);
            self.event_bytes_told = self.event_bytes;
        }
    }

    // Choosing, reading, starting.

    /// How many more calls may start now.
    fn room(&self) -> usize {
        let is_alone = |row: &Row| row.reruns >= RERUNS_MAX;
        if self.running.iter().any(|running| is_alone(&running.row)) || !self.starting.is_empty() {
            return 0;
        }
        let uncommitted = self.sent.len() + self.ended.len() + usize::from(self.pending.is_some());
        match self.instance.definition.queue.run_ahead as usize {
            0 if uncommitted > 0 => 0,
            0 => usize::MAX,
            run_ahead => run_ahead.saturating_sub(uncommitted + self.running.len()),
        }
    }

    fn choose(&mut self, now: Duration, allowance: &mut dyn Allowance, asks: &mut Vec<Ask>) {
        let is_open = !self.is_paused
            && matches!(self.mood, Mood::Working | Mood::Quiet(_))
            && !self.is_making_way(allowance);
        self.is_dry = false;
        if !is_open {
            // What the queue waited for is of no use now.
            self.wait = None;
            self.give_back();
            return;
        }
        loop {
            self.start_calls(now, allowance, asks);
            let room = self.room();
            let choice = self.queue.next(moment(now), room);
            self.wait = choice.wait.map(|wait| Duration::from_millis(u64::try_from(wait.0).unwrap_or(0)));
            self.is_dry = choice.is_dry;
            if !choice.offer.is_empty() {
                self.offer(choice.offer, now, asks);
            }
            for read in choice.reads {
                self.read(Purpose::Queue(read), read.order, read.rows_max, allowance.event_bytes(), asks);
            }
            if choice.start.is_empty() {
                return;
            }
            for row in choice.start {
                self.chosen(row);
            }
        }
    }

    fn chosen(&mut self, row: QueueRow) {
        let is_careful = self.careful > 0;
        self.careful = self.careful.saturating_sub(1);
        self.event_bytes += event_bytes(row.event.as_ref());
        let mark = if is_careful { Mark::Wanted } else { Mark::Done };
        self.starting.push_back(Row { row, reruns: 0, is_fetching: false, is_admitted: false, mark });
    }

    fn read(
        &mut self,
        purpose: Purpose,
        order: RowOrder,
        rows_max: u32,
        event_bytes_max: usize,
        asks: &mut Vec<Ask>,
    ) {
        self.reading += 1;
        let request =
            RowsRequest { slot: self.slot, instance: self.instance.id, order, rows_max, event_bytes_max };
        asks.push(Ask::Read(purpose, request));
    }

    fn take_rows(&mut self, purpose: Purpose, answer: RowsAnswer, now: Duration) {
        if matches!(self.mood, Mood::Lost | Mood::Gone) {
            return;
        }
        self.reading -= 1;
        match purpose {
            Purpose::Queue(read) => self.queue.answer(read, answer.rows, answer.is_end, moment(now)),
            Purpose::Older(row) => {
                if matches!(&self.pending, Some(Pending::Older(own, ..)) if own.row.id == row) {
                    self.take_older(row, &answer);
                }
            }
        }
    }

    fn take_event(&mut self, id: QueueId, event: Option<Arc<StoredEvent>>) {
        let Some(at) = self.starting.iter().position(|row| row.row.id == id) else { return };
        let row = &mut self.starting[at];
        row.is_fetching = false;
        match event {
            Some(event) => {
                self.event_bytes += event.event.bytes();
                row.row.event = Some(event);
            }
            // The event is named by a row, so retention keeps it: somebody deleted it by hand.
            None => {
                if let Some(row) = self.starting.remove(at) {
                    self.refuse(row, "its event is not in the store");
                }
            }
        }
    }

    fn start_calls(&mut self, now: Duration, allowance: &mut dyn Allowance, asks: &mut Vec<Ask>) {
        while let Some(row) = self.starting.front_mut() {
            if let Some(verdict) =
                retry::before_start(&self.instance.definition.retry, row.row.attempts, row.row.crashes)
            {
                if self.pending.is_some() && self.instance.definition.queue.mode == QueueMode::Latest {
                    // One after the other: it asks for the rows that end with it, too.
                    return;
                }
                let error = format!("{} workers died while it ran", row.row.crashes);
                if let Some(row) = self.starting.pop_front() {
                    self.end_badly(row, verdict, error, asks);
                }
                continue;
            }
            if row.row.event.is_none() {
                if !row.is_fetching {
                    row.is_fetching = true;
                    asks.push(Ask::Fetch(row.row.id, row.row.seq));
                }
                return;
            }
            // One that was discarded too often runs alone.
            if row.reruns >= RERUNS_MAX
                && !(self.running.is_empty() && self.ended.is_empty() && self.pending.is_none())
            {
                return;
            }
            if row.is_admitted && !allowance.is_open() {
                // It was, when its place was given; the mark took its time.
                row.is_admitted = false;
                self.unused.push(row.row.crashes > 0);
            }
            if !row.is_admitted {
                if self.waits_for_room {
                    // Those behind it do not keep their places from it.
                    self.give_back();
                    return;
                }
                if !allowance.may_start(row.row.crashes > 0) {
                    self.waits_for_room = true;
                    // There was none: nothing to pass on.
                    self.has_room = false;
                    self.give_back();
                    return;
                }
                self.has_room = false;
                row.is_admitted = true;
            }
            if row.mark != Mark::Done {
                self.mark(allowance, asks);
                return;
            }
            if let Some(row) = self.starting.pop_front() {
                self.start(row, now, asks);
            }
        }
    }

    /// Writes down that rows at the front run while the worker may die of them, many at once: only what has its
    /// place already, so that none is counted that would have waited. Of suspects one.
    fn mark(&mut self, allowance: &mut dyn Allowance, asks: &mut Vec<Ask>) {
        if self.is_marking {
            return;
        }
        self.is_marking = true;
        let mut rows = Vec::new();
        for (at, row) in self.starting.iter_mut().enumerate() {
            if at > 0 {
                let may_go_along = row.mark == Mark::Wanted
                    && row.row.event.is_some()
                    && row.row.crashes == 0
                    && row.reruns < RERUNS_MAX
                    && !self.waits_for_room;
                if !may_go_along {
                    break;
                }
                if !row.is_admitted && !allowance.may_start(false) {
                    self.waits_for_room = true;
                    break;
                }
                row.is_admitted = true;
            }
            row.mark = Mark::Asked;
            rows.push(row.row.id);
            if row.row.crashes > 0 {
                break;
            }
        }
        asks.push(Ask::Mark(rows));
    }

    /// They do not start, or not now: their places are free.
    fn give_back(&mut self) {
        for row in self.starting.iter_mut().filter(|row| row.is_admitted) {
            row.is_admitted = false;
            self.unused.push(row.row.crashes > 0);
        }
    }

    fn start(&mut self, mut row: Row, now: Duration, asks: &mut Vec<Ask>) {
        row.is_admitted = false;
        let call = self.next_call;
        self.next_call += 1;
        let signal = Arc::new(Signal::default());
        asks.push(Ask::Start(Start {
            call,
            event: Arc::clone(row.row.event.as_ref().expect("only rows with their event start")),
            stream: row.row.stream,
            attempt: row.row.attempts.saturating_add(row.row.crashes).saturating_add(1),
            origin: row.row.origin,
            signal: Arc::clone(&signal),
            is_suspect: row.row.crashes > 0,
        }));
        let deadline = self.instance.definition.retry.timeout().map(|timeout| now.saturating_add(timeout));
        self.running.push(Running { call, row, signal, deadline, is_aborted: false, is_void: false });
    }

    // The actor's own choice.

    fn offer(&mut self, rows: Vec<QueueRow>, now: Duration, asks: &mut Vec<Ask>) {
        let _ = now;
        self.is_selecting = true;
        let offers = rows.into_iter().map(|row| Offer {
            id: row.id,
            kind: row.event.as_ref().map(|event| Arc::clone(&event.event.kind)),
            time: row.event.as_ref().map(|event| event.event.time),
            group: row.group,
            priority: row.priority,
            attempt: row.attempts.saturating_add(row.crashes).saturating_add(1),
        });
        asks.push(Ask::Select(offers.collect()));
    }

    fn take_selection(&mut self, result: Result<Vec<QueueId>, String>, now: Duration) {
        if matches!(self.mood, Mood::Lost | Mood::Gone) {
            return;
        }
        self.is_selecting = false;
        let room = self.room();
        let selected =
            result.and_then(|ids| self.queue.selected(&ids, room).map_err(|fault| fault.to_string()));
        match selected {
            Ok(rows) => {
                self.select_failures = 0;
                rows.into_iter().for_each(|row| self.chosen(row));
            }
            Err(error) => {
                tracing::warn!(
                    actor = %self.instance.definition.name,
                    key = %self.instance.key,
                    "its select failed: {error}"
                );
                let (first, last) = SELECT_PAUSE;
                let pause = first.saturating_mul(1 << self.select_failures.min(16)).min(last);
                self.select_failures = self.select_failures.saturating_add(1);
                self.queue.select_failed(moment(now.saturating_add(pause)));
            }
        }
    }

    // Putting in order.

    fn put_in_order(&mut self, now: Duration, asks: &mut Vec<Ask>) {
        if self.mood == Mood::Lost {
            // What ended since is of no use to anybody, and the lane would not answer it.
            self.ended.clear();
            return;
        }
        self.go_on_with_older(asks);
        while self.pending.is_none() {
            let Some((running, ended)) = self.ended.pop_front() else { return };
            match ended {
                // What it stood on is void, and perhaps it failed of that.
                Ended::Failed(_) if running.is_void => self.discard(running.row),
                Ended::Failed(error) => self.fail(running.row, error, asks),
                Ended::Done(outcome) => match check(&outcome, self.limits.payload_bytes_max) {
                    Err(error) => self.fail(running.row, error, asks),
                    Ok(()) => self.place(running, outcome, now, asks),
                },
            }
        }
    }

    /// Puts an outcome behind the head, as it is, replayed, or not at all.
    fn place(&mut self, running: Running, mut outcome: Outcome, now: Duration, asks: &mut Vec<Ask>) {
        let _ = now;
        let head = self.head_now.number;
        match std::mem::take(&mut outcome.state) {
            StateUse::Untouched => self.accept(running.row, None, outcome, asks),
            StateUse::Read { basis, changed } if basis == head => {
                self.accept(running.row, changed, outcome, asks)
            }
            StateUse::Updated { basis, changed, .. } if basis == head => {
                self.accept(running.row, Some(changed), outcome, asks);
            }
            StateUse::Read { .. } => self.discard(running.row),
            StateUse::Updated { replay, .. } => {
                asks.push(Ask::Replay(running.call, replay, Arc::clone(&self.head_now)));
                // Where it was begun, so that a head that moves meanwhile is noticed.
                outcome.state = StateUse::Read { basis: head, changed: None };
                self.pending = Some(Pending::Replay(running, outcome));
            }
        }
    }

    fn take_replay(&mut self, call: u64, result: Result<State, CallError>) {
        let is_it =
            |pending: &mut Pending| matches!(pending, Pending::Replay(running, _) if running.call == call);
        let Some(Pending::Replay(running, mut outcome)) = self.pending.take_if(is_it) else { return };
        let ended = match result {
            Err(error) => Ended::Failed(error),
            Ok(state) => {
                if let StateUse::Read { changed, .. } = &mut outcome.state {
                    *changed = Some(state);
                }
                Ended::Done(outcome)
            }
        };
        self.ended.push_front((running, ended));
    }

    /// The attempt is void; its row starts again, with no attempt counted. For the queue it stays in flight.
    fn discard(&mut self, mut row: Row) {
        row.reruns = row.reruns.saturating_add(1);
        self.starting.push_front(row);
    }

    fn accept(&mut self, row: Row, state: Option<State>, outcome: Outcome, asks: &mut Vec<Ask>) {
        let end =
            HandedEnd::Done { emits: outcome.emits, sends: outcome.sends, schedules: outcome.schedules };
        self.finish(row, state, end, asks);
    }

    fn fail(&mut self, row: Row, error: CallError, asks: &mut Vec<Ask>) {
        let failure = match error {
            CallError::Refused(_) => Failure::Refused,
            _ => Failure::Call,
        };
        let verdict =
            retry::failed(&self.instance.definition.retry, row.row.attempts, failure, &mut || (self.bits)());
        self.end_badly(row, verdict, error.to_string(), asks);
    }

    fn end_badly(&mut self, row: Row, verdict: Verdict, error: String, asks: &mut Vec<Ask>) {
        let error = json::storable(&error);
        match verdict {
            Verdict::Dead { cause, attempts } => {
                self.finish(row, None, HandedEnd::Other(End::Dead { attempts, cause, error }), asks);
            }
            Verdict::Retry { delay, attempts } => {
                self.queue.ended(row.row.id, Ending::Retry);
                let end = HandedEnd::Other(End::Retry { attempts, delay, error });
                self.hand(row, None, Vec::new(), end, Fate::Again(delay), attempts, asks);
            }
            Verdict::Blocked { attempts } => {
                self.queue.ended(row.row.id, Ending::Blocked);
                let end = HandedEnd::Other(End::Blocked { attempts, error });
                self.hand(row, None, Vec::new(), end, Fate::Blocked, attempts, asks);
            }
        }
    }

    /// The row is through, one way or the other. In mode latest those before it are through with it.
    fn finish(&mut self, row: Row, state: Option<State>, end: HandedEnd, asks: &mut Vec<Ask>) {
        if self.instance.definition.queue.mode == QueueMode::Latest {
            let id = row.row.id;
            self.pending = Some(Pending::Older(row, state, end));
            self.read_older(id, None, asks);
            return;
        }
        self.queue.ended(row.row.id, Ending::Through);
        let attempts = row.row.attempts;
        self.hand(row, state, Vec::new(), end, Fate::Gone, attempts, asks);
    }

    fn read_older(&mut self, id: QueueId, last: Option<QueueId>, asks: &mut Vec<Ask>) {
        let Some(order) = self.queue.older(id, last) else { return };
        self.read(Purpose::Older(id), order, SUPERSEDED_MAX, 0, asks);
    }

    fn take_older(&mut self, row: QueueId, answer: &RowsAnswer) {
        self.older.rows = superseded(row, &answer.rows, self.queue.in_flight());
        self.queue.superseded(row, &self.older.rows);
        self.older.last = answer.rows.last().map(|row| row.id);
        self.older.is_end = answer.is_end || answer.rows.is_empty();
        self.older.is_here = true;
    }

    /// What was read is superseded: with the row itself if that is all there is, else for itself.
    fn go_on_with_older(&mut self, asks: &mut Vec<Ask>) {
        if !std::mem::take(&mut self.older.is_here) {
            return;
        }
        let rows = std::mem::take(&mut self.older.rows);
        if self.older.is_end {
            let Some(Pending::Older(row, state, end)) = self.pending.take() else { return };
            self.queue.ended(row.row.id, Ending::Through);
            let attempts = row.row.attempts;
            self.hand(row, state, rows, end, Fate::Gone, attempts, asks);
            return;
        }
        let Some(Pending::Older(row, ..)) = &self.pending else { return };
        let id = row.row.id;
        if let Some((first, rest)) = rows.split_first() {
            self.commit(*first, *first, 0, None, rest.to_vec(), HandedEnd::Other(End::Superseded), asks);
            self.sent.push_back(Sent {
                row: *first,
                event_bytes: 0,
                head: None,
                superseded: rest.to_vec(),
                fate: Fate::Gone,
                attempts: 0,
                is_plain: true,
            });
        }
        self.read_older(id, self.older.last, asks);
    }

    #[allow(clippy::too_many_arguments, reason = "each is one part of an outcome")]
    fn hand(
        &mut self,
        row: Row,
        state: Option<State>,
        superseded: Vec<QueueId>,
        end: HandedEnd,
        fate: Fate,
        attempts: u32,
        asks: &mut Vec<Ask>,
    ) {
        let bytes = state.as_ref().and_then(|state| state.bytes.clone());
        let head = state.map(|state| {
            let head = Arc::new(Head { number: self.head_now.number + 1, state });
            self.head_now = Arc::clone(&head);
            self.head.store(Arc::clone(&head));
            head
        });
        let is_plain = matches!(end, HandedEnd::Other(_));
        let depth = row.row.event.as_ref().map_or(0, |event| crate::flow::ingress::depth(&event.event));
        self.commit(row.row.id, row.row.origin, depth, bytes, superseded.clone(), end, asks);
        self.sent.push_back(Sent {
            row: row.row.id,
            event_bytes: event_bytes(row.row.event.as_ref()),
            head,
            superseded,
            fate,
            attempts,
            is_plain,
        });
    }

    #[allow(clippy::too_many_arguments, reason = "each is one part of an outcome")]
    fn commit(
        &mut self,
        row: QueueId,
        origin: QueueId,
        depth: u32,
        state: Option<Bytes>,
        superseded: Vec<QueueId>,
        end: HandedEnd,
        asks: &mut Vec<Ask>,
    ) {
        let bytes = 128 + state.as_ref().map_or(0, Bytes::len) + superseded.len() * 8 + end_bytes(&end);
        asks.push(Ask::Commit(Box::new(Handed {
            instance: Arc::clone(&self.instance),
            slot: self.slot,
            epoch: self.epoch,
            chain: self.chain,
            version: self.version,
            row,
            origin,
            depth,
            state,
            superseded,
            end,
            bytes,
        })));
        self.version = Version(self.version.0 + 1);
        self.handed += 1;
    }

    fn settle(&mut self, call: u64, answer: Answer<()>) {
        // Dropped, the answer says that what the call stands on was not committed.
        if !self.running.iter().any(|running| running.call == call && !running.is_void) {
            return;
        }
        if self.sent.is_empty() {
            answer.give(());
        } else {
            self.settlers.push((self.handed, answer));
        }
    }

    // Answers of the lane.

    fn take_committed(&mut self, outcomes: u32, now: Duration) {
        if matches!(self.mood, Mood::Lost | Mood::Gone) {
            return;
        }
        for _ in 0..outcomes {
            let sent = self.sent.pop_front().expect("the lane answers what it was handed, once");
            self.answered += 1;
            self.turn_rows = self.turn_rows.saturating_add(1);
            self.committed_version = Version(self.committed_version.0 + 1);
            if let Some(head) = sent.head {
                self.committed_head = head;
            }
            for row in sent.superseded {
                self.queue.committed(row, window::Fate::Gone);
            }
            self.event_bytes = self.event_bytes.saturating_sub(sent.event_bytes);
            self.queue.committed(
                sent.row,
                match sent.fate {
                    Fate::Gone => window::Fate::Gone,
                    Fate::Again(delay) => window::Fate::Waits(moment(now.saturating_add(delay))),
                    Fate::Blocked => window::Fate::Blocked,
                },
            );
        }
        let answered = self.answered;
        for (_, answer) in self.settlers.extract_if(.., |(handed, _)| *handed <= answered) {
            answer.give(());
        }
    }

    fn take_refused(&mut self, error: String) {
        if matches!(self.mood, Mood::Lost | Mood::Gone) {
            return;
        }
        let refused = self.sent.pop_front().expect("the lane refuses what it was handed");
        self.chain += 1;
        self.answered = self.handed;
        self.version = self.committed_version;
        let head = Head { number: self.head_now.number + 1, state: self.committed_head.state.clone() };
        #[cfg(feature = "mutations")]
        let head = if crate::mutations::is(crate::mutations::Switch::VoidHeadKept) {
            (*self.head_now).clone()
        } else {
            head
        };
        let head = Arc::new(head);
        self.head_now = Arc::clone(&head);
        self.committed_head = Arc::clone(&head);
        self.head.store(head);
        // They stand on what is void now: their calls are told by an answer that is dropped.
        self.settlers.clear();
        self.running.iter_mut().for_each(|running| running.is_void = true);
        self.ended.iter_mut().for_each(|(running, _)| running.is_void = true);
        for sent in std::mem::take(&mut self.sent) {
            self.event_bytes = self.event_bytes.saturating_sub(sent.event_bytes);
            self.queue.returned(sent.row);
            sent.superseded.iter().for_each(|row| self.queue.returned(*row));
        }
        refused.superseded.iter().for_each(|row| self.queue.returned(*row));
        for row in std::mem::take(&mut self.older).rows {
            self.queue.returned(row);
        }
        // Ended calls stay: their bases are numbers that no head has any more. Those that used no state lose
        // nothing.
        match self.pending.take() {
            Some(Pending::Replay(running, _)) => self.discard(running.row),
            Some(Pending::Older(row, ..)) => self.discard(row),
            None => {}
        }
        self.event_bytes = self.event_bytes.saturating_sub(refused.event_bytes);
        if refused.is_plain {
            // Not even its failure can be written. Who claims the instance next, one backup poll later, tries
            // again.
            self.give_back();
            self.starting.clear();
            self.event_bytes = 0;
            self.mood = Mood::Leaving;
            return;
        }
        // It failed, once more.
        let row = QueueRow {
            id: refused.row,
            seq: Seq(0),
            stream: None,
            group: None,
            priority: 0,
            delay: Duration::ZERO,
            attempts: refused.attempts,
            crashes: 0,
            origin: refused.row,
            is_blocked: false,
            event_bytes: 0,
            event: None,
        };
        self.queue.refused(refused.row);
        self.refuse(Row { row, reruns: 0, is_fetching: false, is_admitted: false, mark: Mark::Done }, &error);
    }

    /// A row whose attempt is void for a reason of the store's: it failed.
    fn refuse(&mut self, row: Row, why: &str) {
        let running = Running {
            call: u64::MAX,
            row,
            signal: Arc::default(),
            deadline: None,
            is_aborted: false,
            is_void: false,
        };
        self.ended.push_front((running, Ended::Failed(CallError::Refused(why.to_owned()))));
    }

    fn lose(&mut self, why: Abort) {
        if self.mood == Mood::Gone {
            return;
        }
        self.mood = Mood::Lost;
        for running in &mut self.running {
            running.signal.abort(why);
            running.is_aborted = true;
            // What was handed on may never be committed: nobody is told that it is.
            running.is_void = true;
            running.deadline = Some(Duration::ZERO);
        }
        self.give_back();
        self.starting.clear();
        self.ended.clear();
        self.sent.clear();
        self.settlers.clear();
        self.pending = None;
        self.reading = 0;
        self.is_selecting = false;
        self.is_marking = false;
        self.event_bytes = 0;
    }

    // Time.

    fn time_out(&mut self, now: Duration) {
        for running in &mut self.running {
            if running.deadline.is_none_or(|deadline| deadline > now) {
                continue;
            }
            if running.is_aborted {
                running.signal.kill();
                running.deadline = None;
            } else {
                running.signal.abort(Abort::TimedOut);
                running.is_aborted = true;
                running.deadline = Some(now.saturating_add(self.limits.abort_grace));
            }
        }
    }

    /// Goes quiet, leaves, or stays.
    fn rest(&mut self, now: Duration, allowance: &dyn Allowance, asks: &mut Vec<Ask>) {
        let is_still = self.running.is_empty()
            && self.ended.is_empty()
            && self.pending.is_none()
            && self.sent.is_empty()
            && self.reading == 0
            && !self.is_marking
            && !self.is_selecting;
        if !is_still {
            return;
        }
        match self.mood {
            Mood::Working if self.is_making_way(allowance) => self.leave(true, true, asks),
            Mood::Working if self.is_dry && self.wait.is_none() && self.queue.in_flight().is_empty() => {
                if allowance.is_crowded() || self.limits.linger.is_zero() {
                    self.leave(true, false, asks);
                } else {
                    self.mood = Mood::Quiet(now);
                }
            }
            Mood::Quiet(since)
                if allowance.is_crowded() || now.saturating_sub(since) >= self.limits.linger =>
            {
                self.leave(true, false, asks);
            }
            Mood::Leaving => self.leave(true, false, asks),
            Mood::Lost => self.leave(false, false, asks),
            Mood::Working | Mood::Quiet(_) | Mood::Gone => {}
        }
    }

    fn leave(&mut self, is_ours: bool, has_more: bool, asks: &mut Vec<Ask>) {
        self.mood = Mood::Gone;
        self.give_back();
        self.starting.clear();
        self.event_bytes = 0;
        asks.push(Ask::Left(Leave { is_ours, has_more, wakes: self.wakes }));
    }

    /// Others wait for a place, and this one had its turn.
    fn is_making_way(&self, allowance: &dyn Allowance) -> bool {
        self.turn_rows >= TURN_ROWS && allowance.is_crowded()
    }

    fn arm(&mut self, now: Duration, asks: &mut Vec<Ask>) {
        let deadlines = self.running.iter().filter_map(|running| running.deadline);
        let next = match self.mood {
            Mood::Gone => return,
            Mood::Quiet(since) => Some(since.saturating_add(self.limits.linger)),
            Mood::Working => {
                let look = self.last_look.saturating_add(self.limits.backup_poll);
                Some(self.wait.map_or(look, |wait| wait.min(look)))
            }
            Mood::Leaving | Mood::Lost => None,
        };
        let Some(next) = deadlines.chain(next).min() else { return };
        let next = next.max(now.saturating_add(Duration::from_millis(1)));
        if self.armed.is_none_or(|armed| next < armed) {
            self.armed = Some(next);
            asks.push(Ask::Arm(next));
        }
    }
}

/// Whether what a call left behind can be stored.
fn check(outcome: &Outcome, payload_bytes_max: usize) -> Result<(), CallError> {
    let events = outcome.emits.iter().map(|emit| &emit.event);
    let events = events.chain(outcome.sends.iter().map(|send| &send.event));
    let scheduled = outcome.schedules.iter().filter_map(|change| match change {
        ScheduleChange::Set { event, .. } => Some(&**event),
        ScheduleChange::Cancel { .. } => None,
    });
    for event in events.chain(scheduled) {
        crate::flow::ingress::check(event, payload_bytes_max)
            .map_err(|error| CallError::Refused(format!("event of type `{}`: {error}", event.kind)))?;
    }
    for change in &outcome.schedules {
        crate::flow::ingress::check_schedule(change)
            .map_err(|error| CallError::Refused(error.to_string()))?;
    }
    Ok(())
}

fn event_bytes(event: Option<&Arc<StoredEvent>>) -> usize {
    event.map_or(0, |event| event.event.bytes())
}

fn end_bytes(end: &HandedEnd) -> usize {
    match end {
        HandedEnd::Done { emits, sends, schedules } => {
            emits.iter().map(|emit| emit.event.bytes() + 64).sum::<usize>()
                + sends.iter().map(|send| send.event.bytes() + 64).sum::<usize>()
                + schedules.len() * 256
        }
        HandedEnd::Other(_) => 256,
    }
}

/// How many rows can have been in flight when an owner died.
fn careful_rows(policy: &QueuePolicy) -> u32 {
    policy.instance_max.saturating_add(2 * RUN_AHEAD_MAX)
}
