//! Spans within a string of a file: converts line and column in the string to the position in the
//! file.

use crate::sources::Sources;
use crate::value::Span;

/// Returns the position in the file of a line and a column, both from 1, in the string `value` at
/// `span`, quoted or as a block. Returns `None` if the file does not contain the string literally,
/// for example because it is folded.
pub fn place_within(sources: &Sources, span: Span, value: &str, line: u32, column: u32) -> Option<Span> {
    let raw = sources.get(span.file)?.text.get(span.start..span.end)?;
    let at =
        if raw.starts_with('"') { in_quoted(raw, line, column) } else { in_block(raw, value, line, column)? };
    let before = raw.get(..at)?;
    let length = raw[at..].chars().next().map_or(0, char::len_utf8);
    let (start, end) = (span.start + at, span.start + at + length);
    Some(match before.rfind('\n') {
        None => Span { column: span.column + count(before), start, end, ..span },
        Some(last) => {
            let line = span.line + before.bytes().filter(|byte| *byte == b'\n').count() as u32;
            Span { line, column: count(&before[last + 1..]) + 1, start, end, ..span }
        }
    })
}

fn count(text: &str) -> u32 {
    text.chars().count() as u32
}

/// Returns the byte offset in a quoted string of a line and column of its value.
fn in_quoted(raw: &str, line: u32, column: u32) -> usize {
    let (mut at, mut here) = (1, (1, 1));
    while here < (line, column) {
        let rest = &raw[at..];
        let length = match rest.as_bytes() {
            [] | [b'"', ..] => break,
            [b'\\', b'u', ..] => 6,
            [b'\\', _, ..] => 2,
            _ => rest.chars().next().map_or(1, char::len_utf8),
        };
        let breaks = rest.starts_with("\\n");
        if breaks && here.0 == line {
            break;
        }
        here = if breaks { (here.0 + 1, 1) } else { (here.0, here.1 + 1) };
        // A surrogate pair is one character.
        let pair = length == 6 && rest[2..].starts_with(['d', 'D']) && rest.get(6..8) == Some("\\u");
        at += if pair { 12 } else { length };
        if !raw.is_char_boundary(at) || at >= raw.len() {
            return 0;
        }
    }
    at
}

/// Returns the byte offset in a YAML block of a line and column of its value: the block differs
/// only by its indentation.
fn in_block(raw: &str, value: &str, line: u32, column: u32) -> Option<usize> {
    let lines: Vec<&str> = value.lines().collect();
    let wanted = *lines.get((line as usize).checked_sub(1)?)?;
    let earlier = lines[..line as usize - 1].iter().filter(|one| one.trim() == wanted.trim()).count();
    let mut found = raw.split_inclusive('\n').scan(0, |at, one| {
        *at += one.len();
        Some((*at - one.len(), one))
    });
    let (start, text) = found.by_ref().filter(|(_, one)| one.trim() == wanted.trim()).nth(earlier)?;
    let indent = |text: &str| text.len() - text.trim_start().len();
    let column = (column as usize - 1).saturating_sub(indent(wanted));
    let within = text.trim_start().char_indices().nth(column).map_or(0, |(at, _)| at);
    Some(start + indent(text) + within)
}
