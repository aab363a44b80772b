//! Effects outside once a commit is stored that the loop of the shard does not do itself.
//!
//! Each job may be repeated after a crash, always under the same ids; so it is tried until it succeeds, and only the end of
//! a drain waits for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sinew_engine::ExecutionOutcome;
use sinew_mesh::send::PutOutcome;
use sinew_mesh::{HeaderMap, MeshError, crash};
use sinew_protocol::command::Command;
use sinew_protocol::journal::{ExecutionMeta, ExecutionRecord, ParentRef};
use sinew_protocol::subject::Operation;
use sinew_protocol::usage::ModelTotals;
use sinew_protocol::{Fault, Subject, TaskId, Token};
use sinew_shard::outgoing::{child_cancel, child_start, rejected_child_outcome};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

use super::Shared;
use super::intake::{BackInput, Handle};
use super::lost_results::{self, StoredTask};
use super::store_desk::closed_execution;
use sinew_runtime::evaluation::{evaluate, evaluation_owner};
use sinew_shard::{Call, Outgoing, ShardInput};

/// Waits between tries, doubled up to the second.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// Tasks that this process stores at once by the way that reads back: a new owner may have thousands.
static TASK_SENDS: Semaphore = Semaphore::const_new(256);

/// Bytes of rounds above which a record is encoded on another thread.
const LARGE_RECORD_BYTES: usize = 256 << 10;

/// One thing to do.
pub(super) enum Job {
    /// Send a message of the state.
    Send(Outgoing),
    /// Wait for the result of a task that was stored before.
    Pursue(StoredTask),
    /// Say when everything that was sent before is done, direct calls aside.
    Settled(oneshot::Sender<()>),
}

/// A shard's outbox.
pub(super) struct Outbox {
    sender: mpsc::UnboundedSender<Vec<Job>>,
    /// Ends with the outbox: nothing goes out for a shard that is in other hands.
    worker: AbortOnDropHandle<()>,
}

impl Outbox {
    /// Opens one. What comes back goes to `back`.
    pub(super) fn open(shared: Handle, back: mpsc::UnboundedSender<BackInput>) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let worker = AbortOnDropHandle::new(tokio::spawn(work(shared, receiver, back)));
        Self { sender, worker }
    }

    /// Does these things, in no order.
    pub(super) fn send(&self, jobs: Vec<Job>) {
        if !jobs.is_empty() {
            let _ = self.sender.send(jobs);
        }
    }

    /// Waits until what was sent so far is done, direct calls aside, but no longer than `limit`.
    pub(super) async fn settle(&self, limit: Duration) {
        let (done, settled) = oneshot::channel();
        self.send(vec![Job::Settled(done)]);
        let _ = tokio::time::timeout(limit, settled).await;
    }

    /// Takes no more and waits until what can end has ended.
    pub(super) async fn close(mut self, grace: Duration) {
        drop(self.sender);
        if tokio::time::timeout(grace, &mut self.worker).await.is_err() {
            debug!("some work was left to the next owner");
        }
    }

    /// Drops everything: somebody else owns the shard.
    pub(super) fn abandon(self) {
        self.worker.abort();
    }
}

async fn work(
    shared: Handle,
    mut jobs: mpsc::UnboundedReceiver<Vec<Job>>,
    back: mpsc::UnboundedSender<BackInput>,
) {
    let mut running = JoinSet::new();
    // Direct calls last as long as the agent works, and evaluations until a worker is free: neither is waited for when
    // the shard is handed over.
    let mut direct = JoinSet::new();
    let mut calls: HashMap<TaskId, AbortHandle> = HashMap::new();
    let mut settling: Vec<oneshot::Sender<()>> = Vec::new();
    loop {
        if running.is_empty() {
            for settled in settling.drain(..) {
                let _ = settled.send(());
            }
        }
        tokio::select! {
            batch = jobs.recv() => {
                let Some(batch) = batch else { break };
                for job in batch {
                    match job {
                        Job::Send(Outgoing::Evaluation { call, caller }) => {
                            let task = call.task.clone();
                            calls.insert(task, direct.spawn(perform_evaluation(call, caller, back.clone())));
                        }
                        Job::Send(Outgoing::CancelEvaluation { task }) => {
                            if let Some(evaluation) = calls.remove(&task) {
                                evaluation.abort();
                            }
                        }
                        Job::Send(Outgoing::Task { call, meta, .. }) if shared.is_direct(&call) => {
                            let task = call.task.clone();
                            let done = super::direct::call(Arc::clone(&shared), call, meta, back.clone());
                            calls.insert(task, direct.spawn(done));
                        }
                        Job::Send(Outgoing::CancelTask { call }) if !shared.is_workflow(&call) => {
                            if let Some(call) = calls.remove(&call.task) {
                                call.abort();
                            }
                            let shared = Arc::clone(&shared);
                            running.spawn(async move {
                                shared.cancel_task(&call).await;
                                None
                            });
                        }
                        Job::Pursue(stored) => {
                            let task = stored.call.task.clone();
                            let pursued = lost_results::pursue(Arc::clone(&shared), stored, back.clone());
                            calls.insert(task, direct.spawn(pursued));
                        }
                        Job::Settled(settled) => settling.push(settled),
                        Job::Send(outgoing) => {
                            running.spawn(perform(Arc::clone(&shared), outgoing, back.clone()));
                        }
                    }
                }
            }
            Some(done) = running.join_next() => if let Ok(Some(stored)) = done {
                let task = stored.call.task.clone();
                let pursued = lost_results::pursue(Arc::clone(&shared), stored, back.clone());
                calls.insert(task, direct.spawn(pursued));
            },
            Some(ended) = direct.join_next() => if let Ok(task) = ended { calls.remove(&task); },
        }
    }
    while running.join_next().await.is_some() {}
}

