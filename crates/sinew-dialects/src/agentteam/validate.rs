//! What must hold before anything runs: ids, cycles, specs, conversions, and contracts between connected nodes.

use sinew_protocol::code;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;
use sinew_source::{Diagnostic, Span};

use super::convert::{self, Converted};
use super::expr;
use super::model::{Connection, File, FileNode};
use super::spec::{Registry, Spec};

/// The original's own name for what is wrong with a file.
const INVALID: &str = "WorkflowValidationError";

pub(super) fn check(file: &File, registry: &Registry, root: Span, found: &mut Vec<Diagnostic>) {
    let ids: BTreeMap<&str, &FileNode> = file.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    for connection in &file.connections {
        for (side, id) in [("from_node", &connection.from), ("to_node", &connection.to)] {
            if !ids.contains_key(id.as_str()) {
                let message =
                    format!("connection '{}' has the {side} '{id}', which is no node", connection.id);
                found.push(near(found.len(), invalid(message, connection.span), id, ids.keys().copied()));
            }
        }
    }
    for (id, span) in &file.triggers {
        if !ids.contains_key(id.as_str()) {
            let unknown = invalid(format!("trigger '{id}' is no node"), *span);
            found.push(near(found.len(), unknown, id, ids.keys().copied()));
        }
    }
    for node in &file.nodes {
        check_node(node, registry, &ids, found);
    }
    if has_cycle(file) {
        let message = "Workflow graph contains a cycle; cannot compute topo order";
        found.push(
            Diagnostic::error(code::AGENT_TEAM_CYCLE.as_str(), message).at(root).sub_code("CycleError"),
        );
    }
    for connection in &file.connections {
        check_conversion(connection, found);
        if let (Some(from), Some(to)) = (ids.get(connection.from.as_str()), ids.get(connection.to.as_str())) {
            check_contract(connection, from, to, registry, found);
        }
    }
}

fn invalid(message: String, span: Span) -> Diagnostic {
    Diagnostic::error(code::AGENT_TEAM_WORKFLOW_WRONG_SHAPE.as_str(), message).at(span).sub_code(INVALID)
}

/// Adds the nearest known word as a hint, unless there are many findings already.
fn near<'a>(
    finding_count: usize,
    diagnostic: Diagnostic,
    word: &str,
    known: impl Iterator<Item = &'a str>,
) -> Diagnostic {
    match sinew_source::hint_for(finding_count, word, known) {
        Some(known) => diagnostic.hint(format!("did you mean '{known}'?")),
        None => diagnostic,
    }
}

fn check_node(
    node: &FileNode,
    registry: &Registry,
    ids: &BTreeMap<&str, &FileNode>,
    found: &mut Vec<Diagnostic>,
) {
    let name = node.spec_name();
    match registry.get(&name) {
        None => {
            let message = format!("node '{}' is of the type {name}, which has no spec", node.id);
            let unknown = Diagnostic::error(code::NODE_TYPE_WITHOUT_SPEC.as_str(), message)
                .at(node.span)
                .sub_code(INVALID);
            found.push(near(found.len(), unknown, &name, registry.keys().map(String::as_str)));
        }
        Some(spec) => {
            for key in Spec::required(&spec.configurations) {
                if !node.configurations.contains_key(key) {
                    let message = format!("node '{}' ({name}) needs the configuration '{key}'", node.id);
                    found.push(
                        Diagnostic::error(code::NODE_TYPE_WITHOUT_SPEC.as_str(), message)
                            .at(node.span)
                            .sub_code(INVALID),
                    );
                }
            }
        }
    }
    if let (Some(condition), Some(span)) =
        (node.configurations.get("condition_expression").and_then(Value::as_str), node.condition_span)
    {
        for hint in expr::lint(condition) {
            let message = format!("the condition of node '{}' may not mean what it says", node.id);
            found.push(
                Diagnostic::warning(code::CONDITION_MISLEADING.as_str(), message)
                    .at(span)
                    .sub_code("CONDITION_QUIRK")
                    .hint(hint),
            );
        }
    }
    for (id, span) in &node.attached {
        if node.kind != "AI_AGENT" {
            let message =
                format!("node '{}' is a {}, only an AI_AGENT may have attached nodes", node.id, node.kind);
            found.push(invalid(message, *span));
            break;
        }
        match ids.get(id.as_str()) {
            None => {
                let message = format!("node '{}' attaches '{id}', which is no node", node.id);
                found.push(near(found.len(), invalid(message, *span), id, ids.keys().copied()));
            }
            Some(other) if !matches!(other.kind.as_str(), "TOOL" | "MEMORY") => {
                let message = format!("node '{}' attaches '{id}', which is no TOOL or MEMORY", node.id);
                found.push(invalid(message, *span));
            }
            Some(_) => {}
        }
    }
}

