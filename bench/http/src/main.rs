//! `evener-bench-http`: a plaintext HTTP/1 server of hyper, on evener or on tokio, for `cargo xtask http`.
//!
//! Both are the same hyper with the same service, and a task for each connection. It prints `LISTENING` and its
//! port, and serves till it is killed. `../go` has the same of Go's net/http.
#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use clap::{Parser, ValueEnum};
use evener_scheduler::hyper::EvenerTimer;
use evener_scheduler::{Scheduler, net, task};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::rt::{Read, Timer, Write as HyperWrite};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};

/// Serves plaintext till it is killed.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Whose tasks and sockets.
    #[arg(long, value_enum, default_value_t = Runtime::Evener)]
    runtime: Runtime,
    /// How many workers.
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Where it listens on the loopback; 0: where the system likes.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Limit the time for the head of a request to so many seconds: a timer for each request.
    #[arg(long)]
    head_secs: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Runtime {
    Evener,
    Tokio,
}

fn main() {
    let Arguments { runtime, workers, port, head_secs } = Arguments::parse();
    let head_max = head_secs.map(Duration::from_secs);
    let served = match runtime {
        Runtime::Evener => on_evener(workers, port, head_max),
        Runtime::Tokio => on_tokio(workers, port, head_max),
    };
    if let Err(error) = served {
        eprintln!("evener-bench-http: {error}");
        std::process::exit(1);
    }
}

fn on_evener(workers: usize, port: u16, head_max: Option<Duration>) -> io::Result<()> {
    let scheduler = Scheduler::builder().workers(workers).start().map_err(io::Error::other)?;
    let accepting = scheduler.spawn_task(async move {
        let listener = net::TcpListener::bind(("127.0.0.1", port)).await?;
        listening(listener.local_addr()?)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            task::spawn(serve(stream, EvenerTimer, head_max)).detach();
        }
    });
    accepting.wait(None).unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn on_tokio(workers: usize, port: u16, head_max: Option<Duration>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
    // On a worker, as with evener: the thread of `block_on` would be one more.
    let accepting = runtime.spawn(async move {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
        listening(listener.local_addr()?)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(serve(TokioIo::new(stream), TokioTimer::new(), head_max));
        }
    });
    runtime.block_on(accepting).unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn listening(at: SocketAddr) -> io::Result<()> {
    println!("LISTENING {}", at.port());
    io::stdout().flush()
}

/// One connection, the same on both.
async fn serve<S, T>(stream: S, timer: T, head_max: Option<Duration>)
where
    S: Read + HyperWrite + Unpin + Send + 'static,
    T: Timer + Send + Sync + 'static,
{
    let mut builder = http1::Builder::new();
    builder.timer(timer).header_read_timeout(head_max);
    // A client that goes away is no concern of a benchmark.
    let _ = builder.serve_connection(stream, service_fn(hello)).await;
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"Hello, World!\n")));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}
