//! External effects of a stored commit that the loop of the shard does not perform itself.
//!
//! After a crash, a job may be repeated, always under the same ids. So it is retried until it
//! succeeds, and only the end of a drain waits for it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sinew_engine::ExecutionOutcome;
use sinew_mesh::async_nats::HeaderMap;
use sinew_mesh::send::PutOutcome;
use sinew_mesh::{MeshError, crash};
use sinew_protocol::command::Command;
use sinew_protocol::journal::{ExecutionMeta, ExecutionRecord, ParentRef};
use sinew_protocol::person_wait::WaitReport;
use sinew_protocol::subject::Operation;
use sinew_protocol::usage::ModelTotals;
use sinew_protocol::{ExecutionId, Fault, Subject, TaskId, Token};
use sinew_shard::outgoing::{child_start, rejected_child_outcome, wait_command};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

use super::intake::{BackInput, Handle};
use super::lost_results::{self, StoredTask};
use super::store_publisher::closed_execution;
use super::withdrawal::{self, Withdrawals};
use super::{Shared, direct};
use sinew_execution::Call;
use sinew_runtime::evaluation::{evaluate, evaluation_owner};
use sinew_shard::{Outgoing, ShardInput};

/// Waits between attempts, doubled up to the second value.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// Tasks that this process stores concurrently with read-back: a new owner may have thousands.
static TASK_SENDS: Semaphore = Semaphore::const_new(256);

/// Bytes of rounds above which a record is encoded on another thread.
const LARGE_RECORD_BYTES: usize = 256 << 10;

/// A job of the outbox.
pub(super) enum Job {
    /// Send a message of the state.
    Send(Outgoing),
    /// Wait for the result of a task whose message was stored before.
    Pursue(StoredTask),
    /// Signal when all earlier jobs are done, except direct calls.
    Settled(oneshot::Sender<()>),
}

/// A shard's outbox.
pub(super) struct Outbox {
    sender: mpsc::UnboundedSender<Vec<Job>>,
    /// Aborted with the outbox: nothing is sent for a shard with another owner.
    worker: AbortOnDropHandle<()>,
}

impl Outbox {
    /// Opens an outbox. Its inputs are sent to `back`.
    pub(super) fn open(shared: Handle, back: mpsc::UnboundedSender<BackInput>) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let worker = AbortOnDropHandle::new(tokio::spawn(work(shared, receiver, back)));
        Self { sender, worker }
    }

    /// Starts these jobs, in no particular order.
    pub(super) fn send(&self, jobs: Vec<Job>) {
        if !jobs.is_empty() {
            let _ = self.sender.send(jobs);
        }
    }

    /// Waits until all jobs so far are done, except direct calls, but at most `limit`.
    pub(super) async fn settle(&self, limit: Duration) {
        let (done, settled) = oneshot::channel();
        self.send(vec![Job::Settled(done)]);
        let _ = tokio::time::timeout(limit, settled).await;
    }

    /// Accepts no more jobs, and waits for those in progress, at most `grace`.
    pub(super) async fn close(mut self, grace: Duration) {
        drop(self.sender);
        if tokio::time::timeout(grace, &mut self.worker).await.is_err() {
            debug!("pending effects are left to the next owner");
        }
    }

    /// Drops all jobs: another executor owns the shard.
    pub(super) fn abandon(self) {
        self.worker.abort();
    }
}

async fn work(
    shared: Handle,
    mut jobs: mpsc::UnboundedReceiver<Vec<Job>>,
    back: mpsc::UnboundedSender<BackInput>,
) {
    let mut worker = Worker::new(shared, back);
    loop {
        worker.notify_settled();
        tokio::select! {
            batch = jobs.recv() => match batch {
                Some(batch) => batch.into_iter().for_each(|job| worker.start(job)),
                None => break,
            },
            Some(done) = worker.running.join_next() => {
                if let Ok(done) = done {
                    worker.handle_done(done);
                }
            }
            Some(ended) = worker.direct.join_next() => {
                if let Ok(task) = ended {
                    worker.calls.remove(&task);
                }
            }
        }
    }
    while let Some(done) = worker.running.join_next().await {
        if let Ok(done) = done {
            worker.handle_done(done);
        }
    }
}

