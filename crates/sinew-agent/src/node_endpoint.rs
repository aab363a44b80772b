//! The node endpoint: tasks of executions in the short form, answered inline while the handler is
//! quick.
//!
//! The endpoint polls the handler once. An answer that is then ready is sent without a separate
//! task; otherwise the handler continues in a task. A handler that has blocked the endpoint does
//! not run inline until it was quick for long.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use sinew_mesh::MeshError;
use sinew_mesh::node::{NodeEndpoint, NodeTask};
use sinew_protocol::stream::INLINE_LIMIT;
use sinew_protocol::task::{Draft, MAX_RESULT, WorkflowNodeRequest, WorkflowNodeResult, result_task};
use sinew_protocol::{Fault, TaskId};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};
use tracing::Instrument as _;

use crate::agent_host::AgentHost;
use crate::context::Context;
use crate::failure::{ARTIFACTS, BUSY, CANCELLED, STOPPING, TOO_LATE, UNREADABLE, bounded, is_bad_output};
use crate::handler::HandlerOutput;
use crate::node_tasks::{AnswerListener, NodeJoin, NodeStart};
use crate::replicas::Replicas;
use crate::reply;
use crate::task_figures::TaskTimes;
use crate::task_properties::{CallerContext, Surroundings, TaskProperties};
use crate::work::{EndedTask, FirstCall, GivenUp, begin_call, check_input, check_output, go_on, output_name};

/// Minimum time before an executor repeats a refused task, in milliseconds.
const BUSY_RETRY_MS: u64 = 1_000;

/// A task from a node request.
pub(crate) struct NodeWork {
    pub(crate) about: TaskProperties,
    pub(crate) input: Value,
}

impl NodeWork {
    /// Parses a request for this agent.
    pub(crate) fn read(agent: &str, body: &[u8]) -> Result<Self, Fault> {
        let request = WorkflowNodeRequest::read(body)
            .map_err(|bad| Fault::invalid(UNREADABLE, format!("the task is not a valid request: {bad}")))?;
        let about = TaskProperties {
            activation: request.activation.as_str().to_owned(),
            attempt: request.attempt,
            workflow: request.workflow_name.into_owned(),
            node: request.node_id.into_owned(),
            session: request.execution_id.as_str().to_owned(),
            caller_context: request.context_id.map(|id| CallerContext {
                id: id.into_owned(),
                caller: request.caller.map(std::borrow::Cow::into_owned).unwrap_or_default(),
            }),
            deadline: request.deadline.map(|ms| UNIX_EPOCH + Duration::from_millis(ms)),
            instruction: request.instruction.map(std::borrow::Cow::into_owned),
            input_schema: request.input_schema.map(std::borrow::Cow::into_owned),
            output_schema: request.output_schema.map(std::borrow::Cow::into_owned),
            output_name: Some(request.suggested_output_filename.into_owned()),
            trace_parent: request.traceparent.map(std::borrow::Cow::into_owned),
            result_token: Some(request.result_token),
            surroundings: Some(Arc::new(Surroundings {
                node: request.node.map(std::borrow::Cow::into_owned),
                path: request.path,
                user: request.user.map(std::borrow::Cow::into_owned).unwrap_or_default(),
                user_config: request.user_config.map(std::borrow::Cow::into_owned).unwrap_or_default(),
                purpose: request.purpose.into_owned(),
                request: request.context.map(std::borrow::Cow::into_owned).unwrap_or_default(),
            })),
            ..TaskProperties::new(agent, request.execution_id, request.sub_task_id)
        };
        Ok(Self { about, input: request.input.into_owned() })
    }
}

/// Answers tasks until the agent shuts down. While the intake is closed, the endpoint is closed too, so
/// that executors send tasks to other replicas, or to the queue.
pub(crate) async fn serve(host: Arc<AgentHost>, endpoint: NodeEndpoint, replicas: Option<Arc<Replicas>>) {
    let mut endpoint = Some(endpoint);
    loop {
        let open = match endpoint.take() {
            Some(open) => open,
            None => match host.mesh.services().serve_node(&host.agent.agent.name).await {
                Ok(open) => open,
                Err(error) => {
                    tracing::warn!(agent = host.agent.agent.name, %error, "cannot open the node endpoint");
                    return;
                }
            },
        };
        serve_open(&host, open, replicas.as_ref()).await;
        tokio::select! {
            biased;
            () = host.draining.cancelled() => return,
            () = host.intake_is(true) => {}
        }
    }
}

