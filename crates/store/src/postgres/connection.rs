//! One connection: made when it is needed, made anew when it was lost, one call at a time.
//!
//! Each has a runtime of its own on the thread that calls, so that a call is a write, a poll and a read with
//! no other thread between.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, Row, Socket};

use super::error::{self, Sent};
use super::settings::{Remark, Settings, Target};
use super::sql::{Call, StatementKey, Statements};
use crate::{Result, StoreError};

/// What a session must be, whatever the role's defaults are. Plans: a statement is planned once, maybe while
/// its tables are empty; so what is right for full ones is all that it may choose. JIT would see the price of
/// what is turned off, and compile for it.
const SESSION: &[(&str, &str)] = &[
    ("search_path", "evener, pg_catalog"),
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
    ("max_parallel_workers_per_gather", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "60s"),
    ("client_min_messages", "warning"),
];

/// What connections of one store share.
pub(super) struct Shared {
    pub(super) target: Target,
    pub(super) statements: Statements,
    pub(super) statement_timeout: Duration,
    pub(super) gate: Gate,
    pub(super) remark: Option<Remark>,
}

impl Shared {
    pub(super) fn new(url: &str, settings: &Settings) -> Result<Self> {
        Ok(Self {
            target: Target::new(url, settings)?,
            statements: Statements::default(),
            statement_timeout: settings.statement_timeout,
            gate: Gate::default(),
            remark: settings.remark.clone(),
        })
    }

    pub(super) fn remark(&self, text: &str) {
        if let Some(remark) = &self.remark {
            remark(text);
        }
    }

    /// The longest that a call may take: the server gives up before we do.
    fn deadline(&self) -> Duration {
        self.statement_timeout + self.statement_timeout / 4
    }

    /// What sets a session up, or (`is_local`) a transaction.
    pub(super) fn session(&self, is_local: bool) -> String {
        let local = if is_local { "LOCAL " } else { "" };
        let mut text = String::new();
        for (name, value) in SESSION {
            text.push_str(&format!("SET {local}{name} = '{}';", value.replace(", ", "', '")));
        }
        text.push_str(&format!("SET {local}statement_timeout = {};", self.statement_timeout.as_millis()));
        if !is_local {
            text.push_str("SET default_transaction_isolation = 'read committed';");
        }
        // Accepted means written: weaker than that it must not be; stronger it may.
        text.push_str(&format!(
            "SELECT set_config('synchronous_commit', 'on', {is_local}) \
             WHERE current_setting('synchronous_commit') = 'off';"
        ));
        text
    }

    fn begin(&self) -> String {
        let mut text = "BEGIN ISOLATION LEVEL READ COMMITTED;".to_owned();
        if !self.target.is_prepared {
            text.push_str(&self.session(true));
        }
        text
    }
}

/// Now, for deadlines and pauses.
pub(super) fn now() -> Instant {
    #[allow(
        clippy::disallowed_methods,
        reason = "deadlines of real connections; what is due goes by the database's clock"
    )]
    Instant::now()
}

/// Lets connects through: all while it goes well, after a failure one at a time, with growing pauses between.
#[derive(Default)]
pub(super) struct Gate(Mutex<Tries>);

#[derive(Default)]
struct Tries {
    failures: u32,
    not_before: Option<Instant>,
    is_trying: bool,
    last: Option<StoreError>,
}

impl Gate {
    fn tries(&self) -> MutexGuard<'_, Tries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `Err`: not now; with what went wrong last.
    fn enter(&self) -> Result<()> {
        let mut tries = self.tries();
        if tries.failures == 0 {
            return Ok(());
        }
        let is_early = tries.not_before.is_some_and(|at| now() < at);
        if is_early || tries.is_trying {
            return Err(tries.last.clone().unwrap_or_else(|| StoreError::Away("not connected".to_owned())));
        }
        tries.is_trying = true;
        Ok(())
    }

    /// Returns whether it is a change for the worse.
    fn failed(&self, error: &StoreError) -> bool {
        let mut tries = self.tries();
        let pause = pause(tries.failures);
        tries.is_trying = false;
        tries.failures = tries.failures.saturating_add(1);
        tries.not_before = Some(now() + pause);
        tries.last = Some(error.clone());
        tries.failures == 1
    }

    /// Returns whether it is a change for the better.
    fn passed(&self) -> bool {
        let mut tries = self.tries();
        let was_failing = tries.failures > 0;
        *tries = Tries::default();
        was_failing
    }
}

/// How long after failure number `failures` (the first is 0): 1 s, 2 s, then 4 s, more or less by a quarter.
pub(super) fn pause(failures: u32) -> Duration {
    let full = 1_000_u64 << failures.min(2);
    Duration::from_millis(full - full / 4 + chance() % (full / 2))
}

