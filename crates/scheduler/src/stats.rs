//! Counters and sizes: cheap enough to stay on, read without disturbing anybody.
//!
//! Each worker counts for itself, in lines of its own, by plain loads and stores (one writer); a reader
//! sums. No clock is read for each step: the first one after each look around (one in 61) is timed.
//! Processes by state are counted when asked, by a walk over the slots that reads their words and nothing
//! else. A reader takes no lock that a step holds for longer than a batch of cells or a timer takes.
//!
//! Built without the feature `stats` (on by default) the counters that nobody needs for running are
//! compiled out and read as zero.

use std::time::Duration;

use crate::memory::{self, InMemory};
use crate::process::Topic;
use crate::process::budget::{self, TopicUse};
use crate::process::event_queue::Cells;
use crate::process::slot::{Slot, Word};
use crate::process::table::ProcessTable;
use crate::route::host::Engine;
use crate::sync::{Acquire, AtomicU32, AtomicU64, Relaxed, Release, fence};
use crate::worker::long::LongStep;
use crate::{LocalPid, Pid, clock};

/// Buckets of the histograms: bucket `n` holds times below `2^n` nanoseconds.
pub const BUCKETS: usize = 40;

/// One worker's counters. Written by its thread alone.
#[repr(align(128))]
pub(crate) struct Counters {
    /// Picks; the monitor takes one that does not move for a step that does not end.
    pub(crate) turns: AtomicU64,
    /// The slot of the process that it runs, or ran last.
    pub(crate) running: AtomicU32,
    pub(crate) spawned: AtomicU64,
    pub(crate) ended: AtomicU64,
    /// Those whose end has begun; it is told after this.
    pub(crate) ending: AtomicU64,
    pub(crate) steals: AtomicU64,
    pub(crate) steal_tries: AtomicU64,
    pub(crate) parks: AtomicU64,
    pub(crate) long_spins: AtomicU64,
    pub(crate) spills: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) dropped_messages: AtomicU64,
    pub(crate) foreign_messages: AtomicU64,
    pub(crate) over_budget: AtomicU64,
    pub(crate) late_completions: AtomicU64,
    pub(crate) timers_fired: AtomicU64,
    pub(crate) retired: AtomicU64,
    pub(crate) polls: AtomicU64,
    pub(crate) poll_events: AtomicU64,
    step_times: [AtomicU64; BUCKETS],
    lateness: [AtomicU64; BUCKETS],
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            turns: AtomicU64::new(0),
            running: AtomicU32::new(0),
            spawned: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            ending: AtomicU64::new(0),
            steals: AtomicU64::new(0),
            steal_tries: AtomicU64::new(0),
            parks: AtomicU64::new(0),
            long_spins: AtomicU64::new(0),
            spills: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            dropped_messages: AtomicU64::new(0),
            foreign_messages: AtomicU64::new(0),
            over_budget: AtomicU64::new(0),
            late_completions: AtomicU64::new(0),
            timers_fired: AtomicU64::new(0),
            retired: AtomicU64::new(0),
            polls: AtomicU64::new(0),
            poll_events: AtomicU64::new(0),
            step_times: std::array::from_fn(|_| AtomicU64::new(0)),
            lateness: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// For the next host that uses the hub; nobody else has it.
    pub(crate) fn reset(&self) {
        for counter in self.all().into_iter().chain(&self.step_times).chain(&self.lateness) {
            counter.store(0, Relaxed);
        }
        self.running.store(0, Relaxed);
    }

    fn all(&self) -> [&AtomicU64; 18] {
        [
            &self.turns,
            &self.spawned,
            &self.ended,
            &self.ending,
            &self.steals,
            &self.steal_tries,
            &self.parks,
            &self.long_spins,
            &self.spills,
            &self.panics,
            &self.dropped_messages,
            &self.foreign_messages,
            &self.over_budget,
            &self.late_completions,
            &self.timers_fired,
            &self.retired,
            &self.polls,
            &self.poll_events,
        ]
    }

    /// Adds one, by the only writer.
    #[inline(always)]
    pub(crate) fn bump(counter: &AtomicU64) {
        // Release: a reader that sees an end or a birth counted sees what came before it (`Hub::live`).
        counter.store(counter.load(Relaxed).wrapping_add(1), Release);
    }

    /// Adds so many, by the only writer.
    pub(crate) fn add(counter: &AtomicU64, more: u64) {
        counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// Counts a turn, by the runner. It never comes back to 0 or 1, which mean that the first turn is to
    /// come, or is this one.
    #[inline(always)]
    pub(crate) fn bump_steps(steps: &AtomicU32) {
        steps.store(steps.load(Relaxed).checked_add(1).unwrap_or(2), Relaxed);
    }

    pub(crate) fn note_step(&self, nanos: u64) {
        Self::bump(&self.step_times[bucket(nanos)]);
    }

    /// Timers of a busy worker are fired by others: this counter has several writers only in that case,
    /// and each writes its own worker's.
    pub(crate) fn note_lateness(&self, nanos: u64) {
        Self::bump(&self.lateness[bucket(nanos)]);
    }
}

