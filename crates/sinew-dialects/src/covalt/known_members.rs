//! Checks of expressions against known output fields, and of identifiers in expressions.

use serde_json::Value;
use sinew_protocol::code;
use sinew_source::{Diagnostic, Span, hint_for};

use super::model::CanvasGraph;
use super::script::{ScriptExpression, UnknownIdentifier};

/// An expression reads a missing field.
const UNKNOWN_REFERENCE: &str = code::EXPRESSION_READS_UNKNOWN_PATH.as_str();

/// Returns the output fields of a kind of node, for kinds whose outputs always have the same
/// fields.
fn known_members(kind: &str) -> Option<&'static [&'static str]> {
    Some(match kind {
        "chat-start" => &[
            "message",
            "last_user_message",
            "runtime_messages",
            "attachments",
            "include_user_tools",
            "variables",
            "variable_specs",
        ],
        "agent" | "droid-agent" => &["response", "model", "tokens_used"],
        "llm-completion" => &["text", "usage"],
        "prompt-template" => &["text"],
        _ => return None,
    })
}

/// Returns warnings about fields that an expression reads and that the named node never returns.
pub(super) fn unknown_members(
    graph: &CanvasGraph,
    node: usize,
    expression: &ScriptExpression,
    place: Span,
    finding_count: usize,
) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for (base, member) in expression.member_reads() {
        let kind = match base {
            Some(name) => {
                let named = graph.find(name).into_iter();
                let mut named = named.chain(graph.nodes.iter().filter(|other| other.label == name));
                named.next().map(|node| node.kind.as_str())
            }
            None => sole_parent(graph, node),
        };
        // An agent may return additional outputs: only names that look misspelled are reported.
        let is_open = matches!(kind, Some("agent" | "droid-agent" | "llm-completion"));
        let Some(known) = kind.and_then(known_members).filter(|known| !known.contains(&member)) else {
            continue;
        };
        if is_open && sinew_source::did_you_mean(member, known.iter().copied()).is_none() {
            continue;
        }
        let source = base.map_or("input", |name| name);
        let message = format!(
            "expression in node '{}' reads '{member}' of '{source}', which never has it",
            graph.nodes[node].id
        );
        let mut warning =
            Diagnostic::warning(UNKNOWN_REFERENCE, message).at(place).sub_code("UNKNOWN_REFERENCE");
        if let Some(near) = hint_for(finding_count + found.len(), member, known.iter().copied()) {
            warning = warning.hint(format!("did you mean '{near}'?"));
        }
        found.push(warning);
    }
    found
}

/// Warns about unknown methods, functions and names in an expression.
pub(super) fn report_unknown_words(
    node: &str,
    expression: &ScriptExpression,
    place: Span,
    found: &mut Vec<Diagnostic>,
) {
    for word in expression.unknown_words() {
        let (code, sub_code, verb, word, known) = match word {
            UnknownIdentifier::Method(word, known) => {
                (code::COVALT_WORD_UNKNOWN.as_str(), "UNKNOWN_METHOD", "calls", word, known)
            }
            UnknownIdentifier::Name(word, known) => {
                (UNKNOWN_REFERENCE, "UNKNOWN_REFERENCE", "reads", word, known)
            }
        };
        let message = format!("expression in node '{node}' {verb} '{word}', which does not exist");
        let mut warning = Diagnostic::warning(code, message).at(place).sub_code(sub_code);
        if let Some(near) = hint_for(found.len(), word, known.into_iter()) {
            warning = warning.hint(format!("did you mean '{near}'?"));
        }
        found.push(warning);
    }
}

/// Returns the kind of the only node whose data reaches a node, skipping nodes that pass on their
/// input.
fn sole_parent(graph: &CanvasGraph, node: usize) -> Option<&str> {
    let mut incoming = graph.edges_into(node).filter(|edge| !edge.link && !edge.socket);
    let first = incoming.next()?;
    if incoming.next().is_some() || !matches!(first.target_handle.as_str(), "input" | "data") {
        return None;
    }
    let from = graph.find(&first.source)?;
    matches!(first.source_handle.as_str(), "output" | "data").then_some(from.kind.as_str())
}

impl ScriptExpression {
    /// Returns the first fields that are read of nodes (by name) and of the input (`None`).
    fn member_reads(&self) -> Vec<(Option<&str>, &str)> {
        let mut found = Vec::new();
        self.walk(&mut |part| {
            let Self::Member(base, key) = part else { return };
            let Self::Literal(Value::String(member)) = &**key else { return };
            if let Self::Name(name) = &**base
                && matches!(name.as_str(), "input" | "$input")
            {
                found.push((None, member.as_str()));
            } else if let Some(name) = base.node_output() {
                found.push((Some(name), member.as_str()));
            }
        });
        found
    }

    /// Returns the name in `$('name').item.json`.
    fn node_output(&self) -> Option<&str> {
        let member = |expression: &'_ Self, name: &str| -> bool {
            matches!(expression, Self::Literal(Value::String(key)) if key == name)
        };
        let Self::Member(item, json) = self else { return None };
        let Self::Member(call, key) = &**item else { return None };
        let Self::Call(function, arguments) = &**call else { return None };
        let is_node = matches!(&**function, Self::Name(name) if name == "$");
        match arguments.as_slice() {
            [Self::Literal(Value::String(name))]
                if is_node && member(json, "json") && member(key, "item") =>
            {
                Some(name)
            }
            _ => None,
        }
    }
}
