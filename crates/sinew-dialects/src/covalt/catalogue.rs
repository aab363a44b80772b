//! Kinds of nodes: their work, their agents and the types of their sockets.
//!
//! Plugins add kinds: a file's `plugins` is an object of kind to definition, or a list of folders.
//! A folder with a `definition.json` (with its `type`) is one kind; any other folder is searched
//! for such folders. A file without a list uses the plugins in the folder `nodes` next to it. The
//! work of such a node is a task for its `agent`.

use sinew_protocol::code;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sinew_source::{Diagnostic, Node};

use super::coerce::DATA;
use super::executor;
use crate::LowerOptions;

/// The built-in agent for `http-request`.
pub const HTTP_AGENT: &str = "http";
/// File in a plugin's folder, next to or instead of its executor.
const DEFINITION_FILE: &str = "definition.json";
/// File in a plugin's folder that the source project reads instead.
const TYPESCRIPT_FILE: &str = "definition.ts";
/// Default folder of plugins.
const PLUGIN_FOLDER: &str = "nodes";
/// Maximum depth of plugins below a folder.
const MAX_DEPTH: u32 = 4;
/// Maximum number of searched folders.
const MAX_FOLDERS: usize = 256;

/// Kinds by name.
pub(super) type NodeCatalogue = BTreeMap<String, NodeDefinition>;

/// Definition of a kind of node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct NodeDefinition {
    /// One-line description.
    pub(super) description: String,
    /// Group of kinds: `core`, `tools`, `ai`, `flow`, `utility`, `integration`, `data`, or a plugin's own.
    pub(super) category: String,
    /// Name of its icon.
    pub(super) icon: String,
    /// Colour of its box, `#rrggbb`.
    pub(super) color: String,
    /// Outline of its box.
    pub(super) shape: NodeShape,
    /// Whether it is part of the flow, of the structure, or of both.
    pub(super) mode: NodeMode,
    /// Agent that does its work; `None` = computed here, or structure only.
    pub(super) agent: Option<String>,
    /// Whether it reports progress while it runs.
    pub(super) streaming: bool,
    /// Types of its output sockets by name; other sockets are data.
    pub(super) outputs: BTreeMap<String, String>,
    /// The parameter that declares its output sockets: `{port: {type, …}}`.
    pub(super) outputs_from: Option<String>,
    /// Types of its input sockets by name.
    pub(super) inputs: BTreeMap<String, String>,
    /// Parameters whose `{{ … }}` the node evaluates itself.
    pub(super) raw: Vec<String>,
    /// Parameters and their defaults.
    pub(super) parameters: Map<String, Value>,
    /// Source of the plugin's `executor.py`.
    #[serde(skip)]
    pub(super) executor: Option<String>,
}

/// Outline of a kind's box in drawings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum NodeShape {
    #[default]
    Box,
    Rounded,
    Pill,
    Diamond,
    Circle,
    Hexagon,
    Parallelogram,
}

/// Appearance of a kind of node in drawings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct NodeLook {
    category: String,
    icon: String,
    color: String,
    shape: NodeShape,
}

/// Socket types with their colours and outlines.
const SOCKET_LOOKS: [(&str, &str, &str); 10] = [
    ("data", "#e5e7eb", "circle"),
    ("agent", "#7c3aed", "circle"),
    ("tools", "#f59e0b", "square"),
    ("model", "#06b6d4", "circle"),
    ("string", "#3b82f6", "circle"),
    ("float", "#a1a1aa", "circle"),
    ("int", "#71717a", "circle"),
    ("boolean", "#10b981", "diamond"),
    ("json", "#f97316", "circle"),
    ("messages", "#a855f7", "circle"),
];
/// Colours of categories.
const CATEGORY_COLORS: [(&str, &str); 7] = [
    ("core", "#7c3aed"),
    ("tools", "#f59e0b"),
    ("ai", "#06b6d4"),
    ("flow", "#10b981"),
    ("utility", "#71717a"),
    ("integration", "#3b82f6"),
    ("data", "#f97316"),
];

