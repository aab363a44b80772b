//! Workflows as tools of language models: the declaration for the model, and the message of a call.
//!
//! A call has two modes. In parameter mode the model writes the input, which is checked and stored
//! as an artifact. In artifact mode it references an existing artifact, whose bytes do not pass
//! through the model again.

mod render;
mod strict;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::code;

use crate::a2a::{AgentCard, Message, Part, SendMessageRequest};
use crate::artifact::{ArtifactName, ArtifactRef, ArtifactUri};
use crate::card::{self, AgentKind};
use crate::fault::Fault;
use crate::message::{MeshMessage, Vocabulary, WorkflowNodeRequestData};

/// Operator code of a call with invalid arguments.
pub const BAD_ARGUMENTS: &str = code::TOOL_ARGUMENTS_DO_NOT_FIT.as_str();

/// Parameter that switches a call to artifact mode. It hides a parameter of the workflow with this
/// name.
pub const INPUT_ARTIFACT: &str = "input_artifact";

/// Workflow that a model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkflowTool {
    /// Name of the workflow.
    pub workflow: String,
    /// Purpose of the tool, from its card; empty if the card has none.
    pub description: String,
    /// JSON Schema of its input.
    pub input_schema: Value,
    /// JSON Schema of its output, if it has one.
    pub output_schema: Option<Value>,
}

/// Declaration of a tool for models.
///
/// [`openai`](Self::openai), [`anthropic`](Self::anthropic) and [`mcp`](Self::mcp) render it for
/// each interface. A tool that accepts an artifact is rendered in the dual-mode form of the
/// specification (section "Tool Declaration Generation"): every parameter is nullable and none is
/// required.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolDeclaration {
    /// Name that the model uses.
    pub name: String,
    /// Purpose of the tool, then the way to call it.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
    /// Whether an existing artifact may replace the arguments, as `input_artifact`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_artifact: bool,
    /// JSON Schema of the result, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
}

/// Input of a tool's call, by mode.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolInput {
    /// Parameter mode: the input, to be stored as an artifact first.
    Parameters(Map<String, Value>),
    /// Artifact mode: the name or address of an existing artifact.
    Artifact(String),
}

/// Caller of a tool, and the user on whose behalf it calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The calling agent.
    pub agent: String,
    /// User on whose behalf it calls.
    pub user: String,
    /// The session (A2A context) it works in.
    pub session: String,
    /// Task during which it calls.
    pub task: String,
    /// The model's own id of the call.
    pub function_call: String,
    /// Id of the A2A message; a repeated call has the same id.
    pub message: String,
}

impl ToolDeclaration {
    /// Selects the mode of a call by its arguments. Does not check them against the parameters.
    pub fn input(&self, arguments: &Map<String, Value>) -> Result<ToolInput, Fault> {
        if !self.takes_artifact {
            return Ok(ToolInput::Parameters(arguments.clone()));
        }
        let content = self.given(arguments);
        match arguments.get(INPUT_ARTIFACT) {
            None | Some(Value::Null) => Ok(ToolInput::Parameters(content)),
            Some(Value::String(name)) if name.is_empty() => Ok(ToolInput::Parameters(content)),
            Some(Value::String(name)) if content.is_empty() => Ok(ToolInput::Artifact(name.clone())),
            Some(Value::String(_)) => {
                let names: Vec<&str> = content.keys().map(String::as_str).collect();
                let message = format!("give either '{INPUT_ARTIFACT}' or parameters ({})", names.join(", "));
                Err(Fault::invalid(BAD_ARGUMENTS, message))
            }
            Some(_) => Err(Fault::invalid(BAD_ARGUMENTS, format!("'{INPUT_ARTIFACT}' must be a filename"))),
        }
    }

