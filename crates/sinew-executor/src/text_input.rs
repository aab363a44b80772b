//! The input of a workflow in a message of text: clients that send only text can call a workflow whose
//! input is an object.

use serde_json::{Map, Value, json};
use sinew_protocol::card::TEXT_INPUT;
use sinew_source::Schema;

/// Maximum number of properties named in an error.
const MAX_NAMED: usize = 20;

/// Returns the input for a text: the first form that the schema accepts of
///
/// 1. the JSON that the text is, if it is an object or an array,
/// 2. the text as the property that the author of the workflow named,
/// 3. `{"text": TEXT}`,
/// 4. the text itself,
/// 5. the text as the only string property that is required, or the only string property.
///
/// Without a schema it is the JSON, or `{"text": TEXT}`. The error describes the input.
pub(crate) fn input_of_text(text: &str, schema: Option<&Value>) -> Result<Value, String> {
    let json: Option<Value> = serde_json::from_str(text.trim()).ok().filter(is_structured);
    let as_member = json!({ "text": text });
    let Some(schema) = schema.filter(|schema| !schema.is_null()) else {
        return Ok(json.unwrap_or(as_member));
    };
    // The start of the execution reports a schema that cannot be compiled.
    let Ok(compiled) = Schema::compile(schema) else { return Ok(json.unwrap_or(as_member)) };
    let property = |name: &str| json!({ name: text });
    let named = schema[TEXT_INPUT].as_str().map(property);
    let only = property_for_text(schema).map(property);
    let forms = [json, named, Some(as_member), Some(text.into()), only];
    let fitting = forms.into_iter().flatten().find(|form| compiled.check(form).is_ok());
    fitting.ok_or_else(|| format!("the text is not the input of this workflow; {}", description_of(schema)))
}

fn is_structured(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

/// Returns the property that a plain text fills, if it is clear which one.
fn property_for_text(schema: &Value) -> Option<&str> {
    let is_string = |(_, property): &(&String, &Value)| property["type"] == "string";
    let strings: Vec<&str> =
        properties(schema)?.iter().filter(is_string).map(|(name, _)| name.as_str()).collect();
    let is_required = |name: &&str| required(schema).any(|required| required == *name);
    let needed: Vec<&str> = strings.iter().copied().filter(is_required).collect();
    match (needed.as_slice(), strings.as_slice()) {
        ([one], _) | ([], [one]) => Some(one),
        _ => None,
    }
}

/// Describes the input for the sender: its properties with type, required ones first.
fn description_of(schema: &Value) -> String {
    let Some(properties) = properties(schema).filter(|properties| !properties.is_empty()) else {
        return "send a data part with its input, or the input as JSON".to_owned();
    };
    let is_required = |name: &str| required(schema).any(|required| required == name);
    let mut named: Vec<(bool, &String, &Value)> =
        properties.iter().map(|(name, property)| (is_required(name), name, property)).collect();
    named.sort_by_key(|(is_required, ..)| !is_required);
    let shown = named.iter().take(MAX_NAMED).map(|(is_required, name, property)| {
        let kind = property["type"].as_str().unwrap_or("any");
        format!("{name} ({kind}{})", if *is_required { ", required" } else { "" })
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    let more = if named.len() > MAX_NAMED { ", …" } else { "" };
    format!("send a data part, or JSON, with the properties {shown}{more}")
}

fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema["properties"].as_object()
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_inputs() {
        let name = json!({"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
                          "required": ["name"]});
        let text =
            json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
        let optional = json!({"type": "object", "properties": {"topic": {"type": "string"}},
                              "additionalProperties": false});
        let named = json!({"type": "object", "x-text-input": "b", "properties": {"text": {"type": "string"},
                           "b": {"type": "string"}}});
        let string = json!({"type": "string"});
        let two = json!({"type": "object", "required": ["a", "b"],
                         "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
        for (given, schema, expected) in [
            ("hi", None, Some(json!({"text": "hi"}))),
            ("{\"n\": 1}", None, Some(json!({"n": 1}))),
            ("7", None, Some(json!({"text": "7"}))),
            ("{\"name\": \"Ada\"}", Some(&name), Some(json!({"name": "Ada"}))),
            (" {\"name\": \"Ada\", \"n\": 2}\n", Some(&name), Some(json!({"name": "Ada", "n": 2}))),
            ("Ada", Some(&name), Some(json!({"name": "Ada"}))),
            ("{\"n\": 1}", Some(&name), Some(json!({"name": "{\"n\": 1}"}))),
            ("{\"name\": \"Ada\"}", Some(&text), Some(json!({"text": "{\"name\": \"Ada\"}"}))),
            ("rust", Some(&optional), Some(json!({"topic": "rust"}))),
            ("rust", Some(&named), Some(json!({"b": "rust"}))),
            ("{\"text\": \"x\"}", Some(&named), Some(json!({"text": "x"}))),
            ("rust", Some(&string), Some(json!("rust"))),
            ("rust", Some(&two), None),
            ("{\"a\": \"x\", \"b\": \"y\"}", Some(&two), Some(json!({"a": "x", "b": "y"}))),
        ] {
            assert_eq!(input_of_text(given, schema).ok(), expected, "{given} {schema:?}");
        }
        let refused = input_of_text("rust", Some(&two)).unwrap_err();
        assert!(refused.ends_with("the properties a (string, required), b (string, required)"), "{refused}");
    }
}
