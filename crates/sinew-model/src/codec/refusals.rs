//! Classifies errors of providers by status, code and words.

use serde_json::Value;

use super::error_text::{body_message, message_of};
use crate::text::{shortened, without_hidden};
use crate::turn::{ModelRefusal, RefusalKind};

/// Maximum characters of a provider's message in a refusal.
const MAX_SHOWN_CHARS: usize = 400;
/// Maximum nesting at which codes of an error are searched.
const MAX_LEVELS: usize = 6;
/// Members of an error with codes.
const CODE_KEYS: [&str; 6] = ["code", "type", "status", "reason", "error_code", "error"];

/// Texts by which servers report that a prompt is too long, in lower case. All parts of one must occur.
const TOO_LONG: &[&[&str]] = &[
    &["context_length_exceeded"],
    &["context_window_exceeded"],
    &["exceed_context_size"],
    &["max_prompt_tokens_exceeded"],
    &["string_above_max_length"],
    &["request_too_large"],
    &["request too large"],
    &["context length"],
    &["context window"],
    &["context size"],
    &["context limit"],
    &["prompt is too long"],
    &["prompt too long"],
    &["input is too long"],
    &["input too long"],
    &["input token count"],
    &["too many tokens"],
    &["too many input tokens"],
    &["tokens", "too large for model"],
    &["prompt length"],
    &["input length", "exceed"],
    &["range of input length"],
    &["longer than the maximum model length"],
    &["token count", "exceeds the limit"],
    &["model token limit"],
    &["token limit exceeded"],
    &["input tokens", "exceed"],
    &["prompt tokens", "exceed"],
    &["exceeds max length"],
    &["max message tokens"],
    &["inputs", "max_new_tokens"],
    &["reduce the length of the messages"],
    &["reduce your prompt"],
];
/// Codes that only numbers identify: those of GLM and MiniMax.
const TOO_LONG_CODES: &[&str] = &["1261", "2013"];

/// Texts of a request above the limit of tokens per minute, for which waiting does not help.
const NEVER_FITS: &[&[&str]] = &[&["request too large"], &["context_length_exceeded"]];

/// Texts by which providers report that their filter blocked a prompt, in lower case.
const FILTERED: &[&[&str]] = &[
    &["content_filter"],
    &["contentfilter"],
    &["content_policy"],
    &["content filtering policy"],
    &["content management policy"],
    &["responsibleaipolicy"],
    &["data_inspection_failed"],
    &["input was flagged"],
    &["violates usage guidelines"],
];

/// Texts by which providers report that no credit or quota is left, in lower case.
const NO_QUOTA: &[&[&str]] = &[
    &["insufficient_quota"],
    &["exceeded_current_quota"],
    &["billing_hard_limit"],
    &["billing_not_active"],
    &["insufficient balance"],
    &["insufficient_balance"],
    &["insufficient credit"],
    &["credit balance is too low"],
    &["used all available credits"],
    &["credit limit exceeded"],
    &["api usage limits"],
    &["arrearage"],
    &["payment_required"],
];

/// Texts of rate limits, in lower case.
const LIMITED: &[&[&str]] =
    &[&["rate_limit"], &["too many requests"], &["resource_exhausted"], &["throttling"]];

/// Texts about the key, the model or a named part of the request, in lower case.
const DENIED: &[&[&str]] = &[
    &["authentication"],
    &["permission"],
    &["invalid_api_key"],
    &["invalid api key"],
    &["api key not valid"],
    &["api_key_invalid"],
    &["model_not_found"],
    &["unsupported_parameter"],
    &["unsupported_value"],
    &["unknown_parameter"],
    &["invalid_function_parameters"],
    &["extra_forbidden"],
];

/// Returns the refusal for an HTTP status other than 2xx. `body` is the start of the response.
pub fn refusal_of_status(status: u16, retry_after_ms: Option<u64>, body: &[u8]) -> ModelRefusal {
    let document = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let words = String::from_utf8_lossy(body).to_lowercase();
    let message = match shown(&body_message(body)) {
        text if text.is_empty() => format!("the provider answered {status}"),
        text => format!("the provider answered {status}: {text}"),
    };
    let kind = kind_of(Some(status), &words, &codes_of(&document));
    ModelRefusal { kind, message, retry_after_ms: retry_after_ms.or_else(|| retry_delay_ms(&document, 0)) }
}

/// Returns the refusal for an error in an answer with status 200.
pub(super) fn refusal_of_error(error: &Value) -> ModelRefusal {
    let text = message_of(error).unwrap_or_else(|| error.to_string());
    let codes = codes_of(error);
    // Proxies report the status of the provider as the code.
    let status = codes.iter().find_map(|code| code.parse().ok().filter(|code| (400..600).contains(code)));
    let kind = kind_of(status, &error.to_string().to_lowercase(), &codes);
    let message = format!("the provider reports an error: {}", shown(&text));
    ModelRefusal { kind, message, retry_after_ms: retry_delay_ms(error, 0) }
}

