//! The data of a plan.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::PlanLimits;

/// Index of a node in [`Plan::nodes`].
pub type NodeIndex = u32;
/// Index of an edge in [`Plan::edges`].
pub type EdgeIndex = u32;
/// Index of a traversal counter; edges that share a budget share a counter.
pub type TraversalCounter = u32;

/// A workflow as the engine sees it. Made by a dialect, never by hand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of this format; readers refuse what they do not know.
    pub format: u32,
    /// Name of the dialect whose adapter understands the `extra` values.
    pub dialect: String,
    /// Name of the workflow.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// The author's own version, if the file has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How this dialect schedules; fixed per dialect, never a user's choice.
    pub profile: SchedulingProfile,
    /// Nodes in file order.
    pub nodes: Vec<PlanNode>,
    /// Edges; the order of a node's out-edges is the order in which tokens are sent.
    pub edges: Vec<PlanEdge>,
    /// Nodes that receive the start token, in the order in which they are started.
    pub entry: Vec<NodeIndex>,
    /// Nodes run after the graph is done, in order, when their condition on the outcome holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exits: Vec<ExitNode>,
    /// Budgets.
    pub limits: PlanLimits,
    /// JSON Schema of the execution's input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// JSON Schema of the execution's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Data for the dialect's adapter only (output mapping, rules, skills, …).
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub extra: Value,
}

impl Plan {
    /// The format this version writes.
    pub const FORMAT: u32 = 1;

    /// The node at `ix`; a plan that passed [`crate::check`] has it.
    pub fn node(&self, ix: NodeIndex) -> &PlanNode {
        &self.nodes[ix as usize]
    }

    /// The edge at `ix`; a plan that passed [`crate::check`] has it.
    pub fn edge(&self, ix: EdgeIndex) -> &PlanEdge {
        &self.edges[ix as usize]
    }

    /// Index of the node with this id.
    pub fn find(&self, id: &str) -> Option<NodeIndex> {
        self.nodes.iter().position(|node| node.id == id).map(|ix| ix as NodeIndex)
    }
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanNode {
    /// Id from the file, unique in the plan.
    pub id: String,
    /// The dialect's own type name (`agent`, `switch`, `FLOW.IF`), for events and drawings.
    pub kind: String,
    /// A name for people, when the file has one beside the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Operation of the node.
    pub op: NodeOperation,
    /// When tokens make an activation.
    pub join: JoinRule,
    /// Tie-break among nodes that become ready together ([`ReadyOrder::Rank`]).
    #[serde(default)]
    pub rank: u32,
    /// Agent, workflow or person this node works with, for events and drawings; the adapter decides at bind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// New attempts after a failed one.
    #[serde(default, skip_serializing_if = "RetryPolicy::is_none")]
    pub retry: RetryPolicy,
    /// Milliseconds one attempt may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_timeout_ms: Option<u64>,
    /// Milliseconds the whole activation may take, retries and children included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// True for a node that runs only as the body of a map, loop or fork.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inner: bool,
    /// True for a node that is structure only (a tool, a skill, an attached sub-agent) and is never activated by flow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attached: bool,
    /// True for a node that its author calls plumbing: drawings make it small, and lists and timelines fold it. It changes
    /// nothing of what happens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quiet: bool,
    /// Data for the dialect's adapter only.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub extra: Value,
}

/// Operation of a node. Decides the drawing and the static checks; the adapter's `bind` decides what happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeOperation {
    /// Emits what the execution was started with.
    Source,
    /// A task to an agent.
    Agent,
    /// Computed in the engine's own step: switch, merge, condition, transform.
    Pure,
    /// A person decides.
    Human,
    /// Waits.
    Delay,
    /// A task to another workflow.
    Workflow,
    /// One child activation per item.
    Map {
        /// The node that is run for each item.
        body: NodeIndex,
    },
    /// Child activations one after another while a condition holds.
    Loop {
        /// The node that is run again.
        body: NodeIndex,
    },
    /// One child activation per branch.
    Fork {
        /// The branches, in order.
        bodies: Vec<NodeIndex>,
    },
}

/// When tokens make an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinRule {
    /// Every live token is an activation.
    Each,
    /// The first live token queues the node, inputs gather until it starts, later ones are dropped and recorded.
    Once,
    /// Waits until every in-edge has a token, live or dead; runs if one is live and no veto is dead, else dies.
    Resolved {
        /// Runs as soon as this many of the edges marked `quorum` are live (and all others are resolved).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        quorum: Option<u32>,
    },
}

