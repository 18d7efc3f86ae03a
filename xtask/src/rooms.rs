//! Who may stand on whom.
//!
//! The tables below are the house's plan, rooms that are still to be built included. Crates are
//! checked against them by what they declare (dependencies of every kind) and by what their sources
//! reach for. Each finding ends with the reason, so that nobody has to ask for it.

use std::path::Path;

use anyhow::Result;

use crate::house::{DepKind, House, Member, RootKind};
use crate::source::{Source, rust_files};

const SCHEDULER: &str = "evener-scheduler";
const ACTOR: &str = "evener-actor";
const STORE: &str = "evener-store";
const EXECUTORS: &str = "evener-executors";
const RUNTIME: &str = "evener-runtime";
const EVENER: &str = "evener";
const SERVER: &str = "evener-server";
const CLI: &str = "evener-cli";
const SIM: &str = "evener-sim";
const BENCH: &str = "evener-bench";
const BENCH_HTTP: &str = "evener-bench-http";
const XTASK: &str = "xtask";

/// A crate of the house.
#[derive(Debug)]
struct Room {
    name: &'static str,
    stands_on: &'static [&'static str],
    unsafe_code: UnsafeCode,
}

/// Where a crate may write `unsafe`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnsafeCode {
    /// Nowhere: each root says `#![forbid(unsafe_code)]`.
    Forbidden,
    /// In one folder: each root says `#![deny(unsafe_code)]`, that folder allows it.
    In(&'static str),
    /// Where its proof stands beside it.
    Anywhere,
}

use UnsafeCode::{Anywhere, Forbidden, In};

/// Who stands on whom. Every edge that is not here is refused.
const ROOMS: &[Room] = &[
    Room { name: SCHEDULER, stands_on: &[], unsafe_code: Anywhere },
    Room { name: ACTOR, stands_on: &[], unsafe_code: Forbidden },
    Room { name: STORE, stands_on: &[ACTOR], unsafe_code: Forbidden },
    Room { name: EXECUTORS, stands_on: &[ACTOR, SCHEDULER], unsafe_code: In("src/quickjs") },
    Room { name: RUNTIME, stands_on: &[ACTOR, SCHEDULER, STORE], unsafe_code: Forbidden },
    Room { name: EVENER, stands_on: &[ACTOR, SCHEDULER, STORE, EXECUTORS, RUNTIME], unsafe_code: Forbidden },
    Room { name: SERVER, stands_on: &[EVENER], unsafe_code: Forbidden },
    Room { name: CLI, stands_on: &[EVENER, SERVER], unsafe_code: Forbidden },
    Room { name: SIM, stands_on: &[ACTOR, SCHEDULER, STORE, RUNTIME], unsafe_code: Forbidden },
    Room { name: BENCH, stands_on: &[EVENER, SCHEDULER], unsafe_code: Forbidden },
    Room { name: BENCH_HTTP, stands_on: &[SCHEDULER], unsafe_code: Forbidden },
    Room { name: XTASK, stands_on: &[], unsafe_code: Forbidden },
];

/// An edge between rooms that is refused for a reason of its own.
#[derive(Debug)]
struct Never {
    /// Empty: anybody.
    who: &'static [&'static str],
    on: &'static [&'static str],
    so_that: &'static str,
}

const NEVER: &[Never] = &[
    Never {
        who: &[SCHEDULER],
        on: &[ACTOR, STORE, EXECUTORS, RUNTIME, EVENER, SERVER, CLI, SIM, BENCH, BENCH_HTTP, XTASK],
        so_that: "the engine can be used, and proved, alone",
    },
    Never {
        who: &[ACTOR],
        on: &[SCHEDULER, STORE, EXECUTORS, RUNTIME, EVENER, SERVER],
        so_that: "the words stay light; SDK and store can share them",
    },
    Never {
        who: &[STORE],
        on: &[SCHEDULER, RUNTIME],
        so_that: "the store keeps promises, it takes no decisions",
    },
    Never {
        who: &[EXECUTORS],
        on: &[STORE, RUNTIME],
        so_that: "an actor's code reaches the world only through `ctx`",
    },
    Never { who: &[RUNTIME], on: &[EXECUTORS], so_that: "it sees traits; the simulator runs the same code" },
    Never { who: &[SERVER], on: &[STORE], so_that: "nobody goes round the flow" },
    Never {
        who: &[],
        on: &[CLI, SIM, BENCH, BENCH_HTTP, XTASK],
        so_that: "proof and chores leave no trace in the product",
    },
];

/// Why an edge is refused that no row of [`NEVER`] speaks of.
const NO_SUCH_EDGE: &str =
    "read upward it is a house: each room stands only on those that ROOMS names for it";

