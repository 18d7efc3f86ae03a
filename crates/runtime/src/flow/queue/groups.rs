//! Which slots of which group are taken: a view over the rows in flight, not counts kept beside them.
//!
//! A row is in flight from its start until what became of it is known. Its *stage* says what it takes:
//!
//! | stage | in `rows` | in `slots` of its group | in `calls` | until |
//! | --- | --- | --- | --- | --- |
//! | running | yes | yes | yes | its code has really ended, also after a timeout |
//! | ended, slot given back | yes | | | its commit is known |
//! | ended, slot kept | yes | yes | | its commit is known, or for a blocked row a command |
//!
//! A row moves between the three in one method, so a slot cannot outlive its row: taking the row out takes
//! all of it out. What is read of the queue and is in here is known to be started and is not started again.

use std::collections::{BTreeMap, BTreeSet};

use evener_actor::id::{GroupHash, QueueId};

/// The rows of one instance that were started and are not done with.
#[derive(Debug, Clone, Default)]
pub struct InFlight {
    rows: BTreeMap<QueueId, Held>,
    slots: BTreeMap<GroupHash, BTreeSet<QueueId>>,
    calls: BTreeSet<QueueId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    group: GroupHash,
    /// A newer row of its group was started since.
    is_outrun: bool,
}

impl InFlight {
    /// Takes a slot of its group, and one of the instance, for a row whose call starts.
    ///
    /// # Panics
    /// If it is in flight: nothing is started twice.
    pub fn started(&mut self, id: QueueId, group: GroupHash) {
        if let Some(slots) = self.slots.get(&group) {
            for older in slots.range(..id) {
                if let Some(held) = self.rows.get_mut(older) {
                    held.is_outrun = true;
                }
            }
        }
        let before = self.rows.insert(id, Held { group, is_outrun: false });
        assert!(before.is_none(), "row {id} of {group:?} was started twice");
        self.slots.entry(group).or_default().insert(id);
        self.calls.insert(id);
    }

    /// Its code has really ended; what became of it is not known yet. With `keeps_slot` its group's slot
    /// stays taken.
    ///
    /// # Panics
    /// If its call does not run.
    pub fn ended(&mut self, id: QueueId, keeps_slot: bool) {
        assert!(self.calls.remove(&id), "the call of row {id} does not run");
        if !keeps_slot {
            self.give_back(id);
        }
    }

    /// A newer row stands for it, and its end is on its way to the store: it takes no slot, and is not started.
    pub fn superseded(&mut self, id: QueueId, group: GroupHash) {
        self.rows.entry(id).or_insert(Held { group, is_outrun: true });
    }

    /// Its outcome was refused, so what becomes of it is open again: it takes its slot back, also beyond the
    /// limit, until it ends once more.
    pub fn refused(&mut self, id: QueueId) {
        let Some(held) = self.rows.get(&id) else { return };
        self.slots.entry(held.group).or_default().insert(id);
        self.calls.insert(id);
    }

    /// What became of it is known: its row is gone, or waits again. Returns its group; `None`: it was not
    /// in flight.
    pub fn left(&mut self, id: QueueId) -> Option<GroupHash> {
        self.give_back(id);
        self.calls.remove(&id);
        self.rows.remove(&id).map(|held| held.group)
    }

    fn give_back(&mut self, id: QueueId) {
        let Some(held) = self.rows.get(&id) else { return };
        if let Some(slots) = self.slots.get_mut(&held.group) {
            slots.remove(&id);
            if slots.is_empty() {
                self.slots.remove(&held.group);
            }
        }
    }

    /// How many slots of the group are taken.
    #[must_use]
    pub fn slots(&self, group: GroupHash) -> usize {
        self.slots.get(&group).map_or(0, BTreeSet::len)
    }

    /// Whether the group has a free slot under that limit.
    #[must_use]
    pub fn may_start(&self, group: GroupHash, concurrency: u32) -> bool {
        self.slots(group) < concurrency as usize
    }

    /// How many calls run.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// How many rows are in flight, whatever their stage.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// `true`: none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether that row is.
    #[must_use]
    pub fn contains(&self, id: QueueId) -> bool {
        self.rows.contains_key(&id)
    }

    /// Whether the call of that row runs.
    #[must_use]
    pub fn is_running(&self, id: QueueId) -> bool {
        self.calls.contains(&id)
    }

    /// Its group, if it is in flight.
    #[must_use]
    pub fn group(&self, id: QueueId) -> Option<GroupHash> {
        self.rows.get(&id).map(|held| held.group)
    }

    /// Whether a newer row of its group was started while it had its slot: in mode `latest` it is then
    /// superseded, not retried, if it fails.
    #[must_use]
    pub fn is_outrun(&self, id: QueueId) -> bool {
        self.rows.get(&id).is_some_and(|held| held.is_outrun)
    }

