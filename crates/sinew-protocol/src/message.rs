//! The workflow protocol: data parts that executors, agents and operators exchange inside A2A
//! messages.
//!
//! Two vocabularies of these messages are in use (see [`Vocabulary`]). Readers accept both, in any
//! mixture; writers take the vocabulary as an argument. Empty optional fields are omitted, and
//! unknown fields are ignored.

mod protobuf;
#[cfg(test)]
mod tests;
mod vocabulary;

use crate::code;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::a2a;
use crate::artifact::ArtifactRef;
use crate::fault::Fault;
use crate::unique_keys::{BadJson, DuplicateKey};

/// Vocabulary of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vocabulary {
    /// `structured_invocation_*`, status `error`, `output_artifact_ref`: used by current peers.
    #[default]
    Current,
    /// `workflow_node_*`, status `failure`, `artifact_name` + `artifact_version`: the published specification.
    Spec,
}

/// Error for bytes or JSON that are not a mesh message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// No object with a known `type`.
    #[error("no mesh message has the type {0:?}")]
    Type(String),
    /// The type is known, but a field is missing or invalid.
    #[error("a {kind} message cannot be read: {reason}")]
    Field {
        /// The `type` of the message.
        kind: String,
        /// Description of the invalid field.
        reason: String,
    },
    /// Not valid in the announced encoding, JSON or protobuf.
    #[error("a mesh message cannot be decoded: {0}")]
    Bytes(String),
    /// An object has a duplicate key.
    #[error(transparent)]
    DuplicateKey(DuplicateKey),
    /// An artifact in a result has another sha256 or size than its metadata states.
    #[error("artifact '{name}' has the {field} {found} and not {claimed}, as the result says")]
    Content {
        /// The artifact.
        name: String,
        /// `sha256` or `size`.
        field: &'static str,
        /// Value computed from the received bytes.
        found: String,
        /// Value in the artifact's metadata, truncated.
        claimed: String,
    },
}

impl BadMessage {
    /// Operator code of a message that cannot be parsed.
    pub const CODE: &str = code::MESH_MESSAGE_CANNOT_BE_READ.as_str();
    /// Operator code of an artifact that differs from its description in the result.
    pub const OTHER_CONTENT: &str = code::RESULT_ARTIFACT_DIFFERS.as_str();

    /// Creates the error for invalid JSON.
    pub fn of_json(bad: BadJson) -> Self {
        match bad {
            BadJson::DuplicateKey(key) => Self::DuplicateKey(key),
            bad @ (BadJson::Form(_) | BadJson::TooManyValues(_)) => {
                Self::Bytes(bad.to_string().chars().take(300).collect())
            }
        }
    }

    /// Returns the operator code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Type(_) | Self::Field { .. } | Self::Bytes(_) => Self::CODE,
            Self::DuplicateKey(_) => BadJson::DUPLICATE_KEY,
            Self::Content { .. } => Self::OTHER_CONTENT,
        }
    }
}

impl From<BadMessage> for Fault {
    fn from(bad: BadMessage) -> Self {
        Self::invalid(bad.code(), bad.to_string())
    }
}

/// Outcome of a call, a node or an execution. `failure` is read as `error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The work succeeded.
    Success,
    /// The work failed.
    #[serde(alias = "failure")]
    Error,
    /// The work was not requested.
    Skipped,
    /// A user or a parent cancelled it.
    #[serde(alias = "canceled")]
    Cancelled,
}

/// Message of the workflow protocol. `Serialize` writes the current vocabulary;
/// [`MeshMessage::to_json`] writes either.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
#[expect(clippy::large_enum_variant, reason = "built, written and dropped one at a time")]
pub enum MeshMessage {
    /// Executor to agent: perform the work of a node.
    #[serde(rename = "structured_invocation_request", alias = "workflow_node_request")]
    NodeRequest(WorkflowNodeRequestData),
    /// Agent to executor: outcome of that work.
    #[serde(rename = "structured_invocation_result", alias = "workflow_node_result")]
    NodeResult(WorkflowNodeResultData),
    /// An execution started.
    #[serde(rename = "workflow_execution_start")]
    ExecutionStart(WorkflowExecutionStartData),
    /// An activation started.
    #[serde(rename = "workflow_node_execution_start")]
    NodeExecutionStart(WorkflowNodeExecutionStartData),
    /// An activation ended.
    #[serde(rename = "workflow_node_execution_result")]
    NodeExecutionResult(WorkflowNodeExecutionResultData),
    /// Progress of a map node.
    #[serde(rename = "workflow_map_progress")]
    MapProgress(WorkflowMapProgressData),
    /// An execution reached its terminal state.
    #[serde(rename = "workflow_execution_result")]
    ExecutionResult(WorkflowExecutionResultData),
}

