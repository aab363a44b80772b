//! Bytes in a condition: their representation, methods, and codecs between bytes and strings.
//!
//! Most methods of bytes are string methods on ASCII. For these, bytes are converted to a string in
//! which each byte beyond ASCII is a character of a private area, which has no case, no class and
//! is not blank.

use std::borrow::Cow;

use num_bigint::{BigInt, Sign};
use num_traits::ToPrimitive as _;

use super::callables::ConditionMethod;
use super::codec::{TextCodec, UnencodableText};
use super::methods::{small_count, text};
use super::operand::{Evaluated, EvaluationFuel, MAX_TEXT_BYTES, Operand, check_size};
use super::text_methods::text_method;

/// First character of the area that represents bytes beyond ASCII.
const PRIVATE_AREA: u32 = 0xE000;

/// Converts bytes to a string of ASCII and private characters. `by_lines` hides line ends that
/// bytes do not have.
pub(super) fn veiled(bytes: &[u8], by_lines: bool) -> String {
    let is_hidden = |byte: u8| !byte.is_ascii() || (by_lines && matches!(byte, 0x0b | 0x0c | 0x1c..=0x1e));
    let veil = |byte: u8| {
        let code = u32::from(byte) + if is_hidden(byte) { PRIVATE_AREA } else { 0 };
        char::from_u32(code).unwrap_or_default()
    };
    bytes.iter().map(|byte| veil(*byte)).collect()
}

/// Converts a string of [`veiled`] back to bytes.
pub(super) fn unveiled(text: &str) -> Vec<u8> {
    let byte = |c: char| u32::from(c).checked_sub(PRIVATE_AREA).unwrap_or(u32::from(c)) as u8;
    text.chars().map(byte).collect()
}

/// Formats bytes as Python's `repr()`: `b'…'`.
pub(super) fn bytes_repr(bytes: &[u8]) -> String {
    let quote = if bytes.contains(&b'\'') && !bytes.contains(&b'"') { '"' } else { '\'' };
    let mut out = format!("b{quote}");
    for byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b'\t' => out.push_str("\\t"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            byte if char::from(*byte) == quote => out.extend(['\\', quote]),
            b' '..=b'~' => out.push(char::from(*byte)),
            byte => out.extend(["\\x", &hex::encode([*byte])].into_iter().flat_map(str::chars)),
        }
    }
    out.push(quote);
    out
}

/// Calls a method of bytes; `None` for any other method or arguments.
pub(super) fn bytes_method<'a>(
    on: &[u8],
    method: ConditionMethod,
    args: &[Operand<'a>],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Option<Operand<'a>>> {
    fuel.pay_copy(on.len().saturating_mul(3))?;
    match (method, args) {
        (ConditionMethod::Decode, args) => return decode(on, args, fuel).map(Some),
        (ConditionMethod::Hex, args) => return hex_text(on, args, fuel).map(Some),
        (ConditionMethod::FromHex, [Operand::Text(digits)]) => return from_hex(digits, fuel).map(Some),
        (ConditionMethod::IsAscii, []) => return Ok(Some(Operand::Bool(on.is_ascii()))),
        (ConditionMethod::Translate, [table, delete @ ..]) => {
            return translate(on, table, delete, fuel).map(Some);
        }
        // Only strings have these.
        (
            ConditionMethod::IsNumeric
            | ConditionMethod::IsDecimal
            | ConditionMethod::IsIdentifier
            | ConditionMethod::IsPrintable
            | ConditionMethod::CaseFold
            | ConditionMethod::Encode
            | ConditionMethod::Translate,
            _,
        ) => return Ok(None),
        _ => {}
    }
    // The items of bytes are numbers.
    if let (ConditionMethod::Join, [Operand::Bytes(bytes)]) = (method, args)
        && !bytes.is_empty()
    {
        return Err("TypeError: sequence item 0: expected a bytes-like object, int found".to_owned());
    }
    let by_lines = method == ConditionMethod::SplitLines;
    let args: Vec<Operand<'a>> =
        args.iter().enumerate().map(|(at, arg)| argument(arg, at, method, fuel)).collect::<Evaluated<_>>()?;
    let found = text_method(&veiled(on, by_lines), method, &args, fuel)?;
    Ok(found.map(as_bytes))
}

/// Converts an argument of a bytes method for the corresponding string method.
fn argument<'a>(
    arg: &Operand<'a>,
    at: usize,
    method: ConditionMethod,
    fuel: &mut EvaluationFuel,
) -> Evaluated<Operand<'a>> {
    let is_sought = matches!(
        method,
        ConditionMethod::Find
            | ConditionMethod::RightFind
            | ConditionMethod::Index
            | ConditionMethod::RightIndex
            | ConditionMethod::Count
    );
    match arg {
        Operand::Text(_) => Err("TypeError: a bytes-like object is required, not 'str'".to_owned()),
        Operand::Bytes(bytes) => {
            fuel.pay_copy(bytes.len().saturating_mul(3))?;
            Ok(text(veiled(bytes, false)))
        }
        Operand::Int(_) | Operand::Bool(_) if at == 0 && is_sought => {
            Ok(text(veiled(&[byte_of(arg)?], false)))
        }
        Operand::List(items) | Operand::Tuple(items) => {
            fuel.pay(items.len() as u64)?;
            let items: Vec<_> =
                items.iter().map(|item| argument(item, at, method, fuel)).collect::<Evaluated<_>>()?;
            Ok(arg.alike(items.into_iter()))
        }
        other => Ok(other.clone()),
    }
}

