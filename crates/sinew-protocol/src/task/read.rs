//! Decodes the outcome of work from an agent's A2A task.

use std::borrow::Cow;

use serde::Deserialize as _;
use serde_json::{Value, json};

use super::log::bounded_log;
use super::{
    CANCELLED, FAILED, LogLine, MAX_ARTIFACTS, MAX_DETAILS, MAX_EVENTS, MAX_RESULT, MAX_TEXT, METADATA,
    NO_REASON, REJECTED, ResultArtifact, ResultExtra, SCHEMA_VIOLATED, bad, cut,
};
use crate::a2a::{Part, Task, TaskState, is_terminal, part_data};
use crate::artifact::ArtifactRef;
use crate::fault::{Fault, FaultKind};
use crate::message::{BadMessage, MeshMessage, Outcome, WorkflowNodeResultData};
use crate::unique_keys::read_unique;

/// Outcome of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeResult {
    /// Id of the task according to the agent; the caller must verify it.
    pub task: String,
    /// Output; `None` if there is a fault.
    pub output: NodeOutput,
    /// All artifacts, including the output.
    pub artifacts: Vec<ResultArtifact>,
    /// Fault of a task without an output.
    pub fault: Option<Fault>,
    /// Milliseconds of work, excluding the time in queues; `None` if the agent does not report it.
    pub worked_ms: Option<u64>,
    /// Tokens, cost, model.
    pub usage: Value,
    /// Events during the work.
    pub events: Vec<Value>,
    /// Messages about the work, oldest first, within the limits.
    pub logs: Vec<LogLine>,
    /// Text of the agent for people.
    pub text: String,
    /// Number of retries by the agent itself.
    pub retries: u32,
}

/// Location of an output.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum NodeOutput {
    /// No output.
    #[default]
    None,
    /// The value itself.
    Value(Value),
    /// Address of an artifact that must be fetched first.
    Address(String),
}

impl NodeResult {
    /// Returns the artifacts as the journal stores them with the output.
    pub fn artifact_values(&self) -> Vec<Value> {
        let output = match &self.output {
            NodeOutput::Value(value) => Some(value),
            NodeOutput::Address(_) | NodeOutput::None => None,
        };
        self.artifacts.iter().map(|artifact| artifact.to_value(output)).collect()
    }
}

/// Decodes the result from the JSON of an A2A task.
pub fn read_result_bytes(body: &[u8]) -> Result<NodeResult, BadMessage> {
    if body.len() > MAX_RESULT {
        return Err(BadMessage::Bytes(format!(
            "a result has at most {MAX_RESULT} bytes, this one {}",
            body.len()
        )));
    }
    read_result(&read_unique(body).map_err(BadMessage::of_json)?)
}

/// Decodes the result from an A2A task that has ended.
pub fn read_result(task: &Task) -> Result<NodeResult, BadMessage> {
    if !is_terminal(task.status.state) {
        return Err(bad("status.state", "the task has not ended"));
    }
    let parts = task.status.message.as_ref().map(|message| message.parts.as_slice()).unwrap_or_default();
    let said = match MeshMessage::find(parts).transpose()? {
        Some(MeshMessage::NodeResult(said)) => Some(said),
        Some(_) => {
            return Err(bad(
                "status.message",
                "holds a message of the workflow protocol that is not a result",
            ));
        }
        None => None,
    };
    let found = task.artifacts.as_deref().unwrap_or_default();
    if found.len() > MAX_ARTIFACTS {
        return Err(bad("artifacts", &format!("are more than {MAX_ARTIFACTS}")));
    }
    let artifacts: Vec<ResultArtifact> =
        found.iter().enumerate().map(|(n, one)| ResultArtifact::read(one, n)).collect::<Result<_, _>>()?;
    let extra = extra(task)?;
    let text = parts.iter().filter_map(Part::text_content).collect::<Vec<_>>().join("\n");
    let text = cut(&text, MAX_TEXT);
    let fault = fault(task.status.state, said.as_ref(), extra.fault, &text);
    let output = match (&fault, said.as_ref().and_then(|said| said.output_artifact_ref.as_ref())) {
        (Some(_), _) => NodeOutput::None,
        (None, Some(reference)) => named(reference, &artifacts)?,
        // A structured result without an output: the work had no output.
        (None, None) if said.is_some() => NodeOutput::None,
        (None, None) => unnamed(parts, &artifacts, &text)?,
    };
    Ok(NodeResult {
        task: cut(&task.id.0, 200),
        output,
        artifacts,
        fault,
        worked_ms: extra.worked_ms,
        usage: extra.usage,
        events: extra.events,
        logs: bounded_log(extra.logs),
        text,
        retries: said.map_or(0, |said| said.retry_count),
    })
}

