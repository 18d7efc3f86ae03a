//! What only this back end has: its file, its lock, its errors, its crash.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the doors")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, mpsc};

use evener_actor::definition::{ActorDefinition, Path as EventPath, Subscription};
use evener_actor::event::Event;
use evener_actor::id::{
    ActorName, ActorNo, Boot, Group, GroupHash, Key, QueueId, Seq, Slot, StreamNo, Tenant, TenantNo, Version,
};
use evener_actor::policy::{QueueMode, QueuePolicy};

use super::*;
use crate::batch::{
    Appended, Dedupe, End, InstanceCommit, NewEvent, NewRow, RowEnd, RowOrder, RowsRequest, Ticket, Waiting,
};
use crate::workers::Note;
use crate::{Instances, Queues, Streams, Tenants, Workers};

/// A folder of its own, that goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("evener-sqlite-unit-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("evener.db")
    }

    fn open(&self) -> Sqlite {
        Sqlite::open(self.file(), Options::default()).unwrap()
    }

    fn attach(&self) -> Sqlite {
        Sqlite::attach(self.file(), Options::default()).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A store with an actor, a stream in, a stream out, and a boot.
struct World<'s> {
    store: &'s Sqlite,
    tenant: TenantNo,
    stream: StreamNo,
    out: StreamNo,
    actor: ActorNo,
    boot: Boot,
    lane: u16,
    number: i64,
}

impl<'s> World<'s> {
    fn new(store: &'s Sqlite) -> Self {
        let tenant = store.tenant(&Tenant::default()).unwrap();
        let stream = store.stream(tenant, &"in".parse().unwrap()).unwrap();
        let out = store.stream(tenant, &"out".parse().unwrap()).unwrap();
        let actor = ActorDefinition::new(Self::actor_name());
        let actor = store.deploy(tenant, &[actor]).unwrap().actors[0].no;
        let boot = store.register("test").unwrap();
        Self { store, tenant, stream, out, actor, boot, lane: 0, number: 0 }
    }

    fn actor_name() -> ActorName {
        "counter".parse().unwrap()
    }

    fn ticket(&mut self) -> Ticket {
        self.number += 1;
        Ticket { boot: self.boot, lane: self.lane, number: self.number }
    }

    fn event(&self, key: &str) -> NewEvent {
        let key: Key = key.parse().unwrap();
        NewEvent {
            tenant: self.tenant,
            stream: Some(self.stream),
            event: Event::new("t", "1").with_source("test"),
            dedupe: None,
            rows: vec![NewRow {
                slot: Slot::of(&Tenant::default(), &Self::actor_name(), &key),
                actor: self.actor,
                key,
                group: None,
                is_indexed: false,
                priority: 0,
            }],
            deferred: Vec::new(),
            parked: Vec::new(),
        }
    }

    fn emit(&self, id: &str) -> NewEvent {
        let event = Event::new("out", "1").with_source("test").with_id(id);
        NewEvent { stream: Some(self.out), event, rows: Vec::new(), ..self.event("k") }
    }

    fn append(&mut self, events: &[NewEvent]) -> Result<Vec<Appended>> {
        let ticket = self.ticket();
        let answer = self.store.append(ticket, events);
        if answer.is_err() {
            // It was not done: the next batch has its number.
            self.number -= 1;
        }
        answer
    }

    fn waiting(&self) -> Vec<Waiting> {
        self.store.waiting(0..1024, None, 1_000).unwrap()
    }

    fn rows(&self, waiting: Waiting) -> Vec<QueueId> {
        let request = RowsRequest {
            slot: waiting.slot,
            instance: waiting.instance,
            order: RowOrder::Forward { after: QueueId(0) },
            rows_max: 1_000,
            event_bytes_max: 0,
        };
        let answers = self.store.rows(&[request]).unwrap();
        answers[0].rows.iter().map(|row| row.id).collect()
    }

