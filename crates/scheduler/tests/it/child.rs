//! Child processes: their ends are heard without a thread, their pipes do not stop one another, and no zombie
//! is left.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::Pin;
use std::time::Duration;

use evener_scheduler::child::{Child, Command, Output, Stdio};
use evener_scheduler::{Scheduler, task, time};
use futures_io::{AsyncRead, AsyncWrite};

use crate::support::{LIMIT, assert_nothing_left, in_a_program_of_its_own, scheduler, soon, until};

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// A child that runs till its stdin is closed, which the caller does.
fn waits_for_stdin() -> (Child, evener_scheduler::child::ChildStdin) {
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    (child, stdin)
}

/// Is there still such a process, be it a zombie?
fn exists(pid: u32) -> bool {
    // SAFETY: no memory is involved, and no signal is sent.
    unsafe { libc::kill(pid as libc::pid_t, 0) == 0 }
}

// ------------------------------------------------------------------ output and pipes

#[test]
fn a_megabyte_on_each_pipe_stops_nobody() {
    for workers in [1, 3] {
        let s = scheduler(workers);
        s.block_on(async {
            // One after the other: who reads one pipe to its end first would wait for ever.
            let script = "head -c 1000000 /dev/zero >&2; head -c 1000001 /dev/zero; \
                          head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 3";
            let Output { status, stdout, stderr } = soon(shell(script).output()).await.unwrap();
            assert_eq!(status.code(), Some(3));
            assert_eq!((stdout.len(), stderr.len()), (1_000_001, 2_000_000));
            assert!(stdout.iter().all(|byte| *byte == 0));
            assert!(stderr[1_000_000..].iter().all(|byte| *byte == b'x'));
        });
        assert_nothing_left(&s);
    }
}

#[test]
fn what_a_child_is_told_comes_back() {
    let s = scheduler(2);
    let sent: Vec<u8> = (0..1_000_000_u32).map(|at| (at * 7 + at / 251) as u8).collect();
    s.block_on(async {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let bytes = sent.clone();
        let writes = task::spawn(async move {
            stdin.write_all(&bytes).await.unwrap();
            // By the traits.
            poll_fn(|cx| Pin::new(&mut stdin).poll_write(cx, b"!")).await.unwrap();
            poll_fn(|cx| Pin::new(&mut stdin).poll_flush(cx)).await.unwrap();
            poll_fn(|cx| Pin::new(&mut stdin).poll_close(cx)).await.unwrap();
            assert_eq!(stdin.write(b"late").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        });
        let mut back = vec![0; 1000];
        let read = soon(poll_fn(|cx| Pin::new(&mut stdout).poll_read(cx, &mut back))).await.unwrap();
        back.truncate(read);
        soon(stdout.read_to_end(&mut back)).await.unwrap();
        soon(writes).await.unwrap();
        assert_eq!(back.pop(), Some(b'!'));
        assert!(back == sent);
        assert!(soon(child.wait()).await.unwrap().success());
    });
    assert_nothing_left(&s);
}

#[test]
fn who_reads_no_more_is_told_to_the_writer() {
    let s = scheduler(2);
    s.block_on(async {
        let mut child = shell("exec 0<&-; echo closed; sleep 60")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut line = [0; 16];
        assert_eq!(soon(child.stdout.as_mut().unwrap().read(&mut line)).await.unwrap(), 7);
        let error = soon(child.stdin.as_mut().unwrap().write_all(&[0; 100_000])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    });
    assert_nothing_left(&s);
}

#[test]
fn one_child_writes_to_another() {
    let s = scheduler(2);
    s.block_on(async {
        let mut first = shell("head -c 300000 /dev/zero").stdout(Stdio::piped()).spawn().unwrap();
        let pipe = first.stdout.take().unwrap().into_owned_fd().unwrap();
        let output = soon(Command::new("wc").arg("-c").stdin(pipe).output()).await.unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "300000");
        assert!(soon(first.wait()).await.unwrap().success());
    });
}

#[test]
fn a_command_of_std_keeps_what_was_set() {
    let s = scheduler(1);
    let dir = std::env::temp_dir().canonicalize().unwrap();
    s.block_on(async {
        let mut std = std::process::Command::new("sh");
        std.args(["-c", "pwd; echo $EVENER_A$EVENER_B; cat"]).env("EVENER_A", "a");
        let mut command = Command::from(std);
        command.env("EVENER_B", "b").current_dir(&dir);
        assert_eq!(command.as_std().get_program(), "sh");
        // Its stdin is empty.
        let output = soon(command.output()).await.unwrap();
        let text = format!("{}\nab\n", dir.display());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        command.as_std_mut().env_remove("EVENER_A");
        let output = soon(command.output()).await.unwrap();
        assert!(String::from_utf8(output.stdout).unwrap().ends_with("\nb\n"));
        assert_eq!(soon(shell("exit 7").status()).await.unwrap().code(), Some(7));
    });
}

// ------------------------------------------------------------------ ends

#[test]
fn a_wait_ends_with_the_child_and_may_be_given_up_before() {
    let s = scheduler(2);
    s.block_on(async {
        let (mut child, stdin) = waits_for_stdin();
        assert!(child.try_wait().unwrap().is_none());
        for _ in 0..3 {
            assert!(time::timeout(Duration::from_millis(2), child.wait()).await.is_err());
            assert_eq!(s.registrations().socket_waiters, 0, "a wait that was given up is left");
        }
        let waits = task::spawn(async move {
            let status = child.wait().await.unwrap();
            // Again, and in other ways: the same.
            assert_eq!(child.wait().await.unwrap(), status);
            assert_eq!(child.try_wait().unwrap(), Some(status));
            child.kill().unwrap();
            status
        });
        task::yield_now().await;
        assert!(!waits.is_finished());
        drop(stdin);
        assert!(soon(waits).await.unwrap().success());
    });
    assert_nothing_left(&s);
}

#[test]
fn a_wait_closes_the_stdin_that_is_still_there() {
    let s = scheduler(2);
    s.block_on(async {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(soon(child.wait()).await.unwrap().success());
        assert!(child.stdin.is_none());
    });
}

#[test]
fn a_killed_child_says_by_which_signal() {
    use std::os::unix::process::ExitStatusExt;
    let s = scheduler(2);
    s.block_on(async {
        let (mut child, _stdin) = waits_for_stdin();
        child.kill().unwrap();
        assert_eq!(soon(child.wait()).await.unwrap().signal(), Some(libc::SIGKILL));
    });
}

#[test]
fn many_children_end_at_once() {
    const CHILDREN: i32 = 60;
    let s = scheduler(3);
    let children: Vec<_> = (0..CHILDREN)
        .map(|code| {
            s.spawn_task(async move {
                let output = shell(&format!("echo {code}; exit {code}")).output().await.unwrap();
                assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), code.to_string());
                output.status.code()
            })
        })
        .collect();
    for (code, child) in children.into_iter().enumerate() {
        assert_eq!(child.wait(Some(LIMIT)).unwrap(), Some(code as i32));
    }
    assert_nothing_left(&s);
}

