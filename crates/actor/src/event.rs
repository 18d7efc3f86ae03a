//! A CloudEvent.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::id::Seq;

/// Milliseconds since 1970-01-01T00:00:00Z; before it they are negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// So much later; at the ends of time it stays there.
    #[must_use]
    pub fn saturating_add(self, more: std::time::Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(more.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier`; zero if it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> std::time::Duration {
        std::time::Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// The type of contents of events whose data is JSON.
pub const JSON: &str = "application/json";

/// One fact: the attributes of CloudEvents 1.0, headers, and the data byte for byte as it was received.
///
/// Clones share everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Unique together with `source`.
    pub id: Arc<str>,
    /// Where it comes from.
    pub source: Arc<str>,
    /// What happened: `github.star`.
    pub kind: Arc<str>,
    /// To what it happened.
    pub subject: Option<Arc<str>>,
    /// When it happened, as its source says.
    pub time: Timestamp,
    /// What the data is; `None` is [`JSON`].
    pub content_type: Option<Arc<str>>,
    /// JSON text, checked at the door, or any bytes where the content type says so. May be empty: no data.
    pub data: Bytes,
    /// Whatever else came along: extension attributes, headers of the request.
    pub headers: Headers,
}

impl Event {
    /// An event with JSON data of a type; id, source and time are given when it is appended.
    #[must_use]
    pub fn new(kind: impl Into<Arc<str>>, data: impl Into<Bytes>) -> Self {
        Self {
            id: Arc::from(""),
            source: Arc::from(""),
            kind: kind.into(),
            subject: None,
            time: Timestamp::default(),
            content_type: None,
            data: data.into(),
            headers: Headers::default(),
        }
    }

    /// An event whose data is that value as JSON.
    ///
    /// # Errors
    /// When the value has no JSON: a map with keys that are not text, a `Serialize` that fails.
    pub fn json<T: Serialize + ?Sized>(
        kind: impl Into<Arc<str>>,
        data: &T,
    ) -> Result<Self, serde_json::Error> {
        Ok(Self::new(kind, serde_json::to_vec(data)?))
    }

    /// With an id of the sender's own: appending it again within the window changes nothing.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.id = id.into();
        self
    }

    /// With a source.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Arc<str>>) -> Self {
        self.source = source.into();
        self
    }

    /// With a subject.
    #[must_use]
    pub fn with_subject(mut self, subject: impl Into<Arc<str>>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// With a header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        self.headers.push(name, value);
        self
    }

    /// `true`: the data is JSON (or there is none).
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.content_type.as_deref().is_none_or(|kind| {
            let kind = kind.split(';').next().unwrap_or("").trim();
            kind.eq_ignore_ascii_case(JSON) || kind.to_ascii_lowercase().ends_with("+json")
        })
    }

    /// How many bytes it takes, for budgets.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.id.len()
            + self.source.len()
            + self.kind.len()
            + self.subject.as_deref().map_or(0, str::len)
            + self.content_type.as_deref().map_or(0, str::len)
            + self.data.len()
            + self.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }
}

/// Names and values in the order in which they came; a name may come twice.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(Arc<str>, Arc<str>)>);

impl Headers {
    /// Adds one at the end.
    pub fn push(&mut self, name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) {
        self.0.push((name.into(), value.into()));
    }

    /// The first value of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| &**own == name).map(|(_, value)| &**value)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// `true`: none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As one text, for a column: JSON, pairs in an array. None has no text.
    #[must_use]
    pub fn to_text(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| {
            let pairs: Vec<[&str; 2]> = self.iter().map(|(name, value)| [name, value]).collect();
            serde_json::to_string(&pairs).expect("texts have JSON")
        })
    }

    /// From that text.
    ///
    /// # Errors
    /// When it is not what [`Headers::to_text`] makes.
    pub fn from_text(text: Option<&str>) -> Result<Self, serde_json::Error> {
        let Some(text) = text else { return Ok(Self::default()) };
        let pairs: Vec<(String, String)> = serde_json::from_str(text)?;
        Ok(Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect()))
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// An event that is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its place in the order of all.
    pub seq: Seq,
    /// The event.
    pub event: Event,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_as_they_were() {
        let mut headers = Headers::default();
        assert_eq!(headers.to_text(), None);
        headers.push("x-a", "1");
        headers.push("x-a", "\u{0}\"zwei\"");
        let back = Headers::from_text(headers.to_text().as_deref()).unwrap();
        assert_eq!(back, headers);
        assert_eq!(back.get("x-a"), Some("1"));
    }

    #[test]
    fn json_is_known_by_its_content_type() {
        let of = |kind: Option<&str>| {
            Event { content_type: kind.map(Arc::from), ..Event::new("t", "1") }.is_json()
        };
        assert!(of(None) && of(Some("application/json; charset=utf-8")) && of(Some("application/ld+JSON")));
        assert!(!of(Some("text/plain")) && !of(Some("application/jsonx")));
    }
}