    /// Claims all that waits, and commits one row of each, with its number as state and one event out.
    fn step(&mut self) -> Result<Vec<(Waiting, Version)>> {
        let claimed = self.store.claim(self.boot, &self.waiting())?;
        let batch: Vec<InstanceCommit> = claimed
            .iter()
            .map(|one| {
                let row = self.rows(Waiting { slot: one.slot, instance: one.instance })[0];
                let after = Version(one.version.0 + 1);
                let events = vec![self.emit(&format!("{}/{after}", one.instance))];
                InstanceCommit {
                    slot: one.slot,
                    instance: one.instance,
                    epoch: one.epoch,
                    version: one.version,
                    version_after: after,
                    state: Some(after.to_string().into()),
                    ends: vec![RowEnd { row, end: End::Done { events, schedules: Vec::new() } }],
                }
            })
            .collect();
        let ticket = self.ticket();
        let report = self.store.commit(ticket, &batch)?;
        let done = batch.iter().zip(report.committed).filter(|(_, is_committed)| *is_committed);
        Ok(done
            .map(|(part, _)| (Waiting { slot: part.slot, instance: part.instance }, part.version_after))
            .collect())
    }

    fn out(&self) -> usize {
        self.store.read_stream(self.out, Seq(0), 1_000_000, usize::MAX).unwrap().len()
    }
}

#[test]
fn a_file_has_one_runtime_and_says_which() {
    let folder = Folder::new();
    let first = folder.open();
    let error = Sqlite::open(folder.file(), Options::default()).unwrap_err();
    let pid = std::process::id();
    assert_eq!(error, StoreError::InUse { what: folder.file().display().to_string(), pid });
    drop(first);
    folder.open();
}