impl NodeDefinition {
    /// Returns the definition with default category, icon and colour.
    fn with_look(mut self) -> Self {
        if self.category.is_empty() {
            "utility".clone_into(&mut self.category);
        }
        if self.icon.is_empty() {
            "box".clone_into(&mut self.icon);
        }
        if !is_color(&self.color) {
            let known = CATEGORY_COLORS.iter().find(|(category, _)| *category == self.category);
            known.map_or("#71717a", |(_, color)| color).clone_into(&mut self.color);
        }
        self
    }

    /// Returns the appearance of the kind.
    pub(super) fn look(&self) -> NodeLook {
        NodeLook {
            category: self.category.clone(),
            icon: self.icon.clone(),
            color: self.color.clone(),
            shape: self.shape,
        }
    }

    /// Describes the kind for people and editors.
    fn describe(&self, name: &str) -> Value {
        let sockets = |declared: &BTreeMap<String, String>, spine: &[&str]| -> Vec<Value> {
            let flows = self.mode != NodeMode::Structural;
            let spine = spine.iter().filter(|name| flows && !declared.contains_key(**name));
            let spine = spine.map(|name| socket(name, DATA));
            spine.chain(declared.iter().map(|(name, kind)| socket(name, kind))).collect()
        };
        let ports: &[&str] = match name {
            "conditional" => &["true", "false"],
            "webhook-end" => &["response"],
            _ => &["output"],
        };
        json!({
            "type": name,
            "description": self.description,
            "category": self.category,
            "mode": self.mode,
            "icon": self.icon,
            "color": self.color,
            "shape": self.shape,
            "agent": self.agent,
            "streaming": self.streaming,
            "inputs": sockets(&self.inputs, &["input"]),
            "outputs": sockets(&self.outputs, ports),
            "parameters": self.parameters,
        })
    }
}

/// Describes one socket with its type, colour and outline.
fn socket(name: &str, kind: &str) -> Value {
    let look = SOCKET_LOOKS.iter().find(|(known, _, _)| *known == kind);
    let (color, shape) = look.map_or(("#e5e7eb", "circle"), |(_, color, shape)| (*color, *shape));
    json!({ "name": name, "type": kind, "color": color, "shape": shape })
}

/// Returns the definition of a built-in kind, unless a plugin of the catalogue replaces it.
pub(super) fn built_in_kind(catalogue: &NodeCatalogue, name: &str) -> Option<&'static NodeDefinition> {
    static BUILT_IN: LazyLock<NodeCatalogue> = LazyLock::new(built_in);
    let own = BUILT_IN.get(name)?;
    (catalogue.get(name) == Some(own)).then_some(own)
}

/// Returns whether a string is a colour of six hexadecimal digits.
fn is_color(text: &str) -> bool {
    text.strip_prefix('#')
        .is_some_and(|digits| digits.len() == 6 && digits.bytes().all(|c| c.is_ascii_hexdigit()))
}

/// Returns the names of all built-in kinds of nodes.
pub fn node_kinds() -> Vec<String> {
    built_in().into_keys().collect()
}

/// Describes a kind of node: category, mode, icon, colour, outline, sockets and parameters.
pub fn describe_kind(name: &str) -> Option<Value> {
    built_in().get(name).map(|definition| definition.describe(name))
}

/// Describes the kinds that the plugin folder next to a file defines, by name. `options` reads and
/// lists the folder of the file.
///
/// # Errors
/// Fails with the reason if a plugin cannot be loaded.
pub fn describe_plugins(options: &LowerOptions<'_>) -> Result<Vec<(String, Value)>, String> {
    if (options.list)(PLUGIN_FOLDER).is_err() {
        return Ok(Vec::new());
    }
    let mut folders = PluginFolders::new(options);
    folders.add(PLUGIN_FOLDER);
    for finding in folders.found {
        if let PluginFinding::Wrong(message) = finding {
            return Err(message);
        }
    }
    Ok(folders.kinds.iter().map(|(name, kind)| (name.clone(), kind.describe(name))).collect())
}

