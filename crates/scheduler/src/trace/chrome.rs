//! The trace as JSON, in the trace event format that Perfetto and `chrome://tracing` read.
//!
//! A host is a process of that format, a row a thread of it. A turn and a park are complete events (`X`).
//! A wake or a spawn is an instant (`i`) and the start of a flow (`s`) whose end (`f`) lies at the begin of
//! the turn that it led to. A flow hangs on a slice, so a wake outside of any (by a thread outside, or by a
//! timer between two turns) gets a short one of its own.
//!
//! # Source
//! "Trace Event Format", Google, 2016; how flows bind to slices: Perfetto's documentation of the format.

use std::collections::HashMap;
use std::io::{self, Write};

use super::{Event, Kind, Outcome, Part, Row, Trace};
use crate::route::host::WORKERS_MAX;
use crate::{LocalPid, Pid};

/// The slice of a wake that no other slice holds, in nanoseconds.
const ANCHOR: u64 = 1_000;

/// Where an event lies: its track and its place in it.
type Place = (usize, usize);

/// For each wake or spawn whose turn is in the trace, and for that turn, the number of their flow.
fn flows(trace: &Trace) -> HashMap<Place, u32> {
    // Of one process, in the order of time. A wake is recorded before the process is queued; where the clock
    // shows the same for both, the wake comes first.
    let mut acts: Vec<((u32, u32), u64, bool, Place)> = Vec::new();
    for (track, part) in trace.tracks.iter().enumerate() {
        for (at, event) in part.events.iter().enumerate() {
            if matches!(event.kind, Kind::Wake | Kind::Spawn | Kind::Run) {
                let is_run = event.kind == Kind::Run;
                acts.push(((event.slot, event.generation), event.time, is_run, (track, at)));
            }
        }
    }
    acts.sort_unstable();
    let mut flows = HashMap::new();
    let mut next = 1;
    let mut waits: Option<((u32, u32), Place)> = None;
    for (process, _, is_run, place) in acts {
        if !is_run {
            waits = Some((process, place));
            continue;
        }
        if let Some((woken, wake)) = waits.take()
            && woken == process
        {
            flows.insert(wake, next);
            flows.insert(place, next);
            next += 1;
        }
    }
    flows
}

pub(super) fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let mut file = File { out, trace, row: 0, is_first: true };
    write!(file.out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"recorder\":")?;
    file.text(concat!("evener-scheduler ", env!("CARGO_PKG_VERSION")))?;
    write!(file.out, ",\"host\":")?;
    file.text(&trace.name)?;
    write!(file.out, ",\"duration_ns\":{},\"events\":{}", trace.ended - trace.began, trace.events())?;
    write!(file.out, ",\"lost\":{{")?;
    for (at, part) in trace.tracks.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        write!(file.out, "{comma}\"{}\":{}", part.row, part.lost)?;
    }
    write!(file.out, "}}}},\"traceEvents\":[")?;
    file.head("process_name", 'M')?;
    write!(file.out, ",\"args\":{{\"name\":")?;
    file.text(&format!("evener host {}", trace.name))?;
    write!(file.out, "}}}}")?;
    let flows = flows(trace);
    for (track, part) in trace.tracks.iter().enumerate() {
        file.part(track, part, &flows)?;
    }
    writeln!(file.out, "\n]}}")
}

/// The number of a row's thread, and its place in the picture.
fn number(row: Row) -> usize {
    match row {
        Row::Worker(worker) => worker as usize + 1,
        Row::Outside => WORKERS_MAX + 1,
        Row::Monitor => WORKERS_MAX + 2,
    }
}

struct File<'a, W> {
    out: &'a mut W,
    trace: &'a Trace,
    row: usize,
    is_first: bool,
}

