//! Who shows a host from outside of its workers: the file that its trace goes to, the thread that hears
//! SIGUSR2, the thread that makes summaries.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::settings::{Settings, next_file, say};
use super::{Trace, start, stop, summary};
use crate::route::host::{Engine, Hub, StartError};
use crate::sync::Mutex;
use crate::worker::idle::Parker;

/// The observers of a host.
pub(crate) struct Observers {
    pub(crate) events_max: usize,
    /// Where the trace goes that is on, if it goes to a file. Held while the file is written: who comes
    /// second finds it whole.
    file: Mutex<Option<PathBuf>>,
    /// Of the thread that makes summaries.
    pub(super) parker: Parker,
    #[cfg(unix)]
    signal: Mutex<Option<signal_hook::SigId>>,
}

impl Observers {
    /// The observers of a host that is about to start; its trace, if wanted from the start, begins.
    pub(crate) fn new(settings: &Settings, hub: &Hub) -> Self {
        let events_max = settings.events_max();
        if settings.from_start || settings.file.is_some() {
            start(hub, events_max);
        }
        Self {
            events_max,
            file: Mutex::new(settings.file.as_deref().map(next_file)),
            parker: Parker::new(),
            #[cfg(unix)]
            signal: Mutex::new(None),
        }
    }

    /// Starts the threads that the settings ask for.
    pub(crate) fn start(engine: &Arc<Engine>, settings: Settings) -> Result<(), StartError> {
        #[cfg(unix)]
        if let Some(path) = settings.signal {
            signal::start(engine, path)?;
        }
        if let Some((interval, sink)) = settings.summaries {
            engine.threads.start(engine, "summaries".to_owned(), move |engine| {
                summary::run(engine, interval, sink);
            })?;
        }
        Ok(())
    }

    /// Does the trace go to a file, and is not there yet?
    pub(crate) fn owes_file(&self) -> bool {
        self.file.lock().is_some()
    }

    /// Ends the trace that goes to a file, if there is one, and writes it.
    pub(crate) fn write_file(&self, engine: &Engine) {
        let mut file = self.file.lock();
        if let Some(path) = file.take() {
            finish(engine, &path);
        }
    }

    /// The host has come to its end: their threads may go.
    pub(crate) fn end(&self) {
        #[cfg(unix)]
        signal::end(self);
        self.parker.unpark();
    }

    /// Begins a trace that goes to a file, or ends the one that does.
    #[cfg(unix)]
    fn toggle(&self, engine: &Engine, path: &Path) {
        let mut file = self.file.lock();
        match file.take() {
            Some(path) => finish(engine, &path),
            None if start(engine.hub, self.events_max) => *file = Some(next_file(path)),
            None => say(&format!("host {:?}: the program itself has a trace on", engine.name)),
        }
    }
}

fn finish(engine: &Engine, path: &Path) {
    let name = &engine.name;
    let Some(trace) = stop(engine.hub, name) else {
        say(&format!("host {name:?}: the program itself took the trace, none is left for {path:?}"));
        return;
    };
    if let Err(error) = write(&trace, path) {
        say(&format!("host {name:?}: could not write the trace to {path:?}: {error}"));
    }
}

fn write(trace: &Trace, path: &Path) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    trace.write_chrome(&mut out)?;
    out.flush()
}

/// How long the drop of a scheduler whose trace goes to a file waits for its end.
pub(crate) const DROP_WAIT: Duration = Duration::from_millis(200);

#[cfg(unix)]
mod signal {
    //! SIGUSR2, without a line of ours in a signal handler: it writes a byte to a socket that a thread reads.

    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::{Arc, Engine, Observers, PathBuf, StartError, say};

    pub(super) fn start(engine: &Arc<Engine>, path: PathBuf) -> Result<(), StartError> {
        let listening = UnixStream::pair().and_then(|(ours, handlers)| {
            Ok((ours, signal_hook::low_level::pipe::register(libc::SIGUSR2, handlers)?))
        });
        let (mut ours, id) = match listening {
            Ok(listening) => listening,
            Err(error) => {
                say(&format!("host {:?} cannot hear SIGUSR2: {error}", engine.name));
                return Ok(());
            }
        };
        *engine.observers.signal.lock() = Some(id);
        engine.threads.start(engine, "trace signal".to_owned(), move |engine| {
            // The other side closes at the end of the host. One byte for each signal; the socket holds more
            // than anybody sends.
            let mut byte = [0];
            while matches!(ours.read(&mut byte), Ok(1)) {
                engine.observers.toggle(engine, &path);
            }
        })
    }

    pub(super) fn end(observers: &Observers) {
        if let Some(id) = observers.signal.lock().take() {
            // Drops the handler's side of the socket.
            signal_hook::low_level::unregister(id);
        }
    }
}
