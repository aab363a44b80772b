//! The `sleep` node: continues after a duration, or at a time. An extension of the source format.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_engine::{ActivationOutput, NodeDecision, SharedJson};
use sinew_protocol::{Fault, code};

use super::duration;
use super::path::TemplateScope;
use super::template::Template;

/// Settings of a sleep; exactly one of them is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sleep {
    /// A duration, or a template of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Value>,
    /// A time in RFC 3339, or a template of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// Returns the first step of a sleep that passes `output` on.
pub(super) fn start(
    sleep: &Sleep,
    scope: &dyn TemplateScope,
    now_ms: u64,
    output: SharedJson,
) -> Result<NodeDecision, Fault> {
    let filled = |template: &Value| {
        let value = Template::parse(template).resolve(scope);
        value.map_err(|reason| Fault::invalid(code::TEMPLATE_FIELD_MISSING.as_str(), reason))
    };
    let wrong = |reason: String| Fault::invalid(code::DURATION_CANNOT_BE_READ.as_str(), reason);
    let ms = match (&sleep.duration, &sleep.until) {
        (Some(duration), _) => duration::milliseconds(&filled(duration)?).map_err(wrong)?,
        (None, Some(until)) => {
            let until = filled(&Value::String(until.clone()))?;
            let at = until.as_str().and_then(instant_ms);
            let at = at.ok_or_else(|| wrong(format!("{until} is not a time in RFC 3339")))?;
            at.saturating_sub(now_ms)
        }
        (None, None) => 0,
    };
    Ok(match ms {
        0 => NodeDecision::Done(ActivationOutput::new(output)),
        ms => NodeDecision::Sleep(ms),
    })
}

/// Parses a time in RFC 3339, in milliseconds since 1970 UTC; `None` for any other text, and for
/// times before 1970.
pub(super) fn instant_ms(text: &str) -> Option<u64> {
    let text = text.trim();
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let at_zone = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at(at_zone);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let valid = (1..=12).contains(&month)
        && (1..=days_of_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !valid || fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let thousandths = format!("{fraction:0<3}").get(..3)?.parse::<i64>().ok()?;
    let offset = match zone.strip_prefix(['+', '-']) {
        None if zone.eq_ignore_ascii_case("z") => 0,
        None => return None,
        Some(hours) => {
            let [hours, minutes] = numbers(hours, ':', [2, 2])?;
            let seconds = (hours * 60 + minutes) * 60;
            if hours > 23 || minutes > 59 {
                return None;
            }
            if zone.starts_with('-') { -seconds } else { seconds }
        }
    };
    let seconds = days_since_1970(year, month, day) * 86_400 + (hour * 60 + minute) * 60 + second - offset;
    u64::try_from(seconds * 1000 + thousandths).ok()
}

/// Parses numbers of fixed widths.
fn numbers<const N: usize>(text: &str, separator: char, widths: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(separator);
    let mut found = [0; N];
    for (number, width) in found.iter_mut().zip(widths) {
        let part = parts.next()?;
        let plain = part.len() == width && part.bytes().all(|b| b.is_ascii_digit());
        *number = plain.then(|| part.parse().ok()).flatten()?;
    }
    parts.next().is_none().then_some(found)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the days from 1970-01-01 in the Gregorian calendar.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let before = |year: i64| year * 365 + year / 4 - year / 100 + year / 400;
    let months: i64 = (1..month).map(|month| days_of_month(year, month)).sum();
    before(year - 1) - before(1969) + months + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-02T00:00:00.5z", 86_400_500),
            ("2000-02-29T12:00:00+02:00", 951_818_400_000),
            ("2026-12-01T09:00:00-01:30", 1_796_121_000_000),
            ("2026-12-01 09:00:00.123456Z", 1_796_115_600_123),
        ] {
            assert_eq!(instant_ms(text), Some(ms), "{text}");
        }
        for wrong in [
            "",
            "tomorrow",
            "2026-12-01",
            "2026-12-01T09:00:00",
            "2026-13-01T09:00:00Z",
            "2026-02-29T09:00:00Z",
            "2026-12-01T25:00:00Z",
            "2026-12-01T9:00:00Z",
            "2026-12-01T09:00:00.Z",
            "2026-12-01T09:00:00+1:00",
            "1969-12-31T23:59:59Z",
        ] {
            assert_eq!(instant_ms(wrong), None, "{wrong}");
        }
    }
}
