//! Metrics and spans of executions: counts and durations from facts, spans after their end.
//!
//! The executor that stored a fact reports it, so all executors together count each fact once. A
//! span's id is derived from its subject and never random, so the sender of a task knows the id of
//! a span that another executor may report after the task has ended.

use std::sync::Arc;

use serde_json::Value;
use sinew_engine::{
    Activation, ActivationId, AdapterContext, ExecutionState, Fact, TaskReply, TaskRequest, TerminalStatus,
    Time,
};
use sinew_mesh::log_limited;
use sinew_mesh::trace::TraceParent;
use sinew_plan::NodeOperation;
use sinew_protocol::artifact::sha256;
use sinew_protocol::journal::ExecutionMeta;
use sinew_protocol::{ExecutionId, Fault, code};

use super::{AGENT_NAMES, NODE_TYPES, WORKFLOW_NAMES};

/// Maximum plausible number of tokens in one report of an agent.
const MOST_TOKENS: u64 = 100_000_000;
/// Names of token counts in the reports of agents.
const TOKENS: [(&str, [&str; 3]); 2] = [
    ("input", ["input_tokens", "prompt_tokens", "input"]),
    ("output", ["output_tokens", "completion_tokens", "output"]),
];

/// Sets the counters of alerts to 0: a counter that first appears with a value shows no increase.
pub(crate) fn start_counters() {
    let quarantined = [
        code::MESSAGE_MEANINGLESS,
        code::RESULT_WITHOUT_PROOF,
        code::EXECUTION_QUARANTINED,
        code::MESSAGE_QUARANTINED,
    ];
    for code in quarantined {
        metrics::counter!("sinew_quarantined_total", "code" => code.as_str()).increment(0);
    }
    for code in [code::BUDGET_USED_UP, code::CALL_DEPTH_EXCEEDED, code::VALUE_TOO_LARGE] {
        metrics::counter!("sinew_executions_failed_total", "code" => code.as_str()).increment(0);
    }
    let scripts = [
        code::SCRIPT_NOT_VALID_PYTHON,
        code::SCRIPT_RAISED_EXCEPTION,
        code::SCRIPT_RAN_TOO_LONG,
        code::SCRIPT_MEMORY_EXCEEDED,
        code::SCRIPT_ENDED_WORKER,
    ];
    for code in scripts {
        metrics::counter!("sinew_activations_failed_total", "code" => code.as_str()).increment(0);
    }
}

/// Returns the label of an execution's outcome, as displayed everywhere else.
pub(crate) const fn status_label(status: TerminalStatus) -> &'static str {
    match status {
        TerminalStatus::Success => "succeeded",
        TerminalStatus::Failure => "failed",
        TerminalStatus::Cancelled => "cancelled",
    }
}

/// Updates metrics for one stored fact.
pub(crate) fn measure(ctx: &AdapterContext<'_>, meta: &ExecutionMeta, now: Time, fact: &Fact) {
    match fact {
        Fact::Replied { act, attempt, result, usage, worked_ms, .. } => {
            if let Err(fault) = result {
                log_failed_task(ctx, meta, *act, fault);
            }
            conversions(ctx, *act, result);
            let outcome = result.as_ref().map_or_else(|fault| fault.kind.as_str(), |_| "succeeded");
            metrics::counter!("sinew_attempts_ended_total", "outcome" => outcome).increment(1);
            agent_attempt(ctx, *act, outcome);
            task_times(ctx, (*act, *attempt), now, *worked_ms);
            tokens(result.as_ref().map_or(usage, |reply| reported_usage(reply)));
        }
        Fact::Dispatched { act, tries: 1, ask, .. } if !ask.is_helper() => {
            log_node_start(ctx, meta, *act, ask);
        }
        Fact::Late { usage, .. } => tokens(usage),
        Fact::Completed { act, reused: false, .. } => activation(ctx, meta, now, *act, "succeeded", None),
        Fact::Failed { act, fault, .. } => {
            metrics::counter!("sinew_activations_failed_total", "code" => known(fault)).increment(1);
            activation(ctx, meta, now, *act, "failed", Some(fault));
        }
        Fact::Cancelled { act, .. } => activation(ctx, meta, now, *act, "cancelled", None),
        Fact::Noted { note, .. } if note.get("conversion_failed").is_some() => {
            metrics::counter!("sinew_conversions_failed_total").increment(1);
        }
        Fact::Noted { note, .. } if note.get("schema_violation").is_some() => {
            metrics::counter!("sinew_schema_violations_total").increment(1);
        }
        Fact::Ended => {
            log_failed_execution(ctx.state, meta);
            execution(ctx.state, meta, now);
        }
        _ => {}
    }
}

