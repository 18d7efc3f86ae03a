//! Steps that last: what the monitor makes of one, and the list of those it saw.
//!
//! Whether a step computes or blocks is told by the processor time of its thread, read from outside: it
//! stands still while the thread is off the processor. Where the system has no such clock every step is
//! taken to compute.

use std::time::Duration;

use crate::sync::{Mutex, Relaxed};
use crate::worker::WorkerShared;
use crate::{LocalPid, Pid, memory};

/// From here on a step is long: it is counted, and somebody stands in for it if work waits, though it
/// computes. In nanoseconds.
pub(crate) const LONG: u64 = 10_000_000;

/// Between two looks at a thread's processor time at least so many nanoseconds.
const STILL: u64 = 20_000;

/// A step whose thread is ready to run and gets no processor is not helped by one thread more, unless it
/// goes on for so long.
const STARVED: u64 = 1_000_000_000;

/// Long steps that are kept for each worker.
const KEPT_MAX: usize = 8;

/// What the monitor does about a step with work behind it that nobody else could take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Somebody stands in, now.
    Lend,
    /// It seems to be off the processor: another look soon.
    Soon,
    /// Another look in time.
    Later,
}

/// What is known of a step's thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    /// How long the step is known to last.
    wall: u64,
    /// Processor time since it was first read during the step; `None`: there is no such clock.
    used: Option<u64>,
    /// Time, and processor time, since the look before; `None`: this is the first.
    last: Option<(u64, u64)>,
}

/// The rule. `is_runnable` says whether the thread waits for a processor; it is asked only when it matters.
fn verdict(seen: Seen, is_runnable: impl FnOnce() -> bool) -> Verdict {
    let Some(used) = seen.used else {
        return if seen.wall >= LONG { Verdict::Lend } else { Verdict::Later };
    };
    if used >= LONG || seen.wall >= STARVED {
        return Verdict::Lend;
    }
    match seen.last {
        None => Verdict::Soon,
        Some((wall, _)) if wall < STILL => Verdict::Soon,
        // Off the processor for the most part.
        Some((wall, used)) if used < wall / 2 => match (is_runnable(), used) {
            (false, _) => Verdict::Lend,
            // It waits for a processor, as a stand-in would.
            (true, 0) => Verdict::Later,
            (true, _) => Verdict::Soon,
        },
        Some(_) => Verdict::Later,
    }
}

/// What the monitor knows of a worker's present turn.
pub(crate) struct Judge {
    turn: u64,
    has_moved: bool,
    /// Where its queues began at the last look.
    front: Option<(u16, u32)>,
    /// When, and at which processor time: first, and last.
    first: Option<u64>,
    last: Option<(u64, u64)>,
    is_counted: bool,
}

impl Judge {
    pub(crate) fn new() -> Self {
        Self { turn: u64::MAX, has_moved: true, front: None, first: None, last: None, is_counted: false }
    }

    pub(crate) fn turn(&self) -> u64 {
        self.turn
    }

    /// Had the turn moved at the last look?
    pub(crate) fn has_moved(&self) -> bool {
        self.has_moved
    }

    /// Looks at the worker's turn, and notes since when it is the same.
    pub(crate) fn note_turn(&mut self, worker: &WorkerShared, now: u64) {
        let turn = worker.turn();
        self.has_moved = turn != self.turn;
        if self.has_moved {
            if self.is_counted {
                worker.long.end(self.turn, now);
            }
            *self = Self { turn, ..Self::new() };
            worker.turn_seen_at.store(now, Relaxed);
        }
    }

    /// Notes where its queues begin. `true`: somebody has taken something from behind its step since the last note.
    pub(crate) fn note_front(&mut self, worker: &WorkerShared) -> bool {
        let front = worker.front();
        self.front.replace(front).is_some_and(|before| before != front)
    }

