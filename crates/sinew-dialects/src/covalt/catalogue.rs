//! The kinds of nodes: what they do, who does it, what their sockets carry.
//!
//! Plugins add kinds: a file's `plugins` is an object of kind to definition, or a list of folders. A folder with a
//! `definition.json` (with its `type`) is one kind, any other is searched for such folders; a file that lists nothing
//! has what lies below `nodes` beside it. The work of such a node is a task for its `agent`.

use sinew_protocol::code;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sinew_source::{Diagnostic, Node};

use crate::LowerOptions;

/// What a plugin's folder must hold.
const DEFINITION: &str = "definition.json";
/// The folder whose plugins need not be listed.
const DROPPED: &str = "nodes";
/// How deep plugins may lie below a folder.
const MAX_DEPTH: u32 = 4;
/// Folders that are looked at.
const MAX_FOLDERS: usize = 256;

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
    options: &LowerOptions<'_>,
    found: &mut Vec<Diagnostic>,
) -> Catalogue {
    let mut all = built_in();
    let mut report = |at: &Node, message: String| {
        found.push(
            Diagnostic::error(code::NODE_PLUGIN_CANNOT_BE_LOADED.as_str(), message)
                .at(at.span)
                .sub_code("PLUGIN"),
        );
    };
    let Some(plugins) = root.get("plugins").filter(|plugins| !plugins.is_null()) else {
        // Whoever lists nothing has what was dropped into the usual folder, if there is one.
        if (options.list)(DROPPED).is_ok() {
            let mut folders = Folders::new(options);
            folders.add(DROPPED);
            folders.wrong.into_iter().for_each(|error| report(root, error));
            all.extend(folders.kinds);
        }
        return all;
    };
    if let Some(listed) = plugins.as_array() {
        let mut folders = Folders::new(options);
        for folder in listed {
            match folder.as_str() {
                Some(path) => folders.add(path.trim_end_matches('/')),
                None => folders.wrong.push("the plugin cannot be loaded: not a path".to_owned()),
            }
            folders.wrong.drain(..).for_each(|error| report(folder, error));
        }
        all.extend(folders.kinds);
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

/// Kinds of nodes found in folders.
struct Folders<'a> {
    options: &'a LowerOptions<'a>,
    kinds: Catalogue,
    wrong: Vec<String>,
    /// Folders looked at so far.
    seen: usize,
}

impl<'a> Folders<'a> {
    fn new(options: &'a LowerOptions<'a>) -> Self {
        Self { options, kinds: Catalogue::new(), wrong: Vec::new(), seen: 0 }
    }

    /// Adds the kind of a folder, or those of the folders in it.
    fn add(&mut self, path: &str) {
        let before = self.kinds.len() + self.wrong.len();
        self.scan(path, 0);
        if self.kinds.len() + self.wrong.len() == before && path != DROPPED {
            self.wrong
                .push(format!("the plugin cannot be loaded: no folder below {path} has a {DEFINITION}"));
        }
    }

    fn scan(&mut self, path: &str, depth: u32) {
        self.seen += 1;
        if depth > MAX_DEPTH || self.seen > MAX_FOLDERS {
            let most = format!("{MAX_FOLDERS} folders, {MAX_DEPTH} deep, are looked at");
            // Said once: what follows would only say it again.
            if self.seen <= MAX_FOLDERS + 1 {
                self.wrong.push(format!("the plugins below {path} cannot be loaded: at most {most}"));
            }
            return;
        }
        let inside = match (self.options.list)(path) {
            Ok(mut names) => {
                names.sort();
                names
            }
            // Without a listing a folder can only be a plugin itself.
            Err(_) => vec![DEFINITION.to_owned()],
        };
        if inside.iter().any(|name| name == DEFINITION) {
            match load(path, self.options.read) {
                Ok((name, _)) if self.kinds.contains_key(&name) => {
                    self.wrong.push(format!("the plugin {path} is a second one of the kind '{name}'"));
                }
                Ok((name, definition)) => drop(self.kinds.insert(name, definition)),
                Err(error) => self.wrong.push(format!("the plugin {path} cannot be loaded: {error}")),
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
    read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
) -> Result<(String, Definition), String> {
    let bytes = read(&format!("{folder}/{DEFINITION}"))?;
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
            "plugins": {
                "description": "Kinds of nodes: an object of type to definition, or folders that are searched for a definition.json; left out: the folder nodes beside the file",
                "type": ["object", "array"]
            }
        }
    })
}
