//! Sockets under stress: connections between futures on several schedulers that end in every way at every
//! moment. What must hold, whatever happens:
//! - what is read is the beginning of what was written, in order; and all of it, up to the end, where both sides
//!   were to go in good order and nobody disturbed them, and then there is no error either;
//! - each wait has an end, by data, the end of the stream, an error, a limit of time or an abort;
//! - at the end nothing is registered, nobody waits, no timer is armed, and no descriptor is open.
//!
//! Time and seed as for the other stress test.

use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::Poll;
use std::time::{Duration, Instant};

use evener_scheduler::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use evener_scheduler::task::{self, JoinError, JoinHandle};
use evener_scheduler::{Scheduler, time};

use crate::processes::{Spin, span_and_seed};
use crate::support::{LIMIT, Rng, glance, quiet_panics, until};

const CLIENT: usize = 0;
const SERVER: usize = 1;

/// Byte number `at` of what `side` of a connection writes.
fn byte(connection: u64, side: usize, at: u64) -> u8 {
    let place = at.wrapping_mul(0x9E37_79B9).wrapping_add(at >> 8);
    (place ^ (connection * 2 + side as u64).wrapping_mul(0x85EB_CA6B)) as u8
}

// ------------------------------------------------------------------ the world of a round

struct World {
    schedulers: Vec<Spin<Option<Arc<Scheduler>>>>,
    /// Where each scheduler listens.
    doors: Vec<Spin<Option<(SocketAddr, PathBuf)>>>,
    connections: Vec<Connection>,
    handles: Spin<Vec<JoinHandle<()>>>,
    faults: Spin<Vec<String>>,
    totals: Totals,
}

#[derive(Default)]
struct Connection {
    /// One of its tasks is being aborted, or one of its schedulers ends.
    is_disturbed: AtomicBool,
    /// Both sides were read to the end, with all that there was.
    whole: AtomicU64,
}

#[derive(Default)]
struct Totals {
    connections: AtomicU64,
    bytes: AtomicU64,
    whole: AtomicU64,
    timeouts: AtomicU64,
    errors: AtomicU64,
    aborts: AtomicU64,
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, SeqCst);
}

impl World {
    fn fault(&self, text: String) {
        self.faults.with(|faults| faults.push(text));
    }

    /// Runs a future on one of the schedulers, if that is still there.
    fn spawn(
        &self,
        number: usize,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> Option<JoinHandle<()>> {
        let scheduler = self.schedulers[number].with(|scheduler| scheduler.clone());
        scheduler.map(|scheduler| scheduler.spawn_task(future))
    }

    /// As [`Self::spawn`]; the round waits for it.
    fn spawn_kept(&self, number: usize, future: impl Future<Output = ()> + Send + 'static) {
        if let Some(handle) = self.spawn(number, future) {
            self.handles.with(|handles| handles.push(handle));
        }
    }

    fn is_disturbed(&self, connection: u64) -> bool {
        self.connections[connection as usize].is_disturbed.load(SeqCst)
    }
}

// ------------------------------------------------------------------ what a side is to do

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    /// Writes all, says so, and reads to the end.
    InGoodOrder,
    /// Closes when so much is written.
    Closes(u64),
    /// The same, by a reset.
    Resets(u64),
    /// Never reads, and goes after so many microseconds.
    NeverReads(u64),
    /// Goes when a read takes longer than so many microseconds.
    LosesPatience(u64),
}

/// What one side is to do; both sides know both plans.
#[derive(Debug, Clone, Copy)]
struct Plan {
    bytes: u64,
    chunk_max: u64,
    buf_len: u64,
    leaves: Leaves,
    /// Reads and writes in tasks of their own.
    is_apart: bool,
    /// Takes the socket to another scheduler.
    moves: bool,
    seed: u64,
}