fn bucket(nanos: u64) -> usize {
    ((u64::BITS - nanos.leading_zeros()) as usize).min(BUCKETS - 1)
}

/// Times in buckets by powers of two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
}

impl Histogram {
    fn empty() -> Self {
        Self { buckets: [0; BUCKETS] }
    }

    /// Bucket `n` counts times below `2^n` nanoseconds and not below half of that.
    #[must_use]
    pub fn buckets(&self) -> &[u64; BUCKETS] {
        &self.buckets
    }

    /// How many times were noted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// An upper bound of the given quantile (0 to 1), exact to a factor of two; `None` if nothing was noted.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let count = self.count();
        let rank = ((count as f64 * quantile.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut seen = 0;
        self.buckets.iter().enumerate().find_map(|(index, bucket)| {
            seen += bucket;
            (seen >= rank && count > 0).then(|| Duration::from_nanos(1 << index))
        })
    }

    fn add(&mut self, counters: &[AtomicU64; BUCKETS]) {
        for (sum, counter) in self.buckets.iter_mut().zip(counters) {
            *sum += counter.load(Relaxed);
        }
    }
}

/// One worker's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerStats {
    /// Turns begun, idle looks included.
    pub turns: u64,
    /// Processes that its steps spawned.
    pub spawned: u64,
    /// Processes that ended on it.
    pub ended: u64,
    /// Successful steals from others.
    pub steals: u64,
    /// Rounds over the others.
    pub steal_tries: u64,
    /// Times it went to sleep.
    pub parks: u64,
    /// Times it spun on as the last searcher, up to `spin_max`.
    pub long_spins: u64,
    /// Times a local queue was full and its older half went to the global queue.
    pub spills: u64,
    /// Panics contained by this worker: of steps, `init`, stop hooks, handlers and lifecycle hooks, and of the
    /// drops of what belonged to processes (bodies, messages, results, errors). Those of blocking closures, and
    /// what other threads contain, are told to who waits and not counted here.
    pub panics: u64,
    /// Messages dropped with a process that had not taken them, or by a reset.
    pub dropped_messages: u64,
    /// Messages that reached actors of another type and were dropped by the default [`crate::Actor::event`].
    pub foreign_messages: u64,
    /// Messages to processes of this scheduler that its steps sent and a budget did not admit; those sent from
    /// elsewhere are in [`Stats::over_budget_outside`]. Of each topic: [`topics_of`].
    pub over_budget: u64,
    /// Answers to yields that were no longer out. What comes for a thread that has stopped waiting is not
    /// counted: it belongs to no worker.
    pub late_completions: u64,
    /// Timers it fired, its own and those of busy workers.
    pub timers_fired: u64,
    /// Slots whose generations were used up.
    pub retired_slots: u64,
    /// Times it asked the poller for events, with or without waiting.
    pub polls: u64,
    /// Events that it got there.
    pub poll_events: u64,
    /// In its run-next place and deque now.
    pub queued_young: usize,
    /// In its FIFO now.
    pub queued_old: usize,
    /// In its inject queue now.
    pub queued_inject: usize,
    /// Timers armed now.
    pub timers: usize,
}

/// Processes by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByState {
    /// Waiting for messages.
    pub idle: usize,
    /// Waiting for yields.
    pub blocked: usize,
    /// Waiting for a worker.
    pub ready: usize,
    /// In a step.
    pub running: usize,
}

