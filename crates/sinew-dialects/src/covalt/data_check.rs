//! Checks of nodes with known parameters: unknown operators, and fields that look misspelled.

use sinew_protocol::code;
use std::collections::BTreeSet;

use serde_json::Value;
use sinew_source::{Diagnostic, Span, hint_for};

use super::catalogue::{self, NodeCatalogue};
use super::compute;
use super::model::{CanvasGraph, CanvasNode};
use crate::near_members::{KnownMembers, near_members};

/// Parameters of the types with known parameters. Other types pass all fields to their agents.
const PARAMETERS: [(&str, &KnownMembers); 9] = [
    ("chat-start", &[&["includeUserTools"], &["variables"]]),
    ("webhook-end", &[&["status"], &["headers"], &["body"]]),
    ("conditional", &[&["field"], &["operator"], &["value"], &["caseSensitive"]]),
    ("prompt-template", &[&["template", "prompt"], &["variables"]]),
    ("json-transform", &[&["mapping", "template", "json", "output", "expression"]]),
    ("model-selector", &[&["model"]]),
    ("code", &[&["code"], &["language"]]),
    ("loop", &[&["graph", "body", "workflow"], &["items"], &["parallel"]]),
    ("http-request", &[&["url"], &["method"], &["query"], &["headers"], &["body"]]),
];
/// Parameters of every type.
const COMMON: &KnownMembers = &[&["on_error"]];

/// Reports unknown operators, and data fields that look misspelled.
pub(super) fn check(graph: &CanvasGraph, catalogue: &NodeCatalogue, found: &mut Vec<Diagnostic>) {
    for (at, node) in graph.nodes.iter().enumerate() {
        let is_built_in = catalogue::built_in_kind(catalogue, &node.kind).is_some();
        let known = PARAMETERS.iter().find(|(kind, _)| *kind == node.kind && is_built_in);
        let Some((_, known)) = known else { continue };
        let wired: BTreeSet<&str> = graph.edges_into(at).map(|edge| edge.target_handle.as_str()).collect();
        if node.kind == "conditional" && !wired.contains("operator") {
            check_operator(node, found);
        }
        // A wire provides the field at whose handle it ends.
        let names: BTreeSet<&str> = node.data.keys().map(String::as_str).chain(wired).collect();
        let names: Vec<&str> = names.into_iter().collect();
        for (name, near) in near_members(&names, &[known, COMMON]) {
            if !node.data.contains_key(name) {
                continue;
            }
            let message =
                format!("node '{}' ({}) has the member '{name}', which is not used", node.id, node.kind);
            let warning = unknown("UNKNOWN_MEMBER", message, key_place(node, name));
            found.push(warning.hint(format!("did you mean '{near}'?")));
        }
    }
}

fn check_operator(node: &CanvasNode, found: &mut Vec<Diagnostic>) {
    let operator = node.data.get("operator").and_then(Value::as_str).unwrap_or_default();
    if operator.is_empty() || operator.contains("{{") || compute::OPERATORS.contains(&operator) {
        return;
    }
    let message = format!("the operator '{operator}' of node '{}' does not exist", node.id);
    let near = hint_for(found.len(), operator, compute::OPERATORS.into_iter());
    let hint = near.map_or_else(
        || format!("the operators are {}", compute::OPERATORS.join(", ")),
        |near| format!("did you mean '{near}'?"),
    );
    found.push(unknown("UNKNOWN_OPERATOR", message, node.place("operator")).hint(hint));
}

fn key_place(node: &CanvasNode, key: &str) -> Span {
    node.written.iter().find(|member| member.key == key).map_or(node.span, |member| member.key_span)
}

fn unknown(sub_code: &str, message: String, place: Span) -> Diagnostic {
    Diagnostic::warning(code::COVALT_WORD_UNKNOWN.as_str(), message).at(place).sub_code(sub_code)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Covalt;
    use super::super::compute::{OPERATORS, condition};
    use super::super::tests::graph;
    use crate::testing::{lower, slips};

    /// Returns sub codes and hints of the warnings about a node of this type with this data.
    fn warnings(kind: &str, edges: &str, data: &Value) -> Vec<String> {
        let file = graph(&format!("cs:chat-start n:{kind}"), edges, &json!({ "n": data }));
        let found = lower(&Covalt, &file).unwrap_or_else(|refused| panic!("{refused}")).warnings;
        assert!(found.items.iter().all(|item| item.code == "SINEW-2407"), "{found}");
        slips(&found.items)
    }

    #[test]
    fn operators_that_do_not_exist_are_told() {
        let check = |operator: &str, edges: &str, want: &[&str]| {
            let data = json!({ "field": "message", "operator": operator, "value": 1 });
            assert_eq!(warnings("conditional", edges, &data), want, "{operator} {edges}");
        };
        for operator in OPERATORS {
            check(operator, "cs>n", &[]);
            let params = json!({ "field": "n", "operator": operator, "value": 1 });
            assert!(condition(params.as_object().unwrap(), &json!({ "n": 1 })).is_ok(), "{operator}");
        }
        check("", "cs>n", &[]);
        check("{{ input.variables.operator }}", "cs>n", &[]);
        check("greaterThen", "cs>n", &["UNKNOWN_OPERATOR 'greaterThan'?"]);
        check("matches", "cs>n", &["UNKNOWN_OPERATOR"]);
        check("greaterThen", "cs>n cs>n.operator", &[]);
    }

    #[test]
    fn members_that_look_mistyped_are_told() {
        let check = |kind: &str, edges: &str, data: Value, want: &[&str]| {
            assert_eq!(warnings(kind, edges, &data), want, "{kind} {edges} {data}");
        };
        let right =
            json!({ "field": "a", "value": 1, "_label": "L", "label": "L", "color": "red", "notes": "" });
        check("conditional", "cs>n", right, &[]);
        check("conditional", "cs>n", json!({ "feild": "a", "value": 1 }), &["UNKNOWN_MEMBER 'field'?"]);
        check("conditional", "cs>n", json!({ "feild": "a", "field": "b", "value": 1 }), &[]);
        check("conditional", "cs>n cs>n.field", json!({ "feild": "a" }), &[]);
        check(
            "webhook-end",
            "cs>n",
            json!({ "header": {}, "onError": "continue" }),
            &["UNKNOWN_MEMBER 'headers'?", "UNKNOWN_MEMBER 'on_error'?"],
        );
        check("json-transform", "cs>n", json!({ "maping": {} }), &["UNKNOWN_MEMBER 'mapping'?"]);
        check("json-transform", "cs>n", json!({ "maping": {}, "template": {} }), &[]);
        // The agent may read it.
        check("agent", "cs>n", json!({ "instruction": "x", "modell": "y" }), &[]);
        check("reroute", "cs>n", json!({ "feild": "x" }), &[]);
    }
}
