//! Reports over the history of a mesh: times of nodes, and usage of models.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sinew_protocol::usage::ModelTotals;

use crate::agent::Percentiles;
use crate::timestamp::Timestamp;
use crate::words;

/// How much of the history a report covers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReportCoverage {
    /// Start of the requested time (RFC 3339): executions that ended since then.
    pub since: Timestamp,
    /// End of the earliest execution that was read (RFC 3339). Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Number of executions that were read, newest first.
    pub executions: usize,
    /// Whether all executions of the requested time were read. Otherwise the limit of a report was
    /// reached: 5,000 executions.
    pub is_whole: bool,
}

impl ReportCoverage {
    /// Describes what the report covers, for people.
    pub fn line(&self) -> String {
        let read = words::count(self.executions, "closed execution");
        match (self.is_whole, self.from) {
            (false, Some(from)) => {
                format!("{read} since {from}; older ones since {} were not read", self.since)
            }
            _ => format!("{read} since {}", self.since),
        }
    }
}

/// Times of nodes, those with the most time first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeReport {
    /// What the report covers.
    pub coverage: ReportCoverage,
    /// The groups. At most 1,000.
    pub rows: Vec<NodeTimes>,
}

/// Times of a group of tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeTimes {
    /// Name of the group: `WORKFLOW/NODE`, or the name of a workflow, agent or label value.
    pub name: String,
    /// Number of tasks, including retries.
    pub tasks: usize,
    /// Number of tasks that failed.
    pub failed: usize,
    /// Total work time in milliseconds.
    pub working_ms: u64,
    /// Total queue time in milliseconds.
    pub queued_ms: u64,
    /// Percentiles of the work time.
    pub work_ms: Percentiles,
    /// Percentiles of the queue time.
    pub queue_ms: Percentiles,
}

/// Usage of models, the most expensive first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostReport {
    /// What the report covers.
    pub coverage: ReportCoverage,
    /// Sum over all groups.
    pub total: ModelTotals,
    /// The groups. At most 1,000.
    pub rows: Vec<CostRow>,
}

/// Usage of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostRow {
    /// Name of the group: a workflow, `WORKFLOW/NODE`, model, agent or label value. `-` for executions
    /// without the label.
    pub name: String,
    /// Number of executions that used models.
    pub executions: usize,
    /// Turns, tokens and price, including those of failed calls.
    #[serde(flatten)]
    pub used: ModelTotals,
}
