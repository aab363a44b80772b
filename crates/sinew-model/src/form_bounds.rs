//! Bounds of forms: a schema that a server enforces, made so small that every answer that fits it ends.

use serde_json::Value;

/// Words of a schema that hold one schema.
const SINGLE: [&str; 6] = ["items", "additionalProperties", "contains", "if", "then", "else"];
/// Words of a schema that hold a list of schemas.
const LISTED: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
/// Words of a schema that hold schemas by name.
const NAMED: [&str; 3] = ["properties", "$defs", "definitions"];

/// Most that a text or a list of an answer may hold, for models that do not end them by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormBounds {
    /// Longest text, in characters. `None`: as long as the schema allows.
    pub text: Option<u64>,
    /// Most items of a list. `None`: as many as the schema allows.
    pub items: Option<u64>,
}

impl FormBounds {
    /// The schema with these bounds wherever it allows more. Every value that fits the result fits the schema.
    pub(crate) fn within(self, mut schema: Value) -> Value {
        if self != Self::default() {
            self.bound(&mut schema);
        }
        schema
    }

    fn bound(self, schema: &mut Value) {
        let Some(members) = schema.as_object_mut() else { return };
        let takes = |kind: &str| match members.get("type") {
            Some(Value::String(one)) => one == kind,
            Some(Value::Array(many)) => many.iter().any(|one| one == kind),
            _ => false,
        };
        let is_listed = members.contains_key("enum") || members.contains_key("const");
        let (texts, lists) = (takes("string") && !is_listed, takes("array") && !is_listed);
        for (bound, applies, least, most) in
            [(self.text, texts, "minLength", "maxLength"), (self.items, lists, "minItems", "maxItems")]
        {
            let Some(bound) = bound.filter(|_| applies) else { continue };
            let limit = |word: &str| members.get(word).and_then(Value::as_u64);
            // A schema that asks for more than the bound allows is left as it is: nothing would fit it.
            if limit(least).is_none_or(|least| least <= bound) && limit(most).is_none_or(|most| most > bound)
            {
                members.insert(most.to_owned(), bound.into());
            }
        }
        for (word, value) in members {
            match value {
                Value::Object(named) if NAMED.contains(&word.as_str()) => {
                    for inner in named.values_mut() {
                        self.bound(inner);
                    }
                }
                Value::Array(listed) if LISTED.contains(&word.as_str()) => {
                    for inner in listed {
                        self.bound(inner);
                    }
                }
                value if SINGLE.contains(&word.as_str()) => self.bound(value),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_and_lists_get_bounds_where_a_schema_allows_more() {
        let bounds = FormBounds { text: Some(80), items: Some(4) };
        for (schema, bounded) in [
            (json!({"type": "string"}), json!({"type": "string", "maxLength": 80})),
            (json!({"type": "string", "maxLength": 9000}), json!({"type": "string", "maxLength": 80})),
            (json!({"type": "string", "maxLength": 9}), json!({"type": "string", "maxLength": 9})),
            // A text of at least 100 and at most 80 characters does not exist.
            (json!({"type": "string", "minLength": 100}), json!({"type": "string", "minLength": 100})),
            (json!({"type": ["string", "null"]}), json!({"type": ["string", "null"], "maxLength": 80})),
            (json!({"type": "string", "enum": ["a"]}), json!({"type": "string", "enum": ["a"]})),
            (
                json!({"type": "array", "items": {"type": "string"}}),
                json!({"type": "array", "items": {"type": "string", "maxLength": 80}, "maxItems": 4}),
            ),
            // Members of an object may have the names of words.
            (
                json!({"type": "object", "properties": {"items": {"type": "string"}, "type": {"type": "integer"}}}),
                json!({"type": "object", "properties": {
                    "items": {"type": "string", "maxLength": 80}, "type": {"type": "integer"},
                }}),
            ),
            (
                json!({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "string"}}}),
                json!({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "string", "maxLength": 80}}}),
            ),
            (json!({"enum": ["items"]}), json!({"enum": ["items"]})),
            (json!(true), json!(true)),
        ] {
            assert_eq!(bounds.within(schema.clone()), bounded, "{schema}");
            assert_eq!(FormBounds::default().within(schema.clone()), schema);
        }
    }
}
