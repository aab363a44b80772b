//! Everything that is fixed before a conversation begins: models, tools, budgets, the form of the output.

use std::sync::Arc;

use serde_json::{Map, Value};
use sinew_protocol::tool::ToolDeclaration;
use sinew_source::Schema;

use crate::form_bounds::FormBounds;
use crate::turn::TokenUsage;

/// Everything that is fixed before a conversation begins.
#[derive(Clone, Debug)]
pub struct ConversationSpec {
    /// Id under which calls get their keys: the same for all attempts of one activation.
    pub activation: String,
    /// System texts, in order: instruction, skills, the instruction of the node.
    pub system: Vec<String>,
    /// Few-shot turns before the input: user text and assistant text.
    pub examples: Vec<(String, String)>,
    /// Earlier conversations of the session: user text and assistant text.
    pub history: Vec<(String, String)>,
    /// The user message.
    pub input: String,
    /// Models in the order in which they are tried. Never empty.
    pub models: Vec<ModelSpec>,
    /// Number of the model that writes summaries, in `models`.
    pub summary_model: usize,
    /// Classes of refusals after which the next model is asked, beside unavailable ones.
    pub fallback: FallbackRule,
    /// Tools that the model may call.
    pub tools: Arc<Vec<ToolSpec>>,
    /// Form of the output.
    pub output: OutputSpec,
    /// Limits of the whole conversation, over all attempts.
    pub budget: BudgetSpec,
    /// When old parts give way.
    pub compaction: CompactionSpec,
    /// Rule for calls that act, once words of anybody are in the conversation.
    pub taint: TaintRule,
    /// Whether the conversation holds words of anybody from the beginning.
    pub tainted: bool,
    /// Rule for calls whose fate a crash left open.
    pub on_unknown: UnknownRule,
    /// Key of the provider's prompt cache: the digest of the agent file.
    pub cache_key: String,
}

/// A model, as a conversation uses it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Name in the agent file.
    pub alias: String,
    /// Interface of the provider.
    pub provider: Provider,
    /// The provider's name of the model.
    pub model: String,
    /// Largest prompt and answer together, in tokens.
    pub context: u64,
    /// Longest answer, in tokens.
    pub max_output: u64,
    /// Most that texts and lists of an answer in a form may hold, where the provider enforces schemas.
    pub bounds: FormBounds,
    /// Abilities of the model and its server.
    pub abilities: ModelAbilities,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Seed of the sampling.
    pub seed: Option<i64>,
    /// Effort of reasoning, in the provider's word.
    pub reasoning: Option<String>,
    /// Further members of the request's body.
    pub extra: Map<String, Value>,
    /// Price in USD per million tokens.
    pub price: Option<TokenPrice>,
    /// Tries in place after the first, before the next model.
    pub retries: u32,
    /// Whether the inventor of the interface serves the model itself; other servers know fewer words of it.
    pub is_original: bool,
}

/// Interfaces of providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provider {
    /// Chat completions of OpenAI and of every server with the same interface.
    OpenAi,
    /// Messages of Anthropic.
    Anthropic,
    /// `generateContent` of Gemini.
    Gemini,
    /// Answers out of a file.
    Script,
}

impl Provider {
    /// The word used in agent files, metrics and traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Script => "script",
        }
    }
}

/// Abilities of a model and its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelAbilities {
    /// How the model calls tools.
    pub tools: ToolAbility,
    /// How the model is held to a schema.
    pub schema: SchemaAbility,
    /// Whether answers arrive in pieces.
    pub stream: bool,
    /// Whether one answer may hold several calls.
    pub parallel: bool,
}

/// How a model calls tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolAbility {
    /// Through the provider's interface.
    Native,
    /// Through its output, which a schema holds to `{tool, arguments}` or `{answer}`.
    Schema,
    /// Not at all.
    None,
}

/// How a model is held to a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaAbility {
    /// The provider enforces the schema.
    Native,
    /// The provider enforces that the answer is JSON.
    Json,
    /// Not at all.
    None,
}

/// Price in USD per million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenPrice {
    /// Of the prompt.
    pub input: f64,
    /// Of the answer.
    pub output: f64,
    /// Of the part of the prompt that came out of the provider's cache; the price of the prompt if left out.
    pub cached: Option<f64>,
}

impl TokenPrice {
    /// Price of these tokens in USD.
    pub fn of(&self, usage: TokenUsage) -> f64 {
        let fresh = usage.input.saturating_sub(usage.cached);
        let cached = usage.cached.min(usage.input);
        let per_million = self.input.mul_add(
            fresh as f64,
            self.cached.unwrap_or(self.input).mul_add(cached as f64, self.output * usage.output as f64),
        );
        per_million / 1_000_000.0
    }
}

/// After which refusals the next model is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "one answer for each class of refusals")]
pub struct FallbackRule {
    /// After broken servers and lost connections.
    pub unavailable: bool,
    /// After limits of the provider.
    pub limited: bool,
    /// After the provider's filter.
    pub filtered: bool,
    /// After a model that refuses to answer.
    pub refused: bool,
}

