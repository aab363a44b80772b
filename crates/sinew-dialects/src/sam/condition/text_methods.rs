//! String methods in a condition, with Python's semantics.
//!
//! The result of a method is charged in bytes before it is created.

use std::sync::LazyLock;

use num_bigint::BigInt;
use num_traits::ToPrimitive as _;
use regex::Regex;

use super::callables::ConditionMethod;
use super::methods::{small_count, text};
use super::operand::{Evaluated, EvaluationFuel, MAX_TEXT_BYTES, Operand, check_size};

/// Calls a string method; `None` for any other method or arguments.
pub(super) fn text_method<'a>(
    on: &str,
    method: ConditionMethod,
    args: &[Operand<'a>],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Option<Operand<'a>>> {
    let argument_bytes: usize = args.iter().map(Operand::text_bytes).sum();
    // Case conversion may triple the length of a string.
    fuel.pay_copy((on.len() + argument_bytes).saturating_mul(3))?;
    let texts: Option<Vec<&str>> = args.iter().map(Operand::as_str).collect();
    if let Some(texts) = texts.as_deref()
        && let Some(found) = with_texts(on, method, texts, fuel)?
    {
        return Ok(Some(found));
    }
    Ok(match (method, args) {
        (ConditionMethod::StartsWith | ConditionMethod::EndsWith, [list]) if list.is_row() => {
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
            split_at_most(on, method, separator, most, fuel)?
        }
        (ConditionMethod::Join, [Operand::Text(chars)]) => Some(join_chars(on, chars, fuel)?),
        (ConditionMethod::Join, [list]) if list.is_row() => Some(join_list(on, list, fuel)?),
        (
            ConditionMethod::Find
            | ConditionMethod::RightFind
            | ConditionMethod::Index
            | ConditionMethod::RightIndex
            | ConditionMethod::Count
            | ConditionMethod::StartsWith
            | ConditionMethod::EndsWith,
            [part, bounds @ ..],
        ) if matches!(bounds.len(), 1 | 2) => within_bounds(on, method, part, bounds, fuel)?,
        (ConditionMethod::Split | ConditionMethod::RightSplit, [Operand::None]) => {
            with_texts(on, method, &[], fuel)?
        }
        (
            ConditionMethod::SplitLines
            | ConditionMethod::ExpandTabs
            | ConditionMethod::Center
            | ConditionMethod::LeftJustify
            | ConditionMethod::RightJustify,
            args,
        ) => laid_out(on, method, args, fuel)?,
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

/// Implements `split` and `rsplit` with a separator and a limit; `None` for other arguments.
fn split_at_most<'a>(
    on: &str,
    method: ConditionMethod,
    separator: &Operand<'a>,
    most: &Operand<'a>,
    fuel: &mut EvaluationFuel,
) -> Evaluated<Option<Operand<'a>>> {
    let most = match most {
        Operand::Int(int) if int.sign() == num_bigint::Sign::Minus => usize::MAX,
        most => small_count(most, "maxsplit")?,
    };
    Ok(match separator {
        Operand::None if most == usize::MAX => with_texts(on, method, &[], fuel)?,
        Operand::None => {
            let words = split_blanks(on, most, method == ConditionMethod::RightSplit);
            Some(list_of(words.into_iter(), fuel)?)
        }
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
    })
}

/// Implements `join` of the characters of a string.
fn join_chars<'a>(on: &str, chars: &str, fuel: &mut EvaluationFuel) -> Evaluated<Operand<'a>> {
    let chars: Vec<String> = chars.chars().map(String::from).collect();
    check_size(on.len().saturating_mul(chars.len()), MAX_TEXT_BYTES, "text")?;
    fuel.pay_copy(on.len() * chars.len() + chars.len())?;
    Ok(text(chars.join(on)))
}

/// Implements `join` of a list of strings.
fn join_list<'a>(on: &str, list: &Operand<'a>, fuel: &mut EvaluationFuel) -> Evaluated<Operand<'a>> {
    let mut out = String::new();
    for at in 0..list.length() {
        let item = list.item(at).unwrap_or(Operand::None);
        let Some(part) = item.as_str() else {
            let kind = item.type_name();
            return Err(format!("TypeError: sequence item {at}: expected str instance, {kind} found"));
        };
        check_size(out.len() + on.len() + part.len(), MAX_TEXT_BYTES, "text")?;
        fuel.pay_copy(on.len() + part.len())?;
        if at > 0 {
            out.push_str(on);
        }
        out.push_str(part);
    }
    Ok(text(out))
}