    /// Returns the given parameters. All are declared nullable, so null means "not given" unless
    /// the workflow's own schema accepts null.
    fn given(&self, arguments: &Map<String, Value>) -> Map<String, Value> {
        let wants_null = |name: &str| {
            self.properties().any(|(property, schema)| property == name && render::takes_null(schema))
        };
        let given = |(name, value): &(&String, &Value)| {
            name.as_str() != INPUT_ARTIFACT && (!value.is_null() || wants_null(name))
        };
        arguments.iter().filter(given).map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

impl WorkflowTool {
    /// Creates the tool for a workflow. Without an input schema it accepts any object.
    pub fn new(workflow: impl Into<String>, input_schema: Option<&Value>) -> Self {
        let any = || json!({"type": "object", "properties": {}, "additionalProperties": true});
        Self {
            workflow: workflow.into(),
            description: String::new(),
            input_schema: input_schema.cloned().unwrap_or_else(any),
            output_schema: None,
        }
    }

    /// Creates the tool for the workflow of a card; `None` for another kind of agent.
    pub fn from_card(card: &AgentCard) -> Option<Self> {
        (card::kind(card) == AgentKind::Workflow).then(|| Self {
            description: card.description.clone(),
            output_schema: card::output_schema(card).cloned(),
            ..Self::new(card.name.clone(), card::input_schema(card))
        })
    }

    /// Returns `workflow_` and the workflow's name, with `_` for characters that are invalid in a
    /// tool name.
    pub fn name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        format!("workflow_{}", self.workflow.chars().map(plain).collect::<String>())
    }

    /// Returns the declaration for models.
    pub fn declaration(&self) -> ToolDeclaration {
        let mut parameters = Map::new();
        parameters.insert("type".to_owned(), "object".into());
        let properties: Map<String, Value> = self
            .properties()
            .filter(|(name, _)| *name != INPUT_ARTIFACT)
            // Model interfaces reject `true` as a schema.
            .map(|(name, schema)| (name.clone(), if schema.is_object() { schema.clone() } else { json!({}) }))
            .collect();
        let required = self.input_schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let required: Vec<Value> = required
            .filter(|name| name.as_str().is_some_and(|name| properties.contains_key(name)))
            .cloned()
            .collect();
        parameters.insert("properties".to_owned(), properties.into());
        parameters.insert("required".to_owned(), required.into());
        for word in ["additionalProperties", "$defs", "definitions"] {
            if let Some(found) = self.input_schema.get(word) {
                parameters.insert(word.to_owned(), found.clone());
            }
        }
        ToolDeclaration {
            name: self.name(),
            description: purpose_first(
                &self.description,
                &format!("Invoke the '{}' workflow.", self.workflow),
            ),
            parameters: parameters.into(),
            takes_artifact: true,
            output_schema: self.output_schema.clone(),
        }
    }

    fn properties(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.input_schema.get("properties").and_then(Value::as_object).into_iter().flatten()
    }

    /// Checks a call's arguments and selects its mode.
    ///
    /// `check` lists the violations of a JSON Schema (its first argument) by an instance (its
    /// second). An existing artifact is not checked here: the workflow checks it.
    pub fn prepare(
        &self,
        arguments: &Map<String, Value>,
        check: impl FnOnce(&Value, &Value) -> Vec<String>,
    ) -> Result<ToolInput, Fault> {
        let input = self.declaration().input(arguments)?;
        let ToolInput::Parameters(content) = &input else { return Ok(input) };
        let violations = check(&self.input_schema, &Value::Object(content.clone()));
        if !violations.is_empty() {
            let message = format!("the arguments break the input schema of workflow '{}'", self.workflow);
            return Err(Fault::invalid(BAD_ARGUMENTS, message).with_details(violations));
        }
        Ok(input)
    }

    /// Returns the name of the artifact for the input of a call in parameter mode:
    /// `wi_WORKFLOW.json`, with `_` for characters that are invalid in a file name. Current
    /// releases of Solace Agent Mesh append 8 hex digits, `call`, which makes it unique.
    pub fn input_artifact(&self, vocabulary: Vocabulary, call: u32) -> Result<ArtifactName, Fault> {
        let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
        let name: String = self.workflow.chars().take(200).map(plain).collect();
        Ok(ArtifactName::parse(&match vocabulary {
            Vocabulary::Current => format!("wi_{name}_{call:08x}.json"),
            Vocabulary::Spec => format!("wi_{name}.json"),
        })?)
    }

    /// Returns the A2A request of a call in either vocabulary. It always contains the reference to
    /// the artifact.
    pub fn message(
        &self,
        artifact: ArtifactRef,
        caller: &Caller,
        vocabulary: Vocabulary,
    ) -> SendMessageRequest {
        let mut reference = json!({"filename": artifact.name});
        if let Some(version) = artifact.version {
            reference["version"] = version.into();
        }
        let metadata = json!({
            "sessionBehavior": "RUN_BASED",
            "parentTaskId": caller.task,
            "function_call_id": caller.function_call,
            "agent_name": self.workflow,
            "invoked_with_artifacts": [reference],
        });
        let parts = match vocabulary {
            Vocabulary::Spec => {
                vec![Part::text(format!("Invoking workflow with input artifact: {}", artifact.name))]
            }
            Vocabulary::Current => {
                let request = MeshMessage::from(WorkflowNodeRequestData {
                    workflow_name: self.workflow.clone(),
                    node_id: caller.function_call.clone(),
                    ..WorkflowNodeRequestData::default()
                });
                vec![request.to_part(vocabulary), file(artifact, caller)]
            }
        };
        let mut message = Message::user(caller.message.clone(), parts);
        if !caller.session.is_empty() {
            message = message.with_context_id(caller.session.clone());
        }
        SendMessageRequest { tenant: None, message, configuration: None, metadata: Some(metadata) }
    }
}

fn file(artifact: ArtifactRef, caller: &Caller) -> Part {
    let name = artifact.name.to_string();
    let uri = ArtifactUri {
        app: caller.agent.clone(),
        user: caller.user.clone(),
        session: caller.session.clone(),
        artifact,
    };
    Part::url(uri.to_string()).with_filename(name).with_media_type("application/json")
}

/// Returns the description of a tool: its purpose, if it has one, and then how to call it.
pub fn purpose_first(purpose: &str, call: &str) -> String {
    let purpose = purpose.trim();
    match purpose.chars().last() {
        None => call.to_owned(),
        Some('.' | '!' | '?') => format!("{purpose} {call}"),
        Some(_) => format!("{purpose}. {call}"),
    }
}
