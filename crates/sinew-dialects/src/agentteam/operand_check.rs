//! Operands of conditions and templates that are always null because of how they are written.

use sinew_protocol::code;
use std::collections::BTreeSet;

use serde_json::Value;
use sinew_source::{Diagnostic, hint_for};

use super::expr::{
    MAX_CALL_DEPTH, MAX_EXPRESSION_BYTES, PATH_ROOTS, call, comparison_at, functions, inside_parentheses,
    literal, split, steps,
};
use super::flow;
use super::model::TeamNode;

/// Roots that hints suggest, in the form in which people write them.
const OFFERED_ROOTS: [&str; 5] = ["$json", "$input", "$config", "$trigger", "$node"];
/// Types of nodes whose configurations are not rendered.
const NOT_RENDERED: [&str; 3] = ["TRIGGER", "TOOL", "MEMORY"];

/// An operand that never has a value.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NullOperand<'t> {
    /// A path that starts with this name.
    UnknownRoot(String),
    /// A call of this function.
    UnknownFunction(&'t str),
    /// Neither a value, a path nor a call.
    NotValid(&'t str),
}

/// Reports operands of a node's conditions and templates that never have a value.
pub(super) fn check(node: &TeamNode, found: &mut Vec<Diagnostic>) {
    let is_flow = node.kind == "FLOW";
    if let Some((key, text)) = flow::expression_of(&node.subtype, &node.configurations).filter(|_| is_flow) {
        check_expression(node, key, text, found);
        return;
    }
    // Other FLOW nodes use their configurations as written.
    let is_rendered = !NOT_RENDERED.contains(&node.kind.as_str())
        && (!is_flow || matches!(node.subtype.as_str(), "WAIT" | "DELAY"));
    for (key, value) in node.configurations.iter().filter(|_| is_rendered) {
        check_templates(node, key, value, found);
    }
}

fn check_expression(node: &TeamNode, key: &str, text: &str, found: &mut Vec<Diagnostic>) {
    let is_switch = node.subtype == "SWITCH";
    if is_switch && text.contains("{{") {
        check_templates(node, key, &text.into(), found);
        return;
    }
    if text.len() > MAX_EXPRESSION_BYTES {
        return;
    }
    // `expr::lint` reports some operands of these conditions.
    let mut walk = OperandWalk { found: BTreeSet::new(), is_linted: key == "condition_expression" };
    if is_switch {
        walk.operand(text.trim(), 0);
    } else {
        walk.condition(text, 0);
    }
    report(node, key, walk.found, found);
}

fn check_templates(node: &TeamNode, key: &str, value: &Value, found: &mut Vec<Diagnostic>) {
    match value {
        Value::String(text) if text.len() <= MAX_EXPRESSION_BYTES => {
            let mut walk = OperandWalk { found: BTreeSet::new(), is_linted: false };
            let mut rest = text.as_str();
            while let Some(start) = rest.find("{{") {
                let Some(length) = rest[start..].find("}}") else { break };
                walk.operand(rest[start + 2..start + length].trim(), 0);
                rest = &rest[start + length + 2..];
            }
            report(node, key, walk.found, found);
        }
        Value::Array(items) => {
            for item in items {
                check_templates(node, key, item, found);
            }
        }
        Value::Object(members) => {
            for member in members.values() {
                check_templates(node, key, member, found);
            }
        }
        _ => {}
    }
}

fn report(node: &TeamNode, key: &str, operands: BTreeSet<NullOperand<'_>>, found: &mut Vec<Diagnostic>) {
    let place = format!("'{key}' of node '{}'", node.id);
    for operand in operands {
        let (code, sub_code, message, hint) = match operand {
            NullOperand::UnknownRoot(root) => {
                let near = hint_for(found.len(), &root, OFFERED_ROOTS.into_iter());
                let hint = near.map_or_else(
                    || format!("paths start with {}; texts are quoted", OFFERED_ROOTS.join(", ")),
                    |near| format!("did you mean '{near}'?"),
                );
                let message = format!("{place} reads '{root}', which is not in scope and has no value");
                (code::EXPRESSION_READS_UNKNOWN_PATH, "UNKNOWN_REFERENCE", message, Some(hint))
            }
            NullOperand::UnknownFunction(name) => {
                let near = hint_for(found.len(), name, functions());
                let hint = near.map(|near| format!("did you mean '{near}'?"));
                let message = format!("{place} calls '{name}', which is not a function here");
                (code::CONDITION_MISLEADING, "UNKNOWN_FUNCTION", message, hint)
            }
            NullOperand::NotValid(text) => {
                let message = format!("{place} has a part without a value: '{text}' cannot be read");
                let hint = "an operand is a quoted text, a number, a path or a function".to_owned();
                (code::CONDITION_MISLEADING, "EXPRESSION", message, Some(hint))
            }
        };
        let mut warning = Diagnostic::warning(code.as_str(), message).at(node.place(key)).sub_code(sub_code);
        if let Some(hint) = hint {
            warning = warning.hint(hint);
        }
        found.push(warning);
    }
}

/// A walk through a string as `ExpressionScope` evaluates it.
struct OperandWalk<'t> {
    found: BTreeSet<NullOperand<'t>>,
    is_linted: bool,
}

