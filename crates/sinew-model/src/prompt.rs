//! The provider-independent request to a model, which codecs encode.

use serde::Serialize;
use serde_json::Value;
use sinew_protocol::tool::ToolDeclaration;

use crate::turn::RequestedCall;

/// A request to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// System texts, in order.
    pub system: Vec<String>,
    /// Tools that the model can call.
    pub tools: Vec<ToolDeclaration>,
    /// Whether the model must call one of the tools.
    pub must_call: bool,
    /// The conversation so far.
    pub messages: Vec<PromptMessage>,
    /// Form that the provider enforces for the answer.
    pub form: AnswerForm,
    /// Maximum tokens of the answer.
    pub max_output: u64,
    /// Key of the provider's prompt cache; empty for none.
    pub cache_key: String,
}

/// A message of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum PromptMessage {
    /// A message to the model.
    User {
        /// Its text.
        text: String,
    },
    /// An earlier answer of a model.
    Assistant {
        /// The message in the provider's encoding; null if another provider or no provider wrote it.
        verbatim: Value,
        /// Its text.
        text: String,
        /// Its calls.
        calls: Vec<RequestedCall>,
    },
    /// The results of all calls of the previous message, in its order.
    Results {
        /// The results.
        results: Vec<PromptResult>,
    },
}

/// The result of one call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromptResult {
    /// The provider's id of the call.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// JSON text with the source of the result, and its content or the failure.
    pub content: String,
    /// Whether the call failed.
    pub failed: bool,
}

/// The form that the provider enforces for an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum AnswerForm {
    /// No form.
    #[default]
    Free,
    /// The answer is JSON.
    Json,
    /// The answer fits this JSON Schema, whose root is an object.
    Schema(Value),
}

/// Digest and length of a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptMeasure {
    /// Hex sha256 of all parts.
    pub digest: String,
    /// Length of the parts in bytes, to estimate tokens.
    pub bytes: u64,
}

/// The parts of a prompt that a model sees.
#[derive(Serialize)]
struct PromptParts<'a> {
    system: &'a [String],
    tools: Vec<ToolParts<'a>>,
    must_call: bool,
    messages: &'a [PromptMessage],
    form: Value,
    max_output: u64,
}

#[derive(Serialize)]
struct ToolParts<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

impl Prompt {
    /// Returns digest and length of the prompt.
    pub fn measure(&self) -> PromptMeasure {
        // Serialisation cannot fail, because all keys are text.
        let text = serde_json::to_vec(&self.parts()).unwrap_or_default();
        PromptMeasure { digest: sinew_protocol::artifact::sha256(&text), bytes: text.len() as u64 }
    }

    /// Returns the prompt for recordings. Omits descriptions of tools, which other processes define.
    pub fn recorded(&self) -> Value {
        let mut parts = serde_json::to_value(self.parts()).unwrap_or_default();
        parts["tools"] = self.tools.iter().map(|tool| tool.name.as_str()).collect();
        parts
    }

    fn parts(&self) -> PromptParts<'_> {
        fn tool(tool: &ToolDeclaration) -> ToolParts<'_> {
            let ToolDeclaration { name, description, parameters, .. } = tool;
            ToolParts { name, description, parameters }
        }
        PromptParts {
            system: &self.system,
            tools: self.tools.iter().map(tool).collect(),
            must_call: self.must_call,
            messages: &self.messages,
            form: match &self.form {
                AnswerForm::Free => Value::Null,
                AnswerForm::Json => true.into(),
                AnswerForm::Schema(schema) => schema.clone(),
            },
            max_output: self.max_output,
        }
    }
}
