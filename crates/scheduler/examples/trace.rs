//! A trace and its picture: a small job on two workers is recorded, exported for Perfetto, and drawn.
//!
//! ```text
//! cargo run --release -p evener-scheduler --example trace -- trace.json trace.svg
//! ```

use std::collections::HashMap;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::sync::mpsc;
use std::time::Duration;

use evener_scheduler::{Event, Events, Pid, Process, ProcessError, Scheduler, SpawnOptions, StepOutput};
use serde_json::Value;

/// Parts of the job, and the numbers in each.
const PARTS: u64 = 12;
const PART: u64 = 1_000;

/// Cuts the job into parts and gives each to a process of its own.
struct Split {
    gather: Pid,
}

impl Process for Split {
    fn step(&mut self, _: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        for part in 0..PARTS {
            let count = Count { from: part * PART, gather: self.gather };
            out.spawn(count, SpawnOptions::new()).map_err(ProcessError::new)?;
        }
        out.done(());
        Ok(())
    }
}

/// Counts the primes of one part.
struct Count {
    from: u64,
    gather: Pid,
}

impl Process for Count {
    fn step(&mut self, _: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        let is_prime = |n: &u64| *n > 1 && (2..).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
        let primes = (self.from..self.from + PART).filter(is_prime).count();
        out.send(self.gather, primes).map_err(ProcessError::new)?;
        out.done(());
        Ok(())
    }
}

/// Adds the counts up.
struct Gather {
    primes: usize,
    parts: u64,
    done: mpsc::Sender<usize>,
}

impl Process for Gather {
    fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        for event in events {
            if let Event::Message(message) = event
                && let Ok(primes) = message.take::<usize>()
            {
                self.primes += primes;
                self.parts += 1;
            }
        }
        if self.parts == PARTS {
            let _ = self.done.send(self.primes);
            out.done(());
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (json_file, svg_file) = (args.next(), args.next());

    let scheduler = Scheduler::builder().workers(2).trace_from_start().start()?;
    let (done, answer) = mpsc::channel();
    let gather = scheduler.spawn(Gather { primes: 0, parts: 0, done }, SpawnOptions::new())?;
    scheduler.spawn(Split { gather }, SpawnOptions::new())?;
    let primes = answer.recv_timeout(Duration::from_secs(60))?;
    scheduler.shutdown(Duration::from_secs(1));
    let trace = scheduler.trace_stop().ok_or("the trace was on from the start")?;

    let mut json = Vec::new();
    trace.write_chrome(&mut json)?;
    println!("{primes} primes below {}; {trace:?}", PARTS * PART);
    if let Some(path) = json_file {
        fs::write(path, &json)?;
    }
    if let Some(path) = svg_file {
        fs::write(path, draw(&serde_json::from_slice(&json)?)?)?;
    }
    Ok(())
}

// ---------------------------------------------------------------- the picture

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 15.0;
const TOP: f64 = 34.0;
const ROW: f64 = 74.0;
const BAR: f64 = 26.0;

/// From nanoseconds since the trace began to a place in the picture.
struct Scale {
    from: f64,
    to: f64,
}

impl Scale {
    fn x(&self, time: f64) -> f64 {
        LEFT + (time - self.from) / (self.to - self.from) * (WIDTH - LEFT - RIGHT)
    }
}

fn number(event: &Value, key: &str) -> f64 {
    event[key].as_f64().unwrap_or(0.0)
}

/// The last part of a type's path.
fn short(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

fn color(name: &str) -> &'static str {
    match short(name) {
        "Split" => "#e8a33d",
        "Count" => "#5b8def",
        "Gather" => "#3fae7a",
        "park" => "#e3e6ea",
        _ => "#b39ddb",
    }
}

fn draw(trace: &Value) -> Result<String, Box<dyn Error>> {
    let events = trace["traceEvents"].as_array().ok_or("no events")?;
    let of = |phase: &'static str| events.iter().filter(move |event| event["ph"] == phase);
    let mut rows: Vec<(u64, &str)> = of("M")
        .filter(|event| event["name"] == "thread_name")
        .filter_map(|event| Some((event["tid"].as_u64()?, event["args"]["name"].as_str()?)))
        .filter(|(row, _)| of("X").any(|event| event["tid"] == *row))
        .collect();
    rows.sort_unstable();
    let places: HashMap<u64, f64> =
        rows.iter().enumerate().map(|(at, (row, _))| (*row, TOP + ROW * at as f64 + 18.0)).collect();
    let y = |event: &Value| event["tid"].as_u64().and_then(|row| places.get(&row)).copied();

    // From the first spawn to a little after the last turn.
    let turns: Vec<&Value> = of("X").filter(|event| event["cat"] == "run").collect();
    let last = turns.iter().map(|turn| number(turn, "ts") + number(turn, "dur")).fold(0.0, f64::max);
    let first = of("s").map(|event| number(event, "ts")).fold(f64::INFINITY, f64::min);
    let margin = (last - first) * 0.02;
    let scale = Scale { from: first - margin, to: last + margin };

    let height = TOP + ROW * rows.len() as f64 + 34.0;
    let mut svg = String::new();
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"11\">\n\
         <title>A trace of evener: turns of processes on two workers, and who woke whom</title>\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 6 6\" refX=\"5.5\" refY=\"3\" markerWidth=\"5\" markerHeight=\"5\" \
         orient=\"auto\"><path d=\"M0 0 L6 3 L0 6 z\" fill=\"#444\"/></marker></defs>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>"
    )?;
    axis(&mut svg, &scale, height)?;
    for (row, name) in &rows {
        let y = places[row];
        writeln!(svg, "<text x=\"8\" y=\"{:.1}\" fill=\"#222\">{name}</text>", y + BAR / 2.0 + 4.0)?;
    }
    for slice in of("X") {
        let Some(y) = y(slice) else { continue };
        let (begin, end) = (number(slice, "ts"), number(slice, "ts") + number(slice, "dur"));
        if end < scale.from || begin > scale.to {
            continue;
        }
        let (from, to) = (scale.x(begin.max(scale.from)), scale.x(end.min(scale.to)));
        let name = slice["name"].as_str().unwrap_or("?");
        let wide = (to - from).max(1.0);
        writeln!(
            svg,
            "<rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{BAR}\" rx=\"2\" fill=\"{}\"/>",
            color(name)
        )?;
        if wide > 7.0 * short(name).len() as f64 {
            let (x, y) = (from + wide / 2.0, y + BAR / 2.0 + 4.0);
            let ink = if name == "park" { "#778" } else { "white" };
            let name = short(name);
            writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" fill=\"{ink}\">{name}</text>"
            )?;
        }
    }
    for steal in of("i").filter(|event| event["name"] == "steal") {
        let Some(y) = y(steal) else { continue };
        let x = scale.x(number(steal, "ts"));
        writeln!(svg, "<path d=\"M{x:.1} {:.1} l-4 -7 h8 z\" fill=\"#d64550\"/>", y - 1.0)?;
    }
    arrows(&mut svg, events, &scale, y)?;
    legend(&mut svg, height)?;
    writeln!(svg, "</svg>")?;
    Ok(svg)
}

