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
    /// Digest of the version that it would run with.
    pub version: String,
    /// Digest of the newest version, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<String>,
    /// Nodes whose outputs are reused.
    pub keep: Vec<String>,
    /// Nodes that run again, with the number of children that do (0 without children).
    pub rerun: BTreeMap<String, u32>,
    /// Nodes that are reset because they depend on a rerun node.
    pub reset: Vec<String>,
    /// Unaffected nodes: they did not run or stay failed, and no predecessor runs again.
    pub untouched: Vec<String>,
    /// Input that replaces the node's input, or that of the entire execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Changes by the newest version; `None` if the execution continues with its own.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub new_execution: Option<NewVersionPreview>,
}

/// Effects of a retry with the newest version, which is a new execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewVersionPreview {
    /// Digest of the version that the old execution was started with.
    pub started_with: String,
    /// Nodes that the newest version changes, which run again.
    pub changed: Vec<String>,
    /// Nodes that exist only in the newest version.
    pub added: Vec<String>,
    /// Nodes that exist only in the old version.
    pub removed: Vec<String>,
    /// Nodes with decisions of people, who are asked again.
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

/// A new execution, before it is started.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StartPreview {
    /// Name of the workflow.
    pub would_start: String,
    /// Digest of its version; `None` for the newest.
    pub version: Option<String>,
    /// Its input.
    pub input: Value,
    /// Nodes whose outputs are given.
    pub given: Vec<String>,
    /// Nodes at which it begins.
    pub from: Vec<String>,
}
