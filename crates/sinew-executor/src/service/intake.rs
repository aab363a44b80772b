//! Messages of a shard's streams: what they name is looked up, and what cannot be used is quarantined.
//!
//! Runs before a turn is decided, and beside other messages of the turn.

use std::sync::Arc;
use std::time::Duration;

use sinew_mesh::quarantine::SuspectMessage;
use sinew_mesh::{ReceivedMessage, Source};
use sinew_protocol::journal::ExecutionRecord;
use sinew_protocol::{Fault, ResultToken, Subject};
use sinew_shard::{
    CODE_BROKE, Found, InboxMessage, InputStream, Lookup, PendingInput, QuarantineReason, ShardInput,
    ShardState, TakeoverNote, WorkItem,
};
use tracing::{debug, error, warn};

use super::Shared;

/// Attempts to quarantine a message before it is dropped; each takes up to half a minute.
const MAX_QUARANTINE_ATTEMPTS: u32 = 3;
/// Pause between tries to reach the broker.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The shared parts, so that a shard's futures own them.
pub(super) type Handle = Arc<Shared>;

/// Returns the stream of a message.
pub(super) fn stream_of(received: &ReceivedMessage) -> InputStream {
    match received.source {
        Source::Commands => InputStream::Commands,
        Source::Results => InputStream::Results,
    }
}

/// Returns the piece of work that a message is about.
pub(super) fn work_item(received: &ReceivedMessage) -> WorkItem {
    message_of(received, None).work_item()
}

fn message_of<'a>(received: &'a ReceivedMessage, traceparent: Option<&'a str>) -> InboxMessage<'a> {
    InboxMessage {
        stream: stream_of(received),
        seq: received.seq,
        subject: received.subject.as_ref(),
        body: &received.body,
        traceparent,
    }
}

/// Makes an input of a message. Waits until the broker can be asked for the plans and values that the message names.
pub(super) async fn read(
    shared: &Shared,
    state: &ShardState,
    note: &TakeoverNote,
    received: &ReceivedMessage,
) -> ShardInput {
    let trace = sinew_mesh::trace::TraceParent::of(&received.headers).map(|trace| trace.to_string());
    let message = message_of(received, trace.as_deref());
    let mut pending = if note.is_condemned(&message.work_item()) {
        state.refuse_condemned(&message)
    } else {
        state.decode(&message)
    };
    if let Some(reason) = pending.take_quarantine() {
        quarantine(shared, received, &reason).await;
    }
    complete(shared, pending).await
}

/// Looks up what a message names.
pub(super) async fn complete(shared: &Shared, mut pending: PendingInput) -> ShardInput {
    while let Some(lookup) = pending.lookup() {
        pending.supply(find(shared, lookup).await);
    }
    pending.finish()
}

/// Fault of work on another thread that panicked.
pub(super) fn broke(work: &str, error: &tokio::task::JoinError) -> Fault {
    Fault::error(CODE_BROKE, format!("{work} broke: {error}")).with_retryable(false)
}

async fn find(shared: &Shared, lookup: Lookup) -> Found {
    match lookup {
        Lookup::Record(execution) => {
            let read = || async {
                let Some((_, bytes)) = shared.mesh.history().get(&execution).await? else { return Ok(None) };
                // A record may have hundreds of megabytes, and anybody may repeat a start: other shards go on.
                let decode = move || ExecutionRecord::decode(&bytes).map(Box::new);
                let decoded = tokio::task::spawn_blocking(decode).await;
                Ok(Some(decoded.map_err(|error| broke("reading a record", &error))??))
            };
            Found::Record(retry_transient(read).await)
        }
        Lookup::Program { workflow, version } => {
            Found::Program(retry_transient(|| shared.programs.meant(&workflow, version.as_deref())).await)
        }
        Lookup::Plan(digest) => Found::Program(retry_transient(|| shared.programs.by_digest(&digest)).await),
        Lookup::Value(address) => Found::Value(retry_transient(|| shared.value(&address)).await),
        Lookup::Result { execution, task, agent } => {
            let (shard, token) = (execution.shard(shared.shards), ResultToken::of(&shared.key, &task));
            let subject = Subject::Result { shard, agent, execution, task, token };
            let read = || async { Ok(shared.mesh.commands().stored_result(&subject).await?) };
            Found::Result(retry_transient(read).await)
        }
    }
}

/// Tries again as long as the fault says that it helps: the message is stored, and nothing may be lost.
pub(super) async fn retry_transient<T, F: Future<Output = Result<T, Fault>>>(
    again: impl Fn() -> F,
) -> Result<T, Fault> {
    loop {
        match again().await {
            Err(fault) if fault.retryable => {
                debug!(%fault, "tried again");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            done => return done,
        }
    }
}

/// Puts a message into the quarantine.
async fn quarantine(shared: &Shared, received: &ReceivedMessage, reason: &QuarantineReason) {
    let code = reason.code;
    // Not the reason: it may quote the message. The quarantine has both.
    warn!(subject = %received.name, seq = received.seq, code, "message set aside");
    metrics::counter!("sinew_quarantined_total", "code" => code).increment(1);
    let reason = format!("{code}: {}", reason.text);
    let suspect = || SuspectMessage {
        stream: received.source.as_str(),
        seq: received.seq,
        time: received.time,
        name: received.name.clone(),
        headers: received.headers.clone(),
        body: received.body.clone(),
    };
    // If only the quarantine stores nothing, other executions must not wait for it.
    for _ in 0..MAX_QUARANTINE_ATTEMPTS {
        match shared.mesh.quarantine().put_or_drop(suspect(), &reason).await {
            Ok(_) => return,
            Err(error) => debug!(%error, "the quarantine cannot be reached"),
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    metrics::counter!("sinew_quarantine_lost_total").increment(1);
    error!(subject = %received.name, seq = received.seq, code, "a message could not be set aside");
}
