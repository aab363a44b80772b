//! Peers on the mesh as tools of a language model: workflows in both modes, agents with their own
//! parameters.

use serde_json::{Map, Value, json};
use sinew_protocol::a2a::{AgentCard, SendMessageRequest};
use sinew_protocol::artifact::sha256;
use sinew_protocol::card::{self, AgentKind};
use sinew_protocol::embed::split_version;
use sinew_protocol::task::point_to;
use sinew_protocol::tool::{BAD_ARGUMENTS, Caller, ToolDeclaration, ToolInput, WorkflowTool, purpose_first};
use sinew_protocol::{ArtifactName, ArtifactRef, Fault};
use sinew_source::violations;

use crate::failure::{ARTIFACTS, Failure, NO_PEER, mesh_failed, short};
use crate::peers::{Peers, call_id};
use crate::task_calls::TaskCalls;

/// The parameter of agents that take text.
const TASK: &str = "task_description";

/// A callable agent or workflow.
enum CallableTool {
    Workflow(WorkflowTool),
    Peer(PeerTool),
}

/// An agent that a model may call.
#[derive(Clone, Debug, PartialEq)]
struct PeerTool {
    agent: String,
    description: String,
    /// Schema of its input; `None` if it takes text.
    input_schema: Option<Value>,
    output_schema: Option<Value>,
}

impl CallableTool {
    /// Returns the tool of a card; `None` for the agent itself.
    fn of(card: &AgentCard, own: &str) -> Option<Self> {
        if card.name == own {
            return None;
        }
        if card::kind(card) == AgentKind::Workflow {
            return WorkflowTool::from_card(card).map(Self::Workflow);
        }
        // A model passes an object to a tool; agents with other input cannot be called as tools.
        let schema = card::input_schema(card);
        if schema.is_some_and(|schema| schema.get("properties").is_none_or(|fields| !fields.is_object())) {
            return None;
        }
        Some(Self::Peer(PeerTool {
            agent: card.name.clone(),
            description: card.description.clone(),
            input_schema: schema.cloned(),
            output_schema: card::output_schema(card).cloned(),
        }))
    }

    fn declaration(&self) -> ToolDeclaration {
        match self {
            Self::Workflow(tool) => tool.declaration(),
            Self::Peer(tool) => tool.declaration(),
        }
    }

    /// Models get the short name if the full one is too long.
    fn is_called(&self, name: &str) -> bool {
        let declaration = self.declaration();
        declaration.name == name || declaration.short_name() == name
    }
}

impl PeerTool {
    /// Returns `peer_` and the agent's name, with `_` for characters that are invalid in a tool's
    /// name.
    fn name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        format!("peer_{}", self.agent.chars().map(plain).collect::<String>())
    }

    fn parameters(&self) -> Value {
        self.input_schema.clone().unwrap_or_else(|| {
            let about = "What the agent is to do, with all it has to know.";
            json!({
                "type": "object",
                "properties": { TASK: { "type": "string", "description": about } },
                "required": [TASK],
            })
        })
    }

    fn declaration(&self) -> ToolDeclaration {
        let description = purpose_first(&self.description, &format!("Ask the agent '{}'.", self.agent));
        let mut parameters = self.parameters();
        if let Some(parameters) = parameters.as_object_mut() {
            // Model APIs require it, although the properties imply it.
            parameters.insert("type".to_owned(), "object".into());
        }
        ToolDeclaration {
            name: self.name(),
            description,
            parameters,
            takes_artifact: false,
            output_schema: self.output_schema.clone(),
        }
    }

    /// Returns the agent's input.
    fn input(&self, arguments: &Map<String, Value>) -> Result<Value, Fault> {
        let given = Value::Object(arguments.clone());
        let violations = violations(&self.parameters(), &given);
        if !violations.is_empty() {
            let message = format!("the arguments break the input schema of agent '{}'", self.agent);
            return Err(Fault::invalid(BAD_ARGUMENTS, message).with_details(violations));
        }
        Ok(match (&self.input_schema, arguments.get(TASK)) {
            (None, Some(text)) => json!({ "text": text }),
            _ => given,
        })
    }
}

