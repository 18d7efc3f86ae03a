//! Spare workers: who waits behind a step that does not end is run by somebody who stands in, whether the
//! step said that it blocks or not; nothing is lost on the way there and back.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use evener_scheduler::commands::Sleep;
use evener_scheduler::{
    Builder, Command, CommandId, Completer, Event, Events, ExitReason, HandlerContext, InitContext,
    LifecycleHooks, Package, Payload, Pid, Process, ProcessError, ProcessState, SPARES_MAX, Scheduler,
    SpawnOptions, StartError, StepOutput, Tag, blocking, send,
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

/// A process that tells each number that it gets, and ends when it is asked to.
fn teller(s: &Scheduler) -> (Pid, Receiver<u64>) {
    let (sender, receiver) = channel();
    let step = move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
        for event in events.by_ref() {
            match event {
                Event::Message(message) => drop(sender.send(message.take::<u64>().unwrap())),
                Event::Cancel(_) => out.done(()),
                _ => {}
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

/// What a process of an absent worker waits for reaches it: messages, timers, answers.
#[test]
fn timers_of_an_absent_worker_fire() {
    for stuck in STUCK {
        let s = host(1);
        let (sender, fired) = channel();
        let step = move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
            for event in events.by_ref() {
                match event {
                    Event::Message(_) => out.command(Tag(1), Sleep(Duration::from_millis(2))),
                    Event::YieldComplete { .. } => sender.send(Instant::now()).unwrap(),
                    _ => {}
                }
            }
            Ok(())
        };
        let pid = s.spawn(process(step), SpawnOptions::new()).unwrap();
        until("it waits", || state(&s, pid) == Some(ProcessState::Idle));
        // Armed before the worker was absent, and by who stands in.
        let hog = Hog::new(&s, stuck, move |out| out.send(pid, ()).unwrap()).begun();
        recv(&fired);
        for _ in 0..20 {
            send(Package::new(pid, ())).unwrap();
            recv(&fired);
        }
        hog.end();
        all_is_as_before(&s, 1);
    }
}

/// FC-007, with every worker in a step of its own that does not end.
#[test]
fn work_is_found_though_every_worker_is_in_a_long_step() {
    for stuck in STUCK {
        let s = host(4);
        let (pid, told) = teller(&s);
        let hogs: Vec<_> = (0..4).map(|_| Hog::new(&s, stuck, |_| {})).collect();
        let last = Hog::new(&s, stuck, move |out| out.send(pid, 1_u64).unwrap()).begun();
        assert_eq!(recv(&told), 1);
        let hogs: Vec<_> = hogs.into_iter().map(Hog::begun).collect();
        for number in 2..100 {
            send(Package::new(pid, number)).unwrap();
            assert_eq!(recv(&told), number);
        }
        hogs.into_iter().chain([last]).for_each(Hog::end);
        all_is_as_before(&s, 4);
    }
}

/// A step that is stuck in turn, on a stand-in, and one more on the stand-in's stand-in.
#[test]
fn a_stand_in_has_a_stand_in() {
    for stuck in STUCK {
        let s = host(1);
        let (pid, told) = teller(&s);
        let mut hogs = Vec::new();
        for number in 0..6 {
            hogs.push(Hog::new(&s, stuck, |_| {}).begun());
            send(Package::new(pid, number)).unwrap();
            assert_eq!(recv(&told), number);
        }
        // The first is back, the others stay: recalled, each hands in when its own step ends.
        for (number, hog) in hogs.into_iter().enumerate() {
            hog.end();
            send(Package::new(pid, number as u64)).unwrap();
            assert_eq!(recv(&told), number as u64);
            still_works(&s, 20);
        }
        all_is_as_before(&s, 1);
    }
}

/// An endless process that a stand-in took along does not keep the others from it.
#[test]
fn a_stand_in_with_an_endless_process_comes_to_the_others() {
    let s = host(1);
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, ran) = channel();
    let hog = Hog::new(&s, Stuck::Sleeps, {
        let stop = Arc::clone(&stop);
        move |out| {
            for number in 0..200 {
                let (stop, sender) = (Arc::clone(&stop), sender.clone());
                let mut is_new = true;
                let step = move |_: &mut Events<'_>, out: &mut StepOutput<'_>| {
                    if std::mem::replace(&mut is_new, false) {
                        sender.send(number).unwrap();
                    }
                    if stop.load(SeqCst) {
                        out.done(());
                    } else {
                        out.continue_soon();
                    }
                    Ok(())
                };
                out.spawn(process(step), SpawnOptions::new()).unwrap();
            }
        }
    })
    .begun();
    let mut all: Vec<i32> = (0..200).map(|_| recv(&ran)).collect();
    all.sort_unstable();
    assert_eq!(all, (0..200).collect::<Vec<_>>());
    stop.store(true, SeqCst);
    hog.end();
    all_is_as_before(&s, 1);
}

/// What is sent and spawned within the closure runs while it blocks.
#[test]
fn what_a_blocking_closure_leaves_behind_runs_meanwhile() {
    for workers in [1, 2, 4] {
        let s = host(workers);
        let (pid, told) = teller(&s);
        let (sender, answer) = channel();
        s.spawn_once(move |out| {
            let (born, newborn) = channel();
            let sum = blocking(|| {
                out.send(pid, 1_u64).unwrap();
                let first = recv(&told);
                send(Package::new(pid, 2_u64)).unwrap();
                out.spawn_once(move |_| born.send(4).unwrap()).unwrap();
                first + recv(&told) + recv(&newborn)
            });
            // After it: as in any step.
            out.send(pid, 8_u64).unwrap();
            sender.send((sum, told)).unwrap();
        })
        .unwrap();
        let (sum, told) = recv(&answer);
        assert_eq!((sum, recv(&told)), (7, 8));
        all_is_as_before(&s, workers);
    }
}

#[test]
fn blocking_within_blocking_and_off_the_workers_runs_the_closure() {
    assert_eq!(blocking(|| blocking(|| 5)), 5);
    let s = host(1);
    let (pid, told) = teller(&s);
    let (sender, answer) = channel();
    s.spawn_once(move |_| {
        let inner = blocking(|| {
            let inner = blocking(|| std::thread::current().id());
            // The inner one has ended, and somebody still stands in.
            send(Package::new(pid, 1_u64)).unwrap();
            assert_eq!(recv(&told), 1);
            inner
        });
        sender.send(inner == std::thread::current().id()).unwrap();
    })
    .unwrap();
    assert!(recv(&answer), "it runs where it was called");
    all_is_as_before(&s, 1);
}

/// Waits, in a closure that blocks, till the teller has told this number.
fn hear(pid: Pid, told: &Receiver<u64>, number: u64) {
    blocking(|| {
        send(Package::new(pid, number)).unwrap();
        assert_eq!(recv(told), number);
    });
}

#[test]
fn every_piece_of_user_code_may_block() {
    struct Everywhere(Pid, Receiver<u64>);
    impl Process for Everywhere {
        fn init(&mut self, _: &InitContext, _: &str, _: Payload) -> Result<(), ProcessError> {
            hear(self.0, &self.1, 1);
            Ok(())
        }
        fn step(&mut self, _: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
            hear(self.0, &self.1, 2);
            out.command(Tag(0), Ask);
            out.done(());
            Ok(())
        }
        fn close(&mut self) {
            hear(self.0, &self.1, 4);
        }
    }
    impl Drop for Everywhere {
        fn drop(&mut self) {
            hear(self.0, &self.1, 5);
        }
    }
    struct Ask;
    impl Command for Ask {
        const ID: CommandId = CommandId(1000);
    }
    struct Hooks(Mutex<Option<(Pid, Receiver<u64>)>>, Mutex<Sender<()>>);
    impl LifecycleHooks for Hooks {
        fn on_complete(&self, _: Pid, _: &ExitReason, result: Option<&Payload>) {
            if result.is_some() {
                let place = self.0.lock().unwrap().take();
                if let Some((pid, told)) = place {
                    hear(pid, &told, 6);
                    self.1.lock().unwrap().send(()).unwrap();
                }
            }
        }
    }
    let (sender, over) = channel();
    let (of_handler, handled) = channel::<(Pid, Receiver<u64>)>();
    let handled = Mutex::new(handled);
    let hooks = Arc::new(Hooks(Mutex::new(None), Mutex::new(sender)));
    struct Shared(Arc<Hooks>);
    impl LifecycleHooks for Shared {
        fn on_complete(&self, pid: Pid, reason: &ExitReason, result: Option<&Payload>) {
            self.0.on_complete(pid, reason, result);
        }
    }
    let s = started(Scheduler::builder().workers(1).hooks(Shared(Arc::clone(&hooks))).command::<Ask>(
        "ask",
        move |_: &HandlerContext<'_>, _: Payload, mut completer: Completer| {
            let (pid, told) = handled.lock().unwrap().try_recv().unwrap();
            hear(pid, &told, 3);
            completer.complete(Ok(Payload::empty()));
        },
    ));
    of_handler.send(teller(&s)).unwrap();
    *hooks.0.lock().unwrap() = Some(teller(&s));
    let (pid, told) = teller(&s);
    s.spawn(Everywhere(pid, told), SpawnOptions::new()).unwrap();
    recv(&over);
    all_is_as_before(&s, 1);
}

/// FC-024: panics in more closures than there are workers and spares cost nobody a thread.
#[test]
fn a_panic_in_the_closure_ends_the_process_and_no_worker() {
    let s = started(Scheduler::builder().workers(2).spares(3));
    let watched: Vec<Pid> = (0..30)
        .map(|_| {
            s.spawn_once(|_| {
                blocking(|| {
                    std::thread::sleep(Duration::from_millis(1));
                    blocking(|| panic!("{ON_PURPOSE}"))
                })
            })
            .unwrap()
        })
        .collect();
    until("all have ended", || watched.iter().all(|pid| state(&s, *pid).is_none()));
    still_works(&s, 1000);
    all_is_as_before(&s, 2);
    assert_eq!(s.stats().total().panics, 30);
    // Each worker is itself again: what it wakes it runs.
    let (pid, told) = teller(&s);
    for number in 0..100 {
        s.spawn_once(move |out| out.send(pid, number).unwrap()).unwrap();
        assert_eq!(recv(&told), number);
    }
}

/// FC-023: many more closures than spares. The threads stay at the limit, each closure runs once.
#[test]
fn the_threads_stay_at_the_limit() {
    const SPARES: usize = 8;
    for workers in [1, 2] {
        let s = started(Scheduler::builder().workers(workers).spares(SPARES));
        let (now, most, done) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for _ in 0..500 {
            let (now, most, done) = (Arc::clone(&now), Arc::clone(&most), Arc::clone(&done));
            s.spawn_once(move |_| {
                blocking(|| {
                    most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                    std::thread::sleep(Duration::from_millis(2));
                    now.fetch_sub(1, SeqCst);
                });
                done.fetch_add(1, SeqCst);
            })
            .unwrap();
        }
        until("all have run", || {
            assert!(s.stats().spares.threads <= SPARES);
            done.load(SeqCst) == 500
        });
        let most = most.load(SeqCst);
        assert!((2..=workers + SPARES).contains(&most), "{most} closures at once");
        let stats = s.stats();
        assert!(stats.spares.handed_over > 0 && stats.spares.refused > 0, "{stats}");
        all_is_as_before(&s, workers);
        until("all have ended", || s.stats().total().ended == 500);
    }
}

#[test]
fn without_spares_the_closure_runs_and_the_refusal_is_counted() {
    let s = started(Scheduler::builder().workers(1).spares(0));
    let (pid, told) = teller(&s);
    s.spawn_once(move |out| {
        out.send(pid, 1_u64).unwrap();
        blocking(|| std::thread::sleep(Duration::from_millis(30)));
        out.send(pid, 2_u64).unwrap();
    })
    .unwrap();
    assert_eq!((recv(&told), recv(&told)), (1, 2));
    let spares = s.stats().spares;
    assert_eq!((spares.refused, spares.threads, spares.lent, spares.handed_over), (1, 0, 0, 0));
    all_is_as_before(&s, 1);
}

#[test]
fn an_absurd_number_of_spares_is_refused() {
    let started = Scheduler::builder().spares(SPARES_MAX + 1).start();
    assert!(matches!(started, Err(StartError::Setting { setting: "spares", max: 512, .. })), "{started:?}");
}

/// Steps that block by their own word, where the system gives no threads for spares: each runs all the same.
fn fifty_block_and_nobody_stands_in(s: &Scheduler) {
    let (sender, over) = channel();
    for _ in 0..50 {
        let sender = sender.clone();
        s.spawn_once(move |_| {
            blocking(|| std::thread::sleep(Duration::from_millis(2)));
            sender.send(()).unwrap();
        })
        .unwrap();
    }
    (0..50).for_each(|_| recv(&over));
    let spares = s.stats().spares;
    assert!(spares.not_started > 0 && spares.refused > 0, "{spares:?}");
}

/// FC-023: the system gives no more threads. In a program of its own, whose room for stacks is bounded.
#[test]
#[cfg(target_os = "linux")]
fn a_thread_that_cannot_be_started_is_counted_and_harmless() {
    let program = std::env::current_exe().unwrap();
    let run = std::process::Command::new(program)
        .args(["--ignored", "--exact", "lend::no_more_threads", "--nocapture", "--test-threads", "1"])
        .env("RUST_MIN_STACK", "16777216")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&run.stderr)
    );
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "run by `a_thread_that_cannot_be_started_is_counted_and_harmless`, in a program of its own"]
fn no_more_threads() {
    let s = started(Scheduler::builder().workers(2).spares(16));
    let (pid, told) = teller(&s);
    // Room for what is there now and a little, but for no stack more.
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').next().unwrap().parse().unwrap();
    let limit = pages * 4096 + (12 << 20);
    let set = std::process::Command::new("prlimit")
        .args(["--pid", &std::process::id().to_string(), &format!("--as={limit}:unlimited")])
        .status();
    assert!(set.is_ok_and(|status| status.success()), "prlimit (util-linux) sets the limit");
    fifty_block_and_nobody_stands_in(&s);
    assert_eq!(s.stats().spares.threads, 0);
    send(Package::new(pid, 1_u64)).unwrap();
    assert_eq!(recv(&told), 1);
    still_works(&s, 100);
}

