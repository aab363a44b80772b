//! The format of `run: model:` in an agent file.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};

use crate::file_time::Time;

/// An agent that calls a language model.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelFile {
    /// Aliases of models: the first answers, the others take over when it does not.
    #[schemars(length(min = 1, max = 8))]
    pub(crate) r#use: Vec<String>,
    /// Models by alias, beside those of the file `models.yaml` in the same folder.
    pub(crate) models: Option<BTreeMap<String, ModelEntry>>,
    /// Classes of refusals after which the next model is asked.
    #[serde(default = "default_fallback")]
    pub(crate) fallback_on: Vec<FallbackClass>,
    /// System text. May hold `{{agent.name}}`, `{{agent.description}}`, `{{now.date}}`, `{{now.time}}`,
    /// `{{now.weekday}}`, `{{workflow}}`, `{{node}}` and `{{skills}}`, never the input.
    pub(crate) instruction: Option<String>,
    /// File with the system text, relative to the agent file.
    pub(crate) instruction_file: Option<String>,
    /// Folders with a `SKILL.md`, relative to the agent file.
    #[serde(default)]
    pub(crate) skills: Vec<String>,
    /// Few-shot turns before the input.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub(crate) examples: Vec<ExampleEntry>,
    /// Tools that the model may call; none but these.
    #[serde(default)]
    #[schemars(length(max = 128))]
    pub(crate) tools: Vec<ToolEntry>,
    /// Form of the output.
    #[serde(default)]
    pub(crate) output: OutputEntry,
    /// Limits of a conversation, over all attempts.
    #[serde(default)]
    pub(crate) budget: BudgetEntry,
    /// Conversations of one caller that go on; each task starts afresh if left out.
    pub(crate) session: Option<SessionEntry>,
    /// When old parts of a conversation give way.
    #[serde(default)]
    pub(crate) compact: CompactEntry,
    /// Rule for calls with `effect: once`, once words of others are in the conversation.
    #[serde(default)]
    pub(crate) taint: TaintEntry,
    /// Rule for calls whose fate a crash left open.
    #[serde(default)]
    pub(crate) on_unknown: UnknownEntry,
    /// The log of a conversation on the mesh.
    #[serde(default)]
    pub(crate) log: LogEntry,
}

/// A language model and its server.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelEntry {
    /// Interface of the server.
    pub(crate) provider: ProviderName,
    /// The provider's name of the model; not needed by a script.
    #[serde(default)]
    pub(crate) model: String,
    /// Address of the server; the provider's own if left out.
    pub(crate) url: Option<String>,
    /// The key, as `${env:NAME}`.
    pub(crate) key: Option<String>,
    /// Further headers; values may hold `${env:NAME}`.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Whether the host may lead to private, loopback and other special addresses.
    #[serde(default)]
    pub(crate) allow_private: bool,
    /// Size of the model's context in tokens.
    #[schemars(range(min = 256))]
    pub(crate) context: Option<u64>,
    /// Longest answer in tokens.
    #[schemars(range(min = 1))]
    pub(crate) max_output: Option<u64>,
    /// Most that texts and lists of an answer in a form may hold, for small models that do not end them by themselves.
    #[serde(default)]
    pub(crate) bounds: BoundEntry,
    /// Abilities of the model and its server.
    #[serde(default)]
    pub(crate) caps: AbilityEntry,
    /// Settings of each request.
    #[serde(default)]
    pub(crate) settings: SettingEntry,
    /// Price in USD per million tokens.
    pub(crate) price: Option<PriceEntry>,
    /// Times after which a call is given up.
    #[serde(default)]
    pub(crate) timeout: ModelTimeouts,
    /// Tries in place, before the next model.
    #[serde(default)]
    pub(crate) retry: ModelRetry,
    /// Answers of a scripted model, in order; an answer that fits the asked form if left out.
    pub(crate) answers: Option<Vec<Value>>,
}

/// Bounds of forms that the server enforces, wherever a schema allows more.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BoundEntry {
    /// Longest text, in characters. An answer without a schema is a form of one text then.
    #[schemars(range(min = 1, max = 100_000))]
    pub(crate) text: Option<u64>,
    /// Most items of a list.
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) items: Option<u64>,
}

/// Interfaces of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProviderName {
    /// Chat completions, as OpenAI, Azure, Ollama, llama.cpp, vLLM, OpenRouter and LiteLLM serve them.
    Openai,
    /// Messages of Anthropic.
    Anthropic,
    /// `generateContent` of Gemini.
    Gemini,
    /// Answers out of this file: for tests and machines without a key.
    Script,
}

