//! Escapes untrusted text for terminals and logs: makes characters visible that control, reorder or
//! hide text.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Codes of the text styles in views and logs: reset, bold, dim, italic, six colours.
const STYLE_NUMBERS: [&str; 10] = ["0", "1", "2", "3", "31", "32", "33", "34", "35", "36"];

/// Control characters that [`escape`] keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EscapePolicy {
    /// Keep line feeds and tabs. A carriage return before a line feed is dropped.
    pub keep_line_breaks: bool,
    /// Keep the ANSI sequences of bold, dim, italic and colours, because the text contains styles
    /// of the caller.
    pub keep_styles: bool,
}

/// Escapes text with several lines.
pub fn escape_text(text: &str) -> Cow<'_, str> {
    escape(text, EscapePolicy { keep_line_breaks: true, keep_styles: false })
}

/// Escapes text that must stay on one line, such as a name or a table cell.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    escape(text, EscapePolicy { keep_line_breaks: false, keep_styles: false })
}

/// Replaces characters that control a terminal, change the reading direction or are invisible by
/// `\n`, `\r`, `\t` or `\uXXXX`. These are JSON escapes, so a JSON document keeps its value.
pub fn escape(text: &str, policy: EscapePolicy) -> Cow<'_, str> {
    let mut out = String::new();
    // Text before this offset has already been copied to `out`.
    let mut copied = 0;
    let mut at = 0;
    let mut before = None;
    while let Some(c) = text[at..].chars().next() {
        let end = at + c.len_utf8();
        let after = &text[end..];
        if policy.keep_styles
            && c == '\u{1b}'
            && let Some(length) = style_length(after)
        {
            at = end + length;
            before = None;
            continue;
        }
        let kept = match c {
            '\n' | '\t' => policy.keep_line_breaks,
            _ => !is_hidden(before, c, after),
        };
        if !kept {
            out.push_str(&text[copied..at]);
            copied = end;
            let ends_line = c == '\r' && policy.keep_line_breaks && after.starts_with('\n');
            if !ends_line {
                write_escape(&mut out, c);
            }
        }
        before = Some(c);
        at = end;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// Returns whether [`escape_line`] would change the text.
pub fn has_hidden_characters(text: &str) -> bool {
    matches!(escape_line(text), Cow::Owned(_))
}

/// Returns the length of the style sequence after an escape character: `[`, known style codes, `m`.
fn style_length(after: &str) -> Option<usize> {
    let (numbers, _) = after.strip_prefix('[')?.split_once('m')?;
    numbers.split(';').all(|number| STYLE_NUMBERS.contains(&number)).then_some(numbers.len() + 2)
}

/// Returns whether a character must be escaped between its neighbours.
fn is_hidden(before: Option<char>, c: char, after: &str) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    let is_visible = |c: char| !c.is_whitespace() && !c.is_control() && !is_invisible(c);
    match c {
        // Joiners are part of emoji and several scripts, but only between two of their characters.
        '\u{200c}' | '\u{200d}' => {
            let in_script = |c: char| !c.is_ascii() && is_visible(c);
            !before.is_some_and(in_script) || !after.chars().next().is_some_and(in_script)
        }
        // A selector changes the appearance of the single character before it; further selectors
        // can carry hidden text.
        c if is_variation_selector(c) => {
            before.is_none_or(|before| !is_visible(before) || is_variation_selector(before))
        }
        c => c.is_control() || is_invisible(c),
    }
}

/// Returns whether a character selects a variant of the character before it.
fn is_variation_selector(c: char) -> bool {
    matches!(c, '\u{180b}'..='\u{180d}' | '\u{180f}' | '\u{fe00}'..='\u{fe0f}')
}

/// Returns whether a character has no width, looks like a space, or changes the order of its
/// neighbours.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

fn write_escape(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
}

