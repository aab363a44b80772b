//! Hooks for decisions of a dialect: one adapter per dialect, without I/O.
//!
//! The engine calls these hooks while it decides. They read the [`AdapterContext`] and return the
//! next step; they never change state, schedule, wait or persist. Their results become facts, so a
//! hook is never called twice for one decision.

use std::sync::Arc;

use serde_json::Value;
use sinew_plan::{EdgeIndex, NodeIndex, Plan};
use sinew_protocol::Fault;

use crate::ask::TaskRequest;
use crate::ctx::AdapterContext;
use crate::fact::{ActivationOutput, ChildSpec, Fact, PersonAnswer, PersonRequest, TokenValue};
use crate::seen_condition::SeenCondition;
use crate::{ActivationId, SharedJson};

/// Next step of an activation.
#[derive(Clone, Debug)]
pub enum NodeDecision {
    /// Call an agent, or have scripts evaluated ([`TaskRequest::evaluation`]); [`Adapter::shape`]
    /// receives the reply.
    Ask(Box<TaskRequest>),
    /// Run children; [`Adapter::gather`] is called when all have ended (or one failed and `fail_fast`).
    Fan {
        /// The children in order. An empty list gathers immediately.
        children: Vec<ChildSpec>,
        /// Maximum number of children that run concurrently.
        limit: Option<u32>,
        /// Whether the first failed child cancels the others.
        fail_fast: bool,
    },
    /// Wait for a person; [`Adapter::answer`] receives the decision.
    Wait(Box<PersonRequest>),
    /// Sleep this number of milliseconds; [`Adapter::wake`] is called afterwards.
    Sleep(u64),
    /// Complete with these outputs.
    Done(ActivationOutput),
    /// A condition prevents the activation from running: complete without work, with these outputs.
    Skip {
        /// Human-readable reason.
        reason: String,
        /// Output for later nodes.
        output: ActivationOutput,
    },
    /// Fail. A retryable fault is retried if the node's retry policy allows it.
    Fail(Fault),
    /// Fail, with outputs for dialects that continue after a failure.
    FailWith(Fault, ActivationOutput),
}

impl From<Result<NodeDecision, Fault>> for NodeDecision {
    fn from(result: Result<NodeDecision, Fault>) -> Self {
        result.unwrap_or_else(NodeDecision::Fail)
    }
}

/// Destination of an ended activation's tokens.
#[derive(Clone, Debug)]
pub enum RouteDecision {
    /// An edge is live if the output has its port; the engine's default rule.
    Ports,
    /// These tokens; edges not named are dead.
    Tokens(Vec<OutgoingToken>),
    /// Call an agent (tag it [`TaskRequest::ROUTE`]), or have scripts evaluated
    /// ([`TaskRequest::evaluation`]); [`Adapter::select`] is called again with the reply.
    Ask(Box<TaskRequest>),
    /// Send no token; the reason is recorded.
    End(String),
    /// The edges cannot be evaluated: the activation counts as failed.
    Fail(Fault),
}

/// A token to send.
#[derive(Clone, Debug)]
pub struct OutgoingToken {
    /// The edge.
    pub edge: EdgeIndex,
    /// Value of the token.
    pub value: TokenValue,
    /// Set to the position if each value on this edge creates an activation.
    pub fan: Option<u32>,
}

impl OutgoingToken {
    /// Creates a token with the value of the edge's port.
    pub fn port(edge: EdgeIndex) -> Self {
        Self { edge, value: TokenValue::Port, fan: None }
    }

    /// Creates a token with a value for this edge.
    pub fn given(edge: EdgeIndex, value: impl Into<SharedJson>) -> Self {
        Self { edge, value: TokenValue::Given(value.into()), fan: None }
    }
}

/// An event of a dialect.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeEvent {
    /// One line, in the format of the dialect's users.
    pub line: String,
    /// JSON in the dialect's format.
    pub json: Value,
}

