//! Functions, methods, subscripts and members of a condition: the part of `simpleeval` beyond operators.
//!
//! The result of a call is paid for in bytes before it is made, like the results of operators.

use std::borrow::Cow;

use num_bigint::BigInt;
use num_traits::{FromPrimitive as _, ToPrimitive as _};
use serde_json::Value;
use sinew_script::{python_repr, python_str};

use super::super::path::OUTPUT;
use super::operand::{Evaluated, EvaluationFuel, MAX_TEXT_BYTES, Operand, check_size};
use super::parse::{Compare, ConditionFunction, ConditionMethod};

/// Longest text that is read as a number, in bytes.
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
        (ConditionFunction::Int, [Operand::Int(int)]) => Ok(Operand::Int(int.clone())),
        (ConditionFunction::Int, [Operand::Bool(truth)]) => Ok(Operand::Int(u8::from(*truth).into())),
        (ConditionFunction::Int, [Operand::Float(float)]) => {
            let int = BigInt::from_f64(float.trunc());
            int.map(Operand::Int).ok_or_else(|| "OverflowError: cannot convert float to integer".to_owned())
        }
        (ConditionFunction::Float, []) => Ok(Operand::Float(0.0)),
        (ConditionFunction::Float, [Operand::Text(text)]) => float_of_text(text),
        (ConditionFunction::Float, [Operand::Float(float)]) => Ok(Operand::Float(*float)),
        (ConditionFunction::Float, [Operand::Bool(truth)]) => Ok(Operand::Float(u8::from(*truth).into())),
        (ConditionFunction::Float, [Operand::Int(int)]) => {
            let float = int.to_f64().filter(|float| float.is_finite());
            let float = float.ok_or_else(|| "OverflowError: int too large to convert to float".to_owned());
            float.map(Operand::Float)
        }
        (ConditionFunction::Str, []) => Ok(text(String::new())),
        (ConditionFunction::Str, [value]) => value.to_text(fuel).map(text),
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

fn text<'a>(text: String) -> Operand<'a> {
    Operand::Text(Cow::Owned(text))
}

fn int_of_text<'a>(written: &str, base: usize) -> Evaluated<Operand<'a>> {
    let invalid = || format!("ValueError: invalid literal for int() with base {base}: {}", shown(written));
    let radix = u32::try_from(base).ok().filter(|radix| (2..=36).contains(radix));
    let radix = radix.ok_or("ValueError: int() base must be >= 2 and <= 36")?;
    let digits = plain_digits(written).ok_or_else(invalid)?;
    BigInt::parse_bytes(digits.as_bytes(), radix).map(Operand::Int).ok_or_else(invalid)
}

fn float_of_text<'a>(written: &str) -> Evaluated<Operand<'a>> {
    let invalid = || format!("ValueError: could not convert string to float: {}", shown(written));
    let digits = plain_digits(written).ok_or_else(invalid)?;
    let float: f64 = digits.parse().map_err(|_| invalid())?;
    if float.is_finite() { Ok(Operand::Float(float)) } else { Err(invalid()) }
}

/// Digits without blanks around them and single underscores between them; none for what is not a number in any case.
fn plain_digits(written: &str) -> Option<String> {
    let digits = written.trim();
    let spaced = digits.starts_with('_') || digits.ends_with('_') || digits.contains("__");
    (!spaced && !digits.is_empty() && digits.len() <= MAX_NUMBER_BYTES).then(|| digits.replace('_', ""))
}

/// A text as messages show it.
fn shown(text: &str) -> String {
    python_repr(&Value::String(text.chars().take(40).collect()))
}

/// Returns a number of characters, items or the like.
fn small_count(value: &Operand<'_>, what: &str) -> Evaluated<usize> {
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
        Operand::Text(text) => text_method(text, method, args, fuel)?,
        Operand::Dict(_) | Operand::OutputDict(_) => dict_method(on, method, args, fuel)?,
        Operand::List(_) | Operand::Items(_) => list_method(on, method, args, fuel)?,
        _ => None,
    };
    found.ok_or_else(|| {
        let (name, kind) = (method.name(), on.type_name());
        format!("AttributeError: '{kind}' has no method '{name}' with {} arguments", args.len())
    })
}

