//! What becomes of messages that nobody takes, and the end of a process.
//!
//! A mailbox may hold millions. They are dropped a part at a time, each part one entry of a run queue like a
//! turn of a process, so that others wait for one part and not for all. The entry is a slot that is `FREE` and
//! in no free list: nobody is admitted to it, sweeps pass it by, and the worker that takes it out of its queue
//! finds a [`Leftover`] in its cold part. Thieves may take it like any other.
//!
//! *An end* uses the dead process's own slot. Its steps keep their order ([`crate::process`]): the rest of them
//! (yields, name, hook, monitors, links) waits in the leftover till the last message is dropped, and only then
//! is the slot free for another. Till then the process counts as alive for the end of the host, and its name is
//! still its own; what is sent to the name of a supervised one waits beside it.
//!
//! *Whatever else lets go of many messages* (a reset of a queue, a name that will have no successor) gets a slot
//! for the purpose; nothing waits for it.

use std::ptr;
use std::sync::Arc;

use super::Worker;
use crate::command::YieldError;
use crate::memory::{self, Class, InMemory};
use crate::process::budget;
use crate::process::event_queue::Cells;
use crate::process::message;
use crate::process::slot::{Slot, Word};
use crate::process::table::{Cold, ReplyTo};
use crate::process::{ExitReason, ProcessError, ResetError, cold_of, contain};
use crate::queues::Item;
use crate::route::names::{Held, Parting};
use crate::route::{self, links};
use crate::sync::Relaxed;
use crate::{LocalPid, Payload, Pid};

/// So many messages are dropped, or looked at, at once. (Some 0.2 ms, where each has a box.)
const PART: u32 = 4096;

/// Lists of messages to be dropped, and what is to follow.
pub(crate) struct Leftover {
    lists: Vec<u32>,
    end: Option<Box<End>>,
}

/// The end of a process, under way.
struct End {
    pid: Pid,
    word: Word,
    reason: ExitReason,
    result: Option<Payload>,
    /// Who waits for its `init`.
    waiters: Vec<ReplyTo>,
    /// Who hears that its `init` failed.
    spawner: Option<Pid>,
    stage: Stage,
}

enum Stage {
    /// Its name may be held for a successor: what that one will get is parted from what was for this one alone.
    Parting(Parting),
    /// Its messages are dropped.
    Dropping,
    /// Its names are free, or held. What was sent to them meanwhile, and goes to nobody, is dropped.
    Released,
}

impl Worker {
    /// The end of a process that somebody knows of, or that leaves something. `true`: it is over. `false`: it
    /// goes on in parts, and so does the rest of the caller's work, in [`Self::finish_end`].
    #[cold]
    #[allow(clippy::too_many_arguments, reason = "the parts of one end")]
    pub(super) fn end_known(
        &self,
        number: Item,
        slot: &'static Slot,
        first: u32,
        word: Word,
        inbox: u32,
        cold: *mut Cold,
        reason: ExitReason,
        result: Option<Payload>,
    ) -> bool {
        let pid = Pid::new(0, self.hub.id, LocalPid::new(number, first).expect("slot numbers begin at 1"));
        let mut rest = 0;
        let mut waiters = Vec::new();
        let mut spawner = None;
        if !cold.is_null() {
            // SAFETY: made by `Box::into_raw`, taken from the slot by the caller.
            let mut cold = unsafe { Box::from_raw(cold) };
            rest = cold.rest;
            for pending in cold.pending.take_all() {
                self.forget_timer(&pending);
            }
            waiters = std::mem::take(&mut cold.waiters);
            spawner = cold.spawner;
            let _ = contain(|| drop(cold));
        }
        let lists = [inbox, rest, word.head()];
        let mut end = End { pid, word, reason, result, waiters, spawner, stage: Stage::Dropping };
        let mut leftover = Vec::new();
        if word.is_watched() && self.engine.names.may_hold(pid, &end.reason) {
            end.stage = Stage::Parting(Parting::new(lists));
        } else {
            leftover.extend(lists.into_iter().filter(|list| *list != 0));
        }
        if self.go_on_with_end(&mut end, &mut leftover) {
            self.tell_end(end);
            return true;
        }
        let leftover = Leftover { lists: leftover, end: Some(Box::new(end)) };
        self.leave(number, slot, leftover);
        false
    }

    /// Puts a slot that is `FREE` and in no free list into a run queue, to be taken apart.
    fn leave(&self, number: Item, slot: &Slot, leftover: Leftover) {
        slot.inbox.store(0, Relaxed);
        // SAFETY: the slot is this worker's: no process lives in it, and no free list has it.
        unsafe { cold_of(slot) }.leftover = Some(Box::new(leftover));
        self.push_old(number);
    }

