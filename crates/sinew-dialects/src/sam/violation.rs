//! Schema violations in the wording that agents of this dialect expect.

use serde_json::Value;
use sinew_script::python_repr;
use sinew_source::{Schema, Violation};

/// Returns the violations of a value, outermost first.
///
/// The source engine sends these messages to agents for self-correction. Unlike other diagnostics,
/// they repeat (short) values, because they go to the agent that sent them.
pub fn violations(schema: &Schema, schema_source: &Value, value: &Value) -> Vec<String> {
    let Err(mut found) = schema.check(value) else {
        return Vec::new();
    };
    found.sort_by_key(|violation| violation.pointer.matches('/').count());
    found.iter().map(|violation| worded(violation, schema_source, value)).collect()
}

/// Returns messages that do not repeat the value, for faults, which appear in logs and events.
/// Outermost first.
pub(super) fn masked_texts(mut found: Vec<Violation>) -> Vec<String> {
    found.sort_by_key(|violation| violation.pointer.matches('/').count());
    found.iter().map(|violation| at(violation, &violation.message)).collect()
}

fn worded(violation: &Violation, schema: &Value, value: &Value) -> String {
    let message = message(violation, schema, value).unwrap_or_else(|| violation.message.clone());
    at(violation, &message)
}

fn at(violation: &Violation, message: &str) -> String {
    let path =
        violation.pointer.trim_start_matches('/').replace('/', ".").replace("~1", "/").replace("~0", "~");
    let path = if path.is_empty() { "root" } else { &path };
    format!("Validation error at '{path}': {message}")
}

fn message(violation: &Violation, schema: &Value, value: &Value) -> Option<String> {
    let rule = schema.pointer(&violation.schema_pointer)?;
    let value = value.pointer(&violation.pointer)?;
    let shown = python_repr(value);
    if shown.len() > LONGEST {
        return None;
    }
    Some(match violation.keyword.as_str() {
        "type" => match rule {
            Value::Array(types) => {
                let types: Vec<String> = types.iter().map(python_repr).collect();
                format!("{shown} is not of type {}", types.join(", "))
            }
            one => format!("{shown} is not of type {}", python_repr(one)),
        },
        "enum" => format!("{shown} is not one of {}", python_repr(rule)),
        "const" => format!("{} was expected", python_repr(rule)),
        "required" => {
            let name = rule.as_array()?.iter().filter_map(Value::as_str).find(|name| {
                violation.message.contains(&format!("'{name}'"))
                    || violation.message.contains(&format!("\"{name}\""))
            })?;
            format!("'{name}' is a required property")
        }
        "minimum" => format!("{shown} is less than the minimum of {rule}"),
        "maximum" => format!("{shown} is greater than the maximum of {rule}"),
        "minLength" | "minItems" if rule.as_u64() == Some(1) => format!("{shown} should be non-empty"),
        "minLength" | "minItems" => format!("{shown} is too short"),
        "maxLength" | "maxItems" => format!("{shown} is too long"),
        "pattern" => format!("{shown} does not match {}", python_repr(rule)),
        _ => return None,
    })
}

/// Maximum length of a repeated value.
const LONGEST: usize = 200;