/// An outside crate that a room must do without.
#[derive(Debug)]
struct Without {
    who: &'static str,
    crates: &'static [&'static str],
    /// Behind a feature, as an adapter, it may be there.
    if_optional: bool,
    so_that: &'static str,
}

const SQL: &[&str] =
    &["rusqlite", "libsqlite3-sys", "postgres", "tokio-postgres", "postgres-types", "sqlx", "diesel"];
const HTTP: &[&str] = &["http", "hyper-util", "axum", "tower", "tower-http", "reqwest", "ureq", "actix-web"];
/// hyper itself is not among [`HTTP`]: the scheduler may have it behind a feature.
const HYPER: &[&str] = &["hyper"];
const ENGINE: &[&str] = &["rquickjs", "rquickjs-core", "rquickjs-sys", "deno_core", "boa_engine", "v8"];
const ASYNC: &[&str] =
    &["tokio", "async-std", "smol", "async-io", "async-executor", "futures-executor", "mio", "polling"];

const WITHOUT: &[Without] = &[
    Without {
        who: SCHEDULER,
        crates: &["serde", "serde_json", "rmp-serde", "bincode"],
        if_optional: false,
        so_that: "the engine can be used, and proved, alone",
    },
    Without {
        who: SCHEDULER,
        crates: SQL,
        if_optional: false,
        so_that: "the engine can be used, and proved, alone",
    },
    Without {
        who: SCHEDULER,
        crates: HTTP,
        if_optional: false,
        so_that: "the engine can be used, and proved, alone",
    },
    Without {
        who: SCHEDULER,
        crates: &["tokio", "tokio-util", "async-std", "smol", "hyper"],
        if_optional: true,
        so_that: "the engine can be used, and proved, alone (the traits of tokio and of hyper only as adapters behind features)",
    },
    Without {
        who: ACTOR,
        crates: ASYNC,
        if_optional: false,
        so_that: "the words stay light; SDK and store can share them",
    },
    Without {
        who: ACTOR,
        crates: SQL,
        if_optional: false,
        so_that: "the words stay light; SDK and store can share them",
    },
    Without {
        who: ACTOR,
        crates: HTTP,
        if_optional: false,
        so_that: "the words stay light; SDK and store can share them",
    },
    Without {
        who: ACTOR,
        crates: HYPER,
        if_optional: false,
        so_that: "the words stay light; SDK and store can share them",
    },
    Without {
        who: RUNTIME,
        crates: SQL,
        if_optional: false,
        so_that: "it sees traits; the simulator runs the same code",
    },
    Without {
        who: RUNTIME,
        crates: HTTP,
        if_optional: false,
        so_that: "it sees traits; the simulator runs the same code",
    },
    Without {
        who: RUNTIME,
        crates: HYPER,
        if_optional: false,
        so_that: "it sees traits; the simulator runs the same code",
    },
    Without {
        who: RUNTIME,
        crates: ENGINE,
        if_optional: false,
        so_that: "it sees traits; the simulator runs the same code",
    },
];

/// What proofs may take though the product may not: who writes a format is read by somebody else's parser, and
/// an adapter is used by whom it is for.
const PROOFS_MAY: &[(&str, &str)] =
    &[(SCHEDULER, "serde_json"), (SCHEDULER, "hyper"), (SCHEDULER, "hyper-util"), (SCHEDULER, "tokio")];

/// Outside crates that are known to one folder.
#[derive(Debug)]
struct OnlyIn {
    crates: &'static [&'static str],
    room: &'static str,
    folder: &'static str,
    /// Who measures it beside us, or has an adapter for it behind a feature.
    and: &'static [&'static str],
    so_that: &'static str,
}

const ONLY_IN: &[OnlyIn] = &[
    OnlyIn {
        crates: &["rusqlite", "libsqlite3-sys"],
        room: STORE,
        folder: "src/sqlite",
        and: &[],
        so_that: "a dependency can be changed in one folder",
    },
    OnlyIn {
        crates: &["postgres", "tokio-postgres", "tokio-postgres-rustls", "postgres-types"],
        room: STORE,
        folder: "src/postgres",
        and: &[],
        so_that: "a dependency can be changed in one folder",
    },
    OnlyIn {
        crates: &["rquickjs", "rquickjs-core", "rquickjs-sys"],
        room: EXECUTORS,
        folder: "src/quickjs",
        and: &[],
        so_that: "a dependency can be changed in one folder",
    },
    OnlyIn {
        crates: &["hyper", "hyper-util"],
        room: SERVER,
        folder: "src",
        and: &[SCHEDULER, BENCH_HTTP],
        so_that: "a dependency can be changed in one folder",
    },
    OnlyIn {
        crates: &["axum"],
        room: SERVER,
        folder: "src",
        and: &[],
        so_that: "a dependency can be changed in one folder",
    },
];