impl Peers {
    async fn all(&self, own: &str) -> Result<Vec<CallableTool>, Failure> {
        let cards = self.list().await.map_err(mesh_failed)?;
        Ok(cards.iter().filter_map(|card| CallableTool::of(card, own)).collect())
    }

    pub(crate) async fn tools(&self, context: TaskCalls<'_>) -> Result<Vec<ToolDeclaration>, Failure> {
        Ok(self.all(&context.about.agent).await?.iter().map(CallableTool::declaration).collect())
    }

    /// Performs a model's tool call.
    pub(crate) async fn call_tool(
        &self,
        context: TaskCalls<'_>,
        name: &str,
        arguments: &Value,
    ) -> Result<Value, Failure> {
        let missing = || {
            Fault::failure(NO_PEER, format!("no agent or workflow provides the tool {:?}", short(name, 100)))
        };
        let tool = self.all(&context.about.agent).await?.into_iter().find(|tool| tool.is_called(name));
        let none = Map::new();
        let arguments = match arguments {
            Value::Null => &none,
            Value::Object(arguments) => arguments,
            _ => return Err(Fault::invalid(BAD_ARGUMENTS, "the arguments of a tool are an object").into()),
        };
        match tool.ok_or_else(missing)? {
            CallableTool::Workflow(tool) => self.call_workflow(context, &tool, arguments).await,
            CallableTool::Peer(tool) => self.call(context, &tool.agent, tool.input(arguments)?).await,
        }
    }

    async fn call_workflow(
        &self,
        context: TaskCalls<'_>,
        tool: &WorkflowTool,
        arguments: &Map<String, Value>,
    ) -> Result<Value, Failure> {
        let id = call_id(context, &tool.workflow);
        let reference = match tool.prepare(arguments, violations)? {
            ToolInput::Parameters(content) => {
                // The same call of the same task has the same artifact name.
                let suffix = u32::from_str_radix(&sha256(id.as_bytes())[..8], 16).unwrap_or_default();
                let name = tool.input_artifact(self.vocabulary().await, suffix)?;
                context.artifacts.put_json(name.as_str(), &Value::Object(content))?
            }
            // Not validated here: the workflow validates its input itself.
            ToolInput::Artifact(named) => {
                let (name, version) = split_version(&named);
                ArtifactRef { name: ArtifactName::parse(name).map_err(Fault::from)?, version }
            }
        };
        let request = self.workflow_request(context, tool, &id, &reference).await?;
        let output = self.ask(context, &tool.workflow, &id, request).await?.result?;
        // The next call may reference it, so that no model has to repeat it.
        context.artifacts.put_json(&result_name(&tool.workflow), &output)?;
        Ok(output)
    }

    /// Returns the request of a workflow's call whose input is an artifact of this task.
    pub(crate) async fn workflow_request(
        &self,
        context: TaskCalls<'_>,
        tool: &WorkflowTool,
        id: &str,
        input: &ArtifactRef,
    ) -> Result<SendMessageRequest, Failure> {
        let found = context.artifacts.find(input.name.as_str(), input.version);
        let found = found.ok_or_else(|| {
            let text = format!("this task has no artifact {:?}", short(input.name.as_str(), 255));
            Fault::failure(ARTIFACTS, text).with_retryable(false)
        })?;
        let reference = found.meta.reference();
        let address = self.store_artifact(context.about, &found.meta, found.bytes).await?;
        let caller = Caller {
            agent: context.about.agent.clone(),
            user: String::new(),
            session: context.about.call_context().into_owned(),
            task: context.about.task.as_str().to_owned(),
            function_call: id.to_owned(),
            message: id.to_owned(),
        };
        let mut request = tool.message(reference, &caller, self.vocabulary().await);
        point_to(&mut request, &address);
        Ok(request)
    }
}

/// Name of the artifact with the latest result of a workflow, for later calls.
fn result_name(workflow: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    format!("{}_result.json", workflow.chars().take(200).map(plain).collect::<String>())
}
