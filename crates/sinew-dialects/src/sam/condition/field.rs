//! Parsing of strings with fields (`f'{value!r:>8}'`).
//!
//! `{{path}}` remains a template, as in every string of a condition; `{ {{path}}:>8 }` is a field
//! whose value is a template.

use super::super::path::Path;
use super::lex::{FormatToken, StringPrefix, syntax, tokens_of};
use super::{TextPiece, pieces};

/// Reader of the parts of a string between its quotes.
pub(super) struct FieldReader<'t> {
    pub(super) rest: &'t str,
    pub(super) vars: &'t mut Vec<Path>,
    pub(super) prefix: StringPrefix,
    /// Nesting depth of specifications with fields.
    pub(super) depth: usize,
}

/// Python allows a field in the specification of a field, but no deeper.
const MAX_FIELD_DEPTH: usize = 2;

impl FieldReader<'_> {
    /// Reads parts up to the end, or, in a specification, up to the brace that closes its field.
    pub(super) fn parts(&mut self, in_spec: bool) -> Result<Vec<FormatToken>, String> {
        let (mut parts, mut from, mut at) = (Vec::new(), 0, 0);
        loop {
            let Some(found) = self.rest[at..].find(['{', '}']) else {
                if in_spec {
                    return Err(syntax("f-string: expecting '}'"));
                }
                self.text(&mut parts, from, self.rest.len())?;
                return Ok(parts);
            };
            at += found;
            let here = &self.rest[at..];
            if let Some(length) = template_bytes(here) {
                at += length;
                continue;
            }
            self.text(&mut parts, from, at)?;
            if here.starts_with('{') && !(here.starts_with("{{") && template_bytes(&here[1..]).is_none()) {
                self.rest = &here[1..];
                parts.extend(self.field()?);
            } else if in_spec && here.starts_with('}') {
                self.rest = &here[1..];
                return Ok(parts);
            } else if here.starts_with("{{") || here.starts_with("}}") {
                parts.push(FormatToken::Text(vec![TextPiece::Text(here[..1].to_owned())]));
                self.rest = &here[2..];
            } else {
                return Err(syntax("f-string: single '}' is not allowed"));
            }
            (from, at) = (0, 0);
        }
    }

    fn text(&mut self, parts: &mut Vec<FormatToken>, from: usize, to: usize) -> Result<(), String> {
        if from < to {
            let prefix = self.prefix;
            let text = pieces(&self.rest[from..to], self.vars, |text| prefix.unescape(text))?;
            parts.push(FormatToken::Text(text));
        }
        Ok(())
    }

    /// Reads a field after its opening brace: `value`, `=`, `!r`, `:spec`, `}`.
    fn field(&mut self) -> Result<Vec<FormatToken>, String> {
        self.depth += 1;
        if self.depth > MAX_FIELD_DEPTH {
            return Err(syntax("f-string: expressions nested too deeply"));
        }
        let length = value_bytes(self.rest).ok_or_else(|| syntax("f-string: expecting '}'"))?;
        let (value, after) = self.rest.split_at(length);
        if value.trim().is_empty() {
            return Err(syntax("f-string: empty expression not allowed"));
        }
        let tokens = tokens_of(value, self.vars, &mut Vec::new())?;
        self.rest = after;
        let mut parts = Vec::new();
        let shown = self.rest.starts_with('=');
        if shown {
            let blanks = self.rest.len() - self.rest[1..].trim_start().len();
            let text = format!("{value}{}", &self.rest[..blanks]);
            parts.push(FormatToken::Text(vec![TextPiece::Text(text)]));
            self.rest = &self.rest[blanks..];
        }
        let mut conversion = None;
        if let Some(after) = self.rest.strip_prefix('!') {
            conversion = after.chars().next().filter(|c| matches!(c, 'r' | 's' | 'a'));
            if conversion.is_none() {
                return Err(syntax("f-string: invalid conversion: expected 's', 'r', or 'a'"));
            }
            self.rest = &after[1..];
        }
        let mut spec = Vec::new();
        if let Some(after) = self.rest.strip_prefix(':') {
            self.rest = after;
            spec = self.parts(true)?;
        } else {
            self.rest = self.rest.strip_prefix('}').ok_or_else(|| syntax("f-string: expecting '}'"))?;
            if shown {
                conversion = conversion.or(Some('r'));
            }
        }
        self.depth -= 1;
        parts.push(FormatToken::Field { tokens, conversion, spec });
        Ok(parts)
    }
}

/// Returns the length of the template at the start, in bytes; `None` without a template, or for a
/// field with one.
fn template_bytes(text: &str) -> Option<usize> {
    let inner = text.strip_prefix("{{")?;
    let close = inner.find("}}")?;
    (!inner.starts_with('{') && !inner[..close].trim().is_empty()).then_some(close + 4)
}

/// Returns the length of the value at the start of a field, in bytes; `None` if the field does not
/// end.
fn value_bytes(text: &str) -> Option<usize> {
    let (mut at, mut open) = (0, 0_usize);
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        if let Some(length) = template_bytes(rest) {
            at += length;
            continue;
        }
        match c {
            '\'' | '"' => {
                at += rest[1..].find(c)? + 2;
                continue;
            }
            '=' | '!' | '<' | '>' if rest[1..].starts_with('=') => {
                at += 2;
                continue;
            }
            '}' | '!' | ':' | '=' if open == 0 => return Some(at),
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.checked_sub(1)?,
            _ => {}
        }
        at += c.len_utf8();
    }
    None
}
