//! Spare workers: who waits behind a step that does not end is run by somebody who stands in, whether the
//! step said that it blocks or not; nothing is lost on the way there and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use evener_scheduler::commands::Sleep;
use evener_scheduler::{
    Builder, Event, Events, InitContext, Package, Payload, Pid, Process, ProcessError, ProcessState,
    Scheduler, SpawnOptions, StartError, StepOutput, Tag, blocking, send,
};

use crate::support::{
    ON_PURPOSE, Rng, in_a_program_of_its_own, process, quiet_panics, recv, state, still_works, until,
};

fn host(workers: usize) -> Scheduler {
    started(Scheduler::builder().workers(workers))
}

fn started(builder: Builder) -> Scheduler {
    quiet_panics();
    builder.start().expect("it starts")
}

/// A process that tells each number that it gets.
fn teller(s: &Scheduler) -> (Pid, Receiver<u64>) {
    let (sender, receiver) = channel();
    let step = move |events: &mut Events<'_>, _: &mut StepOutput<'_>| {
        for event in events.by_ref() {
            if let Event::Message(message) = event {
                let _ = sender.send(message.take::<u64>().unwrap());
            }
        }
        Ok(())
    };
    let pid = s.spawn(process(step), SpawnOptions::new()).unwrap();
    until("it waits", || state(s, pid) == Some(ProcessState::Idle));
    (pid, receiver)
}

/// How a step does not end.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Stuck {
    Sleeps,
    Computes,
    Declares,
}

const STUCK: [Stuck; 3] = [Stuck::Sleeps, Stuck::Computes, Stuck::Declares];

impl Stuck {
    /// Till somebody says that it may end.
    fn until_told(self, may_end: &AtomicBool) {
        let wait = |pause: fn()| {
            while !may_end.load(SeqCst) {
                pause();
            }
        };
        match self {
            Stuck::Sleeps => wait(|| std::thread::sleep(Duration::from_millis(300))),
            Stuck::Computes => wait(std::hint::spin_loop),
            Stuck::Declares => blocking(|| wait(|| std::thread::sleep(Duration::from_millis(5)))),
        }
    }
}

/// A step that does not end till it is told to.
struct Hog {
    may_end: Arc<AtomicBool>,
    has_begun: Receiver<()>,
    has_ended: Receiver<()>,
    pid: Pid,
}

impl Hog {
    /// `first` runs within the step, before it gets stuck.
    fn new(s: &Scheduler, stuck: Stuck, first: impl FnOnce(&mut StepOutput<'_>) + Send + 'static) -> Self {
        let may_end = Arc::new(AtomicBool::new(false));
        let (begun, has_begun) = channel();
        let (ended, has_ended) = channel();
        let told = Arc::clone(&may_end);
        let pid = s
            .spawn_once(move |out| {
                first(out);
                begun.send(()).unwrap();
                stuck.until_told(&told);
                let _ = ended.send(());
            })
            .unwrap();
        Self { may_end, has_begun, has_ended, pid }
    }

    fn begun(self) -> Self {
        recv(&self.has_begun);
        self
    }

    fn end(self) {
        assert!(self.has_ended.try_recv().is_err(), "the step ended by itself");
        self.may_end.store(true, SeqCst);
        recv(&self.has_ended);
    }
}

/// Whoever stood in has gone, and nothing is queued.
fn all_is_as_before(s: &Scheduler, workers: usize) {
    until("who stood in is recalled", || s.stats().spares.standing_in == 0);
    until("all sleep", || s.stats().parked == workers);
    let stats = s.stats();
    assert_eq!((stats.searching, stats.queued_global), (0, 0), "{stats}");
    for worker in stats.workers.iter().chain(&stats.spare_workers) {
        assert_eq!((worker.queued_young, worker.queued_old, worker.queued_inject), (0, 0, 0), "{stats}");
    }
}

#[test]
fn with_one_worker_others_run_during_a_step_that_does_not_end() {
    for stuck in STUCK {
        let s = host(1);
        let (pid, told) = teller(&s);
        let (sender, newborn) = channel();
        // Left behind: in the run-next place, and in the deque.
        let hog = Hog::new(&s, stuck, move |out| {
            out.spawn_once(move |_| sender.send(()).unwrap()).unwrap();
            out.send(pid, 0_u64).unwrap();
        })
        .begun();
        recv(&newborn);
        assert_eq!(recv(&told), 0);
        // What comes later: to the inject queue of the absent worker, and to the global queue.
        for number in 1..=200 {
            send(Package::new(pid, number)).unwrap();
            assert_eq!(recv(&told), number);
        }
        still_works(&s, 100);
        let spares = s.stats().spares;
        assert!(spares.standing_in >= 1 && spares.lent + spares.handed_over >= 1, "{stuck:?}: {spares:?}");
        hog.end();
        all_is_as_before(&s, 1);
        let stats = s.stats();
        assert!(stats.spares.recalled >= 1, "{stuck:?}: {stats}");
        assert!(!stats.spare_workers.is_empty() && stats.to_string().contains("spares"), "{stats}");
        still_works(&s, 100);
    }
}
