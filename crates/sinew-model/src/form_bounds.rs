//! Bounds of enforced schemas, so that each valid answer is finite.

use serde_json::Value;

/// Keywords with one schema.
const SINGLE: [&str; 6] = ["items", "additionalProperties", "contains", "if", "then", "else"];
/// Keywords with a list of schemas.
const LISTED: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
/// Keywords with schemas by name.
const NAMED: [&str; 3] = ["properties", "$defs", "definitions"];

/// Limits of texts and lists in an answer, for models that do not end them on their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormBounds {
    /// Maximum characters of a text; `None` for the limit of the schema.
    pub text: Option<u64>,
    /// Maximum items of a list; `None` for the limit of the schema.
    pub items: Option<u64>,
}

impl FormBounds {
    /// Applies these bounds where the schema allows more. The result accepts a subset of its values.
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
            // Leave a minimum above the bound unchanged; otherwise no value would be valid.
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
            // No text has at least 100 and at most 80 characters.
            (json!({"type": "string", "minLength": 100}), json!({"type": "string", "minLength": 100})),
            (json!({"type": ["string", "null"]}), json!({"type": ["string", "null"], "maxLength": 80})),
            (json!({"type": "string", "enum": ["a"]}), json!({"type": "string", "enum": ["a"]})),
            (
                json!({"type": "array", "items": {"type": "string"}}),
                json!({"type": "array", "items": {"type": "string", "maxLength": 80}, "maxItems": 4}),
            ),
            // Members of an object can have the names of keywords.
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