/// Logs the start of a node's work, as the monitoring of `agentteam` does (node connections,
/// "Observability"): with the bytes of its input, without the input.
fn log_node_start(ctx: &AdapterContext<'_>, meta: &ExecutionMeta, act: ActivationId, ask: &TaskRequest) {
    let node = ctx.node_of(act);
    let (execution, workflow) = (&meta.execution, &meta.workflow);
    tracing::debug!(
        %execution,
        workflow,
        node_id = node.id,
        node_type = node.kind,
        input_size = ask.input.to_string().len(),
        "node_execution_start"
    );
}

/// Logs a failed task without its fault's message, which may quote the task.
fn log_failed_task(ctx: &AdapterContext<'_>, meta: &ExecutionMeta, act: ActivationId, fault: &Fault) {
    let Some(ask) = ctx.state.act(act).last_task().filter(|ask| !ask.is_evaluation()) else { return };
    let (agent, code) = (ask.target.name(), known(fault));
    let reason = code::title(&code).unwrap_or_default();
    let (execution, workflow) = (&meta.execution, &meta.workflow);
    log_limited!(20, info, %execution, workflow, agent, code, reason, "task failed");
}

/// Logs a failed execution.
fn log_failed_execution(state: &ExecutionState, meta: &ExecutionMeta) {
    let fault = state.outcome.as_ref().and_then(|outcome| outcome.fault.as_ref());
    let is_failure = state.outcome.as_ref().is_some_and(|outcome| outcome.status == TerminalStatus::Failure);
    if !is_failure {
        return;
    }
    let code = fault.map(known).unwrap_or_default();
    let reason = code::title(&code).unwrap_or_default();
    let (execution, workflow) = (&meta.execution, &meta.workflow);
    log_limited!(20, info, %execution, workflow, code, reason, "execution failed");
}

/// Counts attempts of agents, by agent. The first attempt initializes all outcomes of its agent.
fn agent_attempt(ctx: &AdapterContext<'_>, act: ActivationId, outcome: &'static str) {
    let Some(ask) = ctx.state.act(act).last_task().filter(|ask| !ask.is_evaluation()) else { return };
    let (agent, is_first) = AGENT_NAMES.count(ask.target.name());
    let count = |outcome: &'static str, by: u64| {
        metrics::counter!("sinew_agent_attempts_total", "agent" => agent.clone(), "outcome" => outcome)
            .increment(by);
    };
    if is_first {
        for outcome in ["succeeded", "failure", "error", "timeout"] {
            count(outcome, 0);
        }
    }
    count(outcome, 1);
}

/// Records the time of a task in queues and in progress, if its agent reports it.
fn task_times(
    ctx: &AdapterContext<'_>,
    (act, attempt): (ActivationId, u32),
    now: Time,
    worked_ms: Option<u64>,
) {
    let one = ctx.state.act(act);
    // The next attempt may have been sent in the same round.
    let sent = one.sent_at.filter(|_| one.attempt == attempt);
    let (Some(worked), Some(sent)) = (worked_ms, sent) else { return };
    let Some(ask) = one.last_task().filter(|ask| !ask.is_evaluation()) else { return };
    let agent = AGENT_NAMES.label(ask.target.name());
    let waited = now.saturating_sub(sent).saturating_sub(worked);
    metrics::histogram!("sinew_task_schedule_to_start_seconds", "agent" => agent.clone())
        .record(seconds(0, waited));
    metrics::histogram!("sinew_task_start_to_close_seconds", "agent" => agent).record(seconds(0, worked));
}

/// Counts ends of executions, by workflow. The first end initializes all statuses of its workflow.
fn workflow_execution(workflow: &str, status: &'static str) {
    let (workflow, is_first) = WORKFLOW_NAMES.count(workflow);
    let count = |status: &'static str, by: u64| {
        metrics::counter!("sinew_workflow_executions_total", "workflow" => workflow.clone(), "status" => status)
            .increment(by);
    };
    if is_first {
        for status in ["succeeded", "failed", "cancelled"] {
            count(status, 0);
        }
    }
    count(status, 1);
}

