//! Fields and methods of values, and the few globals.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::evaluate::{ScriptEvaluation, number, text, to_number};
use super::{ExpressionFailure, MAX_EXPRESSION_ITEMS, Result, ScriptExpression, refuse};
use crate::js;

/// Returns `owner[key]`; a missing value is null.
pub(super) fn member(owner: &Value, key: &Value) -> Value {
    match (owner, key) {
        (Value::Object(members), key) => members.get(&js::string(key)).cloned().unwrap_or_default(),
        (Value::Array(items), Value::String(key)) if key == "length" => json!(items.len()),
        (Value::String(text), Value::String(key)) if key == "length" => json!(text.encode_utf16().count()),
        (Value::Array(items), key) => index(key).and_then(|at| items.get(at)).cloned().unwrap_or_default(),
        (Value::String(text), key) => {
            index(key).and_then(|at| text.chars().nth(at)).map_or(Value::Null, |c| json!(c.to_string()))
        }
        _ => Value::Null,
    }
}

fn index(key: &Value) -> Option<usize> {
    key.as_u64().and_then(|at| usize::try_from(at).ok()).or_else(|| key.as_str()?.parse().ok())
}

/// Returns an index as in `slice`: from the end if negative.
fn position(value: Option<&Value>, length: usize, default: usize) -> usize {
    let Some(value) = value.filter(|value| !value.is_null()) else { return default };
    let at = to_number(value);
    whole(if at < 0.0 { length as f64 + at } else { at }, length)
}

/// Clamps a count to `0..=most`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to 0..=most; NaN becomes 0"
)]
fn whole(count: f64, most: usize) -> usize {
    count.clamp(0.0, most as f64) as usize
}

/// Returns an index for scripts, -1 for `None`.
fn place(at: Option<usize>) -> Value {
    at.map_or_else(|| json!(-1), |at| json!(at))
}

/// Calls a global function, or one of `JSON`, `Math`, `Object`, `Array`, `Number`.
pub(super) fn global(owner: &str, name: &str, arguments: &[Value]) -> Result<Value> {
    let first = arguments.first().unwrap_or(&Value::Null);
    let all = || arguments.iter().map(to_number);
    Ok(match (owner, name) {
        ("", "String") => text(js::string(first))?,
        ("" | "Number", "Number" | "parseFloat") => number(to_number(first)),
        ("" | "Number", "parseInt") => {
            let own = js::string(first);
            let own = own.trim();
            let end = own.char_indices().find(|(at, c)| !c.is_ascii_digit() && (*at != 0 || *c != '-'));
            let digits = end.map_or(own, |(at, _)| &own[..at]);
            digits.parse::<i64>().map_or(Value::Null, |whole| json!(whole))
        }
        ("", "Boolean") => json!(js::truthy(first)),
        ("Number", "isInteger") => json!(first.as_f64().is_some_and(|float| float.fract() == 0.0)),
        ("Array", "isArray") => json!(first.is_array()),
        ("JSON", "stringify") => text(js::json_text(first))?,
        ("JSON", "parse") => serde_json::from_str(&js::string(first))
            .map_err(|_| ExpressionFailure("JSON.parse: not JSON".into()))?,
        ("Object", "keys" | "values" | "entries") => {
            let Value::Object(members) = first else { return Ok(json!([])) };
            let one = |(key, value): (&String, &Value)| match name {
                "keys" => json!(key),
                "values" => value.clone(),
                _ => json!([key, value]),
            };
            Value::Array(members.iter().map(one).collect())
        }
        ("Math", "max") => number(all().fold(f64::NEG_INFINITY, f64::max)),
        ("Math", "min") => number(all().fold(f64::INFINITY, f64::min)),
        ("Math", "round") => number((to_number(first) + 0.5).floor()),
        ("Math", "floor") => number(to_number(first).floor()),
        ("Math", "ceil") => number(to_number(first).ceil()),
        ("Math", "abs") => number(to_number(first).abs()),
        ("Math", "trunc") => number(to_number(first).trunc()),
        ("Math", "sqrt") => number(to_number(first).sqrt()),
        ("Math", "pow") => number(to_number(first).powf(arguments.get(1).map_or(f64::NAN, to_number))),
        ("", name) => return refuse(format!("{name} is not defined")),
        (owner, name) => return refuse(format!("{owner}.{name} is not a function")),
    })
}

