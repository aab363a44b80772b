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

/// Workflow in the form of the engine. Created by a dialect, never by hand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of this format; readers reject unknown versions.
    pub format: u32,
    /// Name of the dialect whose adapter interprets the `extra` values.
    pub dialect: String,
    /// Name of the workflow.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// The author's own version, if the file has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Scheduling of this dialect; fixed per dialect, not configurable by users.
    pub profile: SchedulingProfile,
    /// Nodes in file order.
    pub nodes: Vec<PlanNode>,
    /// Edges; the order of a node's out-edges is the order in which tokens are sent.
    pub edges: Vec<PlanEdge>,
    /// Nodes that receive the start token, in the order in which they are started.
    pub entry: Vec<NodeIndex>,
    /// Nodes that run after the graph is done, in order, if their condition on the outcome holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exits: Vec<ExitNode>,
    /// Limits.
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
    /// Format that this version writes.
    pub const FORMAT: u32 = 1;

    /// Returns the node at `ix`, which exists in a plan that passed [`crate::check`].
    pub fn node(&self, ix: NodeIndex) -> &PlanNode {
        &self.nodes[ix as usize]
    }

    /// Returns whether the execution continues after a failure of the node, and its tokens are
    /// selected as usual.
    pub fn routes_failure(&self, ix: NodeIndex) -> bool {
        self.profile.failure == FailurePolicy::RouteOn || self.node(ix).handles_failure
    }

    /// Returns the edge at `ix`, which exists in a plan that passed [`crate::check`].
    pub fn edge(&self, ix: EdgeIndex) -> &PlanEdge {
        &self.edges[ix as usize]
    }

    /// Returns the index of the node with this id.
    pub fn find(&self, id: &str) -> Option<NodeIndex> {
        self.nodes.iter().position(|node| node.id == id).map(|ix| ix as NodeIndex)
    }
}

/// Node of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties of a node")]
pub struct PlanNode {
    /// Id from the file, unique in the plan.
    pub id: String,
    /// Type name in the dialect (`agent`, `switch`, `FLOW.IF`), for events and drawings.
    pub kind: String,
    /// Display name, if the file has one in addition to the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Operation of the node.
    pub op: NodeOperation,
    /// Rule by which tokens make activations.
    pub join: JoinRule,
    /// Tie-break among nodes that become ready together ([`ReadyOrder::Rank`]).
    #[serde(default)]
    pub rank: u32,
    /// Agent, workflow or person of this node, for events and drawings; the adapter decides at
    /// bind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// New attempts after a failed one.
    #[serde(default, skip_serializing_if = "RetryPolicy::is_none")]
    pub retry: RetryPolicy,
    /// Timeout of one attempt in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_timeout_ms: Option<u64>,
    /// Timeout of the whole activation in milliseconds, including retries and children.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// True for a node that runs only as the body of a map, loop or fork.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inner: bool,
    /// True for a structural node (a tool, a skill, an attached sub-agent), which flow never
    /// activates.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attached: bool,
    /// True for a node that its author marks as plumbing: drawings show it small, and lists and
    /// timelines fold it. It has no effect on the execution.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quiet: bool,
    /// True if the workflow handles a failure of the node: the execution continues, and the adapter
    /// selects its tokens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub handles_failure: bool,
    /// Data for the dialect's adapter only.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub extra: Value,
}

/// Operation of a node. Determines the drawing and the static checks; the adapter's `bind`
/// determines the behaviour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeOperation {
    /// Emits the input of the execution.
    Source,
    /// Sends a task to an agent.
    Agent,
    /// Computed by the engine itself: switch, merge, condition, transform.
    Pure,
    /// Waits for a decision of a person.
    Human,
    /// Waits for a time.
    Delay,
    /// Sends a task to another workflow.
    Workflow,
    /// One child activation per item.
    Map {
        /// Node that runs for each item.
        body: NodeIndex,
    },
    /// Child activations in sequence while a condition holds.
    Loop {
        /// Node that runs in each iteration.
        body: NodeIndex,
    },
    /// One child activation per branch.
    Fork {
        /// Branches, in order.
        bodies: Vec<NodeIndex>,
    },
}

/// Rule by which tokens make activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinRule {
    /// Every live token is an activation.
    Each,
    /// The first live token queues the node. Inputs are gathered until it starts; later ones are
    /// dropped and recorded.
    Once,
    /// Waits until every in-edge has a token, live or dead. Runs if one is live and no veto is
    /// dead; otherwise it is dead.
    Resolved {
        /// Runs as soon as this many of the edges marked `quorum` are live (and all others are
        /// resolved).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        quorum: Option<u32>,
    },
}

