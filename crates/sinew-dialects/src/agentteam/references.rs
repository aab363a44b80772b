//! Checks of templates and conditions against the outputs of earlier nodes.

use sinew_protocol::code;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};
use sinew_source::{Diagnostic, Kind, MAX_HINTED_FINDINGS, Node, Sources, Span, hint_for, token_span};

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
    sources: &'a Sources,
    file: &'a TeamFile,
    registry: &'a SpecRegistry,
    named: BTreeMap<&'a str, &'a TeamNode>,
    arriving: BTreeMap<&'a str, Vec<&'a TeamConnection>>,
}

/// Reports references to missing nodes and fields, and templates that are not closed.
pub(super) fn check(
    file: &TeamFile,
    registry: &SpecRegistry,
    sources: &Sources,
    found: &mut Vec<Diagnostic>,
) {
    let mut named = BTreeMap::new();
    for node in file.nodes.iter().rev() {
        named.insert(node.name.as_str(), node);
    }
    named.extend(file.nodes.iter().map(|node| (node.id.as_str(), node)));
    let mut arriving: BTreeMap<&str, Vec<&TeamConnection>> = BTreeMap::new();
    for connection in &file.connections {
        arriving.entry(&connection.to).or_default().push(connection);
    }
    let inputs = NodeInputs { sources, file, registry, named, arriving };
    for node in &file.nodes {
        for member in &node.written {
            inputs.check_value(node, &member.key, &member.value, found);
        }
    }
}

impl NodeInputs<'_> {
    fn check_value(&self, node: &TeamNode, key: &str, value: &Node, found: &mut Vec<Diagnostic>) {
        match &value.kind {
            Kind::String(text) => self.check_text(node, key, value, text, found),
            Kind::Array(items) => items.iter().for_each(|item| self.check_value(node, key, item, found)),
            Kind::Object(members) => {
                for member in members {
                    self.check_value(node, key, &member.value, found);
                }
            }
            _ => {}
        }
    }

    /// Returns the span of a part of a text.
    fn token(&self, value: &Node, text: &str, range: Range<usize>, finding_count: usize) -> Span {
        // Each search reads the text, and a file may have thousands of findings.
        if finding_count < MAX_HINTED_FINDINGS {
            token_span(self.sources, value.span, text, range)
        } else {
            value.span
        }
    }

    fn check_text(&self, node: &TeamNode, key: &str, value: &Node, text: &str, found: &mut Vec<Diagnostic>) {
        let is_expression = node.kind == "FLOW" && key.contains("condition");
        let mut expressions: Vec<Range<usize>> = is_expression.then_some(0..text.len()).into_iter().collect();
        let mut at = 0;
        while let Some(start) = text[at..].find("{{").map(|start| at + start) {
            let Some(length) = text[start..].find("}}") else {
                let message =
                    format!("'{key}' of node '{}' opens a template with {{{{ and never closes it", node.id);
                let place = self.token(value, text, start..text.len(), found.len());
                // Other text in braces may be meant as it is.
                let is_reference = text[start + 2..].trim_start().starts_with('$');
                let finding = if is_reference { Diagnostic::error } else { Diagnostic::warning };
                let open = finding(code::TEAM_TEMPLATE_NOT_CLOSED.as_str(), message).at(place);
                let hint = "close it with }}; until then the text remains unchanged";
                found.push(open.sub_code("TEMPLATE_OPEN").hint(hint));
                break;
            };
            expressions.push(start + 2..start + length);
            at = start + length + 2;
        }
        let Some(reference) = &*REFERENCE else { return };
        for range in expressions {
            for parts in reference.captures_iter(&text[range.clone()]) {
                let whole = &parts[0];
                let start = range.start + parts.get(0).map_or(0, |whole| whole.start());
                let place = |count: usize| self.token(value, text, start..start + whole.len(), count);
                let member = parts.get(3).map(|member| member.as_str());
                let sources = match parts.get(2) {
                    Some(name) => {
                        let Some(source) = self.named.get(name.as_str()) else {
                            let message = format!(
                                "'{key}' of node '{}' refers to the node '{}', which does not exist",
                                node.id,
                                name.as_str()
                            );
                            let known = self.named.keys().copied();
                            report(message, name.as_str(), known, place(found.len()), found);
                            continue;
                        };
                        vec![self.members_of(source)]
                    }
                    None => self.arriving_members(node),
                };
                if let (Some(member), [Some(members)]) = (member, sources.as_slice()) {
                    check_member(node, key, whole, member, members, place(found.len()), found);
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
