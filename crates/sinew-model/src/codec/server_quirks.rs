//! What a server does not accept in requests, learned from its refusals.
//!
//! Servers of one interface differ in optional members, and an address does not show which of them a
//! server accepts. The first request has all members; a refusal that names one changes the next request.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::spec::Provider;

/// Statuses of refusals because of the content of a request.
const STATUSES: [u16; 2] = [400, 422];
/// Words by which servers report that a member is not accepted, in lower case.
const NOT_ACCEPTED: [&str; 16] = [
    "unsupported",
    "not supported",
    "not support",
    "unknown",
    "unrecognized",
    "unrecognised",
    "unexpected",
    "not permitted",
    "not allowed",
    "not known",
    "not taken",
    "extra_forbidden",
    "additional properties",
    "additional property",
    "should not",
    "must not",
];
/// Members of an assistant message, of a call and of its function in the interface of OpenAI.
const MESSAGE_MEMBERS: [&str; 5] = ["role", "content", "tool_calls", "name", "refusal"];
const CALL_MEMBERS: [&str; 3] = ["id", "type", "function"];
const FUNCTION_MEMBERS: [&str; 2] = ["name", "arguments"];
/// Signature that Gemini accepts for calls of other models.
const PLACEHOLDER_SIGNATURE: &str = "skip_thought_signature_validator";

/// What a server does not accept in requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerQuirks(BTreeSet<ServerQuirk>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ServerQuirk {
    /// The limit of output tokens has the other one of its two names.
    OtherLimitName,
    NoStreamOptions,
    NoParallelSetting,
    NoCacheKey,
    /// Parts of a request have no cache breakpoints.
    NoCacheMarks,
    NoStrictMode,
    /// Messages have only the members of the interface, also if the server itself added others.
    NoForeignMembers,
    /// Calls need a signature, also those of other models.
    NeedsSignatures,
}

const ALL: [ServerQuirk; 8] = [
    ServerQuirk::OtherLimitName,
    ServerQuirk::NoStreamOptions,
    ServerQuirk::NoParallelSetting,
    ServerQuirk::NoCacheKey,
    ServerQuirk::NoCacheMarks,
    ServerQuirk::NoStrictMode,
    ServerQuirk::NoForeignMembers,
    ServerQuirk::NeedsSignatures,
];

impl ServerQuirks {
    /// Adds what the refusal of a request reports; `None` if it reports nothing new.
    pub fn learned_from(
        &self,
        provider: Provider,
        request: &[u8],
        (status, refusal): (u16, &[u8]),
    ) -> Option<Self> {
        if !STATUSES.contains(&status) {
            return None;
        }
        let words = String::from_utf8_lossy(refusal).to_lowercase();
        let mut request: Value = serde_json::from_slice(request).ok()?;
        for quirk in ALL.into_iter().filter(|quirk| !self.0.contains(quirk)) {
            // A quirk that does not change the request is not the reason.
            if quirk.is_reported(&request, &words) && quirk.apply(provider, &mut request) {
                let mut quirks = self.clone();
                quirks.0.insert(quirk);
                return Some(quirks);
            }
        }
        None
    }

    /// Changes the body of a request.
    pub(super) fn apply(&self, provider: Provider, body: &mut Value) {
        for quirk in &self.0 {
            quirk.apply(provider, body);
        }
    }
}

impl ServerQuirk {
    fn is_reported(self, request: &Value, words: &str) -> bool {
        let is_rejected = || NOT_ACCEPTED.iter().any(|known| words.contains(known));
        match self {
            // Servers name the other one, or reject this one.
            Self::OtherLimitName => {
                words.contains("max_completion_tokens")
                    && (request.get("max_tokens").is_some() || is_rejected())
            }
            Self::NoStreamOptions => words.contains("stream_options") || words.contains("include_usage"),
            Self::NoParallelSetting => words.contains("parallel_tool_calls") && is_rejected(),
            Self::NoCacheKey => words.contains("prompt_cache_key") && is_rejected(),
            Self::NoCacheMarks => words.contains("cache_control") && is_rejected(),
            Self::NoStrictMode => words.contains("strict") && is_rejected(),
            Self::NoForeignMembers => {
                is_rejected() && foreign_members(request).iter().any(|name| words.contains(name))
            }
            Self::NeedsSignatures => {
                words.contains("thought_signature") || words.contains("thought signature")
            }
        }
    }

