//! Rendering of a declaration for each kind of model interface.

use serde_json::{Map, Value, json};

use super::strict::strict;
use super::{INPUT_ARTIFACT, ToolDeclaration};
use crate::artifact::sha256;
use crate::id::is_token;

impl ToolDeclaration {
    /// Renders the tool for OpenAI-compatible chat completions; strict if the parameters can be
    /// expressed. Dual-mode tools are not strict, because strict requires every parameter.
    pub fn openai(&self) -> Value {
        let parameters = self.shown_parameters();
        let strict = if self.takes_artifact { None } else { strict(&parameters) };
        let mut function = json!({
            "name": self.short_name(),
            "description": self.shown_description(),
            "parameters": parameters,
        });
        if let Some(parameters) = strict {
            function["parameters"] = parameters;
            function["strict"] = true.into();
        }
        json!({"type": "function", "function": function})
    }

    /// Renders the tool for Anthropic's Messages API.
    pub fn anthropic(&self) -> Value {
        json!({
            "name": self.short_name(),
            "description": self.shown_description(),
            "input_schema": self.shown_parameters(),
        })
    }

    /// Renders the tool for the list of an MCP server. Includes an output schema only if it
    /// describes an object whose properties are described by objects, as MCP requires.
    pub fn mcp(&self) -> Value {
        let mut tool = json!({
            "name": self.short_name(),
            "description": self.shown_description(),
            "inputSchema": self.shown_parameters(),
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

    /// Renders the tool as the specification does, with names of any length and with all
    /// characters.
    pub fn spec(&self) -> Value {
        json!({
            "name": self.name,
            "description": self.shown_description(),
            "parameters": self.all_parameters(),
        })
    }

    /// Returns the purpose, and that the tool accepts an artifact.
    fn shown_description(&self) -> String {
        if !self.takes_artifact {
            return self.description.clone();
        }
        format!("{} Dual-mode: provide parameters directly OR '{INPUT_ARTIFACT}'.", self.description)
    }

    /// Returns the schema of the parameters that models receive. Omits parameters with unsupported
    /// names, because interfaces would reject the whole request; such an input must be passed as an
    /// artifact.
    pub fn shown_parameters(&self) -> Value {
        let mut parameters = self.all_parameters();
        if let Some(properties) = parameters.get_mut("properties").and_then(Value::as_object_mut) {
            properties.retain(|name, _| is_parameter(name));
        }
        if let Some(required) = parameters.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|name| name.as_str().is_some_and(is_parameter));
        }
        parameters
    }

    /// Returns the parameters; of a dual-mode tool with `input_artifact`, all nullable and none
    /// required.
    fn all_parameters(&self) -> Value {
        let mut parameters = self.parameters.clone();
        if !self.takes_artifact {
            return parameters;
        }
        let mut properties = Map::from_iter([(
            INPUT_ARTIFACT.to_owned(),
            json!({"type": "string", "description": ABOUT_ARTIFACT, "nullable": true}),
        )]);
        for (name, schema) in self.properties() {
            let mut schema = schema.as_object().cloned().unwrap_or_default();
            schema.insert("nullable".to_owned(), true.into());
            properties.insert(name.clone(), schema.into());
        }
        parameters["properties"] = properties.into();
        parameters["required"] = json!([]);
        parameters
    }

    pub(super) fn properties(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.parameters.get("properties").and_then(Value::as_object).into_iter().flatten()
    }

    /// Returns the name, truncated to the 64 characters that models accept. A truncated name ends
    /// in a hash, so that it stays unique.
    pub fn short_name(&self) -> String {
        if is_token(&self.name) {
            return self.name.clone();
        }
        let head: String = self.name.chars().take(55).collect();
        format!("{head}_{}", &sha256(self.name.as_bytes())[..8])
    }
}

const ABOUT_ARTIFACT: &str =
    "Filename of an existing artifact containing the input JSON data. Use this OR individual parameters.";

/// Returns whether a name has only letters, digits, `_`, `.` and `-`, and at most 64 characters:
/// the rule of all interfaces.
fn is_parameter(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// Returns whether a workflow's own schema accepts null.
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
