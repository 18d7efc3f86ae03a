//! The end of a scheduler.
//!
//! | phase | entered by | what holds |
//! | --- | --- | --- |
//! | open | start | |
//! | closing | `shutdown` | nobody is born; every process has been asked to end |
//! | ending | its deadline, or a drop | whoever is left is killed; a running step goes on to its end |
//! | gone | nobody is left | workers and monitor leave |
//!
//! The hub is given back, for a later host to use, by the last of those who know it: threads and handles.
//! Not earlier: a handle to a scheduler that has ended must find it ended, not somebody else's.
//!
//! A step that does not end keeps its thread, its process and the hub: they are reported, detached, and
//! taken apart whenever the step ends. Nothing of them is freed before.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::memory;
use crate::route::host::{Engine, Phase, StartError};
use crate::route::links;
use crate::stats::live_pids;
use crate::sync::{Condvar, Mutex, Relaxed};
use crate::trace::{DROP_WAIT, Kind};
use crate::worker::WorkerShared;
use crate::{LocalPid, Pid, clock};

/// How long a shutdown waits, after its deadline, for those that it ended by force.
const FORCE_WAIT: Duration = Duration::from_millis(200);

/// The threads of a host.
pub(crate) struct Threads {
    state: Mutex<State>,
    changed: Condvar,
    /// Who has been asked to end by a shutdown.
    asked: Mutex<HashSet<LocalPid>>,
}

#[derive(Default)]
struct State {
    handles: Vec<JoinHandle<()>>,
    running: usize,
    has_panicked: bool,
}

impl Threads {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), asked: Mutex::default() }
    }

    /// Starts one thread of the host.
    pub(crate) fn start(
        &self,
        engine: &Arc<Engine>,
        which: String,
        life: impl FnOnce(&Arc<Engine>) + Send + 'static,
    ) -> Result<(), StartError> {
        let thread_engine = Arc::clone(engine);
        let mut state = self.state.lock();
        // Spares' threads come and go.
        for ended in state.handles.extract_if(.., |handle| handle.is_finished()).collect::<Vec<_>>() {
            state.has_panicked |= ended.join().is_err();
        }
        let handle = thread_builder(engine.config.stack_size)
            // A thread's name cannot have a NUL in it; a host's can.
            .name(format!("{} {which}", engine.name).replace('\0', "?"))
            .spawn(move || {
                life(&thread_engine);
                if thread_engine.threads.left() {
                    // Nobody records any more.
                    thread_engine.observers.write_file(&thread_engine);
                }
            })
            .map_err(|source| StartError::Thread { which, host: engine.name.clone(), source })?;
        state.running += 1;
        state.handles.push(handle);
        Ok(())
    }

    /// A thread has come to its end. `true`: it was the last.
    fn left(&self) -> bool {
        let mut state = self.state.lock();
        state.running -= 1;
        self.changed.notify_all();
        state.running == 0
    }

    /// Wakes who waits for processes to end.
    pub(crate) fn note_change(&self) {
        // Under the lock, so that a waiter between its look and its wait hears it.
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    /// Waits till `done`, at most till `deadline`. `true`: done.
    fn wait(&self, deadline: u64, mut done: impl FnMut() -> bool) -> bool {
        let mut state = self.state.lock();
        loop {
            if done() {
                return true;
            }
            let now = clock::now_nanos();
            if now >= deadline {
                return false;
            }
            // Looks again at least this often: ends are not told one by one.
            let limit = Duration::from_nanos(deadline - now).min(Duration::from_millis(2));
            state = self.changed.wait_timeout(state, limit);
        }
    }
}

/// How a shutdown went: where each process is by now that was alive at the call (or was born meanwhile, by a
/// step that was just spawning). The four add up to their number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Report {
    /// Processes that ended by themselves between the call and the deadline.
    pub finished: usize,
    /// Processes that were ended at the deadline, and are gone.
    pub ended_by_force: usize,
    /// Steps that still run: the process, and since about when its present turn has been seen running.
    /// Their threads are detached.
    pub still_running: Vec<(Pid, Duration)>,
    /// Processes that are to be ended and wait for a worker, because steps that still run have them all (or
    /// because there are more than could be ended in the time after the deadline). They end, with their stop
    /// hooks, as soon as one is free.
    pub not_reached: usize,
}

/// Begins to close, if no call has: nobody is born from here on, everybody is asked to end.
pub(crate) fn begin(engine: &Engine, call: Call) {
    if engine.hub.advance(Phase::Closing) {
        engine.blocking.close();
        ask_all(engine, call);
    }
}

/// Asks everybody to end who was not asked yet, as far as that is possible till the deadline: who was not asked by
/// then is ended all the same.
fn ask_all(engine: &Engine, call: Call) {
    let mut asked = engine.threads.asked.lock();
    for (count, pid) in live_pids(engine.hub.id).into_iter().enumerate() {
        if count % 256 == 255 && clock::now_nanos() >= call.end {
            return;
        }
        if asked.insert(pid) {
            links::ask_to_end(pid, "shutdown".into(), call.told);
        }
    }
}

/// What a shutdown is measured by.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// The deadline, in nanoseconds of [`clock`].
    end: u64,
    /// The same for processes; `None`: it never comes.
    told: Option<Instant>,
    /// Processes of the host that had ended before the call.
    ended_before: u64,
}