/// Jobs of one outbox in progress.
struct Worker {
    shared: Handle,
    back: mpsc::UnboundedSender<BackInput>,
    running: JoinSet<Done>,
    /// Direct calls last until the agent is done, and evaluations until a worker is free: a
    /// handover waits for neither.
    direct: JoinSet<TaskId>,
    calls: HashMap<TaskId, AbortHandle>,
    /// Tasks whose message is being stored.
    storing: HashSet<TaskId>,
    /// Cancelled tasks whose message was being stored at that time: they are withdrawn afterwards.
    cancelled: HashMap<TaskId, Call>,
    withdrawals: Withdrawals,
    settling: Vec<oneshot::Sender<()>>,
}

/// A completed job.
enum Done {
    /// The message of a task; a [`StoredTask`] if it was stored before.
    Stored(TaskId, Option<Box<StoredTask>>),
    /// The withdrawal of a task of this execution.
    Withdrawn(ExecutionId),
    /// A job that nothing depends on.
    Other,
}

impl Worker {
    fn new(shared: Handle, back: mpsc::UnboundedSender<BackInput>) -> Self {
        Self {
            shared,
            back,
            running: JoinSet::new(),
            direct: JoinSet::new(),
            calls: HashMap::new(),
            storing: HashSet::new(),
            cancelled: HashMap::new(),
            withdrawals: Withdrawals::default(),
            settling: Vec::new(),
        }
    }

    fn notify_settled(&mut self) {
        if self.running.is_empty() {
            for settled in self.settling.drain(..) {
                let _ = settled.send(());
            }
        }
    }

    fn start(&mut self, job: Job) {
        let (shared, back) = (Arc::clone(&self.shared), self.back.clone());
        match job {
            Job::Send(Outgoing::Evaluation { call, caller }) => {
                let task = call.task.clone();
                self.calls.insert(task, self.direct.spawn(perform_evaluation(call, caller, back)));
            }
            Job::Send(Outgoing::CancelEvaluation { task }) => {
                if let Some(evaluation) = self.calls.remove(&task) {
                    evaluation.abort();
                }
            }
            Job::Send(Outgoing::Task { call, meta, .. }) if shared.is_direct(&call) => {
                let task = call.task.clone();
                self.calls.insert(task, self.direct.spawn(direct::call(shared, call, meta, back)));
            }
            Job::Send(Outgoing::Task { call, meta, chain }) => {
                self.storing.insert(call.task.clone());
                self.running.spawn(store_task(shared, call, meta, chain, back));
            }
            Job::Send(Outgoing::CancelTask { call }) => self.cancel(call),
            Job::Send(finish @ Outgoing::Finish { .. }) => {
                // An archived execution is not examined after a crash, so its tasks are withdrawn
                // first.
                if let Some(finish) = self.withdrawals.admit(finish) {
                    self.perform(finish);
                }
            }
            Job::Send(outgoing) => self.perform(outgoing),
            Job::Pursue(stored) => self.pursue(stored),
            Job::Settled(settled) => self.settling.push(settled),
        }
    }

    fn perform(&mut self, outgoing: Outgoing) {
        let (shared, back) = (Arc::clone(&self.shared), self.back.clone());
        self.running.spawn(async move {
            perform(&shared, outgoing, &back).await;
            Done::Other
        });
    }

    fn pursue(&mut self, stored: StoredTask) {
        let task = stored.call.task.clone();
        if self.calls.contains_key(&task) {
            return;
        }
        let pursued = lost_results::pursue(Arc::clone(&self.shared), stored, self.back.clone());
        self.calls.insert(task, self.direct.spawn(pursued));
    }

