//! Tasks at an agent's node endpoint: one request and one response with the field names of the
//! specification.
//!
//! The A2A endpoint carries the same information in a longer form. The decoders of both return the
//! same [`NodeResult`].

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::log::bounded_log;
use super::read::{bounded, named};
use super::{
    Content, FAILED, LogLine, MAX_ARTIFACTS, MAX_EVENTS, MAX_RESULT, MAX_TEXT, NO_REASON, NodeOutput,
    NodeResult, ResultArtifact, SCHEMA_VIOLATED, bad, cut,
};
use crate::a2a::Artifact;
use crate::artifact::{ArtifactMeta, ArtifactName, ArtifactRef};
use crate::command::present;
use crate::fault::Fault;
use crate::message::BadMessage;
use crate::unique_keys::check_unique_keys;
use crate::{ActivationKey, ExecutionId, ResultToken, TaskId};

/// Media type of an output that is sent as a value.
const JSON: &str = "application/json";

/// Task of an execution in the format of an agent's node endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkflowNodeRequest<'a> {
    #[serde(rename = "type")]
    kind: RequestKind,
    /// Name of the workflow.
    #[serde(borrow)]
    pub workflow_name: Cow<'a, str>,
    /// Id of the activation for people: the id of the node, with a position inside maps and loops.
    #[serde(borrow)]
    pub node_id: Cow<'a, str>,
    /// Schema that replaces the input schema of the agent's card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Cow<'a, Value>>,
    /// Schema that replaces the output schema of the agent's card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Cow<'a, Value>>,
    /// Name for the output artifact that no other task of the execution uses.
    #[serde(borrow)]
    pub suggested_output_filename: Cow<'a, str>,
    /// The execution.
    pub execution_id: ExecutionId,
    /// The task: one per attempt, the same for every delivery.
    pub sub_task_id: TaskId,
    /// Key of the activation, the same for all attempts, on which effects are deduplicated.
    pub activation: ActivationKey,
    /// Attempt, counted from 1.
    pub attempt: u32,
    /// Deadline of the response, in milliseconds since 1970 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// User on whose behalf the execution runs.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Cow<'a, str>>,
    /// Settings of that user for the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_config: Option<Cow<'a, Value>>,
    /// A2A context in which the execution was started. Absent if its caller named none.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub context_id: Option<Cow<'a, str>>,
    /// Caller that started the execution, next to its context.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Cow<'a, str>>,
    /// Reason for the call: the node's own work, or a question about it.
    #[serde(borrow)]
    pub purpose: Cow<'a, str>,
    /// Id of the node in the workflow, if `node_id` contains more.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Cow<'a, str>>,
    /// Maps, loops and forks around the node, outermost first, each with a position.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<(String, u32)>,
    /// Instruction for the agent.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<Cow<'a, str>>,
    /// Rules, tools, model and choices that the dialect passes to its agents in addition to the
    /// input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Cow<'a, Value>>,
    /// W3C trace context.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<Cow<'a, str>>,
    /// Proof that the task was sent to the agent; calls during the task are proved with it.
    pub result_token: ResultToken,
    /// The input.
    pub input: Cow<'a, Value>,
}

/// The only value of the field `type` of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum RequestKind {
    #[default]
    #[serde(rename = "workflow_node_request")]
    WorkflowNodeRequest,
}

/// Fields that every request has.
#[derive(Clone, Debug)]
pub struct NodeRequestIds<'a> {
    /// The execution.
    pub execution: &'a ExecutionId,
    /// The task.
    pub task: &'a TaskId,
    /// Key of the activation.
    pub activation: &'a ActivationKey,
    /// Attempt, counted from 1.
    pub attempt: u32,
    /// Proof that the task was sent to the agent.
    pub token: &'a ResultToken,
}

impl<'a> WorkflowNodeRequest<'a> {
    /// Creates a request for a task; all fields except ids and input are empty.
    pub fn new(ids: &NodeRequestIds<'_>, input: &'a Value) -> Self {
        Self {
            kind: RequestKind::default(),
            workflow_name: Cow::Borrowed(""),
            node_id: Cow::Borrowed(""),
            input_schema: None,
            output_schema: None,
            suggested_output_filename: Cow::Borrowed(""),
            execution_id: ids.execution.clone(),
            sub_task_id: ids.task.clone(),
            activation: ids.activation.clone(),
            attempt: ids.attempt,
            deadline: None,
            user: None,
            user_config: None,
            context_id: None,
            caller: None,
            purpose: Cow::Borrowed(""),
            node: None,
            path: Vec::new(),
            instruction: None,
            context: None,
            traceparent: None,
            result_token: ids.token.clone(),
            input: Cow::Borrowed(input),
        }
    }

