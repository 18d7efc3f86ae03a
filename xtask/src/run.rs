//! Runs a command, passes its output through line by line and keeps a copy for the one who asked.
//!
//! Every command has a limit: the programs under test can hang, and a check that hangs tells nobody
//! anything. At the limit the command and all its descendants are ended. They stay in our process
//! group, so that Ctrl-C at the terminal reaches them as well.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// After so long without a line of output we say that the command is still at work.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// A command with its environment and its limit.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    words: Vec<String>,
    env: Vec<(String, OsString)>,
    dir: Option<PathBuf>,
    limit: Duration,
    quiet: bool,
}

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Its standard output and standard error, in the order in which the lines came.
    pub(crate) lines: Vec<String>,
    /// It ended by itself, with exit code 0.
    pub(crate) ok: bool,
    /// Why not, in words: the exit status or the limit. Empty when `ok`.
    pub(crate) why_not: String,
}

impl Job {
    /// A command of these words, with a limit of ten minutes until [`Job::limit`] says otherwise.
    pub(crate) fn new<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Self {
        let words: Vec<String> = words.into_iter().map(Into::into).collect();
        assert!(!words.is_empty(), "a command needs at least its program");
        Self { words, env: Vec::new(), dir: None, limit: Duration::from_secs(600), quiet: false }
    }

    /// The same with more words at the end.
    pub(crate) fn args<W: Into<String>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.words.extend(words.into_iter().map(Into::into));
        self
    }

    /// The same with an environment variable set.
    pub(crate) fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// The same in another folder than ours.
    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.dir = Some(dir.to_owned());
        self
    }

    /// The same with another limit.
    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The same with its output kept but not shown.
    pub(crate) fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// The command as one would type it.
    pub(crate) fn text(&self) -> String {
        let env = self.env.iter().map(|(name, value)| format!("{name}={}", quoted(&value.to_string_lossy())));
        env.chain(self.words.iter().map(|word| quoted(word))).collect::<Vec<_>>().join(" ")
    }

    /// Runs it to its end or to its limit.
    ///
    /// # Errors
    /// When the command cannot be started. That it fails is not an error here: see [`Ran::ok`].
    pub(crate) fn run(&self) -> Result<Ran> {
        if !self.quiet {
            println!("$ {}", self.text());
        }
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        let mut child = command.spawn().with_context(|| format!("start `{}`", self.text()))?;
        let (sender, lines) = mpsc::channel();
        read_lines(child.stdout.take(), sender.clone());
        read_lines(child.stderr.take(), sender);
        self.wait(&mut child, &lines)
    }

    fn wait(&self, child: &mut Child, incoming: &mpsc::Receiver<String>) -> Result<Ran> {
        let began = Instant::now();
        let mut lines = Vec::new();
        let mut stopped = false;
        loop {
            let left = self.limit.saturating_sub(began.elapsed());
            if left.is_zero() && !stopped {
                stopped = true;
                end_with_descendants(child);
            }
            // Once the readers are gone both pipes are closed, so every line has come.
            match incoming.recv_timeout(if stopped { SILENCE_MAX } else { left.min(SILENCE_MAX) }) {
                Ok(line) => {
                    if !self.quiet {
                        println!("{line}");
                    }
                    lines.push(line);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if stopped => break,
                Err(RecvTimeoutError::Timeout) if left > SILENCE_MAX && !self.quiet => {
                    // The words alone: what was set around them stands above, with the command.
                    println!("... {} s, still running: {}", began.elapsed().as_secs(), self.words.join(" "));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        if stopped {
            let _ = child.wait();
            let why_not = format!("ended after its limit of {} s", self.limit.as_secs());
            return Ok(Ran { lines, ok: false, why_not });
        }
        let status = child.wait().with_context(|| format!("wait for `{}`", self.text()))?;
        let why_not = if status.success() { String::new() } else { status.to_string() };
        Ok(Ran { lines, ok: status.success(), why_not })
    }
}

impl Ran {
    /// Whether some line holds this text.
    pub(crate) fn says(&self, text: &str) -> bool {
        self.lines.iter().any(|line| line.contains(text))
    }
}

/// Whether this command starts and ends well; what it prints is dropped.
pub(crate) fn answers(words: &[&str]) -> bool {
    let job = Job::new(words.iter().copied()).limit(Duration::from_secs(60)).quiet();
    job.run().is_ok_and(|ran| ran.ok)
}

/// The first line that this command prints, if it starts and ends well.
pub(crate) fn first_line(words: &[&str]) -> Option<String> {
    let job = Job::new(words.iter().copied()).limit(Duration::from_secs(60)).quiet();
    let ran = job.run().ok()?;
    if ran.ok { ran.lines.into_iter().next() } else { None }
}

/// The word as a POSIX shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=+,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn read_lines(pipe: Option<impl Read + Send + 'static>, sender: Sender<String>) {
    let Some(pipe) = pipe else { return };
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut bytes = Vec::new();
        // Bytes, not `lines()`: a test may print what is no UTF-8, and the rest must still come.
        while matches!(reader.read_until(b'\n', &mut bytes), Ok(read) if read > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_owned();
            if sender.send(line).is_err() {
                return;
            }
            bytes.clear();
        }
    });
}

