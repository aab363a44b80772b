//! Formatting of text, values, times and sizes for pages.

use maud::{Markup, html};
use serde_json::Value;
use sinew_documents::timestamp::Timestamp;
use sinew_documents::words;
use sinew_source::{escape_line, escape_text};

use crate::command_text::CommandText;
use crate::page_request::PageAddress;

/// Maximum size of a shown value; a link leads to the full value.
pub(crate) const MAX_SHOWN_BYTES: usize = 16 << 10;
/// Maximum size of the beginning of a value.
const MAX_EXCERPT_BYTES: usize = 1 << 10;
/// Maximum size of a paragraph.
const MAX_PARAGRAPH_BYTES: usize = 4 << 10;
/// Maximum characters of a value in a table cell.
const MAX_CELL_CHARS: usize = 160;

/// Untrusted text on one line, truncated to a number of characters. Hidden characters become
/// visible.
pub(crate) fn line(text: &str, max_chars: usize) -> String {
    words::one_line(text, max_chars)
}

/// Untrusted text with its line breaks, truncated if it is longer than a screen.
pub(crate) fn paragraph(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_PARAGRAPH_BYTES);
    let cut = if end < text.len() { "…" } else { "" };
    format!("{}{cut}", escape_text(&text[..end]))
}

/// An untrusted sentence on one line; text in backticks is code.
pub(crate) fn sentence(text: &str, max_chars: usize) -> Markup {
    let shown = line(text, max_chars);
    // An unclosed backtick is literal.
    let parts: Vec<&str> = shown.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return html! { (shown) };
    }
    html! { @for (number, part) in parts.into_iter().enumerate() { @if number % 2 == 1 { code { (part) } } @else { (part) } } }
}

/// Untrusted text on one line, not truncated.
pub(crate) fn name(text: &str) -> String {
    escape_line(text).into_owned()
}

/// A value on one line.
pub(crate) fn value_line(value: &Value) -> String {
    match value {
        Value::String(text) => line(text, MAX_CELL_CHARS),
        other => line(&other.to_string(), MAX_CELL_CHARS),
    }
}

/// A value as a block: indented JSON, or plain text. Long values are truncated; `whole` links to
/// the full value.
pub(crate) fn value_block(value: &Value, whole: &str) -> Markup {
    let text = match value {
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).unwrap_or_default(),
    };
    text_block(&text, whole)
}

/// Untrusted text as a block, truncated like a value.
pub(crate) fn text_block(text: &str, whole: &str) -> Markup {
    let end = text.floor_char_boundary(MAX_SHOWN_BYTES);
    html! {
        pre.value tabindex="0" { (escape_text(&text[..end])) }
        @if end < text.len() {
            p.more { "First " (size(end as u64)) " of " (size(text.len() as u64)) ". " a href=(whole) { "Show all" } }
        }
    }
}

/// The beginning of a value, with a link to all of it if it is longer.
pub(crate) fn value_excerpt(value: &Value, whole: &PageAddress) -> Markup {
    let text = match value {
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).unwrap_or_default(),
    };
    let end = text.floor_char_boundary(MAX_EXCERPT_BYTES);
    html! {
        pre.value.excerpt tabindex="0" { (escape_text(&text[..end])) @if end < text.len() { "…" } }
        @if end < text.len() { p.more { a href=(whole) { "Show all" } " (" (size(text.len() as u64)) ")" } }
    }
}

/// A time relative to now. The title has the date; a switch in the header of each page shows
/// absolute times instead.
pub(crate) fn time_mark(at: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(at) title=(date_time(at)) data-time="ago" { (relative(at, now)) } }
}

/// A time that a process reported, relative to now; any other text is shown as it is.
pub(crate) fn reported_time_mark(at: &str, now: Timestamp) -> Markup {
    Timestamp::parse(at).map_or_else(|| html! { span { (line(at, 40)) } }, |at| time_mark(at, now))
}

fn relative(at: Timestamp, now: Timestamp) -> String {
    let text = words::duration(now.ms().abs_diff(at.ms()));
    // Fractions of a second are irrelevant in a list.
    let text = match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}s"),
        None if text.ends_with("ms") => "0s".to_owned(),
        None => text,
    };
    // Clocks differ by less than a second.
    if at > now && text != "0s" { format!("in {text}") } else { format!("{text} ago") }
}

/// The time of day with milliseconds, UTC; the title has the date.
pub(crate) fn clock_mark(at: Timestamp) -> Markup {
    let text = at.to_string();
    let shown = text.split_once('T').map_or(text.as_str(), |(_, clock)| clock);
    html! { time datetime=(at) title=(date_time(at)) data-time="clock" { (shown) } }
}

