//! Documents of the API about the whole mesh and about files, as far as pages show them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::documents::{ArtifactDocument, EventDocument, ExecutionDocument, NodeDocument, TreeDocument};

/// Artifacts of many executions.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct MeshArtifactListDocument {
    pub(crate) artifacts: Vec<MeshArtifactDocument>,
    pub(crate) next: Option<String>,
}

/// An artifact with its execution.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct MeshArtifactDocument {
    #[serde(flatten)]
    pub(crate) artifact: ArtifactDocument,
    pub(crate) execution: String,
    pub(crate) workflow: String,
    #[serde(default)]
    pub(crate) started: String,
}

/// Views of an exported execution.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct InspectionDocument {
    pub(crate) description: ExecutionDocument,
    #[serde(default)]
    pub(crate) tree: Vec<TreeDocument>,
    #[serde(default)]
    pub(crate) nodes: Vec<NodeDocument>,
    #[serde(default)]
    pub(crate) events: Vec<EventDocument>,
    #[serde(default)]
    pub(crate) skipped_events: usize,
    pub(crate) drawing: Option<String>,
}

/// A conversion function that was tried.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ConversionDocument {
    #[serde(default)]
    pub(crate) outcome: String,
    #[serde(default)]
    pub(crate) value: Value,
    pub(crate) error: Option<ConversionErrorDocument>,
}

/// Why a conversion function gave no result.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ConversionErrorDocument {
    #[serde(default)]
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) message: String,
    pub(crate) place: ConversionPlaceDocument,
}

/// Place in a file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ConversionPlaceDocument {
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
}

/// State of the mesh.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PulseDocument {
    pub(crate) namespace: String,
    pub(crate) shards: u32,
    pub(crate) owned: u32,
    #[serde(default)]
    pub(crate) executors: Vec<ExecutorDocument>,
    #[serde(default)]
    pub(crate) executions: BTreeMap<String, u64>,
    #[serde(default)]
    pub(crate) streams: Vec<StreamDocument>,
    #[serde(default)]
    pub(crate) agents: Vec<AgentLoadDocument>,
    #[serde(default)]
    pub(crate) refused_cards: u64,
    #[serde(default)]
    pub(crate) quarantined: u64,
    #[serde(default)]
    pub(crate) waiting: Vec<WaitingExecutionDocument>,
}

/// Work of an agent.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AgentLoadDocument {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) online: bool,
    #[serde(default)]
    pub(crate) queued: u64,
    #[serde(default)]
    pub(crate) working: u64,
    #[serde(default)]
    pub(crate) redelivered: u64,
}

/// An open execution that has waited for long.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WaitingExecutionDocument {
    pub(crate) execution: String,
    pub(crate) workflow: String,
    #[serde(default)]
    pub(crate) age_ms: u64,
    pub(crate) waiting: Option<String>,
}

/// An executor.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ExecutorDocument {
    #[serde(default)]
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) place: String,
    #[serde(default)]
    pub(crate) shards: u32,
}

/// A stream of the mesh.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct StreamDocument {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) messages: u64,
    #[serde(default)]
    pub(crate) bytes: u64,
}
