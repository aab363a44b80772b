//! Description of an execution: status, waits, failure and decisions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_protocol::Token;
use sinew_protocol::journal::ExecutionMeta;

use crate::execution_status::ExecutionStatus;
use crate::model_usage::ModelUsage;
use crate::timestamp::Timestamp;
use crate::words;

pub use sinew_protocol::Fault;
pub use sinew_protocol::journal::Verdict;
pub use sinew_protocol::person_wait::PersonWait;

/// Description of an execution.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExecutionDescription {
    /// Id of the execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Digest of the plan that the execution runs.
    pub version: String,
    /// Name of the dialect.
    pub dialect: String,
    /// Status of the execution.
    #[serde(with = "crate::execution_status")]
    #[schemars(with = "String")]
    pub status: ExecutionStatus,
    /// Origin of the execution.
    #[serde(flatten)]
    pub about: RecordOrigin,
    /// When the execution started (RFC 3339).
    pub started: Timestamp,
    /// When the execution ended (RFC 3339). Absent while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// When the process that ran the execution stopped before the execution ended (RFC 3339).
    /// Absent if the execution has ended or is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Timestamp>,
    /// Whether the execution is a dry run: no agents are called, and all outputs are null.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Milliseconds from start to end, or to the current time while the execution is open.
    pub duration_ms: u64,
    /// Milliseconds of `duration_ms` in which the execution was paused, or ended before a retry.
    /// Absent if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub paused_ms: u64,
    /// Number of nodes by status.
    pub nodes: NodeCounts,
    /// Input of the execution.
    pub input: Value,
    /// Output of the execution. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Result object in the format of the dialect.
    pub native: Value,
    /// Waits of the execution and its nodes.
    pub waiting: Vec<ShownWait>,
    /// Failure of the execution. Absent if it did not fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureDescription>,
    /// Problems that did not fail a node: failed conversions and contract violations. Absent if
    /// there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<NodeWarning>,
    /// Number of retries by operators.
    pub retries: u32,
    /// Model usage by node. Absent if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelUsage>,
    /// Decisions of people. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<PersonDecision>,
    /// Commands that the execution received, with their callers.
    pub commands: Vec<Verdict>,
    /// Suggested commands.
    pub next: Vec<String>,
}

impl ExecutionDescription {
    /// Returns the milliseconds in which the execution was neither paused nor ended.
    pub const fn active_ms(&self) -> u64 {
        self.duration_ms.saturating_sub(self.paused_ms)
    }
}

/// Returns true for a time that documents omit.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(ms: &u64) -> bool {
    *ms == 0
}

/// Problem that did not fail a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeWarning {
    /// Node of the warning. Absent if it applies to the execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Description in one sentence.
    pub message: String,
}

/// Number of nodes by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeCounts {
    /// Number of nodes.
    pub total: usize,
    /// Nodes that have ended.
    pub over: usize,
    /// Running nodes.
    pub running: usize,
    /// Waiting nodes.
    pub waiting: usize,
    /// Nodes that failed.
    pub failed: usize,
    /// Nodes that were skipped or not reached.
    pub skipped: usize,
    /// Items of maps and branches of forks. Absent if there are none.
    #[serde(default, skip_serializing_if = "is_none")]
    pub items: usize,
    /// Items and branches that have ended. Absent if there are none.
    #[serde(default, skip_serializing_if = "is_none")]
    pub items_over: usize,
}

/// Returns true for a number that documents omit.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(number: &usize) -> bool {
    *number == 0
}

/// Failure of an execution, outermost message first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FailureDescription {
    /// Node of the original failure. Absent if no node failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Faults of the execution, of each enclosing node, and of the attempts of the innermost node.
    pub chain: Vec<FailureCause>,
}

/// Fault in the chain of a failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailureCause {
    /// Node of the fault. Absent for the execution itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Agent that was called. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Number of the attempt, starting at 1. Absent if the fault is not of an attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// When the fault occurred (RFC 3339). Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The fault.
    #[serde(flatten)]
    pub fault: Fault,
}

