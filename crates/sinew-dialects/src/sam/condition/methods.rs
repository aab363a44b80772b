//! Functions, methods of numbers, dicts and lists, subscripts and attributes in a condition: the
//! part of `simpleeval` beyond operators.
//!
//! The result of a call is charged in bytes before it is created, like the results of operators.

use std::borrow::Cow;

use num_bigint::BigInt;
use num_traits::{FromPrimitive as _, ToPrimitive as _};
use serde_json::Value;
use sinew_script::{python_repr, python_str};

use super::super::path::OUTPUT;
use super::bytes::{bytes_method, bytes_repr, veiled};
use super::callables::{ConditionFunction, ConditionMethod};
use super::container_methods::{dict_method, list_method, member};
use super::number::float_repr;
use super::number_methods::number_method;
use super::operand::{Evaluated, EvaluationFuel, MAX_TEXT_BYTES, Operand, check_size};
use super::text_methods::text_method;
use super::translation::{translated, translation, translation_of};

/// Maximum length of a string that is parsed as a number, in bytes.
const MAX_NUMBER_BYTES: usize = 4_096;

/// Calls a function.
pub(super) fn call<'a>(
    function: ConditionFunction,
    args: &[Operand<'a>],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Operand<'a>> {
    match (function, args) {
        (ConditionFunction::Int, []) => Ok(Operand::Int(0.into())),
        (ConditionFunction::Int, [Operand::Text(text)]) => int_of_text(text, 10),
        (ConditionFunction::Int, [Operand::Text(text), base]) => {
            int_of_text(text, small_count(base, "base")?)
        }
        (ConditionFunction::Int, [Operand::Bytes(bytes)]) => int_of_text(&veiled(bytes, false), 10),
        (ConditionFunction::Int, [Operand::Bytes(bytes), base]) => {
            int_of_text(&veiled(bytes, false), small_count(base, "base")?)
        }
        (ConditionFunction::Int, [Operand::Int(int)]) => Ok(Operand::Int(int.clone())),
        (ConditionFunction::Int, [Operand::Bool(truth)]) => Ok(Operand::Int(u8::from(*truth).into())),
        (ConditionFunction::Int, [Operand::Float(float)]) => {
            let int = BigInt::from_f64(float.trunc());
            int.map(Operand::Int).ok_or_else(|| "OverflowError: cannot convert float to integer".to_owned())
        }
        (ConditionFunction::Float, []) => Ok(Operand::Float(0.0)),
        (ConditionFunction::Float, [Operand::Text(text)]) => float_of_text(text),
        (ConditionFunction::Float, [Operand::Bytes(bytes)]) => float_of_text(&veiled(bytes, false)),
        (ConditionFunction::Float, [Operand::Float(float)]) => Ok(Operand::Float(*float)),
        (ConditionFunction::Float, [Operand::Bool(truth)]) => Ok(Operand::Float(u8::from(*truth).into())),
        (ConditionFunction::Float, [Operand::Int(int)]) => {
            let float = int.to_f64().filter(|float| float.is_finite());
            let float = float.ok_or_else(|| "OverflowError: int too large to convert to float".to_owned());
            float.map(Operand::Float)
        }
        (ConditionFunction::Str, []) => Ok(text(String::new())),
        (ConditionFunction::Str, [value]) => value.to_text(fuel).map(text),
        (ConditionFunction::Str, [Operand::Bytes(bytes), how @ ..]) => super::bytes::decode(bytes, how, fuel),
        (ConditionFunction::Str, [value, _] | [value, _, _]) => {
            Err(format!("TypeError: decoding to str: need a bytes-like object, {} found", value.type_name()))
        }
        (function, [value]) => Err(format!(
            "TypeError: {}() argument must be a string or a real number, not '{}'",
            function.name(),
            value.type_name()
        )),
        (function, args) => {
            Err(format!("TypeError: {}() does not take {} arguments", function.name(), args.len()))
        }
    }
}

pub(super) fn text<'a>(text: String) -> Operand<'a> {
    Operand::Text(Cow::Owned(text))
}

fn int_of_text<'a>(written: &str, base: usize) -> Evaluated<Operand<'a>> {
    let invalid = || format!("ValueError: invalid literal for int() with base {base}: {}", shown(written));
    let radix = u32::try_from(base).ok().filter(|radix| (2..=36).contains(radix));
    let radix = radix.ok_or("ValueError: int() base must be >= 2 and <= 36")?;
    let digits = plain_digits(written).ok_or_else(invalid)?;
    let (sign, size) = digits.split_at(usize::from(digits.starts_with(['+', '-'])));
    let prefixes: &[&str] = match radix {
        2 => &["0b", "0B"],
        8 => &["0o", "0O"],
        16 => &["0x", "0X"],
        _ => &[],
    };
    let bare = prefixes.iter().find_map(|prefix| size.strip_prefix(prefix));
    let digits = bare.map_or(digits.clone(), |bare| format!("{sign}{bare}"));
    BigInt::parse_bytes(digits.as_bytes(), radix).map(Operand::Int).ok_or_else(invalid)
}

fn float_of_text<'a>(written: &str) -> Evaluated<Operand<'a>> {
    let invalid = || format!("ValueError: could not convert string to float: {}", shown(written));
    let digits = plain_digits(written).ok_or_else(invalid)?;
    let float: f64 = digits.parse().map_err(|_| invalid())?;
    Ok(Operand::Float(float))
}

/// Returns digits without surrounding blanks and single underscores; `None` for a string that is
/// never a number.
fn plain_digits(written: &str) -> Option<String> {
    let digits = written.trim();
    let spaced = digits.starts_with('_') || digits.ends_with('_') || digits.contains("__");
    (!spaced && !digits.is_empty() && digits.len() <= MAX_NUMBER_BYTES).then(|| digits.replace('_', ""))
}

/// Formats a string for messages.
fn shown(text: &str) -> String {
    python_repr(&Value::String(text.chars().take(40).collect()))
}

/// Returns a number of characters, items or similar.
pub(super) fn small_count(value: &Operand<'_>, what: &str) -> Evaluated<usize> {
    match value {
        Operand::Int(int) => {
            Ok(int.to_usize().unwrap_or(if int.sign() == num_bigint::Sign::Minus { 0 } else { usize::MAX }))
        }
        Operand::Bool(truth) => Ok((*truth).into()),
        other => Err(format!("TypeError: {what} must be an integer, not {}", other.type_name())),
    }
}

/// Calls a method of a value.
pub(super) fn call_method<'a>(
    on: &Operand<'a>,
    method: ConditionMethod,
    args: &[Operand<'a>],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Operand<'a>> {
    fuel.pay(1 + args.len() as u64)?;
    let found = match on {
        Operand::Text(on) => match (method, args) {
            (ConditionMethod::Encode, args) => Some(super::bytes::encode(on, args, fuel)?),
            (ConditionMethod::Translate, [table]) => Some(translated(on, table, fuel)?),
            (ConditionMethod::MakeTranslation, args) => Some(translation(args, fuel)?),
            _ => text_method(on, method, args, fuel)?,
        },
        Operand::Bytes(on) => bytes_method(on, method, args, fuel)?,
        Operand::Dict(_) | Operand::OutputDict(_) => dict_method(on, method, args, fuel)?,
        Operand::List(_) | Operand::Tuple(_) | Operand::Items(_) => list_method(on, method, args, fuel)?,
        Operand::Translation(table) => match (method, args) {
            (ConditionMethod::Get, [code]) => Some(translation_of(table, code).unwrap_or(Operand::None)),
            (ConditionMethod::Get, [code, otherwise]) => {
                Some(translation_of(table, code).unwrap_or_else(|| otherwise.clone()))
            }
            _ => None,
        },
        Operand::Int(_) | Operand::Bool(_) | Operand::Float(_) | Operand::Complex(_) => {
            number_method(on, method, args, fuel)?
        }
        Operand::None => None,
    };
    found.ok_or_else(|| {
        let (name, kind) = (method.name(), on.type_name());
        format!("AttributeError: '{kind}' has no method '{name}' with {} arguments", args.len())
    })
}

/// Returns `value.name`: the member of a dict, or an attribute of a number.
pub(super) fn attribute<'a>(
    on: &Operand<'a>,
    name: &str,
    fuel: &mut EvaluationFuel,
) -> Evaluated<Operand<'a>> {
    let number = |at: u8| match on {
        Operand::Float(_) => Operand::Float(at.into()),
        _ => Operand::Int(at.into()),
    };
    match (on, name) {
        (Operand::Bool(truth), "real" | "numerator") => return Ok(Operand::Int(u8::from(*truth).into())),
        (Operand::Int(_), "real" | "numerator") | (Operand::Float(_), "real") => return Ok(on.clone()),
        (Operand::Int(_) | Operand::Bool(_), "denominator") => return Ok(number(1)),
        (Operand::Int(_) | Operand::Bool(_) | Operand::Float(_), "imag") => return Ok(number(0)),
        (Operand::Complex(number), "real") => return Ok(Operand::Float(number.real)),
        (Operand::Complex(number), "imag") => return Ok(Operand::Float(number.imaginary)),
        _ => {}
    }
    let found = member(on, &Operand::Text(Cow::Owned(name.to_owned())), fuel)?;
    found.ok_or_else(|| format!("AttributeError: '{}' has no member '{name}'", on.type_name()))
}

