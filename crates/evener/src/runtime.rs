//! A runtime that runs.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use evener_actor::context::{answer, decode};
use evener_actor::event::Event;
use evener_actor::id::{ActorName, ActorNo, Key, ScheduleId, Seq, StreamName, Tenant, TenantNo};
use evener_actor::outcome::{Destination, ScheduleChange, When};
use evener_runtime::flow::stream::{Append, AppendDone, To};
use evener_runtime::flow::{commit, ingress};
use evener_runtime::work::{self, Work};
use evener_runtime::worker::RuntimeWorker;
use evener_runtime::{AppendError, Counts};
use evener_scheduler::Scheduler;
use evener_store::batch::{Appended, DeadLetter, Fate, InstanceView, Parked, Schedule, ScheduleAnswer};
use evener_store::workers::Listening;
use serde::de::DeserializeOwned;

use crate::builder::{Builder, DROP_GRACE};

pub use evener_runtime::Error;

/// Runs actors until it is stopped or dropped.
///
/// Calls block their thread till the store has answered, unless their name ends in `_async`; those may be
/// awaited in any async runtime.
pub struct Runtime {
    worker: Arc<RuntimeWorker>,
    scheduler: Arc<Scheduler>,
    tenant: Tenant,
    threads: Mutex<Vec<JoinHandle<()>>>,
    works: Vec<Arc<dyn Work>>,
    listening: Mutex<Option<Box<dyn Listening>>>,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("worker", &self.worker).finish_non_exhaustive()
    }
}

/// An event that is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Its place in the order of all.
    pub seq: Seq,
    /// `Some`: an event with its id was there already, and this has become of it.
    pub duplicate: Option<Fate>,
}

/// An instance as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Its row.
    pub view: InstanceView,
    /// Rows that wait for it, counted up to 1,000.
    pub waiting: u32,
}

