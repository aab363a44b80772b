//! Calls of agents through their A2A endpoints, and through an execution for agents without one.

use std::time::Duration;

use serde_json::{Value, json};
use sinew_documents::words;
use sinew_mesh::{HeaderMap, Mesh, MeshError};
use sinew_protocol::a2a::{
    A2A_VERSION, AgentCard, CoreMethod, Message, Part, PartContent, SendMessageRequest, StreamResponse, Task,
    TaskState, is_terminal,
};
use sinew_protocol::card::{self, AgentKind, CARD_LATE_AFTER, Delivery, agent_call};
use sinew_protocol::jsonrpc::{Method, Request, Response, fault_of};
use sinew_protocol::message::{MeshMessage, Vocabulary, WorkflowNodeRequestData};
use sinew_protocol::task::{NodeOutput, read_result};
use sinew_protocol::{ActivationKey, ExecutionId, Fault, FaultKind, TaskId, Token, code, header};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, FailureKind, known};
use crate::mesh_operator::online;

/// Time limit for the response to a call before its task is queried, because the agent may have
/// crashed.
const FIRST_ANSWER: Duration = Duration::from_secs(20);
/// Default time limit for a response.
const CALL_TIMEOUT: Duration = Duration::from_mins(5);
/// Time limit for the response of an agent's endpoint to a read-only request. Without a response
/// the agent is called through an execution, which also works for an agent with an endpoint.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for notifying an agent of a cancellation.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// A call of an agent at its A2A endpoint.
#[derive(Debug)]
pub struct AgentQuestion<'a> {
    /// Name of the agent.
    pub agent: &'a str,
    /// Input of the agent.
    pub input: Value,
    /// Instruction as text.
    pub instruction: Option<&'a str>,
    /// A2A context; a new one if `None`.
    pub context: Option<&'a str>,
    /// Time limit for the response; five minutes if `None`.
    pub timeout: Option<Duration>,
    /// Receives the agent's progress values unchanged. Some may be lost.
    pub progress: Option<tokio::sync::mpsc::UnboundedSender<Value>>,
    /// Cancels the task.
    pub cancel: CancellationToken,
}

/// Response of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentAnswer {
    /// The output, or the reason why it failed.
    pub output: Result<Value, Fault>,
    /// Tokens, cost and turns if the agent reports them, otherwise null.
    pub usage: Value,
    /// The execution of the agent's task.
    pub execution: ExecutionId,
    /// The task of the agent.
    pub task: TaskId,
}

/// Calls an agent through its A2A endpoint, and waits for the response. An online agent that only
/// reads its queue, like those of `sinew_agent.py`, is called through an execution.
///
/// # Errors
/// The mesh or the agent does not respond, or the response is unreadable.
pub async fn ask_agent(mesh: &Mesh, question: AgentQuestion<'_>) -> Result<AgentAnswer, Failure> {
    let id = uuid::Uuid::now_v7().to_string();
    let execution = ExecutionId::of(mesh.namespace(), mesh.caller().as_str(), &id);
    let mut asked = Box::pin(cancellable(mesh, &question, &execution, exchange_anyhow(mesh, &question, &id)));
    let Some(said) = &question.progress else { return asked.await };
    let mut feed = mesh.tasks().watch_progress(Some(&execution), None).await?;
    let told = async {
        while let Some(progress) = feed.next().await {
            for value in told_values(&progress) {
                // Fails if the caller no longer receives.
                let _unheard = said.send(value);
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        answer = &mut asked => answer,
        () = told => Err(unreadable(question.agent, "the progress stream ended")),
    }
}

/// Waits for a response, and cancels an abandoned task.
async fn cancellable(
    mesh: &Mesh,
    question: &AgentQuestion<'_>,
    execution: &ExecutionId,
    asked: impl Future<Output = Result<Exchanged, Failure>>,
) -> Result<AgentAnswer, Failure> {
    let mut asked = std::pin::pin!(asked);
    let answer = tokio::select! {
        biased;
        answer = &mut asked => answer?,
        () = question.cancel.cancelled() => {
            cancel(mesh, question.agent, execution).await;
            asked.await?
        }
    };
    let task = own_task(question.agent, execution);
    Ok(AgentAnswer { output: answer.0, usage: answer.1, execution: execution.clone(), task })
}

/// Returns the task that an agent creates for a message which only the caller knows.
fn own_task(agent: &str, execution: &ExecutionId) -> TaskId {
    let activation = ActivationKey::of::<&str>(execution, Token::of(agent).as_str(), &[], 0);
    TaskId::of(execution, &activation, 1)
}

async fn cancel(mesh: &Mesh, agent: &str, execution: &ExecutionId) {
    let task = own_task(agent, execution);
    let method = Method::Core(CoreMethod::CancelTask);
    let body = Request::new("cancel", method, &json!({ "id": task.as_str() })).to_bytes();
    let told = mesh.services().call_rpc(agent, method.as_str(), a2a_headers(), body, CANCEL_TIMEOUT).await;
    // An agent that misses the cancellation ends by itself; its response contains the task's state.
    drop(told);
    let body = Request::new("cancel", method, &json!({ "id": execution.as_str() })).to_bytes();
    let endpoint = agent_call(agent);
    let told =
        mesh.services().call_rpc(&endpoint, method.as_str(), a2a_headers(), body, CANCEL_TIMEOUT).await;
    // The execution, if it calls the agent.
    drop(told);
}

/// Returns the values in an agent's status update, or none for an update that ends its task.
pub fn told_values(progress: &sinew_mesh::live::Progress) -> Vec<Value> {
    let Ok(StreamResponse::StatusUpdate(update)) = serde_json::from_slice(&progress.body) else {
        return Vec::new();
    };
    if is_terminal(update.status.state) {
        return Vec::new();
    }
    let parts = update.status.message.map(|message| message.parts).unwrap_or_default();
    let value = |part: Part| match part.content {
        PartContent::Text(text) => Some(Value::String(text)),
        PartContent::Data(value) => Some(value),
        _ => None,
    };
    parts.into_iter().filter_map(value).collect()
}

fn a2a_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::JSON);
    headers.insert(header::A2A_VERSION, A2A_VERSION);
    headers
}

