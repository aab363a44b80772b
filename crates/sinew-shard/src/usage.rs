//! Model calls behind nodes and executions: sums of what the agents told with their results.

use serde_json::Value;
use sinew_engine::{Activation, ExecutionState};
use sinew_protocol::usage::{ModelTotals, TaskUsage};

/// Returns the model calls behind an activation, over all answers that its agents gave. `None` if they tell of none.
pub fn activation_usage(activation: &Activation) -> Option<TaskUsage> {
    let told =
        activation.replies.iter().filter_map(|reply| TaskUsage::of(&reply.result.as_ref().ok()?.usage));
    told.reduce(|mut sum, used| {
        sum.add(&used);
        sum
    })
}

/// Returns the model calls behind an execution, sub-workflows and agents of agents included.
pub fn execution_usage(state: &ExecutionState) -> ModelTotals {
    let mut totals = ModelTotals::default();
    for used in state.acts.iter().filter_map(activation_usage) {
        totals.add(used.total());
    }
    totals
}

/// Words the usage of an execution as that of an agent which called others; null if no model was asked.
pub fn usage_of_child(state: &ExecutionState) -> Value {
    TaskUsage::of_execution(execution_usage(state))
}