/// FC-023: a limit on the threads of a user (`ulimit -u`).
#[test]
#[cfg(target_os = "linux")]
fn at_a_users_limit_of_threads_the_rest_waits_its_turn() {
    in_a_program_of_its_own("lend::few_threads_for_a_user");
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "run by `at_a_users_limit_of_threads_the_rest_waits_its_turn`, in a program of its own"]
fn few_threads_for_a_user() {
    use evener_scheduler::commands::Blocking;
    use std::os::unix::fs::PermissionsExt;

    const PROCESSES: usize = 20_000;
    const MORE: u64 = 12;

    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count() as u64;
    /// How many threads the processes of a user have.
    fn threads_of(user: u32) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let of_user = all.filter(|entry| entry.metadata().is_ok_and(|data| data.uid() == user));
        of_user
            .map(|entry| std::fs::read_dir(entry.path().join("task")).map_or(0, Iterator::count) as u64)
            .sum()
    }

    let s = started(Scheduler::builder().workers(2).spares(16).blocking(64, 1 << 20));
    let (pid, told) = teller(&s);
    let folder = std::env::temp_dir().join(format!("evener-threads-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let fifo = folder.join("fifo");
    let made = std::process::Command::new("mkfifo").args(["-m", "666"]).arg(&fifo).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo (coreutils) makes it");
    // Root has no limit: it becomes a user whom nobody else is. SAFETY: no memory is involved.
    let is_root = unsafe { libc::geteuid() } == 0;
    if is_root {
        let user = 50_000 + std::process::id() % 10_000;
        // SAFETY: no memory is involved; the C library does it for every thread.
        assert_eq!(unsafe { libc::setresuid(user, user, user) }, 0);
    }
    let limit = |more: u64| {
        // SAFETY: no memory is involved.
        let user = unsafe { libc::geteuid() };
        let of_others = if is_root { 0 } else { threads_of(user) - threads() };
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the place for the answer is alive.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &mut limit) }, 0);
        limit.rlim_cur = of_others + threads() + more;
        // SAFETY: the limit is alive.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &limit) }, 0);
    };
    let before = threads();
    limit(MORE);

    // Each opens a FIFO for reading, which blocks till somebody writes.
    let (well, ill) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let spawn = || {
        let (fifo, well, ill) = (fifo.clone(), Arc::clone(&well), Arc::clone(&ill));
        let mut act = Some(move || drop(std::fs::File::open(fifo).unwrap()));
        let step = move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
            for event in events.by_ref() {
                if let Event::YieldComplete { result, .. } = event {
                    match result {
                        Ok(_) => well.fetch_add(1, SeqCst),
                        Err(error) => {
                            assert!(error.to_string().contains("no thread"), "{error}");
                            ill.fetch_add(1, SeqCst)
                        }
                    };
                    out.done(());
                }
            }
            if let Some(act) = act.take() {
                out.command(Tag(1), Blocking::new(act));
            }
            Ok(())
        };
        let pid = s.spawn(process(step), SpawnOptions::new()).unwrap();
        // Its first turn may have come, and all have been over, before this.
        let _ = send(Package::new(pid, 0_u64));
    };
    (0..PROCESSES).for_each(|_| spawn());
    until("all have a thread or wait for one", || {
        let (threads, waiting) = s.stats().blocking;
        threads + waiting == PROCESSES
    });
    let (running, waiting) = s.stats().blocking;
    println!("{running} closures block, {waiting} wait for their turn, {} threads before", before);
    assert!((1..=MORE as usize).contains(&running), "{running}");
    assert!(threads() <= before + MORE);
    assert_eq!((well.load(SeqCst), ill.load(SeqCst)), (0, 0));
    // The others run on, those that block by their own word among them: nobody stands in for them.
    fifty_block_and_nobody_stands_in(&s);
    send(Package::new(pid, 1_u64)).unwrap();
    assert_eq!(recv(&told), 1);
    still_works(&s, 1000);
    // The FIFO has a writer: each comes to its turn.
    let writer = std::fs::File::options().write(true).open(&fifo).unwrap();
    until("all have had their turn", || well.load(SeqCst) == PROCESSES);
    drop(writer);
    assert_eq!(ill.load(SeqCst), 0);

    // Nobody is there to come to it, and nobody can be started: an error for who asked.
    until("the threads leave", || s.stats().blocking == (0, 0));
    until("they have left", || threads() <= before);
    limit(0);
    (0..10).for_each(|_| spawn());
    until("each hears of it", || ill.load(SeqCst) == 10);
    still_works(&s, 100);
    // And when there is room again it works.
    limit(1);
    let writer = std::fs::File::options().read(true).write(true).open(&fifo).unwrap();
    spawn();
    until("it has run", || well.load(SeqCst) == PROCESSES + 1);
    drop(writer);
    std::fs::remove_file(&fifo).unwrap();
}

