//! Checks before execution: ids, cycles, specs, conversions, and contracts between connected nodes.

use sinew_protocol::code;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use serde_json::Value;
use sinew_source::{Diagnostic, Sources, Span, token_span};

use super::argument::{ArgumentReads, ConversionArgument};
use super::convert::{self, ConversionResult};
use super::model::{TeamConnection, TeamFile, TeamNode};
use super::spec::{NodeSpec, SpecRegistry};
use super::{expr, known_keys, operand_check, references, schema};
use crate::chain::path_text;
use crate::script_span::place_in;

/// A prompt is searched for in fields of several names.
const LEGACY_EXTRACTION: &str = code::PROMPT_FIELD_NAMES_TRIED.as_str();
/// The original's name for an invalid file.
const INVALID: &str = "WorkflowValidationError";

/// Checks a parsed file and reports all errors.
pub(super) fn check(
    file: &TeamFile,
    registry: &SpecRegistry,
    root: Span,
    sources: &Sources,
    found: &mut Vec<Diagnostic>,
) {
    let ids: BTreeMap<&str, &TeamNode> = file.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    for connection in &file.connections {
        for (side, id, span) in [
            ("from_node", &connection.from, connection.from_span),
            ("to_node", &connection.to, connection.to_span),
        ] {
            if !ids.contains_key(id.as_str()) && !file.unusable.contains(id) {
                let message =
                    format!("connection '{}' has the {side} '{id}', which is not a node", connection.id);
                found.push(near(found.len(), invalid(message, span), id, ids.keys().copied()));
            }
        }
    }
    for (id, span) in &file.triggers {
        match ids.get(id.as_str()) {
            Some(node) if node.kind != "TRIGGER" => {
                let message = format!("'{id}' is listed as a trigger, but its type is {}", node.kind);
                found.push(invalid(message, *span).hint("only nodes of the type TRIGGER start a workflow"));
            }
            None if !file.unusable.contains(id) => {
                let unknown = invalid(format!("trigger '{id}' is not a node"), *span);
                found.push(near(found.len(), unknown, id, ids.keys().copied()));
            }
            _ => {}
        }
    }
    for node in file.nodes.iter().chain(&file.repeated) {
        check_node(node, registry, &ids, found);
    }
    if let Some(cycle) = find_cycle(file) {
        let ids: Vec<&str> = cycle.iter().map(|one| one.to.as_str()).collect();
        let closed: Vec<&str> = ids.iter().chain(ids.first()).copied().collect();
        let named = path_text(&closed);
        let message = "Workflow graph contains a cycle; cannot compute topo order";
        let at = cycle.first().map_or(root, |closing| closing.to_span);
        let wrong = Diagnostic::error(code::AGENT_TEAM_CYCLE.as_str(), message).at(at).sub_code("CycleError");
        found.push(wrong.hint(format!("the cycle is {named}; remove one of these connections")));
    }
    twice(file, found);
    known_keys::check(file, registry, found);
    unconnected(file, found);
    for connection in &file.connections {
        check_conversion(connection, file.argument, sources, found);
        if let (Some(from), Some(to)) = (ids.get(connection.from.as_str()), ids.get(connection.to.as_str())) {
            check_contract(file, connection, [from, to], registry, sources, found);
        }
    }
    references::check(file, registry, sources, found);
    file.nodes.iter().for_each(|node| operand_check::check(node, found));
    check_legacy_extraction(file, &ids, found);
}

/// Reports once per file that agents search for their prompt in fields of several names.
fn check_legacy_extraction(file: &TeamFile, ids: &BTreeMap<&str, &TeamNode>, found: &mut Vec<Diagnostic>) {
    let extracts = |connection: &&TeamConnection| {
        let to = ids.get(connection.to.as_str());
        connection.conversion.is_none() && to.is_some_and(|to| to.kind == "AI_AGENT")
    };
    let first = file.connections.iter().find(extracts).filter(|_| !file.standard);
    if let Some(connection) = first {
        let message = format!(
            "node '{}' reads its prompt from several alternative fields, which is deprecated",
            connection.to
        );
        found.push(
            Diagnostic::warning(LEGACY_EXTRACTION, message)
                .at(connection.span)
                .sub_code("LEGACY_EXTRACTION")
                .hint("`sinew workflow migrate` rewrites the file to the standard message"),
        );
    }
}

