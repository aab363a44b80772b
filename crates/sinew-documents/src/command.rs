//! Results of starts and commands.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An execution that was started.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StartedExecution {
    /// Id of the execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Whether this request started it, and no earlier one of the same id or key.
    pub new: bool,
    /// Agents and workflows that it calls and that are not on the mesh, each in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// An execution that received a command.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SteeredExecution {
    /// Id of the execution.
    pub execution: String,
    /// Status that the command leads to.
    pub status: Cow<'static, str>,
}

/// An execution that left the way of another one.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ForkedExecution {
    /// Id of the new execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Id of the old execution.
    pub fork_of: String,
}

/// A new execution that goes on with the newest version of a workflow, in the place of another one.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RetriedExecution {
    /// Id of the new execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Id of the old execution.
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
