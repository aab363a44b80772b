//! Rendering of a declaration for each kind of model interface.

use serde_json::{Map, Value, json};

use super::strict::strict;
use super::{INPUT_ARTIFACT, ToolDeclaration};
use crate::artifact::sha256;
use crate::id::is_token;

impl ToolDeclaration {
    /// Renders the tool for OpenAI-compatible chat completions; strict if the parameters can be
    /// expressed.
    pub fn openai(&self) -> Value {
        let parameters = self.plain_parameters();
        let mut function = json!({
            "name": self.short_name(),
            "description": self.description,
            "parameters": parameters,
        });
        // Workflows treat null as absent; other tools require exactly what their schema states.
        let demanded = if self.takes_artifact { optional_take_null(parameters) } else { parameters };
        if let Some(parameters) = strict(&demanded) {
            function["parameters"] = parameters;
            function["strict"] = true.into();
        }
        json!({"type": "function", "function": function})
    }

    /// Renders the tool for Anthropic's Messages API.
    pub fn anthropic(&self) -> Value {
        json!({
            "name": self.short_name(),
            "description": self.description,
            "input_schema": self.plain_parameters(),
        })
    }

    /// Renders the tool for the list of an MCP server. Includes an output schema only if it
    /// describes an object whose properties are described by objects, as MCP requires.
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

    /// Renders the tool for the specification, and for Gemini: `nullable` instead of a null type,
    /// and no required parameter, because an artifact may replace all of them.
    pub fn spec(&self) -> Value {
        if !self.takes_artifact {
            return json!({"name": self.name, "description": self.description, "parameters": self.parameters});
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
        let mut parameters = self.parameters.clone();
        parameters["properties"] = properties.into();
        parameters["required"] = json!([]);
        let dual = format!("Dual-mode: provide parameters directly OR '{INPUT_ARTIFACT}'.");
        json!({"name": self.name, "description": format!("{} {dual}", self.description), "parameters": parameters})
    }

    /// Returns the variant of the tool whose input is an artifact; `None` if it accepts none. Only
    /// such variants have names that end in `_from_artifact`.
    pub fn artifact_mode(&self) -> Option<Self> {
        self.takes_artifact.then(|| Self {
            name: format!("{}{FROM_ARTIFACT}", self.name),
            description: format!("{} The input is an artifact that exists.", self.description),
            parameters: json!({
                "type": "object",
                "properties": {INPUT_ARTIFACT: {"type": "string", "description": ABOUT_ARTIFACT_ONLY}},
                "required": [INPUT_ARTIFACT],
            }),
            takes_artifact: false,
            output_schema: self.output_schema.clone(),
        })
    }

    fn properties(&self) -> impl Iterator<Item = (&String, &Value)> {
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

    /// Returns the parameters that model interfaces accept. Omits parameters with unsupported
    /// names, because interfaces would reject the whole request; such an input must be passed as an
    /// artifact.
    fn plain_parameters(&self) -> Value {
        let mut parameters = self.parameters.clone();
        if let Some(properties) = parameters.get_mut("properties").and_then(Value::as_object_mut) {
            properties.retain(|name, _| is_parameter(name));
        }
        if let Some(required) = parameters.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|name| name.as_str().is_some_and(is_parameter));
        }
        parameters
    }
}

const FROM_ARTIFACT: &str = "_from_artifact";
const ABOUT_ARTIFACT: &str =
    "Filename of an existing artifact containing the input JSON data. Use this OR individual parameters.";
const ABOUT_ARTIFACT_ONLY: &str = "Filename of an existing artifact containing the input JSON data.";

/// Makes optional parameters nullable, because interfaces that enforce the schema require every
/// parameter.
fn optional_take_null(mut parameters: Value) -> Value {
    let required = parameters.get("required").cloned().unwrap_or_default();
    let is_required =
        |name: &String| required.as_array().is_some_and(|all| all.iter().any(|one| one == name));
    if let Some(properties) = parameters.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, schema) in properties.iter_mut() {
            if let Some(schema) = schema.as_object_mut().filter(|_| !is_required(name)) {
                take_null(schema);
            }
        }
    }
    parameters
}

/// Returns whether a name has only letters, digits, `_`, `.` and `-`, and at most 64 characters:
/// the rule of all interfaces.
fn is_parameter(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// Makes a schema nullable. Leaves one without `type` unchanged: the parameter can always be
/// omitted.
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
