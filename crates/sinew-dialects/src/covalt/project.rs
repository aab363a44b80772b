//! The dialect's own events and its result object.

use serde_json::{Map, Value, json};
use sinew_engine::{
    ActivationEnd, ActivationId, ActivationPhase, AdapterContext, Fact, NativeEvent, TerminalStatus,
};

use super::adapter;
use super::scope::{primary, shown};
use super::template::spaced_json;

/// The events of a fact. A node that does not stream says that it started when it is done.
pub(super) fn events(ctx: &AdapterContext<'_>, fact: &Fact) -> Vec<NativeEvent> {
    let act = match fact {
        Fact::Began { act }
        | Fact::Progressed { act, .. }
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
        Fact::Progressed { value, .. } if value["type"] == "agent_event" => {
            vec![of(ctx, act, "agent_event", Some(value))]
        }
        // An error is told when the node ends.
        Fact::Progressed { value, .. } if value["type"] != "error" => {
            vec![of(ctx, act, "progress", Some(value))]
        }
        Fact::Completed { .. } => {
            let end = match adapter::error_of(ctx, act) {
                Some(error) => of(ctx, act, "error", Some(&told(ctx, act, &error, "continue"))),
                None => of(ctx, act, "completed", None),
            };
            started().into_iter().chain([end]).collect()
        }
        Fact::Failed { fault, .. } => {
            let error = told(ctx, act, &json!(fault.message), "stop");
            started().into_iter().chain([of(ctx, act, "error", Some(&error))]).collect()
        }
        _ => Vec::new(),
    }
}

/// What an error event says; what the node reported itself is told as it was.
fn told(ctx: &AdapterContext<'_>, act: ActivationId, error: &Value, on_error: &str) -> Value {
    if adapter::reported(ctx, act).is_some() {
        json!({ "error": error })
    } else {
        json!({ "error": error, "on_error": on_error })
    }
}

/// One event for a run that somebody stopped: at the node that was at work.
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
    let json = json!({ "node_id": node.id, "node_type": node.kind, "event_type": kind, "data": data });
    NativeEvent { line, json }
}

/// What each node gave, by port.
fn outputs(ctx: &AdapterContext<'_>) -> Map<String, Value> {
    let mut all = Map::new();
    for act in 0..ctx.state.acts.len() as ActivationId {
        let one = ctx.act(act);
        let Some(output) = one.output.as_ref().filter(|_| one.end.is_some()) else { continue };
        if adapter::is_silent(ctx, act) || adapter::error_of(ctx, act).is_some() {
            continue;
        }
        let ports = output.value.as_object().into_iter().flatten();
        all.insert(
            ctx.node_of(act).id.clone(),
            Value::Object(ports.map(|(port, value)| (port.clone(), shown(value))).collect()),
        );
    }
    all
}

/// The value at the end of the graph: that of the node behind which nothing ran, or of each by its id.
pub(super) fn last_value(ctx: &AdapterContext<'_>) -> Value {
    let mut left = Map::new();
    for act in 0..ctx.state.acts.len() as ActivationId {
        let one = ctx.act(act);
        let last =
            one.end == Some(ActivationEnd::Succeeded) && !one.sent.iter().any(|token| token.value.is_live());
        if !last || adapter::is_silent(ctx, act) {
            continue;
        }
        if let Some(value) = one.output.as_ref().and_then(|output| primary(&output.value)) {
            // A request's response is the result, whatever else ended.
            if ctx.node_of(act).kind == "webhook-end" {
                return value;
            }
            left.insert(ctx.node_of(act).id.clone(), value);
        }
    }
    if left.len() == 1 {
        left.into_iter().next().map(|(_, value)| value).unwrap_or_default()
    } else {
        Value::Object(left)
    }
}

/// The result object: status, outputs, error, and the text a person reads.
pub(super) fn result(ctx: &AdapterContext<'_>) -> Value {
    let failed = ctx.state.failed.as_ref();
    let status = match ctx.outcome().map(|outcome| outcome.status) {
        Some(TerminalStatus::Success) => "completed",
        Some(TerminalStatus::Failure) => "error",
        Some(TerminalStatus::Cancelled) => "cancelled",
        None if failed.is_some() => "error",
        None => "running",
    };
    let error = failed.map(|(_, fault)| fault.message.clone());
    let last = last_value(ctx);
    let text = ["response", "text", "message"].iter().find_map(|key| last.get(*key)?.as_str());
    let text = text.or_else(|| last.as_str()).map(str::to_owned);
    json!({ "status": status, "outputs": outputs(ctx), "error": error, "text": text })
}