    /// The rows in flight, by place, with their groups.
    pub fn iter(&self) -> impl Iterator<Item = (QueueId, GroupHash)> {
        self.rows.iter().map(|(id, held)| (*id, held.group))
    }

    /// Groups that have a slot taken, with how many.
    pub fn groups(&self) -> impl Iterator<Item = (GroupHash, usize)> {
        self.slots.iter().map(|(group, ids)| (*group, ids.len()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: GroupHash = GroupHash(1);
    const B: GroupHash = GroupHash(2);

    /// FC-039: by commit, by throw, by timeout, by dead letter, by refusal: each way ends in `left`.
    #[test]
    fn each_way_out_gives_the_slot_back() {
        let mut in_flight = InFlight::default();
        for id in 1..=3 {
            in_flight.started(QueueId(id), A);
        }
        assert!(!in_flight.may_start(A, 3) && in_flight.may_start(B, 3));
        in_flight.ended(QueueId(1), false);
        assert_eq!((in_flight.slots(A), in_flight.calls(), in_flight.len()), (2, 2, 3));
        in_flight.ended(QueueId(2), true);
        assert_eq!((in_flight.slots(A), in_flight.calls(), in_flight.len()), (2, 1, 3));
        for id in [3, 2, 1] {
            assert_eq!(in_flight.left(QueueId(id)), Some(A));
        }
        assert_eq!(in_flight.left(QueueId(1)), None);
        assert!(in_flight.is_empty() && in_flight.groups().next().is_none());
        assert_eq!((in_flight.slots(A), in_flight.calls()), (0, 0));
    }

    /// FC-040: nothing but the end of the code gives a running call's slot back.
    #[test]
    fn a_call_that_runs_keeps_its_slot() {
        let mut in_flight = InFlight::default();
        in_flight.started(QueueId(1), A);
        assert!(in_flight.is_running(QueueId(1)) && !in_flight.may_start(A, 1));
        in_flight.ended(QueueId(1), false);
        assert!(!in_flight.is_running(QueueId(1)) && in_flight.may_start(A, 1));
        assert!(in_flight.contains(QueueId(1)), "its commit is not known");
    }

    #[test]
    #[should_panic(expected = "was started twice")]
    fn nothing_is_started_twice() {
        let mut in_flight = InFlight::default();
        in_flight.started(QueueId(1), A);
        in_flight.started(QueueId(1), A);
    }

    #[test]
    fn a_newer_start_outruns_the_older_calls_of_its_group_alone() {
        let mut in_flight = InFlight::default();
        in_flight.started(QueueId(1), A);
        in_flight.started(QueueId(2), B);
        in_flight.started(QueueId(3), A);
        let outrun: Vec<bool> = (1..=3).map(|id| in_flight.is_outrun(QueueId(id))).collect();
        assert_eq!(outrun, [true, false, false]);
    }

    #[derive(Debug, Clone)]
    enum Act {
        Start(i64),
        End(i64, bool),
        Leave(i64),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            (0..12_i64).prop_map(Act::Start),
            (0..12_i64, any::<bool>()).prop_map(|(id, keeps)| Act::End(id, keeps)),
            (0..12_i64).prop_map(Act::Leave),
        ];
        prop::collection::vec(act, 0..200)
    }

    proptest! {
        /// Against a plain list of rows with their stages.
        #[test]
        fn slots_are_what_the_rows_in_flight_say(acts in acts()) {
            let group = |id: i64| GroupHash(id % 3);
            let mut in_flight = InFlight::default();
            // id, runs, has a slot
            let mut model: Vec<(i64, bool, bool)> = Vec::new();
            for act in acts {
                match act {
                    Act::Start(id) if !model.iter().any(|row| row.0 == id) => {
                        in_flight.started(QueueId(id), group(id));
                        model.push((id, true, true));
                    }
                    Act::End(id, keeps) => {
                        if let Some(row) = model.iter_mut().find(|row| row.0 == id && row.1) {
                            in_flight.ended(QueueId(id), keeps);
                            *row = (id, false, keeps);
                        }
                    }
                    Act::Leave(id) => {
                        let was_there = model.iter().any(|row| row.0 == id);
                        prop_assert_eq!(in_flight.left(QueueId(id)), was_there.then(|| group(id)));
                        model.retain(|row| row.0 != id);
                    }
                    Act::Start(_) => {}
                }
                prop_assert_eq!(in_flight.len(), model.len());
                prop_assert_eq!(in_flight.calls(), model.iter().filter(|row| row.1).count());
                for hash in 0..3 {
                    let slots = model.iter().filter(|row| row.2 && row.0 % 3 == hash).count();
                    prop_assert_eq!(in_flight.slots(GroupHash(hash)), slots);
                }
            }
        }
    }
}
