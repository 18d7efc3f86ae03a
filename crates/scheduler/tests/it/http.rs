//! hyper on evener, client and server: connections are kept, limits hold, bodies wait for their readers, who
//! goes away leaves nothing behind, and the end is an orderly one.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use evener_scheduler::hyper::{EvenerExecutor, EvenerTimer, HyperIo};
use evener_scheduler::net::{TcpListener, TcpStream};
use evener_scheduler::{Scheduler, channel as async_channel, task, time};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::rt::{Executor, Read, ReadBuf, Timer, Write};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, client, server};

use crate::support::{LIMIT, ON_PURPOSE, assert_nothing_left, recv, scheduler};

/// The server of the example.
#[path = "../../examples/http.rs"]
pub(crate) mod example;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

// ------------------------------------------------------------------ tools

/// Runs a future on the scheduler's workers, and waits for it.
#[track_caller]
fn run<T: Send + 'static>(s: &Scheduler, future: impl Future<Output = T> + Send + 'static) -> T {
    s.spawn_task(future).wait(Some(LIMIT)).unwrap_or_else(|error| panic!("{error}"))
}

/// The example's server.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    stop: async_channel::Sender<()>,
    done: Receiver<()>,
}

impl Server {
    pub(crate) fn start(s: &Scheduler, head_max: Duration) -> Self {
        let (told, addr) = channel();
        let (ended, done) = channel();
        let (stop, stopped) = async_channel::bounded(1);
        s.spawn_task(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            told.send(listener.local_addr().unwrap()).unwrap();
            example::serve(listener, head_max, async move {
                let _ = stopped.recv().await;
            })
            .await;
            ended.send(()).unwrap();
        })
        .detach();
        Self { addr: recv(&addr), stop, done }
    }

    /// Asks it to end, and waits till it has.
    #[track_caller]
    pub(crate) fn end(self) {
        drop(self.stop);
        recv(&self.done);
    }
}

/// A connection and its other end.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let connecting = task::spawn(TcpStream::connect(addr));
    let accepted = listener.accept().await.unwrap().0;
    (connecting.await.unwrap().unwrap(), accepted)
}

/// A client of HTTP/1 whose connection is a task of its own.
async fn client_of<B>(
    stream: impl Read + Write + Unpin + Send + 'static,
) -> client::conn::http1::SendRequest<B>
where
    B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>, Data: Send> + Send + 'static,
{
    let (sender, connection) = client::conn::http1::handshake(stream).await.unwrap();
    task::spawn(async move {
        // Who drops the sender, or loses the server on purpose, does not ask.
        let _ = connection.await;
    })
    .detach();
    sender
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(path).header("host", "localhost").body(Empty::new()).unwrap()
}

fn post<B>(path: &str, body: B) -> Request<B> {
    Request::post(path).header("host", "localhost").body(body).unwrap()
}

async fn bytes_of(response: Response<Incoming>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(b"hello"))))
}

/// Reads till the end of the stream, or till it breaks.
async fn read_all(stream: &TcpStream) -> String {
    let (mut all, mut buf) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut buf).await {
        all.extend_from_slice(&buf[..read]);
    }
    String::from_utf8(all).unwrap()
}

// ------------------------------------------------------------------ HTTP/1

