//! Tasks as tool results, as MCP tasks, and as progress notifications.

use rmcp::model::{
    CallToolResult, ContentBlock, DetailedTask, ErrorCode, ErrorData, JsonObject, MetaObject, Resource,
    ResourceContents, Task as McpTask, TaskPayload, TaskStatus as McpTaskStatus,
};
use serde_json::{Value, json};
use sinew_protocol::a2a::{
    A2aError, ErrorCode as A2aErrorCode, Message, Part, PartContent, StreamResponse, Task, TaskState,
};
use sinew_protocol::jsonrpc::fault_of;
use sinew_protocol::task::{FAILED, METADATA};
use sinew_protocol::{Fault, FaultKind, MeshMessage, code};

use super::client_abilities::LogSeverity;
use super::resource_uri::task_uri;
use super::{ERROR_META, TASK_META};
use crate::operations::{AskedInput, short};

/// Recommended polling interval for a task that a client keeps, in milliseconds.
const POLL_INTERVAL_MS: u64 = 1_000;
/// Maximum length of an error's text.
const MAX_ERROR_TEXT: usize = 2_000;
/// Maximum length of a question in a result.
const MAX_PROMPT: usize = 1_000;
/// Maximum number of failure details in a result.
const MAX_DETAILS: usize = 20;
/// Maximum length of a node's name in a result.
const MAX_NODE: usize = 200;
/// Media type of content without a declared type.
const UNKNOWN_MEDIA_TYPE: &str = "application/octet-stream";

/// Returns the tool result of a task that has ended or waits. `console` is the address of the console.
pub(super) fn result_of_task(task: &Task, asked: &AskedInput, console: Option<&str>) -> CallToolResult {
    let id = task.id.0.as_str();
    let result = match task.status.state {
        TaskState::Completed => result_of_parts(id, &output_parts(task)),
        TaskState::Canceled => CallToolResult::error(vec![ContentBlock::text(format!("{id} was cancelled"))]),
        TaskState::Failed | TaskState::Rejected => return failure(&failure_of(task), Some(id)),
        TaskState::InputRequired | TaskState::AuthRequired => {
            CallToolResult::error(vec![ContentBlock::text(waiting_text(task, asked, console))])
        }
        TaskState::Submitted if task.status.message.is_some() => {
            let parts = task.status.message.iter().flat_map(|message| &message.parts);
            let reason: Vec<&str> = parts
                .filter_map(|part| match &part.content {
                    PartContent::Text(text) => Some(text.as_str()),
                    _ => None,
                })
                .collect();
            CallToolResult::error(vec![ContentBlock::text(format!(
                "{id} has not started: {}. This is not a failure: it is stored and starts when the workflow is \
                 resumed. Another call would start another task. State and result: the resource {}, or `sinew \
                 execution describe {id}`.",
                short(&reason.join(" "), MAX_PROMPT),
                task_uri(id)
            ))])
        }
        _ => CallToolResult::error(vec![ContentBlock::text(format!(
            "{id} is still running. This is not a failure, and another call would start another task. State and \
             result: the resource {}, or `sinew execution describe {id}`.",
            task_uri(id)
        ))]),
    };
    result.with_meta(Some(task_meta(id)))
}

/// Returns the parts of a task's output: those of its artifacts, otherwise of its last message.
pub(super) fn output_parts(task: &Task) -> Vec<&Part> {
    let parts: Vec<&Part> = task.artifacts.iter().flatten().flat_map(|artifact| &artifact.parts).collect();
    if parts.is_empty() {
        return task.status.message.iter().flat_map(|message| &message.parts).collect();
    }
    parts
}

/// Returns the tool result for an agent that responded with a message instead of a task.
pub(super) fn result_of_message(message: &Message) -> CallToolResult {
    let parts: Vec<&Part> = message.parts.iter().collect();
    result_of_parts("message", &parts)
}

/// Converts parts to content. A single data part becomes the structured result.
fn result_of_parts(task: &str, parts: &[&Part]) -> CallToolResult {
    let content = parts.iter().enumerate().map(|(index, part)| content_of(task, index, part)).collect();
    let mut result = CallToolResult::success(content);
    let mut data = parts.iter().filter_map(|part| match &part.content {
        PartContent::Data(data) => Some(data),
        _ => None,
    });
    result.structured_content = data.next().filter(|_| data.next().is_none()).cloned();
    result
}

