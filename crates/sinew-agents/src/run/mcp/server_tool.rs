//! A tool as its server describes it. All its fields are untrusted.

use rmcp::model::Tool;
use serde_json::{Value, json};
use sinew_model::canonical;
use sinew_protocol::artifact::sha256;

/// A tool as its server describes it.
#[derive(Clone, Debug)]
pub(crate) struct McpTool {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) input_schema: Value,
    pub(crate) output_schema: Option<Value>,
    /// Whether the server claims that the tool is read-only.
    pub(crate) reads_only: bool,
    /// Whether the server claims that the tool is idempotent.
    pub(crate) is_idempotent: bool,
}

impl McpTool {
    pub(super) fn of(tool: &Tool) -> Self {
        let hints = tool.annotations.as_ref();
        Self {
            name: tool.name.to_string(),
            description: tool.description.as_deref().unwrap_or_default().to_owned(),
            input_schema: Value::Object((*tool.input_schema).clone()),
            output_schema: tool.output_schema.as_ref().map(|schema| Value::Object((**schema).clone())),
            reads_only: hints.is_some_and(|hints| hints.read_only_hint == Some(true)),
            is_idempotent: hints.is_some_and(|hints| hints.idempotent_hint == Some(true)),
        }
    }

    /// Creates a tool that accepts any arguments, as a placeholder for one whose server is not queried.
    pub(crate) fn unknown(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            description: String::new(),
            input_schema: json!({"type": "object", "properties": {}}),
            output_schema: None,
            reads_only: false,
            is_idempotent: false,
        }
    }

    /// Returns the hex sha256 of all fields that a model receives or that determine effects.
    pub(crate) fn digest(&self) -> String {
        let hints = [self.reads_only, self.is_idempotent];
        let told = json!([self.name, self.description, self.input_schema, hints]);
        sha256(canonical(&told).as_bytes())
    }
}
