//! The file as a graph: nodes and connections with their spans, and errors in their shape.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_protocol::code;
use sinew_source::{Diagnostic, Node, Span};

use super::text;
use crate::near_members::missing_member;

/// Default system prompt of an agent.
const SYSTEM_PROMPT: &str = "You are a helpful assistant.";
/// Default name of an agent.
pub(super) const AGENT_NAME: &str = "Agent";
/// Default model of an agent.
const MODEL: &str = "gpt-5";
/// Default effort of an agent.
const EFFORT: &str = "low";
/// The source handle that marks delegation instead of flow.
const SUBAGENT: &str = "subagent";

/// A graph as written in the file.
pub(super) struct CanvasGraph {
    pub(super) nodes: Vec<FileNode>,
    pub(super) connections: Vec<FlowConnection>,
}

/// One node of the file.
pub(super) struct FileNode {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) work: Work,
    pub(super) span: Span,
    pub(super) id_span: Span,
    pub(super) kind_span: Span,
}

/// One connection of the file.
pub(super) struct FlowConnection {
    pub(super) source: String,
    pub(super) target: String,
    pub(super) source_handle: String,
    pub(super) target_handle: Option<String>,
    pub(super) source_span: Span,
    pub(super) target_span: Span,
    /// Span of the source handle, or else of the connection.
    pub(super) handle_span: Span,
}

impl FlowConnection {
    /// Returns whether this is a delegation and not a flow connection.
    pub(super) fn is_subagent(&self) -> bool {
        self.source_handle == SUBAGENT
    }
}

/// Operation of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case")]
pub(super) enum Work {
    /// Emits the initial input.
    Start {
        /// Value from the file; the empty string by default.
        initial: Value,
    },
    /// Calls an agent.
    Agent(Agent),
    /// Selects a branch by the text of the previous output.
    If {
        /// Conditions; the first match wins.
        conditions: Vec<BranchCondition>,
    },
    /// Waits for a person's answer.
    Approval {
        /// Text for the person.
        prompt: String,
    },
    /// Unknown type: reported as a warning, returns null.
    Unknown,
    /// Placeholder of a graph that cannot start.
    Broken {
        /// The reason.
        message: String,
    },
}

/// An agent node's own settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Agent {
    pub(super) name: String,
    /// False for the default name.
    pub(super) named: bool,
    pub(super) system_prompt: String,
    pub(super) user_prompt: String,
    pub(super) model: String,
    pub(super) effort: String,
    /// As in the file; null by default.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(super) tools: Value,
}

impl Agent {
    /// Returns whether it may delegate.
    pub(super) fn delegates(&self) -> bool {
        self.tools.get("subagents").is_some_and(crate::js::truthy)
    }
}

/// One condition of an `if`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BranchCondition {
    pub(super) contains: bool,
    pub(super) value: String,
}

impl BranchCondition {
    /// Returns the operator as written in logs; an unknown operator is treated as `equal`.
    pub(super) fn operator(&self) -> &'static str {
        if self.contains { "contains" } else { "equal" }
    }
}

/// Returns the graph: the document itself, or the graph inside a server request.
pub(super) fn graph_of(root: &Node) -> &Node {
    match root.get("graph") {
        Some(graph) if root.get("nodes").is_none() => graph,
        _ => root,
    }
}

/// Returns the resemblance of a document to these graphs, 0 to 100.
pub(super) fn resemblance(graph: &Node) -> u8 {
    let Some(nodes) = graph.get("nodes").and_then(Node::as_array) else { return 0 };
    let connections = match graph.get("connections") {
        Some(connections) => connections.as_array().unwrap_or_default(),
        None => return 0,
    };
    // One end may be misspelled.
    let ours = |connection: &Node| connection.get("source").is_some() || connection.get("target").is_some();
    if !connections.iter().all(ours) {
        return 0;
    }
    let known = |node: &Node| {
        let kind = node.get("type").and_then(Node::as_str);
        kind.is_some_and(|kind| matches!(kind, "start" | "agent" | "if" | "approval" | "input"))
    };
    if nodes.iter().any(known) { 90 } else { 20 }
}

