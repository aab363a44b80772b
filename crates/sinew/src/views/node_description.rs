//! `execution describe --node`: one activation of a node, with the input it got and what came of it.

use serde::Serialize;
use serde_json::Value;
use sinew_engine::{ActId, Fact, Time};
use sinew_executor::events;
use sinew_protocol::Fault;

use super::scene::Scene;
use super::words;
use crate::output;
use crate::record::Record;
use crate::tree::{self, NodeStatus, duration};

/// Lines of a value that the text shows; the data have all of it.
const MAX_VALUE_LINES: usize = 40;

/// One activation of a node.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NodeDescription {
    /// The node with its place in maps and loops.
    pub(crate) node: String,
    pub(crate) kind: String,
    pub(crate) status: NodeStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    pub(crate) attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duration_ms: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instruction: Option<String>,
    /// Input of the agent or workflow in the latest attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Fault>,
    /// Attempts that failed, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) failed_attempts: Vec<FailedAttempt>,
}

/// An attempt that failed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FailedAttempt {
    pub(crate) attempt: u32,
    #[serde(serialize_with = "words::serialize")]
    pub(crate) at: Time,
    pub(crate) error: Fault,
}

/// Returns the latest activation of a node, or the one that a label names; none if no activation has the name.
pub(crate) fn find_activation(record: &Record, named: &str) -> Option<ActId> {
    let ctx = record.execution.ctx();
    let acts = 0..ctx.state.acts.len() as ActId;
    let by_label = acts.clone().rev().find(|act| events::label(&ctx, *act) == named);
    by_label.or_else(|| acts.rev().find(|act| ctx.node_of(*act).id == named))
}

/// Describes an activation.
pub(crate) fn describe_node(record: &Record, act: ActId, scene: &Scene) -> NodeDescription {
    let ctx = record.execution.ctx();
    let one = ctx.act(act);
    let row = tree::row_of(&ctx, act, scene);
    let ask = one.last_task();
    let mut failed_attempts = Vec::new();
    for round in record.execution.journal() {
        for fact in &round.facts {
            if let Fact::Replied { act: replied, attempt, result: Err(error), .. } = fact
                && *replied == act
            {
                failed_attempts.push(FailedAttempt { attempt: *attempt, at: round.at, error: error.clone() });
            }
        }
    }
    NodeDescription {
        node: events::label(&ctx, act),
        kind: row.kind,
        status: row.status,
        agent: row.agent,
        attempts: row.attempts,
        duration_ms: row.duration_ms,
        message: row.message,
        instruction: ask.and_then(|ask| ask.instruction.clone()),
        input: ask.map(|ask| Value::clone(&ask.input)),
        output: one.output.as_ref().map(|output| Value::clone(&output.value)),
        error: one.fault.clone(),
        failed_attempts,
    }
}

/// The description for people.
pub(crate) fn node_text(description: &NodeDescription, now: Time) -> String {
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
        line("instruction", output::indented(&shortened(instruction)));
    }
    for (name, value) in [("input", &description.input), ("output", &description.output)] {
        if let Some(value) = value {
            let text = serde_json::to_string_pretty(value).unwrap_or_default();
            line(name, output::indented(&shortened(&text)));
        }
    }
    if let Some(error) = &description.error {
        line("error", format!("{} [{}]", output::indented(&error.message), words::name(&error.code)));
    }
    for failed in &description.failed_attempts {
        let message = words::one_line(&failed.error.message, 300);
        line(
            &format!("attempt {}", failed.attempt),
            format!("failed {}: {message}", words::ago(failed.at, now)),
        );
    }
    lines.join("\n")
}

/// Returns a text of at most so many lines, and the number of the others.
fn shortened(text: &str) -> String {
    let count = text.lines().count();
    if count <= MAX_VALUE_LINES {
        return text.to_owned();
    }
    let shown: Vec<&str> = text.lines().take(MAX_VALUE_LINES).collect();
    format!("{}\n… {} more lines; -o json has all of it", shown.join("\n"), count - MAX_VALUE_LINES)
}
