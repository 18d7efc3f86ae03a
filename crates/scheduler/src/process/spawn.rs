//! The making of a process: a slot, a body in it, a place in a queue.

use std::alloc::Layout;
use std::any::Any;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use crate::memory::{self, Class, Magazines};
use crate::process::slot::Slot;
use crate::process::table::{Cold, ProcessTable, ReplyTo, Start, lies_inline};
use crate::process::{ExitReason, InitContext, Process, ProcessError, Status, StepOutput, Turn, cold_of};
use crate::route::host::{Engine, Hub};
use crate::route::names::{Hold, Supervised};
use crate::sync::{Relaxed, Release};
use crate::worker::Worker;
use crate::{LocalPid, Payload, Pid, clock};

/// Why a process was not spawned. Nothing of it is left; its value was dropped.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The type has no such method.
    #[error("{type_name} has no method `{method}`; it has {known:?}")]
    UnknownMethod {
        /// The process type.
        type_name: &'static str,
        /// What was asked for.
        method: String,
        /// What it offers.
        known: &'static [&'static str],
    },
    /// The host runs as many processes as it may.
    #[error("host `{host}` already runs its {max} processes")]
    HostFull {
        /// The host's name.
        host: String,
        /// Its limit.
        max: usize,
    },
    /// A lifecycle hook said no.
    #[error("refused by the on_start hook: {0}")]
    Refused(ProcessError),
    /// `init` failed (only from `spawn_wait`).
    #[error("init failed: {0}")]
    Init(ProcessError),
    /// The name is the empty text, by which nobody can be called.
    #[error("the name of a process must not be empty")]
    EmptyName,
    /// The name is taken.
    #[error("the name `{name}` belongs to process {owner}")]
    NameTaken {
        /// The name.
        name: String,
        /// Who has it.
        owner: Pid,
    },
    /// The scheduler is shutting down.
    #[error("the scheduler is closing")]
    Closing,
    /// There is no such host.
    #[error("no host is called `{0}`")]
    UnknownHost(String),
    /// The system gave no memory, or there are more than four thousand million processes in this program.
    #[error("no room for another process: out of memory, or of process numbers")]
    Exhausted,
    /// It would wait on a worker for a worker.
    #[error("a worker cannot wait for a spawn; use `spawn`, and hear of a failed init as an event")]
    OnWorker,
}

/// How a process is to begin.
#[derive(Debug, Default)]
pub struct SpawnOptions {
    pub(crate) method: String,
    pub(crate) input: Payload,
    pub(crate) name: Option<String>,
    pub(crate) linked: bool,
    pub(crate) monitored: bool,
    pub(crate) supervised: Option<Hold>,
    pub(crate) result_to: Option<ReplyTo>,
}

impl SpawnOptions {
    /// The unnamed method, no input, no name.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Which entry point.
    #[must_use]
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.method = method.into();
        self
    }

    /// What `init` gets.
    #[must_use]
    pub fn input<T: Send + 'static>(mut self, input: T) -> Self {
        self.input = Payload::new(input);
        self
    }

    /// Registers this name for it before it runs.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Links it to the spawning process before it runs. Spawned by a thread it has nobody to be linked to,
    /// and this does nothing.
    #[must_use]
    pub fn linked(mut self) -> Self {
        self.linked = true;
        self
    }

    /// The spawning process hears of its end. Spawned by a thread, this does nothing.
    #[must_use]
    pub fn monitored(mut self) -> Self {
        self.monitored = true;
        self
    }

    /// What its mailbox still holds at its end waits, with the name, for a successor, which the spawning
    /// process will make.
    pub(crate) fn supervised(mut self, hold: Hold) -> Self {
        self.supervised = Some(hold);
        self
    }

    /// Its result goes there.
    pub(crate) fn result_to(mut self, to: ReplyTo) -> Self {
        self.result_to = Some(to);
        self
    }

    fn is_special(&self) -> bool {
        self.name.is_some() || self.linked || self.monitored || self.result_to.is_some()
    }
}

/// The static of a process type.
pub(crate) struct TableFor<P>(PhantomData<P>);

