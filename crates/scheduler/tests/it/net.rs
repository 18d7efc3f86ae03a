//! Sockets: bytes arrive whole and in order, no waiter is lost, nothing is left behind, and somebody always
//! polls.

use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use evener_scheduler::net::{TcpListener, TcpStream, UdpSocket};
use evener_scheduler::{Events, Pid, Scheduler, SpawnOptions, StepOutput, task};

use crate::support::{
    LIMIT, Rng, assert_nothing_left, glance, in_a_program_of_its_own, kill, recv, scheduler, until,
};

/// Runs a future on the scheduler's workers.
fn spawn<T: Send + 'static>(
    s: &Scheduler,
    future: impl Future<Output = T> + Send + 'static,
) -> (Pid, Receiver<T>) {
    let (sender, receiver) = channel();
    let handle = s.spawn_task(async move {
        // Nobody may want it.
        let _ = sender.send(future.await);
    });
    (handle.pid().expect("the scheduler is open"), receiver)
}

/// Runs a future on the scheduler's workers, and waits for it.
#[track_caller]
fn run<T: Send + 'static>(s: &Scheduler, future: impl Future<Output = T> + Send + 'static) -> T {
    recv(&spawn(s, future).1)
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
    stream.set_nodelay(true).unwrap();
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

#[test]
fn packets_come_back_over_udp() {
    let s = scheduler(2);
    run(&s, async {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let to = server.local_addr().unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(to).await.unwrap();
        assert_eq!(client.peer_addr().unwrap(), to);
        let mut buf = [0; 1500];
        for number in 0..500_u32 {
            client.send(&number.to_le_bytes()).await.unwrap();
            let (len, from) = server.recv_from(&mut buf).await.unwrap();
            assert_eq!(from, client.local_addr().unwrap());
            assert_eq!(server.send_to(&buf[..len], from).await.unwrap(), 4);
            assert_eq!(client.recv(&mut buf).await.unwrap(), 4);
            assert_eq!(buf[..4], number.to_le_bytes());
        }
        client.set_broadcast(true).unwrap();
        assert!(client.broadcast().unwrap());
        let nobody = server.try_recv_from(&mut buf).unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::WouldBlock);
    });
    assert_nothing_left(&s);
}

/// What UDP keeps as an error of the socket is told to who waits, once, and then it waits again.
#[test]
fn a_refused_packet_is_told_once() {
    let s = scheduler(1);
    run(&s, async {
        let gone = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let to = gone.local_addr().unwrap();
        drop(gone);
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(to).await.unwrap();
        client.send(b"?").await.unwrap();
        let mut buf = [0; 8];
        let error = client.recv(&mut buf).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(glance(client.recv(&mut buf)).await.is_none());
    });
    assert_nothing_left(&s);
}

