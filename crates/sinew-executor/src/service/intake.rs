//! Decodes inputs: checks subjects and bodies, fetches plans and large values.
//!
//! Runs before a round is decided, and beside other messages of the round. An input that cannot be decoded is
//! quarantined first, so that the journal's positions may pass it.

use sinew_protocol::code;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sinew_engine::TaskReply;
use sinew_mesh::quarantine::SuspectMessage;
use sinew_mesh::{ReceivedMessage, Source};
use sinew_protocol::command::{Command, StartCommand};
use sinew_protocol::journal::ExecutionRecord;
use sinew_protocol::message::BadMessage;
use sinew_protocol::subject::Operation;
use sinew_protocol::task::{
    NodeAnswer, NodeOutput, NodeResult, is_node_message, read_node_answer, read_result_bytes,
};
use sinew_protocol::{ExecutionId, Fault, ResultToken, Subject, TaskId, Token};
use tracing::{debug, error, warn};

use super::Shared;
use super::book::Book;
use super::identity::StartIdentity;
use super::open::{Open, Stored};
use super::takeover::MAX_ITEM_DEATHS;
use crate::library::Program;

/// Attempts to set a message aside before it is dropped; each takes up to half a minute.
const MAX_QUARANTINE_ATTEMPTS: u32 = 3;
/// Waits between tries to reach the broker.
const AGAIN: Duration = Duration::from_millis(200);

/// An input that a shard's owner must decide about.
pub(super) enum Arrival {
    Start(Box<Begin>),
    Signal(Box<Signal>),
    Result(Box<Done>),
    /// Archived and answered.
    Closed {
        execution: ExecutionId,
        reopened: u32,
    },
    /// Set aside, or meant for nobody.
    Nothing,
}

impl Arrival {
    /// The execution that it is about.
    pub(super) fn execution(&self) -> Option<&ExecutionId> {
        match self {
            Self::Start(begin) => Some(&begin.command.execution),
            Self::Signal(signal) => Some(&signal.execution),
            Self::Result(done) => Some(&done.execution),
            Self::Closed { execution, .. } => Some(execution),
            Self::Nothing => None,
        }
    }
}

/// A start, with all that it names.
pub(super) struct Begin {
    pub(super) command: StartCommand,
    pub(super) id: Token,
    pub(super) caller: Token,
    pub(super) identity: StartIdentity,
    pub(super) program: Result<Program, Fault>,
    pub(super) input: Result<Value, Fault>,
    pub(super) traceparent: Option<String>,
}

/// Any other command.
pub(super) struct Signal {
    pub(super) execution: ExecutionId,
    pub(super) id: Token,
    pub(super) caller: Token,
    pub(super) op: Operation,
    pub(super) command: Command,
    /// The execution it is about, if that is closed and to be retried, or set aside and to be taken up again.
    pub(super) closed: Option<Result<Open, Fault>>,
    /// Why the command is refused, whatever it asks.
    pub(super) refusal: Option<Fault>,
}

/// The end of a task.
pub(super) struct Done {
    pub(super) execution: ExecutionId,
    pub(super) task: TaskId,
    /// Agent that answered.
    pub(super) agent: Token,
    pub(super) result: Result<TaskReply, Fault>,
}

