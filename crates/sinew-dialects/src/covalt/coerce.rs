//! Conversion table of the typed side sockets. The data spine has no types.

use serde_json::{Value, json};

use crate::js;

/// The type of values on the data spine.
pub(super) const DATA: &str = "data";

/// Structural types: wires between them carry no data.
const STRUCTURAL_TYPES: [&str; 2] = ["agent", "tools"];
/// Configuration types: wires between them carry the value of one parameter, on either channel.
const CONFIGURATION_TYPES: [&str; 7] = ["model", "string", "float", "int", "boolean", "json", "messages"];

/// Returns whether the socket type is structural.
pub(super) fn is_structural(kind: &str) -> bool {
    STRUCTURAL_TYPES.contains(&kind)
}

/// Returns whether the socket type is a configuration type.
pub(super) fn is_configuration(kind: &str) -> bool {
    CONFIGURATION_TYPES.contains(&kind)
}

/// Returns whether a socket of one type may be wired to one of another.
pub(super) fn may(from: &str, to: &str) -> bool {
    from == to
        || from == DATA
        || to == DATA
        || matches!(
            (from, to),
            ("int", "float")
                | ("int" | "float" | "boolean" | "json" | "messages", "string")
                | ("string", "messages")
                | ("agent", "tools")
        )
}

/// Converts the value to the other type; `None` if the table does not define the conversion.
pub(super) fn coerce(from: &str, to: &str, value: &Value) -> Option<Value> {
    if !may(from, to) {
        return None;
    }
    Some(match (from, to) {
        ("int", "float") => value.as_f64().map_or_else(|| value.clone(), |float| json!(float)),
        ("int" | "boolean", "string") => json!(js::string(value)),
        ("float", "string") => json!(value.to_string()),
        ("json", "string") => json!(js::json_text(value)),
        ("string", "messages") => json!([{ "role": "user", "content": value }]),
        ("messages", "string") => {
            let last = value.as_array().and_then(|items| items.last());
            json!(last.and_then(|message| message.get("content")).map(js::string).unwrap_or_default())
        }
        _ => value.clone(),
    })
}

/// Formats the rejection of a wire that is not in the table.
pub(super) fn refusal(from: &str, to: &str, edge: &str) -> String {
    format!("no implicit coercion from '{from}' to '{to}' on edge {edge}")
}