/// Returns the token usage that an agent reports: next to its answer, or inside it for older
/// runners.
fn reported_usage(reply: &TaskReply) -> &Value {
    let is_told = reply.usage.as_object().is_some_and(|usage| !usage.is_empty());
    let inside = [&*reply.output, reply.output.get("result").unwrap_or(&Value::Null)];
    let mut older = inside.into_iter().flat_map(|value| ["_tokens", "token_usage"].map(|key| value.get(key)));
    if is_told { &reply.usage } else { older.find_map(|usage| usage).unwrap_or(&reply.usage) }
}

/// Counts the conversion functions that an evaluation called.
fn conversions(ctx: &AdapterContext<'_>, act: ActivationId, result: &Result<Arc<TaskReply>, Fault>) {
    let evaluation = ctx.state.act(act).ask.as_ref().is_some_and(|ask| ask.is_evaluation());
    if let (true, "agentteam", Ok(reply)) = (evaluation, ctx.plan().dialect.as_str(), result) {
        let called = reply.output.as_array().map_or(0, Vec::len);
        metrics::counter!("sinew_conversions_total").increment(called as u64);
    }
}

/// Returns whether spans are collected here.
pub(crate) fn collects_spans() -> bool {
    tracing::event_enabled!(target: "sinew::span", tracing::Level::DEBUG)
}

/// Returns the trace of a task: its activation's span if spans are collected here, else the
/// client's.
pub(crate) fn task_trace(meta: &ExecutionMeta, act: ActivationId) -> Option<String> {
    if collects_spans() { trace(meta, act) } else { meta.traceparent.clone() }
}

/// Returns the trace of messages about one activation; the execution's if the activation has none.
fn trace(meta: &ExecutionMeta, act: ActivationId) -> Option<String> {
    let parent: TraceParent = meta.traceparent.as_ref()?.parse().ok()?;
    let span = span(&meta.execution, &format!("activation {act}"));
    Some(TraceParent { span, ..parent }.to_string())
}

