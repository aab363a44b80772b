//! Durations in human-readable form: of the command line, of agent files and of the console.

use std::time::Duration;

/// Units, with their seconds.
const UNITS: [(&str, f64); 5] = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3_600.0), ("d", 86_400.0)];

/// JSON Schema pattern of [`parse_duration`] with at least one unit.
pub const DURATION_PATTERN: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$";

/// Examples of durations, for error messages.
pub const DURATION_EXAMPLES: &str = "250ms, 30s, 5m, 1h30m or 7d";

/// Parses `250ms`, `1.5s`, `5m`, `1h30m`, `7d`, `1d12h`, or a number of seconds. Returns `None` for
/// any other text, and for durations of more than 10,000 years.
pub fn parse_duration(text: &str) -> Option<Duration> {
    const MAX: Duration = Duration::from_hours(10_000 * 366 * 24);
    let mut total = Duration::ZERO;
    let mut rest = text;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let has_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let is_number = match number.split_once('.') {
            None => has_digits(number),
            Some((whole, fraction)) => has_digits(whole) && has_digits(fraction),
        };
        let number: f64 = number.parse().ok().filter(|_| is_number)?;
        // A number without a unit counts seconds, if nothing precedes it.
        let (unit, seconds) = match after {
            "" if rest.len() == text.len() => ("", 1.0),
            _ => *UNITS.iter().find(|(unit, _)| after.starts_with(unit))?,
        };
        let span = Duration::try_from_secs_f64(number * seconds).ok()?;
        total = total.checked_add(span).filter(|total| *total <= MAX)?;
        rest = &after[unit.len()..];
        if rest.is_empty() {
            return Some(total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_one_grammar() {
        for (text, milliseconds) in [
            ("250ms", 250),
            ("30", 30_000),
            ("0.5", 500),
            ("1.5s", 1_500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
            ("1d12h", 129_600_000),
            ("1m500ms", 60_500),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in [
            "",
            "soon",
            "-5s",
            "d",
            "1dsoon",
            "1h30",
            ".5s",
            "1.s",
            "1..5s",
            "5 m",
            "1e9s",
            "infs",
            "99999999999999999999d",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
