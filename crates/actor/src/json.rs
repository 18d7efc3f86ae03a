//! What JSON may cross, and the error that names the place.
//!
//! Data is kept byte for byte as it came: numbers of any length, the order of keys, doubled keys, spaces and
//! escapes stay. It must be JSON all the same, for whoever reads it later has no one left to complain to.
//! Refused are, beside what is no JSON: nesting deeper than [`DEPTH_MAX`], lone halves of surrogate pairs
//! (no Rust text, no `jsonb` can hold them), numbers beyond the range of an `f64`. `\u0000` is kept.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// How deep arrays and objects may be nested. Every later layer takes more.
pub const DEPTH_MAX: usize = 127;

/// The longest error text that is kept, in bytes.
pub const ERROR_TEXT_BYTES_MAX: usize = 8 * 1024;

/// Why a text may not cross.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (line {line}, column {column}{})", .path.as_deref().map(|path| format!(", at {path}")).unwrap_or_default())]
pub struct JsonError {
    /// What is wrong.
    pub reason: String,
    /// Where in the text, counted from 1.
    pub line: usize,
    /// Byte of the line, counted from 1.
    pub column: usize,
    /// Where in the value, as far as it was understood: `items[3].name`.
    pub path: Option<String>,
}

/// Checks that the text is one JSON value that every layer can carry.
///
/// # Errors
/// [`JsonError`] with the place of the first fault.
pub fn check(text: &[u8]) -> Result<(), JsonError> {
    let mut from = serde_json::Deserializer::from_slice(text);
    if Whole::deserialize(&mut from).and_then(|Whole| from.end()).is_ok() {
        return Ok(());
    }
    // The second reading keeps the path, which costs; it happens for faulty texts only.
    let mut from = serde_json::Deserializer::from_slice(text);
    let (error, path) = match serde_path_to_error::deserialize::<_, Whole>(&mut from) {
        Err(error) => {
            let path = error.path().to_string();
            (error.into_inner(), (path != ".").then_some(path))
        }
        Ok(Whole) => match from.end() {
            Err(error) => (error, None),
            Ok(()) => return Ok(()),
        },
    };
    let (line, column) = (error.line(), error.column());
    let place = format!(" at line {line} column {column}");
    let reason = error.to_string();
    let reason = reason.strip_suffix(&place).unwrap_or(&reason);
    let reason = match reason {
        "recursion limit exceeded" => format!("nested deeper than {DEPTH_MAX} levels"),
        other => other.to_owned(),
    };
    Err(JsonError { reason, line, column, path })
}

/// Reads everything and keeps nothing. Unlike [`IgnoredAny`] it has texts decoded.
struct Whole;

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Whole;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }
            fn visit_bool<E>(self, _: bool) -> Result<Whole, E> {
                Ok(Whole)
            }
            fn visit_i64<E>(self, _: i64) -> Result<Whole, E> {
                Ok(Whole)
            }
            fn visit_u64<E>(self, _: u64) -> Result<Whole, E> {
                Ok(Whole)
            }
            fn visit_f64<E>(self, _: f64) -> Result<Whole, E> {
                Ok(Whole)
            }
            fn visit_str<E>(self, _: &str) -> Result<Whole, E> {
                Ok(Whole)
            }
            fn visit_unit<E>(self) -> Result<Whole, E> {
                Ok(Whole)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Whole, A::Error> {
                while items.next_element::<Whole>()?.is_some() {}
                Ok(Whole)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Whole, A::Error> {
                while entries.next_entry::<Whole, Whole>()?.is_some() {}
                Ok(Whole)
            }
        }
        from.deserialize_any(Reader)
    }
}

/// The raw text of what lies at the end of a path of object keys and array places. With doubled keys the
/// last one counts, as everywhere else in JSON.
///
/// # Errors
/// When the text is no JSON.
pub fn find<'a>(text: &'a [u8], path: &[String]) -> Result<Option<&'a str>, serde_json::Error> {
    let mut from = serde_json::Deserializer::from_slice(text);
    let found = Finder { path }.deserialize(&mut from)?;
    Ok(found.map(RawValue::get))
}

struct Finder<'p> {
    path: &'p [String],
}