/// Abilities of a model and its server. Left-out members are the usual ones of the provider.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AbilityEntry {
    /// How the model calls tools.
    pub(crate) tools: Option<ToolAbilityName>,
    /// How the model is held to a schema.
    pub(crate) schema: Option<SchemaAbilityName>,
    /// Whether answers arrive in pieces.
    pub(crate) stream: Option<bool>,
    /// Whether one answer may hold several calls.
    pub(crate) parallel: Option<bool>,
}

/// How a model calls tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ToolAbilityName {
    /// Through the provider's interface.
    Native,
    /// Through its output, which a schema holds to a call or the answer.
    Schema,
    /// Not at all.
    None,
}

/// How a model is held to a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SchemaAbilityName {
    /// The provider enforces the schema.
    Native,
    /// The provider enforces JSON.
    Json,
    /// Not at all.
    None,
}

/// Settings of each request.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettingEntry {
    /// Sampling temperature.
    #[schemars(range(min = 0.0, max = 2.0))]
    pub(crate) temperature: Option<f64>,
    /// Seed of the sampling.
    pub(crate) seed: Option<i64>,
    /// Effort of reasoning, in the provider's word.
    pub(crate) reasoning: Option<String>,
    /// Further members of the request's body.
    #[serde(default)]
    pub(crate) extra: Map<String, Value>,
}

/// Price in USD per million tokens.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PriceEntry {
    /// Of the prompt.
    #[schemars(range(min = 0.0))]
    pub(crate) input: f64,
    /// Of the answer.
    #[schemars(range(min = 0.0))]
    pub(crate) output: f64,
    /// Of the part of the prompt that came out of the provider's cache; the price of the prompt if left out.
    #[schemars(range(min = 0.0))]
    pub(crate) cached: Option<f64>,
}

/// Times after which a call of a model is given up.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ModelTimeouts {
    /// Until the first byte of the answer.
    pub(crate) first: Time,
    /// Between two pieces of the answer.
    pub(crate) idle: Time,
    /// For the whole answer.
    pub(crate) total: Time,
}

impl Default for ModelTimeouts {
    fn default() -> Self {
        let seconds = |seconds| Time(Duration::from_secs(seconds));
        Self { first: seconds(60), idle: seconds(30), total: seconds(300) }
    }
}

/// Tries in place.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ModelRetry {
    /// Tries after the first.
    #[schemars(range(max = 10))]
    pub(crate) limit: u32,
}

impl Default for ModelRetry {
    fn default() -> Self {
        Self { limit: 2 }
    }
}

/// Classes of refusals after which the next model may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FallbackClass {
    /// Broken servers, lost connections, unreadable answers.
    Unavailable,
    /// Limits of the provider (429).
    Limited,
    /// The provider's filter.
    Filtered,
    /// A model that refuses to answer.
    Refused,
}

fn default_fallback() -> Vec<FallbackClass> {
    vec![FallbackClass::Unavailable, FallbackClass::Limited]
}

/// A few-shot turn.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExampleEntry {
    /// Input of the example.
    pub(crate) input: Value,
    /// Output of the example.
    pub(crate) output: Value,
}

/// One or more tools. Exactly one of peer, workflow, mcp, script, builtin and request says which.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolEntry {
    /// Another agent: its name, a pattern such as `Price*`, or a skill.
    pub(crate) peer: Option<PeerSelector>,
    /// A deployed workflow.
    pub(crate) workflow: Option<String>,
    /// Name of an MCP server; `command` or `url` says where it is.
    pub(crate) mcp: Option<String>,
    /// A Python function in the sandbox.
    pub(crate) script: Option<ScriptTool>,
    /// Tools of Sinew.
    pub(crate) builtin: Option<Vec<BuiltinName>>,
    /// Tools that the asking node brings, within this list.
    pub(crate) request: Option<RequestTools>,
    /// Name that the model is told.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,64}$"))]
    pub(crate) r#as: Option<String>,
    /// Effect of a repeated call.
    pub(crate) effect: Option<EffectName>,
    /// Whether results may hold words of anybody.
    pub(crate) trust: Option<TrustName>,
    /// When a person must allow a call.
    pub(crate) approve: Option<ApproveEntry>,
    /// Most calls in a conversation.
    #[schemars(range(min = 1))]
    pub(crate) limit: Option<u32>,
    /// Longest time for one call.
    pub(crate) timeout: Option<Time>,
    /// Most bytes of a result in the conversation, such as `16KiB`.
    pub(crate) max_result: Option<ByteSize>,
    /// Program of an MCP server and its arguments; no shell.
    pub(crate) command: Option<Vec<String>>,
    /// Environment of an MCP server's program; values may hold `${env:NAME}`.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Working folder of an MCP server's program, relative to the agent file.
    pub(crate) cwd: Option<String>,
    /// Address of an MCP server.
    pub(crate) url: Option<String>,
    /// Headers for an MCP server; values may hold `${env:NAME}`.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Tools of the MCP server that the model may call: names, patterns, or objects with a name and settings.
    pub(crate) allow: Option<Vec<AllowEntry>>,
    /// Whether an MCP server's program is started for each task or serves all tasks of the agent.
    pub(crate) lifetime: Option<ServerLifetime>,
    /// Whether the MCP server's hints about effects are believed.
    pub(crate) trust_hints: Option<bool>,
    /// Whether the command may download the program that it starts.
    pub(crate) allow_download: Option<bool>,
    /// Whether the MCP server may lie at a private address.
    pub(crate) allow_private: Option<bool>,
    /// Program and arguments that are put before the command of an MCP server.
    pub(crate) sandbox: Option<Vec<String>>,
}

