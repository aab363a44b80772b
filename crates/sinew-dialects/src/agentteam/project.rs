//! The dialect's own events and its result object.

use serde_json::{Map, Value, json};
use sinew_engine::{
    ActivationEnd, ActivationId, ActivationPhase, AdapterContext, Fact, NativeEvent, TerminalStatus, Time,
};
use sinew_plan::{NodeOperation, PlanNode};
use sinew_protocol::task::is_answer_piece;

use super::adapter::{self, NODE_REPORTED_FAILURE};
use super::delivery::{self, FailedConversion};
use super::{flow, schema};

/// Returns the name of a node in messages.
pub(super) fn name_of(node: &PlanNode) -> &str {
    node.label.as_deref().unwrap_or(&node.id)
}

/// Returns the events of a fact.
pub(super) fn events(ctx: &AdapterContext<'_>, fact: &Fact) -> Vec<NativeEvent> {
    let mut events = events_of(ctx, fact);
    if let Some(id) = ctx.execution_id() {
        for event in &mut events {
            event.json["execution_id"] = json!(id);
        }
    }
    events
}

fn events_of(ctx: &AdapterContext<'_>, fact: &Fact) -> Vec<NativeEvent> {
    match fact {
        Fact::Started(_) => vec![of_run("execution_started", json!({ "trigger_data": ctx.input() }))],
        Fact::Began { act } => vec![of_node(ctx, *act, "node_started", json!({ "input": input(ctx, *act) }))],
        Fact::Progressed { act, value, .. } => {
            let chunk = if is_answer_piece(value) { &value["delta"] } else { value };
            vec![of_node(ctx, *act, "node_output_update", json!({ "chunk": chunk }))]
        }
        Fact::Awaited { act, wait, .. } if adapter::asks_person(ctx, *act) => {
            let asked = json!({ "prompt": wait.prompt, "timeout_ms": wait.timeout_ms });
            vec![of_node(ctx, *act, "user_input_required", asked)]
        }
        Fact::Awaited { act, .. } => {
            vec![of_run("execution_paused", json!({ "node_id": ctx.node_of(*act).id }))]
        }
        Fact::Slept { act, .. } if ctx.act(*act).began_at.is_some() => {
            vec![of_run("execution_paused", json!({ "node_id": ctx.node_of(*act).id }))]
        }
        Fact::Completed { act, output, .. } => completed(ctx, *act, &output.value),
        Fact::Failed { act, fault, .. } => {
            let error = json!({ "error": fault.message, "error_code": error_code(&fault.code) });
            vec![of_node(ctx, *act, "node_failed", error)]
        }
        Fact::Noted { act, note } => noted(ctx, *act, note),
        Fact::Paused { reason } => vec![of_run("execution_paused", json!({ "reason": reason }))],
        Fact::Resumed => vec![of_run("execution_resumed", json!({}))],
        Fact::Concluded { outcome } => vec![match outcome.status {
            TerminalStatus::Success => of_run("execution_completed", json!({})),
            TerminalStatus::Failure => {
                let error = outcome.fault.as_ref().map(|fault| fault.message.clone());
                of_run("execution_failed", json!({ "error": error }))
            }
            TerminalStatus::Cancelled => of_run("execution_cancelled", json!({})),
        }],
        _ => Vec::new(),
    }
}

/// Returns the chunks of an agent's reply, the final output, the end, and the resumption if the
/// execution was paused.
fn completed(ctx: &AdapterContext<'_>, act: ActivationId, output: &Value) -> Vec<NativeEvent> {
    let ports = adapter::raw_reply(ctx, act).map(|raw| adapter::ports_of(kind_of(ctx, act), raw));
    let ports = ports.unwrap_or_default();
    let chunks =
        ports.iter().find(|(port, _)| port == "_stream_chunks").and_then(|(_, chunks)| chunks.as_array());
    let chunks = chunks.into_iter().flatten().map(|chunk| json!({ "chunk": chunk }));
    let updates = chunks.chain([json!({ "output": output })]);
    let mut events: Vec<NativeEvent> =
        updates.map(|update| of_node(ctx, act, "node_output_update", update)).collect();
    events.push(of_node(ctx, act, "node_completed", json!({ "output": output })));
    let slept =
        ports.iter().any(|(port, _)| port == "_delay_ms") || ctx.node_of(act).op == NodeOperation::Delay;
    if slept || ctx.act(act).wait.is_some() {
        events.push(of_run("execution_resumed", json!({ "node_id": ctx.node_of(act).id })));
    }
    events
}

/// Returns the event of a conversion function that raised, or of a value that violates the contract
/// of its node.
fn noted(ctx: &AdapterContext<'_>, act: Option<ActivationId>, note: &Value) -> Vec<NativeEvent> {
    let event = |kind: &str, what: &str| {
        let told = note.get(kind)?;
        let mut json = told.as_object().cloned().unwrap_or_default();
        json.insert("event".to_owned(), json!(kind));
        json.insert("node_id".to_owned(), json!(act.map(|act| ctx.node_of(act).id.clone())));
        let name = told.get(what).and_then(Value::as_str).unwrap_or_default();
        Some(NativeEvent { line: format!("{kind} {name}"), json: Value::Object(json) })
    };
    event("conversion_failed", "connection")
        .or_else(|| event("schema_violation", "node"))
        .into_iter()
        .collect()
}