impl<P: Process> TableFor<P> {
    pub(crate) const TABLE: &'static ProcessTable = &ProcessTable {
        step: Self::step,
        init: Some(Self::init),
        close: Some(Self::close),
        drop: drop_fn::<P>(),
        layout: Layout::new::<P>(),
        inline: lies_inline(Layout::new::<P>()),
        type_name: std::any::type_name::<P>,
        survives_panics: false,
    };

    unsafe fn step(body: *mut u8, turn: &mut Turn<'_>) -> Result<(), ProcessError> {
        // SAFETY: the caller runs a process of this type, whose body lies there.
        unsafe { (*body.cast::<P>()).step(&mut turn.events, &mut turn.out) }
    }

    unsafe fn init(
        body: *mut u8,
        cx: &InitContext,
        method: &str,
        input: Payload,
    ) -> Result<(), ProcessError> {
        // SAFETY: as in `step`.
        unsafe { (*body.cast::<P>()).init(cx, method, input) }
    }

    unsafe fn close(body: *mut u8) {
        // SAFETY: as in `step`.
        unsafe { (*body.cast::<P>()).close() }
    }
}

/// Drops a body in place, if its type has anything to drop.
pub(crate) const fn drop_fn<P>() -> Option<unsafe fn(*mut u8)> {
    unsafe fn drop_in_place<P>(body: *mut u8) {
        // SAFETY: the caller owns the body and does not use it again.
        unsafe { body.cast::<P>().drop_in_place() }
    }
    if std::mem::needs_drop::<P>() { Some(drop_in_place::<P>) } else { None }
}

/// A closure as a process: it runs once and is done.
pub(crate) struct OnceTable<F>(PhantomData<F>);