fn unreadable(agent: &str, reason: &str) -> Failure {
    let text = format!("cannot read the response of agent '{agent}': {}", words::one_line(reason, 300));
    Failure::new(FailureKind::Failed, code::MESSAGE_CANNOT_BE_READ.as_str(), text)
}

/// Output or fault, and usage.
type Exchanged = (Result<Value, Fault>, Value);

/// Calls the agent's endpoint or, if there is none and the agent is online, the one of the
/// execution that calls it.
async fn exchange_anyhow(mesh: &Mesh, question: &AgentQuestion<'_>, id: &str) -> Result<Exchanged, Failure> {
    let agent = question.agent;
    if !reads_queue(mesh, agent).await? || fetch_card(mesh, agent, ENDPOINT_TIMEOUT).await.is_ok() {
        return exchange(mesh, question, agent, id).await;
    }
    let (output, usage) = match exchange(mesh, question, &agent_call(agent), id).await {
        // No executor is running.
        Err(failure) if failure.code == code::NOBODY_ANSWERS.as_str() => {
            let what =
                format!("agent {agent}: it accepts tasks only from its queue, and no executor is running");
            return Err(MeshError::NobodyAnswers { what }.into());
        }
        exchanged => exchanged?,
    };
    let output = output.map(|output| match output {
        Value::Object(mut members) => members.remove("output").unwrap_or_default(),
        other => other,
    });
    Ok((output, usage))
}

/// Returns whether a name is that of a recently online agent, and not of a workflow.
async fn is_agent(mesh: &Mesh, name: &str) -> Result<bool, Failure> {
    let cards = online(mesh).await?;
    Ok(cards.get(name).is_some_and(|announced| card::kind(&announced.card) == AgentKind::Agent))
}

/// Returns whether an agent was recently online and reads tasks from a queue.
async fn reads_queue(mesh: &Mesh, agent: &str) -> Result<bool, Failure> {
    let cards = online(mesh).await?;
    let is_heard = cards.age(agent).is_some_and(|age| age < CARD_LATE_AFTER);
    let reads_queue =
        |card: &AgentCard| card::kind(card) == AgentKind::Agent && card::delivery(card) == Delivery::Queue;
    Ok(is_heard && cards.get(agent).is_some_and(|announced| reads_queue(&announced.card)))
}

