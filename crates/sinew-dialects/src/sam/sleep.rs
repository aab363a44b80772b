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
    let time: jiff::Timestamp = text.trim().parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
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
