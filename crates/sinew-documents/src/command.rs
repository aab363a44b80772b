//! Results of starts and commands.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Started execution.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StartedExecution {
    /// Id of the execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Whether this request started the execution. False if an earlier request with the same id or
    /// key did.
    pub new: bool,
    /// Warnings about agents and workflows that the workflow calls but that do not exist on the
    /// mesh. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why the execution exists but has not started: `workflow paused by ada: reason`. Absent if it
    /// has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
}

/// Execution that received a command.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SteeredExecution {
    /// Id of the execution.
    pub execution: String,
    /// Status of the execution after the command.
    pub status: Cow<'static, str>,
}

/// Execution that was forked from another execution.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ForkedExecution {
    /// Id of the new execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Id of the original execution.
    pub fork_of: String,
}

/// New execution that replaces another one and continues with the newest version of the
/// workflow.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RetriedExecution {
    /// Id of the new execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Id of the original execution.
    pub retry_of: String,
}

/// An execution that was retried: the same one, or a new one with the newest version.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RetryResult {
    /// The execution continues.
    Same(SteeredExecution),
    /// A new execution takes its place.
    New(RetriedExecution),
}

impl RetryResult {
    /// Returns the id of the execution in which the nodes run.
    pub fn execution(&self) -> &str {
        match self {
            Self::Same(steered) => &steered.execution,
            Self::New(new) => &new.execution,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_of_retries_are_told_apart() {
        let read = |document| serde_json::from_value::<RetryResult>(document).unwrap();
        let same = read(json!({"execution": "a", "status": "running"}));
        assert!(matches!(&same, RetryResult::Same(_)) && same.execution() == "a");
        let new = read(json!({"execution": "b", "workflow": "w", "retry_of": "a"}));
        assert!(matches!(&new, RetryResult::New(_)) && new.execution() == "b");
    }
}
