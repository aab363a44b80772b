//! Times in documents.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::words;

/// A time in milliseconds since 1970 UTC; RFC 3339 with milliseconds in documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Returns the milliseconds since 1970 UTC.
    pub const fn ms(self) -> u64 {
        self.0
    }

    /// Parses a time of a document: RFC 3339, or milliseconds for times that RFC 3339 cannot express.
    pub fn parse(text: &str) -> Option<Self> {
        let read = text.parse::<jiff::Timestamp>().ok();
        let ms = read.map_or_else(|| text.parse().ok(), |at| u64::try_from(at.as_millisecond()).ok());
        ms.map(Self)
    }
}

impl From<u64> for Timestamp {
    fn from(ms: u64) -> Self {
        Self(ms)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&words::instant(self.0))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom(format!("'{text}' is not a time in RFC 3339")))
    }
}

impl JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        String::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_were_written() {
        for ms in [0, 1_500, 1_767_225_600_123, u64::MAX] {
            let text = serde_json::to_string(&Timestamp(ms)).unwrap();
            assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), Timestamp(ms), "{text}");
        }
        assert_eq!(Timestamp(1_500).to_string(), "1970-01-01T00:00:01.500Z");
        for wrong in ["\"yesterday\"", "\"1969-12-31T23:59:59Z\"", "5", "null"] {
            assert!(serde_json::from_str::<Timestamp>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn schemas_of_times_are_those_of_strings() {
        let of = |schema: Schema| schema.to_value();
        assert_eq!(
            of(schemars::schema_for!(Option<Timestamp>))["type"],
            serde_json::json!(["string", "null"])
        );
    }
}
