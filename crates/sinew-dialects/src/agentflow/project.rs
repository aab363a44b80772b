//! The dialect's log: one entry per event that matters to people.

use serde_json::{Value, json};
use sinew_engine::{ActivationId, AdapterContext, Fact, NativeEvent, TaskRequest};
use sinew_plan::NodeOperation;

use super::model::{AGENT_NAME, Work};
use super::{adapter, delegation, text};

/// Text of an approval's log entry.
pub(super) const WAITING: &str = "Waiting for user approval";
/// Source of log entries that belong to no node.
const SYSTEM: &str = "system";

/// Adds a log entry that cannot be derived from the engine's own facts.
pub(super) fn note(ctx: &AdapterContext<'_>, act: ActivationId, kind: &str, content: &str) {
    ctx.note(json!({ "log": { "nodeId": ctx.node_of(act).id, "type": kind, "content": content } }));
}

/// Returns the log entries of a fact.
pub(super) fn project(ctx: &AdapterContext<'_>, fact: &Fact) -> Vec<NativeEvent> {
    let of =
        |act: ActivationId, kind: &str, content: String| vec![entry(&ctx.node_of(act).id, kind, &content)];
    match fact {
        Fact::Began { act } => began(ctx, *act),
        Fact::Noted { note, .. } => noted(note).into_iter().collect(),
        Fact::Dispatched { act, ask, .. } if ctx.act(*act).tries == 1 && ask.tag == TaskRequest::WORK => {
            let prompt = ask.context.get("userContent").map(text::plain).unwrap_or_default();
            of(*act, "start_prompt", prompt)
        }
        Fact::Progressed { act, value, .. } => subagent_event(ctx, *act, value).into_iter().collect(),
        Fact::Replied { act, result, retried: false, .. } => match result {
            _ if last_tag(ctx, *act) == delegation::SUBAGENT => Vec::new(),
            // The calls already log an answer that delegates.
            Ok(reply) if is_delegating(ctx, *act, &reply.output) => Vec::new(),
            Ok(reply) => {
                let told = reply.events.iter().filter_map(|event| subagent_event(ctx, *act, event));
                told.chain(of(*act, "llm_response", response(&reply.output))).collect()
            }
            Err(fault) => of(*act, "llm_error", fault.message.clone()),
        },
        Fact::Failed { act, fault, .. } if ctx.node_of(*act).kind == SYSTEM => {
            vec![entry(SYSTEM, "error", &fault.message)]
        }
        // An agent that was never called failed because of the graph around it.
        Fact::Failed { act, fault, .. } if ctx.act(*act).ask.is_none() => {
            of(*act, "error", fault.message.clone())
        }
        Fact::Deferred { act, human: true } | Fact::Awaited { act, .. } => {
            of(*act, "wait_input", WAITING.to_owned())
        }
        Fact::Answered { act, answer } => {
            let decision = text::ApprovalDecision::of(answer);
            of(*act, "input_received", decision.log())
        }
        Fact::Concluded { outcome } if outcome.cause.is_none() => {
            outcome.fault.iter().map(|fault| entry(SYSTEM, "error", &fault.message)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the tag of the last reply.
fn last_tag<'a>(ctx: &AdapterContext<'a>, act: ActivationId) -> &'a str {
    ctx.act(act).replies.last().map(|reply| reply.tag.as_str()).unwrap_or_default()
}

fn is_delegating(ctx: &AdapterContext<'_>, act: ActivationId, output: &Value) -> bool {
    adapter::extra(ctx, act).is_ok_and(|extra| delegation::delegates(&extra.own, output))
}

fn began(ctx: &AdapterContext<'_>, act: ActivationId) -> Vec<NativeEvent> {
    let node = ctx.node_of(act);
    // An approval from the queue was logged when it was queued.
    if node.kind == SYSTEM || ctx.act(act).deferred == Some(true) {
        return Vec::new();
    }
    let what = match (&node.op, adapter::extra(ctx, act).map(|extra| extra.work)) {
        (_, Ok(Work::If { .. })) => "condition node".to_owned(),
        (_, Ok(Work::Agent(agent))) => format!("{} agent node", agent.name),
        (NodeOperation::Agent, _) => format!("{AGENT_NAME} agent node"),
        _ => format!("{} node", node.kind),
    };
    vec![entry(&node.id, "step_start", &what)]
}

fn noted(note: &Value) -> Option<NativeEvent> {
    let log = note.get("log")?;
    let text = |key: &str| log.get(key).and_then(Value::as_str);
    Some(entry(text("nodeId")?, text("type")?, text("content")?))
}

/// Returns the log entry of an agent's report about its sub-agents, as JSON.
fn subagent_event(ctx: &AdapterContext<'_>, act: ActivationId, event: &Value) -> Option<NativeEvent> {
    let kind = event.get("type").and_then(Value::as_str)?;
    if !matches!(kind, "subagent_call_start" | "subagent_call_end" | "subagent_call_error") {
        return None;
    }
    let id = &ctx.node_of(act).id;
    let mut told = event.clone();
    if let Some(members) = told.as_object_mut()
        && !members.contains_key("parentNodeId")
    {
        members.insert("parentNodeId".into(), json!(id));
    }
    Some(entry(id, kind, &crate::js::json_text(&told)))
}

fn response(output: &Value) -> String {
    match output.get("text").and_then(Value::as_str) {
        Some(text) if output.as_object().is_some_and(|members| members.len() == 1) => text.to_owned(),
        _ => text::plain(output),
    }
}

fn entry(node: &str, kind: &str, content: &str) -> NativeEvent {
    NativeEvent {
        line: format!("{node} {kind}: {content}"),
        json: json!({ "nodeId": node, "type": kind, "content": content }),
    }
}
