//! Builds the cluster of an agent: expressions, wires and executors of its nodes.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sinew_engine::{ActivationId, AdapterContext, TaskRequest};
use sinew_plan::PlanNode;
use sinew_script::{CallBatch, CallOutcome};

use super::scope::VisibleValues;
use super::{executor, links, template};

/// Returns the context that an executor receives in addition to its data and inputs.
pub(super) fn plugin_context(ctx: &AdapterContext<'_>, node: &PlanNode, trigger: &Value) -> Value {
    json!({ "node_id": node.id, "node_type": node.kind, "run_id": ctx.execution_id(), "trigger": trigger })
}

/// Adds the calls that build the nodes of a cluster, in the order of the tree walk.
pub(super) fn builder_calls(
    tree: &Map<String, Value>,
    builders: &BTreeMap<String, String>,
    context: &Value,
    batch: &mut CallBatch,
) {
    for node in tree.values().filter_map(Value::as_array).flatten() {
        if let Some(below) = node["links"].as_object() {
            builder_calls(below, builders, context, batch);
        }
        if let Some(code) = node["type"].as_str().and_then(|kind| builders.get(kind)) {
            let mut context = context.clone();
            context["node_id"] = node["id"].clone();
            context["node_type"] = node["type"].clone();
            let argument = json!({ "data": node["data"], "context": context });
            let (value, mut call) = executor::call(code, "build", argument);
            call.value = batch.values.len();
            batch.values.push(value);
            batch.calls.push(call);
        }
    }
}

/// Returns the recorded outcomes of the executors of a cluster; `None` before they were evaluated.
pub(super) fn builder_outcomes(
    ctx: &AdapterContext<'_>,
    act: ActivationId,
) -> Result<Option<Vec<CallOutcome>>, String> {
    let Some(reply) = ctx.act(act).replies.last().filter(|reply| reply.tag == TaskRequest::EVALUATION) else {
        return Ok(None);
    };
    let reply = reply.result.as_ref().map_err(|fault| fault.message.clone())?;
    CallOutcome::read_all(&reply.output).map(Some).map_err(|error| error.to_string())
}

/// Returns the tree with the build results of its nodes in their field `built`.
pub(super) fn plugged(
    tree: Map<String, Value>,
    builders: &BTreeMap<String, String>,
    outcomes: &mut impl Iterator<Item = CallOutcome>,
) -> Result<Map<String, Value>, String> {
    let mut whole = Map::new();
    for (handle, nodes) in tree {
        let Value::Array(nodes) = nodes else { continue };
        let mut all = Vec::with_capacity(nodes.len());
        for mut node in nodes {
            if let Value::Object(below) = node["links"].take() {
                node["links"] = Value::Object(plugged(below, builders, outcomes)?);
            }
            if let Some(code) = node["type"].as_str().and_then(|kind| builders.get(kind)) {
                node["built"] = executor::built(code, outcomes.next())?;
            }
            all.push(node);
        }
        whole.insert(handle, Value::Array(all));
    }
    Ok(whole)
}

/// Returns the cluster with evaluated expressions and the values of its wires, and each sub-agent
/// as a tool that takes a task.
pub(super) fn build(
    tree: &Map<String, Value>,
    wired: &BTreeMap<String, Map<String, Value>>,
    seen: &VisibleValues<'_, '_>,
) -> Map<String, Value> {
    let one = |node: &Value| {
        let mut node = node.clone();
        if let Some(data) = node["data"].as_object() {
            let mut data = template::resolve(data, &[], seen);
            let own = node["id"].as_str().and_then(|id| wired.get(id));
            data.extend(own.into_iter().flatten().map(|(socket, value)| (socket.clone(), value.clone())));
            node["data"] = Value::Object(data);
        }
        if let Some(below) = node["links"].as_object() {
            node["links"] = Value::Object(build(below, wired, seen));
        }
        if node["type"].as_str().is_some_and(|kind| kind.ends_with("agent")) {
            let label = node["label"].as_str().unwrap_or_default();
            let description =
                node["data"]["description"].as_str().unwrap_or("Does a task and reports its result.");
            node["tool"] = links::delegation(label, description);
        }
        node
    };
    let all = |(handle, nodes): (&String, &Value)| {
        (handle.clone(), nodes.as_array().into_iter().flatten().map(one).collect())
    };
    tree.iter().map(all).collect()
}
