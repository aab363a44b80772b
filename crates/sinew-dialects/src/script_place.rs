//! Places of script errors: from line and column of a script to the place in the file that holds it.

use sinew_script::ScriptError;
use sinew_source::{Sources, Span};

/// Where the place of a script error stands in the file.
pub(crate) fn place_in(sources: &Sources, span: Span, source: &str, error: &ScriptError) -> Option<Span> {
    let line = error.line?;
    let column = error.column.unwrap_or(1);
    let raw = sources.get(span.file)?.text.get(span.start..span.end)?;
    let at = if raw.starts_with('"') {
        in_quoted(raw, line, column)
    } else {
        in_block(raw, source, line, column)?
    };
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

/// The byte of a quoted text where a line and column of its value stand.
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

/// The byte of a YAML block where a line and column of its value stand: the block only differs by its indent.
fn in_block(raw: &str, source: &str, line: u32, column: u32) -> Option<usize> {
    let lines: Vec<&str> = source.lines().collect();
    let wanted = *lines.get(line as usize - 1)?;
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
