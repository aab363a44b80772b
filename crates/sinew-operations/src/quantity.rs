//! Retention times and byte counts in human-readable form.

use std::time::Duration;

use crate::duration::parse_duration;
use crate::failure::Failure;

/// Parses `30d`, or any format of [`parse_duration`].
pub fn parse_retention(text: &str) -> Result<Duration, Failure> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok());
    match days.and_then(|days| days.checked_mul(86_400)) {
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => parse_duration(text).map(Duration::from_millis),
    }
}

/// Parses `512MB`, `10GiB`, or a number of bytes.
pub fn parse_byte_count(text: &str) -> Result<u64, Failure> {
    const UNITS: [(&str, u64); 9] = [
        ("KIB", 1 << 10),
        ("MIB", 1 << 20),
        ("GIB", 1 << 30),
        ("TIB", 1 << 40),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("B", 1),
    ];
    let upper = text.trim().to_ascii_uppercase();
    let (number, unit) =
        UNITS.iter().find_map(|(name, unit)| Some((upper.strip_suffix(name)?, *unit))).unwrap_or((&upper, 1));
    number
        .trim()
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| {
            Failure::usage(format!("'{text}' is not a number of bytes"))
                .hint("use a value such as 512MB or 10GiB")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_days_have_units() {
        for (text, want) in [("512MB", 512_000_000), ("10GiB", 10 << 30), ("77", 77), ("1 kb", 1_000)] {
            assert_eq!(parse_byte_count(text).unwrap(), want, "{text}");
        }
        for text in ["", "0", "MB", "-1", "1.5GB", "99999999999TB"] {
            assert!(parse_byte_count(text).is_err(), "{text}");
        }
        assert_eq!(parse_retention("30d").unwrap(), Duration::from_hours(720));
        assert_eq!(parse_retention("90m").unwrap(), Duration::from_mins(90));
        assert!(parse_retention("d").is_err());
    }
}
