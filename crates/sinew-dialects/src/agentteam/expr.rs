//! Conditions and templates of configurations: paths, one comparison, `&&` and `||`, a few functions.
//!
//! Quirks of the original are kept where files may depend on them: `!` is not an operator, and
//! parentheses only count around the whole expression. [`lint`] warns authors of both.

use std::cell::RefCell;

use serde_json::{Map, Number, Value, json};
use sinew_script::{python_str, python_truth, python_type};

use crate::fill::FillBudget;
use crate::pattern::{MatchBudget, MatchPattern};

/// Maximum length of a condition or template, in bytes.
pub(super) const MAX_EXPRESSION_BYTES: usize = 16 << 10;
/// Maximum nesting of function calls.
pub(super) const MAX_CALL_DEPTH: u32 = 32;
/// Comparison operators; longer ones first.
const COMPARISONS: [&str; 8] = ["===", "!==", "==", "!=", ">=", "<=", ">", "<"];
/// Functions by name.
const FUNCTIONS: [&str; 18] = [
    "not",
    "and",
    "or",
    "len",
    "contains",
    "startswith",
    "endswith",
    "lower",
    "upper",
    "tonumber",
    "if",
    "clamp",
    "add",
    "sub",
    "mul",
    "div",
    "mod",
    "regex",
];
const MORE_FUNCTIONS: [&str; 2] = ["coalesce", "now"];
/// Names at the start of a path.
pub(super) const PATH_ROOTS: [&str; 10] =
    ["$json", "input", "$input", "inputs", "$config", "config", "$trigger", "trigger", "$node", "$nodes"];

/// Returns the names of the functions.
pub(super) fn functions() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.into_iter().chain(MORE_FUNCTIONS)
}

/// The reason why an expression has no value, worded like the Python exception.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct ExpressionError(pub(super) String);

/// Values that expressions may refer to.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpressionScope {
    /// `$json`, `input`: the arrived input.
    pub(super) input: Value,
    /// `$input`: inputs by name.
    pub(super) inputs: Value,
    /// `$config`.
    pub(super) config: Value,
    /// `$trigger`.
    pub(super) trigger: Value,
    /// `$node["id"]`.
    pub(super) nodes_id: Map<String, Value>,
    /// `$node["name"]`.
    pub(super) nodes_name: Map<String, Value>,
    /// `now()`, in milliseconds since 1970.
    pub(super) now: u64,
    /// Shared budget of all patterns.
    pub(super) budget: RefCell<MatchBudget>,
    /// Shared budget of all templates.
    pub(super) filled: FillBudget,
}

type Result<T> = std::result::Result<T, ExpressionError>;

impl ExpressionScope {
    /// Returns whether a condition holds.
    pub(super) fn holds(&self, text: &str) -> Result<bool> {
        fits(text)?;
        Ok(python_truth(&self.condition(text, 0)?))
    }

    /// Replaces every `{{ … }}` in a string; missing values are empty, lists are formatted as in
    /// Python.
    pub(super) fn render(&self, text: &str) -> Result<String> {
        fits(text)?;
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find("{{") {
            let Some(length) = rest[start..].find("}}") else { break };
            out.push_str(&rest[..start]);
            let value = self.operand(rest[start + 2..start + length].trim(), 0)?;
            if !value.is_null() {
                let text = python_str(&value);
                self.filled.pay(text.len()).map_err(|error| ExpressionError(error.to_string()))?;
                out.push_str(&text);
            }
            rest = &rest[start + length + 2..];
        }
        out.push_str(rest);
        Ok(out)
    }

    /// Renders all strings in a value.
    pub(super) fn render_all(&self, value: &Value) -> Result<Value> {
        Ok(match value {
            Value::String(text) if text.contains("{{") => Value::String(self.render(text)?),
            Value::Array(items) => items.iter().map(|item| self.render_all(item)).collect::<Result<_>>()?,
            Value::Object(members) => {
                let rendered = members.iter().map(|(key, value)| Ok((key.clone(), self.render_all(value)?)));
                Value::Object(rendered.collect::<Result<_>>()?)
            }
            other => other.clone(),
        })
    }

