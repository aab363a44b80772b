//! Converts the answer of a tool to an output: structured content, JSON or text, other parts, and
//! artifacts.
//!
//! Answers are read as JSON, because one part of an unknown type must not lose the others: the tool has
//! been called.

use data_encoding::BASE64;
use serde_json::{Map, Value, json};

use crate::call::Call;
use crate::clean::{ResolvedSecrets, clean};
use crate::error::AgentError;
use crate::run::Output;

/// Maximum bytes of a failure that are sanitised.
const MAX_CLEANED_BYTES: usize = 64 << 10;
/// Maximum bytes of a failure that are shown.
const MAX_ERROR_BYTES: usize = 4_096;
/// Members of a part that servers send without a value.
const OPTIONAL_MEMBERS: [&str; 2] = ["annotations", "_meta"];

/// The answer of a tool.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ToolAnswer {
    content: Vec<Value>,
    structured: Option<Value>,
    is_error: bool,
}

/// The output of a successful call.
pub(super) struct ToolOutput {
    /// The output with everything that the tool returned.
    pub(super) output: Output,
    /// The structured content, if the tool returned more.
    pub(super) structured: Option<Value>,
}

/// A part of an answer.
enum AnswerPart<'a> {
    Text(&'a str),
    File {
        data: &'a str,
        media_type: Option<&'a str>,
    },
    /// A link, or a part of a later version of the protocol.
    Other,
}

impl ToolAnswer {
    /// Reads an answer. Null members are absent.
    pub(super) fn of(mut result: Value) -> Self {
        let mut take = |key: &str| result.get_mut(key).map(Value::take).filter(|value| !value.is_null());
        let (content, structured) = (take("content"), take("structuredContent"));
        let is_error = take("isError") == Some(Value::Bool(true));
        let content = match content {
            Some(Value::Array(parts)) => parts,
            Some(text @ Value::String(_)) => vec![json!({"type": "text", "text": text})],
            Some(part) => vec![part],
            None => Vec::new(),
        };
        Self { content, structured, is_error }
    }

    /// Returns the failure in the answer, without the secrets of the server; `None` for an output.
    pub(super) fn failure(&self, tool: &str, secrets: &ResolvedSecrets) -> Option<AgentError> {
        if !self.is_error {
            return None;
        }
        let text = self.text();
        let others = self.content.iter().filter(|part| matches!(part_of(part), AnswerPart::Other));
        let details = self.structured.iter().filter(|details| !is_same(&text, details)).chain(others);
        let details: Vec<String> = details.map(Value::to_string).collect();
        let mut lines: Vec<&str> = Some(text.as_str()).filter(|text| !text.is_empty()).into_iter().collect();
        lines.extend(details.iter().map(String::as_str));
        let text = lines.join("\n");
        // Truncate after sanitising, so that no part of a secret remains.
        let reason = clean(&text.as_bytes()[..text.floor_char_boundary(MAX_CLEANED_BYTES)], secrets);
        let mut reason = reason[..reason.floor_char_boundary(MAX_ERROR_BYTES)].to_owned();
        if reason.is_empty() {
            "it gives no reason".clone_into(&mut reason);
        }
        Some(AgentError::Tool { tool: tool.to_owned(), reason })
    }

    fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|part| match part_of(part) {
            AnswerPart::Text(text) => Some(text),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    /// Returns the output of a successful call. Files are named by `files` and their number.
    pub(super) fn output(self, files: &str, call: &Call) -> Result<ToolOutput, AgentError> {
        let text = self.text();
        let (mut artifacts, mut others) = (Vec::new(), Vec::new());
        for (index, part) in self.content.iter().enumerate() {
            match part_of(part) {
                AnswerPart::Text(_) => {}
                AnswerPart::File { data, media_type } => match decoded(data) {
                    Some(bytes) => {
                        artifacts.push(call.artifacts.put(
                            &format!("{files}-{index}"),
                            &bytes,
                            media_type,
                        )?);
                    }
                    None => others.push(json!({"type": part["type"], "problem": "its data is not base64"})),
                },
                AnswerPart::Other => others.push(without_empty_members(part)),
            }
        }
        let structured = self.structured;
        let value = match &structured {
            Some(structured) if text.trim().is_empty() || is_same(&text, structured) => structured.clone(),
            Some(structured) => with_member(structured.clone(), &["text", "content_text"], text.into()),
            None => serde_json::from_str(&text)
                .ok()
                .filter(|it: &Value| !it.is_string())
                .unwrap_or(json!({"text": text})),
        };
        let value = if others.is_empty() {
            value
        } else {
            with_member(value, &["parts", "content_parts"], others.into())
        };
        let structured = structured.filter(|structured| *structured != value);
        Ok(ToolOutput { output: Output { artifacts, ..Output::from(value) }, structured })
    }
}

fn part_of(part: &Value) -> AnswerPart<'_> {
    let text = |value: &'_ Value| value.as_str().is_some();
    let resource = &part["resource"];
    match part["type"].as_str() {
        Some("text") | None if text(&part["text"]) => {
            AnswerPart::Text(part["text"].as_str().unwrap_or_default())
        }
        Some("image" | "audio") if text(&part["data"]) => AnswerPart::File {
            data: part["data"].as_str().unwrap_or_default(),
            media_type: part["mimeType"].as_str(),
        },
        Some("resource") if text(&resource["text"]) => {
            AnswerPart::Text(resource["text"].as_str().unwrap_or_default())
        }
        Some("resource") if text(&resource["blob"]) => AnswerPart::File {
            data: resource["blob"].as_str().unwrap_or_default(),
            media_type: resource["mimeType"].as_str(),
        },
        _ => part.as_str().map_or(AnswerPart::Other, AnswerPart::Text),
    }
}

