//! The delay before the next attempt.

use std::time::{Duration, SystemTime};

/// Maximum delay that a server can request. For a longer one, the fault carries the delay instead.
pub(super) const LONGEST: Duration = Duration::from_mins(1);

/// Parses `Retry-After`: seconds or an HTTP date. A past date means no delay.
pub(crate) fn after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that overflows is a long delay too.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// Returns the requested delay, else 0.2 s, doubled for each attempt (from 1) up to 10 s.
pub(super) fn wait(attempt: u32, asked: Option<Duration>) -> Duration {
    let doubled = Duration::from_millis(200).saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1)));
    asked.unwrap_or_else(|| doubled.min(Duration::from_secs(10)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_retry_after() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770); // 1994-11-06 08:49:30
        for (value, expected) in [
            ("0", Some(0)),
            (" 120 ", Some(120)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(7)),
            ("Sun Nov  6 08:49:37 1994", Some(7)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
        ] {
            assert_eq!(after(value, now), expected.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn waits() {
        for (attempt, asked, milliseconds) in [
            (1, None, 200),
            (2, None, 400),
            (6, None, 6_400),
            (7, None, 10_000),
            (u32::MAX, None, 10_000),
            (1, Some(0), 0),
            (9, Some(3_000), 3_000),
        ] {
            assert_eq!(
                wait(attempt, asked.map(Duration::from_millis)),
                Duration::from_millis(milliseconds),
                "{attempt} {asked:?}"
            );
        }
    }
}