/// Agents by name, pattern or skill.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum PeerSelector {
    /// A name, or a pattern with `*`.
    Name(String),
    /// Agents with a skill.
    Skill(SkillSelector),
}

/// Agents with a skill.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkillSelector {
    /// Id or tag of the skill.
    pub(crate) skill: String,
}

/// A Python function as a tool.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptTool {
    /// Name that the model is told.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,64}$"))]
    pub(crate) name: String,
    /// Purpose of the tool, for the model.
    #[serde(default)]
    pub(crate) description: String,
    /// JSON Schema of the arguments.
    pub(crate) input_schema: Option<Value>,
    /// The source text: its first function is called with the arguments as one object.
    pub(crate) source: String,
}

/// Tools of Sinew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BuiltinName {
    /// List, read and write artifacts of the task.
    Artifacts,
    /// The time.
    Time,
    /// Ask a person.
    AskPerson,
}

/// Tools that the asking node brings.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RequestTools {
    /// Patterns of agents.
    pub(crate) peers: Vec<String>,
    /// Names of MCP servers of this file, whose tools are offered only to nodes that name the server.
    pub(crate) mcp: Vec<String>,
    /// Whether agents that a graph puts below this one are tools: conversations within the one that calls them.
    pub(crate) subagents: bool,
}

/// Effect of a repeated call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EffectName {
    /// The tool only reads.
    Read,
    /// The receiver recognises a repeated call by its key.
    Repeat,
    /// A repeated call acts twice; made at most once.
    Once,
}

/// Whether results may hold words of anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TrustName {
    /// Results are words of the agent's owner.
    Own,
    /// Results may be words of anybody.
    Open,
}

/// When a person must allow a call.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ApproveEntry {
    /// Always, or never.
    Always(bool),
    /// Under a condition.
    When(ApproveRule),
}

/// When a person must allow a call, and which.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ApproveRule {
    /// People who may decide; all if empty.
    pub(crate) people: Vec<String>,
    /// Time for the decision; the call is refused after it.
    pub(crate) timeout: Option<Time>,
    /// Python expression over `args`; a call for which it is false needs no person.
    pub(crate) when: Option<String>,
}

/// A tool of an MCP server that the model may call.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum AllowEntry {
    /// A name, or a pattern with `*`.
    Name(String),
    /// A name with settings.
    Tool(AllowedTool),
}

/// A tool of an MCP server, with settings.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AllowedTool {
    /// Name of the tool, or a pattern with `*`.
    pub(crate) name: String,
    /// Effect of a repeated call.
    pub(crate) effect: Option<EffectName>,
    /// Whether results may hold words of anybody.
    pub(crate) trust: Option<TrustName>,
    /// When a person must allow a call.
    pub(crate) approve: Option<ApproveEntry>,
    /// Most calls in a conversation.
    #[schemars(range(min = 1))]
    pub(crate) limit: Option<u32>,
}

/// Life of an MCP server's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ServerLifetime {
    /// One for each task.
    Task,
    /// One for all tasks of the agent.
    Agent,
}

/// Form of the output.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OutputEntry {
    /// How the model is brought to the form.
    pub(crate) mode: OutputModeName,
    /// Times that an output that does not fit goes back to the model.
    #[schemars(range(max = 10))]
    pub(crate) repairs: u32,
}

impl Default for OutputEntry {
    fn default() -> Self {
        Self { mode: OutputModeName::Auto, repairs: 2 }
    }
}

