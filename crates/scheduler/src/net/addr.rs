//! Addresses of the internet, and the look-up of names.
//!
//! A look-up blocks its thread for as long as the system's resolver likes. It runs on a thread of its own,
//! of which there are at most [`THREADS_MAX`] at a time in the program; more look-ups wait their turn. Who
//! gives addresses pays for none of that.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::sync::{Mutex, fixed};

/// Look-ups at a time.
const THREADS_MAX: usize = 16;

/// What can be turned into addresses: an address, several, a name and a port, or the text of one.
pub trait ToAddrs: sealed::Sealed {}

pub(super) mod sealed {
    /// What stands there: nothing outside may implement it.
    pub trait Sealed {
        #[doc(hidden)]
        fn to_addrs(&self) -> std::io::Result<Addrs>;
    }

    /// What is known of addresses without asking anybody.
    #[derive(Debug)]
    pub enum Addrs {
        /// All.
        Known(Vec<std::net::SocketAddr>),
        /// A name to be looked up, and a port.
        Name(String, u16),
    }
}

use sealed::{Addrs, Sealed};

macro_rules! known {
    ($($of:ty: |$self:ident| $addrs:expr;)*) => {$(
        impl Sealed for $of {
            fn to_addrs(&self) -> io::Result<Addrs> {
                let $self = self;
                Ok(Addrs::Known($addrs))
            }
        }
        impl ToAddrs for $of {}
    )*};
}

known! {
    SocketAddr: |addr| vec![*addr];
    SocketAddrV4: |addr| vec![SocketAddr::V4(*addr)];
    SocketAddrV6: |addr| vec![SocketAddr::V6(*addr)];
    (IpAddr, u16): |pair| vec![SocketAddr::from(*pair)];
    (Ipv4Addr, u16): |pair| vec![SocketAddr::from(*pair)];
    (Ipv6Addr, u16): |pair| vec![SocketAddr::from(*pair)];
    [SocketAddr]: |addrs| addrs.to_vec();
    Vec<SocketAddr>: |addrs| addrs.clone();
}

impl Sealed for (&str, u16) {
    fn to_addrs(&self) -> io::Result<Addrs> {
        let (host, port) = *self;
        Ok(match host.parse::<IpAddr>() {
            Ok(ip) => Addrs::Known(vec![SocketAddr::new(ip, port)]),
            Err(_) => Addrs::Name(host.to_owned(), port),
        })
    }
}
impl ToAddrs for (&str, u16) {}

impl Sealed for (String, u16) {
    fn to_addrs(&self) -> io::Result<Addrs> {
        (self.0.as_str(), self.1).to_addrs()
    }
}
impl ToAddrs for (String, u16) {}

impl Sealed for str {
    fn to_addrs(&self) -> io::Result<Addrs> {
        if let Ok(addr) = self.parse::<SocketAddr>() {
            return Ok(Addrs::Known(vec![addr]));
        }
        let wrong = || io::Error::new(io::ErrorKind::InvalidInput, format!("`{self}` is not HOST:PORT"));
        let (host, port) = self.rsplit_once(':').ok_or_else(wrong)?;
        (host, port.parse().map_err(|_| wrong())?).to_addrs()
    }
}
impl ToAddrs for str {}

impl Sealed for String {
    fn to_addrs(&self) -> io::Result<Addrs> {
        self.as_str().to_addrs()
    }
}
impl ToAddrs for String {}

impl<T: ToAddrs + ?Sized> Sealed for &T {
    fn to_addrs(&self) -> io::Result<Addrs> {
        (**self).to_addrs()
    }
}
impl<T: ToAddrs + ?Sized> ToAddrs for &T {}

/// The addresses, at least one.
pub(super) async fn resolve(to: impl ToAddrs) -> io::Result<Vec<SocketAddr>> {
    // The argument is not kept while a look-up runs: the future may go to another thread.
    let addrs = to.to_addrs();
    drop(to);
    let addrs = match addrs? {
        Addrs::Known(addrs) => addrs,
        Addrs::Name(host, port) => look_up(host, port).await?,
    };
    if addrs.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no address"));
    }
    Ok(addrs)
}

/// A look-up on its way, and who waits for it.
struct Job {
    host: String,
    port: u16,
    answer: Arc<Mutex<Answer>>,
}

#[derive(Default)]
struct Answer {
    result: Option<io::Result<Vec<SocketAddr>>>,
    waker: Option<Waker>,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    threads: usize,
}

static JOBS: fixed::Mutex<Jobs> = fixed::Mutex::new(Jobs { waiting: VecDeque::new(), threads: 0 });

async fn look_up(host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    let answer = Arc::new(Mutex::new(Answer::default()));
    let start = {
        let mut jobs = JOBS.lock();
        jobs.waiting.push_back(Job { host, port, answer: Arc::clone(&answer) });
        let start = jobs.threads < THREADS_MAX;
        jobs.threads += usize::from(start);
        start
    };
    if start && let Err(error) = std::thread::Builder::new().name("look-up".to_owned()).spawn(work) {
        let mut jobs = JOBS.lock();
        jobs.threads -= 1;
        if jobs.threads == 0 {
            // Nobody will come to them.
            let left = std::mem::take(&mut jobs.waiting);
            drop(jobs);
            for job in left {
                job.finish(Err(io::Error::new(
                    error.kind(),
                    format!("no thread to look a name up: {error}"),
                )));
            }
        }
    }
    poll_fn(|cx| {
        // Cloned and dropped outside of the lock.
        let waker = cx.waker().clone();
        let _old;
        let mut answer = answer.lock();
        match answer.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                _old = answer.waker.replace(waker);
                drop(answer);
                Poll::Pending
            }
        }
    })
    .await
}

/// A thread's life: look-ups till there are none.
fn work() {
    loop {
        let job = {
            let mut jobs = JOBS.lock();
            match jobs.waiting.pop_front() {
                Some(job) => job,
                None => {
                    jobs.threads -= 1;
                    return;
                }
            }
        };
        let found = (job.host.as_str(), job.port).to_socket_addrs().map(Iterator::collect);
        job.finish(found);
    }
}

impl Job {
    fn finish(self, result: io::Result<Vec<SocketAddr>>) {
        let waker = {
            let mut answer = self.answer.lock();
            answer.result = Some(result);
            answer.waker.take()
        };
        if let Some(waker) = waker {
            let _ = crate::process::contain(|| waker.wake());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_known_without_a_look_up() {
        for text in ["127.0.0.1:80", "[::1]:80"] {
            let Ok(Addrs::Known(addrs)) = text.to_addrs() else { panic!("{text}") };
            assert_eq!(addrs, [text.parse().unwrap()]);
        }
        assert!(matches!(("::1", 5).to_addrs(), Ok(Addrs::Known(addrs)) if addrs[0].port() == 5));
        assert!(matches!("example.org:80".to_addrs(), Ok(Addrs::Name(host, 80)) if host == "example.org"));
        for wrong in ["example.org", "example.org:", "example.org:65536", ""] {
            assert_eq!(wrong.to_addrs().unwrap_err().kind(), io::ErrorKind::InvalidInput, "{wrong}");
        }
    }
}
