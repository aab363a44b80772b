//! API documents; only the members that pages show. Other members are ignored.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// A page of executions.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ExecutionListDocument {
    pub(crate) executions: Vec<ExecutionListRow>,
    pub(crate) next: Option<String>,
    #[serde(default)]
    pub(crate) unlisted_shards: usize,
}

/// An execution of a list.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ExecutionListRow {
    pub(crate) execution: String,
    pub(crate) workflow: String,
    pub(crate) status: String,
    pub(crate) started: String,
    pub(crate) ended: Option<String>,
    #[serde(default)]
    pub(crate) caller: String,
    pub(crate) waiting: Option<String>,
    pub(crate) error: Option<FaultDocument>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    /// Model usage; null if no model was called.
    #[serde(default)]
    pub(crate) usage: Value,
}

/// A fault: of an execution, a node or an attempt.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct FaultDocument {
    #[serde(default)]
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) message: String,
    pub(crate) node: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) attempt: Option<u32>,
    pub(crate) at: Option<String>,
    #[serde(default)]
    pub(crate) retryable: bool,
    #[serde(default)]
    pub(crate) details: Vec<String>,
}

/// Description of an execution.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ExecutionDocument {
    pub(crate) execution: String,
    pub(crate) workflow: String,
    pub(crate) version: String,
    pub(crate) dialect: String,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) caller: String,
    #[serde(default)]
    pub(crate) user: String,
    pub(crate) parent: Option<String>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) started: String,
    pub(crate) ended: Option<String>,
    pub(crate) duration_ms: u64,
    pub(crate) nodes: NodeTally,
    pub(crate) input: Value,
    pub(crate) output: Option<Value>,
    #[serde(default)]
    pub(crate) native: Value,
    #[serde(default)]
    pub(crate) waiting: Vec<WaitDocument>,
    pub(crate) failure: Option<FailureDocument>,
    #[serde(default)]
    pub(crate) warnings: Vec<WarningDocument>,
    #[serde(default)]
    pub(crate) retries: u32,
    #[serde(default)]
    pub(crate) decisions: Vec<DecisionDocument>,
    #[serde(default)]
    pub(crate) commands: Vec<CommandDocument>,
    #[serde(default)]
    pub(crate) next: Vec<String>,
}

/// A decision of a person.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DecisionDocument {
    #[serde(default)]
    pub(crate) node: String,
    #[serde(default)]
    pub(crate) decision: String,
    pub(crate) by: Option<String>,
    #[serde(default)]
    pub(crate) at: String,
    pub(crate) comment: Option<String>,
}

/// A command and its result.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct CommandDocument {
    #[serde(default)]
    pub(crate) op: String,
    #[serde(default)]
    pub(crate) caller: String,
    #[serde(default)]
    pub(crate) accepted: bool,
    #[serde(default)]
    pub(crate) reason: String,
}

/// Numbers of nodes.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct NodeTally {
    pub(crate) total: usize,
    pub(crate) over: usize,
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) failed: usize,
    #[serde(default)]
    pub(crate) skipped: usize,
}

/// A reason of waiting.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WaitDocument {
    pub(crate) node: Option<String>,
    #[serde(rename = "for", default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) text: String,
    pub(crate) question: Option<QuestionDocument>,
    pub(crate) asked_in: Option<AskedInDocument>,
}

/// The called execution that asks a person.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AskedInDocument {
    pub(crate) execution: Option<String>,
}

/// The first failure, outermost message first.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct FailureDocument {
    pub(crate) node: Option<String>,
    pub(crate) chain: Vec<FaultDocument>,
}

/// A problem that did not cause a node to fail.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WarningDocument {
    pub(crate) node: Option<String>,
    pub(crate) message: String,
}

/// A node of a tree, with its children.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TreeDocument {
    /// Id of the node in the plan.
    #[serde(default)]
    pub(crate) node: String,
    pub(crate) label: String,
    pub(crate) kind: String,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) attempts: u32,
    #[serde(default)]
    pub(crate) activations: u32,
    pub(crate) duration_ms: Option<u64>,
    pub(crate) agent: Option<String>,
    pub(crate) message: Option<String>,
    #[serde(default)]
    pub(crate) folded: BTreeMap<String, usize>,
    #[serde(default)]
    pub(crate) children: Vec<TreeDocument>,
    /// Whether the workflow marks it as quiet.
    #[serde(default)]
    pub(crate) quiet: bool,
}

