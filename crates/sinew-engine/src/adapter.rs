//! What a dialect tells the engine: one adapter per dialect, no I/O.
//!
//! The engine calls these hooks while it decides. They read the [`Ctx`] and say what is next; they never change
//! state, schedule, wait or persist. What they say becomes facts, so a hook is never asked twice for one decision.

use std::sync::Arc;

use serde_json::Value;
use sinew_plan::{EdgeIx, NodeIx, Plan};
use sinew_protocol::Fault;

use crate::ask::Ask;
use crate::ctx::Ctx;
use crate::fact::{Answer, Child, Fact, Output, TokenValue, Wait};
use crate::{ActId, Val};

/// What an activation does next.
#[derive(Clone, Debug)]
pub enum Step {
    /// Ask an agent, or have scripts evaluated ([`Ask::evaluation`]); [`Adapter::shape`] sees the reply.
    Ask(Box<Ask>),
    /// Run children; [`Adapter::gather`] is called when all have ended (or one failed and `fail_fast`).
    Fan {
        /// The children, in order. Empty = gather at once.
        children: Vec<Child>,
        /// Children that may run at the same time.
        limit: Option<u32>,
        /// Whether the first failed child ends the others.
        fail_fast: bool,
    },
    /// Wait for a person; [`Adapter::answer`] sees the decision.
    Wait(Box<Wait>),
    /// Sleep so many milliseconds; [`Adapter::wake`] is called then.
    Sleep(u64),
    /// Done, with these outputs.
    Done(Output),
    /// A gate says no: done without work, with these outputs.
    Skip {
        /// Why, for people.
        reason: String,
        /// What later nodes see.
        output: Output,
    },
    /// Failed. A retryable fault is tried again if the node's retry policy allows.
    Fail(Fault),
    /// Failed, with outputs for dialects that go on after a failure.
    FailWith(Fault, Output),
}

impl From<Result<Step, Fault>> for Step {
    fn from(result: Result<Step, Fault>) -> Self {
        result.unwrap_or_else(Step::Fail)
    }
}

/// Where the tokens of a finished activation go.
#[derive(Clone, Debug)]
pub enum Select {
    /// An edge is live if the output has its port; the engine's own rule.
    Ports,
    /// These tokens; edges not named are dead.
    Tokens(Vec<Send>),
    /// Ask an agent (tag it [`Ask::ROUTE`]), or have scripts evaluated ([`Ask::evaluation`]); [`Adapter::select`] is
    /// called again with the reply.
    Ask(Box<Ask>),
    /// No token leaves; the reason is recorded.
    End(String),
    /// The edges cannot be evaluated: the activation counts as failed.
    Fail(Fault),
}

/// A token to send.
#[derive(Clone, Debug)]
pub struct Send {
    /// The edge.
    pub edge: EdgeIx,
    /// What it carries.
    pub value: TokenValue,
    /// Set (to the position) when each value on this edge makes an activation of its own.
    pub fan: Option<u32>,
}

impl Send {
    /// The value of the edge's port.
    pub fn port(edge: EdgeIx) -> Self {
        Self { edge, value: TokenValue::Port, fan: None }
    }

    /// A value made for this edge.
    pub fn given(edge: EdgeIx, value: impl Into<Val>) -> Self {
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

    /// What a ready activation does first.
    fn bind(&self, ctx: &Ctx<'_>, act: ActId) -> Step;

    /// What follows a reply (the last of the activation's replies). By default the output is the result.
    fn shape(&self, ctx: &Ctx<'_>, act: ActId) -> Step {
        match ctx.act(act).replies.last().map(|replied| &replied.result) {
            Some(Ok(reply)) => Step::Done(Output::new(Arc::clone(&reply.output))),
            Some(Err(fault)) => Step::Fail(fault.clone()),
            None => Step::Done(Output::default()),
        }
    }

    /// What follows when the children ended. By default: the first failed child's fault, else `{"results": […]}`.
    fn gather(&self, ctx: &Ctx<'_>, act: ActId) -> Step {
        if let Some(fault) = ctx.child_fault(act) {
            return Step::Fail(fault.clone());
        }
        let results: Vec<Value> = ctx.child_outputs(act).map(|value| Value::clone(&value)).collect();
        Step::Done(Output::new(serde_json::json!({ "results": results })))
    }

    /// What follows a person's answer. By default it is the output.
    fn answer(&self, _ctx: &Ctx<'_>, _act: ActId, answer: &Answer) -> Step {
        Step::Done(Output::new(answer.data.clone()))
    }

    /// What follows sleep. By default: done, with null.
    fn wake(&self, _ctx: &Ctx<'_>, _act: ActId) -> Step {
        Step::Done(Output::default())
    }

    /// Where the tokens go. Called for ended activations (failed ones only where the profile routes on).
    fn select(&self, _ctx: &Ctx<'_>, _act: ActId) -> Select {
        Select::Ports
    }

    /// The output of an execution whose graph is done.
    fn result(&self, ctx: &Ctx<'_>) -> Result<Value, Fault>;

    /// Returns the output of an execution that failed or was cancelled. By default it has none.
    fn failed_output(&self, _ctx: &Ctx<'_>) -> Option<Value> {
        None
    }

    /// Words a failure for the execution's outcome (`act` failed with `fault`).
    fn failure(&self, ctx: &Ctx<'_>, act: ActId, fault: &Fault) -> Fault {
        let node = &ctx.node_of(act).id;
        Fault { message: format!("node '{node}' failed: {}", fault.message), ..fault.clone() }
    }

    /// The dialect's own events for a fact that was just applied. Pure: the journal gives them again.
    fn project(&self, _ctx: &Ctx<'_>, _fact: &Fact) -> Vec<NativeEvent> {
        Vec::new()
    }

    /// The dialect's own result object, at any time.
    fn native_result(&self, ctx: &Ctx<'_>) -> Value {
        match ctx.outcome() {
            Some(outcome) => serde_json::to_value(outcome).unwrap_or(Value::Null),
            None => Value::Null,
        }
    }
}

/// Edges of `node` that carry flow, in sending order.
pub fn out_edges(ctx: &Ctx<'_>, node: NodeIx) -> impl Iterator<Item = EdgeIx> {
    ctx.graph.out_edges(node).iter().copied()
}
