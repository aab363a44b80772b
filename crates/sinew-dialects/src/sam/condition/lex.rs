//! Tokenizer of conditions.

use num_bigint::BigInt;

use super::super::path::Path;
use super::field::FieldReader;
use super::number::NumberLiteral;
use super::{TextPiece, pieces, variable};

/// A token.
#[derive(Clone, Debug)]
pub(super) enum Token {
    Number(NumberLiteral),
    Text(Vec<TextPiece>),
    Bytes(Vec<u8>),
    /// A string with fields: `f'…'`.
    Format(Vec<FormatToken>),
    /// A template outside quotes.
    Var(usize),
    /// A name or a keyword.
    Name(String),
    Symbol(&'static str),
}

/// A part of a string with fields.
#[derive(Clone, Debug)]
pub(super) enum FormatToken {
    Text(Vec<TextPiece>),
    Field { tokens: Vec<Token>, conversion: Option<char>, spec: Vec<FormatToken> },
}

/// Longer symbols first: the first match is taken.
const SYMBOLS: &[&str] = &[
    "==", "!=", "<=", ">=", ":=", "**", "//", "<<", ">>", "&&", "||", "<", ">", "(", ")", "[", "]", "{", "}",
    ",", "+", "-", "*", "/", "%", "=", "!", ".", ":", "&", "|", "^", "~", "@", ";",
];

/// Returns all tokens, and the paths of the variables in them. Adds the offset of each token to
/// `offsets`, and that of the end, or of the token that cannot be read.
pub(super) fn tokens(source: &str, offsets: &mut Vec<usize>) -> Result<(Vec<Token>, Vec<Path>), String> {
    if source.len() > LONGEST {
        offsets.push(0);
        return Err(format!("Invalid expression syntax: longer than {LONGEST} bytes"));
    }
    let mut vars = Vec::new();
    let tokens = tokens_of(source, &mut vars, offsets)?;
    Ok((tokens, vars))
}

pub(super) fn tokens_of(
    source: &str,
    vars: &mut Vec<Path>,
    offsets: &mut Vec<usize>,
) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = source;
    loop {
        rest = rest.trim_start();
        offsets.push(source.len() - rest.len());
        let Some(first) = rest.chars().next() else {
            return Ok(tokens);
        };
        let used = match first {
            '{' if rest.starts_with("{{") => {
                let close = rest.find("}}").ok_or_else(|| syntax("'{{' is never closed"))?;
                let inner = rest[2..close].trim();
                if inner.is_empty() {
                    return Err(syntax("there is nothing between '{{' and '}}'"));
                }
                tokens.push(Token::Var(variable(Path::parse(inner), vars)?));
                close + 2
            }
            '\'' | '"' => {
                let length = string_length(rest, first).ok_or_else(unterminated)?;
                tokens.push(Token::Text(pieces(&rest[1..length - 1], vars, unescape)?));
                length
            }
            c if c.is_ascii_digit() || (c == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) => {
                let (number, length) = number(rest)?;
                tokens.push(Token::Number(number));
                length
            }
            c if c.is_alphabetic() || c == '_' => {
                let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                let name = &rest[..length];
                let after = &rest[length..];
                if let Some(quote) = after.chars().next().filter(|c| matches!(c, '\'' | '"'))
                    && let Some(prefix) = StringPrefix::of(name)
                {
                    let string = string_length(after, quote).ok_or_else(unterminated)?;
                    tokens.push(prefix.token(&after[1..string - 1], vars)?);
                    rest = &after[string..];
                    continue;
                }
                tokens.push(Token::Name(name.to_owned()));
                length
            }
            _ => {
                let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
                let symbol = symbol.ok_or_else(|| syntax(&format!("unexpected character '{first}'")))?;
                tokens.push(Token::Symbol(symbol));
                symbol.len()
            }
        };
        rest = &rest[used..];
    }
}

/// Maximum length of a condition, in bytes.
const LONGEST: usize = 16 << 10;

pub(super) fn syntax(reason: &str) -> String {
    format!("Invalid expression syntax: {reason}")
}

fn unterminated() -> String {
    syntax("unterminated string literal")
}

/// The prefix of a string literal.
#[derive(Clone, Copy)]
pub(super) struct StringPrefix {
    /// Whether the string is bytes.
    bytes: bool,
    /// Whether escapes are literal.
    pub(super) raw: bool,
    /// Whether the string has fields.
    pub(super) fields: bool,
}

