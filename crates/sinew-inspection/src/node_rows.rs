//! An execution as rows of nodes: status, duration and wait of each.

use std::collections::BTreeMap;

use serde_json::Value;
use sinew_documents::node::NodeRow;
use sinew_documents::node_status::NodeStatus;
use sinew_documents::words::{self, duration};
use sinew_engine::{
    Activation, ActivationEnd, ActivationId, ActivationPhase, AdapterContext, ChildSet, NodeView, ROOT, Time,
    WaitingFor, waiting_of,
};
use sinew_execution::{Execution, events};
use sinew_plan::{NodeIndex, NodeOperation, Plan};
use sinew_source::escape_line;

use crate::node_table::{NodeColumns, NodeLine};
use crate::unreached::unreached_reason;
use crate::view_context::{MeshPresence, ViewContext};

/// Legend of a table with activation numbers in the attempts column.
pub const ACTIVATION_LEGEND: &str =
    "#N under ATT: the Nth activation of the node, after a retry or a loop back";

/// Returns one row per node that tokens can reach, in file order. Children of maps, loops and forks
/// are counted, not listed.
pub fn rows(execution: &Execution, now: Time) -> Vec<NodeRow> {
    rows_in(execution, &ViewContext::of(execution, now, &MeshPresence::default()))
}

/// Returns the rows of [`rows`] with the given context.
pub fn rows_in(execution: &Execution, context: &ViewContext) -> Vec<NodeRow> {
    let ctx = execution.ctx();
    let plan = ctx.plan();
    (0..plan.nodes.len() as NodeIndex)
        .filter(|ix| !plan.node(*ix).inner && !plan.node(*ix).attached)
        .map(|ix| row(&ctx, ix, context))
        .collect()
}

/// Returns true if a row shows a countdown: to a retry, a deadline, or the end of a sleep.
pub fn counts_down(execution: &Execution) -> bool {
    let state = execution.state();
    !state.ended
        && (0..state.acts.len() as ActivationId).filter_map(|act| waiting_of(state, act)).any(|wait| {
            let is_told = matches!(
                wait.what,
                WaitingFor::Retry { .. }
                    | WaitingFor::Person(_)
                    | WaitingFor::CalleePerson { .. }
                    | WaitingFor::Sleep
            );
            is_told && wait.until.is_some()
        })
}

/// Returns the row of one node.
pub fn row(ctx: &AdapterContext<'_>, ix: NodeIndex, context: &ViewContext) -> NodeRow {
    let node = ctx.plan().node(ix);
    let mut row = NodeRow {
        node: node.id.clone(),
        kind: node.kind.clone(),
        status: NodeStatus::Planned,
        attempts: 0,
        activations: 0,
        duration_ms: None,
        agent: node.agent.clone(),
        message: None,
        quiet: node.quiet,
    };
    let Some(act) = ctx.state.last(ROOT, ix) else {
        if let NodeView::Dead(reason) = ctx.seen(ROOT, ix) {
            row.status = NodeStatus::Skipped;
            row.message = Some(reason.to_owned());
        } else if ctx.state.ended {
            // An ended execution starts no more nodes, so "planned" would be misleading.
            row.status = NodeStatus::Skipped;
            row.message = Some(unreached_reason(ctx, ix));
        }
        return row;
    };
    row_of(ctx, act, context)
}

/// Returns the row of one activation.
pub fn row_of(ctx: &AdapterContext<'_>, act: ActivationId, context: &ViewContext) -> NodeRow {
    let one = ctx.act(act);
    let node = ctx.node_of(act);
    NodeRow {
        node: node.id.clone(),
        kind: node.kind.clone(),
        status: word(one),
        attempts: one.work_attempts(),
        activations: one.ordinal + 1,
        duration_ms: one.began_at.map(|began| one.ended_at.unwrap_or(context.now).saturating_sub(began)),
        agent: work_agent(ctx, act),
        message: message(ctx, act, context),
        quiet: node.quiet,
    }
}

/// Returns the agent or workflow of the node of an activation: the one called last, otherwise the
/// planned one. Agents that choose an edge, judge or reflect are ignored.
pub fn work_agent(ctx: &AdapterContext<'_>, act: ActivationId) -> Option<String> {
    let asked = ctx.act(act).last_work().map(|ask| ask.target.name().to_owned());
    asked.or_else(|| ctx.node_of(act).agent.clone())
}

/// Returns the agent or workflow that an activation called last.
pub fn asked_agent(one: &Activation) -> Option<String> {
    one.last_task().map(|ask| ask.target.name().to_owned())
}

/// Returns the status of an activation.
pub fn word(one: &Activation) -> NodeStatus {
    match (one.end, one.phase) {
        (Some(ActivationEnd::Succeeded), _) => NodeStatus::Succeeded,
        (Some(ActivationEnd::Failed), _) => NodeStatus::Failed,
        (Some(ActivationEnd::Skipped), _) => NodeStatus::Skipped,
        (Some(ActivationEnd::Cancelled), _) => NodeStatus::Cancelled,
        (None, ActivationPhase::Ready | ActivationPhase::Deferred) => NodeStatus::Queued,
        (None, ActivationPhase::Waiting) => NodeStatus::Waiting,
        (None, _) if one.callee_wait().is_some_and(|wait| !wait.is_busy) => NodeStatus::Waiting,
        (None, _) => NodeStatus::Running,
    }
}

