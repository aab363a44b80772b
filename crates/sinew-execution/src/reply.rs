//! The reply to a request: how a workflow was called, and how its end answers the call.

use serde_json::{Map, Value, json};
use sinew_engine::{ExecutionOutcome, TerminalStatus};
use sinew_protocol::a2a::{
    ContextId, Message, Part, PartContent, Task, TaskId, TaskState, TaskStatus, part_data,
};
use sinew_protocol::artifact::{ArtifactName, ArtifactRef, ArtifactUri, BadArtifact};
use sinew_protocol::message::{MeshMessage, Vocabulary, WorkflowNodeResultData};

/// Types of the data part that requests a structured reply, in both vocabularies.
const REQUESTS: [&str; 2] = ["structured_invocation_request", "workflow_node_request"];

/// Maximum length of an output that is repeated as text.
const MAX_OUTPUT_TEXT: usize = 16 << 10;

/// Location of an execution's input.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkflowInput {
    /// In an artifact, which has to be read.
    Artifact(ArtifactUri),
    /// In the message itself.
    Value(Value),
    /// In a text, which the schema of the workflow interprets.
    Text(String),
}

/// Returns the input in the parts of a request: the first artifact, otherwise the first data part
/// except the request itself, otherwise the text, otherwise an empty object.
pub fn input(parts: &[Part]) -> Result<WorkflowInput, BadArtifact> {
    let address = parts.iter().find_map(|part| match &part.content {
        PartContent::Url(url) if url.starts_with("artifact://") => Some(url),
        _ => None,
    });
    if let Some(address) = address {
        return address.parse().map(WorkflowInput::Artifact);
    }
    let data = parts.iter().filter_map(part_data).find(|data| !is_request(data));
    let texts: Vec<&str> = parts.iter().filter_map(Part::text_content).collect();
    Ok(match data {
        Some(data) => WorkflowInput::Value(data.clone()),
        None if texts.is_empty() => WorkflowInput::Value(Value::Object(Map::new())),
        None => WorkflowInput::Text(texts.join("\n")),
    })
}

fn is_request(data: &Value) -> bool {
    data.get("type").and_then(Value::as_str).is_some_and(|kind| REQUESTS.contains(&kind))
}

/// Returns whether the sender expects a structured result in addition to text: it sent a request
/// part, or is an agent itself.
pub fn wants_result(parts: &[Part], reply_to: Option<&str>) -> bool {
    parts.iter().filter_map(part_data).any(is_request)
        || reply_to.is_some_and(|subject| {
            subject.contains("/agent/response/") || subject.contains(".agent.response.")
        })
}

/// The end of an execution, as the reply to the task that started it.
#[derive(Clone, Debug)]
pub struct Ending<'a> {
    /// The workflow's name.
    pub workflow: &'a str,
    /// The task to answer.
    pub task: &'a str,
    /// Its context.
    pub session: &'a str,
    /// How the execution ended.
    pub outcome: &'a ExecutionOutcome,
    /// Location of the stored [`result_content`].
    pub artifact: ArtifactRef,
    /// Whether the reply includes a structured result: see [`wants_result`].
    pub structured: bool,
    /// Vocabulary of that result.
    pub vocabulary: Vocabulary,
}

/// Returns the name of the artifact with a result: `{workflow}_{4 hex}_result.json`.
pub fn result_name(workflow: &str, execution: &str) -> Result<ArtifactName, BadArtifact> {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let workflow: String = workflow.chars().take(200).map(safe).collect();
    let digest = sinew_protocol::artifact::sha256(execution.as_bytes());
    ArtifactName::parse(&format!("{workflow}_{}_result.json", &digest[..4]))
}

/// Returns the content of that artifact: the plain output, or `{status, message}`.
pub fn result_content(outcome: &ExecutionOutcome) -> Value {
    match outcome.status {
        TerminalStatus::Success => outcome.output.as_deref().cloned().unwrap_or_default(),
        _ => json!({ "status": "error", "message": message(outcome) }),
    }
}

/// Returns the final task.
pub fn task(ending: &Ending<'_>) -> Task {
    let Ending { workflow, outcome, artifact, .. } = ending;
    let (state, text) = match outcome.status {
        TerminalStatus::Success => {
            (TaskState::Completed, format!("Workflow completed successfully. Output artifact: {artifact}"))
        }
        TerminalStatus::Failure => {
            (TaskState::Failed, format!("Workflow failed: {}. Error artifact: {artifact}", message(outcome)))
        }
        TerminalStatus::Cancelled => {
            let why = message(outcome);
            let why = why.strip_prefix("cancelled: ").unwrap_or(why);
            (TaskState::Canceled, format!("Workflow cancelled: {why}"))
        }
    };
    let mut parts = vec![Part::text(text)];
    if ending.structured {
        let result = match outcome.status {
            TerminalStatus::Success => WorkflowNodeResultData::success(artifact.clone()),
            _ => WorkflowNodeResultData::error(message(outcome)),
        };
        parts.push(MeshMessage::from(result).to_part(ending.vocabulary));
    } else if let Some(text) = outcome.output.as_deref().and_then(output_text) {
        parts.push(Part::text(text));
    }
    let mut status = TaskStatus::new(state);
    let reply = Message::agent(format!("{}-final", ending.task), parts).with_task_id(ending.task);
    status.message = Some(reply.with_context_id(ending.session));
    Task {
        id: TaskId::new(ending.task),
        context_id: ContextId::new(ending.session),
        status,
        artifacts: None,
        history: None,
        metadata: Some(json!({
            "workflow_name": workflow,
            "agent_name": workflow,
            "output": outcome.output.as_deref(),
            "produced_artifacts": [{ "filename": artifact.name, "version": artifact.version }],
        })),
    }
}

/// Returns an output as text, for callers that read the texts of a message only; `None` if it is
/// long.
fn output_text(output: &Value) -> Option<String> {
    let text = output.as_str().map_or_else(|| output.to_string(), str::to_owned);
    (text.len() <= MAX_OUTPUT_TEXT).then_some(text)
}

fn message(outcome: &ExecutionOutcome) -> &str {
    outcome.fault.as_ref().map_or("no reason is known", |fault| fault.message.as_str())
}