/// Decodes a message. Waits until the broker can be asked for the plans and values that the message names.
pub(super) async fn understand(
    shared: &Shared,
    shard: u32,
    received: &ReceivedMessage,
    book: &Book,
) -> Arrival {
    match (received.source, &received.subject) {
        (Source::Commands, Some(Subject::Command { shard: addressed, operation, caller, id }))
            if *addressed == shard =>
        {
            match Command::read(*operation, id, &received.body) {
                Ok(command) if belongs(shared, shard, command.execution()) => {
                    self::command(shared, *operation, caller, id, command, received, book).await
                }
                Ok(_) => {
                    aside(
                        shared,
                        received,
                        code::MESSAGE_MEANINGLESS.as_str(),
                        "the execution belongs to another shard",
                    )
                    .await
                }
                Err(bad) => {
                    aside(shared, received, code::MESSAGE_MEANINGLESS.as_str(), &bad.to_string()).await
                }
            }
        }
        (Source::Results, Some(Subject::Result { shard: addressed, agent, execution, task, token }))
            if *addressed == shard =>
        {
            if !token.proves(&shared.key, task) || !belongs(shared, shard, execution) {
                return aside(
                    shared,
                    received,
                    code::RESULT_WITHOUT_PROOF.as_str(),
                    "its token does not prove the task",
                )
                .await;
            }
            if let Some((_, fault)) = book.set_aside_one(execution) {
                let text = format!("its execution waits for an operator: {}: {}", fault.code, fault.message);
                return aside(shared, received, code::EXECUTION_QUARANTINED.as_str(), &text).await;
            }
            match read_stored_result(&received.body, task) {
                Ok(result) => {
                    let result = reply(shared, result).await;
                    let (execution, task, agent) = (execution.clone(), task.clone(), agent.clone());
                    Arrival::Result(Box::new(Done { execution, task, agent, result }))
                }
                Err(bad) => {
                    // The task's sender is proved: what it sent is its answer, and a bad one.
                    let text = format!("the agent's result cannot be read: {bad}");
                    let code = if bad.code() == BadMessage::CODE {
                        code::MESSAGE_MEANINGLESS.as_str()
                    } else {
                        bad.code()
                    };
                    let _ = aside(shared, received, code, &text).await;
                    let result = Err(Fault::error(code, text));
                    let (execution, task, agent) = (execution.clone(), task.clone(), agent.clone());
                    Arrival::Result(Box::new(Done { execution, task, agent, result }))
                }
            }
        }
        _ => {
            aside(shared, received, code::MESSAGE_MEANINGLESS.as_str(), "its subject is none of this shard")
                .await
        }
    }
}

fn belongs(shared: &Shared, shard: u32, execution: &ExecutionId) -> bool {
    execution.shard(shared.shards) == shard
}

#[allow(clippy::too_many_arguments, reason = "one call, with all parts of one message")]
async fn command(
    shared: &Shared,
    op: Operation,
    caller: &Token,
    id: &Token,
    command: Command,
    received: &ReceivedMessage,
    book: &Book,
) -> Arrival {
    let open = |execution: &ExecutionId| book.known(execution).is_some();
    let (id, caller) = (id.clone(), caller.clone());
    match command {
        Command::Start(mut command) => {
            // Accept `behalf` only if an executor signed it.
            command.behalf.take_if(|behalf| !behalf.holds(&shared.key, &command.execution));
            let caller = command.behalf.as_ref().map_or(caller, |behalf| behalf.caller.clone());
            let identity = StartIdentity::of(&command, &caller, proves(shared, &command));
            let own = identity.check_id(&command, shared.mesh.namespace());
            // An execution that has ended keeps its id: another start must not replace its record.
            let checked = match own {
                Ok(()) if !open(&command.execution) => {
                    closed_start(shared, &identity, &command.execution).await
                }
                Ok(()) => Ok(false),
                Err(fault) => Err(fault),
            };
            let (program, input) = match checked {
                Ok(true) => {
                    debug!(execution = %command.execution, "a start was given twice");
                    return Arrival::Nothing;
                }
                Ok(false) => {
                    let meant = || shared.programs.meant(&command.workflow, command.version.as_deref());
                    let program = persist(meant).await;
                    let input = match &command.input_artifact {
                        Some(address) => persist(|| shared.value(address)).await,
                        None => Ok(command.input.clone()),
                    };
                    (program, input)
                }
                Err(fault) => (Err(fault), Ok(Value::Null)),
            };
            let traceparent = sinew_mesh::trace::TraceParent::of(&received.headers).map(|it| it.to_string());
            Arrival::Start(Box::new(Begin {
                command: *command,
                id,
                caller,
                identity,
                program,
                input,
                traceparent,
            }))
        }
        command => {
            let execution = command.execution().clone();
            let mut closed = None;
            if let Some((stored, _)) = book.set_aside_one(&execution)
                && matches!(command, Command::Resume(_) | Command::Cancel(_))
            {
                closed = Some(refolded(shared, stored.clone()).await);
            }
            if matches!(command, Command::Retry(_)) && !open(&execution) {
                closed = match persist(|| archived(shared, &execution)).await {
                    Ok(found) => found.map(Ok),
                    Err(fault) => Some(Err(fault)),
                };
            }
            Arrival::Signal(Box::new(Signal { execution, id, caller, op, command, closed, refusal: None }))
        }
    }
}

