//! Addresses of processes: node, host, slot, generation; parsing and printing.
//!
//! A slot's number says where a process lives, the generation which of the slot's lives is meant.
//! Both together are never given out twice, so a PID kept for too long reaches nobody: it never
//! reaches somebody else. Who looks a PID up is [`crate::route`].

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// The address of a process in this program: 8 bytes, valid for one life of one slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocalPid {
    pub(crate) slot: NonZeroU32,
    pub(crate) generation: u32,
}

impl LocalPid {
    #[inline]
    pub(crate) fn new(slot: u32, generation: u32) -> Option<Self> {
        Some(Self { slot: NonZeroU32::new(slot)?, generation })
    }

    /// The slot's number.
    #[must_use]
    pub fn slot(self) -> u32 {
        self.slot.get()
    }

    /// Which life of the slot is meant.
    #[must_use]
    pub fn generation(self) -> u32 {
        self.generation
    }
}

impl fmt::Debug for LocalPid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}

/// The full address of a process: which node, which host on it, which slot, which life.
///
/// The text form is four decimal numbers, `node.host.slot.generation`, and parses back to an equal
/// value:
///
/// ```
/// # use evener_scheduler::Pid;
/// let pid: Pid = "0.1.42.7".parse()?;
/// assert_eq!(pid.to_string(), "0.1.42.7");
/// # Ok::<(), evener_scheduler::PidParseError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pid {
    pub(crate) node: u16,
    pub(crate) host: u16,
    pub(crate) local: LocalPid,
}

impl Pid {
    #[inline]
    pub(crate) fn new(node: u16, host: u16, local: LocalPid) -> Self {
        Self { node, host, local }
    }

    /// The node: 0 is this program.
    #[must_use]
    pub fn node(self) -> u16 {
        self.node
    }

    /// The number of the host, unique among the hosts that are alive in this program.
    #[must_use]
    pub fn host(self) -> u16 {
        self.host
    }

    /// The part that is enough within this program.
    #[must_use]
    pub fn local(self) -> LocalPid {
        self.local
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}.{}", self.node, self.host, self.local.slot, self.local.generation)
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pid({self})")
    }
}

/// Why a text is not a PID. Each variant names the part that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PidParseError {
    /// There are not exactly four parts between dots.
    #[error("a PID has four numbers, `node.host.slot.generation`; {text:?} has {parts}")]
    Parts {
        /// What was to be parsed.
        text: String,
        /// How many parts it has.
        parts: usize,
    },
    /// One part is not a plain decimal number within its range.
    #[error("the {part} of PID {text:?} is not a number from {min} to {max}: {found:?}")]
    Number {
        /// What was to be parsed.
        text: String,
        /// `node`, `host`, `slot` or `generation`.
        part: &'static str,
        /// The text of that part.
        found: String,
        /// The least value allowed.
        min: u32,
        /// The greatest value allowed.
        max: u32,
    },
}

impl FromStr for Pid {
    type Err = PidParseError;

    /// Parses `node.host.slot.generation`.
    ///
    /// # Errors
    /// [`PidParseError`]: wrong number of parts; a part that is empty, signed, not decimal, padded
    /// with zeros, or out of range; slot 0.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split('.').collect();
        let [node, host, slot, generation] = parts[..] else {
            return Err(PidParseError::Parts { text: text.to_owned(), parts: parts.len() });
        };
        let number = |part: &'static str, found: &str, min: u32, max: u32| {
            let plain = !found.is_empty()
                && found.bytes().all(|byte| byte.is_ascii_digit())
                && (found == "0" || !found.starts_with('0'));
            match found.parse::<u32>() {
                Ok(value) if plain && (min..=max).contains(&value) => Ok(value),
                _ => Err(PidParseError::Number {
                    text: text.to_owned(),
                    part,
                    found: found.to_owned(),
                    min,
                    max,
                }),
            }
        };
        let node = number("node", node, 0, u32::from(u16::MAX))? as u16;
        let host = number("host", host, 0, u32::from(u16::MAX))? as u16;
        let slot = number("slot", slot, 1, u32::MAX)?;
        let generation = number("generation", generation, 0, crate::process::slot::GENERATION_MAX)?;
        let local = LocalPid::new(slot, generation).expect("slot was checked to be at least 1");
        Ok(Self { node, host, local })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        for text in ["0.0.1.0", "65535.65535.4294967295.16777214", "0.1.42.7"] {
            assert_eq!(text.parse::<Pid>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn malformed_text_names_the_part() {
        for (text, part) in [
            ("a.0.1.0", "node"),
            ("0.65536.1.0", "host"),
            ("0.0.0.0", "slot"),
            ("0.0.01.0", "slot"),
            ("0.0.1.16777215", "generation"),
            ("0.0.1.-1", "generation"),
            ("0.0.1.", "generation"),
            ("0.0.+1.0", "slot"),
        ] {
            match text.parse::<Pid>() {
                Err(PidParseError::Number { part: named, .. }) => assert_eq!(named, part, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        for text in ["", "1", "1.2.3", "1.2.3.4.5"] {
            assert!(matches!(text.parse::<Pid>(), Err(PidParseError::Parts { .. })), "{text}");
        }
    }

    #[test]
    fn an_error_shows_its_text_on_one_line() {
        let texts = ["1\n2", "0.0.1.\u{1b}[31m7"].map(|text| text.parse::<Pid>().unwrap_err().to_string());
        assert_eq!(texts[0], "a PID has four numbers, `node.host.slot.generation`; \"1\\n2\" has 1");
        let number = "the generation of PID \"0.0.1.\\u{1b}[31m7\" is not a number from 0 to 16777214: \"\\u{1b}[31m7\"";
        assert_eq!(texts[1], number);
    }

    #[test]
    fn an_address_is_small() {
        assert_eq!(size_of::<Option<LocalPid>>(), 8);
        assert_eq!(size_of::<Option<Pid>>(), 12);
    }
}
