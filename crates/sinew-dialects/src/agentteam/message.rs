//! The standard message format, and conversion from and to older formats.

use super::adapter::{ReportedWork, add_metadata};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sinew_script::python_str;

/// Fields that may contain a prompt, in search order.
const PROMPT_FIELDS: [&str; 8] =
    ["user_prompt", "message", "user_message", "user_input", "input", "query", "text", "content"];
/// Fields that may contain a trigger's message, in search order.
const TRIGGER_FIELDS: [&str; 5] = ["message", "user_message", "user_input", "text", "content"];
/// Fields that may contain the payload in outputs of older nodes, in search order.
const PAYLOAD_FIELDS: [&str; 8] =
    ["content", "response", "output", "data", "context", "functions", "response_data", "text"];

/// Fields of an agent's output that report on its work and are not metadata.
const REPORTED_FIELDS: [&str; 4] = ["token_usage", "function_calls", "parsed_json", "input"];

/// The unified message between nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StandardMessage {
    /// The payload.
    pub content: Value,
    /// All other fields.
    pub metadata: Map<String, Value>,
    /// `text`, `json` or `binary`.
    pub format_type: String,
    /// The node that produced it.
    pub source_node: Option<String>,
    /// Creation time, in RFC 3339.
    pub timestamp: Option<String>,
}

impl StandardMessage {
    /// Converts a payload of any shape: a standard message, an agent's output (`content`,
    /// `response`, `output`), an action's (`response_data`), a tool's, a memory's, or a bare value.
    pub fn adapt(payload: &Value, source_node: Option<&str>, timestamp: Option<String>) -> Self {
        let (content, mut metadata) = match payload {
            Value::Object(members) => match PAYLOAD_FIELDS.iter().find(|key| members.contains_key(**key)) {
                Some(key) => take(members, key),
                None => (payload.clone(), Map::new()),
            },
            other => (other.clone(), Map::new()),
        };
        let text = |metadata: &mut Map<String, Value>, key: &str| match metadata.remove(key) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let format = text(&mut metadata, "format_type");
        let source = text(&mut metadata, "source_node");
        let at = text(&mut metadata, "timestamp");
        let own = if content.is_string() { "text" } else { "json" };
        Self {
            format_type: format.unwrap_or_else(|| own.to_owned()),
            source_node: source.or_else(|| source_node.map(str::to_owned)),
            timestamp: at.or(timestamp),
            content,
            metadata,
        }
    }

    /// Adds `parsed_json` to the metadata if the content is JSON.
    pub(super) fn with_parsed_json(mut self) -> Self {
        if let Some(parsed) = parsed_json(&self.content) {
            self.metadata.entry("parsed_json").or_insert(parsed);
        }
        self
    }

    /// Returns the message as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "content": self.content,
            "metadata": self.metadata,
            "format_type": self.format_type,
            "source_node": self.source_node,
            "timestamp": self.timestamp,
        })
    }
}

/// Returns whether an object contains the payload of an older node in one of the usual fields.
pub(super) fn has_payload(members: &Map<String, Value>) -> bool {
    PAYLOAD_FIELDS.iter().any(|key| members.contains_key(*key))
}

/// Returns the object or list in an agent's answer: the answer itself, or JSON in its text, also in
/// a code fence.
pub(super) fn parsed_json(content: &Value) -> Option<Value> {
    match content {
        Value::Object(_) | Value::Array(_) => Some(content.clone()),
        Value::String(text) => {
            let text = text.trim();
            let fenced = text.strip_prefix("```json").or_else(|| text.strip_prefix("```"));
            let text = fenced.and_then(|rest| rest.strip_suffix("```")).map_or(text, str::trim);
            if !text.starts_with(['{', '[']) {
                return None;
            }
            serde_json::from_str(text).ok().filter(|value: &Value| value.is_object() || value.is_array())
        }
        _ => None,
    }
}