/// Date and time with the zone.
pub(crate) fn moment_mark(at: Timestamp) -> Markup {
    html! { time datetime=(at) title=(date_time(at)) data-time="moment" { (date_time(at)) } }
}

/// `2026-01-01 00:09:18 UTC`.
fn date_time(at: Timestamp) -> String {
    let text = at.to_string();
    let (day, clock) = text.split_once('T').unwrap_or((text.as_str(), ""));
    let clock = clock.trim_end_matches('Z');
    format!("{day} {} UTC", clock.split_once('.').map_or(clock, |(clock, _)| clock))
}

/// Milliseconds from one time to another or to now; `None` if the other is earlier.
pub(crate) fn elapsed_ms(from: Timestamp, to: Option<Timestamp>, now: Timestamp) -> Option<u64> {
    to.unwrap_or(now).ms().checked_sub(from.ms())
}

/// A duration; a dash for `None`.
pub(crate) fn duration(ms: Option<u64>) -> String {
    ms.map_or_else(|| "–".to_owned(), words::duration)
}

/// A number of bytes.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut number, mut unit) = (bytes as f64 / 1024.0, 0);
    while number >= 1024.0 && unit + 1 < UNITS.len() {
        number /= 1024.0;
        unit += 1;
    }
    format!("{number:.1} {}", UNITS[unit])
}

/// The equivalent command line, with a copy button.
pub(crate) fn command_line(command: &CommandText) -> Markup {
    let command = name(&command.to_string());
    html! {
        span.cli {
            code { (command) }
            button.copy type="button" data-copy=(command) hidden { "Copy" }
        }
    }
}

/// A link to an action, styled as a button, with the equivalent command.
pub(crate) fn action_link(address: &PageAddress, title: &str, command: &CommandText) -> Markup {
    let command = name(&command.to_string());
    html! { a.button data-action data-command=(command) aria-description={ "$ " (command) } href=(address) { (title) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_within_sentences_are_code() {
        let check = |text: &str, expected: &str| assert_eq!(sentence(text, 80).into_string(), expected);
        check("see `sinew execution list`", "see <code>sinew execution list</code>");
        check("`<b>` and `b`", "<code>&lt;b&gt;</code> and <code>b</code>");
        check("one ` alone", "one ` alone");
    }

    #[test]
    fn times_are_told_from_now() {
        let time = |text: &str| Timestamp::parse(text).unwrap();
        let now = time("2026-01-01T00:10:00Z");
        let check = |at: &str, expected: &str| {
            let html = reported_time_mark(at, now).into_string();
            assert!(html.contains(&format!(">{expected}</")), "{at}: {html}");
        };
        check("2026-01-01T00:09:59.7Z", "0s ago");
        check("2026-01-01T00:09:18.2Z", "41s ago");
        check("2026-01-01T00:07:30Z", "2m30s ago");
        check("2026-01-01T00:10:30Z", "in 30s");
        check("<script>", "&lt;script&gt;");
        let (from, to) = (time("2026-01-01T00:09:00Z"), time("2026-01-01T00:09:01.5Z"));
        assert_eq!(elapsed_ms(from, None, now), Some(60_000));
        assert_eq!(elapsed_ms(from, Some(to), now), Some(1_500));
        assert_eq!(elapsed_ms(to, Some(from), now), None);
        assert_eq!(
            clock_mark(to).into_string(),
            "<time datetime=\"2026-01-01T00:09:01.500Z\" title=\"2026-01-01 00:09:01 UTC\" data-time=\"clock\">00:09:01.500Z</time>"
        );
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let html = value_block(&Value::String("é".repeat(MAX_SHOWN_BYTES)), "/whole?a&b").into_string();
        assert!(html.len() < MAX_SHOWN_BYTES + 300, "{}", html.len());
        assert!(
            html.contains("First 16.0 KiB of 32.0 KiB. <a href=\"/whole?a&amp;b\">"),
            "{}",
            &html[html.len() - 200..]
        );
        assert_eq!((size(0), size(1023), size(1536)), ("0 B".into(), "1023 B".into(), "1.5 KiB".into()));
    }

    #[test]
    fn text_of_others_is_never_markup() {
        let hostile = "<img src=x onerror=alert(1)>\u{202e}\u{1b}[31m\"'&";
        for html in [
            value_block(&Value::String(hostile.to_owned()), "/").into_string(),
            value_block(&serde_json::json!({ hostile: [hostile] }), "/").into_string(),
            command_line(&CommandText::new("sinew").word(hostile)).into_string(),
        ] {
            assert!(!html.contains("<img") && !html.contains(['\u{202e}', '\u{1b}']), "{html}");
        }
    }
}
