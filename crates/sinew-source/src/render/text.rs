//! Rendering for people: position, message, the line with a caret, hint.

use std::fmt::Write;

use super::{file_name, message};
use crate::escape::escape_line;
use crate::{Diagnostic, Diagnostics, Severity, Sources, Span};

/// Maximum number of rendered findings; the others are only counted.
const MOST_SHOWN: usize = 50;
/// Maximum length of a rendered line, in bytes; longer lines are cut around the caret.
const LONGEST_LINE: usize = 120;

/// Renders findings for a terminal: `file:line:col: CODE: message`, then the line, a caret under
/// the position, and the hint; warnings are marked before the code. Ends with a line break unless
/// empty. Renders the first 50 findings.
pub fn render_text(diagnostics: &Diagnostics, colour: bool) -> String {
    let paint = TextStyle { on: colour };
    let mut out = String::new();
    for item in diagnostics.items.iter().take(MOST_SHOWN) {
        // Writing to a string cannot fail.
        let _ = one(&mut out, diagnostics, item, paint);
    }
    let more = diagnostics.items.len().saturating_sub(MOST_SHOWN);
    if more > 0 {
        let _ = writeln!(out, "and {more} more");
    }
    out
}

/// Returns the last line of a report: `1 error, 0 warnings in 1 file`.
pub fn summary(errors: usize, warnings: usize, files: usize) -> String {
    let count = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    format!("{}, {} in {}", count(errors, "error"), count(warnings, "warning"), count(files, "file"))
}

fn one(out: &mut String, diagnostics: &Diagnostics, item: &Diagnostic, paint: TextStyle) -> std::fmt::Result {
    let sources = &diagnostics.sources;
    if let Some(name) = file_name(diagnostics, item) {
        let place = match item.span {
            Some(span) => format!("{}:{}:{}:", escape_line(name), span.line, span.column),
            None => format!("{}:", escape_line(name)),
        };
        write!(out, "{} ", paint.bold(&place))?;
    }
    let strong = match item.severity {
        Severity::Error => TextStyle::red,
        Severity::Warning => TextStyle::yellow,
    };
    if item.severity == Severity::Warning {
        write!(out, "{} ", strong(paint, "warning:"))?;
    }
    writeln!(out, "{} {}", strong(paint, &format!("{}:", item.code)), escape_line(&message(item)))?;
    if let Some((line, lead, carets)) = item.span.and_then(|span| snippet(sources, span)) {
        let number = item.span.map_or(0, |span| span.line);
        writeln!(out, "{} {line}", paint.dim(&format!("{number:5} |")))?;
        writeln!(out, "{} {:lead$}{}", paint.dim("      |"), "", strong(paint, &"^".repeat(carets)))?;
    }
    for (span, text) in &item.related {
        let name = sources.get(span.file).map_or("", |file| &file.name);
        writeln!(
            out,
            "{} {}:{}:{}: {}",
            paint.dim("note:"),
            escape_line(name),
            span.line,
            span.column,
            escape_line(text)
        )?;
    }
    if let Some(hint) = &item.hint {
        writeln!(out, "{} {}", paint.cyan("hint:"), escape_line(hint))?;
    }
    Ok(())
}

/// Returns the line of a span, the number of characters before the caret, and the number of carets.
fn snippet(sources: &Sources, span: Span) -> Option<(String, usize, usize)> {
    let text: &str = &sources.get(span.file)?.text;
    let (before, after) = (text.get(..span.start)?, text.get(span.start..)?);
    let line_start = before.rfind(['\n', '\r']).map_or(0, |at| at + 1);
    let line_end = span.start + after.find(['\n', '\r']).unwrap_or(after.len());
    let (mut from, mut to) = (line_start, line_end);
    if to - from > LONGEST_LINE {
        from = text.floor_char_boundary(span.start.saturating_sub(LONGEST_LINE / 3)).max(line_start);
        to = text.ceil_char_boundary(from + LONGEST_LINE).min(line_end);
    }
    let mut line = String::new();
    if from > line_start {
        line.push('…');
    }
    line.push_str(&shown_part(&text[from..span.start]));
    let lead = line.chars().count();
    line.push_str(&shown_part(&text[span.start..to]));
    if to < line_end {
        line.push('…');
    }
    // A value over several lines is marked to the end of its first line.
    let end = text.floor_char_boundary(span.end.clamp(span.start, to));
    let carets = shown_part(text[span.start..end].trim_end()).chars().count().max(1);
    line.truncate(line.trim_end().len());
    (!line.is_empty()).then_some((line, lead, carets))
}

/// Escapes a part of a line; a tab becomes one column, so that carets are aligned.
fn shown_part(text: &str) -> String {
    escape_line(&text.replace('\t', " ")).into_owned()
}

/// Colours of the output, if enabled.
#[derive(Clone, Copy)]
struct TextStyle {
    on: bool,
}

impl TextStyle {
    fn with(self, code: &str, text: &str) -> String {
        if self.on { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
    fn bold(self, text: &str) -> String {
        self.with("1", text)
    }
    fn red(self, text: &str) -> String {
        self.with("1;31", text)
    }
    fn yellow(self, text: &str) -> String {
        self.with("1;33", text)
    }
    fn cyan(self, text: &str) -> String {
        self.with("36", text)
    }
    fn dim(self, text: &str) -> String {
        self.with("2", text)
    }
}