/// Answers tasks until the intake closes; then refuses those that have arrived, so that other replicas
/// get them.
async fn serve_open(host: &Arc<AgentHost>, mut endpoint: NodeEndpoint, replicas: Option<&Arc<Replicas>>) {
    let closed = async {
        tokio::select! {
            () = host.draining.cancelled() => {}
            () = host.intake_is(false) => {}
        }
    };
    let mut closed = std::pin::pin!(closed);
    loop {
        let task = tokio::select! {
            biased;
            () = &mut closed => break,
            task = endpoint.next() => task,
        };
        let Some(task) = task else { return host.draining.cancelled().await };
        take(host, task, replicas).await;
    }
    if let Err(error) = endpoint.stop().await {
        tracing::debug!(%error, "cannot close the node endpoint");
    }
    while let Some(task) = endpoint.next().await {
        if let Some(id) = task_of(&task.body) {
            answer(host, AnswerListener::Reply(task.reply), &id, refusal(&id, &stopping())).await;
        }
    }
}

async fn take(host: &Arc<AgentHost>, task: NodeTask, replicas: Option<&Arc<Replicas>>) {
    let NodeTask { reply, is_repeated, .. } = task;
    let listener = AnswerListener::Reply(reply.clone());
    let mut work = match NodeWork::read(&host.agent.agent.name, &task.body) {
        Ok(work) => work,
        Err(fault) => {
            sinew_mesh::log_limited!(warn, code = %fault.code, "cannot read a task at the node endpoint");
            if let Some(id) = task_of(&task.body) {
                answer(host, listener, &id, refusal(&id, &fault)).await;
            }
            return;
        }
    };
    if is_repeated {
        Box::pin(host.drop_passed_deadline(&mut work.about)).await;
    }
    let max_open = host.most_open();
    let replicas = replicas
        .filter(|replicas| is_repeated && !replicas.is_alone() && !host.nodes.knows(&work.about.task));
    let Some(replicas) = replicas.map(Arc::clone) else {
        return begin(host, work, listener, max_open).await;
    };
    // Another process may be working on it; the endpoint does not wait for its reply.
    let (asking, tracker) = (Arc::clone(host), host.going_on.clone());
    tracker.spawn(async move {
        if replicas.works_elsewhere(&work.about.task, &reply).await {
            return;
        }
        if asking.draining.is_cancelled() {
            let id = &work.about.task;
            return answer(&asking, listener, id, refusal(id, &stopping())).await;
        }
        begin(&asking, work, listener, max_open).await;
    });
}

/// Subscribes an executor to the result of a task that this process runs or has completed. Returns
/// whether it is such a task.
pub(crate) async fn join(host: &AgentHost, task: &TaskId, result: &str) -> bool {
    if !host.mesh.services().may_answer(result) {
        return false;
    }
    match host.nodes.join(task, AnswerListener::Reply(result.into())) {
        NodeJoin::Open => true,
        NodeJoin::Ended(known, listener) => {
            answer(host, listener, task, known).await;
            true
        }
        NodeJoin::Unknown => false,
    }
}

/// Starts a task, or answers it if it is known; the listener receives its result.
pub(crate) async fn begin(host: &Arc<AgentHost>, work: NodeWork, listener: AnswerListener, max_open: usize) {
    let id = work.about.task.clone();
    match host.nodes.begin(&work.about.execution, &id, listener, max_open) {
        NodeStart::Open => {}
        NodeStart::Ended(known, listener) => answer(host, listener, &id, known).await,
        NodeStart::Full(listener) => {
            let fault = Fault::error(BUSY, "the agent is at its limit of concurrent tasks");
            answer(host, listener, &id, refusal(&id, &fault.with_retry_after_ms(BUSY_RETRY_MS))).await;
        }
        NodeStart::New(cancel) => {
            // Check after the task is in the table, so that a cancellation that arrives now finds
            // it there.
            if host.cancelled.contains(&work.about.execution, &id) {
                cancel.cancel();
            }
            let context = Context::of_node(work.about, cancel, &host.mesh, &host.outgoing, &host.peers);
            if let Some(answer) = run(host, context, work.input) {
                end(host, &id, answer).await;
            }
        }
    }
}

