//! Computations of FLOW nodes: branches, iterations, lists.

use serde_json::{Map, Value, json};

use super::expr::{ExpressionError, ExpressionScope};

/// The port whose list is fanned out.
pub(super) const ITERATION: &str = "iteration";
/// Default number of iterations of one loop.
const DEFAULT_ITERATIONS: i64 = 100;
/// Maximum number of iterations in a file.
const MAX_FILE_ITERATIONS: i64 = 10_000;

/// Values by port, before shaping.
pub(super) type PortValues = Vec<(String, Value)>;

/// Computes a FLOW node; `None` for subtypes that wait.
pub(super) fn compute(
    subtype: &str,
    raw: &Map<String, Value>,
    scope: &ExpressionScope,
) -> Option<Result<PortValues, ExpressionError>> {
    Some(match subtype {
        "IF" => branch(raw, scope),
        "SWITCH" => switch(raw, scope),
        "LOOP" => iterations(raw, scope),
        "FOR_EACH" => for_each(raw, scope),
        "MERGE" => Ok(result(merge(raw, &scope.input))),
        "FILTER" => filter(raw, scope).map(result),
        "SORT" => Ok(result(sort(raw, scope))),
        "WAIT" | "DELAY" => return None,
        _ => Ok(result(scope.input.clone())),
    })
}

/// Returns the expression that a FLOW node computes: its key, and its text without enclosing
/// braces.
pub(super) fn expression_of<'c>(
    subtype: &str,
    configurations: &'c Map<String, Value>,
) -> Option<(&'static str, &'c str)> {
    let first =
        |keys: &[&'static str]| keys.iter().find_map(|key| Some((*key, configurations.get(*key)?.as_str()?)));
    match subtype {
        "IF" => first(&["condition_expression"]).map(|(key, text)| {
            // Both `$json.n > 3` and `{{ $json.n > 3 }}` are valid.
            let bare = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
            (key, bare.unwrap_or(text))
        }),
        "SWITCH" => first(&["value", "expression", "switch_value"]),
        "LOOP" if loop_type(configurations) == "while" => first(&["condition_expression", "condition"]),
        "FILTER" => first(&["filter_expression", "condition_expression", "filter_condition"]),
        _ => None,
    }
}

fn loop_type(configurations: &Map<String, Value>) -> &str {
    configurations.get("loop_type").and_then(Value::as_str).unwrap_or("for_range")
}

/// Returns the delay of a DELAY node, in milliseconds.
pub(super) fn delay_ms(configurations: &Map<String, Value>) -> u64 {
    if let Some(ms) = configurations.get("delay_ms").and_then(number) {
        return milliseconds(ms / 1_000.0);
    }
    let keys = ["delay_seconds", "duration_seconds", "seconds", "delay", "duration"];
    let amount = keys.iter().find_map(|key| configurations.get(*key).and_then(number)).unwrap_or(0.0);
    let unit =
        ["unit", "duration_unit", "time_unit"].iter().find_map(|key| configurations.get(*key)?.as_str());
    milliseconds(
        amount
            * match unit.unwrap_or("seconds") {
                "milliseconds" | "ms" => 0.001,
                "minutes" | "m" => 60.0,
                "hours" | "h" => 3_600.0,
                "days" | "d" => 86_400.0,
                _ => 1.0,
            },
    )
}

/// Converts seconds to whole milliseconds; invalid values become 0.
pub(super) fn milliseconds(seconds: f64) -> u64 {
    const MAX_WAIT_MS: f64 = 366.0 * 86_400_000.0;
    let ms = (seconds * 1_000.0).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
    let whole = if ms.is_nan() { 0 } else { ms.clamp(0.0, MAX_WAIT_MS) as u64 };
    whole
}

/// Returns a number, also if a template converted it to a string.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
        other => other.as_f64(),
    }
}

fn result(value: Value) -> PortValues {
    vec![("result".to_owned(), value)]
}

fn branch(
    configurations: &Map<String, Value>,
    scope: &ExpressionScope,
) -> Result<PortValues, ExpressionError> {
    let condition = expression_of("IF", configurations).map_or("", |(_, text)| text);
    let holds = scope.holds(condition)?;
    Ok(vec![(holds.to_string(), json!({ "data": scope.input, "condition_result": holds }))])
}

fn switch(
    configurations: &Map<String, Value>,
    scope: &ExpressionScope,
) -> Result<PortValues, ExpressionError> {
    let expression = expression_of("SWITCH", configurations).map_or("$json", |(_, text)| text);
    let value =
        if expression.contains("{{") { json!(scope.render(expression)?) } else { scope.value(expression)? };
    let text = sinew_script::python_str(&value);
    let cases = configurations.get("cases").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let chosen = cases.iter().find_map(|case| match case {
        Value::Object(case) => {
            let wanted = case.get("value").map(sinew_script::python_str);
            let port = case.get("port").or_else(|| case.get("output_key")).and_then(Value::as_str);
            (wanted.as_deref() == Some(&text)).then(|| port.map_or_else(|| text.clone(), str::to_owned))
        }
        plain => (sinew_script::python_str(plain) == text).then(|| text.clone()),
    });
    Ok(vec![(chosen.unwrap_or_else(|| "default".to_owned()), scope.input.clone())])
}

fn whole(configurations: &Map<String, Value>, key: &str) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "saturates, and iterations are capped anyway")]
    configurations.get(key).and_then(number).map(|number| number as i64)
}