/// One activation of a node.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct NodeDocument {
    pub(crate) node: String,
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) agent: Option<String>,
    #[serde(default)]
    pub(crate) attempts: u32,
    pub(crate) duration_ms: Option<u64>,
    pub(crate) message: Option<String>,
    pub(crate) instruction: Option<String>,
    pub(crate) input: Option<Value>,
    pub(crate) output: Option<Value>,
    pub(crate) error: Option<FaultDocument>,
    #[serde(default)]
    pub(crate) failed_attempts: Vec<AttemptDocument>,
    /// Execution of the called workflow.
    pub(crate) execution: Option<String>,
    #[serde(default)]
    pub(crate) logs: Vec<LogDocument>,
    #[serde(default)]
    pub(crate) attempt_list: Vec<AttemptEvidenceDocument>,
    #[serde(default)]
    pub(crate) conditions: Vec<ConditionDocument>,
    #[serde(default)]
    pub(crate) notes: Vec<Value>,
    #[serde(default)]
    pub(crate) usage: Value,
    #[serde(default)]
    pub(crate) agent_events: Vec<Value>,
}

/// An attempt with its input and result.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AttemptEvidenceDocument {
    pub(crate) attempt: u32,
    #[serde(default)]
    pub(crate) at: String,
    #[serde(default)]
    pub(crate) input: Value,
    pub(crate) output: Option<Value>,
    pub(crate) error: Option<FaultDocument>,
}

/// A condition with the values that it refers to.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ConditionDocument {
    #[serde(default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) text: String,
    #[serde(default)]
    pub(crate) bound: Vec<BoundValueDocument>,
    /// Whether it was true.
    pub(crate) holds: Option<bool>,
}

/// A name in a condition, and its value.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct BoundValueDocument {
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) value: Option<Value>,
}

/// A failed attempt.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AttemptDocument {
    pub(crate) attempt: u32,
    pub(crate) at: String,
    pub(crate) error: FaultDocument,
}

/// A progress message of an agent.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LogDocument {
    pub(crate) attempt: u32,
    pub(crate) at: String,
    pub(crate) text: String,
}

/// A page of events.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct EventListDocument {
    pub(crate) events: Vec<EventDocument>,
    pub(crate) next: Option<String>,
}

/// An event.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct EventDocument {
    pub(crate) seq: String,
    pub(crate) at: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) node: Option<String>,
    #[serde(default)]
    pub(crate) event: Value,
}

/// Times of the activations of an execution.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TimelineDocument {
    pub(crate) duration_ms: u64,
    pub(crate) rows: Vec<TimelineRowDocument>,
    #[serde(default)]
    pub(crate) more: usize,
}

/// An activation with its spans.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TimelineRowDocument {
    pub(crate) node: String,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) critical: bool,
    /// Start of the activation, in milliseconds since the start of the execution.
    #[serde(default)]
    pub(crate) at: u64,
    #[serde(default)]
    pub(crate) spans: Vec<SpanDocument>,
    /// Whether the workflow marks the node as quiet.
    #[serde(default)]
    pub(crate) quiet: bool,
}

/// A span of one kind of time, in milliseconds since the start.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SpanDocument {
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) attempt: u32,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// An artifact of an agent.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ArtifactDocument {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) version: u64,
    #[serde(default)]
    pub(crate) media_type: String,
    #[serde(default)]
    pub(crate) sha256: String,
    #[serde(default)]
    pub(crate) size: u64,
    pub(crate) node: Option<String>,
    pub(crate) attempt: Option<u32>,
}

impl ArtifactDocument {
    /// The name of one version, as commands and the API take it.
    pub(crate) fn reference(&self) -> String {
        let node = self.node.as_deref().map(|node| format!("{node}/")).unwrap_or_default();
        format!("{node}{}:v{}", self.name, self.version)
    }
}

