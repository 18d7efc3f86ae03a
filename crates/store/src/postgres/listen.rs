//! Notes between workers: what they look like, and the connection that hears them.
//!
//! A note says only where to look; a lost one costs time, never an event. There is one channel for all, so no
//! name of anybody's ends up in a channel's name. The payload begins with who sent it, then one word for each
//! note; what does not fit becomes "look".

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use evener_actor::id::{InstanceId, QueueId, SLOTS, Slot, StreamNo};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Socket};

use super::connection::{Shared, pause, refused};
use super::settings::Settings;
use crate::batch::RowMade;
use crate::workers::{Listening, Note};
use crate::{Result, StoreError};

/// A payload is shorter than this; the server takes 7,999 bytes.
const PAYLOAD_BYTES_MAX: usize = 7_900;

/// How often the connection is probed.
const PROBE_EVERY: Duration = Duration::from_secs(15);

/// How long a probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The payload for those notes: each instance once, with its lowest row.
pub(super) fn payload(sender: &str, notes: &[Note]) -> String {
    let mut rows: BTreeMap<(Slot, InstanceId), QueueId> = BTreeMap::new();
    let mut words: Vec<String> = Vec::new();
    for note in notes {
        match note {
            Note::Row(row) => {
                let lowest = rows.entry((row.slot, row.instance)).or_insert(row.row);
                *lowest = row.row.min(*lowest);
            }
            Note::Pending(stream) => words.push(format!("p{stream}")),
            Note::Schedule => words.push("s".to_owned()),
            Note::Routes => words.push("t".to_owned()),
            Note::Look => words.push("l".to_owned()),
        }
    }
    words.sort_unstable();
    words.dedup();
    words.extend(rows.into_iter().map(|((slot, instance), row)| format!("r{slot}.{instance}.{row}")));
    let bytes: usize = sender.len() + words.iter().map(|word| word.len() + 1).sum::<usize>();
    if bytes >= PAYLOAD_BYTES_MAX {
        return format!("{sender} l");
    }
    let mut payload = sender.to_owned();
    for word in words {
        payload.push(' ');
        payload.push_str(&word);
    }
    payload
}

/// Who sent it, and what it says. A word that nobody here knows, of a newer worker, is a reason to look.
fn read(payload: &str) -> (&str, Vec<Note>) {
    let mut words = payload.split(' ');
    let sender = words.next().unwrap_or("");
    (sender, words.map(|word| note(word).unwrap_or(Note::Look)).collect())
}

fn note(word: &str) -> Option<Note> {
    let (kind, rest) = word.split_at_checked(1)?;
    match kind {
        "r" => {
            let mut numbers = rest.split('.');
            let slot: u16 = numbers.next()?.parse().ok().filter(|slot| *slot < SLOTS)?;
            let instance = InstanceId(numbers.next()?.parse().ok()?);
            let row = QueueId(numbers.next()?.parse().ok()?);
            numbers.next().is_none().then_some(Note::Row(RowMade { slot: Slot::new(slot), instance, row }))
        }
        "p" => Some(Note::Pending(StreamNo(rest.parse().ok()?))),
        "s" if rest.is_empty() => Some(Note::Schedule),
        "t" if rest.is_empty() => Some(Note::Routes),
        _ => None,
    }
}

/// Told to end, once, from another thread.
#[derive(Default)]
struct Stop(Mutex<(bool, Option<Waker>)>);

