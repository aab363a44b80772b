//! Values that a node can access, and the nodes that take part in an execution.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use sinew_engine::{ActivationEnd, ActivationId, AdapterContext};
use sinew_plan::{NodeIndex, Plan};

use super::coerce::DATA;
use super::compute::RESPONSE;
use super::script::ScriptScope;

/// The type of an error that is passed on in place of a value.
pub(super) const ERROR: &str = "error";

/// Adds a type to a value.
pub(super) fn typed(kind: &str, value: impl Into<Value>) -> Value {
    json!({ "type": kind, "value": value.into() })
}

/// Returns a typed value without its type.
pub(super) fn bare(typed: &Value) -> Value {
    typed.get("value").cloned().unwrap_or_default()
}

/// Values that expressions in a node's parameters can access.
pub(super) struct VisibleValues<'c, 'e> {
    pub(super) ctx: &'c AdapterContext<'e>,
    /// Values by input handle.
    pub(super) inputs: &'c Map<String, Value>,
}

impl ScriptScope for VisibleValues<'_, '_> {
    fn name(&self, name: &str) -> Option<Value> {
        match name {
            "input" | "$input" => Some(input_of(self.inputs)),
            "trigger" | "$trigger" => Some(trigger(self.ctx)),
            _ => None,
        }
    }

    fn node(&self, name: &str) -> Option<Value> {
        let plan = self.ctx.plan();
        if let Some(ix) = plan.find(name) {
            return left(self.ctx, ix).map(|(_, value)| value);
        }
        let labelled = (0..).zip(&plan.nodes).filter(|(_, node)| node.label.as_deref() == Some(name));
        // Of several nodes with the same label, the last that ended counts.
        labelled
            .filter_map(|(ix, _)| left(self.ctx, ix))
            .max_by_key(|(when, _)| *when)
            .map(|(_, value)| value)
    }
}

/// Returns the data input: the value at `input` (or `data`).
pub(super) fn input_of(inputs: &Map<String, Value>) -> Value {
    inputs.get("input").or_else(|| inputs.get("data")).cloned().unwrap_or_default()
}

/// Returns the payload that started the execution.
pub(super) fn trigger(ctx: &AdapterContext<'_>) -> Value {
    ctx.input().get("trigger").cloned().unwrap_or_else(|| ctx.input().clone())
}

/// Returns the node's value at `output`, `true` or `false`, and its end time; `None` if the node
/// did not succeed.
fn left(ctx: &AdapterContext<'_>, node: NodeIndex) -> Option<((u64, ActivationId), Value)> {
    let act = ctx.latest(ctx.root(), node)?;
    let one = ctx.act(act);
    if one.end != Some(ActivationEnd::Succeeded) {
        return None;
    }
    let value = primary(&one.output.as_ref()?.value)?;
    Some(((one.ended_at.unwrap_or_default(), act), value))
}

/// Returns the value at `output`, `true` or `false`; `None` for errors.
pub(super) fn primary(outputs: &Value) -> Option<Value> {
    let port = ["output", "true", "false", "data", RESPONSE].iter().find_map(|port| outputs.get(*port))?;
    (port["type"] != ERROR).then(|| bare(port))
}

/// Returns a value as displayed to users: data without its type, other values with it.
pub(super) fn shown(typed: &Value) -> Value {
    if typed["type"] == DATA { bare(typed) } else { typed.clone() }
}

/// Returns the outputs that the input of a partial execution provides for a node.
pub(super) fn cached<'c>(ctx: &AdapterContext<'c>, node: &str) -> Option<&'c Value> {
    let execution = ctx.input().get("execution");
    let given =
        execution.and_then(|all| all.get("cached_outputs")).or_else(|| ctx.input().get("cached_outputs"))?;
    given.get(node).filter(|_| !targets(ctx).iter().any(|target| target == node))
}

fn texts(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn targets(ctx: &AdapterContext<'_>) -> Vec<String> {
    targets_of(ctx.input())
}

fn targets_of(input: &Value) -> Vec<String> {
    let scope = input.get("execution").and_then(|all| all.get("scope"));
    texts(scope.and_then(|scope| scope.get("target_node_ids")))
}

/// Returns whether a node takes part in this execution: all do, unless the input names targets or
/// entries.
pub(super) fn takes_part(ctx: &AdapterContext<'_>, node: NodeIndex) -> bool {
    if ctx.input().get("execution").is_none() {
        return true;
    }
    participants(ctx.plan(), ctx.input()).is_none_or(|part| part.contains(&node))
}

/// Returns the nodes that take part in an execution with this input; `None` if all do.
pub(super) fn participants(plan: &Plan, input: &Value) -> Option<BTreeSet<NodeIndex>> {
    let execution = input.get("execution")?;
    let find = |ids: Vec<String>| ids.iter().filter_map(|id| plan.find(id)).collect::<Vec<_>>();
    let targets = find(targets_of(input));
    let mode = execution.get("scope").and_then(|scope| scope.get("mode")).and_then(Value::as_str);
    if !targets.is_empty() {
        let above = reach(plan, &targets, true);
        if mode != Some("runFrom") {
            return Some(above);
        }
        let below = reach(plan, &targets, false);
        return Some(reach(plan, &below.into_iter().collect::<Vec<_>>(), true));
    }
    let entries = execution.get("entry_node_ids").or_else(|| execution.get("scope")?.get("entry_node_ids"));
    let entries = find(texts(entries));
    if entries.is_empty() {
        return None;
    }
    let below: Vec<NodeIndex> = reach(plan, &entries, false).into_iter().collect();
    Some(reach(plan, &below, true))
}

/// Returns these nodes and all their predecessors (or successors) in the flow.
fn reach(plan: &Plan, from: &[NodeIndex], up: bool) -> BTreeSet<NodeIndex> {
    let mut next: BTreeMap<NodeIndex, Vec<NodeIndex>> = BTreeMap::new();
    for edge in plan.edges.iter().filter(|edge| !edge.attach) {
        let (here, there) = if up { (edge.to, edge.from) } else { (edge.from, edge.to) };
        next.entry(here).or_default().push(there);
    }
    let mut seen: BTreeSet<NodeIndex> = from.iter().copied().collect();
    let mut open: Vec<NodeIndex> = from.to_vec();
    while let Some(node) = open.pop() {
        for node in next.get(&node).into_iter().flatten() {
            if seen.insert(*node) {
                open.push(*node);
            }
        }
    }
    seen
}
