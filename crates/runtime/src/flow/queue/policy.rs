//! The order within a group, the reserved share of the oldest, and what a custom `select` may answer.

use std::collections::{BTreeMap, BTreeSet};

use evener_actor::id::{GroupHash, QueueId};
use evener_actor::policy::QueueMode;
use evener_store::batch::QueueRow;

use super::groups::InFlight;

/// Where a row stands among those of its group: the least is taken first.
///
/// fifo and custom: by place. lifo and latest: the newest first. priority: the greatest first, over the whole
/// range of the type, equal ones by place.
#[must_use]
pub fn rank(mode: QueueMode, priority: i32, id: QueueId) -> (i64, i64) {
    // `!` turns the order round and, unlike `-`, has a value for each.
    match mode {
        QueueMode::Fifo | QueueMode::Custom => (0, id.0),
        QueueMode::Lifo | QueueMode::Latest => (0, !id.0),
        QueueMode::Priority => (!i64::from(priority), id.0),
    }
}

/// One start in so many of a group takes its oldest row that is due, whatever its priority.
///
/// A prime, so that groups which share a count (see [`Share`]) and start in strict turn do not always leave
/// the reserved start to the same one of them.
pub const SHARE_OF_OLDEST: u8 = 17;

/// How many counts a [`Share`] has at most.
const SHARE_COUNTS: u64 = 1024;

/// Keeps low priorities from waiting for ever: of [`SHARE_OF_OLDEST`] starts of a group that has rows left
/// behind, one takes the oldest.
///
/// So with a stream of urgent rows at capacity, a row with k older ones before it in its group starts after
/// at most `SHARE_OF_OLDEST * (k + 1)` starts of its group. A share needs no column with an age, no sweep
/// that raises priorities, and no index but the one by place.
///
/// Groups are counted apart up to 1,024 of them; beyond that, those with the same remainder of their hash
/// count together.
#[derive(Debug, Clone, Default)]
pub struct Share {
    starts: BTreeMap<u16, u8>,
}

impl Share {
    fn count(group: GroupHash) -> u16 {
        // The lowest bits of FNV-1a are its weakest.
        let folded = (group.0 as u64) ^ ((group.0 as u64) >> 32);
        (folded % SHARE_COUNTS) as u16
    }

    /// Whether the next start of that group is the one for its oldest row.
    #[must_use]
    pub fn is_for_oldest(&self, group: GroupHash) -> bool {
        self.starts.get(&Self::count(group)).is_some_and(|starts| *starts >= SHARE_OF_OLDEST - 1)
    }

    /// A row of that group was started, by priority or as the oldest.
    pub fn started(&mut self, group: GroupHash, is_oldest: bool) {
        if is_oldest {
            self.starts.remove(&Self::count(group));
        } else {
            let starts = self.starts.entry(Self::count(group)).or_default();
            *starts = starts.saturating_add(1).min(SHARE_OF_OLDEST - 1);
        }
    }
}

/// At most so many rows are shown to a custom `select` at once.
pub const OFFER_MAX: usize = 256;

/// What is wrong with the answer of a custom `select`. Nothing of such an answer starts; the instance backs
/// off as after a throw, and is reported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectFault {
    /// More ids than were shown.
    #[error("select returned {ids} ids, it was shown {shown}")]
    TooMany {
        /// How many came.
        ids: usize,
        /// How many were shown.
        shown: usize,
    },
    /// An id that it was not shown.
    #[error("select returned id {0}, which it was not shown")]
    NotShown(QueueId),
    /// The same id more than once.
    #[error("select returned id {0} twice")]
    Twice(QueueId),
}

