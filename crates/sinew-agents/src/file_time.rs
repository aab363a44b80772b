//! Durations in agent files.

use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// A length of time: seconds as a number, or text with a unit such as `500ms`, `30s`, `5m`, `1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(
    /// The length.
    pub Duration,
);

impl Time {
    const PATTERN: &str = r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$";

    fn parse(text: &str) -> Option<Self> {
        let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, unit) = text.split_at(unit);
        let seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        Self::seconds(number.parse::<f64>().ok()? * seconds)
    }

    /// Returns a positive duration of less than 10 years, so that deadlines cannot overflow.
    fn seconds(seconds: f64) -> Option<Self> {
        Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|time| !time.is_zero() && seconds < 315_360_000.0)
            .map(Self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let time = match &value {
            Value::Number(number) => number.as_f64().and_then(Self::seconds),
            Value::String(text) => Self::parse(text),
            _ => None,
        };
        time.ok_or_else(|| de::Error::custom("expected a duration such as 30s, at most 10 years"))
    }
}

impl JsonSchema for Time {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A length of time: seconds as a number, or text with a unit such as 500ms, 30s, 5m, 1h.",
            "type": ["number", "string"],
            "exclusiveMinimum": 0,
            "pattern": Self::PATTERN,
        })
    }
}