/// FC-025: closures that block while the scheduler ends, by a shutdown or a drop.
#[test]
fn steps_that_block_end_with_the_scheduler() {
    for stuck in [Stuck::Declares, Stuck::Sleeps] {
        for round in 0..3 {
            let s = host(1);
            let hogs: Vec<_> = (0..3).map(|_| Hog::new(&s, stuck, |_| {}).begun()).collect();
            let (pid, _told) = teller(&s);
            match round {
                0 => {
                    // They are told to end while the shutdown waits for them.
                    let ends: Vec<_> = hogs.iter().map(|hog| Arc::clone(&hog.may_end)).collect();
                    let teller = std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(20));
                        ends.iter().for_each(|may_end| may_end.store(true, SeqCst));
                    });
                    let report = s.shutdown(crate::support::LIMIT);
                    assert!(report.still_running.is_empty(), "{report:?}");
                    teller.join().unwrap();
                }
                1 => {
                    // Their steps do not end: the others do, on a stand-in.
                    let report = s.shutdown(Duration::from_millis(5));
                    let mut running: Vec<_> = report.still_running.iter().map(|(pid, _)| *pid).collect();
                    running.sort_unstable();
                    let mut expected: Vec<_> = hogs.iter().map(|hog| hog.pid).collect();
                    expected.sort_unstable();
                    assert_eq!(running, expected);
                    until("who waits behind them ends", || send(Package::new(pid, 0_u64)).is_err());
                }
                _ => {
                    drop(s);
                    until("who waits behind them ends", || send(Package::new(pid, 0_u64)).is_err());
                }
            }
            for hog in hogs {
                hog.may_end.store(true, SeqCst);
                recv(&hog.has_ended);
            }
        }
    }
}

