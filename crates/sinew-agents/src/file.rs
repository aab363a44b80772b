//! The format of an agent file, `NAME.agent.yaml`.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sinew_protocol::catalogue::Catalogue;

use crate::file_time::Time;
use crate::mcp_file::McpFile;
use crate::model_file::ModelFile;
use crate::offer_file::OfferFile;

/// An agent file: the card of an agent, and how the agent runs.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Sinew agent file")]
pub(crate) struct AgentFile {
    /// Name by which workflows and other agents call the agent. Letters, digits, `_` and `-`, at
    /// most 64 characters.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,64}$"))]
    pub(crate) name: String,
    /// Version of the agent, shown on its card. Default: `0.1.0`.
    #[serde(default = "default_version")]
    pub(crate) version: String,
    /// Purpose of the agent in one sentence, for people and for models that choose an agent.
    #[serde(default)]
    pub(crate) description: String,
    /// Skills that the card of the agent lists.
    #[serde(default)]
    pub(crate) skills: Vec<Skill>,
    /// JSON Schema of the input. A task whose input does not match is rejected before the agent
    /// runs.
    pub(crate) input_schema: Option<Value>,
    /// JSON Schema of the output. A task whose output does not match fails.
    pub(crate) output_schema: Option<Value>,
    /// How the agent runs: exactly one of `script`, `command`, `http`, `mcp` and `model`.
    pub(crate) run: Run,
    /// Maximum number of concurrent calls in one process, from 1 to 10,000. Further calls wait.
    /// Default: 8.
    #[serde(default = "default_concurrency")]
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) concurrency: u32,
    /// Time limit of a call, without time spent waiting for people. Default: `1m`, for `run:
    /// model:` `15m`.
    pub(crate) timeout: Option<Time>,
    /// How tasks reach the agent on a mesh: `queue` (default) or `direct`.
    #[serde(default)]
    pub(crate) delivery: Delivery,
    /// How the agent is exposed to hosts of the Model Context Protocol. Default: as a tool.
    #[serde(default)]
    pub(crate) offer: OfferFile,
    /// Attributes by which people and models find the agent.
    #[serde(default)]
    pub(crate) catalogue: Catalogue,
}

/// A skill on the card of an agent.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Skill {
    /// Identifier of the skill, unique within the agent.
    pub(crate) id: String,
    /// Display name. Default: the id.
    #[serde(default)]
    pub(crate) name: String,
    /// What the skill does, for people and models.
    #[serde(default)]
    pub(crate) description: String,
    /// Tags by which the skill can be found, such as `[orders, shipping]`.
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    /// Example requests, such as `Where is order A-17?`.
    #[serde(default)]
    pub(crate) examples: Vec<String>,
}

/// How tasks reach an agent on a mesh.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Delivery {
    /// Through a queue: tasks are stored until an agent has completed them.
    #[default]
    Queue,
    /// Directly to a running agent: lowest latency. A task is sent again if the agent dies.
    Direct,
}

/// How the agent runs: exactly one of `script`, `command`, `http`, `mcp` and `model`.
// A struct instead of an enum, because errors about a struct name the invalid key.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub(crate) struct Run {
    /// Run a Python function in a sandbox.
    pub(crate) script: Option<ScriptFile>,
    /// Run a program on the host of the agent, without a shell.
    pub(crate) command: Option<CommandFile>,
    /// Send a request to an HTTP service.
    pub(crate) http: Option<HttpFile>,
    /// Call tools of a Model Context Protocol server.
    pub(crate) mcp: Option<Box<McpFile>>,
    /// Run a conversation with a language model and tools.
    pub(crate) model: Option<Box<ModelFile>>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptFile {
    /// Python source: a lambda, or a module whose first function is called with the input. Either
    /// `source` or `file` is required.
    pub(crate) source: Option<String>,
    /// Path of a file with the Python source, relative to the agent file.
    pub(crate) file: Option<String>,
    /// Time limit of a run. Default: `250ms`.
    pub(crate) timeout: Option<Time>,
}

/// Environment variables that a request may reference: a list of names, or an object from names to
/// allowed hosts.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ReferenceFile {
    Names(Vec<String>),
    Hosts(BTreeMap<String, Vec<String>>),
}