#[test]
fn two_tasks_read_one_socket_and_each_packet_goes_to_one() {
    const PACKETS: usize = 2000;
    let s = Arc::new(scheduler(2));
    let socket = Arc::new(s.block_on(UdpSocket::bind("127.0.0.1:0")).unwrap());
    let to = socket.local_addr().unwrap();
    let seen = Arc::new(Mutex::new(vec![0_u8; PACKETS]));
    let count = Arc::new(AtomicUsize::new(0));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (socket, seen, count) = (Arc::clone(&socket), Arc::clone(&seen), Arc::clone(&count));
            spawn(&s, async move {
                let mut buf = [0; 8];
                loop {
                    let (len, _) = socket.recv_from(&mut buf).await.unwrap();
                    let number = usize::from_le_bytes(buf);
                    if len == 0 || number == usize::MAX {
                        return;
                    }
                    seen.lock().unwrap()[number] += 1;
                    count.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..PACKETS {
        sender.send_to(&number.to_le_bytes(), to).unwrap();
        // The system drops packets for which there is no room: at most a few are under way.
        until("it is read", || count.load(SeqCst) + 16 > number);
    }
    until("all are read", || count.load(SeqCst) == PACKETS);
    assert!(seen.lock().unwrap().iter().all(|&times| times == 1));
    for (_, done) in &readers {
        // Both wait for the same packet; whoever gets it ends, and the next ends the other.
        sender.send_to(&usize::MAX.to_le_bytes(), to).unwrap();
        let _ = done;
    }
    readers.iter().for_each(|(_, done)| recv(done));
    drop(socket);
    assert_nothing_left(&s);
}

#[cfg(unix)]
#[test]
fn bytes_and_packets_come_back_over_unix_sockets() {
    use evener_scheduler::net::{UnixDatagram, UnixListener, UnixStream};
    let s = scheduler(2);
    let dir = std::env::temp_dir().join(format!("evener-net-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("stream");
    let packets = dir.join("packets");
    run(&s, async move {
        let listener = UnixListener::bind(&path).unwrap();
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            let mut buf = vec![0; 100_000];
            stream.read_exact(&mut buf).await.unwrap();
            stream.write_all(&buf).await.unwrap();
            assert_eq!(stream.read(&mut buf).await.unwrap(), 0);
        };
        let client = async {
            let stream = UnixStream::connect(&path).await.unwrap();
            let sent: Vec<u8> = (0..100_000_u32).map(|at| (at.wrapping_mul(at) >> 3) as u8).collect();
            stream.write_all(&sent).await.unwrap();
            let mut back = vec![0; sent.len()];
            stream.read_exact(&mut back).await.unwrap();
            assert_eq!(sent, back);
        };
        both(server, client).await;

        let receiver = UnixDatagram::bind(&packets).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        // Far more than the receiver has room for: sending waits.
        let send = async {
            for number in 0..1000_u32 {
                sender.send_to(&number.to_le_bytes(), &packets).await.unwrap();
            }
            sender.connect(&packets).unwrap();
            for number in 1000..2000_u32 {
                sender.send(&number.to_le_bytes()).await.unwrap();
            }
        };
        let receive = async {
            let mut buf = [0; 8];
            for number in 0..2000_u32 {
                assert_eq!(receiver.recv(&mut buf).await.unwrap(), 4);
                assert_eq!(buf[..4], number.to_le_bytes());
            }
        };
        both(send, receive).await;
    });
    std::fs::remove_dir_all(dir).unwrap();
    assert_nothing_left(&s);
}

/// A listener whose queue is full: the connect tries again.
#[cfg(unix)]
#[test]
fn a_unix_connect_waits_for_room() {
    use evener_scheduler::net::{UnixListener, UnixStream};
    let s = scheduler(1);
    let path = std::env::temp_dir().join(format!("evener-room-{}", std::process::id()));
    let listener = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    listener.bind(&socket2::SockAddr::unix(&path).unwrap()).unwrap();
    listener.listen(1).unwrap();
    let listener = std::os::unix::net::UnixListener::from(std::os::fd::OwnedFd::from(listener));
    let to = path.clone();
    run(&s, async move {
        let listener = UnixListener::from_std(listener).unwrap();
        let mut open = Vec::new();
        let full = loop {
            match glance(UnixStream::connect(&to)).await {
                Some(stream) => open.push(stream.unwrap()),
                None => break open.len(),
            }
            assert!(open.len() < 1000, "it has no end of room");
        };
        let late = async {
            let stream = UnixStream::connect(&to).await.unwrap();
            stream.write_all(b"late").await.unwrap();
        };
        let accept = async {
            for _ in 0..full {
                listener.accept().await.unwrap();
            }
            let (stream, _) = listener.accept().await.unwrap();
            let mut buf = [0; 4];
            stream.read_exact(&mut buf).await.unwrap();
            assert_eq!(&buf, b"late");
        };
        both(late, accept).await;
    });
    std::fs::remove_file(path).unwrap();
    assert_nothing_left(&s);
}

#[test]
fn a_thousand_connections_talk_at_once() {
    const CONNECTIONS: usize = 1000;
    let s = Arc::new(scheduler(2));
    let addr = echo_server(&s);
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|client| {
            spawn(&s, async move {
                let stream = TcpStream::connect(addr).await.unwrap();
                for round in 0..10_usize {
                    let sent = [(client * 31 + round) as u8; 64];
                    stream.write_all(&sent).await.unwrap();
                    let mut back = [0; 64];
                    stream.read_exact(&mut back).await.unwrap();
                    assert_eq!(sent, back);
                }
                client
            })
            .1
        })
        .collect();
    for (client, done) in clients.iter().enumerate() {
        assert_eq!(recv(done), client);
    }
    until("the server's ends are closed", || s.registrations().descriptors == 1);
}

#[test]
fn several_tasks_accept_from_one_listener() {
    let s = Arc::new(scheduler(2));
    let (listener, addr) = s.block_on(listener());
    let listener = Arc::new(listener);
    let accepted = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (listener, accepted) = (Arc::clone(&listener), Arc::clone(&accepted));
            spawn(&s, async move {
                let mut incoming = listener.incoming();
                loop {
                    let stream = incoming.next().await.unwrap();
                    let mut buf = [0; 1];
                    stream.read_exact(&mut buf).await.unwrap();
                    accepted.fetch_add(1, SeqCst);
                }
            })
            .0
        })
        .collect();
    for round in 1..=200 {
        std::net::TcpStream::connect(addr).unwrap().write_all(b"x").unwrap();
        if round % 8 == 0 {
            until("all are taken", || accepted.load(SeqCst) == round);
        }
    }
    until("all are taken", || accepted.load(SeqCst) == 200);
    // Tasks that are ended in the middle of a wait leave nothing in the list.
    tasks.iter().for_each(|pid| kill(&s, *pid));
    until("they have left the list", || s.registrations().socket_waiters == 0);
    drop(listener);
    assert_nothing_left(&s);
}

/// A peer that does not read: the writer waits, and does not spin; then everything arrives.
#[test]
fn a_writer_waits_for_a_slow_reader() {
    const LEN: usize = 8 << 20;
    let s = Arc::new(scheduler(2));
    let (listener, addr) = s.block_on(listener());
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&polls);
    let (_, written) = spawn(&s, async move {
        let stream = listener.accept().await.unwrap().0;
        let bytes: Vec<u8> = (0..LEN).map(|at| (at / 7) as u8).collect();
        let mut write = pin!(stream.write_all(&bytes));
        poll_fn(|cx| {
            counted.fetch_add(1, SeqCst);
            write.as_mut().poll(cx)
        })
        .await
        .unwrap();
    });
    let mut peer = std::net::TcpStream::connect(addr).unwrap();
    until("it writes", || polls.load(SeqCst) > 0);
    // It waits when its turns no longer grow: look for a while.
    let mut last = polls.load(SeqCst);
    until("it waits", || {
        std::thread::sleep(Duration::from_millis(100));
        let now = polls.load(SeqCst);
        std::mem::replace(&mut last, now) == now
    });
    assert!(written.try_recv().is_err());
    let mut buf = vec![0; 65_536];
    let mut read = 0;
    while read < LEN {
        let len = peer.read(&mut buf).unwrap();
        assert!(len > 0);
        assert!(buf[..len].iter().enumerate().all(|(at, &byte)| byte == ((read + at) / 7) as u8));
        read += len;
    }
    recv(&written);
    let polls = polls.load(SeqCst);
    println!("{polls} polls for {} MiB", LEN >> 20);
    assert!(polls <= LEN / 512, "{polls} polls: it spins");
    assert_nothing_left(&s);
}

#[test]
fn a_reset_ends_the_wait() {
    let s = scheduler(2);
    run(&s, async {
        let (one, other) = pair().await;
        let (read, ()) = both(async { other.read(&mut [0; 8]).await }, async {
            one.set_linger(Some(Duration::ZERO)).unwrap();
            drop(one.into_std());
        })
        .await;
        assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
        let refused = other.set_linger(Some(Duration::from_secs(1))).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    });
    assert_nothing_left(&s);
}

