//! Agents of a mesh, their processes, and their work for an execution.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_protocol::Fault;
use sinew_protocol::usage::TaskUsage;

use crate::agent_kind;
use crate::execution_list::ExecutionRow;

pub use sinew_protocol::a2a::AgentSkill;
pub use sinew_protocol::card::{AgentKind, TEXT_INPUT};

/// State of an agent, derived from its last heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    /// The agent accepts tasks.
    Online,
    /// All processes of the agent finish their tasks and take no new ones.
    Draining,
    /// The agent missed heartbeats.
    Late,
    /// The agent's card has expired, and no tasks are routed to it.
    Offline,
}

impl AgentState {
    /// Returns the name of the state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Draining => "draining",
            Self::Late => "late",
            Self::Offline => "offline",
        }
    }
}

/// Agent in a list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AgentRow {
    /// Name of the agent.
    pub name: String,
    /// Version of the agent.
    pub version: String,
    /// `agent` or `workflow`.
    #[serde(with = "agent_kind")]
    #[schemars(with = "String")]
    pub kind: AgentKind,
    /// Purpose of the agent.
    pub description: String,
    /// Ids of the agent's skills.
    pub skills: Vec<String>,
    /// Whether a plain text can be its input: its schema requires at most one member, a string.
    #[serde(default)]
    pub takes_text: bool,
    /// `online`, `draining` (takes no new tasks), `late` (missed heartbeats) or `offline`.
    pub state: AgentState,
    /// Milliseconds since the last heartbeat.
    pub heartbeat_age_ms: u64,
    /// Number of tasks in the agent's queue. `null` if the agent has no queue, or if the caller may
    /// not see queues.
    pub queued: Option<u64>,
    /// Work of the agent's processes. Absent if none reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<AgentLoad>,
}

/// Work of all processes of an agent, since each of them started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentLoad {
    /// Number of processes (replicas).
    pub replicas: usize,
    /// Number of processes that take no new tasks.
    pub draining: usize,
    /// Number of tasks in progress.
    pub working: u64,
    /// Number of tasks that ended.
    pub tasks: u64,
    /// Number of tasks that failed.
    pub errors: u64,
    /// Work time of the latest tasks. Absent if none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_ms: Option<Percentiles>,
    /// Queue time of the latest tasks: in the queue, and waiting for a slot. Absent if none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_ms: Option<Percentiles>,
}

/// Percentiles of the times of the latest 512 tasks of a process, in milliseconds; of several processes,
/// those of the slowest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Percentiles {
    /// Median.
    pub p50: u64,
    /// 95th percentile.
    pub p95: u64,
}

impl AgentLoad {
    /// Adds up the work of processes; `None` without processes.
    pub fn of(processes: &[AgentProcess]) -> Option<Self> {
        let slowest = |of: fn(&AgentProcess) -> Option<Percentiles>| {
            processes
                .iter()
                .filter_map(of)
                .reduce(|a, b| Percentiles { p50: a.p50.max(b.p50), p95: a.p95.max(b.p95) })
        };
        let ended = |of: fn(&WorkFigures) -> u64| {
            processes.iter().map(|one| of(one.tasks.as_ref().unwrap_or(&one.calls))).sum()
        };
        (!processes.is_empty()).then(|| Self {
            replicas: processes.len(),
            draining: processes.iter().filter(|one| one.draining).count(),
            working: processes.iter().map(|one| one.working).sum(),
            tasks: ended(|figures| figures.count),
            errors: ended(|figures| figures.errors),
            work_ms: slowest(|one| one.work_ms),
            queue_ms: slowest(|one| one.queue_ms),
        })
    }
}

/// Description of an agent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AgentDetails {
    /// Name of the agent.
    pub name: String,
    /// `agent` or `workflow`.
    #[serde(with = "agent_kind")]
    #[schemars(with = "String")]
    pub kind: AgentKind,
    /// Version of the agent.
    pub version: String,
    /// Purpose of the agent.
    pub description: String,
    /// Skills of the agent.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    pub skills: Vec<AgentSkill>,
    /// JSON Schema of the input. `null` if the agent accepts any JSON.
    pub input_schema: Option<Value>,
    /// JSON Schema of the output. `null` if the agent may return any JSON.
    pub output_schema: Option<Value>,
    /// Delivery of tasks: `queue` or `direct`.
    pub delivery: String,
    /// `online`, `draining` (takes no new tasks), `late` (missed heartbeats) or `offline`.
    pub state: AgentState,
    /// Milliseconds since the last heartbeat.
    pub heartbeat_age_ms: u64,
    /// Number of tasks in the agent's queue. `null` if the agent has no queue, or if the caller may
    /// not see queues.
    pub queued: Option<u64>,
    /// Work of the agent's processes. Absent if none reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<AgentLoad>,
    /// Executions that failed because of the agent: at most 10, from the latest 50 failed
    /// executions that the caller may see. Absent unless requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_errors: Option<Vec<ExecutionRow>>,
}

/// Process of an agent, as reported by the process itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentProcess {
    /// Id of the process.
    pub id: String,
    /// Version of the agent.
    pub version: String,
    /// When the process started to serve (RFC 3339).
    pub started: String,
    /// Calls of the process's A2A endpoint.
    pub calls: WorkFigures,
    /// Tasks from the queue. Absent if the process does not report them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<WorkFigures>,
    /// Whether the process takes no new tasks.
    #[serde(default)]
    pub draining: bool,
    /// Number of tasks in progress.
    #[serde(default)]
    pub working: u64,
    /// Work time of the latest tasks. Absent if none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_ms: Option<Percentiles>,
    /// Queue time of the latest tasks. Absent if none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_ms: Option<Percentiles>,
}

/// Calls or tasks since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkFigures {
    /// Number of calls or tasks.
    pub count: u64,
    /// Number of calls or tasks that failed.
    pub errors: u64,
    /// Mean duration in milliseconds.
    pub average_ms: f64,
    /// Latest error: a code or a message. Empty if there was none.
    pub last_error: String,
}

/// Work of an agent or workflow for an execution.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentWork {
    /// Name of the agent or workflow.
    pub agent: String,
    /// Whether the callee is a workflow.
    pub is_workflow: bool,
    /// Nodes that sent tasks, in order of their first task. At most 50.
    pub nodes: Vec<String>,
    /// Number of tasks, including retries.
    pub tasks: usize,
    /// Number of tasks without a result.
    pub open: usize,
    /// Number of tasks that failed.
    pub failed: usize,
    /// Total work time in milliseconds. Open tasks count up to the current time. For agents that do
    /// not report their work time, the time from task to result.
    pub working_ms: u64,
    /// Longest work time of a task, in milliseconds.
    pub longest_ms: u64,
    /// Total queue time of tasks, in milliseconds. 0 if the agent does not report its work time.
    pub queued_ms: u64,
    /// Longest queue time of a task, in milliseconds. 0 if the agent does not report its work time.
    pub longest_queued_ms: u64,
    /// Tokens and price, as reported by the agent.
    #[serde(flatten)]
    pub used: TaskUsage,
    /// Latest fault. Absent if no task failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Fault>,
}
