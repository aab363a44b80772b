//! Inputs of an execution, as an exhaustive enum.

use sinew_protocol::code;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use sinew_protocol::Fault;
use sinew_protocol::person_wait::PersonWait;

use crate::ask::TaskReply;
use crate::fact::{ExecutionMode, PersonAnswer};
use crate::{ActivationId, SharedJson};

/// An external event that an execution decides on.
#[derive(Clone, Debug)]
pub enum EngineInput {
    /// Start. Rejected if the execution has already started.
    Start {
        /// The input, not yet validated.
        input: Value,
        /// Partial and dry runs.
        mode: ExecutionMode,
        /// Depth in a chain of sub-workflows.
        depth: u32,
        /// Names of the calling workflows.
        chain: Vec<String>,
        /// Reason why the execution starts paused: its workflow is paused.
        paused: Option<String>,
    },
    /// An attempt ended.
    Done {
        /// The activation.
        act: ActivationId,
        /// The attempt.
        attempt: u32,
        /// The reply, or the reason why it failed.
        result: Result<TaskReply, Fault>,
    },
    /// An attempt failed, and reported its usage.
    Failed {
        /// The activation.
        act: ActivationId,
        /// The attempt.
        attempt: u32,
        /// The reason.
        fault: Fault,
        /// Tokens and cost of the attempt; null if none were reported.
        usage: Value,
        /// Milliseconds of work, if the agent reports them.
        worked_ms: Option<u64>,
    },
    /// The time of an attempt ran out, and no process has accepted its task. No effect before the
    /// attempt's deadline.
    NotTaken {
        /// The activation.
        act: ActivationId,
        /// The attempt.
        attempt: u32,
        /// Whether a process of the agent is online.
        is_online: bool,
    },
    /// A reply that is ignored reports the usage of its attempt.
    Usage {
        /// The activation.
        act: ActivationId,
        /// The attempt.
        attempt: u32,
        /// Tokens and cost of the attempt.
        usage: Value,
    },
    /// An agent reported progress.
    Progress {
        /// The activation.
        act: ActivationId,
        /// The attempt.
        attempt: u32,
        /// Content of the progress.
        value: Value,
    },
    /// A callee of an attempt starts or stops waiting for a person.
    CalleeWait {
        /// The activation.
        act: ActivationId,
        /// The attempt.
        attempt: u32,
        /// The callee: an execution, or an agent's name for its question.
        callee: String,
        /// Number of the report; a report with a lower number than an accepted one is obsolete.
        number: u64,
        /// The question; `None` if the callee waits for no person.
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
    /// Time passed: due timers fire.
    Tick,
    /// A person decided.
    Answer {
        /// The activation that waits.
        act: ActivationId,
        /// The decision.
        answer: PersonAnswer,
    },
    /// Cancel the execution.
    Cancel {
        /// Operator and reason.
        reason: String,
    },
    /// Start nothing new.
    Pause {
        /// Operator and reason.
        reason: String,
    },
    /// Continue.
    Resume,
    /// Run failed work again.
    Retry {
        /// Scope and input of the retry.
        retry: RetryRequest,
        /// Operator and reason.
        reason: String,
    },
}

/// Scope of an operator's retry. By default all activations that failed or were cancelled, with
/// their inputs.
///
/// Nodes that depend on a retried node always start again; other successful nodes keep their
/// results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RetryRequest {
    /// These nodes and the cancelled ones, which did not run. If empty, also all failed ones.
    pub nodes: Vec<String>,
    /// These nodes only: other failed or cancelled nodes remain, and so does the outcome they lead
    /// to.
    pub only: bool,
    /// Input that replaces the input of the one named node. Without a name it replaces the input of
    /// the execution, which then starts again without results.
    pub input: Option<Value>,
}

/// Reason why the execution's state does not allow a command. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputRefusal {
    /// The execution has not started.
    #[error("the execution has not been started")]
    NotStarted,
    /// The execution has already started.
    #[error("the execution was started already")]
    Started,
    /// The execution has ended.
    #[error("the execution has ended")]
    Ended,
    /// The execution has not ended, so nothing can be retried.
    #[error("the execution has not ended, so there is nothing to retry")]
    NotEnded,
    /// The execution succeeded, or nothing in it failed.
    #[error("nothing in the execution failed or was cancelled")]
    NothingFailed,
    /// The workflow has no such node.
    #[error("the workflow has no node '{0}'")]
    NoSuchNode(String),
    /// The node never ran in this execution: its predecessors have to run again.
    #[error("node '{0}' never ran, so it cannot run again")]
    NeverRan(String),
    /// The node succeeded, and its output was used.
    #[error("node '{0}' did not fail")]
    DidNotFail(String),
    /// The node depends on other retried nodes, and uses their outputs.
    #[error(
        "node '{0}' depends on other nodes that run again, so its input is theirs; replace the input of a node that runs again alone"
    )]
    TakesFromOthers(String),
    /// The node is run by a map, a loop, a fork, or the end of the execution.
    #[error("node '{0}' does not run on its own; name the node that runs it")]
    NotItsOwn(String),
    /// An input applies to one node, or to the execution.
    #[error("an input is for one node or for the whole execution, and {0} nodes are named")]
    ManyNodes(usize),
    /// The node calls no agent or workflow, so it has no input that can be replaced.
    #[error("node '{0}' calls no agent or workflow, so its input cannot be replaced")]
    TakesNoInput(String),
    /// The input violates the workflow's schema or limits.
    #[error("the input is refused: {0}")]
    BadInput(String),
    /// The activation does not wait for a person.
    #[error("activation {0} does not wait for an answer")]
    NotWaiting(ActivationId),
    /// The person has already approved; the question needs approvals by different people.
    #[error("{0} has already approved this; it needs the approval of another person")]
    AlreadyApproved(String),
    /// The execution is already paused.
    #[error("the execution is paused already")]
    Paused,
    /// The execution is not paused.
    #[error("the execution is not paused")]
    NotPaused,
}

impl InputRefusal {
    /// Returns the error code.
    pub const fn code(&self) -> &'static str {
        code::INPUT_REFUSED.as_str()
    }
}

/// Effects of a retry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryPlan {
    /// Nodes whose outputs are kept.
    pub keep: Vec<String>,
    /// Nodes that run again, with the number of their children that run again.
    pub rerun: BTreeMap<String, u32>,
    /// Nodes that start again because they depend on one that runs again.
    pub reset: Vec<String>,
}
