//! Source files of deployed workflows, with the findings at deployment.

use sinew_documents::workflow::{SourceFile, WorkflowSource};
use sinew_mesh::workflow::{PlanFile, PlanTexts};

use crate::deployment::find_deployed;
use crate::failure::Failure;
use crate::mesh_operator::MeshOperator;

/// Reads the source of a deployed workflow: of the newest version, or the one with the prefix
/// `version`.
///
/// # Errors
/// Fails if no such workflow is deployed, or if the mesh does not respond.
pub async fn read_source(
    operator: &MeshOperator,
    name: &str,
    version: Option<&str>,
) -> Result<WorkflowSource, Failure> {
    let (name, version) = find_deployed(operator, name, version).await?;
    let stored = operator.mesh().workflows().get_plan(&version).await?;
    let PlanTexts { files, diagnostics } = stored.texts.unwrap_or_default();
    let files = files.into_iter().map(|PlanFile { name, text }| SourceFile { name, text }).collect();
    let diagnostics = diagnostics.into_iter().filter_map(|finding| serde_json::from_value(finding).ok());
    Ok(WorkflowSource { name, version, dialect: stored.dialect, files, diagnostics: diagnostics.collect() })
}
