//! Classifies errors of providers.

use serde_json::Value;

use crate::text::{shortened, without_hidden};
use crate::turn::{ModelRefusal, RefusalKind};

/// Maximum characters of a provider's message in a refusal.
const MAX_SHOWN_CHARS: usize = 400;

/// Texts by which providers report that a prompt is too long, in lower case.
const TOO_LONG: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "context window",
    "context size",
    "prompt is too long",
    "input token count",
    "too many tokens",
    "input is too long",
];

/// Texts by which providers report that their filter blocked a prompt, in lower case.
const FILTERED: &[&str] =
    &["content_filter", "content_policy", "content management policy", "responsibleaipolicy"];

/// Returns the refusal for an HTTP status other than 2xx. `body` is the start of the response.
pub fn refusal_of_status(status: u16, retry_after_ms: Option<u64>, body: &[u8]) -> ModelRefusal {
    let text = String::from_utf8_lossy(body);
    let told = serde_json::from_slice::<Value>(body).ok().and_then(|value| message_of(&value));
    let told = told.unwrap_or_else(|| text.trim().to_owned());
    let words = text.to_lowercase();
    let says = |known: &[&str]| known.iter().any(|word| words.contains(word));
    let kind = match status {
        413 => RefusalKind::ContextTooLong,
        400 | 422 if says(TOO_LONG) => RefusalKind::ContextTooLong,
        400 | 422 if says(FILTERED) => RefusalKind::Filtered,
        429 => RefusalKind::Limited,
        408 | 409 | 425 | 500.. => RefusalKind::Unavailable,
        // The key, the name of the model or the request is rejected.
        _ => RefusalKind::Denied,
    };
    let message = if told.is_empty() {
        format!("the provider answered {status}")
    } else {
        format!("the provider answered {status}: {}", shown(&told))
    };
    ModelRefusal { kind, message, retry_after_ms }
}

/// Returns the refusal for an error in an answer with status 200.
pub(super) fn refusal_of_error(error: &Value) -> ModelRefusal {
    let told = message_of(error).unwrap_or_else(|| error.to_string());
    let words = error.to_string().to_lowercase();
    let says = |known: &[&str]| known.iter().any(|word| words.contains(word));
    let kind = if says(TOO_LONG) {
        RefusalKind::ContextTooLong
    } else if says(FILTERED) {
        RefusalKind::Filtered
    } else if says(&["rate_limit", "too many requests", "resource_exhausted"]) {
        RefusalKind::Limited
    } else if says(&["authentication", "permission", "invalid_api_key", "invalid_request"]) {
        RefusalKind::Denied
    } else {
        RefusalKind::Unavailable
    };
    ModelRefusal::new(kind, format!("the provider reports an error: {}", shown(&told)))
}

fn message_of(value: &Value) -> Option<String> {
    let value = value.get(0).unwrap_or(value);
    let inner = value.get("error").unwrap_or(value);
    let text = inner.get("message").and_then(Value::as_str).or_else(|| inner.as_str())?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn shown(text: &str) -> String {
    shortened(&without_hidden(text), MAX_SHOWN_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_sorted() {
        use RefusalKind::{ContextTooLong, Denied, Filtered, Limited, Unavailable};
        for (status, body, kind) in [
            (401, "{}", Denied),
            (403, "no", Denied),
            (404, r#"{"error":{"message":"model not found"}}"#, Denied),
            (400, r#"{"error":{"message":"bad tool_choice"}}"#, Denied),
            (400, r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#, ContextTooLong),
            (400, r#"{"error":{"type":"exceed_context_size_error","message":"x"}}"#, ContextTooLong),
            (
                400,
                r#"{"type":"error","error":{"message":"prompt is too long: 9 tokens > 8"}}"#,
                ContextTooLong,
            ),
            (
                400,
                r#"[{"error":{"message":"The input token count (9) exceeds the maximum"}}]"#,
                ContextTooLong,
            ),
            (413, "", ContextTooLong),
            (400, r#"{"error":{"code":"content_filter","message":"x"}}"#, Filtered),
            (429, "slow down", Limited),
            (408, "", Unavailable),
            (500, "\u{1b}[31mboom", Unavailable),
            (529, r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#, Unavailable),
            (302, "", Denied),
        ] {
            let refusal = refusal_of_status(status, None, body.as_bytes());
            assert_eq!(refusal.kind, kind, "{status} {body}");
            assert!(!refusal.message.contains('\u{1b}'), "{refusal}");
        }
        let long = "x".repeat(10_000);
        assert!(refusal_of_status(500, None, long.as_bytes()).message.len() < 600);
    }
}
