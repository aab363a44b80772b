//! Pulls messages of a stream: the deliveries of one consumer ([`Pull`]), and an ordered reader
//! that survives the loss of its consumer ([`Reader`]).
//!
//! The client's own ordered consumer is not used: if its consumer is lost before the first message,
//! it restarts at the start of the stream; it ends with an error when the server restarts; and it
//! needs a minute to detect missed heartbeats.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::client::Statistics;
use async_nats::jetstream;
use async_nats::jetstream::consumer::pull::{BatchConfig, Config};
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy};
use async_nats::jetstream::stream::{ConsumerError, ConsumerErrorKind};
use async_nats::{HeaderMap, Message, StatusCode, Subscriber};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};
use rand::Rng as _;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::error::MeshError;
use crate::mesh::Mesh;
use crate::stream::stored::MessageQuery;
use crate::wire::undeliverable;

#[cfg(test)]
mod tests;

/// Heartbeat interval of an idle consumer.
const HEARTBEAT: Duration = if cfg!(test) { Duration::from_millis(250) } else { Duration::from_secs(5) };
/// Time without messages or heartbeats after which deliveries count as lost.
const SILENCE: Duration = Duration::from_secs(12);
/// Lifetime of a pull request on the server; shorter in this crate's tests, which cover its expiry.
const EXPIRES: Duration = if cfg!(test) { Duration::from_secs(1) } else { Duration::from_mins(1) };
/// Interval for checking whether the connection was replaced.
const LOOK: Duration = Duration::from_millis(250);
/// Timeout of one request to the server before it is repeated.
const WAIT: Duration = Duration::from_secs(5);
/// Time after which the server removes an unused consumer of a reader.
const UNUSED: Duration = Duration::from_mins(1);
/// Messages that a reader requests at a time.
const BATCH: usize = 512;
/// Bytes that a reader requests at a time; at least the server's maximum message size.
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Interval at which an idle reader queries the stream's leader for missed messages: in a cluster,
/// a consumer on a replica that lagged or was restored may be alive and deliver nothing.
const CHECK: Duration = if cfg!(test) { Duration::from_millis(500) } else { Duration::from_secs(10) };
/// Time for delivering a message that the leader has.
const DELIVERY: Duration = if cfg!(test) { Duration::from_millis(500) } else { Duration::from_secs(2) };
/// Longest wait between two attempts to reopen a consumer.
const SLOWEST: Duration = Duration::from_secs(2);

/// Why a pull has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost(pub(crate) String);

/// Deliveries of one consumer, at most as many as requested.
pub(crate) struct Pull {
    consumer: Consumer<Config>,
    inbox: async_nats::Subject,
    subscriber: Subscriber,
    link: Link,
    /// Holds a message while its position is parsed from its reply subject.
    slot: jetstream::Message,
    /// Maximum message size of the server.
    largest: usize,
    /// Requested messages that have not arrived.
    asked: usize,
    heard: Instant,
    /// Time of the next connection check: one timer for all waits, which restart with every
    /// message.
    look: Pin<Box<Sleep>>,
}

/// A delivered message.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Its sequence number in the stream.
    pub(crate) seq: u64,
    /// Its number among this consumer's deliveries.
    pub(crate) nth: u64,
    /// Number of its deliveries, including this one.
    pub(crate) delivered: u64,
    /// When it was stored: milliseconds since 1970 UTC, by the server's clock.
    pub(crate) time: u64,
    /// Number of messages that the consumer had not delivered yet.
    pub(crate) pending: u64,
    pub(crate) message: Message,
}

impl Pull {
    /// Subscribes to the deliveries of this consumer.
    pub(crate) async fn open(mesh: &Mesh, consumer: Consumer<Config>) -> Result<Self, MeshError> {
        let link = Link::new(mesh);
        let inbox = async_nats::Subject::from(mesh.client().new_inbox());
        let subscriber = mesh
            .client()
            .subscribe(inbox.clone())
            .await
            .map_err(|error| unreachable("subscribe to deliveries", &error))?;
        let slot = jetstream::Message { message: nothing(), context: mesh.jetstream() };
        let largest = mesh.client().max_payload();
        let (heard, look) = (Instant::now(), Box::pin(sleep(LOOK)));
        Ok(Self { consumer, inbox, subscriber, link, slot, largest, asked: 0, heard, look })
    }

    /// Returns when the server created the consumer.
    pub(crate) fn made(&self) -> OffsetDateTime {
        self.consumer.cached_info().created
    }

    /// Returns the number of requested messages that have not arrived.
    pub(crate) fn asked(&self) -> usize {
        self.asked
    }

