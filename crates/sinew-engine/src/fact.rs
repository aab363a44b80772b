//! Facts: decisions and inputs of the engine, in order.
//!
//! State is the fold of facts, so a fact contains everything that `apply` needs in addition to the
//! plan. Facts contain results of decisions (a chosen branch, a computed value), which are never
//! decided again on replay.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_plan::{EdgeIndex, NodeIndex};
use sinew_protocol::Fault;
use sinew_protocol::decision::WrittenDecision;
use sinew_protocol::person_wait::PersonWait;

use crate::ask::{TaskReply, TaskRequest};
use crate::{ActivationId, ScopeId, SharedJson, Time};

/// One round of the journal: the facts of one input, decided at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// When the input was decided.
    pub at: Time,
    /// Facts that follow from the input.
    pub facts: Vec<Fact>,
}

/// One fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum Fact {
    /// The execution started.
    Started(Arc<ExecutionStart>),
    /// A child scope was opened for one item, branch or iteration of `owner`.
    Opened {
        /// The new scope; ids count from 1 (0 is the root).
        scope: ScopeId,
        /// The enclosing scope.
        parent: ScopeId,
        /// The map, loop, fork or fanning activation.
        owner: ActivationId,
        /// Position among the owner's children.
        index: u32,
        /// Item of this child.
        item: SharedJson,
    },
    /// Tokens left a node (`act` is `None` if the node died without being activated).
    Routed {
        /// The activation whose outputs are sent.
        act: Option<ActivationId>,
        /// Scope of the tokens.
        scope: ScopeId,
        /// One entry per edge that carries a live or dead token, in sending order.
        tokens: Vec<EdgeToken>,
        /// Why no token follows although there are edges.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<String>,
    },
    /// Tokens became an activation, which is now ready.
    Activated(NewActivation),
    /// A node will not run in this scope.
    Died {
        /// The node.
        node: NodeIndex,
        /// The scope.
        scope: ScopeId,
        /// Human-readable reason: the deciding edge or veto.
        reason: String,
    },
    /// A token arrived too late to have an effect.
    Dropped {
        /// The edge of the token.
        edge: EdgeIndex,
        /// Its scope.
        scope: ScopeId,
    },
    /// A ready activation was deferred because the execution waits for a person.
    Deferred {
        /// The activation.
        act: ActivationId,
        /// True for a person's node, false for work that runs after the answer.
        human: bool,
    },
    /// A deferred activation is ready again.
    Undeferred {
        /// The activation.
        act: ActivationId,
    },
    /// A ready activation started.
    Began {
        /// The activation.
        act: ActivationId,
    },
    /// A note of the dialect's adapter, for its own events and for operators.
    Noted {
        /// The activation that it concerns.
        act: Option<ActivationId>,
        /// Content in the dialect's format.
        note: Value,
    },
    /// A task was sent to an agent.
    Dispatched {
        /// The activation.
        act: ActivationId,
        /// Number of the activation's task, from 1; activation and attempt identify the task.
        attempt: u32,
        /// Number of the attempt at this request, from 1.
        tries: u32,
        /// The request.
        ask: Arc<TaskRequest>,
        /// Deadline of the attempt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Time>,
    },
    /// Progress of an agent.
    Progressed {
        /// The activation.
        act: ActivationId,
        /// Its attempt.
        attempt: u32,
        /// Content of the progress.
        value: Value,
    },
    /// An attempt ended.
    Replied {
        /// The activation.
        act: ActivationId,
        /// Its attempt.
        attempt: u32,
        /// The agent's reply, or the reason why it failed.
        #[serde(with = "crate::serde_result")]
        result: Result<Arc<TaskReply>, Fault>,
        /// Whether the same request is retried, so that the adapter does not receive this result.
        retried: bool,
        /// Tokens and cost reported by a failed attempt; null if none. A reply contains its own.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        usage: Value,
        /// Milliseconds of work as reported by the agent. For the rest of the time since the
        /// dispatch the task waited: in a queue, or for a slot in a process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        worked_ms: Option<u64>,
    },
    /// A reply arrived for a completed attempt: only the usage that it reports counts.
    Late {
        /// The activation.
        act: ActivationId,
        /// The attempt.
        attempt: u32,
        /// Tokens and cost in the reply; null if none, or if the attempt's usage is already
        /// counted.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        usage: Value,
    },
    /// The next attempt waits for its back-off.
    BackedOff {
        /// The activation.
        act: ActivationId,
        /// End of the back-off.
        until: Time,
        /// A new request that was not sent because the execution is paused; `None` if the same
        /// request is retried.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ask: Option<Arc<TaskRequest>>,
    },
    /// The activation sleeps.
    Slept {
        /// The activation.
        act: ActivationId,
        /// End of the sleep.
        until: Time,
    },
    /// The activation waits for a person.
    Awaited {
        /// The activation.
        act: ActivationId,
        /// Question for the person.
        wait: Arc<PersonRequest>,
        /// End of the wait.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Time>,
        /// Whether the timers of its owners and of the execution stop meanwhile. Facts of older
        /// versions stop none.
        #[serde(default)]
        stops_clocks: bool,
    },
    /// A callee of the running attempt starts or stops waiting for a person.
    CalleeWaits {
        /// The activation.
        act: ActivationId,
        /// Its attempt.
        attempt: u32,
        /// The callee: an execution, or an agent's name for its question.
        callee: String,
        /// Number of the report, increasing for each callee.
        number: u64,
        /// The question; `None` if the callee waits for no person.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait: Option<Arc<PersonWait>>,
    },
    /// People are reminded of the activation's open question.
    Reminded {
        /// The activation.
        act: ActivationId,
    },
    /// A person decided, or the wait timed out.
    Answered {
        /// The activation.
        act: ActivationId,
        /// The decision.
        answer: Arc<PersonAnswer>,
    },
    /// The activation waits for children.
    Fanned {
        /// The activation.
        act: ActivationId,
        /// The children to run, in addition to existing ones.
        children: Arc<Vec<ChildSpec>>,
        /// Maximum number of children that run concurrently.
        limit: Option<u32>,
        /// Whether the first failed child cancels the others.
        fail_fast: bool,
    },
    /// An activation emitted values before its end.
    Yielded {
        /// The activation.
        act: ActivationId,
        /// The values, one token per edge that carries them.
        tokens: Vec<EdgeToken>,
    },
    /// The activation succeeded.
    Completed {
        /// The activation.
        act: ActivationId,
        /// Its outputs.
        output: ActivationOutput,
        /// Whether the output was given at the start and nothing ran.
        #[serde(default)]
        reused: bool,
    },
    /// A condition prevented the activation from running; it counts as completed, with this output.
    Skipped {
        /// The activation.
        act: ActivationId,
        /// The reason.
        reason: String,
        /// Output for later nodes.
        output: ActivationOutput,
    },
    /// The activation failed.
    Failed {
        /// The activation.
        act: ActivationId,
        /// The reason.
        fault: Fault,
        /// Output for later nodes, in dialects that continue after a failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<ActivationOutput>,
    },
    /// The activation was cancelled.
    Cancelled {
        /// The activation.
        act: ActivationId,
        /// The reason.
        reason: String,
    },
    /// An operator paused the execution.
    Paused {
        /// Operator and the operator's reason.
        reason: String,
    },
    /// An operator resumed the execution.
    Resumed,
    /// A user or a parent requested cancellation.
    CancelRequested {
        /// Caller and the caller's reason.
        reason: String,
    },
    /// The graph is complete; exit nodes may follow.
    Concluded {
        /// The outcome with which it will end.
        outcome: ExecutionOutcome,
    },
    /// The execution ended. Only [`Fact::Reopened`] and [`Fact::Late`] can follow.
    Ended,
    /// A failed or cancelled execution continues after an operator's retry.
    Reopened {
        /// Activations that run again, as new activations.
        acts: Vec<ActivationId>,
        /// Nodes in the root scope whose joins are reset.
        reset: Vec<NodeIndex>,
        /// Operator and reason.
        reason: String,
        /// The execution starts again with this input, validated by the adapter: nothing from
        /// before counts, and entry nodes follow. Then `acts` and `reset` are empty.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "crate::serde_some::deserialize"
        )]
        input: Option<SharedJson>,
    },
}

