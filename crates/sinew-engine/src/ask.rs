//! Requests to agents, workflows and script workers, and their replies.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_protocol::code;

use crate::SharedJson;

/// Code of the fault of an attempt whose time ran out.
pub const ATTEMPT_TIMED_OUT: &str = code::ATTEMPT_TIMED_OUT.as_str();
/// Code of an attempt whose time ran out before a process took its task.
pub(crate) const TASK_NOT_TAKEN: &str = code::TASK_NOT_TAKEN.as_str();

/// Returns true for the codes of attempts whose time ran out.
pub fn is_attempt_timeout(code: &str) -> bool {
    code == ATTEMPT_TIMED_OUT || code == TASK_NOT_TAKEN
}

/// A task for an agent or another workflow, as the adapter words it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskRequest {
    /// Why it is asked: [`TaskRequest::WORK`], [`TaskRequest::ROUTE`], [`TaskRequest::JUDGE`], [`TaskRequest::REFLECT`],
    /// [`TaskRequest::EVALUATION`] or the adapter's own word (`subagent`).
    pub tag: String,
    /// Receiver of the request.
    pub target: RequestTarget,
    /// The input.
    pub input: SharedJson,
    /// Instruction in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// Rules, tools, model, structural tree, choices: what the dialect tells its agents beside the input.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub context: Value,
    /// Schema the input must hold, instead of the agent's own.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::serde_some::deserialize"
    )]
    pub input_schema: Option<Value>,
    /// Schema the output must hold, instead of the agent's own.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::serde_some::deserialize"
    )]
    pub output_schema: Option<Value>,
    /// Milliseconds for this attempt, instead of the node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl TaskRequest {
    /// The node's own work.
    pub const WORK: &str = "work";
    /// Which edge to take.
    pub const ROUTE: &str = "route";
    /// Whether the output of a node passes.
    pub const JUDGE: &str = "judge";
    /// Lessons from an output that did not pass.
    pub const REFLECT: &str = "reflect";
    /// Purpose of a request that evaluates a script of the workflow.
    pub const EVALUATION: &str = "evaluation";
    /// Milliseconds for an evaluation, unless it says otherwise.
    const EVALUATION_TIMEOUT_MS: u64 = 120_000;

    /// Work for an agent.
    pub fn agent(name: impl Into<String>, input: impl Into<SharedJson>) -> Self {
        Self {
            tag: Self::WORK.into(),
            target: RequestTarget::Agent(name.into()),
            input: input.into(),
            ..Self::default()
        }
    }

    /// Work for another workflow.
    pub fn workflow(name: impl Into<String>, input: impl Into<SharedJson>) -> Self {
        Self { target: RequestTarget::Workflow(name.into()), ..Self::agent("", input) }
    }

    /// Scripts to evaluate. The shell performs them on a worker; no agent is asked.
    pub fn evaluation(input: impl Into<SharedJson>) -> Self {
        Self {
            tag: Self::EVALUATION.into(),
            target: RequestTarget::Evaluation,
            timeout_ms: Some(Self::EVALUATION_TIMEOUT_MS),
            ..Self::agent("", input)
        }
    }

    /// Whether a worker evaluates scripts, and no agent is asked.
    pub fn is_evaluation(&self) -> bool {
        self.target == RequestTarget::Evaluation
    }

    /// Returns true if the request helps the node along: it evaluates scripts, chooses an edge, judges or reflects. Others are
    /// attempts at the node's own work.
    pub fn is_helper(&self) -> bool {
        self.is_evaluation() || is_helper_tag(&self.tag)
    }

    /// The same with another tag.
    #[must_use]
    pub fn tagged(mut self, tag: impl Into<String>) -> Self {
        self.tag = tag.into();
        self
    }
}

/// Returns true for tags of requests that help a node along ([`TaskRequest::is_helper`]).
pub(crate) fn is_helper_tag(tag: &str) -> bool {
    matches!(tag, TaskRequest::EVALUATION | TaskRequest::ROUTE | TaskRequest::JUDGE | TaskRequest::REFLECT)
}

/// Receiver of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestTarget {
    /// The agent of this name.
    Agent(String),
    /// The workflow of this name.
    Workflow(String),
    /// A worker of the shell that evaluates scripts of the workflow.
    Evaluation,
}

impl Default for RequestTarget {
    fn default() -> Self {
        Self::Agent(String::new())
    }
}

impl RequestTarget {
    /// The name, whatever it names.
    pub fn name(&self) -> &str {
        match self {
            Self::Agent(name) | Self::Workflow(name) => name,
            Self::Evaluation => "script worker",
        }
    }
}

/// An agent's answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskReply {
    /// The output.
    pub output: SharedJson,
    /// Artifacts it made (`{name, version, …}` each).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Value>,
    /// Events on the way (tool calls, stream chunks), in the dialect's words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Value>,
    /// Tokens, cost, model: what the agent reports beside its output.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub usage: Value,
    /// Milliseconds of work, as the agent reports them; the engine moves them into the fact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worked_ms: Option<u64>,
}

impl TaskReply {
    /// An answer that is an output and nothing else.
    pub fn new(output: impl Into<SharedJson>) -> Self {
        Self { output: output.into(), ..Self::default() }
    }
}