/// The end arrives with the bytes, or after them, or while they are read: it is never missed.
#[test]
fn a_half_close_is_read_after_the_bytes() {
    let s = scheduler(2);
    for round in 0..200_usize {
        run(&s, async move {
            let (one, other) = pair().await;
            let (read, write) = one.into_split();
            let back = async {
                let mut buf = [0; 64];
                let mut got = Vec::new();
                loop {
                    let len = other.read(&mut buf).await.unwrap();
                    if len == 0 {
                        break;
                    }
                    got.extend_from_slice(&buf[..len]);
                }
                // The other direction is still open.
                other.write_all(&got).await.unwrap();
                other.shutdown(Shutdown::Write).unwrap();
                got.len()
            };
            let forth = async {
                write.write_all(&vec![7; 10 + round]).await.unwrap();
                if round % 2 == 0 {
                    write.shutdown().unwrap();
                }
                // Dropping the half ends the writing, too.
                drop(write);
                let mut buf = vec![0; 10 + round];
                read.read_exact(&mut buf).await.unwrap();
                assert_eq!(read.read(&mut buf).await.unwrap(), 0);
            };
            assert_eq!(both(back, forth).await.0, 10 + round);
        });
    }
    assert_nothing_left(&s);
}

#[test]
fn a_refused_connect_says_so() {
    let s = scheduler(1);
    run(&s, async {
        let (listener, addr) = listener().await;
        drop(listener);
        let error = TcpStream::connect(addr).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        // All addresses are tried.
        let (listener, open) = self::listener().await;
        let stream = TcpStream::connect(&[addr, open][..]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), open);
        drop(listener);
        assert_eq!(TcpStream::connect("nowhere").await.unwrap_err().kind(), ErrorKind::InvalidInput);
    });
    assert_nothing_left(&s);
}

#[test]
fn a_name_is_looked_up() {
    let s = scheduler(1);
    run(&s, async {
        let listener = TcpListener::bind("localhost:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stream, accepted) = both(TcpStream::connect(("localhost", port)), listener.accept()).await;
        assert_eq!(stream.unwrap().local_addr().unwrap(), accepted.unwrap().1);
    });
    assert_nothing_left(&s);
}

/// A listener that has no room answers nothing: the connect waits till its limit.
#[cfg(target_os = "linux")]
#[test]
fn a_connect_that_nobody_answers_times_out() {
    let s = scheduler(1);
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let addr = socket.local_addr().unwrap().as_socket().unwrap();
    run(&s, async move {
        let limit = Duration::from_millis(50);
        let mut open = Vec::new();
        loop {
            let began = Instant::now();
            match TcpStream::connect_timeout(addr, limit).await {
                Ok(stream) => open.push(stream),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::TimedOut);
                    assert!(began.elapsed() >= limit, "too early");
                    break;
                }
            }
            assert!(open.len() < 1000, "it has no end of room");
        }
    });
    assert_nothing_left(&s);
}

#[test]
fn a_limit_ends_a_read_and_the_stream_goes_on() {
    let s = scheduler(2);
    run(&s, async {
        let (one, other) = pair().await;
        let limit = Duration::from_millis(20);
        one.set_read_limit(Some(limit));
        assert_eq!(one.read_limit(), Some(limit));
        let mut buf = [0; 4];
        for _ in 0..3 {
            let began = Instant::now();
            assert_eq!(one.read(&mut buf).await.unwrap_err().kind(), ErrorKind::TimedOut);
            assert!(began.elapsed() >= limit, "too early");
        }
        other.write_all(b"abcd").await.unwrap();
        one.set_read_limit(Some(LIMIT));
        one.read_exact(&mut buf).await.unwrap();
        assert_eq!(&buf, b"abcd");
        // Nobody reads: a write has its limit, too.
        other.set_write_limit(Some(limit));
        let much = vec![0; 64 << 20];
        assert_eq!(other.write_all(&much).await.unwrap_err().kind(), ErrorKind::TimedOut);
    });
    assert_nothing_left(&s);
}

#[test]
fn without_a_scheduler_there_are_no_sockets() {
    let error = glance_here(TcpListener::bind("127.0.0.1:0")).unwrap_err();
    assert!(error.to_string().contains("no scheduler here"), "{error}");
    let s = scheduler(1);
    let listener = s.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    drop(listener);
    assert_eq!(s.registrations().descriptors, 0);
    let error = glance_here(UdpSocket::bind("127.0.0.1:0")).unwrap_err();
    assert!(error.to_string().contains("no scheduler here"), "{error}");
}