/// Ends the child and what it started: cargo's test binary is a grandchild, and outlives cargo.
fn end_with_descendants(child: &mut Child) {
    let mut doomed = vec![child.id()];
    let parents = parents();
    let mut next = 0;
    while next < doomed.len() {
        let parent = doomed[next];
        doomed.extend(parents.iter().filter(|(_, ppid)| *ppid == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    // std has a way to end a child, none to end a grandchild.
    let pids = doomed.iter().map(ToString::to_string);
    let _ = Command::new("kill").arg("-KILL").args(pids).stderr(Stdio::null()).status();
    let _ = child.kill();
}

/// Every process with its parent, as far as /proc shows it (elsewhere: none).
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything; state and parent follow the last one.
        let ppid = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        Some((pid, ppid))
    };
    entries.filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_and_the_failure_come_back() {
        let ran = Job::new(["sh", "-c", "echo out; echo err >&2; exit 3"]).quiet().run().unwrap();
        assert!(ran.says("out") && ran.says("err"), "{ran:?}");
        assert!(!ran.ok && ran.why_not.contains('3'), "{ran:?}");
    }

    #[test]
    fn a_missing_program_is_an_error_that_names_it() {
        let error = Job::new(["no-such-program-here"]).quiet().run().unwrap_err();
        assert!(format!("{error:#}").contains("no-such-program-here"), "{error:#}");
    }

    #[test]
    fn at_its_limit_a_command_ends_with_its_grandchildren() {
        // The grandchild holds the pipe open: were it left alive, `run` would wait for it.
        let script = "(exec sleep 3600) & wait";
        let began = Instant::now();
        let ran = Job::new(["sh", "-c", script]).limit(Duration::from_millis(700)).quiet().run().unwrap();
        assert!(!ran.ok && ran.why_not.contains("limit"), "{ran:?}");
        assert!(began.elapsed() < Duration::from_secs(20), "the limit did not hold");
    }

    #[test]
    fn output_that_is_no_text_does_not_hide_what_follows() {
        let ran = Job::new(["sh", "-c", r"printf '\377\n'; echo after"]).quiet().run().unwrap();
        assert!(ran.says("after"), "{ran:?}");
    }

    #[test]
    fn the_text_of_a_command_can_be_typed_again() {
        let job = Job::new(["cargo", "test", "a b", "it's"]).env("RUSTFLAGS", "--cfg loom");
        assert_eq!(job.text(), r"RUSTFLAGS='--cfg loom' cargo test 'a b' 'it'\''s'");
    }
}
