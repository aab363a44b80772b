//! What operators measure of an execution: counts and durations from its facts, and its spans once they have ended.
//!
//! Called after a fact is stored, by whoever stored it, so nothing is counted twice across executors. A span's id is
//! made of what it stands for, never of chance: whoever sends a task knows the span that will be told only when the
//! task is over, perhaps by another executor.

use sinew_engine::{ActId, Activation, Ctx, Fact, State, Time};
use sinew_mesh::trace::TraceParent;
use sinew_plan::Op;
use sinew_protocol::artifact::sha256;
use sinew_protocol::journal::ExecutionMeta;
use sinew_protocol::{ExecutionId, Fault, code};

/// Agents say what they used; more than this at once is nothing they could have.
const MOST_TOKENS: u64 = 100_000_000;
/// Where agents report tokens: how the report is called in different places.
const TOKENS: [(&str, [&str; 2]); 2] =
    [("input", ["input_tokens", "prompt_tokens"]), ("output", ["output_tokens", "completion_tokens"])];

/// Measures one stored fact.
pub(super) fn fact(ctx: &Ctx<'_>, meta: &ExecutionMeta, now: Time, fact: &Fact) {
    match fact {
        Fact::Replied { result, .. } => {
            let outcome = result.as_ref().map_or_else(|fault| fault.kind.as_str(), |_| "success");
            metrics::counter!("sinew_attempts_ended_total", "outcome" => outcome).increment(1);
            if let Ok(reply) = result {
                tokens(&reply.usage);
            }
        }
        Fact::Completed { act, reused: false, .. } => activation(ctx, meta, now, *act, "success", None),
        Fact::Failed { act, fault, .. } => {
            metrics::counter!("sinew_activations_failed_total", "code" => known(fault)).increment(1);
            activation(ctx, meta, now, *act, "failure", Some(fault));
        }
        Fact::Cancelled { act, .. } => activation(ctx, meta, now, *act, "cancelled", None),
        Fact::Ended => execution(ctx.state, meta, now),
        _ => {}
    }
}

/// Whether somebody collects spans here.
fn collects_spans() -> bool {
    tracing::enabled!(target: "sinew::span", tracing::Level::DEBUG)
}

/// The trace that a task belongs to: its activation's span if spans are collected here, else the client's.
pub(super) fn task_trace(meta: &ExecutionMeta, act: ActId) -> Option<String> {
    if collects_spans() { trace(meta, act) } else { meta.traceparent.clone() }
}

/// The trace that messages about one activation belong to; the execution's when there is none of its own to be had.
fn trace(meta: &ExecutionMeta, act: ActId) -> Option<String> {
    let parent: TraceParent = meta.traceparent.as_ref()?.parse().ok()?;
    let span = span(&meta.execution, &format!("activation {act}"));
    Some(TraceParent { span, ..parent }.to_string())
}

fn activation(
    ctx: &Ctx<'_>,
    meta: &ExecutionMeta,
    now: Time,
    act: ActId,
    outcome: &'static str,
    fault: Option<&Fault>,
) {
    let one: &Activation = ctx.state.act(act);
    // What never began took no time, and is no work that was done.
    let Some(began) = one.began_at else { return };
    let ended = one.ended_at.unwrap_or(now).max(began);
    let node = ctx.graph.plan().node(one.node);
    let kind = word(&node.op);
    metrics::histogram!("sinew_activation_seconds", "kind" => kind, "outcome" => outcome)
        .record(seconds(began, ended));
    if !collects_spans() {
        return;
    }
    let Some(parent) = parent(meta, ctx.state) else { return };
    let Some(ask) = one.last_task() else { return };
    tracing::debug!(
        target: "sinew::span",
        span = "activation",
        traceparent = parent.to_string(),
        id = hex(span(&meta.execution, &format!("activation {act}"))),
        start = began,
        end = ended,
        agent = ask.target.name(),
        workflow = meta.workflow,
        execution = meta.execution.as_str(),
        node = node.id,
        activation = act,
        attempt = one.tasks(),
        error = fault.map(known),
    );
}