#[test]
fn a_connection_is_kept_for_many_requests() {
    for workers in [1, 2] {
        let s = scheduler(workers);
        run(&s, async {
            let (ours, theirs) = pair().await;
            let served = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&served);
            let server =
                task::spawn(server::conn::http1::Builder::new().timer(EvenerTimer).serve_connection(
                    theirs,
                    service_fn(move |request: Request<Incoming>| {
                        count.fetch_add(1, SeqCst);
                        async move { Ok::<_, Infallible>(Response::new(request.into_body())) }
                    }),
                ));
            let mut client = client_of(ours).await;
            for round in 0..200_usize {
                let sent: Bytes = (0..round * 53).map(|at| (at * 7 + round) as u8).collect();
                client.ready().await.unwrap();
                let response = client.send_request(post("/", Full::new(sent.clone()))).await.unwrap();
                assert_eq!(bytes_of(response).await, sent);
            }
            assert_eq!(served.load(SeqCst), 200);
            drop(client);
            server.await.unwrap().unwrap();
        });
        assert_nothing_left(&s);
    }
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let s = scheduler(2);
    run(&s, async {
        let (ours, theirs) = pair().await;
        let service = service_fn(|request: Request<Incoming>| async move {
            // The first takes longest.
            if request.uri().path() == "/0" {
                time::sleep(Duration::from_millis(20)).await;
            }
            Ok::<_, Infallible>(Response::new(request.uri().path().to_owned()))
        });
        let server = task::spawn(
            server::conn::http1::Builder::new().pipeline_flush(true).serve_connection(theirs, service),
        );
        let mut requests: String = (0..20).map(|n| format!("GET /{n} HTTP/1.1\r\n\r\n")).collect();
        requests.push_str("GET /last HTTP/1.1\r\nconnection: close\r\n\r\n");
        ours.write_all(requests.as_bytes()).await.unwrap();
        let answers = read_all(&ours).await;
        let bodies: Vec<_> = answers.split("\r\n\r\n").skip(1).collect();
        assert_eq!(bodies.len(), 21, "{answers}");
        for (n, body) in bodies.iter().take(20).enumerate() {
            assert!(body.starts_with(&format!("/{n}HTTP/1.1 200")), "{body}");
        }
        assert_eq!(bodies[20], "/last");
        server.await.unwrap().unwrap();
    });
    assert_nothing_left(&s);
}

#[test]
fn the_limit_for_the_head_ends_a_slow_client() {
    let s = scheduler(2);
    // In the middle of its first head; and after a request, in that of its second.
    for first in ["", "GET / HTTP/1.1\r\n\r\n"] {
        run(&s, async move {
            let (ours, theirs) = pair().await;
            let limit = Duration::from_millis(50);
            let began = Instant::now();
            let server = task::spawn(
                server::conn::http1::Builder::new()
                    .timer(EvenerTimer)
                    .header_read_timeout(limit)
                    .serve_connection(theirs, service_fn(hello)),
            );
            ours.write_all(format!("{first}GET / HT").as_bytes()).await.unwrap();
            let answers = read_all(&ours).await;
            assert_eq!(answers.matches("HTTP/1.1 200").count(), usize::from(!first.is_empty()), "{answers}");
            let error = server.await.unwrap().unwrap_err();
            assert!(error.is_timeout(), "{error:?}");
            assert!(began.elapsed() >= limit, "{:?}", began.elapsed());
        });
    }
    assert_nothing_left(&s);
}

#[test]
fn a_client_that_keeps_to_the_limit_is_served() {
    let s = scheduler(1);
    run(&s, async {
        let (ours, theirs) = pair().await;
        let server = task::spawn(
            server::conn::http1::Builder::new()
                .timer(EvenerTimer)
                .header_read_timeout(LONG)
                .serve_connection(theirs, service_fn(hello)),
        );
        for byte in b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n" {
            ours.write_all(&[*byte]).await.unwrap();
            time::sleep(Duration::from_micros(100)).await;
        }
        assert!(read_all(&ours).await.starts_with("HTTP/1.1 200"));
        server.await.unwrap().unwrap();
    });
    assert_nothing_left(&s);
}

#[test]
fn a_client_that_has_ended_its_writing_is_answered() {
    let s = scheduler(1);
    run(&s, async {
        let (ours, theirs) = pair().await;
        let slow = service_fn(|_: Request<Incoming>| async {
            time::sleep(Duration::from_millis(20)).await;
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"late"))))
        });
        let server =
            task::spawn(server::conn::http1::Builder::new().half_close(true).serve_connection(theirs, slow));
        ours.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        let answer = read_all(&ours).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("late"), "{answer}");
        server.await.unwrap().unwrap();
    });
    assert_nothing_left(&s);
}