/// Calls a method without a function among its arguments.
pub(super) fn method(owner: Value, name: &str, arguments: &[Value]) -> Result<Value> {
    match owner {
        Value::String(own) => of_text(&own, name, arguments),
        Value::Array(items) => of_list(items, name, arguments),
        Value::Number(own) => match name {
            "toFixed" => {
                let digits = arguments.first().map_or(0, |digits| whole(to_number(digits), 20));
                Ok(json!(format!("{:.digits$}", own.as_f64().unwrap_or_default())))
            }
            "toString" => Ok(json!(js::string(&Value::Number(own)))),
            _ => refuse(format!("a number has no method {name}")),
        },
        other if name == "toString" && !other.is_null() => text(js::string(&other)),
        Value::Object(members) if name == "hasOwnProperty" => {
            Ok(json!(arguments.first().is_some_and(|key| members.contains_key(&js::string(key)))))
        }
        other => refuse(format!("{} has no method {name}", js::type_name(&other))),
    }
}

fn of_text(own: &str, name: &str, arguments: &[Value]) -> Result<Value> {
    let argument = |n: usize| arguments.get(n).map(js::string).unwrap_or_default();
    let chars = || own.chars().collect::<Vec<char>>();
    let part = |from: usize, to: usize| {
        let all = chars();
        json!(all.get(from..to.max(from)).unwrap_or_default().iter().collect::<String>())
    };
    Ok(match name {
        "toUpperCase" => text(own.to_uppercase())?,
        "toLowerCase" => text(own.to_lowercase())?,
        "trim" => json!(own.trim()),
        "trimStart" => json!(own.trim_start()),
        "trimEnd" => json!(own.trim_end()),
        "toString" => json!(own),
        "includes" => json!(own.contains(&argument(0))),
        "startsWith" => json!(own.starts_with(&argument(0))),
        "endsWith" => json!(own.ends_with(&argument(0))),
        "indexOf" => place(own.find(&argument(0)).map(|at| own[..at].chars().count())),
        "lastIndexOf" => place(own.rfind(&argument(0)).map(|at| own[..at].chars().count())),
        "charAt" => member(&json!(own), arguments.first().unwrap_or(&json!(0))),
        "concat" => text(own.to_owned() + &arguments.iter().map(js::string).collect::<String>())?,
        "slice" => {
            let length = own.chars().count();
            part(position(arguments.first(), length, 0), position(arguments.get(1), length, length))
        }
        "substring" => {
            let length = own.chars().count();
            let at = |n: usize, default: usize| match arguments.get(n).map(to_number) {
                Some(at) if at < 0.0 => 0,
                Some(_) => position(arguments.get(n), length, default),
                None => default,
            };
            let (from, to) = (at(0, 0), at(1, length));
            part(from.min(to), from.max(to))
        }
        "split" if arguments.is_empty() => json!([own]),
        "split" if argument(0).is_empty() => json!(chars().iter().map(char::to_string).collect::<Vec<_>>()),
        "split" => json!(own.split(&argument(0)).collect::<Vec<_>>()),
        "replace" => text(own.replacen(&argument(0), &argument(1), 1))?,
        "replaceAll" => {
            let (from, to) = (argument(0), argument(1));
            let times = if from.is_empty() { own.len() + 1 } else { own.len() / from.len() };
            if times.saturating_mul(to.len()) > MAX_EXPRESSION_ITEMS {
                return refuse("a text becomes too long");
            }
            text(own.replace(&from, &to))?
        }
        "repeat" => {
            let times = arguments.first().map_or(0.0, to_number);
            if times.is_nan() || times < 0.0 || times * own.len() as f64 > MAX_EXPRESSION_ITEMS as f64 {
                return refuse("a text becomes too long");
            }
            json!(own.repeat(whole(times, MAX_EXPRESSION_ITEMS)))
        }
        "padStart" | "padEnd" => {
            let wanted = arguments.first().map_or(0, |wanted| whole(to_number(wanted), MAX_EXPRESSION_ITEMS));
            let fill = if arguments.len() > 1 { argument(1) } else { " ".to_owned() };
            let missing = wanted.saturating_sub(own.chars().count());
            let pad: String = fill.chars().cycle().take(if fill.is_empty() { 0 } else { missing }).collect();
            json!(if name == "padStart" { pad + own } else { own.to_owned() + &pad })
        }
        _ => return refuse(format!("a text has no method {name}")),
    })
}

