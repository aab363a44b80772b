//! Attributes of an execution by which it is found: labels, idempotency key, parent, session, user,
//! called agents. They are stored next to the record of a closed execution and in the summary of an
//! open one, so that a search does not read records.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::journal::ExecutionMeta;

/// Maximum size of the attributes in a header, in bytes of JSON.
pub const MAX_ATTRIBUTES_BYTES: usize = 2 << 10;
/// Maximum number of called agents in the attributes.
pub const MAX_CALLED_AGENTS: usize = 16;

/// Attributes of an execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ExecutionAttributes {
    /// Labels of the execution.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Idempotency key of the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Execution that called this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Session (A2A context).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub session: String,
    /// User on whose behalf the execution runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Agents and workflows that were called, at most [`MAX_CALLED_AGENTS`], in order of first call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub called: Vec<String>,
    /// Whether attributes are missing: the record has all of them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
}

impl ExecutionAttributes {
    /// Returns the attributes of an execution that called these agents, in order.
    pub fn of(meta: &ExecutionMeta, called: impl IntoIterator<Item = String>) -> Self {
        let mut attributes = Self {
            labels: meta.labels.clone(),
            idempotency_key: meta.idempotency_key.clone(),
            parent: meta.caller_task().map(|(execution, _)| execution.to_string()),
            session: meta.session.clone(),
            user: meta.user.clone(),
            ..Self::default()
        };
        for agent in called {
            if attributes.called.contains(&agent) {
                continue;
            }
            if attributes.called.len() == MAX_CALLED_AGENTS {
                attributes.incomplete = true;
                break;
            }
            attributes.called.push(agent);
        }
        attributes
    }

    /// Returns the attributes as JSON of at most [`MAX_ATTRIBUTES_BYTES`]; `None` if there are none.
    /// Omits labels, then agents, until the rest fits.
    pub fn to_json(&self) -> Option<String> {
        if *self == Self::default() {
            return None;
        }
        let mut kept = self.clone();
        loop {
            let json = serde_json::to_string(&kept).ok()?;
            if json.len() <= MAX_ATTRIBUTES_BYTES {
                return Some(json);
            }
            kept.incomplete = true;
            if kept.labels.pop_last().is_none() && kept.called.pop().is_none() {
                // Key, session and user are bounded; only together can they exceed the limit.
                (kept.session, kept.user) = (String::new(), String::new());
                kept.idempotency_key.take()?;
            }
        }
    }

    /// Parses the JSON of [`Self::to_json`]. Other text has no attributes.
    pub fn from_json(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_fit_a_header_and_read_back() {
        assert_eq!(ExecutionAttributes::default().to_json(), None);
        let small = ExecutionAttributes {
            idempotency_key: Some("order-17".to_owned()),
            called: vec!["Clerk".to_owned()],
            ..ExecutionAttributes::default()
        };
        let json = small.to_json().unwrap();
        assert_eq!(json, r#"{"idempotency_key":"order-17","called":["Clerk"]}"#);
        assert_eq!(ExecutionAttributes::from_json(&json), small);
        assert_eq!(ExecutionAttributes::from_json("[1]"), ExecutionAttributes::default());

        let labels = (0..32).map(|n| (format!("label-{n:02}"), "v".repeat(250))).collect();
        let json = ExecutionAttributes { labels, ..small.clone() }.to_json().unwrap();
        assert!(json.len() <= MAX_ATTRIBUTES_BYTES);
        let read = ExecutionAttributes::from_json(&json);
        assert!(read.incomplete && read.labels.len() < 32 && !read.labels.is_empty());
        assert_eq!((&read.idempotency_key, &read.called), (&small.idempotency_key, &small.called));

        let huge = ExecutionAttributes { idempotency_key: Some("k".repeat(4_000)), ..small };
        assert!(huge.to_json().unwrap().len() < 100);
    }
}
