//! Lists of executions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sinew_protocol::attributes::ExecutionAttributes;
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
    /// Attributes of the execution: labels, idempotency key, parent, session, user, called agents.
    #[serde(flatten)]
    pub attributes: ExecutionAttributes,
    /// Digest of the workflow version. Absent if it is unknown.
    #[serde(rename = "version", default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Kinds of its waits: `agent NAME`, `workflow NAME`, `person`, `timer`, `script`, `retry`,
    /// `operator`, `executor`. Absent if it waits for nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
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

/// How far a search read records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SearchExtent {
    /// Number of executions whose records were read.
    pub records: u64,
    /// Number of executions of the mesh: open ones, and records in the history.
    pub of: u64,
    /// Start of the oldest execution that was searched (RFC 3339). Absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_to: Option<Timestamp>,
    /// Whether older executions were not searched; `next` continues there.
    pub stopped: bool,
}

impl SearchExtent {
    /// Describes the extent for people: `searched 5000 of 41000 executions, back to 2026-11-02`.
    pub fn line(&self) -> String {
        let back = self
            .back_to
            .filter(|_| self.stopped)
            .map(|at| format!(", back to {}", at.to_string().split('T').next().unwrap_or_default()));
        format!(
            "searched {} of {} executions{}",
            self.records.min(self.of),
            self.of,
            back.unwrap_or_default()
        )
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
    /// How far the search read records, if it needed them. Absent if the filter needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub searched: Option<SearchExtent>,
    /// Number of shards without an executor. Executions that were started there may be missing from
    /// the list.
    pub unlisted_shards: usize,
}
