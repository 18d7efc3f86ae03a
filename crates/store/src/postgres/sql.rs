//! Statements as they stand in the `.sql` files, and their arguments by name.
//!
//! A file is a template in three ways, each on lines of its own:
//! - `--[ part` to `--]`: only with that part; they may stand in one another.
//! - `--: name`: the text of `name.sql` stands here.
//! - `:name` is an argument; it becomes a `$n`, the same one wherever it stands.
//!
//! What a batch does not have, its statement does not have either: an empty part costs nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_postgres::types::{ToSql, Type};

/// A statement's file.
#[derive(Debug)]
pub(super) struct Template {
    /// The file's name, without `.sql`.
    pub(super) name: &'static str,
    text: &'static str,
}

macro_rules! templates {
    ($($constant:ident = $name:literal;)*) => {
        $(pub(super) const $constant: &Template =
            &Template { name: $name, text: include_str!(concat!($name, ".sql")) };)*

        /// All of them, for those that stand in others and for tests.
        pub(super) const ALL: &[&Template] = &[$($constant),*];
    };
}

templates! {
    ACTOR_CHANGE = "actor_change";
    ACTOR_INDEX = "actor_index";
    ACTOR_MAKE = "actor_make";
    ACTORS = "actors";
    APPEND = "append";
    CLAIM = "claim";
    COMMIT = "commit";
    DEAD_LETTERS = "dead_letters";
    DEDUPE = "dedupe";
    DEPTH = "depth";
    DROP_LETTERS = "drop_letters";
    DUE = "due";
    DUE_NEXT = "due_next";
    EVENT_PLACES = "event_places";
    EVENTS = "events";
    FAN_OUT = "fan_out";
    FIRE = "fire";
    FOLLOW = "follow";
    HEARTBEAT = "heartbeat";
    INSTANCE = "instance";
    INSTANCE_STATES = "instance_states";
    INSTANCES = "instances";
    INSTANCES_MAKE = "instances_make";
    INSTANCES_OF = "instances_of";
    IS_LIVE = "is_live";
    JUDGE = "judge";
    LANE = "lane";
    LANE_MAKE = "lane_make";
    LEASE_STREAM = "lease_stream";
    LEAVE = "leave";
    MARK_CAREFUL = "mark_careful";
    NEW_ID = "new_id";
    NOTIFY = "notify";
    NOW = "now";
    PARKED = "parked";
    PAUSE = "pause";
    PAUSED = "paused";
    PENDING = "pending";
    PRUNE_DEDUPE = "prune_dedupe";
    PRUNE_EVENTS = "prune_events";
    PRUNE_WORKERS = "prune_workers";
    PURGE = "purge";
    READ_STREAM = "read_stream";
    REDRIVE = "redrive";
    REGISTER = "register";
    RELEASE = "release";
    RELEASE_STREAM = "release_stream";
    RESUME = "resume";
    ROUTES_RAISE = "routes_raise";
    ROUTES_VERSION = "routes_version";
    ROW_PLACES = "row_places";
    ROWS = "rows";
    ROWS_BACKWARD = "rows_backward";
    ROWS_EVENTS = "rows_events";
    ROWS_FORWARD = "rows_forward";
    ROWS_GROUP_BACKWARD = "rows_group_backward";
    ROWS_GROUP_FORWARD = "rows_group_forward";
    ROWS_GROUP_PRIORITY = "rows_group_priority";
    ROWS_GROUPS = "rows_groups";
    SCHEDULE_CANCEL = "schedule_cancel";
    SCHEDULE_SET = "schedule_set";
    SCHEDULES = "schedules";
    SCHEDULES_OF = "schedules_of";
    SCHEMA_THERE = "schema_there";
    SCHEMA_VERSION = "schema_version";
    SETTLED_SEQ = "settled_seq";
    STREAM = "stream";
    STREAM_MAKE = "stream_make";
    STREAM_NAME = "stream_name";
    STREAMS_PENDING = "streams_pending";
    SUBSCRIPTION_BEGIN = "subscription_begin";
    SUBSCRIPTION_CHANGE = "subscription_change";
    SUBSCRIPTION_END = "subscription_end";
    SUBSCRIPTION_MAKE = "subscription_make";
    SUBSCRIPTIONS = "subscriptions";
    TENANT = "tenant";
    TENANT_MAKE = "tenant_make";
    UNBLOCK_DROP = "unblock_drop";
    UNBLOCK_RETRY = "unblock_retry";
    UNPARK = "unpark";
    WAITING = "waiting";
    WORKERS = "workers";
}

#[cfg(test)]
impl Template {
    /// Its text, with its parts.
    pub(super) fn text(&self) -> &'static str {
        self.text
    }

    /// `true`: it stands only in others.
    pub(super) fn is_part(&self) -> bool {
        ALL.iter().any(|other| other.text.lines().any(|line| line.strip_prefix("--: ") == Some(self.name)))
    }
}

/// A statement with some of its parts.
#[derive(Debug)]
pub(super) struct Statement {
    /// With `$n`.
    pub(super) text: String,
    /// The argument that each `$n` is.
    pub(super) names: Vec<String>,
}

/// Which one, among all that were made.
pub(super) type StatementKey = (&'static str, Vec<&'static str>);

/// All statements that were made so far.
#[derive(Debug, Default)]
pub(super) struct Statements(Mutex<HashMap<StatementKey, Arc<Statement>>>);

impl Statements {
    /// The statement with those parts.
    pub(super) fn get(&self, template: &'static Template, parts: &[&'static str]) -> Arc<Statement> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (template.name, parts.to_vec());
        Arc::clone(made.entry(key).or_insert_with(|| Arc::new(Statement::new(template, parts))))
    }
}