/// Methods of texts; none for another method, or for other arguments.
fn text_method<'a>(
    on: &str,
    method: ConditionMethod,
    args: &[Operand<'a>],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Option<Operand<'a>>> {
    let argument_bytes: usize = args.iter().map(Operand::text_bytes).sum();
    // Case may make a text up to three times as long.
    fuel.pay_copy((on.len() + argument_bytes).saturating_mul(3))?;
    let texts: Option<Vec<&str>> = args.iter().map(Operand::as_str).collect();
    if let Some(texts) = texts.as_deref()
        && let Some(found) = with_texts(on, method, texts, fuel)?
    {
        return Ok(Some(found));
    }
    Ok(match (method, args) {
        (ConditionMethod::StartsWith | ConditionMethod::EndsWith, [list]) => {
            let mut found = false;
            for part in (0..list.length()).filter_map(|at| list.item(at)) {
                let Some(part) = part.as_str() else { return Ok(None) };
                fuel.pay_bytes(part.len())?;
                found |= if method == ConditionMethod::StartsWith {
                    on.starts_with(part)
                } else {
                    on.ends_with(part)
                };
            }
            Some(Operand::Bool(found))
        }
        (
            ConditionMethod::Strip | ConditionMethod::LeftStrip | ConditionMethod::RightStrip,
            [Operand::None],
        ) => with_texts(on, method, &[], fuel)?,
        (ConditionMethod::Replace, [old, new, count]) => match (old.as_str(), new.as_str()) {
            (Some(old), Some(new)) => {
                let count = match count {
                    Operand::Int(int) if int.sign() == num_bigint::Sign::Minus => usize::MAX,
                    count => small_count(count, "count")?,
                };
                Some(replaced(on, old, new, count, fuel)?)
            }
            _ => None,
        },
        (ConditionMethod::Split | ConditionMethod::RightSplit, [separator, most]) => {
            let most = match most {
                Operand::Int(int) if int.sign() == num_bigint::Sign::Minus => usize::MAX,
                most => small_count(most, "maxsplit")?,
            };
            match separator {
                Operand::None if most == usize::MAX => with_texts(on, method, &[], fuel)?,
                separator => match separator.as_str() {
                    Some("") => return Err("ValueError: empty separator".to_owned()),
                    Some(separator) => {
                        let parts = most.saturating_add(1);
                        let mut split: Vec<&str> = if method == ConditionMethod::Split {
                            on.splitn(parts, separator).collect()
                        } else {
                            on.rsplitn(parts, separator).collect()
                        };
                        if method == ConditionMethod::RightSplit {
                            split.reverse();
                        }
                        Some(list_of(split.into_iter(), fuel)?)
                    }
                    None => None,
                },
            }
        }
        (ConditionMethod::Join, [list]) => {
            let mut out = String::new();
            for at in 0..list.length() {
                let item = list.item(at).unwrap_or(Operand::None);
                let Some(part) = item.as_str() else {
                    let kind = item.type_name();
                    return Err(format!(
                        "TypeError: sequence item {at}: expected str instance, {kind} found"
                    ));
                };
                check_size(out.len() + on.len() + part.len(), MAX_TEXT_BYTES, "text")?;
                fuel.pay_copy(on.len() + part.len())?;
                if at > 0 {
                    out.push_str(on);
                }
                out.push_str(part);
            }
            Some(text(out))
        }
        (ConditionMethod::ZeroFill, [width]) => {
            let width = small_count(width, "width")?;
            check_size(width, MAX_TEXT_BYTES, "text")?;
            fuel.pay_copy(width)?;
            let missing = width.saturating_sub(on.chars().count());
            let (sign, digits) = on.split_at(usize::from(on.starts_with(['+', '-'])));
            Some(text(format!("{sign}{}{digits}", "0".repeat(missing))))
        }
        _ => None,
    })
}

/// Methods of texts whose arguments are all texts.
fn with_texts<'a>(
    on: &str,
    method: ConditionMethod,
    args: &[&str],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Option<Operand<'a>>> {
    let found = |at: Option<usize>| at.map(|at| on[..at].chars().count());
    let position = |at: Option<usize>| {
        let at = found(at).map_or_else(|| BigInt::from(-1), BigInt::from);
        Operand::Int(at)
    };
    let required = |at: Option<usize>| {
        let at = found(at).ok_or_else(|| "ValueError: substring not found".to_owned());
        at.map(|at| Operand::Int(at.into()))
    };
    let every = |test: fn(char) -> bool| Operand::Bool(!on.is_empty() && on.chars().all(test));
    let cased = |upper: bool| {
        let has = on.chars().any(char::is_alphabetic);
        let other = if upper { char::is_lowercase } else { char::is_uppercase };
        Operand::Bool(has && !on.chars().any(other))
    };
    let set = |c: char, set: &str| set.contains(c);
    Ok(Some(match (method, args) {
        (ConditionMethod::Upper, []) => text(on.to_uppercase()),
        (ConditionMethod::Lower | ConditionMethod::CaseFold, []) => text(on.to_lowercase()),
        (ConditionMethod::Capitalize, []) => {
            let mut chars = on.chars();
            let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
            text(first + &chars.as_str().to_lowercase())
        }
        (ConditionMethod::Title, []) => text(title(on)),
        (ConditionMethod::SwapCase, []) => {
            let swapped = |c: char| -> String {
                if c.is_uppercase() { c.to_lowercase().collect() } else { c.to_uppercase().collect() }
            };
            text(on.chars().map(swapped).collect())
        }
        (ConditionMethod::Strip, []) => text(on.trim().to_owned()),
        (ConditionMethod::LeftStrip, []) => text(on.trim_start().to_owned()),
        (ConditionMethod::RightStrip, []) => text(on.trim_end().to_owned()),
        (ConditionMethod::Strip | ConditionMethod::LeftStrip | ConditionMethod::RightStrip, [chars]) => {
            fuel.pay((on.len() as u64).saturating_mul(1 + chars.len() as u64 / 8))?;
            let is_stripped = |c: char| set(c, chars);
            text(
                match method {
                    ConditionMethod::Strip => on.trim_matches(is_stripped),
                    ConditionMethod::LeftStrip => on.trim_start_matches(is_stripped),
                    _ => on.trim_end_matches(is_stripped),
                }
                .to_owned(),
            )
        }
        (ConditionMethod::StartsWith, [part]) => Operand::Bool(on.starts_with(part)),
        (ConditionMethod::EndsWith, [part]) => Operand::Bool(on.ends_with(part)),
        (ConditionMethod::Find, [part]) => position(on.find(part)),
        (ConditionMethod::RightFind, [part]) => position(on.rfind(part)),
        (ConditionMethod::Index, [part]) => required(on.find(part))?,
        (ConditionMethod::RightIndex, [part]) => required(on.rfind(part))?,
        (ConditionMethod::Count, [""]) => Operand::Int((on.chars().count() + 1).into()),
        (ConditionMethod::Count, [part]) => Operand::Int(on.matches(part).count().into()),
        (ConditionMethod::Replace, [old, new]) => replaced(on, old, new, usize::MAX, fuel)?,
        (ConditionMethod::Split | ConditionMethod::RightSplit, []) => list_of(on.split_whitespace(), fuel)?,
        (ConditionMethod::Split | ConditionMethod::RightSplit, [""]) => {
            return Err("ValueError: empty separator".to_owned());
        }
        (ConditionMethod::Split | ConditionMethod::RightSplit, [separator]) => {
            list_of(on.split(separator), fuel)?
        }
        (ConditionMethod::SplitLines, []) => list_of(on.lines(), fuel)?,
        (ConditionMethod::Partition, [separator]) => {
            let (head, tail) = on.split_once(separator).unwrap_or((on, ""));
            let between = if on.contains(separator) { *separator } else { "" };
            list_of([head, between, tail].into_iter(), fuel)?
        }
        (ConditionMethod::RightPartition, [separator]) => match on.rsplit_once(separator) {
            Some((head, tail)) => list_of([head, separator, tail].into_iter(), fuel)?,
            None => list_of(["", "", on].into_iter(), fuel)?,
        },
        (ConditionMethod::RemovePrefix, [part]) => text(on.strip_prefix(part).unwrap_or(on).to_owned()),
        (ConditionMethod::RemoveSuffix, [part]) => text(on.strip_suffix(part).unwrap_or(on).to_owned()),
        (ConditionMethod::IsDigit | ConditionMethod::IsNumeric | ConditionMethod::IsDecimal, []) => {
            every(char::is_numeric)
        }
        (ConditionMethod::IsAlpha, []) => every(char::is_alphabetic),
        (ConditionMethod::IsAlphanumeric, []) => every(char::is_alphanumeric),
        (ConditionMethod::IsSpace, []) => every(char::is_whitespace),
        (ConditionMethod::IsUpper, []) => cased(true),
        (ConditionMethod::IsLower, []) => cased(false),
        (ConditionMethod::IsAscii, []) => Operand::Bool(on.is_ascii()),
        _ => return Ok(None),
    }))
}