/// Whether an answer names only rows that were shown, each once.
///
/// # Errors
/// [`SelectFault`], for the first fault in the order of the answer; its cost depends on what was shown, not
/// on how much came back.
pub fn check_selection(shown: &BTreeSet<QueueId>, answer: &[QueueId]) -> Result<(), SelectFault> {
    if answer.len() > shown.len() {
        return Err(SelectFault::TooMany { ids: answer.len(), shown: shown.len() });
    }
    let mut seen = BTreeSet::new();
    for id in answer {
        if !shown.contains(id) {
            return Err(SelectFault::NotShown(*id));
        }
        if !seen.insert(*id) {
            return Err(SelectFault::Twice(*id));
        }
    }
    Ok(())
}

/// At most so many rows are superseded in one commit.
pub const SUPERSEDED_MAX: u32 = 1_000;

/// Mode `latest`: which of the rows that were read of its group a row stands for. Not those in flight, as a
/// running call is never interrupted; not blocked ones, as they wait for a command.
#[must_use]
pub fn superseded(by: QueueId, rows: &[QueueRow], in_flight: &InFlight) -> Vec<QueueId> {
    rows.iter()
        .filter(|row| row.id < by && !row.is_blocked)
        .map(|row| row.id)
        .filter(|id| !in_flight.contains(*id))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_its_order() {
        let rows = [(1, 5), (2, 9), (3, 5), (4, i32::MIN), (5, i32::MAX), (6, 0)];
        let order = |mode: QueueMode| {
            let mut sorted = rows;
            sorted.sort_by_key(|(id, priority)| rank(mode, *priority, QueueId(*id)));
            sorted.map(|(id, _)| id)
        };
        assert_eq!(order(QueueMode::Fifo), [1, 2, 3, 4, 5, 6]);
        assert_eq!(order(QueueMode::Custom), [1, 2, 3, 4, 5, 6]);
        assert_eq!(order(QueueMode::Lifo), [6, 5, 4, 3, 2, 1]);
        assert_eq!(order(QueueMode::Latest), [6, 5, 4, 3, 2, 1]);
        assert_eq!(order(QueueMode::Priority), [5, 2, 1, 3, 6, 4]);
    }

    #[test]
    fn one_start_in_seventeen_is_for_the_oldest() {
        let mut share = Share::default();
        let (a, b) = (GroupHash(1), GroupHash(2));
        let mut places = Vec::new();
        for start in 1..=51 {
            let is_oldest = share.is_for_oldest(a);
            share.started(a, is_oldest);
            if is_oldest {
                places.push(start);
            }
        }
        assert_eq!(places, [17, 34, 51]);
        assert!(!share.is_for_oldest(b), "counted apart");
    }

    /// Any number of groups that start in strict turn and share one count: each gets reserved starts.
    #[test]
    fn groups_that_share_a_count_all_get_their_reserved_starts() {
        for groups in 1..i64::from(SHARE_OF_OLDEST) {
            let group = |number: i64| GroupHash(1 + number * SHARE_COUNTS as i64);
            assert!((0..groups).all(|number| Share::count(group(number)) == Share::count(group(0))));
            let mut share = Share::default();
            let mut oldest = BTreeSet::new();
            for start in 0..groups * i64::from(SHARE_OF_OLDEST) {
                let group = group(start % groups);
                let is_oldest = share.is_for_oldest(group);
                share.started(group, is_oldest);
                if is_oldest {
                    oldest.insert(group);
                }
            }
            assert_eq!(oldest.len() as i64, groups);
        }
    }

    /// FC-045.
    #[test]
    fn a_selection_names_rows_that_were_shown_each_once() {
        let shown: BTreeSet<QueueId> = (1..=3).map(QueueId).collect();
        let check = |ids: &[i64]| {
            let ids: Vec<QueueId> = ids.iter().copied().map(QueueId).collect();
            check_selection(&shown, &ids)
        };
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[3, 1, 2]), Ok(()));
        assert_eq!(check(&[3, 4]), Err(SelectFault::NotShown(QueueId(4))));
        assert_eq!(check(&[2, 1, 2]), Err(SelectFault::Twice(QueueId(2))));
        assert_eq!(check(&[1; 10_000]), Err(SelectFault::TooMany { ids: 10_000, shown: 3 }));
    }
}