/// Fields that functions read in addition to those of a spec: names that older nodes used.
const KNOWN_READS: [&str; 10] =
    ["response", "output", "content", "message", "text", "data", "result", "value", "parsed_json", "model"];

fn invalid(message: String, span: Span) -> Diagnostic {
    Diagnostic::error(code::AGENT_TEAM_WORKFLOW_WRONG_SHAPE.as_str(), message).at(span).sub_code(INVALID)
}

/// Adds the nearest known name as a hint, unless there are many findings already.
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
    node: &TeamNode,
    registry: &SpecRegistry,
    ids: &BTreeMap<&str, &TeamNode>,
    found: &mut Vec<Diagnostic>,
) {
    let name = node.spec_name();
    match registry.get(&name) {
        None => {
            let message = format!("node '{}' is of the type {name}, which has no spec", node.id);
            let has_kind = registry.keys().any(|known| known.split('.').next() == Some(node.kind.as_str()));
            let unknown = Diagnostic::error(code::NODE_TYPE_WITHOUT_SPEC.as_str(), message)
                .at(if has_kind { node.subtype_span } else { node.kind_span })
                .sub_code(INVALID);
            found.push(near(found.len(), unknown, &name, registry.keys().map(String::as_str)));
        }
        Some(spec) => {
            for key in NodeSpec::required(&spec.configurations) {
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
    if let Some(condition) = node.configurations.get("condition_expression").and_then(Value::as_str) {
        let span = node.place("condition_expression");
        for hint in expr::lint(condition) {
            let message =
                format!("the condition of node '{}' may be evaluated differently than written", node.id);
            found.push(
                Diagnostic::warning(code::CONDITION_MISLEADING.as_str(), message)
                    .at(span)
                    .sub_code("CONDITION_QUIRK")
                    .hint(hint),
            );
        }
    }
    if let Some((_, span)) = node.attached.first().filter(|_| node.kind != "AI_AGENT") {
        let message =
            format!("node '{}' is a {}; only an AI_AGENT can have attached nodes", node.id, node.kind);
        found.push(invalid(message, *span));
    }
    for (id, span) in &node.attached {
        match ids.get(id.as_str()) {
            None => {
                let message = format!("node '{}' attaches '{id}', which is not a node", node.id);
                found.push(near(found.len(), invalid(message, *span), id, ids.keys().copied()));
            }
            Some(other) if !matches!(other.kind.as_str(), "TOOL" | "MEMORY") => {
                let message = format!("node '{}' attaches '{id}', which is not a TOOL or MEMORY", node.id);
                found.push(invalid(message, *span));
            }
            Some(_) => {}
        }
    }
}

/// Returns the ids of nodes that belong to agents; they and their connections are not part of the
/// graph.
pub(super) fn attached(file: &TeamFile) -> BTreeSet<&str> {
    file.nodes.iter().flat_map(|node| &node.attached).map(|(id, _)| id.as_str()).collect()
}

/// Returns the connections of a cycle in the order of the flow; the first one closes it, at the node that
/// is first in the file.
fn find_cycle(file: &TeamFile) -> Option<Vec<&TeamConnection>> {
    let places: BTreeMap<&str, usize> =
        file.nodes.iter().enumerate().map(|(place, node)| (node.id.as_str(), place)).collect();
    let attached = attached(file);
    let mut after: Vec<Vec<(usize, &TeamConnection)>> = vec![Vec::new(); file.nodes.len()];
    let is_flow =
        |one: &&TeamConnection| !attached.contains(one.from.as_str()) && !attached.contains(one.to.as_str());
    for connection in file.connections.iter().filter(is_flow) {
        let ends = (places.get(connection.from.as_str()), places.get(connection.to.as_str()));
        if let (Some(from), Some(to)) = ends {
            after[*from].push((*to, connection));
        }
    }
    let mut done = vec![false; after.len()];
    for start in 0..after.len() {
        // The path from the start: a node, the number of its visited connections, and how it was reached.
        let mut path: Vec<(usize, usize, Option<&TeamConnection>)> = vec![(start, 0, None)];
        let mut on_path: BTreeMap<usize, usize> = BTreeMap::from([(start, 0)]);
        while let Some((node, visited, _)) = path.last_mut() {
            let (node, next) = (*node, after[*node].get(*visited).copied());
            *visited += 1;
            match next.filter(|_| !done[node]) {
                None => {
                    done[node] = true;
                    on_path.remove(&node);
                    path.pop();
                }
                Some((to, closing)) if on_path.contains_key(&to) => {
                    let from = on_path.get(&to).copied().unwrap_or(0) + 1;
                    let within = path[from.min(path.len())..].iter().filter_map(|(.., reached)| *reached);
                    let mut cycle: Vec<&TeamConnection> = std::iter::once(closing).chain(within).collect();
                    let first = cycle.iter().enumerate().min_by_key(|(_, one)| places.get(one.to.as_str()));
                    let first = first.map_or(0, |(n, _)| n);
                    cycle.rotate_left(first);
                    return Some(cycle);
                }
                Some((to, _)) if done[to] => {}
                Some((to, connection)) => {
                    on_path.insert(to, path.len());
                    path.push((to, 0, Some(connection)));
                }
            }
        }
    }
    None
}

/// Warns about connections with the id of another one.
fn twice(file: &TeamFile, found: &mut Vec<Diagnostic>) {
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    for connection in &file.connections {
        if let Some(first) = seen.insert(&connection.id, connection.id_span) {
            let message = format!("two connections have the id '{}'", connection.id);
            let warning = Diagnostic::warning(code::AGENT_TEAM_WORKFLOW_WRONG_SHAPE.as_str(), message);
            found.push(
                warning
                    .at(connection.id_span)
                    .sub_code("DUPLICATE_CONNECTION")
                    .related(first, "the first one"),
            );
        }
    }
}

/// Warns about nodes that no connection reaches or leaves, in a workflow with connections.
fn unconnected(file: &TeamFile, found: &mut Vec<Diagnostic>) {
    let mut used: BTreeSet<&str> =
        file.connections.iter().flat_map(|one| [one.from.as_str(), one.to.as_str()]).collect();
    // An unknown name may mean any node.
    let known: BTreeSet<&str> = file.nodes.iter().map(|node| node.id.as_str()).collect();
    if file.connections.is_empty() || !used.is_subset(&known) || !file.unusable.is_empty() {
        return;
    }
    used.extend(attached(file));
    let is_step = |node: &&TeamNode| !matches!(node.kind.as_str(), "TRIGGER" | "TOOL" | "MEMORY");
    for node in file.nodes.iter().filter(is_step).filter(|node| !used.contains(node.id.as_str())) {
        let message = format!("node '{}' is not connected: it runs at the start, without input", node.id);
        let warning = Diagnostic::warning(code::AGENT_TEAM_WORKFLOW_WRONG_SHAPE.as_str(), message);
        found.push(
            warning.at(node.id_span).sub_code("NOT_CONNECTED").hint("add a connection, or remove the node"),
        );
    }
}

fn check_conversion(
    connection: &TeamConnection,
    argument: ConversionArgument,
    sources: &Sources,
    found: &mut Vec<Diagnostic>,
) {
    let Some(source) = &connection.conversion else { return };
    let id = &connection.id;
    if let Err(error) = convert::compile(source) {
        let place = match (error.line, error.column) {
            (Some(line), Some(column)) => format!(" at line {line}, column {column}"),
            (Some(line), None) => format!(" at line {line}"),
            _ => String::new(),
        };
        let message = format!("the conversion function of '{id}' is not valid{place}: {error}");
        let span = place_in(sources, connection.conversion_span, source, &error);
        let mut diagnostic =
            Diagnostic::error(error.code(), message).at(span.unwrap_or(connection.conversion_span));
        if let Some(snippet) = &error.snippet {
            diagnostic = diagnostic.hint(format!("in: {}", snippet.trim()));
        }
        found.push(diagnostic.sub_code("CONVERSION_INVALID"));
        return;
    }
    if let Some(key) = ArgumentReads::of(source).payload.into_iter().find(|key| near_argument(key).is_some())
    {
        let message =
            format!("the conversion function of '{id}' reads '{key}', which its argument may not have");
        let warning = Diagnostic::warning(code::CONNECTION_VALUE_MISSING.as_str(), message);
        let warning =
            warning.at(quoted_span(connection, source, &key, sources)).sub_code("CONVERSION_ARGUMENT");
        let known = near_argument(&key).unwrap_or_default();
        found.push(warning.hint(format!("did you mean '{known}'?")));
        return;
    }
    if argument == ConversionArgument::Payload {
        return;
    }
    if let Some(key) = ArgumentReads::of(source).payload.first() {
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

/// Compares the output of a node with the required input of the next one, as far as the specs
/// declare them.
fn check_contract(
    file: &TeamFile,
    connection: &TeamConnection,
    [from, to]: [&TeamNode; 2],
    registry: &SpecRegistry,
    sources: &Sources,
    found: &mut Vec<Diagnostic>,
) {
    let (Some(gives), Some(takes)) = (registry.get(&from.spec_name()), registry.get(&to.spec_name())) else {
        return;
    };
    let id = &connection.id;
    let declared = gives.ports.contains(&connection.port);
    if !gives.ports.is_empty() && !declared && connection.port != "result" {
        let message = format!(
            "connection '{id}' leaves '{}' at '{}', a port that emits nothing",
            from.id, connection.port
        );
        let warning = Diagnostic::warning(code::CONNECTION_VALUE_MISSING.as_str(), message)
            .at(connection.port_span)
            .sub_code("CONTRACT_PORT");
        found.push(near(found.len(), warning, &connection.port, gives.ports.iter().map(String::as_str)));
    }
    if let Some(source) = &connection.conversion {
        check_result_keys(connection, source, takes, sources, found);
    }
    let Some(shape) = gives.shape() else { return };
    let sample = Value::Object(shape.clone());
    check_reads(connection, from, &sample, sources, found);
    let sample = match &connection.conversion {
        None => sample,
        // A trial with empty values: most exceptions are meaningless, but the keys and types of a
        // result are not.
        Some(source) => match convert::convert_with(source, file.argument, &sample) {
            Ok(ConversionResult::Value(value)) => value,
            Ok(ConversionResult::Raised(error)) => {
                if breaks_types(&error) {
                    let message = format!(
                        "the conversion function of '{id}' does not match the output types of '{}': {error}",
                        from.id
                    );
                    let span = place_in(sources, connection.conversion_span, source, &error);
                    found.push(
                        Diagnostic::warning(code::CONNECTION_VALUE_MISSING.as_str(), message)
                            .at(span.unwrap_or(connection.conversion_span))
                            .sub_code("CONVERSION_TYPES"),
                    );
                }
                return;
            }
            Err(_) => return,
        },
    };
    for key in NodeSpec::required(&takes.input_params) {
        let brought = sample.get(key).is_some()
            || to.configurations.contains_key(key)
            || to.input_params.contains_key(key);
        if !brought {
            let message = format!("node '{}' needs '{key}', which connection '{id}' does not provide", to.id);
            let hint = format!("convert it: lambda d: {{'{key}': d['value'].get('…')}}");
            found.push(
                Diagnostic::warning(code::CONNECTION_VALUE_MISSING.as_str(), message)
                    .at(connection.span)
                    .sub_code("CONTRACT_MISSING_FIELD")
                    .hint(hint),
            );
        }
    }
    check_types(connection, to, &sample, takes, found);
}

/// Warns about inputs whose type differs from the one that the next node expects.
fn check_types(
    connection: &TeamConnection,
    to: &TeamNode,
    sample: &Value,
    takes: &NodeSpec,
    found: &mut Vec<Diagnostic>,
) {
    let id = &connection.id;
    let types =
        takes.input_params.iter().filter_map(|(key, entry)| Some((key, entry.get("type")?.as_str()?)));
    for (key, kind) in types {
        let Some(given) = sample.get(key).filter(|given| !schema::is_of_type(given, kind)) else { continue };
        let message = format!(
            "node '{}' expects '{key}' as {kind}, but connection '{id}' provides a {}",
            to.id,
            sinew_script::python_type(given)
        );
        found.push(
            Diagnostic::warning(code::CONNECTION_VALUE_MISSING.as_str(), message)
                .at(connection.span)
                .sub_code("CONTRACT_TYPE"),
        );
    }
}

/// `'key':` in a function.
static DICT_KEY: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r#"['"](\w{5,})['"]\s*:"#).ok());

/// Warns about a key of a dict in a conversion that resembles a missing input of the next node.
fn check_result_keys(
    connection: &TeamConnection,
    source: &str,
    takes: &NodeSpec,
    sources: &Sources,
    found: &mut Vec<Diagnostic>,
) {
    let Some(pattern) = &*DICT_KEY else { return };
    let keys: BTreeSet<&str> =
        pattern.captures_iter(source).filter_map(|key| Some(key.get(1)?.as_str())).collect();
    let missing = || takes.input_params.keys().map(String::as_str).filter(|key| !keys.contains(key));
    for key in keys.iter().filter(|key| !takes.input_params.contains_key(**key)) {
        let Some(known) = sinew_source::hint_for(found.len(), key, missing()) else { continue };
        let message = format!(
            "the conversion function of '{}' returns '{key}', which node '{}' does not read",
            connection.id, connection.to
        );
        let warning = Diagnostic::warning(code::CONNECTION_VALUE_MISSING.as_str(), message);
        let warning = warning.at(quoted_span(connection, source, key, sources)).sub_code("CONVERSION_RESULT");
        found.push(warning.hint(format!("did you mean '{known}'?")));
    }
}

/// Returns the field of a conversion's argument that a name resembles, without being one.
fn near_argument(key: &str) -> Option<&'static str> {
    const MEMBERS: [&str; 3] = ["value", "output", "data"];
    let known = KNOWN_READS.contains(&key) || key.chars().count() < 5;
    if known { None } else { sinew_source::did_you_mean(key, MEMBERS.into_iter()) }
}

/// Returns the span of a quoted word in a conversion function, or else of the function.
fn quoted_span(connection: &TeamConnection, source: &str, word: &str, sources: &Sources) -> Span {
    let find = |quote: char| source.find(&format!("{quote}{word}{quote}"));
    let Some(start) = find('\'').or_else(|| find('"')) else { return connection.conversion_span };
    token_span(sources, connection.conversion_span, source, start..start + word.len() + 2)
}

/// Returns whether an exception for a sample shows that the function does not fit the types. A
/// sample contains only empty values, so errors about missing values are meaningless.
fn breaks_types(error: &sinew_script::ScriptError) -> bool {
    let exception = error.exception.as_deref().unwrap_or_default();
    matches!(exception, "TypeError" | "AttributeError") && !error.message.contains("NoneType")
}

/// Warns about a field that a function reads and that resembles a field of the node's output but
/// does not exist.
fn check_reads(
    connection: &TeamConnection,
    from: &TeamNode,
    gives: &Value,
    sources: &Sources,
    found: &mut Vec<Diagnostic>,
) {
    let (Some(source), Some(members)) = (&connection.conversion, gives.as_object()) else { return };
    // A trigger outputs any data that started the workflow.
    if from.kind == "TRIGGER" {
        return;
    }
    for read in ArgumentReads::of(source).members {
        if members.contains_key(&read) || KNOWN_READS.contains(&read.as_str()) {
            continue;
        }
        let Some(known) = sinew_source::did_you_mean(&read, members.keys().map(String::as_str)) else {
            continue;
        };
        let message = format!(
            "the conversion function of '{}' reads '{read}', which node '{}' does not provide",
            connection.id, from.id
        );
        found.push(
            Diagnostic::warning(code::CONNECTION_VALUE_MISSING.as_str(), message)
                .at(quoted_span(connection, source, &read, sources))
                .sub_code("CONVERSION_MEMBER")
                .hint(format!("did you mean '{known}'?")),
        );
    }
}
