//! Configuration keys and values that look misspelled.

use std::collections::BTreeSet;

use sinew_protocol::code;
use sinew_source::{Diagnostic, Node, hint_for};

use super::model::{TeamFile, TeamNode};
use super::spec::SpecRegistry;

/// Keys of every node.
const COMMON: [&str; 8] = [
    "agent",
    "timeout_seconds",
    "retry_attempts",
    "retry_backoff_seconds",
    "retry_backoff_factor",
    "retry_jitter_seconds",
    "user_prompt",
    "system_prompt",
];
/// Keys of the built-in nodes of the flow, by subtype.
const FLOW_KEYS: [(&str, &[&str]); 8] = [
    ("IF", &["condition_expression", "condition_type"]),
    ("SWITCH", &["switch_value", "cases", "condition_expression"]),
    ("FILTER", &["filter_expression", "filter_condition", "condition_expression"]),
    ("SORT", &["sort_key", "sort_by", "key", "order", "sort_order"]),
    ("MERGE", &["merge_strategy", "merge_mode", "mode"]),
    ("LOOP", &["loop_type", "items", "items_path", "array_path", "iterate_over", "source"]),
    ("WAIT", &["wait_for", "wait_seconds", "duration_seconds", "timeout"]),
    ("DELAY", &["delay_seconds", "duration_seconds", "delay_ms", "time_unit", "duration_unit"]),
];
/// Minimum length of a compared key, in characters.
const MIN_KEY_CHARS: usize = 5;
/// Values of the order of a sort.
const ORDERS: [&str; 4] = ["ascending", "descending", "asc", "desc"];

/// Warns about keys that resemble a known one that the node lacks, and about orders of a sort.
pub(super) fn check(file: &TeamFile, registry: &SpecRegistry, found: &mut Vec<Diagnostic>) {
    for node in &file.nodes {
        let declared =
            registry.get(&node.spec_name()).into_iter().flat_map(|spec| spec.configurations.keys());
        let of_flow = FLOW_KEYS.iter().filter(|(subtype, _)| node.kind == "FLOW" && node.subtype == *subtype);
        let of_flow = of_flow.flat_map(|(_, keys)| keys.iter().copied());
        let known: BTreeSet<&str> = declared.map(String::as_str).chain(of_flow).chain(COMMON).collect();
        let lacking = || known.iter().copied().filter(|key| !node.configurations.contains_key(*key));
        for member in node.written.iter().filter(|member| !known.contains(member.key.as_str())) {
            let key = &member.key;
            let is_compared = key.chars().count() >= MIN_KEY_CHARS;
            let Some(near) = hint_for(found.len(), key, lacking()).filter(|_| is_compared) else { continue };
            let message = format!("node '{}' has the configuration '{key}', which is not used", node.id);
            found.push(unknown(message).at(member.key_span).hint(format!("did you mean '{near}'?")));
        }
        check_order(node, found);
    }
}

fn check_order(node: &TeamNode, found: &mut Vec<Diagnostic>) {
    if (node.kind.as_str(), node.subtype.as_str()) != ("FLOW", "SORT") {
        return;
    }
    let written = node.written.iter().filter(|member| matches!(member.key.as_str(), "order" | "sort_order"));
    for (member, order) in written.filter_map(|member| Some((member, Node::as_str(&member.value)?))) {
        let lower = order.to_ascii_lowercase();
        if !order.contains("{{") && !lower.starts_with("asc") && !lower.starts_with("desc") {
            let message = format!("the order '{order}' of node '{}' is treated as ascending", node.id);
            let near = hint_for(found.len(), order, ORDERS.into_iter()).unwrap_or("ascending");
            found.push(unknown(message).at(member.value.span).hint(format!("did you mean '{near}'?")));
        }
    }
}

fn unknown(message: String) -> Diagnostic {
    Diagnostic::warning(code::AGENT_TEAM_WORKFLOW_WRONG_SHAPE.as_str(), message)
        .sub_code("UNKNOWN_CONFIGURATION")
}
