//! A small HTTP server: hyper on evener, without tokio's runtime.
//!
//! ```sh
//! cargo run --release -p evener-scheduler --features hyper --example http -- 8080
//! curl http://127.0.0.1:8080/                                        # HTTP/1.1
//! curl --http2-prior-knowledge http://127.0.0.1:8080/                # HTTP/2 at the same port
//! curl --data-binary @Cargo.toml http://127.0.0.1:8080/echo          # what was sent, back
//! ```
//!
//! It ends when its standard input does (Ctrl-D): no more connections are accepted, those that are idle are
//! closed, requests under way have ten seconds to be answered.
#![forbid(unsafe_code)]
// Its tests take `serve` from this file.
#![cfg_attr(test, allow(dead_code))]

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io::{self, Read};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use evener_scheduler::hyper::{EvenerExecutor, EvenerTimer};
use evener_scheduler::net::{TcpListener, TcpStream};
use evener_scheduler::{channel, task, time};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::server::conn::auto;

/// A client has so long to send its first request, and the head of each further one; so a connection without
/// requests lasts no longer.
const HEAD_MAX: Duration = Duration::from_secs(30);
/// At the end, requests under way have so long to be answered.
const END_MAX: Duration = Duration::from_secs(10);
/// A client of HTTP/2 that seems to be silent is asked so often whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = match std::env::args().nth(1) {
        None => 8080,
        Some(text) => text.parse().map_err(|_| format!("`{text}` is no port"))?,
    };
    let (stop, stopped) = channel::bounded::<()>(1);
    // A thread of its own: a read of standard input cannot be given up.
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink());
        drop(stop);
    });
    task::run(async {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        println!("http://{}", listener.local_addr()?);
        serve(listener, HEAD_MAX, async move {
            let _ = stopped.recv().await;
        })
        .await;
        Ok(())
    })?
}

/// Serves till `stop` is done, and then till the requests under way are answered, at most for [`END_MAX`].
pub(crate) async fn serve(listener: TcpListener, head_max: Duration, stop: impl Future<Output = ()>) {
    // Nothing is ever sent in them. The connections see the end of the one when `ending` is dropped; this sees
    // the end of the other when they have all dropped their `alive`.
    let (ending, end) = channel::bounded::<()>(1);
    let (alive, all_gone) = channel::bounded::<()>(1);
    let mut stop = pin!(stop);
    loop {
        let mut accepting = pin!(listener.accept());
        let next = poll_fn(|cx| match stop.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => accepting.as_mut().poll(cx).map(Some),
        });
        match next.await {
            None => break,
            Some(Ok((stream, _))) => {
                let (end, alive) = (end.clone(), alive.clone());
                task::spawn(async move {
                    if let Err(error) = connection(stream, head_max, end).await {
                        eprintln!("a connection failed: {error}");
                    }
                    drop(alive);
                })
                .detach();
            }
            // Lost connections and a lack of descriptors are the listener's own affair; this is something else.
            Some(Err(error)) => {
                eprintln!("accept failed: {error}");
                time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop((listener, ending, alive));
    if time::timeout(END_MAX, all_gone.recv()).await.is_err() {
        eprintln!("some requests were not answered in time");
    }
}

/// Serves one connection, whichever version of HTTP its first bytes show.
async fn connection(
    stream: TcpStream,
    head_max: Duration,
    end: channel::Receiver<()>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    stream.set_nodelay(true)?;
    let has_begun = Arc::new(AtomicBool::new(false));
    let service = service_fn({
        let has_begun = Arc::clone(&has_begun);
        move |request| {
            has_begun.store(true, Ordering::Relaxed);
            async { Ok::<_, Infallible>(answer(request)) }
        }
    });
    let mut builder = auto::Builder::new(EvenerExecutor);
    builder.http1().timer(EvenerTimer).header_read_timeout(head_max);
    builder.http2().timer(EvenerTimer).keep_alive_interval(PING_EVERY);
    let mut serving = pin!(builder.serve_connection(stream, service));
    // The limits above begin when the version is known; this one holds for a client that does not show it.
    let mut first = time::sleep(head_max);
    let mut ending = pin!(end.recv());
    let mut is_ending = false;
    poll_fn(|cx| {
        if !is_ending && ending.as_mut().poll(cx).is_ready() {
            is_ending = true;
            serving.as_mut().graceful_shutdown();
        }
        if let Poll::Ready(served) = serving.as_mut().poll(cx) {
            // At the end one that has shown nothing yet is broken off.
            return Poll::Ready(served.or_else(|error| if is_ending { Ok(()) } else { Err(error) }));
        }
        if !has_begun.load(Ordering::Relaxed) && pin!(&mut first).poll(cx).is_ready() {
            return Poll::Ready(Err("it sent no request in time".into()));
        }
        Poll::Pending
    })
    .await
}

type Body = Either<Full<Bytes>, Incoming>;

/// Says hello at `/`, and sends back at `/echo` what it is sent, as it comes.
fn answer(request: Request<Incoming>) -> Response<Body> {
    let text = |status, text: &'static str| {
        let mut response = Response::new(Either::Left(Full::new(Bytes::from_static(text.as_bytes()))));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        response
    };
    let refuse = |allowed| {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        response
    };
    match (request.uri().path(), request.method()) {
        ("/", &Method::GET | &Method::HEAD) => text(StatusCode::OK, "Hello, World!\n"),
        ("/", _) => refuse("GET, HEAD"),
        ("/echo", &Method::POST) => Response::new(Either::Right(request.into_body())),
        ("/echo", _) => refuse("POST"),
        _ => text(StatusCode::NOT_FOUND, "not found\n"),
    }
}
