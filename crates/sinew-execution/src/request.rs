//! A task as an A2A message to its agent.
//!
//! (`spec/1-agent-mesh-workflows.md`, "Workflow Protocol Messages".) Parts, in order: the request
//! as data, the instruction, the input (as the address of an artifact, or as text for agents that
//! accept one text), and a reminder of how to name the result.

use serde_json::{Value, json};
use sinew_protocol::a2a::{Message, Part, SendMessageRequest};
use sinew_protocol::artifact::{ArtifactName, ArtifactRef, ArtifactUri};
use sinew_protocol::message::{MeshMessage, Vocabulary, WorkflowNodeRequestData};

use crate::call::Call;

/// Sender of an execution's requests.
#[derive(Clone, Debug, Default)]
pub struct Sender {
    /// Owner of the stored input: the workflow's name on the mesh.
    pub app: String,
    /// The user.
    pub user: String,
    /// The session (A2A context).
    pub session: String,
    /// The task that the execution answers.
    pub task: String,
    /// Vocabulary of the message.
    pub vocabulary: Vocabulary,
}

/// Schemas of an agent's card.
#[derive(Clone, Copy, Debug, Default)]
pub struct CardSchemas<'a> {
    /// Of its input.
    pub input: Option<&'a Value>,
    /// Of its output.
    pub output: Option<&'a Value>,
}

/// A message to an agent, with the artifact that must be stored before it is sent.
#[derive(Clone, Debug)]
pub struct Request {
    /// The message.
    pub message: SendMessageRequest,
    /// Name and content of the input artifact (version 0); `None` for agents that accept one text.
    pub input: Option<(ArtifactRef, Value)>,
}

/// Last sentence of the instruction, so that a language model names its result.
const REMINDER: &str = "Save your result as an artifact and end your last message with the marker \
     «result:artifact=<your_artifact_name>:<version> status=success». If you cannot do the work, end with \
     «result:status=error message=\"<why>\"». Without a marker the work counts as failed.";

/// Returns the message that requests a task from an agent.
pub fn request(call: &Call, sender: &Sender, card: CardSchemas<'_>) -> Request {
    let ask = &call.ask;
    let task = call.task.as_str();
    let input_schema = ask.input_schema.as_ref().or(card.input);
    let output_schema = ask.output_schema.as_ref().or(card.output);
    let data = MeshMessage::from(WorkflowNodeRequestData {
        workflow_name: call.workflow.clone(),
        node_id: call.label.clone(),
        input_schema: input_schema.cloned(),
        output_schema: output_schema.cloned(),
        suggested_output_filename: Some(output_name(&call.workflow, &call.label, task)),
    });
    let mut parts = vec![data.to_part(sender.vocabulary)];
    parts.extend(ask.instruction.as_deref().filter(|text| !text.is_empty()).map(Part::text));
    let mut input = None;
    if input_schema.is_some_and(takes_one_text) {
        parts.push(Part::text(as_text(&ask.input)));
    } else if let Some(name) = input_name(&call.label, task) {
        let artifact = ArtifactRef { name, version: Some(0) };
        let uri = ArtifactUri {
            app: sender.app.clone(),
            user: sender.user.clone(),
            session: sender.session.clone(),
            artifact: artifact.clone(),
        };
        let file = Part::url(uri.to_string());
        parts.push(file.with_filename(artifact.name.to_string()).with_media_type("application/json"));
        input = Some((artifact, Value::clone(&ask.input)));
    } else {
        parts.push(Part::data(Value::clone(&ask.input)));
    }
    parts.push(Part::text(REMINDER));
    let mut message = Message::user(format!("{task}-request"), parts).with_metadata(json!({
        "workflow_name": call.workflow,
        "node_id": call.label,
        "sub_task_id": task,
        "parentTaskId": sender.task,
    }));
    if !sender.session.is_empty() {
        message = message.with_context_id(sender.session.clone());
    }
    let message = SendMessageRequest { tenant: None, message, configuration: None, metadata: None };
    Request { message, input }
}

/// Returns the name of the artifact with a task's input.
pub(crate) fn input_name(label: &str, task: &str) -> Option<ArtifactName> {
    ArtifactName::parse(&format!("input_{}_{}.json", plain(label, 60), plain(task, 120))).ok()
}

/// Returns the suggested name of a result's artifact:
/// `{workflow}_{node}_{last 8 of the task}.json`.
pub fn output_name(workflow: &str, label: &str, task: &str) -> String {
    let tail = task.char_indices().rev().nth(7).map_or(task, |(at, _)| &task[at..]);
    format!("{}_{}_{}.json", plain(workflow, 60), plain(label, 60), plain(tail, 8))
}

/// Converts a text to a part of a file name, up to this number of characters.
pub(crate) fn plain(text: &str, most: usize) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') { c } else { '_' };
    if text.is_ascii() {
        return text.bytes().take(most).map(|byte| safe(char::from(byte))).collect();
    }
    text.chars().take(most).map(safe).collect()
}

/// Returns whether an agent's input is exactly `{text: string}`: such an agent reads messages, not
/// files.
fn takes_one_text(schema: &Value) -> bool {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return false };
    properties.len() == 1 && properties.get("text").is_some_and(|text| text["type"] == "string")
}

/// Returns the input as one text: `query`, otherwise `text`, otherwise a line per member.
fn as_text(input: &Value) -> String {
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let Some(members) = input.as_object() else { return word(input) };
    match members.get("query").or_else(|| members.get("text")) {
        Some(value) => word(value),
        None => members
            .iter()
            .map(|(key, value)| format!("{key}: {}", word(value)))
            .collect::<Vec<_>>()
            .join("\n"),
    }
}
