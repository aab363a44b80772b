//! Lists of executions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sinew_protocol::usage::ModelTotals;

use crate::execution_status::ExecutionStatus;
use crate::timestamp::Timestamp;

/// A row of the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExecutionRow {
    /// Id of the execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Status.
    #[serde(with = "crate::execution_status")]
    #[schemars(with = "String")]
    pub status: ExecutionStatus,
    /// Start time.
    pub started: Timestamp,
    /// End time; `None` while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// When its process ended before the execution did; `None` if it still runs or has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Timestamp>,
    /// True if no agent was called and every output was null.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Caller who started it.
    pub caller: String,
    /// Current wait, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Why it failed or was cancelled.
    #[serde(rename = "error", skip_serializing_if = "Option::is_none")]
    pub fault: Option<RowFault>,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Model usage that its agents reported with results.
    #[serde(default, skip_serializing_if = "ModelTotals::is_empty")]
    pub usage: ModelTotals,
}

/// Summary of a failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RowFault {
    /// Operator code.
    pub code: String,
    /// Message for people.
    pub message: String,
    /// The node that failed first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The agent whose task failed first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

impl RowFault {
    /// Creates a fault of which only the code is known.
    pub fn with_code(code: String) -> Self {
        Self { code, message: String::new(), node: None, agent: None }
    }
}

/// A page of executions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExecutionPage {
    /// The executions, running first, then newest.
    #[schemars(description = "")]
    pub executions: Vec<ExecutionRow>,
    /// Cursor of the next page; `None` on the last.
    pub next: Option<String>,
    /// Shards that no executor serves: starts that are stored there may be missing.
    pub unlisted_shards: usize,
}