/// Converts a part of an output to content; `task` and `index` identify unnamed bytes.
pub(super) fn content_of(task: &str, index: usize, part: &Part) -> ContentBlock {
    let media_type = part.media_type.as_deref();
    match &part.content {
        PartContent::Text(text) => ContentBlock::text(text.clone()),
        PartContent::Data(data) => ContentBlock::text(data.to_string()),
        PartContent::Raw(base64) => match media_type.unwrap_or(UNKNOWN_MEDIA_TYPE) {
            media_type if media_type.starts_with("image/") => ContentBlock::image(base64.clone(), media_type),
            media_type if media_type.starts_with("audio/") => ContentBlock::audio(base64.clone(), media_type),
            media_type => {
                let uri = format!("{}#{index}", task_uri(task));
                let bytes = ResourceContents::blob(base64.clone(), uri).with_mime_type(media_type);
                ContentBlock::resource(bytes)
            }
        },
        PartContent::Url(address) => {
            let name = part.filename.clone().unwrap_or_else(|| format!("artifact {index}"));
            let mut link = Resource::new(address.clone(), name);
            link.mime_type = media_type.map(str::to_owned);
            ContentBlock::resource_link(link)
        }
        _ => ContentBlock::text("content of an unknown kind"),
    }
}

/// Returns text for a client whose user cannot be asked: the question, and how to decide.
fn waiting_text(task: &Task, asked: &AskedInput, console: Option<&str>) -> String {
    let id = task.id.0.as_str();
    let said = task.status.message.iter().flat_map(Message::texts).collect::<Vec<_>>().join("\n");
    let mut text = format!(
        "{id} waits for input. This is not a failure, and another call would start another task.\n\
         Question: {}\n",
        short(&said, MAX_PROMPT)
    );
    match asked {
        AskedInput::Questions(questions) => {
            // The user of a gateway may have no command line.
            if let Some(console) = console {
                let line = format!("Answer in the console: {console}/executions/{id}/approval\n");
                text.push_str(&line);
            }
            for question in questions {
                let node = short(&question.node, MAX_NODE);
                let line = format!(
                    "Yes: `sinew approval approve {id} --node {node}`. No: `sinew approval reject {id} --node {node} --comment REASON`.\n"
                );
                text.push_str(&line);
            }
        }
        AskedInput::Requests(requests) => {
            let methods = requests.values().filter_map(|request| request.get("method")?.as_str());
            let mut methods: Vec<String> = methods.map(|method| short(method, MAX_NODE)).collect();
            methods.sort();
            methods.dedup();
            text.push_str("It requests from clients: ");
            text.push_str(&methods.join(", "));
            text.push_str(".\n");
        }
        AskedInput::Words(_) => text.push_str("Answer with an A2A message to the task.\n"),
        AskedInput::Nothing => {}
    }
    text + &format!("State and result afterwards: the resource {}.", task_uri(id))
}

/// Returns the fault of a failed task, or one with its text.
pub(super) fn failure_of(task: &Task) -> Fault {
    let extra = task.metadata.as_ref().and_then(|metadata| metadata.get(METADATA)?.get("fault").cloned());
    if let Some(fault) = extra.and_then(|fault| serde_json::from_value(fault).ok()) {
        return fault;
    }
    let said = task.status.message.iter().flat_map(Message::texts).collect::<Vec<_>>().join("\n");
    let said = if said.is_empty() { "the task failed without a reason".to_owned() } else { said };
    Fault::failure(FAILED, said)
}

/// Returns whether a task failed because of the mesh rather than the agent's work.
fn is_system_failure(task: &Task) -> bool {
    // A workflow's fault is that of a node, so the mesh did not fail.
    let is_workflow = task.metadata.as_ref().is_some_and(|metadata| metadata.get("workflow_name").is_some());
    task.status.state == TaskState::Failed && !is_workflow && failure_of(task).kind == FaultKind::Error
}

/// Returns a failure as a result that the model reads.
pub(super) fn failure(fault: &Fault, task: Option<&str>) -> CallToolResult {
    let message = short(&fault.message, MAX_ERROR_TEXT);
    let details = fault.details.iter().take(MAX_DETAILS);
    let details: Vec<String> = details.map(|detail| format!("\n- {}", short(detail, 300))).collect();
    let text = format!("{}: {message}{}", fault.code, details.concat());
    let mut meta = task.map(task_meta).unwrap_or_default();
    let about = json!({"code": fault.code, "message": message, "retryable": fault.retryable});
    meta.0.insert(ERROR_META.to_owned(), about);
    CallToolResult::error(vec![ContentBlock::text(text)]).with_meta(Some(meta))
}

fn task_meta(task: &str) -> MetaObject {
    let mut meta = MetaObject::new();
    meta.0.insert(TASK_META.to_owned(), task.into());
    meta
}

/// Returns the result of a rejected operation: for the model if the call is wrong, as a protocol
/// error if the mesh failed.
pub(super) fn refusal(error: &A2aError) -> Result<CallToolResult, ErrorData> {
    if error.code == A2aErrorCode::InternalError {
        return Err(error_of(error));
    }
    Ok(failure(&fault_of(error), None))
}

/// Converts an operation's error to a protocol error, with the error code.
pub(super) fn error_of(error: &A2aError) -> ErrorData {
    let fault = fault_of(error);
    let code = match error.code {
        A2aErrorCode::InternalError | A2aErrorCode::InvalidAgentResponse => ErrorCode::INTERNAL_ERROR,
        _ => ErrorCode::INVALID_PARAMS,
    };
    coded_error(code, &fault.code, &fault.message, fault.retryable)
}

