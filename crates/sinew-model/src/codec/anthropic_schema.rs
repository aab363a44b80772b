//! Converts schemas to the subset that Anthropic enforces; the API rejects other keywords.
//!
//! Limits of numbers, texts and lists are omitted, because the answer is validated against the full
//! schema. For a schema that cannot be converted, the model gets a final tool instead.

use serde_json::{Map, Value};

/// Keywords that are copied.
const PLAIN: [&str; 5] = ["type", "description", "title", "default", "required"];
/// Keywords that only limit values, and are omitted.
const LIMITS: [&str; 14] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "examples",
    "$schema",
];
/// Enforced text formats.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];
/// Maximum nesting of a schema; also stops circular references.
const MAX_LEVELS: usize = 32;
/// Maximum parts of a schema, counted once per reference.
const MAX_PARTS: usize = 10_000;

/// Returns the schema in the enforced subset; `None` if it cannot be converted.
pub(crate) fn enforced(schema: &Value) -> Option<Value> {
    SchemaText { root: schema, parts: 0 }.word(schema, 0)
}

struct SchemaText<'a> {
    root: &'a Value,
    parts: usize,
}

impl SchemaText<'_> {
    fn word(&mut self, schema: &Value, level: usize) -> Option<Value> {
        self.parts += 1;
        let members = schema.as_object().filter(|_| level < MAX_LEVELS && self.parts <= MAX_PARTS)?;
        if let Some(reference) = members.get("$ref") {
            let target = self.root.pointer(reference.as_str()?.strip_prefix('#')?)?;
            // The definition is converted separately; this call only detects circular references.
            self.word(target, level + 1)?;
            return (members.len() == 1).then(|| schema.clone());
        }
        let form = ["type", "enum", "const", "anyOf", "oneOf"];
        if !form.iter().any(|word| members.contains_key(*word)) {
            return None;
        }
        let mut said = Map::new();
        for (word, value) in members {
            let value = match word.as_str() {
                "properties" | "$defs" | "definitions" => {
                    let named = value.as_object()?.iter();
                    let worded =
                        named.map(|(name, inner)| Some((name.clone(), self.word(inner, level + 1)?)));
                    Value::Object(worded.collect::<Option<_>>()?)
                }
                "anyOf" | "oneOf" => {
                    let worded = value.as_array()?.iter().map(|inner| self.word(inner, level + 1));
                    said.insert("anyOf".to_owned(), worded.collect::<Option<_>>()?);
                    continue;
                }
                "items" => self.word(value, level + 1)?,
                "enum" if value.as_array()?.iter().all(is_plain) => value.clone(),
                "const" if is_plain(value) => value.clone(),
                "additionalProperties" if *value == false => continue,
                "format" if FORMATS.iter().any(|known| value == known) => value.clone(),
                "minItems" if value.as_u64().is_some_and(|least| least <= 1) => value.clone(),
                "format" | "minItems" => continue,
                word if LIMITS.contains(&word) => continue,
                word if PLAIN.contains(&word) => value.clone(),
                _ => return None,
            };
            said.insert(word.clone(), value);
        }
        if takes(members, "object") {
            // The subset cannot express arbitrary members.
            members.get("properties")?;
            said.insert("additionalProperties".to_owned(), false.into());
        }
        if takes(members, "array") {
            members.get("items")?;
        }
        Some(said.into())
    }
}

fn takes(schema: &Map<String, Value>, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|one| one == kind),
        Some(one) => one == kind,
        None => false,
    }
}

fn is_plain(value: &Value) -> bool {
    !value.is_object() && !value.is_array()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns definitions that each reference the next one twice.
    fn doubling(levels: usize) -> Value {
        let at = |level: usize| json!({"$ref": format!("#/$defs/{level}")});
        let definition = |level: usize| (level.to_string(), json!({"anyOf": [at(level + 1), at(level + 1)]}));
        let mut definitions: Map<String, Value> = (0..levels).map(definition).collect();
        definitions.insert(levels.to_string(), json!({"type": "null"}));
        json!({"anyOf": [at(0)], "$defs": definitions})
    }

    #[test]
    fn forms_are_said_and_limits_left_out() {
        for (schema, said) in [
            (
                json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}, "required": ["a"]}),
                Some(
                    json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}),
                ),
            ),
            (
                json!({"type": ["array", "null"], "items": {"type": "string", "maxLength": 3, "format": "regex"}, "minItems": 2, "maxItems": 4}),
                Some(json!({"type": ["array", "null"], "items": {"type": "string"}})),
            ),
            (
                json!({"oneOf": [{"$ref": "#/$defs/a"}, {"const": 3}], "$defs": {"a": {"enum": ["x", null]}}}),
                Some(
                    json!({"anyOf": [{"$ref": "#/$defs/a"}, {"const": 3}], "$defs": {"a": {"enum": ["x", null]}}}),
                ),
            ),
            (json!({"type": "string", "format": "date"}), Some(json!({"type": "string", "format": "date"}))),
            // Arbitrary members, any value, circular references, keywords that change the form.
            (json!({"type": "object"}), None),
            (json!({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}}), None),
            (json!({"type": "object", "properties": {"a": {}}}), None),
            (json!({"type": "object", "properties": {"a": true}}), None),
            (json!({"type": "array"}), None),
            (json!({"enum": [{"a": 1}]}), None),
            (json!({"type": "array", "items": {"$ref": "#"}}), None),
            (doubling(40), None),
            (json!({"$ref": "https://example.org/schema"}), None),
            (json!({"type": "string", "not": {"const": "a"}}), None),
        ] {
            assert_eq!(enforced(&schema), said, "{schema}");
        }
    }
}