const SO_THAT_UNSAFE: &str =
    "`unsafe` lives in the scheduler and in `executors/src/quickjs`, where its proof stands beside it";

/// Checks the house; each finding is a sentence that ends with its reason.
///
/// # Errors
/// When a source cannot be read. A breach is a finding, not an error.
pub(crate) fn check(house: &House) -> Result<Vec<String>> {
    let mut findings = declared(&house.members);
    for member in &house.members {
        let mut sources = Vec::new();
        for file in rust_files(&member.dir)? {
            let within = file.strip_prefix(&member.dir).unwrap_or(&file).to_owned();
            sources.push((within, Source::read(&file)?));
        }
        let roots = member.roots.iter().filter(|root| root.kind == RootKind::Product);
        let roots: Vec<_> = roots.filter_map(|root| root.file.strip_prefix(&member.dir).ok()).collect();
        for (file, source) in &sources {
            findings.extend(reached_for(member, file, source));
            findings.extend(unsafe_code(&member.name, file, source, roots.contains(&file.as_path())));
        }
    }
    Ok(findings)
}

/// What the manifests declare.
fn declared(members: &[Member]) -> Vec<String> {
    let mut findings = Vec::new();
    for member in members {
        let Some(room) = room(&member.name) else {
            findings.push(format!(
                "{}: no room of that name in the plan, so that every crate has a place: add it to ROOMS",
                member.name
            ));
            continue;
        };
        for dep in &member.deps {
            let edge = format!("{} -> {}{}", member.name, dep.name, shown(dep.kind));
            if self::room(&dep.name).is_some() {
                if !room.stands_on.contains(&dep.name.as_str()) && dep.name != member.name {
                    findings.push(format!("{edge}: never, so that {}", why_not(&member.name, &dep.name)));
                }
                continue;
            }
            let is_proof =
                dep.kind == DepKind::Dev && PROOFS_MAY.contains(&(member.name.as_str(), dep.name.as_str()));
            for rule in WITHOUT.iter().filter(|rule| rule.who == member.name && !is_proof) {
                if rule.crates.contains(&dep.name.as_str()) && !(rule.if_optional && dep.is_optional) {
                    findings.push(format!("{edge}: never, so that {}", rule.so_that));
                }
            }
            let elsewhere =
                |rule: &&OnlyIn| rule.room != member.name && !rule.and.contains(&member.name.as_str());
            for rule in ONLY_IN.iter().filter(elsewhere) {
                if rule.crates.contains(&dep.name.as_str()) {
                    let home = format!("{} ({})", rule.room, rule.folder);
                    findings.push(format!("{edge}: only {home} may, so that {}", rule.so_that));
                }
            }
        }
    }
    findings
}

/// What a source reaches for outside the folder that knows it.
fn reached_for(member: &Member, file: &Path, source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for rule in ONLY_IN.iter().filter(|rule| rule.room == member.name && !file.starts_with(rule.folder)) {
        for name in rule.crates {
            for line in source.lines_reaching_for(&name.replace('-', "_")) {
                findings.push(format!(
                    "{}: {}:{line} reaches for `{name}`, which only {} may, so that {}",
                    member.name,
                    file.display(),
                    rule.folder,
                    rule.so_that
                ));
            }
        }
    }
    findings
}

/// `unsafe` outside its place, and crate roots that do not refuse it.
fn unsafe_code(name: &str, file: &Path, source: &Source, is_root: bool) -> Vec<String> {
    let Some(room) = room(name) else { return Vec::new() };
    let (folder, word) = match room.unsafe_code {
        Anywhere => return Vec::new(),
        In(folder) => (Some(folder), "deny"),
        Forbidden => (None, "forbid"),
    };
    let mut findings = Vec::new();
    if folder.is_none_or(|folder| !file.starts_with(folder)) {
        for line in source.lines_with("unsafe") {
            findings.push(format!("{name}: {}:{line} says `unsafe`: {SO_THAT_UNSAFE}", file.display()));
        }
    }
    if is_root && !refuses_unsafe(source, word) {
        let file = file.display();
        findings.push(format!("{name}: {file} lacks `#![{word}(unsafe_code)]`: {SO_THAT_UNSAFE}"));
    }
    findings
}

