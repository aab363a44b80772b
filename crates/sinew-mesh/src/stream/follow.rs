//! Following the last messages of a stream for as long as a view lives: reconnects, restarts and gaps included.
//!
//! Every pass begins with what the stream holds now, so whoever follows never needs to know what it missed.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::connection::State;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::stream::pull::{Link, redirected};
use crate::wire::undeliverable;
use crate::{Mesh, MeshError};

/// Stream and subjects to follow.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The stream's name on the server.
    pub(crate) stream: String,
    /// The subjects wanted.
    pub(crate) filter: String,
    /// Which messages a pass begins with.
    pub(crate) from: DeliverPolicy,
    /// How often [`FollowedItem::Tick`] comes while the stream is seen.
    pub(crate) tick: Duration,
}

/// Item that a follower receives.
#[derive(Debug)]
pub(crate) enum FollowedItem {
    /// A pass begins: what the stream holds comes first.
    Begin,
    /// One message.
    Message {
        /// Its subject.
        subject: String,
        /// Its body; empty for a tombstone.
        body: Bytes,
        /// Its place in the stream.
        seq: u64,
        /// When the server stored it, on our monotonic clock.
        at: Instant,
    },
    /// All that the stream held when the pass began has come.
    Whole,
    /// Some time passed while the stream was in sight.
    Tick,
}

/// Ends the following when dropped.
#[derive(Debug)]
pub(crate) struct FollowerTask(JoinHandle<()>);

impl Drop for FollowerTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Tells `sink` what happens on a stream, until the returned value is dropped.
pub(crate) fn follow(
    mesh: Mesh,
    source: Source,
    mut sink: impl FnMut(FollowedItem) + Send + 'static,
) -> FollowerTask {
    FollowerTask(tokio::spawn(async move {
        loop {
            // A pass ends only when the stream is out of sight.
            if let Err(error) = pass(&mesh, &source, &mut sink).await {
                tracing::debug!(%error, stream = source.stream, "looking again");
            }
            // Many views lose the same server at the same time; they should not all come back at once.
            tokio::time::sleep(Duration::from_millis(rand::random_range(100..600))).await;
        }
    }))
}

/// The longest a server may be silent before the stream counts as out of sight, halved.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How often a stream that gives nothing is compared with what its leader has, and how long a message may be on its way.
const CHECK: Duration = if cfg!(test) { Duration::from_millis(500) } else { Duration::from_secs(10) };
const DELIVERY: Duration = if cfg!(test) { Duration::from_millis(500) } else { Duration::from_secs(2) };
/// How long the beginning of a pass may pause before it counts as over: what was left of it has been removed meanwhile.
const LULL: Duration = Duration::from_secs(1);

async fn pass(mesh: &Mesh, source: &Source, sink: &mut impl FnMut(FollowedItem)) -> Result<(), MeshError> {
    let lost = |reason: String| MeshError::Unreachable { what: "following a stream", reason };
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
            }
        }
        tokio::select! {
            message = messages.next() => {
                let message = message
                    .ok_or_else(|| lost("the messages ended".to_owned()))?
                    .map_err(|error| lost(error.to_string()))?;
                let info = message.info().map_err(|error| lost(error.to_string()))?;
                if info.consumer_sequence != expected {
                    return Err(lost("messages were lost on the way".to_owned()));
                }
                expected += 1;
                heard = Instant::now();
                // Both times are the server's, so its clock may be wrong against ours.
                let age = Duration::try_from(created - info.published).unwrap_or_default();
                let at = if left > 0 { began.checked_sub(age).unwrap_or(began) } else { heard };
                let (seq, pending) = (info.stream_sequence, info.pending);
                let subject = message.subject.to_string();
                if !message.headers.as_ref().is_some_and(is_foreign) {
                    sink(FollowedItem::Message { subject, body: message.message.payload, seq, at });
                }
                leader.seen = seq;
                if left > 0 {
                    left = if pending == 0 { 0 } else { left - 1 };
                }
            }
            _ = ticks.tick() => {
                if link.is_replaced() || mesh.client().connection_state() != State::Connected {
                    return Err(lost("the connection is away".to_owned()));
                }
                if left > 0 && heard.elapsed() > LULL {
                    left = 0;
                }
                sink(FollowedItem::Tick);
            }
        }
    }
}

/// Comparison of a pass with the stream's leader. In a cluster, a consumer may read from a copy that is behind or is being
/// filled again: it says that all has come when little has, and may deliver nothing more.
struct LeaderCheck<'a> {
    mesh: &'a Mesh,
    source: &'a Source,
    /// Place of the last message that came.
    seen: u64,
    /// A message that the leader has, and since when it is waited for.
    missing: Option<(u64, Instant)>,
    asked: Instant,
    /// Whether there are copies, and this process may ask their leader.
    is_useful: bool,
}

