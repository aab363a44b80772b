//! Generates sample inputs and outputs from a schema.

use serde_json::Value;

/// Maximum schema depth of a sample, because schemas may be recursive.
const MAX_SAMPLE_DEPTH: usize = 8;

/// Generates a small value for a schema: its example or default, otherwise from its type and
/// limits.
pub fn sample_of_schema(schema: &Value) -> Value {
    sample(schema, schema, SampledProperties::Required, 0)
}

/// Generates a value for the schema of an output, with all its properties.
pub fn sample_of_output(schema: &Value) -> Value {
    sample(schema, schema, SampledProperties::All, 0)
}

/// Properties of a sample.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SampledProperties {
    Required,
    All,
}

/// Generates a small value for a schema: its example or default, otherwise from its type and
/// limits.
fn sample(schema: &Value, root: &Value, wanted: SampledProperties, depth: usize) -> Value {
    if depth > MAX_SAMPLE_DEPTH {
        return Value::Null;
    }
    let first = |key: &str| schema.get(key).and_then(Value::as_array).and_then(|list| list.first()).cloned();
    if let Some(value) = first("examples")
        .or_else(|| schema.get("example").cloned())
        .or_else(|| schema.get("default").cloned())
        .or_else(|| schema.get("const").cloned())
        .or_else(|| first("enum"))
    {
        return value;
    }
    if let Some(pointer) = schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#'))
    {
        return root.pointer(pointer).map_or(Value::Null, |inner| sample(inner, root, wanted, depth + 1));
    }
    if let Some(choice) = first("anyOf").or_else(|| first("oneOf")).or_else(|| first("allOf")) {
        return sample(&choice, root, wanted, depth + 1);
    }
    let kind = match schema.get("type") {
        Some(Value::String(kind)) => kind.as_str(),
        Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str).unwrap_or_default(),
        _ if schema.get("properties").is_some() => "object",
        _ => "",
    };
    let number = |key: &str| schema.get(key).and_then(Value::as_u64);
    match kind {
        "object" => {
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            let declared = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
            let optional = declared.map(|(name, _)| name.as_str());
            let optional = optional.filter(|_| wanted == SampledProperties::All && depth < MAX_SAMPLE_DEPTH);
            let properties = required.filter_map(Value::as_str).chain(optional).map(|name| {
                let inner = schema.get("properties").and_then(|all| all.get(name)).unwrap_or(&Value::Null);
                (name.to_owned(), sample(inner, root, wanted, depth + 1))
            });
            Value::Object(properties.collect())
        }
        "array" => {
            let items = schema.get("items").unwrap_or(&Value::Null);
            let count = number("minItems").unwrap_or(0).min(8);
            (0..count).map(|_| sample(items, root, wanted, depth + 1)).collect()
        }
        "integer" | "number" => schema
            .get("minimum")
            .cloned()
            .unwrap_or_else(|| number("exclusiveMinimum").map_or(1, |least| least + 1).into()),
        "boolean" => Value::Bool(true),
        "null" => Value::Null,
        _ => {
            let least = number("minLength").unwrap_or(0).min(64) as usize;
            Value::String("text".repeat(least.div_ceil(4).max(1)))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sinew_source::Schema;

    use super::*;

    #[test]
    fn made_up_inputs_fit_their_schemas() {
        let schemas = [
            json!({"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer", "minimum": 5}, "note": {"type": "string"}}}),
            json!({"type": "object", "required": ["lines"], "properties": {"lines": {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/line"}}}, "$defs": {"line": {"type": "object", "required": ["sku"], "properties": {"sku": {"enum": ["A", "B"]}}}}}),
            json!({"type": ["string", "null"], "minLength": 9}),
            json!({"anyOf": [{"const": 3}, {"type": "string"}]}),
            json!({"type": "object", "required": ["on"], "properties": {"on": {"type": "boolean"}, "x": {"exclusiveMinimum": 3}}}),
            json!({"type": "number", "exclusiveMinimum": 3}),
            json!(true),
        ];
        for schema in schemas {
            for made_up in [sample_of_schema(&schema), sample_of_output(&schema)] {
                let errors = Schema::compile(&schema).unwrap().errors(&made_up);
                assert!(errors.is_empty(), "{made_up} does not fit {schema}");
            }
        }
        let endless = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}});
        assert_eq!(sample_of_schema(&endless), Value::Null);
        let score = json!({"type": "object", "properties": {"score": {"type": "number"}}});
        assert_eq!((sample_of_schema(&score), sample_of_output(&score)), (json!({}), json!({"score": 1})));
    }
}
