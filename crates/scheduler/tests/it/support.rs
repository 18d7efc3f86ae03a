//! What the tests share: waiting with a limit, processes made of closures, a quiet panic hook.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Once};
use std::task::Poll;
use std::time::{Duration, Instant};

use evener_scheduler::commands::Terminate;
use evener_scheduler::{
    Events, InitContext, Payload, Pid, Process, ProcessError, ProcessState, Scheduler, StepOutput, Tag, time,
};

/// A test that waits longer than this has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// What a panic says that a test makes on purpose: it is not printed.
pub(crate) const ON_PURPOSE: &str = "on purpose";

/// Keeps the panics that tests make on purpose out of the output.
pub(crate) fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let payload = info.payload();
            let text = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| payload.downcast_ref::<String>().cloned());
            let ours = std::thread::current().name().is_some_and(|name| !name.contains("::"));
            if !ours || text.is_some_and(|text| !text.contains(ON_PURPOSE)) {
                before(info);
            }
        }));
    });
}

/// A number from the environment, for tests that can run longer than they do by default.
pub(crate) fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// Waits for `done`, and fails after [`LIMIT`].
#[track_caller]
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    let mut rounds = 0_u32;
    while !done() {
        assert!(began.elapsed() < LIMIT, "waited too long: {what}");
        rounds += 1;
        if rounds < 100 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Receives, and fails after [`LIMIT`].
#[track_caller]
pub(crate) fn recv<T>(receiver: &Receiver<T>) -> T {
    match receiver.recv_timeout(LIMIT) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("waited too long for a value"),
        Err(RecvTimeoutError::Disconnected) => panic!("nobody sends any more"),
    }
}

pub(crate) fn scheduler(workers: usize) -> Scheduler {
    quiet_panics();
    Scheduler::builder().workers(workers).start().expect("it starts")
}

/// A process whose step is a closure.
pub(crate) struct FnProcess<F>(pub(crate) F);

impl<F> Process for FnProcess<F>
where
    F: FnMut(&mut Events<'_>, &mut StepOutput<'_>) -> Result<(), ProcessError> + Send + 'static,
{
    fn init(&mut self, _: &InitContext, _: &str, _: Payload) -> Result<(), ProcessError> {
        Ok(())
    }
    fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        (self.0)(events, out)
    }
}

/// Lets the compiler find the closure's type.
pub(crate) fn process<F>(step: F) -> FnProcess<F>
where
    F: FnMut(&mut Events<'_>, &mut StepOutput<'_>) -> Result<(), ProcessError> + Send + 'static,
{
    FnProcess(step)
}

/// Ends a process, by a step on one of the scheduler's workers.
pub(crate) fn kill(scheduler: &Scheduler, pid: Pid) {
    scheduler
        .spawn_once(move |out| out.command(Tag(0), Terminate { pid, reason: Arc::from("test") }))
        .expect("the scheduler is open");
}

/// Sockets, waits and timers are gone.
#[track_caller]
pub(crate) fn assert_nothing_left(s: &Scheduler) {
    until("nothing is left", || {
        let left = s.registrations();
        (left.descriptors, left.socket_waiters, left.timers) == (0, 0, 0)
    });
}

/// Awaits a future, and fails after [`LIMIT`].
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    time::timeout(LIMIT, future).await.expect("it comes in time")
}

/// Polls a future once and lets it go.
pub(crate) async fn glance<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        })
    })
    .await
}

/// The state of a process, `None` when it has ended.
pub(crate) fn state(scheduler: &Scheduler, pid: Pid) -> Option<ProcessState> {
    scheduler.list_processes().iter().find(|info| info.pid == pid).map(|info| info.state)
}

/// Is this thread one of a scheduler's workers? By the name that the scheduler gives them.
pub(crate) fn on_a_worker() -> bool {
    std::thread::current().name().is_some_and(|name| name.contains(" worker "))
}

/// Runs `count` closures and waits for all of them: every worker still works.
#[track_caller]
pub(crate) fn still_works(scheduler: &Scheduler, count: usize) {
    let (sender, receiver) = std::sync::mpsc::channel();
    for _ in 0..count {
        let sender = sender.clone();
        scheduler
            .spawn_once(move |_| {
                let _ = sender.send(());
            })
            .expect("the scheduler is open");
    }
    for _ in 0..count {
        recv(&receiver);
    }
}

/// A small generator with a seed (xorshift64*).
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 33) % end.max(1)
    }
}

/// Runs one ignored test of this program in a program of its own: for what all tests of a program share,
/// such as its memory and its slots.
#[track_caller]
pub(crate) fn in_a_program_of_its_own(test: &str) {
    let run = std::process::Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["--ignored", "--exact", test, "--nocapture"])
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&run.stdout);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && text.contains("1 passed"), "{text}\n{errors}");
}
