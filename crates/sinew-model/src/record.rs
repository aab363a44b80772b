//! Entries of a conversation's log. The fold of the log is the only state there is.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_protocol::Fault;
use sinew_protocol::usage::ModelTotals;

use crate::turn::{ModelRefusal, ModelTurn, TokenUsage};

/// Largest content of a result that stays when old results give way, in bytes: the words in its place are as long.
const MAX_KEPT_BYTES: usize = 128;

/// One entry of a conversation's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The process that wrote it.
    pub by: String,
    /// When it was written, in milliseconds since 1970.
    pub at: u64,
    /// Key of the call behind which a nested conversation wrote it; none for the conversation of the task itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// Content of the entry.
    #[serde(flatten)]
    pub body: StepBody,
}

/// Content of an entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StepBody {
    /// A process takes the conversation up: first of all, and again at each attempt and redelivery.
    Begin(StartStep),
    /// A model is about to be asked. Written before the call, so that calls that a crash loses are counted.
    Ask(AskStep),
    /// The model call gave no turn.
    Miss {
        /// Number of the turn that was asked for.
        turn: u32,
        /// The model that was asked.
        alias: String,
        /// The reason.
        refusal: ModelRefusal,
    },
    /// The model's answer. Never asked for again.
    Turn {
        /// Number of the turn, from 0.
        turn: u32,
        /// The model that answered.
        alias: String,
        /// The answer.
        answer: Box<ModelTurn>,
        /// Price of the call in USD; none if the model has no price.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<f64>,
    },
    /// A person is about to be asked about a call.
    Question(CallPosition),
    /// The person's decision about a call.
    Decision {
        /// The call.
        #[serde(flatten)]
        call: CallPosition,
        /// Whether the call may be made.
        approved: bool,
        /// Identity of the person; empty if unknown.
        #[serde(default)]
        by_person: String,
        /// Comment of the person.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment: Option<String>,
    },
    /// A call that must not be made twice is about to be made.
    Call(CallPosition),
    /// The result of a call.
    Done {
        /// The call.
        #[serde(flatten)]
        call: CallPosition,
        /// The result, as the model is told.
        result: CallResult,
    },
    /// Words to the model about an answer that could not be used.
    Feedback {
        /// Number of the turn that could not be used.
        turn: u32,
        /// Reason why it could not be used.
        reason: FeedbackReason,
        /// The words.
        text: String,
    },
    /// Artifacts that tools left, stored where another process finds them. Written before the results that name them.
    Artifacts {
        /// The artifacts, oldest first.
        artifacts: Vec<KeptArtifact>,
    },
    /// Old parts of the conversation gave way.
    Compact(CompactStep),
    /// The conversation is over.
    End(ConversationEnd),
}

/// A process takes the conversation up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartStep {
    /// Attempt of the activation, from 1.
    pub attempt: u32,
    /// Id of the task.
    pub task: String,
    /// sha256 of the request: another request never continues this conversation.
    pub request: String,
    /// sha256 of what the agent file says about the conversation.
    pub agent: String,
    /// Whether the turns before it are void. Their tokens and calls still count in the budget.
    #[serde(default)]
    pub reset: bool,
    /// How often the queue has delivered the task, this time included; 0 if it came otherwise.
    #[serde(default)]
    pub delivery: u64,
    /// Earlier conversations of the session, oldest first; told at the first begin and at each reset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub session: Vec<SessionTurn>,
}

/// A conversation that has ended, as later ones of its session are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionTurn {
    /// Key of the conversation.
    pub activation: String,
    /// When it ended, in milliseconds since 1970.
    pub at: u64,
    /// The user message.
    pub input: String,
    /// The output in words.
    pub output: String,
    /// Whether the conversation held words of anybody.
    #[serde(default)]
    pub tainted: bool,
}

/// An artifact of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptArtifact {
    /// Name of the artifact.
    pub name: String,
    /// Version within the conversation, from 0.
    pub version: u32,
    /// Media type.
    pub media_type: String,
    /// Address of the bytes.
    pub address: String,
}

/// A model is about to be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskStep {
    /// Number of the turn that is asked for, from 0.
    pub turn: u32,
    /// The model.
    pub alias: String,
    /// sha256 of the request's bytes.
    pub prompt: String,
    /// Length of the prompt in bytes; corrects the estimate of tokens.
    pub bytes: u64,
}

/// Position of a call: its identity. Arguments are never part of it, because models reword them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallPosition {
    /// Number of the turn.
    pub turn: u32,
    /// Number of the call within the turn, from 0.
    pub index: u32,
    /// Key of the call: what a receiver recognises a repeated call by.
    pub key: String,
}

/// Result of a call, as the model is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// Outcome of the call.
    pub status: CallStatus,
    /// The output, or the reason of the failure; cut to the tool's limit.
    pub content: Value,
    /// Address or name of the artifact with the whole output, where `content` was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<String>,
    /// Whether the content may hold words of anybody.
    #[serde(default)]
    pub open: bool,
    /// Model calls behind the result: those of the agent or workflow that was called, and of all that it called.
    #[serde(default, skip_serializing_if = "ModelTotals::is_empty")]
    pub usage: ModelTotals,
    /// Whether these model calls were made by a conversation nested in this one, within its budget.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nested: bool,
    /// Milliseconds for which a nested conversation waited for people.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waited_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl CallResult {
    /// A result without model calls behind it.
    pub fn new(status: CallStatus, content: impl Into<Value>) -> Self {
        Self {
            status,
            content: content.into(),
            artifact: None,
            open: false,
            usage: ModelTotals::default(),
            nested: false,
            waited_ms: 0,
        }
    }

    /// Whether leaving the content out saves space.
    pub(crate) fn may_give_way(&self) -> bool {
        self.status == CallStatus::Succeeded
            && (self.artifact.is_some() || self.content.to_string().len() > MAX_KEPT_BYTES)
    }

    /// Whether anybody may have written the content. The words of a failure are the tool's words too.
    pub(crate) fn holds_words_of_others(&self) -> bool {
        let is_told = matches!(self.status, CallStatus::Succeeded | CallStatus::Failed | CallStatus::Unknown);
        self.open && is_told
    }
}

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    /// The tool gave an output.
    Succeeded,
    /// The tool failed.
    Failed,
    /// The call was not made: the tool is unknown, or the arguments do not fit.
    Invalid,
    /// The call was not made: a limit, the loop guard, the taint gate or a person stood against it.
    Refused,
    /// The process stopped during the call, or its answer was lost: it may have taken effect.
    Unknown,
}

/// Reasons why an answer could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedbackReason {
    /// The output breaks its schema; counts as a repair.
    Repair,
    /// The answer was cut off by the limit of output tokens; it is asked for again with a higher limit.
    CutOff,
    /// The work is done, and the output is asked for in its form.
    Form,
}

/// Old parts of the conversation gave way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompactStep {
    /// Turns before this one gave way.
    pub before: u32,
    /// Their summary; none if only the results of their calls were left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Results that were left out and lie in artifacts now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<MovedResult>,
    /// Tokens of the summary's model call.
    #[serde(default)]
    pub usage: TokenUsage,
    /// Price of the summary's model call in USD; none if the model has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

/// A result of a call that lies in an artifact instead of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedResult {
    /// Number of the turn.
    pub turn: u32,
    /// Number of the call within the turn, from 0.
    pub index: u32,
    /// Name and version of the artifact.
    pub artifact: String,
}

/// The end of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationEnd {
    /// The output; fits its schema.
    Output(Value),
    /// Name and version of the artifact that is the output.
    Artifact(String),
    /// The reason why there is no output.
    Fault(Fault),
}
