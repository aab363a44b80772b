//! Observations of a shard's owner for logs and metrics. They are not part of the journal.

use sinew_protocol::subject::Operation;
use sinew_protocol::{ExecutionId, TaskId, Token};

/// An observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardNotice {
    /// An execution started.
    Started(ExecutionId),
    /// A start was repeated.
    StartRepeated(ExecutionId),
    /// A command was accepted or rejected.
    CommandDecided {
        /// The execution that the command names.
        execution: ExecutionId,
        /// Operation of the command.
        operation: Operation,
        /// Caller of the command.
        caller: Token,
        /// Whether it was accepted.
        accepted: bool,
    },
    /// A result arrived for a completed task, or for an execution that is not open.
    ResultLate {
        /// The execution that the result names.
        execution: ExecutionId,
        /// The task.
        task: TaskId,
    },
    /// A result arrived from an agent that was not called.
    ResultForeign {
        /// The execution that the result names.
        execution: ExecutionId,
        /// The task.
        task: TaskId,
        /// The agent that sent the result.
        agent: Token,
    },
    /// The workflow's code panicked on a result, and on the failure that was to replace it.
    ResultUnusable {
        /// The execution.
        execution: ExecutionId,
        /// The task.
        task: TaskId,
    },
    /// Number of evicted executions that were folded again.
    ExecutionsLoaded(u64),
}
