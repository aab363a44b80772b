//! Follows the last messages of a stream for the lifetime of a view, across reconnects, restarts
//! and gaps.
//!
//! Every pass starts with the current content of the stream, so a follower does not need to know
//! which messages it missed.

use std::convert::Infallible;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::consumer::pull::BatchConfig;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::{HeaderMap, StatusCode};
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::stream::pull::{Link, answer, redirected, unreachable};
use crate::stream::stored::MessageQuery;
use crate::wire::undeliverable;
use crate::{Mesh, MeshError};

const FOLLOWING: &str = "follow a stream";

/// Stream and subjects to follow.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The stream's name on the server.
    pub(crate) stream: String,
    /// Filter for subjects.
    pub(crate) filter: String,
    /// First messages of a pass.
    pub(crate) from: DeliverPolicy,
    /// Interval of [`FollowedItem::Tick`] while the stream is reachable.
    pub(crate) tick: Duration,
}

/// Item that a follower receives.
#[derive(Debug)]
pub(crate) enum FollowedItem {
    /// A pass starts with the current content of the stream.
    Begin,
    /// One message.
    Message {
        /// Its subject.
        subject: String,
        /// Its body; empty for a tombstone.
        body: Bytes,
        /// Its sequence number.
        seq: u64,
        /// When the server stored it, on the local monotonic clock.
        at: Instant,
    },
    /// The content of the stream at the start of the pass is complete.
    Whole,
    /// Some time has passed while the stream was reachable.
    Tick,
}

/// How much of its stream a view contains.
#[derive(Clone, Debug, Default)]
struct ViewProgress {
    /// Whether a pass was completed.
    is_whole: bool,
    /// Sequence of the last message in the view.
    seen: u64,
    /// Why the stream cannot be followed now.
    problem: Option<String>,
}

/// A running follower; stops on drop.
#[derive(Debug)]
pub(crate) struct Follower {
    mesh: Mesh,
    source: Source,
    progress: watch::Receiver<ViewProgress>,
    /// The last comparison with the leader, shared by callers.
    comparison: Mutex<Option<Comparison>>,
    task: JoinHandle<()>,
}

/// A comparison of a view with the leader of its stream.
#[derive(Debug)]
struct Comparison {
    started: Instant,
    /// Why the view may be incomplete; `None` if it was complete.
    failure: Option<String>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Follower {
    /// Waits until the view contains everything that the stream contained when the follower
    /// started.
    pub(crate) async fn ready(&self) {
        let mut progress = self.progress.clone();
        let _gone = progress.wait_for(|view| view.is_whole).await;
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.progress.borrow().is_whole
    }

    /// Waits until the view contains everything that the stream contains now, as reported by its
    /// leader.
    ///
    /// # Errors
    ///
    /// [`MeshError::Unreachable`] if that is not known in time: then missing entries prove nothing.
    pub(crate) async fn current(&self) -> Result<(), MeshError> {
        let called = Instant::now();
        let mut shared = self.comparison.lock().await;
        // Concurrent callers share at most two requests to the leader, however slow it is.
        let failure = match &*shared {
            Some(last) if last.started >= called => last.failure.clone(),
            _ => {
                let started = Instant::now();
                let compared = timeout(CURRENT_TIMEOUT, self.compare()).await;
                let late = |_| Err(self.problem());
                let failure = compared.unwrap_or_else(late).err();
                *shared = Some(Comparison { started, failure: failure.clone() });
                failure
            }
        };
        failure.map_or(Ok(()), |reason| Err(MeshError::Unreachable { what: FOLLOWING, reason }))
    }

    async fn compare(&self) -> Result<(), String> {
        let Source { stream, filter, .. } = &self.source;
        let last = match self.mesh.message(stream, &MessageQuery::last(filter)).await {
            Ok(last) => last.map_or(0, |message| message.sequence),
            // Some roles may only read a part of the stream, and not query its leader.
            Err(MeshError::Forbidden { .. } | MeshError::Refused { .. }) => 0,
            Err(error) => return Err(error.to_string()),
        };
        let mut progress = self.progress.clone();
        let arrived = progress.wait_for(|view| view.is_whole && view.seen >= last).await;
        arrived.map(drop).map_err(|_| self.problem())
    }

    fn problem(&self) -> String {
        let problem = self.progress.borrow().problem.clone();
        problem.unwrap_or_else(|| format!("stream {} was not read in time", self.source.stream))
    }
}

/// Passes the items of a stream to `sink`, until the returned value is dropped.
pub(crate) fn follow(
    mesh: Mesh,
    source: Source,
    mut sink: impl FnMut(FollowedItem) + Send + 'static,
) -> Follower {
    let (progress, received) = watch::channel(ViewProgress::default());
    let (shared, followed) = (mesh.clone(), source.clone());
    let task = tokio::spawn(async move {
        loop {
            // A pass ends only when the stream becomes unreadable.
            let Err(error) = pass(&mesh, &source, &progress, &mut sink).await;
            tracing::debug!(%error, stream = source.stream, "cannot read the stream; following it again");
            progress.send_modify(|view| view.problem = Some(error.to_string()));
            // Views that lose the same server together should not all retry together.
            sleep(Duration::from_millis(rand::random_range(100..600))).await;
        }
    });
    Follower { mesh: shared, source: followed, progress: received, comparison: Mutex::default(), task }
}

/// Heartbeat interval; a stream counts as unreachable after two.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long an idle stream may go without a comparison with its leader, and a message may take to
/// arrive.
const CHECK: Duration = if cfg!(test) { Duration::from_millis(500) } else { Duration::from_secs(10) };
const DELIVERY: Duration = if cfg!(test) { Duration::from_millis(500) } else { Duration::from_secs(2) };
/// Pause at the start of a pass after which its consumer is queried for remaining messages.
const LULL: Duration = if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(1) };
/// Timeout for a view to become complete, and for the server's reply.
const CURRENT_TIMEOUT: Duration = Duration::from_secs(5);