/// The part of the graph to which a kind of node belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum NodeMode {
    #[default]
    Flow,
    Structural,
    Hybrid,
}

fn kind(description: &str, mode: NodeMode) -> NodeDefinition {
    NodeDefinition { description: description.to_owned(), mode, ..NodeDefinition::default() }
}

fn asks(description: &str, mode: NodeMode, agent: &str, streaming: bool) -> NodeDefinition {
    NodeDefinition { agent: Some(agent.to_owned()), streaming, ..kind(description, mode) }
}

fn sockets(sockets: &[(&str, &str)]) -> BTreeMap<String, String> {
    sockets.iter().map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned())).collect()
}

/// Returns the built-in kinds.
pub(super) fn built_in() -> NodeCatalogue {
    let settings =
        [("model", "model"), ("instructions", "string"), ("temperature", "float"), ("tools", "tools")];
    let agent = |definition: NodeDefinition| NodeDefinition {
        inputs: sockets(&settings),
        outputs: sockets(&[("agent", "agent"), ("tools", "tools")]),
        ..definition
    };
    let prompt = [("model", "model"), ("prompt", "string"), ("temperature", "float"), ("max_tokens", "int")];
    let completion = |definition: NodeDefinition| NodeDefinition { inputs: sockets(&prompt), ..definition };
    let raw = |definition: NodeDefinition, fields: &[&str]| NodeDefinition {
        raw: fields.iter().map(|field| (*field).to_owned()).collect(),
        ..definition
    };
    let tools =
        |definition: NodeDefinition| NodeDefinition { outputs: sockets(&[("tools", "tools")]), ..definition };
    [
        ("chat-start", "core", kind("receives the message of the user", NodeMode::Hybrid)),
        ("webhook-trigger", "core", kind("receives a request", NodeMode::Flow)),
        ("webhook-end", "core", kind("the response to a request", NodeMode::Flow)),
        (
            "agent",
            "core",
            agent(asks("an agent with its tools and sub-agents", NodeMode::Hybrid, "agent", true)),
        ),
        ("droid-agent", "core", agent(asks("a coding agent", NodeMode::Hybrid, "droid-agent", true))),
        ("llm-completion", "ai", completion(asks("one call of a model", NodeMode::Flow, "llm", true))),
        (
            "structured-output",
            "ai",
            completion(asks("a model's answer that conforms to a schema", NodeMode::Flow, "llm", true)),
        ),
        (
            "classifier",
            "ai",
            completion(asks("one of several branches, chosen by a model", NodeMode::Flow, "llm", false)),
        ),
        ("router", "ai", completion(asks("as classifier", NodeMode::Flow, "llm", false))),
        ("http-request", "integration", asks("calls a service", NodeMode::Flow, HTTP_AGENT, false)),
        (
            "prompt-template",
            "ai",
            raw(kind("a text with inserted values", NodeMode::Flow), &["template", "prompt"]),
        ),
        ("json-transform", "data", kind("data transformed by expressions", NodeMode::Flow)),
        ("conditional", "flow", kind("two branches, chosen by the value of a field", NodeMode::Flow)),
        ("merge", "flow", kind("waits for its branches and lists their values", NodeMode::Flow)),
        ("reroute", "utility", kind("passes its input on", NodeMode::Flow)),
        ("code", "flow", raw(asks("code that receives the input", NodeMode::Flow, "code", false), &["code"])),
        ("loop", "flow", raw(kind("runs a nested graph for each item", NodeMode::Flow), &["graph", "body"])),
        (
            "model-selector",
            "utility",
            NodeDefinition {
                outputs: sockets(&[("output", "model"), ("model", "model")]),
                ..kind("one model for many nodes", NodeMode::Flow)
            },
        ),
        ("mcp-server", "tools", tools(kind("tools of an MCP server", NodeMode::Structural))),
        ("toolset", "tools", tools(kind("a registered set of tools", NodeMode::Structural))),
    ]
    .into_iter()
    .map(|(name, category, definition)| (name.to_owned(), drawn(name, category, definition)))
    .collect()
}

