//! Result of a node, and its views for later nodes, routes and callers.

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sinew_engine::{ActivationId, AdapterContext, TaskReply, TaskRequest};
use sinew_protocol::Fault;

use super::adapter::STEP_BUDGET;
use super::model::{NodeExtra, Work};
use super::validate::INPUT;
use super::{instruct, source};

pub(super) const SUCCESS: &str = "success";
pub(super) const FAILED: &str = "failed";
pub(super) const SKIPPED: &str = "skipped";

/// Result of one visit of a node.
#[derive(Clone, Debug)]
pub(super) struct NodeResult {
    pub(super) status: &'static str,
    pub(super) data: Map<String, Value>,
    pub(super) tool_calls: Vec<Value>,
    pub(super) evals: Vec<Value>,
}

impl NodeResult {
    pub(super) fn new(status: &'static str, data: Value) -> Self {
        let data = match data {
            Value::Object(data) => data,
            Value::Null => Map::new(),
            other => Map::from_iter([("result".to_owned(), other)]),
        };
        Self { status, data, tool_calls: Vec::new(), evals: Vec::new() }
    }

    /// Decodes an agent's answer: a complete result (`status`, `data`, `toolCalls`), or only data.
    pub(super) fn of_reply(reply: &Result<std::sync::Arc<TaskReply>, Fault>, work: &Work) -> Self {
        let reply = match reply {
            Ok(reply) => reply,
            Err(fault) => return Self::new(FAILED, json!({ "error": fault.message })),
        };
        let declares_data = work.declared().is_some_and(|declared| declared.contains_key("data"));
        let mut result = match Self::of_json(&reply.output).filter(|_| !declares_data) {
            Some(result) => result,
            None => Self::new(SUCCESS, Value::clone(&reply.output)),
        };
        if result.tool_calls.is_empty() {
            result.tool_calls = calls(&reply.events);
        }
        result
    }

    /// Decodes a result in the form of `to_json`; `None` for any other value.
    pub(super) fn of_json(value: &Value) -> Option<Self> {
        let all = value.as_object()?;
        if !all.keys().all(|key| matches!(key.as_str(), "status" | "data" | "toolCalls" | "evals")) {
            return None;
        }
        let status = match all.get("status")?.as_str()? {
            SUCCESS => SUCCESS,
            FAILED => FAILED,
            SKIPPED => SKIPPED,
            _ => return None,
        };
        let list = |key: &str| all.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let data = match all.get("data") {
            None => Map::new(),
            Some(data) => data.as_object()?.clone(),
        };
        Some(Self { status, data, tool_calls: list("toolCalls"), evals: list("evals") })
    }

    /// Returns the result as JSON.
    pub(super) fn to_json(&self) -> Value {
        let mut all = Map::new();
        all.insert("status".into(), json!(self.status));
        all.insert("data".into(), Value::Object(self.data.clone()));
        all.insert("toolCalls".into(), Value::Array(self.tool_calls.clone()));
        if !self.evals.is_empty() {
            all.insert("evals".into(), Value::Array(self.evals.clone()));
        }
        Value::Object(all)
    }

    /// Returns the data for later nodes: with the judgements by name, unless a field of the data
    /// has that name.
    fn seen(&self, only: Option<&Map<String, Value>>) -> Value {
        let mut seen = Map::new();
        if !self.evals.is_empty() {
            let named = |eval: &Value| (eval["name"].as_str().unwrap_or_default().to_owned(), eval.clone());
            seen.insert("evals".into(), Value::Object(self.evals.iter().map(named).collect()));
        }
        match only {
            None => seen.extend(self.data.clone()),
            Some(declared) => {
                seen.extend(
                    declared.keys().map(|key| (key.clone(), self.data.get(key).cloned().unwrap_or_default())),
                );
            }
        }
        Value::Object(seen)
    }
}

/// Returns the tool calls in an agent's events. A call without a result failed. Results and errors
/// are in the order of the calls of their tool.
fn calls(events: &[Value]) -> Vec<Value> {
    let mut calls: Vec<Value> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    for event in events {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
        let tool = event.get("tool").cloned().unwrap_or_default();
        match kind {
            "tool:call" => {
                open.push(calls.len());
                let input = event.get("input").cloned().unwrap_or_default();
                calls.push(json!({ "tool": tool, "input": input, "status": "error" }));
            }
            "tool:result" | "tool:error" => {
                let Some(found) = open.iter().position(|at| calls[*at]["tool"] == tool) else { continue };
                let call = &mut calls[open.remove(found)];
                if kind == "tool:result" {
                    call["output"] = event.get("output").cloned().unwrap_or_default();
                    call["status"] = json!("success");
                }
            }
            _ => {}
        }
    }
    calls
}