/// Interface of a dialect for the engine.
pub trait Adapter: std::marker::Send + Sync {
    /// Returns the dialect's name.
    fn name(&self) -> &'static str;

    /// Validates the input of an execution and adds defaults.
    fn admit(&self, _plan: &Plan, input: Value) -> Result<Value, Fault> {
        Ok(input)
    }

    /// Returns the first step of a ready activation.
    fn bind(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision;

    /// Returns the step after a reply, which is the activation's last reply. By default the output
    /// is the result.
    fn shape(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        match ctx.act(act).replies.last().map(|replied| &replied.result) {
            Some(Ok(reply)) => NodeDecision::Done(ActivationOutput::new(Arc::clone(&reply.output))),
            Some(Err(fault)) => NodeDecision::Fail(fault.clone()),
            None => NodeDecision::Done(ActivationOutput::default()),
        }
    }

    /// Returns the step after the children ended. By default the first failed child's fault,
    /// otherwise `{"results": […]}`.
    fn gather(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        if let Some(fault) = ctx.child_fault(act) {
            return NodeDecision::Fail(fault.clone());
        }
        let results: Vec<Value> = ctx.child_outputs(act).map(|value| Value::clone(&value)).collect();
        NodeDecision::Done(ActivationOutput::new(serde_json::json!({ "results": results })))
    }

    /// Returns the step after a person's answer. By default the answer is the output.
    fn answer(&self, _ctx: &AdapterContext<'_>, _act: ActivationId, answer: &PersonAnswer) -> NodeDecision {
        NodeDecision::Done(ActivationOutput::new(answer.data.clone()))
    }

    /// Returns the step after a sleep. By default completes with null.
    fn wake(&self, _ctx: &AdapterContext<'_>, _act: ActivationId) -> NodeDecision {
        NodeDecision::Done(ActivationOutput::default())
    }

    /// Returns the destination of the tokens. Called for ended activations (failed ones only if the
    /// profile routes them).
    fn select(&self, _ctx: &AdapterContext<'_>, _act: ActivationId) -> RouteDecision {
        RouteDecision::Ports
    }

    /// Returns the output of an execution whose graph is complete.
    fn result(&self, ctx: &AdapterContext<'_>) -> Result<Value, Fault>;

    /// Returns the output of an execution that failed or was cancelled. By default it has none.
    fn failed_output(&self, _ctx: &AdapterContext<'_>) -> Option<Value> {
        None
    }

    /// Returns the conditions of a started node with the values that they name, for display. By
    /// default there are none; nothing is decided here.
    fn conditions(&self, _ctx: &AdapterContext<'_>, _act: ActivationId) -> Vec<SeenCondition> {
        Vec::new()
    }

    /// Formats a failure for the execution's outcome (`act` failed with `fault`).
    fn failure(&self, ctx: &AdapterContext<'_>, act: ActivationId, fault: &Fault) -> Fault {
        let node = &ctx.node_of(act).id;
        Fault { message: format!("node '{node}' failed: {}", fault.message), ..fault.clone() }
    }

    /// Returns the dialect's events for a fact that was just applied. Must be pure, because a
    /// replay of the journal repeats them.
    fn project(&self, _ctx: &AdapterContext<'_>, _fact: &Fact) -> Vec<NativeEvent> {
        Vec::new()
    }

    /// Returns the dialect's own result object, at any time.
    fn native_result(&self, ctx: &AdapterContext<'_>) -> Value {
        match ctx.outcome() {
            Some(outcome) => serde_json::to_value(outcome).unwrap_or(Value::Null),
            None => Value::Null,
        }
    }
}

/// Returns the flow edges that leave `node`, in sending order.
pub fn out_edges(ctx: &AdapterContext<'_>, node: NodeIndex) -> impl Iterator<Item = EdgeIndex> {
    ctx.graph.out_edges(node).iter().copied()
}