/// Polls a future that need not wait.
fn glance_here<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn sockets_of_std_come_and_go() {
    let s = scheduler(1);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let listener = run(&s, async move {
        let listener = TcpListener::from_std(listener).unwrap();
        let client = std::net::TcpStream::connect(addr).unwrap();
        let client = TcpStream::from_std(client).unwrap();
        let server = listener.accept().await.unwrap().0;
        client.write_all(b"x").await.unwrap();
        server.readable().await.unwrap();
        let mut buf = [0; 2];
        assert_eq!(server.peek(&mut buf).await.unwrap(), 1);
        assert_eq!(server.try_read(&mut buf).unwrap(), 1);
        assert_eq!(server.try_read(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
        let client = TcpStream::from_std(client.into_std()).unwrap();
        client.writable().await.unwrap();
        assert_eq!(client.try_write(b"yz").unwrap(), 2);
        server.read_exact(&mut buf).await.unwrap();
        assert_eq!(&buf, b"yz");
        let (read, write) = server.into_split();
        let (other_read, other_write) = client.into_split();
        let (read, other_write) = read.reunite(other_write).unwrap_err();
        let server = read.reunite(write).unwrap();
        server.write_all(b"q").await.unwrap();
        let client = other_read.reunite(other_write).unwrap();
        client.read_exact(&mut buf[..1]).await.unwrap();
        listener.into_std()
    });
    assert_nothing_left(&s);
    assert_eq!(listener.local_addr().unwrap(), addr);
}

/// Through the traits of futures-io, and those of tokio if they are built in.
#[test]
fn the_traits_move_the_same_bytes() {
    use futures_io::{AsyncRead, AsyncWrite};

    async fn copy(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> usize {
        let mut buf = [0; 100];
        let mut copied = 0;
        loop {
            let len = poll_fn(|cx| Pin::new(&mut *from).poll_read(cx, &mut buf)).await.unwrap();
            if len == 0 {
                poll_fn(|cx| Pin::new(&mut *to).poll_flush(cx)).await.unwrap();
                poll_fn(|cx| Pin::new(&mut *to).poll_close(cx)).await.unwrap();
                return copied;
            }
            let mut rest = &buf[..len];
            while !rest.is_empty() {
                let len = poll_fn(|cx| Pin::new(&mut *to).poll_write(cx, rest)).await.unwrap();
                rest = &rest[len..];
            }
            copied += len;
        }
    }

    let s = scheduler(2);
    let copied = run(&s, async {
        let (one, other) = pair().await;
        let (mut read, mut write) = other.into_split();
        let client = async {
            let sent: Vec<u8> = (0..1_000_000_u32).map(|at| (at / 3) as u8).collect();
            let mut back = vec![0; sent.len()];
            both(
                async {
                    one.write_all(&sent).await.unwrap();
                    one.shutdown(Shutdown::Write).unwrap();
                },
                async { one.read_exact(&mut back).await.unwrap() },
            )
            .await;
            assert_eq!(sent, back);
        };
        both(copy(&mut read, &mut write), client).await.0
    });
    assert_eq!(copied, 1_000_000);
    #[cfg(feature = "tokio-io")]
    run(&s, async {
        use evener_scheduler::net::TokioIo;
        use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
        let (one, other) = pair().await;
        let (mut one, mut other) = (TokioIo(one), TokioIo(other));
        let len = poll_fn(|cx| Pin::new(&mut one).poll_write(cx, b"tokio")).await.unwrap();
        assert_eq!(len, 5);
        poll_fn(|cx| Pin::new(&mut one).poll_shutdown(cx)).await.unwrap();
        let mut buf = [0; 16];
        let mut buf = ReadBuf::new(&mut buf);
        poll_fn(|cx| Pin::new(&mut other).poll_read(cx, &mut buf)).await.unwrap();
        assert_eq!(buf.filled(), b"tokio");
        poll_fn(|cx| Pin::new(&mut other).poll_read(cx, &mut buf)).await.unwrap();
        assert_eq!(buf.filled(), b"tokio", "the end");
        one.into_inner();
    });
    assert_nothing_left(&s);
}

// ------------------------------------------------------------------ endings

#[test]
fn a_shutdown_wakes_who_waits() {
    let s = scheduler(2);
    let (one, _other) = run(&s, pair());
    let one = Arc::new(one);
    let reader = Arc::clone(&one);
    let (_, read) = spawn(&s, async move { reader.read(&mut [0; 8]).await });
    until("it waits", || s.registrations().socket_waiters == 1);
    one.shutdown(Shutdown::Both).unwrap();
    assert_eq!(recv(&read).unwrap(), 0);
    // A task that is ended while it waits; the socket goes on.
    let reader = Arc::clone(&one);
    let (pid, read) = spawn(&s, async move {
        let (listener, _) = listener().await;
        both(async { listener.accept().await.map(drop) }, reader.readable()).await
    });
    until("it waits", || s.registrations().socket_waiters == 1);
    kill(&s, pid);
    until("it has left", || s.registrations().socket_waiters == 0);
    assert!(read.recv_timeout(LIMIT).is_err(), "its future was dropped");
    assert!(one.take_error().unwrap().is_none());
}

/// A socket that outlives its scheduler says so instead of waiting for ever.
#[test]
fn who_waits_hears_of_the_end_of_the_scheduler() {
    let s = scheduler(2);
    let (one, other) = s.block_on(pair());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| s.block_on(one.read(&mut [0; 8])));
        until("it waits", || s.registrations().socket_waiters == 1);
        s.shutdown(LIMIT);
        let error = waits.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("has ended"), "{error}");
    });
    // What need not wait goes on.
    assert_eq!(other.try_write(b"x").unwrap(), 1);
    let error = s.block_on(pair_or_error()).unwrap_err();
    assert!(error.to_string().contains("has ended"), "{error}");
}

async fn pair_or_error() -> io::Result<()> {
    TcpListener::bind("127.0.0.1:0").await.map(drop)
}

/// FC-009, shortened: waits that are begun and given up, with and without a limit, while bytes come now and
/// then. The counts end at nothing.
#[test]
fn a_million_waits_leave_nothing() {
    const EACH: usize = 250_000;
    let s = Arc::new(scheduler(2));
    let (one, other) = run(&s, pair());
    let (one, other) = (Arc::new(one), Arc::new(other));
    let sent = Arc::new(AtomicU64::new(0));
    let got = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..4_u64)
        .map(|task| {
            let (one, other) = (Arc::clone(&one), Arc::clone(&other));
            let (sent, got) = (Arc::clone(&sent), Arc::clone(&got));
            spawn(&s, async move {
                let mut rng = Rng::new(task);
                let mut buf = [0; 16];
                for round in 0..EACH {
                    let limit = (rng.below(4) == 0).then_some(LIMIT);
                    one.set_read_limit(limit);
                    if rng.below(1000) == 0 && other.try_write(b"x").is_ok() {
                        sent.fetch_add(1, SeqCst);
                    }
                    if let Some(read) = glance(one.read(&mut buf)).await {
                        got.fetch_add(read.unwrap() as u64, SeqCst);
                    }
                    if round % 50 == 0 {
                        // A poll has a budget, beyond which nothing waits.
                        task::yield_now().await;
                    }
                }
            })
            .1
        })
        .collect();
    tasks.iter().for_each(recv);
    until("every byte is read", || {
        if let Ok(len) = one.try_read(&mut [0; 64]) {
            got.fetch_add(len as u64, SeqCst);
        }
        got.load(SeqCst) == sent.load(SeqCst)
    });
    let left = s.registrations();
    assert_eq!((left.descriptors, left.socket_waiters, left.timers), (2, 0, 0));
    drop((one, other));
    assert_nothing_left(&s);
}

