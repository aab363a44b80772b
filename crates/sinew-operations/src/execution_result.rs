//! Results of executions and nodes.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sinew_documents::execution_status;
use sinew_inspection::execution_status::status_of;
use sinew_inspection::record::Record;
use sinew_protocol::Fault;
use sinew_protocol::query::ExecutionStatus;

/// Result of an execution.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ExecutionResult {
    /// Id of the execution.
    pub execution: String,
    /// Status of the execution.
    #[serde(serialize_with = "execution_status::serialize")]
    #[schemars(with = "String")]
    pub status: ExecutionStatus,
    /// Output of the execution. `null` while the execution is open, and if there is none.
    pub output: Value,
    /// Why the execution failed. `null` if it did not.
    pub error: Option<Fault>,
}

impl ExecutionResult {
    /// Returns the result of a record.
    pub fn of(record: &Record) -> Self {
        let ctx = record.execution.ctx();
        let status = status_of(ctx.state);
        let outcome = ctx.outcome().filter(|_| status.is_terminal());
        Self {
            execution: record.id().to_owned(),
            status,
            output: outcome.and_then(|outcome| outcome.output.as_deref().cloned()).unwrap_or_default(),
            error: outcome.and_then(|outcome| outcome.fault.clone()),
        }
    }
}
