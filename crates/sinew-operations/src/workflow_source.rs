//! Source files of deployed workflows, with the findings at deployment.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sinew_mesh::workflow::{PlanFile, PlanTexts};

use crate::deployment::find_deployed;
use crate::failure::Failure;
use crate::mesh_operator::MeshOperator;

/// Source of a version of a workflow.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WorkflowSource {
    /// Name of the workflow.
    pub name: String,
    /// Digest of the plan.
    pub version: String,
    /// Dialect of the file.
    pub dialect: String,
    /// The workflow file, then the files that it includes; empty if the mesh was not given them.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    pub files: Vec<PlanFile>,
    /// Findings, as `sinew workflow validate -o json` lists them.
    pub diagnostics: Vec<Value>,
}

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
    Ok(WorkflowSource { name, version, dialect: stored.dialect, files, diagnostics })
}
