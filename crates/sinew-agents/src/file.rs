//! The format of an agent file, `NAME.agent.yaml`.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::file_time::Time;
use crate::mcp_file::McpFile;
use crate::model_file::ModelFile;
use crate::offer_file::OfferFile;

/// A ready-made agent: its card and how it runs.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Sinew agent file")]
pub(crate) struct AgentFile {
    /// Name under which workflows and peers call the agent.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,64}$"))]
    pub(crate) name: String,
    /// Version of the agent, shown on its card.
    #[serde(default = "default_version")]
    pub(crate) version: String,
    /// Purpose of the agent; read by people and by models that choose a peer.
    #[serde(default)]
    pub(crate) description: String,
    /// Skills of the agent.
    #[serde(default)]
    pub(crate) skills: Vec<Skill>,
    /// JSON Schema of the input; checked before the agent runs.
    pub(crate) input_schema: Option<Value>,
    /// JSON Schema of the output; checked after the agent ran.
    pub(crate) output_schema: Option<Value>,
    /// How the agent runs: exactly one of script, command, http, mcp and model.
    pub(crate) run: Run,
    /// Calls that may run at the same time; further calls wait.
    #[serde(default = "default_concurrency")]
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) concurrency: u32,
    /// Longest time for one call; one minute if left out, for a model 15 minutes.
    pub(crate) timeout: Option<Time>,
    /// How tasks reach the agent on the mesh.
    #[serde(default)]
    pub(crate) delivery: Delivery,
    /// Offer to hosts of the Model Context Protocol; a tool if left out.
    #[serde(default)]
    pub(crate) offer: OfferFile,
}

/// A skill of an agent.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Skill {
    /// Identifier, unique within the agent.
    pub(crate) id: String,
    /// Name for people; the id if left out.
    #[serde(default)]
    pub(crate) name: String,
    /// Description of the skill.
    #[serde(default)]
    pub(crate) description: String,
    /// Words to find it by.
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    /// Example requests.
    #[serde(default)]
    pub(crate) examples: Vec<String>,
}

/// How tasks reach an agent on the mesh.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Delivery {
    /// Through a queue: tasks wait for the agent and survive its death.
    #[default]
    Queue,
    /// Straight to a running agent: lowest latency.
    Direct,
}

/// One of five; a struct instead of an enum, because complaints about a struct say what is wrong.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub(crate) struct Run {
    /// A Python function in the sandbox.
    pub(crate) script: Option<ScriptFile>,
    /// A program on this machine.
    pub(crate) command: Option<CommandFile>,
    /// A request to an HTTP service.
    pub(crate) http: Option<HttpFile>,
    /// Tools of a server of the Model Context Protocol.
    pub(crate) mcp: Option<Box<McpFile>>,
    /// A conversation with a language model.
    pub(crate) model: Option<Box<ModelFile>>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptFile {
    /// The source text: a lambda, or a body whose first function is called with the input.
    pub(crate) source: Option<String>,
    /// A file with the source text, relative to the agent file.
    pub(crate) file: Option<String>,
    /// Longest time for one run; 250 ms if left out.
    pub(crate) timeout: Option<Time>,
}

/// Variables of the environment that a request may name.
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
    /// Program and arguments, taken literally: there is no shell and nothing is filled in.
    #[schemars(length(min = 1))]
    pub(crate) argv: Vec<String>,
    /// Working folder, relative to the agent file; its own folder if left out.
    pub(crate) cwd: Option<String>,
    /// Further environment variables; values may hold `{{input.path}}`, `${env:NAME}`, `${NAME}` and `${NAME, default}`.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Content of the program's standard input.
    #[serde(default)]
    pub(crate) stdin: StdinContent,
    /// Environment variables that `${NAME}` of the request's MCP servers may name, put in at the call: by name, the hosts
    /// that may be sent the value in a header, or `local` for the env of servers that the program starts. A list of names
    /// means `local`.
    #[serde(default)]
    pub(crate) references: ReferenceFile,
    /// Longest time for one run.
    pub(crate) timeout: Option<Time>,
    /// Time between the polite and the final signal when a run is ended.
    #[serde(default = "default_grace")]
    pub(crate) grace: Time,
    /// Most bytes of standard output.
    #[serde(default = "default_max_output")]
    #[schemars(range(min = 1))]
    pub(crate) max_output: u64,
}

/// Content of a command's standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StdinContent {
    /// The input.
    #[default]
    Input,
    /// An object with input, instruction and context.
    Request,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpFile {
    /// Where to send the request; `{{input.path}}` may stand in path and query.
    #[serde(default)]
    pub(crate) url: String,
    /// Whether the input describes the request: `{url, method?, query?, headers?, body?}`. Then the file names no url.
    #[serde(default)]
    pub(crate) from_input: bool,
    /// HTTP method.
    #[serde(default = "default_method")]
    pub(crate) method: String,
    /// Headers; values may hold `{{input.path}}`, `${env:NAME}`, `${NAME}` and `${NAME, default}`.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// The body: JSON whose strings may be `{{input.path}}`, or text in which each `{{input.path}}` becomes JSON;
    /// the whole input if left out.
    pub(crate) body: Option<Value>,
    /// Longest time for one attempt.
    #[serde(default = "default_timeout")]
    pub(crate) timeout: Time,
    /// Retries when the service is busy (429, 5xx) or cannot be reached.
    #[serde(default)]
    pub(crate) retry: RetryFile,
    /// Most bytes of the response.
    #[serde(default = "default_max_output")]
    #[schemars(range(min = 1))]
    pub(crate) max_output: u64,
    /// Whether the host may lead to private, loopback and other special addresses.
    #[serde(default)]
    pub(crate) allow_private: bool,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryFile {
    /// Attempts after the first.
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