/// Returns the part of a node's type that determines its work.
fn kind_of<'a>(ctx: &AdapterContext<'a>, act: ActivationId) -> &'a str {
    let kind = ctx.node_of(act).kind.as_str();
    kind.split_once('.').map_or(kind, |(kind, _)| kind)
}

fn of_run(kind: &str, mut data: Value) -> NativeEvent {
    data["event"] = json!(kind);
    NativeEvent { line: kind.to_owned(), json: data }
}

fn of_node(ctx: &AdapterContext<'_>, act: ActivationId, kind: &str, mut data: Value) -> NativeEvent {
    let id = &ctx.node_of(act).id;
    data["event"] = json!(kind);
    data["node_id"] = json!(id);
    data["activation_id"] = json!(act);
    if let Some(parent) = parent(ctx, act) {
        data["parent_activation_id"] = json!(parent);
    }
    NativeEvent { line: format!("{kind} {id}"), json: data }
}

/// Returns the activation that fanned out into this one.
fn parent(ctx: &AdapterContext<'_>, act: ActivationId) -> Option<ActivationId> {
    ctx.state.scope(ctx.act(act).scope).map(|scope| scope.owner)
}

fn input(ctx: &AdapterContext<'_>, act: ActivationId) -> Value {
    adapter::inputs_of(ctx, act)
}

fn error_code(code: &str) -> &'static str {
    if code == NODE_REPORTED_FAILURE { "NODE_EXECUTION_FAILED" } else { "NODE_EXEC_ERROR" }
}

/// Returns the error of a node as in the original, where a timeout has no message.
fn error_text(fault: &sinew_protocol::Fault) -> &str {
    if sinew_engine::is_attempt_timeout(&fault.code) { "" } else { &fault.message }
}

/// Returns the result object: status, sequence, nodes, error and cost.
pub(super) fn result(ctx: &AdapterContext<'_>, succeeded: bool) -> Value {
    let acts = 0..ctx.state.acts.len() as ActivationId;
    let waits = acts
        .clone()
        .find(|act| matches!(ctx.act(*act).phase, ActivationPhase::Waiting | ActivationPhase::Sleeping));
    let failed = ctx.state.failed.as_ref();
    let status = match (waits, ctx.outcome().map(|outcome| outcome.status)) {
        _ if succeeded => "SUCCESS",
        (_, Some(TerminalStatus::Cancelled)) => "CANCELED",
        (_, Some(_)) => "ERROR",
        (Some(act), None) if adapter::asks_person(ctx, act) => "WAITING_FOR_HUMAN",
        (Some(_), None) => "WAITING",
        (None, None) if ctx.state.start.is_none() => "NEW",
        (None, None) if ctx.state.paused.is_some() => "PAUSED",
        (None, None) => "RUNNING",
    };
    let running = || acts.clone().find(|act| ctx.act(*act).began_at.is_some() && ctx.act(*act).end.is_none());
    let current = waits.or_else(running).filter(|_| ctx.outcome().is_none());
    let error = match failed {
        Some((Some(act), fault)) => {
            Some(format!("Node {} failed: {}", name_of(ctx.node_of(*act)), error_text(fault)))
        }
        Some((None, fault)) => Some(fault.message.clone()),
        None => ctx.outcome().and_then(|outcome| outcome.fault.as_ref()).map(|fault| fault.message.clone()),
    };
    let (mut nodes, mut activations) = (Map::new(), Map::new());
    for node in ctx.plan().nodes.iter().filter(|node| !node.attached) {
        nodes.insert(node.id.clone(), json!({ "status": "pending" }));
    }
    let (mut tokens, mut credits) = (0.0, 0.0);
    let (mut failures, mut violations) = (Vec::new(), Vec::new());
    for act in acts.clone().filter(|act| ctx.act(*act).began_at.is_some()) {
        let seen = node_result(ctx, act);
        let number = |key: &str| seen.get(key).and_then(Value::as_f64).unwrap_or(0.0);
        tokens += number("tokens_used");
        credits += number("credits_consumed");
        let id = &ctx.node_of(act).id;
        if let Some(list) = activations.entry(id.clone()).or_insert_with(|| json!([])).as_array_mut() {
            list.push(input(ctx, act));
        }
        nodes.insert(id.clone(), seen);
        failures.extend(delivery::failed_conversions(ctx, act));
        violations.extend(schema::violations_of(ctx, act));
    }
    json!({
        "status": status,
        "sequence": sequence(ctx).iter().map(|act| ctx.node_of(*act).id.as_str()).collect::<Vec<_>>(),
        "current": current.map(|act| ctx.node_of(act).id.clone()),
        "error": error,
        "nodes": nodes,
        "activations": activations,
        "tokens_used": whole(tokens),
        "credits_consumed": whole(credits),
        "duration_ms": ended_at(ctx).saturating_sub(ctx.state.started_at),
        "conversion_failures": failures.len(),
        "failed_conversions": failures.iter().map(|failed| failed.connection.as_str()).collect::<Vec<_>>(),
        "conversion_errors": failures.iter().map(FailedConversion::to_json).collect::<Vec<_>>(),
        "schema_violations": violations,
    })
}