    /// Returns the value of one operand: a literal, a function or a path.
    pub(super) fn value(&self, text: &str) -> Result<Value> {
        fits(text)?;
        self.operand(text.trim(), 0)
    }

    fn condition(&self, text: &str, depth: u32) -> Result<Value> {
        let text = inside_parentheses(text.trim());
        let any = split(text, "||");
        if any.len() > 1 {
            for part in any {
                if python_truth(&self.conjunction(part, depth)?) {
                    return Ok(json!(true));
                }
            }
            return Ok(json!(false));
        }
        self.conjunction(text, depth)
    }

    fn conjunction(&self, text: &str, depth: u32) -> Result<Value> {
        let all = split(text, "&&");
        if all.len() > 1 {
            for part in all {
                if !python_truth(&self.comparison(part, depth)?) {
                    return Ok(json!(false));
                }
            }
            return Ok(json!(true));
        }
        self.comparison(text, depth)
    }

    fn comparison(&self, text: &str, depth: u32) -> Result<Value> {
        let Some((at, operator)) = comparison_at(text) else { return self.operand(text.trim(), depth) };
        let left = self.operand(text[..at].trim(), depth)?;
        let right = self.operand(text[at + operator.len()..].trim(), depth)?;
        Ok(Value::Bool(match operator {
            "==" | "===" => equal(&left, &right),
            "!=" | "!==" => !equal(&left, &right),
            _ if left.is_null() || right.is_null() => false,
            _ => {
                let order = order(&left, &right).ok_or_else(|| {
                    let (left, right) = (python_type(&left), python_type(&right));
                    ExpressionError(format!(
                        "TypeError: '{operator}' not supported between '{left}' and '{right}'"
                    ))
                })?;
                match operator {
                    ">" => order.is_gt(),
                    ">=" => order.is_ge(),
                    "<" => order.is_lt(),
                    _ => order.is_le(),
                }
            }
        }))
    }

    fn operand(&self, text: &str, depth: u32) -> Result<Value> {
        if let Some(literal) = literal(text) {
            return Ok(literal);
        }
        if let Some((name, arguments)) = call(text) {
            return self.call(&name, arguments, depth);
        }
        Ok(self.path(text).cloned().unwrap_or_default())
    }

    fn path(&self, text: &str) -> Option<&Value> {
        let mut steps = steps(text)?.into_iter();
        let first = steps.next()?;
        let mut value = match first.to_ascii_lowercase().as_str() {
            "$json" | "input" => &self.input,
            "$input" | "inputs" => &self.inputs,
            "$config" | "config" => &self.config,
            "$trigger" | "trigger" => &self.trigger,
            "$node" | "$nodes" => {
                let id = steps.next()?;
                self.nodes_id.get(&id).or_else(|| self.nodes_name.get(&id))?
            }
            _ => return None,
        };
        for step in steps {
            value = member(value, &step)?;
        }
        Some(value)
    }

