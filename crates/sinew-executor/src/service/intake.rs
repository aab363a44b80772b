//! Intake of a shard's messages: looks up what they reference and quarantines unusable ones.
//!
//! It runs before a turn is decided, concurrently for the messages of the turn.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sinew_mesh::quarantine::SuspectMessage;
use sinew_mesh::start::StartRequest;
use sinew_mesh::{MeshError, ReceivedMessage, Source, log_limited};
use sinew_protocol::journal::ExecutionRecord;
use sinew_protocol::{ExecutionId, Fault, ResultToken, Subject};
use sinew_shard::{
    CODE_BROKE, Found, InboxMessage, InputStream, Lookup, PendingInput, QuarantineReason, ShardInput,
    ShardState, TakeoverNote, WorkItem,
};
use tokio::sync::{OwnedSemaphorePermit, SemaphorePermit};
use tracing::debug;

use super::Shared;
use super::read_permits::{MAX_TURN_BYTES, SMALL_RECORD_BYTES};

/// Attempts to quarantine a message before it is dropped; each takes up to half a minute.
const MAX_QUARANTINE_ATTEMPTS: u32 = 3;
/// Pause between attempts to reach the broker.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Shared state, owned by the futures of a shard.
pub(super) type Handle = Arc<Shared>;

/// Returns the stream of a message.
pub(super) fn stream_of(received: &ReceivedMessage) -> InputStream {
    match received.source {
        Source::Commands => InputStream::Commands,
        Source::Results => InputStream::Results,
    }
}

/// Returns the work item of a message.
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

/// An input that was completed outside the loop of its shard.
pub(super) struct BackInput {
    pub(super) input: ShardInput,
    /// Memory permit for its stored value; released once the input is decided.
    pub(super) permit: Option<OwnedSemaphorePermit>,
    /// A message instead of an input, parsed like those of the inbox.
    pub(super) message: Option<Box<ReceivedMessage>>,
}

impl BackInput {
    /// Creates an input from a stored result that the inbox may not deliver.
    pub(super) fn of_message(message: ReceivedMessage) -> Self {
        Self { message: Some(Box::new(message)), ..Self::from(ShardInput::Nothing) }
    }
}

impl From<ShardInput> for BackInput {
    fn from(input: ShardInput) -> Self {
        Self { input, permit: None, message: None }
    }
}

/// The inputs of one turn.
pub(super) struct TurnInputs<'a> {
    pub(super) inputs: Vec<ShardInput>,
    /// Number of included messages; the others are left for the next turn.
    pub(super) read: usize,
    /// Memory permit for the stored values; released once the inputs are decided.
    _permit: Option<SemaphorePermit<'a>>,
}

/// Converts messages and start requests to inputs. Waits until the broker returns the records,
/// plans and values that they reference. Messages after the memory limit of a turn is reached are
/// left for the next one.
pub(super) async fn read_all<'a>(
    shared: &'a Shared,
    state: &ShardState,
    note: &TakeoverNote,
    messages: &[ReceivedMessage],
    starts: Vec<PendingInput>,
) -> TurnInputs<'a> {
    let mut all: Vec<_> = messages.iter().map(|received| read(state, note, received)).collect();
    let mut reasons: Vec<_> = all.iter_mut().map(PendingInput::take_quarantine).collect();
    all.extend(starts);
    for pending in &mut all {
        while let Some(found) = pending.lookup().and_then(|lookup| find_at_hand(shared, &lookup)) {
            pending.supply(found);
        }
    }
    if all.iter().any(|pending| pending.lookup().is_some()) {
        join_all(all.iter_mut().map(|pending| find_named(shared, pending))).await;
    }
    let (mut read, mut bytes, mut permit) = (messages.len(), 0, None);
    for (nth, pending) in all.iter_mut().enumerate() {
        if pending.lookup().is_none() {
            continue;
        }
        if bytes > MAX_TURN_BYTES && nth < messages.len() {
            read = nth;
            break;
        }
        if permit.is_none() {
            permit = shared.reads.turn().await;
        }
        bytes += find_rest(shared, pending).await;
    }
    // A remaining message is decoded again, so it is not quarantined yet.
    reasons.truncate(read);
    let aside = messages.iter().zip(reasons).filter_map(|(received, reason)| Some((received, reason?)));
    join_all(aside.map(|(received, reason)| quarantine(shared, received, reason))).await;
    all.drain(read..messages.len());
    TurnInputs { inputs: all.into_iter().map(PendingInput::finish).collect(), read, _permit: permit }
}

/// Parses a start request; `None` if its caller has to store it as a command.
pub(super) fn read_start(state: &ShardState, request: &StartRequest) -> Option<PendingInput> {
    let trace = request.trace.map(|trace| trace.to_string());
    let reply = request.reply.to_string();
    state.decode_start_request(&request.caller, &request.id, &request.body, trace.as_deref(), reply)
}

fn read(state: &ShardState, note: &TakeoverNote, received: &ReceivedMessage) -> PendingInput {
    let trace = sinew_mesh::trace::TraceParent::of(&received.headers).map(|trace| trace.to_string());
    state.decode_with_care(note, &message_of(received, trace.as_deref()))
}