/// Returns `value[key]`.
pub(super) fn subscript<'a>(
    on: &Operand<'a>,
    key: &Operand<'a>,
    fuel: &mut EvaluationFuel,
) -> Evaluated<Operand<'a>> {
    fuel.pay(1)?;
    if matches!(on, Operand::Dict(_) | Operand::OutputDict(_)) {
        let found = member(on, key, fuel)?;
        return found.ok_or_else(|| match key.as_str() {
            Some(name) => format!("KeyError: {}", shown(name)),
            None => format!("KeyError: a member's name is not of type {}", key.type_name()),
        });
    }
    if let Operand::Translation(table) = on {
        let found = translation_of(table, key);
        return found.ok_or_else(|| format!("KeyError: the table has no such {}", key.type_name()));
    }
    let length = match on {
        Operand::Text(text) => {
            fuel.pay_bytes(text.len())?;
            text.chars().count()
        }
        Operand::Bytes(bytes) => bytes.len(),
        Operand::List(_) | Operand::Tuple(_) | Operand::Items(_) => on.length(),
        other => return Err(format!("TypeError: '{}' object is not subscriptable", other.type_name())),
    };
    let kind = on.type_name();
    let at = match key {
        Operand::Int(int) => int.to_i64(),
        Operand::Bool(truth) => Some((*truth).into()),
        other => {
            let name = other.type_name();
            return Err(format!("TypeError: {kind} indices must be integers or slices, not {name}"));
        }
    };
    let from_end = i64::try_from(length).unwrap_or(i64::MAX);
    let at = at.and_then(|at| usize::try_from(if at < 0 { at + from_end } else { at }).ok());
    let at = at.filter(|at| *at < length);
    let at = at.ok_or_else(|| format!("IndexError: {kind} index out of range"))?;
    Ok(match on {
        Operand::Text(on) => text(on.chars().nth(at).map(String::from).unwrap_or_default()),
        Operand::Bytes(bytes) => Operand::Int(bytes[at].into()),
        Operand::List(items) | Operand::Tuple(items) => {
            fuel.pay_copy(items[at].text_bytes())?;
            items[at].clone()
        }
        Operand::Items(items) => Operand::from(&items[at]),
        _ => Operand::None,
    })
}

