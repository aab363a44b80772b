//! The format of `run: model:` in an agent file.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};

use crate::file_time::Time;

mod tool_entry;

pub(crate) use tool_entry::*;

/// An agent that calls a language model.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelFile {
    /// Aliases of one to eight models, in the order in which they are tried. See `fallback_on`.
    #[schemars(length(min = 1, max = 8))]
    pub(crate) r#use: Vec<String>,
    /// Models by alias. They take precedence over those of `models.yaml` in the same directory.
    pub(crate) models: Option<BTreeMap<String, ModelEntry>>,
    /// Errors after which the next model of `use` is called. Default: `[unavailable, limited]`.
    #[serde(default = "default_fallback")]
    pub(crate) fallback_on: Vec<FallbackClass>,
    /// System prompt. May contain `{{agent.name}}`, `{{agent.description}}`, `{{now.date}}`,
    /// `{{now.time}}`, `{{now.weekday}}`, `{{workflow}}`, `{{node}}` and `{{skills}}`, but no
    /// input: that is the user message. Excludes `instruction_file`.
    pub(crate) instruction: Option<String>,
    /// Path of a file with the system prompt, relative to the agent file. Excludes `instruction`.
    pub(crate) instruction_file: Option<String>,
    /// Directories that contain a `SKILL.md`, relative to the agent file. If a text is larger than
    /// 4 KiB, the model receives its description and reads it with the tool `skill_read`.
    #[serde(default)]
    pub(crate) skills: Vec<String>,
    /// Few-shot examples that precede the input, at most 64.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub(crate) examples: Vec<ExampleEntry>,
    /// Tools that the model may call, at most 128 entries. Default: none.
    #[serde(default)]
    #[schemars(length(max = 128))]
    pub(crate) tools: Vec<ToolEntry>,
    /// How the model returns structured output.
    #[serde(default)]
    pub(crate) output: OutputEntry,
    /// Limits of a conversation, including all its attempts.
    #[serde(default)]
    pub(crate) budget: BudgetEntry,
    /// Keep conversations of a caller across tasks. Default: tasks are independent.
    pub(crate) session: Option<SessionEntry>,
    /// When old parts of a conversation are dropped or summarized.
    #[serde(default)]
    pub(crate) compact: CompactEntry,
    /// What happens to calls with `effect: once` after untrusted text entered the conversation:
    /// `approve` (default), `deny` or `allow`.
    #[serde(default)]
    pub(crate) taint: TaintEntry,
    /// What happens after a call with side effects whose outcome is unknown, because a process
    /// stopped or no answer arrived in time: `tell` (default), `ask` or `fail`.
    #[serde(default)]
    pub(crate) on_unknown: UnknownEntry,
    /// Retention of the conversation log on a mesh.
    #[serde(default)]
    pub(crate) log: LogEntry,
}

/// A language model and its server.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelEntry {
    /// API of the server: `openai`, `anthropic`, `gemini`, or `script` for tests.
    pub(crate) provider: ProviderName,
    /// Name of the model at its provider. Required unless `provider` is `script`.
    #[serde(default)]
    pub(crate) model: String,
    /// Base URL of the server, such as `http://localhost:11434/v1`. Default: the provider's public
    /// API.
    pub(crate) url: Option<String>,
    /// API key, as a reference to an environment variable: `${env:NAME}`. Literal keys are
    /// rejected.
    pub(crate) key: Option<String>,
    /// Additional request headers. Values may contain `${env:NAME}`.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Whether the host may resolve to private, loopback and other special-purpose addresses.
    /// Default: false.
    #[serde(default)]
    pub(crate) allow_private: bool,
    /// Context window of the model, in tokens, at least 256. Default: 128000.
    #[schemars(range(min = 256))]
    pub(crate) context: Option<u64>,
    /// Maximum length of an answer, in tokens. Default: 4096.
    #[schemars(range(min = 1))]
    pub(crate) max_output: Option<u64>,
    /// Limits on texts and lists in structured output, for small models that generate without end.
    #[serde(default)]
    pub(crate) bounds: BoundEntry,
    /// Capabilities of the model and its server. Omitted members have the default of the provider.
    #[serde(default)]
    pub(crate) caps: AbilityEntry,
    /// Sampling and other settings of each request.
    #[serde(default)]
    pub(crate) settings: SettingEntry,
    /// Price in USD per million tokens. Required for `budget.cost_usd`.
    pub(crate) price: Option<PriceEntry>,
    /// Time limits of a model call.
    #[serde(default)]
    pub(crate) timeout: ModelTimeouts,
    /// Retries with the same model, before the next model of `use` is called.
    #[serde(default)]
    pub(crate) retry: ModelRetry,
    /// Answers of a model with `provider: script`, in order. Default: an answer that matches the
    /// requested schema.
    pub(crate) answers: Option<Vec<Value>>,
}