/// Converts the result of a string method for the bytes method.
fn as_bytes(found: Operand<'_>) -> Operand<'_> {
    match found {
        Operand::Text(text) => Operand::Bytes(Cow::Owned(unveiled(&text))),
        Operand::List(ref items) | Operand::Tuple(ref items) => {
            found.alike(items.iter().map(|item| as_bytes(item.clone())))
        }
        other => other,
    }
}

/// Converts a number to a byte.
pub(super) fn byte_of(value: &Operand<'_>) -> Evaluated<u8> {
    let byte = match value {
        Operand::Int(int) => int.to_u8(),
        Operand::Bool(truth) => Some((*truth).into()),
        _ => None,
    };
    byte.ok_or_else(|| "ValueError: byte must be in range(0, 256)".to_owned())
}

/// Implements `encode` of a string: encoding and treatment of characters that it does not support.
pub(super) fn encode<'a>(
    on: &str,
    args: &[Operand<'a>],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Operand<'a>> {
    let (codec, errors) = codec_arguments(args)?;
    // The widest encoding has four bytes per character, and a byte order mark.
    fuel.pay_copy(on.len().saturating_mul(4) + 4)?;
    let mut bytes = Vec::new();
    codec.start(&mut bytes);
    for (at, c) in on.chars().enumerate() {
        let Err(UnencodableText) = codec.encode(c, &mut bytes) else { continue };
        let other = match errors {
            "ignore" => String::new(),
            "replace" => "?".to_owned(),
            "xmlcharrefreplace" => format!("&#{};", u32::from(c)),
            "backslashreplace" => match u32::from(c) {
                code @ ..=0xff => format!("\\x{code:02x}"),
                code @ ..=0xffff => format!("\\u{code:04x}"),
                code => format!("\\U{code:08x}"),
            },
            "strict" => {
                let (name, code) = (codec.name(), u32::from(c));
                return Err(format!(
                    "UnicodeEncodeError: '{name}' codec can't encode character '\\u{code:04x}' in position {at}"
                ));
            }
            other => return Err(unknown_errors(other)),
        };
        for c in other.chars() {
            codec.encode(c, &mut bytes).unwrap_or_default();
        }
        check_size(bytes.len(), MAX_TEXT_BYTES, "text")?;
        fuel.pay_copy(other.len())?;
    }
    Ok(Operand::Bytes(Cow::Owned(bytes)))
}

/// Implements `decode` of bytes, and `str(bytes, encoding, errors)`.
pub(super) fn decode<'a>(
    on: &[u8],
    args: &[Operand<'a>],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Operand<'a>> {
    let (codec, errors) = codec_arguments(args)?;
    fuel.pay_copy(on.len().saturating_mul(4))?;
    let mut out = String::new();
    for part in codec.decode(on) {
        let bad = match part {
            Ok(text) => {
                out.push_str(&text);
                continue;
            }
            Err(bad) => bad,
        };
        match errors {
            "ignore" => {}
            "replace" => out.push(char::REPLACEMENT_CHARACTER),
            "backslashreplace" => out.extend(bad.iter().map(|byte| format!("\\x{byte:02x}"))),
            "strict" => {
                let (name, byte) = (codec.name(), bad.first().copied().unwrap_or_default());
                return Err(format!("UnicodeDecodeError: '{name}' codec can't decode byte 0x{byte:02x}"));
            }
            other => return Err(unknown_errors(other)),
        }
    }
    Ok(text(out))
}

fn unknown_errors(name: &str) -> String {
    format!("LookupError: unknown error handler name '{name}'")
}

/// Returns encoding and error handling, both optional.
fn codec_arguments<'o>(args: &'o [Operand<'_>]) -> Evaluated<(TextCodec, &'o str)> {
    let word = |at: usize, otherwise: &'static str| match args.get(at) {
        None => Ok(otherwise),
        Some(Operand::Text(text)) => Ok(&**text),
        Some(other) => Err(format!("TypeError: argument must be str, not {}", other.type_name())),
    };
    if args.len() > 2 {
        return Err(format!("TypeError: at most 2 arguments are taken ({} given)", args.len()));
    }
    let (name, errors) = (word(0, "utf-8")?, word(1, "strict")?);
    let codec = TextCodec::of(name).ok_or_else(|| format!("LookupError: unknown encoding: {name}"))?;
    Ok((codec, errors))
}

/// Implements `hex(sep, bytes_per_sep)`.
fn hex_text<'a>(on: &[u8], args: &[Operand<'a>], fuel: &mut EvaluationFuel) -> Evaluated<Operand<'a>> {
    fuel.pay_copy(on.len().saturating_mul(3))?;
    let Some(separator) = args.first() else { return Ok(text(hex::encode(on))) };
    let separator = match separator {
        Operand::Text(text) => text.to_string(),
        Operand::Bytes(bytes) => veiled(bytes, false),
        other => return Err(format!("TypeError: sep must be str or bytes, not {}", other.type_name())),
    };
    let mut chars = separator.chars();
    let (Some(separator), None) = (chars.next(), chars.next()) else {
        return Err("ValueError: sep must be length 1.".to_owned());
    };
    if !separator.is_ascii() {
        return Err("ValueError: sep must be ASCII.".to_owned());
    }
    let group = match args.get(1) {
        None => 1,
        Some(Operand::Int(int)) => int.to_i64().unwrap_or(i64::MAX),
        Some(Operand::Bool(truth)) => i64::from(*truth),
        Some(other) => {
            let name = other.type_name();
            return Err(format!("TypeError: '{name}' object cannot be interpreted as an integer"));
        }
    };
    let size = usize::try_from(group.unsigned_abs()).unwrap_or(usize::MAX);
    let mut out = String::new();
    for (at, byte) in on.iter().enumerate() {
        // Groups count from the end, or from the start if the size is negative.
        let place = if group < 0 { at } else { on.len() - at };
        if at > 0 && size > 0 && place.is_multiple_of(size) {
            out.push(separator);
        }
        out.push_str(&hex::encode([*byte]));
    }
    Ok(text(out))
}