    /// Changes the body of a request. Returns whether it changed.
    fn apply(self, provider: Provider, body: &mut Value) -> bool {
        let Some(members) = body.as_object_mut() else { return false };
        match self {
            Self::OtherLimitName => swap_limit(members),
            Self::NoStreamOptions => members.shift_remove("stream_options").is_some(),
            Self::NoParallelSetting => members.shift_remove("parallel_tool_calls").is_some(),
            Self::NoCacheKey => members.shift_remove("prompt_cache_key").is_some(),
            Self::NoCacheMarks => remove_cache_marks(members),
            Self::NoStrictMode => remove_strict(members),
            Self::NoForeignMembers => provider == Provider::OpenAi && remove_foreign(members),
            Self::NeedsSignatures => match provider {
                Provider::Gemini => sign_parts(members),
                Provider::OpenAi => sign_calls(members),
                Provider::Anthropic | Provider::Script => false,
            },
        }
    }
}

fn swap_limit(members: &mut Map<String, Value>) -> bool {
    const NAMES: [&str; 2] = ["max_tokens", "max_completion_tokens"];
    let (before, after) = match NAMES.map(|name| members.contains_key(name)) {
        [true, false] => (NAMES[0], NAMES[1]),
        [false, true] => (NAMES[1], NAMES[0]),
        _ => return false,
    };
    let limit = members.shift_remove(before);
    members.extend(limit.map(|limit| (after.to_owned(), limit)));
    true
}

/// Removes the breakpoints of the prompt cache from tools, system texts and contents of messages.
fn remove_cache_marks(members: &mut Map<String, Value>) -> bool {
    let mut is_changed = false;
    for key in ["tools", "system", "messages"] {
        for part in members.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
            let contents = match part.get_mut("content") {
                Some(Value::Array(blocks)) => blocks.iter_mut().collect(),
                _ => vec![part],
            };
            for part in contents.into_iter().filter_map(Value::as_object_mut) {
                is_changed |= part.shift_remove("cache_control").is_some();
            }
        }
    }
    is_changed
}

fn remove_strict(members: &mut Map<String, Value>) -> bool {
    let mut is_changed = false;
    let mut remove = |place: Option<&mut Value>| {
        let inner = place.and_then(Value::as_object_mut);
        is_changed |= inner.and_then(|inner| inner.shift_remove("strict")).is_some();
    };
    remove(members.get_mut("response_format").and_then(|form| form.get_mut("json_schema")));
    for tool in members.get_mut("tools").and_then(Value::as_array_mut).into_iter().flatten() {
        remove(tool.get_mut("function"));
    }
    is_changed
}

fn assistant_messages(members: &mut Map<String, Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let messages = members.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten();
    messages.filter_map(Value::as_object_mut).filter(|message| message["role"] == "assistant")
}

fn calls_of(message: &mut Map<String, Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten();
    calls.filter_map(Value::as_object_mut)
}

/// Returns the members of messages that are not part of the interface, in lower case.
fn foreign_members(request: &Value) -> BTreeSet<String> {
    let mut members = request.as_object().cloned().unwrap_or_default();
    let mut names = BTreeSet::new();
    let mut add = |members: &Map<String, Value>, known: &[&str]| {
        names.extend(
            members.keys().filter(|key| !known.contains(&key.as_str())).map(|key| key.to_lowercase()),
        );
    };
    for message in assistant_messages(&mut members) {
        add(message, &MESSAGE_MEMBERS);
        for call in calls_of(message) {
            add(call, &CALL_MEMBERS);
            call.get("function").and_then(Value::as_object).iter().for_each(|it| add(it, &FUNCTION_MEMBERS));
        }
    }
    names
}

fn remove_foreign(members: &mut Map<String, Value>) -> bool {
    let mut is_changed = false;
    let mut keep = |members: &mut Map<String, Value>, known: &[&str]| {
        let before = members.len();
        members.retain(|key, _| known.contains(&key.as_str()));
        is_changed |= members.len() != before;
    };
    for message in assistant_messages(members) {
        keep(message, &MESSAGE_MEMBERS);
        for call in calls_of(message) {
            keep(call, &CALL_MEMBERS);
            if let Some(function) = call.get_mut("function").and_then(Value::as_object_mut) {
                keep(function, &FUNCTION_MEMBERS);
            }
        }
    }
    is_changed
}

/// Adds a signature to the first call of each content without one.
fn sign_parts(members: &mut Map<String, Value>) -> bool {
    let mut is_changed = false;
    for content in members.get_mut("contents").and_then(Value::as_array_mut).into_iter().flatten() {
        let parts = content.get_mut("parts").and_then(Value::as_array_mut).into_iter().flatten();
        let first = parts.filter_map(Value::as_object_mut).find(|part| part.contains_key("functionCall"));
        if let Some(part) = first.filter(|part| !part.contains_key("thoughtSignature")) {
            part.insert("thoughtSignature".to_owned(), PLACEHOLDER_SIGNATURE.into());
            is_changed = true;
        }
    }
    is_changed
}

