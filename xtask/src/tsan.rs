//! `cargo xtask tsan`: the stress test under ThreadSanitizer.
//!
//! That needs a nightly toolchain. Its standard library ships without instrumentation: what std's
//! own locks, channels and `Once` order is invisible then and would be reported as races. Two ways
//! out, tried in this order:
//!
//! 1. With the component rust-src present, the standard library is built again, instrumented.
//! 2. Else it is taken as it is. Atomics in our code are seen; the locks of `sync.rs` must show each
//!    hand-over by an atomic of their own under `cfg(tsan)`; `tsan.supp` names what of std remains.
//!
//! Neither is trusted unseen. A program with a race must be reported and a clean one must not, on
//! this machine and in this run; else we say that the check is not possible here, and why.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::house::House;
use crate::run::{Job, Ran, first_line};
use crate::stress::Stress;
use crate::tally::Tally;
use crate::verdict::Verdict;

const REPORT: &str = "WARNING: ThreadSanitizer";

/// A way to get an instrumented program.
#[derive(Debug, Clone)]
struct Way {
    name: &'static str,
    rustflags: &'static str,
    cargo: &'static [&'static str],
}

const BUILD_STD: Way = Way {
    name: "standard library built with instrumentation",
    rustflags: "-Zsanitizer=thread --cfg tsan",
    cargo: &["-Zbuild-std"],
};

const PREBUILT_STD: Way = Way {
    name: "standard library as it ships",
    // std was built without the sanitizer; linking both is what the second flag allows.
    rustflags: "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg tsan",
    cargo: &[],
};

/// Runs the stress test under ThreadSanitizer, or says why that cannot be.
pub(crate) fn run(house: &House, stress: Stress) -> Result<Verdict> {
    let (host, ways) = match toolchain() {
        Ok(found) => found,
        Err(why) => return Ok(Verdict::left_out(why)),
    };
    let mut refused = Vec::new();
    for way in ways {
        match way.probe(house, &host)? {
            Ok(()) => {
                println!("ThreadSanitizer works here: {}", way.name);
                let ran = stress.set(way.job(house, &host, &["test"])).args(stress_args()).run()?;
                return Ok(judge(&ran, stress.judge(&ran)));
            }
            Err(why) => refused.push(format!("{}: {why}", way.name)),
        }
    }
    Ok(Verdict::left_out(refused.join("; ")))
}

fn stress_args() -> [&'static str; 8] {
    let stress = ["-p", "evener-scheduler", "--test", "stress"];
    // One after the other: the harness then takes the main thread, and has nothing to share.
    let harness = ["--", "--nocapture", "--include-ignored", "--test-threads=1"];
    let mut all = [""; 8];
    all[..4].copy_from_slice(&stress);
    all[4..].copy_from_slice(&harness);
    all
}

/// The host's triple and the ways worth trying, or why there are none.
fn toolchain() -> Result<(String, Vec<Way>), String> {
    let version = first_line(&["rustup", "run", "nightly", "rustc", "--version"]);
    let version = version.ok_or("no nightly toolchain (`rustup toolchain install nightly` brings it)")?;
    let sysroot = first_line(&["rustup", "run", "nightly", "rustc", "--print", "sysroot"])
        .ok_or("the nightly toolchain does not tell its sysroot")?;
    let host = first_line(&["rustup", "run", "nightly", "rustc", "--print", "host-tuple"])
        .ok_or("the nightly toolchain does not tell its host")?;
    let has_source = Path::new(&sysroot).join("lib/rustlib/src/rust/library/std").is_dir();
    println!("nightly: {version}, {host}, rust-src {}", if has_source { "present" } else { "absent" });
    Ok((host, ways(has_source)))
}

fn ways(has_source: bool) -> Vec<Way> {
    if has_source { vec![BUILD_STD, PREBUILT_STD] } else { vec![PREBUILT_STD] }
}

