//! SQLite keeps the claims.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use evener_actor::event::Timestamp;
use evener_store::Store;
use evener_store::conformance::Harness;
use evener_store::conformance::model;
use evener_store::sqlite::{Options, Sqlite, Synchronous};

/// A folder of its own, that goes with it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only that each is given once matters.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("evener-sqlite-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Self(path)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("evener.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct InFile {
    clock: Arc<AtomicI64>,
    store: Arc<Sqlite>,
    options: Options,
    // After the store: it goes last.
    folder: Folder,
}

impl InFile {
    fn new() -> Self {
        // Some time in 2027.
        let clock = Arc::new(AtomicI64::new(1_800_000_000_000));
        let options = Options {
            // What is claimed does not depend on it, but for a power cut.
            synchronous: Synchronous::Normal,
            clock: {
                let clock = Arc::clone(&clock);
                Arc::new(move || Timestamp(clock.load(Ordering::SeqCst)))
            },
            ..Options::default()
        };
        let folder = Folder::new();
        let store = Arc::new(Sqlite::open(folder.file(), options.clone()).expect("a new file opens"));
        Self { clock, store, options, folder }
    }
}

impl Harness for InFile {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn second(&self) -> Option<Arc<dyn Store>> {
        None
    }

    fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).expect("claims do not last that long");
        self.clock.fetch_add(by, Ordering::SeqCst);
    }
}

evener_store::conformance_tests!(InFile::new());

/// A runtime and a guest. A batch's answer is kept by the program that sent it, so claims about a batch that
/// two programs send under one boot are not for these.
struct WithGuest(InFile);

impl Harness for WithGuest {
    fn store(&self) -> Arc<dyn Store> {
        self.0.store()
    }

    fn second(&self) -> Option<Arc<dyn Store>> {
        let guest = Sqlite::attach(self.0.folder.file(), self.0.options.clone());
        Some(Arc::new(guest.expect("a guest may come")))
    }

    fn advance(&self, by: Duration) {
        self.0.advance(by);
    }
}

#[test]
fn a_guest_and_the_runtime_do_not_own_the_same() {
    let name = "ownership::claims_that_meet_give_each_instance_to_one";
    evener_store::conformance::check(name, &WithGuest(InFile::new()));
}

#[test]
fn a_walk_beside_the_plain_model_agrees() {
    for seed in 0..12 {
        model::walk(&InFile::new(), seed, 400);
    }
}