/// Returns the error in an event or a document, which has no member `content`. Some servers send an
/// error without the member `error`.
pub(super) fn error_of<'a>(event: &'a Value, content: &str) -> Option<&'a Value> {
    let is_bare = event.get(content).is_none_or(Value::is_null)
        && (event["object"] == "error" || event["message"].is_string() || event.get("detail").is_some());
    match event.get("error") {
        None | Some(Value::Null | Value::Bool(false)) => is_bare.then_some(event),
        Some(Value::Bool(true)) => Some(event),
        Some(error) => Some(error),
    }
}

/// Returns the refusal for data that is not JSON: the text of an error, or a page of a proxy.
pub(super) fn refusal_of_text(data: &[u8], problem: &str) -> ModelRefusal {
    match shown(&body_message(data)) {
        text if text.is_empty() => ModelRefusal::unreadable(problem),
        text => ModelRefusal::unreadable(format!("{problem}: {text}")),
    }
}

/// Returns the class of an error. `words` is the whole error in lower case.
fn kind_of(status: Option<u16>, words: &str, codes: &[String]) -> RefusalKind {
    let mentions =
        |known: &[&[&str]]| known.iter().any(|parts| parts.iter().all(|part| words.contains(part)));
    let has_code = |known: &[&str]| codes.iter().any(|code| known.contains(&code.as_str()));
    match status {
        Some(402) => RefusalKind::QuotaExceeded,
        Some(413) => RefusalKind::ContextTooLong,
        Some(401 | 403 | 404 | 429) | None if mentions(NO_QUOTA) => RefusalKind::QuotaExceeded,
        Some(403) if mentions(FILTERED) => RefusalKind::Filtered,
        Some(401 | 403 | 404) => RefusalKind::Denied,
        Some(429) if mentions(NEVER_FITS) => RefusalKind::ContextTooLong,
        Some(429) => RefusalKind::Limited,
        _ if mentions(TOO_LONG) || has_code(TOO_LONG_CODES) => RefusalKind::ContextTooLong,
        Some(400 | 422) | None if mentions(FILTERED) => RefusalKind::Filtered,
        Some(400 | 422) if mentions(NO_QUOTA) => RefusalKind::QuotaExceeded,
        Some(400 | 503) | None if mentions(LIMITED) => RefusalKind::Limited,
        Some(408 | 409 | 425 | 500..) => RefusalKind::Unavailable,
        Some(400 | 422) | None if mentions(DENIED) => RefusalKind::Denied,
        Some(400 | 422) => RefusalKind::BadRequest,
        None if words.contains("invalid_request") => RefusalKind::BadRequest,
        Some(_) => RefusalKind::Denied,
        None => RefusalKind::Unavailable,
    }
}

/// Returns the codes in an error, in lower case.
fn codes_of(error: &Value) -> Vec<String> {
    let mut codes = Vec::new();
    add_codes(error, 0, &mut codes);
    codes
}

fn add_codes(value: &Value, level: usize, codes: &mut Vec<String>) {
    const MAX_CODES: usize = 32;
    let parts: Vec<(&str, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(key, value)| (key.as_str(), value)).collect(),
        Value::Array(items) => items.iter().map(|item| ("", item)).collect(),
        _ => return,
    };
    for (key, part) in parts {
        match part {
            _ if level > MAX_LEVELS || codes.len() >= MAX_CODES => return,
            Value::String(code) if CODE_KEYS.contains(&key) => codes.push(code.to_lowercase()),
            Value::Number(code) if CODE_KEYS.contains(&key) => codes.push(code.to_string()),
            part => add_codes(part, level + 1, codes),
        }
    }
}

/// Returns the delay that an error requests, as Gemini does: `{"retryDelay": "34.07s"}`.
fn retry_delay_ms(error: &Value, level: usize) -> Option<u64> {
    let parts: Vec<&Value> = match error {
        _ if level > MAX_LEVELS => return None,
        Value::Object(members) => {
            let delay = members.get("retryDelay").and_then(Value::as_str);
            let seconds: Option<f64> = delay.and_then(|delay| delay.strip_suffix('s')?.parse().ok());
            if let Some(seconds) = seconds.filter(|seconds| (0.0..1e9).contains(seconds)) {
                #[expect(clippy::cast_sign_loss, reason = "the range is checked")]
                return Some((seconds * 1000.0) as u64);
            }
            members.values().collect()
        }
        Value::Array(items) => items.iter().collect(),
        _ => return None,
    };
    parts.into_iter().find_map(|part| retry_delay_ms(part, level + 1))
}