/// Implements `fromhex`: pairs of digits separated by blanks.
fn from_hex<'a>(digits: &str, fuel: &mut EvaluationFuel) -> Evaluated<Operand<'a>> {
    fuel.pay_copy(digits.len())?;
    let pairs: Vec<&str> = digits.split_ascii_whitespace().collect();
    let invalid = || "ValueError: non-hexadecimal number found in fromhex() arg".to_owned();
    let mut bytes = Vec::new();
    for pair in pairs {
        bytes.extend(hex::decode(pair).map_err(|_| invalid())?);
    }
    Ok(Operand::Bytes(Cow::Owned(bytes)))
}

/// Implements `translate(table, delete)`: a table of 256 bytes, or none.
fn translate<'a>(
    on: &[u8],
    table: &Operand<'a>,
    delete: &[Operand<'a>],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Operand<'a>> {
    let table = match table {
        Operand::None => None,
        Operand::Bytes(table) if table.len() == 256 => Some(table),
        Operand::Bytes(_) => {
            return Err("ValueError: translation table must be 256 characters long".to_owned());
        }
        other => {
            let name = other.type_name();
            return Err(format!("TypeError: a bytes-like object is required, not '{name}'"));
        }
    };
    let deleted = match delete {
        [] => Cow::Borrowed(&[][..]),
        [Operand::Bytes(bytes)] => bytes.clone(),
        _ => return Err("TypeError: delete must be a bytes-like object".to_owned()),
    };
    fuel.pay((on.len() as u64).saturating_mul(1 + deleted.len() as u64 / 8))?;
    let kept = on.iter().filter(|byte| !deleted.contains(byte));
    let changed = kept.map(|byte| table.map_or(*byte, |table| table[usize::from(*byte)]));
    Ok(Operand::Bytes(Cow::Owned(changed.collect())))
}

/// Implements `int.to_bytes(length, byteorder, signed)`.
pub(super) fn int_to_bytes<'a>(
    int: &BigInt,
    args: &[Operand<'a>],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Operand<'a>> {
    let length = args.first().map_or(Ok(1), |length| small_count(length, "length"))?;
    check_size(length, MAX_TEXT_BYTES, "text")?;
    fuel.pay_copy(length)?;
    let is_little = is_little_endian(args.get(1))?;
    let is_signed = args.get(2).is_some_and(Operand::truth);
    let is_negative = int.sign() == Sign::Minus;
    if is_negative && !is_signed {
        return Err("OverflowError: can't convert negative int to unsigned".to_owned());
    }
    let mut bytes = if is_signed { int.to_signed_bytes_le() } else { int.to_bytes_le().1 };
    if int.sign() == Sign::NoSign {
        bytes.clear();
    }
    if bytes.len() > length {
        return Err("OverflowError: int too big to convert".to_owned());
    }
    bytes.resize(length, if is_negative { 0xff } else { 0 });
    if !is_little {
        bytes.reverse();
    }
    Ok(Operand::Bytes(Cow::Owned(bytes)))
}

/// Implements `int.from_bytes(bytes, byteorder, signed)`.
pub(super) fn int_from_bytes<'a>(args: &[Operand<'a>], fuel: &mut EvaluationFuel) -> Evaluated<Operand<'a>> {
    let Some(Operand::Bytes(bytes)) = args.first() else {
        return Err("TypeError: cannot convert to bytes".to_owned());
    };
    // The largest integer that an operation may create.
    check_size(bytes.len(), super::operand::MAX_INTEGER_BITS as usize / 8, "integer")?;
    fuel.pay_copy(bytes.len())?;
    let (is_little, is_signed) = (is_little_endian(args.get(1))?, args.get(2).is_some_and(Operand::truth));
    Ok(Operand::Int(match (is_little, is_signed) {
        (true, true) => BigInt::from_signed_bytes_le(bytes),
        (false, true) => BigInt::from_signed_bytes_be(bytes),
        (true, false) => BigInt::from_bytes_le(Sign::Plus, bytes),
        (false, false) => BigInt::from_bytes_be(Sign::Plus, bytes),
    }))
}

fn is_little_endian(order: Option<&Operand<'_>>) -> Evaluated<bool> {
    match order.map(Operand::as_str) {
        None | Some(Some("big")) => Ok(false),
        Some(Some("little")) => Ok(true),
        Some(Some(_)) => Err("ValueError: byteorder must be either 'little' or 'big'".to_owned()),
        Some(None) => Err("TypeError: byteorder must be str".to_owned()),
    }
}
