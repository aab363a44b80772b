//! Durations and byte counts in human-readable form.

use sinew_source::duration::{self, DURATION_EXAMPLES};

use crate::failure::Failure;

/// Parses a duration (see [`duration::parse_duration`]); returns milliseconds.
pub fn parse_duration(text: &str) -> Result<u64, Failure> {
    let parsed = duration::parse_duration(text).and_then(|time| u64::try_from(time.as_millis()).ok());
    parsed.ok_or_else(|| {
        Failure::usage(format!("'{text}' is not a duration"))
            .hint(format!("use a value such as {DURATION_EXAMPLES}"))
    })
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
    fn sizes_have_units() {
        for (text, want) in [("512MB", 512_000_000), ("10GiB", 10 << 30), ("77", 77), ("1 kb", 1_000)] {
            assert_eq!(parse_byte_count(text).unwrap(), want, "{text}");
        }
        for text in ["", "0", "MB", "-1", "1.5GB", "99999999999TB"] {
            assert!(parse_byte_count(text).is_err(), "{text}");
        }
    }
}
