//! Which instances have a drain here. Quiet ones leave.
//!
//! Each instance is *absent*, *claiming*, *active* or *leaving*.
//!
//! ```text
//! absent --wake--> claiming --claimed--> active --Left--> leaving --released--> absent
//!                      \--not ours--> absent                  \--woken meanwhile--> claiming
//! ```
//!
//! A wake of an active one goes to its drain. A wake of one that is claiming needs nothing: its drain reads
//! before it waits. A wake of one that is leaving is kept and claims it again once it is released; so no row
//! waits longer than for the next look, whatever came between.
//!
//! At most so many are held; a wake beyond that leaves a bit for its slot, and the slot is looked through when
//! there is room. The queue in the store is the only truth about what waits: everything here may be lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use evener_actor::id::{ActorNo, Epoch, InstanceId, Key, QueueId, SLOTS, Slot};
use evener_store::batch::{RowMade, Waiting};
use evener_store::tenants::Paused;
use evener_store::workers::Note;

use crate::flow::drain::Heard;
use crate::work::{Bell, Pace, Work};
use crate::worker::{Ear, RuntimeWorker};

/// Instances in one claim or release, at most.
const BATCH: usize = 1024;

enum Entry {
    /// `true`: woken since it was asked for; what was asked may have missed that row.
    Claiming(bool),
    Active(Active),
    /// `true`: woken meanwhile.
    Leaving(bool),
}

/// How a drain lets go of its instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leave {
    /// It is still ours to give back.
    pub is_ours: bool,
    /// It makes way for others, and rows wait.
    pub has_more: bool,
    /// How many wakes it has heard.
    pub wakes: u64,
}

struct Active {
    ear: Arc<dyn Ear>,
    slot: Slot,
    actor: ActorNo,
    key: Key,
    /// How many wakes it was told.
    wakes: u64,
}

#[derive(Default)]
struct Table {
    paused: Vec<Paused>,
    entries: std::collections::HashMap<InstanceId, Entry, Hasher>,
    wanted: VecDeque<Waiting>,
    leaving: Vec<(Slot, InstanceId, Epoch)>,
    /// Slots with instances that found no room.
    crowded: Slots,
    is_closed: bool,
}

/// Instance numbers are dense; a multiplication spreads them. Fixed, so that a run can be repeated.
#[derive(Default, Clone)]
struct Hasher;

impl std::hash::BuildHasher for Hasher {
    type Hasher = Spread;
    fn build_hasher(&self) -> Spread {
        Spread(0)
    }
}

/// See [`Hasher`].
struct Spread(u64);

impl std::hash::Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    fn write_i64(&mut self, number: i64) {
        self.0 = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

/// A set of slots, taken in turn.
#[derive(Debug)]
struct Slots {
    bits: [u64; SLOTS as usize / 64],
    /// The last one that was taken.
    last: u16,
}

impl Default for Slots {
    fn default() -> Self {
        Self { bits: [0; SLOTS as usize / 64], last: 0 }
    }
}

impl Slots {
    fn add(&mut self, slot: Slot) {
        self.bits[usize::from(slot.number()) / 64] |= 1 << (slot.number() % 64);
    }

    /// The next one behind the last; so none waits for ever for those before it.
    fn take(&mut self) -> Option<Slot> {
        let is_in = |number: &u16| self.bits[usize::from(*number) / 64] & (1 << (number % 64)) != 0;
        let number = (self.last + 1..SLOTS).chain(0..=self.last).find(is_in)?;
        self.bits[usize::from(number) / 64] &= !(1 << (number % 64));
        self.last = number;
        Some(Slot::new(number))
    }

