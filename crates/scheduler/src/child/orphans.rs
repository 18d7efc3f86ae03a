//! Children whose [`Child`](super::Child) is gone: somebody must take their status, or they remain as zombies.
//!
//! An orphan with a pidfd waits in its scheduler's poller as a waker that is no task's: whoever polls takes the
//! status. The others, and those whose scheduler ends, are in one list of the program, which is looked through
//! when a child is started or dropped.

use std::process;

use super::exit::{Ending, Exit};
use crate::sync::fixed;

/// Orphans of whose end nobody hears.
static UNHEARD: fixed::Mutex<Vec<process::Child>> = fixed::Mutex::new(Vec::new());

/// Takes the status of those that have ended. An error means that somebody else has taken it.
pub(super) fn look() {
    UNHEARD.lock().retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

/// The child is on its own from here on.
pub(super) fn leave(mut exit: Exit) {
    look();
    if !matches!(exit.child.try_wait(), Ok(None)) {
        return;
    }
    match exit.ending {
        #[cfg(target_os = "linux")]
        Ending::Pidfd(pidfd) => heard::leave(pidfd, exit.child),
        Ending::Signal(_) => UNHEARD.lock().push(exit.child),
    }
}

#[cfg(target_os = "linux")]
mod heard {
    use std::process;
    use std::sync::Arc;
    use std::task::{Poll, Wake, Waker};

    use super::UNHEARD;
    use crate::child::exit::pidfd::Pidfd;
    use crate::sync::Mutex;

    /// Held by the waker that waits for its end, and by nobody else.
    struct Orphan(Mutex<Option<(Pidfd, process::Child)>>);

    pub(super) fn leave(pidfd: Pidfd, child: process::Child) {
        Arc::new(Orphan(Mutex::new(Some((pidfd, child))))).look();
    }

    impl Orphan {
        fn look(self: Arc<Self>) {
            let waker = Waker::from(Arc::clone(&self));
            let mut orphan = self.0.lock();
            let Some((pidfd, child)) = &mut *orphan else { return };
            // Under the lock, so that a wake that comes meanwhile looks after this has.
            let Poll::Ready(status) = pidfd.poll_as_nobody(&waker, child) else { return };
            let gone = orphan.take();
            drop(orphan);
            if let Some((pidfd, child)) = gone {
                drop(pidfd);
                if status.is_err() {
                    // The scheduler has ended, most likely; if somebody else took the status, a look drops it.
                    UNHEARD.lock().push(child);
                }
            }
        }
    }

    impl Wake for Orphan {
        fn wake(self: Arc<Self>) {
            self.look();
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::Duration;

    use super::super::exit::pidfd::IS_MISSING;
    use crate::Scheduler;
    use crate::child::{Command, Stdio};

    const LIMIT: Duration = Duration::from_secs(60);

    fn exists(pid: u32) -> bool {
        std::path::Path::new(&format!("/proc/{pid}")).exists()
    }

    /// As on a system without pidfds.
    #[test]
    fn without_a_pidfd_the_end_is_heard_by_a_signal() {
        IS_MISSING.set(true);
        let s = Scheduler::builder().workers(2).start().unwrap();
        s.block_on(async {
            let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
            let stdin = child.stdin.take();
            // It waits, and gives up.
            let early = crate::time::timeout(Duration::from_millis(5), child.wait()).await;
            assert!(early.is_err());
            drop(stdin);
            assert!(crate::time::timeout(LIMIT, child.wait()).await.unwrap().unwrap().success());
            // Several at a time, of which each hears of each.
            let mut children: Vec<_> = (0..8)
                .map(|code| Command::new("sh").args(["-c", &format!("exit {code}")]).spawn().unwrap())
                .collect();
            for (code, child) in children.iter_mut().enumerate() {
                let status = crate::time::timeout(LIMIT, child.wait()).await.unwrap().unwrap();
                assert_eq!(status.code(), Some(code as i32));
            }
            // One that is dropped is no zombie after the next.
            let mut killed = Command::new("cat").stdin(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
            let (pid, _stdin) = (killed.id(), killed.stdin.take());
            drop(killed);
            let began = crate::clock::now();
            while exists(pid) {
                assert!(crate::clock::now() - began < LIMIT, "a zombie is left");
                assert!(Command::new("true").status().await.unwrap().success());
            }
        });
        IS_MISSING.set(false);
    }
}