/// Returns the error for a tool, prompt or other offer that does not exist.
pub(super) fn unknown_offer(kind: &str, name: &str) -> ErrorData {
    let text = format!("{kind} {:?} not found", short(name, 64));
    coded_error(ErrorCode::INVALID_PARAMS, code::GATEWAY_SKILL_UNKNOWN.as_str(), &text, false)
}

/// Returns the error for a resource that does not exist.
pub(super) fn unknown_resource(uri: &str) -> ErrorData {
    let text = format!("resource {:?} not found", short(uri, 200));
    let code = code::GATEWAY_RESOURCE_UNKNOWN.as_str();
    let mut error = coded_error(ErrorCode::RESOURCE_NOT_FOUND, code, &text, false);
    if let Some(Value::Object(data)) = &mut error.data {
        data.insert("uri".to_owned(), short(uri, 200).into());
    }
    error
}

/// Builds a protocol error with an error code.
pub(super) fn coded_error(kind: ErrorCode, code: &str, message: &str, retryable: bool) -> ErrorData {
    ErrorData::new(kind, short(message, MAX_ERROR_TEXT), Some(json!({"code": code, "retryable": retryable})))
}

/// Converts a task to the format of the tasks extension. `begun` is when it started, as an A2A
/// timestamp.
pub(super) fn mcp_task(task: &Task, begun: &str) -> McpTask {
    let status = match task.status.state {
        TaskState::Failed if is_system_failure(task) => McpTaskStatus::Failed,
        TaskState::Completed | TaskState::Failed | TaskState::Rejected => McpTaskStatus::Completed,
        TaskState::Canceled => McpTaskStatus::Cancelled,
        TaskState::InputRequired | TaskState::AuthRequired => McpTaskStatus::InputRequired,
        _ => McpTaskStatus::Working,
    };
    let changed = task.status.timestamp.as_deref().unwrap_or(begun);
    let mut shown = McpTask::new(task.id.0.clone(), status, begun, changed);
    shown.poll_interval_ms = Some(POLL_INTERVAL_MS);
    let said = task.status.message.iter().flat_map(Message::texts).collect::<Vec<_>>().join("\n");
    shown.status_message = Some(short(&said, MAX_PROMPT)).filter(|said| !said.is_empty());
    shown
}

/// Returns a task with the data of its state: its input forms, or its result.
pub(super) fn detailed_task(
    task: &Task,
    begun: &str,
    forms: rmcp::model::InputRequests,
    result: &CallToolResult,
) -> DetailedTask {
    let shown = mcp_task(task, begun);
    let payload = match shown.status {
        McpTaskStatus::Completed => TaskPayload::Completed { result: object_of(result) },
        McpTaskStatus::Cancelled => TaskPayload::Cancelled,
        McpTaskStatus::Failed => {
            let fault = failure_of(task);
            let error = coded_error(ErrorCode::INTERNAL_ERROR, &fault.code, &fault.message, fault.retryable);
            TaskPayload::Failed { error: object_of(&error) }
        }
        // A client whose user cannot be asked reads the question in the status message.
        McpTaskStatus::InputRequired if !forms.is_empty() => {
            TaskPayload::InputRequired { input_requests: forms }
        }
        _ => TaskPayload::Working,
    };
    DetailedTask::new(shown, payload)
}

fn object_of(result: &impl serde::Serialize) -> JsonObject {
    match serde_json::to_value(result) {
        Ok(Value::Object(object)) => object,
        _ => JsonObject::new(),
    }
}

/// Text for a task event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskNews {
    pub(super) text: String,
    pub(super) severity: LogSeverity,
}

/// Returns the text for a task event, or `None` if the event shows no progress.
pub(super) fn news_of(event: &StreamResponse) -> Option<TaskNews> {
    let StreamResponse::StatusUpdate(update) = event else { return None };
    let message = update.status.message.as_ref()?;
    let mut severity = LogSeverity::Info;
    let text = match MeshMessage::find(&message.parts) {
        Some(Ok(MeshMessage::ExecutionStart(_))) => "begun".to_owned(),
        Some(Ok(MeshMessage::NodeExecutionStart(node))) => format!("{}: begun", node.node_id),
        Some(Ok(MeshMessage::NodeExecutionResult(node))) => match &node.error_message {
            Some(error) => {
                severity = LogSeverity::Warning;
                format!("{}: {}", node.node_id, short(error, 300))
            }
            None => format!("{}: done", node.node_id),
        },
        Some(Ok(MeshMessage::MapProgress(map))) => {
            format!("{}: {} of {}", map.node_id, map.completed_items, map.total_items)
        }
        Some(_) => return None,
        None => message.texts().collect::<Vec<_>>().join("\n"),
    };
    let text = short(&text, MAX_PROMPT);
    (!text.is_empty()).then_some(TaskNews { text, severity })
}

#[cfg(test)]
mod tests;
