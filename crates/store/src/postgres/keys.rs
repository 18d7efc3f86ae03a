//! Which number each instance has, as far as this worker has seen: a look less for each row.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use evener_actor::id::{ActorNo, InstanceId, Key};

/// How many are kept, at the most, in each of two generations.
const KEYS_MAX: usize = 100_000;

/// Numbers of instances. They never change and instances are never taken away, so nothing here grows stale.
///
/// Two generations: when the young one is full it becomes the old one, and what nobody asked for since goes.
#[derive(Default)]
pub(super) struct Keys(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: HashMap<ActorNo, HashMap<Key, InstanceId>>,
    young_len: usize,
    old: HashMap<ActorNo, HashMap<Key, InstanceId>>,
}

impl Generations {
    fn insert(&mut self, actor: ActorNo, key: Key, instance: InstanceId) {
        if self.young_len >= KEYS_MAX {
            self.old = std::mem::take(&mut self.young);
            self.young_len = 0;
        }
        if self.young.entry(actor).or_default().insert(key, instance).is_none() {
            self.young_len += 1;
        }
    }

    fn get(&mut self, actor: ActorNo, key: &Key) -> Option<InstanceId> {
        let find = |all: &HashMap<ActorNo, HashMap<Key, InstanceId>>| all.get(&actor)?.get(key).copied();
        if let Some(instance) = find(&self.young) {
            return Some(instance);
        }
        let instance = find(&self.old)?;
        self.insert(actor, key.clone(), instance);
        Some(instance)
    }
}

impl Keys {
    /// Looks up many under one lock.
    pub(super) fn with<T>(
        &self,
        act: impl FnOnce(&mut dyn FnMut(ActorNo, &Key) -> Option<InstanceId>) -> T,
    ) -> T {
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut |actor, key| generations.get(actor, key))
    }

    /// Keeps what a committed statement said.
    pub(super) fn keep<'a>(&self, known: impl Iterator<Item = (ActorNo, &'a Key, InstanceId)>) {
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (actor, key, instance) in known {
            generations.insert(actor, key.clone(), instance);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_no_more_are_kept_than_there_is_room_for() {
        let keys = Keys::default();
        let key = |number: usize| Key::new(number.to_string()).unwrap();
        let find = |number: usize| keys.with(|get| get(ActorNo(1), &key(number)));
        for number in 0..3 * KEYS_MAX {
            keys.keep([(ActorNo(1), &key(number), InstanceId(number as i64))].into_iter());
            assert_eq!(find(0), Some(InstanceId(0)), "asked for all the time");
        }
        assert_eq!(find(1), None);
        assert_eq!(find(3 * KEYS_MAX - 1), Some(InstanceId(3 * KEYS_MAX as i64 - 1)));
        let generations = keys.0.lock().unwrap();
        assert!(generations.young_len + generations.old[&ActorNo(1)].len() <= 2 * KEYS_MAX);
    }
}
