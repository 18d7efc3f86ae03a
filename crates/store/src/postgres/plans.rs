//! No statement depends on the planner's guess: what it chooses while tables are empty is right when they are
//! full, and the other way round.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::connection::{Connection, Shared};
use super::settings::Settings;
use super::sql::{ALL, Template};
use super::throwaway::Cluster;

/// Tables whose size does not grow with events or instances: walking them is all right.
const SMALL: &[&str] = &[
    "runtime_workers",
    "lanes",
    "tenants",
    "streams",
    "actors",
    "subscriptions",
    "paused",
    "schema_versions",
];

/// Parts that do not go together; a statement that has one of a row is looked at once with each.
const ONE_OF: &[&[&str]] = &[&["warm", "cold"], &["drawn", "undrawn"], &["all", "dedupe"]];

/// Which parts are there only with others.
const WITH: &[(&str, &str)] = &[("dedupe", "some"), ("all", "all")];

fn shapes(template: &Template) -> Vec<Vec<&'static str>> {
    let mut parts: Vec<&'static str> = Vec::new();
    let mut open = vec![template.text()];
    while let Some(text) = open.pop() {
        for line in text.lines() {
            if let Some(part) = line.strip_prefix("--[ ") {
                parts.push(part);
            } else if let Some(name) = line.strip_prefix("--: ") {
                open.extend(ALL.iter().find(|other| other.name == name).map(|other| other.text()));
            }
        }
    }
    parts.sort_unstable();
    parts.dedup();
    let mut shapes = vec![Vec::new(), parts.clone()];
    for row in ONE_OF {
        shapes = shapes
            .into_iter()
            .flat_map(|shape| {
                let of: Vec<&&str> = row.iter().filter(|part| parts.contains(*part)).collect();
                let base: Vec<&'static str> = shape.into_iter().filter(|part| !row.contains(part)).collect();
                if of.is_empty() {
                    return vec![base];
                }
                of.into_iter().map(|part| [base.clone(), vec![*part]].concat()).collect()
            })
            .collect();
    }
    for shape in &mut shapes {
        if shape.contains(&"all") {
            // The parts that a filter stands in come without it there.
            shape.retain(|part| *part != "some");
        }
        for (part, with) in WITH {
            if shape.contains(part) && !shape.contains(with) {
                shape.push(with);
            }
        }
        let has_rows = shape.contains(&"rows");
        shape.retain(|part| has_rows || !["warm", "cold"].contains(part));
        // In `commit`, what follows needs what was drawn and what may leave.
        if shape.contains(&"undrawn") {
            shape.retain(|part| !["events", "rows", "warm", "cold", "pending", "parked"].contains(part));
        }
    }
    shapes.sort();
    shapes.dedup();
    shapes
}

/// The lines that read a big table otherwise than by an index or by places.
fn faults(plan: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    for (at, line) in plan.iter().enumerate() {
        let table = |word: &str| {
            let rest = &line[line.find(word)? + word.len()..];
            rest.split_whitespace().next().map(str::to_owned)
        };
        let is_big = |table: Option<String>| table.is_none_or(|table| !SMALL.contains(&table.as_str()));
        let has_condition = plan.get(at + 1).is_some_and(|next| next.contains("Cond: "));
        if line.contains("Seq Scan") && is_big(table("Seq Scan on "))
            || (line.contains("Index Scan") || line.contains("Index Only Scan"))
                && !has_condition
                && is_big(table(" on "))
            || line.contains("Tid Scan") && !has_condition
            || line.contains("hashed SubPlan")
            || line.contains("Hash Join")
            || line.contains("Merge Join")
        {
            faults.push(line.clone());
        }
    }
    faults
}

