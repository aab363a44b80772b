//! A workflow as its author means it: one shape for both vocabularies, aliases resolved.
//!
//! It serialises to what a plan carries as `extra` (and an agent card as its configuration): keys as the current
//! vocabulary writes them, only what the author gave.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_source::{Node, Span};

/// A workflow, without its nodes' engine side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkflowDefinition {
    /// Purpose of the workflow, for people and models.
    pub description: String,
    /// The author's version.
    #[serde(default = "first_version")]
    pub version: String,
    /// JSON Schema of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// JSON Schema of the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The nodes, in file order. In a plan each node carries its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeDef>,
    /// Template of the output.
    #[serde(default)]
    pub output_mapping: Value,
    /// Skills for the agent card.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<Value>,
    /// Nodes that run at the end.
    #[serde(default, skip_serializing_if = "ExitHandlers::is_empty")]
    pub on_exit: ExitHandlers,
    /// Whether the first failure ends everything.
    #[serde(default = "yes")]
    pub fail_fast: bool,
    /// Depth of calls it takes part in.
    #[serde(default = "ten")]
    pub max_call_depth: u32,
    /// Retry strategy of nodes that have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_strategy: Option<RetryStrategy>,
    /// Settings around the definition.
    #[serde(default)]
    pub settings: WorkflowSettings,
    /// Ids of nodes that could not be read, so that others may still name them.
    #[serde(skip)]
    pub(super) unread: Vec<String>,
    /// How people see it, as written: not a part of what a plan carries.
    #[serde(skip)]
    pub(super) display: Option<Node>,
    #[serde(skip)]
    pub(super) places: KeySpans,
}

/// Settings of the application file beside the definition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkflowSettings {
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Seconds a node may take that has no timeout of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_node_timeout_seconds: Option<f64>,
    /// Seconds the whole execution may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_workflow_execution_time_seconds: Option<f64>,
    /// Seconds to wait for agents that were told to stop; kept as written, and warned of: nothing waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_cancellation_timeout_seconds: Option<f64>,
    /// Items of a map that has no limit of its own.
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

    /// The handlers in the order in which they run.
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

/// New attempts after a failed one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RetryStrategy {
    /// How many; 3 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// After which failures; `OnFailure` when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<String>,
    /// How long to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<RetryBackoff>,
}

/// How long to wait between attempts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RetryBackoff {
    /// Before the first new attempt; one second when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Value>,
    /// Factor between two waits; 2 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// The longest wait.
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
    /// Nodes it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// It runs only if this holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    #[serde(skip)]
    pub(super) places: KeySpans,
}

/// Operation of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Work {
    /// Asks an agent.
    Agent {
        /// Which one.
        agent_name: String,
        /// How.
        #[serde(flatten)]
        call: Call,
    },
    /// Asks another workflow.
    Workflow {
        /// Which one.
        workflow_name: String,
        /// How.
        #[serde(flatten)]
        call: Call,
    },
    /// One of two branches.
    Conditional {
        /// Decides.
        condition: String,
        /// If it holds.
        true_branch: String,
        /// If it does not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        false_branch: Option<String>,
    },
    /// The first branch whose condition holds.
    Switch {
        /// In order.
        cases: Vec<Case>,
        /// If none does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        default: Option<String>,
    },
    /// A node for every item of a list.
    Map {
        /// Where the items come from, whichever key it was written under.
        items: Value,
        /// The node.
        node: String,
        /// More items are an error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_items: Option<u32>,
        /// Items worked on at the same time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        concurrency_limit: Option<u32>,
    },
    /// Several agents at once.
    Fork {
        /// In order.
        branches: Vec<Branch>,
        /// Whether the first failure stops the others.
        #[serde(default = "yes")]
        fail_fast: bool,
    },
    /// Waits for several nodes.
    Join {
        /// Which.
        wait_for: Vec<String>,
        /// For how many of them.
        #[serde(default)]
        strategy: Strategy,
        /// For `n_of_m`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        n: Option<u32>,
    },
    /// A node again and again.
    Loop {
        /// The node.
        node: String,
        /// Goes on while this holds.
        condition: String,
        /// At most so often.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_iterations: Option<u32>,
        /// Wait between two iterations.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delay: Option<Value>,
    },
}

/// How an agent or a workflow is asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Template of the input; none = worked out from the dependencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Instruction in words, with templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// Schema of the input instead of the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema_override: Option<Value>,
    /// Schema of the output instead of the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema_override: Option<Value>,
    /// New attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_strategy: Option<RetryStrategy>,
    /// How long one attempt may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Value>,
}

/// A case of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// When it is taken.
    pub condition: String,
    /// Where it leads.
    pub node: String,
}

/// A branch of a fork.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Branch {
    /// Its id.
    pub id: String,
    /// Agent that is asked.
    pub agent_name: String,
    /// Template of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Key of its output in the fork's output.
    pub output_key: String,
    #[serde(skip)]
    pub(super) places: KeySpans,
}

/// How many nodes a join waits for.
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
    /// As files write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Any => "any",
            Self::NOfM => "n_of_m",
        }
    }
}

impl Work {
    /// The type, as files write it.
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
        }
    }

    /// How an agent or a workflow is asked, where this does.
    pub const fn call(&self) -> Option<&Call> {
        match self {
            Self::Agent { call, .. } | Self::Workflow { call, .. } => Some(call),
            _ => None,
        }
    }

    /// The node that a map or loop runs.
    pub fn body(&self) -> Option<&str> {
        match self {
            Self::Map { node, .. } | Self::Loop { node, .. } => Some(node),
            _ => None,
        }
    }

    /// Branch targets, with the name of the key they stand under.
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
            _ => Vec::new(),
        }
    }
}

/// Where things stand in the file, by key (`id`, `depends_on[1]`, `cases[0].node`).
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct KeySpans {
    /// The whole object.
    pub(super) whole: Span,
    /// Its values.
    pub(super) keys: BTreeMap<String, Span>,
}

impl KeySpans {
    /// The place of a key, else of the whole.
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