impl ByState {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> usize {
        self.idle + self.blocked + self.ready + self.running
    }
}

/// A scheduler's numbers as of about now.
#[derive(Debug, Clone)]
pub struct Stats {
    /// Each worker's.
    pub workers: Vec<WorkerStats>,
    /// Processes that threads outside spawned.
    pub spawned_outside: u64,
    /// Messages to its processes that others than its own steps sent and a budget did not admit.
    pub over_budget_outside: u64,
    /// Messages that waited for a name and were dropped with it by threads outside.
    pub dropped_outside: u64,
    /// In the global queue.
    pub queued_global: usize,
    /// Workers asleep.
    pub parked: usize,
    /// Workers looking for work.
    pub searching: usize,
    /// Processes by state.
    pub by_state: ByState,
    /// Times of sampled steps.
    pub step_times: Histogram,
    /// By how much timers were late.
    pub timer_lateness: Histogram,
    /// Threads for blocking closures, and closures that wait for one.
    pub blocking: (usize, usize),
    /// Who stood in for workers whose steps did not end.
    pub spares: SpareStats,
    /// Each spare worker's that was ever there, as `workers`.
    pub spare_workers: Vec<WorkerStats>,
    /// Steps of at least 10 ms, the worst of each worker: see [`LongStep`]. A step that blocks by its own
    /// word ([`crate::blocking`]) does not count, nor one that the monitor slept through because nothing
    /// waited behind it and everybody else was asleep.
    pub long_steps: Vec<LongStep>,
    /// How many there were in all.
    pub long_steps_count: u64,
    /// The poller.
    pub poller: crate::poller::PollerStats,
}

/// Spare workers, which stand in for those whose steps do not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SpareStats {
    /// Their threads now.
    pub threads: usize,
    /// Those that stand in now.
    pub standing_in: usize,
    /// Times the monitor lent one behind a step that did not say that it blocks.
    pub lent: u64,
    /// Times a step handed over to one before it blocked.
    pub handed_over: u64,
    /// Times one was recalled because the step had ended.
    pub recalled: u64,
    /// Times a step blocked by its own word with work behind it, and there was no spare for it.
    pub refused: u64,
    /// Times the system gave no thread for one.
    pub not_started: u64,
}

impl Stats {
    pub(crate) fn of(engine: &Engine) -> Self {
        let hub = engine.hub;
        let mut step_times = Histogram::empty();
        let mut timer_lateness = Histogram::empty();
        let mut of_worker = |worker: &crate::worker::WorkerShared| {
            let counters = &worker.counters;
            step_times.add(&counters.step_times);
            timer_lateness.add(&counters.lateness);
            let (queued_young, queued_old, queued_inject) = worker.queued();
            let of = |counter: &AtomicU64| counter.load(Relaxed);
            WorkerStats {
                turns: of(&counters.turns),
                spawned: of(&counters.spawned),
                ended: of(&counters.ended),
                steals: of(&counters.steals),
                steal_tries: of(&counters.steal_tries),
                parks: of(&counters.parks),
                long_spins: of(&counters.long_spins),
                spills: of(&counters.spills),
                panics: of(&counters.panics),
                dropped_messages: of(&counters.dropped_messages),
                foreign_messages: of(&counters.foreign_messages),
                over_budget: of(&counters.over_budget),
                late_completions: of(&counters.late_completions),
                timers_fired: of(&counters.timers_fired),
                retired_slots: of(&counters.retired),
                polls: of(&counters.polls),
                poll_events: of(&counters.poll_events),
                queued_young,
                queued_old,
                queued_inject,
                timers: worker.timers.len(),
            }
        };
        let workers = hub.workers.iter().map(&mut of_worker).collect();
        let spare_workers = hub.spares().map(&mut of_worker).collect();
        let now = clock::now_nanos();
        let (mut long_steps, mut long_steps_count) = (Vec::new(), 0);
        for (index, worker) in hub.workers.iter().chain(hub.spares()).enumerate() {
            let (kept, count) = worker.long.read(index, now);
            long_steps.extend(kept);
            long_steps_count += count;
        }
        let (parked, searching) = hub.idle.counts();
        let mut by_state = ByState::default();
        for_each_process(hub.id, |_, word, _| match () {
            () if word.is_ready() => by_state.ready += 1,
            () if word.is_running() => by_state.running += 1,
            () if word.is_blocked() => by_state.blocked += 1,
            () => by_state.idle += 1,
        });
        Self {
            workers,
            spawned_outside: hub.outside_births(),
            over_budget_outside: hub.over_budget_outside.load(Relaxed),
            dropped_outside: hub.dropped_outside(),
            queued_global: hub.global.len(),
            parked,
            searching,
            by_state,
            step_times,
            timer_lateness,
            blocking: engine.blocking.sizes(),
            spares: engine.spares.stats(),
            spare_workers,
            long_steps,
            long_steps_count,
            poller: hub.poller.stats(),
        }
    }