    /// Requests this number of messages, with at most this number of bytes in total (0: no limit).
    pub(crate) async fn ask(&mut self, messages: usize, bytes: usize) -> Result<(), Lost> {
        let batch = BatchConfig {
            batch: messages,
            expires: Some(EXPIRES),
            idle_heartbeat: HEARTBEAT,
            max_bytes: bytes,
            ..BatchConfig::default()
        };
        if self.asked == 0 {
            self.heard = Instant::now();
        }
        // No await between sending and counting, so a cancelled caller cannot falsify the count.
        self.consumer
            .request_batch(batch, self.inbox.clone())
            .await
            .map_err(|error| Lost(error.to_string()))?;
        self.asked += messages;
        Ok(())
    }

    /// Waits for the next message; `None` when a pull request has ended, so that the caller sends
    /// another one. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Item>, Lost> {
        loop {
            // Read messages that have arrived before checking for missed heartbeats: they prove
            // that the consumer lives.
            let came = if let Some(came) = self.subscriber.next().now_or_never() {
                came
            } else {
                self.alive()?;
                tokio::select! {
                    biased;
                    came = self.subscriber.next() => came,
                    () = &mut self.look => {
                        self.look.as_mut().reset(Instant::now() + LOOK);
                        continue;
                    }
                }
            };
            let message = came.ok_or_else(|| Lost("the connection is closed".to_owned()))?;
            self.heard = Instant::now();
            // Publishers can add a status line, so data is recognized by the reply subject, which
            // they cannot set.
            if message.reply.as_ref().is_some_and(|reply| reply.starts_with("$JS.ACK.")) {
                self.asked = self.asked.saturating_sub(1);
                return self.item(message).map(Some);
            }
            let asked = self.asked;
            self.control(&message)?;
            if self.asked < asked {
                return Ok(None);
            }
        }
    }

    fn item(&mut self, message: Message) -> Result<Item, Lost> {
        self.slot.message = message;
        let info = self.slot.info().map_err(|error| Lost(error.to_string()))?;
        let (seq, nth) = (info.stream_sequence, info.consumer_sequence);
        let (delivered, time) = (info.delivered.unsigned_abs(), milliseconds(info.published));
        let pending = info.pending;
        let mut message = std::mem::replace(&mut self.slot.message, nothing());
        if message.headers.as_ref().is_some_and(redirected) {
            // Its subject proves nothing about its author, so it gets a subject outside the mesh,
            // and readers quarantine it.
            message.subject = format!("redirected.{}", message.subject).into();
        } else if message.headers.as_ref().and_then(undeliverable).is_some() {
            // A message that lost its headers in transit is unusable; readers quarantine or skip
            // it.
            message.subject = format!("undeliverable.{}", message.subject).into();
        }
        Ok(Item { seq, nth, delivered, time, pending, message })
    }

    fn alive(&self) -> Result<(), Lost> {
        if self.link.broken() {
            return Err(Lost("the connection was replaced".to_owned()));
        }
        if self.asked > 0 && self.heard.elapsed() > SILENCE {
            return Err(Lost(format!("received nothing for {} s", SILENCE.as_secs())));
        }
        Ok(())
    }

    /// Handles a status message about a pull request.
    fn control(&mut self, message: &Message) -> Result<(), Lost> {
        let description = message.description.as_deref().unwrap_or_default();
        match message.status {
            Some(StatusCode::IDLE_HEARTBEAT) | None => Ok(()),
            // The request has ended: it expired, or the next message exceeds its remaining bytes.
            Some(StatusCode::TIMEOUT | StatusCode::REQUEST_TERMINATED)
                if description != "Consumer Deleted" && pending(message).is_some() =>
            {
                self.asked = self.asked.saturating_sub(pending(message).unwrap_or_default());
                Ok(())
            }
            Some(status) => Err(Lost(format!("{status} {description}"))),
        }
    }
}

/// Returns the placeholder of an empty slot.
const fn nothing() -> Message {
    Message {
        subject: async_nats::Subject::from_static("_"),
        reply: None,
        payload: Bytes::new(),
        headers: None,
        status: None,
        description: None,
        length: 0,
    }
}

/// Returns the number of undelivered messages of a request that has ended.
fn pending(message: &Message) -> Option<usize> {
    message.headers.as_ref()?.get("Nats-Pending-Messages")?.as_str().parse().ok()
}

/// Detects a changed connection: requests on an older one get no reply.
pub(crate) struct Link {
    statistics: Arc<Statistics>,
    connects: u64,
    line: watch::Receiver<u64>,
}