/// Every word with a capital letter at its start.
fn title(on: &str) -> String {
    let mut out = String::with_capacity(on.len());
    let mut inside = false;
    for c in on.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = c.is_alphabetic();
    }
    out
}

fn replaced<'a>(
    on: &str,
    old: &str,
    new: &str,
    count: usize,
    fuel: &mut EvaluationFuel,
) -> Evaluated<Operand<'a>> {
    let hits = on.matches(old).count().min(count);
    let bytes = on.len().saturating_add(hits.saturating_mul(new.len()));
    check_size(bytes, MAX_TEXT_BYTES, "text")?;
    fuel.pay_copy(bytes)?;
    Ok(text(on.replacen(old, new, count)))
}

fn list_of<'a, 's>(
    parts: impl Iterator<Item = &'s str>,
    fuel: &mut EvaluationFuel,
) -> Evaluated<Operand<'a>> {
    let mut items = Vec::new();
    for part in parts {
        fuel.pay_copy(size_of::<Operand<'_>>() + part.len())?;
        items.push(text(part.to_owned()));
    }
    Ok(Operand::list(items.into_iter()))
}

fn dict_method<'a>(
    on: &Operand<'a>,
    method: ConditionMethod,
    args: &[Operand<'a>],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Option<Operand<'a>>> {
    Ok(Some(match (method, args) {
        (ConditionMethod::Get, [name]) => member(on, name, fuel)?.unwrap_or(Operand::None),
        (ConditionMethod::Get, [name, otherwise]) => {
            member(on, name, fuel)?.unwrap_or_else(|| otherwise.clone())
        }
        (ConditionMethod::Keys, []) => list_of(keys(on).into_iter(), fuel)?,
        (ConditionMethod::Values, []) => Operand::list(values(on, fuel)?.into_iter()),
        (ConditionMethod::Items, []) => {
            let mut items = Vec::new();
            for (name, value) in keys(on).into_iter().zip(values(on, fuel)?) {
                fuel.pay_copy(2 * size_of::<Operand<'_>>() + name.len())?;
                items.push(Operand::list([text(name.to_owned()), value].into_iter()));
            }
            Operand::list(items.into_iter())
        }
        _ => return Ok(None),
    }))
}

fn keys<'o>(on: &'o Operand<'_>) -> Vec<&'o str> {
    match on {
        Operand::Dict(members) => members.keys().map(String::as_str).collect(),
        Operand::OutputDict(_) => vec![OUTPUT],
        _ => Vec::new(),
    }
}

fn values<'a>(on: &Operand<'a>, fuel: &mut EvaluationFuel) -> Evaluated<Vec<Operand<'a>>> {
    let values: Vec<Operand<'a>> = match on {
        Operand::Dict(members) => members.values().map(Operand::from).collect(),
        Operand::OutputDict(output) => vec![Operand::from(*output)],
        _ => Vec::new(),
    };
    fuel.pay_copy(values.len() * size_of::<Operand<'_>>())?;
    Ok(values)
}