/// Implements layout methods: lines, tabs and widths; `None` for other arguments.
fn laid_out<'a>(
    on: &str,
    method: ConditionMethod,
    args: &[Operand<'a>],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Option<Operand<'a>>> {
    Ok(match (method, args) {
        (ConditionMethod::SplitLines, [keep]) => Some(list_of(lines(on, keep.truth()).into_iter(), fuel)?),
        (ConditionMethod::ExpandTabs, [size]) => {
            let size = small_count(size, "tabsize")?;
            let tabs = on.matches('\t').count();
            check_size(on.len().saturating_add(tabs.saturating_mul(size)), MAX_TEXT_BYTES, "text")?;
            fuel.pay_copy(on.len() + tabs * size)?;
            Some(text(expand_tabs(on, size)))
        }
        (
            ConditionMethod::Center | ConditionMethod::LeftJustify | ConditionMethod::RightJustify,
            [width, fill @ ..],
        ) => match fill {
            [] => Some(justified(on, method, width, ' ', fuel)?),
            [Operand::Text(fill)] => {
                let mut chars = fill.chars();
                let (Some(fill), None) = (chars.next(), chars.next()) else {
                    let problem = "TypeError: The fill character must be exactly one character long";
                    return Err(problem.to_owned());
                };
                Some(justified(on, method, width, fill, fuel)?)
            }
            _ => None,
        },
        _ => None,
    })
}

/// Implements methods whose arguments are all strings.
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
        (ConditionMethod::Lower, []) => text(on.to_lowercase()),
        (ConditionMethod::CaseFold, []) => {
            let folded = on.chars().flat_map(char::to_lowercase).flat_map(char::to_uppercase);
            text(folded.flat_map(char::to_lowercase).collect())
        }
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
        (
            ConditionMethod::Split
            | ConditionMethod::RightSplit
            | ConditionMethod::Partition
            | ConditionMethod::RightPartition,
            [""],
        ) => {
            return Err("ValueError: empty separator".to_owned());
        }
        (ConditionMethod::Split | ConditionMethod::RightSplit, []) => list_of(on.split_whitespace(), fuel)?,
        (ConditionMethod::Split | ConditionMethod::RightSplit, [separator]) => {
            list_of(on.split(separator), fuel)?
        }
        (ConditionMethod::SplitLines, []) => list_of(lines(on, false).into_iter(), fuel)?,
        (ConditionMethod::ExpandTabs, []) => {
            return text_method(on, method, &[Operand::Int(8.into())], fuel);
        }
        (ConditionMethod::Partition, [separator]) => {
            let (head, tail) = on.split_once(separator).unwrap_or((on, ""));
            let between = if on.contains(separator) { *separator } else { "" };
            tuple_of([head, between, tail], fuel)?
        }
        (ConditionMethod::RightPartition, [separator]) => match on.rsplit_once(separator) {
            Some((head, tail)) => tuple_of([head, separator, tail], fuel)?,
            None => tuple_of(["", "", on], fuel)?,
        },
        (ConditionMethod::RemovePrefix, [part]) => text(on.strip_prefix(part).unwrap_or(on).to_owned()),
        (ConditionMethod::RemoveSuffix, [part]) => text(on.strip_suffix(part).unwrap_or(on).to_owned()),
        (ConditionMethod::IsNumeric, []) => every(char::is_numeric),
        (ConditionMethod::IsDigit, []) => Operand::Bool(is_of(&DIGIT, on)),
        (ConditionMethod::IsDecimal, []) => Operand::Bool(is_of(&DECIMAL, on)),
        (ConditionMethod::IsTitle, []) => {
            Operand::Bool(on.chars().any(char::is_uppercase) && title(on) == on)
        }
        (ConditionMethod::IsIdentifier, []) => Operand::Bool(is_of(&IDENTIFIER, on)),
        (ConditionMethod::IsPrintable, []) => Operand::Bool(is_of(&PRINTABLE, on)),
        (ConditionMethod::IsAlpha, []) => every(char::is_alphabetic),
        (ConditionMethod::IsAlphanumeric, []) => every(char::is_alphanumeric),
        (ConditionMethod::IsSpace, []) => every(char::is_whitespace),
        (ConditionMethod::IsUpper, []) => cased(true),
        (ConditionMethod::IsLower, []) => cased(false),
        (ConditionMethod::IsAscii, []) => Operand::Bool(on.is_ascii()),
        _ => return Ok(None),
    }))
}

/// Character classes, as regular expressions; a test compiles them all.
type TextClass = LazyLock<Option<Regex>>;

static DECIMAL: TextClass = LazyLock::new(|| Regex::new(r"^\p{Nd}+$").ok());
static DIGIT: TextClass = LazyLock::new(|| Regex::new(r"^[\p{Nd}²³¹⁰⁴-⁹₀-₉①-⑨⑴-⑼⒈-⒐⓪⓵-⓽⓿❶-❾➀-➈➊-➒]+$").ok());
static IDENTIFIER: TextClass = LazyLock::new(|| Regex::new(r"^[\p{XID_Start}_]\p{XID_Continue}*$").ok());
static PRINTABLE: TextClass = LazyLock::new(|| Regex::new(r"^(?: |[^\p{C}\p{Z}])*$").ok());

fn is_of(class: &TextClass, text: &str) -> bool {
    class.as_ref().is_some_and(|class| class.is_match(text))
}

/// Line ends at which Python splits.
const LINE_ENDS: &[char] =
    &['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'];