/// Adds a signature to the first call of each message without one, for Gemini behind the interface of
/// OpenAI.
fn sign_calls(members: &mut Map<String, Value>) -> bool {
    let mut is_changed = false;
    for message in assistant_messages(members) {
        let first = calls_of(message).next();
        if let Some(call) = first.filter(|call| !call.contains_key("extra_content")) {
            let signature = json!({"google": {"thought_signature": PLACEHOLDER_SIGNATURE}});
            call.insert("extra_content".to_owned(), signature);
            is_changed = true;
        }
    }
    is_changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_change_the_next_request() {
        let message = json!({"role": "assistant", "content": null, "reasoning": "hm", "tool_calls": [
            {"id": "a", "type": "function", "extra_content": {}, "function": {"name": "f", "arguments": "{}"}},
        ]});
        let request = json!({
            "max_tokens": 9, "stream_options": {}, "parallel_tool_calls": false, "prompt_cache_key": "k",
            "messages": [{"role": "user", "content": "x", "odd": 1}, message],
            "tools": [{"type": "function", "function": {"name": "f", "strict": true}}],
        });
        let plain = json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        for (status, words, changed) in [
            (
                400,
                "max_tokens is not taken by this model, send max_completion_tokens",
                json!({"max_tokens": null, "max_completion_tokens": 9}),
            ),
            (422, "stream_options is not known", json!({"stream_options": null})),
            (400, "Unsupported parameter: 'parallel_tool_calls'", json!({"parallel_tool_calls": null})),
            (422, "body.prompt_cache_key: Extra inputs are not permitted", json!({"prompt_cache_key": null})),
            (
                400,
                "tools[0].function.strict is not supported",
                json!({"tools": [{"type": "function", "function": {"name": "f"}}]}),
            ),
            (
                400,
                "'messages.1' : property 'reasoning' is unsupported",
                json!({"messages": [request["messages"][0], {"role": "assistant", "content": null, "tool_calls": [plain]}]}),
            ),
            (400, "max_tokens is too large: 9. This model supports at most 8", Value::Null),
            (400, "the temperature is not supported", Value::Null),
            (500, "stream_options is not known", Value::Null),
            (429, "stream_options is not known", Value::Null),
        ] {
            let body = request.to_string();
            let answer = json!({"error": {"message": words}}).to_string();
            let quirks = ServerQuirks::default();
            let learned = quirks.learned_from(Provider::OpenAi, body.as_bytes(), (status, answer.as_bytes()));
            let mut seen = request.clone();
            if let Some(learned) = &learned {
                learned.apply(Provider::OpenAi, &mut seen);
                let again = seen.to_string();
                let more =
                    learned.learned_from(Provider::OpenAi, again.as_bytes(), (status, answer.as_bytes()));
                assert_eq!(more, None, "the same refusal teaches nothing more: {words}");
            }
            let mut expected = request.clone();
            for (key, value) in changed.as_object().into_iter().flatten() {
                match value {
                    Value::Null => drop(expected.as_object_mut().unwrap().shift_remove(key)),
                    value => expected[key] = value.clone(),
                }
            }
            assert_eq!((seen, learned.is_some()), (expected, changed.is_object()), "{words}");
        }
    }

    #[test]
    fn cache_marks_are_removed() {
        let mark = json!({"type": "ephemeral"});
        let request = json!({
            "system": [{"type": "text", "text": "x", "cache_control": mark}],
            "tools": [{"name": "f"}, {"name": "g", "cache_control": mark}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": mark}]}],
        });
        let answer = br#"{"message":"messages.0.content.0.cache_control: Extra inputs are not permitted"}"#;
        let learned = ServerQuirks::default()
            .learned_from(Provider::Anthropic, request.to_string().as_bytes(), (400, answer))
            .unwrap();
        let mut body = request;
        learned.apply(Provider::Anthropic, &mut body);
        assert!(!body.to_string().contains("cache_control"), "{body:#}");
    }

    #[test]
    fn calls_of_other_models_are_signed_if_gemini_requires_it() {
        let answer =
            br#"{"error":{"message":"Function call is missing a thought_signature in functionCall parts"}}"#;
        let call = json!({"functionCall": {"name": "f", "args": {}}});
        let request = json!({"contents": [{"role": "model", "parts": [{"text": "x"}, call, call]}]});
        let learned = ServerQuirks::default()
            .learned_from(Provider::Gemini, request.to_string().as_bytes(), (400, answer))
            .unwrap();
        let mut body = request;
        learned.apply(Provider::Gemini, &mut body);
        assert_eq!(body["contents"][0]["parts"][1]["thoughtSignature"], PLACEHOLDER_SIGNATURE);
        assert_eq!(body["contents"][0]["parts"][2], call);
        let mut chat = json!({"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]});
        learned.apply(Provider::OpenAi, &mut chat);
        let signature = chat.pointer("/messages/0/tool_calls/0/extra_content/google/thought_signature");
        assert_eq!(signature, Some(&json!(PLACEHOLDER_SIGNATURE)));
    }
}
