//! `execution describe --node`: one activation of a node, with its input and result.

use std::sync::Arc;

use serde_json::Value;
use sinew_documents::node::{FailedAttempt, NodeDescription, NodeMessage};
use sinew_documents::words;
use sinew_documents::words::duration;
use sinew_engine::{ActivationId, Fact, TaskRequest, Time};
use sinew_execution::events;
use sinew_protocol::ExecutionId;
use sinew_protocol::task::{is_message, progress_text};

use crate::node_evidence::evidence_of;
use crate::node_rows;
use crate::record::Record;
use crate::view_context::ViewContext;

/// Maximum lines of a value in the text; the data contain all.
const MAX_VALUE_LINES: usize = 40;

/// Maximum messages in the text; the data contain all.
const MAX_LOG_LINES: usize = 20;

/// Returns the latest activation of a node, or the activation with a label; `None` if there is none.
pub fn find_activation(record: &Record, named: &str) -> Option<ActivationId> {
    let ctx = record.execution.ctx();
    let acts = 0..ctx.state.acts.len() as ActivationId;
    let by_label = acts.clone().rev().find(|act| events::label(&ctx, *act) == named);
    by_label.or_else(|| acts.rev().find(|act| ctx.node_of(*act).id == named))
}

/// Describes an activation.
pub fn describe_node(record: &Record, act: ActivationId, context: &ViewContext) -> NodeDescription {
    let ctx = record.execution.ctx();
    let one = ctx.act(act);
    let context = ViewContext { now: record.seen_until(context.now), ..context.clone() };
    let row = node_rows::row_of(&ctx, act, &context);
    let ask = last_work(record, act);
    let was_helped = one.last_task().is_some_and(|task| task.is_helper());
    let work_input = ask.as_ref().filter(|_| was_helped).map(|ask| Value::clone(&ask.input));
    let (failed_attempts, logs) = attempts_of(record, act);
    NodeDescription {
        node: events::label(&ctx, act),
        kind: row.kind,
        status: row.status,
        agent: row.agent,
        attempts: row.attempts,
        duration_ms: row.duration_ms,
        message: row.message,
        instruction: ask.and_then(|ask| ask.instruction.clone()),
        input: work_input.or_else(|| events::given_input(&ctx, act)),
        output: one.output.as_ref().map(|output| Value::clone(&output.value)),
        error: one.fault.clone(),
        failed_attempts,
        execution: child_execution(record, act),
        logs,
        evidence: evidence_of(record, act),
    }
}

/// Returns the latest request for the node's own work; auxiliary requests may have followed it.
fn last_work(record: &Record, wanted: ActivationId) -> Option<Arc<TaskRequest>> {
    let one = record.execution.state().act(wanted);
    if one.ask.as_ref().is_none_or(|ask| !ask.is_helper()) {
        return one.ask.clone();
    }
    let mut facts = record.execution.journal().iter().rev().flat_map(|round| round.facts.iter().rev());
    facts.find_map(|fact| match fact {
        Fact::Dispatched { act, ask, .. } if *act == wanted && !ask.is_helper() => Some(Arc::clone(ask)),
        _ => None,
    })
}

/// Returns the execution of the latest attempt of an activation; `None` if no workflow was called.
pub fn child_execution(record: &Record, act: ActivationId) -> Option<ExecutionId> {
    let ctx = record.execution.ctx();
    let one = ctx.act(act);
    let is_workflow =
        one.last_task().is_some_and(|ask| matches!(ask.target, sinew_engine::RequestTarget::Workflow(_)));
    let id = record.execution.id();
    let key = sinew_execution::activation_key(id, record.plan(), ctx.state, act);
    is_workflow.then(|| ExecutionId::child(id, &key, one.attempt))
}

/// Returns the failed attempts of an activation, and the messages of all its attempts.
fn attempts_of(record: &Record, wanted: ActivationId) -> (Vec<FailedAttempt>, Vec<NodeMessage>) {
    let (mut failed, mut logs) = (Vec::new(), Vec::new());
    for round in record.execution.journal() {
        for fact in &round.facts {
            match fact {
                Fact::Replied { act, attempt, result: Err(error), .. } if *act == wanted => {
                    failed.push(FailedAttempt {
                        attempt: *attempt,
                        at: round.at.into(),
                        error: error.clone(),
                    });
                }
                Fact::Progressed { act, attempt, value } if *act == wanted && is_message(value) => {
                    let said_at = value["at"].as_u64().map_or(round.at, |at| at.min(round.at));
                    logs.push(NodeMessage {
                        attempt: *attempt,
                        at: said_at.into(),
                        text: progress_text(value),
                    });
                }
                _ => {}
            }
        }
    }
    (failed, logs)
}

/// Formats the description for people.
pub fn node_text(description: &NodeDescription, now: Time) -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| lines.push(format!("{name:<11} {value}"));
    line("node", format!("{} ({})", words::name(&description.node), words::one_line(&description.kind, 40)));
    let time = description.duration_ms.map(|ms| format!(", {}", duration(ms))).unwrap_or_default();
    line("status", format!("{}{time}", description.status.as_str()));
    if let Some(agent) = &description.agent {
        line("agent", format!("{}, attempts {}", words::one_line(agent, 60), description.attempts));
    }
    if let Some(message) = &description.message {
        line("message", words::one_line(message, 300));
    }
    if let Some(instruction) = &description.instruction {
        line("instruction", sinew_source::indented(&shortened(instruction)));
    }
    for (name, value) in [("input", &description.input), ("output", &description.output)] {
        if let Some(value) = value {
            let text = serde_json::to_string_pretty(value).unwrap_or_default();
            line(name, sinew_source::indented(&shortened(&text)));
        }
    }
    if let Some(error) = &description.error {
        line("error", format!("{} [{}]", sinew_source::indented(&error.message), words::name(&error.code)));
    }
    for failed in &description.failed_attempts {
        let message = words::one_line(&failed.error.message, 300);
        line(
            &format!("attempt {}", failed.attempt),
            format!("failed {}: {message}", words::ago(failed.at.ms(), now)),
        );
    }
    let surplus = description.logs.len().saturating_sub(MAX_LOG_LINES);
    if surplus > 0 {
        line("log", format!("… {surplus} earlier messages; `sinew execution logs` shows all"));
    }
    for said in &description.logs[surplus..] {
        let text = words::one_line(&said.text, 300);
        line("log", format!("{}  attempt {}: {text}", said.at, said.attempt));
    }
    lines.join("\n")
}

/// Truncates a text to a number of lines, and states the number of omitted lines.
fn shortened(text: &str) -> String {
    let count = text.lines().count();
    if count <= MAX_VALUE_LINES {
        return text.to_owned();
    }
    let shown: Vec<&str> = text.lines().take(MAX_VALUE_LINES).collect();
    format!("{}\n… {} more lines; -o json shows all", shown.join("\n"), count - MAX_VALUE_LINES)
}
