//! Agents of a mesh, their processes, and their work for an execution.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_protocol::Fault;
use sinew_protocol::usage::TaskUsage;

use crate::agent_kind;
use crate::execution_list::ExecutionRow;

pub use sinew_protocol::a2a::AgentSkill;
pub use sinew_protocol::card::AgentKind;

/// State of an agent, by the time of its last heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    /// It takes work.
    Online,
    /// It missed heartbeats.
    Late,
    /// Its card is no longer valid: nothing is routed to it.
    Offline,
}

impl AgentState {
    /// Returns the name of the state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Late => "late",
            Self::Offline => "offline",
        }
    }
}

/// One agent in a list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AgentRow {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// `agent` or `workflow`.
    #[serde(with = "agent_kind")]
    #[schemars(with = "String")]
    pub kind: AgentKind,
    /// Purpose of the agent.
    pub description: String,
    /// Ids of its skills.
    pub skills: Vec<String>,
    /// `online`, `late` (it missed heartbeats) or `offline`.
    pub state: AgentState,
    /// Milliseconds since its last heartbeat.
    pub heartbeat_age_ms: u64,
    /// Tasks in its queue; `None` if it has no queue or the caller may not see queues.
    pub queued: Option<u64>,
}

/// One agent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AgentDetails {
    /// Its name.
    pub name: String,
    /// `agent` or `workflow`.
    #[serde(with = "agent_kind")]
    #[schemars(with = "String")]
    pub kind: AgentKind,
    /// Its version.
    pub version: String,
    /// Purpose of the agent.
    pub description: String,
    /// Its skills.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    pub skills: Vec<AgentSkill>,
    /// JSON Schema of its input; `None` for any JSON.
    pub input_schema: Option<Value>,
    /// JSON Schema of its output; `None` for any JSON.
    pub output_schema: Option<Value>,
    /// How tasks reach it: `queue` or `direct`.
    pub delivery: String,
    /// `online`, `late` (it missed heartbeats) or `offline`.
    pub state: AgentState,
    /// Milliseconds since its last heartbeat.
    pub heartbeat_age_ms: u64,
    /// Tasks in its queue; `None` if it has no queue or the caller may not see queues.
    pub queued: Option<u64>,
    /// Executions that failed because of it: at most 10 of the latest 50 failed ones that the caller may see. `None` if they
    /// were not requested: their records are read for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_errors: Option<Vec<ExecutionRow>>,
}

/// A process of an agent. All of it is the word of the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentProcess {
    /// Id of the process.
    pub id: String,
    /// Version of the agent.
    pub version: String,
    /// When it began to serve (RFC 3339).
    pub started: String,
    /// Calls of its A2A endpoint.
    pub calls: WorkFigures,
    /// Tasks of its queue; `None` if it tells nothing of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<WorkFigures>,
}

/// Work that was done, since the process began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkFigures {
    /// Pieces of work.
    pub count: u64,
    /// Pieces of work that failed.
    pub errors: u64,
    /// Mean time of one, in milliseconds.
    pub average_ms: f64,
    /// The latest error: a code, or a message; empty if there was none.
    pub last_error: String,
}

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
