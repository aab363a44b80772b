//! The dialect's events for observers.
//!
//! Most events are notes of the adapter, because only it knows when a node was entered and why an
//! edge was taken.

use serde_json::{Value, json};
use sinew_engine::{ActivationId, AdapterContext, Fact, NativeEvent};

use super::result;

/// Type of the event at the end of a node.
const NODE_EXIT: &str = "node:exit";

/// Records an event.
pub(super) fn note(ctx: &AdapterContext<'_>, event: &Value) {
    ctx.note(json!({ "event": event }));
}

/// Records the selected edge, or that none was selected.
pub(super) fn route(ctx: &AdapterContext<'_>, from: &str, to: &str, reason: &str) {
    note(ctx, &json!({ "type": "route", "from": from, "to": to, "reason": reason }));
}

/// Returns the events of a fact.
pub(super) fn project(ctx: &AdapterContext<'_>, fact: &Fact) -> Vec<NativeEvent> {
    match fact {
        Fact::Started(start) if start.refused.is_none() => started(ctx),
        Fact::Noted { note, .. } => noted(note).into_iter().collect(),
        Fact::Completed { act, reused: false, .. }
        | Fact::Skipped { act, .. }
        | Fact::Failed { act, .. }
        | Fact::Cancelled { act, .. } => exited(ctx, *act, fact).into_iter().collect(),
        Fact::Progressed { act, value, .. } => told(ctx, *act, value).into_iter().collect(),
        Fact::Replied { act, result: Ok(reply), .. } => {
            reply.events.iter().filter_map(|said| told(ctx, *act, said)).collect()
        }
        Fact::Concluded { .. } if was_started(ctx) => {
            let results = result::native(ctx)["results"].take();
            vec![event(json!({ "type": "workflow:end", "results": results }))]
        }
        _ => Vec::new(),
    }
}

/// Returns an event that the adapter noted. Skips `node:exit` in journals of older versions,
/// because the end of the node reports it.
fn noted(note: &Value) -> Option<NativeEvent> {
    let noted = note.get("event").filter(|event| event["type"] != NODE_EXIT)?;
    Some(event(noted.clone()))
}

/// Returns the exit event of an entered node, whatever ended it.
fn exited(ctx: &AdapterContext<'_>, act: ActivationId, fact: &Fact) -> Option<NativeEvent> {
    // A node that has already ended is cancelled while its route is requested.
    if matches!(fact, Fact::Cancelled { .. }) && ctx.act(act).output.is_some() {
        return None;
    }
    let result = result::of_act(ctx, act)?.to_json();
    Some(event(json!({ "type": NODE_EXIT, "node": ctx.node_of(act).id, "result": result })))
}

/// Returns false for an execution whose input was rejected: it has no events.
fn was_started(ctx: &AdapterContext<'_>) -> bool {
    ctx.state.start.as_ref().is_some_and(|start| start.refused.is_none())
}

fn started(ctx: &AdapterContext<'_>) -> Vec<NativeEvent> {
    let id = ctx.plan().extra.get("id").cloned().unwrap_or_default();
    vec![
        event(json!({ "type": "workflow:start", "workflow": id })),
        event(json!({ "type": "sources:resolved", "sources": result::sources(ctx) })),
    ]
}

/// Returns the event of an agent's progress: a tool call, its result, or a message. A failed call has
/// no result.
fn told(ctx: &AdapterContext<'_>, act: ActivationId, said: &Value) -> Option<NativeEvent> {
    let node = &ctx.node_of(act).id;
    let member = |key: &str| said.get(key).cloned().unwrap_or_default();
    Some(event(match said.get("type").and_then(Value::as_str) {
        Some(kind @ "tool:call") => {
            json!({ "type": kind, "node": node, "tool": member("tool"), "input": member("input") })
        }
        Some(kind @ "tool:result") => {
            json!({ "type": kind, "node": node, "tool": member("tool"), "output": member("output") })
        }
        // A message that is stored with the result has no position among the calls.
        None if said.get("at").is_some() => return None,
        _ => {
            let text = said.as_str().or_else(|| said.get("message")?.as_str())?;
            json!({ "type": "node:progress", "node": node, "message": text })
        }
    }))
}

/// Adds a line to an event: its type, its subject, and its distinguishing detail.
fn event(json: Value) -> NativeEvent {
    let text = |key: &str| json.get(key).and_then(Value::as_str).unwrap_or_default();
    let (kind, node) = (text("type"), text("node"));
    let line = match kind {
        "workflow:start" => format!("{kind} {}", text("workflow")),
        NODE_EXIT => {
            let status = json.pointer("/result/status").and_then(Value::as_str).unwrap_or_default();
            format!("{kind} {node} {status}")
        }
        "node:retry" => format!("{kind} {node} #{}", json["attempt"]),
        "node:warning" => {
            let fields = json["fields"].as_array().into_iter().flatten().filter_map(Value::as_str);
            format!("{kind} {node} fields={}", fields.collect::<Vec<_>>().join(","))
        }
        "route" => format!("{kind} {}>{} [{}]", text("from"), text("to"), text("reason")),
        "tool:call" | "tool:result" => format!("{kind} {node} {}", text("tool")),
        "node:enter" => format!("{kind} {node}"),
        "node:progress" => format!("{kind} {node} {}", text("message")),
        _ => kind.to_owned(),
    };
    NativeEvent { line, json }
}
