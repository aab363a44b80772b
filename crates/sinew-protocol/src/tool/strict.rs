//! Parameters in OpenAI's `strict` form, for schemas that a model can be forced to follow exactly.
//!
//! Strict requires every property of every object and allows no others; optional properties are
//! nullable instead. A schema is converted only if its meaning for the agent does not change: an
//! optional property becomes required only if it accepts null. All other keywords of the schema
//! must be supported by strict.

use serde_json::{Map, Value, json};

/// Keywords without subschemas that strict would have to convert.
const PLAIN: &[&str] = &[
    "description",
    "title",
    "type",
    "enum",
    "const",
    "pattern",
    "format",
    "multipleOf",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minItems",
    "maxItems",
];
/// String formats that strict supports.
const FORMATS: &[&str] =
    &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];
/// Limits of the first models that accepted a schema; later models accept more.
const MOST_PROPERTIES: usize = 100;
const MOST_LEVELS: usize = 5;
const MOST_VALUES: usize = 500;

/// Converts the parameters to strict form; `None` if strict cannot express them.
pub(super) fn strict(parameters: &Value) -> Option<Value> {
    let mut strict = StrictSchema { root: parameters, properties: 0, values: 0 };
    let root = parameters.as_object().filter(|root| root.get("type").is_some_and(|kind| kind == "object"))?;
    strict.schema(root, 0).map(Value::Object)
}

struct StrictSchema<'a> {
    root: &'a Value,
    properties: usize,
    values: usize,
}

impl StrictSchema<'_> {
    fn schema(&mut self, schema: &Map<String, Value>, level: usize) -> Option<Map<String, Value>> {
        if let Some(Value::String(place)) = schema.get("$ref") {
            // A reference must be the only keyword and must point into the definitions that are
            // checked here.
            let known = ["#/$defs/", "#/definitions/"].iter().any(|below| place.starts_with(below));
            let leads = self.root.pointer(place.strip_prefix('#')?).is_some();
            return (schema.len() == 1 && known && leads).then(|| schema.clone());
        }
        if !["type", "enum", "const", "anyOf"].iter().any(|word| schema.contains_key(*word)) {
            return None;
        }
        let mut said = Map::new();
        for (word, value) in schema {
            let value = match word.as_str() {
                "properties" | "required" | "additionalProperties" => continue,
                "items" => self.schema(value.as_object()?, level + 1)?.into(),
                "anyOf" if level > 0 => self.each(value, level)?,
                "$defs" | "definitions" if level == 0 => self.definitions(value)?,
                "format" if !FORMATS.iter().any(|known| value == known) => return None,
                "enum" => {
                    self.values += value.as_array()?.len();
                    value.clone()
                }
                word if PLAIN.contains(&word) => value.clone(),
                _ => return None,
            };
            said.insert(word.clone(), value);
        }
        let is_object =
            ["properties", "required", "additionalProperties"].iter().any(|word| schema.contains_key(*word))
                || takes(schema, "object");
        if is_object {
            self.object(schema, level, &mut said)?;
        }
        (self.properties <= MOST_PROPERTIES && self.values <= MOST_VALUES).then_some(said)
    }

    fn object(
        &mut self,
        schema: &Map<String, Value>,
        level: usize,
        said: &mut Map<String, Value>,
    ) -> Option<()> {
        // Strict cannot express an object with arbitrary fields.
        let closed = schema.get("additionalProperties").is_none_or(|more| more == false);
        let properties = schema.get("properties")?.as_object()?;
        if !closed || !takes(schema, "object") || level >= MOST_LEVELS {
            return None;
        }
        self.properties += properties.len();
        let required: Vec<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if required.iter().any(|name| !properties.contains_key(*name)) {
            return None;
        }
        let mut all = Map::new();
        for (name, schema) in properties {
            let schema = schema.as_object()?;
            if !required.contains(&name.as_str()) && !super::render::takes_null(&json!(schema)) {
                return None;
            }
            all.insert(name.clone(), self.schema(schema, level + 1)?.into());
        }
        said.insert("required".to_owned(), all.keys().cloned().collect());
        said.insert("properties".to_owned(), all.into());
        said.insert("additionalProperties".to_owned(), false.into());
        Some(())
    }

    fn each(&mut self, schemas: &Value, level: usize) -> Option<Value> {
        let schemas = schemas.as_array()?.iter();
        schemas.map(|schema| self.schema(schema.as_object()?, level).map(Value::Object)).collect()
    }

    fn definitions(&mut self, schemas: &Value) -> Option<Value> {
        let mut said = Map::new();
        for (name, schema) in schemas.as_object()? {
            said.insert(name.clone(), self.schema(schema.as_object()?, 1)?.into());
        }
        Some(said.into())
    }
}