fn most(configurations: &Map<String, Value>) -> usize {
    let most = whole(configurations, "max_iterations").unwrap_or(DEFAULT_ITERATIONS);
    usize::try_from(most.clamp(0, MAX_FILE_ITERATIONS)).unwrap_or_default()
}

fn iterations(
    configurations: &Map<String, Value>,
    scope: &ExpressionScope,
) -> Result<PortValues, ExpressionError> {
    let most = most(configurations);
    let mut items: Vec<Value> = Vec::new();
    match loop_type(configurations) {
        "for_each" => {
            let all = items_of(configurations, scope)?;
            let numbered = all.into_iter().take(most).enumerate();
            items.extend(numbered.map(|(index, item)| json!({ "index": index, "item": item })));
        }
        "while" => {
            let condition = expression_of("LOOP", configurations).map_or("false", |(_, text)| text);
            let mut round = scope.clone();
            while items.len() < most {
                let index = json!({ "index": items.len() });
                match &mut round.input {
                    Value::Object(members) => drop(members.insert("index".into(), index["index"].clone())),
                    other => *other = index.clone(),
                }
                if !round.holds(condition)? {
                    break;
                }
                items.push(index);
            }
        }
        _ => {
            let start = whole(configurations, "start_value").unwrap_or(0);
            let end = whole(configurations, "end_value").unwrap_or(start);
            let step =
                whole(configurations, "step").or_else(|| whole(configurations, "increment")).unwrap_or(1);
            let mut index = start;
            while step != 0 && items.len() < most && (if step > 0 { index <= end } else { index >= end }) {
                items.push(json!({ "index": index }));
                index = index.saturating_add(step);
            }
        }
    }
    Ok(looped(items, &scope.input))
}

fn for_each(
    configurations: &Map<String, Value>,
    scope: &ExpressionScope,
) -> Result<PortValues, ExpressionError> {
    let items: Vec<Value> = items_of(configurations, scope)?.into_iter().take(most(configurations)).collect();
    Ok(looped(items, &scope.input))
}

/// Returns the list to iterate over: the configured one, else the input or the first list in it.
fn items_of(
    configurations: &Map<String, Value>,
    scope: &ExpressionScope,
) -> Result<Vec<Value>, ExpressionError> {
    for key in ["items", "items_path", "array_path", "iterate_over", "source"] {
        match configurations.get(key) {
            Some(Value::Array(items)) => return Ok(items.clone()),
            Some(Value::String(path)) => {
                let path = path.trim().trim_start_matches("{{").trim_end_matches("}}").trim();
                let found = scope.value(path)?;
                let found = if found.is_null() { scope.value(&format!("$json.{path}"))? } else { found };
                return Ok(match found {
                    Value::Array(items) => items,
                    _ => Vec::new(),
                });
            }
            _ => {}
        }
    }
    Ok(list_of(&scope.input))
}

fn list_of(input: &Value) -> Vec<Value> {
    match input {
        Value::Array(items) => items.clone(),
        Value::Object(members) => {
            let named = ["items", "data", "results"].iter().find_map(|key| members.get(*key)?.as_array());
            named.or_else(|| members.values().find_map(Value::as_array)).cloned().unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

fn looped(items: Vec<Value>, input: &Value) -> PortValues {
    let completed = json!({
        "data": input,
        "total_iterations": items.len(),
        "successful_iterations": items.len(),
        "failed_iterations": 0,
        "loop_completed": true,
    });
    let result = completed.clone();
    vec![
        (ITERATION.to_owned(), Value::Array(items)),
        ("completed".to_owned(), completed),
        ("result".to_owned(), result),
    ]
}

fn merge(configurations: &Map<String, Value>, input: &Value) -> Value {
    let how =
        ["merge_strategy", "merge_mode", "mode"].iter().find_map(|key| configurations.get(*key)?.as_str());
    match (how, input) {
        (Some("combine" | "merge_objects" | "merge"), Value::Array(items)) => {
            let members = items.iter().filter_map(Value::as_object).flatten();
            Value::Object(members.map(|(key, value)| (key.clone(), value.clone())).collect())
        }
        (Some("first"), Value::Array(items)) => items.first().cloned().unwrap_or_default(),
        (Some("last"), Value::Array(items)) => items.last().cloned().unwrap_or_default(),
        _ => input.clone(),
    }
}

fn filter(configurations: &Map<String, Value>, scope: &ExpressionScope) -> Result<Value, ExpressionError> {
    let condition = expression_of("FILTER", configurations).map_or("true", |(_, text)| text);
    let mut round = scope.clone();
    let mut kept = Vec::new();
    for item in list_of(&scope.input) {
        round.input = item;
        if round.holds(condition)? {
            kept.push(round.input.clone());
        }
    }
    Ok(Value::Array(kept))
}

fn sort(configurations: &Map<String, Value>, scope: &ExpressionScope) -> Value {
    let key = ["sort_key", "sort_by", "key"].iter().find_map(|key| configurations.get(*key)?.as_str());
    let descending = ["order", "sort_order"]
        .iter()
        .find_map(|key| configurations.get(*key)?.as_str())
        .is_some_and(|order| order.to_ascii_lowercase().starts_with("desc"));
    let mut items = list_of(&scope.input);
    let of =
        |item: &Value| key.map_or_else(|| item.clone(), |key| item.get(key).cloned().unwrap_or_default());
    items.sort_by(|a, b| {
        let (a, b) = (of(a), of(b));
        match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => sinew_script::python_str(&a).cmp(&sinew_script::python_str(&b)),
        }
    });
    if descending {
        items.reverse();
    }
    Value::Array(items)
}
