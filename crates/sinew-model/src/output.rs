//! Structured output: how a model is constrained to a schema, and how its answer is parsed.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use sinew_protocol::embed::ResultEmbed;
use sinew_protocol::tool::ToolDeclaration;

use crate::codec::anthropic_schema::enforced;
use crate::json_in_text::json_values;
use crate::prompt::AnswerForm;
use crate::spec::{ConversationSpec, ModelSpec, OutputMode, Provider, SchemaAbility, ToolAbility};
use crate::text::shortened;
use crate::turn::{ModelTurn, RequestedCall};

/// Name of the tool by which a model returns its output.
pub const ANSWER_TOOL: &str = "answer";
/// Member that wraps an output that is not an object.
const WRAPPER: &str = "value";
/// Maximum violations in a message to the model.
const MAX_TOLD_VIOLATIONS: usize = 20;

/// How a model is constrained to the form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerPlan {
    /// The text is the output; there is no schema.
    Words,
    /// The provider enforces the schema.
    Native {
        /// Whether the schema is sent together with the tools; else it has a separate turn.
        beside_tools: bool,
    },
    /// The model calls a final tool.
    Tool,
    /// The text contains JSON.
    Text {
        /// Whether the provider enforces JSON.
        json: bool,
    },
    /// The answer names an artifact.
    Marker,
    /// Calls and answer are JSON of one schema.
    Action,
}

impl AnswerPlan {
    /// Returns the plan for a model of this conversation.
    pub(crate) fn of(spec: &ConversationSpec, model: &ModelSpec) -> Self {
        let abilities = model.abilities;
        if abilities.tools == ToolAbility::Schema && !spec.tools.is_empty() {
            return Self::Action;
        }
        let native = || Self::Native { beside_tools: model.provider != Provider::Gemini };
        let is_enforced = |schema: &Value| {
            abilities.schema == SchemaAbility::Native
                && (model.provider != Provider::Anthropic || enforced(&as_object(schema)).is_some())
        };
        let text = || Self::Text { json: abilities.schema == SchemaAbility::Json };
        match (spec.output.mode, &spec.output.schema) {
            (OutputMode::Marker, _) => Self::Marker,
            // A bounded text needs a form, because plain text is unbounded.
            (_, None) if model.bounds.text.is_some() && abilities.schema == SchemaAbility::Native => {
                Self::Action
            }
            (_, None) => Self::Words,
            (OutputMode::Text, _) => text(),
            (OutputMode::Tool, _) if abilities.tools == ToolAbility::Native => Self::Tool,
            (_, Some(schema)) if is_enforced(&schema.value) => native(),
            (_, Some(_)) if abilities.tools == ToolAbility::Native => Self::Tool,
            _ => text(),
        }
    }

    /// Returns the instruction to the model about the form.
    pub(crate) fn instruction(self, spec: &ConversationSpec) -> Option<String> {
        let schema =
            || spec.output.schema.as_ref().map_or_else(|| json!({"type": "string"}), |s| s.value.clone());
        match self {
            Self::Words | Self::Native { .. } => None,
            Self::Tool => Some(format!(
                "When the work is done, call the tool `{ANSWER_TOOL}` with the output, and call nothing else with it."
            )),
            Self::Text { .. } => Some(format!(
                "Answer with one JSON value that fits this JSON Schema, without any other text:\n{}",
                schema()
            )),
            Self::Marker => Some(
                "Save the output as an artifact first. Then end your last message with \
                 «result:artifact=NAME:vN status=success». If you cannot do the work, end with \
                 «result:artifact= status=failure message=\"the reason\"»."
                    .to_owned(),
            ),
            Self::Action => Some(action_instruction(spec)),
        }
    }

    /// Returns the final tool of this plan; `None` for other plans.
    pub(crate) fn tool(self, spec: &ConversationSpec) -> Option<ToolDeclaration> {
        let schema = spec.output.schema.as_ref().filter(|_| self == Self::Tool)?;
        Some(ToolDeclaration {
            name: ANSWER_TOOL.to_owned(),
            description: "Hands over the output. Call it when the work is done.".to_owned(),
            parameters: as_object(&schema.value),
            takes_artifact: false,
            output_schema: None,
        })
    }

    /// Formats an earlier answer in the form of this plan, because models imitate examples.
    pub(crate) fn example(self, spec: &ConversationSpec, answer: &str) -> String {
        if self != Self::Action {
            return answer.to_owned();
        }
        let output = spec.output.schema.as_ref().and_then(|_| serde_json::from_str(answer).ok());
        json!({ ANSWER_TOOL: output.unwrap_or_else(|| Value::from(answer)) }).to_string()
    }

    /// Returns the form of an answer. `tools` is true if the prompt offers tools.
    pub(crate) fn form(self, spec: &ConversationSpec, model: &ModelSpec, tools: bool) -> AnswerForm {
        match self.unbounded_form(spec, tools) {
            AnswerForm::Schema(schema) => AnswerForm::Schema(model.bounds.within(schema)),
            form => form,
        }
    }