    /// The sum over the workers, spare ones included.
    #[must_use]
    pub fn total(&self) -> WorkerStats {
        Self::sum(self.workers.iter().chain(&self.spare_workers))
    }

    fn sum<'a>(workers: impl Iterator<Item = &'a WorkerStats>) -> WorkerStats {
        workers.fold(WorkerStats::default(), |sum, worker| WorkerStats {
            turns: sum.turns + worker.turns,
            spawned: sum.spawned + worker.spawned,
            ended: sum.ended + worker.ended,
            steals: sum.steals + worker.steals,
            steal_tries: sum.steal_tries + worker.steal_tries,
            parks: sum.parks + worker.parks,
            long_spins: sum.long_spins + worker.long_spins,
            spills: sum.spills + worker.spills,
            panics: sum.panics + worker.panics,
            dropped_messages: sum.dropped_messages + worker.dropped_messages,
            foreign_messages: sum.foreign_messages + worker.foreign_messages,
            over_budget: sum.over_budget + worker.over_budget,
            late_completions: sum.late_completions + worker.late_completions,
            timers_fired: sum.timers_fired + worker.timers_fired,
            retired_slots: sum.retired_slots + worker.retired_slots,
            polls: sum.polls + worker.polls,
            poll_events: sum.poll_events + worker.poll_events,
            queued_young: sum.queued_young + worker.queued_young,
            queued_old: sum.queued_old + worker.queued_old,
            queued_inject: sum.queued_inject + worker.queued_inject,
            timers: sum.timers + worker.timers,
        })
    }
}

/// What the processes of a host have registered and not taken back.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registrations {
    /// Entries in the table of monitors, links, kills and waits.
    pub watched: usize,
    /// Monitors, links and waits in those entries, counted at both their ends.
    pub watches: usize,
    /// Names, held ones included; of all hosts of the runtime.
    pub names: usize,
    /// Timers armed.
    pub timers: usize,
    /// Mailboxes with an account of budgets.
    pub accounts: usize,
    /// Sockets registered with the poller.
    pub descriptors: usize,
    /// Entries in the lists of those who wait for them.
    pub socket_waiters: usize,
}

impl Registrations {
    pub(crate) fn of(engine: &Engine) -> Self {
        let (watched, watches) = crate::route::links::registrations(engine.hub.id);
        Self {
            watched,
            watches,
            names: engine.names.len(),
            timers: engine.hub.workers.iter().map(|worker| worker.timers.len()).sum(),
            accounts: budget::accounts_of(engine.hub.id),
            descriptors: engine.hub.poller.stats().descriptors,
            socket_waiters: engine.hub.poller.waiting(),
        }
    }
}

