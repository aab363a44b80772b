//! Entries of `tools` in `run: model:`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sinew_protocol::catalogue::Stage;

use super::ByteSize;
use crate::file_time::Time;

/// One or more tools. Exactly one of `peer`, `workflow`, `discover`, `mcp`, `script`, `builtin` and
/// `request` is required.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolEntry {
    /// Other agents: a name, a pattern such as `Price*`, or `{skill: ID}`.
    pub(crate) peer: Option<PeerSelector>,
    /// Name of a workflow that is deployed on the mesh.
    pub(crate) workflow: Option<String>,
    /// Agents and workflows that the model finds with the tool `find_tools` and calls with
    /// `call_tool`. The other settings of the entry apply to each tool that it finds.
    pub(crate) discover: Option<DiscoverEntry>,
    /// Name of an MCP server, the prefix of its tools. Requires `command` or `url`, and `allow`.
    pub(crate) mcp: Option<String>,
    /// A Python function that runs in a sandbox.
    pub(crate) script: Option<ScriptTool>,
    /// Built-in tools: `artifacts`, `time` and `ask_person`.
    pub(crate) builtin: Option<Vec<BuiltinName>>,
    /// Tools that the calling node may request, limited to those listed here.
    pub(crate) request: Option<RequestTools>,
    /// Name of the tool for the model. Letters, digits, `_` and `-`, at most 64 characters.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,64}$"))]
    pub(crate) r#as: Option<String>,
    /// Whether a call has side effects, and whether it is repeatable: `read`, `repeat` or `once`.
    /// Default: `read` for scripts, `once` for MCP servers, `repeat` for peers, workflows and
    /// discovered tools, which cannot be `read`.
    pub(crate) effect: Option<EffectName>,
    /// Whether results may contain untrusted text: `own` or `open`. Default: `own` for scripts and
    /// workflows, `open` for peers, MCP servers and discovered tools, whose descriptions are untrusted
    /// then, too.
    pub(crate) trust: Option<TrustName>,
    /// Whether a person must approve a call: `true`, `false` (default), or `{people, timeout,
    /// when}`.
    pub(crate) approve: Option<ApproveEntry>,
    /// After a rejection by a person: `continue` (default), or `fail`, which makes it binding.
    pub(crate) on_reject: Option<crate::rejection::RejectionRule>,
    /// Maximum number of calls in a conversation. Default: no limit except `budget.tool_calls`.
    #[schemars(range(min = 1))]
    pub(crate) limit: Option<u32>,
    /// Time limit of a call. Default: `2m`.
    pub(crate) timeout: Option<Time>,
    /// Maximum size of a result in the conversation, such as `64KiB`. Default: `16KiB`.
    pub(crate) max_result: Option<ByteSize>,
    /// Program of an MCP server and its arguments, such as `[mcp-server-filesystem, ./docs]`,
    /// passed literally without a shell.
    pub(crate) command: Option<Vec<String>>,
    /// Environment variables of an MCP server, in addition to PATH, HOME and LANG. Values may
    /// contain `${env:NAME}`.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Working directory of an MCP server, relative to the agent file.
    pub(crate) cwd: Option<String>,
    /// URL of an MCP server, such as `https://mcp.example.com/mcp`.
    pub(crate) url: Option<String>,
    /// Headers of requests to an MCP server. Values may contain `${env:NAME}`.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Tools of the MCP server that the model may call: names, patterns such as `list_*`, or
    /// objects with settings. The first match applies.
    pub(crate) allow: Option<Vec<AllowEntry>>,
    /// Lifetime of an MCP server: one for each `task` (default), or one for the `agent`.
    pub(crate) lifetime: Option<ServerLifetime>,
    /// Whether `readOnlyHint` and `idempotentHint` of the MCP server set the `effect` of its tools.
    /// Default: false.
    pub(crate) trust_hints: Option<bool>,
    /// Whether `command` may be `npx` or `uvx`, which download the program. Default: false.
    pub(crate) allow_download: Option<bool>,
    /// Whether the host of the MCP server may resolve to private, loopback and other
    /// special-purpose addresses. Default: false.
    pub(crate) allow_private: Option<bool>,
    /// Command prefix that runs an MCP server in a sandbox, such as `[bwrap, --unshare-net]`.
    pub(crate) sandbox: Option<Vec<String>>,
}

/// Agents by name, pattern or skill.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum PeerSelector {
    /// Name of an agent, or a pattern with `*`.
    Name(String),
    /// Agents that have a skill.
    Skill(SkillSelector),
}