async fn pass(
    mesh: &Mesh,
    source: &Source,
    progress: &watch::Sender<ViewProgress>,
    sink: &mut impl FnMut(FollowedItem),
) -> Result<Infallible, MeshError> {
    let lost = |reason: String| MeshError::Unreachable { what: FOLLOWING, reason };
    let link = Link::new(mesh);
    let consumer = open(mesh, &source.stream, source.filter.clone(), source.from).await?;
    let (created, mut left) = (consumer.cached_info().created, consumer.cached_info().num_pending);
    let began = Instant::now();
    let mut messages = consumer
        .stream()
        .heartbeat(HEARTBEAT)
        .expires(6 * HEARTBEAT)
        .messages()
        .await
        .map_err(|error| lost(error.to_string()))?;
    sink(FollowedItem::Begin);
    let (mut expected, mut heard) = (1, began);
    let mut leader = LeaderCheck::new(mesh, source, consumer.cached_info().cluster.is_some());
    let mut is_whole = false;
    let mut ticks = interval(source.tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_read = left == 0 && !is_whole;
        if is_read || leader.is_due(heard) {
            let has_come = leader.has_come().await?;
            if is_read && has_come {
                is_whole = true;
                sink(FollowedItem::Whole);
                let seen = leader.seen;
                progress.send_modify(|view| *view = ViewProgress { is_whole, seen, problem: None });
            }
        }
        let mut came = tokio::select! {
            message = messages.next() => Some(message),
            _ = ticks.tick() => None,
        };
        if came.is_none() {
            if link.is_replaced() || mesh.client().connection_state() != State::Connected {
                return Err(lost("the connection was lost".to_owned()));
            }
            if left > 0 && heard.elapsed() > LULL {
                check_drained(mesh, &consumer).await?;
                // Messages that were delivered before the reply have arrived, because the
                // connection preserves order. If none has, the remaining messages were deleted in
                // the meantime.
                came = messages.next().now_or_never();
                if came.is_none() {
                    left = 0;
                }
            }
            sink(FollowedItem::Tick);
        }
        let Some(message) = came else { continue };
        let message = message
            .ok_or_else(|| lost("the messages ended".to_owned()))?
            .map_err(|error| lost(error.to_string()))?;
        let info = message.info().map_err(|error| lost(error.to_string()))?;
        if info.consumer_sequence != expected {
            return Err(lost("messages were lost in transit".to_owned()));
        }
        expected += 1;
        heard = Instant::now();
        // Both times are the server's, so a wrong local clock does not matter.
        let age = Duration::try_from(created - info.published).unwrap_or_default();
        let at = if left > 0 { began.checked_sub(age).unwrap_or(began) } else { heard };
        let (seq, pending) = (info.stream_sequence, info.pending);
        let subject = message.subject.to_string();
        if !message.headers.as_ref().is_some_and(is_foreign) {
            sink(FollowedItem::Message { subject, body: message.message.payload, seq, at });
        }
        leader.seen = seq;
        if is_whole {
            progress.send_modify(|view| view.seen = seq);
        }
        if left > 0 {
            left = if pending == 0 { 0 } else { left - 1 };
        }
    }
}