/// Request to an agent to perform the work of a node; the first part of the message that starts the
/// task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkflowNodeRequestData {
    /// Name of the workflow or other caller.
    pub workflow_name: String,
    /// Id of the node, or the caller's own name for the call.
    pub node_id: String,
    /// Schema that replaces the input schema of the agent's card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// Schema that replaces the output schema of the agent's card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Unique name for the output artifact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggested_output_filename: Option<String>,
}

/// An agent's answer to [`WorkflowNodeRequestData`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "vocabulary::NodeResultWire")]
pub struct WorkflowNodeResultData {
    /// [`Outcome::Success`] or [`Outcome::Error`].
    pub status: Outcome,
    /// Output, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_artifact_ref: Option<ArtifactRef>,
    /// Description of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Schema violations of the input or output.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub validation_errors: Vec<String>,
    /// Number of retries by the agent itself.
    pub retry_count: u32,
}

impl WorkflowNodeResultData {
    /// Creates a success with this output.
    pub fn success(output: ArtifactRef) -> Self {
        Self { output_artifact_ref: Some(output), ..Self::ended(Outcome::Success) }
    }

    /// Creates an error with this explanation.
    pub fn error(message: impl Into<String>) -> Self {
        Self { error_message: Some(message.into()), ..Self::ended(Outcome::Error) }
    }

    fn ended(status: Outcome) -> Self {
        Self {
            status,
            output_artifact_ref: None,
            error_message: None,
            validation_errors: Vec::new(),
            retry_count: 0,
        }
    }
}

/// Published when an execution starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkflowExecutionStartData {
    /// The workflow.
    pub workflow_name: String,
    /// The execution.
    pub execution_id: String,
    /// Reference to the stored input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_artifact_ref: Option<ArtifactRef>,
    /// Input, if it is small.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_input: Option<Value>,
}

/// One case of a switch node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchCaseInfo {
    /// The condition as written.
    #[serde(alias = "when")]
    pub condition: String,
    /// Node that runs if this is the first case that holds.
    #[serde(alias = "then")]
    pub node: String,
}

/// Published when an activation starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkflowNodeExecutionStartData {
    /// Id of the node; iterations of a map or loop have separate ids.
    pub node_id: String,
    /// `agent`, `workflow`, `conditional`, `switch`, `join`, `loop`, `map`, `fork`, or a type of
    /// another dialect.
    pub node_type: String,
    /// Agent that does the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<String>,
    /// Input of the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_artifact_ref: Option<ArtifactRef>,
    /// Map and loop: iteration, counted from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iteration_index: Option<u32>,
    /// A2A task of the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_task_id: Option<String>,
    /// Map, loop or fork that this activation belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_node_id: Option<String>,
    /// Conditional and loop: the condition as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Conditional: node that runs if the condition holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub true_branch: Option<String>,
    /// Conditional: node that runs otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub false_branch: Option<String>,
    /// Conditional: label of the true branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub true_branch_label: Option<String>,
    /// Conditional: label of the false branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub false_branch_label: Option<String>,
    /// Switch: its cases in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cases: Option<Vec<SwitchCaseInfo>>,
    /// Switch: node that runs if no case holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_branch: Option<String>,
    /// Join: nodes that it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_for: Option<Vec<String>>,
    /// Join: `all`, `any` or `n_of_m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_strategy: Option<String>,
    /// Join: number of nodes required for `n_of_m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_n: Option<u32>,
    /// Loop: maximum number of iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u32>,
    /// Loop: delay between iterations as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loop_delay: Option<String>,
    /// Id shared by activations that run in parallel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_group_id: Option<String>,
}

/// Published when an activation ends, including failures and skips.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "vocabulary::NodeExecutionResultWire")]
pub struct WorkflowNodeExecutionResultData {
    /// Id of the node; iterations of a map or loop have separate ids.
    pub node_id: String,
    /// Outcome.
    pub status: Outcome,
    /// Output, if there is one.
    pub output_artifact_ref: Option<ArtifactRef>,
    /// Description of the failure.
    pub error_message: Option<String>,
    /// Conditional: value of the condition. Inside `metadata` in the current vocabulary.
    pub condition_result: Option<bool>,
    /// Conditional and switch: selected node. Inside `metadata` in the current vocabulary.
    pub selected_branch: Option<String>,
    /// Additional data for display.
    pub metadata: Map<String, Value>,
}

impl WorkflowNodeExecutionResultData {
    /// Creates the end of this node without further data.
    pub fn new(node_id: impl Into<String>, status: Outcome) -> Self {
        Self {
            node_id: node_id.into(),
            status,
            output_artifact_ref: None,
            error_message: None,
            condition_result: None,
            selected_branch: None,
            metadata: Map::new(),
        }
    }
}

/// Status of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MapStatus {
    /// Items are still open.
    InProgress,
    /// All items are done.
    Completed,
    /// An item failed.
    Failed,
}

/// Published each time an item of a map is completed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowMapProgressData {
    /// The map node.
    pub node_id: String,
    /// Number of items.
    pub total_items: u32,
    /// Number of completed items.
    pub completed_items: u32,
    /// Status of the map.
    pub status: MapStatus,
}