fn of_list(mut items: Vec<Value>, name: &str, arguments: &[Value]) -> Result<Value> {
    let first = arguments.first().unwrap_or(&Value::Null);
    let found = || items.iter().position(|item| js::equal(item, first));
    Ok(match name {
        "includes" => json!(found().is_some()),
        "indexOf" => place(found()),
        "join" => {
            let between = if arguments.is_empty() { ",".to_owned() } else { js::string(first) };
            let parts: Vec<String> = items
                .iter()
                .map(|item| if item.is_null() { String::new() } else { js::string(item) })
                .collect();
            if between.len().saturating_mul(parts.len()) > MAX_EXPRESSION_ITEMS {
                return refuse("a text becomes too long");
            }
            text(parts.join(&between))?
        }
        "slice" => {
            let length = items.len();
            let (from, to) =
                (position(arguments.first(), length, 0), position(arguments.get(1), length, length));
            Value::Array(items.get(from..to.max(from)).unwrap_or_default().to_vec())
        }
        "concat" => {
            for more in arguments {
                match more {
                    Value::Array(more) => items.extend(more.iter().cloned()),
                    one => items.push(one.clone()),
                }
            }
            list(items)?
        }
        "at" => {
            let at = to_number(first);
            let at = if at < 0.0 { at + items.len() as f64 } else { at };
            if at < 0.0 {
                Value::Null
            } else {
                items.get(whole(at, items.len())).cloned().unwrap_or_default()
            }
        }
        "flat" => {
            let flat = items.into_iter().flat_map(|item| match item {
                Value::Array(inner) => inner,
                one => vec![one],
            });
            list(flat.collect())?
        }
        "reverse" => {
            items.reverse();
            Value::Array(items)
        }
        "sort" => {
            items.sort_by_key(js::string);
            Value::Array(items)
        }
        "toString" => text(js::string(&Value::Array(items)))?,
        _ => return refuse(format!("a list has no method {name}")),
    })
}

fn list(items: Vec<Value>) -> Result<Value> {
    if items.len() > MAX_EXPRESSION_ITEMS / 16 {
        refuse("a list becomes too long")
    } else {
        Ok(Value::Array(items))
    }
}

/// Calls a list method whose first argument is a function.
pub(super) fn with_function(
    run: &mut ScriptEvaluation<'_>,
    items: Vec<Value>,
    name: &str,
    (names, body): (&[String], &ScriptExpression),
    first: Option<Value>,
) -> Result<Value> {
    let mut each = |item: &Value, at: usize| run.apply(names, body, vec![item.clone(), json!(at)]);
    match name {
        "map" | "flatMap" => {
            let mut made = Vec::with_capacity(items.len());
            for (at, item) in items.iter().enumerate() {
                match each(item, at)? {
                    Value::Array(inner) if name == "flatMap" => made.extend(inner),
                    one => made.push(one),
                }
            }
            list(made)
        }
        "filter" => {
            let mut kept = Vec::new();
            for (at, item) in items.into_iter().enumerate() {
                if js::truthy(&each(&item, at)?) {
                    kept.push(item);
                }
            }
            Ok(Value::Array(kept))
        }
        "find" | "findIndex" | "some" | "every" => {
            for (at, item) in items.iter().enumerate() {
                let holds = js::truthy(&each(item, at)?);
                match name {
                    "find" if holds => return Ok(item.clone()),
                    "findIndex" if holds => return Ok(json!(at)),
                    "some" if holds => return Ok(json!(true)),
                    "every" if !holds => return Ok(json!(false)),
                    _ => {}
                }
            }
            Ok(match name {
                "findIndex" => json!(-1),
                "some" => json!(false),
                "every" => json!(true),
                _ => Value::Null,
            })
        }
        "reduce" => {
            let mut rest = items.into_iter().enumerate();
            let mut sum = match first {
                Some(first) => first,
                None => match rest.next() {
                    Some((_, first)) => first,
                    None => return refuse("reduce of an empty list requires an initial value"),
                },
            };
            for (at, item) in rest {
                sum = run.apply(names, body, vec![sum, item, json!(at)])?;
            }
            Ok(sum)
        }
        "sort" => sort(items, |a, b| {
            let order = run.apply(names, body, vec![a.clone(), b.clone()])?;
            Ok(to_number(&order).partial_cmp(&0.0).unwrap_or(Ordering::Equal))
        }),
        _ => refuse(format!("a list has no method {name} that takes a function")),
    }
}

/// Sorts by merging: the author's function may raise and may be inconsistent.
fn sort(items: Vec<Value>, mut order: impl FnMut(&Value, &Value) -> Result<Ordering>) -> Result<Value> {
    let mut runs: Vec<Vec<Value>> = items.into_iter().map(|item| vec![item]).collect();
    while runs.len() > 1 {
        let mut merged = Vec::with_capacity(runs.len().div_ceil(2));
        let mut pairs = runs.into_iter();
        while let Some(left) = pairs.next() {
            let Some(right) = pairs.next() else {
                merged.push(left);
                break;
            };
            let mut both = Vec::with_capacity(left.len() + right.len());
            let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
            while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
                let from_right = order(a, b)?.is_gt();
                both.extend(if from_right { right.next() } else { left.next() });
            }
            both.extend(left.chain(right));
            merged.push(both);
        }
        runs = merged;
    }
    Ok(Value::Array(runs.pop().unwrap_or_default()))
}
