//! Log messages of agents: those in the facts of an execution, and those received while agents
//! work.

use std::collections::HashMap;

use serde_json::{Value, json};
use sinew_documents::event::EventLine;
use sinew_documents::words;
use sinew_execution::activation_key;
use sinew_inspection::events::{self, EventWords};
use sinew_inspection::record::Record;
use sinew_mesh::live::Progress;
use sinew_protocol::a2a::{PartContent, StreamResponse};
use sinew_protocol::task::{is_message, progress_text};
use sinew_protocol::{ActivationKey, TaskId};
use sinew_runtime::local;

/// Returns the messages in the facts of an execution, with a final note if later ones were not
/// stored.
pub fn stored_messages(record: &Record) -> Vec<Value> {
    let lines = events::lines(record, EventWords::Facts);
    let last = (!record.execution.state().has_room_for_progress()).then(|| {
        json!({
            "at": words::instant(record.at()),
            "level": "warn",
            "text": "(later messages of this execution are not stored: the limit of 1 MiB is reached)",
        })
    });
    lines.iter().filter_map(|event| spoken(&event.line)).chain(last).collect()
}

/// Agent and node of a task.
#[derive(Clone, Debug)]
pub struct TaskAgent {
    /// Node, with its position.
    pub node: String,
    /// Attempt of the node.
    pub attempt: u32,
    /// Name of the agent.
    pub agent: String,
}

/// Returns the tasks that an execution dispatched to agents.
pub fn given_tasks(record: &Record) -> HashMap<TaskId, TaskAgent> {
    let (id, program, ctx) = (record.execution.id(), record.execution.program(), record.execution.ctx());
    let mut known = HashMap::new();
    for act in 0..ctx.state.acts.len() as u32 {
        let one = ctx.act(act);
        let Some(asked) = sinew_inspection::node_rows::asked_agent(one) else { continue };
        let key = activation_key(id, program.graph.plan(), ctx.state, act);
        for attempt in 1..=one.attempt {
            let (node, agent) = (sinew_execution::events::label(&ctx, act), asked.clone());
            known.insert(TaskId::of(id, &key, attempt), TaskAgent { node, attempt, agent });
        }
    }
    known
}

/// An activation for which an agent was called.
#[derive(Clone, Debug)]
pub struct GivenActivation {
    /// Node, with its position.
    pub node: String,
    /// Name of the agent.
    pub agent: String,
    /// Key of the activation, the same for all of its attempts.
    pub activation: ActivationKey,
}

/// Returns the activations of an execution that called agents, in the order of their start.
pub fn given_activations(record: &Record) -> Vec<GivenActivation> {
    let (id, program, ctx) = (record.execution.id(), record.execution.program(), record.execution.ctx());
    let given = (0..ctx.state.acts.len() as u32).filter_map(|act| {
        let agent = sinew_inspection::node_rows::asked_agent(ctx.act(act))?.clone();
        let node = sinew_execution::events::label(&ctx, act);
        Some(GivenActivation {
            node,
            agent,
            activation: activation_key(id, program.graph.plan(), ctx.state, act),
        })
    });
    given.collect()
}

/// Returns the progress message of an agent, or `None` if the update contains none.
pub fn live_message(progress: &Progress, who: &TaskAgent) -> Option<Value> {
    let StreamResponse::StatusUpdate(update) = serde_json::from_slice(&progress.body).ok()? else {
        return None;
    };
    let message = update.status.message?;
    let texts: Vec<String> = message
        .parts
        .iter()
        .filter_map(|part| match &part.content {
            PartContent::Text(text) => Some(text.clone()),
            PartContent::Data(value) => is_message(value).then(|| progress_text(value)),
            _ => None,
        })
        .collect();
    (!texts.is_empty()).then(|| {
        json!({
            "at": words::instant(local::now()),
            "node": who.node,
            "attempt": who.attempt,
            "agent": who.agent,
            "level": "info",
            "text": texts.join("\n"),
            "stored": false,
        })
    })
}

/// Counts messages received from agents and read from the record, so that each is shown once.
#[derive(Clone, Debug, Default)]
pub struct ShownMessages(HashMap<(String, u64, String), [u32; 2]>);

impl ShownMessages {
    /// Counts a message. Returns whether it has not been shown: the other source provided it less
    /// often than this one.
    pub fn is_new(&mut self, said: &Value) -> bool {
        let word = |key: &str| said[key].as_str().unwrap_or_default();
        let key =
            (word("node").to_owned(), said["attempt"].as_u64().unwrap_or_default(), word("text").to_owned());
        let counts = self.0.entry(key).or_default();
        let heard = usize::from(said["stored"] == json!(false));
        counts[heard] += 1;
        counts[heard] > counts[1 - heard]
    }
}

/// Returns a fact that is relevant to people who follow an execution.
fn spoken(line: &EventLine) -> Option<Value> {
    let fact = &line.event;
    let (level, text) = match line.kind.as_str() {
        "progressed" if is_message(&fact["value"]) => ("info", progress_text(&fact["value"])),
        "replied" => {
            let fault = fact["result"].get("fault")?;
            let again = if fact["retried"] == json!(true) { "; retrying" } else { "" };
            (
                "error",
                format!(
                    "attempt {}: {}{again}",
                    fact["attempt"],
                    fault["message"].as_str().unwrap_or_default()
                ),
            )
        }
        "late" => ("warn", format!("the result of attempt {} arrived too late", fact["attempt"])),
        _ => return None,
    };
    // The time is the agent's; its clock cannot be ahead of the record.
    let said_at = fact["value"]["at"].as_u64().map_or(line.at.ms(), |at| at.min(line.at.ms()));
    Some(json!({
        "at": words::instant(said_at),
        "node": line.node,
        "attempt": fact["attempt"],
        "level": level,
        "text": text,
    }))
}