/// Edge of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanEdge {
    /// Node that the token leaves.
    pub from: NodeIndex,
    /// Port of `from` whose value is sent.
    pub port: String,
    /// Node that the token reaches.
    pub to: NodeIndex,
    /// Input of `to` that receives the token.
    pub handle: String,
    /// Label on drawings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Maximum number of traversals; afterwards the edge is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<u32>,
    /// Counter of its traversals.
    pub counter: TraversalCounter,
    /// Veto: a dead token here makes the target dead, even if others are live.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub veto: bool,
    /// Counts towards the target's quorum.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quorum: bool,
    /// Structure, not flow: a tool, skill or sub-agent of `to`. It never carries a token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attach: bool,
    /// Data for the dialect's adapter only (guard, conversion code, coercion).
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub extra: Value,
}

impl PlanEdge {
    /// Key of `extra`: the part of the source's output by which one of several branches to the same
    /// target is recognized.
    pub const OUTPUT_OF_BRANCH: &str = "output_of_branch";

    /// Returns whether a live token on this edge belongs to its branch, by the output of its source.
    /// Branches of one node to the same target share the token.
    pub fn is_branch_of(&self, output: Option<&Value>) -> bool {
        let Some(Value::Object(wanted)) = self.extra.get(Self::OUTPUT_OF_BRANCH) else { return true };
        wanted
            .iter()
            .all(|(key, value)| output.and_then(|output| output.get(key)).unwrap_or(&Value::Null) == value)
    }
}

/// Node that runs when the graph is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitNode {
    /// The node.
    pub node: NodeIndex,
    /// Outcome after which it runs.
    pub on: ExitCondition,
}

/// Outcome after which an exit node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitCondition {
    /// After every outcome.
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
    /// Maximum number of retries; 0 = none.
    pub limit: u32,
    /// Failures that are retried.
    pub on: RetryCondition,
    /// Delay before the first retry in milliseconds.
    pub delay_ms: u64,
    /// Factor between two delays.
    pub factor: f64,
    /// Maximum delay in milliseconds.
    pub max_delay_ms: Option<u64>,
    /// Maximum jitter in milliseconds, derived from a hash of the attempt (not random).
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
    /// Returns whether a failed attempt is never retried.
    pub fn is_none(&self) -> bool {
        self.limit == 0
    }

    /// Returns the delay before retry number `n` (counted from 1) in milliseconds, without jitter.
    pub fn delay(&self, n: u32) -> u64 {
        let exponent = i32::try_from(n.saturating_sub(1)).unwrap_or(i32::MAX);
        let delay = self.delay_ms as f64 * self.factor.powi(exponent);
        let cap = self.max_delay_ms.unwrap_or(Self::LONGEST_MS).min(Self::LONGEST_MS);
        // NaN and infinities of malicious factors result in the cap.
        if delay.is_finite() && delay >= 0.0 && delay < cap as f64 {
            #[expect(clippy::cast_sign_loss, reason = "checked to be in 0..cap just above")]
            let whole = delay as u64;
            whole
        } else {
            cap
        }
    }

    /// Maximum delay: thirty days.
    const LONGEST_MS: u64 = 30 * 24 * 3600 * 1000;
}

/// Failures that are retried (Argo's `retryPolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryCondition {
    /// All faults that are marked retryable.
    #[default]
    Always,
    /// Failures that the agent reported, and timeouts.
    Failure,
    /// Infrastructure faults: crash, transport, and timeouts.
    Error,
}

/// Scheduling of a dialect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulingProfile {
    /// Start order of ready activations.
    pub order: ReadyOrder,
    /// Maximum number of concurrent activations in one execution; 0 = no limit.
    pub parallel: u32,
    /// Effect of a failed activation on the other nodes.
    pub failure: FailurePolicy,
    /// Effect of a waiting person on the other nodes.
    pub pause: PausePolicy,
}

/// Start order of ready activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyOrder {
    /// In the order in which they became ready.
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
    /// The failure is recorded, tokens are selected as usual, and the execution continues.
    RouteOn,
    /// Running siblings finish, their outputs are discarded, and no new activations start.
    Drain,
    /// Running siblings are cancelled, and no new activations start.
    Stop,
    /// Only dependent nodes are skipped; the execution fails at its end.
    Isolate,
}

/// Effect of a waiting person on the other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PausePolicy {
    /// No activation starts; ready ones are deferred and run in sequence after the answer.
    FreezeDefer,
    /// Only the waiting node waits.
    NodeLocal,
}
