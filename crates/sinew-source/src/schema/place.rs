//! Adds the position in the file and advice from the schema to violations.

use serde_json::Value;
use sinew_codes as code;

use super::{BUDGET_KEYWORD, DetailedViolation, Schema};
use crate::{Diagnostic, Node, Span, hint_for};

/// Checks a tree against a schema. The position of an unknown property is its key, that of a
/// missing one the start of the object, otherwise the value. Codes SINEW-4001 (general), 4002
/// (unknown property), 4003 (missing property), 4004 (wrong type), 4007 (nested too deeply), 4009
/// (over budget).
pub fn check_node(schema: &Schema, node: &Node) -> Vec<Diagnostic> {
    let findings = schema.findings(&node.to_json());
    let findings = findings.into_iter().enumerate();
    findings.map(|(count, finding)| diagnostic(schema, node, finding, count)).collect()
}

fn diagnostic(schema: &Schema, root: &Node, finding: DetailedViolation, count: usize) -> Diagnostic {
    let DetailedViolation { violation, key, expected } = finding;
    let code = match violation.keyword.as_str() {
        "additionalProperties" | "unevaluatedProperties" => code::UNKNOWN_PROPERTY,
        "required" => code::REQUIRED_PROPERTY_MISSING,
        "type" => code::VALUE_WRONG_TYPE,
        "depth" => code::VALUE_TOO_DEEP_TO_CHECK,
        BUDGET_KEYWORD => code::CHECK_BUDGET_EXCEEDED,
        _ => code::VALUE_DOES_NOT_MATCH_ITS_SCHEMA,
    };
    let node = root.at_pointer(&violation.pointer).unwrap_or(root);
    let member = key.as_deref().and_then(|key| node.member(key));
    let span = match (member, code) {
        (Some(member), _) => member.key_span,
        (None, code::REQUIRED_PROPERTY_MISSING) => Span { end: first_key_end(node), ..node.span },
        (None, _) => node.span,
    };
    let place =
        if violation.pointer.is_empty() { String::new() } else { format!(" at {}", violation.pointer) };
    let finding = Diagnostic::error(code.as_str(), format!("{}{place}", violation.message)).at(span);
    let word = if code == code::UNKNOWN_PROPERTY { key.as_deref() } else { node.as_str() };
    let known =
        if code == code::UNKNOWN_PROPERTY { properties(schema, &violation.schema_pointer) } else { expected };
    match word.and_then(|word| hint_for(count, word, known.iter().map(String::as_str))) {
        Some(known) => finding.hint(format!("did you mean '{known}'?")),
        None if code == code::UNKNOWN_PROPERTY && !known.is_empty() => finding.hint(allowed(known)),
        None => finding,
    }
}

/// For a missing property, only the first key (or bracket) of the object is marked.
fn first_key_end(node: &Node) -> usize {
    match node.as_object().and_then(<[_]>::first) {
        Some(first) if first.key_span.file == node.span.file && first.key_span.start == node.span.start => {
            first.key_span.end
        }
        _ => (node.span.start + 1).min(node.span.end.max(node.span.start)),
    }
}

/// Returns the properties that the schema defines next to the violated keyword.
fn properties(schema: &Schema, keyword: &str) -> Vec<String> {
    let parent = keyword.rsplit_once('/').map_or("", |(parent, _)| parent);
    match schema.source.pointer(parent).and_then(|schema| schema.get("properties")) {
        Some(Value::Object(properties)) => properties.keys().cloned().collect(),
        _ => Vec::new(),
    }
}

fn allowed(mut names: Vec<String>) -> String {
    const MOST: usize = 12;
    let more = names.len().saturating_sub(MOST);
    names.truncate(MOST);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("allowed here: {}{more}", names.join(", "))
}
