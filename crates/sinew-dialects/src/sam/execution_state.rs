//! The dialect's own result object: the state of an execution as the specification has it.

use serde_json::{Map, Value, json};
use sinew_engine::{ActId, Ctx, End, Status};
use sinew_plan::NodeIx;

use super::world::name;

/// Returns `WorkflowExecutionState`, without the id of the execution, which adapters do not know.
pub(super) fn execution_state(ctx: &Ctx<'_>) -> Value {
    let status = match ctx.outcome().map(|outcome| outcome.status) {
        None => "running",
        Some(Status::Success) => "completed",
        Some(Status::Failure) => "failed",
        Some(Status::Cancelled) => "cancelled",
    };
    let (mut completed, mut outputs, mut branches) = (Map::new(), Map::new(), Map::new());
    let (mut pending, mut skipped) = (Vec::new(), Vec::new());
    for act in 0..ctx.state.acts.len() as ActId {
        let one = ctx.act(act);
        let id = name(ctx, act);
        match one.end {
            None if one.began_at.is_some() => {
                branches.extend(branch_state(ctx, act).map(|state| (id.clone(), state)));
                pending.push(id);
                continue;
            }
            None => continue,
            Some(End::Skipped) => skipped.push(id.clone()),
            Some(end) => {
                completed.insert(id.clone(), node_result(ctx, act, end));
            }
        }
        if let Some(output) = one.output.as_ref().filter(|_| one.end != Some(End::Skipped)) {
            outputs.insert(id, Value::clone(&output.value));
        }
    }
    let dead = (0..ctx.plan().nodes.len() as NodeIx).filter(|ix| ctx.state.died(ctx.root(), *ix).is_some());
    skipped.extend(dead.map(|ix| ctx.plan().node(ix).id.clone()));
    json!({
        "status": status,
        "completed_nodes": completed,
        "pending_nodes": pending,
        "skipped_nodes": skipped,
        "node_outputs": outputs,
        "workflow_input": ctx.input(),
        "active_branches": branches,
    })
}

fn node_result(ctx: &Ctx<'_>, act: ActId, end: End) -> Value {
    let status = match end {
        End::Succeeded | End::Skipped => "success",
        End::Failed => "error",
        End::Cancelled => "cancelled",
    };
    match &ctx.act(act).fault {
        Some(fault) => json!({ "status": status, "error_message": fault.message }),
        None => json!({ "status": status }),
    }
}

/// Returns how far a map, loop or fork is; none for other nodes.
fn branch_state(ctx: &Ctx<'_>, act: ActId) -> Option<Value> {
    let children = ctx.act(act).children.as_ref()?;
    let started = children.acts.len() as u32;
    Some(json!({
        "total": children.list.len(),
        "completed": started.saturating_sub(children.active),
        "active": children.active,
    }))
}
