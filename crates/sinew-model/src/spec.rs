//! The specification of a conversation: models, tools, budgets, the form of the output.

use std::sync::Arc;

use serde_json::{Map, Value};
use sinew_protocol::tool::ToolDeclaration;
use sinew_source::Schema;

use crate::form_bounds::FormBounds;
use crate::turn::TokenUsage;

/// The specification of a conversation, fixed before its start.
#[derive(Clone, Debug)]
pub struct ConversationSpec {
    /// Id from which the keys of calls are derived, identical for all attempts of an activation.
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
    /// Index in `models` of the model that writes summaries.
    pub summary_model: usize,
    /// Classes of refusals after which the next model is called.
    pub fallback: FallbackRule,
    /// Tools that the model can call.
    pub tools: Arc<Vec<ToolSpec>>,
    /// Settings of discovered tools, by [`DiscoveredTool::rule`](crate::DiscoveredTool), with empty
    /// declarations.
    pub discover_rules: Arc<Vec<ToolSpec>>,
    /// Form of the output.
    pub output: OutputSpec,
    /// Limits of the whole conversation, over all attempts.
    pub budget: BudgetSpec,
    /// Rule of compaction.
    pub compaction: CompactionSpec,
    /// Rule for calls with side effects after untrusted text entered the conversation.
    pub taint: TaintRule,
    /// Whether the conversation contains untrusted text from its start.
    pub tainted: bool,
    /// Rule for calls that a crash interrupted and that may have taken effect.
    pub on_unknown: UnknownRule,
    /// Key of the provider's prompt cache: the digest of the agent file.
    pub cache_key: String,
}

/// A model of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Name in the agent file.
    pub alias: String,
    /// Interface of the provider.
    pub provider: Provider,
    /// The provider's name of the model.
    pub model: String,
    /// Maximum tokens of prompt and answer together.
    pub context: u64,
    /// Maximum tokens of an answer.
    pub max_output: u64,
    /// Limits of texts and lists in an answer, if the provider enforces schemas.
    pub bounds: FormBounds,
    /// Abilities of the model and its server.
    pub abilities: ModelAbilities,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Seed of the sampling.
    pub seed: Option<i64>,
    /// Reasoning effort, in the provider's terms.
    pub reasoning: Option<String>,
    /// Further members of the request's body.
    pub extra: Map<String, Value>,
    /// Price in USD per million tokens.
    pub price: Option<TokenPrice>,
    /// Retries before the next model.
    pub retries: u32,
    /// Whether the vendor of the API serves the model; other servers support a subset of it.
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
    /// Answers from a file.
    Script,
}

impl Provider {
    /// Returns the name in agent files, metrics and traces.
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
    /// How a schema is enforced.
    pub schema: SchemaAbility,
    /// Whether answers are streamed.
    pub stream: bool,
    /// Whether an answer can contain several calls.
    pub parallel: bool,
}

/// How a model calls tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolAbility {
    /// Through the provider's interface.
    Native,
    /// Through its output, which a schema constrains to `{tool, arguments}` or `{answer}`.
    Schema,
    /// Not at all.
    None,
}

/// How a schema is enforced for a model.
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
    /// Of cached prompt tokens; `None` for the price of the prompt.
    pub cached: Option<f64>,
}

impl TokenPrice {
    /// Returns the price of these tokens in USD.
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

/// Refusals after which the next model is called.
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

/// A tool of a conversation.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// Name, description and parameters for the model.
    pub declaration: ToolDeclaration,
    /// Compiled parameters; `None` to accept any object.
    pub parameters: Option<Schema>,
    /// Origin of the results, such as `peer:Courier` or `mcp:files/read_text_file`.
    pub source: String,
    /// Effect of a repeated call.
    pub effect: EffectClass,
    /// Whether results can contain untrusted text.
    pub open: bool,
    /// When a person must allow a call.
    pub approval: ApprovalRule,
    /// Whether a rejection by a person fails the conversation.
    pub rejection_fails: bool,
    /// Maximum calls in a conversation.
    pub limit: Option<u32>,
    /// Maximum bytes of a result in the conversation.
    pub max_result: usize,
}