    fn call(&self, name: &str, arguments: &str, depth: u32) -> Result<Value> {
        if depth >= MAX_CALL_DEPTH {
            return Err(ExpressionError("RecursionError: functions are nested too deeply".into()));
        }
        let parts: Vec<&str> = if arguments.trim().is_empty() { Vec::new() } else { split(arguments, ",") };
        let mut values = Vec::with_capacity(parts.len());
        for part in parts {
            values.push(self.condition(part, depth + 1)?);
        }
        let at = |n: usize| values.get(n).unwrap_or(&Value::Null);
        let text = |n: usize| if at(n).is_null() { String::new() } else { python_str(at(n)) };
        let number = |n: usize| {
            to_number(at(n)).ok_or_else(|| {
                ExpressionError(format!("TypeError: {name}() needs numbers, not '{}'", python_type(at(n))))
            })
        };
        Ok(match name {
            "not" => json!(!python_truth(at(0))),
            "and" => json!(values.iter().all(python_truth)),
            "or" => json!(values.iter().any(python_truth)),
            "len" => match at(0) {
                Value::String(text) => json!(text.chars().count()),
                Value::Array(items) => json!(items.len()),
                Value::Object(members) => json!(members.len()),
                _ => json!(0),
            },
            "contains" => match at(0) {
                Value::Array(items) => json!(items.iter().any(|item| equal(item, at(1)))),
                Value::Object(members) => json!(members.contains_key(&text(1))),
                Value::Null => json!(false),
                _ => json!(text(0).contains(&text(1))),
            },
            "startswith" => json!(text(0).starts_with(&text(1))),
            "endswith" => json!(text(0).ends_with(&text(1))),
            "lower" => json!(text(0).to_lowercase()),
            "upper" => json!(text(0).to_uppercase()),
            "tonumber" => to_number(at(0)).map_or(Value::Null, from_number),
            "if" => at(if python_truth(at(0)) { 1 } else { 2 }).clone(),
            "clamp" => {
                let (value, low, high) = (number(0)?, number(1)?, number(2)?);
                from_number(value.min(high).max(low))
            }
            "add" => from_number(number(0)? + number(1)?),
            "sub" => from_number(number(0)? - number(1)?),
            "mul" => from_number(number(0)? * number(1)?),
            "div" | "mod" if number(1)? == 0.0 => {
                return Err(ExpressionError("ZeroDivisionError: division by zero".into()));
            }
            "div" => from_number(number(0)? / number(1)?),
            // As in Python, the result has the sign of the divisor.
            "mod" => from_number(number(0)? - number(1)? * (number(0)? / number(1)?).floor()),
            "regex" => {
                let pattern = MatchPattern::of(&text(1)).ok().filter(|pattern| pattern.is_linear());
                let pattern =
                    pattern.ok_or_else(|| ExpressionError("error: the pattern cannot be used".into()))?;
                let found = pattern.is_match(&text(0), &mut self.budget.borrow_mut());
                json!(found.map_err(|fault| ExpressionError(format!("error: {}", fault.message)))?)
            }
            "coalesce" => values.iter().find(|value| !value.is_null()).cloned().unwrap_or_default(),
            "now" => json!(super::message::timestamp(self.now)),
            _ => Value::Null,
        })
    }
}

/// Returns hints for the author of a condition, one sentence each.
pub(super) fn lint(text: &str) -> Vec<&'static str> {
    let mut hints = Vec::new();
    let trimmed = inside_parentheses(text.trim());
    let mut parts = split(trimmed, "||").into_iter().flat_map(|part| split(part, "&&"));
    if parts.clone().any(|part| part.trim().starts_with('!')) {
        hints.push("'!' is not an operator here and makes the condition false; write not(…)");
    }
    if parts.any(|part| part.trim().starts_with('(')) {
        hints.push("parentheses are recognised only around the whole condition; use and(…) and or(…)");
    }
    let plain_data = trimmed.match_indices("data.").any(|(at, _)| {
        !trimmed[..at].ends_with(|c: char| c == '.' || c == '_' || c == '$' || c.is_alphanumeric())
    });
    if plain_data {
        hints.push("'data' is not in scope; write $json.data");
    }
    hints
}

fn fits(text: &str) -> Result<()> {
    if text.len() > MAX_EXPRESSION_BYTES {
        return Err(ExpressionError(format!("ValueError: longer than {MAX_EXPRESSION_BYTES} bytes")));
    }
    Ok(())
}