impl Way {
    /// A cargo command of this way, in the target folder that holds nothing else.
    fn job(&self, house: &House, host: &str, command: &[&str]) -> Job {
        let target = house.target.join("tsan").display().to_string();
        Job::new(["rustup", "run", "nightly", "cargo"])
            .args(command.iter().copied())
            .args(self.cargo.iter().copied())
            .args(["--target", host, "--target-dir"])
            .args([target])
            .env("RUSTFLAGS", self.rustflags)
            .env("TSAN_OPTIONS", options(house))
    }

    /// Builds and runs the two programs; the inner error says what was wrong with them.
    fn probe(&self, house: &House, host: &str) -> Result<Result<(), String>> {
        let dir = write_probe(&house.target.join("tsan-probe"))?;
        let build = self.job(house, host, &["build"]).dir(&dir).limit(Duration::from_secs(600)).run()?;
        if !build.ok {
            return Ok(Err(format!("the probe does not build ({})", build.why_not)));
        }
        let run = |name: &str| {
            let program = house.target.join("tsan").join(host).join("debug").join(name);
            let job = Job::new([program.display().to_string()]).env("TSAN_OPTIONS", options(house));
            job.limit(Duration::from_secs(120)).quiet().run()
        };
        Ok(judge_probe(&run("tsan-racy")?, &run("tsan-clean")?))
    }
}

fn judge_probe(racy: &Ran, clean: &Ran) -> Result<(), String> {
    if !racy.says(REPORT) {
        let said = racy.lines.first().map_or("nothing", String::as_str);
        return Err(format!("a race in a program that has one is not reported (it said: {said})"));
    }
    if !clean.ok || clean.says(REPORT) {
        let said = clean.lines.iter().find(|line| line.contains("SUMMARY")).map_or("", String::as_str);
        return Err(format!("a program without a race is reported {said}"));
    }
    Ok(())
}

fn judge(ran: &Ran, verdict: Verdict) -> Verdict {
    match ran.lines.iter().filter(|line| line.contains(REPORT)).count() {
        0 => verdict,
        1 => Verdict::failed(verdict.tally, format!("1 report; {}", verdict.note)),
        many => Verdict::failed(verdict.tally, format!("{many} reports; {}", verdict.note)),
    }
}

/// `cargo xtask tsan` by hand: a check that was asked for and cannot be made is a failure.
pub(crate) fn as_asked(verdict: Verdict) -> Verdict {
    match verdict.kind {
        crate::verdict::Kind::LeftOut => {
            Verdict::failed(Tally::default(), format!("not possible here: {}", verdict.note))
        }
        _ => verdict,
    }
}

fn options(house: &House) -> String {
    let suppressions = house.root.join("xtask/tsan.supp");
    format!("suppressions='{}' exitcode=66 halt_on_error=0 history_size=4", suppressions.display())
}