    /// Parses a request.
    pub fn read(body: &'a [u8]) -> Result<Self, BadMessage> {
        check_unique_keys(body).map_err(BadMessage::of_json)?;
        serde_json::from_slice(body).map_err(|error| BadMessage::Bytes(cut(&error.to_string(), 300)))
    }

    /// Encodes the request.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Serialising plain data with string keys cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Returns whether a body is a message of the node endpoint, and not an A2A message.
pub fn is_node_message(body: &[u8]) -> bool {
    body.starts_with(br#"{"type":"workflow_node_re"#)
}

/// Response of an agent to a [`WorkflowNodeRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkflowNodeResult<'a> {
    #[serde(rename = "type")]
    kind: ResultKind,
    /// Outcome of the task.
    pub status: NodeResultStatus,
    /// The task.
    pub sub_task_id: TaskId,
    /// Name of the output artifact.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub artifact_name: Option<Cow<'a, str>>,
    /// Version of the output artifact within the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_version: Option<u32>,
    /// Content of the output artifact, if it is the only artifact and small JSON; then `artifacts`
    /// is empty.
    #[serde(borrow, default, deserialize_with = "present_value", skip_serializing_if = "Option::is_none")]
    pub output: Option<Cow<'a, Value>>,
    /// All artifacts of the task, including the output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// Message of the fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Fault of a task without an output, with the data for retry policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// Violations of the input or output schema.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validation_errors: Vec<String>,
    /// Number of retries by the agent itself.
    #[serde(default, skip_serializing_if = "is_zero_count")]
    pub retry_count: u32,
    /// Milliseconds of work, excluding the time that the task waited for a process or for a slot in
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worked_ms: Option<u64>,
    /// Tokens, cost, model.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub usage: Value,
    /// Events of the work, in the format of the dialect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Value>,
    /// Messages about the work, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<LogLine>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum ResultKind {
    #[default]
    #[serde(rename = "workflow_node_result")]
    WorkflowNodeResult,
}

/// Outcome of a task at the node endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeResultStatus {
    /// The work succeeded.
    Success,
    /// The work failed; `fault` contains the reason.
    #[serde(alias = "error", alias = "cancelled")]
    Failure,
    /// The agent did not accept the task; `fault` contains the reason and the delay before a retry.
    Refused,
}

fn present_value<'de, 'a, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Cow<'a, Value>>, D::Error> {
    present(deserializer).map(|value| value.map(Cow::Owned))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero_count(count: &u32) -> bool {
    *count == 0
}

/// Meaning of a response at the node endpoint.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeAnswer {
    /// The task has ended.
    Ended(Box<NodeResult>),
    /// The agent did not accept the task.
    Refused(Fault),
}

impl<'a> WorkflowNodeResult<'a> {
    fn new(task: &TaskId, status: NodeResultStatus) -> Self {
        Self {
            kind: ResultKind::default(),
            status,
            sub_task_id: task.clone(),
            artifact_name: None,
            artifact_version: None,
            output: None,
            artifacts: Vec::new(),
            error_message: None,
            fault: None,
            validation_errors: Vec::new(),
            retry_count: 0,
            worked_ms: None,
            usage: Value::Null,
            events: Vec::new(),
            logs: Vec::new(),
        }
    }

    /// Creates the response for a task whose only artifact is this output.
    pub fn of_output(task: &TaskId, name: &'a str, output: &'a Value) -> Self {
        Self {
            artifact_name: Some(Cow::Borrowed(name)),
            artifact_version: Some(0),
            output: Some(Cow::Borrowed(output)),
            ..Self::new(task, NodeResultStatus::Success)
        }
    }

    /// Creates the response for a task with this outcome and all its artifacts.
    pub fn of_end(
        task: &TaskId,
        end: &'a Result<ArtifactRef, Fault>,
        artifacts: &'a [ResultArtifact],
    ) -> Self {
        let reference = match end {
            Ok(reference) => reference,
            Err(fault) => {
                let artifacts = artifacts.iter().map(ResultArtifact::to_a2a).collect();
                return Self { artifacts, ..Self::of_fault(task, NodeResultStatus::Failure, fault) };
            }
        };
        if let [ResultArtifact { meta, content: Content::Data(output) }] = artifacts
            && meta.name == reference.name
            && meta.version == 0
            && meta.media_type == JSON
        {
            return Self::of_output(task, meta.name.as_str(), output);
        }
        Self {
            artifact_name: Some(Cow::Borrowed(reference.name.as_str())),
            artifact_version: reference.version,
            artifacts: artifacts.iter().map(ResultArtifact::to_a2a).collect(),
            ..Self::new(task, NodeResultStatus::Success)
        }
    }