impl Link {
    pub(crate) fn new(mesh: &Mesh) -> Self {
        let mut line = mesh.line_number();
        line.mark_unchanged();
        let statistics = mesh.client().statistics();
        let connects = statistics.connects.load(Ordering::Relaxed);
        Self { statistics, connects, line }
    }

    pub(crate) fn broken(&self) -> bool {
        self.statistics.connects.load(Ordering::Relaxed) != self.connects
            || self.line.has_changed().unwrap_or(true)
    }
}

impl Link {
    /// Returns whether the mesh has replaced the connection; the old one does not come back.
    pub(crate) fn is_replaced(&self) -> bool {
        self.line.has_changed().unwrap_or(true)
    }
}

/// Waits for a reply of the server, at most for the lifetime of the connection of the request.
pub(crate) async fn answer<F: Future>(
    mesh: &Mesh,
    what: &'static str,
    wait: Duration,
    asked: F,
) -> Result<F::Output, MeshError> {
    let (link, until) = (Link::new(mesh), Instant::now() + wait);
    let mut asked = std::pin::pin!(asked);
    loop {
        if let Ok(answer) = timeout(LOOK, &mut asked).await {
            return Ok(answer);
        }
        let reason = match () {
            () if link.broken() => "the connection was replaced".to_owned(),
            () if Instant::now() >= until => format!("no response within {} s", wait.as_secs()),
            () => continue,
        };
        return Err(MeshError::Unreachable { what, reason });
    }
}

/// Converts a client error that a retry may resolve.
pub(crate) fn unreachable(what: &'static str, error: &dyn std::error::Error) -> MeshError {
    MeshError::Unreachable { what, reason: error.to_string() }
}

/// Returns the wait before attempt `n` (counted from 0); the first attempt has none.
pub(crate) fn pause(attempt: u32, slowest: Duration) -> Duration {
    let Some(doublings) = attempt.checked_sub(1) else { return Duration::ZERO };
    let longest = Duration::from_millis(25).saturating_mul(1 << doublings.min(16)).min(slowest);
    // Clients that lose a server together must not reconnect together.
    longest.mul_f64(rand::rng().random_range(0.5..=1.0))
}

/// Position from which a [`Reader`] reads.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// The stream's name on the server.
    pub(crate) stream: String,
    /// Filter for subjects.
    pub(crate) filter: String,
    /// Read after this sequence number.
    pub(crate) after: u64,
    /// When the message at that position was stored, in milliseconds since 1970 UTC; 0 if unknown.
    pub(crate) after_stored: u64,
    /// Leave the bodies on the server.
    pub(crate) headers_only: bool,
}

/// A stream's messages with matching subjects in order, each once, without acknowledgements.
/// Survives the loss of the connection, the server process and the consumer: it continues after the
/// last returned message. If the server has lost that message, it fails permanently: unread
/// messages may have already read sequence numbers.
pub(crate) struct Reader {
    mesh: Mesh,
    reading: Reading,
    state: State,
    check: DeliveryCheck,
}

/// Comparison of a reader with the stream's leader.
struct DeliveryCheck {
    next: Pin<Box<Sleep>>,
    /// Sequence number of the last message at the previous check.
    seen: u64,
    /// Query to the leader for the sequence number of the first unread message.
    asked: Option<BoxFuture<'static, Option<u64>>>,
    /// A message that the leader has and that has not arrived yet.
    missing: Option<u64>,
}

impl DeliveryCheck {
    fn new(after: u64) -> Self {
        Self { next: Box::pin(sleep(CHECK)), seen: after, asked: None, missing: None }
    }

    /// Waits until a message is known to be missing, and returns its sequence number. Cancel-safe.
    async fn missing(&mut self, mesh: &Mesh, reading: &Reading) -> u64 {
        loop {
            if let Some(asked) = &mut self.asked {
                self.missing = asked.as_mut().await;
                self.asked = None;
                let wait = if self.missing.is_some() { DELIVERY } else { CHECK };
                self.next.as_mut().reset(Instant::now() + wait);
            }
            self.next.as_mut().await;
            if let Some(seq) = self.missing.take().filter(|seq| *seq > reading.after) {
                return seq;
            }
            self.next.as_mut().reset(Instant::now() + CHECK);
            if std::mem::replace(&mut self.seen, reading.after) == reading.after {
                let (mesh, reading) = (mesh.clone(), reading.clone());
                self.asked = Some(Box::pin(async move {
                    let unread = mesh.unread(&reading.stream, &reading.filter, reading.after).await;
                    // Without the right to query, or without a reply, nothing is known.
                    unread.ok().flatten().map(|message| message.sequence)
                }));
            }
        }
    }
}

