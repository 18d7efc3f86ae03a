//! A PostgreSQL of its own, for tests, benches and chaos: started from the installed programs in a folder of
//! its own, stopped and removed when it is dropped. `fsync` is on, as in life.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::settings::Settings;
use crate::StoreError;

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Sessions are ended, transactions rolled back, everything written.
    Fast,
    /// At once; the next start recovers.
    Immediate,
    /// `kill -9` of the server; the next start recovers.
    Kill,
}

/// A server of its own.
#[derive(Debug)]
pub struct Cluster {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    user: Option<(u32, u32)>,
    is_running: bool,
    keeper: Option<Child>,
}

/// Ends the server and takes its folder away when its input ends: when this process does, however that comes
/// about.
const KEEPER: &str = r#"cat >/dev/null; "$0/pg_ctl" -D "$1/data" -m immediate -w stop; rm -rf "$1""#;

/// How often a start after a kill is tried.
const RESUME_TRIES: u32 = 100;

/// What there is to do when there is no PostgreSQL.
const INSTALL: &str = "no PostgreSQL server is installed: install one of version 13 or later (Debian and Ubuntu: \
                       apt-get install postgresql; Fedora: dnf install postgresql-server; macOS: brew install \
                       postgresql), or set PGBIN to the folder of its programs";

fn fault(text: impl Into<String>) -> StoreError {
    StoreError::Config(text.into())
}

/// Where initdb, pg_ctl and postgres are.
fn programs() -> Result<PathBuf, StoreError> {
    let has_server = |folder: &Path| folder.join("initdb").exists() && folder.join("postgres").exists();
    if let Some(folder) = std::env::var_os("PGBIN") {
        let folder = PathBuf::from(folder);
        return if has_server(&folder) {
            Ok(folder)
        } else {
            Err(fault(format!("PGBIN is {}: there is no initdb", folder.display())))
        };
    }
    let told = Command::new("pg_config").arg("--bindir").stderr(Stdio::null()).output();
    if let Ok(told) = told {
        let folder = PathBuf::from(String::from_utf8_lossy(&told.stdout).trim());
        if has_server(&folder) {
            return Ok(folder);
        }
    }
    let mut versions: Vec<(u32, PathBuf)> = Vec::new();
    for root in ["/usr/lib/postgresql", "/usr/local/lib/postgresql"] {
        for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
            let folder = entry.path().join("bin");
            let version = entry.file_name().to_string_lossy().parse();
            if let Ok(version) = version
                && has_server(&folder)
            {
                versions.push((version, folder));
            }
        }
    }
    versions.sort();
    versions.pop().map(|(_, folder)| folder).ok_or_else(|| fault(INSTALL))
}

/// Whom to run the server as: it refuses root. `None`: as we are.
fn user() -> Result<Option<(u32, u32)>, StoreError> {
    let id = Command::new("id").arg("-u").output().map_err(|error| fault(format!("id: {error}")))?;
    if String::from_utf8_lossy(&id.stdout).trim() != "0" {
        return Ok(None);
    }
    let users =
        std::fs::read_to_string("/etc/passwd").map_err(|error| fault(format!("/etc/passwd: {error}")))?;
    for wanted in ["postgres", "nobody"] {
        for line in users.lines() {
            let mut fields = line.split(':');
            if fields.next() == Some(wanted) {
                let mut number = |at: usize| fields.nth(at)?.parse().ok();
                if let (Some(user), Some(group)) = (number(1), number(0)) {
                    return Ok(Some((user, group)));
                }
            }
        }
    }
    Err(fault("PostgreSQL refuses to run as root, and there is no user postgres or nobody"))
}

