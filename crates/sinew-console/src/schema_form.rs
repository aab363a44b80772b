//! Forms from JSON Schema: a field for each simple member of an object, and JSON for everything
//! else.
//!
//! The API validates the input; a form only passes the constraints that HTML supports to the
//! browser, and converts its fields to JSON.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde_json::{Map, Number, Value};

use crate::console_error::ConsoleError;
use crate::shown_text;

/// Maximum fields of a form; an input with more members is entered as JSON.
const MAX_FIELDS: usize = 60;
/// Prefix of field names, so that no member conflicts with another field of the page.
const FIELD_PREFIX: &str = "in.";
/// Field with the entire input as JSON.
pub(crate) const JSON_FIELD: &str = "json";

/// Schema of any JSON.
const ANY_JSON: &Value = &Value::Null;

/// Returns a schema of a document, or that of any JSON if it has none.
pub(crate) fn schema_of(schema: Option<&Value>) -> &Value {
    schema.unwrap_or(ANY_JSON)
}

/// Kind of a field.
#[derive(Clone, Debug, PartialEq)]
enum FieldKind {
    Text,
    Number { is_integer: bool },
    Flag,
    Choice(Vec<Value>),
    Json,
}

/// A member of an object as a field.
#[derive(Clone, Debug)]
struct SchemaField<'a> {
    name: &'a str,
    kind: FieldKind,
    schema: &'a Value,
    is_required: bool,
}

/// Fields for a schema; `None` if it requires JSON.
fn fields(schema: &Value) -> Option<Vec<SchemaField<'_>>> {
    let members = schema.get("properties")?.as_object()?;
    let is_plain = schema["type"] == "object" && members.len() <= MAX_FIELDS;
    let combines = ["$ref", "allOf", "anyOf", "oneOf", "if"].iter().any(|key| schema.get(*key).is_some());
    if !is_plain || combines {
        return None;
    }
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let field = members.iter().map(|(name, schema)| SchemaField {
        name,
        kind: kind_of(schema),
        schema,
        is_required: required.contains(&name.as_str()),
    });
    Some(field.collect())
}

fn kind_of(schema: &Value) -> FieldKind {
    if let Some(choices) = schema["enum"].as_array().filter(|list| list.len() <= MAX_FIELDS) {
        return FieldKind::Choice(choices.clone());
    }
    match schema["type"].as_str() {
        Some("string") => FieldKind::Text,
        Some("integer") => FieldKind::Number { is_integer: true },
        Some("number") => FieldKind::Number { is_integer: false },
        Some("boolean") => FieldKind::Flag,
        _ => FieldKind::Json,
    }
}

/// The fields of a form, filled with the submitted values.
pub(crate) fn schema_fields(schema: &Value, written: &BTreeMap<String, String>) -> Markup {
    html! {
        @match fields(schema) {
            Some(fields) => @for field in &fields { (field.markup(written.get(&field.field_name()))) },
            None => label.field {
                span { "Input as JSON" }
                textarea.mono name=(JSON_FIELD) rows="10" spellcheck="false" {
                    (written.get(JSON_FIELD).map_or("{}", String::as_str))
                }
            },
        }
    }
}

/// Field values that represent an input; `None` if the schema has no fields for some of it.
pub(crate) fn written_input(schema: &Value, input: &Value) -> Option<BTreeMap<String, String>> {
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default();
    let Some(fields) = fields(schema) else {
        return Some(BTreeMap::from([(JSON_FIELD.to_owned(), pretty(input))]));
    };
    let members = input.as_object()?;
    if members.keys().any(|name| fields.iter().all(|field| field.name != name)) {
        return None;
    }
    let written = fields.iter().filter_map(|field| Some((field, members.get(field.name)?)));
    let written = written.map(|(field, value)| {
        let text = match (&field.kind, value) {
            (FieldKind::Choice(choices), value) => choices.iter().position(|one| one == value)?.to_string(),
            (FieldKind::Text, Value::String(text)) => text.clone(),
            (FieldKind::Number { .. }, Value::Number(number)) => number.to_string(),
            (FieldKind::Flag, Value::Bool(flag)) => flag.to_string(),
            (FieldKind::Json, value) => pretty(value),
            _ => return None,
        };
        Some((field.field_name(), text))
    });
    written.collect()
}