/// Indents all lines of untrusted text after the first, so that none looks like a line of Sinew.
pub fn indented(text: &str) -> String {
    let text = escape_text(text);
    let mut lines = text.lines();
    let mut out = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        out.push_str(if line.starts_with("  ") { "\n" } else { "\n  " });
        out.push_str(line);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_are_escaped() {
        let cases: &[(&str, &str, &str)] = &[
            ("", "", ""),
            ("plain ünïcode 漢字", "plain ünïcode 漢字", "plain ünïcode 漢字"),
            (
                "a\u{1b}[31mb\u{1b}]0;t\u{7}",
                "a\\u001b[31mb\\u001b]0;t\\u0007",
                "a\\u001b[31mb\\u001b]0;t\\u0007",
            ),
            ("a\nb\tc", "a\\nb\\tc", "a\nb\tc"),
            ("a\r\nb\rc", "a\\r\\nb\\rc", "a\nb\\rc"),
            (
                "\u{7f}\u{80}\u{9b}\u{85}\0",
                "\\u007f\\u0080\\u009b\\u0085\\u0000",
                "\\u007f\\u0080\\u009b\\u0085\\u0000",
            ),
            (
                "a\u{202e}b\u{2066}\u{200e}\u{61c}",
                "a\\u202eb\\u2066\\u200e\\u061c",
                "a\\u202eb\\u2066\\u200e\\u061c",
            ),
            (
                "a\u{2028}\u{2029}\u{feff}\u{ad}",
                "a\\u2028\\u2029\\ufeff\\u00ad",
                "a\\u2028\\u2029\\ufeff\\u00ad",
            ),
            ("a\u{e0041}", "a\\udb40\\udc41", "a\\udb40\\udc41"),
            // Joiners and selectors: where a script requires them, and elsewhere.
            (
                "👩\u{200d}💻 ❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3}",
                "👩\u{200d}💻 ❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3}",
                "👩\u{200d}💻 ❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3}",
            ),
            (
                "ad\u{200d}min \u{200c}x é\u{200d}",
                "ad\\u200dmin \\u200cx é\\u200d",
                "ad\\u200dmin \\u200cx é\\u200d",
            ),
            ("a\u{fe0f}\u{fe00} \u{fe01}", "a\u{fe0f}\\ufe00 \\ufe01", "a\u{fe0f}\\ufe00 \\ufe01"),
        ];
        for (given, line, text) in cases {
            assert_eq!((&*escape_line(given), &*escape_text(given)), (*line, *text), "{given:?}");
        }
    }

    #[test]
    fn styles_of_the_caller_are_kept_and_no_other_sequence() {
        let policy = EscapePolicy { keep_line_breaks: true, keep_styles: true };
        for kept in ["\u{1b}[1;31merror\u{1b}[0m: x", "\u{1b}[2mdim\u{1b}[0m\n"] {
            assert_eq!(escape(kept, policy), kept);
        }
        for spelled in
            ["\u{1b}[8m", "\u{1b}[m", "\u{1b}[31;5m", "\u{1b}[2J", "\u{1b}[31", "\u{1b}", "\u{9b}31m"]
        {
            let escaped = escape(spelled, policy);
            assert!(!escaped.chars().any(char::is_control), "{spelled:?}: {escaped:?}");
        }
        assert_eq!(escape("\u{1b}[31ma\u{7f}\u{1b}[0m", policy), "\u{1b}[31ma\\u007f\u{1b}[0m");
    }

    #[test]
    fn every_control_character_is_escaped_and_a_json_document_stays_the_same() {
        let all: String = ('\0'..=char::MAX).collect();
        let escaped = escape_line(&all);
        assert!(!escaped.chars().any(|c| c.is_control() || is_invisible(c)));
        let mut document = serde_json::json!({"text": all}).to_string();
        document = escape_line(&document).into_owned();
        let read: serde_json::Value = serde_json::from_str(&document).unwrap();
        assert_eq!(read["text"], all);
    }

    #[test]
    fn further_lines_of_a_message_are_indented() {
        assert_eq!(indented("one\nhint: two\n    three\u{1b}"), "one\n  hint: two\n    three\\u001b");
    }
}