impl StringPrefix {
    /// Reads the prefix; `None` if it is a name.
    fn of(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "r" => Self { bytes: false, raw: true, fields: false },
            "u" => Self { bytes: false, raw: false, fields: false },
            "f" => Self { bytes: false, raw: false, fields: true },
            "rf" | "fr" => Self { bytes: false, raw: true, fields: true },
            "b" => Self { bytes: true, raw: false, fields: false },
            "rb" | "br" => Self { bytes: true, raw: true, fields: false },
            _ => return None,
        })
    }

    fn token(self, body: &str, vars: &mut Vec<Path>) -> Result<Token, String> {
        if self.fields {
            let mut fields = FieldReader { rest: body, vars, prefix: self, depth: 0 };
            return fields.parts(false).map(Token::Format);
        }
        if self.bytes {
            return self.byte_string(body).map(Token::Bytes);
        }
        pieces(body, vars, |text| self.unescape(text)).map(Token::Text)
    }

    fn byte_string(self, body: &str) -> Result<Vec<u8>, String> {
        if body.contains("{{") {
            return Err(syntax("bytes cannot contain a template; write '{{…}}'.encode()"));
        }
        if !body.is_ascii() {
            return Err(syntax("bytes can only contain ASCII literal characters"));
        }
        if self.raw {
            return Ok(body.as_bytes().to_vec());
        }
        // Bytes have no code point escapes.
        let body = body.replace("\\\\", "\\x5c").replace("\\u", "\\\\u").replace("\\U", "\\\\U");
        let bytes = unescape(&body).chars().map(|c| u8::try_from(u32::from(c))).collect::<Result<_, _>>();
        bytes.map_err(|_| syntax("an escape exceeds the range of a byte"))
    }

    pub(super) fn unescape(self, text: &str) -> String {
        if self.raw { text.to_owned() } else { unescape(text) }
    }
}

/// Returns the length of the string literal at the start, in bytes, with quotes. Quotes inside a
/// template do not end it.
fn string_length(text: &str, quote: char) -> Option<usize> {
    let mut at = 1;
    loop {
        let rest = text.get(at..)?;
        let c = rest.chars().next()?;
        at += match c {
            c if c == quote => return Some(at + 1),
            '\\' => 1 + rest[1..].chars().next()?.len_utf8(),
            '{' if rest.starts_with("{{") => rest.find("}}").map_or(2, |close| close + 2),
            c => c.len_utf8(),
        };
    }
}

/// Replaces Python's escapes; unknown escapes are unchanged.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let code = |chars: &mut std::str::Chars<'_>, digits: usize| {
            let hex = chars.as_str().get(..digits)?;
            let c = char::from_u32(u32::from_str_radix(hex, 16).ok()?)?;
            *chars = chars.as_str()[digits..].chars();
            Some(c)
        };
        let escaped = match chars.next() {
            Some('n') => Some('\n'),
            Some('t') => Some('\t'),
            Some('r') => Some('\r'),
            Some('a') => Some('\u{7}'),
            Some('b') => Some('\u{8}'),
            Some('f') => Some('\u{c}'),
            Some('v') => Some('\u{b}'),
            Some('x') => code(&mut chars, 2),
            Some('u') => code(&mut chars, 4),
            Some('U') => code(&mut chars, 8),
            Some(digit @ '0'..='7') => {
                let more = chars.as_str().bytes().take(2).take_while(|byte| (b'0'..=b'7').contains(byte));
                let octal = format!("{digit}{}", &chars.as_str()[..more.count()]);
                chars = chars.as_str()[octal.len() - 1..].chars();
                u32::from_str_radix(&octal, 8).ok().and_then(char::from_u32)
            }
            Some(c @ ('\\' | '\'' | '"')) => Some(c),
            Some('\n') => continue,
            Some(other) => {
                out.push('\\');
                Some(other)
            }
            None => Some('\\'),
        };
        out.extend(escaped);
    }
    out
}

fn number(text: &str) -> Result<(NumberLiteral, usize), String> {
    let bytes = text.as_bytes();
    let radix = match bytes.get(1).map(u8::to_ascii_lowercase) {
        Some(b'x') => 16,
        Some(b'o') => 8,
        Some(b'b') => 2,
        _ => 10,
    };
    let invalid = || syntax("invalid number");
    if radix != 10 && bytes[0] == b'0' {
        let length = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        let digits = text[2..length].replace('_', "");
        let int = BigInt::parse_bytes(digits.as_bytes(), radix).filter(|_| !digits.starts_with(['+', '-']));
        return int.map(|int| (NumberLiteral::Int(int), length)).ok_or_else(invalid);
    }
    let mut length = 0;
    let (mut float, mut imaginary) = (false, false);
    while let Some(byte) = bytes.get(length) {
        match byte {
            b'0'..=b'9' | b'_' if !imaginary => {}
            b'.' if float => break,
            b'.' | b'e' | b'E' if !imaginary => float = true,
            b'+' | b'-' if matches!(bytes[length - 1], b'e' | b'E') => {}
            byte if imaginary && !byte.is_ascii_alphanumeric() => break,
            _ if imaginary => return Err(invalid()),
            b'j' | b'J' => imaginary = true,
            byte if byte.is_ascii_alphanumeric() => return Err(invalid()),
            _ => break,
        }
        length += 1;
    }
    let digits = text[..length].replace('_', "");
    if imaginary {
        let size = digits.trim_end_matches(['j', 'J']).parse();
        return size.map(|size| (NumberLiteral::Imaginary(size), length)).map_err(|_| invalid());
    }
    if float {
        digits.parse().map(|float| (NumberLiteral::Float(float), length)).map_err(|_| invalid())
    } else {
        digits.parse().map(|int| (NumberLiteral::Int(int), length)).map_err(|_| invalid())
    }
}
