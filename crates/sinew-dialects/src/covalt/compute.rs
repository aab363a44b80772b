//! Nodes that need no agent.

use serde_json::{Map, Value, json};
use sinew_script::{CallBatch, CallOutcome, FunctionCall, python_type};

use super::coerce::DATA;
use super::scope::{input_of, typed};
use super::script::ScriptScope;
use super::template::{is_plain_path, value_of};
use crate::fill::{FillBudget, filled_bytes};
use crate::js;

/// The port of a response to a request.
pub(super) const RESPONSE: &str = "response";
/// Default status of a response.
const DEFAULT_STATUS: i64 = 200;

/// Operators of a `conditional`.
pub(super) const OPERATORS: [&str; 16] = [
    "equals",
    "notEquals",
    "contains",
    "notContains",
    "startsWith",
    "endsWith",
    "exists",
    "notExists",
    "isEmpty",
    "isNotEmpty",
    "greaterThan",
    "lessThan",
    "greaterThanOrEqual",
    "lessThanOrEqual",
    "greaterOrEqual",
    "lessOrEqual",
];

/// Input values of a computed node.
pub(super) struct NodeWork<'w> {
    /// Parameters: wires take precedence over expressions, and expressions over literals.
    pub(super) params: &'w Map<String, Value>,
    /// Values by input handle.
    pub(super) inputs: &'w Map<String, Value>,
    /// Typed values by input handle.
    pub(super) typed_inputs: &'w Map<String, Value>,
    /// The execution's input.
    pub(super) start: &'w Value,
    pub(super) trigger: Value,
    /// Values that expressions see; `None` for nodes without expressions.
    pub(super) scope: Option<&'w dyn ScriptScope>,
}

/// Returns typed outputs by port; `None` if this kind calls an agent.
pub(super) fn compute(kind: &str, work: &NodeWork<'_>) -> Option<Result<Map<String, Value>, String>> {
    let input = || input_of(work.inputs);
    let out = |value: Value| Ok(one("output", typed(DATA, value)));
    Some(match kind {
        "chat-start" => out(chat_start(work)),
        "webhook-trigger" => out(work.trigger.clone()),
        "webhook-end" => response(work).map(|response| one(RESPONSE, typed(DATA, response))),
        "prompt-template" => prompt(work).and_then(|text| out(json!({ "text": text }))),
        "json-transform" => out(transform(work)),
        "conditional" => condition(work.params, &input()).map(|holds| one(&holds.to_string(), passed(work))),
        "merge" => out(merge(work.inputs)),
        "reroute" => Ok(one("output", passed(work))),
        "code" if is_blank(work.params) => Ok(one("output", passed(work))),
        "model-selector" => {
            let model = work.params.get("model").cloned().unwrap_or_default();
            Ok(one("output", typed("model", model)))
        }
        _ => return None,
    })
}

fn one(port: &str, value: Value) -> Map<String, Value> {
    Map::from_iter([(port.to_owned(), value)])
}

/// Returns the data input with its type.
fn passed(work: &NodeWork<'_>) -> Value {
    let input = work.typed_inputs.get("input").or_else(|| work.typed_inputs.get("data"));
    input.or_else(|| work.typed_inputs.values().next()).cloned().unwrap_or_else(|| typed(DATA, Value::Null))
}

/// Returns the person's message: the input itself, or its field `message`, `text` or
/// `last_user_message`. Callers of a workflow as a tool send `text`.
pub(super) fn user_message(start: &Value, trigger: &Value) -> String {
    let of = |value: &Value| {
        ["message", "text", "last_user_message"]
            .iter()
            .find_map(|key| value.get(*key)?.as_str().map(str::to_owned))
    };
    match start {
        Value::String(text) => text.clone(),
        _ => of(start).or_else(|| of(trigger)).unwrap_or_default(),
    }
}

