//! Tasks and their results as A2A messages: Sinew's additions to a request, and encoding and
//! decoding of results.
//!
//! Third-party agents are supported: the output of a completed task without a structured result is
//! its artifacts, its data or its text. Everything that an agent sends is untrusted: all sizes are
//! limited, and codes are checked.

mod artifact;
mod log;
mod node;
mod read;
#[cfg(test)]
mod tests;

use crate::code;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::a2a::{
    ContextId, Message, Part, PartContent, SendMessageRequest, Task, TaskId as A2aTaskId, TaskState,
    TaskStatus,
};
use crate::artifact::ArtifactRef;
use crate::command::present;
use crate::fault::{Fault, FaultKind};
use crate::message::{BadMessage, MeshMessage, Outcome, Vocabulary, WorkflowNodeResultData};
use crate::{ActivationKey, TaskId};

pub use artifact::{Content, ResultArtifact};
pub use log::{
    LogLine, MAX_LOG_BYTES, MAX_LOG_LINE, MAX_LOG_LINES, TaskLog, is_answer_piece, is_message, progress_text,
};
pub use node::{
    NodeAnswer, NodeRequestIds, NodeResultStatus, WorkflowNodeRequest, WorkflowNodeResult, is_node_message,
    read_node_answer,
};
pub use read::{NodeOutput, NodeResult, read_result, read_result_bytes};

/// Field of `metadata` that contains [`TaskExtra`] and [`ResultExtra`].
pub const METADATA: &str = "sinew";
/// Maximum size of a result, in bytes of JSON.
pub const MAX_RESULT: usize = 1024 * 1024;
/// Maximum size of an input inside the task, in bytes of JSON.
pub const MAX_INPUT: usize = crate::stream::INLINE_LIMIT;
/// Maximum number of artifacts of a result.
pub const MAX_ARTIFACTS: usize = 256;
/// Maximum number of events of a result.
pub const MAX_EVENTS: usize = 1_000;
/// Maximum length of a fault's message or detail, in characters.
pub const MAX_TEXT: usize = 4_000;
/// Maximum number of details of a fault.
pub const MAX_DETAILS: usize = 100;

/// Code of a fault whose agent reported only that it failed.
pub const FAILED: &str = code::AGENT_WORK_FAILED.as_str();
/// Code of a fault whose agent reported that it was cancelled.
pub const CANCELLED: &str = code::TASK_CANCELLED.as_str();
/// Message of a failure without a reason.
const NO_REASON: &str = "the agent failed without a reason";
/// Message of a schema violation without a reason.
const SCHEMA_VIOLATED: &str = "the input or output does not match its schema";
/// Code of a fault whose agent rejected the task.
pub const REJECTED: &str = code::AGENT_REJECTED_TASK.as_str();

/// Sinew's data in an A2A request, in `metadata.sinew`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskExtra {
    /// Input, if it is small; otherwise the `url` part of the message has its address.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Instruction in natural language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// Rules, tools, model and choices that the dialect passes to its agents in addition to the
    /// input.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub context: Value,
    /// Reason for the call.
    #[serde(default)]
    pub tag: String,
    /// Key by which the agent deduplicates effects; the same for all attempts.
    pub activation: ActivationKey,
    /// The attempt, counted from 1.
    pub attempt: u32,
    /// Deadline of the result, milliseconds since 1970 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// Subject to which the result is published.
    pub result_subject: String,
}

impl TaskExtra {
    /// Parses it from the metadata of a request. Returns `None` if it is absent.
    pub fn find(metadata: Option<&Value>) -> Option<Result<Self, BadMessage>> {
        let extra = metadata?.get(METADATA)?;
        // A caller that is not an executor may only state the task during which it calls.
        if extra.get(crate::behalf::PARENT).is_some() && extra.get("result_subject").is_none() {
            return None;
        }
        Some(Self::deserialize(extra).map_err(|e| bad("metadata.sinew", &e.to_string())))
    }

    /// Like [`TaskExtra::find`], but removes it from the metadata to avoid copying large fields.
    pub fn take(metadata: Option<&mut Value>) -> Option<Result<Self, BadMessage>> {
        let metadata = metadata?;
        let extra = metadata.get(METADATA)?;
        if extra.get(crate::behalf::PARENT).is_some() && extra.get("result_subject").is_none() {
            return None;
        }
        let extra = metadata.get_mut(METADATA).map(Value::take).unwrap_or_default();
        Some(serde_json::from_value(extra).map_err(|e| bad("metadata.sinew", &e.to_string())))
    }

    /// Adds it to the metadata of a request and keeps all other fields.
    pub fn put(&self, request: &mut SendMessageRequest) {
        put(&mut request.metadata, serde_json::to_value(self).unwrap_or_default());
    }
}

/// Sets the address of the stored input in the input part of a request; adds the part if it is
/// absent.
pub fn point_to(request: &mut SendMessageRequest, address: &str) {
    let parts = &mut request.message.parts;
    let url = parts.iter_mut().find_map(|part| match &mut part.content {
        PartContent::Url(url) if url.starts_with("artifact://") => Some(url),
        _ => None,
    });
    match url {
        Some(url) => address.clone_into(url),
        None => parts.push(Part::url(address).with_media_type("application/json")),
    }
}

