//! Agents of a mesh, and their work.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sinew_protocol::Fault;
use sinew_protocol::usage::TaskUsage;

/// Work of one agent or workflow for an execution.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentWork {
    /// Name of the agent or workflow.
    pub agent: String,
    /// Whether a workflow was called.
    pub is_workflow: bool,
    /// Nodes that it worked on, in order of their first task; at most 50.
    pub nodes: Vec<String>,
    /// Number of tasks, including those of repeated attempts.
    pub tasks: usize,
    /// Tasks without a result.
    pub open: usize,
    /// Tasks that ended with a fault.
    pub failed: usize,
    /// Total milliseconds of work; open tasks count to the time of the view. If an agent does not
    /// report its work time, the time from task to result.
    pub working_ms: u64,
    /// The longest of these times.
    pub longest_ms: u64,
    /// Total milliseconds that tasks were queued, if the agent reports its work time.
    pub queued_ms: u64,
    /// The longest of these times.
    pub longest_queued_ms: u64,
    /// Tokens and price, as reported by the agent.
    #[serde(flatten)]
    pub used: TaskUsage,
    /// The latest fault; `None` if no task failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Fault>,
}
