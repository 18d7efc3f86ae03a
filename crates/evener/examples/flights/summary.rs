//! What came out, for people.

use std::fmt::Write;
use std::path::Path;

use super::job::{Report, Times};

/// Differences that are shown, at most.
const SHOWN_MAX: usize = 20;

/// The summary.
pub(crate) fn text(report: &Report, store: &str) -> String {
    let rate = |events: u64, secs: f64| grouped((events as f64 / secs.max(1e-9)) as u64);
    let mut rows = vec![
        ("store", place(store)),
        (
            "departures",
            format!(
                "{}, {} of them without a tail number: parked",
                grouped(report.departures),
                grouped(report.parked)
            ),
        ),
        ("aircraft", format!("{} instances, grouped by carrier", grouped(report.aircraft))),
        ("timers", format!("{} arrivals fired", grouped(report.timers))),
        ("dead letters", grouped(report.dead_letters)),
        (
            "appended",
            format!(
                "{}/s: {} in {:.2} s",
                rate(report.bulk, report.append_secs),
                grouped(report.bulk),
                report.append_secs
            ),
        ),
        (
            "processed",
            format!(
                "{}/s: {} in {:.2} s, from the first append to the last commit",
                rate(report.processed, report.total_secs),
                grouped(report.processed),
                report.total_secs
            ),
        ),
        (
            "commits",
            format!(
                "{} batches of {:.1} events",
                grouped(report.batches),
                report.processed as f64 / report.batches.max(1) as f64
            ),
        ),
    ];
    if report.duplicates > 0 {
        rows.insert(
            2,
            ("duplicates", format!("{} were there from a run before", grouped(report.duplicates))),
        );
    }
    if report.committed.count > 0 {
        rows.push(("latency", format!("of {} departures that came one by one", report.committed.count)));
        rows.push(("  answered", times(report.answered)));
        rows.push(("  call began", times(report.called)));
        rows.push(("  committed", times(report.committed)));
    }
    rows.push((
        "plain count",
        match report.differences.len() {
            0 => format!("equal, field by field, for {} aircraft", grouped(report.aircraft)),
            count => format!("{} DIFFERENCES", grouped(count as u64)),
        },
    ));
    let mut text = String::new();
    for (name, value) in rows {
        writeln!(text, "{name:<14}{value}").expect("a text takes text");
    }
    for difference in report.differences.iter().take(SHOWN_MAX) {
        writeln!(text, "  {difference}").expect("a text takes text");
    }
    text
}

fn times(times: Times) -> String {
    format!("p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms", times.p50_ms, times.p99_ms, times.max_ms)
}

/// The store, with the size of its file if it is one. A URL may hold a password: only its kind is named.
fn place(store: &str) -> String {
    if let Some((kind, _)) = store.split_once("://") {
        return kind.to_owned();
    }
    let bytes: u64 = ["", "-wal"]
        .iter()
        .filter_map(|end| std::fs::metadata(Path::new(&format!("{store}{end}"))).ok())
        .map(|file| file.len())
        .sum();
    if bytes == 0 { store.to_owned() } else { format!("{store}, {:.1} MB", bytes as f64 / 1e6) }
}

/// A number with its digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
