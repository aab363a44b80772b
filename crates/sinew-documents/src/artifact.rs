//! Artifacts of executions, and the tasks that received them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sinew_protocol::artifact::ArtifactMeta;

use crate::timestamp::Timestamp;

/// Artifact of an execution.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactRow {
    /// Name, version, size, digest and type.
    #[serde(flatten)]
    pub meta: ArtifactMeta,
    /// Node whose agent created the artifact, or `input` for a file of the input.
    pub node: String,
    /// Number of the attempt, starting at 1. 0 for a file of the input.
    pub attempt: u32,
    /// Whether the content is stored in the record.
    pub inline: bool,
}

impl ArtifactRow {
    /// Returns the name of this version as commands and the API accept it.
    pub fn reference(&self) -> String {
        format!("{}/{}:v{}", self.node, self.meta.name, self.meta.version)
    }
}

/// Page of artifacts.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MeshArtifactPage {
    /// Artifacts, newest executions first.
    pub artifacts: Vec<MeshArtifact>,
    /// Cursor of the next page. `null` on the last page.
    pub next: Option<String>,
}

/// Artifact with its execution.
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

/// Uses of an artifact.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactUses {
    /// Tasks that received the artifact.
    pub uses: Vec<ArtifactUse>,
    /// Number of searched executions.
    pub searched_executions: usize,
}

/// Task that received an artifact, or execution that was started with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactUse {
    /// Id of the execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Node with its index in maps and loops. `null` if the artifact is part of the execution's
    /// input.
    pub node: Option<String>,
    /// Number of the attempt, starting at 1. 0 if the artifact is part of the execution's input.
    pub attempt: u32,
}
