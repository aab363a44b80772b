//! Tables that replace characters of a string: `maketrans` and `translate`.

use std::rc::Rc;

use indexmap::IndexMap;
use num_traits::ToPrimitive as _;

use super::operand::{Evaluated, EvaluationFuel, MAX_TEXT_BYTES, Operand, check_size};

/// Replacements by code point: a code point, a string, or nothing.
pub(super) type TranslationTable = IndexMap<u32, Operand<'static>>;

/// Returns the entry of a character.
pub(super) fn translation_of<'a>(table: &TranslationTable, code: &Operand<'_>) -> Option<Operand<'a>> {
    let Operand::Int(code) = code else { return None };
    table.get(&code.to_u32()?).cloned()
}

/// Implements `maketrans(dict)`, `maketrans(from, to)` or `maketrans(from, to, delete)`.
pub(super) fn translation<'a>(args: &[Operand<'a>], fuel: &mut EvaluationFuel) -> Evaluated<Operand<'a>> {
    let mut table = TranslationTable::new();
    match args {
        [Operand::Dict(members)] => {
            for (name, value) in *members {
                fuel.pay_copy(size_of::<Operand<'_>>() + name.len())?;
                let mut chars = name.chars();
                let (Some(c), None) = (chars.next(), chars.next()) else {
                    let problem = "ValueError: string keys in translate table must be of length 1";
                    return Err(problem.to_owned());
                };
                let target = match Operand::from(value) {
                    Operand::Text(text) => {
                        fuel.pay_copy(text.len())?;
                        Operand::Text(text.into_owned().into())
                    }
                    Operand::Int(int) => Operand::Int(int),
                    Operand::None => Operand::None,
                    _ => {
                        return Err("TypeError: translate tables contain integers, texts and None".to_owned());
                    }
                };
                table.insert(c.into(), target);
            }
        }
        [Operand::Text(from), Operand::Text(to), delete @ ..] => {
            fuel.pay_copy((from.len() + to.len()).saturating_mul(size_of::<Operand<'_>>()))?;
            if from.chars().count() != to.chars().count() {
                let problem = "ValueError: the first two maketrans arguments must have equal length";
                return Err(problem.to_owned());
            }
            for (c, target) in from.chars().zip(to.chars()) {
                table.insert(c.into(), Operand::Int(u32::from(target).into()));
            }
            match delete {
                [] => {}
                [Operand::Text(delete)] => {
                    fuel.pay_copy(delete.len().saturating_mul(size_of::<Operand<'_>>()))?;
                    table.extend(delete.chars().map(|c| (c.into(), Operand::None)));
                }
                _ => return Err("TypeError: maketrans() takes texts".to_owned()),
            }
        }
        _ => return Err("TypeError: maketrans() takes one dict, or two or three texts".to_owned()),
    }
    Ok(Operand::Translation(Rc::new(table)))
}

/// Implements `translate(table)` of a string.
pub(super) fn translated<'a>(
    on: &str,
    table: &Operand<'a>,
    fuel: &mut EvaluationFuel,
) -> Evaluated<Operand<'a>> {
    fuel.pay_copy(on.len())?;
    let mut out = String::with_capacity(on.len());
    for c in on.chars() {
        let target = match table {
            Operand::Translation(table) => table.get(&u32::from(c)).cloned(),
            Operand::List(_) | Operand::Tuple(_) | Operand::Items(_) => table.item(u32::from(c) as usize),
            // Their member names are strings.
            Operand::Dict(_) | Operand::OutputDict(_) => None,
            other => {
                let name = other.type_name();
                return Err(format!("TypeError: '{name}' object is not subscriptable"));
            }
        };
        fuel.pay(1)?;
        match target {
            None => out.push(c),
            Some(Operand::None) => {}
            Some(Operand::Int(code)) => {
                let found = code.to_u32().and_then(char::from_u32);
                out.push(found.ok_or("ValueError: character mapping must be in range(0x110000)")?);
            }
            Some(Operand::Text(text)) => {
                check_size(out.len() + text.len(), MAX_TEXT_BYTES, "text")?;
                fuel.pay_copy(text.len())?;
                out.push_str(&text);
            }
            Some(other) => {
                let name = other.type_name();
                let problem = format!("character mapping must return integer, None or str, not {name}");
                return Err(format!("TypeError: {problem}"));
            }
        }
    }
    Ok(Operand::Text(out.into()))
}