/// Connections that end in every way at every moment. The oracle: what arrives is the beginning of what was
/// sent, and all of it where both ends went in good order.
#[test]
fn random_closes_lose_no_byte_of_who_stayed() {
    const CONNECTIONS: u64 = 400;

    fn byte(connection: u64, at: u64) -> u8 {
        (at.wrapping_mul(0x9E37_79B9) ^ connection.wrapping_mul(0x85EB_CA6B)) as u8
    }

    #[derive(Default)]
    struct Oracle {
        sent: Vec<AtomicU64>,
        got: Vec<AtomicU64>,
        has_ended: Vec<AtomicBool>,
    }

    let s = Arc::new(scheduler(3));
    let oracle = Arc::new(Oracle {
        sent: (0..CONNECTIONS).map(|_| AtomicU64::new(0)).collect(),
        got: (0..CONNECTIONS).map(|_| AtomicU64::new(0)).collect(),
        has_ended: (0..CONNECTIONS).map(|_| AtomicBool::new(false)).collect(),
    });
    let (address, receiver) = channel();
    let (weak, servers) = (Arc::downgrade(&s), Arc::clone(&oracle));
    let (server, _) = spawn(&s, async move {
        let (listener, addr) = listener().await;
        address.send(addr).unwrap();
        loop {
            let stream = listener.accept().await.unwrap().0;
            let (Some(s), oracle) = (weak.upgrade(), Arc::clone(&servers)) else { return };
            spawn(&s, async move {
                let mut number = [0; 8];
                if stream.read_exact(&mut number).await.is_err() {
                    return;
                }
                let connection = u64::from_le_bytes(number);
                let mut rng = Rng::new(connection + 10_000);
                let mut got = 0;
                let mut buf = vec![0; 1 + rng.below(8192) as usize];
                loop {
                    match stream.read(&mut buf).await {
                        Ok(0) => {
                            oracle.has_ended[connection as usize].store(true, SeqCst);
                            break;
                        }
                        Ok(len) => {
                            for &found in &buf[..len] {
                                assert_eq!(found, byte(connection, got), "connection {connection}");
                                got += 1;
                            }
                            oracle.got[connection as usize].store(got, SeqCst);
                        }
                        Err(_) => break,
                    }
                    // One in ten loses its patience.
                    if connection % 10 == 9 && rng.below(20) == 0 {
                        return;
                    }
                }
                // The client waits for it.
                let _ = stream.write_all(b".").await;
            });
        }
    });
    let addr = recv(&receiver);
    let mut clients = Vec::new();
    for connection in 0..CONNECTIONS {
        let oracle = Arc::clone(&oracle);
        clients.push(spawn(&s, async move {
            let mut rng = Rng::new(connection);
            let stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(&connection.to_le_bytes()).await.ok()?;
            let mut sent = 0;
            for _ in 0..rng.below(40) {
                let bytes: Vec<u8> = (0..rng.below(20_000)).map(|at| byte(connection, sent + at)).collect();
                stream.write_all(&bytes).await.ok()?;
                sent += bytes.len() as u64;
                oracle.sent[connection as usize].store(sent, SeqCst);
            }
            match connection % 5 {
                // In good order.
                0..=2 => {
                    stream.shutdown(Shutdown::Write).unwrap();
                    stream.read_exact(&mut [0]).await.ok()?;
                    Some(())
                }
                3 => {
                    stream.set_linger(Some(Duration::ZERO)).unwrap();
                    None
                }
                _ => None,
            }
        }));
        // Some are ended from outside, at any moment.
        if connection % 7 == 6 {
            kill(&s, clients[rng_place(connection)].0);
        }
    }
    let mut whole = 0;
    for (connection, (_, done)) in clients.iter().enumerate() {
        // An error: killed.
        let in_order = done.recv_timeout(LIMIT).ok().flatten().is_some();
        let (sent, got) = (&oracle.sent[connection], &oracle.got[connection]);
        if in_order {
            whole += 1;
            assert!(oracle.has_ended[connection].load(SeqCst));
            assert_eq!(got.load(SeqCst), sent.load(SeqCst), "connection {connection}");
        }
    }
    println!("{whole} of {CONNECTIONS} connections ended in good order");
    assert!(whole > CONNECTIONS / 4, "{whole}");
    kill(&s, server);
    until("all are closed", || s.registrations().descriptors == 0);
    assert_nothing_left(&s);
}

/// One of the clients so far, of those that are ended from outside.
fn rng_place(connection: u64) -> usize {
    Rng::new(connection).below(connection + 1) as usize
}

// ------------------------------------------------------------------ who polls

/// Without sockets there is no poller.
#[test]
fn nobody_polls_for_nothing() {
    let s = scheduler(2);
    crate::support::still_works(&s, 1000);
    let stats = s.stats();
    assert_eq!((stats.total().polls, stats.poller), (0, Default::default()), "{stats}");
}

