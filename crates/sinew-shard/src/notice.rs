//! Observations of a shard's owner for logs and metrics. They are not part of the journal.

use sinew_protocol::subject::Operation;
use sinew_protocol::{ExecutionId, TaskId, Token};

/// One observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardNotice {
    /// An execution began.
    Started(ExecutionId),
    /// A start was given again.
    StartRepeated(ExecutionId),
    /// A command was decided.
    CommandDecided {
        /// The execution that the command names.
        execution: ExecutionId,
        /// Operation of the command.
        operation: Operation,
        /// Caller of the command.
        caller: Token,
        /// Whether it was done.
        accepted: bool,
    },
    /// A result came for a task that is over, or for an execution that is not open.
    ResultLate {
        /// The execution that the result names.
        execution: ExecutionId,
        /// The task.
        task: TaskId,
    },
    /// A result came from an agent that was not asked.
    ResultForeign {
        /// The execution that the result names.
        execution: ExecutionId,
        /// The task.
        task: TaskId,
        /// The agent that answered.
        agent: Token,
    },
    /// The workflow's code broke on a result, and on the failure that was to replace it.
    ResultUnusable {
        /// The execution.
        execution: ExecutionId,
        /// The task.
        task: TaskId,
    },
    /// Evicted executions were folded again, so many.
    ExecutionsLoaded(u64),
}
