//! A tool as its server describes it. Everything in it is the word of a stranger.

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
    /// Whether the server says that the tool only reads.
    pub(crate) reads_only: bool,
    /// Whether the server says that a repeated call has no second effect.
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

    /// A tool of this name that takes anything; stands in for one whose server is not asked.
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

    /// The sha256 over everything that a model is told and that decides about effects, in hex.
    pub(crate) fn digest(&self) -> String {
        let hints = [self.reads_only, self.is_idempotent];
        let told = json!([self.name, self.description, self.input_schema, hints]);
        sha256(canonical(&told).as_bytes())
    }
}
