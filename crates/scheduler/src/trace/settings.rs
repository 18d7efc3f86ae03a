//! How a host is asked to show what it does: by its builder, by the environment.
//!
//! What the builder says counts before what the environment says. A variable that makes no sense is a line
//! on stderr that names it and its value, once in a program, and the host starts without it: who runs a
//! program wants it to run.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{EVENTS_MAX, EVENTS_RANGE, Summary};
use crate::route::host::{Builder, StartError};
use crate::sync::fixed::Mutex;

/// Records from the start; the trace is written to this file when the host ends.
pub(crate) const TRACE: &str = "EVENER_TRACE";
/// SIGUSR2 begins a trace, and ends it and writes it to this file.
pub(crate) const TRACE_SIGNAL: &str = "EVENER_TRACE_SIGNAL";
/// Events that each worker keeps.
pub(crate) const TRACE_EVENTS: &str = "EVENER_TRACE_EVENTS";
/// A summary on stderr, every so many milliseconds.
pub(crate) const SCHEDTRACE: &str = "EVENER_SCHEDTRACE";

/// The longest gap between two summaries: a day.
const INTERVAL_MAX: Duration = Duration::from_secs(86_400);

pub(crate) type Sink = Box<dyn FnMut(&Summary) + Send>;

/// What a host is to show.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) from_start: bool,
    pub(crate) events_max: Option<usize>,
    pub(crate) file: Option<PathBuf>,
    pub(crate) signal: Option<PathBuf>,
    /// Without a sink: to stderr.
    pub(crate) summaries: Option<(Duration, Option<Sink>)>,
    ignores_environment: bool,
}

impl Builder {
    /// Records from the first turn on; [`crate::Scheduler::trace_stop`] gives the trace.
    #[must_use]
    pub fn trace_from_start(mut self) -> Self {
        self.trace.from_start = true;
        self
    }

    /// How many of its newest events each worker keeps while a trace is on: a power of two from 2 to
    /// 16,777,216; 65,536 by default, or what `EVENER_TRACE_EVENTS` says. An event takes 24 bytes.
    #[must_use]
    pub fn trace_events_max(mut self, max: usize) -> Self {
        self.trace.events_max = Some(max);
        self
    }

    /// Records from the first turn on, and writes the trace to this file when the host ends: in
    /// [`crate::Scheduler::shutdown`], or in the drop of the scheduler, which then waits for its processes to
    /// end, at most 200 ms. As `EVENER_TRACE` does.
    ///
    /// The first trace that a program writes to a path gets that path, the others get a number: `trace.json`,
    /// `trace.2.json`, and so on. A file that cannot be written is a line on stderr.
    #[must_use]
    pub fn trace_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.trace.file = Some(path.into());
        self
    }

    /// Each SIGUSR2 begins a trace, or ends the one that is on and writes it to this file, with a number as
    /// for [`Self::trace_file`]. As `EVENER_TRACE_SIGNAL` does. All hosts of a program that are asked to hear
    /// the signal, hear it.
    #[cfg(unix)]
    #[must_use]
    pub fn trace_on_signal(mut self, path: impl Into<PathBuf>) -> Self {
        self.trace.signal = Some(path.into());
        self
    }

    /// Hands a [`Summary`] to `sink` at this interval, from a millisecond to a day, on a thread of its own,
    /// for whose end a shutdown waits. As `EVENER_SCHEDTRACE` does, which prints it to stderr. After a panic
    /// the sink gets no more.
    #[must_use]
    pub fn summaries(mut self, interval: Duration, sink: impl FnMut(&Summary) + Send + 'static) -> Self {
        self.trace.summaries = Some((interval, Some(Box::new(sink))));
        self
    }

    /// Starts without a look at the environment's `EVENER_` variables.
    #[must_use]
    pub fn ignore_environment(mut self) -> Self {
        self.trace.ignores_environment = true;
        self
    }
}

impl Settings {
    pub(crate) fn check(&self) -> Result<(), StartError> {
        let within = |setting, value, min, max| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(StartError::Setting { setting, value, min, max })
            }
        };
        if let Some(max) = self.events_max {
            let (setting, value) = ("trace_events_max", max as u64);
            within(setting, value, EVENTS_RANGE.0 as u64, EVENTS_RANGE.1 as u64)?;
            if !max.is_power_of_two() {
                return Err(StartError::PowerOfTwo { setting, value });
            }
        }
        match &self.summaries {
            Some((interval, _)) => {
                let millis = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
                within("interval of summaries in milliseconds", millis, 1, INTERVAL_MAX.as_millis() as u64)
            }
            None => Ok(()),
        }
    }

    pub(crate) fn events_max(&self) -> usize {
        self.events_max.unwrap_or(EVENTS_MAX)
    }

    /// Takes from the environment what the builder left open, and complains of what makes no sense.
    pub(crate) fn read_environment(&mut self) {
        if !self.ignores_environment {
            self.read(|name| std::env::var_os(name)).iter().for_each(|complaint| complain_once(complaint));
        }
    }

    /// As [`Self::read_environment`], from anywhere; gives the complaints.
    fn read(&mut self, variable: impl Fn(&str) -> Option<OsString>) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut complain = |name: &str, value: &OsStr, wants: &str| {
            complaints.push(format!("{name} is {value:?}; it must be {wants}. It is ignored"));
        };
        let mut path = |name, setting: &mut Option<PathBuf>| match variable(name) {
            Some(value) if value.is_empty() => complain(name, &value, "the path of a file"),
            Some(value) => *setting = setting.take().or(Some(value.into())),
            None => {}
        };
        path(TRACE, &mut self.file);
        if cfg!(unix) {
            path(TRACE_SIGNAL, &mut self.signal);
        } else if let Some(value) = variable(TRACE_SIGNAL) {
            complain(TRACE_SIGNAL, &value, "unset on a system without SIGUSR2");
        }
        if let Some(value) = variable(TRACE_EVENTS) {
            let (min, max) = EVENTS_RANGE;
            match number(&value).filter(|events| (min..=max).contains(events) && events.is_power_of_two()) {
                Some(events) => self.events_max = self.events_max.or(Some(events)),
                None => complain(TRACE_EVENTS, &value, &format!("a power of two from {min} to {max}")),
            }
        }
        if let Some(value) = variable(SCHEDTRACE) {
            let max = INTERVAL_MAX.as_millis() as usize;
            match number(&value).filter(|millis| (1..=max).contains(millis)) {
                Some(millis) if self.summaries.is_none() => {
                    self.summaries = Some((Duration::from_millis(millis as u64), None));
                }
                Some(_) => {}
                None => complain(SCHEDTRACE, &value, &format!("a number of milliseconds from 1 to {max}")),
            }
        }
        complaints
    }
}