/// Completes a built-in definition with its category, icon and outline.
fn drawn(name: &str, category: &str, definition: NodeDefinition) -> NodeDefinition {
    let (icon, shape) = match name {
        "chat-start" => ("message-circle", NodeShape::Pill),
        "webhook-trigger" => ("webhook", NodeShape::Pill),
        "webhook-end" => ("reply", NodeShape::Pill),
        "agent" => ("bot", NodeShape::Rounded),
        "droid-agent" => ("terminal", NodeShape::Rounded),
        "llm-completion" => ("sparkles", NodeShape::Rounded),
        "structured-output" => ("braces", NodeShape::Rounded),
        "classifier" | "router" => ("split", NodeShape::Diamond),
        "http-request" => ("globe", NodeShape::Rounded),
        "prompt-template" => ("file-text", NodeShape::Box),
        "json-transform" => ("shuffle", NodeShape::Box),
        "conditional" => ("git-branch", NodeShape::Diamond),
        "merge" => ("git-merge", NodeShape::Circle),
        "reroute" => ("dot", NodeShape::Circle),
        "code" => ("code", NodeShape::Box),
        "loop" => ("repeat", NodeShape::Parallelogram),
        "model-selector" => ("cpu", NodeShape::Box),
        "mcp-server" => ("server", NodeShape::Box),
        _ => ("wrench", NodeShape::Box),
    };
    NodeDefinition { category: category.to_owned(), icon: icon.to_owned(), shape, ..definition }.with_look()
}

/// Returns the built-in kinds and those of the file's plugins.
pub(super) fn with_plugins(
    root: &Node,
    options: &LowerOptions<'_>,
    found: &mut Vec<Diagnostic>,
) -> NodeCatalogue {
    let mut all = built_in();
    let code = code::NODE_PLUGIN_CANNOT_BE_LOADED.as_str();
    let mut report = |at: &Node, finding: PluginFinding| {
        let diagnostic = match finding {
            PluginFinding::Wrong(message) => Diagnostic::error(code, message),
            PluginFinding::Ignored(message) => Diagnostic::warning(code, message)
                .hint(format!("write the members in {DEFINITION_FILE} as JSON")),
        };
        found.push(diagnostic.at(at.span).sub_code("PLUGIN"));
    };
    let Some(plugins) = root.get("plugins").filter(|plugins| !plugins.is_null()) else {
        // A file without a list has the plugins of the default folder, if it exists.
        if (options.list)(PLUGIN_FOLDER).is_ok() {
            let mut folders = PluginFolders::new(options);
            folders.add(PLUGIN_FOLDER);
            folders.found.into_iter().for_each(|finding| report(root, finding));
            all.extend(folders.kinds);
        }
        return all;
    };
    if let Some(listed) = plugins.as_array() {
        let mut folders = PluginFolders::new(options);
        for folder in listed {
            match folder.as_str() {
                Some(path) => folders.add(path.trim_end_matches('/')),
                None => folders.add_wrong("the plugin cannot be loaded: not a path".to_owned()),
            }
            folders.found.drain(..).for_each(|finding| report(folder, finding));
        }
        all.extend(folders.kinds);
    } else if let Some(members) = plugins.as_object() {
        for member in members {
            match definition(&member.value.to_json(), &member.key) {
                Ok(definition) => drop(all.insert(member.key.clone(), definition)),
                Err(error) => {
                    let message = format!("plugin '{}': {error}", member.key);
                    report(&member.value, PluginFinding::Wrong(message));
                }
            }
        }
    } else {
        let kind = plugins.type_name();
        let message = format!("plugins must be an object or a list of folders, not {kind}");
        report(plugins, PluginFinding::Wrong(message));
    }
    all
}