/// How a model is brought to the form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OutputModeName {
    /// The best that the model can.
    Auto,
    /// The provider holds the answer to the schema.
    Native,
    /// The model calls a final tool.
    Tool,
    /// JSON in the text of the answer.
    Text,
    /// The answer names an artifact. Accepted in every mode.
    Marker,
}

/// Limits of a conversation, over all attempts.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BudgetEntry {
    /// Model calls.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) turns: u32,
    /// Calls of tools.
    #[schemars(range(max = 10_000))]
    pub(crate) tool_calls: u32,
    /// Calls of tools that run at the same time.
    #[schemars(range(min = 1, max = 64))]
    pub(crate) parallel: u32,
    /// Tokens of all prompts.
    pub(crate) input_tokens: u64,
    /// Tokens of all answers.
    pub(crate) output_tokens: u64,
    /// Price of all model calls in USD; every model needs a price then.
    pub(crate) cost_usd: Option<f64>,
    /// Time from the begin to the end, without waiting for people.
    pub(crate) wall: Time,
    /// Time of waiting for people.
    pub(crate) waiting: Time,
    /// Equal calls with equal results that are still made.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) repeats: u32,
    /// Whether the last allowed turn asks for the answer without tools.
    pub(crate) last_word: bool,
}

impl Default for BudgetEntry {
    fn default() -> Self {
        Self {
            turns: 20,
            tool_calls: 50,
            parallel: 4,
            input_tokens: 500_000,
            output_tokens: 50_000,
            cost_usd: None,
            wall: Time(Duration::from_mins(10)),
            waiting: Time(Duration::from_hours(24)),
            repeats: 3,
            last_word: true,
        }
    }
}

/// Conversations of one caller that go on.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionEntry {
    /// Time after which a session is forgotten, such as `30d`.
    #[serde(default = "default_session_keep")]
    pub(crate) keep: Time,
    /// Earlier conversations that the model is told.
    #[serde(default = "default_session_turns")]
    #[schemars(range(max = 200))]
    pub(crate) turns: u32,
}

fn default_session_keep() -> Time {
    Time(Duration::from_hours(30 * 24))
}

fn default_session_turns() -> u32 {
    20
}

/// When old parts of a conversation give way.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CompactEntry {
    /// Part of the model's context that a prompt may fill.
    #[schemars(range(min = 0.1, max = 1.0))]
    pub(crate) at: f64,
    /// Last turns that stay.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) keep_turns: u32,
    /// Alias of the model that writes summaries; the first of `use` if left out.
    pub(crate) model: Option<String>,
}

impl Default for CompactEntry {
    fn default() -> Self {
        Self { at: 0.7, keep_turns: 4, model: None }
    }
}

/// Rule for calls that act, once words of others are in the conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TaintEntry {
    /// A person must allow them.
    #[default]
    Approve,
    /// They are refused.
    Deny,
    /// They are made.
    Allow,
}

/// Rule for calls whose fate a crash left open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UnknownEntry {
    /// The model is told.
    #[default]
    Tell,
    /// A person decides whether the call is made again.
    Ask,
    /// The conversation fails.
    Fail,
}

/// The log of a conversation on the mesh.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogEntry {
    /// Time after which the log is forgotten, such as `7d`.
    pub(crate) keep: Time,
}

impl Default for LogEntry {
    fn default() -> Self {
        Self { keep: Time(Duration::from_hours(7 * 24)) }
    }
}

/// A number of bytes: a number, or text with a unit such as `16KiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteSize(pub(crate) u64);

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let size = match &value {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => parse_size(text),
            _ => None,
        };
        size.filter(|size| (64..=16 << 20).contains(size))
            .map(Self)
            .ok_or_else(|| de::Error::custom("expected a size such as 16KiB, from 64 bytes to 16MiB"))
    }
}

fn parse_size(text: &str) -> Option<u64> {
    let (number, factor) = match text {
        text if text.ends_with("KiB") => (text.strip_suffix("KiB")?, 1 << 10),
        text if text.ends_with("MiB") => (text.strip_suffix("MiB")?, 1 << 20),
        text => (text.strip_suffix('B').unwrap_or(text), 1),
    };
    number.trim().parse::<u64>().ok()?.checked_mul(factor)
}

impl JsonSchema for ByteSize {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ByteSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of bytes, or text with a unit such as 16KiB or 1MiB.",
            "type": ["integer", "string"],
            "minimum": 64,
            "pattern": "^[0-9]+ ?(B|KiB|MiB)?$",
        })
    }
}

#[cfg(test)]
mod tests;