/// Reads a graph; reports and omits entries without a usable shape.
pub(super) fn read(graph: &Node, found: &mut Vec<Diagnostic>) -> CanvasGraph {
    let shape = |message: String| {
        Diagnostic::error(code::AGENTFLOW_GRAPH_WRONG_SHAPE.as_str(), message).sub_code("SCHEMA")
    };
    let mut report = |span: Span, message: String| found.push(shape(message).at(span));
    let mut broken: Vec<Diagnostic> = Vec::new();
    let mut nodes: Vec<FileNode> = Vec::new();
    match graph.get("nodes").map(|nodes| (nodes, nodes.as_array())) {
        Some((_, Some(items))) => {
            for (n, item) in items.iter().enumerate() {
                match file_node(item) {
                    Ok(node) => nodes.push(node),
                    Err((key, why)) => {
                        broken.push(missing_member(shape(format!("nodes[{n}] {why}")), item, key));
                    }
                }
            }
        }
        Some((other, None)) => report(other.span, format!("nodes must be a list, not {}", other.type_name())),
        None => report(graph.span, "a graph needs a list of nodes".to_owned()),
    }
    let mut connections = Vec::new();
    match graph.get("connections").map(|list| (list, list.as_array())) {
        Some((_, Some(items))) => {
            for (n, item) in items.iter().enumerate() {
                match connection(item) {
                    Ok(connection) => connections.push(connection),
                    Err((key, why)) => {
                        broken.push(missing_member(shape(format!("connections[{n}] {why}")), item, key));
                    }
                }
            }
        }
        Some((other, None)) if !other.is_null() => {
            report(other.span, format!("connections must be a list, not {}", other.type_name()));
        }
        _ => {}
    }
    found.extend(broken);
    let mut places = std::collections::BTreeMap::new();
    for node in &nodes {
        if let Some(first) = places.insert(node.id.as_str(), node.id_span) {
            found.push(
                Diagnostic::error(
                    code::AGENTFLOW_GRAPH_WRONG_SHAPE.as_str(),
                    format!("two nodes have the id '{}'", node.id),
                )
                .at(node.id_span)
                .sub_code("DUPLICATE_NODE")
                .related(first, "the other one"),
            );
        }
    }
    CanvasGraph { nodes, connections }
}

/// Reads a node; an error is the member that it concerns, and the reason.
fn file_node(node: &Node) -> Result<FileNode, (&'static str, String)> {
    let Some(id) = node.get("id").and_then(Node::as_str).filter(|id| !id.is_empty()) else {
        return Err(("id", "needs an id that is a text".into()));
    };
    let Some(kind) = node.get("type").and_then(Node::as_str) else {
        return Err(("type", format!("('{id}') needs a type that is a text")));
    };
    let data = node.get("data").map(Node::to_json).unwrap_or_default();
    if !(data.is_null() || data.is_object()) {
        return Err(("data", format!("('{id}') has data that is not an object")));
    }
    // `input` is the old name of approvals.
    let kind = if kind == "input" { "approval" } else { kind };
    let work = match kind {
        "start" => Work::Start { initial: initial_input(&data) },
        "agent" => Work::Agent(agent(&data)),
        "if" => Work::If { conditions: conditions(&data) },
        "approval" => Work::Approval { prompt: given(&data, "prompt", "") },
        _ => Work::Unknown,
    };
    let place = |key: &str| node.get(key).map_or(node.span, |value| value.span);
    Ok(FileNode {
        id: id.to_owned(),
        kind: kind.to_owned(),
        work,
        span: node.span,
        id_span: place("id"),
        kind_span: place("type"),
    })
}

fn initial_input(data: &Value) -> Value {
    match data.get("initialInput") {
        None | Some(Value::Null) => Value::String(String::new()),
        Some(initial) => initial.clone(),
    }
}

fn agent(data: &Value) -> Agent {
    let name = given(data, "agentName", "");
    Agent {
        named: !name.is_empty(),
        name: if name.is_empty() { AGENT_NAME.to_owned() } else { name },
        system_prompt: given(data, "systemPrompt", SYSTEM_PROMPT),
        user_prompt: given(data, "userPrompt", ""),
        model: given(data, "model", MODEL),
        effort: given(data, "reasoningEffort", EFFORT),
        tools: data.get("tools").cloned().unwrap_or_default(),
    }
}

/// Returns a string field, or the default if it is empty or missing.
fn given(data: &Value, key: &str, default: &str) -> String {
    match data.get(key) {
        None | Some(Value::Null) => default.to_owned(),
        Some(value) => {
            Some(text::plain(value)).filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned())
        }
    }
}

fn conditions(data: &Value) -> Vec<BranchCondition> {
    let one = |condition: &Value| BranchCondition {
        contains: condition.get("operator").and_then(Value::as_str) == Some("contains"),
        value: condition.get("value").map(text::plain).unwrap_or_default(),
    };
    match (data.get("conditions"), data.get("condition")) {
        (Some(Value::Array(conditions)), _) => conditions.iter().map(one).collect(),
        (_, Some(legacy @ Value::Object(_))) => vec![one(legacy)],
        // Before operators existed, a condition was a string to search for.
        (_, Some(Value::String(legacy))) => vec![BranchCondition { contains: true, value: legacy.clone() }],
        _ => Vec::new(),
    }
}

/// Reads a connection; an error is the member that it concerns, and the reason.
fn connection(node: &Node) -> Result<FlowConnection, (&'static str, String)> {
    let end = |key: &'static str| {
        let id = node.get(key).and_then(Node::as_str).map(str::to_owned);
        id.ok_or_else(|| (key, format!("needs a {key} that is a text")))
    };
    let place = |key: &str| node.get(key).map_or(node.span, |value| value.span);
    let handle = |key: &str| node.get(key).and_then(Node::as_str).map(str::to_owned);
    Ok(FlowConnection {
        source: end("source")?,
        target: end("target")?,
        source_handle: handle("sourceHandle").unwrap_or_else(|| "output".to_owned()),
        target_handle: handle("targetHandle"),
        source_span: place("source"),
        target_span: place("target"),
        handle_span: place("sourceHandle"),
    })
}