/// Time, in steps that are round numbers.
fn axis(svg: &mut String, scale: &Scale, height: f64) -> std::fmt::Result {
    let step = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5];
    let step = step.into_iter().find(|step| (scale.to - scale.from) / step <= 12.0).unwrap_or(1e6);
    let mut time = (scale.from / step).ceil() * step;
    while time <= scale.to {
        let x = scale.x(time);
        writeln!(
            svg,
            "<path d=\"M{x:.1} {:.1} V{:.1}\" stroke=\"#eee\"/>\
             <text x=\"{x:.1}\" y=\"18\" text-anchor=\"middle\" fill=\"#667\">{time} µs</text>",
            24.0,
            height - 30.0
        )?;
        time += step;
    }
    Ok(())
}

/// From each wake to the turn that it led to.
fn arrows(
    svg: &mut String,
    events: &[Value],
    scale: &Scale,
    y: impl Fn(&Value) -> Option<f64>,
) -> std::fmt::Result {
    let starts: HashMap<u64, &Value> = events
        .iter()
        .filter(|event| event["ph"] == "s")
        .filter_map(|event| Some((event["id"].as_u64()?, event)))
        .collect();
    for end in events.iter().filter(|event| event["ph"] == "f") {
        let start = end["id"].as_u64().and_then(|flow| starts.get(&flow).copied());
        let Some((start, from, to)) = start.and_then(|start| Some((start, y(start)?, y(end)?))) else {
            continue;
        };
        let (x1, x2) = (scale.x(number(start, "ts")), scale.x(number(end, "ts")));
        // Between rows from edge to edge; within a row in a bow below it.
        let (y1, y2) = match () {
            () if from < to => (from + BAR, to - 1.0),
            () if from > to => (from, to + BAR + 1.0),
            () => (from + BAR, to + BAR + 1.0),
        };
        let bend = if from == to { y1 + 18.0 } else { (y1 + y2) / 2.0 };
        writeln!(
            svg,
            "<path d=\"M{x1:.1} {y1:.1} C{x1:.1} {bend:.1} {x2:.1} {bend:.1} {x2:.1} {y2:.1}\" fill=\"none\" \
             stroke=\"#444\" stroke-width=\"0.7\" opacity=\"0.75\" marker-end=\"url(#tip)\"/>"
        )?;
    }
    Ok(())
}

fn legend(svg: &mut String, height: f64) -> std::fmt::Result {
    let y = height - 14.0;
    let mut x = LEFT;
    for name in ["Split", "Count", "Gather", "park"] {
        writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{:.1}\" width=\"12\" height=\"10\" rx=\"2\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"{y:.1}\" fill=\"#333\">{name}</text>",
            y - 9.0,
            color(name),
            x + 17.0
        )?;
        x += 80.0;
    }
    writeln!(
        svg,
        "<path d=\"M{x} {:.1} l-4 -7 h8 z\" fill=\"#d64550\"/><text x=\"{}\" y=\"{y:.1}\" fill=\"#333\">steal</text>\
         <path d=\"M{} {:.1} h24\" stroke=\"#444\" stroke-width=\"0.7\" marker-end=\"url(#tip)\"/>\
         <text x=\"{}\" y=\"{y:.1}\" fill=\"#333\">who made it ready</text>",
        y - 2.0,
        x + 9.0,
        x + 60.0,
        y - 4.0,
        x + 90.0
    )
}