impl Plan {
    fn of(seed: u64, connection: u64, side: usize) -> Self {
        let mut rng = Rng::new(seed ^ (connection * 2 + side as u64 + 1).wrapping_mul(0xD134_2543_DE82_EF95));
        rng.next();
        let bytes = match rng.below(8) {
            0 => 0,
            1 | 2 => rng.below(400_000),
            _ => rng.below(5000),
        };
        let leaves = match rng.below(12) {
            0 => Leaves::Closes(rng.below(bytes + 1)),
            1 => Leaves::Resets(rng.below(bytes + 1)),
            2 => Leaves::NeverReads(rng.below(10_000)),
            3 => Leaves::LosesPatience(rng.below(2000)),
            _ => Leaves::InGoodOrder,
        };
        Self {
            bytes,
            chunk_max: 1 + rng.below(30_000),
            buf_len: 1 + rng.below(20_000),
            leaves,
            is_apart: rng.below(3) == 0,
            moves: rng.below(4) == 0,
            seed: rng.next(),
        }
    }
}

// ------------------------------------------------------------------ streams

/// A stream of either kind.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! either {
    ($self:ident, $stream:ident => $act:expr) => {
        match $self {
            Stream::Tcp($stream) => $act,
            Stream::Unix($stream) => $act,
        }
    };
}

impl Stream {
    async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        either!(self, stream => stream.read(buf).await)
    }
    async fn write(&self, buf: &[u8]) -> io::Result<usize> {
        either!(self, stream => stream.write(buf).await)
    }
    async fn readable(&self) -> io::Result<()> {
        either!(self, stream => stream.readable().await)
    }
    async fn writable(&self) -> io::Result<()> {
        either!(self, stream => stream.writable().await)
    }
    fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        either!(self, stream => stream.try_read(buf))
    }
    fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        either!(self, stream => stream.try_write(buf))
    }
    fn set_read_limit(&self, limit: Option<Duration>) {
        either!(self, stream => stream.set_read_limit(limit));
    }
    fn shutdown(&self, how: Shutdown) {
        // It fails if the peer has gone.
        let _ = either!(self, stream => stream.shutdown(how));
    }
    /// The drop is to be a reset.
    fn reset(&self) {
        if let Self::Tcp(stream) = self {
            let _ = stream.set_linger(Some(Duration::ZERO));
        }
    }
    /// Out of one scheduler's poller.
    fn into_std(self) -> Moving {
        match self {
            Self::Tcp(stream) => Moving::Tcp(stream.into_std()),
            Self::Unix(stream) => Moving::Unix(stream.into_std()),
        }
    }
}

/// A stream on its way to another scheduler.
enum Moving {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Moving {
    fn arrive(self) -> io::Result<Stream> {
        Ok(match self {
            Self::Tcp(stream) => Stream::Tcp(TcpStream::from_std(stream)?),
            Self::Unix(stream) => Stream::Unix(UnixStream::from_std(stream)?),
        })
    }
}

// ------------------------------------------------------------------ one side of a connection

/// One side, with all that its tasks need.
struct Side {
    world: Arc<World>,
    stream: Stream,
    connection: u64,
    side: usize,
    mine: Plan,
    theirs: Plan,
}

impl Side {
    /// Must all that the peer writes come, and then the end?
    fn expects_all(&self) -> bool {
        let in_order = |plan: Plan| plan.leaves == Leaves::InGoodOrder;
        in_order(self.mine) && in_order(self.theirs) && !self.world.is_disturbed(self.connection)
    }

    fn fault(&self, text: &str) {
        let Self { connection, side, mine, theirs, .. } = self;
        let kind = if matches!(self.stream, Stream::Tcp(_)) { "tcp" } else { "unix" };
        self.world
            .fault(format!("{kind} connection {connection}, side {side}: {text}; {mine:?}, {theirs:?}"));
    }

    fn failed(&self, what: &str, got: u64, error: &io::Error) {
        add(&self.world.totals.errors, 1);
        if self.expects_all() {
            self.fault(&format!("{what} at byte {got}: {error}"));
        }
    }

