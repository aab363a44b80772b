//! Statuses as words of the command line.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use sinew_documents::node_status::NodeStatus;
use sinew_documents::words;
use sinew_operations::mesh_operator::status_of_word;
use sinew_protocol::query::ExecutionStatus;

use crate::exit::Exit;

/// Reads the status of an execution.
pub(crate) fn execution_status() -> impl TypedValueParser<Value = ExecutionStatus> {
    let value = |status: ExecutionStatus| {
        let (help, alias) = match status {
            ExecutionStatus::Running => ("In progress", None),
            ExecutionStatus::Waiting => ("Waiting only for a person", None),
            ExecutionStatus::Paused => ("Paused by an operator", None),
            ExecutionStatus::Success => ("Ended successfully", Some("success")),
            ExecutionStatus::Failure => ("Ended with a failure", Some("failure")),
            ExecutionStatus::Cancelled => ("Cancelled by a user or a parent", None),
        };
        PossibleValue::new(words::status_word(status)).help(help).aliases(alias)
    };
    PossibleValuesParser::new(ExecutionStatus::ALL.map(value)).map(|word| match word.as_str() {
        "succeeded" => ExecutionStatus::Success,
        "failed" => ExecutionStatus::Failure,
        word => status_of_word(word),
    })
}

/// Reads the status of a node.
pub(crate) fn node_status() -> impl TypedValueParser<Value = NodeStatus> {
    let value = |status: NodeStatus| {
        PossibleValue::new(status.as_str()).help(match status {
            NodeStatus::Planned => "Not reached yet",
            NodeStatus::Queued => "Waiting to run",
            NodeStatus::Running => "In progress",
            NodeStatus::Waiting => "Waiting for a person",
            NodeStatus::Succeeded => "Ended successfully",
            NodeStatus::Failed => "Ended with a failure",
            NodeStatus::Skipped => "Not needed",
            NodeStatus::Cancelled => "Cancelled before its end",
        })
    };
    PossibleValuesParser::new(NodeStatus::ALL.map(value)).map(|word| {
        // Only words of the list above get here.
        NodeStatus::of_word(&word).unwrap_or(NodeStatus::Planned)
    })
}

/// Returns the exit code of a command that followed an execution.
pub(crate) const fn exit_of(status: ExecutionStatus) -> Exit {
    match status {
        ExecutionStatus::Success => Exit::Ok,
        ExecutionStatus::Failure | ExecutionStatus::Cancelled => Exit::Failed,
        ExecutionStatus::Waiting => Exit::Waiting,
        ExecutionStatus::Running | ExecutionStatus::Paused => Exit::TimedOut,
    }
}