fn write_probe(dir: &Path) -> Result<PathBuf> {
    let bins = dir.join("src/bin");
    fs::create_dir_all(&bins).with_context(|| format!("create {}", bins.display()))?;
    let manifest =
        "[package]\nname = \"tsan-probe\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n";
    let files = [
        (dir.join("Cargo.toml"), manifest),
        (bins.join("tsan-racy.rs"), RACY),
        (bins.join("tsan-clean.rs"), CLEAN),
    ];
    for (path, text) in files {
        // Unchanged files keep their time, so that cargo does not build them again.
        if fs::read_to_string(&path).ok().as_deref() != Some(text) {
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
    }
    Ok(dir.to_owned())
}

/// Two threads add to one number with nothing between them.
const RACY: &str = r"
use std::cell::UnsafeCell;

struct Shared(UnsafeCell<u64>);
unsafe impl Sync for Shared {}
static NUMBER: Shared = Shared(UnsafeCell::new(0));

fn add() {
    for _ in 0..1000 {
        unsafe { *NUMBER.0.get() += 1 }
    }
}

fn main() {
    let other = std::thread::spawn(add);
    add();
    other.join().unwrap();
}
";

/// What the scheduler does to share: release and acquire, park and unpark, a contended lock that
/// shows its hand-over by an atomic, and an Arc dropped by several threads.
const CLEAN: &str = r"
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

struct Shared(UnsafeCell<u64>, AtomicBool);
unsafe impl Sync for Shared {}

fn publish_and_park() {
    static SHARED: Shared = Shared(UnsafeCell::new(0), AtomicBool::new(false));
    let reader = thread::spawn(|| {
        while !SHARED.1.load(Ordering::Acquire) {
            thread::park();
        }
        assert_eq!(unsafe { *SHARED.0.get() }, 7);
    });
    unsafe { *SHARED.0.get() = 7 };
    SHARED.1.store(true, Ordering::Release);
    reader.thread().unpark();
    reader.join().unwrap();
}

struct Lock {
    inner: Mutex<()>,
    shown: AtomicU32,
    value: UnsafeCell<Vec<u64>>,
}
unsafe impl Sync for Lock {}

impl Lock {
    fn with(&self, act: impl FnOnce(&mut Vec<u64>)) {
        let guard = self.inner.lock().unwrap();
        self.shown.load(Ordering::Acquire);
        act(unsafe { &mut *self.value.get() });
        self.shown.store(1, Ordering::Release);
        drop(guard);
    }
}

fn contend_and_drop() {
    let lock = Arc::new(Lock {
        inner: Mutex::new(()),
        shown: AtomicU32::new(0),
        value: UnsafeCell::new(vec![0; 4]),
    });
    let work = |lock: Arc<Lock>| {
        move || {
            for turn in 0..20_000 {
                lock.with(|value| value[0] += 1);
                if turn % 100 == 0 {
                    thread::yield_now();
                }
            }
        }
    };
    let threads: Vec<_> = (0..4).map(|_| thread::spawn(work(lock.clone()))).collect();
    drop(lock);
    for thread in threads {
        thread.join().unwrap();
    }
}

fn main() {
    publish_and_park();
    for _ in 0..3 {
        contend_and_drop();
    }
}
";

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(ok: bool, line: &str) -> Ran {
        Ran { lines: vec![line.to_owned()], ok, why_not: String::new() }
    }

    #[test]
    fn a_sanitizer_that_misses_a_race_is_not_trusted() {
        let (reports, silent) = (ran(false, "WARNING: ThreadSanitizer: data race (pid=1)"), ran(true, ""));
        assert_eq!(judge_probe(&reports, &silent), Ok(()));
        assert!(judge_probe(&silent, &silent).unwrap_err().contains("not reported"));
        let broken = ran(false, "FATAL: ThreadSanitizer: unexpected memory mapping");
        assert!(judge_probe(&broken, &silent).unwrap_err().contains("unexpected memory mapping"));
    }

    #[test]
    fn a_sanitizer_that_cries_wolf_is_not_trusted() {
        let reports = ran(false, "WARNING: ThreadSanitizer: data race (pid=1)");
        assert!(judge_probe(&reports, &reports).unwrap_err().contains("without a race"));
        assert!(judge_probe(&reports, &ran(false, "")).is_err(), "a clean program that fails proves nothing");
    }

    #[test]
    fn a_report_fails_the_run_even_when_the_tests_pass() {
        let passed = || Verdict::passed(Tally { passed: 1, failed: 0, ignored: 0 }, "");
        assert!(!judge(&ran(true, "fine"), passed()).is_failure());
        assert!(judge(&ran(true, "WARNING: ThreadSanitizer: data race"), passed()).is_failure());
    }

    #[test]
    fn the_standard_library_is_built_only_where_its_source_is() {
        assert_eq!(ways(true).first().unwrap().name, BUILD_STD.name);
        assert!(ways(false).iter().all(|way| way.name == PREBUILT_STD.name));
    }

    #[test]
    fn what_was_asked_for_and_cannot_be_is_a_failure() {
        assert!(as_asked(Verdict::left_out("no nightly")).is_failure());
        assert!(!as_asked(Verdict::passed(Tally::default(), "")).is_failure());
    }
}
