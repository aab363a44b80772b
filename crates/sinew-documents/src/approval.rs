//! Questions that wait for people.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::execution::{PersonDecision, ShownWait};

/// A question that waits for a person.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OpenApproval {
    /// The question and its node.
    #[serde(flatten)]
    pub wait: ShownWait,
    /// Id of the execution.
    pub execution: String,
    /// Name of its workflow.
    pub workflow: String,
    /// Caller who started it.
    #[serde(skip)]
    pub caller: String,
    /// Names of the workflows that wait for it, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
}

/// A question with the data to judge.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalDetails {
    /// The question.
    #[serde(flatten)]
    pub approval: OpenApproval,
    /// Input of the execution.
    pub input: Value,
    /// Decisions that were made in this execution before.
    pub decisions: Vec<PersonDecision>,
}
