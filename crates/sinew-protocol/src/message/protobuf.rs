//! Mesh messages as protobuf, for peers with `Content-Type: application/protobuf`.

use bytes::Bytes;
use prost::Message as _;
use serde_json::{Map, Value};

use super::{
    BadMessage, MapStatus, MeshMessage, Outcome, SwitchCaseInfo, WorkflowExecutionResultData,
    WorkflowExecutionStartData, WorkflowMapProgressData, WorkflowNodeExecutionResultData,
    WorkflowNodeExecutionStartData, WorkflowNodeRequestData, WorkflowNodeResultData,
};
use crate::pb::{self, mesh_message::Message};
use crate::{ArtifactName, ArtifactRef};

impl MeshMessage {
    /// Encodes the message as protobuf (`sinew.v1.MeshMessage`).
    pub fn to_protobuf(&self) -> Vec<u8> {
        pb::MeshMessage::from(self).encode_to_vec()
    }

    /// Decodes protobuf (`sinew.v1.MeshMessage`).
    pub fn from_protobuf(bytes: Bytes) -> Result<Self, BadMessage> {
        pb::MeshMessage::decode(bytes).map_err(|e| BadMessage::Bytes(e.to_string()))?.try_into()
    }
}

impl From<&MeshMessage> for pb::MeshMessage {
    fn from(message: &MeshMessage) -> Self {
        Self {
            message: Some(match message {
                MeshMessage::NodeRequest(data) => Message::NodeRequest(data.into()),
                MeshMessage::NodeResult(data) => Message::NodeResult(data.into()),
                MeshMessage::ExecutionStart(data) => Message::ExecutionStart(data.into()),
                MeshMessage::NodeExecutionStart(data) => Message::NodeExecutionStart(data.into()),
                MeshMessage::NodeExecutionResult(data) => Message::NodeExecutionResult(data.into()),
                MeshMessage::MapProgress(data) => Message::MapProgress(data.into()),
                MeshMessage::ExecutionResult(data) => Message::ExecutionResult(data.into()),
            }),
        }
    }
}

impl TryFrom<pb::MeshMessage> for MeshMessage {
    type Error = BadMessage;

    fn try_from(message: pb::MeshMessage) -> Result<Self, BadMessage> {
        Ok(match message.message.ok_or_else(|| BadMessage::Type(String::new()))? {
            Message::NodeRequest(data) => Self::NodeRequest(data.try_into()?),
            Message::NodeResult(data) => Self::NodeResult(data.try_into()?),
            Message::ExecutionStart(data) => Self::ExecutionStart(data.try_into()?),
            Message::NodeExecutionStart(data) => Self::NodeExecutionStart(data.try_into()?),
            Message::NodeExecutionResult(data) => Self::NodeExecutionResult(data.try_into()?),
            Message::MapProgress(data) => Self::MapProgress(data.try_into()?),
            Message::ExecutionResult(data) => Self::ExecutionResult(data.try_into()?),
        })
    }
}

impl From<&WorkflowNodeRequestData> for pb::WorkflowNodeRequest {
    fn from(data: &WorkflowNodeRequestData) -> Self {
        Self {
            workflow_name: data.workflow_name.clone(),
            node_id: data.node_id.clone(),
            input_schema_json: data.input_schema.as_ref().map(to_bytes),
            output_schema_json: data.output_schema.as_ref().map(to_bytes),
            suggested_output_filename: data.suggested_output_filename.clone(),
            ..Self::default()
        }
    }
}

impl TryFrom<pb::WorkflowNodeRequest> for WorkflowNodeRequestData {
    type Error = BadMessage;

    fn try_from(data: pb::WorkflowNodeRequest) -> Result<Self, BadMessage> {
        Ok(Self {
            workflow_name: data.workflow_name,
            node_id: data.node_id,
            input_schema: from_bytes("input_schema_json", data.input_schema_json)?,
            output_schema: from_bytes("output_schema_json", data.output_schema_json)?,
            suggested_output_filename: data.suggested_output_filename,
        })
    }
}

impl From<&WorkflowNodeResultData> for pb::WorkflowNodeResult {
    fn from(data: &WorkflowNodeResultData) -> Self {
        Self {
            status: pb::Outcome::from(data.status).into(),
            output_artifact_ref: data.output_artifact_ref.as_ref().map(Into::into),
            error_message: data.error_message.clone(),
            validation_errors: data.validation_errors.clone(),
            retry_count: data.retry_count,
            ..Self::default()
        }
    }
}

impl TryFrom<pb::WorkflowNodeResult> for WorkflowNodeResultData {
    type Error = BadMessage;

    fn try_from(data: pb::WorkflowNodeResult) -> Result<Self, BadMessage> {
        Ok(Self {
            status: data.status().try_into()?,
            output_artifact_ref: artifact(data.output_artifact_ref)?,
            error_message: data.error_message,
            validation_errors: data.validation_errors,
            retry_count: data.retry_count,
        })
    }
}

