//! A parsed workflow: one shape for both vocabularies, with resolved aliases.
//!
//! It serializes to the `extra` of a plan (and to the configuration in an agent card): keys of the
//! current vocabulary, only with values from the file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_protocol::catalogue::Catalogue;
use sinew_source::{Node, Span};

use super::approval::Approval;
use super::sleep::Sleep;

/// A workflow, without the engine's view of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkflowDefinition {
    /// Purpose of the workflow, for people and models.
    pub description: String,
    /// Version from the author.
    #[serde(default = "first_version")]
    pub version: String,
    /// JSON Schema of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// Property of the input that a message of plain text fills.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_input: Option<String>,
    /// JSON Schema of the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The nodes, in file order. In a plan, each node stores its own definition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeDef>,
    /// Template of the output.
    #[serde(default)]
    pub output_mapping: Value,
    /// Skills for the agent card.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<Value>,
    /// Attributes by which the workflow is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalogue: Option<Catalogue>,
    /// Nodes that run at the end.
    #[serde(default, skip_serializing_if = "ExitHandlers::is_empty")]
    pub on_exit: ExitHandlers,
    /// Whether the first failure ends the execution.
    #[serde(default = "yes")]
    pub fail_fast: bool,
    /// Maximum call depth.
    #[serde(default = "ten")]
    pub max_call_depth: u32,
    /// Default retry strategy of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_strategy: Option<RetryStrategy>,
    /// Settings outside the definition.
    #[serde(default)]
    pub settings: WorkflowSettings,
    /// Ids of nodes that could not be parsed, so that references to them remain valid.
    #[serde(skip)]
    pub(super) unread: Vec<String>,
    /// The `display` settings as written: not stored in plans.
    #[serde(skip)]
    pub(super) display: Option<Node>,
    #[serde(skip)]
    pub(super) places: KeySpans,
}

/// Settings of the application file next to the definition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkflowSettings {
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Default timeout of a node, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_node_timeout_seconds: Option<f64>,
    /// Timeout of the whole execution, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_workflow_execution_time_seconds: Option<f64>,
    /// Seconds to wait for cancelled agents; kept as written and reported as having no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_cancellation_timeout_seconds: Option<f64>,
    /// Default limit of the items of a map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_max_map_items: Option<u32>,
}

/// Exit handlers, by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitHandlers {
    /// Node that runs after any outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always: Option<String>,
    /// After success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_success: Option<String>,
    /// After a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<String>,
    /// After a cancellation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_cancel: Option<String>,
}

impl ExitHandlers {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the handlers in the order in which they run.
    pub fn handlers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            ("always", &self.always),
            ("on_success", &self.on_success),
            ("on_failure", &self.on_failure),
            ("on_cancel", &self.on_cancel),
        ]
        .into_iter()
        .filter_map(|(name, id)| id.as_deref().map(|id| (name, id)))
    }
}

/// Retries after a failed attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RetryStrategy {
    /// Maximum number of retries; 3 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Failures that are retried; `OnFailure` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<String>,
    /// Delay between attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<RetryBackoff>,
}

/// Delay between attempts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RetryBackoff {
    /// Delay before the first retry; one second by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Value>,
    /// Factor between two delays; 2 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// Maximum delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<Value>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeDef {
    /// Its id.
    pub id: String,
    /// Operation of the node.
    #[serde(flatten)]
    pub work: Work,
    /// Nodes that it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// Condition for running the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Whether dependents run after a failure of the node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continue_on_error: bool,
    /// Node that runs after a failure of the node, instead of its other dependents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<String>,
    #[serde(skip)]
    pub(super) places: KeySpans,
}

impl NodeDef {
    /// Returns whether the execution continues after a failure of the node.
    pub const fn handles_failure(&self) -> bool {
        self.continue_on_error || self.on_error.is_some()
    }

    /// Returns the nodes that only selected outcomes of the node lead to, with the names of their
    /// keys.
    pub fn targets(&self) -> Vec<(String, &str)> {
        let on_error = self.on_error.as_deref().map(|id| ("on_error".to_owned(), id));
        self.work.targets().into_iter().chain(on_error).collect()
    }
}