/// Ids of nodes that belong to agents; they and their connections are no part of the graph.
pub(super) fn attached(file: &File) -> BTreeSet<&str> {
    file.nodes.iter().flat_map(|node| &node.attached).map(|(id, _)| id.as_str()).collect()
}

/// Kahn's algorithm over what is part of the graph.
fn has_cycle(file: &File) -> bool {
    let attached = attached(file);
    let mut degrees: BTreeMap<&str, usize> = file
        .nodes
        .iter()
        .map(|node| node.id.as_str())
        .filter(|id| !attached.contains(id))
        .map(|id| (id, 0))
        .collect();
    let mut after: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for Connection { from, to, .. } in &file.connections {
        if degrees.contains_key(from.as_str())
            && let Some(degree) = degrees.get_mut(to.as_str())
        {
            *degree += 1;
            after.entry(from).or_default().push(to);
        }
    }
    let mut queue: VecDeque<&str> =
        degrees.iter().filter(|(_, degree)| **degree == 0).map(|(id, _)| *id).collect();
    let mut seen = 0;
    while let Some(id) = queue.pop_front() {
        seen += 1;
        for next in after.get(id).into_iter().flatten() {
            if let Some(degree) = degrees.get_mut(next) {
                *degree -= 1;
                if *degree == 0 {
                    queue.push_back(next);
                }
            }
        }
    }
    seen != degrees.len()
}

fn check_conversion(connection: &Connection, found: &mut Vec<Diagnostic>) {
    let Some(source) = &connection.conversion else { return };
    let id = &connection.id;
    if let Err(error) = convert::compile(source) {
        let place = match (error.line, error.column) {
            (Some(line), Some(column)) => format!(" at line {line}, column {column}"),
            (Some(line), None) => format!(" at line {line}"),
            _ => String::new(),
        };
        let message = format!("the conversion function of '{id}' is not valid{place}: {error}");
        let mut diagnostic = Diagnostic::error(error.code(), message).at(connection.conversion_span);
        if let Some(snippet) = &error.snippet {
            diagnostic = diagnostic.hint(format!("in: {}", snippet.trim()));
        }
        found.push(diagnostic.sub_code("CONVERSION_INVALID"));
        return;
    }
    if let Some(key) = convert::misses_wrapper(source) {
        let message =
            format!("the conversion function of '{id}' reads '{key}', which its argument never has");
        found.push(
            Diagnostic::warning(code::CONNECTION_VALUE_MISSING.as_str(), message)
                .at(connection.conversion_span)
                .sub_code("CONVERSION_WRAPPER")
                .hint(format!("the argument is {{value, output, data}}; write ['value'].get('{key}')")),
        );
    }
}

/// Compares what a node gives with what the next one needs, as far as the specs say.
fn check_contract(
    connection: &Connection,
    from: &FileNode,
    to: &FileNode,
    registry: &Registry,
    found: &mut Vec<Diagnostic>,
) {
    let (Some(gives), Some(takes)) = (registry.get(&from.spec_name()), registry.get(&to.spec_name())) else {
        return;
    };
    let id = &connection.id;
    let declared = gives.ports.contains(&connection.port);
    if !gives.ports.is_empty() && !declared && connection.port != "result" {
        let message = format!(
            "connection '{id}' leaves '{}' at '{}', where nothing is emitted",
            from.id, connection.port
        );
        let warning = Diagnostic::warning(code::CONNECTION_VALUE_MISSING.as_str(), message)
            .at(connection.span)
            .sub_code("CONTRACT_PORT");
        found.push(near(found.len(), warning, &connection.port, gives.ports.iter().map(String::as_str)));
    }
    let Some(shape) = gives.shape() else { return };
    let sample = Value::Object(shape.clone());
    let sample = match &connection.conversion {
        None => sample,
        // A trial with what is empty: an exception says nothing, its keys do.
        Some(source) => match convert::convert(source, &sample) {
            Ok(Converted::Value(value)) => value,
            _ => return,
        },
    };
    for key in Spec::required(&takes.input_params) {
        let brought = sample.get(key).is_some()
            || to.configurations.contains_key(key)
            || to.input_params.contains_key(key);
        if !brought {
            let message = format!("node '{}' needs '{key}', which connection '{id}' does not bring", to.id);
            let hint = format!("convert it: lambda d: {{'{key}': d['value'].get('…')}}");
            found.push(
                Diagnostic::warning(code::CONNECTION_VALUE_MISSING.as_str(), message)
                    .at(connection.span)
                    .sub_code("CONTRACT_MISSING_FIELD")
                    .hint(hint),
            );
        }
    }
}