/// Finding about plugins.
enum PluginFinding {
    /// A plugin cannot be loaded.
    Wrong(String),
    /// A file of a plugin has no effect.
    Ignored(String),
}

/// Kinds of nodes found in folders.
struct PluginFolders<'a> {
    options: &'a LowerOptions<'a>,
    kinds: NodeCatalogue,
    found: Vec<PluginFinding>,
    /// Folders searched so far.
    seen: usize,
}

impl<'a> PluginFolders<'a> {
    fn new(options: &'a LowerOptions<'a>) -> Self {
        Self { options, kinds: NodeCatalogue::new(), found: Vec::new(), seen: 0 }
    }

    fn add_wrong(&mut self, message: String) {
        self.found.push(PluginFinding::Wrong(message));
    }

    /// Adds the kind of a folder, or the kinds of its subfolders.
    fn add(&mut self, path: &str) {
        let before = self.kinds.len() + self.found.len();
        self.scan(path, 0);
        if self.kinds.len() + self.found.len() == before && path != PLUGIN_FOLDER {
            self.add_wrong(format!(
                "the plugin cannot be loaded: no folder below {path} has a {DEFINITION_FILE}"
            ));
        }
    }

    fn scan(&mut self, path: &str, depth: u32) {
        self.seen += 1;
        if depth > MAX_DEPTH || self.seen > MAX_FOLDERS {
            let most = format!("{MAX_FOLDERS} folders, {MAX_DEPTH} levels deep, are searched");
            // Reported once: further folders would only repeat it.
            if self.seen <= MAX_FOLDERS + 1 {
                self.add_wrong(format!("the plugins below {path} cannot be loaded: at most {most}"));
            }
            return;
        }
        let inside = match (self.options.list)(path) {
            Ok(mut names) => {
                names.sort();
                names
            }
            // Without a listing, only the folder itself can be a plugin.
            Err(_) => vec![DEFINITION_FILE.to_owned()],
        };
        let has = |wanted: &str| inside.iter().any(|name| name == wanted);
        if has(TYPESCRIPT_FILE) && !has(DEFINITION_FILE) {
            let message = format!(
                "{path}/{TYPESCRIPT_FILE} is ignored: its parameters, sockets and look have no effect"
            );
            self.found.push(PluginFinding::Ignored(message));
        }
        if has(DEFINITION_FILE) || has(executor::EXECUTOR_FILE) {
            match load(path, &inside, self.options.read) {
                Ok((name, _)) if self.kinds.contains_key(&name) => {
                    self.add_wrong(format!("the plugin {path} duplicates the kind '{name}'"));
                }
                Ok((name, definition)) => drop(self.kinds.insert(name, definition)),
                Err(error) => self.add_wrong(format!("the plugin {path} cannot be loaded: {error}")),
            }
            return;
        }
        for folder in inside.iter().filter_map(|name| name.strip_suffix('/')) {
            if !folder.starts_with(['.', '_']) {
                self.scan(&format!("{path}/{folder}"), depth + 1);
            }
        }
    }
}