/// Each worker has a process that is always ready.
#[test]
fn sockets_are_heard_while_all_workers_are_busy() {
    for workers in [1, 2] {
        let s = Arc::new(scheduler(workers));
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..2 * workers {
            let stop = Arc::clone(&stop);
            s.spawn(
                crate::support::process(move |_: &mut Events<'_>, out: &mut StepOutput<'_>| {
                    if stop.load(SeqCst) {
                        out.done(())
                    } else {
                        out.continue_soon()
                    }
                    Ok(())
                }),
                SpawnOptions::new(),
            )
            .unwrap();
        }
        let addr = echo_server(&s);
        let mut client = std::net::TcpStream::connect(addr).unwrap();
        client.set_nodelay(true).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        let began = Instant::now();
        for round in 0..200_u8 {
            client.write_all(&[round; 32]).unwrap();
            let mut back = [0; 32];
            client.read_exact(&mut back).unwrap();
            assert_eq!(back, [round; 32]);
        }
        println!("{workers} busy workers: {:?} a round", began.elapsed() / 200);
        stop.store(true, SeqCst);
    }
}

/// The worker that slept in the poller runs a step that does not end, the others sleep in their beds, and a
/// socket becomes ready. The step ends only when that socket was heard.
#[test]
fn a_socket_is_heard_while_the_last_poller_blocks() {
    let s = scheduler(2);
    let mut monitor_polls = 0;
    for _ in 0..20 {
        let (to_blocker, blocks) = run(&s, pair());
        let (to_hearer, hears) = run(&s, pair());
        let (heard, is_heard) = channel();
        let (began, has_begun) = channel();
        let (_, blocked) = spawn(&s, async move {
            blocks.read_exact(&mut [0]).await.unwrap();
            began.send(()).unwrap();
            // It blocks its worker.
            recv(&is_heard)
        });
        let (_, hearing) = spawn(&s, async move {
            hears.read_exact(&mut [0]).await.unwrap();
            heard.send(()).unwrap();
        });
        until("both wait", || s.registrations().socket_waiters == 2);
        until("all sleep", || s.stats().parked == 2);
        let before = s.stats().poller.monitor_polls;
        to_blocker.try_write(b"x").unwrap();
        recv(&has_begun);
        to_hearer.try_write(b"x").unwrap();
        recv(&hearing);
        recv(&blocked);
        monitor_polls += s.stats().poller.monitor_polls - before;
    }
    println!("the monitor polled {monitor_polls} times");
    assert!(monitor_polls > 0);
}

/// The first descriptor comes from outside while every worker sleeps in its bed.
#[test]
fn a_socket_made_outside_is_heard_by_sleepers() {
    for workers in [1, 2, 4] {
        let s = scheduler(workers);
        until("all sleep", || s.stats().parked == workers);
        let socket = s.block_on(UdpSocket::bind("127.0.0.1:0")).unwrap();
        let to = socket.local_addr().unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..20 {
            std::thread::scope(|scope| {
                let heard = scope.spawn(|| s.block_on(socket.recv_from(&mut [0; 8])).unwrap().0);
                until("it waits", || s.registrations().socket_waiters == 1);
                sender.send_to(b"x", to).unwrap();
                assert_eq!(heard.join().unwrap(), 1);
            });
        }
        drop(socket);
        assert_nothing_left(&s);
    }
}

/// A worker that sleeps in the poller is woken for messages and for its timers as from any sleep.
#[test]
fn who_sleeps_in_the_poller_hears_everything_else() {
    let s = scheduler(1);
    let _socket = s.block_on(UdpSocket::bind("127.0.0.1:0")).unwrap();
    let mut rng = Rng::new(5);
    for round in 0..2000 {
        if rng.below(4) == 0 {
            until("it sleeps", || s.stats().parked == 1);
        }
        if round % 50 == 0 {
            let began = Instant::now();
            let limit = Duration::from_millis(1);
            run(&s, async move {
                let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let stream = TcpStream::connect(socket.local_addr().unwrap()).await.unwrap();
                stream.set_read_limit(Some(limit));
                assert_eq!(stream.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::TimedOut);
            });
            assert!(began.elapsed() >= limit, "too early");
        }
        crate::support::still_works(&s, 1);
    }
    let stats = s.stats();
    assert!(stats.poller.rings > 0, "{stats}");
}

// ------------------------------------------------------------------ programs of their own

#[cfg(target_os = "linux")]
#[test]
fn a_listener_pauses_while_there_are_no_descriptors() {
    in_a_program_of_its_own("net::few_descriptors_apart");
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "run by a_listener_pauses_while_there_are_no_descriptors, in a program of its own"]
fn few_descriptors_apart() {
    const CLIENTS: usize = 20;
    let s = Arc::new(scheduler(2));
    let (listener, addr) = s.block_on(listener());
    let clients: Vec<_> = (0..CLIENTS).map(|_| std::net::TcpStream::connect(addr).unwrap()).collect();
    // Room for five more.
    let next = std::fs::File::open("/dev/null").unwrap();
    let free = std::os::fd::AsRawFd::as_raw_fd(&next);
    drop(next);
    let limit = libc::rlimit { rlim_cur: free as u64 + 5, rlim_max: 10_000 };
    // SAFETY: the limit is alive.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    let (accepted, streams) = channel();
    let (_, done) = spawn(&s, async move {
        for _ in 0..CLIENTS {
            accepted.send(listener.accept().await.unwrap().0).unwrap();
        }
    });
    let mut held: Vec<_> = (0..5).map(|_| recv(&streams)).collect();
    until("it pauses", || s.stats().poller.accept_pauses >= 4);
    assert!(streams.try_recv().is_err(), "there was a descriptor left");
    // Each one that goes makes room for one.
    for _ in 5..CLIENTS {
        held.remove(0);
        held.push(recv(&streams));
    }
    recv(&done);
    drop(clients);
}

