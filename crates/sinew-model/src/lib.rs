//! Conversations of agents with language models, as a pure state machine.
//!
//! Place in the data flow: an agent file with `run: model:` becomes a [`ConversationSpec`]. The shell
//! (`sinew-agents`) writes a log of [`StepRecord`]s for each activation. [`ConversationState::fold`]
//! returns its state, and [`ConversationSpec::next`] the next step: call a model, call tools, ask a
//! person, end. The shell performs it and appends the result. After a crash, it resumes from the log.
//!
//! [`rehearsal`] runs a conversation with scripted answers in virtual time, with crashes after each
//! record. [`codec`] encodes prompts for providers and decodes their answers; [`script`] answers from a
//! file. This crate never reads a clock, randomness, a file or the network, makes a call, or waits.

pub mod codec;
mod compose;
mod discovery;
mod form_bounds;
mod json_in_text;
mod next;
mod output;
mod prompt;
mod record;
pub mod rehearsal;
pub mod script;
mod spec;
mod state;
#[cfg(test)]
extern crate self as sinew_model; // fuzz targets reference this crate by name
#[cfg(test)]
mod tests;
mod text;
mod thoughts;
mod turn;

pub use form_bounds::FormBounds;
pub use next::{ApprovalTest, EFFECT_HINT, ModelAsk, NextStep, PersonQuestion, QuestionReason, ToolCall};
pub use output::ANSWER_TOOL;
pub use prompt::{AnswerForm, Prompt, PromptMeasure, PromptMessage, PromptResult};
pub use record::{
    AskStep, CallPosition, CallResult, CallStatus, CompactStep, ConversationEnd, DiscoveredTool,
    FeedbackReason, KeptArtifact, MovedResult, SessionTurn, StartStep, StepBody, StepRecord,
};
pub use spec::{
    ApprovalRule, BudgetSpec, CALL_TOOL, CALL_TOOL_SOURCE, CompactionSpec, ConversationSpec, EffectClass,
    FIND_TOOLS, FallbackRule, ModelAbilities, ModelSpec, OutputMode, OutputSchema, OutputSpec, PERSON_SOURCE,
    Provider, SchemaAbility, TaintRule, TokenPrice, ToolAbility, ToolSpec, UnknownRule,
};
pub use state::{CallState, ConversationState, ConversationTotals, Exchange, MissedAsk, PersonDecision};
pub use text::{CappedResult, canonical, cap_result, shortened, value_without_hidden, without_hidden};
pub use turn::{FinishReason, ModelRefusal, ModelTurn, RefusalKind, RequestedCall, TokenUsage, TurnDelta};
