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
use sinew_protocol::person_wait::PersonWait;

use crate::ask::{TaskReply, TaskRequest};
use crate::{ActivationId, ScopeId, SharedJson, Time};

/// One round of the journal: the facts of one input, decided at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// When the input was decided.
    pub at: Time,
    /// Facts that followed from it.
    pub facts: Vec<Fact>,
}

/// One fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum Fact {
    /// The execution began.
    Started(Arc<ExecutionStart>),
    /// A child scope was opened for one item, branch or iteration of `owner`.
    Opened {
        /// The new scope; ids count up from 1 (0 is the root).
        scope: ScopeId,
        /// The scope it lies in.
        parent: ScopeId,
        /// The map, loop, fork or fanning activation.
        owner: ActivationId,
        /// Position among the owner's children.
        index: u32,
        /// Item of this child.
        item: SharedJson,
    },
    /// Tokens left a node (`act` is none when the node died without being activated).
    Routed {
        /// The activation whose outputs travel.
        act: Option<ActivationId>,
        /// Scope of the tokens.
        scope: ScopeId,
        /// One entry per edge that carries a live or dead token, in sending order.
        tokens: Vec<EdgeToken>,
        /// Why the walk ends here, if it does although there are edges.
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
        /// For people: which edge or veto decided it.
        reason: String,
    },
    /// A token came too late to matter.
    Dropped {
        /// The edge it came on.
        edge: EdgeIndex,
        /// Its scope.
        scope: ScopeId,
    },
    /// A ready activation was put aside because a person is waited for.
    Deferred {
        /// The activation.
        act: ActivationId,
        /// True for a waiting person's node, false for work that runs after the answer.
        human: bool,
    },
    /// A deferred activation is ready again.
    Undeferred {
        /// The activation.
        act: ActivationId,
    },
    /// A ready activation began.
    Began {
        /// The activation.
        act: ActivationId,
    },
    /// A note of the dialect's adapter, for its own events and for operators.
    Noted {
        /// The activation it is about.
        act: Option<ActivationId>,
        /// The dialect's own words.
        note: Value,
    },
    /// A task was sent to an agent.
    Dispatched {
        /// The activation.
        act: ActivationId,
        /// Counts the tasks of this activation from 1; with the activation it names the task.
        attempt: u32,
        /// Counts the attempts at this ask from 1.
        tries: u32,
        /// The request.
        ask: Arc<TaskRequest>,
        /// When the attempt is given up.
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
        /// The agent's answer, or why there is none.
        #[serde(with = "crate::serde_result")]
        result: Result<Arc<TaskReply>, Fault>,
        /// True if the same ask is tried again, so the adapter does not see this result.
        retried: bool,
        /// Tokens and cost that a failed attempt told; null if it told none. Those of an answer are in the answer.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        usage: Value,
        /// Milliseconds of work, as the agent reports them. The rest of the time since the dispatch the task waited: in a
        /// queue, or for a place in a process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        worked_ms: Option<u64>,
    },
    /// An answer arrived for an attempt that is over: only the usage that it reports counts.
    Late {
        /// The activation.
        act: ActivationId,
        /// The attempt.
        attempt: u32,
        /// Tokens and cost that the answer reports; null if it reports none, or if those of the attempt are counted.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        usage: Value,
    },
    /// The next attempt waits.
    BackedOff {
        /// The activation.
        act: ActivationId,
        /// Until then.
        until: Time,
        /// A new ask that was not sent because the execution is paused; none when the same ask is tried again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ask: Option<Arc<TaskRequest>>,
    },
    /// The activation sleeps.
    Slept {
        /// The activation.
        act: ActivationId,
        /// Until then.
        until: Time,
    },
    /// The activation waits for a person.
    Awaited {
        /// The activation.
        act: ActivationId,
        /// Question for the person who decides.
        wait: Arc<PersonRequest>,
        /// When waiting ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Time>,
        /// Whether the clocks of its owners and of the execution stop meanwhile. Facts of older versions stop none.
        #[serde(default)]
        stops_clocks: bool,
    },
    /// A callee of the running attempt waits for a person, or does not any more.
    CalleeWaits {
        /// The activation.
        act: ActivationId,
        /// Its attempt.
        attempt: u32,
        /// The callee: an execution, or the name that an agent gave to its question.
        callee: String,
        /// Number of the report; those of a callee only grow.
        number: u64,
        /// The question; `None` when the callee waits for no person.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait: Option<Arc<PersonWait>>,
    },
    /// A person decided, or the wait ran out.
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
        /// The children to run, added to those there are.
        children: Arc<Vec<ChildSpec>>,
        /// Children that may run at the same time.
        limit: Option<u32>,
        /// Whether the first failed child ends the others.
        fail_fast: bool,
    },
    /// An activation emitted values before its end.
    Yielded {
        /// The activation.
        act: ActivationId,
        /// The values, one token per edge that carries them.
        tokens: Vec<EdgeToken>,
    },
    /// The activation ended well.
    Completed {
        /// The activation.
        act: ActivationId,
        /// Its outputs.
        output: ActivationOutput,
        /// True if the output was given at the start and nothing was run.
        #[serde(default)]
        reused: bool,
    },
    /// A gate kept the activation from running; it counts as done, with this output.
    Skipped {
        /// The activation.
        act: ActivationId,
        /// Why.
        reason: String,
        /// Output that later nodes see.
        output: ActivationOutput,
    },
    /// The activation failed.
    Failed {
        /// The activation.
        act: ActivationId,
        /// Why.
        fault: Fault,
        /// Output that later nodes see, in dialects that continue after a failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<ActivationOutput>,
    },
    /// The activation was given up.
    Cancelled {
        /// The activation.
        act: ActivationId,
        /// Why.
        reason: String,
    },
    /// An operator paused the execution.
    Paused {
        /// Operator and reason, in their words.
        reason: String,
    },
    /// An operator resumed it.
    Resumed,
    /// A user or a parent requested cancellation.
    CancelRequested {
        /// Caller and reason, in their words.
        reason: String,
    },
    /// The graph is done; exit nodes may follow.
    Concluded {
        /// The outcome it will end with.
        outcome: ExecutionOutcome,
    },
    /// The execution ended. Nothing but [`Fact::Reopened`] and [`Fact::Late`] follows.
    Ended,
    /// A failed or cancelled execution goes on after an operator's retry.
    Reopened {
        /// Activations that run again (as new activations).
        acts: Vec<ActivationId>,
        /// Nodes in the root scope whose joins start afresh.
        reset: Vec<NodeIndex>,
        /// Operator and reason.
        reason: String,
        /// The execution begins afresh with this input, admitted by the adapter: nothing of before counts any more, and
        /// entry nodes follow. Then `acts` and `reset` are empty.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "crate::serde_some::deserialize"
        )]
        input: Option<SharedJson>,
    },
}

