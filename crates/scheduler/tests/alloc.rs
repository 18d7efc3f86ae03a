//! In steady state a send with an inline payload and the wake that follows allocate nothing: on one worker
//! and across two, raw and typed. A test binary of its own, for its allocator counts.

#![allow(clippy::disallowed_methods, reason = "the deadline of a test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use evener_scheduler::{
    Event, Events, Package, Pid, Process, ProcessError, Scheduler, SpawnOptions, StepOutput, send,
};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, SeqCst);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, SeqCst);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, SeqCst);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const MESSAGES: u64 = 1_000_000;

/// A ball: three words, the most that lies inline.
type Ball = [u64; 3];

fn done(receiver: &Receiver<()>) {
    receiver.recv_timeout(Duration::from_secs(60)).expect("it comes to its end");
}

/// Allocations during `act`, after a warm-up by the same act.
fn allocations(mut act: impl FnMut()) -> u64 {
    act();
    let before = ALLOCATIONS.load(SeqCst);
    act();
    ALLOCATIONS.load(SeqCst) - before
}

struct Player {
    partner: Option<Pid>,
    done: Sender<()>,
}

impl Process for Player {
    fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        for event in events.by_ref() {
            let Event::Message(message) = event else { continue };
            match message.take::<Ball>() {
                Ok([0, ..]) => self.done.send(()).unwrap(),
                Ok([left, ..]) => out.send(self.partner.unwrap(), [left - 1, 0, 0]).unwrap(),
                Err(message) => self.partner = Some(message.take::<Pid>().unwrap()),
            }
        }
        Ok(())
    }
}

/// A flood: the sender posts in bursts, the receiver counts.
struct Floods {
    to: Pid,
    left: u64,
}

impl Process for Floods {
    fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        for event in events.by_ref() {
            if let Event::Message(message) = event {
                self.left = message.take::<u64>().unwrap();
            }
        }
        // Never so many at a time that the mailbox outgrows the memory that the warm-up has brought.
        for _ in 0..self.left.min(100) {
            self.left -= 1;
            out.send(self.to, self.left).unwrap();
        }
        if self.left > 0 {
            out.continue_soon();
        }
        Ok(())
    }
}

struct Counts {
    done: Sender<()>,
}

impl Process for Counts {
    fn step(&mut self, events: &mut Events<'_>, _: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        for event in events.by_ref() {
            if let Event::Message(message) = event
                && message.take::<u64>().unwrap() == 0
            {
                self.done.send(()).unwrap();
            }
        }
        Ok(())
    }
}

/// One test, so that nothing else allocates meanwhile. Beyond the sends each measured act makes a few
/// allocations of its own (a wake from outside, the channel): hence the small allowance, against a million.
#[test]
fn a_million_sends_allocate_nothing() {
    const ALLOWANCE: u64 = 64;
    for workers in [1, 2] {
        let s = Scheduler::builder().workers(workers).start().unwrap();
        let (sender, receiver) = channel();
        let mut players = Vec::new();
        // Two pairs, so that with two workers both are busy and messages cross.
        for _ in 0..2 * workers {
            let player = Player { partner: None, done: sender.clone() };
            players.push(s.spawn(player, SpawnOptions::new()).unwrap());
        }
        for (index, pid) in players.iter().enumerate() {
            send(Package::new(*pid, players[(index + 1) % players.len()])).unwrap();
        }
        let balls = workers as u64;
        let count = allocations(|| {
            for ball in 0..balls {
                send(Package::new(players[ball as usize * 2], [MESSAGES / balls, 0, 0])).unwrap();
            }
            (0..balls).for_each(|_| done(&receiver));
        });
        println!("{workers} workers, balls: {count} allocations in {MESSAGES} messages");
        assert!(count <= ALLOWANCE, "{workers} workers: {count} allocations in {MESSAGES} sends");

        let counts = s.spawn(Counts { done: sender.clone() }, SpawnOptions::new()).unwrap();
        let floods = s.spawn(Floods { to: counts, left: 0 }, SpawnOptions::new()).unwrap();
        let count = allocations(|| {
            send(Package::new(floods, MESSAGES)).unwrap();
            done(&receiver);
        });
        println!("{workers} workers, flood: {count} allocations in {MESSAGES} messages");
        // Where the receiver falls behind on another worker, its backlog may grow the pool once more.
        assert!(count <= ALLOWANCE, "{workers} workers: {count} allocations in {MESSAGES} sends");

        typed(&s, workers, &sender, &receiver);
    }
}

mod with_types {
    use super::Sender;
    use evener_scheduler::{Actor, Context, Handle};

    pub(crate) enum Hit {
        Partner(Handle<Hit>),
        /// With the tag: three words.
        Ball(u64, u64),
    }

    pub(crate) struct Typed {
        pub(crate) partner: Option<Handle<Hit>>,
        pub(crate) done: Sender<()>,
    }

    impl Actor for Typed {
        type Message = Hit;
        fn handle(&mut self, hit: Hit, _: &mut Context<'_, Hit>) {
            match hit {
                Hit::Partner(partner) => self.partner = Some(partner),
                Hit::Ball(0, _) => self.done.send(()).unwrap(),
                Hit::Ball(left, other) => {
                    self.partner.as_ref().unwrap().tell(Hit::Ball(left - 1, other)).unwrap();
                }
            }
        }
    }
}

fn typed(s: &Scheduler, workers: usize, sender: &Sender<()>, receiver: &Receiver<()>) {
    use with_types::{Hit, Typed};
    let players: Vec<_> = (0..2 * workers)
        .map(|_| s.spawn_actor(Typed { partner: None, done: sender.clone() }).unwrap())
        .collect();
    for (index, player) in players.iter().enumerate() {
        player.tell(Hit::Partner(players[(index + 1) % players.len()])).unwrap();
    }
    let balls = workers as u64;
    let count = allocations(|| {
        for ball in 0..balls {
            players[ball as usize * 2].tell(Hit::Ball(MESSAGES / balls, 0)).unwrap();
        }
        (0..balls).for_each(|_| done(receiver));
    });
    println!("{workers} workers, typed: {count} allocations in {MESSAGES} messages");
    assert!(count <= 64, "{workers} workers: {count} allocations in {MESSAGES} typed sends");
}
