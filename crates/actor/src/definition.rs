//! What an actor is declared to be: name, subscriptions, queue, retry.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::id::{ActorName, Group, Key, StreamName};
use crate::json;
use crate::policy::{PolicyError, QueueMode, QueuePolicy, RetryPolicy};

/// The longest state that an instance may have, in bytes of its JSON, where nothing else is said.
pub const STATE_BYTES_MAX: usize = 1024 * 1024;

/// An actor: what it is called, what it hears, how its queues are drained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ActorDefinition {
    /// Unique within the tenant.
    pub name: ActorName,
    /// Which events it hears. None: only those sent to an instance by name.
    #[serde(default)]
    pub subscribe: Vec<Subscription>,
    /// How queues are drained.
    #[serde(default)]
    pub queue: QueuePolicy,
    /// How failures are repeated.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// The longest state, in bytes.
    #[serde(default = "state_bytes_max")]
    pub state_bytes_max: usize,
}

fn state_bytes_max() -> usize {
    STATE_BYTES_MAX
}

impl ActorDefinition {
    /// An actor of that name that hears nothing yet.
    #[must_use]
    pub fn new(name: ActorName) -> Self {
        Self {
            name,
            subscribe: Vec::new(),
            queue: QueuePolicy::default(),
            retry: RetryPolicy::default(),
            state_bytes_max: STATE_BYTES_MAX,
        }
    }

    /// Hears a stream, too.
    #[must_use]
    pub fn subscribe(mut self, subscription: Subscription) -> Self {
        self.subscribe.push(subscription);
        self
    }

    /// With that queue.
    #[must_use]
    pub fn queue(mut self, queue: QueuePolicy) -> Self {
        self.queue = queue;
        self
    }

    /// With that retry.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`PolicyError`] with the field.
    pub fn check(&self) -> Result<(), PolicyError> {
        self.queue.check()?;
        self.retry.check()
    }

    /// `true`: rows of its instances are told apart by group or priority, so they need the index over them.
    #[must_use]
    pub fn is_indexed(&self) -> bool {
        matches!(self.queue.mode, QueueMode::Priority | QueueMode::Latest | QueueMode::Custom)
            || self.subscribe.iter().any(|subscription| subscription.group.is_some())
    }
}

/// Which events of a stream an actor hears, and which instance each goes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Subscription {
    /// The stream.
    pub stream: StreamName,
    /// Which types of events.
    #[serde(rename = "type", default)]
    pub kind: TypePattern,
    /// Which instance.
    pub key: Target,
    /// Only events that it lets through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// Which group within the instance. Nothing there: the rows without a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Path>,
    /// An integer; the greatest is first where the queue goes by priority. Nothing there: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Path>,
    /// Where in the stream it begins when it is new.
    #[serde(default)]
    pub from: From,
}

impl Subscription {
    /// All events of a stream, each to the instance whose key stands at that path.
    #[must_use]
    pub fn new(stream: StreamName, key: Path) -> Self {
        Self {
            stream,
            kind: TypePattern::default(),
            key: Target::Path(key),
            filter: None,
            group: None,
            priority: None,
            from: From::Now,
        }
    }

    /// `true`: the appender itself finds the one instance. Otherwise rows of `pending` wait for the fan-out.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        matches!(self.key, Target::Path(_))
    }
}

/// Where a new subscription begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum From {
    /// With the events that are appended after it.
    #[default]
    Now,
    /// With the oldest event that is still there.
    Beginning,
}

/// Which instances an event goes to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    /// Every instance of the actor that exists then.
    Broadcast,
    /// The one whose key stands there.
    #[serde(untagged)]
    Path(Path),
}

/// Event types: any text, in which `*` stands for any run of characters. Nothing else is special.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TypePattern(Arc<str>);

impl Default for TypePattern {
    /// `*`
    fn default() -> Self {
        Self(Arc::from("*"))
    }
}

