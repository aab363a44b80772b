//! `execution diff`: two executions side by side: status, outputs and durations of nodes.
//!
//! Durations and attempts are shown, but do not count as differences, because they always vary.

use indexmap::IndexMap;
use serde_json::Value;
use sinew_documents::comparison::{
    ComparedExecution, ComparedNode, ExecutionComparison, NodeComparison, PatchKind, PatchOperation,
};
use sinew_documents::node::TreeBranch;
use sinew_documents::words;
use sinew_documents::words::duration;
use sinew_engine::{ActivationId, Time};
use sinew_execution::events;

use crate::events::is_about;
use crate::execution_status::status_of;
use crate::record::Record;
use crate::tree::{self, TreeOptions};
use crate::view_context::{MeshPresence, ViewContext};

/// Maximum characters of a value.
const SHOWN: usize = 100;

/// A node at the end of an execution, with its output.
struct FinalNode {
    node: ComparedNode,
    output: Value,
}

/// Compares two executions at `now`, optionally one node only. `None` if neither has that node.
pub fn compare(
    first: &Record,
    second: &Record,
    now: Time,
    node: Option<&str>,
) -> Option<ExecutionComparison> {
    let (one, mut two) = (final_nodes(first, now), final_nodes(second, now));
    let mut pairs: Vec<(String, Option<FinalNode>, Option<FinalNode>)> = Vec::new();
    for (label, a) in one {
        let b = two.shift_remove(&label);
        pairs.push((label, Some(a), b));
    }
    pairs.extend(two.into_iter().map(|(label, b)| (label, None, Some(b))));
    let wanted = |label: &str| node.is_none_or(|wanted| is_about(label, wanted));
    let nodes: Vec<NodeComparison> = pairs
        .into_iter()
        .filter(|(label, ..)| wanted(label))
        .map(|(label, first, second)| {
            let value =
                |node: &Option<FinalNode>| node.as_ref().map(|one| one.output.clone()).unwrap_or_default();
            let output = patch(&value(&first), &value(&second));
            let (first, second) = (first.map(|one| one.node), second.map(|one| one.node));
            let ended =
                |node: &Option<ComparedNode>| node.as_ref().map(|one| (one.status, one.fault.clone()));
            let same = ended(&first) == ended(&second) && output.is_empty();
            NodeComparison { label, same, first, second, output }
        })
        .collect();
    if nodes.is_empty() && node.is_some() {
        return None;
    }
    let mut told = ExecutionComparison {
        same: nodes.iter().all(|node| node.same),
        first: side(first, now),
        second: side(second, now),
        input: Vec::new(),
        output: Vec::new(),
        nodes,
    };
    if node.is_none() {
        told.input = patch(first.execution.ctx().input(), second.execution.ctx().input());
        told.output = patch(&output(first), &output(second));
        told.same &=
            told.input.is_empty() && told.output.is_empty() && told.first.status == told.second.status;
    }
    Some(told)
}

fn side(record: &Record, now: Time) -> ComparedExecution {
    let state = record.execution.state();
    let until = record.seen_until(now);
    ComparedExecution {
        execution: record.id().to_owned(),
        workflow: record.plan().name.clone(),
        version: record.execution.program().graph.digest().to_owned(),
        status: status_of(state),
        duration_ms: until.saturating_sub(state.started_at),
    }
}

fn output(record: &Record) -> Value {
    let outcome = record.execution.state().outcome.as_ref();
    outcome.and_then(|outcome| outcome.output.as_deref().cloned()).unwrap_or_default()
}

/// Returns the latest status of every node.
fn final_nodes(record: &Record, now: Time) -> IndexMap<String, FinalNode> {
    fn flatten(branches: Vec<TreeBranch>, found: &mut IndexMap<String, FinalNode>) {
        for TreeBranch { label, row, children, .. } in branches {
            let (attempts, duration_ms) = (row.attempts, row.duration_ms);
            let node = ComparedNode { status: row.status, attempts, duration_ms, fault: None };
            found.insert(label, FinalNode { node, output: Value::Null });
            flatten(children, found);
        }
    }
    let mut found = IndexMap::new();
    let all = TreeOptions { depth: usize::MAX, ..TreeOptions::default() };
    flatten(
        tree::tree(record, &ViewContext::of(&record.execution, now, &MeshPresence::default()), &all)
            .unwrap_or_default(),
        &mut found,
    );
    let ctx = record.execution.ctx();
    for act in 0..ctx.state.acts.len() as ActivationId {
        if let Some(last) = found.get_mut(&events::label(&ctx, act)) {
            let one = ctx.act(act);
            last.node.fault = one.fault.as_ref().map(|fault| fault.message.clone());
            last.output = one.output.as_ref().map(|output| Value::clone(&output.value)).unwrap_or_default();
        }
    }
    found
}