impl<F: FnOnce(&mut StepOutput<'_>) + Send + 'static> OnceTable<F> {
    pub(crate) const TABLE: &'static ProcessTable = &ProcessTable {
        step: Self::step,
        init: None,
        close: None,
        drop: drop_fn::<F>(),
        layout: Layout::new::<F>(),
        inline: lies_inline(Layout::new::<F>()),
        type_name: std::any::type_name::<F>,
        survives_panics: false,
    };

    unsafe fn step(body: *mut u8, turn: &mut Turn<'_>) -> Result<(), ProcessError> {
        // The body is used up from here on, also when the closure panics, and whatever status it sets.
        struct UsedUp<'a, 'b>(&'a mut Turn<'b>);
        impl Drop for UsedUp<'_, '_> {
            #[inline(always)]
            fn drop(&mut self) {
                self.0.out.status = Status::Consumed;
            }
        }
        let used_up = UsedUp(turn);
        if const { has_own_room(&Layout::new::<F>()) } {
            // Called where it lies, however large it is: a thread's stack need not have room for it.
            used_up.0.out.slot.body.with_mut(|body| {
                // SAFETY: the pointer in the slot is this process's, whose runner this is; from here on the
                // box below owns what it points to, and `free_body` finds nothing.
                unsafe { body.cast::<*mut u8>().write(ptr::null_mut()) };
            });
            // SAFETY: `place_body` got the room from the global allocator for an `F` and put one there;
            // `Consumed` keeps it from being dropped or stepped again.
            let act: Box<dyn FnOnce(&mut StepOutput<'_>)> = unsafe { Box::from_raw(body.cast::<F>()) };
            act(&mut used_up.0.out);
            return Ok(());
        }
        // SAFETY: the caller runs a process of this type, whose body lies there; `Consumed` keeps it from
        // being dropped or stepped again.
        let act = unsafe { body.cast::<F>().read() };
        act(&mut used_up.0.out);
        Ok(())
    }
}

/// Does a body of this layout get an allocation of its own?
const fn has_own_room(layout: &Layout) -> bool {
    !lies_inline(*layout) && Class::of_body(*layout).is_none() && layout.size() != 0
}

/// Where the body of a process lies. The caller holds the process `RUNNING`, or owns its `FREE` slot.
#[inline(always)]
pub(crate) fn body_of(slot: &Slot, table: &ProcessTable) -> *mut u8 {
    slot.body.with_mut(|body| {
        if table.inline {
            body.cast::<u8>()
        } else {
            // SAFETY: `place_body` wrote the pointer there.
            unsafe { body.cast::<*mut u8>().read() }
        }
    })
}

/// Makes room for a body and lets `write` fill it.
#[inline(always)]
pub(crate) fn place_body(
    m: &Magazines,
    slot: &Slot,
    table: &ProcessTable,
    write: impl FnOnce(*mut u8),
) -> Result<(), memory::Exhausted> {
    if !table.inline {
        let (pointer, cell) = memory::room(m, table.layout)?;
        slot.body.with_mut(|body| {
            // SAFETY: two words, ours: the slot is FREE or RUNNING and held by the caller.
            unsafe {
                body.cast::<*mut u8>().write(pointer.as_ptr());
                body.cast::<u64>().add(1).write(u64::from(cell));
            }
        });
    }
    write(body_of(slot, table));
    Ok(())
}

/// Gives the room of a body back; the value in it was dropped or moved out.
#[inline]
pub(crate) fn free_body(m: &Magazines, slot: &Slot, table: &ProcessTable) {
    if table.inline {
        return;
    }
    let (pointer, cell) = slot.body.with_mut(|body| {
        // SAFETY: `place_body` wrote both words; the caller holds the process.
        unsafe { (body.cast::<*mut u8>().read(), body.cast::<u64>().add(1).read() as u32) }
    });
    // The step of a large closure takes the room along.
    if let Some(pointer) = NonNull::new(pointer) {
        // SAFETY: from `memory::room` in `place_body`, with this layout.
        unsafe { memory::give_back(m, table.layout, pointer, cell) };
    }
}

/// Who spawns, and where the newcomer waits for its first turn.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    /// A step on this worker; the parent is the process it runs.
    Worker(&'a Worker, Option<LocalPid>),
    /// A thread that is no worker of this host.
    Outside(&'a Engine),
}

impl<'a> Place<'a> {
    fn engine(&self) -> &'a Engine {
        match self {
            Place::Worker(worker, _) => worker.engine(),
            Place::Outside(engine) => engine,
        }
    }
    fn hub(&self) -> &'static Hub {
        match self {
            Place::Worker(worker, _) => worker.hub(),
            Place::Outside(engine) => engine.hub,
        }
    }
    #[inline(always)]
    pub(crate) fn with_magazines<R>(&self, act: impl FnOnce(&Magazines) -> R) -> R {
        match self {
            Place::Worker(worker, _) => act(&worker.magazines),
            Place::Outside(_) => crate::worker::with_magazines(act),
        }
    }
}

/// Makes a process of any table and queues it. `value` is moved into the body.
///
/// On `Err` the value was dropped, outside of any lock.
#[inline]
pub(crate) fn create<P>(
    place: Place<'_>,
    table: &'static ProcessTable,
    value: P,
    start: Option<Start>,
    options: Option<&SpawnOptions>,
    waiter: Option<ReplyTo>,
) -> Result<LocalPid, SpawnError> {
    let hub = place.hub();
    if !hub.is_open() {
        return Err(SpawnError::Closing);
    }
    if options.is_some_and(|options| options.name.as_deref() == Some("")) {
        return Err(SpawnError::EmptyName);
    }
    let engine = place.engine();
    if engine.checks_births {
        engine.admit_birth()?;
    }
    let made = place.with_magazines(|m| {
        let number = m.alloc(Class::Slot).map_err(|_| SpawnError::Exhausted)?;
        let slot = memory::slot(number);
        let mut value = Some(value);
        let placed = place_body(m, slot, table, |body| {
            let value = value.take().expect("the body is written once");
            // SAFETY: `place_body` gives room for a value of the table's layout, which is `P`'s.
            unsafe { body.cast::<P>().write(value) };
        });
        if placed.is_err() {
            m.free(Class::Slot, number);
            return Err(SpawnError::Exhausted);
        }
        Ok((number, slot))
    });
    let (number, slot) = match made {
        Ok(made) => made,
        Err(error) => {
            engine.unadmit_birth();
            return Err(error);
        }
    };
    let generation = slot.begin();
    // Release: pairs with the fence of a reader that sweeps over slots, see `stats::for_each_process`.
    slot.host.store(hub.id, Release);
    slot.steps.store(0, Relaxed);
    slot.born.store((clock::coarse_nanos() / 100_000_000) as u32, Relaxed);
    slot.inbox.store(0, Relaxed);
    slot.table.store(ptr::from_ref(table).cast_mut(), Relaxed);
    let cold = if start.is_some() || waiter.is_some() {
        let mut cold = Box::new(Cold::new());
        cold.start = start;
        cold.waiters.extend(waiter);
        Box::into_raw(cold)
    } else {
        ptr::null_mut()
    };
    // SAFETY: the slot is FREE and ours.
    slot.cold.with_mut(|place| unsafe { *place = cold });
    let pid = LocalPid::new(number, generation).expect("slot numbers begin at 1");
    if options.is_some_and(SpawnOptions::is_special) || engine.hooks.is_some() {
        return create_specially(place, slot, pid, table, options);
    }
    match place {
        Place::Worker(worker, _) => {
            worker.slot_worker(slot);
            slot.publish(generation, None);
            worker.note_birth();
            worker.queue_spawned(number);
        }
        Place::Outside(engine) => {
            slot.worker.store(0, Relaxed);
            hub.enqueue_birth(engine, number, || slot.publish(generation, None)).map_err(|()| {
                undo(place, slot, number, table);
                SpawnError::Closing
            })?;
        }
    }
    Ok(pid)
}

