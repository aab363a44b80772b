//! Direct delivery to agents without node requests: the task is a request to the A2A endpoint.
//!
//! This has the lowest latency, and only the facts are stored: if the agent crashes, the same task
//! is sent again under the same id; if no agent is online, the task waits for its card.

use sinew_protocol::code;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use sinew_mesh::{HeaderMap, MeshError};
use sinew_protocol::a2a::{CoreMethod, SendMessageRequest};
use sinew_protocol::journal::ExecutionMeta;
use sinew_protocol::jsonrpc::{Method, Request, Response, fault_of};
use sinew_protocol::message::BadMessage;
use sinew_protocol::task::{NodeResult, read_result};
use sinew_protocol::unique_keys::check_unique_keys;
use sinew_protocol::usage::TaskUsage;
use sinew_protocol::{Fault, Subject, TaskId, Token, a2a, header};
use tokio::sync::mpsc;
use tracing::debug;

use super::intake::{self, BackInput, Handle};
use super::node_calls::LATE_USAGE_TIMEOUT;
use super::outbox::{insist, report};
use sinew_execution::Call;
use sinew_shard::{PendingInput, ShardInput, of_task};

/// The agent's endpoint replied with something other than a task.
pub(super) const NO_TASK: &str = code::DIRECT_CALL_WITHOUT_RESULT.as_str();
/// The agent has no capacity for another task; agents use the same code.
pub(super) const NO_ROOM: &str = code::AGENT_BUSY.as_str();
/// Interval for repeating an unanswered call, doubled from the first to the second value. An agent
/// that already works on the task replies once it has ended.
pub(super) const REPEAT_INTERVAL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(15));
/// Shortest wait after a refusal.
pub(super) const SOONEST: Duration = Duration::from_millis(100);
/// Pause between checks for an offline agent.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Calls until there is a reply. The engine's deadline cancels this from outside.
pub(super) async fn call(
    shared: Handle,
    call: Call,
    meta: Arc<ExecutionMeta>,
    back: mpsc::UnboundedSender<BackInput>,
) -> TaskId {
    let agent = call.ask.target.name().to_owned();
    let limit = shared.limit(&agent);
    // Held while the agent is called again for a task in progress.
    let mut place = None;
    let mut failures = 0;
    let mut is_repeated = false;
    let mut patience = REPEAT_INTERVAL.0;
    let result = loop {
        if place.is_none() {
            place = limit.enter().await;
        }
        let sent = shared.message(&call, &meta).await;
        let (mut headers, params) = match sent {
            Ok(sent) => sent,
            Err(error) if error.is_transient() => {
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            }
            Err(error) => break Err(Fault::from(error).with_retryable(false)),
        };
        headers.insert(header::A2A_VERSION, a2a::A2A_VERSION);
        headers.insert(header::CONTENT_TYPE, header::JSON);
        if std::mem::replace(&mut is_repeated, true) {
            headers.insert(header::REPEATED, "1");
        }
        let request = Sent { jsonrpc: "2.0", id: call.task.as_str(), method: "SendMessage", params: &params };
        let body = serde_json::to_vec(&request).unwrap_or_default().into();
        match shared.mesh.services().call_rpc(&agent, "SendMessage", headers, body, patience).await {
            Ok(reply) => match read(&reply.body) {
                Ok(task) => match read_result(&task).and_then(|result| of_task(result, &call.task)) {
                    Ok(result) => break Ok(result),
                    Err(bad) => break Err(bad.into()),
                },
                Err(fault) if fault.code == NO_ROOM => {
                    if let Some(place) = place.take() {
                        limit.refused(place);
                    }
                    tokio::time::sleep(SOONEST).await;
                }
                // The replica shuts down; another one may accept the task under the same id.
                Err(fault) if fault.retryable => {
                    debug!(%agent, %fault, "the agent refused the task temporarily");
                    let wait = fault.retry_after_ms.map_or(LOOK_AGAIN, Duration::from_millis);
                    tokio::time::sleep(wait.clamp(SOONEST, REPEAT_INTERVAL.1)).await;
                }
                Err(fault) => break Err(fault),
            },
            Err(MeshError::NobodyAnswers { .. }) => {
                debug!(%agent, "no process of the agent responds; its task waits");
                let _ = tokio::time::timeout(LOOK_AGAIN, shared.cards.clone().changed()).await;
            }
            // The reply is malformed: a repeated call would get the same one.
            Err(error @ MeshError::Malformed { .. }) => break Err(Fault::error(NO_TASK, error.to_string())),
            // With an observer on all subjects, NATS does not report that there are no responders.
            Err(MeshError::NoAnswer { .. }) if shared.cards.get(&agent).is_none() => {
                debug!(%agent, "the agent is offline; its task waits");
                let _ = tokio::time::timeout(LOOK_AGAIN, shared.cards.clone().changed()).await;
            }
            Err(error @ MeshError::NoAnswer { .. }) => {
                debug!(%agent, %error, "asked again");
                patience = (patience * 2).min(REPEAT_INTERVAL.1);
            }
            // If an agent's replies break the connection, call it ever less often.
            Err(error) => {
                debug!(%agent, %error, "asked again");
                tokio::time::sleep(retry_pause(failures)).await;
                failures += 1;
            }
        }
    };
    if let Some(place) = place {
        limit.ended(place);
    }
    let task = call.task.clone();
    let _ = back.send(input_of(&shared, call, Token::of(&agent), result).await);
    task
}