    /// Reads to the end. `false`: it is time to go.
    async fn reads(&self) -> bool {
        if let Leaves::NeverReads(micros) = self.mine.leaves {
            time::sleep(Duration::from_micros(micros)).await;
            return false;
        }
        let patience = match self.mine.leaves {
            Leaves::LosesPatience(micros) => Some(Duration::from_micros(micros)),
            _ => None,
        };
        self.stream.set_read_limit(patience);
        let mut rng = Rng::new(self.mine.seed ^ 1);
        let mut buf = vec![0; self.mine.buf_len as usize];
        let mut got = 0;
        loop {
            let read = if patience.is_some() {
                self.stream.read(&mut buf).await
            } else {
                self.read_in_some_way(&mut rng, &mut buf).await
            };
            match read {
                Ok(0) => break,
                Ok(len) => {
                    for &found in &buf[..len] {
                        if found != byte(self.connection, 1 - self.side, got) {
                            self.fault(&format!("byte {got} is {found}"));
                            return false;
                        }
                        got += 1;
                    }
                    add(&self.world.totals.bytes, len as u64);
                }
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    add(&self.world.totals.timeouts, 1);
                    if patience.is_none() {
                        self.fault("a read without a limit timed out");
                    }
                    return false;
                }
                Err(error) => {
                    self.failed("a read", got, &error);
                    return false;
                }
            }
        }
        if got > self.theirs.bytes {
            self.fault(&format!("{got} bytes came"));
        }
        if self.expects_all() {
            if got == self.theirs.bytes {
                add(&self.world.connections[self.connection as usize].whole, 1);
            } else {
                self.fault(&format!("the end came after {got} bytes"));
            }
        }
        true
    }