    /// Cancels a task. If its message is being stored, it is withdrawn afterwards; otherwise it
    /// would stay in its queue.
    fn cancel(&mut self, call: Call) {
        if let Some(work) = self.calls.remove(&call.task) {
            work.abort();
            if self.shared.is_direct(&call) {
                self.direct.spawn(direct::keep_usage(Arc::clone(&self.shared), call.clone()));
            }
        }
        self.withdrawals.begin(&call.execution);
        if self.storing.contains(&call.task) {
            if let Some(before) = self.cancelled.insert(call.task.clone(), call) {
                self.end_withdrawal(&before.execution);
            }
            return;
        }
        self.withdraw(call);
    }

    fn withdraw(&mut self, call: Call) {
        let shared = Arc::clone(&self.shared);
        self.running.spawn(async move {
            let execution = call.execution.clone();
            withdrawal::withdraw(&shared, &call).await;
            Done::Withdrawn(execution)
        });
    }

    fn handle_done(&mut self, done: Done) {
        match done {
            Done::Stored(task, stored) => {
                self.storing.remove(&task);
                match (self.cancelled.remove(&task), stored) {
                    (Some(call), _) => self.withdraw(call),
                    (None, Some(stored)) => self.pursue(*stored),
                    (None, None) => {}
                }
            }
            Done::Withdrawn(execution) => self.end_withdrawal(&execution),
            Done::Other => {}
        }
    }

    fn end_withdrawal(&mut self, execution: &ExecutionId) {
        if let Some(finish) = self.withdrawals.end(execution) {
            self.perform(finish);
        }
    }
}

/// Evaluates scripts. The result is returned like an agent's; after a crash they are evaluated
/// again.
async fn perform_evaluation(call: Call, caller: Token, back: mpsc::UnboundedSender<BackInput>) -> TaskId {
    let owner = evaluation_owner(caller.as_str(), &call.workflow);
    let reply = evaluate(owner, &call.ask).await;
    let (execution, task) = (call.execution, call.task);
    let agent = Token::of(call.ask.target.name());
    let ended = ShardInput::task_result_with_logs(execution, task.clone(), agent, reply.result, reply.logs);
    let _ = back.send(ended.into());
    task
}

/// Stores the message of a task, retrying until it succeeds.
async fn store_task(
    shared: Handle,
    call: Call,
    meta: Arc<ExecutionMeta>,
    chain: Vec<String>,
    back: mpsc::UnboundedSender<BackInput>,
) -> Done {
    let task = call.task.clone();
    // The semaphore is never closed.
    let permit = TASK_SENDS.acquire().await;
    // Boxed, because thousands may wait for a permit, and sending is a large future.
    let sent = Box::pin(insist(|| send(&shared, &call, &meta, &chain))).await;
    drop(permit);
    match sent {
        Ok(SendOutcome::Waiting) => Done::Stored(task, None),
        Ok(SendOutcome::PassedOver(place)) => {
            Done::Stored(task, Some(Box::new(StoredTask { call, meta, place })))
        }
        Err(error) => {
            let agent = Token::of(call.ask.target.name());
            let result = Err(Fault::from(error).with_retryable(false));
            let input = ShardInput::task_result(call.execution, call.task, agent, result);
            let _ = back.send(input.into());
            Done::Stored(task, None)
        }
    }
}

