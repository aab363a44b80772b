//! Requests to agents, workflows and script workers, and their replies.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_protocol::code;

use crate::SharedJson;

/// Code of the fault of a timed-out attempt.
pub const ATTEMPT_TIMED_OUT: &str = code::ATTEMPT_TIMED_OUT.as_str();
/// Code of an attempt that timed out before a process accepted its task.
pub(crate) const TASK_NOT_TAKEN: &str = code::TASK_NOT_TAKEN.as_str();

/// Returns true for the codes of timed-out attempts.
pub fn is_attempt_timeout(code: &str) -> bool {
    code == ATTEMPT_TIMED_OUT || code == TASK_NOT_TAKEN
}

/// An adapter's task for an agent or another workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskRequest {
    /// Purpose of the request: [`TaskRequest::WORK`], [`TaskRequest::ROUTE`],
    /// [`TaskRequest::JUDGE`], [`TaskRequest::REFLECT`], [`TaskRequest::EVALUATION`] or the
    /// adapter's own tag (`subagent`).
    pub tag: String,
    /// Receiver of the request.
    pub target: RequestTarget,
    /// The input.
    pub input: SharedJson,
    /// Instruction as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// Rules, tools, model, structural tree, choices: the dialect's data for agents in addition to
    /// the input.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub context: Value,
    /// Schema for the input, instead of the agent's own.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::serde_some::deserialize"
    )]
    pub input_schema: Option<Value>,
    /// Schema for the output, instead of the agent's own.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::serde_some::deserialize"
    )]
    pub output_schema: Option<Value>,
    /// Time limit of this attempt in milliseconds, instead of the node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl TaskRequest {
    /// Tag of the node's own work.
    pub const WORK: &str = "work";
    /// Tag of a request that selects an edge.
    pub const ROUTE: &str = "route";
    /// Tag of a request that decides whether a node's output is accepted.
    pub const JUDGE: &str = "judge";
    /// Tag of a request that reflects on a rejected output.
    pub const REFLECT: &str = "reflect";
    /// Tag of a request that evaluates a script of the workflow.
    pub const EVALUATION: &str = "evaluation";
    /// Default time limit of an evaluation in milliseconds.
    const EVALUATION_TIMEOUT_MS: u64 = 120_000;

    /// Creates a request to an agent.
    pub fn agent(name: impl Into<String>, input: impl Into<SharedJson>) -> Self {
        Self {
            tag: Self::WORK.into(),
            target: RequestTarget::Agent(name.into()),
            input: input.into(),
            ..Self::default()
        }
    }

    /// Creates a request to another workflow.
    pub fn workflow(name: impl Into<String>, input: impl Into<SharedJson>) -> Self {
        Self { target: RequestTarget::Workflow(name.into()), ..Self::agent("", input) }
    }

    /// Creates a request to evaluate scripts. The shell performs it on a worker, without calling an
    /// agent.
    pub fn evaluation(input: impl Into<SharedJson>) -> Self {
        Self {
            tag: Self::EVALUATION.into(),
            target: RequestTarget::Evaluation,
            timeout_ms: Some(Self::EVALUATION_TIMEOUT_MS),
            ..Self::agent("", input)
        }
    }

    /// Returns whether a worker evaluates scripts, without calling an agent.
    pub fn is_evaluation(&self) -> bool {
        self.target == RequestTarget::Evaluation
    }

    /// Returns whether the request is a helper: it evaluates scripts, selects an edge, judges or
    /// reflects. Other requests are attempts at the node's own work.
    pub fn is_helper(&self) -> bool {
        self.is_evaluation() || is_helper_tag(&self.tag)
    }

    /// Returns the request with another tag.
    #[must_use]
    pub fn tagged(mut self, tag: impl Into<String>) -> Self {
        self.tag = tag.into();
        self
    }
}

/// Returns true for tags of helper requests ([`TaskRequest::is_helper`]).
pub(crate) fn is_helper_tag(tag: &str) -> bool {
    matches!(tag, TaskRequest::EVALUATION | TaskRequest::ROUTE | TaskRequest::JUDGE | TaskRequest::REFLECT)
}

/// Receiver of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestTarget {
    /// The agent with this name.
    Agent(String),
    /// The workflow with this name.
    Workflow(String),
    /// A shell's worker that evaluates scripts of the workflow.
    Evaluation,
}

impl Default for RequestTarget {
    fn default() -> Self {
        Self::Agent(String::new())
    }
}

impl RequestTarget {
    /// Returns the receiver's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Agent(name) | Self::Workflow(name) => name,
            Self::Evaluation => "script worker",
        }
    }
}

/// An agent's reply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskReply {
    /// The output.
    pub output: SharedJson,
    /// Artifacts that the agent created (`{name, version, …}` each).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Value>,
    /// Intermediate events (tool calls, stream chunks), in the dialect's format.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Value>,
    /// Tokens, cost, model: usage that the agent reports in addition to its output.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub usage: Value,
    /// Milliseconds of work, as reported by the agent; the engine moves them into the fact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worked_ms: Option<u64>,
}

impl TaskReply {
    /// Creates a reply with only an output.
    pub fn new(output: impl Into<SharedJson>) -> Self {
        Self { output: output.into(), ..Self::default() }
    }
}
