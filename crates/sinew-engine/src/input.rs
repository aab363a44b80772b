//! Inputs of an execution, as a closed enum.

use sinew_protocol::code;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use sinew_protocol::Fault;
use sinew_protocol::person_wait::PersonWait;

use crate::ask::TaskReply;
use crate::fact::{ExecutionMode, PersonAnswer};
use crate::{ActivationId, SharedJson};

/// An event outside that an execution decides about.
#[derive(Clone, Debug)]
pub enum EngineInput {
    /// Begin. Refused when the execution has begun already.
    Start {
        /// The input, not yet admitted.
        input: Value,
        /// Partial and dry runs.
        mode: ExecutionMode,
        /// Depth in a chain of sub-workflows.
        depth: u32,
        /// Names of the workflows above.
        chain: Vec<String>,
    },
    /// An attempt ended.
    Done {
        /// The activation.
        act: ActivationId,
        /// The attempt.
        attempt: u32,
        /// The answer, or why there is none.
        result: Result<TaskReply, Fault>,
    },
    /// An attempt failed, and told what it used.
    Failed {
        /// The activation.
        act: ActivationId,
        /// The attempt.
        attempt: u32,
        /// The reason.
        fault: Fault,
        /// Tokens and cost of the attempt; null if it told none.
        usage: Value,
        /// Milliseconds of work, if the agent reports them.
        worked_ms: Option<u64>,
    },
    /// The time of an attempt ran out, and no process has taken its task. Means nothing before the attempt's deadline.
    NotTaken {
        /// The activation.
        act: ActivationId,
        /// The attempt.
        attempt: u32,
        /// Whether a process of the agent is online.
        is_online: bool,
    },
    /// An answer that does not count reports the usage of its attempt.
    Usage {
        /// The activation.
        act: ActivationId,
        /// The attempt.
        attempt: u32,
        /// Tokens and cost of the attempt.
        usage: Value,
    },
    /// An agent said something while working.
    Progress {
        /// The activation.
        act: ActivationId,
        /// The attempt.
        attempt: u32,
        /// Content of the progress.
        value: Value,
    },
    /// A callee of an attempt waits for a person, or does not any more.
    CalleeWait {
        /// The activation.
        act: ActivationId,
        /// The attempt.
        attempt: u32,
        /// The callee: an execution, or the name that an agent gave to its question.
        callee: String,
        /// Number of the report; a report with a lower number than one that was taken is obsolete.
        number: u64,
        /// The question; `None` when the callee waits for no person.
        wait: Option<Arc<PersonWait>>,
    },
    /// An activation emitted a value before its end.
    Yield {
        /// The activation.
        act: ActivationId,
        /// The attempt.
        attempt: u32,
        /// The port.
        port: String,
        /// The value.
        value: SharedJson,
    },
    /// Time passed: whatever is due happens.
    Tick,
    /// A person decided.
    Answer {
        /// The activation that waits.
        act: ActivationId,
        /// The decision.
        answer: PersonAnswer,
    },
    /// End it.
    Cancel {
        /// Operator and reason.
        reason: String,
    },
    /// Start nothing new.
    Pause {
        /// Operator and reason.
        reason: String,
    },
    /// Go on.
    Resume,
    /// Run again what failed.
    Retry {
        /// Scope and input of the retry.
        retry: RetryRequest,
        /// Operator and reason.
        reason: String,
    },
}

/// Scope of an operator's retry. By default: all activations that failed or were cancelled, with their inputs.
///
/// Nodes that depend on a retried node always start anew; other successful nodes keep their results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RetryRequest {
    /// These nodes, and those that were cancelled: they never had their turn. All that failed, too, when empty.
    pub nodes: Vec<String>,
    /// These nodes and no others: what else failed or was cancelled stays as it is, and so does the outcome it leads to.
    pub only: bool,
    /// Input that replaces the input of the one named node. Without a name it replaces the input of the execution, which then
    /// begins anew and keeps no result.
    pub input: Option<Value>,
}

/// A command that cannot be carried out in the state the execution is in. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputRefusal {
    /// It has not begun.
    #[error("the execution has not been started")]
    NotStarted,
    /// It has begun.
    #[error("the execution was started already")]
    Started,
    /// It has ended.
    #[error("the execution has ended")]
    Ended,
    /// It has not ended, so there is nothing to retry.
    #[error("the execution has not ended, so there is nothing to retry")]
    NotEnded,
    /// It succeeded, or nothing in it failed.
    #[error("nothing in the execution failed or was cancelled")]
    NothingFailed,
    /// No such node.
    #[error("the workflow has no node '{0}'")]
    NoSuchNode(String),
    /// It never ran in this execution: what would lead to it has to run again.
    #[error("node '{0}' never ran, so it cannot run again")]
    NeverRan(String),
    /// It ended well, and others have used what it gave.
    #[error("node '{0}' did not fail")]
    DidNotFail(String),
    /// The node depends on other retried nodes, so it takes their outputs.
    #[error("node '{0}' depends on others that run again, so it takes what they give: run only it again")]
    TakesFromOthers(String),
    /// It is run by a map, a loop or a fork, or by the end of the execution.
    #[error("node '{0}' does not run on its own: name what runs it")]
    NotItsOwn(String),
    /// An input is for one node, or for the execution.
    #[error("an input is for one node or for the whole execution, and {0} nodes are named")]
    ManyNodes(usize),
    /// It has no input that could be replaced: it asks nobody.
    #[error("node '{0}' asks no agent and no workflow, so it takes no input")]
    TakesNoInput(String),
    /// The workflow or its limits do not take this input.
    #[error("the input is refused: {0}")]
    BadInput(String),
    /// The activation does not wait for a person.
    #[error("activation {0} does not wait for an answer")]
    NotWaiting(ActivationId),
    /// It is paused already.
    #[error("the execution is paused already")]
    Paused,
    /// It is not paused.
    #[error("the execution is not paused")]
    NotPaused,
}

impl InputRefusal {
    /// The operator code.
    pub const fn code(&self) -> &'static str {
        code::INPUT_REFUSED.as_str()
    }
}

/// Effects that a retry would have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryPlan {
    /// Nodes whose outputs are kept.
    pub keep: Vec<String>,
    /// Nodes that run again, with the number of their children that do.
    pub rerun: BTreeMap<String, u32>,
    /// Nodes that start afresh because they depend on one that runs again.
    pub reset: Vec<String>,
}