/// Sends a message that is neither a task nor its cancellation, retrying until it succeeds.
async fn perform(shared: &Handle, outgoing: Outgoing, back: &mpsc::UnboundedSender<BackInput>) {
    match outgoing {
        Outgoing::WaitReport(report) => {
            report_wait(shared, *report).await;
        }
        Outgoing::Finish { ref record, ref outcome, end_number, usage, ref wait_report, .. } => {
            let Some(closed) = closed_execution(&outgoing) else { return };
            let (execution, body) = (record.meta.execution.clone(), encode_record(record).await);
            let archived = report(&insist(|| shared.mesh.history().put(&closed, body.clone())).await);
            crash::point("finish.archived");
            if let Some(parent) = &record.meta.parent {
                report(&insist(|| answer(shared, &record.meta, parent, outcome, usage)).await);
            }
            // The clocks of the calling task stay stopped until it is notified.
            let told = match wait_report {
                Some(report) => report_wait(shared, WaitReport::clone(report)).await,
                None => true,
            };
            crash::point("finish.answered");
            // Otherwise only the journal contains it: it remains there, and the next owner retries.
            if archived && told {
                let _ = back.send(ShardInput::Archived { execution, end_number }.into());
            }
        }
        Outgoing::ChildStartRejected { meta, fault } => {
            let Some(parent) = &meta.parent else { return };
            let outcome = rejected_child_outcome(fault);
            let answered =
                report(&insist(|| answer(shared, &meta, parent, &outcome, ModelTotals::default())).await);
            // Otherwise the rejection remains in the journal, and the next owner retries.
            if answered {
                let execution = meta.execution.clone();
                let _ = back.send(ShardInput::Archived { execution, end_number: 0 }.into());
            }
        }
        Outgoing::Task { .. }
        | Outgoing::CancelTask { .. }
        | Outgoing::CancelEvaluation { .. }
        | Outgoing::Evaluation { .. }
        | Outgoing::StartAnswer { .. } => {}
    }
}

/// Sends a report to the owner of the caller; returns false if it cannot be stored.
async fn report_wait(shared: &Shared, report: WaitReport) -> bool {
    let shard = report.execution.shard(shared.shards);
    let (id, command) = wait_command(report, &shared.key);
    let body: Bytes = command.to_json().into();
    let sent =
        insist(|| shared.mesh.commands().send(Operation::Wait, shard, &id, HeaderMap::new(), body.clone()));
    self::report(&sent.await)
}

/// Outcome of sending a task.
enum SendOutcome {
    /// This executor stored it, and its receiver will read it.
    Waiting,
    /// It was stored before, or at a position that its reader has already passed; with its sequence
    /// number, which the start of a workflow does not have.
    PassedOver(Option<u64>),
}

/// Sends a task to its agent's queue, or starts its workflow.
async fn send(
    shared: &Shared,
    call: &Call,
    meta: &ExecutionMeta,
    chain: &[String],
) -> Result<SendOutcome, MeshError> {
    if shared.is_workflow(call) {
        return Ok(match start_child(shared, call, meta, chain).await? {
            PutOutcome::New => SendOutcome::Waiting,
            PutOutcome::Same | PutOutcome::Taken => SendOutcome::PassedOver(None),
        });
    }
    let (headers, body) = shared.task(call, meta).await?;
    let agent = Token::of(call.ask.target.name());
    shared.queues.ensure(&shared.mesh, call.ask.target.name()).await;
    crash::point("task.queued");
    let subject = Subject::Task { agent, execution: call.execution.clone(), task: call.task.clone() };
    let (outcome, place) = shared.mesh.tasks().put_task(&subject, headers, body).await?;
    let is_waiting = outcome == PutOutcome::New && !shared.queues.passes_over(call.ask.target.name(), place);
    Ok(if is_waiting { SendOutcome::Waiting } else { SendOutcome::PassedOver(Some(place)) })
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

/// Encodes a record, a large one on another thread.
async fn encode_record(record: &ExecutionRecord) -> Bytes {
    if record.round_bytes() > LARGE_RECORD_BYTES {
        let shared = record.clone();
        if let Ok(body) = tokio::task::spawn_blocking(move || shared.encode()).await {
            return body;
        }
    }
    record.encode()
}

/// Answers the task that started an execution, like an agent.
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

/// Retries until it succeeds or fails permanently.
pub(super) async fn insist<T, F: Future<Output = Result<T, MeshError>>>(
    again: impl Fn() -> F,
) -> Result<T, MeshError> {
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

/// Logs a failure; returns true on success.
pub(super) fn report<T>(done: &Result<T, MeshError>) -> bool {
    if let Err(error) = done {
        warn!(%error, code = error.code(), "cannot perform an effect");
    }
    done.is_ok()
}
