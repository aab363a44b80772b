//! Conversion of JSON values to interpreter objects and back.

use monty_types::MontyObject;
use serde_json::{Map, Number, Value};

use crate::error::{ScriptError, ScriptErrorKind};

/// Maximum nesting of arguments and results. Deeper values are probably mistakes, and recursion
/// over them would need more stack everywhere else.
pub(crate) const MAX_DEPTH: usize = 100;

/// Converts a JSON value to an interpreter object.
pub(crate) fn object_of(value: &Value) -> Result<MontyObject, ScriptError> {
    to_object(value, MAX_DEPTH)
}

/// Returns whether the value has at most `levels` levels.
pub(crate) fn is_shallow(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| is_shallow(item, levels - 1)),
        Value::Object(fields) => levels > 0 && fields.values().all(|item| is_shallow(item, levels - 1)),
        _ => true,
    }
}

/// Converts an interpreter object to a JSON value: tuples become arrays; anything without a JSON
/// form is an error.
pub(crate) fn value_of(object: MontyObject) -> Result<Value, ScriptError> {
    to_value(object, MAX_DEPTH)
}

fn to_object(value: &Value, depth: usize) -> Result<MontyObject, ScriptError> {
    Ok(match value {
        Value::Null => MontyObject::None,
        Value::Bool(truth) => MontyObject::Bool(*truth),
        Value::Number(number) => number_object(number)?,
        Value::String(text) => MontyObject::String(text.clone()),
        Value::Array(items) => {
            let depth = deeper(depth)?;
            MontyObject::List(items.iter().map(|item| to_object(item, depth)).collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => {
            let depth = deeper(depth)?;
            let pairs = fields
                .iter()
                .map(|(key, item)| Ok((MontyObject::String(key.clone()), to_object(item, depth)?)))
                .collect::<Result<Vec<_>, ScriptError>>()?;
            MontyObject::dict(pairs)
        }
    })
}

fn number_object(number: &Number) -> Result<MontyObject, ScriptError> {
    if let Some(int) = number.as_i64() {
        return Ok(MontyObject::Int(int));
    }
    if let Some(int) = number.as_u64() {
        return Ok(MontyObject::BigInt(int.into()));
    }
    number.as_f64().map(MontyObject::Float).ok_or_else(|| refuse("a number is out of range"))
}

fn to_value(object: MontyObject, depth: usize) -> Result<Value, ScriptError> {
    Ok(match object {
        MontyObject::None => Value::Null,
        MontyObject::Bool(truth) => Value::Bool(truth),
        MontyObject::Int(int) => int.into(),
        MontyObject::BigInt(int) => {
            u64::try_from(&int).map_err(|_| refuse("an integer does not fit 64 bits"))?.into()
        }
        MontyObject::Float(float) => {
            Value::Number(Number::from_f64(float).ok_or_else(|| refuse("nan and inf are not JSON"))?)
        }
        MontyObject::String(text) => Value::String(text),
        MontyObject::List(items)
        | MontyObject::Tuple(items)
        | MontyObject::NamedTuple { values: items, .. } => {
            let depth = deeper(depth)?;
            Value::Array(items.into_iter().map(|item| to_value(item, depth)).collect::<Result<_, _>>()?)
        }
        MontyObject::Dict(pairs) => {
            let depth = deeper(depth)?;
            let mut fields = Map::new();
            for (key, item) in pairs {
                let MontyObject::String(key) = key else {
                    return Err(refuse(format!("key {} is not a string", key.py_repr())));
                };
                fields.insert(key, to_value(item, depth)?);
            }
            Value::Object(fields)
        }
        MontyObject::Cycle(..) => return Err(refuse("a value contains itself")),
        other => return Err(refuse(format!("a {} is not JSON", other.type_name()))),
    })
}

fn deeper(depth: usize) -> Result<usize, ScriptError> {
    depth.checked_sub(1).ok_or_else(|| refuse(format!("a value is nested deeper than {MAX_DEPTH}")))
}

fn refuse(message: impl Into<String>) -> ScriptError {
    ScriptError::new(ScriptErrorKind::Value, message)
}
