//! Scenarios of agents: lists of steps, chosen by the beginning of a message's id, or by the name of an agent.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use sinew_protocol::mcp_offer::McpOffer;

/// Longer than suites wait for the first event of a stream.
const LONG_WORK: Duration = Duration::from_secs(5);
/// The longest work of an agent, in seconds.
const MAX_SECONDS: u64 = 60;
/// Agents with one scenario each.
const AGENTS: &str = include_str!("agents.json");

/// An agent that does one thing, as `agents.json` has it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AgentScenario {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) input_schema: Option<Value>,
    #[serde(default)]
    pub(crate) offer: McpOffer,
    pub(crate) steps: Vec<Step>,
}

/// One thing that an agent does for a task. Texts may hold `{{path}}`: a value of the message's data, or of the answers that
/// the task got (`{{answers.KEY.…}}`).
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// Answers with a message of these parts instead of a task.
    Message(Value),
    /// Adds an artifact of this part.
    Artifact(Value),
    /// Adds a piece to an artifact.
    #[serde(skip)]
    Piece(ArtifactPiece),
    /// Gives the task a state.
    State(StateChange),
    /// Works for a while, in milliseconds.
    Work(u64),
    /// Works for as many seconds as a member of the data says.
    WorkSeconds(String),
    /// Asks the client of the caller; the next message to the task answers.
    Ask(Question),
    /// Announces an agent that does nothing, or takes it back if it is there.
    ToggleCard(ToggledCard),
}

/// A piece of an artifact.
#[derive(Clone, Debug)]
pub(crate) struct ArtifactPiece {
    pub(crate) text: &'static str,
    /// Whether it goes to the end of the artifact.
    pub(crate) append: bool,
    pub(crate) is_last: bool,
}

/// A state with words.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct StateChange {
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) text: Option<String>,
    /// Fault of a task that failed.
    #[serde(default)]
    pub(crate) fault: Option<Value>,
}

/// Requests to a client.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Question {
    pub(crate) text: String,
    pub(crate) requests: Map<String, Value>,
}

/// An agent that comes and goes.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ToggledCard {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) offer: McpOffer,
}

/// The agents that do one thing each.
pub(crate) fn agent_scenarios() -> Result<Vec<AgentScenario>, serde_json::Error> {
    serde_json::from_str(AGENTS)
}

impl Step {
    fn state(state: &str, text: Option<&str>) -> Self {
        Self::State(StateChange { state: state.to_owned(), text: text.map(str::to_owned), fault: None })
    }

    /// The same step with the values of this data in its texts.
    pub(crate) fn filled(&self, data: &Value) -> Self {
        match self.clone() {
            Self::Message(parts) => Self::Message(fill(parts, data)),
            Self::Artifact(part) => Self::Artifact(fill(part, data)),
            Self::State(StateChange { state, text, fault }) => {
                Self::State(StateChange { state, text: text.map(|text| fill_text(&text, data)), fault })
            }
            Self::WorkSeconds(member) => {
                Self::Work(data[member].as_u64().unwrap_or_default().min(MAX_SECONDS) * 1_000)
            }
            Self::Ask(Question { text, requests }) => {
                let requests =
                    requests.into_iter().map(|(key, request)| (key, fill(request, data))).collect();
                Self::Ask(Question { text: fill_text(&text, data), requests })
            }
            step => step,
        }
    }
}

fn fill(value: Value, data: &Value) -> Value {
    match value {
        Value::String(text) => fill_text(&text, data).into(),
        Value::Array(items) => items.into_iter().map(|item| fill(item, data)).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, member)| (name, fill(member, data))).collect::<Map<_, _>>().into()
        }
        other => other,
    }
}

fn fill_text(text: &str, data: &Value) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((path, behind)) = after.split_once("}}") else { break };
        filled.push_str(before);
        match data.pointer(&format!("/{}", path.replace('.', "/"))) {
            Some(value) => filled.push_str(&value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
            // An answer that is not there yet.
            None => filled.extend(["{{", path, "}}"]),
        }
        rest = behind;
    }
    filled + rest
}

/// The scenario that the beginning of a message's id chooses, for the suite of A2A.
pub(crate) fn scenario_of_message(message: &str) -> Vec<Step> {
    let text = |text: &str| json!({"text": text});
    let file = json!({"raw": "SGVsbG8gZnJvbSBUQ0s=", "filename": "output.txt", "mediaType": "text/plain"});
    let url =
        json!({"url": "https://example.com/output.txt", "filename": "output.txt", "mediaType": "text/plain"});
    let completed = || Step::state("TASK_STATE_COMPLETED", None);
    let working = || Step::state("TASK_STATE_WORKING", None);
    let gives = |part: Value| vec![Step::Artifact(part), completed()];
    let streams = |part: Value| vec![working(), Step::Artifact(part), completed()];
    let ends = |state: &str, words: &str| vec![Step::state(state, Some(words))];
    let piece = |text, append, is_last| Step::Piece(ArtifactPiece { text, append, is_last });
    let long = Step::Work(u64::try_from(LONG_WORK.as_millis()).unwrap_or_default());
    // Longer prefixes first: `tck-artifact-file` begins `tck-artifact-file-url`.
    let table = [
        ("tck-artifact-text", gives(text("Generated text content"))),
        ("tck-artifact-file-url", gives(url)),
        ("tck-artifact-file", gives(file.clone())),
        ("tck-artifact-data", gives(json!({"data": {"key": "value", "count": 42}}))),
        ("tck-message-response", vec![Step::Message(json!([text("Direct message response")]))]),
        ("tck-input-required", ends("TASK_STATE_INPUT_REQUIRED", "Which one?")),
        ("tck-auth-required", ends("TASK_STATE_AUTH_REQUIRED", "Sign in first")),
        ("tck-reject-task", ends("TASK_STATE_REJECTED", "rejected")),
        ("tck-fail-task", ends("TASK_STATE_FAILED", "failed")),
        ("tck-stream-001", streams(text("Stream hello from TCK"))),
        ("tck-stream-002", vec![completed()]),
        ("tck-stream-003", streams(text("Stream task lifecycle"))),
        ("tck-stream-ordering-001", streams(text("Ordered output"))),
        ("tck-stream-artifact-text", streams(text("Streamed text content"))),
        ("tck-stream-artifact-file", streams(file)),
        (
            "tck-stream-artifact-chunked",
            vec![working(), piece("chunk-1 ", false, false), piece("chunk-2", true, true), completed()],
        ),
        ("test-resubscribe-message-id", vec![working(), long, completed()]),
    ];
    let chosen = table.into_iter().find(|(prefix, _)| message.starts_with(prefix));
    chosen.map_or_else(|| ends("TASK_STATE_COMPLETED", "Hello from TCK"), |(_, steps)| steps)
}
