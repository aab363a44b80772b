//! Export of the node specs: JSON Schema for editors, descriptions for tools, TypeScript for
//! frontends.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::spec::{self, NodeSpec, default_of};

/// Returns the names of all built-in node types, `TYPE.SUBTYPE`.
pub fn specs() -> impl Iterator<Item = &'static str> {
    spec::built_in().keys().map(String::as_str)
}

/// Describes a node type: settings, input and output as JSON Schema, and its ports.
pub fn describe(name: &str) -> Option<Value> {
    let spec = spec::built_in().get(name)?;
    let (kind, subtype) = name.split_once('.').unwrap_or((name, ""));
    Some(json!({
        "type": kind,
        "subtype": subtype,
        "description": spec.description,
        "configurations": object(&spec.configurations),
        "input": object(&spec.input_params),
        "output": spec.output_params.as_ref().map_or(json!(true), object),
        "ports": spec.ports,
    }))
}

/// Returns TypeScript declarations of the settings, inputs and outputs of all node types, and of
/// the message between nodes.
pub fn typescript() -> String {
    typescript_of(&|_| true)
}

/// Returns the same for the selected node types.
pub fn typescript_of(wanted: &dyn Fn(&str) -> bool) -> String {
    let mut out = String::from(
        "// Types of workflow nodes. Made from the node specs; do not edit.\n\n\
         export interface StandardMessage<T = unknown> {\n  content: T;\n  metadata: Record<string, unknown>;\n  \
         format_type: \"text\" | \"json\" | \"binary\";\n  source_node: string | null;\n  timestamp: string | null;\n}\n",
    );
    let mut kinds = String::new();
    for (name, spec) in spec::built_in().iter().filter(|(name, _)| wanted(name)) {
        let base = pascal(name);
        interface(&mut out, &format!("{base}Configurations"), &spec.configurations, true);
        interface(&mut out, &format!("{base}Input"), &spec.input_params, true);
        match &spec.output_params {
            Some(members) => interface(&mut out, &format!("{base}Output"), members, false),
            None => drop(writeln!(out, "\nexport type {base}Output = unknown;")),
        }
        let _ = writeln!(
            kinds,
            "  \"{name}\": {{ configurations: {base}Configurations; input: {base}Input; output: {base}Output; ports: {} }};",
            ports(spec)
        );
    }
    let _ = writeln!(out, "\nexport interface NodeTypes {{\n{kinds}}}");
    out
}

fn ports(spec: &NodeSpec) -> String {
    if spec.ports.is_empty() {
        return "string".to_owned();
    }
    spec.ports.iter().map(|port| format!("\"{port}\"")).collect::<Vec<_>>().join(" | ")
}

fn interface(out: &mut String, name: &str, members: &Map<String, Value>, optional: bool) {
    let _ = writeln!(out, "\nexport interface {name} {{");
    for (key, entry) in members {
        let mark = if optional && !is_required(entry) { "?" } else { "" };
        let _ = writeln!(out, "  {key}{mark}: {};", typescript_type(entry));
    }
    out.push_str("}\n");
}

fn typescript_type(entry: &Value) -> String {
    if let Some(words) = entry.get("enum").and_then(Value::as_array) {
        return words.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
    }
    match entry.get("type").and_then(Value::as_str) {
        Some("string") => "string",
        Some("integer" | "number" | "float") => "number",
        Some("boolean") => "boolean",
        Some("array") => "unknown[]",
        Some("object") => "Record<string, unknown>",
        _ => "unknown",
    }
    .to_owned()
}

fn pascal(name: &str) -> String {
    let words = name.split(['.', '_']).filter(|word| !word.is_empty());
    words.map(|word| word[..1].to_uppercase() + &word[1..].to_lowercase()).collect()
}

fn is_required(entry: &Value) -> bool {
    entry.get("required").and_then(Value::as_bool).unwrap_or(false)
}

