//! Agent cards of agents and workflows, and their extensions.

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::a2a::{AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill};
use crate::catalogue::Catalogue;
use crate::id::subject_token;
use crate::mcp_offer::McpOffer;

/// Extension URI: the type of agent, `workflow` for workflows.
pub const AGENT_TYPE: &str = "https://solace.com/a2a/extensions/agent-type";
/// Extension URI: input and output JSON Schemas.
pub const SCHEMAS: &str = "https://solace.com/a2a/extensions/sam/schemas";
/// Extension URI: picture of the workflow.
pub const VISUALISATION: &str = "https://solace.com/a2a/extensions/sam/workflow-visualization";
/// Extension URI: delivery of tasks to the agent, see [`Delivery`].
pub const DELIVERY: &str = "https://github.com/sinew-mesh/sinew/a2a/extensions/delivery/v1";
/// Extension URI: the agent accepts tasks of executions in the short form, see
/// [`crate::task::WorkflowNodeRequest`].
pub const NODE_REQUESTS: &str = "https://github.com/sinew-mesh/sinew/a2a/extensions/node-requests/v1";
/// `protocolBinding` of an agent on the mesh.
pub const NATS_BINDING: &str = "https://github.com/sinew-mesh/sinew/a2a/bindings/nats/v1";

/// Time after the last announcement until a card expires.
pub const CARD_TTL: Duration = Duration::from_mins(1);

/// Prefix of the name under which an execution calls an agent: `call:` and the name of the agent.
pub const AGENT_CALL_PREFIX: &str = "call:";

/// Name of the workflow by which an agent queries a person. Its input is
/// `{prompt, data, people, timeout_ms}`, its output `{approved, by, comment, answer, timed_out}`.
pub const PERSON_QUESTION: &str = "ask:person";
/// Keyword of an input schema: the property that a plain text fills, if the author of a workflow named
/// one.
pub const TEXT_INPUT: &str = "x-text-input";

/// Returns the name under which an agent is called in an execution, which survives crashes of the
/// caller and of the agent. Its output is `{output}`.
pub fn agent_call(agent: &str) -> String {
    format!("{AGENT_CALL_PREFIX}{agent}")
}

/// Time between two announcements of a card.
pub const CARD_INTERVAL: Duration = Duration::from_secs(5);

/// Time without an announcement after which an agent is reported as late: two announcements were
/// missed.
pub const CARD_LATE_AFTER: Duration = Duration::from_secs(12);

/// Returns whether a card that was last announced `age` ago has expired.
pub fn is_expired(age: Duration, ttl: Duration) -> bool {
    age > ttl
}

/// Kind of agent that a card announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AgentKind {
    /// Processes tasks itself.
    #[default]
    Agent,
    /// Runs a workflow; callers get a workflow tool for it.
    Workflow,
}

/// Delivery of tasks to an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// Through the task stream: tasks wait for the agent and are redelivered when it crashes.
    #[default]
    Queue,
    /// By request and reply: lowest latency. The executor retries when the agent crashes.
    Direct,
}

/// Picture of a workflow in either vocabulary; both are sent under [`VISUALISATION`].
#[derive(Clone, Debug, PartialEq)]
pub enum Visualisation {
    /// The definition itself (`workflow_config`, current vocabulary); see [`workflow_config`].
    Config(Value),
    /// Mermaid source (`mermaid_source`, vocabulary of the specification).
    Mermaid(String),
}

/// Contents of a card, by name.
#[derive(Clone, Debug, Default)]
pub struct Announcement {
    /// Name of the agent, to which tasks are addressed.
    pub name: String,
    /// Purpose of the agent, for people and models.
    pub description: String,
    /// Version of the agent.
    pub version: String,
    /// Agent or workflow.
    pub kind: AgentKind,
    /// JSON Schema of its input.
    pub input_schema: Option<Value>,
    /// JSON Schema of its output.
    pub output_schema: Option<Value>,
    /// Skills of the agent. A card must have one, so an empty list becomes one skill named after
    /// the agent.
    pub skills: Vec<AgentSkill>,
    /// Picture of the workflow.
    pub visualisation: Option<Visualisation>,
    /// Delivery of tasks to the agent.
    pub delivery: Delivery,
    /// Whether the agent accepts tasks of executions in the short form.
    pub node_requests: bool,
    /// Offer to MCP hosts.
    pub offer: McpOffer,
    /// Attributes by which it is found.
    pub catalogue: Catalogue,
}