impl<'a> LeaderCheck<'a> {
    fn new(mesh: &'a Mesh, source: &'a Source, is_cluster: bool) -> Self {
        Self { mesh, source, seen: 0, missing: None, asked: Instant::now(), is_useful: is_cluster }
    }

    /// Whether a stream that was last heard then should be compared.
    fn is_due(&self, heard: Instant) -> bool {
        self.missing.is_some() || self.asked.max(heard).elapsed() > CHECK
    }

    /// Whether everything has come that the leader has, or had when it was asked. An error when it does not come.
    async fn has_come(&mut self) -> Result<bool, MeshError> {
        const WHAT: &str = "following a stream";
        match self.missing {
            Some((seq, _)) if self.seen >= seq => {
                self.missing = None;
                return Ok(true);
            }
            Some((seq, since)) if since.elapsed() > DELIVERY => {
                let reason = format!("message {seq} is stored and was not delivered");
                return Err(MeshError::Unreachable { what: WHAT, reason });
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
            // Some roles may read a part of a stream only, and the leader is asked for any message.
            Err(MeshError::Forbidden { .. } | MeshError::Refused { .. }) => {
                self.is_useful = false;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether a message is not what its publisher wrote to its subject.
fn is_foreign(headers: &HeaderMap) -> bool {
    redirected(headers) || undeliverable(headers).is_some()
}

/// A consumer that leaves no trace: in memory, without acks, gone soon after its reader.
pub(crate) async fn open(
    mesh: &Mesh,
    stream: &str,
    filter: String,
    from: DeliverPolicy,
) -> Result<async_nats::jetstream::consumer::PullConsumer, MeshError> {
    consumer(mesh, stream, pull::Config { filter_subject: filter, deliver_policy: from, ..quiet() }).await
}

/// The settings that such consumers share.
pub(crate) fn quiet() -> pull::Config {
    pull::Config {
        ack_policy: AckPolicy::None,
        memory_storage: true,
        num_replicas: 1,
        inactive_threshold: Duration::from_secs(30),
        ..pull::Config::default()
    }
}

/// Makes a consumer. It has a name: only then is its filter part of the call, so that the server can tell what may be read.
pub(crate) async fn consumer(
    mesh: &Mesh,
    stream: &str,
    config: pull::Config,
) -> Result<async_nats::jetstream::consumer::PullConsumer, MeshError> {
    let what = "reading a stream";
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

/// Messages asked for at once by [`sweep`].
const BATCH: usize = 500;
/// How long a sweep waits for messages that are there and are not delivered, and between two looks.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(5);
const SWEEP_PAUSE: Duration = Duration::from_millis(50);

/// Reads what a stream holds now, oldest first, until `take` says no.
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

/// Like [`sweep`], with the settings of the consumer.
pub(crate) async fn sweep_with(
    mesh: &Mesh,
    stream: &str,
    config: pull::Config,
    mut take: impl FnMut(&async_nats::jetstream::Message) -> bool,
) -> Result<(), MeshError> {
    let lost = |reason: String| MeshError::Unreachable { what: "reading a stream", reason };
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
        while let Some(message) = batch.next().await {
            let message = message.map_err(|error| lost(error.to_string()))?;
            let info = message.info().map_err(|error| lost(error.to_string()))?;
            if info.consumer_sequence != expected {
                return Err(lost("messages were lost on the way".to_owned()));
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
        // The rest was removed meanwhile, or a server that is busy has not got to it: half a list must not pass for the whole.
        if matches!(mesh.unread(stream, &filter, last).await, Ok(None)) {
            break;
        }
        if heard.elapsed() > SWEEP_TIMEOUT {
            return Err(lost("the server delivers nothing of what is there; ask again".to_owned()));
        }
        sleep(SWEEP_PAUSE).await;
    }
    // It would go on its own, a little later.
    let info = consumer.cached_info();
    if let Ok(stream) = mesh.jetstream().get_stream_no_info(stream).await {
        let _gone = stream.delete_consumer(&info.name).await;
    }
    // A copy that is behind, or is being filled again, ends early.
    if is_whole
        && info.cluster.is_some()
        && let Ok(Some(unread)) = mesh.unread(stream, &filter, last).await
        && unread.time < info.created
    {
        return Err(lost("a copy of the stream is behind; ask again".to_owned()));
    }
    Ok(())
}