impl Stop {
    fn tell(&self) {
        let waker = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn told(&self) -> impl Future<Output = ()> {
        std::future::poll_fn(|cx| {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(cx.waker().clone());
            Poll::Pending
        })
    }
}

/// The connection that hears, and its thread.
pub(super) struct Listener {
    stop: Arc<Stop>,
    is_listening: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listening for Listener {
    fn is_listening(&self) -> bool {
        // Relaxed: a hint; nothing else is read by it.
        self.is_listening.load(Ordering::Relaxed)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.tell();
        if let Some(thread) = self.thread.take() {
            // It only ends with a panic if `hear` panicked; that was shown where it happened.
            let _ = thread.join();
        }
    }
}

struct Ear {
    /// Where to listen.
    shared: Shared,
    /// Where notes are sent from: a probe goes the way that notes go.
    sender: Config,
    sender_tls: Option<super::tls::Tls>,
    id: String,
    hear: Arc<dyn Fn(Note) + Send + Sync>,
    is_listening: Arc<AtomicBool>,
}

impl Listener {
    pub(super) fn start(
        settings: &Settings,
        id: &str,
        hear: Arc<dyn Fn(Note) + Send + Sync>,
    ) -> Result<Self> {
        let url = settings.listen_url.as_deref().unwrap_or(&settings.url);
        let shared = Shared::new(url, settings)?;
        let target = super::settings::Target::new(&settings.url, settings)?;
        let is_listening = Arc::new(AtomicBool::new(false));
        let stop = Arc::new(Stop::default());
        let ear = Ear {
            shared,
            sender: target.config,
            sender_tls: target.tls,
            id: id.to_owned(),
            hear,
            is_listening: Arc::clone(&is_listening),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| StoreError::Internal(format!("a runtime: {error}")))?;
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("evener-listen".to_owned())
            .spawn(move || {
                runtime.block_on(until(told.told(), ear.run()));
            })
            .map_err(|error| StoreError::Internal(format!("a thread: {error}")))?;
        Ok(Self { stop, is_listening, thread: Some(thread) })
    }
}

/// `act`, unless `stop` comes first.
async fn until(stop: impl Future<Output = ()>, act: impl Future<Output = ()>) {
    let (mut stop, mut act) = (std::pin::pin!(stop), std::pin::pin!(act));
    std::future::poll_fn(|cx| {
        if stop.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { act.as_mut().poll(cx) }
    })
    .await;
}

/// Why a session of listening ended.
enum Ended {
    Lost(StoreError),
    /// Notes do not come through: a proxy gives the session to others in between.
    Deaf,
}

impl Ear {
    async fn run(&self) {
        let mut failures = 0;
        let mut was_deaf = false;
        loop {
            let (ended, has_heard) = self.session(failures > 0).await;
            self.is_listening.store(false, Ordering::Relaxed);
            if has_heard {
                failures = 0;
                was_deaf = false;
            }
            match ended {
                Ended::Lost(error) => {
                    if failures == 0 && !was_deaf {
                        self.shared
                            .remark(&format!("not listening at {}: {error}", self.shared.target.shown));
                    }
                    failures += 1;
                    sleep(pause(failures - 1)).await;
                }
                Ended::Deaf => {
                    if !was_deaf {
                        self.shared.remark(&format!(
                            "not listening at {}: notes do not come through, as behind a proxy that pools \
                             transactions; the backup poll does it, or give a direct URL to listen at",
                            self.shared.target.shown
                        ));
                    }
                    was_deaf = true;
                    // Once in a while, in case the proxy goes.
                    sleep(PROBE_EVERY * 20).await;
                }
            }
        }
    }

    /// One connection from its beginning to its end; and whether it did hear.
    async fn session(&self, was_lost: bool) -> (Ended, bool) {
        let heard = AtomicBool::new(false);
        let ended = match &self.shared.target.tls {
            Some(tls) => match self.shared.target.config.connect(tls.0.clone()).await {
                Ok((client, connection)) => self.attend(client, connection, was_lost, &heard).await,
                Err(error) => Ended::Lost(refused(&error)),
            },
            None => match self.shared.target.config.connect(NoTls).await {
                Ok((client, connection)) => self.attend(client, connection, was_lost, &heard).await,
                Err(error) => Ended::Lost(refused(&error)),
            },
        };
        (ended, heard.into_inner())
    }

