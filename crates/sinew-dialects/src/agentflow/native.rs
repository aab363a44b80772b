//! The dialect's result object: status, state and current node.
//!
//! `previous_output` and the current node follow only the main path: it ends where a node has
//! several successors, and a new one starts with every answer and with every entry of the deferred
//! queue. Each start has a segment number, so the last step of the main path is the one with the
//! highest segment, then the highest activation.

use serde_json::{Map, Value, json};
use sinew_engine::{ActivationEnd, ActivationId, AdapterContext, TerminalStatus};
use sinew_plan::NodeOperation;

use super::adapter::{APPROVAL, SEGMENT};

/// Returns the number of ended activations, which increases with every decision, so it is used as
/// the segment number.
pub(super) fn ended(ctx: &AdapterContext<'_>) -> usize {
    ctx.state.acts.iter().filter(|act| act.end.is_some()).count()
}

/// Returns the result object.
pub(super) fn result(ctx: &AdapterContext<'_>) -> Value {
    let failed = ctx.state.failed.is_some()
        || ctx.outcome().is_some_and(|outcome| outcome.status == TerminalStatus::Failure);
    let cancelled = ctx.outcome().is_some_and(|outcome| outcome.status == TerminalStatus::Cancelled);
    let waiting = waiting(ctx, failed);
    let status = if failed {
        "failed"
    } else if cancelled {
        "cancelled"
    } else if waiting.is_some() {
        "paused"
    } else if ctx.outcome().is_some() {
        "completed"
    } else {
        "running"
    };
    let current = match waiting {
        Some(act) => Some(act),
        None if status == "completed" => None,
        None => last_main(ctx, |_| true),
    };
    json!({
        "status": status,
        "state": state(ctx),
        "currentNodeId": current.map(|act| ctx.node_of(act).id.clone()),
        "waitingForInput": waiting.is_some(),
    })
}

/// Returns the pending approval. A failure cancels it, but it remains the current node.
fn waiting(ctx: &AdapterContext<'_>, failed: bool) -> Option<ActivationId> {
    let given_up = || {
        let unanswered = |act: &ActivationId| {
            let act = ctx.act(*act);
            act.wait.is_some() && act.end == Some(ActivationEnd::Cancelled)
        };
        (0..ctx.state.acts.len() as ActivationId).rev().find(unanswered)
    };
    ctx.state.waiting().next().or_else(|| failed.then(given_up).flatten())
}

/// Returns the state: `previous_output`, then the output of each node.
pub(super) fn state(ctx: &AdapterContext<'_>) -> Value {
    let mut state = Map::new();
    let writes =
        |act: ActivationId| ctx.node_of(act).op != NodeOperation::Pure || ctx.node_of(act).kind != "if";
    if let Some(value) = last_main(ctx, writes).and_then(|act| ctx.act(act).output.as_ref()) {
        state.insert("previous_output".into(), Value::clone(&value.value));
    }
    state.extend(outputs(ctx));
    Value::Object(state)
}

/// Returns the last string output of a node, except approvals.
pub(super) fn last_text(ctx: &AdapterContext<'_>) -> Option<String> {
    outputs(ctx).into_iter().rev().find_map(|(_, value)| value.as_str().map(str::to_owned))
}

/// Returns the output of each node, in the order of first outputs.
fn outputs(ctx: &AdapterContext<'_>) -> Map<String, Value> {
    let mut ended: Vec<(u64, ActivationId)> = (0..ctx.state.acts.len() as ActivationId)
        .filter(|act| ctx.act(*act).end == Some(ActivationEnd::Succeeded))
        .map(|act| (ctx.act(act).ended_at.unwrap_or_default(), act))
        .collect();
    ended.sort_unstable();
    let mut left = Map::new();
    for (_, act) in ended {
        let node = ctx.node_of(act);
        let Some(output) = &ctx.act(act).output else { continue };
        if node.op == NodeOperation::Human {
            let approval = output.ports.iter().find(|(port, _)| port == APPROVAL);
            let approval = approval.map(|(_, value)| Value::clone(value)).unwrap_or_default();
            left.insert(format!("{}_approval", node.id), approval);
        } else if node.kind != "if" {
            left.insert(node.id.clone(), Value::clone(&output.value));
        }
    }
    left
}

/// Returns the last successful activation of the main path that satisfies `sort`.
fn last_main(ctx: &AdapterContext<'_>, sort: impl Fn(ActivationId) -> bool) -> Option<ActivationId> {
    let acts = &ctx.state.acts;
    // (whether it is on the main path, segment of its successors)
    let mut paths: Vec<(bool, u64)> = Vec::with_capacity(acts.len());
    let mut last = None;
    for (act, one) in acts.iter().enumerate() {
        let source = one.inputs.first().and_then(|arrived| arrived.source);
        let (mut main, mut segment) = match source
            .and_then(|source| paths.get(source as usize).map(|path| (source, *path)))
        {
            Some((source, (main, segment))) => {
                let live = acts[source as usize].sent.iter().filter(|token| token.value.is_live()).count();
                (main && live == 1, segment)
            }
            None => (true, 0),
        };
        let human = ctx.plan().node(one.node).op == NodeOperation::Human;
        main |= one.deferred == Some(false) && !human;
        let begins =
            one.output.as_ref().and_then(|output| output.ports.iter().find(|(port, _)| port == SEGMENT));
        if let Some((_, begins)) = begins {
            segment = begins.as_u64().unwrap_or_default();
            main = true;
        }
        if main && one.end == Some(ActivationEnd::Succeeded) && sort(act as ActivationId) {
            last = last.max(Some((segment, act as ActivationId)));
        }
        paths.push((main, segment));
    }
    last.map(|(_, act)| act)
}
