//! API documents about the mesh and about files; only the members that pages show.

use std::collections::BTreeMap;

use serde::Deserialize;
use sinew_documents::event::EventLine;
use sinew_documents::execution::ExecutionDescription;
use sinew_documents::node::{NodeDescription, TreeBranch};
use sinew_documents::timeline::Timeline;
use sinew_documents::timestamp::Timestamp;

use crate::documents::ArtifactDocument;

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
    pub(crate) started: Timestamp,
}

/// Tasks that received an artifact.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ArtifactUsesDocument {
    #[serde(default)]
    pub(crate) uses: Vec<ArtifactUseDocument>,
    #[serde(default)]
    pub(crate) searched_executions: usize,
}

/// A task that received an artifact, or an execution that was started with it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ArtifactUseDocument {
    pub(crate) execution: String,
    pub(crate) workflow: String,
    pub(crate) node: Option<String>,
    #[serde(default)]
    pub(crate) attempt: u32,
}

/// A health check of the mesh.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DoctorCheckDocument {
    pub(crate) check: String,
    /// `ok`, `warn` or `fail`.
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) code: Option<String>,
}

/// Figures of the traffic.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TrafficReportDocument {
    #[serde(default)]
    pub(crate) seconds: f64,
    #[serde(default)]
    pub(crate) rates: Vec<GroupRateDocument>,
    #[serde(default)]
    pub(crate) latencies: Vec<GroupLatencyDocument>,
}

/// Messages per second of a group of subjects.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct GroupRateDocument {
    pub(crate) group: String,
    pub(crate) messages: f64,
    pub(crate) bytes: f64,
}

/// Times of nodes of an agent.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct GroupLatencyDocument {
    pub(crate) group: String,
    pub(crate) count: usize,
    pub(crate) p50_ms: u64,
    pub(crate) p95_ms: u64,
    pub(crate) p99_ms: u64,
    #[serde(default)]
    pub(crate) p95_by_span_ms: Vec<Option<u64>>,
}

/// Figures of workflows by span of time.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct WorkflowFiguresDocument {
    #[serde(default)]
    pub(crate) workflows: Vec<WorkflowSeriesDocument>,
    #[serde(default)]
    pub(crate) is_whole: bool,
}

/// Figures of one workflow, the oldest span first.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WorkflowSeriesDocument {
    pub(crate) workflow: String,
    #[serde(default)]
    pub(crate) ended: Vec<u64>,
    #[serde(default)]
    pub(crate) failed: Vec<u64>,
    #[serde(default)]
    pub(crate) p95_ms: Vec<Option<u64>>,
    pub(crate) p95_of_all_ms: Option<u64>,
}

/// Ends of a workflow's executions by version.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct OutcomesDocument {
    #[serde(default)]
    pub(crate) versions: Vec<VersionOutcomesDocument>,
    #[serde(default)]
    pub(crate) is_whole: bool,
}

/// Ends of the executions of one version; `None` for an unknown one.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct VersionOutcomesDocument {
    pub(crate) version: Option<String>,
    #[serde(default)]
    pub(crate) succeeded: u64,
    #[serde(default)]
    pub(crate) failed: u64,
    #[serde(default)]
    pub(crate) cancelled: u64,
}

/// Quarantined messages.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct QuarantineDocument {
    #[serde(default)]
    pub(crate) messages: Vec<QuarantinedDocument>,
}

/// A quarantined message.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct QuarantinedDocument {
    /// Stream and sequence number: `RESULTS.118`.
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) subject: String,
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) set_aside: Timestamp,
}

/// A process of an agent, as reported by the process.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AgentProcessDocument {
    #[serde(default)]
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) started: String,
    pub(crate) calls: WorkFiguresDocument,
    pub(crate) tasks: Option<WorkFiguresDocument>,
}

/// Work of a process.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WorkFiguresDocument {
    pub(crate) count: u64,
    #[serde(default)]
    pub(crate) errors: u64,
    #[serde(default)]
    pub(crate) average_ms: f64,
    #[serde(default)]
    pub(crate) last_error: String,
}

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

/// An open execution with a long wait.
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
    /// Milliseconds since the last heartbeat of an executor that missed heartbeats.
    pub(crate) silent_ms: Option<u64>,
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

/// Activity of the latest minutes.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ActivityDocument {
    #[serde(default)]
    pub(crate) minutes: Vec<MinuteDocument>,
    #[serde(default)]
    pub(crate) errors: Vec<ErrorCountDocument>,
    #[serde(default)]
    pub(crate) is_whole: bool,
}

/// Executions of a minute.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct MinuteDocument {
    #[serde(default)]
    pub(crate) at: Timestamp,
    #[serde(default)]
    pub(crate) started: u64,
    #[serde(default)]
    pub(crate) ended: u64,
    #[serde(default)]
    pub(crate) failed: u64,
}

/// Number of executions that failed with an error.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ErrorCountDocument {
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) count: u64,
    #[serde(default)]
    pub(crate) latest: String,
}

/// Executions by status.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct CountsDocument {
    #[serde(default)]
    pub(crate) counts: BTreeMap<String, u64>,
    #[serde(default)]
    pub(crate) is_whole: bool,
}