    fn unbounded_form(self, spec: &ConversationSpec, tools: bool) -> AnswerForm {
        match (self, &spec.output.schema) {
            (Self::Native { beside_tools }, Some(schema)) if beside_tools || !tools => {
                AnswerForm::Schema(as_object(&schema.value))
            }
            (Self::Text { json: true }, Some(schema)) if is_object(&schema.value) && !tools => {
                AnswerForm::Json
            }
            (Self::Action, _) => AnswerForm::Schema(action_schema(spec, tools)),
            _ => AnswerForm::Free,
        }
    }
}

/// Returns whether a schema accepts only objects.
fn is_object(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "object")
}

/// Returns the schema, wrapped in an object if necessary, because APIs of models require objects.
fn as_object(schema: &Value) -> Value {
    if is_object(schema) {
        return schema.clone();
    }
    let (mut inner, mut root) = (schema.clone(), Map::new());
    if let Some(inner) = inner.as_object_mut() {
        // References start at the root, so definitions must be there.
        for definitions in ["$defs", "definitions"] {
            if let Some(found) = inner.shift_remove(definitions) {
                root.insert(definitions.to_owned(), found);
            }
        }
    }
    root.insert("type".to_owned(), "object".into());
    root.insert("properties".to_owned(), json!({ WRAPPER: inner }));
    root.insert("required".to_owned(), json!([WRAPPER]));
    root.insert("additionalProperties".to_owned(), false.into());
    root.into()
}

/// Returns the output in an answer to a schema of [`as_object`].
fn unwrapped(schema: &Value, mut value: Value) -> Value {
    if is_object(schema) {
        return value;
    }
    match value.as_object_mut() {
        Some(members) if members.len() == 1 && members.contains_key(WRAPPER) => {
            members.shift_remove(WRAPPER).unwrap_or_default()
        }
        _ => value,
    }
}

/// Returns one schema for calls and answer, for models without tool calls.
fn action_schema(spec: &ConversationSpec, tools: bool) -> Value {
    let mut choices = Vec::new();
    let mut definitions = Map::new();
    // References start at the root. Only the first schema keeps its definitions, because names of two
    // schemas could collide. Values are validated against the full schemas anyway.
    let mut lift = |schema: &Value| {
        let mut schema = schema.clone();
        let Some(members) = schema.as_object_mut() else { return schema };
        let found: Vec<(String, Value)> = ["$defs", "definitions"]
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), members.shift_remove(*key)?)))
            .collect();
        if found.is_empty() {
            return schema;
        }
        if definitions.is_empty() {
            definitions.extend(found);
            return schema;
        }
        json!({"type": members.get("type").cloned().unwrap_or_else(|| "object".into())})
    };
    for tool in spec.tools.iter().filter(|_| tools) {
        choices.push(json!({
            "type": "object",
            "properties": {"tool": {"const": tool.declaration.name}, "arguments": lift(&tool.declaration.shown_parameters())},
            "required": ["tool", "arguments"],
            "additionalProperties": false,
        }));
    }
    let answer =
        spec.output.schema.as_ref().map_or_else(|| json!({"type": "string"}), |schema| lift(&schema.value));
    choices.push(json!({
        "type": "object",
        "properties": {ANSWER_TOOL: answer},
        "required": [ANSWER_TOOL],
        "additionalProperties": false,
    }));
    let mut schema = Map::new();
    schema.extend(definitions);
    schema.insert("anyOf".to_owned(), choices.into());
    schema.into()
}

fn action_instruction(spec: &ConversationSpec) -> String {
    if spec.tools.is_empty() {
        return format!("Answer with {{\"{ANSWER_TOOL}\": OUTPUT}} and nothing else.");
    }
    let mut text = format!(
        "You can use tools. To use one, answer with {{\"tool\": NAME, \"arguments\": {{…}}}} and nothing else; its result \
         comes with the next message. When the work is done, answer with {{\"{ANSWER_TOOL}\": OUTPUT}}. Tools:"
    );
    for tool in spec.tools.iter() {
        let _ = write!(text, "\n- {}: {}", tool.declaration.name, tool.declaration.description);
    }
    text
}

/// Parses calls from the text of a model without tool calls. Returns other answers unchanged.
pub(crate) fn with_calls_of_text(
    spec: &ConversationSpec,
    model: &ModelSpec,
    mut answer: ModelTurn,
) -> ModelTurn {
    if AnswerPlan::of(spec, model) != AnswerPlan::Action || !answer.calls.is_empty() {
        return answer;
    }
    let mut values = json_values(&answer.text).into_iter().rev();
    let is_action = |value: &Value| value.get("tool").is_some() || value.get(ANSWER_TOOL).is_some();
    let Some(Value::Object(members)) = values.find(is_action) else { return answer };
    if let Some(tool) = members.get("tool").and_then(Value::as_str) {
        let arguments = members.get("arguments").cloned().unwrap_or_else(|| json!({}));
        answer.calls.push(RequestedCall {
            id: "call_0".to_owned(),
            tool: tool.to_owned(),
            arguments: arguments.to_string(),
            through: None,
        });
    }
    answer
}

