//! Uses of an artifact: tasks whose input contains its address or digest.

use serde_json::Value;
use sinew_documents::artifact::ArtifactUse;
use sinew_engine::Fact;
use sinew_execution::events;
use sinew_inspection::record::Record;
use sinew_protocol::task::Content;

use crate::execution_artifacts::LeftArtifact;

/// Maximum depth to which an input is searched.
const MAX_DEPTH: usize = 32;

/// Texts that identify an artifact in inputs.
#[derive(Clone, Debug)]
pub struct ArtifactMarks {
    sha256: String,
    url: Option<String>,
}

impl ArtifactMarks {
    /// Returns the marks of an artifact.
    pub fn of(left: &LeftArtifact) -> Self {
        let url = match &left.artifact.content {
            Content::Url(url) => Some(url.clone()),
            _ => None,
        };
        Self { sha256: left.artifact.meta.sha256.clone(), url }
    }

    fn is_in(&self, value: &Value, depth: usize) -> bool {
        match value {
            Value::String(text) => {
                *text == self.sha256 || self.url.as_ref().is_some_and(|url| text.contains(url.as_str()))
            }
            Value::Array(items) if depth > 0 => items.iter().any(|item| self.is_in(item, depth - 1)),
            Value::Object(members) if depth > 0 => members.values().any(|item| self.is_in(item, depth - 1)),
            _ => false,
        }
    }
}

/// Returns the tasks of an execution that received an artifact, in order.
pub fn uses_in(record: &Record, marks: &ArtifactMarks) -> Vec<ArtifactUse> {
    let ctx = record.execution.ctx();
    let found = |node: Option<String>, attempt: u32| ArtifactUse {
        execution: record.id().to_owned(),
        workflow: record.plan().name.clone(),
        node,
        attempt,
    };
    let started = marks.is_in(ctx.input(), MAX_DEPTH).then(|| found(None, 0));
    let facts = record.execution.journal().iter().flat_map(|round| &round.facts);
    let given = facts.filter_map(|fact| match fact {
        Fact::Dispatched { act, attempt, ask, .. } if marks.is_in(&ask.input, MAX_DEPTH) => {
            Some(found(Some(events::label(&ctx, *act)), *attempt))
        }
        _ => None,
    });
    started.into_iter().chain(given).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn artifacts_are_known_by_digest_and_address() {
        let marks = ArtifactMarks { sha256: "abc".to_owned(), url: Some("sinew:one".to_owned()) };
        let check = |value: Value, expected: bool| assert_eq!(marks.is_in(&value, 4), expected, "{value}");
        check(json!({"files": [{"sha256": "abc"}]}), true);
        check(json!({"text": "read sinew:one first"}), true);
        check(json!({"sha256": "abcd", "abc": 1}), false);
        check(json!([[[[["abc"]]]]]), false);
    }
}
