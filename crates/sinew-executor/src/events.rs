//! The mesh protocol events of an execution: a projection of its facts, the same for every dialect.
//!
//! (`spec/1-agent-mesh-workflows.md`, "Workflow Protocol Messages".) Unlike the source's engine, a failed or
//! skipped node gets its result event too.

use serde_json::{Value, json};
use sinew_engine::{ActivationEnd, ActivationId, AdapterContext, Fact, ROOT, TerminalStatus};
use sinew_plan::{NodeIndex, NodeOperation};
use sinew_protocol::message::{
    MapStatus, MeshMessage, Outcome, WorkflowExecutionResultData, WorkflowExecutionStartData,
    WorkflowMapProgressData, WorkflowNodeExecutionResultData, WorkflowNodeExecutionStartData,
};
use sinew_protocol::{ArtifactRef, ExecutionId};

/// Events of one fact that was just applied, in order.
pub fn project(ctx: &AdapterContext<'_>, execution: &ExecutionId, fact: &Fact) -> Vec<MeshMessage> {
    match fact {
        Fact::Started(start) => vec![
            WorkflowExecutionStartData {
                workflow_name: ctx.plan().name.clone(),
                execution_id: execution.as_str().to_owned(),
                input_artifact_ref: None,
                workflow_input: Some(Value::clone(&start.input)),
            }
            .into(),
        ],
        Fact::Began { act } => vec![started(ctx, *act).into()],
        Fact::Completed { act, .. } | Fact::Skipped { act, .. } | Fact::Failed { act, .. } => {
            ended(ctx, *act)
        }
        Fact::Cancelled { act, .. } if ctx.act(*act).began_at.is_some() => ended(ctx, *act),
        Fact::Died { node, scope, reason } => {
            vec![skipped(ctx, *node, *scope, reason).into()]
        }
        Fact::Ended => concluded(ctx, execution).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Returns the name of an activation in events: the node's id; children of maps and loops carry their position.
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

fn started(ctx: &AdapterContext<'_>, act: ActivationId) -> WorkflowNodeExecutionStartData {
    let one = ctx.act(act);
    let node = ctx.node_of(act);
    let (node_id, node_type) = (label(ctx, act), node.kind.clone());
    // Fields of some kinds of node (cases, branches, wait_for, …) stand in `extra.event` of the plan.
    let told = node.extra.get("event").and_then(Value::as_object).and_then(|told| {
        let mut told = told.clone();
        told.insert("node_id".into(), json!(node_id));
        told.insert("node_type".into(), json!(node_type));
        serde_json::from_value(Value::Object(told)).ok()
    });
    let mut data = told.unwrap_or_else(|| WorkflowNodeExecutionStartData {
        node_id,
        node_type,
        ..WorkflowNodeExecutionStartData::default()
    });
    data.agent_name.clone_from(&node.agent);
    if let Some(owner) = one.owner {
        data.parent_node_id = Some(label(ctx, owner));
        data.iteration_index = ctx.item(one.scope).map(|(_, index)| index);
    }
    data
}

fn ended(ctx: &AdapterContext<'_>, act: ActivationId) -> Vec<MeshMessage> {
    let one = ctx.act(act);
    let status = match one.end {
        Some(ActivationEnd::Succeeded) => Outcome::Success,
        Some(ActivationEnd::Skipped) => Outcome::Skipped,
        Some(ActivationEnd::Cancelled) => Outcome::Cancelled,
        Some(ActivationEnd::Failed) | None => Outcome::Error,
    };
    let mut result = WorkflowNodeExecutionResultData::new(label(ctx, act), status);
    result.error_message = one.fault.as_ref().map(|fault| fault.message.clone());
    result.output_artifact_ref = output_artifact(ctx, act);
    if let Some(output) = &one.output {
        let told = |key: &str| output.value.get(key);
        result.condition_result = told("condition_result").and_then(Value::as_bool);
        if matches!(ctx.node_of(act).op, NodeOperation::Pure) {
            result.selected_branch = told("selected_branch").and_then(Value::as_str).map(str::to_owned);
        }
    }
    let mut events = vec![result.into()];
    events.extend(one.owner.and_then(|owner| progress(ctx, owner)).map(MeshMessage::from));
    events
}

/// The artifact that holds an activation's output: the first its last reply named.
fn output_artifact(ctx: &AdapterContext<'_>, act: ActivationId) -> Option<ArtifactRef> {
    let reply = ctx.act(act).last_reply()?.result.as_ref().ok()?;
    serde_json::from_value(reply.artifacts.first()?.clone()).ok()
}

fn progress(ctx: &AdapterContext<'_>, owner: ActivationId) -> Option<WorkflowMapProgressData> {
    if !matches!(ctx.node_of(owner).op, NodeOperation::Map { .. }) {
        return None;
    }
    let children = ctx.act(owner).children.as_deref()?;
    let completed = children.acts.len() as u32 - children.active;
    let total = children.list.len() as u32;
    Some(WorkflowMapProgressData {
        node_id: label(ctx, owner),
        total_items: total,
        completed_items: completed,
        status: match (children.failed, completed == total) {
            (Some(_), _) => MapStatus::Failed,
            (None, true) => MapStatus::Completed,
            (None, false) => MapStatus::InProgress,
        },
    })
}

fn skipped(
    ctx: &AdapterContext<'_>,
    node: NodeIndex,
    scope: u32,
    reason: &str,
) -> WorkflowNodeExecutionResultData {
    let mut id = ctx.plan().node(node).id.clone();
    if scope != ROOT
        && let Some(inner) = ctx.state.scope(scope)
    {
        id = format!("{id}_{}", inner.index);
    }
    let mut result = WorkflowNodeExecutionResultData::new(id, Outcome::Skipped);
    result.metadata.insert("reason".into(), json!(reason));
    result
}

fn concluded(ctx: &AdapterContext<'_>, execution: &ExecutionId) -> Option<MeshMessage> {
    let outcome = ctx.outcome()?;
    let data = WorkflowExecutionResultData {
        workflow_name: Some(ctx.plan().name.clone()),
        execution_id: Some(execution.as_str().to_owned()),
        status: match outcome.status {
            TerminalStatus::Success => Outcome::Success,
            TerminalStatus::Failure => Outcome::Error,
            TerminalStatus::Cancelled => Outcome::Cancelled,
        },
        output_artifact_ref: None,
        error_message: outcome.fault.as_ref().map(|fault| fault.message.clone()),
        workflow_output: outcome.output.as_ref().map(|output| Value::clone(output)),
    };
    Some(data.into())
}