/// Agents that have a skill.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkillSelector {
    /// Id or tag of the skill.
    pub(crate) skill: String,
}

/// Which agents and workflows a model may find.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiscoverEntry {
    /// Names of agents and workflows, or patterns such as `orders-*`. Of several entries, the first
    /// that matches applies.
    #[schemars(length(min = 1, max = 64))]
    pub(crate) r#match: Vec<String>,
    /// Which kinds are found. Default: both.
    pub(crate) kinds: Option<Vec<DiscoverKind>>,
    /// Which stages are found. Default: `[stable, experimental]`.
    pub(crate) stages: Option<Vec<Stage>>,
    /// Maximum number of tools that a search returns, from 1 to 10. Default: 5.
    #[schemars(range(min = 1, max = 10))]
    pub(crate) max: Option<u8>,
}

/// Kind of an entry that a model may find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DiscoverKind {
    /// Agents that process tasks themselves.
    Agent,
    /// Workflows.
    Workflow,
}

/// A Python function as a tool.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptTool {
    /// Name of the tool for the model. Letters, digits, `_` and `-`, at most 64 characters.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,64}$"))]
    pub(crate) name: String,
    /// What the tool does, for the model.
    #[serde(default)]
    pub(crate) description: String,
    /// JSON Schema of the arguments. Default: an object without members.
    pub(crate) input_schema: Option<Value>,
    /// Python source. Its first function is called with the arguments as one object.
    pub(crate) source: String,
}

/// A built-in tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BuiltinName {
    /// List, read and write artifacts of the task.
    Artifacts,
    /// Get the current time.
    Time,
    /// Ask a person a question.
    AskPerson,
}

/// Tools that the calling node may request.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RequestTools {
    /// Agents that a node may request: names, or patterns such as `Price*`.
    pub(crate) peers: Vec<String>,
    /// MCP servers of this file whose tools are available only to nodes that request the server.
    pub(crate) mcp: Vec<String>,
    /// Whether sub-agents of this agent in a graph are tools whose calls are nested conversations.
    /// Default: false, in which case the engine calls them.
    pub(crate) subagents: bool,
}

/// Side effects of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EffectName {
    /// The tool has no side effects.
    Read,
    /// A repeated call is idempotent: the receiver deduplicates it by its key.
    Repeat,
    /// A repeated call repeats its side effects. Calls are made at most once, one at a time.
    Once,
}

/// Whether results of a tool may contain untrusted text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TrustName {
    /// Results contain only text that the agent's owner trusts.
    Own,
    /// Results may contain untrusted text.
    Open,
}

/// Whether a person must approve a call.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ApproveEntry {
    /// Whether every call needs approval.
    Always(bool),
    /// Approval under a condition, or by certain people.
    When(ApproveRule),
}

/// Which calls a person must approve, and who may decide.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ApproveRule {
    /// People who may decide. Default: anyone who may answer approvals.
    pub(crate) people: Vec<String>,
    /// Time limit of the decision, after which the call is rejected. Default: `1h`.
    pub(crate) timeout: Option<Time>,
    /// Python expression over `args` that is true for calls that need approval, such as
    /// `args["amount"] > 100`. Default: all calls.
    pub(crate) when: Option<String>,
}

/// A tool of an MCP server that the model may call.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum AllowEntry {
    /// Name of a tool, or a pattern with `*`.
    Name(String),
    /// A name or pattern with settings.
    Tool(AllowedTool),
}

/// A tool of an MCP server, with settings.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AllowedTool {
    /// Name of the tool, or a pattern with `*`.
    pub(crate) name: String,
    /// Whether a call has side effects, and whether it is repeatable. Default: the `effect` of the
    /// enclosing entry.
    pub(crate) effect: Option<EffectName>,
    /// Whether results may contain untrusted text. Default: the `trust` of the enclosing entry.
    pub(crate) trust: Option<TrustName>,
    /// Whether a person must approve a call. Default: the `approve` of the enclosing entry.
    pub(crate) approve: Option<ApproveEntry>,
    /// Maximum number of calls in a conversation. Default: the `limit` of the enclosing entry.
    #[schemars(range(min = 1))]
    pub(crate) limit: Option<u32>,
}

/// Lifetime of an MCP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ServerLifetime {
    /// One program or connection for each task.
    Task,
    /// One program or connection for all tasks of the agent.
    Agent,
}