/// Two executions side by side.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ComparisonDocument {
    pub(crate) same: bool,
    pub(crate) first: ComparisonSide,
    pub(crate) second: ComparisonSide,
    #[serde(default)]
    pub(crate) input: Vec<PatchStep>,
    #[serde(default)]
    pub(crate) output: Vec<PatchStep>,
    #[serde(default)]
    pub(crate) nodes: Vec<ComparisonRow>,
}

/// One of the two.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ComparisonSide {
    pub(crate) execution: String,
    pub(crate) workflow: String,
    pub(crate) version: String,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) duration_ms: u64,
}

/// A node of either.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ComparisonRow {
    pub(crate) node: String,
    pub(crate) same: bool,
    pub(crate) first: Option<ComparedNodeDocument>,
    pub(crate) second: Option<ComparedNodeDocument>,
    #[serde(default)]
    pub(crate) output: Vec<PatchStep>,
}

/// State of a node in one of them.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ComparedNodeDocument {
    pub(crate) status: String,
    pub(crate) duration_ms: Option<u64>,
    pub(crate) fault: Option<String>,
}

/// An operation of a JSON Patch.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PatchStep {
    pub(crate) op: String,
    #[serde(default)]
    pub(crate) path: String,
    pub(crate) value: Option<Value>,
}

/// Effects that a retry would have.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RetryDocument {
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) keep: Vec<String>,
    #[serde(default)]
    pub(crate) rerun: BTreeMap<String, u32>,
    #[serde(default)]
    pub(crate) reset: Vec<String>,
    #[serde(default)]
    pub(crate) untouched: Vec<String>,
    /// Digest of the newest version, if the retry runs with another.
    pub(crate) latest: Option<String>,
    /// Digest of the version that the execution was started with, if the retry is a new execution with the newest.
    pub(crate) started_with: Option<String>,
    #[serde(default)]
    pub(crate) changed: Vec<String>,
    #[serde(default)]
    pub(crate) added: Vec<String>,
    #[serde(default)]
    pub(crate) removed: Vec<String>,
    #[serde(default)]
    pub(crate) asked_again: Vec<String>,
}

/// Effects that a fork would have.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ForkDocument {
    pub(crate) would_start: String,
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) given: Vec<String>,
}

/// An execution that was started.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct StartedDocument {
    pub(crate) execution: String,
}

/// A question for people.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ApprovalDocument {
    pub(crate) execution: String,
    pub(crate) workflow: String,
    /// Names of the workflows that wait for it, outermost first.
    #[serde(default)]
    pub(crate) path: Vec<String>,
    pub(crate) node: Option<String>,
    pub(crate) since: String,
    pub(crate) until: Option<String>,
    pub(crate) question: Option<QuestionDocument>,
    #[serde(default)]
    pub(crate) input: Value,
    #[serde(default)]
    pub(crate) decisions: Vec<DecisionDocument>,
}

/// Text and data of a question.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct QuestionDocument {
    #[serde(default)]
    pub(crate) prompt: String,
    #[serde(default)]
    pub(crate) data: Value,
    #[serde(default)]
    pub(crate) allowed: Vec<String>,
}

/// A deployed workflow of a list.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WorkflowListRow {
    pub(crate) name: String,
    pub(crate) dialect: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) digest: String,
    #[serde(default)]
    pub(crate) versions: usize,
    pub(crate) deployed: String,
    #[serde(default)]
    pub(crate) by: String,
    #[serde(default)]
    pub(crate) warnings: Vec<String>,
}

/// Description of a workflow.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WorkflowDocument {
    pub(crate) name: String,
    pub(crate) dialect: String,
    #[serde(default)]
    pub(crate) description: String,
    pub(crate) digest: String,
    #[serde(default)]
    pub(crate) nodes: Vec<PlanNodeDocument>,
    /// Number of all nodes, including those that are not listed.
    pub(crate) node_count: usize,
    #[serde(default)]
    pub(crate) warnings: Vec<String>,
    #[serde(default)]
    pub(crate) agents: Vec<String>,
    #[serde(default)]
    pub(crate) workflows: Vec<String>,
    #[serde(default)]
    pub(crate) input_schema: Value,
    #[serde(default)]
    pub(crate) output_schema: Value,
    #[serde(default)]
    pub(crate) limits: BTreeMap<String, Value>,
    #[serde(default)]
    pub(crate) profile: BTreeMap<String, Value>,
}

