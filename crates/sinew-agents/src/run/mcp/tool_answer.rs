//! Converts the answer of a tool to an output: structured content, else JSON or text, and artifacts.

use data_encoding::BASE64;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Value, json};

use crate::call::Call;
use crate::clean::{ResolvedSecrets, clean};
use crate::error::AgentError;
use crate::run::Output;

/// Maximum bytes of a failure that are sanitised.
const MAX_CLEANED_BYTES: usize = 64 << 10;
/// Maximum bytes of a failure that are shown.
const MAX_ERROR_BYTES: usize = 4_096;

/// Returns the failure in an answer, without the secrets of the server; `None` for an output.
pub(super) fn failure_of(
    tool: &str,
    answer: &CallToolResult,
    secrets: &ResolvedSecrets,
) -> Option<AgentError> {
    if answer.is_error != Some(true) {
        return None;
    }
    let texts = answer.content.iter().filter_map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.as_str()),
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::TextResourceContents { text, .. } => Some(text.as_str()),
            _ => None,
        },
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    // Truncate after sanitising, so that no part of a secret remains.
    let reason = clean(&text.as_bytes()[..text.floor_char_boundary(MAX_CLEANED_BYTES)], secrets);
    let reason = reason[..reason.floor_char_boundary(MAX_ERROR_BYTES)].to_owned();
    Some(AgentError::Tool { tool: tool.to_owned(), reason })
}

/// Returns the output of a successful call. Files are named by `files` and their number.
pub(super) fn output_of(
    tool: &str,
    files: &str,
    answer: CallToolResult,
    call: &Call,
) -> Result<Output, AgentError> {
    let mut texts: Vec<&str> = Vec::new();
    let mut artifacts = Vec::new();
    for (index, block) in answer.content.iter().enumerate() {
        let (data, media_type) = match block {
            ContentBlock::Text(text) => {
                texts.push(&text.text);
                continue;
            }
            ContentBlock::Image(image) => (&image.data, Some(image.mime_type.as_str())),
            ContentBlock::Audio(audio) => (&audio.data, Some(audio.mime_type.as_str())),
            ContentBlock::Resource(resource) => match &resource.resource {
                ResourceContents::TextResourceContents { text, .. } => {
                    texts.push(text);
                    continue;
                }
                ResourceContents::BlobResourceContents { blob, mime_type, .. } => {
                    (blob, mime_type.as_deref())
                }
                _ => continue,
            },
            _ => continue,
        };
        let bytes = BASE64.decode(data.as_bytes()).map_err(|error| unreadable(tool, &error.to_string()))?;
        let name = format!("{files}-{index}");
        artifacts.push(call.artifacts.put(&name, &bytes, media_type)?);
    }
    let text = texts.join("\n");
    let value = match answer.structured_content {
        Some(value) => value,
        None => serde_json::from_str(&text)
            .ok()
            .filter(|it: &Value| !it.is_string())
            .unwrap_or(json!({"text": text})),
    };
    Ok(Output { artifacts, ..Output::from(value) })
}

fn unreadable(tool: &str, reason: &str) -> AgentError {
    AgentError::McpServer { reason: format!("the answer of {tool} cannot be read: {reason}") }
}