impl TypePattern {
    /// The pattern with that text.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the type is one of them. Linear in both lengths but for patterns with many stars, there at
    /// most their product.
    #[must_use]
    pub fn matches(&self, kind: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return *self.0 == *kind };
        let Some(mut kind) = kind.strip_prefix(first) else { return false };
        let mut rest = rest;
        while let Some((part, more)) = rest.split_once('*') {
            let Some(at) = kind.find(part) else { return false };
            kind = &kind[at + part.len()..];
            rest = more;
        }
        kind.len() >= rest.len() && kind.ends_with(rest)
    }
}

/// A place in an event: `subject`, `type`, `data.repository.full_name`, `data.items.0.id`, `headers.x-tenant`.
///
/// A part with dots in its name stands in quotes: `data."a.b".c`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Path {
    text: Arc<str>,
    root: Root,
    rest: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Root {
    Id,
    Source,
    Kind,
    Subject,
    Headers,
    Data,
}

/// Why a text is no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It begins with something that events do not have.
    #[error("`{path}` begins with `{root}`; a path begins with id, source, type, subject, headers or data")]
    Root {
        /// The path.
        path: String,
        /// How it begins.
        root: String,
    },
    /// An attribute has no parts; a header has exactly one.
    #[error("`{path}` goes on where there is nothing below, or ends where a name is missing")]
    Parts {
        /// The path.
        path: String,
    },
    /// An empty part or an open quote.
    #[error("`{path}` has an empty part or an open quote")]
    Syntax {
        /// The path.
        path: String,
    },
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing, or `null`.
    Nothing,
    /// A text; of a number or a truth value its JSON.
    Text(String),
    /// An array or an object.
    Compound,
}

impl Path {
    /// Reads a path.
    ///
    /// # Errors
    /// [`PathError`]
    pub fn new(text: &str) -> Result<Self, PathError> {
        let path = || text.to_owned();
        let parts = split(text).ok_or_else(|| PathError::Syntax { path: path() })?;
        let (root, rest) = parts.split_first().ok_or_else(|| PathError::Syntax { path: path() })?;
        let root = match root.as_str() {
            "id" => Root::Id,
            "source" => Root::Source,
            "type" => Root::Kind,
            "subject" => Root::Subject,
            "headers" => Root::Headers,
            "data" => Root::Data,
            other => return Err(PathError::Root { path: path(), root: other.to_owned() }),
        };
        let fits = match root {
            Root::Data => true,
            Root::Headers => rest.len() == 1,
            _ => rest.is_empty(),
        };
        if !fits {
            return Err(PathError::Parts { path: path() });
        }
        Ok(Self { text: Arc::from(text), root, rest: rest.to_vec() })
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What stands there in that event.
    #[must_use]
    pub fn find(&self, event: &Event) -> Found {
        let text = |text: &str| if text.is_empty() { Found::Nothing } else { Found::Text(text.to_owned()) };
        match self.root {
            Root::Id => text(&event.id),
            Root::Source => text(&event.source),
            Root::Kind => text(&event.kind),
            Root::Subject => event.subject.as_deref().map_or(Found::Nothing, text),
            Root::Headers => event.headers.get(&self.rest[0]).map_or(Found::Nothing, text),
            Root::Data if !event.is_json() => Found::Nothing,
            Root::Data => match json::find(&event.data, &self.rest) {
                Ok(Some(raw)) => match raw.as_bytes()[0] {
                    b'"' => serde_json::from_str(raw).map_or(Found::Nothing, Found::Text),
                    b'{' | b'[' => Found::Compound,
                    _ if raw == "null" => Found::Nothing,
                    _ => Found::Text(raw.to_owned()),
                },
                Ok(None) | Err(_) => Found::Nothing,
            },
        }
    }
}

fn split(text: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let (part, more) = if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"')?;
            let more = &quoted[end + 1..];
            let more = if more.is_empty() { None } else { Some(more.strip_prefix('.')?) };
            (&quoted[..end], more)
        } else {
            match rest.split_once('.') {
                Some((part, more)) => (part, Some(more)),
                None => (rest, None),
            }
        };
        if part.is_empty() {
            return None;
        }
        parts.push(part.to_owned());
        match more {
            Some(more) => rest = more,
            None => return Some(parts),
        }
    }
}

