//! One declaration, worded for each kind of model interface.

use serde_json::{Map, Value, json};

use super::ToolDeclaration;
use super::strict::strict;
use crate::artifact::sha256;
use crate::id::is_token;

impl ToolDeclaration {
    /// As OpenAI-compatible chat completions take it; strict where the parameters can be said so.
    pub fn openai(&self) -> Value {
        let mut function = json!({
            "name": self.short_name(),
            "description": self.description,
            "parameters": self.plain_parameters(),
        });
        if let Some(parameters) = strict(&function["parameters"]) {
            function["parameters"] = parameters;
            function["strict"] = true.into();
        }
        json!({"type": "function", "function": function})
    }

    /// As Anthropic's messages take it.
    pub fn anthropic(&self) -> Value {
        json!({
            "name": self.short_name(),
            "description": self.description,
            "input_schema": self.plain_parameters(),
        })
    }

    /// As an MCP server lists it. An output schema is only named when it describes an object whose properties are
    /// described by objects, as MCP demands.
    pub fn mcp(&self) -> Value {
        let mut tool = json!({
            "name": self.short_name(),
            "description": self.description,
            "inputSchema": self.plain_parameters(),
        });
        let plain = |schema: &&Value| {
            let mut properties = schema["properties"].as_object().into_iter().flatten();
            schema["type"] == "object" && properties.all(|(_, schema)| schema.is_object())
        };
        if let Some(schema) = self.output_schema.as_ref().filter(plain) {
            tool["outputSchema"] = schema.clone();
        }
        tool
    }

    /// As the specification writes it, which is also what Gemini takes: `nullable` instead of a null type.
    pub fn spec(&self) -> Value {
        json!({"name": self.name, "description": self.description, "parameters": self.parameters})
    }

    /// The name, cut to the 64 characters that models accept; a cut name ends in a hash, so that two stay apart.
    pub fn short_name(&self) -> String {
        if is_token(&self.name) {
            return self.name.clone();
        }
        let head: String = self.name.chars().take(55).collect();
        format!("{head}_{}", &sha256(self.name.as_bytes())[..8])
    }

    /// The parameters as plain JSON Schema, which has no word `nullable`. One that models' interfaces would refuse for its
    /// name, and every other tool of the request with it, is left out: such an input comes as an artifact.
    fn plain_parameters(&self) -> Value {
        let mut parameters = self.parameters.clone();
        if let Some(properties) = parameters.get_mut("properties").and_then(Value::as_object_mut) {
            properties.retain(|name, _| is_parameter(name));
            for schema in properties.values_mut().filter_map(Value::as_object_mut) {
                if schema.shift_remove("nullable").is_some() {
                    take_null(schema);
                }
            }
        }
        parameters
    }
}

/// Letters, digits, `_`, `.` and `-`, up to 64 of them: what all interfaces take.
fn is_parameter(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// Makes a schema take null too. One without `type` is left alone: leaving the parameter out is always allowed.
fn take_null(schema: &mut Map<String, Value>) {
    match schema.get_mut("type") {
        Some(Value::Array(types)) => {
            if !types.contains(&"null".into()) {
                types.push("null".into());
            }
        }
        Some(only) if only != "null" => *only = json!([only.take(), "null"]),
        _ => return,
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
}

/// Whether a workflow's own schema has a use for null.
pub(super) fn takes_null(schema: &Value) -> bool {
    let is_null = |kind: &Value| kind == "null";
    match schema.get("type") {
        Some(Value::Array(types)) => types.iter().any(is_null),
        Some(kind) => is_null(kind) || schema["nullable"] == true,
        None => ["anyOf", "oneOf"]
            .iter()
            .filter_map(|combination| schema.get(combination)?.as_array())
            .flatten()
            .any(takes_null),
    }
}
