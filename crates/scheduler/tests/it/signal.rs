//! Signals: each listener hears each, none is lost between two waits, and none ends the program.

use std::future::Future;
use std::io::{BufRead, BufReader, ErrorKind};
use std::pin::pin;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use evener_scheduler::signal::{SignalKind, ctrl_c, signal};
use evener_scheduler::{Scheduler, task, time};

use crate::support::{LIMIT, assert_nothing_left, in_a_program_of_its_own, recv, scheduler, soon, until};

/// Sends a signal to a process that is ours and has not been waited for.
fn send(pid: u32, kind: SignalKind) {
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::kill(pid as libc::pid_t, kind.as_raw()) }, 0);
}

fn send_to_myself(kind: SignalKind) {
    send(std::process::id(), kind);
}

fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

// ------------------------------------------------------------------ sent by another program

/// An ignored test of this program in a program of its own, and the words that it says.
fn start(test: &str) -> (Child, impl FnMut() -> String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test, "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let words = words(child.stdout.take().unwrap());
    (child, move || recv(&words))
}

fn words(stdout: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some((_, word)) = line.split_once("says: ") {
                let _ = sender.send(word.to_owned());
            }
        }
    });
    receiver
}

fn say(word: &str) {
    // A line of its own: the test harness writes to the same place.
    println!("\nsays: {word}");
}

#[test]
fn ctrl_c_is_heard_and_no_longer_ends_the_program() {
    let (mut child, mut next) = start("signal::hears_ctrl_c");
    for said in ["ready", "heard", "heard once more"] {
        assert_eq!(next(), said);
        send(child.id(), SignalKind::interrupt());
    }
    // The third is heard by nobody, and ends nobody.
    assert_eq!(next(), "still here");
    assert!(child.wait().unwrap().success());
}

#[test]
#[ignore = "run by ctrl_c_is_heard_and_no_longer_ends_the_program, in a program of its own"]
fn hears_ctrl_c() {
    let s = scheduler(2);
    let next = ctrl_c();
    say("ready");
    s.block_on(soon(next)).unwrap();
    let next = ctrl_c();
    say("heard");
    s.block_on(soon(next)).unwrap();
    // A witness that is dropped before it is waited for.
    drop(ctrl_c());
    let mut witness = signal(SignalKind::interrupt()).unwrap();
    say("heard once more");
    s.block_on(soon(witness.recv())).unwrap();
    drop(witness);
    say("still here");
}

#[test]
fn who_listens_for_one_signal_is_still_ended_by_the_others() {
    use std::os::unix::process::ExitStatusExt;
    let (mut child, mut next) = start("signal::hears_terminate_and_hangup");
    for (said, kind) in [
        ("ready", SignalKind::terminate()),
        ("terminate", SignalKind::hangup()),
        // (Not an interrupt: who starts a program in the background may have it ignored there.)
        ("hangup", SignalKind::user_defined1()),
    ] {
        assert_eq!(next(), said);
        send(child.id(), kind);
    }
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGUSR1));
}

#[test]
#[ignore = "run by who_listens_for_one_signal_is_still_ended_by_the_others, in a program of its own"]
fn hears_terminate_and_hangup() {
    let s = scheduler(2);
    s.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).unwrap();
        let mut hangup = signal(SignalKind::hangup()).unwrap();
        say("ready");
        soon(terminate.recv()).await.unwrap();
        say("terminate");
        soon(hangup.recv()).await.unwrap();
        say("hangup");
        time::sleep(LIMIT).await;
    });
}

// ------------------------------------------------------------------ sent by the program itself

#[test]
fn each_listener_on_each_scheduler_hears_each_signal() {
    in_a_program_of_its_own("signal::listeners_apart");
}

#[test]
#[ignore = "run by each_listener_on_each_scheduler_hears_each_signal, in a program of its own"]
fn listeners_apart() {
    const LISTENERS: usize = 5;
    const ROUNDS: usize = 200;
    let schedulers = [scheduler(1), scheduler(3)];
    let (heard, receiver) = channel();
    let tasks: Vec<_> = schedulers
        .iter()
        .flat_map(|s| {
            let heard = &heard;
            (0..LISTENERS).map(move |_| {
                let heard = heard.clone();
                // It listens from here on.
                let mut listener = signal(SignalKind::user_defined1()).unwrap();
                s.spawn_task(async move {
                    for _ in 0..ROUNDS {
                        listener.recv().await.unwrap();
                        heard.send(()).unwrap();
                    }
                })
            })
        })
        .collect();
    for _ in 0..ROUNDS {
        send_to_myself(SignalKind::user_defined1());
        // Each once: else one of the next rounds would miss one.
        (0..LISTENERS * 2).for_each(|_| recv(&receiver));
        assert!(receiver.try_recv().is_err());
    }
    tasks.into_iter().for_each(|task| task.wait(Some(LIMIT)).unwrap());
    schedulers.iter().for_each(assert_nothing_left);
}