/// Returns the result of an ended activation; `None` while it is open, or if its node was never
/// entered.
pub(super) fn of_act(ctx: &AdapterContext<'_>, act: ActivationId) -> Option<NodeResult> {
    let one = ctx.act(act);
    let end = one.end?;
    if let Some(output) = &one.output {
        // A result in the initial input may be only data.
        let given = || NodeResult::new(SUCCESS, Value::clone(&output.value));
        return Some(NodeResult::of_json(&output.value).unwrap_or_else(given));
    }
    let why = match (end, &one.fault) {
        _ if one.began_at.is_none() => return None,
        // The budget is checked before a node is entered.
        (_, Some(fault)) if fault.code == STEP_BUDGET => return None,
        (_, Some(fault)) => fault.message.clone(),
        (_, None) => "cancelled".to_owned(),
    };
    Some(NodeResult::new(FAILED, json!({ "error": why })))
}

/// Returns the last result of every node, in the order of first visits.
pub(super) fn results<'a>(ctx: &AdapterContext<'a>) -> IndexMap<&'a str, (ActivationId, NodeResult)> {
    let mut results = IndexMap::new();
    for act in 0..ctx.state.acts.len() as ActivationId {
        if let Some(result) = of_act(ctx, act) {
            results.insert(ctx.plan().node(ctx.act(act).node).id.as_str(), (act, result));
        }
    }
    results
}

/// Returns the data for nodes: the input and the result of every node.
pub(super) fn context(ctx: &AdapterContext<'_>) -> Value {
    view(ctx, |_, result| result.seen(None))
}

/// Returns the data for routes: for nodes that declare their output, only the declared part.
pub(super) fn route_view(ctx: &AdapterContext<'_>) -> Value {
    view(ctx, |act, result| {
        let work = work(ctx, act);
        result.seen(work.as_ref().and_then(Work::declared))
    })
}

fn view(ctx: &AdapterContext<'_>, seen: impl Fn(ActivationId, &NodeResult) -> Value) -> Value {
    let mut view = Map::from_iter([(INPUT.to_owned(), ctx.input().clone())]);
    for (id, (act, result)) in results(ctx) {
        view.insert(id.to_owned(), seen(act, &result));
    }
    Value::Object(view)
}

/// Returns declared fields that a successful node did not return, by node, for results that no
/// route has read yet.
pub(super) fn undeclared(ctx: &AdapterContext<'_>, now: ActivationId) -> Vec<(String, Vec<String>)> {
    let routed: Vec<ActivationId> =
        (0..now).filter(|act| ctx.act(*act).replies.iter().any(|r| r.tag == TaskRequest::ROUTE)).collect();
    let mut missing = Vec::new();
    for (id, (act, result)) in results(ctx) {
        if result.status != SUCCESS || routed.last().is_some_and(|last| *last >= act) {
            continue;
        }
        let Some(work) = work(ctx, act) else { continue };
        let absent: Vec<String> = work
            .declared()
            .into_iter()
            .flat_map(Map::keys)
            .filter(|key| !result.data.contains_key(*key))
            .cloned()
            .collect();
        if !absent.is_empty() {
            missing.push((id.to_owned(), absent));
        }
    }
    missing
}

fn work(ctx: &AdapterContext<'_>, act: ActivationId) -> Option<Work> {
    NodeExtra::deserialize(&ctx.node_of(act).extra).ok().map(|extra| extra.work)
}

/// Returns the result object: results by node, and the path that was taken.
pub(super) fn native(ctx: &AdapterContext<'_>) -> Value {
    let all: Map<String, Value> =
        results(ctx).into_iter().map(|(id, (_, result))| (id.to_owned(), result.to_json())).collect();
    json!({ "results": all, "trace": trace(ctx) })
}

fn trace(ctx: &AdapterContext<'_>) -> Value {
    let (mut steps, mut edges) = (Vec::new(), Vec::new());
    for act in 0..ctx.state.acts.len() as ActivationId {
        let Some(result) = of_act(ctx, act) else { continue };
        let one = ctx.act(act);
        let id = &ctx.node_of(act).id;
        let attempts = one.replies.iter().filter(|reply| reply.tag == TaskRequest::WORK).count();
        for attempt in 0..attempts.max(1) {
            let last = attempt + 1 >= attempts;
            let status = if last { result.status } else { FAILED };
            let mut step = json!({ "node": id, "status": status, "iteration": one.ordinal + 1 });
            if attempts > 1 {
                step["retryAttempt"] = json!(attempt);
            }
            steps.push(step);
        }
        for token in one.sent.iter().filter(|token| token.value.is_live()) {
            let edge = ctx.plan().edge(token.edge);
            let reason = edge.extra.get("reason").cloned().unwrap_or_default();
            edges.push(json!({ "from": id, "to": ctx.plan().node(edge.to).id, "reason": reason }));
        }
    }
    json!({ "steps": steps, "edges": edges, "sources": sources(ctx) })
}

/// Returns every source by its position: those of the file, and those of the input.
pub(super) fn sources(ctx: &AdapterContext<'_>) -> Map<String, Value> {
    let read = ctx.plan().extra.get("sources").and_then(Value::as_object);
    let mut sources = read.cloned().unwrap_or_default();
    for key in ["rules", "context"] {
        for (n, given) in instruct::given(ctx.input().get(key)) {
            if let (Some(origin), Some(text)) = (source::origin(given), source::inline(given)) {
                sources.insert(format!("input.{key}.{n}"), source::record(&origin, &text));
            }
        }
    }
    sources
}
