//! Durations in agent files.

use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use sinew_source::duration::{DURATION_EXAMPLES, DURATION_PATTERN, parse_duration};

/// Longest accepted duration, 10 years: deadlines cannot overflow.
const MAX_DURATION: Duration = Duration::from_hours(3_650 * 24);

/// A duration: a number of seconds, or text with units such as `500ms`, `30s` or `1h30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(
    /// The duration.
    pub Duration,
);

impl Time {
    /// Returns a positive duration of at most [`MAX_DURATION`].
    fn of(duration: Duration) -> Option<Self> {
        Some(Self(duration)).filter(|time| !time.0.is_zero() && time.0 <= MAX_DURATION)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let time = match &value {
            Value::Number(number) => number
                .as_f64()
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .and_then(Self::of),
            // Text names its unit: a number in quotes is a mistake more often than seconds.
            Value::String(text) if text.ends_with(|c: char| c.is_ascii_alphabetic()) => {
                parse_duration(text).and_then(Self::of)
            }
            _ => None,
        };
        time.ok_or_else(|| {
            de::Error::custom(format!("expected a duration such as {DURATION_EXAMPLES}, at most 10 years"))
        })
    }
}

impl JsonSchema for Time {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of seconds, or text with units such as `500ms`, `30s`, `5m`, \
                `1h30m` or `7d`; at most 10 years.",
            "type": ["number", "string"],
            "exclusiveMinimum": 0,
            "pattern": DURATION_PATTERN,
        })
    }
}