fn number(value: &OsStr) -> Option<usize> {
    value.to_str()?.parse().ok()
}

/// A line for whoever runs the program. Never a panic: there may be no stderr.
pub(crate) fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "evener: {line}");
}

fn complain_once(complaint: &str) {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut said = SAID.lock();
    if !said.iter().any(|before| before == complaint) {
        said.push(complaint.to_owned());
        say(complaint);
    }
}

/// The file for the next trace that goes to `path`: `path` itself for the first one of the program, then
/// with a number before its ending.
pub(crate) fn next_file(path: &Path) -> PathBuf {
    static USED: Mutex<BTreeMap<PathBuf, u32>> = Mutex::new(BTreeMap::new());
    let mut used = USED.lock();
    let count = used.entry(path.to_owned()).or_default();
    *count += 1;
    numbered(path, *count)
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    if number == 1 {
        return path.to_owned();
    }
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{number}"));
    if let Some(ending) = path.extension() {
        name.push(".");
        name.push(ending);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Settings, Vec<String>) {
        let mut settings = Settings::default();
        let complaints = settings.read(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| OsString::from(value))
        });
        (settings, complaints)
    }

    #[test]
    fn what_the_environment_says_is_taken() {
        let (settings, complaints) = read(&[(TRACE, "a.json"), (TRACE_EVENTS, "1024"), (SCHEDTRACE, "250")]);
        assert_eq!(complaints, Vec::<String>::new());
        assert_eq!(settings.file, Some("a.json".into()));
        assert_eq!(settings.events_max(), 1024);
        assert!(
            matches!(settings.summaries, Some((interval, None)) if interval == Duration::from_millis(250))
        );
        assert!(settings.check().is_ok());
        let (settings, complaints) = read(&[]);
        assert_eq!((settings.events_max(), complaints.len()), (EVENTS_MAX, 0));
        assert!(settings.file.is_none() && settings.summaries.is_none() && settings.signal.is_none());
    }

    #[test]
    fn what_makes_no_sense_is_named_with_its_value_and_left() {
        for (name, value) in [
            (TRACE, ""),
            (TRACE_EVENTS, "1000"),
            (TRACE_EVENTS, "1"),
            (TRACE_EVENTS, "33554432"),
            (TRACE_EVENTS, "many"),
            (SCHEDTRACE, ""),
            (SCHEDTRACE, "0"),
            (SCHEDTRACE, "-5"),
            (SCHEDTRACE, "1s"),
            (SCHEDTRACE, "86400001"),
            (SCHEDTRACE, "two\nlines"),
        ] {
            let (settings, complaints) = read(&[(name, value)]);
            assert_eq!(complaints.len(), 1, "{name}={value}");
            let start = format!("{name} is {value:?}; it must be ");
            assert!(complaints[0].starts_with(&start), "{complaints:?}");
            assert!(!complaints[0].contains('\n'));
            assert!(settings.file.is_none() && settings.summaries.is_none() && settings.events_max.is_none());
        }
    }

    #[test]
    fn the_builder_counts_before_the_environment() {
        let mut settings =
            Settings { file: Some("mine".into()), events_max: Some(64), ..Settings::default() };
        settings.summaries = Some((Duration::from_secs(5), Some(Box::new(|_| {}))));
        let complaints = settings.read(|name| {
            let value = [(TRACE, "theirs"), (TRACE_EVENTS, "128"), (SCHEDTRACE, "9")];
            value.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.into())
        });
        assert!(complaints.is_empty());
        assert_eq!(settings.file, Some("mine".into()));
        assert_eq!(settings.events_max(), 64);
        assert!(
            matches!(settings.summaries, Some((interval, Some(_))) if interval == Duration::from_secs(5))
        );
    }

    #[test]
    fn each_trace_of_a_path_has_a_file_of_its_own() {
        for (path, second) in [
            ("trace.json", "trace.2.json"),
            ("/a.b/trace", "/a.b/trace.2"),
            ("x/t.perfetto.json", "x/t.perfetto.2.json"),
        ] {
            assert_eq!(numbered(Path::new(path), 1), Path::new(path));
            assert_eq!(numbered(Path::new(path), 2), Path::new(second));
        }
        let path = Path::new("only in this test");
        assert_eq!(next_file(path), path);
        assert_eq!(next_file(path), Path::new("only in this test.2"));
        assert_eq!(next_file(path), Path::new("only in this test.3"));
    }
}