/// A new activation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewActivation {
    /// Id; ids count from 0.
    pub act: ActivationId,
    /// The node.
    pub node: NodeIndex,
    /// Scope of the activation.
    pub scope: ScopeId,
    /// Scope whose inbox the tokens are taken from; differs from `scope` for fanned tokens.
    pub from: ScopeId,
    /// Number of tokens taken from the front of the inbox; all if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take: Option<u32>,
    /// The parent activation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ActivationId>,
    /// Start value of an activation that was not created by tokens (entry nodes, children, exits).
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::serde_some::deserialize"
    )]
    pub value: Option<SharedJson>,
    /// The activation that this one repeats, with its inputs, after an operator's retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<ActivationId>,
    /// Position in the queue of ready activations; the end if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// Input given by an operator: the first work request uses it instead of the adapter's input.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::serde_some::deserialize"
    )]
    pub input: Option<SharedJson>,
}

/// How an execution was started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutionStart {
    /// Digest of the plan it runs.
    pub plan: String,
    /// Its input, validated by the adapter.
    pub input: SharedJson,
    /// Settings of partial and dry runs.
    #[serde(default)]
    pub mode: ExecutionMode,
    /// Depth in a chain of sub-workflows; 0 = outermost.
    #[serde(default)]
    pub depth: u32,
    /// Names of the calling workflows, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<String>,
    /// Set if the input was rejected: the execution starts and ends as failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Fault>,
}