/// Whether the code (not a comment) says `#![word(unsafe_code ..)]`.
fn refuses_unsafe(source: &Source, word: &str) -> bool {
    use crate::source::Token::{Name, Sign};
    let tokens: Vec<_> = source.tokens().into_iter().map(|(_, token)| token).collect();
    let wanted = [Sign('#'), Sign('!'), Sign('['), Name(word), Sign('('), Name("unsafe_code")];
    tokens.windows(wanted.len()).any(|window| window == wanted)
}

fn room(name: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| room.name == name)
}

fn why_not(who: &str, on: &str) -> &'static str {
    // The row that names who comes before the one for anybody.
    let row = NEVER.iter().find(|row| (row.who.is_empty() || row.who.contains(&who)) && row.on.contains(&on));
    row.map_or(NO_SUCH_EDGE, |row| row.so_that)
}

fn shown(kind: DepKind) -> &'static str {
    match kind {
        DepKind::Normal => "",
        DepKind::Dev => " (dev)",
        DepKind::Build => " (build)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::Dep;

    fn member(name: &str, deps: &[(&str, DepKind, bool)]) -> Member {
        let dep = |&(name, kind, is_optional): &(&str, DepKind, bool)| Dep {
            name: name.to_owned(),
            kind,
            is_optional,
        };
        Member {
            name: name.to_owned(),
            dir: "/made/up".into(),
            deps: deps.iter().map(dep).collect(),
            roots: Vec::new(),
        }
    }

    fn only_finding(members: &[Member]) -> String {
        let findings = declared(members);
        assert_eq!(findings.len(), 1, "{findings:#?}");
        findings[0].clone()
    }

    #[test]
    fn the_house_as_it_stands_keeps_the_plan() {
        let findings = check(&House::open().unwrap()).unwrap();
        assert!(findings.is_empty(), "{findings:#?}");
    }

    #[test]
    fn the_whole_plan_is_allowed() {
        let all: Vec<Member> = ROOMS
            .iter()
            .map(|room| {
                let deps: Vec<_> =
                    room.stands_on.iter().map(|name| (*name, DepKind::Normal, false)).collect();
                member(room.name, &deps)
            })
            .collect();
        assert_eq!(declared(&all), Vec::<String>::new());
    }

    #[test]
    fn a_room_stands_only_on_rooms_above_it_in_the_plan() {
        // So there is no circle, and the table reads from the foundations to the doors.
        for (place, room) in ROOMS.iter().enumerate() {
            for on in room.stands_on {
                let below = ROOMS.iter().position(|other| other.name == *on);
                assert!(below.is_some_and(|below| below < place), "{} stands on {on}", room.name);
            }
        }
    }

    #[test]
    fn the_plan_allows_nothing_that_it_refuses() {
        for room in ROOMS {
            for on in room.stands_on {
                assert_eq!(why_not(room.name, on), NO_SUCH_EDGE, "{} -> {on}", room.name);
            }
        }
    }

    #[test]
    fn each_refused_edge_gives_its_reason() {
        for row in NEVER.iter().filter(|row| !row.who.is_empty()) {
            for (who, on) in row.who.iter().flat_map(|who| row.on.iter().map(move |on| (*who, *on))) {
                let finding = only_finding(&[member(who, &[(on, DepKind::Normal, false)])]);
                assert!(finding.contains(row.so_that), "{finding}");
            }
        }
    }

    #[test]
    fn a_test_may_not_reach_where_the_code_may_not() {
        for kind in [DepKind::Dev, DepKind::Build] {
            let finding = only_finding(&[member(RUNTIME, &[(EXECUTORS, kind, false)])]);
            assert!(finding.contains("it sees traits"), "{finding}");
        }
    }

    #[test]
    fn nothing_stands_on_proof_and_chores() {
        let finding = only_finding(&[member(EVENER, &[(SIM, DepKind::Dev, false)])]);
        assert!(finding.contains("no trace in the product"), "{finding}");
    }

    #[test]
    fn an_edge_that_no_row_speaks_of_is_refused_as_well() {
        let finding = only_finding(&[member(XTASK, &[(SCHEDULER, DepKind::Normal, false)])]);
        assert!(finding.contains(NO_SUCH_EDGE), "{finding}");
    }

    #[test]
    fn a_crate_without_a_place_in_the_plan_is_found() {
        assert!(only_finding(&[member("evener-shed", &[])]).contains("no room of that name"));
    }

    #[test]
    fn a_parser_may_stand_in_the_proofs_alone() {
        let of = |kind| declared(&[member(SCHEDULER, &[("serde_json", kind, false)])]);
        assert_eq!(of(DepKind::Dev), Vec::<String>::new());
        for kind in [DepKind::Normal, DepKind::Build] {
            assert_eq!(of(kind).len(), 1);
        }
    }

    #[test]
    fn the_scheduler_takes_tokio_and_hyper_only_behind_a_feature() {
        for name in ["tokio", "hyper"] {
            let of = |kind, is_optional| declared(&[member(SCHEDULER, &[(name, kind, is_optional)])]);
            assert_eq!(of(DepKind::Normal, true), Vec::<String>::new());
            assert_eq!(of(DepKind::Dev, false), Vec::<String>::new());
            let finding = only_finding(&[member(SCHEDULER, &[(name, DepKind::Normal, false)])]);
            assert!(finding.contains("proved, alone"), "{finding}");
        }
        // What is around hyper is for its proofs.
        for is_optional in [true, false] {
            assert_eq!(
                declared(&[member(SCHEDULER, &[("hyper-util", DepKind::Normal, is_optional)])]).len(),
                1
            );
        }
        assert_eq!(declared(&[member(BENCH, &[("hyper", DepKind::Normal, false)])]).len(), 1);
    }

    #[test]
    fn the_scheduler_and_its_http_server_are_built_without_the_runtime_of_tokio() {
        let words = "cargo tree -p evener-scheduler --features hyper,tokio-io -e normal,dev --prefix none -f";
        let tree = crate::run::Job::new(words.split(' ')).args(["{p}|{f}"]).quiet().run().unwrap();
        assert!(tree.ok, "{tree:?}");
        let features = tree.lines.iter().filter_map(|line| line.strip_prefix("tokio v")?.split('|').nth(1));
        let features: Vec<&str> = features.flat_map(|of| of.split([',', ' '])).collect();
        assert!(features.contains(&"sync"), "{tree:?}");
        for part in ["rt", "net", "time"] {
            assert!(!features.contains(&part), "tokio comes with `{part}`: cargo tree -e features -i tokio");
        }
    }

    #[test]
    fn an_outside_crate_stays_with_the_room_that_knows_it() {
        let finding = only_finding(&[member(SERVER, &[("rusqlite", DepKind::Normal, false)])]);
        assert!(finding.contains("src/sqlite"), "{finding}");
        // For the runtime two rows speak: it is without SQL, and not the store.
        assert_eq!(declared(&[member(RUNTIME, &[("postgres", DepKind::Normal, false)])]).len(), 2);
        assert_eq!(declared(&[member(STORE, &[("rusqlite", DepKind::Normal, false)])]), Vec::<String>::new());
    }

    #[test]
    fn an_outside_crate_stays_in_its_folder() {
        let store = member(STORE, &[]);
        let source = Source::of("//! x\nfn f() { rusqlite::Connection::open(\"a\"); }\n// rusqlite::no\n");
        assert_eq!(reached_for(&store, Path::new("src/sqlite/mod.rs"), &source), Vec::<String>::new());
        let findings = reached_for(&store, Path::new("src/streams.rs"), &source);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].contains("src/streams.rs:2"), "{findings:?}");
    }

    #[test]
    fn unsafe_stays_in_its_place() {
        let with = Source::of("#![forbid(unsafe_code)]\nfn f() { unsafe { g() } }");
        assert_eq!(unsafe_code(SCHEDULER, Path::new("src/lib.rs"), &with, true).len(), 0);
        assert_eq!(unsafe_code(STORE, Path::new("src/lib.rs"), &with, true).len(), 1);
        assert_eq!(unsafe_code(EXECUTORS, Path::new("src/quickjs/engine.rs"), &with, false).len(), 0);
        assert_eq!(unsafe_code(EXECUTORS, Path::new("src/native.rs"), &with, false).len(), 1);
    }

    #[test]
    fn a_root_that_does_not_forbid_unsafe_is_found() {
        let root = Path::new("src/lib.rs");
        let bare = Source::of("//! A crate.\n// #![forbid(unsafe_code)]\n");
        assert_eq!(unsafe_code(ACTOR, root, &bare, true).len(), 1);
        assert_eq!(unsafe_code(ACTOR, Path::new("src/id.rs"), &bare, false).len(), 0);
        let denies = Source::of("#![deny(unsafe_code, missing_docs)]");
        let mut rest = Source::of("#![deny(missing_docs, unsafe_code)]");
        assert_eq!(unsafe_code(EXECUTORS, root, &denies, true).len(), 0);
        assert_eq!(unsafe_code(EXECUTORS, root, &rest, true).len(), 1, "the lint stands first, to be seen");
        rest = Source::of("#![deny(unsafe_code)]");
        assert_eq!(
            unsafe_code(ACTOR, root, &rest, true).len(),
            1,
            "deny can be allowed again, forbid cannot"
        );
    }
}
