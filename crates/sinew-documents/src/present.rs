//! Members whose null is a value, unlike their absence.

use serde::{Deserialize, Deserializer};

/// Deserializes a member that is present; combine it with `#[serde(default)]`.
pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