async fn exchange(
    mesh: &Mesh,
    question: &AgentQuestion<'_>,
    endpoint: &str,
    id: &str,
) -> Result<Exchanged, Failure> {
    let agent = question.agent;
    let node = MeshMessage::from(WorkflowNodeRequestData {
        workflow_name: "sinew-cli".to_owned(),
        node_id: id.to_owned(),
        ..WorkflowNodeRequestData::default()
    });
    let mut parts = vec![node.to_part(Vocabulary::Current)];
    parts.extend(question.instruction.map(Part::text));
    parts.push(Part::data(question.input.clone()));
    let mut message = Message::user(id, parts);
    if let Some(context) = question.context {
        message = message.with_context_id(context);
    }
    let params = SendMessageRequest { tenant: None, message, configuration: None, metadata: None };
    let method = Method::Core(CoreMethod::SendMessage);
    let request = Request::new(id, method, &params);
    let mut headers = a2a_headers();
    sinew_mesh::trace::TraceParent::fresh().put(&mut headers);
    let timeout = question.timeout.unwrap_or(CALL_TIMEOUT);
    let until = Instant::now() + timeout;
    let body = request.to_bytes();
    let first = mesh.services().call_rpc(
        endpoint,
        method.as_str(),
        headers.clone(),
        body.clone(),
        timeout.min(FIRST_ANSWER),
    );
    let reply = match first.await {
        Err(MeshError::NoAnswer { .. }) if Instant::now() < until => {
            if is_agent(mesh, endpoint).await? {
                return answered_late(mesh, question, &params, until).await;
            }
            // The same message identifies the same call.
            let left = until.saturating_duration_since(Instant::now());
            mesh.services().call_rpc(endpoint, method.as_str(), headers, body, left).await?
        }
        reply => reply?,
    };
    let response = Response::read(&reply.body).map_err(|error| unreadable(agent, &error.to_string()))?;
    let mut result = match response.into_result() {
        Ok(result) => result,
        Err(error) => return Ok((Err(fault_of(&error)), Value::Null)),
    };
    let task = result.get_mut("task").map(Value::take).unwrap_or_default();
    let task: Task = serde_json::from_value(task).map_err(|error| unreadable(agent, &error.to_string()))?;
    if matches!(task.status.state, TaskState::InputRequired | TaskState::AuthRequired) {
        let text = format!(
            "agent '{agent}' requires input: {}",
            words::one_line(&format!("{:?}", task.status.state), 40)
        );
        return Err(Failure::new(FailureKind::Waiting, code::MESSAGE_CANNOT_BE_READ.as_str(), text));
    }
    exchanged(mesh, agent, &task).await
}

/// Returns the response of a slow agent, from any of its processes. The message is not sent again
/// while a process of the agent may be processing it.
async fn answered_late(
    mesh: &Mesh,
    question: &AgentQuestion<'_>,
    request: &SendMessageRequest,
    until: Instant,
) -> Result<Exchanged, Failure> {
    let agent = question.agent;
    match sinew_agent::ask_until_answered(mesh, agent, request, until).await {
        Ok(task) => exchanged(mesh, agent, &task).await,
        Err(failure) => Ok((Err(failure.into_fault()), Value::Null)),
    }
}

async fn exchanged(mesh: &Mesh, agent: &str, task: &Task) -> Result<Exchanged, Failure> {
    let result = read_result(task).map_err(|error| unreadable(agent, &error.to_string()))?;
    if let Some(fault) = result.fault {
        return Ok((Err(fault), result.usage));
    }
    let output = match result.output {
        NodeOutput::None => Value::Null,
        NodeOutput::Value(value) => value,
        NodeOutput::Address(address) => {
            let bytes = mesh.artifacts().fetch(&address).await?;
            serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()))
        }
    };
    Ok((Ok(output), result.usage))
}

/// Fetches the card from an agent's A2A endpoint.
pub async fn fetch_card(mesh: &Mesh, agent: &str, patience: Duration) -> Result<AgentCard, Failure> {
    let method = Method::GetAgentCard;
    let request = Request::new("ping", method, &json!({}));
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::JSON);
    headers.insert(header::A2A_VERSION, A2A_VERSION);
    let reply =
        mesh.services().call_rpc(agent, method.as_str(), headers, request.to_bytes(), patience).await?;
    let unreadable = |why: String| {
        let text = format!("cannot read the response of agent '{agent}': {}", words::one_line(&why, 300));
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
    // The code should be one of Sinew's, but may come from data, so it is looked up.
    let kind = if fault.kind == FaultKind::Timeout { FailureKind::TimedOut } else { FailureKind::Failed };
    Failure::new(kind, known(&fault.code), message)
}