impl std::fmt::Display for Stats {
    /// A table for people: a column for each worker, one for the spare ones if there were any, and one for
    /// all; then what belongs to no worker.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        type Row = (&'static str, fn(&WorkerStats) -> u64);
        const ROWS: [Row; 20] = [
            ("turns", |worker| worker.turns),
            ("spawned by steps", |worker| worker.spawned),
            ("ended", |worker| worker.ended),
            ("steals", |worker| worker.steals),
            ("steal rounds", |worker| worker.steal_tries),
            ("parks", |worker| worker.parks),
            ("long spins", |worker| worker.long_spins),
            ("queue spills", |worker| worker.spills),
            ("panics contained", |worker| worker.panics),
            ("messages dropped", |worker| worker.dropped_messages),
            ("messages foreign", |worker| worker.foreign_messages),
            ("over budget", |worker| worker.over_budget),
            ("late completions", |worker| worker.late_completions),
            ("timers fired", |worker| worker.timers_fired),
            ("polls", |worker| worker.polls),
            ("poll events", |worker| worker.poll_events),
            ("queued: young", |worker| worker.queued_young as u64),
            ("queued: old", |worker| worker.queued_old as u64),
            ("queued: injected", |worker| worker.queued_inject as u64),
            ("timers armed", |worker| worker.timers as u64),
        ];
        write!(f, "{:<18}", "")?;
        for worker in 0..self.workers.len() {
            write!(f, "{:>14}", format!("worker {worker}"))?;
        }
        let spares = (!self.spare_workers.is_empty()).then(|| Self::sum(self.spare_workers.iter()));
        if spares.is_some() {
            write!(f, "{:>14}", "spares")?;
        }
        writeln!(f, "{:>14}", "all")?;
        let total = self.total();
        for (name, of) in ROWS {
            write!(f, "{name:<18}")?;
            for worker in self.workers.iter().chain(&spares).chain([&total]) {
                write!(f, "{:>14}", of(worker))?;
            }
            writeln!(f)?;
        }
        let ByState { idle, blocked, ready, running } = self.by_state;
        writeln!(f, "processes         {idle} idle, {blocked} blocked, {ready} ready, {running} running")?;
        writeln!(f, "spawned outside   {}", self.spawned_outside)?;
        writeln!(f, "over budget       {} sent from outside", self.over_budget_outside)?;
        writeln!(f, "dropped outside   {}", self.dropped_outside)?;
        writeln!(f, "global queue      {}", self.queued_global)?;
        writeln!(f, "workers           {} parked, {} searching", self.parked, self.searching)?;
        writeln!(f, "blocking          {} threads, {} waiting", self.blocking.0, self.blocking.1)?;
        let SpareStats { threads, standing_in, lent, handed_over, recalled, refused, not_started } =
            self.spares;
        writeln!(
            f,
            "spares            {threads} threads, {standing_in} standing in; {lent} lent, {handed_over} handed \
             over, {recalled} recalled, {refused} refused, {not_started} not started"
        )?;
        writeln!(f, "long steps        {}", self.long_steps_count)?;
        let mut worst: Vec<_> = self.long_steps.iter().collect();
        worst.sort_unstable_by_key(|step| std::cmp::Reverse(step.longest));
        for step in worst.iter().take(8) {
            let LongStep { pid, worker, count, longest, is_running } = step;
            let running = if *is_running { ", runs still" } else { "" };
            writeln!(f, "  {pid}  on worker {worker}, {count} times, longest {longest:?}{running}")?;
        }
        let crate::PollerStats { descriptors, monitor_polls, rings, repairs, accept_pauses } = self.poller;
        writeln!(
            f,
            "poller            {descriptors} descriptors, {rings} rings, {monitor_polls} polls of the monitor, \
             {repairs} repairs, {accept_pauses} accept pauses"
        )?;
        for (name, times) in [("step time", &self.step_times), ("timer lateness", &self.timer_lateness)] {
            let below = |part| match times.quantile(part) {
                Some(time) => format!("{time:?}"),
                None => "-".to_owned(),
            };
            let (half, most, all) = (below(0.5), below(0.99), below(1.0));
            writeln!(f, "{name:<18}{} samples, half < {half}, 99 % < {most}, all < {all}", times.count())?;
        }
        Ok(())
    }
}

/// The state of a process, as a reader sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProcessState {
    /// Waiting for a worker.
    Ready,
    /// In a step.
    Running,
    /// Waiting for yields.
    Blocked,
    /// Waiting for messages.
    Idle,
}

/// One process, as of about now.
#[derive(Debug, Clone)]
pub struct ProcessInfo {
    /// Its address.
    pub pid: Pid,
    /// Where it stands.
    pub state: ProcessState,
    /// The name of its type.
    pub type_name: &'static str,
    /// Turns it has had (modulo 2^32).
    pub steps: u32,
    /// Since it was spawned, to a tenth of a second.
    pub age: Duration,
    /// Messages that wait for it, read in constant time. 0 while they come and go too fast to be counted.
    pub mailbox_depth: usize,
    /// The worker that ran it last.
    pub worker: usize,
}

