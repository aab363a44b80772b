//! Outputs of agents as prompt messages and as resource contents.

use rmcp::model::{ContentBlock, PromptMessage, ResourceContents, Role};
use serde::Deserialize;
use serde_json::Value;
use sinew_protocol::a2a::{Part, PartContent};

use super::tool_result::content_of;

/// Member of an output with prompt messages in MCP's format.
const MESSAGES: &str = "messages";
/// Member of an output with resource contents in MCP's format, without addresses.
const CONTENTS: &str = "contents";
const JSON: &str = "application/json";

/// One resource content of an output.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OutputContent {
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
}

/// Returns the messages of a prompt: those of the member `messages`, otherwise one user message per
/// part.
pub(super) fn messages_of(task: &str, parts: &[&Part]) -> Vec<PromptMessage> {
    let mut messages = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        match &part.content {
            PartContent::Data(data) => match data.get(MESSAGES).map(Vec::<PromptMessage>::deserialize) {
                Some(Ok(own)) => messages.extend(own),
                _ => messages.push(PromptMessage::new(Role::User, ContentBlock::text(words_of(data)))),
            },
            _ => messages.push(PromptMessage::new(Role::User, content_of(task, index, part))),
        }
    }
    messages
}

/// Returns the contents of a resource: those of the member `contents`, otherwise one per part.
/// Files stored on the mesh were already fetched.
pub(super) fn contents_of(uri: &str, media_type: Option<&str>, parts: &[&Part]) -> Vec<ResourceContents> {
    let typed = |contents: ResourceContents, own: Option<&str>, usual: &str| {
        contents.with_mime_type(own.or(media_type).unwrap_or(usual))
    };
    let mut all = Vec::new();
    for part in parts {
        let own = part.media_type.as_deref();
        match &part.content {
            PartContent::Text(text) => {
                all.push(typed(ResourceContents::text(text.clone(), uri), own, "text/plain"));
            }
            PartContent::Data(data) => match data.get(CONTENTS).map(Vec::<OutputContent>::deserialize) {
                Some(Ok(contents)) => {
                    all.extend(contents.into_iter().filter_map(|content| {
                        let own = content.mime_type.as_deref();
                        if let Some(blob) = content.blob {
                            let usual = "application/octet-stream";
                            return Some(typed(ResourceContents::blob(blob, uri), own, usual));
                        }
                        Some(typed(ResourceContents::text(content.text?, uri), own, "text/plain"))
                    }));
                }
                _ if data.is_string() => {
                    all.push(typed(ResourceContents::text(words_of(data), uri), None, "text/plain"));
                }
                _ => all.push(typed(ResourceContents::text(words_of(data), uri), None, JSON)),
            },
            PartContent::Raw(base64) => {
                let usual = "application/octet-stream";
                all.push(typed(ResourceContents::blob(base64.clone(), uri), own, usual));
            }
            _ => {}
        }
    }
    all
}

/// Returns a string unchanged, and any other value as JSON.
fn words_of(data: &Value) -> String {
    data.as_str().map_or_else(|| data.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parts(parts: Value) -> Vec<Part> {
        serde_json::from_value(parts).unwrap()
    }

    #[test]
    fn outputs_are_messages() {
        let check = |output: Value, expected: Value| {
            let parts = parts(output.clone());
            let shown = serde_json::to_value(messages_of("t", &parts.iter().collect::<Vec<_>>())).unwrap();
            assert_eq!(shown, expected, "{output}");
        };
        let text = |role: &str, text: &str| json!({"role": role, "content": {"type": "text", "text": text}});
        check(json!([{"text": "Hi"}]), json!([text("user", "Hi")]));
        check(json!([{"data": "Hi"}]), json!([text("user", "Hi")]));
        check(json!([{"data": {"a": 1}}]), json!([text("user", "{\"a\":1}")]));
        let own = json!([text("user", "Hi"), text("assistant", "Hello")]);
        check(json!([{"data": {"messages": own}}]), own);
        check(json!([{"data": {"messages": 5}}]), json!([text("user", "{\"messages\":5}")]));
        check(
            json!([{"raw": "YWJj", "mediaType": "image/png"}]),
            json!([{"role": "user", "content": {"type": "image", "data": "YWJj", "mimeType": "image/png"}}]),
        );
    }

    #[test]
    fn outputs_are_contents() {
        let check = |media_type: Option<&str>, output: Value, expected: Value| {
            let parts = parts(output.clone());
            let contents = contents_of("n://1", media_type, &parts.iter().collect::<Vec<_>>());
            assert_eq!(serde_json::to_value(contents).unwrap(), expected, "{output}");
        };
        check(None, json!([{"data": "a"}]), json!([{"uri": "n://1", "mimeType": "text/plain", "text": "a"}]));
        check(
            Some("text/markdown"),
            json!([{"text": "# a"}]),
            json!([{"uri": "n://1", "mimeType": "text/markdown", "text": "# a"}]),
        );
        check(
            None,
            json!([{"data": {"a": 1}}]),
            json!([{"uri": "n://1", "mimeType": "application/json", "text": "{\"a\":1}"}]),
        );
        check(
            Some("image/png"),
            json!([{"data": {"contents": [{"blob": "YWJj"}, {"text": "b", "mimeType": "text/plain"}, {}]}}]),
            json!([
                {"uri": "n://1", "mimeType": "image/png", "blob": "YWJj"},
                {"uri": "n://1", "mimeType": "text/plain", "text": "b"},
            ]),
        );
    }
}
