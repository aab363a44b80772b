//! Expressions in parameters: `{{ … }}` in any string, at any depth.

use serde_json::{Map, Value};
use sinew_source::{Kind, Node};

use super::script::{self, ExpressionFailure, ScriptExpression, ScriptScope};
use crate::fill::{FillBudget, filled_bytes};
use crate::js;

/// A piece of a string.
#[derive(Debug, PartialEq)]
pub(super) enum TextPiece<'t> {
    /// Literal text.
    Text(&'t str),
    /// The text between the braces.
    Expression(&'t str),
}

/// Splits a string into pieces. Braces without a reference (`{{ name }}`, `{{}}`) are unchanged,
/// because other templates use them.
pub(super) fn pieces(text: &str) -> Vec<TextPiece<'_>> {
    let mut found = Vec::new();
    let mut from = 0;
    let mut at = 0;
    while let Some(open) = text[at..].find("{{").map(|open| at + open) {
        let Some(close) = end_of(&text[open + 2..]).map(|close| open + 2 + close) else { break };
        let inner = text[open + 2..close].trim();
        at = close + 2;
        if is_verbatim(inner) {
            continue;
        }
        if open > from {
            found.push(TextPiece::Text(&text[from..open]));
        }
        found.push(TextPiece::Expression(inner));
        from = at;
    }
    if from < text.len() {
        found.push(TextPiece::Text(&text[from..]));
    }
    found
}

/// Returns the end of the expression: at `}}` outside of string literals and objects.
fn end_of(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut depth, mut quote, mut at) = (0_u32, None, 0);
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if open == byte => quote = None,
            (None, byte @ (b'\'' | b'"' | b'`')) => quote = Some(byte),
            (None, b'{') => depth += 1,
            (None, b'}') if depth > 0 => depth -= 1,
            (None, b'}') if bytes.get(at + 1) == Some(&b'}') => return Some(at),
            _ => {}
        }
        at += 1;
    }
    // An apostrophe in prose is not a string literal: the nearest end counts then.
    text.find("}}")
}

fn is_verbatim(inner: &str) -> bool {
    let is_name = |c: char| c == '_' || c.is_alphanumeric();
    inner.is_empty()
        || (inner != "input"
            && inner.chars().all(is_name)
            && !inner.starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns the offset at which a string opens an expression and never closes it.
pub(super) fn open_at(text: &str) -> Option<usize> {
    text.rfind("{{").filter(|open| !text[*open..].contains("}}"))
}

/// Visits every string in a value.
pub(super) fn texts<'n>(value: &'n Node, visit: &mut impl FnMut(&'n Node, &'n str)) {
    match &value.kind {
        Kind::String(text) => visit(value, text),
        Kind::Array(items) => items.iter().for_each(|item| texts(item, visit)),
        Kind::Object(members) => members.iter().for_each(|member| texts(&member.value, visit)),
        _ => {}
    }
}

/// Returns every expression in a string, with the offset of its text.
pub(super) fn expressions(
    text: &str,
) -> impl Iterator<Item = (usize, &str, Result<ScriptExpression, ExpressionFailure>)> {
    pieces(text).into_iter().filter_map(move |piece| match piece {
        TextPiece::Expression(inner) => {
            Some((inner.as_ptr() as usize - text.as_ptr() as usize, inner, script::parse(inner)))
        }
        TextPiece::Text(_) => None,
    })
}

/// Returns whether the text between the braces of a prompt template is a path to a value, and not an
/// expression.
pub(super) fn is_plain_path(inner: &str) -> bool {
    inner.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ' '))
}

/// Returns the parameters with evaluated expressions, except those named in `raw`. Expressions
/// beyond the shared size budget are empty, like expressions that raise.
pub(super) fn resolve(
    data: &Map<String, Value>,
    raw: &[String],
    scope: &dyn ScriptScope,
) -> Map<String, Value> {
    resolve_members(data, raw, scope, &FillBudget::default())
}

fn resolve_members(
    data: &Map<String, Value>,
    raw: &[String],
    scope: &dyn ScriptScope,
    budget: &FillBudget,
) -> Map<String, Value> {
    let one = |(key, value): (&String, &Value)| {
        let value = if raw.contains(key) { value.clone() } else { resolve_value(value, scope, budget) };
        (key.clone(), value)
    };
    data.iter().map(one).collect()
}

fn resolve_value(value: &Value, scope: &dyn ScriptScope, budget: &FillBudget) -> Value {
    match value {
        Value::String(text) if text.contains("{{") => resolve_text(text, scope, budget),
        Value::Array(items) => items.iter().map(|item| resolve_value(item, scope, budget)).collect(),
        Value::Object(members) => Value::Object(resolve_members(members, &[], scope, budget)),
        other => other.clone(),
    }
}

/// Evaluates the expression of a prompt template; missing values and errors are null.
pub(super) fn value_of(inner: &str, scope: &dyn ScriptScope) -> Value {
    script::parse(inner).and_then(|expr| script::evaluate(&expr, scope)).unwrap_or_default()
}

/// Resolves a string. A single expression keeps the type of its value; missing values and errors
/// are empty.
fn resolve_text(text: &str, scope: &dyn ScriptScope, budget: &FillBudget) -> Value {
    let value = |inner: &str| {
        let value = value_of(inner, scope);
        let is_paid = budget.pay(filled_bytes(&value)).is_ok();
        if value.is_null() || !is_paid { Value::String(String::new()) } else { value }
    };
    let pieces = pieces(text);
    if let [TextPiece::Expression(inner)] = pieces.as_slice() {
        return value(inner);
    }
    let parts = pieces.iter().map(|piece| match piece {
        TextPiece::Text(text) => (*text).to_owned(),
        TextPiece::Expression(inner) => match value(inner) {
            plain @ (Value::Array(_) | Value::Object(_)) => spaced_json(&plain),
            plain => js::string(&plain),
        },
    });
    Value::String(parts.collect())
}

/// Formats JSON with a space after each comma and colon, as the dialect does in strings and events.
pub(super) fn spaced_json(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(spaced_json).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .map(|(key, value)| format!("{}: {}", Value::String(key.clone()), spaced_json(value)))
                .collect();
            format!("{{{}}}", members.join(", "))
        }
        other => other.to_string(),
    }
}