#[test]
fn no_signal_is_lost_between_two_waits_and_several_are_one() {
    in_a_program_of_its_own("signal::between_waits_apart");
}

#[test]
#[ignore = "run by no_signal_is_lost_between_two_waits_and_several_are_one, in a program of its own"]
fn between_waits_apart() {
    let s = scheduler(2);
    s.block_on(async {
        let mut listener = signal(SignalKind::user_defined2()).unwrap();
        let mut other = signal(SignalKind::user_defined1()).unwrap();
        assert!(poll_once(other.recv()).is_pending());
        for count in [1, 3, 500] {
            // A wait that gives up takes nothing.
            assert!(poll_once(listener.recv()).is_pending());
            assert_eq!(s.registrations().socket_waiters, 0);
            (0..count).for_each(|_| send_to_myself(SignalKind::user_defined2()));
            soon(listener.recv()).await.unwrap();
            // The handler runs on some thread of the program: it may be that the last came after the look.
            while time::timeout(Duration::from_millis(50), listener.recv()).await.is_ok() {}
        }
        assert!(poll_once(other.recv()).is_pending(), "it is another signal");
        // As a stream.
        send_to_myself(SignalKind::user_defined1());
        let heard = soon(std::future::poll_fn(|cx| {
            futures_core::Stream::poll_next(std::pin::Pin::new(&mut other), cx)
        }));
        assert!(heard.await.expect("it has not ended").is_ok());
    });
    assert_nothing_left(&s);
}

#[test]
fn a_listener_and_the_trace_hear_the_same_signal() {
    in_a_program_of_its_own("signal::with_a_trace_apart");
}

#[test]
#[ignore = "run by a_listener_and_the_trace_hear_the_same_signal, in a program of its own"]
fn with_a_trace_apart() {
    let path = std::env::temp_dir().join(format!("evener-signal-{}.json", std::process::id()));
    let s = Scheduler::builder().workers(2).trace_on_signal(&path).start().unwrap();
    let mut listener = signal(SignalKind::user_defined2()).unwrap();
    // The first begins the trace, the second ends it and writes it.
    until("both are heard", || {
        send_to_myself(SignalKind::user_defined2());
        s.block_on(soon(listener.recv())).unwrap();
        path.exists()
    });
    drop(listener);
    s.shutdown(LIMIT);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn without_a_scheduler_the_error_says_so() {
    in_a_program_of_its_own("signal::nowhere_apart");
}

#[test]
#[ignore = "run by without_a_scheduler_the_error_says_so, in a program of its own"]
fn nowhere_apart() {
    let Poll::Ready(Err(error)) = poll_once(ctrl_c()) else { panic!("it was heard") };
    assert!(error.to_string().contains("no scheduler here"), "{error}");
    let mut listener = signal(SignalKind::hangup()).unwrap();
    let Poll::Ready(Err(error)) = poll_once(listener.recv()) else { panic!("it was heard") };
    assert!(error.to_string().contains("no scheduler here"), "{error}");
    // The same listener, within one.
    send_to_myself(SignalKind::hangup());
    let s = scheduler(1);
    s.block_on(soon(listener.recv())).unwrap();
    // Within one that has ended, also for who waits.
    let waits = s.spawn_task(async move {
        let ended = listener.recv().await.unwrap_err();
        (ended.to_string(), listener)
    });
    until("it waits", || s.registrations().socket_waiters == 1);
    let report = s.shutdown(Duration::from_secs(1));
    drop(s);
    // Ended by force, or told.
    if let Ok((text, _)) = waits.wait(Some(LIMIT)) {
        assert!(text.contains("has ended"), "{text}");
    } else {
        assert_eq!(report.ended_by_force, 1);
    }
}

#[test]
fn what_nobody_can_listen_for_is_refused() {
    for kind in [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL] {
        let error = signal(SignalKind::from_raw(kind)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{kind}");
    }
    for number in [-1, 0, 10_000] {
        let error = signal(SignalKind::from_raw(number)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{number}: {error}");
    }
}

#[test]
fn listeners_come_and_go() {
    let s = scheduler(2);
    let before = std::fs::read_dir("/proc/self/fd").map(Iterator::count).ok();
    s.block_on(async {
        for _ in 0..2000 {
            let mut listener = signal(SignalKind::window_change()).unwrap();
            assert!(poll_once(listener.recv()).is_pending());
        }
        task::yield_now().await;
    });
    assert_nothing_left(&s);
    // Other tests of this program open and close some meanwhile, but not so many.
    if let (Some(before), Ok(after)) = (before, std::fs::read_dir("/proc/self/fd")) {
        assert!(after.count() < before + 2000, "descriptors are left");
    }
}