/// Limits that are added to the schemas that the server enforces, unless a schema is stricter.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BoundEntry {
    /// Maximum length of each text, in characters, from 1 to 100,000. An answer without a schema
    /// becomes structured output with one text field. Default: no limit.
    #[schemars(range(min = 1, max = 100_000))]
    pub(crate) text: Option<u64>,
    /// Maximum number of items of each list, from 1 to 10,000. Default: no limit.
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) items: Option<u64>,
}

/// API of a model server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProviderName {
    /// Chat completions API, as served by OpenAI, Azure, Ollama, llama.cpp, vLLM, OpenRouter and
    /// LiteLLM.
    Openai,
    /// Messages API of Anthropic.
    Anthropic,
    /// `generateContent` API of Gemini.
    Gemini,
    /// No server: answers come from `answers`. For tests and for machines without an API key.
    Script,
}

/// Capabilities of a model and its server. Omitted members have the default of the provider.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AbilityEntry {
    /// How the model calls tools. Default: `native`.
    pub(crate) tools: Option<ToolAbilityName>,
    /// How answers are constrained to a JSON Schema. Default: `native`, for Anthropic `none`.
    pub(crate) schema: Option<SchemaAbilityName>,
    /// Whether the server streams answers. Default: true.
    pub(crate) stream: Option<bool>,
    /// Whether one answer may contain several tool calls. Default: true.
    pub(crate) parallel: Option<bool>,
}

/// How a model calls tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ToolAbilityName {
    /// With the tool calls of the provider's API.
    Native,
    /// With structured output: one JSON Schema covers tool calls and the answer. For models without
    /// tool calls.
    Schema,
    /// The model cannot call tools.
    None,
}

/// How answers are constrained to a JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SchemaAbilityName {
    /// The provider enforces the schema.
    Native,
    /// The provider enforces valid JSON, but no schema.
    Json,
    /// The provider enforces neither JSON nor a schema.
    None,
}

/// Settings of each request to a model.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettingEntry {
    /// Sampling temperature, from 0 to 2. Default: that of the provider.
    #[schemars(range(min = 0.0, max = 2.0))]
    pub(crate) temperature: Option<f64>,
    /// Seed for sampling.
    pub(crate) seed: Option<i64>,
    /// Reasoning effort as the provider names it, such as `low`, `medium` or `high`; for Anthropic
    /// also a number of tokens.
    pub(crate) reasoning: Option<String>,
    /// Members that are added to the request body, or replace members of it; `null` removes one.
    #[serde(default)]
    pub(crate) extra: Map<String, Value>,
}

/// Price in USD per million tokens.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PriceEntry {
    /// Price of input tokens.
    #[schemars(range(min = 0.0))]
    pub(crate) input: f64,
    /// Price of output tokens.
    #[schemars(range(min = 0.0))]
    pub(crate) output: f64,
    /// Price of input tokens that the provider reads from its cache. Default: the price of input
    /// tokens.
    #[schemars(range(min = 0.0))]
    pub(crate) cached: Option<f64>,
}

/// Time limits of a model call.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ModelTimeouts {
    /// Time until the first byte of the answer. Default: `60s`.
    pub(crate) first: Time,
    /// Time between two chunks of a streamed answer. Default: `30s`.
    pub(crate) idle: Time,
    /// Time until the answer is complete. Default: `300s`.
    pub(crate) total: Time,
}

impl Default for ModelTimeouts {
    fn default() -> Self {
        let seconds = |seconds| Time(Duration::from_secs(seconds));
        Self { first: seconds(60), idle: seconds(30), total: seconds(300) }
    }
}

/// Retries with the same model.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ModelRetry {
    /// Maximum number of retries after the first attempt, at most 10. Default: 2.
    #[schemars(range(max = 10))]
    pub(crate) limit: u32,
}

impl Default for ModelRetry {
    fn default() -> Self {
        Self { limit: 2 }
    }
}

/// Error class after which the next model may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FallbackClass {
    /// Server error, lost connection or unreadable answer.
    Unavailable,
    /// Rate limit (429) or exhausted quota (402) of the provider.
    Limited,
    /// The provider's content filter blocked the answer.
    Filtered,
    /// The model refused to answer.
    Refused,
}

fn default_fallback() -> Vec<FallbackClass> {
    vec![FallbackClass::Unavailable, FallbackClass::Limited]
}

