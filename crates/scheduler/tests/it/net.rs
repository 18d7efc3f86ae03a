//! Sockets: bytes arrive whole and in order, no waiter is lost, nothing is left behind, and somebody always
//! polls.

use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use evener_scheduler::net::{TcpListener, TcpStream, UdpSocket};
use evener_scheduler::{
    Events, InitContext, Package, Payload, Pid, Process, ProcessError, Scheduler, SpawnOptions, StepOutput,
    send,
};

use crate::support::{LIMIT, Rng, in_a_program_of_its_own, kill, recv, scheduler, until};

// ------------------------------------------------------------------ futures as processes

/// A future that is polled by the steps of a process; its waker is a message.
struct Task {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    waker: Option<Waker>,
}

struct Message(Pid);

impl Wake for Message {
    fn wake(self: Arc<Self>) {
        // The task may have ended.
        let _ = send(Package::new(self.0, ()));
    }
}

impl Process for Task {
    fn init(&mut self, cx: &InitContext, _: &str, _: Payload) -> Result<(), ProcessError> {
        let waker = Waker::from(Arc::new(Message(cx.pid())));
        waker.wake_by_ref();
        self.waker = Some(waker);
        Ok(())
    }
    fn step(&mut self, events: &mut Events<'_>, out: &mut StepOutput<'_>) -> Result<(), ProcessError> {
        if events.by_ref().count() == 0 {
            return Ok(());
        }
        let waker = self.waker.as_ref().unwrap();
        if self.future.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
            out.done(());
        }
        Ok(())
    }
}

/// Runs a future on the scheduler's workers.
fn spawn<T: Send + 'static>(
    s: &Scheduler,
    future: impl Future<Output = T> + Send + 'static,
) -> (Pid, Receiver<T>) {
    let (sender, receiver) = channel();
    let future = Box::pin(async move {
        // Nobody may want it.
        let _ = sender.send(future.await);
    });
    (s.spawn(Task { future, waker: None }, SpawnOptions::new()).unwrap(), receiver)
}

/// Runs a future on the scheduler's workers, and waits for it.
#[track_caller]
fn run<T: Send + 'static>(s: &Scheduler, future: impl Future<Output = T> + Send + 'static) -> T {
    recv(&spawn(s, future).1)
}

struct Thread(std::thread::Thread);

impl Wake for Thread {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, its sockets being the scheduler's.
#[track_caller]
fn run_here<T>(s: &Scheduler, future: impl Future<Output = T>) -> T {
    let _entered = s.enter();
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Thread(std::thread::current())));
    let began = Instant::now();
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        assert!(began.elapsed() < LIMIT, "waited too long for a future");
        std::thread::park_timeout(LIMIT);
    }
}

/// Both, each polled whenever one is woken.
async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut a, mut b) = (None, None);
    poll_fn(|cx| {
        if a.is_none()
            && let Poll::Ready(value) = one.as_mut().poll(cx)
        {
            a = Some(value);
        }
        if b.is_none()
            && let Poll::Ready(value) = other.as_mut().poll(cx)
        {
            b = Some(value);
        }
        if a.is_some() && b.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (a.unwrap(), b.unwrap())
}

/// Polls a future once and lets it go.
async fn glance<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        })
    })
    .await
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// A connection and its other end, on the same scheduler.
async fn pair() -> (TcpStream, TcpStream) {
    let (listener, addr) = listener().await;
    let (one, other) = both(TcpStream::connect(addr), listener.accept()).await;
    (one.unwrap(), other.unwrap().0)
}

async fn echo(stream: TcpStream) {
    let mut buf = [0; 4096];
    loop {
        match stream.read(&mut buf).await {
            Ok(0) | Err(_) => return,
            Ok(len) => {
                if stream.write_all(&buf[..len]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// An echo server whose connections are tasks of their own, till the scheduler ends.
fn echo_server(s: &Arc<Scheduler>) -> SocketAddr {
    let (sender, receiver) = channel();
    let weak = Arc::downgrade(s);
    spawn(s, async move {
        let (listener, addr) = listener().await;
        sender.send(addr).unwrap();
        loop {
            let stream = listener.accept().await.unwrap().0;
            let Some(s) = weak.upgrade() else { return };
            spawn(&s, echo(stream));
        }
    });
    recv(&receiver)
}

/// Nothing is registered any more, and nobody waits.
#[track_caller]
fn assert_nothing_left(s: &Scheduler) {
    until("nothing is left", || {
        let left = s.registrations();
        (left.descriptors, left.socket_waiters, left.timers) == (0, 0, 0)
    });
}

// ------------------------------------------------------------------ bytes

#[test]
fn bytes_come_back_over_tcp() {
    for workers in [1, 2, 4] {
        let s = Arc::new(scheduler(workers));
        let addr = echo_server(&s);
        run(&s, async move {
            let stream = TcpStream::connect(addr).await.unwrap();
            stream.set_nodelay(true).unwrap();
            assert!(stream.nodelay().unwrap());
            assert_eq!(stream.peer_addr().unwrap(), addr);
            for round in 0..200_usize {
                let sent: Vec<u8> = (0..=round * 37).map(|at| (at * 7 + round) as u8).collect();
                let mut back = vec![0; sent.len()];
                both(async { stream.write_all(&sent).await.unwrap() }, async {
                    stream.read_exact(&mut back).await.unwrap()
                })
                .await;
                assert_eq!(sent, back);
            }
        });
        let stats = s.stats();
        assert!(stats.total().polls > 0 && stats.total().poll_events > 0, "{stats}");
    }
}