    async fn read_in_some_way(&self, rng: &mut Rng, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match rng.below(8) {
                0 => {
                    if let Some(read) = glance(self.stream.read(buf)).await {
                        return read;
                    }
                    task::yield_now().await;
                }
                1 => {
                    let limit = Duration::from_micros(rng.below(300));
                    if let Ok(read) = time::timeout(limit, self.stream.read(buf)).await {
                        return read;
                    }
                }
                2 | 3 => {
                    self.stream.readable().await?;
                    match self.stream.try_read(buf) {
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        other => return other,
                    }
                }
                _ => return self.stream.read(buf).await,
            }
        }
    }

    /// Writes all, and says that it is all. `false`: it is time to go.
    async fn writes(&self) -> bool {
        let until = match self.mine.leaves {
            Leaves::Closes(at) | Leaves::Resets(at) => at,
            _ => self.mine.bytes,
        };
        let mut rng = Rng::new(self.mine.seed ^ 2);
        let mut written = 0;
        while written < until {
            let len = (1 + rng.below(self.mine.chunk_max)).min(until - written);
            let bytes: Vec<u8> =
                (written..written + len).map(|at| byte(self.connection, self.side, at)).collect();
            match self.write_in_some_way(&mut rng, &bytes).await {
                Ok(len) => written += len as u64,
                Err(error) => {
                    self.failed("a write", written, &error);
                    // What the peer wrote before may still be read.
                    return true;
                }
            }
        }
        if matches!(self.mine.leaves, Leaves::Closes(_) | Leaves::Resets(_)) {
            return false;
        }
        self.stream.shutdown(Shutdown::Write);
        true
    }

    async fn write_in_some_way(&self, rng: &mut Rng, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rng.below(8) {
                0 => {
                    if let Some(written) = glance(self.stream.write(bytes)).await {
                        return written;
                    }
                    task::yield_now().await;
                }
                1 => {
                    let limit = Duration::from_micros(rng.below(300));
                    if let Ok(written) = time::timeout(limit, self.stream.write(bytes)).await {
                        return written;
                    }
                }
                2 | 3 => {
                    self.stream.writable().await?;
                    match self.stream.try_write(bytes) {
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        other => return other,
                    }
                }
                _ => return self.stream.write(bytes).await,
            }
        }
    }

    /// Both halves in one task, till both are done or one wants to go.
    async fn runs_in_one(&self) {
        let (mut reads, mut writes) = (pin!(self.reads()), pin!(self.writes()));
        let (mut has_read, mut has_written) = (false, false);
        poll_fn(|cx| {
            if !has_read && let Poll::Ready(stays) = reads.as_mut().poll(cx) {
                has_read = true;
                if !stays {
                    return Poll::Ready(());
                }
            }
            if !has_written && let Poll::Ready(stays) = writes.as_mut().poll(cx) {
                has_written = true;
                if !stays {
                    return Poll::Ready(());
                }
            }
            if has_read && has_written { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    async fn runs(self) {
        if !self.mine.is_apart {
            self.runs_in_one().await;
            if matches!(self.mine.leaves, Leaves::Resets(_)) {
                self.stream.reset();
            }
            return;
        }
        let mut rng = Rng::new(self.mine.seed ^ 3);
        let side = Arc::new(self);
        let count = side.world.schedulers.len() as u64;
        let (mut reader, mut writer) = (Half::of(&side), Half::of(&side));
        side.world.spawn_kept(rng.below(count) as usize, async move {
            let stays = reader.side.reads().await;
            reader.done(stays);
        });
        side.world.spawn_kept(rng.below(count) as usize, async move {
            let stays = writer.side.writes().await;
            writer.done(stays);
        });
    }

    /// Here, or on another scheduler.
    async fn runs_somewhere(self) {
        if !self.mine.moves {
            return self.runs().await;
        }
        let Self { world, stream, connection, side, mine, theirs } = self;
        let number = (mine.seed >> 20) as usize % world.schedulers.len();
        let moving = stream.into_std();
        let there = Arc::clone(&world);
        world.spawn_kept(number, async move {
            match moving.arrive() {
                Ok(stream) => Self { world: there, stream, connection, side, mine, theirs }.runs().await,
                Err(error) if there.is_disturbed(connection) => drop(error),
                Err(error) => there.fault(format!("connection {connection} does not arrive: {error}")),
            }
        });
    }
}

/// One half of a side in a task of its own. If it goes, or is dropped with its scheduler, the other half and the
/// peer hear of it: else two readers might wait for each other for ever.
struct Half {
    side: Arc<Side>,
    stays: bool,
}

impl Half {
    fn of(side: &Arc<Side>) -> Self {
        Self { side: Arc::clone(side), stays: false }
    }

    fn done(&mut self, stays: bool) {
        self.stays = stays;
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        if !self.stays {
            if matches!(self.side.mine.leaves, Leaves::Resets(_)) {
                self.side.stream.reset();
            }
            self.side.stream.shutdown(Shutdown::Both);
        }
    }
}

async fn client(world: Arc<World>, seed: u64, connection: u64, door: usize, is_unix: bool) {
    let Some((addr, path)) = world.doors[door].with(|door| door.clone()) else { return };
    let connected = async {
        let stream = if is_unix {
            Stream::Unix(UnixStream::connect(path).await?)
        } else {
            Stream::Tcp(TcpStream::connect(addr).await?)
        };
        let number = connection.to_le_bytes();
        let mut sent = 0;
        while sent < number.len() {
            sent += stream.write(&number[sent..]).await?;
        }
        Ok::<_, io::Error>(stream)
    };
    match connected.await {
        Ok(stream) => {
            add(&world.totals.connections, 1);
            let (mine, theirs) = (Plan::of(seed, connection, CLIENT), Plan::of(seed, connection, SERVER));
            Side { world, stream, connection, side: CLIENT, mine, theirs }.runs_somewhere().await;
        }
        Err(error) if world.is_disturbed(connection) => drop(error),
        Err(error) => world.fault(format!("connection {connection} (unix: {is_unix}): {error}")),
    }
}

async fn server(world: Arc<World>, seed: u64, stream: Stream) {
    let mut number = [0; 8];
    let mut got = 0;
    while got < number.len() {
        match stream.read(&mut number[got..]).await {
            // An aborted client.
            Ok(0) | Err(_) => return,
            Ok(len) => got += len,
        }
    }
    let connection = u64::from_le_bytes(number);
    let (mine, theirs) = (Plan::of(seed, connection, SERVER), Plan::of(seed, connection, CLIENT));
    Side { world, stream, connection, side: SERVER, mine, theirs }.runs_somewhere().await;
}

/// Accepts both kinds on one scheduler, till it is aborted.
async fn doorkeeper(world: Arc<World>, seed: u64, number: usize, path: PathBuf) {
    let tcp = TcpListener::bind("127.0.0.1:0").await.expect("there are ports");
    let unix = UnixListener::bind(&path).expect("the path is free");
    let addr = tcp.local_addr().expect("it has one");
    world.doors[number].with(|door| *door = Some((addr, path)));
    let count = world.schedulers.len() as u64;
    let mut rng = Rng::new(seed ^ number as u64);
    let (mut tcp_accepts, mut unix_accepts) = (tcp.incoming(), unix.incoming());
    loop {
        let accepted = poll_fn(|cx| {
            if let Poll::Ready(accepted) = pin!(tcp_accepts.next()).poll(cx) {
                return Poll::Ready(accepted.map(Stream::Tcp));
            }
            pin!(unix_accepts.next()).poll(cx).map(|accepted| accepted.map(Stream::Unix))
        });
        // The scheduler ends.
        let Ok(stream) = accepted.await else { return };
        world.spawn_kept(rng.below(count) as usize, server(Arc::clone(&world), seed, stream));
    }
}

// ------------------------------------------------------------------ a round

fn round(seed: u64) -> Totals {
    let mut rng = Rng::new(seed);
    let schedulers: Vec<_> = (0..1 + rng.below(3))
        .map(|_| {
            let workers = 1 + rng.below(8) as usize;
            let spares = [0, 1, 16][rng.below(3) as usize];
            Arc::new(Scheduler::builder().workers(workers).spares(spares).start().unwrap())
        })
        .collect();
    let count = schedulers.len();
    let connections = 4 + rng.below(40);
    let world = Arc::new(World {
        schedulers: schedulers.into_iter().map(|scheduler| Spin::new(Some(scheduler))).collect(),
        doors: (0..count).map(|_| Spin::new(None)).collect(),
        connections: (0..connections).map(|_| Connection::default()).collect(),
        handles: Spin::new(Vec::new()),
        faults: Spin::new(Vec::new()),
        totals: Totals::default(),
    });
    let path = |number| {
        let name = format!("evener-stress-{}-{seed:x}-{number}", std::process::id());
        std::env::temp_dir().join(name)
    };
    let keepers: Vec<_> = (0..count)
        .map(|number| world.spawn(number, doorkeeper(Arc::clone(&world), seed, number, path(number))))
        .collect();
    until("the doors open", || (0..count).all(|number| world.doors[number].with(|door| door.is_some())));
    let mut clients: Vec<_> = (0..connections)
        .filter_map(|connection| {
            let (door, number) = (rng.below(count as u64) as usize, rng.below(count as u64) as usize);
            let client = client(Arc::clone(&world), seed, connection, door, rng.below(2) == 0);
            world.spawn(number, client).map(|handle| (connection, handle))
        })
        .collect();
    // Aborts from outside.
    for _ in 0..rng.below(5) {
        std::thread::sleep(Duration::from_micros(rng.below(2000)));
        let (connection, handle) = &clients[rng.below(clients.len() as u64) as usize];
        world.connections[*connection as usize].is_disturbed.store(true, SeqCst);
        handle.abort();
        add(&world.totals.aborts, 1);
    }
    // The end of a scheduler in the middle of everything.
    if rng.below(4) == 0 {
        std::thread::sleep(Duration::from_micros(rng.below(5000)));
        world.connections.iter().for_each(|connection| connection.is_disturbed.store(true, SeqCst));
        let scheduler = world.schedulers[rng.below(count as u64) as usize].with(Option::take);
        let scheduler = scheduler.expect("it is the first that goes");
        if rng.below(2) == 0 {
            scheduler.shutdown(Duration::from_millis(rng.below(3)));
        }
        drop(scheduler);
    }
    // Whoever waits comes to an end by itself; those who are spawned meanwhile, too.
    let ends = |handle: JoinHandle<()>| match handle.wait(Some(LIMIT)) {
        Ok(()) | Err(JoinError::Aborted | JoinError::NotSpawned(_)) => {}
        Err(JoinError::TimedOut) => world.fault("a wait without an end".to_owned()),
        Err(error) => world.fault(error.to_string()),
    };
    clients.drain(..).for_each(|(_, handle)| ends(handle));
    let handles = || {
        while let Some(handle) = world.handles.with(Vec::pop) {
            ends(handle);
        }
    };
    handles();
    // Connections that nobody has accepted yet are those of clients that are gone.
    for keeper in keepers.into_iter().flatten() {
        keeper.abort();
        let _ = keeper.wait(Some(LIMIT));
    }
    handles();
    for scheduler in &world.schedulers {
        if let Some(scheduler) = scheduler.with(Option::take) {
            until("nothing is left", || {
                let left = scheduler.registrations();
                let is_clear = (left.descriptors, left.socket_waiters, left.timers) == (0, 0, 0);
                is_clear || !world.faults.with(|faults| faults.is_empty())
            });
            scheduler.shutdown(LIMIT);
        }
    }
    (0..count).for_each(|number| drop(std::fs::remove_file(path(number))));
    let faults = world.faults.with(std::mem::take);
    assert!(faults.is_empty(), "seed {seed}: {faults:#?}");
    let of = |count: &AtomicU64| AtomicU64::new(count.load(SeqCst));
    let whole = world.connections.iter().filter(|connection| connection.whole.load(SeqCst) == 2).count();
    let Totals { connections, bytes, timeouts, errors, aborts, .. } = &world.totals;
    Totals {
        connections: of(connections),
        bytes: of(bytes),
        whole: AtomicU64::new(whole as u64),
        timeouts: of(timeouts),
        errors: of(errors),
        aborts: of(aborts),
    }
}

/// Descriptors of this program that are sockets.
fn sockets() -> usize {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return 0 };
    let links = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

#[test]
fn every_wait_ends_and_every_byte_is_the_right_one() {
    quiet_panics();
    let (span, seed) = span_and_seed();
    // By `cargo xtask stress` nobody else in this program has sockets.
    let is_alone = std::env::var_os("EVENER_STRESS_SECS").is_some();
    let before = sockets();
    let began = Instant::now();
    let mut rounds = 0;
    let sums: [AtomicU64; 6] = Default::default();
    let mut next_line = Duration::from_secs(10);
    let line = |rounds| {
        let [connections, bytes, whole, timeouts, errors, aborts] =
            sums.each_ref().map(|sum| sum.load(SeqCst));
        format!(
            "stress: {rounds} rounds, {connections} connections ({whole} whole), {bytes} bytes, {timeouts} \
             timed out, {errors} errors, {aborts} aborts"
        )
    };
    while rounds == 0 || began.elapsed() < span {
        let Totals { connections, bytes, whole, timeouts, errors, aborts } =
            round(seed.wrapping_mul(1_000_003).wrapping_add(rounds));
        for (sum, more) in sums.iter().zip([connections, bytes, whole, timeouts, errors, aborts]) {
            add(sum, more.into_inner());
        }
        rounds += 1;
        if is_alone {
            until("every socket is closed", || sockets() == before);
        }
        if began.elapsed() >= next_line {
            println!("{} so far", line(rounds));
            next_line += Duration::from_secs(10);
        }
    }
    println!("{}, seed {seed}: ok", line(rounds));
}
