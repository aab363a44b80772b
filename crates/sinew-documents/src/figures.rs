//! Figures of a mesh: activity by minute, counts by status, outcomes, durations and traffic.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::timestamp::Timestamp;

/// Executions and errors by minute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeshActivity {
    /// Minutes, oldest first. The last one is in progress.
    pub minutes: Vec<MinuteActivity>,
    /// Errors in these minutes, most frequent first.
    pub errors: Vec<ErrorCount>,
    /// Whether all executions in these minutes are counted. False while older executions are still
    /// being read.
    pub is_whole: bool,
}

/// Number of executions in one minute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MinuteActivity {
    /// Start of the minute (RFC 3339).
    pub at: Timestamp,
    /// Number of executions that started.
    pub started: u64,
    /// Number of executions that ended, including failed ones.
    pub ended: u64,
    /// Number of executions that failed.
    pub failed: u64,
}

/// Number of executions that failed with an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorCount {
    /// Operator code.
    pub code: String,
    /// Number of executions that failed with this error.
    pub count: u64,
    /// Id of the latest execution that failed with this error.
    pub latest: String,
}

/// Executions by status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExecutionCounts {
    /// Number of executions by status. Statuses without executions are omitted.
    pub counts: BTreeMap<String, u64>,
    /// Whether all executions are counted. False while older executions are still being read, or if
    /// there are too many.
    pub is_whole: bool,
}

/// Outcomes of a workflow's executions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowOutcomes {
    /// Outcomes by version, sorted by digest. Executions of unknown versions come first.
    pub versions: Vec<VersionOutcomes>,
    /// Whether all executions are counted. False while older executions are still being read, or if
    /// there are too many.
    pub is_whole: bool,
}

/// Outcomes of the executions of one version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VersionOutcomes {
    /// Digest of the version. `null` for executions whose record does not contain it, such as those
    /// of older releases.
    pub version: Option<String>,
    /// Number of executions that succeeded.
    pub succeeded: u64,
    /// Number of executions that failed.
    pub failed: u64,
    /// Number of executions that were cancelled.
    pub cancelled: u64,
}

/// Outcomes and durations of all workflows by interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowFigures {
    /// Start of the first interval (RFC 3339).
    pub from: Timestamp,
    /// Length of an interval in milliseconds.
    pub span_ms: u64,
    /// Workflows with executions that ended in these intervals, by name.
    pub workflows: Vec<WorkflowSeries>,
    /// Whether all executions in these intervals are counted. False while older executions are
    /// still being read.
    pub is_whole: bool,
}

/// Outcomes and durations of a workflow by interval, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowSeries {
    /// Name of the workflow.
    pub workflow: String,
    /// Number of executions that ended in each interval.
    pub ended: Vec<u64>,
    /// Number of executions that failed in each interval.
    pub failed: Vec<u64>,
    /// 95th percentile of the durations in milliseconds, for each interval. `null` if no execution
    /// ended in the interval.
    pub p95_ms: Vec<Option<u64>>,
    /// 95th percentile of the durations over all intervals, in milliseconds. `null` if no execution
    /// ended.
    pub p95_of_all_ms: Option<u64>,
}

/// Message rates and node durations at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficReport {
    /// Measurement period of the rates, in seconds.
    pub seconds: f64,
    /// Rates of streams and of event types.
    pub rates: Vec<GroupRate>,
    /// Durations by agent, sorted by name. The first entry is the total of all agents.
    pub latencies: Vec<GroupLatency>,
}

/// Message rate of a stream or an event type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupRate {
    /// Name of a stream, or `event.TYPE` for an event type.
    pub group: String,
    /// Messages per second.
    pub messages: f64,
    /// Bytes per second. For a stream, messages per second times the mean size of its stored
    /// messages.
    pub bytes: f64,
}

/// Durations of nodes, from start to result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupLatency {
    /// Name of the agent or workflow that the nodes call.
    pub group: String,
    /// Number of measured nodes.
    pub count: usize,
    /// Median duration in milliseconds.
    pub p50_ms: u64,
    /// 95th percentile of the durations in milliseconds.
    pub p95_ms: u64,
    /// 99th percentile of the durations in milliseconds.
    pub p99_ms: u64,
    /// 95th percentile of the durations in milliseconds, for each of the last 20 intervals of 30
    /// seconds, oldest first. `null` if no node ended in the interval.
    pub p95_by_span_ms: Vec<Option<u64>>,
}