#[test]
fn a_dropped_child_leaves_no_zombie() {
    let s = scheduler(2);
    let (kept, stdin) = s.block_on(async {
        let killed = {
            let (mut child, stdin) = waits_for_stdin();
            let pid = child.id();
            child.kill().unwrap();
            drop(child);
            (pid, stdin)
        };
        until("the killed one is gone", || !exists(killed.0));
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .kill_on_drop(true)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (pid, stdin) = (child.id(), child.stdin.take());
        // While somebody has begun to wait for it.
        assert!(time::timeout(Duration::from_millis(1), child.wait()).await.is_err());
        drop(child);
        until("the one that is to be killed is gone", || !exists(pid));
        drop(stdin);
        // An output that nobody waits for any more.
        let mut command = Command::new("cat");
        let (reader, _writer) = std::io::pipe().unwrap();
        command.stdin(reader).kill_on_drop(true);
        assert!(time::timeout(Duration::from_millis(1), command.output()).await.is_err());
        let (child, stdin) = waits_for_stdin();
        (child.id(), stdin)
    });
    // It runs on, and is heard when it ends.
    until("only it is left", || s.registrations().descriptors == 2);
    assert!(exists(kept));
    drop(stdin);
    until("the one that ran on is gone", || !exists(kept));
    assert_nothing_left(&s);
}

#[test]
fn a_child_that_outlives_its_scheduler_is_no_zombie_after_the_next() {
    let s = scheduler(2);
    let (pid, stdin) = s.block_on(async {
        let (child, stdin) = waits_for_stdin();
        (child.id(), stdin.into_owned_fd().unwrap())
    });
    s.shutdown(LIMIT);
    drop(s);
    assert!(exists(pid));
    drop(stdin);
    let next = scheduler(1);
    until("it is gone", || {
        assert!(next.block_on(soon(Command::new("true").status())).unwrap().success());
        !exists(pid)
    });
}

// ------------------------------------------------------------------ errors

#[test]
fn what_cannot_be_started_is_named() {
    let s = scheduler(1);
    s.block_on(async {
        let error = Command::new("no-such-program-anywhere").spawn().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("\"no-such-program-anywhere\""), "{error}");
        let source = std::error::Error::source(&error).unwrap().downcast_ref::<std::io::Error>().unwrap();
        assert_eq!(source.raw_os_error(), Some(libc::ENOENT));
        let error = soon(Command::new("/etc").output()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("\"/etc\""), "{error}");
        let error = soon(Command::new("true").current_dir("/no/such/folder").status()).await.unwrap_err();
        assert!(error.to_string().contains("in \"/no/such/folder\""), "{error}");
    });
    assert_nothing_left(&s);
}

