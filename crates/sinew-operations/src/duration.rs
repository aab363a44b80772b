//! Durations as people write them.

use crate::failure::Failure;

/// `250ms`, `30s`, `5m`, `1h30m`, or a bare number of seconds; in milliseconds.
pub fn parse_duration(text: &str) -> Result<u64, Failure> {
    let wrong =
        || Failure::usage(format!("'{text}' is not a duration")).hint("write 250ms, 30s, 5m or 1h30m");
    if let Ok(seconds) = text.parse::<u64>() {
        return seconds.checked_mul(1000).ok_or_else(wrong);
    }
    let span: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    u64::try_from(span.as_millis()).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_milliseconds() {
        for (text, want) in
            [("250ms", 250), ("30", 30_000), ("30s", 30_000), ("5m", 300_000), ("1h30m", 5_400_000)]
        {
            assert_eq!(parse_duration(text).unwrap(), want, "{text}");
        }
        for text in ["", "soon", "-5s", "99999999999999999999"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
