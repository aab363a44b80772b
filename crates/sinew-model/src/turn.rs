//! An answer of a language model, or its refusal.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A complete answer of a language model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelTurn {
    /// The assistant message in the provider's encoding, sent back unchanged to the same provider.
    pub verbatim: Value,
    /// Text of the answer, without reasoning.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Tool calls that the model requests, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<RequestedCall>,
    /// Why the model stopped.
    pub finish: FinishReason,
    /// Tokens of the call.
    #[serde(default)]
    pub usage: TokenUsage,
    /// The model's name as the provider reports it; empty if it reports none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
}

/// A call that a model requested. All its fields are untrusted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestedCall {
    /// The provider's id of the call, unique within its turn.
    pub id: String,
    /// Name of the tool, unchecked.
    pub tool: String,
    /// Arguments, unchecked; not necessarily JSON.
    pub arguments: String,
    /// Tool through which the model called this one; `None` for a call by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The answer is complete, or waits for the results of its calls.
    #[default]
    Stop,
    /// The limit of output tokens was reached, so the end of the answer is missing.
    Length,
}

/// Tokens of one or more model calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenUsage {
    /// Tokens of the prompt, including cached ones.
    pub input: u64,
    /// Tokens of the answer, including reasoning.
    pub output: u64,
    /// Tokens of the prompt from the provider's cache.
    pub cached: u64,
    /// Tokens of reasoning.
    pub reasoning: u64,
    /// Whether tokens of prompt or answer are estimated, because the provider reported none.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl TokenUsage {
    /// Adds the tokens of another call.
    pub fn add(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cached = self.cached.saturating_add(other.cached);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
        self.estimated |= other.estimated;
    }
}

/// A delta of a streamed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnDelta {
    /// More text of the answer.
    Text(String),
    /// The model started a call of this tool.
    Call(String),
}

/// Reason why a model call failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRefusal {
    /// Class of the reason, which determines the next step.
    pub kind: RefusalKind,
    /// One sentence for a person, without secrets.
    pub message: String,
    /// Delay that the provider requested before a retry, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// Class of a failed model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// Broken or overloaded server, lost connection, timeout, unreadable or oversized answer.
    Unavailable,
    /// The provider limits the rate of requests (429).
    Limited,
    /// The quota or the credit of the key is exhausted (402), so that a retry does not help.
    QuotaExceeded,
    /// The key is missing or not accepted, or a named part of the request is not valid.
    Denied,
    /// The provider rejects the request for an unrecognised reason, such as an unknown form of
    /// "too long".
    BadRequest,
    /// The prompt does not fit the model's context.
    ContextTooLong,
    /// The provider's filter blocked the prompt or the answer.
    Filtered,
    /// The model refuses to answer.
    Refused,
}

impl ModelRefusal {
    /// Creates a refusal without a delay.
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after_ms: None }
    }

    /// Creates the refusal for an unreadable answer.
    pub(crate) fn unreadable(problem: impl std::fmt::Display) -> Self {
        Self::new(RefusalKind::Unavailable, format!("the answer cannot be read: {problem}"))
    }
}

impl std::fmt::Display for ModelRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ModelRefusal {}
