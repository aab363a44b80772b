//! Types of values, as far as JSON Schemas declare them.

use serde_json::Value;

use crate::js::type_name;

/// Keywords with which other schemas determine the type.
const COMPOSING: [&str; 6] = ["$ref", "allOf", "anyOf", "oneOf", "if", "$dynamicRef"];

/// Possible types of a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ValueType {
    /// JSON Schema names, with `number` for `integer`.
    names: Vec<&'static str>,
    /// All possible values, if the schema lists them.
    pub(super) options: Option<Vec<Value>>,
}

impl ValueType {
    /// Returns the type with this name.
    pub(super) fn of(name: &'static str) -> Self {
        Self { names: vec![name], options: None }
    }

    /// Returns the type of a value.
    pub(super) fn of_value(value: &Value) -> Self {
        Self { names: vec![type_name(value)], options: Some(vec![value.clone()]) }
    }

    /// Returns the type that a schema declares; `None` for any type, or if other schemas decide.
    pub(super) fn of_schema(schema: &Value) -> Option<Self> {
        if COMPOSING.iter().any(|key| schema.get(key).is_some()) {
            return None;
        }
        let options = match (schema.get("const"), schema.get("enum").and_then(Value::as_array)) {
            (Some(only), _) => Some(vec![only.clone()]),
            (None, list) => list.cloned(),
        };
        let names: Vec<&'static str> = match (schema.get("type"), &options) {
            (Some(Value::String(name)), _) => known(name).into_iter().collect(),
            (Some(Value::Array(list)), _) => list.iter().filter_map(|name| known(name.as_str()?)).collect(),
            (_, Some(options)) => options.iter().map(type_name).collect(),
            _ => Vec::new(),
        };
        (!names.is_empty()).then_some(Self { names, options })
    }

    /// Returns whether a value can have this type and the other one. Null is not considered: any
    /// path may be null.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.names.iter().any(|name| other.is(name))
    }

    /// Returns whether a value of this type can be of the named type.
    pub(super) fn is(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// Returns the names for messages.
    pub(super) fn shown(&self) -> String {
        self.names.join(" or ")
    }
}

fn known(name: &str) -> Option<&'static str> {
    const NAMES: [&str; 6] = ["string", "number", "boolean", "object", "array", "null"];
    if name == "integer" { Some("number") } else { NAMES.into_iter().find(|known| *known == name) }
}

/// Returns the schema of a member: a property, or an item of an array for an index.
pub(super) fn member<'s>(schema: &'s Value, step: &str) -> Option<&'s Value> {
    let property = schema.get("properties").and_then(|properties| properties.get(step));
    property.or_else(|| step.parse::<usize>().ok().and(schema.get("items")))
}
