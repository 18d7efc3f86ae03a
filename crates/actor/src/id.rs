//! Names that people give, numbers that the store gives.
//!
//! A name is text with a bound, checked once when it is made. A number is only ever compared with numbers
//! of its own kind, so each kind has its own type.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The most bytes that a name of a tenant, an actor, a stream or a group may have.
pub const NAME_BYTES_MAX: usize = 255;

/// The most bytes that a key or a group may have: both are part of an index.
pub const KEY_BYTES_MAX: usize = 1024;

/// How many slots instances are spread over; see [`Slot`].
pub const SLOTS: u16 = 1024;

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing in it.
    #[error("{what} is empty")]
    Empty {
        /// Which kind of name.
        what: &'static str,
    },
    /// More bytes than an index takes.
    #[error("{what} has {bytes} bytes, at most {bytes_max} are allowed")]
    TooLong {
        /// Which kind of name.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// A NUL, which PostgreSQL's text cannot hold.
    #[error("{what} has a NUL character at byte {at}")]
    Nul {
        /// Which kind of name.
        what: &'static str,
        /// Where.
        at: usize,
    },
}

fn checked(what: &'static str, bytes_max: usize, text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { what });
    }
    if text.len() > bytes_max {
        return Err(NameError::TooLong { what, bytes: text.len(), bytes_max });
    }
    match text.bytes().position(|byte| byte == 0) {
        Some(at) => Err(NameError::Nul { what, at }),
        None => Ok(()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text and takes it.
            ///
            /// # Errors
            /// [`NameError`] when it is empty, too long or has a NUL.
            pub fn new(text: impl Into<Arc<str>>) -> Result<Self, NameError> {
                let text = text.into();
                checked($what, $max, &text)?;
                Ok(Self(text))
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The text, shared.
            #[must_use]
            pub fn to_arc(&self) -> Arc<str> {
                Arc::clone(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = NameError;
            fn try_from(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                Self::new(text).map_err(serde::de::Error::custom)
            }
        }
    };
}

name!(
    /// Owner of everything below it. [`Tenant::default`] where there is only one.
    Tenant, "the tenant's name", NAME_BYTES_MAX
);
name!(
    /// Name of an actor's definition, unique within its tenant.
    ActorName, "the actor's name", NAME_BYTES_MAX
);
name!(
    /// Name of a stream, unique within its tenant.
    StreamName, "the stream's name", NAME_BYTES_MAX
);
name!(
    /// Which instance of an actor: a conversation, an order, a device.
    Key, "the key", KEY_BYTES_MAX
);
name!(
    /// Rows of an instance whose concurrency is counted together.
    Group, "the group", KEY_BYTES_MAX
);
name!(
    /// Name of a schedule, unique within its tenant; setting it again replaces it.
    ScheduleId, "the schedule's id", KEY_BYTES_MAX
);

impl Default for Tenant {
    /// `default`
    fn default() -> Self {
        Self(Arc::from("default"))
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// A tenant, as rows know it.
    TenantNo
);
number!(
    /// An actor, as rows know it; of one tenant.
    ActorNo
);
number!(
    /// A stream, as rows know it; of one tenant.
    StreamNo
);
number!(
    /// A subscription, as rows know it; of one actor and one stream.
    SubscriptionNo
);
number!(
    /// One actor for one key.
    InstanceId
);
number!(
    /// Place of an event in the order of all events; rises, with gaps.
    Seq
);
number!(
    /// Place of a row in the order of the queue; rises, with gaps.
    QueueId
);
number!(
    /// One life of a runtime worker. A boot that is dead never lives again.
    Boot
);
number!(
    /// Number that rises at each change of an instance's owner; the store refuses an older one.
    Epoch
);
number!(
    /// How many commits an instance's row has seen.
    Version
);

/// A part of all instances, by hash: what workers divide among them, and the first column of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(u16);

impl Slot {
    /// The slot with that number.
    ///
    /// # Panics
    /// If it is [`SLOTS`] or more.
    #[must_use]
    pub fn new(number: u16) -> Self {
        assert!(number < SLOTS, "slot {number} of {SLOTS}");
        Self(number)
    }

    /// Where an instance belongs. It is written into rows, so it never changes: FNV-1a over the three
    /// parts, each followed by a byte that UTF-8 never has, folded to the width.
    ///
    /// # Source
    /// Fowler, Noll, Vo: FNV-1a, 64 bits; offset basis 0xcbf29ce484222325, prime 0x100000001b3.
    #[must_use]
    pub fn of(tenant: &Tenant, actor: &ActorName, key: &Key) -> Self {
        let mut hash = Fnv::default();
        for part in [tenant.as_str(), actor.as_str(), key.as_str()] {
            hash.add(part.as_bytes());
            hash.add(&[0xff]);
        }
        let hash = hash.0;
        let folded = (hash ^ (hash >> 32)) as u32;
        Self(((folded ^ (folded >> 16)) % u32::from(SLOTS)) as u16)
    }

    /// Its number, below [`SLOTS`].
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// A group as rows and indexes know it. Two groups with the same hash share their limit; that they are
/// different is seen in the text beside it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupHash(pub i64);

impl GroupHash {
    /// Of rows without a group: they are one group together.
    pub const NONE: Self = Self(0);

    /// FNV-1a of the text, never [`GroupHash::NONE`].
    #[must_use]
    pub fn of(group: &Group) -> Self {
        let mut hash = Fnv::default();
        hash.add(group.as_str().as_bytes());
        Self((hash.0 as i64).max(i64::MIN + 1).wrapping_add(i64::from(hash.0 == 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_not_empty_not_too_long_and_has_no_nul() {
        assert!(matches!(Key::new(""), Err(NameError::Empty { .. })));
        assert!(matches!(Key::new("a\0b"), Err(NameError::Nul { at: 1, .. })));
        assert!(Key::new("k".repeat(KEY_BYTES_MAX)).is_ok());
        let error = Key::new("k".repeat(KEY_BYTES_MAX + 1)).unwrap_err();
        assert_eq!(error.to_string(), "the key has 1025 bytes, at most 1024 are allowed");
    }

    #[test]
    fn any_other_text_is_a_name() {
        for text in ["Ünïcode \"quoted\" 'name' 🎈", " ", "a.b/c", "DROP TABLE x; --"] {
            assert_eq!(StreamName::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn a_slot_never_moves() {
        let slot = |key: &str| {
            Slot::of(&Tenant::default(), &"counter".parse().unwrap(), &key.parse().unwrap()).number()
        };
        // Written into the rows of every store there is.
        assert_eq!([slot("a"), slot("b"), slot("ab")], [787, 934, 581]);
    }

    #[test]
    fn parts_do_not_run_into_one_another() {
        let slot = |tenant: &str, actor: &str| {
            Slot::of(&tenant.parse().unwrap(), &actor.parse().unwrap(), &"k".parse().unwrap())
        };
        assert_ne!(slot("ab", "c"), slot("a", "bc"));
    }

    #[test]
    fn keys_spread_over_all_slots() {
        let mut counts = vec![0_u32; usize::from(SLOTS)];
        for number in 0..SLOTS as u32 * 100 {
            let key = format!("device-{number}").parse().unwrap();
            let slot = Slot::of(&Tenant::default(), &"a".parse().unwrap(), &key);
            counts[usize::from(slot.number())] += 1;
        }
        assert!(counts.iter().all(|&count| (50..=160).contains(&count)), "{counts:?}");
    }
}