/// Name of the tool that searches for tools.
pub const FIND_TOOLS: &str = "find_tools";
/// Name of the tool that calls discovered tools.
pub const CALL_TOOL: &str = "call_tool";
/// Source of the tool that calls discovered tools.
pub const CALL_TOOL_SOURCE: &str = "discover:call";
/// Source of the tool that sends questions to people.
pub const PERSON_SOURCE: &str = "builtin:ask_person";

impl ToolSpec {
    /// Returns whether calls are questions to a person, whose answers are the results.
    pub fn asks_person(&self) -> bool {
        self.source == PERSON_SOURCE
    }
}

/// Effect of a repeated call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectClass {
    /// No effect: the tool is read-only.
    Read,
    /// No second effect: the receiver deduplicates by the key.
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
    /// If the shell's test of the arguments returns true.
    When(Arc<str>),
}

/// Form of the output.
#[derive(Clone, Debug)]
pub struct OutputSpec {
    /// JSON Schema of the output; `None` means `{text: string}`.
    pub schema: Option<OutputSchema>,
    /// How the form is enforced.
    pub mode: OutputMode,
    /// Maximum times that an invalid output is returned to the model.
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

/// How the form of the output is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputMode {
    /// The best mode that the model supports: native, else tool, else text.
    Auto,
    /// The provider enforces the schema.
    Native,
    /// The model calls a final tool `answer`.
    Tool,
    /// The outermost JSON of the answer's text.
    Text,
    /// The answer names an artifact. Accepted in all modes.
    Marker,
}

/// Limits of a conversation, over all attempts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetSpec {
    /// Model calls, including lost ones.
    pub turns: u32,
    /// Tool calls.
    pub tool_calls: u32,
    /// Concurrent tool calls.
    pub parallel: u32,
    /// Tokens of all prompts.
    pub input_tokens: u64,
    /// Tokens of all answers.
    pub output_tokens: u64,
    /// Price of all model calls in USD.
    pub cost_usd: Option<f64>,
    /// Milliseconds from the first start to the end, without waiting for people.
    pub wall_ms: u64,
    /// Milliseconds of waiting for people.
    pub waiting_ms: u64,
    /// Consecutive equal calls with equal results.
    pub repeats: u32,
    /// Whether the last allowed turn requests the answer without tools.
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

/// Rule of compaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompactionSpec {
    /// Fraction of the model's context that a prompt can fill.
    pub at: f64,
    /// Number of last turns to keep.
    pub keep_turns: u32,
}

impl Default for CompactionSpec {
    fn default() -> Self {
        Self { at: 0.7, keep_turns: 4 }
    }
}

/// Rule for calls with side effects after untrusted text entered the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaintRule {
    /// They require approval.
    Approve,
    /// They are refused.
    Deny,
    /// They are made.
    Allow,
}

/// Rule for calls that a crash interrupted and that may have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownRule {
    /// The model receives a message.
    Tell,
    /// A person decides whether to repeat the call.
    Ask,
    /// The conversation fails.
    Fail,
}

impl ConversationSpec {
    /// Returns the tool that has this name for the model.
    pub fn tool(&self, name: &str) -> Option<&ToolSpec> {
        self.tools.iter().find(|tool| tool.declaration.name == name)
    }

    /// Returns the model of this alias.
    pub fn model(&self, alias: &str) -> Option<&ModelSpec> {
        self.models.iter().find(|model| model.alias == alias)
    }

    /// Returns the key of the call at this position.
    pub fn call_key(&self, reset: u32, turn: u32, index: u32) -> String {
        sinew_protocol::id::call_key(&self.activation, reset, turn, index)
    }
}