impl<'t> OperandWalk<'t> {
    fn condition(&mut self, text: &'t str, depth: u32) {
        let text = inside_parentheses(text.trim());
        for part in split(text, "||").into_iter().flat_map(|part| split(part, "&&")) {
            match comparison_at(part) {
                Some((at, operator)) => {
                    self.operand(part[..at].trim(), depth);
                    self.operand(part[at + operator.len()..].trim(), depth);
                }
                None => self.operand(part.trim(), depth),
            }
        }
    }

    fn operand(&mut self, text: &'t str, depth: u32) {
        if literal(text).is_some() || depth >= MAX_CALL_DEPTH {
            return;
        }
        if let Some((_, arguments)) = call(text) {
            for part in split(arguments, ",") {
                self.condition(part, depth + 1);
            }
            return;
        }
        let is_told =
            self.is_linted && ((depth == 0 && text.starts_with(['!', '('])) || text.starts_with("data."));
        self.found.extend(null_operand(text).filter(|_| !is_told));
    }
}

/// Returns the reason why an operand that is neither a literal nor a call has no value.
fn null_operand(text: &str) -> Option<NullOperand<'_>> {
    let Some(steps) = steps(text) else {
        let name = text.split_once('(').map(|(name, _)| name.trim()).filter(|_| text.ends_with(')'));
        let is_word = |name: &&str| !name.is_empty() && name.chars().all(|c| c == '_' || c.is_alphanumeric());
        let unknown =
            name.filter(is_word).filter(|name| functions().all(|own| !own.eq_ignore_ascii_case(name)));
        return Some(unknown.map_or(NullOperand::NotValid(text), NullOperand::UnknownFunction));
    };
    let root = steps.first()?;
    if !PATH_ROOTS.iter().any(|known| known.eq_ignore_ascii_case(root)) {
        return Some(NullOperand::UnknownRoot(root.clone()));
    }
    // A field name may contain spaces; a second path in it is an operator that does not exist.
    steps.iter().any(|step| step.contains(" $")).then_some(NullOperand::NotValid(text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::AgentTeam;
    use super::super::tests::{T, graph};
    use crate::testing::{lower, slips};

    /// Returns sub codes and hints of the warnings about a node with these configurations.
    fn warnings(kind: &str, configurations: &Value) -> Vec<String> {
        let mut workflow = graph(&format!("{T} n:{kind}"), "t>n");
        workflow["nodes"][1]["configurations"] = configurations.clone();
        let found = lower(&AgentTeam, &workflow).unwrap_or_else(|refused| panic!("{refused}")).warnings;
        let told = ["UNKNOWN_REFERENCE", "UNKNOWN_FUNCTION", "EXPRESSION", "CONDITION_QUIRK"];
        let own =
            found.items.iter().filter(|item| told.contains(&item.sub_code.as_deref().unwrap_or_default()));
        slips(own)
    }

    #[test]
    fn operands_that_never_have_a_value_are_told() {
        let check = |kind: &str, key: &str, text: &str, want: &[&str]| {
            assert_eq!(warnings(kind, &json!({ key: text })), want, "{kind} {key}: {text}");
        };
        let condition = |text: &str, want: &[&str]| check("FLOW.IF", "condition_expression", text, want);
        for right in [
            "$json.n > 0",
            "{{ $json.n > 3 }}",
            "input.n > 3 && inputs.result.n != 1.5",
            "$JSON.n === 'a b' || config.lim <= $trigger.data.q",
            "$node[\"t\"].result.x == 7",
            "($json.n >= 2 || not($json.b))",
            "if(contains(lower($json.s), 'i'), coalesce($json.a, null), now()) == ''",
            "len($json.items[0]) == -1",
            "true",
            "",
        ] {
            condition(right, &[]);
        }
        condition("$jsn.n > 0", &["UNKNOWN_REFERENCE '$json'?"]);
        condition("$jsn.n > 0 && $jsn.n < 9", &["UNKNOWN_REFERENCE '$json'?"]);
        condition("$json.kind == urgent", &["UNKNOWN_REFERENCE"]);
        condition("$json.n >> 0", &["EXPRESSION"]);
        condition("{{ $json.a }} == 'x'", &["EXPRESSION"]);
        condition("$json.a and $json.b", &["EXPRESSION"]);
        condition("cotains($json.s, 'x')", &["UNKNOWN_FUNCTION 'contains'?"]);
        condition("and(!$json.a, $json.b)", &["EXPRESSION"]);
        condition("!$json.a", &["CONDITION_QUIRK"]);
        condition("data.k == 1", &["CONDITION_QUIRK"]);
        check("FLOW.FILTER", "filter_expression", "$jsno.n > 1", &["UNKNOWN_REFERENCE '$json'?"]);
        check("FLOW.FILTER", "filter_expression", "$json.n > 1", &[]);
        check("FLOW.SWITCH", "value", "$jsn.kind", &["UNKNOWN_REFERENCE '$json'?"]);
        check("FLOW.SWITCH", "value", "{{ $jsn.kind }}", &["UNKNOWN_REFERENCE '$json'?"]);
        check("FLOW.SWITCH", "value", "{{ $json.kind }}", &[]);
        check("FLOW.MERGE", "condition_type", "simple", &[]);
        let looped = |text: &str| warnings("FLOW.LOOP", &json!({ "loop_type": "while", "condition": text }));
        assert_eq!(looped("$json.index < 3"), [""; 0]);
        assert_eq!(looped("$jsn.index < 3"), ["UNKNOWN_REFERENCE '$json'?"]);
        assert_eq!(warnings("FLOW.LOOP", &json!({ "condition": "not a condition" })), [""; 0]);
    }

    #[test]
    fn templates_that_never_have_a_value_are_told() {
        let check = |kind: &str, text: &str, want: &[&str]| {
            assert_eq!(warnings(kind, &json!({ "deep": [{ "text": text }] })), want, "{kind}: {text}");
        };
        let template = |text: &str, want: &[&str]| check("ACTION.RUN_CODE", text, want);
        template("{{ $trigger.data.n }} {{input.x}} {{ coalesce($json.a, 'b') }} {{}}", &[]);
        template("no template: $jsn.n", &[]);
        template("{{ $triger.data.n }}", &["UNKNOWN_REFERENCE '$trigger'?"]);
        template("{{ $json.a + 1 }}", &["EXPRESSION"]);
        template("{{ uper($json.a) }}", &["UNKNOWN_FUNCTION 'upper'?"]);
        check("HUMAN_IN_THE_LOOP.MANUAL_REVIEW", "{{ name }}", &["UNKNOWN_REFERENCE"]);
        check("FLOW.DELAY", "{{ $jsn.n }}", &["UNKNOWN_REFERENCE '$json'?"]);
        // Strings of these nodes are used as written.
        check("FLOW.MERGE", "{{ $jsn.n }}", &[]);
        check("TOOL.SLACK_MCP_TOOL", "{{ $jsn.n }}", &[]);
    }
}
