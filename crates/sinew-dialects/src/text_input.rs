//! `text_input`: the property of an input that a message of plain text fills. The input schema names
//! it, so cards and clients see it as well.

use serde_json::{Value, json};
use sinew_protocol::card::TEXT_INPUT;
use sinew_protocol::code;
use sinew_source::{Diagnostic, Span, did_you_mean};

/// Returns an input schema that names the property.
pub(crate) fn marked(schema: Option<Value>, name: Option<&str>) -> Option<Value> {
    let (Some(mut schema), Some(name)) = (schema.clone(), name) else { return schema };
    if let Some(members) = schema.as_object_mut() {
        members.insert(TEXT_INPUT.to_owned(), json!(name));
    }
    Some(schema)
}

/// Returns the reason why a text cannot fill the property.
pub(crate) fn check(schema: Option<&Value>, name: &str, at: Span) -> Option<Diagnostic> {
    let wrong = |text: String| Diagnostic::error(code::WRONG_VALUE_IN_WORKFLOW.as_str(), text).at(at);
    let properties = schema.and_then(|schema| schema["properties"].as_object());
    let Some(properties) = properties else {
        let text = format!("'text_input' is '{name}', but the workflow declares no properties of its input");
        return Some(wrong(text).hint("declare the property in the schema of the input"));
    };
    let Some(property) = properties.get(name) else {
        let error = wrong(format!("'text_input' is '{name}', which is no property of the input"));
        let near = did_you_mean(name, properties.keys().map(String::as_str));
        return Some(match near {
            Some(near) => error.hint(format!("did you mean '{near}'?")),
            None => error,
        });
    };
    let is_text = match &property["type"] {
        Value::Null => true,
        Value::Array(kinds) => kinds.contains(&json!("string")),
        kind => kind == "string",
    };
    (!is_text).then(|| wrong(format!("'text_input' is '{name}', which is no string")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_property_must_be_a_string_of_the_input() {
        let schema = json!({"properties": {"topic": {"type": "string"}, "note": {"type": ["string", "null"]},
                                           "any": {}, "n": {"type": "integer"}}});
        for (schema, name, expected) in [
            (Some(&schema), "topic", None),
            (Some(&schema), "note", None),
            (Some(&schema), "any", None),
            (Some(&schema), "n", Some("which is no string")),
            (Some(&schema), "topics", Some("which is no property of the input")),
            (None, "topic", Some("declares no properties")),
        ] {
            let found = check(schema, name, Span::default()).map(|found| found.message);
            assert_eq!(found.is_some(), expected.is_some(), "{name}: {found:?}");
            assert!(expected.is_none_or(|text| found.unwrap().contains(text)), "{name}");
        }
        let marked = marked(Some(schema.clone()), Some("topic")).unwrap();
        assert_eq!(marked[TEXT_INPUT], "topic");
        assert_eq!(super::marked(Some(schema.clone()), None), Some(schema));
    }
}