impl Statement {
    fn new(template: &Template, parts: &[&str]) -> Self {
        let mut text = String::new();
        assemble(template, parts, &mut text);
        let mut names: Vec<String> = Vec::new();
        let mut out = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(at) = rest.find(':') {
            let (before, after) = rest.split_at(at);
            out.push_str(before);
            let after = &after[1..];
            if let Some(more) = after.strip_prefix(':') {
                out.push_str("::");
                rest = more;
                continue;
            }
            let end = after.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(after.len());
            if end == 0 {
                out.push(':');
                rest = after;
                continue;
            }
            let name = &after[..end];
            let number = names.iter().position(|known| known == name).unwrap_or_else(|| {
                names.push(name.to_owned());
                names.len() - 1
            });
            out.push_str(&format!("${}", number + 1));
            rest = &after[end..];
        }
        out.push_str(rest);
        Self { text: out, names }
    }
}

fn assemble(template: &Template, parts: &[&str], out: &mut String) {
    // Whether each part that is open is there.
    let mut open: Vec<bool> = Vec::new();
    for line in template.text.lines() {
        if let Some(part) = line.strip_prefix("--[ ") {
            open.push(parts.contains(&part));
        } else if line == "--]" {
            open.pop().unwrap_or_else(|| panic!("{}.sql ends a part that is not open", template.name));
        } else if open.iter().all(|is_there| *is_there) {
            if let Some(name) = line.strip_prefix("--: ") {
                let other = ALL.iter().find(|other| other.name == name);
                let other = other.unwrap_or_else(|| panic!("{}.sql names {name}.sql", template.name));
                assemble(other, parts, out);
            } else if !line.trim_start().starts_with("--") {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    assert!(open.is_empty(), "{}.sql leaves a part open", template.name);
}

/// A value for an argument, with its type.
pub(super) trait Value: ToSql + Sync {
    /// As PostgreSQL calls it.
    const TYPE: Type;
}

macro_rules! values {
    ($($of:ty => $type:ident;)*) => {
        $(impl Value for $of { const TYPE: Type = Type::$type; })*
    };
}

values! {
    bool => BOOL;
    i16 => INT2;
    i32 => INT4;
    i64 => INT8;
    &str => TEXT;
    String => TEXT;
    Vec<u8> => BYTEA;
    &[u8] => BYTEA;
    Option<i64> => INT8;
    Option<&str> => TEXT;
    Option<String> => TEXT;
    Vec<bool> => BOOL_ARRAY;
    Vec<i16> => INT2_ARRAY;
    Vec<i32> => INT4_ARRAY;
    Vec<i64> => INT8_ARRAY;
    Vec<Option<i64>> => INT8_ARRAY;
    Vec<&str> => TEXT_ARRAY;
    Vec<String> => TEXT_ARRAY;
    Vec<Option<&str>> => TEXT_ARRAY;
    Vec<Option<String>> => TEXT_ARRAY;
    Vec<&[u8]> => BYTEA_ARRAY;
}

/// One argument.
pub(super) type Arg<'a> = (&'static str, &'a (dyn ToSql + Sync), Type);

/// The argument of that name.
pub(super) fn arg<'a, V: Value>(name: &'static str, value: &'a V) -> Arg<'a> {
    (name, value, V::TYPE)
}

/// A statement with its arguments, ready to be sent.
pub(super) struct Call<'a> {
    pub(super) template: &'static Template,
    pub(super) parts: Vec<&'static str>,
    pub(super) args: Vec<Arg<'a>>,
}

impl<'a> Call<'a> {
    /// The whole statement.
    pub(super) fn new(template: &'static Template, args: Vec<Arg<'a>>) -> Self {
        Self { template, parts: Vec::new(), args }
    }

    /// With those parts.
    pub(super) fn with(template: &'static Template, parts: Vec<&'static str>, args: Vec<Arg<'a>>) -> Self {
        Self { template, parts, args }
    }

    /// The arguments, in the order of the statement.
    ///
    /// # Panics
    /// If the statement names one that is not there.
    pub(super) fn bound(&self, statement: &Statement) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
        let find = |name: &String| {
            let arg = self.args.iter().find(|arg| arg.0 == name.as_str());
            let (_, value, kind) = arg.unwrap_or_else(|| panic!("{}.sql wants :{name}", self.template.name));
            (*value, kind.clone())
        };
        statement.names.iter().map(find).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: Template = Template {
        name: "t",
        text: "SELECT :a::bigint, 'x:' || :b_c\n--[ one\n, :a\n--[ two\n, 2\n--]\n--]\n-- no :d\n  -- no :e\nFROM t",
    };

    #[test]
    fn an_argument_has_one_number_and_a_part_is_there_only_when_asked_for() {
        let statement = Statement::new(&TEMPLATE, &["two"]);
        assert_eq!(statement.text, "SELECT $1::bigint, 'x:' || $2\nFROM t\n");
        assert_eq!(statement.names, ["a", "b_c"]);
        let statement = Statement::new(&TEMPLATE, &["two", "one"]);
        assert_eq!(statement.text, "SELECT $1::bigint, 'x:' || $2\n, $1\n, 2\nFROM t\n");
        assert_eq!(Statement::new(&TEMPLATE, &["one"]).text, "SELECT $1::bigint, 'x:' || $2\n, $1\nFROM t\n");
    }

    #[test]
    fn every_file_can_be_assembled() {
        for template in ALL {
            let all: Vec<&str> = template.text.lines().filter_map(|line| line.strip_prefix("--[ ")).collect();
            for parts in [&[][..], &all] {
                assert!(!Statement::new(template, parts).text.contains("--"), "{}", template.name);
            }
        }
    }
}