fn shown(text: &str) -> String {
    shortened(&without_hidden(text), MAX_SHOWN_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_sorted() {
        use RefusalKind::{
            BadRequest, ContextTooLong, Denied, Filtered, Limited, QuotaExceeded, Unavailable,
        };
        for (status, body, kind) in [
            (401, "{}", Denied),
            (403, "no", Denied),
            (404, r#"{"error":{"message":"model not found"}}"#, Denied),
            (400, r#"{"error":{"message":"x","code":"unsupported_parameter"}}"#, Denied),
            (400, r#"{"error":{"message":"API key not valid.","status":"INVALID_ARGUMENT"}}"#, Denied),
            (400, r#"{"error":{"message":"bad tool_choice"}}"#, BadRequest),
            (422, r#"{"detail":"x"}"#, BadRequest),
            (413, "", ContextTooLong),
            (400, r#"{"error":{"code":"content_filter","message":"x"}}"#, Filtered),
            (400, r#"{"code":"data_inspection_failed","message":"x"}"#, Filtered),
            (403, r#"{"error":{"message":"your input was flagged"}}"#, Filtered),
            (402, r#"{"error":{"message":"Insufficient Balance"}}"#, QuotaExceeded),
            (429, r#"{"error":{"code":"insufficient_quota","message":"x"}}"#, QuotaExceeded),
            (429, r#"{"error":{"type":"exceeded_current_quota_error","message":"x"}}"#, QuotaExceeded),
            (400, r#"{"error":{"message":"Your credit balance is too low"}}"#, QuotaExceeded),
            (403, r#"{"error":"your team has used all available credits"}"#, QuotaExceeded),
            (429, "slow down", Limited),
            (
                429,
                r#"{"error":{"status":"RESOURCE_EXHAUSTED","message":"quota metric input_token_count"}}"#,
                Limited,
            ),
            (400, r#"{"__type":"ThrottlingException","message":"x"}"#, Limited),
            (408, "", Unavailable),
            (500, "\u{1b}[31mboom", Unavailable),
            (503, r#"{"error":{"type":"unavailable_error","message":"Loading model"}}"#, Unavailable),
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

    /// Errors of servers for prompts that are too long: status, code, words.
    #[test]
    fn prompts_that_are_too_long_are_recognised() {
        for (status, code, words) in [
            (400, "context_length_exceeded", "x"),
            (500, "context_length_exceeded", "x"),
            (400, "exceed_context_size_error", "x"),
            (400, "model_max_prompt_tokens_exceeded", "x"),
            (400, "1261", "x"),
            (400, "", "prompt is too long: 9 tokens > 8 maximum"),
            (400, "", "input length and `max_tokens` exceed context limit: 9 + 8 > 10"),
            (400, "", "The input token count (9) exceeds the maximum number of tokens allowed (8)"),
            (400, "", "This model's maximum context length is 8192 tokens. However, you requested 9000"),
            (400, "", "This model's maximum prompt length is 10 but the request contains 12 tokens"),
            (400, "", "prompt token count of 12 exceeds the limit of 10"),
            (400, "", "Invalid request: Your request exceeded model token limit: 8 (requested: 9)"),
            (400, "", "Prompt exceeds max length"),
            (400, "invalid_parameter_error", "Range of input length should be [1, 10]"),
            (
                400,
                "",
                "The number of tokens to keep from the initial prompt is greater than the context length",
            ),
            (400, "", "the request exceeds the available context size, try increasing it"),
            (422, "", "`inputs` tokens + `max_new_tokens` must be <= 10. Given: 12 `inputs` tokens"),
            (400, "", "The decoder prompt (length 9) is longer than the maximum model length of 8"),
            (400, "", "Prompt contains 9 tokens and 0 draft tokens, too large for model with 8"),
            (400, "", "too many tokens: total number of tokens in the prompt cannot exceed 8"),
            (400, "ValidationException", "Input is too long for requested model."),
            (400, "", "Please reduce the length of the messages or completion."),
            (400, "", "Total tokens of image and text exceed max message tokens"),
            (400, "", "prompt too long; exceeded max context length by 4 tokens"),
            (
                429,
                "rate_limit_exceeded",
                "Request too large for gpt-4 on tokens per min (TPM): Limit 8, Requested 9",
            ),
            (413, "", "Request Entity Too Large"),
            (500, "", "context window of this model exceeded"),
        ] {
            let body = serde_json::json!({"error": {"code": code, "message": words}}).to_string();
            let refusal = refusal_of_status(status, None, body.as_bytes());
            assert_eq!(refusal.kind, RefusalKind::ContextTooLong, "{status} {body}");
        }
    }

    #[test]
    fn delays_in_errors_are_read() {
        for (body, expected) in [
            (r#"[{"error":{"code":429,"details":[{"retryDelay":"34.07s"}]}}]"#, Some(34_070)),
            (r#"{"error":{"details":[{"retryDelay":"soon"}]}}"#, None),
            ("{}", None),
        ] {
            assert_eq!(refusal_of_status(429, None, body.as_bytes()).retry_after_ms, expected, "{body}");
            assert_eq!(refusal_of_status(429, Some(5), body.as_bytes()).retry_after_ms, Some(5), "{body}");
        }
    }
}