impl Serialize for Path {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

impl std::str::FromStr for Path {
    type Err = PathError;
    fn from_str(text: &str) -> Result<Self, PathError> {
        Self::new(text)
    }
}

/// Lets an event through when the text at a path is one of some.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Filter {
    /// Where to look.
    pub path: Path,
    /// What lets it through. Empty: anything that is there.
    #[serde(default)]
    pub is: Vec<String>,
}

impl Filter {
    /// Whether the event passes.
    #[must_use]
    pub fn passes(&self, event: &Event) -> bool {
        match self.path.find(event) {
            Found::Nothing => false,
            Found::Compound => self.is.is_empty(),
            Found::Text(text) => self.is.is_empty() || self.is.contains(&text),
        }
    }
}

/// Where a subscription sends an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routed {
    /// The instance's key.
    pub key: Key,
    /// The group, if there is one.
    pub group: Option<Group>,
    /// 0 if there is none.
    pub priority: i32,
}

/// Why an event that a subscription wants has no place to go: it is parked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unroutable {
    /// Nothing stands at the key's path.
    #[error("no key at `{0}`")]
    NoKey(String),
    /// Something stands there that cannot be one.
    #[error("what stands at `{path}` cannot be a {what}: {why}")]
    Bad {
        /// The path.
        path: String,
        /// Key, group or priority.
        what: &'static str,
        /// Why not.
        why: String,
    },
}

impl Subscription {
    /// Where the event goes; `None` if the subscription does not want it, or wants it everywhere.
    ///
    /// # Errors
    /// [`Unroutable`] when it is wanted and no key can be found for it.
    pub fn route(&self, event: &Event) -> Result<Option<Routed>, Unroutable> {
        if !self.wants(event) {
            return Ok(None);
        }
        let Target::Path(path) = &self.key else { return Ok(None) };
        let bad =
            |path: &Path, what, why: String| Unroutable::Bad { path: path.as_str().to_owned(), what, why };
        let key = match path.find(event) {
            Found::Nothing => return Err(Unroutable::NoKey(path.as_str().to_owned())),
            Found::Compound => return Err(bad(path, "key", "it is an array or an object".to_owned())),
            Found::Text(text) => Key::new(text).map_err(|error| bad(path, "key", error.to_string()))?,
        };
        let group = match self.group.as_ref().map(|path| (path, path.find(event))) {
            None | Some((_, Found::Nothing)) => None,
            Some((path, Found::Compound)) => {
                return Err(bad(path, "group", "it is an array or an object".to_owned()));
            }
            Some((path, Found::Text(text))) => {
                Some(Group::new(text).map_err(|error| bad(path, "group", error.to_string()))?)
            }
        };
        let priority = match self.priority.as_ref().map(|path| (path, path.find(event))) {
            None | Some((_, Found::Nothing)) => 0,
            Some((path, Found::Compound)) => {
                return Err(bad(path, "priority", "it is an array or an object".to_owned()));
            }
            Some((path, Found::Text(text))) => text
                .parse::<i32>()
                .map_err(|error| bad(path, "priority", format!("{error}, found `{text}`")))?,
        };
        Ok(Some(Routed { key, group, priority }))
    }

