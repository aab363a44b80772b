//! Calls of agents through their A2A endpoints.

use std::time::Duration;

use serde_json::{Value, json};
use sinew_inspection::words;
use sinew_mesh::{HeaderMap, Mesh};
use sinew_protocol::a2a::{
    A2A_VERSION, AgentCard, CoreMethod, Message, Part, SendMessageRequest, Task, TaskState,
};
use sinew_protocol::jsonrpc::{Method, Request, Response, fault_of};
use sinew_protocol::message::{MeshMessage, Vocabulary, WorkflowNodeRequestData};
use sinew_protocol::task::{NodeOutput, read_result};
use sinew_protocol::{Fault, code, header};

use crate::failure::{Failure, FailureKind, known};

/// Time for an answer, unless the caller sets one.
const CALL_TIMEOUT: Duration = Duration::from_mins(5);

/// Asks an agent through its A2A door, and waits for the answer.
pub async fn call_agent(
    mesh: &Mesh,
    agent: &str,
    input: Value,
    instruction: Option<&str>,
    patience: Option<Duration>,
) -> Result<Result<Value, Fault>, Failure> {
    let id = uuid::Uuid::now_v7().to_string();
    let node = MeshMessage::from(WorkflowNodeRequestData {
        workflow_name: "sinew-cli".to_owned(),
        node_id: id.clone(),
        ..WorkflowNodeRequestData::default()
    });
    let mut parts = vec![node.to_part(Vocabulary::Current)];
    parts.extend(instruction.map(Part::text));
    parts.push(Part::data(input));
    let message = Message::user(id.clone(), parts);
    let params = SendMessageRequest { tenant: None, message, configuration: None, metadata: None };
    let method = Method::Core(CoreMethod::SendMessage);
    let request = Request::new(id.as_str(), method, &params);
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::JSON);
    headers.insert(header::A2A_VERSION, A2A_VERSION);
    sinew_mesh::trace::TraceParent::fresh().put(&mut headers);
    let patience = patience.unwrap_or(CALL_TIMEOUT);
    let reply =
        mesh.services().call_rpc(agent, method.as_str(), headers, request.to_bytes(), patience).await?;
    let unreadable = |why: String| {
        let text = format!("what agent '{agent}' answers cannot be read: {}", words::one_line(&why, 300));
        Failure::new(FailureKind::Failed, code::MESSAGE_CANNOT_BE_READ.as_str(), text)
    };
    let response = Response::read(&reply.body).map_err(|error| unreadable(error.to_string()))?;
    let mut result = match response.into_result() {
        Ok(result) => result,
        Err(error) => return Ok(Err(fault_of(&error))),
    };
    let task = result.get_mut("task").map(Value::take).unwrap_or_default();
    let task: Task = serde_json::from_value(task).map_err(|error| unreadable(error.to_string()))?;
    if matches!(task.status.state, TaskState::InputRequired | TaskState::AuthRequired) {
        let text = format!(
            "agent '{agent}' asks for more: {}",
            words::one_line(&format!("{:?}", task.status.state), 40)
        );
        return Err(Failure::new(FailureKind::Waiting, code::MESSAGE_CANNOT_BE_READ.as_str(), text));
    }
    let result = read_result(&task).map_err(|error| unreadable(error.to_string()))?;
    if let Some(fault) = result.fault {
        return Ok(Err(fault));
    }
    Ok(Ok(match result.output {
        NodeOutput::None => Value::Null,
        NodeOutput::Value(value) => value,
        NodeOutput::Address(address) => {
            let bytes = mesh.artifacts().fetch(&address).await?;
            serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()))
        }
    }))
}
/// Fetches the card that an agent gives at its A2A endpoint.
pub async fn fetch_card(mesh: &Mesh, agent: &str, patience: Duration) -> Result<AgentCard, Failure> {
    let method = Method::GetAgentCard;
    let request = Request::new("ping", method, &json!({}));
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::JSON);
    headers.insert(header::A2A_VERSION, A2A_VERSION);
    let reply =
        mesh.services().call_rpc(agent, method.as_str(), headers, request.to_bytes(), patience).await?;
    let unreadable = |why: String| {
        let text = format!("what agent '{agent}' answers cannot be read: {}", words::one_line(&why, 300));
        Failure::new(FailureKind::Failed, code::MESSAGE_CANNOT_BE_READ.as_str(), text)
    };
    let response = Response::read(&reply.body).map_err(|error| unreadable(error.to_string()))?;
    let card = response.into_result().map_err(|error| fault_failure(&fault_of(&error)))?;
    serde_json::from_value(card).map_err(|error| unreadable(error.to_string()))
}
/// Returns the failure of a call that an agent answered with a fault.
pub fn fault_failure(fault: &Fault) -> Failure {
    let mut message = fault.message.clone();
    for detail in &fault.details {
        message.push_str("\n  ");
        message.push_str(detail);
    }
    // The code of a fault is one of ours, but it may have come from data: it is looked up instead of trusted.
    Failure::new(FailureKind::Failed, known(&fault.code), message)
}