/// Result of parsing a final answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FinalAnswer {
    /// The output, valid against its schema.
    Output(Value),
    /// The output is this artifact.
    Artifact(String),
    /// The model reports a failure.
    Failed(String),
    /// The output is invalid, for these reasons.
    Bad(Vec<String>),
}

/// Parses an answer without calls.
pub(crate) fn read_text(spec: &ConversationSpec, plan: AnswerPlan, text: &str) -> FinalAnswer {
    if let Some(embed) = ResultEmbed::last(text) {
        return read_marker(&embed);
    }
    let Some(schema) = &spec.output.schema else {
        if plan == AnswerPlan::Marker {
            return FinalAnswer::Bad(vec![
                "the marker «result:artifact=NAME:vN status=success» is missing".to_owned(),
            ]);
        }
        let mut values = json_values(text).into_iter().filter(|_| plan == AnswerPlan::Action);
        let answer = values.next_back().map(action_output);
        let words = match answer {
            Some(Value::String(words)) => words,
            Some(other) => other.to_string(),
            None => text.trim().to_owned(),
        };
        return if words.is_empty() {
            FinalAnswer::Bad(vec!["the answer is empty".to_owned()])
        } else {
            FinalAnswer::Output(json!({ "text": words }))
        };
    };
    let output_of = |value| match plan {
        AnswerPlan::Action => action_output(value),
        AnswerPlan::Native { .. } => unwrapped(&schema.value, value),
        _ => value,
    };
    let fits = |value: &Value| violations(schema, value);
    // Drafts precede the answer: the last value that fits is the output.
    let mut last_bad = None;
    for value in json_values(text).into_iter().rev().map(output_of) {
        let bad = fits(&value);
        if bad.is_empty() {
            return FinalAnswer::Output(value);
        }
        last_bad.get_or_insert(bad);
    }
    if let Some(bad) = last_bad {
        return FinalAnswer::Bad(bad);
    }
    // A schema of a string accepts the plain text.
    let words = Value::String(text.trim().to_owned());
    if !text.trim().is_empty() && fits(&words).is_empty() {
        FinalAnswer::Output(words)
    } else {
        FinalAnswer::Bad(vec!["the answer contains no JSON".to_owned()])
    }
}

/// Parses the arguments of the final tool.
pub(crate) fn read_answer_call(spec: &ConversationSpec, arguments: &str) -> FinalAnswer {
    let Some(schema) = &spec.output.schema else {
        return FinalAnswer::Bad(vec!["there is no such tool".to_owned()]);
    };
    match serde_json::from_str::<Value>(arguments) {
        Err(error) => FinalAnswer::Bad(vec![format!("the arguments are not JSON: {error}")]),
        Ok(value) => {
            let value = unwrapped(&schema.value, value);
            match violations(schema, &value) {
                bad if bad.is_empty() => FinalAnswer::Output(value),
                bad => FinalAnswer::Bad(bad),
            }
        }
    }
}

fn read_marker(embed: &ResultEmbed) -> FinalAnswer {
    if embed.failed {
        let reason = embed.message.clone().unwrap_or_else(|| "the model reported a failure".to_owned());
        return FinalAnswer::Failed(shortened(&crate::text::without_hidden(&reason), 500));
    }
    match embed.reference() {
        Some(Ok(reference)) => FinalAnswer::Artifact(reference.to_string()),
        Some(Err(bad)) => FinalAnswer::Bad(vec![bad.to_string()]),
        None => FinalAnswer::Bad(vec!["the marker names no artifact".to_owned()]),
    }
}

/// Returns the output in an answer of [`action_schema`].
fn action_output(value: Value) -> Value {
    match value {
        Value::Object(mut members) if members.len() == 1 && members.contains_key(ANSWER_TOOL) => {
            members.shift_remove(ANSWER_TOOL).unwrap_or_default()
        }
        other => other,
    }
}

/// Returns violations of a schema for the model: pointer and message.
pub(crate) fn violations(schema: &crate::spec::OutputSchema, value: &Value) -> Vec<String> {
    violation_lines(&schema.compiled.errors(value))
}

pub(crate) fn violation_lines(violations: &[sinew_source::Violation]) -> Vec<String> {
    let line = |violation: &sinew_source::Violation| {
        let place = if violation.pointer.is_empty() { "(root)" } else { &violation.pointer };
        format!("{place}: {}", violation.message)
    };
    violations.iter().take(MAX_TOLD_VIOLATIONS).map(line).collect()
}
