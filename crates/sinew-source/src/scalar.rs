//! Interpretation of plain scalars: the YAML 1.2 core schema, restricted to the values of JSON.
//!
//! `no`, `on`, `12:30` and `2026-01-01` are strings; only `true`, `null`, numbers and their few
//! spellings below are not. Numbers that do not fit into JSON or 64 bits are errors and are never
//! rounded.

use serde_json::Number;

use crate::Kind;

/// Reason why a number cannot be represented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadNumber {
    /// Beyond i64 and u64.
    TooBig,
    /// `.inf`, `.nan`, or a float that overflows.
    NotFinite,
}

impl BadNumber {
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::TooBig => "whole number does not fit into 64 bits",
            Self::NotFinite => "number is not finite",
        }
    }
}

/// Returns the value of an untagged plain scalar (YAML 1.2.2 section 10.3.2).
pub(crate) fn plain(text: &str) -> Result<Kind, BadNumber> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Kind::Null,
        "true" | "True" | "TRUE" => Kind::Bool(true),
        "false" | "False" | "FALSE" => Kind::Bool(false),
        _ => match number(text)? {
            Some(number) => Kind::Number(number),
            None => Kind::String(text.to_owned()),
        },
    })
}

/// Parses a number; returns `None` for any other scalar.
fn number(text: &str) -> Result<Option<Number>, BadNumber> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Ok(None);
    }
    if matches!(digits, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err(BadNumber::NotFinite);
    }
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        let parsed = if negative {
            text.parse::<i64>().map(Number::from)
        } else {
            digits.parse::<u64>().map(Number::from)
        };
        return parsed.map(Some).map_err(|_| BadNumber::TooBig);
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix)
            && !digits.is_empty()
            && digits.chars().all(|c| c.is_digit(radix))
        {
            return u64::from_str_radix(digits, radix).map(|n| Some(n.into())).map_err(|_| BadNumber::TooBig);
        }
    }
    if !is_float(digits) {
        return Ok(None);
    }
    match text.parse::<f64>().ok().and_then(Number::from_f64) {
        Some(number) => Ok(Some(number)),
        None => Err(BadNumber::NotFinite),
    }
}

/// `( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?`
fn is_float(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some((whole, fraction)) => {
            digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty())
        }
        None => !mantissa.is_empty() && digits(mantissa),
    };
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    mantissa_fits && exponent_fits
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn core_schema() {
        let cases: &[(&str, Value)] = &[
            ("", json!(null)),
            ("~", json!(null)),
            ("null", json!(null)),
            ("nULL", json!("nULL")),
            ("true", json!(true)),
            ("TRUE", json!(true)),
            ("no", json!("no")),
            ("yes", json!("yes")),
            ("on", json!("on")),
            ("y", json!("y")),
            ("0", json!(0)),
            ("-0", json!(0)),
            ("+7", json!(7)),
            ("007", json!(7)),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("0x1F", json!(31)),
            ("0o17", json!(15)),
            ("0x", json!("0x")),
            ("-0x1F", json!("-0x1F")),
            ("1.5", json!(1.5)),
            ("1.", json!(1.0)),
            (".5", json!(0.5)),
            ("-.5", json!(-0.5)),
            ("1e3", json!(1000.0)),
            ("1E-2", json!(0.01)),
            (".", json!(".")),
            ("-", json!("-")),
            ("1e", json!("1e")),
            ("e3", json!("e3")),
            (".e3", json!(".e3")),
            ("1_000", json!("1_000")),
            ("1.2.3", json!("1.2.3")),
            ("12:30", json!("12:30")),
            ("2026-01-01", json!("2026-01-01")),
            ("infinity", json!("infinity")),
            ("nan", json!("nan")),
        ];
        for (text, expected) in cases {
            let kind = plain(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            let node = crate::Node { span: crate::Span::default(), kind };
            assert_eq!(node.to_json(), *expected, "{text}");
        }
    }

    #[test]
    fn numbers_that_json_cannot_hold() {
        let cases = [
            ("18446744073709551616", BadNumber::TooBig),
            ("-9223372036854775809", BadNumber::TooBig),
            ("0x10000000000000000", BadNumber::TooBig),
            (".inf", BadNumber::NotFinite),
            ("-.INF", BadNumber::NotFinite),
            (".nan", BadNumber::NotFinite),
            ("1e999", BadNumber::NotFinite),
        ];
        for (text, expected) in cases {
            assert_eq!(plain(text), Err(expected), "{text}");
        }
    }
}
