//! What the writer remembers of names and numbers that never change.
//!
//! Numbers of instances, streams and actors are given once and their rows are never deleted, so what is
//! known here never becomes wrong, whoever else writes to the file. Only what a transaction made that was
//! then rolled back must be forgotten, by [`Known::forget`].

use std::collections::{HashMap, HashSet};

use evener_actor::id::{ActorNo, InstanceId, Key, Slot, StreamNo, TenantNo};

/// How many bytes of keys each of the two generations holds.
const GENERATION_BYTES: usize = 8 * 1024 * 1024;
/// What an entry costs beside its key.
const ENTRY_BYTES: usize = 96;
/// How many pairs are remembered before all are forgotten.
const PAIRS_MAX: usize = 65_536;

/// Where an instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Its slot.
    pub(super) slot: Slot,
    /// Its number.
    pub(super) instance: InstanceId,
}

type Generation = HashMap<(ActorNo, Key), Place>;

/// What is remembered. Bounded: instances by two generations, of which the older goes when the younger is
/// full, which costs nothing per use, as an order of uses would.
#[derive(Debug, Default)]
pub(super) struct Known {
    young: Generation,
    old: Generation,
    young_bytes: usize,
    streams: HashSet<(TenantNo, StreamNo)>,
    actors: HashSet<(TenantNo, ActorNo)>,
    last_stream: Option<(TenantNo, StreamNo)>,
    last_actor: Option<(TenantNo, ActorNo)>,
}

impl Known {
    /// Where that instance is, if it is remembered.
    pub(super) fn instance(&mut self, name: &(ActorNo, Key)) -> Option<Place> {
        if let Some(place) = self.young.get(name) {
            return Some(*place);
        }
        let (name, place) = self.old.remove_entry(name)?;
        self.remember(name, place);
        Some(place)
    }

    /// Remembers it.
    pub(super) fn remember(&mut self, name: (ActorNo, Key), place: Place) {
        self.young_bytes += name.1.as_str().len() + ENTRY_BYTES;
        self.young.insert(name, place);
        if self.young_bytes > GENERATION_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }

    /// Forgets it: it was never committed.
    pub(super) fn forget(&mut self, name: &(ActorNo, Key)) {
        self.young.remove(name);
        self.old.remove(name);
    }

    /// Whether the stream is known to be the tenant's.
    pub(super) fn has_stream(&mut self, pair: (TenantNo, StreamNo)) -> bool {
        if self.last_stream == Some(pair) {
            return true;
        }
        let is_known = self.streams.contains(&pair);
        if is_known {
            self.last_stream = Some(pair);
        }
        is_known
    }

    /// Remembers that it is. Only what is committed.
    pub(super) fn add_stream(&mut self, pair: (TenantNo, StreamNo)) {
        if self.streams.len() >= PAIRS_MAX {
            self.streams.clear();
        }
        self.streams.insert(pair);
        self.last_stream = Some(pair);
    }

    /// Whether the actor is known to be the tenant's.
    pub(super) fn has_actor(&mut self, pair: (TenantNo, ActorNo)) -> bool {
        if self.last_actor == Some(pair) {
            return true;
        }
        let is_known = self.actors.contains(&pair);
        if is_known {
            self.last_actor = Some(pair);
        }
        is_known
    }

    /// Remembers that it is. Only what is committed.
    pub(super) fn add_actor(&mut self, pair: (TenantNo, ActorNo)) {
        if self.actors.len() >= PAIRS_MAX {
            self.actors.clear();
        }
        self.actors.insert(pair);
        self.last_actor = Some(pair);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> (ActorNo, Key) {
        (ActorNo(1), Key::new(format!("{number:01000}")).unwrap())
    }

    fn place(number: usize) -> Place {
        Place { slot: Slot::new(1), instance: InstanceId(number as i64) }
    }

    #[test]
    fn what_is_used_stays_and_what_is_not_goes() {
        let mut known = Known::default();
        let per_generation = GENERATION_BYTES / (1000 + ENTRY_BYTES);
        for number in 0..10 * per_generation {
            known.remember(name(number), place(number));
            assert_eq!(known.instance(&name(0)), Some(place(0)));
        }
        assert_eq!(known.instance(&name(1)), None);
        assert!(known.young.len() + known.old.len() <= 2 * per_generation + 2);
    }

    #[test]
    fn what_was_rolled_back_is_forgotten() {
        let mut known = Known::default();
        known.remember(name(1), place(1));
        known.forget(&name(1));
        assert_eq!(known.instance(&name(1)), None);
    }
}