/// Returns the member of a dict; none if it has no such member.
fn member<'a>(
    on: &Operand<'a>,
    name: &Operand<'a>,
    fuel: &mut EvaluationFuel,
) -> Evaluated<Option<Operand<'a>>> {
    let Some(name) = name.as_str() else { return Ok(None) };
    fuel.pay_bytes(name.len())?;
    Ok(match on {
        Operand::Dict(members) => members.get(name).map(Operand::from),
        Operand::OutputDict(output) if name == OUTPUT => Some(Operand::from(*output)),
        _ => None,
    })
}

fn list_method<'a>(
    on: &Operand<'a>,
    method: ConditionMethod,
    args: &[Operand<'a>],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Option<Operand<'a>>> {
    let [wanted] = args else { return Ok(None) };
    let mut count = 0_usize;
    for at in 0..on.length() {
        let item = on.item(at).unwrap_or(Operand::None);
        if item.compare(Compare::Equal, wanted, fuel)? {
            if method == ConditionMethod::Index {
                return Ok(Some(Operand::Int(at.into())));
            }
            count += 1;
        }
    }
    match method {
        ConditionMethod::Count => Ok(Some(Operand::Int(count.into()))),
        ConditionMethod::Index => Err("ValueError: the list does not contain the value".to_owned()),
        _ => Ok(None),
    }
}

/// Returns `value.name`: the member of a dict.
pub(super) fn attribute<'a>(
    on: &Operand<'a>,
    name: &str,
    fuel: &mut EvaluationFuel,
) -> Evaluated<Operand<'a>> {
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
    let length = match on {
        Operand::Text(text) => {
            fuel.pay_bytes(text.len())?;
            text.chars().count()
        }
        Operand::List(_) | Operand::Items(_) => on.length(),
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
        Operand::List(items) => {
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
        Operand::List(_) | Operand::Items(_) => Vec::new(),
        other => return Err(format!("TypeError: '{}' object is not subscriptable", other.type_name())),
    };
    let length = if matches!(on, Operand::Text(_)) { chars.len() } else { on.length() };
    let positions = slice_positions(length, bounds)?;
    fuel.pay_copy(positions.len().saturating_mul(size_of::<Operand<'_>>()))?;
    Ok(match on {
        Operand::Text(_) => text(positions.into_iter().map(|at| chars[at]).collect()),
        Operand::List(items) => {
            fuel.pay_copy(positions.iter().map(|at| items[*at].text_bytes()).sum())?;
            Operand::list(positions.into_iter().map(|at| items[at].clone()))
        }
        Operand::Items(items) => Operand::list(positions.into_iter().map(|at| Operand::from(&items[at]))),
        _ => Operand::None,
    })
}

/// Positions of a slice, as Python counts them.
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
    /// The text of a text.
    fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn text_bytes(&self) -> usize {
        self.as_str().map_or(0, str::len)
    }

    /// Returns the value as Python's `str()` shows it.
    fn to_text(&self, fuel: &mut EvaluationFuel) -> Evaluated<String> {
        if let Self::Text(text) = self {
            fuel.pay_copy(text.len())?;
            return Ok(text.to_string());
        }
        let mut out = String::new();
        self.write_repr(&mut out, fuel)?;
        Ok(out)
    }

    fn write_repr(&self, out: &mut String, fuel: &mut EvaluationFuel) -> Evaluated<()> {
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
            Self::Float(float) => python_str(&Value::from(*float)),
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
            Self::List(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    item.write_repr(out, fuel)?;
                }
                "]".to_owned()
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