#[test]
fn without_a_scheduler_nothing_is_started() {
    let error = Command::new("no-such-program-anywhere").spawn().unwrap_err();
    assert!(error.to_string().contains("no scheduler here"), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn without_descriptors_the_error_names_the_program() {
    in_a_program_of_its_own("child::no_descriptors_apart");
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "run by without_descriptors_the_error_names_the_program, in a program of its own"]
fn no_descriptors_apart() {
    let s = scheduler(2);
    // The poller is made with the first descriptor.
    s.block_on(async { shell("true").output().await.unwrap() });
    let next = std::os::fd::AsRawFd::as_raw_fd(&std::fs::File::open("/dev/null").unwrap());
    let set = |more: u64| {
        let limit = libc::rlimit { rlim_cur: next as u64 + more, rlim_max: 10_000 };
        // SAFETY: the limit is alive.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    };
    // Each number of descriptors up to enough: whatever fails first, the program is named, and what was started
    // has an end.
    let (mut failed, mut ended) = (0, 0);
    for more in 0..16 {
        set(more);
        s.block_on(async {
            match Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() {
                Ok(child) => {
                    // Perhaps there was no pidfd.
                    set(100);
                    let output = soon(child.wait_with_output()).await.unwrap();
                    assert!(output.status.success());
                    ended += 1;
                }
                Err(error) => {
                    assert!(error.to_string().contains("\"cat\""), "{error}");
                    let source = std::error::Error::source(&error).unwrap();
                    let source = source.downcast_ref::<std::io::Error>().unwrap();
                    assert_eq!(source.raw_os_error(), Some(libc::EMFILE), "{error}");
                    failed += 1;
                }
            }
        });
    }
    assert!(failed > 3 && ended > 3, "{failed} failed, {ended} ended");
    set(100);
    assert_nothing_left(&s);
}

// ------------------------------------------------------------------ no threads

#[cfg(target_os = "linux")]
#[test]
fn who_waits_for_a_child_takes_no_thread() {
    in_a_program_of_its_own("child::no_threads_apart");
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "run by who_waits_for_a_child_takes_no_thread, in a program of its own"]
fn no_threads_apart() {
    const CHILDREN: usize = 30;
    // Without spares, which might stand in while a child is being started.
    let s = Scheduler::builder().workers(2).spares(0).start().unwrap();
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    s.block_on(async { shell("true").output().await.unwrap() });
    let before = threads();
    let (mut stdins, mut tasks) = (Vec::new(), Vec::new());
    s.block_on(async {
        for _ in 0..CHILDREN {
            let (mut child, stdin) = waits_for_stdin();
            stdins.push(stdin);
            tasks.push(task::spawn(async move { child.wait().await.unwrap() }));
        }
    });
    until("all wait", || s.registrations().socket_waiters == CHILDREN);
    assert_eq!(threads(), before);
    drop(stdins);
    for task in tasks {
        assert!(task.wait(Some(LIMIT)).unwrap().success());
    }
    assert_nothing_left(&s);
}

#[test]
fn more_buffers_than_the_system_takes_at_once_are_no_full_pipe() {
    use std::io::{IoSlice, IoSliceMut};
    const COUNT: usize = 2000;
    let s = scheduler(2);
    s.block_on(async {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let bytes = [7_u8; COUNT];
        let slices: Vec<_> = bytes.chunks(1).map(IoSlice::new).collect();
        let count = poll_fn(|cx| Pin::new(&mut stdin).poll_write_vectored(cx, &slices)).await.unwrap();
        assert!(0 < count && count < COUNT);
        let rest = &bytes[count..];
        assert_eq!(soon(poll_fn(|cx| Pin::new(&mut stdin).poll_write(cx, rest))).await.unwrap(), rest.len());
        drop(stdin);
        let mut stdout = child.stdout.take().unwrap();
        let mut got = 0;
        loop {
            let mut room = [0_u8; COUNT];
            let mut slices: Vec<_> = room.chunks_mut(1).map(IoSliceMut::new).collect();
            let read = poll_fn(|cx| Pin::new(&mut stdout).poll_read_vectored(cx, &mut slices));
            match soon(read).await.unwrap() {
                0 => break,
                count => got += count,
            }
        }
        assert_eq!(got, COUNT);
        assert!(child.wait().await.unwrap().success());
    });
    assert_nothing_left(&s);
}

#[test]
fn a_command_whose_output_was_read_can_be_spawned_as_before() {
    let s = scheduler(1);
    s.block_on(async {
        let mut command = shell("exit 0");
        assert!(soon(command.output()).await.unwrap().status.success());
        let mut child = command.spawn().unwrap();
        assert!(child.stdin.is_none() && child.stdout.is_none() && child.stderr.is_none());
        assert!(soon(child.wait()).await.unwrap().success());
        // What was set stays set.
        let mut command = shell("echo one");
        command.stdout(Stdio::piped());
        assert_eq!(soon(command.output()).await.unwrap().stdout, b"one\n");
        assert!(command.spawn().unwrap().stdout.is_some());
    });
}

#[test]
fn to_kill_a_child_that_has_ended_does_nothing() {
    let s = scheduler(1);
    s.block_on(async {
        let mut child = shell("exit 4").spawn().unwrap();
        assert_eq!(soon(child.wait()).await.unwrap().code(), Some(4));
        child.kill().unwrap();
        let (mut child, _stdin) = waits_for_stdin();
        child.kill().unwrap();
        assert!(!soon(child.wait()).await.unwrap().success());
    });
}
