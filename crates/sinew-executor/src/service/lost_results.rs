//! Tasks whose message was stored before this owner sent it: they have a result or will get one,
//! unless the broker lost it.
//!
//! An agent stores its result before it acknowledges the task. A broker that loses power without
//! syncing may keep the acknowledgement and lose the result; then no result would ever arrive.

use std::sync::Arc;
use std::time::Duration;

use sinew_engine::{Round, decode_round};
use sinew_execution::Call;
use sinew_execution::Execution;
use sinew_mesh::MeshError;
use sinew_mesh::query::Answer;
use sinew_protocol::journal::{ExecutionMeta, ExecutionRecord};
use sinew_protocol::query::{Query, QueryError};
use sinew_protocol::usage::ModelTotals;
use sinew_protocol::{ExecutionId, Fault, Subject, TaskId, Token, code};
use sinew_shard::{ShardInput, outgoing};
use tokio::sync::{Semaphore, mpsc};
use tracing::{debug, warn};

use super::intake::{BackInput, Handle};
use super::{Shared, direct, outbox};

/// Operator code of a result that the broker has lost.
const RESULT_LOST: &str = code::RESULT_LOST.as_str();
/// Interval of checks of a task, doubled from the first to the second value.
const LOOK_INTERVAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(5));
/// Sub-workflows that this process checks concurrently: a new owner may have thousands.
static LOOKS: Semaphore = Semaphore::const_new(16);
/// Consecutive checks without a trace before a sub-workflow counts as lost: its start may just be
/// being read.
const LOOKS_WITHOUT_TRACE: u32 = 3;

/// A pending task whose message is stored.
pub(super) struct StoredTask {
    pub(super) call: Call,
    pub(super) meta: Arc<ExecutionMeta>,
    /// Its sequence number; `None` for the start of a workflow.
    pub(super) place: Option<u64>,
}

/// State of the wait for a stored task.
struct TaskPursuit {
    task: StoredTask,
    agent: Token,
    /// Subject of its result.
    result: Subject,
    /// Consecutive checks without a trace of it.
    without_trace: u32,
    /// Whether it was done at the last check, without a result.
    was_over: bool,
}

/// Outcome of a pursuit.
enum PursuitEnd {
    /// This input.
    Input(BackInput),
    /// The task must be sent again.
    Ask,
}

/// Waits until the inbox delivers the result of the task, or another source does. A task in
/// progress is checked periodically.
pub(super) async fn pursue(
    shared: Handle,
    task: StoredTask,
    back: mpsc::UnboundedSender<BackInput>,
) -> TaskId {
    let agent = Token::of(task.call.ask.target.name());
    let result = outgoing::result_subject(shared.shards, &shared.key, &task.call, &agent);
    let mut pursuit = TaskPursuit { task, agent, result, without_trace: 0, was_over: false };
    let mut wait = LOOK_INTERVAL.0;
    loop {
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LOOK_INTERVAL.1);
        // Boxed, so that these large futures take no memory in thousands of tasks that sleep after
        // a takeover.
        match Box::pin(pursuit.look(&shared)).await {
            None => {}
            Some(PursuitEnd::Input(input)) => {
                let _ = back.send(input);
                return pursuit.task.call.task;
            }
            Some(PursuitEnd::Ask) => {
                let StoredTask { call, meta, .. } = pursuit.task;
                return Box::pin(direct::call(shared, call, meta, back)).await;
            }
        }
    }
}