impl<W: Write> File<'_, W> {
    /// One row: its name, then its events.
    fn part(&mut self, track: usize, part: &Part, flows: &HashMap<Place, u32>) -> io::Result<()> {
        self.row = number(part.row);
        self.head("thread_name", 'M')?;
        write!(self.out, ",\"args\":{{\"name\":\"{}\"}}}}", part.row)?;
        self.head("thread_sort_index", 'M')?;
        write!(self.out, ",\"args\":{{\"sort_index\":{}}}}}", self.row)?;
        let mut open: Option<&Event> = None;
        for (at, event) in part.events.iter().enumerate() {
            match event.kind {
                Kind::Run | Kind::Park => {
                    // What is open ends here, though nobody has said so: no slice may lie across another.
                    self.slice(open.take(), event.time, None)?;
                    open = Some(event);
                    if event.kind == Kind::Run
                        && let Some(flow) = flows.get(&(track, at))
                    {
                        self.flow('f', event, *flow)?;
                    }
                }
                Kind::RunEnd | Kind::ParkEnd => {
                    // Its begin may have been overwritten: then there is no slice.
                    if open.is_some() {
                        self.slice(open.take(), event.time, Some(event))?;
                        if event.kind == Kind::RunEnd {
                            self.instant(outcome(event).1, event)?;
                            self.process(event)?;
                            write!(self.out, "}}}}")?;
                        }
                    }
                }
                Kind::Wake | Kind::Spawn => {
                    let name = if event.kind == Kind::Wake { "ready" } else { "spawn" };
                    if open.is_none() {
                        let next = part.events.get(at + 1).map_or(self.trace.ended, |next| next.time);
                        self.complete("call", "wake", event.time, next.min(event.time + ANCHOR))?;
                        self.process(event)?;
                        write!(self.out, "}}}}")?;
                    }
                    self.instant(name, event)?;
                    self.process(event)?;
                    if let Some(type_name) = event.type_name() {
                        write!(self.out, ",\"type\":")?;
                        self.text(type_name)?;
                    }
                    write!(self.out, "}}}}")?;
                    if let Some(flow) = flows.get(&(track, at)) {
                        self.flow('s', event, *flow)?;
                    }
                }
                Kind::Steal => {
                    self.instant("steal", event)?;
                    self.process(event)?;
                    write!(self.out, ",\"from\":\"worker {}\"}}}}", event.argument)?;
                }
                kind => {
                    let (name, argument) = plain(kind);
                    self.instant(name, event)?;
                    write!(self.out, "\"{argument}\":{}}}}}", event.argument)?;
                }
            }
        }
        self.slice(open, self.trace.ended, None)
    }

    /// What every event begins with. Readers take a process of number 0 for the system's own.
    fn head(&mut self, name: &str, phase: char) -> io::Result<()> {
        let comma = if self.is_first { "" } else { "," };
        self.is_first = false;
        write!(self.out, "{comma}\n{{\"name\":")?;
        self.text(name)?;
        write!(self.out, ",\"ph\":\"{phase}\",\"pid\":{},\"tid\":{}", self.trace.host + 1, self.row)
    }

    /// Microseconds since the trace began, to the nanosecond.
    fn time(&mut self, key: &str, nanos: u64) -> io::Result<()> {
        write!(self.out, ",\"{key}\":{}.{:03}", nanos / 1_000, nanos % 1_000)
    }

    fn since_begin(&self, time: u64) -> u64 {
        time.saturating_sub(self.trace.began)
    }

    /// A slice, up to its arguments.
    fn complete(&mut self, name: &str, category: &str, from: u64, to: u64) -> io::Result<()> {
        self.head(name, 'X')?;
        self.time("ts", self.since_begin(from))?;
        self.time("dur", to.saturating_sub(from))?;
        write!(self.out, ",\"cat\":\"{category}\",\"args\":{{")
    }

    fn slice(&mut self, begin: Option<&Event>, end: u64, by: Option<&Event>) -> io::Result<()> {
        let Some(begin) = begin else {
            return Ok(());
        };
        if begin.kind == Kind::Park {
            self.complete("park", "park", begin.time, end)?;
            match begin.argument {
                u64::MAX => write!(self.out, "\"limit_ns\":null")?,
                limit => write!(self.out, "\"limit_ns\":{limit}")?,
            }
        } else {
            self.complete(begin.type_name().unwrap_or("?"), "run", begin.time, end)?;
            self.process(begin)?;
            if let Some(by) = by {
                write!(self.out, ",\"turn\":{},\"then\":\"{}\"", by.argument >> 8, outcome(by).0)?;
            }
        }
        if by.is_none() {
            write!(self.out, ",\"unfinished\":true")?;
        }
        write!(self.out, "}}}}")
    }

    /// A moment, up to its arguments.
    fn instant(&mut self, name: &str, event: &Event) -> io::Result<()> {
        self.head(name, 'i')?;
        self.time("ts", self.since_begin(event.time))?;
        write!(self.out, ",\"s\":\"t\",\"args\":{{")
    }

    fn flow(&mut self, phase: char, event: &Event, flow: u32) -> io::Result<()> {
        self.head("wake", phase)?;
        self.time("ts", self.since_begin(event.time))?;
        let bind = if phase == 'f' { ",\"bp\":\"e\"" } else { "" };
        write!(self.out, ",\"cat\":\"flow\",\"id\":{flow}{bind}}}")
    }

    /// Which process the event is of, and its host.
    fn process(&mut self, event: &Event) -> io::Result<()> {
        let local = LocalPid::new(event.slot, event.generation);
        write!(self.out, "\"host\":")?;
        let name = &self.trace.name;
        text(self.out, name)?;
        match local.map(|local| Pid::new(0, self.trace.host, local)) {
            Some(pid) => write!(self.out, ",\"pid\":\"{pid}\""),
            None => write!(self.out, ",\"pid\":null"),
        }
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self::text(self.out, text)
    }
}

/// A JSON string.
fn text(out: &mut impl Write, text: &str) -> io::Result<()> {
    out.write_all(b"\"")?;
    for letter in text.chars() {
        match letter {
            '"' | '\\' => write!(out, "\\{letter}")?,
            '\0'..='\x1f' => write!(out, "\\u{:04x}", letter as u32)?,
            _ => write!(out, "{letter}")?,
        }
    }
    out.write_all(b"\"")
}

/// How the turn ended: for the slice, and the name of the moment.
fn outcome(end: &Event) -> (&'static str, &'static str) {
    match Outcome::ALL[end.argument as usize & 3] {
        Outcome::Again => ("ready", "again"),
        Outcome::Idle => ("idle", "idle"),
        Outcome::Blocked => ("blocked", "block"),
        Outcome::Ended => ("ended", "end"),
    }
}

/// The name of a moment that is of no process, and of its argument.
fn plain(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Attention => ("attention", "worker"),
        Kind::Stuck => ("stuck", "worker"),
        Kind::Thief => ("wake thief", "worker"),
        Kind::Sweep => ("sweep", "processes"),
        Kind::Poll => ("poll", "ready"),
        Kind::HandOff => ("hand-off", "thread"),
        Kind::Lend => ("lend", "worker"),
        Kind::Recall => ("recall", "worker"),
        Kind::Run | Kind::RunEnd | Kind::Spawn | Kind::Wake | Kind::Steal | Kind::Park | Kind::ParkEnd => {
            unreachable!("{kind:?} has a form of its own")
        }
    }
}
