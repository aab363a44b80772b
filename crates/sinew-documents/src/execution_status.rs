//! Statuses of executions in documents: `succeeded` and `failed` instead of the `success` and
//! `failure` of mesh messages.

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};

use crate::words::status_word;

pub use sinew_protocol::query::ExecutionStatus;

/// Parses a status of a document.
pub fn parse(word: &str) -> Option<ExecutionStatus> {
    ExecutionStatus::ALL.into_iter().find(|status| status_word(*status) == word)
}

/// Serializes a status for `#[serde(with)]`.
pub fn serialize<S: Serializer>(status: &ExecutionStatus, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(status_word(*status))
}

/// Deserializes a status for `#[serde(with)]`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ExecutionStatus, D::Error> {
    let word = String::deserialize(deserializer)?;
    parse(&word).ok_or_else(|| D::Error::custom(format!("'{word}' is not a status of an execution")))
}