fn message(ctx: &AdapterContext<'_>, act: ActivationId, context: &ViewContext) -> Option<String> {
    let one = ctx.act(act);
    if let Some(fault) = &one.fault {
        let said = fault.message.lines().next().unwrap_or_default();
        let child = one.children.as_ref().and_then(|children| children.failed).filter(|child| *child != act);
        return Some(match child.map(|child| events::label(ctx, child)) {
            Some(child) if !said.contains(&child) => format!("{said} (first at {child})"),
            _ => said.to_owned(),
        });
    }
    if let Some(children) = &one.children {
        let counts = count_children(ctx, children);
        let most = one.output.as_ref().and_then(|output| exhausted_after(&output.value));
        return Some(match most.filter(|_| matches!(ctx.node_of(act).op, NodeOperation::Loop { .. })) {
            Some(most) => format!("{counts}; ended at its maximum of {most} iterations"),
            None => counts,
        });
    }
    if one.reused {
        return Some("output provided, not run".into());
    }
    let retried = context.retried.get(&act).map(|one| format!("attempt {}: {}", one.attempt, one.message));
    let Some(waiting) = waiting_of(ctx.state, act) else { return retried };
    let left = waiting.until.map(|until| duration(until.saturating_sub(context.now)));
    match waiting.what {
        WaitingFor::Agent { name, tries, is_workflow, .. } => {
            let attempt = (tries > 1).then(|| format!("attempt {tries}"));
            let concern = context.presence.concern(&name).filter(|_| !is_workflow);
            let parts: Vec<String> = [concern, attempt, retried].into_iter().flatten().collect();
            (!parts.is_empty()).then(|| parts.join("; "))
        }
        // The script after an ended node selects the next edge; the node itself waits for nothing.
        WaitingFor::Evaluation if one.end.is_some() => retried,
        WaitingFor::Evaluation => Some("a script".to_owned()),
        WaitingFor::Retry { tries } => {
            let failed =
                context.retried.get(&act).map(|one| format!(": {}", one.message)).unwrap_or_default();
            Some(format!("attempt {tries} failed, next in {}{failed}", left.unwrap_or_default()))
        }
        WaitingFor::Person(wait) => {
            let until = left.map(|left| format!(", {left} left")).unwrap_or_default();
            Some(format!("a person: {}{until}", wait.prompt))
        }
        WaitingFor::CalleePerson { wait, .. } => {
            let until = left.map(|left| format!(", {left} left")).unwrap_or_default();
            Some(format!("a person: {} ({}){until}", wait.first_line(), wait.place()))
        }
        WaitingFor::Sleep => Some(format!("sleeping for {}", left.unwrap_or_default())),
        WaitingFor::Turn if ctx.state.paused.is_some() => Some("the execution is paused".to_owned()),
        _ => retried,
    }
}

/// Returns the number of iterations in the output of a loop that ended because it reached its maximum.
pub(crate) fn exhausted_after(output: &Value) -> Option<u64> {
    let is_exhausted = output["stopped_reason"] == "max_iterations";
    is_exhausted.then(|| output["iterations_completed"].as_u64().unwrap_or_default())
}

/// Summarizes the children of a map, loop or fork: `×400, 387 ok, 9 running, 4 failed`.
fn count_children(ctx: &AdapterContext<'_>, children: &ChildSet) -> String {
    let count =
        |end: ActivationEnd| children.acts.iter().filter(|child| ctx.act(**child).end == Some(end)).count();
    let mut parts = vec![format!("×{}", children.list.len())];
    for (n, what) in [
        (count(ActivationEnd::Succeeded), "ok"),
        (children.active as usize, "running"),
        (count(ActivationEnd::Failed), "failed"),
        (count(ActivationEnd::Skipped), "skipped"),
        (count(ActivationEnd::Cancelled), "cancelled"),
    ] {
        if n > 0 {
            parts.push(format!("{n} {what}"));
        }
    }
    if let Some(failed) = children.failed {
        parts.push(format!("first at {}", events::label(ctx, failed)));
    }
    parts.join(", ")
}

/// Returns column widths that fit all nodes of a plan, to align lines that are printed one by one.
pub fn columns_of(plan: &Plan) -> NodeColumns {
    let shown = || plan.nodes.iter().filter(|node| !node.inner && !node.attached);
    let wide = |text: &str| escape_line(text).chars().count();
    let name = shown().map(|node| wide(&node.id)).max().unwrap_or(0);
    let agent = shown().filter_map(|node| node.agent.as_ref()).map(|agent| wide(agent)).max();
    NodeColumns::new(name.min(40), agent.unwrap_or(0).clamp(5, 24))
}

/// Formats the rows as lines of a table.
pub fn render(rows: &[NodeRow], columns: NodeColumns, color: bool, ascii: bool) -> Vec<String> {
    rows.iter().map(|row| columns.line(&cells(row), color, ascii)).collect()
}

/// Summarizes collapsed rows, if any: `3 quiet nodes: 1 planned, 2 succeeded`.
pub fn folded_line<'r>(folded: impl Iterator<Item = &'r NodeRow>) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for row in folded {
        *counts.entry(row.status.as_str()).or_default() += 1;
    }
    let total: usize = counts.values().sum();
    let parts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    (total > 0).then(|| format!("{}: {}", words::count(total, "quiet node"), parts.join(", ")))
}

/// Formats a row as table cells.
pub fn cells(row: &NodeRow) -> NodeLine {
    NodeLine {
        name: escape_line(&row.node).into_owned(),
        kind: String::new(),
        status: Some(row.status),
        attempts: row.tries(),
        time: row.duration_ms.map_or_else(|| "-".into(), duration),
        agent: escape_line(row.agent.as_deref().unwrap_or("-")).into_owned(),
        message: escape_line(row.message.as_deref().unwrap_or("")).into_owned(),
    }
}