    /// Creates the response for a task that the agent did not accept.
    pub fn refusal(task: &TaskId, fault: &Fault) -> Self {
        Self::of_fault(task, NodeResultStatus::Refused, fault)
    }

    fn of_fault(task: &TaskId, status: NodeResultStatus, fault: &Fault) -> Self {
        Self {
            error_message: Some(fault.message.clone()),
            fault: Some(fault.clone()),
            validation_errors: fault.violations().to_vec(),
            ..Self::new(task, status)
        }
    }

    /// Encodes the response.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Decodes the response of an agent to this task at its node endpoint.
pub fn read_node_answer(body: &[u8], task: &TaskId) -> Result<NodeAnswer, BadMessage> {
    if body.len() > MAX_RESULT {
        let size = body.len();
        return Err(BadMessage::Bytes(format!("a result has at most {MAX_RESULT} bytes, this one {size}")));
    }
    check_unique_keys(body).map_err(BadMessage::of_json)?;
    let read: WorkflowNodeResult<'_> =
        serde_json::from_slice(body).map_err(|error| BadMessage::Bytes(cut(&error.to_string(), 300)))?;
    if read.sub_task_id != *task {
        return Err(bad("sub_task_id", "belongs to another task"));
    }
    let fault = match (read.status, read.fault) {
        (NodeResultStatus::Success, None) => None,
        (_, Some(fault)) => Some(bounded(fault)),
        (_, None) => {
            let text = read.error_message.as_deref().filter(|text| !text.is_empty());
            Some(if read.validation_errors.is_empty() {
                Fault::failure(FAILED, cut(text.unwrap_or(NO_REASON), MAX_TEXT))
            } else {
                let text = cut(text.unwrap_or(SCHEMA_VIOLATED), MAX_TEXT);
                bounded(Fault::invalid(FAILED, text).with_details(read.validation_errors))
            })
        }
    };
    if let (NodeResultStatus::Refused, Some(fault)) = (read.status, &fault) {
        return Ok(NodeAnswer::Refused(fault.clone()));
    }
    if read.events.len() > MAX_EVENTS {
        return Err(bad("events", &format!("are more than {MAX_EVENTS}")));
    }
    if read.artifacts.len() > MAX_ARTIFACTS {
        return Err(bad("artifacts", &format!("are more than {MAX_ARTIFACTS}")));
    }
    let name = read.artifact_name.as_deref().map(ArtifactName::parse).transpose();
    let name = name.map_err(|error| bad("artifact_name", &error.to_string()))?;
    let mut artifacts: Vec<ResultArtifact> = Vec::with_capacity(read.artifacts.len().max(1));
    let output = if let Some(output) = read.output.filter(|_| fault.is_none()) {
        let name = name.ok_or_else(|| bad("artifact_name", "is missing next to the output"))?;
        let value = output.into_owned();
        let bytes = serde_json::to_vec(&value).unwrap_or_default();
        let meta = ArtifactMeta::of(name, 0, JSON, &bytes);
        artifacts.push(ResultArtifact { meta, content: Content::Data(value.clone()) });
        NodeOutput::Value(value)
    } else {
        for (nth, artifact) in read.artifacts.iter().enumerate() {
            artifacts.push(ResultArtifact::read(artifact, nth)?);
        }
        match (&fault, name) {
            (Some(_), _) | (None, None) => NodeOutput::None,
            (None, Some(name)) => named(&ArtifactRef { name, version: read.artifact_version }, &artifacts)?,
        }
    };
    Ok(NodeAnswer::Ended(Box::new(NodeResult {
        task: read.sub_task_id.as_str().to_owned(),
        output,
        artifacts,
        fault,
        worked_ms: read.worked_ms,
        usage: read.usage,
        events: read.events,
        logs: bounded_log(read.logs),
        text: cut(read.error_message.as_deref().unwrap_or_default(), MAX_TEXT),
        retries: read.retry_count,
    })))
}