/// Decodes base64, also of servers that send a data URL or line breaks.
fn decoded(data: &str) -> Option<Vec<u8>> {
    let data = data.strip_prefix("data:").and_then(|url| Some(url.split_once(',')?.1)).unwrap_or(data);
    BASE64.decode(data.as_bytes()).ok().or_else(|| {
        let compact: String = data.split_ascii_whitespace().collect();
        BASE64.decode(compact.as_bytes()).ok()
    })
}

/// Returns whether a text is the JSON of a value, as MCP recommends for older clients.
fn is_same(text: &str, value: &Value) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|parsed| parsed == *value)
        || value.as_str().is_some_and(|value| value == text)
        || value.as_object().is_some_and(|members| members.values().any(|member| *member == *text))
}

fn without_empty_members(part: &Value) -> Value {
    let mut part = part.clone();
    if let Some(members) = part.as_object_mut() {
        members.retain(|key, value| !(value.is_null() && OPTIONAL_MEMBERS.contains(&key.as_str())));
    }
    part
}

/// Adds a member under the first free name. A value that is not an object becomes the member `content`.
fn with_member(value: Value, names: &[&str], member: Value) -> Value {
    let mut members = match value {
        Value::Object(members) => members,
        value => Map::from_iter([("content".to_owned(), value)]),
    };
    // Both names are taken only by servers whose answers repeat the content.
    if let Some(name) = names.iter().find(|name| !members.contains_key(**name)) {
        members.insert((*name).to_owned(), member);
    }
    members.into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::artifacts::ArtifactFolder;

    fn text(words: &str) -> Value {
        json!({"type": "text", "text": words})
    }

    #[test]
    fn answers_keep_all_that_the_tool_returned() {
        let link = json!({"type": "resource_link", "uri": "ui://demo/v1", "mimeType": "text/html"});
        let hologram = json!({"type": "hologram", "data": 1});
        let folder = tempfile::tempdir().unwrap();
        let artifacts = Arc::new(ArtifactFolder::open(folder.path().join("artifacts")).unwrap());
        let call = Call::new("x", Value::Null, artifacts);
        let bare = json!({"type": "text", "text": "fine", "annotations": null});
        for (answer, expected) in [
            (json!({"content": [text("fine")]}), json!({"text": "fine"})),
            (json!({"content": [text("[1, 2]")]}), json!([1, 2])),
            (json!({"content": [text("\"word\"")]}), json!({"text": "\"word\""})),
            // Text next to structured content.
            (
                json!({"content": [text("THE BODY")], "structuredContent": {"file": "a.txt"}}),
                json!({"file": "a.txt", "text": "THE BODY"}),
            ),
            (json!({"content": [text("{\"n\": 7}")], "structuredContent": {"n": 7}}), json!({"n": 7})),
            (json!({"content": [text("x")], "structuredContent": {"result": "x"}}), json!({"result": "x"})),
            (json!({"content": [], "structuredContent": {"n": 7}}), json!({"n": 7})),
            (json!({"structuredContent": {"n": 7}}), json!({"n": 7})),
            (
                json!({"content": [text("b")], "structuredContent": {"text": "a"}}),
                json!({"text": "a", "content_text": "b"}),
            ),
            (json!({"content": [text("b")], "structuredContent": [1]}), json!({"content": [1], "text": "b"})),
            // Null is absent.
            (json!({"content": [bare], "structuredContent": null, "isError": null}), json!({"text": "fine"})),
            // Parts without a name, and of unknown types.
            (json!({"content": [text("see"), link]}), json!({"text": "see", "parts": [link]})),
            (json!({"content": [hologram, text("fine")]}), json!({"text": "fine", "parts": [hologram]})),
            (
                json!({"content": [{"type": "image", "data": "%%", "mimeType": "image/png"}, text("x")]}),
                json!({"text": "x", "parts": [{"type": "image", "problem": "its data is not base64"}]}),
            ),
            (json!({"content": "words"}), json!({"text": "words"})),
            (json!({"content": text("words")}), json!({"text": "words"})),
            (json!({}), json!({"text": ""})),
        ] {
            let output = ToolAnswer::of(answer.clone()).output("t", &call).unwrap_or_else(|_| panic!());
            assert_eq!(output.output.value, expected, "{answer}");
        }
        for data in ["YWJj", "YW\nJj", "data:image/png;base64,YWJj"] {
            let answer = json!({"content": [{"type": "image", "data": data, "mimeType": "image/png"}]});
            let stored = ToolAnswer::of(answer).output("t", &call).unwrap_or_else(|_| panic!());
            assert_eq!(stored.output.artifacts.len(), 1, "{data}");
        }
    }

    #[test]
    fn failures_keep_their_details() {
        let details = json!({"error": {"code": "NEEDS_HUMAN"}});
        let same = details.to_string();
        for (answer, expected) in [
            (json!({"content": [text("no")]}), None),
            (json!({"content": [text("no")], "isError": true}), Some("no".to_owned())),
            (
                json!({"content": [text("no")], "structuredContent": details, "isError": true}),
                Some(format!("no\n{details}")),
            ),
            (
                json!({"content": [text(&same)], "structuredContent": details, "isError": true}),
                Some(same.clone()),
            ),
            (json!({"content": [], "isError": true}), Some("it gives no reason".to_owned())),
        ] {
            let failure = ToolAnswer::of(answer.clone()).failure("t", &ResolvedSecrets::default());
            let reason = failure.map(|failure| match failure {
                AgentError::Tool { reason, .. } => reason,
                other => other.to_string(),
            });
            assert_eq!(reason, expected, "{answer}");
        }
    }
}