enum State {
    Open {
        pull: Box<Pull>,
        /// Number of deliveries read from this consumer.
        read: u64,
    },
    Opening(BoxFuture<'static, Option<Pull>>),
    /// The stream was rewound below the last returned message.
    Rewound,
}

/// Checks before a stream counts as rewound: a new leader may lag for a moment.
const LOOKS: u32 = 3;

impl Reader {
    /// Starts reading; fails if the server rejects the consumer or is unreachable.
    pub(crate) async fn open(mesh: &Mesh, reading: Reading) -> Result<Self, MeshError> {
        let pull = Box::new(Box::pin(consume(mesh.clone(), reading.clone())).await?);
        let check = DeliveryCheck::new(reading.after);
        Ok(Self { mesh: mesh.clone(), reading, state: State::Open { pull, read: 0 }, check })
    }

    /// Returns the number of pending messages when the consumer was opened.
    pub(crate) fn pending(&self) -> u64 {
        match &self.state {
            State::Open { pull, .. } => pull.consumer.cached_info().num_pending,
            State::Opening(_) | State::Rewound => 0,
        }
    }

    /// Returns the sequence number of the last returned message, or of the next one if the stream's
    /// leader has it.
    pub(crate) fn end(&self) -> impl Future<Output = Result<u64, MeshError>> + Send + use<> {
        let (mesh, Reading { stream, filter, after, .. }) = (self.mesh.clone(), self.reading.clone());
        async move {
            let next = mesh.unread(&stream, &filter, after).await?;
            Ok(next.map_or(after, |message| message.sequence))
        }
    }

    /// Waits for the next message; fails once the stream was rewound below the last one.
    /// Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Item, MeshError> {
        loop {
            match &mut self.state {
                State::Opening(opening) => {
                    self.state = match opening.as_mut().await {
                        Some(pull) => State::Open { pull: Box::new(pull), read: 0 },
                        None => State::Rewound,
                    };
                    self.check = DeliveryCheck::new(self.reading.after);
                }
                State::Rewound => {
                    let Reading { stream, after, .. } = &self.reading;
                    return Err(MeshError::StreamRewound { stream: stream.clone(), seq: *after });
                }
                State::Open { pull, read } => {
                    let has_copies = pull.consumer.cached_info().cluster.is_some()
                        && (self.reading.after > 0 || self.reading.after_stored == 0);
                    let came = tokio::select! {
                        biased;
                        came = next(pull, read) => came,
                        seq = self.check.missing(&self.mesh, &self.reading), if has_copies => {
                            Err(Lost(format!("message {seq} is stored and was not delivered")))
                        }
                    };
                    match came {
                        // A reopened consumer may start with messages that were already read.
                        Ok(item) if item.seq <= self.reading.after => {}
                        Ok(item) => {
                            (self.reading.after, self.reading.after_stored) = (item.seq, item.time);
                            return Ok(item);
                        }
                        Err(Lost(reason)) => self.reopen(&reason),
                    }
                }
            }
        }
    }

    fn reopen(&mut self, reason: &str) {
        tracing::debug!(stream = self.reading.stream, filter = self.reading.filter, reason, "reading again");
        if let State::Open { pull, .. } = &self.state {
            forget(&self.mesh, &pull.consumer);
        }
        let (mesh, reading) = (self.mesh.clone(), self.reading.clone());
        self.state = State::Opening(Box::pin(async move {
            let mut attempt = 0;
            loop {
                sleep(pause(attempt, SLOWEST)).await;
                let opened = async {
                    // Create the consumer first: later messages are delivered, whatever the
                    // position check finds.
                    let pull = consume(mesh.clone(), reading.clone()).await?;
                    Ok::<_, MeshError>(mesh.still_has(&reading).await?.then_some(pull))
                };
                match opened.await {
                    Ok(opened) => return opened,
                    Err(error) => {
                        // Once per loss, so that a long outage does not fill the log.
                        if attempt == 3 {
                            tracing::warn!(stream = reading.stream, %error, "cannot resume reading; retrying");
                        }
                        attempt = attempt.saturating_add(1);
                    }
                }
            }
        }));
    }
}

impl Reader {
    /// Continues after the time of the last message in a rewound stream; messages stored in the
    /// same millisecond may be missed.
    pub(crate) fn go_on_by_time(&mut self) {
        self.reading.after = 0;
        self.reopen("the stream was rewound");
    }
}