    /// Reads the processor time of the worker's thread.
    pub(crate) fn note_time(&mut self, worker: &WorkerShared, now: u64) -> Option<(u64, u64)> {
        let used = worker.thread_time.read()?;
        let before = self.last.replace((now, used));
        self.first.get_or_insert(used);
        before.map(|(at, before)| (now.saturating_sub(at), used.saturating_sub(before)))
    }

    /// What to do about its step.
    pub(crate) fn verdict(&mut self, worker: &WorkerShared, now: u64) -> Verdict {
        if worker.absence.is_away(self.turn) {
            return Verdict::Lend;
        }
        let last = self.note_time(worker, now);
        let used = self.first.zip(self.last).map(|(first, (_, used))| used.saturating_sub(first));
        let wall = now.saturating_sub(worker.turn_seen_at.load(Relaxed));
        verdict(Seen { wall, used, last }, || worker.thread_time.is_runnable())
    }

    /// When its step will be counted as long, if it goes on; `None`: it is, or blocks by its own word.
    pub(crate) fn long_at(&self, worker: &WorkerShared) -> Option<u64> {
        let counts = !self.is_counted && !worker.absence.is_away(self.turn);
        counts.then(|| worker.turn_seen_at.load(Relaxed).saturating_add(LONG))
    }

    /// Counts the step, which has not ended, if it is long.
    pub(crate) fn count_if_long(&mut self, worker: &WorkerShared, host: u16, now: u64) {
        if self.long_at(worker).is_none_or(|at| now < at) {
            return;
        }
        let Some(pid) = running(worker, self.turn) else {
            return;
        };
        self.is_counted = true;
        worker.long.begin(self.turn, Pid::new(0, host, pid), worker.turn_seen_at.load(Relaxed));
        // So that the worker says when it ended.
        worker.ask_attention();
    }
}

/// Which process a worker runs in that turn.
fn running(worker: &WorkerShared, turn: u64) -> Option<LocalPid> {
    let number = worker.counters.running.load(Relaxed);
    let slot = memory::find_slot(number)?;
    let (word, first) = (slot.word(), slot.first());
    // Read within one turn, so they belong together: the slot is the runner's till the turn ends.
    (word.is_running() && worker.turn() == turn).then(|| LocalPid::new(number, first)).flatten()
}

/// One process whose steps were long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LongStep {
    /// Who.
    pub pid: Pid,
    /// The worker on which the last of them ran.
    pub worker: usize,
    /// How many.
    pub count: u64,
    /// The longest, from when the monitor first saw it; the present one included.
    pub longest: Duration,
    /// Does the last of them still run?
    pub is_running: bool,
}

struct Entry {
    pid: Pid,
    count: u64,
    longest: u64,
    /// The turn, and since when, of one that runs.
    running: Option<(u64, u64)>,
}

#[derive(Default)]
struct Kept {
    entries: Vec<Entry>,
    count: u64,
    /// The turn that its worker has ended, and when.
    ended: (u64, u64),
}

/// The long steps of one worker: the worst it has had. Its lock is taken by the monitor and by readers; by
/// the worker itself at the end of a long step.
pub(crate) struct LongSteps(Mutex<Kept>);

impl LongSteps {
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    pub(crate) fn reset(&self) {
        *self.0.lock() = Kept::default();
    }

    fn begin(&self, turn: u64, pid: Pid, since: u64) {
        let mut kept = self.0.lock();
        kept.count += 1;
        let running = Some((turn, since));
        if let Some(entry) = kept.entries.iter_mut().find(|entry| entry.pid == pid) {
            entry.count += 1;
            entry.running = running;
            return;
        }
        if kept.entries.len() == KEPT_MAX {
            // The newest is kept, and of the others the worst.
            let shortest = (0..KEPT_MAX).min_by_key(|&at| kept.entries[at].longest);
            kept.entries.swap_remove(shortest.expect("there are some"));
        }
        kept.entries.push(Entry { pid, count: 1, longest: 0, running });
    }

    /// The worker says when the turn ended.
    pub(crate) fn note_end(&self, turn: u64, now: u64) {
        self.0.lock().ended = (turn, now);
    }