/// Every live process of a host: its slot, the word and the generation it began with, which were there
/// together at one moment.
fn for_each_process(host: u16, mut act: impl FnMut(LocalPid, Word, &'static Slot)) {
    for number in memory::slot_numbers() {
        let slot = memory::slot(number);
        let word = slot.word();
        if word.is_free() {
            continue;
        }
        let (theirs, first) = (slot.host.load(Relaxed), slot.first());
        // Acquire: host and generation are read before the word is looked at again, and both are written
        // only while the slot is FREE: in the same generation they are of that life.
        fence(Acquire);
        if theirs != host || !is_still(slot, word, first) {
            continue;
        }
        if let Some(pid) = LocalPid::new(number, first) {
            act(pid, word, slot);
        }
    }
}

/// Is the life that began with `first` still going on? A reset of its queue may have changed the generation.
fn is_still(slot: &Slot, seen: Word, first: u32) -> bool {
    let word = slot.word();
    word.generation() == seen.generation() || (!word.is_free() && slot.first() == first)
}

/// Every live process of a host: its PID.
pub(crate) fn live_pids(host: u16) -> Vec<LocalPid> {
    let mut pids = Vec::new();
    for_each_process(host, |pid, _, _| pids.push(pid));
    pids
}

/// Messages in a mailbox. A cell's count is its mailbox's only while the mailbox has the cell: so the two ends
/// must be the same before and after.
fn depth(slot: &Slot) -> usize {
    for _ in 0..8 {
        let ends = || (slot.inbox.load(Relaxed), slot.word().head());
        let (inbox, head) = ends();
        let count = InMemory.count(head) + InMemory.count(inbox);
        fence(Acquire);
        if ends() == (inbox, head) {
            return count as usize;
        }
    }
    0
}

pub(crate) fn list(engine: &Engine) -> Vec<ProcessInfo> {
    let now = (clock::refresh() / 100_000_000) as u32;
    let mut infos = Vec::new();
    for_each_process(engine.hub.id, |pid, word, slot| {
        let table = slot.table.load(Acquire);
        let steps = slot.steps.load(Relaxed);
        let born = slot.born.load(Relaxed);
        let worker = slot.worker.load(Relaxed) as usize;
        let mailbox_depth = depth(slot);
        fence(Acquire);
        // The same life still: what was read belongs together.
        if !is_still(slot, word, pid.generation()) || table.is_null() {
            return;
        }
        infos.push(ProcessInfo {
            pid: Pid::new(0, engine.hub.id, pid),
            state: match () {
                () if word.is_ready() => ProcessState::Ready,
                () if word.is_running() => ProcessState::Running,
                () if word.is_blocked() => ProcessState::Blocked,
                () => ProcessState::Idle,
            },
            // SAFETY: a table is a static; it was read within one life, which was published with one.
            type_name: unsafe { (*table.cast_const().cast::<ProcessTable>()).name() },
            steps,
            age: Duration::from_millis(u64::from(now.saturating_sub(born)) * 100),
            mailbox_depth,
            worker,
        });
    });
    infos
}

/// The topics with budgets in the mailbox of a process: use, drops, high-water mark.
#[must_use]
pub fn topics_of(pid: Pid) -> Vec<(Topic, TopicUse)> {
    budget::topics_of(pid.local())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_bounds() {
        let counters = Counters::new();
        for nanos in [1, 100, 1000, 1_000_000] {
            counters.note_step(nanos);
        }
        let mut histogram = Histogram::empty();
        histogram.add(&counters.step_times);
        assert_eq!(histogram.count(), 4);
        assert_eq!(histogram.quantile(0.5), Some(Duration::from_nanos(128)));
        assert_eq!(histogram.quantile(1.0), Some(Duration::from_nanos(1 << 20)));
        assert_eq!(Histogram::empty().quantile(0.5), None);
    }

    #[test]
    fn the_longest_times_have_a_bucket() {
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(1), 1);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }
}
