//! Effects that a retry or a fork would have.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Effects of a retry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RetryPreview {
    /// Id of the execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Digest of the version that the retry would run.
    pub version: String,
    /// Digest of the newest version. Absent if it is the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<String>,
    /// Nodes whose outputs are reused.
    pub keep: Vec<String>,
    /// Nodes that are rerun, with the number of their rerun children (0 if there are none).
    pub rerun: BTreeMap<String, u32>,
    /// Nodes that are reset because they depend on a rerun node.
    pub reset: Vec<String>,
    /// Unaffected nodes, which did not run or remain failed, and have no rerun predecessors.
    pub untouched: Vec<String>,
    /// Input that replaces the input of the node or of the execution. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Changes by the newest version; `None` if the execution continues with its own.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub new_execution: Option<NewVersionPreview>,
}

/// Effects of a retry with the newest version, which is a new execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewVersionPreview {
    /// Digest of the version that the original execution was started with. Absent without a new
    /// execution.
    pub started_with: String,
    /// Nodes that the newest version changes, which are rerun. Absent without a new execution.
    pub changed: Vec<String>,
    /// Nodes that exist only in the newest version. Absent without a new execution.
    pub added: Vec<String>,
    /// Nodes that exist only in the original version. Absent without a new execution.
    pub removed: Vec<String>,
    /// Nodes with decisions of people that have to be made again. Absent without a new execution.
    pub asked_again: Vec<String>,
}

impl RetryPreview {
    /// Names of nodes that run for their own reason, not as dependents.
    pub fn names_of_runs(&self) -> impl Iterator<Item = &str> {
        let new = self.new_execution.iter();
        let others = new.flat_map(|new| new.changed.iter().chain(&new.added).chain(&new.asked_again));
        self.rerun.keys().chain(others).map(String::as_str)
    }
}

/// Preview of a new execution.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StartPreview {
    /// Name of the workflow.
    pub would_start: String,
    /// Digest of the workflow's version. `null` for the newest version.
    pub version: Option<String>,
    /// Input of the execution.
    pub input: Value,
    /// Nodes whose outputs are specified.
    pub given: Vec<String>,
    /// Nodes at which the execution starts.
    pub from: Vec<String>,
}
