//! The cooperative budget: how much a task may do in one poll.
//!
//! A future whose sockets, timers, channels and mailbox are always ready would never give its worker back.
//! So each of evener's own operations charges the budget of the present poll; when it is used up they say
//! `Pending` after waking the task, which goes to the old end of the queue.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::task::{Context, Poll};

/// Operations in one poll (as tokio's).
pub const BUDGET: u32 = 128;

/// Outside of our polls (in another executor, in a step that polls by itself) nobody would begin a new budget:
/// there is no limit there.
const NO_LIMIT: u32 = u32::MAX;

thread_local! {
    static LEFT: Cell<u32> = const { Cell::new(NO_LIMIT) };
}

/// Runs a poll of ours with a budget of its own. What stood before comes back, also after a panic: a `block_on`
/// may lie within another poll.
#[inline]
pub(crate) fn with_budget<R>(poll: impl FnOnce() -> R) -> R {
    struct Before(u32);
    impl Drop for Before {
        fn drop(&mut self) {
            LEFT.set(self.0);
        }
    }
    let _before = Before(LEFT.replace(BUDGET));
    poll()
}

/// Charges the present poll for one operation that is about to succeed. `Pending`: the budget is used up and
/// the task has been woken; return `Pending` from the poll. For operations of your own.
#[inline]
pub fn poll_proceed(cx: &mut Context<'_>) -> Poll<()> {
    let left = LEFT.get();
    if left == 0 {
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    if left != NO_LIMIT {
        LEFT.set(left - 1);
    }
    Poll::Ready(())
}

/// Gives back what [`poll_proceed`] took, when the operation then had to wait.
#[inline]
pub(crate) fn refund() {
    LEFT.set(LEFT.get().saturating_add(1));
}

/// Charges the budget once; for loops that wait for nothing else.
pub fn consume_budget() -> impl Future<Output = ()> + Send {
    poll_fn(poll_proceed)
}