    async fn attend<S>(
        &self,
        client: Client,
        mut connection: tokio_postgres::Connection<Socket, S>,
        was_lost: bool,
        heard: &AtomicBool,
    ) -> Ended
    where
        S: tokio_postgres::tls::TlsStream + Unpin,
    {
        // Probes that came back, by number.
        let echo = Mutex::new((0_u64, None::<Waker>));
        let probe_word = format!("{} probe", self.id);
        let listen = async {
            if let Err(error) = client.batch_execute("LISTEN evener").await {
                return Ended::Lost(refused(&error));
            }
            let mut number = 0_u64;
            loop {
                number += 1;
                match tokio::time::timeout(PROBE_TIMEOUT, self.probe(&probe_word)).await {
                    Ok(Ok(())) => {
                        let came = std::future::poll_fn(|cx| {
                            let mut echo = echo.lock().unwrap_or_else(PoisonError::into_inner);
                            if echo.0 >= number {
                                return Poll::Ready(());
                            }
                            echo.1 = Some(cx.waker().clone());
                            Poll::Pending
                        });
                        if tokio::time::timeout(PROBE_TIMEOUT, came).await.is_err() {
                            return Ended::Deaf;
                        }
                    }
                    // The sender's way is broken, not ours: ask this connection whether it lives.
                    Ok(Err(_)) | Err(_) => {
                        number -= 1;
                        match tokio::time::timeout(PROBE_TIMEOUT, client.batch_execute("SELECT 1")).await {
                            Ok(Ok(())) => {}
                            Ok(Err(error)) => return Ended::Lost(refused(&error)),
                            Err(_) => {
                                return Ended::Lost(StoreError::Away("no answer to a probe".to_owned()));
                            }
                        }
                    }
                }
                if number > 0 && !heard.swap(true, Ordering::Relaxed) {
                    self.is_listening.store(true, Ordering::Relaxed);
                    if was_lost {
                        self.shared.remark(&format!("listening at {} again", self.shared.target.shown));
                    }
                    // What was said while nobody listened is found by looking.
                    (self.hear)(Note::Look);
                }
                sleep(PROBE_EVERY).await;
            }
        };
        let notes = async {
            loop {
                match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                    Some(Ok(AsyncMessage::Notification(notification))) => {
                        if notification.payload() == probe_word {
                            let waker = {
                                let mut echo = echo.lock().unwrap_or_else(PoisonError::into_inner);
                                echo.0 += 1;
                                echo.1.take()
                            };
                            if let Some(waker) = waker {
                                waker.wake();
                            }
                            continue;
                        }
                        let (sender, notes) = read(notification.payload());
                        if sender != self.id {
                            notes.into_iter().for_each(|note| (self.hear)(note));
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Ended::Lost(refused(&error)),
                    None => return Ended::Lost(StoreError::Away("the connection was closed".to_owned())),
                }
            }
        };
        let (mut listen, mut notes) = (std::pin::pin!(listen), std::pin::pin!(notes));
        std::future::poll_fn(|cx| match notes.as_mut().poll(cx) {
            Poll::Ready(ended) => Poll::Ready(ended),
            Poll::Pending => listen.as_mut().poll(cx),
        })
        .await
    }

    /// Sends a note to ourselves, the way that notes go.
    async fn probe(&self, word: &str) -> Result<(), tokio_postgres::Error> {
        let text = format!("SELECT pg_notify('evener', '{word}')");
        match &self.sender_tls {
            Some(tls) => {
                let (client, connection) = self.sender.connect(tls.0.clone()).await?;
                tell(client, connection, &text).await
            }
            None => {
                let (client, connection) = self.sender.connect(NoTls).await?;
                tell(client, connection, &text).await
            }
        }
    }
}

async fn tell<S>(
    client: Client,
    connection: tokio_postgres::Connection<Socket, S>,
    text: &str,
) -> Result<(), tokio_postgres::Error>
where
    S: tokio_postgres::tls::TlsStream + Unpin,
{
    let (mut connection, mut ask) = (std::pin::pin!(connection), std::pin::pin!(client.batch_execute(text)));
    let mut is_closed = false;
    std::future::poll_fn(|cx| {
        // The connection carries both ways; the answer is what we wait for. When it breaks, the answer says so.
        is_closed = is_closed || connection.as_mut().poll(cx).is_ready();
        ask.as_mut().poll(cx)
    })
    .await
}

async fn sleep(time: Duration) {
    // The runtime's own timer: `tokio::time::sleep` is for edges that should wait for a signal.
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(instance: i64, row: i64) -> Note {
        Note::Row(RowMade { slot: Slot::new(7), instance: InstanceId(instance), row: QueueId(row) })
    }

    #[test]
    fn notes_come_back_each_instance_once_with_its_lowest_row() {
        let notes =
            [row(1, 9), row(2, 5), row(1, 8), Note::Schedule, Note::Routes, Note::Pending(StreamNo(3))];
        let payload = payload("me", &notes);
        let (sender, mut back) = read(&payload);
        assert_eq!(sender, "me");
        back.sort_by_key(|note| format!("{note:?}"));
        assert_eq!(back, [Note::Pending(StreamNo(3)), Note::Routes, row(1, 8), row(2, 5), Note::Schedule]);
    }

    #[test]
    fn what_does_not_fit_is_a_reason_to_look() {
        let notes: Vec<Note> = (0..1_000).map(|number| row(i64::MAX - number, i64::MAX)).collect();
        assert_eq!(read(&payload("me", &notes)), ("me", vec![Note::Look]));
        let notes: Vec<Note> = (0..150).map(|number| row(i64::MAX - number, i64::MAX)).collect();
        let payload = payload("me", &notes);
        assert!(payload.len() < PAYLOAD_BYTES_MAX);
        assert_eq!(read(&payload).1.len(), 150);
    }

    #[test]
    fn what_nobody_knows_is_a_reason_to_look() {
        for word in ["", "x", "r1.2", "r1024.1.1", "r1.2.3.4", "px", "s1", "é"] {
            assert_eq!(read(&format!("me {word}")).1, [Note::Look], "{word}");
        }
    }
}