/// Runs a task until it waits. `None` if it continues in a separate task.
fn run(host: &Arc<AgentHost>, context: Context, input: Value) -> Option<Bytes> {
    let agent = &host.agent;
    let arrived = std::time::Instant::now();
    let ended = |fault: Option<&Fault>| {
        agent.figures.ended(&agent.agent.name, TaskTimes::worked(arrived.elapsed()), fault);
    };
    let failed = |fault: Fault| {
        ended(Some(&fault));
        Some(reply::failed_node(context.task(), &bounded(fault)))
    };
    if context.deadline().is_some_and(|deadline| deadline <= SystemTime::now()) {
        return failed(Fault::timeout(TOO_LATE, "the deadline had passed when the task arrived"));
    }
    if context.cancel().is_cancelled() {
        return failed(Fault::cancelled(CANCELLED, "the task was cancelled before it started"));
    }
    // Validation against schemas from requests may take milliseconds, so it must not delay other
    // tasks.
    let brings_schema = context.input_schema().is_some() || context.output_schema().is_some();
    let slot = match Arc::clone(&host.places.working).try_acquire_owned() {
        Ok(slot) if !agent.pace.is_slow() && !brings_schema => slot,
        slot => {
            let span = task_span(&context);
            spawn(host, context, input, None, slot.ok(), span);
            return None;
        }
    };
    if let Err(fault) = check_input(agent, &input, &context) {
        return failed(fault);
    }
    let kept = if agent.agent.output_retries > 0 { input.clone() } else { Value::Null };
    let mut call = begin_call(agent, input, &context);
    let span = task_span(&context);
    let polled = agent
        .pace
        .timed(|| span.in_scope(|| call.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop()))));
    let said = match polled {
        std::task::Poll::Ready(said) => said,
        std::task::Poll::Pending => {
            spawn(host, context, kept, Some(FirstCall::Running(call)), Some(slot), span);
            return None;
        }
    };
    let is_plain = context.artifacts().is_empty() && !context.has_feed();
    let is_plain_failure = is_plain && !context.has_usage();
    match &said {
        _ if context.step_log().is_taken_over() => {}
        Ok(HandlerOutput::Value(value)) if is_plain && check_output(agent, value, &context).is_ok() => {
            let name = output_name(&context);
            let mut result = WorkflowNodeResult::of_output(context.task(), &name, value);
            result.usage = reply::usage(&context, &agent.agent);
            result.worked_ms = Some(u64::try_from(arrived.elapsed().as_millis()).unwrap_or(u64::MAX));
            let answer = result.to_bytes();
            // Larger output is in the object store, like that of any task.
            if answer.len() <= INLINE_LIMIT {
                ended(None);
                return Some(answer.into());
            }
            context.usage(result.usage);
        }
        Err(fault) if is_plain_failure && (agent.agent.output_retries == 0 || !is_bad_output(fault)) => {
            return failed(fault.clone());
        }
        _ => {}
    }
    spawn(host, context, kept, Some(FirstCall::Answered(said)), Some(slot), span);
    None
}

/// Continues a task outside the endpoint.
fn spawn(
    host: &Arc<AgentHost>,
    context: Context,
    input: Value,
    first: Option<FirstCall>,
    slot: Option<OwnedSemaphorePermit>,
    span: tracing::Span,
) {
    let (host, tracker) = (Arc::clone(host), host.going_on.clone());
    tracker.spawn(async move { carry_out(&host, &context, input, first, slot).await }.instrument(span));
}

async fn carry_out(
    host: &Arc<AgentHost>,
    context: &Context,
    input: Value,
    first: Option<FirstCall>,
    slot: Option<OwnedSemaphorePermit>,
) {
    let id = context.task();
    // Dropped in any case, so that no caller waits in vain.
    let guard = OpenNodeTask { host, id };
    let timer = host.agent.figures.begin(&host.agent.agent.name, context.about().queued);
    let ended = match attempt(host, context, &input, first, slot).await {
        Ok(ended) => ended,
        Err(why) => return Box::pin(give_up(host, id, why)).await,
    };
    timer.end(ended.worked, ended.result.as_ref().err());
    ended.log_failure(context);
    // Boxed, because a task may take long, and memory for its end is only needed then.
    let body = Box::pin(reply::node_result(&host.mesh, &host.agent.agent, context, &ended, &host.halt)).await;
    drop(guard);
    if let Some(feed) = context.feed() {
        Box::pin(feed.ended(&result_task(Draft::new(id, ended.result)))).await;
    }
    Box::pin(end(host, id, body)).await;
}

/// Forgets a task that this process does not answer.
async fn give_up(host: &AgentHost, id: &TaskId, why: GivenUp) {
    match why {
        GivenUp::Stopping => {
            tracing::warn!(task = %id, "aborted the task because this process is shutting down");
        }
        GivenUp::TakenOver => {
            tracing::info!(task = %id, "aborted the task because another process took it over");
        }
    }
    for listener in host.nodes.forget(id) {
        match (listener, why) {
            (AnswerListener::Delivery(sender), GivenUp::TakenOver) => {
                let _ = sender.send(None);
            }
            // The process that took over answers executors that call again. A delivery of a
            // stopping process receives nothing: the queue redelivers the task.
            (AnswerListener::Reply(_), GivenUp::TakenOver)
            | (AnswerListener::Delivery(_), GivenUp::Stopping) => {}
            (listener @ AnswerListener::Reply(_), GivenUp::Stopping) => {
                answer(host, listener, id, refusal(id, &stopping())).await;
            }
        }
    }
}