impl From<&WorkflowExecutionStartData> for pb::WorkflowExecutionStart {
    fn from(data: &WorkflowExecutionStartData) -> Self {
        Self {
            workflow_name: data.workflow_name.clone(),
            execution_id: data.execution_id.clone(),
            input_artifact_ref: data.input_artifact_ref.as_ref().map(Into::into),
            workflow_input_json: data.workflow_input.as_ref().map(to_bytes),
        }
    }
}

impl TryFrom<pb::WorkflowExecutionStart> for WorkflowExecutionStartData {
    type Error = BadMessage;

    fn try_from(data: pb::WorkflowExecutionStart) -> Result<Self, BadMessage> {
        Ok(Self {
            workflow_name: data.workflow_name,
            execution_id: data.execution_id,
            input_artifact_ref: artifact(data.input_artifact_ref)?,
            workflow_input: from_bytes("workflow_input_json", data.workflow_input_json)?,
        })
    }
}

impl From<&WorkflowNodeExecutionStartData> for pb::WorkflowNodeExecutionStart {
    fn from(data: &WorkflowNodeExecutionStartData) -> Self {
        let case = |case: &SwitchCaseInfo| pb::SwitchCase {
            condition: case.condition.clone(),
            node: case.node.clone(),
        };
        Self {
            node_id: data.node_id.clone(),
            node_type: data.node_type.clone(),
            agent_name: data.agent_name.clone(),
            input_artifact_ref: data.input_artifact_ref.as_ref().map(Into::into),
            iteration_index: data.iteration_index,
            sub_task_id: data.sub_task_id.clone(),
            parent_node_id: data.parent_node_id.clone(),
            condition: data.condition.clone(),
            true_branch: data.true_branch.clone(),
            false_branch: data.false_branch.clone(),
            true_branch_label: data.true_branch_label.clone(),
            false_branch_label: data.false_branch_label.clone(),
            cases: data.cases.iter().flatten().map(case).collect(),
            default_branch: data.default_branch.clone(),
            wait_for: data.wait_for.clone().unwrap_or_default(),
            join_strategy: data.join_strategy.clone(),
            join_n: data.join_n,
            max_iterations: data.max_iterations,
            loop_delay: data.loop_delay.clone(),
            parallel_group_id: data.parallel_group_id.clone(),
        }
    }
}

impl TryFrom<pb::WorkflowNodeExecutionStart> for WorkflowNodeExecutionStartData {
    type Error = BadMessage;

    fn try_from(data: pb::WorkflowNodeExecutionStart) -> Result<Self, BadMessage> {
        let case = |case: pb::SwitchCase| SwitchCaseInfo { condition: case.condition, node: case.node };
        Ok(Self {
            node_id: data.node_id,
            node_type: data.node_type,
            agent_name: data.agent_name,
            input_artifact_ref: artifact(data.input_artifact_ref)?,
            iteration_index: data.iteration_index,
            sub_task_id: data.sub_task_id,
            parent_node_id: data.parent_node_id,
            condition: data.condition,
            true_branch: data.true_branch,
            false_branch: data.false_branch,
            true_branch_label: data.true_branch_label,
            false_branch_label: data.false_branch_label,
            cases: some(data.cases).map(|cases| cases.into_iter().map(case).collect()),
            default_branch: data.default_branch,
            wait_for: some(data.wait_for),
            join_strategy: data.join_strategy,
            join_n: data.join_n,
            max_iterations: data.max_iterations,
            loop_delay: data.loop_delay,
            parallel_group_id: data.parallel_group_id,
        })
    }
}

impl From<&WorkflowNodeExecutionResultData> for pb::WorkflowNodeExecutionResult {
    fn from(data: &WorkflowNodeExecutionResultData) -> Self {
        let metadata = (!data.metadata.is_empty()).then(|| to_bytes(&Value::Object(data.metadata.clone())));
        Self {
            node_id: data.node_id.clone(),
            status: pb::Outcome::from(data.status).into(),
            output_artifact_ref: data.output_artifact_ref.as_ref().map(Into::into),
            error_message: data.error_message.clone(),
            condition_result: data.condition_result,
            selected_branch: data.selected_branch.clone(),
            metadata_json: metadata,
        }
    }
}

impl TryFrom<pb::WorkflowNodeExecutionResult> for WorkflowNodeExecutionResultData {
    type Error = BadMessage;

