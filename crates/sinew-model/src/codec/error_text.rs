//! Extracts the message of an error from the body of a response: JSON in the forms of known servers,
//! an HTML page, or text.

use serde_json::Value;

/// Members with the message of an error, in order of precedence.
const MESSAGE_KEYS: [&str; 9] =
    ["message", "detail", "msg", "error_msg", "errors", "error_description", "reason", "error", "title"];
/// Maximum nesting of a message.
const MAX_LEVELS: usize = 5;
/// Maximum messages of a list.
const MAX_MESSAGES: usize = 3;

/// Returns the message in a body; the text without markup for a page.
pub(super) fn body_message(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let parsed = serde_json::from_str::<Value>(&text).ok();
    match parsed.and_then(|value| message_of(&value)) {
        Some(message) => message,
        None if text.trim_start().starts_with('<') => page_text(&text),
        None => text.trim().to_owned(),
    }
}

/// Returns the message of an error.
pub(super) fn message_of(error: &Value) -> Option<String> {
    message_within(error, 0)
}

fn message_within(value: &Value, level: usize) -> Option<String> {
    if level > MAX_LEVELS {
        return None;
    }
    match value {
        Value::String(text) => {
            // Proxies pass the body of the provider on as text.
            let inner = Some(text).filter(|text| text.trim_start().starts_with('{'));
            let inner = inner.and_then(|text| serde_json::from_str::<Value>(text).ok());
            let message = inner.and_then(|inner| message_within(&inner, level + 1));
            message.or_else(|| Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
        }
        Value::Array(items) => {
            let messages = items.iter().filter_map(|item| message_within(item, level + 1));
            let messages: Vec<String> = messages.take(MAX_MESSAGES).collect();
            Some(messages.join("; ")).filter(|text| !text.is_empty())
        }
        Value::Object(members) => {
            let error = members.get("error").filter(|error| error.is_object() || error.is_array());
            let message = error.and_then(|error| message_within(error, level + 1)).or_else(|| {
                MESSAGE_KEYS.iter().find_map(|key| message_within(members.get(*key)?, level + 1))
            })?;
            let raw = value.pointer("/metadata/raw").and_then(|raw| message_within(raw, level + 1));
            let place = members.get("loc").and_then(Value::as_array).map(|place| location(place));
            Some(match (place, raw) {
                (Some(place), _) => format!("{place}: {message}"),
                (None, Some(raw)) if raw != message => format!("{message}: {raw}"),
                _ => message,
            })
        }
        _ => None,
    }
}

fn location(place: &[Value]) -> String {
    let parts = place.iter().map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned));
    parts.collect::<Vec<_>>().join(".")
}

/// Returns the visible text of an HTML page.
fn page_text(page: &str) -> String {
    let (mut text, mut rest) = (String::new(), page);
    while let Some(at) = rest.find('<') {
        text.push_str(&rest[..at]);
        text.push(' ');
        let tag = rest[at + 1..].to_ascii_lowercase();
        let hidden = ["script", "style", "!--"].iter().find(|name| tag.starts_with(*name));
        let end = match hidden {
            Some(&"!--") => "-->",
            Some(&"script") => "</script>",
            Some(_) => "</style>",
            None => ">",
        };
        rest = match tag.find(end) {
            Some(length) => &rest[at + 1 + length + end.len()..],
            None => "",
        };
    }
    text.push_str(rest);
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&nbsp;", " "), ("&amp;", "&")];
    let text = entities.iter().fold(text, |text, (entity, character)| text.replace(entity, character));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found() {
        for (body, expected) in [
            (r#"{"error":{"message":" boom ","code":1}}"#, "boom"),
            (r#"[{"error":{"message":"boom"}}]"#, "boom"),
            (r#"{"error":"boom"}"#, "boom"),
            (r#""boom""#, "boom"),
            (r#"{"object":"error","message":"boom","code":40303}"#, "boom"),
            (r#"{"detail":"boom"}"#, "boom"),
            (r#"{"detail":[{"loc":["body","messages",0],"msg":"boom"}]}"#, "body.messages.0: boom"),
            (r#"{"message":{"detail":[{"loc":["body","x"],"msg":"boom"}]}}"#, "body.x: boom"),
            (r#"{"error":true,"message":"boom"}"#, "boom"),
            (r#"{"errors":[{"message":"one"},{"message":"two"}]}"#, "one; two"),
            (r#"{"error":"invalid_request","error_description":"boom"}"#, "boom"),
            (
                r#"{"error":{"message":"Provider returned error","metadata":{"raw":"{\"error\":{\"message\":\"boom\"}}"}}}"#,
                "Provider returned error: boom",
            ),
            ("upstream timed out\n", "upstream timed out"),
            (
                "<html><head><title>502 Bad Gateway</title><style>a{}</style></head><body><!-- x --><h1>Bad&nbsp;gateway</h1></body>",
                "502 Bad Gateway Bad gateway",
            ),
            ("<unfinished", ""),
            ("{}", "{}"),
            ("", ""),
        ] {
            assert_eq!(body_message(body.as_bytes()), expected, "{body}");
        }
        let deep = format!("{}\"x\"{}", "{\"error\":".repeat(100), "}".repeat(100));
        assert_eq!(body_message(deep.as_bytes()), deep);
    }
}
