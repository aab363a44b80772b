//! Status of a mesh: executors, streams, agents, health checks and quarantined messages.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sinew_protocol::usage::ModelTotals;

use crate::timestamp::Timestamp;
use crate::words;

/// Status of a mesh at one time.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct MeshStatus {
    /// Name of the mesh.
    pub namespace: String,
    /// Number of shards of the mesh.
    pub shards: u32,
    /// Number of shards that a live executor owns.
    pub owned: u32,
    /// Executors, unreachable ones first; those are removed a day after their last heartbeat.
    pub executors: Vec<ExecutorStatus>,
    /// Number of open executions by status.
    pub executions: BTreeMap<String, usize>,
    /// Streams of the mesh.
    pub streams: Vec<StreamStatus>,
    /// Agents: online ones, those that stopped without being retired, and those with a queue. Offline
    /// ones come first, then those with the longest queue.
    pub agents: Vec<AgentStatus>,
    /// Number of rejected agent cards.
    pub refused_cards: usize,
    /// Number of quarantined messages.
    pub quarantined: u64,
    /// Waiting executions, oldest first. At most 10. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingExecution>,
    /// Model usage of the open executions, as reported by agents with their results. Absent if
    /// there is none.
    #[serde(default, skip_serializing_if = "ModelTotals::is_empty")]
    pub models: ModelTotals,
    /// Agents that open executions wait for and that are not online, each with the number of those
    /// executions.
    #[serde(skip)]
    pub missing_agents: BTreeMap<String, usize>,
    /// Ids of held executions, which no executor processes until an operator resumes them. Absent
    /// if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set_aside: Vec<String>,
}

impl MeshStatus {
    /// Returns the number of live executors.
    pub fn living_executors(&self) -> usize {
        self.executors.iter().filter(|executor| executor.silent_ms.is_none()).count()
    }

    /// Describes executors without a heartbeat, as `3 unreachable, last heartbeat 12.0s ago`, or
    /// returns `None` if there are none.
    pub fn silence(&self) -> Option<String> {
        let silences = self.executors.iter().filter_map(|executor| executor.silent_ms);
        let shortest = silences.clone().min()?;
        Some(format!("{} unreachable, last heartbeat {} ago", silences.count(), words::duration(shortest)))
    }
}

/// Open execution that waits.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WaitingExecution {
    /// Id of the execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Milliseconds since the execution was started.
    pub age_ms: u64,
    /// Current wait, in one line.
    pub waiting: String,
    /// Model usage, as reported by agents with their results. Absent if there is none.
    #[serde(default, skip_serializing_if = "ModelTotals::is_empty")]
    pub models: ModelTotals,
}

/// Status of an executor.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExecutorStatus {
    /// Id of the executor.
    pub id: String,
    /// Version of Sinew that the executor runs.
    pub version: String,
    /// Host and process of the executor.
    pub place: String,
    /// Number of shards that the executor owns.
    pub shards: usize,
    /// Milliseconds since the last heartbeat of an unreachable executor. Absent for a live
    /// executor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
}

/// Status of a stream.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StreamStatus {
    /// Name of the stream on the NATS server.
    pub name: String,
    /// Number of stored messages.
    pub messages: u64,
    /// Size of the stored messages in bytes.
    pub bytes: u64,
}

/// Status of an agent, from its card, its last card (if it stopped without being retired) and
/// its queue.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentStatus {
    /// Name of the agent.
    pub name: String,
    /// Whether the agent publishes its card.
    pub online: bool,
    /// Milliseconds since the last heartbeat. Absent if no card of the agent is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard_ms: Option<u64>,
    /// Number of tasks that are not delivered yet.
    pub queued: u64,
    /// Number of tasks that are delivered and in progress.
    pub working: usize,
    /// Number of tasks that were delivered more than once.
    pub redelivered: usize,
}

/// Health check of a mesh.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DoctorCheck {
    /// Subject of the check.
    #[serde(rename = "check")]
    pub what: Cow<'static, str>,
    /// Result of the check.
    pub state: CheckState,
    /// Explanation in one sentence.
    pub message: String,
    /// Suggested fix. Absent if nothing needs to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Operator code. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Cow<'static, str>>,
}

/// Result of a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// The check passed.
    Ok,
    /// The check passed with a warning.
    Warn,
    /// The check failed.
    Fail,
}

/// Quarantined message without body and headers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct QuarantineRow {
    /// Name of the message, `STREAM.SEQUENCE`.
    pub message: String,
    /// Subject of the message.
    pub subject: String,
    /// Why the message was quarantined.
    pub reason: String,
    /// When the message was published (RFC 3339).
    pub time: Timestamp,
    /// When the message was quarantined (RFC 3339).
    pub set_aside: Timestamp,
}

/// Page of quarantined messages.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct QuarantinePage {
    /// Messages, oldest first.
    pub messages: Vec<QuarantineRow>,
}
