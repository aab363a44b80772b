//! The dialect's own events and its result object.

use serde_json::{Map, Value, json};
use sinew_engine::{
    ActivationEnd, ActivationId, ActivationPhase, AdapterContext, Fact, NativeEvent, TaskRequest,
    TerminalStatus,
};
use sinew_protocol::task::is_answer_piece;

use super::adapter;
use super::scope::{primary, shown};
use super::template::spaced_json;

/// Type of an event of the agent in a node.
const AGENT_EVENT: &str = "agent_event";

/// Returns the events of a fact. A node without streaming reports its start when it ends.
pub(super) fn events(ctx: &AdapterContext<'_>, fact: &Fact) -> Vec<NativeEvent> {
    let act = match fact {
        Fact::Began { act }
        | Fact::Progressed { act, .. }
        | Fact::Replied { act, .. }
        | Fact::Completed { act, .. }
        | Fact::Failed { act, .. } => *act,
        Fact::CancelRequested { .. } => return cancelled(ctx),
        _ => return Vec::new(),
    };
    if adapter::is_silent(ctx, act) {
        return Vec::new();
    }
    let streams = ctx.node_of(act).extra["streaming"] == true;
    let started = || (!streams).then(|| of(ctx, act, "started", None));
    match fact {
        Fact::Began { .. } if streams => vec![of(ctx, act, "started", None)],
        Fact::Progressed { value, .. } => progress(ctx, act, value, streams).into_iter().collect(),
        Fact::Replied { result: Ok(reply), .. } if streams => {
            let of_agent = reply.events.iter().filter_map(agent_event);
            of_agent.map(|event| of(ctx, act, AGENT_EVENT, Some(&event))).collect()
        }
        Fact::Completed { .. } => {
            let end = match adapter::error_of(ctx, act) {
                Some(error) => of(ctx, act, "error", Some(&told(ctx, act, &error, "continue"))),
                None => of(ctx, act, "completed", None),
            };
            let told =
                executor_events(ctx, act).into_iter().map(|(kind, data)| of(ctx, act, kind, Some(&data)));
            started().into_iter().chain(told).chain([end]).collect()
        }
        Fact::Failed { fault, .. } => {
            let error = told(ctx, act, &json!(fault.message), "stop");
            started().into_iter().chain([of(ctx, act, "error", Some(&error))]).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the event of an agent's progress. An error is reported when the node ends. Only a node that
/// streams reports tool calls and tokens, because the start of others is reported at their end.
fn progress(
    ctx: &AdapterContext<'_>,
    act: ActivationId,
    value: &Value,
    streams: bool,
) -> Option<NativeEvent> {
    let (kind, data) = match (agent_event(value), is_answer_piece(value)) {
        (Some(event), _) if streams || value["type"] == AGENT_EVENT => (AGENT_EVENT, event),
        (None, true) if streams => ("progress", json!({ "token": value["delta"] })),
        (None, false) if value["type"] != "error" => ("progress", value.clone()),
        _ => return None,
    };
    Some(of(ctx, act, kind, Some(&data)))
}

/// Returns the chat event of an agent's report: its own, or that of a tool call.
fn agent_event(value: &Value) -> Option<Value> {
    let (event, result) = match value["type"].as_str()? {
        AGENT_EVENT => return Some(value.clone()),
        "tool:call" => ("ToolCallStarted", None),
        "tool:result" => ("ToolCallCompleted", Some("result")),
        "tool:error" => ("ToolCallError", Some("error")),
        _ => return None,
    };
    let mut tool = json!({ "tool_name": value["tool"] });
    match result {
        None => tool["tool_args"] = value["input"].clone(),
        Some(key) => tool[key] = value["output"].clone(),
    }
    Some(json!({ "event": event, "tool": tool }))
}

/// Returns the events that a plugin's executor reported: `agent_event` unchanged, all others as
/// progress.
fn executor_events(ctx: &AdapterContext<'_>, act: ActivationId) -> Vec<(&'static str, Value)> {
    if ctx.node_of(act).extra.get("executor").is_none() {
        return Vec::new();
    }
    let last = ctx.act(act).replies.last().filter(|reply| reply.tag == TaskRequest::EVALUATION);
    let Some(Ok(reply)) = last.map(|reply| &reply.result) else { return Vec::new() };
    let kind = |event: &Value| if event["event_type"] == AGENT_EVENT { AGENT_EVENT } else { "progress" };
    super::executor::events(&reply.output)
        .into_iter()
        .map(|mut event| (kind(&event), event["data"].take()))
        .collect()
}

/// Returns the data of an error event; an error that the node itself reported is unchanged.
fn told(ctx: &AdapterContext<'_>, act: ActivationId, error: &Value, on_error: &str) -> Value {
    if adapter::reported(ctx, act).is_some() && on_error == "stop" {
        json!({ "error": error })
    } else {
        json!({ "error": error, "on_error": on_error })
    }
}

/// Returns one event for a cancelled execution: at the node that was running.
fn cancelled(ctx: &AdapterContext<'_>) -> Vec<NativeEvent> {
    let at_work = |act: &ActivationId| {
        ctx.act(*act).phase == ActivationPhase::Running && !adapter::is_silent(ctx, *act)
    };
    let act = (0..ctx.state.acts.len() as ActivationId).find(at_work);
    act.map(|act| of(ctx, act, "cancelled", None)).into_iter().collect()
}

fn of(ctx: &AdapterContext<'_>, act: ActivationId, kind: &str, data: Option<&Value>) -> NativeEvent {
    let node = ctx.node_of(act);
    let line = match data {
        Some(data) => format!("{} {kind} {}", node.id, spaced_json(data)),
        None => format!("{} {kind}", node.id),
    };
    let mut json = json!({
        "node_id": node.id,
        "node_type": node.kind,
        "event_type": kind,
        "run_id": ctx.execution_id(),
        "data": data,
        "timestamp": seconds(ctx.now),
    });
    if let Some(chat) = chat_event(&json) {
        json["chat_event"] = chat;
    }
    NativeEvent { line, json }
}

/// Returns a time in seconds since 1970, for events.
fn seconds(ms: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "milliseconds of any year to come fit into the 52 bits of f64"
    )]
    let ms = ms as f64;
    ms / 1_000.0
}

/// Returns the chat message of a node event.
fn chat_event(event: &Value) -> Option<Value> {
    let data = &event["data"];
    let content = || ["token", "content", "text"].iter().find_map(|key| data.get(*key)?.as_str());
    let (kind, content) = match event["event_type"].as_str()? {
        "started" => ("FlowNodeStarted", None),
        "progress" => ("RunContent", Some(content()?)),
        "completed" => ("FlowNodeCompleted", None),
        "error" => ("RunError", data["error"].as_str()),
        "cancelled" => ("RunCancelled", None),
        // Events of agents are unchanged.
        AGENT_EVENT => return Some(data.clone()),
        _ => return None,
    };
    let mut chat = json!({
        "event": kind,
        "run_id": event["run_id"],
        "node_id": event["node_id"],
        "node_type": event["node_type"],
        "timestamp": event["timestamp"],
    });
    if let Some(content) = content {
        chat["content"] = json!(content);
    }
    Some(chat)
}

/// Returns the chat events that the agent of a node reported with its reply.
fn agent_chat_events(ctx: &AdapterContext<'_>, act: ActivationId) -> impl Iterator<Item = Value> {
    let streams = ctx.node_of(act).extra["streaming"] == true;
    let reply = ctx.act(act).last_reply().filter(|_| streams).and_then(|reply| reply.result.as_ref().ok());
    reply.into_iter().flat_map(|reply| &reply.events).filter_map(agent_event)
}

/// Returns the chat messages of an execution so far: the work of each node, the text for the
/// person, and the end.
///
/// Streamed tokens are not stored with an execution; their text is in one `RunContent`.
fn chat_events(
    ctx: &AdapterContext<'_>,
    status: &str,
    error: Option<&str>,
    text: Option<&str>,
) -> Vec<Value> {
    let run_id = ctx.execution_id();
    let mut told: Vec<(u64, ActivationId, Value)> = Vec::new();
    for act in 0..ctx.state.acts.len() as ActivationId {
        let one = ctx.act(act);
        let Some(began) = one.began_at.filter(|_| !adapter::is_silent(ctx, act)) else { continue };
        let event = |kind: &str, at: u64, extra: Option<(&str, Value)>| {
            let node = ctx.node_of(act);
            let mut json = json!({
                "event": kind, "run_id": run_id, "node_id": node.id, "node_type": node.kind,
                "timestamp": seconds(at),
            });
            if let Some((key, value)) = extra {
                json[key] = value;
            }
            (at, act, json)
        };
        told.push(event("FlowNodeStarted", began, None));
        let Some(ended) = one.ended_at else { continue };
        let failure =
            one.fault.as_ref().map(|fault| json!(fault.message)).or_else(|| adapter::error_of(ctx, act));
        match (one.end, failure) {
            (Some(ActivationEnd::Succeeded | ActivationEnd::Failed), Some(error)) => {
                told.push(event("RunError", ended, Some(("content", error))));
            }
            (Some(ActivationEnd::Succeeded), None) => {
                told.extend(agent_chat_events(ctx, act).map(|event| (ended, act, event)));
                let given = one.output.as_ref().and_then(|output| primary(&output.value));
                told.push(event("FlowNodeResult", ended, Some(("result", given.unwrap_or_default()))));
                told.push(event("FlowNodeCompleted", ended, None));
            }
            _ => {}
        }
    }
    told.sort_by_key(|(at, act, _)| (*at, *act));
    let mut events: Vec<Value> = told.into_iter().map(|(_, _, event)| event).collect();
    let at = seconds(ctx.state.at);
    let of_run = |kind: &str| json!({ "event": kind, "run_id": run_id, "timestamp": at });
    if let Some(text) = text.filter(|_| status == "completed") {
        events.push(json!({ "event": "RunContent", "run_id": run_id, "timestamp": at, "content": text }));
    }
    match status {
        "completed" => events.push(of_run("RunCompleted")),
        "cancelled" => events.push(of_run("RunCancelled")),
        "error" if !events.iter().any(|event| event["event"] == "RunError") => {
            let mut failed = of_run("RunError");
            failed["content"] = json!(error);
            events.push(failed);
        }
        _ => {}
    }
    events
}

/// Returns the outputs of each node, by port.
fn outputs(ctx: &AdapterContext<'_>) -> Map<String, Value> {
    let mut all = Map::new();
    for act in 0..ctx.state.acts.len() as ActivationId {
        let one = ctx.act(act);
        let Some(output) = one.output.as_ref().filter(|_| one.end.is_some()) else { continue };
        if adapter::is_silent(ctx, act) {
            continue;
        }
        // Outputs before an error are reported, although the error is passed on.
        let given = match adapter::error_of(ctx, act) {
            Some(_) => output.value.get(adapter::PARTIAL),
            None => Some(&*output.value),
        };
        let Some(given) = given else { continue };
        let ports = given.as_object().into_iter().flatten();
        all.insert(
            ctx.node_of(act).id.clone(),
            Value::Object(ports.map(|(port, value)| (port.clone(), shown(value))).collect()),
        );
    }
    all
}

/// Returns the activations without successors, with their values.
fn last_values(ctx: &AdapterContext<'_>) -> impl Iterator<Item = (ActivationId, Value)> {
    (0..ctx.state.acts.len() as ActivationId).filter_map(|act| {
        let one = ctx.act(act);
        let is_last =
            one.end == Some(ActivationEnd::Succeeded) && !one.sent.iter().any(|token| token.value.is_live());
        let output = one.output.as_ref().filter(|_| is_last && !adapter::is_silent(ctx, act))?;
        Some((act, primary(&output.value)?))
    })
}

/// Returns the text for the person: from the response to a request, else from the last activation
/// without successors that has one.
fn final_text(ctx: &AdapterContext<'_>) -> Option<String> {
    let text_of = |value: &Value| {
        let member = ["response", "text", "message", "body"].iter().find_map(|key| value.get(*key)?.as_str());
        member.or_else(|| value.as_str()).map(str::to_owned)
    };
    let mut ends: Vec<(ActivationId, Value)> = last_values(ctx).collect();
    if let Some((_, response)) = ends.iter().find(|(act, _)| ctx.node_of(*act).kind == "webhook-end") {
        return text_of(response);
    }
    ends.sort_by_key(|(act, _)| std::cmp::Reverse((ctx.act(*act).ended_at, *act)));
    ends.iter().find_map(|(_, value)| text_of(value))
}

/// Returns the final value of the graph: that of the only activation without successors, or all
/// values by node id.
pub(super) fn last_value(ctx: &AdapterContext<'_>) -> Value {
    let mut left = Map::new();
    for (act, value) in last_values(ctx) {
        // The response to a request is the result, whichever other nodes ended.
        if ctx.node_of(act).kind == "webhook-end" {
            return value;
        }
        left.insert(ctx.node_of(act).id.clone(), value);
    }
    if left.len() == 1 {
        left.into_iter().next().map(|(_, value)| value).unwrap_or_default()
    } else {
        Value::Object(left)
    }
}

/// Returns the result object: status, outputs, error, the text for the person, and the chat
/// messages.
pub(super) fn result(ctx: &AdapterContext<'_>) -> Value {
    let failed = ctx.state.failed.as_ref();
    let outcome = ctx.outcome();
    let status = match outcome.map(|outcome| outcome.status) {
        Some(TerminalStatus::Success) => "completed",
        Some(TerminalStatus::Failure) => "error",
        Some(TerminalStatus::Cancelled) => "cancelled",
        None if failed.is_some() => "error",
        None => "running",
    };
    let error = failed.map(|(_, fault)| fault.message.as_str());
    let error = error
        .or_else(|| outcome.and_then(|outcome| outcome.fault.as_ref()).map(|fault| fault.message.as_str()));
    let text = final_text(ctx);
    let text = text.as_deref();
    json!({
        "status": status,
        "run_id": ctx.execution_id(),
        "timestamp": seconds(ctx.state.at),
        "started_at": seconds(ctx.state.started_at),
        "outputs": outputs(ctx),
        "error": error,
        "text": text,
        "chat_events": chat_events(ctx, status, error, text),
    })
}