fn load(
    folder: &str,
    inside: &[String],
    read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
) -> Result<(String, NodeDefinition), String> {
    // A folder that cannot be listed may still have an executor.
    let listed = |name: &str| inside.iter().any(|own| own == name);
    let code = match read(&format!("{folder}/{}", executor::EXECUTOR_FILE)) {
        Ok(bytes) => Some(String::from_utf8(bytes).map_err(|_| "executor.py is not UTF-8 text".to_owned())?),
        Err(error) if listed(executor::EXECUTOR_FILE) => return Err(error),
        Err(_) => None,
    };
    let value: Value = match read(&format!("{folder}/{DEFINITION_FILE}")) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| error.to_string())?,
        Err(error) if code.is_none() || listed(DEFINITION_FILE) => return Err(error),
        Err(_) => json!({}),
    };
    let name = value.get("type").and_then(Value::as_str).map(str::to_owned);
    let name = name.or_else(|| code.as_deref().and_then(executor::node_type));
    let name =
        name.unwrap_or_else(|| folder.rsplit('/').next().unwrap_or(folder).to_owned()).replace('_', "-");
    let mut definition = definition(&value, &name)?;
    if let Some(code) = code {
        if value.get("mode").is_none() {
            definition.mode = executor::mode_of(&code)?;
        }
        executor::check(&code, definition.mode)?;
        if value.get("agent").is_none() {
            definition.agent = None;
        }
        definition.executor = Some(code);
    }
    Ok((name, definition))
}

/// Reads a plugin's definition; without an agent, it calls the agent with the name of the kind.
fn definition(value: &Value, name: &str) -> Result<NodeDefinition, String> {
    let mut definition = NodeDefinition::deserialize(value).map_err(|error| error.to_string())?;
    if definition.agent.is_none() && definition.mode != NodeMode::Structural {
        definition.agent = Some(name.to_owned());
    }
    Ok(definition.with_look())
}

/// Returns the JSON Schema of the files. Unknown fields are allowed, because the editor stores its
/// own.
pub(super) fn schema() -> Value {
    let text = |about: &str| json!({ "type": "string", "description": about });
    let handle = |about: &str, default: &str| json!({ "type": ["string", "null"], "description": about, "default": default });
    let kinds: Vec<String> = built_in().into_keys().collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Covalt graph",
        "type": "object",
        "required": ["nodes"],
        "properties": {
            "nodes": {
                "type": "array",
                "description": "Nodes of the graph.",
                "items": {
                    "type": "object",
                    "required": ["id", "type"],
                    "properties": {
                        "id": { "type": "string", "minLength": 1, "description": "Unique id of the node." },
                        "type": {
                            "type": "string",
                            "description": "Type of the node: a built-in one or that of a plugin.",
                            "examples": kinds
                        },
                        "data": {
                            "type": "object",
                            "description": "Parameters of the node, according to its type.",
                            "properties": {
                                "_label": text("Name by which expressions refer to the node. Default: label, else the id."),
                                "label": text("Name of the node if _label is missing."),
                                "on_error": {
                                    "enum": ["stop", "continue"],
                                    "description": "Handling of a failure: end the execution, or pass {\"error\": …} on. Default: stop."
                                }
                            }
                        }
                    }
                }
            },
            "edges": {
                "type": "array",
                "description": "Edges between the handles of nodes.",
                "items": {
                    "type": "object",
                    "required": ["source", "target"],
                    "properties": {
                        "id": text("Id of the edge, for the editor."),
                        "source": text("Id of the node where the edge starts."),
                        "sourceHandle": handle("Output of the source. Default: output.", "output"),
                        "target": text("Id of the node where the edge ends."),
                        "targetHandle": handle("Input of the target. Default: input.", "input"),
                        "data": {
                            "type": "object",
                            "description": "Channel and types of the edge.",
                            "properties": {
                                "channel": {
                                    "enum": ["flow", "link"],
                                    "description": "Whether the edge carries data or defines structure. Default: link at handles named tools, else flow."
                                },
                                "sourceType": text("Socket type of the source, such as data, model or string."),
                                "targetType": text("Socket type of the target.")
                            }
                        }
                    }
                }
            },
            "display": crate::display::schema(),
            "plugins": {
                "description": "Node types: an object from type to definition, or a list of \
                    folders to search for definition.json or executor.py. Default: \
                    the folder nodes next to the file.",
                "type": ["object", "array"]
            }
        }
    })
}