async fn attempt(
    host: &Arc<AgentHost>,
    context: &Context,
    input: &Value,
    first: Option<FirstCall>,
    slot: Option<OwnedSemaphorePermit>,
) -> Result<EndedTask, GivenUp> {
    let agent = &host.agent;
    let until = Instant::now() + crate::work::time_left(agent, context);
    let slot = if let Some(slot) = slot {
        slot
    } else {
        tokio::select! {
            biased;
            () = host.halt.cancelled() => return Err(GivenUp::Stopping),
            () = context.cancel().cancelled() => {
                return Ok(EndedTask::refused(Fault::cancelled(CANCELLED, "the task was cancelled before it started")));
            }
            () = sleep_until(until) => {
                return Ok(EndedTask::refused(Fault::timeout(TOO_LATE, "the agent was busy until the deadline")));
            }
            slot = Arc::clone(&host.places.working).acquire_owned() => slot.map_err(|_| GivenUp::Stopping)?,
        }
    };
    context.slot().hold(host.places.clone(), slot);
    let ended = carry_on(agent, input, context, &host.halt, first).await;
    context.slot().release();
    ended
}

async fn carry_on(
    agent: &crate::agent::CompiledAgent,
    input: &Value,
    context: &Context,
    halt: &tokio_util::sync::CancellationToken,
    first: Option<FirstCall>,
) -> Result<EndedTask, GivenUp> {
    if first.is_none()
        && let Err(fault) = check_input(agent, input, context)
    {
        return Ok(EndedTask::refused(fault));
    }
    go_on(agent, input, context, halt, first).await
}

/// Records the result of a task, and sends it to all listeners.
async fn end(host: &AgentHost, id: &TaskId, body: Bytes) {
    for listener in host.nodes.end(id, body.clone()) {
        answer(host, listener, id, body.clone()).await;
    }
}

async fn answer(host: &AgentHost, listener: AnswerListener, id: &TaskId, body: Bytes) {
    let reply = match listener {
        AnswerListener::Reply(reply) => reply,
        AnswerListener::Delivery(sender) => {
            let _ = sender.send(Some(body));
            return;
        }
    };
    let body = if body.len() > MAX_RESULT { too_large(id, body.len(), MAX_RESULT) } else { body };
    match host.mesh.services().answer_node(reply.clone(), body).await {
        Err(MeshError::TooLarge { size, limit, .. }) => {
            let small = too_large(id, size as usize, limit as usize);
            if let Err(error) = host.mesh.services().answer_node(reply, small).await {
                tracing::debug!(task = %id, %error, "cannot reply to a task");
            }
        }
        Err(error) => tracing::debug!(task = %id, %error, "cannot reply to a task"),
        Ok(()) => {}
    }
}

/// Returns the answer that replaces one that exceeds the message size of the mesh.
pub(crate) fn too_large(id: &TaskId, size: usize, limit: usize) -> Bytes {
    let text = format!("the result has {size} bytes; the limit of the mesh is {limit}");
    reply::failed_node(id, &Fault::failure(ARTIFACTS, text))
}

fn refusal(id: &TaskId, fault: &Fault) -> Bytes {
    WorkflowNodeResult::refusal(id, fault).to_bytes().into()
}

fn stopping() -> Fault {
    Fault::error(STOPPING, "the agent is shutting down")
}

/// Returns the task id of a request whose other parts may be malformed.
fn task_of(body: &[u8]) -> Option<TaskId> {
    #[derive(Deserialize)]
    struct NamedTask {
        sub_task_id: TaskId,
    }
    serde_json::from_slice::<NamedTask>(body).ok().map(|named| named.sub_task_id)
}

fn task_span(context: &Context) -> tracing::Span {
    let about = context.about();
    tracing::info_span!(
        "task",
        agent = about.agent,
        execution = %about.execution,
        task = %about.task,
        attempt = about.attempt,
        trace_parent = about.trace_parent,
    )
}

/// An open task in progress; forgotten if this is dropped before its end.
struct OpenNodeTask<'a> {
    host: &'a AgentHost,
    id: &'a TaskId,
}

impl Drop for OpenNodeTask<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            drop(self.host.nodes.forget(self.id));
        }
    }
}
