//! Expressions in parameters: `{{ … }}` in any string, at any depth.

use serde_json::{Map, Value};

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

/// Returns whether a string in the value opens an expression and never closes it.
pub(super) fn is_open(value: &Value) -> bool {
    match value {
        Value::String(text) => text.rfind("{{").is_some_and(|open| !text[open..].contains("}}")),
        Value::Array(items) => items.iter().any(is_open),
        Value::Object(members) => members.values().any(is_open),
        _ => false,
    }
}

/// Returns every expression in a value.
pub(super) fn expressions<'v>(
    value: &'v Value,
    visit: &mut impl FnMut(&'v str, Result<ScriptExpression, ExpressionFailure>),
) {
    match value {
        Value::String(text) => {
            for piece in pieces(text) {
                if let TextPiece::Expression(inner) = piece {
                    visit(inner, script::parse(inner));
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, visit)),
        Value::Object(members) => members.values().for_each(|value| expressions(value, visit)),
        _ => {}
    }
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

/// Resolves a string. A single expression keeps the type of its value; missing values and errors
/// are empty.
fn resolve_text(text: &str, scope: &dyn ScriptScope, budget: &FillBudget) -> Value {
    let value = |inner: &str| {
        let value = script::parse(inner).and_then(|expr| script::evaluate(&expr, scope)).unwrap_or_default();
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