    fn is_empty(&self) -> bool {
        self.bits.iter().all(|bits| *bits == 0)
    }
}

/// Which instances have a drain here.
pub struct Activation {
    worker: Weak<RuntimeWorker>,
    bell: Bell,
    table: Mutex<Table>,
    sweep: Mutex<Sweep>,
    /// All is to be looked through from the start. A flag: who asks for it does not wait for the store.
    wants_look: AtomicBool,
}

#[derive(Debug, Default)]
struct Sweep {
    /// Where the look through all slots stands; `None`: it is over.
    at: Option<Option<Waiting>>,
    /// A slot that is looked through, and where that stands.
    slot: Option<(Slot, Option<Waiting>)>,
    next: Duration,
    tries: u32,
    /// Instances of others' slots that this look, and the one before, left to them.
    left: BTreeSet<InstanceId>,
    left_before: BTreeSet<InstanceId>,
}

/// How many instances are remembered as left to others.
const LEFT_MAX: usize = 10_000;

impl std::fmt::Debug for Activation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Activation").field("active", &self.count()).finish_non_exhaustive()
    }
}

impl Activation {
    pub(crate) fn new(worker: Weak<RuntimeWorker>) -> Self {
        // The first look is at once.
        let sweep = Sweep { at: Some(None), ..Sweep::default() };
        Self {
            worker,
            bell: Bell::default(),
            table: Mutex::default(),
            sweep: Mutex::new(sweep),
            wants_look: AtomicBool::new(false),
        }
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sweep(&self) -> std::sync::MutexGuard<'_, Sweep> {
        self.sweep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many instances have an entry here.
    #[must_use]
    pub fn count(&self) -> usize {
        self.table().entries.len()
    }

    /// `true`: instances wait for room here.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        !self.table().crowded.is_empty()
    }

    /// There are rows for instances, from those places on.
    pub fn wake(&self, rows: &[RowMade], active_max: usize) {
        let mut tell: Vec<(Arc<dyn Ear>, QueueId)> = Vec::new();
        let mut is_wanted = false;
        {
            let mut table = self.table();
            if table.is_closed {
                return;
            }
            for row in rows {
                let is_full = table.entries.len() >= active_max;
                match table.entries.get_mut(&row.instance) {
                    // Rows of one instance follow one another: the first place is the lowest.
                    Some(Entry::Active(Active { ear, wakes, .. })) => match tell.last() {
                        Some((last, _)) if Arc::ptr_eq(last, ear) => {}
                        _ => {
                            *wakes += 1;
                            tell.push((Arc::clone(ear), row.row));
                        }
                    },
                    Some(Entry::Claiming(is_woken)) => *is_woken = true,
                    Some(Entry::Leaving(is_woken)) => *is_woken = true,
                    None if is_full => {
                        table.crowded.add(row.slot);
                        is_wanted = true;
                    }
                    None => {
                        table.entries.insert(row.instance, Entry::Claiming(false));
                        table.wanted.push_back(Waiting { slot: row.slot, instance: row.instance });
                        is_wanted = true;
                    }
                }
            }
        }
        for (ear, row) in tell {
            ear.tell(Heard::Wake(row));
        }
        if is_wanted {
            self.bell.ring();
        }
    }

    /// The drain has let go of its instance.
    pub fn left(&self, slot: Slot, instance: InstanceId, epoch: Epoch, how: Leave) {
        let mut table = self.table();
        match table.entries.get_mut(&instance) {
            Some(entry) => {
                let Entry::Active(active) = &*entry else {
                    debug_assert!(false, "instance {instance} left and was not active");
                    return;
                };
                // A wake that it was told and did not hear is one of a leaving instance.
                let is_woken = !how.is_ours || active.wakes != how.wakes;
                *entry = Entry::Leaving(is_woken);
                // Nothing to give back, if it is not ours. Perhaps it is free again by now: asking is cheap.
                table.leaving.push((slot, instance, if how.is_ours { epoch } else { Epoch(-1) }));
                if how.has_more {
                    table.crowded.add(slot);
                }
            }
            None => debug_assert!(false, "instance {instance} left and was not there"),
        }
        drop(table);
        self.bell.ring();
    }