/// Completes an agent's answer of any shape with all fields that agent runners return.
///
/// Fields of the agent's own answer take precedence, then the fields of the standard message, then
/// the fields of a JSON answer. `used` is the agent's report of its work, for answers that do not
/// contain it.
pub(super) fn agent_output(payload: Value, used: &ReportedWork, id: &str, stamp: String) -> Value {
    let message = StandardMessage::adapt(&payload, Some(id), Some(stamp));
    let parsed = parsed_json(&message.content);
    let mut members = match (&parsed, &payload) {
        // An answer that is an object already has its fields.
        (Some(Value::Object(parsed)), Value::String(_)) => parsed.clone(),
        (Some(Value::Object(parsed)), Value::Object(own)) if has_payload(own) => parsed.clone(),
        _ => Map::new(),
    };
    let is_reported = |key: &str| key.starts_with('_') || REPORTED_FIELDS.contains(&key);
    let mut metadata = message.metadata;
    metadata.retain(|key, _| !is_reported(key));
    let said_format = payload.get("format_type").is_some_and(|format| !format.is_null());
    let format = if parsed.is_some() && !said_format { "json".to_owned() } else { message.format_type };
    let mut standard = json!({
        "content": message.content,
        "metadata": metadata,
        "format_type": format,
        "source_node": message.source_node,
        "timestamp": message.timestamp,
        "parsed_json": parsed,
    });
    add_metadata(&mut standard["metadata"], used);
    let mut add =
        |more: Map<String, Value>| members.extend(more.into_iter().filter(|(_, value)| !value.is_null()));
    if let Value::Object(standard) = standard {
        add(standard);
    }
    if let Some(usage) = &used.usage {
        add(Map::from_iter([("token_usage".to_owned(), usage.clone())]));
    }
    if !used.calls.is_empty() {
        add(Map::from_iter([("function_calls".to_owned(), json!(used.calls))]));
    }
    if let Value::Object(own) = payload {
        if let Some(used) = own.get("_tokens").filter(|_| !own.contains_key("token_usage")) {
            add(Map::from_iter([("token_usage".to_owned(), used.clone())]));
        }
        add(own);
    }
    Value::Object(members)
}

/// Returns the text that a Slack action sends: `message`, else `content`.
pub(super) fn slack_message(input: &Value) -> String {
    let found = ["message", "content"].iter().filter_map(|key| input.get(*key));
    found.filter_map(Value::as_str).find(|text| !text.is_empty()).unwrap_or_default().to_owned()
}

/// Returns the channel of a Slack action: `channel_override`, `channel`, the configuration,
/// `#general`.
pub(super) fn slack_channel(input: &Value, configurations: &Map<String, Value>) -> String {
    let given = ["channel_override", "channel"].iter().filter_map(|key| input.get(*key));
    let mut given = given.chain(configurations.get("channel")).filter_map(Value::as_str);
    given.find(|text| !text.is_empty()).unwrap_or("#general").to_owned()
}

fn take(members: &Map<String, Value>, key: &str) -> (Value, Map<String, Value>) {
    let mut rest: Map<String, Value> = members
        .iter()
        .filter(|(name, _)| *name != key)
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if let Some(Value::Object(own)) = rest.remove("metadata") {
        rest.extend(own);
    }
    (members.get(key).cloned().unwrap_or_default(), rest)
}

/// Returns the prompt of an agent from the values that arrived.
pub(super) fn prompt_of(input: &Value) -> String {
    match input {
        Value::String(text) => text.clone(),
        Value::Object(members) if !members.is_empty() => {
            let found = PROMPT_FIELDS.iter().filter_map(|key| members.get(*key));
            let mut found = found.filter(|value| sinew_script::python_truth(value));
            found.next().map_or_else(|| python_str(input), python_str)
        }
        _ => String::new(),
    }
}

/// Returns the message in a trigger's data.
pub(super) fn trigger_message(data: &Value) -> String {
    let text =
        |value: &Value| value.as_str().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    let direct = TRIGGER_FIELDS.iter().find_map(|key| data.get(*key).and_then(text));
    direct
        .or_else(|| data.get("event").and_then(|event| event.get("text")).and_then(text))
        .unwrap_or_default()
}

/// Formats a time in RFC 3339, from milliseconds since 1970.
pub(super) fn timestamp(ms: u64) -> String {
    let (days, rest) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = civil(days);
    let (hours, minutes, seconds) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{:03}Z", rest % 1_000)
}

/// Returns year, month and day of a day since 1970 (Hinnant's algorithm).
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + u64::from(month <= 2), month, of_year - (153 * shifted + 2) / 5 + 1)
}
