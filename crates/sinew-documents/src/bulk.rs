//! Bulk operations: one command for every execution that matches a filter.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sinew_protocol::query::ExecutionStatus;

use crate::execution_list::SearchExtent;
use crate::words;

/// Command of a bulk operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BulkVerb {
    /// Run failed nodes again.
    Retry,
    /// Cancel.
    Cancel,
    /// Pause.
    Pause,
    /// Resume.
    Resume,
}

impl BulkVerb {
    /// All commands.
    pub const ALL: [Self; 4] = [Self::Retry, Self::Cancel, Self::Pause, Self::Resume];

    /// Returns the name of the command.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Resume => "resume",
        }
    }

    /// Returns the command with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.as_str() == name)
    }

    /// Returns whether the command accepts a reason.
    pub const fn takes_reason(self) -> bool {
        !matches!(self, Self::Resume)
    }

    /// Returns whether an execution of this status accepts the command, as far as its status tells.
    /// Its owner decides.
    pub fn applies_to(self, status: ExecutionStatus) -> bool {
        match self {
            Self::Retry => matches!(status, ExecutionStatus::Failure | ExecutionStatus::Cancelled),
            Self::Cancel => !status.is_terminal(),
            Self::Pause => !status.is_terminal() && status != ExecutionStatus::Paused,
            Self::Resume => status == ExecutionStatus::Paused,
        }
    }
}

/// Executions that a bulk operation will change.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BulkPreview {
    /// Id of the bulk operation. Requests with this id send no command twice.
    pub id: String,
    /// Command to send.
    pub command: BulkVerb,
    /// Number of executions.
    pub count: usize,
    /// The executions by workflow and error, largest group first.
    pub groups: Vec<BulkGroup>,
    /// Ids of the executions.
    pub executions: Vec<String>,
    /// How far the search read records, if it needed them. Absent if the filter needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub searched: Option<SearchExtent>,
}

impl BulkPreview {
    /// Formats the preview for people.
    pub fn text(&self) -> String {
        let mut lines = vec![format!("{} {}", self.command.as_str(), words::count(self.count, "execution"))];
        lines.extend(self.groups.iter().map(BulkGroup::line));
        lines.join("\n")
    }
}

/// Executions of one workflow with one error.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BulkGroup {
    /// Name of the workflow.
    pub workflow: String,
    /// Code of the error. Absent for executions without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Message of one of the errors. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Number of executions.
    pub count: usize,
    /// Ids of some executions.
    pub samples: Vec<String>,
}

impl BulkGroup {
    /// Formats the group for people: `  31  orders  SINEW-5001 no route  e.g. x7f3`.
    pub fn line(&self) -> String {
        let error = [&self.error, &self.message].into_iter().flatten().map(|text| words::one_line(text, 80));
        let error = error.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
        let samples: Vec<&str> = self.samples.iter().map(|id| words::short_id(id)).collect();
        let samples = if samples.is_empty() { String::new() } else { format!("e.g. {}", samples.join(", ")) };
        let parts = [words::one_line(&self.workflow, 40), error, samples];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        format!("{:>7}  {}", self.count, parts.join("  "))
    }
}

/// Outcome of one command of a bulk operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BulkOutcome {
    /// Id of the execution.
    pub execution: String,
    /// Whether the command was accepted. An accepted retry may fail again.
    pub accepted: bool,
    /// Code of the rejection. Absent if the command was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Reason of the rejection. Absent if the command was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Result of a bulk operation, or of a part of it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BulkResult {
    /// Id of the bulk operation.
    pub id: String,
    /// Number of accepted commands.
    pub accepted: usize,
    /// Number of rejected commands.
    pub rejected: usize,
    /// The outcomes.
    pub outcomes: Vec<BulkOutcome>,
}

impl BulkResult {
    /// Counts outcomes.
    pub fn of(id: String, outcomes: Vec<BulkOutcome>) -> Self {
        let accepted = outcomes.iter().filter(|outcome| outcome.accepted).count();
        Self { id, accepted, rejected: outcomes.len() - accepted, outcomes }
    }

    /// Formats the counts for people.
    pub fn line(&self) -> String {
        format!("{} accepted, {} rejected", self.accepted, self.rejected)
    }
}
