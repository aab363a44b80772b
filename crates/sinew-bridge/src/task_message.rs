//! Converts the input of a task to a message to an external agent.

use data_encoding::BASE64;
use serde_json::Value;
use sinew_agent::{Context, Failure};
use sinew_agents::media_type;
use sinew_protocol::a2a::{Message, Part};
use sinew_protocol::{Fault, code};

/// Maximum number of files of one message.
const MAX_FILES: usize = 16;
/// Maximum total size of the files of one message, in bytes.
const MAX_FILE_BYTES: usize = 16 << 20;
/// Fields of an input that is a text message rather than data.
const MESSAGE_MEMBERS: [&str; 4] = ["text", "data", "files", "reply_to"];

/// Parts of a message, and the task that it continues.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OutgoingParts {
    pub(crate) parts: Vec<Part>,
    /// Id of the external task that the message answers.
    pub(crate) reply_to: Option<String>,
}

/// Converts an input to parts: a string, or an object with `text`, `data`, `files` and `reply_to`.
/// Anything else is data, and so is every input of an agent with an input schema.
pub(crate) async fn parts_of(
    input: &Value,
    has_schema: bool,
    context: &Context,
) -> Result<OutgoingParts, Failure> {
    let mut parts: Vec<Part> = context.instruction().into_iter().map(Part::text).collect();
    let mut reply_to = None;
    match input {
        Value::String(text) if !has_schema => parts.push(Part::text(text)),
        Value::Object(members)
            if !has_schema
                && !members.is_empty()
                && members.keys().all(|name| MESSAGE_MEMBERS.contains(&name.as_str())) =>
        {
            if let Some(text) = members.get("text").filter(|text| !text.is_null()) {
                parts.push(Part::text(text.as_str().map_or_else(|| text.to_string(), str::to_owned)));
            }
            parts.extend(members.get("data").map(|data| Part::data(data.clone())));
            let files = members.get("files").and_then(Value::as_array);
            parts.extend(file_parts(files.map(Vec::as_slice).unwrap_or_default(), context).await?);
            reply_to = members.get("reply_to").and_then(Value::as_str).map(str::to_owned);
        }
        data => parts.push(Part::data(data.clone())),
    }
    Ok(OutgoingParts { parts, reply_to })
}

async fn file_parts(files: &[Value], context: &Context) -> Result<Vec<Part>, Failure> {
    let wrong = |reason: String| {
        Failure::from(Fault::invalid(code::TASK_INPUT_BREAKS_AGENT_INPUT_SCHEMA.as_str(), reason))
    };
    if files.len() > MAX_FILES {
        return Err(wrong(format!("files: a message can have at most {MAX_FILES} files")));
    }
    let (mut parts, mut bytes) = (Vec::new(), 0);
    for file in files {
        let address =
            file.as_str().ok_or_else(|| wrong("files: expected addresses of artifacts".to_owned()))?;
        let content = context.fetch(address).await?;
        bytes += content.len();
        if bytes > MAX_FILE_BYTES {
            return Err(wrong(format!("files: a message can have at most {MAX_FILE_BYTES} bytes of files")));
        }
        let name = address.split('?').next().and_then(|path| path.rsplit('/').next()).unwrap_or("file");
        parts.push(Part::raw(BASE64.encode(&content)).with_filename(name).with_media_type(media_type(name)));
    }
    Ok(parts)
}

/// Converts an answer to a question to parts: a string, an object with `answer` or `text`, or data.
pub(crate) fn answer_parts(answer: &Value) -> Vec<Part> {
    let words = |name: &str| answer.get(name).and_then(Value::as_str);
    match answer.as_str().or_else(|| words("answer")).or_else(|| words("text")) {
        Some(text) => vec![Part::text(text)],
        None => vec![Part::data(answer.clone())],
    }
}

/// Creates a message with an id derived from its position, so that an agent can recognise a
/// repetition by its id.
pub(crate) fn message(id: &str, parts: &[Part], task: Option<&str>, context: Option<&str>) -> Message {
    let mut message = Message::user(id, parts.to_vec());
    if let Some(task) = task {
        message = message.with_task_id(task);
    }
    if let Some(context) = context {
        message = message.with_context_id(context);
    }
    message
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn inputs_become_parts() {
        let context = Context::detached("x");
        for (input, has_schema, expected) in [
            (json!("hi"), false, json!([{"text": "hi"}])),
            (json!({"text": "hi", "data": {"a": 1}}), false, json!([{"text": "hi"}, {"data": {"a": 1}}])),
            (json!({"text": "hi", "more": 1}), false, json!([{"data": {"text": "hi", "more": 1}}])),
            (json!({"text": "hi"}), true, json!([{"data": {"text": "hi"}}])),
            (json!({}), false, json!([{"data": {}}])),
            (json!(7), false, json!([{"data": 7}])),
        ] {
            let parts = parts_of(&input, has_schema, &context).await.unwrap().parts;
            assert_eq!(serde_json::to_value(parts).unwrap(), expected, "{input}");
        }
        let reply = parts_of(&json!({"text": "blue", "reply_to": "t1"}), false, &context).await.unwrap();
        assert_eq!(reply.reply_to.as_deref(), Some("t1"));
        assert!(parts_of(&json!({"files": [1]}), false, &context).await.is_err());
    }
}
