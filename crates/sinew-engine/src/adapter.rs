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
    /// Ask an agent, or have scripts evaluated ([`TaskRequest::evaluation`]); [`Adapter::shape`] sees the reply.
    Ask(Box<TaskRequest>),
    /// Run children; [`Adapter::gather`] is called when all have ended (or one failed and `fail_fast`).
    Fan {
        /// The children, in order. Empty = gather at once.
        children: Vec<ChildSpec>,
        /// Children that may run at the same time.
        limit: Option<u32>,
        /// Whether the first failed child ends the others.
        fail_fast: bool,
    },
    /// Wait for a person; [`Adapter::answer`] sees the decision.
    Wait(Box<PersonRequest>),
    /// Sleep so many milliseconds; [`Adapter::wake`] is called then.
    Sleep(u64),
    /// Done, with these outputs.
    Done(ActivationOutput),
    /// A gate says no: done without work, with these outputs.
    Skip {
        /// Why, for people.
        reason: String,
        /// Output that later nodes see.
        output: ActivationOutput,
    },
    /// Failed. A retryable fault is tried again if the node's retry policy allows.
    Fail(Fault),
    /// Failed, with outputs for dialects that go on after a failure.
    FailWith(Fault, ActivationOutput),
}

impl From<Result<NodeDecision, Fault>> for NodeDecision {
    fn from(result: Result<NodeDecision, Fault>) -> Self {
        result.unwrap_or_else(NodeDecision::Fail)
    }
}

/// Where the tokens of a finished activation go.
#[derive(Clone, Debug)]
pub enum RouteDecision {
    /// An edge is live if the output has its port; the engine's own rule.
    Ports,
    /// These tokens; edges not named are dead.
    Tokens(Vec<OutgoingToken>),
    /// Ask an agent (tag it [`TaskRequest::ROUTE`]), or have scripts evaluated ([`TaskRequest::evaluation`]); [`Adapter::select`] is
    /// called again with the reply.
    Ask(Box<TaskRequest>),
    /// No token leaves; the reason is recorded.
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
    /// Set (to the position) when each value on this edge makes an activation of its own.
    pub fan: Option<u32>,
}

impl OutgoingToken {
    /// The value of the edge's port.
    pub fn port(edge: EdgeIndex) -> Self {
        Self { edge, value: TokenValue::Port, fan: None }
    }

    /// A value made for this edge.
    pub fn given(edge: EdgeIndex, value: impl Into<SharedJson>) -> Self {
        Self { edge, value: TokenValue::Given(value.into()), fan: None }
    }
}

/// One of a dialect's own events.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeEvent {
    /// As one line, the way the dialect's users write it.
    pub line: String,
    /// As the dialect's own JSON.
    pub json: Value,
}

/// A dialect, as the engine sees it.
pub trait Adapter: std::marker::Send + Sync {
    /// The dialect's name.
    fn name(&self) -> &'static str;

    /// Checks the input of an execution and fills in defaults.
    fn admit(&self, _plan: &Plan, input: Value) -> Result<Value, Fault> {
        Ok(input)
    }

    /// Returns the first step of a ready activation.
    fn bind(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision;

    /// Returns the step after a reply, which is the activation's last reply. By default the output is the result.
    fn shape(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        match ctx.act(act).replies.last().map(|replied| &replied.result) {
            Some(Ok(reply)) => NodeDecision::Done(ActivationOutput::new(Arc::clone(&reply.output))),
            Some(Err(fault)) => NodeDecision::Fail(fault.clone()),
            None => NodeDecision::Done(ActivationOutput::default()),
        }
    }

    /// Returns the step after the children ended. By default: the first failed child's fault, else `{"results": […]}`.
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

    /// Returns the step after sleep. By default: done, with null.
    fn wake(&self, _ctx: &AdapterContext<'_>, _act: ActivationId) -> NodeDecision {
        NodeDecision::Done(ActivationOutput::default())
    }

    /// Where the tokens go. Called for ended activations (failed ones only where the profile routes on).
    fn select(&self, _ctx: &AdapterContext<'_>, _act: ActivationId) -> RouteDecision {
        RouteDecision::Ports
    }

    /// The output of an execution whose graph is done.
    fn result(&self, ctx: &AdapterContext<'_>) -> Result<Value, Fault>;

    /// Returns the output of an execution that failed or was cancelled. By default it has none.
    fn failed_output(&self, _ctx: &AdapterContext<'_>) -> Option<Value> {
        None
    }

    /// Returns the conditions of a begun node with the values that they name, for people. By default there are none; nothing is
    /// decided here.
    fn conditions(&self, _ctx: &AdapterContext<'_>, _act: ActivationId) -> Vec<SeenCondition> {
        Vec::new()
    }

    /// Words a failure for the execution's outcome (`act` failed with `fault`).
    fn failure(&self, ctx: &AdapterContext<'_>, act: ActivationId, fault: &Fault) -> Fault {
        let node = &ctx.node_of(act).id;
        Fault { message: format!("node '{node}' failed: {}", fault.message), ..fault.clone() }
    }

    /// The dialect's own events for a fact that was just applied. Pure: the journal gives them again.
    fn project(&self, _ctx: &AdapterContext<'_>, _fact: &Fact) -> Vec<NativeEvent> {
        Vec::new()
    }

    /// The dialect's own result object, at any time.
    fn native_result(&self, ctx: &AdapterContext<'_>) -> Value {
        match ctx.outcome() {
            Some(outcome) => serde_json::to_value(outcome).unwrap_or(Value::Null),
            None => Value::Null,
        }
    }
}

/// Edges of `node` that carry flow, in sending order.
pub fn out_edges(ctx: &AdapterContext<'_>, node: NodeIndex) -> impl Iterator<Item = EdgeIndex> {
    ctx.graph.out_edges(node).iter().copied()
}
