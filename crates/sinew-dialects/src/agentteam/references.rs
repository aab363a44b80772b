//! Checks of templates and conditions against the outputs of earlier nodes.

use sinew_protocol::code;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};
use sinew_source::{Diagnostic, Span, hint_for};

use super::model::{TeamConnection, TeamFile, TeamNode};
use super::spec::{NodeSpec, OutputShape, SpecRegistry};

/// A reference names a missing node or field.
const UNKNOWN_REFERENCE: &str = code::EXPRESSION_READS_UNKNOWN_PATH.as_str();
/// Fields of a standard message.
const STANDARD_MEMBERS: [&str; 5] = ["content", "metadata", "format_type", "source_node", "timestamp"];

/// `$json.member`, `$input.result.member`, `$node["name"].result.member`, `$node["name"]`.
static REFERENCE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let text = r#"(?:(\$json|\$input\.result)|\$nodes?\[\s*["']([^"']+)["']\s*\](?:\.result)?)(?:\.(\w+))?"#;
    Regex::new(text).ok()
});

/// Nodes of a file and the connections that reach them, by id.
struct NodeInputs<'a> {
    file: &'a TeamFile,
    registry: &'a SpecRegistry,
    named: BTreeMap<&'a str, &'a TeamNode>,
    arriving: BTreeMap<&'a str, Vec<&'a TeamConnection>>,
}

/// Reports references to missing nodes and fields, and templates that are not closed.
pub(super) fn check(file: &TeamFile, registry: &SpecRegistry, found: &mut Vec<Diagnostic>) {
    let mut named = BTreeMap::new();
    for node in file.nodes.iter().rev() {
        named.insert(node.name.as_str(), node);
    }
    named.extend(file.nodes.iter().map(|node| (node.id.as_str(), node)));
    let mut arriving: BTreeMap<&str, Vec<&TeamConnection>> = BTreeMap::new();
    for connection in &file.connections {
        arriving.entry(&connection.to).or_default().push(connection);
    }
    let inputs = NodeInputs { file, registry, named, arriving };
    for node in &file.nodes {
        for (key, value) in &node.configurations {
            inputs.check_value(node, key, value, node.place(key), found);
        }
    }
}

impl NodeInputs<'_> {
    fn check_value(
        &self,
        node: &TeamNode,
        key: &str,
        value: &Value,
        place: Span,
        found: &mut Vec<Diagnostic>,
    ) {
        match value {
            Value::String(text) => self.check_text(node, key, text, place, found),
            Value::Array(items) => {
                for item in items {
                    self.check_value(node, key, item, place, found);
                }
            }
            Value::Object(members) => {
                for member in members.values() {
                    self.check_value(node, key, member, place, found);
                }
            }
            _ => {}
        }
    }

    fn check_text(&self, node: &TeamNode, key: &str, text: &str, place: Span, found: &mut Vec<Diagnostic>) {
        let is_expression = node.kind == "FLOW" && key.contains("condition");
        let mut expressions: Vec<&str> = if is_expression { vec![text] } else { Vec::new() };
        let mut rest = text;
        while let Some(start) = rest.find("{{") {
            let Some(length) = rest[start..].find("}}") else {
                let message =
                    format!("'{key}' of node '{}' opens a template with {{{{ and never closes it", node.id);
                let open = Diagnostic::warning(code::TEAM_TEMPLATE_NOT_CLOSED.as_str(), message)
                    .at(place)
                    .sub_code("TEMPLATE_OPEN");
                found.push(open.hint("close it with }}; until then the text remains unchanged"));
                break;
            };
            expressions.push(&rest[start + 2..start + length]);
            rest = &rest[start + length + 2..];
        }
        let Some(reference) = &*REFERENCE else { return };
        for expression in expressions {
            for parts in reference.captures_iter(expression) {
                let member = parts.get(3).map(|member| member.as_str());
                let (sources, base) = match parts.get(2) {
                    Some(name) => {
                        let Some(source) = self.named.get(name.as_str()) else {
                            let message = format!(
                                "'{key}' of node '{}' refers to the node '{}', which does not exist",
                                node.id,
                                name.as_str()
                            );
                            let known = self.file.nodes.iter().map(|node| node.id.as_str());
                            report(message, name.as_str(), known, place, found);
                            continue;
                        };
                        (vec![self.members_of(source)], parts[0].to_owned())
                    }
                    None => (self.arriving_members(node), parts[0].to_owned()),
                };
                if let (Some(member), [Some(members)]) = (member, sources.as_slice()) {
                    check_member(node, key, &base, member, members, place, found);
                }
            }
        }
    }

    /// Returns the fields of the unconverted input from each connection; `None` for unknown ones.
    fn arriving_members(&self, node: &TeamNode) -> Vec<Option<Map<String, Value>>> {
        let connections = self.arriving.get(node.id.as_str()).map(Vec::as_slice).unwrap_or_default();
        let of = |connection: &&TeamConnection| {
            let bare = connection.conversion.is_none() && connection.port != super::flow::ITERATION;
            self.members_of(self.named.get(connection.from.as_str()).copied().filter(|_| bare)?)
        };
        connections.iter().map(of).collect()
    }

    /// Returns the fields of a node's output at `result`, if its spec defines all of them.
    fn members_of(&self, node: &TeamNode) -> Option<Map<String, Value>> {
        let known = matches!(node.kind.as_str(), "AI_AGENT" | "ACTION" | "EXTERNAL_ACTION")
            || (node.kind == "FLOW" && node.subtype == "IF");
        if !known {
            return None;
        }
        if self.file.standard && node.kind != "FLOW" {
            return Some(STANDARD_MEMBERS.iter().map(|name| ((*name).to_owned(), Value::Null)).collect());
        }
        let shape: OutputShape = self.registry.get(&node.spec_name()).and_then(NodeSpec::shape);
        shape
    }
}

fn check_member(
    node: &TeamNode,
    key: &str,
    base: &str,
    member: &str,
    members: &Map<String, Value>,
    place: Span,
    found: &mut Vec<Diagnostic>,
) {
    // `$node["x"].true.data` names a port; the shape does not describe ports.
    let is_known = members.keys().any(|known| known.eq_ignore_ascii_case(member));
    if is_known || matches!(member, "true" | "false" | "result" | "completed" | "iteration") {
        return;
    }
    let message =
        format!("'{key}' of node '{}' reads '{base}', but the spec of that node has no '{member}'", node.id);
    report(message, member, members.keys().map(String::as_str), place, found);
}

fn report<'w>(
    message: String,
    word: &str,
    known: impl Iterator<Item = &'w str>,
    place: Span,
    found: &mut Vec<Diagnostic>,
) {
    let mut warning = Diagnostic::warning(UNKNOWN_REFERENCE, message).at(place).sub_code("UNKNOWN_REFERENCE");
    if let Some(near) = hint_for(found.len(), word, known) {
        warning = warning.hint(format!("did you mean '{near}'?"));
    }
    found.push(warning);
}