/// Hubs are used again, with the spares in them.
#[test]
fn a_later_host_finds_nothing_of_an_earlier_ones_spares() {
    for _ in 0..30 {
        let s = host(1);
        let hogs: Vec<_> = (0..3).map(|_| Hog::new(&s, Stuck::Declares, |_| {}).begun()).collect();
        still_works(&s, 5);
        assert!(s.stats().spares.standing_in >= 1);
        hogs.into_iter().for_each(Hog::end);
        assert!(s.shutdown(crate::support::LIMIT).still_running.is_empty());
        let again = host(1);
        let stats = again.stats();
        assert_eq!((stats.spares.threads, stats.spares.standing_in, stats.long_steps_count), (0, 0, 0));
        still_works(&again, 5);
        until("all have ended", || again.stats().total().ended == 5);
    }
}

#[test]
fn a_long_step_is_counted_with_its_process() {
    for stuck in [Stuck::Sleeps, Stuck::Computes] {
        let s = host(1);
        let (pid, told) = teller(&s);
        let hog = Hog::new(&s, stuck, move |out| out.send(pid, 1_u64).unwrap()).begun();
        recv(&told);
        let hog_pid = hog.pid;
        let mine = |s: &Scheduler| s.stats().long_steps.iter().find(|step| step.pid == hog_pid).copied();
        until("it is seen while it runs", || mine(&s).is_some_and(|step| step.is_running));
        assert!(s.stats().to_string().contains(&hog_pid.to_string()));
        hog.end();
        until("its end is seen", || mine(&s).is_some_and(|step| !step.is_running));
        let step = mine(&s).unwrap();
        assert_eq!(step.count, 1);
        assert!(step.longest >= Duration::from_millis(10), "{step:?}");
        assert!(s.stats().long_steps_count >= 1);
    }
    // Who says that it blocks does not count.
    let s = host(1);
    let hog = Hog::new(&s, Stuck::Declares, |_| {}).begun();
    still_works(&s, 10);
    std::thread::sleep(Duration::from_millis(150));
    let hog_pid = hog.pid;
    hog.end();
    assert!(!s.stats().long_steps.iter().any(|step| step.pid == hog_pid));
}

