//! Durations in workflow files: `30s`, `1.5m`, `2 h`, `1d`, or a bare number of seconds.

use serde_json::Value;

/// Returns a duration in seconds. A bare number counts seconds; the units are s, m, h and d, in
/// either case.
pub fn seconds(value: &Value) -> Result<f64, String> {
    let (found, shown) = match value {
        Value::Number(number) => (number.as_f64(), number.to_string()),
        Value::String(text) => (of_text(text), text.trim().to_lowercase()),
        other => (None, other.to_string()),
    };
    found.filter(|seconds| (0.0..=LONGEST).contains(seconds)).ok_or_else(|| {
        format!(
            "Invalid duration format: '{shown}'. Expected format: number with optional suffix (s/m/h/d), \
             e.g., '30s', '5m', '1h'"
        )
    })
}

/// Returns a duration in milliseconds, at least one for any positive duration.
pub fn milliseconds(value: &Value) -> Result<u64, String> {
    seconds(value).map(to_milliseconds)
}

#[expect(clippy::cast_sign_loss, reason = "seconds are never negative")]
fn to_milliseconds(seconds: f64) -> u64 {
    let rounded = (seconds * 1000.0).round() as u64;
    rounded.max(u64::from(seconds > 0.0))
}

/// Ten years, in seconds: a longer duration is an error.
const LONGEST: f64 = 10.0 * 366.0 * 86_400.0;

fn of_text(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let digits = digits.trim_end();
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    (plain(whole) && plain(fraction))
        .then(|| digits.parse::<f64>().ok().map(|number| number * unit))
        .flatten()
}