#[test]
fn a_panic_of_a_service_ends_its_connection_alone() {
    let s = scheduler(1);
    run(&s, async {
        let panics = service_fn(|request: Request<Incoming>| async move {
            assert!(request.uri().path() != "/panic", "{ON_PURPOSE}");
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello"))))
        });
        let (one, its_server) = pair().await;
        let (other, others_server) = pair().await;
        let one_ends = task::spawn(server::conn::http1::Builder::new().serve_connection(its_server, panics));
        let other_ends =
            task::spawn(server::conn::http1::Builder::new().serve_connection(others_server, panics));
        let (mut one, mut other) = (client_of(one).await, client_of(other).await);
        assert!(one.send_request(get("/panic")).await.is_err());
        assert!(one_ends.await.unwrap_err().is_panic());
        assert_eq!(bytes_of(other.send_request(get("/")).await.unwrap()).await, "hello");
        drop(other);
        other_ends.await.unwrap().unwrap();
    });
    assert_nothing_left(&s);
}

#[test]
fn an_upgrade_gives_the_stream_back() {
    let s = scheduler(2);
    run(&s, async {
        let (ours, theirs) = pair().await;
        let service = service_fn(|mut request: Request<Incoming>| {
            let upgrading = hyper::upgrade::on(&mut request);
            task::spawn(async move {
                let parts = upgrading.await.unwrap().downcast::<TcpStream>().unwrap();
                let stream = parts.io;
                stream.write_all(&parts.read_buf).await.unwrap();
                let mut buf = [0; 64];
                while let Ok(read @ 1..) = stream.read(&mut buf).await {
                    stream.write_all(&buf[..read]).await.unwrap();
                }
            })
            .detach();
            let mut response = Response::new(Empty::<Bytes>::new());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            response.headers_mut().insert("upgrade", "echo".parse().unwrap());
            async { Ok::<_, Infallible>(response) }
        });
        task::spawn(server::conn::http1::Builder::new().serve_connection(theirs, service).with_upgrades())
            .detach();
        ours.write_all(b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\nearly").await.unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        let answer = read_all(&ours).await;
        assert!(answer.starts_with("HTTP/1.1 101") && answer.ends_with("\r\n\r\nearly"), "{answer}");
    });
    assert_nothing_left(&s);
}

// ------------------------------------------------------------------ bodies

/// Frames of 64 KiB, counted as they are asked for; and how many were dropped with the body.
struct Frames {
    left: usize,
    made: Arc<AtomicUsize>,
    _alive: async_channel::Sender<()>,
}

const FRAME: usize = 64 * 1024;

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        let nth = self.made.fetch_add(1, SeqCst);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![nth as u8; FRAME])))))
    }
}