    /// One part of what a slot was left with.
    #[cold]
    #[inline(never)]
    pub(super) fn take_apart(&self, number: Item, slot: &'static Slot, mut leftover: Leftover) {
        let Leftover { lists, end } = &mut leftover;
        let is_over = match end {
            None => {
                // What is dropped may spawn, and here no process keeps the host from its end meanwhile.
                self.is_between_steps.set(true);
                let is_over = self.drop_part(lists, &mut { PART });
                self.is_between_steps.set(false);
                is_over
            }
            Some(end) => self.go_on_with_end(end, lists),
        };
        if !is_over {
            return self.leave(number, slot, leftover);
        }
        let cold = slot.cold.with_mut(|place| {
            // SAFETY: as in `leave`.
            unsafe { std::mem::replace(&mut *place, ptr::null_mut()) }
        });
        // SAFETY: `leave` made it by `cold_of`, that is by `Box::into_raw`.
        drop(unsafe { Box::from_raw(cold) });
        match leftover.end {
            None => self.magazines.free(Class::Slot, number),
            Some(end) => {
                let generation = end.word.generation();
                self.tell_end(*end);
                self.finish_end(number, generation);
            }
        }
    }

    /// One part of an end: of its messages and its names. `true`: they are dealt with.
    fn go_on_with_end(&self, end: &mut End, lists: &mut Vec<u32>) -> bool {
        let mut left = PART;
        loop {
            let messages = match &mut end.stage {
                Stage::Parting(parting) => {
                    if !parting.go_on(&mut left) {
                        return false;
                    }
                    let (messages, others) = parting.parts();
                    lists.extend(Some(others.into_list()).filter(|list| *list != 0));
                    messages
                }
                Stage::Dropping => {
                    if !self.drop_part(lists, &mut left) {
                        return false;
                    }
                    Held::default()
                }
                Stage::Released => return self.drop_part(lists, &mut left),
            };
            if end.word.is_watched() {
                self.engine.names.release(end.pid, messages, &end.reason, lists);
            }
            end.stage = Stage::Released;
        }
    }

    /// The rest of an end: whoever waits for it hears of it.
    fn tell_end(&self, end: End) {
        let End { pid, word, reason, result, waiters, spawner, stage: _ } = end;
        budget::forget(pid.local(), word);
        for waiter in waiters {
            let failed = match &reason {
                ExitReason::InitFailed(error) => YieldError::Spawn(crate::SpawnError::Init(error.clone())),
                _ => YieldError::Failed(ProcessError::new(&reason)),
            };
            route::complete(waiter, Err(failed));
        }
        if let Some(hooks) = &self.engine.hooks {
            let result = result.as_ref();
            let _ = contain(|| hooks.on_complete(pid, &reason, result));
        }
        if let Some(result) = result {
            links::deliver_result(pid, result, word);
        }
        if let (Some(spawner), ExitReason::InitFailed(_)) = (spawner, &reason) {
            links::tell(spawner.local(), pid, Arc::new(reason.clone()), crate::ExitBy::Spawn);
        }
        if word.is_watched() {
            links::ended(pid, reason);
        } else {
            let _ = contain(|| drop(reason));
        }
    }

    /// Drops at most so many messages of these lists, each contained. `true`: nothing is left.
    fn drop_part(&self, lists: &mut Vec<u32>, left: &mut u32) -> bool {
        while let Some(list) = lists.first_mut() {
            *list = self.drop_list(*list, left);
            if *list != 0 {
                return false;
            }
            lists.remove(0);
        }
        true
    }

    /// Drops at most so many messages of a list, each contained. Gives the rest of it.
    fn drop_list(&self, mut list: u32, left: &mut u32) -> u32 {
        while list != 0 && *left != 0 {
            let next = InMemory.next(list).load(Relaxed);
            // SAFETY: the list was taken out of a mailbox by its runner, or let go of by a name.
            let message = unsafe { message::take(&self.magazines, list) };
            let _ = contain(|| drop(message));
            list = next;
            *left -= 1;
            self.count(|counters| &counters.dropped_messages);
        }
        list
    }

    /// Drops messages that nobody takes: now, or in parts if there are many.
    pub(crate) fn drop_soon(&self, lists: [u32; 2]) {
        let mut lists: Vec<u32> = lists.into_iter().filter(|list| *list != 0).collect();
        if self.drop_part(&mut lists, &mut { PART }) {
            return;
        }
        match self.magazines.alloc(Class::Slot) {
            Ok(number) => self.leave(number, memory::slot(number), Leftover { lists, end: None }),
            // No room for anybody: then nobody waits either.
            Err(memory::Exhausted) => {
                self.drop_part(&mut lists, &mut { u32::MAX });
            }
        }
    }

    pub(crate) fn reset_queue(&self, slot: &'static Slot, pid: LocalPid) -> Result<usize, ResetError> {
        let word = budget::reset(pid, slot, self.engine.config.generation_max).ok_or(ResetError)?;
        let inbox = slot.inbox.load(Relaxed);
        slot.inbox.store(0, Relaxed);
        let dropped = InMemory.count(inbox) as usize + InMemory.count(word.head()) as usize;
        self.drop_soon([inbox, word.head()]);
        // SAFETY: the runner alone touches the cold part, and no other reference into it is alive here.
        if let Some(cold) = slot.cold.with(|cold| unsafe { (*cold).as_mut() }) {
            // A tick may have been among them.
            for pending in cold.pending.repeating() {
                self.arm_next_tick(pid, pending);
            }
        }
        Ok(dropped)
    }
}