impl Announcement {
    /// Creates the card of this agent in this namespace.
    pub fn card(self, namespace: &str) -> AgentCard {
        let mut capabilities = AgentCapabilities::default();
        capabilities.streaming = Some(true);
        capabilities.push_notifications = Some(false);
        capabilities.extensions = Some(self.extensions());
        let interface = AgentInterface::new(address(namespace, &self.name), NATS_BINDING);
        let skills = if self.skills.is_empty() { vec![self.own_skill()] } else { self.skills };
        AgentCard {
            name: self.name,
            description: self.description,
            supported_interfaces: vec![interface],
            provider: None,
            version: if self.version.is_empty() { "1.0.0".to_owned() } else { self.version },
            documentation_url: None,
            capabilities,
            security_schemes: None,
            security_requirements: None,
            default_input_modes: modes(),
            default_output_modes: modes(),
            skills,
            signatures: None,
            icon_url: None,
            url: None,
        }
    }

    fn own_skill(&self) -> AgentSkill {
        let tag = if self.kind == AgentKind::Workflow { "workflow" } else { "agent" };
        AgentSkill {
            id: self.name.clone(),
            name: self.name.clone(),
            description: if self.description.is_empty() {
                self.name.clone()
            } else {
                self.description.clone()
            },
            tags: vec![tag.to_owned()],
            examples: None,
            input_modes: None,
            output_modes: None,
            security_requirements: None,
        }
    }

    fn extensions(&self) -> Vec<AgentExtension> {
        let mut extensions = Vec::new();
        if self.kind == AgentKind::Workflow {
            extensions.push(workflow_type());
        }
        let mut schemas = Map::new();
        for (name, schema) in [("input_schema", &self.input_schema), ("output_schema", &self.output_schema)] {
            if let Some(schema) = schema {
                schemas.insert(name.to_owned(), schema.clone());
            }
        }
        if !schemas.is_empty() {
            let what = format!("Input and output JSON schemas for the {}.", self.kind.word());
            extensions.push(extension(SCHEMAS, &what, schemas.into()));
        }
        match &self.visualisation {
            None => {}
            Some(Visualisation::Config(config)) => {
                let what = "The definition of the workflow.";
                extensions.push(extension(VISUALISATION, what, json!({"workflow_config": config})));
            }
            Some(Visualisation::Mermaid(source)) => {
                let what = "Mermaid JS diagram of the workflow logic.";
                extensions.push(extension(VISUALISATION, what, json!({"mermaid_source": source})));
            }
        }
        if self.delivery == Delivery::Direct {
            extensions.push(direct_delivery());
        }
        if self.node_requests {
            let what = "Tasks of executions may come as workflow_node_request.";
            extensions.push(extension(NODE_REQUESTS, what, json!({"version": 1})));
        }
        extensions.extend(self.offer.to_extension());
        extensions.extend(self.catalogue.to_extension());
        extensions
    }
}

impl AgentKind {
    /// Returns the name of the kind.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Workflow => "workflow",
        }
    }
}

/// Returns the extension that marks the card of a workflow.
pub fn workflow_type() -> AgentExtension {
    let what = "Specifies the type of agent (e.g., 'workflow').";
    extension(AGENT_TYPE, what, json!({"type": "workflow"}))
}

/// Returns the extension that marks an agent that is called directly, not through a queue.
pub fn direct_delivery() -> AgentExtension {
    extension(DELIVERY, "How tasks reach the agent.", json!({"delivery": "direct"}))
}

fn extension(uri: &str, description: &str, params: Value) -> AgentExtension {
    let mut extension = AgentExtension::new(uri);
    extension.description = Some(description.to_owned());
    extension.params = Some(params);
    extension
}

fn modes() -> Vec<String> {
    vec!["application/json".to_owned(), "text/plain".to_owned()]
}

/// Returns the address of an agent on the mesh: `nats:///NAMESPACE/AGENT`. Subjects are derived
/// from the names, never from this address.
pub fn address(namespace: &str, agent: &str) -> String {
    format!("nats:///{}/{}", subject_token(namespace), subject_token(agent))
}

