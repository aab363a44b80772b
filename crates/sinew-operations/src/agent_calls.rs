//! Calls of agents through their A2A endpoints, and of agents that have none through an execution.

use std::time::Duration;

use serde_json::{Value, json};
use sinew_inspection::words;
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

/// How long the answer to a call is waited for before its task is asked for: the agent may have died with it.
const FIRST_ANSWER: Duration = Duration::from_secs(20);
/// Time for an answer, unless the caller sets one.
const CALL_TIMEOUT: Duration = Duration::from_mins(5);
/// Time for the endpoint of an agent to answer a question that changes nothing. Without an answer
/// the agent is asked by an execution, which is right for an agent with an endpoint, too.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for an agent to hear that a task is cancelled.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// A question to an agent at its A2A endpoint.
#[derive(Debug)]
pub struct AgentQuestion<'a> {
    /// Name of the agent.
    pub agent: &'a str,
    /// Input of the agent.
    pub input: Value,
    /// Instruction in words.
    pub instruction: Option<&'a str>,
    /// A2A context; one of its own if none.
    pub context: Option<&'a str>,
    /// Longest time for the answer; five minutes if none.
    pub timeout: Option<Duration>,
    /// Hears what the agent tells of its progress: values as the agent said them. Some may be lost.
    pub progress: Option<tokio::sync::mpsc::UnboundedSender<Value>>,
    /// Cancels the task.
    pub cancel: CancellationToken,
}

/// Answer of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentAnswer {
    /// The output, or the reason why there is none.
    pub output: Result<Value, Fault>,
    /// Tokens, cost and turns, if the agent tells them; else null.
    pub usage: Value,
    /// The execution that the task of the agent belongs to.
    pub execution: ExecutionId,
    /// The task of the agent.
    pub task: TaskId,
}

/// Asks an agent through its A2A endpoint, and waits for the answer. An agent that is alive and reads nothing but its queue,
/// as those of `sinew_agent.py` do, is asked by an execution.
///
/// # Errors
/// The mesh or the agent does not answer, or the answer cannot be read.
pub async fn ask_agent(mesh: &Mesh, question: AgentQuestion<'_>) -> Result<AgentAnswer, Failure> {
    let id = uuid::Uuid::now_v7().to_string();
    let execution = ExecutionId::of(mesh.namespace(), mesh.caller().as_str(), &id);
    let mut asked = Box::pin(cancellable(mesh, &question, &execution, exchange_anyhow(mesh, &question, &id)));
    let Some(said) = &question.progress else { return asked.await };
    let mut feed = mesh.tasks().watch_progress(Some(&execution), None).await?;
    let told = async {
        while let Some(progress) = feed.next().await {
            for value in told_values(&progress) {
                // Fails if the caller no longer listens.
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

/// Waits for an answer; a task that is given up is cancelled.
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

/// The task that an agent makes of a message which nobody but the caller knows.
fn own_task(agent: &str, execution: &ExecutionId) -> TaskId {
    let activation = ActivationKey::of::<&str>(execution, Token::of(agent).as_str(), &[], 0);
    TaskId::of(execution, &activation, 1)
}

async fn cancel(mesh: &Mesh, agent: &str, execution: &ExecutionId) {
    let task = own_task(agent, execution);
    let method = Method::Core(CoreMethod::CancelTask);
    let body = Request::new("cancel", method, &json!({ "id": task.as_str() })).to_bytes();
    let told = mesh.services().call_rpc(agent, method.as_str(), a2a_headers(), body, CANCEL_TIMEOUT).await;
    // An agent that does not hear it ends by itself; its answer says what became of the task.
    drop(told);
    let body = Request::new("cancel", method, &json!({ "id": execution.as_str() })).to_bytes();
    let endpoint = agent_call(agent);
    let told =
        mesh.services().call_rpc(&endpoint, method.as_str(), a2a_headers(), body, CANCEL_TIMEOUT).await;
    // The execution, if it is the one that asks the agent.
    drop(told);
}

/// Returns the values that an agent told in an update of its status; none of an update that ends its task.
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

/// Asks at the endpoint of the agent, or, if there is none and the agent is alive, at the one of the execution that asks it.
async fn exchange_anyhow(mesh: &Mesh, question: &AgentQuestion<'_>, id: &str) -> Result<Exchanged, Failure> {
    let agent = question.agent;
    if !reads_queue(mesh, agent).await? || fetch_card(mesh, agent, ENDPOINT_TIMEOUT).await.is_ok() {
        return exchange(mesh, question, agent, id).await;
    }
    let (output, usage) = match exchange(mesh, question, &agent_call(agent), id).await {
        // No executor is there to ask.
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

/// Whether a name is that of an agent that was there lately, and no workflow.
async fn is_agent(mesh: &Mesh, name: &str) -> Result<bool, Failure> {
    let cards = online(mesh).await?;
    Ok(cards.get(name).is_some_and(|announced| card::kind(&announced.card) == AgentKind::Agent))
}

/// Whether an agent was heard of lately and takes tasks from a queue.
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
            // The same message is the same call.
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

/// The answer of an agent that takes long, whichever of its processes gives it. The message is not sent again while a process of
/// the agent may work on it.
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
    // The code of a fault is one of ours, but it may have come from data: it is looked up instead of trusted.
    let kind = if fault.kind == FaultKind::Timeout { FailureKind::TimedOut } else { FailureKind::Failed };
    Failure::new(kind, known(&fault.code), message)
}