/// Random messages among processes some of which block, in each way: each message arrives once and in order,
/// and what lay with a stand-in at its recall is not lost.
#[test]
fn nothing_is_lost_between_workers_and_stand_ins() {
    for seed in 1..=12_u64 {
        let mut rng = Rng::new(seed);
        let workers = 1 + rng.below(3) as usize;
        let spares = [0, 1, 3, 64][rng.below(4) as usize];
        let s = started(Scheduler::builder().workers(workers).spares(spares));
        let received = Arc::new(AtomicU64::new(0));
        let sent = Arc::new(AtomicU64::new(0));
        let ring: Arc<std::sync::OnceLock<Vec<Pid>>> = Arc::default();
        let pids: Vec<Pid> = (0..24)
            .map(|me| {
                let (received, sent, ring) = (Arc::clone(&received), Arc::clone(&sent), Arc::clone(&ring));
                let mut rng = Rng::new(seed * 1000 + me);
                let mut last = [0_u64; 25];
                let mut next = [0_u64; 24];
                let step = move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
                    for event in events.by_ref() {
                        let Event::Message(message) = event else { continue };
                        let (from, number, hops) = message.take::<(usize, u64, u32)>().unwrap();
                        assert_eq!(number, last[from] + 1, "from {from} to {me}");
                        last[from] = number;
                        let mut forward = |rng: &mut Rng, out: &mut StepOutput<'_>| {
                            if hops > 0 {
                                let to = rng.below(24) as usize;
                                next[to] += 1;
                                sent.fetch_add(1, SeqCst);
                                let content = (me as usize, next[to], hops - 1);
                                out.send(ring.get().unwrap()[to], content).unwrap();
                            }
                        };
                        match rng.below(40) {
                            0 => blocking(|| forward(&mut rng, out)),
                            1 => {
                                forward(&mut rng, out);
                                blocking(|| std::thread::sleep(Duration::from_micros(300)));
                            }
                            2 => {
                                forward(&mut rng, out);
                                std::thread::sleep(Duration::from_micros(rng.below(900)));
                            }
                            3 => blocking(|| {
                                std::thread::yield_now();
                                forward(&mut rng, out);
                            }),
                            _ => forward(&mut rng, out),
                        }
                        received.fetch_add(1, SeqCst);
                    }
                    Ok(())
                };
                s.spawn(process(step), SpawnOptions::new()).unwrap()
            })
            .collect();
        ring.set(pids.clone()).unwrap();
        for number in 1..=40_u64 {
            for pid in &pids {
                sent.fetch_add(1, SeqCst);
                send(Package::new(*pid, (24_usize, number, 12_u32))).unwrap();
            }
        }
        until("all have arrived", || {
            let received = received.load(SeqCst);
            received == sent.load(SeqCst) && received == 24 * 40 * 13
        });
        all_is_as_before(&s, workers);
        assert_eq!(s.stats().total().panics, 0, "out of order, seed {seed}");
    }
}