/// A server that answers with that many frames; their count, and a channel that ends with the body.
fn frames(
    theirs: TcpStream,
    left: usize,
    is_http2: bool,
) -> (Arc<AtomicUsize>, async_channel::Receiver<()>, task::JoinHandle<Result<(), hyper::Error>>) {
    let made = Arc::new(AtomicUsize::new(0));
    let (alive, ended) = async_channel::bounded(1);
    let count = Arc::clone(&made);
    let service = service_fn(move |_: Request<Incoming>| {
        let body = Frames { left, made: Arc::clone(&count), _alive: alive.clone() };
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    let server = if is_http2 {
        task::spawn(server::conn::http2::Builder::new(EvenerExecutor).serve_connection(theirs, service))
    } else {
        task::spawn(server::conn::http1::Builder::new().serve_connection(theirs, service))
    };
    (made, ended, server)
}

/// What may lie between who makes a body and who reads it: the buffers of hyper and of both sockets.
const BETWEEN_MAX: usize = 24 << 20;

#[test]
fn a_body_waits_for_its_reader() {
    const COUNT: usize = 1024;
    for is_http2 in [false, true] {
        let s = scheduler(2);
        run(&s, async move {
            let (ours, theirs) = pair().await;
            let (made, _, server) = frames(theirs, COUNT, is_http2);
            let (response, sender) = if is_http2 {
                let (mut sender, connection) =
                    client::conn::http2::handshake(EvenerExecutor, ours).await.unwrap();
                task::spawn(connection).detach();
                (sender.send_request(get("http://localhost/")).await.unwrap(), Err(sender))
            } else {
                let mut sender = client_of(ours).await;
                (sender.send_request(get("/")).await.unwrap(), Ok(sender))
            };
            // Nobody reads. It makes what there is room for, and stops.
            let mut seen = (0, 0);
            while seen.1 < 20 {
                time::sleep(Duration::from_millis(10)).await;
                let now = made.load(SeqCst);
                seen = if now == seen.0 { (now, seen.1 + 1) } else { (now, 0) };
            }
            assert!(seen.0 < COUNT, "the whole body was made, and nobody has read of it");
            let (mut body, mut received) = (response.into_body(), 0);
            while let Some(frame) = body.frame().await {
                // A piece of one frame of the server's, or of two.
                let mut data = frame.unwrap().into_data().unwrap();
                while !data.is_empty() {
                    let piece = data.split_to(data.len().min(FRAME - received % FRAME));
                    let byte = (received / FRAME) as u8;
                    assert!(piece.iter().all(|found| *found == byte), "after {received} bytes");
                    received += piece.len();
                }
                let ahead = made.load(SeqCst) * FRAME - received;
                assert!(ahead < BETWEEN_MAX, "{ahead} bytes ahead of the reader");
            }
            assert_eq!(received, COUNT * FRAME);
            drop((body, sender));
            server.await.unwrap().unwrap();
        });
        assert_nothing_left(&s);
    }
}

#[test]
fn a_client_that_goes_away_in_the_middle_ends_the_body() {
    for is_http2 in [false, true] {
        let s = scheduler(2);
        run(&s, async move {
            let (ours, theirs) = pair().await;
            let (made, ended, server) = frames(theirs, usize::MAX, is_http2);
            if is_http2 {
                let (mut sender, connection) =
                    client::conn::http2::handshake(EvenerExecutor, ours).await.unwrap();
                let connection = task::spawn(connection);
                let response = sender.send_request(get("http://localhost/")).await.unwrap();
                response.into_body().frame().await.unwrap().unwrap();
                connection.abort();
                let _ = connection.await;
            } else {
                ours.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
                let mut buf = vec![0; FRAME];
                ours.read_exact(&mut buf).await.unwrap();
                drop(ours);
            }
            // The server's task ends, and the service with its body.
            let _ = server.await.unwrap();
            assert!(ended.recv().await.is_err() && made.load(SeqCst) > 0);
        });
        assert_nothing_left(&s);
    }
}

// ------------------------------------------------------------------ HTTP/2

#[test]
fn a_hundred_streams_of_one_connection_are_served_at_once() {
    const STREAMS: usize = 100;
    for workers in [1, 2] {
        let s = scheduler(workers);
        run(&s, async {
            let (ours, theirs) = pair().await;
            // Each is answered when all have come.
            let (come, all_come) = (Arc::new(AtomicUsize::new(0)), async_channel::unbounded::<()>());
            let (go, wait) = all_come;
            let go = Arc::new(std::sync::Mutex::new(Some(go)));
            let service = service_fn(move |request: Request<Incoming>| {
                let (come, go, wait) = (Arc::clone(&come), Arc::clone(&go), wait.clone());
                async move {
                    if come.fetch_add(1, SeqCst) + 1 == STREAMS {
                        go.lock().unwrap().take();
                    }
                    assert!(wait.recv().await.is_err());
                    Ok::<_, Infallible>(Response::new(request.into_body()))
                }
            });
            let server = task::spawn(
                server::conn::http2::Builder::new(EvenerExecutor)
                    .timer(EvenerTimer)
                    .serve_connection(theirs, service),
            );
            let (sender, connection) = client::conn::http2::Builder::new(EvenerExecutor)
                .timer(EvenerTimer)
                .keep_alive_interval(Duration::from_millis(5))
                .keep_alive_timeout(LONG)
                .keep_alive_while_idle(true)
                .handshake(ours)
                .await
                .unwrap();
            let connection = task::spawn(connection);
            let requests: Vec<_> = (0..STREAMS)
                .map(|n| {
                    let mut sender = sender.clone();
                    task::spawn(async move {
                        let sent = Bytes::from(vec![n as u8; n * 1000]);
                        let request = post("http://localhost/", Full::new(sent.clone()));
                        let response = sender.send_request(request).await.unwrap();
                        assert_eq!(bytes_of(response).await, sent);
                    })
                })
                .collect();
            for request in requests {
                request.await.unwrap();
            }
            drop(sender);
            connection.await.unwrap().unwrap();
            server.await.unwrap().unwrap();
        });
        assert_nothing_left(&s);
    }
}

#[test]
fn a_peer_that_answers_no_ping_is_given_up() {
    let s = scheduler(1);
    run(&s, async {
        let (ours, theirs) = pair().await;
        let server = task::spawn(
            server::conn::http2::Builder::new(EvenerExecutor)
                .timer(EvenerTimer)
                .keep_alive_interval(Duration::from_millis(20))
                .keep_alive_timeout(Duration::from_millis(20))
                .serve_connection(theirs, service_fn(hello)),
        );
        // Its preface, empty settings, and not a word more.
        ours.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let error = server.await.unwrap().unwrap_err();
        assert!(error.is_timeout(), "{error:?}");
    });
    assert_nothing_left(&s);
}

// ------------------------------------------------------------------ the example

#[test]
fn the_end_closes_the_idle_and_answers_the_others() {
    let s = scheduler(2);
    let server = Server::start(&s, LONG);
    let addr = server.addr;
    let (told, ready) = channel();
    let clients = s.spawn_task(async move {
        let mut idle = client_of(TcpStream::connect(addr).await.unwrap()).await;
        assert_eq!(bytes_of(idle.send_request(get("/")).await.unwrap()).await, "Hello, World!\n");
        let (mut idle2, connection) =
            client::conn::http2::handshake(EvenerExecutor, TcpStream::connect(addr).await.unwrap())
                .await
                .unwrap();
        let idle2_ends = task::spawn(connection);
        let response = idle2.send_request(get("http://localhost/")).await.unwrap();
        assert_eq!(bytes_of(response).await, "Hello, World!\n");
        // One that has sent half a body.
        let busy = TcpStream::connect(addr).await.unwrap();
        busy.write_all(b"POST /echo HTTP/1.1\r\ncontent-length: 8\r\n\r\nhalf").await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"half") {
            let mut buf = [0; 256];
            let read = busy.read(&mut buf).await.unwrap();
            head.extend_from_slice(&buf[..read]);
        }
        told.send(()).unwrap();
        // Both idle ones are closed, while the third is still served.
        idle2_ends.await.unwrap().unwrap();
        while idle.ready().await.is_ok() {
            time::sleep(Duration::from_millis(1)).await;
        }
        busy.write_all(b"rest").await.unwrap();
        assert_eq!(read_all(&busy).await, "rest");
        assert!(TcpStream::connect(addr).await.is_err(), "nobody listens any more");
    });
    recv(&ready);
    server.end();
    clients.wait(Some(LIMIT)).unwrap();
    assert_nothing_left(&s);
}

#[test]
fn a_client_that_does_not_show_its_version_is_ended() {
    let s = scheduler(1);
    let limit = Duration::from_millis(50);
    let server = Server::start(&s, limit);
    let addr = server.addr;
    run(&s, async move {
        for says in ["", "P", "PRI * HTTP/2.0\r\n", "GET / HTTP/1.1\r\nx:"] {
            let began = Instant::now();
            let stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(says.as_bytes()).await.unwrap();
            assert_eq!(read_all(&stream).await, "", "{says:?}");
            assert!(began.elapsed() >= limit, "{says:?} was ended after {:?}", began.elapsed());
        }
    });
    server.end();
    assert_nothing_left(&s);
}

// ------------------------------------------------------------------ the parts

#[test]
fn a_stream_keeps_what_a_buffer_has_and_ends_one_direction() {
    let s = scheduler(1);
    run(&s, async {
        let (mut ours, theirs) = pair().await;
        assert!(ours.is_write_vectored());
        let two = [IoSlice::new(b"one "), IoSlice::new(b"two")];
        let written = poll_fn(|cx| Write::poll_write_vectored(Pin::new(&mut ours), cx, &two)).await.unwrap();
        assert_eq!(written, 7);
        poll_fn(|cx| Write::poll_flush(Pin::new(&mut ours), cx)).await.unwrap();
        poll_fn(|cx| Write::poll_shutdown(Pin::new(&mut ours), cx)).await.unwrap();
        assert_eq!(read_all(&theirs).await, "one two");
        // The other direction is still open.
        theirs.write_all(b"answer").await.unwrap();
        drop(theirs);
        let mut memory = [std::mem::MaybeUninit::uninit(); 16];
        let mut buf = ReadBuf::uninit(&mut memory);
        buf.unfilled().put_slice(b"kept ");
        loop {
            let before = buf.filled().len();
            poll_fn(|cx| Read::poll_read(Pin::new(&mut ours), cx, buf.unfilled())).await.unwrap();
            if buf.filled().len() == before {
                break;
            }
        }
        assert_eq!(buf.filled(), b"kept answer");
    });
    assert_nothing_left(&s);
}

#[cfg(unix)]
#[test]
fn hyper_takes_unix_streams_and_whatever_has_other_traits() {
    use evener_scheduler::net::UnixStream;
    let s = scheduler(1);
    run(&s, async {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let server =
            task::spawn(server::conn::http1::Builder::new().serve_connection(theirs, service_fn(hello)));
        // By way of the traits of futures-io.
        let mut client = client_of(HyperIo(ours)).await;
        assert_eq!(bytes_of(client.send_request(get("/")).await.unwrap()).await, "hello");
        drop(client);
        server.await.unwrap().unwrap();
    });
    assert_nothing_left(&s);
}

#[test]
fn a_timer_is_set_anew_in_its_place() {
    let s = scheduler(1);
    run(&s, async {
        let began = Instant::now();
        let mut sleep = EvenerTimer.sleep(LONG);
        let place = (&raw const *sleep).cast::<()>().addr();
        let armed = poll_fn(|cx| Poll::Ready(sleep.as_mut().poll(cx))).await;
        assert!(armed.is_pending());
        EvenerTimer.reset(&mut sleep, began + Duration::from_millis(10));
        assert_eq!((&raw const *sleep).cast::<()>().addr(), place);
        sleep.await;
        assert!(began.elapsed() >= Duration::from_millis(10));
        // Another's is exchanged.
        struct Never;
        impl Future for Never {
            type Output = ();
            fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
                Poll::Pending
            }
        }
        impl hyper::rt::Sleep for Never {}
        let mut sleep: Pin<Box<dyn hyper::rt::Sleep>> = Box::pin(Never);
        EvenerTimer.reset(&mut sleep, EvenerTimer.now());
        sleep.await;
    });
    assert_nothing_left(&s);
}

#[test]
fn the_executor_needs_a_scheduler() {
    let s = scheduler(1);
    let (sender, receiver) = channel();
    s.block_on(async {
        EvenerExecutor.execute(async move { sender.send(()).unwrap() });
    });
    recv(&receiver);
    let outside = std::panic::catch_unwind(|| EvenerExecutor.execute(async {}));
    assert!(outside.is_err());
}