impl Runtime {
    /// What a runtime is made of.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn begin(
        worker: Arc<RuntimeWorker>,
        scheduler: Arc<Scheduler>,
        tenant: Tenant,
    ) -> Result<Self, Error> {
        let works = worker.works();
        let threads = works
            .iter()
            .map(|work| {
                let own = Arc::clone(work);
                std::thread::Builder::new()
                    .name(work.name())
                    .spawn(move || work::run(&*own))
                    .expect("a thread for the store")
            })
            .collect();
        let hearer = Arc::downgrade(&worker);
        let hear = move |note| {
            if let Some(worker) = hearer.upgrade() {
                worker.hear(note);
            }
        };
        let listening = worker.store.listen(worker.ownership.boot(), Arc::new(hear))?;
        let listening = Mutex::new(Some(listening));
        Ok(Self { worker, scheduler, tenant, threads: Mutex::new(threads), works, listening })
    }

    /// Appends an event to a stream. When this returns, it is committed.
    ///
    /// # Errors
    /// [`AppendError`]: nothing was appended.
    pub fn append(&self, stream: &str, event: Event) -> Result<Accepted, AppendError> {
        let mut accepted = self.append_all(stream, vec![event])?;
        Ok(accepted.remove(0))
    }

    /// Appends events to a stream, all or none, in order.
    ///
    /// # Errors
    /// [`AppendError`]: nothing was appended.
    pub fn append_all(&self, stream: &str, events: Vec<Event>) -> Result<Vec<Accepted>, AppendError> {
        let (tell, told) = mpsc::sync_channel(1);
        let to = To::Stream(stream_name(stream)?);
        self.begin_append(to, events, Box::new(move |result| drop(tell.send(result))));
        told.recv().unwrap_or(Err(AppendError::Stopping)).and_then(accepted)
    }

    /// Appends events to a stream, all or none, in order, and calls that when they are committed, or are not.
    /// It is called on a thread of the store's: it should only pass the answer on.
    pub fn append_then(
        &self,
        stream: &str,
        events: Vec<Event>,
        then: impl FnOnce(Result<Vec<Accepted>, AppendError>) + Send + 'static,
    ) {
        match stream_name(stream) {
            Ok(stream) => {
                self.begin_append(
                    To::Stream(stream),
                    events,
                    Box::new(|result| then(result.and_then(accepted))),
                );
            }
            Err(error) => then(Err(error)),
        }
    }

    /// [`Runtime::append_all`], to be awaited.
    ///
    /// # Errors
    /// [`AppendError`]: nothing was appended.
    pub async fn append_async(&self, stream: &str, events: Vec<Event>) -> Result<Vec<Accepted>, AppendError> {
        let (give, given) = answer();
        self.append_then(stream, events, move |result| give.give(result));
        given.await.unwrap_or(Err(AppendError::Stopping))
    }

    /// Sends an event to one instance. When this returns, it is committed.
    ///
    /// # Errors
    /// [`AppendError`]: nothing was appended.
    pub fn tell(&self, actor: &str, key: &str, event: Event) -> Result<Accepted, AppendError> {
        let (tell, told) = mpsc::sync_channel(1);
        let to = To::Instance { actor: name(actor)?, key: name(key)?, group: None, priority: 0 };
        self.begin_append(to, vec![event], Box::new(move |result| drop(tell.send(result))));
        let mut accepted = told.recv().unwrap_or(Err(AppendError::Stopping)).and_then(accepted)?;
        Ok(accepted.remove(0))
    }

    fn begin_append(&self, to: To, events: Vec<Event>, done: AppendDone) {
        let bytes_max = self.worker.config.payload_bytes_max;
        for (index, event) in events.iter().enumerate() {
            if let Err(error) = ingress::check(event, bytes_max) {
                done(Err(AppendError::Event { index, error }));
                return;
            }
        }
        self.worker.append(Append { tenant: self.tenant.clone(), to, events, done });
    }

    fn numbers(&self, actor: &ActorName) -> Result<(TenantNo, ActorNo), Error> {
        let store = &*self.worker.store;
        let tenant = self.worker.router.tenant(store, &self.tenant)?;
        let routes = self.worker.router.routes(store, tenant)?;
        let (actor, _) = routes.actor(actor).ok_or_else(|| Error::NoActor(actor.clone()))?;
        Ok((tenant, actor))
    }

    /// An instance: its state, version, owner, and how much waits for it.
    ///
    /// # Errors
    /// [`Error`]
    pub fn instance(&self, actor: &str, key: &str) -> Result<Option<Instance>, Error> {
        let (_, actor) = self.numbers(&ActorName::new(actor)?)?;
        let store = &*self.worker.store;
        let Some(view) = store.instance(actor, &Key::new(key)?)? else { return Ok(None) };
        let waiting = store.depth(view.slot, view.instance, 1_000)?;
        Ok(Some(Instance { view, waiting }))
    }

    /// The committed state of an instance; `None`: it has none (yet).
    ///
    /// # Errors
    /// [`Error`]
    pub fn state<S: DeserializeOwned>(&self, actor: &str, key: &str) -> Result<Option<S>, Error> {
        let Some(bytes) = self.state_bytes(actor, key)? else { return Ok(None) };
        decode(&bytes, "the state").map(Some).map_err(|error| Error::Refused(error.to_string()))
    }

    /// The same as it is stored.
    ///
    /// # Errors
    /// [`Error`]
    pub fn state_bytes(&self, actor: &str, key: &str) -> Result<Option<Bytes>, Error> {
        let (_, actor) = self.numbers(&ActorName::new(actor)?)?;
        Ok(self.worker.store.instance(actor, &Key::new(key)?)?.and_then(|view| view.state))
    }

    /// Instances of an actor, by key, after that one, whose key begins so.
    ///
    /// # Errors
    /// [`Error`]
    pub fn instances(
        &self,
        actor: &str,
        prefix: &str,
        after: Option<&str>,
        instances_max: u32,
    ) -> Result<Vec<InstanceView>, Error> {
        let (_, actor) = self.numbers(&ActorName::new(actor)?)?;
        let after = after.map(Key::new).transpose()?;
        Ok(self.worker.store.instances(actor, prefix, after.as_ref(), instances_max)?)
    }

    /// Dead letters, by number, after that one; of one actor, if one is named.
    ///
    /// # Errors
    /// [`Error`]
    pub fn dead_letters(
        &self,
        actor: Option<&str>,
        after: i64,
        letters_max: u32,
    ) -> Result<Vec<DeadLetter>, Error> {
        let store = &*self.worker.store;
        let tenant = self.worker.router.tenant(store, &self.tenant)?;
        let actor = match actor {
            Some(actor) => Some(self.numbers(&ActorName::new(actor)?)?.1),
            None => None,
        };
        Ok(store.dead_letters(tenant, actor, after, letters_max)?)
    }

    /// Puts dead letters back at the end of their groups. Returns how many were there.
    ///
    /// # Errors
    /// [`Error`]
    pub fn redrive(&self, letters: &[i64]) -> Result<usize, Error> {
        let store = &*self.worker.store;
        let tenant = self.worker.router.tenant(store, &self.tenant)?;
        let rows = store.redrive(tenant, letters)?;
        self.worker.wake(&rows);
        Ok(rows.len())
    }

    /// Drops dead letters. Returns how many were there.
    ///
    /// # Errors
    /// [`Error`]
    pub fn drop_letters(&self, letters: &[i64]) -> Result<u64, Error> {
        let store = &*self.worker.store;
        let tenant = self.worker.router.tenant(store, &self.tenant)?;
        Ok(store.drop_letters(tenant, letters)?)
    }

    /// Events that a subscription wanted and had no place for, by number, after that one.
    ///
    /// # Errors
    /// [`Error`]
    pub fn parked(&self, after: i64, events_max: u32) -> Result<Vec<Parked>, Error> {
        let store = &*self.worker.store;
        let tenant = self.worker.router.tenant(store, &self.tenant)?;
        Ok(store.parked(tenant, after, events_max)?)
    }

    /// Sets a schedule, or replaces it if it is another one; the same again changes nothing.
    ///
    /// # Errors
    /// [`Error`]: an expression or a zone that is none, one that never fires, an actor that nobody knows.
    pub fn schedule(
        &self,
        id: &str,
        when: When,
        to: Destination,
        event: Event,
    ) -> Result<ScheduleAnswer, Error> {
        ingress::check(&event, self.worker.config.payload_bytes_max)
            .map_err(|error| Error::Refused(error.to_string()))?;
        self.change_schedule(&ScheduleChange::Set {
            id: ScheduleId::new(id)?,
            when,
            to,
            event: Box::new(event),
        })
    }

    /// Takes a schedule away, and says whether that was in time.
    ///
    /// # Errors
    /// [`Error`]
    pub fn cancel_schedule(&self, id: &str) -> Result<ScheduleAnswer, Error> {
        self.change_schedule(&ScheduleChange::Cancel { id: ScheduleId::new(id)? })
    }

    fn change_schedule(&self, change: &ScheduleChange) -> Result<ScheduleAnswer, Error> {
        let store = &*self.worker.store;
        let tenant = self.worker.router.tenant(store, &self.tenant)?;
        let routes = self.worker.router.routes(store, tenant)?;
        let write = commit::schedule(&self.worker, &routes, change)?.map_err(Error::Refused)?;
        let answers = store.write_schedules(&[write])?;
        self.worker.sooner();
        Ok(answers[0])
    }

    /// Schedules, by name, after that one.
    ///
    /// # Errors
    /// [`Error`]
    pub fn schedules(&self, after: Option<&str>, schedules_max: u32) -> Result<Vec<Schedule>, Error> {
        let store = &*self.worker.store;
        let tenant = self.worker.router.tenant(store, &self.tenant)?;
        let after = after.map(ScheduleId::new).transpose()?;
        Ok(store.schedules(tenant, after.as_ref(), schedules_max)?)
    }

    /// Pauses an actor, or one instance of it: what runs ends, nothing more starts, events wait. Holds until
    /// [`Runtime::resume`], on all workers and over restarts. Returns whether that changed anything.
    ///
    /// # Errors
    /// [`Error`]
    pub fn pause(&self, actor: &str, key: Option<&str>) -> Result<bool, Error> {
        self.set_paused(actor, key, true)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// [`Error`]
    pub fn resume(&self, actor: &str, key: Option<&str>) -> Result<bool, Error> {
        self.set_paused(actor, key, false)
    }

    fn set_paused(&self, actor: &str, key: Option<&str>, is_paused: bool) -> Result<bool, Error> {
        let (_, actor) = self.numbers(&ActorName::new(actor)?)?;
        let key = key.map(Key::new).transpose()?;
        let is_new = self.worker.store.set_paused(actor, key.as_ref(), is_paused)?;
        self.worker.refresh();
        self.worker.routes_changed();
        Ok(is_new)
    }

    /// What this worker did since it began.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.worker.metrics.read()
    }

    /// The scheduler that runs it.
    #[must_use]
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Waits until no row waits in the store that could run now, looking again and again; at most so long.
    /// For tests and programs that end when their work is done.
    ///
    /// # Errors
    /// [`Error::StillWaiting`] when the time is up; another one when the store cannot be asked.
    pub fn wait_idle(&self, longest: Duration) -> Result<(), Error> {
        let begin = self.worker.clock.now();
        let mut pause = Duration::from_micros(200);
        loop {
            if self.worker.store.waiting(0..evener_actor::id::SLOTS, None, 1)?.is_empty() {
                return Ok(());
            }
            if self.worker.clock.now().saturating_sub(begin) >= longest {
                return Err(Error::StillWaiting(longest));
            }
            let bell = work::Bell::default();
            bell.sleep(Some(pause));
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Stops: nothing more is taken, calls that run may end, for so long; then they are told to. Everything is
    /// committed and given back. Events that wait are there at the next start.
    ///
    /// # Errors
    /// [`Error`], when the store could not be told; what was accepted is safe.
    pub fn stop(self, grace: Duration) -> Result<(), Error> {
        self.end(grace)
    }

    fn end(&self, grace: Duration) -> Result<(), Error> {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        if threads.is_empty() {
            return Ok(());
        }
        self.listening.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.worker.stop();
        let begin = self.worker.clock.now();
        let pause = work::Bell::default();
        let mut was_aborted = false;
        while !self.worker.is_empty() {
            let past = self.worker.clock.now().saturating_sub(begin);
            if past >= grace && !was_aborted {
                was_aborted = true;
                self.worker.abort();
            }
            if past >= grace.saturating_add(self.worker.config.abort_grace * 2) {
                break;
            }
            pause.sleep(Some(Duration::from_millis(2)));
        }
        let left = self.worker.leave();
        self.works.iter().for_each(|work| work.bell().close());
        for thread in threads {
            let _ = thread.join();
        }
        self.scheduler.shutdown(Duration::from_secs(1));
        left.map_err(Error::from)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Err(error) = self.end(DROP_GRACE) {
            tracing::warn!("the store could not be told that this worker stops: {error}");
        }
    }
}

fn stream_name(text: &str) -> Result<StreamName, AppendError> {
    StreamName::new(text).map_err(AppendError::Name)
}

fn name<T: TryFrom<String, Error = evener_actor::id::NameError>>(text: &str) -> Result<T, AppendError> {
    T::try_from(text.to_owned()).map_err(AppendError::Name)
}

fn accepted(reports: Vec<Appended>) -> Result<Vec<Accepted>, AppendError> {
    reports
        .into_iter()
        .enumerate()
        .map(|(index, report)| match report {
            Appended::New { seq, .. } => Ok(Accepted { seq, duplicate: None }),
            Appended::Duplicate { seq, fate } => Ok(Accepted { seq, duplicate: Some(fate) }),
            Appended::Conflict { seq } => Err(AppendError::Conflict { index, seq }),
        })
        .collect()
}