/// Looks up what a result references.
pub(super) async fn complete(shared: &Shared, mut pending: PendingInput) -> BackInput {
    find_named(shared, &mut pending).await;
    let permit = match pending.lookup() {
        Some(_) => shared.reads.arrival().await,
        None => None,
    };
    find_rest(shared, &mut pending).await;
    BackInput { input: pending.finish(), permit, message: None }
}

/// Looks up what a message references, except its stored value.
async fn find_named(shared: &Shared, pending: &mut PendingInput) {
    while let Some(lookup) = pending.lookup().filter(|lookup| !matches!(lookup, Lookup::Value(_))) {
        pending.supply(find(shared, lookup).await.0);
    }
}

/// Looks up everything that a message references. Returns the memory in bytes of the stored values.
async fn find_rest(shared: &Shared, pending: &mut PendingInput) -> usize {
    let mut all_bytes = 0;
    while let Some(lookup) = pending.lookup() {
        let (found, bytes) = find(shared, lookup).await;
        all_bytes += bytes;
        pending.supply(found);
    }
    all_bytes
}

/// Returns data that is available locally.
fn find_at_hand(shared: &Shared, lookup: &Lookup) -> Option<Found> {
    match lookup {
        Lookup::Program { workflow, version } => {
            shared.programs.meant_at_hand(workflow, version.as_deref()).map(|program| Found::Start {
                program: Ok(program),
                paused: shared.programs.keep_start(workflow),
            })
        }
        Lookup::Plan(digest) => shared.programs.ready(digest).map(|program| Found::Program(Ok(program))),
        Lookup::Record(_) | Lookup::Value(_) | Lookup::Result { .. } => None,
    }
}

/// Fault of a panic on another thread.
pub(super) fn broke(work: &str, error: &tokio::task::JoinError) -> Fault {
    Fault::error(CODE_BROKE, format!("{work} failed: {error}")).with_retryable(false)
}

/// Looks up one item. Returns the memory in bytes of a stored value, too.
async fn find(shared: &Shared, lookup: Lookup) -> (Found, usize) {
    let found = match lookup {
        Lookup::Record(execution) => Found::Record(retry_transient(|| read_record(shared, &execution)).await),
        Lookup::Program { workflow, version } => {
            let program = retry_transient(|| shared.programs.meant(&workflow, version.as_deref())).await;
            Found::Start { program, paused: shared.programs.keep_start(&workflow) }
        }
        Lookup::Plan(digest) => Found::Program(retry_transient(|| shared.programs.by_digest(&digest)).await),
        Lookup::Value(address) => {
            let value = retry_transient(|| shared.value(&address)).await;
            let bytes = value.as_ref().map_or(0, |(_, bytes)| *bytes);
            return (Found::Value(value.map(|(value, _)| value)), bytes);
        }
        Lookup::Result { execution, task, agent } => {
            let (shard, token) = (execution.shard(shared.shards), ResultToken::of(&shared.key, &task));
            let subject = Subject::Result { shard, agent, execution, task, token };
            let read = || async { Ok(shared.mesh.commands().stored_result(&subject).await?) };
            Found::Result(retry_transient(read).await)
        }
    };
    (found, 0)
}

/// Reads the record of a closed execution. It may have hundreds of megabytes, and any caller may
/// repeat a start: large records are read one at a time, while other shards continue.
async fn read_record(
    shared: &Shared,
    execution: &ExecutionId,
) -> Result<Option<Box<ExecutionRecord>>, Fault> {
    let history = shared.mesh.history();
    let small = shared.reads.small_record().await;
    let (_permit, stored) = match history.get_within(execution, SMALL_RECORD_BYTES).await {
        Err(MeshError::TooLarge { .. }) => {
            drop(small);
            let large = shared.reads.large_record().await;
            (large, history.get(execution).await)
        }
        stored => (small, stored),
    };
    let Some((_, bytes)) = stored? else { return Ok(None) };
    let decode = move || ExecutionRecord::decode(&bytes).map(Box::new);
    let decoded = tokio::task::spawn_blocking(decode).await;
    Ok(Some(decoded.map_err(|error| broke("reading a record", &error))??))
}

/// Retries while the fault is retryable: the message is stored, and nothing may be lost.
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

/// Quarantines a message.
async fn quarantine(shared: &Shared, received: &ReceivedMessage, reason: QuarantineReason) {
    let code = reason.code;
    // Without the reason, which may quote the message. The quarantine contains both.
    log_limited!(warn, subject = %received.name, seq = received.seq, code, "quarantined a message");
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
    // If only the quarantine is unavailable, other executions must not wait for it.
    for _ in 0..MAX_QUARANTINE_ATTEMPTS {
        match shared.mesh.quarantine().put_or_drop(suspect(), &reason).await {
            Ok(_) => return,
            Err(error) => debug!(%error, "cannot write to the quarantine; retrying"),
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    metrics::counter!("sinew_quarantine_lost_total").increment(1);
    let (subject, seq) = (&received.name, received.seq);
    log_limited!(error, %subject, seq, code, "cannot quarantine a message");
}