impl TaskPursuit {
    /// Checks the task once.
    async fn look(&mut self, shared: &Handle) -> Option<PursuitEnd> {
        let StoredTask { call, place, .. } = &self.task;
        let found = match place {
            Some(place) => {
                let is_over = shared.queue_views.is_over(&shared.mesh, &self.agent, *place).await;
                is_over.map(|is_over| if is_over { Trace::Over } else { Trace::Pending })
            }
            None => look_for_child(shared, call).await,
        };
        match found {
            Err(error) => debug!(%error, "cannot look up a task"),
            Ok(Trace::Pending) => self.without_trace = 0,
            Ok(Trace::Over) => match shared.mesh.commands().result_message(&self.result).await {
                // The inbox delivered it before, or this owner started after it: it counts if the
                // task is still pending.
                Ok(Some(message)) => return Some(PursuitEnd::Input(BackInput::of_message(message))),
                // Its owner stores the record first and the result a moment later.
                Ok(None) if !std::mem::replace(&mut self.was_over, true) => {}
                Ok(None) if shared.is_workflow(call) => answer_for_child(shared, call).await,
                Ok(None) => {
                    let (task, agent) = (&call.task, &self.agent);
                    warn!(%task, %agent, code = RESULT_LOST, "a result is lost; calling its agent again");
                    return Some(PursuitEnd::Ask);
                }
                Err(error) => debug!(%error, "cannot read a result"),
            },
            Ok(Trace::None) => {
                self.without_trace += 1;
                if self.without_trace == LOOKS_WITHOUT_TRACE {
                    warn!(task = %call.task, code = RESULT_LOST, "a sub-workflow and its record are lost");
                    let text = "the broker has lost the sub-workflow and its record";
                    let lost = Err(Fault::error(RESULT_LOST, text).with_retryable(true));
                    let (execution, task) = (call.execution.clone(), call.task.clone());
                    let input = ShardInput::task_result(execution, task, self.agent.clone(), lost);
                    return Some(PursuitEnd::Input(input.into()));
                }
            }
        }
        None
    }
}

/// State of a task that was sent.
enum Trace {
    /// It is queued or in progress.
    Pending,
    /// Its result was stored.
    Over,
    /// The mesh has no trace of it.
    None,
}

/// Checks the execution that answers a task.
async fn look_for_child(shared: &Shared, call: &Call) -> Result<Trace, MeshError> {
    // The semaphore is never closed.
    let _permit = LOOKS.acquire().await;
    let child = outgoing::child_id(call);
    // Query the owner first: an execution leaves the shard once the history has it.
    if ask_owner(shared, &child).await? != Some(false) {
        return Ok(Trace::Pending);
    }
    Ok(if shared.mesh.history().get(&child).await?.is_some() { Trace::Over } else { Trace::None })
}

/// Returns whether a shard has an execution; `None` if its owner does not reply.
async fn ask_owner(shared: &Shared, execution: &ExecutionId) -> Result<Option<bool>, MeshError> {
    let shard = execution.shard(shared.shards);
    match shared.mesh.services().ask_shard(shard, &Query::Get(execution.clone())).await? {
        Answer::Record(_) => Ok(Some(true)),
        Answer::Error(QueryError::NotFound) => Ok(Some(false)),
        _ => Ok(None),
    }
}

/// Stores the result of an ended sub-workflow again, like the owner of its shard.
async fn answer_for_child(shared: &Shared, call: &Call) {
    let child = outgoing::child_id(call);
    let answered = async {
        let Some(closed) = read_closed(shared, &child).await? else { return Ok(()) };
        let ReadExecution { record, folded, usage } = closed;
        let Some(outcome) = folded.state().outcome.clone() else { return Ok(()) };
        let Some(parent) = &record.meta.parent else { return Ok(()) };
        warn!(task = %call.task, %child, code = RESULT_LOST, "a result is lost; reading it from the record of the sub-workflow");
        Ok::<(), Fault>(outbox::answer(shared, &record.meta, parent, &outcome, usage).await?)
    };
    if let Err(fault) = answered.await {
        debug!(%fault, "cannot store the result of a sub-workflow again");
    }
}

/// A closed execution, read from the history.
pub(super) struct ReadExecution {
    record: ExecutionRecord,
    pub(super) folded: Execution,
    usage: ModelTotals,
}

/// Reads a closed execution. `None` if the history does not have it.
pub(super) async fn read_closed(
    shared: &Shared,
    execution: &ExecutionId,
) -> Result<Option<ReadExecution>, Fault> {
    let Some((closed, bytes)) = shared.mesh.history().get(execution).await? else { return Ok(None) };
    let record = ExecutionRecord::decode(&bytes)?;
    let program = shared.programs.by_digest(&record.meta.plan).await?;
    let rounds: Result<Vec<Round>, _> = record.rounds.iter().map(|round| decode_round(round)).collect();
    let unreadable = |text: String| Fault::error(code::JOURNAL_CANNOT_BE_FOLDED.as_str(), text);
    let rounds = rounds.map_err(|error| unreadable(error.to_string()))?;
    let folded = Execution::read(execution.clone(), program, &rounds);
    let folded = folded.map_err(|error| unreadable(error.to_string()))?;
    Ok(Some(ReadExecution { record, folded, usage: closed.usage }))
}
