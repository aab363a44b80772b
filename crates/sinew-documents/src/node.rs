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
    /// The node's id.
    pub node: String,
    /// Its kind in the dialect.
    pub kind: String,
    /// Status.
    pub status: NodeStatus,
    /// Attempts of its latest activation.
    pub attempts: u32,
    /// Number of activations, if there were several.
    pub activations: u32,
    /// Milliseconds from start to end (or now).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Agent that works on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Why it failed or waits, or a summary of its children.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether the workflow marks it as quiet.
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

/// A node, or one of its activations, with its children.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TreeBranch {
    /// The node with its index in maps and loops: `each_3`.
    pub label: String,
    /// The node, or the activation.
    #[serde(flatten)]
    pub row: NodeRow,
    /// Number of children that are not listed, by status.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, usize>")]
    pub folded: BTreeMap<NodeStatus, usize>,
    /// Listed children.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<TreeBranch>,
}

/// One activation of a node.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeDescription {
    /// The node with its index in maps and loops.
    pub node: String,
    /// Kind of the node in its dialect.
    pub kind: String,
    /// Status.
    pub status: NodeStatus,
    /// Agent that works on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Attempts of the latest activation.
    pub attempts: u32,
    /// Milliseconds from start to end, or until now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Message for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Instruction for the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// Input of the agent or workflow in the latest attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The output, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The fault of the latest attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
    /// Attempts that failed, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_attempts: Vec<FailedAttempt>,
    /// Execution of the latest attempt, if a workflow was called. It may not exist yet or any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub execution: Option<ExecutionId>,
    /// Messages of its agents and scripts, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<NodeMessage>,
    /// Attempts, conditions, notes and usage.
    #[serde(flatten)]
    pub evidence: NodeEvidence,
}

/// A message of an agent or script.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeMessage {
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Time of the message.
    pub at: Timestamp,
    /// The text.
    pub text: String,
}

/// An attempt that failed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FailedAttempt {
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Milliseconds since 1970 UTC.
    pub at: Timestamp,
    /// The fault of the latest attempt.
    pub error: Fault,
}

/// Evidence of one activation.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct NodeEvidence {
    /// Attempts, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempt_list: Vec<AttemptEvidence>,
    /// Conditions of the node with their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    pub conditions: Vec<ConditionEvidence>,
    /// Notes of the dialect: conversions and conditions that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Value>,
    /// Tokens, price and turns of the latest result; null if not reported.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub usage: Value,
    /// Events of the latest result, such as tool calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agent_events: Vec<Value>,
}

/// One attempt of an activation.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AttemptEvidence {
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// When the task was sent; milliseconds since 1970 UTC.
    pub at: Timestamp,
    /// Input of the task.
    pub input: Value,
    /// Milliseconds that the task was queued, if the agent reports its work time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_ms: Option<u64>,
    /// Milliseconds of work, if the agent reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worked_ms: Option<u64>,
    /// Output of the agent, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Fault of the attempt, if it failed.
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
