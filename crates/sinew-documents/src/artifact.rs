//! Artifacts of executions, and the tasks that received them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sinew_protocol::artifact::ArtifactMeta;

use crate::timestamp::Timestamp;

/// One artifact in a list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactRow {
    /// Name, version, size, digest and type.
    #[serde(flatten)]
    pub meta: ArtifactMeta,
    /// The node whose agent left it; `input` for a file that came with the input.
    pub node: String,
    /// Number of the attempt, from 1; 0 for a file that came with the input.
    pub attempt: u32,
    /// Whether its bytes lie in the record itself.
    pub inline: bool,
}

impl ArtifactRow {
    /// Returns the name of this version as commands and the API accept it.
    pub fn reference(&self) -> String {
        format!("{}/{}:v{}", self.node, self.meta.name, self.meta.version)
    }
}

/// Artifacts of a mesh.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MeshArtifactPage {
    /// Artifacts, those of the latest executions first.
    pub artifacts: Vec<MeshArtifact>,
    /// Cursor of the next page; `None` on the last one.
    pub next: Option<String>,
}

/// An artifact with its execution.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MeshArtifact {
    /// The artifact.
    #[serde(flatten)]
    #[schemars(description = "")]
    pub artifact: ArtifactRow,
    /// Id of the execution.
    #[schemars(description = "")]
    pub execution: String,
    /// Name of its workflow.
    #[schemars(description = "")]
    pub workflow: String,
    /// Start of the execution.
    #[schemars(description = "")]
    pub started: Timestamp,
}

/// Tasks that were given an artifact.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactUses {
    /// The tasks.
    pub uses: Vec<ArtifactUse>,
    /// Executions that were searched.
    pub searched_executions: usize,
}

/// A task that was given an artifact, or an execution that was started with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactUse {
    /// Execution of the task.
    pub execution: String,
    /// Name of its workflow.
    pub workflow: String,
    /// The node, with its place in maps and loops; `None` for the input of the execution itself.
    pub node: Option<String>,
    /// Number of the attempt, from 1; 0 for the input of the execution itself.
    pub attempt: u32,
}