impl Mesh {
    /// Returns whether a stream still has the message at a position that was read, or has expired
    /// it. True if the connection may not query it.
    pub(crate) async fn still_has(&self, reading: &Reading) -> Result<bool, MeshError> {
        let Reading { stream, after, after_stored, .. } = reading;
        if *after == 0 || *after_stored == 0 {
            return Ok(true);
        }
        let mut look = 1;
        loop {
            match self.message(stream, &MessageQuery::at(*after)).await {
                Ok(Some(message)) => return Ok(milliseconds(message.time) == *after_stored),
                Err(MeshError::Forbidden { .. } | MeshError::Refused { .. }) => return Ok(true),
                Err(error) => return Err(error),
                Ok(None) => {}
            }
            let info = self.stream_info(stream).await?;
            if info.is_some_and(|info| info.state.last_sequence >= *after) {
                // It was deleted, by its age or by an operator.
                return Ok(true);
            }
            if look == LOOKS {
                return Ok(false);
            }
            look += 1;
            sleep(LOOK).await;
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let State::Open { pull, .. } = &self.state {
            forget(&self.mesh, &pull.consumer);
        }
    }
}

async fn next(pull: &mut Pull, read: &mut u64) -> Result<Item, Lost> {
    let item = loop {
        if pull.asked() <= BATCH / 2 {
            let largest = 2 * pull.largest;
            pull.ask(BATCH, BATCH_BYTES.max(largest)).await?;
        }
        if let Some(item) = pull.next().await? {
            break item;
        }
    };
    if item.nth != *read + 1 {
        return Err(Lost(format!("delivery {} came after {read}", item.nth)));
    }
    *read = item.nth;
    Ok(item)
}

/// Creates a consumer for one reader, which is removed when unused.
async fn consume(mesh: Mesh, reading: Reading) -> Result<Pull, MeshError> {
    const WHAT: &str = "open a consumer";
    let config = Config {
        name: Some(format!("read-{}", uuid::Uuid::now_v7().simple())),
        deliver_policy: match (reading.after, reading.after_stored) {
            (0, 0) => DeliverPolicy::All,
            (0, stored) => DeliverPolicy::ByStartTime { start_time: behind(stored) },
            (after, _) => DeliverPolicy::ByStartSequence { start_sequence: after + 1 },
        },
        ack_policy: AckPolicy::None,
        max_deliver: 1,
        filter_subject: reading.filter,
        headers_only: reading.headers_only,
        inactive_threshold: UNUSED,
        num_replicas: 1,
        memory_storage: true,
        ..Config::default()
    };
    let call = format!("$JS.API.CONSUMER.CREATE.{}.", reading.stream);
    let jetstream = mesh.jetstream();
    let consumer = jetstream.create_consumer_on_stream(config, &reading.stream);
    let consumer = mesh.permitted(&call, answer(&mesh, WHAT, WAIT, consumer)).await??;
    let consumer = consumer.map_err(|error| consumer_error(WHAT, &error))?;
    Pull::open(&mesh, consumer).await
}

/// Returns the first moment after this millisecond since 1970 UTC.
fn behind(stored: u64) -> OffsetDateTime {
    let nanoseconds = i128::from(stored.saturating_add(1)) * 1_000_000;
    OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Converts the server's error about a consumer.
pub(crate) fn consumer_error(what: &'static str, error: &ConsumerError) -> MeshError {
    match error.kind() {
        ConsumerErrorKind::JetStream(_) => MeshError::Refused { what, reason: error.to_string() },
        _ => unreachable(what, error),
    }
}

/// Deletes a consumer without waiting; if that fails, it expires.
fn forget(mesh: &Mesh, consumer: &Consumer<Config>) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let info = consumer.cached_info();
    let (mesh, stream, name) = (mesh.clone(), info.stream_name.clone(), info.name.clone());
    runtime.spawn(async move {
        let jetstream = mesh.jetstream();
        let gone = jetstream.delete_consumer_from_stream(&name, &stream);
        let _ = answer(&mesh, "delete a consumer", WAIT, gone).await;
    });
}

/// Returns whether a message is a reply that somebody made the server publish here: any reader of
/// single messages can name any reply subject, even one that only others may publish to. Only such
/// replies have this header.
pub(crate) fn redirected(headers: &HeaderMap) -> bool {
    headers.get(async_nats::header::NATS_STREAM).is_some()
}

/// Milliseconds since 1970 UTC.
pub(crate) fn milliseconds(time: async_nats::datetime::DateTime) -> u64 {
    u64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or_default()
}
