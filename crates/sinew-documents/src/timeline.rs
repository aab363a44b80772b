//! The timeline of an execution: spans of its activations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::node_status::NodeStatus;
use crate::timestamp::Timestamp;

/// What an activation spends time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpanKind {
    /// Queued in the execution because of concurrency limits or an earlier open question.
    Queued,
    /// In the queue of an agent, if the agent reports its work time.
    AgentQueue,
    /// Processed by an agent or script: from task to result, excluding the reported queue time.
    Agent,
    /// Waiting for the next attempt.
    BackOff,
    /// Waiting for a timer.
    Timer,
    /// Waiting for a person.
    Person,
    /// Waiting for children.
    Children,
}

/// Span of a timeline, in milliseconds since the start of the execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineSpan {
    /// What the activation spent the time on.
    pub kind: SpanKind,
    /// Number of the attempt. 0 before the first attempt.
    pub attempt: u32,
    /// Start of the span.
    pub from: u64,
    /// End of the span, or the current time while it is open.
    pub to: u64,
}

/// Activation with its spans.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineRow {
    /// Node with its index in maps and loops.
    pub node: String,
    /// Status of the node.
    pub status: NodeStatus,
    /// Whether the activation is on the critical path. Each activation on it started when the
    /// previous one ended.
    pub critical: bool,
    /// Milliseconds from the start of the execution to the start of the activation.
    pub at: u64,
    /// Spans in order, without overlap.
    pub spans: Vec<TimelineSpan>,
    /// Whether the workflow marks the node as quiet. Absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quiet: bool,
}

impl TimelineRow {
    /// Returns true if it can be collapsed: quiet, and not failed, waiting or running.
    pub const fn may_fold(&self) -> bool {
        self.quiet && self.status.is_calm()
    }
}

/// Timeline of an execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// When the execution started (RFC 3339).
    pub started: Timestamp,
    /// Milliseconds from start to end, or to the current time while the execution is open.
    pub duration_ms: u64,
    /// Activations in order of creation.
    pub rows: Vec<TimelineRow>,
    /// Number of further activations in the requested range.
    pub more: usize,
}
