//! Trials of workflow files: dry runs, test cases and conversions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_protocol::Fault;

use crate::execution_status::ExecutionStatus;
use crate::finding::Finding;

/// Task that would be sent to an agent or a workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WouldAsk {
    /// Id of the node in the plan.
    pub node: String,
    /// Name of the agent or workflow.
    pub agent: Value,
    /// Input of the task.
    pub input: Value,
}

/// Result of a dry run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DryRun {
    /// Name of the workflow.
    pub workflow: String,
    /// Final status of the execution.
    #[serde(with = "crate::execution_status")]
    #[schemars(with = "String")]
    pub status: ExecutionStatus,
    /// Tasks that would be sent, in order.
    pub would_ask: Vec<WouldAsk>,
    /// Why the input was rejected or the execution failed. Absent if neither happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
}

/// Results of test cases.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseResults {
    /// Results in the order of the cases.
    pub cases: Vec<CaseResult>,
    /// Number of cases that passed.
    pub passed: usize,
    /// Number of cases that failed.
    pub failed: usize,
    /// Number of files that could not be read.
    pub broken_files: usize,
    /// Coverage of the tested workflows, if it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coverage: Option<Value>,
    /// Findings in a posted test file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problems: Option<Vec<Finding>>,
}

/// Result of a test case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseResult {
    /// The test file.
    pub file: String,
    /// Line of the case.
    pub line: u32,
    /// Column of the case.
    pub column: u32,
    /// Name of the case.
    pub name: String,
    /// Whether all expectations were met.
    pub passed: bool,
    /// Whether the case was updated.
    pub updated: bool,
    /// Duration in virtual milliseconds.
    pub elapsed_ms: u64,
    /// Expectations that were not met.
    pub failures: Vec<CaseFailure>,
}

/// An expectation that was not met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseFailure {
    /// Place of the expectation.
    pub at: String,
    /// The expectation.
    pub expectation: String,
    /// Differences as lines.
    pub differences: Vec<String>,
}

/// Outcome of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversionOutcome {
    /// The function returned a value
    Converted,
    /// The function failed, and the value is passed on unconverted
    FellBack,
    /// The function failed
    Failed,
}

impl ConversionOutcome {
    /// Returns the outcome as in documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Converted => "converted",
            Self::FellBack => "fell_back",
            Self::Failed => "failed",
        }
    }
}

/// Trial of the conversion function of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConversionReport {
    /// Id of the connection.
    pub connection: String,
    /// The outcome.
    pub outcome: ConversionOutcome,
    /// Whether the value is passed on unconverted.
    pub fell_back: bool,
    /// Value that the next node would receive; `None` if there is none.
    pub value: Option<Value>,
    /// Argument of the function.
    pub argument: Value,
    /// Why the function failed; `None` if it did not.
    pub error: Option<ConversionError>,
}

/// Why a conversion function failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversionError {
    /// Operator code.
    pub code: String,
    /// Message for people.
    pub message: String,
    /// Line of the function.
    pub line: Option<u32>,
    /// Column of the function.
    pub column: Option<u32>,
    /// Place in the file.
    pub place: ConversionPlace,
}

/// Place of a conversion function in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversionPlace {
    /// Name of the file.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}