    /// Tells all drains.
    pub fn tell_all(&self, heard: impl Fn() -> Heard) {
        let ears: Vec<Arc<dyn Ear>> = {
            let table = self.table();
            let mut active: Vec<_> = table
                .entries
                .iter()
                .filter_map(|(id, entry)| match entry {
                    Entry::Active(active) => Some((*id, Arc::clone(&active.ear))),
                    _ => None,
                })
                .collect();
            // In an order that a run repeats.
            active.sort_by_key(|(id, _)| *id);
            active.into_iter().map(|(_, ear)| ear).collect()
        };
        ears.iter().for_each(|ear| ear.tell(heard()));
    }

    /// Tells the drain of one instance, if it has one here.
    pub fn tell(&self, instance: InstanceId, heard: Heard) -> bool {
        let ear = match self.table().entries.get(&instance) {
            Some(Entry::Active(active)) => Arc::clone(&active.ear),
            _ => return false,
        };
        ear.tell(heard);
        true
    }

    /// `true`: the instance has a drain here.
    #[must_use]
    pub fn is_active(&self, instance: InstanceId) -> bool {
        matches!(self.table().entries.get(&instance), Some(Entry::Active(_)))
    }

    /// Instances of such slots are given back as soon as what runs has ended.
    pub fn leave_slots(&self, is_others: impl Fn(Slot) -> bool) {
        let mut ears: Vec<(InstanceId, Arc<dyn Ear>)> = self
            .table()
            .entries
            .iter()
            .filter_map(|(id, entry)| match entry {
                Entry::Active(active) if is_others(active.slot) => Some((*id, Arc::clone(&active.ear))),
                _ => None,
            })
            .collect();
        ears.sort_by_key(|(id, _)| *id);
        ears.iter().for_each(|(_, ear)| ear.tell(Heard::Leave));
    }

    /// This is what is paused from now on.
    pub fn pause(&self, paused: Vec<Paused>) {
        let mut changed: Vec<(InstanceId, Arc<dyn Ear>, bool)> = Vec::new();
        {
            let mut table = self.table();
            if table.paused == paused {
                return;
            }
            for (id, entry) in &table.entries {
                if let Entry::Active(active) = entry {
                    let is_now = is_paused(&paused, active.actor, &active.key);
                    if is_now != is_paused(&table.paused, active.actor, &active.key) {
                        changed.push((*id, Arc::clone(&active.ear), is_now));
                    }
                }
            }
            table.paused = paused;
        }
        changed.sort_by_key(|(id, ..)| *id);
        changed.iter().for_each(|(_, ear, is_paused)| ear.tell(Heard::Pause(*is_paused)));
    }

    /// Claims nothing more.
    pub fn close(&self) {
        let mut table = self.table();
        table.is_closed = true;
        let wanted = std::mem::take(&mut table.wanted);
        for waiting in wanted {
            table.entries.remove(&waiting.instance);
        }
        table.crowded = Slots::default();
        drop(table);
        self.bell.ring();
    }

