//! The yields that a process has out.
//!
//! A list; once it is long, with an index beside it: a process may wait for one answer or for a hundred
//! thousand, and each costs about the same.

use std::collections::{BTreeSet, HashMap};

use crate::command::Pending;
use crate::process::Tag;

/// Up to so many are looked for one by one.
const SHORT: usize = 32;

#[derive(Default)]
pub(crate) struct Pendings {
    list: Vec<Pending>,
    index: Option<Box<Index>>,
}

/// Where each stands in the list.
#[derive(Default)]
struct Index {
    places: HashMap<u32, usize>,
    /// The numbers of each tag: a process may give one twice.
    numbers: BTreeSet<(Tag, u32)>,
}

impl Pendings {
    pub(crate) const fn new() -> Self {
        Self { list: Vec::new(), index: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn push(&mut self, pending: Pending) {
        let place = self.list.len();
        self.list.push(pending);
        match &mut self.index {
            Some(index) => index.insert(&pending, place),
            None if place == SHORT => {
                let mut index = Box::<Index>::default();
                for (place, pending) in self.list.iter().enumerate() {
                    index.insert(pending, place);
                }
                self.index = Some(index);
            }
            None => {}
        }
    }

    fn place(&self, seq: u32) -> Option<usize> {
        match &self.index {
            Some(index) => index.places.get(&seq).copied(),
            None => self.list.iter().position(|pending| pending.seq == seq),
        }
    }

    /// The one of that number. Its number and tag are not to be changed.
    pub(crate) fn get_mut(&mut self, seq: u32) -> Option<&mut Pending> {
        let place = self.place(seq)?;
        Some(&mut self.list[place])
    }

    pub(crate) fn remove(&mut self, seq: u32) -> Option<Pending> {
        let place = self.place(seq)?;
        Some(self.remove_at(place))
    }

    /// Takes one of that tag.
    pub(crate) fn remove_tag(&mut self, tag: Tag) -> Option<Pending> {
        let place = match &self.index {
            Some(index) => {
                let (found, seq) = index.numbers.range((tag, 0)..).next()?;
                if *found != tag {
                    return None;
                }
                index.places[seq]
            }
            None => self.list.iter().position(|pending| pending.tag == tag)?,
        };
        Some(self.remove_at(place))
    }

    fn remove_at(&mut self, place: usize) -> Pending {
        let gone = self.list.swap_remove(place);
        if let Some(index) = &mut self.index {
            if self.list.len() <= SHORT / 2 {
                // Back to a short list, memory included: the crowd of yesterday is not kept.
                self.index = None;
                self.list.shrink_to(SHORT);
            } else {
                index.places.remove(&gone.seq);
                index.numbers.remove(&(gone.tag, gone.seq));
                if let Some(moved) = self.list.get(place) {
                    index.places.insert(moved.seq, place);
                }
            }
        }
        gone
    }

    /// Those of tickers.
    pub(crate) fn repeating(&mut self) -> impl Iterator<Item = &mut Pending> {
        self.list.iter_mut().filter(|pending| pending.period != 0)
    }

    pub(crate) fn take_all(&mut self) -> Vec<Pending> {
        self.index = None;
        std::mem::take(&mut self.list)
    }
}

impl Index {
    fn insert(&mut self, pending: &Pending, place: usize) {
        self.places.insert(pending.seq, place);
        self.numbers.insert((pending.tag, pending.seq));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Act {
        Push(u64),
        Remove(u32),
        RemoveTag(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            4 => (0..60_u64).prop_map(Act::Push),
            2 => (0..200_u32).prop_map(Act::Remove),
            1 => (0..60_u64).prop_map(Act::RemoveTag),
        ]
    }

    fn seqs(pendings: &Pendings) -> Vec<u32> {
        let mut all: Vec<u32> = pendings.list.iter().map(|pending| pending.seq).collect();
        all.sort_unstable();
        all
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_list(acts in proptest::collection::vec(act(), 1..400)) {
            let mut pendings = Pendings::new();
            let mut model: Vec<(u32, Tag)> = Vec::new();
            let mut last = 0;
            for act in acts {
                match act {
                    Act::Push(tag) => {
                        last += 1;
                        let tag = Tag(tag);
                        pendings.push(Pending { seq: last, tag, period: 0, timer: None });
                        model.push((last, tag));
                    }
                    Act::Remove(seq) => {
                        let place = model.iter().position(|known| known.0 == seq);
                        let tag = place.map(|place| model.swap_remove(place).1);
                        prop_assert_eq!(pendings.remove(seq).map(|pending| pending.tag), tag);
                    }
                    Act::RemoveTag(tag) => {
                        let gone = pendings.remove_tag(Tag(tag));
                        let place = gone.and_then(|gone| model.iter().position(|known| known.0 == gone.seq));
                        prop_assert_eq!(gone.is_some(), model.iter().any(|known| known.1 == Tag(tag)));
                        if let Some(place) = place {
                            prop_assert_eq!(model.swap_remove(place).1, Tag(tag));
                        }
                    }
                }
                let mut expected: Vec<u32> = model.iter().map(|known| known.0).collect();
                expected.sort_unstable();
                prop_assert_eq!(seqs(&pendings), expected);
                prop_assert_eq!(pendings.is_empty(), model.is_empty());
                for (seq, tag) in &model {
                    prop_assert_eq!(pendings.get_mut(*seq).map(|pending| pending.tag), Some(*tag));
                }
            }
        }
    }
}
