//! Methods of dicts and lists in a condition.

use super::super::path::OUTPUT;
use super::callables::ConditionMethod;
use super::methods::{subscript, text};
use super::operand::{Evaluated, EvaluationFuel, Operand};
use super::parse::Compare;
use super::text_methods::list_of;

/// Calls a dict method; `None` for any other method or arguments.
pub(super) fn dict_method<'a>(
    on: &Operand<'a>,
    method: ConditionMethod,
    args: &[Operand<'a>],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Option<Operand<'a>>> {
    Ok(Some(match (method, args) {
        (ConditionMethod::Copy, []) => on.clone(),
        (ConditionMethod::Get | ConditionMethod::SetDefault, [name]) => {
            member(on, name, fuel)?.unwrap_or(Operand::None)
        }
        (ConditionMethod::Get | ConditionMethod::SetDefault, [name, otherwise]) => {
            member(on, name, fuel)?.unwrap_or_else(|| otherwise.clone())
        }
        (ConditionMethod::Keys, []) => list_of(keys(on).into_iter(), fuel)?,
        (ConditionMethod::Values, []) => Operand::list(values(on, fuel)?.into_iter()),
        (ConditionMethod::Items, []) => {
            let mut items = Vec::new();
            for (name, value) in keys(on).into_iter().zip(values(on, fuel)?) {
                fuel.pay_copy(2 * size_of::<Operand<'_>>() + name.len())?;
                items.push(Operand::tuple([text(name.to_owned()), value].into_iter()));
            }
            Operand::list(items.into_iter())
        }
        (ConditionMethod::Pop, [name, otherwise @ ..]) if otherwise.len() < 2 => {
            match (member(on, name, fuel)?, otherwise) {
                (Some(found), _) => found,
                (None, [otherwise]) => otherwise.clone(),
                (None, _) => return Err("KeyError: the dict has no such member".to_owned()),
            }
        }
        (ConditionMethod::PopItem, []) => {
            let last = keys(on).pop().ok_or("KeyError: 'popitem(): dictionary is empty'")?.to_owned();
            let value = values(on, fuel)?.pop().unwrap_or(Operand::None);
            fuel.pay_copy(last.len())?;
            Operand::tuple([text(last), value].into_iter())
        }
        (ConditionMethod::Clear, [])
        | (ConditionMethod::Update, [] | [Operand::Dict(_) | Operand::OutputDict(_)]) => Operand::None,
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

/// Returns the member of a dict; `None` if it is missing.
pub(super) fn member<'a>(
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

/// Calls a list method; `None` for any other method or arguments.
pub(super) fn list_method<'a>(
    on: &Operand<'a>,
    method: ConditionMethod,
    args: &[Operand<'a>],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Option<Operand<'a>>> {
    if !matches!(on, Operand::Tuple(_))
        && let Some(found) = changing_method(on, method, args, fuel)?
    {
        return Ok(Some(found));
    }
    let [wanted] = args else {
        return match (method, args) {
            (ConditionMethod::Copy, []) if !matches!(on, Operand::Tuple(_)) => Ok(Some(on.clone())),
            _ => Ok(None),
        };
    };
    if !matches!(method, ConditionMethod::Count | ConditionMethod::Index | ConditionMethod::Remove) {
        return Ok(None);
    }
    let mut count = 0_usize;
    for at in 0..on.length() {
        let item = on.item(at).unwrap_or(Operand::None);
        if item.compare(Compare::Equal, wanted, fuel)? {
            match method {
                ConditionMethod::Index => return Ok(Some(Operand::Int(at.into()))),
                ConditionMethod::Remove => return Ok(Some(Operand::None)),
                _ => {}
            }
            count += 1;
        }
    }
    match method {
        ConditionMethod::Count => Ok(Some(Operand::Int(count.into()))),
        ConditionMethod::Index | ConditionMethod::Remove => {
            Err("ValueError: the list does not contain the value".to_owned())
        }
        _ => Ok(None),
    }
}

/// Calls a mutating list method on a copy, because data is immutable: only its return value
/// matters.
fn changing_method<'a>(
    on: &Operand<'a>,
    method: ConditionMethod,
    args: &[Operand<'a>],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Option<Operand<'a>>> {
    Ok(Some(match (method, args) {
        (ConditionMethod::Pop, []) => subscript(on, &Operand::Int((-1).into()), fuel)?,
        (ConditionMethod::Pop, [at]) => subscript(on, at, fuel)?,
        (ConditionMethod::Append, [_])
        | (ConditionMethod::Clear | ConditionMethod::Reverse, [])
        | (ConditionMethod::Insert, [Operand::Int(_) | Operand::Bool(_), _]) => Operand::None,
        (ConditionMethod::Extend, [more]) => match more {
            Operand::None | Operand::Bool(_) | Operand::Int(_) | Operand::Float(_) | Operand::Complex(_) => {
                return Err(format!("TypeError: '{}' object is not iterable", more.type_name()));
            }
            _ => Operand::None,
        },
        (ConditionMethod::Sort, []) => {
            for at in 1..on.length() {
                if let (Some(first), Some(second)) = (on.item(at - 1), on.item(at)) {
                    second.order(&first, "<", fuel)?;
                }
            }
            Operand::None
        }
        _ => return Ok(None),
    }))
}