/// Returns body, status and headers of the response to a request.
fn response(work: &NodeWork<'_>) -> Result<Value, String> {
    let given = |key: &str| work.params.get(key).filter(|value| !value.is_null());
    let status = match given("status") {
        None => json!(DEFAULT_STATUS),
        Some(Value::String(text)) if text.trim().is_empty() => json!(DEFAULT_STATUS),
        Some(status) => {
            json!(whole_number(status).ok_or_else(|| format!("'{status}' is not a valid status"))?)
        }
    };
    let headers = match given("headers") {
        Some(Value::Object(headers)) => Value::Object(headers.clone()),
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
        _ => json!({}),
    };
    let headers = if headers.is_object() { headers } else { json!({}) };
    let body = work.params.get("body").cloned().unwrap_or_else(|| input_of(work.inputs));
    Ok(json!({ "body": body, "status": status, "headers": headers }))
}

/// Returns an integer, also one that a template converted to a string.
fn whole_number(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        Value::Number(number) => number.as_i64().or_else(|| {
            let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e9)?;
            #[expect(clippy::cast_possible_truncation, reason = "a whole number far below the limits of i64")]
            let whole = float as i64;
            Some(whole)
        }),
        _ => None,
    }
}

pub(super) fn chat_start(work: &NodeWork<'_>) -> Value {
    let start = work.start;
    let or = |key: &str, default: Value| start.get(key).cloned().unwrap_or(default);
    let message = json!(user_message(start, &work.trigger));
    let message = match start.get("message").or_else(|| work.trigger.get("message")) {
        // Attachments and similar data, for graphs that use them.
        Some(other) if !other.is_string() && !other.is_null() => other.clone(),
        _ => message,
    };
    let parameter = |key: &str, default: Value| work.params.get(key).cloned().unwrap_or(default);
    json!({
        "message": message,
        "last_user_message": or("last_user_message", message.clone()),
        "runtime_messages": or("runtime_messages", json!([])),
        "attachments": or("attachments", json!([])),
        "include_user_tools": parameter("includeUserTools", json!(false)),
        "variables": or("variables", json!({})),
        "variable_specs": parameter("variables", json!([])),
    })
}

/// Returns populated handles in the order of their numbers: `input`, `input_2`, `input_3`, …
fn merge(inputs: &Map<String, Value>) -> Value {
    let number = |handle: &str| match handle {
        "input" => 1,
        other => other.rsplit('_').next().and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX),
    };
    let mut handles: Vec<&String> = inputs.keys().collect();
    handles.sort_by_key(|handle| (number(handle), *handle));
    handles.into_iter().map(|handle| inputs[handle].clone()).collect()
}

/// Returns the value at a dotted path; `None` if it is missing.
pub(super) fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').filter(|step| !step.is_empty()).try_fold(value, |value, step| match value {
        Value::Object(members) => members.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

pub(super) fn condition(params: &Map<String, Value>, input: &Value) -> Result<bool, String> {
    let text = |key: &str| params.get(key).and_then(Value::as_str).unwrap_or_default();
    let found = at(input, text("field"));
    let operator = text("operator");
    let operator = if operator.is_empty() { "equals" } else { operator };
    match operator {
        "exists" => return Ok(found.is_some()),
        "notExists" => return Ok(found.is_none()),
        _ => {}
    }
    // A missing field satisfies no other operator, so it selects the false branch.
    let Some(found) = found else { return Ok(false) };
    let folds = params.get("caseSensitive") == Some(&json!(false));
    let fold = |value: &Value| match value {
        Value::String(text) if folds => json!(text.to_lowercase()),
        other => other.clone(),
    };
    let (value, wanted) = (fold(found), fold(params.get("value").unwrap_or(&Value::Null)));
    let within = |part: &Value| match &value {
        Value::Array(items) => items.iter().any(|item| js::equal(&fold(item), part)),
        Value::Object(members) => members.contains_key(&js::string(part)),
        other => js::string(other).contains(&js::string(part)),
    };
    Ok(match operator {
        "equals" => js::equal(&value, &wanted),
        "notEquals" => !js::equal(&value, &wanted),
        "contains" => within(&wanted),
        "notContains" => !within(&wanted),
        "startsWith" => js::string(&value).starts_with(&js::string(&wanted)),
        "endsWith" => js::string(&value).ends_with(&js::string(&wanted)),
        "isEmpty" => is_empty(&value),
        "isNotEmpty" => !is_empty(&value),
        "greaterThan" => order(&value, &wanted, ">")?.is_gt(),
        "lessThan" => order(&value, &wanted, "<")?.is_lt(),
        "greaterThanOrEqual" | "greaterOrEqual" => order(&value, &wanted, ">=")?.is_ge(),
        "lessThanOrEqual" | "lessOrEqual" => order(&value, &wanted, "<=")?.is_le(),
        other => return Err(format!("unknown operator '{other}'")),
    })
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

fn order(a: &Value, b: &Value, operator: &str) -> Result<std::cmp::Ordering, String> {
    let name = python_type;
    let found = match (a, b) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (a, b) => a.as_f64().zip(b.as_f64()).and_then(|(a, b)| a.partial_cmp(&b)),
    };
    found.ok_or_else(|| {
        format!("'{operator}' not supported between instances of '{}' and '{}'", name(a), name(b))
    })
}

