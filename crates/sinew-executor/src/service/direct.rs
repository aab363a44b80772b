//! Direct delivery: the task is a request at the agent's door, the result its reply.
//!
//! Lowest latency, and nothing of it is stored but the facts: when the agent dies, the same task is asked again under
//! the same id; when there is no agent, the task waits for its card.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sinew_mesh::MeshError;
use sinew_protocol::jsonrpc::Response;
use sinew_protocol::journal::ExecutionMeta;
use sinew_protocol::message::BadMessage;
use sinew_protocol::{Fault, TaskId, Token, a2a};
use tokio::sync::mpsc;
use tracing::debug;

use super::intake::{self, Arrival, Done, Handle};
use crate::call::Call;

/// The agent's door answered with something else than a task.
const NO_TASK: &str = "SINEW-6035";
/// How long a silent agent is believed to be working before it is asked again; it answers as far as it is.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// Between looks for an agent that is not there.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Asks until there is an answer. The engine's own deadline ends this from outside.
pub(super) async fn call(
    shared: Handle,
    call: Call,
    meta: Arc<ExecutionMeta>,
    back: mpsc::UnboundedSender<Arrival>,
) -> TaskId {
    let agent = call.ask.target.name().to_owned();
    let result = loop {
        let sent = shared.task(&call, &meta).await;
        let (headers, params) = match sent {
            Ok(sent) => sent,
            Err(error) if error.is_transient() => {
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            }
            Err(error) => break Err(Fault::from(error).with_retryable(false)),
        };
        let params: serde_json::Value = serde_json::from_slice(&params).unwrap_or_default();
        let request = json!({"jsonrpc": "2.0", "id": call.task.as_str(), "method": "SendMessage", "params": params});
        let body = serde_json::to_vec(&request).unwrap_or_default().into();
        match shared.mesh.call_rpc(&agent, "SendMessage", headers, body, ASK_AGAIN).await {
            Ok(reply) => match read(&reply.body) {
                Ok(task) => match sinew_protocol::task::read_result(&task) {
                    Ok(result) => break intake::reply(&shared, result).await,
                    Err(bad) => break Err(bad.into()),
                },
                Err(fault) => break Err(fault),
            },
            Err(MeshError::NobodyAnswers { .. }) => {
                debug!(%agent, "no such agent is there; its task waits");
                let _ = tokio::time::timeout(LOOK_AGAIN, shared.cards.clone().changed()).await;
            }
            Err(error) => debug!(%agent, %error, "asked again"),
        }
    };
    let done = Done { execution: call.execution, task: call.task.clone(), agent: Token::of(&agent), result };
    let _ = back.send(Arrival::Result(Box::new(done)));
    call.task
}

fn read(reply: &[u8]) -> Result<a2a::Task, Fault> {
    let no_task = |text: String| Fault::error(NO_TASK, text);
    let response: Response = serde_json::from_slice(reply)
        .map_err(|error| Fault::from(BadMessage::Bytes(error.to_string())))?;
    let result = response.into_result().map_err(|error| no_task(format!("the agent refused: {error}")))?;
    let task = result.get("task").cloned().unwrap_or(result);
    serde_json::from_value(task).map_err(|error| no_task(format!("the agent's answer is no task: {error}")))
}