    /// Whether type and filter let the event through.
    #[must_use]
    pub fn wants(&self, event: &Event) -> bool {
        self.kind.matches(&event.kind) && self.filter.as_ref().is_none_or(|filter| filter.passes(event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_run() {
        let matches = |pattern: &str, kind: &str| TypePattern::new(pattern).matches(kind);
        assert!(matches("github.*", "github.star") && matches("github.*", "github.a.b") && matches("*", ""));
        assert!(!matches("github.*", "github") && !matches("github.*", "xgithub.a"));
        assert!(matches("*.created", "order.created") && !matches("*.created", "order.created.x"));
        assert!(matches("a*b*c", "a1b2b3c") && !matches("a*b*c", "a1c") && !matches("a*a", "a"));
        assert!(matches("exact", "exact") && !matches("exact", "exactly"));
        assert!(matches("**", "x") && matches("a**b", "ab"));
    }

    #[test]
    fn paths_find_attributes_and_data() {
        let event =
            Event::new("t", r#"{"a":{"b.c":5},"n":null,"o":{},"s":"\u00e4","big":123456789012345678901}"#)
                .with_subject("sub")
                .with_header("x-y", "z");
        let find = |text: &str| Path::new(text).unwrap().find(&event);
        assert_eq!(find("data.a.\"b.c\""), Found::Text("5".into()));
        assert_eq!(find("data.s"), Found::Text("ä".into()));
        assert_eq!(find("data.big"), Found::Text("123456789012345678901".into()));
        assert_eq!(find("data.n"), Found::Nothing);
        assert_eq!(find("data.o"), Found::Compound);
        assert_eq!(find("data.q.r"), Found::Nothing);
        assert_eq!(find("subject"), Found::Text("sub".into()));
        assert_eq!(find("headers.x-y"), Found::Text("z".into()));
        assert_eq!(find("id"), Found::Nothing);
    }

    #[test]
    fn what_is_no_path_is_said() {
        let error = |text: &str| Path::new(text).unwrap_err();
        assert!(matches!(error("body.x"), PathError::Root { .. }));
        assert!(matches!(error("subject.x"), PathError::Parts { .. }));
        assert!(matches!(error("headers"), PathError::Parts { .. }));
        assert!(matches!(error("data..x"), PathError::Syntax { .. }));
        assert!(matches!(error("data.\"x"), PathError::Syntax { .. }));
        assert!(matches!(error(""), PathError::Syntax { .. }));
    }

    #[test]
    fn an_event_without_a_key_is_unroutable_and_says_why() {
        let subscription = Subscription {
            group: Some(Path::new("data.g").unwrap()),
            priority: Some(Path::new("data.p").unwrap()),
            ..Subscription::new("s".parse().unwrap(), Path::new("data.k").unwrap())
        };
        let route = |data: &'static str| subscription.route(&Event::new("t", data));
        let routed = route(r#"{"k":"a","g":7,"p":-3}"#).unwrap().unwrap();
        assert_eq!((routed.key.as_str(), routed.priority), ("a", -3));
        assert_eq!(routed.group.unwrap().as_str(), "7");
        assert_eq!(route("{}").unwrap_err().to_string(), "no key at `data.k`");
        assert!(matches!(route(r#"{"k":""}"#), Err(Unroutable::Bad { what: "key", .. })));
        assert!(matches!(route(r#"{"k":"a","p":"high"}"#), Err(Unroutable::Bad { what: "priority", .. })));
        assert!(matches!(route(r#"{"k":"a","g":[]}"#), Err(Unroutable::Bad { what: "group", .. })));
    }

    #[test]
    fn a_definition_reads_as_it_is_written_in_typescript() {
        let text = r#"{
            "name": "repository",
            "subscribe": [{ "stream": "github", "type": "github.*", "key": "data.repository.full_name",
                            "filter": { "path": "type", "is": ["github.star"] } },
                          { "stream": "all", "key": "broadcast" }],
            "queue": { "mode": "priority", "concurrency": 3 },
            "retry": { "maxAttempts": 5 }
        }"#;
        let definition: ActorDefinition = serde_json::from_str(text).unwrap();
        assert_eq!(
            definition.subscribe[0].key,
            Target::Path(Path::new("data.repository.full_name").unwrap())
        );
        assert_eq!(definition.subscribe[1].key, Target::Broadcast);
        assert_eq!(definition.queue.concurrency, 3);
        assert!(definition.is_indexed());
        let again: ActorDefinition =
            serde_json::from_str(&serde_json::to_string(&definition).unwrap()).unwrap();
        assert_eq!(again, definition);
    }
}