/// Returns the parameters of the card's extension with this URI, or `None` if it is absent.
pub fn extension_params<'a>(card: &'a AgentCard, uri: &str) -> Option<&'a Value> {
    card.capabilities.extensions.as_ref()?.iter().find(|extension| extension.uri == uri)?.params.as_ref()
}

/// Returns the kind of agent that a card announces.
pub fn kind(card: &AgentCard) -> AgentKind {
    match extension_params(card, AGENT_TYPE).and_then(|params| params.get("type")?.as_str()) {
        Some("workflow") => AgentKind::Workflow,
        _ => AgentKind::Agent,
    }
}

/// Returns the JSON Schema of an agent's input, if its card has one.
pub fn input_schema(card: &AgentCard) -> Option<&Value> {
    schema(card, "input_schema")
}

/// Returns true if a plain text can be the input of an agent: its schema, if it has one, accepts a
/// string, or an object that requires at most one member, a string.
pub fn takes_text(card: &AgentCard) -> bool {
    input_schema(card).is_none_or(is_text_schema)
}

fn is_text_schema(schema: &Value) -> bool {
    if schema["type"] == "string" {
        return true;
    }
    let members = schema["properties"].as_object();
    let is_text = |member: &Value| member["type"] == "string" || member["type"].is_null();
    let mut required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    match (required.next(), required.next()) {
        (Some(only), None) => members.and_then(|members| members.get(only)).is_some_and(is_text),
        (None, _) => members.is_none_or(|members| members.values().any(is_text)),
        _ => false,
    }
}

/// Returns the JSON Schema of an agent's output, if its card has one.
pub fn output_schema(card: &AgentCard) -> Option<&Value> {
    schema(card, "output_schema")
}

fn schema<'a>(card: &'a AgentCard, which: &str) -> Option<&'a Value> {
    extension_params(card, SCHEMAS)?.get(which).filter(|schema| !schema.is_null())
}

/// Returns the picture of a card, in either vocabulary.
pub fn visualisation(card: &AgentCard) -> Option<Visualisation> {
    let params = extension_params(card, VISUALISATION)?;
    if let Some(config) = params.get("workflow_config") {
        return Some(Visualisation::Config(config.clone()));
    }
    params.get("mermaid_source")?.as_str().map(|source| Visualisation::Mermaid(source.to_owned()))
}

/// Returns how tasks are delivered to the agent of this card.
pub fn delivery(card: &AgentCard) -> Delivery {
    match extension_params(card, DELIVERY).and_then(|params| params.get("delivery")?.as_str()) {
        Some("direct") => Delivery::Direct,
        _ => Delivery::Queue,
    }
}

/// Returns whether the agent of this card serves an A2A endpoint. An agent without one reads tasks
/// from its queue only; other callers call it through an execution of [`agent_call`].
pub fn has_endpoint(card: &AgentCard) -> bool {
    let endpoint = extension_params(card, DELIVERY).and_then(|params| params.get("endpoint")?.as_bool());
    endpoint != Some(false)
}

/// Returns whether the agent of this card accepts tasks of executions in the short form.
pub fn takes_node_requests(card: &AgentCard) -> bool {
    let version = extension_params(card, NODE_REQUESTS).and_then(|params| params.get("version")?.as_u64());
    version == Some(1)
}

/// Converts a workflow definition (the object under `workflow:`) for a card: removes the skills,
/// which the card already has, and renames the fields of switch cases to `condition` and `node`.
pub fn workflow_config(definition: &Value) -> Value {
    let mut config = definition.clone();
    if let Some(fields) = config.as_object_mut() {
        fields.shift_remove("skills");
    }
    let nodes = config.get_mut("nodes").and_then(Value::as_array_mut);
    for node in nodes.into_iter().flatten().filter(|node| node["type"] == "switch") {
        let cases = node.get_mut("cases").and_then(Value::as_array_mut);
        for case in cases.into_iter().flatten().filter_map(Value::as_object_mut) {
            *case = std::mem::take(case)
                .into_iter()
                .map(|(key, value)| match key.as_str() {
                    "when" => ("condition".to_owned(), value),
                    "then" => ("node".to_owned(), value),
                    _ => (key, value),
                })
                .collect();
        }
    }
    config
}