impl Cluster {
    /// Starts one with those lines added to its settings.
    ///
    /// # Errors
    /// [`StoreError::Config`] with what is missing or what the server said.
    pub fn start(settings: &[&str]) -> Result<Self, StoreError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let programs = programs()?;
        let user = user()?;
        // Relaxed: the number is all that matters.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("evener-pg-{}-{number}", std::process::id()));
        // Left behind by a process of the same number that was killed.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).map_err(|error| fault(format!("{}: {error}", folder.display())))?;
        if let Some((user, group)) = user {
            std::os::unix::fs::chown(&folder, Some(user), Some(group))
                .map_err(|error| fault(format!("{}: {error}", folder.display())))?;
        }
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .map_err(|error| fault(format!("a port: {error}")))?
            .port();
        let mut cluster = Self { programs, folder, port, user, is_running: false, keeper: None };
        cluster.keep()?;
        let data = cluster.data();
        cluster
            .run("initdb", &["-D", &data, "-A", "trust", "-U", "evener", "-E", "UTF8", "--locale=C", "-N"])?;
        let mut text = format!(
            "\nlisten_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{}'\n\
             max_connections = 200\nfsync = on\n",
            cluster.folder.display()
        );
        for line in settings {
            text.push_str(line);
            text.push('\n');
        }
        cluster.configure(&text)?;
        cluster.resume()?;
        Ok(cluster)
    }

    fn keep(&mut self) -> Result<(), StoreError> {
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER]).arg(&self.programs).arg(&self.folder).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Not of our group: a Ctrl-C for us is none for it.
        command.process_group(0);
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        self.keeper = Some(command.spawn().map_err(|error| fault(format!("sh: {error}")))?);
        Ok(())
    }

    fn data(&self) -> String {
        self.folder.join("data").display().to_string()
    }

    /// Adds lines to its settings, for the next start.
    ///
    /// # Errors
    /// [`StoreError::Config`]
    pub fn configure(&self, lines: &str) -> Result<(), StoreError> {
        use std::io::Write as _;
        let path = self.folder.join("data/postgresql.conf");
        std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(lines.as_bytes()))
            .map_err(|error| fault(format!("{}: {error}", path.display())))
    }

    /// Puts a file into its data folder, owned by whom it runs as and read by nobody else; returns its path.
    ///
    /// # Errors
    /// [`StoreError::Config`]
    pub fn put(&self, name: &str, text: &str) -> Result<PathBuf, StoreError> {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.folder.join("data").join(name);
        let put = || -> std::io::Result<()> {
            std::fs::write(&path, text)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
            if let Some((user, group)) = self.user {
                std::os::unix::fs::chown(&path, Some(user), Some(group))?;
            }
            Ok(())
        };
        put().map_err(|error| fault(format!("{}: {error}", path.display())))?;
        Ok(path)
    }

    fn run(&self, program: &str, args: &[&str]) -> Result<(), StoreError> {
        let out = self.folder.join("out");
        let file =
            std::fs::File::create(&out).map_err(|error| fault(format!("{}: {error}", out.display())))?;
        let errors = file.try_clone().map_err(|error| fault(format!("{}: {error}", out.display())))?;
        let mut command = Command::new(self.programs.join(program));
        // A file, not a pipe: the server keeps what its starter had open.
        command.args(args).current_dir(&self.folder).stdin(Stdio::null()).stdout(file).stderr(errors);
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        let status = command.status().map_err(|error| fault(format!("{program}: {error}")))?;
        if status.success() {
            return Ok(());
        }
        let said = std::fs::read_to_string(&out).unwrap_or_default();
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        Err(fault(format!("{program}: {status}\n{said}\n{log}")))
    }

    /// Starts it again.
    ///
    /// # Errors
    /// [`StoreError::Config`]
    pub fn resume(&mut self) -> Result<(), StoreError> {
        let log = self.folder.join("log").display().to_string();
        // Children of a server that was killed may still hold what it needs, for a moment.
        let mut tries = 0;
        while let Err(error) =
            self.run("pg_ctl", &["-D", &self.data(), "-l", &log, "-t", "60", "-w", "start"])
        {
            tries += 1;
            if tries == RESUME_TRIES {
                return Err(error);
            }
            pause();
        }
        self.is_running = true;
        Ok(())
    }

    /// Stops it.
    ///
    /// # Errors
    /// [`StoreError::Config`]
    pub fn stop(&mut self, how: Stop) -> Result<(), StoreError> {
        let data = self.data();
        match how {
            Stop::Fast => self.run("pg_ctl", &["-D", &data, "-t", "60", "-w", "-m", "fast", "stop"])?,
            Stop::Immediate => {
                self.run("pg_ctl", &["-D", &data, "-t", "60", "-w", "-m", "immediate", "stop"])?
            }
            Stop::Kill => {
                let pid = self.pid()?.to_string();
                self.run_outside("kill", &["-9", &pid])?;
                // Its children notice that it is gone; until then their memory is in use.
                while self.shares_memory() {
                    pause();
                }
            }
        }
        self.is_running = false;
        Ok(())
    }

    fn run_outside(&self, program: &str, args: &[&str]) -> Result<(), StoreError> {
        let status = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(fault(format!("{program}: {status}"))),
            Err(error) => Err(fault(format!("{program}: {error}"))),
        }
    }

    /// The server's process.
    ///
    /// # Errors
    /// [`StoreError::Config`] when it does not run.
    pub fn pid(&self) -> Result<u32, StoreError> {
        let path = self.folder.join("data/postmaster.pid");
        let text =
            std::fs::read_to_string(&path).map_err(|error| fault(format!("{}: {error}", path.display())))?;
        let pid = text.lines().next().and_then(|line| line.trim().parse().ok());
        pid.ok_or_else(|| fault(format!("{} has no number in it", path.display())))
    }

    /// `true`: a process of this server is still there.
    fn shares_memory(&self) -> bool {
        let data = self.data();
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        processes
            .filter(|process| process.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
            .filter_map(|process| std::fs::read_link(process.path().join("cwd")).ok())
            .any(|folder| folder.as_os_str() == OsStr::new(&data))
    }

    /// Runs SQL in a database, as its owner; returns the first column of what it answers.
    ///
    /// # Errors
    /// [`StoreError`], as the server says it.
    pub fn execute(&self, database: &str, text: &str) -> Result<Vec<String>, StoreError> {
        let settings = Settings::new(self.url(database));
        let shared = std::sync::Arc::new(super::connection::Shared::new(&settings.url, &settings)?);
        super::connection::Connection::new(&shared).bare(text)
    }

    /// A new, empty database.
    ///
    /// # Errors
    /// [`StoreError`], as the server says it.
    pub fn database(&self, name: &str) -> Result<String, StoreError> {
        self.execute("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(self.url(name))
    }

    /// Where it is, over the socket.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("host={} port={} user=evener dbname={database}", self.folder.display(), self.port)
    }

    /// Where it is, over TCP.
    #[must_use]
    pub fn tcp_url(&self, database: &str) -> String {
        format!("postgres://evener@127.0.0.1:{}/{database}", self.port)
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.is_running {
            let _ = self.stop(Stop::Immediate);
        }
        let _ = std::fs::remove_dir_all(&self.folder);
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
    }
}

fn pause() {
    #[allow(clippy::disallowed_methods, reason = "waits for processes that nobody here is the parent of")]
    std::thread::sleep(Duration::from_millis(10));
}