/// Evaluates scripts. The result comes back as an agent's does; after a crash they are evaluated again.
async fn perform_evaluation(call: Call, caller: Token, back: mpsc::UnboundedSender<BackInput>) -> TaskId {
    let owner = evaluation_owner(caller.as_str(), &call.workflow);
    let reply = evaluate(owner, &call.ask).await;
    let (execution, task) = (call.execution, call.task);
    let agent = Token::of(call.ask.target.name());
    let ended = ShardInput::task_result_with_logs(execution, task.clone(), agent, reply.result, reply.logs);
    let _ = back.send(ended.into());
    task
}

/// Does one thing, however often it takes. Returns a task whose message was stored already.
async fn perform(
    shared: Handle,
    outgoing: Outgoing,
    back: mpsc::UnboundedSender<BackInput>,
) -> Option<StoredTask> {
    match outgoing {
        Outgoing::Task { call, meta, chain } => {
            // The semaphore is never closed.
            let permit = TASK_SENDS.acquire().await;
            // Boxed, because thousands may wait for a permit, and sending is a large future.
            let sent = Box::pin(insist(|| send(&shared, &call, &meta, &chain))).await;
            drop(permit);
            match sent {
                Ok(TaskPlace::Waiting) => {}
                Ok(TaskPlace::PassedOver(place)) => return Some(StoredTask { call, meta, place }),
                Err(error) => {
                    let agent = Token::of(call.ask.target.name());
                    let result = Err(Fault::from(error).with_retryable(false));
                    let input = ShardInput::task_result(call.execution, call.task, agent, result);
                    let _ = back.send(input.into());
                }
            }
        }
        other => Box::pin(perform_rest(&shared, other, &back)).await,
    }
    None
}

/// Does one thing that is not a task.
async fn perform_rest(shared: &Handle, outgoing: Outgoing, back: &mpsc::UnboundedSender<BackInput>) {
    match outgoing {
        Outgoing::CancelTask { call } => {
            let command = child_cancel(&call);
            let child = command.execution();
            let id = Token::parse(child.as_str()).unwrap_or_else(|_| Token::of("cancel"));
            let shard = child.shard(shared.shards);
            let body: Bytes = command.to_json().into();
            let sent = insist(|| {
                shared.mesh.commands().send(Operation::Cancel, shard, &id, HeaderMap::new(), body.clone())
            });
            report(&sent.await);
        }
        Outgoing::Finish { ref record, ref outcome, reopened, usage, .. } => {
            let Some(closed) = closed_execution(&outgoing) else { return };
            let (execution, body) = (record.meta.execution.clone(), encode_record(record).await);
            let archived = report(&insist(|| shared.mesh.history().put(&closed, body.clone())).await);
            crash::point("finish.archived");
            if let Some(parent) = &record.meta.parent {
                report(&insist(|| answer(shared, &record.meta, parent, outcome, usage)).await);
            }
            crash::point("finish.answered");
            // Otherwise the journal is the only place that has it: it stays there, and the next owner tries again.
            if archived {
                let _ = back.send(ShardInput::Archived { execution, reopened }.into());
            }
        }
        Outgoing::ChildStartRejected { meta, fault } => {
            let Some(parent) = &meta.parent else { return };
            let outcome = rejected_child_outcome(fault);
            let answered =
                report(&insist(|| answer(shared, &meta, parent, &outcome, ModelTotals::default())).await);
            // Otherwise the rejection stays in the journal, and the next owner tries again.
            if answered {
                let execution = meta.execution.clone();
                let _ = back.send(ShardInput::Archived { execution, reopened: 0 }.into());
            }
        }
        Outgoing::Task { .. }
        | Outgoing::CancelEvaluation { .. }
        | Outgoing::Evaluation { .. }
        | Outgoing::StartAnswer { .. } => {}
    }
}