/// FC-012: the program stands still again and again under load, and each time sockets and timers go on. So often
/// and so long as `EVENER_STOPS` and `EVENER_STOP_MILLIS` say; with the first set they must go on within 500 ms.
#[cfg(unix)]
#[test]
fn a_program_that_was_stopped_goes_on() {
    use std::io::BufRead;
    let stops = crate::support::from_env("EVENER_STOPS", 5);
    let pause = Duration::from_millis(crate::support::from_env("EVENER_STOP_MILLIS", 300));
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "net::stopped_apart", "--nocapture"])
        .stdout(std::process::Stdio::piped())
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, receiver) = channel();
    let reads = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let pid = child.id() as libc::pid_t;
    let signal = |signal| {
        // SAFETY: no memory is involved; the child is ours and has not been waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    };
    // Till each of its workings has said something.
    let both_work = || {
        for word in ["echoed", "ticked", "timed out"] {
            while !recv(&receiver).contains(word) {}
        }
    };
    let mut slowest = Duration::ZERO;
    for _ in 0..stops {
        both_work();
        signal(libc::SIGSTOP);
        std::thread::sleep(pause);
        while receiver.try_recv().is_ok() {}
        signal(libc::SIGCONT);
        let began = Instant::now();
        both_work();
        slowest = slowest.max(began.elapsed());
    }
    println!("{stops} stops of {pause:?}: went on after at most {slowest:?}");
    if std::env::var_os("EVENER_STOPS").is_some() {
        assert!(slowest < Duration::from_millis(500), "{slowest:?}");
    }
    drop(child.stdin.take());
    until("it ends", || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success());
    reads.join().unwrap();
}

#[cfg(unix)]
#[test]
#[ignore = "run by a_program_that_was_stopped_goes_on, in a program of its own"]
fn stopped_apart() {
    let s = Arc::new(scheduler(2));
    let addr = echo_server(&s);
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks: Vec<_> = (0..16)
        .map(|client: u8| {
            let stop = Arc::clone(&stop);
            spawn(&s, async move {
                let stream = TcpStream::connect(addr).await.unwrap();
                // Limits, so that timers are at work as well.
                stream.set_read_limit(Some(LIMIT));
                let mut echoed = 0_u64;
                while !stop.load(SeqCst) {
                    stream.write_all(&[client; 64]).await.unwrap();
                    let mut back = [0; 64];
                    stream.read_exact(&mut back).await.unwrap();
                    assert_eq!(back, [client; 64]);
                    echoed += 1;
                    if client == 0 && echoed.is_multiple_of(100) {
                        println!("echoed {echoed}");
                    }
                }
            })
            .1
        })
        .collect();
    // A timer alone, and one at a socket that stays silent.
    let ended = Arc::clone(&stop);
    tasks.push(
        spawn(&s, async move {
            while !ended.load(SeqCst) {
                evener_scheduler::time::sleep(Duration::from_millis(5)).await;
                println!("ticked");
            }
        })
        .1,
    );
    let ended = Arc::clone(&stop);
    tasks.push(
        spawn(&s, async move {
            let (one, _other) = pair().await;
            one.set_read_limit(Some(Duration::from_millis(5)));
            while !ended.load(SeqCst) {
                assert_eq!(one.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::TimedOut);
                println!("timed out");
            }
        })
        .1,
    );
    // Till the parent closes its end.
    let _ = io::stdin().read(&mut [0]);
    stop.store(true, SeqCst);
    tasks.iter().for_each(recv);
    println!("{:?}", s.stats().poller);
}

#[cfg(target_os = "linux")]
#[test]
fn ten_thousand_idle_connections_cost_nothing() {
    in_a_program_of_its_own("net::idle_connections_apart");
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "run by ten_thousand_idle_connections_cost_nothing, in a program of its own"]
fn idle_connections_apart() {
    use evener_scheduler::net::UnixStream;
    const SPAN: Duration = Duration::from_secs(3);
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the place for the answer is alive.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the limit is alive.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    let connections = 10_000.min(limit.rlim_max as usize / 2 - 50);
    let s = scheduler(8);
    let (held, ends) = channel();
    let tasks: Vec<_> = (0..connections)
        .map(|_| {
            let held = held.clone();
            spawn(&s, async move {
                let (one, other) = UnixStream::pair().unwrap();
                held.send(other).unwrap();
                one.read(&mut [0; 8]).await.unwrap()
            })
            .1
        })
        .collect();
    let ends: Vec<_> = (0..connections).map(|_| recv(&ends)).collect();
    until("all wait", || s.registrations().socket_waiters == connections);
    until("all sleep", || s.stats().parked == 8);
    // Long enough for the monitor to see it, too.
    std::thread::sleep(Duration::from_millis(500));
    let spent = || {
        // SAFETY: zeroes are a value of it, and the place for the answer is alive.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) }, 0);
        let of = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
        (of(usage.ru_utime) + of(usage.ru_stime), usage.ru_nvcsw)
    };
    let (time, switches) = spent();
    std::thread::sleep(SPAN);
    let (time_after, switches_after) = spent();
    let part = (time_after - time).as_secs_f64() / SPAN.as_secs_f64() * 100.0;
    let switches = switches_after - switches;
    println!("{connections} idle connections: {part:.3} % of a core, {switches} times off the processor");
    assert!(part < 0.5, "{part} % of a core for nothing");
    assert!(switches < 60, "{switches} wakes in three idle seconds");
    ends.iter().for_each(|end| assert_eq!(end.try_write(b"!").unwrap(), 1));
    tasks.iter().for_each(|done| assert_eq!(recv(done), 1));
    drop(ends);
    assert_nothing_left(&s);
}

