//! Kinds of agents in documents: `agent` or `workflow`.

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};
use sinew_protocol::card::AgentKind;

/// Serializes a kind for `#[serde(with)]`.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
pub(crate) fn serialize<S: Serializer>(kind: &AgentKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.word())
}

/// Deserializes a kind for `#[serde(with)]`.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<AgentKind, D::Error> {
    let word = String::deserialize(deserializer)?;
    [AgentKind::Agent, AgentKind::Workflow]
        .into_iter()
        .find(|kind| kind.word() == word)
        .ok_or_else(|| D::Error::custom(format!("'{word}' is not a kind of an agent")))
}
