//! Who else is there, which slots are whose, and what the others are told.
//!
//! Each slot belongs to the live worker that comes out first when all are hashed with it (rendezvous
//! hashing), so when one joins or leaves only its own slots change hands. That says who claims an instance
//! first, nothing more: who owns it is in the store.

use std::sync::{Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use evener_actor::id::{Boot, Slot};
use evener_store::workers::Note;

use crate::work::{Bell, Pace, Work};
use crate::worker::RuntimeWorker;

/// Notes that are kept for the others, at most; with more they are told to look at everything.
const NOTES_MAX: usize = 4096;

/// How long notes gather.
const GATHER: Duration = Duration::from_millis(2);

/// Who else is there.
pub struct Peers {
    worker: Weak<RuntimeWorker>,
    bell: Bell,
    live: RwLock<Vec<Boot>>,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    waiting: Vec<Note>,
    since: Option<Duration>,
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers").finish_non_exhaustive()
    }
}

impl Peers {
    pub(crate) fn new(worker: Weak<RuntimeWorker>) -> Self {
        Self { worker, bell: Bell::default(), live: RwLock::default(), notes: Mutex::default() }
    }

    fn live(&self) -> std::sync::RwLockReadGuard<'_, Vec<Boot>> {
        self.live.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// These live. `true`: others than before.
    pub(crate) fn are(&self, mut live: Vec<Boot>) -> bool {
        live.sort();
        let mut own = self.live.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = *own != live;
        *own = live;
        is_new
    }

    /// `true`: nobody else lives, as far as is known.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.live().len() <= 1
    }

    /// Whether a slot belongs to that boot. Alone, all do.
    #[must_use]
    pub fn is_whose(&self, slot: Slot, boot: Boot) -> bool {
        let live = self.live();
        live.len() <= 1 || owner(&live, slot) == Some(boot)
    }

    /// Tells the others, soon. Alone, nobody.
    pub(crate) fn tell(&self, note: Note, now: Duration) {
        if self.is_alone() {
            return;
        }
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.waiting.len() >= NOTES_MAX {
            notes.waiting.clear();
            notes.waiting.push(Note::Look);
        } else if notes.waiting.last() != Some(&Note::Look) {
            notes.waiting.push(note);
        }
        if notes.since.is_none() {
            notes.since = Some(now);
            drop(notes);
            self.bell.ring();
        }
    }
}

/// Whose the slot is.
///
/// # Source
/// Highest random weight: Thaler, Ravishankar, "A name-based mapping scheme for rendezvous", 1996. The hash is
/// the finish of SplitMix64.
fn owner(live: &[Boot], slot: Slot) -> Option<Boot> {
    let weight = |boot: &Boot| {
        let mut mixed =
            (boot.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(slot.number()) << 40);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    live.iter().max_by_key(|boot| (weight(boot), **boot)).copied()
}

impl Work for Peers {
    fn name(&self) -> String {
        "evener-notify".to_owned()
    }

    fn bell(&self) -> &Bell {
        &self.bell
    }

    fn step(&self) -> Pace {
        let Some(worker) = self.worker.upgrade() else { return Pace::Idle };
        let now = worker.clock.now();
        let waiting = {
            let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(since) = notes.since else { return Pace::Idle };
            let age = now.saturating_sub(since);
            if age < GATHER {
                return Pace::Wait(GATHER - age);
            }
            notes.since = None;
            std::mem::take(&mut notes.waiting)
        };
        // Best effort: who is not reached looks anyway.
        if let Err(error) = worker.store.notify(&waiting) {
            worker.store_failed("notify other workers", &error);
        }
        Pace::Again
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evener_actor::id::SLOTS;

    #[test]
    fn slots_are_spread_evenly_and_few_move() {
        let slots = || (0..SLOTS).map(Slot::new);
        let three = [Boot(7), Boot(8), Boot(12)];
        for boot in three {
            let count = slots().filter(|slot| owner(&three, *slot) == Some(boot)).count();
            assert!((280..=400).contains(&count), "{boot}: {count}");
        }
        let two = [Boot(7), Boot(12)];
        let moved = slots().filter(|slot| {
            let before = owner(&three, *slot);
            before != Some(Boot(8)) && before != owner(&two, *slot)
        });
        assert_eq!(moved.count(), 0);
    }
}