/// A tool, as a conversation uses it.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// Name, description and parameters, as the model is told.
    pub declaration: ToolDeclaration,
    /// Compiled parameters; none if any object is taken.
    pub parameters: Option<Schema>,
    /// Origin of the results, such as `peer:Courier` or `mcp:files/read_text_file`.
    pub source: String,
    /// Effect of a repeated call.
    pub effect: EffectClass,
    /// Whether results may hold words of anybody.
    pub open: bool,
    /// When a person must allow a call.
    pub approval: ApprovalRule,
    /// Most calls in a conversation.
    pub limit: Option<u32>,
    /// Most bytes of a result in the conversation.
    pub max_result: usize,
}

/// Source of the tool whose calls are questions to a person.
pub const PERSON_SOURCE: &str = "builtin:ask_person";

impl ToolSpec {
    /// Whether a call is a question to a person, and the answer its result.
    pub fn asks_person(&self) -> bool {
        self.source == PERSON_SOURCE
    }
}

/// Effect of a repeated call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectClass {
    /// No effect: the tool only reads.
    Read,
    /// No second effect: the receiver recognises the key.
    Repeat,
    /// A second effect. Made at most once.
    Once,
}

/// When a person must allow a call.
#[derive(Clone, Debug, PartialEq)]
pub enum ApprovalRule {
    /// Never.
    Never,
    /// Always.
    Always,
    /// When the shell's test of the arguments says so.
    When(Arc<str>),
}

/// Form of the output.
#[derive(Clone, Debug)]
pub struct OutputSpec {
    /// JSON Schema of the output; none means `{text: string}`.
    pub schema: Option<OutputSchema>,
    /// How the model is brought to the form.
    pub mode: OutputMode,
    /// Times that an output that breaks its schema goes back to the model.
    pub repairs: u32,
}

/// A schema with its compiled form.
#[derive(Clone, Debug)]
pub struct OutputSchema {
    /// The schema.
    pub value: Value,
    /// Its compiled form.
    pub compiled: Schema,
}

/// How a model is brought to the form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputMode {
    /// The best that the model can: native, else tool, else text.
    Auto,
    /// The provider holds the answer to the schema.
    Native,
    /// The model calls a final tool `answer`.
    Tool,
    /// The outermost JSON of the answer's text.
    Text,
    /// The answer names an artifact. Accepted in every mode.
    Marker,
}

/// Limits of a conversation, over all attempts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetSpec {
    /// Model calls, lost ones included.
    pub turns: u32,
    /// Calls of tools that were made.
    pub tool_calls: u32,
    /// Calls that run at the same time.
    pub parallel: u32,
    /// Tokens of all prompts.
    pub input_tokens: u64,
    /// Tokens of all answers.
    pub output_tokens: u64,
    /// Price of all model calls in USD.
    pub cost_usd: Option<f64>,
    /// Milliseconds from the first begin to the end, without waiting for people.
    pub wall_ms: u64,
    /// Milliseconds of waiting for people.
    pub waiting_ms: u64,
    /// Equal calls with equal results that are still made.
    pub repeats: u32,
    /// Whether the last allowed turn asks for the answer without tools.
    pub last_word: bool,
}

impl Default for BudgetSpec {
    fn default() -> Self {
        Self {
            turns: 20,
            tool_calls: 50,
            parallel: 4,
            input_tokens: 500_000,
            output_tokens: 50_000,
            cost_usd: None,
            wall_ms: 600_000,
            waiting_ms: 86_400_000,
            repeats: 3,
            last_word: true,
        }
    }
}

/// When old parts of a conversation give way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompactionSpec {
    /// Part of the model's context that a prompt may fill.
    pub at: f64,
    /// Last turns that stay.
    pub keep_turns: u32,
}

impl Default for CompactionSpec {
    fn default() -> Self {
        Self { at: 0.7, keep_turns: 4 }
    }
}

/// Rule for calls that act, once words of anybody are in the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaintRule {
    /// A person must allow them.
    Approve,
    /// They are refused.
    Deny,
    /// They are made.
    Allow,
}

/// Rule for calls whose fate a crash left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownRule {
    /// The model is told.
    Tell,
    /// A person decides whether the call is made again.
    Ask,
    /// The conversation fails.
    Fail,
}

impl ConversationSpec {
    /// The tool of this name, as the model is told.
    pub fn tool(&self, name: &str) -> Option<&ToolSpec> {
        self.tools.iter().find(|tool| tool.declaration.name == name)
    }

    /// The model of this alias.
    pub fn model(&self, alias: &str) -> Option<&ModelSpec> {
        self.models.iter().find(|model| model.alias == alias)
    }

    /// Key of the call at this position.
    pub fn call_key(&self, reset: u32, turn: u32, index: u32) -> String {
        sinew_protocol::id::call_key(&self.activation, reset, turn, index)
    }
}