fn extra(task: &Task) -> Result<ResultExtra, BadMessage> {
    let Some(extra) = task.metadata.as_ref().and_then(|metadata| metadata.get(METADATA)) else {
        return Ok(ResultExtra::default());
    };
    let extra = ResultExtra::deserialize(extra).map_err(|e| bad("metadata.sinew", &e.to_string()))?;
    if extra.events.len() > MAX_EVENTS {
        return Err(bad("metadata.sinew.events", &format!("are more than {MAX_EVENTS}")));
    }
    Ok(extra)
}

/// Returns the fault of a task without an output, from the most specific data, within the limits.
fn fault(
    state: TaskState,
    said: Option<&WorkflowNodeResultData>,
    own: Option<Fault>,
    text: &str,
) -> Option<Fault> {
    let status = said.map(|said| said.status);
    if state == TaskState::Completed && matches!(status, None | Some(Outcome::Success)) && own.is_none() {
        return None;
    }
    if let Some(own) = own {
        return Some(bounded(own));
    }
    let words = said.and_then(|said| said.error_message.as_deref()).filter(|words| !words.is_empty());
    let words = |otherwise: &str| {
        let text = Some(text).filter(|text| !text.is_empty());
        cut(words.or(text).unwrap_or(otherwise), MAX_TEXT)
    };
    let violations = said.map(|said| said.validation_errors.clone()).unwrap_or_default();
    Some(match (state, status) {
        (TaskState::Canceled, _) | (_, Some(Outcome::Cancelled)) => {
            Fault::cancelled(CANCELLED, words("the agent cancelled the task"))
        }
        (TaskState::Rejected, _) => {
            Fault::failure(REJECTED, words("the agent rejected the task")).with_retryable(false)
        }
        _ if !violations.is_empty() => {
            bounded(Fault::invalid(FAILED, words(SCHEMA_VIOLATED)).with_details(violations))
        }
        _ => Fault::failure(FAILED, words(NO_REASON)),
    })
}

/// Limits a fault that an agent wrote.
pub(super) fn bounded(mut fault: Fault) -> Fault {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':');
    if fault.code.is_empty() || fault.code.len() > 64 || !fault.code.bytes().all(legal) {
        fault.code = Cow::Borrowed(FAILED);
    }
    fault.message = cut(&fault.message, MAX_TEXT);
    fault.details.truncate(MAX_DETAILS);
    fault.details = fault.details.iter().map(|detail| cut(detail, MAX_TEXT)).collect();
    if fault.kind == FaultKind::Cancelled {
        fault.retryable = false;
    }
    fault
}

/// Returns the output that the result references; without a version, the latest.
pub(super) fn named(reference: &ArtifactRef, artifacts: &[ResultArtifact]) -> Result<NodeOutput, BadMessage> {
    let same = |one: &&ResultArtifact| {
        one.meta.name == reference.name && reference.version.is_none_or(|version| version == one.meta.version)
    };
    let found = artifacts.iter().filter(same).max_by_key(|one| one.meta.version);
    let found = found
        .ok_or_else(|| bad("output_artifact_ref", &format!("{reference} is not among the artifacts")))?;
    content(found)
}

fn content(artifact: &ResultArtifact) -> Result<NodeOutput, BadMessage> {
    artifact.check_keys()?;
    Ok(match (artifact.value(), &artifact.content) {
        (Some(value), _) => NodeOutput::Value(value),
        (None, super::Content::Url(address)) => NodeOutput::Address(address.clone()),
        (None, _) => NodeOutput::None,
    })
}

/// Returns the output of an agent that does not reference it: its last artifact, otherwise its
/// data, otherwise its text.
fn unnamed(parts: &[Part], artifacts: &[ResultArtifact], text: &str) -> Result<NodeOutput, BadMessage> {
    if let Some(last) = artifacts.last() {
        return content(last);
    }
    Ok(match parts.iter().find_map(part_data) {
        Some(data) => NodeOutput::Value(data.clone()),
        None if text.is_empty() => NodeOutput::None,
        None => NodeOutput::Value(json!({ "text": text })),
    })
}
