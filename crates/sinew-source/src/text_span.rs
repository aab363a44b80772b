//! Spans within a string of a file: converts line and column in the string to the position in the
//! file.

use std::ops::Range;

use crate::sources::Sources;
use crate::value::Span;

/// Returns the span in the file of the bytes `range` of the string `value` at `span`, in any style
/// of YAML. Returns the first character of a part with escapes, and `span` for a part that the file does
/// not contain, for example of a folded text. An empty range is the position after the character before it.
pub fn token_span(sources: &Sources, span: Span, value: &str, range: Range<usize>) -> Span {
    find_token(sources, span, value, range).unwrap_or(span)
}

fn find_token(sources: &Sources, span: Span, value: &str, range: Range<usize>) -> Option<Span> {
    let text = &sources.get(span.file)?.text;
    let raw = text.get(span.start..span.end)?;
    if range.is_empty() {
        let last = value.get(..range.start)?.trim_end();
        let first = last.char_indices().next_back()?.0;
        let before = find_token(sources, span, value, first..last.len())?;
        let column = before.column + 1;
        return Some(Span { start: before.end, column, ..before });
    }
    let token = value.get(range.clone())?;
    let start = if raw.matches(token).count() == value.matches(token).count() {
        let earlier = value[..range.start].matches(token).count();
        span.start + raw.match_indices(token).nth(earlier)?.0
    } else {
        let before = &value[..range.start];
        let line = before.matches('\n').count() as u32 + 1;
        let column = count(before.rsplit('\n').next()?) + 1;
        let first = place_within(sources, span, value, line, column)?;
        // With escapes, only its start is known.
        let is_literal = text.get(first.start..).is_some_and(|rest| rest.starts_with(token));
        if !is_literal {
            return Some(first);
        }
        first.start
    };
    Some(position(span, raw, start - span.start, token.len()))
}

/// Returns the span of `length` bytes at the offset `at` of the text `raw` at `span`.
fn position(span: Span, raw: &str, at: usize, length: usize) -> Span {
    let before = &raw[..at];
    let (start, end) = (span.start + at, span.start + at + length);
    match before.rfind('\n') {
        None => Span { column: span.column + count(before), start, end, ..span },
        Some(last) => {
            let line = span.line + before.bytes().filter(|byte| *byte == b'\n').count() as u32;
            Span { line, column: count(&before[last + 1..]) + 1, start, end, ..span }
        }
    }
}

/// Returns the position in the file of a line and a column, both from 1, in the string `value` at
/// `span`, quoted or as a block. Returns `None` if the file does not contain the string literally,
/// for example because it is folded.
pub fn place_within(sources: &Sources, span: Span, value: &str, line: u32, column: u32) -> Option<Span> {
    let raw = sources.get(span.file)?.text.get(span.start..span.end)?;
    let at =
        if raw.starts_with('"') { in_quoted(raw, line, column) } else { in_block(raw, value, line, column)? };
    raw.get(..at)?;
    let length = raw[at..].chars().next().map_or(0, char::len_utf8);
    Some(position(span, raw, at, length))
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
