//! What can happen to an execution: one closed list.

use std::collections::BTreeMap;

use serde_json::Value;
use sinew_protocol::Fault;

use crate::ask::Reply;
use crate::fact::{Answer, Mode};
use crate::{ActId, Val};

/// Something that happened outside.
#[derive(Clone, Debug)]
pub enum Input {
    /// Begin. Refused when the execution has begun already.
    Start {
        /// The input, not yet admitted.
        input: Value,
        /// Partial and dry runs.
        mode: Mode,
        /// Depth in a chain of sub-workflows.
        depth: u32,
        /// Names of the workflows above.
        chain: Vec<String>,
    },
    /// An attempt ended.
    Done {
        /// The activation.
        act: ActId,
        /// The attempt.
        attempt: u32,
        /// The answer, or why there is none.
        result: Result<Reply, Fault>,
    },
    /// An agent said something while working.
    Progress {
        /// The activation.
        act: ActId,
        /// The attempt.
        attempt: u32,
        /// What it said.
        value: Value,
    },
    /// An activation emitted a value before its end.
    Yield {
        /// The activation.
        act: ActId,
        /// The attempt.
        attempt: u32,
        /// The port.
        port: String,
        /// The value.
        value: Val,
    },
    /// Time passed: whatever is due happens.
    Tick,
    /// A person decided.
    Answer {
        /// The activation that waits.
        act: ActId,
        /// The decision.
        answer: Answer,
    },
    /// End it.
    Cancel {
        /// Who and why.
        reason: String,
    },
    /// Start nothing new.
    Pause {
        /// Who and why.
        reason: String,
    },
    /// Go on.
    Resume,
    /// Run what failed again.
    Retry {
        /// Only these nodes (and what depends on them); all failed and cancelled ones when empty.
        nodes: Vec<String>,
        /// Who and why.
        reason: String,
    },
}

/// A command that cannot be carried out in the state the execution is in. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
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
    /// No such node, or it did not fail.
    #[error("node '{0}' does not exist or did not fail")]
    NoSuchFailure(String),
    /// The activation does not wait for a person.
    #[error("activation {0} does not wait for an answer")]
    NotWaiting(ActId),
    /// It is paused already.
    #[error("the execution is paused already")]
    Paused,
    /// It is not paused.
    #[error("the execution is not paused")]
    NotPaused,
}

impl Refused {
    /// The operator code.
    pub const fn code(&self) -> &'static str {
        "SINEW-6010"
    }
}

/// What a retry would do, without doing it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryPlan {
    /// Nodes whose outputs are kept.
    pub keep: Vec<String>,
    /// Nodes that run again, with the number of their children that do.
    pub rerun: BTreeMap<String, u32>,
    /// Nodes that start afresh because they depend on one that runs again.
    pub reset: Vec<String>,
}
