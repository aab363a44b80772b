//! Views of an exported execution.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::EventLine;
use crate::execution::ExecutionDescription;
use crate::node::{NodeDescription, TreeBranch};
use crate::timeline::Timeline;

/// Everything that people look at in an export.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExportViews {
    /// Status, with causes and next steps.
    pub description: ExecutionDescription,
    /// Nodes, three levels deep.
    pub tree: Option<Vec<TreeBranch>>,
    /// The first activations with input and output.
    pub nodes: Vec<NodeDescription>,
    /// Times of activations.
    pub timeline: Timeline,
    /// The latest events.
    pub events: Vec<EventLine>,
    /// Number of earlier events.
    pub skipped_events: usize,
    /// Drawing as SVG; `None` for one that is too large.
    pub drawing: Option<String>,
}