/// Reads the input from a form.
pub(crate) fn read_input(schema: &Value, written: &BTreeMap<String, String>) -> Result<Value, ConsoleError> {
    let Some(fields) = fields(schema) else {
        let text = written.get(JSON_FIELD).map_or("", |text| text.trim());
        return parse_json("the input", if text.is_empty() { "null" } else { text });
    };
    let mut input = Map::new();
    for field in fields {
        if let Some(value) = field.read(written.get(&field.field_name()).map(String::as_str))? {
            input.insert(field.name.to_owned(), value);
        }
    }
    Ok(Value::Object(input))
}

fn parse_json(name: &str, text: &str) -> Result<Value, ConsoleError> {
    serde_json::from_str(text).map_err(|error| ConsoleError::Input(format!("{name}: invalid JSON: {error}")))
}

impl SchemaField<'_> {
    fn field_name(&self) -> String {
        format!("{FIELD_PREFIX}{}", self.name)
    }

    /// Reads the value; `None` omits the member. An empty text is a value only if the member is
    /// required.
    fn read(&self, written: Option<&str>) -> Result<Option<Value>, ConsoleError> {
        let text = written.unwrap_or_default();
        let is_empty = text.trim().is_empty();
        let name = shown_text::line(self.name, 60);
        match &self.kind {
            FieldKind::Text if is_empty && !self.is_required => Ok(None),
            // Browsers submit line endings as CR LF.
            FieldKind::Text => Ok(Some(Value::String(text.replace("\r\n", "\n")))),
            _ if is_empty => Ok(None),
            FieldKind::Number { .. } => {
                let number: Number = text.trim().parse().map_err(|_| {
                    ConsoleError::Input(format!("{name}: {:?} is not a number", shown_text::line(text, 40)))
                })?;
                Ok(Some(Value::Number(number)))
            }
            FieldKind::Flag => Ok(Some(Value::Bool(text == "true"))),
            FieldKind::Choice(choices) => {
                let chosen = text.parse::<usize>().ok().and_then(|number| choices.get(number));
                chosen
                    .cloned()
                    .map(Some)
                    .ok_or_else(|| ConsoleError::Input(format!("{name}: not an allowed value")))
            }
            FieldKind::Json => parse_json(&name, text).map(Some),
        }
    }

    fn markup(&self, written: Option<&String>) -> Markup {
        let default = self.schema.get("default");
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let shown = written.cloned().or_else(|| default.map(text)).unwrap_or_default();
        let limit = |key: &str| self.schema.get(key).filter(|limit| limit.is_number()).map(Value::to_string);
        html! {
            label.field {
                span {
                    (shown_text::line(self.name, 80))
                    @if self.is_required { span.required title="required" { " *" } }
                }
                @match &self.kind {
                    FieldKind::Text => textarea name=(self.field_name()) rows="1" required[self.is_required]
                        minlength=[limit("minLength")] maxlength=[limit("maxLength")] { (shown) },
                    FieldKind::Number { is_integer } => input type="number" name=(self.field_name()) value=(shown)
                        step=(if *is_integer { "1" } else { "any" }) min=[limit("minimum")] max=[limit("maximum")] required[self.is_required];,
                    FieldKind::Flag => select name=(self.field_name()) required[self.is_required] {
                        option value="" {}
                        @for word in ["true", "false"] { option value=(word) selected[shown == word] { (word) } }
                    },
                    FieldKind::Choice(choices) => select name=(self.field_name()) required[self.is_required] {
                        option value="" {}
                        @for (number, choice) in choices.iter().enumerate() {
                            @let is_chosen = written.map_or(default == Some(choice), |written| *written == number.to_string());
                            option value=(number) selected[is_chosen] { (shown_text::value_line(choice)) }
                        }
                    },
                    FieldKind::Json => textarea.mono name=(self.field_name()) rows="4" spellcheck="false" required[self.is_required] placeholder="JSON" { (shown) },
                }
                @if let Some(description) = self.schema["description"].as_str() { span.hint { (shown_text::line(description, 300)) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn forms_become_inputs() {
        let schema = json!({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"}, "note": {"type": "string"}, "count": {"type": "integer"},
            "ratio": {"type": "number"}, "fast": {"type": "boolean"}, "size": {"enum": ["s", 2, null]},
            "lines": {"type": "array"},
        }});
        let check = |pairs: &[(&str, &str)], expected: Result<Value, &str>| {
            let seen = read_input(&schema, &written(pairs)).map_err(|error| error.to_string());
            assert_eq!(
                seen.as_ref().map_err(|error| error.split(':').next().unwrap()),
                expected.as_ref().map_err(|name| *name),
                "{pairs:?}"
            );
        };
        check(&[("in.name", "a\r\nb")], Ok(json!({"name": "a\nb"})));
        check(&[], Ok(json!({"name": ""})));
        check(
            &[
                ("in.name", ""),
                ("in.count", " 3 "),
                ("in.ratio", "0.5"),
                ("in.fast", "false"),
                ("in.size", "1"),
                ("in.lines", "[1]"),
            ],
            Ok(json!({"name": "", "count": 3, "ratio": 0.5, "fast": false, "size": 2, "lines": [1]})),
        );
        check(&[("in.size", "2")], Ok(json!({"name": "", "size": null})));
        check(&[("in.count", "three")], Err("count"));
        check(&[("in.size", "9")], Err("size"));
        check(&[("in.lines", "[1")], Err("lines"));
        // Only fields of the form are read.
        check(&[("name", "x"), ("json", "1")], Ok(json!({"name": ""})));
    }

    #[test]
    fn an_input_is_written_as_it_is_read() {
        let schema = json!({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"}, "count": {"type": "integer"}, "ratio": {"type": "number"},
            "fast": {"type": "boolean"}, "size": {"enum": ["s", 2, null]}, "lines": {"type": "array"},
        }});
        for input in [
            json!({"name": "a\nb"}),
            json!({"name": "", "count": -3, "ratio": 0.5, "fast": false, "size": null, "lines": [{"a": 1}]}),
        ] {
            let written = written_input(&schema, &input).unwrap();
            assert_eq!(read_input(&schema, &written).unwrap(), input);
        }
        for other in [json!(1), json!({"name": 1}), json!({"name": "a", "more": 1}), json!({"size": "m"})] {
            assert_eq!(written_input(&schema, &other), None, "{other}");
        }
        assert_eq!(
            read_input(&json!(null), &written_input(&json!(null), &json!([1])).unwrap()).unwrap(),
            json!([1])
        );
    }

    #[test]
    fn what_has_no_fields_is_json() {
        for schema in
            [json!(null), json!({"type": "array"}), json!({"type": "object", "properties": {}, "oneOf": []})]
        {
            assert_eq!(read_input(&schema, &written(&[("json", "[1]")])).unwrap(), json!([1]));
            assert_eq!(read_input(&schema, &written(&[])).unwrap(), Value::Null);
            assert!(read_input(&schema, &written(&[("json", "{")])).is_err());
        }
    }

    #[test]
    fn schemas_of_others_are_never_markup() {
        let hostile = "\"><script>alert(1)</script>";
        let schema = json!({"type": "object", "properties": {
            hostile: {"type": "string", "description": hostile, "default": hostile, "minLength": hostile},
            "choice": {"enum": [hostile]},
        }});
        let html = schema_fields(&schema, &BTreeMap::new()).into_string();
        assert!(!html.contains("<script"), "{html}");
    }
}
