//! A task of an execution with all data for a request to an agent.

use sinew_protocol::code;
use std::sync::Arc;

use sinew_engine::{ActivationId, AdapterContext, ExecutionState, TaskRequest, Time};
use sinew_plan::{NodeOperation, Plan, PlanLimits};
use sinew_protocol::{ActivationKey, ExecutionId, Fault, TaskId};

use crate::program::Program;

/// Workflows call each other in a cycle.
const CALL_CYCLE: &str = code::CALL_CYCLE.as_str();

/// Identifies a task among executions in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKey {
    /// Index of the execution; 0 is the requested one.
    pub run: usize,
    /// The activation.
    pub act: ActivationId,
    /// The attempt.
    pub attempt: u32,
}

/// A task as an agent receives it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Identifies the task among executions in one process.
    pub key: TaskKey,
    /// Task id, the same for every delivery of the attempt.
    pub task: TaskId,
    /// Activation key, the same for all attempts.
    pub activation: ActivationKey,
    /// The execution.
    pub execution: ExecutionId,
    /// The workflow's name.
    pub workflow: String,
    /// The node's id.
    pub node: String,
    /// Enclosing owners and positions, outermost first.
    pub path: Vec<(String, u32)>,
    /// Name of the activation in events: see [`label`].
    pub label: String,
    /// Depth of the task in a chain of workflows.
    pub depth: u32,
    /// Number of attempts at this request so far, including this one.
    pub tries: u32,
    /// The request.
    pub ask: Arc<TaskRequest>,
    /// Deadline of the attempt.
    pub deadline: Option<Time>,
}

/// Returns the task of one attempt.
pub fn call_of(
    execution: &ExecutionId,
    program: &Program,
    state: &ExecutionState,
    key: TaskKey,
    ask: Arc<TaskRequest>,
    deadline: Option<Time>,
) -> Call {
    let activation = activation_key(execution, program.graph.plan(), state, key.act);
    let task = TaskId::of(execution, &activation, key.attempt);
    call_with_ids(execution, program, state, key, (activation, task), ask, deadline)
}

/// Returns the task of one attempt whose ids are known.
pub fn call_with_ids(
    execution: &ExecutionId,
    program: &Program,
    state: &ExecutionState,
    key: TaskKey,
    (activation, task): (ActivationKey, TaskId),
    ask: Arc<TaskRequest>,
    deadline: Option<Time>,
) -> Call {
    let one = state.act(key.act);
    Call {
        key,
        task,
        activation,
        execution: execution.clone(),
        workflow: program.name().to_owned(),
        node: program.graph.plan().node(one.node).id.clone(),
        path: path(program.graph.plan(), state, key.act),
        label: label(&sinew_engine::AdapterContext::new(&program.graph, state, state.at), key.act),
        depth: state.start.as_ref().map_or(0, |start| start.depth) + 1,
        tries: one.tries,
        ask,
        deadline,
    }
}

/// Returns the owners and positions that enclose an activation, outermost first.
pub fn path(plan: &Plan, state: &ExecutionState, act: ActivationId) -> Vec<(String, u32)> {
    let mut path = Vec::new();
    let mut scope = state.act(act).scope;
    while let Some(inner) = state.scope(scope) {
        path.push((plan.node(state.act(inner.owner).node).id.clone(), inner.index));
        scope = inner.parent;
    }
    path.reverse();
    path
}

/// Returns the key of an activation: its node, its path, and its ordinal in its scope.
pub fn activation_key(
    execution: &ExecutionId,
    plan: &Plan,
    state: &ExecutionState,
    act: ActivationId,
) -> ActivationKey {
    let one = state.act(act);
    ActivationKey::of(execution, &plan.node(one.node).id, &key_path(plan, state, act), one.ordinal)
}

/// Returns the id of the task of an activation's attempt.
pub fn task_id(
    execution: &ExecutionId,
    plan: &Plan,
    state: &ExecutionState,
    act: ActivationId,
    attempt: u32,
) -> TaskId {
    TaskId::of(execution, &activation_key(execution, plan, state, act), attempt)
}

/// Returns the owners and positions that enclose an activation, for its key. Child scopes count
/// their activations from 0, so a map that runs again, in a cycle or by an operator's retry, adds
/// its own ordinal.
fn key_path<'a>(plan: &'a Plan, state: &ExecutionState, act: ActivationId) -> Vec<(&'a str, u32)> {
    let mut path = Vec::new();
    let mut scope = state.act(act).scope;
    while let Some(inner) = state.scope(scope) {
        let owner = state.act(inner.owner);
        if owner.ordinal > 0 {
            // No node has an empty id.
            path.push(("", owner.ordinal));
        }
        path.push((plan.node(owner.node).id.as_str(), inner.index));
        scope = inner.parent;
    }
    path.reverse();
    path
}

/// Returns why a start that closes a cycle of workflows is rejected, or `None` if it is allowed.
///
/// A plan with its own depth limit allows recursion, so only its depth limit applies.
pub fn call_cycle(program: &Program, chain: &[String]) -> Option<Fault> {
    let name = program.name();
    let bounded = program.graph.plan().limits.depth != PlanLimits::default().depth;
    if bounded || !chain.iter().any(|above| above == name) {
        return None;
    }
    let shown: Vec<&str> = chain.iter().map(String::as_str).chain([name]).collect();
    let shown: String = shown.join(" -> ").chars().filter(|c| !c.is_control()).take(1_000).collect();
    Some(Fault::invalid(CALL_CYCLE, format!("workflows call each other in a cycle: {shown}")))
}

/// Returns the name of an activation in events: the node's id, with the position for children of
/// maps and loops.
pub fn label(ctx: &AdapterContext<'_>, act: ActivationId) -> String {
    let one = ctx.act(act);
    let own = &ctx.plan().node(one.node).id;
    let Some(scope) = one.owner.and_then(|_| ctx.state.scope(one.scope)) else { return own.clone() };
    let owner = label(ctx, scope.owner);
    match ctx.node_of(scope.owner).op {
        NodeOperation::Map { .. } => format!("{owner}_{}", scope.index),
        NodeOperation::Loop { .. } => format!("{owner}_iter_{}", scope.index),
        _ => own.clone(),
    }
}