/// While a worker is absent and nobody waits, nobody looks.
#[test]
#[cfg(target_os = "linux")]
fn an_absent_worker_with_nothing_behind_it_costs_next_to_nothing() {
    in_a_program_of_its_own("lend::absence_measured_apart");
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "run by `an_absent_worker_with_nothing_behind_it_costs_next_to_nothing`, in a program of its own"]
fn absence_measured_apart() {
    let switches = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let of = |task: std::io::Result<std::fs::DirEntry>| {
            let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
            let line = status.lines().find(|line| line.starts_with("voluntary"));
            line.map_or(0, |line| line.split('\t').next_back().unwrap().trim().parse::<u64>().unwrap())
        };
        tasks.map(of).sum::<u64>()
    };
    let s = host(1);
    let may_end = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&may_end);
    let (begun, has_begun) = channel();
    let (let_go, go) = channel::<()>();
    s.spawn_once(move |_| {
        begun.send(()).unwrap();
        go.recv().unwrap();
        told.store(true, SeqCst);
    })
    .unwrap();
    recv(&has_begun);
    // Somebody stands in.
    still_works(&s, 10);
    std::thread::sleep(Duration::from_millis(300));
    let before = switches();
    std::thread::sleep(Duration::from_secs(2));
    let after = switches();
    assert!(s.stats().spares.standing_in == 1 && !may_end.load(SeqCst));
    println!("{} times off the processor in 2 s", after - before);
    // The monitor rests for 100 ms at a time, in two parts.
    assert!(after - before < 120, "{} wakes in two seconds with nothing to do", after - before);
    let_go.send(()).unwrap();
    until("it ends", || may_end.load(SeqCst));
    all_is_as_before(&s, 1);
}