#[test]
fn no_statement_walks_a_table_empty_or_full() {
    let cluster = Cluster::start(&[]).unwrap_or_else(|error| panic!("{error}"));
    let settings = Settings::new(cluster.database("plans").expect("a database"));
    drop(super::Postgres::open(settings.clone()).expect("a store"));
    let look = |when: &str| {
        let shared = Arc::new(Shared::new(&settings.url, &settings).expect("settings"));
        let connection = Connection::new(&shared);
        let mut seen = 0;
        let mut wrong: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for template in ALL.iter().filter(|template| !template.is_part()) {
            for parts in shapes(template) {
                let statement = shared.statements.get(template, &parts);
                let nothing = vec!["NULL"; statement.names.len()].join(", ");
                let call = if nothing.is_empty() { String::new() } else { format!("({nothing})") };
                let text = format!(
                    "DEALLOCATE ALL; PREPARE look AS {}; EXPLAIN (COSTS OFF) EXECUTE look{call}",
                    statement.text
                );
                let plan = connection.bare(&text).unwrap_or_else(|error| {
                    panic!("{} {parts:?}: {error}\n{}", template.name, statement.text)
                });
                assert!(!plan.is_empty(), "{} {parts:?} has no plan", template.name);
                seen += 1;
                let faults = faults(&plan);
                if !faults.is_empty() {
                    wrong.insert(format!("{} {parts:?}", template.name), faults);
                }
            }
        }
        assert!(wrong.is_empty(), "{when}: {wrong:#?}");
        seen
    };
    let fill = "
        INSERT INTO evener.instances (id, tenant, actor, slot, key)
            SELECT n, 1, 1 + n % 3, n % 1024, 'k' || n FROM generate_series(1, 20000) n;
        INSERT INTO evener.events (seq, tenant, stream, time_ms, appended_ms, id, source, kind, data)
            SELECT n, 1, CASE WHEN n % 4 > 0 THEN 1 + n % 2 END, n, n, 'e', 's', 'k', 'x' FROM generate_series(1, 60000) n;
        INSERT INTO evener.queue (slot, instance, id, seq, group_hash, is_indexed, priority, event_bytes)
            SELECT (1 + n % 20000) % 1024, 1 + n % 20000, n, n, n % 5, n % 2 = 0, n % 3, 1 FROM generate_series(1, 60000) n;
        INSERT INTO evener.pending (stream, seq, subscription, id)
            SELECT 1 + n % 2, n, 1, n FROM generate_series(1, 20000) n;
        INSERT INTO evener.dedupe (tenant, stream, key, seq, body_hash, expires_ms)
            SELECT 1, 1, sha256(n::text::bytea), n, n, n FROM generate_series(1, 20000) n;
        INSERT INTO evener.dead_letters (tenant, actor, instance, seq, origin, group_hash, at_ms, slot, is_indexed,
                                         priority, event_bytes, attempts, crashes, cause, error)
            SELECT 1, 1 + n % 3, n, n, n, 0, n, n % 1024, false, 0, 1, 1, 0, 'attempts', 'x' FROM generate_series(1, 20000) n;
        INSERT INTO evener.parked (tenant, seq, at_ms, event_bytes, reason)
            SELECT 1, n, n, 1, 'x' FROM generate_series(1, 20000) n;
        INSERT INTO evener.scheduled_events (tenant, generation, fire_at_ms, event_time_ms, id, spec, event_id, source,
                                             kind, data)
            SELECT 1, 1, n, 0, n::text, 'x', 'e', 's', 'k', '' FROM generate_series(1, 20000) n;
    ";
    assert!(look("empty") > 80);
    cluster.execute("plans", fill).expect("filled");
    look("full, and nobody has counted");
    cluster.execute("plans", "ANALYZE").expect("counted");
    look("full");
    // What autovacuum makes of tables that were emptied: they look as if they stayed so.
    let empty = "DELETE FROM evener.queue; DELETE FROM evener.events; DELETE FROM evener.pending; \
                 DELETE FROM evener.dead_letters; DELETE FROM evener.parked; DELETE FROM evener.dedupe; \
                 DELETE FROM evener.scheduled_events; DELETE FROM evener.instances";
    cluster.execute("plans", empty).expect("emptied");
    cluster.execute("plans", "VACUUM ANALYZE").expect("vacuumed");
    look("emptied and vacuumed");
}