/// Queries the server whether a consumer has delivered everything, without waiting for a message.
///
/// # Errors
///
/// The server does not reply, or delivers a message: then requests of the reader were lost.
async fn check_drained(mesh: &Mesh, consumer: &PullConsumer) -> Result<(), MeshError> {
    let lost = |reason: String| MeshError::Unreachable { what: FOLLOWING, reason };
    let inbox = async_nats::Subject::from(mesh.client().new_inbox());
    let subscribed = mesh.client().subscribe(inbox.clone()).await;
    let mut answers = subscribed.map_err(|error| unreachable(FOLLOWING, &error))?;
    let request = BatchConfig { batch: 1, no_wait: true, ..BatchConfig::default() };
    let requested = consumer.request_batch(request, inbox).await;
    requested.map_err(|error| unreachable(FOLLOWING, &error))?;
    let message = answer(mesh, FOLLOWING, CURRENT_TIMEOUT, answers.next()).await?;
    match message.map(|message| (message.status, message.description)) {
        Some((Some(StatusCode::NOT_FOUND), _)) => Ok(()),
        Some((Some(status), text)) => Err(lost(format!("{status} {}", text.unwrap_or_default()))),
        Some((None, _)) => Err(lost("a message was not delivered".to_owned())),
        None => Err(lost("the connection is closed".to_owned())),
    }
}

/// Comparison of a pass with the stream's leader. In a cluster, a consumer may read from a replica
/// that lags or is being restored: it reports completion too early, and may stop delivering.
struct LeaderCheck<'a> {
    mesh: &'a Mesh,
    source: &'a Source,
    /// Sequence number of the last received message.
    seen: u64,
    /// A message that the leader has, and since when it is missing here.
    missing: Option<(u64, Instant)>,
    asked: Instant,
    /// Whether the stream is replicated, and this process may query its leader.
    is_useful: bool,
}

impl<'a> LeaderCheck<'a> {
    fn new(mesh: &'a Mesh, source: &'a Source, is_cluster: bool) -> Self {
        Self { mesh, source, seen: 0, missing: None, asked: Instant::now(), is_useful: is_cluster }
    }

    /// Returns whether a stream that was last received at this time should be compared.
    fn is_due(&self, heard: Instant) -> bool {
        self.missing.is_some() || self.asked.max(heard).elapsed() > CHECK
    }