/// Returns a spec's fields as JSON Schema.
fn object(members: &Map<String, Value>) -> Value {
    let required: Vec<&String> =
        members.iter().filter(|(_, entry)| is_required(entry)).map(|(key, _)| key).collect();
    let properties: Map<String, Value> = members
        .iter()
        .map(|(key, entry)| {
            let mut property = json!({ "default": default_of(entry) });
            match entry.get("type").and_then(Value::as_str) {
                Some("any") | None => {}
                Some(kind) => property["type"] = json!(kind),
            }
            if let Some(words) = entry.get("enum") {
                property["enum"] = words.clone();
            }
            (key.clone(), property)
        })
        .collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

/// Returns the JSON Schema of the files. Unknown fields are allowed, because editors store their
/// own.
pub(super) fn schema() -> Value {
    let text = |about: &str| json!({ "type": "string", "description": about });
    let ids = |about: &str| json!({ "type": ["array", "null"], "description": about, "items": { "type": "string" } });
    let object = |about: &str| json!({ "type": ["object", "null"], "description": about });
    let types =
        ["TRIGGER", "AI_AGENT", "EXTERNAL_ACTION", "ACTION", "FLOW", "HUMAN_IN_THE_LOOP", "TOOL", "MEMORY"];
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Agent Team workflow",
        "type": "object",
        "required": ["nodes"],
        "properties": {
            "metadata": metadata_schema(),
            "nodes": {
                "type": "array",
                "description": "Nodes of the workflow.",
                "items": {
                    "type": "object",
                    "required": ["id", "type", "subtype"],
                    "properties": {
                        "id": { "type": "string", "minLength": 1, "description": "Unique id of the node." },
                        "name": text("Name of the node in messages. Default: the id."),
                        "description": text("Purpose of the node."),
                        "type": { "type": "string", "description": "Type of the node.", "examples": types },
                        "subtype": text("Variant of the type, such as MANUAL or IF. Type and subtype select the spec."),
                        "configurations": object("Settings of the node, according to its spec."),
                        "input_params": object("Inputs that no connection has to provide."),
                        "output_params": object("Outputs as the editor stores them. Ignored: the spec declares the outputs."),
                        "attached_nodes": ids("Ids of the TOOL and MEMORY nodes that the agent of this node uses.")
                    }
                }
            },
            "connections": {
                "type": ["array", "null"],
                "description": "Connections, which carry values between nodes.",
                "items": {
                    "type": "object",
                    "required": ["from_node", "to_node"],
                    "properties": {
                        "id": text("Unique id of the connection."),
                        "from_node": text("Id of the node that provides the value."),
                        "to_node": text("Id of the node that receives the value."),
                        "output_key": {
                            "type": ["string", "null"],
                            "description": "Port of the source. Default: result.",
                            "default": "result"
                        },
                        "conversion_function": {
                            "type": ["string", "null"],
                            "description": "Python function that converts the value. Default: the value is passed unchanged."
                        }
                    }
                }
            },
            "triggers": ids("Ids of the TRIGGER nodes where executions start. Default: all nodes without a predecessor."),
            "specs": {
                "type": ["object", "array", "null"],
                "description": "Further specs of node types: an object by TYPE.SUBTYPE, or a list of files."
            },
            "agents": { "type": "object", "description": "Definitions of agents, by name." }
        }
    })
}

/// Returns the JSON Schema of the name and the settings of a workflow.
fn metadata_schema() -> Value {
    let text = |about: &str| json!({ "type": "string", "description": about });
    json!({
        "type": "object",
        "description": "Name and settings of the workflow.",
        "properties": {
            "name": text("Name by which the workflow is called. Default: the name of the file."),
            "description": text("Purpose of the workflow."),
            "message_format": {
                "enum": ["legacy", "standard"],
                "description": "Form of the outputs: payloads (legacy) or standard messages. Default: legacy."
            },
            "display": crate::display::schema(),
            "conversion_argument": {
                "enum": ["payload", "wrapper"],
                "description": "Argument of conversion functions: the payload, or the payload within data.result. Default: payload.",
                "default": "payload"
            },
            "schema_checks": {
                "enum": ["warn", "fail", "off"],
                "description": "Handling of inputs and outputs that violate the spec of a node. Default: warn.",
                "default": "warn"
            }
        }
    })
}
