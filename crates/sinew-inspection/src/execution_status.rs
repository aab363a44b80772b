//! Status of an execution from its state.

use sinew_documents::execution_status::ExecutionStatus;
use sinew_engine::{ExecutionState, TerminalStatus};

/// Returns the status of an execution.
pub fn status_of(state: &ExecutionState) -> ExecutionStatus {
    sinew_engine::execution_status(state, &sinew_engine::waiting(state))
}

/// Returns the final status for people.
pub const fn end_word(status: TerminalStatus) -> &'static str {
    match status {
        TerminalStatus::Success => "succeeded",
        TerminalStatus::Failure => "failed",
        TerminalStatus::Cancelled => "cancelled",
    }
}
