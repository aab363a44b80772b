//! Inputs that are too large for a start command: stored as artifacts that the command references.

use sinew_mesh::MeshError;
use sinew_mesh::artifact::{ArtifactOwner, ArtifactStore};
use sinew_protocol::a2a::PartContent;
use sinew_protocol::artifact::sha256;
use sinew_protocol::command::StartCommand;
use sinew_protocol::{ActivationKey, ArtifactName, ExecutionId, TaskId, Token};

/// Returns the task id of an execution. Callers can derive it before the call, as for any agent.
pub(crate) fn workflow_task_id(execution: &ExecutionId, workflow: &str) -> TaskId {
    let agent = Token::of(workflow);
    TaskId::of(execution, &ActivationKey::of::<&str>(execution, agent.as_str(), &[], 0), 1)
}

/// Stores the input of a start, which the command then references. The address is derived from the
/// start and the input, so a repeated start is the same command.
pub(crate) async fn store_input(
    artifacts: &ArtifactStore,
    command: &mut StartCommand,
) -> Result<(), MeshError> {
    let bytes = serde_json::to_vec(&command.input).unwrap_or_default();
    let name = ArtifactName::parse(&format!("input_{}.json", &sha256(&bytes)[..12]))
        .map_err(|bad| MeshError::Refused { what: "name an input artifact", reason: bad.to_string() })?;
    let task = workflow_task_id(&command.execution, &command.workflow);
    let place = ArtifactOwner {
        app: &command.workflow,
        user: &command.user,
        execution: &command.execution,
        task: &task,
    };
    let stored = artifacts.put_object(&place, name, 0, "application/json", bytes.into()).await?;
    if let PartContent::Url(address) = stored.part.content {
        command.input_artifact = Some(address);
        command.input = serde_json::Value::Null;
    }
    Ok(())
}
