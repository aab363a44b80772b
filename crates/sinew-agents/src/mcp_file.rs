//! The format of `run: mcp:`, an agent from the tools of a Model Context Protocol server.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::file_time::Time;

/// A server whose tools are called; exactly one of command and url says where it is.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct McpFile {
    /// Program of the server and its arguments, taken literally: there is no shell. It is started for each task.
    #[schemars(length(min = 1))]
    pub(crate) command: Option<Vec<String>>,
    /// Further environment variables of the program; values may hold `${env:NAME}`.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Working folder of the program, relative to the agent file; its own folder if left out.
    pub(crate) cwd: Option<String>,
    /// Address of the server.
    pub(crate) url: Option<String>,
    /// Headers of requests to the address; values may hold `${env:NAME}`.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Whether the address may lead to private, loopback and other special addresses.
    #[serde(default)]
    pub(crate) allow_private: bool,
    /// The only tool of the agent: its arguments are the input. Without it, the input is an object with the name of the tool as
    /// `tool`, and its `arguments`.
    pub(crate) tool: Option<String>,
    /// Tools that may be called; `*` stands for any text. All if left out.
    #[serde(default)]
    pub(crate) allow: Vec<String>,
    /// Longest time for one call of a tool.
    pub(crate) timeout: Option<Time>,
}