/// Fills the template's own `{{ path }}` from the fields of the input, the handles and the
/// variables.
fn prompt(work: &NodeWork<'_>) -> Result<String, String> {
    let mut values = Map::new();
    if let Some(Value::Object(variables)) = work.params.get("variables") {
        values.extend(variables.clone());
    }
    if let Value::Object(members) = input_of(work.inputs) {
        values.extend(members);
    }
    values.extend(work.inputs.clone());
    let values = Value::Object(values);
    let template =
        ["template", "prompt"].iter().find_map(|key| work.params.get(*key)?.as_str()).unwrap_or_default();
    let budget = FillBudget::default();
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(open) = rest.find("{{") {
        let Some(length) = rest[open..].find("}}") else { break };
        out.push_str(&rest[..open]);
        let inner = rest[open + 2..open + length].trim();
        let evaluated = work.scope.filter(|_| !is_plain_path(inner)).map(|scope| value_of(inner, scope));
        let value = at(&values, inner).or(evaluated.as_ref());
        budget.pay(value.map_or(0, filled_bytes)).map_err(|error| error.to_string())?;
        match value {
            None | Some(Value::Null) => {}
            Some(value @ (Value::Array(_) | Value::Object(_))) => {
                out.push_str(&super::template::spaced_json(value));
            }
            Some(value) => out.push_str(&js::string(value)),
        }
        rest = &rest[open + length + 2..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Returns the configured shape with evaluated expressions; a string that contains JSON is parsed.
fn transform(work: &NodeWork<'_>) -> Value {
    let shape =
        ["mapping", "template", "json", "output", "expression"].iter().find_map(|key| work.params.get(*key));
    match shape {
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        Some(shape) => shape.clone(),
        None => input_of(work.inputs),
    }
}

/// Returns whether a `code` node has no code: it passes on its input.
pub(super) fn is_blank(params: &Map<String, Value>) -> bool {
    params.get("code").and_then(Value::as_str).unwrap_or_default().trim().is_empty()
}

/// Returns whether a `code` node contains Python, which runs here; other languages are run by its
/// agent.
pub(super) fn is_python(params: &Map<String, Value>) -> bool {
    let text = |key: &str| params.get(key).and_then(Value::as_str).unwrap_or_default();
    let code = text("code").trim_start();
    !is_blank(params)
        && (text("language") == "python"
            || ["def ", "async def ", "lambda ", "lambda:", "import "]
                .iter()
                .any(|start| code.starts_with(start)))
}

/// Returns the call of a `code` node's Python.
pub(super) fn python_call(work: &NodeWork<'_>) -> CallBatch {
    let source = work.params.get("code").and_then(Value::as_str).unwrap_or_default().to_owned();
    let argument = json!({ "input": input_of(work.inputs), "inputs": work.inputs, "trigger": work.trigger });
    CallBatch { values: vec![argument], calls: vec![FunctionCall { source, value: 0, members: Vec::new() }] }
}

/// Returns the outputs by port of a `code` node's Python, from the recorded outcome of its call.
pub(super) fn python_outputs(reply: &Value) -> Result<Map<String, Value>, String> {
    let mut outcomes = CallOutcome::read_all(reply).map_err(|error| error.to_string())?;
    match outcomes.pop() {
        Some(CallOutcome::Value(value)) => Ok(one("output", typed(DATA, value))),
        Some(CallOutcome::Error(error)) => Err(match error.line {
            Some(line) => format!("line {line}: {error}"),
            None => error.to_string(),
        }),
        None => Err("the result of the script is missing".to_owned()),
    }
}
