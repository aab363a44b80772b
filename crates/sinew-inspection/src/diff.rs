//! `execution diff`: two executions side by side: status, outputs and durations of nodes.
//!
//! Durations and attempts are shown, but do not count as differences, because they always vary.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sinew_documents::node_status::NodeStatus;
use sinew_documents::words;
use sinew_documents::words::duration;
use sinew_engine::{ActivationId, Time};
use sinew_execution::events;

use crate::events::is_about;
use crate::execution_status::status_of;
use crate::record::Record;
use crate::tree::{self, TreeBranch, TreeOptions};
use crate::view_context::{MeshPresence, ViewContext};
use sinew_protocol::query::ExecutionStatus;

/// Maximum characters of a value.
const SHOWN: usize = 100;

/// Comparison of two executions.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ExecutionComparison {
    /// True if they do not differ.
    pub same: bool,
    first: Side,
    second: Side,
    /// Patch from the first input to the second.
    input: Vec<Value>,
    /// Patch from the first output to the second.
    output: Vec<Value>,
    /// Nodes with their index in maps and loops: first those of the first execution, then the others.
    nodes: Vec<Node>,
}

/// One of the compared executions.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ComparedExecution")]
struct Side {
    execution: String,
    workflow: String,
    version: String,
    #[serde(serialize_with = "words::serialize_status")]
    #[schemars(with = "String")]
    status: ExecutionStatus,
    duration_ms: Time,
}

/// A node of either execution.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "NodeComparison")]
struct Node {
    #[serde(rename = "node")]
    label: String,
    same: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<ComparedNode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    second: Option<ComparedNode>,
    /// Patch from the first output to the second.
    output: Vec<Value>,
}

/// A node in one of the executions.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
struct ComparedNode {
    status: NodeStatus,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<Time>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    #[serde(skip)]
    output: Value,
}

/// Compares two executions at `now`, optionally one node only. `None` if neither has that node.
pub fn compare(
    first: &Record,
    second: &Record,
    now: Time,
    node: Option<&str>,
) -> Option<ExecutionComparison> {
    let (one, mut two) = (stood(first, now), stood(second, now));
    let mut pairs: Vec<(String, Option<ComparedNode>, Option<ComparedNode>)> = Vec::new();
    for (label, a) in one {
        let b = two.shift_remove(&label);
        pairs.push((label, Some(a), b));
    }
    pairs.extend(two.into_iter().map(|(label, b)| (label, None, Some(b))));
    let wanted = |label: &str| node.is_none_or(|wanted| is_about(label, wanted));
    let nodes: Vec<Node> = pairs
        .into_iter()
        .filter(|(label, ..)| wanted(label))
        .map(|(label, first, second)| {
            let value = |stood: &Option<ComparedNode>| {
                stood.as_ref().map(|one| one.output.clone()).unwrap_or_default()
            };
            let output = patch(&value(&first), &value(&second));
            let ended =
                |stood: &Option<ComparedNode>| stood.as_ref().map(|one| (one.status, one.fault.clone()));
            let same = ended(&first) == ended(&second) && output.is_empty();
            Node { label, same, first, second, output }
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

fn side(record: &Record, now: Time) -> Side {
    let state = record.execution.state();
    let until = record.seen_until(now);
    Side {
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
fn stood(record: &Record, now: Time) -> IndexMap<String, ComparedNode> {
    fn flatten(branches: Vec<TreeBranch>, found: &mut IndexMap<String, ComparedNode>) {
        for TreeBranch { label, row, children, .. } in branches {
            let (attempts, duration_ms) = (row.attempts, row.duration_ms);
            let stood =
                ComparedNode { status: row.status, attempts, duration_ms, fault: None, output: Value::Null };
            found.insert(label, stood);
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
        if let Some(stood) = found.get_mut(&events::label(&ctx, act)) {
            let one = ctx.act(act);
            stood.fault = one.fault.as_ref().map(|fault| fault.message.clone());
            stood.output = one.output.as_ref().map(|output| Value::clone(&output.value)).unwrap_or_default();
        }
    }
    found
}

/// Returns the JSON Patch between two values. Operations also contain the old value.
pub fn patch(before: &Value, after: &Value) -> Vec<Value> {
    let operations = serde_json::to_value(json_patch::diff(before, after)).unwrap_or_default();
    let Value::Array(mut operations) = operations else { return Vec::new() };
    for operation in &mut operations {
        let was = operation["path"].as_str().and_then(|path| before.pointer(path)).cloned();
        if let (Some(was), Some("replace" | "remove")) = (was, operation["op"].as_str()) {
            operation["was"] = was;
        }
    }
    operations
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
fn line(change: &Value, ascii: bool) -> String {
    let shown = |key: &str| change.get(key).map(|value| words::one_line(&value.to_string(), SHOWN));
    let word = |key: &str| change[key].as_str().unwrap_or_default().to_owned();
    let path = match word("path") {
        path if path.is_empty() => "(entire value)".to_owned(),
        path => words::one_line(&path, SHOWN),
    };
    let values = [shown("was"), shown("value")].into_iter().flatten().collect::<Vec<_>>();
    format!("{:<7}  {path}  {}", word("op"), values.join(if ascii { " -> " } else { " → " }))
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