/// Returns `value[from:to:step]`.
pub(super) fn slice<'a>(
    on: &Operand<'a>,
    bounds: &[Option<Operand<'a>>; 3],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Operand<'a>> {
    let chars: Vec<char> = match on {
        Operand::Text(text) => {
            fuel.pay_copy(text.len().saturating_mul(size_of::<char>()))?;
            text.chars().collect()
        }
        Operand::Bytes(_) | Operand::List(_) | Operand::Tuple(_) | Operand::Items(_) => Vec::new(),
        other => return Err(format!("TypeError: '{}' object is not subscriptable", other.type_name())),
    };
    let length = match on {
        Operand::Text(_) => chars.len(),
        Operand::Bytes(bytes) => bytes.len(),
        _ => on.length(),
    };
    let positions = slice_positions(length, bounds)?;
    fuel.pay_copy(positions.len().saturating_mul(size_of::<Operand<'_>>()))?;
    Ok(match on {
        Operand::Bytes(bytes) => {
            Operand::Bytes(Cow::Owned(positions.into_iter().map(|at| bytes[at]).collect()))
        }
        Operand::Text(_) => text(positions.into_iter().map(|at| chars[at]).collect()),
        Operand::List(items) | Operand::Tuple(items) => {
            fuel.pay_copy(positions.iter().map(|at| items[*at].text_bytes()).sum())?;
            on.alike(positions.into_iter().map(|at| items[at].clone()))
        }
        Operand::Items(items) => Operand::list(positions.into_iter().map(|at| Operand::from(&items[at]))),
        _ => Operand::None,
    })
}

/// Returns the indexes of a slice, as in Python.
fn slice_positions(length: usize, bounds: &[Option<Operand<'_>>; 3]) -> Evaluated<Vec<usize>> {
    let bound = |at: usize| match &bounds[at] {
        None | Some(Operand::None) => Ok(None),
        Some(Operand::Int(int)) => Ok(Some(int.to_i64().unwrap_or(match int.sign() {
            num_bigint::Sign::Minus => i64::MIN / 2,
            _ => i64::MAX / 2,
        }))),
        Some(Operand::Bool(truth)) => Ok(Some((*truth).into())),
        Some(_) => Err("TypeError: slice indices must be integers or None".to_owned()),
    };
    let length = i64::try_from(length).unwrap_or(i64::MAX / 2);
    let step = bound(2)?.unwrap_or(1);
    if step == 0 {
        return Err("ValueError: slice step cannot be zero".to_owned());
    }
    let (least, most) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let clamped = |given: Option<i64>, otherwise: i64| match given {
        None => otherwise,
        Some(at) => (if at < 0 { at + length } else { at }).clamp(least, most),
    };
    let (first, end) = if step > 0 { (0, length) } else { (length - 1, -1) };
    let (mut at, end) = (clamped(bound(0)?, first), clamped(bound(1)?, end));
    let mut positions = Vec::new();
    while if step > 0 { at < end } else { at > end } {
        positions.extend(usize::try_from(at));
        at = at.saturating_add(step);
    }
    Ok(positions)
}

impl Operand<'_> {
    /// Returns the string of a string value.
    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn text_bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            other => other.as_str().map_or(0, str::len),
        }
    }

    /// Formats the value as Python's `str()`.
    pub(super) fn to_text(&self, fuel: &mut EvaluationFuel) -> Evaluated<String> {
        if let Self::Text(text) = self {
            fuel.pay_copy(text.len())?;
            return Ok(text.to_string());
        }
        let mut out = String::new();
        self.write_repr(&mut out, fuel)?;
        Ok(out)
    }

    pub(super) fn write_repr(&self, out: &mut String, fuel: &mut EvaluationFuel) -> Evaluated<()> {
        let json = |value: &Value, fuel: &mut EvaluationFuel| {
            let mut bytes = 0;
            super::eval::add_least_bytes(value, &mut bytes)?;
            fuel.pay_copy(bytes)?;
            Ok::<_, String>(python_repr(value))
        };
        let part = match self {
            Self::None => "None".to_owned(),
            Self::Bool(truth) => python_str(&Value::Bool(*truth)),
            Self::Int(int) => int.to_string(),
            Self::Float(float) => float_repr(*float),
            Self::Complex(number) => number.shown(),
            Self::Bytes(bytes) => {
                fuel.pay_copy(bytes.len().saturating_mul(4))?;
                bytes_repr(bytes)
            }
            Self::Translation(table) => {
                out.push('{');
                for (at, (code, target)) in table.iter().enumerate() {
                    fuel.pay_copy(16)?;
                    out.push_str(if at > 0 { ", " } else { "" });
                    out.push_str(&code.to_string());
                    out.push_str(": ");
                    target.write_repr(out, fuel)?;
                }
                "}".to_owned()
            }
            Self::Text(text) => {
                fuel.pay_copy(text.len())?;
                python_repr(&Value::String(text.to_string()))
            }
            Self::Items(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    out.push_str(&json(item, fuel)?);
                }
                "]".to_owned()
            }
            Self::List(items) | Self::Tuple(items) => {
                let is_tuple = matches!(self, Self::Tuple(_));
                out.push(if is_tuple { '(' } else { '[' });
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    item.write_repr(out, fuel)?;
                }
                let end = match (is_tuple, items.len()) {
                    (true, 1) => ",)",
                    (true, _) => ")",
                    (false, _) => "]",
                };
                end.to_owned()
            }
            Self::Dict(members) => {
                out.push('{');
                for (at, (name, value)) in members.iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    out.push_str(&python_repr(&Value::String(name.clone())));
                    out.push_str(": ");
                    out.push_str(&json(value, fuel)?);
                }
                "}".to_owned()
            }
            Self::OutputDict(output) => format!("{{'{OUTPUT}': {}}}", json(output, fuel)?),
        };
        check_size(out.len() + part.len(), MAX_TEXT_BYTES, "text")?;
        fuel.pay_copy(part.len())?;
        out.push_str(&part);
        Ok(())
    }
}