/// Spreads tries of many; nothing else depends on it.
fn chance() -> u64 {
    static SEED: AtomicU64 = AtomicU64::new(0);
    // Relaxed: any value will do.
    let count = SEED.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    let mut mixed = count ^ (u64::from(std::process::id()) << 32);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// It only reads: when its answer is lost it may be asked again.
    Reads,
    /// It writes.
    Writes,
}

impl Effect {
    fn sent(self) -> Sent {
        match self {
            Self::Reads => Sent::Read,
            Self::Writes => Sent::Write,
        }
    }
}

/// One connection.
pub(super) struct Connection {
    shared: Arc<Shared>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    runtime: Option<Runtime>,
    session: Option<Session>,
}

struct Session {
    client: Client,
    statements: HashMap<StatementKey, tokio_postgres::Statement>,
}

type Answers = Result<Vec<Vec<Row>>, tokio_postgres::Error>;

impl Connection {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), inner: Mutex::default() }
    }

    /// One statement, which is a transaction of its own.
    pub(super) fn ask(&self, effect: Effect, call: &Call<'_>) -> Result<Vec<Row>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.ask_with(&mut inner, effect, call)
    }

    /// The same, unless somebody else is asking just now.
    pub(super) fn try_ask(&self, effect: Effect, call: &Call<'_>) -> Option<Result<Vec<Row>>> {
        match self.inner.try_lock() {
            Ok(mut inner) => Some(self.ask_with(&mut inner, effect, call)),
            Err(std::sync::TryLockError::Poisoned(inner)) => {
                Some(self.ask_with(&mut inner.into_inner(), effect, call))
            }
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    fn ask_with(&self, inner: &mut Inner, effect: Effect, call: &Call<'_>) -> Result<Vec<Row>> {
        let answers = self.run(inner, effect, std::slice::from_ref(call), !self.shared.target.is_prepared)?;
        Ok(answers.into_iter().next().unwrap_or_default())
    }

    /// Several statements in one transaction and one round trip; each sees what those before it did.
    pub(super) fn ask_all(&self, effect: Effect, calls: &[Call<'_>]) -> Result<Vec<Vec<Row>>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.run(&mut inner, effect, calls, true)
    }

    /// A transaction with round trips of its own: for what is rare.
    pub(super) fn transaction<T>(&self, mut act: impl FnMut(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.connect(&mut inner)?;
        let mut has_commit = false;
        let result = (|| {
            let Inner { runtime, session } = &mut *inner;
            let (Some(runtime), Some(session)) = (runtime.as_ref(), session.as_mut()) else {
                return Err(StoreError::Internal("no session".to_owned()));
            };
            let mut transaction = Transaction { shared: &self.shared, runtime, session };
            transaction.batch(&self.shared.begin())?;
            let result = act(&mut transaction)?;
            has_commit = true;
            transaction.batch("COMMIT")?;
            Ok(result)
        })();
        if let Err(error) = &result {
            // Nothing was done unless the COMMIT went out. The session ends, and with it the transaction.
            inner.session = None;
            if has_commit && matches!(error, StoreError::Away(_)) {
                return Err(StoreError::Unknown(error.to_string()));
            }
        }
        result
    }

    /// Statements without arguments, as they stand; the first column of what they answer.
    #[cfg(feature = "throwaway")]
    pub(super) fn bare(&self, text: &str) -> Result<Vec<String>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.connect(&mut inner)?;
        let Inner { runtime: Some(runtime), session: Some(session) } = &mut *inner else {
            return Err(StoreError::Internal("no session".to_owned()));
        };
        let answer = runtime.block_on(session.client.simple_query(text));
        let answer = answer.map_err(|error| error::of(&error, Sent::Write, session.client.is_closed()))?;
        let text = |message: &tokio_postgres::SimpleQueryMessage| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        Ok(answer.iter().filter_map(text).collect())
    }

    fn run(
        &self,
        inner: &mut Inner,
        effect: Effect,
        calls: &[Call<'_>],
        is_transaction: bool,
    ) -> Result<Vec<Vec<Row>>> {
        let mut has_been_stale = false;
        loop {
            self.connect(inner)?;
            let Inner { runtime, session } = inner;
            let (Some(runtime), Some(live)) = (runtime.as_ref(), session.as_mut()) else {
                return Err(StoreError::Internal("no session".to_owned()));
            };
            let (sent, result) = live.send(&self.shared, runtime, calls, is_transaction);
            let Some(result) = result else {
                *session = None;
                let text = format!("no answer within {} s", self.shared.deadline().as_secs());
                return Err(effect_of(sent, effect).lost(text));
            };
            match result {
                Ok(answers) => return Ok(answers),
                Err(error) => {
                    if error::is_stale_statement(&error) && !has_been_stale {
                        // It did nothing. Fresh statements, once.
                        has_been_stale = true;
                        *session = None;
                        continue;
                    }
                    let is_closed = live.client.is_closed();
                    let error = error::of(&error, effect_of(sent, effect), is_closed);
                    if is_closed || matches!(error, StoreError::Unknown(_) | StoreError::Away(_)) {
                        *session = None;
                    }
                    return Err(error);
                }
            }
        }
    }

    /// A session that is alive as far as can be seen without asking.
    fn connect(&self, inner: &mut Inner) -> Result<()> {
        if inner.runtime.is_none() {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            inner.runtime =
                Some(runtime.map_err(|error| StoreError::Internal(format!("a runtime: {error}")))?);
        }
        let Inner { runtime: Some(runtime), session } = inner else {
            return Err(StoreError::Internal("no runtime".to_owned()));
        };
        if let Some(live) = session {
            // A turn of the runtime: has the server hung up while nobody looked?
            runtime.block_on(tokio::task::yield_now());
            if !live.client.is_closed() {
                return Ok(());
            }
            *session = None;
        }
        *session = Some(open(&self.shared, runtime)?);
        Ok(())
    }
}

fn effect_of(sent: Sent, effect: Effect) -> Sent {
    if sent == Sent::Nothing { sent } else { effect.sent() }
}

fn open(shared: &Shared, runtime: &Runtime) -> Result<Session> {
    shared.gate.enter()?;
    let result = runtime.block_on(async {
        let attempt = async {
            let client = connect(&shared.target).await?;
            if shared.target.is_prepared {
                client.batch_execute(&shared.session(false)).await?;
            }
            Ok(client)
        };
        match tokio::time::timeout(shared.deadline(), attempt).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(refused(&error)),
            Err(_) => Err(StoreError::Away("no answer to the connect".to_owned())),
        }
    });
    match result {
        Ok(client) => {
            if shared.gate.passed() {
                shared.remark(&format!("PostgreSQL at {} is back", shared.target.shown));
            }
            Ok(Session { client, statements: HashMap::new() })
        }
        Err(error) => {
            if shared.gate.failed(&error) {
                shared.remark(&format!("PostgreSQL at {}: {error}", shared.target.shown));
            }
            Err(error)
        }
    }
}

/// Of a connect: nothing was done, so what is not said clearly is `Away`.
pub(super) fn refused(error: &tokio_postgres::Error) -> StoreError {
    match error::of(error, Sent::Nothing, true) {
        StoreError::Internal(text) | StoreError::Unknown(text) | StoreError::Busy(text) => {
            StoreError::Away(text)
        }
        other => other,
    }
}

async fn connect(target: &Target) -> Result<Client, tokio_postgres::Error> {
    match &target.tls {
        Some(tls) => {
            let (client, connection) = target.config.connect(tls.0.clone()).await?;
            tokio::spawn(drive(connection));
            Ok(client)
        }
        None => {
            let (client, connection) = target.config.connect(NoTls).await?;
            tokio::spawn(drive(connection));
            Ok(client)
        }
    }
}

async fn drive<S>(connection: tokio_postgres::Connection<Socket, S>)
where
    S: tokio_postgres::tls::TlsStream + Unpin,
{
    // What went wrong is told to the call that waits.
    let _ = connection.await;
}

impl Session {
    /// How far it came, and the answers; `None`: they did not come in time.
    fn send(
        &mut self,
        shared: &Shared,
        runtime: &Runtime,
        calls: &[Call<'_>],
        is_transaction: bool,
    ) -> (Sent, Option<Answers>) {
        let mut sent = Sent::Nothing;
        // Inside: a deadline belongs to the runtime that it is made in.
        let answers = runtime.block_on(async {
            tokio::time::timeout(shared.deadline(), self.exchange(shared, calls, is_transaction, &mut sent))
                .await
        });
        (sent, answers.ok())
    }

    async fn exchange(
        &mut self,
        shared: &Shared,
        calls: &[Call<'_>],
        is_transaction: bool,
        sent: &mut Sent,
    ) -> Answers {
        let mut prepared = Vec::with_capacity(calls.len());
        for call in calls {
            let statement = shared.statements.get(call.template, &call.parts);
            let bound = call.bound(&statement);
            if shared.target.is_prepared {
                let key = (call.template.name, call.parts.clone());
                let known = match self.statements.get(&key) {
                    Some(known) => known.clone(),
                    None => {
                        let types: Vec<_> = bound.iter().map(|(_, kind)| kind.clone()).collect();
                        let known = self.client.prepare_typed(&statement.text, &types).await?;
                        self.statements.insert(key, known.clone());
                        known
                    }
                };
                prepared.push((Some(known), statement, bound));
            } else {
                prepared.push((None, statement, bound));
            }
        }
        *sent = Sent::Write;
        let client = &self.client;
        let query = |at: usize| {
            let (known, statement, bound) = &prepared[at];
            async move {
                match known {
                    Some(known) => {
                        let values: Vec<_> = bound.iter().map(|(value, _)| *value).collect();
                        client.query(known, &values).await
                    }
                    None => {
                        let values: Vec<_> =
                            bound.iter().map(|(value, kind)| (*value, kind.clone())).collect();
                        client.query_typed(&statement.text, &values).await
                    }
                }
            }
        };
        if !is_transaction {
            return Ok(vec![query(0).await?]);
        }
        let begin = shared.begin();
        let mut steps: Vec<Step<'_>> = Vec::with_capacity(calls.len() + 2);
        steps.push(Box::pin(async { client.batch_execute(&begin).await.map(|()| Vec::new()) }));
        for at in 0..calls.len() {
            steps.push(Box::pin(query(at)));
        }
        steps.push(Box::pin(async { client.batch_execute("COMMIT").await.map(|()| Vec::new()) }));
        let mut answers = all(steps).await?;
        answers.remove(0);
        answers.pop();
        Ok(answers)
    }
}

type Step<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + 'a>>;

/// Starts all in their order, so that their messages go out one behind the other, and waits for all. When one
/// fails, those behind it fail too, so the first error is the cause.
async fn all(mut steps: Vec<Step<'_>>) -> Answers {
    let mut done: Vec<Option<Result<Vec<Row>, tokio_postgres::Error>>> = steps.iter().map(|_| None).collect();
    std::future::poll_fn(move |cx| {
        for (step, done) in steps.iter_mut().zip(&mut done) {
            if done.is_none()
                && let Poll::Ready(answer) = step.as_mut().poll(cx)
            {
                *done = Some(answer);
            }
        }
        if done.iter().all(Option::is_some) {
            Poll::Ready(std::mem::take(&mut done).into_iter().flatten().collect())
        } else {
            Poll::Pending
        }
    })
    .await
}

/// A transaction that is open. Dropping it without COMMIT ends the session.
pub(super) struct Transaction<'a> {
    shared: &'a Shared,
    runtime: &'a Runtime,
    session: &'a mut Session,
}

impl Transaction<'_> {
    fn wait<T>(&self, answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T> {
        match self.runtime.block_on(async { tokio::time::timeout(self.shared.deadline(), answer).await }) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(error::of(&error, Sent::Nothing, self.session.client.is_closed())),
            Err(_) => {
                Err(StoreError::Away(format!("no answer within {} s", self.shared.deadline().as_secs())))
            }
        }
    }

    /// Statements without arguments or answers.
    pub(super) fn batch(&mut self, text: &str) -> Result<()> {
        self.wait(self.session.client.batch_execute(text))
    }

    /// One statement.
    pub(super) fn ask(&mut self, call: &Call<'_>) -> Result<Vec<Row>> {
        let statement = self.shared.statements.get(call.template, &call.parts);
        let bound = call.bound(&statement);
        self.wait(self.session.client.query_typed(&statement.text, &bound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_stay_between_their_bounds() {
        for (failures, full) in [(0, 1_000), (1, 2_000), (2, 4_000), (3, 4_000), (u32::MAX, 4_000)] {
            for _ in 0..1_000 {
                let pause = pause(failures).as_millis();
                assert!((full * 3 / 4..full * 5 / 4).contains(&pause), "{failures}: {pause}");
            }
        }
    }

    #[test]
    fn after_a_failure_one_tries_at_a_time() {
        let gate = Gate::default();
        assert_eq!(gate.enter(), Ok(()));
        let away = StoreError::Away("x".to_owned());
        assert!(gate.failed(&away));
        assert_eq!(gate.enter(), Err(away.clone()), "too early");
        gate.tries().not_before = Some(now());
        assert_eq!(gate.enter(), Ok(()));
        assert_eq!(gate.enter(), Err(away.clone()), "one is trying");
        assert!(!gate.failed(&away));
        gate.tries().not_before = Some(now());
        assert_eq!(gate.enter(), Ok(()));
        assert!(gate.passed());
        assert_eq!((gate.enter(), gate.enter()), (Ok(()), Ok(())));
    }
}
