//! Effect of a rejection by a person on the task of an agent.

use schemars::JsonSchema;
use serde::Deserialize;

/// Effect of a rejection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RejectionRule {
    /// The model receives the rejection, and continues.
    #[default]
    Continue,
    /// The task fails.
    Fail,
}
