//! The format of `run: mcp:`, an agent from the tools of a Model Context Protocol server.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::file_time::Time;

/// An MCP server whose tools the agent calls. Exactly one of `command` and `url` is required.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct McpFile {
    /// Program of the server and its arguments, such as `[mcp-server-time, --utc]`, passed
    /// literally without a shell. It is started for each task.
    #[schemars(length(min = 1))]
    pub(crate) command: Option<Vec<String>>,
    /// Environment variables of the program, in addition to PATH, HOME and LANG. Values may contain
    /// `${env:NAME}`.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Working directory of the program, relative to the agent file. Default: the directory of the
    /// agent file.
    pub(crate) cwd: Option<String>,
    /// URL of the server, such as `https://mcp.example.com/mcp`.
    pub(crate) url: Option<String>,
    /// Headers of requests to `url`. Values may contain `${env:NAME}`.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Whether the host may resolve to private, loopback and other special-purpose addresses.
    /// Default: false.
    #[serde(default)]
    pub(crate) allow_private: bool,
    /// Name of the one tool that the agent calls with its input as arguments. If omitted, the input
    /// names the tool: `{tool, arguments}`.
    pub(crate) tool: Option<String>,
    /// Tools that may be called: names, or patterns in which `*` matches any text. Default: all.
    #[serde(default)]
    pub(crate) allow: Vec<String>,
    /// Time limit of one tool call, within the `timeout` of the agent.
    pub(crate) timeout: Option<Time>,
}
