//! Nodes of an execution: rows, trees, and activations with their evidence.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_protocol::Fault;

use crate::node_status::NodeStatus;
use crate::timestamp::Timestamp;

pub use sinew_protocol::ExecutionId;

/// A row of the tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeRow {
    /// Id of the node.
    pub node: String,
    /// Kind of the node in the dialect.
    pub kind: String,
    /// Status of the node.
    pub status: NodeStatus,
    /// Number of attempts of the latest activation.
    pub attempts: u32,
    /// Number of activations.
    pub activations: u32,
    /// Milliseconds from start to end, or to the current time while the node is open. Absent if it
    /// has not started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Agent of the node. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Why the node failed or waits, or a summary of its children. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether the workflow marks the node as quiet. Absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quiet: bool,
}

impl NodeRow {
    /// Returns true if lists may collapse it: quiet, and not failed, waiting or running.
    pub const fn may_fold(&self) -> bool {
        self.quiet && self.status.is_calm()
    }

    /// Formats the attempts, or the number of the activation (`ACTIVATION_LEGEND`).
    pub fn tries(&self) -> String {
        match (self.activations, self.attempts) {
            (_, 0) => "-".to_owned(),
            (0 | 1, attempts) => attempts.to_string(),
            (activations, _) => format!("#{activations}"),
        }
    }
}

/// Node, or one of its activations, with its children.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TreeBranch {
    /// Node with its index in maps and loops, such as `each_3`.
    pub label: String,
    /// The node, or the activation.
    #[serde(flatten)]
    pub row: NodeRow,
    /// Number of omitted children by status. Absent if there are none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, usize>")]
    pub folded: BTreeMap<NodeStatus, usize>,
    /// Listed children. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<TreeBranch>,
}

/// Description of an activation of a node.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeDescription {
    /// Node with its index in maps and loops.
    pub node: String,
    /// Kind of the node in the dialect.
    pub kind: String,
    /// Status of the node.
    pub status: NodeStatus,
    /// Agent of the node. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Number of attempts of the latest activation.
    pub attempts: u32,
    /// Milliseconds from start to end, or to the current time while the node is open. Absent if it
    /// has not started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Message for people. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Instruction for the agent. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// Input of the agent or workflow in the latest attempt. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Output of the latest attempt. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Fault of the latest attempt. Absent if it did not fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
    /// Failed attempts, in order. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_attempts: Vec<FailedAttempt>,
    /// Id of the execution that the latest attempt called, which may not exist yet or may have been
    /// deleted. Absent if no workflow was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub execution: Option<ExecutionId>,
    /// Log messages of agents and scripts, oldest first. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<NodeMessage>,
    /// Attempts, conditions, notes and usage.
    #[serde(flatten)]
    pub evidence: NodeEvidence,
}

/// Log message of an agent or script.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeMessage {
    /// Number of the attempt, starting at 1.
    pub attempt: u32,
    /// When the message was logged (RFC 3339).
    pub at: Timestamp,
    /// Text of the message.
    pub text: String,
}

/// Failed attempt.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FailedAttempt {
    /// Number of the attempt, starting at 1.
    pub attempt: u32,
    /// When the attempt failed (RFC 3339).
    pub at: Timestamp,
    /// Fault of the attempt.
    pub error: Fault,
}

/// Evidence of one activation.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct NodeEvidence {
    /// Attempts, oldest first. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempt_list: Vec<AttemptEvidence>,
    /// Conditions of the node with their values. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    pub conditions: Vec<ConditionEvidence>,
    /// Notes of the dialect: failed conversions and conditions. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Value>,
    /// Tokens, cost and turns of the latest result. Absent if not reported.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub usage: Value,
    /// Events of the latest result, such as tool calls. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agent_events: Vec<Value>,
}

/// Attempt of an activation.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AttemptEvidence {
    /// Number of the attempt, starting at 1.
    pub attempt: u32,
    /// When the task was sent (RFC 3339).
    pub at: Timestamp,
    /// Input of the task.
    pub input: Value,
    /// Queue time of the task, in milliseconds. Absent if the agent does not report its work time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_ms: Option<u64>,
    /// Work time in milliseconds. Absent if the agent does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worked_ms: Option<u64>,
    /// Output of the agent. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Fault of the attempt. Absent if it did not fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
}

/// A condition of a node, with the values that it referred to at the decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConditionEvidence {
    /// Kind of the condition: `condition`, `when`, `items`.
    pub kind: String,
    /// Text of the condition as in the file.
    pub text: String,
    /// Values of the names in the text, as far as they are available.
    pub bound: Vec<BoundValue>,
    /// Whether it was true; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
}

/// A name in a condition, and its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoundValue {
    /// The name as in the condition.
    pub name: String,
    /// Its value; `None` if it had none.
    pub value: Option<Value>,
}
