//! The differences between the two vocabularies.
//!
//! Reading: the wire structs accept both forms of a message. Writing: serde writes the current
//! vocabulary, and [`to_spec`] converts it to that of the specification.

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::{Outcome, WorkflowNodeExecutionResultData, WorkflowNodeResultData};
use crate::{ArtifactName, ArtifactRef};

/// Node result with the output in either form.
#[derive(Deserialize)]
pub(super) struct NodeResultWire {
    status: Outcome,
    output_artifact_ref: Option<ArtifactRef>,
    artifact_name: Option<ArtifactName>,
    artifact_version: Option<u32>,
    error_message: Option<String>,
    validation_errors: Option<Vec<String>>,
    retry_count: Option<u32>,
}

impl From<NodeResultWire> for WorkflowNodeResultData {
    fn from(wire: NodeResultWire) -> Self {
        let named = wire.artifact_name.map(|name| ArtifactRef { name, version: wire.artifact_version });
        Self {
            status: wire.status,
            output_artifact_ref: wire.output_artifact_ref.or(named),
            error_message: wire.error_message,
            validation_errors: wire.validation_errors.unwrap_or_default(),
            retry_count: wire.retry_count.unwrap_or_default(),
        }
    }
}

/// Node execution result with the branch either inside `metadata` or next to it.
#[derive(Deserialize)]
pub(super) struct NodeExecutionResultWire {
    node_id: String,
    status: Outcome,
    output_artifact_ref: Option<ArtifactRef>,
    error_message: Option<String>,
    condition_result: Option<bool>,
    selected_branch: Option<String>,
    metadata: Option<Map<String, Value>>,
}

impl From<NodeExecutionResultWire> for WorkflowNodeExecutionResultData {
    fn from(wire: NodeExecutionResultWire) -> Self {
        let mut metadata = wire.metadata.unwrap_or_default();
        let condition_result = wire.condition_result.or_else(|| {
            let inside = metadata.get("condition_result")?.as_bool()?;
            metadata.shift_remove("condition_result");
            Some(inside)
        });
        let selected_branch = wire.selected_branch.or_else(|| {
            let inside = metadata.get("selected_branch")?.as_str()?.to_owned();
            metadata.shift_remove("selected_branch");
            Some(inside)
        });
        Self {
            node_id: wire.node_id,
            status: wire.status,
            output_artifact_ref: wire.output_artifact_ref,
            error_message: wire.error_message,
            condition_result,
            selected_branch,
            metadata,
        }
    }
}

/// The branch is written inside `metadata`.
impl Serialize for WorkflowNodeExecutionResultData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut message = serializer.serialize_map(None)?;
        message.serialize_entry("node_id", &self.node_id)?;
        message.serialize_entry("status", &self.status)?;
        if let Some(reference) = &self.output_artifact_ref {
            message.serialize_entry("output_artifact_ref", reference)?;
        }
        if let Some(text) = &self.error_message {
            message.serialize_entry("error_message", text)?;
        }
        if self.condition_result.is_none() && self.selected_branch.is_none() {
            if !self.metadata.is_empty() {
                message.serialize_entry("metadata", &self.metadata)?;
            }
            return message.end();
        }
        let mut metadata = self.metadata.clone();
        if let Some(result) = self.condition_result {
            metadata.insert("condition_result".to_owned(), result.into());
        }
        if let Some(branch) = &self.selected_branch {
            metadata.insert("selected_branch".to_owned(), branch.as_str().into());
        }
        message.serialize_entry("metadata", &metadata)?;
        message.end()
    }
}

/// Converts a message of the current vocabulary to that of the specification.
pub(super) fn to_spec(current: Value) -> Value {
    let Value::Object(mut message) = current else { return current };
    let kind = message.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    match kind.as_str() {
        "structured_invocation_request" => set(&mut message, "type", "workflow_node_request"),
        "structured_invocation_result" => {
            set(&mut message, "type", "workflow_node_result");
            if let Some(Value::Object(mut artifact)) = message.shift_remove("output_artifact_ref") {
                for (theirs, ours) in [("name", "artifact_name"), ("version", "artifact_version")] {
                    if let Some(value) = artifact.shift_remove(theirs) {
                        message.insert(ours.to_owned(), value);
                    }
                }
            }
        }
        "workflow_node_execution_result" => {
            for field in ["condition_result", "selected_branch"] {
                let metadata = message.get_mut("metadata").and_then(Value::as_object_mut);
                if let Some(value) = metadata.and_then(|metadata| metadata.shift_remove(field)) {
                    message.insert(field.to_owned(), value);
                }
            }
            if message.get("metadata") == Some(&json!({})) {
                message.shift_remove("metadata");
            }
        }
        _ => {}
    }
    // The specification has separate values for a map's status; everywhere else it has a single
    // value for a failure.
    match message.get("status").and_then(Value::as_str) {
        Some("error") => set(&mut message, "status", "failure"),
        Some("cancelled") => {
            set(&mut message, "status", "failure");
            message.entry("error_message").or_insert_with(|| "cancelled".into());
        }
        _ => {}
    }
    Value::Object(message)
}

fn set(message: &mut Map<String, Value>, field: &str, word: &str) {
    message.insert(field.to_owned(), word.into());
}