/// Returns whether the schema's `type` includes this one.
fn takes(schema: &Map<String, Value>, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|one| one == kind),
        Some(one) => one == kind,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(properties: Value) -> Value {
        let mut schema = json!({"type": "object", "required": ["a"]});
        schema["properties"] = properties;
        schema
    }

    #[test]
    fn what_fits_is_said_in_full() {
        let given = json!({
            "type": "object",
            "description": "d",
            "properties": {
                "a": {"type": "string", "pattern": "^a"},
                "b": {"type": ["object", "null"], "properties": {"c": {"$ref": "#/$defs/d"}}, "required": ["c"]},
                "e": {"anyOf": [{"type": "array", "items": {"enum": [1, 2]}}, {"type": "null"}]},
            },
            "required": ["a"],
            "$defs": {"d": {"type": "number", "minimum": 1}},
        });
        let mut want = given.clone();
        want["required"] = json!(["a", "b", "e"]);
        want["additionalProperties"] = false.into();
        want["properties"]["b"]["additionalProperties"] = false.into();
        assert_eq!(strict(&given), Some(want.clone()));
        assert_eq!(strict(&want), Some(want), "what is strict stays so");
        let none = json!({"type": "object", "properties": {}});
        assert_eq!(
            strict(&none),
            Some(json!({"type": "object", "required": [], "properties": {}, "additionalProperties": false}))
        );
    }

    #[test]
    fn what_does_not_fit_is_not_said() {
        let deep = (0..6).fold(json!({"type": "string"}), |inner, _| of(json!({"a": inner})));
        let many: Map<String, Value> = (0..101).map(|n| (n.to_string(), json!({"type": "null"}))).collect();
        let values: Vec<usize> = (0..501).collect();
        for bad in [
            json!({"type": "string"}),
            json!({"type": "object"}),
            json!(true),
            json!({"anyOf": [of(json!({"a": {"type": "string"}}))]}),
            // Optional and not nullable.
            of(json!({"a": {"type": "string"}, "b": {"type": "string"}})),
            of(json!({"a": {"type": "string"}, "b": {"$ref": "#/$defs/x"}})),
            of(json!({"a": of(json!({"a": {"type": "string"}, "b": {"type": "integer"}}))})),
            // Required but not a property.
            of(json!({"b": {"type": "null"}})),
            // Keywords that strict does not support, or missing keywords.
            of(json!({"a": {"type": "string", "minLength": 1}})),
            of(json!({"a": {"type": "string", "default": "x"}})),
            of(json!({"a": {"type": "string", "format": "uri"}})),
            of(json!({"a": {"oneOf": [{"type": "string"}]}})),
            of(json!({"a": {"type": "string", "nullable": true}})),
            of(json!({"a": {}})),
            of(json!({"a": true})),
            of(json!({"a": {"type": "array", "items": true}})),
            of(json!({"a": {"type": "object"}})),
            of(json!({"a": {"type": "object", "additionalProperties": {"type": "string"}}})),
            of(json!({"a": {"type": "object", "properties": {}, "additionalProperties": true}})),
            of(json!({"a": {"$ref": "#/$defs/nobody"}})),
            of(json!({"a": {"$ref": "#/properties/a"}})),
            of(json!({"a": {"$ref": "https://example.org/schema"}})),
            of(json!({"a": {"enum": values}})),
            deep,
            json!({"type": "object", "properties": many}),
        ] {
            assert_eq!(strict(&bad), None, "{bad}");
        }
    }
}
