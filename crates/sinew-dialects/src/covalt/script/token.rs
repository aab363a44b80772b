//! Tokenizer of expressions.

use serde_json::{Number, Value, json};

use super::{Result, refuse};

/// One token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ScriptToken {
    Value(Value),
    Name(String),
    Sign(&'static str),
}

/// Operators and punctuation; longer ones first.
const SIGNS: [&str; 32] = [
    "===", "!==", "==", "!=", ">=", "<=", "=>", "&&", "||", "??", "?.", "**", "(", ")", "[", "]", "{", "}",
    ".", ",", "?", ":", "+", "-", "*", "/", "%", "!", ">", "<", "$", ";",
];

pub(super) fn tokens(text: &str) -> Result<Vec<ScriptToken>> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if matches!(first, '"' | '\'' | '`') {
            let (value, length) = string(rest, first)?;
            found.push(ScriptToken::Value(json!(value)));
            length
        } else if first.is_ascii_digit() {
            let (value, length) = number(rest)?;
            found.push(ScriptToken::Value(value));
            length
        } else if is_name(first) {
            let length = rest.find(|c| !is_name(c) && !char::is_ascii_digit(&c)).unwrap_or(rest.len());
            found.push(match &rest[..length] {
                "true" => ScriptToken::Value(json!(true)),
                "false" => ScriptToken::Value(json!(false)),
                "null" | "undefined" => ScriptToken::Value(Value::Null),
                name => ScriptToken::Name(name.to_owned()),
            });
            length
        } else {
            let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) else {
                return refuse(format!("unexpected '{first}'"));
            };
            found.push(ScriptToken::Sign(sign));
            sign.len()
        };
        rest = rest[length..].trim_start();
    }
    Ok(found)
}

fn is_name(c: char) -> bool {
    c == '_' || c == '$' || c.is_alphabetic()
}

fn number(text: &str) -> Result<(Value, usize)> {
    let digits =
        |from: usize| text[from..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |end| from + end);
    let mut end = digits(0);
    if text[end..].starts_with('.') && text[end + 1..].starts_with(|c: char| c.is_ascii_digit()) {
        end = digits(end + 1);
    }
    if text[end..].starts_with(['e', 'E']) {
        let sign = usize::from(text[end + 1..].starts_with(['+', '-']));
        if text[end + 1 + sign..].starts_with(|c: char| c.is_ascii_digit()) {
            end = digits(end + 1 + sign);
        }
    }
    let own = &text[..end];
    let whole = own.parse::<i64>().ok().map(Value::from);
    let value = whole.or_else(|| own.parse().ok().and_then(Number::from_f64).map(Value::Number));
    value.map_or_else(|| refuse("a number is too large"), |value| Ok((value, end)))
}

fn string(text: &str, quote: char) -> Result<(String, usize)> {
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == quote {
            return Ok((value, at + 1));
        }
        if quote == '`' && text[at..].starts_with("${") {
            return refuse("template literals with ${…} are not supported");
        }
        if c != '\\' {
            value.push(c);
            continue;
        }
        match chars.next() {
            Some((_, 'n')) => value.push('\n'),
            Some((_, 't')) => value.push('\t'),
            Some((_, 'r')) => value.push('\r'),
            Some((at, 'u')) => {
                let code = text.get(at + 1..at + 5).and_then(|hex| u32::from_str_radix(hex, 16).ok());
                match code.and_then(char::from_u32) {
                    Some(c) => value.push(c),
                    None => return refuse("not a character: \\u"),
                }
                chars.nth(3);
            }
            Some((_, other)) => value.push(other),
            None => break,
        }
    }
    refuse("a text is not terminated")
}
