//! The kinds of nodes: what they do, who does it, what their sockets carry.
//!
//! Plugins add kinds: a file's `plugins` is an object of kind to definition, or a list of folders that each hold a
//! `definition.json` (with its `type`); the work of such a node is a task for its `agent`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sinew_source::{Diagnostic, Node};

/// Kinds by name.
pub(super) type Catalogue = BTreeMap<String, Definition>;

/// What a kind of node is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Definition {
    /// One line for people.
    pub(super) description: String,
    /// Part of the flow, of the structure, or of both.
    pub(super) mode: Mode,
    /// Who does its work; none = computed here, or structure only.
    pub(super) agent: Option<String>,
    /// Whether it says things while it works.
    pub(super) streaming: bool,
    /// Types of its output sockets by name; what is not named is data.
    pub(super) outputs: BTreeMap<String, String>,
    /// The parameter that declares its output sockets: `{port: {type, …}}`.
    pub(super) outputs_from: Option<String>,
    /// Types of its input sockets by name.
    pub(super) inputs: BTreeMap<String, String>,
    /// Parameters whose `{{ … }}` are its own business.
    pub(super) raw: Vec<String>,
    /// Parameters and their defaults.
    pub(super) parameters: Map<String, Value>,
}

/// Which part of the graph a kind of node belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mode {
    #[default]
    Flow,
    Structural,
    Hybrid,
}

fn kind(description: &str, mode: Mode) -> Definition {
    Definition { description: description.to_owned(), mode, ..Definition::default() }
}

fn asks(description: &str, mode: Mode, agent: &str, streaming: bool) -> Definition {
    Definition { agent: Some(agent.to_owned()), streaming, ..kind(description, mode) }
}

fn sockets(sockets: &[(&str, &str)]) -> BTreeMap<String, String> {
    sockets.iter().map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned())).collect()
}

/// The built-in kinds.
pub(super) fn built_in() -> Catalogue {
    let settings =
        [("model", "model"), ("instructions", "string"), ("temperature", "float"), ("tools", "tools")];
    let agent = |definition: Definition| Definition {
        inputs: sockets(&settings),
        outputs: sockets(&[("agent", "agent"), ("tools", "tools")]),
        ..definition
    };
    let prompt = [("model", "model"), ("prompt", "string"), ("temperature", "float"), ("max_tokens", "int")];
    let completion = |definition: Definition| Definition { inputs: sockets(&prompt), ..definition };
    let raw = |definition: Definition, fields: &[&str]| Definition {
        raw: fields.iter().map(|field| (*field).to_owned()).collect(),
        ..definition
    };
    let tools = |definition: Definition| Definition { outputs: sockets(&[("tools", "tools")]), ..definition };
    [
        ("chat-start", kind("the person's message enters", Mode::Hybrid)),
        ("webhook-trigger", kind("a request enters", Mode::Flow)),
        ("webhook-end", kind("the response to a request", Mode::Flow)),
        ("agent", agent(asks("an agent with its tools and sub-agents", Mode::Hybrid, "agent", true))),
        ("droid-agent", agent(asks("a coding agent", Mode::Hybrid, "droid-agent", true))),
        ("llm-completion", completion(asks("one call of a model", Mode::Flow, "llm", true))),
        (
            "structured-output",
            completion(asks("a model's answer that holds a schema", Mode::Flow, "llm", true)),
        ),
        (
            "classifier",
            completion(asks("one of several branches, chosen by a model", Mode::Flow, "llm", false)),
        ),
        ("http-request", asks("calls a service", Mode::Flow, "http", false)),
        ("prompt-template", raw(kind("a text with values filled in", Mode::Flow), &["template", "prompt"])),
        ("json-transform", kind("data reshaped by expressions", Mode::Flow)),
        ("conditional", kind("two branches by a field", Mode::Flow)),
        ("merge", kind("waits for its branches and lists what came", Mode::Flow)),
        ("reroute", kind("passes on what came", Mode::Flow)),
        ("code", raw(asks("code over what came", Mode::Flow, "code", false), &["code"])),
        ("loop", raw(kind("a graph inside, once per item", Mode::Flow), &["graph", "body"])),
        (
            "model-selector",
            Definition {
                outputs: sockets(&[("output", "model"), ("model", "model")]),
                ..kind("one model for many nodes", Mode::Flow)
            },
        ),
        ("mcp-server", tools(kind("tools of an MCP server", Mode::Structural))),
        ("toolset", tools(kind("a registered set of tools", Mode::Structural))),
    ]
    .into_iter()
    .map(|(name, definition)| (name.to_owned(), definition))
    .chain([("router".to_owned(), completion(asks("as classifier", Mode::Flow, "llm", false)))])
    .collect()
}