/// Fate of the message of a task.
enum TaskPlace {
    /// It is stored by this executor, and whoever it is for will read it.
    Waiting,
    /// It was stored before, or where its reader has been already; with its place in the stream of tasks, which the start of a
    /// workflow does not have.
    PassedOver(Option<u64>),
}

/// Sends a task to its agent's queue, or starts the workflow it is for.
async fn send(
    shared: &Shared,
    call: &Call,
    meta: &ExecutionMeta,
    chain: &[String],
) -> Result<TaskPlace, MeshError> {
    if shared.is_workflow(call) {
        return Ok(match start_child(shared, call, meta, chain).await? {
            PutOutcome::New => TaskPlace::Waiting,
            PutOutcome::Same | PutOutcome::Taken => TaskPlace::PassedOver(None),
        });
    }
    let (headers, body) = shared.task(call, meta).await?;
    let agent = Token::of(call.ask.target.name());
    shared.queues.ensure(&shared.mesh, call.ask.target.name()).await;
    crash::point("task.queued");
    let subject = Subject::Task { agent, execution: call.execution.clone(), task: call.task.clone() };
    let (outcome, place) = shared.mesh.tasks().put_task(&subject, headers, body).await?;
    let is_waiting = outcome == PutOutcome::New && !shared.queues.passes_over(call.ask.target.name(), place);
    Ok(if is_waiting { TaskPlace::Waiting } else { TaskPlace::PassedOver(Some(place)) })
}

async fn start_child(
    shared: &Shared,
    call: &Call,
    meta: &ExecutionMeta,
    chain: &[String],
) -> Result<PutOutcome, MeshError> {
    let input = shared.inline_or_stored(call, meta).await?;
    let result_subject = shared.result_subject(call, &Token::of(call.ask.target.name()));
    let start = child_start(call, meta, chain, input, result_subject);
    let (execution, shard) = (start.execution.clone(), start.execution.shard(shared.shards));
    let command = Command::Start(Box::new(start));
    let id = Token::parse(execution.as_str()).unwrap_or_else(|_| Token::of("start"));
    let headers = Shared::headers_within(meta, call);
    shared.mesh.commands().send(Operation::Start, shard, &id, headers, command.to_json().into()).await
}

/// Encodes a record, a large one beside the loops of the shards.
async fn encode_record(record: &ExecutionRecord) -> Bytes {
    if record.round_bytes() > LARGE_RECORD_BYTES {
        let shared = record.clone();
        if let Ok(body) = tokio::task::spawn_blocking(move || shared.encode()).await {
            return body;
        }
    }
    record.encode()
}

/// Answers the task that an execution was started by, as an agent would.
pub(super) async fn answer(
    shared: &Shared,
    meta: &ExecutionMeta,
    parent: &ParentRef,
    outcome: &ExecutionOutcome,
    usage: ModelTotals,
) -> Result<(), MeshError> {
    let Some(subject) = Subject::parse(shared.mesh.namespace(), &parent.result_subject) else {
        return Ok(());
    };
    let body = shared.child_result(meta, parent, outcome, usage).await?;
    shared.mesh.tasks().put_once(&subject, Shared::headers(meta), body).await.map(drop)
}

/// Tries until it works or cannot work.
async fn insist<T, F: Future<Output = Result<T, MeshError>>>(again: impl Fn() -> F) -> Result<T, MeshError> {
    let mut wait = BACKOFF.0;
    loop {
        match again().await {
            Err(error) if error.is_transient() => {
                debug!(%error, "tried again");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(BACKOFF.1);
            }
            done => return done,
        }
    }
}

/// Says what could not be done; true if it was.
fn report<T>(done: &Result<T, MeshError>) -> bool {
    if let Err(error) = done {
        warn!(%error, code = error.code(), "an effect could not be performed");
    }
    done.is_ok()
}
