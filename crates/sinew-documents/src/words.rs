//! Formatting of values of documents for people.

use sinew_protocol::query::ExecutionStatus;
use sinew_source::{escape_line, escape_text};

/// Formats milliseconds for people.
pub fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{}.{}s", ms / 1000, ms % 1000 / 100),
        60_000..3_600_000 => format!("{}m{:02}s", ms / 60_000, ms % 60_000 / 1000),
        3_600_000..172_800_000 => format!("{}h{:02}m", ms / 3_600_000, ms % 3_600_000 / 60_000),
        _ => format!("{}d{:02}h", ms / 86_400_000, ms % 86_400_000 / 3_600_000),
    }
}

/// Returns the status in views and their data, which is the same for executions and nodes. Messages
/// of the mesh use `success` and `failure`.
pub const fn status_word(status: ExecutionStatus) -> &'static str {
    match status {
        ExecutionStatus::Success => "succeeded",
        ExecutionStatus::Failure => "failed",
        other => other.as_str(),
    }
}

/// Returns the colour of a status on a terminal.
pub const fn status_color(status: ExecutionStatus) -> &'static str {
    match status {
        ExecutionStatus::Running => "\u{1b}[36m",
        ExecutionStatus::Waiting | ExecutionStatus::Paused => "\u{1b}[33m",
        ExecutionStatus::Success => "\u{1b}[32m",
        ExecutionStatus::Failure => "\u{1b}[31m",
        ExecutionStatus::Cancelled => "\u{1b}[35m",
    }
}

/// Formats a time as RFC 3339 in UTC with milliseconds, so that texts sort like times.
pub fn instant(at: u64) -> String {
    i64::try_from(at)
        .ok()
        .and_then(|at| jiff::Timestamp::from_millisecond(at).ok())
        .map_or_else(|| at.to_string(), |at| at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

/// Formats a number with its noun: `1 node`, `2 nodes`.
pub fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Formats the time since an instant: `12s ago`.
pub fn ago(at: u64, now: u64) -> String {
    format!("{} ago", duration(now.saturating_sub(at)))
}

/// Aligns rows in columns; the first row contains the headings. Cells are escaped.
pub fn columns<R: AsRef<[String]>>(rows: &[R]) -> String {
    let cells = |row: &R| row.as_ref().iter().map(|cell| escape_line(cell).into_owned()).collect();
    let lines: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let wide = |text: &str| text.chars().count();
    let count = lines.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|n| lines.iter().filter_map(|line| line.get(n)).map(|cell| wide(cell)).max().unwrap_or(0))
        .collect();
    let line = |cells: &Vec<String>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| {
            let room = width.saturating_sub(wide(cell));
            format!("{cell}{}", " ".repeat(room))
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the first line, escaped and truncated.
pub fn one_line(text: &str, most: usize) -> String {
    let mut lines = text.lines();
    let first = escape_line(lines.next().unwrap_or_default()).into_owned();
    if first.chars().count() <= most && lines.next().is_none() {
        return first;
    }
    first.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Escapes text that must stay on one line, without truncating it.
pub fn name(text: &str) -> String {
    escape_line(text).into_owned()
}

/// Escapes untrusted text for a terminal; line breaks are kept.
pub fn plain(text: &str) -> String {
    escape_text(text).into_owned()
}

/// The short form of a digest.
pub fn short(digest: &str) -> &str {
    let hex = digest.strip_prefix("sha256:").unwrap_or(digest);
    hex.get(..12).unwrap_or(hex)
}

/// Returns the short form of an execution id: a prefix of generated ids, other ids unchanged.
/// Commands accept prefixes of ids.
pub fn short_id(id: &str) -> &str {
    let is_generated = id.len() == 32 && id.bytes().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7'));
    if is_generated { &id[..10] } else { id }
}

/// Quotes a word for a shell if necessary.
pub fn shell(word: &str) -> String {
    let plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':' | '@' | '=' | ',');
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Formats the end of an execution and its reason on one line, without repeating the status.
pub fn ending(status: &str, message: &str) -> String {
    let told = message.strip_prefix(status).is_some_and(|rest| rest.starts_with(':'));
    if told { message.to_owned() } else { format!("{status}: {message}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_others_cannot_paint() {
        assert_eq!(one_line("a\u{1b}[31mb\nc", 80), "a\\u001b[31mb…");
        assert_eq!(one_line("abcdef", 4), "abc…");
        assert_eq!(plain("a\u{7}\nb\u{1b}[2J"), "a\\u0007\nb\\u001b[2J");
        assert_eq!(name("a\nb"), "a\\nb");
        assert_eq!(columns(&[vec!["a\nb".to_owned(), "c\u{202e}".to_owned()]]), "a\\nb  c\\u202e");
        assert_eq!(
            (shell("a-1"), shell("a b'c"), shell("")),
            ("a-1".into(), r"'a b'\''c'".into(), "''".into())
        );
    }

    #[test]
    fn an_end_says_its_word_once() {
        assert_eq!(ending("cancelled", "cancelled: enough"), "cancelled: enough");
        assert_eq!(ending("failure", "cancelled: enough"), "failure: cancelled: enough");
        assert_eq!(ending("cancelled", "cancelledly"), "cancelled: cancelledly");
    }

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(instant(1_500), "1970-01-01T00:00:01.500Z");
        assert_eq!((count(1, "node").as_str(), count(0, "node").as_str()), ("1 node", "0 nodes"));
        assert_eq!(instant(u64::MAX), u64::MAX.to_string());
        assert_eq!(ago(1_000, 43_000), "42.0s ago");
    }
}