#[test]
fn of_many_that_open_a_new_file_at_once_one_has_it() {
    let folder = Folder::new();
    let start = Barrier::new(10);
    let opened: Vec<Result<Sqlite>> = std::thread::scope(|scope| {
        let open = || {
            start.wait();
            Sqlite::open(folder.file(), Options::default())
        };
        let threads: Vec<_> = (0..10).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(opened.iter().filter(|store| store.is_ok()).count(), 1);
    let refused = |error: &StoreError| matches!(error, StoreError::InUse { .. });
    assert!(opened.iter().filter_map(|store| store.as_ref().err()).all(refused));
}

#[test]
fn many_guests_come_at_once_into_an_empty_file() {
    let folder = Folder::new();
    let start = Barrier::new(10);
    let tenants: Vec<TenantNo> = std::thread::scope(|scope| {
        let come = |_| {
            let (start, folder) = (&start, &folder);
            scope.spawn(move || {
                start.wait();
                folder.attach().tenant(&Tenant::default()).unwrap()
            })
        };
        let threads: Vec<_> = (0..10).map(come).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(tenants, vec![tenants[0]; 10]);
}

#[test]
fn whoever_was_there_before_is_dead() {
    let folder = Folder::new();
    let (boot, rows) = {
        let store = folder.open();
        let mut world = World::new(&store);
        let events = [world.event("a"), world.event("a")];
        world.append(&events).unwrap();
        world.step().unwrap();
        (world.boot, world.rows(world.waiting()[0]))
    };
    let store = folder.open();
    assert!(!store.heartbeat(boot, crate::batch::Load::default()).unwrap());
    let ticket = Ticket { boot, lane: 0, number: 3 };
    assert!(matches!(store.append(ticket, &[]), Err(StoreError::Fenced(_))));
    let world = World::new(&store);
    assert!(world.boot > boot);
    let claimed = store.claim(world.boot, &world.waiting()).unwrap();
    assert!(claimed[0].was_orphan);
    assert_eq!((claimed[0].version, claimed[0].state.as_deref()), (Version(1), Some(&b"1"[..])));
    assert_eq!(world.rows(world.waiting()[0]), rows);
}

#[test]
fn numbers_are_not_given_again_when_their_rows_are_gone() {
    let folder = Folder::new();
    let last = |appended: &[Appended]| match &appended[0] {
        Appended::New { seq, rows } => (*seq, rows[0].row),
        other => panic!("{other:?}"),
    };
    let before = {
        let store = folder.open();
        let mut world = World::new(&store);
        let event = world.event("a");
        let made = last(&world.append(&[event]).unwrap());
        world.step().unwrap();
        // One of them was the emitted event.
        store.prune(Timestamp(i64::MAX), 1_000).unwrap();
        assert_eq!(store.events(&[made.0]).unwrap(), []);
        made
    };
    let store = folder.open();
    let mut world = World::new(&store);
    let event = world.event("a");
    let after = last(&world.append(&[event]).unwrap());
    assert!(after.0.0 == before.0.0 + 2 && after.1.0 == before.1.0 + 1, "{before:?} {after:?}");
}

#[test]
fn a_guest_is_heard_and_its_numbers_do_not_collide() {
    let folder = Folder::new();
    let store = folder.open();
    let mut world = World::new(&store);
    let (told, hear) = mpsc::channel();
    let listening = store.listen(world.boot, Arc::new(move |note| told.send(note).unwrap())).unwrap();
    assert!(listening.is_listening());
    let guest = folder.attach();
    let mut visitor = World::new(&guest);
    for _ in 0..3 {
        let (own, theirs) = (world.event("a"), visitor.event("a"));
        assert!(matches!(world.append(&[own]).unwrap()[0], Appended::New { .. }));
        assert!(matches!(visitor.append(&[theirs]).unwrap()[0], Appended::New { .. }));
    }
    guest.notify(&[Note::Look]).unwrap();
    assert_eq!(hear.recv_timeout(Duration::from_secs(60)), Ok(Note::Look));
    // The runtime itself rings for nobody.
    store.notify(&[Note::Look]).unwrap();
    assert_eq!(world.rows(world.waiting()[0]).len(), 6);
    drop(listening);
    assert!(hear.recv().is_err(), "nothing more is heard");
}

/// FC-063: every transaction that may write begins as a writer.
#[test]
fn nobody_is_told_busy_while_many_write() {
    let folder = Folder::new();
    let store = folder.open();
    let guest = folder.attach();
    std::thread::scope(|scope| {
        for lane in 0..4 {
            let store = &store;
            scope.spawn(move || {
                let mut world = World::new(store);
                world.lane = lane;
                for _ in 0..25 {
                    world.step().unwrap();
                }
            });
        }
        for writer in [&store, &guest] {
            scope.spawn(move || {
                let mut world = World::new(writer);
                for n in 0..50 {
                    let events = [world.event(&format!("k{}", n % 7)), world.event("all")];
                    world.append(&events).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..25 {
                store.prune(Timestamp(0), 100).unwrap();
            }
        });
    });
    let world = World::new(&store);
    let left: usize = world.waiting().into_iter().map(|waiting| world.rows(waiting).len()).sum();
    assert_eq!(left + world.out(), 200, "each event waits or is done");
}

#[test]
fn a_full_disk_is_said_and_nothing_is_lost() {
    let folder = Folder::new();
    let store = folder.open();
    let mut world = World::new(&store);
    let event = world.event("a");
    world.append(std::slice::from_ref(&event)).unwrap();
    let limit = |pages: i64| {
        held(&store.writer).conn.pragma_update(None, "max_page_count", pages).unwrap();
    };
    limit(1);
    let big = NewEvent { event: Event::new("t", vec![b'1'; 300_000]), ..event };
    let error = world.append(std::slice::from_ref(&big)).unwrap_err();
    assert!(matches!(error, StoreError::Full(_)) && error.is_passing(), "{error}");
    assert_eq!(world.rows(world.waiting()[0]).len(), 1);
    limit(1_000_000);
    let appended = world.append(&[big]).unwrap();
    let Appended::New { seq, .. } = appended[0] else { panic!("{appended:?}") };
    assert_eq!(store.events(&[seq]).unwrap()[0].event.data.len(), 300_000);
}

#[test]
fn a_read_only_file_is_said() {
    let folder = Folder::new();
    let store = folder.open();
    let mut world = World::new(&store);
    let event = world.event("a");
    held(&store.writer).conn.pragma_update(None, "query_only", true).unwrap();
    assert!(matches!(world.append(std::slice::from_ref(&event)), Err(StoreError::ReadOnly(_))));
    held(&store.writer).conn.pragma_update(None, "query_only", false).unwrap();
    assert_eq!(world.waiting(), []);
    world.append(&[event]).unwrap();
}

#[test]
fn what_is_no_database_is_said_and_stays() {
    let folder = Folder::new();
    let text = "a letter to a friend, long enough to be mistaken for something else. ".repeat(100);
    std::fs::write(folder.file(), &text).unwrap();
    let error = Sqlite::open(folder.file(), Options::default()).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
    assert_eq!(std::fs::read_to_string(folder.file()).unwrap(), text);
}

#[test]
fn a_damaged_file_is_said() {
    let folder = Folder::new();
    {
        let store = folder.open();
        let mut world = World::new(&store);
        let events: Vec<NewEvent> = (0..200).map(|n| world.event(&format!("k{n}"))).collect();
        world.append(&events).unwrap();
    }
    let mut file = std::fs::OpenOptions::new().write(true).open(folder.file()).unwrap();
    let bytes = file.metadata().unwrap().len();
    // All but the header and the schema's first page.
    file.seek(SeekFrom::Start(4096)).unwrap();
    file.write_all(&vec![0xa5; usize::try_from(bytes).unwrap() - 4096]).unwrap();
    drop(file);
    let error = match Sqlite::open(folder.file(), Options::default()) {
        Err(error) => error,
        Ok(store) => store.waiting(0..1024, None, 10).unwrap_err(),
    };
    assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
}

#[test]
fn no_such_folder_is_said() {
    let error = Sqlite::open("/no/such/folder/evener.db", Options::default()).unwrap_err();
    assert!(matches!(error, StoreError::Config(_)), "{error}");
    let error = Sqlite::attach("/no/such/folder/evener.db", Options::default()).unwrap_err();
    assert!(matches!(error, StoreError::Config(_)), "{error}");
}

/// FC-041: a duplicate is one of something committed.
#[test]
fn the_id_of_a_batch_that_was_refused_is_free() {
    let folder = Folder::new();
    let store = folder.open();
    let mut world = World::new(&store);
    let dedupe = Some(Dedupe { body_hash: 1, window: Duration::from_secs(60) });
    let event = NewEvent { dedupe, ..world.event("new") };
    let mut poison = world.event("new");
    poison.rows[0].actor = ActorNo(999);
    assert!(matches!(world.append(&[event.clone(), poison]), Err(StoreError::Refused(_))));
    // The instance that it made is forgotten, too.
    let appended = world.append(&[event]).unwrap();
    assert!(matches!(appended[0], Appended::New { seq: Seq(1), .. }), "{appended:?}");
    assert_eq!(world.rows(world.waiting()[0]).len(), 1);
    assert!(store.instance(world.actor, &"new".parse().unwrap()).unwrap().is_some());
}

#[test]
fn rows_that_wait_come_into_the_index_of_an_actor_that_gets_one() {
    let folder = Folder::new();
    let store = folder.open();
    let mut world = World::new(&store);
    let mut events = vec![world.event("a"), world.event("a")];
    events[1].rows[0].group = Some("g".parse().unwrap());
    world.append(&events).unwrap();
    let waiting = world.waiting()[0];
    let groups = || {
        let order = RowOrder::Groups { after: None };
        let (slot, instance) = (waiting.slot, waiting.instance);
        let request = RowsRequest { slot, instance, order, rows_max: 10, event_bytes_max: 0 };
        let answer = store.rows(&[request]).unwrap().remove(0);
        let mut groups: Vec<Option<Group>> = answer.rows.into_iter().map(|row| row.group).collect();
        groups.sort();
        groups
    };
    assert_eq!(groups(), []);
    let definition = ActorDefinition::new(World::actor_name())
        .queue(QueuePolicy { mode: QueueMode::Priority, ..QueuePolicy::default() })
        .subscribe(Subscription::new("in".parse().unwrap(), EventPath::new("subject").unwrap()));
    assert!(store.deploy(world.tenant, &[definition]).unwrap().actors[0].is_indexed);
    let group: Group = "g".parse().unwrap();
    assert_ne!(GroupHash::of(&group), GroupHash::NONE);
    assert_eq!(groups(), [None, Some(group)]);
    assert_eq!(world.step().unwrap().len(), 1);
    assert_eq!(world.step().unwrap().len(), 1);
    assert_eq!(groups(), []);
}

#[test]
fn a_stream_is_read_across_the_streams_between() {
    let folder = Folder::new();
    let store = folder.open();
    let mut world = World::new(&store);
    let mut wanted = Vec::new();
    for n in 0..20 {
        let mixed: Vec<NewEvent> = (0..=n % 4)
            .flat_map(|m| {
                [world.event("a"), world.emit("x"), world.emit("y")].into_iter().take(1 + (n + m) % 3)
            })
            .collect();
        for (event, appended) in mixed.iter().zip(world.append(&mixed).unwrap()) {
            let Appended::New { seq, .. } = appended else { panic!("{appended:?}") };
            if event.stream == Some(world.out) {
                wanted.push(seq);
            }
        }
    }
    let read = |after: Seq, max: u32| -> Vec<Seq> {
        let events = store.read_stream(world.out, after, max, usize::MAX).unwrap();
        events.iter().map(|event| event.seq).collect()
    };
    assert_eq!(read(Seq(0), 1_000), wanted);
    for (at, seq) in wanted.iter().enumerate() {
        assert_eq!(read(*seq, 3), wanted[at + 1..].iter().copied().take(3).collect::<Vec<_>>());
        assert_eq!(read(Seq(seq.0 - 1), 1), [*seq]);
    }
}

const CHILD: &str = "EVENER_TEST_SQLITE_FILE";

/// Run by the test below, in a process of its own that is killed.
#[test]
#[ignore = "a part of the test below"]
fn child_that_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let store = Sqlite::open(path, Options::default()).unwrap();
    let mut world = World::new(&store);
    let mut stdout = std::io::stdout().lock();
    let mut appended = 0;
    loop {
        let events: Vec<NewEvent> = (0..8).map(|n| world.event(&format!("k{}", n % 5))).collect();
        world.append(&events).unwrap();
        appended += events.len();
        writeln!(stdout, "\nappended {appended}").unwrap();
        for (waiting, version) in world.step().unwrap() {
            writeln!(stdout, "\ncommitted {} {version}", waiting.instance).unwrap();
        }
    }
}

#[test]
fn what_was_answered_is_there_after_a_kill_and_nothing_is_half() {
    for lines in [3, 50, 400] {
        let folder = Folder::new();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "sqlite::tests::child_that_is_killed"])
            .env(CHILD, folder.file())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut appended = 0;
        let mut committed: BTreeMap<i64, i64> = BTreeMap::new();
        let mut seen = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(std::io::Result::ok) {
            match line.split(' ').collect::<Vec<_>>()[..] {
                // A line that was cut off by the kill has no end, but its number is not greater for it.
                ["appended", count] => appended = appended.max(count.parse().unwrap_or(0)),
                ["committed", instance, version] => {
                    let (Ok(instance), Ok(version)) = (instance.parse(), version.parse()) else { continue };
                    committed.insert(instance, version);
                }
                _ => continue,
            }
            seen += 1;
            if seen == lines {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(seen >= lines && appended > 0, "the child did not come far: {seen} lines");

        let store = folder.open();
        let world = World::new(&store);
        let check: String =
            held(&store.writer).conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
        let came = store.read_stream(world.stream, Seq(0), 1_000_000, usize::MAX).unwrap().len();
        assert!(came >= appended && came % 8 == 0, "a batch of 8 is there or not: {came} of {appended}");
        let mut versions = 0;
        for view in store.instances(world.actor, "k", None, 100).unwrap() {
            let version = view.version.0;
            assert!(version >= committed.get(&view.instance.0).copied().unwrap_or(0), "{view:?}");
            let state = view.state.map(|state| String::from_utf8(state.to_vec()).unwrap());
            assert_eq!(state, (version > 0).then(|| version.to_string()));
            versions += usize::try_from(version).unwrap();
        }
        let left: usize = world.waiting().into_iter().map(|waiting| world.rows(waiting).len()).sum();
        assert_eq!((world.out(), came - left), (versions, versions), "state, emits and ends go together");
    }
}