/// An activation as it is made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewActivation {
    /// Ids count up from 0.
    pub act: ActivationId,
    /// The node.
    pub node: NodeIndex,
    /// Scope of the activation.
    pub scope: ScopeId,
    /// Scope whose inbox the tokens are taken from (differs from `scope` for fanned tokens).
    pub from: ScopeId,
    /// How many tokens are taken from the front of the inbox; all of them when none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take: Option<u32>,
    /// The activation whose child this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ActivationId>,
    /// Start value for activations no token made (entry nodes, children, exits).
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::serde_some::deserialize"
    )]
    pub value: Option<SharedJson>,
    /// The activation this one repeats, inputs included, after an operator's retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<ActivationId>,
    /// Place in the queue of ready activations; the end when none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// The input that an operator gave: the first ask of work has it instead of what the adapter binds.
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
    /// Its input, admitted by the adapter.
    pub input: SharedJson,
    /// Partial and dry runs.
    #[serde(default)]
    pub mode: ExecutionMode,
    /// Depth in a chain of sub-workflows; 0 = outermost.
    #[serde(default)]
    pub depth: u32,
    /// Names of the workflows above, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<String>,
    /// Set if the input was refused: the execution starts and ends failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Fault>,
}

/// Partial and dry runs. The default runs everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExecutionMode {
    /// No agent is called; nodes that would call one are noted and their output is null.
    pub dry_run: bool,
    /// Outputs taken as given, by node id: these nodes are not run.
    pub given: std::collections::BTreeMap<String, SharedJson>,
    /// Start at these nodes instead of the plan's entry.
    pub from: Vec<String>,
    /// Start nothing after these nodes.
    pub until: Vec<String>,
}

/// A token on an edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeToken {
    /// The edge.
    pub edge: EdgeIndex,
    /// Value of the token.
    pub value: TokenValue,
    /// Position, when one edge carries several values and each makes an activation of its own.
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
    /// A value made for this edge.
    Given(SharedJson),
}

impl TokenValue {
    /// True if the token carries a value.
    pub const fn is_live(&self) -> bool {
        matches!(self, Self::Port | Self::Given(_))
    }
}

/// Outputs of an activation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ActivationOutput {
    /// The node's output as a whole.
    pub value: SharedJson,
    /// Values by port; empty when the whole output is all there is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<(String, SharedJson)>,
}

impl ActivationOutput {
    /// An output without ports.
    pub fn new(value: impl Into<SharedJson>) -> Self {
        Self { value: value.into(), ports: Vec::new() }
    }

    /// Adds the value of a port.
    #[must_use]
    pub fn port(mut self, name: impl Into<String>, value: impl Into<SharedJson>) -> Self {
        self.ports.push((name.into(), value.into()));
        self
    }

    /// The value at a port; the whole output when there are no ports.
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
    /// The data to judge.
    pub data: SharedJson,
    /// Persons who may decide, in the dialect's words; anyone when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
    /// Milliseconds until the adapter is asked to answer for the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// A person's decision, or the end of waiting for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PersonAnswer {
    /// The decision as it was given; null when the wait ran out.
    pub data: Value,
    /// True if the wait ran out.
    #[serde(default)]
    pub timed_out: bool,
    /// Person who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Comment of the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// How an execution ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutionOutcome {
    /// The terminal state.
    pub status: TerminalStatus,
    /// The output, on success (and in dialects that give one on failure).
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::serde_some::deserialize"
    )]
    pub output: Option<SharedJson>,
    /// Why it failed or was cancelled.
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
    /// It did what it was meant to.
    Success,
    /// It did not.
    Failure,
    /// A user or a parent cancelled it.
    Cancelled,
}

impl TerminalStatus {
    /// The word operators see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Cancelled => "cancelled",
        }
    }
}
