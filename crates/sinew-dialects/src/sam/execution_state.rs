//! The dialect's result object: the state of an execution as specified.

use serde_json::{Map, Value, json};
use sinew_engine::{ActivationEnd, ActivationId, AdapterContext, TerminalStatus};
use sinew_plan::NodeIndex;

use super::world::name;

/// Returns `WorkflowExecutionState`.
pub(super) fn execution_state(ctx: &AdapterContext<'_>) -> Value {
    let status = match ctx.outcome().map(|outcome| outcome.status) {
        None => "running",
        Some(TerminalStatus::Success) => "completed",
        Some(TerminalStatus::Failure) => "failed",
        Some(TerminalStatus::Cancelled) => "cancelled",
    };
    let (mut completed, mut outputs, mut branches) = (Map::new(), Map::new(), Map::new());
    let (mut pending, mut skipped) = (Vec::new(), Vec::new());
    for act in 0..ctx.state.acts.len() as ActivationId {
        let one = ctx.act(act);
        let id = name(ctx, act);
        match one.end {
            None if one.began_at.is_some() => {
                branches.extend(branch_state(ctx, act).map(|state| (id.clone(), state)));
                pending.push(id);
                continue;
            }
            None => continue,
            Some(ActivationEnd::Skipped) => skipped.push(id.clone()),
            Some(end) => {
                completed.insert(id.clone(), node_result(ctx, act, end));
            }
        }
        if let Some(output) = one.output.as_ref().filter(|_| one.end != Some(ActivationEnd::Skipped)) {
            outputs.insert(id, Value::clone(&output.value));
        }
    }
    let dead =
        (0..ctx.plan().nodes.len() as NodeIndex).filter(|ix| ctx.state.died(ctx.root(), *ix).is_some());
    skipped.extend(dead.map(|ix| ctx.plan().node(ix).id.clone()));
    json!({
        "execution_id": ctx.execution_id(),
        "status": status,
        "completed_nodes": completed,
        "pending_nodes": pending,
        "skipped_nodes": skipped,
        "node_outputs": outputs,
        "workflow_input": ctx.input(),
        "active_branches": branches,
    })
}

fn node_result(ctx: &AdapterContext<'_>, act: ActivationId, end: ActivationEnd) -> Value {
    let status = match end {
        ActivationEnd::Succeeded | ActivationEnd::Skipped => "success",
        ActivationEnd::Failed => "error",
        ActivationEnd::Cancelled => "cancelled",
    };
    match &ctx.act(act).fault {
        Some(fault) => json!({ "status": status, "error_message": fault.message }),
        None => json!({ "status": status }),
    }
}

/// Returns the progress of a map, loop or fork; `None` for other nodes.
fn branch_state(ctx: &AdapterContext<'_>, act: ActivationId) -> Option<Value> {
    let children = ctx.act(act).children.as_ref()?;
    let started = children.acts.len() as u32;
    Some(json!({
        "total": children.list.len(),
        "completed": started.saturating_sub(children.active),
        "active": children.active,
    }))
}