    fn try_from(data: pb::WorkflowNodeExecutionResult) -> Result<Self, BadMessage> {
        let metadata = match from_bytes("metadata_json", data.metadata_json.clone())? {
            None => Map::new(),
            Some(Value::Object(metadata)) => metadata,
            Some(_) => return Err(bad("metadata_json", "not an object")),
        };
        Ok(Self {
            status: data.status().try_into()?,
            node_id: data.node_id,
            output_artifact_ref: artifact(data.output_artifact_ref)?,
            error_message: data.error_message,
            condition_result: data.condition_result,
            selected_branch: data.selected_branch,
            metadata,
        })
    }
}

impl From<&WorkflowMapProgressData> for pb::WorkflowMapProgress {
    fn from(data: &WorkflowMapProgressData) -> Self {
        use pb::workflow_map_progress::Status;
        let status = match data.status {
            MapStatus::InProgress => Status::InProgress,
            MapStatus::Completed => Status::Completed,
            MapStatus::Failed => Status::Failed,
        };
        Self {
            node_id: data.node_id.clone(),
            total_items: data.total_items,
            completed_items: data.completed_items,
            status: status.into(),
        }
    }
}

impl TryFrom<pb::WorkflowMapProgress> for WorkflowMapProgressData {
    type Error = BadMessage;

    fn try_from(data: pb::WorkflowMapProgress) -> Result<Self, BadMessage> {
        use pb::workflow_map_progress::Status;
        let status = match data.status() {
            Status::InProgress => MapStatus::InProgress,
            Status::Completed => MapStatus::Completed,
            Status::Failed => MapStatus::Failed,
            Status::Unspecified => return Err(bad("status", "not set")),
        };
        Ok(Self {
            node_id: data.node_id,
            total_items: data.total_items,
            completed_items: data.completed_items,
            status,
        })
    }
}

impl From<&WorkflowExecutionResultData> for pb::WorkflowExecutionResult {
    fn from(data: &WorkflowExecutionResultData) -> Self {
        Self {
            workflow_name: data.workflow_name.clone(),
            execution_id: data.execution_id.clone(),
            status: pb::Outcome::from(data.status).into(),
            output_artifact_ref: data.output_artifact_ref.as_ref().map(Into::into),
            error_message: data.error_message.clone(),
            workflow_output_json: data.workflow_output.as_ref().map(to_bytes),
        }
    }
}

impl TryFrom<pb::WorkflowExecutionResult> for WorkflowExecutionResultData {
    type Error = BadMessage;

    fn try_from(data: pb::WorkflowExecutionResult) -> Result<Self, BadMessage> {
        Ok(Self {
            status: data.status().try_into()?,
            workflow_name: data.workflow_name,
            execution_id: data.execution_id,
            output_artifact_ref: artifact(data.output_artifact_ref)?,
            error_message: data.error_message,
            workflow_output: from_bytes("workflow_output_json", data.workflow_output_json)?,
        })
    }
}

impl From<Outcome> for pb::Outcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Success => Self::Success,
            Outcome::Error => Self::Error,
            Outcome::Skipped => Self::Skipped,
            Outcome::Cancelled => Self::Cancelled,
        }
    }
}

impl TryFrom<pb::Outcome> for Outcome {
    type Error = BadMessage;

    fn try_from(outcome: pb::Outcome) -> Result<Self, BadMessage> {
        Ok(match outcome {
            pb::Outcome::Success => Self::Success,
            pb::Outcome::Error => Self::Error,
            pb::Outcome::Skipped => Self::Skipped,
            pb::Outcome::Cancelled => Self::Cancelled,
            pb::Outcome::Unspecified => return Err(bad("status", "not set")),
        })
    }
}

impl From<&ArtifactRef> for pb::ArtifactRef {
    fn from(artifact: &ArtifactRef) -> Self {
        Self { name: artifact.name.to_string(), version: artifact.version }
    }
}

impl TryFrom<pb::ArtifactRef> for ArtifactRef {
    type Error = BadMessage;

    fn try_from(artifact: pb::ArtifactRef) -> Result<Self, BadMessage> {
        let name = ArtifactName::parse(&artifact.name).map_err(|e| bad("artifact", &e.to_string()))?;
        Ok(Self { name, version: artifact.version })
    }
}

fn artifact(found: Option<pb::ArtifactRef>) -> Result<Option<ArtifactRef>, BadMessage> {
    found.map(TryInto::try_into).transpose()
}

/// Converts an empty list to `None`, because protobuf cannot distinguish them; the JSON form omits
/// `None`.
fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

fn to_bytes(value: &Value) -> Bytes {
    value.to_string().into()
}

fn from_bytes(field: &str, bytes: Option<Bytes>) -> Result<Option<Value>, BadMessage> {
    let read = |bytes: Bytes| serde_json::from_slice(&bytes).map_err(|e| bad(field, &e.to_string()));
    bytes.map(read).transpose()
}

fn bad(field: &str, reason: &str) -> BadMessage {
    BadMessage::Field { kind: "protobuf".to_owned(), reason: format!("{field}: {reason}") }
}