/// A few-shot example.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExampleEntry {
    /// Example input.
    pub(crate) input: Value,
    /// Expected output for this input.
    pub(crate) output: Value,
}

/// How a model returns structured output.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OutputEntry {
    /// How the output is made to match `output_schema`. Default: `auto`.
    pub(crate) mode: OutputModeName,
    /// Maximum number of times that the model is called again to correct an output that does not
    /// match the schema, at most 10. Default: 2.
    #[schemars(range(max = 10))]
    pub(crate) repairs: u32,
}

impl Default for OutputEntry {
    fn default() -> Self {
        Self { mode: OutputModeName::Auto, repairs: 2 }
    }
}

/// How an output is made to match the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OutputModeName {
    /// The best mode that the model supports.
    Auto,
    /// The provider enforces the schema.
    Native,
    /// The model calls a final tool with the output as arguments.
    Tool,
    /// The output is the JSON in the text of the answer.
    Text,
    /// The answer names an artifact, which is the output. Every mode accepts such answers.
    Marker,
}

/// Limits of a conversation, including all its attempts.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BudgetEntry {
    /// Maximum number of model calls, from 1 to 1,000. Default: 20.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) turns: u32,
    /// Maximum number of tool calls, at most 10,000. Default: 50.
    #[schemars(range(max = 10_000))]
    pub(crate) tool_calls: u32,
    /// Maximum number of concurrent tool calls, from 1 to 64. Default: 4.
    #[schemars(range(min = 1, max = 64))]
    pub(crate) parallel: u32,
    /// Maximum number of input tokens of all model calls. Default: 500000.
    pub(crate) input_tokens: u64,
    /// Maximum number of output tokens of all model calls. Default: 50000.
    pub(crate) output_tokens: u64,
    /// Maximum price of all model calls, in USD. Requires a `price` for every model. Default: no
    /// limit.
    pub(crate) cost_usd: Option<f64>,
    /// Time limit of the conversation, without time spent waiting for people. Default: `10m`.
    pub(crate) wall: Time,
    /// Time limit for waiting for people. Default: `24h`.
    pub(crate) waiting: Time,
    /// Maximum number of identical calls with identical results, from 1 to 100. Further ones are
    /// rejected. Default: 3.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) repeats: u32,
    /// Whether the last turn of the budget requests the answer without tools. Default: true.
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

/// Conversations that continue across tasks of the same caller and A2A context.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionEntry {
    /// Retention of a session, such as `7d`. Default: `30d`.
    #[serde(default = "default_session_keep")]
    pub(crate) keep: Time,
    /// Maximum number of earlier conversations in the prompt, at most 200. Default: 20.
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

/// When old parts of a conversation are dropped or summarized.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CompactEntry {
    /// Share of the model's `context` that a prompt may fill before it is compacted, from 0.1 to 1.
    /// Default: 0.7.
    #[schemars(range(min = 0.1, max = 1.0))]
    pub(crate) at: f64,
    /// Number of latest turns that are not compacted, from 1 to 100. Default: 4.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) keep_turns: u32,
    /// Alias of the model that writes summaries, one of `use`. Default: the first of `use`.
    pub(crate) model: Option<String>,
}

impl Default for CompactEntry {
    fn default() -> Self {
        Self { at: 0.7, keep_turns: 4, model: None }
    }
}

/// What happens to calls with side effects after untrusted text entered the conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TaintEntry {
    /// A person must approve the call.
    #[default]
    Approve,
    /// The call is rejected.
    Deny,
    /// The call is made.
    Allow,
}

/// What happens after a call with side effects whose outcome is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UnknownEntry {
    /// The model receives a note that the call may have taken effect.
    #[default]
    Tell,
    /// A person decides whether the call is repeated.
    Ask,
    /// The conversation fails.
    Fail,
}

/// Retention of the conversation log on a mesh.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogEntry {
    /// Retention of the log, such as `30d`, at least `budget.wall` plus `budget.waiting`. Default:
    /// `7d`.
    pub(crate) keep: Time,
}

impl Default for LogEntry {
    fn default() -> Self {
        Self { keep: Time(Duration::from_hours(7 * 24)) }
    }
}

/// A size: a number of bytes, or text with a unit such as `16KiB`.
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
            "description": "A number of bytes, or text such as `16KiB` or `1MiB`, from 64 bytes \
                to 16 MiB.",
            "type": ["integer", "string"],
            "minimum": 64,
            "pattern": "^[0-9]+ ?(B|KiB|MiB)?$",
        })
    }
}

#[cfg(test)]
mod tests;