/// More sockets than a worker's queue has places: none is served over and over before another.
#[cfg(unix)]
#[test]
fn a_thousand_busy_sockets_are_served_in_turn() {
    const SOCKETS: usize = 1000;
    const ROUNDS: u64 = 60;
    let s = Scheduler::builder().workers(1).spares(0).start().unwrap();
    let mut ours = Vec::new();
    for _ in 0..SOCKETS {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        ours.push(one);
        let stream = s.block_on(async { evener_scheduler::net::UnixStream::from_std(other) }).unwrap();
        s.spawn_task(async move {
            let mut byte = [0];
            while let Ok(1) = stream.read(&mut byte).await {
                if stream.write(&byte).await.is_err() {
                    return;
                }
            }
        })
        .detach();
    }
    // Each socket has one byte under way; who gets it back sends it again, so that nearly all are ready.
    let mut served = vec![0_u64; SOCKETS];
    ours.iter().for_each(|one| assert_eq!((&*one).write(&[1]).unwrap(), 1));
    let mut byte = [0];
    while served.iter().sum::<u64>() < SOCKETS as u64 * ROUNDS {
        for (one, count) in ours.iter().zip(&mut served) {
            if let Ok(1) = (&*one).read(&mut byte) {
                *count += 1;
                assert_eq!((&*one).write(&[1]).unwrap(), 1);
            }
        }
    }
    served.sort_unstable();
    println!(
        "served: {} {} {} {}",
        served[0],
        served[SOCKETS / 100],
        served[SOCKETS / 2],
        served[SOCKETS - 1]
    );
    // In turn each gets what this thread, which passes by them all, has asked for.
    assert!(served[0] >= ROUNDS * 5 / 6, "{:?}", (served[0], served[SOCKETS / 2], served[SOCKETS - 1]));
}

/// Who stands in for a worker may sleep in the poller when it is recalled: then nobody else is there.
#[test]
fn a_spare_leaves_the_poller_to_somebody() {
    const ROUNDS: usize = 20;
    let s = scheduler(1);
    let (tell, told) = channel();
    let (heard, hears) = channel();
    spawn(&s, async move {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        tell.send(socket.local_addr().unwrap()).unwrap();
        while let Ok((len, _)) = socket.recv_from(&mut [0; 8]).await {
            heard.send(len).unwrap();
        }
    });
    let to = recv(&told);
    let from = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let before = s.stats().poller;
    for _ in 0..ROUNDS {
        let (done, ends) = channel();
        s.spawn_once(move |out| {
            // Left behind for a spare, which then finds nothing more and sleeps in the poller.
            out.spawn_once(|_| {}).unwrap();
            evener_scheduler::blocking(|| std::thread::sleep(Duration::from_millis(20)));
            done.send(()).unwrap();
        })
        .unwrap();
        recv(&ends);
        until("all sleep", || s.stats().parked == 1 && s.stats().spares.standing_in == 0);
        from.send_to(&[1], to).unwrap();
        assert_eq!(recv(&hears), 1);
    }
    // The watchdog would have come, too, after 200 ms; it may, now and then, on a busy machine.
    let after = s.stats().poller;
    let repaired = after.monitor_polls - before.monitor_polls + after.repairs - before.repairs;
    assert!(
        repaired <= ROUNDS as u64 / 4,
        "{repaired} of {ROUNDS} sockets were heard by the watchdog: {after:?}"
    );
}

/// The kernel ends a read before urgent bytes, and before a descriptor that was passed along, though more is there.
#[cfg(unix)]
#[test]
fn a_short_read_is_not_always_the_end_of_what_is_there() {
    use std::os::fd::AsRawFd;
    let s = scheduler(1);
    s.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        peer.write_all(b"abc").unwrap();
        // SAFETY: an open socket, and a byte that lives.
        let sent = unsafe { libc::send(peer.as_raw_fd(), b"x".as_ptr().cast(), 1, libc::MSG_OOB) };
        assert_eq!(sent, 1);
        peer.write_all(b"def").unwrap();
        let mut all = Vec::new();
        let mut buf = [0; 100];
        while all.len() < 6 {
            let count = evener_scheduler::time::timeout(LIMIT, stream.read(&mut buf))
                .await
                .expect("it is there")
                .unwrap();
            all.extend_from_slice(&buf[..count]);
        }
        assert_eq!(all, b"abcdef");
    });
}

/// A worker with more than enough to do polls all the same.
#[cfg(unix)]
#[test]
fn a_socket_is_heard_beside_tasks_that_yield_all_the_time() {
    const TRIPS: u64 = 200;
    let s = Scheduler::builder().workers(1).spares(0).start().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..400 {
        let stop = Arc::clone(&stop);
        s.spawn_task(async move {
            while !stop.load(SeqCst) {
                task::yield_now().await;
            }
        })
        .detach();
    }
    let before = s.stats().poller.monitor_polls;
    run(&s, async move {
        let (one, other) = evener_scheduler::net::UnixStream::pair().unwrap();
        task::spawn(async move {
            let mut byte = [0];
            while let Ok(1) = other.read(&mut byte).await {
                other.write_all(&byte).await.unwrap();
            }
        })
        .detach();
        let mut byte = [0];
        for _ in 0..TRIPS {
            one.write_all(&[1]).await.unwrap();
            one.read_exact(&mut byte).await.unwrap();
        }
    });
    let by_monitor = s.stats().poller.monitor_polls - before;
    stop.store(true, SeqCst);
    // Two events for each trip.
    assert!(by_monitor < TRIPS, "the monitor polled {by_monitor} times in {TRIPS} trips");
}

/// Who pauses, without being in a socket's list, is told of the scheduler's end as well.
#[cfg(target_os = "linux")]
#[test]
fn a_pause_ends_with_the_scheduler() {
    use std::os::fd::AsRawFd;
    let path = std::env::temp_dir().join(format!("evener-pause-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    // SAFETY: an open socket.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let _first = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let s = Arc::new(scheduler(1));
    let (tell, told) = channel();
    let connecting = {
        let (s, path) = (Arc::clone(&s), path.clone());
        std::thread::spawn(move || {
            let connected = s.block_on(evener_scheduler::net::UnixStream::connect(&path));
            tell.send(connected.map(drop)).unwrap();
        })
    };
    until("it pauses", || s.registrations().timers == 1);
    s.shutdown(LIMIT);
    assert_eq!(recv(&told).expect_err("nobody accepts").kind(), ErrorKind::Other);
    connecting.join().unwrap();
    std::fs::remove_file(&path).unwrap();
}
