//! Malformed templates: text that looks like a template and is none.

use std::ops::Range;

use sinew_protocol::code;
use sinew_protocol::code::Code;

use super::path::{OUTPUT, Path, PathRoot};

/// A malformed template in a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TemplateDefect {
    /// Its bytes in the text.
    pub(super) range: Range<usize>,
    pub(super) code: Code,
    /// The second part of a sentence about the text.
    pub(super) problem: String,
    pub(super) hint: String,
}

/// Operators and other characters that paths do not have, with the reason in messages.
const FOREIGN: [(&str, &str); 14] = [
    ("==", "compares"),
    ("!=", "compares"),
    ("<", "compares"),
    (">", "compares"),
    ("|", "has a filter"),
    ("&&", "has an operator"),
    (" and ", "has an operator"),
    (" or ", "has an operator"),
    (" + ", "computes"),
    (" - ", "computes"),
    (" * ", "computes"),
    (" / ", "computes"),
    (" ? ", "has an operator"),
    ("(", "calls a function"),
];

/// Returns the first malformed template of a text. `is_node` returns whether a node has this id.
pub(super) fn defect(text: &str, is_node: &dyn Fn(&str) -> bool) -> Option<TemplateDefect> {
    let mut at = 0;
    while let Some(open) = text[at..].find('{').map(|open| at + open) {
        let dollar = text[..open].ends_with('$');
        let start = open - usize::from(dollar);
        let rest = &text[open..];
        if let Some(inner) = rest.strip_prefix("{{") {
            let close = inner.find("}}");
            let inner = match close {
                Some(close) if !inner[..close].contains("{{") => &inner[..close],
                _ => return Some(not_closed(text, open)),
            };
            let end = open + inner.len() + 4;
            let is_whole = dollar && text[..start].trim().is_empty() && text[end..].trim().is_empty();
            let found = match expression(inner.trim(), is_node) {
                None if is_whole => Some((open - 1, "starts with '$'", inner.trim().to_owned())),
                None => None,
                Some((reason, path)) => Some((open, reason, path)),
            };
            if let Some((start, reason, path)) = found {
                return Some(not_path(start..end, reason, &path, text));
            }
            at = end;
            continue;
        }
        let close = rest.find('}')?;
        let inner = rest[1..close].trim();
        if is_certain_path(inner, is_node) {
            let reason = if dollar { "is in the syntax of a shell" } else { "has single braces" };
            return Some(not_path(start..open + close + 1, reason, inner, text));
        }
        at = open + 1;
    }
    None
}

fn not_closed(text: &str, open: usize) -> TemplateDefect {
    TemplateDefect {
        range: open..text[open..].find('\n').map_or(text.len(), |end| open + end),
        code: code::TEMPLATE_NOT_CLOSED,
        problem: format!("opens a template and does not close it: {}", shown(&text[open..])),
        hint: "end it with '}}'".to_owned(),
    }
}

fn not_path(range: Range<usize>, reason: &str, path: &str, text: &str) -> TemplateDefect {
    let hint = if path.is_empty() {
        "write a path, such as {{workflow.input.NAME}} or {{NODE.output.NAME}}".to_owned()
    } else {
        format!("write {{{{{path}}}}}: a template is a path")
    };
    TemplateDefect {
        code: code::TEMPLATE_NOT_PATH,
        problem: format!("has a template that {reason}: {}", shown(&text[range.clone()])),
        range,
        hint,
    }
}

fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Returns why the text between double braces is not a path, and the path that was probably meant
/// (empty if there is none).
fn expression(inner: &str, is_node: &dyn Fn(&str) -> bool) -> Option<(&'static str, String)> {
    if inner.is_empty() {
        return Some(("is empty", String::new()));
    }
    // Ids and properties may contain any character.
    if is_node(inner.split('.').next().unwrap_or_default())
        && !inner.contains(['[', ']'])
        && !has_foreign(inner)
    {
        return None;
    }
    if let Some(path) = inner.strip_prefix('$') {
        return Some(("starts with '$'", path.trim_start_matches('.').to_owned()));
    }
    if let Some((at, reason)) = FOREIGN
        .iter()
        .filter_map(|(sign, reason)| Some((inner.find(sign)?, *reason)))
        .min_by_key(|(at, _)| *at)
    {
        let path = if reason == "calls a function" { "" } else { inner[..at].trim() };
        return Some((reason, path.to_owned()));
    }
    if inner.contains(['[', ']']) {
        return Some(("has a subscript", dotted(inner).unwrap_or_default()));
    }
    if inner.split('.').any(|step| step.trim().is_empty()) {
        let steps: Vec<&str> = inner.split('.').filter(|step| !step.trim().is_empty()).collect();
        return Some(("has an empty step", steps.join(".")));
    }
    None
}

fn has_foreign(inner: &str) -> bool {
    FOREIGN.iter().any(|(sign, _)| inner.contains(sign)) || inner.split('.').any(str::is_empty)
}

/// Returns a path with its subscripts as steps: `a[0]['b']` is `a.0.b`.
fn dotted(inner: &str) -> Option<String> {
    let mut path = String::new();
    let mut rest = inner;
    while let Some(open) = rest.find('[') {
        let close = open + rest[open..].find(']')?;
        let step = rest[open + 1..close].trim().trim_matches(['\'', '"']);
        let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        if step.is_empty() || !step.chars().all(is_plain) || step.starts_with('-') {
            return None;
        }
        path.push_str(&rest[..open]);
        path.push('.');
        path.push_str(step);
        rest = &rest[close + 1..];
    }
    path.push_str(rest);
    Some(path)
}

/// Returns whether a text in single braces can only be a path of a template.
fn is_certain_path(inner: &str, is_node: &dyn Fn(&str) -> bool) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    if inner.is_empty() || !inner.chars().all(is_plain) {
        return false;
    }
    let path = Path::parse(inner);
    match &path.root {
        PathRoot::Input => true,
        PathRoot::Node(id) => is_node(id) && path.steps.first().is_some_and(|step| step == OUTPUT),
        PathRoot::Item | PathRoot::Alias | PathRoot::Index | PathRoot::Iteration => inner.starts_with('_'),
        PathRoot::Workflow => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_that_looks_like_a_template_is_malformed() {
        let is_node = |id: &str| ["a", "my node (2)", "b>c"].contains(&id);
        let check = |text: &str, expected: Option<(&str, &str)>| {
            let found = defect(text, &is_node);
            let found = found.as_ref().map(|defect| (&text[defect.range.clone()], defect.hint.as_str()));
            assert_eq!(found, expected, "{text}");
        };
        for text in [
            "{{a.output.x}}",
            "{{ workflow.input.x }} and {{_map_item}}",
            "{{my node.output.first name}}",
            "Refund of ${{workflow.input.amount}} today",
            "{\"a\": {\"b\": 1}}",
            "{x} {0} {} {a}",
            "function() { return 1; }",
            "a } b",
            "{{a.output.größe-1}}",
        ] {
            check(text, None);
        }
        let path = |path: &str| format!("write {{{{{path}}}}}: a template is a path");
        check("x {{a.output[0].b}}", Some(("{{a.output[0].b}}", &path("a.output.0.b"))));
        check("{{a.output['b']}}", Some(("{{a.output['b']}}", &path("a.output.b"))));
        check("{{a.output.n > 1}}", Some(("{{a.output.n > 1}}", &path("a.output.n"))));
        check("{a.output.n}", Some(("{a.output.n}", &path("a.output.n"))));
        check("${a.output.n}", Some(("${a.output.n}", &path("a.output.n"))));
        check(" ${{ a.output.n }}", Some(("${{ a.output.n }}", &path("a.output.n"))));
        check("{{.a.output}}", Some(("{{.a.output}}", &path("a.output"))));
        check("{{a.x} {{b}}", Some(("{{a.x} {{b}}", "end it with '}}'")));
        check("{{a.x}\nb", Some(("{{a.x}", "end it with '}}'")));
    }
}