/// Returns the end of the execution, or its current time; reports of agents after the end do not
/// extend it.
fn ended_at(ctx: &AdapterContext<'_>) -> Time {
    let last = ctx.state.acts.iter().filter_map(|act| act.ended_at).max();
    last.filter(|_| ctx.outcome().is_some()).unwrap_or(ctx.state.at)
}

/// Returns the completed activations in the order in which they ended. Only one runs at a time, so
/// this is also their start order, except for those that waited.
fn sequence(ctx: &AdapterContext<'_>) -> Vec<ActivationId> {
    let ended = |act: &ActivationId| ctx.act(*act).end.is_some_and(|end| end == ActivationEnd::Succeeded);
    let mut acts: Vec<ActivationId> = (0..ctx.state.acts.len() as ActivationId).filter(ended).collect();
    acts.sort_by_key(|act| (ctx.act(*act).ended_at, *act));
    acts
}

fn node_result(ctx: &AdapterContext<'_>, act: ActivationId) -> Value {
    let one = ctx.act(act);
    let status = match one.end {
        Some(ActivationEnd::Succeeded) => "completed",
        Some(ActivationEnd::Failed) => "failed",
        Some(ActivationEnd::Skipped) => "skipped",
        Some(ActivationEnd::Cancelled) => "canceled",
        None if matches!(one.phase, ActivationPhase::Waiting | ActivationPhase::Sleeping) => "waiting_input",
        None if one.phase == ActivationPhase::BackedOff || one.tries > 1 => "retrying",
        None => "running",
    };
    let mut seen = json!({ "status": status, "input": input(ctx, act), "activation_id": act });
    if let Some(output) = &one.output {
        seen["output"] = Value::clone(&output.value);
        seen["ports"] = decided(ctx.node_of(act), &output.value);
    }
    if let Some(fault) = &one.fault {
        seen["error"] = json!(error_text(fault));
        seen["error_code"] = json!(error_code(&fault.code));
        seen["error_message"] = json!(fault.message);
    }
    if let Some(parent) = parent(ctx, act) {
        seen["parent_activation_id"] = json!(parent);
    }
    if let (Some(began), Some(ended)) = (one.began_at, one.ended_at) {
        seen["duration_ms"] = json!(ended.saturating_sub(began));
    }
    if one.tries > 1 {
        seen["attempts"] = json!(one.tries);
    }
    if let Some(used) = tokens(ctx, act) {
        seen["tokens_used"] = used;
    }
    let cost = ctx.node_of(act).extra["configurations"].get("credit_cost").and_then(flow::number);
    if let (Some(cost), true) = (cost, one.end.is_some()) {
        seen["credits_consumed"] = whole(cost);
    }
    seen
}

/// Returns the ports that fired. Omits data that a FLOW node only passes on: its decision counts.
fn decided(node: &PlanNode, output: &Value) -> Value {
    let mut ports = output.clone();
    if node.kind.starts_with("FLOW.") {
        for payload in ports.as_object_mut().into_iter().flat_map(|ports| ports.values_mut()) {
            if let Some(members) = payload.as_object_mut() {
                members.shift_remove("data");
            }
        }
    }
    ports
}

/// Returns the tokens that an activation used, in any place where its agent reports them.
fn tokens(ctx: &AdapterContext<'_>, act: ActivationId) -> Option<Value> {
    let reply = ctx.act(act).last_reply()?.result.as_ref().ok()?;
    let ports = adapter::ports_of(kind_of(ctx, act), &reply.output);
    let at = |key: &str| ports.iter().find(|(port, _)| port == key).map(|(_, value)| value);
    let in_payload = |key: &str| at("result").and_then(|payload| payload.get(key));
    let reported = [at("_tokens"), in_payload("token_usage"), in_payload("_tokens"), Some(&reply.usage)];
    reported.into_iter().flatten().find_map(|usage| {
        let number = |key: &str| usage.get(key).and_then(Value::as_f64);
        let sum = |input: &str, output: &str| {
            (number(input).is_some() || number(output).is_some())
                .then(|| number(input).unwrap_or(0.0) + number(output).unwrap_or(0.0))
        };
        let total = number("total_tokens").or_else(|| number("total"));
        let total = total.or_else(|| sum("input", "output")).or_else(|| sum("input_tokens", "output_tokens"));
        total.or_else(|| sum("prompt_tokens", "completion_tokens")).map(whole)
    })
}

/// Converts a number to JSON and keeps integers as integers.
fn whole(number: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "a whole number that i64 holds")]
    let whole = (number.fract() == 0.0 && number.abs() < 1e15).then_some(number as i64);
    whole.map_or_else(|| json!(number), |whole| json!(whole))
}