fn execution(state: &State, meta: &ExecutionMeta, now: Time) {
    let Some(outcome) = &state.outcome else { return };
    let status = outcome.status.as_str();
    metrics::histogram!("sinew_execution_seconds", "status" => status).record(seconds(state.started_at, now));
    if let Some(fault) = &outcome.fault {
        metrics::counter!("sinew_executions_failed_total", "code" => known(fault)).increment(1);
    }
    let Some(client) = meta.traceparent.as_ref().filter(|_| collects_spans()) else { return };
    tracing::debug!(
        target: "sinew::span",
        span = "execution",
        traceparent = client,
        id = hex(span(&meta.execution, &turn(state))),
        start = state.started_at,
        end = now,
        workflow = meta.workflow,
        execution = meta.execution.as_str(),
        session = meta.session,
        status,
        error = outcome.fault.as_ref().map(known),
    );
}

/// The execution's own span: the parent of its activations' spans.
fn parent(meta: &ExecutionMeta, state: &State) -> Option<TraceParent> {
    let client: TraceParent = meta.traceparent.as_ref()?.parse().ok()?;
    Some(TraceParent { span: span(&meta.execution, &turn(state)), ..client })
}

/// An execution that was reopened ends more than once; each time is a span.
fn turn(state: &State) -> String {
    format!("execution {}", state.reopened)
}

fn span(execution: &ExecutionId, of: &str) -> [u8; 8] {
    let digest = sha256(format!("{execution} {of}").as_bytes());
    let number = u64::from_str_radix(digest.get(..16).unwrap_or_default(), 16).unwrap_or_default();
    number.max(1).to_be_bytes()
}

fn hex(span: [u8; 8]) -> String {
    format!("{:016x}", u64::from_be_bytes(span))
}

/// The fault's code, if it is one of ours: codes that agents make up would be labels without number.
fn known(fault: &Fault) -> String {
    if code::page(&fault.code).is_some() { fault.code.to_string() } else { "other".to_owned() }
}

fn tokens(usage: &serde_json::Value) {
    for (direction, names) in TOKENS {
        if let Some(count) = names.iter().find_map(|name| usage.get(name)?.as_u64()) {
            metrics::counter!("sinew_tokens_total", "direction" => direction)
                .increment(count.min(MOST_TOKENS));
        }
    }
}

fn seconds(from: Time, to: Time) -> f64 {
    to.saturating_sub(from) as f64 / 1000.0
}

/// What kind of node it is: few words, whatever the dialect calls it.
const fn word(op: &Op) -> &'static str {
    match op {
        Op::Source => "source",
        Op::Agent => "agent",
        Op::Pure => "pure",
        Op::Human => "human",
        Op::Delay => "delay",
        Op::Workflow => "workflow",
        Op::Map { .. } => "map",
        Op::Loop { .. } => "loop",
        Op::Fork { .. } => "fork",
    }
}

#[cfg(test)]
mod tests {
    use sinew_protocol::Token;

    use super::*;

    fn meta(traceparent: Option<&str>) -> ExecutionMeta {
        let caller = Token::of("client");
        ExecutionMeta {
            execution: ExecutionId::of("sinew", "client", "observed"),
            workflow: "w".to_owned(),
            dialect: "sam".to_owned(),
            plan: String::new(),
            caller,
            user: String::new(),
            session: String::new(),
            labels: std::collections::BTreeMap::new(),
            created: 1,
            parent: None,
            traceparent: traceparent.map(str::to_owned),
            start_digest: None,
        }
    }

    #[test]
    fn a_task_belongs_to_its_activation_in_the_clients_trace() {
        let client = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let of = meta(Some(client));
        let first = trace(&of, 1).unwrap();
        assert_eq!(Some(&first), trace(&of, 1).as_ref(), "whoever asks gets the same");
        assert_ne!(Some(&first), trace(&of, 2).as_ref());
        assert!(
            first.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && first.ends_with("-01"),
            "{first}"
        );
        assert_ne!(first, client);
        for none in [None, Some("nonsense")] {
            assert_eq!(trace(&meta(none), 1), None);
        }
    }

    #[test]
    fn codes_are_labels_only_if_we_made_them() {
        assert_eq!(known(&Fault::invalid("SINEW-4001", "x")), "SINEW-4001");
        assert_eq!(known(&Fault::invalid("SINEW-0000", "x")), "other");
        assert_eq!(known(&Fault::invalid("customer 4711", "x")), "other");
    }
}
