//! Model usage of nodes and executions: sums of the usage that agents report with results and
//! failures.

use serde_json::Value;
use sinew_engine::{Activation, ExecutionState};
use sinew_protocol::usage::{ModelTotals, TaskUsage};

/// Returns the model calls behind an activation, over all attempts that its agents told of. `None` if they tell of none.
pub fn activation_usage(activation: &Activation) -> Option<TaskUsage> {
    activation.usage.as_ref().map(|usage| usage.sum())
}

/// Returns the model calls behind an execution, sub-workflows and agents of agents included.
pub fn execution_usage(state: &ExecutionState) -> ModelTotals {
    state.model_totals()
}

/// Words the usage of an execution as that of an agent which called others; null if no model was asked.
pub fn usage_of_child(state: &ExecutionState) -> Value {
    TaskUsage::of_execution(execution_usage(state))
}
