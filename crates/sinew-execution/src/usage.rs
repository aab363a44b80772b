//! Model usage of nodes and executions: sums of the usage that agents report with results and
//! failures.

use serde_json::Value;
use sinew_engine::{Activation, ExecutionState};
use sinew_protocol::usage::{ModelTotals, TaskUsage};

/// Returns the model calls of an activation, over all attempts whose agents reported them. Returns
/// `None` if none were reported.
pub fn activation_usage(activation: &Activation) -> Option<TaskUsage> {
    activation.usage.as_ref().map(|usage| usage.sum())
}

/// Returns the model calls of an execution, including sub-workflows and agents called by agents.
pub fn execution_usage(state: &ExecutionState) -> ModelTotals {
    state.model_totals()
}

/// Encodes the usage of an execution as that of an agent that called others; null if no model was
/// called.
pub fn usage_of_child(state: &ExecutionState) -> Value {
    TaskUsage::of_execution(execution_usage(state))
}