/// A node of a plan.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PlanNodeDocument {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) agent: Option<String>,
    #[serde(default)]
    pub(crate) depends_on: Vec<Value>,
}

/// A version of a workflow.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct VersionDocument {
    pub(crate) version: String,
    pub(crate) deployed: String,
    #[serde(default)]
    pub(crate) by: String,
}

/// Findings in a file, with its drawings.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ValidationDocument {
    pub(crate) errors: usize,
    pub(crate) warnings: usize,
    #[serde(default)]
    pub(crate) diagnostics: Vec<FindingDocument>,
    /// Drawings as SVG, by workflow.
    #[serde(default)]
    pub(crate) drawings: BTreeMap<String, String>,
    /// Sockets of the nodes of covalt.
    #[serde(default)]
    pub(crate) sockets: Vec<NodeSocketsDocument>,
}

/// A finding in a file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct FindingDocument {
    #[serde(default)]
    pub(crate) severity: String,
    #[serde(default)]
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) message: String,
    /// File of the finding; the first of a workflow's files if it names none.
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
    pub(crate) end_line: Option<u32>,
    pub(crate) end_column: Option<u32>,
    pub(crate) hint: Option<String>,
}

/// A workflow that was deployed.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DeployedDocument {
    pub(crate) name: String,
}

/// Work of an agent for an execution.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AgentWorkDocument {
    pub(crate) agent: String,
    #[serde(default)]
    pub(crate) is_workflow: bool,
    #[serde(default)]
    pub(crate) nodes: Vec<String>,
    #[serde(default)]
    pub(crate) tasks: usize,
    #[serde(default)]
    pub(crate) open: usize,
    #[serde(default)]
    pub(crate) failed: usize,
    #[serde(default)]
    pub(crate) working_ms: u64,
    #[serde(default)]
    pub(crate) longest_ms: u64,
    #[serde(default)]
    pub(crate) longest_queued_ms: u64,
    #[serde(default)]
    pub(crate) turns: u64,
    #[serde(default)]
    pub(crate) input_tokens: u64,
    #[serde(default)]
    pub(crate) output_tokens: u64,
    pub(crate) cost_usd: Option<f64>,
    pub(crate) last_error: Option<FaultDocument>,
}

/// An agent of a list.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AgentListRow {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) skills: Vec<String>,
    #[serde(default)]
    pub(crate) state: String,
    pub(crate) heartbeat_age_ms: Option<u64>,
    pub(crate) queued: Option<u64>,
}

/// Description of an agent.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AgentDocument {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) skills: Vec<SkillDocument>,
    #[serde(default)]
    pub(crate) input_schema: Value,
    #[serde(default)]
    pub(crate) output_schema: Value,
    pub(crate) delivery: Option<String>,
    #[serde(default)]
    pub(crate) state: String,
    pub(crate) heartbeat_age_ms: Option<u64>,
    #[serde(default)]
    pub(crate) last_errors: Vec<ExecutionListRow>,
}

/// State of an agent whose card is no longer valid.
pub(crate) const OFFLINE: &str = "offline";

/// A skill of an agent.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SkillDocument {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) tags: Vec<String>,
}

/// Sockets of a node of covalt.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct NodeSocketsDocument {
    pub(crate) node: String,
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) shape: String,
    #[serde(default)]
    pub(crate) color: String,
    #[serde(default)]
    pub(crate) inputs: Vec<SocketDocument>,
    #[serde(default)]
    pub(crate) outputs: Vec<SocketDocument>,
}

/// A socket.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SocketDocument {
    pub(crate) name: String,
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) color: String,
    #[serde(default)]
    pub(crate) shape: String,
}