/// Calls `visit` for every byte outside of quotes and brackets.
fn outside(text: &str, mut visit: impl FnMut(usize) -> Option<usize>) {
    let bytes = text.as_bytes();
    let (mut at, mut depth, mut quote) = (0, 0_i32, None);
    while at < bytes.len() {
        let byte = bytes[at];
        match (quote, byte) {
            (Some(open), _) if open == byte => quote = None,
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'(' | b'[') => depth += 1,
            (None, b')' | b']') => depth -= 1,
            (None, _) if depth == 0 => {
                if let Some(skip) = visit(at) {
                    at += skip;
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
}

pub(super) fn split<'t>(text: &'t str, separator: &str) -> Vec<&'t str> {
    let mut parts = Vec::new();
    let mut from = 0;
    outside(text, |at| {
        text.as_bytes()[at..].starts_with(separator.as_bytes()).then(|| {
            parts.push(&text[from..at]);
            from = at + separator.len();
            separator.len()
        })
    });
    parts.push(&text[from..]);
    parts
}

pub(super) fn comparison_at(text: &str) -> Option<(usize, &'static str)> {
    let mut first = None;
    outside(text, |at| {
        if first.is_none() {
            let operator = COMPARISONS.iter().find(|one| text.as_bytes()[at..].starts_with(one.as_bytes()));
            first = operator.map(|operator| (at, *operator));
        }
        None
    });
    first
}

/// Removes parentheses around the whole expression.
pub(super) fn inside_parentheses(text: &str) -> &str {
    let Some(inner) = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) else { return text };
    let (mut depth, mut quote) = (0_i32, None);
    for byte in inner.bytes() {
        match (quote, byte) {
            (Some(open), _) if open == byte => quote = None,
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'(') => depth += 1,
            (None, b')') => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return text;
        }
    }
    inner.trim()
}

pub(super) fn literal(text: &str) -> Option<Value> {
    let quoted = |quote: char| {
        let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
        (text.len() >= 2 && !inner.contains(quote)).then(|| json!(inner))
    };
    match text {
        "" => Some(json!("")),
        "true" | "True" => Some(json!(true)),
        "false" | "False" => Some(json!(false)),
        "null" | "None" => Some(Value::Null),
        _ => quoted('\'').or_else(|| quoted('"')).or_else(|| number(text)),
    }
}

fn number(text: &str) -> Option<Value> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) {
        return None;
    }
    let whole = text.parse::<i64>().ok().map(Value::from);
    whole.or_else(|| text.parse::<f64>().ok().and_then(Number::from_f64).map(Value::Number))
}

pub(super) fn call(text: &str) -> Option<(String, &str)> {
    let (name, rest) = text.split_once('(')?;
    let name = name.trim().to_ascii_lowercase();
    let known = functions().any(|function| function == name);
    let arguments = rest.strip_suffix(')')?;
    known.then_some((name, arguments))
}

/// Returns the steps of a path: names, `["name"]` and `[0]`; `None` if it is not a path.
pub(super) fn steps(text: &str) -> Option<Vec<String>> {
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (step, after) = inner.split_once(']')?;
            steps.push(step.trim().trim_matches(['"', '\'']).to_owned());
            rest = after.strip_prefix('.').unwrap_or(after);
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let step = &rest[..end];
            let named = step.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '-' | ' '));
            if step.is_empty() || !named {
                return None;
            }
            steps.push(step.to_owned());
            rest = rest[end..].strip_prefix('.').unwrap_or(&rest[end..]);
        }
    }
    Some(steps)
}

fn member<'v>(value: &'v Value, step: &str) -> Option<&'v Value> {
    match value {
        Value::Object(members) => members.get(step).or_else(|| {
            let found = members.iter().find(|(key, _)| key.eq_ignore_ascii_case(step));
            found.map(|(_, value)| value)
        }),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    }
}

/// Compares as Python's `==`: booleans are numbers.
fn equal(left: &Value, right: &Value) -> bool {
    match (plain_number(left), plain_number(right)) {
        (Some(left), Some(right)) => left.partial_cmp(&right).is_some_and(std::cmp::Ordering::is_eq),
        _ => left == right,
    }
}

fn order(left: &Value, right: &Value) -> Option<std::cmp::Ordering> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => plain_number(left)?.partial_cmp(&plain_number(right)?),
    }
}

fn plain_number(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(truth) => Some(f64::from(u8::from(*truth))),
        other => other.as_f64(),
    }
}

fn to_number(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
        other => plain_number(other),
    }
}

/// Converts a number to JSON and keeps integers as integers.
fn from_number(number: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() < EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "a whole number that i64 holds exactly")]
        let whole = number as i64;
        return json!(whole);
    }
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}