/// Published when an execution ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkflowExecutionResultData {
    /// Name of the workflow; omitted by current peers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_name: Option<String>,
    /// Id of the execution; omitted by current peers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
    /// Outcome.
    pub status: Outcome,
    /// Reference to the stored output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_artifact_ref: Option<ArtifactRef>,
    /// Description of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Output, if it is small.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_output: Option<Value>,
}

/// Every `type` that [`MeshMessage`] reads, in both vocabularies.
pub const TYPES: [&str; 9] = [
    "structured_invocation_request",
    "structured_invocation_result",
    "workflow_node_request",
    "workflow_node_result",
    "workflow_execution_start",
    "workflow_node_execution_start",
    "workflow_node_execution_result",
    "workflow_map_progress",
    "workflow_execution_result",
];

impl MeshMessage {
    /// Parses a message in either vocabulary.
    pub fn from_json(json: &Value) -> Result<Self, BadMessage> {
        let kind = json.get("type").and_then(Value::as_str).unwrap_or_default();
        // Written by hand, because derived deserialisation of tagged enums copies all data once
        // more.
        let read = match kind {
            "structured_invocation_request" | "workflow_node_request" => {
                WorkflowNodeRequestData::deserialize(json).map(Self::NodeRequest)
            }
            "structured_invocation_result" | "workflow_node_result" => {
                WorkflowNodeResultData::deserialize(json).map(Self::NodeResult)
            }
            kind if TYPES.contains(&kind) => Self::deserialize(json),
            kind => return Err(BadMessage::Type(kind.chars().take(100).collect())),
        };
        read.map_err(|e| BadMessage::Field { kind: kind.to_owned(), reason: e.to_string() })
    }

    /// Parses the JSON of a message in either vocabulary.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, BadMessage> {
        Self::from_json(&serde_json::from_slice(bytes).map_err(|e| BadMessage::Bytes(e.to_string()))?)
    }

    /// Encodes the message as JSON in this vocabulary.
    pub fn to_json(&self, vocabulary: Vocabulary) -> Value {
        // Serialising plain data with string keys into a value cannot fail.
        let current = serde_json::to_value(self).unwrap_or_default();
        match vocabulary {
            Vocabulary::Current => current,
            Vocabulary::Spec => vocabulary::to_spec(current),
        }
    }

    /// Encodes the JSON of [`MeshMessage::to_json`]; in the current vocabulary without an
    /// intermediate tree.
    pub fn to_bytes(&self, vocabulary: Vocabulary) -> Vec<u8> {
        match vocabulary {
            Vocabulary::Current => serde_json::to_vec(self),
            Vocabulary::Spec => serde_json::to_vec(&self.to_json(vocabulary)),
        }
        .unwrap_or_default()
    }

    /// Returns the `type` of the message in this vocabulary.
    pub const fn kind(&self, vocabulary: Vocabulary) -> &'static str {
        match (self, vocabulary) {
            (Self::NodeRequest(_), Vocabulary::Current) => "structured_invocation_request",
            (Self::NodeRequest(_), Vocabulary::Spec) => "workflow_node_request",
            (Self::NodeResult(_), Vocabulary::Current) => "structured_invocation_result",
            (Self::NodeResult(_), Vocabulary::Spec) => "workflow_node_result",
            (Self::ExecutionStart(_), _) => "workflow_execution_start",
            (Self::NodeExecutionStart(_), _) => "workflow_node_execution_start",
            (Self::NodeExecutionResult(_), _) => "workflow_node_execution_result",
            (Self::MapProgress(_), _) => "workflow_map_progress",
            (Self::ExecutionResult(_), _) => "workflow_execution_result",
        }
    }

    /// Returns the message as a data part of an A2A message.
    pub fn to_part(&self, vocabulary: Vocabulary) -> a2a::Part {
        a2a::Part::data(self.to_json(vocabulary))
    }

    /// Returns the first mesh message among the parts of an A2A message; other parts are ignored.
    pub fn find(parts: &[a2a::Part]) -> Option<Result<Self, BadMessage>> {
        let data = parts.iter().filter_map(a2a::part_data);
        let mut known = data.filter(|data| {
            data.get("type").and_then(Value::as_str).is_some_and(|kind| TYPES.contains(&kind))
        });
        known.next().map(Self::from_json)
    }
}

macro_rules! into_message {
    ($($variant:ident($data:ident)),*) => {$(
        impl From<$data> for MeshMessage {
            fn from(data: $data) -> Self {
                Self::$variant(data)
            }
        }
    )*};
}

into_message!(
    NodeRequest(WorkflowNodeRequestData),
    NodeResult(WorkflowNodeResultData),
    ExecutionStart(WorkflowExecutionStartData),
    NodeExecutionStart(WorkflowNodeExecutionStartData),
    NodeExecutionResult(WorkflowNodeExecutionResultData),
    MapProgress(WorkflowMapProgressData),
    ExecutionResult(WorkflowExecutionResultData)
);
