//! PostgreSQL keeps the claims: a server of its own, started from the installed programs.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use evener_store::Store;
use evener_store::conformance::{Harness, model};
use evener_store::postgres::throwaway::Cluster;
use evener_store::postgres::{Postgres, Settings};

/// One server for all tests; it goes with the process.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::start(&[]).unwrap_or_else(|error| panic!("{error}")))
}

/// A database for one claim.
struct OnPostgres {
    database: String,
    /// Words to be added to the URL.
    words: &'static str,
    store: OnceLock<Arc<dyn Store>>,
    offset_ms: AtomicI64,
}

impl OnPostgres {
    fn new(words: &'static str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let database = format!("claim_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        cluster().database(&database).expect("a database");
        Self { database, words, store: OnceLock::new(), offset_ms: AtomicI64::new(0) }
    }

    fn open(&self) -> Arc<dyn Store> {
        let url = format!("{} {}", cluster().url(&self.database), self.words);
        Arc::new(Postgres::open(Settings::new(url)).expect("a store"))
    }
}

impl Drop for OnPostgres {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE {} WITH (FORCE)", self.database);
        if let Err(error) = cluster().execute("postgres", &drop) {
            eprintln!("{}: {error}", self.database);
        }
    }
}

impl Harness for OnPostgres {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(self.store.get_or_init(|| self.open()))
    }

    fn second(&self) -> Option<Arc<dyn Store>> {
        Some(self.open())
    }

    fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).expect("claims do not last that long");
        let offset = self.offset_ms.fetch_add(by, Ordering::SeqCst) + by;
        let text = format!(
            "CREATE OR REPLACE FUNCTION evener.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS \
             $$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + {offset} $$"
        );
        cluster().execute(&self.database, &text).expect("another clock");
    }
}

evener_store::conformance_tests!(OnPostgres::new(""));

#[test]
fn a_walk_beside_the_plain_model_agrees() {
    for seed in 0..3 {
        model::walk(&OnPostgres::new(""), seed, 300);
    }
}