impl<'de> DeserializeSeed<'de> for Finder<'_> {
    type Value = Option<&'de RawValue>;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        if self.path.is_empty() {
            return <&RawValue>::deserialize(from).map(Some);
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Finder<'_> {
    type Value = Option<&'de RawValue>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let wanted = self.path[0].parse::<usize>().ok();
        let mut found = None;
        let mut place = 0;
        loop {
            if Some(place) == wanted {
                match items.next_element_seed(Finder { path: &self.path[1..] })? {
                    Some(value) => found = value,
                    None => return Ok(found),
                }
            } else if items.next_element::<IgnoredAny>()?.is_none() {
                return Ok(found);
            }
            place += 1;
        }
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_wanted) = entries.next_key_seed(KeyIs(&self.path[0]))? {
            if is_wanted {
                found = entries.next_value_seed(Finder { path: &self.path[1..] })?;
            } else {
                entries.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Whether a key is that one, without keeping it.
struct KeyIs<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for KeyIs<'_> {
    type Value = bool;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyIs<'_> {
    type Value = bool;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}

/// Makes a text fit for every store: NUL becomes U+FFFD, what is longer than [`ERROR_TEXT_BYTES_MAX`] is
/// cut between two characters. (Lone surrogates cannot be in a Rust text.)
#[must_use]
pub fn storable(text: &str) -> String {
    let mut text = text.replace('\0', "\u{fffd}");
    if text.len() > ERROR_TEXT_BYTES_MAX {
        let end = (0..=ERROR_TEXT_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> JsonError {
        check(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn what_is_json_may_cross() {
        for text in [
            r#"{"a":"x\u0000y","\u0000k":1}"#,
            r#"{"b":1,"a":1.0,"a":2,"n":12345678901234567890,"e":1e2,"z":1.10}"#,
            r#"["\ud83d\ude00","😀"]"#,
            " null ",
            r#"{"__proto__":{"admin":true}}"#,
        ] {
            assert_eq!(check(text.as_bytes()), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_fault_is_named_with_its_place() {
        let found = error("{\"items\":[1,{\"name\":\"\\ud83d\"}]}");
        assert_eq!(found.path.as_deref(), Some("items[1].name"));
        assert_eq!(found.line, 1);
        assert!(error("[1,\n2,,]").line == 2);
        assert!(error("1 2").reason.contains("trailing"));
        assert!(error("").reason.contains("EOF"));
        assert!(error("[1e999]").reason.contains("number out of range"));
        assert!(check(b"\"\xff\"").is_err());
    }

    #[test]
    fn lone_surrogates_are_refused_in_keys_and_values() {
        for text in [r#""ok\ud83d""#, r#""\ude00""#, r#"{"\ud800":1}"#] {
            assert!(check(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn nesting_has_one_limit() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(check(nested(DEPTH_MAX).as_bytes()), Ok(()));
        assert!(error(&nested(DEPTH_MAX + 1)).reason.contains("nested deeper"));
        assert!(error(&"[".repeat(100_000)).reason.contains("nested deeper"));
        assert!(error(&"{\"a\":".repeat(100_000)).reason.contains("nested deeper"));
    }

    #[test]
    fn a_path_finds_the_raw_text() {
        let path = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
        let text = br#"{"a":{"b":[10,{"c":12345678901234567890123}]},"a.b":1,"x":"1","x":"2"}"#;
        assert_eq!(find(text, &path("a.b.1.c")).unwrap(), Some("12345678901234567890123"));
        assert_eq!(find(text, &path("a.b.0")).unwrap(), Some("10"));
        assert_eq!(find(text, &path("x")).unwrap(), Some("\"2\""));
        assert_eq!(find(text, &path("a.q")).unwrap(), None);
        assert_eq!(find(text, &path("a.b.7")).unwrap(), None);
        assert_eq!(find(text, &path("x.y")).unwrap(), None);
        assert!(find(b"{", &path("a")).is_err());
    }

    #[test]
    fn an_error_text_is_made_storable() {
        assert_eq!(storable("a\0b"), "a\u{fffd}b");
        let long = storable(&"ä".repeat(ERROR_TEXT_BYTES_MAX));
        assert_eq!(long.len(), ERROR_TEXT_BYTES_MAX);
        assert_eq!(storable(&format!("x{}", "😀".repeat(5000))).len(), 8 * 1024 - 3);
    }
}
