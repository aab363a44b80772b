//! API documents about the mesh and about files; only the members that pages show.

use serde::Deserialize;
use sinew_documents::event::EventLine;
use sinew_documents::execution::ExecutionDescription;
use sinew_documents::node::{NodeDescription, TreeBranch};
use sinew_documents::timeline::Timeline;

/// Views of an exported execution.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct InspectionDocument {
    pub(crate) description: ExecutionDescription,
    #[serde(default)]
    pub(crate) tree: Vec<TreeBranch>,
    #[serde(default)]
    pub(crate) nodes: Vec<NodeDescription>,
    #[serde(default)]
    pub(crate) events: Vec<EventLine>,
    #[serde(default)]
    pub(crate) skipped_events: usize,
    pub(crate) timeline: Option<Timeline>,
    pub(crate) drawing: Option<String>,
}
