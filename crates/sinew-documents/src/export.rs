//! Views of an exported execution.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::EventLine;
use crate::execution::ExecutionDescription;
use crate::node::{NodeDescription, TreeBranch};
use crate::timeline::Timeline;

/// Views of an exported execution.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExportViews {
    /// Status, causes and next steps.
    pub description: ExecutionDescription,
    /// Tree of nodes with up to three levels.
    pub tree: Option<Vec<TreeBranch>>,
    /// First activations with input and output.
    pub nodes: Vec<NodeDescription>,
    /// Timeline of the execution.
    pub timeline: Timeline,
    /// Latest events.
    pub events: Vec<EventLine>,
    /// Number of omitted earlier events.
    pub skipped_events: usize,
    /// Drawing as SVG. `null` if it is too large.
    pub drawing: Option<String>,
}