/// Replaces the address in the input part of a request by the input itself, so that an agent that
/// only knows the published specification needs no artifact store. Adds no part.
pub fn write_inline(request: &mut SendMessageRequest, input: &Value) {
    let parts = request.message.parts.iter_mut();
    let is_address =
        |part: &&mut Part| matches!(&part.content, PartContent::Url(url) if url.starts_with("artifact://"));
    if let Some(part) = parts.into_iter().find(is_address) {
        part.content = PartContent::Data(input.clone());
    }
}

/// Sinew's data in an A2A result, in `metadata.sinew`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResultExtra {
    /// Fault of a task without an output, with the data for retry policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// Milliseconds of work, excluding the time that the task waited for a process or for a slot in
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worked_ms: Option<u64>,
    /// Tokens, cost, model.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub usage: Value,
    /// Events during the work, in the format of the dialect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Value>,
    /// Messages about the work, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<LogLine>,
}

/// Result before it is encoded.
#[derive(Clone, Debug)]
pub struct Draft<'a> {
    /// The task.
    pub task: &'a TaskId,
    /// Context of the task; its own id if empty.
    pub session: &'a str,
    /// Output, which is one of `artifacts`, or the fault.
    pub end: Result<ArtifactRef, Fault>,
    /// Text for people; if empty, a sentence is generated.
    pub text: &'a str,
    /// All artifacts of the task, including the output.
    pub artifacts: &'a [ResultArtifact],
    /// Milliseconds of work, excluding the time in queues; omitted if absent.
    pub worked_ms: Option<u64>,
    /// Tokens, cost, model.
    pub usage: Value,
    /// Events during the work.
    pub events: Vec<Value>,
    /// Messages about the work, oldest first.
    pub logs: Vec<LogLine>,
    /// Number of retries by the agent itself.
    pub retries: u32,
    /// Vocabulary of the structured result.
    pub vocabulary: Vocabulary,
    /// End time in A2A's format; omitted if absent.
    pub timestamp: Option<String>,
}

impl<'a> Draft<'a> {
    /// Creates the result of this task without further data.
    pub fn new(task: &'a TaskId, end: Result<ArtifactRef, Fault>) -> Self {
        Self {
            task,
            session: "",
            end,
            text: "",
            artifacts: &[],
            worked_ms: None,
            usage: Value::Null,
            events: Vec::new(),
            logs: Vec::new(),
            retries: 0,
            vocabulary: Vocabulary::default(),
            timestamp: None,
        }
    }
}

/// Creates the A2A task that reports the outcome of the work.
pub fn result_task(draft: Draft<'_>) -> Task {
    let Draft {
        task,
        session,
        end,
        text,
        artifacts,
        worked_ms,
        usage,
        events,
        logs,
        retries,
        vocabulary,
        timestamp,
    } = draft;
    let session = if session.is_empty() { task.as_str() } else { session };
    let (state, words, result) = match &end {
        Ok(output) => (
            TaskState::Completed,
            format!("Done. Output artifact: {output}"),
            WorkflowNodeResultData::success(output.clone()),
        ),
        Err(fault) => {
            let state = match fault.kind {
                FaultKind::Cancelled => TaskState::Canceled,
                _ => TaskState::Failed,
            };
            let mut result = WorkflowNodeResultData::error(fault.message.clone());
            if fault.kind == FaultKind::Cancelled {
                result.status = Outcome::Cancelled;
            }
            result.validation_errors = fault.violations().to_vec();
            (state, fault.message.clone(), result)
        }
    };
    let words = if text.is_empty() { words } else { text.to_owned() };
    let result = WorkflowNodeResultData { retry_count: retries, ..result };
    let parts = vec![Part::text(words), MeshMessage::from(result).to_part(vocabulary)];
    let message = Message::agent(format!("{task}-result"), parts).with_task_id(task.as_str());
    let mut status = TaskStatus::new(state);
    status.message = Some(message.with_context_id(session));
    status.timestamp = timestamp;
    let extra = ResultExtra { fault: end.err(), worked_ms, usage, events, logs };
    let mut metadata = None;
    if extra != ResultExtra::default() {
        put(&mut metadata, serde_json::to_value(extra).unwrap_or_default());
    }
    Task {
        id: A2aTaskId::new(task.as_str()),
        context_id: ContextId::new(session),
        status,
        artifacts: (!artifacts.is_empty()).then(|| artifacts.iter().map(ResultArtifact::to_a2a).collect()),
        history: None,
        metadata,
    }
}

fn put(metadata: &mut Option<Value>, extra: Value) {
    match metadata {
        Some(Value::Object(members)) => drop(members.insert(METADATA.to_owned(), extra)),
        other => *other = Some(json!({ METADATA: extra })),
    }
}

fn bad(field: &str, reason: &str) -> BadMessage {
    BadMessage::Field { kind: "task".to_owned(), reason: format!("{field}: {}", cut(reason, 300)) }
}

/// Removes the characters that could control a terminal and truncates to `most` characters.
fn cut(text: &str, most: usize) -> String {
    let plain = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    text.chars().filter(plain).take(most).collect()
}

/// Returns the fields of an object, or `None` for any other value.
fn members(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}
