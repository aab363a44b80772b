//! Evaluated conditions of a node, with the values that they used, for people.

use sinew_engine::{BoundValue, SeenCondition};

use super::expr::ExpressionScope;
use super::lower::TeamNodeData;

/// Fields of configurations that contain a condition, by the displayed kind.
const CONDITIONS: [(&str, &str); 5] = [
    ("condition_expression", "condition"),
    ("condition", "condition"),
    ("filter_expression", "condition"),
    ("filter_condition", "condition"),
    ("switch_value", "switch"),
];
/// Further fields whose value a switch compares.
const SWITCHED: [&str; 2] = ["value", "expression"];
/// Maximum number of values of one condition.
const MAX_BOUND: usize = 20;

/// Returns the conditions of a FLOW node.
pub(super) fn conditions(extra: &TeamNodeData, scope: &ExpressionScope) -> Vec<SeenCondition> {
    let is_switch = extra.subtype == "SWITCH";
    let switched = SWITCHED.iter().filter(|_| is_switch).map(|key| (*key, "switch"));
    CONDITIONS
        .into_iter()
        .chain(switched)
        .filter_map(|(key, kind)| Some((extra.configurations.get(key)?.as_str()?, kind)))
        .map(|(text, kind)| seen(scope, text, kind))
        .collect()
}

fn seen(scope: &ExpressionScope, text: &str, kind: &'static str) -> SeenCondition {
    let bare = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")).unwrap_or(text);
    let bound = paths_in(bare).into_iter().take(MAX_BOUND).map(|path| {
        let value = scope.value(&path).ok().filter(|value| !value.is_null());
        BoundValue::new(path, value)
    });
    SeenCondition {
        kind,
        text: text.to_owned(),
        bound: bound.collect(),
        holds: (kind == "condition").then(|| scope.holds(bare).ok()).flatten(),
    }
}

/// Returns the paths in a condition, each once: words that start with a dollar sign, and `input`.
fn paths_in(text: &str) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(begin) = rest.find(|c: char| c == '$' || c.is_alphanumeric() || "\"'".contains(c)) {
        rest = &rest[begin..];
        let length = match rest.chars().next() {
            // A string literal is not a path, whatever it contains.
            Some(quote @ ('"' | '\'')) => rest[1..].find(quote).map_or(rest.len(), |end| end + 2),
            _ => path_length(rest),
        };
        let word = &rest[..length];
        let is_path = word.starts_with('$') || word == "input" || word.starts_with("input.");
        if is_path && !paths.iter().any(|known| known == word) {
            paths.push(word.to_owned());
        }
        rest = &rest[length..];
    }
    paths
}

/// Returns the length of the path or word at the start of a string, in bytes: names, dots, and keys
/// in brackets.
fn path_length(text: &str) -> usize {
    let mut length = 0;
    while let Some(c) = text[length..].chars().next() {
        if c == '[' {
            let Some(end) = text[length..].find(']') else { break };
            length += end + 1;
        } else if c.is_alphanumeric() || "$_.".contains(c) {
            length += c.len_utf8();
        } else {
            break;
        }
    }
    length.max(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_are_found_and_texts_are_not() {
        let check = |text: &str, expected: &[&str]| assert_eq!(paths_in(text), expected, "{text}");
        check("$json.amount > 100 && $json.tier == '$json.no'", &["$json.amount", "$json.tier"]);
        check(
            "contains($node[\"a b\"].text, \"x\") || $json.amount",
            &["$node[\"a b\"].text", "$json.amount"],
        );
        check("input.n >= 3", &["input.n"]);
        check("'open", &[]);
        check("", &[]);
    }

    #[test]
    fn conditions_tell_what_they_saw() {
        let scope = ExpressionScope { input: json!({"amount": 7}), ..ExpressionScope::default() };
        let condition = seen(&scope, "{{ $json.amount > 5 && $json.tier == 'gold' }}", "condition");
        assert_eq!(condition.holds, Some(false));
        let bound: Vec<_> =
            condition.bound.iter().map(|one| (one.name.as_str(), one.value.clone())).collect();
        assert_eq!(bound, [("$json.amount", Some(json!(7))), ("$json.tier", None)]);
    }
}
