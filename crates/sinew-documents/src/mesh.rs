//! Status of a mesh: executors, streams, agents, health checks and quarantined messages.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sinew_protocol::usage::ModelTotals;

use crate::timestamp::Timestamp;
use crate::words;

/// All of it, at one time.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct MeshStatus {
    /// Name of the mesh.
    pub namespace: String,
    /// Shards of the mesh.
    pub shards: u32,
    /// Shards whose owner is an executor that lives.
    pub owned: u32,
    /// Executors, those that fell silent too: they are forgotten a day after their last heartbeat.
    pub executors: Vec<ExecutorStatus>,
    /// Open executions by status.
    pub executions: BTreeMap<String, usize>,
    /// Streams of the mesh.
    pub streams: Vec<StreamStatus>,
    /// Agents that are online, died and were not retired, or have a queue, by name.
    pub agents: Vec<AgentStatus>,
    /// Cards that are refused.
    pub refused_cards: usize,
    /// Messages that were set aside.
    pub quarantined: u64,
    /// Open executions that wait for something, those that were started first; not all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingExecution>,
    /// Model calls behind the open executions, as far as their agents have told with results.
    #[serde(default, skip_serializing_if = "ModelTotals::is_empty")]
    pub models: ModelTotals,
    /// Agents that open executions wait for and that are not online, each with the number of those
    /// executions.
    #[serde(skip)]
    pub missing_agents: BTreeMap<String, usize>,
    /// Open executions that no executor works on until an operator has looked at them.
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

/// An open execution and what it waits for.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WaitingExecution {
    /// Id of the execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Milliseconds since it was started.
    pub age_ms: u64,
    /// The wait, in words.
    pub waiting: String,
    /// Model calls behind it, as far as its agents have told with results.
    #[serde(default, skip_serializing_if = "ModelTotals::is_empty")]
    pub models: ModelTotals,
}

/// An executor.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExecutorStatus {
    /// Id of the executor.
    pub id: String,
    /// Version of Sinew.
    pub version: String,
    /// Host and process.
    pub place: String,
    /// Shards that the executor owns.
    pub shards: usize,
    /// Milliseconds since the last heartbeat of an executor that fell silent; `None` while the executor lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
}

/// A stream.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StreamStatus {
    /// Name on the server.
    pub name: String,
    /// Messages in the stream.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
}

/// An agent: its card, its last card if it died and was not retired, its queue, or several of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentStatus {
    /// Name of the agent.
    pub name: String,
    /// Whether the card of the agent is announced.
    pub online: bool,
    /// Milliseconds since the last heartbeat; `None` if no card of the agent is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard_ms: Option<u64>,
    /// Tasks that nobody has taken.
    pub queued: u64,
    /// Tasks that were taken and not answered.
    pub working: usize,
    /// Tasks that were taken more than once.
    pub redelivered: usize,
}

/// A check of a mesh, and how it went.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DoctorCheck {
    /// Checked part of the mesh.
    #[serde(rename = "check")]
    pub what: Cow<'static, str>,
    /// How the check went.
    pub state: CheckState,
    /// One sentence.
    pub message: String,
    /// Advice; `None` if there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Operator code, if the finding has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Cow<'static, str>>,
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// As it must be.
    Ok,
    /// Worth a look; nothing is broken.
    Warn,
    /// Broken.
    Fail,
}

/// A message of the quarantine without its body and headers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct QuarantineRow {
    /// Its name, `STREAM.SEQUENCE`.
    pub message: String,
    /// Its subject.
    pub subject: String,
    /// Why it was set aside.
    pub reason: String,
    /// When it was published (RFC 3339).
    pub time: Timestamp,
    /// When it was set aside (RFC 3339).
    pub set_aside: Timestamp,
}

/// Messages that were set aside.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct QuarantinePage {
    /// The messages, oldest first.
    pub messages: Vec<QuarantineRow>,
}