/// Settings of partial and dry runs. By default everything runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExecutionMode {
    /// No agent is called; nodes that would call one are recorded with a sample as output, or null.
    pub dry_run: bool,
    /// Given outputs by node id: these nodes do not run.
    pub given: std::collections::BTreeMap<String, SharedJson>,
    /// Start at these nodes instead of the plan's entry.
    pub from: Vec<String>,
    /// Start nothing after these nodes.
    pub until: Vec<String>,
    /// In a dry run: outputs of nodes by id, and of agents by name.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub samples: std::collections::BTreeMap<String, SharedJson>,
}

/// A token on an edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeToken {
    /// The edge.
    pub edge: EdgeIndex,
    /// Value of the token.
    pub value: TokenValue,
    /// Position if one edge carries several values, each of which creates an activation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fan: Option<u32>,
}

/// Value of a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenValue {
    /// The branch was not taken.
    Dead,
    /// The node failed: nodes that depend on it must not run.
    Failed,
    /// The value of the edge's port.
    Port,
    /// A value created for this edge.
    Given(SharedJson),
}

impl TokenValue {
    /// Returns whether the token carries a value.
    pub const fn is_live(&self) -> bool {
        matches!(self, Self::Port | Self::Given(_))
    }
}

/// Outputs of an activation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ActivationOutput {
    /// The node's complete output.
    pub value: SharedJson,
    /// Values by port; empty if there is only the complete output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<(String, SharedJson)>,
}

impl ActivationOutput {
    /// Creates an output without ports.
    pub fn new(value: impl Into<SharedJson>) -> Self {
        Self { value: value.into(), ports: Vec::new() }
    }

    /// Adds the value of a port.
    #[must_use]
    pub fn port(mut self, name: impl Into<String>, value: impl Into<SharedJson>) -> Self {
        self.ports.push((name.into(), value.into()));
        self
    }

    /// Returns the value at a port, or the complete output if there are no ports.
    pub fn at(&self, port: &str) -> Option<&SharedJson> {
        if self.ports.is_empty() {
            return Some(&self.value);
        }
        self.ports.iter().find(|(name, _)| name == port).map(|(_, value)| value)
    }
}

/// A child of a map, loop or fork.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildSpec {
    /// The node to run.
    pub body: NodeIndex,
    /// Item of the child.
    pub item: SharedJson,
    /// Milliseconds to wait before it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
}

/// Question for a person.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PersonRequest {
    /// Text that the person reads.
    pub prompt: String,
    /// The data to decide on.
    pub data: SharedJson,
    /// People who may decide, in the dialect's format; anyone if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
    /// Milliseconds until the adapter answers instead of the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Milliseconds until people are reminded of the question; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remind_ms: Option<u64>,
    /// Whether only yes or no answers the question; data may accompany the decision.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub decision: bool,
    /// Approvals by other people that the question already has, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<PersonAnswer>,
}

/// A person's decision, or the timeout of the wait for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PersonAnswer {
    /// The decision as given; null after a timeout.
    pub data: Value,
    /// Whether the wait timed out.
    #[serde(default)]
    pub timed_out: bool,
    /// Person who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Comment of the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Whether the person approved or rejected explicitly, apart from the data; `None` if only the
    /// data contains the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<bool>,
}

impl From<WrittenDecision> for PersonAnswer {
    /// A decision without data has `approve` or `reject` as its data.
    fn from(WrittenDecision { approved, comment, data }: WrittenDecision) -> Self {
        let data = match data {
            Value::Null => serde_json::json!(if approved { "approve" } else { "reject" }),
            data => data,
        };
        Self { data, comment, approved: Some(approved), ..Self::default() }
    }
}

/// Outcome of an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutionOutcome {
    /// The terminal state.
    pub status: TerminalStatus,
    /// The output after a success, and in some dialects after a failure.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::serde_some::deserialize"
    )]
    pub output: Option<SharedJson>,
    /// The reason why it failed or was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// The activation that failed first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<ActivationId>,
}

/// A terminal state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TerminalStatus {
    /// It succeeded.
    Success,
    /// It failed.
    Failure,
    /// A user or a parent cancelled it.
    Cancelled,
}

impl TerminalStatus {
    /// Returns the name that operators see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Cancelled => "cancelled",
        }
    }
}
