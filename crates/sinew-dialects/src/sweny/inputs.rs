//! The contract of an execution's input: types, defaults, messages.

use indexmap::IndexMap;
use serde_json::{Map, Value, json};
use sinew_source::{Diagnostic, Node};

use super::model::InputField;
use super::shape;
use crate::js;

/// An error of an input: the field and the expectation.
pub(super) type Problem = (String, String);

/// Returns the input with its defaults, or all its errors.
pub(super) fn check(
    inputs: Option<&IndexMap<String, InputField>>,
    input: &Value,
) -> Result<Value, Vec<Problem>> {
    let Value::Object(given) = input else {
        return Err(vec![("(root)".to_owned(), "input must be a JSON object".to_owned())]);
    };
    let mut all = given.clone();
    let mut problems = Vec::new();
    for (name, field) in inputs.into_iter().flatten() {
        match all.get(name).filter(|value| !value.is_null()) {
            Some(value) => {
                let problem = mismatch(&field.kind, value).or_else(|| not_a_word(field, value));
                problems.extend(problem.map(|problem| (name.clone(), problem)));
            }
            None => match &field.default {
                Some(default) => {
                    all.insert(name.clone(), default.clone());
                }
                None if field.required => {
                    problems.push((name.clone(), "required but not provided".to_owned()));
                }
                None => {}
            },
        }
    }
    if problems.is_empty() { Ok(Value::Object(all)) } else { Err(problems) }
}

/// Returns the reason why a value does not have a type; `None` if it does.
fn mismatch(kind: &str, value: &Value) -> Option<String> {
    let seen = js::type_name(value);
    match kind {
        "string" => (!value.is_string()).then(|| format!("must be a string (got {seen})")),
        "number" => (!value.is_number()).then(|| format!("must be a finite number (got {seen})")),
        "boolean" => (!value.is_boolean()).then(|| format!("must be a boolean (got {seen})")),
        // The form reports other types.
        kind if kind != "string[]" => None,
        _ => match value.as_array() {
            None => Some(format!("must be an array of strings (got {seen})")),
            Some(items) => items.iter().position(|item| !item.is_string()).map(|n| {
                format!("must be an array of strings (element {n} is {})", js::type_name(&items[n]))
            }),
        },
    }
}

fn not_a_word(field: &InputField, value: &Value) -> Option<String> {
    let words = field.words.as_ref()?;
    let known = words.iter().any(|word| js::equal(word, value));
    let words: Vec<String> = words.iter().map(js::json_text).collect();
    (!known).then(|| format!("must be one of: {}", words.join(", ")))
}

/// Checks the declarations themselves.
pub(super) fn check_declared(
    inputs: &IndexMap<String, InputField>,
    root: &Node,
    found: &mut Vec<Diagnostic>,
) {
    for (name, field) in inputs {
        let node = root.get("inputs").and_then(|inputs| inputs.get(name));
        let span = |key: &str| {
            let member = node.and_then(|node| node.get(key));
            member.or(node).map(|node| node.span).unwrap_or_default()
        };
        let mut report = |key: &str, text: &str| {
            found.push(shape::error(span(key), &format!("inputs.{name}"), text));
        };
        if field.required && field.default.is_some() {
            report("default", "required: true and a default exclude each other");
        }
        if let Some(problem) = field.default.as_ref().and_then(|default| mismatch(&field.kind, default)) {
            report("default", &format!("default {problem}"));
        } else if let Some(problem) = field.default.as_ref().and_then(|default| not_a_word(field, default)) {
            report("default", &format!("default {problem}"));
        }
        for word in field.words.iter().flatten() {
            if let Some(problem) = mismatch(&field.kind, word) {
                report("enum", &format!("enum {problem}"));
            }
        }
    }
}

/// Returns the contract as JSON Schema, for callers. Optional fields may be null, which counts as
/// absent.
pub(super) fn json_schema(inputs: &IndexMap<String, InputField>) -> Value {
    let property = |field: &InputField| {
        let mut schema = match field.kind.as_str() {
            "string[]" => json!({ "type": ["array"], "items": { "type": "string" } }),
            kind => json!({ "type": [kind] }),
        };
        if let Some(types) = schema["type"].as_array_mut().filter(|_| !field.required) {
            types.push(json!("null"));
        }
        if let Some(words) = &field.words {
            let mut words = words.clone();
            words.extend((!field.required).then_some(Value::Null));
            schema["enum"] = Value::Array(words);
        }
        if let Some(text) = &field.description {
            schema["description"] = json!(text);
        }
        if let Some(default) = &field.default {
            schema["default"] = default.clone();
        }
        schema
    };
    let properties: Map<String, Value> =
        inputs.iter().map(|(name, field)| (name.clone(), property(field))).collect();
    let required: Vec<&String> =
        inputs.iter().filter(|(_, field)| field.required).map(|(name, _)| name).collect();
    json!({ "type": "object", "properties": properties, "required": required })
}