/// Waits until a cancelled task has ended at its agent, and stores its reply among the results of
/// queued tasks if it reports usage.
pub(super) async fn keep_usage(shared: Handle, call: Call) -> TaskId {
    let agent = call.ask.target.name();
    let subject = shared.result_subject(&call, &Token::of(agent));
    let ended = async {
        loop {
            let params = json!({ "id": call.task, "historyLength": 0 });
            let method = Method::Core(CoreMethod::GetTask);
            let body = Request::new(call.task.as_str(), method, &params).to_bytes();
            let mut headers = HeaderMap::new();
            headers.insert(header::A2A_VERSION, a2a::A2A_VERSION);
            headers.insert(header::CONTENT_TYPE, header::JSON);
            let asked =
                shared.mesh.services().call_rpc(agent, method.as_str(), headers, body, REPEAT_INTERVAL.0);
            match asked.await.map(|reply| read(&reply.body)) {
                Ok(Ok(task)) if a2a::is_terminal(task.status.state) => return task,
                _ => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    };
    let Ok(task) = tokio::time::timeout(LATE_USAGE_TIMEOUT, ended).await else { return call.task };
    let has_usage = read_result(&task).is_ok_and(|result| TaskUsage::of(&result.usage).is_some());
    if let Some(subject) = Subject::parse(shared.mesh.namespace(), &subject).filter(|_| has_usage)
        && let Ok(body) = serde_json::to_vec(&task)
    {
        let put = || shared.mesh.tasks().put_once(&subject, HeaderMap::new(), body.clone().into());
        report(&insist(put).await);
    }
    call.task
}

/// Returns the reply to a call as an input of its shard.
async fn input_of(shared: &Handle, call: Call, agent: Token, result: Result<NodeResult, Fault>) -> BackInput {
    match result {
        Ok(result) => {
            let pending = PendingInput::of_result(call.execution, call.task, agent, result);
            intake::complete(shared, pending).await
        }
        Err(fault) => ShardInput::task_result(call.execution, call.task, agent, Err(fault)).into(),
    }
}

/// Returns the wait before a call is repeated after a lost connection; the first repetition is
/// immediate.
pub(super) fn retry_pause(failures: u32) -> Duration {
    let doublings = failures.checked_sub(1);
    doublings.map_or(Duration::ZERO, |doublings| {
        SOONEST.saturating_mul(1 << doublings.min(16)).min(REPEAT_INTERVAL.1)
    })
}

/// Borrowed form of a call: the message is serialized directly, without an intermediate value.
#[derive(Serialize)]
struct Sent<'a> {
    jsonrpc: &'static str,
    id: &'a str,
    method: &'static str,
    params: &'a SendMessageRequest,
}

/// The usual reply, parsed directly into its type.
#[derive(Deserialize)]
struct Usual {
    result: Finished,
}

#[derive(Deserialize)]
struct Finished {
    task: a2a::Task,
}

fn read(reply: &[u8]) -> Result<a2a::Task, Fault> {
    check_unique_keys(reply).map_err(|error| Fault::from(BadMessage::of_json(error)))?;
    if let Ok(Usual { result }) = serde_json::from_slice(reply) {
        return Ok(result.task);
    }
    let no_task = |text: String| Fault::error(NO_TASK, text);
    let response: Response =
        serde_json::from_slice(reply).map_err(|error| Fault::from(BadMessage::Bytes(error.to_string())))?;
    let result = response.into_result().map_err(|error| match fault_of(&error) {
        fault if fault.retryable => fault,
        _ => no_task(format!("the agent refused the task: {error}")),
    })?;
    let task = result.get("task").cloned().unwrap_or(result);
    serde_json::from_value(task)
        .map_err(|error| no_task(format!("the agent's response is not a task: {error}")))
}