/// Whether a closed execution was begun by this start; a fault if another start has begun it.
async fn closed_start(
    shared: &Shared,
    identity: &StartIdentity,
    execution: &ExecutionId,
) -> Result<bool, Fault> {
    let found = persist(|| async { Ok(shared.mesh.get_history(execution).await?) }).await?;
    let Some((_, bytes)) = found else { return Ok(false) };
    identity.compare(&ExecutionRecord::decode(&bytes)?.meta)?;
    Ok(true)
}

/// A closed execution from the history.
async fn archived(shared: &Shared, execution: &ExecutionId) -> Result<Option<Open>, Fault> {
    let Some((_, bytes)) = shared.mesh.get_history(execution).await? else { return Ok(None) };
    let record = ExecutionRecord::decode(&bytes)?;
    let mut rounds = super::open::Log::default();
    record.rounds.iter().for_each(|round| rounds.push(round));
    let stored =
        Stored { meta: Arc::new(record.meta), rounds, verdicts: record.commands, first: 0, hold: None };
    refolded(shared, stored).await.map(Some)
}

/// An execution of which the stored facts are folded.
async fn refolded(shared: &Shared, stored: Stored) -> Result<Open, Fault> {
    let program = persist(|| shared.programs.by_digest(&stored.meta.plan)).await?;
    Open::fold(stored, program).map_err(|unfolded| unfolded.1)
}

/// Refuses a message that ended the owners of its shard, without a look at what it names.
pub(super) async fn condemned(shared: &Shared, received: &ReceivedMessage) -> Arrival {
    let text = format!("{MAX_ITEM_DEATHS} executors ended while they had the message in hand");
    let _ = aside(shared, received, code::MESSAGE_QUARANTINED.as_str(), &text).await;
    let Some(Subject::Command { shard, operation, caller, id }) = &received.subject else {
        return Arrival::Nothing;
    };
    let read = Command::read(*operation, id, &received.body).ok();
    let Some(command) = read.filter(|command| belongs(shared, *shard, command.execution())) else {
        return Arrival::Nothing;
    };
    let fault = Fault::invalid(code::MESSAGE_QUARANTINED.as_str(), text);
    let (id, caller, op) = (id.clone(), caller.clone(), *operation);
    match command {
        Command::Start(mut command) => {
            command.behalf.take_if(|behalf| !behalf.holds(&shared.key, &command.execution));
            let caller = command.behalf.as_ref().map_or(caller, |behalf| behalf.caller.clone());
            let identity = StartIdentity::of(&command, &caller, proves(shared, &command));
            let (program, input) = (Err(fault), Ok(Value::Null));
            let begin = Begin { command: *command, id, caller, identity, program, input, traceparent: None };
            Arrival::Start(Box::new(begin))
        }
        command => {
            let execution = command.execution().clone();
            let (closed, refusal) = (None, Some(fault));
            Arrival::Signal(Box::new(Signal { execution, id, caller, op, command, closed, refusal }))
        }
    }
}

/// A result that names the task it answers. One that names another was meant for another.
pub(super) fn of_task(result: NodeResult, task: &TaskId) -> Result<NodeResult, BadMessage> {
    if result.task == task.as_str() {
        return Ok(result);
    }
    let reason = "its id is another task's".to_owned();
    Err(BadMessage::Field { kind: "task".to_owned(), reason })
}