    /// `true`: no instance has an entry here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table().entries.is_empty()
    }

    /// Looks through the whole queue, from the start, now.
    pub fn look(&self) {
        // Release: pairs with the swap in `scan`; what is to be found was written before.
        self.wants_look.store(true, Ordering::Release);
        self.bell.ring();
    }

    fn release(&self, worker: &RuntimeWorker) -> Option<Pace> {
        let leaving: Vec<_> = {
            let mut table = self.table();
            let count = table.leaving.len().min(BATCH);
            table.leaving.drain(..count).collect()
        };
        if leaving.is_empty() {
            return None;
        }
        let ours: Vec<_> = leaving.iter().copied().filter(|(_, _, epoch)| epoch.0 >= 0).collect();
        if !ours.is_empty()
            && let Err(error) = worker.store.release(worker.ownership.boot(), &ours)
        {
            worker.store_failed("release instances", &error);
            self.table().leaving.splice(0..0, leaving);
            return Some(Pace::Wait(self.breath(worker, &error)));
        }
        if !worker.peers.is_alone() {
            // Whoever they belong to now claims them without waiting for its next look.
            let (boot, now) = (worker.ownership.boot(), worker.clock.now());
            for (slot, instance, _) in &ours {
                if !worker.peers.is_whose(*slot, boot) {
                    let row = RowMade { slot: *slot, instance: *instance, row: QueueId(1) };
                    worker.peers.tell(Note::Row(row), now);
                }
            }
        }
        let mut table = self.table();
        for (slot, instance, _) in leaving {
            if let Some(Entry::Leaving(true)) = table.entries.remove(&instance)
                && !table.is_closed
            {
                table.entries.insert(instance, Entry::Claiming(false));
                table.wanted.push_back(Waiting { slot, instance });
            }
        }
        Some(Pace::Again)
    }

    fn claim(&self, worker: &Arc<RuntimeWorker>) -> Option<Pace> {
        let wanted: Vec<Waiting> = {
            let mut table = self.table();
            let count = table.wanted.len().min(BATCH);
            let wanted: Vec<Waiting> = table.wanted.drain(..count).collect();
            for waiting in &wanted {
                table.entries.insert(waiting.instance, Entry::Claiming(false));
            }
            wanted
        };
        if wanted.is_empty() {
            return None;
        }
        if !worker.ownership.is_trusted(worker.clock.now()) {
            self.put_back(wanted);
            return Some(Pace::Wait(worker.config.heartbeat / 10));
        }
        let claimed = match worker.store.claim(worker.ownership.boot(), &wanted) {
            Ok(claimed) => claimed,
            Err(error) => {
                worker.store_failed("claim instances", &error);
                if let evener_store::StoreError::Fenced(why) = &error {
                    worker.ownership.suspect(why);
                }
                self.put_back(wanted);
                return Some(Pace::Wait(self.breath(worker, &error)));
            }
        };
        self.sweep().tries = 0;
        let mut missing: BTreeMap<InstanceId, Slot> =
            wanted.iter().map(|waiting| (waiting.instance, waiting.slot)).collect();
        let mut refused = Vec::new();
        for claimed in claimed {
            missing.remove(&claimed.instance);
            let (slot, instance, epoch) = (claimed.slot, claimed.instance, claimed.epoch);
            let (actor, key) = (claimed.actor, claimed.key.clone());
            match worker.open(claimed) {
                Some(ear) => {
                    // Before it can leave: it is told to look only now.
                    let mut table = self.table();
                    let is_paused = is_paused(&table.paused, actor, &key);
                    let active = Active { ear: Arc::clone(&ear), slot, actor, key, wakes: 1 };
                    table.entries.insert(instance, Entry::Active(active));
                    drop(table);
                    if is_paused {
                        ear.tell(Heard::Pause(true));
                    }
                    ear.tell(Heard::Wake(QueueId(1)));
                }
                None => {
                    self.table().entries.insert(instance, Entry::Leaving(false));
                    refused.push((slot, instance, epoch));
                }
            }
        }
        let mut table = self.table();
        for (instance, slot) in missing {
            if let Some(Entry::Claiming(true)) = table.entries.remove(&instance)
                && !table.is_closed
            {
                table.entries.insert(instance, Entry::Claiming(false));
                table.wanted.push_back(Waiting { slot, instance });
            }
        }
        table.leaving.extend(refused);
        Some(Pace::Again)
    }

    fn put_back(&self, wanted: Vec<Waiting>) {
        let mut table = self.table();
        for waiting in wanted.into_iter().rev() {
            table.wanted.push_front(waiting);
        }
    }

    /// How long to wait after a fault.
    fn breath(&self, worker: &RuntimeWorker, error: &evener_store::StoreError) -> Duration {
        let mut sweep = self.sweep();
        sweep.tries += 1;
        worker.pause(error, sweep.tries)
    }

    /// Takes the next page of what waits, as long as there is room.
    fn scan(&self, worker: &RuntimeWorker) -> Option<Pace> {
        let active_max = worker.config.active_max;
        let now = worker.clock.now();
        let mut sweep = self.sweep();
        let is_wanted = self.wants_look.swap(false, Ordering::AcqRel);
        if is_wanted || (now >= sweep.next && sweep.at.is_none()) {
            sweep.at = Some(None);
        }
        let (slots, after) = if let Some((slot, after)) = sweep.slot {
            (slot.number()..slot.number() + 1, after)
        } else if let Some(after) = sweep.at {
            (0..SLOTS, after)
        } else {
            let mut table = self.table();
            if table.entries.len() >= active_max {
                return None;
            }
            let slot = table.crowded.take()?;
            sweep.slot = Some((slot, None));
            return Some(Pace::Again);
        };
        if !worker.ownership.is_trusted(now) {
            return Some(Pace::Wait(worker.config.heartbeat / 10));
        }
        let page = match worker.store.waiting(slots.clone(), after, BATCH as u32) {
            Ok(page) => page,
            Err(error) => {
                worker.store_failed("look for waiting instances", &error);
                sweep.tries += 1;
                return Some(Pace::Wait(worker.pause(&error, sweep.tries)));
            }
        };
        let last = (page.len() >= BATCH).then(|| page[page.len() - 1]);
        let is_over = sweep.slot.is_none() && last.is_none();
        match &mut sweep.slot {
            Some((_, after)) if last.is_some() => *after = last,
            Some(_) => sweep.slot = None,
            None => {
                sweep.at = last.map(Some);
                if last.is_none() {
                    sweep.next = now.saturating_add(worker.config.backup_poll);
                }
            }
        }
        drop(sweep);
        let boot = worker.ownership.boot();
        let mut sweep = self.sweep();
        let is_ours = |waiting: &&Waiting| {
            worker.peers.is_whose(waiting.slot, boot)
                || self.is_active(waiting.instance)
                // Whoever it belongs to has had a whole poll to claim it.
                || sweep.left_before.contains(&waiting.instance)
        };
        let (ours, others): (Vec<&Waiting>, Vec<&Waiting>) = page.iter().partition(is_ours);
        let room = LEFT_MAX.saturating_sub(sweep.left.len());
        sweep.left.extend(others.iter().take(room).map(|waiting| waiting.instance));
        if is_over {
            sweep.left_before = std::mem::take(&mut sweep.left);
        }
        drop(sweep);
        let rows: Vec<RowMade> = ours
            .iter()
            .map(|waiting| RowMade { slot: waiting.slot, instance: waiting.instance, row: QueueId(1) })
            .collect();
        self.wake(&rows, active_max);
        Some(Pace::Again)
    }
}

fn is_paused(paused: &[Paused], actor: ActorNo, key: &Key) -> bool {
    paused.iter().any(|paused| paused.actor == actor && paused.key.as_ref().is_none_or(|own| own == key))
}

impl Work for Activation {
    fn name(&self) -> String {
        "evener-claim".to_owned()
    }

    fn bell(&self) -> &Bell {
        &self.bell
    }

    fn step(&self) -> Pace {
        let Some(worker) = self.worker.upgrade() else { return Pace::Idle };
        // Claims first: somebody waits for them. Then room, then what else there is.
        if let Some(pace) = self.claim(&worker) {
            return pace;
        }
        if let Some(pace) = self.release(&worker) {
            return pace;
        }
        if self.table().is_closed {
            return Pace::Idle;
        }
        if let Some(pace) = self.scan(&worker) {
            return pace;
        }
        let next = self.sweep().next;
        Pace::Wait(next.saturating_sub(worker.clock.now()))
    }
}