impl Default for ReferenceFile {
    fn default() -> Self {
        Self::Names(Vec::new())
    }
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandFile {
    /// Program and arguments, such as `[convert, --quiet]`. They are passed literally: no shell, no
    /// templates.
    #[schemars(length(min = 1))]
    pub(crate) argv: Vec<String>,
    /// Working directory, relative to the agent file. Default: the directory of the agent file.
    pub(crate) cwd: Option<String>,
    /// Environment variables of the program, in addition to PATH, HOME and LANG. Values may contain
    /// `{{input.path}}`, `${env:NAME}`, `${NAME}` and `${NAME, default}`.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Content of standard input: `input` (default) or `request`.
    #[serde(default)]
    pub(crate) stdin: StdinContent,
    /// Environment variables that MCP servers in the request may reference as `${NAME}`, resolved
    /// when the program is called. An object maps each name to the hosts that may receive its value
    /// in a header, or to `local` for the `env` of servers that the program starts: `{API_TOKEN:
    /// [api.example.com]}`. A list of names is the same as `local` for each.
    #[serde(default)]
    pub(crate) references: ReferenceFile,
    /// Time limit of a run, within the `timeout` of the agent.
    pub(crate) timeout: Option<Time>,
    /// Time between SIGTERM and SIGKILL when a run is terminated. Default: `2s`.
    #[serde(default = "default_grace")]
    pub(crate) grace: Time,
    /// Maximum size of standard output, in bytes. Default: 4194304 (4 MiB).
    #[serde(default = "default_max_output")]
    #[schemars(range(min = 1))]
    pub(crate) max_output: u64,
}

/// Content of the command's standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StdinContent {
    /// The input as JSON.
    #[default]
    Input,
    /// A JSON object with `input`, `instruction` and `context`.
    Request,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpFile {
    /// URL of the request. Path and query may contain `{{input.path}}`:
    /// `https://api.example.com/orders/{{input.id}}`.
    #[serde(default)]
    pub(crate) url: String,
    /// Whether the input is the request: `{url, method?, query?, headers?, body?}`. Omit `url`
    /// then. Default: false.
    #[serde(default)]
    pub(crate) from_input: bool,
    /// HTTP method. Default: `POST`.
    #[serde(default = "default_method")]
    pub(crate) method: String,
    /// Request headers. Values may contain `{{input.path}}`, `${env:NAME}`, `${NAME}` and `${NAME,
    /// default}`.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Request body: JSON in which a string may be `{{input.path}}`, or text in which each
    /// `{{input.path}}` is inserted as JSON. Default: the whole input.
    pub(crate) body: Option<Value>,
    /// Time limit of one attempt. Default: `1m`.
    #[serde(default = "default_timeout")]
    pub(crate) timeout: Time,
    /// Retries if the service is overloaded (429, 5xx) or unreachable.
    #[serde(default)]
    pub(crate) retry: RetryFile,
    /// Maximum size of the response, in bytes. Default: 4194304 (4 MiB).
    #[serde(default = "default_max_output")]
    #[schemars(range(min = 1))]
    pub(crate) max_output: u64,
    /// Whether the host may resolve to private, loopback and other special-purpose addresses.
    /// Default: false.
    #[serde(default)]
    pub(crate) allow_private: bool,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryFile {
    /// Maximum number of retries after the first attempt, at most 100. Default: 0.
    #[serde(default)]
    #[schemars(range(max = 100))]
    pub(crate) limit: u32,
}

/// Returns the JSON Schema of agent files, for editors and for validation when a file is loaded.
pub fn agent_file_schema() -> Value {
    schemars::schema_for!(AgentFile).into()
}

fn default_version() -> String {
    "0.1.0".to_owned()
}

fn default_concurrency() -> u32 {
    8
}

fn default_timeout() -> Time {
    Time(Duration::from_mins(1))
}

fn default_grace() -> Time {
    Time(Duration::from_secs(2))
}

fn default_max_output() -> u64 {
    4 * 1024 * 1024
}

fn default_method() -> String {
    "POST".to_owned()
}