/// The built-in kinds and those of the file's plugins.
pub(super) fn with_plugins(
    root: &Node,
    read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    found: &mut Vec<Diagnostic>,
) -> Catalogue {
    let mut all = built_in();
    let Some(plugins) = root.get("plugins").filter(|plugins| !plugins.is_null()) else { return all };
    let mut report = |at: &Node, message: String| {
        found.push(Diagnostic::error("SINEW-2404", message).at(at.span).sub_code("PLUGIN"));
    };
    if let Some(folders) = plugins.as_array() {
        for folder in folders {
            match folder.as_str().ok_or_else(|| "not a path".to_owned()).and_then(|path| load(path, read)) {
                Ok((name, definition)) => drop(all.insert(name, definition)),
                Err(error) => report(folder, format!("the plugin cannot be loaded: {error}")),
            }
        }
    } else if let Some(members) = plugins.as_object() {
        for member in members {
            match definition(&member.value.to_json(), &member.key) {
                Ok(definition) => drop(all.insert(member.key.clone(), definition)),
                Err(error) => report(&member.value, format!("plugin '{}': {error}", member.key)),
            }
        }
    } else {
        report(
            plugins,
            format!("plugins must be an object or a list of folders, not {}", plugins.type_name()),
        );
    }
    all
}

fn load(
    folder: &str,
    read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
) -> Result<(String, Definition), String> {
    let folder = folder.trim_end_matches('/');
    let bytes = read(&format!("{folder}/definition.json"))?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    let name = value.get("type").and_then(Value::as_str);
    let name = name.unwrap_or_else(|| folder.rsplit('/').next().unwrap_or(folder)).replace('_', "-");
    let definition = definition(&value, &name)?;
    Ok((name, definition))
}

/// A plugin's definition; without an agent of its own it asks the one named like the kind.
fn definition(value: &Value, name: &str) -> Result<Definition, String> {
    let mut definition = Definition::deserialize(value).map_err(|error| error.to_string())?;
    if definition.agent.is_none() && definition.mode != Mode::Structural {
        definition.agent = Some(name.to_owned());
    }
    Ok(definition)
}

/// JSON Schema of the files. Unknown members are allowed: the editor keeps its own there.
pub(super) fn schema() -> Value {
    let text = json!({ "type": "string" });
    let kinds: Vec<String> = built_in().into_keys().collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Covalt graph",
        "type": "object",
        "required": ["nodes"],
        "properties": {
            "nodes": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["id", "type"],
                    "properties": {
                        "id": { "type": "string", "minLength": 1 },
                        "type": { "type": "string", "examples": kinds },
                        "data": {
                            "type": "object",
                            "properties": { "_label": text, "label": text, "on_error": { "enum": ["stop", "continue"] } }
                        }
                    }
                }
            },
            "edges": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["source", "target"],
                    "properties": {
                        "id": text,
                        "source": text,
                        "sourceHandle": { "type": ["string", "null"], "default": "output" },
                        "target": text,
                        "targetHandle": { "type": ["string", "null"], "default": "input" },
                        "data": {
                            "type": "object",
                            "properties": {
                                "channel": { "enum": ["flow", "link"] },
                                "sourceType": text,
                                "targetType": text
                            }
                        }
                    }
                }
            },
            "plugins": { "type": ["object", "array"] }
        }
    })
}
