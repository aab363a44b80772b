//! Messages of a shard's streams: what they name is looked up, and what cannot be used is quarantined.
//!
//! Runs before a turn is decided, and beside other messages of the turn.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sinew_mesh::quarantine::SuspectMessage;
use sinew_mesh::start::StartRequest;
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

/// Makes inputs of messages and of starts by request. Waits until the broker can be asked for the records, plans and values
/// that they name.
pub(super) async fn read_all(
    shared: &Shared,
    state: &ShardState,
    note: &TakeoverNote,
    messages: &[ReceivedMessage],
    starts: Vec<PendingInput>,
) -> Vec<ShardInput> {
    let mut all = Vec::with_capacity(messages.len() + starts.len());
    let mut aside = Vec::new();
    for received in messages {
        let mut pending = read(state, note, received);
        if let Some(reason) = pending.take_quarantine() {
            aside.push(quarantine(shared, received, reason));
        }
        all.push(pending);
    }
    join_all(aside).await;
    all.extend(starts);
    for pending in &mut all {
        while let Some(found) = pending.lookup().and_then(|lookup| find_at_hand(shared, &lookup)) {
            pending.supply(found);
        }
    }
    if all.iter().all(|pending| pending.lookup().is_none()) {
        return all.into_iter().map(PendingInput::finish).collect();
    }
    join_all(all.into_iter().map(|pending| complete(shared, pending))).await
}

/// Reads a start by request; `None` if its caller has to store it as a command.
pub(super) fn read_start(state: &ShardState, request: &StartRequest) -> Option<PendingInput> {
    let trace = request.trace.map(|trace| trace.to_string());
    let reply = request.reply.to_string();
    state.decode_start_request(&request.caller, &request.id, &request.body, trace.as_deref(), reply)
}

fn read(state: &ShardState, note: &TakeoverNote, received: &ReceivedMessage) -> PendingInput {
    let trace = sinew_mesh::trace::TraceParent::of(&received.headers).map(|trace| trace.to_string());
    let message = message_of(received, trace.as_deref());
    if note.is_condemned(&message.work_item()) {
        return state.refuse_condemned(&message);
    }
    state.decode(&message)
}

/// Looks up what a message names.
pub(super) async fn complete(shared: &Shared, mut pending: PendingInput) -> ShardInput {
    while let Some(lookup) = pending.lookup() {
        pending.supply(find(shared, lookup).await);
    }
    pending.finish()
}

/// Returns what is known here already.
fn find_at_hand(shared: &Shared, lookup: &Lookup) -> Option<Found> {
    match lookup {
        Lookup::Program { workflow, version } => shared
            .programs
            .meant_at_hand(workflow, version.as_deref())
            .map(|program| Found::Program(Ok(program))),
        Lookup::Plan(digest) => shared.programs.ready(digest).map(|program| Found::Program(Ok(program))),
        Lookup::Record(_) | Lookup::Value(_) | Lookup::Result { .. } => None,
    }
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
async fn quarantine(shared: &Shared, received: &ReceivedMessage, reason: QuarantineReason) {
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
