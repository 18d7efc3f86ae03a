//! Commands of the clock: sleep, timer, ticker. Nothing fires early; what is due is late by one turn of
//! the worker, or by the monitor's period while that worker is in a long step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Command, CommandId, Completer, DuplicateCommand, HandlerContext, Registry};
use crate::worker::timers::TimerAction;
use crate::{Payload, clock, memory};

/// Completes after this long. Any duration is accepted; one beyond some 580 years never completes.
/// Result: the [`Instant`] of about then.
#[derive(Debug, Clone, Copy)]
pub struct Sleep(pub Duration);

impl Command for Sleep {
    const ID: CommandId = CommandId(20);
}

/// Completes at this time; at once if it is past. Result: the [`Instant`] of about then.
#[derive(Debug, Clone, Copy)]
pub struct Timer(pub Instant);

impl Command for Timer {
    const ID: CommandId = CommandId(21);
}

/// Completes again and again, every so long, till the process cancels the yield or ends. At most one tick waits
/// for the process: those that it is too slow for, or too long in a step for, are skipped, and the next one is
/// at the next whole number of periods from the start after the last was taken. A period of zero counts as one
/// nanosecond. Result, each time: the [`Instant`] of about then.
#[derive(Debug, Clone, Copy)]
pub struct Ticker(pub Duration);

impl Command for Ticker {
    const ID: CommandId = CommandId(22);
}

fn arm(cx: &HandlerContext<'_>, completer: Completer, due: u64) {
    let to = completer.into_reply();
    let key = cx.worker.arm(due, TimerAction::Complete(to));
    cx.worker.attach(memory::slot(to.pid.slot()), to.seq, key);
}

pub(super) fn add_to(registry: &mut Registry) -> Result<(), DuplicateCommand> {
    registry.add(
        Sleep::ID,
        "clock.sleep",
        Arc::new(|cx: &HandlerContext<'_>, input: Payload, mut completer: Completer| {
            match cx.input::<Sleep>(input) {
                Ok(Sleep(delay)) => arm(cx, completer, clock::deadline(clock::now_nanos(), delay)),
                Err(error) => {
                    completer.complete(Err(error));
                }
            }
        }),
    )?;
    registry.add(
        Timer::ID,
        "clock.timer",
        Arc::new(|cx: &HandlerContext<'_>, input: Payload, mut completer: Completer| {
            match cx.input::<Timer>(input) {
                Ok(Timer(at)) => {
                    // The moment itself: two readings of the clock could be far apart.
                    arm(cx, completer, clock::nanos_of(at));
                }
                Err(error) => {
                    completer.complete(Err(error));
                }
            }
        }),
    )?;
    registry.add(
        Ticker::ID,
        "clock.ticker",
        Arc::new(|cx: &HandlerContext<'_>, input: Payload, mut completer: Completer| {
            match cx.input::<Ticker>(input) {
                Ok(Ticker(period)) => {
                    let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1);
                    let to = completer.into_reply();
                    let slot = memory::slot(to.pid.slot());
                    cx.worker.make_repeating(slot, to, period);
                    let due = clock::now_nanos().saturating_add(period);
                    let key = cx.worker.arm(due, TimerAction::Complete(to));
                    cx.worker.attach(slot, to.seq, key);
                }
                Err(error) => {
                    completer.complete(Err(error));
                }
            }
        }),
    )
}
