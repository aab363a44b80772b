//! Figures of a mesh: activity by minute, counts by status, outcomes, durations and traffic.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::timestamp::Timestamp;

/// Activity of the latest minutes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeshActivity {
    /// Minutes, the oldest first; the last one is not over.
    pub minutes: Vec<MinuteActivity>,
    /// Errors of these minutes, the most frequent first.
    pub errors: Vec<ErrorCount>,
    /// Whether all executions of these minutes are counted; if not, older ones are still being read.
    pub is_whole: bool,
}

/// Executions of one minute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MinuteActivity {
    /// When the minute began, milliseconds since 1970 UTC.
    pub at: Timestamp,
    /// Executions that started.
    pub started: u64,
    /// Executions that ended, those that failed among them.
    pub ended: u64,
    /// Executions that failed.
    pub failed: u64,
}

/// Executions that failed by one error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorCount {
    /// Operator code.
    pub code: String,
    /// Executions.
    pub count: u64,
    /// Execution that failed last.
    pub latest: String,
}

/// Executions by status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExecutionCounts {
    /// Number of executions of each status in the words of documents; statuses without an execution are left out.
    pub counts: BTreeMap<String, u64>,
    /// Whether all executions are counted; if not, older ones are still being read, or are too many.
    pub is_whole: bool,
}

/// Ends of the executions of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowOutcomes {
    /// Ends by version, in the order of the digests; those of an unknown version first.
    pub versions: Vec<VersionOutcomes>,
    /// Whether all executions are counted; if not, older ones are still being read, or are too many.
    pub is_whole: bool,
}

/// Ends of the executions of one version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VersionOutcomes {
    /// Digest of the version; `None` for executions whose record does not name it, as those of older releases.
    pub version: Option<String>,
    /// Executions that succeeded.
    pub succeeded: u64,
    /// Executions that failed.
    pub failed: u64,
    /// Executions that were cancelled.
    pub cancelled: u64,
}

/// Figures of all workflows by span of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowFigures {
    /// When the first span begins, milliseconds since 1970 UTC.
    pub from: Timestamp,
    /// Milliseconds of a span.
    pub span_ms: u64,
    /// Workflows of which an execution ended in these spans, by name.
    pub workflows: Vec<WorkflowSeries>,
    /// Whether all executions of these spans are counted; if not, older ones are still being read.
    pub is_whole: bool,
}

/// Figures of one workflow, the oldest span first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowSeries {
    /// Name of the workflow.
    pub workflow: String,
    /// Executions that ended in each span.
    pub ended: Vec<u64>,
    /// Executions that failed in each span.
    pub failed: Vec<u64>,
    /// Milliseconds that 95 of 100 executions took at most that ended in each span; `None` if none did.
    pub p95_ms: Vec<Option<u64>>,
    /// The same for all spans together.
    pub p95_of_all_ms: Option<u64>,
}

/// All figures at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficReport {
    /// Seconds over which the rates were taken.
    pub seconds: f64,
    /// Rates by group, by name.
    pub rates: Vec<GroupRate>,
    /// Times by agent, by name; the first is that of all.
    pub latencies: Vec<GroupLatency>,
}

/// Messages a second of a group of subjects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupRate {
    /// The group: `event.TYPE` for events, the name of the stream for all that is stored.
    pub group: String,
    /// Messages a second.
    pub messages: f64,
    /// Bytes a second; of streams that hand on what they take, the mean size of what they hold times the messages.
    pub bytes: f64,
}

/// Times of nodes, from start to result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupLatency {
    /// Agent or workflow that works for the nodes.
    pub group: String,
    /// Nodes that were measured.
    pub count: usize,
    /// Half of the nodes took at most so many milliseconds.
    pub p50_ms: u64,
    /// 95 of 100 nodes took at most so many milliseconds.
    pub p95_ms: u64,
    /// 99 of 100 nodes took at most so many milliseconds.
    pub p99_ms: u64,
    /// Milliseconds that 95 of 100 nodes took at most, by spans of 30 seconds, the oldest of 20 first; `None` if none ended.
    pub p95_by_span_ms: Vec<Option<u64>>,
}
