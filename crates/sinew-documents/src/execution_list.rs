//! Lists of executions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sinew_protocol::usage::ModelTotals;

use crate::execution_status::ExecutionStatus;
use crate::timestamp::Timestamp;

/// Execution in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExecutionRow {
    /// Id of the execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Status of the execution.
    #[serde(with = "crate::execution_status")]
    #[schemars(with = "String")]
    pub status: ExecutionStatus,
    /// When the execution started (RFC 3339).
    pub started: Timestamp,
    /// When the execution ended (RFC 3339). Absent while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// When the process that ran the execution stopped before the execution ended (RFC 3339).
    /// Absent if the execution has ended or is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Timestamp>,
    /// Whether the execution is a dry run: no agents are called, and all outputs are null.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Caller who started the execution.
    pub caller: String,
    /// Current wait, in one line. Absent if the execution waits for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Why the execution failed or was cancelled. Absent otherwise.
    #[serde(rename = "error", skip_serializing_if = "Option::is_none")]
    pub fault: Option<RowFault>,
    /// Labels of the execution.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Model usage, as reported by agents with their results.
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
    /// Node that failed first. Absent if no node failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Agent whose task failed first. Absent if no task failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

impl RowFault {
    /// Creates a fault of which only the code is known.
    pub fn with_code(code: String) -> Self {
        Self { code, message: String::new(), node: None, agent: None }
    }
}

/// Page of executions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExecutionPage {
    /// The executions, running first, then newest.
    #[schemars(description = "")]
    pub executions: Vec<ExecutionRow>,
    /// Cursor of the next page. `null` on the last page.
    pub next: Option<String>,
    /// Number of shards without an executor. Executions that were started there may be missing from
    /// the list.
    pub unlisted_shards: usize,
}