/// Reads a result of this task, in whichever form the agent was asked.
fn read_stored_result(body: &[u8], task: &TaskId) -> Result<NodeResult, BadMessage> {
    if !is_node_message(body) {
        return read_result_bytes(body).and_then(|result| of_task(result, task));
    }
    match read_node_answer(body, task)? {
        NodeAnswer::Ended(result) => Ok(*result),
        NodeAnswer::Refused(_) => {
            let reason = "a refusal is not a result".to_owned();
            Err(BadMessage::Field { kind: "task".to_owned(), reason })
        }
    }
}

/// An agent's result as the engine takes it. Waits until the output is there.
pub(super) async fn reply(shared: &Shared, result: NodeResult) -> Result<TaskReply, Fault> {
    match reply_at_hand(result) {
        Ok(reply) => reply,
        Err(mut result) => {
            if let NodeOutput::Address(address) = &result.output {
                result.output = NodeOutput::Value(persist(|| shared.value(address)).await?);
            }
            reply_at_hand(*result).unwrap_or_else(|_| Ok(TaskReply::new(Value::Null)))
        }
    }
}

/// An agent's result as the engine takes it; given back if the output lies elsewhere.
pub(super) fn reply_at_hand(result: NodeResult) -> Result<Result<TaskReply, Fault>, Box<NodeResult>> {
    if let Some(fault) = result.fault {
        return Ok(Err(fault));
    }
    if matches!(result.output, NodeOutput::Address(_)) {
        return Err(Box::new(result));
    }
    let artifacts = result.artifact_values();
    let output = match result.output {
        NodeOutput::Value(value) => value,
        NodeOutput::Address(_) | NodeOutput::None => Value::Null,
    };
    Ok(Ok(TaskReply { artifacts, events: result.events, usage: result.usage, ..TaskReply::new(output) }))
}

/// Tries again as long as the fault says that it helps: the message is stored, and nothing may be lost.
pub(super) async fn persist<T, F: Future<Output = Result<T, Fault>>>(
    again: impl Fn() -> F,
) -> Result<T, Fault> {
    loop {
        match again().await {
            Err(fault) if fault.retryable => {
                debug!(%fault, "tried again");
                tokio::time::sleep(AGAIN).await;
            }
            done => return done,
        }
    }
}

/// Puts a message into the quarantine.
async fn aside(shared: &Shared, received: &ReceivedMessage, code: &'static str, reason: &str) -> Arrival {
    // Not the reason: it may quote the message. The quarantine has both.
    warn!(subject = %received.name, seq = received.seq, code, "message set aside");
    metrics::counter!("sinew_quarantined_total", "code" => code).increment(1);
    let reason = format!("{code}: {reason}");
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
        match shared.mesh.quarantine_or_drop(suspect(), &reason).await {
            Ok(_) => return Arrival::Nothing,
            Err(error) => debug!(%error, "the quarantine cannot be reached"),
        }
        tokio::time::sleep(AGAIN).await;
    }
    metrics::counter!("sinew_quarantine_lost_total").increment(1);
    error!(subject = %received.name, seq = received.seq, code, "a message could not be set aside");
    Arrival::Nothing
}

/// Whether a parent reference was made by an executor: its result subject carries a token only executors can make.
pub(super) fn proves(shared: &Shared, command: &StartCommand) -> bool {
    let Some(parent) = &command.parent else { return true };
    match Subject::parse(shared.mesh.namespace(), &parent.result_subject) {
        Some(Subject::Result { shard, execution, task, token, .. }) => {
            let token: ResultToken = token;
            execution == parent.execution
                && task == parent.task
                && belongs(shared, shard, &execution)
                && token.proves(&shared.key, &task)
        }
        _ => false,
    }
}

/// The shared parts, so that a shard's futures own them.
pub(super) type Handle = Arc<Shared>;
