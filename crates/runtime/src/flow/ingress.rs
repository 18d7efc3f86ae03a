//! The door: what comes in from outside, or leaves a call, is checked here and only here.
//!
//! What passes can be stored, carried and delivered by every later stop.

use evener_actor::event::Event;
use evener_actor::id::NAME_BYTES_MAX;
use evener_actor::json::{self, JsonError};
use evener_actor::outcome::{ScheduleChange, When};

use crate::upkeep::cron::{Cron, CronError};

/// The header that counts how many events led to an event.
pub const DEPTH: &str = "evenerdepth";

/// The most bytes of an id, a source, a type, a subject, a content type.
pub const ATTRIBUTE_BYTES_MAX: usize = 1024;

/// The most bytes of all headers together.
pub const HEADER_BYTES_MAX: usize = 64 * 1024;

/// Why an event may not come in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IngressError {
    /// Its data is too long.
    #[error("the data has {bytes} bytes, at most {bytes_max} are allowed")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// Its data is said to be JSON and is none, or none that can be carried.
    #[error("the data is no JSON that can be carried: {0}")]
    Json(#[from] JsonError),
    /// An attribute is too long.
    #[error("the event's {attribute} has {bytes} bytes, at most {bytes_max} are allowed")]
    Attribute {
        /// Which.
        attribute: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// An attribute has a NUL, which no text of PostgreSQL can hold.
    #[error("the event's {attribute} has a NUL character")]
    Nul {
        /// Which.
        attribute: &'static str,
    },
    /// It has no type.
    #[error("the event has no type")]
    NoType,
}

/// How many events led to this one.
#[must_use]
pub fn depth(event: &Event) -> u32 {
    event.headers.get(DEPTH).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Checks what was given of an event; id, source and time may still be missing.
///
/// # Errors
/// [`IngressError`]
pub fn check(event: &Event, payload_bytes_max: usize) -> Result<(), IngressError> {
    if event.kind.is_empty() {
        return Err(IngressError::NoType);
    }
    let attributes = [
        ("id", &*event.id, ATTRIBUTE_BYTES_MAX),
        ("source", &*event.source, ATTRIBUTE_BYTES_MAX),
        ("type", &*event.kind, NAME_BYTES_MAX),
        ("subject", event.subject.as_deref().unwrap_or(""), ATTRIBUTE_BYTES_MAX),
        ("content type", event.content_type.as_deref().unwrap_or(""), NAME_BYTES_MAX),
    ];
    for (attribute, text, bytes_max) in attributes {
        if text.len() > bytes_max {
            return Err(IngressError::Attribute { attribute, bytes: text.len(), bytes_max });
        }
        if text.contains('\0') {
            return Err(IngressError::Nul { attribute });
        }
    }
    let headers: usize = event.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if headers > HEADER_BYTES_MAX {
        return Err(IngressError::Attribute {
            attribute: "headers",
            bytes: headers,
            bytes_max: HEADER_BYTES_MAX,
        });
    }
    if event.headers.iter().any(|(name, value)| name.contains('\0') || value.contains('\0')) {
        return Err(IngressError::Nul { attribute: "headers" });
    }
    if event.data.len() > payload_bytes_max {
        return Err(IngressError::TooLarge { bytes: event.data.len(), bytes_max: payload_bytes_max });
    }
    if event.is_json() && !event.data.is_empty() {
        json::check(&event.data)?;
    }
    Ok(())
}

/// Checks a schedule: its expression and its zone.
///
/// # Errors
/// [`CronError`]
pub fn check_schedule(change: &ScheduleChange) -> Result<(), CronError> {
    if let ScheduleChange::Set { when: When::Cron { expression, time_zone, .. }, .. } = change {
        Cron::new(expression, time_zone)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_carried_is_refused_with_its_reason() {
        let error = |event: Event| check(&event, 100).unwrap_err().to_string();
        assert_eq!(error(Event::new("", "1")), "the event has no type");
        assert_eq!(
            error(Event::new("t", "1".repeat(101))),
            "the data has 101 bytes, at most 100 are allowed"
        );
        assert!(error(Event::new("t", "{\"a\":\"\\ud800\"}")).contains("at a"));
        assert_eq!(error(Event::new("t", "1").with_id("\0")), "the event's id has a NUL character");
        assert_eq!(
            error(Event::new("t", "1").with_header("h", "\0")),
            "the event's headers has a NUL character"
        );
        let text = Event { content_type: Some("text/plain".into()), ..Event::new("t", "no json") };
        assert_eq!(check(&text, 100), Ok(()));
        assert_eq!(check(&Event::new("t", ""), 100), Ok(()));
    }
}
