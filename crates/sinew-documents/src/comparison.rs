//! Comparisons of two executions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::execution_status::ExecutionStatus;
use crate::node_status::NodeStatus;
use crate::present;

/// Comparison of two executions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExecutionComparison {
    /// Whether the executions are equal.
    pub same: bool,
    /// The first execution.
    #[schemars(description = "")]
    pub first: ComparedExecution,
    /// The second execution.
    #[schemars(description = "")]
    pub second: ComparedExecution,
    /// JSON Patch from the first input to the second.
    #[schemars(with = "Vec<Value>")]
    pub input: Vec<PatchOperation>,
    /// JSON Patch from the first output to the second.
    #[schemars(with = "Vec<Value>")]
    pub output: Vec<PatchOperation>,
    /// Nodes with their index in maps and loops: nodes of the first execution, then the remaining
    /// nodes of the second.
    pub nodes: Vec<NodeComparison>,
}

/// Compared execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedExecution {
    /// Id of the execution.
    #[schemars(description = "")]
    pub execution: String,
    /// Name of the workflow.
    #[schemars(description = "")]
    pub workflow: String,
    /// Digest of the plan.
    #[schemars(description = "")]
    pub version: String,
    /// Status.
    #[schemars(description = "")]
    #[serde(with = "crate::execution_status")]
    #[schemars(with = "String")]
    pub status: ExecutionStatus,
    /// Milliseconds from start to end, or until now.
    #[schemars(description = "")]
    pub duration_ms: u64,
}

/// Compared node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeComparison {
    /// Node with its index in maps and loops.
    #[schemars(description = "")]
    #[serde(rename = "node")]
    pub label: String,
    /// Whether status, failure and output are the same.
    #[schemars(description = "")]
    pub same: bool,
    /// The node in the first execution, if it contains it.
    #[schemars(description = "")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<ComparedNode>,
    /// The node in the second execution, if it contains it.
    #[schemars(description = "")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second: Option<ComparedNode>,
    /// JSON Patch from the first output to the second.
    #[schemars(with = "Vec<Value>")]
    pub output: Vec<PatchOperation>,
}

/// Node in one of the compared executions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedNode {
    /// Status.
    #[schemars(description = "")]
    pub status: NodeStatus,
    /// Number of attempts of the latest activation.
    #[schemars(description = "")]
    pub attempts: u32,
    /// Milliseconds from start to end, or until now.
    #[schemars(description = "")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Why the node failed. Absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// Operation of a JSON Patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PatchKind {
    /// Adds a value.
    Add,
    /// Removes a value.
    Remove,
    /// Replaces a value.
    Replace,
}

impl PatchKind {
    /// Returns the name of the operation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Remove => "remove",
            Self::Replace => "replace",
        }
    }
}

/// A step of a JSON Patch, with the value that it replaces or removes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatchOperation {
    /// Operation.
    pub op: PatchKind,
    /// JSON Pointer to the value; empty for the entire value.
    pub path: String,
    /// The new value; `None` if the value is removed.
    #[serde(default, deserialize_with = "present::deserialize", skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The old value; `None` if the value is added.
    #[serde(default, deserialize_with = "present::deserialize", skip_serializing_if = "Option::is_none")]
    pub was: Option<Value>,
}
