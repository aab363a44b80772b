//! Python's formatting and truth of JSON values, for templates and conditions of dialects that come
//! from Python.

use std::fmt::Write as _;

use monty_types::{FormatFloat, string_repr_fmt};
use serde_json::{Number, Value};

/// Python's `str()`: a string without quotes, everything else as in [`python_repr`].
pub fn python_str(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => python_repr(other),
    }
}

/// Python's `repr()`: `None`, `True`, `1.0`, `'text'`, `['a', 1]`, `{'k': None}`.
pub fn python_repr(value: &Value) -> String {
    let mut out = String::new();
    write_repr(value, &mut out);
    out
}

/// Python's truth value: null, false, zero and everything empty are false.
pub fn python_truth(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

fn write_repr(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_repr(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (index, (key, item)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_string(key, out);
                out.push_str(": ");
                write_repr(item, out);
            }
            out.push('}');
        }
    }
}

// Writing to a string cannot fail, so the results below are ignored.
fn write_number(number: &Number, out: &mut String) {
    let _ = match number.as_f64() {
        Some(float) if number.is_f64() => write!(out, "{}", FormatFloat(float)),
        _ => write!(out, "{number}"),
    };
}

fn write_string(text: &str, out: &mut String) {
    let _ = string_repr_fmt(text, out);
}

/// Python's `type(value).__name__`.
pub fn python_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "NoneType",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list",
        Value::Object(_) => "dict",
    }
}