    /// Returns whether everything that the leader has (or had when queried) was received; an error
    /// if it is overdue.
    async fn has_come(&mut self) -> Result<bool, MeshError> {
        match self.missing {
            Some((seq, _)) if self.seen >= seq => {
                self.missing = None;
                return Ok(true);
            }
            Some((seq, since)) if since.elapsed() > DELIVERY => {
                let reason = format!("message {seq} is stored and was not delivered");
                return Err(MeshError::Unreachable { what: FOLLOWING, reason });
            }
            Some(_) => return Ok(false),
            None => {}
        }
        self.asked = Instant::now();
        if !self.is_useful {
            return Ok(true);
        }
        match self.mesh.unread(&self.source.stream, &self.source.filter, self.seen).await {
            Ok(None) => Ok(true),
            Ok(Some(message)) => {
                self.missing = Some((message.sequence, self.asked));
                Ok(false)
            }
            // Some roles may only read a part of the stream, and the leader can be queried for any
            // message.
            Err(MeshError::Forbidden { .. } | MeshError::Refused { .. }) => {
                self.is_useful = false;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns whether a message is not what its publisher wrote to its subject.
pub(crate) fn is_foreign(headers: &HeaderMap) -> bool {
    redirected(headers) || undeliverable(headers).is_some()
}

/// Opens an ephemeral consumer: in memory, without acknowledgements, removed soon after its reader.
pub(crate) async fn open(
    mesh: &Mesh,
    stream: &str,
    filter: String,
    from: DeliverPolicy,
) -> Result<async_nats::jetstream::consumer::PullConsumer, MeshError> {
    consumer(mesh, stream, pull::Config { filter_subject: filter, deliver_policy: from, ..quiet() }).await
}

/// Common settings of such consumers.
pub(crate) fn quiet() -> pull::Config {
    pull::Config {
        ack_policy: AckPolicy::None,
        memory_storage: true,
        num_replicas: 1,
        inactive_threshold: Duration::from_secs(30),
        ..pull::Config::default()
    }
}

/// Creates a consumer. With a name, its filter is part of the request subject, so the server can
/// check read rights.
pub(crate) async fn consumer(
    mesh: &Mesh,
    stream: &str,
    config: pull::Config,
) -> Result<async_nats::jetstream::consumer::PullConsumer, MeshError> {
    let what = "read a stream";
    let refused = |reason: String| MeshError::Refused { what, reason };
    let config = pull::Config { name: Some(format!("look-{}", uuid::Uuid::now_v7().simple())), ..config };
    let call = format!("$JS.API.CONSUMER.CREATE.{stream}.");
    let made = mesh.permitted(&call, mesh.jetstream().create_consumer_on_stream(config, stream)).await?;
    made.map_err(|error| {
        use async_nats::jetstream::stream::ConsumerErrorKind;
        let reason = error.to_string();
        match error.kind() {
            ConsumerErrorKind::TimedOut | ConsumerErrorKind::Request => {
                MeshError::Unreachable { what, reason }
            }
            _ => refused(reason),
        }
    })
}

/// Messages that [`sweep`] requests at a time.
const BATCH: usize = 500;
/// Time that a sweep waits for undelivered messages, and between two checks.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(5);
const SWEEP_PAUSE: Duration = Duration::from_millis(50);

/// Reads the current content of a stream, oldest first, until `take` returns false.
pub(crate) async fn sweep(
    mesh: &Mesh,
    stream: &str,
    filter: String,
    from: DeliverPolicy,
    take: impl FnMut(&async_nats::jetstream::Message) -> bool,
) -> Result<(), MeshError> {
    sweep_with(mesh, stream, pull::Config { filter_subject: filter, deliver_policy: from, ..quiet() }, take)
        .await
}

/// Like [`sweep`], with the given consumer settings.
pub(crate) async fn sweep_with(
    mesh: &Mesh,
    stream: &str,
    config: pull::Config,
    mut take: impl FnMut(&async_nats::jetstream::Message) -> bool,
) -> Result<(), MeshError> {
    let lost = |reason: String| MeshError::Unreachable { what: "read a stream", reason };
    let filter = config.filter_subject.clone();
    let mut last = match config.deliver_policy {
        DeliverPolicy::ByStartSequence { start_sequence } => start_sequence.saturating_sub(1),
        _ => 0,
    };
    let consumer = consumer(mesh, stream, config).await?;
    let mut left = consumer.cached_info().num_pending;
    let (mut expected, mut is_whole, mut heard) = (1, true, Instant::now());
    'all: while left > 0 {
        let mut batch =
            consumer.fetch().max_messages(BATCH).messages().await.map_err(|error| lost(error.to_string()))?;
        let before = expected;
        // A lost reply must neither block the reader forever nor count as the end of the stream.
        while let Some(message) = timeout(SWEEP_TIMEOUT, batch.next())
            .await
            .map_err(|_| lost(format!("no response within {} s", SWEEP_TIMEOUT.as_secs())))?
        {
            let message = message.map_err(|error| lost(error.to_string()))?;
            let info = message.info().map_err(|error| lost(error.to_string()))?;
            if info.consumer_sequence != expected {
                return Err(lost("messages were lost in transit".to_owned()));
            }
            (expected, left, last) = (expected + 1, info.pending, info.stream_sequence);
            if message.headers.as_ref().and_then(undeliverable).is_none() && !take(&message) {
                is_whole = false;
                break 'all;
            }
        }
        if expected > before {
            heard = Instant::now();
            continue;
        }
        // The rest was deleted, or the server is slow: a partial list must not count as complete.
        if matches!(mesh.unread(stream, &filter, last).await, Ok(None)) {
            break;
        }
        if heard.elapsed() > SWEEP_TIMEOUT {
            return Err(lost("the server does not deliver stored messages; retry".to_owned()));
        }
        sleep(SWEEP_PAUSE).await;
    }
    // It would otherwise expire a little later.
    let info = consumer.cached_info();
    if let Ok(stream) = mesh.jetstream().get_stream_no_info(stream).await {
        let _gone = stream.delete_consumer(&info.name).await;
    }
    // A replica that lags or is being restored ends early.
    if !is_whole || info.cluster.is_none() {
        return Ok(());
    }
    match mesh.unread(stream, &filter, last).await {
        Ok(Some(unread)) if unread.time < info.created => {
            Err(lost("a replica of the stream is behind; retry".to_owned()))
        }
        // Some roles cannot query the leader.
        Ok(_) | Err(MeshError::Forbidden { .. } | MeshError::Refused { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
