//! Outputs of agents that are prompts or resources.

use rmcp::model::{ErrorCode, ErrorData, InputRequiredResult, PromptMessage, ResourceContents};
use sinew_protocol::a2a::{Message, Part, Task, TaskState};
use sinew_protocol::{Fault, FaultKind, code};

use super::agent_call::{CallError, CallOutcome, fetch_results};
use super::offered_content::{contents_of, messages_of};
use super::tool_result::{coded_error, error_of, failure_of, output_parts};
use crate::operations::A2aOperations;

/// Output of an agent that is a prompt or a resource.
pub(super) enum OfferOutput {
    Message(Box<Message>),
    Task(Box<Task>),
    /// No output yet: the client has to repeat the request with this input.
    InputRequired(InputRequiredResult),
}

impl OfferOutput {
    /// Returns the output of a call. Failures are protocol errors, because no model reads the
    /// result.
    pub(super) async fn of(
        operations: &A2aOperations,
        outcome: Result<CallOutcome, CallError>,
    ) -> Result<Self, ErrorData> {
        match outcome {
            Ok(CallOutcome::Message(message)) => Ok(Self::Message(message)),
            Ok(CallOutcome::InputRequired(required)) => Ok(Self::InputRequired(required)),
            Ok(CallOutcome::Task(mut task, _)) if task.status.state == TaskState::Completed => {
                fetch_results(operations, &mut task).await;
                Ok(Self::Task(task))
            }
            Ok(CallOutcome::Task(task, _)) => {
                let fault = match task.status.state {
                    TaskState::Failed | TaskState::Rejected => failure_of(&task),
                    state => Fault::failure(
                        code::GATEWAY_MESSAGE_MALFORMED.as_str(),
                        format!("{} is in the state {state:?}, so it has no output", task.id.0),
                    ),
                };
                let kind = match fault.kind {
                    FaultKind::Invalid => ErrorCode::INVALID_PARAMS,
                    _ => ErrorCode::INTERNAL_ERROR,
                };
                Err(coded_error(kind, &fault.code, &fault.message, fault.retryable))
            }
            Ok(CallOutcome::Begun(_)) => {
                Err(ErrorData::internal_error("the agent continues as a task", None))
            }
            Ok(CallOutcome::BadInput(text)) => {
                let code = code::TASK_INPUT_BREAKS_AGENT_INPUT_SCHEMA.as_str();
                Err(coded_error(ErrorCode::INVALID_PARAMS, code, &text, false))
            }
            Err(CallError::Refused(error)) => Err(error_of(&error)),
            Err(CallError::Protocol(error)) => Err(error),
        }
    }

    fn parts(&self) -> Vec<&Part> {
        match self {
            Self::Message(message) => message.parts.iter().collect(),
            Self::Task(task) => output_parts(task),
            Self::InputRequired(_) => Vec::new(),
        }
    }

    fn task_id(&self) -> &str {
        match self {
            Self::Task(task) => &task.id.0,
            _ => "message",
        }
    }

    /// Returns the output as prompt messages.
    pub(super) fn messages(&self) -> Vec<PromptMessage> {
        messages_of(self.task_id(), &self.parts())
    }

    /// Returns the output as contents of the resource at `uri`. Fails if it exceeds `max_bytes`.
    pub(super) fn contents(
        &self,
        uri: &str,
        media_type: Option<&str>,
        max_bytes: usize,
    ) -> Result<Vec<ResourceContents>, ErrorData> {
        let contents = contents_of(uri, media_type, &self.parts());
        let size: usize = contents.iter().map(size_of_contents).sum();
        if size <= max_bytes.saturating_mul(4) / 3 {
            return Ok(contents);
        }
        let text = format!("the resource has more than {max_bytes} bytes");
        let code = code::GATEWAY_RESOURCE_TOO_LARGE.as_str();
        Err(coded_error(ErrorCode::INVALID_PARAMS, code, &text, false))
    }
}

/// Returns the size of a text or base64 content.
fn size_of_contents(contents: &ResourceContents) -> usize {
    match contents {
        ResourceContents::TextResourceContents { text, .. } => text.len(),
        ResourceContents::BlobResourceContents { blob, .. } => blob.len(),
        _ => 0,
    }
}
