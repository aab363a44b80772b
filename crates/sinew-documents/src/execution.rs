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

/// The description of an execution.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExecutionDescription {
    /// Id of the execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Digest of the plan it runs.
    pub version: String,
    /// Name of the dialect.
    pub dialect: String,
    /// Status.
    #[serde(with = "crate::execution_status")]
    #[schemars(with = "String")]
    pub status: ExecutionStatus,
    /// Origin of the execution.
    #[serde(flatten)]
    pub about: RecordOrigin,
    /// Start time.
    pub started: Timestamp,
    /// End time; `None` while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// When its process ended before the execution did; `None` if it still runs or has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Timestamp>,
    /// True if no agent was called and every output was null.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Milliseconds from start to end, or until now.
    pub duration_ms: u64,
    /// Nodes by status.
    pub nodes: NodeCounts,
    /// The input.
    pub input: Value,
    /// The output, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The dialect's own result object.
    pub native: Value,
    /// Waits of the execution or its nodes.
    pub waiting: Vec<ShownWait>,
    /// The failure, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureDescription>,
    /// Problems that did not fail a node: failed conversions, contract violations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<NodeWarning>,
    /// Number of retries by operators.
    pub retries: u32,
    /// Model usage by node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelUsage>,
    /// Decisions of people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<PersonDecision>,
    /// Commands that it received, with their callers.
    pub commands: Vec<Verdict>,
    /// Recommended commands.
    pub next: Vec<String>,
}

/// A problem that did not cause a node to fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeWarning {
    /// The node.
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
}

/// The first failure, outermost message first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FailureDescription {
    /// Node of the original failure; absent if no node failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Fault of the execution, of each enclosing node, then of the attempts of the innermost node.
    pub chain: Vec<FailureCause>,
}

/// One fault of the chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailureCause {
    /// The node; absent for the execution itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Called agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Number of the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Time of the fault.
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
    /// Caller who started it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub caller: String,
    /// The user.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// The session.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub session: String,
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The execution that called it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

impl From<ExecutionMeta> for RecordOrigin {
    fn from(meta: ExecutionMeta) -> Self {
        Self {
            caller: caller(&meta.caller),
            user: meta.user,
            session: meta.session,
            labels: meta.labels,
            parent: meta.parent.map(|parent| parent.execution.to_string()),
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
    /// An executor that serves the shard.
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

/// One wait of an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShownWait {
    /// The node, with its index in maps and loops; absent for the entire execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The activation, which an answer names if a node waits several times.
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
    /// Start of the wait.
    pub since: Timestamp,
    /// Deadline, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The agent that has to respond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Question for the person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<PersonQuestion>,
    /// The called execution that asks the question, if any. An answer is forwarded to it.
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
    /// People who may decide; anyone if empty.
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
    /// The node with the question, with its index in maps and loops.
    pub node: String,
    /// `approved`, `rejected`, `answered` or `timed out`.
    #[serde(rename = "decision")]
    #[schemars(with = "String")]
    pub word: DecisionOutcome,
    /// The person; absent if the question timed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Milliseconds since 1970 UTC.
    pub at: Timestamp,
    /// Comment of the person, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The answer, if it is more than approve or reject.
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