impl Call {
    pub(crate) fn new(engine: &Engine, deadline: Duration) -> Self {
        Self {
            end: clock::deadline(clock::now_nanos(), deadline),
            told: clock::now().checked_add(deadline),
            ended_before: engine.hub.ending(),
        }
    }

    /// As a call for another host at the same time, with the same deadline.
    pub(crate) fn of(self, engine: &Engine) -> Self {
        Self { ended_before: engine.hub.ending(), ..self }
    }
}

/// Begins, if that has not been done, and goes on to the end.
pub(crate) fn shutdown(engine: &Arc<Engine>, call: Call) -> Report {
    let Call { end, ended_before, .. } = call;
    let hub = engine.hub;
    begin(engine, call);
    let mut report = Report::default();
    let on_own_worker = crate::worker::current().is_some_and(|worker| worker.host() == hub.id);
    if on_own_worker {
        // It cannot wait for itself: the monitor goes on from here.
        hub.advance(Phase::Ending);
        hub.watch.call();
        return report;
    }
    // A step that was just spawning when the phase moved may publish its child after the others were
    // asked: look again, at growing gaps.
    let mut gap = Duration::from_millis(2);
    let mut next_look = clock::deadline(clock::now_nanos(), gap);
    engine.threads.wait(end, || {
        if hub.live() == 0 {
            return true;
        }
        if clock::now_nanos() >= next_look {
            ask_all(engine, call);
            gap *= 2;
            next_look = clock::deadline(clock::now_nanos(), gap);
        }
        false
    });
    report.finished = (hub.ending() - ended_before) as usize;
    hub.advance(Phase::Ending);
    hub.watch.call();
    hub.wake_all();
    let force_end = clock::deadline(clock::now_nanos(), FORCE_WAIT);
    let all_gone = engine.threads.wait(force_end, || hub.phase() == Phase::Gone || hub.live() == 0);
    if all_gone {
        join(engine);
        report.ended_by_force = (hub.ending() - ended_before) as usize - report.finished;
        return report;
    }
    let now = clock::now_nanos();
    for pid in live_pids(hub.id) {
        let slot = memory::slot(pid.slot());
        if !slot.word().is_running() {
            report.not_reached += 1;
        } else {
            // It may run on a spare, and the slot names that one's home.
            let home = slot.worker.load(Relaxed) as usize % hub.workers.len();
            let runs = |worker: &&WorkerShared| worker.counters.running.load(Relaxed) == pid.slot();
            let worker = hub.entries().find(runs).unwrap_or(&hub.workers[home]);
            let since = Duration::from_nanos(now.saturating_sub(worker.turn_seen_at.load(Relaxed)));
            report.still_running.push((Pid::new(0, hub.id, pid), since));
        }
    }
    // Who ends just now was seen by the walk above or not: each is counted in one place.
    let all = hub.born().saturating_sub(ended_before) as usize;
    let seen = report.finished + report.still_running.len() + report.not_reached;
    report.ended_by_force = all.saturating_sub(seen);
    // As far as it goes: who waits for the last of those steps may wait for ever.
    engine.observers.write_file(engine);
    report
}

/// A thread to be, with so much stack, or as much as is usual.
pub(crate) fn thread_builder(stack_size: Option<usize>) -> std::thread::Builder {
    let builder = std::thread::Builder::new();
    match stack_size {
        Some(bytes) => builder.stack_size(bytes),
        None => builder,
    }
}

/// Waits for the threads of a host that is as good as gone.
fn join(engine: &Engine) {
    loop {
        let handle = {
            let mut state = engine.threads.state.lock();
            assert!(!state.has_panicked, "a scheduler thread panicked");
            state.handles.pop()
        };
        let Some(handle) = handle else {
            return;
        };
        if handle.thread().id() != std::thread::current().id() {
            // A panic of a worker's thread would be a fault of ours: say so here, not in silence.
            handle.join().expect("a scheduler thread panicked");
        }
    }
}

/// The scheduler was dropped: what is left ends in the background. But if its trace goes to a file, and this
/// is no worker, the file is there before the program can end.
pub(crate) fn abandon(engine: &Engine) {
    engine.blocking.close();
    engine.hub.advance(Phase::Ending);
    engine.hub.watch.call();
    engine.hub.wake_all();
    if crate::worker::current().is_none() && engine.observers.owes_file() {
        let limit = clock::deadline(clock::now_nanos(), DROP_WAIT);
        let is_gone = engine.threads.wait(limit, || engine.hub.phase() == Phase::Gone);
        if is_gone && !std::thread::panicking() {
            join(engine);
        }
        engine.observers.write_file(engine);
    }
}

/// One sweep of the monitor in the ending phase: kills whoever is left. `true`: nobody is, and everybody
/// may go.
pub(crate) fn sweep(engine: &Engine) -> bool {
    let hub = engine.hub;
    if hub.live() == 0 {
        hub.advance(Phase::Gone);
        hub.poller.orphan_all();
        hub.end_timers();
        hub.wake_all();
        engine.spares.close(hub);
        // A worker that parks just now looks at the phase after entering the list.
        engine.threads.note_change();
        engine.observers.end();
        return true;
    }
    let left = live_pids(hub.id);
    hub.trace.monitor(Kind::Sweep, left.len());
    for pid in left {
        kill_for_good(pid);
    }
    false
}

fn kill_for_good(pid: LocalPid) {
    links::kill_silently(pid);
}