fn activation(
    ctx: &AdapterContext<'_>,
    meta: &ExecutionMeta,
    now: Time,
    act: ActivationId,
    outcome: &'static str,
    fault: Option<&Fault>,
) {
    let one: &Activation = ctx.state.act(act);
    // An activation that never started took no time and did no work.
    let Some(began) = one.began_at else { return };
    let ended = one.ended_at.unwrap_or(now).max(began);
    let node = ctx.graph.plan().node(one.node);
    let kind = word(&node.op);
    let node_type = NODE_TYPES.count(&node.kind).0;
    metrics::histogram!("sinew_activation_seconds", "kind" => kind, "type" => node_type, "outcome" => outcome)
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

fn execution(state: &ExecutionState, meta: &ExecutionMeta, now: Time) {
    let Some(outcome) = &state.outcome else { return };
    let status = status_label(outcome.status);
    metrics::counter!("sinew_executions_ended_total", "status" => status).increment(1);
    let workflow = WORKFLOW_NAMES.label(&meta.workflow);
    metrics::histogram!("sinew_execution_seconds", "status" => status, "workflow" => workflow)
        .record(seconds(state.started_at, now));
    workflow_execution(&meta.workflow, status);
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

/// Returns the span of the execution: the parent of its activations' spans.
fn parent(meta: &ExecutionMeta, state: &ExecutionState) -> Option<TraceParent> {
    let client: TraceParent = meta.traceparent.as_ref()?.parse().ok()?;
    Some(TraceParent { span: span(&meta.execution, &turn(state)), ..client })
}

/// A retried execution ends more than once; each time is a span.
fn turn(state: &ExecutionState) -> String {
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

/// Returns the fault's code if it is one of ours: agents' own codes would create unlimited labels.
fn known(fault: &Fault) -> String {
    if code::page(&fault.code).is_some() { fault.code.to_string() } else { "other".to_owned() }
}

fn tokens(usage: &Value) {
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

/// Returns the kind of a node from a fixed set, independent of its name in the dialect.
const fn word(op: &NodeOperation) -> &'static str {
    match op {
        NodeOperation::Source => "source",
        NodeOperation::Agent => "agent",
        NodeOperation::Pure => "pure",
        NodeOperation::Human => "human",
        NodeOperation::Delay => "delay",
        NodeOperation::Workflow => "workflow",
        NodeOperation::Map { .. } => "map",
        NodeOperation::Loop { .. } => "loop",
        NodeOperation::Fork { .. } => "fork",
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
            user_config: serde_json::Value::Null,
            session: String::new(),
            labels: std::collections::BTreeMap::new(),
            created: 1,
            parent: None,
            traceparent: traceparent.map(str::to_owned),
            start_digest: None,
            calling: None,
            idempotency_key: None,
            conversation: None,
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

#[cfg(test)]
mod metric_tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use metrics::{
        Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    };
    use serde_json::json;
    use sinew_dialects::LowerOptions;
    use sinew_engine::ExecutionMode;
    use sinew_source::{Document, Node, Sources};

    use super::*;
    use sinew_execution::Call;
    use sinew_execution::{Library, Program};
    use sinew_runtime::sim::{Sim, Stub, Stubbed};

    /// Counters by name.
    #[derive(Default)]
    struct CountingRecorder(Arc<Mutex<BTreeMap<String, u64>>>);

    struct NamedCounter(Arc<Mutex<BTreeMap<String, u64>>>, String);

    impl CounterFn for NamedCounter {
        fn increment(&self, value: u64) {
            *self.0.lock().unwrap().entry(self.1.clone()).or_default() += value;
        }

        fn absolute(&self, value: u64) {
            self.0.lock().unwrap().insert(self.1.clone(), value);
        }
    }

    impl Recorder for CountingRecorder {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(Arc::new(NamedCounter(Arc::clone(&self.0), key.name().to_owned())))
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    /// An agent that reports its tokens like older runners.
    struct LegacyAgent;

    impl Stub for LegacyAgent {
        fn call(&mut self, _now: Time, _call: &Call) -> Stubbed {
            let answer = json!({ "response": "hi", "_tokens": { "input": 3, "output": 4 } });
            Stubbed::now(Ok(TaskReply::new(answer)))
        }
    }

    #[test]
    fn conversions_that_raise_are_counted_among_those_that_were_called() {
        let file = json!({
            "nodes": [
                { "id": "t", "type": "TRIGGER", "subtype": "MANUAL" },
                { "id": "ai", "type": "AI_AGENT", "subtype": "OPENAI_CHATGPT" },
                { "id": "s", "type": "EXTERNAL_ACTION", "subtype": "SLACK" },
            ],
            "connections": [
                { "id": "good", "from_node": "t", "to_node": "ai", "conversion_function": "lambda d: {'message': 'x'}" },
                { "id": "bad", "from_node": "ai", "to_node": "s", "conversion_function": "lambda d: 1 / 0" },
            ],
        });
        let dialect = sinew_dialects::by_name("agentteam").unwrap();
        let document = Document { root: Node::from_json(&file), sources: Sources::default() };
        let options = LowerOptions {
            default_name: "w",
            read: &|_| Err(String::new()),
            list: &sinew_dialects::no_list,
            agents: &BTreeMap::new(),
        };
        let plan = dialect.lower(document, &options).unwrap().remove(0).plan;
        let mut library = Library::default();
        library.insert(Program::new(plan, dialect.adapter()).unwrap());
        let library = Arc::new(library);
        let mut sim = Sim::new(Arc::clone(&library), LegacyAgent);
        sim.run(library.get("w").unwrap().clone(), json!({}), ExecutionMode::default(), 1_000);
        let meta: ExecutionMeta = serde_json::from_value(json!({
            "execution": sim.execution().id(), "workflow": "w", "dialect": "agentteam", "plan": "p", "caller": "c",
            "created": 0,
        }))
        .unwrap();
        let recorder = CountingRecorder::default();
        metrics::with_local_recorder(&recorder, || {
            sim.execution().replay(|ctx, told| measure(ctx, &meta, 0, told));
        });
        let counts = recorder.0.lock().unwrap();
        let count = |name: &str| counts.get(name).copied().unwrap_or_default();
        assert_eq!((count("sinew_conversions_total"), count("sinew_conversions_failed_total")), (2, 1));
        // The Slack action needs a message that the failed conversion did not provide.
        assert_eq!(count("sinew_schema_violations_total"), 1);
        assert_eq!(count("sinew_tokens_total"), 14);
    }
}
