//! Durations in human-readable form.

use crate::failure::Failure;

/// Milliseconds of a day.
const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// Parses `250ms`, `30s`, `5m`, `1h30m`, `7d`, `1d12h`, or a number of seconds; returns
/// milliseconds.
pub fn parse_duration(text: &str) -> Result<u64, Failure> {
    let wrong = || {
        Failure::usage(format!("'{text}' is not a duration"))
            .hint("use a value such as 250ms, 30s, 5m, 1h30m or 7d")
    };
    if let Ok(seconds) = text.parse::<u64>() {
        return seconds.checked_mul(1000).ok_or_else(wrong);
    }
    if let Some((days, rest)) =
        text.split_once('d').filter(|(days, _)| days.bytes().all(|byte| byte.is_ascii_digit()))
    {
        let days = days.parse::<u64>().ok().and_then(|days| days.checked_mul(DAY_MS)).ok_or_else(wrong)?;
        let rest = if rest.is_empty() { 0 } else { parse_duration(rest).map_err(|_| wrong())? };
        return days.checked_add(rest).ok_or_else(wrong);
    }
    let span: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    u64::try_from(span.as_millis()).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_milliseconds() {
        for (text, want) in [
            ("250ms", 250),
            ("30", 30_000),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
            ("1d12h", 129_600_000),
        ] {
            assert_eq!(parse_duration(text).unwrap(), want, "{text}");
        }
        for text in ["", "soon", "-5s", "99999999999999999999", "d", "99999999999999999999d", "1dsoon"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