/// The rest of [`create`] for a process with a name, a link, a monitor, or hooks: it is published as held
/// by this thread, so that tables can name it though nobody can run it yet, and queued when all is set.
#[cold]
fn create_specially(
    place: Place<'_>,
    slot: &'static Slot,
    pid: LocalPid,
    table: &'static ProcessTable,
    options: Option<&SpawnOptions>,
) -> Result<LocalPid, SpawnError> {
    let engine = place.engine();
    let full = Pid::new(0, engine.hub.id, pid);
    let parent = match place {
        Place::Worker(_, parent) => parent,
        Place::Outside(_) => None,
    };
    slot.worker.store(0, Relaxed);
    let started = match &engine.hooks {
        None => Ok(()),
        Some(hooks) => match catch_unwind(AssertUnwindSafe(|| hooks.on_start(full, (table.type_name)()))) {
            Ok(answer) => answer,
            Err(payload) => Err(contained(payload)),
        },
    };
    if let Err(error) = started {
        undo(place, slot, pid.slot(), table);
        return Err(SpawnError::Refused(error));
    }
    let parent = parent.map(|parent| Pid::new(0, engine.hub.id, parent));
    let born = engine.hub.enqueue_special(engine, place, pid.slot(), || {
        let publish = |held| {
            // What waited for the name comes first: the newborn finds it as what it has taken already.
            if held != 0 {
                // SAFETY: the slot is FREE and ours.
                unsafe { cold_of(slot) }.rest = held;
            }
            slot.publish_held(pid.generation());
        };
        match options.and_then(|options| options.name.as_deref()) {
            None => publish(0),
            Some(name) => {
                let supervised = parent
                    .zip(options.and_then(|options| options.supervised))
                    .map(|(by, hold)| Supervised { by, hold });
                engine
                    .names
                    .claim_for_birth(name, full, supervised, publish)
                    .map_err(|owner| SpawnError::NameTaken { name: name.to_owned(), owner })?;
            }
        }
        if let Some(to) = options.and_then(|options| options.result_to) {
            crate::route::links::await_result(pid, to);
        }
        if let (Some(parent), Some(options)) = (parent, options) {
            if options.linked {
                crate::route::links::link(parent, full).expect("the parent runs, the child is held here");
            }
            if options.monitored {
                crate::route::links::monitor(parent, full);
            }
        }
        Ok(())
    });
    match born {
        Ok(()) => Ok(pid),
        Err(error) => {
            undo(place, slot, pid.slot(), table);
            if let Some(hooks) = &engine.hooks {
                // Whoever counts the two hooks against each other comes out even.
                let reason = ExitReason::InitFailed(ProcessError::new(&error));
                let _ = contain(|| hooks.on_complete(full, &reason, None));
            }
            Err(error)
        }
    }
}

