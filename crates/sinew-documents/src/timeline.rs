//! The timeline of an execution: spans of its activations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::node_status::NodeStatus;
use crate::timestamp::Timestamp;

/// How an activation spends time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpanKind {
    /// Queued in the execution: by concurrency limits, or until a person answers an earlier question.
    Queued,
    /// In the queue of an agent, if the agent reports its work time.
    AgentQueue,
    /// With an agent or a script: from task to result, excluding the reported queue time.
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

/// A span of one kind of time; milliseconds since the start of the execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineSpan {
    /// Kind of time.
    pub kind: SpanKind,
    /// Attempt of the activation; 0 before the first.
    pub attempt: u32,
    /// Start.
    pub from: u64,
    /// End, or the time of the view.
    pub to: u64,
}

/// An activation with its spans.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineRow {
    /// The node, with its index in maps and loops.
    pub node: String,
    /// Status.
    pub status: NodeStatus,
    /// Whether it is on the critical path: each activation of it started when the previous one ended.
    pub critical: bool,
    /// Milliseconds from the start of the execution to the start of the activation.
    pub at: u64,
    /// Spans in order, without overlap.
    pub spans: Vec<TimelineSpan>,
    /// Whether the workflow marks the node as quiet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quiet: bool,
}

impl TimelineRow {
    /// Returns true if it can be collapsed: quiet, and not failed, waiting or running.
    pub const fn may_fold(&self) -> bool {
        self.quiet && self.status.is_calm()
    }
}

/// Times of the activations of an execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// Start of the execution.
    pub started: Timestamp,
    /// Milliseconds from the start to the end, or to the time of the view.
    pub duration_ms: u64,
    /// Activations in order of creation.
    pub rows: Vec<TimelineRow>,
    /// Number of further activations in the window.
    pub more: usize,
}