/// Operation of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Work {
    /// Calls an agent.
    Agent {
        /// Name of the agent.
        agent_name: String,
        /// Options of the call.
        #[serde(flatten)]
        call: Call,
    },
    /// Calls another workflow.
    Workflow {
        /// Name of the workflow.
        workflow_name: String,
        /// Options of the call.
        #[serde(flatten)]
        call: Call,
    },
    /// Selects one of two branches.
    Conditional {
        /// The condition.
        condition: String,
        /// Branch if it holds.
        true_branch: String,
        /// Branch if it does not hold.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        false_branch: Option<String>,
    },
    /// Selects the first branch whose condition holds.
    Switch {
        /// Cases in order.
        cases: Vec<Case>,
        /// Branch if no case holds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        default: Option<String>,
    },
    /// Runs a node for every item of a list.
    Map {
        /// The items, whichever key they were written under.
        items: Value,
        /// The node.
        node: String,
        /// Maximum number of items; more are an error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_items: Option<u32>,
        /// Maximum number of concurrent items.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        concurrency_limit: Option<u32>,
        /// Count or percentage of items that may fail.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tolerate: Option<Value>,
    },
    /// Calls several agents concurrently.
    Fork {
        /// Branches in order.
        branches: Vec<Branch>,
        /// Whether the first failure stops the others.
        #[serde(default = "yes")]
        fail_fast: bool,
    },
    /// Waits for several nodes.
    Join {
        /// Ids of the nodes.
        wait_for: Vec<String>,
        /// Number of nodes to wait for.
        #[serde(default)]
        strategy: Strategy,
        /// Count for `n_of_m`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        n: Option<u32>,
    },
    /// Runs a node repeatedly.
    Loop {
        /// The node.
        node: String,
        /// Condition for another iteration.
        condition: String,
        /// Maximum number of iterations.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_iterations: Option<u32>,
        /// Delay between two iterations.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delay: Option<Value>,
    },
    /// Asks people for a decision.
    Approval(Approval),
    /// Continues later.
    Sleep(Sleep),
}

/// Options of a call of an agent or a workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Template of the input; `None` = derived from the dependencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Instruction text, with templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// Schema of the input instead of the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema_override: Option<Value>,
    /// Schema of the output instead of the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema_override: Option<Value>,
    /// Retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_strategy: Option<RetryStrategy>,
    /// Timeout of one attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Value>,
}

/// A case of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// The condition.
    pub condition: String,
    /// The target node.
    pub node: String,
}

/// A branch of a fork.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Branch {
    /// Its id.
    pub id: String,
    /// Agent to call.
    pub agent_name: String,
    /// Template of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Key of its output in the fork's output.
    pub output_key: String,
    #[serde(skip)]
    pub(super) places: KeySpans,
}

/// Number of nodes that a join waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Every one.
    #[default]
    All,
    /// The first.
    Any,
    /// The first `n`.
    NOfM,
}

impl Strategy {
    /// Returns the name used in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Any => "any",
            Self::NOfM => "n_of_m",
        }
    }
}

impl Work {
    /// Returns the type name used in files.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Agent { .. } => "agent",
            Self::Workflow { .. } => "workflow",
            Self::Conditional { .. } => "conditional",
            Self::Switch { .. } => "switch",
            Self::Map { .. } => "map",
            Self::Fork { .. } => "fork",
            Self::Join { .. } => "join",
            Self::Loop { .. } => "loop",
            Self::Approval(_) => "approval",
            Self::Sleep(_) => "sleep",
        }
    }

    /// Returns the call options of an agent or workflow node.
    pub const fn call(&self) -> Option<&Call> {
        match self {
            Self::Agent { call, .. } | Self::Workflow { call, .. } => Some(call),
            _ => None,
        }
    }

    /// Returns the node that a map or loop runs.
    pub fn body(&self) -> Option<&str> {
        match self {
            Self::Map { node, .. } | Self::Loop { node, .. } => Some(node),
            _ => None,
        }
    }

    /// Returns the branch targets, with the names of their keys.
    pub fn targets(&self) -> Vec<(String, &str)> {
        match self {
            Self::Conditional { true_branch, false_branch, .. } => {
                std::iter::once(("true_branch", true_branch))
                    .chain(false_branch.iter().map(|id| ("false_branch", id)))
                    .map(|(key, id)| (key.to_owned(), id.as_str()))
                    .collect()
            }
            Self::Switch { cases, default } => cases
                .iter()
                .enumerate()
                .map(|(n, case)| (format!("cases[{n}].node"), case.node.as_str()))
                .chain(default.iter().map(|id| ("default".to_owned(), id.as_str())))
                .collect(),
            Self::Approval(approval) => approval.targets(),
            _ => Vec::new(),
        }
    }
}

/// Spans in the file, by key (`id`, `depends_on[1]`, `cases[0].node`).
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct KeySpans {
    /// The whole object.
    pub(super) whole: Span,
    /// Its values.
    pub(super) keys: BTreeMap<String, Span>,
    /// Values that are checked at their tokens: templates, conditions and schemas.
    pub(super) values: BTreeMap<String, Node>,
}

impl KeySpans {
    /// Returns a value as written.
    pub(super) fn value(&self, key: &str) -> Option<&Node> {
        self.values.get(key)
    }

    /// Returns the span of a key, or else of the whole object.
    pub(super) fn of(&self, key: &str) -> Span {
        self.keys.get(key).copied().unwrap_or(self.whole)
    }
}

fn first_version() -> String {
    "1.0.0".to_owned()
}

const fn yes() -> bool {
    true
}

const fn ten() -> u32 {
    10
}
