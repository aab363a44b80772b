//! Conversations of agents with language models, as a pure machine.
//!
//! Place in the flow: an agent file with `run: model:` becomes a [`ConversationSpec`]. The shell (`sinew-agents`) keeps a
//! log of [`StepRecord`]s for each activation. [`ConversationState::fold`] turns the log into a state, and
//! [`ConversationSpec::next`] says what to do: ask a model, make calls, ask a person, end. The shell does it and appends
//! what came of it. After a crash the fold of the log is where the conversation goes on.
//!
//! [`rehearsal`] plays a conversation with scripted answers in virtual time, with crashes at every record.
//! [`codec`] words prompts for providers and reads their answers, bytes in and bytes out; [`script`] answers out of a
//! file. This crate never reads a clock, chance, a file or the network, never makes a call, and never waits.

pub mod codec;
mod compose;
mod form_bounds;
mod next;
mod output;
mod prompt;
mod record;
pub mod rehearsal;
pub mod script;
mod spec;
mod state;
#[cfg(test)]
extern crate self as sinew_model; // targets of the fuzzer name this crate
#[cfg(test)]
mod tests;
mod text;
mod turn;

pub use form_bounds::FormBounds;
pub use next::{ApprovalTest, ModelAsk, NextStep, PersonQuestion, QuestionReason, ToolCall};
pub use output::ANSWER_TOOL;
pub use prompt::{AnswerForm, Prompt, PromptMeasure, PromptMessage, PromptResult};
pub use record::{
    AskStep, CallPosition, CallResult, CallStatus, CompactStep, ConversationEnd, FeedbackReason,
    KeptArtifact, MovedResult, SessionTurn, StartStep, StepBody, StepRecord,
};
pub use spec::{
    ApprovalRule, BudgetSpec, CompactionSpec, ConversationSpec, EffectClass, FallbackRule, ModelAbilities,
    ModelSpec, OutputMode, OutputSchema, OutputSpec, PERSON_SOURCE, Provider, SchemaAbility, TaintRule,
    TokenPrice, ToolAbility, ToolSpec, UnknownRule,
};
pub use state::{CallState, ConversationState, ConversationTotals, Exchange, MissedAsk, PersonDecision};
pub use text::{CappedResult, canonical, cap_result, shortened, value_without_hidden, without_hidden};
pub use turn::{FinishReason, ModelRefusal, ModelTurn, RefusalKind, RequestedCall, TokenUsage, TurnDelta};
