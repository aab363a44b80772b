//! Questions that wait for people.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::execution::{PersonDecision, ShownWait};

/// Question that waits for a person.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OpenApproval {
    /// The question and its node.
    #[serde(flatten)]
    pub wait: ShownWait,
    /// Id of the execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Caller who started the execution.
    #[serde(skip)]
    pub caller: String,
    /// Names of the workflows that wait for the execution, outermost first. Absent if there are
    /// none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// Fields to judge the question by: the data that it declares, else the input of the execution.
    /// Texts and nested values are shortened. Absent if there are none.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub review: Map<String, Value>,
}

/// Number of open questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalCount {
    /// Questions that wait for people.
    pub open: usize,
}

/// Question with the data that is needed to answer it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalDetails {
    /// The question.
    #[serde(flatten)]
    pub approval: OpenApproval,
    /// Input of the execution.
    pub input: Value,
    /// Earlier decisions in this execution.
    pub decisions: Vec<PersonDecision>,
}