/// Origin of an execution: caller, user, session, labels, parent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RecordOrigin {
    /// Caller who started the execution.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub caller: String,
    /// User on whose behalf the execution runs. Absent if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Session of the execution. Absent if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub session: String,
    /// Labels of the execution.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Id of the execution that called this one. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Idempotency key of the start. Absent if the caller specified none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

impl From<ExecutionMeta> for RecordOrigin {
    fn from(meta: ExecutionMeta) -> Self {
        Self {
            caller: caller(&meta.caller),
            user: meta.user,
            session: meta.session,
            labels: meta.labels,
            parent: meta.parent.map(|parent| parent.execution.to_string()),
            idempotency_key: meta.idempotency_key,
        }
    }
}

/// Returns the name of a caller from the token of a subject.
pub fn caller(token: &Token) -> String {
    token.name().unwrap_or_else(|| token.to_string())
}

/// Kind of wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    /// An executor that owns the shard.
    Executor,
    /// The result of an agent.
    Agent,
    /// The evaluation of a script.
    Script,
    /// The next attempt.
    Retry,
    /// A timer.
    Timer,
    /// A decision of a person.
    Person,
    /// Children of a map, loop or fork.
    Children,
    /// A free slot within concurrency limits.
    Turn,
    /// An operator who resumes the execution.
    Resume,
    /// The time limit of the execution.
    End,
}

/// Wait of an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShownWait {
    /// Node with its index in maps and loops. Absent if the entire execution waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Activation. An answer specifies it if several activations of a node wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation: Option<u32>,
    /// Kind of wait.
    #[serde(rename = "for")]
    pub what: WaitKind,
    /// Description for people.
    pub text: String,
    /// The description without times.
    #[serde(skip)]
    pub subject: String,
    /// Whether there is a concern, such as an unreachable agent.
    #[serde(skip)]
    pub is_late: bool,
    /// Start of the wait (RFC 3339).
    pub since: Timestamp,
    /// Deadline (RFC 3339). Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Agent that has to respond. Absent for other waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Question for the person. Absent for other waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<PersonQuestion>,
    /// Question of a called execution or agent, which receives the answer. Absent if the node
    /// itself asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_in: Option<PersonWait>,
}

/// Question for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PersonQuestion {
    /// Text of the question.
    pub prompt: String,
    /// Data to review.
    pub data: Value,
    /// People who may decide. Empty if anyone may.
    pub allowed: Vec<String>,
}

/// Outcome of a question for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DecisionOutcome {
    /// Approved
    #[serde(rename = "approved")]
    Approved,
    /// Rejected
    #[serde(rename = "rejected")]
    Rejected,
    /// Answered with data
    #[serde(rename = "answered")]
    Answered,
    /// Not answered in time
    #[serde(rename = "timed out")]
    TimedOut,
}

impl DecisionOutcome {
    /// Returns the outcome as in documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Answered => "answered",
            Self::TimedOut => "timed out",
        }
    }
}

/// A decision of a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PersonDecision {
    /// Node with its index in maps and loops.
    pub node: String,
    /// `approved`, `rejected`, `answered` or `timed out`.
    #[serde(rename = "decision")]
    #[schemars(with = "String")]
    pub word: DecisionOutcome,
    /// Person who decided. Absent if the question timed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When the decision was made (RFC 3339).
    pub at: Timestamp,
    /// Comment of the person. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Data of the answer. Absent if the answer only approves or rejects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl PersonDecision {
    /// Formats the decision for people.
    pub fn line(&self, now: u64) -> String {
        let by = self.by.as_ref().map(|by| format!(" by {}", words::one_line(by, 60))).unwrap_or_default();
        let data =
            self.data.as_ref().map(|data| format!(" with {}", words::one_line(&data.to_string(), 120)));
        let comment = self.comment.as_ref().filter(|comment| !comment.is_empty());
        let comment = comment.map(|comment| format!(": {}", words::one_line(comment, 200)));
        format!(
            "{} {}{by}{}, {}{}",
            words::name(&self.node),
            self.word.as_str(),
            data.unwrap_or_default(),
            words::ago(self.at.ms(), now),
            comment.unwrap_or_default()
        )
    }
}