/// One edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanEdge {
    /// Node the token leaves.
    pub from: NodeIndex,
    /// Port of `from` whose value travels.
    pub port: String,
    /// Node the token reaches.
    pub to: NodeIndex,
    /// Input of `to` it arrives at.
    pub handle: String,
    /// Label on drawings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Times it may be taken; after that it is as if it were not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<u32>,
    /// The counter its traversals are counted in.
    pub counter: TraversalCounter,
    /// Dead here means dead for the target, whatever else is live.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub veto: bool,
    /// Counts towards the target's quorum.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quorum: bool,
    /// Structure, not flow: a tool, skill or sub-agent of `to`. No token ever travels on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attach: bool,
    /// Data for the dialect's adapter only (guard, conversion code, coercion).
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub extra: Value,
}

/// A node that runs when the graph is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitNode {
    /// The node.
    pub node: NodeIndex,
    /// For which outcome.
    pub on: ExitCondition,
}

/// The outcome an exit node waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitCondition {
    /// Taken after every outcome.
    Always,
    /// Only after success.
    Success,
    /// Only after a failure.
    Failure,
    /// Only after a cancellation.
    Cancel,
}

/// New attempts after a failed one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryPolicy {
    /// New attempts at the most; 0 = none.
    pub limit: u32,
    /// Which failures are tried again.
    pub on: RetryCondition,
    /// Milliseconds before the first new attempt.
    pub delay_ms: u64,
    /// Factor between two delays.
    pub factor: f64,
    /// Longest delay in milliseconds.
    pub max_delay_ms: Option<u64>,
    /// Up to this many milliseconds are added, by a hash of the attempt (never by chance).
    pub jitter_ms: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            limit: 0,
            on: RetryCondition::Always,
            delay_ms: 0,
            factor: 1.0,
            max_delay_ms: None,
            jitter_ms: 0,
        }
    }
}

impl RetryPolicy {
    /// True if a failed attempt is never tried again.
    pub fn is_none(&self) -> bool {
        self.limit == 0
    }

    /// Milliseconds to wait before new attempt number `n` (1 = the first new one), without jitter.
    pub fn delay(&self, n: u32) -> u64 {
        let exponent = i32::try_from(n.saturating_sub(1)).unwrap_or(i32::MAX);
        let delay = self.delay_ms as f64 * self.factor.powi(exponent);
        let cap = self.max_delay_ms.unwrap_or(Self::LONGEST_MS).min(Self::LONGEST_MS);
        // NaN and infinities of hostile factors end at the cap.
        if delay.is_finite() && delay >= 0.0 && delay < cap as f64 {
            #[expect(clippy::cast_sign_loss, reason = "checked to be in 0..cap just above")]
            let whole = delay as u64;
            whole
        } else {
            cap
        }
    }

    /// No delay is longer than thirty days.
    const LONGEST_MS: u64 = 30 * 24 * 3600 * 1000;
}

/// Which failures are tried again (Argo's `retryPolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryCondition {
    /// All that are marked retryable.
    #[default]
    Always,
    /// Failures that the agent reported, and timeouts.
    Failure,
    /// Faults around the agent: crash, transport, and timeouts.
    Error,
}

/// How a dialect schedules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulingProfile {
    /// In which order ready activations start.
    pub order: ReadyOrder,
    /// Activations that may run at the same time in one execution; 0 = no limit.
    pub parallel: u32,
    /// Effect of a failed activation on the other nodes.
    pub failure: FailurePolicy,
    /// Effect of a waiting person on the other nodes.
    pub pause: PausePolicy,
}

/// In which order ready activations start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyOrder {
    /// As they became ready.
    Fifo,
    /// Activations that a node made ready start before its siblings.
    DepthFirst,
    /// Activations that became ready together start in order of rank.
    Rank,
}

/// Effect of a failed activation on the other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailurePolicy {
    /// Recorded; its tokens are selected as usual and the execution goes on.
    RouteOn,
    /// Running siblings finish, their outputs are discarded, nothing new starts.
    Drain,
    /// Running siblings are cancelled, nothing new starts.
    Stop,
    /// Only what depends on it is skipped; the execution fails at its end.
    Isolate,
}

/// Effect of a waiting person on the other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PausePolicy {
    /// No activation starts; those that become ready are deferred and run after the answer, one after another.
    FreezeDefer,
    /// Only the waiting node waits.
    NodeLocal,
}