/// Returns the JSON Patch between two values. Operations also contain the old value.
pub fn patch(before: &Value, after: &Value) -> Vec<PatchOperation> {
    use json_patch::PatchOperation as Step;
    let was = |path: &str| before.pointer(path).cloned();
    let steps = json_patch::diff(before, after).0.into_iter().filter_map(|step| {
        let (op, path, value) = match step {
            Step::Add(step) => (PatchKind::Add, step.path.to_string(), Some(step.value)),
            Step::Remove(step) => (PatchKind::Remove, step.path.to_string(), None),
            Step::Replace(step) => (PatchKind::Replace, step.path.to_string(), Some(step.value)),
            // A difference consists of the other three.
            Step::Move(_) | Step::Copy(_) | Step::Test(_) => return None,
        };
        let was = if op == PatchKind::Add { None } else { was(&path) };
        Some(PatchOperation { op, path, value, was })
    });
    steps.collect()
}

/// Formats the comparison for people.
pub fn text(told: &ExecutionComparison, ascii: bool) -> String {
    let heads = ["", "EXECUTION", "WORKFLOW", "STATUS", "TIME"];
    let mut sides = vec![heads.map(str::to_owned).to_vec()];
    for (word, side) in [("first", &told.first), ("second", &told.second)] {
        let version = format!("{}@{}", words::one_line(&side.workflow, 40), words::short(&side.version));
        let (status, time) = (words::status_word(side.status).to_owned(), duration(side.duration_ms));
        let id = words::short_id(&side.execution).to_owned();
        sides.push(vec![word.to_owned(), id, version, status, time]);
    }
    let heads = [" ", "NODE", "FIRST", "TIME", "SECOND", "TIME", "OUTPUT"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for node in &told.nodes {
        let sign = match (node.same, ascii) {
            (true, _) => "=",
            (false, true) => "!",
            (false, false) => "≠",
        };
        let mut row = vec![sign.to_owned(), words::name(&node.label)];
        for stood in [&node.first, &node.second] {
            row.push(stood.as_ref().map_or("-", |stood| stood.status.as_str()).to_owned());
            let time = stood.as_ref().and_then(|stood| stood.duration_ms);
            row.push(time.map_or_else(|| "-".to_owned(), duration));
        }
        row.push(match node.output.len() {
            0 => "the same".to_owned(),
            1 => "1 change".to_owned(),
            count => format!("{count} changes"),
        });
        rows.push(row);
    }
    let mut parts = vec![words::columns(&sides), words::columns(&rows)];
    let nodes = told.nodes.iter().map(|node| (format!("output of {}", node.label), &node.output));
    let values = [("input".to_owned(), &told.input), ("output".to_owned(), &told.output)];
    for (what, changes) in values.into_iter().chain(nodes).filter(|(_, changes)| !changes.is_empty()) {
        let lines = changes.iter().map(|change| format!("\n  {}", line(change, ascii)));
        parts.push(format!("{}{}", words::name(&what), lines.collect::<String>()));
    }
    parts.join("\n\n")
}

/// Formats one change: `replace /price  5 → 8`.
fn line(change: &PatchOperation, ascii: bool) -> String {
    let shown =
        |value: &Option<Value>| value.as_ref().map(|value| words::one_line(&value.to_string(), SHOWN));
    let path = match change.path.as_str() {
        "" => "(entire value)".to_owned(),
        path => words::one_line(path, SHOWN),
    };
    let values = [shown(&change.was), shown(&change.value)].into_iter().flatten().collect::<Vec<_>>();
    format!("{:<7}  {path}  {}", change.op.as_str(), values.join(if ascii { " -> " } else { " → " }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_says_what_was_there() {
        let cases = [
            (json!({"a": 1}), json!({"a": 1}), json!([])),
            (
                json!({"a": 1}),
                json!({"a": 2}),
                json!([{"op": "replace", "path": "/a", "value": 2, "was": 1}]),
            ),
            (json!({"a": 1}), json!({}), json!([{"op": "remove", "path": "/a", "was": 1}])),
            (
                json!(null),
                json!({"b": []}),
                json!([{"op": "replace", "path": "", "value": {"b": []}, "was": null}]),
            ),
            (json!([1]), json!([1, 2]), json!([{"op": "add", "path": "/1", "value": 2}])),
        ];
        for (before, after, want) in cases {
            assert_eq!(json!(patch(&before, &after)), want, "{before} {after}");
        }
    }
}