    fn end(&self, turn: u64, now: u64) {
        let mut kept = self.0.lock();
        let at = if kept.ended.0 == turn { kept.ended.1 } else { now };
        for entry in &mut kept.entries {
            if let Some((running, since)) = entry.running
                && running == turn
            {
                entry.running = None;
                entry.longest = entry.longest.max(at.saturating_sub(since));
            }
        }
    }

    /// Those kept, and how many there were in all.
    pub(crate) fn read(&self, worker: usize, now: u64) -> (Vec<LongStep>, u64) {
        let kept = self.0.lock();
        let of = |entry: &Entry| {
            let ended = |turn| kept.ended.0 == turn;
            let present = entry.running.map_or(0, |(turn, since)| {
                let end = if ended(turn) { kept.ended.1 } else { now };
                end.saturating_sub(since)
            });
            LongStep {
                pid: entry.pid,
                worker,
                count: entry.count,
                longest: Duration::from_nanos(entry.longest.max(present)),
                is_running: entry.running.is_some_and(|(turn, _)| !ended(turn)),
            }
        };
        (kept.entries.iter().map(of).collect(), kept.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule() {
        let seen = |wall, used, last| Seen { wall, used, last };
        let rows = [
            // Without a clock for threads only the time counts.
            (seen(LONG - 1, None, None), true, Verdict::Later),
            (seen(LONG, None, None), true, Verdict::Lend),
            // The first look tells nothing, nor does one that comes at once after another.
            (seen(0, Some(0), None), false, Verdict::Soon),
            (seen(100_000, Some(0), Some((STILL - 1, 0))), false, Verdict::Soon),
            // Off the processor, and not waiting for one.
            (seen(100_000, Some(0), Some((STILL, 0))), false, Verdict::Lend),
            (seen(100_000, Some(0), Some((STILL, 0))), true, Verdict::Later),
            (seen(STARVED, Some(0), Some((STILL, 0))), true, Verdict::Lend),
            // Off it for the most part; on it all the time; on it for too long.
            (seen(200_000, Some(30_000), Some((100_000, 30_000))), false, Verdict::Lend),
            (seen(200_000, Some(30_000), Some((100_000, 30_000))), true, Verdict::Soon),
            (seen(200_000, Some(99_000), Some((100_000, 99_000))), false, Verdict::Later),
            (seen(LONG, Some(LONG), Some((100_000, 99_000))), false, Verdict::Lend),
        ];
        for (seen, is_runnable, expected) in rows {
            assert_eq!(verdict(seen, || is_runnable), expected, "{seen:?}, runnable: {is_runnable}");
        }
    }

    #[test]
    fn the_worst_are_kept_and_all_are_counted() {
        let long = LongSteps::new();
        let pid = |slot| Pid::new(0, 0, LocalPid::new(slot, 1).unwrap());
        for slot in 1..=20 {
            let turn = u64::from(slot);
            long.begin(turn, pid(slot), 1000);
            long.end(turn, 1000 + turn);
        }
        long.begin(100, pid(20), 5000);
        let (kept, count) = long.read(3, 5500);
        assert_eq!((kept.len(), count), (KEPT_MAX, 21));
        let last = kept.iter().find(|step| step.pid == pid(20)).unwrap();
        assert_eq!((last.count, last.is_running, last.worker), (2, true, 3));
        assert_eq!(last.longest, Duration::from_nanos(500));
        assert!(kept.iter().all(|step| step.pid.local().slot() > 12), "{kept:?}");
        // The worker knows better than the monitor when it ended.
        long.note_end(100, 5600);
        assert!(!long.read(3, 9000).0.iter().any(|step| step.is_running));
        long.end(100, 9000);
        let (kept, _) = long.read(3, 9000);
        let last = kept.iter().find(|step| step.pid == pid(20)).unwrap();
        assert_eq!(last.longest, Duration::from_nanos(600));
    }
}