/// Takes a prepared, never published process apart.
#[cold]
fn undo(place: Place<'_>, slot: &'static Slot, number: u32, table: &'static ProcessTable) {
    let body = body_of(slot, table);
    if let Some(drop) = table.drop {
        // SAFETY: the body was written and never used; it is dropped once, here.
        let _ = contain(|| unsafe { drop(body) });
    }
    let cold = slot.cold.with_mut(|place| {
        // SAFETY: the slot is FREE and ours.
        unsafe { std::mem::replace(&mut *place, ptr::null_mut()) }
    });
    if !cold.is_null() {
        // SAFETY: made by `Box::into_raw` in `create`.
        let _ = contain(|| drop(unsafe { Box::from_raw(cold) }));
    }
    let engine = place.engine();
    // A hook has seen the PID: it is not given out a second time.
    let reusable = engine.hooks.is_none() || slot.abandon(engine.config.generation_max);
    place.with_magazines(|m| {
        free_body(m, slot, table);
        if reusable {
            m.free(Class::Slot, number);
        }
    });
    engine.unadmit_birth();
}

/// Runs user code whose panic must not spread. The panic, if any.
pub(crate) fn contain<R>(act: impl FnOnce() -> R) -> Result<R, ProcessError> {
    catch_unwind(AssertUnwindSafe(act)).map_err(contained)
}

/// What a panic leaves, as an error; the panic's payload is dropped here, and its drop is contained too. The
/// one place where panics are counted, if it is a worker who contains them.
#[cold]
pub(crate) fn contained(payload: Box<dyn Any + Send>) -> ProcessError {
    if let Some(worker) = crate::worker::current() {
        worker.count(|counters| &counters.panics);
    }
    let text = super::panic_text(&*payload);
    // A payload whose drop panics again: its second panic is leaked, as a drop of that one may panic too.
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    ProcessError::new(text)
}

pub(super) fn check_method<P: Process>(method: &str) -> Result<(), SpawnError> {
    let known = P::methods();
    if known.is_empty() || known.contains(&method) {
        return Ok(());
    }
    let type_name = std::any::type_name::<P>();
    Err(SpawnError::UnknownMethod { type_name, method: method.to_owned(), known })
}

/// Spawns for the process `parent` that `worker` runs.
pub(crate) fn spawn_on_worker<P: Process>(
    worker: &Worker,
    parent: LocalPid,
    process: P,
    options: SpawnOptions,
) -> Result<Pid, SpawnError> {
    spawn_process(Place::Worker(worker, Some(parent)), process, options, None)
}

/// Spawns a closure for the process `parent` that `worker` runs.
#[inline]
pub(crate) fn spawn_once_on_worker<F>(worker: &Worker, parent: LocalPid, act: F) -> Result<Pid, SpawnError>
where
    F: FnOnce(&mut StepOutput<'_>) + Send + 'static,
{
    let place = Place::Worker(worker, Some(parent));
    let pid = create(place, OnceTable::<F>::TABLE, act, None, None, None)?;
    Ok(Pid::new(0, worker.host(), pid))
}

/// Spawns a [`Process`] anywhere.
pub(crate) fn spawn_process<P: Process>(
    place: Place<'_>,
    process: P,
    mut options: SpawnOptions,
    waiter: Option<ReplyTo>,
) -> Result<Pid, SpawnError> {
    check_method::<P>(&options.method)?;
    let host = place.hub().id;
    let parent = match place {
        Place::Worker(_, parent) => parent.map(|parent| Pid::new(0, host, parent)),
        Place::Outside(_) => None,
    };
    let start = Start {
        method: std::mem::take(&mut options.method),
        input: std::mem::take(&mut options.input),
        parent,
    };
    let pid = create(place, TableFor::<P>::TABLE, process, Some(start), Some(&options), waiter)?;
    Ok(Pid::new(0, host, pid))
}

/// Room for a body of at most 16 bytes in the slot.
const _: () = assert!(size_of::<[MaybeUninit<u64>; 2]>() == 16);