fn lines(on: &str, keep_ends: bool) -> Vec<&str> {
    let (mut lines, mut rest) = (Vec::new(), on);
    while !rest.is_empty() {
        let Some(end) = rest.find(LINE_ENDS) else {
            lines.push(rest);
            break;
        };
        let length = if rest[end..].starts_with("\r\n") {
            2
        } else {
            rest[end..].chars().next().map_or(1, char::len_utf8)
        };
        lines.push(&rest[..end + if keep_ends { length } else { 0 }]);
        rest = &rest[end + length..];
    }
    lines
}

/// Splits off at most `most` words from one end; the rest is unchanged.
fn split_blanks(on: &str, most: usize, from_end: bool) -> Vec<&str> {
    let (mut words, mut rest) = (Vec::new(), on);
    loop {
        rest = if from_end { rest.trim_end() } else { rest.trim_start() };
        if rest.is_empty() {
            break;
        }
        let cut = if from_end { rest.rfind(char::is_whitespace) } else { rest.find(char::is_whitespace) };
        match cut.filter(|_| words.len() < most) {
            Some(at) if from_end => {
                let blank = rest[at..].chars().next().map_or(1, char::len_utf8);
                words.push(&rest[at + blank..]);
                rest = &rest[..at];
            }
            Some(at) => {
                words.push(&rest[..at]);
                rest = &rest[at..];
            }
            None => {
                words.push(rest);
                break;
            }
        }
    }
    if from_end {
        words.reverse();
    }
    words
}

fn expand_tabs(on: &str, size: usize) -> String {
    let (mut out, mut column) = (String::new(), 0_usize);
    for c in on.chars() {
        match c {
            '\t' => {
                let blanks = if size == 0 { 0 } else { size - column % size };
                out.extend(std::iter::repeat_n(' ', blanks));
                column += blanks;
            }
            '\n' | '\r' => {
                out.push(c);
                column = 0;
            }
            c => {
                out.push(c);
                column += 1;
            }
        }
    }
    out
}

fn justified<'a>(
    on: &str,
    method: ConditionMethod,
    width: &Operand<'_>,
    fill: char,
    fuel: &mut EvaluationFuel,
) -> Evaluated<Operand<'a>> {
    let width = small_count(width, "width")?;
    check_size(width.saturating_mul(fill.len_utf8()), MAX_TEXT_BYTES, "text")?;
    fuel.pay_copy(width * fill.len_utf8())?;
    let missing = width.saturating_sub(on.chars().count());
    let before = match method {
        ConditionMethod::LeftJustify => 0,
        ConditionMethod::RightJustify => missing,
        // Python puts the odd blank before the string if the width is also odd.
        _ => missing / 2 + (missing & width & 1),
    };
    let fills = |count: usize| fill.to_string().repeat(count);
    Ok(text(format!("{}{on}{}", fills(before), fills(missing - before))))
}

/// Implements methods on a part of the string between two positions.
fn within_bounds<'a>(
    on: &str,
    method: ConditionMethod,
    part: &Operand<'a>,
    bounds: &[Operand<'a>],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Option<Operand<'a>>> {
    fuel.pay_bytes(on.len())?;
    let length = on.chars().count();
    let bound = |at: usize, otherwise: usize| match bounds.get(at) {
        None | Some(Operand::None) => Ok(otherwise),
        Some(Operand::Int(int)) if int.sign() == num_bigint::Sign::Minus => {
            let from_end = (-int).to_usize().unwrap_or(usize::MAX);
            Ok(length.saturating_sub(from_end))
        }
        Some(Operand::Int(int)) => Ok(int.to_usize().unwrap_or(usize::MAX)),
        Some(Operand::Bool(truth)) => Ok(usize::from(*truth)),
        Some(_) => Err("TypeError: slice indices must be integers or None".to_owned()),
    };
    let (from, to) = (bound(0, 0)?, bound(1, length)?.min(length));
    if from > to {
        return Ok(match method {
            ConditionMethod::Count => Some(Operand::Int(0.into())),
            ConditionMethod::StartsWith | ConditionMethod::EndsWith => Some(Operand::Bool(false)),
            ConditionMethod::Find | ConditionMethod::RightFind => Some(Operand::Int((-1).into())),
            _ => return Err("ValueError: substring not found".to_owned()),
        });
    }
    let byte = |at: usize| on.char_indices().nth(at).map_or(on.len(), |(byte, _)| byte);
    let within = &on[byte(from)..byte(to)];
    let found = text_method(within, method, std::slice::from_ref(part), fuel)?;
    Ok(match (method, found) {
        (
            ConditionMethod::Find
            | ConditionMethod::RightFind
            | ConditionMethod::Index
            | ConditionMethod::RightIndex,
            Some(Operand::Int(at)),
        ) if at.sign() != num_bigint::Sign::Minus => Some(Operand::Int(at + from)),
        (_, found) => found,
    })
}

/// Capitalizes every word.
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

fn tuple_of<'a>(parts: [&str; 3], fuel: &mut EvaluationFuel) -> Evaluated<Operand<'a>> {
    let list = list_of(parts.into_iter(), fuel)?;
    Ok(match list {
        Operand::List(items) => Operand::Tuple(items),
        other => other,
    })
}

pub(super) fn list_of<'a, 's>(
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
