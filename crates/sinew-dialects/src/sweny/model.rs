//! A workflow in the file and in the plan.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The file, after validation of its form.
#[derive(Deserialize)]
pub(super) struct Workflow {
    pub(super) id: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: String,
    pub(super) entry: String,
    pub(super) nodes: IndexMap<String, FileNode>,
    pub(super) edges: Vec<FileEdge>,
    #[serde(default)]
    pub(super) skills: IndexMap<String, Skill>,
    #[serde(default)]
    pub(super) rules: Vec<Source>,
    #[serde(default)]
    pub(super) context: Vec<Source>,
    #[serde(default)]
    pub(super) inputs: Option<IndexMap<String, InputField>>,
    /// Input that a message of plain text fills.
    pub(super) text_input: Option<String>,
    pub(super) model: Option<String>,
    pub(super) judge_model: Option<String>,
    pub(super) judge_budget: Option<u64>,
    pub(super) max_steps: Option<f64>,
    /// Version from the author, which the format ignores.
    #[serde(default)]
    pub(super) version: Value,
}

/// A node of the file.
#[derive(Deserialize)]
pub(super) struct FileNode {
    pub(super) name: String,
    pub(super) instruction: Source,
    #[serde(default)]
    pub(super) rules: Option<NodeSources>,
    #[serde(default)]
    pub(super) context: Option<NodeSources>,
    #[serde(default)]
    pub(super) eval_policy: Option<String>,
    #[serde(flatten)]
    pub(super) work: Work,
}

/// Plan data of a node, as in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Work {
    #[serde(default)]
    pub(super) skills: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max_turns: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) disallowed_tools: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tools: Option<ToolFilter>,
    #[serde(default)]
    pub(super) fail_soft: bool,
    #[serde(default)]
    pub(super) eval: Vec<Evaluator>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) judge_model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) requires: Option<NodeRequirements>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) retry: Option<Retry>,
}

impl Work {
    /// Returns the output's declared properties; `None` if it declares none.
    pub(super) fn declared(&self) -> Option<&Map<String, Value>> {
        let declared = self.output.as_ref()?.get("properties")?.as_object()?;
        (!declared.is_empty()).then_some(declared)
    }
}

/// Data of a node for the adapter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct NodeExtra {
    /// The resolved instruction.
    pub(super) instruction: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rules: Option<ResolvedTexts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<ResolvedTexts>,
    #[serde(flatten)]
    pub(super) work: Work,
}

/// Data of the workflow for the adapter.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PlanExtra {
    pub(super) id: String,
    pub(super) rules: Vec<String>,
    pub(super) context: Vec<String>,
    /// Every source by its position, for the trace.
    pub(super) sources: Map<String, Value>,
    pub(super) skills: IndexMap<String, Skill>,
    /// Missing configuration of skills, one line each.
    pub(super) missing_config: Vec<String>,
    pub(super) inputs: Option<IndexMap<String, InputField>>,
    /// Maximum number of node visits.
    pub(super) max_steps: u32,
    pub(super) agents: AgentRoles,
    /// Model of routing, and default model of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
}

/// Agents by kind of work.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AgentRoles {
    pub(super) route: String,
    pub(super) judge: String,
    pub(super) reflect: String,
}

/// Resolved sources of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ResolvedTexts {
    /// Whether it inherits no rules and no context.
    pub(super) only: bool,
    pub(super) texts: Vec<String>,
}

/// An edge of the file.
#[derive(Deserialize)]
pub(super) struct FileEdge {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) when: Option<String>,
    pub(super) max_iterations: Option<f64>,
}

/// A source to read: inline text, a file or a URL.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Source {
    Text(String),
    Inline { inline: String },
    File { file: String },
    Url { url: String },
}

/// Sources of a node.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum NodeSources {
    Added(Vec<Source>),
    Given {
        #[serde(default)]
        only: bool,
        sources: Vec<Source>,
    },
}

/// Parts of a skill for the nodes that list it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Skill {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) instruction: Option<String>,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(super) mcp: Value,
    /// Declarations; the agent that does the work has the handlers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<Value>,
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub(super) config: IndexMap<String, ConfigField>,
    /// Other names under which a tool's calls may appear.
    #[serde(rename = "mcpAliases", skip_serializing_if = "IndexMap::is_empty")]
    pub(super) mcp_aliases: IndexMap<String, Vec<String>>,
}

impl Skill {
    /// Returns whether it provides anything to a node.
    pub(super) fn gives(&self) -> bool {
        self.instructs() || !self.mcp.is_null() || !self.tools.is_empty()
    }

    fn instructs(&self) -> bool {
        self.instruction.as_ref().is_some_and(|text| !text.trim().is_empty())
    }
}

/// A configuration value that a skill needs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ConfigField {
    pub(super) required: bool,
    pub(super) env: Option<String>,
}

/// A declared input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct InputField {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) required: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) default: Option<Value>,
    #[serde(default, rename = "enum", skip_serializing_if = "Option::is_none")]
    pub(super) words: Option<Vec<Value>>,
}

/// The tools of its skills that a node receives.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ToolFilter {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) allow: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) deny: Vec<String>,
}

impl ToolFilter {
    /// Checks allowed tools first, then denied ones; denied takes precedence.
    pub(super) fn passes(&self, tool: &str) -> bool {
        let allowed = self.allow.as_ref().is_none_or(|allow| allow.iter().any(|name| name == tool));
        allowed && !self.deny.iter().any(|name| name == tool)
    }
}

/// An evaluator of a node's result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Evaluator {
    pub(super) name: String,
    pub(super) kind: EvalKind,
    #[serde(default)]
    pub(super) rule: EvalRule,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rubric: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pass_when: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
}

/// Subject of an evaluator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum EvalKind {
    /// The data.
    Value,
    /// The called tools.
    Function,
    /// Both, through a model.
    Judge,
}

impl EvalKind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Function => "function",
            Self::Judge => "judge",
        }
    }
}

/// Rules that must all hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct EvalRule {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) any_tool_called: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) all_tools_called: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) no_tool_called: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) output_required: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) output_matches: Vec<OutputMatch>,
}

/// A check of the values at a path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OutputMatch {
    pub(super) path: String,
    #[serde(flatten)]
    pub(super) test: MatchTest,
}

/// The test of a value.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MatchTest {
    Equals(Value),
    In(Vec<Value>),
    Matches(String),
}

/// Rules that must hold before a node runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct NodeRequirements {
    #[serde(default)]
    pub(super) output_required: Vec<String>,
    #[serde(default)]
    pub(super) output_matches: Vec<OutputMatch>,
    #[serde(default)]
    pub(super) on_fail: OnFail,
}

/// Treatment of a node whose requirements do not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnFail {
    #[default]
    Fail,
    Skip,
}

/// Retries after a failed evaluation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Retry {
    pub(super) max: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) instruction: Option<Hint>,
}

/// First part of a retry's instruction.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Hint {
    Text(String),
    Reflect { reflect: String },
    Auto { auto: bool },
}
